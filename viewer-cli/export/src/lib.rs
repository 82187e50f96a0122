//! Exports: a trace as other tools read it. [`export`] writes one.
//!
//! With the feature `formats` (on by default) the writers are built: Arrow and Parquet take most of the time in which this crate
//! compiles. Without it, names of formats and their settings are known, and [`export`] says what is missing.

mod format;
pub mod otf2;
mod settings;
pub mod svg;
pub mod text;
pub mod time;
pub mod values;
#[cfg(feature = "formats")]
mod write;

use std::ops::ControlFlow;
use std::path::Path;

use annals_merger::{MessageCounts, OutputKind, Query, ReadSummary, Reader};
use otf2::{ArchiveOptions, write_archive};

pub use format::{Format, list};
pub use settings::{Partition, Root, SampleTable, Settings, TableKind};
#[cfg(feature = "formats")]
pub use write::stream::{Batches, Table, Waited};

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

/// The result of an export.
#[derive(Debug)]
pub struct Exported {
    /// The summary of the read.
    pub outcome: ReadSummary,
    /// The result of matching messages. `None` if they were not matched.
    pub messages: Option<MessageCounts>,
    /// The tables that were written, with their numbers of rows.
    pub tables: Vec<(TableKind, u64)>,
    /// Bytes of the files. `None` if they were not counted.
    pub bytes: Option<u64>,
}

/// Checks that the writers are built in.
///
/// # Errors
/// If they are not: [`export`] would fail.
pub fn check_built_in() -> anyhow::Result<()> {
    anyhow::ensure!(
        cfg!(feature = "formats"),
        "export: not built into this program (feature `export`): `cargo install --path viewer-cli` builds it with all"
    );
    Ok(())
}

/// Writes the events and calls of a query in a format.
///
/// # Errors
/// If the input cannot be read, the settings do not fit the format ([`UsageError`]), or the output cannot be written: then
/// what was there before stays. Always without the feature `formats`.
pub fn export(
    opened: &Reader,
    query: &Query,
    format: Format,
    settings: &Settings,
    output: &Path,
    progress: &mut dyn FnMut(u64),
) -> anyhow::Result<Exported> {
    if format == Format::Otf2 {
        return export_archive(opened, query, settings, output, progress);
    }
    check_built_in()?;
    #[cfg(feature = "formats")]
    return write::export(opened, query, format, settings, output, progress);
    #[cfg(not(feature = "formats"))]
    {
        let _ = (opened, query, format, settings, output, progress);
        unreachable!("`check_built_in` has returned an error")
    }
}

/// Writes an OTF2 archive, which needs none of the crates of the other formats.
fn export_archive(
    opened: &Reader,
    query: &Query,
    settings: &Settings,
    output: &Path,
    progress: &mut dyn FnMut(u64),
) -> anyhow::Result<Exported> {
    if !settings.tables.is_empty() || settings.partition.is_some() {
        return Err(UsageError("otf2: has no tables".to_owned()).into());
    }
    if settings.by.is_some() {
        return Err(UsageError("otf2: has no stacks".to_owned()).into());
    }
    if query.is_by_region() {
        return Err(
            UsageError("otf2: regions cannot be chosen: calls would not nest".to_owned()).into(),
        );
    }
    let options = ArchiveOptions {
        strict: settings.strict,
        ..ArchiveOptions::default()
    };
    let written = write_archive(opened, query, output, options, |events| {
        progress(events);
        ControlFlow::Continue(())
    })?;
    let mut outcome = written.summary;
    if let Some(report) = &mut outcome.report {
        report.archive = Some(written.report);
    }
    Ok(Exported {
        outcome,
        messages: None,
        tables: Vec::new(),
        bytes: Some(written.bytes),
    })
}
