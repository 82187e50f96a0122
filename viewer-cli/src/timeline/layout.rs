//! What a timeline shows.

use annals_format::names::element;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use annals_format::{
    Definitions, EventTypeId, LocationId, OrderedChunk, RegionId, Role, StreamId, TraceLoss, Value,
};
use annals_merger::calls::{CallSink, Close, Frame};
use annals_merger::{
    ByStream, Calls, MessageExtractor, MessagePairs, Query, ReadSummary, Reader, Sink, Window,
};
use rustc_hash::{FxHashMap, FxHashSet};

use annals_analysis::{bin_of, bounded, concerns};

use crate::names::is_standard_library;

/// Messages that are drawn, at most: more are a surface, not lines.
const MOST_TRIPS: usize = 2000;

/// A trace of so many events is read from its start to match its messages, without being asked to.
const FEW_EVENTS: u64 = 2_000_000;

/// What is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// When.
    pub window: Window,
    /// Columns of time.
    pub columns: usize,
    /// Most lanes.
    pub lanes: usize,
    /// The first of them, and no lane is left out behind it; none: they are spread evenly over all locations.
    pub first_lane: Option<usize>,
    /// Most rows of a lane, one for each level of nesting. 1: what it was in innermost.
    pub levels: usize,
    /// Whether messages are matched: none: if that is cheap.
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
    /// Ascending.
    pub runs: Vec<Run>,
}

/// Events that are missing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Gap {
    /// First column.
    pub from: usize,
    /// Behind the last.
    pub to: usize,
    /// How many.
    pub count: u64,
    /// Whether more may be.
    pub is_lower_bound: bool,
    /// Why.
    pub cause: &'static str,
}

/// Values of a metric, by column.
#[derive(Clone, PartialEq, Debug)]
pub struct MetricRow {
    /// Its name.
    pub name: String,
    /// Means; none: no value yet.
    pub values: Vec<Option<f64>>,
}

/// A location.
#[derive(Clone, PartialEq, Debug)]
pub struct Lane {
    /// Rank of its process.
    pub rank: u32,
    /// Its name.
    pub name: String,
    /// From the outermost level on.
    pub rows: Vec<LaneRow>,
    /// What is missing.
    pub gaps: Vec<Gap>,
    /// Its first metric, if it has one.
    pub metric: Option<MetricRow>,
}

/// A message from lane to lane, by time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Trip {
    /// Lane and time of the send.
    pub from: (usize, i64),
    /// Lane and time of the receive.
    pub to: (usize, i64),
}

/// A region of the picture.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Legend {
    /// Its name.
    pub name: String,
    /// Time in itself, over all lanes shown, nanoseconds.
    pub exclusive_ns: i64,
}

/// What is drawn.
#[derive(Clone, PartialEq, Debug)]
pub struct Layout {
    /// When: with both ends.
    pub window: Window,
    /// Columns of time.
    pub columns: usize,
    /// From top to bottom.
    pub lanes: Vec<Lane>,
    /// Messages.
    pub trips: Vec<Trip>,
    /// Regions, most time first.
    pub legend: Vec<Legend>,
    /// What is not shown, and what to do to see it.
    pub notes: Vec<String>,
}

/// What a region has in one column of one row.
#[derive(Clone, Copy, Debug)]
struct Part {
    region: RegionId,
    ns: i64,
    /// Calls that began in the column.
    begun: u64,
    /// Begin and end of the last call.
    call_ns: (i64, i64),
}

/// One column of one row. Calls of a row follow each other: at most one is open where a column begins.
#[derive(Clone, Default, Debug)]
struct Cell {
    parts: Vec<Part>,
    /// The region of the call that is open where the column begins.
    open: Option<RegionId>,
}

impl Cell {
    /// Takes in a part of a call.
    fn add(&mut self, region: RegionId, ns: i64, begun: u64, call_ns: (i64, i64)) {
        if begun == 0 {
            self.open = Some(region);
        }
        if let Some(part) = self.parts.iter_mut().find(|part| part.region == region) {
            part.ns += ns;
            part.begun += begun;
            part.call_ns = call_ns;
        } else {
            self.parts.push(Part {
                region,
                ns,
                begun,
                call_ns,
            });
        }
    }

    fn begun(&self) -> u64 {
        self.parts.iter().map(|part| part.begun).sum()
    }
}

struct Gatherer<'a> {
    window: Window,
    columns: usize,
    levels: usize,
    /// By location: its lane.
    lanes: Vec<Option<usize>>,
    /// By lane, level and column.
    cells: Vec<Vec<Vec<Cell>>>,
    exclusive: BTreeMap<RegionId, i64>,
    hidden_calls: u64,
    /// Regions of standard libraries. Empty if regions were chosen.
    std_regions: FxHashSet<RegionId>,
    /// Their calls within others of them.
    std_calls: u64,
    filter: &'a Query,
}

/// What the tag of a call says: its level in the picture, and whether it is drawn.
#[derive(Clone, Copy)]
struct Tag {
    level: u32,
    is_drawn: bool,
}

impl Tag {
    const fn of(frame: &Frame) -> Self {
        Self {
            level: frame.tag >> 1,
            is_drawn: frame.tag & 1 != 0,
        }
    }

    const fn encode(self) -> u32 {
        self.level << 1 | self.is_drawn as u32
    }
}

impl Gatherer<'_> {
    /// Draws a call of a region, or a part of one, from one time to another.
    fn spread(
        &mut self,
        (lane, level): (usize, usize),
        call: &Frame,
        (from_ns, to_ns): (i64, i64),
    ) {
        let region = call.region;
        let begins = from_ns == call.entered_ns && from_ns >= self.window.from_ns;
        let (from_ns, to_ns) = (
            from_ns.max(self.window.from_ns),
            to_ns.min(self.window.to_ns),
        );
        if from_ns >= to_ns || !self.filter.takes_region(region) {
            return;
        }
        let rows = &mut self.cells[lane];
        while rows.len() <= level {
            rows.push(vec![Cell::default(); self.columns]);
        }
        let first = bin_of(self.window, self.columns, from_ns);
        let last = bin_of(self.window, self.columns, to_ns - 1);
        let call_ns = (from_ns, to_ns);
        for (column, cell) in rows[level][first..=last].iter_mut().enumerate() {
            let begun = u64::from(column == 0 && begins);
            let column = first + column;
            let start = annals_analysis::bin_start(self.window, self.columns, column);
            let end = annals_analysis::bin_start(self.window, self.columns, column + 1);
            // A column may be shorter than a nanosecond.
            let inside = (to_ns.min(end) - from_ns.max(start)).max(1);
            cell.add(region, inside, begun, call_ns);
        }
    }
}

impl CallSink for Gatherer<'_> {
    fn enter(&mut self, _: usize, frames: &[Frame], region: RegionId, _: i64) -> u32 {
        let around = frames.last();
        let level = around.map(Tag::of);
        let level = level.map_or(0, |around| around.level + u32::from(around.is_drawn));
        let is_std = |region: &RegionId| self.std_regions.contains(region);
        let is_nested = is_std(&region) && around.is_some_and(|around| is_std(&around.region));
        let is_drawn = !is_nested && self.filter.takes_region(region);
        Tag { level, is_drawn }.encode()
    }

    fn spend(&mut self, location: usize, frames: &[Frame], from_ns: i64, to_ns: i64) {
        let (Some(lane), Some(top)) = (self.lanes[location], frames.last()) else {
            return;
        };
        let inside = self.window.clip(from_ns, to_ns);
        if inside > 0 {
            *self.exclusive.entry(top.region).or_default() += inside;
        }
        if self.levels == 1 {
            self.spread((lane, 0), top, (from_ns, to_ns));
        }
    }

    fn close(&mut self, location: usize, _: &[Frame], frame: &Frame, time_ns: i64, _: Close) {
        let Some(lane) = self.lanes[location].filter(|_| self.levels > 1) else {
            return;
        };
        let Tag { level, is_drawn } = Tag::of(frame);
        let level = level as usize;
        let is_here = u64::from(time_ns > self.window.from_ns);
        if is_drawn && level < self.levels {
            self.spread((lane, level), frame, (frame.entered_ns, time_ns));
        } else if is_drawn {
            self.hidden_calls += is_here;
        } else if self.filter.takes_region(frame.region) {
            self.std_calls += is_here;
        }
    }
}

impl Sink for Gatherer<'_> {
    const BY_LOCATION: bool = true;
}

/// The regions of standard libraries; none if the filter chooses regions.
fn std_regions(definitions: &Definitions, filter: &Query) -> FxHashSet<RegionId> {
    if filter.is_by_region() {
        return FxHashSet::default();
    }
    let regions = definitions.regions.keys().copied();
    regions
        .filter(|region| is_standard_library(&definitions.region_name(*region)))
        .collect()
}

/// The locations that have streams which a filter takes, in the order of ranks: the lanes of a timeline.
pub fn lanes_of(definitions: &Definitions, filter: &Query) -> Vec<LocationId> {
    let streams = definitions.streams.values();
    let streams = streams.filter(|stream| filter.takes_stream(stream.id));
    let taken: BTreeSet<LocationId> = streams.filter_map(|stream| stream.location).collect();
    let known = |id: &LocationId| definitions.locations.contains_key(id);
    let mut all: Vec<LocationId> = taken.into_iter().filter(known).collect();
    all.sort_by_key(|id| (definitions.rank_of_location(*id), *id));
    all
}

/// Which locations are drawn, and how many there are.
fn choose(
    definitions: &Definitions,
    filter: &Query,
    first: Option<usize>,
    most: usize,
) -> (Vec<LocationId>, usize) {
    let mut all = lanes_of(definitions, filter);
    let count = all.len();
    let most = most.max(1);
    if let Some(first) = first {
        all = all.into_iter().skip(first).take(most).collect();
    } else if count > most {
        // Evenly spread, the first and the last among them.
        let step = |n: usize| n * (count - 1) / (most - 1).max(1);
        all = (0..most).map(|n| all[step(n)]).collect();
        all.dedup();
    }
    (all, count)
}

/// Messages of a window.
struct Trips {
    pairs: MessagePairs,
    found: Vec<(StreamId, i64, StreamId, i64)>,
    count: u64,
}

impl Trips {
    fn take(&mut self, chunk: &OrderedChunk, window: Window, lanes: &ByStream<usize>) {
        let (found, count) = (&mut self.found, &mut self.count);
        self.pairs.take(chunk, |message| {
            let (from, to) = (message.send, message.receive);
            let (first, last) = (from.time_ns.min(to.time_ns), from.time_ns.max(to.time_ns));
            let is_shown = lanes.get(from.stream).is_some() && lanes.get(to.stream).is_some();
            if is_shown && window.overlaps(first, last) {
                *count += 1;
                if found.len() < MOST_TRIPS * 8 {
                    found.push((from.stream, from.time_ns, to.stream, to.time_ns));
                }
            }
        });
    }
}

/// Sum and number of a metric's values by column.
type Sums = Vec<(f64, u64)>;

struct MetricSums {
    types: FxHashMap<EventTypeId, usize>,
    /// By lane: the event type that was seen first, and its values.
    of_lane: BTreeMap<usize, (EventTypeId, Sums)>,
    left_out: bool,
}

impl MetricSums {
    fn of(definitions: &Definitions, filter: &Query) -> Self {
        let types = definitions.event_types.values();
        let types = types.filter(|t| t.role == Role::Metric && filter.takes_event_type(t.id));
        let types = types.filter_map(|t| Some((t.id, definitions.element(t.id, element::VALUE)?)));
        Self {
            types: types.collect(),
            of_lane: BTreeMap::new(),
            left_out: false,
        }
    }

    fn take(
        &mut self,
        chunk: &OrderedChunk,
        window: Window,
        columns: usize,
        lanes: &ByStream<usize>,
    ) {
        if !chunk
            .types()
            .any(|t| self.types.contains_key(&t.event_type))
        {
            return;
        }
        for (event, time_ns) in chunk.times_ns().enumerate() {
            let event_type = chunk.columns(event).event_type;
            let (Some(at), Some(lane)) =
                (self.types.get(&event_type), lanes.get(chunk.stream(event)))
            else {
                continue;
            };
            if !window.contains(time_ns) {
                continue;
            }
            let value = match chunk.value(event, *at) {
                Value::F64(value) => Some(value),
                other => other.as_integer().map(|value| value as f64),
            };
            let Some(value) = value.filter(|value| value.is_finite()) else {
                continue;
            };
            let sums = self.of_lane.entry(lane);
            let (first, sums) = sums.or_insert_with(|| (event_type, vec![(0.0, 0); columns]));
            if *first != event_type {
                self.left_out = true;
                continue;
            }
            let sum = &mut sums[bin_of(window, columns, time_ns)];
            *sum = (sum.0 + value, sum.1 + 1);
        }
    }

    fn row(&self, lane: usize, definitions: &Definitions) -> Option<MetricRow> {
        let (event_type, sums) = self.of_lane.get(&lane)?;
        let mut last = None;
        let values = sums.iter().map(|(sum, count)| {
            if *count != 0 {
                last = Some(sum / *count as f64);
            }
            last
        });
        Some(MetricRow {
            name: definitions.event_type_name(*event_type),
            values: values.collect(),
        })
    }
}

/// The bars of a row. `are_parts`: of its calls, only what was spent in none of the calls within is there.
fn runs(cells: &[Cell], places: &BTreeMap<RegionId, usize>, are_parts: bool) -> LaneRow {
    let mut runs: Vec<(Run, RegionId)> = Vec::new();
    for (column, cell) in cells.iter().enumerate() {
        // Of equal shares, the one that is first in the legend.
        let most = cell
            .parts
            .iter()
            .filter_map(|part| Some((part, *places.get(&part.region)?)));
        let most = most.max_by_key(|(part, place)| (part.ns, std::cmp::Reverse(*place)));
        let Some((part, region)) = most else { continue };
        match runs.last_mut() {
            Some((last, _)) if last.to == column && last.region == region => last.to += 1,
            _ => runs.push((
                Run {
                    from: column,
                    to: column + 1,
                    region,
                    calls: None,
                    call_ns: None,
                },
                part.region,
            )),
        }
    }
    let counted = runs.into_iter().map(|(mut run, region)| {
        if are_parts {
            return run;
        }
        let inside = &cells[run.from..run.to];
        let begun: u64 = inside.iter().map(Cell::begun).sum();
        let from_before = u64::from(inside[0].open == Some(region));
        // The last call may be of another region, and go on in the columns of its own bar.
        let next = cells.get(run.to).and_then(|cell| cell.open);
        let to_next = u64::from(next.is_some_and(|next| next != region));
        let calls = (begun + from_before).saturating_sub(to_next);
        let parts = inside.iter().flat_map(|cell| &cell.parts);
        let mut of_region = parts.filter(|part| part.region == region);
        run.call_ns = of_region
            .next()
            .filter(|_| calls == 1)
            .map(|part| part.call_ns);
        run.calls = Some(calls);
        run
    });
    LaneRow {
        runs: counted.collect(),
    }
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
        let mut trips = trips(opened, request, &mut notes)?;
        calls.from_start = trips.is_some();
        let mut metrics = MetricSums::of(definitions, filter);
        let mut gatherer = Gatherer {
            window,
            columns,
            levels: request.levels.max(1),
            lanes: lanes.clone(),
            cells: vec![Vec::new(); chosen.len()],
            exclusive: BTreeMap::new(),
            hidden_calls: 0,
            std_regions: std_regions(definitions, filter),
            std_calls: 0,
            filter,
        };
        let outcome = if trips.is_none() && metrics.types.is_empty() {
            calls.run(opened, &mut gatherer)?
        } else {
            calls.read(opened, &mut gatherer, |chunk, _| {
                metrics.take(chunk, window, columns, &lanes_of_streams);
                if let Some(trips) = &mut trips {
                    trips.take(chunk, window, &lanes_of_streams);
                }
            })?
        };
        if gatherer.hidden_calls != 0 {
            notes.push(format!(
                "{} calls deeper than {} levels are not drawn",
                gatherer.hidden_calls, request.levels
            ));
        }
        if gatherer.std_calls != 0 {
            notes.push(format!(
                "{} calls within standard libraries are not drawn; choose with --region to see them",
                gatherer.std_calls
            ));
        }
        if metrics.left_out {
            notes.push(
                "only the first metric of a location is drawn; choose with --event".to_owned(),
            );
        }
        let exclusive = std::mem::take(&mut gatherer.exclusive);
        let mut regions: Vec<(RegionId, i64)> = exclusive.into_iter().collect();
        let cells = gatherer.cells.iter().flatten().flatten();
        let drawn: FxHashSet<RegionId> = cells
            .flat_map(|cell| &cell.parts)
            .map(|part| part.region)
            .collect();
        let known: FxHashSet<RegionId> = regions.iter().map(|(region, _)| *region).collect();
        regions.extend(drawn.difference(&known).map(|region| (*region, 0)));
        regions.retain(|(region, _)| filter.takes_region(*region));
        regions.sort_by_key(|(region, ns)| (std::cmp::Reverse(*ns), *region));
        let places = regions.iter().enumerate();
        let places = places
            .map(|(place, (region, _))| (*region, place))
            .collect();
        let legend = regions.iter().map(|(region, exclusive_ns)| Legend {
            name: definitions.region_name(*region),
            exclusive_ns: *exclusive_ns,
        });
        let drawn = chosen.iter().enumerate().map(|(lane, id)| {
            let location = definitions.locations.get(id);
            Lane {
                rank: definitions.rank_of_location(*id),
                name: location.map_or_else(String::new, |l| definitions.string(l.name).to_owned()),
                rows: gatherer.cells[lane]
                    .iter()
                    .map(|row| runs(row, &places, request.levels <= 1))
                    .collect(),
                gaps: Vec::new(),
                metric: metrics.row(lane, definitions),
            }
        });
        let mut layout = Self {
            window,
            columns,
            lanes: drawn.collect(),
            trips: Vec::new(),
            legend: legend.collect(),
            notes,
        };
        layout.take_gaps(&outcome.losses, filter, &lanes_of_streams);
        layout.take_trips(trips, &lanes_of_streams);
        Ok((layout, outcome))
    }

    fn take_gaps(&mut self, losses: &[TraceLoss], filter: &Query, lanes: &ByStream<usize>) {
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

    fn take_trips(&mut self, trips: Option<Trips>, lanes: &ByStream<usize>) {
        let Some(trips) = trips else { return };
        let step = trips.found.len().div_ceil(MOST_TRIPS).max(1);
        for (from, from_ns, to, to_ns) in trips.found.iter().step_by(step) {
            if let (Some(from), Some(to)) = (lanes.get(*from), lanes.get(*to)) {
                self.trips.push(Trip {
                    from: (from, *from_ns),
                    to: (to, *to_ns),
                });
            }
        }
        if (self.trips.len() as u64) < trips.count {
            let shown = self.trips.len();
            self.notes
                .push(format!("{shown} of {} messages are drawn", trips.count));
        }
    }
}

fn trips(
    opened: &Reader,
    request: Request,
    notes: &mut Vec<String>,
) -> anyhow::Result<Option<Trips>> {
    let mut types = opened.definitions().event_types.values();
    let has_messages = types.any(|t| matches!(t.role, Role::Send | Role::Receive));
    if !has_messages || request.messages == Some(false) {
        return Ok(None);
    }
    let before = opened.events_before(request.window.to_ns);
    if request.messages.is_none() && before > FEW_EVENTS {
        notes.push(
            "messages are not drawn: to match them, the trace must be read from its start (--messages does that)"
                .to_owned(),
        );
        return Ok(None);
    }
    let totals = opened.summary()?.totals;
    let extractor = MessageExtractor::of(opened.definitions(), &totals);
    Ok(extractor.map(|extractor| Trips {
        pairs: MessagePairs::new(Arc::new(extractor)),
        found: Vec::new(),
        count: 0,
    }))
}
