//! Communicators with processes of several worlds: which of them are the same, and which processes their numbers mean.
//!
//! No process knows the worlds of the others. Each side of a new connection is known by how it was made, by the sizes of
//! both sides, and by when: both sides make it at the same time. What is made from it has the same name on both sides.
//! The rule is in SPEC.md, *Worlds*.

use std::collections::BTreeMap;

use annals_format::{Definitions, FIRST_REMOTE, ObjectId, ProcessId, StringId};
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
pub struct AcrossWorlds {
    /// For each object that is such a communicator, the first object that is the same one.
    same: BTreeMap<ObjectId, ObjectId>,
    /// The numbers that each process uses, sorted.
    numbers: FxHashMap<u32, Vec<Numbers>>,
    /// Processes by communicator, side and rank on it.
    members: FxHashMap<(ObjectId, u8, u32), u32>,
}

impl AcrossWorlds {
    /// Finds them in the definitions of a trace.
    pub fn of(definitions: &Definitions) -> Self {
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
    pub fn communicator(&self, object: ObjectId) -> Option<ObjectId> {
        self.same.get(&object).copied()
    }

    /// Returns all such objects, each with the first one that is the same communicator.
    pub fn communicators(&self) -> impl Iterator<Item = (ObjectId, ObjectId)> {
        self.same.iter().map(|(object, same)| (*object, *same))
    }

    /// Returns the process that a number in an event of this process means.
    pub fn process(&self, of: u32, number: u32) -> u32 {
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
        let connections = definitions.remote_members.values();
        for d in connections.filter(|d| d.parent.is_none() && matches!(d.side, 1 | 2)) {
            let process = definitions.processes.get(&d.process);
            let run = process.map(|process| process.run);
            let world = definitions.worlds.get(&d.process).map(|world| world.name);
            let name = definitions.objects.get(&d.object).map(|object| object.name);
            let key = (d.made, d.side, [d.local, d.remote], run, world, name);
            let side = sides.entry(key).or_insert(Side {
                from_ns: i64::MAX,
                to_ns: i64::MIN,
                objects: Vec::new(),
            });
            side.from_ns = side.from_ns.min(wall_ns(definitions, d.process, d.from_ns));
            side.to_ns = side.to_ns.max(wall_ns(definitions, d.process, d.to_ns));
            side.objects.push(d.object);
        }
        // By how they were made, which side they are, and how many processes the first side has, and the second.
        let mut alike: BTreeMap<(StringId, [u32; 2]), [Vec<Side>; 2]> = BTreeMap::new();
        for ((made, side, mut sizes, ..), of) in sides {
            if side == 2 {
                sizes.reverse();
            }
            let both = alike.entry((made, sizes)).or_default();
            both[usize::from(side) - 1].push(of);
        }
        for both in alike.into_values() {
            let [first, second] = both.map(Sides::new);
            for one in &first.by_start {
                // Where several fit, nothing is claimed of them.
                let other = second.only_one_during(one);
                let other = other.filter(|other| first.only_one_during(other).is_some());
                let objects = other.into_iter().flat_map(|other| &other.objects);
                let objects = objects.chain(other.map_or(&[][..], |_| &one.objects));
                let same = one.objects[0];
                self.same.extend(objects.map(|object| (*object, same)));
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
    /// From the first begin to the last end, by the wall clock.
    from_ns: i64,
    to_ns: i64,
    objects: Vec<ObjectId>,
}

/// Sides of connections that differ in their times only.
struct Sides {
    by_start: Vec<Side>,
    /// The largest end of these up to each.
    latest_ends: Vec<i64>,
    /// All ends, sorted.
    ends: Vec<i64>,
}

impl Sides {
    fn new(mut by_start: Vec<Side>) -> Self {
        by_start.sort_by_key(|side| (side.from_ns, side.to_ns));
        let mut ends: Vec<i64> = by_start.iter().map(|side| side.to_ns).collect();
        let latest = ends.iter().scan(i64::MIN, |latest, end| {
            *latest = end.max(latest).to_owned();
            Some(*latest)
        });
        let latest_ends = latest.collect();
        ends.sort_unstable();
        Self {
            by_start,
            latest_ends,
            ends,
        }
    }

    /// Returns the side whose time overlaps with this one's, if that is one.
    fn only_one_during(&self, other: &Side) -> Option<&Side> {
        let begun = self
            .by_start
            .partition_point(|side| side.from_ns <= other.to_ns);
        let ended = self.ends.partition_point(|end| *end < other.from_ns);
        // The first one that has not ended has begun, because one has.
        let first = self.latest_ends.partition_point(|end| *end < other.from_ns);
        let found = self.by_start.get(first);
        let is_during = |side: &&Side| side.from_ns <= other.to_ns && other.from_ns <= side.to_ns;
        found
            .filter(|_| begun.checked_sub(ended) == Some(1))
            .filter(is_during)
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
    use annals_format::{BootId, Definition, Object, Process, RecordingId, RemoteMembers, World};

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

    #[test]
    fn sides_meet_as_by_comparing_all_with_all() {
        let mut state = 7_u64;
        let mut draw = |below: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) % below
        };
        for _ in 0..2000 {
            let count = draw(7);
            let sides = (0..count).map(|_| {
                let from = draw(12) as i64;
                (1 + draw(2) as u8, [from, from + draw(5) as i64])
            });
            let sides: Vec<(u8, [i64; 2])> = sides.collect();
            let fits = |a: &(u8, [i64; 2]), b: &(u8, [i64; 2])| {
                a.0 != b.0 && a.1[0] <= b.1[1] && b.1[0] <= a.1[1]
            };
            let only = |of: usize| {
                let mut fitting = (0..sides.len()).filter(|other| fits(&sides[of], &sides[*other]));
                fitting.next().filter(|_| fitting.next().is_none())
            };
            let expected = (0..sides.len())
                .map(|of| only(of).filter(|other| only(*other) == Some(of)))
                .map(|other| other.map(|other| other as u32));
            assert_eq!(met(&sides), expected.collect::<Vec<_>>(), "{sides:?}");
        }
    }
}
