//! Names of locations that can be told apart.

use annals_format::{Definitions, LocationId, ProcessId};
use rustc_hash::FxHashMap;

/// Names of locations. Where locations of a process share a name, as threads do that were not named, the system's thread id
/// follows, or a number if there is none.
#[derive(Clone, Debug)]
pub struct LocationNames {
    names: FxHashMap<LocationId, String>,
}

impl LocationNames {
    /// Names the locations of a trace.
    pub fn new(definitions: &Definitions) -> Self {
        let text = |id| definitions.string(id);
        let mut counts: FxHashMap<(ProcessId, &str), u32> = FxHashMap::default();
        for location in definitions.locations.values() {
            *counts
                .entry((location.process, text(location.name)))
                .or_default() += 1;
        }
        let mut last: FxHashMap<(ProcessId, &str), u32> = FxHashMap::default();
        let names = definitions.locations.values().map(|location| {
            let name = text(location.name);
            let key = (location.process, name);
            let number = last.entry(key).or_default();
            *number += 1;
            let is_unique = counts[&key] == 1;
            let full = match (is_unique, location.system_id) {
                (true, _) if !name.is_empty() => name.to_owned(),
                (true, _) => "unnamed".to_owned(),
                (false, 0) if name.is_empty() => format!("unnamed #{number}"),
                (false, 0) => format!("{name} #{number}"),
                (false, id) if name.is_empty() => format!("thread {id}"),
                (false, id) => format!("{name} (thread {id})"),
            };
            (location.id, full)
        });
        Self {
            names: names.collect(),
        }
    }

    /// Returns the name of a location, or `unknown` if the trace does not define it.
    pub fn get(&self, id: LocationId) -> &str {
        self.names.get(&id).map_or("unknown", String::as_str)
    }
}
