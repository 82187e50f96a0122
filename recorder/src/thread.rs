//! The calling thread's streams, found through thread-local pointers without destructors.
//!
//! Everything here may run in a signal handler that interrupted anything, also this module: what a
//! thread keeps is changed by single stores, and opening a stream neither allocates nor locks.
#![expect(
    unsafe_code,
    reason = "streams hang on raw pointers so that thread-local storage has no destructor"
)]

use std::cell::Cell;
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};

use annals_format::{Cause, EventTypeId, SourceId};

use crate::row::PutRow;
use crate::shared::Shared;
use crate::stream::{NO_STREAM, Opening, Stream, phase};
use crate::sys::{self, GUARD_RECORDING};
use crate::tls::ThisThread;
use crate::tool::Lane;

/// Most streams of one source in one thread: its own, and one for handlers that interrupt it.
const MOST_OF_A_SOURCE: usize = 2;

/// What a thread keeps; all zeros at first.
#[derive(Debug)]
pub(crate) struct Thread {
    /// The stream used last.
    last: Cell<*const Stream>,
    /// All streams, newest first, linked by [`Stream::next`].
    first: AtomicPtr<Stream>,
    is_ended: Cell<bool>,
    is_in_queue: Cell<bool>,
    is_inside: Cell<bool>,
    is_in_clock: Cell<bool>,
    /// Safety level of the innermost callback that runs, plus 1; 0: none does.
    pub(crate) callback: Cell<u8>,
    /// See [`Depth`].
    depth: Cell<u8>,
    /// The thread's frames for callbacks; null: none yet.
    pub(crate) lane: Cell<*const Lane>,
}

#[cfg(any(
    miri,
    not(any(target_arch = "x86_64", target_arch = "aarch64")),
    not(target_os = "linux")
))]
impl Thread {
    pub(crate) const fn new() -> Self {
        Self {
            last: Cell::new(NO_STREAM),
            first: AtomicPtr::new(null_mut()),
            is_ended: Cell::new(false),
            is_in_queue: Cell::new(false),
            is_inside: Cell::new(false),
            is_in_clock: Cell::new(false),
            callback: Cell::new(0),
            depth: Cell::new(0),
            lane: Cell::new(std::ptr::null()),
        }
    }
}

pub(crate) const THREAD: ThisThread = ThisThread;

/// While it lives, the calling thread is at work in a queue that other threads wait for: a signal
/// handler that came in between would wait for the thread it interrupted.
pub(crate) struct QueueUse(());

impl QueueUse {
    /// None when the calling thread is in a queue already.
    pub(crate) fn begin() -> Option<Self> {
        THREAD.with(|thread| (!thread.is_in_queue.replace(true)).then_some(Self(())))
    }
}

impl Drop for QueueUse {
    fn drop(&mut self) {
        THREAD.with(|thread| thread.is_in_queue.set(false));
    }
}

/// While it lives, the calling thread is inside a call that must not begin once more in the same thread,
/// in a signal handler or a callback: it would wait for itself. For interfaces to other languages, which
/// refuse such calls; events are raised all the same.
#[derive(Debug)]
pub struct Inside {
    was_inside: bool,
}

impl Inside {
    /// Goes inside; neither locks nor allocates.
    pub fn begin() -> Self {
        let was_inside = THREAD.with(|thread| thread.is_inside.replace(true));
        Self { was_inside }
    }

    /// Whether the thread was inside already.
    pub const fn was_inside(&self) -> bool {
        self.was_inside
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        THREAD.with(|thread| thread.is_inside.set(self.was_inside));
    }
}

/// Recorder and source of a stream, in one comparison.
#[inline]
fn key_of(shared: &Shared, source: SourceId) -> u64 {
    shared.first_key + u64::from(source.get())
}

/// Has threads' ends told; before the first stream is opened.
pub(crate) fn prepare() {
    sys::prepare_thread_end(thread_ended);
}

unsafe extern "C" fn thread_ended(_: *mut c_void) {
    // A panic must not cross into the C library.
    let _ = std::panic::catch_unwind(|| {
        // Handlers that still come in this thread find no stream from here on.
        THREAD.with(|thread| thread.is_ended.set(true));
        release(|_| true);
        let lane = THREAD.with(|thread| thread.lane.replace(std::ptr::null()));
        if !lane.is_null() {
            crate::tool::release_lane(lane);
        }
    });
}

/// Whether the calling thread has ended, but for handlers and destructors.
pub(crate) fn is_ended() -> bool {
    THREAD.with(|thread| thread.is_ended.get())
}

/// Whether the calling thread is in a clock that belongs to the program.
pub(crate) fn is_in_clock() -> bool {
    THREAD.with(|thread| thread.is_in_clock.get())
}

/// Says whether it is; gives what was said before.
pub(crate) fn set_in_clock(is_in: bool) -> bool {
    THREAD.with(|thread| thread.is_in_clock.replace(is_in))
}

/// Says that the calling thread is one of the recorder's own, or of what serves it: what happens in it, as
/// when the program brings its own allocator, is counted and not recorded. A writer that recorded itself
/// would wait for itself.
pub fn record_nothing_here() {
    THREAD.with(|thread| thread.is_ended.set(true));
}

/// Lets the calling thread's streams go of which the recorder is finished, or was left behind by a
/// fork. Not for signal handlers.
pub(crate) fn release_finished() {
    release(|shared| !shared.guard.is_on());
}

/// Closes the calling thread's streams of some recorders, and takes them off its list.
fn release(which: impl Fn(&Shared) -> bool) {
    let mut kept: *mut Stream = null_mut();
    let mut next = THREAD.with(|thread| {
        let first = thread.first.swap(null_mut(), Ordering::Relaxed);
        thread.last.set(NO_STREAM);
        first
    });
    while !next.is_null() {
        // SAFETY: streams on the list are alive: each holds its recorder, see `open`.
        let stream = unsafe { &*next };
        let this = next;
        next = stream.next.load(Ordering::Relaxed);
        let shared: *const Shared = stream.shared_pointer();
        if shared.is_null() {
            // This is a forked child, and the stream its parent's.
            continue;
        }
        // SAFETY: as above.
        if which(unsafe { &*shared }) {
            stream.close();
            // SAFETY: `open` took this count for the stream, and gives it up only here.
            unsafe { Arc::decrement_strong_count(shared) };
        } else {
            stream.next.store(kept, Ordering::Relaxed);
            kept = this;
        }
    }
    if !kept.is_null() {
        THREAD.with(|thread| thread.first.store(kept, Ordering::Relaxed));
    }
}

/// The stream that the calling thread used last, and whose it is: recorder and source, as [`key_of`] has them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Last<'a> {
    stream: &'a Stream,
    key: u64,
}

impl Last<'_> {
    /// Raises an event of this recorder, now, if the stream is the source's and it goes the short way
    /// ([`Stream::raise_if_plain`]). If not, nothing was done.
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

/// What is done with the last stream's recorder: only raising. A trait and not a closure, so that it can be said
/// that it is inlined always.
pub(crate) trait WithLast {
    type Outcome;

    fn work(self, shared: &Shared, last: Last<'_>) -> Self::Outcome;
}

/// Works with the recorder of the stream that the calling thread used last; none when that is not the
/// one with this number.
#[inline(always)]
pub(crate) fn with_last<W: WithLast>(number: u32, work: W) -> Option<W::Outcome> {
    let last = THREAD.with(|thread| thread.last.get());
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
    let last = THREAD.with(|thread| thread.last.get());
    // SAFETY: streams of the thread stay alive until it ends.
    if let Some(stream) = unsafe { last.as_ref() }
        && stream.key.load(Ordering::Relaxed) == key_of(shared, source)
        && !stream.is_busy()
    {
        return stream.raise(event_type, tick, bound, put);
    }
    raise_elsewhere(shared, source, event_type, tick, bound, put);
}

/// The same for two events of one moment, both of the threads' own source.
#[inline(always)]
pub(crate) fn raise_two(
    shared: &Shared,
    source: SourceId,
    first: (EventTypeId, usize, impl PutRow),
    second: (EventTypeId, usize, impl PutRow),
) {
    let last = THREAD.with(|thread| thread.last.get());
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

/// How many calls of a library, that others stand before, the calling thread is in; for whoever stands there and
/// must tell the program's calls from those that the library makes to itself.
#[derive(Debug)]
pub struct Depth(());

impl Depth {
    /// Goes one deeper; gives how deep the thread was. Neither locks nor allocates.
    #[inline(always)]
    pub fn deeper() -> u8 {
        THREAD.with(|thread| {
            let before = thread.depth.get();
            thread.depth.set(before.saturating_add(1));
            before
        })
    }

    /// Says how deep the thread is: what [`Depth::deeper`] gave, when the call has returned.
    #[inline(always)]
    pub fn set(depth: u8) {
        THREAD.with(|thread| thread.depth.set(depth));
    }
}

/// Counts events of a source that were lost before they came here, on the calling thread's stream.
pub(crate) fn lose(
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
        Some(stream) => stream.lose(event_type, count, cause),
        None => shared.lose_without_stream(source, event_type, count, cause),
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

/// A stream of the source that is not in use by what a signal handler interrupted.
fn find_or_open(shared: &Shared, source: SourceId) -> Option<&Stream> {
    if THREAD.with(|thread| thread.is_ended.get()) {
        return None;
    }
    let key = key_of(shared, source);
    let mut count = 0;
    let mut next = THREAD.with(|thread| thread.first.load(Ordering::Relaxed));
    while !next.is_null() {
        // SAFETY: streams on the list are alive.
        let stream = unsafe { &*next };
        if stream.key.load(Ordering::Relaxed) == key {
            count += 1;
            if !stream.is_busy() {
                if !stream.is_companion() {
                    THREAD.with(|thread| thread.last.set(stream));
                }
                return Some(stream);
            }
        }
        next = stream.next.load(Ordering::Relaxed);
    }
    if count >= MOST_OF_A_SOURCE {
        return None;
    }
    open(shared, source, count != 0)
}

fn open(shared: &Shared, source: SourceId, is_companion: bool) -> Option<&Stream> {
    let state = shared.source(source)?;
    let open_tick = state.clock.read();
    // Where there is room for the thread's end to be told, or else the stream would never close.
    if !sys::at_thread_end() {
        return None;
    }
    let stream = shared.streams.claim()?;
    let opening = Opening {
        id: shared.next_stream_id(),
        source,
        location: Some(location(shared, source)),
        open_tick,
        is_companion,
    };
    stream.fill(shared, state, &opening);
    shared.publish(stream, &opening);
    if !is_companion {
        stream.describe_thread();
    }
    // SAFETY: every `Shared` lives in an `Arc`; the count is given up in `release`, when the stream is off the list.
    unsafe { Arc::increment_strong_count(std::ptr::from_ref(shared)) };
    stream.key.store(key_of(shared, source), Ordering::Relaxed);
    stream.phase.store(phase::OPEN, Ordering::Release);
    shared.note_opening();
    let this = std::ptr::from_ref(stream).cast_mut();
    THREAD.with(|thread| {
        // A handler may put a stream on the list in between.
        let mut first = thread.first.load(Ordering::Relaxed);
        loop {
            stream.next.store(first, Ordering::Relaxed);
            let (order, seen) = (Ordering::Relaxed, Ordering::Relaxed);
            match thread.first.compare_exchange(first, this, order, seen) {
                Ok(_) => break,
                Err(now) => first = now,
            }
        }
        if !is_companion {
            thread.last.set(this);
        }
    });
    Some(stream)
}

/// The location of the calling thread, or its own one of a source: that of its other streams there, or a new one.
fn location(shared: &Shared, source: SourceId) -> annals_format::LocationId {
    let own = |source: SourceId| {
        let state = shared.source(source);
        state
            .is_some_and(|state| state.has_own_location)
            .then_some(source)
    };
    let mut next = THREAD.with(|thread| thread.first.load(Ordering::Relaxed));
    while !next.is_null() {
        // SAFETY: streams on the list are alive.
        let stream = unsafe { &*next };
        if std::ptr::eq(stream.shared_pointer(), shared)
            && own(stream.source()) == own(source)
            && let Some(location) = stream.location()
        {
            return location;
        }
        next = stream.next.load(Ordering::Relaxed);
    }
    shared.next_location_id()
}
