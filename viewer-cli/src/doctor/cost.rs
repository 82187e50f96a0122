//! What recording costs on this machine, by kind of program.

use std::hint::black_box;
use std::ops::ControlFlow::Continue;
use std::path::Path;

use annals_analysis::EventCost;
use annals_format::CompressionLevel;
use annals_merger::InputRecording;
use annals_recorder::{
    Compression, EventType, EventTypeSpec, Metric, Options, Overflow, Recorder, RegionId,
};
use serde_json::json;

use super::Check;
use super::directory::{Probe, nearest_existing};
use super::hooks::{self, used_ns};

/// Number of rounds, of which the median counts.
const ROUNDS: usize = 7;
/// Number of calls of a round.
const CALLS: u64 = 500_000;
/// Number of calls of a round, and of rounds, of [`quick`].
const QUICK: (u64, usize) = (40_000, 3);
const REGIONS: u64 = 64;

/// What the program does between two calls.
#[derive(Clone, Copy)]
enum Program {
    /// Enters functions and leaves them.
    Functions,
    /// Sends a message in each function.
    Messages,
    /// Records a number in each function.
    Metrics,
}

impl Program {
    const ALL: [Self; 3] = [Self::Functions, Self::Messages, Self::Metrics];

    const fn name(self) -> &'static str {
        match self {
            Self::Functions => "functions",
            Self::Messages => "messages",
            Self::Metrics => "metrics",
        }
    }

    const fn says(self) -> &'static str {
        match self {
            Self::Functions => "functions: begin and end of each call",
            Self::Messages => "messages: an event with six elements in each call",
            Self::Metrics => "metrics: a number in each call",
        }
    }

    const fn events_of_call(self) -> u64 {
        match self {
            Self::Functions => 2,
            Self::Messages | Self::Metrics => 3,
        }
    }
}

/// The recorder of the measured program, and its definitions.
struct Recording {
    recorder: Recorder,
    regions: Vec<RegionId>,
    sent: EventType<(u32, u32, u32, u64, u64, u32)>,
    load: Metric<f64>,
}

impl Recording {
    fn start(directory: &Path) -> annals_recorder::Result<Self> {
        let mut options = Options::new(directory);
        options.overflow = Overflow::Block;
        options.compression = Compression::Later;
        let recorder = Recorder::start(&options)?;
        let names = [
            "receiver",
            "communicator",
            "tag",
            "length",
            "request",
            "datatype",
        ];
        let sent = names
            .into_iter()
            .fold(EventTypeSpec::new("sent"), EventTypeSpec::element);
        let regions = (0..REGIONS).map(|number| recorder.add_region(&format!("region {number}")));
        Ok(Self {
            regions: regions.collect::<annals_recorder::Result<_>>()?,
            sent: recorder.add_event_type(&sent)?,
            load: recorder.add_metric("load", "")?,
            recorder,
        })
    }
}

/// Calls functions that work for some 100 ns each, and records what the program does.
#[inline(never)]
fn run(program: Program, calls: u64, recording: Option<&Recording>) {
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    for number in 0..calls {
        // xorshift64 (Marsaglia, "Xorshift RNGs", 2003).
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let region = recording.map(|r| r.regions[(random % REGIONS) as usize]);
        if let (Some(recording), Some(region)) = (recording, region) {
            recording.recorder.enter(region);
        }
        let mut value = random;
        for _ in 0..32 + random % 64 {
            value = black_box(value.rotate_left(5) ^ number);
        }
        if let (Some(recording), Some(region)) = (recording, region) {
            let recorder = &recording.recorder;
            match program {
                Program::Functions => {}
                Program::Messages => {
                    let (peer, tag) = ((random >> 8 & 7) as u32, (random >> 16 & 3) as u32);
                    recorder.raise(&recording.sent, (peer, 0, tag, 4096, number, 1));
                }
                Program::Metrics => recorder.metric(&recording.load, value as f64),
            }
            recorder.leave(region);
        }
    }
}

/// What a recorded program cost for each event.
#[derive(Clone, Copy)]
struct Cost {
    /// More processor time of its thread, nanoseconds.
    thread_ns: f64,
    /// More processor time of all threads, nanoseconds.
    all_ns: f64,
    /// Processor time of the compression afterwards, nanoseconds.
    compression_ns: f64,
    bytes: f64,
    lost: u64,
}

fn round(program: Program, calls: u64, directory: &Path) -> anyhow::Result<Cost> {
    let since = |before: (i64, i64)| {
        let now = used_ns();
        ((now.0 - before.0) as f64, (now.1 - before.1) as f64)
    };
    let before = used_ns();
    run(program, calls, None);
    let alone = since(before);
    let recording = Recording::start(directory)?;
    let before = used_ns();
    run(program, calls, Some(&recording));
    let thread_ns = since(before).0;
    let status = recording.recorder.finish();
    let all_ns = since(before).1;
    let events = (program.events_of_call() * calls) as f64;
    let before = used_ns();
    let input = InputRecording::open(&status.path)?;
    let level = CompressionLevel::default();
    let compressed = annals_merger::compress(&input, level, |_| Continue(()))?;
    let compression_ns = since(before).1;
    let bytes = compressed.map_or(status.written_bytes, |compressed| compressed.to_bytes);
    let _ = std::fs::remove_file(&status.path);
    Ok(Cost {
        thread_ns: (thread_ns - alone.0) / events,
        all_ns: (all_ns - alone.1) / events,
        compression_ns: compression_ns / events,
        bytes: bytes as f64 / events,
        lost: status.dropped,
    })
}

/// Returns the median of a figure.
fn median(rounds: &[Cost], figure: impl Fn(&Cost) -> f64) -> f64 {
    let mut figures: Vec<f64> = rounds.iter().map(figure).collect();
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

/// Measures what recording into a directory costs: a check for each kind of program.
pub(super) fn costs(directory: &Path) -> Vec<Check> {
    let failed = |error: String| {
        let found = json!({ "program": null });
        vec![Check::problem(
            "cost",
            found,
            format!("cannot be measured: {error}"),
        )]
    };
    let probe = nearest_existing(directory)
        .and_then(|existing| Probe::create(&existing).map_err(|error| error.to_string()));
    let probe = match probe {
        Ok(probe) => probe,
        Err(error) => return failed(error),
    };
    let mut checks = Vec::new();
    for program in Program::ALL {
        let rounds = (0..ROUNDS).map(|_| round(program, CALLS, &probe.0));
        let rounds: Vec<Cost> = match rounds.collect::<anyhow::Result<_>>() {
            Ok(rounds) => rounds,
            Err(error) => return failed(format!("{error:#}")),
        };
        checks.push(check(program, &rounds));
    }
    checks
}

/// Measures what an event costs, with recordings in the directory for temporary files: a kill leaves nothing among those of a run.
///
/// # Errors
/// If the library of the hooks is not there, or that directory takes no file.
pub(crate) fn quick() -> anyhow::Result<EventCost> {
    let (calls, rounds) = QUICK;
    let library = hooks::library()?;
    let probe = Probe::create(&std::env::temp_dir())?;
    // Compiled functions raise theirs through hooks, which find the region first.
    let hooks = hooks::costs(&library, &probe.0)?;
    let measure = |program: Program| -> anyhow::Result<[[f64; 3]; 2]> {
        let found = (0..rounds).map(|_| round(program, calls, &probe.0));
        let found: Vec<Cost> = found.collect::<anyhow::Result<_>>()?;
        // The least, the median and the most.
        let spread = |of: fn(&Cost) -> f64| {
            let mut all: Vec<f64> = found.iter().map(of).collect();
            all.sort_by(f64::total_cmp);
            [all[0], all[all.len() / 2], all[all.len() - 1]]
        };
        Ok([spread(|cost| cost.thread_ns), spread(|cost| cost.all_ns)])
    };
    let (functions, messages) = (measure(Program::Functions)?, measure(Program::Messages)?);
    let median = |of: [[f64; 3]; 2]| of.map(|spread| spread[1].max(0.1));
    let (each, all_three) = (median(functions), median(messages));
    // Of the three events of a call, two are an enter and a leave.
    let other_ns = [0, 1].map(|of| (3.0 * all_three[of] - 2.0 * each[of]).max(each[of]));
    let written_ns = (each[1] - each[0]).max(0.0);
    let errors = functions.into_iter().chain(messages).chain([hooks]);
    let error = errors.map(|[least, median, most]| (most - least) / 2.0 / median.max(0.1));
    Ok(EventCost {
        call_ns: [hooks[1].max(0.1), hooks[1].max(0.1) + written_ns],
        other_ns,
        error: error.fold(0.0, f64::max).clamp(0.05, 1.0),
        has_rules: false,
    })
}

fn check(program: Program, rounds: &[Cost]) -> Check {
    let thread_ns = median(rounds, |cost| cost.thread_ns);
    let all_ns = median(rounds, |cost| cost.all_ns);
    let compression_ns = median(rounds, |cost| cost.compression_ns);
    let bytes = median(rounds, |cost| cost.bytes);
    let lost: u64 = rounds.iter().map(|cost| cost.lost).sum();
    let found = json!({
        "program": program.name(),
        "events": program.events_of_call() * CALLS,
        "thread_ns_per_event": thread_ns,
        "all_threads_ns_per_event": all_ns,
        "compression_ns_per_event": compression_ns,
        "bytes_per_event": bytes,
        "dropped": lost,
    });
    let says = format!(
        "{}: an event costs {thread_ns:.1} ns where a processor is free for the writer, {all_ns:.1} ns where none is, \
         {compression_ns:.1} ns after the program's end, and {bytes:.2} bytes",
        program.says()
    );
    match lost {
        0 => Check::ok("cost", found, says),
        _ => Check::note("cost", found, format!("{says}; {lost} events were dropped"))
            .advice("the disk was too slow for a program that does little but record: choose another directory"),
    }
}
