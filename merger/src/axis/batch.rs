//! A decoded chunk on the axis: what a strip takes its events from.

use std::ops::Range;

use annals_format::{
    Chunk, Column, ElementType, EventTypeId, MapCursor, StreamGroup, TypeColumns, fetch_ahead,
};

/// Least events between two checkpoints.
const LEAST_STRIDE: usize = 64;

/// Times of events, no wider than they must be.
#[derive(Debug)]
enum Times {
    Close(CloseTimes),
    /// Nanoseconds after the least.
    Near(Vec<u32>),
    Far(Vec<i64>),
}

/// Times of events that follow each other closely.
#[derive(Debug)]
struct CloseTimes {
    /// The first time of each stretch.
    bases: Vec<i64>,
    /// Nanoseconds after the first time of the stretch.
    offsets: Vec<u16>,
}

impl CloseTimes {
    /// Events of a stretch.
    const STRETCH: usize = 64;

    /// Encodes ascending times. Returns `None` if they are too far from each other.
    fn of(times: &[i64]) -> Option<Self> {
        let is_close = |stretch: &[i64]| match stretch {
            [first, .., last] => last.abs_diff(*first) <= u16::MAX.into(),
            _ => true,
        };
        if !times.chunks(Self::STRETCH).all(is_close) {
            return None;
        }
        let stretches = times.chunks(Self::STRETCH);
        let offsets = stretches.flat_map(|s| s.iter().map(|time| time.wrapping_sub(s[0]) as u16));
        Some(Self {
            bases: times.iter().step_by(Self::STRETCH).copied().collect(),
            offsets: offsets.collect(),
        })
    }

    #[inline]
    fn at(&self, index: usize) -> i64 {
        self.bases[index / Self::STRETCH].wrapping_add(self.offsets[index].into())
    }

    #[inline]
    fn iter(&self, range: Range<usize>) -> impl Iterator<Item = i64> {
        let offsets = self.offsets[range.clone()].iter();
        let places = range.zip(offsets);
        places
            .map(|(index, offset)| self.bases[index / Self::STRETCH].wrapping_add((*offset).into()))
    }
}

/// For each event, its unwrapped tick minus the one that its clock's map computes for its time.
#[derive(Debug)]
enum Residuals {
    Small(Vec<i8>),
    Large(Vec<i64>),
}

/// For each event, which of its batch's types it has; no wider than it must be.
#[derive(Debug)]
enum TypeIndex {
    Few(Vec<u8>),
    Many(Vec<u16>),
}

impl TypeIndex {
    fn len(&self) -> usize {
        match self {
            Self::Few(places) => places.len(),
            Self::Many(places) => places.len(),
        }
    }

    #[inline]
    fn for_each(&self, range: Range<usize>, mut each: impl FnMut(usize)) {
        match self {
            Self::Few(places) => places[range].iter().for_each(|place| each((*place).into())),
            Self::Many(places) => places[range].iter().for_each(|place| each((*place).into())),
        }
    }
}

/// The events of one chunk of a stream, ascending by time; or those of a group of streams, stream after stream.
#[derive(Debug)]
pub(crate) struct Batch {
    least_ns: i64,
    times: Times,
    residuals: Residuals,
    /// For each event, the index of its type in `types`.
    type_index: TypeIndex,
    pub(crate) types: Vec<TypeColumns>,
    /// The event types of the trace, by index in `types`.
    pub(crate) event_types: Vec<EventTypeId>,
    /// Every `stride` events, the number of previous events of each type.
    checkpoints: Vec<u32>,
    stride: usize,
    /// Position in the stream of the chunk's first event.
    base_position: u64,
    /// Chunks that were sorted: for each event, its place in the chunk.
    places: Option<Vec<u32>>,
    /// By how much causality repair moved each event.
    shifts: Option<Vec<i64>>,
    /// Events of a group of streams of which some were sorted: positions in the streams.
    positions: Option<Vec<u64>>,
    /// Most elements of an event.
    widest: usize,
    /// Whether some elements are strings or bytes.
    has_text: bool,
}

impl Batch {
    /// Returns the bytes of a batch for each event, without the columns of its types: `span_ns` lies between the first
    /// and the last.
    pub(crate) const fn event_bytes(span_ns: u64, is_sorted: bool) -> u64 {
        // Two if they are close.
        let time = if span_ns <= u32::MAX as u64 { 4 } else { 8 };
        let place = if is_sorted { 4 } else { 0 };
        // Residuals and types' indexes are a byte each in nearly all chunks.
        time + 2 + place
    }

    /// Returns the bytes of a batch for its types, however few events they have.
    pub(crate) const fn type_bytes(types: usize) -> u64 {
        1024 + 512 * types as u64
    }

    /// Creates a batch of the events of a group of streams in a chunk of a trace; event types are numbered as in the
    /// trace to be made.
    pub(crate) fn of_group(group: StreamGroup, event_types: Vec<EventTypeId>) -> Self {
        let mut batch = Self {
            least_ns: 0,
            times: Times::Far(group.times_ns),
            residuals: Residuals::Large(group.tick_residuals),
            type_index: TypeIndex::Many(group.type_index),
            types: group.types,
            event_types,
            checkpoints: Vec::new(),
            stride: LEAST_STRIDE,
            base_position: 0,
            places: None,
            shifts: (!group.shifts_ns.is_empty()).then_some(group.shifts_ns),
            positions: (!group.positions.is_empty()).then_some(group.positions),
            widest: 0,
            has_text: false,
        };
        batch.pack();
        batch.pack_types();
        batch.set_checkpoints();
        batch
    }

    /// Creates a batch from a chunk's events with these times and residuals, both in the order of the chunk. For a
    /// sorted stream with only some of the chunk's events, `places` can contain their positions in the chunk.
    pub(crate) fn new(
        chunk: Chunk,
        event_types: Vec<EventTypeId>,
        base_position: u64,
        times_ns: Vec<i64>,
        residuals: Vec<i64>,
        is_sorted: bool,
        places: Option<Vec<u32>>,
    ) -> Self {
        let mut batch = Self {
            least_ns: 0,
            times: Times::Far(times_ns),
            residuals: Residuals::Large(residuals),
            type_index: TypeIndex::Many(chunk.type_index),
            types: chunk.types,
            event_types,
            checkpoints: Vec::new(),
            stride: LEAST_STRIDE,
            base_position,
            places: None,
            shifts: None,
            positions: None,
            widest: 0,
            has_text: false,
        };
        if is_sorted {
            batch.sort(places.as_deref());
        }
        batch.pack();
        batch.pack_types();
        batch.set_checkpoints();
        batch
    }

    /// Brings the events into the order of their times; equal ones stay as they are.
    fn sort(&mut self, places: Option<&[u32]>) {
        let (Times::Far(times), Residuals::Large(residuals), TypeIndex::Many(places_of)) =
            (&mut self.times, &mut self.residuals, &mut self.type_index)
        else {
            return;
        };
        let mut order: Vec<u32> = (0..times.len() as u32).collect();
        order.sort_by_key(|index| times[*index as usize]);
        let ordinals = annals_format::ordinals(places_of, self.types.len());
        *times = order.iter().map(|index| times[*index as usize]).collect();
        *residuals = order
            .iter()
            .map(|index| residuals[*index as usize])
            .collect();
        let mut of_type: Vec<Vec<u32>> = vec![Vec::new(); self.types.len()];
        let mut type_index = Vec::with_capacity(order.len());
        for index in &order {
            let place = places_of[*index as usize];
            of_type[usize::from(place)].push(ordinals[*index as usize]);
            type_index.push(place);
        }
        *places_of = type_index;
        for (columns, ordinals) in self.types.iter_mut().zip(&of_type) {
            for column in &mut columns.columns {
                *column = column.in_order(ordinals);
            }
        }
        if let Some(places) = places {
            order
                .iter_mut()
                .for_each(|index| *index = places[*index as usize]);
        }
        self.places = Some(order);
    }

    fn pack(&mut self) {
        if let Times::Far(times) = &self.times {
            let least = times.iter().min().copied().unwrap_or(0);
            let most = times.iter().max().copied().unwrap_or(0);
            self.least_ns = least;
            let is_near = most
                .checked_sub(least)
                .is_some_and(|span| span <= u32::MAX.into());
            let close = times.is_sorted().then(|| CloseTimes::of(times)).flatten();
            if let Some(times) = close {
                self.times = Times::Close(times);
            } else if is_near {
                let near = times.iter().map(|time| (time - least) as u32);
                self.times = Times::Near(near.collect());
            }
        }
        if let Residuals::Large(residuals) = &self.residuals {
            let is_small = |residual: &i64| i64::from(*residual as i8) == *residual;
            if residuals.iter().all(is_small) {
                let small = residuals.iter().map(|residual| *residual as i8);
                self.residuals = Residuals::Small(small.collect());
            }
        }
    }

    fn pack_types(&mut self) {
        let columns = self.types.iter().flat_map(|of_type| &of_type.columns);
        let mut element_types = columns.map(Column::element_type);
        self.has_text = element_types.any(ElementType::is_variable);
        let widths = self.types.iter().map(|of_type| of_type.columns.len());
        self.widest = widths.max().unwrap_or(0);
        if let TypeIndex::Many(places) = &self.type_index
            && self.types.len() <= 1 << 8
        {
            let few = places.iter().map(|place| *place as u8);
            self.type_index = TypeIndex::Few(few.collect());
        }
    }

    fn set_checkpoints(&mut self) {
        let types = self.types.len();
        // However many types there are, the table stays smaller than the events.
        self.stride = LEAST_STRIDE.max(types * 8);
        let mut counts = vec![0_u32; types];
        let stretches = self.len().div_ceil(self.stride);
        let mut checkpoints = Vec::with_capacity(types * stretches);
        for start in (0..self.len()).step_by(self.stride) {
            checkpoints.extend_from_slice(&counts);
            let end = (start + self.stride).min(self.len());
            self.type_index
                .for_each(start..end, |place| counts[place] += 1);
        }
        self.checkpoints = checkpoints;
    }

    /// Notes by how much events were moved, in the order of the chunk.
    pub(crate) fn set_shifts(&mut self, shifts: Vec<i64>) {
        self.shifts = Some(match &self.places {
            Some(places) => places.iter().map(|place| shifts[*place as usize]).collect(),
            None => shifts,
        });
    }

    /// Returns by how much an event was moved. `None` means that no event of the chunk was moved.
    #[inline]
    pub(crate) fn shift(&self, index: usize) -> Option<i64> {
        self.shifts.as_ref().map(|shifts| shifts[index])
    }

    /// Returns the number of events.
    pub(crate) fn len(&self) -> usize {
        self.type_index.len()
    }

    /// Has the processor fetch what it needs to know of the events from `index` on, but for their elements.
    #[inline]
    pub(crate) fn fetch_ahead(&self, index: usize) {
        self.fetch_times(index);
        match &self.type_index {
            TypeIndex::Few(places) => {
                fetch_ahead(places, index);
                fetch_ahead(places, index + 64);
            }
            TypeIndex::Many(places) => fetch_ahead(places, index),
        }
        match &self.residuals {
            Residuals::Small(residuals) => {
                fetch_ahead(residuals, index);
                fetch_ahead(residuals, index + 64);
            }
            Residuals::Large(residuals) => fetch_ahead(residuals, index),
        }
        fetch_ahead(&self.checkpoints, index / self.stride * self.types.len());
    }

    /// Returns the maximum number of elements of an event.
    pub(crate) const fn widest(&self) -> usize {
        self.widest
    }

    /// Returns whether some elements are strings or bytes.
    pub(crate) const fn has_text(&self) -> bool {
        self.has_text
    }

    /// Has the processor fetch the times from `index` on.
    #[inline]
    pub(crate) fn fetch_times(&self, index: usize) {
        match &self.times {
            Times::Close(times) => {
                fetch_ahead(&times.bases, index / CloseTimes::STRETCH);
                for line in 0..4 {
                    fetch_ahead(&times.offsets, index + 32 * line);
                }
            }
            Times::Near(times) => fetch_ahead(times, index),
            Times::Far(times) => fetch_ahead(times, index),
        }
    }

    #[inline]
    pub(crate) fn time_ns(&self, index: usize) -> i64 {
        match &self.times {
            Times::Close(times) => times.at(index),
            Times::Near(times) => self.least_ns + i64::from(times[index]),
            Times::Far(times) => times[index],
        }
    }

    #[inline]
    pub(crate) fn residual(&self, index: usize) -> i64 {
        match &self.residuals {
            Residuals::Small(residuals) => residuals[index].into(),
            Residuals::Large(residuals) => residuals[index],
        }
    }

    /// Returns the position in the stream of the chunk's first event.
    pub(crate) fn base_position(&self) -> u64 {
        self.base_position
    }

    /// Returns the position in the stream, for events of a stream that was sorted.
    pub(crate) fn position(&self, index: usize) -> Option<u64> {
        if let Some(positions) = &self.positions {
            return Some(positions[index]);
        }
        let places = self.places.as_ref()?;
        Some(self.base_position.saturating_add(places[index].into()))
    }

    /// Returns the first event of a range, of one stream, that is not before a time.
    pub(crate) fn first_from(&self, range: Range<usize>, time_ns: i64) -> usize {
        // Strips are short: near its start first.
        let (mut low, mut step) = (range.start, 16);
        while low + step <= range.end && self.time_ns(low + step - 1) < time_ns {
            low += step;
            step *= 2;
        }
        let mut high = (low + step).min(range.end);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.time_ns(middle) < time_ns {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// Writes to `ordinals`, for each type, the number of its events before the event at `index`.
    pub(crate) fn ordinals_at(&self, index: usize, ordinals: &mut [u32]) {
        let types = self.types.len();
        let stretch =
            (index / self.stride).min(self.checkpoints.len().saturating_sub(1) / types.max(1));
        match self.checkpoints.get(stretch * types..(stretch + 1) * types) {
            Some(checkpoint) => ordinals.copy_from_slice(checkpoint),
            None => ordinals.fill(0),
        }
        let stretch = stretch * self.stride..index;
        self.type_index
            .for_each(stretch, |place| ordinals[place] += 1);
    }

    /// Adds to `counts`, for each type, how many events of a range are of it.
    pub(crate) fn count_types(&self, range: Range<usize>, counts: &mut [u32]) {
        self.type_index.for_each(range, |place| counts[place] += 1);
    }

    /// Returns, for each event, the index of its type in `types`.
    pub(crate) fn type_index(&self) -> Vec<u16> {
        let mut places = Vec::with_capacity(self.len());
        let push = |place: usize| places.push(place as u16);
        self.type_index.for_each(0..self.len(), push);
        places
    }

    /// Appends the types of a range of events, by index of the type as `of_types` has them.
    pub(crate) fn put_types(&self, range: Range<usize>, of_types: &[u16], types: &mut Vec<u16>) {
        match &self.type_index {
            TypeIndex::Few(places) => {
                types.extend(
                    places[range]
                        .iter()
                        .map(|place| of_types[usize::from(*place)]),
                );
            }
            TypeIndex::Many(places) => {
                types.extend(
                    places[range]
                        .iter()
                        .map(|place| of_types[usize::from(*place)]),
                );
            }
        }
    }

    /// Appends the residuals of a range of events.
    pub(crate) fn put_residuals(&self, range: Range<usize>, residuals: &mut Vec<i64>) {
        match &self.residuals {
            Residuals::Small(own) => residuals.extend(own[range].iter().map(|r| i64::from(*r))),
            Residuals::Large(own) => residuals.extend_from_slice(&own[range]),
        }
    }

    /// Returns whether the chunk's own order was another, or that of some of its streams.
    pub(crate) fn is_sorted(&self) -> bool {
        self.places.is_some() || self.positions.is_some()
    }

    /// Appends the times of a range of events.
    pub(crate) fn put_times(&self, range: Range<usize>, times_ns: &mut Vec<i64>) {
        match &self.times {
            Times::Close(times) => times_ns.extend(times.iter(range)),
            Times::Near(times) => {
                let times = times[range].iter();
                times_ns.extend(times.map(|time| self.least_ns + i64::from(*time)));
            }
            Times::Far(times) => times_ns.extend_from_slice(&times[range]),
        }
    }

    /// Moves events that lie before `front_ns` up to it, and keeps all others ascending: what an ordered source
    /// promised. Returns how many were moved, and the largest move.
    pub(crate) fn clamp(
        &mut self,
        front_ns: i64,
        map: &mut MapCursor<'_>,
        max_ticks: u64,
    ) -> (u64, u64) {
        let (mut moved, mut farthest) = (0, 0);
        let mut front = front_ns;
        let mut times = Vec::with_capacity(self.len());
        let mut residuals = Vec::with_capacity(self.len());
        for index in 0..self.len() {
            let time = self.time_ns(index);
            let mut residual = self.residual(index);
            if time < front {
                moved += 1;
                farthest = front.abs_diff(time).max(farthest);
                let shift = self.shift(index).unwrap_or(0);
                let tick = map
                    .tick(time.saturating_sub(shift))
                    .saturating_add(residual.into());
                residual = map.residual(tick, front.saturating_sub(shift), max_ticks);
            } else {
                front = time;
            }
            times.push(front);
            residuals.push(residual);
        }
        self.times = Times::Far(times);
        self.residuals = Residuals::Large(residuals);
        self.pack();
        (moved, farthest)
    }

    /// Returns whether times ascend from `front_ns` on.
    pub(crate) fn ascends_from(&self, front_ns: i64) -> bool {
        let ascends = match &self.times {
            // Only ascending ones become that.
            Times::Close(_) => true,
            Times::Near(times) => times.is_sorted(),
            Times::Far(times) => times.is_sorted(),
        };
        ascends && (self.len() == 0 || self.time_ns(0) >= front_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use annals_format::{ClockId, ClockMap};
    use proptest::prelude::*;

    /// Returns a batch of events at these times, each of one of three types, with its number as its
    /// element.
    fn batch(times_ns: &[i64], types: &[u16], is_sorted: bool) -> Batch {
        let mut chunk = Chunk::default();
        for id in 0..3 {
            let columns = TypeColumns::new(EventTypeId::new(id), [ElementType::U64].into_iter());
            chunk.types.push(columns);
        }
        for (number, index) in types.iter().enumerate() {
            chunk.type_index.push(*index);
            let columns = &mut chunk.types[usize::from(*index)];
            columns.count += 1;
            columns.columns[0].push_bits(number as u64);
        }
        let event_types = (0..3).map(EventTypeId::new).collect();
        let residuals = (0..times_ns.len() as i64).collect();
        Batch::new(
            chunk,
            event_types,
            100,
            times_ns.to_vec(),
            residuals,
            is_sorted,
            None,
        )
    }

    fn number(batch: &Batch, index: usize) -> u64 {
        let mut ordinals = [0; 3];
        batch.ordinals_at(index, &mut ordinals);
        let place = usize::from(batch.type_index()[index]);
        let column: &Column = &batch.types[place].columns[0];
        column.bits().unwrap().get(ordinals[place] as usize)
    }

    fn events() -> impl Strategy<Value = (Vec<i64>, Vec<u16>)> {
        let time = prop_oneof![4 => 0..5000_i64, 1 => any::<i64>()];
        prop::collection::vec((time, 0..3_u16), 1..900)
            .prop_map(|events| events.into_iter().unzip())
    }

    proptest! {
        #[test]
        fn a_sorted_batch_has_all_events_in_the_order_of_their_times((times, types) in events()) {
            let batch = batch(&times, &types, true);
            let mut expected: Vec<usize> = (0..times.len()).collect();
            expected.sort_by_key(|number| times[*number]);
            for (index, from) in expected.into_iter().enumerate() {
                prop_assert_eq!(number(&batch, index), from as u64);
                prop_assert_eq!(batch.time_ns(index), times[from]);
                prop_assert_eq!(batch.residual(index), from as i64);
                prop_assert_eq!(batch.position(index), Some(100 + from as u64));
            }
        }

        #[test]
        fn the_first_event_of_a_time_is_found((mut times, types) in events(), from in 0..900_usize, time: i64) {
            times.sort_unstable();
            let batch = batch(&times, &types, false);
            let from = from.min(times.len());
            for time in [time, time % 5000] {
                let expected = from.max(times.partition_point(|t| *t < time));
                prop_assert_eq!(batch.first_from(from..times.len(), time), expected);
            }
        }

        #[test]
        fn clamped_events_ascend_and_keep_their_ticks(
            (times, types) in events(), front in 0..5000_i64,
        ) {
            let times: Vec<i64> = times.iter().map(|time| time % 1_000_000).collect();
            let mut batch = batch(&times, &types, false);
            let map = ClockMap { clock: ClockId::new(0), error_ns: 0, knots: [(0, 0), (3, 1)].into() };
            let ticks = |batch: &Batch| -> Vec<i128> {
                let mut map = MapCursor::new(&map);
                (0..batch.len()).map(|i| map.tick(batch.time_ns(i)) + i128::from(batch.residual(i))).collect()
            };
            let before = ticks(&batch);
            let (moved, _) = batch.clamp(front, &mut MapCursor::new(&map), u64::MAX);
            prop_assert!(batch.ascends_from(front));
            prop_assert_eq!(ticks(&batch), before);
            let mut highest = front;
            let behind = times.iter().filter(|time| {
                let is_behind = **time < highest;
                highest = highest.max(**time);
                is_behind
            });
            prop_assert_eq!(moved, behind.count() as u64);
        }
    }
}
