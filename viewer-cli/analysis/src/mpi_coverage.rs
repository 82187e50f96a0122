//! What of MPI a trace does not have, and so which figures are not known.

use std::collections::BTreeSet;

use annals_format::names::property;
use annals_format::{Definitions, Role};
use serde::Serialize;

use crate::wait_states::WINDOW_SYNC;

/// Functions and event types of MPI that a trace may lack. All commands ask this which figures they know.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize)]
pub struct MpiCoverage {
    /// Functions that may wait for another process, or for which another one waits, and that were called past the recorder.
    pub unseen: BTreeSet<String>,
    /// Other functions that were called past the recorder.
    pub unseen_others: BTreeSet<String>,
    /// What the settings of the recording left out, of what waits depend on.
    pub left_out: BTreeSet<String>,
}

impl MpiCoverage {
    /// Finds it in the properties of the processes.
    pub fn of(definitions: &Definitions) -> Self {
        let mut found = Self::default();
        for of in &definitions.properties {
            let names = definitions.string(of.value).split(' ').map(str::to_owned);
            match definitions.string(of.key) {
                property::MPI_UNSEEN => found.unseen.extend(names),
                property::MPI_UNSEEN_OTHERS => found.unseen_others.extend(names),
                property::MPI_LEFT_OUT => {
                    let names = names.filter(|name| decides_waits(name, definitions));
                    found.left_out.extend(names);
                }
                _ => {}
            }
        }
        found
    }

    /// Returns whether nothing is missing.
    pub fn is_whole(&self) -> bool {
        *self == Self::default()
    }

    /// Returns whether the trace has all on which waits and efficiencies depend. Otherwise, they are not known.
    pub fn knows_waits(&self) -> bool {
        self.unseen.is_empty() && self.left_out.is_empty()
    }

    /// Returns whether something is missing that the user has not left out: a loss.
    pub fn has_loss(&self) -> bool {
        !self.unseen.is_empty()
    }
}

/// Returns whether waits depend on an event type or a function that is left out.
fn decides_waits(name: &str, definitions: &Definitions) -> bool {
    if name.starts_with("MPI") {
        // The start and the end of MPI do not count.
        return !["MPI_Init", "MPI_Init_thread", "MPI_Finalize"].contains(&name);
    }
    let mut types = definitions.event_types.values();
    let of_name = types.find(|of| definitions.string(of.name) == name);
    of_name.is_some_and(|of| of.role != Role::Point || name == WINDOW_SYNC)
}
