//! Threads, forks and ends of every kind: the recording is complete, and its counts add up.
#![expect(unsafe_code, reason = "fork, exec and the ways to end a process")]

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

use annals_format::{Cause, Ended};
use annals_merger::Reader;
use annals_recorder::{ClockSpec, EventType, Options, Recorder, SourceSpec};

use annals_test_support::recorders::mark;
use annals_test_support::sums_by_type;

fn is_long() -> bool {
    std::env::var_os("ANNALS_LONG").is_some()
}

/// Runs a test in a separate process, because it measures the whole process. Returns true in that
/// process.
fn is_alone(test: &str) -> bool {
    const ALONE: &str = "ANNALS_ALONE";
    if std::env::var_os(ALONE).is_some() {
        return true;
    }
    let output = Command::new(std::env::current_exe().expect("this program"))
        .args([test, "--exact", "--nocapture", "--test-threads=1"])
        .env(ALONE, "1")
        .output()
        .expect("a child");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    false
}

/// Resident memory of this process, bytes, without that of mapped files: how much of the live file was touched so far
/// depends on how late the writer has been.
fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("the system tells");
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:"));
    let kib = line.and_then(|line| line.split_whitespace().next());
    let kib = kib.and_then(|kib| kib.parse::<u64>().ok());
    kib.expect("the system tells it") * 1024
}

#[test]
fn a_storm_of_threads_is_recorded_in_bounded_memory() {
    if !is_alone("a_storm_of_threads_is_recorded_in_bounded_memory") {
        return;
    }
    let threads: u64 = if is_long() { 100_000 } else { 10_000 };
    let scratch = tempfile::tempdir().expect("a directory");
    let recorder = Recorder::start(&Options::new(scratch.path())).expect("a recorder");
    let mark = mark(&recorder);
    let mut before = 0;
    for round in 0..threads / 8 {
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let (recorder, mark) = (&recorder, &mark);
                scope.spawn(move || {
                    for number in 0..3 {
                        recorder.raise(mark, (round * 24 + thread * 3 + number,));
                    }
                });
            }
        });
        if round == threads / 80 {
            before = resident_bytes();
        }
    }
    let grown = resident_bytes().saturating_sub(before);
    let status = recorder.finish();
    assert_eq!(status.free_pages, status.pages, "every page came back");
    eprintln!("{} bytes a thread", grown / threads);
    let sums = sums_by_type(&status.path)["mark"];
    assert_eq!(sums.raised, threads * 3);
    assert_eq!((sums.recorded, sums.dropped), (threads * 3, 0));
    let most = (2 << 20) + threads * 400;
    assert!(grown < most, "{grown} bytes for {threads} threads");
}

/// What a destructor of a thread's storage does, and how often it is still to be called.
struct AtEnd {
    recorder: Recorder,
    mark: EventType<(u64,)>,
    key: libc::pthread_key_t,
    rounds: u64,
}

unsafe extern "C" fn at_end(work: *mut std::ffi::c_void) {
    // SAFETY: what the thread has stored.
    let work = unsafe { &mut *work.cast::<AtEnd>() };
    work.recorder.raise(&work.mark, (work.rounds,));
    work.rounds -= 1;
    if work.rounds != 0 {
        // SAFETY: the key exists, and the value stays.
        unsafe { libc::pthread_setspecific(work.key, std::ptr::from_mut(work).cast()) };
    }
}

#[test]
fn events_of_destructors_of_a_threads_storage_are_recorded_up_to_the_last_round() {
    let scratch = tempfile::tempdir().expect("a directory");
    let recorder = Recorder::start(&Options::new(scratch.path())).expect("a recorder");
    let mark = mark(&recorder);
    // The recorder's key is the first one: in each round its destructor is called before.
    recorder.raise(&mark, (0,));
    let mut key = 0;
    // SAFETY: a place for a key, and a function that stays.
    let code = unsafe { libc::pthread_key_create(&raw mut key, Some(at_end)) };
    assert_eq!(code, 0);
    // 9: more rounds than the system has, which is 4.
    for rounds in [1, 2, 3, 4, 9] {
        let recorder = recorder.clone();
        let thread = std::thread::spawn(move || {
            recorder.raise(&mark, (0,));
            let work = AtEnd {
                recorder,
                mark,
                key,
                rounds,
            };
            let work = Box::leak(Box::new(work));
            // SAFETY: the key exists, and the value stays.
            unsafe { libc::pthread_setspecific(key, std::ptr::from_mut(work).cast()) };
        });
        thread.join().expect("the thread ends");
    }
    let status = recorder.finish();
    let sums = sums_by_type(&status.path)["mark"];
    let called = 1 + 2 + 3 + 4 + 4;
    assert_eq!(sums.raised, 1 + 5 + called);
    // Two threads have a destructor in the last round.
    assert_eq!((sums.recorded, sums.dropped), (sums.raised - 2, 2));
    let opened = Reader::open(&status.path).expect("a recording");
    let outcome = opened.summary().expect("a recording");
    let rows = outcome.totals.iter().flat_map(|totals| &totals.rows);
    let ended = rows.map(|row| row.dropped.of(Cause::ThreadEnded));
    assert_eq!(ended.sum::<u64>(), 2);
}

#[test]
fn more_threads_than_pages_at_once_are_counted() {
    let scratch = tempfile::tempdir().expect("a directory");
    let mut options = Options::new(scratch.path());
    options.buffer_bytes = 1 << 20;
    let recorder = Recorder::start(&options).expect("a recorder");
    let mark = mark(&recorder);
    let threads = 2000;
    let barrier = std::sync::Barrier::new(threads);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            let thread = std::thread::Builder::new().stack_size(64 << 10);
            let (recorder, mark, barrier) = (&recorder, &mark, &barrier);
            let spawned = thread.spawn_scoped(scope, move || {
                recorder.raise(mark, (1,));
                barrier.wait();
                recorder.raise(mark, (2,));
            });
            spawned.expect("a thread");
        }
    });
    let status = recorder.finish();
    let sums = sums_by_type(&status.path)["mark"];
    assert_eq!(sums.raised, 2 * threads as u64);
    assert_eq!(sums.recorded + sums.dropped, sums.raised);
    assert!(sums.recorded > 0 && sums.dropped > 0);
}

#[test]
fn a_hundred_children_leave_their_parents_recording_alone_and_make_their_own() {
    let scratch = tempfile::tempdir().expect("a directory");
    let own = tempfile::tempdir().expect("a directory");
    let recorder = Recorder::start(&Options::new(scratch.path())).expect("a recorder");
    let mark = mark(&recorder);
    let stop = std::sync::atomic::AtomicBool::new(false);
    let raised = AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Forks come in the middle of this.
            while !stop.load(Ordering::Relaxed) {
                recorder.raise(&mark, (raised.fetch_add(1, Ordering::Relaxed),));
                if raised.load(Ordering::Relaxed).is_multiple_of(1000) {
                    std::thread::sleep(std::time::Duration::from_micros(100));
                }
            }
        });
        let mut children = Vec::new();
        for number in 0..100_u64 {
            recorder.raise(&mark, (raised.fetch_add(1, Ordering::Relaxed),));
            // SAFETY: the child allocates, which glibc makes safe after fork, and ends by `_exit`.
            let pid = unsafe { libc::fork() };
            if pid == 0 {
                let code = in_child(&recorder, &mark, number, own.path());
                // SAFETY: ends the child, whatever it holds.
                unsafe { libc::_exit(code) };
            }
            assert!(pid > 0, "a child");
            children.push(pid);
        }
        for pid in children {
            let mut status = 0;
            // SAFETY: the child is this process's.
            unsafe { libc::waitpid(pid, &raw mut status, 0) };
            assert_eq!(status, 0, "a child ended well");
        }
        stop.store(true, Ordering::Relaxed);
    });
    let status = recorder.finish();
    assert_eq!(status.raised_after_finish, 0);
    let parent = sums_by_type(&status.path)["mark"];
    assert_eq!(parent.raised, raised.load(Ordering::Relaxed));
    let opened = Reader::open(&status.path).expect("a recording");
    assert_eq!(opened.definitions().unrecorded_children(), 100);
    let files = std::fs::read_dir(own.path()).expect("a directory");
    let paths = files.flatten().map(|file| file.path());
    let recordings: Vec<_> = paths
        .filter(|path| path.extension().is_some_and(|e| e == "annals"))
        .collect();
    assert_eq!(recordings.len(), 100);
    for path in recordings {
        let own = sums_by_type(&path)["mark"];
        assert_eq!((own.raised, own.recorded), (10, 10));
    }
}

/// Runs in a forked child; returns its exit code.
fn in_child(
    parents: &Recorder,
    mark_of_parent: &EventType<(u64,)>,
    number: u64,
    own: &Path,
) -> i32 {
    for _ in 0..5 {
        parents.raise(mark_of_parent, (u64::MAX,));
    }
    if parents.status().raised_after_finish != 5 {
        return 2;
    }
    parents.finish();
    let mut options = Options::new(own);
    options.run = Some(format!("child-{number}"));
    let Ok(recorder) = Recorder::start(&options) else {
        return 3;
    };
    let mark = mark(&recorder);
    (0..10).for_each(|number| recorder.raise(&mark, (number,)));
    parents.raise(mark_of_parent, (u64::MAX,));
    recorder.finish();
    0
}

#[test]
fn two_recorders_of_one_process_keep_apart() {
    let scratch = tempfile::tempdir().expect("a directory");
    let start = || Recorder::start(&Options::new(scratch.path())).expect("a recorder");
    let (first, second) = (start(), start());
    let marks = [mark(&first), mark(&second)];
    for number in 0..1000 {
        first.raise(&marks[0], (number,));
        second.raise(&marks[1], (number,));
        if number % 2 == 0 {
            second.raise(&marks[1], (number,));
        }
        // Another recorder's event type is not recorded, and counted.
        first.raise(&marks[1], (number,));
    }
    let first = first.finish();
    let third = start();
    third.raise(&mark(&third), (0,));
    let (second, third) = (second.finish(), third.finish());
    assert_eq!(first.misused, 1000);
    assert_eq!(sums_by_type(&first.path)["mark"].recorded, 1000);
    assert_eq!(sums_by_type(&second.path)["mark"].recorded, 1500);
    assert_eq!(sums_by_type(&third.path)["mark"].recorded, 1);
}

#[test]
fn recorders_that_come_and_go_give_their_memory_back() {
    if !is_alone("recorders_that_come_and_go_give_their_memory_back") {
        return;
    }
    let scratch = tempfile::tempdir().expect("a directory");
    let one = || {
        let recorder = Recorder::start(&Options::new(scratch.path())).expect("a recorder");
        recorder.raise(&mark(&recorder), (1,));
        recorder.finish();
    };
    (0..5).for_each(|_| one());
    let before = resident_bytes();
    (0..20).for_each(|_| one());
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < 40 << 20, "{grown} bytes for 20 recorders of 16 MiB");
}

#[test]
fn a_finished_recorder_lets_go_of_its_live_file_and_keeps_its_counters() {
    let scratch = tempfile::tempdir().expect("a directory");
    let recorder = Recorder::start(&Options::new(scratch.path())).expect("a recorder");
    let mark = mark(&recorder);
    let mapped = || {
        let maps = std::fs::read_to_string("/proc/self/maps").expect("the system tells");
        let of_this = |line: &&str| line.contains(scratch.path().to_str().expect("a plain path"));
        maps.lines().filter(of_this).count()
    };
    for number in 0..1000 {
        recorder.raise(&mark, (number,));
    }
    assert!(mapped() > 0, "it records into a mapped file");
    recorder.finish();
    assert_eq!(mapped(), 0, "the file is removed");
    recorder.raise(&mark, (1000,));
    let status = recorder.status();
    assert_eq!((status.raised, status.raised_after_finish), (1000, 1));
}

const ENDING: &str = "ANNALS_ENDING_CHILD";

/// Not a separate test: a process that records and ends in one of several ways.
#[test]
fn child() {
    let Ok(task) = std::env::var(ENDING) else {
        return;
    };
    let (how, directory) = task.split_once(' ').expect("a way and a directory");
    let recorder = Recorder::start(&Options::new(directory)).expect("a recorder");
    let mark = mark(&recorder);
    (0..1000).for_each(|number| recorder.raise(&mark, (number,)));
    match how {
        "exit" => std::process::exit(0),
        // SAFETY: ends the process.
        "_exit" => unsafe { libc::_exit(0) },
        "abort" => std::process::abort(),
        "exit-in-thread" => {
            let thread = std::thread::spawn(|| std::process::exit(0));
            let _ = thread.join();
        }
        "panic" => {
            let _region = recorder.region(recorder.add_region("dies").expect("a region"));
            panic!("on purpose");
        }
        "exec" => {
            let error = Command::new("true").exec();
            panic!("{error}");
        }
        "kill" => {
            // SAFETY: ends the process.
            unsafe { libc::raise(libc::SIGKILL) };
        }
        other => panic!("no way to end is called {other}"),
    }
}

#[test]
fn however_a_process_ends_its_committed_events_are_there() {
    for (how, ended) in [
        ("exit", Ended::Finished),
        ("exit-in-thread", Ended::Finished),
        ("panic", Ended::Finished),
        ("_exit", Ended::Killed),
        ("abort", Ended::Killed),
        ("exec", Ended::Killed),
        ("kill", Ended::Killed),
    ] {
        let scratch = tempfile::tempdir().expect("a directory");
        let task = format!("{how} {}", scratch.path().display());
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .args(["child", "--exact", "--nocapture", "--test-threads=1"])
            .env(ENDING, task)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("a child");
        child.wait().expect("a child");
        let opened = Reader::open(scratch.path()).expect("a recording");
        let ends = opened.definitions().process_ends.values();
        let ends: Vec<Ended> = ends.map(|end| end.ended).collect();
        assert_eq!(ends, [ended], "{how}");
        let sums = sums_by_type(scratch.path())["mark"];
        assert_eq!((sums.raised, sums.recorded), (1000, 1000), "{how}");
    }
}

#[test]
fn a_panic_in_a_programs_own_clock_costs_that_event() {
    let scratch = tempfile::tempdir().expect("a directory");
    let recorder = Recorder::start(&Options::new(scratch.path())).expect("a recorder");
    static READS: AtomicU64 = AtomicU64::new(0);
    static PANICS: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);
    let clock = ClockSpec::readable("moody", 1_000_000_000, || {
        assert!(!PANICS.load(Ordering::Relaxed), "on purpose");
        READS.fetch_add(1, Ordering::Relaxed)
    });
    let clock = recorder.add_clock(&clock).expect("a clock");
    let source = SourceSpec::unordered("moody").clock(clock);
    let source = recorder.add_source(&source).expect("a source");
    let mark = mark(&recorder);
    recorder.raise_on(source, &mark, (1,));
    PANICS.store(true, Ordering::Relaxed);
    let raise = std::panic::AssertUnwindSafe(|| recorder.raise_on(source, &mark, (2,)));
    assert!(std::panic::catch_unwind(raise).is_err());
    PANICS.store(false, Ordering::Relaxed);
    recorder.raise_on(source, &mark, (3,));
    let status = recorder.finish();
    assert_eq!(sums_by_type(&status.path)["mark"].recorded, 2);
}

#[test]
fn the_output_directory_may_go_away() {
    let scratch = tempfile::tempdir().expect("a directory");
    let directory = scratch.path().join("run");
    let mut options = Options::new(&directory);
    options.buffer_bytes = 256 << 10;
    options.page_bytes = Some(4096);
    options.calibration_period = std::time::Duration::from_millis(5);
    let recorder = Recorder::start(&options).expect("a recorder");
    let mark = mark(&recorder);
    recorder.raise(&mark, (0,));
    std::fs::remove_dir_all(&directory).expect("the directory is removed");
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while recorder.status().storage_failure.is_none() {
        assert!(std::time::Instant::now() < deadline, "the recorder notices");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    (0..100_000).for_each(|number| recorder.raise(&mark, (number,)));
    let status = recorder.finish();
    assert!(
        status
            .storage_failure
            .is_some_and(|why| why.contains("removed"))
    );
    assert!(status.dropped > 0 && status.raised == 100_001);
}

#[test]
fn a_file_size_limit_is_a_full_disk() {
    let scratch = tempfile::tempdir().expect("a directory");
    let task = format!("limited {}", scratch.path().display());
    let output = Command::new(std::env::current_exe().expect("this program"))
        .args(["limited", "--exact", "--nocapture", "--test-threads=1"])
        .env(LIMITED, task)
        .output()
        .expect("a child");
    assert!(output.status.success(), "{output:?}");
    let sums = sums_by_type(scratch.path())["mark"];
    assert_eq!(sums.raised, 300_000);
    assert_eq!(sums.recorded + sums.dropped, 300_000);
    assert!(sums.recorded > 0 && sums.dropped > 0);
}

const LIMITED: &str = "ANNALS_LIMITED_CHILD";

/// Not a separate test: a process that may write at most 600 kB to a file.
#[test]
fn limited() {
    let Ok(task) = std::env::var(LIMITED) else {
        return;
    };
    let directory = task.split_once(' ').expect("a directory").1;
    let mut options = Options::new(directory);
    options.buffer_bytes = 256 << 10;
    options.page_bytes = Some(4096);
    options.compression = annals_recorder::CompressionLevel::None.into();
    let recorder = Recorder::start(&options).expect("a recorder");
    let limit = libc::rlimit {
        rlim_cur: 600_000,
        rlim_max: 600_000,
    };
    // SAFETY: the limit is initialised; the signal that the system sends at the limit is ignored.
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
        libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit);
    }
    let mark = mark(&recorder);
    for number in 0..300_000 {
        recorder.raise(&mark, (number,));
        if number % 500 == 0 {
            std::thread::sleep(std::time::Duration::from_micros(200));
        }
    }
    let status = recorder.finish();
    assert!(status.storage_failure.is_some(), "{status:?}");
}

#[test]
fn a_descriptor_that_the_program_closes_costs_events_and_none_of_its_files() {
    use std::os::fd::AsRawFd;
    if !is_alone("a_descriptor_that_the_program_closes_costs_events_and_none_of_its_files") {
        return;
    }
    for takes_it_again in [false, true] {
        let scratch = tempfile::tempdir().expect("a directory");
        let directory = scratch.path().join("run");
        let mut options = Options::new(&directory);
        options.buffer_bytes = 256 << 10;
        options.page_bytes = Some(4096);
        let recorder = Recorder::start(&options).expect("a recorder");
        let mark = mark(&recorder);
        (0..5_000).for_each(|number| recorder.raise(&mark, (number,)));
        recorder.flush();
        let path = scratch.path().join("mine");
        std::fs::write(&path, b"mine").expect("a file");
        let file = std::fs::File::options().write(true).open(&path);
        let file = file.expect("a file");
        let is_recording = |number: &i32| {
            let link = std::fs::read_link(format!("/proc/self/fd/{number}"));
            link.is_ok_and(|link| link.starts_with(&directory))
        };
        // The writer thread opens the recording when it has something to write.
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
        let mut numbers: Vec<i32> = Vec::new();
        while numbers.is_empty() && std::time::Instant::now() < deadline {
            let descriptors = std::fs::read_dir("/proc/self/fd").expect("the descriptors");
            let names = descriptors.flatten().map(|entry| entry.file_name());
            let all = names.filter_map(|name| name.to_str()?.parse().ok());
            numbers = all.filter(is_recording).collect();
        }
        let links = || -> Vec<_> {
            let descriptors = std::fs::read_dir("/proc/self/fd").expect("the descriptors");
            let paths = descriptors.flatten().map(|entry| entry.path());
            paths.map(std::fs::read_link).collect()
        };
        assert_eq!(
            numbers.len(),
            1,
            "the recording is open, once: {:?}",
            links()
        );
        if takes_it_again {
            // SAFETY: the number is the recording's; the recorder notices the replacement.
            unsafe { libc::dup2(file.as_raw_fd(), numbers[0]) };
        } else {
            // SAFETY: the number is the recording's; the recorder notices that it is closed.
            unsafe { libc::close(numbers[0]) };
        }
        for number in 0..100_000 {
            recorder.raise(&mark, (number,));
            if number % 500 == 0 {
                std::thread::sleep(std::time::Duration::from_micros(200));
            }
        }
        let status = recorder.finish();
        drop(recorder);
        let why = status.storage_failure.expect("the recorder tells");
        assert!(why.contains("closed"), "{why}");
        let sums = sums_by_type(&directory)["mark"];
        assert_eq!(sums.raised, 105_000);
        assert_eq!(sums.recorded + sums.dropped, 105_000);
        assert!(sums.recorded > 5_000 && sums.dropped > 0);
        assert_eq!(std::fs::read(&path).expect("the file"), b"mine");
        if takes_it_again {
            // SAFETY: the call asks for flags.
            let flags = unsafe { libc::fcntl(numbers[0], libc::F_GETFD) };
            assert!(flags >= 0, "it is open");
            // SAFETY: the descriptor is this test's.
            unsafe { libc::close(numbers[0]) };
        }
    }
}

#[test]
fn a_file_system_that_is_full_is_counted() {
    let scratch = tempfile::tempdir().expect("a directory");
    // A file system of 2 MiB that only this process sees; the recording stays in it as long as that runs.
    let small = r#"mount -t tmpfs -o size=2m tmpfs "$1" || exit 77
        if [ -n "$3" ]; then mount -t tmpfs -o size=64k tmpfs /dev/shm || exit 77; fi
        cd / && "$2" on_a_small_disk --exact --nocapture --test-threads=1"#;
    for (buffer, memory) in [("small", ""), ("large", ""), ("large", "small")] {
        let output = Command::new("unshare")
            .args(["--mount", "--map-root-user", "bash", "-c", small, "bash"])
            .arg(scratch.path())
            .arg(std::env::current_exe().expect("this program"))
            .arg(memory)
            .env(
                SMALL,
                format!("{buffer}{memory} {}", scratch.path().display()),
            )
            .output()
            .expect("unshare runs");
        let said = String::from_utf8_lossy(&output.stderr);
        if output.status.code() == Some(77) || said.starts_with("unshare: ") {
            eprintln!("NOT TESTED: a full file system (none can be mounted here): {said}");
            return;
        }
        assert!(output.status.success(), "{output:?}");
    }
}

const SMALL: &str = "ANNALS_CHILD_ON_A_SMALL_DISK";

/// Not a separate test: a process whose disk gets full, with and without room for the live file there and in memory.
#[test]
fn on_a_small_disk() {
    let Ok(task) = std::env::var(SMALL) else {
        return;
    };
    let (buffer, directory) = task.split_once(' ').expect("a buffer and a directory");
    // The large one does not fit onto the disk: it is in memory, unless that is full, too.
    let is_safe = buffer != "largesmall";
    let directory = Path::new(directory).join("run");
    let mut options = Options::new(&directory);
    options.buffer_bytes = if buffer == "small" {
        256 << 10
    } else {
        4 << 20
    };
    options.page_bytes = Some(4096);
    options.compression = annals_recorder::CompressionLevel::None.into();
    let recorder = Recorder::start(&options).expect("a recorder");
    let mark = mark(&recorder);
    for number in 0..1_500_000 {
        recorder.raise(&mark, (number << 30,));
        if number % 500 == 0 {
            std::thread::sleep(std::time::Duration::from_micros(100));
        }
    }
    let status = recorder.finish();
    assert_eq!(status.not_kill_safe.is_none(), is_safe, "{status:?}");
    let why = status.storage_failure.as_deref().expect("the disk is full");
    assert!(why.contains("No space left"), "{why}");
    assert_eq!(status.raised, 1_500_000);
    assert!(status.dropped > 0, "{status:?}");
    let sums = sums_by_type(&directory)["mark"];
    assert!(sums.recorded > 0, "{sums:?}");
    if is_safe {
        assert_eq!(sums.raised, 1_500_000);
        assert_eq!(sums.recorded + sums.dropped, 1_500_000);
        assert!(sums.dropped > 0);
    } else {
        // What is not on the disk is counted by the recorder alone.
        assert_eq!(sums.recorded + status.dropped, 1_500_000);
    }
    let name = status.path.file_name().expect("a name").to_string_lossy();
    let live = format!("/dev/shm/{name}-live");
    let is_in_memory = Path::new(&live).exists();
    assert_eq!(is_in_memory, buffer == "large", "{live}");
    // A merge removes it, also where there is no room to write what it has elsewhere.
    let removed = annals_merger::remove_live_file_in_memory(&status.path);
    assert_eq!(removed.ok(), Some(is_in_memory));
    assert!(!Path::new(&live).exists(), "{live}");
}

#[test]
fn a_start_that_fails_leaves_nothing_behind() {
    let scratch = tempfile::tempdir().expect("a directory");
    let mut options = Options::new(scratch.path());
    // The signal has a handler of the program's own.
    // SAFETY: ignoring a signal touches nothing else.
    unsafe { libc::signal(libc::SIGUSR1, libc::SIG_IGN) };
    options.triggers = vec!["signal SIGUSR1".parse().expect("a trigger")];
    let error = Recorder::start(&options).expect_err("no recorder");
    assert!(error.to_string().contains("signal 10"), "{error}");
    let left = std::fs::read_dir(scratch.path()).expect("a directory");
    assert_eq!(left.count(), 0);
}
