//! Compressing a recording whose program has ended: its row chunks are put into columns.

use std::io::{self, Write};
use std::ops::ControlFlow;

use annals_format::{
    BlockWriter, ChunkHeader, ChunkPlace, CompressionLevel, Ended, ReadAt, StoredChunk,
};
use rayon::prelude::*;

use crate::error::{MergeError, Result};
use crate::input::recording::InputRecording;
use crate::whole_file::{OutputError, OutputKind, Replace, WholeFile, remove_abandoned};

/// What a compression has done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Compressed {
    /// Bytes of the file before.
    pub from_bytes: u64,
    /// Bytes of the file after.
    pub to_bytes: u64,
}

/// Chunks that are compressed at the same time for each thread: a chunk has 64 KiB or a few more.
const CHUNKS_A_THREAD: usize = 8;

/// Puts the events of a recording's row chunks into columns, and compresses them: in place of the recording, once the whole is written. Readers
/// find the same. `progress` gets the number of bytes read so far, and can stop the work.
///
/// Files that killed processes left of an earlier attempt are removed. Works with the threads of the current rayon pool.
///
/// Returns `None` when there is nothing to do: no chunk has rows, the process still runs, or the recording is not
/// whole (recover it first) or damaged.
///
/// # Errors
/// [`MergeError::Stopped`] if `progress` stopped it; other errors if the recording cannot be read or written, or a chunk is damaged. The
/// recording is then as it was.
pub fn compress(
    input: &InputRecording,
    level: CompressionLevel,
    mut progress: impl FnMut(u64) -> ControlFlow<()>,
) -> Result<Option<Compressed>> {
    let recording = &input.recording;
    let file = &input.file;
    let is_whole = recording.has_footer && recording.problems.is_empty();
    if !is_whole || recording.ended == Ended::Running {
        return Ok(None);
    }
    let chunks = recording.streams.values().flat_map(|stream| &stream.chunks);
    let offset_of = |chunk: &StoredChunk| match chunk.place {
        ChunkPlace::Block(offset) => Some(offset),
        _ => None,
    };
    let chunks = chunks.filter_map(|chunk| Some((offset_of(chunk)?, chunk)));
    let mut chunks: Vec<(u64, &StoredChunk)> = chunks.collect();
    chunks.sort_by_key(|(offset, _)| *offset);
    let in_file = MergeError::format(&input.path);
    let mut has_rows = false;
    for (_, chunk) in &chunks {
        has_rows = recording.is_of_rows(file, chunk).map_err(in_file)?;
        if has_rows {
            break;
        }
    }
    if !has_rows {
        return Ok(None);
    }
    let not_written = |error: io::Error| OutputError::not_written(&input.path, error);
    let writer = || BlockWriter::new(level);
    let mut blocks = writer().map_err(not_written)?;
    let mut start = vec![0; recording.header.header_len as usize];
    file.read_exact_at(0, &mut start).map_err(in_file)?;
    start.extend(recording.definitions_block(&mut blocks).map_err(in_file)?);
    remove_abandoned(&input.path);
    let mut out = WholeFile::create_private(&input.path, Replace::Only(OutputKind::RECORDING))?;
    out.write_all(&start).map_err(not_written)?;
    let mut length = start.len() as u64;
    let mut heads: Vec<(u64, &ChunkHeader)> = Vec::with_capacity(chunks.len());
    for some in chunks.chunks(CHUNKS_A_THREAD * rayon::current_num_threads()) {
        let encoded = some.par_iter().map_init(writer, |blocks, (_, chunk)| {
            let blocks = blocks
                .as_mut()
                .map_err(|error| not_written(io::Error::new(error.kind(), error.to_string())))?;
            recording.in_columns(file, chunk, blocks).map_err(in_file)
        });
        let encoded: Vec<Vec<u8>> = encoded.collect::<Result<_>>()?;
        for ((_, chunk), block) in some.iter().zip(encoded) {
            out.write_all(&block).map_err(not_written)?;
            heads.push((length, &chunk.header));
            length += block.len() as u64;
        }
        let read = some.last().map_or(0, |(offset, _)| *offset);
        if progress(read).is_break() {
            return Err(MergeError::Stopped);
        }
    }
    let end = recording.last_blocks(length, heads.into_iter(), &mut blocks);
    let end = end.map_err(in_file)?;
    out.write_all(&end).map_err(not_written)?;
    out.finish()?;
    Ok(Some(Compressed {
        from_bytes: input.file_bytes,
        to_bytes: length + end.len() as u64,
    }))
}
