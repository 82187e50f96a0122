//! A process that is killed after any of its instructions leaves everything that was acknowledged.
//!
//! The child is stepped by its parent, one instruction at a time: through events, switches of pages, definitions, the ends
//! of threads and of the recording, and through the writer's work, in turns that are drawn at random. After each
//! instruction that changed the files, what a SIGKILL would leave there is recovered and compared with what was
//! acknowledged to the child's threads. `ANNALS_STEPS` sets the number of children (default 1); with `ANNALS_LONG=1`
//! there are 20, and the end of the recording, which is met at its system calls otherwise, is stepped as well.
#![expect(unsafe_code, reason = "ptrace, and a look at mapped files")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use annals_format::{CompressionLevel, LiveImage, ReadAt, Recording, StreamId, Value};
use annals_recorder::{EventTypeSpec, Options, Overflow, Recorder, Text};
use annals_test_support::page::{SharedPage, map};

const CHILD: &str = "ANNALS_STEPPED_CHILD";
/// Words of the shared page: acknowledged events of each thread; then event types.
const THREADS: usize = 2;
const TYPES: usize = THREADS;
/// Events of one thread between two marks: more than two pages hold, as long as they are.
const EVENTS: u64 = 50;
const TEXT: [u8; 180] = [b'.'; 180];
/// If no stepped thread makes progress for this time, they wait for a thread that is stopped.
const STANDSTILL: Duration = Duration::from_secs(1);
/// A part takes seconds; one that takes longer hangs.
const LONGEST_PART: Duration = Duration::from_secs(600);

/// Signals the parent that a part of the script begins; the parent suppresses the signal.
fn mark() {
    // SAFETY: a signal to this thread.
    unsafe { libc::raise(libc::SIGUSR1) };
}

/// Not a separate test: what the stepped process runs, a part after each mark.
#[test]
fn child() {
    let Ok(task) = std::env::var(CHILD) else {
        return;
    };
    let (policy, directory) = task.split_once(' ').expect("a policy and a directory");
    let directory = Path::new(directory);
    let acknowledged = SharedPage::open(&directory.join("acknowledged"));
    let told = |number: usize, count: u64| {
        acknowledged.tell(number, count);
    };
    mark();
    let mut options = Options::new(directory.join("recordings"));
    options.buffer_bytes = 64 << 10;
    options.page_bytes = Some(4096);
    options.calibration_period = std::time::Duration::from_secs(60);
    options.compression = CompressionLevel::None.into();
    if policy == "overwrite" {
        options.overflow = Overflow::Overwrite;
    }
    let recorder = Recorder::start(&options).expect("a recorder");
    let add_type = |number: usize| {
        let spec = EventTypeSpec::new(format!("mark {number}"));
        let spec = spec.element("thread").element("number").element("text");
        let added = recorder.add_event_type::<(u32, u64, Text)>(&spec);
        told(TYPES, number as u64 + 1);
        added.expect("an event type")
    };
    let first = add_type(0);
    let raise = |thread: usize, from: u64| {
        for number in from..from + EVENTS {
            recorder.raise(&first, (thread as u32, number, &TEXT));
            told(thread, number + 1);
        }
    };
    mark();
    // One thread alone: its events, and pages that the writer has not processed yet.
    raise(0, 0);
    mark();
    // In turns with the writer: definitions, and as many events again.
    let second = add_type(1);
    recorder.raise(&second, (0, EVENTS, &TEXT));
    told(0, EVENTS + 1);
    raise(0, EVENTS + 1);
    mark();
    // A second thread starts and ends.
    std::thread::scope(|scope| {
        scope.spawn(|| raise(1, 0));
    });
    mark();
    recorder.finish();
    mark();
}

/// State of a thread of the child.
#[derive(Clone, Copy, PartialEq, Debug)]
enum State {
    Stopped,
    /// It has been let go for one instruction, and is in a system call that takes its time.
    Stepping,
    Running,
}

/// What a stop was for.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Stop {
    Step,
    Mark,
    /// It made a thread.
    Cloned,
    Other,
    Gone,
}

struct Traced {
    child: Child,
    threads: BTreeMap<i32, State>,
    /// Length of a step: to the next instruction, or to the next edge of a system call.
    step: libc::c_uint,
    /// Threads that were there before the ones that are to be stepped.
    known: BTreeSet<i32>,
    is_gone: bool,
}

fn ptrace(request: libc::c_uint, thread: i32, data: usize) {
    // SAFETY: the data of the only request that has memory written is the address of a word.
    let outcome = unsafe { libc::ptrace(request, thread, 0_usize, data) };
    let error = std::io::Error::last_os_error();
    // A thread that is killed meanwhile is gone.
    let is_fine = outcome == 0 || error.raw_os_error() == Some(libc::ESRCH);
    assert!(is_fine, "ptrace {request} of {thread}: {error}");
}

impl Traced {
    fn spawn(policy: &str, directory: &Path) -> Self {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command
            .args(["child", "--exact", "--nocapture", "--test-threads=1"])
            .env(CHILD, format!("{policy} {}", directory.display()))
            .stdout(Stdio::null())
            .stderr(Stdio::inherit());
        // SAFETY: one system call, in the child.
        unsafe {
            command.pre_exec(
                || match libc::ptrace(libc::PTRACE_TRACEME, 0, 0_usize, 0_usize) {
                    0 => Ok(()),
                    _ => Err(std::io::Error::last_os_error()),
                },
            );
        }
        let child = command.spawn().expect("a child that can be traced");
        let pid = child.id() as i32;
        let mut traced = Self {
            child,
            threads: BTreeMap::new(),
            step: libc::PTRACE_SINGLESTEP,
            known: BTreeSet::new(),
            is_gone: false,
        };
        // The child is stopped after its `exec`.
        let (thread, _) = traced.wait(pid, 0).expect("the child starts");
        assert_eq!(thread, pid);
        let options = libc::PTRACE_O_TRACECLONE | libc::PTRACE_O_EXITKILL;
        ptrace(libc::PTRACE_SETOPTIONS, pid, options as usize);
        traced
    }

    /// Waits for a stop of a thread, or of any (-1); none when there is none yet and waiting is not wanted.
    fn wait(&mut self, thread: i32, flags: i32) -> Option<(i32, Stop)> {
        let mut status = 0;
        let flags = flags | libc::__WALL | libc::__WNOTHREAD;
        // SAFETY: the call writes the status.
        let found = unsafe { libc::waitpid(thread, &raw mut status, flags) };
        if found == 0 {
            return None;
        }
        if found < 0 {
            self.is_gone = true;
            return Some((thread, Stop::Gone));
        }
        if !libc::WIFSTOPPED(status) {
            self.threads.remove(&found);
            self.is_gone |= found == self.child.id() as i32;
            return Some((found, Stop::Gone));
        }
        self.threads.insert(found, State::Stopped);
        let stop = match (libc::WSTOPSIG(status), status >> 16) {
            (libc::SIGTRAP, 0) => Stop::Step,
            (libc::SIGUSR1, 0) => Stop::Mark,
            (libc::SIGTRAP, libc::PTRACE_EVENT_CLONE) => {
                let mut new: libc::c_ulong = 0;
                ptrace(libc::PTRACE_GETEVENTMSG, found, (&raw mut new).addr());
                // Its first stop may have been reported already.
                self.threads.entry(new as i32).or_insert(State::Running);
                Stop::Cloned
            }
            // A thread's first stop, or one that was asked for.
            (libc::SIGSTOP, _) => Stop::Other,
            (signal, _) => panic!("the child gets signal {signal}"),
        };
        Some((found, stop))
    }

    /// Runs all threads until one of them makes a mark, and stops them all; returns that thread.
    fn run_to_mark(&mut self) -> i32 {
        let marked = loop {
            let stopped: Vec<i32> = self
                .threads
                .iter()
                .filter(|(_, state)| **state == State::Stopped)
                .map(|(thread, _)| *thread)
                .collect();
            for thread in stopped {
                ptrace(libc::PTRACE_CONT, thread, 0);
                self.threads.insert(thread, State::Running);
            }
            let (thread, stop) = self.wait(-1, 0).expect("a stop");
            assert!(!self.is_gone, "the child makes its marks");
            if stop == Stop::Mark {
                break thread;
            }
        };
        let pid = self.child.id() as i32;
        let others: Vec<i32> = self
            .threads
            .iter()
            .filter(|(_, state)| **state != State::Stopped)
            .map(|(thread, _)| *thread)
            .collect();
        for thread in others {
            // SAFETY: a signal to a thread of the child's.
            unsafe { libc::syscall(libc::SYS_tgkill, pid, thread, libc::SIGSTOP) };
            self.wait(thread, 0);
        }
        marked
    }

    /// Threads that were made since some were.
    fn made_since(&self, before: &BTreeSet<i32>) -> Vec<i32> {
        let threads = self.threads.keys();
        threads
            .filter(|new| !before.contains(new))
            .copied()
            .collect()
    }

    /// Describes the state of each thread, to explain why they make no progress.
    fn tell(&self) -> String {
        let mut told = String::from("the threads do not get on:");
        for (thread, state) in &self.threads {
            let path = format!("/proc/{}/task/{thread}/syscall", self.child.id());
            let at = std::fs::read_to_string(path).unwrap_or_default();
            told += &format!(" {thread} {state:?} in system call {};", at.trim());
        }
        told
    }

    /// Steps one of these threads by one instruction: one that is not in a system call, if there is one. Returns the
    /// thread and its stop.
    fn step(&mut self, thread: i32) -> Option<(i32, Stop)> {
        if self.threads.get(&thread) == Some(&State::Stopped) {
            ptrace(self.step, thread, 0);
            self.threads.insert(thread, State::Stepping);
        }
        for _ in 0..200 {
            if let Some(stop) = self.wait(thread, libc::WNOHANG) {
                return Some(stop);
            }
            std::hint::spin_loop();
        }
        None
    }
}

impl Drop for Traced {
    fn drop(&mut self) {
        let _ = self.child.kill();
        while !self.is_gone {
            self.wait(-1, 0);
        }
    }
}

/// What is on the disk.
#[derive(Default)]
struct Disk {
    directory: PathBuf,
    recording: Option<(PathBuf, File)>,
    live: Option<(PathBuf, File, *const u8, usize)>,
    /// The last states that were read.
    length: u64,
    seen: Vec<u8>,
    has_live: bool,
}

impl Disk {
    /// Returns whether the files are others than at the last look.
    fn has_changed(&mut self) -> bool {
        if self.recording.is_none() || self.live.is_none() {
            self.find();
        }
        let length = self
            .recording
            .as_ref()
            .map_or(0, |(_, file)| file.metadata().expect("the recording").len());
        let mut has_changed = std::mem::replace(&mut self.length, length) != length;
        if let Some((_, file, map, mapped)) = &self.live {
            let has_live = file.metadata().expect("the live file").nlink() != 0;
            has_changed |= std::mem::replace(&mut self.has_live, has_live) != has_live;
            // SAFETY: the mapping stays, and the file keeps its length; every thread that could change it is stopped, or in
            // a system call that does not.
            let live = unsafe { std::slice::from_raw_parts(*map, *mapped) };
            if self.seen != live {
                self.seen.clear();
                self.seen.extend_from_slice(live);
                has_changed = true;
            }
        }
        has_changed
    }

    fn find(&mut self) {
        let Ok(entries) = std::fs::read_dir(&self.directory) else {
            return;
        };
        for path in entries.map(|entry| entry.expect("an entry").path()) {
            let extension = path.extension().and_then(|e| e.to_str()).unwrap_or("");
            if extension == "annals" && self.recording.is_none() {
                let file = File::open(&path).expect("the recording");
                self.recording = Some((path, file));
            } else if extension == "annals-live" && self.live.is_none() {
                let file = File::open(&path).expect("the live file");
                let length = file.metadata().expect("the live file").len() as usize;
                // It has its full length before anything is in it.
                if length > 4096 {
                    let map = map(&file, length, libc::PROT_READ);
                    self.live = Some((path, file, map, length));
                }
            }
        }
    }

    fn read(&self) -> Option<Recording> {
        let (path, _) = self.recording.as_ref()?;
        let file = std::fs::read(path).expect("the recording");
        let live = self.has_live.then(|| LiveImage::read(&self.seen).ok());
        Recording::read(&file, live.flatten(), |_| false).ok()
    }
}

/// Returns the events of a recording by stream: the threads that raised them, and their numbers.
fn events(recording: &Recording, file: &dyn ReadAt) -> BTreeMap<StreamId, Vec<(u32, u64)>> {
    let mut events: BTreeMap<StreamId, Vec<(u32, u64)>> = BTreeMap::new();
    for (stream, contents) in &recording.streams {
        for stored in &contents.chunks {
            let chunk = recording.load(file, stored).expect("a chunk");
            for row in chunk.rows() {
                let (Value::U32(thread), Value::U64(number)) = (row.value(0), row.value(1)) else {
                    panic!("the elements of a mark");
                };
                events.entry(*stream).or_default().push((thread, number));
            }
        }
    }
    events
}

type Rows = Vec<(u64, u64, u64)>;

/// Raised, recorded and dropped by stream and event type.
fn rows(recording: &Recording) -> BTreeMap<StreamId, Rows> {
    let streams = recording.streams.iter();
    let rows = streams.map(|(stream, contents)| {
        let rows = contents.totals.rows.iter();
        let rows = rows.map(|row| {
            assert!(row.is_balanced(), "{row:?}");
            assert_eq!((row.skipped, row.truncated), (0, 0), "{row:?}");
            (row.raised, row.recorded, row.dropped_sum())
        });
        (*stream, rows.filter(|row| *row != (0, 0, 0)).collect())
    });
    rows.filter(|(_, rows): &(_, Rows)| !rows.is_empty())
        .collect()
}

/// What a kill at this instant leaves, against what the child's threads know.
fn check(disk: &Disk, acknowledged: &SharedPage) {
    let known = |number: usize| acknowledged.get(number);
    let Some(recording) = disk.read() else {
        assert_eq!(known(TYPES), 0, "a recording that has begun is read");
        return;
    };
    assert!(recording.problems.is_empty(), "{:?}", recording.problems);
    let names = recording.definitions.event_types.values();
    let names: BTreeSet<&str> = names
        .map(|event_type| recording.definitions.string(event_type.name))
        .collect();
    for number in 0..known(TYPES) {
        assert!(names.contains(&*format!("mark {number}")), "{names:?}");
    }
    let path = &disk.recording.as_ref().expect("the recording").0;
    let file = std::fs::read(path).expect("the recording");
    let found = events(&recording, &file);
    let counts = rows(&recording);
    let mut raised = 0;
    for (stream, rows) in &counts {
        let recorded: u64 = rows.iter().map(|row| row.1).sum();
        let events = found.get(stream).map_or(&[][..], Vec::as_slice);
        assert_eq!(recorded, events.len() as u64, "stream {stream:?}");
        assert!(
            events.is_sorted_by(|a, b| a.0 == b.0 && a.1 < b.1),
            "in order, nothing twice"
        );
        let of_stream: u64 = rows.iter().map(|row| row.0).sum();
        raised += of_stream;
        if let Some((thread, _)) = events.first() {
            let told = known(*thread as usize);
            assert!(
                told <= of_stream && of_stream <= told + 1,
                "thread {thread} was told of {told}, and {of_stream} are there"
            );
        }
    }
    let told: u64 = (0..THREADS).map(known).sum();
    assert!(
        told <= raised && raised <= told + THREADS as u64,
        "the threads were told of {told}, and {raised} are there"
    );

    // One clean recording of both.
    let recovery = recording.recover(&file, CompressionLevel::None);
    let Some(recovery) = recovery.expect("a recovery") else {
        assert!(recording.has_footer || !disk.has_live);
        return;
    };
    let mut whole = file[..recovery.kept as usize].to_vec();
    whole.extend_from_slice(&recovery.bytes);
    let again = Recording::read(&whole, None, |_| false).expect("a recording");
    assert!(again.has_footer);
    assert_eq!(events(&again, &whole), found);
    assert_eq!(rows(&again), counts);
}

/// Random numbers (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

/// Steps these threads, and those they make, in turns until one of them makes a mark, or they have ended. Returns how
/// many instructions were made, and how many of them changed the files.
///
/// A stopped thread may hold what these wait for, such as a lock of the C library: when none of them makes progress,
/// the stopped ones are stepped, too.
fn step_to_mark(
    traced: &mut Traced,
    mut stepped: Vec<i32>,
    disk: &mut Disk,
    acknowledged: &SharedPage,
    random: &mut Random,
) -> (u64, u64) {
    let (mut instructions, mut changes) = (0, 0);
    let begun = Instant::now();
    let mut last_step = begun;
    loop {
        assert!(begun.elapsed() < LONGEST_PART, "{}", traced.tell());
        if last_step.elapsed() > STANDSTILL {
            let threads = traced.threads.iter();
            let stopped = threads.filter(|(_, state)| **state == State::Stopped);
            stepped.extend(stopped.map(|(thread, _)| *thread));
            stepped.sort_unstable();
            stepped.dedup();
        }
        let thread = stepped[random.below(stepped.len() as u64) as usize];
        // Turns of one instruction, and of many.
        let turn = 1 << random.below(13);
        for _ in 0..turn {
            let Some((_, stop)) = traced.step(thread) else {
                // It waits for another one.
                break;
            };
            instructions += 1;
            last_step = Instant::now();
            if disk.has_changed() {
                changes += 1;
                check(disk, acknowledged);
            }
            if stop == Stop::Mark {
                return (instructions, changes);
            }
            if stop == Stop::Gone {
                stepped.retain(|other| *other != thread);
                if stepped.is_empty() {
                    return (instructions, changes);
                }
                break;
            }
            if stop == Stop::Cloned {
                // A thread was made: its first stop may still come.
                let threads = traced.threads.iter();
                let coming = threads.filter(|(thread, state)| {
                    **state == State::Running && !traced.known.contains(thread)
                });
                let coming: Vec<i32> = coming.map(|(thread, _)| *thread).collect();
                for thread in coming {
                    traced.wait(thread, 0);
                }
                stepped.extend(traced.made_since(&traced.known));
                traced.known.extend(&stepped);
            }
        }
    }
}

#[test]
fn a_kill_behind_any_instruction_loses_nothing_that_was_acknowledged() {
    let is_long = std::env::var_os("ANNALS_LONG").is_some();
    let children = match std::env::var("ANNALS_STEPS") {
        Ok(children) => children.parse().expect("a number"),
        Err(_) if is_long => 20,
        Err(_) => 1,
    };
    for number in 0..children {
        let policy = if number % 2 == 0 { "drop" } else { "overwrite" };
        let scratch = tempfile::tempdir().expect("a directory");
        let acknowledged = SharedPage::open(&scratch.path().join("acknowledged"));
        let mut random = Random(0x9e37_79b9_7f4a_7c15 ^ number);
        let mut traced = Traced::spawn(policy, scratch.path());
        let mut disk = Disk {
            directory: scratch.path().join("recordings"),
            ..Disk::default()
        };
        let main = traced.run_to_mark();
        let before: BTreeSet<i32> = traced.threads.keys().copied().collect();
        assert_eq!(traced.run_to_mark(), main);
        traced.known = traced.threads.keys().copied().collect();
        let mut new = traced.known.difference(&before);
        let writer = *new.next().expect("the writer's thread");
        let started = traced.known.clone();
        let mut sums = (0, 0);
        // At the end the main thread waits, in loops of many instructions: it is let go. The writer's work there
        // is met at its system calls.
        for mut threads in [
            vec![main],
            vec![main, writer],
            vec![main, writer],
            vec![writer],
        ] {
            if !threads.contains(&main) {
                ptrace(libc::PTRACE_CONT, main, 0);
                traced.threads.insert(main, State::Running);
                // Half a million instructions, most of them for the clocks.
                if !is_long {
                    traced.step = libc::PTRACE_SYSCALL;
                }
            }
            // One that was made in the part before may not have ended yet, and the end may wait for it.
            threads.extend(traced.made_since(&started));
            let (instructions, changes) =
                step_to_mark(&mut traced, threads, &mut disk, &acknowledged, &mut random);
            assert!(changes > 0, "the files change");
            eprintln!("{policy}: {instructions} instructions, {changes} changes");
            sums = (sums.0 + instructions, sums.1 + changes);
        }
        let recording = disk.read().expect("a recording");
        assert!(
            recording.has_footer && !disk.has_live,
            "the end was reached"
        );
    }
}
