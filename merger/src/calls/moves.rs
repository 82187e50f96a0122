//! Enters, leaves and gaps of a chunk of a trace, location by location: what the statistics of calls and the
//! snapshots go by. Nothing of one location depends on another.

use std::ops::Range;

use annals_format::{RegionId, StreamId, TraceChunk};

use crate::axis::proof::ElementReferences;
use crate::axis::strip::{Slice, Strip, StripPlace};
use crate::calls::Moves;
use crate::calls::region_types::RegionTypes;

/// What happened to the stack of a location.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum MoveKind {
    Enter,
    Leave,
    /// Enters or leaves may be missing.
    Gap,
}

impl MoveKind {
    const fn of(is_enter: bool) -> Self {
        if is_enter { Self::Enter } else { Self::Leave }
    }
}

/// One event, or a loss; a loss has no region.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Move {
    pub(crate) time_ns: i64,
    pub(crate) region: RegionId,
    pub(crate) kind: MoveKind,
}

impl Move {
    const fn gap(time_ns: i64) -> Self {
        Self {
            time_ns,
            region: RegionId::new(0),
            kind: MoveKind::Gap,
        }
    }
}

/// The moves of a chunk: runs, each of one location and in its order.
#[derive(Debug, Default)]
pub(crate) struct ChunkMoves {
    moves: Vec<Move>,
    /// Number of the location, and where its moves end. A location may have several runs, in order.
    runs: Vec<(u32, u32)>,
}

impl ChunkMoves {
    /// Number of the location, and its moves.
    pub(crate) fn runs(&self) -> impl Iterator<Item = (u32, &[Move])> {
        let mut start = 0;
        self.runs.iter().map(move |(location, end)| {
            let run = &self.moves[start..*end as usize];
            start = *end as usize;
            (*location, run)
        })
    }

    fn end_run(&mut self, location: u32) {
        let start = self.runs.last().map_or(0, |(_, end)| *end as usize);
        if self.moves.len() > start {
            self.runs.push((location, self.moves.len() as u32));
        }
    }

    /// The moves of a chunk, by what is in it.
    pub(crate) fn of_chunk(types: &RegionTypes, chunk: &TraceChunk) -> Self {
        if types.is_empty() {
            return Self::default();
        }
        let of_types = chunk.types.iter().map(|columns| {
            let (is_enter, at) = types.kind(columns.event_type)?;
            Some((MoveKind::of(is_enter), Moves::of(columns.columns.get(at)?)))
        });
        let mut of_types: Vec<Option<(MoveKind, Moves)>> = of_types.collect();
        let mut found = Vec::with_capacity(chunk.len());
        let mut take = |range: Range<usize>, found: &mut Vec<(u32, Move)>| {
            let type_indexes = chunk.type_index[range.clone()].iter();
            let places = chunk.streams[range.clone()].iter();
            let places = places.zip(&chunk.times_ns[range]);
            for (type_index, (stream, time_ns)) in type_indexes.zip(places) {
                let Some((kind, regions)) = &mut of_types[usize::from(*type_index)] else {
                    continue;
                };
                if let Some(region) = regions.step()
                    && let Some(location) = types.location_of(*stream)
                {
                    let step = Move {
                        time_ns: *time_ns,
                        region,
                        kind: *kind,
                    };
                    found.push((location, step));
                }
            }
        };
        let mut done = 0;
        for (at, loss) in &chunk.losses {
            let end = chunk.len().min(*at as usize).max(done);
            take(done..end, &mut found);
            if types.is_gap(loss)
                && let Some(location) = types.location_of(loss.stream)
            {
                found.push((location, Move::gap(loss.to_ns)));
            }
            done = end;
        }
        take(done..chunk.len(), &mut found);
        Self::by_location(types.locations().len(), &found)
    }

    /// Puts moves together that are of one location.
    fn by_location(locations: usize, found: &[(u32, Move)]) -> Self {
        let mut ends = vec![0_u32; locations];
        found
            .iter()
            .for_each(|(location, _)| ends[*location as usize] += 1);
        let mut sum = 0;
        let mut runs = Vec::new();
        for (location, end) in ends.iter_mut().enumerate().filter(|(_, end)| **end != 0) {
            (*end, sum) = (sum, sum + *end);
            runs.push((location as u32, sum));
        }
        let mut moves = vec![Move::gap(0); found.len()];
        for (location, step) in found {
            let place = &mut ends[*location as usize];
            moves[*place as usize] = *step;
            *place += 1;
        }
        Self { moves, runs }
    }

    /// The moves of a strip, found slice by slice: several times as fast as in its chunk, where the streams are
    /// mixed. None when only the chunk has their order: when a location has several streams, or a slice events of
    /// several, or a region is no plain number.
    pub(crate) fn of_strip(
        types: &RegionTypes,
        references: &ElementReferences,
        strip: &Strip<'_>,
    ) -> Option<Self> {
        let mut found = Self::default();
        if types.is_empty() {
            return Some(found);
        }
        let mut gaps: Vec<Gap> = Vec::new();
        for (place, loss) in strip.losses.iter().filter(|(_, loss)| types.is_gap(loss)) {
            if !types.is_alone(loss.stream) {
                return None;
            }
            gaps.push((loss.stream, *place, loss.to_ns));
        }
        gaps.sort_by_key(|(stream, ..)| *stream);
        let is_plain = |slice: &Slice<'_>| {
            let batch = &slice.batch;
            batch.streams().is_none() && !batch.is_sorted() && types.is_alone(slice.stream)
        };
        if !strip.slices.iter().all(is_plain) {
            return None;
        }
        let events = strip.slices.iter().map(|slice| slice.range.len());
        found.moves.reserve(events.sum::<usize>() + gaps.len());
        let mut gaps = gaps.as_slice();
        let mut first = 0;
        for slices in strip.slices.chunk_by(|a, b| a.stream == b.stream) {
            let stream = slices[0].stream;
            let before;
            (before, gaps) = gaps.split_at(gaps.partition_point(|gap| gap.0 < stream));
            found.take_gaps(types, before);
            let own;
            (own, gaps) = gaps.split_at(gaps.partition_point(|gap| gap.0 == stream));
            let mut cuts: Vec<Cut> = own.iter().map(|gap| cut_of(slices, first, gap)).collect();
            cuts.sort_unstable();
            let mut cuts = cuts.as_slice();
            for (number, slice) in slices.iter().enumerate() {
                let here;
                (here, cuts) = cuts.split_at(cuts.partition_point(|cut| cut.0 == number));
                found.take_slice(types, references, slice, here)?;
            }
            first += slices.len();
        }
        found.take_gaps(types, gaps);
        Some(found)
    }

    /// Takes in the losses of streams that have nothing else.
    fn take_gaps(&mut self, types: &RegionTypes, gaps: &[Gap]) {
        for (stream, _, to_ns) in gaps {
            if let Some(location) = types.location_of(*stream) {
                self.moves.push(Move::gap(*to_ns));
                self.end_run(location);
            }
        }
    }

    /// Takes in the moves of a slice, with gaps before some of its events; none when its regions are no plain
    /// numbers.
    fn take_slice(
        &mut self,
        types: &RegionTypes,
        references: &ElementReferences,
        slice: &Slice<'_>,
        cuts: &[Cut],
    ) -> Option<()> {
        let Some(location) = types.location_of(slice.stream) else {
            return Some(());
        };
        let batch = &*slice.batch;
        let Range { start, end } = slice.range;
        let mut firsts = vec![0; batch.types.len()];
        batch.ordinals_at(start, &mut firsts);
        let mut lasts = firsts.clone();
        batch.count_types(start..end, &mut lasts);
        let mut of_types: Vec<Option<(MoveKind, Moves)>> = Vec::with_capacity(batch.types.len());
        for (local, columns) in batch.types.iter().enumerate() {
            let event_type = batch.event_types[local];
            let Some((is_enter, at)) = types.kind(event_type) else {
                of_types.push(None);
                continue;
            };
            let Some(column) = columns.columns.get(at) else {
                of_types.push(None);
                continue;
            };
            let range = firsts[local] as usize..lasts[local] as usize;
            let table = slice.numbers.references(references.get(event_type, at));
            let renumber = |bits| table.map_or(bits, |table| table.get(bits));
            let regions = Moves::in_range(column, range, renumber)?;
            of_types.push(Some((MoveKind::of(is_enter), regions)));
        }
        let moves = &mut self.moves;
        let mut take = |range: Range<usize>, moves: &mut Vec<Move>| {
            batch.for_each_time(range, |place, time_ns| {
                if let Some((kind, regions)) = &mut of_types[place]
                    && let Some(region) = regions.step()
                {
                    moves.push(Move {
                        time_ns,
                        region,
                        kind: *kind,
                    });
                }
            });
        };
        let mut done = start;
        for (_, at, to_ns) in cuts {
            let at = (*at).clamp(done, end);
            take(done..at, moves);
            moves.push(Move::gap(*to_ns));
            done = at;
        }
        take(done..end, moves);
        self.end_run(location);
        Some(())
    }
}

/// A loss of a stream, where it stands, and the time of its end.
type Gap = (StreamId, StripPlace, i64);

/// Among the slices of a stream, which; before which of its events; and the time of the loss's end.
type Cut = (usize, usize, i64);

/// Where a loss stands among the slices of its stream, the first of which has this number.
fn cut_of(slices: &[Slice<'_>], first: usize, (_, place, to_ns): &Gap) -> Cut {
    let at_end = || {
        let end = slices.last().map_or(0, |slice| slice.range.end);
        (slices.len() - 1, end)
    };
    let (slice, at) = match place {
        StripPlace::Event(slice, index) => (slice - first, *index),
        StripPlace::Time(time_ns) => {
            let each = slices.iter().enumerate();
            let mut places = each.filter_map(|(number, slice)| {
                let at = slice.batch.first_from(slice.range.start, *time_ns);
                (at < slice.range.end).then_some((number, at))
            });
            places.next().unwrap_or_else(at_end)
        }
    };
    (slice, at, *to_ns)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use annals_format::{
        Cause, Chunk, Definition, Definitions, Element, ElementType, EventType, EventTypeId,
        Location, LocationId, LocationKind, ProcessId, Reference, Role, SourceId, Stream, StringId,
        TraceLoss, TypeColumns, Verbosity,
    };
    use proptest::prelude::*;

    use super::*;
    use crate::axis::batch::Batch;
    use crate::axis::strip::{Scratch, Shape};
    use crate::axis::unify::Numbers;

    const STREAMS: u32 = 3;

    /// Three streams, each with a location of its own; enters, leaves and points.
    fn definitions() -> Definitions {
        let mut d = Definitions::default();
        d.add(Definition::String(StringId::new(0), "region".to_owned()));
        for (number, role) in [Role::Enter, Role::Leave, Role::Point].iter().enumerate() {
            let element = Element {
                name: StringId::new(0),
                element_type: ElementType::U64,
                is_optional: false,
                reference: Reference::Region,
                unit: StringId::new(0),
                original_bits: 0,
            };
            d.add(Definition::EventType(EventType {
                id: EventTypeId::new(number as u32),
                name: StringId::new(0),
                description: StringId::new(0),
                verbosity: Verbosity::UserBasic,
                role: *role,
                key_element: None,
                elements: vec![element],
            }));
        }
        for number in 0..STREAMS {
            d.add(Definition::Location(Location {
                id: LocationId::new(number),
                process: ProcessId::new(0),
                name: StringId::new(0),
                kind: LocationKind::Thread,
                system_id: 0,
            }));
            d.add(Definition::Stream(Stream {
                id: StreamId::new(number),
                source: SourceId::new(0),
                location: Some(LocationId::new(number)),
            }));
        }
        d
    }

    /// Events at these times, each of one of three types with its own number as its region.
    fn batch(events: &[(i64, u16)]) -> Batch {
        let mut chunk = Chunk::default();
        for id in 0..3 {
            let columns = TypeColumns::new(EventTypeId::new(id), [ElementType::U64].into_iter());
            chunk.types.push(columns);
        }
        for (number, (_, index)) in events.iter().enumerate() {
            chunk.type_index.push(*index);
            let columns = &mut chunk.types[usize::from(*index)];
            columns.count += 1;
            columns.columns[0].push_bits(number as u64);
        }
        let types = (0..3).map(EventTypeId::new).collect();
        let times: Vec<i64> = events.iter().map(|event| event.0).collect();
        let residuals = vec![0; times.len()];
        Batch::new(chunk, types, 0, times, residuals, false, None)
    }

    fn events() -> impl Strategy<Value = Vec<(i64, u16)>> {
        prop::collection::vec((0..40_i64, 0..3_u16), 1..30).prop_map(|mut events| {
            events.sort_by_key(|event| event.0);
            events
        })
    }

    proptest! {
        #[test]
        fn a_strips_moves_are_those_of_its_chunk(
            streams in prop::collection::vec((0..STREAMS, events()), 1..5),
            losses in prop::collection::vec((0..STREAMS, prop::option::of((0..5_usize, 0..30_usize)), 0..50_i64), 0..5),
        ) {
            let definitions = definitions();
            let types = RegionTypes::of(&definitions);
            let references = ElementReferences::of(&definitions);
            let numbers = Numbers::identity();
            let mut streams = streams;
            streams.sort_by_key(|stream| stream.0);
            let mut slices: Vec<Slice<'_>> = Vec::new();
            for (stream, events) in streams {
                // The second chunk of a stream follows the first in time.
                let mut events = events;
                if let Some(last) = slices.last().filter(|last| last.stream.get() == stream) {
                    let behind = last.batch.time_ns(last.range.end - 1);
                    events.iter_mut().for_each(|event| event.0 += behind);
                }
                let range = 0..events.len();
                let (stream, batch) = (StreamId::new(stream), Arc::new(batch(&events)));
                slices.push(Slice { stream, numbers: &numbers, batch, range });
            }
            let losses = losses.into_iter().map(|(stream, event, time_ns)| {
                let of_slice = event.filter(|(slice, _)| *slice < slices.len());
                let (stream, place) = match of_slice {
                    Some((number, index)) => {
                        let slice = &slices[number];
                        let index = index % slice.range.len();
                        (slice.stream, StripPlace::Event(number, index))
                    }
                    None => (StreamId::new(stream), StripPlace::Time(time_ns)),
                };
                let loss = TraceLoss {
                    stream,
                    event_type: None,
                    cause: Cause::BufferFull,
                    count: 1,
                    is_lower_bound: false,
                    from_ns: 0,
                    to_ns: time_ns,
                };
                (place, loss)
            });
            let losses = losses.collect();
            let strip = Strip { from_ns: 0, slices, losses };
            let shape = Shape { references: &references, most_events: 1 << 16 };
            let parts = strip.assemble(&shape, &mut Scratch::default());
            prop_assert_eq!(parts.len(), 1);
            let flat = |moves: &ChunkMoves| {
                let mut all: Vec<Vec<(MoveKind, u32, i64)>> = vec![Vec::new(); STREAMS as usize];
                for (location, run) in moves.runs() {
                    // Losses in one place have no order.
                    let own = &mut all[location as usize];
                    own.extend(run.iter().map(|step| match step.kind {
                        MoveKind::Gap => (step.kind, 0, 0),
                        kind => (kind, step.region.get(), step.time_ns),
                    }));
                }
                all
            };
            let of_chunk = ChunkMoves::of_chunk(&types, &parts[0].chunk);
            let of_strip = ChunkMoves::of_strip(&types, &references, &strip);
            prop_assert_eq!(flat(&of_strip.unwrap()), flat(&of_chunk));
        }
    }
}
