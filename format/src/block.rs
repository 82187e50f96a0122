//! The container: a file header, then self-describing blocks.

use std::cell::RefCell;

use byteorder::{ByteOrder, LittleEndian as LE};

use crate::error::{FormatError, Result};
use crate::ids::RecordingId;
use crate::limits::Content;
use crate::wire::Wire;

/// The first eight bytes of every file: a byte outside ASCII, the name, a line end that text-mode
/// transfers would break.
pub const MAGIC: [u8; 8] = *b"\x8fANNALS\n";
/// Major version of the format: a reader refuses a different one.
pub const MAJOR: u16 = 1;
/// Minor version of the format: a reader reads every one.
pub const MINOR: u16 = 1;
/// Bytes of the file header of this version; later minor versions may have longer ones.
pub const FILE_HEADER_LEN: usize = 64;
/// Bytes of a block header.
pub const BLOCK_HEADER_LEN: usize = 40;
/// The first eight bytes of every block.
pub const SYNC: [u8; 8] = [0xa7, 0x1b, 0xc4, 0x5e, 0xd2, 0x38, 0xf9, 0x06];
/// Most bytes in the head of a block.
pub const MAX_HEAD_LEN: usize = 16 << 20;
/// Most bytes in the body of a block, as stored and once decompressed.
pub const MAX_BODY_LEN: usize = 256 << 20;
/// Maximum size of an index block's decompressed body: a writer ends a block after 4 KiB, and a head is no longer than
/// [`MAX_HEAD_LEN`].
const MAX_INDEX_LEN: usize = 32 << 20;
/// Most bytes in the body of a chunk or trace chunk, once decompressed.
pub const MAX_CHUNK_BODY_LEN: usize = 64 << 20;
/// The last eight bytes of a file with a footer.
const TAIL_MAGIC: [u8; 8] = *b"ANNALEND";
/// Bytes of the tail: offset of the footer block, checksum, magic.
pub const TAIL_LEN: usize = 24;

/// The kind of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FileKind {
    /// The data of one process.
    Recording,
    /// The merged result.
    Trace,
}

/// The first bytes of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileHeader {
    /// Recording or trace.
    pub kind: FileKind,
    /// Identity of the recording; for a trace, a digest of its inputs' identities.
    pub recording_id: RecordingId,
    /// Major version of the format the file is written in.
    pub major: u16,
    /// Minor version.
    pub minor: u16,
    /// Bytes before the first block.
    pub header_len: u32,
}

impl FileHeader {
    /// Creates a header of this version.
    pub const fn new(kind: FileKind, recording_id: RecordingId) -> Self {
        Self {
            kind,
            recording_id,
            major: MAJOR,
            minor: MINOR,
            header_len: FILE_HEADER_LEN as u32,
        }
    }

    /// Returns the header's bytes.
    pub fn encode(&self) -> [u8; FILE_HEADER_LEN] {
        let mut bytes = [0; FILE_HEADER_LEN];
        bytes[..8].copy_from_slice(&MAGIC);
        LE::write_u16(&mut bytes[8..], self.major);
        LE::write_u16(&mut bytes[10..], self.minor);
        LE::write_u32(&mut bytes[12..], self.header_len);
        bytes[16] = match self.kind {
            FileKind::Recording => 1,
            FileKind::Trace => 2,
        };
        bytes[24..40].copy_from_slice(&self.recording_id.0);
        let crc = crc32fast::hash(&bytes[..60]);
        LE::write_u32(&mut bytes[60..], crc);
        bytes
    }

    /// Reads a header from the start of a file.
    ///
    /// # Errors
    /// If the bytes are not an Annals file, of another major version, or damaged.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut wire = Wire::new(bytes);
        if bytes.is_empty() {
            return Err(FormatError::Empty);
        }
        let start = &bytes[..bytes.len().min(MAGIC.len())];
        if !MAGIC.starts_with(start) {
            return Err(FormatError::foreign("an Annals trace or recording", start));
        }
        wire.take(MAGIC.len(), "the magic of an Annals file")?;
        let major = wire.u16("major version")?;
        let minor = wire.u16("minor version")?;
        if major != MAJOR {
            return Err(FormatError::UnsupportedMajor {
                found_major: major,
                found_minor: minor,
                supported_major: MAJOR,
            });
        }
        let header_len = wire.u32("length of the file header")?;
        let kind = wire.u8("kind of the file")?;
        wire.take(7, "reserved bytes")?;
        let recording_id = RecordingId(wire.array("recording id")?);
        wire.take(20, "reserved bytes")?;
        let expected = wire.u32("checksum of the file header")?;
        let found = crc32fast::hash(&bytes[..60]);
        if expected != found {
            return Err(FormatError::Checksum {
                offset: 0,
                what: "the file header",
                expected,
                found,
            });
        }
        if (header_len as usize) < FILE_HEADER_LEN || header_len > 1 << 16 {
            return Err(FormatError::invalid(
                12,
                "a file header of 64 to 65536 bytes",
                header_len,
            ));
        }
        let kind = match kind {
            1 => FileKind::Recording,
            2 => FileKind::Trace,
            other => {
                return Err(FormatError::invalid(
                    16,
                    "kind 1 (recording) or 2 (trace)",
                    other,
                ));
            }
        };
        Ok(Self {
            kind,
            recording_id,
            major,
            minor,
            header_len,
        })
    }
}

/// The kind of a block's contents. Unknown kinds are skipped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum BlockKind {
    Definitions,
    Chunk,
    TraceChunk,
    Totals,
    Footer,
    Snapshot,
    Statistics,
    Index,
    Overview,
    Messages,
    Metrics,
    RowChunk,
    Unknown(u8),
}

impl BlockKind {
    /// Returns the kind with this code.
    pub const fn from_code(code: u8) -> Self {
        match code {
            1 => Self::Definitions,
            2 => Self::Chunk,
            4 => Self::Totals,
            5 => Self::Footer,
            6 => Self::Snapshot,
            7 => Self::Statistics,
            8 => Self::Index,
            9 => Self::TraceChunk,
            10 => Self::Overview,
            11 => Self::Messages,
            12 => Self::Metrics,
            13 => Self::RowChunk,
            other => Self::Unknown(other),
        }
    }

    /// Returns the code in the file.
    pub const fn code(self) -> u8 {
        match self {
            Self::Definitions => 1,
            Self::Chunk => 2,
            Self::Totals => 4,
            Self::Footer => 5,
            Self::Snapshot => 6,
            Self::Statistics => 7,
            Self::Index => 8,
            Self::TraceChunk => 9,
            Self::Overview => 10,
            Self::Messages => 11,
            Self::Metrics => 12,
            Self::RowChunk => 13,
            Self::Unknown(other) => other,
        }
    }
}

/// The fixed part of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockHeader {
    /// The kind of the block's contents.
    pub kind: BlockKind,
    /// Code of the body's compression: 0 none, 1 zstd.
    pub compression: u8,
    /// Bytes of the head.
    pub head_len: u32,
    /// Bytes of the body, as stored.
    pub body_len: u32,
    /// Bytes of the body once decompressed.
    pub raw_len: u32,
    /// Checksum of the head.
    pub head_crc: u32,
    /// Checksum of the body, as stored.
    pub body_crc: u32,
}

impl BlockHeader {
    /// Returns the size of the whole block in bytes.
    pub const fn block_len(&self) -> u64 {
        BLOCK_HEADER_LEN as u64 + self.head_len as u64 + self.body_len as u64
    }

    fn encode(&self) -> [u8; BLOCK_HEADER_LEN] {
        let mut bytes = [0; BLOCK_HEADER_LEN];
        bytes[..8].copy_from_slice(&SYNC);
        bytes[8] = self.kind.code();
        bytes[9] = self.compression;
        LE::write_u32(&mut bytes[12..], self.head_len);
        LE::write_u32(&mut bytes[16..], self.body_len);
        LE::write_u32(&mut bytes[20..], self.raw_len);
        LE::write_u32(&mut bytes[24..], self.head_crc);
        LE::write_u32(&mut bytes[28..], self.body_crc);
        let crc = crc32fast::hash(&bytes[..36]);
        LE::write_u32(&mut bytes[36..], crc);
        bytes
    }

    /// Reads a block header.
    ///
    /// # Errors
    /// If the bytes are not an intact block header.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut wire = Wire::new(bytes);
        let sync: [u8; 8] = wire.array("the sync mark of a block")?;
        if sync != SYNC {
            return Err(FormatError::invalid(
                0,
                "the sync mark of a block",
                format!("{sync:02x?}"),
            ));
        }
        let kind = BlockKind::from_code(wire.u8("block kind")?);
        let compression = wire.u8("compression")?;
        wire.u16("reserved bytes")?;
        let header = Self {
            kind,
            compression,
            head_len: wire.u32("length of the head")?,
            body_len: wire.u32("length of the body")?,
            raw_len: wire.u32("decompressed length")?,
            head_crc: wire.u32("checksum of the head")?,
            body_crc: wire.u32("checksum of the body")?,
        };
        wire.u32("reserved bytes")?;
        let expected = wire.u32("checksum of the block header")?;
        let found = crc32fast::hash(&bytes[..36]);
        if expected != found {
            return Err(FormatError::Checksum {
                offset: 0,
                what: "the block header",
                expected,
                found,
            });
        }
        if header.head_len as usize > MAX_HEAD_LEN || header.body_len as usize > MAX_BODY_LEN {
            return Err(FormatError::invalid(
                12,
                "lengths within the limits",
                format!("head {}, body {}", header.head_len, header.body_len),
            ));
        }
        Ok(header)
    }

    /// Checks that the body stores as many bytes as its content is worth.
    ///
    /// # Errors
    /// If it stores fewer.
    pub(crate) fn check_content(&self, content: Content) -> Result<()> {
        content.check(self.raw_len as usize, self.body_len as usize)
    }

    /// Returns the most bytes that a body of this kind may have once decompressed.
    const fn max_raw_len(&self) -> usize {
        match self.kind {
            BlockKind::Chunk | BlockKind::RowChunk | BlockKind::TraceChunk => MAX_CHUNK_BODY_LEN,
            BlockKind::Index => MAX_INDEX_LEN,
            _ => MAX_BODY_LEN,
        }
    }

    /// Checks a head against its checksum.
    ///
    /// # Errors
    /// If it does not match.
    pub fn check_head(&self, head: &[u8]) -> Result<()> {
        check("the head of a block", head, self.head_crc)
    }

    /// Checks a body as it is stored.
    pub(crate) fn check_body(&self, body: &[u8]) -> Result<()> {
        check("the body of a block", body, self.body_crc)
    }

    /// Checks a stored body against its checksum and decompresses it.
    ///
    /// # Errors
    /// If the checksum does not match, the compression is unknown, or the data is not of the stated
    /// length or exceeds the limits.
    pub fn open_body(&self, body: &[u8]) -> Result<Vec<u8>> {
        let raw_len = self.raw_len as usize;
        if raw_len > self.max_raw_len() {
            let expected = "a decompressed length within the limits";
            return Err(FormatError::invalid(0, expected, raw_len));
        }
        self.check_content(Content::default())?;
        check("the body of a block", body, self.body_crc)?;
        open_stored(body, self.compression, raw_len)
    }
}

/// Decompresses stored bytes that have this length then.
pub(crate) fn open_stored(stored: &[u8], compression: u8, raw_len: usize) -> Result<Vec<u8>> {
    let raw = match compression {
        0 => stored.to_vec(),
        1 => decompress(frame_of(stored)?, raw_len)
            .map_err(|error| FormatError::invalid(0, "a zstd frame", error))?,
        other => {
            return Err(FormatError::invalid(
                0,
                "compression 0 (none) or 1 (zstd)",
                other,
            ));
        }
    };
    if raw.len() != raw_len {
        return Err(FormatError::invalid(
            0,
            "a body of the length in the header",
            format!("{} bytes, {raw_len} expected", raw.len()),
        ));
    }
    Ok(raw)
}

/// Returns the one zstd frame that a body begins with; only zero bytes may follow it.
fn frame_of(body: &[u8]) -> Result<&[u8]> {
    let length = zstd::zstd_safe::find_frame_compressed_size(body).map_err(|code| {
        FormatError::invalid(0, "a zstd frame", zstd::zstd_safe::get_error_name(code))
    })?;
    let (frame, padding) = body.split_at(length.min(body.len()));
    match padding.iter().position(|byte| *byte != 0) {
        None => Ok(frame),
        Some(at) => Err(FormatError::invalid(
            length + at,
            "nothing but zero bytes after the zstd frame",
            format!("{:02x}", padding[at]),
        )),
    }
}

fn decompress(body: &[u8], raw_len: usize) -> std::io::Result<Vec<u8>> {
    thread_local! {
        /// A thread reads block after block: setting up costs as much as decompressing a small one.
        static DECOMPRESSOR: RefCell<Option<zstd::bulk::Decompressor<'static>>> =
            const { RefCell::new(None) };
    }
    DECOMPRESSOR.with_borrow_mut(|kept| {
        let mut decompressor = match kept.take() {
            Some(decompressor) => decompressor,
            None => zstd::bulk::Decompressor::new()?,
        };
        let outcome = decompressor.decompress(body, raw_len);
        *kept = Some(decompressor);
        outcome
    })
}

pub(crate) fn check(what: &'static str, bytes: &[u8], expected: u32) -> Result<()> {
    let found = crc32fast::hash(bytes);
    if found == expected {
        return Ok(());
    }
    Err(FormatError::Checksum {
        offset: 0,
        what,
        expected,
        found,
    })
}

/// How bodies are compressed: a zstd level, or not at all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CompressionLevel {
    /// Store bodies as they are.
    None,
    /// zstd at this level (−7 … 22).
    Zstd(i32),
}

impl Default for CompressionLevel {
    fn default() -> Self {
        Self::Zstd(1)
    }
}

impl std::str::FromStr for CompressionLevel {
    type Err = String;

    /// Reads `none`, or a zstd level such as `1`, `zstd` or `zstd:3`.
    fn from_str(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(Self::None);
        }
        if text == "zstd" {
            return Ok(Self::default());
        }
        let level = text.strip_prefix("zstd:").unwrap_or(text);
        match level.parse::<i32>() {
            Ok(level) if (-7..=22).contains(&level) => Ok(Self::Zstd(level)),
            _ => Err(format!(
                "compression is `none` or a zstd level from -7 to 22, not `{text}`"
            )),
        }
    }
}

/// Builds blocks; owns the compression context, so that a writer pays for it once.
pub struct BlockWriter {
    compressor: Option<Compressor>,
}

/// Makes zstd frames.
struct Compressor(zstd::zstd_safe::CCtx<'static>);

impl Compressor {
    fn new(level: i32) -> std::io::Result<Self> {
        let mut context = zstd::zstd_safe::CCtx::create();
        let parameter = zstd::zstd_safe::CParameter::CompressionLevel(level);
        let set = context.set_parameter(parameter);
        set.map_err(|code| std::io::Error::other(zstd::zstd_safe::get_error_name(code)))?;
        Ok(Self(context))
    }

    /// Compresses `body` into one frame, in which a block ends at each length of `cuts`. `None`
    /// means that zstd failed.
    fn compress(&mut self, body: &[u8], cuts: &[usize]) -> Option<Vec<u8>> {
        use zstd::zstd_safe::zstd_sys::ZSTD_EndDirective as End;
        use zstd::zstd_safe::{InBuffer, OutBuffer, ResetDirective, compress_bound};
        let room = compress_bound(body.len()) + 32 * cuts.len();
        let mut bytes = Vec::with_capacity(room);
        let context = &mut self.0;
        if cuts.is_empty() {
            context.compress2(&mut bytes, body).ok()?;
            return Some(bytes);
        }
        context.reset(ResetDirective::SessionOnly).ok()?;
        context.set_pledged_src_size(Some(body.len() as u64)).ok()?;
        let mut output = OutBuffer::around(&mut bytes);
        let mut start = 0;
        for cut in cuts.iter().copied().chain([body.len()]) {
            let mut input = InBuffer::around(&body[start..cut]);
            let end = if cut == body.len() {
                End::ZSTD_e_end
            } else {
                End::ZSTD_e_flush
            };
            let left = context
                .compress_stream2(&mut output, &mut input, end)
                .ok()?;
            if left != 0 || input.pos != cut - start {
                return None;
            }
            start = cut;
        }
        Some(bytes)
    }
}

impl BlockWriter {
    /// Creates a writer at this level.
    ///
    /// # Errors
    /// If zstd cannot set itself up.
    pub fn new(level: CompressionLevel) -> std::io::Result<Self> {
        let compressor = match level {
            CompressionLevel::None => None,
            CompressionLevel::Zstd(level) => Some(Compressor::new(level)?),
        };
        Ok(Self { compressor })
    }

    /// Compresses a body, to be put into a block later. A body that compression does not make smaller is stored as it
    /// is. Zero bytes follow where the bytes are fewer than the content is worth.
    ///
    /// # Panics
    /// If the body is longer than the format allows; its builder must keep to the limits.
    pub fn store(&mut self, body: &[u8], content: Content) -> StoredBody {
        self.store_parts(body, &[], content)
    }

    /// Stores a body like [`store`](Self::store), but splits it at the offsets `cuts`: each part holds different data
    /// and is compressed with separate statistics.
    ///
    /// # Panics
    /// If [`store`](Self::store) panics.
    pub(crate) fn store_parts(
        &mut self,
        body: &[u8],
        cuts: &[usize],
        content: Content,
    ) -> StoredBody {
        assert!(
            body.len() <= MAX_BODY_LEN,
            "a body's builder keeps to the limits"
        );
        let mut bytes = Vec::new();
        let mut compression = 0;
        if let Some(compressor) = &mut self.compressor
            && !body.is_empty()
        {
            match compressor.compress(body, cuts) {
                Some(stored) if stored.len() < body.len() => {
                    bytes = stored;
                    compression = 1;
                }
                _ => {}
            }
        }
        if compression == 0 {
            bytes.extend_from_slice(body);
        }
        let least = content.least_stored(body.len()) as usize;
        if bytes.len() < least {
            bytes.resize(least, 0);
        }
        let raw_len = if compression == 0 {
            bytes.len()
        } else {
            body.len()
        };
        StoredBody {
            compression,
            raw_len: raw_len as u32,
            crc: crc32fast::hash(&bytes),
            bytes,
        }
    }

    /// Appends a whole block whose content is its bytes: definitions, totals, an index, a footer. See
    /// [`write_with`](Self::write_with).
    ///
    /// # Panics
    /// If head or body are longer than the format allows; their builder must keep to the limits.
    pub fn write(&mut self, kind: BlockKind, head: &[u8], body: &[u8], out: &mut Vec<u8>) {
        self.write_with(kind, head, body, Content::default(), out);
    }

    /// Appends a whole block with the given content to `out`. The body is stored as [`store`](Self::store) does it.
    ///
    /// # Panics
    /// If head or body are longer than the format allows; their builder must keep to the limits.
    pub fn write_with(
        &mut self,
        kind: BlockKind,
        head: &[u8],
        body: &[u8],
        content: Content,
        out: &mut Vec<u8>,
    ) {
        self.store(body, content).put_block(kind, head, out);
    }
}

/// Checks whether a block can have this body.
///
/// # Errors
/// If it is longer than [`MAX_BODY_LEN`].
pub(crate) fn check_len(body: &[u8]) -> Result<()> {
    if body.len() > MAX_BODY_LEN {
        let expected = "content that fits into a block of 256 MiB";
        return Err(FormatError::invalid(
            0,
            expected,
            format!("{} bytes", body.len()),
        ));
    }
    Ok(())
}

/// A body as it is stored in a block.
#[derive(Debug)]
pub struct StoredBody {
    pub(crate) compression: u8,
    pub(crate) raw_len: u32,
    pub(crate) crc: u32,
    pub(crate) bytes: Vec<u8>,
}

impl StoredBody {
    /// Returns a body that consists of frames, each compressed or not.
    pub(crate) fn of_frames(bytes: Vec<u8>) -> Self {
        Self {
            compression: 0,
            raw_len: bytes.len() as u32,
            crc: crc32fast::hash(&bytes),
            bytes,
        }
    }

    /// Returns the stored body of a block as it was read, without decompressing it.
    pub(crate) fn of_block(header: &BlockHeader, bytes: Vec<u8>) -> Self {
        Self {
            compression: header.compression,
            raw_len: header.raw_len,
            crc: header.body_crc,
            bytes,
        }
    }

    /// Appends the block of this body with a head.
    ///
    /// # Panics
    /// If the head exceeds the format's limits: the caller that builds it must respect them.
    pub fn put_block(&self, kind: BlockKind, head: &[u8], out: &mut Vec<u8>) {
        let header = BlockHeader {
            kind,
            compression: self.compression,
            head_len: head.len() as u32,
            body_len: self.bytes.len() as u32,
            raw_len: self.raw_len,
            head_crc: crc32fast::hash(head),
            body_crc: self.crc,
        };
        put_parts(&header, head, &[&self.bytes], out);
    }
}

/// Appends a block whose body, these parts one after the other, is not compressed, and copies it once.
///
/// # Panics
/// If head or body exceed the format's limits: the caller that builds them must respect them.
pub fn put_plain_block(kind: BlockKind, head: &[u8], body: &[&[u8]], out: &mut Vec<u8>) {
    let length: usize = body.iter().map(|part| part.len()).sum();
    assert!(
        length <= MAX_BODY_LEN,
        "a body's builder keeps to the limits"
    );
    let mut crc = crc32fast::Hasher::new();
    body.iter().for_each(|part| crc.update(part));
    let header = BlockHeader {
        kind,
        compression: 0,
        head_len: head.len() as u32,
        body_len: length as u32,
        raw_len: length as u32,
        head_crc: crc32fast::hash(head),
        body_crc: crc.finalize(),
    };
    put_parts(&header, head, body, out);
}

fn put_parts(header: &BlockHeader, head: &[u8], body: &[&[u8]], out: &mut Vec<u8>) {
    assert!(
        head.len() <= MAX_HEAD_LEN,
        "a head's builder keeps to the limits"
    );
    out.extend_from_slice(&header.encode());
    out.extend_from_slice(head);
    body.iter().for_each(|part| out.extend_from_slice(part));
}

/// Returns the tail that follows a footer block at `footer_offset`.
pub fn encode_tail(footer_offset: u64) -> [u8; TAIL_LEN] {
    let mut bytes = [0; TAIL_LEN];
    LE::write_u64(&mut bytes, footer_offset);
    let crc = crc32fast::hash(&bytes[..8]);
    LE::write_u32(&mut bytes[8..], crc);
    bytes[16..].copy_from_slice(&TAIL_MAGIC);
    bytes
}

/// Returns the offset of the footer block, if these last bytes of a file are an intact tail.
pub fn decode_tail(bytes: &[u8]) -> Option<u64> {
    let intact = bytes.len() == TAIL_LEN
        && bytes[16..] == TAIL_MAGIC
        && LE::read_u32(&bytes[8..]) == crc32fast::hash(&bytes[..8]);
    intact.then(|| LE::read_u64(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_round_trips_compressed_and_stored() {
        for level in [CompressionLevel::None, CompressionLevel::Zstd(3)] {
            let mut out = vec![1, 2, 3];
            let body = vec![42; 1000];
            let mut writer = BlockWriter::new(level).unwrap();
            writer.write(BlockKind::Chunk, b"head", &body, &mut out);
            let block = &out[3..];
            let header = BlockHeader::decode(block).unwrap();
            assert_eq!(header.block_len(), block.len() as u64);
            let head = &block[BLOCK_HEADER_LEN..][..header.head_len as usize];
            header.check_head(head).unwrap();
            assert_eq!(head, b"head");
            let stored = &block[BLOCK_HEADER_LEN + head.len()..];
            assert_eq!(header.open_body(stored).unwrap(), body);
        }
    }

    #[test]
    fn every_flipped_bit_of_a_block_is_noticed() {
        let mut block = Vec::new();
        let mut writer = BlockWriter::new(CompressionLevel::Zstd(1)).unwrap();
        writer.write(BlockKind::Chunk, b"head", &[7; 300], &mut block);
        for position in 0..block.len() {
            let mut flipped = block.clone();
            flipped[position] ^= 0x10;
            let Ok(header) = BlockHeader::decode(&flipped) else {
                continue;
            };
            let (head, body) = flipped[BLOCK_HEADER_LEN..].split_at(header.head_len as usize);
            let is_noticed = header.check_head(head).is_err() || header.open_body(body).is_err();
            assert!(is_noticed, "byte {position}");
        }
    }

    /// Returns a block of definitions with this stored body.
    fn stored(stored: &[u8], raw_len: usize) -> (BlockHeader, Vec<u8>) {
        let body = StoredBody {
            compression: 1,
            raw_len: raw_len as u32,
            crc: crc32fast::hash(stored),
            bytes: stored.to_vec(),
        };
        let mut block = Vec::new();
        body.put_block(BlockKind::Definitions, &[], &mut block);
        (BlockHeader::decode(&block).unwrap(), stored.to_vec())
    }

    #[test]
    fn a_body_is_one_zstd_frame_and_zero_bytes() {
        let raw = b"a body of some bytes, some bytes, some bytes".repeat(9);
        let frame = zstd::bulk::compress(&raw, 1).unwrap();
        let opens = |bytes: &[u8], raw_len: usize| {
            let (header, body) = stored(bytes, raw_len);
            header.open_body(&body).map(|raw| raw.len())
        };
        assert_eq!(opens(&frame, raw.len()).unwrap(), raw.len());
        assert_eq!(
            opens(&[&frame[..], &[0; 9]].concat(), raw.len()).unwrap(),
            raw.len()
        );
        let two = [&frame[..], &frame].concat();
        assert!(opens(&two, 2 * raw.len()).is_err(), "two frames");
        assert!(opens(&two, raw.len()).is_err(), "a frame after the first");
        // A frame that decoders step over, before and after it.
        let skippable = [0x50, 0x2a, 0x4d, 0x18, 2, 0, 0, 0, 7, 7];
        assert!(opens(&[&frame[..], &skippable].concat(), raw.len()).is_err());
        assert!(opens(&[&skippable[..], &frame].concat(), raw.len()).is_err());
    }

    #[test]
    fn a_body_stores_as_many_bytes_as_its_content_is_worth() {
        let mut writer = BlockWriter::new(CompressionLevel::Zstd(1)).unwrap();
        let raw = vec![7; 1 << 20];
        let contents = [
            Content::default(),
            Content {
                items: 1 << 20,
                text_bytes: 0,
            },
            Content {
                items: 0,
                text_bytes: 1 << 30,
            },
        ];
        for content in contents {
            let mut block = Vec::new();
            writer.write_with(BlockKind::Snapshot, &[], &raw, content, &mut block);
            let header = BlockHeader::decode(&block).unwrap();
            header.check_content(content).unwrap();
            assert_eq!(header.open_body(&block[BLOCK_HEADER_LEN..]).unwrap(), raw);
            // Not a byte less.
            let less = BlockHeader {
                body_len: header.body_len - 1,
                ..header
            };
            assert!(less.check_content(content).is_err());
        }
        // Without compression the zeros are part of the body.
        let mut writer = BlockWriter::new(CompressionLevel::None).unwrap();
        let mut block = Vec::new();
        let content = contents[1];
        writer.write_with(BlockKind::Snapshot, &[], &[1, 2, 3], content, &mut block);
        let header = BlockHeader::decode(&block).unwrap();
        let opened = header.open_body(&block[BLOCK_HEADER_LEN..]).unwrap();
        assert_eq!(opened[..4], [1, 2, 3, 0]);
        assert_eq!(opened.len(), ((1 << 20) - 4096) / 64);
    }

    #[test]
    fn a_block_whose_body_is_worth_too_much_is_stepped_over_and_not_opened() {
        let raw = vec![0; 16 << 20];
        let frame = zstd::bulk::compress(&raw, 3).unwrap();
        let (header, body) = stored(&frame, raw.len());
        let error = header.open_body(&body).unwrap_err().to_string();
        assert!(error.contains("as its content is worth"), "{error}");
    }

    #[test]
    fn an_unknown_minor_is_read_and_an_unknown_major_refused() {
        let mut header = FileHeader::new(FileKind::Recording, RecordingId([1; 16]));
        header.minor = 7;
        assert_eq!(FileHeader::decode(&header.encode()).unwrap().minor, 7);
        header.major = 2;
        let error = FileHeader::decode(&header.encode()).unwrap_err();
        assert!(error.to_string().contains("2.7"), "{error}");
        assert!(error.to_string().contains("1.x"), "{error}");
    }
}
