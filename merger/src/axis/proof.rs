//! The proof of a merge: per stream, what was read and what was written have one order hash.

use std::cell::RefCell;
use std::ops::Range;

use annals_format::{
    Definitions, EventHasher, EventTypeId, OrderHash, Reference, SourceOrder, StreamGroup,
    StreamId, TraceChunk, TypeColumns,
};

use crate::axis::batch::Batch;
use crate::axis::unify::Numbers;
use crate::by_stream::ByStream;

thread_local! {
    static HASHER: RefCell<EventHasher> = RefCell::default();
}

/// The kinds of definitions that the elements of a trace's event types refer to.
#[derive(Debug)]
pub(crate) struct ElementReferences(Vec<Vec<Reference>>);

impl ElementReferences {
    pub(crate) fn of(definitions: &Definitions) -> Self {
        let types = definitions.event_types.values().map(|event_type| {
            let each = event_type.elements.iter().map(|element| element.reference);
            each.collect()
        });
        Self(types.collect())
    }

    pub(crate) fn get(&self, event_type: EventTypeId, element: usize) -> Reference {
        let references = self.0.get(event_type.index());
        let reference = references.and_then(|references| references.get(element));
        reference.copied().unwrap_or(Reference::None)
    }
}

/// Events of one stream, as they were read.
pub(crate) struct Read<'a> {
    pub(crate) times_ns: &'a [i64],
    pub(crate) residuals: &'a [i64],
    pub(crate) type_index: &'a [u16],
    pub(crate) types: &'a [TypeColumns],
    /// By type, its number in the trace.
    pub(crate) event_types: &'a [EventTypeId],
}

impl Read<'_> {
    /// Returns the order hash of a range of the events. Those of a stream that is sorted have
    /// positions.
    pub(crate) fn hash(
        &self,
        range: Range<usize>,
        numbers: &Numbers,
        references: &ElementReferences,
        position: Option<impl Fn(usize) -> u64>,
    ) -> OrderHash {
        HASHER.with_borrow_mut(|hasher| {
            let types = self.types.iter().zip(self.event_types.iter().copied());
            let renumber = |index: usize, element: usize, values: &mut [u64]| {
                let reference = references.get(self.event_types[index], element);
                if let Some(table) = numbers.references(reference) {
                    values
                        .iter_mut()
                        .for_each(|value| *value = table.get(*value));
                }
            };
            let hashes = hasher.hash(
                self.times_ns,
                self.residuals,
                self.type_index,
                types,
                renumber,
            );
            match position {
                None => OrderHash::in_order(&hashes[range]),
                Some(position) => {
                    let mut run = OrderHash::default();
                    range.for_each(|index| run.place(hashes[index], position(index)));
                    run
                }
            }
        })
    }
}

/// Returns the order hash of a range of a batch's events.
pub(crate) fn of_batch(
    batch: &Batch,
    range: Range<usize>,
    numbers: &Numbers,
    references: &ElementReferences,
) -> OrderHash {
    let indexes = 0..batch.len();
    let times_ns = indexes.clone().map(|index| {
        let shift = batch.shift(index).unwrap_or(0);
        batch.time_ns(index).wrapping_sub(shift)
    });
    let times_ns: Vec<i64> = times_ns.collect();
    let residuals: Vec<i64> = indexes.map(|index| batch.residual(index)).collect();
    let type_index = batch.type_index();
    let read = Read {
        times_ns: &times_ns,
        residuals: &residuals,
        type_index: &type_index,
        types: &batch.types,
        event_types: &batch.event_types,
    };
    let position = |index: usize| batch.position(index).unwrap_or(0);
    let position = batch.is_sorted().then_some(position);
    read.hash(range, numbers, references, position)
}

/// Which streams of a trace are sorted, and so hashed by position.
#[derive(Clone, Debug)]
pub(crate) struct SortedStreams(ByStream<bool>);

impl SortedStreams {
    pub(crate) fn of(definitions: &Definitions) -> Self {
        let each = definitions.streams.iter().map(|(id, stream)| {
            let source = definitions.sources.get(&stream.source);
            let is_sorted = source.is_some_and(|s| s.ordering == SourceOrder::Unordered);
            (*id, is_sorted)
        });
        Self(each.collect())
    }

    /// Returns whether a stream is.
    pub(crate) fn has(&self, stream: StreamId) -> bool {
        self.0.get(stream).unwrap_or(false)
    }
}

/// Returns the order hashes of the streams that have events in a chunk of a trace, ascending by
/// stream.
pub(crate) fn of_chunk(chunk: &TraceChunk, sorted: &SortedStreams) -> Vec<(StreamId, OrderHash)> {
    let mut runs = Vec::new();
    for group in &chunk.groups {
        let event_types = group.types.iter().map(|columns| columns.event_type);
        of_group(group, sorted, event_types, |_, _, _| {}, &mut runs);
    }
    runs
}

/// Makes the values of a group's references those of the trace, where its types are called so.
pub(crate) fn renumber<'a>(
    event_types: &'a [EventTypeId],
    numbers: &'a Numbers,
    references: &'a ElementReferences,
) -> impl Fn(usize, usize, &mut [u64]) + 'a {
    |index, element, values| {
        let reference = references.get(event_types[index], element);
        if let Some(table) = numbers.references(reference) {
            values
                .iter_mut()
                .for_each(|value| *value = table.get(*value));
        }
    }
}

/// Appends the order hashes of a group's streams. `event_types`: what its types are called in the trace.
pub(crate) fn of_group(
    group: &StreamGroup,
    sorted: &SortedStreams,
    event_types: impl Iterator<Item = EventTypeId>,
    renumber: impl Fn(usize, usize, &mut [u64]),
    runs: &mut Vec<(StreamId, OrderHash)>,
) {
    let mut times_ns = &group.times_ns;
    let unshifted: Vec<i64>;
    if group.shifts_ns.iter().any(|shift| *shift != 0) {
        let pairs = group.times_ns.iter().zip(&group.shifts_ns);
        unshifted = pairs
            .map(|(time, shift)| time.wrapping_sub(*shift))
            .collect();
        times_ns = &unshifted;
    }
    HASHER.with_borrow_mut(|hasher| {
        let types = group.types.iter().zip(event_types);
        let residuals = &group.tick_residuals;
        let hashes = hasher.hash(times_ns, residuals, &group.type_index, types, renumber);
        runs.extend(group.runs().map(|(stream, run)| {
            if !sorted.has(stream) {
                return (stream, OrderHash::in_order(&hashes[run]));
            }
            let mut hash = OrderHash::default();
            run.for_each(|index| hash.place(hashes[index], group.position(index)));
            (stream, hash)
        }));
    });
}

/// Order hashes of many streams, put together run by run.
#[derive(Clone, Debug, Default)]
pub(crate) struct StreamHashes(ByStream<OrderHash>);

impl StreamHashes {
    pub(crate) fn add(&mut self, runs: &[(StreamId, OrderHash)]) {
        for (stream, run) in runs {
            let hash = self.0.get_or_default(*stream);
            *hash = hash.then(*run);
        }
    }

    pub(crate) fn get(&self, stream: StreamId) -> OrderHash {
        self.0.get(stream).unwrap_or_default()
    }
}
