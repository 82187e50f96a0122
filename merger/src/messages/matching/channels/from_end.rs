//! Messages without sequence numbers after a loss: matched from the end of the trace.
//!
//! In a trace of a whole run, every message was received. In an N-to-N operation, no process can
//! end before all have begun. If two processes have completed the same last N-to-N operation, and
//! have as many sends as receives of a channel after it, no message of the channel was in flight
//! there. So the last send of the channel matches the last receive, and the ones before them match
//! one by one, until the last loss of either side (SPEC.md, *Messages and collective operations*).

use std::collections::VecDeque;

use rustc_hash::{FxHashMap, FxHashSet};

use super::{Channels, END, Key, Node, Request};
use crate::messages::Mark;
use crate::messages::collectives::{Carry, Collectives};

/// A send or a receive whose number is not known because of a loss.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unnumbered<D> {
    /// Number of the event that orders it on its side: of the send, or of the start of the receive.
    started: u64,
    mark: Mark<D>,
    /// The thread that started the receive; 0 for a send.
    thread: u16,
}

impl<D: Copy> Unnumbered<D> {
    pub(super) const fn send(mark: Mark<D>) -> Self {
        Self {
            started: mark.number,
            mark,
            thread: 0,
        }
    }

    pub(super) const fn of(node: &Node<D>) -> Self {
        Self {
            started: node.started,
            mark: node.mark,
            thread: node.thread,
        }
    }
}

/// The last sends and receives of a channel, which have no numbers.
#[derive(Debug)]
struct Tail<D> {
    sends: VecDeque<Unnumbered<D>>,
    receives: VecDeque<Unnumbered<D>>,
}

impl<D> Tail<D> {
    const fn side(&mut self, is_receive: bool) -> &mut VecDeque<Unnumbered<D>> {
        if is_receive {
            &mut self.receives
        } else {
            &mut self.sends
        }
    }
}

/// The tails of all channels.
#[derive(Debug)]
pub(super) struct Tails<D> {
    by_channel: FxHashMap<Key, Tail<D>>,
    /// Messages in all tails, and their limit.
    weight: usize,
    limit: usize,
}

impl<D: Copy> Tails<D> {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            by_channel: FxHashMap::default(),
            weight: 0,
            limit,
        }
    }

    /// Keeps a message. Returns how many messages are dropped because of the limit.
    pub(super) fn keep(&mut self, key: Key, is_receive: bool, message: &Unnumbered<D>) -> u64 {
        let is_full = self.weight >= self.limit;
        if is_full && !self.by_channel.contains_key(&key) {
            return 1;
        }
        let tail = self.by_channel.entry(key).or_insert_with(|| Tail {
            sends: VecDeque::new(),
            receives: VecDeque::new(),
        });
        let side = tail.side(is_receive);
        let is_dropped = is_full && side.pop_front().is_some();
        if is_full && !is_dropped {
            return 1;
        }
        side.push_back(*message);
        self.weight += usize::from(!is_dropped);
        u64::from(is_dropped)
    }

    /// Drops one side of a channel at a loss. Returns the number of messages that are dropped.
    pub(super) fn lose(&mut self, key: Key, is_receive: bool) -> u64 {
        let Some(tail) = self.by_channel.get_mut(&key) else {
            return 0;
        };
        let dropped = std::mem::take(tail.side(is_receive)).len();
        self.weight -= dropped;
        dropped as u64
    }
}

impl<D: Carry> Channels<D> {
    /// Pairs the messages that the tails prove to match, and counts the others.
    pub(super) fn match_from_end(
        &mut self,
        collectives: &[Collectives<D>],
        paired: &mut impl FnMut(Mark<D>, Mark<D>),
    ) {
        // A loss is applied to a channel at its next event, and some channels have had none.
        let slots: Vec<u32> = self.slot_of.values().copied().collect();
        slots.into_iter().for_each(|slot| self.refresh(slot));
        let tails = std::mem::take(&mut self.tails.by_channel);
        self.tails.weight = 0;
        let are_receiving = self.are_receiving();
        for (key, mut tail) in tails {
            let receives = tail.receives.make_contiguous();
            receives.sort_unstable_by_key(|receive| receive.started);
            let has_numbers = self.slot_of.get(&key).is_some_and(|slot| {
                let channel = &self.slots[*slot as usize];
                // The order of the receives in the list and those of the tail is not known.
                channel.has_sequences || channel.receives.first != END
            });
            let one_thread = tail.receives.front().map(|receive| receive.thread);
            let mut threads = tail.receives.iter().map(|receive| Some(receive.thread));
            let is_proven = !has_numbers
                && !are_receiving.contains(&key.to)
                && threads.all(|thread| thread == one_thread)
                && has_equal_counts(collectives, key, &tail);
            let pairs = if is_proven {
                tail.sends.len().min(tail.receives.len())
            } else {
                0
            };
            let sends = tail.sends.iter().rev();
            for (send, receive) in sends.zip(tail.receives.iter().rev()).take(pairs) {
                paired(send.mark, receive.mark);
            }
            self.counts.matched += pairs as u64;
            let left = tail.sends.len() + tail.receives.len() - 2 * pairs;
            self.counts.unmatchable_by_loss += left as u64;
        }
    }

    /// Returns the processes with receives that were started after their last loss and have not
    /// completed.
    fn are_receiving(&self) -> FxHashSet<u32> {
        let open = self.requests.iter().filter(|((process, _), request)| {
            let (Request::Placed { started, .. } | Request::Wild { started, .. }) = request;
            let lost_at = self.receiver(*process).receives_lost_at;
            lost_at.is_none_or(|lost_at| *started >= lost_at)
        });
        open.map(|((process, _), _)| *process).collect()
    }
}

/// Returns whether a channel has as many sends as receives after the last N-to-N operation of a
/// communicator of which both processes are members.
fn has_equal_counts<D: Carry>(collectives: &[Collectives<D>], key: Key, tail: &Tail<D>) -> bool {
    let last = Collectives::last_of_all(collectives, key.communicator, key.from, key.to);
    let Some((sender, receiver)) = last else {
        return false;
    };
    let after = |side: &VecDeque<Unnumbered<D>>, begin: u64| {
        let late = side.iter().rev();
        late.take_while(|message| message.started > begin).count()
    };
    after(&tail.sends, sender) == after(&tail.receives, receiver)
}
