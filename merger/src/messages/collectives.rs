//! Collective operations: whose end cannot be before whose begin.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::messages::{Collective, Mark, MessageEvent, NONE, Semantics};

/// Operations that one process may have under way in one communicator.
const MOST_OPEN: usize = 4096;

/// Collective operations.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize)]
pub struct CollectiveCounts {
    /// Begins.
    pub begins: u64,
    /// Ends.
    pub ends: u64,
    /// Operations in which at least two processes took part.
    pub operations: u64,
    /// Ends without a begin, and operations that its processes take for different ones.
    pub inconsistent: u64,
    /// Begins and ends behind a loss.
    pub unmatchable_by_loss: u64,
    /// Begins and ends that were given up because too much was under way.
    pub over_limit: u64,
}

/// An operation under way.
#[derive(Debug, Default)]
struct Operation<D> {
    begins: u64,
    ends: u64,
    size: u64,
    semantics: Option<Semantics>,
    /// Which operation it is, and whether it has requests: the same for all.
    kind: Option<(u16, bool)>,
    is_inconsistent: bool,
    last_begin: Option<Mark<D>>,
    root: Option<u32>,
    root_begin: Option<Mark<D>>,
    root_end: Option<Mark<D>>,
    /// Of prefix operations, by place; where all pairs are wanted, of all.
    begins_by_place: Vec<(i64, Mark<D>)>,
    /// Whether every pair is told as soon as it is known, and not only the tightest.
    pairs_all: bool,
    /// Ends whose begins are not all known.
    waiting: Vec<(i64, Mark<D>)>,
}

/// Whether an end at a place waits for a begin at another.
fn orders(semantics: Semantics, of_begin: i64, of_end: i64) -> bool {
    match semantics {
        Semantics::Prefix => of_begin >= 0 && of_begin < of_end,
        _ => true,
    }
}

impl<D: Copy> Operation<D> {
    /// Adds what one process reports of the operation. Returns whether all have reported the same, of an operation that
    /// orders anything.
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
            let root = *self.root.get_or_insert(part.root);
            self.is_inconsistent |= root != part.root;
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
    ) {
        self.ends += 1;
        if !self.add_part(part) || !part.takes_part {
            return;
        }
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

    /// Pairs the ends that wait once all begins are known.
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
        1 + self.waiting.len() + self.begins_by_place.len()
    }
}

/// A process in a communicator.
#[derive(Debug, Default)]
struct Participant {
    next: u64,
    /// Operations that were begun: request and number.
    open: VecDeque<(u64, u64)>,
}

#[derive(Debug, Default)]
struct Communicator<D> {
    /// Number of the first operation that is kept.
    first: u64,
    operations: VecDeque<Operation<D>>,
}

impl<D> Communicator<D> {
    fn operation(&mut self, number: u64) -> Option<&mut Operation<D>> {
        let index = usize::try_from(number.checked_sub(self.first)?).ok()?;
        self.operations.get_mut(index)
    }
}

/// The collective operations under way.
#[derive(Debug)]
pub(crate) struct Collectives<D = ()> {
    numbers: FxHashMap<u64, usize>,
    communicators: Vec<Communicator<D>>,
    members: FxHashMap<(usize, u32), Participant>,
    /// Processes of which events may be missing.
    lost: FxHashMap<u32, ()>,
    weight: usize,
    limit: usize,
    pairs_all: bool,
    pub(crate) counts: CollectiveCounts,
}

impl<D: Copy + Default> Collectives<D> {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            numbers: FxHashMap::default(),
            communicators: Vec::new(),
            members: FxHashMap::default(),
            lost: FxHashMap::default(),
            weight: 0,
            limit,
            pairs_all: false,
            counts: CollectiveCounts::default(),
        }
    }

    /// Asks for every pair as soon as it is known.
    pub(crate) const fn pair_all(&mut self) {
        self.pairs_all = true;
    }

    pub(crate) fn lose(&mut self, process: u32) {
        self.lost.insert(process, ());
    }

    fn communicator(&mut self, event: &MessageEvent) -> Option<usize> {
        if self.lost.contains_key(&event.process) {
            self.counts.unmatchable_by_loss += 1;
            return None;
        }
        let known = self.numbers.get(&event.communicator).copied();
        let is_full = self.communicators.len() >= self.limit || self.members.len() >= self.limit;
        if known.is_none() && is_full {
            self.counts.over_limit += 1;
            return None;
        }
        Some(known.unwrap_or_else(|| {
            let number = self.communicators.len();
            self.numbers.insert(event.communicator, number);
            self.communicators.push(Communicator::default());
            number
        }))
    }

    pub(crate) fn begin(
        &mut self,
        event: &MessageEvent,
        part: &Collective,
        mark: Mark<D>,
        paired: &mut impl FnMut(Mark<D>, Mark<D>),
    ) {
        self.counts.begins += 1;
        let Some(communicator) = self.communicator(event) else {
            return;
        };
        let member = self
            .members
            .entry((communicator, event.process))
            .or_default();
        let number = member.next;
        member.next += 1;
        if member.open.len() >= MOST_OPEN {
            // It never ends what it begins.
            self.weight -= member.open.len();
            member.open.clear();
            self.counts.over_limit += 1;
            self.lose(event.process);
            return;
        }
        member.open.push_back((event.request, number));
        self.weight += 1;
        let of = &mut self.communicators[communicator];
        while of.first + of.operations.len() as u64 <= number {
            of.operations.push_back(Operation {
                pairs_all: self.pairs_all,
                ..Operation::default()
            });
            self.weight += 1;
        }
        match of.operation(number) {
            Some(operation) => {
                let before = operation.weight();
                operation.begin(event, part, mark, paired);
                self.weight += operation.weight();
                self.weight -= before;
            }
            None => self.counts.over_limit += 1,
        }
        self.clean(communicator, paired);
    }

    pub(crate) fn end(
        &mut self,
        event: &MessageEvent,
        part: &Collective,
        mark: Mark<D>,
        paired: &mut impl FnMut(Mark<D>, Mark<D>),
    ) {
        self.counts.ends += 1;
        let Some(communicator) = self.communicator(event) else {
            return;
        };
        let member = self
            .members
            .entry((communicator, event.process))
            .or_default();
        let place = match event.request {
            NONE => member.open.iter().position(|(request, _)| *request == NONE),
            request => member.open.iter().position(|(open, _)| *open == request),
        };
        let Some((_, number)) = place.and_then(|place| member.open.remove(place)) else {
            self.counts.inconsistent += 1;
            return;
        };
        self.weight -= 1;
        match self.communicators[communicator].operation(number) {
            Some(operation) => {
                let before = operation.weight();
                operation.end(event, part, mark, paired);
                self.weight += operation.weight();
                self.weight -= before;
            }
            None => self.counts.over_limit += 1,
        }
        self.clean(communicator, paired);
    }

    /// Lets go of operations in which all have taken part, and at the limit of the oldest.
    fn clean(&mut self, communicator: usize, paired: &mut impl FnMut(Mark<D>, Mark<D>)) {
        let of = &mut self.communicators[communicator];
        while let Some(operation) = of.operations.front_mut() {
            if !operation.is_complete() && self.weight <= self.limit {
                break;
            }
            self.weight -= operation.weight();
            conclude(operation, &mut self.counts, paired);
            of.operations.pop_front();
            of.first += 1;
        }
    }

    pub(crate) fn finish(&mut self, paired: &mut impl FnMut(Mark<D>, Mark<D>)) {
        for communicator in &mut self.communicators {
            for operation in &mut communicator.operations {
                conclude(operation, &mut self.counts, paired);
            }
            communicator.operations.clear();
        }
    }
}

fn conclude<D: Copy>(
    operation: &mut Operation<D>,
    counts: &mut CollectiveCounts,
    paired: &mut impl FnMut(Mark<D>, Mark<D>),
) {
    operation.pair_waiting(paired);
    counts.inconsistent += u64::from(operation.is_inconsistent);
    counts.operations += u64::from(operation.begins > 1);
}
