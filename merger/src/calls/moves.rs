//! Enters, leaves and gaps of a chunk of a trace, location by location: what the statistics of calls and the
//! snapshots go by. Nothing of one location depends on another.

use std::ops::Range;

use annals_format::{RegionId, TraceChunk, TraceLoss};

use crate::calls::Moves;
use crate::calls::region_types::RegionTypes;

/// A change of a location's stack.
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
    /// Returns each location's number and its moves.
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

    /// Returns the moves of a chunk.
    pub(crate) fn of_chunk(types: &RegionTypes, chunk: &TraceChunk) -> Self {
        Self::of_chunk_until(types, chunk, i64::MAX)
    }

    /// Returns the moves of a chunk before a time, nanoseconds; `i64::MAX` means all. Losses that begin before it
    /// count.
    pub(crate) fn of_chunk_until(types: &RegionTypes, chunk: &TraceChunk, until_ns: i64) -> Self {
        let mut found = Self::default();
        if types.is_empty() {
            return found;
        }
        let is_before = |time_ns: i64| time_ns < until_ns || until_ns == i64::MAX;
        let is_gap = |loss: &TraceLoss| types.is_gap(loss) && is_before(loss.from_ns);
        // Of locations with several streams.
        let mut mixed: Vec<(u32, Move)> = Vec::new();
        for group in &chunk.groups {
            let of_types = group.types.iter().map(|columns| {
                let (is_enter, at) = types.kind(columns.event_type)?;
                Some((MoveKind::of(is_enter), Moves::of(columns.columns.get(at)?)))
            });
            let mut of_types: Vec<Option<(MoveKind, Moves)>> = of_types.collect();
            for (stream, run) in group.runs() {
                let first = found.moves.len();
                let moves = &mut found.moves;
                let mut take = |range: Range<usize>, moves: &mut Vec<Move>| {
                    let places = group.type_index[range.clone()].iter();
                    for (place, time_ns) in places.zip(&group.times_ns[range]) {
                        if let Some((kind, regions)) = &mut of_types[usize::from(*place)]
                            && let Some(region) = regions.step()
                            && is_before(*time_ns)
                        {
                            moves.push(Move {
                                time_ns: *time_ns,
                                region,
                                kind: *kind,
                            });
                        }
                    }
                };
                let mut done = run.start;
                for (at, loss) in chunk
                    .losses_of(stream)
                    .iter()
                    .filter(|(_, loss)| is_gap(loss))
                {
                    let at = (run.start + *at as usize).clamp(done, run.end);
                    take(done..at, moves);
                    moves.push(Move::gap(loss.to_ns));
                    done = at;
                }
                take(done..run.end, moves);
                match types.location_of(stream) {
                    None => found.moves.truncate(first),
                    Some(location) if types.is_alone(stream) => found.end_run(location),
                    Some(location) => {
                        let own = found.moves.drain(first..);
                        mixed.extend(own.map(|step| (location, step)));
                    }
                }
            }
        }
        for (_, loss) in &chunk.losses {
            if is_gap(loss)
                && !chunk.has_stream(loss.stream)
                && let Some(location) = types.location_of(loss.stream)
            {
                match types.is_alone(loss.stream) {
                    true => {
                        found.moves.push(Move::gap(loss.to_ns));
                        found.end_run(location);
                    }
                    false => mixed.push((location, Move::gap(loss.to_ns))),
                }
            }
        }
        // Streams ascend: what they have at one time stays in their order.
        mixed.sort_by_key(|(location, step)| (*location, step.time_ns));
        for of_location in mixed.chunk_by(|a, b| a.0 == b.0) {
            let moves = of_location.iter().map(|(_, step)| *step);
            found.moves.extend(moves);
            found.end_run(of_location[0].0);
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use annals_format::{
        Cause, Definition, Definitions, Element, ElementType, EventType, EventTypeId, Location,
        LocationId, LocationKind, OrderedChunk, ProcessId, Reference, Role, SourceId, Stream,
        StreamGroup, StreamId, StringId, TypeColumns, Verbosity,
    };
    use proptest::prelude::*;

    use super::*;

    const STREAMS: u32 = 4;
    /// The last two streams are of one location.
    const LOCATIONS: u32 = 3;

    /// Enters, leaves and points, in streams that share their last location.
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
        for number in 0..LOCATIONS {
            d.add(Definition::Location(Location {
                id: LocationId::new(number),
                process: ProcessId::new(0),
                name: StringId::new(0),
                kind: LocationKind::Thread,
                system_id: 0,
            }));
        }
        for number in 0..STREAMS {
            d.add(Definition::Stream(Stream {
                id: StreamId::new(number),
                source: SourceId::new(0),
                location: Some(LocationId::new(number.min(LOCATIONS - 1))),
            }));
        }
        d
    }

    /// Returns a group of streams with events at these times, each of one of three types with its own number as its
    /// region.
    fn group(streams: &[(u32, Vec<(i64, u16)>)]) -> StreamGroup {
        let mut group = StreamGroup::default();
        for id in 0..3 {
            let columns = TypeColumns::new(EventTypeId::new(id), [ElementType::U64].into_iter());
            group.types.push(columns);
        }
        for (stream, events) in streams {
            for (time_ns, index) in events {
                let columns = &mut group.types[usize::from(*index)];
                columns.count += 1;
                columns.columns[0].push_bits(group.times_ns.len() as u64);
                group.times_ns.push(*time_ns);
                group.type_index.push(*index);
                group.tick_residuals.push(0);
            }
            let end = group.times_ns.len() as u32;
            group.ends.push((StreamId::new(*stream), end));
        }
        group
    }

    fn events() -> impl Strategy<Value = Vec<(i64, u16)>> {
        prop::collection::vec((0..40_i64, 0..3_u16), 1..30).prop_map(|mut events| {
            events.sort_by_key(|event| event.0);
            events
        })
    }

    proptest! {
        #[test]
        fn the_moves_of_each_location_are_those_of_the_global_order(
            streams in prop::collection::btree_map(0..STREAMS, events(), 0..5),
            losses in prop::collection::vec((0..STREAMS, 0..40_usize), 0..5),
            until_ns in prop_oneof![Just(i64::MAX), 0..50_i64],
        ) {
            let streams: Vec<(u32, Vec<(i64, u16)>)> = streams.into_iter().collect();
            let (first, second) = streams.split_at(streams.len() / 2);
            let groups = [first, second].map(group).into_iter().filter(|g| !g.is_empty());
            let mut chunk = TraceChunk { groups: groups.collect(), losses: Vec::new() };
            for (stream, index) in losses {
                let own = streams.iter().find(|(id, _)| *id == stream);
                let own = own.map_or(&[][..], |(_, events)| events);
                let index = index % (own.len() + 1);
                let time_ns = own.get(index).map_or(40, |(time_ns, _)| *time_ns);
                let loss = TraceLoss {
                    stream: StreamId::new(stream),
                    event_type: None,
                    cause: Cause::BufferFull,
                    count: 1,
                    is_lower_bound: false,
                    from_ns: time_ns,
                    to_ns: time_ns,
                };
                chunk.losses.push((index as u32, loss));
            }
            chunk.losses.sort_by_key(|(at, loss)| (loss.stream, *at));
            let definitions = definitions();
            let types = RegionTypes::of(&definitions);
            let moves = ChunkMoves::of_chunk_until(&types, &chunk, until_ns);
            let mut found = vec![Vec::new(); LOCATIONS as usize];
            for (location, run) in moves.runs() {
                let run = run.iter().map(|step| (step.kind == MoveKind::Gap, step.time_ns, step.region));
                found[location as usize].extend(run);
            }
            let ordered = OrderedChunk::from(chunk);
            let mut expected = vec![Vec::new(); LOCATIONS as usize];
            let mut losses = ordered.losses().peekable();
            let is_before = |time_ns: i64| time_ns < until_ns || until_ns == i64::MAX;
            let place = |stream: StreamId| stream.get().min(LOCATIONS - 1) as usize;
            for event in 0..=ordered.len() {
                while let Some((_, loss)) = losses.next_if(|(at, _)| *at <= event) {
                    if is_before(loss.from_ns) {
                        expected[place(loss.stream)].push((true, loss.to_ns, RegionId::new(0)));
                    }
                }
                if event < ordered.len() && ordered.columns(event).event_type.get() != 2 && is_before(ordered.time_ns(event)) {
                    let region = ordered.value(event, 0).as_integer().unwrap() as u32;
                    let step = (false, ordered.time_ns(event), RegionId::new(region));
                    expected[place(ordered.stream(event))].push(step);
                }
            }
            prop_assert_eq!(found, expected);
        }
    }
}
