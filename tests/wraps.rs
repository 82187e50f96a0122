//! Clocks that start again: losses are placed between the events around them, and sources that keep their promise are
//! not called late, however long the gaps are.

use annals_format::{ClockKind, CompressionLevel, SourceOrder, TraceLoss};
use annals_merger::{ReadSummary, Reader, StreamReport};
use annals_test_support::{MARK, Row, TestClock, TestRecording, TestStream};
use proptest::prelude::*;

const START_NS: i64 = 1_000_000_000;

/// Returns a clock of one tick per nanosecond that starts again after a period.
fn clock(period_ns: u64, tick_at_zero: u64) -> TestClock {
    TestClock {
        kind: ClockKind::Readable,
        ticks_per_second: 1_000_000_000,
        max_ticks: period_ns - 1,
        tick_at_zero: tick_at_zero % period_ns,
    }
}

/// Reads a recording of one stream of an ordered source, whose chunks have these rows and begin with the first one.
fn read(clock: TestClock, chunks: Vec<(i64, Vec<Row>)>, end_ns: i64) -> ReadSummary {
    let recording = TestRecording {
        rank: Some(0),
        rank_count: None,
        id: 1,
        start_ns: START_NS,
        end_ns,
        clocks: vec![clock],
        streams: vec![TestStream {
            clock: 0,
            ordering: SourceOrder::Ordered,
            chunks,
        }],
        has_footer: true,
    };
    let scratch = tempfile::tempdir().expect("a directory");
    recording.write(scratch.path(), CompressionLevel::None);
    let opened = Reader::open(scratch.path()).expect("a recording");
    opened.summary().expect("the recording is read")
}

fn stream(summary: &ReadSummary) -> &StreamReport {
    &summary.report.as_ref().expect("a report").streams[0]
}

/// A period, in nanoseconds: small and large ones, of any factors.
fn period() -> impl Strategy<Value = u64> {
    prop_oneof![
        16..5_000_u64,
        5_000..50_000_000_u64,
        50_000_000..3_000_000_000_u64
    ]
}

/// Steps from event to event, in thousandths of a period: the gap, and where in it losses are reported.
fn steps() -> impl Strategy<Value = Vec<(i64, Vec<i64>)>> {
    let reports = prop::collection::vec(0..1_000_i64, 0..4);
    prop::collection::vec((0..4_000_i64, reports), 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn losses_of_a_clock_that_wraps_are_between_the_events_around_them(
        period_ns in period(), tick_at_zero: u64, steps in steps(), chunk_len in 1..20_usize,
    ) {
        let clock = clock(period_ns, tick_at_zero);
        let (mut at, mut known) = (START_NS, Vec::new());
        let mut rows: Vec<(i64, Vec<Row>)> = Vec::new();
        for (number, (gap, reports)) in (0..).zip(&steps) {
            let event_ns = at + gap * period_ns as i64 / 1000 + 1;
            let mut of_event = Vec::new();
            let mut reports: Vec<i64> =
                reports.iter().map(|report| at + (event_ns - at) * report / 1000).collect();
            reports.sort_unstable();
            for report_ns in reports {
                // Its count distinguishes a loss from the others.
                let count = known.len() as u64 + 1;
                let row =
                    Row::Dropped(Some(MARK), count, clock.tick(at), clock.tick(report_ns));
                of_event.push(row);
                known.push((at, report_ns, event_ns));
            }
            of_event.push(Row::Observation(event_ns));
            of_event.push(Row::Event(MARK, clock.tick(event_ns), number));
            rows.push((event_ns, of_event));
            at = event_ns;
        }
        let chunks = rows.chunks(chunk_len);
        let chunks = chunks.map(|rows| (rows[0].0, rows.iter().flat_map(|row| row.1.clone()).collect()));
        let summary = read(clock, chunks.collect(), at);
        let late = stream(&summary);
        prop_assert_eq!((late.inversions, late.largest_lateness_ticks), (0, 0));
        prop_assert!(!late.broke_promise);
        prop_assert_eq!((late.clamped, late.ambiguous), (0, 0));
        let mut losses: Vec<&TraceLoss> = summary.losses.iter().collect();
        losses.sort_by_key(|loss| loss.count);
        prop_assert_eq!(losses.len(), known.len());
        for (loss, (before_ns, report_ns, event_ns)) in losses.into_iter().zip(known) {
            let (from_ns, to_ns) = (loss.from_ns + START_NS, loss.to_ns + START_NS);
            prop_assert_eq!(from_ns, before_ns);
            prop_assert!(
                (report_ns..=event_ns).contains(&to_ns),
                "{} is not in {}..={}", to_ns, report_ns, event_ns
            );
            if (event_ns - report_ns) * 2 < period_ns as i64 {
                prop_assert_eq!(to_ns, report_ns);
            }
        }
    }

    #[test]
    fn events_of_a_clock_that_wraps_are_late_by_their_times(
        period_ns in 1_000..3_000_000_000_u64, tick_at_zero: u64,
        steps in prop::collection::vec((0..4_000_i64, prop_oneof![2 => Just(0), 1 => 0..300_i64]), 1..60),
        chunk_len in 1..20_usize,
    ) {
        let clock = clock(period_ns, tick_at_zero);
        let ns = |thousandths: i64| thousandths * period_ns as i64 / 1000;
        let mut at = START_NS + ns(400);
        let rows = (0..).zip(&steps).map(|(number, (gap, late))| {
            at += ns(*gap);
            let event_ns = at - ns(*late);
            (at, event_ns, [Row::Observation(at), Row::Event(MARK, clock.tick(event_ns), number)])
        });
        let rows: Vec<(i64, i64, [Row; 2])> = rows.collect();
        let (mut inversions, mut largest) = (0, 0);
        for chunk in rows.chunks(chunk_len) {
            let mut front_ns = i64::MIN;
            for (_, event_ns, _) in chunk {
                if *event_ns < front_ns {
                    inversions += 1;
                    largest = largest.max(event_ns.abs_diff(front_ns));
                }
                front_ns = front_ns.max(*event_ns);
            }
        }
        let chunks = rows.chunks(chunk_len);
        let chunks = chunks.map(|rows| (rows[0].0, rows.iter().flat_map(|row| row.2.clone()).collect()));
        let summary = read(clock, chunks.collect(), at);
        let found = stream(&summary);
        prop_assert_eq!((found.inversions, found.largest_lateness_ticks), (inversions, largest));
        prop_assert_eq!(found.broke_promise, inversions != 0);
    }
}
