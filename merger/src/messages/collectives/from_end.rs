//! Operations of processes whose events have no sequence numbers, after a loss: matched from the end of the trace.
//!
//! All members of a communicator have completed its last operation in which nobody can end before all have begun (N to N),
//! if none has an operation open. So the last one that a member knows is the same operation for all members. It proves
//! the numbers of a member's later operations, and of earlier ones up to its last loss, if all of them are of the same kinds
//! as the other members' (SPEC.md, *Messages and collective operations*).

use crate::messages::collectives::{Collectives, Participant};
use crate::messages::{Collective, Mark, MessageEvent, Semantics};

/// What all members of an operation must agree about: the operation, and whether it has a request.
type OperationKind = (u16, bool);

/// An event of known operation.
type Numbered<D> = (MessageEvent, Collective, Mark<D>, u64);

/// The operations that a member has begun since its last loss.
struct Since<'a, D> {
    events: &'a [(MessageEvent, Collective, Mark<D>)],
    /// By operation, its kind.
    kinds: Vec<OperationKind>,
    /// Place of the last operation from N to N.
    last_of_all: usize,
}

impl<'a, D: Copy> Since<'a, D> {
    /// Returns `None` if the events prove nothing.
    fn of(participant: &'a Participant<D>) -> Option<Self> {
        let events = participant.tail.as_ref()?;
        let begins = events.iter().filter(|(_, part, _)| part.is_begin);
        let semantics: Vec<Semantics> = begins.clone().map(|(_, part, _)| part.semantics).collect();
        let kinds: Vec<OperationKind> = begins
            .map(|(event, part, _)| (part.operation, event.has_request()))
            .collect();
        // Ends of operations that were begun before the loss come first.
        let ends = events.iter().filter(|(_, part, _)| !part.is_begin).count();
        if ends < kinds.len() {
            return None;
        }
        let last_of_all = semantics
            .iter()
            .rposition(|kind| *kind == Semantics::AllToAll)?;
        Some(Self {
            events,
            kinds,
            last_of_all,
        })
    }
}

impl<D: Copy + Default> Collectives<D> {
    /// Returns the kept events of a communicator whose operations are proven, with their numbers.
    pub(super) fn matched_from_end(&self, communicator: usize) -> Vec<Numbered<D>> {
        let of = &self.communicators[communicator];
        let mut known = of
            .participants
            .values()
            .filter(|member| member.tail.is_none());
        let Some(next) = known.next().map(|member| member.next) else {
            return Vec::new();
        };
        let is_over = |member: &Participant<D>| member.open.is_empty();
        let mut others = of
            .participants
            .values()
            .filter(|member| member.tail.is_none());
        if !others.all(|member| member.next == next && is_over(member)) {
            return Vec::new();
        }
        let mut operations = of.operations.iter().rev();
        let last_of_all = operations
            .find(|(number, operation)| {
                **number < next && operation.semantics == Some(Semantics::AllToAll)
            })
            .map(|(number, _)| *number);
        let Some(last_of_all) = last_of_all else {
            return Vec::new();
        };
        let mut numbered = Vec::new();
        for member in of.participants.values() {
            let Some(since) = Since::of(member) else {
                continue;
            };
            let Some(first) = last_of_all.checked_sub(since.last_of_all as u64) else {
                continue;
            };
            let mut kinds = since.kinds.iter().zip(first..);
            let is_equal = first + since.kinds.len() as u64 == next
                && kinds.all(|(kind, number)| {
                    let operation = of.operations.get(&number);
                    operation.is_some_and(|operation| operation.kind == Some(*kind))
                });
            if is_equal {
                number_events(since.events, first, &mut numbered);
            }
        }
        numbered
    }
}

/// Appends the events of operations that follow each other, with their numbers. Ends of earlier operations are left out.
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
            next += 1;
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
