//! Dispatches join the plan here, within the limits of the device.

use super::Lowering;
use crate::{
    base::{Error, Result},
    ops::Tensor,
    shader::{Access, Dispatch},
};

impl Lowering<'_> {
    /// Adds a dispatch; one without work is left out.
    ///
    /// # Errors
    /// When an operand is larger than a descriptor of this device reaches, there are too many groups, or a group is too
    /// large.
    pub fn emit(&mut self, dispatch: Dispatch) -> Result<()> {
        if dispatch.groups.contains(&0) {
            return Ok(());
        }
        self.check_work_group(&dispatch)?;
        if let Some(axis) = (0..3).find(|&axis| dispatch.groups[axis] > self.profile.max_groups[axis]) {
            return Err(Error::unsupported(format!(
                "needs {} work groups on axis {axis}; this device takes {}",
                dispatch.groups[axis], self.profile.max_groups[axis]
            )));
        }
        // A descriptor starts at an aligned offset at or before the operand, so the slack counts too.
        let slack = self.profile.storage_offset_alignment_bytes.saturating_sub(4);
        for operand in &dispatch.operands {
            let needs_descriptor = self.profile.access == Access::Ssbo;
            let start_slack =
                if operand.region.offset_bytes % self.profile.storage_offset_alignment_bytes.max(1) == 0 {
                    0
                } else {
                    slack
                };
            if needs_descriptor
                && operand.region.len_bytes + start_slack > self.profile.max_storage_buffer_range_bytes
            {
                let name = self
                    .storages
                    .get(operand.region.storage.0 as usize)
                    .map_or("?", |storage| storage.name.as_str());
                return Err(Error::unsupported(format!(
                    "tensor `{name}` takes {} bytes here; a binding of this device reaches {} (maxStorageBufferRange)",
                    operand.region.len_bytes, self.profile.max_storage_buffer_range_bytes
                )));
            }
        }
        for written in dispatch.operands.iter().filter(|operand| operand.access.writes()) {
            let storage = written.region.storage;
            let is_apart = |tensor: &Tensor| tensor.storage != storage;
            self.sources.retain(|made, sources| *made != storage && sources.iter().all(is_apart));
        }
        self.dispatches.push(dispatch);
        Ok(())
    }

    /// Groups for `invocations` of one-dimensional work with `local_x` in a group, spread over x and y.
    /// Kernels compute the flat id with `flat_group_id()`, and must skip ids past the end.
    ///
    /// # Errors
    /// When even both axes do not hold them.
    pub fn groups_1d(&self, invocations: usize, local_x: u32) -> Result<[u32; 3]> {
        let groups = invocations.div_ceil(local_x.max(1) as usize);
        let max_x = self.profile.max_groups[0].max(1) as usize;
        if groups <= max_x {
            return Ok([groups as u32, 1, 1]);
        }
        let rows = groups.div_ceil(max_x);
        if rows > self.profile.max_groups[1] as usize {
            return Err(Error::unsupported(format!(
                "needs {groups} work groups; this device takes {max_x} x {}",
                self.profile.max_groups[1]
            )));
        }
        Ok([groups.div_ceil(rows) as u32, rows as u32, 1])
    }

    /// Fails when a work group of `dispatch` has more invocations or shared memory than the device takes.
    fn check_work_group(&self, dispatch: &Dispatch) -> Result<()> {
        let Some(template) = dispatch.kernel.info() else { return Ok(()) };
        let sizes = dispatch.local_size();
        let invocations: u32 = sizes.iter().product();
        let profile = self.profile();
        let fits = sizes.iter().zip(profile.max_group_size).all(|(&size, most)| size <= most);
        if invocations > profile.max_invocations || !fits {
            return Err(Error::unsupported(format!(
                "kernel {} runs work groups of {sizes:?} invocations; this device takes {} and {:?} an axis",
                template.name, profile.max_invocations, profile.max_group_size
            )));
        }
        if template.shared_bytes > profile.max_shared_bytes {
            return Err(Error::unsupported(format!(
                "kernel {} takes {} bytes of shared memory; this device has {}",
                template.name, template.shared_bytes, profile.max_shared_bytes
            )));
        }
        Ok(())
    }
}
