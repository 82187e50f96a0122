//! Measuring a contestant: times of whole loops, and of single events.

use std::sync::Barrier;
use std::time::{Duration, Instant};

use annals_recorder::tsc;

use crate::contestant::{Check, Contestant, Lane};
use crate::histogram::Histogram;
use crate::processor::{Processors, thread_cpu_ns};
use crate::random::Random;
use crate::workload::{WARM_UP, Workload, warm_up, work};

/// Time for the contestants' background threads to catch up after each measurement.
const CATCH_UP: Duration = Duration::from_millis(30);

/// Time per unit of a workload, nanoseconds.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Time {
    /// As the program sees it: with the time in which its thread had to wait for the processor,
    /// which the recorder's own threads may be the reason for.
    pub(crate) wall_ns: f64,
    /// In which the thread that raises events ran.
    pub(crate) cpu_ns: f64,
}

/// A contestant of whatever type.
pub(crate) trait Measured {
    /// Runs a workload on `threads` threads in parallel, each pinned to a separate processor;
    /// returns the mean over the threads.
    ///
    /// # Errors
    /// Why it cannot go on.
    fn round(&mut self, workload: Workload, threads: usize, round: Round) -> Result<Time, String>;

    /// Raises single events for a time, each between two clock reads: enters and leaves into the
    /// first histogram, events with three elements into the second, in ticks.
    ///
    /// # Errors
    /// Why it cannot go on.
    fn single(
        &mut self,
        time: Duration,
        seed: u64,
        ticks: &mut [Histogram; 2],
    ) -> Result<(), String>;

    /// Reads back what was written.
    ///
    /// # Errors
    /// If the counts do not add up.
    fn finish(&mut self) -> Result<Check, String>;
}

/// What is the same for all contestants of a round.
#[derive(Clone, Debug)]
pub(crate) struct Round {
    /// Calls of the workload on each thread.
    pub(crate) calls: u64,
    /// Makes the same program for all.
    pub(crate) seed: u64,
    /// Where the threads are pinned.
    pub(crate) processors: Processors,
}

impl<C: Contestant> Measured for C {
    fn round(&mut self, workload: Workload, threads: usize, round: Round) -> Result<Time, String> {
        self.prepare(threads)?;
        let (time, raised) = if threads == 1 {
            round.processors.pin(0);
            time_lane(&mut self.lane(0), workload, &round, || {})
        } else {
            let barrier = Barrier::new(threads);
            let contestant = &*self;
            let (barrier, round) = (&barrier, &round);
            let each: Vec<(Time, u64)> = std::thread::scope(|scope| {
                let thread = |number| {
                    move || {
                        round.processors.pin(number);
                        let mut lane = contestant.lane(number);
                        time_lane(&mut lane, workload, round, || {
                            barrier.wait();
                        })
                    }
                };
                let started: Vec<_> = (0..threads).map(|n| scope.spawn(thread(n))).collect();
                let joined = started.into_iter().map(std::thread::ScopedJoinHandle::join);
                joined
                    .map(|outcome| outcome.expect("a lane does not panic"))
                    .collect()
            });
            let mean = |of: fn(&Time) -> f64| {
                each.iter().map(|(time, _)| of(time)).sum::<f64>() / threads as f64
            };
            let time = Time {
                wall_ns: mean(|time| time.wall_ns),
                cpu_ns: mean(|time| time.cpu_ns),
            };
            (time, each.iter().map(|(_, raised)| raised).sum())
        };
        std::thread::sleep(CATCH_UP);
        self.settle(raised)?;
        Ok(time)
    }

    fn single(
        &mut self,
        time: Duration,
        seed: u64,
        ticks: &mut [Histogram; 2],
    ) -> Result<(), String> {
        self.prepare(1)?;
        let mut lane = self.lane(0);
        lane.begin();
        warm_up(&mut lane);
        let mut raised = WARM_UP;
        let start = Instant::now();
        let random = &mut Random::new(seed);
        while start.elapsed() < time {
            raised += singles(&mut lane, random, ticks);
        }
        lane.end();
        std::thread::sleep(CATCH_UP);
        self.settle(raised)
    }

    fn finish(&mut self) -> Result<Check, String> {
        Contestant::finish(self)
    }
}

/// Runs a workload on this thread; also returns the number of events raised.
fn time_lane<L: Lane>(
    lane: &mut L,
    workload: Workload,
    round: &Round,
    together: impl FnOnce(),
) -> (Time, u64) {
    lane.begin();
    warm_up(lane);
    together();
    let cpu_before = thread_cpu_ns();
    let start = Instant::now();
    let (units, raised) = workload.run(lane, round.calls, round.seed);
    let wall = start.elapsed();
    let cpu_ns = thread_cpu_ns() - cpu_before;
    lane.end();
    let time = Time {
        wall_ns: wall.as_nanos() as f64 / units as f64,
        cpu_ns: cpu_ns as f64 / units as f64,
    };
    (time, raised + WARM_UP)
}

#[inline(never)]
fn singles<L: Lane>(lane: &mut L, random: &mut Random, ticks: &mut [Histogram; 2]) -> u64 {
    const CALLS: u64 = 1000;
    let [pairs, threes] = ticks;
    for _ in 0..CALLS {
        let word = random.next();
        let region = (word >> 58) as u32;
        work(word);
        let before = tsc();
        let open = lane.enter(region);
        pairs.add(tsc().wrapping_sub(before));
        work(word >> 20);
        let before = tsc();
        lane.leave(region, open);
        pairs.add(tsc().wrapping_sub(before));
        work(word >> 30);
        let before = tsc();
        lane.three(word as u32 >> 20 & 7, 42, 4096);
        threes.add(tsc().wrapping_sub(before));
    }
    3 * CALLS
}
