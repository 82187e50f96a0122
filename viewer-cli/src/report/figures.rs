//! The figures of a report: each analysis once, over one window.

use std::collections::BTreeMap;

use annals_analysis::{
    BinTimes, CallOverview, Collectives, Grouping, LostTime, LostTimeOptions, Messages, PartOfRun,
    RegionTimes, SampleBy, SampleOptions, SampleRow, SampleSummary, Samples, bin_start, bounded,
    call_overview, collectives, lost_time, messages, region_times, samples,
};
use annals_format::{LocationId, ProcessId, TraceLoss};
use annals_merger::{Query, ReadSummary, Reader, Window};
use anyhow::bail;
use serde::Serialize;

use crate::table::Table;
use crate::timeline::lanes_of;
use crate::views::{INCOMPLETE_DEFINITIONS, Info, bad_end_sentence, loss_rows, shell_word, summed};

/// Rows of the overview, at most: with more ranks, some share a row.
pub const MOST_OVERVIEW_ROWS: usize = 32;
/// Parts of the window in the overview.
pub const OVERVIEW_BINS: usize = 200;
/// Rows of the table of losses, at most.
pub const MOST_LOSSES: usize = 50;

/// Consecutive ranks that share a row or a column.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct RankGroup {
    /// The first rank.
    pub first: u32,
    /// The last rank.
    pub last: u32,
}

impl RankGroup {
    /// Returns the label of a row: `rank 3` or `ranks 0-15`.
    pub fn label(self) -> String {
        match self.first == self.last {
            true => format!("rank {}", self.first),
            false => format!("ranks {}", self.numbers()),
        }
    }

    /// Returns the ranks: `3` or `0-15`.
    pub fn numbers(self) -> String {
        match self.first == self.last {
            true => self.first.to_string(),
            false => format!("{}-{}", self.first, self.last),
        }
    }
}

/// Splits ascending ranks into at most `most` groups with equal numbers of ranks; the last group may have fewer.
pub fn rank_groups(ranks: &[u32], most: usize) -> Vec<RankGroup> {
    let each = ranks.len().div_ceil(most.max(1)).max(1);
    let groups = ranks.chunks(each).filter_map(|group| {
        Some(RankGroup {
            first: *group.first()?,
            last: *group.last()?,
        })
    });
    groups.collect()
}

/// A row of the overview: the first thread of each of some ranks.
#[derive(Clone, Debug, Serialize)]
pub struct OverviewRow {
    /// Their ranks.
    pub ranks: RankGroup,
    /// By part of the window: times in MPI and idle.
    pub bins: Vec<BinTimes>,
    /// By part of the window: how long these processes ran, nanoseconds.
    pub life_ns: Vec<i64>,
    /// By part of the window: how long the part is, once for each process, nanoseconds.
    pub whole_ns: Vec<i64>,
}

/// The figures of a run.
#[derive(Debug, Serialize)]
pub struct RunFigures {
    /// Name of the input: that of the file or directory.
    pub title: String,
    /// The input as a word of a shell.
    #[serde(skip)]
    pub input: String,
    /// What the input is.
    pub info: Info,
    /// Start of the window, trace time in nanoseconds.
    pub from_ns: i64,
    /// End of the window, trace time in nanoseconds.
    pub to_ns: i64,
    /// How the window was chosen.
    pub choice: PartOfRun,
    /// The filter that chose the events. `None` means all.
    pub filter: Option<String>,
    /// How a run ended that did not end well. `None`: it ended well, it runs, or only a part of its time was chosen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end: Option<String>,
    /// Efficiencies, wait states and their causes, and the critical path.
    pub lost_time: LostTime,
    /// Times of regions.
    pub regions: RegionTimes,
    /// Messages. `None` if no event type is one.
    pub messages: Option<Messages>,
    /// Collective operations. `None` if no event type begins one.
    pub collectives: Option<Collectives>,
    /// Where sampled threads spent processor time, by function. `None` without samples.
    #[serde(skip)]
    pub samples: Option<(Vec<SampleRow>, SampleSummary)>,
    /// Rows about the losses of the most events.
    #[serde(skip)]
    pub losses: Table,
    /// Number of rows about losses, with those that are left out.
    pub loss_rows: usize,
    /// The longest calls.
    pub calls: CallOverview,
    /// The overview of time.
    pub overview: Vec<OverviewRow>,
    /// Whether this read had to skip something.
    pub has_skipped_now: bool,
}

/// What a report is about.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// The opened input.
    pub opened: &'a Reader,
    /// Name of the input: that of the file or directory.
    pub title: &'a str,
    /// Path of the input.
    pub path: &'a str,
    /// The events that count.
    pub query: &'a Query,
    /// How their window was chosen.
    pub choice: PartOfRun,
    /// The filter that chose them, in words. `None` means all.
    pub filter: Option<&'a str>,
}

/// The figures that need no wait states.
struct Others {
    regions: RegionTimes,
    messages: Option<Messages>,
    collectives: Option<Collectives>,
    samples: Option<(Vec<SampleRow>, SampleSummary)>,
    calls: CallOverview,
    overview: Vec<OverviewRow>,
}

impl Others {
    fn of(opened: &Reader, query: &Query) -> anyhow::Result<Self> {
        let (calls, overview) = overview(opened, query)?;
        let found = samples(opened, query, SampleOptions::default())?;
        let of_function = |(found, _): (Samples<'_>, ReadSummary)| {
            let rows = found.rows(SampleBy::Function, Grouping::None);
            (rows, found.summary)
        };
        Ok(Self {
            samples: found.map(of_function),
            regions: region_times(opened, query, Grouping::None)?.0,
            messages: messages(opened, query)?.map(|(found, _)| found),
            collectives: collectives(opened, query)?.map(|(found, _)| found),
            calls,
            overview,
        })
    }
}

impl RunFigures {
    /// Computes them. Returns the outcome of reading, too.
    ///
    /// # Errors
    /// If the input cannot be read, or its definitions are not those of a whole trace.
    pub fn of(subject: &Subject<'_>) -> anyhow::Result<(Self, ReadSummary)> {
        let (opened, query) = (subject.opened, subject.query);
        // Finding wait states takes as long as all other passes together.
        let options = LostTimeOptions {
            critical_path: true,
            ..LostTimeOptions::default()
        };
        let (lost_time, others) = rayon::join(
            || lost_time(opened, query, &options),
            || Others::of(opened, query),
        );
        let Some((lost_time, mut outcome)) = lost_time? else {
            bail!(INCOMPLETE_DEFINITIONS);
        };
        let others = others?;
        let whole = opened.summary()?;
        outcome.has_skipped_now |= whole.has_skipped_now;
        let (losses, loss_rows) = losses(opened, query, &whole);
        let window = bounded(opened, query.window());
        let end = match subject.choice {
            PartOfRun::Given => None,
            _ => bad_end_sentence(opened)?,
        };
        let figures = Self {
            end,
            title: subject.title.to_owned(),
            input: shell_word(subject.path),
            info: Info::of(opened, &whole),
            from_ns: window.from_ns,
            to_ns: window.to_ns.min(opened.extent().end_ns).max(window.from_ns),
            choice: subject.choice,
            filter: subject.filter.map(str::to_owned),
            lost_time,
            regions: others.regions,
            messages: others.messages,
            collectives: others.collectives,
            samples: others.samples,
            losses,
            loss_rows,
            calls: others.calls,
            overview: others.overview,
            has_skipped_now: outcome.has_skipped_now,
        };
        Ok((figures, outcome))
    }
}

/// Returns a table of the losses of most events, and the number of rows that the table of all losses would have.
fn losses(opened: &Reader, query: &Query, whole: &ReadSummary) -> (Table, usize) {
    let here = whole
        .losses
        .iter()
        .filter(|loss| query.takes_loss(loss) && query.window().overlaps(loss.from_ns, loss.to_ns));
    let here: Vec<TraceLoss> = here.copied().collect();
    let mut rows = summed(&here);
    let count = rows.len();
    rows.sort_by_key(|loss| std::cmp::Reverse(loss.count));
    rows.truncate(MOST_LOSSES);
    (Table::of(&loss_rows(opened, &rows)), count)
}

/// Computes the longest calls, and the overview of the first thread of each process.
fn overview(opened: &Reader, query: &Query) -> anyhow::Result<(CallOverview, Vec<OverviewRow>)> {
    let definitions = opened.definitions();
    let mut first: BTreeMap<ProcessId, LocationId> = BTreeMap::new();
    let mut order: Vec<(u32, ProcessId)> = Vec::new();
    for id in lanes_of(definitions, query) {
        let process = definitions
            .locations
            .get(&id)
            .map(|location| location.process);
        let Some(process) = process else { continue };
        first.entry(process).or_insert_with(|| {
            order.push((definitions.rank_of(process), process));
            id
        });
    }
    let each = order.len().div_ceil(MOST_OVERVIEW_ROWS).max(1);
    let mut row_of: BTreeMap<LocationId, usize> = BTreeMap::new();
    for (place, (_, process)) in order.iter().enumerate() {
        row_of.insert(first[process], place / each);
    }
    let count = order.len().div_ceil(each);
    let row_of = |id: LocationId| row_of.get(&id).copied();
    let (mut calls, _) = call_overview(opened, query, count, OVERVIEW_BINS, row_of)?;
    let window = bounded(opened, query.window());
    let border_ns = |bin: i64| {
        let passed_ns = calls.bin_ns.saturating_mul(bin);
        window.from_ns.saturating_add(passed_ns).min(window.to_ns)
    };
    let parts = (0..OVERVIEW_BINS as i64).map(|bin| Window {
        from_ns: border_ns(bin),
        to_ns: border_ns(bin + 1),
    });
    let parts: Vec<Window> = parts.collect();
    let rows = std::mem::take(&mut calls.rows).into_iter();
    let rows = rows.zip(order.chunks(each)).filter_map(|(bins, members)| {
        let lives = members.iter().map(|(_, process)| {
            let end = definitions.process_ends.get(process);
            end.map_or((0, opened.extent().end_ns), |end| {
                (end.start_ns, end.end_ns)
            })
        });
        let lives: Vec<(i64, i64)> = lives.collect();
        let life_in = |part: &Window| -> i64 {
            let each = lives.iter();
            each.map(|life| part.clip(life.0, life.1))
                .fold(0, i64::saturating_add)
        };
        Some(OverviewRow {
            ranks: RankGroup {
                first: members.first()?.0,
                last: members.last()?.0,
            },
            life_ns: parts.iter().map(life_in).collect(),
            whole_ns: parts
                .iter()
                .map(|part| {
                    part.clip(part.from_ns, part.to_ns)
                        .saturating_mul(members.len() as i64)
                })
                .collect(),
            bins,
        })
    });
    let rows = rows.collect();
    Ok((calls, rows))
}

impl RunFigures {
    /// Returns the time at which a tenth of the window begins, trace time in nanoseconds.
    pub fn tenth_ns(&self, tenth: usize) -> i64 {
        let window = Window {
            from_ns: self.from_ns,
            to_ns: self.to_ns,
        };
        bin_start(window, 10, tenth)
    }
}
