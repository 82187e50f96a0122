//! Losses against a truth that is known event by event: recordings that dropped or overwrote events, finished or
//! killed, are cut, or miss blocks, definitions or their live file. Whatever is left, nothing is counted twice, no
//! lower bound is above the truth, every loss lies where its events were raised, and a recovery removes only what it
//! has taken over.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use annals_format::{
    BLOCK_HEADER_LEN, BlockHeader, BlockKind, LiveHeader, LiveImage, TraceLoss, Value,
};
use annals_merger::{InputRecording, MergeError, Reader, Window, recover};
use annals_recorder::{
    ClockChoice, ClockSpec, EventTypeSpec, Options, Overflow, Recorder, SourceSpec,
};
use tempfile::TempDir;

const THREADS: usize = 2;

/// Moments around the raise of an event, reference clock, nanoseconds.
type Bracket = (i64, i64);

/// What was raised, and the files that a recorder made of it.
struct Made {
    directory: TempDir,
    /// By thread, the events by their numbers.
    raised: Vec<Vec<Bracket>>,
    /// Thread and number of the events that are in the whole recording.
    recorded: BTreeSet<(usize, usize)>,
    /// By stream of the recording, ascending, the thread.
    threads: Vec<usize>,
    recording: Vec<u8>,
    /// Of a killed process.
    live: Option<Vec<u8>>,
}

impl Made {
    fn name(&self) -> PathBuf {
        self.directory.path().join("case.annals")
    }
}

/// Records bursts of events from several threads into a small buffer. `is_killed`: the files are those of the moment
/// before the recorder finishes, and seem to be of a process that is gone.
fn record(overflow: Overflow, is_killed: bool) -> Made {
    let directory = TempDir::new().expect("a directory");
    let mut options = Options::new(directory.path().join("recorder"));
    options.clock = ClockChoice::Monotonic;
    options.buffer_bytes = 64 << 10;
    options.page_bytes = Some(4096);
    options.overflow = overflow;
    options.rank = Some(0);
    options.rank_count = Some(1);
    let recorder = Recorder::start(&options).expect("a recorder");
    let mark = EventTypeSpec::new("mark")
        .element("thread")
        .element("number")
        .element("text");
    let mark = recorder
        .add_event_type::<(u32, u64, annals_recorder::Text)>(&mark)
        .expect("an event type");
    let barrier = std::sync::Barrier::new(THREADS + 1);
    let (raised, recording, live) = std::thread::scope(|scope| {
        let (recorder, barrier) = (&recorder, &barrier);
        let workers = (0..THREADS).map(|thread| {
            let raise = move || {
                let text = "x".repeat(40);
                let mut raised: Vec<Bracket> = Vec::new();
                // The last burst stays in its page.
                for (burst, events) in [700, 700, 700, 700, 700, 700, 5].into_iter().enumerate() {
                    for _ in 0..events {
                        let before = Recorder::reference_ns();
                        let values = (thread as u32, raised.len() as u64, text.as_bytes());
                        recorder.raise(&mark, values);
                        raised.push((before, Recorder::reference_ns()));
                    }
                    if events > 5 {
                        std::thread::sleep(Duration::from_millis(40 + 30 * burst as u64));
                    }
                }
                // Wait for the copy, if there is one: then the streams are still open.
                barrier.wait();
                barrier.wait();
                raised
            };
            let builder = std::thread::Builder::new().name(format!("worker-{thread}"));
            builder.spawn_scoped(scope, raise).expect("a thread")
        });
        let workers: Vec<_> = workers.collect();
        barrier.wait();
        let copied = is_killed.then(|| copy_as_killed(&directory.path().join("recorder")));
        barrier.wait();
        let raised = workers
            .into_iter()
            .map(|worker| worker.join().expect("a thread"));
        let raised: Vec<_> = raised.collect();
        let (recording, live) = match copied {
            Some((recording, live)) => (Some(recording), Some(live)),
            None => (None, None),
        };
        (raised, recording, live)
    });
    recorder.finish();
    let recording =
        recording.unwrap_or_else(|| only_file(&directory.path().join("recorder"), "annals"));
    let mut made = Made {
        directory,
        raised,
        recorded: BTreeSet::new(),
        threads: Vec::new(),
        recording,
        live,
    };
    std::fs::write(made.name(), &made.recording).expect("a file");
    write_live(&made, made.live.as_deref());
    let found = read(&made.name()).expect("the whole recording is read");
    made.recorded = found
        .events
        .iter()
        .map(|event| (event.0, event.1))
        .collect();
    let input = InputRecording::open(&made.name()).expect("the recording");
    let definitions = &input.recording.definitions;
    made.threads = input
        .recording
        .streams
        .keys()
        .map(|stream| {
            let location = definitions.streams[stream].location;
            let name = location.map(|id| definitions.string(definitions.locations[&id].name));
            let number = name.and_then(|name| name.strip_prefix("worker-"));
            number.map_or(usize::MAX, |number| number.parse().expect("a number"))
        })
        .collect();
    made
}

fn only_file(directory: &Path, extension: &str) -> Vec<u8> {
    let files = std::fs::read_dir(directory).expect("a directory");
    let mut files = files.map(|file| file.expect("a file").path());
    let file = files.find(|file| file.extension().is_some_and(|e| e == extension));
    std::fs::read(file.expect("a file of the recorder")).expect("a file")
}

/// Returns the live file and then the recording, as a kill would leave them now.
fn copy_as_killed(directory: &Path) -> (Vec<u8>, Vec<u8>) {
    let mut live = only_file(directory, "annals-live");
    let recording = only_file(directory, "annals");
    let header = LiveHeader::decode(&live, live.len() as u64).expect("a live header");
    let of_another = LiveHeader {
        process_start: header.process_start + 2,
        ..header
    };
    let bytes = of_another.encode();
    live[..bytes.len()].copy_from_slice(&bytes);
    (recording, live)
}

fn live_name(made: &Made) -> PathBuf {
    made.directory.path().join("case.annals-live")
}

fn write_live(made: &Made, live: Option<&[u8]>) {
    match live {
        Some(live) => std::fs::write(live_name(made), live).expect("a file"),
        None => drop(std::fs::remove_file(live_name(made))),
    }
}

/// What a reader finds.
struct Found {
    /// Thread, number and trace time of the events.
    events: Vec<(usize, usize, i64)>,
    /// By stream: raised, whether that is a lower bound, and dropped.
    totals: Vec<(u64, bool, u64)>,
    losses: Vec<TraceLoss>,
    zero_reference_ns: i64,
    has_told: bool,
    is_complete: bool,
}

fn read(path: &Path) -> Option<Found> {
    let opened = Reader::open(path).ok()?;
    let mut events = Vec::new();
    let outcome = opened.for_each_chunk(Window::ALL, |chunk: annals_format::OrderedChunk| {
        for row in chunk.rows() {
            let value = |element: usize| row.value(element);
            let (Value::U32(thread), Value::U64(number)) = (value(0), value(1)) else {
                panic!("the elements of a mark");
            };
            events.push((thread as usize, number as usize, row.time_ns()));
        }
        Ok(())
    });
    let outcome = outcome.expect("a recording that opens is read");
    let totals = outcome.totals.iter().map(|totals| {
        let rows = || totals.rows.iter();
        (
            rows().map(|row| row.raised).sum(),
            rows().any(|row| row.raised_is_lower_bound),
            rows().map(annals_format::TypeTotals::dropped_sum).sum(),
        )
    });
    Some(Found {
        events,
        totals: totals.collect(),
        has_told: outcome.has_skipped_now,
        is_complete: outcome.complete,
        losses: outcome.losses,
        zero_reference_ns: opened
            .definitions()
            .time_zero
            .and_then(|zero| zero.reference_ns)
            .expect("a merge says where its time begins"),
    })
}

/// What is wrong with what a reader finds of a case.
fn check(made: &Made, found: &Found, streams: &[usize]) -> Result<(), String> {
    let at = |reference_ns: i64| reference_ns - found.zero_reference_ns;
    let mut present = BTreeSet::new();
    for (thread, number, time_ns) in &found.events {
        let known = made
            .raised
            .get(*thread)
            .and_then(|raised| raised.get(*number));
        let (before, after) = known.ok_or("an event that was not raised")?;
        if !present.insert((*thread, *number)) {
            return Err(format!("event {number} of thread {thread} twice"));
        }
        if *time_ns < at(*before) || *time_ns > at(*after) {
            return Err(format!("event {number} of thread {thread} at {time_ns} ns"));
        }
    }
    for (stream, (raised, is_lower_bound, dropped)) in found.totals.iter().enumerate() {
        let Some(thread) = streams.get(stream).filter(|thread| **thread < THREADS) else {
            continue;
        };
        let is_missing = |number: &usize, recorded: bool| {
            !present.contains(&(*thread, *number))
                && made.recorded.contains(&(*thread, *number)) == recorded
        };
        let numbers = 0..made.raised[*thread].len();
        // Of a stream of which nothing is left, only the loss at its end says that there may be more.
        let mut of_stream = found
            .losses
            .iter()
            .filter(|loss| loss.stream.index() == stream);
        let is_lower_bound = *is_lower_bound || of_stream.any(|loss| loss.is_lower_bound);
        let dropped_truly = numbers
            .clone()
            .filter(|number| is_missing(number, false))
            .count();
        let all = numbers.len() as u64;
        if *raised > all || !is_lower_bound && *raised != all {
            return Err(format!(
                "thread {thread}: {raised} of {all} raised, lower bound: {is_lower_bound}"
            ));
        }
        if *dropped > dropped_truly as u64 || !is_lower_bound && *dropped != dropped_truly as u64 {
            return Err(format!(
                "thread {thread}: {dropped} of {dropped_truly} dropped"
            ));
        }
        let losses = found
            .losses
            .iter()
            .filter(|loss| loss.stream.index() == stream);
        let mut sums = [0, 0];
        for loss in losses {
            let is_of_reader = loss.cause.is_of_reader();
            sums[usize::from(is_of_reader)] += loss.count;
            let within = numbers.clone().filter(|number| {
                let (before, after) = made.raised[*thread][*number];
                is_missing(number, is_of_reader)
                    && at(before) <= loss.to_ns
                    && at(after) >= loss.from_ns
            });
            let within = within.count() as u64;
            if loss.count > within {
                return Err(format!(
                    "thread {thread}: only {within} such events within {loss:?}"
                ));
            }
        }
        let skipped_truly = numbers
            .clone()
            .filter(|number| is_missing(number, true))
            .count();
        if sums[0] != *dropped || sums[1] > skipped_truly as u64 {
            return Err(format!(
                "thread {thread}: losses {sums:?}, dropped {dropped}, {skipped_truly} recorded and missing"
            ));
        }
        if skipped_truly != 0 && !found.has_told {
            return Err(format!(
                "thread {thread}: {skipped_truly} events missing in silence"
            ));
        }
    }
    Ok(())
}

/// Random numbers (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit.max(1) as u64) as usize
    }
}

/// Returns where the blocks of a recording begin, with their kinds; and where the last one ends.
fn blocks(bytes: &[u8]) -> (Vec<(usize, BlockKind)>, usize) {
    let (mut found, mut at) = (Vec::new(), 64);
    while let Ok(header) = BlockHeader::decode(&bytes[at..]) {
        found.push((at, header.kind));
        at += header.block_len() as usize;
    }
    (found, at)
}

/// Returns a damaged copy of a recording, and in words what was done.
fn damaged(recording: &[u8], random: &mut Random) -> (Vec<u8>, String) {
    let (starts, end) = blocks(recording);
    let mut bytes = recording.to_vec();
    if starts.is_empty() {
        // All of it is in the live file.
        return (bytes, "without blocks".to_owned());
    }
    match random.below(5) {
        0 => (bytes, "whole".to_owned()),
        1 => {
            let length = 64 + random.below(bytes.len() - 64);
            bytes.truncate(length);
            (bytes, format!("cut to {length} bytes"))
        }
        2 => {
            let (start, kind) = starts[random.below(starts.len())];
            bytes.truncate(start);
            (bytes, format!("cut before the {kind:?} at {start}"))
        }
        3 => {
            let first = random.below(starts.len());
            let last = (first + random.below(3) + 1).min(starts.len());
            let from = starts[first].0;
            let to = starts.get(last).map_or(end, |block| block.0);
            bytes.drain(from..to);
            (bytes, format!("without the blocks from {from} to {to}"))
        }
        _ => {
            let of_definitions = starts
                .iter()
                .filter(|(_, kind)| *kind == BlockKind::Definitions);
            let of_definitions: Vec<_> = of_definitions.collect();
            let (start, _) = of_definitions[random.below(of_definitions.len())];
            let header = BlockHeader::decode(&bytes[*start..]).expect("a block");
            let at = start + random.below(BLOCK_HEADER_LEN + header.body_len as usize);
            bytes[at] ^= 1 << random.below(8);
            (bytes, format!("flipped at {at}, in definitions"))
        }
    }
}

/// Recovers in place: either the live file is gone and nothing with it, or both files are as they were.
fn check_recovery(made: &Made, before: &Found) -> Result<(), String> {
    let (path, live) = (made.name(), live_name(made));
    let bytes = || (std::fs::read(&path).ok(), std::fs::read(&live).ok());
    let as_before = bytes();
    let input = InputRecording::open(&path).map_err(|error| error.to_string())?;
    let outcome = recover(&input, None);
    if live.exists() || as_before.1.is_none() {
        let is_refused = matches!(outcome, Ok(None) | Err(MergeError::LiveFileUnread { .. }));
        if !is_refused && as_before.1.is_some() || is_refused && bytes() != as_before {
            return Err(format!(
                "the live file stays, and something changed: {outcome:?}"
            ));
        }
        return Ok(());
    }
    let after = read(&path).ok_or("what was recovered is not read")?;
    if after.events != before.events {
        return Err("a recovery changed the events".to_owned());
    }
    let (lost_before, lost_after) = (by_cause(before), by_cause(&after));
    if lost_after != lost_before || after.totals != before.totals {
        return Err(format!("{lost_before:?} became {lost_after:?}"));
    }
    Ok(())
}

/// Losses of the recorder, and the number of events that a reader lost in each stream: those of a block that the end of
/// the file cut are truncated before a recovery and skipped after it.
fn by_cause(found: &Found) -> (Vec<TraceLoss>, Vec<u64>) {
    let (of_reader, others): (Vec<TraceLoss>, Vec<TraceLoss>) = found
        .losses
        .iter()
        .partition(|loss| loss.cause.is_of_reader());
    let mut sums = vec![0; found.totals.len()];
    of_reader
        .iter()
        .for_each(|loss| sums[loss.stream.index()] += loss.count);
    (others, sums)
}

fn run(made: &Made, cases: usize, seed: u64) {
    let mut random = Random(seed);
    let mut failures = Vec::new();
    for _ in 0..cases {
        let (bytes, what) = damaged(&made.recording, &mut random);
        let live = made.live.as_ref().filter(|_| random.below(4) != 0);
        std::fs::write(made.name(), &bytes).expect("a file");
        write_live(made, live.map(Vec::as_slice));
        let case = format!("{what}, live file: {}", live.is_some());
        let Some(found) = read(&made.name()) else {
            // Nothing says whose it is.
            continue;
        };
        let input = InputRecording::open(&made.name()).expect("the recording");
        let known = input.recording.streams.keys();
        let streams: Vec<usize> = known
            .map(|stream| {
                made.threads
                    .get(stream.index())
                    .copied()
                    .unwrap_or(usize::MAX)
            })
            .collect();
        if let Err(why) = check(made, &found, &streams) {
            failures.push(format!(
                "{case}: {why} {streams:?} {:?} {:?}",
                made.threads, found.totals
            ));
        } else if let Err(why) = check_recovery(made, &found) {
            failures.push(format!("{case}: recovered: {why}"));
        }
    }
    let shown: Vec<_> = failures.iter().take(10).cloned().collect();
    assert!(
        failures.is_empty(),
        "{} of {cases} cases fail:\n{}",
        failures.len(),
        shown.join("\n")
    );
}

/// The whole recording counts every event that was raised, once.
fn check_whole(made: &Made) {
    let found = read(&made.name()).expect("the recording");
    check(made, &found, &made.threads).expect("the whole recording");
    let raised: usize = made.raised.iter().map(Vec::len).sum();
    assert!(
        made.recorded.len() < raised,
        "some are dropped or overwritten"
    );
    assert!(!made.recorded.is_empty());
}

#[test]
fn a_finished_recording_that_dropped_is_never_counted_twice() {
    let made = record(Overflow::Drop, false);
    check_whole(&made);
    run(&made, 400, 0x9e37_79b9_7f4a_7c15);
}

#[test]
fn a_killed_recording_that_dropped_is_never_counted_twice() {
    let made = record(Overflow::Drop, true);
    check_whole(&made);
    run(&made, 400, 0x2545_f491_4f6c_dd1d);
}

#[test]
fn a_finished_flight_recorder_lost_its_events_before_the_first_one_left() {
    let made = record(Overflow::Overwrite, false);
    check_whole(&made);
    run(&made, 400, 0x5851_f42d_4c95_7f2d);
}

#[test]
fn a_killed_flight_recorder_lost_its_events_before_the_first_one_left() {
    let made = record(Overflow::Overwrite, true);
    check_whole(&made);
    run(&made, 400, 0x1405_7b7e_f767_814f);
}

/// What a source of an unreadable clock dropped lies between its events, and after the last up to the process's end.
#[test]
fn drops_of_a_clock_that_cannot_be_read_have_an_interval() {
    let directory = TempDir::new().expect("a directory");
    let mut options = Options::new(directory.path());
    options.clock = ClockChoice::Monotonic;
    let recorder = Recorder::start(&options).expect("a recorder");
    let clock = recorder.add_clock(&ClockSpec::unreadable("device", 1_000_000_000));
    let clock = clock.expect("a clock");
    let source = |name: &str| {
        let source = recorder.add_source(&SourceSpec::ordered(name).clock(clock));
        source.expect("a source")
    };
    let (with_events, without_events) = (source("with events"), source("without events"));
    let mark = recorder.add_event_type::<(u64,)>(&EventTypeSpec::new("mark").element("number"));
    let mark = mark.expect("an event type");
    let mut moments = vec![Recorder::reference_ns()];
    let pause = || {
        std::thread::sleep(Duration::from_millis(5));
        Recorder::reference_ns()
    };
    for number in 0..3 {
        let tick = Recorder::reference_ns() as u64;
        recorder.raise_at(with_events, tick, &mark, (number,));
        moments.push(pause());
        for source in [with_events, without_events] {
            recorder.report_dropped(source, mark.id(), 2);
        }
        moments.push(pause());
    }
    recorder.finish();
    drop(recorder);
    let opened = Reader::open(directory.path()).expect("the recording");
    let outcome = opened
        .for_each_chunk(Window::ALL, |_: annals_format::OrderedChunk| Ok(()))
        .expect("the recording is read");
    let zero_ns = opened
        .definitions()
        .time_zero
        .and_then(|zero| zero.reference_ns);
    let zero_ns = zero_ns.expect("a merge says where its time begins");
    let at: Vec<i64> = moments.iter().map(|moment| moment - zero_ns).collect();
    let mut checked = 0;
    for name in ["with events", "without events"] {
        let of_source = outcome.losses.iter().filter(|loss| {
            let source = opened.definitions().streams[&loss.stream].source;
            opened
                .definitions()
                .string(opened.definitions().sources[&source].name)
                == name
        });
        for (number, loss) in of_source.enumerate() {
            // Each was reported between these moments.
            let (before, after) = (at[1 + 2 * number], at[2 + 2 * number]);
            assert!(
                loss.from_ns <= before && after <= loss.to_ns.max(after),
                "{name}: {loss:?}, {at:?}"
            );
            assert!(loss.to_ns > loss.from_ns, "{name}: {loss:?}");
            assert!(loss.to_ns >= before, "{name}: {loss:?}, {at:?}");
            checked += loss.count;
        }
    }
    assert_eq!(checked, 12);
}

/// A killed process whose definitions are damaged wherever they are: the live file stays.
#[test]
fn a_live_file_of_which_a_part_cannot_be_read_is_never_removed() {
    let made = record(Overflow::Drop, true);
    let mut live = made.live.clone().expect("a live file");
    // An area of definitions without a byte.
    live[2048..2056].fill(0);
    let mut bytes = made.recording.clone();
    let (starts, _) = blocks(&bytes);
    for (start, kind) in starts {
        if kind == BlockKind::Definitions {
            bytes[start + BLOCK_HEADER_LEN] ^= 1;
        }
    }
    std::fs::write(made.name(), &bytes).expect("a file");
    write_live(&made, Some(&live));
    let found = read(&made.name()).expect("the recording");
    assert!(found.events.is_empty() && found.has_told);
    let skipped = found.losses.iter().filter(|loss| loss.cause.is_of_reader());
    let skipped: u64 = skipped.map(|loss| loss.count).sum();
    assert_eq!(skipped, made.recorded.len() as u64);
    let input = InputRecording::open(&made.name()).expect("the recording");
    let outcome = recover(&input, None);
    assert!(
        matches!(outcome, Err(MergeError::LiveFileUnread { .. })),
        "{outcome:?}"
    );
    assert_eq!(std::fs::read(made.name()).expect("the recording"), bytes);
    assert_eq!(
        std::fs::read(live_name(&made)).expect("the live file"),
        live
    );
    // Elsewhere, what can be read is written.
    let elsewhere = made.directory.path().join("elsewhere");
    std::fs::create_dir(&elsewhere).expect("a directory");
    let recovered = recover(&input, Some(&elsewhere)).expect("a recovery");
    assert!(recovered.expect("a recording").missing.is_some());
    assert!(live_name(&made).exists());
}

/// The crash of a machine can leave pages of a file as zeros.
#[test]
fn a_live_file_with_zeros_is_neither_complete_nor_removed_when_something_is_missing() {
    const PAGE: usize = 4096;
    let mut lossy = 0;
    for overflow in [Overflow::Drop, Overflow::Overwrite] {
        let made = record(overflow, true);
        let live = made.live.clone().expect("a live file");
        write_live(&made, Some(&live));
        std::fs::write(made.name(), &made.recording).expect("a file");
        let whole = read(&made.name()).expect("the recording");
        assert!(whole.is_complete);
        // One page, and all from it on.
        let starts = (0..live.len()).step_by(PAGE);
        for (start, end) in starts.flat_map(|start| [(start, start + PAGE), (start, live.len())]) {
            let mut zeroed = live.clone();
            zeroed[start..end.min(live.len())].fill(0);
            if zeroed == live {
                continue;
            }
            std::fs::write(made.name(), &made.recording).expect("a file");
            write_live(&made, Some(&zeroed));
            let found = read(&made.name());
            let is_whole = found
                .as_ref()
                .is_some_and(|found| found.events == whole.events && found.totals == whole.totals);
            lossy += u64::from(!is_whole);
            let is_complete = found.is_some_and(|found| found.is_complete);
            assert!(is_whole || !is_complete, "{overflow:?}, zeros at {start}");
            if let Ok(input) = InputRecording::open(&made.name()) {
                let _ = recover(&input, None);
            }
            let stays = std::fs::read(live_name(&made)).is_ok_and(|now| now == zeroed);
            assert!(is_whole || stays, "{overflow:?}, zeros at {start}");
        }
    }
    assert!(lossy > 8, "{lossy}");
}

/// All definitions are in the recording twice, or once and in the live file.
#[test]
fn a_damaged_block_of_definitions_costs_a_killed_process_nothing() {
    let made = record(Overflow::Drop, true);
    let (starts, _) = blocks(&made.recording);
    let of_definitions = starts
        .iter()
        .filter(|(_, kind)| *kind == BlockKind::Definitions);
    for (start, _) in of_definitions {
        let header = BlockHeader::decode(&made.recording[*start..]).expect("a block");
        for at in [9, BLOCK_HEADER_LEN, header.block_len() as usize - 1] {
            let mut bytes = made.recording.clone();
            bytes[start + at] ^= 1;
            std::fs::write(made.name(), &bytes).expect("a file");
            write_live(&made, made.live.as_deref());
            let found = read(&made.name()).expect("the recording");
            let events = found.events.iter().map(|event| (event.0, event.1));
            assert_eq!(events.collect::<BTreeSet<_>>(), made.recorded);
            assert!(found.has_told, "the damage is reported");
            check(&made, &found, &made.threads).expect("nothing is lost");
        }
    }
    let live = LiveImage::read(made.live.as_ref().expect("a live file")).expect("a live file");
    assert!(!live.definitions.is_empty());
}
