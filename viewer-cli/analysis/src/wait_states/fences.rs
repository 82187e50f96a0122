//! The waits of fences of windows, and of all that must be entered by all before one leaves it.
//!
//! The standard does not demand that a fence waits for all (MPI 5.0, section 12.5.1), but it mostly does. A wait is never longer
//! than its call.

use annals_merger::CallAround;

use super::engine::Engine;
use super::teams::{Barrier, FenceKey, Member};
use super::{WaitObserver, WaitPattern, WaitState};

/// Number of fences that ranks may be in. Of more, the first is over.
const MOST_FENCES: usize = 1 << 16;
/// Set in the number by which a window is known among the operations that synchronise.
const OF_WINDOWS: u64 = 1 << 62;

impl<V: WaitObserver> Engine<'_, V> {
    /// Takes that a call is one of a fence.
    pub(super) fn enter_fence(&mut self, call: &CallAround, key: FenceKey) {
        let member = Member {
            call: *call,
            ideal_ns: self.ideal(call.location, call.entered_ns),
            left_ns: None,
            task_ns: 0,
            is_uncertain: false,
        };
        self.set_fence(call, key);
        let fence = self.fences.open.entry(key).or_default();
        fence.members.push(member);
        if self.fences.open.len() > MOST_FENCES
            && let Some((key, _)) = self.fences.open.first_key_value()
        {
            self.finish_fence(*key);
        }
    }

    /// Returns when a call of a fence would end on an ideal network.
    pub(super) fn ideal_of_fence(&self, key: FenceKey) -> i64 {
        let fence = self.fences.open.get(&key);
        fence.map_or(i64::MIN, Barrier::ideal_ns)
    }

    /// Takes that a call has left its fence. It is over if as many have left it as the one before; the first one of a window, as
    /// soon as one has left the next.
    pub(super) fn leave_fence(&mut self, call: &CallAround, key: FenceKey, is_uncertain: bool) {
        let (window, number) = key;
        if let Some(before) = number.checked_sub(1) {
            self.finish_fence((window, before));
        }
        let size = self.fences.sizes.get(&window).copied();
        let Some(fence) = self.fences.open.get_mut(&key) else {
            return;
        };
        if let Some(member) = fence.member(call) {
            (member.left_ns, member.is_uncertain) = (call.left_ns, is_uncertain);
            fence.left += 1;
        }
        if size.is_some_and(|size| fence.left >= size) {
            self.finish_fence(key);
        }
    }

    /// Finds the waits of a fence that is over.
    fn finish_fence(&mut self, key: FenceKey) {
        let Some(fence) = self.fences.open.remove(&key) else {
            return;
        };
        let size = self.fences.sizes.entry(key.0).or_default();
        *size = fence.members.len().max(*size);
        let is_partial = fence.members.len() < *size && self.has_losses();
        let window = OF_WINDOWS | u64::from(key.0.get());
        self.barrier(&fence, WaitPattern::Fence, window, is_partial);
    }

    /// Ends the trace.
    pub(super) fn finish_fences(&mut self) {
        while let Some((key, _)) = self.fences.open.first_key_value() {
            self.finish_fence(*key);
        }
    }

    /// Finds the waits of those that were in a barrier or a fence. `synchronised` is the number by which it is known among
    /// the operations that synchronise; `is_partial`, whether others may have been in it.
    pub(super) fn barrier(
        &mut self,
        barrier: &Barrier,
        pattern: WaitPattern,
        synchronised: u64,
        is_partial: bool,
    ) {
        let each = || barrier.members.iter();
        // Of several that were last, the first by number.
        let last = each().max_by_key(|member| {
            (
                member.call.entered_ns,
                std::cmp::Reverse(member.call.location),
            )
        });
        let Some(last) = last else { return };
        let is_uncertain = each().any(|member| member.is_uncertain || member.left_ns.is_none());
        let locations = each().map(|member| member.call.location);
        let different = self.clock_errors.different(locations);
        let operation = self.next_operation();
        for member in each() {
            let call = &member.call;
            let end_ns = last.call.entered_ns.max(call.entered_ns);
            let left_ns = member.left_ns.unwrap_or(end_ns);
            let wait_ns = end_ns.min(left_ns) - call.entered_ns - member.task_ns;
            let wait_ns = wait_ns.max(0);
            let length_ns = left_ns - call.entered_ns;
            let error_ns = self
                .clock_errors
                .among(call.location, call.entered_ns, &different);
            let uncertain_ns = match (is_uncertain, is_partial) {
                (true, _) => length_ns,
                (false, true) => length_ns - wait_ns,
                (false, false) => 0,
            };
            let wait = WaitState {
                pattern,
                path: call.tag,
                region: Some(call.region),
                location: call.location,
                cause: (wait_ns > 0).then_some(last.call.location),
                communicator: None,
                from_ns: call.entered_ns,
                wait_ns,
                operation,
                uncertain_ns: uncertain_ns.max(error_ns.min(length_ns)),
            };
            self.add(&wait, last.call.entered_ns);
        }
        for member in each() {
            if let Some(left_ns) = member.left_ns {
                self.delays
                    .operation(member.call.location, synchronised, left_ns);
            }
        }
    }
}
