//! Exports: a trace as other tools read it. [`export`] writes one.
//!
//! [`pass`] reads the trace once and tells an [`pass::Exporter`] of calls, events, messages and losses; each format is one
//! file that takes them in. Tables ([`tables`]) are written by what [`rows`] calls a row file, one for each format of rows.
//! Reading, following calls, and writing traces of other tools are done by threads of their own; groups of rows are encoded by
//! up to six of them.
//!
//! Memory stays below 512 MiB, whatever the trace's length. There are: decoded chunks (at most three for each thread that
//! reads, of 65536 events each); for each thread that encodes, a group of 2^17 rows; of tables that are split, at most 2^19
//! rows that wait for their parts; sides of messages that wait for the other one, at most 2^18, and what the matching of
//! messages keeps, 2^17 of each; open calls; call paths, at most 2^20. On top comes what is said of the whole trace: its
//! definitions and their names, pairs of regions that call each other, the losses, and the heads of groups of rows, which
//! Parquet has at the end of a file: about 100 bytes for each thousand rows. Those of tables that are split are bounded,
//! too: where there would be more, a part goes on in another file.
//!
//! What is written has another name until all of it is whole: a file, or the directory of several.

mod arrow;
mod chrome;
mod csv;
mod dataset;
mod dot;
mod flamegraph;
mod folded;
mod graph;
mod jsonl;
mod layout;
mod mermaid;
mod output;
mod pages;
mod parquet;
pub mod pass;
mod perfetto;
mod pool;
mod proto;
mod relay;
pub mod rows;
pub mod svg;
pub mod tables;
pub mod text;
pub mod time;
pub mod values;

use std::path::Path;
use std::sync::atomic::Ordering;

use annals_analysis::{Grouping, for_each_message, region_times};
use annals_merger::{MessageCounts, OutputKind, Query, ReadSummary, Reader, Replace};
use anyhow::bail;

use dataset::{Asked, Dataset};
use output::Output;
use pass::{Context, Exporter};

pub use folded::Root;
pub use rows::Partition;
pub use tables::TableKind;

/// Settings that do not fit together.
#[derive(Debug)]
pub struct UsageError(pub String);

impl std::fmt::Display for UsageError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for UsageError {}

/// A picture.
pub const SVG: OutputKind = OutputKind::new("an SVG picture", is_svg);

fn is_svg(start: &[u8]) -> bool {
    let text = String::from_utf8_lossy(start);
    let text = text.trim_start();
    text.starts_with("<svg") || text.starts_with("<?xml") && text.contains("<svg")
}

/// Returns the lines that end within the first bytes of a file, or all of a short file. `None` if they are not UTF-8.
pub fn whole_lines(start: &[u8]) -> Option<&str> {
    let end = start.iter().rposition(|byte| *byte == b'\n');
    std::str::from_utf8(end.map_or(start, |end| &start[..=end])).ok()
}

/// What a trace is exported as.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// Perfetto's packets.
    Perfetto,
    /// Chrome's trace events.
    Chrome,
    /// Parquet files.
    Parquet,
    /// Arrow IPC files.
    Arrow,
    /// Folded stacks.
    Folded,
    /// A flame graph.
    Flamegraph,
    /// Comma-separated values.
    Csv,
    /// JSON lines.
    Jsonl,
    /// A call graph for Graphviz.
    Dot,
    /// A call graph for Mermaid.
    Mermaid,
}

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

impl Format {
    /// Every format.
    pub const ALL: [Self; 10] = [
        Self::Perfetto,
        Self::Chrome,
        Self::Parquet,
        Self::Arrow,
        Self::Folded,
        Self::Flamegraph,
        Self::Csv,
        Self::Jsonl,
        Self::Dot,
        Self::Mermaid,
    ];

    /// Its name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Perfetto => "perfetto",
            Self::Chrome => "chrome",
            Self::Parquet => "parquet",
            Self::Arrow => "arrow",
            Self::Folded => "folded",
            Self::Flamegraph => "flamegraph",
            Self::Csv => "csv",
            Self::Jsonl => "jsonl",
            Self::Dot => "dot",
            Self::Mermaid => "mermaid",
        }
    }

    /// Ends of names that stand for it, the usual one first.
    pub const fn extensions(self) -> &'static [&'static str] {
        match self {
            Self::Perfetto => &["pftrace", "perfetto-trace", "perfetto"],
            Self::Chrome => &["json"],
            Self::Parquet => &["parquet"],
            Self::Arrow => &["arrow", "feather", "ipc"],
            Self::Folded => &["folded", "collapsed"],
            Self::Flamegraph => &["svg"],
            Self::Csv => &["csv"],
            Self::Jsonl => &["jsonl", "ndjson"],
            Self::Dot => &["dot", "gv"],
            Self::Mermaid => &["mmd", "mermaid"],
        }
    }

    /// What reads it, and what is in it.
    pub const fn description(self) -> &'static str {
        match self {
            Self::Perfetto => "Perfetto: tracks, slices, counters, flows, losses (ui.perfetto.dev)",
            Self::Chrome => "trace events, JSON: chrome://tracing, Perfetto, Speedscope",
            Self::Parquet => "tables for DuckDB, Polars, pandas, Spark",
            Self::Arrow => "the same tables as Arrow IPC files (Feather)",
            Self::Folded => "stacks with their nanoseconds, a line each: flamegraph.pl, Speedscope",
            Self::Flamegraph => "a flame graph, SVG",
            Self::Csv => "tables, RFC 4180",
            Self::Jsonl => "tables, an object for each row",
            Self::Dot => "the graph of calls for Graphviz",
            Self::Mermaid => "the graph of calls for Mermaid",
        }
    }

    /// The kind of its files, for which existing ones they may replace.
    fn kind(self) -> OutputKind {
        fn text(start: &[u8]) -> &str {
            whole_lines(start).unwrap_or_default()
        }
        match self {
            Self::Perfetto => OutputKind::new("a Perfetto trace", |start| {
                start.first() == Some(&PACKET_TAG)
            }),
            Self::Chrome => OutputKind::JSON,
            Self::Parquet => OutputKind::new("a Parquet file", |start| start.starts_with(b"PAR1")),
            Self::Arrow => OutputKind::new("an Arrow file", |start| start.starts_with(b"ARROW1")),
            Self::Folded => OutputKind::new("a file of folded stacks", |start| {
                text(start).lines().all(|line| {
                    let weight = line.rsplit_once(' ').map(|(_, weight)| weight);
                    weight.is_some_and(|weight| weight.parse::<u64>().is_ok())
                })
            }),
            Self::Flamegraph => SVG,
            Self::Csv => OutputKind::new("a CSV file", |start| {
                // Our own tables begin with the names of their columns.
                let head = text(start).lines().next().unwrap_or_default();
                let is_of_name = |c: char| c.is_alphanumeric() || "_.:,-\"".contains(c);
                head.contains(',') && head.chars().all(is_of_name)
            }),
            Self::Jsonl => OutputKind::JSON,
            Self::Dot => OutputKind::new("a Graphviz graph", |start| start.starts_with(b"digraph")),
            Self::Mermaid => OutputKind::new("a Mermaid flowchart", |start| {
                start.starts_with(b"flowchart")
            }),
        }
    }

    /// Whether it has tables.
    pub const fn has_tables(self) -> bool {
        matches!(self, Self::Parquet | Self::Arrow | Self::Csv | Self::Jsonl)
    }

    /// Whether it can be compressed as a whole (`.gz`): what has compression of its own, or is read in any order, cannot.
    const fn takes_gzip(self) -> bool {
        !matches!(self, Self::Parquet | Self::Arrow)
    }

    /// The format of this name.
    ///
    /// # Errors
    /// If there is none.
    pub fn by_name(name: &str) -> Result<Self, String> {
        let mut all = Self::ALL.into_iter();
        all.find(|format| format.name() == name).ok_or_else(|| {
            let names = Self::ALL.map(Self::name);
            let near = annals_merger::nearest(name, names.into_iter());
            let near = near.map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
            format!("one of {}{near}", names.join(", "))
        })
    }

    /// Returns the format of a file's extension. `None` if no format has it.
    pub fn of_path(path: &Path) -> Option<Self> {
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .to_lowercase();
        let (name, is_gzip) = match name.strip_suffix(".gz") {
            Some(name) => (name, true),
            None => (name.as_str(), false),
        };
        Self::ALL.into_iter().find(|format| {
            let mut extensions = format.extensions().iter();
            (format.takes_gzip() || !is_gzip)
                && extensions.any(|extension| name.ends_with(&format!(".{extension}")))
        })
    }
}

/// The first byte of a Perfetto trace: its first field is a packet.
const PACKET_TAG: u8 = 0x0a;

/// A compressed file, whatever is in it.
const GZIP: OutputKind = OutputKind::new("a gzip file", |start| start.starts_with(b"\x1f\x8b"));

/// The formats, a line each.
pub fn list() -> String {
    let lines = Format::ALL.map(|format| {
        let each = format.extensions().iter().flat_map(|extension| {
            let gzip = format.takes_gzip() && *extension == format.extensions()[0];
            let gzip = gzip.then(|| format!(".{extension}.gz"));
            std::iter::once(format!(".{extension}")).chain(gzip)
        });
        let extensions: Vec<String> = each.collect();
        format!(
            "{:<11} {:<42} {}\n",
            format.name(),
            extensions.join(" "),
            format.description()
        )
    });
    lines.concat()
}

/// What an export takes beside its format.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Tables; none: those that are usual.
    pub tables: Vec<TableKind>,
    /// How tables are split.
    pub partition: Option<Partition>,
    /// What stands at the root of stacks.
    pub by: Option<Root>,
    /// Existing files of another kind are replaced, too.
    pub force: bool,
}

/// What an export did.
#[derive(Debug)]
pub struct Exported {
    /// What reading showed.
    pub outcome: ReadSummary,
    /// What became of messages, where they were matched.
    pub messages: Option<MessageCounts>,
    /// The tables that were written, with their numbers of rows.
    pub tables: Vec<(TableKind, u64)>,
}

/// Writes the events and calls of a query in a format.
///
/// # Errors
/// If the input cannot be read, the settings do not fit the format ([`UsageError`]), or the output cannot be written: then
/// what was there before stays.
pub fn export(
    opened: &Reader,
    query: &Query,
    (format, settings): (Format, &Settings),
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
            let rows = || {
                let (times, summary) = region_times(opened, query, Grouping::Location)?;
                Ok((times.regions, summary))
            };
            let mut dataset = Dataset::create(context, &plan, rows)?;
            counts = Some((dataset.row_counts(), plan.tables));
            if dataset.has_messages() {
                of_table = write_messages(opened, query, &mut dataset)?;
            }
            Box::new(dataset)
        }
    };
    let (outcome, messages) = pass::run(context, exporter, progress)?;
    let tables = counts.into_iter().flat_map(|(counts, tables)| {
        let rows = move |kind: TableKind| counts[kind as usize].load(Ordering::Relaxed);
        tables.into_iter().map(move |(kind, _)| (kind, rows(kind)))
    });
    Ok(Exported {
        outcome,
        messages: messages.or(of_table),
        tables: tables.collect(),
    })
}

/// Writes the table of messages, in a separate pass: who waited is known only with the calls around both sides. Returns what
/// became of all sends and receives.
fn write_messages(
    opened: &Reader,
    query: &Query,
    dataset: &mut Dataset,
) -> anyhow::Result<Option<MessageCounts>> {
    let mut outcome = Ok(());
    let visit = |message: &annals_merger::Message| {
        if outcome.is_ok() {
            outcome = dataset.message(message);
        }
    };
    let found = for_each_message(opened, query, visit)?;
    outcome?;
    Ok(found.map(|(counts, _)| counts))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_format_is_found_by_the_name_of_the_file() {
        for (name, format) in [
            ("run.pftrace", Format::Perfetto),
            ("run.json", Format::Chrome),
            ("run.json.gz", Format::Chrome),
            ("RUN.CSV", Format::Csv),
            ("run.csv.gz", Format::Csv),
            ("a/b.c/run.parquet", Format::Parquet),
            ("x.svg", Format::Flamegraph),
        ] {
            assert_eq!(Format::of_path(Path::new(name)), Some(format), "{name}");
        }
        for name in ["run", "run.txt", "run.gz", "run.parquet.gz", "parquet", ""] {
            assert_eq!(Format::of_path(Path::new(name)), None, "{name}");
        }
    }

    #[test]
    fn every_format_has_a_name_and_extensions_of_its_own() {
        let mut seen = std::collections::BTreeSet::new();
        for format in Format::ALL {
            assert_eq!(Format::by_name(format.name()), Ok(format));
            assert!(
                format
                    .extensions()
                    .iter()
                    .all(|extension| seen.insert(*extension))
            );
        }
        assert!(
            Format::by_name("perfeto")
                .unwrap_err()
                .contains("`perfetto`")
        );
    }
}
