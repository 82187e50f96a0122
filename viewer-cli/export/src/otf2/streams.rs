//! Where the events of a stream are written, and at which times.

use annals_format::{ClockMap, MapCursor, ProcessId};

/// The ticks of a stream's clock.
pub(crate) struct StreamTicks<'a> {
    pub(crate) cursor: MapCursor<'a>,
    pub(crate) map: &'a ClockMap,
    /// Of a map of one piece, where that starts and its run and rise, small enough for 64 bits.
    pub(crate) line: Option<(i64, i128, u64, u64)>,
}

impl<'a> StreamTicks<'a> {
    pub(crate) fn of(map: &'a ClockMap) -> Self {
        let line = match map.knots[..] {
            [(tick_a, time_a), (tick_b, time_b)] => {
                let run = u64::try_from(tick_b - tick_a).ok();
                let rise = u64::try_from(i128::from(time_b) - i128::from(time_a)).ok();
                let pair = run
                    .zip(rise)
                    .filter(|(run, rise)| run.checked_mul(*rise).is_some());
                pair.map(|(run, rise)| (time_a, tick_a, run, rise))
            }
            _ => None,
        };
        Self {
            cursor: MapCursor::new(map),
            map,
            line,
        }
    }

    /// Returns the tick of a time, like the cursor but faster.
    pub(crate) fn tick(&mut self, time_ns: i64) -> i128 {
        if let Some((time_a, tick_a, run, rise)) = self.line
            && let Some(passed) = time_ns.checked_sub(time_a)
            && let Ok(passed) = u64::try_from(passed)
        {
            // Whole rises and the rest: rounded down as the whole would be.
            let whole = i128::from(passed / rise) * i128::from(run);
            return tick_a + whole + i128::from(passed % rise * run / rise);
        }
        self.cursor.tick(time_ns)
    }
}

/// Where a stream's events go.
pub(crate) struct StreamPlace<'a> {
    pub(crate) process: Option<ProcessId>,
    /// The archive that it is of.
    pub(crate) archive: Option<usize>,
    /// Group of event types: one for each archive, whose processes share them, and the last one for
    /// ours.
    pub(crate) group: usize,
    /// Its location, if it has one: markers have none.
    pub(crate) location: Option<usize>,
    pub(crate) ticks: Option<StreamTicks<'a>>,
}

impl StreamPlace<'_> {
    /// Returns the time in the archive: the ticks of its clock, or nanoseconds of the trace.
    #[inline]
    pub(crate) fn time(&mut self, has_own_ticks: bool, time_ns: i64, residual: i64) -> u64 {
        match has_own_ticks {
            true => self.raw_tick(time_ns, residual),
            false => u64::try_from(time_ns).unwrap_or(0),
        }
    }

    /// Returns the tick that the stream's clock had.
    pub(crate) fn raw_tick(&mut self, time_ns: i64, residual: i64) -> u64 {
        self.ticks.as_mut().map_or(0, |ticks| {
            let tick = ticks.tick(time_ns).saturating_add(residual.into());
            tick.clamp(0, u64::MAX.into()) as u64
        })
    }
}
