//! Matches the receives of some processes with their sends: in each channel, the k-th receive belongs to the k-th send.

mod from_end;
mod lists;
mod threads;

use std::collections::{BTreeMap, BTreeSet};

use annals_format::fetch_ahead;
use rustc_hash::FxHashMap;

use crate::messages::collectives::{Carry, Collectives};
use crate::messages::matching::MessageCounts;
use crate::messages::matching::channels::from_end::{Tails, Unnumbered};
use crate::messages::matching::channels::lists::SEARCH;
use crate::messages::{
    ANY_TAG, ANYBODY, Lost, Mark, MessageContent, MessageEvent, NOBODY, NONE, PointToPoint,
    PointToPointKind, SEVERAL, SHARDS,
};

/// Maximum number of started receives of unknown channel that a process has.
const MOST_WILD: usize = 4096;
/// End of a list.
pub(super) const END: u32 = u32::MAX;

/// Reason why the events of one side of a channel can no longer be counted.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
enum Broken {
    #[default]
    No,
    Loss,
    Limit,
}

impl Broken {
    /// Ends the effect of a loss: a number is known again.
    fn heal(&mut self) {
        if *self == Self::Loss {
            *self = Self::No;
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
struct Key {
    communicator: u64,
    tag: i64,
    from: u32,
    to: u32,
}

impl Key {
    /// Returns the channel of a send or a receive.
    const fn of(event: &MessageEvent, message: &PointToPoint) -> Self {
        let is_send = message.kind.is_of_sender();
        Self {
            communicator: event.communicator,
            tag: message.tag,
            from: if is_send { event.process } else { message.peer },
            to: message.receiver(event),
        }
    }
}

/// A list of nodes: the indices of the first and the last one.
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
    /// Losses of the two processes that were already applied to the channel.
    sender_losses: u32,
    receiver_losses: u32,
    sends_broken: Broken,
    receives_broken: Broken,
    /// Numbers for the next send, and for the next receive in the order of their starts, if they
    /// have no sequence number.
    next_send: u64,
    next_receive: u64,
    /// Number of receives in the list that have a number and wait for their send.
    numbered: u32,
    /// Whether an event of the channel had a sequence number.
    has_sequences: bool,
    /// Whether receives of several threads have waited in the channel concurrently.
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
            next_send: 0,
            next_receive: 0,
            numbered: 0,
            has_sequences: false,
            has_threads: false,
        }
    }

    const fn broken(&self, is_receive: bool) -> Broken {
        if is_receive {
            self.receives_broken
        } else {
            self.sends_broken
        }
    }

    fn is_idle(&self) -> bool {
        self.sends.first == END
            && self.receives.first == END
            && self.sends_broken != Broken::Limit
            && self.receives_broken != Broken::Limit
            && self.next_send == self.next_receive
            && !self.has_sequences
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Ready,
    /// A receive that was started and has not completed.
    Open,
    /// A receive that was cancelled, is already paired, or belongs to another channel.
    Dead,
}

/// A waiting send or receive.
#[derive(Clone, Copy, Debug)]
struct Node<D> {
    /// The event. For a started receive that has not completed, the event that started it.
    mark: Mark<D>,
    /// Sort key of receives: number of the event that started this one or, if it was moved, the one
    /// before it.
    started: u64,
    /// Number in the channel. [`NONE`] means one more than that of the event before it.
    number: u64,
    next: u32,
    /// The thread that started the receive; for a send, the low 16 bits of its request.
    thread: u16,
    state: State,
}

/// A receive that was started.
#[derive(Clone, Copy, Debug)]
enum Request {
    /// In the list of its channel.
    Placed { key: Key, node: u32, started: u64 },
    /// Not in a list: its channel, or its place there, is not known before it completes.
    Wild { started: u64, thread: u16 },
}

/// Messages that a started receive of unknown channel can take.
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

/// A process whose receives are matched.
#[derive(Debug)]
struct Receiver {
    /// Number of losses that may contain receives.
    receive_losses: u32,
    /// Number of the first event after the last loss of receives.
    receives_lost_at: Option<u64>,
    /// Number of an event. Receives that were started from there on, and before the last loss, have
    /// no known numbers.
    certain_before: u64,
    /// Started receives of unknown channel, by the number of the event that started them.
    wild: BTreeMap<u64, Pattern>,
    /// Channels that wait for one of the receives in `wild`.
    held: BTreeSet<Key>,
}

impl Receiver {
    const fn new() -> Self {
        Self {
            receive_losses: 0,
            receives_lost_at: None,
            certain_before: u64::MAX,
            wild: BTreeMap::new(),
            held: BTreeSet::new(),
        }
    }
}

/// The channels of every [`SHARDS`]-th process as the receiver, with the messages in flight in them.
///
/// Which message a receive takes depends on the receives that its process has started, and on those of no other process.
#[derive(Debug)]
pub(super) struct Channels<D> {
    /// Number of the shard.
    shard: usize,
    /// Index of each channel in `slots`.
    slot_of: FxHashMap<Key, u32>,
    /// The channels. The indices in `free_slots` are unused.
    slots: Vec<Channel>,
    free_slots: Vec<u32>,
    requests: FxHashMap<(u32, u64), Request>,
    /// By process, the number of losses that may contain sends.
    send_losses: Vec<u32>,
    /// By process divided by [`SHARDS`]: all receivers of a shard have the same remainder.
    receivers: Vec<Receiver>,
    nodes: Vec<Node<D>>,
    free: u32,
    in_flight: usize,
    limit: usize,
    /// Whether a channel could not be stored: unknown channels may have had messages.
    is_full: bool,
    /// Messages without numbers after a loss.
    tails: Tails<D>,
    pub(super) counts: MessageCounts,
}

impl<D: Carry> Channels<D> {
    /// Creates the channels whose receivers have the numbers `shard`, `shard` + [`SHARDS`] and so on, up to the number of
    /// processes. `limit` is the maximum number of messages in flight.
    pub(super) fn new(shard: usize, processes: usize, limit: usize) -> Self {
        let receivers = (shard..processes).step_by(SHARDS);
        Self {
            shard,
            slot_of: FxHashMap::default(),
            slots: Vec::new(),
            free_slots: Vec::new(),
            requests: FxHashMap::default(),
            send_losses: vec![0; processes],
            receivers: receivers.map(|_| Receiver::new()).collect(),
            nodes: Vec::new(),
            free: END,
            in_flight: 0,
            limit: limit.min(END as usize - 1),
            is_full: false,
            tails: Tails::new(limit),
            counts: MessageCounts::default(),
        }
    }

    /// Returns the slot of the channel of a message, and prefetches it.
    #[inline]
    pub(super) fn fetch_channel(&self, event: &MessageEvent) -> u32 {
        let MessageContent::PointToPoint(message) = &event.content else {
            return END;
        };
        let slot = self.slot_of.get(&Key::of(event, message));
        let slot = slot.copied().unwrap_or(END);
        fetch_ahead(&self.slots, slot as usize);
        slot
    }

    /// Prefetches the first events that wait in a channel.
    #[inline]
    pub(super) fn fetch_waiting(&self, slot: u32) {
        if let Some(channel) = self.slots.get(slot as usize) {
            fetch_ahead(&self.nodes, channel.sends.first as usize);
            fetch_ahead(&self.nodes, channel.receives.first as usize);
        }
    }

    /// Returns a receiver of this shard, which must be one of the processes.
    #[inline]
    fn receiver(&self, process: u32) -> &Receiver {
        debug_assert_eq!(process as usize % SHARDS, self.shard);
        &self.receivers[process as usize / SHARDS]
    }

    #[inline]
    fn receiver_mut(&mut self, process: u32) -> &mut Receiver {
        &mut self.receivers[process as usize / SHARDS]
    }

    /// Records that events of a process may be missing before the event with a number.
    pub(super) fn lose(&mut self, process: u32, lost: Lost, before: u64) {
        let Some(send_losses) = self.send_losses.get_mut(process as usize) else {
            return;
        };
        *send_losses = send_losses.saturating_add(lost.sends.into());
        if !lost.receives || process as usize % SHARDS != self.shard {
            return;
        }
        let receiver = self.receiver_mut(process);
        receiver.receive_losses = receiver.receive_losses.saturating_add(1);
        receiver.receives_lost_at = Some(before);
        // The completion of a receive of unknown channel may be missing: the numbers of later receives are not known.
        if let Some((first, _)) = receiver.wild.first_key_value() {
            receiver.certain_before = receiver.certain_before.min(*first);
        }
        receiver.wild.clear();
        let held = std::mem::take(&mut receiver.held);
        for key in held {
            if let Some(slot) = self.slot_of.get(&key).copied() {
                self.refresh(slot);
            }
        }
    }

    pub(super) fn take(
        &mut self,
        event: &MessageEvent,
        mark: Mark<D>,
        paired: &mut impl FnMut(Mark<D>, Mark<D>),
    ) {
        let MessageContent::PointToPoint(message) = &event.content else {
            return;
        };
        match message.kind {
            PointToPointKind::Send => self.take_send(event, message, mark, paired),
            PointToPointKind::Receive => self.take_receive(event, message, mark, paired),
            PointToPointKind::ReceiveStart => self.take_start(event, message, mark, paired),
            PointToPointKind::Cancel => self.take_cancel(event, paired),
            PointToPointKind::Unsent => self.take_unsent(event, message),
        }
    }

    /// Returns the events that wait for their partners.
    pub(super) fn waiting(&self) -> impl Iterator<Item = Mark<D>> {
        let lists = self.slot_of.values();
        let lists = lists.flat_map(|slot| {
            let channel = &self.slots[*slot as usize];
            [channel.sends, channel.receives]
        });
        let each = lists.flat_map(|list| self.places(list));
        each.map(|at| self.nodes[at as usize].mark)
    }

    /// Returns whether a message's peer is one known process, and counts the message if it is not.
    fn has_peer(&mut self, event: &MessageEvent, message: &PointToPoint) -> bool {
        let has_peer = !matches!(message.peer, NOBODY | SEVERAL | ANYBODY)
            && (event.process as usize) < self.send_losses.len();
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
        let Some(slot) = self.open(Key::of(event, message)) else {
            return;
        };
        let number = match message.sequence {
            NONE if self.set_aside(slot, false, &Unnumbered::send(mark)) => return,
            NONE => self.channel(slot).next_send,
            sequence => {
                let channel = self.channel(slot);
                channel.has_sequences = true;
                channel.sends_broken.heal();
                sequence
            }
        };
        let channel = self.channel(slot);
        channel.next_send = channel.next_send.max(number.saturating_add(1));
        if let Some(receive) = self.pop_receive(slot, number) {
            self.counts.matched += 1;
            paired(mark, receive);
            return;
        }
        if let Some(receive) = self.find_receive(slot, number) {
            self.counts.matched += 1;
            paired(mark, receive);
            self.settle(slot, paired);
            return;
        }
        let node = Node {
            mark,
            started: mark.number,
            number,
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
        let lost_at = self.receiver(event.process).receives_lost_at;
        let (mut started, mut thread) = (mark.number, message.thread);
        let request = match event.request {
            NONE => None,
            request => self.take_request(event.process, request),
        };
        // If the start of a receive may be lost, its place is not known.
        let mut has_place = event.request == NONE || lost_at.is_none();
        match request {
            Some(Request::Placed {
                key: place,
                node,
                started: at,
            }) if self.is_open(node, at) => {
                has_place = true;
                let placed = &mut self.nodes[node as usize];
                (started, thread) = (at, placed.thread);
                if place == key {
                    (placed.state, placed.mark) = (State::Ready, mark);
                    placed.number = message.sequence;
                    if let Some(slot) = self.slot_of.get(&key).copied() {
                        self.complete(slot, node, paired);
                    }
                    return;
                }
                placed.state = State::Dead;
                self.settle_known(place, paired);
            }
            Some(Request::Wild {
                started: at,
                thread: of,
            }) => {
                let process = self.receiver_mut(event.process);
                process.wild.remove(&at);
                has_place |= lost_at.is_none_or(|lost_at| at >= lost_at);
                (started, thread) = (at, of);
            }
            Some(Request::Placed { .. }) | None => {}
        }
        let node = Node {
            mark,
            started,
            number: message.sequence,
            next: END,
            thread,
            state: State::Ready,
        };
        self.place_receive(key, node, has_place, paired);
        if matches!(request, Some(Request::Wild { .. })) {
            self.release(event.process, paired);
        }
    }

    /// Pairs a started receive that has completed, if its send is certain.
    fn complete(&mut self, slot: u32, at: u32, paired: &mut impl FnMut(Mark<D>, Mark<D>)) {
        let Node { number, mark, .. } = self.nodes[at as usize];
        if number == NONE {
            self.arrange(slot);
        } else {
            self.channel(slot).has_sequences = true;
            if let Some(send) = self.find_send(slot, number) {
                self.counts.matched += 1;
                paired(send, mark);
                self.nodes[at as usize].state = State::Dead;
            } else {
                self.channel(slot).numbered += 1;
            }
        }
        self.settle(slot, paired);
    }

    /// Pairs a receive, or inserts it into the list of those that wait. `has_place` is whether its
    /// place in the order of the starts is known.
    fn place_receive(
        &mut self,
        key: Key,
        node: Node<D>,
        has_place: bool,
        paired: &mut impl FnMut(Mark<D>, Mark<D>),
    ) {
        let Some(slot) = self.open(key) else { return };
        if node.number != NONE {
            let channel = self.channel(slot);
            channel.has_sequences = true;
            if has_place {
                channel.receives_broken.heal();
            }
            if let Some(send) = self.find_send(slot, node.number) {
                self.counts.matched += 1;
                paired(send, node.mark);
                self.pass(slot, node);
                self.settle(slot, paired);
                return;
            }
        } else if !has_place {
            self.counts.unmatchable_by_loss += 1;
            return;
        } else if self.set_aside(slot, true, &Unnumbered::of(&node)) {
            return;
        } else if let Some(send) = self.pop_send(slot, node.started) {
            self.counts.matched += 1;
            paired(send, node.mark);
            return;
        }
        let is_numbered = node.number != NONE;
        if self.push(slot, true, node) {
            self.channel(slot).numbered += u32::from(is_numbered);
            self.arrange(slot);
            self.settle(slot, paired);
        }
    }

    /// Advances the count past a receive that was paired out of order, as soon as all receives
    /// before it are decided.
    fn pass(&mut self, slot: u32, node: Node<D>) {
        let channel = self.channel(slot);
        if channel.receives.first == END {
            channel.next_receive = channel.next_receive.max(node.number.saturating_add(1));
            return;
        }
        let passed = Node {
            state: State::Dead,
            ..node
        };
        self.push(slot, true, passed);
    }

    fn take_start(
        &mut self,
        event: &MessageEvent,
        message: &PointToPoint,
        mark: Mark<D>,
        paired: &mut impl FnMut(Mark<D>, Mark<D>),
    ) {
        if event.request == NONE || event.process as usize >= self.send_losses.len() {
            return;
        }
        // A process that starts a receive with a request again has finished the previous one.
        self.take_cancel(event, paired);
        let started = mark.number;
        let wild = self.receiver(event.process).wild.len();
        if self.requests.len() >= self.limit || wild >= MOST_WILD {
            // Without its start, the place of the receive would be a guess.
            let lost = Lost {
                receives: true,
                ..Lost::default()
            };
            self.lose(event.process, lost, started + 1);
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
            let process = self.receiver_mut(event.process);
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
                number: NONE,
                next: END,
                thread: message.thread,
                state: State::Open,
            };
            let has_peer = !matches!(message.peer, NOBODY | SEVERAL);
            let slot = has_peer.then(|| self.remember(key)).flatten();
            match slot.map(|slot| self.channel(slot).receives_broken) {
                Some(Broken::Loss) => Some(Request::Wild {
                    started,
                    thread: message.thread,
                }),
                Some(Broken::No) => {
                    let placed = slot.filter(|slot| self.push(*slot, true, node));
                    placed.map(|slot| Request::Placed {
                        key,
                        node: self.channel(slot).receives.last,
                        started,
                    })
                }
                Some(Broken::Limit) | None => None,
            }
        };
        if let Some(request) = request {
            self.requests
                .insert((event.process, event.request), request);
        }
    }

    /// Removes and returns the receive that was started with a request.
    ///
    /// After a loss, another operation may have used the request since, so the loss is applied to
    /// the channel first.
    fn take_request(&mut self, process: u32, request: u64) -> Option<Request> {
        let started = self.requests.remove(&(process, request));
        if let Some(Request::Placed { key, .. }) = started
            && let Some(slot) = self.slot_of.get(&key).copied()
        {
            self.refresh(slot);
        }
        started
    }

    /// Ends a started receive without a message.
    fn take_cancel(&mut self, event: &MessageEvent, paired: &mut impl FnMut(Mark<D>, Mark<D>)) {
        match self.take_request(event.process, event.request) {
            Some(Request::Placed { key, node, started }) if self.is_open(node, started) => {
                self.nodes[node as usize].state = State::Dead;
                self.settle_known(key, paired);
            }
            Some(Request::Wild { started, .. }) => {
                self.receiver_mut(event.process).wild.remove(&started);
                self.release(event.process, paired);
            }
            Some(Request::Placed { .. }) | None => {}
        }
    }

    /// Removes a send that was recorded and did not happen: the last waiting one with its request.
    fn take_unsent(&mut self, event: &MessageEvent, message: &PointToPoint) {
        let Some(slot) = self.slot_of.get(&Key::of(event, message)).copied() else {
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
            let mut later = self.nodes[at as usize].next;
            self.unlink(slot, false, before, at);
            self.counts.sends -= 1;
            while later != END {
                let node = &mut self.nodes[later as usize];
                node.number = node.number.saturating_sub(1);
                later = node.next;
            }
            let channel = self.channel(slot);
            channel.next_send = channel.next_send.saturating_sub(1);
        }
    }

    /// Settles the channels that waited for a receive of unknown channel.
    fn release(&mut self, process: u32, paired: &mut impl FnMut(Mark<D>, Mark<D>)) {
        let held = std::mem::take(&mut self.receiver_mut(process).held);
        held.into_iter()
            .for_each(|key| self.settle_known(key, paired));
    }

    fn is_open(&self, node: u32, started: u64) -> bool {
        let node = &self.nodes[node as usize];
        node.mark.number == started && node.state == State::Open
    }

    /// Returns the slot of the channel of an event. If there is no room for the channel, counts the
    /// event and returns `None`.
    fn open(&mut self, key: Key) -> Option<u32> {
        let known = self.remember(key);
        self.counts.over_limit += u64::from(known.is_none());
        known
    }

    /// Returns the slot of a channel, which is created if needed, and applies the losses of its
    /// processes. `None` means that there is no room.
    fn remember(&mut self, key: Key) -> Option<u32> {
        let slot = match self.slot_of.get(&key) {
            Some(slot) => *slot,
            None => self.new_channel(key)?,
        };
        self.refresh(slot);
        Some(slot)
    }

    fn new_channel(&mut self, key: Key) -> Option<u32> {
        if self.slot_of.len() >= self.limit && !self.is_full {
            // An idle channel contains nothing that a new one would lack.
            let (slots, free) = (&self.slots, &mut self.free_slots);
            self.slot_of.retain(|_, slot| {
                let is_idle = slots[*slot as usize].is_idle();
                if is_idle {
                    free.push(*slot);
                }
                !is_idle
            });
            self.is_full = self.slot_of.len() >= self.limit / 2;
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
        self.slot_of.insert(key, slot);
        Some(slot)
    }

    #[inline]
    fn channel(&mut self, slot: u32) -> &mut Channel {
        &mut self.slots[slot as usize]
    }

    fn losses(&self, key: Key) -> (u32, u32) {
        let sends = self.send_losses.get(key.from as usize);
        let receiver = self.receivers.get(key.to as usize / SHARDS);
        (
            sends.copied().unwrap_or(0),
            receiver.map_or(0, |receiver| receiver.receive_losses),
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
        let is_sender_hit = channel.sender_losses != sender_losses;
        (channel.sender_losses, channel.receiver_losses) = (sender_losses, receiver_losses);
        let key = channel.key;
        if is_sender_hit {
            self.counts.unmatchable_by_loss += self.tails.lose(key, false);
        }
        if is_receiver_hit {
            self.counts.unmatchable_by_loss += self.tails.lose(key, true);
            self.keep_certain(slot);
        }
        self.flush(slot);
    }

    /// After a loss of receives, assigns numbers to waiting receives whose numbers are certain, and
    /// drops the others. A started receive whose completion may be lost has no certain number, nor
    /// has any later one without a sequence number.
    fn keep_certain(&mut self, slot: u32) {
        let channel = *self.channel(slot);
        let certain_before = self.receiver(channel.key.to).certain_before;
        let mut next = channel.next_receive;
        let (mut kept, mut numbered, mut is_certain) = (List::EMPTY, 0, true);
        let places: Vec<u32> = self.places(channel.receives).collect();
        for at in places {
            let node = &mut self.nodes[at as usize];
            let has_number = node.number != NONE;
            is_certain &=
                node.state != State::Open && (has_number || node.started < certain_before);
            if is_certain && node.state == State::Ready && !has_number {
                node.number = next;
            }
            if is_certain && node.number != NONE {
                next = next.max(node.number.saturating_add(1));
            }
            if node.state == State::Ready && node.number != NONE {
                node.next = END;
                numbered += 1;
                if kept.last == END {
                    kept.first = at;
                } else {
                    self.nodes[kept.last as usize].next = at;
                }
                kept.last = at;
            } else {
                self.counts.unmatchable_by_loss += u64::from(node.state == State::Ready);
                self.release_node(at);
            }
        }
        let channel = self.channel(slot);
        (channel.receives, channel.numbered) = (kept, numbered);
        channel.next_receive = next;
    }

    /// Drops events that wait for a side that can no longer be counted and has no events left.
    /// After a loss, nothing is dropped if events have sequence numbers: that side may be counted
    /// again.
    fn flush(&mut self, slot: u32) {
        let channel = *self.channel(slot);
        let is_over = |broken: Broken| match broken {
            Broken::No => false,
            Broken::Loss => !channel.has_sequences,
            Broken::Limit => true,
        };
        if is_over(channel.sends_broken) && channel.sends.first == END {
            self.drop_ready(slot, true, channel.sends_broken);
        }
        if is_over(channel.receives_broken) && self.channel(slot).receives.first == END {
            self.drop_ready(slot, false, channel.receives_broken);
        }
    }

    /// Returns whether the number of an event without a sequence number is unknown. Such an event
    /// is kept until the end, or only counted.
    fn set_aside(&mut self, slot: u32, is_receive: bool, message: &Unnumbered<D>) -> bool {
        let channel = *self.channel(slot);
        match channel.broken(is_receive) {
            Broken::No => return false,
            Broken::Loss if channel.has_sequences => self.counts.unmatchable_by_loss += 1,
            Broken::Loss => {
                let dropped = self.tails.keep(channel.key, is_receive, message);
                self.counts.unmatchable_by_loss += dropped;
            }
            Broken::Limit => self.counts.over_limit += 1,
        }
        true
    }

    /// Removes and returns the first send, for a receive without a sequence number before which no
    /// other one waits. `None` means that the match is not certain yet, which is rare. `started` is
    /// the number of the event that started the receive.
    fn pop_send(&mut self, slot: u32, started: u64) -> Option<Mark<D>> {
        let channel = &self.slots[slot as usize];
        let at = channel.sends.first;
        if channel.receives.first != END
            || at == END
            || self.nodes[at as usize].number != channel.next_receive
            || self.is_held(channel.key, started)
        {
            return None;
        }
        let channel = self.channel(slot);
        channel.next_receive = channel.next_receive.saturating_add(1);
        Some(self.pop(slot, false))
    }

    /// Removes and returns the first receive, for a send with this number before which no other one
    /// waits. `None` means that the match is not certain yet.
    fn pop_receive(&mut self, slot: u32, number: u64) -> Option<Mark<D>> {
        let channel = &self.slots[slot as usize];
        let at = channel.receives.first;
        if channel.sends.first != END || at == END {
            return None;
        }
        let node = &self.nodes[at as usize];
        let (started, is_numbered) = (node.started, node.number != NONE);
        let of_receive = if is_numbered {
            node.number
        } else {
            channel.next_receive
        };
        if node.state != State::Ready
            || of_receive != number
            || !is_numbered && self.is_held(channel.key, started)
        {
            return None;
        }
        let channel = self.channel(slot);
        channel.next_receive = channel.next_receive.max(number.saturating_add(1));
        channel.numbered -= u32::from(is_numbered);
        Some(self.pop(slot, true))
    }

    /// Returns whether a receive that was started earlier can still turn out to belong to a
    /// channel.
    fn is_held(&self, key: Key, started: u64) -> bool {
        let wild = &self.receiver(key.to).wild;
        let mut earlier = wild.range(..started);
        earlier.any(|(_, pattern)| pattern.fits(&key))
    }

    /// Pairs the first receives of a channel with their sends, as long as the matches are certain.
    fn settle(&mut self, slot: u32, paired: &mut impl FnMut(Mark<D>, Mark<D>)) {
        let key = self.channel(slot).key;
        loop {
            let channel = *self.channel(slot);
            let first = channel.receives.first;
            if first == END {
                break;
            }
            let receive = self.nodes[first as usize];
            match receive.state {
                State::Open => break,
                State::Dead => {
                    if receive.number != NONE {
                        let next = receive.number.saturating_add(1);
                        self.channel(slot).next_receive = channel.next_receive.max(next);
                    }
                    self.pop(slot, true);
                    continue;
                }
                State::Ready => {}
            }
            let is_numbered = receive.number != NONE;
            if !is_numbered && self.is_held(key, receive.started) {
                self.receiver_mut(key.to).held.insert(key);
                break;
            }
            let number = if is_numbered {
                receive.number
            } else {
                channel.next_receive
            };
            let send = self.find_send(slot, number);
            // Sends arrive in order: a later one shows that this one is missing.
            if send.is_none() && (channel.next_send <= number || channel.sends_broken != Broken::No)
            {
                break;
            }
            let channel = self.channel(slot);
            channel.next_receive = channel.next_receive.max(number.saturating_add(1));
            channel.numbered -= u32::from(is_numbered);
            self.pop(slot, true);
            match send {
                Some(send) => {
                    self.counts.matched += 1;
                    paired(send, receive.mark);
                }
                None => *self.unmatched(key, true) += 1,
            }
        }
        let channel = self.channel(slot);
        if channel.sends_broken != Broken::No || channel.receives_broken != Broken::No {
            self.flush(slot);
        }
    }

    /// Returns the counter for the events of a channel that have no partner.
    fn unmatched(&mut self, key: Key, is_receive: bool) -> &mut u64 {
        match (self.losses(key), is_receive) {
            ((0, 0), false) => &mut self.counts.unmatched_sends,
            ((0, 0), true) => &mut self.counts.unmatched_receives,
            _ => &mut self.counts.unmatchable_by_loss,
        }
    }

    /// Settles a channel if it is still stored, after it has applied the losses of its processes.
    fn settle_known(&mut self, key: Key, paired: &mut impl FnMut(Mark<D>, Mark<D>)) {
        if let Some(slot) = self.slot_of.get(&key).copied() {
            self.refresh(slot);
            self.settle(slot, paired);
        }
    }

    /// Pairs the remaining events of a channel.
    ///
    /// If nothing was lost, receives that were started and neither completed nor were cancelled
    /// have each taken a send: the program did not wait for them, or not to the end.
    fn settle_last(
        &mut self,
        slot: u32,
        is_whole: bool,
        paired: &mut impl FnMut(Mark<D>, Mark<D>),
    ) {
        let channel = *self.channel(slot);
        let mut next = channel.next_receive;
        let receives: Vec<u32> = self.places(channel.receives).collect();
        for at in receives {
            let receive = self.nodes[at as usize];
            if receive.number == NONE
                && (!is_whole
                    || receive.state == State::Dead
                    || self.is_held(channel.key, receive.started))
            {
                if receive.state == State::Dead {
                    continue;
                }
                break;
            }
            let number = if receive.number == NONE {
                next
            } else {
                receive.number
            };
            next = next.max(number.saturating_add(1));
            if receive.state == State::Ready
                && let Some(send) = self.find_send(slot, number)
            {
                self.counts.matched += 1;
                paired(send, receive.mark);
                self.nodes[at as usize].state = State::Dead;
            }
        }
    }

    /// Returns the number of started receives that have not ended, except those whose end may be lost.
    fn count_open(&self) -> u64 {
        let is_open = |process: u32, request: &Request| {
            let (Request::Placed { started, .. } | Request::Wild { started, .. }) = *request;
            let lost_at = self.receiver(process).receives_lost_at;
            lost_at.is_none_or(|lost_at| started >= lost_at)
        };
        let open = self.requests.iter();
        open.filter(|((process, _), request)| is_open(*process, request))
            .count() as u64
    }

    /// Pairs the messages that are still in flight as far as possible, and counts the others.
    /// `collectives` are those of all shards, and are finished; `has_end` is whether the trace contains the end of the run.
    pub(super) fn finish(
        &mut self,
        collectives: &[Collectives<D>],
        has_end: bool,
        paired: &mut impl FnMut(Mark<D>, Mark<D>),
    ) {
        self.match_from_end(collectives, paired);
        if has_end {
            self.counts.open_receives += self.count_open();
        }
        let channels = std::mem::take(&mut self.slot_of);
        for (key, slot) in &channels {
            let channel = self.slots[*slot as usize];
            let is_whole = self.losses(*key) == (0, 0);
            let is_over =
                channel.sends_broken == Broken::Limit || channel.receives_broken == Broken::Limit;
            if !is_over {
                self.settle_last(*slot, is_whole, paired);
            }
            for is_receive in [false, true] {
                let places = self.places(self.list(*slot, is_receive));
                let ready = places.filter(|at| self.nodes[*at as usize].state == State::Ready);
                let left = ready.count() as u64;
                if is_over {
                    self.counts.over_limit += left;
                } else {
                    *self.unmatched(*key, is_receive) += left;
                }
            }
        }
    }
}
