//! Which receive took which send: the k-th of one side belongs to the k-th of the other, as SPEC.md
//! (Messages and collective operations) says. Works in one pass over the messages in the order of the
//! trace, and keeps what is in flight.

mod threads;

use std::collections::{BTreeMap, BTreeSet};

use annals_format::fetch_ahead;
use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::messages::collectives::Collectives;
use crate::messages::{
    ANY_TAG, ANYBODY, Lost, Mark, MessageBatch, MessageContent, MessageEvent, NOBODY, NONE,
    PointToPoint, PointToPointKind, SEVERAL,
};

/// So many messages are looked up before they are taken in: which channel is next cannot be foreseen, and with many of
/// them the processor would wait for the memory of each.
const MESSAGES_AHEAD: usize = 16;
/// How far a sequence number is searched among what waits.
const SEARCH: usize = 1024;
/// Started receives of unknown channel that a process may have.
const MOST_WILD: usize = 4096;
/// End of a list.
const END: u32 = u32::MAX;

/// Messages of all processes: `sends` and `receives` are everything that was seen, and each of them is
/// matched or stands in one of the counts behind.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize)]
pub struct MessageCounts {
    /// Sends.
    pub sends: u64,
    /// Receives.
    pub receives: u64,
    /// Pairs of a send and a receive.
    pub matched: u64,
    /// Sends that nobody received, as far as the recordings tell.
    pub unmatched_sends: u64,
    /// Receives of what nobody sent, as far as the recordings tell.
    pub unmatched_receives: u64,
    /// Sends and receives behind a loss, whose partner cannot be told.
    pub unmatchable_by_loss: u64,
    /// Sends and receives that were given up because too many messages were in flight.
    pub over_limit: u64,
    /// Sends and receives whose peer is no rank of which there is one recording.
    pub without_peer: u64,
}

/// Why a side can no longer be counted.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
enum Broken {
    #[default]
    No,
    Loss,
    Limit,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
struct Key {
    communicator: u64,
    tag: i64,
    from: u32,
    to: u32,
}

impl Key {
    /// The channel of a send or a receive.
    const fn of(event: &MessageEvent, message: &PointToPoint) -> Self {
        let (from, to) = match message.kind {
            PointToPointKind::Send | PointToPointKind::Unsent => (event.process, message.peer),
            _ => (message.peer, event.process),
        };
        Self {
            communicator: event.communicator,
            tag: message.tag,
            from,
            to,
        }
    }
}

/// A list of nodes: numbers of its first and last.
#[derive(Clone, Copy, Debug)]
struct List {
    first: u32,
    last: u32,
}

impl List {
    const EMPTY: Self = Self {
        first: END,
        last: END,
    };
}

#[derive(Clone, Copy, Debug)]
struct Channel {
    key: Key,
    sends: List,
    receives: List,
    /// MessageContent the processes had lost when it was last looked at.
    sender_losses: u32,
    receiver_losses: u32,
    sends_broken: Broken,
    receives_broken: Broken,
    /// Whether several threads have waited here at once.
    has_threads: bool,
}

impl Channel {
    const fn new(key: Key) -> Self {
        Self {
            key,
            sends: List::EMPTY,
            receives: List::EMPTY,
            sender_losses: 0,
            receiver_losses: 0,
            sends_broken: Broken::No,
            receives_broken: Broken::No,
            has_threads: false,
        }
    }

    fn is_idle(&self) -> bool {
        self.sends.first == END
            && self.receives.first == END
            && self.sends_broken != Broken::Limit
            && self.receives_broken != Broken::Limit
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Ready,
    /// A receive that was started and has not completed.
    Open,
    /// One that never will, or whose message stands elsewhere.
    Dead,
}

/// A send or a receive that waits.
#[derive(Clone, Copy, Debug)]
struct Node<D> {
    /// Of a started receive that has not completed, where it was started.
    mark: Mark<D>,
    /// Receives are in this order: where each was started, but for those that another was before.
    started: u64,
    sequence: u64,
    next: u32,
    /// Who started the receive; of a send the last digits of its request.
    thread: u16,
    state: State,
}

/// A receive that was started.
#[derive(Clone, Copy, Debug)]
enum Request {
    /// In the list of its channel.
    Placed { key: Key, node: u32, started: u64 },
    /// Its channel is not known before it completes.
    Wild { started: u64, thread: u16 },
}

/// MessageContent a started receive of unknown channel may take.
#[derive(Clone, Copy, Debug)]
struct Pattern {
    communicator: u64,
    peer: u32,
    tag: i64,
    thread: u16,
}

impl Pattern {
    fn fits(&self, key: &Key) -> bool {
        (self.communicator == NONE || self.communicator == key.communicator)
            && (self.peer == ANYBODY || self.peer == key.from)
            && (self.tag == ANY_TAG || self.tag == key.tag)
    }
}

#[derive(Debug, Default)]
struct Process {
    /// How often sends, and receives, may have been lost.
    send_losses: u32,
    receive_losses: u32,
    /// Started receives of unknown channel, by where they were started.
    wild: BTreeMap<u64, Pattern>,
    /// Channels that wait for one of these.
    held: BTreeSet<Key>,
}

/// The messages in flight.
#[derive(Debug)]
pub(crate) struct Matcher<D = ()> {
    /// Their places in `slots`.
    channels: FxHashMap<Key, u32>,
    /// The channels; of some places, there is none now.
    slots: Vec<Channel>,
    free_slots: Vec<u32>,
    requests: FxHashMap<(u32, u64), Request>,
    processes: Vec<Process>,
    nodes: Vec<Node<D>>,
    free: u32,
    in_flight: usize,
    limit: usize,
    /// A channel could not be remembered: unknown ones may have had messages.
    is_full: bool,
    next_number: u64,
    pub(crate) counts: MessageCounts,
    pub(crate) collectives: Collectives<D>,
}

impl<D: Copy + Default> Matcher<D> {
    pub(crate) fn new(processes: usize, limit: usize) -> Self {
        let mut all = Vec::new();
        all.resize_with(processes, Process::default);
        Self {
            channels: FxHashMap::default(),
            slots: Vec::new(),
            free_slots: Vec::new(),
            requests: FxHashMap::default(),
            processes: all,
            nodes: Vec::new(),
            free: END,
            in_flight: 0,
            limit: limit.min(END as usize - 1),
            is_full: false,
            next_number: 0,
            counts: MessageCounts::default(),
            collectives: Collectives::new(limit),
        }
    }

    /// Takes in the next messages, in the order of the trace; `paired` gets what came first and what
    /// cannot be before it.
    pub(crate) fn feed(
        &mut self,
        batch: &MessageBatch<D>,
        paired: &mut impl FnMut(Mark<D>, Mark<D>),
    ) {
        let mut losses = batch.losses.iter().peekable();
        for (index, event) in batch.events.iter().enumerate() {
            if index.is_multiple_of(MESSAGES_AHEAD) {
                let rest = &batch.events[index..];
                self.fetch_ahead(&rest[..rest.len().min(MESSAGES_AHEAD)]);
            }
            while let Some((_, process, lost)) = losses.next_if(|loss| loss.0 <= index) {
                self.lose(*process, *lost);
            }
            let detail = batch.details.get(index).copied().unwrap_or_default();
            self.take(event, detail, paired);
        }
        losses.for_each(|(_, process, lost)| self.lose(*process, *lost));
    }

    /// Has the processor fetch the channels of these messages, and what waits first in them.
    fn fetch_ahead(&self, events: &[MessageEvent]) {
        let mut places = [END; MESSAGES_AHEAD];
        for (place, event) in places.iter_mut().zip(events) {
            let MessageContent::PointToPoint(message) = &event.content else {
                continue;
            };
            if let Some(slot) = self.channels.get(&Key::of(event, message)) {
                *place = *slot;
                fetch_ahead(&self.slots, *slot as usize);
            }
        }
        for place in places {
            if let Some(channel) = self.slots.get(place as usize) {
                fetch_ahead(&self.nodes, channel.sends.first as usize);
                fetch_ahead(&self.nodes, channel.receives.first as usize);
            }
        }
    }

    /// Notes that a process's events may be missing from here on.
    pub(crate) fn lose(&mut self, process: u32, lost: Lost) {
        let Some(state) = self.processes.get_mut(process as usize) else {
            return;
        };
        state.send_losses = state.send_losses.saturating_add(lost.sends.into());
        if lost.receives {
            state.receive_losses = state.receive_losses.saturating_add(1);
            // A started receive whose completion may be missing tells nothing any more, and what waits
            // for it never will be told.
            state.wild.clear();
            let held = std::mem::take(&mut state.held);
            for key in held {
                let Some(slot) = self.channels.get(&key).copied() else {
                    continue;
                };
                self.refresh(slot);
                let channel = self.channel(slot);
                let receives = channel.receives;
                channel.receives = List::EMPTY;
                self.drop_list(receives);
                self.flush(slot);
            }
        }
        if lost.collectives {
            self.collectives.lose(process);
        }
    }

    fn take(&mut self, event: &MessageEvent, detail: D, paired: &mut impl FnMut(Mark<D>, Mark<D>)) {
        let mark = Mark {
            number: self.next_number,
            time_ns: event.time_ns,
            process: event.process,
            clock: event.clock,
            detail,
        };
        self.next_number += 1;
        match &event.content {
            MessageContent::PointToPoint(message) => match message.kind {
                PointToPointKind::Send => self.take_send(event, message, mark, paired),
                PointToPointKind::Receive => self.take_receive(event, message, mark, paired),
                PointToPointKind::ReceiveStart => self.take_start(event, message, mark, paired),
                PointToPointKind::Cancel => self.take_cancel(event, paired),
                PointToPointKind::Unsent => self.take_unsent(event, message),
            },
            MessageContent::Collective(part) if part.is_begin => {
                self.collectives.begin(event, part, mark, paired);
            }
            MessageContent::Collective(part) => self.collectives.end(event, part, mark, paired),
        }
    }

    /// Messages that were taken in.
    pub(crate) const fn fed(&self) -> u64 {
        self.next_number
    }

    /// MessageContent waits for its partner.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = Mark<D>> {
        let lists = self.channels.values();
        let lists = lists.flat_map(|slot| {
            let channel = &self.slots[*slot as usize];
            [channel.sends, channel.receives]
        });
        let each = lists.flat_map(|list| self.places(list));
        each.map(|at| self.nodes[at as usize].mark)
    }

    /// The places of a list's nodes.
    fn places(&self, list: List) -> impl Iterator<Item = u32> {
        let known = |at: u32| (at != END).then_some(at);
        std::iter::successors(known(list.first), move |at| {
            known(self.nodes[*at as usize].next)
        })
    }

    /// Returns whether a message's peer is one known process, and counts the message where it is not.
    fn has_peer(&mut self, event: &MessageEvent, message: &PointToPoint) -> bool {
        let has_peer = !matches!(message.peer, NOBODY | SEVERAL | ANYBODY)
            && (event.process as usize) < self.processes.len();
        self.counts.without_peer += u64::from(!has_peer);
        has_peer
    }

    fn take_send(
        &mut self,
        event: &MessageEvent,
        message: &PointToPoint,
        mark: Mark<D>,
        paired: &mut impl FnMut(Mark<D>, Mark<D>),
    ) {
        self.counts.sends += 1;
        if !self.has_peer(event, message) {
            return;
        }
        let key = Key::of(event, message);
        let Some(slot) = self.open(key) else { return };
        let receives = self.channel(slot).receives;
        if message.sequence != NONE && self.has_sequence(receives) {
            if let Some(node) = self.unlink_sequence(slot, true, message.sequence) {
                self.counts.matched += 1;
                paired(mark, node.mark);
                return;
            }
        } else if message.sequence == NONE && self.is_broken(slot, false) {
            return;
        }
        if let Some(receive) = self.take_first(slot, true, u64::MAX) {
            self.counts.matched += 1;
            paired(mark, receive);
            return;
        }
        let node = Node {
            mark,
            started: mark.number,
            sequence: message.sequence,
            next: END,
            thread: event.request as u16,
            state: State::Ready,
        };
        if self.push(slot, false, node) {
            self.settle(slot, paired);
        }
    }

    fn take_receive(
        &mut self,
        event: &MessageEvent,
        message: &PointToPoint,
        mark: Mark<D>,
        paired: &mut impl FnMut(Mark<D>, Mark<D>),
    ) {
        self.counts.receives += 1;
        if !self.has_peer(event, message) {
            return;
        }
        let key = Key::of(event, message);
        let (mut started, mut thread) = (mark.number, message.thread);
        let request = match event.request {
            NONE => None,
            request => self.requests.remove(&(event.process, request)),
        };
        match request {
            Some(Request::Placed {
                key: place,
                node,
                started: at,
            }) if self.is_open(node, at) => {
                let node = &mut self.nodes[node as usize];
                (started, thread) = (at, node.thread);
                if place == key && message.sequence == NONE {
                    (node.state, node.mark) = (State::Ready, mark);
                    if let Some(slot) = self.channels.get(&key).copied() {
                        self.arrange(slot);
                        self.settle(slot, paired);
                    }
                    return;
                }
                node.state = State::Dead;
                self.settle_known(place, paired);
            }
            Some(Request::Wild {
                started: at,
                thread: of,
            }) => {
                self.processes[event.process as usize].wild.remove(&at);
                (started, thread) = (at, of);
            }
            Some(Request::Placed { .. }) | None => {}
        }
        let node = Node {
            mark,
            started,
            sequence: message.sequence,
            next: END,
            thread,
            state: State::Ready,
        };
        self.place_receive(key, node, paired);
        if matches!(request, Some(Request::Wild { .. })) {
            self.release(event.process, paired);
        }
    }

    fn place_receive(
        &mut self,
        key: Key,
        node: Node<D>,
        paired: &mut impl FnMut(Mark<D>, Mark<D>),
    ) {
        let Some(slot) = self.open(key) else { return };
        let sends = self.channel(slot).sends;
        if node.sequence != NONE && self.has_sequence(sends) {
            if let Some(send) = self.unlink_sequence(slot, false, node.sequence) {
                self.counts.matched += 1;
                paired(send.mark, node.mark);
                return;
            }
        } else if node.sequence == NONE && self.is_broken(slot, true) {
            return;
        }
        if let Some(send) = self.take_first(slot, false, node.started) {
            self.counts.matched += 1;
            paired(send, node.mark);
            return;
        }
        if self.push(slot, true, node) {
            self.arrange(slot);
            self.settle(slot, paired);
        }
    }

    fn take_start(
        &mut self,
        event: &MessageEvent,
        message: &PointToPoint,
        mark: Mark<D>,
        paired: &mut impl FnMut(Mark<D>, Mark<D>),
    ) {
        if event.request == NONE || event.process as usize >= self.processes.len() {
            return;
        }
        // Whoever starts again under a request has done with it.
        self.take_cancel(event, paired);
        let started = mark.number;
        let wild = self.processes[event.process as usize].wild.len();
        if self.requests.len() >= self.limit || wild >= MOST_WILD {
            // Forgetting where it was started would be guessing.
            let lost = Lost {
                receives: true,
                ..Lost::default()
            };
            self.lose(event.process, lost);
            return;
        }
        let is_wild =
            event.communicator == NONE || message.peer == ANYBODY || message.tag == ANY_TAG;
        let request = if is_wild {
            let pattern = Pattern {
                communicator: event.communicator,
                peer: message.peer,
                tag: message.tag,
                thread: message.thread,
            };
            let process = &mut self.processes[event.process as usize];
            process.wild.insert(started, pattern);
            Some(Request::Wild {
                started,
                thread: message.thread,
            })
        } else {
            let key = Key::of(event, message);
            let node = Node {
                mark,
                started,
                sequence: NONE,
                next: END,
                thread: message.thread,
                state: State::Open,
            };
            let has_peer = !matches!(message.peer, NOBODY | SEVERAL);
            let slot = has_peer.then(|| self.remember(key)).flatten();
            let placed = slot.filter(|slot| {
                self.channel(*slot).receives_broken == Broken::No && self.push(*slot, true, node)
            });
            placed.map(|slot| Request::Placed {
                key,
                node: self.channel(slot).receives.last,
                started,
            })
        };
        if let Some(request) = request {
            self.requests
                .insert((event.process, event.request), request);
        }
    }

    /// Ends a started receive without a message.
    fn take_cancel(&mut self, event: &MessageEvent, paired: &mut impl FnMut(Mark<D>, Mark<D>)) {
        match self.requests.remove(&(event.process, event.request)) {
            Some(Request::Placed { key, node, started }) if self.is_open(node, started) => {
                self.nodes[node as usize].state = State::Dead;
                self.settle_known(key, paired);
            }
            Some(Request::Wild { started, .. }) => {
                self.processes[event.process as usize].wild.remove(&started);
                self.release(event.process, paired);
            }
            Some(Request::Placed { .. }) | None => {}
        }
    }

    /// Takes a send back that was told and did not happen: the last with its request that waits.
    fn take_unsent(&mut self, event: &MessageEvent, message: &PointToPoint) {
        let Some(slot) = self.channels.get(&Key::of(event, message)).copied() else {
            return;
        };
        let list = self.channel(slot).sends;
        let (mut before, mut found) = (END, None);
        for at in self.places(list).take(SEARCH) {
            if self.nodes[at as usize].thread == event.request as u16 {
                found = Some((before, at));
            }
            before = at;
        }
        if let Some((before, at)) = found {
            self.unlink(slot, false, before, at);
            self.counts.sends -= 1;
        }
    }

    /// Looks again at the channels that waited for a receive of unknown channel.
    fn release(&mut self, process: u32, paired: &mut impl FnMut(Mark<D>, Mark<D>)) {
        let held = std::mem::take(&mut self.processes[process as usize].held);
        held.into_iter()
            .for_each(|key| self.settle_known(key, paired));
    }

    fn is_open(&self, node: u32, started: u64) -> bool {
        let node = &self.nodes[node as usize];
        node.mark.number == started && node.state == State::Open
    }

    /// The place of a channel that can take an event; counts it when none can.
    fn open(&mut self, key: Key) -> Option<u32> {
        let known = self.remember(key);
        self.counts.over_limit += u64::from(known.is_none());
        known
    }

    /// Makes room for a channel and takes note of what its processes have lost.
    fn remember(&mut self, key: Key) -> Option<u32> {
        let slot = match self.channels.get(&key) {
            Some(slot) => *slot,
            None => self.new_channel(key)?,
        };
        self.refresh(slot);
        Some(slot)
    }

    fn new_channel(&mut self, key: Key) -> Option<u32> {
        if self.channels.len() >= self.limit && !self.is_full {
            // Nothing is known of an idle channel that a new one would not know.
            let (slots, free) = (&self.slots, &mut self.free_slots);
            self.channels.retain(|_, slot| {
                let is_idle = slots[*slot as usize].is_idle();
                if is_idle {
                    free.push(*slot);
                }
                !is_idle
            });
            self.is_full = self.channels.len() >= self.limit / 2;
        }
        if self.is_full {
            return None;
        }
        let channel = Channel::new(key);
        let slot = match self.free_slots.pop() {
            Some(slot) => {
                self.slots[slot as usize] = channel;
                slot
            }
            None => {
                self.slots.push(channel);
                self.slots.len() as u32 - 1
            }
        };
        self.channels.insert(key, slot);
        Some(slot)
    }

    #[inline]
    fn channel(&mut self, slot: u32) -> &mut Channel {
        &mut self.slots[slot as usize]
    }

    fn losses(&self, key: Key) -> (u32, u32) {
        let process = |number: u32| self.processes.get(number as usize);
        (
            process(key.from).map_or(0, |process| process.send_losses),
            process(key.to).map_or(0, |process| process.receive_losses),
        )
    }

    fn refresh(&mut self, slot: u32) {
        let (sender_losses, receiver_losses) = self.losses(self.slots[slot as usize].key);
        let channel = self.channel(slot);
        if (channel.sender_losses, channel.receiver_losses) == (sender_losses, receiver_losses) {
            return;
        }
        let is_receiver_hit = channel.receiver_losses != receiver_losses;
        if channel.sender_losses != sender_losses && channel.sends_broken == Broken::No {
            channel.sends_broken = Broken::Loss;
        }
        if is_receiver_hit && channel.receives_broken == Broken::No {
            channel.receives_broken = Broken::Loss;
        }
        (channel.sender_losses, channel.receiver_losses) = (sender_losses, receiver_losses);
        if is_receiver_hit {
            self.cut_open(slot);
        }
        self.flush(slot);
    }

    /// Takes away started receives whose completion may be lost, and all behind them.
    fn cut_open(&mut self, slot: u32) {
        let receives = self.channel(slot).receives;
        let (mut before, mut at) = (END, receives.first);
        while at != END && self.nodes[at as usize].state != State::Open {
            (before, at) = (at, self.nodes[at as usize].next);
        }
        if at == END {
            return;
        }
        let cut = List {
            first: at,
            last: receives.last,
        };
        let kept = if before == END {
            List::EMPTY
        } else {
            self.nodes[before as usize].next = END;
            List {
                first: receives.first,
                last: before,
            }
        };
        self.channel(slot).receives = kept;
        self.drop_list(cut);
    }

    /// Frees nodes whose partners are lost.
    fn drop_list(&mut self, list: List) {
        let mut at = list.first;
        while at != END {
            let node = self.nodes[at as usize];
            self.counts.unmatchable_by_loss += u64::from(node.state == State::Ready);
            self.release_node(at);
            at = node.next;
        }
    }

    fn release_node(&mut self, at: u32) {
        let node = &mut self.nodes[at as usize];
        node.next = self.free;
        node.state = State::Dead;
        node.started = u64::MAX;
        self.free = at;
        self.in_flight -= 1;
    }

    /// Drops what waits for a side that can no longer be counted, and has given all it had.
    fn flush(&mut self, slot: u32) {
        let channel = *self.channel(slot);
        let is_empty = |list: List| list.first == END;
        if channel.sends_broken != Broken::No && is_empty(channel.sends) {
            self.drop_unnumbered(slot, true, channel.sends_broken);
        }
        let channel = *self.channel(slot);
        if channel.receives_broken != Broken::No && is_empty(channel.receives) {
            self.drop_unnumbered(slot, false, channel.receives_broken);
        }
    }

    /// Drops what has no sequence number and is not open.
    fn drop_unnumbered(&mut self, slot: u32, is_receive: bool, why: Broken) {
        let list = self.list(slot, is_receive);
        let mut kept = List::EMPTY;
        let mut at = list.first;
        while at != END {
            let node = self.nodes[at as usize];
            if node.sequence == NONE && node.state != State::Open {
                if node.state == State::Ready {
                    match why {
                        Broken::Limit => self.counts.over_limit += 1,
                        _ => self.counts.unmatchable_by_loss += 1,
                    }
                }
                self.release_node(at);
            } else {
                if kept.last == END {
                    kept.first = at;
                } else {
                    self.nodes[kept.last as usize].next = at;
                }
                kept.last = at;
                self.nodes[at as usize].next = END;
            }
            at = node.next;
        }
        self.set_list(slot, is_receive, kept);
    }

    fn list(&self, slot: u32, is_receive: bool) -> List {
        let channel = &self.slots[slot as usize];
        if is_receive {
            channel.receives
        } else {
            channel.sends
        }
    }

    fn set_list(&mut self, slot: u32, is_receive: bool, list: List) {
        let channel = self.channel(slot);
        if is_receive {
            channel.receives = list;
        } else {
            channel.sends = list;
        }
    }

    /// Whether an event without a sequence number cannot be counted; counts it then.
    fn is_broken(&mut self, slot: u32, is_receive: bool) -> bool {
        let channel = self.channel(slot);
        let broken = if is_receive {
            channel.receives_broken
        } else {
            channel.sends_broken
        };
        match broken {
            Broken::No => return false,
            Broken::Loss => self.counts.unmatchable_by_loss += 1,
            Broken::Limit => self.counts.over_limit += 1,
        }
        true
    }

    fn has_sequence(&self, list: List) -> bool {
        list.first != END && self.nodes[list.first as usize].sequence != NONE
    }

    /// Takes the event with a sequence number out of a list.
    fn unlink_sequence(&mut self, slot: u32, is_receive: bool, sequence: u64) -> Option<Node<D>> {
        let list = self.list(slot, is_receive);
        let mut before = END;
        let is_it = |at: &u32| {
            let node = &self.nodes[*at as usize];
            let is_it = node.sequence == sequence && node.state == State::Ready;
            if !is_it {
                before = *at;
            }
            is_it
        };
        let found = self.places(list).take(SEARCH).find(is_it)?;
        Some(self.unlink(slot, is_receive, before, found))
    }

    /// Takes an event out of a list, behind another or none.
    fn unlink(&mut self, slot: u32, is_receive: bool, before: u32, at: u32) -> Node<D> {
        let mut list = self.list(slot, is_receive);
        let node = self.nodes[at as usize];
        if before == END {
            list.first = node.next;
        } else {
            self.nodes[before as usize].next = node.next;
        }
        if list.last == at {
            list.last = before;
        }
        self.release_node(at);
        self.set_list(slot, is_receive, list);
        node
    }

    /// Puts an event where it belongs; at the limit it is counted, and the side is broken.
    fn push(&mut self, slot: u32, is_receive: bool, mut node: Node<D>) -> bool {
        if self.in_flight >= self.limit {
            self.counts.over_limit += u64::from(node.state == State::Ready);
            let channel = self.channel(slot);
            let broken = if is_receive {
                &mut channel.receives_broken
            } else {
                &mut channel.sends_broken
            };
            *broken = Broken::Limit;
            self.flush(slot);
            return false;
        }
        self.in_flight += 1;
        let mut list = self.list(slot, is_receive);
        if is_receive && list.last != END && self.nodes[list.last as usize].thread != node.thread {
            self.channel(slot).has_threads = true;
        }
        // Nearly always the last; a receive that was started long ago is near the first.
        let (mut before, mut next) = (list.last, END);
        if before != END && self.nodes[before as usize].started > node.started {
            (before, next) = (END, list.first);
            while next != END && self.nodes[next as usize].started < node.started {
                (before, next) = (next, self.nodes[next as usize].next);
            }
        }
        node.next = next;
        let at = if self.free == END {
            self.nodes.push(node);
            self.nodes.len() as u32 - 1
        } else {
            let at = self.free;
            self.free = self.nodes[at as usize].next;
            self.nodes[at as usize] = node;
            at
        };
        if before == END {
            list.first = at;
        } else {
            self.nodes[before as usize].next = at;
        }
        if next == END {
            list.last = at;
        }
        self.set_list(slot, is_receive, list);
        true
    }

    /// Takes the first of a list for an event that nothing of its own side stands before, when that is
    /// decided: nearly always. `started` is where the receive was started, if it is the other one.
    fn take_first(&mut self, slot: u32, is_receive: bool, started: u64) -> Option<Mark<D>> {
        let channel = &self.slots[slot as usize];
        let (own, broken, other) = if is_receive {
            (channel.sends, channel.sends_broken, channel.receives)
        } else {
            (channel.receives, channel.receives_broken, channel.sends)
        };
        if own.first != END || other.first == END || broken != Broken::No {
            return None;
        }
        let node = self.nodes[other.first as usize];
        let is_decided = node.state == State::Ready && node.sequence == NONE;
        let started = if is_receive { node.started } else { started };
        if !is_decided || self.is_held(channel.key, started) {
            return None;
        }
        let rest = List {
            first: node.next,
            last: if node.next == END { END } else { other.last },
        };
        self.release_node(other.first);
        self.set_list(slot, is_receive, rest);
        Some(node.mark)
    }

    /// Whether a receive that was started earlier may yet turn out to be one of a channel's.
    fn is_held(&self, key: Key, started: u64) -> bool {
        let wild = &self.processes[key.to as usize].wild;
        let mut earlier = wild.range(..started);
        earlier.any(|(_, pattern)| pattern.fits(&key))
    }

    /// Pairs what stands first on both sides as long as that is decided.
    fn settle(&mut self, slot: u32, paired: &mut impl FnMut(Mark<D>, Mark<D>)) {
        let mut channel = *self.channel(slot);
        let key = channel.key;
        let mut is_held = false;
        while channel.receives.first != END {
            let first = channel.receives.first;
            let receive = self.nodes[first as usize];
            if receive.state == State::Dead {
                channel.receives.first = receive.next;
                self.release_node(first);
                continue;
            }
            if channel.sends.first == END || receive.state == State::Open {
                break;
            }
            let at = channel.sends.first;
            let send = self.nodes[at as usize];
            if receive.sequence != NONE && send.sequence != NONE {
                break;
            }
            if self.is_held(key, receive.started) {
                is_held = true;
                break;
            }
            channel.receives.first = receive.next;
            channel.sends.first = send.next;
            self.release_node(first);
            self.release_node(at);
            self.counts.matched += 1;
            paired(send.mark, receive.mark);
        }
        for list in [&mut channel.sends, &mut channel.receives] {
            if list.first == END {
                list.last = END;
            }
        }
        if is_held {
            self.processes[key.to as usize].held.insert(key);
        }
        let is_broken = channel.sends_broken != Broken::No || channel.receives_broken != Broken::No;
        *self.channel(slot) = channel;
        if is_broken {
            self.flush(slot);
        }
    }

    /// The same of a channel that may have been forgotten.
    fn settle_known(&mut self, key: Key, paired: &mut impl FnMut(Mark<D>, Mark<D>)) {
        if let Some(slot) = self.channels.get(&key).copied() {
            self.settle(slot, paired);
        }
    }

    /// Pairs what stands behind receives that were started and of which nothing more was told: nobody waited for them,
    /// or not to the end. They will not be cancelled any more, so each has taken its send, which has no known receive.
    fn settle_behind_open(&mut self, channel: &Channel, paired: &mut impl FnMut(Mark<D>, Mark<D>)) {
        let receives: Vec<u32> = self.places(channel.receives).collect();
        let mut send = channel.sends.first;
        for at in receives {
            let receive = self.nodes[at as usize];
            if receive.state == State::Dead {
                continue;
            }
            let Some(sent) = self.nodes.get(send as usize).copied() else {
                break;
            };
            let has_sequence = receive.sequence != NONE && sent.sequence != NONE;
            if has_sequence || self.is_held(channel.key, receive.started) {
                break;
            }
            if receive.state == State::Ready {
                self.counts.matched += 1;
                paired(sent.mark, receive.mark);
                for place in [send, at] {
                    self.nodes[place as usize].state = State::Dead;
                }
            }
            send = sent.next;
        }
    }

    /// Counts what is left in flight.
    pub(crate) fn finish(&mut self, paired: &mut impl FnMut(Mark<D>, Mark<D>)) {
        self.collectives.finish(paired);
        let channels = std::mem::take(&mut self.channels);
        for (key, slot) in &channels {
            let channel = self.slots[*slot as usize];
            let (sender_losses, receiver_losses) = self.losses(*key);
            let is_lost = sender_losses != 0 || receiver_losses != 0;
            let is_over =
                channel.sends_broken == Broken::Limit || channel.receives_broken == Broken::Limit;
            if !is_lost && !is_over {
                self.settle_behind_open(&channel, paired);
            }
            for (is_receive, list) in [(false, channel.sends), (true, channel.receives)] {
                let mut at = list.first;
                while at != END {
                    let node = self.nodes[at as usize];
                    if node.state == State::Ready {
                        let counts = &mut self.counts;
                        let count = match (is_over, is_lost, is_receive) {
                            (true, ..) => &mut counts.over_limit,
                            (_, true, _) => &mut counts.unmatchable_by_loss,
                            (.., false) => &mut counts.unmatched_sends,
                            (.., true) => &mut counts.unmatched_receives,
                        };
                        *count += 1;
                    }
                    at = node.next;
                }
            }
        }
    }
}
