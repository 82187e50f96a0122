//! One event, as a reader returns it.

use std::ops::ControlFlow;
use std::sync::Arc;

use annals_format::{
    Column, Definitions, EventPlace, EventType, EventTypeId, LocationId, MapCursor, OrderedChunk,
    Reference, RegionId, Role, StreamGroup, StreamId, TraceLoss, Value,
};

use super::places::{Places, StreamPlace};
use super::query::{ElementHandle, Query};

/// The items that a reader visits: events in global order, and the losses between them.
#[derive(Clone, Copy, Debug)]
pub enum Item<'a> {
    /// An event.
    Event(Event<'a>),
    /// Events that are missing here, between the events visited before and after.
    Loss(&'a TraceLoss),
}

/// An event of a trace or of recordings.
#[derive(Clone, Copy)]
pub struct Event<'a> {
    batch: &'a Batch<'a>,
    /// Its group, and its place there.
    group: &'a StreamGroup,
    place: EventPlace,
    /// The place of its type among those of the chunk.
    type_number: usize,
}

impl std::fmt::Debug for Event<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut event = f.debug_struct("Event");
        event.field("time", &self.time());
        event.field("rank", &self.rank());
        event.field("location", &self.location());
        event.field("name", &self.name());
        self.values().for_each(|(name, value)| {
            event.field(name, &value);
        });
        event.finish()
    }
}

impl<'a> Event<'a> {
    fn of_type(&self) -> &'a TypeInBatch<'a> {
        &self.batch.types[self.type_number]
    }

    fn columns(&self) -> &'a [Column] {
        let of_type = self.group.type_index[self.place.index as usize];
        &self.group.types[usize::from(of_type)].columns
    }

    fn ordinal(&self) -> usize {
        self.place.ordinal as usize
    }

    fn place(&self) -> &'a StreamPlace {
        self.batch.scope.places.get(self.stream())
    }

    /// Returns its trace time: nanoseconds since the start of the trace.
    #[inline]
    pub fn time(&self) -> i64 {
        self.group.times_ns[self.place.index as usize]
    }

    /// Returns the rank of its process; 0 for a process without one.
    pub fn rank(&self) -> u32 {
        self.place().rank
    }

    /// Returns the name of its location, usually a thread. `None` if the definition is lost.
    pub fn location(&self) -> Option<&'a str> {
        self.place().location.as_deref()
    }

    /// Returns its location. `None` if the definition is lost.
    pub fn location_id(&self) -> Option<LocationId> {
        self.place().location_id
    }

    /// Returns the name of its source.
    pub fn source(&self) -> &'a str {
        &self.place().source
    }

    /// Returns its stream: the events of one source at one location.
    #[inline]
    pub fn stream(&self) -> StreamId {
        self.group.ends[self.place.run as usize].0
    }

    /// Returns the name of its event type.
    pub fn name(&self) -> &'a str {
        &self.of_type().name
    }

    /// Returns its event type.
    #[inline]
    pub fn event_type(&self) -> EventTypeId {
        self.of_type().event_type
    }

    /// Returns the definition of its event type. `None` if it is lost.
    pub fn definition(&self) -> Option<&'a EventType> {
        self.of_type().definition
    }

    /// Returns what its event type means to analyses.
    pub fn role(&self) -> Role {
        self.definition()
            .map_or(Role::Point, |definition| definition.role)
    }

    /// Returns the region that it refers to: of an enter or leave, the region entered or left.
    #[inline]
    pub fn region(&self) -> Option<RegionId> {
        let value = self
            .columns()
            .get(self.of_type().region?)?
            .get(self.ordinal());
        let region = u32::try_from(value.as_integer()?).ok()?;
        Some(RegionId::new(region))
    }

    /// Returns the name of that region.
    pub fn region_name(&self) -> Option<String> {
        let region = self.region()?;
        Some(self.batch.scope.definitions.region_name(region))
    }

    /// Returns the value of an element. [`Value::Absent`] if the event has none.
    #[inline]
    pub fn value(&self, element: ElementHandle) -> Value<'a> {
        let at = self.of_type().handles.get(element.0).copied().flatten();
        self.value_at(at)
    }

    /// Returns the value of an element by its position in the definition of the event type. [`Value::Absent`] if there
    /// is none.
    #[inline]
    pub fn element(&self, position: usize) -> Value<'a> {
        self.value_at(Some(position))
    }

    /// Returns the values of all its elements, in the order of their definition.
    #[inline]
    pub fn elements(&self) -> impl Iterator<Item = Value<'a>> + use<'a> {
        let ordinal = self.ordinal();
        self.columns().iter().map(move |column| column.get(ordinal))
    }

    fn value_at(&self, at: Option<usize>) -> Value<'a> {
        let column = at.and_then(|at| self.columns().get(at));
        column.map_or(Value::Absent, |column| column.get(self.ordinal()))
    }

    /// Returns the values of all its elements with their names, in the order of their definition.
    pub fn values(&self) -> impl Iterator<Item = (&'a str, Value<'a>)> + use<'a> {
        let event = *self;
        let definitions = event.batch.scope.definitions;
        let elements = event.definition().map_or(&[][..], |d| &d.elements);
        elements.iter().enumerate().map(move |(at, element)| {
            let name = definitions.string(element.name);
            (name, event.value_at(Some(at)))
        })
    }

    /// Returns the position among the events of its stream, from 0, in the order in which they were raised. `None` for
    /// streams of ordered sources: their events are visited in that order.
    pub fn position(&self) -> Option<u64> {
        let positions = &self.group.positions;
        positions.get(self.place.index as usize).copied()
    }

    /// Returns how far causality repair moved it, nanoseconds. It is contained in [`Event::time`].
    pub fn shift(&self) -> i64 {
        self.group.shift_ns(self.place.index as usize)
    }

    /// Returns what its source's clock showed, in ticks, wraps undone. `None` if the trace does not hold the clock's
    /// map.
    pub fn raw_tick(&self) -> Option<i128> {
        let definitions = self.batch.scope.definitions;
        let clock = definitions.clock_of(self.stream())?;
        let map = definitions.clock_maps.get(&clock)?;
        let read_ns = self.time().saturating_sub(self.shift());
        let residual = self.group.tick_residuals[self.place.index as usize];
        Some(MapCursor::new(map).tick(read_ns) + i128::from(residual))
    }
}

/// Data that all events of a pass share.
pub(crate) struct Scope<'r> {
    pub(crate) definitions: &'r Definitions,
    pub(crate) places: Places,
    pub(crate) query: Query,
}

impl<'r> Scope<'r> {
    pub(crate) fn new(definitions: &'r Definitions, query: &Query) -> Self {
        Self {
            definitions,
            places: Places::of(definitions),
            query: query.clone(),
        }
    }
}

/// An event type within a chunk.
struct TypeInBatch<'r> {
    event_type: EventTypeId,
    definition: Option<&'r EventType>,
    name: String,
    /// The column that refers to a region.
    region: Option<usize>,
    /// The columns of the query's handles.
    handles: Vec<Option<usize>>,
    is_taken: bool,
}

/// A decoded chunk with what its events need.
pub(crate) struct Batch<'r> {
    chunk: OrderedChunk,
    types: Vec<TypeInBatch<'r>>,
    scope: Arc<Scope<'r>>,
}

impl<'r> Batch<'r> {
    pub(crate) fn new(chunk: OrderedChunk, scope: &Arc<Scope<'r>>) -> Self {
        let definitions = scope.definitions;
        let of_type = |event_type: EventTypeId| {
            let definition = definitions.event_types.get(&event_type);
            let elements = definition.map_or(&[][..], |d| &d.elements);
            let position = |name: &String| {
                let mut elements = elements.iter();
                elements.position(|element| definitions.string(element.name) == name)
            };
            TypeInBatch {
                event_type,
                definition,
                name: definitions.event_type_name(event_type),
                region: elements
                    .iter()
                    .position(|element| element.reference == Reference::Region),
                handles: scope.query.elements().iter().map(position).collect(),
                is_taken: scope.query.takes_event_type(event_type),
            }
        };
        let types = chunk.types();
        Self {
            types: types.map(|columns| of_type(columns.event_type)).collect(),
            chunk,
            scope: Arc::clone(scope),
        }
    }

    #[inline]
    fn event(&self, number: usize) -> Event<'_> {
        let place = *self.chunk.place(number);
        Event {
            batch: self,
            group: &self.chunk.chunk().groups[place.group as usize],
            place,
            type_number: self.chunk.type_number(number),
        }
    }

    /// Visits the events and losses of the query, in order.
    pub(crate) fn visit(
        &self,
        mut visit: impl FnMut(Item<'_>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let query = &self.scope.query;
        let mut losses = self.chunk.losses().peekable();
        for number in 0..self.chunk.len() {
            while let Some((_, loss)) = losses.next_if(|loss| loss.0 <= number) {
                if query.takes_loss(loss) {
                    visit(Item::Loss(loss))?;
                }
            }
            let event = self.event(number);
            if event.of_type().is_taken && self.takes(&event) {
                visit(Item::Event(event))?;
            }
        }
        for (_, loss) in losses {
            if query.takes_loss(loss) {
                visit(Item::Loss(loss))?;
            }
        }
        ControlFlow::Continue(())
    }

    fn takes(&self, event: &Event<'_>) -> bool {
        let query = &self.scope.query;
        query.window().contains(event.time())
            && query.takes_stream(event.stream())
            && (!query.is_by_region()
                || event
                    .region()
                    .is_some_and(|region| query.takes_region(region)))
    }
}
