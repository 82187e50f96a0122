//! Streams that one thread opens for another: of a source at the other thread's location.
#![expect(
    unsafe_code,
    reason = "a stream's cell is in memory that the recorder's shared part keeps mapped"
)]

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use annals_format::{Cause, LocationId, RegionId, SourceId};

use crate::builtin::LEAVE;
use crate::elements::{ElementKind, Elements, Typed};
use crate::event_type::EventType;
use crate::recorder::Recorder;
use crate::shared::Shared;
use crate::stream::{Opening, Stream, phase};

/// A stream of a source at the location of another thread of the process. Its owner alone raises events on it. It is closed when it is
/// dropped.
#[derive(Debug)]
pub struct ThreadStream {
    shared: Arc<Shared>,
    stream: NonNull<Stream>,
    thread: u32,
}

// SAFETY: the stream is used by the owner alone, and what it points to is shared by atomics.
unsafe impl Send for ThreadStream {}

impl Recorder {
    /// Has threads be known by their numbers, so that [`Recorder::open_thread_stream`] can open streams at their locations. To be called
    /// before.
    pub fn note_threads(&self) {
        self.shared().thread_locations.begin();
    }

    /// Opens a stream of a source at the location of a thread of this process, which `name` is the name of. Events may have ticks from
    /// `tick` on. Returns `None` if there is no such source, or half of all streams are in use: the others are for what threads raise
    /// themselves.
    pub fn open_thread_stream(
        &self,
        source: SourceId,
        thread: u32,
        name: &[u8],
        tick: u64,
    ) -> Option<ThreadStream> {
        let shared = Arc::clone(self.shared());
        let state = shared.source(source)?;
        let (in_use, all) = (
            shared.streams.in_use().count(),
            shared.memory.division().slot_count,
        );
        if 2 * in_use >= all {
            return None;
        }
        let stream = shared.streams.claim()?;
        let locations = &shared.thread_locations;
        let new = || location_of(&shared, thread).unwrap_or_else(|| shared.next_location_id());
        let opening = Opening {
            id: shared.next_stream_id(),
            source,
            location: Some(locations.get_or(thread, new)),
            open_tick: tick,
            is_companion: false,
        };
        stream.fill(&shared, state, &opening);
        shared.publish(stream, &opening);
        let mut padded = [0; 16];
        let length = name.len().min(padded.len());
        padded[..length].copy_from_slice(&name[..length]);
        stream.describe_thread(thread.into(), padded);
        stream.phase.store(phase::OPEN, Ordering::Release);
        shared.note_opening();
        let stream = NonNull::from(stream);
        Some(ThreadStream {
            shared,
            stream,
            thread,
        })
    }
}

/// Returns the location at which a thread has opened a stream itself.
fn location_of(shared: &Shared, thread: u32) -> Option<LocationId> {
    let mut streams = shared.streams.in_use();
    let stream = streams.find(|stream| {
        let state = shared.source(stream.source());
        let slot = shared.memory.slot(stream.slot);
        stream.phase.load(Ordering::Acquire) == phase::OPEN
            && state.is_some_and(|state| !state.has_own_location)
            && slot.system_id().load(Ordering::Relaxed) == u64::from(thread)
    });
    stream?.location()
}

impl ThreadStream {
    fn stream(&self) -> &Stream {
        // SAFETY: cells of streams live as long as the shared part, which this owns a count of.
        unsafe { self.stream.as_ref() }
    }

    /// Raises an event that happened at this tick of the source's clock.
    pub fn raise<E: Elements>(&self, event_type: &EventType<E>, tick: u64, values: E::Values<'_>) {
        if event_type.recorder != self.shared.number {
            self.shared.count_misused();
            return;
        }
        let (bound, row) = (E::bound(values), Typed::<E>(&values));
        self.stream().raise(event_type.id, Some(tick), bound, row);
    }

    /// Leaves a region that the other thread has entered, at this tick of the source's clock: the thread raises no events of it any more.
    pub fn leave(&self, region: RegionId, tick: u64) {
        let (bound, row) = (RegionId::bound(region), Typed::<(RegionId,)>(&(region,)));
        self.stream().raise(LEAVE, Some(tick), bound, row);
    }

    /// Counts events that the source dropped itself: see [`Recorder::report_dropped`].
    pub fn report_dropped<E: Elements>(&self, event_type: &EventType<E>, count: u64) {
        if self.shared.guard.is_open() {
            let cause = Cause::ReportedBySource;
            self.stream().count_lost(event_type.id, count, cause);
        }
    }
}

impl Drop for ThreadStream {
    fn drop(&mut self) {
        self.stream().close();
        self.shared.thread_locations.remove(self.thread);
    }
}
