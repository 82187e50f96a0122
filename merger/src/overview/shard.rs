//! The lanes of some locations of a trace, and what those of their groups need.

use annals_format::{LaneKey, LaneKind, LocationId, MAX_LANE_DEPTH, OverviewRow};

use crate::analysis::{Close, Frame};
use crate::calls::{CallStack, Ending};
use crate::overview::group_lane::{GroupLane, Turn, Turns};
use crate::overview::lane::{Shared, Sums};
use crate::overview::own_lane::{Over, OwnCall, OwnLane};

/// A location of a shard.
#[derive(Debug)]
struct OwnLocation {
    id: LocationId,
    /// The groups that it belongs to.
    groups: Vec<u32>,
    /// By depth.
    lanes: Vec<OwnLane>,
    /// Time of the last event.
    last_ns: i64,
    /// Times of the first and the last begin or end of a call, nanoseconds.
    span_ns: Option<(i64, i64)>,
    /// It has had events that groups may not know.
    has_news: bool,
    /// Where groups draw its open calls to, nanoseconds.
    end_ns: Option<i64>,
}

impl OwnLocation {
    fn lane(&mut self, depth: usize) -> &mut OwnLane {
        while self.lanes.len() <= depth {
            self.lanes.push(OwnLane::new(LaneKey {
                kind: LaneKind::Location,
                id: self.id.get(),
                depth: self.lanes.len() as u32,
            }));
        }
        &mut self.lanes[depth]
    }
}

/// The lanes of some locations. Regions have numbers.
#[derive(Debug)]
pub(crate) struct ShardLanes {
    locations: Vec<OwnLocation>,
    /// Locations that have had events that groups may not know.
    news: Vec<usize>,
    /// Where groups draw open calls of locations to, last first; those that groups know are gone.
    ends: Vec<(i64, usize)>,
    /// Bins that are finished.
    pub(crate) rows: Vec<OverviewRow>,
}

impl ShardLanes {
    /// Creates the lanes of locations: their ids, their ends, and the groups they belong to.
    pub(crate) fn new(locations: impl Iterator<Item = (LocationId, Ending, Vec<u32>)>) -> Self {
        let locations = locations.map(|(id, end, groups)| OwnLocation {
            id,
            groups,
            lanes: Vec::new(),
            last_ns: i64::MIN,
            span_ns: None,
            has_news: false,
            end_ns: end.drawn_to_ns(),
        });
        let locations: Vec<OwnLocation> = locations.collect();
        let ends = locations.iter().enumerate();
        let ends = ends.filter_map(|(number, own)| Some((own.end_ns?, number)));
        let mut ends: Vec<(i64, usize)> = ends.collect();
        ends.sort_unstable_by_key(|end| std::cmp::Reverse(*end));
        Self {
            locations,
            news: Vec::new(),
            ends,
            rows: Vec::new(),
        }
    }

    /// Takes a call that ended at a place: its location, and the number of calls around it. Its tag is the number of its region.
    #[inline]
    pub(crate) fn close(&mut self, place: (usize, usize), frame: &Frame, at_ns: i64, how: Close) {
        let (location, depth) = place;
        if depth < MAX_LANE_DEPTH as usize {
            let lane = self.locations[location].lane(depth);
            lane.calls.push(OwnCall {
                begin_ns: frame.entered_ns,
                end_ns: at_ns,
                region: frame.tag,
                has_ended: how != Close::Open,
            });
        }
    }

    /// Notes which calls of a location are open, after it has had events.
    pub(crate) fn note(&mut self, location: usize, stack: &CallStack) {
        let own = &mut self.locations[location];
        if !std::mem::replace(&mut own.has_news, true) {
            self.news.push(location);
        }
        own.last_ns = stack.last_ns().unwrap_or(own.last_ns);
        own.lanes.iter_mut().for_each(|lane| lane.open = None);
        let frames = stack.frames().iter().take(MAX_LANE_DEPTH as usize);
        for (depth, frame) in frames.enumerate() {
            own.lane(depth).open = Some((frame.entered_ns, frame.tag));
        }
        // All others are inside these.
        let outer = own.lanes.first().map_or(&[][..], |lane| &lane.calls);
        if let (Some(first), Some(last)) = (outer.first(), outer.last()) {
            let first_ns = own.span_ns.map_or(first.begin_ns, |span| span.0);
            own.span_ns = Some((first_ns, last.end_ns));
        }
    }

    /// Notes which locations ended before a time up to which all events are there.
    pub(crate) fn note_ends(&mut self, to_ns: i64) {
        while let Some((_, location)) = self.ends.pop_if(|(end_ns, _)| *end_ns < to_ns) {
            let own = &mut self.locations[location];
            for lane in own.lanes.iter_mut().filter(|lane| lane.open.is_some()) {
                lane.over = Over::Now;
            }
            if !std::mem::replace(&mut own.has_news, true) {
                self.news.push(location);
            }
        }
    }

    /// Returns the times of the first and the last begin or end of a call, nanoseconds.
    pub(crate) fn span_ns(&self) -> Option<(i64, i64)> {
        let spans = self.locations.iter().filter_map(|own| own.span_ns);
        spans.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))
    }

    /// Returns locations and depths that have something that groups do not know, with the groups.
    pub(crate) fn news(&self) -> impl Iterator<Item = (usize, usize, &[u32])> {
        self.news.iter().flat_map(|location| {
            let own = &self.locations[*location];
            let lanes = own.lanes.iter().enumerate();
            let lanes = lanes.filter(|(_, lane)| lane.has_news());
            lanes.map(|(depth, _)| (*location, depth, &own.groups[..]))
        })
    }

    /// Finishes bins. Groups know all calls.
    pub(crate) fn advance(&mut self, shared: Shared<'_>) {
        let mut sums = Sums::new(shared, Vec::new(), &mut self.rows);
        for location in self.news.drain(..) {
            let own = &mut self.locations[location];
            own.has_news = false;
            for lane in &mut own.lanes {
                lane.advance(own.last_ns, &mut sums);
            }
        }
    }

    /// Finishes all bins up to a level, and maybe some above.
    pub(crate) fn finish(&mut self, top: u8, shared: Shared<'_>) {
        let lanes = self.locations.iter_mut().flat_map(|own| &mut own.lanes);
        let mut sums = Sums::new(shared, Vec::new(), &mut self.rows);
        lanes.for_each(|lane| lane.finish(top, &mut sums));
    }
}

/// What is new to a lane of a group.
pub(crate) struct GroupNews<'a> {
    /// The shards, and by number of a region there its number here.
    shards: &'a [(&'a ShardLanes, Vec<u32>)],
    /// Where it is: shard, location.
    places: &'a [(usize, usize)],
    depth: usize,
    /// The latest end of calls that are open at the end.
    last_ns: i64,
}

impl GroupNews<'_> {
    /// Returns each lane, with where its open calls are drawn to.
    fn lanes(&self) -> impl Iterator<Item = (&OwnLane, i64, &[u32])> {
        self.places.iter().map(|(shard, location)| {
            let (lanes, numbers) = &self.shards[*shard];
            let own = &lanes.locations[*location];
            let end_ns = own.end_ns.unwrap_or(self.last_ns).min(self.last_ns);
            (&own.lanes[self.depth], end_ns, &numbers[..])
        })
    }
}

impl Turns for GroupNews<'_> {
    fn most(&self) -> usize {
        let calls = self
            .lanes()
            .map(|(own, ..)| own.calls.len() - own.known + 1);
        2 * calls.sum::<usize>()
    }

    #[inline]
    fn each(&self, mut take: impl FnMut(Turn, i64)) {
        for (own, end_ns, numbers) in self.lanes() {
            let mut is_begin_known = own.is_begin_known;
            let mut is_over = own.over == Over::Known;
            for call in &own.calls[own.known..] {
                let region = numbers[call.region as usize];
                if !std::mem::take(&mut is_begin_known) {
                    take(Turn::begin(call.begin_ns, region), 0);
                }
                let length_ns = call.length_ns();
                match call.has_ended {
                    _ if std::mem::take(&mut is_over) => {}
                    true => take(Turn::end(call.end_ns, region, length_ns), length_ns),
                    false => take(Turn::forget(end_ns, region), 0),
                }
            }
            if let Some((begin_ns, region)) = own.open {
                let region = numbers[region as usize];
                if !is_begin_known {
                    take(Turn::begin(begin_ns, region), 0);
                }
                if own.over == Over::Now {
                    take(Turn::forget(end_ns, region), 0);
                }
            }
        }
    }
}

/// The lanes of groups.
#[derive(Debug, Default)]
pub(crate) struct GroupLanes {
    /// Kind and number of each group, and how many locations it has.
    groups: Vec<(LaneKind, u32, u64)>,
    /// By group and depth, its lane.
    numbers: Vec<Vec<usize>>,
    /// Each with the places of what is new to it: shard, location.
    pub(crate) lanes: Vec<(GroupLane, Vec<(usize, usize)>)>,
}

impl GroupLanes {
    pub(crate) fn new(groups: Vec<(LaneKind, u32, u64)>) -> Self {
        Self {
            numbers: vec![Vec::new(); groups.len()],
            groups,
            lanes: Vec::new(),
        }
    }

    /// Notes where something is new.
    pub(crate) fn note(&mut self, shards: &[(&ShardLanes, Vec<u32>)]) {
        for (shard, (lanes, _)) in shards.iter().enumerate() {
            for (location, depth, groups) in lanes.news() {
                for group in groups {
                    let lane = self.lane(*group as usize, depth);
                    self.lanes[lane].1.push((shard, location));
                }
            }
        }
    }

    fn lane(&mut self, group: usize, depth: usize) -> usize {
        while self.numbers[group].len() <= depth {
            let (kind, id, members) = self.groups[group];
            let depth = self.numbers[group].len() as u32;
            self.numbers[group].push(self.lanes.len());
            let lane = GroupLane::new(LaneKey { kind, id, depth }, members);
            self.lanes.push((lane, Vec::new()));
        }
        self.numbers[group][depth]
    }
}

/// Adds what is new to a lane, and finishes bins up to a time before which nothing follows; all of them up to the level
/// `top`, if there is one: calls of locations whose end is not known end then.
pub(crate) fn advance_group(
    lane: &mut (GroupLane, Vec<(usize, usize)>),
    shards: &[(&ShardLanes, Vec<u32>)],
    to_ns: i64,
    top: Option<u8>,
    shared: Shared<'_>,
) {
    let (lane, places) = lane;
    if places.is_empty() && top.is_none() {
        return;
    }
    let news = GroupNews {
        shards,
        places,
        depth: lane.depth(),
        last_ns: to_ns,
    };
    lane.advance(&news, to_ns, top, shared);
    places.clear();
}
