//! The layer as the process's global subscriber, which cannot be removed: it lives longer than the recorder, receives
//! events from inside itself, and must cost little.
#![expect(unsafe_code, reason = "an allocator that counts")]

mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::fmt;

use support::{Recording, dropped, events, names};
use tracing::{info, info_span};

struct Counting;

thread_local! {
    /// Allocations of this thread.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: the system's allocator does the work.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the arguments are passed on unchanged, under the caller's contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the arguments are passed on unchanged, under the caller's contract.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Raises an event whenever it is formatted, with itself in it.
struct Chatty;

impl fmt::Debug for Chatty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        info!(name: "looked at", target: "app", value = ?Chatty);
        f.write_str("chatty")
    }
}

fn work() {
    for number in 0..10_000_u64 {
        let span = info_span!("outer");
        span.in_scope(|| {
            let _inner = info_span!("inner", number, name = "a name").entered();
            info!(number, "inside of {}", number);
        });
    }
}

/// One test: there is one global subscriber.
#[test]
fn a_global_subscriber_outlives_the_recorder() {
    let recording = Recording::start();
    tracing::subscriber::set_global_default(recording.subscriber()).expect("the only one");

    work();
    let before = ALLOCATIONS.with(Cell::get);
    work();
    assert_eq!(ALLOCATIONS.with(Cell::get), before, "no allocation");

    info!(name: "chatty", target: "app", value = ?Chatty);
    // Other threads, whose first event it is, and which still run when the recording ends.
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(work);
        }
    });
    let status = recording.recorder.finish();
    assert_eq!(status.dropped, 1, "{status:?}");
    let path = status.path;
    let Recording {
        recorder,
        directory,
    } = recording;
    drop(recorder);

    work();
    std::thread::spawn(work).join().expect("a thread");

    let events = events(&path);
    let chatty: Vec<&str> = names(&events)
        .into_iter()
        .filter(|name| name.starts_with("app::"))
        .collect();
    let looked_at = "app::looked at";
    assert_eq!(chatty, [looked_at, looked_at, looked_at, "app::chatty"]);
    assert_eq!(dropped(&path, "tracing.unrecorded"), 1);
    let of = |name: &str| events.iter().filter(|event| event.name == name).count();
    let spans = 6 * 10_000;
    assert_eq!(of("tracing.enter.info"), 2 * spans);
    assert_eq!(of("tracing.leave.info"), 2 * spans);
    assert_eq!(of("tracing.new.info"), spans);
    assert_eq!(of("tracing_global::inner"), spans);
    assert_eq!(of("tracing.close.info"), 2 * spans);
    drop(directory);
}
