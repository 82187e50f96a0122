//! How much of a run the recording took: the events of its threads, times what an event costs.

use std::collections::BTreeMap;

use annals_format::names::property;
use annals_format::{Definitions, ProcessId, Role, StreamTotals};
use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::oversubscription::processors_of;

/// What events cost where they were recorded, nanoseconds of processor time: of a value, for its thread and for all threads of its process.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct EventCost {
    /// Of an enter or a leave.
    pub call_ns: [f64; 2],
    /// Of another event.
    pub other_ns: [f64; 2],
    /// By how much these may differ, as a share.
    pub error: f64,
    /// Whether rules left events out while the program ran: what deciding about those cost is not known.
    pub has_rules: bool,
}

/// Ends the value of the property where rules left events out.
const HAS_RULES: &str = " rules";

impl EventCost {
    /// Reads the value of the property `recording.cost`: five numbers, and perhaps a word. `None` if it is none.
    fn parse(text: &str) -> Option<Self> {
        let (text, has_rules) = match text.strip_suffix(HAS_RULES) {
            Some(numbers) => (numbers, true),
            None => (text, false),
        };
        let numbers = text.split(' ').map(|number| number.parse::<f64>().ok());
        let numbers: Option<Vec<f64>> = numbers.collect();
        match numbers?.as_slice() {
            &[call, call_all, other, other_all, error] => Some(Self {
                call_ns: [call, call_all],
                other_ns: [other, other_all],
                error,
                has_rules,
            }),
            _ => None,
        }
    }

    /// Returns the value of the property `recording.cost`.
    pub fn property(&self) -> String {
        let ([call, call_all], [other, other_all]) = (self.call_ns, self.other_ns);
        let error = self.error;
        let rules = if self.has_rules { HAS_RULES } else { "" };
        format!("{call:.2} {call_all:.2} {other:.2} {other_all:.2} {error:.3}{rules}")
    }
}

/// Returns what events cost where recordings say so, by process.
fn costs_of(definitions: &Definitions) -> FxHashMap<ProcessId, EventCost> {
    let mut costs = FxHashMap::default();
    for of in &definitions.properties {
        if definitions.string(of.key) == property::RECORDING_COST {
            let cost = EventCost::parse(definitions.string(of.value));
            costs.extend(cost.map(|cost| (of.process, cost)));
        }
    }
    costs
}

/// Returns the processor time in which samples were recorded, nanoseconds, by process.
fn sampling_times(definitions: &Definitions) -> FxHashMap<ProcessId, f64> {
    let properties = definitions.properties.iter();
    let of = properties.filter(|of| definitions.string(of.key) == property::SAMPLING_TIME);
    let of = of.filter_map(|of| Some((of.process, definitions.string(of.value).parse().ok()?)));
    of.collect()
}

/// Returns what recording a call, its enter and its leave, cost its thread, nanoseconds: the most that a recording says. `None` if none
/// says anything.
pub fn call_cost_ns(definitions: &Definitions) -> Option<f64> {
    let costs = costs_of(definitions).into_values();
    costs
        .map(|cost| 2.0 * cost.call_ns[0])
        .max_by(f64::total_cmp)
}

/// The share of a run that its recording took, of the thread that recorded most.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct RecordingCost {
    /// The share.
    pub share: f64,
    /// By how much it may differ.
    pub error: f64,
    /// Whether it is more by what deciding cost about events that rules left out.
    pub is_lower_bound: bool,
}

/// The costs of some recordings.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct CostSums {
    /// Of the thread that recorded most: what its events cost it, and all threads, nanoseconds.
    worst_ns: [f64; 2],
    error: f64,
    has_rules: bool,
    /// By host: number of threads with events, and of processors for them. 0 processors means that it is not known.
    hosts: BTreeMap<String, (usize, usize)>,
    /// Start of the first process, and end of the last, nanoseconds.
    span_ns: Option<(i64, i64)>,
}

impl CostSums {
    /// Adds up the costs of recordings, or of a trace. Processes of which nothing says what an event costs are left out.
    pub fn of<'a>(
        definitions: &Definitions,
        totals: impl Iterator<Item = &'a StreamTotals>,
    ) -> Self {
        let mut sums = Self::default();
        let costs = costs_of(definitions);
        sums.has_rules = costs.values().any(|cost| cost.has_rules);
        for of in &definitions.properties {
            let process = definitions.processes.get(&of.process);
            if let Some(process) = process
                && definitions.string(of.key) == "affinity"
            {
                let host = definitions.string(process.host).to_owned();
                let processors = processors_of(definitions.string(of.value));
                let known = &mut sums.hosts.entry(host).or_default().1;
                *known = (*known).max(processors.map_or(0, |of| of.len()));
            }
        }
        // By location.
        let mut spent: FxHashMap<_, ([f64; 2], ProcessId)> = FxHashMap::default();
        for totals in totals {
            let stream = definitions.streams.get(&totals.stream);
            let location = stream.and_then(|stream| stream.location);
            let process = definitions.process_of(totals.stream);
            let (Some(location), Some(process)) = (location, process) else {
                continue;
            };
            let Some(cost) = costs.get(&process) else {
                continue;
            };
            let of_location = spent.entry(location).or_insert(([0.0; 2], process));
            for row in totals.rows.iter().filter(|row| row.raised != 0) {
                let of_type = definitions.event_types.get(&row.event_type);
                let each = match of_type.map(|of| of.role) {
                    Some(Role::Enter | Role::Leave) => cost.call_ns,
                    // Another thread records them.
                    Some(Role::Sample) => [0.0; 2],
                    _ => cost.other_ns,
                };
                for (sum, ns) in of_location.0.iter_mut().zip(each) {
                    *sum += ns * row.raised as f64;
                }
            }
        }
        let reading_ns = sampling_times(definitions);
        for (mut ns, process) in spent.into_values() {
            ns[1] += reading_ns.get(&process).copied().unwrap_or(0.0);
            if ns[1] <= 0.0 {
                continue;
            }
            let host = &definitions.processes[&process].host;
            let host = definitions.string(*host).to_owned();
            sums.hosts.entry(host).or_default().0 += 1;
            sums.add_worst(ns, costs[&process].error);
            if let Some(end) = definitions.process_ends.get(&process) {
                sums.add_span((end.start_ns, end.end_ns));
            }
        }
        sums
    }

    fn add_worst(&mut self, ns: [f64; 2], error: f64) {
        if ns > self.worst_ns {
            (self.worst_ns, self.error) = (ns, error);
        }
    }

    fn add_span(&mut self, span_ns: (i64, i64)) {
        let known = self.span_ns.get_or_insert(span_ns);
        *known = (known.0.min(span_ns.0), known.1.max(span_ns.1));
    }

    /// Adds the costs of other recordings of the run.
    pub fn merge(&mut self, other: &Self) {
        self.add_worst(other.worst_ns, other.error);
        self.has_rules |= other.has_rules;
        for (host, (threads, processors)) in &other.hosts {
            let known = self.hosts.entry(host.clone()).or_default();
            *known = (known.0 + threads, known.1.max(*processors));
        }
        if let Some(span) = other.span_ns {
            self.add_span(span);
        }
    }

    /// Returns the share of the run. `None` if nothing says what an event costs. Where a host has no processor for the threads that
    /// write, their time counts, too.
    pub fn share(&self) -> Option<RecordingCost> {
        let (start_ns, end_ns) = self.span_ns?;
        self.share_of(end_ns.saturating_sub(start_ns))
    }

    /// Returns the share of a run of this length, likewise.
    pub fn share_of(&self, run_ns: i64) -> Option<RecordingCost> {
        if run_ns <= 0 {
            return None;
        }
        let mut hosts = self.hosts.values();
        let is_full = hosts.any(|(threads, processors)| *processors != 0 && threads >= processors);
        let share = self.worst_ns[usize::from(is_full)] / run_ns as f64;
        let error = share * self.error;
        (share > 0.0).then_some(RecordingCost {
            share,
            error,
            is_lower_bound: self.has_rules,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn properties_are_read() {
        let cost = EventCost {
            call_ns: [5.5, 16.25],
            other_ns: [8.0, 20.0],
            error: 0.125,
            has_rules: false,
        };
        for has_rules in [false, true] {
            let cost = EventCost { has_rules, ..cost };
            assert_eq!(EventCost::parse(&cost.property()), Some(cost));
        }
        assert_eq!(EventCost::parse("1 2 3"), None);
    }

    #[test]
    fn the_writer_counts_where_no_processor_is_free() {
        let one = |threads| CostSums {
            worst_ns: [10.0, 30.0],
            error: 0.5,
            has_rules: false,
            hosts: [("a".to_owned(), (threads, 2))].into(),
            span_ns: Some((0, 1000)),
        };
        let share = |sums: &CostSums| sums.share().map(|of| (of.share, of.error));
        assert_eq!(share(&one(1)), Some((0.01, 0.005)));
        let mut both = one(1);
        both.merge(&one(1));
        assert_eq!(share(&both), Some((0.03, 0.015)));
        assert_eq!(CostSums::default().share(), None);
    }
}
