//! The files of an archive while it is read: a file of events, and reading chunks and records of files of definitions.

use super::scan::{FilePart, Scanned};
use crate::error::{ForeignError, Result};
use crate::otf2::{ChunkEnd, ClockCorrection, DefinitionKind, LocalDefinitions, RawRecords};
use annals_format::FormatError;
use annals_format::{Problem, ReadAt, open_regular};
use std::fs::File;
use std::path::{Path, PathBuf};

/// A location and its file.
#[derive(Debug)]
pub(crate) struct LocationFile {
    pub(crate) id: u64,
    /// The path of the file.
    pub(crate) path: PathBuf,
    pub(crate) local: LocalDefinitions,
    pub(crate) correction: ClockCorrection,
    pub(crate) scanned: Scanned,
    /// The rank of its process.
    pub(crate) rank: Option<u64>,
}

impl LocationFile {
    /// Returns the file of markers, as a location's.
    pub(crate) fn of_markers(path: &Path, scanned: Scanned) -> Self {
        Self {
            id: DefinitionKind::Location.undefined(),
            path: path.to_owned(),
            local: LocalDefinitions::default(),
            correction: ClockCorrection::default(),
            scanned,
            rank: None,
        }
    }

    /// Reads the bytes of a part.
    pub(crate) fn bytes_of(&self, part: &FilePart) -> annals_format::Result<Vec<u8>> {
        let in_file = |error| FormatError::Io {
            offset: part.offset,
            error,
        };
        let (file, _) = open_regular(&self.path).map_err(in_file)?;
        let mut bytes = vec![0; part.length as usize];
        file.read_exact_at(part.offset, &mut bytes)?;
        Ok(bytes)
    }
}

/// Opens a file of an archive.
pub(crate) fn open_file(path: &Path) -> Result<File> {
    let opened = open_regular(path);
    let (file, _) = opened.map_err(ForeignError::io("open", path))?;
    Ok(file)
}

pub(crate) fn problem_of(
    path: &Path,
    offset: u64,
    length: u64,
    what: impl std::fmt::Display,
) -> Problem {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    Problem::new(offset, length, format!("{name}: {what}"))
}

/// Passes the chunks of a file of definitions to `take`, which returns how the chunk ends; notes what cannot be read.
/// Returns whether the file is complete.
pub(crate) fn each_chunk(
    path: &Path,
    chunk_size: u64,
    problems: &mut Vec<Problem>,
    mut take: impl FnMut(&[u8], u64, &mut Vec<Problem>) -> Option<ChunkEnd>,
) -> Result<bool> {
    let format = ForeignError::format(path);
    let file = open_file(path)?;
    let length = file.len().map_err(format)?;
    let mut buffer = Vec::new();
    let mut offset = 0;
    while offset < length {
        buffer.resize((length - offset).min(chunk_size) as usize, 0);
        file.read_exact_at(offset, &mut buffer).map_err(format)?;
        if take(&buffer, offset, problems) == Some(ChunkEnd::File) {
            return Ok(true);
        }
        offset += chunk_size;
    }
    problems.push(problem_of(
        path,
        length,
        0,
        "the end of the file expected, but the data ends there",
    ));
    Ok(false)
}

/// Reads a file of definitions, record by record.
pub(crate) fn each_record(
    path: &Path,
    chunk_size: u64,
    problems: &mut Vec<Problem>,
    mut take: impl FnMut(crate::otf2::RawRecord<'_>, crate::otf2::Endian) -> annals_format::Result<()>,
) -> Result<bool> {
    each_chunk(path, chunk_size, problems, |chunk, offset, problems| {
        let mut records = match RawRecords::new(chunk) {
            Ok(records) => records,
            Err(error) => {
                problems.push(problem_of(path, offset, chunk.len() as u64, error));
                return None;
            }
        };
        let endian = records.endian();
        for record in records.by_ref() {
            let outcome = match record {
                Ok(record) => take(record, endian).map_err(|error| (record.offset, error)),
                Err(error) => Err((0, error)),
            };
            if let Err((at, error)) = outcome {
                problems.push(problem_of(path, offset + at as u64, 0, error));
            }
        }
        records.end
    })
}

pub(crate) fn disagreement(offset: u64) -> FormatError {
    FormatError::Invalid {
        offset,
        expected: "the events that were there when the archive was opened",
        found: "others".to_owned(),
    }
}
