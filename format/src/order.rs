//! The global order of a chunk's events, found again by their times.

use crate::chunk::TypeColumns;
use crate::ids::{EventTypeId, StreamId};
use crate::stream_group::StreamGroup;
use crate::trace_chunk::{TraceChunk, TraceLoss};
use crate::value::Value;

/// The position of an event of the global order in its chunk.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct EventPlace {
    /// Index of its group.
    pub group: u32,
    /// Index of its stream's run in the group.
    pub run: u32,
    /// Its index in the group.
    pub index: u32,
    /// Its index in the columns of its type.
    pub ordinal: u32,
}

/// The position of a loss among the events of its chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LossPoint {
    /// Directly before an event: its trace time in nanoseconds, group and index.
    Before(i64, u32, u32),
    /// Before the first event that is not before this trace time, nanoseconds.
    At(i64),
}

impl LossPoint {
    /// Returns its trace time, nanoseconds.
    pub const fn time_ns(&self) -> i64 {
        match self {
            Self::Before(time_ns, ..) | Self::At(time_ns) => *time_ns,
        }
    }

    /// Returns a key that sorts the losses of a chunk in the global order.
    pub const fn key(&self) -> (i64, bool, u32, u32) {
        match self {
            // Before all events at its time.
            Self::At(time_ns) => (*time_ns, false, 0, 0),
            Self::Before(time_ns, group, index) => (*time_ns, true, *group, *index),
        }
    }

    /// Returns whether an event with this trace time in nanoseconds is before the loss.
    #[inline]
    pub fn is_after(&self, time_ns: i64, event: &EventPlace) -> bool {
        match self {
            Self::Before(at_ns, group, index) => {
                (time_ns, event.group, event.index) < (*at_ns, *group, *index)
            }
            Self::At(at_ns) => time_ns < *at_ns,
        }
    }
}

impl TraceChunk {
    /// Returns the trace time of an event, nanoseconds.
    #[inline]
    pub fn time_ns(&self, event: &EventPlace) -> i64 {
        self.groups[event.group as usize].times_ns[event.index as usize]
    }

    /// Returns the position of a loss: before the next event of its stream; if the chunk has none, at the end of its interval.
    /// `number`:
    /// that of this event among the stream's, as [`TraceChunk::losses`] has it.
    pub fn point_of(&self, number: u32, loss: &TraceLoss) -> LossPoint {
        match self.place_of(loss.stream, number) {
            Some((group, index)) => {
                let time_ns = self.groups[group as usize].times_ns[index as usize];
                LossPoint::Before(time_ns, group, index)
            }
            None => LossPoint::At(loss.to_ns),
        }
    }

    /// Returns group and index of a stream's event with this number in the chunk.
    pub(crate) fn place_of(&self, stream: StreamId, number: u32) -> Option<(u32, u32)> {
        let is_before = |group: &StreamGroup| group.ends.last().is_none_or(|end| end.0 < stream);
        let group = self.groups.partition_point(is_before);
        let ends = &self.groups.get(group)?.ends;
        let run = ends.binary_search_by_key(&stream, |(id, _)| *id).ok()?;
        let start = run.checked_sub(1).map_or(0, |before| ends[before].1);
        let index = start.checked_add(number)?;
        (index < ends[run].1).then_some((group as u32, index))
    }

    /// Returns the events in the global order: by time; at the same time by stream; in a stream as they are.
    pub fn order(&self) -> Vec<EventPlace> {
        let count = self.len();
        let mut places = Vec::with_capacity(count);
        let mut next = Vec::new();
        for (number, group) in self.groups.iter().enumerate() {
            next.clear();
            next.resize(group.types.len(), 0_u32);
            for (run, (_, indexes)) in group.runs().enumerate() {
                for (index, place) in indexes.clone().zip(&group.type_index[indexes]) {
                    let ordinal = &mut next[usize::from(*place)];
                    places.push(EventPlace {
                        group: number as u32,
                        run: run as u32,
                        index: index as u32,
                        ordinal: *ordinal,
                    });
                    *ordinal += 1;
                }
            }
        }
        let runs: usize = self.groups.iter().map(|group| group.ends.len()).sum();
        if runs > 1 {
            self.sort(&mut places);
        }
        places
    }

    /// Sorts events by time. The sort is stable.
    pub fn sort(&self, places: &mut Vec<EventPlace>) {
        let Some((first_ns, last_ns)) = self.span_ns() else {
            return;
        };
        let shift = usize::BITS - places.len().leading_zeros();
        let span = last_ns.abs_diff(first_ns);
        let bits = u64::BITS - span.leading_zeros();
        if shift + bits >= u64::BITS {
            // So long a chunk has few events.
            places.sort_by_key(|event| self.time_ns(event));
            return;
        }
        let keys = places.iter().enumerate().map(|(number, event)| {
            (self.time_ns(event).wrapping_sub(first_ns) as u64) << shift | number as u64
        });
        let mut keys: Vec<u64> = keys.collect();
        radix_sort(&mut keys, shift, bits);
        let number = |key: &u64| (key & ((1 << shift) - 1)) as usize;
        *places = keys.iter().map(|key| places[number(key)]).collect();
    }
}

/// A chunk with its global order. Events and losses are numbered in it from 0.
#[derive(Clone, Debug)]
pub struct OrderedChunk {
    chunk: TraceChunk,
    events: Vec<EventPlace>,
    /// Each before the event with this number, and its index among the losses of the chunk.
    losses: Vec<(u32, u32)>,
    /// By group, the number of its first event type.
    first_types: Vec<usize>,
}

impl From<TraceChunk> for OrderedChunk {
    fn from(chunk: TraceChunk) -> Self {
        let events = chunk.order();
        let of_losses = chunk
            .losses
            .iter()
            .enumerate()
            .map(|(number, (before, loss))| {
                let point = chunk.point_of(*before, loss);
                let before = |event: &EventPlace| point.is_after(chunk.time_ns(event), event);
                (events.partition_point(before) as u32, number as u32)
            });
        let mut losses: Vec<(u32, u32)> = of_losses.collect();
        losses.sort_unstable();
        let mut sum = 0;
        let first_types = chunk.groups.iter().map(|group| {
            sum += group.types.len();
            sum - group.types.len()
        });
        Self {
            first_types: first_types.collect(),
            chunk,
            events,
            losses,
        }
    }
}

impl OrderedChunk {
    /// Returns the chunk, stream by stream.
    pub const fn chunk(&self) -> &TraceChunk {
        &self.chunk
    }

    /// Returns the number of events.
    pub fn len(&self) -> usize {
        self.events.len()
    }

    /// Returns whether there are no events.
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// Returns the losses in order, each before the event with this number.
    pub fn losses(&self) -> impl DoubleEndedIterator<Item = (usize, &TraceLoss)> + Clone {
        let losses = self.losses.iter();
        losses.map(|(at, number)| (*at as usize, &self.chunk.losses[*number as usize].1))
    }

    /// Returns the position of an event in the chunk.
    ///
    /// # Panics
    /// Like the following functions, if there is no event of that number.
    #[inline]
    pub fn place(&self, event: usize) -> &EventPlace {
        &self.events[event]
    }

    /// Returns the positions of the events in the chunk, in the global order.
    pub fn places(&self) -> impl ExactSizeIterator<Item = &EventPlace> {
        self.events.iter()
    }

    #[inline]
    fn group(&self, event: usize) -> (&StreamGroup, usize) {
        let place = &self.events[event];
        (
            &self.chunk.groups[place.group as usize],
            place.index as usize,
        )
    }

    /// Returns the trace time of an event, nanoseconds.
    #[inline]
    pub fn time_ns(&self, event: usize) -> i64 {
        self.chunk.time_ns(&self.events[event])
    }

    /// Returns the trace times, nanoseconds, ascending.
    pub fn times_ns(&self) -> impl ExactSizeIterator<Item = i64> {
        self.events.iter().map(|event| self.chunk.time_ns(event))
    }

    /// Returns the number of events before a trace time, nanoseconds.
    pub fn count_before(&self, time_ns: i64) -> usize {
        self.events
            .partition_point(|event| self.chunk.time_ns(event) < time_ns)
    }

    /// Returns the stream of an event.
    #[inline]
    pub fn stream(&self, event: usize) -> StreamId {
        let place = &self.events[event];
        self.chunk.groups[place.group as usize].ends[place.run as usize].0
    }

    /// Returns the event types of all groups: an event type may be among them several times.
    pub fn types(&self) -> impl Iterator<Item = &TypeColumns> {
        self.chunk.groups.iter().flat_map(|group| &group.types)
    }

    /// Returns the place of an event's type among [`OrderedChunk::types`].
    #[inline]
    pub fn type_number(&self, event: usize) -> usize {
        let (group, index) = self.group(event);
        let first = self.first_types[self.events[event].group as usize];
        first + usize::from(group.type_index[index])
    }

    /// Returns the columns of an event's type.
    #[inline]
    pub fn columns(&self, event: usize) -> &TypeColumns {
        let (group, index) = self.group(event);
        &group.types[usize::from(group.type_index[index])]
    }

    /// Returns the index of an event in the columns of its type.
    #[inline]
    pub fn ordinal(&self, event: usize) -> usize {
        self.events[event].ordinal as usize
    }

    /// Returns the value of an element of an event, by its position in the definition of the event type.
    /// [`Value::Absent`] if there is none.
    #[inline]
    pub fn value(&self, event: usize, element: usize) -> Value<'_> {
        let column = self.columns(event).columns.get(element);
        column.map_or(Value::Absent, |column| column.get(self.ordinal(event)))
    }

    /// Returns the events, in order.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = OrderedRow<'_>> {
        (0..self.len()).map(|number| OrderedRow {
            chunk: self,
            number,
        })
    }

    /// Returns the position of an event in its stream. `None` if no stream of its group was sorted.
    pub fn position(&self, event: usize) -> Option<u64> {
        let (group, index) = self.group(event);
        group.positions.get(index).copied()
    }

    /// Returns by how much causality repair moved an event, nanoseconds.
    #[inline]
    pub fn shift_ns(&self, event: usize) -> i64 {
        let (group, index) = self.group(event);
        group.shift_ns(index)
    }

    /// Returns the unwrapped tick of an event minus the tick that its clock's map has for its time.
    #[inline]
    pub fn tick_residual(&self, event: usize) -> i64 {
        let (group, index) = self.group(event);
        group.tick_residuals[index]
    }
}

/// An event of a chunk with its global order.
#[derive(Clone, Copy, Debug)]
pub struct OrderedRow<'a> {
    chunk: &'a OrderedChunk,
    /// Its number in the chunk.
    pub number: usize,
}

impl<'a> OrderedRow<'a> {
    /// Returns its trace time, nanoseconds.
    pub fn time_ns(&self) -> i64 {
        self.chunk.time_ns(self.number)
    }

    /// Returns its stream.
    pub fn stream(&self) -> StreamId {
        self.chunk.stream(self.number)
    }

    /// Returns its event type.
    pub fn event_type(&self) -> EventTypeId {
        self.chunk.columns(self.number).event_type
    }

    /// Returns the value of an element by its position in the definition of the event type. [`Value::Absent`] if there
    /// is none.
    pub fn value(&self, element: usize) -> Value<'a> {
        self.chunk.value(self.number, element)
    }

    /// Returns the values of all its elements.
    pub fn values(&self) -> impl Iterator<Item = Value<'a>> + use<'a> {
        let ordinal = self.chunk.ordinal(self.number);
        let columns = self.chunk.columns(self.number).columns.iter();
        columns.map(move |column| column.get(ordinal))
    }
}

/// Sorts by the bits from `shift` on; equal ones keep their order.
fn radix_sort(keys: &mut Vec<u64>, shift: u32, bits: u32) {
    const DIGIT: u32 = 11;
    if bits == 0 {
        return;
    }
    let mut other = vec![0; keys.len()];
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
        std::mem::swap(keys, &mut other);
    }
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
            radix_sort(&mut keys, shift, bits);
            prop_assert_eq!(keys, expected);
        }
    }
}
