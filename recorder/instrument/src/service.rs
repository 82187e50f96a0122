//! The recorder of the process's functions, and the thread that defines what hooks have met.
#![expect(
    unsafe_code,
    reason = "the recorder is reached through one pointer, and the loader calls a constructor"
)]

use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::thread::Thread;
use std::time::Duration;

use annals_capi::setup::global_or;
use annals_capi::status::Failure;
use annals_recorder::{
    ENTER, FunctionModule, Inside, LEAVE, ModuleId, Options, Recorder, THREADS,
    record_nothing_here, say,
};

use crate::modules::{Loaded, is_instrumented, loaded};
use crate::{functions, listed};

/// What became of starting.
mod state {
    pub(super) const NONE: u8 = 0;
    pub(super) const STARTING: u8 = 1;
    pub(super) const STARTED: u8 = 2;
    pub(super) const FAILED: u8 = 3;
}

static STATE: AtomicU8 = AtomicU8::new(state::NONE);

/// Number of the recorder that records functions.
/// 0 means that there is none yet.
pub(crate) static NUMBER: AtomicU32 = AtomicU32::new(0);

/// Enters and leaves that arrived while the recorder started, or when the table was full.
pub(crate) static LOST: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];

/// Null until it is started.
/// The recorder is never freed.
static RECORDER: AtomicPtr<Recorder> = AtomicPtr::new(null_mut());

static SERVICE: OnceLock<Thread> = OnceLock::new();

/// Period in which the thread checks without being woken. A wake-up has no effect between its check
/// and the begin of its sleep, or when a signal handler ran before the thread was known.
const PERIOD: Duration = Duration::from_millis(200);

/// Longest wait for the thread when the recording is finished.
const LONGEST_WAIT: Duration = Duration::from_millis(200);

/// A module, as it was added.
#[derive(Debug)]
struct Known {
    loaded: Loaded,
    id: ModuleId,
}

/// The progress of defining.
#[derive(Debug)]
struct Progress {
    modules: Vec<Known>,
    /// Entries of the log that are defined.
    defined: usize,
}

static PROGRESS: Mutex<Progress> = Mutex::new(Progress {
    modules: Vec::new(),
    defined: 0,
});

fn progress() -> MutexGuard<'static, Progress> {
    PROGRESS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the recorder, started now if it was not, or `None` while it is being started, or cannot
/// be.
pub fn recorder() -> Option<&'static Recorder> {
    // SAFETY: null, or leaked by `start`.
    let recorder = unsafe { RECORDER.load(Ordering::Acquire).as_ref() };
    if recorder.is_some() || STATE.load(Ordering::Relaxed) == state::FAILED {
        return recorder;
    }
    start()
}

fn start() -> Option<&'static Recorder> {
    let (order, seen) = (Ordering::AcqRel, Ordering::Relaxed);
    // Not inside another call of this thread: starting takes locks that the call may hold.
    let inside = Inside::begin();
    if inside.was_inside() {
        return None;
    }
    let taken = STATE.compare_exchange(state::NONE, state::STARTING, order, seen);
    taken.ok()?;
    let started = std::panic::catch_unwind(try_start);
    let state = match started {
        Ok(Ok(())) => state::STARTED,
        Ok(Err(failure)) => {
            say(format_args!("nothing is recorded: {}", failure.why));
            state::FAILED
        }
        Err(_) => state::FAILED,
    };
    STATE.store(state, Ordering::Release);
    // SAFETY: null, or leaked by `try_start`.
    unsafe { RECORDER.load(Ordering::Acquire).as_ref() }
}

fn try_start() -> Result<(), Failure> {
    // The program's own, if it has made one global: one process has one recording.
    let recorder = global_or(|| Ok(Recorder::start(&Options::from_env()?)?))?;
    listed::prepare();
    add_modules(recorder, &mut progress(), loaded());
    let spawned = with_signals_blocked(|| {
        let builder = std::thread::Builder::new().name("annals-names".to_owned());
        builder.spawn(move || {
            record_nothing_here();
            let _inside = Inside::begin();
            while recorder.raiser().state().is_ok() {
                define_all_of(recorder, &mut progress());
                std::thread::park_timeout(PERIOD);
            }
        })
    });
    if let Ok(thread) = spawned {
        let _ = SERVICE.set(thread.thread().clone());
    }
    recorder.before_finish(define_the_last);
    RECORDER.store(std::ptr::from_ref(recorder).cast_mut(), Ordering::Release);
    if records_functions() {
        NUMBER.store(recorder.number(), Ordering::Release);
    }
    Ok(())
}

/// Returns whether functions are recorded.
/// They are not with `ANNALS_FUNCTIONS=off` in the environment.
pub(crate) fn records_functions() -> bool {
    static ARE_OFF: OnceLock<bool> = OnceLock::new();
    !*ARE_OFF
        .get_or_init(|| std::env::var_os("ANNALS_FUNCTIONS").is_some_and(|value| value == "off"))
}

/// Runs `spawn` with all signals blocked: the program's signals are for its own threads.
fn with_signals_blocked<T>(spawn: impl FnOnce() -> T) -> T {
    let mut all = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigfillset initialises the set.
    unsafe { libc::sigfillset(all.as_mut_ptr()) };
    let mut before = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: `all` is initialised, `before` valid to write to.
    let code =
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr()) };
    let spawned = spawn();
    if code == 0 {
        // SAFETY: the call above filled `before`.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), null_mut()) };
    }
    spawned
}

/// Defines what the thread has not defined yet, when the recording is about to be finished: within a call of the library mostly.
fn define_the_last() {
    // Other recorders are finished, too: a panic must not prevent that.
    let _ = std::panic::catch_unwind(|| {
        let _inside = Inside::begin();
        let Some(recorder) = own_recorder() else {
            return;
        };
        // The thread is done soon. A handler of a signal that ends the process may have interrupted the one that has the lock.
        for _ in 0..LONGEST_WAIT.as_millis() {
            match PROGRESS.try_lock() {
                Ok(mut progress) => return define_all_of(recorder, &mut progress),
                Err(TryLockError::Poisoned(progress)) => {
                    return define_all_of(recorder, &mut progress.into_inner());
                }
                Err(TryLockError::WouldBlock) => annals_recorder::pause(Duration::from_millis(1)),
            }
        }
    });
}

/// Wakes the thread.
/// One system call; safe in signal handlers.
pub(crate) fn wake() {
    if let Some(thread) = SERVICE.get() {
        thread.unpark();
    }
}

/// Returns the recorder, where it is at work and this process's own: a forked child must not wait
/// for locks that threads of its parent held.
fn own_recorder() -> Option<&'static Recorder> {
    // SAFETY: null, or leaked by `try_start`.
    let recorder = unsafe { RECORDER.load(Ordering::Acquire).as_ref() };
    recorder.filter(|recorder| !recorder.is_inherited())
}

/// Defines everything that was met so far.
pub(crate) fn define_all() {
    if let Some(recorder) = own_recorder() {
        let inside = Inside::begin();
        if !inside.was_inside() {
            define_all_of(recorder, &mut progress());
        }
    }
}

fn define_all_of(recorder: &Recorder, progress: &mut Progress) {
    while let Some((address, region)) = functions::met(progress.defined) {
        let holds = |known: &&Known| known.loaded.range.contains(&address);
        if !progress.modules.iter().any(|known| holds(&known)) {
            // Loaded since.
            add_modules(recorder, progress, loaded());
        }
        // When nothing can be defined any more, numbers stay numbers.
        let _ = match progress.modules.iter().find(holds) {
            Some(known) => {
                let offset = address.wrapping_sub(known.loaded.base) as u64;
                recorder.define_function(region, known.id, offset)
            }
            None => recorder.define_reserved(region, &format!("{address:#x}")),
        };
        progress.defined += 1;
        functions::set_defined(progress.defined);
    }
    for (event_type, lost) in [ENTER, LEAVE].into_iter().zip(&LOST) {
        let count = lost.swap(0, Ordering::Relaxed);
        if count != 0 {
            // Counted, in the unattributed row: this thread has no stream.
            recorder.report_dropped(THREADS, event_type, count);
        }
    }
}

/// Adds the modules that are not known yet, and removes those that are unloaded.
fn add_modules(recorder: &Recorder, progress: &mut Progress, now: Vec<Loaded>) {
    let mut gone = Vec::new();
    progress.modules.retain(|known| {
        let is_there = now.contains(&known.loaded);
        if !is_there {
            listed::remove(&known.loaded.range);
            gone.push(known.loaded.range.clone());
            let _ = recorder.remove_module(known.id);
        }
        is_there
    });
    if !gone.is_empty() {
        functions::forget(|address| gone.iter().any(|range| range.contains(&address)));
    }
    for loaded in now {
        if progress.modules.iter().any(|known| known.loaded == loaded) {
            continue;
        }
        let spec = annals_recorder::ModuleSpec {
            path: loaded.path.clone(),
            build_id: loaded.build_id.clone(),
            base: loaded.base as u64,
        };
        if let Ok(id) = recorder.add_module(&spec) {
            let base = FunctionModule::Defined { base: spec.base };
            listed::add(&loaded.range, loaded.path.as_bytes(), base);
            progress.modules.push(Known { loaded, id });
        }
    }
}

/// Removes modules that were unloaded. Called after `dlclose`.
pub(crate) fn remove_unloaded_modules() {
    if let Some(recorder) = own_recorder() {
        let inside = Inside::begin();
        if !inside.was_inside() {
            // The loader's list first: its lock is not waited for under ours.
            let now = loaded();
            add_modules(recorder, &mut progress(), now);
        }
    }
}

/// Starts the recorder before the program's own constructors, where that is a quiet place to do it:
/// when a module calls the hooks. In any other program nothing happens.
extern "C" fn prepare() {
    let prepare = || {
        if records_functions() && is_instrumented() {
            recorder();
        }
    };
    // A panic must not cross into the loader.
    let _ = std::panic::catch_unwind(prepare);
}

#[used]
#[unsafe(link_section = ".init_array")]
static PREPARE: extern "C" fn() = prepare;
