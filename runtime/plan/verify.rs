//! Checks a finished plan without trusting what made it: hazards, lifetimes and ranges from byte ranges alone.

use super::{
    Place, Plan, PlannedOutput,
    barriers::{AbsoluteRange, accesses},
};
use crate::{
    base::{Error, Result},
    ops::StorageKind,
    shader::{OperandAccess, Region},
};

/// Checks `plan`: every access lies within its storage and buffer, is ordered against every conflicting earlier one by
/// a barrier, and reads only what an upload, a constant, a state or a dispatch has written and nothing else has
/// overwritten since.
///
/// # Errors
/// [`ErrorKind::Internal`](crate::base::ErrorKind::Internal), naming the dispatches: a fault of the planner.
pub fn verify(plan: &Plan) -> Result<()> {
    verify_ranges(plan)?;
    verify_hazards(plan)?;
    verify_contents(plan)
}

fn fault(plan: &Plan, index: usize, text: impl std::fmt::Display) -> Error {
    let label = plan.dispatches.get(index).map_or("the outputs", |dispatch| dispatch.label.as_str());
    Error::internal(format!("plan of `{}`, dispatch {index} ({label}): {text}", plan.method))
}

fn verify_ranges(plan: &Plan) -> Result<()> {
    for (index, dispatch) in plan.dispatches.iter().enumerate() {
        for operand in &dispatch.operands {
            let storage = plan.storages.get(operand.region.storage.0 as usize);
            let storage = storage.ok_or_else(|| fault(plan, index, "names no storage"))?;
            if operand.region.offset_bytes + operand.region.len_bytes > storage.len_bytes {
                return Err(fault(plan, index, format_args!("reaches past storage `{}`", storage.name)));
            }
            if operand.access == OperandAccess::ReadTexels {
                let texel_bytes = 4 * u64::from(operand.region.element_bytes);
                let is_whole = |bytes: u64| bytes > 0 && bytes.is_multiple_of(texel_bytes);
                if !is_whole(operand.region.len_bytes) || operand.region.offset_bytes % texel_bytes != 0 {
                    return Err(fault(
                        plan,
                        index,
                        format_args!("reads parts of texels of `{}`", storage.name),
                    ));
                }
            }
            if operand.access.writes() && matches!(storage.kind, StorageKind::Constant(_)) {
                return Err(fault(plan, index, format_args!("writes the constant `{}`", storage.name)));
            }
            if let Some(Place::Arena { buffer, offset_bytes }) =
                plan.places.get(operand.region.storage.0 as usize)
            {
                let len = plan.arena_bytes.get(*buffer as usize).copied().unwrap_or(0);
                if offset_bytes + storage.len_bytes > len {
                    return Err(fault(
                        plan,
                        index,
                        format_args!("storage `{}` leaves its arena", storage.name),
                    ));
                }
            }
        }
    }
    Ok(())
}

fn verify_hazards(plan: &Plan) -> Result<()> {
    let ranges: Vec<_> =
        plan.dispatches.iter().map(|dispatch| accesses(dispatch, &plan.storages, &plan.places)).collect();
    let mut epoch_start = 0;
    for (index, mine) in ranges.iter().enumerate() {
        if plan.barriers.get(index).copied().unwrap_or(false) {
            epoch_start = index;
        }
        for (earlier, theirs) in ranges.iter().enumerate().take(index).skip(epoch_start) {
            let conflict = mine
                .iter()
                .any(|(a, writes)| theirs.iter().any(|(b, wrote)| (*writes || *wrote) && a.overlaps(b)));
            if conflict {
                return Err(fault(
                    plan,
                    index,
                    format_args!("does not wait for dispatch {earlier}, which touches the same bytes"),
                ));
            }
        }
    }
    Ok(())
}

/// Follows who wrote each byte range last, and that a read finds what its own storage's writers left.
fn verify_contents(plan: &Plan) -> Result<()> {
    let mut owners: Vec<(AbsoluteRange, u32)> = Vec::new();
    let absolute = |region: &Region| AbsoluteRange::of(region, &plan.storages, &plan.places);
    let write = |owners: &mut Vec<(AbsoluteRange, u32)>, range: AbsoluteRange, storage: u32| {
        owners.retain(|(owned, owner)| *owner == storage || !owned.overlaps(&range));
        if !owners.iter().any(|(owned, owner)| {
            *owner == storage
                && owned.start <= range.start
                && range.end <= owned.end
                && owned.buffer == range.buffer
        }) {
            owners.push((range, storage));
        }
    };
    for input in &plan.inputs {
        let region = input.tensor.region();
        if let Some(range) = absolute(&region) {
            write(&mut owners, range, region.storage.0);
        }
    }
    for (index, dispatch) in plan.dispatches.iter().enumerate() {
        for operand in dispatch.operands.iter().filter(|operand| operand.access.reads()) {
            verify_read(plan, &owners, index, &operand.region)?;
        }
        for operand in dispatch.operands.iter().filter(|operand| operand.access.writes()) {
            if let Some(range) = absolute(&operand.region) {
                write(&mut owners, range, operand.region.storage.0);
            }
        }
    }
    let outputs = plan.outputs.iter().chain(plan.mutated_inputs.iter().map(|(_, output)| output));
    for output in outputs {
        let PlannedOutput::Tensor(tensor) = output else { continue };
        let end = plan.dispatches.len();
        let storage = plan.storages.get(tensor.storage.0 as usize);
        if storage.is_none_or(|storage| !matches!(storage.kind, StorageKind::Arena | StorageKind::State(_))) {
            return Err(fault(plan, end, "an output lies in memory that is not this run's"));
        }
        verify_read(plan, &owners, end, &tensor.region())?;
    }
    Ok(())
}

fn verify_read(plan: &Plan, owners: &[(AbsoluteRange, u32)], index: usize, region: &Region) -> Result<()> {
    let kind = plan.storages.get(region.storage.0 as usize).map(|storage| &storage.kind);
    if !matches!(kind, Some(StorageKind::Arena)) {
        return Ok(());
    }
    let Some(range) = AbsoluteRange::of(region, &plan.storages, &plan.places) else { return Ok(()) };
    if owners.iter().any(|(owned, owner)| *owner == region.storage.0 && owned.overlaps(&range)) {
        Ok(())
    } else {
        let name = &plan.storages[region.storage.0 as usize].name;
        Err(fault(
            plan,
            index,
            format_args!("reads `{name}`, which nothing has written or something has overwritten"),
        ))
    }
}
