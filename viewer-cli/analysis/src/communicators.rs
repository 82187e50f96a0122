//! Communicators of messages and collective operations, by name.

use annals_format::{Definitions, Reference};
use rustc_hash::FxHashMap;

use crate::references::referred;

/// Returns the name of the communicator that the element `communicator` has as its value: that of what it refers
/// to, otherwise the value itself.
pub(crate) fn communicator_name(
    definitions: &Definitions,
    reference: Reference,
    value: i128,
) -> String {
    referred(definitions, reference, value).unwrap_or_else(|| value.to_string())
}

/// Numbers communicators by name: each process has its own object for one.
#[derive(Default)]
pub(crate) struct CommunicatorNumbers {
    by_value: FxHashMap<(Reference, u64), u32>,
    by_name: FxHashMap<String, u32>,
}

impl CommunicatorNumbers {
    /// Returns the number of a communicator.
    pub(crate) fn number(&mut self, definitions: &Definitions, value: (Reference, u64)) -> u32 {
        *self.by_value.entry(value).or_insert_with(|| {
            let name = communicator_name(definitions, value.0, value.1.into());
            let next = self.by_name.len() as u32;
            *self.by_name.entry(name).or_insert(next)
        })
    }

    /// Returns the names by number.
    pub(crate) fn names(&self) -> Vec<&str> {
        let mut names = vec![""; self.by_name.len()];
        for (name, number) in &self.by_name {
            names[*number as usize] = name;
        }
        names
    }
}
