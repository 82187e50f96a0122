//! Which regions are open at every location: by the rules that readers of a trace go by, but without their
//! statistics.
//!
//! A leave closes the innermost open call of its region, and every call inside that; a leave of a region that is
//! not open closes nothing. A loss that may have had enters or leaves makes every open call of its location
//! uncertain.

use annals_format::{
    LocationState, MAX_SNAPSHOT_LOCATIONS, MAX_SNAPSHOT_STEPS, RegionId, Snapshot, Step, TraceChunk,
};
use rustc_hash::FxHashMap;

use crate::calls::moves::{ChunkMoves, MoveKind};
use crate::calls::region_types::RegionTypes;

/// From this depth on, open calls are counted by region, so that leaves of regions that are not open do not
/// search a deep stack again and again.
const DEEP: usize = 64;

#[derive(Debug, Default)]
struct Stack {
    steps: Vec<Step>,
    /// Of a deep stack, open calls by region.
    open: FxHashMap<RegionId, u32>,
    last_ns: Option<i64>,
    has_gap: bool,
    has_gap_after_last: bool,
}

impl Stack {
    #[inline]
    fn push(&mut self, step: Step) {
        self.steps.push(step);
        if self.steps.len() >= DEEP {
            self.count(step);
        }
    }

    fn count(&mut self, step: Step) {
        if self.open.is_empty() {
            self.steps.iter().for_each(|step| {
                if let Step::Enter { region, .. } = step {
                    *self.open.entry(*region).or_default() += 1;
                }
            });
        } else if let Step::Enter { region, .. } = step {
            *self.open.entry(region).or_default() += 1;
        }
    }

    fn truncate(&mut self, length: usize) {
        if length < DEEP {
            self.open.clear();
        }
        if !self.open.is_empty() {
            for step in &self.steps[length..] {
                if let Step::Enter { region, .. } = step
                    && let Some(count) = self.open.get_mut(region)
                {
                    *count = count.saturating_sub(1);
                }
            }
        }
        self.steps.truncate(length);
    }

    /// Leaves the innermost open region of a stack that is not deep, if this is it; else nothing is done.
    #[inline]
    fn pop(&mut self, left: RegionId) -> bool {
        let is_innermost = matches!(
            self.steps.last(),
            Some(Step::Enter { region, .. }) if *region == left
        );
        let is_left = is_innermost && self.open.is_empty();
        if is_left {
            self.steps.pop();
        }
        is_left
    }

    /// Leaves a region. `keeps_leaves`: a leave of a region that is not open is kept, for regions
    /// that were open before.
    fn leave(&mut self, left: RegionId, keeps_leaves: bool) {
        let is_absent = !self.open.is_empty() && self.open.get(&left).is_none_or(|open| *open == 0);
        let found = self
            .steps
            .iter()
            .enumerate()
            .rev()
            .find_map(|(index, step)| {
                match step {
                    _ if is_absent => Some(None),
                    Step::Enter { region, .. } => (*region == left).then_some(Some(index)),
                    // The region that it left is unknown, and so is the rest of the stack.
                    Step::Leave(_) => Some(None),
                }
            });
        match found.flatten() {
            Some(index) => self.truncate(index),
            None if keeps_leaves => self.push(Step::Leave(left)),
            None => {}
        }
    }

    fn note_gap(&mut self, keeps_leaves: bool) {
        self.has_gap |= keeps_leaves;
        self.has_gap_after_last |= self.last_ns.is_some();
        for step in &mut self.steps {
            if let Step::Enter { is_uncertain, .. } = step {
                *is_uncertain = true;
            }
        }
    }
}

/// The stacks of all locations.
#[derive(Debug)]
pub(crate) struct Stacks {
    /// By number of the location.
    stacks: Vec<Stack>,
    /// Steps of all stacks together.
    steps: usize,
    /// Locations that have had an enter, a leave or a gap.
    touched: Vec<u32>,
    keeps_leaves: bool,
}

impl Stacks {
    /// Creates stacks without open regions. `keeps_leaves`: leaves of regions that are not open are kept, because these
    /// may have been entered before.
    pub(crate) fn new(types: &RegionTypes, keeps_leaves: bool) -> Self {
        let mut stacks = Vec::new();
        stacks.resize_with(types.locations().len(), Stack::default);
        Self {
            stacks,
            steps: 0,
            touched: Vec::new(),
            keeps_leaves,
        }
    }

    /// Returns whether there is more than a snapshot can hold.
    pub(crate) fn is_too_much(&self) -> bool {
        self.steps > MAX_SNAPSHOT_STEPS || self.touched.len() > MAX_SNAPSHOT_LOCATIONS
    }

    /// Steps and locations.
    pub(crate) fn size(&self) -> usize {
        self.steps + self.touched.len()
    }

    fn change(&mut self, number: u32, change: impl FnOnce(&mut Stack, bool)) {
        let stack = &mut self.stacks[number as usize];
        let before = stack.steps.len();
        let is_new = stack.last_ns.is_none() && !stack.has_gap;
        change(stack, self.keeps_leaves);
        self.steps = self.steps + stack.steps.len() - before;
        if is_new && (stack.last_ns.is_some() || stack.has_gap) {
            self.touched.push(number);
        }
    }

    /// Takes the enters, leaves and losses of a chunk in.
    pub(crate) fn take_moves(&mut self, moves: &ChunkMoves) {
        for (number, run) in moves.runs() {
            self.change(number, |stack, keeps_leaves| {
                for step in run {
                    match step.kind {
                        MoveKind::Enter => stack.push(Step::Enter {
                            region: step.region,
                            entered_ns: step.time_ns,
                            is_uncertain: false,
                        }),
                        MoveKind::Leave if stack.pop(step.region) => {}
                        MoveKind::Leave => stack.leave(step.region, keeps_leaves),
                        MoveKind::Gap => {
                            stack.note_gap(keeps_leaves);
                            continue;
                        }
                    }
                    // As in `CallStack`: events of one time are one moment.
                    stack.has_gap_after_last &= stack.last_ns == Some(step.time_ns);
                    stack.last_ns = Some(step.time_ns);
                }
            });
        }
    }

    /// Takes in what a chunk has before a time.
    pub(crate) fn take_until(&mut self, types: &RegionTypes, chunk: &TraceChunk, until_ns: i64) {
        self.take_moves(&ChunkMoves::of_chunk_until(types, chunk, until_ns));
    }

    /// Applies later enters and leaves, which `later` contains as a snapshot of them alone.
    pub(crate) fn follow(&mut self, types: &RegionTypes, later: &Snapshot) {
        for state in &later.locations {
            let Ok(number) = types.locations().binary_search(&state.location) else {
                continue;
            };
            self.change(number as u32, |stack, keeps_leaves| {
                if state.has_gap {
                    stack.note_gap(keeps_leaves);
                }
                for step in &state.steps {
                    match step {
                        Step::Enter { .. } => stack.push(*step),
                        Step::Leave(region) => stack.leave(*region, keeps_leaves),
                    }
                }
                if state.last_ns.is_some() {
                    stack.has_gap_after_last = state.has_gap_after_last;
                }
                stack.last_ns = state.last_ns.or(stack.last_ns);
            });
        }
    }

    /// Returns a snapshot of the stacks.
    pub(crate) fn snapshot(&self, types: &RegionTypes) -> Snapshot {
        let mut numbers = self.touched.clone();
        numbers.sort_unstable();
        let locations = numbers.into_iter().map(|number| {
            let stack = &self.stacks[number as usize];
            LocationState {
                location: types.locations()[number as usize],
                last_ns: stack.last_ns,
                has_gap: stack.has_gap,
                has_gap_after_last: stack.has_gap_after_last,
                steps: stack.steps.clone(),
            }
        });
        Snapshot {
            locations: locations.collect(),
        }
    }
}
