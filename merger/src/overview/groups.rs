//! Groups of locations whose calls have lanes together: those of a process, of a host, of a source, and all.

use std::collections::BTreeMap;

use annals_format::{Definitions, LaneKind, LocationId};

/// The groups of a trace's locations: those of each process, of each host, of all sources with one name, and all (SPEC.md, *Overview*).
/// A group is named by its kind and a number.
///
/// Locations have numbers, too: from 0, in the order of their ids.
#[derive(Clone, Debug, Default)]
pub struct LaneGroups {
    locations: Vec<LocationId>,
    /// Numbers of the locations of each group, ascending.
    members: BTreeMap<(LaneKind, u32), Vec<u32>>,
    /// Groups that have the same locations as another lane: that lane.
    stored: BTreeMap<(LaneKind, u32), (LaneKind, u32)>,
}

/// The groups that have lanes in the overview.
#[derive(Debug, Default)]
pub(crate) struct GroupsWithLanes {
    /// Kind and number of each, and how many locations it has.
    pub(crate) groups: Vec<(LaneKind, u32, u64)>,
    /// By number of the location: the places of the groups that it belongs to.
    pub(crate) of_location: Vec<Vec<u32>>,
}

impl LaneGroups {
    /// Finds the groups of a trace.
    pub fn of(definitions: &Definitions) -> Self {
        let locations: Vec<LocationId> = definitions.locations.keys().copied().collect();
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
            let location = stream.location;
            let number = location.and_then(|id| locations.binary_search(&id).ok());
            if let (Some(source), Some(number)) = (source, number) {
                let key = (LaneKind::Source, source.name.get());
                members.entry(key).or_default().push(number as u32);
            }
        }
        for own in members.values_mut() {
            own.sort_unstable();
            own.dedup();
        }
        let mut first_with: BTreeMap<&[u32], (LaneKind, u32)> = BTreeMap::new();
        let mut stored = BTreeMap::new();
        for (group, own) in &members {
            let lane = match own[..] {
                [only] => (LaneKind::Location, locations[only as usize].get()),
                _ => *first_with.entry(own).or_insert(*group),
            };
            if lane != *group {
                stored.insert(*group, lane);
            }
        }
        Self {
            locations,
            members,
            stored,
        }
    }

    /// Returns the ids of all locations, by number.
    pub fn locations(&self) -> &[LocationId] {
        &self.locations
    }

    /// Returns all groups, also those of one location, with the numbers of their locations.
    pub fn groups(&self) -> impl Iterator<Item = ((LaneKind, u32), &[u32])> {
        self.members
            .iter()
            .map(|(group, numbers)| (*group, &numbers[..]))
    }

    /// Returns the numbers of the locations of a group, or of the location with an id. Empty if there is no such group or location.
    pub fn members(&self, kind: LaneKind, id: u32) -> impl Iterator<Item = usize> {
        let own = match kind {
            LaneKind::Location => self.locations.binary_search(&LocationId::new(id)).ok(),
            _ => None,
        };
        let group = self.members.get(&(kind, id));
        own.into_iter()
            .chain(group.into_iter().flatten().map(|number| *number as usize))
    }

    /// Returns the kind and number that the overview has lanes of: of a group with only one location, that location; of several
    /// groups with the same locations, the first one.
    pub fn stored(&self, kind: LaneKind, id: u32) -> (LaneKind, u32) {
        let group = (kind, id);
        self.stored.get(&group).copied().unwrap_or(group)
    }

    /// Returns the groups that have lanes in the overview.
    pub(crate) fn with_lanes(&self) -> GroupsWithLanes {
        let mut groups = Vec::new();
        let mut of_location = vec![Vec::new(); self.locations.len()];
        for (group, own) in &self.members {
            if self.stored.contains_key(group) {
                continue;
            }
            for number in own {
                of_location[*number as usize].push(groups.len() as u32);
            }
            groups.push((group.0, group.1, own.len() as u64));
        }
        GroupsWithLanes {
            groups,
            of_location,
        }
    }
}
