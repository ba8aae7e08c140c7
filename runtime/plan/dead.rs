//! Dispatches that nobody needs: an op lowers all its outputs, and a program may read the first one only.

use crate::{
    ops::{Storage, StorageKind},
    shader::{Dispatch, StorageId},
};

/// Removes every dispatch that writes neither an output, nor a state, nor the status words, nor anything that a
/// dispatch which stays reads. `outputs` are the storages that are read back.
pub fn remove(dispatches: &mut Vec<Dispatch>, storages: &[Storage], outputs: &[StorageId]) {
    let outlasts = |storage: &Storage| matches!(storage.kind, StorageKind::State(_) | StorageKind::Status);
    let mut needed: Vec<bool> = storages.iter().map(outlasts).collect();
    let need = |needed: &mut Vec<bool>, id: StorageId| {
        if let Some(slot) = needed.get_mut(id.0 as usize) {
            *slot = true;
        }
    };
    outputs.iter().for_each(|&id| need(&mut needed, id));
    let mut stays = vec![false; dispatches.len()];
    for (dispatch, stays) in dispatches.iter().zip(&mut stays).rev() {
        let is_needed = |id: StorageId| needed.get(id.0 as usize).copied().unwrap_or(true);
        *stays = dispatch
            .operands
            .iter()
            .any(|operand| operand.access.writes() && is_needed(operand.region.storage));
        if *stays {
            let read = dispatch.operands.iter().filter(|operand| operand.access.reads());
            read.for_each(|operand| need(&mut needed, operand.region.storage));
        }
    }
    let mut stays = stays.into_iter();
    dispatches.retain(|_| stays.next().unwrap_or(true));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shader::{KernelRef, Operand, OperandAccess, Region, TemplateId};

    fn dispatch(label: &str, reads: u32, writes: u32) -> Dispatch {
        let operand = |id, access| Operand {
            region: Region { storage: StorageId(id), offset_bytes: 0, len_bytes: 4, element_bytes: 4 },
            access,
        };
        Dispatch {
            kernel: KernelRef { template: TemplateId(0), variant: 0 },
            operands: vec![operand(reads, OperandAccess::Read), operand(writes, OperandAccess::Write)],
            params: vec![],
            spec: vec![],
            groups: [1, 1, 1],
            label: label.to_string(),
            ops: 0,
            choice: None,
        }
    }

    #[test]
    fn what_leads_to_an_output_or_a_state_stays() {
        let storage = |kind| Storage { kind, len_bytes: 4, name: String::new() };
        let storages = [
            storage(StorageKind::Arena),
            storage(StorageKind::Arena),
            storage(StorageKind::Arena),
            storage(StorageKind::State(0)),
            storage(StorageKind::Arena),
        ];
        let mut dispatches = vec![
            dispatch("input to 1", 0, 1),
            dispatch("unread", 0, 2),
            dispatch("1 to the output", 1, 4),
            dispatch("1 to the state", 1, 3),
            dispatch("unread too", 4, 2),
        ];
        remove(&mut dispatches, &storages, &[StorageId(4)]);
        let labels: Vec<&str> = dispatches.iter().map(|dispatch| dispatch.label.as_str()).collect();
        assert_eq!(labels, ["input to 1", "1 to the output", "1 to the state"]);
    }
}
