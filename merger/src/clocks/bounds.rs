//! How far apart the times of two events may be from what they are, by what is known of their clocks.

use annals_format::{BootId, ClockError, ClockId, Definitions, ErrorKnot, MapCursor, UNBOUNDED};

use crate::clocks::OwnError;
use crate::clocks::hosts::Host;

/// Knots of a clock's bounds in the trace.
const MOST_KNOTS: usize = 64;

/// How wrong a clock is on its host, and its host on the axis: at every moment between which that is about linear. The
/// same for all processes whose clocks tick as one.
#[derive(Debug)]
pub(crate) struct Course<'a> {
    own: &'a OwnError,
    host: &'a Host,
    /// By reference clock, ascending.
    corners: Vec<(i64, ErrorKnot)>,
}

impl<'a> Course<'a> {
    pub(crate) fn new(own: &'a OwnError, host: &'a Host) -> Self {
        let mut moments = host.corners();
        moments.extend(own.corners());
        moments.sort_unstable();
        moments.dedup();
        let mut course = Self {
            own,
            host,
            corners: Vec::new(),
        };
        let corners = moments.into_iter();
        course.corners = corners
            .map(|moment| (moment, course.knot(moment)))
            .collect();
        course
    }

    fn knot(&self, moment: i64) -> ErrorKnot {
        ErrorKnot {
            time_ns: self.host.axis_ns(moment),
            own_ns: self.own.at(moment),
            host_ns: self.host.error_at(moment),
        }
    }

    /// Returns the bounds of a clock's error over the life of its process, both ends on the axis.
    pub(crate) fn clock_error(
        &self,
        clock: ClockId,
        alike: ClockId,
        start_ns: i64,
        end_ns: i64,
    ) -> ClockError {
        let mut inverse = MapCursor::new(&self.host.map);
        let mut reading = |time_ns: i64| {
            let reading = inverse.tick(time_ns);
            reading.clamp(i64::MIN.into(), i64::MAX.into()) as i64
        };
        let (start, end) = (reading(start_ns), reading(end_ns));
        let (first, last) = (start.min(end), start.max(end));
        let behind = |moment: i64| self.corners.partition_point(|corner| corner.0 <= moment);
        // Within the life; of one that ends before it starts, nothing.
        let from = behind(start);
        let to = behind(end.saturating_sub(1)).max(from);
        let within = self.corners[from..to].iter().map(|(_, knot)| *knot);
        let mut knots = vec![self.knot(first)];
        knots.extend(within);
        knots.push(self.knot(last));
        knots.dedup_by_key(|knot| knot.time_ns);
        ClockError {
            clock,
            alike,
            relation: self.host.relation,
            knots: thinned(knots),
        }
    }
}

/// Reduces the knots to fewer ones whose bounds are nowhere below these.
fn thinned(knots: Vec<ErrorKnot>) -> Vec<ErrorKnot> {
    // Knots that change nothing are not needed.
    let mut needed: Vec<ErrorKnot> = Vec::with_capacity(knots.len());
    for (index, knot) in knots.iter().enumerate() {
        let bounds = |knot: &ErrorKnot| (knot.own_ns, knot.host_ns);
        let is_same = |other: Option<&ErrorKnot>| other.is_some_and(|o| bounds(o) == bounds(knot));
        if !(is_same(needed.last()) && is_same(knots.get(index + 1))) {
            needed.push(*knot);
        }
    }
    if needed.len() <= MOST_KNOTS {
        return needed;
    }
    let last = needed.len() - 1;
    let place = |number: usize| number * last / (MOST_KNOTS - 1);
    let chosen = (0..MOST_KNOTS).map(|number| {
        let from = place(number.saturating_sub(1));
        let to = place((number + 1).min(MOST_KNOTS - 1));
        let around = &needed[from..=to];
        ErrorKnot {
            time_ns: needed[place(number)].time_ns,
            own_ns: around
                .iter()
                .map(|knot| knot.own_ns)
                .max()
                .unwrap_or(UNBOUNDED),
            host_ns: around
                .iter()
                .map(|knot| knot.host_ns)
                .max()
                .unwrap_or(UNBOUNDED),
        }
    });
    chosen.collect()
}

/// Error bounds of all clocks of a trace.
#[derive(Clone, Debug, Default)]
pub struct Bounds {
    /// By clock: its boot id, and what the trace says of it.
    clocks: Vec<(BootId, Option<ClockError>)>,
}

impl Bounds {
    /// Returns those that a trace, or recordings about to be merged, state.
    pub fn of(definitions: &Definitions) -> Self {
        let clocks = definitions.clocks.iter().map(|(id, clock)| {
            let process = definitions.processes.get(&clock.process);
            let error = definitions.clock_errors.get(id).cloned();
            (
                process.map_or_else(BootId::default, |process| process.boot_id),
                error,
            )
        });
        Self {
            clocks: clocks.collect(),
        }
    }

    /// Returns the bound of the error of the difference of two times on two clocks, nanoseconds. `None` means that
    /// there is no bound.
    pub fn between(&self, a: (ClockId, i64), b: (ClockId, i64)) -> Option<u64> {
        let (boot_a, error_a) = self.clocks.get(a.0.index())?;
        let (boot_b, error_b) = self.clocks.get(b.0.index())?;
        let (error_a, error_b) = (error_a.as_ref()?, error_b.as_ref()?);
        if error_a.alike == error_b.alike {
            return Some(0);
        }
        let ((own_a, host_a), (own_b, host_b)) = (error_a.at(a.1), error_b.at(b.1));
        let (host_a, host_b) = if boot_a == boot_b {
            (0, 0)
        } else {
            (host_a, host_b)
        };
        let parts = [own_a, own_b, host_a, host_b];
        let sum = parts.into_iter().try_fold(0, u64::checked_add)?;
        (sum != UNBOUNDED).then_some(sum)
    }
}
