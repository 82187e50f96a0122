//! Whether compression waits until the program has ended: while the file system has room for rows, and takes them as fast as they come.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::options::Compression;
use crate::sys;

/// Free bytes of a file system below which chunks are compressed as they are written.
const LEAST_FREE: u64 = 8 << 30;
/// So, too, below this part of its size.
const LEAST_FREE_PART: u64 = 20;
/// Chunks after which it is decided whether the storage is slow.
const WINDOW: u32 = 64;
/// Of a window, the writes that waited for the storage when it is slow.
const WAITED: u32 = WINDOW / 4;
/// Nanoseconds for a byte from which on compressing costs less than writing: a chunk of rows is compressed, to a quarter of its bytes or less,
/// in about 3 ns a byte (`benches/compare --whole`: rows of 4 bytes, compressed in 12 ns).
const SLOW_NS: u64 = 4;
/// How long chunks are compressed as they are written after the storage was slow.
const PENALTY: Duration = Duration::from_secs(10);

/// The state of the decision.
#[derive(Debug)]
pub(crate) struct Deferral {
    is_wanted: bool,
    /// Rows are never compressed.
    is_for_good: bool,
    has_room: bool,
    slow_until: Option<Instant>,
    window: Window,
}

/// What the last writes cost.
#[derive(Clone, Copy, Default, Debug)]
struct Window {
    chunks: u32,
    waited: u32,
    bytes: u64,
    ns: u64,
}

impl Deferral {
    /// Chunks of a recording with a maximum size are compressed as they are written: more events fit.
    pub(crate) fn new(compression: Compression, has_size_limit: bool) -> Self {
        Self {
            is_wanted: compression == Compression::Later && !has_size_limit,
            is_for_good: compression.is_none(),
            has_room: false,
            slow_until: None,
            window: Window::default(),
        }
    }

    /// Looks how much room there is in the file system of the recording.
    pub(crate) fn look(&mut self, recording: &Path) {
        if self.is_wanted {
            let room = sys::room(recording);
            self.has_room =
                room.is_some_and(|(free, size)| free >= LEAST_FREE.max(size / LEAST_FREE_PART));
        }
    }

    /// Returns whether the next chunk is stored as rows.
    pub(crate) fn stores_rows(&mut self) -> bool {
        if self.is_for_good {
            return true;
        }
        if self.slow_until.is_some_and(|until| Instant::now() >= until) {
            self.slow_until = None;
        }
        self.is_wanted && self.has_room && self.slow_until.is_none()
    }

    /// Calls what writes a chunk of rows, and notes what it costs.
    pub(crate) fn watch(&mut self, bytes: usize, write: impl FnOnce() -> bool) -> bool {
        if !self.is_wanted {
            return write();
        }
        // A write that waits only for a processor, which the program has, says nothing of the storage.
        let (waits, start) = (sys::waits(), Instant::now());
        let is_written = write();
        let ns = start.elapsed().as_nanos().try_into().unwrap_or(u64::MAX);
        self.note(bytes as u64, ns, sys::waits() != waits);
        is_written
    }

    fn note(&mut self, bytes: u64, ns: u64, has_waited: bool) {
        let window = &mut self.window;
        window.chunks += 1;
        window.waited += u32::from(has_waited);
        window.bytes += bytes;
        window.ns = window.ns.saturating_add(ns);
        if window.chunks < WINDOW {
            return;
        }
        let window = std::mem::take(window);
        if window.waited >= WAITED && window.ns / window.bytes.max(1) >= SLOW_NS {
            self.slow_until = Some(Instant::now() + PENALTY);
        }
    }
}

#[cfg(test)]
mod tests {
    use annals_format::CompressionLevel;

    use super::*;

    fn later() -> Deferral {
        Deferral {
            has_room: true,
            ..Deferral::new(Compression::Later, false)
        }
    }

    #[test]
    fn rows_are_stored_where_there_is_room_and_the_storage_is_fast() {
        let mut deferral = later();
        assert!(deferral.stores_rows());
        deferral.has_room = false;
        assert!(!deferral.stores_rows());
        assert!(!Deferral::new(Compression::Later, true).stores_rows());
        let level = CompressionLevel::default();
        assert!(!Deferral::new(Compression::Now(level), false).stores_rows());
        assert!(Deferral::new(CompressionLevel::None.into(), true).stores_rows());
    }

    #[test]
    fn a_storage_that_writes_wait_for_ends_the_deferral_for_some_time() {
        let slow = |deferral: &mut Deferral, has_waited: &dyn Fn(u32) -> bool, ns| {
            (0..WINDOW).for_each(|number| deferral.note(1000, ns, has_waited(number)));
        };
        let mut deferral = later();
        // The program had the processor.
        slow(&mut deferral, &|_| false, 100_000);
        // The storage was waited for, and is fast.
        slow(&mut deferral, &|_| true, 2_000);
        assert!(deferral.stores_rows());
        slow(&mut deferral, &|number| number % 4 == 0, 4_000);
        assert!(!deferral.stores_rows());
        deferral.slow_until = Some(Instant::now());
        assert!(deferral.stores_rows());
    }
}
