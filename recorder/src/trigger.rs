//! Triggers: what makes a flight recorder keep what it has.

use std::cell::Cell;
use std::str::FromStr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, AtomicU16, AtomicU32, Ordering};
use std::time::Duration;

use annals_format::{
    ElementType, EventTypeId, EventTypeSchema, RegionId, Role, Value, row_element, ticks, units,
};
use globset::{Glob, GlobMatcher};

use crate::clock::reference_ns;
use crate::error::{RecorderError, Result};
use crate::limits::MAX_RULED_REGIONS;

/// Most event types that triggers watch in one recorder.
const MAX_WATCHES: usize = 256;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Comparison {
    Below,
    AtMost,
    Equal,
    NotEqual,
    AtLeast,
    Above,
}

impl Comparison {
    const ALL: [(&'static str, Self); 6] = [
        ("<", Self::Below),
        ("<=", Self::AtMost),
        ("==", Self::Equal),
        ("!=", Self::NotEqual),
        (">=", Self::AtLeast),
        (">", Self::Above),
    ];

    fn holds<T: PartialOrd>(self, left: &T, right: &T) -> bool {
        match self {
            Self::Below => left < right,
            Self::AtMost => left <= right,
            Self::Equal => left == right,
            Self::NotEqual => left != right,
            Self::AtLeast => left >= right,
            Self::Above => left > right,
        }
    }
}

/// The operand that the value of an element is compared with.
#[derive(Clone, PartialEq, Debug)]
enum Operand {
    Integer(i128),
    Number(f64),
    Text(Vec<u8>),
}

impl Operand {
    fn parse(text: &str) -> Self {
        if let Ok(integer) = text.parse() {
            return Self::Integer(integer);
        }
        match text.parse() {
            Ok(number) => Self::Number(number),
            Err(_) => Self::Text(text.trim_matches('"').as_bytes().to_vec()),
        }
    }

    fn compare(&self, comparison: Comparison, value: Value<'_>) -> bool {
        let integer = match value {
            Value::I32(value) => Some(i128::from(value)),
            Value::U32(value) => Some(i128::from(value)),
            Value::I64(value) => Some(i128::from(value)),
            Value::U64(value) => Some(i128::from(value)),
            _ => None,
        };
        match (self, integer, value) {
            (Self::Integer(right), Some(left), _) => comparison.holds(&left, right),
            (Self::Integer(right), _, Value::F64(left)) => {
                comparison.holds(&left, &(*right as f64))
            }
            (Self::Number(right), Some(left), _) => comparison.holds(&(left as f64), right),
            (Self::Number(right), _, Value::F64(left)) => comparison.holds(&left, right),
            (Self::Text(right), _, Value::String(left) | Value::Bytes(left)) => {
                comparison.holds(&left, &right.as_slice())
            }
            _ => false,
        }
    }
}

#[derive(Clone, Debug)]
struct Condition {
    element: String,
    comparison: Comparison,
    operand: Operand,
}

#[derive(Clone, Debug)]
enum Cause {
    Event {
        glob: GlobMatcher,
        condition: Option<Condition>,
    },
    Region {
        glob: GlobMatcher,
        longer_than: Duration,
    },
    Signal(i32),
}

/// Something that makes a flight recorder write a snapshot.
///
/// | trigger | fires when |
/// |---|---|
/// | `event GLOB` | an event of a type whose name fits is recorded |
/// | `event GLOB where ELEMENT > VALUE` | … and the element compares so: `<` `<=` `==` `!=` `>=` `>` |
/// | `region GLOB longer than 10ms` | a region whose name fits is left that long after it was entered |
/// | `signal SIGUSR2` | the process gets the signal (by name, as `SIGUSR1`, or number) |
///
/// Of several triggers that wait for one region, the one with the shortest time fires.
///
/// ```
/// # use annals_recorder::Trigger;
/// let trigger: Trigger = "event queue.length where value >= 1000".parse()?;
/// # Ok::<(), annals_recorder::RecorderError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Trigger {
    cause: Cause,
}

impl FromStr for Trigger {
    type Err = RecorderError;

    fn from_str(text: &str) -> Result<Self> {
        let cause = parse(text.trim()).ok_or_else(|| RecorderError::Setting {
            setting: "a trigger",
            expected: "`event GLOB [where ELEMENT > VALUE]`, `region GLOB longer than TIME` (a number with ns, us, ms, \
                       s, min or h, such as 1.5s) or `signal SIGUSR2`",
            found: text.to_owned(),
        })?;
        Ok(Self { cause })
    }
}

fn parse(text: &str) -> Option<Cause> {
    let (kind, rest) = text.split_once(' ')?;
    let rest = rest.trim();
    let glob = |text: &str| Some(Glob::new(text.trim()).ok()?.compile_matcher());
    match kind {
        "event" => {
            let Some((name, condition)) = rest.split_once(" where ") else {
                return Some(Cause::Event {
                    glob: glob(rest)?,
                    condition: None,
                });
            };
            let mut words = condition.trim().splitn(3, ' ');
            let element = words.next()?.to_owned();
            let sign = words.next()?;
            let comparison = Comparison::ALL.iter().find(|(text, _)| *text == sign)?.1;
            let condition = Condition {
                element,
                comparison,
                operand: Operand::parse(words.next()?.trim()),
            };
            Some(Cause::Event {
                glob: glob(name)?,
                condition: Some(condition),
            })
        }
        "region" => {
            let (name, time) = rest.split_once(" longer than ")?;
            Some(Cause::Region {
                glob: glob(name)?,
                longer_than: units::parse_duration(time).ok()?,
            })
        }
        "signal" => Some(Cause::Signal(parse_signal(rest)?)),
        _ => None,
    }
}

/// Returns a signal by its name or number.
pub(crate) fn parse_signal(text: &str) -> Option<i32> {
    Some(match text {
        "SIGUSR1" => libc::SIGUSR1,
        "SIGUSR2" => libc::SIGUSR2,
        "SIGTERM" => libc::SIGTERM,
        "SIGINT" => libc::SIGINT,
        "SIGHUP" => libc::SIGHUP,
        "SIGQUIT" => libc::SIGQUIT,
        "SIGXCPU" => libc::SIGXCPU,
        number => number.parse().ok().filter(|n| (1..64).contains(n))?,
    })
}

/// Returns the reference time of a signal's last arrival, nanoseconds, or 0 if it never arrived.
/// See [`signal_fires`].
pub(crate) fn signalled_ns(signal: i32) -> i64 {
    let time = usize::try_from(signal)
        .ok()
        .and_then(|signal| SIGNALLED.get(signal));
    time.map_or(0, |time| time.load(Ordering::Acquire))
}

/// How one trigger watches one event type, or all triggers on regions the enters or leaves.
#[derive(Debug)]
struct Watch {
    event_type: EventTypeId,
    what: Watched,
}

#[derive(Debug)]
enum Watched {
    Every {
        trigger: usize,
    },
    Element {
        trigger: usize,
        schema: EventTypeSchema,
        index: usize,
        comparison: Comparison,
        operand: Operand,
    },
    Enter,
    Leave,
}

/// A watched event, with what the triggers check of it.
pub(crate) struct Sight<'a> {
    pub(crate) event_type: EventTypeId,
    pub(crate) tick: u64,
    /// The bytes of the event's row.
    pub(crate) row: &'a [u8],
    /// The watched regions that are entered where it was raised.
    pub(crate) regions: &'a WatchedRegions,
    pub(crate) ticks_per_second: u64,
    pub(crate) max_ticks: u64,
}

/// Enter ticks of watched regions, for triggers on their length. Fixed in size: nothing is
/// allocated.
#[derive(Debug)]
pub(crate) struct WatchedRegions {
    depth: Cell<usize>,
    enters: [Cell<(u32, u64)>; Self::DEEPEST],
}

impl WatchedRegions {
    const DEEPEST: usize = 16;

    pub(crate) fn clear(&self) {
        self.depth.set(0);
    }

    /// Stores that a watched region was entered.
    /// Beyond a depth of 16, enters are not stored.
    fn enter(&self, region: u32, tick: u64) {
        if let Some(place) = self.enters.get(self.depth.get()) {
            place.set((region, tick));
        }
        self.depth.set(self.depth.get() + 1);
    }

    /// Removes the innermost watched region, which was left. Returns when it was entered, if known.
    fn leave(&self, region: u32) -> Option<u64> {
        let depth = self.depth.get().checked_sub(1)?;
        self.depth.set(depth);
        let (entered, tick) = self.enters.get(depth)?.get();
        (entered == region).then_some(tick)
    }
}

/// The triggers of a recorder, and whether one fired.
#[derive(Debug)]
pub(crate) struct Triggers {
    triggers: Vec<Trigger>,
    /// The layout of enters and leaves: the region is their only element.
    region_schema: EventTypeSchema,
    /// By region: number + 1 of the trigger that waits for its length; empty when none waits for
    /// any.
    regions: Box<[AtomicU16]>,
    /// Filled from the front, under the registry's lock; read without.
    watches: Box<[OnceLock<Watch>]>,
    /// Reference time, nanoseconds, at which a trigger fired that was not served yet.
    /// 0 means that none did.
    fired_ns: AtomicI64,
    /// The trigger that fired, + 1.
    /// 0 means a call.
    fired: AtomicU32,
    /// By trigger: the time of the last signal that was served.
    signalled_ns: Box<[AtomicI64]>,
}

/// Reference time of the last signal that a trigger waits for, by signal; see [`signal_fires`].
static SIGNALLED: [AtomicI64; 64] = [const { AtomicI64::new(0) }; 64];

/// The handler of trigger signals: safe whatever it interrupts.
pub(crate) extern "C" fn signal_fires(signal: libc::c_int) {
    if let Some(time) = SIGNALLED.get(signal as usize) {
        time.store(reference_ns().max(1), Ordering::Relaxed);
    }
}

impl Triggers {
    pub(crate) fn new(triggers: Vec<Trigger>) -> Self {
        let now = reference_ns();
        let signalled_ns = triggers.iter().map(|_| AtomicI64::new(now)).collect();
        let of_region = |trigger: &Trigger| matches!(trigger.cause, Cause::Region { .. });
        let regions = if triggers.iter().any(of_region) {
            MAX_RULED_REGIONS
        } else {
            0
        };
        Self {
            regions: (0..regions).map(|_| AtomicU16::new(0)).collect(),
            triggers,
            region_schema: EventTypeSchema {
                elements: vec![(ElementType::U32, false)],
            },
            watches: (0..MAX_WATCHES).map(|_| OnceLock::new()).collect(),
            fired_ns: AtomicI64::new(0),
            fired: AtomicU32::new(0),
            signalled_ns,
        }
    }

    /// Returns the signals that triggers wait for.
    pub(crate) fn signals(&self) -> impl Iterator<Item = i32> {
        self.triggers.iter().filter_map(|t| match t.cause {
            Cause::Signal(number) => Some(number),
            _ => None,
        })
    }

    /// Notes what triggers watch of a new event type; true when any does.
    pub(crate) fn watch_event_type(
        &self,
        id: EventTypeId,
        name: &str,
        role: Role,
        elements: &[(&str, ElementType, bool)],
    ) -> bool {
        let watch = |what| {
            let watch = Watch {
                event_type: id,
                what,
            };
            let free = self.watches.iter().find(|place| place.get().is_none());
            free.is_some_and(|place| place.set(watch).is_ok())
        };
        let mut is_watched = match role {
            Role::Enter if !self.regions.is_empty() => watch(Watched::Enter),
            Role::Leave if !self.regions.is_empty() => watch(Watched::Leave),
            _ => false,
        };
        for (trigger, cause) in self.triggers.iter().map(|t| &t.cause).enumerate() {
            let what = match cause {
                Cause::Event { glob, condition } if glob.is_match(name) => match condition {
                    None => Watched::Every { trigger },
                    Some(condition) => {
                        let of_name = |e: &&(&str, _, _)| e.0 == condition.element;
                        let Some(index) = elements.iter().position(|e| of_name(&e)) else {
                            continue;
                        };
                        Watched::Element {
                            trigger,
                            schema: EventTypeSchema {
                                elements: elements.iter().map(|e| (e.1, e.2)).collect(),
                            },
                            index,
                            comparison: condition.comparison,
                            operand: condition.operand.clone(),
                        }
                    }
                },
                _ => continue,
            };
            is_watched |= watch(what);
        }
        is_watched
    }

    /// Notes which trigger waits for the length of a new region.
    pub(crate) fn watch_region(&self, id: RegionId, name: &str) {
        let waits = self
            .triggers
            .iter()
            .enumerate()
            .filter_map(|(n, t)| match &t.cause {
                Cause::Region { glob, longer_than } if glob.is_match(name) => {
                    Some((longer_than, n))
                }
                _ => None,
            });
        if let Some((_, trigger)) = waits.min()
            && let Some(place) = self.regions.get(id.index())
        {
            place.store(trigger as u16 + 1, Ordering::Release);
        }
    }

    /// Returns the trigger that waits for the length of a region.
    fn of_region(&self, id: RegionId) -> Option<usize> {
        let number = self.regions.get(id.index())?.load(Ordering::Acquire);
        usize::from(number).checked_sub(1)
    }

    /// Returns which trigger an event fires, the first if it is several.
    pub(crate) fn match_event(&self, sight: &Sight<'_>) -> Option<usize> {
        let watches = self.watches.iter().map_while(OnceLock::get);
        let watches = watches.filter(|watch| watch.event_type == sight.event_type);
        // Every watch is asked: regions are to be noted whatever else fires.
        watches.fold(None, |first, watch| {
            let fires = self.fires(&watch.what, sight);
            first.or(fires)
        })
    }

    fn fires(&self, what: &Watched, sight: &Sight<'_>) -> Option<usize> {
        let region = || match row_element(&self.region_schema, sight.row, 0)? {
            Value::U32(number) => Some(RegionId::new(number)),
            _ => None,
        };
        match what {
            Watched::Every { trigger } => Some(*trigger),
            Watched::Element {
                trigger,
                schema,
                index,
                comparison,
                operand,
            } => {
                let value = row_element(schema, sight.row, *index)?;
                operand.compare(*comparison, value).then_some(*trigger)
            }
            Watched::Enter => {
                let region = region()?;
                self.of_region(region)?;
                sight.regions.enter(region.get(), sight.tick);
                None
            }
            Watched::Leave => {
                let region = region()?;
                let trigger = self.of_region(region)?;
                let entered = sight.regions.leave(region.get())?;
                let Cause::Region { longer_than, .. } = &self.triggers[trigger].cause else {
                    return None;
                };
                let rate = u128::from(sight.ticks_per_second);
                let least = longer_than.as_nanos() * rate / 1_000_000_000;
                let ticks = ticks::distance(entered, sight.tick, sight.max_ticks);
                (i128::from(ticks) >= least as i128).then_some(trigger)
            }
        }
    }

    /// Fires a trigger now; `None` means a call. Until it is served, later ones change nothing.
    /// Returns whether this one was the first.
    pub(crate) fn fire(&self, trigger: Option<usize>) -> bool {
        self.fire_at(trigger, reference_ns().max(1))
    }

    fn fire_at(&self, trigger: Option<usize>, time_ns: i64) -> bool {
        let (order, seen) = (Ordering::AcqRel, Ordering::Relaxed);
        let is_first = self.fired_ns.compare_exchange(0, time_ns, order, seen);
        if is_first.is_ok() {
            let number = trigger.map_or(0, |number| number as u32 + 1);
            self.fired.store(number, Ordering::Release);
        }
        is_first.is_ok()
    }

    /// Returns when a trigger fired that was not served yet.
    pub(crate) fn pending(&self) -> Option<i64> {
        for (number, trigger) in self.triggers.iter().enumerate() {
            if let Cause::Signal(signal) = trigger.cause {
                let time_ns = SIGNALLED[signal as usize].load(Ordering::Acquire);
                if time_ns > self.signalled_ns[number].swap(time_ns, Ordering::Relaxed) {
                    self.fire_at(Some(number), time_ns);
                }
            }
        }
        let time_ns = self.fired_ns.load(Ordering::Acquire);
        (time_ns != 0).then_some(time_ns)
    }

    /// Describes what fired, and lets triggers fire again.
    pub(crate) fn serve(&self) -> String {
        let number = self.fired.load(Ordering::Acquire) as usize;
        let trigger = number.checked_sub(1).and_then(|n| self.triggers.get(n));
        self.fired_ns.store(0, Ordering::Release);
        match trigger.map(|trigger| &trigger.cause) {
            None => "call".to_owned(),
            Some(Cause::Event { glob, condition }) => {
                let event = format!("event {}", glob.glob());
                match condition {
                    None => event,
                    Some(condition) => format!("{event} where {}", condition.element),
                }
            }
            Some(Cause::Region { glob, longer_than }) => {
                format!("region {} longer than {longer_than:?}", glob.glob())
            }
            Some(Cause::Signal(signal)) => format!("signal {signal}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn triggers_are_read_and_refused_by_their_words() {
        for text in [
            "event mpi.*",
            "event queue where value >= 10",
            "event note where text == \"disk full\"",
            "region solve* longer than 10ms",
            "signal SIGUSR2",
            "signal 34",
        ] {
            assert!(text.parse::<Trigger>().is_ok(), "{text}");
        }
        for text in [
            "",
            "event",
            "event a where b",
            "event a where b ~ 3",
            "region a longer than",
            "region a longer than 3",
            "signal SIGKILLED",
            "signal 0",
        ] {
            let error = text.parse::<Trigger>().unwrap_err().to_string();
            assert!(error.contains(text), "{error}");
        }
    }

    #[test]
    fn values_compare_across_integers_and_numbers() {
        let ten = Operand::parse("10");
        assert!(ten.compare(Comparison::Below, Value::I32(-1)));
        assert!(ten.compare(Comparison::Above, Value::F64(10.5)));
        assert!(!ten.compare(Comparison::Equal, Value::String(b"10")));
        assert!(Operand::parse("0.5").compare(Comparison::AtMost, Value::U64(0)));
        assert!(Operand::parse("\"a b\"").compare(Comparison::Equal, Value::String(b"a b")));
    }
}
