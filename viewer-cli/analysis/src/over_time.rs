//! Efficiencies over time: those of each of several windows that follow each other.
//!
//! A window counts as a run: a call, and a wait, count with the part that lies in it; serialisation and transfer use the messages and
//! collective operations that end in it. (The idea of efficiencies as functions of time: arXiv 2512.01764.)

use annals_merger::{Query, Reader, Result, Window};

use crate::bins::{bin_start, bounded};
use crate::efficiencies::{Efficiencies, EfficiencyModel};
use crate::lost_time::{LostTime, LostTimeOptions, PhaseRow, lost_time};

/// Divides the query's window into `count` windows that are equally long, and returns the efficiencies of each, as
/// [`lost_time`] has them of that window. `None` if the definitions are not those of a whole trace. Windows without time of ranks are
/// left out.
///
/// # Errors
/// If the storage fails.
pub fn efficiencies_over_time(
    reader: &Reader,
    query: &Query,
    count: usize,
) -> Result<Option<Vec<PhaseRow>>> {
    let whole = bounded(reader, query.window());
    let losses = reader.summary()?.losses;
    let mut rows = Vec::new();
    for number in 0..count {
        let window = Window {
            from_ns: bin_start(whole, count, number),
            to_ns: bin_start(whole, count, number + 1),
        };
        let part = query.within(window);
        let Some((lost, _)) = lost_time(reader, &part, &LostTimeOptions::default())? else {
            return Ok(None);
        };
        let mut row = row_of(&lost, number as u64, window);
        if let Some(row) = &mut row {
            let mut here = losses.iter().filter(|loss| !loss.cause.is_suppressed());
            row.is_uncertain = here.any(|loss| window.overlaps(loss.from_ns, loss.to_ns));
        }
        rows.extend(row);
    }
    Ok(Some(rows))
}

fn row_of(lost: &LostTime, number: u64, window: Window) -> Option<PhaseRow> {
    let mut efficiencies = lost.efficiencies.iter();
    let efficiencies = efficiencies.find(|of| of.model == EfficiencyModel::Multiplicative)?;
    let cause = lost.causes.first();
    Some(PhaseRow {
        phase: number,
        region: String::new(),
        late_rank: cause.map(|cause| cause.rank),
        late_ns: cause.map_or(0, |cause| cause.direct_ns),
        late_region: cause.map_or_else(String::new, |cause| cause.region.clone()),
        locations: lost.threads,
        from_ns: window.from_ns,
        to_ns: window.to_ns,
        run_ns: lost.to_ns - lost.from_ns,
        efficiencies: *efficiencies,
        is_uncertain: false,
    })
}

/// When an efficiency changes most.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct EfficiencyChange {
    /// Trace time from which on it is another one, nanoseconds: where a window begins.
    pub at_ns: i64,
    /// Its name: a column of the rows.
    pub name: &'static str,
    /// Its mean before, weighted by the windows' times.
    pub before: f64,
    /// Its mean from then on.
    pub after: f64,
}

/// The least change that is said: a tenth.
const LEAST_CHANGE: f64 = 0.1;

/// Returns when a factor of the efficiency changes most between two windows, by the means of all windows before and after. `None` if none
/// changes by a tenth.
pub fn efficiency_change(rows: &[PhaseRow]) -> Option<EfficiencyChange> {
    type Factor = fn(&Efficiencies) -> Option<f64>;
    let factors: [(&str, Factor); 3] = [
        ("load balance", |of| of.load_balance),
        ("serialisation", |of| of.serialisation),
        ("transfer", |of| of.transfer),
    ];
    let mut most: Option<EfficiencyChange> = None;
    for (name, factor) in factors {
        let mean = |rows: &[PhaseRow]| PhaseRow::mean(rows, factor);
        for (at, row) in rows.iter().enumerate().skip(1) {
            let (Some(before), Some(after)) = (mean(&rows[..at]), mean(&rows[at..])) else {
                continue;
            };
            let change = (after - before).abs();
            let is_most = match most {
                None => change >= LEAST_CHANGE,
                Some(most) => change > (most.after - most.before).abs(),
            };
            if is_most {
                let at_ns = row.from_ns;
                most = Some(EfficiencyChange {
                    at_ns,
                    name,
                    before,
                    after,
                });
            }
        }
    }
    most
}
