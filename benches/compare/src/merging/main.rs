//! How fast a run of many processes is merged, compared with OTF2's global reader and babeltrace2 on the same events,
//! interleaved. Annals decodes, orders, encodes and writes a compressed trace with its proof; the rivals only read,
//! order, and call back (OTF2) or count (babeltrace2).
//!
//! `bash benches/compare/run.sh --merging` installs what the rivals need and runs it. Every measurement runs in a
//! separate process, so that its peak memory is separate, too.

mod ctf;
#[cfg(otf2)]
mod otf2;

use annals_test_support::synthetic::{self, Mix};

use std::ops::ControlFlow;
use std::io::Read as _;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use annals_merger::{
    Analysis, Event, MergeOptions, Pass, Query, Reader, SliceLength, Value, keep_freed_memory, no_progress,
};
use clap::{Parser, Subcommand};

/// How fast a run of many processes is merged, compared with OTF2's global reader and babeltrace2.
#[derive(Clone, Debug, Parser)]
struct Arguments {
    /// Events in all; several: one after the other
    #[arg(long, default_value = "40000000", value_delimiter = ',')]
    events: Vec<u64>,
    /// Numbers of locations, one process each
    #[arg(long, default_value = "64,1024", value_delimiter = ',')]
    locations: Vec<u32>,
    /// What the events are: at random, or of a program that exchanges halos and reduces (babeltrace2 is left out)
    #[arg(long, default_value = "random", value_delimiter = ',')]
    mix: Vec<Mix>,
    /// Rounds; each measures every contestant once
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Leave babeltrace2 out
    #[arg(long)]
    no_babeltrace: bool,
    /// Annals alone: how cost grows with events and locations
    #[arg(long)]
    alone: bool,
    #[command(subcommand)]
    part: Option<Part>,
}

/// What a process of a measurement does.
#[derive(Clone, Debug, Subcommand)]
enum Part {
    #[command(hide = true)]
    Merge {
        inputs: PathBuf,
        output: PathBuf,
        jobs: usize,
    },
    /// Reads every event of a trace, and adds up all its fields: event by event, or by slices of chunks
    #[command(hide = true)]
    Read {
        trace: PathBuf,
        #[arg(long)]
        slices: bool,
        jobs: usize,
    },
    /// Writes the recordings of a run, to look into a merge of them by other means
    Write {
        directory: PathBuf,
        locations: u32,
        events: u64,
        #[arg(long, default_value = "random")]
        mix: Mix,
    },
    #[command(hide = true)]
    Otf2 { directory: PathBuf, locations: u32 },
}

/// One measurement.
#[derive(Clone, Debug)]
struct Measured {
    seconds: f64,
    peak_mib: f64,
    /// The sums of a reader.
    said: String,
}

#[derive(Debug)]
struct Contestant {
    name: &'static str,
    command: Vec<std::ffi::OsString>,
    measured: Vec<Measured>,
    failed: Option<String>,
}

impl Contestant {
    fn new(name: &'static str, command: impl IntoIterator<Item = std::ffi::OsString>) -> Self {
        Self {
            name,
            command: command.into_iter().collect(),
            measured: Vec::new(),
            failed: None,
        }
    }

    fn measure(&mut self) {
        if self.failed.is_none() {
            match measure(&self.command) {
                Ok(measured) => self.measured.push(measured),
                Err(why) => self.failed = Some(why),
            }
        }
    }
}

#[expect(unsafe_code, reason = "wait4 returns the peak memory of a child")]
fn wait(pid: u32) -> Result<(std::process::ExitStatus, f64), String> {
    // SAFETY: a rusage of zeros is a valid one.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    let mut status = 0;
    // SAFETY: both pointers are valid to write to, and the child is ours.
    let waited = unsafe { libc::wait4(pid as i32, &raw mut status, 0, &raw mut usage) };
    if waited != pid as i32 {
        return Err(std::io::Error::last_os_error().to_string());
    }
    let status = std::process::ExitStatus::from_raw(status);
    Ok((status, usage.ru_maxrss as f64 / 1024.0))
}

fn measure(command: &[std::ffi::OsString]) -> Result<Measured, String> {
    let (program, arguments) = command.split_first().ok_or("no command")?;
    let start = Instant::now();
    let mut child = Command::new(program)
        .args(arguments)
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| format!("{}: {error}", program.display()))?;
    // They say a line, or nothing that matters.
    let mut said = String::new();
    let mut output = child.stdout.take().ok_or("no output")?;
    let heard = output.read_to_string(&mut said);
    heard.map_err(|error| error.to_string())?;
    let (status, peak_mib) = wait(child.id())?;
    let seconds = start.elapsed().as_secs_f64();
    if status.success() {
        Ok(Measured {
            seconds,
            peak_mib,
            said: said.trim().to_owned(),
        })
    } else {
        Err(format!("{} ended with {status}", program.display()))
    }
}

fn merge(inputs: &Path, output: &Path, jobs: usize) -> Result<(), String> {
    keep_freed_memory();
    let inputs = [inputs.to_owned()];
    let mut options = MergeOptions::new();
    options.output = Some(output.to_owned());
    options.jobs = jobs;
    let plan = options.plan(&inputs).map_err(|error| error.to_string())?;
    let written = plan.write_trace(output, no_progress);
    written.map(drop).map_err(|error| error.to_string())
}

/// What is added up of every event.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Sums {
    events: u64,
    /// Locations, regions, all other elements, and which of the points it is: as OTF2's callbacks have them.
    fields: u64,
    times: u64,
}

impl Analysis for Sums {
    const PASS: Pass = Pass::Events;
    const SLICES: SliceLength = SliceLength::Long;

    fn event(&mut self, event: &Event<'_>) {
        let point = event.event_type().get().checked_sub(synthetic::POINTS);
        let point = point.filter(|point| *point < 4).unwrap_or(0);
        let elements = event.elements().filter_map(Value::as_integer);
        let elements: i128 = elements.sum();
        let fields = u64::from(event.rank()) + u64::from(point) + elements as u64;
        self.events += 1;
        self.fields = self.fields.wrapping_add(fields);
        self.times = self.times.wrapping_add(event.time() as u64);
    }

    fn merge(&mut self, other: Self) {
        self.events += other.events;
        self.fields = self.fields.wrapping_add(other.fields);
        self.times = self.times.wrapping_add(other.times);
    }
}

fn read(trace: &Path, slices: bool, jobs: usize) -> Result<Sums, String> {
    keep_freed_memory();
    let mut reader = Reader::open(trace).map_err(|error| error.to_string())?;
    reader.set_jobs(jobs);
    let query = Query::new();
    let mut sums = Sums::default();
    let read = if slices {
        let read = reader.run(&query, |_| Sums::default());
        read.map(|(found, _)| sums = found)
    } else {
        let read = reader.for_each_event(&query, |event| {
            sums.event(event);
            ControlFlow::Continue(())
        });
        read.map(drop)
    };
    read.map_err(|error| error.to_string())?;
    std::hint::black_box(sums.times);
    Ok(sums)
}

fn bytes_of(directory: &Path) -> u64 {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let each = entries.map(|entry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => bytes_of(&entry.path()),
        Ok(metadata) => metadata.len(),
        Err(_) => 0,
    });
    each.sum()
}

fn compare(arguments: &Arguments, mix: Mix, locations: u32, events: u64) -> Result<bool, String> {
    let io = |error: std::io::Error| error.to_string();
    let each = events / u64::from(locations);
    let events = each * u64::from(locations);
    let scratch = tempfile::tempdir().map_err(io)?;
    let place = |name: &str| -> Result<PathBuf, String> {
        let path = scratch.path().join(name);
        std::fs::create_dir(&path).map_err(io)?;
        Ok(path)
    };
    let recordings = place("recordings")?;
    for rank in 0..locations {
        synthetic::write_stretched(&recordings, rank, locations, each, 1, mix).map_err(io)?;
    }
    let this = std::env::current_exe().map_err(io)?;
    let own = |part: &[&str], paths: &[&Path], number: usize| {
        let mut command = vec![this.clone().into_os_string()];
        command.extend(part.iter().map(Into::into));
        command.extend(paths.iter().map(|path| path.as_os_str().to_owned()));
        command.push(number.to_string().into());
        command
    };
    let trace = scratch.path().join("run.annals");
    let mut contestants = vec![
        Contestant::new("annals, 1 job", own(&["merge"], &[&recordings, &trace], 1)),
        Contestant::new("annals, 2 jobs", own(&["merge"], &[&recordings, &trace], 2)),
    ];
    let mut bytes = vec![("recordings", bytes_of(&recordings))];
    #[cfg(otf2)]
    if !arguments.alone {
        let archive = scratch.path().join("otf2");
        otf2::write(&archive, locations, each, mix)?;
        bytes.push(("OTF2", bytes_of(&archive)));
        let read = |part: &[&str], jobs| own(part, &[&trace], jobs);
        contestants.push(Contestant::new("annals reads, 1 job", read(&["read"], 1)));
        let by_slices = read(&["read", "--slices"], 2);
        contestants.push(Contestant::new("annals reads, 2 jobs", by_slices));
        let command = own(&["otf2"], &[&archive], locations as usize);
        contestants.push(Contestant::new("OTF2 global reader", command));
    }
    if !arguments.no_babeltrace && !arguments.alone && mix == Mix::Random {
        let ctf = place("ctf")?;
        ctf::write_metadata(&ctf).map_err(io)?;
        for rank in 0..locations {
            ctf::write_stream(&ctf, rank, locations, each).map_err(io)?;
        }
        bytes.push(("CTF", bytes_of(&ctf)));
        let words = ["babeltrace2", "convert", "--output-format=dummy"];
        let command = words.iter().map(Into::into).chain([ctf.into_os_string()]);
        contestants.push(Contestant::new("babeltrace2", command));
    }
    for _ in 0..arguments.rounds {
        contestants.iter_mut().for_each(Contestant::measure);
    }
    if let Ok(metadata) = std::fs::metadata(&trace) {
        bytes.push(("trace", metadata.len()));
    }
    println!(
        "{locations} locations, {events} events {}; {} rounds, interleaved",
        match mix {
            Mix::Halo => "of a program that exchanges halos and reduces: 14 event types, regions to depth 8, 17 % of messages, \
                          requests and collective operations, all matched",
            _ => "at random: 8 event types, 64 regions, jittered times, 10 % messages with four elements, mostly unmatched",
        },
        arguments.rounds
    );
    for (name, bytes) in bytes {
        println!(
            "  {name}: {:.2} bytes an event",
            bytes as f64 / events as f64
        );
    }
    println!(
        "  {:<20}{:>14}{:>14}{:>10}",
        "", "M events/s", "median", "peak MiB"
    );
    let rate = |seconds: f64| events as f64 / seconds / 1e6;
    let mut best: Vec<(&str, f64)> = Vec::new();
    for contestant in &mut contestants {
        if let Some(why) = &contestant.failed {
            println!("  {:<20}not measured: {why}", contestant.name);
            continue;
        }
        let measured = &mut contestant.measured;
        measured.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
        let (first, middle) = (measured[0].seconds, measured[measured.len() / 2].seconds);
        let peak = measured.iter().map(|m| m.peak_mib).fold(0.0, f64::max);
        println!(
            "  {:<20}{:>14.2}{:>14.2}{peak:>10.0}",
            contestant.name,
            rate(first),
            rate(middle)
        );
        best.push((contestant.name, first));
    }
    let said = contestants.iter().filter_map(|contestant| {
        let said = &contestant.measured.first()?.said;
        (!said.is_empty() && contestant.name != "babeltrace2").then_some((contestant.name, said))
    });
    let said: Vec<(&str, &String)> = said.collect();
    for (name, said) in &said {
        println!("  {name}: events and sum of all their fields: {said}");
    }
    if said.iter().any(|(_, sums)| *sums != said[0].1) {
        return Err("the readers have found different sums".to_owned());
    }
    for (rival, of_rival) in best.iter().filter(|(name, _)| !name.starts_with("annals")) {
        for (own, of_own) in best.iter().filter(|(name, _)| name.starts_with("annals")) {
            println!("  {own}: {:.2} x {rival}", of_rival / of_own);
        }
    }
    Ok(contestants
        .iter()
        .all(|contestant| contestant.failed.is_none()))
}

fn run(arguments: &Arguments) -> Result<bool, String> {
    match &arguments.part {
        Some(Part::Merge {
            inputs,
            output,
            jobs,
        }) => merge(inputs, output, *jobs).map(|()| true),
        Some(Part::Read {
            trace,
            slices,
            jobs,
        }) => read(trace, *slices, *jobs).map(|sums| {
            println!("{} {}", sums.events, sums.fields);
            true
        }),
        Some(Part::Write {
            directory,
            locations,
            events,
            mix,
        }) => {
            for rank in 0..*locations {
                let each = events / u64::from(*locations);
                synthetic::write_stretched(directory, rank, *locations, each, 1, *mix)
                    .map_err(|error| error.to_string())?;
            }
            Ok(true)
        }
        #[cfg(otf2)]
        Some(Part::Otf2 {
            directory,
            locations,
        }) => otf2::read(directory, *locations).map(|(events, fields)| {
            println!("{events} {fields}");
            true
        }),
        #[cfg(not(otf2))]
        Some(Part::Otf2 { .. }) => Err(env!("OTF2_MISSING").to_owned()),
        None => {
            let mut is_whole = cfg!(otf2) || arguments.alone;
            for mix in &arguments.mix {
                for events in &arguments.events {
                    for locations in &arguments.locations {
                        is_whole &= compare(arguments, *mix, *locations, *events)?;
                    }
                }
            }
            Ok(is_whole)
        }
    }
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(3),
        Err(error) => {
            eprintln!("merging: {error}");
            ExitCode::FAILURE
        }
    }
}
