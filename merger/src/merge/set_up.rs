//! A merge is made: which processes are merged, in which order, where each starts and ends on the axis, and which events are
//! kept.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use annals_format::names::property;
use annals_format::{
    CalibrationPoint, ClockId, ClockKind, Definition, Definitions, EventType, EventTypeId, Filter,
    LocationEnd, LocationId, ProcessEnd, ProcessId, ReadAt, RecordingId, Role, Slice,
    StreamContents, TimeZero, Verbosity,
};

use super::clock_fits::{CounterPoints, counter_points, fit_clocks};
use super::duplicates::{ChosenTraces, PartialTrace};
use super::inputs::{MOST_UNPACKED, OpenedInputs};
use super::ranks::{RankedProcess, assign_ranks};
use super::{Merge, MergedInputs, MergedProcess, Moves, TimeAxis};
use crate::allocator::give_freed_memory_back;
use crate::axis::unify::{Numbers, Unifier, define_lost_streams};
use crate::clocks::calibration;
use crate::clocks::hosts::{Correction, HostFacts, HostFitReport, Hosts};
use crate::clocks::{ClockFit, MapMover};
use crate::error::{MergeError, Result};
use crate::filter::{Keep, Said, filter_of, said};
use crate::input::file::FileAt;
use crate::input::find::{RejectedInput, header_of};
use crate::input::rank_claim::RankClaim;
use crate::input::recording::{InputRecording, Inputs, no_definitions};
use crate::input::trace::{InputTrace, RenumberedTrace};
use crate::messages::across::AcrossWorlds;
use crate::options::MergeOptions;
use crate::settled::Plan;
use crate::window::{SliceNumber, Window};

impl Merge {
    /// Makes the merge of opened inputs. The order of the inputs does not matter. A recording that is given
    /// twice, or in several traces, is taken once, from its own file if that is there. Returns it with the inputs that cannot be used.
    ///
    /// # Errors
    /// If the options do not fit the inputs, the merge is strict and an input cannot be used, or no threads can be started.
    pub(crate) fn new(
        opened: OpenedInputs,
        mut options: MergeOptions,
    ) -> Result<(Self, Vec<RejectedInput>)> {
        let settled = options.settled.take();
        let OpenedInputs {
            recordings,
            traces,
            copies,
            heads_only,
            mut rejected,
        } = opened;
        let were_packed = recordings.len() > MOST_UNPACKED;
        let (mut merge, parts) = Self::on_axis(recordings, traces, options);
        if were_packed {
            // What the threads that opened them have left, no other thread can use.
            give_freed_memory_back();
        }
        merge.inputs.duplicates.extend(copies);
        rejected.extend(merge.reject_differing());
        rejected.extend(parts.into_iter().map(rejected_part));
        if let Some(input) = rejected.first().filter(|_| merge.options.strict) {
            let what = format!("{}: {}", input.path.display(), input.why);
            return Err(MergeError::Incomplete { what });
        }
        match &settled {
            Some(settled) => settled.apply(&mut merge)?,
            None => {
                merge.relate_by_collectives()?;
                merge.plan_repair()?;
            }
        }
        merge.keep_wanted(settled.as_ref(), heads_only)?;
        Ok((merge, rejected))
    }

    /// Determines ranks, definitions and clocks. Also returns the traces that may hold events which the traces that are used do
    /// not have.
    fn on_axis(
        recordings: Inputs,
        traces: Vec<InputTrace>,
        options: MergeOptions,
    ) -> (Self, Vec<PartialTrace>) {
        let (inputs, mut duplicates) = dedupe_inputs(recordings);
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
        let offsets = options.clock_offsets.as_ref();
        let hosts = Hosts::relate(facts, &definitions.host_offsets, offsets);
        let mut fits = Vec::new();
        for (map, fit) in fit_clocks(&definitions, &members, &other_points, &hosts) {
            definitions.clock_maps.entry(map.clock).or_insert(map);
            fits.push(fit);
        }
        fits.extend(relate_traces(&mut traces, &hosts, &mut definitions));
        let set = fits.iter().filter(|fit| !fit.epochs.is_empty());
        let epochs = set.map(|fit| (fit.clock, Arc::clone(&fit.epochs)));
        let epochs = epochs.collect();
        let mut merge = Self {
            options,
            definitions,
            inputs: MergedInputs {
                members,
                traces,
                recording_ids,
                other_points,
                duplicates,
                identity: Numbers::identity(),
            },
            axis: TimeAxis {
                fits,
                epochs,
                hosts,
            },
            moves: Moves::default(),
            keep: Keep::default(),
        };
        merge.move_to_zero();
        merge.define_clock_errors();
        merge.define_earlier_filters();
        (merge, chosen.parts)
    }

    /// Takes those out of the recordings given twice that hold other bytes than the one that was taken.
    fn reject_differing(&mut self) -> Vec<RejectedInput> {
        let (mut same, mut differing) = (Vec::new(), Vec::new());
        for path in std::mem::take(&mut self.inputs.duplicates) {
            let id = header_of(&path).map(|header| header.recording_id).ok();
            let mut inputs = self.inputs();
            let taken = inputs.find(|input| Some(input.recording.header.recording_id) == id);
            match taken.filter(|taken| !is_beginning(&path, &taken.path)) {
                None => same.push(path),
                Some(taken) => differing.push(RejectedInput {
                    why: format!(
                        "it says that it is recording {}, as {} does, but holds something else",
                        taken.recording.header.recording_id,
                        taken.path.display()
                    ),
                    path,
                }),
            }
        }
        self.inputs.duplicates = same;
        differing
    }

    /// Keeps only the events that are wanted; the others are counted as filtered. Times are those of the trace without a
    /// filter. `settled` has the borders of slices, if others have decided them.
    ///
    /// # Errors
    /// If a pattern matches nothing, or there is no such slice.
    fn keep_wanted(&mut self, settled: Option<&Plan>, heads_only: bool) -> Result<()> {
        let slice = self.options.slice.map(|slice| {
            let quantiles_ns = match settled {
                Some(settled) => settled.quantiles_ns.clone(),
                None => self.quantiles(),
            };
            (slice, quantiles_ns)
        });
        let MergeOptions { filter, window, .. } = &self.options;
        if !filter.is_empty() || *window != Window::ALL {
            self.keep = Keep::new(filter, *window, &mut self.definitions)?;
        }
        let part = self.options.part.as_in.take().unwrap_or_default();
        // What a trace among the inputs had left out, it has not now.
        let of_traces = self.definitions.filters.iter();
        let of_traces = of_traces.map(|filter| said(filter, &self.definitions));
        let of_traces: Vec<Said> = of_traces.collect();
        for said in part.filters.iter().filter(|said| !of_traces.contains(said)) {
            let (filter, window) = filter_of(said)?;
            let keep = Keep::new(&filter, window, &mut self.definitions)?;
            self.keep = keep.behind(std::mem::take(&mut self.keep));
        }
        self.keep.slice = part.slice;
        if let Some((slice, quantiles_ns)) = slice {
            self.keep_slice(slice, &quantiles_ns)?;
        }
        if heads_only {
            self.keep.newest.chunks = 0;
            self.keep.heads_only = true;
        }
        Ok(())
    }

    /// Keeps only a slice of time. `quantiles_ns`: candidate borders, from [`Merge::quantiles`].
    ///
    /// # Errors
    /// If there is no such slice.
    fn keep_slice(&mut self, slice: SliceNumber, quantiles_ns: &[i64]) -> Result<()> {
        let SliceNumber { number, of } = slice;
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

    /// Corrects hosts' clocks by a plan. Returns the reports of the corrections, or `None` if the plan is for other
    /// hosts.
    pub(super) fn follow_corrections(
        &mut self,
        corrections: &[Correction],
    ) -> Option<Vec<HostFitReport>> {
        let each = corrections.iter();
        let reports = each.map(|correction| self.axis.hosts.apply(*correction));
        let reports: Option<Vec<HostFitReport>> = reports.collect();
        if !corrections.is_empty() {
            self.fit_again();
        }
        reports
    }

    /// Takes over what a plan settled.
    pub(super) fn follow_plan(&mut self) {
        for member in &mut self.inputs.members {
            if let Some(end) = self.definitions.process_ends.get(&member.process) {
                (member.start_ns, member.end_ns) = (end.start_ns, end.end_ns);
            }
        }
    }

    /// Defines the filters of earlier merges: what they left out is not in this trace either.
    fn define_earlier_filters(&mut self) {
        for number in 0..self.inputs.traces.len() {
            let trace = &self.inputs.traces[number];
            let shift_ns = trace.shift_ns;
            let left_out = trace.totals().flat_map(|(_, totals)| &totals.rows);
            let is_known = trace.input.trace.has_footer;
            if is_known && left_out.map(|row| row.filtered).all(|count| count == 0) {
                // Of what is taken it has left out nothing.
                continue;
            }
            let filters = trace.definitions().filters.clone();
            for filter in filters {
                let (from_ns, to_ns, names) =
                    said(&filter, self.inputs.traces[number].definitions());
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
        let spans = self
            .inputs
            .members
            .iter()
            .map(|member| self.span_of(member));
        let spans: Vec<Option<(i64, i64)>> = spans.collect();
        let of_traces = self.inputs.traces.iter().flat_map(|trace| {
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
        for trace in &mut self.inputs.traces {
            trace.shift_ns = trace.shift_ns.saturating_sub(zero_ns);
        }
        for (member, span) in self.inputs.members.iter_mut().zip(spans) {
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
        self.axis.hosts.shift(zero_ns);
        self.definitions.time_zero = Some(TimeZero {
            unix_ns: self.axis.hosts.unix_base_ns(),
            end_ns: trace_end_ns,
            reference_ns: Some(self.axis.hosts.zero_reference_ns()),
        });
    }

    /// Defines when locations ended whose streams were all closed. Others end with their process. `zero_ns` is the moment of
    /// the axis, as the clocks' maps still have it, that becomes 0.
    fn add_location_ends(&mut self, zero_ns: i64) {
        let mut ends: BTreeMap<LocationId, Option<i64>> = BTreeMap::new();
        let location_of = |id| self.definitions.streams.get(id)?.location;
        for member in &self.inputs.members {
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
        for trace in &self.inputs.traces {
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
        let axis = |reference_ns: i64| self.axis.hosts.axis_ns(boot_id, reference_ns);
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
            definitions.clock_maps.entry(map.clock).or_insert(map);
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

/// Returns whether a file is the beginning of another, byte for byte. False if one cannot be read.
fn is_beginning(path: &Path, of: &Path) -> bool {
    const STEP: u64 = 1 << 20;
    let is_beginning = || -> Result<bool> {
        let (part, whole) = (FileAt::open(path)?, FileAt::open(of)?);
        let format = MergeError::format(path);
        let length = part.len().map_err(format)?;
        if length > whole.len().map_err(format)? {
            return Ok(false);
        }
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for offset in (0..length).step_by(STEP as usize) {
            for (file, bytes) in [(&part, &mut ours), (&whole, &mut theirs)] {
                bytes.resize((length - offset).min(STEP) as usize, 0);
                file.read_exact_at(offset, bytes).map_err(format)?;
            }
            if ours != theirs {
                return Ok(false);
            }
        }
        Ok(true)
    };
    is_beginning().unwrap_or(false)
}

/// Returns why a trace cannot be used that may hold other events of a recording than the trace that it was taken from.
fn rejected_part(part: PartialTrace) -> RejectedInput {
    let PartialTrace {
        path,
        taken,
        recording,
    } = part;
    let why = format!(
        "it holds other events of recording {recording} than {}, and a recording is taken from one trace: merge the \
         recordings themselves, or write parts as slices, which can be joined",
        taken.display()
    );
    RejectedInput { path, why }
}
