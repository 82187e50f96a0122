//! Receives that several threads of a process start concurrently with one tag: the order of their
//! events does not show which of them was first.

use super::{Channels, END, Key, Node, State};
use crate::messages::collectives::Carry;

/// Number of receives of a channel, from the first on, that are reordered.
const ARRANGED: usize = 256;
/// Maximum number of receives that are checked for one event: with wrong clocks, most receives may
/// be before their sends.
const MOST_LOOKED_AT: usize = 2048;

impl<D> Node<D> {
    /// Returns whether this receive completes after another one that has completed.
    const fn is_later(&self, than: &Self) -> bool {
        match self.state {
            State::Open => true,
            State::Ready => self.mark.number > than.mark.number,
            State::Dead => false,
        }
    }
}

impl<D: Carry> Channels<D> {
    /// Reorders receives if, in the order of the events, a receive would complete before its send.
    ///
    /// Another thread's receive that completes later is moved after it, if the receives of each
    /// thread keep their order.
    pub(super) fn arrange(&mut self, slot: u32) {
        let channel = *self.channel(slot);
        let is_whole = self.losses(channel.key) == (0, 0);
        if !channel.has_threads || !is_whole || channel.numbered != 0 {
            return;
        }
        let sends = self.places(channel.sends).take(ARRANGED);
        let sends: Vec<u64> = sends
            .map(|at| self.nodes[at as usize].mark.number)
            .collect();
        let is_alive = |at: &u32| self.nodes[*at as usize].state != State::Dead;
        let receives = self.places(channel.receives).take(ARRANGED);
        let mut order: Vec<u32> = receives.filter(is_alive).collect();
        let (mut index, mut looked_at) = (0, 0);
        while index < order.len() && looked_at < MOST_LOOKED_AT {
            let receive = self.nodes[order[index] as usize];
            let is_sent = sends
                .get(index)
                .is_some_and(|sent| *sent < receive.mark.number);
            if receive.state == State::Open || is_sent {
                index += 1;
                continue;
            }
            looked_at += index;
            let other = self.later_of_another(channel.key, &order[..index], &receive);
            let Some(other) = other else {
                index += 1;
                continue;
            };
            self.move_behind(slot, order[other], order[index]);
            order[other..=index].rotate_left(1);
            index = other;
        }
    }

    /// Returns the index of the last of these receives that may have been started after `receive`.
    ///
    /// It completes later, and no receive of its thread is between them, or can still turn out to
    /// be.
    fn later_of_another(&self, key: Key, order: &[u32], receive: &Node<D>) -> Option<usize> {
        let wild = &self.receiver(key.to).wild;
        let mut between = vec![receive.thread];
        for (index, at) in order.iter().enumerate().rev() {
            let node = &self.nodes[*at as usize];
            if between.contains(&node.thread) {
                continue;
            }
            let mut passed = wild.range(node.started..receive.started);
            let may_be = passed.any(|(_, wild)| wild.thread == node.thread && wild.fits(&key));
            if node.is_later(receive) && !may_be {
                return Some(index);
            }
            between.push(node.thread);
        }
        None
    }

    /// Moves a receive to the place after a later one.
    fn move_behind(&mut self, slot: u32, moved: u32, place: u32) {
        let mut list = self.list(slot, true);
        let mut before = END;
        let mut at = list.first;
        while at != moved {
            (before, at) = (at, self.nodes[at as usize].next);
        }
        let next = self.nodes[moved as usize].next;
        if before == END {
            list.first = next;
        } else {
            self.nodes[before as usize].next = next;
        }
        let (next, started) = {
            let place = &mut self.nodes[place as usize];
            (std::mem::replace(&mut place.next, moved), place.started)
        };
        let node = &mut self.nodes[moved as usize];
        (node.next, node.started) = (next, started);
        if list.last == place {
            list.last = moved;
        }
        self.set_list(slot, true, list);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use crate::messages::matching::Matcher;
    use crate::messages::{
        ANY_TAG, Mark, MessageBatch, MessageContent, MessageEvent, NONE, PointToPoint,
        PointToPointKind,
    };

    /// A receive of a simulated library, and its progress.
    struct Waiting {
        thread: usize,
        request: u64,
        /// Place among the receives that the library knows. `None` means that the call has only
        /// begun.
        place: Option<usize>,
        is_done: bool,
    }

    /// A process whose threads receive under one tag. The library takes their calls in an order that only it knows.
    #[derive(Default)]
    struct Library {
        events: Vec<MessageEvent>,
        /// For each event, the place of the send among the sends, or the request of the receive.
        what: Vec<u64>,
        waiting: Vec<Waiting>,
        posted: usize,
        sent: usize,
    }

    impl Library {
        fn note(&mut self, kind: PointToPointKind, thread: usize, request: u64, is_any: bool) {
            let is_send = kind == PointToPointKind::Send;
            self.what
                .push(if is_send { self.sent as u64 } else { request });
            self.events.push(MessageEvent {
                time_ns: self.events.len() as i64,
                communicator: 3,
                request: if is_send { NONE } else { request },
                process: u32::from(!is_send),
                clock: 0,
                content: MessageContent::PointToPoint(PointToPoint {
                    tag: if is_any { ANY_TAG } else { 5 },
                    sequence: NONE,
                    peer: u32::from(is_send),
                    thread: thread as u16,
                    kind,
                }),
            });
        }

        fn send(&mut self) {
            self.note(PointToPointKind::Send, 0, NONE, false);
            self.sent += 1;
        }

        fn start(&mut self, thread: usize, is_any: bool) {
            let request = self.waiting.len() as u64;
            self.note(PointToPointKind::ReceiveStart, thread, request, is_any);
            self.waiting.push(Waiting {
                thread,
                request,
                place: None,
                is_done: false,
            });
        }

        /// Makes the library know all calls that a thread has begun.
        fn post(&mut self, thread: usize) {
            let of_thread = |w: &&mut Waiting| w.thread == thread && w.place.is_none();
            for waiting in self.waiting.iter_mut().filter(of_thread) {
                waiting.place = Some(self.posted);
                self.posted += 1;
            }
        }

        fn complete(&mut self, pick: usize) {
            let can_be = |w: &Waiting| !w.is_done && w.place.is_some_and(|place| place < self.sent);
            let ready = self.waiting.iter().enumerate().filter(|(_, w)| can_be(w));
            let ready: Vec<usize> = ready.map(|(index, _)| index).collect();
            if ready.is_empty() {
                return;
            }
            let waiting = &mut self.waiting[ready[pick % ready.len()]];
            waiting.is_done = true;
            let (thread, request) = (waiting.thread, waiting.request);
            self.note(PointToPointKind::Receive, thread, request, false);
        }

        /// Completes all receives. Returns, for each request, the send that the matching found and
        /// the one that the receive took.
        fn finish(mut self, threads: usize, does_any: bool) -> Vec<(Waiting, u64, usize)> {
            (0..threads).for_each(|thread| self.post(thread));
            (self.sent..self.waiting.len()).for_each(|_| self.send());
            while self.waiting.iter().any(|waiting| !waiting.is_done) {
                self.complete(0);
            }
            let mut matcher = Matcher::new(2, 1 << 20, true);
            let batch = MessageBatch {
                events: self.events,
                losses: Vec::new(),
                details: Vec::new(),
            };
            let mut taken = vec![None; self.waiting.len()];
            let mut is_in_order = true;
            let mut pair = |send: Mark, receive: Mark| {
                is_in_order &= send.number < receive.number;
                let request = self.what[receive.number as usize] as usize;
                assert_eq!(
                    taken[request].replace(self.what[send.number as usize]),
                    None
                );
            };
            matcher.feed(&batch, &mut pair);
            matcher.finish(&mut pair);
            assert!(is_in_order || does_any, "received before it was sent");
            assert_eq!(matcher.counts().matched, self.waiting.len() as u64);
            let each = self.waiting.into_iter().zip(taken);
            each.map(|(waiting, taken)| {
                let place = waiting.place.expect("all were posted");
                (waiting, taken.expect("all are matched"), place)
            })
            .collect()
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(512))]

        #[test]
        fn receives_of_several_threads_never_come_before_their_sends(
            threads in 1..5_usize,
            does_any in any::<bool>(),
            steps in prop::collection::vec((0..4_u8, 0..4_usize, any::<usize>()), 0..120),
        ) {
            let mut library = Library::default();
            for (step, thread, pick) in steps {
                let thread = thread % threads;
                match step {
                    0 => library.send(),
                    1 => library.start(thread, does_any && pick.is_multiple_of(3)),
                    2 => library.post(thread),
                    _ => library.complete(pick),
                }
            }
            // Sends beyond the receives stay unmatched.
            let received = library.finish(threads, does_any);
            let mut last = vec![None; threads];
            for (waiting, taken, place) in received {
                prop_assert!(last[waiting.thread] < Some(taken), "a thread's calls keep their order");
                last[waiting.thread] = Some(taken);
                if threads == 1 {
                    prop_assert_eq!(taken, place as u64);
                }
            }
        }
    }
}
