//! One recording from its start to its finish: the files, the writer thread, what every recording
//! starts with.
#![expect(
    unsafe_code,
    reason = "the list of recorders that process exit finishes has no lock"
)]

use std::path::{Path, PathBuf};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use annals_format::live::layout::IN_MEMORY;
use annals_format::names::{self, element};
use annals_format::{
    Definition, LiveHeader, Process, Rank, RecordingId, Reference, RegionId, Role, Verbosity,
};

use crate::builtin::{PROCESS, RECORDED_BY, THREADS};
use crate::clock::{reference_ns, unix_ns};
use crate::definer::Definer;
use crate::elements::Elements;
use crate::error::{RecorderError, Result};
use crate::launcher;
use crate::memory::{Division, LiveMemory};
use crate::options::{Forks, Options};
use crate::rest::Worker;
use crate::shared::Shared;
use crate::spec::{ClockSpec, EventTypeSpec, SourceSpec};
use crate::storage::{Sink, Storage};
use crate::sync::lock;
use crate::sys::{self, ForkGuard};
use crate::thread;
use crate::thread_streams;
use crate::trigger::signal_fires;
use crate::writer::{Settings, Writer};

/// How long `finish` waits for a thread that was stopped in the middle of a raise.
const SETTLE_TIME: Duration = Duration::from_secs(1);

/// How long a second `finish` waits for the first.
const LONGEST_FINISH: Duration = Duration::from_secs(60);

/// A recording that is being written, and the thread that writes it.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) shared: Arc<Shared>,
    pub(crate) path: PathBuf,
    pub(crate) not_kill_safe: Option<String>,
    stop: Arc<AtomicBool>,
    /// The process that may finish the recording.
    pub(crate) pid: u32,
    writer: Mutex<Option<JoinHandle<()>>>,
    /// Called before the recording is finished.
    before_finish: Mutex<Vec<fn()>>,
}

/// A recorder that process exit must finish, and the next one.
struct Running {
    session: Weak<Session>,
    next: *mut Running,
}

/// The recorders that process exit must finish. Not a lock: in a forked child, it could be held by a thread that only the parent has.
static RUNNING: AtomicPtr<Running> = AtomicPtr::new(null_mut());

fn finish_at_exit(session: Weak<Session>) {
    let next = null_mut();
    let new = Box::into_raw(Box::new(Running { session, next }));
    let (order, seen) = (Ordering::AcqRel, Ordering::Acquire);
    let mut first = RUNNING.load(seen);
    loop {
        // SAFETY: made above, and no other thread has it yet.
        unsafe { (*new).next = first };
        match RUNNING.compare_exchange(first, new, order, seen) {
            Ok(_) => return,
            Err(now) => first = now,
        }
    }
}

extern "C" fn finish_all() {
    // A panic must not cross into the C library.
    let _ = std::panic::catch_unwind(|| {
        let mut next = RUNNING.swap(null_mut(), Ordering::AcqRel);
        while !next.is_null() {
            // SAFETY: made by `finish_at_exit`; the exchange above has taken the whole list.
            let running = unsafe { Box::from_raw(next) };
            next = running.next;
            if let Some(session) = running.session.upgrade() {
                session.finish();
            }
        }
    });
}

impl Session {
    /// Creates the recording, with `sink` between the recorder and its file, and starts the writer
    /// thread.
    pub(crate) fn start(
        options: &Options,
        sink: impl FnOnce(std::fs::File) -> std::io::Result<Box<dyn Sink>>,
    ) -> Result<Arc<Self>> {
        sys::without_size_signal(|| Self::start_quietly(options, sink))
    }

    fn start_quietly(
        options: &Options,
        sink: impl FnOnce(std::fs::File) -> std::io::Result<Box<dyn Sink>>,
    ) -> Result<Arc<Self>> {
        let directory = &options.directory;
        std::fs::create_dir_all(directory).map_err(in_file("create", directory))?;
        let host = sys::host_name();
        let pid = std::process::id();
        let run = options.run.clone();
        let run = run.unwrap_or_else(|| format!("{:x}-{pid}", unix_ns() / 1_000_000));
        let stem = format!("{}-{}-{pid}", file_name_part(&run), file_name_part(&host));
        let (file, path) = Storage::create_file(directory, &stem)
            .map_err(in_file("create a recording in", directory))?;
        let sink = sink(file).map_err(in_file("look at", &path));
        let mut live_path = None;
        let started = sink.and_then(|sink| {
            let id = RecordingId(sys::random_id());
            let (shared, not_kill_safe) = share(options, sink, &path, id)?;
            live_path = shared.memory.path().map(Path::to_owned);
            define_process(&shared, options, id, &run, &host)?;
            Self::run(options, shared, not_kill_safe, &path)
        });
        if started.is_err() {
            let _ = std::fs::remove_file(&path);
            let _ = live_path.map(std::fs::remove_file);
        }
        started
    }

    /// Begins to record, once everything that a recording starts with is defined.
    fn run(
        options: &Options,
        shared: Arc<Shared>,
        not_kill_safe: Option<String>,
        path: &Path,
    ) -> Result<Arc<Self>> {
        let live_directory = shared.memory.path().and_then(Path::parent);
        if live_directory.is_some() && live_directory != path.parent() {
            // From now on a kill costs nothing: the recording contains the path of its live file. On a full disk, readers find it
            // by its name.
            shared.flush_definitions();
            if let Some(why) = shared.storage_status.failure()
                && live_directory == Some(options.live_file_directory())
            {
                let error = std::io::Error::other(why.to_owned());
                return Err(in_file("write", path)(error));
            }
        }
        install_signals(options, &shared)?;
        let stop = Arc::new(AtomicBool::new(false));
        let writer = spawn_writer(options, &shared, &stop, path)?;
        let session = Arc::new(Self {
            shared,
            path: path.to_owned(),
            not_kill_safe,
            stop,
            pid: std::process::id(),
            writer: Mutex::new(Some(writer)),
            before_finish: Mutex::default(),
        });
        finish_at_exit(Arc::downgrade(&session));
        sys::on_process_exit(finish_all);
        Ok(session)
    }
}

/// Creates the recording's container, the live file and what the threads share. Returns it, and why
/// the live file could not be created.
fn share(
    options: &Options,
    sink: Box<dyn Sink>,
    path: &Path,
    id: RecordingId,
) -> Result<(Arc<Shared>, Option<String>)> {
    // Where there is no room for it, in memory, unless the user chose its place: without it, what a kill or a full disk costs would not be known.
    let in_memory = options
        .live_directory
        .is_none()
        .then(|| Path::new(IN_MEMORY));
    let directories = [options.live_file_directory()].into_iter().chain(in_memory);
    let live_paths: Vec<PathBuf> = directories
        .map(|directory| live_path(directory, path))
        .collect();
    let storage =
        Storage::start(sink, id, options.compression.level()).map_err(in_file("write", path))?;
    let division = Division::of(options.buffer_bytes, options.page_bytes);
    let (memory, failure) =
        LiveMemory::create(&live_paths, division).map_err(in_file("map memory for", path))?;
    let no_memory = "get memory that fork wipes, for";
    let guard = ForkGuard::new().map_err(in_file(no_memory, path))?;
    sys::register_barrier();
    thread_streams::prepare();
    thread_streams::release_finished();
    memory.write_header(LiveHeader {
        recording_id: id,
        boot_id: sys::boot_id(),
        pid: std::process::id(),
        process_start: process_start(),
        page_size: 0,
        page_count: 0,
        pages_offset: 0,
        slots_offset: 0,
        slot_count: 0,
        segment_count: 0,
        segments_offset: 0,
        definitions_offset: 0,
        definitions_capacity: 0,
        functions_offset: 0,
        function_count: 0,
    });
    let shared = Shared::new(guard, memory, storage, options).map_err(in_file(no_memory, path))?;
    Ok((Arc::new(shared), failure.map(|error| error.to_string())))
}

/// Installs handlers for the signals that triggers wait for, and for those that ask for all pages
/// to be written.
fn install_signals(options: &Options, shared: &Shared) -> Result<()> {
    for signal in shared.triggers.signals() {
        if !sys::handle_signal(signal, signal_fires) {
            return Err(RecorderError::Setting {
                setting: "a trigger",
                expected: "a signal that the program does not handle itself",
                found: format!("signal {signal}"),
            });
        }
    }
    for signal in &options.flush_signals {
        if !sys::is_ignored(*signal) && !sys::handle_signal(*signal, signal_fires) {
            return Err(RecorderError::Setting {
                setting: "ANNALS_FLUSH_SIGNAL",
                expected: "signals that the program does not handle itself",
                found: format!("signal {signal}"),
            });
        }
    }
    Ok(())
}

/// Starts the writer thread.
fn spawn_writer(
    options: &Options,
    shared: &Arc<Shared>,
    stop: &Arc<AtomicBool>,
    path: &Path,
) -> Result<JoinHandle<()>> {
    let settings = Settings::new(options, path.to_owned());
    let writer = Writer::new(Arc::clone(shared), Arc::clone(stop), settings);
    let builder = std::thread::Builder::new().name("annals-writer".to_owned());
    let worker = Worker::begin();
    let thread = sys::with_signals_blocked(|| {
        let shared = Arc::clone(shared);
        builder.spawn(move || {
            sys::yield_to_the_program();
            thread::record_nothing_here();
            let run = std::panic::AssertUnwindSafe(|| writer.run(&worker));
            if std::panic::catch_unwind(run).is_err() {
                shared.storage_status.fail("the writer thread panicked");
                let failed = &shared.status.has_storage_failed;
                failed.store(true, Ordering::Release);
            }
            shared.is_writer_gone.store(true, Ordering::Release);
            shared.snapshot_done.notify_all();
        })
    })
    .map_err(in_file("start the writer thread of", path))?;
    let _ = shared.writer.set(thread.thread().clone());
    Ok(thread)
}

impl Drop for Session {
    fn drop(&mut self) {
        if self.is_inherited() {
            // The thread is the parent's; its handle would detach one of this process.
            std::mem::forget(lock(&self.writer).take());
        }
    }
}

impl Session {
    /// Returns whether this is a forked child, and the recording its parent's.
    pub(crate) fn is_inherited(&self) -> bool {
        std::process::id() != self.pid
    }

    /// Has a function called before the recording is finished.
    pub(crate) fn before_finish(&self, call: fn()) {
        lock(&self.before_finish).push(call);
    }

    /// Calls the functions that must be called before the recording is finished.
    fn prepare(&self) {
        let calls = lock(&self.before_finish).clone();
        calls.into_iter().for_each(|call| call());
    }

    /// Finishes the recording: waits for threads that are in the middle of a raise, then for the
    /// writer.
    pub(crate) fn finish(&self) {
        let shared = &self.shared;
        if self.is_inherited() {
            return;
        }
        // Now, because losses can be counted only while events are recorded; and again when all events are there.
        self.prepare();
        shared.begin_to_finish();
        if !shared.guard.begin_to_finish() {
            // Another thread is at it, or was.
            let begun = Instant::now();
            while !shared.is_writer_gone.load(Ordering::Acquire) && begun.elapsed() < LONGEST_FINISH
            {
                sys::pause(Duration::from_millis(1));
            }
            return;
        }
        sys::barrier_in_all_threads();
        let deadline = Instant::now() + SETTLE_TIME;
        for stream in shared.streams.all() {
            let busy = shared.memory.slot(stream.slot).busy();
            while busy.load(Ordering::Acquire) != 0 && Instant::now() < deadline {
                std::thread::yield_now();
            }
        }
        while !shared.is_settled() && Instant::now() < deadline {
            std::thread::yield_now();
        }
        self.prepare();
        shared.guard.switch_off();
        self.stop.store(true, Ordering::Release);
        shared.wake_writer();
        if let Some(writer) = lock(&self.writer).take() {
            let _ = writer.join();
        }
    }
}

/// Defines what every recording starts with: the process, its clock, its source and the event types
/// of regions.
fn define_process(
    shared: &Shared,
    options: &Options,
    id: RecordingId,
    run: &str,
    host: &str,
) -> Result<()> {
    let definer = &mut Definer::lock(shared);
    definer.string("")?;
    let arguments = sys::arguments();
    let process = Process {
        id: PROCESS,
        recording_id: id,
        run: definer.string(run)?,
        host: definer.string(host)?,
        boot_id: sys::boot_id(),
        pid: std::process::id(),
        start_unix_ns: unix_ns(),
        start_reference_ns: reference_ns(),
        command: definer.string(&arguments.join(" "))?,
    };
    definer.add(Definition::Process(process))?;
    if let Some(rank) = options.rank {
        // A helper inherits the launcher's variables. If it initialises MPI, it is a rank all the same.
        if options.forked_from.is_some() || launcher::is_started_by(rank) {
            let rank = rank.to_string();
            definer.property(names::property::STARTED_BY_RANK, &rank)?;
        } else {
            let rank = Rank {
                process: PROCESS,
                rank,
                rank_count: options.rank_count,
                is_assigned: false,
            };
            definer.add(Definition::Rank(rank))?;
            launcher::pass_on(rank.rank);
        }
        if let Some(name) = &options.world {
            definer.world(name)?;
        }
    }
    if let Some(pid) = options.forked_from {
        definer.property(names::property::FORKED_FROM, &pid.to_string())?;
    }
    if options.forks == Forks::Follow {
        definer.property(names::property::FORKS, "follow")?;
    }
    // An absolute path, because a relative one is of no use elsewhere. Readers search next to the
    // recording first.
    let live_file = shared.memory.path().map(std::path::absolute);
    let live_file = live_file
        .and_then(std::result::Result::ok)
        .unwrap_or_default();
    let executable = std::env::current_exe().unwrap_or_default();
    let directory = std::env::current_dir().unwrap_or_default();
    let properties = [
        (
            "executable",
            annals_format::text_of(executable.as_os_str().as_encoded_bytes()).into_owned(),
        ),
        (
            "directory",
            annals_format::text_of(directory.as_os_str().as_encoded_bytes()).into_owned(),
        ),
        ("processors", sys::processors()),
        ("affinity", sys::affinity()),
        ("system", sys::kernel()),
        ("recorder", format!("annals {}", env!("CARGO_PKG_VERSION"))),
        (
            names::property::LIVE_FILE,
            live_file.to_string_lossy().into_owned(),
        ),
    ];
    for (key, value) in properties {
        definer.property(key, &value)?;
    }
    if let Ok(command) = std::env::var(RECORDED_BY) {
        definer.property(names::property::RECORDED_BY, &command)?;
    }
    definer.clock(&ClockSpec::of_recorder(options.clock))?;
    let threads = SourceSpec::ordered("threads").description("the program's threads");
    let source = definer.source(&threads)?;
    debug_assert_eq!(source, THREADS);
    for (name, role, description) in [
        ("enter", Role::Enter, "a region was entered"),
        ("leave", Role::Leave, "a region was left"),
    ] {
        let spec = EventTypeSpec::new(name)
            .description(description)
            .verbosity(Verbosity::UserBasic)
            .role(role)
            .reference(element::REGION, Reference::Region);
        definer.event_type(&spec, &<(RegionId,)>::schema())?;
    }
    Ok(())
}

/// Makes an I/O error an error about a file.
fn in_file(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> RecorderError {
    let path = path.to_owned();
    move |source| RecorderError::Io {
        action,
        path,
        source,
    }
}

fn file_name_part(text: &str) -> String {
    let safe = |c: char| {
        if c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-') {
            c
        } else {
            '_'
        }
    };
    let mut name: String = text.chars().map(safe).take(64).collect();
    if name.starts_with('.') {
        name.replace_range(..1, "_");
    }
    name
}

fn live_path(directory: &Path, recording: &Path) -> PathBuf {
    let mut name = recording
        .file_name()
        .map(std::ffi::OsStr::to_owned)
        .unwrap_or_default();
    name.push("-live");
    directory.join(name)
}

/// Returns the start of this process, as outside of time namespaces. Not cached: a forked child has a
/// different one.
fn process_start() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let offsets = std::fs::read_to_string("/proc/self/timens_offsets").unwrap_or_default();
    annals_format::host::process_start(&stat, &offsets).unwrap_or(0)
}
