//! Completes recordings after the program that made them has ended: adds the contents of live files, resolves function
//! names, and reports the result to the user.

use annals_format::names;
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::ops::ControlFlow::{Break, Continue};
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use annals_analysis::{CostSums, EventCost};
use annals_format::{
    CompressionLevel, Definition, Definitions, Ended, Property, Recording, StringId, amend,
};
use annals_merger::{
    InputRecording, OutputError, OutputKind, Replace, Symbols, WholeFile, find, recover,
};
use annals_recorder::Recorder;
use rayon::ThreadPoolBuilder;

use crate::launch::{self, Exit, HeldSignals};
use crate::process_end::ProcessEnd;
use crate::table::safe_lines;
use crate::time;
use crate::watch::Processes;

/// Returns a property of a recording's process.
fn property<'a>(definitions: &'a Definitions, key: &str) -> Option<&'a str> {
    let mut properties = definitions.properties.iter();
    let property = properties.find(|property| definitions.string(property.key) == key)?;
    Some(definitions.string(property.value))
}

/// A recording, as far as others must know it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Known {
    /// Its file.
    pub path: PathBuf,
    /// Its live file, if it has one.
    pub live_path: Option<PathBuf>,
    /// The run it belongs to.
    pub run: String,
    /// When it was started, nanoseconds since the Unix epoch.
    pub start_unix_ns: i64,
    /// Its recorder has not said yet what process it is of: it can be of no run but this.
    pub is_begun_just_now: bool,
}

/// Returns the recordings in a directory; an empty list if there is no such directory.
///
/// # Errors
/// If it cannot be read.
pub fn known(directory: &Path) -> anyhow::Result<Vec<Known>> {
    let (inputs, _) = open_all(directory, None)?;
    let inputs = inputs.into_iter().map(|input| {
        let definitions = &input.recording.definitions;
        let process = definitions.processes.values().next();
        let changed = fs::metadata(&input.path).and_then(|file| file.modified());
        let age = changed.ok().and_then(|changed| changed.elapsed().ok());
        Known {
            is_begun_just_now: process.is_none() && age.is_none_or(|age| age < JUST_NOW),
            path: input.path,
            live_path: input.live_path,
            run: process.map_or_else(String::new, |p| definitions.string(p.run).to_owned()),
            start_unix_ns: process.map_or(i64::MAX, |process| process.start_unix_ns),
        }
    });
    Ok(inputs.collect())
}

/// How long a recorder may take from its file's first bytes to the definition of its process.
const JUST_NOW: Duration = Duration::from_secs(60);

/// A file that cannot be read, and why.
pub type Unreadable = (PathBuf, String);

/// Returns the recordings of a directory that were written to since `since`; and the files of such a name that cannot
/// be read.
fn open_all(
    directory: &Path,
    since: Option<SystemTime>,
) -> anyhow::Result<(Vec<InputRecording>, Vec<Unreadable>)> {
    let is_empty = fs::read_dir(directory).map_or(true, |mut files| files.next().is_none());
    if is_empty {
        return Ok((Vec::new(), Vec::new()));
    }
    let found = match find(&[directory.to_owned()], None) {
        Ok(found) => found,
        Err(annals_merger::MergeError::NoRecordings { .. }) => return Ok((Vec::new(), Vec::new())),
        Err(error) => return Err(error.into()),
    };
    let is_new = |path: &PathBuf| {
        let changed = fs::metadata(path).and_then(|file| file.modified());
        since.is_none_or(|since| changed.is_ok_and(|changed| changed >= since))
    };
    let rejected = found.rejected.into_iter();
    let rejected = rejected.map(|input| (input.path, input.why));
    let mut unreadable: Vec<Unreadable> = rejected.filter(|(path, _)| is_new(path)).collect();
    let mut opened = Vec::new();
    for path in found.recordings.into_iter().filter(is_new) {
        match InputRecording::open(&path) {
            Ok(input) => opened.push(input),
            Err(error) => unreadable.push((path, error.without_path())),
        }
    }
    Ok((opened, unreadable))
}

/// The state of one process's recording.
#[derive(Clone, PartialEq, Debug)]
pub struct Gathered {
    /// Its file.
    pub path: PathBuf,
    /// The process, and its rank when it has one.
    pub pid: u32,
    /// Its rank.
    pub rank: Option<u32>,
    /// The rank that has started it, if it is none itself.
    pub started_by_rank: Option<u32>,
    /// How it ended.
    pub ended: Ended,
    /// The end as the process and the system noted it, unless the process finished normally.
    pub process_end: ProcessEnd,
    /// Events that can be read.
    pub events: u64,
    /// Events that were dropped, by cause.
    pub dropped: BTreeMap<&'static str, u64>,
    /// Bytes of the recording, and of its live file.
    pub bytes: u64,
    /// Whether there was a live file: a kill would have cost nothing.
    pub is_kill_safe: bool,
    /// Functions that were called, and those of them that have no name.
    pub functions: (usize, usize),
    /// Steps that failed.
    pub problems: Vec<String>,
    /// What its events cost.
    pub costs: CostSums,
    /// Number of its children that nothing records.
    pub unrecorded_children: u64,
    /// Whether forked children are recorded.
    pub follows_forks: bool,
    /// Why it is not compressed, if it should be: it has everything all the same.
    pub not_compressed: Option<String>,
}

impl Gathered {
    /// Returns whether everything was done for it.
    pub fn is_complete(&self) -> bool {
        self.what_failed().next().is_none()
    }

    /// Returns what failed, the compression included.
    pub fn what_failed(&self) -> impl Iterator<Item = &String> {
        self.problems.iter().chain(&self.not_compressed)
    }

    /// Returns how it ended, for people.
    pub fn how_ended(&self) -> String {
        let ended = self.ended.name();
        let cause = self.process_end.cause();
        let cause = cause.map_or_else(String::new, |cause| format!("{cause}, "));
        let Some(end) = &self.process_end.system else {
            return format!("{cause}{ended}");
        };
        match self.ended {
            Ended::Killed if end.starts_with("exit ") => format!("{cause}not finished, {end}"),
            Ended::Killed => format!("{cause}{ended} by {end}"),
            _ => format!("{cause}{ended}, then {end}"),
        }
    }
}

/// How processes ended.
#[derive(Debug)]
pub struct Ends {
    /// The process that was started.
    pub child: (u32, Exit),
    /// The processes that it has started.
    pub others: Processes,
}

/// What recordings are completed with.
#[derive(Debug)]
pub struct Completion<'a> {
    /// Names of functions.
    pub symbols: &'a Symbols,
    /// How processes ended.
    pub ends: &'a Ends,
    /// What an event costs here. `None` means that it is not known.
    pub cost: Option<EventCost>,
    /// Whether chunks that were stored as rows are compressed.
    pub compresses: bool,
    /// Threads that compress; 0: one for each processor.
    pub threads: usize,
    /// Whether nothing is said of what takes long.
    pub is_quiet: bool,
}

/// Bytes of a recording whose compression takes so long that users should know what is waited for.
const LONG_BYTES: u64 = 256 << 20;

/// Makes everything whole that programs started with this token have recorded into a directory. `note` gets the definitions of
/// each recording. Returns also the files that cannot be read, of any program.
///
/// # Errors
/// If the directory cannot be read.
pub fn gather(
    directory: &Path,
    token: &str,
    since: SystemTime,
    with: &Completion<'_>,
    note: &mut dyn FnMut(&Definitions),
) -> anyhow::Result<(Vec<Gathered>, Vec<Unreadable>)> {
    let (inputs, mut unreadable) = open_all(directory, Some(since))?;
    let (inputs, without_process): (Vec<_>, Vec<_>) = inputs
        .into_iter()
        .partition(|input| input.check_has_process().is_ok());
    unreadable.extend(without_process.into_iter().filter_map(|input| {
        let error = input.check_has_process().err()?;
        Some((input.path, error.without_path()))
    }));
    let own = inputs.into_iter().filter(|input| {
        property(&input.recording.definitions, names::property::RECORDED_BY) == Some(token)
    });
    let gathered = own.map(|input| {
        let mut gathered = gather_one(input, with, note);
        if with.compresses && gathered.ended != Ended::Running {
            if gathered.bytes >= LONG_BYTES && !with.is_quiet {
                let (path, bytes) = (gathered.path.display(), time::bytes(gathered.bytes));
                tell(&format!("trace-cli: compressing {path}, {bytes}\n"));
            }
            compress(&mut gathered, with.threads);
        }
        gathered
    });
    Ok((gathered.collect(), unreadable))
}

fn gather_one(
    mut input: InputRecording,
    with: &Completion<'_>,
    note: &mut dyn FnMut(&Definitions),
) -> Gathered {
    let mut problems = Vec::new();
    if input.recording.ended != Ended::Running
        && let Some(live) = input.live_path.clone()
    {
        match recover(&input, None) {
            Ok(_) => input.live_path = None,
            // The disk is full, perhaps: what there is must at least not go with a memory file system.
            Err(error) => {
                let error = anyhow::Error::from(error);
                problems.push(format!("{} stays apart: {error:#}", live.display()));
                match bring_home(&live, &input.path) {
                    Ok(path) => input.live_path = Some(path),
                    Err(error) => {
                        problems.push(format!("{} stays where it is: {error}", live.display()));
                    }
                }
            }
        }
    }
    let definitions = &input.recording.definitions;
    let process = definitions.processes.keys().next();
    let missing = process.and_then(|id| input.missing_live_file(definitions, *id));
    problems.extend(
        missing.map(|file| {
            format!("its live file {file} was not found, and what was in it is unknown")
        }),
    );
    let mut records = with.symbols.resolve(&input.recording.definitions);
    let definitions = Arc::make_mut(&mut input.recording.definitions);
    records
        .iter()
        .cloned()
        .for_each(|record| definitions.add(record));
    let noted = ProcessEnd::from_properties(|key| property(&input.recording.definitions, key));
    let process_end = ProcessEnd {
        system: system_end(&input, with.ends, noted.is_noted()),
        ..noted
    };
    let cost = with.cost.map(|cost| cost.property());
    let properties = [
        (names::property::PROCESS_END, &process_end.system),
        (names::property::RECORDING_COST, &cost),
    ];
    for (key, value) in properties {
        let definitions = Arc::make_mut(&mut input.recording.definitions);
        let added = value
            .iter()
            .flat_map(|value| property_records(definitions, key, value));
        let added: Vec<Definition> = added.collect();
        let noted = added.iter().cloned();
        noted.for_each(|record| definitions.add(record));
        records.extend(added);
    }
    records.extend(noticed_end(&input, with.ends));
    if !records.is_empty() && input.recording.ended != Ended::Running {
        let mut bytes = Vec::new();
        records.iter().for_each(|record| record.encode(&mut bytes));
        if let Err(error) = write_records(&input.path, &bytes) {
            let path = input.path.display();
            problems.push(format!(
                "{path}: cannot write what was determined about it: {error:#}"
            ));
        }
    }
    let length = |path: &PathBuf| fs::metadata(path).map_or(0, |file| file.len());
    let recording = &input.recording;
    let definitions = &recording.definitions;
    note(definitions);
    let named = definitions.functions.keys();
    let unnamed = named.filter(|region| !definitions.symbols.contains_key(region));
    Gathered {
        pid: definitions.processes.values().next().map_or(0, |p| p.pid),
        rank: definitions.ranks.values().next().map(|rank| rank.rank),
        started_by_rank: definitions.helpers().into_values().next(),
        ended: recording.ended,
        process_end,
        events: rows(recording).fold(0, |sum, row| sum.saturating_add(row.present())),
        dropped: dropped(recording),
        is_kill_safe: property(definitions, names::property::LIVE_FILE)
            .is_none_or(|file| !file.is_empty()),
        bytes: length(&input.path) + input.live_path.as_ref().map_or(0, length),
        functions: (definitions.functions.len(), unnamed.count()),
        costs: CostSums::of(
            definitions,
            recording.streams.values().map(|stream| &stream.totals),
        ),
        unrecorded_children: definitions.unrecorded_children(),
        follows_forks: definitions.follows_forks(),
        problems,
        not_compressed: None,
        path: input.path,
    }
}

/// Compresses a whole recording, where it was stored as rows. It stays as it is if a signal asks this process to end.
fn compress(gathered: &mut Gathered, threads: usize) {
    let signals = HeldSignals::hold();
    let stop = |_| match signals.has_end() {
        true => Break(()),
        false => Continue(()),
    };
    // Threads of a pool that is there already would not hold the signals.
    let pool = ThreadPoolBuilder::new().num_threads(threads).build();
    let outcome = InputRecording::open(&gathered.path).and_then(|input| {
        let work = || annals_merger::compress(&input, CompressionLevel::default(), stop);
        match &pool {
            Ok(pool) => pool.install(work),
            Err(_) => work(),
        }
    });
    match outcome {
        Ok(Some(compressed)) => {
            let saved = compressed.from_bytes.saturating_sub(compressed.to_bytes);
            gathered.bytes = gathered.bytes.saturating_sub(saved);
        }
        Ok(None) => {}
        Err(error) => gathered.not_compressed = Some(error.without_path()),
    }
}

/// Returns what the system reported of a process that did not merely finish, or that noted something itself
/// (`is_noted`).
fn system_end(input: &InputRecording, ends: &Ends, is_noted: bool) -> Option<String> {
    let pid = pid_here(input)?;
    let status = match ends.child {
        (child, exit) if child == pid => exit.status,
        _ => ends.others.end_of(input.path.file_name()?, pid)?,
    };
    let is_unfinished = matches!(input.recording.ended, Ended::Killed | Ended::Truncated);
    (is_noted || is_unfinished || status.signal().is_some()).then(|| launch::end_name(status))
}

/// Returns the number of a recording's process. `None` if it was of another host, which has processes of that number, too.
fn pid_here(input: &InputRecording) -> Option<u32> {
    let process = input.recording.definitions.processes.values().next()?;
    (process.boot_id == Recorder::boot_id()).then_some(process.pid)
}

/// Returns when a process ended that did not finish its recording, if this program waited for it. A recorder that had shown no sign of
/// life for longer than it may was stopped with its process, or another program has taken its place (`exec`): then the end is between.
fn noticed_end(input: &InputRecording, ends: &Ends) -> Option<Definition> {
    let recording = &input.recording;
    let last_ns = recording.last_reference_ns?;
    if recording.ended != Ended::Killed || recording.end_error_ns == 0 {
        return None;
    }
    let pid = pid_here(input)?;
    let end_ns = match ends.child {
        (child, exit) if child == pid => exit.at_ns,
        _ => ends.others.ended_ns(input.path.file_name()?, pid)?,
    };
    let (process, of) = recording.definitions.processes.iter().next()?;
    let silent_ns = u64::try_from(end_ns.checked_sub(last_ns)?).ok()?;
    let (end_ns, end_error_ns) =
        match silent_ns <= 2 * annals_format::live::layout::LONGEST_HEARTBEAT_NS {
            true => (end_ns, 0),
            false => (last_ns, silent_ns),
        };
    Some(Definition::ProcessEnd(annals_format::ProcessEnd {
        process: *process,
        ended: recording.ended,
        start_ns: of.start_reference_ns,
        end_ns,
        end_error_ns,
    }))
}

/// Returns a property of a recording's process, and the strings that it needs.
fn property_records(definitions: &Definitions, key: &str, value: &str) -> Vec<Definition> {
    let Some(process) = definitions.processes.keys().next() else {
        return Vec::new();
    };
    let last = definitions.strings.keys().next_back();
    let next = last.map_or(0, |id| id.get().saturating_add(1));
    let (of_key, of_value) = (StringId::new(next), StringId::new(next.saturating_add(1)));
    vec![
        Definition::String(of_key, key.to_owned()),
        Definition::String(of_value, value.to_owned()),
        Definition::Property(Property {
            process: *process,
            key: of_key,
            value: of_value,
        }),
    ]
}

fn rows(recording: &Recording) -> impl Iterator<Item = &annals_format::TypeTotals> {
    let streams = recording.streams.values();
    streams.flat_map(|stream| &stream.totals.rows)
}

fn dropped(recording: &Recording) -> BTreeMap<&'static str, u64> {
    let mut dropped = BTreeMap::new();
    for row in rows(recording) {
        for (cause, count) in row.dropped.iter() {
            if count != 0 {
                let sum: &mut u64 = dropped.entry(cause.name()).or_default();
                *sum = sum.saturating_add(count);
            }
        }
    }
    dropped
}

/// Moves a live file into the directory of its recording, where readers search first: a memory file system is wiped
/// when a batch job ends.
fn bring_home(live: &Path, recording: &Path) -> anyhow::Result<PathBuf> {
    let mut home = recording.as_os_str().to_owned();
    home.push("-live");
    let home = PathBuf::from(home);
    if fs::canonicalize(live)? == fs::canonicalize(&home).unwrap_or_default() {
        return Ok(home);
    }
    let mut to = WholeFile::create_private(&home, Replace::Only(OutputKind::LIVE_FILE))?;
    let mut from = File::open(live)?;
    let copied = io::copy(&mut from, &mut to);
    copied.map_err(|error| OutputError::not_written(&home, error))?;
    // The contents of the files that are removed below are on the disk by then.
    to.finish()?;
    fs::remove_file(live)?;
    Ok(home)
}

fn write_records(path: &Path, records: &[u8]) -> anyhow::Result<()> {
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    let amendment = amend(&file, records, CompressionLevel::default())?;
    if let Err(error) = file.write_all_at(&amendment.bytes, amendment.offset) {
        // A part of it would be damage.
        let _ = file.set_len(amendment.offset);
        return Err(error.into());
    }
    Ok(())
}

/// Writes to standard error. Errors, such as a closed stream, are ignored.
pub fn tell(text: &str) {
    let _ = io::stderr().write_all(safe_lines(text).as_bytes());
}
