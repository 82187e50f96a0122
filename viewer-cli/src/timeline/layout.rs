//! What a timeline shows.

use std::collections::BTreeMap;

use annals_analysis::{LocationNames, MessageWaits, Wait, bin_of, bin_start, bounded, concerns};
use annals_format::{LocationId, RegionId, TraceLoss};
use annals_merger::{ByStream, Calls, Query, ReadSummary, Reader, Window};

use super::bars::Bars;
use super::lanes::{choose, lane_label};
use super::links::{LaneWait, Lanes, Links};
use super::metric_rows::MetricSums;
use crate::views::{wait_chain, wait_sentence};

/// Number of the longest waits that are named.
const MOST_NAMED_WAITS: usize = 5;

/// What is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// The time window.
    pub window: Window,
    /// Columns of time.
    pub columns: usize,
    /// Most lanes.
    pub lanes: usize,
    /// The first lane; the lanes after it follow without a gap. `None` means that lanes are spread evenly over all locations.
    pub first_lane: Option<usize>,
    /// Most rows of a lane, one for each level of nesting. With 1, a lane shows its innermost calls.
    pub levels: usize,
    /// Whether messages and waits are matched. `None` means: if little must be read for it.
    pub messages: Option<bool>,
}

/// Columns in which a region took more time than any other: a bar of the picture.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    /// First column.
    pub from: usize,
    /// One more than the last column.
    pub to: usize,
    /// Place of the region in the legend.
    pub region: usize,
    /// Calls that the bar stands for: those of the region, and those of other regions that began and ended in these columns.
    /// `None` if they were not counted.
    pub calls: Option<u64>,
    /// Begin and end of the call within the window, trace time in nanoseconds, if the bar stands for one.
    pub call_ns: Option<(i64, i64)>,
}

/// A level of nesting.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct LaneRow {
    /// Bars, by column.
    pub runs: Vec<Run>,
}

/// Events that are missing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Gap {
    /// First column.
    pub from: usize,
    /// One more than the last column.
    pub to: usize,
    /// Number of events.
    pub count: u64,
    /// Whether more may be missing.
    pub is_lower_bound: bool,
    /// Why they are missing.
    pub cause: &'static str,
}

/// Values of a metric, by column.
#[derive(Clone, PartialEq, Debug)]
pub struct MetricRow {
    /// Its name.
    pub name: String,
    /// Means. `None` before the first value.
    pub values: Vec<Option<f64>>,
}

/// A location.
#[derive(Clone, PartialEq, Debug)]
pub struct Lane {
    /// Rank of its process.
    pub rank: u32,
    /// Its name, which no other location of its process has.
    pub name: String,
    /// What it is called in pictures: rank and name.
    pub label: String,
    /// Rows, from the outermost level on.
    pub rows: Vec<LaneRow>,
    /// Times in which it waited, by their begin. Shorter ones than half a column are left out, unless they are among the longest.
    pub waits: Vec<LaneWait>,
    /// How long it waited in each column, nanoseconds. Empty if that is not known.
    pub waited_ns: Vec<i64>,
    /// What is missing.
    pub gaps: Vec<Gap>,
    /// Its first metric, if it has one.
    pub metric: Option<MetricRow>,
}

impl Lane {
    /// Returns the columns in which the lane waited for at least half the time.
    pub fn waiting_columns(&self, layout: &Layout) -> impl Iterator<Item = usize> {
        let start = |column| bin_start(layout.window, layout.columns, column);
        let waited = self.waited_ns.iter().enumerate();
        let mostly = waited.filter(move |(column, waited_ns)| {
            **waited_ns > 0 && 2 * **waited_ns >= start(column + 1) - start(*column)
        });
        mostly.map(|(column, _)| column)
    }
}

/// A message from lane to lane.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MessageLine {
    /// Lane and time of the send.
    pub from: (usize, i64),
    /// Lane and time of the receive.
    pub to: (usize, i64),
}

/// Messages between the lanes.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct MessageLines {
    /// All of them, or evenly spread ones if they are too many.
    pub lines: Vec<MessageLine>,
    /// Number of all messages.
    pub count: u64,
    /// Number of messages by the column of their send.
    pub by_column: Vec<u64>,
}

/// A region of the picture.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Legend {
    /// Its name.
    pub name: String,
    /// Time in itself, over all lanes shown, nanoseconds.
    pub exclusive_ns: i64,
}

/// A wait that is named below the picture.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NamedWait {
    /// The lane that waits.
    pub lane: usize,
    /// The level of the call that waits.
    pub level: usize,
    /// Who waited for whom.
    pub wait: Wait,
}

/// What is drawn.
#[derive(Clone, PartialEq, Debug)]
pub struct Layout {
    /// The time window, with both ends.
    pub window: Window,
    /// Columns of time.
    pub columns: usize,
    /// From top to bottom.
    pub lanes: Vec<Lane>,
    /// Messages.
    pub messages: MessageLines,
    /// The longest waits, the longest first.
    pub longest_waits: Vec<NamedWait>,
    /// Regions, most time first.
    pub legend: Vec<Legend>,
    /// What lanes are in where no bar is drawn.
    pub outside: &'static str,
    /// What is not shown, and what to do to see it.
    pub notes: Vec<String>,
}

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
        let locations = calls.locations().to_vec();
        let (chosen, count) = choose(definitions, filter, request.first_lane, request.lanes);
        let mut notes = Vec::new();
        if chosen.len() < count && request.first_lane.is_none() {
            notes.push(format!(
                "{} of {count} locations are shown, evenly spread; choose with --rank or --location, or give \
                 more --lanes",
                chosen.len()
            ));
        }
        let mut lanes = vec![None; locations.len()];
        for (lane, location) in chosen.iter().enumerate() {
            if let Ok(number) = locations.binary_search(location) {
                lanes[number] = Some(lane);
            }
        }
        let lane_of = |id: LocationId| lanes[locations.binary_search(&id).ok()?];
        let streams = definitions.streams.values();
        let lanes_of_streams: ByStream<usize> = streams
            .filter_map(|stream| Some((stream.id, lane_of(stream.location?)?)))
            .collect();
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
        let size = (window, columns, request.levels.max(1));
        let mut bars = Bars::new(
            opened,
            filter,
            size,
            lanes.clone(),
            std::mem::take(&mut links.waits),
        );
        let outcome = if metrics.types.is_empty() {
            calls.run(opened, &mut bars)?
        } else {
            calls.read(opened, &mut bars, |chunk, _| {
                metrics.add_chunk(chunk, window, columns, &lanes_of_streams);
            })?
        };
        if bars.hidden_calls != 0 {
            notes.push(format!(
                "{} calls deeper than {} levels are not drawn",
                bars.hidden_calls, request.levels
            ));
        }
        if bars.std_calls != 0 {
            notes.push(format!(
                "{} calls within standard libraries are not drawn; choose with --region to see them",
                bars.std_calls
            ));
        }
        if metrics.left_out {
            notes.push(
                "only the first metric of a location is drawn; choose with --event".to_owned(),
            );
        }
        let mut regions: BTreeMap<RegionId, i64> = std::mem::take(&mut bars.exclusive);
        for region in bars.regions() {
            regions.entry(region).or_default();
        }
        regions.retain(|region, _| filter.takes_region(*region));
        let mut regions: Vec<(RegionId, i64)> = regions.into_iter().collect();
        regions.sort_by_key(|(region, ns)| (std::cmp::Reverse(*ns), *region));
        let places = regions.iter().enumerate();
        let places = places
            .map(|(place, (region, _))| (*region, place))
            .collect();
        let legend = regions.iter().map(|(region, exclusive_ns)| Legend {
            name: definitions.region_name(*region),
            exclusive_ns: *exclusive_ns,
        });
        let names = LocationNames::new(definitions);
        let drawn = chosen.iter().enumerate().map(|(lane, id)| Lane {
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
            legend: legend.collect(),
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

    /// Returns the longest waits as sentences, each with why the other rank was late.
    pub fn wait_sentences(&self) -> impl Iterator<Item = String> {
        let waits: Vec<Wait> = self
            .longest_waits
            .iter()
            .map(|named| named.wait.clone())
            .collect();
        let sentence = |wait: &Wait| wait_sentence(wait) + &wait_chain(wait, &waits);
        let sentences: Vec<String> = waits.iter().map(sentence).collect();
        sentences.into_iter()
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
                "{elsewhere} events were lost at locations that are not shown, or at none (see `trace-cli \
                 dropped`)"
            ));
        }
    }
}
