//! What is known of the teams of threads and the locks of processes, and of the fences of windows.

use std::collections::{BTreeMap, VecDeque};

use annals_format::{Definitions, ProcessId, RegionId, StringId};
use annals_merger::CallAround;
use rustc_hash::FxHashMap;

/// A thread in a barrier, or a rank in a fence.
#[derive(Clone, Copy, Debug)]
pub(super) struct Member {
    pub(super) call: CallAround,
    /// When it would have entered on an ideal network.
    pub(super) ideal_ns: i64,
    pub(super) left_ns: Option<i64>,
    /// How long it executed tasks in the barrier.
    pub(super) task_ns: i64,
    pub(super) is_uncertain: bool,
}

impl Member {
    /// Creates one that has just entered by a call.
    pub(super) const fn new(call: CallAround, ideal_ns: i64) -> Self {
        Self {
            call,
            ideal_ns,
            left_ns: None,
            task_ns: 0,
            is_uncertain: false,
        }
    }
}

/// A barrier that threads are in, or a fence that ranks are in.
#[derive(Debug, Default)]
pub(super) struct Barrier {
    pub(super) members: Vec<Member>,
    /// Number of those that have left it.
    pub(super) left: usize,
}

impl Barrier {
    /// Returns when the last of the members would have entered it on an ideal network.
    pub(super) fn ideal_ns(&self) -> i64 {
        let members = self.members.iter();
        members
            .map(|member| member.ideal_ns)
            .max()
            .unwrap_or(i64::MIN)
    }

    /// Returns the member that is in it by a call.
    pub(super) fn member(&mut self, call: &CallAround) -> Option<&mut Member> {
        self.members.iter_mut().find(|member| {
            let known = &member.call;
            (known.location, known.entered_ns) == (call.location, call.entered_ns)
                && member.left_ns.is_none()
        })
    }
}

/// A fence: the name of its window, and its number among those of the window.
pub(super) type FenceKey = (StringId, u64);

/// The fences that ranks are in.
#[derive(Debug, Default)]
pub(super) struct Fences {
    pub(super) open: BTreeMap<FenceKey, Barrier>,
    /// By window: how many ranks were in its last fence that is over.
    pub(super) sizes: FxHashMap<StringId, usize>,
}

/// What is known of a lock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lock {
    /// The thread that had it last.
    pub(super) holder: u32,
    /// When it was released, and when that would have been on an ideal network. `None` if it was not, or if that is lost.
    pub(super) released_ns: Option<(i64, i64)>,
}

/// The barriers and locks of all processes.
#[derive(Debug, Default)]
pub(super) struct Threads {
    /// By location: the first location of its process. It starts the teams.
    pub(super) first_of: Vec<u32>,
    /// By the first location of a process: number of its locations.
    pub(super) count_of: FxHashMap<u32, usize>,
    /// By the first location of a process, and region: those that threads are in.
    pub(super) barriers: FxHashMap<(u32, RegionId), VecDeque<Barrier>>,
    /// By the first location of a process, and number of the lock.
    pub(super) locks: FxHashMap<(u32, u64), Lock>,
}

impl Threads {
    pub(super) fn new(definitions: &Definitions) -> Self {
        let mut first: FxHashMap<ProcessId, u32> = FxHashMap::default();
        let locations = (0..).zip(definitions.locations.values());
        let first_of =
            locations.map(|(number, location)| *first.entry(location.process).or_insert(number));
        let first_of: Vec<u32> = first_of.collect();
        let mut count_of = FxHashMap::default();
        for first in &first_of {
            *count_of.entry(*first).or_default() += 1;
        }
        Self {
            first_of,
            count_of,
            ..Self::default()
        }
    }
}
