//! Puts events of many streams into chunks of a trace.

use annals_format::{
    Definitions, EventTypeId, MAX_CHUNK_VALUES, Reference, TraceChunk, TraceLoss, TypeColumns,
    Value,
};

use crate::stream::{EventAt, StreamCursor};
use crate::unify::References;

/// Events of one trace chunk. Borders depend on content alone, so that the same events always give
/// the same chunks.
pub(crate) const CHUNK_EVENTS: usize = 1 << 16;
/// Text and bytes of one trace chunk.
const CHUNK_TEXT: usize = 8 << 20;

const NO_SLOT: u16 = u16::MAX;

/// A trace chunk in the making.
#[derive(Debug)]
pub(crate) struct Assembler {
    chunk: TraceChunk,
    /// Index in `chunk.types`, by event type of the trace.
    slots: Vec<u16>,
    references: Vec<Vec<Reference>>,
    text_bytes: usize,
    values: usize,
}

impl Assembler {
    pub(crate) fn new(definitions: &Definitions) -> Self {
        let count = definitions.event_types.len();
        let references = definitions.event_types.values().map(|event_type| {
            let each = event_type.elements.iter().map(|element| element.reference);
            each.collect()
        });
        Self {
            chunk: TraceChunk::default(),
            slots: vec![NO_SLOT; count],
            references: references.collect(),
            text_bytes: 0,
            values: 0,
        }
    }

    /// Whether the chunk is complete.
    pub(crate) fn is_full(&self) -> bool {
        self.chunk.len() >= CHUNK_EVENTS
            || self.text_bytes >= CHUNK_TEXT
            || self.values >= MAX_CHUNK_VALUES / 4
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.chunk.is_empty() && self.chunk.losses.is_empty()
    }

    /// How many events fit before the chunk may be full.
    pub(crate) fn room(&self) -> usize {
        CHUNK_EVENTS - self.chunk.len().min(CHUNK_EVENTS)
    }

    pub(crate) fn push_loss(&mut self, loss: TraceLoss) {
        self.chunk.losses.push((self.chunk.len() as u32, loss));
    }

    /// Appends up to `count` events of a stream from `at` on, all of one batch; gives the number taken
    /// before the chunk was full.
    pub(crate) fn push_events(
        &mut self,
        cursor: &StreamCursor<'_>,
        at: EventAt,
        count: usize,
    ) -> usize {
        let batch = cursor.batch(at.batch);
        let mut taken = 0;
        while taken < count && !self.is_full() {
            let index = at.index + taken;
            let at = EventAt { index, ..at };
            self.chunk.times_ns.push(batch.times_ns[index]);
            self.chunk.streams.push(cursor.stream);
            self.chunk.tick_residuals.push(batch.residuals[index]);
            self.chunk.positions.push(cursor.position_of(at));
            self.chunk.shifts_ns.push(0);
            let type_index = usize::from(batch.chunk.type_index[index]);
            let columns = &batch.chunk.types[type_index];
            let event_type = batch.event_types[type_index];
            self.push_elements(cursor, event_type, columns, batch.ordinals[index] as usize);
            taken += 1;
        }
        taken
    }

    fn push_elements(
        &mut self,
        cursor: &StreamCursor<'_>,
        event_type: EventTypeId,
        from: &TypeColumns,
        ordinal: usize,
    ) {
        let slot = self.slot(event_type, from);
        self.chunk.type_index.push(slot);
        let to = &mut self.chunk.types[usize::from(slot)];
        to.count += 1;
        self.values += from.columns.len();
        let references = &self.references[event_type.index()];
        for (index, column) in from.columns.iter().enumerate() {
            let kind = references.get(index).copied().unwrap_or(Reference::None);
            let table: Option<&References> = cursor.numbers.references(kind);
            let target = &mut to.columns[index];
            match table {
                None => target.push_from(column, ordinal, |bits| bits),
                Some(table) => target.push_from(column, ordinal, |bits| table.get(bits)),
            }
            if column.element_type().is_variable()
                && let Value::String(text) | Value::Bytes(text) = column.get(ordinal)
            {
                self.text_bytes += text.len();
            }
        }
    }

    fn slot(&mut self, event_type: EventTypeId, from: &TypeColumns) -> u16 {
        let fits = |columns: &TypeColumns| {
            columns.event_type == event_type && Self::is_alike(columns, from)
        };
        let known = self.slots[event_type.index()];
        if known != NO_SLOT && Self::is_alike(&self.chunk.types[usize::from(known)], from) {
            return known;
        }
        // Damaged or hostile recordings may give one event type different elements: each shape has
        // columns of its own.
        let slot = self.chunk.types.iter().position(fits).unwrap_or_else(|| {
            let elements = from.columns.iter().map(annals_format::Column::element_type);
            self.chunk
                .types
                .push(TypeColumns::new(event_type, elements));
            self.chunk.types.len() - 1
        }) as u16;
        self.slots[event_type.index()] = slot;
        slot
    }

    fn is_alike(a: &TypeColumns, b: &TypeColumns) -> bool {
        a.columns.len() == b.columns.len()
            && a.columns
                .iter()
                .zip(&b.columns)
                .all(|(a, b)| a.element_type() == b.element_type())
    }

    /// The chunk; the next one starts empty.
    pub(crate) fn take(&mut self) -> TraceChunk {
        for columns in &self.chunk.types {
            self.slots[columns.event_type.index()] = NO_SLOT;
        }
        self.text_bytes = 0;
        self.values = 0;
        std::mem::take(&mut self.chunk)
    }
}
