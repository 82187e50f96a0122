//! The waits of threads of a process: for the others of their team in a barrier, and for a thread that has a lock.
//!
//! Which threads a team has is not recorded. No thread leaves a barrier before all have entered it, so calls of a barrier's
//! region belong together if they overlap: a thread that enters after another one has left is in the next barrier.

use annals_format::RegionId;
use annals_merger::CallAround;

use super::engine::Engine;
use super::teams::{Barrier, Lock, Member};
use super::{WaitObserver, WaitPattern, WaitState};

/// Number of barriers of a region that threads of a process may be in at a time: one that they leave, and one that they
/// enter. More are those of several teams, or leaves of some were lost.
const MOST_BARRIERS: usize = 64;
/// Set in the number by which the barriers of a process are known among the operations that synchronise.
const OF_THREADS: u64 = 1 << 63;

impl<V: WaitObserver> Engine<'_, V> {
    /// Takes the begin of what a thread does for its team: the first thread of the process has started it.
    pub(super) fn fork(&mut self, location: u32, time_ns: i64) {
        let first = self.threads.first_of[location as usize];
        if first == location {
            return;
        }
        self.start_with(location, first, time_ns);
        self.waits.observer.release(location, first, time_ns);
        self.delays.message(first, location, time_ns, time_ns);
    }

    /// Takes the enter of a barrier.
    pub(super) fn enter_barrier(&mut self, call: &CallAround) {
        let key = (self.threads.first_of[call.location as usize], call.region);
        let member = Member::new(*call, self.ideal(call.location, call.entered_ns));
        self.forget_tasks(call.location);
        let barriers = self.threads.barriers.entry(key).or_default();
        // Its leave of the barrier before was lost.
        for barrier in barriers.iter_mut() {
            let same = |member: &&mut Member| {
                member.call.location == call.location && member.left_ns.is_none()
            };
            if let Some(member) = barrier.members.iter_mut().find(same) {
                (member.left_ns, member.is_uncertain) = (Some(call.entered_ns), true);
                barrier.left += 1;
            }
        }
        match barriers.back_mut().filter(|barrier| barrier.left == 0) {
            Some(barrier) => barrier.members.push(member),
            None => barriers.push_back(Barrier {
                members: vec![member],
                left: 0,
            }),
        }
        self.finish_barriers(key, false);
    }

    /// Takes the leave of a barrier.
    pub(super) fn leave_barrier(&mut self, call: &CallAround, is_uncertain: bool) {
        let left_ns = call.left_ns.unwrap_or(call.entered_ns);
        let key = (self.threads.first_of[call.location as usize], call.region);
        let task_ns = self.forget_tasks(call.location);
        let barriers = self.threads.barriers.entry(key).or_default();
        let mut ideal_ns = i64::MIN;
        for barrier in barriers.iter_mut() {
            let latest_ns = barrier.ideal_ns();
            if let Some(member) = barrier.member(call) {
                (member.left_ns, member.is_uncertain) = (Some(left_ns), is_uncertain);
                member.task_ns = task_ns;
                barrier.left += 1;
                ideal_ns = latest_ns;
                break;
            }
        }
        self.pass(call, left_ns, ideal_ns, task_ns);
        self.count_call(call, left_ns, true);
        self.finish_barriers(key, false);
    }

    /// Finds the waits of the barriers of a region that all have left, or of all of them.
    fn finish_barriers(&mut self, key: (u32, RegionId), is_last: bool) {
        while let Some(barriers) = self.threads.barriers.get_mut(&key) {
            let is_over = |barrier: &Barrier| barrier.left == barrier.members.len();
            let too_many = barriers.len() > MOST_BARRIERS;
            if !(is_last || too_many || barriers.front().is_some_and(is_over)) {
                return;
            }
            let Some(barrier) = barriers.pop_front() else {
                return;
            };
            // Threads of which nothing is known may have entered later.
            let all = self.threads.count_of.get(&key.0).copied().unwrap_or(0);
            let is_partial = self.has_losses() && barrier.members.len() < all;
            let team = OF_THREADS | u64::from(key.0);
            self.barrier(&barrier, WaitPattern::ThreadBarrier, team, is_partial);
        }
    }

    /// Takes that a thread has a lock from a time on. `call` is the one in which it was acquired.
    pub(super) fn acquire(
        &mut self,
        location: u32,
        call: Option<CallAround>,
        at_ns: i64,
        lock: u64,
    ) {
        let key = (self.threads.first_of[location as usize], lock);
        let now = Lock {
            holder: location,
            released_ns: None,
        };
        let before = self.threads.locks.insert(key, now);
        let Some(call) = call else { return };
        let before = before.filter(|before| before.holder != location);
        let released = before.and_then(|before| before.released_ns);
        let ideal_ns = released.map_or(i64::MIN, |released| released.1);
        self.pass(&call, at_ns, ideal_ns, 0);
        // The time up to now will be handed out as time in which it was blocked.
        self.work_from(location, call.entered_ns);
        self.count_call(&call, at_ns, false);
        let Some(before) = before else { return };
        let released_ns = released.map_or(i64::MIN, |released| released.0);
        let wait_ns = (released_ns.min(at_ns).max(call.entered_ns)) - call.entered_ns;
        let wait = WaitState {
            pattern: WaitPattern::Lock,
            path: call.tag,
            region: Some(call.region),
            location,
            cause: Some(before.holder),
            or_cause: None,
            communicator: None,
            from_ns: call.entered_ns,
            wait_ns,
            operation: self.next_operation(),
            // Its release is lost.
            uncertain_ns: match released {
                Some(_) if !call.is_uncertain => 0,
                _ => at_ns - call.entered_ns,
            },
        };
        self.add(&wait, released_ns);
        if released.is_some() {
            self.delays
                .message(before.holder, location, released_ns, at_ns);
        }
    }

    /// Takes that a thread does not have a lock any more.
    pub(super) fn release(&mut self, location: u32, at_ns: i64, lock: u64) {
        let key = (self.threads.first_of[location as usize], lock);
        let now = Lock {
            holder: location,
            released_ns: Some((at_ns, self.ideal(location, at_ns))),
        };
        self.threads.locks.insert(key, now);
    }

    /// Ends the trace.
    pub(super) fn finish_threads(&mut self) {
        let mut keys: Vec<_> = self.threads.barriers.keys().copied().collect();
        keys.sort_unstable();
        keys.into_iter()
            .for_each(|key| self.finish_barriers(key, true));
    }
}
