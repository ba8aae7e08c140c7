//! Timestamps of a recording: one at its start and one after each command, so the times add up to the whole.

use std::sync::Arc;

use ash::vk;

use super::device::{Shared, count, uncount};
use super::error::GpuResult;

const POOL_QUERIES: u32 = 256;

/// How long one command of a recording took on the GPU.
#[derive(Clone, Debug, PartialEq)]
pub struct Timing {
    /// The dispatch's label, or what was copied or filled.
    pub label: String,
    /// Nanoseconds from the end of the command before it to its own end.
    pub gpu_ns: f64,
}

/// The query pools of one recording, and the label of each timed command.
pub(super) struct Timestamps {
    shared: Arc<Shared>,
    pools: Vec<vk::QueryPool>,
    used: u32,
    labels: Vec<String>,
}

impl Timestamps {
    pub(super) fn new(shared: &Arc<Shared>) -> Timestamps {
        Timestamps { shared: Arc::clone(shared), pools: Vec::new(), used: POOL_QUERIES, labels: Vec::new() }
    }

    /// Records the timestamp that the first command is counted from.
    pub(super) fn start(&mut self, commands: vk::CommandBuffer) -> GpuResult<()> {
        self.stamp(commands)
    }

    /// Records the timestamp that ends the command just recorded.
    pub(super) fn finish(&mut self, commands: vk::CommandBuffer, label: &str) -> GpuResult<()> {
        self.stamp(commands)?;
        self.labels.push(label.to_owned());
        Ok(())
    }

    fn stamp(&mut self, commands: vk::CommandBuffer) -> GpuResult<()> {
        if self.used == POOL_QUERIES {
            self.add_pool(commands)?;
        }
        let pool = self.pools.last().copied().unwrap_or_default();
        let stage = vk::PipelineStageFlags::BOTTOM_OF_PIPE;
        // SAFETY: the commands are being recorded, the query was reset before in them, and the queue has timestamps.
        unsafe { self.shared.raw.cmd_write_timestamp(commands, stage, pool, self.used) };
        self.used += 1;
        Ok(())
    }

    fn add_pool(&mut self, commands: vk::CommandBuffer) -> GpuResult<()> {
        let info =
            vk::QueryPoolCreateInfo::default().query_type(vk::QueryType::TIMESTAMP).query_count(POOL_QUERIES);
        // SAFETY: the struct is complete.
        let pool = unsafe { self.shared.raw.create_query_pool(&info, None) }
            .map_err(|result| self.shared.error("vkCreateQueryPool", result))?;
        self.pools.push(pool);
        self.used = 0;
        count(&self.shared.counters.query_pools, 1);
        // SAFETY: the commands are being recorded, outside of any render pass.
        unsafe { self.shared.raw.cmd_reset_query_pool(commands, pool, 0, POOL_QUERIES) };
        Ok(())
    }

    /// Reads the times of the last execution, which must be over.
    pub(super) fn read(&self) -> GpuResult<Vec<Timing>> {
        let Some(caps) = self.shared.info.caps.timestamps else { return Ok(Vec::new()) };
        let mut ticks = Vec::with_capacity(self.labels.len() + 1);
        for (index, &pool) in self.pools.iter().enumerate() {
            let is_last = index + 1 == self.pools.len();
            let queries = if is_last { self.used } else { POOL_QUERIES };
            let mut values = vec![0u64; queries as usize];
            // SAFETY: the queries were written by an execution that is over.
            unsafe {
                self.shared.raw.get_query_pool_results(pool, 0, &mut values, vk::QueryResultFlags::TYPE_64)
            }
            .map_err(|result| self.shared.error("vkGetQueryPoolResults", result))?;
            ticks.extend(values);
        }
        let pairs = ticks.iter().zip(ticks.iter().skip(1));
        let timing = |((&from, &to), label): ((&u64, &u64), &String)| Timing {
            label: label.clone(),
            gpu_ns: elapsed_ticks(from, to, caps.valid_bits) as f64 * f64::from(caps.period_ns),
        };
        Ok(pairs.zip(&self.labels).map(timing).collect())
    }
}

impl Drop for Timestamps {
    fn drop(&mut self) {
        for &pool in &self.pools {
            // SAFETY: the recording that owns the pools is not pending.
            unsafe { self.shared.raw.destroy_query_pool(pool, None) };
        }
        uncount(&self.shared.counters.query_pools, self.pools.len() as u64);
    }
}

/// Ticks between two timestamps of which only the low bits count and which may have wrapped once.
fn elapsed_ticks(from: u64, to: u64, valid_bits: u32) -> u64 {
    let mask = u64::MAX >> 64u32.saturating_sub(valid_bits).min(63);
    to.wrapping_sub(from) & mask
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_count_in_their_valid_bits_and_wrap() {
        assert_eq!(elapsed_ticks(10, 25, 64), 15);
        assert_eq!(elapsed_ticks(0xffff_fff0, 0x10, 32), 0x20);
        assert_eq!(elapsed_ticks(u64::MAX, 4, 64), 5);
        assert_eq!(elapsed_ticks(0xab00_0000_0000_0001, 0xcd00_0000_0000_0003, 48), 2);
    }
}
