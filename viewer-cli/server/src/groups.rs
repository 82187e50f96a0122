//! The locations of a trace, and the groups whose calls have lanes together.

use std::collections::BTreeMap;

use annals_format::{Definitions, LaneKind, LocationId};

/// Which locations belong to what.
#[derive(Debug)]
pub(crate) struct Members {
    /// Ids by number, ascending.
    pub(crate) locations: Vec<LocationId>,
    /// Numbers of the locations of each group, ascending.
    groups: BTreeMap<(LaneKind, u32), Vec<u32>>,
    /// Groups that have the same locations as another one: the one that the overview has lanes of.
    stored: BTreeMap<(LaneKind, u32), (LaneKind, u32)>,
    /// Trace time before which nothing is.
    pub(crate) first_ns: i64,
}

impl Members {
    /// Finds the groups of a trace.
    pub(crate) fn of_definitions(definitions: &Definitions, first_ns: i64) -> Self {
        let locations: Vec<LocationId> = definitions.locations.keys().copied().collect();
        let mut groups: BTreeMap<(LaneKind, u32), Vec<u32>> = BTreeMap::new();
        for (location, number) in definitions.locations.values().zip(0..) {
            let process = location.process;
            let host = definitions
                .processes
                .get(&process)
                .map(|process| process.host.get());
            let host = host.map(|host| (LaneKind::Host, host));
            let of = [(LaneKind::Process, process.get()), (LaneKind::All, 0)];
            for group in of.into_iter().chain(host) {
                groups.entry(group).or_default().push(number);
            }
        }
        for stream in definitions.streams.values() {
            let source = definitions.sources.get(&stream.source);
            let number = stream
                .location
                .and_then(|id| locations.binary_search(&id).ok());
            if let (Some(source), Some(number)) = (source, number) {
                let group = (LaneKind::Source, source.name.get());
                groups.entry(group).or_default().push(number as u32);
            }
        }
        for numbers in groups.values_mut() {
            numbers.sort_unstable();
            numbers.dedup();
        }
        let mut first_with: BTreeMap<&Vec<u32>, (LaneKind, u32)> = BTreeMap::new();
        let mut stored = BTreeMap::new();
        for (group, numbers) in &groups {
            let same = match numbers[..] {
                [only] => (LaneKind::Location, locations[only as usize].get()),
                _ => *first_with.entry(numbers).or_insert(*group),
            };
            if same != *group {
                stored.insert(*group, same);
            }
        }
        Self {
            locations,
            groups,
            stored,
            first_ns,
        }
    }

    /// Returns the numbers of the locations of a lane. Empty if there is no such lane.
    pub(crate) fn of(&self, kind: LaneKind, id: u32) -> impl Iterator<Item = usize> {
        let own = match kind {
            LaneKind::Location => self.locations.binary_search(&LocationId::new(id)).ok(),
            _ => None,
        };
        let group = self.groups.get(&(kind, id));
        own.into_iter()
            .chain(group.into_iter().flatten().map(|number| *number as usize))
    }

    /// Returns the group that the overview has instead of another with the same locations (SPEC.md, *Overview*).
    pub(crate) fn stored(&self, kind: LaneKind, id: u32) -> (LaneKind, u32) {
        let group = (kind, id);
        self.stored.get(&group).copied().unwrap_or(group)
    }

    /// Returns all groups of several locations or one, with the numbers of their locations.
    pub(crate) fn groups(&self) -> impl Iterator<Item = ((LaneKind, u32), &[u32])> {
        self.groups
            .iter()
            .map(|(group, numbers)| (*group, &numbers[..]))
    }
}
