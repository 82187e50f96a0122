//! The lanes of some locations of a trace, and what their groups need.

use annals_format::{LaneKey, LaneKind, LocationId, MAX_LANE_DEPTH, OverviewRow, RegionId};

use crate::overview::lane::{Lane, Turn, TurnKind};

/// Begins and ends of calls of a group, by depth.
pub(crate) type TurnsByDepth = Vec<Vec<Turn>>;

/// A location of a shard.
#[derive(Debug)]
struct OwnLocation {
    id: LocationId,
    /// The groups that it belongs to.
    groups: Vec<u32>,
    /// By depth.
    lanes: Vec<Lane>,
}

/// The lanes of some locations.
#[derive(Debug)]
pub(crate) struct ShardLanes {
    locations: Vec<OwnLocation>,
    /// By group.
    pub(crate) turns: Vec<TurnsByDepth>,
    /// Bins that are finished.
    pub(crate) rows: Vec<OverviewRow>,
    /// Times of the first and the last begin or end of a call, nanoseconds.
    pub(crate) span_ns: Option<(i64, i64)>,
}

impl ShardLanes {
    /// Creates the lanes of locations: their ids, and the groups they belong to.
    pub(crate) fn new(
        locations: impl Iterator<Item = (LocationId, Vec<u32>)>,
        groups: usize,
    ) -> Self {
        let locations = locations.map(|(id, groups)| OwnLocation {
            id,
            groups,
            lanes: Vec::new(),
        });
        Self {
            locations: locations.collect(),
            turns: vec![Vec::new(); groups],
            rows: Vec::new(),
            span_ns: None,
        }
    }

    /// Takes the begin or the end of a call at a place: its location, and the number of calls around it.
    #[inline]
    pub(crate) fn turn(
        &mut self,
        place: (usize, usize),
        region: RegionId,
        time_ns: i64,
        kind: TurnKind,
    ) {
        let (location, depth) = place;
        let (first_ns, last_ns) = self.span_ns.unwrap_or((time_ns, time_ns));
        self.span_ns = Some((first_ns.min(time_ns), last_ns.max(time_ns)));
        if depth >= MAX_LANE_DEPTH as usize {
            return;
        }
        let turn = Turn {
            time_ns,
            region,
            kind,
        };
        let own = &mut self.locations[location];
        while own.lanes.len() <= depth {
            own.lanes.push(Lane::new(LaneKey {
                kind: LaneKind::Location,
                id: own.id.get(),
                depth: own.lanes.len() as u32,
            }));
        }
        own.lanes[depth].take(turn);
        for group in &own.groups {
            let by_depth = &mut self.turns[*group as usize];
            if by_depth.len() <= depth {
                by_depth.resize_with(depth + 1, Vec::new);
            }
            by_depth[depth].push(turn);
        }
    }

    /// Finishes bins of a location up to a time before which nothing of it follows.
    pub(crate) fn advance(&mut self, location: usize, to_ns: i64) {
        let lanes = self.locations[location].lanes.iter_mut();
        lanes.for_each(|lane| lane.advance(to_ns, &mut self.rows));
    }

    /// Finishes all bins up to a level.
    pub(crate) fn finish(&mut self, top: u8) {
        let lanes = self.locations.iter_mut().flat_map(|own| &mut own.lanes);
        lanes.for_each(|lane| lane.finish(top, &mut self.rows));
    }
}

/// A lane of a group.
#[derive(Debug)]
pub(crate) struct GroupLane {
    pub(crate) key: LaneKey,
    lane: Lane,
    /// What its locations have had since it advanced.
    pub(crate) turns: Vec<Vec<Turn>>,
    pub(crate) rows: Vec<OverviewRow>,
}

impl GroupLane {
    pub(crate) fn new(key: LaneKey) -> Self {
        Self {
            key,
            lane: Lane::new(key),
            turns: Vec::new(),
            rows: Vec::new(),
        }
    }

    /// Finishes bins up to a time before which nothing follows; all of them up to the level `top`, if there is one: a call that
    /// has not ended ends then.
    pub(crate) fn advance(&mut self, to_ns: i64, top: Option<u8>) {
        for mut turn in self.turns.drain(..).flatten() {
            if turn.kind == TurnKind::Forget {
                turn.time_ns = to_ns;
            }
            self.lane.take(turn);
        }
        match top {
            None => self.lane.advance(to_ns, &mut self.rows),
            Some(top) => self.lane.finish(top, &mut self.rows),
        }
    }
}
