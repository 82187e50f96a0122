//! The merge: recordings in, one global order out, chunk by chunk.
//!
//! The order is (trace time, rank, recording id, stream, position). Processes are numbered by rank and
//! recording id, streams by process and their number in it, so that (time, number of the stream)
//! decides between streams; within a stream its own order does.

pub(crate) mod inputs;
pub(crate) mod join;
pub(crate) mod output;
pub(crate) mod runs;
pub(crate) mod sweep;

mod causality;
mod clock_fits;
mod duplicates;
mod plan;
mod ranks;
mod report_builder;
mod set_up;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use annals_format::{
    BootId, CalibrationPoint, ClockId, Definition, Definitions, OrderHash, Problem, ProcessEnd,
    ProcessId, RecordingId, SourceOrder, StreamId, StreamTotals, TraceChunk, TraceLoss,
};

use crate::allocator::give_freed_memory_back;
use crate::axis::proof::{self, ElementReferences, SortedStreams, StreamHashes};
use crate::axis::strip::{Strip, UnnumberedChunk};
use crate::axis::unify::Numbers;
use crate::clocks::ClockFit;
use crate::clocks::hosts::Hosts;
use crate::clocks::steps::Epoch;
use crate::error::Result;
use crate::filter::{Keep, Newest};
use crate::input::reader::{InputOutcome, InputReader};
use crate::input::recording::InputRecording;
use crate::input::stream::{RecordedStream, StreamReader};
use crate::input::ticks::StreamClock;
use crate::input::trace::{InputTrace, RenumberedTrace, TraceReader};
use crate::input::unplaced::UnplacedStream;
use crate::merge::runs::{Budget, Runs};
use crate::merge::sweep::Sweep;
use crate::messages::causality::RepairReport;
use crate::messages::matching::ShardedBatch;
use crate::messages::repair::Shifts;
use crate::options::MergeOptions;
use crate::ordered_parallel::{pipeline, pipeline_inline};
use crate::overview::message_bins::{MessageCounter, Side};
use crate::report::Report;
use crate::stages::{self, Stage};
use crate::workers::Workers;

use self::causality::{MessageCheck, Moved, shifts_of};
use self::clock_fits::CounterPoints;

/// A recording in the order of the merge.
#[derive(Debug)]
struct MergedProcess {
    /// On its own: a run may have very many.
    input: Box<InputRecording>,
    /// The calibration points of its clocks.
    calibration: Box<[CalibrationPoint]>,
    process: ProcessId,
    numbers: Numbers,
    start_ns: i64,
    end_ns: i64,
}

impl MergedProcess {
    /// Returns the boot of its host; zeros when the definition of its process is lost.
    fn boot_id(&self, definitions: &Definitions) -> BootId {
        let process = definitions.processes.get(&self.process);
        process.map_or_else(BootId::default, |process| process.boot_id)
    }

    /// Returns the definition of the process's end.
    fn end(&self) -> Definition {
        Definition::ProcessEnd(ProcessEnd {
            process: self.process,
            ended: self.input.recording.ended,
            start_ns: self.start_ns,
            end_ns: self.end_ns,
            end_error_ns: self.input.recording.end_error_ns,
        })
    }
}

/// A merge, whole when it is made: inputs are open, definitions and clocks are determined; events are not read yet.
#[derive(Debug)]
pub(crate) struct Merge {
    /// How it was asked for.
    pub(crate) options: MergeOptions,
    /// Definitions of the trace.
    pub(crate) definitions: Definitions,
    inputs: MergedInputs,
    pub(crate) axis: TimeAxis,
    moves: Moves,
    keep: Keep,
}

/// The inputs of a merge.
#[derive(Debug)]
struct MergedInputs {
    /// Processes that are taken from recordings, in merge order.
    members: Vec<MergedProcess>,
    traces: Vec<RenumberedTrace>,
    /// Identities of all recordings, in merge order.
    recording_ids: Vec<RecordingId>,
    /// What recordings that other processes merge have of processor counters.
    other_points: Vec<CounterPoints>,
    /// Files that hold a recording given already.
    duplicates: Vec<PathBuf>,
    /// Leaves references as they are.
    identity: Numbers,
}

/// The axis of time on which events are placed.
#[derive(Debug)]
pub(crate) struct TimeAxis {
    /// How well the clocks are known.
    pub(crate) fits: Vec<ClockFit>,
    /// Of the clocks that were set while they ran.
    epochs: BTreeMap<ClockId, Arc<[Epoch]>>,
    /// How the hosts' clocks are related.
    hosts: Hosts,
}

/// How causality repair moves events.
#[derive(Debug, Default)]
struct Moves {
    /// By process; empty when it moves none.
    shifts: Vec<Shifts>,
    repair: Option<RepairReport>,
}

/// The result of a merge.
#[derive(Debug)]
pub struct Merged {
    /// Totals of every stream, by its number in the trace.
    pub totals: Vec<StreamTotals>,
    /// Every loss, in the order of the trace.
    pub losses: Vec<TraceLoss>,
    /// Everything about it.
    pub report: Report,
    /// Blocks of recordings that cannot be decoded, with their files and what they cost.
    pub damage: Vec<(PathBuf, Problem)>,
    /// Bytes that were written.
    pub bytes: u64,
}

/// Times that part a run into slices, at most, about.
const QUANTILES: u64 = 1 << 12;

impl Merge {
    /// Returns when and how a clock was set; empty: it was not.
    fn epochs(&self, clock: ClockId) -> &[Epoch] {
        self.axis.epochs.get(&clock).map_or(&[], |epochs| epochs)
    }

    /// Returns whether a stream's events need not be in the order of time.
    fn is_sorted(&self, stream: StreamId) -> bool {
        let source = self.definitions.streams.get(&stream);
        let source = source.and_then(|stream| self.definitions.sources.get(&stream.source));
        source.is_some_and(|source| source.ordering == SourceOrder::Unordered)
    }

    fn stream_clock(&self, member: &MergedProcess, stream: StreamId) -> Option<StreamClock<'_>> {
        let number = member.numbers.streams.get(&stream)?;
        let definition = self.definitions.streams.get(number)?;
        let source = self.definitions.sources.get(&definition.source)?;
        Some(StreamClock {
            clock: self.definitions.clocks.get(&source.clock)?,
            map: self.definitions.clock_maps.get(&source.clock)?,
            host: self.axis.hosts.get(member.boot_id(&self.definitions))?,
            epochs: self.epochs(source.clock),
            shifts: self
                .moves
                .shifts
                .get(member.process.index())
                .filter(|s| !s.is_empty()),
        })
    }

    /// Returns ascending times between which there are about equally many events: counted in a short run, estimated
    /// from the bytes in the heads of chunks in a long one.
    pub(crate) fn quantiles(&self) -> Vec<i64> {
        /// Few enough to be counted in less than a second. An estimate from few chunks would be poor.
        const MOST_COUNTED: u64 = 1 << 20;
        if self.expected_events() <= MOST_COUNTED
            && let Ok(times) = self.counted_quantiles()
        {
            return times;
        }
        self.estimated_quantiles()
    }

    fn counted_quantiles(&self) -> Result<Vec<i64>> {
        let all = Keep::default();
        let references = ElementReferences::of(&self.definitions);
        let every = self.expected_events().div_ceil(QUANTILES).max(1);
        let (mut count, mut times) = (0_u64, Vec::new());
        let times_of = |parts: Vec<UnnumberedChunk>| -> Vec<Vec<i64>> {
            let chunks = parts.into_iter().map(|part| {
                let groups = part.chunk.groups.into_iter();
                let mut times_ns: Vec<i64> = groups.flat_map(|group| group.times_ns).collect();
                times_ns.sort_unstable();
                times_ns
            });
            chunks.collect()
        };
        self.for_each_strip(1, &all, &references, false, &times_of, &mut |chunks| {
            for time_ns in chunks.into_iter().flatten() {
                if count.is_multiple_of(every) {
                    times.push(time_ns);
                }
                count += 1;
            }
            Ok(())
        })?;
        Ok(times)
    }

    fn estimated_quantiles(&self) -> Vec<i64> {
        /// Number of points in a chunk's time at which its events are assumed to lie.
        const POINTS: i128 = 8;
        let all = Keep::default();
        let sizes = crate::merge::runs::sizes_of(&self.definitions);
        let mut points: Vec<(i64, u64)> = Vec::new();
        let readers = self.stream_readers(&all, None);
        for reader in readers.chain(self.trace_readers(&all, None)) {
            for (first, last, bytes) in reader.spans(&sizes) {
                let (first, span) = (i128::from(first), i128::from(last) - i128::from(first));
                points.extend((0..POINTS).map(|point| {
                    let time_ns = first + span * (2 * point + 1) / (2 * POINTS);
                    (time_ns as i64, bytes)
                }));
            }
        }
        points.sort_unstable();
        let sum: u128 = points.iter().map(|(_, bytes)| u128::from(*bytes)).sum();
        let mut quantiles = Vec::new();
        let mut passed = 0_u128;
        for (time_ns, bytes) in points {
            passed += u128::from(bytes);
            while sum != 0 && (quantiles.len() as u128) < passed * u128::from(QUANTILES) / sum {
                quantiles.push(time_ns);
            }
        }
        quantiles
    }

    /// Returns the number of events in the inputs by the heads of chunks, for progress reports.
    pub(crate) fn expected_events(&self) -> u64 {
        let streams = self
            .inputs
            .members
            .iter()
            .flat_map(|m| m.input.recording.streams.values());
        let chunks = streams.flat_map(|stream| &stream.chunks);
        let chunks = chunks.map(|chunk| chunk.header.event_count);
        let of_traces = self
            .inputs
            .traces
            .iter()
            .flat_map(|trace| &trace.input.trace.chunks);
        let of_traces = of_traces.map(|entry| entry.event_count);
        chunks.chain(of_traces).fold(0, u64::saturating_add)
    }

    /// Returns, of the streams of recordings of which this number of chunks is not all, the time from which on all of them are read.
    pub(crate) fn newest_from(&self, chunks: usize) -> Vec<(StreamId, i64)> {
        let of_member = |member: &MergedProcess| -> Vec<(StreamId, i64)> {
            let streams = member.input.recording.streams.iter();
            let each = streams.filter_map(|(id, contents)| {
                let oldest = contents.chunks.len().checked_sub(chunks)?;
                let stream = member.numbers.streams[id];
                let from_ns = match contents.chunks.get(oldest) {
                    Some(first) => {
                        let clock = self.stream_clock(member, *id)?;
                        clock.bounds(&member.input, first, self.is_sorted(stream)).0
                    }
                    None => i64::MAX,
                };
                (oldest != 0).then_some((stream, from_ns))
            });
            each.collect()
        };
        self.inputs.members.iter().flat_map(of_member).collect()
    }

    /// Returns the number of threads.
    pub(crate) fn jobs(&self) -> usize {
        self.options.jobs.max(1)
    }

    /// Identities of the inputs, in merge order.
    pub(crate) fn recording_ids(&self) -> impl Iterator<Item = RecordingId> {
        self.inputs.recording_ids.iter().copied()
    }

    /// Returns the size of the inputs' files in bytes.
    pub(crate) fn input_bytes(&self) -> u64 {
        let traces = self
            .inputs
            .traces
            .iter()
            .map(|trace| trace.input.file_bytes);
        let recordings = self.inputs().map(|input| input.file_bytes);
        recordings.chain(traces).fold(0, u64::saturating_add)
    }

    /// Returns the recordings, in merge order.
    pub(crate) fn inputs(&self) -> impl Iterator<Item = &InputRecording> {
        self.inputs.members.iter().map(|member| &*member.input)
    }

    /// Returns the traces of earlier merges among the inputs.
    pub(crate) fn input_traces(&self) -> impl Iterator<Item = &InputTrace> {
        self.inputs.traces.iter().map(|trace| &trace.input)
    }

    /// Returns what is kept, of no more than these chunks of each stream of recordings.
    fn keep_of(&self, newest: &Newest) -> Keep {
        let mut keep = self.keep.clone();
        if newest.chunks < keep.newest.chunks {
            keep.newest = newest.clone();
        }
        keep
    }

    /// Reads all events in the global order and passes them to `consume`, a chunk at a time, after `prepare` has
    /// processed it in another thread. Chunk borders depend on the events alone.
    ///
    /// # Errors
    /// Those of `consume`; if no threads can be started.
    pub(crate) fn run<C: Send>(
        &self,
        newest: &Newest,
        prepare: &(dyn Fn(TraceChunk) -> C + Sync),
        consume: &mut dyn FnMut(C) -> Result<()>,
    ) -> Result<Merged> {
        let keep = self.keep_of(newest);
        self.run_keeping(&keep, false, None, &|part| prepare(part.chunk), consume)
    }

    /// Merges like [`Merge::run`], and runs `work` on each chunk in parallel to the merge, in several threads.
    /// `is_proved`: with order hashes of the input and of the result. `messages` counts the messages that the check of
    /// causality matches.
    ///
    /// # Errors
    /// Those of `consume`; if no threads can be started; if order hashes differ.
    pub(crate) fn run_with<R: Send>(
        &self,
        is_proved: bool,
        messages: Option<&mut MessageCounter<'_>>,
        work: &(dyn Fn(UnnumberedChunk) -> R + Sync),
        consume: &mut dyn FnMut(R) -> Result<()>,
    ) -> Result<Merged> {
        self.run_keeping(&self.keep, is_proved, messages, work, consume)
    }

    fn run_keeping<R: Send>(
        &self,
        keep: &Keep,
        is_proved: bool,
        messages: Option<&mut MessageCounter<'_>>,
        work: &(dyn Fn(UnnumberedChunk) -> R + Sync),
        consume: &mut dyn FnMut(R) -> Result<()>,
    ) -> Result<Merged> {
        let sorted = SortedStreams::of(&self.definitions);
        let references = ElementReferences::of(&self.definitions);
        let mut losses = Vec::new();
        let mut hashes = StreamHashes::default();
        let extractor = self.extractor();
        let mut moved = Moved::default();
        let check = extractor.as_ref().map(|all| self.check(all, keep));
        let mut check = MessageCheck::new(check, self.jobs(), messages)?;
        let is_moved = !self.moves.shifts.is_empty();
        let is_counted = check.is_counted();
        let work = |parts: Vec<UnnumberedChunk>| {
            let chunks = || parts.iter().map(|part| &part.chunk);
            let of_parts = chunks().flat_map(|chunk| &chunk.losses);
            let losses = of_parts.map(|(_, loss)| *loss).collect();
            let of_parts = chunks().filter(|_| is_proved);
            let prove = |chunk| stages::during(Stage::Prove, || proof::of_chunk(chunk, &sorted));
            let hashes = of_parts.map(prove).collect();
            let messages = extractor.iter().flat_map(|extractor| {
                let extract = move |chunk| {
                    ShardedBatch::of(match is_counted {
                        true => extractor.extract_with(chunk, Side::of),
                        false => extractor.extract(chunk),
                    })
                };
                chunks().map(move |chunk| stages::during(Stage::Extract, || extract(chunk)))
            });
            let messages = messages.collect();
            let shifts = chunks().filter(|_| is_moved).map(shifts_of).collect();
            Worked {
                losses,
                hashes,
                messages,
                shifts,
                results: parts.into_iter().map(work).collect(),
            }
        };
        let outcomes = self.for_each_strip(
            self.jobs(),
            keep,
            &references,
            is_proved,
            &work,
            &mut |worked: Worked<R>| {
                losses.extend(worked.losses);
                worked.hashes.iter().for_each(|runs| hashes.add(runs));
                worked
                    .shifts
                    .iter()
                    .flatten()
                    .for_each(|(stream, shift_ns)| moved.add(*stream, *shift_ns));
                check.feed(&worked.messages);
                worked.results.into_iter().try_for_each(&mut *consume)
            },
        )?;
        let finish = || check.finish(&self.definitions);
        let mut causality = stages::during(Stage::Match, finish);
        if let (Some(causality), Some(repair)) = (&mut causality, &self.moves.repair) {
            let mut repair = repair.clone();
            moved.report(&mut repair);
            causality.repair = Some(repair);
        }
        let hashes = is_proved.then_some(&hashes);
        self.build_report(outcomes, losses, hashes, causality)
    }

    /// Cuts the axis into strips, runs `work` on the chunks of each in several threads, and passes the results to
    /// `consume` in order. Returns what is left of the readers, grouped by those that were merged together.
    fn for_each_strip<'a, R: Send>(
        &'a self,
        jobs: usize,
        keep: &'a Keep,
        references: &'a ElementReferences,
        is_proved: bool,
        work: &(dyn Fn(Vec<UnnumberedChunk>) -> R + Sync),
        consume: &mut dyn FnMut(R) -> Result<()>,
    ) -> Result<Vec<Vec<InputOutcome<'a>>>> {
        let workers = Workers::new(jobs)?;
        let readers = self.open_readers(keep, is_proved.then_some(references));
        let streams = self.definitions.streams.len();
        let budget = Budget::of(self.options.memory_limit_bytes, streams);
        let runs = Runs {
            workers: &workers,
            references,
            budget,
            directory: &self.options.temporary_directory(),
        };
        let (readers, mut done) = runs.reduce(readers, &self.definitions, &self.inputs.identity)?;
        let has_runs = !done.is_empty();
        if has_runs {
            give_freed_memory_back();
        }
        let mut sweep = Sweep::new(readers, streams, self.options.chunk_events, budget.strips);
        let bundle = sweep.bundle();
        let most = sweep.at_once(workers.count()).div_ceil(bundle) + 1;
        // Not all strips that are loaded: threads would wait until the last one is cut.
        let next = || {
            let strips = stages::during(Stage::Sweep, || sweep.next_strips(&workers, bundle));
            match sweep.failure() {
                Some(error) => Err(error),
                None => Ok(Some(strips).filter(|strips| !strips.is_empty())),
            }
        };
        let work = |strips: Vec<Strip<'a>>| -> Vec<R> {
            stages::during(Stage::Assemble, || {
                let parts = Strip::assemble_all(&strips, references);
                parts.into_iter().map(work).collect()
            })
        };
        let take = |results: Vec<R>| results.into_iter().try_for_each(&mut *consume);
        match workers.pool() {
            None => pipeline_inline(next, work, take)?,
            Some(pool) => pipeline(pool, most, next, work, take)?,
        }
        done.push(sweep.into_outcomes().collect());
        if has_runs {
            give_freed_memory_back();
        }
        Ok(done)
    }

    /// Returns readers of all inputs: of streams in their order, then of traces.
    fn open_readers<'a>(
        &'a self,
        keep: &'a Keep,
        references: Option<&'a ElementReferences>,
    ) -> Vec<InputReader<'a>> {
        let mut readers: Vec<InputReader<'_>> = self.stream_readers(keep, references).collect();
        readers.sort_by_key(InputReader::stream);
        readers.extend(self.trace_readers(keep, references));
        readers
    }

    /// Returns readers of the streams of recordings, one after the other: all together take much memory.
    fn stream_readers<'a>(
        &'a self,
        keep: &'a Keep,
        references: Option<&'a ElementReferences>,
    ) -> impl Iterator<Item = InputReader<'a>> {
        self.inputs.members.iter().flat_map(move |member| {
            let streams = member.input.recording.streams.iter();
            streams.map(move |(id, contents)| {
                let stream = member.numbers.streams[id];
                let recorded = RecordedStream {
                    stream,
                    input: &member.input,
                    numbers: &member.numbers,
                    contents,
                    process_start_ns: member.start_ns,
                    process_end_ns: member.end_ns,
                };
                let is_sorted = self.is_sorted(stream);
                match self.stream_clock(member, *id) {
                    Some(clock) => InputReader::Stream(Box::new(StreamReader::new(
                        recorded, clock, keep, references, is_sorted,
                    ))),
                    None => InputReader::Unplaced(Box::new(UnplacedStream::new(recorded, keep))),
                }
            })
        })
    }

    /// Returns readers of the traces.
    fn trace_readers<'a>(
        &'a self,
        keep: &'a Keep,
        references: Option<&'a ElementReferences>,
    ) -> impl Iterator<Item = InputReader<'a>> {
        let sorted = SortedStreams::of(&self.definitions);
        self.inputs.traces.iter().map(move |trace| {
            let reader =
                TraceReader::new(trace, keep, references, sorted.clone(), &self.moves.shifts);
            InputReader::Trace(Box::new(reader))
        })
    }
}

/// The result of a strip.
struct Worked<R> {
    results: Vec<R>,
    losses: Vec<TraceLoss>,
    hashes: Vec<Vec<(StreamId, OrderHash)>>,
    messages: Vec<ShardedBatch<Side>>,
    /// Of each chunk, stream and shift of every event.
    shifts: Vec<Vec<(StreamId, i64)>>,
}
