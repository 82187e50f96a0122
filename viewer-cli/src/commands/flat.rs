//! `trace-cli flat`: how evenly the work is spread over ranks or locations, and which of them are
//! slow.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;

use annals_analysis::{
    Group, Grouping, LocationNames, OUTSIDE, RegionStats, RunTime, Statistics, is_mostly_silent,
    region_statistics, run_times, silent_times, starts_or_ends_mpi, task_locations, waits_mark,
};
use annals_format::{Definitions, RegionId};
use annals_merger::{Query, ReadSummary, Reader, Window};
use clap::{Args, ValueEnum};
use serde::Serialize;

use super::{InputArguments, warn_of_damage};
use crate::filter::{FilterArguments, WindowArguments};
use crate::names::shorten;
use crate::output::{Finding, RowsArguments};
use crate::table::safe;
use crate::time;
use crate::views::{SENTENCE_NAME, start_and_end_sentence};

/// Load balance: time in each region by rank or location.
///
/// For each region the mean over all ranks (or locations) that the filter selects and that have region events, the
/// largest, its rank or location, and the ratio of both. `~` marks what a loss may have changed.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:\n  trace-cli flat run.annals\n  \
                  trace-cli flat run.annals --by location --region solve\n  \
                  trace-cli flat run.annals --csv > flat.csv    # a row for each region and rank")]
pub struct FlatArguments {
    #[command(flatten)]
    input: InputArguments,
    #[command(flatten)]
    window: WindowArguments,
    #[command(flatten)]
    filter: FilterArguments,

    /// Unit of comparison; of a single rank with several locations, locations, otherwise ranks
    #[arg(long, value_name = "WHAT")]
    by: Option<By>,

    /// Time with the regions that were called
    #[arg(long)]
    inclusive: bool,

    #[command(flatten)]
    rows: RowsArguments,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum By {
    Rank,
    Location,
}

/// The share of one rank or location in a region.
#[derive(Clone, Debug)]
struct Share {
    region: String,
    rank: u32,
    location: Option<String>,
    calls: u64,
    uncertain_calls: u64,
    inclusive_ns: i64,
    exclusive_ns: i64,
    silent_ns: i64,
    time_is_uncertain: bool,
}

annals_analysis::columns! {
    Share;
    "region" Name, |row| &row.region;
    "rank" Number, |row| row.rank;
    "location" Name, |row| &row.location;
    "calls" Count, |row| row.calls;
    "uncertain_calls" Count, |row| row.uncertain_calls;
    "inclusive_ns" Duration, |row| row.inclusive_ns;
    "exclusive_ns" Duration, |row| row.exclusive_ns;
    "time_is_uncertain" Flag, |row| row.time_is_uncertain;
}

/// A region over all of them.
#[derive(Clone, Debug)]
struct FlatRow {
    name: String,
    calls: u64,
    min_ns: i64,
    mean_ns: i64,
    max_ns: i64,
    sum_ns: i64,
    /// The largest share of time over the mean; null when the mean is 0.
    imbalance: Option<f64>,
    slowest_rank: u32,
    slowest_location: Option<String>,
    time_is_uncertain: bool,
    /// Whether most of its time may only be a wait for the ends of threads.
    may_wait: bool,
    shares: Vec<Share>,
}

impl FlatRow {
    fn slowest(&self) -> String {
        let location = self.slowest_location.as_ref();
        let location = location.map_or_else(String::new, |name| format!(" {name}"));
        format!("rank {}{location}", self.slowest_rank)
    }
}

annals_analysis::columns! {
    FlatRow, uncertain time_is_uncertain, json shares;
    "region" Name, |row| &row.name;
    "" Name headed "region", |row| row.name.clone() + waits_mark(&row.name, row.may_wait);
    "calls" Count headed "calls", |row| row.calls;
    "min_ns" Duration marked_if_room "min", |row| row.min_ns;
    "mean_ns" Duration marked "mean", |row| row.mean_ns;
    "max_ns" Duration marked "max", |row| row.max_ns;
    "sum_ns" Duration, |row| row.sum_ns;
    "imbalance" Number headed "max/mean", |row| row.imbalance;
    "slowest_rank" Number, |row| row.slowest_rank;
    "slowest_location" Name, |row| &row.slowest_location;
    "" Name headed "slowest", |row| row.slowest();
    "time_is_uncertain" Flag, |row| row.time_is_uncertain;
    "may_wait" Flag, |row| row.may_wait;
}

#[derive(Clone, Debug, Serialize)]
struct Flat {
    by: &'static str,
    time: &'static str,
    /// How many ranks or locations there are.
    groups: usize,
    regions: Vec<FlatRow>,
}

fn share(
    definitions: &Definitions,
    names: &LocationNames,
    group: Group,
    stats: &RegionStats,
) -> Share {
    let (rank, location) = match group {
        Group::All => (0, None),
        Group::Rank(rank) => (rank, None),
        Group::Location(id) => {
            let name = names.get(id).to_owned();
            (definitions.rank_of_location(id), Some(name))
        }
    };
    Share {
        region: String::new(),
        rank,
        location,
        calls: stats.counted.calls,
        uncertain_calls: stats.uncertain_calls,
        inclusive_ns: stats.counted.inclusive_ns,
        exclusive_ns: stats.counted.exclusive_ns,
        silent_ns: 0,
        time_is_uncertain: stats.counted.is_time_uncertain,
    }
}

fn is_seen(stats: &RegionStats) -> bool {
    stats.counted.calls != 0
        || stats.counted.inclusive_ns != 0
        || stats.counted.unmatched_leaves != 0
}

/// Returns the time that each group spent in no region, as a region of that name.
fn outside_row(
    opened: &Reader,
    names: &LocationNames,
    statistics: &Statistics,
    run_times: &BTreeMap<Group, RunTime>,
) -> Option<(String, Vec<Share>)> {
    // One pass: there may be tens of thousands of groups.
    let mut outside: BTreeMap<Group, (RunTime, bool)> = BTreeMap::new();
    outside.extend(
        run_times
            .iter()
            .map(|(group, time)| (*group, (*time, false))),
    );
    for ((group, _), stats) in statistics {
        if let Some((time, is_uncertain)) = outside.get_mut(group) {
            *time = time.outside_of([&stats.counted]);
            *is_uncertain |= stats.counted.is_time_uncertain || stats.uncertain_calls != 0;
        }
    }
    let shares = outside.into_iter().map(|(group, (time, is_uncertain))| {
        let time_ns = time.time_ns.max(0);
        Share {
            exclusive_ns: time_ns,
            inclusive_ns: time_ns,
            time_is_uncertain: is_uncertain || time.more_ns != 0,
            ..share(opened.definitions(), names, group, &RegionStats::default())
        }
    });
    let shares: Vec<Share> = shares.collect();
    let is_any = shares.iter().any(|share| share.exclusive_ns > 0);
    is_any.then(|| (OUTSIDE.to_owned(), shares))
}

/// Compares the groups region by region. Returns the number of groups, and a row for each region.
fn table(
    opened: &Reader,
    statistics: &Statistics,
    run_times: &BTreeMap<Group, RunTime>,
    silent: &BTreeMap<(Group, RegionId), i64>,
    filter: &Query,
    is_inclusive: bool,
) -> (usize, Vec<FlatRow>) {
    let names = LocationNames::new(opened.definitions());
    let seen = statistics
        .iter()
        .filter(|(_, stats)| is_seen(stats) || stats.uncertain_calls != 0);
    let mut groups: BTreeSet<Group> = seen.map(|((group, _), _)| *group).collect();
    groups.extend(run_times.keys());
    let outside = outside_row(opened, &names, statistics, run_times);
    let mut regions: BTreeMap<RegionId, Vec<Share>> = BTreeMap::new();
    for ((group, region), stats) in statistics {
        if filter.takes_region(*region) && (is_seen(stats) || stats.uncertain_calls != 0) {
            let shares = regions.entry(*region).or_default();
            shares.push(Share {
                silent_ns: silent.get(&(*group, *region)).copied().unwrap_or(0),
                ..share(opened.definitions(), &names, *group, stats)
            });
        }
    }
    let time = |share: &Share| {
        if is_inclusive {
            share.inclusive_ns
        } else {
            share.exclusive_ns
        }
    };
    let regions = regions.into_iter();
    let regions =
        regions.map(|(region, shares)| (opened.definitions().region_name(region), shares));
    // Of chosen regions, what is outside of them is in others.
    let outside = outside.filter(|_| !filter.is_by_region());
    let rows = regions.chain(outside).filter_map(|(name, mut shares)| {
        for share in &mut shares {
            share.region.clone_from(&name);
        }
        let sum: i128 = shares.iter().map(|share| i128::from(time(share))).sum();
        // The first of several is named.
        let slowest = shares.iter().rev().max_by_key(|share| time(share))?.clone();
        let max = time(&slowest);
        let mean = sum as f64 / groups.len() as f64;
        let smallest = shares.iter().map(time).min().unwrap_or(0);
        Some(FlatRow {
            name,
            calls: shares.iter().map(|share| share.calls).sum(),
            // Groups without the region have 0.
            min_ns: if shares.len() < groups.len() {
                0
            } else {
                smallest
            },
            mean_ns: mean as i64,
            max_ns: max,
            sum_ns: sum as i64,
            imbalance: (sum != 0).then(|| max as f64 / mean),
            slowest_rank: slowest.rank,
            slowest_location: slowest.location,
            time_is_uncertain: shares.iter().any(|share| share.time_is_uncertain),
            may_wait: is_mostly_silent(
                shares.iter().map(|share| share.silent_ns).sum(),
                shares.iter().map(|share| share.exclusive_ns).sum(),
            ),
            shares,
        })
    });
    let mut rows: Vec<FlatRow> = rows.collect();
    rows.sort_by(|a, b| (b.max_ns, &a.name).cmp(&(a.max_ns, &b.name)));
    (groups.len(), rows)
}

fn read(
    arguments: &FlatArguments,
    opened: &Reader,
    window: Window,
    by: &str,
    grouping: Grouping,
) -> anyhow::Result<(usize, Vec<FlatRow>, String, ReadSummary)> {
    let filter = arguments.filter.query(opened.definitions(), window)?;
    let (found, outcome) = region_statistics(opened, &filter, grouping)?;
    let run_times = run_times(opened, &filter, grouping)?;
    let silent = silent_times(opened, &filter, grouping, &found)?;
    let (groups, rows) = table(
        opened,
        &found,
        &run_times,
        &silent,
        &filter,
        arguments.inclusive,
    );
    let whole = match window == Window::ALL {
        true => "the whole run",
        false => "the window",
    };
    let sentence = sentence(by, whole, groups, &rows);
    let start_and_end = found
        .iter()
        .filter(|((_, region), _)| starts_or_ends_mpi(&opened.definitions().region_name(*region)));
    let start_and_end = start_and_end
        .map(|(_, stats)| stats.counted.exclusive_ns)
        .sum();
    let run_ns = run_times.values().map(|time| time.time_ns).sum();
    let sentence = sentence + &start_and_end_sentence(start_and_end, run_ns, whole);
    Ok((groups, rows, sentence, outcome))
}

/// Returns in one sentence in which region ranks or locations differ most, by the time that the slowest takes more than the
/// mean.
fn sentence(by: &str, whole: &str, groups: usize, rows: &[FlatRow]) -> String {
    let rows = || rows.iter().filter(|row| !starts_or_ends_mpi(&row.name));
    let excess = |row: &&FlatRow| row.max_ns - row.mean_ns;
    let slowest = |row: &FlatRow| safe(&row.slowest());
    let name = |row: &FlatRow| shorten(&safe(&row.name), SENTENCE_NAME);
    let max = |row: &FlatRow| {
        let mark = if row.time_is_uncertain { "about " } else { "" };
        format!("{mark}{}", time::duration(row.max_ns))
    };
    // What may only have waited for work is named after it.
    let longest = rows().max_by_key(|row| (!row.may_wait && row.max_ns > 0, row.max_ns));
    let Some(longest) = longest.filter(|row| row.max_ns > 0) else {
        return format!("In {whole}, no time was spent in regions.");
    };
    if groups < 2 {
        return format!(
            "With one {by} there is nothing to compare: in {whole}, {} spent most time, {}, in {}.",
            slowest(longest),
            max(longest),
            name(longest)
        );
    }
    let work = rows().filter(|row| !row.may_wait);
    match work.max_by_key(excess).filter(|row| excess(row) > 0) {
        None => format!("In {whole}, all {groups} {by}s spent equal times in every region."),
        Some(row) => format!(
            "In {whole}, the {by}s differ most in {}: {} spent {} in it, {} more than the mean of {} over {groups} {by}s.",
            name(row),
            slowest(row),
            max(row),
            time::duration(row.max_ns - row.mean_ns),
            time::duration(row.mean_ns)
        ),
    }
}

/// Runs the command.
///
/// # Errors
/// If the input cannot be read, a filter matches nothing, or the output cannot be written.
pub fn run(arguments: &FlatArguments, out: &mut dyn Write) -> anyhow::Result<Finding> {
    let (opened, window) = arguments.input.open_window(&arguments.window)?;
    let definitions = opened.definitions();
    let tasks = task_locations(&opened)?;
    let by = arguments.by.unwrap_or_else(|| {
        let threads = definitions.locations.values();
        let threads = threads.filter(|of| !tasks.contains(&of.id));
        let mut processes = threads.map(|of| of.process);
        let first = processes.next();
        let mut others = processes.peekable();
        match others.peek().is_some() && others.all(|of| Some(of) == first) {
            true => By::Location,
            false => By::Rank,
        }
    });
    let (by, grouping) = match by {
        By::Rank => ("rank", Grouping::Rank),
        By::Location => ("location", Grouping::Location),
    };
    let (groups, mut regions, sentence, outcome) = read(arguments, &opened, window, by, grouping)?;
    if arguments.input.json || arguments.rows.csv {
        // It is no region; `regions --json` has it apart.
        regions.retain(|row| row.name != OUTSIDE);
    }
    warn_of_damage(&opened, &outcome);
    if arguments.input.json {
        let time = if arguments.inclusive {
            "inclusive"
        } else {
            "exclusive"
        };
        let total = arguments.rows.cut(&mut regions);
        let flat = Flat {
            by,
            time,
            groups,
            regions,
        };
        arguments.rows.json(out, &flat, total)?;
    } else if arguments.rows.csv {
        let shares: Vec<Share> = regions.into_iter().flat_map(|row| row.shares).collect();
        arguments.rows.put(out, &shares, arguments.input.screen())?;
    } else {
        writeln!(out, "{sentence}\n")?;
        arguments
            .rows
            .put(out, &regions, arguments.input.screen())?;
    }
    Ok(Finding::loss(outcome.has_skipped_now))
}
