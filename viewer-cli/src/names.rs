//! What stands behind a stream: rank, source, location, by name.

use annals_format::{Definitions, LocationId, ProcessId, SourceId, StreamId};

use crate::calls::ByStream;

/// The place of a stream.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// Rank of its process.
    pub rank: u32,
    /// Its process.
    pub process: ProcessId,
    /// Its source.
    pub source_id: SourceId,
    /// Name of its source.
    pub source: String,
    /// Its location; none for losses that had no stream.
    pub location_id: Option<LocationId>,
    /// Name of its location.
    pub location: Option<String>,
}

/// Places of all streams.
#[derive(Clone, Debug)]
pub struct Places {
    each: Vec<Place>,
    by_stream: ByStream<u32>,
    lost: Place,
}

impl Places {
    /// The places that these definitions know.
    pub fn of(definitions: &Definitions) -> Self {
        let each = definitions.streams.iter().filter_map(|(id, stream)| {
            let source = definitions.sources.get(&stream.source)?;
            let rank = definitions.ranks.get(&source.process);
            let location = stream
                .location
                .and_then(|id| definitions.locations.get(&id));
            let place = Place {
                rank: rank.map_or(0, |rank| rank.rank),
                process: source.process,
                source_id: stream.source,
                source: definitions.string(source.name).to_owned(),
                location_id: stream.location,
                location: location.map(|l| definitions.string(l.name).to_owned()),
            };
            Some((*id, place))
        });
        let (ids, each): (Vec<StreamId>, Vec<Place>) = each.unzip();
        Self {
            by_stream: ids.into_iter().zip(0..).collect(),
            each,
            lost: Place {
                rank: 0,
                process: ProcessId::new(u32::MAX),
                source_id: SourceId::new(u32::MAX),
                source: "unknown".to_owned(),
                location_id: None,
                location: None,
            },
        }
    }

    /// The place of a stream.
    pub fn get(&self, stream: StreamId) -> &Place {
        let place = self.by_stream.get(stream);
        let place = place.and_then(|place| self.each.get(place as usize));
        place.unwrap_or(&self.lost)
    }
}

/// `; did you mean …?` when one of the known names is near.
pub fn did_you_mean<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> String {
    annals_merger::nearest(name, known).map_or_else(String::new, |near| {
        format!("; did you mean `{}`?", crate::table::safe(near))
    })
}
