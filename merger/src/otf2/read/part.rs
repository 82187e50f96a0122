//! One process of an archive as the origin of chunks.

use std::sync::Arc;

use annals_format::{Chunk, StreamId};

use super::archive::Archive;
use super::{decode, markers};

/// One of an archive's processes: reads the parts of its locations.
#[derive(Clone, Debug)]
pub(crate) struct ArchivePart(pub(crate) Arc<Archive>);

impl ArchivePart {
    pub(crate) fn load(&self, stream: StreamId, part: usize) -> annals_format::Result<Chunk> {
        let location = self.0.locations.get(stream.index());
        if let (None, Some(markers)) = (location, &self.0.markers)
            && let Some(part) = markers.file.scanned.parts.get(part)
        {
            return markers::decode(&self.0.event_types, &self.0.definitions, markers, part);
        }
        let found =
            location.and_then(|location| Some((location, location.scanned.parts.get(part)?)));
        let (location, part) = found.ok_or(annals_format::FormatError::Invalid {
            offset: 0,
            expected: "a part of the archive",
            found: "none".to_owned(),
        })?;
        decode::decode(&self.0, location, part)
    }
}
