//! Where the events of a stream happen: rank, source, location, by name.

use annals_format::{Definitions, LocationId, ProcessId, SourceId, StreamId};

use crate::by_stream::ByStream;

/// Where the events of a stream happen.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StreamPlace {
    /// Rank of its process.
    pub rank: u32,
    /// Its process.
    pub process: ProcessId,
    /// Its source.
    pub source_id: SourceId,
    /// Name of its source.
    pub source: String,
    /// Its location. `None` for losses that had no stream.
    pub location_id: Option<LocationId>,
    /// Name of its location. `None` if it has none, or its definition is lost.
    pub location: Option<String>,
}

/// Places of all streams.
#[derive(Clone, Debug)]
pub struct Places {
    each: Vec<StreamPlace>,
    by_stream: ByStream<u32>,
    lost: StreamPlace,
}

impl Places {
    /// Returns the places that these definitions know.
    pub fn of(definitions: &Definitions) -> Self {
        let each = definitions.streams.iter().filter_map(|(id, stream)| {
            let source = definitions.sources.get(&stream.source)?;
            let location = stream
                .location
                .and_then(|id| definitions.locations.get(&id));
            let place = StreamPlace {
                rank: definitions.rank_of(source.process),
                process: source.process,
                source_id: stream.source,
                source: definitions.string(source.name).to_owned(),
                location_id: stream.location,
                location: location.map(|l| definitions.string(l.name).to_owned()),
            };
            Some((*id, place))
        });
        let (ids, each): (Vec<StreamId>, Vec<StreamPlace>) = each.unzip();
        Self {
            by_stream: ids.into_iter().zip(0..).collect(),
            each,
            lost: StreamPlace {
                rank: 0,
                process: ProcessId::new(u32::MAX),
                source_id: SourceId::new(u32::MAX),
                source: "unknown".to_owned(),
                location_id: None,
                location: None,
            },
        }
    }

    /// Returns the place of a stream.
    pub fn get(&self, stream: StreamId) -> &StreamPlace {
        let place = self.by_stream.get(stream);
        let place = place.and_then(|place| self.each.get(place as usize));
        place.unwrap_or(&self.lost)
    }
}
