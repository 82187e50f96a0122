//! Queries: which events a reader returns, and which of their elements are asked for.

use annals_format::{Definitions, EventTypeId, LocationId, RegionId, StreamId, TraceLoss};
use std::collections::BTreeSet;

use crate::filter::{EventFilter, FilterError, Selection};
use crate::window::Window;

/// An element that a [`Query`] asks for, by name. It belongs to the query that made it. Event types without such an element have
/// no value for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ElementHandle(pub(super) usize);

/// Which events are read. A new query reads all of them.
///
/// [`Query::select`] makes one from names.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Query {
    window: Window,
    selection: Selection,
    /// `None`: all.
    regions: Option<BTreeSet<RegionId>>,
    /// Names of the elements that have handles.
    elements: Vec<String>,
}

impl Query {
    /// Creates a query that reads every event.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a query from names.
    ///
    /// # Errors
    /// If a pattern cannot be parsed, or matches nothing.
    pub fn select(filter: &EventFilter, definitions: &Definitions) -> Result<Self, FilterError> {
        Ok(Self {
            selection: filter.select(definitions)?,
            ..Self::default()
        })
    }

    /// Reads only events of a window of time.
    pub const fn set_window(&mut self, window: Window) -> &mut Self {
        self.window = window;
        self
    }

    /// Returns the query for another window of time.
    pub fn within(&self, window: Window) -> Self {
        let mut query = self.clone();
        query.window = window;
        query
    }

    /// Reads only events of these types, of those that are read already.
    pub fn set_event_types(
        &mut self,
        event_types: impl IntoIterator<Item = EventTypeId>,
    ) -> &mut Self {
        self.selection.keep_event_types(event_types);
        self
    }

    /// Reads only events of these locations, of those that are read already.
    pub fn set_locations(
        &mut self,
        definitions: &Definitions,
        locations: &BTreeSet<LocationId>,
    ) -> &mut Self {
        let streams = definitions.streams.values();
        let is_of = |id: LocationId| locations.contains(&id);
        let chosen = streams.filter(|stream| stream.location.is_some_and(is_of));
        self.selection.keep_streams(chosen.map(|stream| stream.id));
        self
    }

    /// Reads only events that refer to these regions, and visits only calls of these. Depth, parent and end of a call are found from
    /// all calls of its location. [`regions_like`](crate::regions_like) finds regions by name.
    pub fn set_regions(&mut self, regions: impl IntoIterator<Item = RegionId>) -> &mut Self {
        self.regions = Some(regions.into_iter().collect());
        self
    }

    /// Returns the query for events of these types alone, of those that are read already, whatever regions they refer to.
    pub fn of_event_types(&self, event_types: impl IntoIterator<Item = EventTypeId>) -> Self {
        let mut query = self.clone();
        query.regions = None;
        query.selection.keep_event_types(event_types);
        query
    }

    /// Asks for an element by name. [`Event::value`](super::Event::value) returns its value.
    pub fn element(&mut self, name: &str) -> ElementHandle {
        let known = self.elements.iter().position(|known| known == name);
        ElementHandle(known.unwrap_or_else(|| {
            self.elements.push(name.to_owned());
            self.elements.len() - 1
        }))
    }

    /// Returns the window of time.
    pub const fn window(&self) -> Window {
        self.window
    }

    /// Returns whether events of a stream are read.
    pub fn takes_stream(&self, stream: StreamId) -> bool {
        self.selection.takes_stream(stream)
    }

    /// Returns whether events of a type are read.
    pub fn takes_event_type(&self, event_type: EventTypeId) -> bool {
        self.selection.takes_event_type(event_type)
    }

    /// Returns whether the query includes a region.
    pub fn takes_region(&self, region: RegionId) -> bool {
        let regions = self.regions.as_ref();
        regions.is_none_or(|set| set.contains(&region))
    }

    /// Returns whether the query includes only some regions. Events that belong to no region are
    /// then left out.
    pub const fn is_by_region(&self) -> bool {
        self.regions.is_some()
    }

    /// Returns whether a loss can have cost events of this query.
    pub fn takes_loss(&self, loss: &TraceLoss) -> bool {
        self.takes_stream(loss.stream)
            && loss
                .event_type
                .is_none_or(|event_type| self.takes_event_type(event_type))
            && self.window.overlaps(loss.from_ns, loss.to_ns)
    }

    pub(super) fn elements(&self) -> &[String] {
        &self.elements
    }
}
