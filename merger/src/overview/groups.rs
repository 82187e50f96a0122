//! Groups of locations whose calls have lanes together: those of a process, of a host, of a source, and all.

use std::collections::BTreeMap;

use annals_format::{Definitions, LaneKind, LocationId};

/// The groups of a trace's locations.
#[derive(Debug, Default)]
pub(crate) struct LaneGroups {
    /// Kind and number of each, and how many locations it has.
    pub(crate) groups: Vec<(LaneKind, u32, u64)>,
    /// By number of the location: the groups that it belongs to.
    pub(crate) of_location: Vec<Vec<u32>>,
}

impl LaneGroups {
    /// Finds the groups: those of several locations, of which no group before has the same ones.
    pub(crate) fn of(definitions: &Definitions) -> Self {
        let numbers: BTreeMap<LocationId, u32> =
            definitions.locations.keys().copied().zip(0..).collect();
        let mut members: BTreeMap<(LaneKind, u32), Vec<u32>> = BTreeMap::new();
        for (location, number) in definitions.locations.values().zip(0..) {
            let process = location.process;
            let mut add = |kind, id| members.entry((kind, id)).or_default().push(number);
            add(LaneKind::Process, process.get());
            add(LaneKind::All, 0);
            if let Some(process) = definitions.processes.get(&process) {
                add(LaneKind::Host, process.host.get());
            }
        }
        for stream in definitions.streams.values() {
            let source = definitions.sources.get(&stream.source);
            let number = stream.location.and_then(|id| numbers.get(&id));
            if let (Some(source), Some(number)) = (source, number) {
                let key = (LaneKind::Source, source.name.get());
                members.entry(key).or_default().push(*number);
            }
        }
        let mut found = Self {
            groups: Vec::new(),
            of_location: vec![Vec::new(); numbers.len()],
        };
        let mut known: Vec<Vec<u32>> = Vec::new();
        for (key, mut own) in members {
            own.sort_unstable();
            own.dedup();
            if own.len() < 2 || known.contains(&own) {
                continue;
            }
            let group = found.groups.len() as u32;
            found.groups.push((key.0, key.1, own.len() as u64));
            for number in &own {
                found.of_location[*number as usize].push(group);
            }
            known.push(own);
        }
        found
    }
}
