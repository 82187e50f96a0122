//! Clocks, how they were calibrated, and the maps from their ticks to trace time.

use std::collections::HashMap;
use std::sync::Arc;

use super::codes::{ClockKind, Relation};
use super::record::{Record, read_code, read_process, read_string};
use crate::error::{FormatError, Result};
use crate::ids::{BootId, ClockId, ProcessId, StringId};
use crate::wire::{Put, Wire};

/// A clock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Clock {
    /// Its number.
    pub id: ClockId,
    /// The process it belongs to.
    pub process: ProcessId,
    /// Its name.
    pub name: StringId,
    /// How it is read.
    pub kind: ClockKind,
    /// Nominal rate, ticks per second; never 0.
    pub ticks_per_second: u64,
    /// Bound of the nominal rate's error, parts per 10⁹; 0 means exact by definition.
    pub rate_error_ppb: u32,
    /// Largest tick before the clock starts again at 0; any value.
    pub max_ticks: u64,
}

impl Record for Clock {
    const KIND: u64 = 5;

    fn highest_id(&self) -> u32 {
        self.id.get()
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.put_varint(self.id.get().into());
        out.put_varint(self.process.get().into());
        out.put_varint(self.name.get().into());
        out.push(self.kind.code());
        out.put_varint(self.ticks_per_second);
        out.put_varint(self.rate_error_ppb.into());
        out.put_varint(self.max_ticks);
    }

    fn read(w: &mut Wire<'_>) -> Result<Self> {
        let id = ClockId::new(w.varint_u32("clock id")?);
        let process = read_process(w)?;
        let name = read_string(w)?;
        let kind = read_code(w, "clock kind", ClockKind::from_code)?;
        let start = w.position();
        let ticks_per_second = w.varint("ticks per second")?;
        if ticks_per_second == 0 {
            return Err(FormatError::invalid(start, "a rate above 0", 0));
        }
        Ok(Self {
            id,
            process,
            name,
            kind,
            ticks_per_second,
            rate_error_ppb: w.varint_u32("rate error")?,
            max_ticks: w.varint("max ticks")?,
        })
    }
}

/// A calibration point: the clock and the reference clock, read at the same moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CalibrationPoint {
    /// The clock.
    pub clock: ClockId,
    /// The clock's tick.
    pub tick: u64,
    /// The reference clock, nanoseconds.
    pub reference_ns: i64,
    /// Half the width of the bracket: the tick was read at `reference_ns ± error_ns`.
    pub error_ns: u64,
    /// Wall clock minus reference clock at that moment, nanoseconds.
    pub unix_offset_ns: i64,
}

impl Record for CalibrationPoint {
    const KIND: u64 = 6;

    fn highest_id(&self) -> u32 {
        self.clock.get()
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.put_varint(self.clock.get().into());
        out.put_varint(self.tick);
        out.put_signed(self.reference_ns);
        out.put_varint(self.error_ns);
        out.put_signed(self.unix_offset_ns);
    }

    fn read(w: &mut Wire<'_>) -> Result<Self> {
        Ok(Self {
            clock: ClockId::new(w.varint_u32("clock id")?),
            tick: w.varint("calibration tick")?,
            reference_ns: w.signed("calibration reference")?,
            error_ns: w.varint("calibration error")?,
            unix_offset_ns: w.signed("wall clock offset")?,
        })
    }
}

/// Points of one clock. A long run has hundreds of thousands of points, and readers need them before
/// anything else. So they are stored small: of each, only how its step from the previous point
/// differs from the step before.
impl Record for Vec<CalibrationPoint> {
    const KIND: u64 = 26;

    fn highest_id(&self) -> u32 {
        self.first().map_or(0, |point| point.clock.get())
    }

    fn put(&self, out: &mut Vec<u8>) {
        let clock = self.first().map_or(0, |point| point.clock.get());
        out.put_varint(clock.into());
        out.put_varint(self.len() as u64);
        let (mut tick, mut reference) =
            (SecondDifferences::default(), SecondDifferences::default());
        let mut unix_offset = 0;
        for point in self {
            out.put_signed(tick.encode(point.tick.into()) as i64);
            out.put_signed(reference.encode(point.reference_ns.into()) as i64);
            out.put_varint(point.error_ns);
            out.put_signed(point.unix_offset_ns.wrapping_sub(unix_offset));
            unix_offset = point.unix_offset_ns;
        }
    }

    fn read(w: &mut Wire<'_>) -> Result<Self> {
        let clock = ClockId::new(w.varint_u32("clock id")?);
        // Each takes at least four bytes.
        let count = w.count(4, "number of calibration points")?;
        let mut points = Self::with_capacity(count);
        let (mut tick, mut reference) =
            (SecondDifferences::default(), SecondDifferences::default());
        let mut unix_offset = 0_i64;
        for _ in 0..count {
            points.push(CalibrationPoint {
                clock,
                tick: tick.decode(w.signed("calibration tick")?.into()) as u64,
                reference_ns: reference.decode(w.signed("calibration reference")?.into()) as i64,
                error_ns: w.varint("calibration error")?,
                unix_offset_ns: {
                    unix_offset = unix_offset.wrapping_add(w.signed("wall clock offset")?);
                    unix_offset
                },
            });
        }
        Ok(points)
    }
}

/// The map from a clock's ticks to trace time: monotone and piecewise linear through knots.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClockMap {
    /// The clock.
    pub clock: ClockId,
    /// Bound of the map's error, nanoseconds.
    pub error_ns: u64,
    /// Pairs of unwrapped tick and trace time in nanoseconds, both strictly ascending; at least two.
    /// The clocks of one host share theirs.
    pub knots: Arc<[(i128, i64)]>,
}

/// One map that several clocks share.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SharedClockMap {
    /// The clocks, ascending; at least one.
    pub clocks: Vec<ClockId>,
    /// Bound of the map's error, nanoseconds.
    pub error_ns: u64,
    /// Pairs of unwrapped tick and trace time in nanoseconds, both strictly ascending; at least two.
    pub knots: Arc<[(i128, i64)]>,
}

/// The parts by which maps are compared: their knots and their error.
type KnotsAndError<'a> = (&'a [(i128, i64)], u64);

impl SharedClockMap {
    /// Groups maps, ascending by clock, into one shared map for each different one, in the order of
    /// their first clocks.
    pub fn of<'a>(maps: impl Iterator<Item = &'a ClockMap>) -> Vec<Self> {
        let mut shared: Vec<Self> = Vec::new();
        // Maps are long, and a run has one for each process. Nearly all equal ones share their memory:
        // comparing addresses first avoids hashing the knots.
        let mut by_address: HashMap<(*const (i128, i64), u64), usize> = HashMap::new();
        let mut by_knots: HashMap<KnotsAndError<'_>, usize> = HashMap::new();
        for map in maps {
            let next = shared.len();
            let address = (map.knots.as_ptr(), map.error_ns);
            let number = *by_address.entry(address).or_insert_with(|| {
                *by_knots
                    .entry((&map.knots[..], map.error_ns))
                    .or_insert(next)
            });
            if number == next {
                shared.push(Self {
                    clocks: Vec::new(),
                    error_ns: map.error_ns,
                    knots: Arc::clone(&map.knots),
                });
            }
            shared[number].clocks.push(map.clock);
        }
        shared
    }
}

/// Knots are stored like calibration points: the clocks of a host are tied to it many times a second.
impl Record for SharedClockMap {
    const KIND: u64 = 27;

    fn highest_id(&self) -> u32 {
        self.clocks.last().map_or(0, |clock| clock.get())
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.put_varint(self.clocks.len() as u64);
        let mut before = 0;
        for clock in &self.clocks {
            out.put_varint(clock.get().wrapping_sub(before).into());
            before = clock.get();
        }
        out.put_varint(self.error_ns);
        out.put_varint(self.knots.len() as u64);
        let (mut ticks, mut times) = (SecondDifferences::default(), SecondDifferences::default());
        for (tick, time_ns) in &self.knots[..] {
            out.put_wide(ticks.encode(*tick));
            out.put_signed(times.encode((*time_ns).into()) as i64);
        }
    }

    fn read(w: &mut Wire<'_>) -> Result<Self> {
        let start = w.position();
        let count = w.count(1, "number of clocks")?;
        let mut clocks: Vec<ClockId> = Vec::with_capacity(count);
        for _ in 0..count {
            let more = w.varint_u32("clock id")?;
            let next = match clocks.last() {
                None => Some(more),
                Some(last) => last.get().checked_add(more).filter(|_| more != 0),
            };
            let next = next
                .ok_or_else(|| FormatError::invalid(w.position(), "ascending clock ids", more))?;
            clocks.push(ClockId::new(next));
        }
        if clocks.is_empty() {
            return Err(FormatError::invalid(start, "at least one clock", count));
        }
        let error_ns = w.varint("error of a clock map")?;
        let (mut ticks, mut times) = (SecondDifferences::default(), SecondDifferences::default());
        let knots = read_knots(w, |w| {
            let tick = ticks.decode(w.wide("tick of a knot")?);
            let time_ns = times.decode(w.signed("time of a knot")?.into()) as i64;
            Ok((tick, time_ns))
        })?;
        Ok(Self {
            clocks,
            error_ns,
            knots,
        })
    }
}

/// Reads a number of knots and then the knots, which must ascend.
fn read_knots(
    w: &mut Wire<'_>,
    mut read_knot: impl FnMut(&mut Wire<'_>) -> Result<(i128, i64)>,
) -> Result<Arc<[(i128, i64)]>> {
    let start = w.position();
    let count = w.count(2, "number of knots")?;
    let mut knots: Vec<(i128, i64)> = Vec::with_capacity(count);
    for _ in 0..count {
        let knot = read_knot(w)?;
        if let Some(last) = knots.last()
            && (knot.0 <= last.0 || knot.1 <= last.1)
        {
            return Err(FormatError::invalid(
                w.position(),
                "ascending knots",
                format!("{knot:?} after {last:?}"),
            ));
        }
        knots.push(knot);
    }
    if count < 2 {
        return Err(FormatError::invalid(start, "at least two knots", count));
    }
    Ok(knots.into())
}

/// Codec of second differences: each number is stored as the difference between its step from the
/// previous number and the step before, modulo 2¹²⁸. With only the low 64 bits of the stored values
/// and of the result, the numbers are correct modulo 2⁶⁴.
#[derive(Default)]
struct SecondDifferences {
    last: i128,
    step: i128,
}

impl SecondDifferences {
    fn encode(&mut self, value: i128) -> i128 {
        let step = value.wrapping_sub(self.last);
        let difference = step.wrapping_sub(self.step);
        (self.last, self.step) = (value, step);
        difference
    }

    fn decode(&mut self, difference: i128) -> i128 {
        self.step = self.step.wrapping_add(difference);
        self.last = self.last.wrapping_add(self.step);
        self.last
    }
}

/// A measured offset between the reference clocks of two hosts.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct HostOffset {
    /// Boot id of one host.
    pub from: BootId,
    /// Boot id of the other.
    pub to: BootId,
    /// When it was measured: reference clock of `from`, nanoseconds.
    pub reference_ns: i64,
    /// Reference clock of `to` minus that of `from`, nanoseconds.
    pub offset_ns: i64,
    /// Hard bound of the offset's error, nanoseconds: half the round trip of the measurement.
    pub error_ns: u64,
}

impl Record for HostOffset {
    const KIND: u64 = 21;

    fn highest_id(&self) -> u32 {
        0
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.from.0);
        out.extend_from_slice(&self.to.0);
        out.put_signed(self.reference_ns);
        out.put_signed(self.offset_ns);
        out.put_varint(self.error_ns);
    }

    fn read(w: &mut Wire<'_>) -> Result<Self> {
        Ok(Self {
            from: BootId(w.array("boot id")?),
            to: BootId(w.array("boot id")?),
            reference_ns: w.signed("time of an offset")?,
            offset_ns: w.signed("offset of a host")?,
            error_ns: w.varint("error of an offset")?,
        })
    }
}

/// The value of an error's bound that means: there is no bound.
pub const UNBOUNDED: u64 = u64::MAX;

/// A bound of a clock's error at a moment of the trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ErrorKnot {
    /// Trace time, nanoseconds.
    pub time_ns: i64,
    /// Bound of the clock's error relative to its host's reference clock, nanoseconds.
    pub own_ns: u64,
    /// Bound of the host's error relative to the axis, nanoseconds.
    pub host_ns: u64,
}

/// How wrong the trace times of a clock's events may be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClockError {
    /// The clock.
    pub clock: ClockId,
    /// The first clock of the trace that is the same physical clock; the clock itself if it is the
    /// first.
    pub alike: ClockId,
    /// How its host was related to the axis.
    pub relation: Relation,
    /// Bounds, ascending by time, at least one: linear between them, constant beyond the ends.
    pub knots: Vec<ErrorKnot>,
}

impl ClockError {
    /// Returns the bounds at a moment: of the clock relative to its host, and of the host relative to
    /// the axis. [`UNBOUNDED`] means no bound.
    pub fn at(&self, time_ns: i64) -> (u64, u64) {
        let after = self.knots.partition_point(|knot| knot.time_ns <= time_ns);
        let Some(b) = self.knots.get(after) else {
            let last = self.knots.last();
            return last.map_or((UNBOUNDED, UNBOUNDED), |last| (last.own_ns, last.host_ns));
        };
        let Some(a) = after.checked_sub(1).map(|before| self.knots[before]) else {
            return (b.own_ns, b.host_ns);
        };
        let run = b.time_ns.abs_diff(a.time_ns).max(1);
        let passed = time_ns.abs_diff(a.time_ns);
        let between = |a: u64, b: u64| {
            if passed == 0 {
                return a;
            }
            if a == UNBOUNDED || b == UNBOUNDED {
                return UNBOUNDED;
            }
            let rise = u128::from(a.abs_diff(b)) * u128::from(passed);
            // Rounded up, whether the bounds rise or fall.
            if b >= a {
                a + rise.div_ceil(run.into()) as u64
            } else {
                a - (rise / u128::from(run)) as u64
            }
        };
        (between(a.own_ns, b.own_ns), between(a.host_ns, b.host_ns))
    }
}

impl Record for ClockError {
    const KIND: u64 = 22;

    fn highest_id(&self) -> u32 {
        self.clock.get()
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.put_varint(self.clock.get().into());
        out.put_varint(self.alike.get().into());
        out.push(self.relation.code());
        out.put_varint(self.knots.len() as u64);
        for knot in &self.knots {
            out.put_signed(knot.time_ns);
            out.put_varint(knot.own_ns);
            out.put_varint(knot.host_ns);
        }
    }

    fn read(w: &mut Wire<'_>) -> Result<Self> {
        let clock = ClockId::new(w.varint_u32("clock id")?);
        let alike = ClockId::new(w.varint_u32("clock id")?);
        let relation = read_code(w, "relation of a host", Relation::from_code)?;
        let start = w.position();
        let count = w.count(3, "number of bounds")?;
        let mut knots: Vec<ErrorKnot> = Vec::with_capacity(count);
        for _ in 0..count {
            knots.push(ErrorKnot {
                time_ns: w.signed("time of a bound")?,
                own_ns: w.varint("bound of an error")?,
                host_ns: w.varint("bound of an error")?,
            });
        }
        if count == 0 || !knots.is_sorted_by(|a, b| a.time_ns < b.time_ns) {
            return Err(FormatError::invalid(start, "ascending bounds", count));
        }
        Ok(Self {
            clock,
            alike,
            relation,
            knots,
        })
    }
}
