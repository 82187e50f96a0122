//! The conversion of a trace into recordings, line by line.
//!
//! Lines are in the order of their begins. What follows from the end of a state or of a message waits until the lines have
//! reached that time. The rows of a thread wait until there are enough of them for a chunk.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::paraver::{
    Communication, Events, Header, Labels, LineError, Record, RowNames, State, Thread, parse_record,
};
use annals_format::{
    BootId, ClockKind, ClockSpec, CompressionLevel, EventTypeId, LocationKind, Problem,
    ProcessSpec, RecordingBuilder, RecordingId, RegionId, SourceOrder, StreamId, Value,
};
use rustc_hash::FxHashMap;

use super::lines::{Line, Lines};
use super::names::{self, EventKind, Names};
use crate::conversion::{Converted, DIGEST_START, Options, digest};
use crate::error::{ForeignError, Result};

/// Number of rows of all threads that wait to be written.
const MOST_ROWS: usize = 1 << 20;
/// Number of rows of a chunk.
const CHUNK_ROWS: usize = 1 << 14;
/// Number of ends and receives that wait until their time has come.
const MOST_WAITING: usize = 1 << 20;
/// Number of threads of all tasks with records.
const MOST_THREADS: usize = 1 << 18;
/// Number of places with problems that are kept.
const MOST_PROBLEMS: usize = 1000;
/// Number of communicators and their members.
const MOST_MEMBERS: usize = 1 << 22;
/// Number of pairs of tasks and tags whose messages are numbered. Messages of others have no number.
const MOST_CHANNELS: usize = 1 << 20;
/// Number of calls of all threads that are open.
const MOST_OPEN: usize = 1 << 20;
/// Longest file of names, bytes.
const MOST_NAMES: u64 = 64 << 20;

type Parsed<T> = std::result::Result<T, LineError>;

/// What happens to a thread.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Deed {
    // At one time, in this order: what ends in a call, the call's end, the next call, what begins in it.
    Receive {
        peer: i64,
        tag: i64,
        bytes: i64,
        sequence: i64,
    },
    CollectiveEnd(Collective),
    Leave(RegionId),
    LeaveState(RegionId),
    Value(EventTypeId, i64),
    Other {
        event_type: i64,
        value: i64,
    },
    Enter(RegionId),
    EnterState(RegionId),
    Send {
        peer: i64,
        tag: i64,
        bytes: i64,
        sequence: i64,
    },
    CollectiveBegin(Collective),
}

/// Elements of a collective operation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
struct Collective {
    operation: i64,
    communicator: i64,
    root: i64,
    size: i64,
    place: i64,
    sent: i64,
    received: i64,
}

/// A deed at its time, of a thread by its number. Ordered by time, then by kind, then as it was read.
type Waiting = Reverse<(u64, Deed, u64, usize)>;

/// A thread: its stream, and what waits to be written.
struct ThreadState {
    /// Number of its task.
    task: usize,
    stream: StreamId,
    rows: Vec<(u64, Deed)>,
    last_ns: u64,
    /// Regions that are open by events: event type, region.
    open: Vec<(u64, RegionId)>,
    /// The collective operation that is open.
    collective: Option<Collective>,
    /// Regions by events that are open in the rows.
    calls: Vec<RegionId>,
    /// Regions that were left at the last time without an enter before: they are entered at that time and take none, and
    /// are left out.
    empty: Vec<RegionId>,
    /// The state in the rows that is open.
    state: Option<RegionId>,
}

impl ThreadState {
    /// Appends what happens to the rows. A state is a region only where no event says more, so that regions nest: a call
    /// ends it.
    fn add(&mut self, deed: Deed) {
        let at_ns = self.last_ns;
        let deed = match deed {
            Deed::EnterState(_) if !self.calls.is_empty() => return,
            Deed::EnterState(region) => {
                self.end_state();
                self.state = Some(region);
                Deed::Enter(region)
            }
            Deed::LeaveState(region) => {
                if self.state == Some(region) {
                    self.end_state();
                }
                return;
            }
            Deed::Enter(region) => {
                if let Some(at) = self.empty.iter().position(|empty| *empty == region) {
                    self.empty.remove(at);
                    return;
                }
                self.end_state();
                self.calls.push(region);
                deed
            }
            Deed::Leave(region) => {
                match self.calls.iter().rposition(|open| *open == region) {
                    Some(at) => self.calls.remove(at),
                    None => return self.empty.push(region),
                };
                deed
            }
            deed => deed,
        };
        self.rows.push((at_ns, deed));
    }

    fn end_state(&mut self) {
        if let Some(region) = self.state.take() {
            self.rows.push((self.last_ns, Deed::Leave(region)));
        }
    }
}

/// A task: its recording.
struct TaskState {
    builder: RecordingBuilder,
    path: PathBuf,
}

/// Converts a trace.
struct Conversion<'a> {
    path: &'a Path,
    header: Header,
    labels: Labels,
    rows: RowNames,
    /// By application, the number of tasks of all applications before it.
    first_ranks: Vec<usize>,
    /// By rank, the number of threads of all tasks before it: the row of its first thread's name.
    first_rows: Vec<usize>,
    /// Where the recordings are written.
    directory: &'a Path,
    identity: u128,
    tasks: Vec<TaskState>,
    /// Numbers of the tasks by application and task.
    task_numbers: BTreeMap<(u32, u32), usize>,
    threads: Vec<ThreadState>,
    thread_numbers: FxHashMap<Thread, usize>,
    names: Option<Names>,
    /// By application and number: places of the tasks.
    communicators: BTreeMap<(u32, i64), FxHashMap<u32, i64>>,
    members: usize,
    /// Number of calls of all threads that are open.
    open: usize,
    /// Number of the next message by sender, receiver and tag.
    sequences: FxHashMap<(usize, usize, i64), i64>,
    waiting: BinaryHeap<Waiting>,
    /// Number of deeds so far.
    waited: u64,
    /// Time that the lines have reached, nanoseconds.
    read: u64,
    buffered: usize,
    problems: Vec<Problem>,
}

/// Number of lines after which progress is reported.
const LINES_A_REPORT: usize = 1 << 16;

/// Converts a trace into a recording for each of its tasks that has records.
///
/// # Errors
/// If the trace cannot be read, its first line is not that of a trace, the recordings cannot be written, or the conversion was
/// stopped.
pub(super) fn convert(path: &Path, into: &Path, options: &Options<'_>) -> Result<Vec<Converted>> {
    let io = ForeignError::io("read", path);
    let mut lines = Lines::open(path).map_err(io)?;
    let invalid = |why: String| io(std::io::Error::new(std::io::ErrorKind::InvalidData, why));
    let length = std::fs::metadata(path).map_err(io)?.len();
    let (header, identity) = match lines.next().map_err(io)? {
        Some(Line::Whole(line)) => {
            let header = Header::parse(line).map_err(|error| {
                let (offset, expected) = (error.offset, error.expected);
                invalid(format!("at byte {offset}: expected {expected}"))
            })?;
            // It must not depend on the path.
            let first = digest(DIGEST_START, line);
            (header, digest(first, &length.to_le_bytes()))
        }
        _ => {
            let why = "at byte 0: expected the first line of a Paraver trace";
            return Err(invalid(why.to_owned()));
        }
    };
    let mut conversion = Conversion::new(path, into, header, identity);
    let not_written = ForeignError::not_written(into);
    let mut reported = 0;
    for number in 1.. {
        match lines.next() {
            Ok(None) => break,
            Ok(Some(Line::TooLong)) => {
                let what = "the line is too long: at most 1 MiB expected";
                conversion.problem(lines.offset, what.to_owned());
            }
            Ok(Some(Line::Whole(line))) => {
                let parsed = parse_record(line).and_then(|record| conversion.take(record));
                if let Err(error) = parsed {
                    let offset = lines.offset + error.offset as u64;
                    conversion.problem(offset, format!("expected {}", error.expected));
                }
            }
            Err(error) => {
                conversion.problem(lines.offset, format!("the rest cannot be read: {error}"));
                break;
            }
        }
        conversion.release(conversion.read).map_err(not_written)?;
        if number % LINES_A_REPORT == 0 {
            options.report(lines.offset - reported)?;
            reported = lines.offset;
        }
    }
    let files = conversion.write_all().map_err(not_written)?;
    let mut problems = conversion.problems;
    let each = files.into_iter().map(|path| Converted {
        bytes: std::fs::metadata(&path).map_or(0, |metadata| metadata.len()),
        path,
        // Of the whole trace: the first task has them.
        problems: std::mem::take(&mut problems),
    });
    Ok(each.collect())
}

/// Reads a file of names of a trace. A trace without such files is whole.
fn names_beside(path: &Path, extension: &str) -> String {
    let name = path.to_string_lossy();
    let stem = name.strip_suffix(".gz").unwrap_or(&name);
    let stem = stem.strip_suffix(".prv").unwrap_or(stem);
    let beside = PathBuf::from(format!("{stem}.{extension}"));
    let is_small =
        std::fs::metadata(&beside).is_ok_and(|file| file.is_file() && file.len() <= MOST_NAMES);
    let bytes = if is_small {
        std::fs::read(&beside)
    } else {
        Ok(Vec::new())
    };
    String::from_utf8_lossy(&bytes.unwrap_or_default()).into_owned()
}

impl<'a> Conversion<'a> {
    fn new(path: &'a Path, directory: &'a Path, header: Header, identity: u128) -> Self {
        let applications = &header.applications;
        let ranks = sums_before(applications.iter().map(|of| of.tasks.len()));
        let tasks = applications.iter().flat_map(|of| &of.tasks);
        let rows = sums_before(tasks.map(|task| task.threads as usize));
        Self {
            path,
            first_ranks: ranks,
            first_rows: rows,
            labels: Labels::parse(&names_beside(path, "pcf")),
            rows: RowNames::parse(&names_beside(path, "row")),
            directory,
            identity,
            header,
            tasks: Vec::new(),
            task_numbers: BTreeMap::new(),
            threads: Vec::new(),
            thread_numbers: FxHashMap::default(),
            names: None,
            communicators: BTreeMap::new(),
            members: 0,
            open: 0,
            sequences: FxHashMap::default(),
            waiting: BinaryHeap::new(),
            waited: 0,
            read: 0,
            buffered: 0,
            problems: Vec::new(),
        }
    }

    fn problem(&mut self, offset: u64, what: String) {
        if self.problems.len() < MOST_PROBLEMS {
            self.problems.push(Problem::new(offset, 0, what));
        }
    }

    /// Returns the rank of a task: tasks of all applications count.
    fn rank(&self, application: u32, task: u32) -> Option<i64> {
        let number = application.checked_sub(1)? as usize;
        let own = self.header.applications.get(number)?;
        if task == 0 || task as usize > own.tasks.len() {
            return None;
        }
        let first = self.first_ranks.get(number)?;
        i64::try_from(first + task as usize - 1).ok()
    }

    /// Returns the number of a thread, which gets its recording and its stream when it is new.
    fn thread(&mut self, thread: Thread) -> Parsed<usize> {
        if let Some(number) = self.thread_numbers.get(&thread) {
            return Ok(*number);
        }
        let error = LineError {
            offset: 0,
            expected: "a thread that the first line has",
        };
        let rank = self.rank(thread.application, thread.task).ok_or(error)?;
        let tasks = &self.header.applications[thread.application as usize - 1].tasks;
        let threads = tasks[thread.task as usize - 1].threads;
        let is_known = self
            .task_numbers
            .contains_key(&(thread.application, thread.task));
        if thread.thread == 0 || thread.thread > threads {
            return Err(error);
        }
        if !is_known && self.threads.len() + threads as usize > MOST_THREADS {
            return Err(LineError {
                expected: "a thread of a task among the first 262,144 threads",
                ..error
            });
        }
        // All threads of a task together: definitions come before chunks.
        if !is_known {
            self.define_task(thread, rank, threads).map_err(|_| error)?;
        }
        self.thread_numbers.get(&thread).copied().ok_or(error)
    }

    fn define_task(&mut self, thread: Thread, rank: i64, threads: u32) -> std::io::Result<()> {
        let mut id = self.identity.to_le_bytes();
        id[..4].copy_from_slice(&(rank as u32).to_le_bytes());
        let tasks = &self.header.applications[thread.application as usize - 1].tasks;
        let node = tasks[thread.task as usize - 1].node;
        let host = match node {
            0 => "unknown".to_owned(),
            node => format!("node {node}"),
        };
        let run = self.path.file_name().unwrap_or_default().to_string_lossy();
        let process = ProcessSpec {
            recording_id: RecordingId(id),
            run: &run,
            host: &host,
            // One clock: the trace's times are already synchronised.
            boot_id: BootId(self.identity.to_le_bytes()),
            pid: 0,
            start_unix_ns: 0,
            start_reference_ns: 0,
            command: "",
        };
        let mut builder = RecordingBuilder::new(&process, CompressionLevel::None)?;
        let ranks = self.first_rows.len();
        builder.rank(rank as u32, Some(ranks as u32));
        let spec = ClockSpec {
            kind: ClockKind::Reference,
            ticks_per_second: 1_000_000_000,
            rate_error_ppb: 0,
            max_ticks: u64::MAX,
        };
        let clock = builder.clock("trace", &spec);
        let source = builder.source("program", SourceOrder::Ordered, clock);
        let names = Names::define(&self.labels, &mut builder);
        self.names.get_or_insert(names);
        let first_row = self.first_rows[rank as usize];
        let task = self.tasks.len();
        for number in 0..threads {
            let names = self.rows.levels.get("THREAD");
            let name = names.and_then(|names| names.get(first_row + number as usize));
            let is_only = self.header.applications.len() == 1;
            let name = name.cloned().unwrap_or_else(|| match is_only {
                true => format!("thread {}", number + 1),
                false => format!(
                    "thread {}.{}.{}",
                    thread.application,
                    thread.task,
                    number + 1
                ),
            });
            let location = builder.location(&name, LocationKind::Thread, u64::from(number) + 1);
            let stream = builder.stream(source, location, 0);
            let thread = Thread {
                thread: number + 1,
                ..thread
            };
            self.thread_numbers.insert(thread, self.threads.len());
            self.threads.push(ThreadState {
                task,
                stream,
                rows: Vec::new(),
                last_ns: 0,
                open: Vec::new(),
                collective: None,
                calls: Vec::new(),
                empty: Vec::new(),
                state: None,
            });
        }
        let path = self.directory.join(format!("{rank}.converted"));
        self.tasks.push(TaskState { builder, path });
        self.task_numbers
            .insert((thread.application, thread.task), task);
        Ok(())
    }

    fn ns(&self, time: u64) -> u64 {
        time.saturating_mul(self.header.unit_ns)
            .min(i64::MAX as u64)
    }

    fn wait(&mut self, time: u64, thread: usize, deed: Deed) {
        self.waited += 1;
        self.waiting
            .push(Reverse((time, deed, self.waited, thread)));
    }

    fn take(&mut self, record: Record<'_>) -> Parsed<()> {
        match record {
            Record::Nothing => {}
            Record::Communicator {
                application,
                communicator,
                tasks,
            } => {
                let is_known = |task: &u32| self.rank(application, *task).is_some();
                if !tasks.iter().all(is_known) {
                    return Err(LineError {
                        offset: 0,
                        expected: "a communicator of tasks that its application has",
                    });
                }
                self.members += 1 + tasks.len();
                if self.members <= MOST_MEMBERS {
                    let places = tasks.into_iter().zip(0..).collect();
                    self.communicators
                        .insert((application, communicator.into()), places);
                }
            }
            Record::State(state) => self.take_state(&state)?,
            Record::Events(events) => self.take_events(events)?,
            Record::Communication(message) => self.take_message(&message)?,
        }
        Ok(())
    }

    fn take_state(&mut self, state: &State) -> Parsed<()> {
        let thread = self.thread(state.thread)?;
        let (begin, end) = (self.ns(state.begin), self.ns(state.end));
        self.read = self.read.max(begin);
        let region = self
            .names
            .as_ref()
            .and_then(|names| names.state(state.state));
        if let Some(region) = region.filter(|_| begin < end) {
            self.wait(begin, thread, Deed::EnterState(region));
            self.wait(end, thread, Deed::LeaveState(region));
        }
        Ok(())
    }

    fn take_events(&mut self, events: Events<'_>) -> Parsed<()> {
        let thread = self.thread(events.thread)?;
        let task = events.thread;
        let time = self.ns(events.time);
        self.read = self.read.max(time);
        let events: Vec<(u64, i64)> = events.collect::<std::result::Result<_, _>>()?;
        let detail = |wanted: u64| {
            let found = events.iter().find(|(event_type, _)| *event_type == wanted);
            found.map(|(_, value)| *value)
        };
        for (event_type, value) in &events {
            match names::kind_of(*event_type) {
                EventKind::Detail => {}
                EventKind::Value => {
                    let names = self.names.as_ref();
                    let deed = match names.and_then(|names| names.value(*event_type)) {
                        Some(id) => Deed::Value(id, *value),
                        None => Deed::Other {
                            event_type: *event_type as i64,
                            value: *value,
                        },
                    };
                    self.wait(time, thread, deed);
                }
                EventKind::Region if *value == 0 => self.leave(time, thread, *event_type),
                EventKind::Region => {
                    let collective = (*event_type == names::COLLECTIVE)
                        .then(|| self.collective(task, *value, detail))
                        .flatten();
                    self.enter(time, thread, (*event_type, *value), collective);
                }
            }
        }
        Ok(())
    }

    /// Returns the elements of a collective operation. `None` if its members are not known.
    fn collective(
        &self,
        task: Thread,
        value: i64,
        detail: impl Fn(u64) -> Option<i64>,
    ) -> Option<Collective> {
        let operation = self.names.as_ref()?.operation(value)?;
        let communicator = detail(names::COMMUNICATOR)?;
        let places = self.communicators.get(&(task.application, communicator))?;
        let place = *places.get(&task.task)?;
        // Only the root reports that it is the root.
        let is_root = detail(names::IS_ROOT).is_some_and(|is_root| is_root != 0);
        let rank = self.rank(task.application, task.task)?;
        Some(Collective {
            operation: operation.code().into(),
            communicator: i64::from(task.application) << 32 | communicator,
            root: if is_root { rank } else { -1 },
            size: places.len() as i64,
            place,
            sent: detail(names::BYTES_SENT).unwrap_or(0),
            received: detail(names::BYTES_RECEIVED).unwrap_or(0),
        })
    }

    fn enter(
        &mut self,
        time: u64,
        thread: usize,
        what: (u64, i64),
        collective: Option<Collective>,
    ) {
        let names = self.names.as_ref();
        let Some(region) = names.and_then(|names| names.region(what.0, what.1)) else {
            return;
        };
        // A trace without ends of calls: more of them are no calls.
        if self.open >= MOST_OPEN {
            return;
        }
        self.open += 1;
        self.threads[thread].open.push((what.0, region));
        self.wait(time, thread, Deed::Enter(region));
        if let Some(collective) = collective {
            self.threads[thread].collective = Some(collective);
            self.wait(time, thread, Deed::CollectiveBegin(collective));
        }
    }

    fn leave(&mut self, time: u64, thread: usize, event_type: u64) {
        let of = &mut self.threads[thread];
        let Some(at) = of.open.iter().rposition(|open| open.0 == event_type) else {
            return;
        };
        let (_, region) = of.open.remove(at);
        self.open -= 1;
        let collective = of.collective.take_if(|_| event_type == names::COLLECTIVE);
        if let Some(collective) = collective {
            self.wait(time, thread, Deed::CollectiveEnd(collective));
        }
        self.wait(time, thread, Deed::Leave(region));
    }

    fn take_message(&mut self, message: &Communication) -> Parsed<()> {
        let (from, to) = (self.thread(message.from)?, self.thread(message.to)?);
        let rank = |thread: Thread| self.rank(thread.application, thread.task).unwrap_or(-1);
        let (sender, receiver) = (rank(message.from), rank(message.to));
        let sent = self.ns(message.sent[0]);
        let received = self.ns(message.received[1]).max(sent);
        self.read = self.read.max(sent);
        let tasks = (self.threads[from].task, self.threads[to].task);
        let channel = (tasks.0, tasks.1, message.tag);
        let is_full = self.sequences.len() >= MOST_CHANNELS;
        let sequence = if is_full && !self.sequences.contains_key(&channel) {
            -1
        } else {
            let next = self.sequences.entry(channel).or_default();
            *next += 1;
            *next - 1
        };
        let (tag, bytes) = (message.tag, message.bytes as i64);
        let peer = receiver;
        self.wait(
            sent,
            from,
            Deed::Send {
                peer,
                tag,
                bytes,
                sequence,
            },
        );
        let peer = sender;
        self.wait(
            received,
            to,
            Deed::Receive {
                peer,
                tag,
                bytes,
                sequence,
            },
        );
        Ok(())
    }

    /// Moves what happened before a time to the rows of its threads.
    fn release(&mut self, before: u64) -> std::io::Result<()> {
        while let Some(Reverse((time, deed, _, thread))) = self.waiting.peek().copied() {
            if time >= before && self.waiting.len() < MOST_WAITING {
                break;
            }
            self.waiting.pop();
            let of = &mut self.threads[thread];
            // Lines that are not in order are moved to the time of those before them.
            if time > of.last_ns {
                of.last_ns = time;
                of.empty.clear();
            }
            let before = of.rows.len();
            of.add(deed);
            self.buffered += of.rows.len() - before;
            if of.rows.len() >= CHUNK_ROWS {
                self.write(thread)?;
            }
        }
        if self.buffered > MOST_ROWS {
            (0..self.threads.len()).try_for_each(|thread| self.write(thread))?;
        }
        Ok(())
    }

    /// Writes the rows of a thread as a chunk.
    fn write(&mut self, thread: usize) -> std::io::Result<()> {
        let of = &mut self.threads[thread];
        let rows = std::mem::take(&mut of.rows);
        let Some((first_ns, _)) = rows.first() else {
            return Ok(());
        };
        self.buffered -= rows.len();
        let task = &mut self.tasks[of.task];
        let mut chunk = task.builder.chunk(of.stream, *first_ns as i64);
        for (time_ns, deed) in &rows {
            put(&mut chunk, *time_ns, deed);
        }
        let finished = chunk.finish(of.last_ns as i64);
        finished.map_err(std::io::Error::other)?;
        let mut file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&task.path)?;
        task.builder.write_to(&mut file)
    }

    /// Writes what waits, and the ends of the recordings. Returns their paths.
    fn write_all(&mut self) -> std::io::Result<Vec<PathBuf>> {
        self.release(u64::MAX)?;
        (0..self.threads.len()).try_for_each(|thread| self.write(thread))?;
        let end_ns = self.ns(self.header.duration);
        for of in &self.threads {
            let builder = &mut self.tasks[of.task].builder;
            builder.close_stream(of.stream, end_ns.max(of.last_ns));
        }
        let mut files = Vec::new();
        for task in self.tasks.drain(..) {
            let mut file = OpenOptions::new()
                .create(true)
                .append(true)
                .open(&task.path)?;
            file.write_all(&task.builder.finish())?;
            files.push(task.path);
        }
        Ok(files)
    }
}

/// Returns the sum of all numbers before each one.
fn sums_before(numbers: impl Iterator<Item = usize>) -> Vec<usize> {
    let mut sum = 0_usize;
    let each = numbers.map(|number| {
        let before = sum;
        sum = sum.saturating_add(number);
        before
    });
    each.collect()
}

/// Appends a row.
fn put(chunk: &mut annals_format::ChunkRows<'_>, time_ns: u64, deed: &Deed) {
    let collective = |of: &Collective| {
        let elements = [
            of.operation,
            of.communicator,
            of.root,
            of.size,
            of.place,
            of.sent,
            of.received,
        ];
        elements.map(Value::I64)
    };
    let mut event = |event_type, values: &[Value<'_>]| chunk.event(event_type, time_ns, values);
    match *deed {
        Deed::Enter(region) | Deed::EnterState(region) => {
            event(names::ENTER, &[Value::U32(region.get())])
        }
        Deed::Leave(region) | Deed::LeaveState(region) => {
            event(names::LEAVE, &[Value::U32(region.get())])
        }
        Deed::Value(id, value) => event(id, &[Value::I64(value)]),
        Deed::Other { event_type, value } => {
            event(names::EVENT, &[event_type, value].map(Value::I64));
        }
        Deed::Send {
            peer,
            tag,
            bytes,
            sequence,
        } => {
            event(names::SEND, &[peer, tag, bytes, sequence].map(Value::I64));
        }
        Deed::Receive {
            peer,
            tag,
            bytes,
            sequence,
        } => {
            event(
                names::RECEIVE,
                &[peer, tag, bytes, sequence].map(Value::I64),
            );
        }
        Deed::CollectiveBegin(of) => event(names::COLLECTIVE_BEGIN, &collective(&of)),
        Deed::CollectiveEnd(of) => event(names::COLLECTIVE_END, &collective(&of)),
    }
}
