//! The two lists of a channel: sends and receives that wait for each other. The nodes of all lists
//! are in one vector.

use super::from_end::Unnumbered;
use super::{Broken, Channels, END, List, Node, State};
use crate::messages::Mark;
use crate::messages::collectives::Carry;

/// Maximum number of waiting events that are searched for a sequence number.
pub(super) const SEARCH: usize = 1024;

impl<D: Carry> Channels<D> {
    /// Returns the indices of the nodes of a list.
    pub(super) fn places(&self, list: List) -> impl Iterator<Item = u32> {
        let known = |at: u32| (at != END).then_some(at);
        std::iter::successors(known(list.first), move |at| {
            known(self.nodes[*at as usize].next)
        })
    }

    pub(super) fn release_node(&mut self, at: u32) {
        let node = &mut self.nodes[at as usize];
        node.next = self.free;
        node.state = State::Dead;
        node.started = u64::MAX;
        self.free = at;
        self.in_flight -= 1;
    }

    /// Drops the events of a list that are not open, because the other side cannot be counted.
    /// After a loss, they may be matched from the end.
    pub(super) fn drop_ready(&mut self, slot: u32, is_receive: bool, why: Broken) {
        let channel = *self.channel(slot);
        let list = self.list(slot, is_receive);
        let mut kept = List::EMPTY;
        let mut at = list.first;
        while at != END {
            let node = self.nodes[at as usize];
            if node.state == State::Open {
                if kept.last == END {
                    kept.first = at;
                } else {
                    self.nodes[kept.last as usize].next = at;
                }
                kept.last = at;
                self.nodes[at as usize].next = END;
            } else {
                if node.state == State::Ready {
                    match (why, channel.broken(is_receive)) {
                        (Broken::Limit, _) => self.counts.over_limit += 1,
                        (_, Broken::No) => {
                            let message = Unnumbered::of(&node);
                            self.counts.unmatchable_by_loss +=
                                self.tails.keep(channel.key, is_receive, &message);
                        }
                        // The event is from before the loss of the same side.
                        _ => self.counts.unmatchable_by_loss += 1,
                    }
                }
                self.release_node(at);
            }
            at = node.next;
        }
        self.set_list(slot, is_receive, kept);
        if is_receive {
            self.channel(slot).numbered = 0;
        }
    }

    pub(super) fn list(&self, slot: u32, is_receive: bool) -> List {
        let channel = &self.slots[slot as usize];
        if is_receive {
            channel.receives
        } else {
            channel.sends
        }
    }

    pub(super) fn set_list(&mut self, slot: u32, is_receive: bool, list: List) {
        let channel = self.channel(slot);
        if is_receive {
            channel.receives = list;
        } else {
            channel.sends = list;
        }
    }

    /// Removes and returns the send with a number.
    pub(super) fn find_send(&mut self, slot: u32, number: u64) -> Option<Mark<D>> {
        let channel = self.channel(slot);
        if number >= channel.next_send {
            return None;
        }
        // Sends whose receives were lost wait for ever: they do not count.
        let has_lost = channel.receiver_losses != 0;
        let mut at = channel.sends.first;
        let (mut before, mut passed, mut found) = (END, 0, None);
        while at != END && (passed < SEARCH || has_lost) {
            let node = &self.nodes[at as usize];
            let next = node.next;
            if node.number == number {
                found = Some(self.unlink(slot, false, before, at).mark);
                break;
            }
            if node.number > number && has_lost {
                break;
            }
            (before, at) = (at, next);
            passed += 1;
        }
        if has_lost && passed > SEARCH {
            self.drop_first_sends(slot, passed - SEARCH / 2);
        }
        found
    }

    /// Drops sends whose receives are lost, or completed much later than those of later sends.
    pub(super) fn drop_first_sends(&mut self, slot: u32, count: usize) {
        let list = self.list(slot, false);
        let mut at = list.first;
        for _ in 0..count {
            let next = self.nodes[at as usize].next;
            self.release_node(at);
            self.counts.unmatchable_by_loss += 1;
            at = next;
        }
        let last = if at == END { END } else { list.last };
        self.set_list(slot, false, List { first: at, last });
    }

    /// Returns the receive with a number that waits after others. Its node stays in its place as
    /// [`State::Dead`].
    pub(super) fn find_receive(&mut self, slot: u32, number: u64) -> Option<Mark<D>> {
        if self.channel(slot).numbered == 0 {
            return None;
        }
        let list = self.list(slot, true);
        let is_it = |at: &u32| {
            let node = &self.nodes[*at as usize];
            node.number == number && node.state == State::Ready
        };
        let found = self.places(list).take(SEARCH).find(is_it)?;
        self.channel(slot).numbered -= 1;
        let node = &mut self.nodes[found as usize];
        node.state = State::Dead;
        Some(node.mark)
    }

    /// Removes an event from a list. `before` is the event before it; [`END`] means that there is
    /// none.
    pub(super) fn unlink(&mut self, slot: u32, is_receive: bool, before: u32, at: u32) -> Node<D> {
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

    /// Inserts an event at its place in a list, and returns whether there was room. At the limit,
    /// the event is counted, and the side is marked as broken.
    pub(super) fn push(&mut self, slot: u32, is_receive: bool, mut node: Node<D>) -> bool {
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
        // The place is nearly always the last. A receive that was started long ago is near the
        // first.
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

    /// Removes and returns the first event of a list.
    pub(super) fn pop(&mut self, slot: u32, is_receive: bool) -> Mark<D> {
        let list = self.list(slot, is_receive);
        let node = self.nodes[list.first as usize];
        self.release_node(list.first);
        let last = if node.next == END { END } else { list.last };
        let first = node.next;
        self.set_list(slot, is_receive, List { first, last });
        node.mark
    }
}
