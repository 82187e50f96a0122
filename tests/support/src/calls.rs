//! All calls of a trace, and the lanes that they are in: for values that are found in the simplest way.

use std::collections::BTreeMap;

use annals_format::{Definitions, LaneKind, RegionId};
use annals_merger::{Analysis, Calls, Close, Ending, Frame, Pass, Query, Reader};

/// A call of a location. Times in nanoseconds.
pub struct Call {
    /// Number of the location, in the order of ids.
    pub location: usize,
    /// Number of calls around it.
    pub depth: u32,
    /// Its region.
    pub region: RegionId,
    /// When it was entered.
    pub from_ns: i64,
    /// When it ended, or its location.
    pub to_ns: i64,
    /// Where it ends in lanes of several locations.
    pub drawn_to_ns: i64,
    /// Whether it ended.
    pub has_ended: bool,
}

#[derive(Default)]
struct AllCalls(Vec<Call>);

impl Analysis for AllCalls {
    const PASS: Pass = Pass::OrderedCalls;

    fn close(&mut self, location: usize, around: &[Frame], frame: &Frame, at_ns: i64, how: Close) {
        self.0.push(Call {
            location,
            depth: around.len() as u32,
            region: frame.region,
            from_ns: frame.entered_ns,
            to_ns: at_ns,
            drawn_to_ns: at_ns,
            has_ended: how != Close::Open,
        });
    }
}

/// Returns all calls of a trace.
///
/// # Panics
/// If it cannot be read.
pub fn all_calls(reader: &Reader) -> Vec<Call> {
    let mut calls = AllCalls::default();
    let mut each = Calls::new(reader.definitions(), &Query::new());
    each.run(reader, &mut calls).expect("a trace");
    for call in calls.0.iter_mut().filter(|call| !call.has_ended) {
        let end = Ending::in_trace(reader.definitions(), each.locations()[call.location]);
        let end_ns = end.drawn_to_ns().unwrap_or(i64::MAX);
        call.drawn_to_ns = end_ns.min(reader.extent().last_ns).max(call.from_ns);
    }
    calls.0
}

/// Returns the lanes of each location, but for their depths (SPEC.md, *Overview*).
pub fn lanes_of(definitions: &Definitions) -> Vec<Vec<(LaneKind, u32)>> {
    let mut groups: BTreeMap<(LaneKind, u32), Vec<usize>> = BTreeMap::new();
    let mut lanes = Vec::new();
    for (number, location) in definitions.locations.values().enumerate() {
        let process = &definitions.processes[&location.process];
        lanes.push(vec![(LaneKind::Location, location.id.get())]);
        for key in [
            (LaneKind::Process, process.id.get()),
            (LaneKind::Host, process.host.get()),
            (LaneKind::All, 0),
        ] {
            groups.entry(key).or_default().push(number);
        }
        let own = definitions
            .streams
            .values()
            .filter(|stream| stream.location == Some(location.id));
        let names = own.map(|stream| definitions.sources[&stream.source].name.get());
        for name in names {
            groups
                .entry((LaneKind::Source, name))
                .or_default()
                .push(number);
        }
    }
    let mut known: Vec<Vec<usize>> = Vec::new();
    for (key, mut own) in groups {
        own.dedup();
        if own.len() > 1 && !known.contains(&own) {
            own.iter().for_each(|number| lanes[*number].push(key));
            known.push(own);
        }
    }
    lanes
}
