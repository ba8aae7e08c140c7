//! The fallback of machines without a Vulkan device: a method on the host, through the ops' own `eval`. It must
//! never name a device.

use std::fmt;

use super::{delegate::Outputs, program::Program, report};
use crate::{
    base::{Error, Result, Value},
    ir::Method,
    ops::{States, interpret},
    plan::{self, InputMeta},
};

/// A method made ready on the host: one thread, plain loops, no Vulkan. Values are those of the device up to the
/// rounding of sums; it is meant for machines where [`Gpu::open`](super::Gpu::open) fails, and is slow.
///
/// ```
/// # fn main() -> vkdelegate::Result<()> {
/// # let program = vkdelegate::Program::open("tests/fixtures/linear_const.pt2")?;
/// # let inputs = program.only_method()?.sample_inputs()?;
/// let mut fallback = vkdelegate::HostDelegate::build(&program, None)?;
/// let outputs = fallback.run(&inputs)?;
/// # assert!(outputs.tensor(0).is_ok());
/// # Ok(())
/// # }
/// ```
pub struct HostDelegate {
    method: Method,
    states: States,
}

impl HostDelegate {
    /// Makes `method` ready; it is not needed when the program has only one.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) with every node that cannot run, in
    /// [`Error::refusals`].
    pub fn build(program: &Program, method: Option<&str>) -> Result<HostDelegate> {
        let info = match method {
            Some(name) => program.method(name)?,
            None => program.only_method()?,
        };
        let method = report::prepare_unfused(info)?;
        let refusals = plan::check_all(&method, &plan::sample_envs(&method, plan::SAMPLE_CAP))?;
        if !refusals.is_empty() {
            return Err(Error::refused(refusals));
        }
        Ok(HostDelegate { method, states: States::new() })
    }

    /// Runs the method. Shapes may differ from run to run within what the program allows.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput) naming the input, what was expected and what was
    /// given; [`ErrorKind::BadData`](crate::ErrorKind::BadData) naming the node that met data it cannot process. State
    /// has not changed then.
    pub fn run(&mut self, inputs: &[Value]) -> Result<Outputs> {
        let metas: Vec<InputMeta> = inputs.iter().map(InputMeta::of).collect();
        plan::bind_inputs(&self.method, &metas)?;
        let mut states = self.states.clone();
        let interpreted = interpret(&self.method, inputs, &mut states)?;
        self.states = states;
        Ok(Outputs { user: interpreted.user, mutated_inputs: interpreted.mutated_inputs })
    }

    /// Gives every state its initial value.
    pub fn reset(&mut self) {
        self.states.clear();
    }
}

impl fmt::Debug for HostDelegate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HostDelegate({})", self.method.graph.name())
    }
}
