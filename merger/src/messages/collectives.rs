//! Collective operations: which ends cannot be before which begins.

mod from_end;

use std::collections::{BTreeMap, VecDeque};
use std::ops::AddAssign;

use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::messages::{
    Collective, Mark, MessageContent, MessageEvent, NOBODY, NONE, SHARDS, Semantics,
};

/// Maximum number of operations that one process has in progress in one communicator.
const MOST_OPEN: usize = 4096;

/// Counts of collective operations.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize)]
pub struct CollectiveCounts {
    /// Begins.
    pub begins: u64,
    /// Ends.
    pub ends: u64,
    /// Operations in which at least two processes took part.
    pub operations: u64,
    /// Ends without a begin, and operations that their processes describe differently.
    pub inconsistent: u64,
    /// Begins and ends after a loss whose operation is not known.
    pub unmatchable_by_loss: u64,
    /// Begins and ends that were dropped because too many operations were in progress.
    pub over_limit: u64,
}

impl AddAssign for CollectiveCounts {
    fn add_assign(&mut self, other: Self) {
        self.begins += other.begins;
        self.ends += other.ends;
        self.operations += other.operations;
        self.inconsistent += other.inconsistent;
        self.unmatchable_by_loss += other.unmatchable_by_loss;
        self.over_limit += other.over_limit;
    }
}

/// What a process did in an operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OperationPart<D> {
    pub(crate) process: u32,
    /// Place of the process in the communicator. A negative value means that it is not known.
    pub(crate) place: i64,
    pub(crate) begin: Option<Mark<D>>,
    pub(crate) end: Option<Mark<D>>,
    /// Whether others may wait for the process.
    pub(crate) sends: bool,
    /// Whether the process may wait for others.
    pub(crate) receives: bool,
}

/// An operation that is over, with all that is known of it.
#[derive(Debug)]
pub(crate) struct ConcludedOperation<D> {
    /// Number that no other operation has.
    pub(crate) id: u64,
    /// Number of its communicator.
    pub(crate) communicator: usize,
    /// Code of the operation.
    pub(crate) operation: u16,
    /// Number of processes. 0 means that it is not known.
    pub(crate) size: u64,
    pub(crate) root: Option<u32>,
    /// Whether its processes describe it differently.
    pub(crate) is_inconsistent: bool,
    pub(crate) parts: Vec<OperationPart<D>>,
}

impl<D> ConcludedOperation<D> {
    /// Returns the number of its last event. `None` if it has none.
    pub(crate) fn last(&self) -> Option<u64> {
        let parts = self.parts.iter();
        let marks = parts.flat_map(|part| part.begin.iter().chain(&part.end));
        marks.map(|mark| mark.number).max()
    }
}

/// An end, at the time when it was fed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EndedPart<D> {
    /// Number of the operation.
    pub(crate) id: u64,
    pub(crate) end: Mark<D>,
    /// Largest value of [`Carry`] of the begins for which the end waited, as far as they have been fed.
    pub(crate) latest_begin: Option<i64>,
}

/// A number in the detail of an event.
pub(crate) trait Carry: Copy + Default {
    fn carry(&self) -> i64;
}

impl Carry for () {
    fn carry(&self) -> i64 {
        0
    }
}

/// The parts of an operation in progress, for callers that need them all.
#[derive(Debug)]
struct OperationParts<D> {
    id: u64,
    communicator: usize,
    /// Indices by process.
    numbers: FxHashMap<u32, usize>,
    parts: Vec<OperationPart<D>>,
    /// Largest value of [`Carry`] of all begins that others may wait for.
    latest: Option<i64>,
}

impl<D: Carry> OperationParts<D> {
    fn part(&mut self, process: u32, place: i64) -> &mut OperationPart<D> {
        let next = self.parts.len();
        let number = *self.numbers.entry(process).or_insert(next);
        if number == next {
            self.parts.push(OperationPart {
                process,
                place,
                begin: None,
                end: None,
                sends: false,
                receives: false,
            });
        }
        &mut self.parts[number]
    }

    fn begin(&mut self, part: &Collective, mark: Mark<D>) {
        let sends = part.takes_part && part.semantics != Semantics::Nothing;
        let of = self.part(mark.process, part.place);
        (of.begin, of.sends) = (Some(mark), sends);
        if sends {
            let carry = mark.detail.carry();
            self.latest = Some(self.latest.map_or(carry, |latest| latest.max(carry)));
        }
    }

    fn end(&mut self, part: &Collective, mark: Mark<D>, root: Option<u32>) -> EndedPart<D> {
        let receives = part.takes_part && part.semantics != Semantics::Nothing;
        let of = self.part(mark.process, part.place);
        (of.end, of.receives) = (Some(mark), receives);
        let begins = |is_wanted: &dyn Fn(&OperationPart<D>) -> bool| {
            let wanted = self
                .parts
                .iter()
                .filter(|part| part.sends && is_wanted(part));
            let begins = wanted.filter_map(|part| part.begin);
            begins.map(|begin| begin.detail.carry()).max()
        };
        let latest_begin = match part.semantics {
            _ if !receives => None,
            Semantics::AllToAll => self.latest,
            Semantics::OneToAll => begins(&|part| Some(part.process) == root),
            Semantics::AllToOne if Some(mark.process) == root => self.latest,
            Semantics::Prefix => begins(&|other| other.place <= part.place),
            Semantics::AllToOne | Semantics::Nothing => None,
        };
        EndedPart {
            id: self.id,
            end: mark,
            latest_begin,
        }
    }
}

/// An operation in progress.
#[derive(Debug, Default)]
struct Operation<D> {
    begins: u64,
    ends: u64,
    size: u64,
    semantics: Option<Semantics>,
    /// Code of the operation, and whether it has requests. Both are equal in all processes.
    kind: Option<(u16, bool)>,
    is_inconsistent: bool,
    last_begin: Option<Mark<D>>,
    root: Option<u32>,
    root_begin: Option<Mark<D>>,
    root_end: Option<Mark<D>>,
    /// Begins with their places: of prefix operations, or with `pairs_all` of all operations.
    begins_by_place: Vec<(i64, Mark<D>)>,
    /// Whether every pair is reported as soon as it is known, and not only the tightest.
    pairs_all: bool,
    /// Ends whose begins are not all known.
    waiting: Vec<(i64, Mark<D>)>,
    /// `None` means that the caller does not need the parts.
    parts: Option<Box<OperationParts<D>>>,
}

/// Returns whether an end at a place waits for a begin at another.
fn orders(semantics: Semantics, of_begin: i64, of_end: i64) -> bool {
    match semantics {
        Semantics::Prefix => of_begin >= 0 && of_begin < of_end,
        _ => true,
    }
}

impl<D: Carry> Operation<D> {
    /// Adds the report of one process about the operation. Returns whether the operation imposes an
    /// order, and all processes have reported the same.
    fn add_part(&mut self, part: &Collective) -> bool {
        if part.size != 0 {
            self.size = part.size.into();
        }
        if part.semantics == Semantics::Nothing {
            return false;
        }
        let semantics = *self.semantics.get_or_insert(part.semantics);
        let has_root = matches!(semantics, Semantics::OneToAll | Semantics::AllToOne);
        if has_root {
            // In some traces, only the root reports that it is the root.
            if part.root != NOBODY {
                let root = *self.root.get_or_insert(part.root);
                self.is_inconsistent |= root != part.root;
            }
        }
        self.is_inconsistent |= semantics != part.semantics;
        !self.is_inconsistent
    }

    fn begin(
        &mut self,
        event: &MessageEvent,
        part: &Collective,
        mark: Mark<D>,
        paired: &mut impl FnMut(Mark<D>, Mark<D>),
    ) {
        self.begins += 1;
        let kind = (part.operation, event.request != NONE);
        self.is_inconsistent |= *self.kind.get_or_insert(kind) != kind;
        if let Some(parts) = &mut self.parts {
            parts.begin(part, mark);
        }
        if !self.add_part(part) || !part.takes_part {
            return;
        }
        self.last_begin = Some(mark);
        if self.pairs_all {
            if part.semantics == Semantics::OneToAll && part.root != event.process {
                return;
            }
            self.begins_by_place.push((part.place, mark));
            for (place, end) in &self.waiting {
                if orders(part.semantics, part.place, *place) && end.process != mark.process {
                    paired(mark, *end);
                }
            }
            return;
        }
        match part.semantics {
            Semantics::OneToAll if part.root == event.process => {
                self.root_begin = Some(mark);
                let waiting = std::mem::take(&mut self.waiting);
                waiting.into_iter().for_each(|(_, end)| paired(mark, end));
            }
            Semantics::AllToOne => {
                if let Some(end) = self.root_end {
                    paired(mark, end);
                }
            }
            Semantics::Prefix if part.place >= 0 => self.begins_by_place.push((part.place, mark)),
            _ => {}
        }
    }

    fn end(
        &mut self,
        event: &MessageEvent,
        part: &Collective,
        mark: Mark<D>,
        paired: &mut impl FnMut(Mark<D>, Mark<D>),
    ) -> Option<EndedPart<D>> {
        self.ends += 1;
        let is_ordered = self.add_part(part);
        let root = self.root;
        let ended = self.parts.as_mut();
        let ended = ended.map(|parts| parts.end(part, mark, root));
        if is_ordered && part.takes_part {
            self.order_end(event, part, mark, paired);
        }
        ended
    }

    /// Pairs an end with the begins for which it waits, or keeps it until they are known.
    fn order_end(
        &mut self,
        event: &MessageEvent,
        part: &Collective,
        mark: Mark<D>,
        paired: &mut impl FnMut(Mark<D>, Mark<D>),
    ) {
        if self.pairs_all {
            let waits = match part.semantics {
                Semantics::OneToAll => part.root != event.process,
                Semantics::AllToOne => part.root == event.process,
                _ => true,
            };
            if waits {
                for (place, begin) in &self.begins_by_place {
                    if orders(part.semantics, *place, part.place) && begin.process != mark.process {
                        paired(*begin, mark);
                    }
                }
                self.waiting.push((part.place, mark));
            }
            return;
        }
        match part.semantics {
            Semantics::AllToAll => self.waiting.push((0, mark)),
            Semantics::OneToAll if part.root != event.process => match self.root_begin {
                Some(begin) => paired(begin, mark),
                None => self.waiting.push((0, mark)),
            },
            Semantics::AllToOne if part.root == event.process => {
                self.root_end = Some(mark);
                if let Some(begin) = self.last_begin.filter(|b| b.process != mark.process) {
                    paired(begin, mark);
                }
            }
            Semantics::Prefix if part.place >= 0 => self.waiting.push((part.place, mark)),
            _ => {}
        }
    }

    /// Pairs the waiting ends when all begins are known.
    fn pair_waiting(&mut self, paired: &mut impl FnMut(Mark<D>, Mark<D>)) {
        if self.is_inconsistent || self.pairs_all {
            self.waiting.clear();
            return;
        }
        match self.semantics {
            Some(Semantics::AllToAll) => {
                for (_, end) in self.waiting.drain(..) {
                    let begin = self.last_begin.filter(|b| b.process != end.process);
                    begin.into_iter().for_each(|begin| paired(begin, end));
                }
            }
            Some(Semantics::Prefix) => {
                self.begins_by_place.sort_by_key(|(place, _)| *place);
                self.waiting.sort_by_key(|(place, _)| *place);
                let mut begins = self.begins_by_place.iter().peekable();
                let mut latest: Option<Mark<D>> = None;
                for (place, end) in self.waiting.drain(..) {
                    while let Some((_, begin)) = begins.next_if(|(lower, _)| *lower < place) {
                        if latest.is_none_or(|latest| latest.time_ns <= begin.time_ns) {
                            latest = Some(*begin);
                        }
                    }
                    latest.into_iter().for_each(|begin| paired(begin, end));
                }
            }
            _ => {}
        }
    }

    fn is_complete(&self) -> bool {
        self.size != 0 && self.begins >= self.size && self.ends >= self.size
    }

    fn weight(&self) -> usize {
        let parts = self.parts.as_ref().map_or(0, |parts| parts.parts.len());
        1 + self.waiting.len() + self.begins_by_place.len() + parts
    }
}

/// Begins and ends of a process after a loss, whose operations are not known yet.
type Tail<D> = Vec<(MessageEvent, Collective, Mark<D>)>;

/// A process in a communicator.
#[derive(Debug)]
struct Participant<D> {
    process: u32,
    /// Number of its next operation, if events have no sequence numbers.
    next: u64,
    /// Operations that were begun and have not ended: request and number.
    open: VecDeque<(u64, u64)>,
    /// The last N-to-N operation that was begun: its number, and the number of the event.
    last_of_all: Option<(u64, u64)>,
    /// Number of losses of its process at its last event.
    losses: u32,
    /// Events since a loss, whose operations are not known. They may be matched from the end.
    /// `None` means that the operations are known.
    tail: Option<Tail<D>>,
}

impl<D> Participant<D> {
    const fn new(process: u32) -> Self {
        Self {
            process,
            next: 0,
            open: VecDeque::new(),
            last_of_all: None,
            losses: 0,
            tail: None,
        }
    }

    fn weight(&self) -> usize {
        self.open.len() + self.tail.as_ref().map_or(0, Vec::len)
    }
}

#[derive(Debug)]
struct Communicator<D> {
    /// The value by which the events refer to it.
    id: u64,
    /// The operations that are kept, by number.
    operations: BTreeMap<u64, Operation<D>>,
    /// Number of the first operation that was not dropped. Operations of persistent requests have
    /// much larger numbers.
    first: u64,
    /// The processes, in the order of their first events.
    participants: Vec<Participant<D>>,
    /// Indices in `participants`, by process.
    members: FxHashMap<u32, usize>,
    /// Numbers of the events with which the members began the last N-to-N operation, by process.
    /// Set at the end of the trace, if it is proven.
    last_of_all: BTreeMap<u32, u64>,
}

/// The place of a process in the list of a communicator.
#[derive(Clone, Copy, Debug)]
struct Member {
    communicator: usize,
    index: usize,
}

/// The collective operations in progress, of the communicators of a shard.
#[derive(Debug)]
pub(crate) struct Collectives<D = ()> {
    /// Number of the shard.
    shard: usize,
    numbers: FxHashMap<u64, usize>,
    communicators: Vec<Communicator<D>>,
    /// How often events of a process may have been lost.
    losses: FxHashMap<u32, u32>,
    participants: usize,
    weight: usize,
    limit: usize,
    pairs_all: bool,
    /// Number of the next operation, if the caller needs whole operations.
    next_id: Option<u64>,
    /// Ends since the caller has taken them. Empty unless whole operations are kept.
    pub(crate) ended: Vec<EndedPart<D>>,
    /// Operations that were concluded since the caller has taken them. Empty unless whole operations are kept.
    pub(crate) concluded: Vec<ConcludedOperation<D>>,
    pub(crate) counts: CollectiveCounts,
}

impl<D: Carry> Collectives<D> {
    pub(crate) fn new(shard: usize, limit: usize) -> Self {
        Self {
            shard,
            numbers: FxHashMap::default(),
            communicators: Vec::new(),
            losses: FxHashMap::default(),
            participants: 0,
            weight: 0,
            limit,
            pairs_all: false,
            next_id: None,
            ended: Vec::new(),
            concluded: Vec::new(),
            counts: CollectiveCounts::default(),
        }
    }

    /// Requests that every pair is reported as soon as it is known.
    pub(crate) const fn pair_all(&mut self) {
        self.pairs_all = true;
    }

    /// Requests whole operations, in `ended` and `concluded`.
    pub(crate) const fn keep_whole(&mut self) {
        self.next_id = Some(self.shard as u64);
    }

    /// Records that events of a process may be missing at this point.
    pub(crate) fn lose(&mut self, process: u32) {
        *self.losses.entry(process).or_default() += 1;
    }

    /// Returns the member of a communicator that an event is of, or `None` at the limit.
    ///
    /// Adds the event's process to the communicator, and applies the losses of the process.
    fn member(&mut self, event: &MessageEvent) -> Option<Member> {
        let known = self.numbers.get(&event.communicator).copied();
        let is_full = self.communicators.len() >= self.limit || self.participants >= self.limit;
        if known.is_none() && is_full {
            self.counts.over_limit += 1;
            return None;
        }
        let number = known.unwrap_or_else(|| {
            let number = self.communicators.len();
            self.numbers.insert(event.communicator, number);
            self.communicators.push(Communicator {
                id: event.communicator,
                operations: BTreeMap::new(),
                first: 0,
                participants: Vec::new(),
                members: FxHashMap::default(),
                last_of_all: BTreeMap::new(),
            });
            number
        });
        let of = &mut self.communicators[number];
        let participants = &mut of.participants;
        let index = *of.members.entry(event.process).or_insert_with(|| {
            self.participants += 1;
            participants.push(Participant::new(event.process));
            participants.len() - 1
        });
        let member = Member {
            communicator: number,
            index,
        };
        self.refresh(member);
        Some(member)
    }

    /// Applies the losses of a process since its last event in a communicator.
    fn refresh(&mut self, member: Member) {
        if self.losses.is_empty() {
            return;
        }
        let process = self.participant(member).process;
        let losses = self.losses.get(&process).copied().unwrap_or(0);
        let participant = self.participant(member);
        if participant.losses == losses {
            return;
        }
        participant.losses = losses;
        let weight = participant.weight();
        participant.open.clear();
        let tail = participant.tail.replace(Vec::new()).unwrap_or_default();
        self.weight -= weight;
        self.counts.unmatchable_by_loss += tail.len() as u64;
    }

    fn participant(&mut self, member: Member) -> &mut Participant<D> {
        &mut self.communicators[member.communicator].participants[member.index]
    }

    /// Keeps an event until the end because its operation is not known.
    fn keep(&mut self, member: Member, event: &MessageEvent, part: &Collective, mark: Mark<D>) {
        let is_over = self.weight > self.limit;
        let participant = self.participant(member);
        if let Some(tail) = participant.tail.as_mut().filter(|_| !is_over) {
            tail.push((*event, *part, mark));
            self.weight += 1;
        } else {
            self.counts.unmatchable_by_loss += 1;
            // Later events cannot be counted from the end either: this is treated as another loss.
            self.lose(event.process);
        }
    }

    /// Takes a begin or an end.
    pub(crate) fn take(
        &mut self,
        event: &MessageEvent,
        mark: Mark<D>,
        paired: &mut impl FnMut(Mark<D>, Mark<D>),
    ) {
        match &event.content {
            MessageContent::Collective(part) if part.is_begin => {
                self.begin(event, part, mark, paired);
            }
            MessageContent::Collective(part) => self.end(event, part, mark, paired),
            MessageContent::PointToPoint(_) => {}
        }
    }

    fn begin(
        &mut self,
        event: &MessageEvent,
        part: &Collective,
        mark: Mark<D>,
        paired: &mut impl FnMut(Mark<D>, Mark<D>),
    ) {
        self.counts.begins += 1;
        let Some(member) = self.member(event) else {
            return;
        };
        let participant = self.participant(member);
        let number = match part.sequence {
            NONE if participant.tail.is_some() => {
                self.keep(member, event, part, mark);
                return;
            }
            NONE => participant.next,
            sequence => {
                let tail = participant.tail.take().unwrap_or_default().len();
                self.weight -= tail;
                self.counts.unmatchable_by_loss += tail as u64;
                sequence
            }
        };
        let participant = self.participant(member);
        if participant.open.len() >= MOST_OPEN {
            // The process never ends its operations.
            let open = participant.open.len();
            participant.open.clear();
            self.weight -= open;
            self.counts.over_limit += 1;
            self.lose(event.process);
            return;
        }
        participant.next = number.saturating_add(1);
        if part.semantics == Semantics::AllToAll {
            participant.last_of_all = Some((number, mark.number));
        }
        participant.open.push_back((event.request, number));
        self.weight += 1;
        self.with_operation(member.communicator, number, |operation| {
            operation.begin(event, part, mark, paired);
        });
        self.clean(member.communicator, number, paired);
    }

    fn end(
        &mut self,
        event: &MessageEvent,
        part: &Collective,
        mark: Mark<D>,
        paired: &mut impl FnMut(Mark<D>, Mark<D>),
    ) {
        self.counts.ends += 1;
        let Some(member) = self.member(event) else {
            return;
        };
        let participant = self.participant(member);
        let place = match (part.sequence, event.request) {
            (NONE, NONE) => participant.open.iter().position(|open| open.0 == NONE),
            (NONE, request) => participant.open.iter().position(|open| open.0 == request),
            (sequence, _) => participant.open.iter().position(|open| open.1 == sequence),
        };
        let open = place.and_then(|place| participant.open.remove(place));
        let is_lost = participant.tail.is_some() || participant.losses != 0;
        self.weight -= usize::from(open.is_some());
        let number = match (open, part.sequence) {
            (Some((_, number)), _) => number,
            // Its begin is lost.
            (None, sequence) if sequence != NONE && is_lost => sequence,
            (None, _) if self.participant(member).tail.is_some() => {
                self.keep(member, event, part, mark);
                return;
            }
            (None, _) if is_lost => {
                self.counts.unmatchable_by_loss += 1;
                return;
            }
            (None, _) => {
                self.counts.inconsistent += 1;
                return;
            }
        };
        let ended = self.with_operation(member.communicator, number, |operation| {
            operation.end(event, part, mark, paired)
        });
        self.ended.extend(ended.flatten());
        self.clean(member.communicator, number, paired);
    }

    /// Calls `act` with an operation. If the operation was dropped, counts the event instead, and returns `None`.
    fn with_operation<T>(
        &mut self,
        communicator: usize,
        number: u64,
        act: impl FnOnce(&mut Operation<D>) -> T,
    ) -> Option<T> {
        let of = &mut self.communicators[communicator];
        if number < of.first {
            self.counts.over_limit += 1;
            return None;
        }
        let operation = of.operations.entry(number).or_insert_with(|| {
            self.weight += 1;
            let parts = self.next_id.as_mut().map(|next| {
                let id = *next;
                *next += SHARDS as u64;
                Box::new(OperationParts {
                    id,
                    communicator: communicator * SHARDS + self.shard,
                    numbers: FxHashMap::default(),
                    parts: Vec::new(),
                    latest: None,
                })
            });
            Operation {
                pairs_all: self.pairs_all,
                parts,
                ..Operation::default()
            }
        });
        let before = operation.weight();
        let acted = act(operation);
        self.weight += operation.weight();
        self.weight -= before;
        Some(acted)
    }

    /// Concludes and removes an operation in which all have taken part, and at the limit the oldest
    /// ones.
    fn clean(
        &mut self,
        communicator: usize,
        number: u64,
        paired: &mut impl FnMut(Mark<D>, Mark<D>),
    ) {
        let of = &mut self.communicators[communicator];
        let touched = of.operations.get(&number);
        if touched.is_some_and(Operation::is_complete)
            && let Some(mut operation) = of.operations.remove(&number)
        {
            self.weight -= operation.weight();
            conclude(
                &mut operation,
                &mut self.counts,
                &mut self.concluded,
                paired,
            );
        }
        while self.weight > self.limit
            && let Some((oldest, mut operation)) = of.operations.pop_first()
        {
            self.weight -= operation.weight();
            conclude(
                &mut operation,
                &mut self.counts,
                &mut self.concluded,
                paired,
            );
            of.first = oldest.saturating_add(1);
        }
    }

    /// Pairs the remaining events. `has_end` is whether the trace contains the end of the run,
    /// which proves more pairs.
    pub(crate) fn finish(&mut self, has_end: bool, paired: &mut impl FnMut(Mark<D>, Mark<D>)) {
        for communicator in 0..self.communicators.len() {
            for index in 0..self.communicators[communicator].participants.len() {
                self.refresh(Member {
                    communicator,
                    index,
                });
            }
            let proven = self.matched_from_end(communicator, has_end);
            self.communicators[communicator].last_of_all = proven.last_of_all;
            let numbered = proven.numbered.len() as u64;
            for (event, part, mark, number) in proven.numbered {
                let ended = self.with_operation(communicator, number, |operation| {
                    if part.is_begin {
                        operation.begin(&event, &part, mark, paired);
                        return None;
                    }
                    operation.end(&event, &part, mark, paired)
                });
                self.ended.extend(ended.flatten());
            }
            let of = &mut self.communicators[communicator];
            let tails = of.participants.iter_mut();
            let tails = tails.map(|participant| participant.tail.take().unwrap_or_default().len());
            self.counts.unmatchable_by_loss += tails.sum::<usize>() as u64 - numbered;
            for mut operation in std::mem::take(&mut of.operations).into_values() {
                conclude(
                    &mut operation,
                    &mut self.counts,
                    &mut self.concluded,
                    paired,
                );
            }
        }
    }
}

fn conclude<D: Carry>(
    operation: &mut Operation<D>,
    counts: &mut CollectiveCounts,
    concluded: &mut Vec<ConcludedOperation<D>>,
    paired: &mut impl FnMut(Mark<D>, Mark<D>),
) {
    operation.pair_waiting(paired);
    counts.inconsistent += u64::from(operation.is_inconsistent);
    counts.operations += u64::from(operation.begins > 1);
    if let Some(parts) = operation.parts.take() {
        concluded.push(ConcludedOperation {
            id: parts.id,
            communicator: parts.communicator,
            operation: operation.kind.map_or(u16::MAX, |(code, _)| code),
            size: operation.size,
            root: operation.root,
            is_inconsistent: operation.is_inconsistent,
            parts: parts.parts,
        });
    }
}
