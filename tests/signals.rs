//! Recording from signal handlers, whatever they interrupt: served or counted, never unsafe.
#![expect(unsafe_code, reason = "signals, timers and their handlers")]

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use annals_merger::Reader;
use annals_recorder::{EventType, EventTypeSpec, Options, Recorder, RegionId};

use annals_test_support::recorders::{
    few_pages_and_a_limit, mark, raise_without_a_page, small_pages,
};
use annals_test_support::sums_by_type;

/// What the handler records with. One test at a time: signals and handlers are the process's.
struct Shared {
    recorder: Recorder,
    told: EventType<(u64, u64)>,
    region: RegionId,
}

static CURRENT: Mutex<()> = Mutex::new(());
static HANDLER_USES: std::sync::atomic::AtomicPtr<Shared> =
    std::sync::atomic::AtomicPtr::new(std::ptr::null_mut());
static HANDLED: AtomicU64 = AtomicU64::new(0);
/// Number of signals that arrived, whether their handler recorded or not.
static SIGNALS: AtomicU64 = AtomicU64::new(0);

extern "C" fn handler(_: libc::c_int) {
    SIGNALS.fetch_add(1, Ordering::Relaxed);
    let shared = HANDLER_USES.load(Ordering::Acquire);
    if shared.is_null() {
        return;
    }
    // SAFETY: the pointer is to leaked memory.
    let shared = unsafe { &*shared };
    let number = HANDLED.fetch_add(1, Ordering::Relaxed);
    shared.recorder.enter(shared.region);
    shared.recorder.raise(&shared.told, (number, u64::MAX));
    shared.recorder.leave(shared.region);
}

fn options(directory: &std::path::Path) -> Options {
    small_pages(directory, 4 << 20)
}

fn start(options: &Options) -> &'static Shared {
    let recorder = Recorder::start(options).expect("a recorder");
    let spec = EventTypeSpec::new("told").element("number").element("word");
    let shared = Box::leak(Box::new(Shared {
        told: recorder.add_event_type(&spec).expect("an event type"),
        region: recorder.add_region("handler").expect("a region"),
        recorder,
    }));
    HANDLED.store(0, Ordering::Relaxed);
    HANDLER_USES.store(shared, Ordering::Release);
    // SAFETY: a complete action; the handler does what is tested here.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as *const () as libc::sighandler_t;
        action.sa_flags = libc::SA_RESTART;
        libc::sigaction(libc::SIGALRM, &raw const action, std::ptr::null_mut());
    }
    shared
}

/// A timer that signals the calling thread every 50 µs.
struct Storm(libc::timer_t);

impl Storm {
    fn begin() -> Self {
        // SAFETY: the structures are complete; the thread is the calling one.
        unsafe {
            let mut event: libc::sigevent = std::mem::zeroed();
            event.sigev_notify = libc::SIGEV_THREAD_ID;
            event.sigev_signo = libc::SIGALRM;
            event.sigev_notify_thread_id = libc::syscall(libc::SYS_gettid) as i32;
            let mut timer: libc::timer_t = std::mem::zeroed();
            let code = libc::timer_create(libc::CLOCK_MONOTONIC, &raw mut event, &raw mut timer);
            assert_eq!(code, 0, "a timer");
            let every = libc::timespec {
                tv_sec: 0,
                tv_nsec: 50_000,
            };
            let times = libc::itimerspec {
                it_interval: every,
                it_value: every,
            };
            libc::timer_settime(timer, 0, &raw const times, std::ptr::null_mut());
            Self(timer)
        }
    }
}

impl Drop for Storm {
    fn drop(&mut self) {
        // SAFETY: made by `begin`.
        unsafe { libc::timer_delete(self.0) };
    }
}

fn seconds() -> Duration {
    Duration::from_secs(if std::env::var_os("ANNALS_LONG").is_some() {
        60
    } else {
        2
    })
}

#[test]
fn handlers_that_interrupt_their_threads_own_recording_are_recorded() {
    let _one = CURRENT
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    let scratch = tempfile::tempdir().expect("a directory");
    let shared = start(&options(scratch.path()));
    let mark = mark(&shared.recorder);
    let deadline = Instant::now() + seconds();
    let raised = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let _storm = Storm::begin();
                let mut number = 0;
                while Instant::now() < deadline {
                    for _ in 0..2000 {
                        shared.recorder.raise(&mark, (number,));
                        number += 1;
                    }
                    // A full pool would hide what is tested. A sleep would begin again after each signal.
                    let until = Instant::now() + Duration::from_micros(200);
                    while Instant::now() < until {
                        std::thread::yield_now();
                    }
                }
                raised.fetch_add(number, Ordering::Relaxed);
            });
        }
    });
    HANDLER_USES.store(std::ptr::null_mut(), Ordering::Release);
    let status = shared.recorder.finish();
    let handled = HANDLED.load(Ordering::Relaxed);
    assert!(handled > 1000, "{handled} signals");
    let sums = sums_by_type(&status.path);
    assert_eq!(sums["mark"].raised, raised.load(Ordering::Relaxed));
    for name in ["told", "enter", "leave"] {
        assert_eq!(sums[name].raised, handled, "{name}");
    }
    // Events of signals that arrived while their thread was in a queue are lost, and so are those that the writer has no time
    // for: on a busy machine that is more than a tenth.
    let lost = sums["told"].dropped;
    assert!(lost * 2 <= handled, "{lost} of {handled} lost");
    let opened = Reader::open(&status.path).expect("a recording");
    let streams = opened.definitions().streams.values();
    let of_threads = streams.filter(|stream| stream.location.is_some()).count();
    assert_eq!(of_threads, 4, "two threads with a companion stream each");
    assert_eq!(opened.definitions().locations.len(), 2);
}

#[test]
fn the_first_event_of_a_thread_may_come_from_a_handler_that_interrupts_an_allocation() {
    raise_first(false);
}

#[test]
fn the_first_event_of_a_thread_may_be_interrupted_by_a_handler_that_raises() {
    raise_first(true);
}

/// Raises the first event of many threads, each in a storm.
fn raise_first(mark_first: bool) {
    let _one = CURRENT
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    let scratch = tempfile::tempdir().expect("a directory");
    let shared = start(&options(scratch.path()));
    let mark = mark(&shared.recorder);
    let deadline = Instant::now() + seconds();
    let mut threads = 0;
    while Instant::now() < deadline {
        std::thread::scope(|scope| {
            for _ in 0..4 {
                threads += 1;
                scope.spawn(|| {
                    let _storm = Storm::begin();
                    if mark_first {
                        shared.recorder.raise(&mark, (0,));
                    }
                    let mut kept = Vec::new();
                    for size in 1..400_usize {
                        kept.push(vec![size as u8; size * 37 % 5000]);
                        if size % 3 == 0 {
                            kept.swap_remove(size / 7 % kept.len());
                        }
                    }
                    std::hint::black_box(&kept);
                });
            }
        });
    }
    HANDLER_USES.store(std::ptr::null_mut(), Ordering::Release);
    let status = shared.recorder.finish();
    let handled = HANDLED.load(Ordering::Relaxed);
    assert!(handled > 100, "{handled} signals");
    let sums = sums_by_type(&status.path);
    assert_eq!(sums["told"].raised, handled);
    assert!(sums["told"].recorded > 0);
    let opened = Reader::open(&status.path).expect("a recording");
    let streams = opened.definitions().streams.values();
    let locations = streams.filter_map(|stream| stream.location);
    let locations: BTreeSet<_> = locations.collect();
    assert!(locations.len() <= threads, "one location for each thread");
    if mark_first {
        assert_eq!(locations.len(), threads);
        assert_eq!(sums["mark"].raised, threads as u64);
    }
}

#[test]
fn blocking_ends_at_its_limit_in_the_middle_of_a_storm() {
    let _one = CURRENT
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    let scratch = tempfile::tempdir().expect("a directory");
    let shared = start(&few_pages_and_a_limit(scratch.path()));
    // A handler that recorded would be blocked itself, longer than it takes the next signal to come.
    HANDLER_USES.store(std::ptr::null_mut(), Ordering::Release);
    let enter = || shared.recorder.enter(shared.region);
    let in_a_storm = || {
        let before = SIGNALS.load(Ordering::Relaxed);
        let storm = Storm::begin();
        enter();
        drop(storm);
        assert!(
            SIGNALS.load(Ordering::Relaxed) > before,
            "there was a storm"
        );
    };
    let pages = raise_without_a_page(&shared.recorder, enter, in_a_storm);
    let status = shared.recorder.finish();
    let sums = sums_by_type(&status.path)["enter"];
    assert_eq!((sums.recorded, sums.dropped), (pages as u64, 1));
}

#[test]
fn a_recording_finishes_in_the_middle_of_a_storm() {
    let _one = CURRENT
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    let scratch = tempfile::tempdir().expect("a directory");
    for _ in 0..20 {
        let shared = start(&options(scratch.path()));
        let stop = AtomicBool::new(false);
        let status = std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let _storm = Storm::begin();
                    while !stop.load(Ordering::Relaxed) {
                        shared.recorder.enter(shared.region);
                        shared.recorder.leave(shared.region);
                    }
                });
            }
            std::thread::sleep(Duration::from_millis(20));
            let status = shared.recorder.finish();
            std::thread::sleep(Duration::from_millis(5));
            stop.store(true, Ordering::Relaxed);
            status
        });
        HANDLER_USES.store(std::ptr::null_mut(), Ordering::Release);
        sums_by_type(&status.path);
        assert!(shared.recorder.status().raised_after_finish > 0);
    }
}
