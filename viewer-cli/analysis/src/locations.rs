//! Unambiguous names of locations.

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

#[cfg(test)]
mod tests {
    use super::*;
    use annals_format::{Definition, Location, LocationKind, StringId};

    #[test]
    fn threads_that_share_a_name_are_told_apart() {
        let mut definitions = Definitions::default();
        for (number, name) in ["solver", "io", ""].into_iter().enumerate() {
            definitions.add(Definition::String(
                StringId::new(number as u32),
                name.to_owned(),
            ));
        }
        // Name and thread id of each location of one process; the last is of another.
        let locations = [
            (0, 0, 71),
            (0, 0, 72),
            (0, 1, 73),
            (0, 2, 0),
            (0, 0, 0),
            (1, 0, 80),
        ];
        for (number, (process, name, system_id)) in locations.into_iter().enumerate() {
            definitions.add(Definition::Location(Location {
                id: LocationId::new(number as u32),
                process: ProcessId::new(process),
                name: StringId::new(name),
                kind: LocationKind::Thread,
                system_id,
            }));
        }
        let names = LocationNames::new(&definitions);
        let all: Vec<&str> = (0..7).map(|id| names.get(LocationId::new(id))).collect();
        assert_eq!(
            all,
            [
                "solver (thread 71)",
                "solver (thread 72)",
                "io",
                "unnamed",
                "solver #3",
                "solver",
                "unknown"
            ]
        );
    }
}
