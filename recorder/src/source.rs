//! The properties of a source that the event path needs.

use std::sync::atomic::AtomicBool;

use crate::clock::TickSource;
use crate::options::Overflow;

/// The properties of a source that the event path needs.
#[derive(Debug)]
pub(crate) struct SourceState {
    pub(crate) clock: TickSource,
    pub(crate) max_ticks: u64,
    pub(crate) ticks_per_second: u64,
    pub(crate) observation_interval_ns: Option<i64>,
    pub(crate) overflow: Overflow,
    /// Whether events that threads raise for it happen at separate locations.
    pub(crate) has_own_location: bool,
    /// The rules switched it off.
    pub(crate) is_off: AtomicBool,
    /// Slot of the stream that counts losses that had no stream.
    pub(crate) unattributed: usize,
}
