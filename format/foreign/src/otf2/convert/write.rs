//! Writing the recordings of an archive's processes, part by part.

use super::archive::Archive;
use super::file::problem_of;
use super::process::PlannedProcess;
use super::{decode, markers};
use crate::conversion::{Converted, Options};
use crate::error::{ForeignError, Result};
use annals_format::{
    BlockWriter, Chunk, ChunkHeader, CompressionLevel, Problem, RecordingBuilder, StreamId,
};
use rayon::prelude::*;
use std::fs::File;
use std::io;
use std::path::Path;

/// Parts that are decoded at the same time for each thread. A part becomes some hundred kilobytes.
const PARTS_A_THREAD: usize = 4;

/// A chunk of a recording: the number of its part, and its head.
type Planned = (usize, ChunkHeader);

/// Writes the recordings of processes into a directory, with the threads of the current pool.
///
/// # Errors
/// If one cannot be written, or the conversion was stopped.
pub(super) fn write_all(
    archive: &Archive,
    processes: Vec<PlannedProcess>,
    into: &Path,
    options: &Options<'_>,
) -> Result<Vec<Converted>> {
    let threads = rayon::current_num_threads();
    let write = |number: usize, process, is_alone| {
        let path = into.join(format!("{number}.converted"));
        write(archive, process, &path, options, is_alone)
    };
    if processes.len() < 2 * threads {
        let each = processes.into_iter().enumerate();
        return each
            .map(|(number, process)| write(number, process, true))
            .collect();
    }
    // Many processes have few parts each.
    let each = processes.into_par_iter().enumerate();
    each.map(|(number, process)| write(number, process, false))
        .collect()
}

/// Writes the recording of a process. `is_alone`: all threads work for it.
fn write(
    archive: &Archive,
    process: PlannedProcess,
    path: &Path,
    options: &Options<'_>,
    is_alone: bool,
) -> Result<Converted> {
    let level = CompressionLevel::default();
    let not_written = ForeignError::not_written(path);
    let PlannedProcess {
        recording_id,
        definitions,
        streams,
        mut problems,
        bytes,
    } = process;
    let builder = RecordingBuilder::with_definitions(recording_id, definitions, level);
    let mut builder = builder.map_err(not_written)?;
    let mut file = File::create_new(path).map_err(not_written)?;
    let mut totals = Vec::with_capacity(streams.len());
    let parts_at_a_time = match is_alone {
        true => PARTS_A_THREAD * rayon::current_num_threads(),
        false => PARTS_A_THREAD,
    };
    for stream in streams {
        totals.push(stream.totals);
        let mut heads = stream.heads.into_iter().enumerate().peekable();
        while heads.peek().is_some() {
            let some: Vec<Planned> = heads.by_ref().take(parts_at_a_time).collect();
            if options.is_heads_only {
                some.into_iter()
                    .for_each(|(_, head)| builder.block(head, &[]));
                continue;
            }
            let blocks = blocks_of(archive, &some, level, is_alone).map_err(not_written)?;
            let mut read = 0;
            for ((number, head), block) in some.into_iter().zip(blocks) {
                read += length_of(archive, head.stream, number);
                match block {
                    Ok(block) => builder.block(head, &block),
                    // Its events count as missing.
                    Err(problem) => problems.push(problem),
                }
            }
            builder.write_to(&mut file).map_err(not_written)?;
            options.report(read)?;
        }
    }
    let end = builder.finish_with(totals);
    io::Write::write_all(&mut file, &end).map_err(not_written)?;
    Ok(Converted {
        path: path.to_owned(),
        bytes,
        problems,
    })
}

/// Returns the blocks of chunks, or why there is none.
fn blocks_of(
    archive: &Archive,
    chunks: &[Planned],
    level: CompressionLevel,
    is_alone: bool,
) -> io::Result<Vec<Result<Vec<u8>, Problem>>> {
    let block = |blocks: &mut BlockWriter, (number, head): &Planned| {
        let chunk = load(archive, head.stream, *number)?;
        let mut out = Vec::new();
        chunk.put_block(head, blocks, &mut out);
        Ok(out)
    };
    if !is_alone {
        let mut blocks = BlockWriter::new(level)?;
        let each = chunks.iter();
        return Ok(each.map(|chunk| block(&mut blocks, chunk)).collect());
    }
    let each = chunks.par_iter().map_init(
        || BlockWriter::new(level),
        |blocks, chunk| match blocks {
            Ok(blocks) => Ok(block(blocks, chunk)),
            Err(error) => Err(io::Error::new(error.kind(), error.to_string())),
        },
    );
    each.collect()
}

/// Decodes a part. It was read before: what cannot be decoded has changed since, or the storage fails.
fn load(archive: &Archive, stream: StreamId, number: usize) -> Result<Chunk, Problem> {
    let location = archive.locations.get(stream.index());
    let (file, decoded) = match (location, &archive.markers) {
        (Some(location), _) => {
            let part = &location.scanned.parts[number];
            (location, decode::decode(archive, location, part))
        }
        (None, Some(markers)) => {
            let part = &markers.file.scanned.parts[number];
            let decoded =
                markers::decode(&archive.event_types, &archive.definitions, markers, part);
            (&markers.file, decoded)
        }
        (None, None) => unreachable!("a stream is of a location or of the markers"),
    };
    let part = &file.scanned.parts[number];
    decoded.map_err(|error| problem_of(&file.path, part.offset, part.length, error))
}

/// Returns the number of bytes of a part.
fn length_of(archive: &Archive, stream: StreamId, number: usize) -> u64 {
    let markers = archive.markers.as_ref().map(|markers| &markers.file);
    let file = archive.locations.get(stream.index()).or(markers);
    file.map_or(0, |file| file.scanned.parts[number].length)
}
