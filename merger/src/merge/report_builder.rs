//! The report of a merge, built from what its readers found.

use std::collections::BTreeMap;
use std::path::PathBuf;

use annals_format::{Problem, ProcessId, StreamTotals, TraceLoss};

use super::{Merge, Merged};
use crate::axis::proof::StreamHashes;
use crate::error::{MergeError, Result};
use crate::input::reader::InputOutcome;
use crate::input::stream::StreamOutcome;
use crate::input::trace::InputTrace;
use crate::messages::causality::CausalityReport;
use crate::report::{self, Boots, InputReport, Report, StreamReport};

/// The findings of readers, for the report.
struct Findings {
    /// By stream, totals and report.
    streams: Vec<(StreamTotals, StreamReport)>,
    /// By process, events that have no place in time.
    unplaced: BTreeMap<ProcessId, u64>,
    /// Blocks of recordings that cannot be decoded.
    damage: Vec<(PathBuf, Problem)>,
}

impl Merge {
    /// Builds the report of a merge from what its readers found.
    ///
    /// # Errors
    /// If the order hash of a stream shows that the trace does not have what its input has.
    pub(super) fn build_report(
        &self,
        outcomes: Vec<Vec<InputOutcome<'_>>>,
        losses: Vec<TraceLoss>,
        hashes: Option<&StreamHashes>,
        causality: Option<CausalityReport>,
    ) -> Result<Merged> {
        let Findings {
            mut streams,
            mut unplaced,
            mut damage,
        } = self.findings(outcomes, hashes)?;
        damage.sort_by(|(a, of_a), (b, of_b)| (a, of_a.offset).cmp(&(b, of_b.offset)));
        streams.sort_by_key(|(totals, _)| totals.stream);
        let take = |(totals, _): &mut (StreamTotals, _)| {
            let stream = totals.stream;
            std::mem::replace(totals, StreamTotals::new(stream))
        };
        let totals: Vec<StreamTotals> = streams.iter_mut().map(take).collect();
        let streams = streams.into_iter().map(|(_, report)| report).collect();
        self.count_unplaced(&mut unplaced);
        let mut report = Report::new(
            self.input_reports(&unplaced),
            streams,
            &totals,
            &losses,
            &self.definitions,
            self.inputs.duplicates.clone(),
        );
        let processes = self.definitions.processes.values();
        let mut in_traces: Boots = processes.map(|process| process.boot_id).collect();
        for member in &self.inputs.members {
            in_traces.remove(&member.boot_id(&self.definitions));
        }
        report.tell_clocks(
            &self.definitions,
            &self.axis.fits,
            &self.axis.hosts,
            &in_traces,
        );
        report.causality = causality;
        let is_whole =
            |trace: &InputTrace| trace.trace.has_footer && trace.trace.problems.is_empty();
        report.complete &= self.input_traces().all(is_whole);
        Ok(Merged {
            totals,
            losses,
            report,
            damage,
            bytes: 0,
        })
    }

    /// Proves each stream, and collects its totals and its report.
    fn findings(
        &self,
        outcomes: Vec<Vec<InputOutcome<'_>>>,
        hashes: Option<&StreamHashes>,
    ) -> Result<Findings> {
        // Of very many streams, no more room than they need.
        let count = outcomes.iter().map(Vec::len).sum();
        let mut streams: Vec<(StreamTotals, StreamReport)> = Vec::with_capacity(count);
        let (mut unplaced, mut damage) = (BTreeMap::new(), Vec::new());
        for outcome in outcomes.into_iter().flatten() {
            match outcome {
                InputOutcome::Stream(outcome) => {
                    let (totals, report) = self.stream_report(&outcome, hashes)?;
                    let place = report.location.as_ref();
                    let place = place.map_or_else(String::new, |name| format!(", {name}"));
                    for (mut problem, events) in outcome.findings.unreadable {
                        let (plural, are) = if events == 1 {
                            ("", "is")
                        } else {
                            ("s", "are")
                        };
                        let rank = report.rank;
                        problem.what +=
                            &format!("; {events} event{plural} of rank {rank}{place} {are} lost");
                        damage.push((outcome.input.path.clone(), problem));
                    }
                    streams.push((totals, report));
                }
                InputOutcome::Trace(reader) => {
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
                        streams.push((totals, report));
                    }
                }
            }
        }
        Ok(Findings {
            streams,
            unplaced,
            damage,
        })
    }

    /// Counts, by process, the events of streams whose source or clock is not defined.
    fn count_unplaced(&self, unplaced: &mut BTreeMap<ProcessId, u64>) {
        for member in &self.inputs.members {
            for (id, contents) in &member.input.recording.streams {
                if self.stream_clock(member, *id).is_none() {
                    let chunks = contents.chunks.iter();
                    let sum = unplaced.entry(member.process).or_insert(0);
                    *sum = chunks.fold(*sum, |sum, chunk| {
                        sum.saturating_add(chunk.header.event_count)
                    });
                }
            }
        }
    }

    /// Reports each process, in their order.
    fn input_reports(&self, unplaced: &BTreeMap<ProcessId, u64>) -> Vec<InputReport> {
        let unplaced = |process: ProcessId| unplaced.get(&process).copied().unwrap_or(0);
        let ends = report::ends(&self.definitions);
        let said = |process: ProcessId| ends.get(&process).cloned().unwrap_or_default();
        let inputs = self.inputs.members.iter().map(|member| {
            let process = member.process;
            let report = InputReport::new(
                &member.input,
                &self.definitions,
                process,
                unplaced(process),
                said(process),
            );
            (process, report)
        });
        let of_traces = self.inputs.traces.iter().flat_map(|trace| {
            let first = trace.processes.values().min().copied();
            trace.processes.values().map(move |process| {
                let is_first = first == Some(*process);
                let report = InputReport::of_trace(
                    &trace.input,
                    &self.definitions,
                    *process,
                    is_first,
                    unplaced(*process),
                    said(*process),
                );
                (*process, report)
            })
        });
        let mut inputs: Vec<(ProcessId, InputReport)> = inputs.chain(of_traces).collect();
        inputs.sort_by_key(|(process, _)| *process);
        inputs.into_iter().map(|(_, report)| report).collect()
    }

    /// Proves a stream. Returns its totals and its report.
    fn stream_report(
        &self,
        outcome: &StreamOutcome<'_>,
        hashes: Option<&StreamHashes>,
    ) -> Result<(StreamTotals, StreamReport)> {
        let mut of_trace = StreamTotals {
            stream: outcome.stream,
            rows: Vec::new(),
            order_hash: hashes.map(|hashes| hashes.get(outcome.stream).value()),
            ..StreamTotals::clone(&outcome.totals)
        };
        if hashes.is_some_and(|hashes| hashes.get(outcome.stream) != outcome.hash) {
            return Err(MergeError::Unproven {
                path: outcome.input.path.clone(),
                stream: outcome.stream,
            });
        }
        let mut miscounted = 0;
        for row in &outcome.totals.rows {
            let number = outcome.numbers.event_types.get(&row.event_type);
            let event_type = number.copied().unwrap_or(annals_format::ANY_EVENT_TYPE);
            let to = of_trace.row(event_type);
            to.add(row);
            let found = outcome.findings.of_type(row.event_type);
            let difference = row.present().abs_diff(found);
            miscounted = difference.saturating_add(miscounted);
        }
        of_trace.rows.shrink_to_fit();
        let report = StreamReport::new(&self.definitions, &of_trace, &outcome.findings, miscounted);
        Ok((of_trace, report))
    }
}
