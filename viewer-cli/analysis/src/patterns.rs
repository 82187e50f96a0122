//! Wait states: how long a call waited, by the times of the calls that took part.
//!
//! The patterns and their formulas are those of Scalasca 1.4 (`MPI.pattern` of its analyser *scout*): the times are the enter
//! and the leave of the region that completes the operation. A result that is not above 0 is no wait. All times are trace
//! times in nanoseconds.

use annals_format::CollectiveOperation;

/// What a collective operation makes its members wait for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Family {
    /// All wait for the last member.
    Barrier,
    /// All that receive wait for the last member that sends.
    AllToAll,
    /// All that receive wait for the root.
    OneToAll,
    /// The root waits for the first member that sends.
    AllToOne,
    /// A member waits for the last of the members before it.
    Prefix,
}

impl Family {
    /// Returns the family of an operation. `None` for those in which no member must wait for another.
    pub const fn of(operation: CollectiveOperation) -> Option<Self> {
        use CollectiveOperation as Op;
        Some(match operation {
            Op::Barrier => Self::Barrier,
            Op::Allgather
            | Op::Allgatherv
            | Op::Alltoall
            | Op::Allreduce
            | Op::ReduceScatter
            | Op::ReduceScatterBlock => Self::AllToAll,
            Op::Broadcast | Op::Scatter | Op::Scatterv => Self::OneToAll,
            Op::Gather | Op::Gatherv | Op::Reduce => Self::AllToOne,
            Op::Scan | Op::Exscan => Self::Prefix,
            _ => return None,
        })
    }
}

/// The part of a member in a collective operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemberPart {
    /// Enter of the call that began the operation.
    pub begun_ns: i64,
    /// Enter of the call that completed the operation: of a blocking operation, the same.
    pub entered_ns: i64,
    /// Leave of the call that completed the operation.
    pub left_ns: i64,
    /// Rank in the communicator.
    pub place: i64,
    /// Whether the member is the root.
    pub is_root: bool,
    /// Whether others receive something of the member.
    pub sends: bool,
    /// Whether the member receives something of others.
    pub receives: bool,
}

/// How long a member of a collective operation waited.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct PartWait {
    /// Time from its enter to the enter of the member for which it waited. 0 means no wait.
    pub wait_ns: i64,
    /// Number of the member for which it waited.
    pub waited_for: Option<usize>,
    /// Time that the member stayed in the operation after the first one had left it and the last one had entered it. 0 for
    /// families without such a pattern.
    pub completion_ns: i64,
}

impl PartWait {
    /// Returns the wait of a member for another, which ends at its own leave at the latest.
    fn of(part: &MemberPart, waited_for: Option<usize>, until_ns: i64) -> Self {
        let wait_ns = until_ns.min(part.left_ns) - part.entered_ns;
        if wait_ns <= 0 {
            return Self::default();
        }
        Self {
            wait_ns,
            waited_for,
            completion_ns: 0,
        }
    }
}

/// Returns how long each member of a collective operation waited, in the order of `parts`.
///
/// | family | members | wait |
/// |---|---|---|
/// | barrier | all | min(max enters, own leave) − own enter |
/// | all to all | those that receive | min(max enters of those that send, own leave) − own enter |
/// | one to all | those that receive, but the root | min(enter of the root, own leave) − own enter |
/// | all to one | the root | min(min enters of others that send, own leave) − own enter |
/// | prefix | all | min(max enters of lower and own places, own leave) − own enter |
///
/// The completion of a barrier is: own leave − max(min leaves, max enters). That of all to all counts only members that
/// send and receive: for them, own leave − max(min of their leaves, max enters).
///
/// Of an operation that is begun in one call and completed in another, the enters of other members are those of the calls
/// that began it, and the own enter and leave are those of the call that completed it; its completion is from its own enter
/// on at the earliest.
pub fn collective_waits(family: Family, parts: &[MemberPart]) -> Vec<PartWait> {
    let numbered = || parts.iter().enumerate();
    let last = |is_wanted: &dyn Fn(&MemberPart) -> bool| {
        let wanted = numbered().filter(|(_, part)| is_wanted(part));
        // Of several that entered last, the first by number.
        let last = wanted.max_by_key(|(number, part)| (part.begun_ns, std::cmp::Reverse(*number)));
        last.map(|(number, part)| (number, part.begun_ns))
    };
    let wait = |part: &MemberPart, other: Option<(usize, i64)>| match other {
        Some((number, until_ns)) => PartWait::of(part, Some(number), until_ns),
        None => PartWait::default(),
    };
    match family {
        Family::Barrier => {
            let last = last(&|_| true);
            let mut waits: Vec<PartWait> = parts.iter().map(|part| wait(part, last)).collect();
            complete(parts, &mut waits, |_| true);
            waits
        }
        Family::AllToAll => {
            let last = last(&|part| part.sends);
            let of = |part: &MemberPart| wait(part, last.filter(|_| part.receives));
            let mut waits: Vec<PartWait> = parts.iter().map(of).collect();
            complete(parts, &mut waits, |part| part.sends && part.receives);
            waits
        }
        Family::OneToAll => {
            let root = last(&|part| part.is_root);
            let of =
                |part: &MemberPart| wait(part, root.filter(|_| part.receives && !part.is_root));
            parts.iter().map(of).collect()
        }
        Family::AllToOne => {
            let senders = numbered().filter(|(_, part)| part.sends && !part.is_root);
            let first = senders.min_by_key(|(number, part)| (part.begun_ns, *number));
            let first = first.map(|(number, part)| (number, part.begun_ns));
            let of = |part: &MemberPart| wait(part, first.filter(|_| part.is_root));
            parts.iter().map(of).collect()
        }
        Family::Prefix => {
            let mut order: Vec<usize> = (0..parts.len()).collect();
            order.sort_by_key(|number| parts[*number].place);
            let mut waits = vec![PartWait::default(); parts.len()];
            let mut last: Option<(usize, i64)> = None;
            for number in order {
                let part = &parts[number];
                if last.is_none_or(|(_, begun_ns)| part.begun_ns > begun_ns) {
                    last = Some((number, part.begun_ns));
                }
                waits[number] = wait(part, last);
            }
            waits
        }
    }
}

/// Sets the completions of the members that count.
fn complete(parts: &[MemberPart], waits: &mut [PartWait], counts: impl Fn(&MemberPart) -> bool) {
    let first_left = parts.iter().filter(|part| counts(part));
    let first_left = first_left.map(|part| part.left_ns).min();
    let last_entered = parts.iter().map(|part| part.begun_ns).max();
    let (Some(first_left), Some(last_entered)) = (first_left, last_entered) else {
        return;
    };
    let from_ns = first_left.max(last_entered);
    for (part, wait) in parts.iter().zip(waits) {
        if counts(part) {
            wait.completion_ns = (part.left_ns - from_ns.max(part.entered_ns)).max(0);
        }
    }
}

/// Returns how long a receive waited for a send that was late: min(enter of the send, leave of the receive) − enter of the
/// receive.
pub fn late_sender(send_entered_ns: i64, receive_entered_ns: i64, receive_left_ns: i64) -> i64 {
    let until_ns = send_entered_ns.min(receive_left_ns);
    until_ns.saturating_sub(receive_entered_ns).max(0)
}

/// Returns the part of a [`late_sender`] during which another message had been sent to the rank, earlier than the one that was
/// waited for, and was received later: receiving it first would have filled this time.
pub fn wrong_order(
    other_send_entered_ns: i64,
    send_entered_ns: i64,
    receive_entered_ns: i64,
    receive_left_ns: i64,
) -> i64 {
    if other_send_entered_ns >= send_entered_ns {
        return 0;
    }
    let from_ns = receive_entered_ns.max(other_send_entered_ns);
    (send_entered_ns.min(receive_left_ns) - from_ns).max(0)
}

/// Returns how long a call that completes a send waited for the receive: enter of the receive's request − enter of the
/// call, where the call was left no earlier than the receive was entered.
pub fn late_receiver(
    receive_entered_ns: i64,
    completion_entered_ns: i64,
    completion_left_ns: i64,
) -> i64 {
    if completion_left_ns < receive_entered_ns {
        return 0;
    }
    (receive_entered_ns - completion_entered_ns).max(0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn part(place: i64, entered_ns: i64, left_ns: i64) -> MemberPart {
        MemberPart {
            begun_ns: entered_ns,
            entered_ns,
            left_ns,
            place,
            is_root: place == 0,
            sends: true,
            receives: true,
        }
    }

    /// Wait, the member that was waited for, completion.
    fn waits(family: Family, parts: &[MemberPart]) -> Vec<(i64, Option<usize>, i64)> {
        let waits = collective_waits(family, parts).into_iter();
        waits
            .map(|wait| (wait.wait_ns, wait.waited_for, wait.completion_ns))
            .collect()
    }

    #[test]
    fn all_wait_for_the_last_at_a_barrier() {
        let parts = [part(0, 10, 55), part(1, 40, 50), part(2, 25, 52)];
        // The first leave is at 50.
        let expected = [(30, Some(1), 5), (0, None, 0), (15, Some(1), 2)];
        assert_eq!(waits(Family::Barrier, &parts), expected);
    }

    #[test]
    fn a_wait_ends_with_the_own_call() {
        let parts = [part(0, 10, 30), part(1, 40, 50)];
        assert_eq!(waits(Family::Barrier, &parts)[0], (20, Some(1), 0));
    }

    #[test]
    fn who_receives_nothing_waits_for_no_member_and_who_sends_nothing_is_waited_for_by_none() {
        let mut parts = [part(0, 10, 55), part(1, 40, 50), part(2, 25, 52)];
        parts[0].receives = false;
        parts[1].sends = false;
        // The last that sends is 2. Only 2 sends and receives.
        let expected = [(0, None, 0), (0, None, 0), (0, None, 0)];
        assert_eq!(waits(Family::AllToAll, &parts), expected);
        parts[0].receives = true;
        let expected = [(15, Some(2), 3), (0, None, 0), (0, None, 0)];
        assert_eq!(waits(Family::AllToAll, &parts), expected);
    }

    #[test]
    fn a_broadcast_waits_for_its_root() {
        let parts = [part(0, 40, 42), part(1, 10, 43), part(2, 41, 44)];
        let expected = [(0, None, 0), (30, Some(0), 0), (0, None, 0)];
        assert_eq!(waits(Family::OneToAll, &parts), expected);
    }

    #[test]
    fn the_root_of_a_reduction_waits_for_the_first_that_sends() {
        let parts = [part(0, 10, 60), part(1, 40, 43), part(2, 25, 44)];
        let expected = [(15, Some(2), 0), (0, None, 0), (0, None, 0)];
        assert_eq!(waits(Family::AllToOne, &parts), expected);
    }

    #[test]
    fn a_scan_waits_for_lower_places() {
        let parts = [
            part(2, 10, 60),
            part(0, 30, 43),
            part(1, 20, 44),
            part(3, 50, 61),
        ];
        let expected = [
            (20, Some(1), 0),
            (0, None, 0),
            (10, Some(1), 0),
            (0, None, 0),
        ];
        assert_eq!(waits(Family::Prefix, &parts), expected);
    }

    #[test]
    fn messages_wait_for_the_later_side() {
        assert_eq!(late_sender(40, 10, 60), 30);
        assert_eq!(late_sender(40, 10, 25), 15, "the clocks are wrong");
        assert_eq!(late_sender(5, 10, 25), 0);
        assert_eq!(wrong_order(20, 40, 10, 60), 20);
        assert_eq!(wrong_order(5, 40, 10, 60), 30, "all of it");
        assert_eq!(wrong_order(41, 40, 10, 60), 0, "sent later");
        assert_eq!(late_receiver(30, 10, 35), 20);
        assert_eq!(late_receiver(30, 10, 29), 0, "it did not wait until then");
        assert_eq!(late_receiver(5, 10, 29), 0);
    }

    fn parts() -> impl Strategy<Value = Vec<MemberPart>> {
        let part = (
            0..1000_i64,
            prop_oneof![Just(0), 0..500_i64],
            0..1000_i64,
            any::<[bool; 2]>(),
        );
        prop::collection::vec(part, 0..8).prop_map(|parts| {
            let numbered = parts.into_iter().enumerate();
            let parts = numbered.map(
                |(place, (begun_ns, later_ns, length_ns, [sends, receives]))| MemberPart {
                    begun_ns,
                    entered_ns: begun_ns + later_ns,
                    left_ns: begun_ns + later_ns + length_ns,
                    place: place as i64,
                    is_root: place == 1,
                    sends,
                    receives,
                },
            );
            parts.collect()
        })
    }

    /// The formulas as they are written, for one member.
    fn naive(family: Family, parts: &[MemberPart], own: &MemberPart) -> i64 {
        let enters = |is_wanted: &dyn Fn(&MemberPart) -> bool| -> Vec<i64> {
            let wanted = parts.iter().filter(|part| is_wanted(part));
            wanted.map(|part| part.begun_ns).collect()
        };
        let until_ns = match family {
            Family::Barrier => enters(&|_| true).into_iter().max(),
            Family::AllToAll if own.receives => enters(&|part| part.sends).into_iter().max(),
            Family::OneToAll if own.receives && !own.is_root => {
                enters(&|part| part.is_root).into_iter().max()
            }
            Family::AllToOne if own.is_root => enters(&|part| part.sends && !part.is_root)
                .into_iter()
                .min(),
            Family::Prefix => enters(&|part| part.place <= own.place).into_iter().max(),
            _ => None,
        };
        until_ns.map_or(0, |until_ns| {
            (until_ns.min(own.left_ns) - own.entered_ns).max(0)
        })
    }

    proptest! {
        #[test]
        fn waits_are_what_the_formulas_say(parts in parts()) {
            for family in [
                Family::Barrier,
                Family::AllToAll,
                Family::OneToAll,
                Family::AllToOne,
                Family::Prefix,
            ] {
                let waits = collective_waits(family, &parts);
                for (part, wait) in parts.iter().zip(waits) {
                    prop_assert_eq!(wait.wait_ns, naive(family, &parts, part));
                    let length_ns = part.left_ns - part.entered_ns;
                    prop_assert!(wait.wait_ns + wait.completion_ns <= length_ns);
                    prop_assert_eq!(wait.waited_for.is_some(), wait.wait_ns > 0);
                    if let Some(other) = wait.waited_for {
                        prop_assert!(parts[other].begun_ns >= part.entered_ns + wait.wait_ns);
                    }
                }
            }
        }
    }
}
