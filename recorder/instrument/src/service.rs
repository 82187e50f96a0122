//! The recorder of the process's functions, and the thread that defines what hooks have met.
//!
//! A forked child that is followed gets a new [`Service`]: the parent's may be locked by a thread that does not exist in the child.
#![expect(
    unsafe_code,
    reason = "the recorder is reached through one pointer, and the loader calls a constructor"
)]

use std::io;
use std::os::fd::RawFd;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::thread::Thread;
use std::time::Duration;

use annals_capi::setup::global_or;
use annals_capi::status::{Failure, Status};
use annals_recorder::names::property::NOT_SAMPLED;
use annals_recorder::{
    ENTER, Forks, FunctionModule, Inside, LEAVE, ModuleId, Options, Recorder, THREADS, Worker,
    record_nothing_here, say,
};

use crate::forked::Started;
use crate::modules::{Loaded, is_instrumented, loaded, program_path};
use crate::sampling::{self, Sampling};
use crate::{constructs, forked, functions, listed, signals};

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

/// A recorder, and what defines its functions. Never freed.
pub(crate) struct Service {
    pub(crate) recorder: &'static Recorder,
    progress: Mutex<Progress>,
    /// The thread that defines.
    thread: OnceLock<Thread>,
    /// Whether this process is a forked child of one that recorded functions.
    is_child: bool,
}

/// Null until the recorder is started.
static SERVICE: AtomicPtr<Service> = AtomicPtr::new(null_mut());

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
#[derive(Default)]
struct Progress {
    modules: Vec<Known>,
    /// Entries of the log that are defined.
    defined: usize,
    sampling: Option<Sampling>,
}

impl Progress {
    fn files(&self) -> impl Iterator<Item = (&Loaded, ModuleId)> {
        self.modules.iter().map(|known| (&known.loaded, known.id))
    }
}

impl Service {
    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the files that are in memory. In a forked child, where the loader's list may be locked for good: those that are known
    /// and still there, and the one with this address.
    fn loaded(&self, progress: &Progress, address: Option<usize>) -> Vec<Loaded> {
        if !self.is_child {
            return loaded();
        }
        let known = progress.modules.iter().map(|known| &known.loaded);
        let mut now: Vec<Loaded> = known
            .filter(|known| listed::loaded_at(known.range.start).as_ref() == Some(*known))
            .cloned()
            .collect();
        let is_in = |address: &usize| now.iter().any(|one| one.range.contains(address));
        now.extend(
            address
                .filter(|address| !is_in(address))
                .and_then(listed::loaded_at),
        );
        now
    }
}

/// Returns the service, or `None` if no recorder was started.
pub(crate) fn service() -> Option<&'static Service> {
    // SAFETY: null, or leaked by `serve`.
    unsafe { SERVICE.load(Ordering::Acquire).as_ref() }
}

/// Is called with the recorder of this process when that has started.
static WHEN_STARTED: OnceLock<fn(&Recorder)> = OnceLock::new();

/// Sets the function that is called with the recorder of this process when that has started. Later calls change nothing.
pub fn when_started(function: fn(&Recorder)) {
    let _ = WHEN_STARTED.set(function);
}

/// Returns the recorder, or `None` if it was not started.
pub fn started() -> Option<&'static Recorder> {
    service().map(|service| service.recorder)
}

/// Returns the recorder, started now if it was not, or `None` while it is being started, or cannot
/// be. In a forked child, it is the parent's, until the child has one.
pub fn recorder() -> Option<&'static Recorder> {
    let service = service();
    if service.is_some() || STATE.load(Ordering::Relaxed) == state::FAILED {
        return service.map(|service| service.recorder);
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
    service().map(|service| service.recorder)
}

fn try_start() -> Result<(), Failure> {
    // The program's own, if it has made one global: one process has one recording.
    let recorder = global_or(|| Ok(Recorder::start(&Options::from_env()?)?))?;
    listed::prepare();
    let service = prepare_service(recorder, false);
    add_modules(recorder, &mut service.progress(), loaded());
    serve(service);
    if let Some(function) = WHEN_STARTED.get() {
        function(recorder);
    }
    let Ok(options) = Options::from_env() else {
        return Ok(());
    };
    if let Some(period) = options.sampling_period
        && let Err(why) = begin_sampling(service, period)
    {
        say(format_args!("no samples are taken: {why}"));
        let _ = recorder.add_property(NOT_SAMPLED, &why);
    }
    if options.forks == Forks::Follow
        && let Err(error) = forked::prepare(options, start_in_child)
    {
        say(format_args!("forked children are not recorded: {error}"));
    }
    Ok(())
}

/// Begins to sample the threads of the process, and starts the thread that empties their rings.
fn begin_sampling(service: &'static Service, period: Duration) -> Result<(), String> {
    let recorder = service.recorder;
    let mut progress = service.progress();
    let mut sampling = Sampling::begin(recorder, period)?;
    sampling.files.set(progress.files());
    let mut descriptors = sampling.descriptors();
    progress.sampling = Some(sampling);
    drop(progress);
    spawn("annals-samples", move |worker| {
        if let Some(sampling) = &mut service.progress().sampling {
            sampling.be_reader();
        }
        while recorder.raiser().state().is_ok() {
            worker.rest(|| {
                annals_recorder::pause(sampling::LEAST_PERIOD);
                wait_for(&mut descriptors);
            });
            let ended = descriptors
                .iter()
                .filter(|one| one.revents & libc::POLLHUP != 0);
            let ended: Vec<RawFd> = ended.map(|one| one.fd).collect();
            let mut progress = service.progress();
            take_samples(service, &mut progress, &ended);
            match &progress.sampling {
                Some(sampling) => descriptors = sampling.descriptors(),
                None => return,
            }
        }
    })
    .map(drop)
    .map_err(|error| error.to_string())
}

/// Waits until a descriptor is readable or hangs up, for the period of sampling at most.
fn wait_for(descriptors: &mut [libc::pollfd]) {
    let (count, most_ms) = (
        descriptors.len() as libc::nfds_t,
        sampling::PERIOD.as_millis(),
    );
    // SAFETY: the call writes to these descriptors only.
    unsafe { libc::poll(descriptors.as_mut_ptr(), count, most_ms as libc::c_int) };
}

/// Records the samples that were taken since the last call.
fn take_samples(service: &Service, progress: &mut Progress, ended: &[RawFd]) {
    if let Some(mut sampling) = progress.sampling.take() {
        sampling.take_all(service.recorder, ended, &mut |files| {
            let now = service.loaded(progress, None);
            add_modules(service.recorder, progress, now);
            files.set(progress.files());
        });
        progress.sampling = Some(sampling);
    }
}

/// Starts a thread of the recorder.
fn spawn(name: &str, work: impl FnOnce(&Worker) + Send + 'static) -> io::Result<Thread> {
    let worker = Worker::begin();
    let spawned = with_signals_blocked(|| {
        let builder = std::thread::Builder::new().name(name.to_owned());
        builder.spawn(move || {
            record_nothing_here();
            let _inside = Inside::begin();
            work(&worker);
        })
    });
    Ok(spawned?.thread().clone())
}

/// Starts the recorder of a forked child, in which functions of these addresses were called.
fn start_in_child(
    options: &Options,
    addresses: &mut dyn Iterator<Item = usize>,
) -> Result<Started, Failure> {
    let parent = service().ok_or(Status::ErrorHandle)?;
    with_signals_blocked(|| {
        let recorder = global_or(|| Ok(parent.recorder.start_in_child(options)?))?;
        functions::reset();
        listed::reset();
        for lost in &LOST {
            lost.store(0, Ordering::Relaxed);
        }
        let service = prepare_service(recorder, true);
        for address in addresses {
            let mut progress = service.progress();
            let holds = |known: &Known| known.loaded.range.contains(&address);
            if !progress.modules.iter().any(holds) {
                let now = service.loaded(&progress, Some(address));
                add_modules(recorder, &mut progress, now);
            }
        }
        serve(service);
        Ok(Started {
            child: recorder,
            parent: parent.recorder,
        })
    })
}

fn prepare_service(recorder: &'static Recorder, is_child: bool) -> &'static Service {
    Box::leak(Box::new(Service {
        recorder,
        progress: Mutex::default(),
        thread: OnceLock::new(),
        is_child,
    }))
}

/// Starts the thread that defines, and has functions recorded.
fn serve(service: &'static Service) {
    let recorder = service.recorder;
    let spawned = spawn("annals-names", move |worker| {
        while recorder.raiser().state().is_ok() {
            define_all_of(service, &mut service.progress());
            worker.rest(|| std::thread::park_timeout(PERIOD));
        }
    });
    if let Ok(thread) = spawned {
        let _ = service.thread.set(thread);
    }
    recorder.before_finish(define_the_last);
    let service = std::ptr::from_ref(service).cast_mut();
    SERVICE.store(service, Ordering::Release);
    if records_functions() {
        NUMBER.store(recorder.number(), Ordering::Release);
    }
}

/// Returns whether functions are recorded.
/// They are not with `ANNALS_FUNCTIONS=off` in the environment.
pub(crate) fn records_functions() -> bool {
    static ARE_OFF: OnceLock<bool> = OnceLock::new();
    !*ARE_OFF
        .get_or_init(|| std::env::var_os("ANNALS_FUNCTIONS").is_some_and(|value| value == "off"))
}

/// Runs `spawn` with all signals blocked: the program's signals are for its own threads.
pub(crate) fn with_signals_blocked<T>(spawn: impl FnOnce() -> T) -> T {
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
        let Some(service) = own_service() else {
            return;
        };
        forked::settle(service.recorder);
        // The thread is done soon. A handler of a signal that ends the process may have interrupted the one that has the lock.
        for _ in 0..LONGEST_WAIT.as_millis() {
            match service.progress.try_lock() {
                Ok(mut progress) => return complete(service, &mut progress),
                Err(TryLockError::Poisoned(progress)) => {
                    return complete(service, &mut progress.into_inner());
                }
                Err(TryLockError::WouldBlock) => annals_recorder::pause(Duration::from_millis(1)),
            }
        }
    });
}

/// Records the last samples, and defines what they and the functions need.
fn complete(service: &Service, progress: &mut Progress) {
    take_samples(service, progress, &[]);
    if let Some(sampling) = progress.sampling.take() {
        sampling.end(service.recorder);
    }
    define_all_of(service, progress);
}

/// Wakes the thread.
/// One system call; safe in signal handlers.
pub(crate) fn wake() {
    if let Some(thread) = service().and_then(|service| service.thread.get()) {
        thread.unpark();
    }
}

/// Returns the service, where it is at work and this process's own: a forked child must not wait
/// for locks that threads of its parent held.
fn own_service() -> Option<&'static Service> {
    service().filter(|service| !service.recorder.is_inherited())
}

/// Defines everything that was met so far.
pub(crate) fn define_all() {
    if let Some(service) = own_service() {
        let inside = Inside::begin();
        if !inside.was_inside() {
            define_all_of(service, &mut service.progress());
        }
    }
}

fn define_all_of(service: &Service, progress: &mut Progress) {
    let recorder = service.recorder;
    while let Some((key, region)) = functions::met(progress.defined) {
        let address = functions::address_of(key);
        let construct = constructs::find(functions::construct_of(key));
        let holds = |known: &&Known| known.loaded.range.contains(&address);
        if address != 0 && !progress.modules.iter().any(|known| holds(&known)) {
            // Loaded since.
            let now = service.loaded(progress, Some(address));
            add_modules(recorder, progress, now);
        }
        // When nothing can be defined any more, numbers stay numbers.
        let _ = match progress.modules.iter().find(holds) {
            Some(known) => {
                let offset = address.wrapping_sub(known.loaded.base) as u64;
                match construct {
                    Some(of) => {
                        recorder.define_construct(region, known.id, offset, of.name, of.group)
                    }
                    None => recorder.define_function(region, known.id, offset),
                }
            }
            None => match construct {
                Some(of) => recorder.define_reserved(region, of.name, of.group),
                None => recorder.define_reserved(region, &format!("{address:#x}"), ""),
            },
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
    if let Some(sampling) = progress.sampling.as_mut().filter(|_| !gone.is_empty()) {
        // Another file may come to the same addresses.
        let known = progress.modules.iter();
        sampling
            .files
            .set(known.map(|known| (&known.loaded, known.id)));
    }
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
    if let Some(service) = own_service() {
        let inside = Inside::begin();
        if !inside.was_inside() {
            let recorder = service.recorder;
            if service.is_child {
                let mut progress = service.progress();
                let now = service.loaded(&progress, None);
                add_modules(recorder, &mut progress, now);
            } else {
                // The loader's list first: its lock is not waited for under ours.
                let now = loaded();
                let mut progress = service.progress();
                take_samples(service, &mut progress, &[]);
                add_modules(recorder, &mut progress, now);
            }
        }
    }
}

/// Returns whether samples are asked for, and the program is one that works itself.
fn is_to_be_sampled() -> bool {
    const STARTERS: [&str; 24] = [
        "bash",
        "dash",
        "env",
        "hydra_bstrap_proxy",
        "hydra_pmi_proxy",
        "ksh",
        "mpiexec",
        "mpiexec.hydra",
        "mpirun",
        "nice",
        "numactl",
        "orted",
        "orterun",
        "prte",
        "prted",
        "prterun",
        "sh",
        "slurmstepd",
        "srun",
        "taskset",
        "time",
        "timeout",
        "trace-cli",
        "zsh",
    ];
    let is_asked = std::env::var_os("ANNALS_SAMPLE").is_some_and(|value| !value.is_empty());
    is_asked && {
        let path = program_path();
        !STARTERS.contains(&path.rsplit('/').next().unwrap_or_default())
    }
}

/// Starts the recorder before the program's own constructors, where that is a quiet place to do it:
/// when a module calls the hooks, or samples are asked for. In any other program nothing happens.
extern "C" fn prepare() {
    signals::prepare();
    let prepare = || {
        if records_functions() && is_instrumented() || is_to_be_sampled() {
            recorder();
        }
    };
    // A panic must not cross into the loader.
    let _ = std::panic::catch_unwind(prepare);
}

#[used]
#[unsafe(link_section = ".init_array")]
static PREPARE: extern "C" fn() = prepare;
