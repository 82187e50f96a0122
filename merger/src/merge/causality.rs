//! Messages of a merge: which are checked, what losses may have had of them, and how a repair is planned.

use std::collections::{BTreeMap, BTreeSet};

use annals_format::names::property;
use annals_format::{
    BootId, Definition, Definitions, ProcessId, SourceOrder, StreamId, StreamTotals, TraceChunk,
    TypeTotals,
};

use super::{Merge, MergedProcess};
use crate::axis::proof::ElementReferences;
use crate::axis::strip::UnnumberedChunk;
use crate::axis::unify::Numbers;
use crate::by_stream::ByStream;
use crate::clocks::hulls::Hulls;
use crate::clocks::together::Operations;
use crate::error::Result;
use crate::filter::Keep;
use crate::messages::causality::{
    Causality, CausalityReport, Check, MESSAGES_IN_FLIGHT, RepairReport,
};
use crate::messages::collectives::Carry;
use crate::messages::matching::ShardedBatch;
use crate::messages::repair::Repair;
use crate::messages::{self, Extractor, Lost, Mark, MessageBatch, SHARDS};
use crate::overview::message_bins::{MessageCounter, Side};
use crate::workers::Workers;

impl Merge {
    /// Plans what [`Causality::Repair`] asks for: reads all messages, also those that a filter leaves out, and
    /// settles how events are moved. Without violations nothing is changed.
    ///
    /// # Errors
    /// If no threads can be started.
    pub(super) fn plan_repair(&mut self) -> Result<()> {
        if self.options.causality != Causality::Repair {
            return Ok(());
        }
        let Some(extractor) = self.extractor() else {
            return Ok(());
        };
        let processes = self.definitions.processes.values();
        let boots: BTreeMap<u32, BootId> = processes.map(|p| (p.id.get(), p.boot_id)).collect();
        // The clocks of a trace are what they were when it was made: its events are moved, its hosts stay.
        let fits_hosts = self.inputs.traces.is_empty();
        let mut hulls: BTreeMap<(BootId, BootId), Hulls> = BTreeMap::new();
        let gather = |from: Mark, to: Mark| {
            let boot = |mark: Mark| boots.get(&mark.process).copied().filter(|_| fits_hosts);
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
        let mut check: Check = self.check(&extractor, &Keep::default());
        let caller = Workers::new(1)?;
        let mut sinks = [gather];
        self.read_messages(&extractor, |batch| {
            check.feed(&caller, &ShardedBatch::of(batch), &mut sinks);
        })?;
        check.settle(&mut sinks[0]);
        let before = check.violations();
        if before.count == 0 {
            return Ok(());
        }
        let mut report = RepairReport {
            before,
            ..RepairReport::default()
        };
        let base = self
            .inputs
            .members
            .first()
            .map(|member| member.boot_id(&self.definitions));
        let base = base.unwrap_or_default();
        if fits_hosts {
            report.hosts = self.axis.hosts.correct(base, hulls);
        }
        if !report.hosts.is_empty() {
            self.fit_again();
            check = self.check(&extractor, &Keep::default());
            let mut sinks = [|_, _| {}];
            self.read_messages(&extractor, |batch| {
                check.feed(&caller, &ShardedBatch::of(batch), &mut sinks);
            })?;
            check.settle(&mut sinks[0]);
        }
        let lag_ns = check.lag_ns();
        if check.violations().count == 0 {
            self.moves.repair = Some(report);
            return Ok(());
        }
        let mut repair = Repair::new(
            extractor.processes(),
            self.options.messages_in_flight,
            lag_ns,
        );
        for (process, lost) in self.lost_by_process(&Keep::default()) {
            repair.lose(process.get(), lost);
        }
        self.read_messages(&extractor, |batch| repair.feed(&batch))?;
        let (shifts, left) = repair.finish();
        self.moves.shifts = shifts;
        let moved = self.moves.shifts.iter().filter(|shifts| !shifts.is_empty());
        report.processes = moved.count() as u64;
        report.over_limit = left.over_limit;
        self.moves.repair = Some(report);
        self.move_ends();
        Ok(())
    }

    /// Relates the clocks that were compared with no other by the collective operations of their processes. Where these have none in common, the
    /// wall clocks still relate them.
    ///
    /// # Errors
    /// If no threads can be started.
    pub(super) fn relate_by_collectives(&mut self) -> Result<()> {
        let definitions = &self.definitions;
        let is_alone = definitions
            .properties
            .iter()
            .filter(|property| definitions.string(property.key) == property::CLOCK_RELATED_BY);
        let is_alone: BTreeSet<ProcessId> = is_alone.map(|property| property.process).collect();
        let Some(base) = self.inputs.members.first().map(|member| member.process) else {
            return Ok(());
        };
        let members = self.inputs.members.iter();
        let spans =
            members.filter(|member| member.process == base || is_alone.contains(&member.process));
        let spans = spans.map(|member| (member.process.get(), (member.start_ns, member.end_ns)));
        let spans: BTreeMap<u32, (i64, i64)> = spans.collect();
        if spans.len() < 2 || self.options.clock_offsets.is_some() {
            return Ok(());
        }
        let extractor = Extractor::new(&self.definitions, &self.carries());
        let mut operations = Operations::default();
        self.read_messages(&extractor, |batch| operations.feed(&batch))?;
        let related = operations.relate(base.get(), &spans);
        let boots = self.inputs.members.iter();
        let boots = boots.map(|member| (member.process.get(), member.boot_id(&self.definitions)));
        let boots: BTreeMap<u32, BootId> = boots.collect();
        for of in &related {
            let (host, through) = (boots[&of.process], boots[&of.through]);
            self.axis.hosts.relate_through(host, through, of.fit);
        }
        if !related.is_empty() {
            self.fit_again();
        }
        Ok(())
    }

    /// Runs a pass over the messages alone.
    pub(super) fn read_messages(
        &self,
        extractor: &Extractor,
        mut each: impl FnMut(MessageBatch),
    ) -> Result<()> {
        let (all, references) = (Keep::default(), ElementReferences::of(&self.definitions));
        let work = |parts: Vec<UnnumberedChunk>| -> Vec<MessageBatch> {
            let each = parts.iter().map(|part| extractor.extract(&part.chunk));
            each.collect()
        };
        self.for_each_strip(
            self.jobs(),
            &all,
            &references,
            false,
            &work,
            &mut |batches| {
                batches.into_iter().for_each(&mut each);
                Ok(())
            },
        )?;
        Ok(())
    }

    /// Moves the ends of processes with their events.
    pub(super) fn move_ends(&mut self) {
        let mut trace_end_ns = 0;
        for member in &mut self.inputs.members {
            if let Some(shifts) = self.moves.shifts.get(member.process.index()) {
                member.end_ns = shifts.moved(member.end_ns);
            }
            trace_end_ns = trace_end_ns.max(member.end_ns);
            self.definitions.add(member.end());
        }
        for process in self.inputs.traces.iter().flat_map(|t| t.processes.values()) {
            let Some(mut end) = self.definitions.process_ends.get(process).copied() else {
                continue;
            };
            if let Some(shifts) = self.moves.shifts.get(process.index()) {
                end.end_ns = shifts.moved(end.end_ns);
            }
            trace_end_ns = trace_end_ns.max(end.end_ns);
            self.definitions.add(Definition::ProcessEnd(end));
        }
        let locations = &self.definitions.locations;
        for end in self.definitions.location_ends.values_mut() {
            let process = locations
                .get(&end.location)
                .map(|location| location.process);
            let shifts = process.and_then(|process| self.moves.shifts.get(process.index()));
            end.end_ns = shifts.map_or(end.end_ns, |shifts| shifts.moved(end.end_ns));
        }
        if let Some(zero) = &mut self.definitions.time_zero {
            zero.end_ns = trace_end_ns;
        }
    }

    /// Returns what takes messages out of the events, if there are any and they are wanted.
    pub(super) fn extractor(&self) -> Option<Extractor> {
        match self.options.causality {
            Causality::Off => None,
            _ => Extractor::of(&self.definitions, &self.carries()),
        }
    }

    /// Returns by stream what a loss without an event type may have had, as far as the inputs' totals say.
    pub(super) fn carries(&self) -> BTreeMap<StreamId, Lost> {
        let mut carries = BTreeMap::new();
        for member in &self.inputs.members {
            for (id, contents) in &member.input.recording.streams {
                if let Some(number) = member.numbers.streams.get(id) {
                    carries.insert(*number, self.carried(&member.numbers, &contents.totals));
                }
            }
        }
        for trace in &self.inputs.traces {
            for (number, totals) in trace.totals() {
                carries.insert(number, self.carried(&trace.numbers, totals));
            }
        }
        carries
    }

    /// Returns what a loss of any type in a stream may have had.
    pub(super) fn carried(&self, numbers: &Numbers, totals: &StreamTotals) -> Lost {
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

    pub(super) fn check<D: Carry + Send + Sync>(
        &self,
        extractor: &Extractor,
        keep: &Keep,
    ) -> Check<D> {
        let mut check = Check::new(
            extractor,
            &self.definitions,
            self.options.messages_in_flight,
            self.options.causality,
        );
        for (process, lost) in self.lost_by_process(keep) {
            check.lose(process.get(), lost);
        }
        check
    }

    /// Returns whether the check matches messages as readers of the trace do: these know of losses only what the trace has.
    pub(super) fn checks_as_readers_match(&self) -> bool {
        let lost = self.lost_by_process(&self.keep);
        self.options.causality == Causality::Check
            && self.options.messages_in_flight == MESSAGES_IN_FLIGHT
            && lost.iter().all(|(_, lost)| !lost.is_any())
    }

    /// Returns the messages that each process lost at unknown times.
    fn lost_by_process(&self, keep: &Keep) -> Vec<(ProcessId, Lost)> {
        let mut each = Vec::new();
        for member in &self.inputs.members {
            // What a filter left out may have been the other half of any message.
            let lost = if keep.takes_all_of(member.numbers.streams.values().copied()) {
                self.lost_somewhere(member)
            } else {
                Lost::ALL
            };
            each.push((member.process, lost));
        }
        for trace in &self.inputs.traces {
            let is_all = keep.takes_all_of(trace.numbers.streams.values().copied())
                && trace.definitions().filters.is_empty();
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
                each.push((*process, lost));
            }
        }
        each
    }

    /// Returns the messages that a process lost at unknown times. Events that a sample or a limit left out have no
    /// place in their stream. Losses from one stream of several, or from a sorted one, are placed after events that
    /// happened later.
    pub(super) fn lost_somewhere(&self, member: &MergedProcess) -> Lost {
        let streams = member.input.recording.streams.iter();
        let streams = streams.map(|(id, contents)| {
            let number = member.numbers.streams.get(id).copied();
            (number, &contents.totals)
        });
        self.lost_of(&member.numbers, streams)
    }

    pub(super) fn lost_of<'a>(
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
            let dropped = of_rows(|row| row.dropped_sum() | row.skipped | row.truncated != 0);
            let stream = number.and_then(|number| self.definitions.streams.get(&number));
            let source = stream.and_then(|stream| self.definitions.sources.get(&stream.source));
            let has_place = stream.is_some_and(|stream| stream.location.is_some())
                && source.is_some_and(|source| source.ordering == SourceOrder::Ordered);
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
}

/// Number of sums of a thread's counter from which on they are added to those of all threads.
const MOST_SUMS: usize = 1 << 13;

/// The check of a merge, and what counts the messages that it matches, as far as they are wanted.
pub(super) struct MessageCheck<'a, 'c> {
    check: Option<Check<Side>>,
    workers: Workers,
    messages: Option<&'a mut MessageCounter<'c>>,
    /// What each thread has counted; without counters if `messages` is none.
    counted: Vec<Option<MessageCounter<'c>>>,
}

impl<'a, 'c> MessageCheck<'a, 'c> {
    /// # Errors
    /// If no threads can be started.
    pub(super) fn new(
        check: Option<Check<Side>>,
        jobs: usize,
        messages: Option<&'a mut MessageCounter<'c>>,
    ) -> Result<Self> {
        let jobs = if check.is_some() { jobs.min(SHARDS) } else { 1 };
        let counter = |_| messages.as_ref().map(|messages| messages.empty());
        let workers = Workers::new(jobs)?;
        Ok(Self {
            check,
            counted: (0..workers.count()).map(counter).collect(),
            workers,
            messages,
        })
    }

    /// Returns whether the messages are counted.
    pub(super) const fn is_counted(&self) -> bool {
        self.messages.is_some()
    }

    /// Takes the messages of the next chunks.
    pub(super) fn feed(&mut self, batches: &[ShardedBatch<Side>]) {
        let Some(check) = &mut self.check else { return };
        let sinks = self.counted.iter_mut().map(|counter| {
            move |from, to| {
                if let Some(counter) = counter {
                    counter.count(from, to);
                }
            }
        });
        let mut sinks: Vec<_> = sinks.collect();
        for batch in batches {
            check.feed(&self.workers, batch, &mut sinks);
        }
        let Some(messages) = &mut self.messages else {
            return;
        };
        for counter in self.counted.iter_mut().flatten() {
            if counter.most_sums() > MOST_SUMS {
                messages.merge(std::mem::replace(counter, messages.empty()));
            }
        }
    }

    /// Ends the check.
    pub(super) fn finish(self, definitions: &Definitions) -> Option<CausalityReport> {
        let mut messages = self.messages;
        if let Some(messages) = &mut messages {
            for counter in self.counted.into_iter().flatten() {
                messages.merge(counter);
            }
        }
        let mut count = |from, to| {
            if let Some(messages) = &mut messages {
                messages.count(from, to);
            }
        };
        Some(self.check?.finish(definitions, &mut count))
    }
}

/// Maximum number of pairs of hosts whose messages are used for a fit.
const MOST_HOST_PAIRS: usize = 1 << 16;

pub(super) fn shifts_of(chunk: &TraceChunk) -> Vec<(StreamId, i64)> {
    let runs = chunk.runs();
    let shifts =
        runs.flat_map(|(group, stream, run)| run.map(move |index| (stream, group.shift_ns(index))));
    shifts.collect()
}

/// The moves of a repair.
#[derive(Default)]
pub(super) struct Moved {
    /// By stream, the shift of its last event.
    last: ByStream<Option<i64>>,
    events: u64,
    sum_ns: u128,
    largest_ns: u64,
    neighbours: u64,
    changes_ns: u128,
    largest_change_ns: u64,
}

impl Moved {
    /// Counts the shift of a stream's next event.
    pub(super) fn add(&mut self, stream: StreamId, shift: i64) {
        if let Some(last) = self.last.get_or_default(stream).replace(shift) {
            let change = shift.abs_diff(last);
            self.neighbours += 1;
            self.changes_ns += u128::from(change);
            self.largest_change_ns = self.largest_change_ns.max(change);
        }
        self.events += u64::from(shift != 0);
        self.sum_ns += u128::from(shift.unsigned_abs());
        self.largest_ns = self.largest_ns.max(shift.unsigned_abs());
    }

    pub(super) fn report(&self, report: &mut RepairReport) {
        report.events = self.events;
        report.largest_shift_ns = self.largest_ns;
        report.mean_shift_ns = (self.sum_ns / u128::from(self.events.max(1))) as u64;
        report.largest_interval_change_ns = self.largest_change_ns;
        let neighbours = u128::from(self.neighbours.max(1));
        report.mean_interval_change_ns = (self.changes_ns / neighbours) as u64;
    }
}
