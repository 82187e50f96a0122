//! True time is recovered within the bounds that are stated.

use std::collections::BTreeMap;

use annals_format::{ClockKind, Definition, HostOffset, MapCursor, ProcessId, Value};
use annals_merger::{
    Bounds, Causality, ClockOffsets, Reader, VerifyOptions, Window, no_progress, verify,
};
use proptest::prelude::*;

use crate::world::{Host, Op, Program, Ticking};
use crate::{merge_with, report};

const END_NS: i64 = 30_000_000_000;

/// Trace time of each mark by its number, and what the trace states.
fn marks(directory: &std::path::Path) -> (BTreeMap<u64, (u32, i64)>, annals_format::Definitions) {
    let opened = Reader::open(directory.join("out").join("run.annals")).expect("a trace");
    let mut found = BTreeMap::new();
    opened
        .for_each_chunk(Window::ALL, |chunk: annals_format::OrderedChunk| {
            for row in chunk.rows() {
                let Value::I64(number) = row.value(0) else {
                    panic!("a number");
                };
                let process = opened.definitions().process_of(row.stream());
                let process = process.unwrap_or(ProcessId::new(0)).get();
                found.insert(number as u64, (process, row.time_ns()));
            }
            Ok(())
        })
        .expect("the trace is read");
    (found, opened.definitions().clone())
}

/// Asserts that each mark, numbered by its true time in ns, has this time within the bound in the trace; returns the
/// largest of these bounds. Rank 0 is the axis, and its first mark at true time 0.
fn assert_recovered(directory: &std::path::Path, axis: Host) -> u64 {
    let (marks, definitions) = marks(directory);
    let bounds = Bounds::of(&definitions);
    let clock = |process: u32| annals_format::ClockId::new(process);
    let zero = marks[&0];
    let mut largest = 0;
    for (true_ns, (process, time_ns)) in &marks {
        let expected = zero.1 + axis.reference_ns(*true_ns as i64) - axis.reference_ns(0);
        let bound = bounds.between((clock(0), zero.1), (clock(*process), *time_ns));
        let bound = bound.expect("a bound");
        let wrong = time_ns.abs_diff(expected);
        assert!(
            wrong <= bound,
            "process {process} at {true_ns}: {wrong} > {bound} ns"
        );
        largest = largest.max(bound);
    }
    largest
}

/// Raw tick of each mark of rank 1, by its number.
fn raw_ticks(directory: &std::path::Path) -> BTreeMap<u64, u64> {
    let opened = Reader::open(directory.join("out").join("run.annals")).expect("a trace");
    let d = opened.definitions();
    let mut found = BTreeMap::new();
    let read = opened.for_each_chunk(Window::ALL, |chunk: annals_format::OrderedChunk| {
        for row in chunk.rows() {
            let number = row.value(0);
            let clock = d.sources[&d.streams[&row.stream()].source].clock;
            if let (Value::I64(number), 1) = (number, clock.get()) {
                let tick = MapCursor::new(&d.clock_maps[&clock]).tick(row.time_ns());
                let tick = tick + i128::from(chunk.tick_residual(row.number));
                found.insert(number as u64, tick as u64);
            }
        }
        Ok(())
    });
    read.expect("the trace is read");
    found
}

fn marked(rank: u32, ranks: u32, host: Host, shift: i64) -> Program {
    let mut program = Program::new(rank, ranks, host, END_NS);
    program.ops = (0..200)
        .map(|n| n * (END_NS / 200) + shift)
        .map(|true_ns| (true_ns, Op::Mark(true_ns as u64)))
        .collect();
    program
}

fn host() -> impl Strategy<Value = (i64, i64, i64)> {
    (
        0..1_000_000_000_000_i64,
        -80_000..80_000_i64,
        -5_000_000_000..5_000_000_000_i64,
    )
}

/// Returns what `from` finds when it measures `to` at a true time, with this bound, and this part of it wrong.
fn measured(from: Host, to: Host, true_ns: i64, error_ns: i64, percent: i64) -> Definition {
    let reference_ns = from.reference_ns(true_ns);
    Definition::HostOffset(HostOffset {
        from: annals_format::BootId([from.number; 16]),
        to: annals_format::BootId([to.number; 16]),
        reference_ns,
        offset_ns: to.reference_ns(true_ns) - reference_ns + error_ns * percent / 100,
        // Rounding of the clocks themselves.
        error_ns: error_ns as u64 + 2,
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn hosts_related_by_measured_offsets_are_right_to_within_their_bounds(
        hosts in prop::collection::vec(host(), 2..6),
        errors in prop::collection::vec((0..20_000_i64, -99..99_i64), 32),
        parents in prop::collection::vec(any::<prop::sample::Index>(), 6),
        backward: bool, moments in 2..5_i64,
    ) {
        let hosts: Vec<Host> = hosts.iter().enumerate()
            .map(|(n, (offset_ns, rate_ppb, wall_error_ns))| Host {
                number: n as u8 + 1,
                offset_ns: *offset_ns,
                rate_ppb: *rate_ppb,
                wall_error_ns: *wall_error_ns,
            })
            .collect();
        let ranks = hosts.len() as u32;
        let mut errors = errors.into_iter().cycle();
        let scratch = tempfile::tempdir().expect("a directory");
        for (rank, host) in hosts.iter().enumerate() {
            let mut program = marked(rank as u32, ranks, *host, 1000 * rank as i64);
            if rank > 0 {
                // A tree: each host is measured against one before it.
                let parent = hosts[parents[rank % 6].index(rank)];
                for n in 0..moments {
                    let at = n * (END_NS / (moments - 1));
                    let (error_ns, percent) = errors.next().expect("endless");
                    let (from, to) = if backward { (parent, *host) } else { (*host, parent) };
                    program.more.push(measured(from, to, at, error_ns, percent));
                }
            }
            program.write(scratch.path(), &[]);
        }
        let report = report(scratch.path(), Causality::Check);
        prop_assert_eq!(report.hosts, hosts.len());
        let measured = report.host_clocks.iter().filter(|host| host.relation == "measured");
        prop_assert_eq!(measured.count(), hosts.len() - 1);
        let largest = assert_recovered(scratch.path(), hosts[0]);
        // Errors of at most five measurements in a row, and the wander between two.
        let most = 5 * (20_002 + 15_002) + 100;
        prop_assert!(largest <= most, "{} ns", largest);
        // What the report says is the worst of it, for hosts that are not the axis.
        let worst = report.clocks.iter().filter_map(|clock| clock.bound_max_ns).max();
        prop_assert!(worst.is_some_and(|worst| worst <= most));
    }

    #[test]
    fn clocks_of_any_rate_and_period_are_right_to_within_their_bounds(
        ticks_per_second in 100_000..4_000_000_000_u64, rate_ppb in -90_000..90_000_i64,
        period_s in prop_oneof![Just(None), (2..9_u64).prop_map(Some)],
        tick_at_zero: u64,
        errors in prop::collection::vec((0..500_u64, -100..100_i64, 0..12_u8), 31),
    ) {
        let axis = Host::new(1);
        let max_ticks = period_s.map_or(u64::MAX, |s| s * ticks_per_second + 17);
        let ticking = Ticking {
            kind: if period_s.is_some() { ClockKind::Readable } else { ClockKind::Tsc },
            ticks_per_second,
            rate_ppb,
            max_ticks,
            steps: Ticking::REFERENCE.steps,
            tick_at_zero: if period_s.is_some() { tick_at_zero % (max_ticks + 1) } else { tick_at_zero >> 4 },
        };
        let tick_ns = 1_000_000_000 / ticks_per_second + 1;
        let scratch = tempfile::tempdir().expect("a directory");
        marked(0, 2, axis, 0).write(scratch.path(), &[]);
        let mut program = marked(1, 2, axis, 500);
        program.ticking = ticking;
        // Once a second; now and then the process was not running while it read.
        program.points = errors.iter().enumerate()
            .map(|(n, (error_ns, percent, luck))| {
                let error_ns = if *luck == 0 { error_ns * 2000 } else { *error_ns };
                let wrong_ns = error_ns as i64 * percent / 100;
                (n as i64 * 1_000_000_000, error_ns + tick_ns, wrong_ns)
            })
            .collect();
        // The best and the worst of it do not matter at the ends.
        program.chunk_len = 5;
        program.write(scratch.path(), &[]);
        let report = report(scratch.path(), Causality::Check);
        prop_assert!(report.streams.iter().all(|stream| stream.ambiguous == 0));
        assert_recovered(scratch.path(), axis);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// A clock is set back and forth, by between the smallest step that differs from drift and an hour, and read every
    /// second. Every time is right to within its bound, or the event counts as ambiguous. Raw ticks do not change.
    #[test]
    fn a_clock_that_is_set_while_it_runs_is_followed(
        steps in [(3..27_i64, -3_600_000..3_600_000_i64), (3..27_i64, -2000..2000_i64), (3..27_i64, -60..60_i64)],
        at in 0..1_000_000_000_i64,
        ticks_per_second in prop_oneof![Just(1_000_000_000_u64), 1_000_000..4_000_000_000_u64],
        rate_ppb in prop_oneof![-90_000..90_000_i64, -20_000_000..20_000_000_i64],
        chunk_len in prop_oneof![1..12_usize, Just(200)],
        is_unordered: bool,
    ) {
        let axis = Host::new(1);
        let scratch = tempfile::tempdir().expect("a directory");
        marked(0, 2, axis, 0).write(scratch.path(), &[]);
        let mut program = marked(1, 2, axis, 500);
        let tick_at_zero = 20_000 * ticks_per_second;
        let steps = steps.map(|(second, ms)| {
            let ticks = i128::from(ms) * i128::from(ticks_per_second) / 1000;
            let is_told = ms.abs() >= 11;
            (axis.reference_ns(second * 1_000_000_000 + at), if is_told { ticks as i64 } else { 0 })
        });
        program.ticking = Ticking {
            kind: ClockKind::Readable, ticks_per_second, rate_ppb, tick_at_zero, steps,
            ..Ticking::REFERENCE
        };
        let error_ns = 100 + 1_000_000_000 / ticks_per_second + 1;
        program.points = (0..=30).map(|second| (second * 1_000_000_000, error_ns, 0)).collect();
        program.chunk_len = chunk_len;
        program.is_unordered = is_unordered;
        program.write(scratch.path(), &[]);
        let report = report(scratch.path(), Causality::Check);
        let ambiguous: u64 = report.streams.iter().map(|stream| stream.ambiguous).sum();
        let told = steps.iter().filter(|(_, ticks)| *ticks != 0);
        prop_assert!(report.clocks[1].steps <= told.count());
        let (found, definitions) = marks(scratch.path());
        let bounds = Bounds::of(&definitions);
        let clock = annals_format::ClockId::new;
        let mut wrong = 0;
        for (true_ns, (rank, time_ns)) in &found {
            let bound = bounds.between((clock(0), *time_ns), (clock(*rank), *time_ns));
            let bound = bound.expect("a bound");
            wrong += u64::from(time_ns.abs_diff(*true_ns as i64) > bound);
        }
        prop_assert!(wrong <= ambiguous, "{} are wrong, {} ambiguous", wrong, ambiguous);
        // Only near a step can two turns fit, unless events may be reported with any delay.
        prop_assert!(is_unordered || ambiguous <= 3 * 7 * 2, "{} are ambiguous", ambiguous);
        for (true_ns, tick) in raw_ticks(scratch.path()) {
            prop_assert_eq!(tick, program.ticking.tick(axis.reference_ns(true_ns as i64)));
        }
    }

    /// Its rate is not what it says, and it has started again very often before the run is over: only if the rate is
    /// found, too, is every turn the right one, and no event later than the tightest observations allow.
    #[test]
    fn a_clock_that_cannot_be_read_is_tied_by_when_its_events_were_observed(
        rate_ppb in -95_000..95_000_i64,
        period_ms in prop_oneof![Just(None), (4..50_u64).prop_map(Some)],
        lateness in prop::collection::vec(0..1_000_000_i64, 200),
        tight_every in 1..6_usize,
    ) {
        let axis = Host::new(1);
        let max_ticks = period_ms.map_or(u64::MAX, |ms| ms * 1_000_000 + 17);
        let scratch = tempfile::tempdir().expect("a directory");
        marked(0, 2, axis, 0).write(scratch.path(), &[]);
        let mut program = marked(1, 2, axis, 500);
        program.ticking = Ticking {
            kind: ClockKind::Unreadable,
            rate_ppb,
            max_ticks,
            tick_at_zero: 123_456,
            ..Ticking::REFERENCE
        };
        program.points.clear();
        program.chunk_len = 9;
        // Now and then one is observed almost immediately.
        program.lateness_ns = lateness.iter().enumerate()
            .map(|(n, late_ns)| if n % tight_every == 0 { late_ns / 1000 } else { *late_ns })
            .collect();
        program.write(scratch.path(), &[]);
        let report = report(scratch.path(), Causality::Check);
        prop_assert!(report.streams.iter().all(|stream| stream.ambiguous == 0));
        let (found, _) = marks(scratch.path());
        prop_assert_eq!(found.len(), 400);
        for (true_ns, (rank, time_ns)) in found {
            let wrong_ns = time_ns - true_ns as i64;
            prop_assert!(rank == 0 || wrong_ns.abs() < 200_000, "{} ns at {}", wrong_ns, true_ns);
        }
    }
}

#[test]
fn a_read_while_the_process_was_descheduled_costs_nothing() {
    let axis = Host::new(1);
    let scratch = tempfile::tempdir().expect("a directory");
    marked(0, 2, axis, 0).write(scratch.path(), &[]);
    let mut program = marked(1, 2, axis, 500);
    program.ticking = Ticking {
        kind: ClockKind::Tsc,
        ticks_per_second: 2_500_000_000,
        rate_ppb: 40_000,
        max_ticks: u64::MAX,
        tick_at_zero: 12_345,
        steps: Ticking::REFERENCE.steps,
    };
    program.points = (0..=30)
        .map(|n| {
            let at = n * 1_000_000_000;
            if n % 7 == 3 {
                (at, 2_000_000, 1_900_000)
            } else {
                (at, 25, 0)
            }
        })
        .collect();
    program.write(scratch.path(), &[]);
    merge_with(scratch.path(), 2, |_| {});
    let largest = assert_recovered(scratch.path(), axis);
    assert!(largest < 100, "{largest} ns");
}

#[test]
fn a_file_of_offsets_wins_over_what_is_stored() {
    let a = Host::new(1);
    let b = Host {
        wall_error_ns: 1_500_000,
        ..Host::new(2)
    };
    let scratch = tempfile::tempdir().expect("a directory");
    marked(0, 2, a, 0).write(scratch.path(), &[]);
    let mut program = marked(1, 2, b, 500);
    // Wrong by a millisecond, beyond its bound.
    program.more.push(measured(a, b, 0, 1_000_000, 100));
    program.write(scratch.path(), &[]);
    let file = scratch.path().join("offsets");
    // What has to be added to the second host's wall clock.
    let text = "host-1 0.000000 0.000000\nhost-2 0.000020 -0.001501\n";
    std::fs::write(&file, text).expect("a file");
    let offsets = ClockOffsets::read(&file).expect("offsets");
    let output = scratch.path().join("out").join("run.annals");
    std::fs::create_dir_all(output.parent().expect("a directory")).expect("a directory");
    let inputs = [0, 1].map(|rank| scratch.path().join(format!("world-{rank}.annals")));
    let mut options = annals_merger::MergeOptions::new();
    options.clock_offsets = Some(offsets.clone());
    let plan = options.plan(&inputs).expect("inputs");
    let merged = plan.write_trace(&output, annals_merger::no_progress);
    let merged = merged.expect("a trace");
    let relations: Vec<&str> = merged
        .report
        .host_clocks
        .iter()
        .map(|host| host.relation)
        .collect();
    assert_eq!(relations, ["same-host", "file"]);
    // Without the file, the times of the recordings' events are unknown.
    let verified = {
        let mut options = VerifyOptions::new();
        options.recordings = inputs.to_vec();
        options.clock_offsets = Some(offsets.clone());
        options.verify(&output, no_progress).expect("a trace")
    };
    assert!(verified.holds(), "{verified:?}");
    let error = verify(&output, &inputs).expect_err("no file").to_string();
    assert!(error.contains("give that file again"), "{error}");
    // 10 µs of round trip, 3 µs for its digits, on both lines; and 2·10⁻⁴ of 30 s.
    let largest = assert_recovered(scratch.path(), a);
    assert!((16_000..6_100_000).contains(&largest), "{largest} ns");
    let wrong = std::fs::write(&file, "host-1 0.0 0.0\nhost-2 0.1\n");
    wrong.expect("a file");
    let error = ClockOffsets::read(&file)
        .expect_err("no offsets")
        .to_string();
    assert!(
        error.contains("line 2: expected a host") && error.contains("`host-2 0.1`"),
        "{error}"
    );
}

#[test]
fn wall_clocks_have_no_bound() {
    let (a, b) = (
        Host::new(1),
        Host {
            wall_error_ns: 70,
            ..Host::new(2)
        },
    );
    let scratch = tempfile::tempdir().expect("a directory");
    marked(0, 2, a, 0).write(scratch.path(), &[]);
    marked(1, 2, b, 500).write(scratch.path(), &[]);
    let report = report(scratch.path(), Causality::Check);
    let bounds: Vec<_> = report
        .host_clocks
        .iter()
        .map(|h| (h.relation, h.bound_max_ns))
        .collect();
    assert_eq!(bounds, [("same-host", Some(0)), ("wall-clock", None)]);
    let (marks, _) = marks(scratch.path());
    assert_eq!(marks[&500].1 - marks[&0].1, 570);
}

#[test]
fn processes_of_a_long_run_on_one_host_share_one_map() {
    const PROCESSES: u32 = 8;
    const HOURS_NS: i64 = 3 * 3_600_000_000_000;
    let scratch = tempfile::tempdir().expect("a directory");
    let host = Host::new(1);
    for rank in 0..PROCESSES {
        let mut program = Program::new(rank, PROCESSES, host, HOURS_NS);
        program.ticking = Ticking {
            kind: ClockKind::Tsc,
            ticks_per_second: 2_500_000_000,
            rate_ppb: 3_000,
            ..Ticking::REFERENCE
        };
        // Each is tied to the host once a second, and all together more often than a map has knots.
        let seconds = 0..HOURS_NS / 1_000_000_000;
        let phase = i64::from(rank) * 125_000_000;
        let points = seconds.map(|n| (n * 1_000_000_000 + phase, 25, (n * 7 + phase) % 41 - 20));
        program.points = points.collect();
        let marks = (0..200).map(|n| n * (HOURS_NS / 200) + i64::from(rank));
        program.ops = marks.map(|at| (at, Op::Mark(at as u64))).collect();
        program.write(scratch.path(), &[]);
    }
    report(scratch.path(), Causality::Check);
    let (marks, definitions) = marks(scratch.path());
    let maps: Vec<_> = definitions.clock_maps.values().collect();
    assert_eq!(maps.len(), PROCESSES as usize);
    for map in &maps {
        assert!(std::ptr::eq(&map.knots[..], &maps[0].knots[..]));
    }
    let knots = maps[0].knots.len();
    assert!((40_000..=1 << 16).contains(&knots), "{knots} knots");
    let zero = marks[&0].1;
    for (true_ns, (process, time_ns)) in marks {
        let wrong = (time_ns - zero).abs_diff(true_ns as i64);
        assert!(wrong < 60, "process {process} at {true_ns}: {wrong} ns");
    }
}
