//! Children made by fork, or by clone without shared memory, that are recorded: with `ANNALS_FORK=follow`.
//!
//! A child keeps its first events in memory that its parent has mapped, because most children call `exec` soon. After
//! [`LONGEST_WAIT_NS`], or [`MOST_ROWS`] events, its next event starts a recorder; so does `exit`. What was kept is then recorded, with
//! its times. Until then the parent counts the child as one that nothing records: after `exec` or `_exit` it remains counted.
//!
//! Starting allocates, locks and creates threads. So it must not happen
//! - in a signal handler, which may have interrupted code that holds a lock. That cannot be known in general. A thread is taken to be in
//!   a handler if it is on an alternate stack, or if a signal is blocked that has a handler; then a later event starts. A handler that
//!   blocks nothing (`SA_NODEFER`) on the usual stack is not noticed.
//! - where a lock may be held by a thread that the child does not have. `fork` makes the C library's locks usable, and
//!   calls [`made_by_fork`] then. Children of other system calls are recorded if the process had no threads except the recorder's, and
//!   these were at rest: see [`make`].
//! - in memory that is the parent's, too (`vfork`, `CLONE_VM`). There the events are the parent's, and nothing here is called.
#![expect(
    unsafe_code,
    reason = "memory that fork wipes, and system calls that ask whether a signal handler runs"
)]

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::ptr::null_mut;
use std::sync::atomic::{
    AtomicBool, AtomicI64, AtomicPtr, AtomicU8, AtomicU64, AtomicUsize, Ordering,
};

use annals_capi::status::Failure;
use annals_recorder::{
    ENTER, Inside, LEAVE, Options, Raiser, Recorder, Refusal, THREADS, say, while_at_rest,
};

use crate::functions;

/// Most events that a child keeps, apart from the one that starts its recorder.
const MOST_ROWS: usize = 1000;

/// How long a child keeps events, nanoseconds.
const LONGEST_WAIT_NS: i64 = 10_000_000;

/// Starts the recorder of a child, in which functions of these addresses were called.
pub(crate) type Start = fn(&Options, &mut dyn Iterator<Item = usize>) -> Result<Started, Failure>;

/// The recorders of a child and its parent.
pub(crate) struct Started {
    pub(crate) child: &'static Recorder,
    pub(crate) parent: &'static Recorder,
}

/// What became of starting.
mod state {
    pub(super) const NONE: u8 = 0;
    pub(super) const STARTING: u8 = 1;
    pub(super) const STARTED: u8 = 2;
    pub(super) const FAILED: u8 = 3;
}

/// An event that is kept.
struct Row {
    tick: AtomicU64,
    /// Twice the function's address, and 1 for an enter. 0: the event is not complete.
    call: AtomicUsize,
}

/// What a child knows before it has a recorder, in memory that is zero at first in every child.
struct Kept {
    state: AtomicU8,
    /// Whether no lock of the C library is held for good.
    can_start: AtomicBool,
    /// Reference clock at the fork, or at the first event. 0 means neither.
    begun_ns: AtomicI64,
    /// The thread whose events are kept: the first one that raised an event. 0 means none.
    owner: AtomicUsize,
    /// Number of events that were to be kept.
    count: AtomicUsize,
    /// Whether the kept events were recorded, or counted as lost.
    is_settled: AtomicBool,
    /// Enters and leaves that could not be kept.
    lost: [AtomicU64; 2],
    rows: [Row; MOST_ROWS + 1],
}

/// How children are recorded.
struct Follow {
    options: Options,
    start: Start,
    kept: &'static Kept,
}

/// Null means that children are not recorded.
static FOLLOW: AtomicPtr<Follow> = AtomicPtr::new(null_mut());

fn follow() -> Option<&'static Follow> {
    // SAFETY: null, or leaked by `prepare`.
    unsafe { FOLLOW.load(Ordering::Acquire).as_ref() }
}

/// Returns whether children are recorded.
pub(crate) fn are_followed() -> bool {
    follow().is_some()
}

/// Has children of this process recorded, and theirs.
pub(crate) fn prepare(options: Options, start: Start) -> std::io::Result<()> {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new mapping.
    let memory = unsafe { libc::mmap(null_mut(), size_of::<Kept>(), access, kind, -1, 0) };
    if memory == libc::MAP_FAILED {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: the mapping, all of it.
    if unsafe { libc::madvise(memory, size_of::<Kept>(), libc::MADV_WIPEONFORK) } != 0 {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: aligned as a page is, zeros are valid, and it stays mapped; only atomics change.
    let kept: &'static Kept = unsafe { &*memory.cast() };
    let follow = Box::leak(Box::new(Follow {
        options,
        start,
        kept,
    }));
    FOLLOW.store(follow, Ordering::Release);
    // SAFETY: the functions live as long as the library.
    unsafe { libc::pthread_atfork(None, None, Some(made_by_fork)) };
    // Called before the handler that finishes the recording, because that was registered before.
    // SAFETY: the function lives as long as the library.
    unsafe { libc::atexit(at_exit) };
    Ok(())
}

/// Called in a child, by `fork`.
extern "C" fn made_by_fork() {
    if let Some(follow) = follow() {
        follow.kept.allow();
    }
}

/// Whether the child that is being made by [`make`] can start a recorder.
static CAN_START: AtomicBool = AtomicBool::new(false);

/// Calls `make`, which makes a child by another call than `fork`.
pub(crate) fn make(make: impl FnOnce() -> c_int) -> c_int {
    while_at_rest(|can_start| {
        CAN_START.store(can_start, Ordering::Relaxed);
        let made = make();
        CAN_START.store(false, Ordering::Relaxed);
        made
    })
}

impl Kept {
    fn allow(&self) {
        self.can_start.store(true, Ordering::Relaxed);
        self.begun_ns
            .store(Recorder::reference_ns(), Ordering::Relaxed);
    }

    /// Returns whether the calling thread is the one whose events are kept. The first one that asks is.
    fn is_mine(&self, recorder: &Recorder) -> bool {
        let me = this_thread();
        let (order, seen) = (Ordering::Relaxed, Ordering::Relaxed);
        let owner = self.owner.compare_exchange(0, me, order, seen);
        if owner.is_ok() {
            if CAN_START.swap(false, Ordering::Relaxed) {
                self.can_start.store(true, Ordering::Relaxed);
            }
            // Refused, and the child is counted until it has a recorder.
            let _ = recorder.raiser().report_dropped(THREADS, ENTER, 0);
            let now = Recorder::reference_ns();
            let _ = self.begun_ns.compare_exchange(0, now, order, seen);
        }
        owner.map_or_else(|owner| owner == me, |_| true)
    }

    /// Returns whether it is time to start.
    fn is_due(&self) -> bool {
        let waited = Recorder::reference_ns() - self.begun_ns.load(Ordering::Relaxed);
        self.count.load(Ordering::Relaxed) >= MOST_ROWS || waited >= LONGEST_WAIT_NS
    }

    /// Keeps an event of the calling thread. Returns whether there was room.
    fn keep(&self, tick: u64, function: usize, is_enter: bool) -> bool {
        if self.count.load(Ordering::Relaxed) >= self.rows.len() {
            return false;
        }
        let Some(row) = self.rows.get(self.count.fetch_add(1, Ordering::Relaxed)) else {
            return false;
        };
        row.tick.store(tick, Ordering::Relaxed);
        let call = function << 1 | usize::from(is_enter);
        row.call.store(call, Ordering::Release);
        true
    }

    /// Returns the events: tick, address, and whether it is an enter.
    fn events(&self) -> impl Iterator<Item = (u64, usize, bool)> {
        let count = self.count.load(Ordering::Acquire).min(self.rows.len());
        self.rows[..count].iter().map(|row| {
            let call = row.call.load(Ordering::Acquire);
            (row.tick.load(Ordering::Relaxed), call >> 1, call & 1 != 0)
        })
    }

    /// Records what was kept, if the calling thread raised it.
    fn record(&self, recorder: &Recorder) {
        if self.owner.load(Ordering::Relaxed) != this_thread()
            || self.is_settled.swap(true, Ordering::Relaxed)
        {
            return;
        }
        let raiser = recorder.raiser();
        let mut last = 0;
        for (tick, function, is_enter) in self.events() {
            if last == 0 {
                recorder.begin_thread_at(tick);
            }
            // A signal handler may have raised its own between a tick and its row.
            last = tick.max(last);
            match region(function, raiser) {
                Some(region) if is_enter => recorder.enter_at(region, last),
                Some(region) => recorder.leave_at(region, last),
                None => self.count_lost(is_enter),
            }
        }
        self.report_lost(recorder);
    }

    fn count_lost(&self, is_enter: bool) {
        self.lost[usize::from(!is_enter)].fetch_add(1, Ordering::Relaxed);
    }

    fn report_lost(&self, recorder: &Recorder) {
        for (event_type, lost) in [ENTER, LEAVE].into_iter().zip(&self.lost) {
            let count = lost.swap(0, Ordering::Relaxed);
            if count != 0 {
                recorder.report_dropped(THREADS, event_type, count);
            }
        }
    }
}

fn region(function: usize, raiser: Raiser<'_>) -> Option<annals_recorder::RegionId> {
    // The thread that defines has been started, and looks for itself.
    (function != 0).then(|| functions::find_or_add(function, raiser, || ()))?
}

/// Returns a number for the calling thread that no other thread has which exists now.
fn this_thread() -> usize {
    // SAFETY: only its address is used.
    unsafe { libc::__errno_location() }.addr()
}

/// Keeps an event if this is a forked child that has no recorder yet, or starts one. Returns whether nothing is left to be done about
/// the event: if not, the process's recorder now takes it.
pub(crate) fn keep(recorder: &Recorder, function: usize, is_enter: bool) -> bool {
    let Some(follow) = follow() else {
        return false;
    };
    let kept = follow.kept;
    if recorder.raiser().state() != Err(Refusal::Forked) {
        if kept.state.load(Ordering::Acquire) == state::STARTED
            && !kept.is_settled.load(Ordering::Relaxed)
        {
            kept.record(recorder);
        }
        return false;
    }
    // Before the event is given its place: a handler that raises in between is later.
    let tick = recorder.tick();
    let is_mine = kept.is_mine(recorder);
    // The events of one thread are kept: those of another one, which the child has made, need a recorder now.
    let is_due = !is_mine || kept.is_due();
    let is_kept = is_mine && kept.keep(tick, function, is_enter);
    if is_due && follow.start() {
        return is_kept;
    }
    if !is_kept {
        kept.count_lost(is_enter);
    }
    true
}

impl Follow {
    /// Starts the child's recorder, if it can be started here. Returns whether it is started.
    fn start(&self) -> bool {
        let kept = self.kept;
        let (order, seen) = (Ordering::AcqRel, Ordering::Acquire);
        // Not inside another call of this thread: starting takes locks that the call may hold.
        let inside = Inside::begin();
        if inside.was_inside() || kept.state.load(seen) != state::NONE || may_be_in_handler() {
            return kept.state.load(seen) == state::STARTED;
        }
        if !kept.can_start.load(Ordering::Relaxed) {
            kept.state.store(state::FAILED, Ordering::Release);
            return false;
        }
        let (none, starting) = (state::NONE, state::STARTING);
        if kept
            .state
            .compare_exchange(none, starting, order, seen)
            .is_err()
        {
            return kept.state.load(seen) == state::STARTED;
        }
        let start = || {
            (self.start)(
                &self.options,
                &mut kept.events().map(|(_, address, _)| address),
            )
        };
        let started = std::panic::catch_unwind(std::panic::AssertUnwindSafe(start));
        let state = match &started {
            Ok(Ok(_)) => state::STARTED,
            Ok(Err(failure)) => {
                say(format_args!(
                    "a forked child is not recorded: {}",
                    failure.why
                ));
                state::FAILED
            }
            Err(_) => state::FAILED,
        };
        kept.state.store(state, Ordering::Release);
        if let Ok(Ok(Started { child, parent })) = started {
            kept.record(child);
            // Not before: killed meanwhile, the child would lack its first events in silence.
            parent.forget_child();
        }
        state == state::STARTED
    }
}

/// Starts the recorder of a child that has kept events and ends now.
pub(crate) fn start_at_end() {
    if let Some(follow) = follow()
        && follow.kept.count.load(Ordering::Relaxed) != 0
    {
        follow.start();
    }
}

extern "C" fn at_exit() {
    // A panic must not cross into the C library.
    let _ = std::panic::catch_unwind(start_at_end);
}

/// Records or counts what was kept, when the child's recording is about to be finished.
pub(crate) fn settle(recorder: &Recorder) {
    let Some(follow) = follow() else {
        return;
    };
    let kept = follow.kept;
    kept.record(recorder);
    // The thread that raised them raises no more.
    if !kept.is_settled.swap(true, Ordering::Relaxed) {
        kept.events()
            .for_each(|(_, _, is_enter)| kept.count_lost(is_enter));
    }
    kept.report_lost(recorder);
}

/// Returns whether the calling thread may be in a signal handler: see the module's documentation.
fn may_be_in_handler() -> bool {
    let mut stack = MaybeUninit::<libc::stack_t>::zeroed();
    // SAFETY: valid to write to; no other stack is set.
    unsafe { libc::sigaltstack(std::ptr::null(), stack.as_mut_ptr()) };
    // SAFETY: zeros, or filled by the call.
    if unsafe { stack.assume_init() }.ss_flags & libc::SS_ONSTACK != 0 {
        return true;
    }
    let mut blocked = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: valid to write to; no other set is given.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), blocked.as_mut_ptr()) };
    // SAFETY: zeros, or filled by the call.
    let blocked = unsafe { blocked.assume_init() };
    (1..=64).any(|signal| {
        // SAFETY: a complete set.
        let is_blocked = unsafe { libc::sigismember(&raw const blocked, signal) } == 1;
        is_blocked && has_handler(signal)
    })
}

fn has_handler(signal: c_int) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: valid to write to; no other action is given.
    let code = unsafe { libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) };
    // SAFETY: zeros, or filled by the call.
    let action = unsafe { action.assume_init() };
    code == 0 && ![libc::SIG_DFL, libc::SIG_IGN].contains(&action.sa_sigaction)
}
