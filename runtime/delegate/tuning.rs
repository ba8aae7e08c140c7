//! What a tuner found on a device: kept with the context, and in the cache folder for the next start.

use std::{collections::BTreeMap, sync::Arc};

use serde::{Deserialize, Serialize};

use super::context::{Context, lock};
use crate::shader::Choices;

/// Where a build gets its choices of kernels from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tuning {
    /// From the device's class alone.
    Off,
    /// What was measured before: in this process, or kept in the cache folder. Nothing is measured.
    #[default]
    Cached,
    /// As `Cached`, and what has not been measured is measured now.
    Measure,
}

/// What was found with one way of reaching buffers.
#[derive(Default, Serialize, Deserialize)]
struct Found {
    tuned: BTreeMap<String, String>,
    struck_out: Vec<(String, String)>,
}

/// The text of a tuning file: what was found, by the way of reaching buffers.
type File = BTreeMap<String, Found>;

fn read(payload: &[u8]) -> File {
    if payload.is_empty() {
        return File::new();
    }
    serde_json::from_slice(payload).unwrap_or_else(|error| {
        log::warn!("what was tuned before cannot be read: {error}");
        File::new()
    })
}

impl From<&Found> for Choices {
    fn from(found: &Found) -> Choices {
        let mut choices = Choices::default();
        found.tuned.iter().for_each(|(choice, candidate)| choices.set(choice, candidate));
        found.struck_out.iter().for_each(|(family, candidate)| choices.strike_out(family, candidate));
        choices
    }
}

impl From<&Choices> for Found {
    fn from(choices: &Choices) -> Found {
        let own = |(a, b): (&str, &str)| (a.to_string(), b.to_string());
        Found {
            tuned: choices.all_tuned().map(own).collect(),
            struck_out: choices.all_struck_out().map(own).collect(),
        }
    }
}

impl Context {
    /// What was found on the device before, in this process or as the cache folder tells.
    pub fn choices(&self) -> Arc<Choices> {
        let mut known = lock(&self.choices);
        Arc::clone(known.get_or_insert_with(|| Arc::new(self.stored_choices())))
    }

    fn stored_choices(&self) -> Choices {
        let file = read(&self.gpu().load_tuning());
        file.get(&self.profile().access.to_string()).map(Choices::from).unwrap_or_default()
    }

    /// Keeps what was found, in place of what was known of the same choices. Whether the cache folder has it too.
    pub fn keep_choices(&self, found: &Choices) -> bool {
        let mut known = lock(&self.choices);
        // Another process may have written since.
        let mut file = read(&self.gpu().load_tuning());
        let access = self.profile().access.to_string();
        let mut choices = file.get(&access).map(Choices::from).unwrap_or_default();
        if let Some(known) = known.as_deref() {
            choices.extend(known);
        }
        choices.extend(found);
        file.insert(access, Found::from(&choices));
        *known = Some(Arc::new(choices));
        serde_json::to_vec(&file).is_ok_and(|payload| self.gpu().store_tuning(&payload))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_found_survives_the_file() {
        let mut choices = Choices::default();
        choices.set("matmul 8x16x32 f32", "rows4 64x1");
        choices.strike_out("matmul", "rows4 8x8");
        let file = File::from([("ssbo".to_string(), Found::from(&choices))]);
        let read = read(&serde_json::to_vec(&file).unwrap());
        assert_eq!(Choices::from(&read["ssbo"]), choices);
    }

    #[test]
    fn a_file_of_another_form_counts_as_none() {
        assert!(read(b"").is_empty());
        assert!(read(b"[1, 2]").is_empty());
        assert!(read(br#"{"ssbo": {"tuned": 3}}"#).is_empty());
    }
}
