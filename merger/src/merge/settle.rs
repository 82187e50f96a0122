//! What is settled before events are read: who takes part, in which order, and how each clock becomes the axis.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use annals_format::{
    BootId, Clock, ClockId, ClockKind, ClockMap, Definition, Definitions, EventType, EventTypeId,
    Filter, ProcessEnd, ProcessId, Rank, RecordingId, Role, TimeZero, Verbosity,
};

use super::options::MEMORY_LIMIT_BYTES;
use super::shares::Shares;
use super::{CHUNK_EVENTS, Member, Merge};
use crate::axis::unify::{Numbers, Unifier, define_lost_streams};
use crate::clocks::bounds::Course;
use crate::clocks::calibration;
use crate::clocks::hosts::{HostFacts, Hosts};
use crate::clocks::observed::Observed;
use crate::clocks::offsets::ClockOffsets;
use crate::clocks::steps::{ClockPoints, unwrap_points};
use crate::clocks::{self, ClockFit, MapMover, Point};
use crate::filter::{Keep, said};
use crate::input::recording::InputRecording;
use crate::input::trace::{Earlier, InputTrace};
use crate::messages::causality::{Causality, MESSAGES_IN_FLIGHT};

impl Merge {
    /// Settles ranks, definitions and clocks. The order of the inputs does not matter. A recording that is given twice, or in
    /// several traces, is taken once, from its own file if that is there.
    pub(super) fn plan_all(
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
        let shares = Shares::of(&traces, &seen);
        for (number, process, id) in shares.taken {
            let trace = &traces[number];
            if let Some(own) = trace.own.get(&process) {
                let place = Place::of(own, trace.definitions(), process, id);
                candidates.push((place, Candidate::Trace(number, process)));
            }
        }
        duplicates.extend(shares.duplicates);
        for input in inputs {
            let id = input.recording.header.recording_id;
            let definitions = &input.recording.definitions;
            let process = definitions.ranks.keys().chain(definitions.processes.keys());
            let process = process.copied().next().unwrap_or(ProcessId::new(0));
            let place = Place::of(definitions, definitions, process, id);
            candidates.push((place, Candidate::Recording(Box::new(input))));
        }
        let mut unifier = Unifier::default();
        let mut members = Vec::with_capacity(candidates.len());
        let mut facts = Vec::with_capacity(candidates.len());
        let mut recording_ids = Vec::with_capacity(candidates.len());
        let most_points = calibration::most_points(candidates.len());
        for (candidate, rank, first_rank, id) in give_ranks(candidates) {
            recording_ids.push(id);
            match candidate {
                Candidate::Recording(mut input) => {
                    input.unpack_definitions();
                    define_lost_streams(&mut input.recording);
                    let recording = &mut input.recording;
                    let definitions = &mut recording.definitions;
                    facts.push(host_of(
                        definitions,
                        definitions,
                        recording.last_reference_ns,
                    ));
                    calibration::thin(definitions, most_points);
                    let (process, mut numbers) = unifier.add(definitions, rank, first_rank);
                    let used = types_of_chunks(&input);
                    name_lost_types(&mut unifier, used, &mut numbers);
                    forget_names(&mut input);
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
                    let to =
                        unifier.add_process(own, definitions, rank, first_rank, &mut trace.numbers);
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
        let mut points: BTreeMap<ClockId, usize> = BTreeMap::new();
        if !traces.is_empty() {
            let each = definitions.calibration.iter();
            each.for_each(|point| *points.entry(point.clock).or_default() += 1);
        }
        for trace in &mut traces {
            trace.relate(&hosts);
            for map in trace.clock_maps() {
                let points = points.get(&map.clock).copied().unwrap_or(0);
                fits.push(ClockFit::of_trace(&map, points));
                definitions.add(Definition::ClockMap(map));
            }
        }
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
            force: false,
            identity: Numbers::identity(),
            shifts: Vec::new(),
            repair: None,
            is_planned: false,
            members,
            traces,
            recording_ids,
            duplicates,
            parts: shares.parts,
        };
        merge.settle_zero();
        merge.bound_errors();
        merge.take_filters();
        merge
    }

    /// What earlier merges left out stands in this trace, too.
    pub(super) fn take_filters(&mut self) {
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

    /// Says how wrong the times of each clock may be.
    pub(super) fn bound_errors(&mut self) {
        let mut alike: BTreeMap<(BootId, ClockKind, u64), ClockId> = BTreeMap::new();
        let fits: BTreeMap<ClockId, &ClockFit> =
            self.fits.iter().map(|fit| (fit.clock, fit)).collect();
        let mut errors = Vec::new();
        // One fit's after the other: of a long run each has many corners.
        let mut lives = BTreeMap::new();
        for member in &self.members {
            let boot_id = member.boot_id(&self.definitions);
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
                let place = (boot_id, Arc::as_ptr(&fit.own));
                let (_, of_fit) = lives
                    .entry(place)
                    .or_insert_with(|| ((host, &*fit.own), Vec::new()));
                of_fit.push((*number, first, ends));
            }
        }
        for ((host, own), lives) in lives.into_values() {
            let course = Course::new(own, host);
            let each = lives.into_iter();
            errors.extend(each.map(|(number, alike, (start_ns, end_ns))| {
                course.clock_error(number, alike, start_ns, end_ns)
            }));
        }
        for (number, trace) in self.traces.iter().enumerate() {
            let of_recordings = self
                .members
                .iter()
                .map(|member| member.boot_id(&self.definitions));
            let others = self.traces.iter().enumerate();
            let others = others.filter(|(other, _)| *other != number);
            let of_others = others.flat_map(|(_, other)| {
                let taken = other.own.iter();
                let taken = taken.filter(|(process, _)| other.processes.contains_key(process));
                let processes = taken.flat_map(|(_, own)| own.processes.values());
                processes.map(|process| process.boot_id)
            });
            let boots: BTreeSet<BootId> = of_recordings.chain(of_others).collect();
            errors.extend(trace.clock_errors(|boot_id| boots.contains(boot_id)));
        }
        for error in errors {
            self.definitions.add(Definition::ClockError(error));
        }
    }

    /// Moves the axis so that the trace starts at 0, and notes when each process started and ended.
    pub(super) fn settle_zero(&mut self) {
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

    /// First and last moment of a process on the axis: its own words, and its events'; none when nothing of
    /// it can be placed, as when its definitions are lost: it must not move the others.
    pub(super) fn span_of(&self, member: &Member) -> Option<(i64, i64)> {
        let recording = &member.input.recording;
        let boot_id = member.boot_id(&self.definitions);
        let axis = |reference_ns: i64| self.hosts.axis_ns(boot_id, reference_ns);
        let process = self.definitions.processes.get(&member.process);
        let mut start = process.map(|process| axis(process.start_reference_ns));
        let points = recording.definitions.calibration.iter();
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
                let close_ns = clock.time_near(contents.totals.close_tick, near_ns);
                end = match is_plausible(close_ns) {
                    true => Some(close_ns.max(near_ns)),
                    false => end,
                };
            }
        }
        let start = start.or(end)?;
        Some((start, end.unwrap_or(start).max(start)))
    }

    /// Fits the clocks to hosts whose times have changed.
    pub(super) fn fit_again(&mut self) {
        let fits = fit_clocks(&self.definitions, &self.members, &self.hosts);
        self.fits.clear();
        for (map, fit) in fits {
            self.definitions.clock_maps.insert(map.clock, map);
            self.fits.push(fit);
        }
        self.settle_zero();
        self.bound_errors();
    }
}

/// Ten years, nanoseconds: no event lies that far outside its process's life.
const IMPLAUSIBLE_NS: i64 = 10 * 365 * 86_400 * 1_000_000_000;

/// A process to be merged, and where it is from.
enum Candidate {
    Recording(Box<InputRecording>),
    /// Number of the trace, and of the process in it.
    Trace(usize, ProcessId),
}

/// What decides about a process's place.
struct Place {
    /// As its world counts.
    rank: Option<Rank>,
    run: String,
    world: Option<String>,
    start_unix_ns: i64,
    id: RecordingId,
}

impl Place {
    /// `texts` has the strings.
    fn of(
        definitions: &Definitions,
        texts: &Definitions,
        process: ProcessId,
        id: RecordingId,
    ) -> Self {
        let rank = definitions.ranks.get(&process).copied();
        let world = definitions.worlds.get(&process);
        let first_rank = definitions.first_rank(process);
        let process = definitions.processes.get(&process);
        let own = |rank: Rank| Rank {
            rank: rank.rank.saturating_sub(first_rank),
            rank_count: rank
                .rank_count
                .map(|count| count.saturating_sub(first_rank)),
            ..rank
        };
        Self {
            // What a merger gave is given anew.
            rank: rank.filter(|rank| !rank.is_assigned).map(own),
            run: process.map_or_else(String::new, |process| texts.string(process.run).to_owned()),
            world: world
                .map(|world| texts.string(world.name).to_owned())
                .filter(|name| !name.is_empty()),
            start_unix_ns: process.map_or(i64::MAX, |process| process.start_unix_ns),
            id,
        }
    }
}

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
        boot_id: process.map_or_else(BootId::default, |process| process.boot_id),
        name: process.map_or_else(String::new, |p| texts.string(p.host).to_owned()),
        unix_offset_ns,
        unix_step_ns: steps.max().unwrap_or(0),
        span: (
            moments.clone().min().unwrap_or(0),
            moments.max().unwrap_or(0),
        ),
    }
}

/// The first rank of each world: those of a run follow one another, as SPEC.md (Worlds) says.
fn first_ranks<'a>(
    places: impl Iterator<Item = &'a Place>,
) -> BTreeMap<(&'a str, Option<&'a str>), u32> {
    /// More ranks than this nobody says without harm: a hostile count must not take all there are.
    const MOST_STATED: u32 = 1 << 20;
    let mut worlds: BTreeMap<(&str, Option<&str>), (i64, u32)> = BTreeMap::new();
    for place in places {
        let Some(rank) = place.rank else { continue };
        let stated = rank.rank_count.unwrap_or(0).min(MOST_STATED);
        let (start_ns, size) = worlds
            .entry((&place.run, place.world.as_deref()))
            .or_insert((i64::MAX, 0));
        *start_ns = place.start_unix_ns.min(*start_ns);
        *size = stated.max(rank.rank.saturating_add(1)).max(*size);
    }
    let mut in_order: Vec<_> = worlds.into_iter().collect();
    in_order.sort_by_key(|((run, world), (start_ns, _))| (*run, *start_ns, *world));
    let mut next: BTreeMap<&str, u32> = BTreeMap::new();
    let each = in_order.into_iter().map(|((run, world), (_, size))| {
        let next = next.entry(run).or_default();
        let first = *next;
        *next = first.saturating_add(size);
        ((run, world), first)
    });
    each.collect()
}

/// Ranks, and the first of each one's world: as recorded, world behind world; recordings without one are numbered behind
/// the highest, by their start.
fn give_ranks(mut candidates: Vec<(Place, Candidate)>) -> Vec<(Candidate, Rank, u32, RecordingId)> {
    candidates.sort_by_key(|(place, _)| (place.start_unix_ns, place.id));
    let firsts = first_ranks(candidates.iter().map(|(place, _)| place));
    let firsts = candidates.iter().map(|(place, _)| {
        let world = (place.run.as_str(), place.world.as_deref());
        firsts.get(&world).copied().unwrap_or(0)
    });
    let firsts: Vec<u32> = firsts.collect();
    let ranked = candidates.into_iter().zip(firsts);
    let ranked = ranked.map(|((place, candidate), first)| {
        let in_run = |rank: Rank| Rank {
            rank: rank.rank.saturating_add(first),
            rank_count: rank.rank_count.map(|count| count.saturating_add(first)),
            ..rank
        };
        (candidate, place.rank.map(in_run), first, place.id)
    });
    let ranked: Vec<_> = ranked.collect();
    let highest = ranked.iter().filter_map(|(_, rank, ..)| *rank);
    let highest = highest.map(|rank| rank.rank).max();
    let mut next = highest.map_or(0, |highest| highest.saturating_add(1));
    let ranked = ranked.into_iter().map(|(candidate, rank, first, id)| {
        let rank = rank.unwrap_or_else(|| {
            next = next.saturating_add(1);
            Rank {
                process: ProcessId::new(0),
                rank: next - 1,
                rank_count: None,
                is_assigned: true,
            }
        });
        (candidate, rank, first, id)
    });
    let mut ranked: Vec<_> = ranked.collect();
    ranked.sort_by_key(|(_, rank, _, id)| (rank.rank, *id));
    ranked
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

/// Leaves a recording only the definitions that clocks are fitted with, and those that live pages are read with: the
/// others stand in the trace now, and a run has many recordings.
fn forget_names(input: &mut InputRecording) {
    let has_pages = input.recording.has_pages();
    let definitions = &mut input.recording.definitions;
    let mut kept = Definitions::default();
    if has_pages {
        kept.streams = std::mem::take(&mut definitions.streams);
        kept.sources = std::mem::take(&mut definitions.sources);
        kept.clocks = std::mem::take(&mut definitions.clocks);
    }
    kept.calibration = std::mem::take(&mut definitions.calibration);
    *definitions = kept;
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
    let mut pools: BTreeMap<BootId, ClockPoints> = BTreeMap::new();
    let mut own: BTreeMap<ClockId, ClockPoints> = BTreeMap::new();
    for member in members {
        let boot_id = member.boot_id(definitions);
        for (id, number) in &member.numbers.clocks {
            let clock = &definitions.clocks[number];
            let calibration = &member.input.recording.definitions.calibration;
            let raw: Vec<(u64, i64, u64)> = calibration
                .iter()
                .filter(|point| point.clock == *id)
                .map(|point| (point.tick, point.reference_ns, point.error_ns))
                .collect();
            let mut unwrapped = unwrap_points(clock, &raw);
            let points = &mut unwrapped.points;
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
                points.extend(points_from_events(definitions, member, *number));
            }
            if clock.kind == ClockKind::Tsc {
                let pool = pools.entry(boot_id).or_default();
                pool.points.extend(points.iter());
            } else {
                own.insert(*number, unwrapped);
            }
        }
    }
    for pool in pools.values_mut() {
        pool.points.sort_by_key(|point| (point.time_ns, point.tick));
    }
    let mut fits = Vec::new();
    let most_knots = clocks::most_knots(pools.len());
    // One fit for all that share points and rate: a run has as many clocks as processes.
    let mut pooled: BTreeMap<(BootId, u64), (ClockMap, ClockFit)> = BTreeMap::new();
    for member in members {
        let boot_id = member.boot_id(definitions);
        let fit = |number: ClockId, clock: &Clock, points: &ClockPoints| {
            let (map, fit) = clocks::fit(number, clock, points, most_knots);
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

/// A clock that cannot be read is tied to the axis by its events.
fn points_from_events(
    definitions: &Definitions,
    member: &Member,
    clock_number: ClockId,
) -> Vec<Point> {
    let recording = &member.input.recording;
    let mut of_clock = Vec::new();
    for (id, contents) in &recording.streams {
        let number = member.numbers.streams.get(id);
        let stream = number.and_then(|number| definitions.streams.get(number));
        let source = stream.and_then(|stream| definitions.sources.get(&stream.source));
        if source.is_some_and(|source| source.clock == clock_number) {
            of_clock.extend(&contents.chunks);
        }
    }
    // As they were observed, whatever stream they are of: each tells how often the clock has wrapped since the last.
    of_clock.sort_by_key(|stored| stored.header.open_reference_ns);
    let mut observed = Observed::new(&definitions.clocks[&clock_number]);
    for stored in of_clock {
        let Ok(chunk) = member.input.load(stored) else {
            continue;
        };
        for (index, reference_ns) in &chunk.observations {
            if let Some(tick) = chunk.ticks.get(*index as usize) {
                observed.push(*tick, *reference_ns);
            }
        }
    }
    observed.points()
}
