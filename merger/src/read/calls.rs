//! Region calls in a window of an input: one pass that everything about regions is built on.
//!
//! [`crate::calls`] defines what a call is. In a window, a pass starts with the regions that were entered before it and
//! stops at its end. Calls that are then open end there, or with their location if that ends before.

use annals_format::names::element;
use std::cell::RefCell;
use std::ops::ControlFlow;
use std::sync::Arc;

use annals_format::{
    Definitions, EventTypeId, LocationId, OrderedChunk, RegionId, Role, Snapshot, StreamId,
    TraceChunk, TraceLoss,
};
use rustc_hash::FxHashMap;

use super::query::Query;
use super::{Reach, ReadSummary, Reader};
use crate::analysis::{Analysis, Close, Frame, Pass};
use crate::by_stream::ByStream;
use crate::calls::{CallStack, Ending, Moves};
use crate::error::Result;
use crate::window::Window;

/// An event type that enters or leaves regions.
#[derive(Clone, Copy, Debug)]
struct CallEventKind {
    is_enter: bool,
    /// Whether the recorder's rules about regions reach it.
    is_ruled: bool,
    /// Which element is the region.
    at: usize,
}

/// A call of a region: from its enter to its leave.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// Which region.
    pub region: RegionId,
    /// The region of the call around it. `None` if there is none.
    pub parent: Option<RegionId>,
    /// The location. Its name is among the definitions.
    pub location: LocationId,
    /// Trace time of the enter, nanoseconds.
    pub begin: i64,
    /// Trace time of the leave, nanoseconds. A call that was never left ends with the call around it; one that is still open, at
    /// the end of the window or with its location: see [`Ending`].
    pub end: i64,
    /// Calls around it.
    pub depth: usize,
    /// Whether it was left.
    pub how: Close,
    /// Whether events may be missing in it: a loss lies between its enter and its leave.
    pub is_uncertain: bool,
    definitions: &'a Definitions,
}

impl<'a> Call<'a> {
    /// Returns the name of the region.
    pub fn name(&self) -> String {
        self.definitions.region_name(self.region)
    }

    /// Returns the rank of its process.
    pub fn rank(&self) -> u32 {
        self.definitions.rank_of_location(self.location)
    }

    /// Returns the name of its location. `None` if the definition is lost.
    pub fn location_name(&self) -> Option<&'a str> {
        let location = self.definitions.locations.get(&self.location)?;
        Some(self.definitions.string(location.name))
    }

    /// Returns how long it took, nanoseconds.
    pub const fn duration(&self) -> i64 {
        self.end.saturating_sub(self.begin)
    }
}

/// Hands calls to a callback, until that stops.
pub(super) struct CallVisitor<'a, F> {
    definitions: &'a Definitions,
    query: Query,
    locations: Vec<LocationId>,
    visit: F,
    pub(super) has_stopped: bool,
}

impl<'a, F: FnMut(&Call<'a>) -> ControlFlow<()>> CallVisitor<'a, F> {
    pub(super) fn new(
        definitions: &'a Definitions,
        query: &Query,
        locations: &[LocationId],
        visit: F,
    ) -> Self {
        Self {
            definitions,
            query: query.clone(),
            locations: locations.to_vec(),
            visit,
            has_stopped: false,
        }
    }
}

impl<'a, F: FnMut(&Call<'a>) -> ControlFlow<()>> Analysis for CallVisitor<'a, F> {
    fn close(
        &mut self,
        location: usize,
        frames: &[Frame],
        frame: &Frame,
        time_ns: i64,
        how: Close,
    ) {
        let window = self.query.window();
        let is_wanted =
            self.query.takes_region(frame.region) && window.overlaps(frame.entered_ns, time_ns);
        if self.has_stopped || !is_wanted {
            return;
        }
        let call = Call {
            region: frame.region,
            parent: frames.last().map(|around| around.region),
            location: self.locations[location],
            begin: frame.entered_ns,
            end: time_ns,
            depth: frames.len(),
            how,
            is_uncertain: frame.is_uncertain,
            definitions: self.definitions,
        };
        self.has_stopped = (self.visit)(&call).is_break();
    }
}

/// A step at a location with several streams.
#[derive(Clone, Copy, Debug)]
enum Step {
    Move(RegionId, CallEventKind),
    Gap,
}

/// The streams and events to follow. All threads share this plan.
#[derive(Debug)]
struct Plan {
    kinds: FxHashMap<EventTypeId, CallEventKind>,
    streams: ByStream<usize>,
    /// The numbers of the locations of all streams, whatever the query: losses in any of them are gaps.
    all_streams: ByStream<usize>,
    /// By location: whether the query takes any of its streams.
    is_taken: Vec<bool>,
    /// By location: whether it has several streams.
    is_mixed: Vec<bool>,
    locations: Vec<LocationId>,
    /// By location: when it ended.
    ends: Vec<Ending>,
    window: Window,
    /// The end of what a slice or a filtered trace has; of another, the end of time.
    kept_to_ns: i64,
    /// Whether the query takes only some streams of a location: snapshots describe whole locations.
    is_partial: bool,
}

/// Follows the calls of all locations.
#[derive(Debug)]
pub struct Calls {
    plan: Arc<Plan>,
    stacks: Vec<CallStack>,
    /// By location: whether it has events after the window.
    goes_on: Vec<bool>,
    /// Read from the start, whatever the window: for analyses that need all [other](Analysis::other) events.
    pub from_start: bool,
}

impl Calls {
    /// Creates empty stacks for the locations of a query.
    pub fn new(definitions: &Definitions, query: &Query) -> Self {
        let types = definitions.event_types.values();
        let kinds = types.filter_map(|event_type| {
            let is_enter = match event_type.role {
                Role::Enter => true,
                Role::Leave => false,
                _ => return None,
            };
            let mut elements = event_type.elements.iter();
            let at = elements.position(|e| definitions.string(e.name) == element::REGION)?;
            // The recorder asks its rules about regions for the event types that it defines itself, and
            // the layer for `tracing` asks for its own, one of each level.
            let own = if is_enter { "enter" } else { "leave" };
            let name = definitions.string(event_type.name);
            let of_layer = name.strip_prefix("tracing.");
            let of_layer = of_layer.and_then(|rest| rest.strip_prefix(own));
            let kind = CallEventKind {
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
            of_taken[*number] += u32::from(query.takes_stream(*stream));
        }
        let each = || of_taken.iter().zip(&of_all);
        let taken = places.iter().filter(|(id, _)| query.takes_stream(*id));
        let plan = Plan {
            kinds: kinds.collect(),
            is_partial: each().any(|(taken, all)| *taken != 0 && taken != all),
            is_taken: of_taken.iter().map(|taken| *taken != 0).collect(),
            is_mixed: of_all.iter().map(|all| *all > 1).collect(),
            streams: taken.copied().collect(),
            all_streams: places.into_iter().collect(),
            ends: locations
                .iter()
                .map(|id| Ending::of(definitions, *id))
                .collect(),
            locations,
            window: query.window(),
            kept_to_ns: definitions.kept_to_ns(),
        };
        Self::of_plan(Arc::new(plan))
    }

    fn of_plan(plan: Arc<Plan>) -> Self {
        let count = plan.locations.len();
        Self {
            stacks: (0..count).map(|_| CallStack::default()).collect(),
            goes_on: vec![false; count],
            plan,
            from_start: false,
        }
    }

    /// Creates empty stacks for the same locations.
    pub(super) fn sibling(&self) -> Self {
        Self::of_plan(Arc::clone(&self.plan))
    }

    /// Returns what of the trace has to be read.
    pub(super) fn reach(&self) -> Reach {
        Reach {
            from_start: self.plan.is_partial || self.from_start,
            to_end: self.plan.is_partial,
        }
    }

    /// Returns the time window in which calls are wanted.
    pub(super) fn window(&self) -> Window {
        self.plan.window
    }

    /// Returns whether a part of the trace can begin with a snapshot.
    pub(super) fn can_be_cut(&self) -> bool {
        !self.plan.is_partial
    }

    /// Returns the locations, by number.
    pub fn locations(&self) -> &[LocationId] {
        &self.plan.locations
    }

    /// Reads the calls of the query's window into an analysis in the global order, whatever its [pass](Analysis::PASS), until
    /// `consume` returns an error. `consume` gets every chunk that is read, after the calls in it.
    ///
    /// # Errors
    /// Those of `consume`; if the storage fails.
    pub fn read<A: Analysis>(
        &mut self,
        reader: &Reader,
        analysis: &mut A,
        mut consume: impl FnMut(OrderedChunk, &mut A) -> Result<()>,
    ) -> Result<ReadSummary> {
        let add = |calls: &mut Self, chunk: OrderedChunk, analysis: &mut A| {
            calls.take(&chunk, analysis);
            consume(chunk, analysis)
        };
        self.follow(reader, analysis, |_| true, add)
    }

    /// Reads the calls of the query's window into an analysis, all of them into this one state. [`Reader::run`] does it with
    /// several threads.
    ///
    /// # Errors
    /// If the storage fails.
    pub fn run<A: Analysis>(&mut self, reader: &Reader, analysis: &mut A) -> Result<ReadSummary> {
        if !matches!(A::PASS, Pass::Calls) {
            return self.read(reader, analysis, |_, _| Ok(()));
        }
        let needed = self.sibling();
        let add = |calls: &mut Self, chunk: TraceChunk, analysis: &mut A| {
            calls.take_by_location(&chunk, analysis);
            Ok(())
        };
        self.follow(reader, analysis, |stream| needed.needs(stream), add)
    }

    /// Reads what the calls need of some streams, and passes each chunk to `add`.
    fn follow<A: Analysis, C: From<TraceChunk> + Send>(
        &mut self,
        reader: &Reader,
        analysis: &mut A,
        is_needed: impl Fn(StreamId) -> bool + Sync,
        mut add: impl FnMut(&mut Self, C, &mut A) -> Result<()>,
    ) -> Result<ReadSummary> {
        let (window, reach) = (self.window(), self.reach());
        let state = RefCell::new((self, analysis));
        let begin = |open: &Snapshot| {
            let (calls, analysis) = &mut *state.borrow_mut();
            calls.begin(open, true, *analysis);
        };
        let (outcome, end) = reader.read_regions(is_needed, window, reach, begin, |chunk| {
            let (calls, analysis) = &mut *state.borrow_mut();
            add(calls, chunk, analysis)
        })?;
        let (calls, analysis) = state.into_inner();
        calls.finish(end.as_ref(), analysis);
        Ok(outcome)
    }

    /// Starts with these regions open. `is_first`: no part before this one is read.
    pub(super) fn begin(&mut self, open: &Snapshot, is_first: bool, analysis: &mut impl Analysis) {
        for state in &open.locations {
            let Ok(number) = self.plan.locations.binary_search(&state.location) else {
                continue;
            };
            if !self.plan.is_taken[number] {
                continue;
            }
            let stack = &mut self.stacks[number];
            stack.begin(number, state, is_first, analysis);
        }
    }

    /// Returns whether events of a type are enters or leaves that calls are made of.
    pub fn has_moves(&self, event_type: EventTypeId) -> bool {
        self.plan.kinds.contains_key(&event_type)
    }

    /// Returns whether a loss may have been one of enters or leaves: (enters, leaves).
    pub fn role_of_loss(&self, loss: &TraceLoss) -> (bool, bool) {
        match loss.event_type {
            _ if loss.cause.is_suppressed() => (false, false),
            None => (true, true),
            Some(event_type) => match self.plan.kinds.get(&event_type) {
                Some(kind) => (kind.is_enter, !kind.is_enter),
                None => (false, false),
            },
        }
    }

    /// Notes a loss of enters or leaves, across which the stacks of a location are uncertain.
    fn note_gap(&mut self, loss: &TraceLoss) {
        let (enters, leaves) = self.role_of_loss(loss);
        if (enters || leaves)
            && let Some(number) = self.plan.all_streams.get(loss.stream)
        {
            self.stacks[number].note_gap();
        }
    }

    /// Takes the next chunk in.
    pub(super) fn take(&mut self, chunk: &OrderedChunk, analysis: &mut impl Analysis) {
        analysis.chunk(chunk.chunk());
        analysis.ordered(chunk);
        let plan = Arc::clone(&self.plan);
        let of_types = chunk.types().map(|columns| {
            let kind = plan.kinds.get(&columns.event_type)?;
            Some((*kind, Moves::of(columns.columns.get(kind.at)?)))
        });
        let mut of_types: Vec<Option<(CallEventKind, Moves)>> = of_types.collect();
        let mut losses = chunk.losses().peekable();
        for (event, time_ns) in chunk.times_ns().enumerate() {
            let is_after = self.is_after(time_ns);
            while !is_after && let Some((_, loss)) = losses.next_if(|loss| loss.0 <= event) {
                self.note_gap(loss);
            }
            let Some((kind, regions)) = &mut of_types[chunk.type_number(event)] else {
                if let Some(number) = plan.streams.get(chunk.stream(event))
                    && !is_after
                {
                    analysis.other(number, self.stacks[number].frames(), chunk, event);
                }
                continue;
            };
            let Some(number) = plan.streams.get(chunk.stream(event)) else {
                continue;
            };
            if is_after {
                self.goes_on[number] = true;
                continue;
            }
            if let Some(region) = regions.get(chunk.ordinal(event)) {
                self.event(number, region, *kind, time_ns, analysis);
            }
        }
        let last_ns = chunk.times_ns().last();
        if !last_ns.is_some_and(|last_ns| self.is_after(last_ns)) {
            losses.for_each(|(_, loss)| self.note_gap(loss));
        }
    }

    /// Takes the next chunk in, location by location.
    pub(super) fn take_by_location(&mut self, chunk: &TraceChunk, analysis: &mut impl Analysis) {
        analysis.chunk(chunk);
        let plan = Arc::clone(&self.plan);
        // Of locations with several streams: what happens when.
        let mut mixed: Vec<(usize, i64, Step)> = Vec::new();
        for group in &chunk.groups {
            let of_types = group.types.iter().map(|columns| {
                let kind = plan.kinds.get(&columns.event_type)?;
                Some((*kind, Moves::of(columns.columns.get(kind.at)?)))
            });
            let mut of_types: Vec<Option<(CallEventKind, Moves)>> = of_types.collect();
            for (stream, run) in group.runs() {
                let number = plan.streams.get(stream);
                let mut losses = chunk.losses_of(stream).iter().peekable();
                if number.is_none() && losses.peek().is_none() {
                    // Read only because its group has a stream that is needed.
                    for place in &group.type_index[run] {
                        if let Some((_, regions)) = &mut of_types[usize::from(*place)] {
                            regions.pass();
                        }
                    }
                    continue;
                }
                let events = group.type_index[run.clone()].iter();
                let events = events.zip(&group.times_ns[run]).zip(0_u32..);
                for ((place, time_ns), index) in events {
                    while let Some((_, loss)) = losses.next_if(|loss| loss.0 <= index) {
                        self.take_gap(loss, *time_ns, &mut mixed);
                    }
                    let Some((kind, regions)) = &mut of_types[usize::from(*place)] else {
                        continue;
                    };
                    let (region, kind) = (regions.step(), *kind);
                    let Some(number) = number else { continue };
                    if self.is_after(*time_ns) {
                        self.goes_on[number] = true;
                    } else if let Some(region) = region {
                        match plan.is_mixed[number] {
                            true => mixed.push((number, *time_ns, Step::Move(region, kind))),
                            false => self.event(number, region, kind, *time_ns, analysis),
                        }
                    }
                }
                losses.for_each(|(_, loss)| self.take_gap(loss, loss.to_ns, &mut mixed));
            }
        }
        let others = chunk.losses.iter().map(|(_, loss)| loss);
        let others = others.filter(|loss| !chunk.has_stream(loss.stream));
        others.for_each(|loss| self.take_gap(loss, loss.to_ns, &mut mixed));
        // Streams ascend: what they have at one time stays in their order.
        mixed.sort_by_key(|(number, time_ns, _)| (*number, *time_ns));
        for (number, time_ns, step) in mixed {
            match step {
                Step::Move(region, kind) => self.event(number, region, kind, time_ns, analysis),
                Step::Gap => self.stacks[number].note_gap(),
            }
        }
    }

    /// Adds a loss at a time.
    fn take_gap(&mut self, loss: &TraceLoss, time_ns: i64, mixed: &mut Vec<(usize, i64, Step)>) {
        let (enters, leaves) = self.role_of_loss(loss);
        if (!enters && !leaves) || self.is_after(loss.from_ns) {
            return;
        }
        match self.plan.all_streams.get(loss.stream) {
            Some(number) if self.plan.is_mixed[number] => mixed.push((number, time_ns, Step::Gap)),
            Some(number) => self.stacks[number].note_gap(),
            None => {}
        }
    }

    /// Returns whether the calls need what a stream has.
    pub(super) fn needs(&self, stream: StreamId) -> bool {
        self.plan.streams.get(stream).is_some()
    }

    /// Returns whether a time is after the window.
    fn is_after(&self, time_ns: i64) -> bool {
        time_ns >= self.plan.window.to_ns && self.plan.window.to_ns != i64::MAX
    }

    fn event(
        &mut self,
        number: usize,
        region: RegionId,
        kind: CallEventKind,
        time_ns: i64,
        analysis: &mut impl Analysis,
    ) {
        if kind.is_ruled {
            analysis.ruled(number, region, time_ns);
        }
        let stack = &mut self.stacks[number];
        if kind.is_enter {
            stack.enter(number, region, time_ns, analysis);
        } else {
            stack.leave(number, region, time_ns, analysis);
        }
    }

    /// Ends what is open. `end`: the last snapshot, when not all was read.
    pub(super) fn finish(&mut self, end: Option<&Snapshot>, analysis: &mut impl Analysis) {
        for state in end.map_or(&[][..], |end| &end.locations) {
            if let (Ok(number), Some(last_ns)) = (
                self.plan.locations.binary_search(&state.location),
                state.last_ns,
            ) {
                self.goes_on[number] |= last_ns >= self.plan.window.to_ns;
            }
        }
        let to_ns = self.plan.window.to_ns.min(self.plan.kept_to_ns);
        for (number, stack) in self.stacks.iter_mut().enumerate() {
            let end = self.plan.ends[number].within(to_ns, self.goes_on[number]);
            stack.end(number, end, analysis);
        }
    }
}
