//! Gathers what a timeline shows.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use annals_analysis::{
    Grouping, Lanes, LocationNames, MessageWaits, TimeColumns, Wait, bin_of, bounded, concerns,
    region_statistics,
};
use annals_format::{Definitions, LocationId, RegionId, TraceLoss};
use annals_merger::{ByStream, Query, ReadSummary, Reader, Window};

use super::bars::Bars;
use super::lanes::{choose, lane_label};
use super::layout::{
    Gap, LaneWait, Layout, Legend, MessageLines, NamedWait, Request, TimelineLane,
};
use super::links::{FEW_EVENTS, LinkedLanes, Links};
use super::metric_rows::MetricSums;
use crate::views::numbered;

/// Number of the longest waits that are named.
const MOST_NAMED_WAITS: usize = 5;

impl Layout {
    /// Gathers what a timeline shows. `lanes` are those of what was opened.
    ///
    /// # Errors
    /// If the input cannot be read.
    pub fn of(
        opened: &Reader,
        lanes: &Lanes,
        filter: &Query,
        request: Request,
    ) -> anyhow::Result<(Self, ReadSummary)> {
        let definitions = opened.definitions();
        let window = bounded(opened, request.window);
        let time = TimeColumns::of(window, request.columns.max(1));
        let columns = time.count();
        let (chosen, count) = choose(definitions, filter, request.first_lane, request.lanes);
        let mut notes = Vec::new();
        if chosen.len() < count && request.first_lane.is_none() {
            notes.push(format!(
                "{} of {count} locations are shown, evenly spread; choose with --rank or --location, or give \
                 more --lanes",
                chosen.len()
            ));
        }
        let lanes_of_streams = lanes_by_stream(definitions, &chosen);
        let shown = LinkedLanes {
            definitions,
            window,
            columns,
            waits: MessageWaits::new(definitions),
            of_streams: &lanes_of_streams,
            count: chosen.len(),
        };
        let mut links = Links::of(opened, filter, request, &shown, &mut notes)?;
        let levels = request.levels.max(1);
        let (bars, outcome) = Bars::read(opened, lanes, filter, &time, levels, &chosen)?;
        let metrics = MetricSums::of(opened, filter, window, columns, &lanes_of_streams)?;
        note_hidden(&bars, &metrics, levels, &mut notes);
        let regions = legend_of(opened, &bars, &filter.within(window), &chosen)?;
        let places = regions.iter().enumerate();
        let places: BTreeMap<RegionId, usize> = places
            .map(|(place, (region, _))| (*region, place))
            .collect();
        let legend: Vec<Legend> = regions.into_iter().map(|(_, legend)| legend).collect();
        let names = LocationNames::new(definitions);
        let drawn = chosen.iter().enumerate().map(|(lane, id)| TimelineLane {
            rank: definitions.rank_of_location(*id),
            name: names.get(*id).to_owned(),
            label: lane_label(&names, definitions, *id),
            rows: bars.rows(lane, &places),
            waits: waits_of(&bars, filter, lane, std::mem::take(&mut links.waits[lane])),
            waited_ns: std::mem::take(&mut links.waited_ns[lane]),
            gaps: Vec::new(),
            metric: metrics.row(lane, definitions),
        });
        let lanes = drawn.collect();
        let mut layout = Self {
            window,
            columns,
            time,
            lanes,
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

/// Returns the lane of each stream that has one: that of its location.
fn lanes_by_stream(definitions: &Definitions, chosen: &[LocationId]) -> ByStream<usize> {
    let lanes: BTreeMap<LocationId, usize> = chosen.iter().copied().zip(0..).collect();
    let streams = definitions.streams.values();
    streams
        .filter_map(|stream| Some((stream.id, *lanes.get(&stream.location?)?)))
        .collect()
}

/// Returns the regions of the lanes, those with most time in themselves first.
///
/// # Errors
/// If the input cannot be read.
fn legend_of(
    reader: &Reader,
    bars: &Bars<'_>,
    query: &Query,
    chosen: &[LocationId],
) -> anyhow::Result<Vec<(RegionId, Legend)>> {
    let mut times: BTreeMap<RegionId, (i64, bool)> = bars.regions();
    if events_in(reader, query.window()) <= FEW_EVENTS {
        let mut query = query.clone();
        query.set_locations(reader.definitions(), &chosen.iter().copied().collect());
        let (statistics, _) = region_statistics(reader, &query, Grouping::None)?;
        for ((_, region), of) in statistics {
            let is_here = of.counted.exclusive_ns != 0 || times.contains_key(&region);
            if is_here && query.takes_region(region) {
                times.insert(
                    region,
                    (of.counted.exclusive_ns, of.counted.is_time_uncertain),
                );
            }
        }
    } else {
        bars.add_own_times(&mut times);
    }
    let legend = times
        .into_iter()
        .map(|(region, (exclusive_ns, is_uncertain))| {
            let name = reader.definitions().region_name(region);
            (
                region,
                Legend {
                    name,
                    exclusive_ns,
                    is_uncertain,
                },
            )
        });
    let mut legend: Vec<(RegionId, Legend)> = legend.collect();
    legend.sort_by_key(|(region, of)| (Reverse(of.exclusive_ns), *region));
    Ok(legend)
}

/// Returns the waits of a lane that lie in calls of the filter's regions, with these calls.
fn waits_of(
    bars: &Bars<'_>,
    filter: &Query,
    lane: usize,
    mut waits: Vec<LaneWait>,
) -> Vec<LaneWait> {
    waits.retain_mut(|wait| match bars.place(lane, wait) {
        true => true,
        false => wait.call.is_none() && !filter.is_by_region(),
    });
    waits
}

/// Adds notes on what was gathered and is not drawn.
fn note_hidden(bars: &Bars<'_>, metrics: &MetricSums, levels: usize, notes: &mut Vec<String>) {
    if levels > 1 && bars.depth() > levels {
        let depth = bars.depth();
        notes.push(format!(
            "{levels} of {depth} levels of calls are drawn (--levels draws more)"
        ));
    }
    if metrics.left_out {
        notes.push("only the first metric of a location is drawn; choose with --event".to_owned());
    }
}

/// Returns the number of events in a window by the index, which counts whole chunks.
pub fn events_in(opened: &Reader, window: Window) -> u64 {
    let before = |ns| opened.events_before(ns);
    before(window.to_ns).saturating_sub(before(window.from_ns))
}
