//! The properties of a source that the event path needs.

use std::sync::atomic::{AtomicU8, Ordering};

use crate::clock::TickSource;
use crate::options::Overflow;
use crate::switch::Switch;

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
    /// Bits of the [`Switch`] that rules turn.
    pub(crate) switch: AtomicU8,
    /// Slot of the stream that counts losses that had no stream.
    pub(crate) unattributed: usize,
}

impl SourceState {
    /// Returns whether rules leave out its events.
    pub(crate) fn switch(&self) -> Switch {
        Switch::from_bits(self.switch.load(Ordering::SeqCst))
    }

    /// Stores whether rules leave out its events from now on.
    pub(crate) fn turn(&self, is_off: bool) {
        let turned = self.switch().turned(is_off);
        self.switch.store(turned.bits(), Ordering::SeqCst);
    }
}
