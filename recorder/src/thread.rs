//! The recorder's data for each thread, in thread-local storage without destructors.
//!
//! Everything here may run in a signal handler that interrupted anything, also this module: what a
//! thread keeps is changed by single stores.

use std::cell::Cell;
#[cfg(any(
    miri,
    not(any(target_arch = "x86_64", target_arch = "aarch64")),
    not(target_os = "linux")
))]
use std::ptr::{null, null_mut};
use std::sync::OnceLock;
use std::sync::atomic::AtomicPtr;

mod tls;
mod uncancelled;

pub use uncancelled::{Uncancelled, say, uncancelled};

use tls::ThisThread;

/// The data of a thread; all zeros at first. The pointers are opaque here: their owners are modules
/// above this one.
#[derive(Debug)]
pub(crate) struct Thread {
    /// The stream that the thread used last, for `thread_streams`.
    pub(crate) last: Cell<*const ()>,
    /// All streams of the thread, newest first, for `thread_streams`.
    pub(crate) first: AtomicPtr<()>,
    /// Whether its events are recorded.
    life: Cell<Life>,
    is_in_queue: Cell<bool>,
    is_inside: Cell<bool>,
    is_in_clock: Cell<bool>,
    /// Whether a closure that the event interface called has panicked, for `events::in_progress`.
    pub(crate) has_panic: Cell<bool>,
    /// See [`Depth`].
    depth: Cell<u8>,
    /// See [`Depth::note`].
    outermost: Cell<(usize, u32)>,
    /// The thread's frames for callbacks of the event interface. Null means that it has none yet.
    pub(crate) lane: Cell<*const ()>,
    /// Of these or others, the frame of the innermost callback. Null means that none runs.
    pub(crate) innermost: Cell<*const ()>,
    /// See [`attached`].
    attached: Cell<*const ()>,
}

#[cfg(any(
    miri,
    not(any(target_arch = "x86_64", target_arch = "aarch64")),
    not(target_os = "linux")
))]
impl Thread {
    const fn new() -> Self {
        Self {
            last: Cell::new(null()),
            first: AtomicPtr::new(null_mut()),
            life: Cell::new(Life::Recorded),
            is_in_queue: Cell::new(false),
            is_inside: Cell::new(false),
            is_in_clock: Cell::new(false),
            has_panic: Cell::new(false),
            depth: Cell::new(0),
            outermost: Cell::new((0, 0)),
            lane: Cell::new(null()),
            innermost: Cell::new(null()),
            attached: Cell::new(null()),
        }
    }
}

pub(crate) const THREAD: ThisThread = ThisThread;

/// Releases a thread's frames for callbacks. Set before the first thread has some.
static RELEASE_LANE: OnceLock<fn(*const ())> = OnceLock::new();

/// Registers the function that releases a thread's frames for callbacks when the thread ends.
pub(crate) fn on_lane_end(release: fn(*const ())) {
    let _ = RELEASE_LANE.set(release);
}

/// Releases the calling thread's frames for callbacks, if it has some.
pub(crate) fn release_lane() {
    let lane = THREAD.with(|thread| thread.lane.replace(std::ptr::null()));
    if let Some(release) = RELEASE_LANE.get().filter(|_| !lane.is_null()) {
        release(lane);
    }
}

/// Why events of a thread are recorded or not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Life {
    Recorded,
    /// Its storage is freed.
    Ended,
    /// It is one of the recorder's, or serves it.
    OfRecorder,
}

/// Marks the calling thread as ended: signal handlers that still run in it find no stream from now
/// on.
pub(crate) fn mark_ended() {
    THREAD.with(|thread| thread.life.set(Life::Ended));
}

/// Returns whether the calling thread has ended, apart from its last signal handlers and
/// destructors.
pub(crate) fn has_ended() -> bool {
    THREAD.with(|thread| thread.life.get() == Life::Ended)
}

/// Returns whether events of the calling thread are recorded: it has not ended, and is none of the recorder's.
pub(crate) fn is_recorded() -> bool {
    THREAD.with(|thread| thread.life.get() == Life::Recorded)
}

/// Returns whether the calling thread is in a clock that belongs to the program.
pub(crate) fn is_in_clock() -> bool {
    THREAD.with(|thread| thread.is_in_clock.get())
}

/// Sets whether the calling thread is in a clock of the program, and returns the previous value.
pub(crate) fn set_in_clock(is_in: bool) -> bool {
    THREAD.with(|thread| thread.is_in_clock.replace(is_in))
}

/// Marks the calling thread as one of the recorder's own, or one that serves it. Events in it are
/// counted and not recorded, for example those of the program's own allocator: a writer that
/// recorded itself would wait for itself.
pub fn record_nothing_here() {
    THREAD.with(|thread| thread.life.set(Life::OfRecorder));
}

/// Returns what [`attach`] has stored for the calling thread; null if nothing. Neither locks nor allocates, and costs one load.
#[doc(hidden)]
#[inline(always)]
pub fn attached() -> *const () {
    THREAD.with(|thread| thread.attached.get())
}

/// Stores a pointer for the calling thread: for the library that records runtimes.
#[doc(hidden)]
pub fn attach(pointer: *const ()) {
    THREAD.with(|thread| thread.attached.set(pointer));
}

/// Marks the calling thread as at work in a queue that other threads wait for, until it is dropped.
/// A signal handler that interrupts the thread there must not use the queue: it would wait for the
/// thread that it interrupted.
pub(crate) struct QueueUse(());

impl QueueUse {
    /// Begins the use. Returns `None` if the calling thread is in a queue already.
    pub(crate) fn begin() -> Option<Self> {
        THREAD.with(|thread| (!thread.is_in_queue.replace(true)).then_some(Self(())))
    }
}

impl Drop for QueueUse {
    fn drop(&mut self) {
        THREAD.with(|thread| thread.is_in_queue.set(false));
    }
}

/// Marks the calling thread as inside a call that must not begin a second time in the same thread,
/// until it is dropped. Meanwhile the thread is not cancelled. In a signal handler or a callback, the second call would wait for the
/// first. Interfaces to other languages refuse such calls. Events are raised all the same.
#[derive(Debug)]
pub struct Inside {
    was_inside: bool,
    _uncancelled: Uncancelled,
}

impl Inside {
    /// Begins such a call. Neither locks nor allocates.
    pub fn begin() -> Self {
        let was_inside = THREAD.with(|thread| thread.is_inside.replace(true));
        Self {
            was_inside,
            _uncancelled: Uncancelled::begin(),
        }
    }

    /// Returns whether the thread was inside such a call already.
    pub const fn was_inside(&self) -> bool {
        self.was_inside
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        THREAD.with(|thread| thread.is_inside.set(self.was_inside));
    }
}

/// The number of nested calls of an intercepted library that the calling thread is in. An
/// interceptor uses it to distinguish the program's calls from those that the library makes to
/// itself.
#[derive(Debug)]
pub struct Depth(());

impl Depth {
    /// Increases the depth by one and returns its previous value. Neither locks nor allocates.
    #[inline(always)]
    pub fn deeper() -> u8 {
        THREAD.with(|thread| {
            let before = thread.depth.get();
            thread.depth.set(before.saturating_add(1));
            before
        })
    }

    /// Notes where the stack is in the outermost call, and a number of the interceptor's: a call that was left by an exception, by
    /// `longjmp` or with its thread is found by that. Neither locks nor allocates.
    #[inline(always)]
    pub fn note(stack_pointer: usize, what: u32) {
        THREAD.with(|thread| thread.outermost.set((stack_pointer, what)));
    }

    /// Returns what [`Depth::note`] has noted in this thread.
    pub fn noted() -> (usize, u32) {
        THREAD.with(|thread| thread.outermost.get())
    }

    /// Returns the depth. Neither locks nor allocates.
    #[inline(always)]
    pub fn current() -> u8 {
        THREAD.with(|thread| thread.depth.get())
    }

    /// Sets the depth to the value that [`Depth::deeper`] returned, after the call has returned.
    #[inline(always)]
    pub fn set(depth: u8) {
        THREAD.with(|thread| thread.depth.set(depth));
    }
}
