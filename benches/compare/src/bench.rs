//! The run: whole costs first, while no rival has threads in this process; then the rounds of the
//! event path; then, if wanted, single events; at the end everything is read back.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use annals_recorder::{tsc, tsc_is_invariant};

use crate::Arguments;
use crate::histogram::Histogram;
use crate::measure::Round;
use crate::processor::Processors;
use crate::report::{Line, Report};
use crate::roster::{self, Entry, FLOOR, OTF2, PROGRAM};
use crate::series::{Figure, Series};
use crate::whole::{Cost, Recording};
use crate::workload::{WholeProgram, Workload};

/// Calls of a whole program, as a multiple of those of a workload.
const WHOLE_CALLS: u64 = 5;

/// The longest that one contestant times single events before the next has its turn.
const SLICE: Duration = Duration::from_secs(1);

/// Runs everything and returns the figures.
///
/// # Errors
/// If the processor has no clock that all contestants can share.
pub(crate) fn run(arguments: &Arguments, scratch: &Path) -> Result<Report, String> {
    if !tsc_is_invariant() {
        return Err("this processor has no invariant time-stamp counter".to_owned());
    }
    let processors = Processors::here();
    let mut report = Report::default();
    report.section(format!(
        "{} rounds, {} calls each, interleaved; pinned; the program's own time is subtracted",
        arguments.rounds, arguments.calls
    ));
    if cfg!(debug_assertions) {
        report.section("BUILT WITHOUT OPTIMISATION: the figures mean nothing; use --release");
    }
    let mut entries = roster::start(&["program", "floor"].map(str::to_owned), scratch);
    let mut whole = Report::default();
    if arguments.workload.is_empty() && arguments.only.is_empty() {
        whole_costs(arguments, scratch, &processors, &mut whole);
    }
    if arguments.whole {
        return Ok(whole);
    }
    processors.unpin();
    entries.extend(roster::start(&arguments.only, scratch).into_iter().skip(2));
    for entry in &entries {
        if let Err(reason) = &entry.measured {
            report.not_measured(entry.name, reason);
        }
    }
    rounds(arguments, &processors, &mut entries, &mut report);
    report.lines.append(&mut whole.lines);
    if arguments.long > 0 {
        singles(arguments, &mut entries, &mut report);
    }
    report.section("Events raised, read back, and lost by the recorder's own count");
    for entry in &mut entries {
        let Ok(measured) = &mut entry.measured else {
            continue;
        };
        let contestant = entry.name.to_owned();
        match measured.finish() {
            Ok(check) => report.lines.push(Line::Check { contestant, check }),
            Err(reason) => report.not_measured(entry.name, &format!("doubtful: {reason}")),
        }
    }
    Ok(report)
}

/// Excludes a contestant that failed from further rounds, and reports it.
fn retire<T>(entry: &mut Entry, outcome: Result<T, String>, report: &mut Report) -> Option<T> {
    match outcome {
        Ok(value) => Some(value),
        Err(reason) => {
            report.not_measured(entry.name, &reason);
            entry.measured = Err(reason);
            None
        }
    }
}

fn rounds(
    arguments: &Arguments,
    processors: &Processors,
    entries: &mut [Entry],
    report: &mut Report,
) {
    let has_two = processors.count() >= 2;
    let mut times: BTreeMap<(usize, usize, usize), [Series; 2]> = BTreeMap::new();
    let is_all = arguments.workload.is_empty();
    let wanted = |workload: &Workload| is_all || arguments.workload.contains(workload);
    for number in 0..arguments.rounds {
        eprint!("\rround {} of {}", number + 1, arguments.rounds);
        let together = (is_all && has_two).then_some((Workload::Pair, 2));
        let alone = Workload::ALL.into_iter().filter(wanted);
        for (workload, threads) in alone.map(|workload| (workload, 1)).chain(together) {
            let round = Round {
                calls: arguments.calls,
                seed: u64::from(number) << 8 | workload as u64,
                processors: processors.clone(),
            };
            for turn in 0..entries.len() {
                let index = (turn + number as usize) % entries.len();
                let entry = &mut entries[index];
                let Ok(measured) = &mut entry.measured else {
                    continue;
                };
                let outcome = measured.round(workload, threads, round.clone());
                if let Some(time) = retire(entry, outcome, report) {
                    let key = (workload as usize, threads, index);
                    let [wall, cpu] = times.entry(key).or_default();
                    wall.push(time.wall_ns);
                    cpu.push(time.cpu_ns);
                }
            }
        }
    }
    eprintln!();

    let index_of = |name| entries.iter().position(|entry| entry.name == name);
    // Without the program's own: of the wall time or of the thread's processor time.
    let figure_of = |clock: usize, workload: Workload, threads, index: Option<usize>| {
        let of = |index| times.get(&(workload as usize, threads, index))?[clock].figure();
        let program = index_of(PROGRAM)?;
        let own = of(index?)?;
        Some(if index == Some(program) {
            own
        } else {
            own.less(of(program)?)
        })
    };
    let figure = |workload, threads, index| figure_of(0, workload, threads, index);
    for workload in Workload::ALL.into_iter().filter(wanted) {
        report.section(workload.title());
        let floor = figure(workload, 1, index_of(FLOOR));
        let otf2 = figure(workload, 1, index_of(OTF2));
        for (index, entry) in entries.iter().enumerate() {
            let Some(ns) = figure(workload, 1, Some(index)) else {
                continue;
            };
            let Some(thread_cpu_ns) = figure_of(1, workload, 1, Some(index)) else {
                continue;
            };
            let by = |other: Option<Figure>| {
                let other = other.filter(|_| entry.name != PROGRAM);
                other.and_then(|other| ns.by(other))
            };
            report.lines.push(Line::Time {
                contestant: entry.name.to_owned(),
                ns,
                thread_cpu_ns,
                by_floor: by(floor),
                by_otf2: by(otf2),
            });
        }
    }
    if !is_all {
        return;
    }
    report.section(
        "5. pairs on two threads in parallel, each on a separate processor, compared with one alone",
    );
    if !has_two {
        report.not_measured("two threads", "there is one processor only");
    }
    for (index, entry) in entries.iter().enumerate() {
        let alone = figure(Workload::Pair, 1, Some(index));
        let both = figure(Workload::Pair, 2, Some(index));
        if let (Some(alone_ns), Some(together_ns)) = (alone, both)
            && entry.name != PROGRAM
        {
            report.lines.push(Line::Threads {
                contestant: entry.name.to_owned(),
                alone_ns,
                together_ns,
                ratio: together_ns.by(alone_ns),
            });
        }
    }
}

fn whole_costs(
    arguments: &Arguments,
    scratch: &Path,
    processors: &Processors,
    report: &mut Report,
) {
    let calls = WHOLE_CALLS * arguments.calls;
    for program in WholeProgram::ALL {
        const COUNT: usize = Recording::ALL.len();
        // With what is compressed afterwards, too.
        let (mut costs, mut afterwards): ([Vec<Cost>; COUNT], [Vec<Cost>; COUNT]) =
            Default::default();
        let mut failures = [const { None }; COUNT];
        for number in 0..arguments.rounds {
            eprint!(
                "\rwhole costs, round {} of {}",
                number + 1,
                arguments.rounds
            );
            for turn in 0..COUNT {
                let index = (turn + number as usize) % COUNT;
                if failures[index].is_some() {
                    continue;
                }
                // The recorder's own threads may run anywhere; the one that raises does not move.
                processors.unpin();
                let seed = u64::from(number);
                let run = move || Recording::ALL[index].run(scratch, program, calls, seed);
                match run() {
                    Ok((cost, compressed)) => {
                        costs[index].push(cost);
                        afterwards[index].extend(compressed);
                    }
                    Err(reason) => failures[index] = Some(reason),
                }
            }
        }
        report.section(format!(
            "Whole cost and size: {}; processor time of all threads, not pinned, writing included",
            program.title()
        ));
        let own: Series = costs[0].iter().map(|cost| cost.cpu_ns as f64).collect();
        let summary = |costs: &[Cost]| {
            let cpu: Series = costs.iter().map(|cost| cost.cpu_ns as f64).collect();
            let raised = costs.first()?.raised as f64;
            let cpu = cpu.figure()?.less(own.figure()?);
            let cpu = Figure {
                min: cpu.min / raised,
                median: cpu.median / raised,
            };
            let sum = |of: fn(&Cost) -> u64| costs.iter().map(of).sum::<u64>();
            let dropped = sum(|cost| cost.dropped);
            let raised = sum(|cost| cost.raised);
            let bytes = sum(|cost| cost.bytes) as f64 / raised.saturating_sub(dropped) as f64;
            Some((cpu, bytes, dropped, raised))
        };
        let rows = [
            ("annals, zstd", &costs[1], &afterwards[4]),
            (
                "annals, later: until the program ends",
                &costs[2],
                &afterwards[4],
            ),
            (
                "annals, later: with its compression",
                &afterwards[2],
                &afterwards[4],
            ),
            ("annals, not compressed", &costs[3], &costs[4]),
            ("otf2, then zstd level 1", &afterwards[4], &afterwards[4]),
            ("otf2", &costs[4], &costs[4]),
        ];
        for (contestant, costs, reference) in rows {
            let reference = summary(reference);
            if let Some((cpu_ns, bytes_per_event, dropped, raised)) = summary(costs) {
                report.lines.push(Line::Whole {
                    contestant: contestant.to_owned(),
                    cpu_ns,
                    by_otf2: reference.and_then(|(cpu, ..)| cpu_ns.by(cpu)),
                    bytes_per_event,
                    otf2_bytes_by_these: reference.map(|(_, bytes, ..)| bytes / bytes_per_event),
                    dropped,
                    raised,
                });
            }
        }
        for (recording, failure) in Recording::ALL.iter().zip(failures) {
            if let Some(reason) = failure {
                report.not_measured(recording.name(), &reason);
            }
        }
    }
    eprintln!();
}

fn singles(arguments: &Arguments, entries: &mut [Entry], report: &mut Report) {
    let ns_per_tick = ns_per_tick();
    let total = Duration::from_secs(arguments.long);
    let mut ticks: Vec<[Histogram; 2]> = entries.iter().map(|_| Default::default()).collect();
    let mut spent = Duration::ZERO;
    let mut seed = 0;
    let mut failures = Report::default();
    while spent < total {
        eprint!(
            "\rsingle events, {} of {} s each",
            spent.as_secs(),
            total.as_secs()
        );
        let slice = SLICE.min(total - spent);
        for (entry, ticks) in entries.iter_mut().zip(&mut ticks) {
            if let Ok(measured) = &mut entry.measured {
                let outcome = measured.single(slice, seed, ticks);
                retire(entry, outcome, &mut failures);
            }
        }
        spent += slice;
        seed += 1;
    }
    eprintln!();
    report.section(format!(
        "Single events between two clock reads, which move in steps of {:.1} ns; nothing is subtracted, the \
         empty timing is the program alone",
        clock_step() as f64 * ns_per_tick
    ));
    for (entry, histograms) in entries.iter().zip(&ticks) {
        for (event, histogram) in ["enter or leave", "three elements"].iter().zip(histograms) {
            if histogram.count() == 0 {
                continue;
            }
            let ns = |ticks: u64| ticks as f64 * ns_per_tick;
            report.lines.push(Line::Single {
                contestant: entry.name.to_owned(),
                event: (*event).to_owned(),
                p50_ns: ns(histogram.quantile(0.5)),
                p99_ns: ns(histogram.quantile(0.99)),
                p999_ns: ns(histogram.quantile(0.999)),
                max_ns: ns(histogram.max()),
                count: histogram.count(),
            });
        }
    }
    report.lines.append(&mut failures.lines);
}

/// Returns the least distance of two clock reads that differ, ticks: some processors count in
/// larger steps.
fn clock_step() -> u64 {
    let differences = (0..10_000).map(|_| {
        let first = tsc();
        tsc().wrapping_sub(first)
    });
    differences.filter(|ticks| *ticks > 0).min().unwrap_or(1)
}

/// Length of a tick, from 100 ms of both clocks.
fn ns_per_tick() -> f64 {
    let (start, tick) = (Instant::now(), tsc());
    std::thread::sleep(Duration::from_millis(100));
    start.elapsed().as_nanos() as f64 / tsc().wrapping_sub(tick) as f64
}
