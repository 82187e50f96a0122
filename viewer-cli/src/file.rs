//! Files that commands write: their kinds, and which existing files they may replace.

use std::path::{Component, Path, PathBuf};

pub use annals_export::SVG;
use annals_export::whole_lines;
use annals_merger::{FilterError, MergeError, OutputError, OutputKind, Replace, WholeFile};
use annals_recorder::Rules;
use clap::Args;

use crate::output::UsageError;
use crate::table::safe_lines;

/// A picture in pixels.
pub const PNG: OutputKind = OutputKind::new("a PNG picture", |start| {
    start.starts_with(b"\x89PNG\r\n\x1a\n")
});
/// A page.
pub const HTML: OutputKind = OutputKind::new("an HTML page", |start| {
    let doctype = b"<!DOCTYPE html";
    start
        .get(..doctype.len())
        .is_some_and(|start| start.eq_ignore_ascii_case(doctype))
});
/// Rules for a recorder.
pub const FILTER: OutputKind = OutputKind::new("a filter", |start| {
    whole_lines(start).is_some_and(|text| text.parse::<Rules>().is_ok())
});

/// Arguments of every command with a file as output.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct ForceArgument {
    /// Replace an existing output even if it is a file of another kind
    #[arg(long)]
    pub force: bool,
}

impl ForceArgument {
    /// Returns which existing files an output of this kind replaces.
    pub const fn replace(self, kind: OutputKind) -> Replace {
        Replace::only_unless(kind, self.force)
    }

    /// Checks before the work that an output will be allowed to replace what is there.
    ///
    /// # Errors
    /// If a file of another kind is there.
    pub fn check(self, path: Option<&Path>, kind: OutputKind) -> Result<(), OutputError> {
        path.map_or(Ok(()), |path| self.replace(kind).check(path))
    }

    /// Checks as [`ForceArgument::check`] does, and that the picture's name, if it has an extension, has the right one: a
    /// JPEG name on a PNG file would mislead.
    ///
    /// # Errors
    /// If the name is of another kind of picture, or a file of another kind is there.
    pub fn check_picture(
        self,
        path: Option<&Path>,
        kind: OutputKind,
        extension: &str,
    ) -> anyhow::Result<()> {
        let Some(path) = path else { return Ok(()) };
        refuse_dash(path, extension)?;
        let given = path.extension().unwrap_or_default();
        if !given.is_empty() && !given.eq_ignore_ascii_case(extension) {
            let right = path.with_extension(extension);
            let error = format!(
                "{}: --{extension} writes files that are called *.{extension}; give `--{extension} {}`",
                path.display(),
                right.display()
            );
            return Err(UsageError(error).into());
        }
        Ok(self.check(Some(path), kind)?)
    }

    /// Writes a file in one call.
    ///
    /// # Errors
    /// If it cannot be written, or a file of another kind is there: what was there before stays.
    pub fn write(self, path: &Path, bytes: &[u8], kind: OutputKind) -> Result<(), OutputError> {
        WholeFile::write(path, bytes, self.replace(kind))
    }
}

/// Calls what writes an output, and says on standard error if that replaced an earlier file.
///
/// # Errors
/// Those of `write`.
pub fn saying_replaced<T>(
    output: &Path,
    is_quiet: bool,
    write: impl FnOnce() -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let was_there = output.is_file();
    let written = write()?;
    if was_there && !is_quiet {
        let output = safe_lines(&output.display().to_string());
        eprintln!("{output}: replaced an earlier file");
    }
    Ok(written)
}

/// Returns an error as text, with what to do about it.
pub fn with_advice(error: &anyhow::Error) -> String {
    let output = match error.downcast_ref() {
        Some(MergeError::Output(error)) => Some(error),
        _ => error.downcast_ref::<OutputError>(),
    };
    let is_other_kind = matches!(output, Some(OutputError::OtherKind { .. }));
    let filter = match error.downcast_ref() {
        Some(MergeError::Filter(error)) => Some(error),
        _ => error.downcast_ref::<FilterError>(),
    };
    let advice = match filter {
        _ if matches!(error.downcast_ref(), Some(MergeError::Incomplete { .. })) => {
            "; no trace is written (--strict)"
        }
        _ if is_other_kind => "; name another output, or add --force to replace it",
        Some(filter) => crate::filter::advice(filter),
        None => "",
    };
    format!("{error:#}{advice}")
}

/// Returns the path of a directory's trace: `DIR.annals`, in the same parent directory.
///
/// # Errors
/// If the directory's name cannot be found.
pub fn trace_beside(output: &Path) -> anyhow::Result<PathBuf> {
    // Without what a shell's completion leaves at its end; `.` and `..` are called something else.
    let mut directory: PathBuf = output.components().collect();
    if !matches!(
        directory.components().next_back(),
        Some(Component::Normal(_))
    ) {
        directory = std::fs::canonicalize(output)?;
    }
    anyhow::ensure!(
        directory.file_name().is_some(),
        "{} has no name that the trace could have",
        directory.display()
    );
    let mut trace = directory.into_os_string();
    trace.push(".annals");
    Ok(PathBuf::from(trace))
}

/// Refuses `-` as the file of an option.
///
/// # Errors
/// If it is that.
pub(crate) fn refuse_dash(path: &Path, option: &str) -> Result<(), UsageError> {
    if path.as_os_str() != "-" {
        return Ok(());
    }
    let error = format!("--{option} writes a file; for standard output, give /dev/stdout");
    Err(UsageError(error))
}
