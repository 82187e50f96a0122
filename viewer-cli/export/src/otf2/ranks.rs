//! The ranks of the run in an archive: the location of each; communicators and their members.

use super::definitions::{OutputDefinitions, OutputLocation, Ranks, order_of};
use super::inputs::{ParadigmLocations, UNDEFINED, bits};
use annals_foreign::otf2::enums::{GLOBAL_MEMBERS, PARADIGM_MPI, group_type};
use annals_foreign::otf2::{Datum, DefinitionKind};
use annals_format::{ObjectId, ProcessId, Reference, StringId};
use annals_merger::ArchiveReport;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// The events of a location.
#[derive(Clone, Copy, Debug)]
pub(super) struct LocationCounts {
    pub(super) events: u64,
    /// Those of messages and collectives among them.
    pub(super) communication: u64,
}

impl OutputDefinitions<'_> {
    /// Returns the communicator that an element names.
    #[inline]
    pub(crate) fn communicator_of(&mut self, reference: Reference, value: u64) -> u64 {
        match self.communicator_of.get(&(reference, value)) {
            Some(id) => *id,
            None => self.new_communicator_of(reference, value),
        }
    }

    fn new_communicator_of(&mut self, reference: Reference, value: u64) -> u64 {
        let ours = self.ours;
        let number = u32::try_from(value).unwrap_or(u32::MAX);
        let string = match reference {
            Reference::String => Some(StringId::new(number)),
            Reference::Object => ours.objects.get(&ObjectId::new(number)).map(|d| d.name),
            _ => None,
        };
        let id = match string.map(|string| ours.string(string)) {
            Some(name) => self.communicator(&format!("named {name}"), name),
            None => self.communicator(&format!("{value}"), &format!("communicator {value}")),
        };
        self.communicator_of.insert((reference, value), id);
        id
    }

    /// Returns a communicator with all ranks of the run, because its members are unknown.
    fn communicator(&mut self, key: &str, name: &str) -> u64 {
        if let Some(id) = self.communicators.get(key) {
            return *id;
        }
        let group = self.all_ranks();
        let id = self.new_id(DefinitionKind::Comm);
        let name = self.string(name);
        self.add(
            "Comm",
            id,
            [id, name, group, UNDEFINED, 0].map(bits).to_vec(),
        );
        self.communicators.insert(key.to_owned(), id);
        id
    }

    /// Returns the group of all ranks; made when a message needs it.
    fn all_ranks(&mut self) -> u64 {
        if let Some(ranks) = &self.ranks {
            return ranks.group;
        }
        let mut places: BTreeMap<u32, BTreeSet<usize>> = BTreeMap::new();
        for (process, of_process) in self.places_by_process() {
            if let Some(rank) = self.ours.ranks.get(&process) {
                places.entry(rank.rank).or_default().extend(of_process);
            }
        }
        // Ranks of which nothing is there have locations without events.
        const MOST_MISSING: u32 = 1 << 16;
        let last = places.keys().last().copied().unwrap_or(0);
        let missing = (last as usize + 1).saturating_sub(places.len());
        if missing <= MOST_MISSING as usize {
            for rank in 0..=last {
                places.entry(rank).or_default();
            }
        }
        let first = match self.worlds.get(&PARADIGM_MPI) {
            Some(world) => world.members.len() as u64,
            None => {
                let group_type = group_type::COMM_LOCATIONS;
                let id = self.new_group("MPI locations", group_type, Vec::new(), 0);
                let members = Vec::new();
                self.worlds
                    .insert(PARADIGM_MPI, ParadigmLocations { id, members });
                0
            }
        };
        let members = (first..first + places.len() as u64).collect();
        let group = self.new_group("all ranks", group_type::COMM_GROUP, members, 0);
        self.ranks = Some(Ranks {
            group,
            first,
            places,
        });
        group
    }

    /// Takes note that a process is in a collective operation of a communicator that has `size` processes.
    pub(super) fn note_member(&mut self, communicator: u64, process: ProcessId, size: u64) {
        let is_of_all = |ranks: &Ranks| ranks.places.len() as u64 == size;
        if self.ranks.as_ref().is_some_and(is_of_all) {
            return;
        }
        if let Some(rank) = self.ours.ranks.get(&process) {
            let members = self.members.entry(communicator).or_default();
            members.0 = members.0.max(size);
            members.1.insert(rank.rank);
        }
    }

    /// Chooses each rank's location and the locations that are left out, and makes the groups of communicators whose members
    /// are known. Must run when all events are written. `counts`: by place of the location. Returns what the archive
    /// does not have.
    pub(super) fn settle(&mut self, counts: &[LocationCounts]) -> ArchiveReport {
        let mut report = ArchiveReport::default();
        let most = |places: &BTreeSet<usize>| {
            let key = |place: &&usize| {
                let counts = counts[**place];
                (counts.communication, counts.events, Reverse(**place))
            };
            places.iter().max_by_key(key).copied()
        };
        let is_ours = |location: &OutputLocation| location.group != u64::MAX;
        for (location, counts) in self.locations.iter_mut().zip(counts) {
            location.is_left_out = is_ours(location) && counts.events == 0;
        }
        // A process without events is there all the same.
        for places in self.places_by_process().values() {
            if let Some(place) = most(places) {
                self.locations[place].is_left_out = false;
            }
        }
        let Some(Ranks { first, places, .. }) = self.ranks.take() else {
            return report;
        };
        let mut locations = Vec::with_capacity(places.len());
        for (rank, places) in &places {
            locations.push(match most(places) {
                Some(place) => self.locations[place].id,
                None => self.missing_rank(*rank),
            });
            let each = places.iter().map(|place| counts[*place].communication);
            report.at_other_locations += each.clone().sum::<u64>() - each.max().unwrap_or(0);
        }
        let count = places.len();
        if let Some(world) = self.worlds.get_mut(&PARADIGM_MPI) {
            world.members.extend(locations);
        }
        // Without archives, a rank is its number in the group of MPI's locations.
        let is_number = first == 0
            && places
                .keys()
                .last()
                .is_none_or(|l| *l as usize + 1 == count);
        let mut groups: BTreeMap<BTreeSet<u32>, u64> = BTreeMap::new();
        for (communicator, (size, members)) in std::mem::take(&mut self.members) {
            if !is_number || size != members.len() as u64 {
                report.communicators_of_all += 1;
                continue;
            }
            let group = match groups.get(&members) {
                Some(group) => *group,
                None => {
                    // Ranks in events are those of the run.
                    let of = members.iter().copied().map(u64::from).collect();
                    let group = self.new_group("", group_type::COMM_GROUP, of, GLOBAL_MEMBERS);
                    groups.insert(members, group);
                    group
                }
            };
            let comm = self.own.get_mut(&(order_of("Comm"), communicator));
            comm.expect("it was made for the event")[2] = bits(group);
        }
        report
    }

    /// Returns the places of the locations that each process has, of those that no archive has.
    fn places_by_process(&self) -> BTreeMap<ProcessId, BTreeSet<usize>> {
        let mut places: BTreeMap<ProcessId, BTreeSet<usize>> = BTreeMap::new();
        for stream in self.ours.streams.keys() {
            let process = self.ours.process_of(*stream);
            let process = process.filter(|process| !self.archive_of.contains_key(process));
            let place = self.place_of.get(stream.index());
            if let (Some(process), Some(place)) = (process, place)
                && *place < self.locations.len()
            {
                places.entry(process).or_default().insert(*place);
            }
        }
        places
    }

    fn new_group(&mut self, name: &str, group_type: u64, members: Vec<u64>, flags: u64) -> u64 {
        let id = self.new_id(DefinitionKind::Group);
        let name = self.string(name);
        let before = match (group_type, flags) {
            (group_type::COMM_LOCATIONS, _) => 6,
            (_, 0) => 4,
            _ => 0,
        };
        let members = Datum::Numbers(members);
        let [id_bits, name, before, group_type, paradigm, flags] =
            [id, name, before, group_type, PARADIGM_MPI, flags].map(bits);
        let data = vec![id_bits, name, before, members, group_type, paradigm, flags];
        self.add("Group", id, data);
        id
    }

    fn missing_rank(&mut self, rank: u32) -> u64 {
        let node = self.node("unknown", "node", None);
        let group = self.new_id(DefinitionKind::LocationGroup);
        let name = self.string(&format!("rank {rank}, which is missing"));
        let data = [group, name, 1, node, UNDEFINED].map(bits).to_vec();
        self.add("LocationGroup", group, data);
        let id = self.new_id(DefinitionKind::Location);
        self.locations.push(OutputLocation {
            id,
            name: "missing".to_owned(),
            group,
            location_type: 1,
            is_left_out: false,
        });
        id
    }
}
