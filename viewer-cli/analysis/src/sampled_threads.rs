//! Extra work of a rank whose communicating thread waited for others of its process: the function in which all of them together used more
//! processor time than those of other ranks, by their samples.

use std::collections::{BTreeMap, BTreeSet};

use annals_merger::{Query, Reader, Result};

use crate::lost_time_rows::{CauseRow, SampledLine};
use crate::region_statistics::Grouping;
use crate::sampled_work::{difference_error_ns, is_code_of_program};
use crate::samples::{SampleBy, SampleOptions, SampleRow, Samples, samples};

/// A function: its name, and the file that contains it.
type Function = (String, String);

/// Names the function in causes whose extra work is in a place in which their thread may only have waited for others. Reads the samples
/// only where there is such a cause.
///
/// # Errors
/// If the storage fails.
pub(crate) fn name_sampled_threads(
    reader: &Reader,
    query: &Query,
    causes: &mut [CauseRow],
) -> Result<()> {
    let waits = |cause: &CauseRow| {
        let first = cause.extra.first();
        cause.is_sampled && first.is_some_and(|extra| extra.may_wait_for_threads)
    };
    if !causes.iter().any(waits) {
        return Ok(());
    }
    let options = SampleOptions {
        outside_mpi: true,
        in_order: false,
    };
    let Some((samples, _)) = samples(reader, query, options)? else {
        return Ok(());
    };
    let work = RankWork::of(&samples);
    for cause in causes.iter_mut().filter(|cause| waits(cause)) {
        // How late it was, in all.
        let late_ns = cause.direct_ns / cause.waiting_ranks.max(1) as i64;
        let found = work.function(cause.rank, late_ns);
        if let (Some(found), Some(extra)) = (found, cause.extra.first_mut()) {
            extra.path = vec![found.name];
            extra.distinct = 1;
            extra.line = found.line;
            extra.sampling_error_ns = (found.error * extra.cost_ns as f64) as i64;
        }
    }
    Ok(())
}

/// Processor time of all threads of ranks, by function and by its lines.
struct RankWork {
    ranks: BTreeSet<u32>,
    period_ns: f64,
    functions: BTreeMap<Function, BTreeMap<u32, SampleRow>>,
    lines: Vec<SampleRow>,
}

/// A function in which a rank worked longer.
struct Found {
    name: String,
    line: Option<SampledLine>,
    /// By how much the time may differ because of samples, two standard deviations, as a share.
    error: f64,
}

impl RankWork {
    fn of(samples: &Samples<'_>) -> Self {
        let mut functions: BTreeMap<Function, BTreeMap<u32, SampleRow>> = BTreeMap::new();
        for row in samples.rows(SampleBy::Function, Grouping::Rank) {
            if let (Some(name), Some(rank)) = (&row.names.function, row.rank)
                && !row.names.module.is_empty()
                && is_code_of_program(&row.names.module, &row.names.file)
            {
                let key = (name.clone(), row.names.module.clone());
                functions.entry(key).or_default().insert(rank, row);
            }
        }
        let ways = &samples.summary.sampling;
        let periods = ways.iter().filter_map(|way| way.period_ns);
        Self {
            ranks: ways
                .iter()
                .flat_map(|way| way.ranks.iter().copied())
                .collect(),
            period_ns: periods.max().unwrap_or(0) as f64,
            functions,
            lines: samples.rows(SampleBy::Line, Grouping::Rank),
        }
    }

    /// Returns the function in which a rank used more processor time than the mean of the others, by at least a quarter of `late_ns` (threads
    /// that share processors take longer than their processor time) and by more than twice the standard deviation of both: one that worked
    /// so much longer itself, or else the one with the least time.
    fn function(&self, rank: u32, late_ns: i64) -> Option<Found> {
        let each = self.functions.iter().filter_map(|(function, by_rank)| {
            let (more_ns, error_ns) = self.difference(by_rank, rank, |row| row.total.time_ns);
            let is_extra = |more_ns: f64| more_ns > error_ns && 4.0 * more_ns >= late_ns as f64;
            let (itself_ns, _) = self.difference(by_rank, rank, |row| row.own.time_ns);
            let total_ns = by_rank.get(&rank)?.total.time_ns;
            let order = match is_extra(itself_ns) {
                true => (0, -itself_ns as i64),
                false => (1, total_ns),
            };
            is_extra(more_ns).then_some((order, function, error_ns / more_ns))
        });
        let (_, function, error) = each.min_by_key(|(order, ..)| *order)?;
        let lines = self.lines.iter().filter(|row| {
            row.rank == Some(rank)
                && row.names.function.as_ref() == Some(&function.0)
                && row.names.module == function.1
                && row.names.line != 0
        });
        let line = lines.max_by_key(|row| row.total.time_ns);
        Some(Found {
            name: function.0.clone(),
            line: line.map(|row| SampledLine {
                file: row.names.file.clone(),
                line: row.names.line,
            }),
            error,
        })
    }

    /// Returns by how much a time of a rank is larger than the mean of the others, and twice the standard deviation of that, nanoseconds.
    fn difference(
        &self,
        by_rank: &BTreeMap<u32, SampleRow>,
        rank: u32,
        time_ns: impl Fn(&SampleRow) -> i64,
    ) -> (f64, f64) {
        let peers = self.ranks.len().saturating_sub(1).max(1);
        let own_ns = by_rank.get(&rank).map_or(0, &time_ns);
        let others_ns = by_rank.iter().filter(|(other, _)| **other != rank);
        let sum_ns: i64 = others_ns.map(|(_, row)| time_ns(row)).sum();
        let mean_ns = sum_ns as f64 / peers as f64;
        let error_ns = difference_error_ns(own_ns, mean_ns, peers, self.period_ns);
        (own_ns as f64 - mean_ns, error_ns)
    }
}
