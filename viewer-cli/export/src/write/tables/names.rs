//! Names that columns of several tables have, as dictionaries, and where streams and locations are.

use std::sync::Arc;

use annals_analysis::{LocationNames, MessageWaits};
use annals_format::{Reference, RegionId, Role, StreamId, StringId};
use annals_merger::ByStream;
use arrow_array::types::Int32Type;
use arrow_array::{Array, ArrayRef, DictionaryArray, Int32Array, StringArray};
use arrow_buffer::NullBuffer;
use rustc_hash::FxHashMap;

use crate::write::exporter::Context;

/// Names of one kind of definition, and which of them an id is.
#[derive(Clone, Debug)]
pub(super) struct Names {
    values: ArrayRef,
    near: Vec<i32>,
    far: FxHashMap<u32, i32>,
    unknown: i32,
}

impl Names {
    const LARGEST: usize = 1 << 20;

    /// Takes ids and their names.
    pub(super) fn of(each: impl Iterator<Item = (u32, String)>) -> Self {
        let mut numbers: FxHashMap<String, i32> = FxHashMap::default();
        let mut values: Vec<String> = Vec::new();
        let (mut near, mut far) = (Vec::new(), FxHashMap::default());
        for (id, name) in each {
            let number = *numbers.entry(name.clone()).or_insert_with(|| {
                values.push(name);
                values.len() as i32 - 1
            });
            let index = id as usize;
            if index >= Self::LARGEST {
                far.insert(id, number);
                continue;
            }
            let length = near.len().max(index + 1);
            near.resize(length, -1);
            near[index] = number;
        }
        let unknown = values.len() as i32;
        values.push("(unknown)".to_owned());
        near.iter_mut()
            .filter(|key| **key < 0)
            .for_each(|key| *key = unknown);
        Self {
            values: Arc::new(StringArray::from(values)),
            near,
            far,
            unknown,
        }
    }

    /// Returns the number of an id's name.
    #[inline]
    pub(super) fn key(&self, id: u64) -> i32 {
        match self.near.get(id as usize) {
            Some(key) => *key,
            None => self.far_key(id),
        }
    }

    #[cold]
    fn far_key(&self, id: u64) -> i32 {
        let id = u32::try_from(id).ok();
        let key = id.and_then(|id| self.far.get(&id));
        key.copied().unwrap_or(self.unknown)
    }

    /// Returns the name of an id.
    pub(super) fn text(&self, id: u64) -> &str {
        let values = self.values.as_any().downcast_ref::<StringArray>();
        values.expect("names are text").value(self.key(id) as usize)
    }

    /// Returns names by number.
    pub(super) fn array(&self, keys: Vec<i32>, valid: Option<NullBuffer>) -> ArrayRef {
        let keys = Int32Array::new(keys.into(), valid);
        let array = DictionaryArray::<Int32Type>::try_new(keys, Arc::clone(&self.values));
        Arc::new(array.expect("every key is one of the names"))
    }
}

/// Where events of a stream are, by numbers of names.
#[derive(Clone, Copy, Debug)]
pub(super) struct StreamPlace {
    pub(super) rank: i64,
    /// Of the stream; −1: none.
    pub(super) location: i32,
    pub(super) source: i32,
}

/// Where calls of a location are, by numbers of names.
#[derive(Clone, Copy, Debug)]
pub(super) struct LocationPlace {
    pub(super) rank: i64,
    pub(super) location: i32,
    pub(super) host: i32,
    /// The system's id of the thread. 0 means that there is none.
    pub(super) thread_id: u64,
}

/// Data that rows of several tables need.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(super) locations: Names,
    pub(super) sources: Names,
    pub(super) regions: Names,
    pub(super) event_types: Names,
    pub(super) strings: Option<Names>,
    /// Units of metrics, by number of the text.
    pub(super) units: Names,
    pub(super) objects: Names,
    pub(super) call_paths: Names,
    pub(super) by_stream: ByStream<StreamPlace>,
    pub(super) lost: StreamPlace,
    pub(super) by_location: Vec<LocationPlace>,
    /// Source files, by region.
    pub(super) files: Names,
    /// Lines in them that are known.
    pub(super) lines: FxHashMap<RegionId, u32>,
    /// Hosts, by process.
    pub(super) hosts: Names,
    pub(super) waits: MessageWaits,
}

impl Shared {
    pub(crate) fn of(context: &Context<'_>) -> Self {
        let d = context.definitions;
        let text = |id: StringId| d.string(id).to_owned();
        let locations = d.locations.values();
        let names = LocationNames::new(d);
        let locations = Names::of(locations.map(|l| (l.id.get(), names.get(l.id).to_owned())));
        let sources = Names::of(d.sources.values().map(|s| (s.id.get(), text(s.name))));
        let place = |stream: &annals_format::Stream| {
            let place = context.places.get(stream.id);
            let location = stream.location.filter(|id| d.locations.contains_key(id));
            let found = StreamPlace {
                rank: place.rank.into(),
                location: location.map_or(-1, |id| locations.key(id.get().into())),
                source: sources.key(stream.source.get().into()),
            };
            (stream.id, found)
        };
        let hosts = Names::of(d.processes.values().map(|p| (p.id.get(), text(p.host))));
        let by_location = (0..context.locations.len()).map(|number| {
            let (rank, _) = context.location(number);
            let id = context.locations[number];
            let location = d.locations.get(&id);
            LocationPlace {
                rank: rank.into(),
                location: locations.key(id.get().into()),
                host: hosts.key(location.map_or(u64::MAX, |l| l.process.get().into())),
                thread_id: location.map_or(0, |location| location.system_id),
            }
        });
        let regions = d.regions.values();
        let lines = regions.filter(|region| region.line != 0);
        let refers_to_strings = d.event_types.values().any(|event_type| {
            let mut elements = event_type.elements.iter();
            elements.any(|element| element.reference == Reference::String)
        });
        let metrics = d.event_types.values().filter(|t| t.role == Role::Metric);
        let units = metrics.flat_map(|t| t.elements.iter().map(|element| element.unit));
        let units = units.map(|unit| (unit.get(), text(unit)));
        Self {
            by_stream: d.streams.values().map(place).collect(),
            by_location: by_location.collect(),
            files: Names::of(d.regions.values().map(|r| (r.id.get(), text(r.file)))),
            lines: lines.map(|region| (region.id, region.line)).collect(),
            hosts,
            waits: MessageWaits::new(d),
            lost: StreamPlace {
                rank: 0,
                location: -1,
                source: sources.unknown,
            },
            regions: Names::of(d.regions.keys().map(|id| (id.get(), d.region_name(*id)))),
            event_types: Names::of(
                d.event_types
                    .keys()
                    .map(|id| (id.get(), d.event_type_name(*id))),
            ),
            units: Names::of(units),
            strings: refers_to_strings.then(|| {
                let strings = d.strings.iter();
                Names::of(strings.map(|(id, text)| (id.get(), text.clone())))
            }),
            objects: Names::of(d.objects.values().map(|o| (o.id.get(), text(o.name)))),
            call_paths: Names::of(
                d.call_paths
                    .keys()
                    .map(|id| (id.get(), d.call_path_name(*id))),
            ),
            locations,
            sources,
        }
    }

    /// Returns where the events of a stream are.
    pub(super) fn place(&self, stream: StreamId) -> StreamPlace {
        self.by_stream.get(stream).unwrap_or(self.lost)
    }

    /// Returns the names that values refer to.
    pub(super) fn of_reference(&self, reference: Reference) -> Option<&Names> {
        match reference {
            Reference::None | Reference::Rank => None,
            Reference::String => self.strings.as_ref(),
            Reference::Region => Some(&self.regions),
            Reference::Location => Some(&self.locations),
            Reference::Source => Some(&self.sources),
            Reference::EventType => Some(&self.event_types),
            Reference::Object => Some(&self.objects),
            Reference::CallPath => Some(&self.call_paths),
        }
    }

    /// Returns names of locations; −1: none.
    pub(super) fn location_array(&self, keys: Vec<i32>) -> ArrayRef {
        let has_none = keys.iter().any(|key| *key < 0);
        let valid = has_none.then(|| keys.iter().map(|key| *key >= 0).collect::<Vec<bool>>());
        let keys = keys.into_iter().map(|key| key.max(0)).collect();
        self.locations.array(keys, valid.map(NullBuffer::from))
    }

    /// Returns the name of what a value refers to; of a communicator, for instance.
    pub(super) fn name(&self, value: (Reference, u64)) -> String {
        let (reference, number) = value;
        self.of_reference(reference)
            .map_or_else(|| number.to_string(), |names| names.text(number).to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_definition_names_is_unknown() {
        let names = Names::of([(3, "c".to_owned()), (1 << 30, "far".to_owned())].into_iter());
        let array = names.array(
            [3, 1 << 30, 2, 77, u64::MAX]
                .map(|id| names.key(id))
                .to_vec(),
            None,
        );
        let array = array
            .as_any()
            .downcast_ref::<DictionaryArray<Int32Type>>()
            .unwrap();
        let text = array.downcast_dict::<StringArray>().unwrap();
        let text: Vec<_> = text.into_iter().flatten().collect();
        assert_eq!(text, ["c", "far", "(unknown)", "(unknown)", "(unknown)"]);
    }
}
