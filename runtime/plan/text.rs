//! Prints a plan, for golden tests and for people.

use std::fmt;

use super::{Place, Plan, PlannedOutput};
use crate::{
    ops::StorageKind,
    shader::{Operand, OperandAccess},
};

impl Plan {
    fn operand_text(&self, operand: &Operand) -> String {
        let index = operand.region.storage.0 as usize;
        let place = match (self.places.get(index), self.storages.get(index).map(|storage| &storage.kind)) {
            (Some(Place::Arena { buffer, offset_bytes }), _) => {
                format!("arena{buffer}+{}", offset_bytes + operand.region.offset_bytes)
            }
            (_, Some(StorageKind::Constant(number))) => {
                format!("const{number}+{}", operand.region.offset_bytes)
            }
            (_, Some(StorageKind::State(number))) => format!("state{number}+{}", operand.region.offset_bytes),
            (_, Some(StorageKind::Status)) => "status".to_string(),
            _ => "?".to_string(),
        };
        let arrow = match operand.access {
            OperandAccess::ReadWrite => "<>",
            OperandAccess::Write => ">",
            OperandAccess::Read => "<",
            OperandAccess::ReadTexels => "<texels:",
        };
        format!("{arrow}{place}:{}", operand.region.len_bytes)
    }

    fn output_text(&self, output: &PlannedOutput) -> String {
        match output {
            PlannedOutput::Tensor(tensor) => {
                let operand = Operand { region: tensor.region(), access: OperandAccess::Read };
                format!("{}{:?} {}", tensor.dtype, tensor.sizes, self.operand_text(&operand))
            }
            PlannedOutput::Constant(constant) => format!("constant {:?}", constant.constant().name()),
            PlannedOutput::Host(value) => format!("host {value:?}"),
        }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "plan {}: {} dispatches, {} barriers",
            self.method,
            self.dispatches.len(),
            self.barriers.iter().filter(|&&barrier| barrier).count()
        )?;
        writeln!(f, "memory: arena {:?} bytes, at least {} live", self.arena_bytes, self.live_bytes)?;
        for input in &self.inputs {
            let operand = Operand { region: input.tensor.region(), access: OperandAccess::Write };
            writeln!(
                f,
                "in{} {}{:?} {}",
                input.index,
                input.tensor.dtype,
                input.tensor.sizes,
                self.operand_text(&operand)
            )?;
        }
        for (index, (dispatch, barrier)) in self.dispatches.iter().zip(&self.barriers).enumerate() {
            if *barrier {
                writeln!(f, "---- barrier")?;
            }
            let name = dispatch.kernel.info().map_or("?", |template| template.name);
            let operands: Vec<String> =
                dispatch.operands.iter().map(|operand| self.operand_text(operand)).collect();
            writeln!(f, "{index}: {name} {:?} {} ({})", dispatch.groups, operands.join(" "), dispatch.label)?;
        }
        for (index, output) in self.outputs.iter().enumerate() {
            writeln!(f, "out{index} {}", self.output_text(output))?;
        }
        for (index, output) in &self.mutated_inputs {
            writeln!(f, "mut{index} {}", self.output_text(output))?;
        }
        for (index, state) in self.states.iter().enumerate() {
            let how = match (state.written, state.in_place) {
                (false, _) => "kept",
                (true, true) => "written in place",
                (true, false) => "written by a copy",
            };
            writeln!(f, "state{index} {:?} {how}", state.name)?;
        }
        Ok(())
    }
}
