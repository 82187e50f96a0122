//! The anchor: the file that a user names.

use super::wire::{Endian, Input, Output};
use annals_format::{FormatError, Result};

/// Chunks may be this small.
pub const LEAST_CHUNK: u64 = 256 << 10;
/// Chunks may be this large.
pub const MOST_CHUNK: u64 = 16 << 20;

/// The contents of an anchor.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Anchor {
    /// Version of the anchor's own layout: 3 when written.
    pub anchor_format: u8,
    /// Version of the other files: 1 in archives of 1.0 and early 1.1, else 2.
    pub trace_format: u8,
    /// Version of the library that wrote it.
    pub version: [u8; 3],
    /// Bytes of a chunk of events.
    pub event_chunk_size: u64,
    /// Bytes of a chunk of definitions.
    pub definition_chunk_size: u64,
    /// Number of locations; a hint.
    pub location_count: u64,
    /// Number of records in the global definitions.
    pub definition_count: u64,
    /// Where it was made.
    pub machine: String,
    /// By what.
    pub creator: String,
    /// About what.
    pub description: String,
    /// Names and values.
    pub properties: Vec<(String, String)>,
    /// A random number; `None` in the oldest versions.
    pub trace_id: Option<u64>,
    /// Number of snapshots of each location.
    pub snapshot_count: u32,
    /// Number of thumbnails.
    pub thumbnail_count: u32,
}

fn text(input: &mut Input<'_>, expected: &'static str) -> Result<String> {
    Ok(annals_format::text_of(input.text(expected)?).into_owned())
}

/// How much of an anchor was read.
#[derive(Default)]
struct Reached {
    /// The sizes of chunks are known.
    has_sizes: bool,
    /// The archive is of a kind that cannot be read.
    is_unreadable: bool,
}

impl Anchor {
    /// Returns whether bytes begin as an anchor does.
    pub fn is_one(bytes: &[u8]) -> bool {
        bytes.len() >= 7
            && bytes[0] == 3
            && Endian::from_code(bytes[1]).is_some()
            && bytes[2..7] == *b"OTF2\0"
    }

    /// Returns an anchor without information: of the newest version, with the default chunk sizes of the reference
    /// library.
    pub const fn empty() -> Self {
        Self {
            anchor_format: 3,
            trace_format: 2,
            version: [0; 3],
            event_chunk_size: 1 << 20,
            definition_chunk_size: 4 << 20,
            location_count: 0,
            definition_count: 0,
            machine: String::new(),
            creator: String::new(),
            description: String::new(),
            properties: Vec::new(),
            trace_id: None,
            snapshot_count: 0,
            thumbnail_count: 0,
        }
    }

    /// Reads an anchor.
    ///
    /// # Errors
    /// If the bytes are none, of another format, or of what this reader cannot read: compressed, or in another
    /// substrate than plain files.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut anchor = Self::empty();
        anchor.read_on(bytes, &mut Reached::default())?;
        Ok(anchor)
    }

    /// Reads a damaged anchor up to the damage; the rest is as in [`Anchor::empty`]. Also returns whether the chunk
    /// sizes were read from the anchor, and the error, if there is any.
    ///
    /// # Errors
    /// If what can be read says that the archive cannot: a trace format later than 2, SION containers, compression.
    pub fn salvage(bytes: &[u8]) -> Result<(Self, bool, Option<FormatError>)> {
        let mut anchor = Self::empty();
        let mut reached = Reached::default();
        let outcome = anchor.read_on(bytes, &mut reached);
        match outcome {
            Err(error) if reached.is_unreadable => Err(error),
            outcome => Ok((anchor, reached.has_sizes, outcome.err())),
        }
    }

    fn read_on(&mut self, bytes: &[u8], reached: &mut Reached) -> Result<()> {
        if !Self::is_one(bytes) {
            return Err(FormatError::invalid(
                0,
                "the anchor of an OTF2 archive",
                format!("{:02x?}", &bytes[..bytes.len().min(7)]),
            ));
        }
        let endian = Endian::from_code(bytes[1]).unwrap_or_default();
        let mut input = Input::new(bytes, endian);
        input.seek(7);
        self.anchor_format = input.u8("version of the anchor")?;
        if self.anchor_format == 0 {
            return Err(FormatError::invalid(7, "a version of the anchor", 0));
        }
        let trace_format = input.u8("version of the trace format")?;
        if !(1..=2).contains(&trace_format) {
            reached.is_unreadable = trace_format > 2;
            return Err(FormatError::invalid(8, "trace format 1 or 2", trace_format));
        }
        self.trace_format = trace_format;
        self.version = [
            input.u8("major version")?,
            input.u8("minor version")?,
            input.u8("bug-fix version")?,
        ];
        let event_chunk_size = input.u64("size of event chunks")?;
        let definition_chunk_size = input.u64("size of definition chunks")?;
        for (size, at) in [(event_chunk_size, 12), (definition_chunk_size, 20)] {
            if !(LEAST_CHUNK..=MOST_CHUNK).contains(&size) {
                let expected = "a chunk size of 256 KiB to 16 MiB";
                return Err(FormatError::invalid(at, expected, size));
            }
        }
        self.event_chunk_size = event_chunk_size;
        self.definition_chunk_size = definition_chunk_size;
        reached.has_sizes = true;
        let substrate = input.u8("file substrate")?;
        if substrate != 1 {
            reached.is_unreadable = substrate == 2;
            let expected = "substrate 1 (plain files); SION containers (2) are not read";
            return Err(FormatError::invalid(28, expected, substrate));
        }
        let compression = input.u8("compression")?;
        if compression != 1 {
            reached.is_unreadable = compression == 2;
            let expected = "compression 1 (none); zlib (2), which OTF2 3.0 removed, is not read";
            return Err(FormatError::invalid(29, expected, compression));
        }
        self.location_count = input.u64("number of locations")?;
        self.definition_count = input.u64("number of global definitions")?;
        self.machine = text(&mut input, "name of the machine")?;
        self.creator = text(&mut input, "creator")?;
        self.description = text(&mut input, "description")?;
        if self.anchor_format >= 2 {
            for _ in 0..input.u32("number of properties")? {
                let name = text(&mut input, "name of a property")?;
                let value = text(&mut input, "value of a property")?;
                self.properties.push((name, value));
            }
            self.trace_id = Some(input.u64("trace id")?);
        }
        if self.anchor_format >= 3 {
            self.snapshot_count = input.u32("number of snapshots")?;
            self.thumbnail_count = input.u32("number of thumbnails")?;
        }
        let at = input.position();
        let end = input.u8("the anchor's end")?;
        if self.anchor_format == 3 && end != 2 {
            return Err(FormatError::invalid(at, "the anchor's end (2)", end));
        }
        Ok(())
    }

    /// Appends an anchor of the newest version.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&[3, Endian::Little.code()]);
        out.put_text(b"OTF2");
        out.extend_from_slice(&[3, 2]);
        out.extend_from_slice(&self.version);
        out.put_u64(self.event_chunk_size);
        out.put_u64(self.definition_chunk_size);
        out.extend_from_slice(&[1, 1]);
        out.put_u64(self.location_count);
        out.put_u64(self.definition_count);
        for text in [&self.machine, &self.creator, &self.description] {
            out.put_text(text.as_bytes());
        }
        out.extend_from_slice(&(self.properties.len() as u32).to_le_bytes());
        for (name, value) in &self.properties {
            out.put_text(name.as_bytes());
            out.put_text(value.as_bytes());
        }
        out.put_u64(self.trace_id.unwrap_or(0));
        out.extend_from_slice(&self.snapshot_count.to_le_bytes());
        out.extend_from_slice(&self.thumbnail_count.to_le_bytes());
        out.extend_from_slice(&[2, 1, 0]);
    }
}
