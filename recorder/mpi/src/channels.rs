//! Sequence numbers of messages: which of the messages of its channel a send or a receive is.
//!
//! A channel is a communicator, the rank in the run of the other process, and a tag. MPI's messages of a
//! channel do not overtake each other (MPI 5.0, section 3.5): the send with a number is taken by the
//! receive with the same number, in the order in which receives are started. Both sides count their
//! own calls, also calls of which no event is recorded, so that numbers of two recordings are
//! comparable after a loss in either.
//!
//! A receive whose channel is known when it starts is counted at its start; a receive with a wildcard is
//! counted when it completes, because only its status contains the channel. So a counter is right
//! whenever no receive with a wildcard is pending that could be of the channel. What is not certain has the
//! number [`UNKNOWN`]:
//! - a receive that starts while a receive with a wildcard is pending that could take the same message;
//! - a receive with a wildcard that completes while an earlier one is pending that could have taken its message,
//!   or after a receive of its channel that was started later;
//! - everything in a channel that several threads use: in which order the library sees their calls is not known;
//! - everything of a communicator after a message that was cancelled when a later one of its channel was
//!   started, or after a receive that took a message of an unknown channel;
//! - everything in channels beyond the first ones of a communicator that its tables have room for, about 70 000 in each
//!   direction.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};

use crate::sync::lock;

/// Number of a message whose number in its channel is not certain: −1 in events.
pub(crate) const UNKNOWN: u64 = u64::MAX;

/// Number of channels in each table of a communicator. A table is made when the previous one is
/// full.
const TABLES: [usize; 4] = [1 << 6, 1 << 10, 1 << 13, 1 << 16];
/// Number of entries of a table that are tried for a channel.
const PROBES: usize = 8;

/// Owner of a channel that no thread has used.
const NO_THREAD: u32 = 0;
/// Owner of a channel that several threads have used.
const SHARED: u32 = u32::MAX;

/// Whether MPI was begun without this library, so that its counters do not include all messages.
static IS_PARTIAL: AtomicBool = AtomicBool::new(false);

/// Makes all numbers unknown: the program has called MPI before without this library.
pub(crate) fn forget_all() {
    IS_PARTIAL.store(true, Ordering::Relaxed);
}

/// Returns a number of the calling thread, from 1.
#[inline]
pub(crate) fn thread() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    thread_local! {
        static OWN: u32 = NEXT.fetch_add(1, Ordering::Relaxed);
    }
    OWN.try_with(|own| *own).unwrap_or(SHARED)
}

/// A channel within a communicator and a direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Channel {
    /// Rank in the run of the other process.
    pub(crate) peer: u32,
    pub(crate) tag: u32,
    /// Whether the messages are partitioned: these match among themselves only.
    pub(crate) is_partitioned: bool,
}

impl Channel {
    /// A channel of messages that are not partitioned.
    #[inline(always)]
    pub(crate) const fn new(peer: u32, tag: u32) -> Self {
        Self {
            peer,
            tag,
            is_partitioned: false,
        }
    }

    /// Returns the channel as one number above 0. Ranks are below 2³¹.
    #[inline(always)]
    const fn key(self) -> u64 {
        let partitioned = (self.is_partitioned as u64) << 63;
        (partitioned | (self.peer as u64) << 32 | self.tag as u64).wrapping_add(1)
    }
}

/// The messages of a channel that were counted.
#[derive(Debug)]
struct Counter {
    /// Key of its channel. 0 means that the entry is free.
    key: AtomicU64,
    count: AtomicU64,
    /// One more than the number of the last receive with a wildcard before a message that was counted.
    wildcards: AtomicU64,
    /// The only thread that has used the channel, or [`NO_THREAD`], or [`SHARED`].
    owner: AtomicU32,
}

impl Counter {
    const fn new() -> Self {
        Self {
            key: AtomicU64::new(0),
            count: AtomicU64::new(0),
            wildcards: AtomicU64::new(0),
            owner: AtomicU32::new(NO_THREAD),
        }
    }

    /// Returns whether this thread is the only one that has used the channel so far.
    #[inline]
    fn is_of(&self, own: u32) -> bool {
        let owner = self.owner.load(Ordering::Relaxed);
        owner == own || (owner == NO_THREAD && self.adopt(own))
    }

    #[cold]
    fn adopt(&self, own: u32) -> bool {
        let (order, seen) = (Ordering::Relaxed, Ordering::Relaxed);
        self.owner
            .compare_exchange(NO_THREAD, own, order, seen)
            .is_ok()
    }

    /// Returns the next number. In a channel that several threads have used it is unknown.
    #[inline(always)]
    fn next(&self, thread: Option<u32>) -> u64 {
        if thread.is_some_and(|thread| !self.is_of(thread)) {
            self.owner.store(SHARED, Ordering::Relaxed);
            return UNKNOWN;
        }
        // No other thread counts here concurrently.
        let count = self.count.load(Ordering::Relaxed);
        self.count.store(count + 1, Ordering::Relaxed);
        count
    }

    /// Returns whether the last message was the one with this number, which is then not counted any more.
    fn take_back(&self, number: u64) -> bool {
        let (order, seen) = (Ordering::Relaxed, Ordering::Relaxed);
        self.count
            .compare_exchange(number + 1, number, order, seen)
            .is_ok()
    }
}

/// Counters of a communicator in one direction. They are only added, and freed with it: so readers need no lock.
#[derive(Debug)]
struct Counters {
    tables: [OnceLock<Box<[Counter]>>; TABLES.len()],
}

impl Counters {
    const fn new() -> Self {
        Self {
            tables: [const { OnceLock::new() }; TABLES.len()],
        }
    }

    /// Returns the bytes of its tables.
    fn bytes(&self) -> usize {
        let tables = self.tables.iter().filter_map(OnceLock::get);
        tables.map(|table| size_of_val::<[Counter]>(table)).sum()
    }

    /// Returns the counter of a channel, or `None` if there are too many channels.
    #[inline(always)]
    fn of(&self, channel: Channel) -> Option<&Counter> {
        let key = channel.key();
        let hash = key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        if let Some(table) = self.tables[0].get() {
            let counter = &table[(hash >> (64 - TABLES[0].trailing_zeros())) as usize];
            if counter.key.load(Ordering::Relaxed) == key {
                return Some(counter);
            }
        }
        self.of_any(key, hash)
    }

    /// Finds a counter, or adds it.
    #[inline(never)]
    fn of_any(&self, key: u64, hash: u64) -> Option<&Counter> {
        for (table, len) in self.tables.iter().zip(TABLES) {
            let table = table.get_or_init(|| (0..len).map(|_| Counter::new()).collect());
            let first = (hash >> (64 - len.trailing_zeros())) as usize;
            for place in (0..PROBES).map(|probe| (first + probe) % len) {
                let counter = &table[place];
                let (order, seen) = (Ordering::Relaxed, Ordering::Relaxed);
                let known = match counter.key.load(seen) {
                    // Another thread may add a channel here at the same time: one of them gets the entry.
                    0 => counter.key.compare_exchange(0, key, order, seen),
                    known => Err(known),
                };
                if known.is_ok() || known == Err(key) {
                    return Some(counter);
                }
            }
        }
        None
    }
}

/// A receive with a wildcard that is pending.
#[derive(Debug)]
struct Wildcard {
    /// Number among the receives with wildcards of this process.
    number: u64,
    /// Object of the communicator.
    communicator: u32,
    /// Rank in the run; −1 means any.
    peer: i32,
    /// The tag; −1 means any.
    tag: i32,
    thread: Option<u32>,
}

impl Wildcard {
    fn fits(&self, communicator: u32, channel: Channel) -> bool {
        self.communicator == communicator
            && !channel.is_partitioned
            && (self.peer < 0 || self.peer as u32 == channel.peer)
            && (self.tag < 0 || self.tag as u32 == channel.tag)
    }
}

static WILDCARDS: Mutex<Vec<Wildcard>> = Mutex::new(Vec::new());
/// Number of pending receives with wildcards. If it is 0, receives need not take the lock.
static WILDCARD_COUNT: AtomicUsize = AtomicUsize::new(0);
/// Number of receives with wildcards that were started.
static NEXT_WILDCARD: AtomicU64 = AtomicU64::new(0);

/// The messages of a communicator. A thread is the number of the calling thread, or `None` where no two threads call MPI
/// concurrently.
#[derive(Debug)]
pub(crate) struct Channels {
    /// Object of the communicator.
    object: u32,
    sent: Counters,
    received: Counters,
    /// Whether messages cannot be numbered any more.
    is_unknown: AtomicBool,
}

impl Channels {
    pub(crate) const fn new(object: u32) -> Self {
        Self {
            object,
            sent: Counters::new(),
            received: Counters::new(),
            is_unknown: AtomicBool::new(false),
        }
    }

    /// Returns the bytes of its tables.
    pub(crate) fn bytes(&self) -> usize {
        self.sent.bytes() + self.received.bytes()
    }

    #[inline(always)]
    fn are_unknown(&self) -> bool {
        IS_PARTIAL.load(Ordering::Relaxed) || self.is_unknown.load(Ordering::Relaxed)
    }

    /// Counts a send, and returns its number.
    #[inline(always)]
    pub(crate) fn send(&self, channel: Channel, thread: Option<u32>) -> u64 {
        match self.sent.of(channel) {
            Some(counter) if !self.are_unknown() => counter.next(thread),
            _ => UNKNOWN,
        }
    }

    /// Takes back a send that failed or was cancelled.
    #[cold]
    pub(crate) fn unsend(&self, channel: Channel, number: u64) {
        if let Some(counter) = self.sent.of(channel).filter(|_| number != UNKNOWN)
            && !counter.take_back(number)
        {
            self.give_up();
        }
    }

    /// Counts a receive of a known channel that starts, and returns its number.
    #[inline(always)]
    pub(crate) fn receive(&self, channel: Channel, thread: Option<u32>) -> u64 {
        let Some(counter) = self.received.of(channel) else {
            return UNKNOWN;
        };
        let number = counter.next(thread);
        if WILDCARD_COUNT.load(Ordering::Relaxed) != 0 && self.is_held(channel, counter) {
            return UNKNOWN;
        }
        if self.are_unknown() { UNKNOWN } else { number }
    }

    /// Returns whether a receive with a wildcard is pending that could be of a channel, and marks the channel
    /// as counted since.
    #[cold]
    fn is_held(&self, channel: Channel, counter: &Counter) -> bool {
        let wildcards = lock(&WILDCARDS);
        let last = wildcards
            .iter()
            .rfind(|wildcard| wildcard.fits(self.object, channel));
        if let Some(last) = last {
            counter
                .wildcards
                .fetch_max(last.number + 1, Ordering::Relaxed);
        }
        last.is_some()
    }

    /// Returns the number of a receive that completes, if it is still certain.
    #[inline(always)]
    pub(crate) fn received(&self, channel: Channel, number: u64, thread: Option<u32>) -> u64 {
        if number == UNKNOWN || self.are_unknown() {
            return UNKNOWN;
        }
        if thread.is_some() && self.is_contested(channel, thread) {
            return UNKNOWN;
        }
        number
    }

    /// Returns whether other threads use a channel, or may have taken a message of it.
    fn is_contested(&self, channel: Channel, thread: Option<u32>) -> bool {
        let counter = self.received.of(channel);
        counter.is_none_or(|counter| counter.owner.load(Ordering::Relaxed) == SHARED)
            || WILDCARD_COUNT.load(Ordering::Relaxed) != 0
                && lock(&WILDCARDS).iter().any(|wildcard| {
                    wildcard.thread != thread && wildcard.fits(self.object, channel)
                })
    }

    /// Takes back a receive of a known channel that took no message.
    #[cold]
    pub(crate) fn unreceive(&self, channel: Channel, number: u64) {
        let counter = self.received.of(channel);
        let is_last = counter.is_some_and(|counter| number != UNKNOWN && counter.take_back(number));
        if !is_last {
            self.give_up();
        }
    }

    /// Makes the numbers of all later messages unknown, because those of messages that were already
    /// started are wrong.
    #[cold]
    pub(crate) fn give_up(&self) {
        self.is_unknown.store(true, Ordering::Relaxed);
    }

    /// Registers a receive with a wildcard that starts, and returns its number among these.
    /// A peer or tag of −1 is any.
    #[cold]
    pub(crate) fn start_wildcard(&self, peer: i32, tag: i32, thread: Option<u32>) -> u64 {
        let mut wildcards = lock(&WILDCARDS);
        let number = NEXT_WILDCARD.fetch_add(1, Ordering::Relaxed);
        wildcards.push(Wildcard {
            number,
            communicator: self.object,
            peer,
            tag,
            thread,
        });
        WILDCARD_COUNT.store(wildcards.len(), Ordering::Relaxed);
        number
    }

    /// Removes a receive with a wildcard, and returns the number of the message that it took from a channel.
    /// `None` means that it took none.
    #[cold]
    pub(crate) fn end_wildcard(
        &self,
        own: u64,
        taken: Option<Channel>,
        thread: Option<u32>,
    ) -> u64 {
        let mut wildcards = lock(&WILDCARDS);
        wildcards.retain(|wildcard| wildcard.number != own);
        WILDCARD_COUNT.store(wildcards.len(), Ordering::Relaxed);
        let Some(channel) = taken else {
            return UNKNOWN;
        };
        let Some(counter) = self.received.of(channel) else {
            return UNKNOWN;
        };
        let number = counter.next(thread);
        let later = counter.wildcards.fetch_max(own + 1, Ordering::Relaxed);
        // The order in which other threads' calls reached the library is not known.
        let mut others = wildcards
            .iter()
            .filter(|wildcard| wildcard.number < own || wildcard.thread != thread);
        let is_certain =
            later <= own && !others.any(|wildcard| wildcard.fits(self.object, channel));
        if is_certain && !self.are_unknown() {
            number
        } else {
            UNKNOWN
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    /// A receive: the message that it waits for, and its progress.
    struct Receive {
        peer: i32,
        tag: i32,
        thread: Option<u32>,
        number: u64,
        is_posted: bool,
        /// Channel and number of the message that the library has given to it.
        message: Option<(Channel, u64)>,
        is_over: bool,
    }

    impl Receive {
        fn fits(&self, channel: Channel) -> bool {
            (self.peer < 0 || self.peer as u32 == channel.peer)
                && (self.tag < 0 || self.tag as u32 == channel.tag)
        }
    }

    /// A process that receives in one communicator, and its MPI library.
    struct Simulation {
        channels: Channels,
        receives: Vec<Receive>,
        /// Receives without a message, in the order in which they reached the library.
        posted: Vec<usize>,
        /// Messages without a receive.
        unexpected: Vec<(Channel, u64)>,
        sent: HashMap<(u32, u32), u64>,
        known: u64,
        wrong: Vec<(u64, u64)>,
    }

    impl Simulation {
        fn new() -> Self {
            static NEXT: AtomicU32 = AtomicU32::new(0);
            Self {
                channels: Channels::new(NEXT.fetch_add(1, Ordering::Relaxed)),
                receives: Vec::new(),
                posted: Vec::new(),
                unexpected: Vec::new(),
                sent: HashMap::new(),
                known: 0,
                wrong: Vec::new(),
            }
        }

        fn send(&mut self, peer: u32, tag: u32) {
            let next = self.sent.entry((peer, tag)).or_default();
            let message = (Channel::new(peer, tag), *next);
            *next += 1;
            let receives = &self.receives;
            let taker = self
                .posted
                .iter()
                .position(|at| receives[*at].fits(message.0));
            match taker {
                Some(place) => {
                    let at = self.posted.remove(place);
                    self.receives[at].message = Some(message);
                }
                None => self.unexpected.push(message),
            }
        }

        /// Starts a receive of a thread. It has not reached the library yet.
        fn start(&mut self, peer: i32, tag: i32, thread: Option<u32>) {
            let number = if peer < 0 || tag < 0 {
                self.channels.start_wildcard(peer, tag, thread)
            } else {
                let channel = Channel::new(peer as u32, tag as u32);
                self.channels.receive(channel, thread)
            };
            self.receives.push(Receive {
                peer,
                tag,
                thread,
                number,
                is_posted: false,
                message: None,
                is_over: false,
            });
        }

        /// Passes a thread's first started receive to the library.
        fn post(&mut self, thread: Option<u32>) {
            let is_own = |receive: &Receive| receive.thread == thread && !receive.is_posted;
            let Some(at) = self.receives.iter().position(is_own) else {
                return;
            };
            let receive = &mut self.receives[at];
            receive.is_posted = true;
            match self
                .unexpected
                .iter()
                .position(|(channel, _)| receive.fits(*channel))
            {
                Some(place) => receive.message = Some(self.unexpected.remove(place)),
                None => self.posted.push(at),
            }
        }

        fn pick(&self, pick: usize, is_wanted: impl Fn(&Receive) -> bool) -> Option<usize> {
            let places = (0..self.receives.len()).filter(|at| is_wanted(&self.receives[*at]));
            let places: Vec<usize> = places.collect();
            places.get(pick.checked_rem(places.len())?).copied()
        }

        fn complete(&mut self, pick: usize) {
            let is_ready = |receive: &Receive| receive.message.is_some() && !receive.is_over;
            let Some(at) = self.pick(pick, is_ready) else {
                return;
            };
            let receive = &mut self.receives[at];
            receive.is_over = true;
            let Some((channel, number)) = receive.message else {
                return;
            };
            let found = if receive.peer < 0 || receive.tag < 0 {
                let taken = Some(channel);
                self.channels
                    .end_wildcard(receive.number, taken, receive.thread)
            } else {
                self.channels
                    .received(channel, receive.number, receive.thread)
            };
            if found != UNKNOWN {
                self.known += 1;
                if found != number {
                    self.wrong.push((found, number));
                }
            }
        }

        fn cancel(&mut self, pick: usize) {
            let is_waiting = |receive: &Receive| {
                receive.is_posted && receive.message.is_none() && !receive.is_over
            };
            let Some(at) = self.pick(pick, is_waiting) else {
                return;
            };
            self.posted.retain(|posted| *posted != at);
            let receive = &mut self.receives[at];
            receive.is_over = true;
            if receive.peer < 0 || receive.tag < 0 {
                self.channels.end_wildcard(receive.number, None, None);
            } else {
                let channel = Channel::new(receive.peer as u32, receive.tag as u32);
                self.channels.unreceive(channel, receive.number);
            }
        }
    }

    /// One step: action, thread, peer, tag, and a number that selects a receive.
    type Step = (u8, u32, i32, i32, usize);

    fn steps(kinds: std::ops::Range<u8>, least: i32) -> impl Strategy<Value = Vec<Step>> {
        let step = (kinds, 1..4_u32, least..3_i32, least..2_i32, any::<usize>());
        prop::collection::vec(step, 0..200)
    }

    /// Runs steps with receives of several threads or of one, and completes all receives that are
    /// ready.
    fn run(steps: Vec<Step>, has_threads: bool) -> Simulation {
        let mut simulation = Simulation::new();
        for (step, thread, peer, tag, pick) in steps {
            let thread = has_threads.then_some(thread);
            match step {
                0 => simulation.send(peer.max(0) as u32, tag.max(0) as u32),
                1 => {
                    // A thread's calls reach the library in their order.
                    simulation.post(thread);
                    simulation.start(peer, tag, thread);
                    if !has_threads {
                        simulation.post(thread);
                    }
                }
                2 => simulation.post(thread),
                3 => simulation.complete(pick),
                _ => simulation.cancel(pick),
            }
        }
        while simulation
            .receives
            .iter()
            .any(|r| r.message.is_some() && !r.is_over)
        {
            simulation.complete(0);
        }
        simulation
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4096))]

        #[test]
        fn a_number_that_is_known_is_the_messages(steps in steps(0..5, -1), has_threads in any::<bool>()) {
            let simulation = run(steps, has_threads);
            prop_assert!(simulation.wrong.is_empty(), "{:?}", simulation.wrong);
        }

        #[test]
        fn without_wildcards_and_cancels_all_numbers_are_known(steps in steps(0..4, 0)) {
            let simulation = run(steps, false);
            prop_assert!(simulation.wrong.is_empty(), "{:?}", simulation.wrong);
            let received = simulation.receives.iter().filter(|receive| receive.is_over).count();
            prop_assert_eq!(simulation.known, received as u64);
        }
    }

    #[test]
    fn receives_of_any_source_are_numbered_when_each_waits_alone() {
        let mut simulation = Simulation::new();
        for round in 0..100 {
            simulation.send(round % 3, 0);
            simulation.start(-1, -1, None);
            simulation.post(None);
            simulation.complete(0);
        }
        assert_eq!((simulation.known, simulation.wrong.len()), (100, 0));
    }

    #[test]
    fn many_channels_have_counters_of_their_own() {
        let channels = Channels::new(u32::MAX);
        let mut unknown = 0;
        for round in 0..2 {
            for tag in 0..60_000 {
                let number = channels.send(Channel::new(7, tag), None);
                unknown += u64::from(number == UNKNOWN);
                assert!(number == round || number == UNKNOWN);
            }
        }
        assert!(unknown < 6_000, "{unknown} of 120 000 are unknown");
    }
}
