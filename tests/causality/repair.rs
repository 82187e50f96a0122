//! After a repair nothing precedes what it waited for, and nothing else has changed.

use std::collections::BTreeMap;

use annals_format::{ClockKind, MapCursor, ProcessId, StreamId};
use annals_merger::{
    Causality, JoinOptions, MergeOptions, OutputKind, Plan, Reader, Replace, SliceNumber, Window,
    no_progress, verify,
};
use proptest::prelude::*;

use crate::merge_with;
use crate::world::{Host, Op, Ticking, World};

fn repairing(options: &mut MergeOptions) {
    options.causality = Causality::Repair;
}

/// Events of each process in the order of the trace: raw tick, time, shift.
fn events(directory: &std::path::Path) -> BTreeMap<ProcessId, Vec<(u64, i64, i64)>> {
    let opened = Reader::open(directory.join("out").join("run.annals")).expect("a trace");
    let d = opened.definitions();
    let mut found: BTreeMap<ProcessId, Vec<(u64, i64, i64)>> = BTreeMap::new();
    let clock = |stream: StreamId| d.sources[&d.streams[&stream].source].clock;
    opened
        .for_each_chunk(Window::ALL, |chunk: annals_format::OrderedChunk| {
            for index in 0..chunk.len() {
                let stream = chunk.stream(index);
                let (time, shift) = (chunk.time_ns(index), chunk.shift_ns(index));
                let map = &d.clock_maps[&clock(stream)];
                let tick = MapCursor::new(map).tick(time - shift);
                let tick = tick + i128::from(chunk.tick_residual(index));
                let process = d.process_of(stream).expect("a process");
                found
                    .entry(process)
                    .or_default()
                    .push((tick as u64, time, shift));
            }
            Ok(())
        })
        .expect("the trace is read");
    found
}

/// Every event in the order of the trace: time, stream, what its tick is beyond the clock's, shift.
fn in_order(trace: &std::path::Path) -> Vec<(i64, StreamId, i64, i64)> {
    let opened = Reader::open(trace).expect("a trace");
    let mut found = Vec::new();
    let read = opened.for_each_chunk(Window::ALL, |chunk: annals_format::OrderedChunk| {
        found.extend((0..chunk.len()).map(|index| {
            let (time, stream) = (chunk.time_ns(index), chunk.stream(index));
            (
                time,
                stream,
                chunk.tick_residual(index),
                chunk.shift_ns(index),
            )
        }));
        Ok(())
    });
    read.expect("the trace is read");
    found
}

fn hosts(errors: &[i64]) -> Vec<Host> {
    let hosts = errors.iter().enumerate();
    hosts
        .map(|(n, error)| Host {
            wall_error_ns: *error,
            ..Host::new(n as u8 + 1)
        })
        .collect()
}

fn assert_whole(world: &World, directory: &std::path::Path) {
    let events = events(directory);
    for program in &world.programs {
        let of_process = events
            .get(&ProcessId::new(program.rank))
            .cloned()
            .unwrap_or_default();
        let ticks: Vec<u64> = of_process.iter().map(|event| event.0).collect();
        let expected = program
            .ops
            .iter()
            .map(|(time, _)| program.host.reference_ns(*time) as u64);
        assert_eq!(
            ticks,
            expected.collect::<Vec<u64>>(),
            "raw ticks of rank {}",
            program.rank
        );
        assert!(of_process.iter().all(|(_, _, shift)| *shift >= 0));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn nothing_is_violated_after_a_repair_and_raw_ticks_stay(
        errors in prop::collection::vec(-200_000..200_000_i64, 5),
        plan in prop::collection::vec(
            (0..5_u32, 0..5_u32, 0..2_i64, 0..3_000_000_i64, 1..60_000_i64), 1..200),
    ) {
        // Two processes on one host must have one clock.
        let world = World::of_messages(&hosts(&errors), &plan);
        let scratch = tempfile::tempdir().expect("a directory");
        world.write(scratch.path());
        let (checked, plain) = merge_with(scratch.path(), 2, |_| {});
        let (merged, bytes) = merge_with(scratch.path(), 2, repairing);
        assert_whole(&world, scratch.path());
        let before = checked.report.causality.expect("messages").violations;
        let found = merged.report.causality.expect("messages");
        prop_assert_eq!(found.violations.count, 0);
        if before.count == 0 {
            prop_assert_eq!(found.repair, None);
            prop_assert_eq!(bytes == plain, true);
        } else {
            let repair = found.repair.expect("a repair");
            prop_assert_eq!(repair.before, before);
            // What no clock of a host can explain is moved.
            let is_moved = repair.events >= 1 && repair.largest_shift_ns >= before.largest_ns;
            prop_assert!(is_moved || !repair.hosts.is_empty());
            prop_assert_eq!(repair.over_limit, 0);
        }
        let (again, same) = merge_with(scratch.path(), 1, repairing);
        prop_assert_eq!(same == bytes, true);
        prop_assert_eq!(again.report.causality.expect("messages").violations.count, 0);
    }

    /// Clocks are corrected by more than half the time in which some of them start again. A merge that follows the plan
    /// must know the correction, otherwise it counts their wraps wrongly.
    #[test]
    fn a_planned_repair_is_the_same_in_slices_and_elsewhere(
        errors in prop::collection::vec(-20_000_000..20_000_000_i64, 4),
        wraps in prop::collection::vec(any::<bool>(), 4),
        messages in prop::collection::vec(
            (0..4_u32, 0..4_u32, 0..2_i64, 0..30_000_000_i64, 1..60_000_i64), 1..200),
        of in 1..5_u32,
    ) {
        let mut world = World::of_messages(&hosts(&errors), &messages);
        for (program, wraps) in world.programs.iter_mut().zip(wraps) {
            program.chunk_len = 7;
            if wraps {
                program.ticking = Ticking {
                    kind: ClockKind::Readable,
                    max_ticks: 4_000_000,
                    ..Ticking::REFERENCE
                };
                let end_ns = program.end_ns;
                let each = (0..).map(|n| n * 500_000).take_while(|at| *at < end_ns);
                program.points = each.chain([end_ns]).map(|at| (at, 0, 0)).collect();
            }
        }
        let scratch = tempfile::tempdir().expect("a directory");
        world.write(scratch.path());
        let (expected, bytes) = merge_with(scratch.path(), 2, repairing);
        let whole = scratch.path().join("out").join("whole.annals");
        std::fs::write(&whole, &bytes).expect("the trace");

        let file = scratch.path().join("plan.json");
        let inputs = [scratch.path().to_owned()];
        let mut options = MergeOptions::new();
        repairing(&mut options);
        let settled = options.plan(&inputs).expect("inputs").settled();
        settled.write(&file, Replace::Only(OutputKind::JSON)).expect("a plan");
        let following = |options: &mut MergeOptions| {
            repairing(options);
            options.settled = Some(Plan::read(&file).expect("a plan"));
        };
        let (followed, same) = merge_with(scratch.path(), 2, following);
        prop_assert!(same == bytes);
        let json = |report| serde_json::to_string(report).expect("a report");
        prop_assert_eq!(json(&followed.report), json(&expected.report));

        let slices = (1..=of).map(|number| {
            let output = scratch.path().join("out").join(format!("slice-{number}.annals"));
            let mut options = MergeOptions::new();
            options.output = Some(output.clone());
            following(&mut options);
            options.slice = Some(SliceNumber { number, of });
            options.jobs = 1;
            let plan = options.plan(&inputs).expect("inputs");
            plan.write_trace(&output, no_progress).expect("a slice");
            output
        });
        let slices: Vec<_> = slices.collect();
        let joined = scratch.path().join("out").join("joined.annals");
        JoinOptions::new().join(&slices, &joined, no_progress).expect("slices");
        prop_assert_eq!(in_order(&joined), in_order(&whole));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// A merged trace is an input like any other, also one that was repaired before and is joined by a late rank.
    #[test]
    fn traces_are_repaired_as_recordings_are(
        errors in prop::collection::vec(-200_000..200_000_i64, 5),
        plan in prop::collection::vec(
            (0..5_u32, 0..5_u32, 0..2_i64, 0..3_000_000_i64, 1..60_000_i64), 1..200),
        in_trace in prop::collection::vec(any::<bool>(), 5),
        is_one_host: bool,
        is_repaired_before: bool,
        // Also with events of others in between.
        chunk_events in prop_oneof![1..30_usize, Just(1 << 16)],
    ) {
        let mut hosts = hosts(&errors);
        if is_one_host {
            // Wrong reference clocks of one host: nothing but moving events helps.
            for (host, error) in hosts.iter_mut().zip(&errors) {
                host.number = 1;
                host.wall_error_ns = 0;
                host.offset_ns += error;
            }
        }
        let mut world = World::of_messages(&hosts, &plan);
        world.programs.iter_mut().for_each(|program| program.chunk_len = 7);
        let scratch = tempfile::tempdir().expect("a directory");
        let [all, part] = ["all", "part"].map(|name| scratch.path().join(name));
        for directory in [&all, &part] {
            std::fs::create_dir(directory).expect("a directory");
        }
        world.write(&all);
        let trace = scratch.path().join("part.annals");
        let mut inputs = Vec::new();
        for (program, in_trace) in world.programs.iter().zip(in_trace) {
            if in_trace {
                program.write(&part, &[]);
            } else {
                inputs.push(all.join(format!("world-{}.annals", program.rank)));
            }
        }
        let has_trace = inputs.len() < world.programs.len();
        if has_trace {
            let part = std::slice::from_ref(&part);
            let mut options = MergeOptions::new();
            options.chunk_events = chunk_events;
            if is_repaired_before {
                repairing(&mut options);
            }
            let plan = options.plan(part).expect("inputs");
            plan.write_trace(&trace, no_progress).expect("a trace");
            inputs.push(trace);
        }
        let mut outputs = Vec::new();
        let out = scratch.path().join("out");
        std::fs::create_dir(&out).expect("a directory");
        for (name, is_repaired) in [("run", true), ("plain", false)] {
            let output = out.join(format!("{name}.annals"));
            let mut options = MergeOptions::new();
            options.output = Some(output.clone());
            options.chunk_events = chunk_events;
            if is_repaired {
                repairing(&mut options);
            }
            let plan = options.plan(&inputs).expect("inputs");
            prop_assert!(plan.rejected().is_empty(), "{:?}", plan.rejected());
            let merged = plan.write_trace(&output, no_progress).expect("a trace");
            prop_assert!(merged.report.streams.iter().all(|stream| stream.miscounted == 0));
            let verified = verify(&output, &inputs).expect("a trace");
            prop_assert!(verified.holds(), "{:?}", verified);
            outputs.push((merged.report, std::fs::read(&output).expect("a trace")));
        }
        let [(repaired, bytes), (plain, same)] = &outputs[..] else {
            unreachable!("two");
        };
        let before = &plain.causality.as_ref().expect("messages").violations;
        let found = repaired.causality.as_ref().expect("messages");
        prop_assert_eq!(found.violations.count, 0);
        prop_assert_eq!(found.repair.is_some(), before.count != 0);
        if before.count == 0 {
            prop_assert!(bytes == same);
        }
        assert_whole(&world, scratch.path());
        let times = in_order(&out.join("run.annals"));
        prop_assert!(times.is_sorted_by_key(|event| event.0));
        if is_one_host && has_trace && !is_repaired_before {
            // No host is corrected there: whatever the inputs are, each event is moved to the same place.
            merge_with(&all, 2, |merge| {
                merge.chunk_events = chunk_events;
                repairing(merge);
            });
            prop_assert_eq!(in_order(&all.join("out").join("run.annals")), times);
        }
    }
}

#[test]
fn known_skews_and_rates_are_recovered_from_messages_in_both_directions() {
    let mut hosts = hosts(&[0, 7_000_000, -3_000_000]);
    hosts[1].rate_ppb = 40_000;
    hosts[2].rate_ppb = -25_000;
    // Ping-pong of 10 µs for five seconds, in a chain.
    let plan: Vec<_> = (0..4000)
        .map(|n| {
            let (a, b) = if n % 2 == 0 { (0, 1) } else { (1, 2) };
            let (from, to) = if n % 4 < 2 { (a, b) } else { (b, a) };
            (from, to, 0, n * 1_250_000, 10_000 + n * 7919 % 5_000)
        })
        .collect();
    let world = World::of_messages(&hosts, &plan);
    let scratch = tempfile::tempdir().expect("a directory");
    world.write(scratch.path());
    let (merged, _) = merge_with(scratch.path(), 2, repairing);
    assert_whole(&world, scratch.path());
    let found = merged.report.causality.expect("messages");
    assert_eq!(found.violations.count, 0);
    let repair = found.repair.expect("a repair");
    assert!(repair.before.largest_ns > 2_000_000);
    assert_eq!(repair.hosts.len(), 2);
    assert!(repair.hosts.iter().all(|host| host.quality == "accurate"));
    // Half a round trip, with little jitter; twice for the second in the chain.
    let bounds = repair
        .hosts
        .iter()
        .map(|host| host.bound_end_ns.expect("a bound"));
    assert!(
        bounds.clone().all(|bound| (5_000..20_000).contains(&bound)),
        "{:?}",
        repair.hosts
    );
    let events = events(scratch.path());
    let zero = events[&ProcessId::new(0)][0].1 - world.programs[0].ops[0].0;
    for program in &world.programs {
        let rank = program.rank as usize;
        let of_process = &events[&ProcessId::new(program.rank)];
        for ((true_ns, _), (_, time_ns, _)) in program.ops.iter().zip(of_process) {
            let wrong = (time_ns - zero).abs_diff(*true_ns);
            let bound = 20_000 * rank as u64 + 10;
            assert!(wrong <= bound, "rank {rank} at {true_ns}: {wrong} ns");
        }
    }
}

#[test]
fn every_collective_operation_is_repaired() {
    for operation in [0, 1, 2, 6, 8, 11, 12, 13, 14, 15, 16, 4] {
        let errors = [90_000, -40_000, 0, 15_000];
        let mut world = World::of_messages(&hosts(&errors), &[(0, 1, 0, 5, 5)]);
        for n in 0..20 {
            let root = (n % 4) as u32;
            for program in &mut world.programs {
                let begin = 50_000 * n + 1_000 * i64::from(program.rank) + 100;
                let op = |is_begin: bool| {
                    if is_begin {
                        Op::Begin(operation, root, 4)
                    } else {
                        Op::End(operation, root, 4)
                    }
                };
                program.ops.push((begin, op(true)));
                program
                    .ops
                    .push((50_000 * n + 6_000 + i64::from(program.rank), op(false)));
            }
        }
        let scratch = tempfile::tempdir().expect("a directory");
        world.write(scratch.path());
        let (merged, _) = merge_with(scratch.path(), 2, repairing);
        assert_whole(&world, scratch.path());
        let found = merged.report.causality.expect("messages");
        assert!(
            found.repair.is_some_and(|repair| repair.before.count > 0),
            "{operation}"
        );
        assert_eq!(found.violations.count, 0, "{operation}");
    }
}
