//! Gates: the user's rules in the form that the event path asks.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use annals_format::{EventType, EventTypeId, RegionId, Role};

use crate::limits::{MAX_EVENT_TYPES, MAX_RULED_REGIONS};
use crate::rules::{Rules, Subject, Verdict};

const OPEN: u64 = 0;
const OFF: u64 = 1;
const SAMPLE: u64 = 2;
const LIMIT: u64 = 3;
const MODE: u64 = 3;
const WATCHED: u64 = 4;
/// The clock is not the processor's counter, or its events need observations.
const OTHER_CLOCK: u64 = 8;
const NUMBER: u32 = 8;

/// The rules for events of one type in one stream: bits 0 and 1 the mode, bit 2 whether a trigger
/// watches them, bit 3 whether the clock is another than the processor's counter, from bit 8 the
/// mode's number (one of how many; ticks between two).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Gate(pub(crate) u64);

/// The decision about an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Admission {
    Record,
    Suppress,
    NotRaised,
}

impl Gate {
    /// Every event is recorded, no trigger watches, and the clock is the processor's counter.
    pub(crate) const PLAIN: Self = Self(OPEN);

    /// Returns whether every event is recorded.
    #[inline]
    pub(crate) const fn is_open(self) -> bool {
        self.0 & MODE == OPEN
    }

    /// Returns whether the number of recorded events per second is limited.
    pub(crate) const fn is_limit(self) -> bool {
        self.0 & MODE == LIMIT
    }

    /// Returns whether no event is raised.
    pub(crate) const fn is_off(self) -> bool {
        self.0 & MODE == OFF
    }

    /// Returns whether a trigger reads the events.
    #[inline]
    pub(crate) const fn is_watched(self) -> bool {
        self.0 & WATCHED != 0
    }

    fn new(verdict: Verdict, is_watched: bool) -> Self {
        let (mode, number) = match verdict {
            Verdict::On => (OPEN, 0),
            Verdict::Off => (OFF, 0),
            Verdict::Sample(of) => (SAMPLE, of),
            Verdict::Limit(per_second) => (LIMIT, per_second),
        };
        let watched = if is_watched { WATCHED } else { 0 };
        Self(mode | watched | u64::from(number) << NUMBER)
    }

    /// Converts a limit per second to the ticks between two events.
    fn in_ticks(self, ticks_per_second: u64) -> Self {
        if self.0 & MODE != LIMIT {
            return self;
        }
        let between = (ticks_per_second / (self.0 >> NUMBER).max(1)).clamp(1, u64::MAX >> NUMBER);
        Self(self.0 & 0xff | between << NUMBER)
    }

    /// Decides whether an event is recorded.
    /// `raised` is the number of events that were raised before it.
    pub(crate) fn admit(
        self,
        raised: u64,
        limiter: &AtomicU64,
        now: impl FnOnce() -> u64,
    ) -> Admission {
        let number = self.0 >> NUMBER;
        let passes = match self.0 & MODE {
            OPEN => true,
            OFF => return Admission::NotRaised,
            SAMPLE => raised.is_multiple_of(number),
            _ => {
                // The generic cell rate algorithm (ITU-T I.371, annex A): the limiter holds the
                // time at which the next event is due; credit for a burst may be saved up.
                let now = now();
                let due = limiter.load(Ordering::Relaxed);
                let credit = number.saturating_mul(BURST);
                // A due time far ahead is one from before the clock started again at 0.
                let is_stale = due > now.saturating_add(number.saturating_mul(2));
                let earliest = if is_stale {
                    now
                } else {
                    due.max(now.saturating_sub(credit))
                };
                if earliest <= now {
                    limiter.store(earliest.saturating_add(number), Ordering::Relaxed);
                    true
                } else {
                    false
                }
            }
        };
        if passes {
            Admission::Record
        } else {
            Admission::Suppress
        }
    }
}

/// The number of events that a limit admits without a gap after a pause.
const BURST: u64 = 16;

/// The gates of all event types and regions, from the rules.
#[derive(Debug)]
pub(crate) struct Gates {
    /// By event type; limits are per second.
    gates: Box<[AtomicU64]>,
    regions_off: Box<[AtomicU64]>,
    /// Whether any region is off.
    has_regions_off: AtomicBool,
}

impl Gates {
    pub(crate) fn new() -> Self {
        let words = |count: usize| (0..count).map(|_| AtomicU64::new(0)).collect();
        Self {
            gates: words(MAX_EVENT_TYPES),
            regions_off: words(MAX_RULED_REGIONS / 64),
            has_regions_off: AtomicBool::new(false),
        }
    }

    /// Returns the gate of an event type of a source.
    pub(crate) fn gate(
        &self,
        event_type: EventTypeId,
        is_source_off: bool,
        is_plain_clock: bool,
        ticks_per_second: u64,
    ) -> Gate {
        let gate = self.gates.get(event_type.index());
        let gate = gate.map_or(Gate(OPEN), |gate| Gate(gate.load(Ordering::SeqCst)));
        let gate = if is_source_off {
            Gate::new(Verdict::Off, gate.is_watched())
        } else {
            gate.in_ticks(ticks_per_second)
        };
        Gate(gate.0 | if is_plain_clock { 0 } else { OTHER_CLOCK })
    }

    /// Works out the gate of an event type.
    pub(crate) fn rule_event_type(
        &self,
        rules: &Rules,
        event_type: &EventType,
        name: &str,
        is_watched: bool,
    ) {
        let EventType {
            id,
            verbosity,
            role,
            ..
        } = event_type;
        let verdict = match rules.verdict(Subject::Event, name, Some(*verbosity)) {
            Verdict::Sample(_) | Verdict::Limit(_) if matches!(role, Role::Enter | Role::Leave) => {
                Verdict::On
            }
            verdict => verdict,
        };
        if let Some(gate) = self.gates.get(id.index()) {
            gate.store(Gate::new(verdict, is_watched).0, Ordering::SeqCst);
        }
    }

    /// Works out whether a region is recorded.
    pub(crate) fn rule_region(&self, rules: &Rules, id: RegionId, name: &str) {
        let is_off = rules.verdict(Subject::Region, name, None) == Verdict::Off;
        set_bit(&self.regions_off, id, is_off);
        if is_off {
            self.has_regions_off.store(true, Ordering::Relaxed);
        }
    }

    /// Returns whether enters and leaves of a region are switched off.
    #[inline]
    pub(crate) fn is_region_off(&self, id: RegionId) -> bool {
        self.has_regions_off.load(Ordering::Relaxed) && has_bit(&self.regions_off, id)
    }
}

fn set_bit(words: &[AtomicU64], id: RegionId, is_set: bool) {
    if let Some(word) = words.get(id.index() / 64) {
        let bit = 1 << (id.index() % 64);
        if is_set {
            word.fetch_or(bit, Ordering::Relaxed);
        } else {
            word.fetch_and(!bit, Ordering::Relaxed);
        }
    }
}

fn has_bit(words: &[AtomicU64], id: RegionId) -> bool {
    let word = words.get(id.index() / 64);
    word.is_some_and(|word| word.load(Ordering::Relaxed) >> (id.index() % 64) & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_takes_one_event_in_so_many() {
        let gate = Gate::new(Verdict::Sample(10), false);
        let limiter = AtomicU64::new(0);
        let recorded = (0..1000).filter(|n| gate.admit(*n, &limiter, || 0) == Admission::Record);
        assert_eq!(recorded.count(), 100);
    }

    #[test]
    fn a_limit_holds_over_time_and_allows_a_burst() {
        let gate = Gate::new(Verdict::Limit(1000), false).in_ticks(1_000_000);
        let limiter = AtomicU64::new(0);
        // An event a tick for a second: a thousand pass, and what was saved up.
        let start = 5_000_000;
        let ticks = start..start + 1_000_000;
        let recorded = ticks.filter(|tick| gate.admit(0, &limiter, || *tick) == Admission::Record);
        let recorded = recorded.count() as u64;
        assert!((1000..=1000 + BURST + 1).contains(&recorded), "{recorded}");
        // A clock that starts again at 0 does not shut the gate for good.
        assert_eq!(gate.admit(0, &limiter, || 7), Admission::Record);
    }
}
