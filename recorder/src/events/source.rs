//! Sources: the entities that raise events, with a clock and a promise about order (MPI 4.1
//! §16.3.8.1).

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use annals_format::SourceOrder;

use super::deferred::Ring;
use super::error::{Error, Result};
use super::types::Info;

/// Most sources of a runtime.
const MAX_SOURCES: usize = 256;

/// A sequenced source's ticks are at least this long: what is one tick apart stays apart in
/// nanoseconds, whatever a calibration makes of the rate.
const FASTEST_SEQUENCE: u64 = 250_000_000;

/// The largest tick of the C interface.
pub(crate) const MAX_COUNT: u64 = i64::MAX as u64;

type Clock = Arc<dyn Fn() -> u64 + Send + Sync>;

/// A source, to be added.
#[derive(Clone)]
pub struct SourceSpec {
    name: String,
    description: String,
    ordering: SourceOrder,
    clock: Option<Clock>,
    ticks_per_second: u64,
    max_ticks: u64,
    hints: Info,
    is_sequenced: bool,
    is_processors: bool,
    buffered: usize,
}

impl fmt::Debug for SourceSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SourceSpec")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl SourceSpec {
    /// Creates a source whose callbacks are called in chronological order.
    /// While several threads raise its events, the producer guarantees that order. Its clock counts
    /// nanoseconds, and cannot be read: see [`SourceSpec::clock`].
    pub fn ordered(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            description: String::new(),
            ordering: SourceOrder::Ordered,
            clock: None,
            ticks_per_second: 1_000_000_000,
            max_ticks: MAX_COUNT,
            hints: Info::new(),
            is_sequenced: false,
            is_processors: false,
            buffered: 0,
        }
    }

    /// Creates a source that promises nothing about order.
    pub fn unordered(name: impl Into<String>) -> Self {
        Self {
            ordering: SourceOrder::Unordered,
            ..Self::ordered(name)
        }
    }

    /// Sets the description of the source.
    #[must_use]
    pub fn description(mut self, description: impl Into<String>) -> Self {
        self.description = description.into();
        self
    }

    /// Sets the number of ticks per second; at least 1.
    #[must_use]
    pub const fn ticks_per_second(mut self, ticks_per_second: u64) -> Self {
        self.ticks_per_second = ticks_per_second;
        self
    }

    /// Sets the largest tick before the clock starts again at 0; at most 2⁶³ − 1.
    #[must_use]
    pub const fn max_ticks(mut self, max_ticks: u64) -> Self {
        self.max_ticks = max_ticks;
        self
    }

    /// Sets the clock, in ticks; without one, the current time is *not supported*, and every
    /// instance is raised with the time at which it was observed. The clock runs in callbacks at
    /// the level of their raise: for events of signal handlers, it must be safe there.
    #[must_use]
    pub fn clock(mut self, read: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        self.clock = Some(Arc::new(read));
        self.is_processors = false;
        self
    }

    /// Takes the processor's counter as the clock, with its rate: the cheapest there is, safe
    /// everywhere.
    #[must_use]
    pub fn processor_clock(mut self) -> Self {
        self = self.clock(crate::clock::tsc);
        self.ticks_per_second = crate::clock::tsc_rate().0;
        self.is_processors = true;
        self
    }

    /// Sets a hint's default.
    #[must_use]
    pub fn hint(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.hints.set(key, value);
        self
    }

    /// Numbers the events within a tick: for an ordered source whose clock is too coarse to
    /// distinguish the events of several threads.
    ///
    /// Each instance gets a timestamp larger than that of every instance raised before it: the
    /// clock's tick, and the number in the lower bits. Ticks per second are multiplied accordingly.
    /// When a tick has more events than there are numbers, the timestamps run ahead of the clock
    /// until it catches up.
    #[must_use]
    pub const fn sequenced(mut self) -> Self {
        self.is_sequenced = true;
        self
    }

    /// Reserves room for the given number of instances that are [raised
    /// deferred](super::EventType::raise_deferred).
    #[must_use]
    pub const fn buffered(mut self, instances: usize) -> Self {
        self.buffered = instances;
        self
    }
}

/// The description of a source.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct SourceInfo {
    /// Its name.
    pub name: String,
    /// Its description; may be empty.
    pub description: String,
    /// Whether its callbacks are called in chronological order.
    pub ordering: SourceOrder,
    /// Ticks in a second.
    pub ticks_per_second: u64,
    /// The largest tick before the clock starts again at 0.
    pub max_ticks: u64,
    /// Its hints.
    pub info: Info,
    /// Whether its clock can be read at any time.
    pub is_readable: bool,
    /// Whether its ticks are those of the processor's counter.
    pub is_processor_clock: bool,
}

/// A source, as raises see it.
pub(crate) struct SourceState {
    pub(crate) index: usize,
    pub(crate) info: SourceInfo,
    clock: Option<Clock>,
    /// Its events are raised now and here, with the clock's own time, and can be: it has a clock,
    /// keeps none for later, and numbers none. The other ways are out of this one's.
    pub(crate) is_plain: bool,
    /// Lower bits of a tick that number events, for a sequenced source; and the least step.
    sequence: Option<(u32, u64)>,
    last: AtomicU64,
    /// A bit for each level: there are registrations whose highest callback is at that level and
    /// that have unreported drops of this source.
    pub(crate) untold: AtomicU32,
    pub(crate) ring: Option<Ring>,
}

impl fmt::Debug for SourceState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SourceState")
            .field("info", &self.info)
            .finish_non_exhaustive()
    }
}

impl SourceState {
    pub(crate) fn new(index: usize, spec: &SourceSpec) -> Result<Self> {
        let name_is_good = !spec.name.is_empty() && !spec.name.contains('\0');
        let is_good = name_is_good
            && !spec.description.contains('\0')
            && spec.ticks_per_second != 0
            && spec.ticks_per_second <= MAX_COUNT
            && spec.max_ticks != 0
            && spec.max_ticks <= MAX_COUNT
            && (!spec.is_sequenced || spec.max_ticks == MAX_COUNT);
        if !is_good {
            return Err(Error::Invalid);
        }
        if index >= MAX_SOURCES {
            return Err(Error::OutOfHandles);
        }
        let mut ticks_per_second = spec.ticks_per_second;
        let mut sequence = None;
        if spec.is_sequenced {
            let bits = (FASTEST_SEQUENCE / ticks_per_second).checked_ilog2();
            let bits = bits.unwrap_or(0);
            ticks_per_second <<= bits;
            let step = ticks_per_second.div_ceil(FASTEST_SEQUENCE);
            sequence = Some((bits, step));
        }
        Ok(Self {
            index,
            info: SourceInfo {
                name: spec.name.clone(),
                description: spec.description.clone(),
                ordering: spec.ordering,
                ticks_per_second,
                max_ticks: spec.max_ticks,
                info: spec.hints.clone(),
                is_readable: spec.clock.is_some(),
                is_processor_clock: spec.is_processors && !spec.is_sequenced,
            },
            clock: spec.clock.clone(),
            is_plain: spec.clock.is_some() && spec.buffered == 0 && sequence.is_none(),
            sequence,
            last: AtomicU64::new(0),
            untold: AtomicU32::new(0),
            ring: (spec.buffered != 0).then(|| Ring::new(spec.buffered)),
        })
    }

    pub(crate) fn is_ordered(&self) -> bool {
        self.info.ordering == SourceOrder::Ordered
    }

    /// Returns whether an instance's time is fixed when it is raised, and not when it is asked for.
    #[inline]
    pub(crate) fn is_sequenced(&self) -> bool {
        self.sequence.is_some()
    }

    #[inline]
    pub(crate) fn has_clock(&self) -> bool {
        self.clock.is_some()
    }

    /// Returns the time of an instance: observed at this tick of the clock, or now.
    pub(crate) fn stamp(&self, observed: Option<u64>) -> Result<u64> {
        let tick = match (observed, &self.clock) {
            (Some(tick), _) => tick,
            (None, Some(clock)) => clock(),
            (None, None) => return Err(Error::NotSupported),
        };
        let Some((bits, step)) = self.sequence else {
            return Ok(tick);
        };
        let (order, seen) = (Ordering::AcqRel, Ordering::Relaxed);
        let next = |last: u64| (tick << bits).max(last.saturating_add(step).min(MAX_COUNT));
        let last = self.last.fetch_update(order, seen, |last| Some(next(last)));
        Ok(next(last.unwrap_or(0)))
    }

    /// Returns the current time, as it may be asked for at any time: of a sequenced source, that of
    /// the last instance if the clock did not move on.
    pub(crate) fn now(&self) -> Result<u64> {
        let clock = self.clock.as_ref().ok_or(Error::NotSupported)?;
        let tick = clock();
        Ok(match self.sequence {
            Some((bits, _)) => (tick << bits).max(self.last.load(Ordering::Acquire)),
            None => tick,
        })
    }
}
