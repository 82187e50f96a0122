//! Which events of a trace enter and leave regions, and at which location.

use annals_format::names::element;
use annals_format::{Definitions, EventTypeId, LocationId, Role, StreamId, TraceLoss};
use rustc_hash::FxHashMap;

use crate::by_stream::ByStream;
use crate::calls::Ending;

/// An event type that enters or leaves regions.
#[derive(Clone, Copy, Debug)]
struct RegionEventKind {
    is_enter: bool,
    /// Which element is the region.
    at: usize,
}

/// The parts of a trace's definitions that the stacks need.
#[derive(Debug)]
pub(crate) struct RegionTypes {
    /// By event type.
    kinds: FxHashMap<u32, RegionEventKind>,
    /// By stream, the number of its location.
    locations: ByStream<u32>,
    /// By stream, whether it is its location's only one.
    alone: ByStream<bool>,
    /// By number, ascending.
    ids: Vec<LocationId>,
    /// By number: the end of what the trace has of each.
    ends: Vec<Ending>,
}

impl RegionTypes {
    pub(crate) fn of(definitions: &Definitions) -> Self {
        let types = definitions.event_types.values();
        let kinds = types.filter_map(|event_type| {
            let is_enter = match event_type.role {
                Role::Enter => true,
                Role::Leave => false,
                _ => return None,
            };
            let mut elements = event_type.elements.iter();
            let at = elements.position(|e| definitions.string(e.name) == element::REGION)?;
            Some((event_type.id.get(), RegionEventKind { is_enter, at }))
        });
        let ids: Vec<LocationId> = definitions.locations.keys().copied().collect();
        let streams = definitions.streams.values();
        let places = streams.filter_map(|stream| {
            let number = ids.binary_search(&stream.location?).ok()?;
            Some((stream.id, number as u32))
        });
        let places: Vec<(StreamId, u32)> = places.collect();
        let mut streams_at = vec![0_u32; ids.len()];
        places
            .iter()
            .for_each(|(_, number)| streams_at[*number as usize] += 1);
        let alone = places
            .iter()
            .map(|(stream, number)| (*stream, streams_at[*number as usize] == 1));
        let end_of = |id: &LocationId| Ending::in_trace(definitions, *id);
        Self {
            kinds: kinds.collect(),
            alone: alone.collect(),
            locations: places.into_iter().collect(),
            ends: ids.iter().map(end_of).collect(),
            ids,
        }
    }

    /// Returns whether what a stream has is all that its location has; so is one without a
    /// location.
    pub(crate) fn is_alone(&self, stream: StreamId) -> bool {
        self.alone.get(stream).unwrap_or(true)
    }

    /// Returns the locations, by number.
    pub(crate) fn locations(&self) -> &[LocationId] {
        &self.ids
    }

    /// Returns the end of what the trace has of each location, by number.
    pub(crate) fn ends(&self) -> &[Ending] {
        &self.ends
    }

    /// Returns the number of a stream's location.
    #[inline]
    pub(crate) fn location_of(&self, stream: StreamId) -> Option<u32> {
        self.locations.get(stream)
    }

    /// Returns, for an event type that enters or leaves regions, whether it enters, and which element is the region.
    pub(crate) fn kind(&self, event_type: EventTypeId) -> Option<(bool, usize)> {
        let kind = self.kinds.get(&event_type.get())?;
        Some((kind.is_enter, kind.at))
    }

    /// Returns whether no event enters or leaves a region.
    pub(crate) fn is_empty(&self) -> bool {
        self.kinds.is_empty()
    }

    /// Returns whether a loss may have been one of enters or leaves.
    pub(crate) fn is_gap(&self, loss: &TraceLoss) -> bool {
        !loss.cause.is_suppressed()
            && loss
                .event_type
                .is_none_or(|event_type| self.kinds.contains_key(&event_type.get()))
    }
}
