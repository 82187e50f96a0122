//! Recorders that several tests begin with.
use std::path::Path;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use annals_recorder::{EventType, EventTypeSpec, Options, Overflow, Recorder};

/// `mark(number)`: what most tests raise.
pub fn mark(recorder: &Recorder) -> EventType<(u64,)> {
    let spec = EventTypeSpec::new("mark").element("number");
    recorder.add_event_type(&spec).expect("an event type")
}

/// Pages of 4 KiB, so that there are many switches.
pub fn small_pages(directory: &Path, buffer_bytes: usize) -> Options {
    let mut options = Options::new(directory);
    options.buffer_bytes = buffer_bytes;
    options.page_bytes = Some(4096);
    options
}

const BLOCK_LIMIT: Duration = Duration::from_millis(30);

/// Options with few pages, whose streams keep them; a thread that needs one waits for 30 ms.
pub fn few_pages_and_a_limit(directory: &Path) -> Options {
    let mut options = small_pages(directory, 1);
    options.overflow = Overflow::Block;
    options.block_limit = BLOCK_LIMIT;
    options.flush_interval = Duration::ZERO;
    options
}

/// Assigns every page to a thread that raises by `raise_one`; then `raise_another` finds none, and must wait to its
/// limit. Returns the number of pages.
pub fn raise_without_a_page(
    recorder: &Recorder,
    raise_one: impl Fn() + Sync,
    raise_another: impl FnOnce() + Send,
) -> usize {
    let pages = recorder.status().pages;
    let barrier = Barrier::new(pages + 1);
    std::thread::scope(|scope| {
        for _ in 0..pages {
            scope.spawn(|| {
                raise_one();
                barrier.wait();
                barrier.wait();
            });
        }
        barrier.wait();
        // In a separate thread: it may be one with a timer, or with signals.
        let raised = scope.spawn(|| {
            let begun = Instant::now();
            raise_another();
            begun.elapsed()
        });
        let waited = raised.join();
        barrier.wait();
        let waited = waited.expect("it raises");
        assert!(waited >= BLOCK_LIMIT && waited < Duration::from_secs(5));
    });
    pages
}
