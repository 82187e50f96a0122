//! The merge: recordings in, one global order out, chunk by chunk.
//!
//! The order is (trace time, rank, recording id, stream, position). Processes are numbered by rank and
//! recording id, streams by process and their number in it, so that (time, number of the stream)
//! decides between streams; within a stream its own order does.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Mutex;

use annals_format::ticks::unwrap_near;
use annals_format::{
    Clock, ClockId, ClockKind, ClockMap, Definition, Definitions, EventType, EventTypeId, Filter,
    OrderHash, Ordering, ProcessEnd, ProcessId, Rank, RecordingId, Role, Slice, StreamId,
    StreamTotals, TimeZero, TraceChunk, TraceLoss, TypeTotals, UNBOUNDED, Verbosity,
};

use rayon::prelude::*;

use crate::bounds;
use crate::causality::{Causality, CausalityReport, Check, MESSAGES_IN_FLIGHT, RepairReport};
use crate::clocks::{self, ClockFit, Point};
use crate::earlier::{Earlier, InputTrace, TraceReader};
use crate::error::{MergeError, Result};
use crate::filter::{EventFilter, FilterError, Keep};
use crate::hosts::{HostFacts, Hosts};
use crate::hulls::Hulls;
use crate::input::InputRecording;
use crate::matching::Mark;
use crate::messages::{self, Extractor, Lost, MessageBatch};
use crate::offsets::ClockOffsets;
use crate::open::Window;
use crate::proof::{self, ElementReferences, SortedStreams, StreamHashes};
use crate::reader::Reader;
use crate::repair::{Repair, Shifts};
use crate::report::{InputReport, Report, StreamReport};
use crate::runs::{Budget, Runs};
use crate::stream::{StreamClock, StreamReader};
use crate::sweep::Sweep;
use crate::unify::{Numbers, Unifier};
use crate::window::{Part, Scratch, Shape};

/// A recording in the order of the merge.
#[derive(Debug)]
struct Member {
    input: InputRecording,
    process: ProcessId,
    numbers: Numbers,
    start_ns: i64,
    end_ns: i64,
}

/// What a merge will do: definitions and clock maps are settled, events are not read yet.
#[derive(Debug)]
pub struct Merge {
    /// Definitions of the trace.
    pub definitions: Definitions,
    /// How well the clocks are known.
    pub fits: Vec<ClockFit>,
    /// How the hosts' clocks are related.
    pub(crate) hosts: Hosts,
    /// Events of a chunk of the trace; with many streams, up to twice as many.
    pub chunk_events: usize,
    /// What is done about messages.
    pub causality: Causality,
    /// Messages that may be in flight at once; those beyond are counted, not matched.
    pub messages_in_flight: usize,
    /// Memory that events may take, bytes: what does not fit is merged in several passes, to the same trace.
    /// Definitions and indexes come on top.
    pub memory_limit_bytes: u64,
    /// Where the files of several passes go; they have no names, and are gone with the program.
    pub temporary_directory: PathBuf,
    /// Whether no trace is written when an input is damaged or cut off, or a rank is missing.
    pub is_strict: bool,
    /// Leaves references as they are.
    identity: Numbers,
    keep: Keep,
    /// By process, how causality repair moves its events; empty when it does not.
    pub(crate) shifts: Vec<Shifts>,
    pub(crate) repair: Option<RepairReport>,
    /// What a repair does is settled.
    is_planned: bool,
    members: Vec<Member>,
    /// Traces among the inputs.
    traces: Vec<Earlier>,
    /// Identities of all recordings, in merge order.
    recording_ids: Vec<RecordingId>,
    /// Files that hold a recording given already.
    pub(crate) duplicates: Vec<std::path::PathBuf>,
}

/// What a merge did.
#[derive(Debug)]
pub struct Merged {
    /// Totals of every stream, by its number in the trace.
    pub totals: Vec<StreamTotals>,
    /// Every loss, in the order of the trace.
    pub losses: Vec<TraceLoss>,
    /// Everything about it.
    pub report: Report,
}

/// Events of a chunk of the trace, unless it is set otherwise.
const CHUNK_EVENTS: usize = 1 << 16;

/// Pairs of hosts whose messages are looked at for a fit.
const MOST_HOST_PAIRS: usize = 1 << 16;

/// Memory that events may take unless the user says otherwise.
pub const MEMORY_LIMIT_BYTES: u64 = 256 << 20;

/// Ten years, nanoseconds: no event lies that far outside its process's life.
const IMPLAUSIBLE_NS: i64 = 10 * 365 * 86_400 * 1_000_000_000;

/// What is known of the host of a recording.
fn host_of(
    definitions: &Definitions,
    texts: &Definitions,
    last_reference_ns: Option<i64>,
) -> HostFacts {
    let process = definitions.processes.values().next();
    let points = definitions.calibration.iter();
    let first = points.clone().min_by_key(|point| point.reference_ns);
    let at_start = process.map(|p| p.start_unix_ns.saturating_sub(p.start_reference_ns));
    let unix_offset_ns = first
        .map(|point| point.unix_offset_ns)
        .or(at_start)
        .unwrap_or(0);
    let steps = points
        .clone()
        .map(|point| point.unix_offset_ns.abs_diff(unix_offset_ns));
    let moments = points.map(|point| point.reference_ns);
    let moments = moments.chain(process.map(|process| process.start_reference_ns));
    let moments = moments.chain(last_reference_ns);
    HostFacts {
        boot_id: process.map_or([0; 16], |process| process.boot_id),
        name: process.map_or_else(String::new, |p| texts.string(p.host).to_owned()),
        unix_offset_ns,
        unix_step_ns: steps.max().unwrap_or(0),
        span: (
            moments.clone().min().unwrap_or(0),
            moments.max().unwrap_or(0),
        ),
    }
}

fn boot_id_of(input: &InputRecording) -> [u8; 16] {
    let process = input.recording.definitions.processes.values().next();
    process.map_or([0; 16], |process| process.boot_id)
}

/// A process to be merged, and where it is from.
enum Candidate {
    Recording(Box<InputRecording>),
    /// Number of the trace, and of the process in it.
    Trace(usize, ProcessId),
}

/// What decides about a process's place.
struct Place {
    rank: Option<Rank>,
    start_unix_ns: i64,
    id: RecordingId,
}

impl Place {
    fn of(definitions: &Definitions, process: ProcessId, id: RecordingId) -> Self {
        let rank = definitions.ranks.get(&process).copied();
        let process = definitions.processes.get(&process);
        Self {
            // What a merger gave is given anew.
            rank: rank.filter(|rank| !rank.is_assigned),
            start_unix_ns: process.map_or(i64::MAX, |process| process.start_unix_ns),
            id,
        }
    }
}

/// Ranks: as recorded; recordings without one are numbered behind the highest, by their start.
fn give_ranks(mut candidates: Vec<(Place, Candidate)>) -> Vec<(Candidate, Rank, RecordingId)> {
    let ranks = candidates.iter().filter_map(|(place, _)| place.rank);
    let highest = ranks.map(|rank| rank.rank).max();
    let mut next = highest.map_or(0, |highest| highest.saturating_add(1));
    candidates.sort_by_key(|(place, _)| (place.start_unix_ns, place.id));
    let ranked = candidates.into_iter().map(|(place, candidate)| {
        let rank = place.rank.unwrap_or_else(|| {
            next = next.saturating_add(1);
            Rank {
                process: ProcessId::new(0),
                rank: next - 1,
                rank_count: None,
                is_assigned: true,
            }
        });
        (candidate, rank, place.id)
    });
    let mut ranked: Vec<_> = ranked.collect();
    ranked.sort_by_key(|(_, rank, id)| (rank.rank, *id));
    ranked
}

impl Merge {
    /// Settles ranks, definitions and clocks of recordings. The order in which they are given does not
    /// matter; a recording that is given twice is taken once.
    pub fn plan(inputs: Vec<InputRecording>) -> Self {
        Self::plan_with(inputs, None)
    }

    /// The same, with hosts related by what the user measured.
    pub fn plan_with(inputs: Vec<InputRecording>, offsets: Option<&ClockOffsets>) -> Self {
        Self::plan_all(inputs, Vec::new(), offsets)
    }

    /// The same, with traces of earlier merges among the inputs. A recording that is in several of them
    /// is taken once, from its own file if that is there.
    pub fn plan_all(
        inputs: Vec<InputRecording>,
        traces: Vec<InputTrace>,
        offsets: Option<&ClockOffsets>,
    ) -> Self {
        let mut seen: BTreeSet<RecordingId> = BTreeSet::new();
        let mut duplicates = Vec::new();
        let mut inputs = inputs;
        // Of two files with one identity the same one must win, whatever the order of arguments: one that
        // is finished, the longer one.
        let key = |input: &InputRecording| {
            let is_finished = input.recording.has_footer;
            std::cmp::Reverse((is_finished, input.file_bytes))
        };
        inputs.sort_by(|a, b| (key(a), &a.path).cmp(&(key(b), &b.path)));
        inputs.retain(|input| {
            let is_new = seen.insert(input.recording.header.recording_id);
            if !is_new {
                duplicates.push(input.path.clone());
            }
            is_new
        });
        let mut traces = traces;
        traces.sort_by(|a, b| {
            let key = |t: &InputTrace| (t.trace.has_footer, t.trace.definitions.processes.len());
            let by_size = (key(b), b.file_bytes).cmp(&(key(a), a.file_bytes));
            let by_name = || {
                a.trace
                    .header
                    .recording_id
                    .cmp(&b.trace.header.recording_id)
            };
            by_size.then_with(by_name).then_with(|| a.path.cmp(&b.path))
        });
        let mut traces: Vec<Earlier> = traces.into_iter().map(Earlier::new).collect();
        let mut candidates = Vec::new();
        for (number, trace) in traces.iter().enumerate() {
            let mut has_duplicate = false;
            for (process, id) in trace.recording_ids() {
                if seen.insert(id) {
                    let place = Place::of(trace.definitions(), process, id);
                    candidates.push((place, Candidate::Trace(number, process)));
                } else {
                    has_duplicate = true;
                }
            }
            if has_duplicate {
                duplicates.push(trace.input.path.clone());
            }
        }
        for input in inputs {
            let id = input.recording.header.recording_id;
            let definitions = &input.recording.definitions;
            let process = definitions.ranks.keys().chain(definitions.processes.keys());
            let process = process.copied().next().unwrap_or(ProcessId::new(0));
            let place = Place::of(definitions, process, id);
            candidates.push((place, Candidate::Recording(Box::new(input))));
        }
        let mut unifier = Unifier::default();
        let mut members = Vec::new();
        let mut facts = Vec::new();
        let mut recording_ids = Vec::new();
        for (candidate, rank, id) in give_ranks(candidates) {
            recording_ids.push(id);
            match candidate {
                Candidate::Recording(input) => {
                    let input = *input;
                    let recording = &input.recording;
                    let definitions = &recording.definitions;
                    facts.push(host_of(
                        definitions,
                        definitions,
                        recording.last_reference_ns,
                    ));
                    let (process, mut numbers) = unifier.add(definitions, rank);
                    let used = types_of_chunks(&input);
                    name_lost_types(&mut unifier, used, &mut numbers);
                    members.push(Member {
                        input,
                        process,
                        numbers,
                        start_ns: 0,
                        end_ns: 0,
                    });
                }
                Candidate::Trace(number, process) => {
                    let trace = &mut traces[number];
                    let definitions = &trace.input.trace.definitions;
                    if trace.processes.is_empty() {
                        unifier.add_shared(definitions, &mut trace.numbers);
                        let chunks = trace.input.trace.chunks.iter();
                        let used = chunks.flat_map(|entry| entry.event_types.iter().copied());
                        name_lost_types(&mut unifier, used.collect(), &mut trace.numbers);
                    }
                    let Some(own) = trace.own.get(&process) else {
                        continue;
                    };
                    facts.push(host_of(own, definitions, None));
                    let to = unifier.add_process(own, definitions, rank, &mut trace.numbers);
                    trace.processes.insert(process, to);
                }
            }
        }
        let mut definitions = unifier.definitions;
        let hosts = Hosts::relate(facts, &definitions.host_offsets, offsets);
        let mut fits = Vec::new();
        for (map, fit) in fit_clocks(&definitions, &members, &hosts) {
            definitions.add(Definition::ClockMap(map));
            fits.push(fit);
        }
        for trace in &mut traces {
            trace.relate(&hosts);
            for map in trace.clock_maps() {
                let points = definitions.calibration.iter();
                let points = points.filter(|point| point.clock == map.clock).count();
                fits.push(ClockFit::of_trace(&map, points));
                definitions.add(Definition::ClockMap(map));
            }
        }
        let mut merge = Self {
            definitions,
            fits,
            hosts,
            chunk_events: CHUNK_EVENTS,
            keep: Keep::default(),
            causality: Causality::default(),
            messages_in_flight: MESSAGES_IN_FLIGHT,
            memory_limit_bytes: MEMORY_LIMIT_BYTES,
            temporary_directory: std::env::temp_dir(),
            is_strict: false,
            identity: Numbers::identity(),
            shifts: Vec::new(),
            repair: None,
            is_planned: false,
            members,
            traces,
            recording_ids,
            duplicates,
        };
        merge.settle_zero();
        merge.bound_errors();
        merge.take_filters();
        merge
    }

    /// What earlier merges left out stands in this trace, too.
    fn take_filters(&mut self) {
        for number in 0..self.traces.len() {
            let trace = &self.traces[number];
            let shift_ns = trace.shift_ns;
            let filters = trace.definitions().filters.clone();
            for filter in filters {
                let names = [
                    filter.ranks,
                    filter.sources,
                    filter.locations,
                    filter.event_types,
                ];
                let names = names.map(|id| {
                    let text = self.traces[number].definitions().string(id).to_owned();
                    self.definitions.intern(&text)
                });
                let moved = |time_ns: i64| time_ns.saturating_add(shift_ns);
                self.definitions.add(Definition::Filter(Filter {
                    from_ns: filter.from_ns.map(moved),
                    to_ns: filter.to_ns.map(moved),
                    ranks: names[0],
                    sources: names[1],
                    locations: names[2],
                    event_types: names[3],
                }));
            }
        }
    }

    /// Says how wrong the times of each clock may be.
    fn bound_errors(&mut self) {
        let mut alike: BTreeMap<([u8; 16], ClockKind, u64), ClockId> = BTreeMap::new();
        let fits: BTreeMap<ClockId, &ClockFit> =
            self.fits.iter().map(|fit| (fit.clock, fit)).collect();
        let mut errors = Vec::new();
        for member in &self.members {
            let boot_id = boot_id_of(&member.input);
            let Some(host) = self.hosts.get(boot_id) else {
                continue;
            };
            for number in member.numbers.clocks.values() {
                let (Some(clock), Some(fit)) =
                    (self.definitions.clocks.get(number), fits.get(number))
                else {
                    continue;
                };
                let first = match clock.kind {
                    ClockKind::Reference | ClockKind::Tsc => {
                        let identity = (boot_id, clock.kind, clock.ticks_per_second);
                        *alike.entry(identity).or_insert(*number)
                    }
                    ClockKind::Readable | ClockKind::Unreadable => *number,
                };
                let ends = (member.start_ns, member.end_ns);
                errors.push(bounds::clock_error(*number, first, &fit.own, host, ends));
            }
        }
        for (number, trace) in self.traces.iter().enumerate() {
            let of_recordings = self.members.iter().map(|member| boot_id_of(&member.input));
            let others = self.traces.iter().enumerate();
            let others = others.filter(|(other, _)| *other != number);
            let of_others = others.flat_map(|(_, other)| {
                let taken = other.own.iter();
                let taken = taken.filter(|(process, _)| other.processes.contains_key(process));
                let processes = taken.flat_map(|(_, own)| own.processes.values());
                processes.map(|process| process.boot_id)
            });
            let boots: BTreeSet<[u8; 16]> = of_recordings.chain(of_others).collect();
            errors.extend(trace.clock_errors(|boot_id| boots.contains(boot_id)));
        }
        for error in errors {
            self.definitions.add(Definition::ClockError(error));
        }
    }

    /// Moves the axis so that the trace starts at 0, and notes when each process started and ended.
    fn settle_zero(&mut self) {
        let spans = self.members.iter().map(|member| self.span_of(member));
        let spans: Vec<Option<(i64, i64)>> = spans.collect();
        let of_traces = self.traces.iter().flat_map(|trace| {
            let each = trace.processes.iter();
            each.filter_map(|(from, to)| Some((trace.shift_ns, *to, trace.span_of(*from)?)))
        });
        let of_traces = of_traces.map(|(shift_ns, process, end)| ProcessEnd {
            process,
            start_ns: end.start_ns.saturating_add(shift_ns),
            end_ns: end.end_ns.saturating_add(shift_ns),
            ..end
        });
        let of_traces: Vec<ProcessEnd> = of_traces.collect();
        let known = spans.iter().flatten().map(|(start_ns, _)| *start_ns);
        let known = known.chain(of_traces.iter().map(|end| end.start_ns));
        let zero_ns = known.min().unwrap_or(0);
        let mut trace_end_ns = 0;
        for end in of_traces {
            let end = ProcessEnd {
                start_ns: end.start_ns.saturating_sub(zero_ns),
                end_ns: end.end_ns.saturating_sub(zero_ns),
                ..end
            };
            trace_end_ns = trace_end_ns.max(end.end_ns);
            self.definitions.add(Definition::ProcessEnd(end));
        }
        for trace in &mut self.traces {
            trace.shift_ns = trace.shift_ns.saturating_sub(zero_ns);
        }
        for (member, span) in self.members.iter_mut().zip(spans) {
            let (start_ns, end_ns) = span.unwrap_or((zero_ns, zero_ns));
            member.start_ns = start_ns.saturating_sub(zero_ns);
            member.end_ns = end_ns.saturating_sub(zero_ns);
            trace_end_ns = trace_end_ns.max(member.end_ns);
            self.definitions.add(Definition::ProcessEnd(ProcessEnd {
                process: member.process,
                ended: member.input.recording.ended,
                start_ns: member.start_ns,
                end_ns: member.end_ns,
            }));
        }
        for map in self.definitions.clock_maps.values_mut() {
            for knot in &mut map.knots {
                knot.1 = knot.1.saturating_sub(zero_ns);
            }
        }
        self.hosts.shift(zero_ns);
        self.definitions.time_zero = Some(TimeZero {
            unix_ns: self.hosts.unix_base_ns(),
            end_ns: trace_end_ns,
        });
    }

    /// First and last moment of a process on the axis: its own words, and its events'; none when nothing of
    /// it can be placed, as when its definitions are lost: it must not move the others.
    fn span_of(&self, member: &Member) -> Option<(i64, i64)> {
        let recording = &member.input.recording;
        let boot_id = boot_id_of(&member.input);
        let axis = |reference_ns: i64| self.hosts.axis_ns(boot_id, reference_ns);
        let process = recording.definitions.processes.values().next();
        let mut start = process.map(|process| axis(process.start_reference_ns));
        let points = recording.definitions.calibration.iter();
        let known = points
            .map(|point| point.reference_ns)
            .chain(recording.last_reference_ns);
        let mut end = known.map(axis).max().or(start);
        // Ticks that no clock of the run can have read keep their (saturated) times, but do not move
        // the axis under all the others.
        let (own_start, own_end) = (start.unwrap_or(0), end.unwrap_or(0));
        let is_plausible = |time_ns: i64| {
            own_start.saturating_sub(time_ns) < IMPLAUSIBLE_NS
                && time_ns.saturating_sub(own_end) < IMPLAUSIBLE_NS
        };
        for (id, contents) in &recording.streams {
            let Some(clock) = self.stream_clock(member, *id) else {
                continue;
            };
            for chunk in contents.chunks.iter().filter(|c| c.header.event_count != 0) {
                let (first, last) = clock.bounds(&member.input, chunk);
                if !is_plausible(first) || !is_plausible(last) {
                    continue;
                }
                start = Some(start.map_or(first, |start| start.min(first)));
                end = Some(end.map_or(last, |end| end.max(last)));
            }
        }
        let start = start.or(end)?;
        Some((start, end.unwrap_or(start).max(start)))
    }

    fn stream_clock(&self, member: &Member, stream: StreamId) -> Option<StreamClock<'_>> {
        let number = member.numbers.streams.get(&stream)?;
        let definition = self.definitions.streams.get(number)?;
        let source = self.definitions.sources.get(&definition.source)?;
        Some(StreamClock {
            clock: self.definitions.clocks.get(&source.clock)?,
            map: self.definitions.clock_maps.get(&source.clock)?,
            host: self.hosts.get(boot_id_of(&member.input))?,
            shifts: self
                .shifts
                .get(member.process.index())
                .filter(|s| !s.is_empty()),
        })
    }

    /// Keeps only some events; the others are counted as filtered. Times are those of the trace without
    /// a filter. To be called at most once.
    ///
    /// # Errors
    /// If a pattern cannot be read or matches nothing.
    pub fn filter(&mut self, filter: &EventFilter, window: Window) -> Result<(), FilterError> {
        self.keep = Keep::new(filter, window, &mut self.definitions)?;
        Ok(())
    }

    /// Writes only one of so many slices of time, the first being 1; [`crate::join()`] puts them together. To be called
    /// behind [`Merge::filter`], at most once. `borders_ns`: where slices end, from [`Merge::quantiles`].
    ///
    /// # Errors
    /// If there is no such slice.
    pub fn slice(&mut self, number: u32, of: u32, quantiles_ns: &[i64]) -> Result<()> {
        if number == 0 || number > of {
            return Err(MergeError::NoSuchSlice { number, of });
        }
        let border = |number: u32| -> Option<i64> {
            let at = (quantiles_ns.len() as u64 * u64::from(number)) / u64::from(of);
            let last = quantiles_ns.last().copied().unwrap_or(0);
            (number != 0 && number != of)
                .then(|| quantiles_ns.get(at as usize).copied().unwrap_or(last))
        };
        let (from_ns, to_ns) = (border(number - 1), border(number));
        self.keep.slice = Window {
            from_ns: from_ns.unwrap_or(i64::MIN),
            to_ns: to_ns.unwrap_or(i64::MAX),
        };
        let slice = Slice {
            number,
            of,
            from_ns,
            to_ns,
        };
        self.definitions.add(Definition::Slice(slice));
        Ok(())
    }

    /// Takes over what a plan settled.
    pub(crate) fn follow_plan(&mut self) {
        self.is_planned = true;
        for member in &mut self.members {
            if let Some(end) = self.definitions.process_ends.get(&member.process) {
                (member.start_ns, member.end_ns) = (end.start_ns, end.end_ns);
            }
        }
    }

    /// Times between which about equally many bytes of events are, ascending.
    pub fn quantiles(&self) -> Vec<i64> {
        const QUANTILES: u128 = 1 << 12;
        /// A chunk's events are taken to lie at so many points of its time.
        const POINTS: i128 = 8;
        let all = Keep::default();
        let sizes = crate::runs::sizes_of(&self.definitions);
        let mut points: Vec<(i64, u64)> = Vec::new();
        for reader in self.open_readers(&all, None) {
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
            while sum != 0 && (quantiles.len() as u128) < passed * QUANTILES / sum {
                quantiles.push(time_ns);
            }
        }
        quantiles
    }

    /// Events that the inputs hold, as far as heads tell: for progress.
    pub fn expected_events(&self) -> u64 {
        let streams = self
            .members
            .iter()
            .flat_map(|m| m.input.recording.streams.values());
        let chunks = streams.flat_map(|stream| &stream.chunks);
        let chunks = chunks.map(|chunk| chunk.header.event_count);
        let of_traces = self
            .traces
            .iter()
            .flat_map(|trace| &trace.input.trace.chunks);
        let of_traces = of_traces.map(|entry| entry.event_count);
        chunks.chain(of_traces).fold(0, u64::saturating_add)
    }

    /// Identities of the inputs, in merge order.
    pub fn recording_ids(&self) -> impl Iterator<Item = RecordingId> {
        self.recording_ids.iter().copied()
    }

    /// Bytes of the inputs' files.
    pub fn input_bytes(&self) -> u64 {
        let traces = self.traces.iter().map(|trace| trace.input.file_bytes);
        let recordings = self.inputs().map(|input| input.file_bytes);
        recordings.chain(traces).fold(0, u64::saturating_add)
    }

    /// The recordings, in merge order.
    pub fn inputs(&self) -> impl Iterator<Item = &InputRecording> {
        self.members.iter().map(|member| &member.input)
    }

    /// The traces of earlier merges among the inputs.
    pub fn input_traces(&self) -> impl Iterator<Item = &InputTrace> {
        self.traces.iter().map(|trace| &trace.input)
    }

    /// Reads all events in the global order and gives them to `consume`, a chunk at a time. Chunk
    /// borders depend on the events alone.
    ///
    /// # Errors
    /// Those of `consume`; if no threads can be had.
    pub fn run(
        &self,
        jobs: usize,
        consume: impl FnMut(TraceChunk) -> Result<()>,
    ) -> Result<Merged> {
        self.run_with(jobs, false, |part| part.chunk, consume)
    }

    /// As [`Merge::run`], with `work` done on each chunk beside the merge, by as many threads as `jobs`
    /// says. `is_proved`: with order hashes of what is read and of what is made of it.
    ///
    /// # Errors
    /// Those of `consume`; if no threads can be had; if order hashes differ.
    pub(crate) fn run_with<R: Send>(
        &self,
        jobs: usize,
        is_proved: bool,
        work: impl Fn(Part) -> R + Sync,
        mut consume: impl FnMut(R) -> Result<()>,
    ) -> Result<Merged> {
        let sorted = SortedStreams::of(&self.definitions);
        let references = ElementReferences::of(&self.definitions);
        let mut losses = Vec::new();
        let mut hashes = StreamHashes::default();
        let extractor = self.extractor();
        let mut moved = Moved::default();
        let mut check = extractor
            .as_ref()
            .map(|extractor| self.check(extractor, &self.keep));
        let is_moved = !self.shifts.is_empty();
        let work = |parts: Vec<Part>| {
            let chunks = || parts.iter().map(|part| &part.chunk);
            let of_parts = chunks().flat_map(|chunk| &chunk.losses);
            let losses = of_parts.map(|(_, loss)| *loss).collect();
            let of_parts = chunks().filter(|_| is_proved);
            let hashes = of_parts
                .map(|chunk| proof::of_chunk(chunk, &sorted))
                .collect();
            let messages = extractor.iter();
            let messages = messages.flat_map(|e| chunks().map(|chunk| e.extract(chunk)));
            let messages = messages.collect();
            let shifts = chunks().filter(|_| is_moved).map(shifts_of).collect();
            Worked {
                losses,
                hashes,
                messages,
                shifts,
                results: parts.into_iter().map(&work).collect(),
            }
        };
        let readers =
            self.for_each_window(jobs, &self.keep, &references, is_proved, work, |worked| {
                losses.extend(worked.losses);
                worked.hashes.iter().for_each(|runs| hashes.add(runs));
                worked.shifts.iter().flatten().for_each(|s| moved.add(*s));
                if let Some(check) = &mut check {
                    let batches = worked.messages.iter();
                    batches.for_each(|batch| check.feed(batch, &mut |_, _| {}));
                }
                worked.results.into_iter().try_for_each(&mut consume)
            })?;
        let mut causality = check.map(|check| check.finish(&self.definitions));
        if let (Some(causality), Some(repair)) = (&mut causality, &self.repair) {
            let mut repair = repair.clone();
            moved.report(&mut repair);
            causality.repair = Some(repair);
        }
        let hashes = is_proved.then_some(&hashes);
        self.conclude(readers, losses, hashes, causality)
    }

    /// Cuts the axis into windows, has `work` make something of the chunks of each, by as many threads
    /// as `jobs` says, and gives it to `consume` in order. What is left are the readers.
    fn for_each_window<'a, R: Send>(
        &'a self,
        jobs: usize,
        keep: &'a Keep,
        references: &'a ElementReferences,
        is_proved: bool,
        work: impl Fn(Vec<Part>) -> R + Sync,
        mut consume: impl FnMut(R) -> Result<()>,
    ) -> Result<Vec<Reader<'a>>> {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(jobs.max(1));
        let pool = pool.build().map_err(|error| MergeError::Threads {
            source: std::io::Error::other(error),
        })?;
        let readers = self.open_readers(keep, is_proved.then_some(references));
        let streams = self.definitions.streams.len();
        let budget = Budget::of(self.memory_limit_bytes);
        let runs = Runs {
            pool: &pool,
            references,
            budget,
            directory: &self.temporary_directory,
        };
        let (readers, mut done) = runs.reduce(readers, &self.definitions, &self.identity)?;
        let mut sweep = Sweep::new(readers, streams, self.chunk_events, budget.windows);
        let shape = Shape {
            references,
            most_events: sweep.window_events(),
        };
        let scratches: Mutex<Vec<Scratch>> = Mutex::default();
        loop {
            let windows = sweep.next_windows(&pool);
            if let Some(error) = sweep.failure() {
                return Err(error);
            }
            if windows.is_empty() {
                done.extend(sweep.into_readers());
                return Ok(done);
            }
            let results: Vec<R> = pool.install(|| {
                let each = windows.into_par_iter().map(|window| {
                    let spare = lock(&scratches).pop();
                    let mut scratch = spare.unwrap_or_default();
                    let parts = window.assemble(&shape, &mut scratch);
                    lock(&scratches).push(scratch);
                    drop(window);
                    work(parts)
                });
                each.collect()
            });
            results.into_iter().try_for_each(&mut consume)?;
        }
    }

    /// Plans what [`Causality::Repair`] asks for: reads all messages, also those that a filter leaves out, and
    /// settles how events are moved. Without violations nothing is changed. To be called before the merge is run;
    /// does nothing otherwise.
    ///
    /// # Errors
    /// If no threads can be had.
    pub fn plan_repair(&mut self, jobs: usize) -> Result<()> {
        if self.causality != Causality::Repair || self.repair.is_some() || self.is_planned {
            return Ok(());
        }
        if let Some(trace) = self.traces.first() {
            let path = trace.input.path.clone();
            return Err(MergeError::RepairOfTrace { path });
        }
        let Some(extractor) = self.extractor() else {
            return Ok(());
        };
        let boots = self.members.iter().map(|member| boot_id_of(&member.input));
        let boots: Vec<[u8; 16]> = boots.collect();
        let mut hulls: BTreeMap<([u8; 16], [u8; 16]), Hulls> = BTreeMap::new();
        let mut gather = |from: Mark, to: Mark| {
            let boot = |mark: Mark| boots.get(mark.process as usize).copied();
            let (Some(sender), Some(receiver)) = (boot(from), boot(to)) else {
                return;
            };
            if sender == receiver {
                return;
            }
            let is_full = hulls.len() >= MOST_HOST_PAIRS;
            if !is_full || hulls.contains_key(&(receiver, sender)) {
                let of_receiver = hulls.entry((receiver, sender)).or_default();
                of_receiver.child_received(to.time_ns, from.time_ns);
            }
            if !is_full || hulls.contains_key(&(sender, receiver)) {
                let of_sender = hulls.entry((sender, receiver)).or_default();
                of_sender.child_sent(from.time_ns, to.time_ns);
            }
        };
        let mut check = self.check(&extractor, &Keep::default());
        self.read_messages(jobs, &extractor, |batch| check.feed(batch, &mut gather))?;
        let before = check.violations();
        if before.count == 0 {
            return Ok(());
        }
        let mut report = RepairReport {
            before,
            ..RepairReport::default()
        };
        let base = boots.first().copied().unwrap_or_default();
        report.hosts = self.hosts.correct(base, hulls);
        if !report.hosts.is_empty() {
            self.fit_again();
            check = self.check(&extractor, &Keep::default());
            self.read_messages(jobs, &extractor, |batch| check.feed(batch, &mut |_, _| {}))?;
        }
        let lag_ns = check.lag_ns();
        if check.violations().count == 0 {
            self.repair = Some(report);
            return Ok(());
        }
        let mut repair = Repair::new(extractor.processes(), self.messages_in_flight, lag_ns);
        for member in &self.members {
            repair.lose(member.process.get(), self.lost_somewhere(member));
        }
        self.read_messages(jobs, &extractor, |batch| repair.feed(batch))?;
        let (shifts, left) = repair.finish();
        self.shifts = shifts;
        let moved = self.shifts.iter().filter(|shifts| !shifts.is_empty());
        report.processes = moved.count() as u64;
        report.over_limit = left.over_limit;
        self.repair = Some(report);
        self.move_ends();
        Ok(())
    }

    /// Fits the clocks to hosts whose times have changed.
    fn fit_again(&mut self) {
        let fits = fit_clocks(&self.definitions, &self.members, &self.hosts);
        self.fits.clear();
        for (map, fit) in fits {
            self.definitions.clock_maps.insert(map.clock, map);
            self.fits.push(fit);
        }
        self.settle_zero();
        self.bound_errors();
    }

    /// A pass over the messages alone.
    fn read_messages(
        &self,
        jobs: usize,
        extractor: &Extractor,
        mut each: impl FnMut(&MessageBatch),
    ) -> Result<()> {
        let (all, references) = (Keep::default(), ElementReferences::of(&self.definitions));
        let work = |parts: Vec<Part>| -> Vec<MessageBatch> {
            let each = parts.iter().map(|part| extractor.extract(&part.chunk));
            each.collect()
        };
        self.for_each_window(jobs, &all, &references, false, work, |batches| {
            batches.iter().for_each(&mut each);
            Ok(())
        })?;
        Ok(())
    }

    /// The ends of processes move with their events.
    fn move_ends(&mut self) {
        let mut trace_end_ns = 0;
        for member in &mut self.members {
            if let Some(shifts) = self.shifts.get(member.process.index()) {
                member.end_ns = shifts.moved(member.end_ns);
            }
            trace_end_ns = trace_end_ns.max(member.end_ns);
            self.definitions.add(Definition::ProcessEnd(ProcessEnd {
                process: member.process,
                ended: member.input.recording.ended,
                start_ns: member.start_ns,
                end_ns: member.end_ns,
            }));
        }
        if let Some(zero) = &mut self.definitions.time_zero {
            zero.end_ns = trace_end_ns;
        }
    }

    /// What takes messages out of the events, if there are any and they are wanted.
    fn extractor(&self) -> Option<Extractor> {
        if self.causality == Causality::Off {
            return None;
        }
        let mut carries = BTreeMap::new();
        for member in &self.members {
            for (id, contents) in &member.input.recording.streams {
                if let Some(number) = member.numbers.streams.get(id) {
                    carries.insert(*number, self.carried(&member.numbers, &contents.totals));
                }
            }
        }
        for trace in &self.traces {
            for (number, totals) in trace.totals() {
                carries.insert(number, self.carried(&trace.numbers, totals));
            }
        }
        Extractor::of(&self.definitions, &carries)
    }

    /// What a loss of any type in a stream may have had.
    fn carried(&self, numbers: &Numbers, totals: &StreamTotals) -> Lost {
        let is_vague = |row: &TypeTotals| {
            row.raised_is_lower_bound || row.event_type == annals_format::ANY_EVENT_TYPE
        };
        if totals.rows.iter().any(is_vague) {
            return Lost::ALL;
        }
        let raised = totals.rows.iter().filter(|row| row.raised != 0);
        let types = raised.filter_map(|row| numbers.event_types.get(&row.event_type));
        messages::carried(&self.definitions, types.copied())
    }

    fn check(&self, extractor: &Extractor, keep: &Keep) -> Check {
        let mut check = Check::new(
            extractor,
            &self.definitions,
            self.messages_in_flight,
            self.causality,
        );
        for member in &self.members {
            // What a filter left out may have been the other half of any message.
            let lost = if keep.is_all() {
                self.lost_somewhere(member)
            } else {
                Lost::ALL
            };
            check.lose(member.process.get(), lost);
        }
        for trace in &self.traces {
            let is_all = keep.is_all() && trace.definitions().filters.is_empty();
            // By process once: a trace has as many streams as all of them together.
            let mut of_process: BTreeMap<ProcessId, Vec<(StreamId, &StreamTotals)>> =
                BTreeMap::new();
            for (number, totals) in trace.totals() {
                if let Some(process) = self.definitions.process_of(number) {
                    of_process
                        .entry(process)
                        .or_default()
                        .push((number, totals));
                }
            }
            for process in trace.processes.values() {
                let streams = of_process.remove(process).unwrap_or_default().into_iter();
                let streams = streams.map(|(number, totals)| (Some(number), totals));
                let lost = match is_all {
                    true => self.lost_of(&trace.numbers, streams),
                    false => Lost::ALL,
                };
                check.lose(process.get(), lost);
            }
        }
        check
    }

    /// Messages that a process lost, and nobody can say when: what a sample or a limit kept out has no
    /// place in its stream; what was lost from one stream of several, or from one that is sorted, stands
    /// behind events that came after it.
    fn lost_somewhere(&self, member: &Member) -> Lost {
        let streams = member.input.recording.streams.iter();
        let streams = streams.map(|(id, contents)| {
            let number = member.numbers.streams.get(id).copied();
            (number, &contents.totals)
        });
        self.lost_of(&member.numbers, streams)
    }

    fn lost_of<'a>(
        &self,
        numbers: &Numbers,
        streams: impl Iterator<Item = (Option<StreamId>, &'a StreamTotals)>,
    ) -> Lost {
        let mut lost = Lost::default();
        let mut carrying = 0;
        let mut with_losses = Lost::default();
        for (number, totals) in streams {
            let of_stream = self.carried(numbers, totals);
            carrying += usize::from(of_stream.is_any());
            let of_rows = |is_wanted: fn(&TypeTotals) -> bool| {
                let rows = totals.rows.iter().filter(|row| is_wanted(row));
                let mut lost = Lost::default();
                for row in rows {
                    let number = numbers.event_types.get(&row.event_type).copied();
                    let more = match number {
                        Some(number) => {
                            messages::carried(&self.definitions, std::iter::once(number))
                        }
                        None => of_stream,
                    };
                    lost.add(more);
                }
                lost
            };
            lost.add(of_rows(|row| row.suppressed != 0));
            let dropped = of_rows(|row| row.dropped_sum() + row.skipped + row.truncated != 0);
            let stream = number.and_then(|number| self.definitions.streams.get(&number));
            let source = stream.and_then(|stream| self.definitions.sources.get(&stream.source));
            let has_place = stream.is_some_and(|stream| stream.location.is_some())
                && source.is_some_and(|source| source.ordering == Ordering::Ordered);
            if has_place {
                with_losses.add(dropped);
            } else {
                lost.add(dropped);
            }
        }
        if carrying > 1 {
            lost.add(with_losses);
        }
        lost
    }

    fn open_readers<'a>(
        &'a self,
        keep: &'a Keep,
        references: Option<&'a ElementReferences>,
    ) -> Vec<Reader<'a>> {
        let mut readers: Vec<StreamReader<'_>> = Vec::new();
        for member in &self.members {
            for (id, contents) in &member.input.recording.streams {
                let Some(clock) = self.stream_clock(member, *id) else {
                    continue;
                };
                let number = member.numbers.streams[id];
                let source = self.definitions.streams[&number].source;
                let ordering = self.definitions.sources[&source].ordering;
                readers.push(StreamReader::new(
                    number,
                    &member.input,
                    &member.numbers,
                    contents,
                    clock,
                    keep,
                    references,
                    ordering == Ordering::Unordered,
                    (member.start_ns, member.end_ns),
                ));
            }
        }
        readers.sort_by_key(|reader| reader.stream);
        let readers = readers.into_iter().map(|r| Reader::Stream(Box::new(r)));
        let sorted = SortedStreams::of(&self.definitions);
        let traces = self.traces.iter().map(|trace| {
            let reader = TraceReader::new(trace, keep, references, sorted.clone());
            Reader::Trace(Box::new(reader))
        });
        readers.chain(traces).collect()
    }

    fn conclude(
        &self,
        readers: Vec<Reader<'_>>,
        losses: Vec<TraceLoss>,
        hashes: Option<&StreamHashes>,
        causality: Option<CausalityReport>,
    ) -> Result<Merged> {
        let mut of_streams: Vec<(StreamTotals, StreamReport)> = Vec::new();
        let mut unplaced = BTreeMap::new();
        for reader in readers {
            match reader {
                Reader::Stream(reader) => {
                    of_streams.push(self.conclude_stream(&reader, hashes)?);
                }
                // What it has was read by others before.
                Reader::Run(_) => {}
                Reader::Trace(reader) => {
                    if let Some(process) = reader.earlier.processes.values().min() {
                        unplaced.insert(*process, reader.unplaced);
                    }
                    for (totals, findings, miscounted) in reader.conclude() {
                        let stream = totals.stream;
                        let totals = StreamTotals {
                            order_hash: hashes.map(|hashes| hashes.get(stream).value()),
                            ..totals
                        };
                        if hashes.is_some_and(|h| h.get(stream) != reader.hashes.get(stream)) {
                            let path = reader.earlier.input.path.clone();
                            return Err(MergeError::Unproven { path, stream });
                        }
                        let definitions = &self.definitions;
                        let report = StreamReport::new(definitions, &totals, &findings, miscounted);
                        of_streams.push((totals, report));
                    }
                }
            }
        }
        of_streams.sort_by_key(|(totals, _)| totals.stream);
        let (totals, streams): (Vec<_>, Vec<_>) = of_streams.into_iter().unzip();
        for member in &self.members {
            for (id, contents) in &member.input.recording.streams {
                if !member.numbers.streams.contains_key(id) {
                    let chunks = contents.chunks.iter();
                    let sum: &mut u64 = unplaced.entry(member.process).or_insert(0);
                    *sum = chunks.fold(*sum, |sum, chunk| {
                        sum.saturating_add(chunk.header.event_count)
                    });
                }
            }
        }
        let unplaced = |process: ProcessId| unplaced.get(&process).copied().unwrap_or(0);
        let inputs = self.members.iter().map(|member| {
            let process = member.process;
            let report =
                InputReport::new(&member.input, &self.definitions, process, unplaced(process));
            (process, report)
        });
        let of_traces = self.traces.iter().flat_map(|trace| {
            let first = trace.processes.values().min().copied();
            trace.processes.values().map(move |process| {
                let is_first = first == Some(*process);
                let report = InputReport::of_trace(
                    &trace.input,
                    &self.definitions,
                    *process,
                    (is_first, unplaced(*process)),
                );
                (*process, report)
            })
        });
        let mut inputs: Vec<(ProcessId, InputReport)> = inputs.chain(of_traces).collect();
        inputs.sort_by_key(|(process, _)| *process);
        let mut report = Report::new(
            inputs.into_iter().map(|(_, report)| report).collect(),
            streams,
            &totals,
            &losses,
            self,
            self.duplicates.clone(),
        );
        report.causality = causality;
        let is_whole =
            |trace: &InputTrace| trace.trace.has_footer && trace.trace.problems.is_empty();
        report.complete &= self.input_traces().all(is_whole);
        Ok(Merged {
            totals,
            losses,
            report,
        })
    }

    fn conclude_stream(
        &self,
        reader: &StreamReader<'_>,
        hashes: Option<&StreamHashes>,
    ) -> Result<(StreamTotals, StreamReport)> {
        let mut of_trace = StreamTotals {
            stream: reader.stream,
            rows: Vec::new(),
            order_hash: hashes.map(|hashes| hashes.get(reader.stream).value()),
            ..reader.totals.clone()
        };
        if hashes.is_some_and(|hashes| hashes.get(reader.stream) != reader.hash) {
            return Err(MergeError::Unproven {
                path: reader.input.path.clone(),
                stream: reader.stream,
            });
        }
        let mut miscounted = 0;
        for row in &reader.totals.rows {
            let number = reader.numbers.event_types.get(&row.event_type);
            let event_type = number.copied().unwrap_or(annals_format::ANY_EVENT_TYPE);
            let to = of_trace.row(event_type);
            *to = add_rows(*to, row);
            let found = reader.findings.present.get(&row.event_type).copied();
            let difference = row.present().abs_diff(found.unwrap_or(0));
            miscounted = difference.saturating_add(miscounted);
        }
        let report = StreamReport::new(&self.definitions, &of_trace, &reader.findings, miscounted);
        Ok((of_trace, report))
    }
}

/// What became of a window.
struct Worked<R> {
    results: Vec<R>,
    losses: Vec<TraceLoss>,
    hashes: Vec<Vec<(StreamId, OrderHash)>>,
    messages: Vec<MessageBatch>,
    /// Of each chunk, stream and shift of every event.
    shifts: Vec<Vec<(StreamId, i64)>>,
}

fn shifts_of(chunk: &TraceChunk) -> Vec<(StreamId, i64)> {
    let streams = chunk.streams.iter().copied();
    let shifts = (0..chunk.len()).map(|index| chunk.shift_ns(index));
    streams.zip(shifts).collect()
}

/// What a repair moved.
#[derive(Default)]
struct Moved {
    /// By stream, the shift of its last event.
    last: Vec<Option<i64>>,
    events: u64,
    sum_ns: u128,
    largest_ns: u64,
    neighbours: u64,
    changes_ns: u128,
    largest_change_ns: u64,
}

impl Moved {
    fn add(&mut self, (stream, shift): (StreamId, i64)) {
        if self.last.len() <= stream.index() {
            self.last.resize(stream.index() + 1, None);
        }
        if let Some(last) = self.last[stream.index()].replace(shift) {
            let change = shift.abs_diff(last);
            self.neighbours += 1;
            self.changes_ns += u128::from(change);
            self.largest_change_ns = self.largest_change_ns.max(change);
        }
        self.events += u64::from(shift != 0);
        self.sum_ns += u128::from(shift.unsigned_abs());
        self.largest_ns = self.largest_ns.max(shift.unsigned_abs());
    }

    fn report(&self, report: &mut RepairReport) {
        report.events = self.events;
        report.largest_shift_ns = self.largest_ns;
        report.mean_shift_ns = (self.sum_ns / u128::from(self.events.max(1))) as u64;
        report.largest_interval_change_ns = self.largest_change_ns;
        let neighbours = u128::from(self.neighbours.max(1));
        report.mean_interval_change_ns = (self.changes_ns / neighbours) as u64;
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

pub(crate) fn add_rows(a: TypeTotals, b: &TypeTotals) -> TypeTotals {
    TypeTotals {
        event_type: a.event_type,
        raised: a.raised.saturating_add(b.raised),
        raised_is_lower_bound: a.raised_is_lower_bound || b.raised_is_lower_bound,
        recorded: a.recorded.saturating_add(b.recorded),
        suppressed: a.suppressed.saturating_add(b.suppressed),
        dropped: std::array::from_fn(|code| a.dropped[code].saturating_add(b.dropped[code])),
        skipped: a.skipped.saturating_add(b.skipped),
        truncated: a.truncated.saturating_add(b.truncated),
        filtered: a.filtered.saturating_add(b.filtered),
    }
}

fn types_of_chunks(input: &InputRecording) -> BTreeSet<EventTypeId> {
    let streams = input.recording.streams.values();
    let headers = streams
        .flat_map(|stream| &stream.chunks)
        .map(|chunk| &chunk.header);
    headers
        .flat_map(|header| &header.counts)
        .map(|(event_type, _)| *event_type)
        .collect()
}

/// Event types that chunks hold and whose definition is lost get a name that says so.
fn name_lost_types(unifier: &mut Unifier, used: BTreeSet<EventTypeId>, numbers: &mut Numbers) {
    for event_type in used {
        numbers.event_types.entry(event_type).or_insert_with(|| {
            let number = EventTypeId::new(unifier.definitions.event_types.len() as u32);
            let name = unifier.string(&format!("event-type-{}", event_type.get()));
            let description = unifier.string("its definition is lost");
            unifier.definitions.add(Definition::EventType(EventType {
                id: number,
                name,
                description,
                verbosity: Verbosity::UserBasic,
                role: Role::Point,
                key_element: None,
                elements: Vec::new(),
            }));
            number
        });
    }
}

/// Fits every clock of every process. Processor counters of one boot are one clock: their points are
/// pooled, so that ticks of two processes compare directly.
fn fit_clocks(
    definitions: &Definitions,
    members: &[Member],
    hosts: &Hosts,
) -> Vec<(ClockMap, ClockFit)> {
    let mut pools: BTreeMap<[u8; 16], Vec<Point>> = BTreeMap::new();
    let mut own: BTreeMap<ClockId, Vec<Point>> = BTreeMap::new();
    for member in members {
        let boot_id = boot_id_of(&member.input);
        for (id, number) in &member.numbers.clocks {
            let clock = &definitions.clocks[number];
            let calibration = &member.input.recording.definitions.calibration;
            let raw: Vec<(u64, i64, u64)> = calibration
                .iter()
                .filter(|point| point.clock == *id)
                .map(|point| (point.tick, point.reference_ns, point.error_ns))
                .collect();
            let mut points = clocks::unwrap_points(clock, &raw);
            if clock.kind == ClockKind::Reference {
                // Ticks are the reference clock; wherever the recording has none, this holds.
                points.insert(
                    0,
                    Point {
                        tick: 0,
                        time_ns: 0,
                        error_ns: 0,
                    },
                );
            }
            if points.is_empty() {
                points.extend(point_from_events(definitions, member, *number));
            }
            if clock.kind == ClockKind::Tsc {
                pools.entry(boot_id).or_default().extend(&points);
            }
            own.insert(*number, points);
        }
    }
    for pool in pools.values_mut() {
        pool.sort_by_key(|point| (point.time_ns, point.tick));
    }
    let mut fits = Vec::new();
    // One fit for all that share points and rate: a run has as many clocks as processes.
    let mut pooled: BTreeMap<([u8; 16], u64), (ClockMap, ClockFit)> = BTreeMap::new();
    for member in members {
        let boot_id = boot_id_of(&member.input);
        let fit = |number: ClockId, clock: &Clock, points: &[Point]| {
            let (map, fit) = clocks::fit(number, clock, points);
            match hosts.get(boot_id) {
                Some(host) => (clocks::on_axis(&map, clock.kind, host), fit),
                None => (map, fit),
            }
        };
        for number in member.numbers.clocks.values() {
            let clock = &definitions.clocks[number];
            let pool = pools.get(&boot_id);
            let (Some(pool), ClockKind::Tsc) = (pool, clock.kind) else {
                fits.push(fit(*number, clock, &own[number]));
                continue;
            };
            let key = (boot_id, clock.ticks_per_second);
            let known = pooled.entry(key);
            let (map, of_pool) = known.or_insert_with(|| fit(*number, clock, pool));
            let map = ClockMap {
                clock: *number,
                ..map.clone()
            };
            let of_clock = ClockFit {
                clock: *number,
                ..of_pool.clone()
            };
            fits.push((map, of_clock));
        }
    }
    fits
}

/// A clock that cannot be read is tied to the axis by its events: none was observed before it
/// happened, so the tightest observation gives the offset.
fn point_from_events(
    definitions: &Definitions,
    member: &Member,
    clock_number: ClockId,
) -> Option<Point> {
    let clock: &Clock = &definitions.clocks[&clock_number];
    let recording = &member.input.recording;
    let mut best: Option<(i128, Point)> = None;
    let mut base: Option<(i128, i64)> = None;
    for (id, contents) in &recording.streams {
        let number = member.numbers.streams.get(id);
        let stream = number.and_then(|number| definitions.streams.get(number));
        let source = stream.and_then(|stream| definitions.sources.get(&stream.source));
        if source.is_none_or(|source| source.clock != clock_number) {
            continue;
        }
        for stored in &contents.chunks {
            let Ok(chunk) = member.input.load(stored) else {
                continue;
            };
            for (index, reference_ns) in &chunk.observations {
                let Some(tick) = chunk.ticks.get(*index as usize) else {
                    continue;
                };
                let time_ns = *reference_ns;
                let (base_tick, base_ns) = *base.get_or_insert((i128::from(*tick), time_ns));
                let passed = i128::from(time_ns) - i128::from(base_ns);
                let expected = base_tick.saturating_add(clocks::ticks_in(clock, passed));
                let (tick, _) = unwrap_near(*tick, expected, clock.max_ticks);
                // How late the observation is, up to a constant.
                let lateness = expected.saturating_sub(tick);
                if best.is_none_or(|(least, _)| lateness < least) {
                    let point = Point {
                        tick,
                        time_ns,
                        // How late even the tightest one was, nobody knows.
                        error_ns: UNBOUNDED,
                    };
                    best = Some((lateness, point));
                }
            }
        }
    }
    best.map(|(_, point)| point)
}

/// Ranks that a run should have and that no recording is of: below the number of ranks that a
/// recording states, else below the highest that is there.
pub fn missing_ranks(definitions: &Definitions) -> Vec<u32> {
    let ranks = definitions.ranks.values().filter(|rank| !rank.is_assigned);
    let present: BTreeSet<u32> = ranks.clone().map(|rank| rank.rank).collect();
    let stated = ranks.filter_map(|rank| rank.rank_count).max().unwrap_or(0);
    let highest = present.last().map_or(0, |rank| rank.saturating_add(1));
    // A hostile count must not become a list of four billion.
    let expected = stated.max(highest).min(1 << 20);
    (0..expected)
        .filter(|rank| !present.contains(rank))
        .collect()
}
