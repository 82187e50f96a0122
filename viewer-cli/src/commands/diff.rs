//! `trace-cli diff`: what changed from one trace to another.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;

use annals_analysis::{Grouping, RegionStats, region_statistics};
use annals_merger::{ReadSummary, Reader, Window};
use clap::{Args, ValueEnum};
use serde::Serialize;

use super::{InputArguments, warn_of_damage};
use crate::filter::{FilterArguments, WindowArguments};
use crate::output::{Finding, RowsArguments, UsageError};
use crate::time;

/// Regions that got slower or faster, are new or gone, in a second run.
///
/// A region has changed when its time differs by more than --threshold percent of the first trace's and by more than
/// --least. With --check, exit code 1 means that a region got slower or is new, for CI; a difference that losses may
/// explain (`~`) does not count.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Examples:\n  trace-cli diff before.annals after.annals\n  \
                  trace-cli diff before.annals after.annals --of mean --threshold 5 --check\n\n\
                  Exit codes: 0 fine (without --check: also when something changed), 1 slower (with --check) or \
                  failed, 2 wrong usage, 3 finished, but data had to be skipped."
)]
pub struct DiffArguments {
    #[command(flatten)]
    input: InputArguments,

    /// The trace to compare with it
    #[arg(value_name = "OTHER")]
    other: PathBuf,

    #[command(flatten)]
    window: WindowArguments,
    #[command(flatten)]
    filter: FilterArguments,

    /// Quantity that is compared
    #[arg(long, value_name = "WHAT", default_value = "exclusive")]
    of: Of,

    /// Smallest change to report, percent
    #[arg(long, value_name = "PERCENT", default_value_t = 10.0)]
    threshold: f64,

    /// Smallest change to report, as time (calls: any)
    #[arg(long, value_name = "TIME", value_parser = annals_format::units::parse_time, default_value = "0s")]
    least: i64,

    /// Show all regions, including those that have not changed
    #[arg(long)]
    all: bool,

    #[command(flatten)]
    rows: RowsArguments,

    /// Exit code 1 when a region got slower or is new
    #[arg(long)]
    check: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
enum Of {
    /// Time in the region itself.
    Exclusive,
    /// Time in it and in what it called.
    Inclusive,
    /// Mean duration of a call.
    Mean,
    /// Number of calls.
    Calls,
}

impl Of {
    fn value(self, stats: &RegionStats) -> i64 {
        match self {
            Self::Exclusive => stats.counted.exclusive_ns,
            Self::Inclusive => stats.counted.inclusive_ns,
            Self::Mean => stats.counted.completed.mean().unwrap_or(0),
            Self::Calls => stats.counted.calls as i64,
        }
    }

    fn text(self, value: i64) -> String {
        match self {
            Self::Calls => value.to_string(),
            _ => time::duration(value),
        }
    }

    fn is_uncertain(self, stats: &RegionStats) -> bool {
        match self {
            Self::Calls => stats.uncertain_calls != 0 || stats.uncertain_is_lower_bound,
            _ => stats.counted.is_time_uncertain,
        }
    }
}

#[derive(Clone, Debug)]
struct DiffRow {
    of: Of,
    name: String,
    /// `slower`, `faster`, `new`, `gone` or `same`.
    change: &'static str,
    /// The compared quantity in both traces: ns, or calls.
    before: i64,
    after: i64,
    difference: i64,
    /// Null when it was 0 before.
    percent: Option<f64>,
    calls_before: u64,
    calls_after: u64,
    is_uncertain: bool,
}

annals_analysis::columns! {
    DiffRow, uncertain is_uncertain;
    "region" Name headed "region", |row| &row.name;
    "change" Text headed "change", |row| row.change;
    "before" Number, |row| row.before;
    "after" Number, |row| row.after;
    "difference" Number, |row| row.difference;
    "" Number marked "before", |row| row.of.text(row.before);
    "" Number marked "after", |row| row.of.text(row.after);
    "" Number marked "difference", |row| row.of.text(row.difference);
    "percent" Number headed "%", |row| row.percent;
    "calls_before" Count if_room "calls before", |row| row.calls_before;
    "calls_after" Count if_room "calls after", |row| row.calls_after;
    "is_uncertain" Flag, |row| row.is_uncertain;
}

#[derive(Clone, Debug, Serialize)]
struct Diff {
    of: Of,
    slower: usize,
    faster: usize,
    new: usize,
    gone: usize,
    regions: Vec<DiffRow>,
}

fn by_name(
    opened: &Reader,
    arguments: &DiffArguments,
) -> anyhow::Result<(BTreeMap<String, RegionStats>, ReadSummary)> {
    let definitions = opened.definitions();
    let window = arguments.window.window()?;
    // A region that only the other trace has is no mistake.
    let mut only_events = arguments.filter.clone();
    let names = only_events.region.take();
    let filter = only_events.query(definitions, window)?;
    let (found, outcome) = region_statistics(opened, &filter, Grouping::None)?;
    let mut named: BTreeMap<String, RegionStats> = BTreeMap::new();
    for ((_, region), stats) in found {
        let name = definitions.region_name(region);
        if names.as_ref().is_none_or(|names| names.is_match(&name)) {
            named.entry(name).or_default().add(&stats);
        }
    }
    Ok((named, outcome))
}

fn compare(
    before: &BTreeMap<String, RegionStats>,
    after: &BTreeMap<String, RegionStats>,
    arguments: &DiffArguments,
) -> Vec<DiffRow> {
    let mut names: Vec<&String> = before.keys().chain(after.keys()).collect();
    names.sort_unstable();
    names.dedup();
    let none = RegionStats::default();
    let is_seen = |stats: &RegionStats| stats.counted.calls != 0 || stats.counted.inclusive_ns != 0;
    let rows = names.into_iter().filter_map(|name| {
        let (a, b) = (
            before.get(name).unwrap_or(&none),
            after.get(name).unwrap_or(&none),
        );
        let (from, to) = (arguments.of.value(a), arguments.of.value(b));
        let difference = to.saturating_sub(from);
        let share = |from: i64| difference as f64 * 100.0 / from as f64;
        let percent = (from != 0).then(|| share(from));
        let least = if arguments.of == Of::Calls {
            0
        } else {
            arguments.least
        };
        let is_large = percent.is_none_or(|percent| percent.abs() > arguments.threshold)
            && difference.unsigned_abs() > least.unsigned_abs();
        let change = match (is_seen(a), is_seen(b)) {
            (false, false) => return None,
            (false, true) => "new",
            (true, false) => "gone",
            _ if !is_large => "same",
            _ if difference > 0 => "slower",
            _ => "faster",
        };
        Some(DiffRow {
            of: arguments.of,
            name: name.clone(),
            change,
            before: from,
            after: to,
            difference,
            percent,
            calls_before: a.counted.calls,
            calls_after: b.counted.calls,
            is_uncertain: arguments.of.is_uncertain(a) || arguments.of.is_uncertain(b),
        })
    });
    let mut rows: Vec<DiffRow> = rows.collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.difference.unsigned_abs()));
    rows
}

/// Runs the command.
///
/// # Errors
/// If an input cannot be read, a filter matches nothing, or the output cannot be written.
pub fn run(arguments: &DiffArguments, out: &mut dyn Write) -> anyhow::Result<Finding> {
    if arguments.threshold.is_nan() || arguments.threshold < 0.0 {
        return Err(UsageError("--threshold must not be below 0".to_owned()).into());
    }
    let (first, window) = arguments.input.open_window(&arguments.window)?;
    let second = InputArguments {
        input: arguments.other.clone(),
        ..arguments.input.clone()
    };
    let (second, _) = second.open_window(&arguments.window)?;
    let (before, of_first) = by_name(&first, arguments)?;
    let (after, of_second) = by_name(&second, arguments)?;
    warn_of_damage(&first, &of_first);
    warn_of_damage(&second, &of_second);
    let all = compare(&before, &after, arguments);
    let count = |change: &str| all.iter().filter(|row| row.change == change).count();
    let (slower, faster, new, gone) = (
        count("slower"),
        count("faster"),
        count("new"),
        count("gone"),
    );
    let is_worse = all
        .iter()
        .any(|row| matches!(row.change, "slower" | "new") && !row.is_uncertain);
    let mut regions: Vec<DiffRow> = all
        .into_iter()
        .filter(|row| arguments.all || row.change != "same")
        .collect();
    if arguments.input.json {
        let total = arguments.rows.cut(&mut regions);
        let diff = Diff {
            of: arguments.of,
            slower,
            faster,
            new,
            gone,
            regions,
        };
        arguments.rows.json(out, &diff, total)?;
    } else if arguments.rows.csv {
        arguments
            .rows
            .put(out, &regions, arguments.input.screen())?;
    } else {
        let part = match window == Window::ALL {
            true => "Both whole runs",
            false => "The window of both runs",
        };
        writeln!(out, "{part}, by region\n")?;
        arguments
            .rows
            .put(out, &regions, arguments.input.screen())?;
        writeln!(
            out,
            "{slower} slower, {faster} faster, {new} new, {gone} gone"
        )?;
    }
    Ok(Finding {
        has_loss: of_first.has_skipped_now || of_second.has_skipped_now,
        has_failed: arguments.check && is_worse,
        ..Finding::FINE
    })
}
