//! Communicators with processes of several worlds: which of them are the same, and which processes their numbers mean.
//!
//! No process knows the worlds of the others. Each side of a new connection is known by how it was made, by the sizes of
//! both sides, and by when: both sides make it at the same time. What is made from it has the same name on both sides.

use std::collections::BTreeMap;

use annals_format::{Definitions, FIRST_REMOTE, ObjectId, ProcessId, RemoteMembers, StringId};
use rustc_hash::FxHashMap;

use crate::messages::{NOBODY, SEVERAL};

/// A process's numbers of the processes with which it shares a communicator.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Numbers {
    first: u32,
    count: u32,
    /// Where these processes are.
    communicator: ObjectId,
    side: u8,
}

/// The communicators with processes of several worlds that are known on all sides.
#[derive(Clone, Default, Debug)]
pub(crate) struct AcrossWorlds {
    /// For each object that is such a communicator, the first object that is the same one.
    same: BTreeMap<ObjectId, ObjectId>,
    /// The numbers that each process uses, sorted.
    numbers: FxHashMap<u32, Vec<Numbers>>,
    /// Processes by communicator, side and rank on it.
    members: FxHashMap<(ObjectId, u8, u32), u32>,
}

impl AcrossWorlds {
    /// Finds them in the definitions of a trace.
    pub(crate) fn of(definitions: &Definitions) -> Self {
        let mut across = Self::default();
        if definitions.remote_members.is_empty() {
            return across;
        }
        across.find_connections(definitions);
        across.find_children(definitions);
        for (object, d) in &definitions.remote_members {
            let Some(communicator) = across.same.get(object).copied() else {
                continue;
            };
            let entry = across.members.entry((communicator, d.side, d.place));
            let process = d.process.get();
            let member = entry.or_insert(process);
            if *member != process {
                *member = SEVERAL;
            }
            let (count, side) = match d.remote {
                0 => (d.local, 0),
                count => (count, 3_u8.saturating_sub(d.side)),
            };
            let first = d.first;
            let of_process = across.numbers.entry(process).or_default();
            of_process.push(Numbers {
                first,
                count,
                communicator,
                side,
            });
        }
        across
            .numbers
            .values_mut()
            .for_each(|of| of.sort_unstable());
        across
    }

    /// Returns the first object that is the same communicator as this one, if it has processes of several worlds that are
    /// known.
    pub(crate) fn communicator(&self, object: ObjectId) -> Option<ObjectId> {
        self.same.get(&object).copied()
    }

    /// Returns all such objects, each with the first one that is the same communicator.
    pub(crate) fn communicators(&self) -> impl Iterator<Item = (ObjectId, ObjectId)> {
        self.same.iter().map(|(object, same)| (*object, *same))
    }

    /// Returns the process that a number in an event of this process means.
    pub(crate) fn process(&self, of: u32, number: u32) -> u32 {
        if number < FIRST_REMOTE {
            return NOBODY;
        }
        let Some(numbers) = self.numbers.get(&of) else {
            return NOBODY;
        };
        let after = numbers.partition_point(|range| range.first <= number);
        let range = after.checked_sub(1).map(|at| numbers[at]);
        let Some(range) = range.filter(|range| number - range.first < range.count) else {
            return NOBODY;
        };
        let place = number - range.first;
        let found = self.members.get(&(range.communicator, range.side, place));
        found.copied().unwrap_or(NOBODY)
    }

    /// Names all objects that are the same communicator alike.
    pub(crate) fn name_alike(definitions: &mut Definitions) {
        for (object, same) in Self::of(definitions).same {
            let name = definitions.objects.get(&same).map(|same| same.name);
            if let (Some(object), Some(name)) = (definitions.objects.get_mut(&object), name) {
                object.name = name;
            }
        }
    }

    /// Finds the two sides of each connection between worlds.
    fn find_connections(&mut self, definitions: &Definitions) {
        let mut sides: BTreeMap<_, Side> = BTreeMap::new();
        let made = definitions.remote_members.values();
        for d in made.filter(|d| d.parent.is_none() && d.side != 0) {
            let run = definitions
                .processes
                .get(&d.process)
                .map(|process| process.run);
            let world = definitions.worlds.get(&d.process).map(|world| world.name);
            let name = definitions.objects.get(&d.object).map(|object| object.name);
            let side = sides.entry((run, world, name, d.side)).or_insert(Side {
                members: *d,
                from_ns: i64::MAX,
                to_ns: i64::MIN,
                objects: Vec::new(),
            });
            side.from_ns = side.from_ns.min(wall_ns(definitions, d.process, d.from_ns));
            side.to_ns = side.to_ns.max(wall_ns(definitions, d.process, d.to_ns));
            side.objects.push(d.object);
        }
        let (first, second): (Vec<&Side>, Vec<&Side>) =
            sides.values().partition(|side| side.members.side == 1);
        for one in &first {
            let candidates = |of: &Side, among: &[&Side]| -> Vec<ObjectId> {
                let fits = among.iter().filter(|other| of.may_meet(other));
                fits.map(|other| other.objects[0]).collect()
            };
            // Where several fit, nothing is claimed of them.
            let others = candidates(one, &second);
            let [other] = others[..] else {
                continue;
            };
            let Some(other) = second.iter().find(|side| side.objects[0] == other) else {
                continue;
            };
            if candidates(other, &first).len() == 1 {
                let objects = one.objects.iter().chain(&other.objects);
                self.same
                    .extend(objects.map(|object| (*object, one.objects[0])));
            }
        }
    }

    /// Finds which of the communicators that were made from these are the same.
    fn find_children(&mut self, definitions: &Definitions) {
        let mut made: BTreeMap<(ObjectId, StringId, bool), ObjectId> = BTreeMap::new();
        // A process makes a communicator after the one that it makes it from, and numbers them in this order.
        for (object, d) in &definitions.remote_members {
            let parent = d.parent.and_then(|parent| self.communicator(parent));
            if let Some(parent) = parent {
                let same = made
                    .entry((parent, d.made, d.remote == 0))
                    .or_insert(*object);
                self.same.insert(*object, *same);
            }
        }
    }
}

/// One side of a connection.
struct Side {
    /// As one of its processes knows it.
    members: RemoteMembers,
    /// From the first begin to the last end, by the wall clock.
    from_ns: i64,
    to_ns: i64,
    objects: Vec<ObjectId>,
}

impl Side {
    fn may_meet(&self, other: &Self) -> bool {
        let (one, two) = (&self.members, &other.members);
        one.made == two.made
            && (one.local, one.remote) == (two.remote, two.local)
            && self.from_ns <= other.to_ns
            && other.from_ns <= self.to_ns
    }
}

/// Returns a time of a process's reference clock by the wall clock.
fn wall_ns(definitions: &Definitions, process: ProcessId, reference_ns: i64) -> i64 {
    let process = definitions.processes.get(&process);
    let offset = process.map_or(0, |process| {
        process
            .start_unix_ns
            .saturating_sub(process.start_reference_ns)
    });
    reference_ns.saturating_add(offset)
}

#[cfg(test)]
mod tests {
    use super::*;
    use annals_format::{BootId, Definition, Object, Process, RecordingId, World};

    /// Defines a process in a world, with a connection of 1 to 1 that it makes in this time.
    fn connect(definitions: &mut Definitions, process: u32, side: u8, [from_ns, to_ns]: [i64; 2]) {
        let name = definitions.intern(&format!("connection of {process}"));
        let made = definitions.intern("spawn");
        let world = definitions.intern(&format!("world {process}"));
        let object = ObjectId::new(process);
        let process = ProcessId::new(process);
        definitions.add(Definition::Process(Process {
            id: process,
            recording_id: RecordingId([0; 16]),
            run: name,
            host: made,
            boot_id: BootId([0; 16]),
            pid: 1,
            start_unix_ns: 0,
            start_reference_ns: 0,
            command: name,
        }));
        definitions.add(Definition::World(World {
            process,
            name: world,
            first_rank: 0,
        }));
        definitions.add(Definition::Object(Object {
            id: object,
            process,
            kind: made,
            name,
        }));
        definitions.add(Definition::RemoteMembers(RemoteMembers {
            process,
            object,
            made,
            parent: None,
            side,
            place: 0,
            local: 1,
            remote: 1,
            first: FIRST_REMOTE,
            from_ns,
            to_ns,
        }));
    }

    /// Returns the process that the first number of each process means.
    fn met(sides: &[(u8, [i64; 2])]) -> Vec<Option<u32>> {
        let mut definitions = Definitions::default();
        for (process, (side, times)) in (0..).zip(sides) {
            connect(&mut definitions, process, *side, *times);
        }
        let across = AcrossWorlds::of(&definitions);
        let processes = 0..sides.len() as u32;
        let found = processes.map(|process| across.process(process, FIRST_REMOTE));
        found
            .map(|found| (found != NOBODY).then_some(found))
            .collect()
    }

    #[test]
    fn two_sides_meet_only_if_no_other_fits() {
        let one_after_another = [(1, [0, 10]), (2, [2, 9]), (1, [20, 30]), (2, [22, 29])];
        assert_eq!(
            met(&one_after_another),
            [Some(1), Some(0), Some(3), Some(2)]
        );
        // Each of the first sides might have met either of the second ones; and one second side either of two.
        assert_eq!(
            met(&[(1, [0, 10]), (2, [2, 9]), (1, [1, 30]), (2, [3, 29])]),
            [None; 4]
        );
        assert_eq!(met(&[(1, [0, 10]), (2, [2, 9]), (1, [1, 30])]), [None; 3]);
        assert_eq!(met(&[(1, [0, 10]), (2, [11, 20])]), [None; 2]);
        assert_eq!(met(&[(1, [0, 10]), (1, [2, 9])]), [None; 2]);
    }
}
