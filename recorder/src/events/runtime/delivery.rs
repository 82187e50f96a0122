//! Calling back for instances: immediately, or later for those that were deferred.

use std::cell::Cell;
use std::sync::atomic::Ordering;

use super::Runtime;
use crate::events::deferred::{MAX_BYTES, Ring, Waiting};
use crate::events::error::{Error, Result};
use crate::events::in_progress;
use crate::events::instance::{Data, Instance, Raising};
use crate::events::lanes::{Frame, Running};
use crate::events::source::SourceState;
use crate::events::type_state::TypeState;
use crate::events::types::{ObjectHandle, Safety};

impl Runtime {
    /// Calls back for an instance, after the drops of its source were reported.
    /// Registrations that were made after `stamp` do not get it.
    #[inline(always)]
    pub(super) fn call_back(
        &self,
        event_type: &TypeState,
        instance: &Instance<'_>,
        required: Safety,
        is_bound: bool,
        stamp: u64,
    ) {
        let source = instance.source;
        if source.untold.load(Ordering::Acquire) >> required.index() != 0 {
            self.report_all_dropped(source, required);
        }
        let mut place = &event_type.first;
        while let Some(slot) = place.get() {
            slot.deliver(instance, required, is_bound, stamp, self.shared.lanes);
            place = &slot.next;
        }
    }

    #[cold]
    #[inline(never)]
    fn report_all_dropped(&self, source: &SourceState, required: Safety) {
        // First the marks, then the counts: what is counted meanwhile marks again.
        source.untold.swap(0, Ordering::SeqCst);
        for slot in self.shared.slots.iter() {
            slot.report_dropped(source, self.shared.lanes, required);
        }
    }

    /// Keeps an instance for later; false when there is no room.
    pub(super) fn defer(
        &self,
        source: &SourceState,
        event_type: &TypeState,
        raising: Raising,
        data: Data<'_>,
    ) -> Result<bool> {
        let ring = source.ring.as_ref().ok_or(Error::NotSupported)?;
        let mut memory = [0; MAX_BYTES];
        let extent = event_type.data.info.extent();
        let tick = source.stamp(raising.observed)?;
        let Some(room) = memory.get_mut(..extent) else {
            return Ok(false);
        };
        let bytes: &[u8] = match data {
            Data::Memory(memory) => &memory[..extent],
            Data::Values(values) => {
                for (value, at) in values.iter().zip(&event_type.data.info.displacements) {
                    value.put(&mut room[*at..]);
                }
                room
            }
        };
        let waiting = Waiting {
            event_type: event_type.data.index,
            tick,
            object: raising.object.map(|object| object.0),
            stamp: self.shared.stamp.load(Ordering::SeqCst),
            length: extent,
        };
        Ok(ring.push(&waiting, bytes))
    }

    pub(super) fn deliver(&self, source: &SourceState, required: Safety) -> usize {
        let Some(ring) = &source.ring else {
            return 0;
        };
        let deliver = |waiting: &Waiting, data: &[u8]| {
            if let Some(event_type) = self.shared.event_types.get(waiting.event_type) {
                let instance = Instance {
                    event_type: &event_type.data,
                    source,
                    values: &[],
                    memory: data,
                    object: waiting.object.map(ObjectHandle),
                    tick: Cell::new(Some(waiting.tick)),
                };
                let is_bound = event_type.data.is_bound();
                self.call_back(event_type, &instance, required, is_bound, waiting.stamp);
            }
        };
        let owner = match self.shared.is_of_process {
            true => std::ptr::from_ref(ring).cast(),
            false => std::ptr::null(),
        };
        let running = Running {
            end: end_delivery,
            owner,
            required,
            is_elsewhere: false,
        };
        let count = ring.drain(deliver, |work| {
            match in_progress::enter(self.shared.lanes, DELIVERY) {
                Some(frame) => {
                    in_progress::run(frame, running, || further_inside(work));
                    frame.leave();
                }
                // It is not found if it is left: what is deferred of this source is not delivered any more then.
                None => work(),
            }
        });
        in_progress::resume_panic();
        count
    }
}

/// Runs something in a stack frame below the caller's: callbacks inside it compare the stack with that of the delivery, and must
/// not find it left.
#[inline(never)]
fn further_inside(work: &mut dyn FnMut()) {
    work();
}

/// The key of frames in which instances are delivered: no registration has it.
const DELIVERY: u64 = u64::MAX;

/// Ends a delivery that was left by a callback.
fn end_delivery(frame: &Frame, ring: *const (), _required: Safety) {
    frame.leave();
    #[expect(unsafe_code, reason = "owners are kept as addresses")]
    // SAFETY: null, or the ring of a source of the process's runtime: it stays for ever.
    if let Some(ring) = unsafe { ring.cast::<Ring>().as_ref() } {
        ring.end_turn();
    }
}
