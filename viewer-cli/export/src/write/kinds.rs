//! The kinds of files that formats write: they replace only files of the same kind.

use annals_merger::OutputKind;

use crate::{Format, SVG, whole_lines};

impl Format {
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
}

/// The first byte of a Perfetto trace: its first field is a packet.
const PACKET_TAG: u8 = 0x0a;

/// A compressed file, whatever is in it.
pub(crate) const GZIP: OutputKind =
    OutputKind::new("a gzip file", |start| start.starts_with(b"\x1f\x8b"));
