//! Gates: the user's rules in the form that the event path asks.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use annals_format::{EventType, EventTypeId, RegionId, Role};

use crate::limits::{MAX_EVENT_TYPES, MAX_RULED_REGIONS};
use crate::rules::{RuleBook, Subject, Verdict};
use crate::switch::Switch;

const OPEN: u64 = 0;
const OFF: u64 = 1;
const SAMPLE: u64 = 2;
const LIMIT: u64 = 3;
const MODE: u64 = 3;
const WATCHED: u64 = 4;
/// The clock is not the processor's counter, or its events need observations.
const OTHER_CLOCK: u64 = 8;
/// Events enter regions, or leave them, and rules have changed whether they are recorded.
const CHANGED_ENTER: u64 = 16;
const CHANGED_LEAVE: u64 = 32;
/// Before the first change, they were not recorded.
const FIRST_OFF: u64 = 64;
const NUMBER: u32 = 8;

/// The rules for events of one type in one stream: bits 0 and 1 the mode, bit 2 whether a trigger
/// watches them, bit 3 whether the clock is another than the processor's counter, bits 4 to 6 the change of rules for calls, from
/// bit 8 the mode's number (one of how many; ticks between two).
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

    /// Returns whether the events enter regions (`true`) or leave them, and how rules have changed whether they are recorded. `None`
    /// means that they enter or leave none, or that no rule has changed that.
    pub(crate) const fn changed_calls(self) -> Option<(bool, Switch)> {
        if self.0 & (CHANGED_ENTER | CHANGED_LEAVE) == 0 {
            return None;
        }
        let first = Switch::first(self.0 & FIRST_OFF != 0);
        // Once there and back, where it is as it was.
        let turned = first.turned(!first.is_off());
        let is_enter = self.0 & CHANGED_ENTER != 0;
        Some((is_enter, turned.turned(self.is_off())))
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
    /// By event type: its [`Switch`], and [`ENTERS`] or [`LEAVES`].
    switches: Box<[AtomicU8]>,
    /// By region: [`Switch::BITS`] each.
    regions: Box<[AtomicU64]>,
    /// Whether any region is off, or was.
    has_ruled_regions: AtomicBool,
}

/// Flags of an event type that enters regions, and of one that leaves them.
const ENTERS: u8 = 64;
const LEAVES: u8 = 128;

const REGIONS_PER_WORD: usize = u64::BITS as usize / Switch::BITS;

/// When rules are applied to something.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Moment {
    /// Before its first event.
    First,
    /// Events may have been raised.
    Later,
}

impl Moment {
    /// Returns the switch from now on.
    pub(crate) const fn turn(self, switch: Switch, is_off: bool) -> Switch {
        match self {
            Self::First => Switch::first(is_off),
            Self::Later => switch.turned(is_off),
        }
    }
}

impl Gates {
    pub(crate) fn new() -> Self {
        let words = |count: usize| (0..count).map(|_| AtomicU64::new(0)).collect();
        Self {
            gates: words(MAX_EVENT_TYPES),
            switches: (0..MAX_EVENT_TYPES).map(|_| AtomicU8::new(0)).collect(),
            regions: words(MAX_RULED_REGIONS / REGIONS_PER_WORD),
            has_ruled_regions: AtomicBool::new(false),
        }
    }

    /// Returns the gate of an event type of a source.
    pub(crate) fn gate(
        &self,
        event_type: EventTypeId,
        source: Switch,
        is_plain_clock: bool,
        ticks_per_second: u64,
    ) -> Gate {
        let gate = self.gates.get(event_type.index());
        let gate = gate.map_or(Gate(OPEN), |gate| Gate(gate.load(Ordering::SeqCst)));
        let gate = if source.is_off() {
            Gate::new(Verdict::Off, gate.is_watched())
        } else {
            gate.in_ticks(ticks_per_second)
        };
        let clock = if is_plain_clock { 0 } else { OTHER_CLOCK };
        Gate(gate.0 | clock | self.change(event_type, source))
    }

    /// Returns the flags of a gate that show the change of rules for calls.
    fn change(&self, event_type: EventTypeId, source: Switch) -> u64 {
        let flags = self.switches.get(event_type.index());
        let flags = flags.map_or(0, |flags| flags.load(Ordering::SeqCst));
        let switch = Switch::from_bits(flags).or(source);
        let role = match flags & (ENTERS | LEAVES) {
            ENTERS => CHANGED_ENTER,
            LEAVES => CHANGED_LEAVE,
            _ => return 0,
        };
        match (switch.has_changed(), switch.was_first_off()) {
            (false, _) => 0,
            (true, false) => role,
            (true, true) => role | FIRST_OFF,
        }
    }

    /// Works out the gate of an event type.
    pub(crate) fn rule_event_type(
        &self,
        rules: &RuleBook,
        event_type: &EventType,
        name: &str,
        is_watched: bool,
        moment: Moment,
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
        if let Some(flags) = self.switches.get(id.index()) {
            let switch = Switch::from_bits(flags.load(Ordering::SeqCst));
            let role = match role {
                Role::Enter => ENTERS,
                Role::Leave => LEAVES,
                _ => 0,
            };
            let switch = moment.turn(switch, verdict == Verdict::Off);
            flags.store(switch.bits() | role, Ordering::SeqCst);
        }
        if let Some(gate) = self.gates.get(id.index()) {
            gate.store(Gate::new(verdict, is_watched).0, Ordering::SeqCst);
        }
    }

    /// Works out whether calls of a region are recorded. Takes no lock, and allocates nothing.
    pub(crate) fn rule_region(&self, rules: &RuleBook, id: RegionId, name: &str, moment: Moment) {
        let is_off = rules.verdict(Subject::Region, name, None) == Verdict::Off;
        let Some(word) = self.regions.get(id.index() / REGIONS_PER_WORD) else {
            return;
        };
        let shift = id.index() % REGIONS_PER_WORD * Switch::BITS;
        let turn = |word: u64| {
            let before = Switch::from_bits((word >> shift) as u8);
            let after = moment.turn(before, is_off);
            let cleared = word & !(u64::from(before.bits()) << shift);
            Some(cleared | u64::from(after.bits()) << shift)
        };
        let _ = word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, turn);
        if is_off {
            self.has_ruled_regions.store(true, Ordering::Relaxed);
        }
    }

    /// Returns whether calls of a region are recorded.
    #[inline(always)]
    pub(crate) fn region(&self, id: RegionId) -> Switch {
        if !self.has_ruled_regions.load(Ordering::Relaxed) {
            return Switch::first(false);
        }
        let word = self.regions.get(id.index() / REGIONS_PER_WORD);
        let word = word.map_or(0, |word| word.load(Ordering::Relaxed));
        Switch::from_bits((word >> (id.index() % REGIONS_PER_WORD * Switch::BITS)) as u8)
    }
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
