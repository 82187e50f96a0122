//! Messages of a simulated MPI library, of which events are lost: what is matched, and that nothing is matched wrongly.

use std::collections::{BTreeSet, VecDeque};

use proptest::prelude::*;
use rustc_hash::FxHashMap;

use super::*;
use crate::messages::{
    ANY_TAG, ANYBODY, Collective, NOBODY, NONE, PointToPoint, PointToPointKind, SEVERAL, Semantics,
};

const RANKS: usize = 3;
const ANY_RANK: usize = usize::MAX;

/// Role of an event, with the number of its message in the whole run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum SimulatedEvent {
    Send(usize),
    Receive(usize),
    Other,
}

/// A receive that the library knows and that has not completed.
struct Posted {
    from: usize,
    tag: i64,
    request: u64,
    message: Option<usize>,
}

struct Sent {
    from: usize,
    tag: i64,
    /// Number in its channel.
    sequence: u64,
}

/// A run with one thread in every rank. Messages arrive as soon as they are sent; the library
/// matches them as MPI defines.
#[derive(Default)]
struct Run {
    has_sequences: bool,
    events: Vec<(MessageEvent, SimulatedEvent)>,
    sent: Vec<Sent>,
    posted: [Vec<Posted>; RANKS],
    /// By rank, the messages that no receive has taken.
    unexpected: [VecDeque<usize>; RANKS],
    requests: u64,
    channels: FxHashMap<(usize, usize, i64), u64>,
    operations: u64,
}

impl Run {
    fn event(&mut self, rank: usize, request: u64, content: MessageContent, what: SimulatedEvent) {
        let event = MessageEvent {
            time_ns: self.events.len() as i64,
            communicator: 3,
            request,
            process: rank as u32,
            clock: 0,
            content,
        };
        self.events.push((event, what));
    }

    fn message(&mut self, rank: usize, kind: PointToPointKind, of: &Posted, what: SimulatedEvent) {
        let sequence = match what {
            SimulatedEvent::Send(message) | SimulatedEvent::Receive(message)
                if self.has_sequences =>
            {
                self.sent[message].sequence
            }
            _ => NONE,
        };
        let content = MessageContent::PointToPoint(PointToPoint {
            tag: of.tag,
            sequence,
            peer: if of.from == ANY_RANK {
                ANYBODY
            } else {
                of.from as u32
            },
            thread: 0,
            kind,
        });
        self.event(rank, of.request, content, what);
    }

    fn send(&mut self, from: usize, to: usize, tag: i64) {
        let next = self.channels.entry((from, to, tag)).or_default();
        let message = self.sent.len();
        self.sent.push(Sent {
            from,
            tag,
            sequence: *next,
        });
        *next += 1;
        let of = Posted {
            from: to,
            tag,
            request: NONE,
            message: None,
        };
        self.message(
            from,
            PointToPointKind::Send,
            &of,
            SimulatedEvent::Send(message),
        );
        let fits = |posted: &&mut Posted| {
            posted.message.is_none()
                && [from, ANY_RANK].contains(&posted.from)
                && [tag, ANY_TAG].contains(&posted.tag)
        };
        match self.posted[to].iter_mut().find(fits) {
            Some(posted) => posted.message = Some(message),
            None => self.unexpected[to].push_back(message),
        }
    }

    /// Removes and returns the first message that has arrived and that a receive accepts.
    fn take_unexpected(&mut self, rank: usize, from: usize, tag: i64) -> Option<usize> {
        let sent = &self.sent;
        let fits = |message: &usize| {
            let message = &sent[*message];
            [message.from, ANY_RANK].contains(&from) && [message.tag, ANY_TAG].contains(&tag)
        };
        let place = self.unexpected[rank].iter().position(fits)?;
        self.unexpected[rank].remove(place)
    }

    /// Receives a message with a blocking call. Does nothing if the call would block.
    fn receive(&mut self, rank: usize, from: usize, tag: i64) {
        if let Some(message) = self.take_unexpected(rank, from, tag) {
            self.complete_message(rank, message, NONE);
        }
    }

    fn complete_message(&mut self, rank: usize, message: usize, request: u64) {
        let Sent { from, tag, .. } = self.sent[message];
        let of = Posted {
            from,
            tag,
            request,
            message: None,
        };
        let what = SimulatedEvent::Receive(message);
        self.message(rank, PointToPointKind::Receive, &of, what);
    }

    fn start(&mut self, rank: usize, from: usize, tag: i64) {
        let message = self.take_unexpected(rank, from, tag);
        // Few requests, as in a library that reuses their memory.
        let is_used = |request: u64| move |posted: &Posted| posted.request == request;
        let mut numbers = 0..;
        let request = numbers
            .find(|number| !self.posted[rank].iter().any(is_used(*number)))
            .expect("there is always a next");
        self.requests += 1;
        let posted = Posted {
            from,
            tag,
            request,
            message,
        };
        self.message(
            rank,
            PointToPointKind::ReceiveStart,
            &posted,
            SimulatedEvent::Other,
        );
        self.posted[rank].push(posted);
    }

    fn complete(&mut self, rank: usize, pick: usize) {
        let ready = self.posted[rank].iter().enumerate();
        let ready = ready.filter(|(_, posted)| posted.message.is_some());
        let ready: Vec<usize> = ready.map(|(index, _)| index).collect();
        if ready.is_empty() {
            return;
        }
        let posted = self.posted[rank].remove(ready[pick % ready.len()]);
        if let Some(message) = posted.message {
            self.complete_message(rank, message, posted.request);
        }
    }

    fn barrier(&mut self) {
        for is_begin in [true, false] {
            for rank in 0..RANKS {
                let part = MessageContent::Collective(Collective {
                    place: rank as i64,
                    size: RANKS as u32,
                    sequence: if self.has_sequences {
                        self.operations
                    } else {
                        NONE
                    },
                    root: NOBODY,
                    operation: 0,
                    is_begin,
                    semantics: Semantics::AllToAll,
                    takes_part: true,
                });
                self.event(rank, NONE, part, SimulatedEvent::Other);
            }
        }
        self.operations += 1;
    }

    /// Receives every message, and completes every receive with a message.
    fn finish(&mut self) {
        for rank in 0..RANKS {
            while let Some(posted) = self.posted[rank]
                .iter()
                .find(|posted| posted.message.is_none())
            {
                let from = if posted.from == ANY_RANK {
                    0
                } else {
                    posted.from
                };
                let tag = posted.tag.max(0);
                self.send(from, rank, tag);
            }
        }
        for rank in 0..RANKS {
            while !self.posted[rank].is_empty() {
                self.complete(rank, 0);
            }
            while !self.unexpected[rank].is_empty() {
                self.receive(rank, ANY_RANK, ANY_TAG);
            }
        }
    }

    fn step(&mut self, (step, rank, other, tag, pick): Step) {
        let from = if pick.is_multiple_of(4) {
            ANY_RANK
        } else {
            other
        };
        let of_tag = if pick.is_multiple_of(7) { ANY_TAG } else { tag };
        match step {
            0..4 => self.send(rank, other, tag),
            4..6 => self.receive(rank, from, of_tag),
            6 => self.start(rank, from, of_tag),
            7..9 => self.complete(rank, pick),
            _ => self.barrier(),
        }
    }

    /// Matches the events that are left when some of each rank are lost, and returns how many messages have both events,
    /// and the counts.
    fn matched(&self, losses: &[(usize, usize, usize)]) -> (u64, Matcher) {
        let mut batch = MessageBatch {
            events: Vec::new(),
            losses: Vec::new(),
            details: Vec::new(),
        };
        let mut what = Vec::new();
        let mut places = [0; RANKS];
        let mut is_lost = [false; RANKS];
        for (event, of) in &self.events {
            let rank = event.process as usize;
            let place = places[rank];
            places[rank] += 1;
            let hits =
                |loss: &(usize, usize, usize)| loss.0 == rank && (loss.1..loss.2).contains(&place);
            if losses.iter().any(hits) {
                is_lost[rank] = true;
                continue;
            }
            if std::mem::take(&mut is_lost[rank]) {
                batch
                    .losses
                    .push((batch.events.len(), rank as u32, Lost::ALL));
            }
            batch.events.push(*event);
            what.push(*of);
        }
        for rank in (0..RANKS).filter(|rank| is_lost[*rank]) {
            batch
                .losses
                .push((batch.events.len(), rank as u32, Lost::ALL));
        }
        let has = |wanted: SimulatedEvent| what.contains(&wanted);
        let whole = (0..self.sent.len())
            .filter(|m| has(SimulatedEvent::Send(*m)) && has(SimulatedEvent::Receive(*m)));
        let whole = whole.count() as u64;
        let mut matcher = Matcher::new(RANKS, 1 << 20, true);
        let mut seen = BTreeSet::new();
        let mut pair = |first: Mark, second: Mark| {
            let of = |mark: Mark| what[mark.number as usize];
            match (of(first), of(second)) {
                (SimulatedEvent::Send(one), SimulatedEvent::Receive(other)) => {
                    assert_eq!(one, other, "the messages are not the same");
                    assert!(seen.insert(one), "a message is matched twice");
                }
                (SimulatedEvent::Other, SimulatedEvent::Other) => {}
                other => panic!("no pair: {other:?}"),
            }
        };
        matcher.feed(&batch, &mut pair);
        matcher.finish(&mut pair);
        let moved = with_processes(batch, [1, 1 + SHARDS as u32, 4]);
        for limit in [1 << 20, 5] {
            let (by_shard, in_order) = (
                matched_by_shard(&moved, limit),
                matched_in_order(&moved, limit),
            );
            assert_eq!(by_shard, in_order);
        }
        let counts = matcher.counts();
        assert_eq!(counts.matched, seen.len() as u64);
        let left = counts.unmatchable_by_loss + counts.unmatched_sends + counts.unmatched_receives;
        assert_eq!(
            counts.sends + counts.receives,
            2 * counts.matched + left,
            "each message is in one count: {counts:?}"
        );
        (whole, matcher)
    }
}

/// Number of processes of which some have events.
const PROCESSES: usize = 2 * SHARDS;

/// Returns a batch with other numbers of its processes: of some that are in one shard, and of others.
fn with_processes(mut batch: MessageBatch, numbers: [u32; RANKS]) -> MessageBatch {
    let number = |process: u32| numbers.get(process as usize).copied().unwrap_or(process);
    for event in &mut batch.events {
        event.process = number(event.process);
        match &mut event.content {
            MessageContent::PointToPoint(message) => message.peer = number(message.peer),
            MessageContent::Collective(part) => part.root = number(part.root),
        }
    }
    for (_, process, _) in &mut batch.losses {
        *process = number(*process);
    }
    batch
}

/// The numbers of the events of each pair, in order, and all counts.
type Outcome = (Vec<(u64, u64)>, MessageCounts, CollectiveCounts);

fn outcome(mut pairs: Vec<(u64, u64)>, matcher: &Matcher) -> Outcome {
    pairs.sort_unstable();
    (pairs, matcher.counts(), matcher.collective_counts())
}

fn matched_in_order(batch: &MessageBatch, limit: usize) -> Outcome {
    let mut matcher = Matcher::new(PROCESSES, limit, true);
    let mut pairs = Vec::new();
    let mut pair = |one: Mark, other: Mark| pairs.push((one.number, other.number));
    matcher.feed(batch, &mut pair);
    matcher.finish(&mut pair);
    outcome(pairs, &matcher)
}

/// Matches the events of parts of a batch, of each part the last shard first.
fn matched_by_shard(batch: &MessageBatch, limit: usize) -> Outcome {
    let mut matcher = Matcher::new(PROCESSES, limit, true);
    let mut pairs = Vec::new();
    let mut pair = |one: Mark, other: Mark| pairs.push((one.number, other.number));
    let mut losses = batch.losses.iter().peekable();
    let mut start = 0;
    for events in batch.events.chunks(37) {
        let end = start + events.len();
        let is_last = end == batch.events.len();
        let own = std::iter::from_fn(|| losses.next_if(|loss| is_last || loss.0 < end));
        let part = ShardedBatch::of(MessageBatch {
            events: events.to_vec(),
            losses: own.map(|loss| (loss.0 - start, loss.1, loss.2)).collect(),
            details: Vec::new(),
        });
        let (first, shards) = matcher.shards(part.len());
        let shards: Vec<Shard<'_, ()>> = shards.collect();
        for mut shard in shards.into_iter().rev() {
            shard.feed_collectives(&part, first, &mut pair);
            shard.feed_messages(&part, first, &mut pair);
        }
        start = end;
    }
    if batch.events.is_empty() {
        for (_, process, lost) in losses {
            matcher.lose(*process, *lost);
        }
    }
    matcher.finish(&mut pair);
    outcome(pairs, &matcher)
}

type Step = (u8, usize, usize, i64, usize);

fn run(has_sequences: bool, steps: &[Step]) -> Run {
    let mut run = Run {
        has_sequences,
        ..Run::default()
    };
    steps.iter().for_each(|step| run.step(*step));
    run.finish();
    run
}

fn steps(count: usize) -> impl Strategy<Value = Vec<Step>> {
    let step = (0..10_u8, 0..RANKS, 0..RANKS, 0..2_i64, any::<usize>());
    prop::collection::vec(step, 0..count)
}

fn losses() -> impl Strategy<Value = Vec<(usize, usize, usize)>> {
    let loss = (0..RANKS, 0..200_usize, 1..20_usize);
    let loss = loss.prop_map(|(rank, first, count)| (rank, first, first + count));
    prop::collection::vec(loss, 0..4)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn with_sequence_numbers_every_message_of_which_both_events_are_left_is_matched(
        steps in steps(400), losses in losses(),
    ) {
        let (whole, matcher) = run(true, &steps).matched(&losses);
        prop_assert_eq!(matcher.counts().matched, whole);
    }

    #[test]
    fn without_sequence_numbers_nothing_is_matched_wrongly_after_a_loss(
        steps in steps(400), losses in losses(),
    ) {
        let (whole, matcher) = run(false, &steps).matched(&losses);
        prop_assert!(matcher.counts().matched <= whole);
        if losses.is_empty() {
            prop_assert_eq!(matcher.counts().matched, whole);
        }
    }
}

/// A ring with a barrier in each round.
fn ring(has_sequences: bool, rounds: usize) -> Run {
    let mut run = Run {
        has_sequences,
        ..Run::default()
    };
    for _ in 0..rounds {
        for rank in 0..RANKS {
            run.start(rank, (rank + 1) % RANKS, 0);
        }
        for rank in 0..RANKS {
            run.send((rank + 1) % RANKS, rank, 0);
        }
        for rank in 0..RANKS {
            run.complete(rank, 0);
        }
        run.barrier();
    }
    run
}

#[test]
fn messages_without_sequence_numbers_are_matched_again_after_a_loss() {
    let run = ring(false, 1000);
    let all = run.sent.len() as u64;
    // The first two rounds of rank 1.
    let (whole, matcher) = run.matched(&[(1, 0, 10)]);
    assert_eq!(whole, all - 4);
    assert_eq!(matcher.counts().matched, whole);
    assert_eq!(matcher.counts().unmatchable_by_loss, 4);
    assert_eq!(matcher.collective_counts().unmatchable_by_loss, 0);
}

#[test]
fn a_loss_after_the_last_operation_of_all_proves_nothing() {
    let run = ring(false, 100);
    let events = 500;
    let (_, matcher) = run.matched(&[(1, events - 2, events)]);
    assert_eq!(matcher.counts().matched, run.sent.len() as u64);
    let mut longer = ring(false, 100);
    (0..5).for_each(|_| longer.send(0, 1, 0));
    (0..5).for_each(|_| longer.receive(1, 0, 0));
    let (whole, matcher) = longer.matched(&[(1, events, events + 1)]);
    assert_eq!(
        matcher.counts().matched,
        whole - 4,
        "of the channel's end nothing is known"
    );
}

/// Events as a damaged or hostile recording may have them.
fn any_event() -> impl Strategy<Value = MessageEvent> {
    let process = || {
        let known = prop::sample::select(vec![0, 1, 17, 4, 31, 32, NOBODY, SEVERAL, ANYBODY]);
        prop_oneof![8 => known, 1 => any::<u32>()]
    };
    let number = || prop_oneof![4 => 0..4_u64, 4 => Just(NONE), 1 => any::<u64>()];
    let kinds = vec![
        PointToPointKind::Send,
        PointToPointKind::Receive,
        PointToPointKind::ReceiveStart,
        PointToPointKind::Cancel,
        PointToPointKind::Unsent,
    ];
    let semantics = vec![
        Semantics::AllToAll,
        Semantics::OneToAll,
        Semantics::AllToOne,
        Semantics::Prefix,
        Semantics::Nothing,
    ];
    let message = (process(), -1..2_i64, number(), prop::sample::select(kinds)).prop_map(
        |(peer, tag, sequence, kind)| {
            MessageContent::PointToPoint(PointToPoint {
                tag,
                sequence,
                peer,
                thread: 0,
                kind,
            })
        },
    );
    let collective = (
        (process(), -1..4_i64, number(), 0..4_u32),
        (any::<bool>(), prop::sample::select(semantics)),
    )
        .prop_map(|((root, place, sequence, size), (is_begin, semantics))| {
            MessageContent::Collective(Collective {
                place,
                size,
                sequence,
                root,
                operation: 0,
                is_begin,
                semantics,
                takes_part: true,
            })
        });
    let content = prop_oneof![3 => message, 1 => collective];
    (process(), number(), number(), content).prop_map(
        |(process, communicator, request, content)| MessageEvent {
            time_ns: 0,
            communicator,
            request,
            process,
            clock: 0,
            content,
        },
    )
}

proptest! {
    #[test]
    fn any_events_are_matched_by_shard_as_in_their_order(
        events in prop::collection::vec(any_event(), 0..300),
        losses in prop::collection::vec((0..300_usize, prop::sample::select(vec![0, 1, 17, 4, NOBODY])), 0..4),
    ) {
        let mut losses: Vec<(usize, u32, Lost)> = losses.into_iter()
            .map(|(at, process)| (at.min(events.len()), process, Lost::ALL))
            .collect();
        losses.sort_by_key(|loss| loss.0);
        let batch = MessageBatch { events, losses, details: Vec::new() };
        for limit in [1 << 20, 5] {
            prop_assert_eq!(matched_by_shard(&batch, limit), matched_in_order(&batch, limit));
        }
    }
}
