//! Recordings made at random, with every event that is in them: what an oracle needs.
use annals_format::{ClockKind, SourceOrder, Value};
use annals_merger::{Reader, Window};
use proptest::prelude::*;

use crate::{MARK, REFERENCE, Row, TestClock, TestRecording, TestStream};

/// When every recording starts, reference nanoseconds.
pub const START_NS: i64 = 5_000_000_000;
/// How long every recording lasts, microseconds.
pub const SPAN_US: i64 = 40_000;

/// 2.5 ticks a nanosecond, started somewhere.
pub const FAST: TestClock = TestClock {
    kind: ClockKind::Tsc,
    ticks_per_second: 2_500_000_000,
    max_ticks: u64::MAX,
    tick_at_zero: 987_654_321_000,
};
/// Starts again every 10 ms, at no power of two.
pub const SMALL: TestClock = TestClock {
    kind: ClockKind::Readable,
    ticks_per_second: 1_000_000,
    max_ticks: 9_999,
    tick_at_zero: 4_321,
};
/// 64 bits, about to wrap.
pub const ABOUT_TO_WRAP: TestClock = TestClock {
    kind: ClockKind::Readable,
    ticks_per_second: 1_000_000_000,
    max_ticks: u64::MAX,
    tick_at_zero: u64::MAX - 5_010_000_000,
};
/// The clocks of every recording.
pub const CLOCKS: [TestClock; 4] = [REFERENCE, FAST, SMALL, ABOUT_TO_WRAP];

/// An event as the oracle knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    /// Reference nanoseconds.
    pub time_ns: i64,
    /// Rank of the process.
    pub rank: u32,
    /// Index of the recording.
    pub recording: u16,
    /// Index of the stream in its recording.
    pub stream: usize,
    /// Index of the event in its stream.
    pub position: usize,
    /// Its number, which no other event has.
    pub number: u64,
}

/// A recording with what is in it.
#[derive(Clone, Debug)]
pub struct Made {
    /// The recording.
    pub recording: TestRecording,
    /// Its events.
    pub known: Vec<Known>,
    /// Number of events that were dropped.
    pub dropped: u64,
}

/// What a stream is made from.
#[derive(Clone, Debug)]
pub struct StreamPlan {
    /// Index in [`CLOCKS`].
    pub clock: usize,
    /// Whether its source is unordered.
    pub is_unordered: bool,
    /// Microseconds since the start; few values, so that many are equal.
    pub times_us: Vec<i64>,
    /// Events of a chunk.
    pub chunk_len: usize,
    /// Events from one loss to the next.
    pub drop_every: usize,
}

/// Draws a stream.
pub fn stream_plan() -> impl Strategy<Value = StreamPlan> {
    (
        0..CLOCKS.len(),
        any::<bool>(),
        prop::collection::vec(0..SPAN_US, 0..120),
        1..40_usize,
        2..60_usize,
    )
        .prop_map(
            |(clock, is_unordered, mut times_us, chunk_len, drop_every)| {
                // Coarse times: ties within and between streams.
                times_us.iter_mut().for_each(|time| *time -= *time % 50);
                times_us.sort_unstable();
                if is_unordered {
                    // Reported up to 2 ms late, by a rule that is not a sort: within a block, the
                    // first ones last.
                    for block in times_us.chunks_mut(7) {
                        if block[block.len() - 1] - block[0] < 2_000 {
                            block.rotate_left(block.len() / 2);
                        }
                    }
                }
                StreamPlan {
                    clock,
                    is_unordered,
                    times_us,
                    chunk_len,
                    drop_every,
                }
            },
        )
}

/// Makes a recording for each rank with its streams.
pub fn make(plans: &[(u32, Vec<StreamPlan>)]) -> Vec<Made> {
    let mut number = 0;
    let each = plans.iter().enumerate().map(|(index, (rank, streams))| {
        let mut known = Vec::new();
        let mut dropped = 0;
        let mut made = Vec::new();
        for (stream, plan) in streams.iter().enumerate() {
            let clock = CLOCKS[plan.clock];
            let mut chunks = Vec::new();
            let mut position = 0;
            let mut told_ns = START_NS;
            for times in plan.times_us.chunks(plan.chunk_len) {
                let mut rows = Vec::new();
                let mut open_ns = None;
                for time_us in times {
                    let time_ns = START_NS + time_us * 1000;
                    told_ns = told_ns.max(time_ns);
                    open_ns.get_or_insert(told_ns);
                    let tick = clock.tick(time_ns);
                    if position % plan.drop_every == plan.drop_every - 1 {
                        let from = clock.tick(time_ns - 1000);
                        rows.push(Row::Dropped(Some(MARK), 3, from, tick));
                        dropped += 3;
                    }
                    if clock.max_ticks < u64::MAX {
                        rows.push(Row::Observation(told_ns));
                    }
                    rows.push(Row::Event(MARK, tick, number));
                    known.push(Known {
                        time_ns,
                        rank: *rank,
                        recording: index as u16,
                        stream,
                        position,
                        number,
                    });
                    number += 1;
                    position += 1;
                }
                chunks.push((open_ns.unwrap_or(START_NS), rows));
            }
            made.push(TestStream {
                clock: plan.clock,
                ordering: if plan.is_unordered {
                    SourceOrder::Unordered
                } else {
                    SourceOrder::Ordered
                },
                chunks,
            });
        }
        Made {
            recording: TestRecording {
                rank: Some(*rank),
                rank_count: None,
                id: index as u16,
                start_ns: START_NS,
                end_ns: START_NS + SPAN_US * 1000,
                clocks: CLOCKS.to_vec(),
                streams: made,
                has_footer: index % 2 == 0,
            },
            known,
            dropped,
        }
    });
    each.collect()
}

/// Returns the times and numbers of a trace's events in its order, and how many were dropped.
///
/// # Panics
/// If it cannot be read.
pub fn numbers_of(opened: &Reader) -> (Vec<(i64, u64)>, u64) {
    let mut found = Vec::new();
    let mut lost = 0;
    opened
        .for_each_chunk(Window::ALL, |chunk: annals_format::OrderedChunk| {
            for row in chunk.rows() {
                let Value::U64(number) = row.value(0) else {
                    panic!("a number");
                };
                found.push((row.time_ns(), number));
            }
            let dropped = chunk.losses().filter(|(_, loss)| loss.cause.is_dropped());
            lost += dropped.map(|(_, loss)| loss.count).sum::<u64>();
            Ok(())
        })
        .expect("the trace is read");
    (found, lost)
}
