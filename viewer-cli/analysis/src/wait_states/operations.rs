//! The waits of collective operations, as soon as all their calls were left.

use annals_format::ProcessId;
use annals_merger::{CollectivePart, CollectiveSide, WholeCollective};
use rustc_hash::FxHashMap;

use super::engine::Engine;
use super::{WaitObserver, WaitPattern, WaitState};
use crate::patterns::{Family, MemberPart, collective_waits};

impl<V: WaitObserver> Engine<'_, V> {
    /// Finds the waits of an operation that is over, as soon as all its calls were left. `is_last` is whether no more leaves
    /// follow.
    pub(super) fn finish_operation(&mut self, id: u64, is_last: bool) {
        let Some(operation) = self.operations.get(&id) else {
            return;
        };
        let Some(whole) = &operation.whole else {
            return;
        };
        let left = &operation.left_ns;
        let mut ends = whole.parts.iter().filter(|part| part.end.is_some());
        if !is_last && !ends.all(|part| left.contains_key(&part.process)) {
            return;
        }
        let Some(operation) = self.operations.remove(&id) else {
            return;
        };
        if let Some(whole) = operation.whole {
            self.collective(&whole, &operation.left_ns, &operation.uncertain);
        }
    }

    /// Finds the waits of a collective operation.
    fn collective(
        &mut self,
        whole: &WholeCollective,
        left_ns: &FxHashMap<ProcessId, i64>,
        uncertain: &[ProcessId],
    ) {
        let Some(family) = whole.operation.and_then(Family::of) else {
            return;
        };
        if whole.is_inconsistent {
            return;
        }
        let members = whole
            .parts
            .iter()
            .filter_map(|part| member(whole, part, left_ns));
        let (members, sides): (Vec<MemberPart>, Vec<CollectiveSide>) = members.unzip();
        let begun = whole
            .parts
            .iter()
            .filter(|part| part.begin.is_some())
            .count();
        let is_partial = whole.size.is_some_and(|size| (begun as u64) < size);
        let lacks_end = whole.parts.iter().any(|part| part.end.is_none());
        // Whether a member may have entered or left at another time.
        let both = whole.parts.iter().flat_map(|part| [part.begin, part.end]);
        let is_shifted = |side: CollectiveSide| side.call.is_none_or(|call| call.is_uncertain);
        let is_uncertain =
            !uncertain.is_empty() || (self.has_calls && both.flatten().any(is_shifted));
        let has_root = members.iter().any(|member| member.is_root);
        let location = |side: &CollectiveSide| match side.call {
            Some(call) => Some(call.location),
            None => self.location_of(side.stream),
        };
        let locations: Vec<Option<u32>> = sides.iter().map(location).collect();
        let waits = collective_waits(family, &members);
        let different = self
            .clock_errors
            .different(locations.iter().flatten().copied());
        let operation_number = self.next_operation();
        for (number, (member, waited)) in members.iter().zip(waits).enumerate() {
            let (Some(location), Some(call)) = (locations[number], sides[number].call) else {
                continue;
            };
            let length_ns = member.left_ns - member.entered_ns;
            let rest_ns = length_ns - waited.wait_ns;
            // By how much a member that is not known may change the wait.
            let uncertain_ns = match family {
                _ if is_uncertain => length_ns,
                // Completion is counted from the first leave on.
                Family::Barrier | Family::AllToAll if lacks_end => rest_ns,
                _ if !is_partial || !member.receives => 0,
                Family::Barrier | Family::AllToAll | Family::Prefix => rest_ns,
                Family::OneToAll if has_root || member.is_root => 0,
                Family::AllToOne if !member.is_root => 0,
                Family::AllToOne if waited.wait_ns != 0 => waited.wait_ns,
                Family::OneToAll | Family::AllToOne => rest_ns,
            };
            let error_ns = self
                .clock_errors
                .among(location, member.entered_ns, &different);
            let uncertain_ns = uncertain_ns.max(error_ns.min(length_ns));
            let (wait, completion) = patterns(family);
            let state = WaitState {
                pattern: wait,
                path: call.tag,
                region: Some(call.region),
                location,
                cause: waited.waited_for.and_then(|other| locations[other]),
                or_cause: None,
                communicator: sides[number].communicator,
                from_ns: member.entered_ns,
                wait_ns: waited.wait_ns,
                operation: operation_number,
                uncertain_ns,
            };
            let cause_entered_ns = waited.waited_for.map_or(0, |other| members[other].begun_ns);
            self.add(&state, cause_entered_ns);
            if let Some(pattern) = completion {
                let state = WaitState {
                    pattern,
                    cause: None,
                    from_ns: member.left_ns - waited.completion_ns,
                    wait_ns: waited.completion_ns,
                    uncertain_ns: 0,
                    ..state
                };
                self.waits.add(&state);
            }
        }
        if family == Family::AllToOne {
            self.release_root(&members, &locations);
        }
        self.synchronise(family, whole.communicator, &members, &locations);
    }

    /// Reports when the root of an operation could go on that receives from all: when the last of them had begun to send.
    fn release_root(&mut self, members: &[MemberPart], locations: &[Option<u32>]) {
        let each = || members.iter().zip(locations);
        let Some((root, Some(location))) = each().find(|(member, _)| member.is_root) else {
            return;
        };
        let senders = each().filter(|(member, _)| member.sends && !member.is_root);
        // Of several that were last, the first by number.
        let last = senders.rev().max_by_key(|(member, _)| member.begun_ns);
        let Some((sender, Some(cause))) = last else {
            return;
        };
        if sender.begun_ns > root.entered_ns {
            let at_ns = sender.begun_ns.min(root.left_ns);
            self.waits.observer.release(*location, *cause, at_ns);
        }
    }

    /// Remembers the locations that a collective operation synchronised.
    fn synchronise(
        &mut self,
        family: Family,
        communicator: usize,
        members: &[MemberPart],
        locations: &[Option<u32>],
    ) {
        let each = || members.iter().zip(locations);
        let root = each().find_map(|(member, location)| {
            let location = location.filter(|_| member.is_root)?;
            Some((member, location))
        });
        for (member, location) in each() {
            let Some(location) = *location else { continue };
            match (family, root) {
                (Family::Barrier | Family::AllToAll, _) => {
                    let communicator = communicator as u64;
                    self.delays
                        .operation(location, communicator, member.left_ns);
                }
                (Family::OneToAll, Some((root, from))) if !member.is_root => {
                    self.delays
                        .message(from, location, root.begun_ns, member.left_ns);
                }
                (Family::AllToOne, Some((root, to))) if !member.is_root => {
                    self.delays
                        .message(location, to, member.begun_ns, root.left_ns);
                }
                _ => {}
            }
        }
    }
}

/// Returns a process's part in an operation, and where it ended, or where it began if it did not end. `None` if it did
/// neither in a way that is known.
fn member(
    whole: &WholeCollective,
    part: &CollectivePart,
    left_ns: &FxHashMap<ProcessId, i64>,
) -> Option<(MemberPart, CollectiveSide)> {
    let entered = |side: &CollectiveSide| side.call.map_or(side.time_ns, |call| call.entered_ns);
    let side = part.end.or(part.begin)?;
    let begun_ns = entered(&part.begin.or(part.end)?);
    let entered_ns = entered(&side);
    let left_ns = match part.end {
        Some(end) => left_ns.get(&part.process).copied().unwrap_or(end.time_ns),
        None => entered_ns,
    };
    let member = MemberPart {
        begun_ns,
        entered_ns,
        left_ns,
        place: part.place.map_or(-1, i64::from),
        is_root: whole.root == Some(part.process),
        sends: part.sends,
        receives: part.receives,
    };
    Some((member, side))
}

/// Returns the pattern of waiting in a family, and that of its completion.
const fn patterns(family: Family) -> (WaitPattern, Option<WaitPattern>) {
    match family {
        Family::Barrier => (WaitPattern::Barrier, Some(WaitPattern::BarrierCompletion)),
        Family::AllToAll => (WaitPattern::AllToAll, Some(WaitPattern::AllToAllCompletion)),
        Family::OneToAll => (WaitPattern::LateBroadcast, None),
        Family::AllToOne => (WaitPattern::EarlyReduce, None),
        Family::Prefix => (WaitPattern::EarlyScan, None),
    }
}
