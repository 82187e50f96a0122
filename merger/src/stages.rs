//! How the processor time of a merge divides among its stages: what a benchmark shows.
#![expect(unsafe_code, reason = "a thread's processor time is a system call")]

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A part of a merge.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Stage {
    /// Recordings are opened.
    Open,
    /// Definitions and clocks are settled.
    Plan,
    /// Chunks of the inputs are read and decoded.
    Decode,
    /// Streams are merged into temporary files, if there are very many.
    Spill,
    /// Borders are found, and events handed out.
    Sweep,
    /// Runs of events become a chunk.
    Assemble,
    /// Order hashes of what is written. Those of what is read belong to decoding.
    Prove,
    /// Events of messages are found.
    Extract,
    /// Messages are matched.
    Match,
    /// Collective operations are matched.
    Collectives,
    /// Enters and leaves are found.
    Calls,
    /// Calls are counted.
    Count,
    /// Snapshots are taken, and rows of the overview collected.
    Snapshot,
    /// Chunks are encoded and compressed.
    Encode,
    /// Chunks are written.
    Write,
    /// Totals, index and report are made; and what belongs to no other.
    Finish,
}

/// Number of stages.
const STAGES: usize = 16;

impl Stage {
    /// All of them, in the order of the work.
    pub const ALL: [Self; STAGES] = [
        Self::Open,
        Self::Plan,
        Self::Decode,
        Self::Spill,
        Self::Sweep,
        Self::Assemble,
        Self::Prove,
        Self::Extract,
        Self::Match,
        Self::Collectives,
        Self::Calls,
        Self::Count,
        Self::Snapshot,
        Self::Encode,
        Self::Write,
        Self::Finish,
    ];

    /// Returns the name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Plan => "plan",
            Self::Decode => "decode",
            Self::Spill => "spill",
            Self::Sweep => "sweep",
            Self::Assemble => "assemble",
            Self::Prove => "prove",
            Self::Extract => "extract messages",
            Self::Match => "match messages",
            Self::Collectives => "match collectives",
            Self::Calls => "find calls",
            Self::Count => "count calls",
            Self::Snapshot => "take snapshots",
            Self::Encode => "encode",
            Self::Write => "write",
            Self::Finish => "finish",
        }
    }

    /// Returns whether one thread does it, however many there are: of collective operations, those of one communicator. Different
    /// threads may do different ones of these concurrently.
    pub const fn is_serial(self) -> bool {
        matches!(
            self,
            Self::Plan
                | Self::Sweep
                | Self::Collectives
                | Self::Snapshot
                | Self::Write
                | Self::Finish
        )
    }
}

/// Whether stages are measured.
static IS_ON: AtomicBool = AtomicBool::new(false);
/// By stage, processor time, nanoseconds.
static TIMES_NS: [AtomicU64; STAGES] = [const { AtomicU64::new(0) }; STAGES];

thread_local! {
    /// The stage that the thread is in, and since when, by its own processor time.
    static CURRENT: Cell<Option<(Stage, u64)>> = const { Cell::new(None) };
}

fn thread_ns() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is a valid timespec to write to.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Does the work of a stage. What is done of another within it counts there.
#[inline]
pub(crate) fn during<R>(stage: Stage, work: impl FnOnce() -> R) -> R {
    if !IS_ON.load(Ordering::Relaxed) {
        return work();
    }
    let charge = |since: Option<(Stage, u64)>, now: u64| {
        if let Some((stage, from)) = since {
            TIMES_NS[stage as usize].fetch_add(now.saturating_sub(from), Ordering::Relaxed);
        }
    };
    let now = thread_ns();
    let around = CURRENT.replace(Some((stage, now)));
    charge(around, now);
    let result = work();
    let now = thread_ns();
    charge(
        CURRENT.replace(around.map(|(around, _)| (around, now))),
        now,
    );
    result
}

/// Runs merges, and returns the processor time of each stage in the order of [`Stage::ALL`], nanoseconds. Merges that run in
/// other threads meanwhile are counted, too.
pub fn measure_stages<R>(run: impl FnOnce() -> R) -> (R, [u64; STAGES]) {
    TIMES_NS
        .iter()
        .for_each(|time| time.store(0, Ordering::Relaxed));
    IS_ON.store(true, Ordering::Relaxed);
    let result = run();
    IS_ON.store(false, Ordering::Relaxed);
    (
        result,
        TIMES_NS.each_ref().map(|time| time.load(Ordering::Relaxed)),
    )
}

#[cfg(test)]
mod tests {
    use super::{Stage, during, measure_stages};

    fn spin(rounds: u64) -> u64 {
        (0..rounds).fold(0, |sum, round| std::hint::black_box(sum ^ round))
    }

    #[test]
    fn a_stage_within_another_counts_for_itself() {
        let (_, times) = measure_stages(|| {
            during(Stage::Sweep, || {
                during(Stage::Decode, || spin(20_000_000));
                spin(1)
            })
        });
        let of = |stage: Stage| times[stage as usize];
        assert!(of(Stage::Decode) > 10 * of(Stage::Sweep), "{times:?}");
        assert_eq!(of(Stage::Write), 0);
        during(Stage::Write, || spin(1000));
        assert!(
            Stage::ALL
                .iter()
                .enumerate()
                .all(|(at, stage)| *stage as usize == at)
        );
    }
}
