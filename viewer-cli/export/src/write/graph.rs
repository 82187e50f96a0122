//! The call graph: the calls from one region to another, summed over all call paths.

use std::collections::BTreeMap;

use annals_format::RegionId;
use rustc_hash::FxHashMap;

use crate::write::exporter::{Call, Context, Ending, Enter, Exporter, Wants};
use crate::write::output::Output;

/// How often, and how long. Times in nanoseconds.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Tally {
    pub(crate) calls: u64,
    pub(crate) inclusive_ns: i64,
    pub(crate) exclusive_ns: i64,
    pub(crate) is_uncertain: bool,
}

/// The graph of calls: bounded by the number of regions.
pub(crate) struct Graph<'a> {
    context: &'a Context<'a>,
    regions: BTreeMap<RegionId, Tally>,
    calls: BTreeMap<(RegionId, RegionId), Tally>,
    /// Regions of the calls that are open, by number.
    open: FxHashMap<usize, Vec<RegionId>>,
}

impl<'a> Graph<'a> {
    pub(crate) fn new(context: &'a Context<'a>) -> Self {
        Self {
            context,
            regions: BTreeMap::new(),
            calls: BTreeMap::new(),
            open: FxHashMap::default(),
        }
    }

    pub(crate) fn enter(&mut self, location: usize, region: RegionId) {
        self.open.entry(location).or_default().push(region);
    }

    pub(crate) fn leave(&mut self, call: &Call) {
        let open = self.open.entry(call.location).or_default();
        open.pop();
        let caller = open.last().copied();
        // As `regions` counts: at the enter, and recursion once.
        let is_counted = self.context.window.contains(call.begin_ns);
        let tally = self.regions.entry(call.region).or_default();
        tally.calls += u64::from(is_counted);
        tally.inclusive_ns += if call.is_outermost {
            call.inclusive_ns
        } else {
            0
        };
        tally.exclusive_ns += call.exclusive_ns;
        tally.is_uncertain |= call.is_uncertain;
        if let Some(caller) = caller {
            let tally = self.calls.entry((caller, call.region)).or_default();
            tally.calls += u64::from(is_counted);
            tally.inclusive_ns += call.inclusive_ns;
            tally.is_uncertain |= call.is_uncertain;
        }
    }

    /// Regions that were called, with their names, the longest first.
    pub(crate) fn regions(&self) -> Vec<(RegionId, String, Tally)> {
        let d = self.context.definitions;
        let each = self.regions.iter();
        let each = each.map(|(region, tally)| (*region, d.region_name(*region), *tally));
        let mut each: Vec<_> = each.collect();
        each.sort_by(|a, b| (b.2.inclusive_ns, a.0).cmp(&(a.2.inclusive_ns, b.0)));
        each
    }

    /// Returns caller, callee and statistics of all edges, the longest first.
    pub(crate) fn calls(&self) -> Vec<(RegionId, RegionId, Tally)> {
        let each = self.calls.iter();
        let mut each: Vec<_> = each.map(|((a, b), tally)| (*a, *b, *tally)).collect();
        each.sort_by(|a, b| (b.2.inclusive_ns, a.0, a.1).cmp(&(a.2.inclusive_ns, b.0, b.1)));
        each
    }
}

/// A drawing of the graph under construction.
pub(crate) struct Drawing<'a> {
    pub(crate) graph: Graph<'a>,
    pub(crate) out: Output,
    /// The function that draws the graph.
    pub(crate) draw: fn(&Graph<'_>) -> String,
}

impl Exporter for Drawing<'_> {
    fn wants(&self) -> Wants {
        Wants {
            calls: true,
            begins: true,
            ..Wants::default()
        }
    }

    fn enter(&mut self, enter: &Enter) -> anyhow::Result<()> {
        self.graph.enter(enter.location, enter.region);
        Ok(())
    }

    fn leave(&mut self, call: &Call) -> anyhow::Result<()> {
        self.graph.leave(call);
        Ok(())
    }

    fn finish(mut self: Box<Self>, _: &Ending<'_>) -> anyhow::Result<()> {
        let text = (self.draw)(&self.graph);
        self.out.put(text.as_bytes())?;
        self.out.finish()
    }
}
