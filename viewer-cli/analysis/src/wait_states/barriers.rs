//! The waits of what all must enter before one leaves it: barriers of threads, and fences of windows.

use super::engine::Engine;
use super::teams::Barrier;
use super::{WaitObserver, WaitPattern, WaitState};

impl<V: WaitObserver> Engine<'_, V> {
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
                or_cause: None,
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
