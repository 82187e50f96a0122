//! The waits of fences of windows.
//!
//! The standard does not demand that a fence waits for all (MPI 5.0, section 12.5.1), but it mostly does. A wait is never longer
//! than its call.

use annals_merger::CallAround;

use super::engine::Engine;
use super::teams::{Barrier, FenceKey, Member};
use super::{WaitObserver, WaitPattern};

/// Number of fences that ranks may be in. Of more, the first is over.
const MOST_FENCES: usize = 1 << 16;
/// Set in the number by which a window is known among the operations that synchronise.
const OF_WINDOWS: u64 = 1 << 62;

impl<V: WaitObserver> Engine<'_, V> {
    /// Takes that a call is one of a fence.
    pub(super) fn enter_fence(&mut self, call: &CallAround, key: FenceKey) {
        let member = Member::new(*call, self.ideal(call.location, call.entered_ns));
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
}
