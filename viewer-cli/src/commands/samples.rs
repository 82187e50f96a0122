//! `trace-cli samples`: where threads spent processor time.

use std::io::Write;
use std::path::PathBuf;

use annals_analysis::{
    Grouping, SampleBy, SampleOptions, SampleRow, SampleSummary, SampleTreeRow, Samples, sampling,
};
use annals_format::Definitions;
use annals_merger::{EventFilter, Globs, Query, RankSet, Window, regions_like};
use anyhow::bail;
use clap::{Args, ValueEnum};
use serde::Serialize;

use super::{InputArguments, warn_of_damage};
use crate::file::{ForceArgument, refuse_dash};
use crate::filter::WindowArguments;
use crate::output::{Finding, RowsArguments, UsageError};
use crate::stacks::{SPEEDSCOPE, speedscope, write_folded};
use crate::views::{not_sampled_sentence, sample_sentence, sampling_sentences};

/// Where threads spent processor time, from samples: by function, line or module.
///
/// `trace-cli record --sample` records samples. A sample represents processor time of its thread: *self* adds up the samples in a function,
/// *total* those with the function anywhere on their call path, recursion once. ± is one standard deviation of self: the error of a sum
/// of n samples is about the square root of n periods. Inlined functions are functions. `~` marks rows that lost samples may have changed.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Examples:\n  trace-cli samples run.annals\n  trace-cli samples run.annals --by line,rank --top 20\n  \
                  trace-cli samples run.annals --within solve --outside-mpi --tree\n  \
                  trace-cli samples run.annals --folded > samples.folded\n  \
                  trace-cli samples run.annals --speedscope samples.speedscope.json"
)]
pub struct SamplesArguments {
    #[command(flatten)]
    input: InputArguments,
    #[command(flatten)]
    window: WindowArguments,

    /// Ranks: numbers and ranges, such as 0,4-7
    #[arg(long, value_name = "RANKS")]
    rank: Option<RankSet>,

    /// Locations, by name (globs)
    #[arg(long, value_name = "GLOBS")]
    location: Option<Globs>,

    /// A row for each function [default], line or module; with rank or location, for each of these
    #[arg(long, value_name = "WHAT", value_delimiter = ',')]
    by: Vec<By>,

    /// Only samples in calls of these regions, by name (globs), as enter and leave events have them
    #[arg(long, value_name = "GLOBS")]
    within: Option<Globs>,

    /// Only samples outside of MPI
    #[arg(long)]
    outside_mpi: bool,

    #[command(flatten)]
    rows: RowsArguments,

    /// As a tree of calls
    #[arg(long, conflicts_with = "by")]
    tree: bool,

    /// As folded stacks with nanoseconds, for flame graphs
    #[arg(long, conflicts_with_all = ["by", "tree", "csv", "json", "top"])]
    folded: bool,

    /// Write the samples in their order to this file, for speedscope
    #[arg(long, value_name = "FILE")]
    speedscope: Option<PathBuf>,

    #[command(flatten)]
    force: ForceArgument,
}

/// Values of `--by`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum By {
    /// A row for each function.
    Function,
    /// A row for each line of source code.
    Line,
    /// A row for each executable or shared library.
    Module,
    /// A row for each rank and function, line or module.
    Rank,
    /// A row for each location and function, line or module.
    Location,
}

impl SamplesArguments {
    /// Returns what rows are of.
    fn grouping(&self) -> Result<(SampleBy, Grouping), UsageError> {
        let (mut by, mut grouping) = (None, None);
        for word in &self.by {
            let is_second = match word {
                By::Function => by.replace(SampleBy::Function).is_some(),
                By::Line => by.replace(SampleBy::Line).is_some(),
                By::Module => by.replace(SampleBy::Module).is_some(),
                By::Rank => grouping.replace(Grouping::Rank).is_some(),
                By::Location => grouping.replace(Grouping::Location).is_some(),
            };
            if is_second {
                let why = "--by: expected one of function, line and module, and one of rank and location, such as line,rank";
                return Err(UsageError(why.to_owned()));
            }
        }
        Ok((by.unwrap_or_default(), grouping.unwrap_or_default()))
    }

    fn query(&self, definitions: &Definitions, window: Window) -> anyhow::Result<Query> {
        let filter = EventFilter {
            ranks: self.rank.clone(),
            locations: self.location.clone(),
            ..EventFilter::default()
        };
        let mut query = Query::select(&filter, definitions)?;
        query.set_window(window);
        if let Some(names) = &self.within {
            query.set_regions(regions_like(names, definitions)?);
        }
        Ok(query)
    }

    /// Returns what the samples are of, for sentences.
    fn whole(&self, window: Window) -> String {
        let mut whole = match window == Window::ALL {
            true => "the run",
            false => "the window",
        }
        .to_owned();
        if let Some(within) = &self.within {
            whole += &format!(" in calls of {}", within.as_str());
        }
        if self.outside_mpi {
            whole += " outside of MPI";
        }
        whole
    }
}

#[derive(Serialize)]
struct Answer<'a> {
    #[serde(flatten)]
    summary: &'a SampleSummary,
    by: &'static str,
    rows: Vec<SampleRow>,
}

#[derive(Serialize)]
struct Tree<'a> {
    #[serde(flatten)]
    summary: &'a SampleSummary,
    tree: Vec<SampleTreeRow>,
}

/// Returns what to do about a trace without samples.
fn without_samples(definitions: &Definitions, query: &Query) -> String {
    let (_, not_sampled) = sampling(definitions, query);
    let reasons = not_sampled.iter().map(not_sampled_sentence);
    let reasons: Vec<String> = reasons.collect();
    let mut text = "no event type is of samples: nothing has the role sample".to_owned();
    match reasons.is_empty() {
        true => text += "; `trace-cli record --sample -- PROGRAM` records samples",
        false => text += &format!(". {}", reasons.join(" ")),
    }
    text
}

/// Prints rows or the tree.
fn put(
    arguments: &SamplesArguments,
    samples: &Samples<'_>,
    whole: &str,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let (by, grouping) = arguments.grouping()?;
    let (rows, screen) = (&arguments.rows, arguments.input.screen());
    let summary = &samples.summary;
    if arguments.input.json && arguments.tree {
        let mut tree = samples.tree_rows();
        let total = rows.cut(&mut tree);
        rows.json(out, &Tree { summary, tree }, total)?;
    } else if arguments.input.json {
        let mut found = samples.rows(by, grouping);
        let total = rows.cut(&mut found);
        let (by, found) = (by.name(), found);
        let answer = Answer {
            summary,
            by,
            rows: found,
        };
        rows.json(out, &answer, total)?;
    } else if rows.csv && arguments.tree {
        rows.put(out, &samples.tree_rows(), screen)?;
    } else if rows.csv {
        rows.put(out, &samples.rows(by, grouping), screen)?;
    } else {
        let found = samples.rows(by, grouping);
        writeln!(out, "{}", sample_sentence(&found, summary, whole))?;
        writeln!(out, "{}", sampling_sentences(summary))?;
        match (found.is_empty(), arguments.tree) {
            (true, _) => {}
            (false, true) => {
                writeln!(out)?;
                rows.put(out, &samples.tree_rows(), screen)?;
            }
            (false, false) => {
                writeln!(out)?;
                rows.put(out, &found, screen)?;
            }
        }
    }
    Ok(())
}

/// Runs the command.
///
/// # Errors
/// If the input cannot be read or has no samples, a filter matches nothing, or the output cannot be written.
pub fn run(arguments: &SamplesArguments, out: &mut dyn Write) -> anyhow::Result<Finding> {
    arguments.grouping()?;
    let file = arguments.speedscope.as_deref();
    file.map_or(Ok(()), |path| refuse_dash(path, "speedscope"))?;
    arguments.force.check(file, SPEEDSCOPE)?;
    let (opened, window) = arguments.input.open_window(&arguments.window)?;
    let definitions = opened.definitions();
    let query = arguments.query(definitions, window)?;
    let options = SampleOptions {
        outside_mpi: arguments.outside_mpi,
        in_order: file.is_some(),
    };
    let Some((samples, outcome)) = annals_analysis::samples(&opened, &query, options)? else {
        bail!(without_samples(definitions, &query));
    };
    warn_of_damage(&opened, &outcome);
    if let Some(path) = file {
        let bytes = speedscope(&samples, definitions, &arguments.input.title())?;
        arguments.force.write(path, &bytes, SPEEDSCOPE)?;
    }
    if arguments.folded {
        write_folded(out, &samples, definitions)?;
    } else if file.is_none() || arguments.input.json || arguments.rows.csv {
        put(arguments, &samples, &arguments.whole(window), out)?;
    }
    Ok(Finding::loss(outcome.has_skipped_now))
}
