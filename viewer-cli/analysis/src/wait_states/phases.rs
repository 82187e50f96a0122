//! Phases: the k-th calls of a region in all locations that call it, such as the steps of a solver.

use std::collections::BTreeMap;

use annals_format::RegionId;
use annals_merger::Window;

/// Number of phases that are kept.
const MOST_PHASES: usize = 1 << 20;

/// Times of a phase. Times in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PhaseTimes {
    /// Its number, from 0: that of the call in each location, since the trace's beginning.
    pub number: u64,
    /// The region of the call that ended first.
    pub region: RegionId,
    /// Number of locations that called it.
    pub locations: u64,
    /// Trace time at which the first of them began it.
    pub from_ns: i64,
    /// Trace time at which the last of them ended it.
    pub to_ns: i64,
    /// Sum of their useful times.
    pub useful_sum_ns: i128,
    /// Largest useful time.
    pub useful_max_ns: i64,
    /// Largest duration.
    pub run_ns: i64,
    /// Largest duration on a network that needs no time.
    pub ideal_run_ns: i64,
    /// Whether events may be lost in it.
    pub is_uncertain: bool,
}

/// What a location has passed up to a time, nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Passed {
    pub(super) time_ns: i64,
    /// Time in MPI, and idle time, since its first event.
    pub(super) not_useful_ns: i64,
    /// By how much it would be earlier on a network that needs no time.
    pub(super) saved_ns: i64,
}

#[derive(Clone, Copy, Default, Debug)]
struct Location {
    /// Number of phases that have ended.
    ended: u64,
    begun: Option<Passed>,
}

/// Adds up the phases of all locations.
#[derive(Debug)]
pub(super) struct Phases {
    locations: Vec<Location>,
    phases: BTreeMap<u64, PhaseTimes>,
    left_out: u64,
}

impl Phases {
    pub(super) fn new(locations: usize) -> Self {
        Self {
            locations: vec![Location::default(); locations],
            phases: BTreeMap::new(),
            left_out: 0,
        }
    }

    pub(super) fn begin(&mut self, location: u32, passed: Passed) {
        self.locations[location as usize].begun = Some(passed);
    }

    /// Ends a phase of a location. It counts if it is in the window.
    pub(super) fn end(
        &mut self,
        location: u32,
        region: RegionId,
        passed: Passed,
        is_whole: bool,
        window: Window,
    ) {
        let of = &mut self.locations[location as usize];
        let number = of.ended;
        of.ended += 1;
        let Some(begun) = of.begun.take() else { return };
        if begun.time_ns < window.from_ns || passed.time_ns > window.to_ns {
            return;
        }
        if self.phases.len() >= MOST_PHASES && !self.phases.contains_key(&number) {
            self.left_out = self.left_out.max(number + 1 - MOST_PHASES as u64);
            return;
        }
        let run_ns = passed.time_ns - begun.time_ns;
        let useful_ns = run_ns - (passed.not_useful_ns - begun.not_useful_ns);
        let ideal_ns = run_ns - (passed.saved_ns - begun.saved_ns);
        let phase = self.phases.entry(number).or_insert(PhaseTimes {
            number,
            region,
            locations: 0,
            from_ns: begun.time_ns,
            to_ns: passed.time_ns,
            useful_sum_ns: 0,
            useful_max_ns: 0,
            run_ns: 0,
            ideal_run_ns: 0,
            is_uncertain: false,
        });
        phase.locations += 1;
        phase.from_ns = phase.from_ns.min(begun.time_ns);
        phase.to_ns = phase.to_ns.max(passed.time_ns);
        phase.useful_sum_ns += i128::from(useful_ns);
        phase.useful_max_ns = phase.useful_max_ns.max(useful_ns);
        phase.run_ns = phase.run_ns.max(run_ns);
        phase.ideal_run_ns = phase.ideal_run_ns.max(ideal_ns);
        phase.is_uncertain |= !is_whole;
    }

    /// Returns the phases in the order of their numbers, and how many are not among them.
    pub(super) fn finish(self) -> (Vec<PhaseTimes>, u64) {
        (self.phases.into_values().collect(), self.left_out)
    }
}
