//! Wait states: which calls waited for which others, and how long the run would take on a network that needs no time.
//!
//! Threads gather the calls that communicate, slice by slice of the trace; one thread matches their messages and
//! collective operations in the trace's order (see [`engine`]), and finds which location's extra work made others wait (see
//! [`delays`]).

mod barriers;
mod clock_errors;
mod delays;
mod engine;
mod exchanges;
mod fences;
mod open_calls;
mod operations;
mod orphans;
mod phases;
mod protocols;
mod sampled;
mod sends;
mod synchronisation_events;
mod teams;
mod threads;

use std::sync::{Arc, Mutex};

use annals_format::{Definitions, OrderedChunk, ProcessId, Reference, RegionId, Role};
use annals_merger::{
    Analysis, CallAround, Close, Frame, MessageCounts, MessageEvents, MessageExtractor, Pass,
    Query, ReadSummary, Reader, Result, SliceLength, Window,
};
use rustc_hash::FxHashMap;
use serde::{Serialize, Serializer};

use self::engine::{Engine, PhaseEdge, Step, ThreadStep};
use self::orphans::Orphans;
pub use self::phases::PhaseTimes;
use self::protocols::{Known, Learned};
pub(crate) use self::synchronisation_events::WINDOW_SYNC;
use self::synchronisation_events::{FenceTypes, LockEvent, LockTypes, SampleTypes, SendEndTypes};
use self::teams::FenceKey;
use crate::call_paths::CallPaths;
use crate::losses::concerns;
use crate::mpi_functions::MpiFunctions;
use crate::region_kinds::{RegionKind, RegionKinds, ThreadConstruct};

/// Why a call waits. The formulas are those of the functions [`late_sender`](crate::late_sender),
/// [`late_receiver`](crate::late_receiver) and [`collective_waits`](crate::collective_waits); those of fences and barriers of
/// threads are that of a barrier, and one waits for a lock from the enter of the call to its release by the other thread.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum WaitPattern {
    /// A receive was entered before its send.
    LateSender,
    /// The part of a late sender during which the receiver could have received another message, and did so later. Part of
    /// [`WaitPattern::LateSender`], and no pattern of a [`WaitState`].
    WrongOrder,
    /// A send was entered before its receive, and could not end without it.
    LateReceiver,
    /// A barrier was entered before the last member entered it.
    Barrier,
    /// A barrier was left after the first member left it.
    BarrierCompletion,
    /// An operation in which all receive from all was entered before the last member that sends.
    AllToAll,
    /// An operation in which all receive from all was left after the first member left it.
    AllToAllCompletion,
    /// An operation in which all receive from the root was entered before the root.
    LateBroadcast,
    /// An operation in which the root receives from all was entered by the root before the first that sends.
    EarlyReduce,
    /// A prefix operation was entered before the last of the members before it.
    EarlyScan,
    /// A fence of a window was entered before the last rank entered it.
    Fence,
    /// A thread entered a barrier of its team before the last of the others.
    ThreadBarrier,
    /// A thread wanted a lock that another one had.
    Lock,
}

impl WaitPattern {
    /// Returns whether calls of MPI wait so.
    pub(crate) const fn is_of_mpi(self) -> bool {
        !matches!(self, Self::ThreadBarrier | Self::Lock)
    }

    /// Returns the words for it in sentences and tables: those of the manual.
    pub const fn words(self) -> &'static str {
        match self {
            Self::LateSender => "late sender",
            Self::WrongOrder => "wrong order",
            Self::LateReceiver => "late receiver",
            Self::Barrier => "wait at barrier",
            Self::BarrierCompletion => "barrier completion",
            Self::AllToAll => "wait at N x N",
            Self::AllToAllCompletion => "N x N completion",
            Self::LateBroadcast => "late broadcast",
            Self::EarlyReduce => "early reduce",
            Self::EarlyScan => "early scan",
            Self::Fence => "wait at fence",
            Self::ThreadBarrier => "wait at thread barrier",
            Self::Lock => "wait for lock",
        }
    }

    /// Returns its name in JSON and in tables of data.
    pub const fn name(self) -> &'static str {
        match self {
            Self::LateSender => "late-sender",
            Self::WrongOrder => "wrong-order",
            Self::LateReceiver => "late-receiver",
            Self::Barrier => "barrier",
            Self::BarrierCompletion => "barrier-completion",
            Self::AllToAll => "all-to-all",
            Self::AllToAllCompletion => "all-to-all-completion",
            Self::LateBroadcast => "late-broadcast",
            Self::EarlyReduce => "early-reduce",
            Self::EarlyScan => "early-scan",
            Self::Fence => "fence",
            Self::ThreadBarrier => "thread-barrier",
            Self::Lock => "lock",
        }
    }
}

impl Serialize for WaitPattern {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// A wait of one call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WaitState {
    /// Its pattern.
    pub pattern: WaitPattern,
    /// Number of the call's path.
    pub path: u32,
    /// Its region. `None` if that is not known.
    pub region: Option<RegionId>,
    /// Number of the location that waited, among those of the definitions.
    pub location: u32,
    /// Number of the location for which it waited. `None` if that is not known.
    pub cause: Option<u32>,
    /// Number of the location for which it may have waited instead: whether the send of the call waited for its receive is not
    /// known.
    pub or_cause: Option<u32>,
    /// The element `communicator` of the message or the operation, and what it refers to.
    pub communicator: Option<(Reference, u64)>,
    /// Trace time at which it began to wait, nanoseconds.
    pub from_ns: i64,
    /// How long it waited, nanoseconds.
    pub wait_ns: i64,
    /// Number that waits have in common that one message or one collective operation caused.
    pub operation: u64,
    /// Largest amount by which the wait may be longer or shorter because of losses and errors of clocks, nanoseconds.
    pub uncertain_ns: i64,
}

/// A part of a wait, and what made it necessary.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Delay<'a> {
    /// The wait.
    pub wait: &'a WaitState,
    /// How much of it, nanoseconds.
    pub cost_ns: i64,
    /// Number of the location whose extra work caused it.
    pub location: u32,
    /// Whether that location caused it directly, and not by making others wait that made this one wait.
    pub is_direct: bool,
    /// Whether it caused the wait by receiving its messages in the wrong order, and not by extra work.
    pub is_wrong_order: bool,
    /// Where the extra work was: numbers of call paths, and shares of the cost, nanoseconds. Empty if it is not known, or if
    /// the cause is not direct.
    pub extra: &'a [(u32, i64)],
}

/// Receives waits and their causes.
pub trait WaitObserver: Send {
    /// Receives a wait. [`WaitState::wait_ns`] is 0 if only losses make one possible.
    fn wait(&mut self, wait: &WaitState);

    /// Receives that for a part of the wait for a late sender another message had been sent to the receiver, and was
    /// received later. Called again if that part is longer than was reported: `more_ns` is by how much.
    fn wrong_order(&mut self, wait: &WaitState, more_ns: i64);

    /// Receives how much of such a part, nanoseconds, the order of the receives cost: all of it if the other message is of
    /// the same sender; otherwise as long as the receiver worked right after it had received the other message, because
    /// that work would have filled the wait.
    fn avoidable(&mut self, wait: &WaitState, cost_ns: i64);

    /// Receives that a location could go on from a trace time on, nanoseconds, because another one had done what it waited for;
    /// also outside of the query.
    fn release(&mut self, _location: u32, _cause: u32, _at_ns: i64) {}

    /// Receives the causes of a wait, after the wait. Their costs add up to the wait, unless a cause is not known.
    fn delay(&mut self, delay: &Delay<'_>);
}

/// Times of a location.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct LocationTimes {
    /// First and last event, nanoseconds. `None` without calls and messages.
    pub span_ns: Option<(i64, i64)>,
    /// Time in calls of MPI, nanoseconds.
    pub mpi_ns: i64,
    /// Time in which it was idle: the runtime of threads waited, or it was in a state other than running, nanoseconds.
    pub idle_ns: i64,
    /// Of a thread that works for a team that another one starts: its time in regions, nanoseconds. Outside of them it has
    /// no work. `None` for all others.
    pub in_regions_ns: Option<i64>,
    /// Time in which events were lost, nanoseconds: calls and waits may be hidden in it.
    pub hidden_ns: i64,
    /// By how much its time in the window would be shorter on a network that needs no time, nanoseconds.
    pub saved_ns: i64,
    /// Number of calls with messages or collective operations.
    pub calls: u64,
    /// Whether it is in a call of MPI at the end of the window: what it waits for is not known.
    pub is_unfinished: bool,
    /// Time outside of MPI between calls that tested and found nothing complete, nanoseconds. It counts as useful.
    pub polling_ns: i64,
}

/// Work of a location in a call path: the pieces between communicating calls.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub struct WorkSum {
    /// Number of pieces.
    pub pieces: u64,
    /// Their sum, nanoseconds.
    pub sum_ns: i64,
    /// The sum of their squares, nanoseconds squared.
    pub squares: f64,
}

impl WorkSum {
    fn add(&mut self, work_ns: i64) {
        self.pieces += 1;
        self.sum_ns += work_ns;
        self.squares += (work_ns as f64).powi(2);
    }

    /// Returns the standard deviation of the sum, nanoseconds, if the pieces are independent of each other.
    pub fn deviation_ns(&self) -> f64 {
        let mean = self.sum_ns as f64 / self.pieces.max(1) as f64;
        (self.squares - mean * self.sum_ns as f64).max(0.0).sqrt()
    }
}

/// The result of [`wait_states`].
#[derive(Clone, Debug)]
pub struct CommunicationTimes {
    /// Times by the number of the location.
    pub locations: Vec<LocationTimes>,
    /// Number of calls with messages or collective operations in the window, by number of the location and region.
    pub calls: FxHashMap<(u32, RegionId), u64>,
    /// Work outside of MPI, by number of the location and call path.
    pub work: FxHashMap<(u32, u32), WorkSum>,
    /// Phases in the order of their numbers.
    pub phases: Vec<PhaseTimes>,
    /// Number of phases that are not among them, because there are too many.
    pub phases_left_out: u64,
    /// The call paths that numbers refer to.
    pub paths: CallPaths,
    /// Counts of all sends and receives.
    pub messages: MessageCounts,
    /// What was read.
    pub summary: ReadSummary,
}

/// What all threads share.
struct Shared<'a> {
    definitions: &'a Definitions,
    kinds: RegionKinds,
    functions: Arc<MpiFunctions>,
    /// Whether there are regions of MPI. Without them, the innermost call around an event is the one that communicates.
    has_mpi: bool,
    extractor: Arc<MessageExtractor>,
    window: Window,
    /// Whether events of the trace may be lost.
    has_losses: bool,
    /// By region: whether its calls are phases.
    is_phase: Vec<bool>,
    /// Whether there are teams of threads.
    has_teams: bool,
    locks: LockTypes,
    fences: FenceTypes,
    send_ends: SendEndTypes,
    samples: SampleTypes,
    /// By location: its process.
    processes: Vec<ProcessId>,
}

impl<'a> Shared<'a> {
    /// Prepares a reading. `None` if the definitions are not those of a whole trace.
    fn of(reader: &'a Reader, query: &Query, phases: &[RegionId]) -> Result<Option<Self>> {
        let definitions = reader.definitions();
        let whole = reader.summary()?;
        let Some(extractor) = MessageExtractor::with_collectives(definitions, &whole) else {
            return Ok(None);
        };
        let kinds = RegionKinds::of(definitions);
        let locations = definitions.locations.values();
        let processes = locations.map(|location| location.process);
        let shared = Self {
            definitions,
            has_mpi: kinds.has(RegionKind::Mpi),
            has_teams: kinds.has_teams(),
            kinds,
            functions: Arc::new(MpiFunctions::of(definitions)),
            extractor: Arc::new(extractor),
            window: query.window(),
            has_losses: !whole.losses.is_empty(),
            is_phase: is_phase(phases),
            locks: LockTypes::of(definitions),
            fences: FenceTypes::of(definitions),
            send_ends: SendEndTypes::of(definitions),
            samples: SampleTypes::of(definitions),
            processes: processes.collect(),
        };
        Ok(Some(shared))
    }

    /// Returns whether threads are blocked in a region, until others have done something.
    fn blocks(&self, region: RegionId) -> bool {
        let construct = self.kinds.construct(region);
        matches!(
            construct,
            Some(ThreadConstruct::Barrier | ThreadConstruct::Lock)
        )
    }

    /// Returns whether one of the calls is a barrier of threads.
    fn is_in_barrier(&self, frames: &[Frame]) -> bool {
        let mut constructs = frames
            .iter()
            .map(|frame| self.kinds.construct(frame.region));
        self.has_teams && constructs.any(|construct| construct == Some(ThreadConstruct::Barrier))
    }

    fn is_phase(&self, region: RegionId) -> bool {
        self.is_phase.get(region.index()).copied() == Some(true)
    }
}

/// Returns whether threads are in a construct because they are of a team.
const fn is_of_team(construct: ThreadConstruct) -> bool {
    use ThreadConstruct as Construct;
    matches!(
        construct,
        Construct::Parallel | Construct::WorkSharing | Construct::Barrier | Construct::Task
    )
}

/// Returns the frame of a call that has just been entered.
const fn frame_of(region: RegionId, path: u32, entered_ns: i64) -> Frame {
    Frame {
        region,
        entered_ns,
        is_uncertain: false,
        is_outermost: true,
        tag: path,
    }
}

/// Returns a call by its frame and the number of calls around it.
const fn call_of(location: usize, depth: usize, frame: &Frame) -> CallAround {
    CallAround {
        location: location as u32,
        depth: depth as u32,
        region: frame.region,
        tag: frame.tag,
        entered_ns: frame.entered_ns,
        left_ns: None,
        is_uncertain: frame.is_uncertain,
    }
}

/// A communicating call that is open.
#[derive(Clone, Debug)]
struct OpenCall {
    call: CallAround,
    /// Numbers of its sends among the events of the slice.
    sends: Vec<usize>,
    /// Whether it has events, or may have had some in an earlier slice.
    has_events: bool,
}

/// Time in calls without events, and in which it did not work, nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Quick {
    all_ns: i64,
    /// The part of it in the window.
    inside_ns: i64,
    idle_ns: i64,
    /// Time in barriers of threads, or in which it waited for a lock, or could have.
    blocked_ns: i64,
    /// Time in tasks in a barrier.
    task_ns: i64,
}

/// What a slice knows of a location.
#[derive(Clone, Debug, Default)]
struct SliceLocation {
    open: Option<OpenCall>,
    /// Without regions of MPI: number of calls of earlier slices that are open.
    resumed: usize,
    /// Time in calls without events since the last step.
    quick: Quick,
    /// Work since the last step: call paths, and nanoseconds.
    work: Vec<(u32, i64)>,
    /// The last enter, leave or sample. `None` at the start of the slice.
    last_ns: Option<i64>,
    /// The work of samples since the last enter or leave.
    sampled_ns: i64,
    times: LocationTimes,
    /// When the last test was left that found nothing complete. `None` if another call has communicated since.
    tested_ns: Option<i64>,
    orphans: Orphans,
}

/// The communicating calls of a slice.
struct SliceState<'a, V> {
    shared: &'a Shared<'a>,
    paths: CallPaths,
    events: MessageEvents,
    steps: Vec<Step>,
    /// Work that steps refer to: call paths, and nanoseconds.
    work: Vec<(u32, i64)>,
    locations: Vec<SliceLocation>,
    /// Number of the last event of the chunk that was handed out.
    last_event: Option<usize>,
    /// Only the state of the first slice has it.
    engine: Option<Engine<'a, V>>,
}

impl<V: WaitObserver> SliceState<'_, V> {
    /// Returns whether a region is one whose calls may communicate.
    fn is_mpi(&self, region: RegionId) -> bool {
        self.shared.kinds.get(region) == RegionKind::Mpi
    }

    fn is_in_phase(&self, frames: &[Frame]) -> bool {
        let mut regions = frames.iter().map(|frame| frame.region);
        regions.any(|region| self.shared.is_phase(region))
    }

    /// Begins a communicating call.
    fn open(&mut self, location: usize, depth: usize, region: RegionId, path: u32, at_ns: i64) {
        let open = &mut self.locations[location].open;
        if open.is_some() {
            return;
        }
        let frame = frame_of(region, path, at_ns);
        *open = Some(OpenCall {
            call: call_of(location, depth, &frame),
            sends: Vec::new(),
            has_events: false,
        });
    }

    /// Returns the number of the first event after those that were handed out.
    fn next_event(&mut self) -> usize {
        match self.last_event {
            Some(last) => self.events.after(last),
            None => self.events.chunk_start(),
        }
    }

    /// Takes note of an enter or a leave.
    fn turn(&mut self, location: usize, time_ns: i64) {
        let of = &mut self.locations[location];
        of.orphans.turn(time_ns);
        of.last_ns = Some(time_ns);
        of.sampled_ns = 0;
        self.see(location, time_ns);
    }

    fn see(&mut self, location: usize, time_ns: i64) {
        let times = &mut self.locations[location].times;
        let (from_ns, _) = times.span_ns.unwrap_or((time_ns, time_ns));
        times.span_ns = Some((from_ns, time_ns));
    }

    /// Hands out work and time in calls without events before the next event.
    fn step_of_work(&mut self, location: usize, at: usize) {
        let of = &mut self.locations[location];
        if of.quick == Quick::default() && of.work.is_empty() {
            return;
        }
        let first = self.work.len();
        self.work.append(&mut of.work);
        self.steps.push(Step::Work {
            at,
            location: location as u32,
            quick: std::mem::take(&mut of.quick),
            work: (first, self.work.len()),
        });
    }

    /// Hands out the begin or the end of a phase.
    fn step_of_phase(&mut self, location: usize, time_ns: i64, edge: PhaseEdge) {
        let at = self.next_event();
        if self.locations[location].open.is_none() {
            self.step_of_work(location, at);
        }
        self.steps.push(Step::Phase {
            at,
            location: location as u32,
            time_ns,
            edge,
        });
    }

    /// Hands what there is to the engine, if this is the state of the first slice.
    fn flush(&mut self) {
        let Some(engine) = self.engine.as_mut() else {
            return;
        };
        // The first slice's paths keep their numbers.
        engine.paths.add(&self.paths);
        engine.run(&mut self.events, &self.steps, &self.work);
        self.events = MessageEvents::default();
        self.steps.clear();
        self.work.clear();
        self.last_event = None;
        for (number, location) in self.locations.iter_mut().enumerate() {
            engine.work(number, std::mem::take(&mut location.quick), &location.work);
            location.work.clear();
            let open = location.open.as_mut();
            open.into_iter().for_each(|open| open.sends.clear());
        }
    }
}

impl<V: WaitObserver> Analysis for SliceState<'_, V> {
    const PASS: Pass = Pass::OrderedCalls;
    const SLICES: SliceLength = SliceLength::Short;

    fn enter(&mut self, location: usize, frames: &[Frame], region: RegionId, at_ns: i64) -> u32 {
        let is_mpi = self.is_mpi(region);
        // Calls of MPI whose leaves are lost are not around this one.
        let is_around =
            |frame: &&Frame| !is_mpi || !frame.is_uncertain || !self.is_mpi(frame.region);
        let around = frames.iter().rfind(is_around);
        let around = around.map_or(CallPaths::OUTSIDE, |frame| frame.tag);
        let path = self.paths.child(around, region);
        self.turn(location, at_ns);
        if is_mpi {
            self.close_lost(location, frames, at_ns);
        }
        if self.shared.is_phase(region) && !self.is_in_phase(frames) {
            self.step_of_phase(location, at_ns, PhaseEdge::Begin);
        }
        if is_mpi {
            self.open(location, frames.len(), region, path, at_ns);
        }
        if let Some(construct) = self.shared.kinds.construct(region) {
            let frame = frame_of(region, path, at_ns);
            self.enter_construct(location, frames, &frame, construct);
        }
        path
    }

    fn resume(&mut self, location: usize, frames: &[Frame], region: RegionId, at_ns: i64) -> u32 {
        let around = frames.last().map_or(CallPaths::OUTSIDE, |frame| frame.tag);
        let path = self.paths.child(around, region);
        let construct = self.shared.kinds.construct(region);
        if frames.is_empty() && construct.is_some_and(is_of_team) {
            self.be_of_team(location);
        }
        if !self.shared.has_mpi {
            self.locations[location].resumed = frames.len() + 1;
        }
        if self.is_mpi(region) {
            self.open(location, frames.len(), region, path, at_ns);
            if let Some(open) = &mut self.locations[location].open {
                open.has_events = true;
            }
        }
        path
    }

    fn unmatched(&mut self, location: usize, region: RegionId, at_ns: i64) {
        let is_hidden = self.is_mpi(region) || self.shared.blocks(region);
        if is_hidden && self.shared.has_losses {
            self.locations[location].orphans.orphan();
        }
        self.locations[location].orphans.turn(at_ns);
    }

    fn spend(&mut self, location: usize, frames: &[Frame], from_ns: i64, to_ns: i64) {
        let Some(frame) = frames.last() else { return };
        let of = &mut self.locations[location];
        let is_idle = self.shared.kinds.get(frame.region) == RegionKind::Idle;
        if is_idle {
            of.times.idle_ns += self.shared.window.clip(from_ns, to_ns);
            of.quick.idle_ns += to_ns - from_ns;
        }
        let is_blocked = is_idle && self.shared.blocks(frame.region);
        if is_blocked {
            of.quick.blocked_ns += to_ns - from_ns;
        }
        if self.shared.has_teams {
            if let Some(in_regions_ns) = &mut of.times.in_regions_ns {
                *in_regions_ns += self.shared.window.clip(from_ns, to_ns);
            }
            if !is_idle && self.shared.is_in_barrier(frames) {
                of.quick.task_ns += to_ns - from_ns;
            }
        }
        let work_ns = to_ns - from_ns - std::mem::take(&mut of.sampled_ns);
        if of.open.is_none() && !is_blocked && work_ns > 0 {
            of.add_work(frame.tag, work_ns);
        }
    }

    fn close(
        &mut self,
        location: usize,
        around: &[Frame],
        frame: &Frame,
        left_ns: i64,
        how: Close,
    ) {
        self.turn(location, left_ns);
        if how == Close::Open {
            self.leave_unfinished(location, around.len(), frame, left_ns);
        }
        self.close_resumed(location, around.len(), frame, left_ns);
        self.close_call(location, around.len(), frame, left_ns);
        // A phase that has not ended at the end of the window has no efficiency yet.
        let has_ended = how != Close::Open;
        if has_ended && self.shared.is_phase(frame.region) && !self.is_in_phase(around) {
            let edge = PhaseEdge::End {
                region: frame.region,
                is_whole: how == Close::Left && !frame.is_uncertain,
            };
            self.step_of_phase(location, left_ns, edge);
        }
        let construct = self.shared.kinds.construct(frame.region);
        if construct == Some(ThreadConstruct::Barrier) && !self.shared.is_in_barrier(around) {
            let left = CallAround {
                left_ns: Some(left_ns),
                is_uncertain: frame.is_uncertain || how == Close::Open,
                ..call_of(location, around.len(), frame)
            };
            self.step_of_thread(location, ThreadStep::LeaveBarrier(left));
        }
    }

    fn ordered(&mut self, chunk: &OrderedChunk) {
        self.flush();
        self.last_event = None;
        let until_ns = self.shared.window.to_ns;
        self.shared
            .extractor
            .extract(chunk, until_ns, &mut self.events);
    }

    fn other(&mut self, location: usize, frames: &[Frame], chunk: &OrderedChunk, event: usize) {
        self.last_event = Some(event);
        self.see(location, chunk.time_ns(event));
        if let Some(lock) = self.shared.locks.event(chunk, event) {
            self.lock(location, frames, chunk.time_ns(event), lock);
            return;
        }
        if let Some((sample, ran_ns)) = self.shared.samples.sample(chunk, event) {
            self.sample(location, frames, sample, (chunk.time_ns(event), ran_ns));
            return;
        }
        if self.locations[location].open.is_none() {
            let event_type = chunk.columns(event).event_type;
            let is_message = self.shared.extractor.is_message(event_type);
            if is_message && self.shared.has_mpi && self.shared.has_losses {
                self.locations[location].orphans.orphan();
            }
            let Some(frame) = frames.last() else { return };
            if self.shared.has_mpi || !is_message {
                return;
            }
            let (depth, path) = (frames.len() - 1, frame.tag);
            self.open(location, depth, frame.region, path, frame.entered_ns);
        }
        if let Some(key) = self
            .shared
            .fences
            .fence(self.shared.definitions, chunk, event)
        {
            self.fence(location, frames, key);
            return;
        }
        let of = &mut self.locations[location];
        let Some(open) = &mut of.open else { return };
        let frame = frames.get(open.call.depth as usize);
        let call = CallAround {
            is_uncertain: frame.is_none_or(|frame| frame.is_uncertain),
            ..open.call
        };
        if let Some(request) = self.shared.send_ends.request(chunk, event) {
            let request = (self.shared.processes[location], request);
            self.end_send(location, call, request);
            return;
        }
        let of = &mut self.locations[location];
        let Some(open) = &mut of.open else { return };
        let Some(number) = self.events.set_call(event, call) else {
            return;
        };
        let had_events = std::mem::replace(&mut open.has_events, true);
        if self.events.is_send(number) {
            open.sends.push(number);
        }
        if !had_events {
            self.step_of_work(location, number);
        }
    }

    fn merge(&mut self, mut later: Self) {
        self.flush();
        let Some(engine) = self.engine.as_mut() else {
            return;
        };
        let numbers = engine.paths.add(&later.paths);
        let new = |path: u32| numbers.get(path as usize).copied().unwrap_or(path);
        later.events.map_call_tags(new);
        for call in later.steps.iter_mut().filter_map(Step::call_mut) {
            call.tag = new(call.tag);
        }
        let works = later.locations.iter_mut().flat_map(|of| &mut of.work);
        works
            .chain(&mut later.work)
            .for_each(|work| work.0 = new(work.0));
        engine.run(&mut later.events, &later.steps, &later.work);
        for (location, of) in later.locations.iter().enumerate() {
            engine.work(location, of.quick, &of.work);
        }
        for (times, later) in self.locations.iter_mut().zip(&later.locations) {
            times.orphans.merge(&later.orphans);
            let (times, later) = (&mut times.times, &later.times);
            times.mpi_ns += later.mpi_ns;
            times.idle_ns += later.idle_ns;
            times.polling_ns += later.polling_ns;
            times.is_unfinished |= later.is_unfinished;
            times.in_regions_ns = match (times.in_regions_ns, later.in_regions_ns) {
                (Some(one), Some(other)) => Some(one + other),
                (known, other) => known.or(other),
            };
            times.span_ns = match (times.span_ns, later.span_ns) {
                (Some((from_ns, _)), Some((_, to_ns))) => Some((from_ns, to_ns)),
                (known, other) => known.or(other),
            };
        }
    }
}

impl<V: WaitObserver> SliceState<'_, V> {
    /// Takes note that a location works for a team that another one may have started.
    fn be_of_team(&mut self, location: usize) {
        let times = &mut self.locations[location].times;
        times.in_regions_ns.get_or_insert(0);
    }

    /// Takes the enter of a construct of threads; the frames are those around it.
    fn enter_construct(
        &mut self,
        location: usize,
        frames: &[Frame],
        frame: &Frame,
        construct: ThreadConstruct,
    ) {
        if frames.is_empty() && is_of_team(construct) {
            self.be_of_team(location);
            let fork = ThreadStep::Fork {
                location: location as u32,
                time_ns: frame.entered_ns,
            };
            self.step_of_thread(location, fork);
        }
        if construct == ThreadConstruct::Barrier && !self.shared.is_in_barrier(frames) {
            let call = call_of(location, frames.len(), frame);
            self.step_of_thread(location, ThreadStep::EnterBarrier(call));
        }
    }

    /// Takes an event of a lock; the frames are those around it.
    fn lock(&mut self, location: usize, frames: &[Frame], at_ns: i64, event: LockEvent) {
        let LockEvent { is_acquire, lock } = event;
        let number = location as u32;
        if !is_acquire {
            self.work_to(location, frames, at_ns);
            let release = ThreadStep::Release {
                location: number,
                at_ns,
                lock,
            };
            self.step_of_thread(location, release);
            return;
        }
        let kinds = &self.shared.kinds;
        let construct = |frame: &Frame| kinds.construct(frame.region);
        let frame = frames.last();
        let frame = frame.filter(|frame| construct(frame) == Some(ThreadConstruct::Lock));
        if frame.is_none() && self.shared.has_losses {
            self.locations[location].orphans.orphan();
        }
        let call = frame.map(|frame| CallAround {
            left_ns: Some(at_ns),
            ..call_of(location, frames.len() - 1, frame)
        });
        let acquire = ThreadStep::Acquire {
            location: number,
            call,
            at_ns,
            lock,
        };
        self.step_of_thread(location, acquire);
    }

    /// Takes that the call that is open is one of a fence.
    fn fence(&mut self, location: usize, frames: &[Frame], key: FenceKey) {
        let Some(open) = &mut self.locations[location].open else {
            return;
        };
        let frame = frames.get(open.call.depth as usize);
        let call = CallAround {
            is_uncertain: frame.is_none_or(|frame| frame.is_uncertain),
            ..open.call
        };
        let had_events = std::mem::replace(&mut open.has_events, true);
        let at = self.next_event();
        if !had_events {
            self.step_of_work(location, at);
        }
        self.steps.push(Step::Fence { at, call, key });
    }

    /// Takes that the send with a request ends in the call that is open.
    fn end_send(&mut self, location: usize, call: CallAround, request: (ProcessId, u64)) {
        let at = self.next_event();
        let open = self.locations[location].open.as_mut();
        let had_events = open.is_none_or(|open| std::mem::replace(&mut open.has_events, true));
        if !had_events {
            self.step_of_work(location, at);
        }
        self.steps.push(Step::SendEnd { at, call, request });
    }

    /// Hands out what a thread does with others, after its work up to then.
    fn step_of_thread(&mut self, location: usize, step: ThreadStep) {
        let at = self.next_event();
        if self.locations[location].open.is_none() {
            self.step_of_work(location, at);
        }
        self.steps.push(Step::Thread { at, step });
    }

    /// Ends the call that is open, if its leave must be among what was lost, because another one is entered.
    fn close_lost(&mut self, location: usize, frames: &[Frame], at_ns: i64) {
        let Some(open) = &self.locations[location].open else {
            return;
        };
        let depth = open.call.depth as usize;
        if let Some(frame) = frames.get(depth).filter(|frame| frame.is_uncertain) {
            self.close_call(location, depth, frame, at_ns);
        }
    }

    /// Takes note that a call of MPI has not ended at the end of the window, if this is one: it may have waited for any part
    /// of its length. Ranks end MPI when they have nothing else to do.
    fn leave_unfinished(&mut self, location: usize, depth: usize, frame: &Frame, left_ns: i64) {
        let open = self.locations[location].open.as_ref();
        let is_mpi = open
            .is_some_and(|open| open.call.depth as usize == depth && self.is_mpi(open.call.region));
        if is_mpi && !self.shared.functions.get(frame.region).is_finalize {
            let of = &mut self.locations[location];
            of.times.is_unfinished = true;
            of.orphans.hide(Some(frame.entered_ns), left_ns);
        }
    }

    /// Without regions of MPI, ends a call of an earlier slice: it may have communicated there.
    fn close_resumed(&mut self, location: usize, depth: usize, frame: &Frame, left_ns: i64) {
        let of = &mut self.locations[location];
        if depth >= of.resumed {
            return;
        }
        of.resumed = depth;
        if of.open.is_some() {
            return;
        }
        let at = self.next_event();
        self.step_of_work(location, at);
        self.steps.push(Step::Leave {
            at,
            call: CallAround {
                left_ns: Some(left_ns),
                ..call_of(location, depth, frame)
            },
            is_uncertain: frame.is_uncertain,
            is_of_earlier: true,
        });
    }

    /// Ends a communicating call, if this is one.
    fn close_call(&mut self, location: usize, depth: usize, frame: &Frame, left_ns: i64) {
        let open = &mut self.locations[location].open;
        let depth = depth as u32;
        let Some(open) = open.take_if(|open| open.call.depth >= depth) else {
            return;
        };
        let of = &mut self.locations[location];
        let is_test = self.shared.functions.get(open.call.region).is_test;
        if let Some(tested_ns) = of.tested_ns.filter(|_| is_test) {
            of.times.polling_ns += self.shared.window.clip(tested_ns, open.call.entered_ns);
        }
        if is_test || open.has_events {
            of.tested_ns = (!open.has_events).then_some(left_ns);
        }
        if self.shared.kinds.get(open.call.region) == RegionKind::Mpi {
            of.times.mpi_ns += self.shared.window.clip(open.call.entered_ns, left_ns);
        }
        if !open.has_events {
            of.quick.all_ns += left_ns - open.call.entered_ns;
            of.quick.inside_ns += self.shared.window.clip(open.call.entered_ns, left_ns);
            return;
        }
        for send in &open.sends {
            self.events.set_left(*send, left_ns);
        }
        let at = self.next_event();
        self.steps.push(Step::Leave {
            at,
            call: CallAround {
                left_ns: Some(left_ns),
                ..open.call
            },
            is_uncertain: frame.is_uncertain,
            is_of_earlier: false,
        });
    }
}

/// Finds the waits of the calls in the query's window, from the trace's beginning on. The observer receives each that a
/// location of the query had. Of a wait that begins or ends outside of the window, the part inside counts.
///
/// Each call of one of the regions `phases`, outside of others of them, is a phase.
///
/// Whether large sends wait for their receives is learned from the messages. If with what the last ones show waits would be
/// other ones, all is read again. Each time `new_observer` makes the observer.
///
/// Returns the last observer as it is then; `None` if the definitions are not those of a whole trace.
///
/// # Errors
/// If the storage fails.
pub fn wait_states<V: WaitObserver>(
    reader: &Reader,
    query: &Query,
    phases: &[RegionId],
    new_observer: impl Fn() -> Result<V>,
) -> Result<Option<(V, CommunicationTimes)>> {
    let Some(shared) = Shared::of(reader, query, phases)? else {
        return Ok(None);
    };
    match read(&shared, reader, query, None, new_observer()?)? {
        Some((_, _, learned)) if learned.is_contradicted => {
            let again = read(&shared, reader, query, Some(learned.known), new_observer()?)?;
            Ok(again.map(|(observer, times, _)| (observer, times)))
        }
        found => Ok(found.map(|(observer, times, _)| (observer, times))),
    }
}

/// Finds the waits as [`wait_states`] does, for an observer that cannot be made again: what is learned of sends is learned in
/// a reading before.
///
/// # Errors
/// If the storage fails.
pub fn wait_states_once<V: WaitObserver>(
    reader: &Reader,
    query: &Query,
    phases: &[RegionId],
    observer: V,
) -> Result<Option<(V, CommunicationTimes)>> {
    let Some(shared) = Shared::of(reader, query, phases)? else {
        return Ok(None);
    };
    let first = read(&shared, reader, query, None, Unheard)?;
    let known = first.map(|(_, _, learned)| learned.known);
    let again = read(&shared, reader, query, known, observer)?;
    Ok(again.map(|(observer, times, _)| (observer, times)))
}

/// Hears nothing.
struct Unheard;

impl WaitObserver for Unheard {
    fn wait(&mut self, _: &WaitState) {}
    fn wrong_order(&mut self, _: &WaitState, _: i64) {}
    fn avoidable(&mut self, _: &WaitState, _: i64) {}
    fn delay(&mut self, _: &Delay<'_>) {}
}

/// Reads a trace with what was learned of sends in an earlier reading. Returns what was learned in this one.
fn read<V: WaitObserver>(
    shared: &Shared<'_>,
    reader: &Reader,
    query: &Query,
    learned: Option<Known>,
    observer: V,
) -> Result<Option<(V, CommunicationTimes, Learned)>> {
    let definitions = shared.definitions;
    let observer = Mutex::new(Some(observer));
    let take_observer = |slice| match observer.lock() {
        Ok(mut observer) if slice == 0 => observer.take(),
        _ => None,
    };
    let new = |slice| SliceState {
        shared,
        paths: CallPaths::default(),
        events: MessageEvents::default(),
        steps: Vec::new(),
        work: Vec::new(),
        locations: vec![SliceLocation::default(); definitions.locations.len()],
        last_event: None,
        engine: take_observer(slice).map(|observer| Engine::new(shared, query, learned, observer)),
    };
    let from_start = Query::new().within(Window {
        from_ns: i64::MIN,
        ..query.window()
    });
    let (mut state, summary) = reader.run(&from_start, new)?;
    state.flush();
    let mut locations: Vec<LocationTimes> = state.locations.iter().map(|of| of.times).collect();
    let Some(engine) = state.engine else {
        return Ok(None);
    };
    let hidden = state.locations.iter().map(|of| of.orphans.intervals());
    let hidden = hidden.collect();
    hide_losses(&mut locations, hidden, query, &summary, shared);
    let (observer, outcome) = engine.finish(&mut locations);
    let times = CommunicationTimes {
        locations,
        calls: outcome.calls,
        work: outcome.work,
        phases: outcome.phases,
        phases_left_out: outcome.phases_left_out,
        paths: outcome.paths,
        messages: outcome.messages,
        summary,
    };
    Ok(Some((observer, times, outcome.learned)))
}

fn is_phase(phases: &[RegionId]) -> Vec<bool> {
    let last = phases.iter().map(|region| region.index()).max();
    let mut is_phase = vec![false; last.map_or(0, |last| last + 1)];
    phases
        .iter()
        .for_each(|phase| is_phase[phase.index()] = true);
    is_phase
}

/// Sets the time of each location in which calls of MPI or their events may be lost: `hidden`, and that of losses.
fn hide_losses(
    locations: &mut [LocationTimes],
    mut hidden: Vec<Vec<(i64, i64)>>,
    query: &Query,
    summary: &ReadSummary,
    shared: &Shared<'_>,
) {
    let definitions = shared.definitions;
    let numbers: FxHashMap<_, usize> = definitions.locations.keys().copied().zip(0..).collect();
    for loss in &summary.losses {
        let is_wanted = |event_type| {
            let known = definitions.event_types.get(&event_type);
            let role = known.map(|event_type| event_type.role);
            shared.extractor.is_message(event_type)
                || matches!(role, Some(Role::Enter | Role::Leave))
        };
        let stream = definitions.streams.get(&loss.stream);
        let number = stream.and_then(|stream| numbers.get(&stream.location?));
        if let Some(number) = number.filter(|_| concerns(loss, query, is_wanted)) {
            hidden[*number].push((loss.from_ns, loss.to_ns));
        }
    }
    let spans = locations.iter().filter_map(|times| times.span_ns);
    let start_ns = spans.map(|span| span.0).min().unwrap_or(i64::MAX);
    for (times, hidden) in locations.iter_mut().zip(&mut hidden) {
        hidden.sort_unstable();
        let mut until_ns = start_ns;
        for (from_ns, to_ns) in hidden {
            times.hidden_ns += query.window().clip((*from_ns).max(until_ns), *to_ns);
            until_ns = until_ns.max(*to_ns);
        }
    }
}
