//! `trace-cli regions`: where the time went, region by region.

use std::fmt::Write as _;
use std::io::Write;

use annals_format::{Definitions, RegionId};
use annals_merger::{Opened, Outcome, Window};
use clap::{Args, ValueEnum};
use serde::Serialize;

use super::{InputArguments, opt_duration, percent, warn_of_damage};
use crate::filter::{FilterArguments, WindowArguments};
use crate::names::Places;
use crate::output::{self, Finding};
use crate::stacks::{Group, Grouping, RegionCounter, RegionStats};
use crate::table::{Align, Table, safe};
use crate::time;

/// Calls and times of every region.
///
/// A call is counted at its enter; in a window, when it was entered there, and its times are the parts
/// that lie there. Inclusive time counts recursion once; min, mean and max are those of single calls. Losses are taken into account: the true
/// number of calls lies within calls ± uncertain; `~` marks times that a loss may have changed.
#[derive(Clone, Debug, Args)]
pub struct RegionsArguments {
    #[command(flatten)]
    input: InputArguments,
    #[command(flatten)]
    window: WindowArguments,
    #[command(flatten)]
    filter: FilterArguments,

    /// A row for each rank or location
    #[arg(long, value_name = "WHAT")]
    by: Option<By>,
}

/// What `--by` takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum By {
    /// A row for each rank and region.
    Rank,
    /// A row for each location and region.
    Location,
}

/// One row of `regions --json`.
#[derive(Clone, Debug, Serialize)]
pub struct RegionRow {
    /// The region's name.
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    rank: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    location: Option<String>,
    file: String,
    line: u32,
    /// Enters.
    pub calls: u64,
    inclusive_ns: i64,
    exclusive_ns: i64,
    min_ns: Option<i64>,
    mean_ns: Option<i64>,
    max_ns: Option<i64>,
    /// Exclusive time as a share of that of all rows.
    share: f64,
    open_calls: u64,
    unmatched_leaves: u64,
    unleft_calls: u64,
    /// By how much `calls` may differ from the truth.
    pub uncertain_calls: u64,
    uncertain_calls_is_lower_bound: bool,
    time_is_uncertain: bool,
}

#[derive(Clone, Debug, Serialize)]
struct Regions {
    regions: Vec<RegionRow>,
}

/// The rows for a window of an input, by exclusive time.
///
/// # Errors
/// If the input cannot be read or a filter matches nothing.
pub fn rows(
    opened: &Opened,
    window: Window,
    filter: &FilterArguments,
    by: Option<By>,
) -> anyhow::Result<(Vec<RegionRow>, Outcome)> {
    let definitions = &opened.definitions;
    let filter = filter.prepare(definitions)?;
    let places = Places::of(definitions);
    let grouping = match by {
        None => Grouping::None,
        Some(By::Rank) => Grouping::Rank,
        Some(By::Location) => Grouping::Location,
    };
    let mut counter = RegionCounter::new(definitions, &places, &filter, window, grouping);
    // What was entered before the window tells which regions are open in it.
    let until = Window {
        from_ns: i64::MIN,
        ..window
    };
    let outcome = opened.read(until, |chunk| {
        counter.take(&chunk);
        Ok(())
    })?;
    let stats = counter.finish(&outcome.losses);
    let whole: i64 = stats.values().map(|stats| stats.exclusive_ns).sum();
    let mut rows: Vec<RegionRow> = stats
        .into_iter()
        .filter(|((_, region), stats)| {
            let is_seen = stats.calls != 0
                || stats.inclusive_ns != 0
                || stats.unmatched_leaves != 0
                || stats.uncertain_calls != 0;
            is_seen && filter.takes_region(*region)
        })
        .map(|((group, region), stats)| row(definitions, group, region, &stats, whole))
        .collect();
    rows.sort_by(|a, b| {
        (b.exclusive_ns, &a.name, a.rank, &a.location).cmp(&(
            a.exclusive_ns,
            &b.name,
            b.rank,
            &b.location,
        ))
    });
    Ok((rows, outcome))
}

fn row(
    d: &Definitions,
    group: Group,
    region: RegionId,
    stats: &RegionStats,
    whole_ns: i64,
) -> RegionRow {
    let definition = d.regions.get(&region);
    let (rank, location) = match group {
        Group::All => (None, None),
        Group::Rank(rank) => (Some(rank), None),
        Group::Location(id) => {
            let location = d.locations.get(&id);
            let rank = location.and_then(|location| d.ranks.get(&location.process));
            let name = location.map(|location| d.string(location.name).to_owned());
            (rank.map(|rank| rank.rank), Some(name.unwrap_or_default()))
        }
    };
    RegionRow {
        name: d.region_name(region),
        rank,
        location,
        file: definition.map_or_else(String::new, |r| d.string(r.file).to_owned()),
        line: definition.map_or(0, |region| region.line),
        calls: stats.calls,
        inclusive_ns: stats.inclusive_ns,
        exclusive_ns: stats.exclusive_ns,
        min_ns: stats.min_ns,
        mean_ns: (stats.completed != 0).then(|| stats.completed_ns / stats.completed as i64),
        max_ns: stats.max_ns,
        share: if whole_ns == 0 {
            0.0
        } else {
            stats.exclusive_ns as f64 / whole_ns as f64
        },
        open_calls: stats.open_calls,
        unmatched_leaves: stats.unmatched_leaves,
        unleft_calls: stats.unleft_calls,
        uncertain_calls: stats.uncertain_calls,
        uncertain_calls_is_lower_bound: stats.uncertain_is_lower_bound,
        time_is_uncertain: stats.is_time_uncertain,
    }
}

/// The table for people.
pub fn render(rows: &[RegionRow], by: Option<By>, most: usize) -> String {
    let mut columns = vec![("region", Align::Left)];
    if by.is_some() {
        columns.push(("rank", Align::Right));
    }
    if by == Some(By::Location) {
        columns.push(("location", Align::Left));
    }
    columns.extend([
        ("calls", Align::Right),
        ("± uncertain", Align::Right),
        ("inclusive", Align::Right),
        ("exclusive", Align::Right),
        ("share %", Align::Right),
        ("min", Align::Right),
        ("mean", Align::Right),
        ("max", Align::Right),
    ]);
    let mut table = Table::new(&columns);
    let whole: u64 = rows.iter().map(|row| row.exclusive_ns as u64).sum();
    for row in rows.iter().take(most) {
        let mark = if row.time_is_uncertain { "~" } else { "" };
        let mut cells = vec![safe(&row.name)];
        if by.is_some() {
            cells.push(
                row.rank
                    .map_or_else(|| "-".to_owned(), |rank| rank.to_string()),
            );
        }
        if by == Some(By::Location) {
            cells.push(safe(row.location.as_deref().unwrap_or("-")));
        }
        let least = if row.uncertain_calls_is_lower_bound {
            ">="
        } else {
            ""
        };
        let uncertain = match (row.uncertain_calls, row.uncertain_calls_is_lower_bound) {
            (0, false) => String::new(),
            (count, _) => format!("{least}{count}"),
        };
        cells.extend([
            row.calls.to_string(),
            uncertain,
            format!("{mark}{}", time::duration(row.inclusive_ns)),
            format!("{mark}{}", time::duration(row.exclusive_ns)),
            percent(row.exclusive_ns as u64, whole),
            opt_duration(row.min_ns),
            opt_duration(row.mean_ns),
            opt_duration(row.max_ns),
        ]);
        table.row(cells);
    }
    let mut text = table.render();
    for row in rows.iter().take(most) {
        let name = safe(&row.name);
        if row.unleft_calls != 0 {
            let count = row.unleft_calls;
            let _ = writeln!(
                text,
                "{name}: {count} calls were never left, and end with the region around them (longjmp?)"
            );
        }
        if row.unmatched_leaves != 0 {
            let count = row.unmatched_leaves;
            let _ = writeln!(
                text,
                "{name}: {count} leaves without an enter, counted as no calls"
            );
        }
    }
    text
}

/// Runs the command.
///
/// # Errors
/// If the input cannot be read, a filter matches nothing, or the output cannot be written.
pub fn run(arguments: &RegionsArguments, out: &mut dyn Write) -> anyhow::Result<Finding> {
    let window = arguments.window.window()?;
    let opened = arguments.input.open()?;
    let (regions, outcome) = rows(&opened, window, &arguments.filter, arguments.by)?;
    warn_of_damage(&opened, &outcome);
    if arguments.input.json {
        output::json(out, &Regions { regions })?;
    } else {
        out.write_all(render(&regions, arguments.by, usize::MAX).as_bytes())?;
    }
    Ok(Finding::loss(outcome.has_skipped_now))
}
