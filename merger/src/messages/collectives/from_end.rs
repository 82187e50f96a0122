//! Operations of processes whose events have no sequence numbers, after a loss: matched from the end of the trace.
//!
//! In an N-to-N operation, no process can end before all have begun. If no member of a communicator
//! has an operation open, all members have completed its last N-to-N operation. So the last one
//! that a member knows is the same operation for all members. It proves the numbers of a member's
//! later operations, and of earlier ones up to its last loss, if all of them are of the same kinds
//! as the other members' (SPEC.md, *Messages and collective operations*).

use std::collections::BTreeMap;

use crate::messages::collectives::{Carry, Collectives, Communicator, Participant};
use crate::messages::{Collective, Mark, MessageEvent, Semantics};

/// Properties that all members of an operation must agree on: its code, and whether it has a
/// request.
type OperationKind = (u16, bool);

/// An event whose operation is known, with the number of the operation.
pub(super) type Numbered<D> = (MessageEvent, Collective, Mark<D>, u64);

/// The operations that a member has begun since its last loss.
struct Since<'a, D> {
    events: &'a [(MessageEvent, Collective, Mark<D>)],
    /// Kind of each operation.
    kinds: Vec<OperationKind>,
    /// Index of the last N-to-N operation in `kinds`.
    last_of_all: usize,
    /// Number of the event that began it.
    begin_of_last: u64,
}

impl<'a, D: Copy> Since<'a, D> {
    /// Returns the operations of a participant, or `None` if its events prove nothing.
    fn of(participant: &'a Participant<D>) -> Option<Self> {
        let events = participant.tail.as_ref()?;
        let begins = events.iter().filter(|(_, part, _)| part.is_begin);
        let begins: Vec<_> = begins.collect();
        let kinds: Vec<OperationKind> = begins
            .iter()
            .map(|(event, part, _)| (part.operation, event.has_request()))
            .collect();
        // Ends of operations that were begun before the loss precede the others.
        let ends = events.iter().filter(|(_, part, _)| !part.is_begin).count();
        if ends < kinds.len() {
            return None;
        }
        let last_of_all = begins
            .iter()
            .rposition(|(_, part, _)| part.semantics == Semantics::AllToAll)?;
        Some(Self {
            events,
            kinds,
            last_of_all,
            begin_of_last: begins[last_of_all].2.number,
        })
    }
}

/// What the end of a trace proves about a communicator.
pub(super) struct Proven<D> {
    /// The kept events whose operations are known.
    pub(super) numbered: Vec<Numbered<D>>,
    /// Numbers of the events with which the members began the last N-to-N operation, by process.
    pub(super) last_of_all: BTreeMap<u32, u64>,
}

impl<D: Carry> Collectives<D> {
    /// Returns the numbers of the events with which two processes began the last N-to-N operation. `shards` are all shards.
    ///
    /// The communicator is the given one if both are members, or else the largest one. `None` means
    /// that no such operation is proven.
    pub(crate) fn last_of_all(
        shards: &[Self],
        communicator: u64,
        one: u32,
        other: u32,
    ) -> Option<(u64, u64)> {
        let begins = |of: &Communicator<D>| {
            let begins = &of.last_of_all;
            Some((*begins.get(&one)?, *begins.get(&other)?))
        };
        let given = shards.iter().find_map(|shard| {
            let number = shard.numbers.get(&communicator)?;
            Some(&shard.communicators[*number])
        });
        given.and_then(begins).or_else(|| {
            let all = shards.iter().flat_map(|shard| &shard.communicators);
            begins(all.max_by_key(|of| (of.last_of_all.len(), of.id))?)
        })
    }

    /// Returns what the end of the trace proves about a communicator: of members whose events are all numbered, and of
    /// those that have had a loss.
    pub(super) fn matched_from_end(&self, communicator: usize, has_end: bool) -> Proven<D> {
        let mut proven = Proven {
            numbered: Vec::new(),
            last_of_all: BTreeMap::new(),
        };
        if self.losses.is_empty() || !has_end {
            return proven;
        }
        let of = &self.communicators[communicator];
        let members = of.participants.iter();
        let known: Vec<&Participant<D>> = members.filter(|member| member.tail.is_none()).collect();
        let Some((next, Some((last_of_all, _)))) = known
            .first()
            .map(|member| (member.next, member.last_of_all))
        else {
            return proven;
        };
        let is_like_first = |member: &Participant<D>| {
            let last = member.last_of_all.map(|last| last.0);
            member.next == next && last == Some(last_of_all) && member.open.is_empty()
        };
        if !known.iter().all(|member| is_like_first(member)) {
            return proven;
        }
        for member in &of.participants {
            if let (None, Some((_, begin))) = (&member.tail, member.last_of_all) {
                proven.last_of_all.insert(member.process, begin);
            }
            let Some(since) = Since::of(member) else {
                continue;
            };
            let Some(first) = last_of_all.checked_sub(since.last_of_all as u64) else {
                continue;
            };
            let mut kinds = since.kinds.iter().zip(first..);
            let is_equal = first.checked_add(since.kinds.len() as u64) == Some(next)
                && kinds.all(|(kind, number)| {
                    let operation = of.operations.get(&number);
                    operation.is_some_and(|operation| operation.kind == Some(*kind))
                });
            if is_equal {
                proven
                    .last_of_all
                    .insert(member.process, since.begin_of_last);
                number_events(since.events, first, &mut proven.numbered);
            }
        }
        proven
    }
}

/// Appends the events of consecutive operations, with the numbers of the operations from `first`
/// on. Ends of earlier operations are left out.
fn number_events<D: Copy>(
    events: &[(MessageEvent, Collective, Mark<D>)],
    first: u64,
    numbered: &mut Vec<Numbered<D>>,
) {
    let mut open = Vec::new();
    let mut next = first;
    for (event, part, mark) in events {
        let number = if part.is_begin {
            open.push((event.request, next));
            next = next.saturating_add(1);
            next - 1
        } else {
            let place = open
                .iter()
                .position(|(request, _)| *request == event.request);
            match place {
                Some(place) => open.remove(place).1,
                None => continue,
            }
        };
        numbered.push((*event, *part, *mark, number));
    }
}
