//! A strip of the axis: the events of all streams in a stretch of time, which become chunks of the trace.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use annals_format::{
    Column, EventTypeId, MAX_CHUNK_VALUES, StreamId, TraceChunk, TraceChunkHeader, TraceLoss,
    TypeColumns,
};

use crate::axis::batch::Batch;
use crate::axis::proof::ElementReferences;
use crate::axis::unify::{Numbers, References};

/// Text and bytes of one trace chunk.
const CHUNK_TEXT: usize = 8 << 20;

/// Events by stream and event type, both ascending.
type Counts = Vec<(StreamId, Vec<(EventTypeId, u64)>)>;

/// Events of one stream.
#[derive(Debug)]
pub(crate) struct Slice<'a> {
    pub(crate) stream: StreamId,
    pub(crate) numbers: &'a Numbers,
    pub(crate) batch: Arc<Batch>,
    pub(crate) range: Range<usize>,
}

/// Where a loss stands.
#[derive(Clone, Copy, Debug)]
pub(crate) enum StripPlace {
    /// Before an event of a slice: its number, and the event's index in the batch.
    Event(usize, usize),
    /// Behind the events before this time.
    Time(i64),
}

/// All events of a stretch of time.
#[derive(Debug)]
pub(crate) struct Strip<'a> {
    /// No event is before it.
    pub(crate) from_ns: i64,
    /// By stream, and by position in the stream: with equal times, this is the order.
    pub(crate) slices: Vec<Slice<'a>>,
    pub(crate) losses: Vec<(StripPlace, TraceLoss)>,
}

/// What all strips share.
#[derive(Debug)]
pub(crate) struct Shape<'a> {
    pub(crate) references: &'a ElementReferences,
    /// Most events of a chunk.
    pub(crate) most_events: usize,
}

/// Memory that is used again for strip after strip.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    keys: Vec<u64>,
    other: Vec<u64>,
    /// The events in the order of the slices.
    events: Vec<Event>,
    /// Those of a chunk, in its order.
    ordered: Vec<Event>,
    /// Numbers of the events among those of their type, type by type.
    picks: Vec<u32>,
    values: Vec<u64>,
}

/// Memory of the strips that are worked on at once.
#[derive(Debug, Default)]
pub(crate) struct Scratches(Mutex<Vec<Scratch>>);

impl Scratches {
    /// Lends memory that nobody else uses.
    pub(crate) fn with<R>(&self, work: impl FnOnce(&mut Scratch) -> R) -> R {
        let lock = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let spare = lock().pop();
        let mut scratch = spare.unwrap_or_default();
        let result = work(&mut scratch);
        lock().push(scratch);
        result
    }
}

/// What the order needs to know of an event: gathered slice by slice, as memory likes it.
#[derive(Clone, Copy, Debug, Default)]
struct Event {
    slice: u32,
    /// Its number among the strip's events of its type, in the order of the slices.
    pick: u32,
    slot: u16,
    /// [`FAR_RESIDUAL`] stands for one that does not fit.
    residual: i16,
}

/// By so many slices memory is asked for before it is looked at.
const SLICES_AHEAD: usize = 4;

const FAR_RESIDUAL: i16 = i16::MIN;

/// Instead of a shift: keys hold numbers alone.
const FAR: u32 = u64::BITS - 1;

/// The columns of an event type (or of one of its shapes) in a chunk.
struct Slot {
    event_type: EventTypeId,
    /// Who has such events; the first shows the shape.
    members: Vec<Member>,
    count: usize,
}

/// Events of one type in one slice.
#[derive(Clone, Debug)]
struct Member {
    slice: usize,
    /// Index of the type in the slice's batch.
    local: usize,
    /// Which of the batch's events of the type.
    ordinals: Range<usize>,
}

/// The types of a strip's events.
#[derive(Default)]
struct Slots {
    slots: Vec<Slot>,
    /// By event type of the trace, its (last) slot + 1.
    of_type: Vec<u16>,
}

impl Slots {
    fn columns<'a>(slices: &'a [Slice<'_>], slot: &Slot) -> &'a [Column] {
        let Member { slice, local, .. } = slot.members[0];
        &slices[slice].batch.types[local].columns
    }

    /// Takes in what a slice has of one of its types; gives the slot.
    fn add(&mut self, slices: &[Slice<'_>], member: Member) -> usize {
        let batch = &slices[member.slice].batch;
        let event_type = batch.event_types[member.local];
        let columns = &batch.types[member.local].columns;
        let fits = |slot: &Slot| {
            slot.event_type == event_type && is_alike(Self::columns(slices, slot), columns)
        };
        let known = self.of_type.get(event_type.index()).copied().unwrap_or(0);
        let slot = match known {
            0 => None,
            known if fits(&self.slots[usize::from(known) - 1]) => Some(usize::from(known) - 1),
            // Damaged or hostile recordings may give one event type different elements: each shape has
            // columns of its own.
            _ => self.slots.iter().position(fits),
        };
        let slot = slot.unwrap_or_else(|| {
            self.slots.push(Slot {
                event_type,
                members: Vec::new(),
                count: 0,
            });
            if self.of_type.len() <= event_type.index() {
                self.of_type.resize(event_type.index() + 1, 0);
            }
            self.of_type[event_type.index()] = self.slots.len() as u16;
            self.slots.len() - 1
        });
        self.slots[slot].count += member.ordinals.len();
        self.slots[slot].members.push(member);
        slot
    }
}

impl Slots {
    /// The slots in an order that depends on event types and shapes alone, not on who has them; and of
    /// each slot, its place in it.
    fn order(&self, slices: &[Slice<'_>]) -> (Vec<usize>, Vec<u16>) {
        let mut order: Vec<usize> = (0..self.slots.len()).collect();
        order.sort_by_cached_key(|number| {
            let slot = &self.slots[*number];
            let columns = Self::columns(slices, slot).iter();
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

fn is_alike(a: &[Column], b: &[Column]) -> bool {
    let types = a.iter().map(Column::element_type);
    types.eq(b.iter().map(Column::element_type))
}

/// A chunk of a trace and its head, but for its number.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) chunk: TraceChunk,
    pub(crate) header: TraceChunkHeader,
}

impl Strip<'_> {
    /// The chunks of the strip, one but for extraordinary ones.
    pub(crate) fn assemble(&self, shape: &Shape<'_>, scratch: &mut Scratch) -> Vec<Part> {
        let (slots, counts) = self.take_events(scratch);
        let shift = self.sort(scratch);
        let has_many = self.slices.iter().any(|s| s.batch.streams().is_some());
        if has_many {
            self.order_ties(shift, scratch);
        }
        let mut chunks = Vec::new();
        let mut start = 0;
        for end in self.borders(shift, shape, scratch, &slots) {
            chunks.push(self.gather(start..end, shift, shape, &slots, scratch));
            start = end;
        }
        if chunks.is_empty() {
            chunks.push(TraceChunk::default());
        }
        self.place_losses(shift, scratch, &mut chunks);
        let is_counted = chunks.len() == 1 && !has_many;
        let part = |chunk: TraceChunk| {
            let header = if is_counted {
                chunk.header_of(0, counts.clone())
            } else {
                chunk.header(0)
            };
            Part { chunk, header }
        };
        chunks.into_iter().map(part).collect()
    }

    fn len(&self) -> usize {
        self.slices.iter().map(|slice| slice.range.len()).sum()
    }

    /// Notes what the order needs of each event; gives the types, and the counts by stream and type.
    fn take_events(&self, scratch: &mut Scratch) -> (Slots, Counts) {
        let mut slots = Slots::default();
        let mut counts: Counts = Vec::new();
        let (mut starts, mut ends) = (Vec::new(), Vec::new());
        // By type of the batch: its slot, and the pick of its next event.
        let mut next: Vec<(u16, u32)> = Vec::new();
        let events = &mut scratch.events;
        events.clear();
        events.reserve(self.len());
        for (number, slice) in self.slices.iter().enumerate() {
            if let Some(later) = self.slices.get(number + SLICES_AHEAD) {
                later.batch.fetch_ahead(later.range.start);
            }
            let batch = &*slice.batch;
            let range = slice.range.clone();
            starts.clear();
            starts.resize(batch.types.len(), 0);
            batch.ordinals_at(range.start, &mut starts);
            ends.clone_from(&starts);
            batch.count_types(range.clone(), &mut ends);
            next.clear();
            if counts
                .last()
                .is_none_or(|(stream, _)| *stream != slice.stream)
            {
                counts.push((slice.stream, Vec::new()));
            }
            for (local, (start, end)) in starts.iter().zip(&ends).enumerate() {
                if start == end {
                    next.push((0, 0));
                    continue;
                }
                let member = Member {
                    slice: number,
                    local,
                    ordinals: *start as usize..*end as usize,
                };
                let slot = slots.add(&self.slices, member);
                let pick = slots.slots[slot].count - (end - start) as usize;
                next.push((slot as u16, pick as u32));
                let of_stream = counts.last_mut().map(|(_, counts)| counts);
                of_stream.into_iter().for_each(|counts| {
                    counts.push((batch.event_types[local], u64::from(end - start)));
                });
            }
            let first = events.len();
            events.resize(first + range.len(), Event::default());
            let mut events = events[first..].iter_mut();
            batch.for_each(range, |place, residual| {
                let (slot, pick) = &mut next[place];
                if let Some(event) = events.next() {
                    *event = Event {
                        slice: number as u32,
                        pick: *pick,
                        slot: *slot,
                        residual: i16::try_from(residual).unwrap_or(FAR_RESIDUAL),
                    };
                }
                *pick += 1;
            });
        }
        for (_, counts) in &mut counts {
            counts.sort_unstable();
            counts.dedup_by(|b, a| {
                let is_same = a.0 == b.0;
                a.1 += if is_same { b.1 } else { 0 };
                is_same
            });
        }
        (slots, counts)
    }

    /// Puts the events into order: their numbers stand in the keys below the bit that this gives.
    fn sort(&self, scratch: &mut Scratch) -> u32 {
        let count = scratch.events.len();
        let last = self.slices.iter().map(|s| s.batch.time_ns(s.range.end - 1));
        let span = last.max().map_or(0, |last| last.abs_diff(self.from_ns));
        let shift = usize::BITS - count.leading_zeros();
        let span_bits = u64::BITS - span.leading_zeros();
        let keys = &mut scratch.keys;
        keys.clear();
        if shift + span_bits < u64::BITS {
            keys.reserve(count);
            for slice in &self.slices {
                let (range, start) = (slice.range.clone(), keys.len() as u64);
                slice
                    .batch
                    .put_keys(range, self.from_ns, shift, start, keys);
            }
            if self.slices.len() > 1 {
                radix_sort(keys, &mut scratch.other, shift, span_bits);
            }
            return shift;
        }
        // So long a strip has few events.
        let times = self.slices.iter().flat_map(|slice| {
            let range = slice.range.clone();
            range.map(|index| slice.batch.time_ns(index))
        });
        let times: Vec<i64> = times.collect();
        keys.extend(0..count as u64);
        keys.sort_by_key(|number| times[*number as usize]);
        FAR
    }

    /// The stream of an event, by its number in the order of the slices.
    fn stream_of(&self, event: Event, number: usize, starts: &[usize]) -> StreamId {
        let slice = &self.slices[event.slice as usize];
        match slice.batch.streams() {
            Some(streams) => streams[slice.range.start + number - starts[event.slice as usize]],
            None => slice.stream,
        }
    }

    /// Brings events of one time into the order of their streams: slices of many streams are not.
    fn order_ties(&self, shift: u32, scratch: &mut Scratch) {
        let starts = self.starts();
        let Scratch { keys, events, .. } = scratch;
        let time = |key: u64| match shift {
            FAR => {
                let number = number_of(key, shift);
                let slice = events[number].slice as usize;
                let index = self.slices[slice].range.start + number - starts[slice];
                self.slices[slice].batch.time_ns(index) as u64
            }
            _ => key >> shift,
        };
        for ties in keys.chunk_by_mut(|a, b| time(*a) == time(*b)) {
            if ties.len() > 1 {
                ties.sort_by_cached_key(|key| {
                    let number = number_of(*key, shift);
                    (self.stream_of(events[number], number, &starts), number)
                });
            }
        }
    }

    /// Number of the first event of each slice.
    fn starts(&self) -> Vec<usize> {
        let mut start = 0;
        let starts = self.slices.iter().map(|slice| {
            start += slice.range.len();
            start - slice.range.len()
        });
        starts.collect()
    }

    /// Where chunks end.
    fn borders(
        &self,
        shift: u32,
        shape: &Shape<'_>,
        scratch: &Scratch,
        slots: &Slots,
    ) -> Vec<usize> {
        let count = scratch.keys.len();
        let columns = |slot: &Slot| Slots::columns(&self.slices, slot);
        let widest = slots.slots.iter().map(|slot| columns(slot).len()).max();
        let most_values = count.saturating_mul(widest.unwrap_or(0));
        let is_text = |column: &Column| column.element_type().is_variable();
        let has_text = slots
            .slots
            .iter()
            .any(|slot| columns(slot).iter().any(is_text));
        if count == 0 {
            return Vec::new();
        }
        if count <= shape.most_events && most_values <= MAX_CHUNK_VALUES / 4 && !has_text {
            return vec![count];
        }
        // By slot and pick, how much text an event has.
        let texts = slots.slots.iter().map(|slot| {
            let of_members = slot.members.iter().flat_map(|member| {
                let columns = &self.slices[member.slice].batch.types[member.local].columns;
                member.ordinals.clone().map(|ordinal| {
                    columns
                        .iter()
                        .map(|column| column.text_len(ordinal))
                        .sum::<usize>()
                })
            });
            of_members.collect::<Vec<usize>>()
        });
        let texts: Vec<Vec<usize>> = texts.collect();
        let mut borders = Vec::new();
        let (mut events, mut values, mut text) = (0, 0, 0);
        for (at, key) in scratch.keys.iter().enumerate() {
            let event = scratch.events[number_of(*key, shift)];
            let slot = usize::from(event.slot);
            events += 1;
            values += columns(&slots.slots[slot]).len();
            text += texts[slot][event.pick as usize];
            if events >= shape.most_events || values >= MAX_CHUNK_VALUES / 4 || text >= CHUNK_TEXT {
                borders.push(at + 1);
                (events, values, text) = (0, 0, 0);
            }
        }
        if borders.last() != Some(&count) {
            borders.push(count);
        }
        borders
    }

    /// The chunk of some events of the order.
    fn gather(
        &self,
        places: Range<usize>,
        shift: u32,
        shape: &Shape<'_>,
        slots: &Slots,
        scratch: &mut Scratch,
    ) -> TraceChunk {
        let Scratch {
            keys,
            events,
            ordered,
            picks,
            values,
            ..
        } = scratch;
        let keys = &keys[places];
        let count = keys.len();
        let mut chunk = TraceChunk {
            times_ns: Vec::with_capacity(count),
            streams: Vec::with_capacity(count),
            type_index: Vec::with_capacity(count),
            tick_residuals: Vec::with_capacity(count),
            ..TraceChunk::default()
        };
        // Room for each type's events; in a strip of several chunks, more than are in this one.
        let mut ends: Vec<usize> = Vec::with_capacity(slots.slots.len());
        let mut room = 0;
        for slot in &slots.slots {
            ends.push(room);
            room += slot.count;
        }
        let begins = ends.clone();
        picks.clear();
        picks.resize(room, 0);
        let streams: Vec<StreamId> = self.slices.iter().map(|slice| slice.stream).collect();
        let (order, ranks) = slots.order(&self.slices);
        // The events in order first: what follows reads them one behind the other.
        ordered.clear();
        ordered.extend(keys.iter().map(|key| events[number_of(*key, shift)]));
        let of = |event: &Event| streams[event.slice as usize];
        chunk.streams.extend(ordered.iter().map(of));
        let rank = |event: &Event| ranks[usize::from(event.slot)];
        chunk.type_index.extend(ordered.iter().map(rank));
        let residuals = ordered.iter().map(|event| i64::from(event.residual));
        chunk.tick_residuals.extend(residuals);
        for event in ordered.iter() {
            let end = &mut ends[usize::from(event.slot)];
            picks[*end] = event.pick;
            *end += 1;
        }
        self.fill_times(keys, shift, events, &mut chunk);
        self.fill_streams(keys, shift, events, &mut chunk);
        for number in order {
            let picks = &picks[begins[number]..ends[number]];
            let slot = &slots.slots[number];
            chunk.types.push(self.columns(shape, slot, picks, values));
        }
        chunk
    }

    /// Streams, where slices have several.
    fn fill_streams(&self, keys: &[u64], shift: u32, events: &[Event], chunk: &mut TraceChunk) {
        if self.slices.iter().all(|s| s.batch.streams().is_none()) {
            return;
        }
        let starts = self.starts();
        for (stream, key) in chunk.streams.iter_mut().zip(keys) {
            let number = number_of(*key, shift);
            *stream = self.stream_of(events[number], number, &starts);
        }
    }

    /// Times, and what few events have: residuals that are large, positions of streams that were sorted.
    fn fill_times(&self, keys: &[u64], shift: u32, events: &[Event], chunk: &mut TraceChunk) {
        let has_positions = self.slices.iter().any(|slice| slice.batch.is_sorted());
        let has_keys = shift != FAR;
        if has_keys {
            let times = keys
                .iter()
                .map(|key| self.from_ns.wrapping_add((key >> shift) as i64));
            chunk.times_ns.extend(times);
        }
        let is_far = |residual: &i64| *residual == i64::from(FAR_RESIDUAL);
        let has_shifts = self
            .slices
            .iter()
            .any(|slice| slice.batch.shift(0).is_some());
        if has_keys && !has_positions && !has_shifts && !chunk.tick_residuals.iter().any(is_far) {
            return;
        }
        let starts = self.starts();
        if has_positions {
            chunk.positions.resize(keys.len(), 0);
        }
        if has_shifts {
            chunk.shifts_ns.resize(keys.len(), 0);
        }
        for (place, key) in keys.iter().enumerate() {
            let number = number_of(*key, shift);
            let slice = events[number].slice as usize;
            let batch = &self.slices[slice].batch;
            let index = self.slices[slice].range.start + number - starts[slice];
            if !has_keys {
                chunk.times_ns.push(batch.time_ns(index));
            }
            chunk.tick_residuals[place] = batch.residual(index);
            if has_positions {
                chunk.positions[place] = batch.position(index).unwrap_or(0);
            }
            if has_shifts {
                chunk.shifts_ns[place] = batch.shift(index).unwrap_or(0);
            }
        }
    }

    fn columns(
        &self,
        shape: &Shape<'_>,
        slot: &Slot,
        picks: &[u32],
        values: &mut Vec<u64>,
    ) -> TypeColumns {
        let like = Slots::columns(&self.slices, slot);
        let columns = like.iter().enumerate().map(|(element, like)| {
            let reference = shape.references.get(slot.event_type, element);
            let sources = slot.members.iter().map(|member| {
                let slice = &self.slices[member.slice];
                let column = &slice.batch.types[member.local].columns[element];
                if let Some(bits) = column.bits() {
                    bits.fetch_ahead(member.ordinals.start);
                }
                Source {
                    column,
                    ordinals: member.ordinals.clone(),
                    references: slice.numbers.references(reference),
                }
            });
            gather_column(like, &sources.collect::<Vec<_>>(), picks, values)
        });
        TypeColumns {
            event_type: slot.event_type,
            count: picks.len(),
            columns: columns.collect(),
        }
    }

    fn place_losses(&self, shift: u32, scratch: &Scratch, chunks: &mut [TraceChunk]) {
        if self.losses.is_empty() {
            return;
        }
        // For each event in the order of the slices, its place in the strip.
        let mut places = vec![0_u32; scratch.keys.len()];
        for (place, key) in scratch.keys.iter().enumerate() {
            places[number_of(*key, shift)] = place as u32;
        }
        let starts = self.starts();
        let mut placed: Vec<(usize, TraceLoss)> = Vec::with_capacity(self.losses.len());
        for (place, loss) in &self.losses {
            let at = match place {
                StripPlace::Event(slice, index) => {
                    let number = starts[*slice] + index - self.slices[*slice].range.start;
                    places[number] as usize
                }
                StripPlace::Time(time_ns) => chunks
                    .iter()
                    .map(|chunk| chunk.times_ns.partition_point(|time| time < time_ns))
                    .sum(),
            };
            placed.push((at, *loss));
        }
        // By what they say, not by when they were found: that may differ.
        placed.sort_by_key(|(at, loss)| {
            let interval = (loss.to_ns, loss.from_ns);
            let what = (loss.event_type, loss.cause.code(), loss.count);
            (*at, loss.stream, interval, what)
        });
        let mut chunk = 0;
        let mut start = 0;
        for (at, loss) in placed {
            while chunk + 1 < chunks.len() && at >= start + chunks[chunk].len() {
                start += chunks[chunk].len();
                chunk += 1;
            }
            chunks[chunk].losses.push(((at - start) as u32, loss));
        }
    }
}

/// The number of an event, in its key.
#[inline]
fn number_of(key: u64, shift: u32) -> usize {
    (key & ((1 << shift) - 1)) as usize
}

/// Sorts by the bits from `shift` on; equal ones keep their order.
fn radix_sort(keys: &mut Vec<u64>, other: &mut Vec<u64>, shift: u32, bits: u32) {
    const DIGIT: u32 = 11;
    if bits == 0 {
        return;
    }
    other.clear();
    other.resize(keys.len(), 0);
    // As few passes as possible, of equal width.
    let passes = bits.div_ceil(DIGIT);
    let digit = bits.div_ceil(passes);
    let mask = (1_u64 << digit) - 1;
    for pass in 0..passes {
        let at = shift + pass * digit;
        let mut counts = [0_u32; 1 << DIGIT];
        for key in keys.iter() {
            counts[(key >> at & mask) as usize & ((1 << DIGIT) - 1)] += 1;
        }
        let mut sum = 0;
        for count in &mut counts[..1 << digit] {
            (*count, sum) = (sum, sum + *count);
        }
        for key in keys.iter() {
            let place = &mut counts[(key >> at & mask) as usize & ((1 << DIGIT) - 1)];
            other[*place as usize] = *key;
            *place += 1;
        }
        std::mem::swap(keys, other);
    }
}

/// A column that values are taken from.
struct Source<'a> {
    column: &'a Column,
    ordinals: Range<usize>,
    references: Option<&'a References>,
}

/// The values with these numbers, counted through all sources.
fn gather_column(
    like: &Column,
    sources: &[Source<'_>],
    picks: &[u32],
    values: &mut Vec<u64>,
) -> Column {
    if sources.iter().all(|source| source.column.bits().is_some()) {
        values.clear();
        for source in sources {
            let start = values.len();
            if let Some(bits) = source.column.bits() {
                bits.extend_into(source.ordinals.clone(), values);
            }
            if let Some(table) = source.references {
                let of_source = values[start..].iter_mut();
                of_source.for_each(|value| *value = table.get(*value));
            }
        }
        let bits = picks.iter().map(|pick| values[*pick as usize]);
        return Column::of_bits(like.element_type(), bits.collect());
    }
    // Which source, and which of its values.
    let from = sources.iter().enumerate().flat_map(|(number, source)| {
        let ordinals = source.ordinals.clone();
        ordinals.map(move |ordinal| (number, ordinal))
    });
    let from: Vec<(usize, usize)> = from.collect();
    let mut column = Column::new(like.element_type());
    for pick in picks {
        let (number, ordinal) = from[*pick as usize];
        let source = &sources[number];
        match source.references {
            None => column.push_from(source.column, ordinal, |bits| bits),
            Some(table) => column.push_from(source.column, ordinal, |bits| table.get(bits)),
        }
    }
    column
}

#[cfg(test)]
mod tests {
    use super::radix_sort;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_radix_sort_is_a_stable_sort(
            times in prop::collection::vec(0..1_u64 << 40, 0..500), bits in 0..40_u32,
        ) {
            let shift = 9;
            let keys = times.iter().enumerate();
            let mut keys: Vec<u64> = keys
                .map(|(number, time)| (time & ((1 << bits) - 1)) << shift | number as u64)
                .collect();
            let mut expected = keys.clone();
            expected.sort_by_key(|key| key >> shift);
            radix_sort(&mut keys, &mut Vec::new(), shift, bits);
            prop_assert_eq!(keys, expected);
        }
    }
}
