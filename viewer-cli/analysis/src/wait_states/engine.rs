//! The waits of calls, from the calls and the events of messages in the trace's order.
//!
//! With the waits, it replays the run on a network that needs no time: a call that communicates ends when it was entered, or
//! when what it waited for was entered, whichever is later; the time between calls stays.

use std::collections::VecDeque;
use std::sync::Arc;

use annals_format::{ProcessId, RegionId, StreamId};
use annals_merger::{
    CallAround, CollectiveEnd, Message, MessageCounts, MessageEvents, MessagePairs, Query,
    WholeCollective, Window,
};
use rustc_hash::FxHashMap;

use super::clock_errors::{ClockErrors, wait_error};
use super::delays::{Delays, Waiting};
use super::open_calls::{OpenCall, Received, Receiver};
use super::phases::{Passed, PhaseTimes, Phases};
use super::protocols::{Known, Learned, Protocols};
use super::sends::{EndedCall, Matched, ReceiveBegin, Sends};
use super::teams::{FenceKey, Fences, Threads};
use super::{Delay, LocationTimes, Quick, Shared, WaitObserver, WaitPattern, WaitState, WorkSum};
use crate::call_paths::CallPaths;
use crate::mpi_functions::MpiFunctions;
use crate::patterns::{late_sender, wrong_order};

/// Number of late senders of a location of which it is checked whether an earlier message is received later.
const RECENT: usize = 64;

/// What happens to a location, before the event of the slice with number `at`.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    /// It has worked, a range of the slice's work, and was in calls without events.
    Work {
        at: usize,
        location: u32,
        quick: Quick,
        work: (usize, usize),
    },
    /// It left a call.
    Leave {
        at: usize,
        call: CallAround,
        is_uncertain: bool,
        /// Whether the call is of an earlier slice, in which it may not have communicated.
        is_of_earlier: bool,
    },
    /// A phase began or ended.
    Phase {
        at: usize,
        location: u32,
        time_ns: i64,
        edge: PhaseEdge,
    },
    /// A call is one of a fence of a window.
    Fence {
        at: usize,
        call: CallAround,
        key: FenceKey,
    },
    /// Something of a thread and the others of its process.
    Thread { at: usize, step: ThreadStep },
    /// The send with a request has ended in a call.
    SendEnd {
        at: usize,
        call: CallAround,
        request: (ProcessId, u64),
    },
}

/// What a thread does with others of its process.
#[derive(Clone, Copy, Debug)]
pub(super) enum ThreadStep {
    /// It begins what it does for a team.
    Fork {
        location: u32,
        time_ns: i64,
    },
    EnterBarrier(CallAround),
    LeaveBarrier(CallAround),
    Acquire {
        location: u32,
        call: Option<CallAround>,
        at_ns: i64,
        lock: u64,
    },
    Release {
        location: u32,
        at_ns: i64,
        lock: u64,
    },
}

impl ThreadStep {
    /// The call that it is part of.
    pub(super) const fn call_mut(&mut self) -> Option<&mut CallAround> {
        match self {
            Self::EnterBarrier(call) | Self::LeaveBarrier(call) => Some(call),
            Self::Acquire { call, .. } => call.as_mut(),
            Self::Fork { .. } | Self::Release { .. } => None,
        }
    }
}

/// The begin or the end of a phase.
#[derive(Clone, Copy, Debug)]
pub(super) enum PhaseEdge {
    Begin,
    End {
        region: RegionId,
        /// Whether nothing of it may be lost.
        is_whole: bool,
    },
}

impl Step {
    /// The call that it is part of.
    pub(super) const fn call_mut(&mut self) -> Option<&mut CallAround> {
        match self {
            Self::Leave { call, .. } | Self::Fence { call, .. } | Self::SendEnd { call, .. } => {
                Some(call)
            }
            Self::Thread { step, .. } => step.call_mut(),
            Self::Work { .. } | Self::Phase { .. } => None,
        }
    }

    const fn at(&self) -> usize {
        match *self {
            Self::Work { at, .. }
            | Self::Leave { at, .. }
            | Self::Phase { at, .. }
            | Self::Fence { at, .. }
            | Self::SendEnd { at, .. }
            | Self::Thread { at, .. } => at,
        }
    }
}

/// A late sender, until it is known whether an earlier message was received later.
#[derive(Clone, Debug)]
struct RecentWait {
    wait: WaitState,
    /// The senders of other messages that its call received: of these it could not have received the next ones before.
    others: Vec<u32>,
    send_entered_ns: i64,
    left_ns: i64,
    wrong_order_ns: i64,
}

#[derive(Debug, Default)]
struct Location {
    /// By how much it would be earlier on an ideal network.
    saved_ns: i64,
    /// The part of that in the window.
    saved_inside_ns: i64,
    /// Time in MPI, and idle time.
    not_useful_ns: i64,
    /// Without regions of MPI: the time in the window in calls that communicate.
    in_calls_ns: i64,
    open: Option<OpenCall>,
    recent: VecDeque<RecentWait>,
    /// Waits during which a message was there that the last call received, how long it was there, and whether it was of the
    /// sender for which it waited.
    passed_over: Vec<(WaitState, i64, bool)>,
    /// When the last communicating call was left. `None` before the first.
    left_ns: Option<i64>,
    /// Work and time in calls without events since then, nanoseconds.
    known_ns: i64,
    /// Time in tasks in a barrier since that was entered, nanoseconds.
    task_ns: i64,
    calls: u64,
}

/// A collective operation in which at least one process has ended.
#[derive(Debug, Default)]
pub(super) struct Operation {
    /// Leaves of the calls in which its processes ended.
    pub(super) left_ns: FxHashMap<ProcessId, i64>,
    /// Those of them that may have left at another time.
    pub(super) uncertain: Vec<ProcessId>,
    pub(super) whole: Option<WholeCollective>,
}

/// Matches messages and collective operations, and finds the waits.
pub(super) struct Engine<'a, V> {
    pub(super) paths: CallPaths,
    pairs: MessagePairs,
    pub(super) functions: Arc<MpiFunctions>,
    /// By stream: number of the location. `None` if it has none.
    location_of: Vec<Option<u32>>,
    locations: Vec<Location>,
    pub(super) operations: FxHashMap<u64, Operation>,
    /// Number of calls in the window, by location and region.
    calls: FxHashMap<(u32, RegionId), u64>,
    /// Work, by location and call path, nanoseconds.
    work: FxHashMap<(u32, u32), WorkSum>,
    /// Messages that were matched and not processed yet.
    matched: Vec<Message>,
    pub(super) sends: Sends,
    pub(super) protocols: Protocols,
    has_losses: bool,
    pub(super) delays: Delays,
    pub(super) clock_errors: ClockErrors,
    phases: Phases,
    pub(super) threads: Threads,
    pub(super) fences: Fences,
    /// Number of messages and operations that made others wait.
    operations_seen: u64,
    /// Whether each message and collective operation should have a call around it.
    pub(super) has_calls: bool,
    pub(super) waits: Waits<'a, V>,
}

/// What an engine knows at the end, but for the waits.
pub(super) struct Outcome {
    pub(super) work: FxHashMap<(u32, u32), WorkSum>,
    pub(super) calls: FxHashMap<(u32, RegionId), u64>,
    pub(super) paths: CallPaths,
    pub(super) messages: MessageCounts,
    pub(super) phases: Vec<PhaseTimes>,
    pub(super) phases_left_out: u64,
    pub(super) learned: Learned,
}

/// Where waits go.
pub(super) struct Waits<'a, V> {
    query: &'a Query,
    window: Window,
    /// By location: whether the query takes it.
    is_taken: Vec<bool>,
    pub(super) observer: V,
}

impl<V: WaitObserver> Waits<'_, V> {
    /// Hands out a wait, if the query takes it, with its part in the window. Returns what was handed out.
    pub(super) fn add(&mut self, wait: &WaitState) -> Option<WaitState> {
        let is_wanted = self.is_taken[wait.location as usize]
            && wait
                .region
                .is_none_or(|region| self.query.takes_region(region));
        let to_ns = wait.from_ns.saturating_add(wait.wait_ns);
        let inside_ns = self.window.clip(wait.from_ns, to_ns);
        let is_inside = inside_ns > 0 || (wait.wait_ns == 0 && self.window.contains(wait.from_ns));
        let is_something = inside_ns > 0 || wait.uncertain_ns > 0;
        if !is_wanted || !is_inside || !is_something {
            return None;
        }
        let wait = WaitState {
            from_ns: wait.from_ns.max(self.window.from_ns),
            wait_ns: inside_ns,
            ..*wait
        };
        self.observer.wait(&wait);
        Some(wait)
    }
}

impl<'a, V: WaitObserver> Engine<'a, V> {
    pub(super) fn new(
        shared: &Shared<'a>,
        query: &'a Query,
        learned: Option<Known>,
        observer: V,
    ) -> Self {
        let definitions = shared.definitions;
        let mut pairs = MessagePairs::new(shared.extractor.clone());
        pairs.keep_collectives();
        let number_of: FxHashMap<_, u32> = definitions.locations.keys().copied().zip(0..).collect();
        let mut location_of = Vec::new();
        let mut is_taken = vec![false; definitions.locations.len()];
        for (id, stream) in &definitions.streams {
            let number = stream.location.and_then(|id| number_of.get(&id).copied());
            location_of.resize(id.index(), None);
            location_of.push(number);
            if let Some(number) = number.filter(|_| query.takes_stream(*id)) {
                is_taken[number as usize] = true;
            }
        }
        let mut locations = Vec::new();
        locations.resize_with(definitions.locations.len(), Location::default);
        Self {
            paths: CallPaths::default(),
            pairs,
            functions: Arc::clone(&shared.functions),
            location_of,
            locations,
            operations: FxHashMap::default(),
            calls: FxHashMap::default(),
            work: FxHashMap::default(),
            matched: Vec::new(),
            sends: Sends::default(),
            protocols: Protocols::new(definitions, learned),
            has_losses: shared.has_losses,
            delays: Delays::new(definitions.locations.len()),
            clock_errors: ClockErrors::new(definitions),
            phases: Phases::new(definitions.locations.len()),
            threads: Threads::new(definitions),
            fences: Fences::default(),
            operations_seen: 0,
            has_calls: shared.has_mpi,
            waits: Waits {
                query,
                window: query.window(),
                is_taken,
                observer,
            },
        }
    }

    pub(super) fn location_of(&self, stream: StreamId) -> Option<u32> {
        self.location_of.get(stream.index()).copied().flatten()
    }

    /// Takes work by call path, and time in calls without events: on an ideal network, these need none.
    pub(super) fn work(&mut self, location: usize, quick: Quick, work: &[(u32, i64)]) {
        let of = &mut self.locations[location];
        of.saved_ns += quick.all_ns;
        of.saved_inside_ns += quick.inside_ns;
        of.not_useful_ns += quick.all_ns + quick.idle_ns;
        of.known_ns += quick.all_ns + quick.blocked_ns;
        of.task_ns += quick.task_ns;
        let mut end_ns = of.left_ns.unwrap_or(0) + of.known_ns;
        for (path, work_ns) in work {
            of.known_ns += work_ns;
            end_ns += work_ns;
            self.delays.work(location as u32, end_ns, *path, *work_ns);
            if end_ns >= self.waits.window.from_ns {
                self.work
                    .entry((location as u32, *path))
                    .or_default()
                    .add(*work_ns);
            }
        }
    }

    /// Takes the events of one or several chunks, and the steps between them.
    pub(super) fn run(&mut self, events: &mut MessageEvents, steps: &[Step], work: &[(u32, i64)]) {
        let mut fed = 0;
        for step in steps {
            self.feed(events, fed, step.at());
            fed = step.at();
            match *step {
                Step::Work {
                    location,
                    quick,
                    work: (first, end),
                    ..
                } => self.work(location as usize, quick, &work[first..end]),
                Step::Leave {
                    call,
                    is_uncertain,
                    is_of_earlier,
                    ..
                } => {
                    if !is_of_earlier || self.is_open(&call) {
                        self.leave(&call, is_uncertain);
                    }
                }
                Step::Fence { call, key, .. } => self.enter_fence(&call, key),
                Step::SendEnd { call, request, .. } => {
                    self.open(&call);
                    let of = &mut self.locations[call.location as usize].open;
                    if let Some(open) = of {
                        self.sends.end_request(request, open);
                    }
                }
                Step::Thread { step, .. } => self.thread(step),
                Step::Phase {
                    location,
                    time_ns,
                    edge,
                    ..
                } => {
                    let passed = self.passed(location, time_ns);
                    match edge {
                        PhaseEdge::Begin => self.phases.begin(location, passed),
                        PhaseEdge::End { region, is_whole } => {
                            let window = self.waits.window;
                            self.phases.end(location, region, passed, is_whole, window);
                        }
                    }
                }
            }
        }
        self.feed(events, fed, events.len());
    }

    /// Takes note of the fence that a call is part of.
    pub(super) fn set_fence(&mut self, call: &CallAround, key: FenceKey) {
        self.open(call).fence = Some(key);
    }

    fn is_open(&self, call: &CallAround) -> bool {
        let open = &self.locations[call.location as usize].open;
        open.as_ref().is_some_and(|open| open.is(call))
    }

    fn thread(&mut self, step: ThreadStep) {
        match step {
            ThreadStep::Fork { location, time_ns } => self.fork(location, time_ns),
            ThreadStep::EnterBarrier(call) => self.enter_barrier(&call),
            ThreadStep::LeaveBarrier(call) => self.leave_barrier(&call, call.is_uncertain),
            ThreadStep::Acquire {
                location,
                call,
                at_ns,
                lock,
            } => self.acquire(location, call, at_ns, lock),
            ThreadStep::Release {
                location,
                at_ns,
                lock,
            } => self.release(location, at_ns, lock),
        }
    }

    /// Returns what a location has passed up to a time.
    fn passed(&self, location: u32, time_ns: i64) -> Passed {
        let of = &self.locations[location as usize];
        Passed {
            time_ns,
            not_useful_ns: of.not_useful_ns,
            saved_ns: of.saved_ns,
        }
    }

    fn feed(&mut self, events: &mut MessageEvents, from: usize, to: usize) {
        if from >= to && to != events.len() {
            return;
        }
        let first_number = self.pairs.next_number();
        for event in from..to {
            let carry = match events.call(event) {
                Some(call) => {
                    let carry = call.entered_ns - self.locations[call.location as usize].saved_ns;
                    let number = first_number + (event - from) as u64;
                    self.take_side(&call, events, event, number);
                    carry
                }
                None => {
                    let Some((time_ns, stream)) = events.place(event) else {
                        continue;
                    };
                    let location = self.location_of(stream);
                    let saved = location.map(|number| self.locations[number as usize].saved_ns);
                    time_ns - saved.unwrap_or(0)
                }
            };
            events.set_carry(event, carry);
        }
        let mut matched = std::mem::take(&mut self.matched);
        self.pairs
            .feed_some(events, from..to, |message| matched.push(message));
        matched.drain(..).for_each(|message| self.receive(&message));
        self.matched = matched;
        self.take_collectives();
    }

    /// Takes note of an event of a message in a call, with its number in the trace.
    fn take_side(&mut self, call: &CallAround, events: &MessageEvents, event: usize, number: u64) {
        let function = self.functions.get(call.region);
        let request = events.request(event);
        let bytes = events.bytes(event).unwrap_or(0);
        let is_eager = !function.is_synchronous && self.protocols.is_eager(bytes);
        self.open(call);
        let of = &mut self.locations[call.location as usize];
        let saved_ns = of.saved_ns;
        let Some(open) = &mut of.open else { return };
        open.receives += u32::from(events.is_receive(event));
        match request {
            _ if events.is_send(event) && is_eager => {}
            Some(request) if events.is_send(event) => self.sends.begin(number, request),
            Some(request) if events.is_receive(event) => {
                self.sends.complete_receive(request, number);
            }
            Some(request) if events.is_receive_start(event) => {
                let begin = ReceiveBegin {
                    entered_ns: call.entered_ns,
                    ideal_ns: call.entered_ns - saved_ns,
                    is_uncertain: call.is_uncertain,
                };
                self.sends.begin_receive(request, begin);
            }
            None if events.is_send(event)
                && (function.is_exchange || !function.is_non_blocking) =>
            {
                self.sends.end_in(number, open);
            }
            _ => {}
        }
    }

    fn take_collectives(&mut self) {
        let ended: Vec<CollectiveEnd> = self.pairs.take_ends().collect();
        ended.iter().for_each(|ended| self.end(ended));
        let whole: Vec<WholeCollective> = self.pairs.take_collectives().collect();
        whole.into_iter().for_each(|whole| self.conclude(whole));
    }

    /// Returns what is known of a call that is open.
    fn open(&mut self, call: &CallAround) -> &mut OpenCall {
        let of = &mut self.locations[call.location as usize];
        let is_new = !of.open.as_ref().is_some_and(|open| open.is(call));
        if is_new {
            // Work outside of all regions.
            let passed_ns = of.left_ns.map_or(0, |left_ns| call.entered_ns - left_ns);
            let outside_ns = passed_ns - of.known_ns;
            // Work that could have been done earlier: each nanosecond of it once.
            let mut work_ns = passed_ns;
            for (wait, there_ns, is_same) in of.passed_over.drain(..) {
                let mut avoidable_ns = there_ns;
                if !is_same {
                    avoidable_ns = there_ns.min(work_ns);
                    work_ns -= avoidable_ns;
                }
                if avoidable_ns > 0 {
                    self.waits.observer.avoidable(&wait, avoidable_ns);
                    let end_ns = wait.from_ns + wait.wait_ns;
                    self.delays
                        .receive_in_wrong_order(call.location, end_ns, avoidable_ns);
                }
            }
            if outside_ns > 0 {
                let (location, outside) = (call.location, CallPaths::OUTSIDE);
                self.delays
                    .work(location, call.entered_ns, outside, outside_ns);
                self.work
                    .entry((location, outside))
                    .or_default()
                    .add(outside_ns);
            }
        }
        if is_new {
            of.open = None;
        }
        let saved_ns = of.saved_ns;
        of.open
            .get_or_insert_with(|| OpenCall::new(*call, call.entered_ns - saved_ns))
    }

    /// Takes a message with both sides.
    fn receive(&mut self, message: &Message) {
        let Some(call) = message.receive.call else {
            return;
        };
        let send = &message.send;
        let sender = match send.call {
            Some(call) => Some(call.location),
            None => self.location_of(send.stream),
        };
        let received = Received {
            send_entered_ns: send.call.map_or(send.time_ns, |call| call.entered_ns),
            sender,
            communicator: message.communicator(),
            is_uncertain: send.call.is_none_or(|call| call.is_uncertain) && self.has_calls,
        };
        let of = &mut self.locations[call.location as usize];
        for recent in of
            .recent
            .iter_mut()
            .filter(|recent| recent.left_ns <= call.entered_ns)
            .filter(|recent| sender.is_none_or(|sender| !recent.others.contains(&sender)))
        {
            let wait = &recent.wait;
            let wrong_ns = wrong_order(
                received.send_entered_ns,
                recent.send_entered_ns,
                wait.from_ns,
                recent.left_ns,
            );
            let wrong_ns = wrong_ns.min(wait.wait_ns);
            if wrong_ns > recent.wrong_order_ns {
                let more_ns = wrong_ns - recent.wrong_order_ns;
                recent.wrong_order_ns = wrong_ns;
                self.waits.observer.wrong_order(wait, more_ns);
                let is_same = wait.cause == received.sender;
                of.passed_over.push((*wait, more_ns, is_same));
            }
        }
        match of.open.as_mut().filter(|open| open.is(&call)) {
            Some(open) => {
                open.ideal_ns = open.ideal_ns.max(send.carry);
                open.received.push(received);
            }
            // Matched after the call, because only the end of the trace proves it.
            None => {
                let left_ns = call.left_ns.unwrap_or(message.receive.time_ns);
                self.late_sender(&call, left_ns, &received, &[], 0);
            }
        }
        self.send(message, &call);
    }

    /// Takes the side of a sender: it may have waited for the receive.
    fn send(&mut self, message: &Message, receive_call: &CallAround) {
        let begin = self.sends.received(message.receive.number);
        let Some(call) = message.send.call else {
            return;
        };
        let is_completion = self.functions.get(receive_call.region).is_completion;
        let begin = begin.or((!is_completion).then_some(ReceiveBegin {
            entered_ns: receive_call.entered_ns,
            ideal_ns: message.receive.carry,
            is_uncertain: receive_call.is_uncertain,
        }));
        let receiver = begin.map(|begin| Receiver {
            entered_ns: begin.entered_ns,
            ideal_ns: begin.ideal_ns,
            location: receive_call.location,
            communicator: message.communicator(),
            bytes: message.bytes().unwrap_or(0),
            sent_by: call.region,
            is_uncertain: begin.is_uncertain,
        });
        match self.sends.matched(message.send.number, receiver) {
            Matched::Open(location) => {
                if let Some(open) = &mut self.locations[location as usize].open {
                    open.sends.retain(|send| *send != message.send.number);
                    open.take_receiver(receiver);
                }
            }
            Matched::Over(ended) => self.conclude_late(&ended),
            Matched::Nothing => {}
        }
    }

    fn end(&mut self, ended: &CollectiveEnd) {
        let operation = self.operations.entry(ended.id).or_default();
        let call = ended.side.call;
        let open = call.and_then(|call| {
            let of = &mut self.locations[call.location as usize];
            of.open.as_mut().filter(|open| open.is(&call))
        });
        let Some(open) = open else {
            let left_ns = call.and_then(|call| call.left_ns);
            let left_ns = left_ns.unwrap_or(ended.side.time_ns);
            operation.left_ns.insert(ended.process, left_ns);
            return;
        };
        open.ended.push((ended.id, ended.process));
        if let Some(latest) = ended.latest_begin {
            open.ideal_ns = open.ideal_ns.max(latest);
        }
    }

    fn conclude(&mut self, whole: WholeCollective) {
        let id = whole.id;
        self.operations.entry(id).or_default().whole = Some(whole);
        self.finish_operation(id, false);
    }

    /// Takes the leave of a call.
    fn leave(&mut self, call: &CallAround, is_uncertain: bool) {
        let left_ns = call.left_ns.unwrap_or(call.entered_ns);
        self.pairs.leave(call, left_ns);
        let of = &mut self.locations[call.location as usize];
        let mut open = of.open.take().filter(|open| open.is(call));
        let fence = open.as_ref().and_then(|open| open.fence);
        let mut ideal_ns = open.as_ref().map_or(i64::MIN, |open| open.ideal_ns);
        let ended = open.as_mut().map(|open| std::mem::take(&mut open.ended));
        of.not_useful_ns += left_ns - call.entered_ns;
        if !self.has_calls {
            of.in_calls_ns += self.waits.window.clip(call.entered_ns, left_ns);
        }
        if let Some(open) = open.take_if(|open| open.sends.is_empty()) {
            ideal_ns = ideal_ns.max(self.conclude_call(&open, left_ns, is_uncertain));
        }
        let fence_ns = fence.map_or(i64::MIN, |key| self.ideal_of_fence(key));
        let saved_ns = self.pass(call, left_ns, ideal_ns.max(fence_ns), 0);
        if let Some(open) = open
            && let Some(ended) = self.sends.keep(open, left_ns, is_uncertain, saved_ns)
        {
            self.conclude_unmatched(ended);
        }
        let Some(ended) = ended else { return };
        self.count_call(call, left_ns, true);
        if let Some(key) = fence {
            self.leave_fence(call, key, is_uncertain);
        }
        for (id, process) in ended {
            let operation = self.operations.entry(id).or_default();
            operation.left_ns.insert(process, left_ns);
            if is_uncertain {
                operation.uncertain.push(process);
            }
            self.finish_operation(id, false);
        }
    }

    /// Takes that a call has ended. On an ideal network it would end when that was there for which it waited, `ideal_ns`; no
    /// earlier than it was entered and had done its work, and no later than it was left.
    /// Returns by how much the call would be shorter.
    pub(super) fn pass(
        &mut self,
        call: &CallAround,
        left_ns: i64,
        ideal_ns: i64,
        work_ns: i64,
    ) -> i64 {
        let window = self.waits.window;
        let of = &mut self.locations[call.location as usize];
        let earliest_ns = call.entered_ns - of.saved_ns + work_ns;
        let ideal_ns = ideal_ns.clamp(earliest_ns, earliest_ns.max(left_ns - of.saved_ns));
        let saved_ns = left_ns - ideal_ns - of.saved_ns;
        of.saved_ns += saved_ns;
        of.saved_inside_ns += saved_ns.min(window.clip(call.entered_ns, left_ns));
        (of.left_ns, of.known_ns) = (Some(left_ns), 0);
        saved_ns
    }

    /// Takes that the last call of a location would end later on an ideal network than was taken, because of a receive that was
    /// not known then.
    pub(super) fn pass_later(&mut self, ended: &EndedCall, ideal_ns: i64) {
        let window = self.waits.window;
        let call = &ended.open.call;
        let of = &mut self.locations[call.location as usize];
        if of.left_ns != Some(ended.left_ns) {
            return;
        }
        let end_ns = ended.left_ns - of.saved_ns;
        let later_ns = (ideal_ns.saturating_sub(end_ns)).clamp(0, ended.saved_ns.max(0));
        of.saved_ns -= later_ns;
        of.saved_inside_ns -= later_ns.min(window.clip(call.entered_ns, ended.left_ns));
    }

    /// Counts a call in which a location may wait for others. If it `communicates`, the location is one of those whose times
    /// count.
    pub(super) fn count_call(&mut self, call: &CallAround, left_ns: i64, communicates: bool) {
        if self.waits.window.contains(left_ns) {
            *self.calls.entry((call.location, call.region)).or_default() += 1;
            self.locations[call.location as usize].calls += u64::from(communicates);
        }
    }

    /// Returns when a location would have reached a time on an ideal network.
    pub(super) fn ideal(&self, location: u32, time_ns: i64) -> i64 {
        time_ns - self.locations[location as usize].saved_ns
    }

    /// Takes that a location has begun its work together with another one.
    pub(super) fn start_with(&mut self, location: u32, other: u32, time_ns: i64) {
        let Location {
            saved_ns,
            saved_inside_ns,
            ..
        } = self.locations[other as usize];
        let of = &mut self.locations[location as usize];
        (of.saved_ns, of.saved_inside_ns) = (saved_ns, saved_inside_ns);
        self.work_from(location, time_ns);
    }

    /// Takes that the work of a location that will be handed out began at a time.
    pub(super) fn work_from(&mut self, location: u32, time_ns: i64) {
        let of = &mut self.locations[location as usize];
        (of.left_ns, of.known_ns) = (Some(time_ns), 0);
    }

    /// Returns how long a location was in tasks in a barrier, and forgets it.
    pub(super) fn forget_tasks(&mut self, location: u32) -> i64 {
        std::mem::take(&mut self.locations[location as usize].task_ns)
    }

    /// Returns whether events of the trace may be lost.
    pub(super) const fn has_losses(&self) -> bool {
        self.has_losses
    }

    pub(super) fn late_sender(
        &mut self,
        call: &CallAround,
        left_ns: i64,
        received: &Received,
        others: &[u32],
        uncertain_ns: i64,
    ) {
        if self.functions.get(call.region).is_test {
            return;
        }
        let wait_ns = late_sender(received.send_entered_ns, call.entered_ns, left_ns);
        let clock_ns = received.sender.map_or(0, |sender| {
            let send = (sender, received.send_entered_ns);
            let error_ns = self
                .clock_errors
                .between((call.location, call.entered_ns), send);
            let reached_ns = received.send_entered_ns.saturating_sub(call.entered_ns);
            wait_error(reached_ns, left_ns - call.entered_ns, error_ns)
        });
        let uncertain_ns = uncertain_ns.max(clock_ns);
        if wait_ns == 0 && uncertain_ns == 0 {
            return;
        }
        let wait = WaitState {
            pattern: WaitPattern::LateSender,
            path: call.tag,
            region: Some(call.region),
            location: call.location,
            cause: received.sender,
            or_cause: None,
            communicator: received.communicator,
            from_ns: call.entered_ns,
            wait_ns,
            operation: self.next_operation(),
            uncertain_ns,
        };
        let Some(wait) = self.add(&wait, received.send_entered_ns) else {
            return;
        };
        let recent = &mut self.locations[call.location as usize].recent;
        if recent.len() >= RECENT {
            recent.pop_front();
        }
        recent.push_back(RecentWait {
            wait,
            others: others.to_vec(),
            send_entered_ns: received.send_entered_ns,
            left_ns,
            wrong_order_ns: 0,
        });
    }

    /// Returns a number for the waits of the next message or operation.
    pub(super) const fn next_operation(&mut self) -> u64 {
        self.operations_seen += 1;
        self.operations_seen
    }

    /// Hands out a wait and its causes. `cause_entered_ns` is when its cause entered what was waited for.
    pub(super) fn add(&mut self, wait: &WaitState, cause_entered_ns: i64) -> Option<WaitState> {
        let handed = self.waits.add(wait);
        let Some(cause) = wait
            .cause
            .filter(|cause| wait.wait_ns > 0 && *cause != wait.location)
        else {
            return handed;
        };
        // The root continues after the last, not after the first: see `release_root`.
        if wait.pattern != WaitPattern::EarlyReduce {
            let at_ns = wait.from_ns + wait.wait_ns;
            self.waits.observer.release(wait.location, cause, at_ns);
        }
        let waiting = Waiting {
            location: wait.location,
            entered_ns: wait.from_ns,
            cause,
            cause_entered_ns,
            wait_ns: wait.wait_ns,
        };
        let passed = self.delays.passed(&waiting);
        let Some(handed) = handed.filter(|handed| handed.wait_ns > 0) else {
            return handed;
        };
        // Of a wait that is partly outside of the window, the same share of each cost.
        let inside = |cost_ns: i64| {
            let share = i128::from(cost_ns) * i128::from(handed.wait_ns);
            (share / i128::from(wait.wait_ns)) as i64
        };
        let own_ns = handed.wait_ns - passed.iter().map(|root| inside(root.cost_ns)).sum::<i64>();
        if own_ns > 0 {
            let extra = self.delays.extra(&waiting, own_ns);
            self.waits.observer.delay(&Delay {
                wait: &handed,
                cost_ns: own_ns,
                location: cause,
                is_direct: true,
                is_wrong_order: false,
                extra,
            });
        }
        for root in passed.iter() {
            let cost_ns = inside(root.cost_ns);
            if cost_ns > 0 {
                self.waits.observer.delay(&Delay {
                    wait: &handed,
                    cost_ns,
                    location: root.location,
                    is_direct: false,
                    is_wrong_order: root.is_wrong_order,
                    extra: &[],
                });
            }
        }
        Some(handed)
    }

    /// Ends the trace. Sets what the locations would save on an ideal network.
    pub(super) fn finish(mut self, times: &mut [LocationTimes]) -> (V, Outcome) {
        let mut matched = std::mem::take(&mut self.matched);
        let messages = self.pairs.end(|message| matched.push(message));
        matched.iter().for_each(|message| self.receive(message));
        while let Some(ended) = self.sends.take_first() {
            self.conclude_unmatched(ended);
        }
        self.take_collectives();
        self.finish_threads();
        self.finish_fences();
        let ids: Vec<u64> = self.operations.keys().copied().collect();
        ids.into_iter()
            .for_each(|id| self.finish_operation(id, true));
        for (location, times) in self.locations.iter_mut().zip(times) {
            times.saved_ns = location.saved_inside_ns;
            times.calls = location.calls;
            times.mpi_ns += location.in_calls_ns;
        }
        let (phases, phases_left_out) = self.phases.finish();
        let outcome = Outcome {
            phases,
            phases_left_out,
            calls: self.calls,
            work: self.work,
            paths: self.paths,
            messages,
            learned: self.protocols.learned(),
        };
        (self.waits.observer, outcome)
    }
}
