//! Gathers what a timeline shows.

use std::collections::BTreeMap;

use annals_analysis::{LocationNames, MessageWaits, Wait, bin_of, bounded, concerns};
use annals_format::{Definitions, LocationId, RegionId, TraceLoss};
use annals_merger::{ByStream, Calls, Query, ReadSummary, Reader};

use super::bars::Bars;
use super::lanes::{choose, lane_label};
use super::layout::{
    Gap, LaneWait, Layout, Legend, MessageLines, NamedWait, Request, TimelineLane,
};
use super::links::{Lanes, Links};
use super::metric_rows::MetricSums;
use crate::views::{are, numbered};

/// Number of the longest waits that are named.
const MOST_NAMED_WAITS: usize = 5;

impl Layout {
    /// Gathers what a timeline shows.
    ///
    /// # Errors
    /// If the input cannot be read.
    pub fn of(
        opened: &Reader,
        filter: &Query,
        request: Request,
    ) -> anyhow::Result<(Self, ReadSummary)> {
        let definitions = opened.definitions();
        let window = bounded(opened, request.window);
        let columns = request.columns.max(1);
        let mut calls = Calls::new(definitions, &filter.within(window));
        let (chosen, count) = choose(definitions, filter, request.first_lane, request.lanes);
        let mut notes = Vec::new();
        if chosen.len() < count && request.first_lane.is_none() {
            notes.push(format!(
                "{} of {count} locations are shown, evenly spread; choose with --rank or --location, or give \
                 more --lanes",
                chosen.len()
            ));
        }
        let lanes = lanes_by_location(calls.locations(), &chosen);
        let lanes_of_streams = lanes_by_stream(definitions, calls.locations(), &lanes);
        let shown = Lanes {
            definitions,
            window,
            columns,
            waits: MessageWaits::new(definitions),
            of_streams: &lanes_of_streams,
            count: chosen.len(),
        };
        let mut links = Links::of(opened, filter, request, &shown, &mut notes)?;
        let mut metrics = MetricSums::of(definitions, filter);
        let levels = request.levels.max(1);
        let waits = std::mem::take(&mut links.waits);
        let mut bars = Bars::new(opened, filter, window, columns, levels, lanes, waits);
        let outcome = if metrics.types.is_empty() {
            calls.run(opened, &mut bars)?
        } else {
            calls.read(opened, &mut bars, |chunk, _| {
                metrics.add_chunk(&chunk, window, columns, &lanes_of_streams);
                Ok(())
            })?
        };
        note_hidden(&bars, &metrics, request.levels, &mut notes);
        let regions = regions_by_time(&mut bars, filter);
        let places = regions.iter().enumerate();
        let places = places
            .map(|(place, (region, _))| (*region, place))
            .collect();
        let legend = regions.iter().map(|(region, exclusive_ns)| Legend {
            name: definitions.region_name(*region),
            exclusive_ns: *exclusive_ns,
            is_uncertain: bars.uncertain.contains(region),
        });
        let legend: Vec<Legend> = legend.collect();
        let names = LocationNames::new(definitions);
        let drawn = chosen.iter().enumerate().map(|(lane, id)| TimelineLane {
            rank: definitions.rank_of_location(*id),
            name: names.get(*id).to_owned(),
            label: lane_label(&names, definitions, *id),
            rows: bars.rows(lane, &places),
            waits: bars.take_waits(lane),
            waited_ns: std::mem::take(&mut links.waited_ns[lane]),
            gaps: Vec::new(),
            metric: metrics.row(lane, definitions),
        });
        let mut layout = Self {
            window,
            columns,
            lanes: drawn.collect(),
            messages: MessageLines {
                lines: links.lines,
                count: links.count,
                by_column: links.by_column,
            },
            longest_waits: Vec::new(),
            legend,
            outside: match filter.is_by_region() {
                true => "outside of the chosen regions",
                false => "outside of all regions",
            },
            notes,
        };
        layout.add_gaps(&outcome.losses, filter, &lanes_of_streams);
        layout.name_longest_waits();
        Ok((layout, outcome))
    }

    /// Finds the longest of the waits shown.
    fn name_longest_waits(&mut self) {
        let waits = self.lanes.iter().enumerate();
        let waits = waits.flat_map(|(lane, of_lane)| of_lane.waits.iter().map(move |w| (lane, w)));
        let mut longest: Vec<(usize, &LaneWait)> = waits.collect();
        let key = |(lane, wait): &(usize, &LaneWait)| {
            let wait_ns = wait.to_ns - wait.from_ns;
            (std::cmp::Reverse(wait_ns), wait.from_ns, *lane)
        };
        longest.sort_by_key(key);
        longest.truncate(MOST_NAMED_WAITS);
        let named = longest.into_iter().map(|(lane, wait)| NamedWait {
            lane,
            level: wait.call.map_or(0, |(_, level)| level as usize),
            wait: Wait {
                from_ns: wait.from_ns,
                wait_ns: wait.to_ns - wait.from_ns,
                ..wait.wait.clone()
            },
        });
        self.longest_waits = named.collect();
    }

    /// Adds what was lost.
    fn add_gaps(&mut self, losses: &[TraceLoss], filter: &Query, lanes: &ByStream<usize>) {
        let mut elsewhere = 0_u64;
        for loss in losses {
            let query = filter.within(self.window);
            let is_here = concerns(loss, &query, |id| filter.takes_event_type(id));
            if !is_here || loss.cause.is_suppressed() {
                continue;
            }
            let Some(lane) = lanes.get(loss.stream) else {
                elsewhere = elsewhere.saturating_add(loss.count);
                continue;
            };
            let from = bin_of(self.window, self.columns, loss.from_ns);
            let to = bin_of(self.window, self.columns, loss.to_ns.max(loss.from_ns)) + 1;
            let gaps = &mut self.lanes[lane].gaps;
            match gaps.last_mut() {
                // Gaps that share a column are one to the eye.
                Some(last) if from < last.to && last.from <= from => {
                    last.to = last.to.max(to);
                    last.count = last.count.saturating_add(loss.count);
                    last.is_lower_bound |= loss.is_lower_bound;
                }
                _ => gaps.push(Gap {
                    from,
                    to,
                    count: loss.count,
                    is_lower_bound: loss.is_lower_bound,
                    cause: loss.cause.name(),
                }),
            }
        }
        if elsewhere != 0 {
            self.notes.push(format!(
                "{} lost at locations that are not shown, or at none (see `trace-cli dropped`)",
                numbered(elsewhere, "event")
            ));
        }
    }
}

/// Returns the lane of each of these locations, if it has one. `chosen` has the locations of the lanes.
fn lanes_by_location(locations: &[LocationId], chosen: &[LocationId]) -> Vec<Option<usize>> {
    let mut lanes = vec![None; locations.len()];
    for (lane, location) in chosen.iter().enumerate() {
        if let Ok(number) = locations.binary_search(location) {
            lanes[number] = Some(lane);
        }
    }
    lanes
}

/// Returns the lane of each stream that has one. `lanes` has the lane of each of these locations.
fn lanes_by_stream(
    definitions: &Definitions,
    locations: &[LocationId],
    lanes: &[Option<usize>],
) -> ByStream<usize> {
    let lane_of = |id: LocationId| lanes[locations.binary_search(&id).ok()?];
    let streams = definitions.streams.values();
    streams
        .filter_map(|stream| Some((stream.id, lane_of(stream.location?)?)))
        .collect()
}

/// Adds notes on what was gathered and is not drawn.
fn note_hidden(bars: &Bars<'_>, metrics: &MetricSums, levels: usize, notes: &mut Vec<String>) {
    if bars.hidden_calls != 0 {
        notes.push(format!(
            "{} deeper than {levels} levels {} not drawn",
            numbered(bars.hidden_calls, "call"),
            are(bars.hidden_calls)
        ));
    }
    if bars.std_calls != 0 {
        notes.push(format!(
            "{} within standard libraries {} not drawn; choose with --region to show them",
            numbered(bars.std_calls, "call"),
            are(bars.std_calls)
        ));
    }
    if metrics.left_out {
        notes.push("only the first metric of a location is drawn; choose with --event".to_owned());
    }
}

/// Returns the regions of the legend, those with most time first, and the time in each itself, nanoseconds.
fn regions_by_time(bars: &mut Bars<'_>, filter: &Query) -> Vec<(RegionId, i64)> {
    let mut regions: BTreeMap<RegionId, i64> = std::mem::take(&mut bars.exclusive);
    for region in bars.regions() {
        regions.entry(region).or_default();
    }
    regions.retain(|region, _| filter.takes_region(*region));
    let mut regions: Vec<(RegionId, i64)> = regions.into_iter().collect();
    regions.sort_by_key(|(region, ns)| (std::cmp::Reverse(*ns), *region));
    regions
}
