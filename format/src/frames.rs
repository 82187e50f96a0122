//! Frames: parts of a block's body that are read, checked and decompressed alone. The block's head lists them.

use crate::block::{MAX_CHUNK_BODY_LEN, StoredBody, check, open_stored};
use crate::error::{FormatError, Result};
use crate::limits::Content;
use crate::stream_group::StreamCounts;
use crate::wire::{Put, Wire};

/// Least events of a group of streams, unless it is the last of its chunk: what a frame may hold is worth at least so much
/// of its head.
pub const LEAST_GROUP_EVENTS: u64 = 4096;

/// How one frame is stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Frame {
    /// Streams whose events it has; 0: it has the losses of the chunk.
    pub streams: u32,
    /// Code of its compression: 0 none, 1 zstd.
    pub compression: u8,
    /// Bytes, as stored.
    pub stored_len: u32,
    /// Bytes, once decompressed.
    pub raw_len: u32,
    /// Checksum of the bytes as stored.
    pub crc: u32,
}

impl Frame {
    /// Bytes of the shortest one.
    const LEAST_LEN: usize = 8;

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.put_varint(self.streams.into());
        out.push(self.compression);
        out.put_varint(self.stored_len.into());
        out.put_varint(self.raw_len.into());
        out.extend_from_slice(&self.crc.to_le_bytes());
    }

    fn decode(w: &mut Wire<'_>) -> Result<Self> {
        Ok(Self {
            streams: w.varint_u32("streams of a frame")?,
            compression: w.u8("compression of a frame")?,
            stored_len: w.varint_u32("length of a frame")?,
            raw_len: w.varint_u32("decompressed length of a frame")?,
            crc: w.u32("checksum of a frame")?,
        })
    }

    /// Checks and decompresses the frame, given as it is stored.
    pub(crate) fn open(&self, stored: &[u8]) -> Result<Vec<u8>> {
        let raw_len = self.raw_len as usize;
        Content::default().check(raw_len, stored.len())?;
        check("a frame", stored, self.crc)?;
        open_stored(stored, self.compression, raw_len)
    }
}

/// Reads the frames of a chunk with these counts by stream.
pub(crate) fn read_frames(
    w: &mut Wire<'_>,
    has_losses: bool,
    counts: &[StreamCounts],
) -> Result<Vec<Frame>> {
    let start = w.position();
    let length = w.count(Frame::LEAST_LEN, "number of frames")?;
    let mut frames = Vec::with_capacity(length);
    let (mut raw_len, mut next) = (0_u64, 0_usize);
    for number in 0..length {
        let start = w.position();
        let frame = Frame::decode(w)?;
        raw_len += u64::from(frame.raw_len);
        let end = next
            .saturating_add(frame.streams as usize)
            .min(counts.len());
        let of_group = counts[next..end].iter().flat_map(|(_, counts)| counts);
        let events = of_group.fold(0_u64, |sum, (_, count)| sum.saturating_add(*count));
        let is_losses = has_losses && number == 0;
        let is_last = number + 1 == length;
        if is_losses != (frame.streams == 0)
            || (!is_losses && !is_last && events < LEAST_GROUP_EVENTS)
        {
            return Err(FormatError::invalid(
                start,
                "a frame of losses, or of streams with as many events as a group has",
                format!("{} streams with {events} events", frame.streams),
            ));
        }
        next = next.saturating_add(frame.streams as usize);
        frames.push(frame);
    }
    if next != counts.len() || raw_len > MAX_CHUNK_BODY_LEN as u64 {
        return Err(FormatError::invalid(
            start,
            "frames within the limits, of all streams of the head",
            format!("{raw_len} bytes of {next} streams"),
        ));
    }
    Ok(frames)
}

/// Frames of a body under construction.
#[derive(Debug, Default)]
pub(crate) struct StoredFrames {
    frames: Vec<Frame>,
    bytes: Vec<u8>,
    raw_len: u64,
}

impl StoredFrames {
    pub(crate) fn push(&mut self, streams: u32, body: StoredBody) {
        self.raw_len += u64::from(body.raw_len);
        self.frames.push(Frame {
            streams,
            compression: body.compression,
            stored_len: body.bytes.len() as u32,
            raw_len: body.raw_len,
            crc: body.crc,
        });
        self.bytes.extend_from_slice(&body.bytes);
    }

    /// # Errors
    /// If the body is longer than the format allows.
    pub(crate) fn finish(self) -> Result<(Vec<Frame>, StoredBody)> {
        if self.raw_len > MAX_CHUNK_BODY_LEN as u64 {
            return Err(FormatError::invalid(
                0,
                "a body of a trace chunk within the limits",
                format!("{} MiB", self.raw_len >> 20),
            ));
        }
        Ok((self.frames, StoredBody::of_frames(self.bytes)))
    }
}
