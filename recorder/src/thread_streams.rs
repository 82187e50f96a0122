//! The calling thread's streams: finding and opening them, raising on them, and releasing them when
//! the thread ends.
//!
//! Everything here may run in a signal handler that interrupted anything, also this module: what a
//! thread keeps is changed by single stores, and opening a stream neither allocates nor locks.
//!
//! Invariants:
//! - LIST-ALIVE: streams on the calling thread's list, and the one it used last, are alive. Each
//!   holds a count of its recorder, which `open` takes and `release` drops, after the stream is off
//!   the list.
#![expect(
    unsafe_code,
    reason = "streams hang on raw pointers so that thread-local storage has no destructor"
)]

use std::ffi::c_void;
use std::ptr::{null, null_mut};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use annals_format::{Cause, EventTypeId, LocationId, RegionId, SourceId};

use crate::builtin::THREADS;
use crate::row::PutRow;
use crate::shared::Shared;
use crate::source::SourceState;
use crate::stream::{Opening, Stream, phase};
use crate::switch::Switch;
use crate::sys::{self, GUARD_RECORDING};
use crate::thread::{self, THREAD};

/// Most streams of one source in one thread: the thread's own, and one for handlers that interrupt
/// it.
const MOST_OF_A_SOURCE: usize = 2;

/// Returns the stream that the calling thread used last, or null.
#[inline(always)]
fn last_stream() -> *const Stream {
    THREAD.with(|thread| thread.last.get()).cast()
}

/// Returns the first stream on the calling thread's list, or null.
fn first_stream() -> *mut Stream {
    THREAD
        .with(|thread| thread.first.load(Ordering::Relaxed))
        .cast()
}

/// Returns the streams on the calling thread's list; the last of them may be about to open.
fn streams<'a>() -> impl Iterator<Item = &'a Stream> {
    // SAFETY: invariant LIST-ALIVE (module docs).
    let alive = |stream: *mut Stream| unsafe { stream.as_ref() };
    std::iter::successors(alive(first_stream()), move |stream| {
        alive(stream.next.load(Ordering::Relaxed))
    })
}

/// Returns the calling thread's streams of a source.
fn streams_of(shared: &Shared, source: SourceId) -> impl Iterator<Item = &Stream> {
    streams().filter(move |stream| {
        std::ptr::eq(stream.shared_pointer(), shared) && stream.source() == source
    })
}

/// Returns recorder and source of a stream as one number, for a single comparison.
#[inline]
fn key_of(shared: &Shared, source: SourceId) -> u64 {
    shared.first_key + u64::from(source.get())
}

/// Registers the thread-exit hook. Must run before the first stream opens.
pub(crate) fn prepare() {
    sys::prepare_thread_end(thread_ended);
}

unsafe extern "C" fn thread_ended(round: *mut c_void) {
    if sys::again_at_thread_end(round) {
        return;
    }
    // A panic must not cross into the C library.
    let _ = std::panic::catch_unwind(|| {
        thread::mark_ended();
        release(|_| true);
        thread::release_lane();
    });
}

/// Releases the calling thread's streams of recorders that are finished, or that belong to the
/// parent after a fork. Not for signal handlers.
pub(crate) fn release_finished() {
    release(|shared| !shared.guard.is_on());
}

/// Closes the calling thread's streams of some recorders, and takes them off its list.
fn release(which: impl Fn(&Shared) -> bool) {
    let mut kept: *mut Stream = null_mut();
    let mut next = THREAD.with(|thread| {
        let first = thread.first.swap(null_mut(), Ordering::Relaxed);
        thread.last.set(null());
        first.cast::<Stream>()
    });
    while !next.is_null() {
        // SAFETY: invariant LIST-ALIVE (module docs).
        let stream = unsafe { &*next };
        let this = next;
        next = stream.next.load(Ordering::Relaxed);
        let shared: *const Shared = stream.shared_pointer();
        if shared.is_null() {
            // This is a forked child, and the stream its parent's.
            continue;
        }
        // SAFETY: invariant LIST-ALIVE (module docs).
        if which(unsafe { &*shared }) {
            stream.close();
            if thread::has_ended() {
                // SAFETY: invariant LIST-ALIVE (module docs).
                unsafe { &*shared }.forget_this_thread();
            }
            // SAFETY: `open` took this count for the stream, and it is given up only here.
            unsafe { Arc::decrement_strong_count(shared) };
        } else {
            stream.next.store(kept, Ordering::Relaxed);
            kept = this;
        }
    }
    if !kept.is_null() {
        THREAD.with(|thread| thread.first.store(kept.cast(), Ordering::Relaxed));
    }
}

/// The stream that the calling thread used last, and whose it is: recorder and source, as
/// [`key_of`] has them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Last<'a> {
    stream: &'a Stream,
    key: u64,
}

impl Last<'_> {
    /// Tries the fast path ([`Stream::raise_if_plain`]) for an event of this recorder, now, if the
    /// stream is the source's. Returns whether the event was recorded; if not, nothing has changed.
    #[inline(always)]
    pub(crate) fn raise_if_plain(
        self,
        source: SourceId,
        event_type: EventTypeId,
        bound: usize,
        put: impl PutRow,
    ) -> bool {
        let Self { stream, key } = self;
        key as u32 == source.get()
            && !stream.is_busy()
            && stream.raise_if_plain(event_type, bound, put)
    }
}

/// Raises with the last stream's recorder.
/// A trait and not a closure, so that its method can be marked as always inlined.
pub(crate) trait WithLast {
    type Outcome;

    fn work(self, shared: &Shared, last: Last<'_>) -> Self::Outcome;
}

/// Works with the recorder of the stream that the calling thread used last. Returns `None` when
/// that is not the one with this number.
#[inline(always)]
pub(crate) fn with_last<W: WithLast>(number: u32, work: W) -> Option<W::Outcome> {
    let last = last_stream();
    // SAFETY: streams of the thread stay alive until it ends.
    let stream = unsafe { last.as_ref() }?;
    let key = stream.key.load(Ordering::Relaxed);
    if key == 0 || key >> 32 != u64::from(number) {
        return None;
    }
    // SAFETY: an open stream holds its recorder; only this thread lets go of it, and not in `work`,
    // which only raises.
    let shared = unsafe { &*stream.shared_pointer() };
    Some(work.work(shared, Last { stream, key }))
}

/// Raises an event on the calling thread's stream of a source.
// Once for each place that raises: what is known there is known here.
#[inline(always)]
pub(crate) fn raise(
    shared: &Shared,
    source: SourceId,
    event_type: EventTypeId,
    tick: Option<u64>,
    bound: usize,
    put: impl PutRow,
) {
    // A forked child finds no stream that is open: cells read 0 there.
    let last = last_stream();
    // SAFETY: streams of the thread stay alive until it ends.
    if let Some(stream) = unsafe { last.as_ref() }
        && stream.key.load(Ordering::Relaxed) == key_of(shared, source)
        && !stream.is_busy()
    {
        return stream.raise(event_type, tick, bound, put);
    }
    raise_elsewhere(shared, source, event_type, tick, bound, put);
}

/// Raises two events of the same moment, both of the threads' own source.
#[inline(always)]
pub(crate) fn raise_two(
    shared: &Shared,
    source: SourceId,
    first: (EventTypeId, usize, impl PutRow),
    second: (EventTypeId, usize, impl PutRow),
) {
    let last = last_stream();
    if !last.is_null() {
        // SAFETY: streams of the thread stay alive until it ends.
        let stream = unsafe { &*last };
        if stream.key.load(Ordering::Relaxed) == key_of(shared, source) && !stream.is_busy() {
            stream.raise_two(first, second);
            return;
        }
    }
    raise_elsewhere(shared, source, first.0, None, first.1, first.2);
    raise_elsewhere(shared, source, second.0, None, second.1, second.2);
}

/// Returns the tick of the calling thread's last event of a source, or 0 if there is none.
pub(crate) fn last_tick(shared: &Shared, source: SourceId) -> u64 {
    streams_of(shared, source)
        .filter(|stream| !stream.is_companion())
        .map(Stream::last_tick)
        .max()
        .unwrap_or(0)
}

/// Returns whether the enter or leave of a call is recorded: a leave if its enter was.
#[inline(always)]
pub(crate) fn admits_call(shared: &Shared, region: RegionId, is_enter: bool) -> bool {
    let switch = shared.gates.region(region);
    match switch.has_changed() {
        false => !switch.is_off(),
        true => admits_changed(shared, region, is_enter, switch),
    }
}

#[cold]
#[inline(never)]
pub(crate) fn admits_changed(
    shared: &Shared,
    region: RegionId,
    is_enter: bool,
    switch: Switch,
) -> bool {
    if shared.guard.word().load(Ordering::Relaxed) != GUARD_RECORDING {
        return !switch.is_off();
    }
    let _errno = sys::ErrnoKept::new();
    match find_or_open(shared, THREADS) {
        Some(stream) => stream.switched_regions.admits(region, is_enter, switch),
        None => !switch.is_off(),
    }
}

/// Counts events of a source that were dropped before they reached the recorder, on the calling
/// thread's stream.
pub(crate) fn count_lost(
    shared: &Shared,
    source: SourceId,
    event_type: EventTypeId,
    count: u64,
    cause: Cause,
) {
    if shared.guard.word().load(Ordering::Relaxed) != GUARD_RECORDING {
        shared.count_unrecorded();
        return;
    }
    match find_or_open(shared, source) {
        Some(stream) => stream.count_lost(event_type, count, cause),
        None => shared.count_lost_without_stream(source, event_type, count, cause),
    }
}

#[cold]
#[inline(never)]
fn raise_elsewhere(
    shared: &Shared,
    source: SourceId,
    event_type: EventTypeId,
    tick: Option<u64>,
    bound: usize,
    put: impl PutRow,
) {
    if shared.guard.word().load(Ordering::Relaxed) != GUARD_RECORDING {
        shared.count_unrecorded();
        return;
    }
    let _errno = sys::ErrnoKept::new();
    if shared.is_off(source, event_type) {
        return;
    }
    match find_or_open(shared, source) {
        Some(stream) => stream.raise(event_type, tick, bound, put),
        None => shared.count_without_stream(source, event_type),
    }
}

/// Finds or opens a stream of the source that is not in use by code which a signal handler
/// interrupted.
fn find_or_open(shared: &Shared, source: SourceId) -> Option<&Stream> {
    if !thread::is_recorded() {
        return None;
    }
    let key = key_of(shared, source);
    let mut count = 0;
    for stream in streams_of(shared, source) {
        count += 1;
        // One that is being opened has no key yet.
        if stream.key.load(Ordering::Relaxed) == key && !stream.is_busy() {
            if !stream.is_companion() {
                THREAD.with(|thread| thread.last.set(std::ptr::from_ref(stream).cast()));
            }
            return Some(stream);
        }
    }
    if count >= MOST_OF_A_SOURCE {
        return None;
    }
    open(shared, source, None)
}

/// Opens the calling thread's stream of source [`THREADS`] at an earlier tick, if it has none.
pub(crate) fn open_at(shared: &Shared, tick: u64) {
    if thread::is_recorded() && streams_of(shared, THREADS).next().is_none() {
        let _errno = sys::ErrnoKept::new();
        open(shared, THREADS, Some(tick));
    }
}

/// Names the calling thread's location: opens its stream of source [`THREADS`] with this name, or renames the one that it has.
pub(crate) fn name_thread(shared: &Shared, name: [u8; 16]) {
    if !thread::is_recorded() {
        return;
    }
    let _errno = sys::ErrnoKept::new();
    if streams_of(shared, THREADS).next().is_none() {
        open_named(shared, THREADS, None, || name);
    }
    for stream in streams_of(shared, THREADS).filter(|stream| !stream.is_companion()) {
        stream.describe_thread(sys::thread_number(), name);
    }
}

/// Opens a stream, now or at an earlier tick. It is a companion if the thread has one of this
/// source.
fn open(shared: &Shared, source: SourceId, at_tick: Option<u64>) -> Option<&Stream> {
    open_named(shared, source, at_tick, sys::thread_name)
}

/// Opens a stream; the thread has this name.
fn open_named(
    shared: &Shared,
    source: SourceId,
    at_tick: Option<u64>,
    name: impl FnOnce() -> [u8; 16],
) -> Option<&Stream> {
    let state = shared.source(source)?;
    let open_tick = at_tick.unwrap_or_else(|| state.clock.read());
    // Only if the thread's end will be reported: else the stream would never close.
    if !sys::at_thread_end() {
        return None;
    }
    let stream = shared.when_freed(|| shared.streams.claim())?;
    // SAFETY: every `Shared` lives in an `Arc`; the count is given up in `release`, when the stream
    // is off the list.
    unsafe { Arc::increment_strong_count(std::ptr::from_ref(shared)) };
    let opening = enlist(shared, state, stream, source, open_tick);
    shared.publish(stream, &opening);
    if !opening.is_companion {
        stream.describe_thread(sys::thread_number(), name());
    }
    stream.key.store(key_of(shared, source), Ordering::Relaxed);
    stream.phase.store(phase::OPEN, Ordering::Release);
    shared.note_opening();
    if !opening.is_companion {
        let this = std::ptr::from_ref(stream);
        THREAD.with(|thread| thread.last.set(this.cast()));
    }
    Some(stream)
}

/// Fills in a claimed stream and puts it on the thread's list, where what is chosen by the list
/// (location, companion or not) is chosen again if a handler has put one on it in between.
fn enlist(
    shared: &Shared,
    state: &SourceState,
    stream: &Stream,
    source: SourceId,
    open_tick: u64,
) -> Opening {
    let id = shared.next_stream_id();
    let this = std::ptr::from_ref(stream).cast_mut();
    let relaxed = Ordering::Relaxed;
    loop {
        let first = first_stream();
        let opening = Opening {
            id,
            source,
            location: Some(location(shared, source)),
            open_tick,
            is_companion: streams_of(shared, source).next().is_some(),
        };
        stream.fill(shared, state, &opening);
        stream.next.store(first, relaxed);
        let is_first = THREAD.with(|thread| {
            let swapped =
                thread
                    .first
                    .compare_exchange(first.cast(), this.cast(), relaxed, relaxed);
            swapped.is_ok()
        });
        if is_first {
            return opening;
        }
    }
}

/// Returns the location of the calling thread, or the thread's separate location of a source: that
/// of its other streams there, or a new one.
fn location(shared: &Shared, source: SourceId) -> LocationId {
    let own = |source: SourceId| {
        let state = shared.source(source);
        state
            .is_some_and(|state| state.has_own_location)
            .then_some(source)
    };
    streams()
        .filter(|stream| std::ptr::eq(stream.shared_pointer(), shared))
        .filter(|stream| own(stream.source()) == own(source))
        .find_map(Stream::location)
        .unwrap_or_else(|| {
            let new = || shared.next_location_id();
            match own(source).is_none() && shared.thread_locations.is_used() {
                true => shared
                    .thread_locations
                    .get_or(sys::thread_number() as u32, new),
                false => new(),
            }
        })
}
