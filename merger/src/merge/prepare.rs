//! Preparation before events are read: which processes are merged, in which order, and where each starts and ends on
//! the axis.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use annals_format::names::property;
use annals_format::{
    CalibrationPoint, ClockId, ClockKind, Definition, Definitions, EventType, EventTypeId, Filter,
    LocationEnd, LocationId, ProcessEnd, ProcessId, RecordingId, Role, StreamContents, TimeZero,
    Verbosity,
};

use super::clock_fits::{CounterPoints, counter_points, fit_clocks};
use super::duplicates::ChosenTraces;
use super::ranks::{RankedProcess, assign_ranks};
use super::{CHUNK_EVENTS, MEMORY_LIMIT_BYTES, Merge, MergedProcess};
use crate::axis::unify::{Numbers, Unifier, define_lost_streams};
use crate::clocks::calibration;
use crate::clocks::hosts::{HostFacts, Hosts};
use crate::clocks::offsets::ClockOffsets;
use crate::clocks::{ClockFit, MapMover};
use crate::filter::{Keep, said};
use crate::input::rank_claim::RankClaim;
use crate::input::recording::{InputRecording, Inputs, no_definitions};
use crate::input::trace::{InputTrace, RenumberedTrace};
use crate::messages::across::AcrossWorlds;
use crate::messages::causality::{Causality, MESSAGES_IN_FLIGHT};

impl Merge {
    /// Prepares a merge: ranks, definitions and clocks. The order of the inputs does not matter. A recording that is given
    /// twice, or in several traces, is taken once, from its own file if that is there.
    pub(super) fn prepare(
        inputs: Inputs,
        traces: Vec<InputTrace>,
        offsets: Option<&ClockOffsets>,
    ) -> Self {
        let (inputs, mut duplicates) = dedupe_inputs(inputs);
        let mut traces = renumber_traces(traces);
        let chosen = ChosenTraces::of(&traces, &ids_of(&inputs));
        duplicates.extend(chosen.duplicates);
        let processes = rank_processes(inputs, &traces, chosen.taken);
        let UnifiedProcesses {
            mut definitions,
            members,
            hosts: facts,
            recording_ids,
            other_points,
        } = unify_definitions(processes, &mut traces);
        let hosts = Hosts::relate(facts, &definitions.host_offsets, offsets);
        let mut fits = Vec::new();
        for (map, fit) in fit_clocks(&definitions, &members, &other_points, &hosts) {
            definitions.add(Definition::ClockMap(map));
            fits.push(fit);
        }
        fits.extend(relate_traces(&mut traces, &hosts, &mut definitions));
        let set = fits.iter().filter(|fit| !fit.epochs.is_empty());
        let epochs = set.map(|fit| (fit.clock, Arc::clone(&fit.epochs)));
        let epochs = epochs.collect();
        let mut merge = Self {
            definitions,
            fits,
            epochs,
            hosts,
            chunk_events: CHUNK_EVENTS,
            keep: Keep::default(),
            causality: Causality::default(),
            messages_in_flight: MESSAGES_IN_FLIGHT,
            memory_limit_bytes: MEMORY_LIMIT_BYTES,
            temporary_directory: std::env::temp_dir(),
            is_strict: false,
            has_overview: false,
            force: false,
            identity: Numbers::identity(),
            other_points,
            shifts: Vec::new(),
            repair: None,
            is_planned: false,
            members,
            traces,
            recording_ids,
            duplicates,
            parts: chosen.parts,
        };
        merge.move_to_zero();
        merge.define_clock_errors();
        merge.define_earlier_filters();
        merge
    }

    /// Defines the filters of earlier merges: what they left out is not in this trace either.
    fn define_earlier_filters(&mut self) {
        for number in 0..self.traces.len() {
            let trace = &self.traces[number];
            let shift_ns = trace.shift_ns;
            let left_out = trace.totals().flat_map(|(_, totals)| &totals.rows);
            let is_known = trace.input.trace.has_footer;
            if is_known && left_out.map(|row| row.filtered).all(|count| count == 0) {
                // Of what is taken it has left out nothing.
                continue;
            }
            let filters = trace.definitions().filters.clone();
            for filter in filters {
                let (from_ns, to_ns, names) = said(&filter, self.traces[number].definitions());
                let names = names.map(|text| self.definitions.intern(&text));
                let moved = |time_ns: i64| time_ns.saturating_add(shift_ns);
                self.definitions.add(Definition::Filter(Filter {
                    from_ns: from_ns.map(moved),
                    to_ns: to_ns.map(moved),
                    ranks: names[0],
                    sources: names[1],
                    locations: names[2],
                    event_types: names[3],
                }));
            }
        }
    }

    /// Moves the axis so that the trace starts at 0, and defines when each process started and ended.
    pub(super) fn move_to_zero(&mut self) {
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
            self.definitions.add(member.end());
        }
        self.add_location_ends(zero_ns);
        let mut mover = MapMover::new(zero_ns.saturating_neg());
        let maps = self.definitions.clock_maps.values_mut();
        maps.for_each(|map| mover.move_map(map));
        self.hosts.shift(zero_ns);
        self.definitions.time_zero = Some(TimeZero {
            unix_ns: self.hosts.unix_base_ns(),
            end_ns: trace_end_ns,
            reference_ns: Some(self.hosts.zero_reference_ns()),
        });
    }

    /// Defines when locations ended whose streams were all closed. Others end with their process. `zero_ns` is the moment of
    /// the axis, as the clocks' maps still have it, that becomes 0.
    fn add_location_ends(&mut self, zero_ns: i64) {
        let mut ends: BTreeMap<LocationId, Option<i64>> = BTreeMap::new();
        let location_of = |id| self.definitions.streams.get(id)?.location;
        for member in &self.members {
            let near_ns = member.end_ns.saturating_add(zero_ns);
            for (id, contents) in &member.input.recording.streams {
                let stream = member.numbers.streams.get(id);
                let Some(location) = stream.and_then(location_of) else {
                    continue;
                };
                let clock = self.stream_clock(member, *id);
                let clock =
                    clock.filter(|clock| is_closed(&member.input, contents, clock.clock.kind));
                let end_ns = clock.map(|clock| {
                    let within = member.start_ns.saturating_add(zero_ns)..=near_ns;
                    let end_ns = clock.time_near(contents.totals.close_tick, near_ns, within);
                    end_ns.saturating_sub(zero_ns)
                });
                let end = ends.entry(location).or_insert(end_ns);
                *end = end.zip(end_ns).map(|(a, b)| a.max(b));
            }
        }
        // The axis of traces is moved already.
        for trace in &self.traces {
            for (id, stream) in &trace.definitions().streams {
                let end = stream.location;
                let end = end.and_then(|id| trace.definitions().location_ends.get(&id));
                let location = trace.numbers.streams.get(id).and_then(location_of);
                if let Some((end, location)) = end.zip(location) {
                    let end_ns = end.end_ns.saturating_add(trace.shift_ns);
                    ends.insert(location, Some(end_ns));
                }
            }
        }
        for (location, end_ns) in ends {
            if let Some(end_ns) = end_ns {
                let end = LocationEnd { location, end_ns };
                self.definitions.add(Definition::LocationEnd(end));
            }
        }
    }

    /// Returns the first and the last moment of a process on the axis: what it reports itself, and its events' times. `None`
    /// means that nothing of it can be placed, for example because its definitions are lost: it must not move the others.
    fn span_of(&self, member: &MergedProcess) -> Option<(i64, i64)> {
        let recording = &member.input.recording;
        let boot_id = member.boot_id(&self.definitions);
        let axis = |reference_ns: i64| self.hosts.axis_ns(boot_id, reference_ns);
        let process = self.definitions.processes.get(&member.process);
        let mut start = process.map(|process| axis(process.start_reference_ns));
        let points = member.calibration.iter();
        let known = points
            .map(|point| point.reference_ns)
            .chain(recording.last_reference_ns);
        let known: Vec<i64> = known.map(axis).collect();
        // A start that is far from all that the recorder read of its clock is damage.
        if let (Some(started), Some(first)) = (start, known.iter().min())
            && started.abs_diff(*first) >= IMPLAUSIBLE_NS.unsigned_abs()
        {
            start = Some(*first);
        }
        let mut end = known.iter().copied().max().or(start);
        // Ticks that no clock of the run can have read keep their (saturated) times, but do not move
        // the axis under all the others.
        let (own_start, own_end) = (start.unwrap_or(0), end.unwrap_or(0));
        let is_plausible = |time_ns: i64| {
            own_start.saturating_sub(time_ns) < IMPLAUSIBLE_NS
                && time_ns.saturating_sub(own_end) < IMPLAUSIBLE_NS
        };
        for (id, contents) in &recording.streams {
            let clock = self.stream_clock(member, *id);
            let is_sorted = self.is_sorted(member.numbers.streams[id]);
            for chunk in contents.chunks.iter().filter(|c| c.header.event_count != 0) {
                let header = &chunk.header;
                let (first, last) = match &clock {
                    Some(clock) => clock.bounds(&member.input, chunk, is_sorted),
                    // Without a clock, the reference times of the chunk are all that is known.
                    None => (
                        axis(header.open_reference_ns),
                        axis(header.close_reference_ns),
                    ),
                };
                if !is_plausible(first) || !is_plausible(last) {
                    continue;
                }
                start = Some(start.map_or(first, |start| start.min(first)));
                end = Some(end.map_or(last, |end| end.max(last)));
            }
            // A recording that ends early may know when a stream was closed, and nothing later.
            if let Some(clock) = clock.filter(|_| !contents.is_open) {
                let near_ns = end.unwrap_or(own_end);
                let close_tick = contents.totals.close_tick;
                let close_ns = clock.time_near(close_tick, near_ns, i64::MIN..=i64::MAX);
                end = match is_plausible(close_ns) {
                    true => Some(close_ns.max(near_ns)),
                    false => end,
                };
            }
        }
        let start = start.or(end)?;
        Some((start, end.unwrap_or(start).max(start)))
    }
}

/// Returns whether a recording knows when a stream was closed. A clock that only its events have shown has no tick for that
/// moment, and archives of other formats do not say it.
fn is_closed(input: &InputRecording, contents: &StreamContents, clock: ClockKind) -> bool {
    let totals = &contents.totals;
    let may_be_unknown = clock == ClockKind::Unreadable || input.is_converted();
    let is_unknown = may_be_unknown && totals.close_tick == totals.last_tick;
    !contents.is_open && !is_unknown
}

/// Ten years, nanoseconds: no event lies that far outside its process's life.
const IMPLAUSIBLE_NS: i64 = 10 * 365 * 86_400 * 1_000_000_000;

/// A process to be merged, and where it is from.
enum MergedFrom {
    Recording(Box<InputRecording>),
    /// Number of the trace, and of the process in it.
    Trace(usize, ProcessId),
}

/// Returns the identities of recordings.
fn ids_of(inputs: &Inputs) -> BTreeSet<RecordingId> {
    let headers = inputs.iter().map(|input| &input.recording.header);
    headers.map(|header| header.recording_id).collect()
}

/// Leaves out recordings that are given already. Returns the files of those that are left out, too.
fn dedupe_inputs(mut inputs: Inputs) -> (Inputs, Vec<PathBuf>) {
    let mut seen: BTreeSet<RecordingId> = BTreeSet::new();
    let mut duplicates = Vec::new();
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
    (inputs, duplicates)
}

/// Sorts traces, so that the order in which they are given does not matter: those with most processes come first.
fn renumber_traces(mut traces: Vec<InputTrace>) -> Vec<RenumberedTrace> {
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
    traces.into_iter().map(RenumberedTrace::new).collect()
}

/// Assigns ranks to the processes of recordings, and to those of traces. Returns them in the order of ranks.
fn rank_processes(
    inputs: Inputs,
    traces: &[RenumberedTrace],
    of_traces: Vec<(usize, ProcessId, RecordingId)>,
) -> Vec<RankedProcess<MergedFrom>> {
    let mut claims = Vec::new();
    for (number, process, id) in of_traces {
        let trace = &traces[number];
        if let Some(own) = trace.own.get(&process) {
            let claim = RankClaim::of(own, trace.definitions(), process, id);
            claims.push((claim, MergedFrom::Trace(number, process)));
        }
    }
    for input in inputs {
        claims.push((input.rank_claim(), MergedFrom::Recording(input)));
    }
    assign_ranks(claims)
}

/// The processes of a merge, in the order of their ranks.
struct UnifiedProcesses {
    /// Those of the trace.
    definitions: Definitions,
    /// Processes that are taken from recordings.
    members: Vec<MergedProcess>,
    /// The information of each process about its host.
    hosts: Vec<HostFacts>,
    recording_ids: Vec<RecordingId>,
    /// What recordings that other processes merge have of processor counters.
    other_points: Vec<CounterPoints>,
}

/// Makes the definitions of all processes those of one trace.
fn unify_definitions(
    processes: Vec<RankedProcess<MergedFrom>>,
    traces: &mut [RenumberedTrace],
) -> UnifiedProcesses {
    let count = processes.len();
    let most_points = calibration::most_points(count);
    let mut unifier = Unifier::default();
    let mut members = Vec::with_capacity(count);
    let mut hosts = Vec::with_capacity(count);
    let mut recording_ids = Vec::with_capacity(count);
    let mut other_points = Vec::new();
    for RankedProcess {
        process: from,
        rank,
        first_rank,
        launched_as,
        id,
    } in processes
    {
        let note = |unifier: &mut Unifier, process| {
            if let Some(rank) = launched_as {
                unifier.add_property(process, property::LAUNCHED_AS_RANK, &rank.to_string());
            }
        };
        recording_ids.push(id);
        match from {
            MergedFrom::Recording(mut input) => {
                if let Some(mut left_out) = input.take_left_out() {
                    calibration::thin(&mut left_out.clocks, most_points);
                    let offsets = left_out.clocks.host_offsets.iter();
                    let offsets = offsets.map(|offset| Definition::HostOffset(*offset));
                    offsets.for_each(|offset| unifier.definitions.add(offset));
                    other_points.extend(counter_points(&left_out));
                    hosts.push(left_out.host);
                    continue;
                }
                input.unpack_definitions();
                define_lost_streams(&mut input.recording);
                let recording = &mut input.recording;
                let definitions = Arc::make_mut(&mut recording.definitions);
                let facts = HostFacts::of(definitions, definitions, recording.last_reference_ns);
                hosts.push(facts);
                calibration::thin(definitions, most_points);
                let (process, mut numbers) = unifier.add(definitions, rank, first_rank);
                note(&mut unifier, process);
                let used = types_of_chunks(&input);
                name_lost_types(&mut unifier, used, &mut numbers);
                let calibration = forget_definitions(&mut input);
                members.push(MergedProcess {
                    input,
                    calibration,
                    process,
                    numbers,
                    start_ns: 0,
                    end_ns: 0,
                });
            }
            MergedFrom::Trace(number, process) => {
                let trace = &mut traces[number];
                let definitions = &trace.input.trace.definitions;
                let numbers = &mut trace.numbers;
                if trace.processes.is_empty() {
                    unifier.add_shared(definitions, numbers);
                    let chunks = trace.input.trace.chunks.iter();
                    let used = chunks.flat_map(|entry| entry.event_types.iter().copied());
                    name_lost_types(&mut unifier, used.collect(), numbers);
                }
                let Some(own) = trace.own.get(&process) else {
                    continue;
                };
                hosts.push(HostFacts::of(own, definitions, None));
                let to = unifier.add_process(own, definitions, rank, first_rank, numbers);
                note(&mut unifier, to);
                trace.processes.insert(process, to);
            }
        }
    }
    AcrossWorlds::name_alike(&mut unifier.definitions);
    UnifiedProcesses {
        definitions: unifier.definitions,
        members,
        hosts,
        recording_ids,
        other_points,
    }
}

/// Places earlier merges' traces on the axis, and defines the maps of their clocks. Returns how well these are known.
fn relate_traces(
    traces: &mut [RenumberedTrace],
    hosts: &Hosts,
    definitions: &mut Definitions,
) -> Vec<ClockFit> {
    let mut points: BTreeMap<ClockId, usize> = BTreeMap::new();
    if !traces.is_empty() {
        let each = definitions.calibration.iter();
        each.for_each(|point| *points.entry(point.clock).or_default() += 1);
    }
    let mut fits = Vec::new();
    for trace in traces {
        trace.relate(hosts);
        for map in trace.clock_maps() {
            let points = points.get(&map.clock).copied().unwrap_or(0);
            fits.push(ClockFit::of_trace(&map, points));
            definitions.add(Definition::ClockMap(map));
        }
    }
    fits
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

/// Leaves a recording only the definitions that live pages are read with: the others are in the trace now, and a run has many
/// recordings. Returns the calibration points, which clocks are fitted with.
fn forget_definitions(input: &mut InputRecording) -> Box<[CalibrationPoint]> {
    let has_pages = input.recording.has_pages();
    let definitions = std::mem::replace(&mut input.recording.definitions, no_definitions());
    let definitions = Arc::unwrap_or_clone(definitions);
    if has_pages {
        let mut kept = Definitions::default();
        kept.streams = definitions.streams;
        kept.sources = definitions.sources;
        kept.clocks = definitions.clocks;
        input.recording.definitions = Arc::new(kept);
    }
    definitions.calibration.into_boxed_slice()
}

/// Names event types in chunks whose definition is lost.
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
