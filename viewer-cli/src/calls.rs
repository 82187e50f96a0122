//! Region calls out of enter and leave events: one pass that everything about regions is built on.
//!
//! Regions nest per location. A leave closes the innermost open call of its region, and the calls inside that
//! were left without our seeing it. In a window a pass starts with what was entered before it and stops
//! at its end; what is then open ends there, or at the location's last event when none is behind the window.

use std::collections::BTreeMap;

use annals_format::{
    Column, Definitions, ElementType, EventTypeId, LocationId, RegionId, Role, Snapshot, Step,
    StreamId, TraceChunk, TraceLoss,
};
use annals_merger::{Opened, Outcome, Reach, Window};
use rustc_hash::FxHashMap;

use crate::filter::Filter;

/// An event type that enters or leaves regions.
#[derive(Clone, Copy, Debug)]
struct Kind {
    is_enter: bool,
    /// Whether the recorder's rules about regions reach it.
    is_ruled: bool,
    /// Which element is the region.
    at: usize,
}

/// An open call.
#[derive(Clone, Copy, Debug)]
pub struct Frame {
    /// Which region.
    pub region: RegionId,
    /// When it was entered, trace time, nanoseconds.
    pub entered_ns: i64,
    /// A loss lies between enter and now: enters or leaves may be missing.
    pub is_uncertain: bool,
    /// The region is not open further out.
    pub is_outermost: bool,
    /// What the sink gave at the enter.
    pub tag: u32,
}

/// How a call ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Close {
    /// It was left.
    Left,
    /// It was never left, and ended with a region around it: `longjmp` does that.
    Unleft,
    /// It is open at the end of what is looked at.
    Open,
}

/// What takes calls in. Locations are numbered as [`Calls::locations`] lists them.
pub trait Sink {
    /// A region was entered, maybe before the window; the frames are those around it. Gives the call's tag.
    fn enter(&mut self, location: usize, frames: &[Frame], region: RegionId, time_ns: i64) -> u32;

    /// Time passed in the innermost of the frames.
    fn spend(&mut self, location: usize, frames: &[Frame], from_ns: i64, to_ns: i64) {
        let _ = (location, frames, from_ns, to_ns);
    }

    /// A call ended; the frames are those that were around it.
    fn close(&mut self, location: usize, frames: &[Frame], frame: &Frame, time_ns: i64, how: Close);

    /// A leave without an enter.
    fn unmatched(&mut self, location: usize, region: RegionId, time_ns: i64) {
        let _ = (location, region, time_ns);
    }

    /// Any other event of a location, at this index of its chunk; the frames are those it happened in. Called for
    /// what is before the window, too.
    fn other(&mut self, location: usize, frames: &[Frame], chunk: &TraceChunk, index: usize) {
        let _ = (location, frames, chunk, index);
    }

    /// An enter or leave that the recorder's rules can switch off.
    fn ruled(&mut self, location: usize, region: RegionId, time_ns: i64) {
        let _ = (location, region, time_ns);
    }
}

/// From this depth on, open calls are counted by region, so that a deep stack is not searched at every event.
const DEEP: usize = 64;

#[derive(Debug, Default)]
struct Stack {
    frames: Vec<Frame>,
    /// Of a deep stack, open calls by region; empty: the stack is not deep.
    open: FxHashMap<RegionId, u32>,
    last_ns: Option<i64>,
    /// It has events behind the window.
    goes_on: bool,
}

impl Stack {
    #[inline]
    fn is_open(&self, region: RegionId) -> bool {
        if self.open.is_empty() {
            let mut frames = self.frames.iter().rev();
            return frames.any(|frame| frame.region == region);
        }
        self.open.get(&region).is_some_and(|open| *open != 0)
    }

    #[inline]
    fn push(&mut self, frame: Frame) {
        self.frames.push(frame);
        let uncounted = match self.open.is_empty() {
            true if self.frames.len() < DEEP => return,
            true => self.frames.as_slice(),
            false => std::slice::from_ref(&frame),
        };
        for frame in uncounted {
            *self.open.entry(frame.region).or_default() += 1;
        }
    }

    #[inline]
    fn pop(&mut self) -> Option<Frame> {
        let frame = self.frames.pop()?;
        if let Some(open) = self.open.get_mut(&frame.region) {
            *open -= 1;
            // Not at once, lest a stack that goes up and down there is counted again and again.
            if self.frames.len() < DEEP / 2 {
                self.open.clear();
            }
        }
        Some(frame)
    }
}

/// Enters or leaves of one type in a chunk.
struct Moves {
    kind: Kind,
    /// Their regions, in order; [`NO_REGION`] where none is given.
    regions: std::vec::IntoIter<u64>,
}

/// Stands for a region that is not given.
const NO_REGION: u64 = u64::MAX;

impl Moves {
    fn of(kind: Kind, column: &Column) -> Self {
        let mut regions = Vec::with_capacity(column.len());
        let is_unsigned = matches!(column.element_type(), ElementType::U32 | ElementType::U64);
        match column.bits().filter(|_| is_unsigned) {
            Some(bits) => bits.extend_into(0..column.len(), &mut regions),
            None => regions.extend((0..column.len()).map(|ordinal| {
                let region = column.get(ordinal).as_integer();
                let region = region.and_then(|region| u64::try_from(region).ok());
                region.unwrap_or(NO_REGION)
            })),
        }
        Self {
            kind,
            regions: regions.into_iter(),
        }
    }
}

/// Something of every stream. Streams are few and their numbers small, unless a file is damaged.
#[derive(Clone, Debug, Default)]
pub struct ByStream<T> {
    near: Vec<Option<T>>,
    far: BTreeMap<StreamId, T>,
}

impl<T: Copy> ByStream<T> {
    const LARGEST: usize = 1 << 20;

    /// What a stream has.
    #[inline]
    pub fn get(&self, stream: StreamId) -> Option<T> {
        match self.near.get(stream.index()) {
            Some(found) => *found,
            None => self.far.get(&stream).copied(),
        }
    }
}

impl<T: Copy> FromIterator<(StreamId, T)> for ByStream<T> {
    fn from_iter<I: IntoIterator<Item = (StreamId, T)>>(each: I) -> Self {
        let (mut near, mut far) = (Vec::new(), BTreeMap::new());
        for (stream, value) in each {
            if stream.index() >= Self::LARGEST {
                far.insert(stream, value);
                continue;
            }
            let length = near.len().max(stream.index() + 1);
            near.resize(length, None);
            near[stream.index()] = Some(value);
        }
        Self { near, far }
    }
}

/// Follows the calls of all locations.
#[derive(Debug)]
pub struct Calls {
    kinds: FxHashMap<EventTypeId, Kind>,
    streams: ByStream<usize>,
    /// The same for all streams, whatever the filter: where gaps are.
    all_streams: ByStream<usize>,
    /// By location: whether the filter takes any of its streams.
    is_taken: Vec<bool>,
    locations: Vec<LocationId>,
    stacks: Vec<Stack>,
    window: Window,
    /// The filter takes some streams of a location and not the others: snapshots know all of them.
    is_partial: bool,
    /// Read from the start, whatever the window: for sinks that need all [other](Sink::other) events.
    pub from_start: bool,
}

impl Calls {
    /// No region is open yet.
    pub fn new(definitions: &Definitions, filter: &Filter, window: Window) -> Self {
        let types = definitions.event_types.values();
        let kinds = types.filter_map(|event_type| {
            let is_enter = match event_type.role {
                Role::Enter => true,
                Role::Leave => false,
                _ => return None,
            };
            let mut elements = event_type.elements.iter();
            let at = elements.position(|e| definitions.string(e.name) == "region")?;
            // The recorder asks its rules about regions for the event types that it defines itself, and
            // the layer for `tracing` asks for its own, one of each level.
            let own = if is_enter { "enter" } else { "leave" };
            let name = definitions.string(event_type.name);
            let of_layer = name.strip_prefix("tracing.");
            let of_layer = of_layer.and_then(|rest| rest.strip_prefix(own));
            let kind = Kind {
                is_enter,
                is_ruled: name == own || of_layer.is_some_and(|rest| rest.starts_with('.')),
                at,
            };
            Some((event_type.id, kind))
        });
        let locations: Vec<LocationId> = definitions.locations.keys().copied().collect();
        let places = definitions.streams.values().filter_map(|stream| {
            let number = locations.binary_search(&stream.location?).ok()?;
            Some((stream.id, number))
        });
        let places: Vec<(StreamId, usize)> = places.collect();
        let (mut of_all, mut of_taken) =
            (vec![0_u32; locations.len()], vec![0_u32; locations.len()]);
        for (stream, number) in &places {
            of_all[*number] += 1;
            of_taken[*number] += u32::from(filter.takes_stream(*stream));
        }
        let each = || of_taken.iter().zip(&of_all);
        let taken = places.iter().filter(|(id, _)| filter.takes_stream(*id));
        Self {
            kinds: kinds.collect(),
            is_partial: each().any(|(taken, all)| *taken != 0 && taken != all),
            is_taken: of_taken.iter().map(|taken| *taken != 0).collect(),
            streams: taken.copied().collect(),
            all_streams: places.into_iter().collect(),
            stacks: locations.iter().map(|_| Stack::default()).collect(),
            locations,
            window,
            from_start: false,
        }
    }

    /// The locations, by number.
    pub fn locations(&self) -> &[LocationId] {
        &self.locations
    }

    /// The calls in a window of an input. `look` gets every chunk that is read, behind the calls in it.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn read<S: Sink>(
        &mut self,
        opened: &Opened,
        sink: &mut S,
        mut look: impl FnMut(&TraceChunk, &mut S),
    ) -> anyhow::Result<Outcome> {
        let outcome = self.read_until(opened, sink, |chunk, sink| {
            look(&chunk, sink);
            Ok(())
        })?;
        Ok(outcome)
    }

    /// The same, until `look` has an error.
    ///
    /// # Errors
    /// Those of `look`; if the input cannot be read.
    pub fn read_until<S: Sink>(
        &mut self,
        opened: &Opened,
        sink: &mut S,
        mut look: impl FnMut(TraceChunk, &mut S) -> annals_merger::Result<()>,
    ) -> annals_merger::Result<Outcome> {
        let calls = std::cell::RefCell::new((self, sink));
        let (window, reach) = {
            let calls = calls.borrow();
            {
                let reach = Reach {
                    from_start: calls.0.is_partial || calls.0.from_start,
                    to_end: calls.0.is_partial,
                };
                (calls.0.window, reach)
            }
        };
        let begin = |open: &Snapshot| {
            let (calls, sink) = &mut *calls.borrow_mut();
            calls.begin(open, *sink);
        };
        let (outcome, end) = opened.read_regions(window, reach, begin, |chunk| {
            let (calls, sink) = &mut *calls.borrow_mut();
            calls.take(&chunk, *sink);
            look(chunk, *sink)
        })?;
        let (calls, sink) = calls.into_inner();
        calls.finish(end.as_ref(), sink);
        Ok(outcome)
    }

    /// Starts with these regions open.
    fn begin(&mut self, open: &Snapshot, sink: &mut impl Sink) {
        for state in &open.locations {
            let Ok(number) = self.locations.binary_search(&state.location) else {
                continue;
            };
            if !self.is_taken[number] {
                continue;
            }
            for step in &state.steps {
                let Step::Enter {
                    region,
                    entered_ns,
                    is_uncertain,
                } = step
                else {
                    continue;
                };
                self.push(number, *region, *entered_ns, *is_uncertain, sink);
            }
            self.stacks[number].last_ns = state.last_ns;
        }
    }

    fn push(
        &mut self,
        number: usize,
        region: RegionId,
        entered_ns: i64,
        is_uncertain: bool,
        sink: &mut impl Sink,
    ) {
        let stack = &mut self.stacks[number];
        let tag = sink.enter(number, &stack.frames, region, entered_ns);
        stack.push(Frame {
            region,
            entered_ns,
            is_uncertain,
            is_outermost: !stack.is_open(region),
            tag,
        });
    }

    /// Whether events of a type are enters or leaves that calls are made of.
    pub fn has_moves(&self, event_type: EventTypeId) -> bool {
        self.kinds.contains_key(&event_type)
    }

    /// Whether a stream's enters and leaves are looked at.
    pub fn follows(&self, stream: StreamId) -> bool {
        self.streams.get(stream).is_some()
    }

    /// Whether a loss may have been one of enters or leaves: (enters, leaves).
    pub fn role_of_loss(&self, loss: &TraceLoss) -> (bool, bool) {
        match loss.event_type {
            _ if loss.cause.is_suppressed() => (false, false),
            None => (true, true),
            Some(event_type) => match self.kinds.get(&event_type) {
                Some(kind) => (kind.is_enter, !kind.is_enter),
                None => (false, false),
            },
        }
    }

    /// The stacks of a location are not to be trusted across a loss of enters or leaves.
    fn note_gap(&mut self, loss: &TraceLoss) {
        let (enters, leaves) = self.role_of_loss(loss);
        if (enters || leaves)
            && let Some(number) = self.all_streams.get(loss.stream)
        {
            let frames = &mut self.stacks[number].frames;
            frames
                .iter_mut()
                .for_each(|frame| frame.is_uncertain = true);
        }
    }

    /// Takes the next chunk in.
    fn take(&mut self, chunk: &TraceChunk, sink: &mut impl Sink) {
        let of_types = chunk.types.iter().map(|columns| {
            let kind = self.kinds.get(&columns.event_type)?;
            Some(Moves::of(*kind, columns.columns.get(kind.at)?))
        });
        let mut of_types: Vec<Option<Moves>> = of_types.collect();
        let mut losses = chunk.losses.iter().peekable();
        for (index, type_index) in chunk.type_index.iter().enumerate() {
            let time_ns = chunk.times_ns[index];
            let is_behind = self.is_behind(time_ns);
            while !is_behind
                && let Some((_, loss)) = losses.next_if(|loss| loss.0 as usize <= index)
            {
                self.note_gap(loss);
            }
            let Some(moves) = &mut of_types[usize::from(*type_index)] else {
                if let Some(number) = self.streams.get(chunk.streams[index])
                    && !is_behind
                {
                    sink.other(number, &self.stacks[number].frames, chunk, index);
                }
                continue;
            };
            let (kind, region) = (moves.kind, moves.regions.next().unwrap_or(NO_REGION));
            let Some(number) = self.streams.get(chunk.streams[index]) else {
                continue;
            };
            if is_behind {
                self.stacks[number].goes_on = true;
                continue;
            }
            if let Ok(region) = u32::try_from(region) {
                self.event(number, RegionId::new(region), kind, time_ns, sink);
            }
        }
        let last_ns = chunk.times_ns.last().copied();
        if !last_ns.is_some_and(|last_ns| self.is_behind(last_ns)) {
            losses.for_each(|(_, loss)| self.note_gap(loss));
        }
    }

    /// Whether a time is behind the window.
    fn is_behind(&self, time_ns: i64) -> bool {
        time_ns >= self.window.to_ns && self.window.to_ns != i64::MAX
    }

    fn event(
        &mut self,
        number: usize,
        region: RegionId,
        kind: Kind,
        time_ns: i64,
        sink: &mut impl Sink,
    ) {
        self.pass(number, time_ns, sink);
        if kind.is_ruled {
            sink.ruled(number, region, time_ns);
        }
        if kind.is_enter {
            return self.push(number, region, time_ns, false, sink);
        }
        let stack = &mut self.stacks[number];
        if !stack.is_open(region) {
            return sink.unmatched(number, region, time_ns);
        }
        // Calls above it were left without our seeing it.
        while let Some(frame) = stack.pop() {
            let is_it = frame.region == region;
            let how = if is_it { Close::Left } else { Close::Unleft };
            sink.close(number, &stack.frames, &frame, time_ns, how);
            if is_it {
                break;
            }
        }
    }

    /// Time since the last event at the location belongs to the innermost region.
    fn pass(&mut self, number: usize, time_ns: i64, sink: &mut impl Sink) {
        let stack = &mut self.stacks[number];
        let since = stack.last_ns.replace(time_ns);
        if let Some(since_ns) = since.filter(|_| !stack.frames.is_empty()) {
            sink.spend(number, &stack.frames, since_ns, time_ns);
        }
    }

    /// Ends what is open. `end`: the last snapshot, when not all was read.
    fn finish(&mut self, end: Option<&Snapshot>, sink: &mut impl Sink) {
        for state in end.map_or(&[][..], |end| &end.locations) {
            if let (Ok(number), Some(last_ns)) =
                (self.locations.binary_search(&state.location), state.last_ns)
            {
                self.stacks[number].goes_on |= last_ns >= self.window.to_ns;
            }
        }
        for number in 0..self.stacks.len() {
            let stack = &self.stacks[number];
            let Some(last_ns) = stack.last_ns else {
                continue;
            };
            let end_ns = if stack.goes_on {
                self.window.to_ns
            } else {
                last_ns
            };
            self.pass(number, end_ns, sink);
            let stack = &mut self.stacks[number];
            while let Some(frame) = stack.pop() {
                sink.close(number, &stack.frames, &frame, end_ns, Close::Open);
            }
        }
    }
}
