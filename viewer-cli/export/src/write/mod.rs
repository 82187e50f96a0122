//! The writers.
//!
//! [`pass`] reads the trace once and reports to an [`exporter::Exporter`] calls, events, messages and losses; each format is one
//! file that takes them in. Tables ([`tables`]) are written by what [`rows`] calls a row file, one for each format of rows.
//! Separate threads read, follow calls, and write traces of other tools; up to six threads encode groups of rows.
//!
//! Memory stays below 512 MiB, whatever the trace's length. There are: decoded chunks (at most three for each thread that
//! reads, of 65536 events each); for each thread that encodes, a group of 2^17 rows; of tables that are split, at most 2^19
//! rows that wait for their parts; sides of messages that wait for the other one, at most 2^18, and what the matching of
//! messages keeps, 2^17 of each; open calls; call paths, at most 2^20. Added to this is the description of the whole
//! trace: its definitions and their names, pairs of regions that call each other, the losses, and the heads of groups
//! of rows, which Parquet has at the end of a file: about 100 bytes for each thousand rows. Those of tables that are
//! split are bounded, too: beyond the bound, a part continues in another file.
//!
//! The output, a file or a directory of files, has a temporary name until it is complete.

mod arrow;
mod chrome;
mod csv;
mod dataset;
mod dot;
mod exporter;
mod flamegraph;
mod folded;
mod graph;
mod jsonl;
mod layout;
mod mermaid;
mod output;
mod pages;
mod parquet;
mod pass;
mod perfetto;
mod pool;
mod proto;
mod relay;
mod rows;
pub(crate) mod stream;
mod tables;

use std::path::Path;
use std::sync::atomic::Ordering;

use annals_merger::{Query, Reader, Replace};
use anyhow::bail;

use crate::format::GZIP;
use crate::{Exported, Format, Settings, TableKind, UsageError};
use dataset::{Asked, Dataset};
use exporter::{Context, Exporter};
use output::Output;

/// Tables of the formats that engines read.
const OF_ENGINES: &[TableKind] = &[
    TableKind::Events,
    TableKind::Calls,
    TableKind::Messages,
    TableKind::Drops,
];

/// Tables of the formats that people and scripts read.
const OF_SCRIPTS: &[TableKind] = &[
    TableKind::Events,
    TableKind::Regions,
    TableKind::Messages,
    TableKind::Metrics,
    TableKind::Drops,
];

/// Writes the events and calls of a query in a format: see [`crate::export`].
pub(crate) fn export(
    opened: &Reader,
    query: &Query,
    format: Format,
    settings: &Settings,
    output: &Path,
    progress: &mut dyn FnMut(u64),
) -> anyhow::Result<Exported> {
    let usage = |why: &str| Err(UsageError(format!("{}: {why}", format.name())).into());
    if !format.has_tables() && (!settings.tables.is_empty() || settings.partition.is_some()) {
        return usage("has no tables");
    }
    let is_of_stacks = matches!(format, Format::Folded | Format::Flamegraph);
    if settings.by.is_some() && !is_of_stacks {
        return usage("has no stacks");
    }
    let is_gzip = output
        .extension()
        .is_some_and(|extension| extension == "gz");
    if is_gzip && !format.takes_gzip() {
        return usage("is compressed by itself: a name without .gz");
    }
    if !format.has_tables() && output.is_dir() {
        bail!("{}: is a directory: name a file", output.display());
    }
    let kind = if is_gzip { GZIP } else { format.kind() };
    let replace = Replace::only_unless(kind, settings.force);
    let context = Context::new(opened, query, query.window());
    let context = &context;
    let (mut counts, mut of_table) = (None, None);
    let exporter: Box<dyn Exporter + Send + '_> = match format {
        Format::Perfetto => Box::new(perfetto::Perfetto::create(
            context,
            Output::create(output, replace)?,
        )?),
        Format::Chrome => Box::new(chrome::Chrome::create(
            context,
            Output::create(output, replace)?,
        )?),
        Format::Otf2 => unreachable!("`crate::export` writes it"),
        Format::Folded => Box::new(folded::Folded {
            paths: folded::Paths::new(context, settings.by),
            out: Output::create(output, replace)?,
        }),
        Format::Flamegraph => Box::new(flamegraph::Flamegraph {
            paths: folded::Paths::new(context, settings.by),
            out: Output::create(output, replace)?,
        }),
        Format::Dot | Format::Mermaid => Box::new(graph::Drawing {
            graph: graph::Graph::new(context),
            out: Output::create(output, replace)?,
            draw: match format {
                Format::Dot => dot::draw,
                _ => mermaid::draw,
            },
        }),
        Format::Parquet | Format::Arrow | Format::Csv | Format::Jsonl => {
            let (open, usual): (rows::OpenRows, _) = match format {
                Format::Parquet => (parquet::open, OF_ENGINES),
                Format::Arrow => (arrow::open, OF_ENGINES),
                Format::Csv => (csv::open, OF_SCRIPTS),
                _ => (jsonl::open, OF_SCRIPTS),
            };
            let asked = Asked {
                output,
                tables: &settings.tables,
                partition: settings.partition,
                extensions: format.extensions(),
                usual,
                replace,
            };
            let plan = asked.plan(open)?;
            let mut dataset = Dataset::create(context, &plan)?;
            of_table = dataset.write_analysed(context)?;
            counts = Some((dataset.row_counts(), plan.tables));
            Box::new(dataset)
        }
    };
    let (outcome, messages) = pass::run(context, exporter, settings.strict, progress)?;
    let tables = counts.into_iter().flat_map(|(counts, tables)| {
        let rows = move |kind: TableKind| counts[kind as usize].load(Ordering::Relaxed);
        tables.into_iter().map(move |(kind, _)| (kind, rows(kind)))
    });
    Ok(Exported {
        outcome,
        messages: messages.or(of_table),
        tables: tables.collect(),
        bytes: None,
    })
}
