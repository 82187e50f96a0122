//! A strip of the axis: the events of all streams in a stretch of time, which become a chunk of the trace.

use std::ops::Range;
use std::sync::Arc;

use annals_format::{
    Column, EventTypeId, MAX_CHUNK_VALUES, StreamCounts, StreamGroup, StreamId, TraceChunk,
    TraceChunkHeader, TraceLoss, TypeColumns,
};

use rustc_hash::FxHashSet;

use crate::axis::batch::Batch;
use crate::axis::proof::ElementReferences;
use crate::axis::unify::{Numbers, References};

/// Text and bytes of one trace chunk.
const CHUNK_TEXT: usize = 8 << 20;

/// Element values of one trace chunk.
const CHUNK_VALUES: usize = MAX_CHUNK_VALUES / 4;

/// Event types of a group, each shape counted.
const MOST_TYPES: usize = u16::MAX as usize;

/// Number of events at which a group of streams ends: 64 KiB or more for most programs.
const GROUP_EVENTS: usize = 1 << 13;

/// Prefetch distance, in pieces.
const PIECES_AHEAD: usize = 4;

/// Events of one stream.
#[derive(Clone, Debug)]
pub(crate) struct StripSlice<'a> {
    pub(crate) stream: StreamId,
    pub(crate) numbers: &'a Numbers,
    pub(crate) batch: Arc<Batch>,
    pub(crate) range: Range<usize>,
}

/// Where a loss is reported.
#[derive(Clone, Copy, Debug)]
pub(crate) enum StripPlace {
    /// Before an event of a slice: its number, and the event's index in the batch.
    Event(usize, usize),
    /// After the events before this time.
    Time(i64),
}

/// All events of a stretch of time.
#[derive(Debug, Default)]
pub(crate) struct Strip<'a> {
    /// By stream, and by position in the stream.
    pub(crate) slices: Vec<StripSlice<'a>>,
    pub(crate) losses: Vec<(StripPlace, TraceLoss)>,
}

/// A chunk of a trace and its head, but for its number and its frames.
#[derive(Debug)]
pub(crate) struct UnnumberedChunk {
    pub(crate) chunk: TraceChunk,
    pub(crate) header: TraceChunkHeader,
}

/// Events of a slice that follow each other in their stream.
#[derive(Clone, Debug)]
struct Piece<'a> {
    slice: &'a StripSlice<'a>,
    /// Number of the slice.
    number: usize,
    range: Range<usize>,
}

impl<'a> Strip<'a> {
    /// Returns the chunks of the strip, one but for extraordinary ones.
    pub(crate) fn assemble(&self, references: &ElementReferences) -> Vec<UnnumberedChunk> {
        let all = Self::assemble_all(std::slice::from_ref(self), references);
        all.into_iter().flatten().collect()
    }

    /// Returns the chunks of strips that follow each other. Of many streams each has little in a strip: the next
    /// strip's part is taken while what lies around it is still in the processor's cache.
    pub(crate) fn assemble_all(
        strips: &[Self],
        references: &ElementReferences,
    ) -> Vec<Vec<UnnumberedChunk>> {
        let mut all: Vec<Vec<UnnumberedChunk>> = Vec::with_capacity(strips.len());
        let mut assemblies = Vec::new();
        for strip in strips {
            let halves = if strip.is_too_much() {
                strip.halves()
            } else {
                None
            };
            all.push(Vec::new());
            match halves {
                Some((first, second)) => {
                    let parts = [first, second].map(|half| half.assemble(references));
                    all[assemblies.len()].extend(parts.into_iter().flatten());
                    assemblies.push(None);
                }
                None => assemblies.push(Some(Assembly::of(strip))),
            }
        }
        let mut is_more = true;
        while is_more {
            is_more = false;
            for assembly in assemblies.iter_mut().flatten() {
                is_more |= assembly.add_group(references);
            }
        }
        for (parts, assembly) in all.iter_mut().zip(assemblies) {
            parts.extend(assembly.map(Assembly::finish));
        }
        all
    }

    fn len(&self) -> usize {
        self.slices.iter().map(|slice| slice.range.len()).sum()
    }

    /// Returns the events of each stream in its order, stream after stream. Slices of an unordered source may
    /// interleave.
    fn pieces(&self) -> Vec<Piece<'_>> {
        let mut pieces = Vec::with_capacity(self.slices.len());
        let mut first = 0;
        for slices in self.slices.chunk_by(|a, b| a.stream == b.stream) {
            let numbers = first..first + slices.len();
            first = numbers.end;
            let of_stream = slices.iter().zip(numbers).map(|(slice, number)| Piece {
                slice,
                number,
                range: slice.range.clone(),
            });
            let ends_before = |a: &StripSlice<'_>, b: &StripSlice<'_>| {
                a.batch.time_ns(a.range.end - 1) <= b.batch.time_ns(b.range.start)
            };
            if slices
                .windows(2)
                .all(|pair| ends_before(&pair[0], &pair[1]))
            {
                pieces.extend(of_stream);
                continue;
            }
            let of_stream: Vec<Piece<'_>> = of_stream.collect();
            let each = of_stream.iter().flat_map(|piece| {
                let times = piece.range.clone();
                times.map(move |index| (piece.slice.batch.time_ns(index), piece, index))
            });
            let mut events: Vec<(i64, &Piece<'_>, usize)> = each.collect();
            events.sort_by_key(|(time_ns, ..)| *time_ns);
            let follows = |a: &(i64, &Piece<'_>, usize), b: &(i64, &Piece<'_>, usize)| {
                a.1.number == b.1.number && a.2 + 1 == b.2
            };
            pieces.extend(events.chunk_by(follows).map(|run| {
                let (_, piece, start) = run[0];
                Piece {
                    range: start..start + run.len(),
                    ..piece.clone()
                }
            }));
        }
        pieces
    }

    /// Returns whether there is more than a chunk may have.
    fn is_too_much(&self) -> bool {
        let batches = || self.slices.iter().map(|slice| &slice.batch);
        if self.len() > MOST_TYPES && self.types_up_to(MOST_TYPES) >= MOST_TYPES {
            return true;
        }
        let widest = batches().map(|batch| batch.widest()).max().unwrap_or(0);
        let has_text = batches().any(|batch| batch.has_text());
        let is_many = self.len().saturating_mul(widest) > CHUNK_VALUES;
        if !is_many && !has_text {
            return false;
        }
        let (mut values, mut text) = (0, 0);
        let mut spare = Ordinals::default();
        for slice in &self.slices {
            for (_, ordinals, columns) in spare.of_types(&slice.batch, slice.range.clone()) {
                values += ordinals.len() * columns.columns.len();
                let texts = columns
                    .columns
                    .iter()
                    .filter(|c| c.element_type().is_variable());
                for column in texts {
                    text += ordinals
                        .clone()
                        .map(|at| column.text_len(at))
                        .sum::<usize>();
                }
            }
        }
        values > CHUNK_VALUES || text > CHUNK_TEXT
    }

    /// Returns how many event types and shapes of them the events may have, as far as a number.
    fn types_up_to(&self, most: usize) -> usize {
        let batches = || self.slices.iter().map(|slice| &slice.batch);
        let sum: usize = batches().map(|batch| batch.types.len()).sum();
        if sum < most {
            return sum;
        }
        let mut found = FxHashSet::default();
        for batch in batches() {
            for (event_type, columns) in batch.event_types.iter().zip(&batch.types) {
                let shape = columns.columns.iter();
                let shape = shape.fold(0_u64, |shape, column| {
                    shape.wrapping_mul(257) + u64::from(column.element_type().code()) + 1
                });
                found.insert((*event_type, shape));
            }
        }
        found.len()
    }

    /// Splits the events in the global order into two halves. `None` means that there is at most one event.
    fn halves(&self) -> Option<(Strip<'a>, Strip<'a>)> {
        let half = self.len() / 2;
        let mut times_ns = Vec::with_capacity(self.len());
        for slice in &self.slices {
            slice.batch.put_times(slice.range.clone(), &mut times_ns);
        }
        if half == 0 {
            return None;
        }
        let (before, border_ns, _) = times_ns.select_nth_unstable(half);
        let border_ns = *border_ns;
        let mut more = before.iter().filter(|time| **time == border_ns).count();
        let (mut first, mut second) = (Strip::default(), Strip::default());
        // By number of a slice, its numbers in the halves, and where it is cut.
        let mut cuts = Vec::with_capacity(self.slices.len());
        for slice in &self.slices {
            let range = slice.range.clone();
            let mut at = slice.batch.first_from(range.clone(), border_ns);
            if more != 0 {
                let behind_ns = border_ns.saturating_add(1);
                let ties = slice.batch.first_from(at..range.end, behind_ns) - at;
                at += ties.min(more);
                more -= ties.min(more);
            }
            cuts.push((first.slices.len(), second.slices.len(), at));
            for (strip, range) in [(&mut first, range.start..at), (&mut second, at..range.end)] {
                if !range.is_empty() {
                    strip.slices.push(StripSlice {
                        range,
                        ..slice.clone()
                    });
                }
            }
        }
        for (place, loss) in &self.losses {
            let (strip, place) = match *place {
                StripPlace::Event(number, index) => match cuts[number] {
                    (in_first, _, at) if index < at => {
                        (&mut first, StripPlace::Event(in_first, index))
                    }
                    (_, in_second, _) => (&mut second, StripPlace::Event(in_second, index)),
                },
                StripPlace::Time(time_ns) if time_ns <= border_ns => (&mut first, *place),
                StripPlace::Time(_) => (&mut second, *place),
            };
            strip.losses.push((place, *loss));
        }
        Some((first, second))
    }

    /// Returns the losses by stream, each before the event of its stream with this number.
    fn place_losses(&self, pieces: &[Piece<'_>]) -> Vec<(u32, TraceLoss)> {
        let place = |(place, loss): &(StripPlace, TraceLoss)| {
            let start = pieces.partition_point(|piece| piece.slice.stream < loss.stream);
            let own = pieces[start..].iter();
            let own = own.take_while(|piece| piece.slice.stream == loss.stream);
            let mut before = 0;
            for piece in own {
                let is_at = match *place {
                    StripPlace::Event(number, index) => {
                        let is_here = piece.number == number && piece.range.contains(&index);
                        is_here.then_some(index)
                    }
                    StripPlace::Time(time_ns) => {
                        let at = piece.slice.batch.first_from(piece.range.clone(), time_ns);
                        (at < piece.range.end).then_some(at)
                    }
                };
                if let Some(at) = is_at {
                    return (before + at - piece.range.start) as u32;
                }
                before += piece.range.len();
            }
            before as u32
        };
        let placed = self.losses.iter().map(|loss| (place(loss), loss.1));
        let mut placed: Vec<(u32, TraceLoss)> = placed.collect();
        // By what they say, not by when they were found: that may differ.
        placed.sort_by_key(|(at, loss)| {
            let interval = (loss.to_ns, loss.from_ns);
            let what = (loss.event_type, loss.cause.code(), loss.count);
            (loss.stream, *at, interval, what)
        });
        placed
    }
}

/// A chunk under construction.
struct Assembly<'s, 'a> {
    strip: &'s Strip<'a>,
    pieces: Vec<Piece<'s>>,
    /// Pieces that are in the chunk.
    done: usize,
    chunk: TraceChunk,
    counts: Vec<StreamCounts>,
}

impl<'s, 'a> Assembly<'s, 'a> {
    fn of(strip: &'s Strip<'a>) -> Self {
        Self {
            pieces: strip.pieces(),
            strip,
            done: 0,
            chunk: TraceChunk::default(),
            counts: Vec::new(),
        }
    }

    /// Adds the next group of streams. Returns whether there was one.
    fn add_group(&mut self, references: &ElementReferences) -> bool {
        let rest = &self.pieces[self.done..];
        let (mut count, mut events) = (0, 0);
        for of_stream in rest.chunk_by(|a, b| a.slice.stream == b.slice.stream) {
            if events >= GROUP_EVENTS {
                break;
            }
            count += of_stream.len();
            events += of_stream
                .iter()
                .map(|piece| piece.range.len())
                .sum::<usize>();
        }
        if count != 0 {
            let group = group_of(&rest[..count], references, &mut self.counts);
            self.chunk.groups.push(group);
        }
        self.done += count;
        count != 0
    }

    fn finish(mut self) -> UnnumberedChunk {
        self.chunk.losses = self.strip.place_losses(&self.pieces);
        let header = self.chunk.header_of(0, self.counts);
        UnnumberedChunk {
            chunk: self.chunk,
            header,
        }
    }
}

/// By type of a batch, where a range of its events begins and ends among those of the type.
#[derive(Default)]
struct Ordinals {
    starts: Vec<u32>,
    ends: Vec<u32>,
}

impl Ordinals {
    /// Returns the types of which a range of a batch has events: index of the type, range of the type's events, and its
    /// columns.
    fn of_types<'a>(
        &mut self,
        batch: &'a Batch,
        range: Range<usize>,
    ) -> impl Iterator<Item = (usize, Range<usize>, &'a TypeColumns)> {
        self.starts.clear();
        self.starts.resize(batch.types.len(), 0);
        batch.ordinals_at(range.start, &mut self.starts);
        self.ends.clone_from(&self.starts);
        batch.count_types(range, &mut self.ends);
        let ordinals = self.starts.iter().zip(&self.ends).enumerate();
        ordinals.filter_map(|(local, (start, end))| {
            let ordinals = *start as usize..*end as usize;
            (start != end).then(|| (local, ordinals, &batch.types[local]))
        })
    }
}

/// The columns of an event type (or of one of its shapes) in a group.
struct Slot<'a> {
    event_type: EventTypeId,
    /// Of which elements it has columns.
    shape: &'a [Column],
    /// The pieces with such events.
    members: Vec<PieceEvents<'a>>,
    count: usize,
}

/// Events of one type in one piece.
struct PieceEvents<'a> {
    columns: &'a [Column],
    numbers: &'a Numbers,
    /// Which of the type's events.
    ordinals: Range<usize>,
}

fn is_alike(a: &[Column], b: &[Column]) -> bool {
    let types = a.iter().map(Column::element_type);
    types.eq(b.iter().map(Column::element_type))
}

/// The types of a group's events.
#[derive(Default)]
struct Slots<'a> {
    slots: Vec<Slot<'a>>,
    /// By event type of the trace, its (last) slot + 1.
    of_type: Vec<u16>,
}

impl<'a> Slots<'a> {
    /// Returns the slot of an event type of the trace with such columns.
    fn of(&mut self, event_type: EventTypeId, columns: &'a [Column]) -> usize {
        let fits = |slot: &Slot<'_>| slot.event_type == event_type && is_alike(slot.shape, columns);
        let known = self.of_type.get(event_type.index()).copied().unwrap_or(0);
        let slot = match known {
            0 => None,
            known if fits(&self.slots[usize::from(known) - 1]) => Some(usize::from(known) - 1),
            // Damaged or hostile recordings may define one event type with different elements: each shape has separate
            // columns.
            _ => self.slots.iter().position(fits),
        };
        slot.unwrap_or_else(|| {
            self.slots.push(Slot {
                event_type,
                shape: columns,
                members: Vec::new(),
                count: 0,
            });
            if self.of_type.len() <= event_type.index() {
                self.of_type.resize(event_type.index() + 1, 0);
            }
            self.of_type[event_type.index()] = self.slots.len() as u16;
            self.slots.len() - 1
        })
    }

    /// Returns the slots in an order that depends on event types and shapes alone, not on the pieces with such events;
    /// and the place of each slot in it.
    fn order(&self) -> (Vec<usize>, Vec<u16>) {
        let mut order: Vec<usize> = (0..self.slots.len()).collect();
        order.sort_by_cached_key(|number| {
            let slot = &self.slots[*number];
            let columns = slot.shape.iter();
            let shape: Vec<u8> = columns.map(|c| c.element_type().code()).collect();
            (slot.event_type, shape)
        });
        let mut ranks = vec![0; order.len()];
        for (rank, number) in order.iter().enumerate() {
            ranks[*number] = rank as u16;
        }
        (order, ranks)
    }
}

/// Copies the events of pieces into a group, and appends its counts.
fn group_of(
    pieces: &[Piece<'_>],
    references: &ElementReferences,
    counts: &mut Vec<StreamCounts>,
) -> StreamGroup {
    let (slots, mut slot_of_types) = find_slots(pieces, counts);
    let (order, ranks) = slots.order();
    for slot in &mut slot_of_types {
        *slot = ranks.get(usize::from(*slot)).copied().unwrap_or(0);
    }
    let mut group = copy_events(pieces, &slot_of_types);
    let types = order.into_iter().map(|number| {
        let slot = &slots.slots[number];
        let columns = slot.shape.iter().enumerate().map(|(element, like)| {
            let reference = references.get(slot.event_type, element);
            let sources = slot.members.iter().map(|member| Source {
                column: &member.columns[element],
                ordinals: member.ordinals.clone(),
                references: member.numbers.references(reference),
            });
            column_of(like, slot.count, sources)
        });
        TypeColumns {
            event_type: slot.event_type,
            count: slot.count,
            columns: columns.collect(),
        }
    });
    group.types = types.collect();
    group
}

/// Finds which columns the events of pieces go to, and appends their counts by stream and type. Returns the slots and,
/// piece by piece, the slot of each type of the batch.
fn find_slots<'a>(
    pieces: &'a [Piece<'_>],
    counts: &mut Vec<StreamCounts>,
) -> (Slots<'a>, Vec<u16>) {
    let mut slots = Slots::default();
    let mut slot_of_types: Vec<u16> = Vec::new();
    let mut spare = Ordinals::default();
    let first_count = counts.len();
    for (number, piece) in pieces.iter().enumerate() {
        if let Some(later) = pieces.get(number + PIECES_AHEAD) {
            later.slice.batch.fetch_ahead(later.range.start);
        }
        let batch = &piece.slice.batch;
        let first = slot_of_types.len();
        slot_of_types.resize(first + batch.types.len(), 0);
        let is_new = counts[first_count..]
            .last()
            .is_none_or(|last| last.0 != piece.slice.stream);
        if is_new {
            counts.push((piece.slice.stream, Vec::with_capacity(batch.types.len())));
        }
        for (local, ordinals, columns) in spare.of_types(batch, piece.range.clone()) {
            let of_stream = counts.last_mut().map(|(_, counts)| counts);
            let count = (batch.event_types[local], ordinals.len() as u64);
            of_stream.into_iter().for_each(|counts| counts.push(count));
            let bits = columns.columns.iter().filter_map(Column::bits);
            bits.for_each(|bits| bits.fetch_ahead(ordinals.start));
            let slot = slots.of(batch.event_types[local], &columns.columns);
            slot_of_types[first + local] = slot as u16;
            let slot = &mut slots.slots[slot];
            slot.count += ordinals.len();
            slot.members.push(PieceEvents {
                columns: &columns.columns,
                numbers: piece.slice.numbers,
                ordinals,
            });
        }
    }
    for (_, counts) in &mut counts[first_count..] {
        add_up(counts);
    }
    (slots, slot_of_types)
}

/// Sorts counts by event type, and adds those of one type up.
fn add_up(counts: &mut Vec<(EventTypeId, u64)>) {
    counts.sort_unstable_by_key(|(event_type, _)| *event_type);
    counts.dedup_by(|b, a| {
        let is_same = a.0 == b.0;
        a.1 += if is_same { b.1 } else { 0 };
        is_same
    });
}

/// Copies times, types and positions of the events of pieces. `slot_of_types`: piece by piece, the slot of each type of the
/// batch.
fn copy_events(pieces: &[Piece<'_>], slot_of_types: &[u16]) -> StreamGroup {
    let events = pieces.iter().map(|piece| piece.range.len()).sum();
    let mut group = StreamGroup {
        times_ns: Vec::with_capacity(events),
        type_index: Vec::with_capacity(events),
        tick_residuals: Vec::with_capacity(events),
        ..StreamGroup::default()
    };
    let has_positions = pieces.iter().any(|piece| piece.slice.batch.is_sorted());
    let has_shifts = pieces
        .iter()
        .any(|piece| piece.slice.batch.shift(0).is_some());
    let mut slot_of_types = slot_of_types;
    for piece in pieces {
        let (batch, range) = (&piece.slice.batch, piece.range.clone());
        let own;
        (own, slot_of_types) = slot_of_types.split_at(batch.types.len());
        batch.put_times(range.clone(), &mut group.times_ns);
        batch.put_types(range.clone(), own, &mut group.type_index);
        batch.put_residuals(range.clone(), &mut group.tick_residuals);
        if has_positions {
            let positions = range
                .clone()
                .map(|index| batch.position(index).unwrap_or(0));
            group.positions.extend(positions);
        }
        if has_shifts {
            let shifts = range.map(|index| batch.shift(index).unwrap_or(0));
            group.shifts_ns.extend(shifts);
        }
        let end = (piece.slice.stream, group.times_ns.len() as u32);
        match group.ends.last_mut() {
            Some(last) if last.0 == end.0 => *last = end,
            _ => group.ends.push(end),
        }
    }
    group
}

/// A column that values are taken from.
struct Source<'a> {
    column: &'a Column,
    ordinals: Range<usize>,
    references: Option<&'a References>,
}

/// Returns the values of some columns, one after the other.
fn column_of<'a>(
    like: &Column,
    count: usize,
    sources: impl Iterator<Item = Source<'a>> + Clone,
) -> Column {
    if sources.clone().all(|source| source.column.bits().is_some()) {
        let mut values = Vec::with_capacity(count);
        for source in sources {
            let start = values.len();
            if let Some(bits) = source.column.bits() {
                bits.extend_into(source.ordinals, &mut values);
            }
            if let Some(table) = source.references {
                let of_source = values[start..].iter_mut();
                of_source.for_each(|value| *value = table.get(*value));
            }
        }
        return Column::of_bits(like.element_type(), values);
    }
    let mut column = Column::new(like.element_type());
    for source in sources {
        for ordinal in source.ordinals {
            match source.references {
                None => column.push_from(source.column, ordinal, |bits| bits),
                Some(table) => column.push_from(source.column, ordinal, |bits| table.get(bits)),
            }
        }
    }
    column
}
