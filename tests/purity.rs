//! The event path allocates nothing and makes no system call but at most one wake-up for each page.
#![expect(unsafe_code, reason = "an allocator that counts, and a signal handler")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicPtr, Ordering};

use annals_recorder::{EventType, EventTypeSpec, Metric, Options, Recorder, RegionId, Text};

struct Counting;

thread_local! {
    /// Allocations of this thread.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

fn count() {
    ALLOCATIONS.with(|count| count.set(count.get() + 1));
}

// SAFETY: the system's allocator does the work.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the arguments are passed on unchanged, under the caller's contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count();
        // SAFETY: the arguments are passed on unchanged, under the caller's contract.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: the arguments are passed on unchanged, under the caller's contract.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

struct Program {
    recorder: Recorder,
    region: RegionId,
    three: EventType<(u32, u32, u64)>,
    note: EventType<(Text, Option<f64>)>,
    load: Metric<i64>,
}

static PROGRAM: AtomicPtr<Program> = AtomicPtr::new(std::ptr::null_mut());

extern "C" fn handler(_: libc::c_int) {
    // SAFETY: set before the handler, and leaked.
    let program = unsafe { &*PROGRAM.load(Ordering::Acquire) };
    program.recorder.raise(&program.three, (7, 7, 7));
}

impl Program {
    fn start(directory: &Path) -> &'static Self {
        let mut options = Options::new(directory);
        options.page_bytes = Some(4096);
        let recorder = Recorder::start(&options).expect("a recorder");
        let three = EventTypeSpec::new("three")
            .element("a")
            .element("b")
            .element("c");
        let note = EventTypeSpec::new("note").element("text").element("value");
        let program = Box::leak(Box::new(Self {
            region: recorder.add_region("work").expect("a region"),
            three: recorder.add_event_type(&three).expect("an event type"),
            note: recorder.add_event_type(&note).expect("an event type"),
            load: recorder.add_metric("load", "").expect("a metric"),
            recorder,
        }));
        PROGRAM.store(program, Ordering::Release);
        // SAFETY: a complete action; the handler only records.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handler as *const () as libc::sighandler_t;
            libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut());
        }
        program
    }

    /// Fills some 200 pages.
    fn work(&self) {
        for number in 0..40_000_u32 {
            let _region = self.recorder.region(self.region);
            self.recorder.raise(&self.three, (number, 1 << 20, 1 << 40));
            self.recorder.metric(&self.load, -i64::from(number));
            if number % 16 == 0 {
                let value = (number % 32 == 0).then_some(0.5);
                self.recorder.raise(&self.note, (b"changed", value));
            }
        }
    }
}

#[test]
fn after_its_first_event_a_stream_allocates_nothing() {
    let scratch = tempfile::tempdir().expect("a directory");
    let program = Program::start(scratch.path());
    program.recorder.enter(program.region);
    program.recorder.leave(program.region);
    let free = program.recorder.status().written_bytes;
    let before = ALLOCATIONS.with(Cell::get);
    program.work();
    for _ in 0..1000 {
        // SAFETY: the handler is the one above.
        unsafe { libc::raise(libc::SIGUSR1) };
        program.recorder.enter(program.region);
        program.recorder.leave(program.region);
    }
    let after = ALLOCATIONS.with(Cell::get);
    let status = program.recorder.finish();
    assert_eq!(after - before, 0, "allocations and deallocations");
    assert!(status.raised > 160_000 && status.written_bytes > free);
    assert!(ALLOCATIONS.with(Cell::get) > after, "the counter counts");
}

const CHILD: &str = "ANNALS_TRACED_CHILD";

/// Not a separate test: what runs under strace.
#[test]
fn child() {
    let Some(directory) = std::env::var_os(CHILD) else {
        return;
    };
    let program = Program::start(Path::new(&directory));
    program.recorder.enter(program.region);
    // SAFETY: the calls touch no memory; they mark the part that is checked.
    unsafe { libc::syscall(libc::SYS_getppid) };
    program.work();
    // SAFETY: the call touches no memory.
    unsafe { libc::syscall(libc::SYS_getppid) };
    let status = program.recorder.finish();
    println!("page switches at least {}", status.raised * 4 / 4096);
}

#[test]
fn the_event_path_makes_no_system_call_but_a_wake_up_for_each_page() {
    let scratch = tempfile::tempdir().expect("a directory");
    let log = scratch.path().join("calls");
    let status = Command::new("strace")
        .args(["-f", "-o"])
        .arg(&log)
        .arg(std::env::current_exe().expect("this program"))
        .args(["child", "--exact", "--nocapture", "--test-threads=1"])
        .env(CHILD, scratch.path().join("run"))
        .output()
        .expect("strace is installed (Debian: apt-get install strace)");
    assert!(status.status.success(), "{status:?}");
    let log = std::fs::read_to_string(&log).expect("strace's log");
    // `PID call(arguments) = result`; the marks identify the thread and the part.
    let marked: Vec<(usize, &str)> = log
        .lines()
        .enumerate()
        .filter(|(_, line)| line.contains("getppid("))
        .filter_map(|(number, line)| Some((number, line.split_whitespace().next()?)))
        .collect();
    let [.., (first, thread), (last, same)] = marked.as_slice() else {
        panic!("two marks in the log");
    };
    assert_eq!(thread, same);
    let calls: Vec<&str> = log
        .lines()
        .take(*last)
        .skip(first + 1)
        .filter(|line| line.split_whitespace().next() == Some(thread))
        .filter(|line| !line.contains("resumed>"))
        .collect();
    let others: Vec<&&str> = calls
        .iter()
        .filter(|line| !line.contains(" futex("))
        .collect();
    assert!(others.is_empty(), "{others:?}");
    // 40 000 rounds of rows of at least 23 bytes in all.
    let pages = 40_000 * 30 / (4096 - 128);
    assert!(pages > 100);
    assert!(calls.len() <= pages * 2, "{} wake-ups", calls.len());
}
