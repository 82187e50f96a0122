//! Events of a chunk, for callers that read many of them together or as columns.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use annals_format::{
    Column, Definitions, EventTypeId, OrderedChunk, Reference, RegionId, StreamId, Value,
};

use rustc_hash::FxHashMap;

use super::query::Query;

/// The events of a chunk that a query takes, in order, numbered from 0.
#[derive(Debug)]
pub struct ChunkEvents {
    chunk: OrderedChunk,
    /// Numbers of the events in the chunk, ascending.
    rows: Vec<u32>,
    /// The event types of all groups, each once.
    event_types: Vec<EventTypeId>,
    /// By type of the chunk, its place among them.
    places: Vec<usize>,
}

impl ChunkEvents {
    /// Finds the events of a chunk that a query takes.
    pub fn of(chunk: OrderedChunk, definitions: &Definitions, query: &Query) -> Self {
        let types = chunk.types().map(|columns| {
            let event_type = definitions.event_types.get(&columns.event_type);
            let elements = event_type.map_or(&[][..], |event_type| &event_type.elements);
            let mut each = elements.iter();
            let region = each.position(|element| element.reference == Reference::Region);
            let region = region.and_then(|at| columns.columns.get(at));
            (query.takes_event_type(columns.event_type), region)
        });
        let types: Vec<(bool, Option<&Column>)> = types.collect();
        let window = query.window();
        let first = chunk.count_before(window.from_ns);
        let last = match window.to_ns {
            i64::MAX => chunk.len(),
            to_ns => chunk.count_before(to_ns).max(first),
        };
        let takes = |index: &usize| {
            let (is_taken, region) = types[chunk.type_number(*index)];
            if !is_taken || !query.takes_stream(chunk.stream(*index)) {
                return false;
            }
            !query.is_by_region() || {
                let value =
                    region.and_then(|column| column.get(chunk.ordinal(*index)).as_integer());
                let region = value.and_then(|region| u32::try_from(region).ok());
                region.is_some_and(|region| query.takes_region(RegionId::new(region)))
            }
        };
        let mut rows = Vec::with_capacity(last - first);
        rows.extend((first..last).filter(takes).map(|index| index as u32));
        let mut event_types = Vec::new();
        let mut known = FxHashMap::default();
        let places = chunk.types().map(|columns| {
            *known.entry(columns.event_type).or_insert_with(|| {
                event_types.push(columns.event_type);
                event_types.len() - 1
            })
        });
        Self {
            places: places.collect(),
            event_types,
            chunk,
            rows,
        }
    }

    /// Returns the number of events.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Returns the event types of the chunk, each once.
    pub fn event_types(&self) -> impl ExactSizeIterator<Item = EventTypeId> {
        self.event_types.iter().copied()
    }

    /// Returns the number of an event in the chunk.
    ///
    /// # Panics
    /// Like the following functions, if there is no event of that number.
    pub fn index(&self, event: usize) -> usize {
        self.rows[event] as usize
    }

    /// Returns the trace time of an event, nanoseconds.
    pub fn time(&self, event: usize) -> i64 {
        self.chunk.time_ns(self.index(event))
    }

    /// Returns the stream of an event.
    pub fn stream(&self, event: usize) -> StreamId {
        self.chunk.stream(self.index(event))
    }

    /// Returns the place of an event's type among [`ChunkEvents::event_types`].
    pub fn type_place(&self, event: usize) -> usize {
        self.places[self.chunk.type_number(self.index(event))]
    }

    /// Returns the value of an element of an event, by its position in the definition of the event type.
    /// [`Value::Absent`] if there is none.
    pub fn value(&self, event: usize, element: usize) -> Value<'_> {
        self.chunk.value(self.index(event), element)
    }
}

/// Values of numeric elements, one for each event of a range.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NumberColumn {
    /// Integers in two's complement, floating-point numbers as in IEEE 754. 0 where there is no value.
    pub bits: Vec<u64>,
    /// Which events have a value: a bit for each, the first in the lowest bit of the first byte.
    pub validity: Vec<u8>,
    /// Number of events with a value.
    pub count: usize,
}

/// Consecutive events of a chunk, as columns.
#[derive(Debug)]
pub struct EventRange {
    events: Arc<ChunkEvents>,
    range: Range<usize>,
    /// By event type of the chunk: where its events are in the range, and their numbers among those of the type.
    by_type: OnceLock<Vec<Vec<(u32, u32)>>>,
}

impl EventRange {
    /// Returns the events of these numbers.
    ///
    /// # Panics
    /// If there are no such events.
    pub fn new(events: &Arc<ChunkEvents>, range: Range<usize>) -> Self {
        assert!(
            range.start <= range.end && range.end <= events.len(),
            "a range of events that are there"
        );
        Self {
            events: Arc::clone(events),
            range,
            by_type: OnceLock::new(),
        }
    }

    /// Returns all events of the chunk.
    pub fn events(&self) -> &ChunkEvents {
        &self.events
    }

    /// Returns their numbers.
    pub fn numbers(&self) -> Range<usize> {
        self.range.clone()
    }

    fn rows(&self) -> impl Iterator<Item = usize> {
        let rows = self.events.rows[self.range.clone()].iter();
        rows.map(|row| *row as usize)
    }

    /// Returns their trace times, nanoseconds.
    pub fn times(&self) -> impl Iterator<Item = i64> {
        self.rows().map(|row| self.events.chunk.time_ns(row))
    }

    /// Returns their streams.
    pub fn streams(&self) -> impl Iterator<Item = StreamId> {
        self.rows().map(|row| self.events.chunk.stream(row))
    }

    /// Places of their types among [`ChunkEvents::event_types`].
    pub fn type_places(&self) -> impl Iterator<Item = usize> {
        let events = &*self.events;
        self.rows()
            .map(|row| events.places[events.chunk.type_number(row)])
    }

    /// Returns, by event type of the chunk, the column of the element at the position that `element` returns for the
    /// type.
    fn columns(&self, element: impl Fn(EventTypeId) -> Option<usize>) -> Vec<Option<&Column>> {
        let types = self.events.chunk.types();
        let columns = types.map(|of_type| of_type.columns.get(element(of_type.event_type)?));
        columns.collect()
    }

    /// Returns the values of an element: `element` returns its position in the definition of each event type.
    /// [`Value::Absent`] where there is none.
    pub fn values(
        &self,
        element: impl Fn(EventTypeId) -> Option<usize>,
    ) -> impl Iterator<Item = Value<'_>> {
        let (events, columns) = (&*self.events, self.columns(element));
        self.rows().map(move |row| {
            let column = columns[events.chunk.type_number(row)];
            column.map_or(Value::Absent, |column| {
                column.get(events.chunk.ordinal(row))
            })
        })
    }

    /// Returns the values of a numeric element as one column: `element` returns its position in the definition of each
    /// event type.
    pub fn number_column(&self, element: impl Fn(EventTypeId) -> Option<usize>) -> NumberColumn {
        let length = self.range.len();
        let mut found = NumberColumn {
            bits: vec![0; length],
            validity: vec![0; length.div_ceil(8)],
            count: 0,
        };
        let columns = self.columns(element);
        if columns.iter().all(Option::is_none) {
            return found;
        }
        for (column, places) in columns.into_iter().zip(self.by_type()) {
            let Some(column) = column else { continue };
            if let Some(bits) = column.bits() {
                for (place, ordinal) in places {
                    found.bits[*place as usize] = bits.get(*ordinal as usize);
                    found.validity[*place as usize / 8] |= 1 << (place % 8);
                }
                found.count += places.len();
                continue;
            }
            for (place, ordinal) in places {
                if let Some(bits) = column.get(*ordinal as usize).to_bits() {
                    found.bits[*place as usize] = bits;
                    found.validity[*place as usize / 8] |= 1 << (place % 8);
                    found.count += 1;
                }
            }
        }
        found
    }

    fn by_type(&self) -> &[Vec<(u32, u32)>] {
        self.by_type.get_or_init(|| {
            let chunk = &self.events.chunk;
            let mut by_type = vec![Vec::new(); chunk.types().count()];
            for (place, row) in self.rows().enumerate() {
                let of_type = &mut by_type[chunk.type_number(row)];
                of_type.push((place as u32, chunk.ordinal(row) as u32));
            }
            by_type
        })
    }
}
