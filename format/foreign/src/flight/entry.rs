//! What a dump says, in the types of Rust.

use std::sync::Arc;

/// How far an operation is known to be.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum State {
    /// It was entered. Its progress is not known: without timing, one that runs is scheduled as well.
    Scheduled,
    /// It runs.
    Started,
    /// It is complete.
    Completed,
}

/// An operation that a rank has entered.
#[derive(Clone, PartialEq, Debug)]
pub struct Entry {
    /// Number of its group in [`Dump::groups`].
    pub group: u32,
    /// Number of its name in [`Dump::names`], such as `nccl:all_reduce`.
    pub name: u32,
    /// Number among the collective operations of its group, from 1: of a message, that of the one before it. 0 means unknown.
    pub sequence: u64,
    /// Number among the launches of messages of its group on this rank; 0 means unknown.
    pub launch: u64,
    /// Number among all operations of its group on this rank; 0 means unknown.
    pub number: u64,
    /// Whether it is a message, or the end of several that are launched together.
    pub is_message: bool,
    /// Source and destination of a message, as ranks of the group.
    pub channel: Option<(u32, u32)>,
    /// How far it is known to be.
    pub state: State,
    /// Whether it left the list of those that are watched; `None` means unknown.
    pub is_retired: Option<bool>,
    /// When it was entered, nanoseconds of the rank's clock since 1970; 0 means unknown.
    pub created_ns: i64,
    /// Elements that go in and out, of all tensors. `None` means unknown.
    pub elements: [Option<u64>; 2],
    /// Number of the type of its elements in [`Dump::names`].
    pub element_type: Option<u32>,
    /// Number of its call path in [`Dump::call_paths`].
    pub call_path: Option<u32>,
}

/// A process group, as a rank knows it.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Group {
    /// Its number in the process: others have other numbers.
    pub number: Option<u64>,
    /// Its name; `None` means unknown.
    pub name: Option<String>,
    /// Its description.
    pub description: String,
    /// Its ranks, in its order. `None` means unknown.
    pub ranks: Option<Arc<Vec<u32>>>,
    /// The numbers of its last operations.
    pub status: Option<Status>,
    /// The largest number that one of its entries has, however it is counted.
    pub largest: u64,
}

/// The numbers of the last operations of a group, as the recorder counts them. `None` means that there is none.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Status {
    /// That was entered.
    pub enqueued: Option<u64>,
    /// That is complete.
    pub completed: Option<u64>,
}

impl Status {
    /// Returns whether an operation is not complete.
    pub fn is_pending(&self) -> bool {
        self.completed.unwrap_or(0) < self.enqueued.unwrap_or(0)
    }
}

/// The dump of one process: the newest operations that it has entered.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Dump {
    /// Version of the recorder's format; `None` in those without.
    pub version: Option<(u32, u32)>,
    /// The operations, the oldest first.
    pub entries: Vec<Entry>,
    /// Groups of the entries.
    pub groups: Vec<Group>,
    /// Names of operations and of types of elements.
    pub names: Vec<String>,
    /// Call paths in the program, the outermost function first.
    pub call_paths: Vec<Vec<String>>,
    /// Ranks of every group that the dump lists, whether it has entries or not.
    pub listed: Vec<Arc<Vec<u32>>>,
    /// Whether operations were entered in groups that have no entries.
    pub has_other_operations: bool,
    /// Whether one of these is not complete.
    pub has_other_pending: bool,
    /// Number of older operations that are not among the entries; `None` means unknown.
    pub overwritten: Option<u64>,
    /// Whether operations may be left out after the first entry, such as all that are complete.
    pub has_holes: bool,
}

impl Dump {
    /// Returns whether every operation that the process has entered is among the entries, as far as the dump shows.
    pub fn is_whole(&self) -> bool {
        self.overwritten == Some(0) && !self.has_holes && !self.has_other_operations
    }

    /// Returns whether another dump of the same rank has a group that is in this one as well: two recorders have different ones.
    pub fn has_group_of(&self, other: &Self) -> bool {
        let mut groups = other.groups.iter();
        groups.any(|group| {
            let is_same = |own: &Group| {
                (&own.number, &own.name, &own.description)
                    == (&group.number, &group.name, &group.description)
            };
            self.groups.iter().any(is_same)
        })
    }

    /// Returns the name of an entry.
    pub fn name(&self, entry: &Entry) -> &str {
        &self.names[entry.name as usize]
    }
}
