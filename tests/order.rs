//! The merged order is right: an oracle that only concatenates and sorts agrees.

mod support;

use annals_format::{ClockKind, CompressionLevel, Ordering, Value};
use annals_merger::{EventFilter, Opened, Window, WriteOptions, plan_merge, verify, write_trace};
use proptest::prelude::*;
use support::{MARK, REFERENCE, Row, TestClock, TestRecording, TestStream};

const START_NS: i64 = 5_000_000_000;
const SPAN_US: i64 = 40_000;

/// 2.5 ticks a nanosecond, started somewhere.
const FAST: TestClock = TestClock {
    kind: ClockKind::Tsc,
    ticks_per_second: 2_500_000_000,
    max_ticks: u64::MAX,
    tick_at_zero: 987_654_321_000,
};
/// Starts again every 10 ms, at no power of two.
const SMALL: TestClock = TestClock {
    kind: ClockKind::Readable,
    ticks_per_second: 1_000_000,
    max_ticks: 9_999,
    tick_at_zero: 4_321,
};
/// 64 bits, about to wrap.
const ABOUT_TO_WRAP: TestClock = TestClock {
    kind: ClockKind::Readable,
    ticks_per_second: 1_000_000_000,
    max_ticks: u64::MAX,
    tick_at_zero: u64::MAX - 5_010_000_000,
};
const CLOCKS: [TestClock; 4] = [REFERENCE, FAST, SMALL, ABOUT_TO_WRAP];

/// An event as the oracle knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Known {
    time_ns: i64,
    rank: u32,
    recording: u8,
    stream: usize,
    position: usize,
    number: u64,
}

#[derive(Clone, Debug)]
struct Made {
    recording: TestRecording,
    known: Vec<Known>,
    dropped: u64,
}

#[derive(Clone, Debug)]
struct StreamPlan {
    clock: usize,
    is_unordered: bool,
    /// Microseconds since the start; few values, so that many are equal.
    times_us: Vec<i64>,
    chunk_len: usize,
    /// A loss before every so manieth event.
    drop_every: usize,
}

fn stream_plan() -> impl Strategy<Value = StreamPlan> {
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
                    // Told up to 2 ms late, by a rule that is not a sort: within a block, the first
                    // ones last.
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

fn make(plans: &[(u32, Vec<StreamPlan>)]) -> Vec<Made> {
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
                        recording: index as u8,
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
                    Ordering::Unordered
                } else {
                    Ordering::Ordered
                },
                chunks,
            });
        }
        Made {
            recording: TestRecording {
                rank: Some(*rank),
                rank_count: None,
                id: index as u8,
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

fn numbers_of(opened: &Opened) -> (Vec<(i64, u64)>, u64) {
    let mut found = Vec::new();
    let mut lost = 0;
    opened
        .read(Window::ALL, |chunk| {
            let ordinals = chunk.ordinals();
            for (index, ordinal) in ordinals.iter().enumerate() {
                let columns = &chunk.types[usize::from(chunk.type_index[index])];
                let Value::U64(number) = columns.columns[0].get(*ordinal as usize) else {
                    panic!("a number");
                };
                found.push((chunk.times_ns[index], number));
            }
            let dropped = chunk
                .losses
                .iter()
                .filter(|(_, loss)| loss.cause.is_dropped());
            lost += dropped.map(|(_, loss)| loss.count).sum::<u64>();
            Ok(())
        })
        .expect("the trace is read");
    (found, lost)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn the_merge_is_concatenate_then_stable_sort(
        plans in prop::collection::vec((0..3_u32, prop::collection::vec(stream_plan(), 0..5)), 1..5),
        is_compressed: bool,
        chunk_events in prop_oneof![1..30_usize, Just(1 << 16)],
    ) {
        let made = make(&plans);
        let scratch = tempfile::tempdir().expect("a directory");
        let level = if is_compressed { CompressionLevel::Zstd(1) } else { CompressionLevel::None };
        for one in &made {
            one.recording.write(scratch.path(), level);
        }
        let mut oracle: Vec<Known> = made.iter().flat_map(|one| one.known.clone()).collect();
        oracle.sort_by_key(|k| (k.time_ns, k.rank, k.recording, k.stream, k.position));
        let expected: Vec<(i64, u64)> =
            oracle.iter().map(|k| (k.time_ns - START_NS, k.number)).collect();
        let dropped: u64 = made.iter().map(|one| one.dropped).sum();

        let direct = Opened::open(scratch.path()).expect("recordings");
        let (found, lost) = numbers_of(&direct);
        prop_assert_eq!(&found, &expected);
        prop_assert_eq!(lost, dropped);

        let trace = scratch.path().join("run.annals");
        let inputs = [scratch.path().to_owned()];
        let (mut merge, rejected) = plan_merge(&inputs, Some(&trace)).expect("recordings");
        prop_assert!(rejected.is_empty());
        merge.chunk_events = chunk_events;
        let options = WriteOptions { compression: level, jobs: 2 };
        let (merged, _) = write_trace(&merge, &trace, options, |_| {}).expect("a trace");
        prop_assert_eq!(merged.report.totals.present(), expected.len() as u64);
        prop_assert_eq!(merged.report.totals.dropped, dropped);
        prop_assert!(merged.report.streams.iter().all(|stream| stream.ambiguous == 0));
        let opened = Opened::open(&trace).expect("a trace");
        let (found, lost) = numbers_of(&opened);
        prop_assert_eq!(&found, &expected);
        prop_assert_eq!(lost, dropped);
    }

    #[test]
    fn the_same_inputs_give_the_same_bytes(
        plans in prop::collection::vec((0..3_u32, prop::collection::vec(stream_plan(), 0..4)), 1..5),
        rotation in 0..5_usize,
        chunk_events in prop_oneof![1..30_usize, Just(1 << 16)],
    ) {
        let made = make(&plans);
        let scratch = tempfile::tempdir().expect("a directory");
        let level = CompressionLevel::Zstd(1);
        let mut paths: Vec<_> =
            made.iter().map(|one| one.recording.write(scratch.path(), level)).collect();
        let mut outputs = Vec::new();
        for jobs in [1, 2] {
            let output = scratch.path().join(format!("out-{jobs}.annals"));
            let (mut merge, _) = plan_merge(&paths, Some(&output)).expect("recordings");
            merge.chunk_events = chunk_events;
            let options = WriteOptions { compression: level, jobs };
            write_trace(&merge, &output, options, |_| {}).expect("a trace");
            outputs.push(std::fs::read(&output).expect("the trace"));
            let by = rotation % paths.len();
            paths.rotate_left(by);
            paths.reverse();
        }
        prop_assert_eq!(&outputs[0], &outputs[1]);
    }

    /// In = out + filtered: what a filter keeps is what the oracle keeps, every other event is counted, and
    /// no loss goes away.
    #[test]
    fn a_filter_keeps_what_it_says_and_counts_the_rest(
        plans in prop::collection::vec((0..3_u32, prop::collection::vec(stream_plan(), 0..5)), 1..5),
        bounds in (0..SPAN_US, 0..SPAN_US),
        ranks in prop_oneof![Just(None), Just(Some("0")), Just(Some("1-2"))],
        keeps_type in prop_oneof![3 => Just(true), 1 => Just(false)],
        chunk_events in prop_oneof![1..30_usize, Just(1 << 16)],
    ) {
        let made = make(&plans);
        let scratch = tempfile::tempdir().expect("a directory");
        let level = CompressionLevel::Zstd(1);
        for one in &made {
            one.recording.write(scratch.path(), level);
        }
        let window = Window {
            from_ns: bounds.0.min(bounds.1) * 1000,
            to_ns: bounds.0.max(bounds.1) * 1000,
        };
        let trace = scratch.path().join("run.annals");
        let inputs = [scratch.path().to_owned()];
        let (mut merge, _) = plan_merge(&inputs, Some(&trace)).expect("recordings");
        merge.chunk_events = chunk_events;
        let is_kept_rank = |rank: u32| match ranks {
            None => true,
            Some("0") => rank == 0,
            Some(_) => rank != 0,
        };
        let event = if keeps_type { "mar?" } else { "*[!k]" };
        let filter = EventFilter {
            rank: ranks.map(str::to_owned),
            event: Some(event.to_owned()),
            ..EventFilter::default()
        };
        let has_rank = merge.definitions.streams.keys().any(|stream| {
            let process = merge.definitions.process_of(*stream).expect("a process");
            is_kept_rank(merge.definitions.ranks[&process].rank)
        });
        let types = merge.definitions.event_types.values();
        let names: Vec<String> = types.map(|d| merge.definitions.string(d.name).to_owned()).collect();
        let has_type = names.iter().any(|name| if keeps_type { name == "mark" } else { !name.ends_with('k') });
        let outcome = merge.filter(&filter, window);
        prop_assert_eq!(outcome.is_ok(), (ranks.is_none() || has_rank) && has_type);
        prop_assume!(outcome.is_ok());

        let mut oracle: Vec<Known> = made.iter().flat_map(|one| one.known.clone()).collect();
        let all = oracle.len();
        oracle.retain(|known| {
            keeps_type && is_kept_rank(known.rank) && window.contains(known.time_ns - START_NS)
        });
        oracle.sort_by_key(|k| (k.time_ns, k.rank, k.recording, k.stream, k.position));
        let expected: Vec<(i64, u64)> =
            oracle.iter().map(|k| (k.time_ns - START_NS, k.number)).collect();
        let options = WriteOptions { compression: level, jobs: 2 };
        let (merged, _) = write_trace(&merge, &trace, options, |_| {}).expect("a trace");
        let totals = merged.report.totals;
        prop_assert_eq!(totals.recorded, all as u64);
        prop_assert_eq!(totals.filtered, (all - expected.len()) as u64);
        prop_assert_eq!(totals.present(), expected.len() as u64);
        prop_assert!(merged.report.streams.iter().all(|stream| stream.miscounted == 0));
        let opened = Opened::open(&trace).expect("a trace");
        let (found, lost) = numbers_of(&opened);
        prop_assert_eq!(&found, &expected);
        prop_assert_eq!(lost, made.iter().map(|one| one.dropped).sum::<u64>());
        prop_assert_eq!(opened.definitions.filters.len(), 1);
        let verified = verify(&trace, &inputs).expect("a trace");
        prop_assert!(verified.holds(), "{:?}", verified.mismatches);
        prop_assert_eq!(verified.proved_streams, opened.definitions.streams.len());
    }

    /// A trace is compared with recordings in which one event is not the one that was merged.
    #[test]
    fn verification_sees_any_other_event(
        plans in prop::collection::vec((0..3_u32, prop::collection::vec(stream_plan(), 1..4)), 1..4),
        which in any::<prop::sample::Index>(),
        is_time: bool,
    ) {
        let mut made = make(&plans);
        let scratch = tempfile::tempdir().expect("a directory");
        let (before, after) = (scratch.path().join("before"), scratch.path().join("after"));
        for directory in [&before, &after] {
            std::fs::create_dir(directory).expect("a directory");
        }
        let level = CompressionLevel::Zstd(1);
        for one in &made {
            one.recording.write(&before, level);
        }
        let trace = scratch.path().join("run.annals");
        let (merge, _) = plan_merge(std::slice::from_ref(&before), Some(&trace)).expect("recordings");
        let options = WriteOptions { compression: level, jobs: 1 };
        write_trace(&merge, &trace, options, |_| {}).expect("a trace");
        prop_assert!(verify(&trace, &[before]).expect("a trace").holds());

        let streams = made.iter_mut().flat_map(|one| &mut one.recording.streams);
        let rows = streams.flat_map(|stream| &mut stream.chunks).flat_map(|(_, rows)| rows);
        let events = rows.filter_map(|row| match row {
            Row::Event(_, tick, number) => Some((tick, number)),
            _ => None,
        });
        let mut events: Vec<(&mut u64, &mut u64)> = events.collect();
        prop_assume!(!events.is_empty());
        let at = which.index(events.len());
        if is_time {
            *events[at].0 ^= 1;
        } else {
            *events[at].1 += 1;
        }
        for one in &made {
            one.recording.write(&after, level);
        }
        let verified = verify(&trace, &[after]).expect("a trace");
        prop_assert!(!verified.holds());
    }
}
