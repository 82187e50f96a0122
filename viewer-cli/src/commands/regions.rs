//! `trace-cli regions`: the time spent in each region.

use std::io::Write;

use annals_analysis::{
    Grouping, RegionRow, RegionTimes, SampleBy, SampleOptions, TreeNode, call_tree, concerns,
    region_times,
};
use annals_merger::{Calls, Query, Reader, Window};
use clap::{Args, ValueEnum};
use serde::Serialize;

use super::{InputArguments, warn_of_damage};
use crate::filter::{FilterArguments, WindowArguments};
use crate::output::{Finding, RowsArguments};
use crate::views::{region_sentence, rows_with_outside, sample_sentence, unpaired_text};

/// Calls and times of every region, and the time outside of all.
///
/// With a window, only calls entered in it are counted, and times are those inside it. Inclusive time counts
/// recursion once; min, mean, max and percentiles are those of single calls that were entered and left in the
/// window (percentiles within 1.6 %). Losses are taken into account: the true number of calls lies within
/// calls ± uncertain; `~` marks times that a loss may have changed.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Examples:\n  trace-cli regions run.annals --by rank --sort inclusive --top 20\n  \
                  trace-cli regions run.annals --from 1s --to 1.01s --tree\n  \
                  trace-cli regions run.annals --csv > regions.csv"
)]
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

    /// Order of the rows; in a tree, max and name order by inclusive time
    #[arg(long, value_name = "WHAT", default_value = "exclusive")]
    sort: Sort,

    #[command(flatten)]
    rows: RowsArguments,

    /// As a call tree
    #[arg(long, conflicts_with = "by")]
    tree: bool,
}

/// Values of `--sort`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Sort {
    /// Time in the region itself.
    Exclusive,
    /// Time in it and in what it called.
    Inclusive,
    /// Number of calls.
    Calls,
    /// Mean duration of a call.
    Mean,
    /// Longest call.
    Max,
    /// By name.
    Name,
}

/// Values of `--by`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum By {
    /// A row for each rank and region.
    Rank,
    /// A row for each location and region.
    Location,
}

fn sort(rows: &mut [RegionRow], by: Sort) {
    // Ties stay as `rows` has them: by exclusive time, then by name.
    match by {
        Sort::Exclusive => {}
        Sort::Inclusive => rows.sort_by_key(|row| std::cmp::Reverse(row.inclusive_ns)),
        Sort::Calls => rows.sort_by_key(|row| std::cmp::Reverse(row.calls)),
        Sort::Mean => rows.sort_by_key(|row| std::cmp::Reverse(row.mean_ns)),
        Sort::Max => rows.sort_by_key(|row| std::cmp::Reverse(row.max_ns)),
        Sort::Name => rows.sort_by(|a, b| a.name.cmp(&b.name)),
    }
}

/// Runs the command.
///
/// # Errors
/// If the input cannot be read, a filter matches nothing, or the output cannot be written.
pub fn run(arguments: &RegionsArguments, out: &mut dyn Write) -> anyhow::Result<Finding> {
    let (opened, window) = arguments.input.open_window(&arguments.window)?;
    if arguments.tree {
        return run_tree(arguments, &opened, window, out);
    }
    let query = arguments.filter.query(opened.definitions(), window)?;
    let grouping = match arguments.by {
        None => Grouping::None,
        Some(By::Rank) => Grouping::Rank,
        Some(By::Location) => Grouping::Location,
    };
    let (mut times, outcome) = region_times(&opened, &query, grouping)?;
    warn_of_damage(&opened, &outcome);
    let whole = if window == Window::ALL {
        "the run"
    } else {
        "the window"
    };
    let sentence = region_sentence(&times, whole);
    if query.is_by_region() {
        // Time outside of the chosen regions is in other regions.
        times.outside.clear();
    }
    sort(&mut times.regions, arguments.sort);
    let screen = arguments.input.screen();
    if arguments.input.json {
        let total = arguments.rows.cut(&mut times.regions);
        arguments.rows.json(out, &times, total)?;
    } else if arguments.rows.csv {
        arguments.rows.put(out, &times.regions, screen)?;
    } else {
        if let Some(of_samples) = sentence_of_samples(&times, &opened, &query, whole)? {
            writeln!(out, "{of_samples}")?;
        }
        writeln!(out, "{sentence}\n")?;
        arguments
            .rows
            .put(out, &rows_with_outside(&times), screen)?;
        out.write_all(unpaired_text(&times.regions).as_bytes())?;
    }
    Ok(Finding::loss(outcome.has_skipped_now))
}

/// Returns what samples say of functions, where no function is recorded. `None` if one is, or there are no samples.
fn sentence_of_samples(
    times: &RegionTimes,
    opened: &Reader,
    query: &Query,
    whole: &str,
) -> anyhow::Result<Option<String>> {
    let is_function = |row: &RegionRow| !row.name.starts_with("MPI_");
    if query.is_by_region() || times.regions.iter().any(is_function) {
        return Ok(None);
    }
    let options = SampleOptions {
        outside_mpi: true,
        in_order: false,
    };
    let samples = annals_analysis::samples(opened, query, options)?;
    Ok(samples.map(|(samples, _)| {
        let rows = samples.rows(SampleBy::Function, Grouping::None);
        sample_sentence(&rows, &samples.summary, &format!("{whole} outside of MPI"))
    }))
}

/// A place in the call tree.
#[derive(Clone, Debug)]
struct TreeRow {
    /// Index of the caller's row. `None` means that it has none.
    parent: Option<usize>,
    depth: usize,
    name: String,
    calls: u64,
    inclusive_ns: i64,
    exclusive_ns: i64,
    time_is_uncertain: bool,
}

impl TreeRow {
    fn indented(&self) -> String {
        // A stack of a million calls is no reason for a line of two million spaces.
        format!("{}{}", "  ".repeat(self.depth.min(64)), self.name)
    }
}

annals_analysis::columns! {
    TreeRow, uncertain time_is_uncertain;
    "parent" Number, |row| row.parent;
    "depth" Number, |row| row.depth;
    "calls" Count headed "calls", |row| row.calls;
    "inclusive_ns" Duration marked "inclusive", |row| row.inclusive_ns;
    "exclusive_ns" Duration marked "exclusive", |row| row.exclusive_ns;
    "region" Name, |row| &row.name;
    "" Name headed "region", |row| row.indented();
    "time_is_uncertain" Flag, |row| row.time_is_uncertain;
}

#[derive(Clone, Debug, Serialize)]
struct Tree {
    tree: Vec<TreeRow>,
    /// Number of calls that are counted with their callers, because the tree has too many places.
    left_out: u64,
}

/// Prints the call tree. The calls of one caller are in the order of `--sort`; a tree has no longest calls, and is not
/// ordered by name: `max` and `name` order it by inclusive time.
fn run_tree(
    arguments: &RegionsArguments,
    opened: &Reader,
    window: Window,
    out: &mut dyn Write,
) -> anyhow::Result<Finding> {
    let filter = arguments.filter.query(opened.definitions(), window)?;
    let (counter, outcome) = call_tree(opened, &filter)?;
    let calls = Calls::new(opened.definitions(), &filter);
    let has_loss = outcome.losses.iter().any(|loss| {
        let (enters, leaves) = calls.role_of_loss(loss);
        (enters || leaves) && concerns(loss, &filter, |_| true)
    });
    warn_of_damage(opened, &outcome);
    let key = |node: &TreeNode| match arguments.sort {
        Sort::Exclusive => node.exclusive_ns,
        Sort::Calls => node.calls as i64,
        Sort::Mean => node.inclusive_ns / node.calls.max(1) as i64,
        Sort::Inclusive | Sort::Max | Sort::Name => node.inclusive_ns,
    };
    let mut rows: Vec<TreeRow> = Vec::new();
    let takes = |node: &TreeNode| filter.takes_region(node.region);
    counter.walk(key, takes, |parent, depth, node| {
        rows.push(TreeRow {
            parent,
            depth,
            name: opened.definitions().region_name(node.region),
            calls: node.calls,
            inclusive_ns: node.inclusive_ns,
            exclusive_ns: node.exclusive_ns,
            time_is_uncertain: node.is_uncertain || has_loss,
        });
        rows.len() - 1
    });
    if arguments.input.json {
        let total = arguments.rows.cut(&mut rows);
        let left_out = counter.left_out();
        let tree = Tree {
            tree: rows,
            left_out,
        };
        arguments.rows.json(out, &tree, total)?;
    } else {
        arguments.rows.put(out, &rows, arguments.input.screen())?;
        if !arguments.rows.csv && counter.left_out() != 0 {
            writeln!(
                out,
                "{} calls are counted with their callers: the tree has too many places",
                counter.left_out()
            )?;
        }
    }
    Ok(Finding::loss(outcome.has_skipped_now))
}
