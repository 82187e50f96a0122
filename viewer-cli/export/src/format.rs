//! The formats: their names, the extensions of their files, and which files they may replace: only files of the same kind.

use std::path::Path;

use annals_foreign::otf2::Anchor;
use annals_merger::OutputKind;

use crate::{SVG, whole_lines};

/// The first byte of a Perfetto trace: its first field is a packet.
const PACKET_TAG: u8 = 0x0a;

/// A compressed file, whatever is in it.
pub(crate) const GZIP: OutputKind =
    OutputKind::new("a gzip file", |start| start.starts_with(b"\x1f\x8b"));

/// The format of an export.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// Perfetto's packets.
    Perfetto,
    /// Chrome's trace events.
    Chrome,
    /// An OTF2 archive.
    Otf2,
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

impl Format {
    /// Every format.
    pub const ALL: [Self; 11] = [
        Self::Perfetto,
        Self::Chrome,
        Self::Otf2,
        Self::Parquet,
        Self::Arrow,
        Self::Folded,
        Self::Flamegraph,
        Self::Csv,
        Self::Jsonl,
        Self::Dot,
        Self::Mermaid,
    ];

    /// Returns its name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Perfetto => "perfetto",
            Self::Chrome => "chrome",
            Self::Otf2 => "otf2",
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

    /// Returns the file name extensions of the format, the usual one first.
    pub const fn extensions(self) -> &'static [&'static str] {
        match self {
            Self::Perfetto => &["pftrace", "perfetto-trace", "perfetto"],
            Self::Chrome => &["json"],
            Self::Otf2 => &["otf2"],
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

    /// Returns what reads it, and what is in it.
    pub const fn description(self) -> &'static str {
        match self {
            Self::Perfetto => "Perfetto: tracks, slices, counters, flows, losses (ui.perfetto.dev)",
            Self::Chrome => "trace events, JSON: chrome://tracing, Perfetto, Speedscope",
            Self::Otf2 => "an OTF2 archive: Vampir, and the tools of Score-P",
            Self::Parquet => "tables for DuckDB, Polars, pandas, Spark",
            Self::Arrow => "tables like those of parquet, as Arrow IPC files (Feather)",
            Self::Folded => "stacks with their nanoseconds, a line each: flamegraph.pl, Speedscope",
            Self::Flamegraph => "a flame graph, SVG",
            Self::Csv => "tables, RFC 4180",
            Self::Jsonl => "tables, an object for each row",
            Self::Dot => "the graph of calls for Graphviz",
            Self::Mermaid => "the graph of calls for Mermaid",
        }
    }

    /// Returns the kind of its files, for which existing ones they may replace.
    pub(crate) fn kind(self) -> OutputKind {
        fn text(start: &[u8]) -> &str {
            whole_lines(start).unwrap_or_default()
        }
        match self {
            Self::Perfetto => OutputKind::new("a Perfetto trace", |start| {
                start.first() == Some(&PACKET_TAG)
            }),
            Self::Chrome => OutputKind::JSON,
            Self::Otf2 => OutputKind::new("an OTF2 archive", Anchor::is_one),
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

    /// Returns whether it has tables.
    pub const fn has_tables(self) -> bool {
        matches!(self, Self::Parquet | Self::Arrow | Self::Csv | Self::Jsonl)
    }

    /// Returns whether a file can be compressed as a whole (`.gz`): formats with built-in compression or random access
    /// cannot.
    pub(crate) const fn takes_gzip(self) -> bool {
        !matches!(self, Self::Otf2 | Self::Parquet | Self::Arrow)
    }

    /// Returns the format of this name.
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

/// Returns the formats, a line each.
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
