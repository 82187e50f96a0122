//! Efficiencies of programs with MPI and teams of threads, by the model of TALP (DLB 3.7, `src/talp/perf_metrics.c`): which part of the time
//! of the processors MPI takes, and which part the teams.
//!
//! With the times of a process, summed over its threads: U useful, M in MPI; of the time in which threads have nothing to do, W while the
//! first thread is in MPI, S while it works outside of parallel regions (serialisation), and in parallel regions C, for which all
//! threads of a team wait alike (scheduling), and the rest I (imbalance). The time of the run is T, and A = U + M of all processes.
//!
//! | factor | formula |
//! |---|---|
//! | MPI parallel efficiency | (T − m) / T, m = (M + W) / threads, of all processes |
//! | – communication | (T − least m of a process) / T |
//! | – load balance | MPI parallel efficiency / communication |
//! | OpenMP parallel efficiency | A / (A + S + I + C) |
//! | – serialisation | A / (A + S) |
//! | – load balance | (A + S) / (A + S + I) |
//! | – scheduling | (A + S + I) / (A + S + I + C) |

use std::collections::BTreeMap;

use annals_format::{ProcessId, RegionId};
use annals_merger::{Analysis, Calls, Frame, Pass, Query, Reader, Result, Window};
use serde::Serialize;

use crate::region_kinds::{RegionKind, RegionKinds, ThreadConstruct};

/// Times of a process, summed over its threads, nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct HybridTimes {
    /// Number of its threads.
    pub threads: i64,
    /// Outside of MPI and of waiting.
    pub useful_ns: i64,
    /// In MPI.
    pub mpi_ns: i64,
    /// Of threads without work while the first thread is in MPI.
    pub idle_in_mpi_ns: i64,
    /// Of threads without work while the first thread works outside of parallel regions, or in one with fewer threads.
    pub serialisation_ns: i64,
    /// In parallel regions, longer than the thread of the team that waits the least.
    pub imbalance_ns: i64,
    /// In parallel regions, as long as the thread of the team that waits the least.
    pub scheduling_ns: i64,
}

/// Efficiencies of the model of TALP. A factor is 1 where nothing is lost.
#[derive(Clone, Copy, PartialEq, Default, Debug, Serialize)]
pub struct HybridEfficiencies {
    /// What is left without MPI.
    pub mpi_parallel: f64,
    /// What is left by the process that is in MPI the least.
    pub mpi_communication: f64,
    /// How evenly the processes are in MPI.
    pub mpi_load_balance: f64,
    /// What is left without the waiting in teams and for their work.
    pub openmp_parallel: f64,
    /// What is left without the time in which only the first thread works.
    pub openmp_serialisation: f64,
    /// How evenly work is distributed in teams.
    pub openmp_load_balance: f64,
    /// What is left without the time in which all threads of teams wait.
    pub openmp_scheduling: f64,
}

impl HybridEfficiencies {
    /// Computes the factors of a run from the times of its processes, and its time. `None` without processes, time or work.
    pub fn of(processes: &[HybridTimes], run_ns: i64) -> Option<Self> {
        let sum = |of: fn(&HybridTimes) -> i64| processes.iter().map(of).sum::<i64>() as f64;
        let in_mpi = |ns: f64, threads: f64| ns / threads.max(1.0);
        let of_process = |times: &HybridTimes| {
            in_mpi(
                (times.mpi_ns + times.idle_in_mpi_ns) as f64,
                times.threads as f64,
            )
        };
        let run = run_ns as f64;
        let all_mpi = sum(|times| times.mpi_ns + times.idle_in_mpi_ns);
        let mpi = in_mpi(all_mpi, sum(|times| times.threads));
        let least = processes.iter().map(of_process).reduce(f64::min)?;
        let a = sum(|times| times.useful_ns + times.mpi_ns);
        let serial = a + sum(|times| times.serialisation_ns);
        let balanced = serial + sum(|times| times.imbalance_ns);
        let scheduled = balanced + sum(|times| times.scheduling_ns);
        if run <= 0.0 || a <= 0.0 || least >= run {
            return None;
        }
        let (mpi_parallel, mpi_communication) = ((run - mpi) / run, (run - least) / run);
        Some(Self {
            mpi_parallel,
            mpi_communication,
            mpi_load_balance: mpi_parallel / mpi_communication,
            openmp_parallel: a / scheduled,
            openmp_serialisation: a / serial,
            openmp_load_balance: serial / balanced,
            openmp_scheduling: balanced / scheduled,
        })
    }
}

/// What is known of a process.
#[derive(Clone, Default)]
struct Process {
    times: HybridTimes,
    /// Time that its first thread was in MPI, and was outside of parallel regions and of MPI.
    first_in_mpi_ns: i64,
    alone_ns: i64,
    /// The last parallel region of its first thread: its length, and by thread of its team the time of work and of MPI.
    region_ns: i64,
    team: BTreeMap<usize, i64>,
    /// Length of parallel regions times the number of threads that were in them.
    in_regions_ns: i64,
    all_regions_ns: i64,
}

impl Process {
    /// Adds up the last parallel region, when all threads of its team have left it.
    fn end_region(&mut self) {
        let region_ns = std::mem::take(&mut self.region_ns);
        let team = std::mem::take(&mut self.team);
        let waited = team.values().map(|work_ns| (region_ns - work_ns).max(0));
        let (least_ns, sum_ns) =
            waited.fold((i64::MAX, 0), |(least, sum), ns| (least.min(ns), sum + ns));
        let size = team.len() as i64;
        if region_ns > 0 && size > 0 {
            self.times.scheduling_ns += size * least_ns;
            self.times.imbalance_ns += sum_ns - size * least_ns;
            self.in_regions_ns += size * region_ns;
            self.all_regions_ns += region_ns;
        }
    }
}

/// Adds up processes, in the order of time.
struct State<'a> {
    kinds: &'a RegionKinds,
    window: Window,
    /// By location: its process, and whether it is the first one of it.
    of_location: Vec<(ProcessId, bool)>,
    processes: BTreeMap<ProcessId, Process>,
}

impl State<'_> {
    fn is_parallel(&self, frame: &Frame) -> bool {
        self.kinds.construct(frame.region) == Some(ThreadConstruct::Parallel)
    }
}

impl Analysis for State<'_> {
    const PASS: Pass = Pass::OrderedCalls;

    fn enter(&mut self, location: usize, frames: &[Frame], region: RegionId, _: i64) -> u32 {
        let is_parallel = self.kinds.construct(region) == Some(ThreadConstruct::Parallel);
        let (process, is_first) = self.of_location[location];
        if is_parallel && is_first && !frames.iter().any(|frame| self.is_parallel(frame)) {
            self.processes.entry(process).or_default().end_region();
        }
        0
    }

    fn spend(&mut self, location: usize, frames: &[Frame], from_ns: i64, to_ns: i64) {
        let Some(frame) = frames.last() else { return };
        let ns = self.window.clip(from_ns, to_ns);
        let kind = self.kinds.get(frame.region);
        let is_in_region = frames.iter().any(|frame| self.is_parallel(frame));
        let (process, is_first) = self.of_location[location];
        let of = self.processes.entry(process).or_default();
        let works = match kind {
            RegionKind::Useful => &mut of.times.useful_ns,
            RegionKind::Mpi => &mut of.times.mpi_ns,
            RegionKind::Idle => &mut 0,
        };
        *works += ns;
        if is_in_region {
            let of_thread = of.team.entry(location).or_default();
            *of_thread += if kind == RegionKind::Idle { 0 } else { ns };
            of.region_ns += if is_first { ns } else { 0 };
        } else if is_first {
            match kind {
                RegionKind::Mpi => of.first_in_mpi_ns += ns,
                _ => of.alone_ns += ns,
            }
        }
    }
}

/// Returns the efficiencies of a run with teams of threads, whose time is `run_ns`. `None` without teams.
///
/// # Errors
/// If the storage fails.
pub(crate) fn hybrid_efficiencies(
    reader: &Reader,
    query: &Query,
    run_ns: i64,
) -> Result<Option<HybridEfficiencies>> {
    let definitions = reader.definitions();
    let kinds = RegionKinds::of(definitions);
    if !kinds.has_teams() {
        return Ok(None);
    }
    let mut first: BTreeMap<ProcessId, usize> = BTreeMap::new();
    let locations = Calls::new(definitions, query).locations().to_vec();
    let of_location = locations.iter().enumerate().map(|(number, id)| {
        let process = definitions.locations.get(id).map(|of| of.process);
        let process = process.unwrap_or_else(|| ProcessId::new(u32::MAX));
        (process, *first.entry(process).or_insert(number) == number)
    });
    let of_location: Vec<_> = of_location.collect();
    let (mut state, _) = reader.run(query, |_| State {
        kinds: &kinds,
        window: query.window(),
        of_location: of_location.clone(),
        processes: BTreeMap::new(),
    })?;
    let helpers = definitions.helpers();
    state.processes.retain(|id, _| !helpers.contains_key(id));
    let times = state.processes.iter_mut().map(|(id, of)| {
        of.end_region();
        let threads = of_location
            .iter()
            .filter(|(process, _)| process == id)
            .count() as i64;
        let others = threads - 1;
        // What is before its first and after its last event is not in a region.
        let outside_ns = (run_ns - of.first_in_mpi_ns - of.alone_ns - of.all_regions_ns).max(0);
        of.times.useful_ns += outside_ns;
        HybridTimes {
            threads,
            idle_in_mpi_ns: others * of.first_in_mpi_ns,
            serialisation_ns: others * (of.alone_ns + outside_ns) + threads * of.all_regions_ns
                - of.in_regions_ns,
            ..of.times
        }
    });
    let times: Vec<HybridTimes> = times.collect();
    Ok(HybridEfficiencies::of(&times, run_ns))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn factors_are_those_of_talps_formulas() {
        // 2 processes of 2 threads, 100 ns. The first: 10 in MPI, 20 alone, a region of 70 with work of 70 and 40.
        let one = HybridTimes {
            threads: 2,
            useful_ns: 130,
            mpi_ns: 10,
            idle_in_mpi_ns: 10,
            serialisation_ns: 20,
            imbalance_ns: 30,
            scheduling_ns: 0,
        };
        // The second: 40 in MPI, a region of 60 with work of 50 and 45.
        let other = HybridTimes {
            threads: 2,
            useful_ns: 95,
            mpi_ns: 40,
            idle_in_mpi_ns: 40,
            serialisation_ns: 0,
            imbalance_ns: 5,
            scheduling_ns: 20,
        };
        let found = HybridEfficiencies::of(&[one, other], 100).expect("factors");
        let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-9, "{a} {b}");
        // m is (10 + 10 + 40 + 40) / 4 of all, and 10 of the first.
        near(found.mpi_parallel, 0.75);
        near(found.mpi_communication, 0.9);
        near(found.mpi_load_balance, 0.75 / 0.9);
        // A is 275; S 20, I 35, C 20.
        near(found.openmp_serialisation, 275.0 / 295.0);
        near(found.openmp_load_balance, 295.0 / 330.0);
        near(found.openmp_scheduling, 330.0 / 350.0);
        near(found.openmp_parallel, 275.0 / 350.0);
        assert_eq!(HybridEfficiencies::of(&[], 100), None);
        assert_eq!(HybridEfficiencies::of(&[HybridTimes::default()], 100), None);
    }
}
