//! Adds definitions to a recording that is already complete, such as function names that were resolved later.

use crate::block::{BlockKind, BlockWriter, CompressionLevel, check_len, encode_tail};
use crate::definitions::Definitions;
use crate::error::{FormatError, Result};
use crate::read::ReadAt;
use crate::scan::{footer_offset, read_block, read_file_header};
use crate::wire::{Put, Wire};

/// Bytes to append to a recording, in one piece.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Amendment {
    /// Where they go: the file's length.
    pub offset: u64,
    /// The bytes.
    pub bytes: Vec<u8>,
}

/// Adds definition records to a recording. The file's existing bytes do not change: until the last of the new bytes is
/// written, a reader finds the previous footer.
///
/// # Errors
/// If the storage fails, the file is no recording, or has more definitions than a block can have.
pub fn amend(file: &dyn ReadAt, records: &[u8], level: CompressionLevel) -> Result<Amendment> {
    read_file_header(file)?;
    let offset = file.len()?;
    let mut blocks = BlockWriter::new(level).map_err(|source| FormatError::Io {
        offset,
        error: source,
    })?;
    let mut bytes = Vec::new();
    check_len(records)?;
    blocks.write(BlockKind::Definitions, &[], records, &mut bytes);
    let footer = footer_offset(file)?.and_then(|offset| read_block(file, offset).ok());
    let footer = footer.filter(|(header, ..)| header.kind == BlockKind::Footer);
    if let Some((_, _, body)) = footer {
        // All sections but the first stay as they are.
        let mut wire = Wire::new(&body);
        let section = wire.bytes("definitions of the footer")?;
        let rest = &body[wire.position()..];
        let mut definitions = Definitions::default();
        // A record that cannot be read is not lost: its block still has it.
        let _ = definitions.add_all(section);
        let _ = definitions.add_all(records);
        let mut section = Vec::new();
        definitions.encode(&mut section);
        let mut body = Vec::new();
        body.put_bytes(&section);
        body.extend_from_slice(rest);
        let footer = offset + bytes.len() as u64;
        check_len(&body)?;
        blocks.write(BlockKind::Footer, &[], &body, &mut bytes);
        bytes.extend_from_slice(&encode_tail(footer));
    }
    Ok(Amendment { offset, bytes })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::FileKind;
    use crate::definitions::{Definition, Symbol};
    use crate::ids::{RegionId, StringId};
    use crate::recording::Recording;
    use crate::testing::{FileMaker, chunk};

    fn symbol() -> Definition {
        Definition::Symbol(Symbol {
            region: RegionId::new(3),
            name: StringId::new(1),
            file: StringId::new(0),
            line: 12,
        })
    }

    /// Returns a recording with one chunk, in an index block, and a footer if wanted.
    fn recording(has_footer: bool) -> Vec<u8> {
        let mut file = FileMaker::new(FileKind::Recording);
        file.chunk(chunk(0, 0, &[1, 2, 3]));
        file.index_block();
        if has_footer {
            file.finish();
        }
        file.bytes
    }

    #[test]
    fn an_amended_recording_has_everything_from_before_and_the_new_definitions() {
        for has_footer in [true, false] {
            let mut bytes = recording(has_footer);
            let mut records = Vec::new();
            symbol().encode(&mut records);
            for times in 1..3 {
                let amendment = amend(&bytes, &records, CompressionLevel::default()).unwrap();
                assert_eq!(amendment.offset, bytes.len() as u64);
                bytes.extend_from_slice(&amendment.bytes);
                let read = Recording::read(&bytes, None, |_| false).unwrap();
                assert_eq!(read.has_footer, has_footer);
                assert_eq!(read.definitions.symbols.len(), 1);
                let chunks: usize = read.streams.values().map(|s| s.chunks.len()).sum();
                assert_eq!((chunks, read.problems.len()), (1, 0), "{times}");
            }
        }
    }

    #[test]
    fn an_amendment_that_is_cut_anywhere_costs_nothing_of_the_recording() {
        let bytes = recording(true);
        let mut records = Vec::new();
        symbol().encode(&mut records);
        let amendment = amend(&bytes, &records, CompressionLevel::default()).unwrap();
        for length in 0..amendment.bytes.len() {
            let mut cut = bytes.clone();
            cut.extend_from_slice(&amendment.bytes[..length]);
            let read = Recording::read(&cut, None, |_| false).unwrap();
            assert!(read.has_footer, "cut behind {length} bytes");
            let chunks: usize = read.streams.values().map(|s| s.chunks.len()).sum();
            assert_eq!(chunks, 1);
        }
    }
}
