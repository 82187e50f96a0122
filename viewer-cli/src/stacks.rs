//! Region calls out of enter and leave events, aware of losses.
//!
//! Regions nest per location. A call is counted at its enter. In a window, a call counts when it was
//! entered there, and its time is the part that lies there.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use annals_format::{
    Definitions, EventTypeId, LocationId, ProcessId, RegionId, Role, TraceChunk, TraceLoss,
};
use annals_merger::Window;

use crate::filter::Filter;
use crate::names::Places;

/// What statistics are kept by, beside the region.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Group {
    /// All of it.
    All,
    /// A rank.
    Rank(u32),
    /// A location.
    Location(LocationId),
}

/// How statistics are grouped.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Grouping {
    /// Not at all.
    #[default]
    None,
    /// By rank.
    Rank,
    /// By location.
    Location,
}

/// Statistics of one region in one group. Times in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RegionStats {
    /// Enters.
    pub calls: u64,
    /// Enters and leaves that the recorder's rules switch off: those of its own two event types.
    pub ruled_events: u64,
    /// Time in the region, regions it called included; recursion is not counted twice.
    pub inclusive_ns: i64,
    /// Time in the region itself.
    pub exclusive_ns: i64,
    /// Calls whose enter and leave were both seen.
    pub completed: u64,
    /// Sum of the durations of completed calls.
    pub completed_ns: i64,
    /// Shortest completed call.
    pub min_ns: Option<i64>,
    /// Longest completed call.
    pub max_ns: Option<i64>,
    /// Calls that were still open at the end.
    pub open_calls: u64,
    /// Leaves without an enter.
    pub unmatched_leaves: u64,
    /// Calls that were never left, and ended with a region around them: `longjmp` does that.
    pub unleft_calls: u64,
    /// By how much `calls` may differ from the true number.
    pub uncertain_calls: u64,
    /// Whether even that is only a lower bound.
    pub uncertain_is_lower_bound: bool,
    /// Whether a loss may have changed the times.
    pub is_time_uncertain: bool,
}

/// An event type that enters or leaves regions.
#[derive(Clone, Copy)]
struct Kind {
    is_enter: bool,
    /// Whether the recorder's rules about regions reach it.
    is_ruled: bool,
    /// Which element is the region.
    at: usize,
}

struct Frame {
    region: RegionId,
    entered_ns: i64,
    /// A loss lies between enter and now: enters or leaves may be missing.
    is_uncertain: bool,
}

#[derive(Default)]
struct Stack {
    frames: Vec<Frame>,
    depth: HashMap<RegionId, u32>,
    last_ns: Option<i64>,
    group: Option<Group>,
}

/// Gathers region statistics from chunks in global order.
pub struct RegionCounter<'a> {
    definitions: &'a Definitions,
    places: &'a Places,
    filter: &'a Filter,
    window: Window,
    grouping: Grouping,
    roles: BTreeMap<EventTypeId, Kind>,
    stacks: HashMap<LocationId, Stack>,
    stats: BTreeMap<(Group, RegionId), RegionStats>,
}

impl<'a> RegionCounter<'a> {
    /// A counter that has seen nothing yet.
    pub fn new(
        definitions: &'a Definitions,
        places: &'a Places,
        filter: &'a Filter,
        window: Window,
        grouping: Grouping,
    ) -> Self {
        let types = definitions.event_types.values();
        let roles = types.filter_map(|event_type| {
            let is_enter = match event_type.role {
                Role::Enter => true,
                Role::Leave => false,
                _ => return None,
            };
            let mut elements = event_type.elements.iter();
            let at = elements.position(|e| definitions.string(e.name) == "region")?;
            // The recorder asks its rules about regions for the event types that it defines itself, and
            // the layer for `tracing` asks for its own, one of each level.
            let own = if is_enter { "enter" } else { "leave" };
            let name = definitions.string(event_type.name);
            let of_layer = name.strip_prefix("tracing.");
            let of_layer = of_layer.and_then(|rest| rest.strip_prefix(own));
            let kind = Kind {
                is_enter,
                is_ruled: name == own || of_layer.is_some_and(|rest| rest.starts_with('.')),
                at,
            };
            Some((event_type.id, kind))
        });
        Self {
            definitions,
            places,
            filter,
            window,
            grouping,
            roles: roles.collect(),
            stacks: HashMap::new(),
            stats: BTreeMap::new(),
        }
    }

    fn group_of(&self, rank: u32, location: LocationId) -> Group {
        match self.grouping {
            Grouping::None => Group::All,
            Grouping::Rank => Group::Rank(rank),
            Grouping::Location => Group::Location(location),
        }
    }

    /// Takes the next chunk in.
    pub fn take(&mut self, chunk: &TraceChunk) {
        let ordinals = chunk.ordinals();
        let roles: Vec<Option<Kind>> = chunk
            .types
            .iter()
            .map(|columns| self.roles.get(&columns.event_type).copied())
            .collect();
        let mut losses = chunk.losses.iter().peekable();
        for (index, ordinal) in ordinals.iter().enumerate() {
            while let Some((_, loss)) = losses.next_if(|loss| loss.0 as usize <= index) {
                self.note_gap(loss);
            }
            let type_index = usize::from(chunk.type_index[index]);
            let Some(kind) = roles[type_index] else {
                continue;
            };
            let stream = chunk.streams[index];
            if !self.filter.takes_stream(stream) {
                continue;
            }
            let place = self.places.get(stream);
            let Some(location) = place.location_id else {
                continue;
            };
            let columns = &chunk.types[type_index];
            let region = columns
                .columns
                .get(kind.at)
                .and_then(|column| column.get(*ordinal as usize).as_integer());
            let Some(region) = region.and_then(|region| u32::try_from(region).ok()) else {
                continue;
            };
            let group = self.group_of(place.rank, location);
            let region = RegionId::new(region);
            self.event(location, group, region, kind, chunk.times_ns[index]);
        }
        losses.for_each(|(_, loss)| self.note_gap(loss));
    }

    /// The part of an interval that lies in the window.
    fn clip(&self, from_ns: i64, to_ns: i64) -> i64 {
        let from = from_ns.max(self.window.from_ns);
        let to = to_ns.min(self.window.to_ns);
        to.saturating_sub(from).max(0)
    }

    fn event(
        &mut self,
        location: LocationId,
        group: Group,
        region: RegionId,
        kind: Kind,
        time_ns: i64,
    ) {
        let mut stack = self.stacks.remove(&location).unwrap_or_default();
        stack.group = Some(group);
        self.advance(&mut stack, group, time_ns);
        let is_ruled = kind.is_ruled && self.window.contains(time_ns);
        self.stats(group, region).ruled_events += u64::from(is_ruled);
        if kind.is_enter {
            *stack.depth.entry(region).or_insert(0) += 1;
            stack.frames.push(Frame {
                region,
                entered_ns: time_ns,
                is_uncertain: false,
            });
            let is_counted = self.window.contains(time_ns);
            self.stats(group, region).calls += u64::from(is_counted);
        } else {
            let found = stack
                .frames
                .iter()
                .rposition(|frame| frame.region == region);
            match found {
                None => {
                    let is_counted = self.window.contains(time_ns);
                    self.stats(group, region).unmatched_leaves += u64::from(is_counted);
                }
                Some(depth) => {
                    // Calls above it were left without our seeing it.
                    while stack.frames.len() > depth + 1 {
                        self.close(&mut stack, group, time_ns, false);
                    }
                    self.close(&mut stack, group, time_ns, true);
                }
            }
        }
        self.stacks.insert(location, stack);
    }

    /// Time since the last event at the location belongs to the innermost region.
    fn advance(&mut self, stack: &mut Stack, group: Group, time_ns: i64) {
        if let (Some(last_ns), Some(top)) = (stack.last_ns, stack.frames.last()) {
            let passed = self.clip(last_ns, time_ns);
            self.stats(group, top.region).exclusive_ns += passed;
        }
        stack.last_ns = Some(time_ns);
    }

    fn stats(&mut self, group: Group, region: RegionId) -> &mut RegionStats {
        self.stats.entry((group, region)).or_default()
    }

    fn close(&mut self, stack: &mut Stack, group: Group, time_ns: i64, is_complete: bool) {
        let Some(frame) = stack.frames.pop() else {
            return;
        };
        let depth = stack.depth.entry(frame.region).or_insert(1);
        *depth = depth.saturating_sub(1);
        let is_outermost = *depth == 0;
        let inside = self.clip(frame.entered_ns, time_ns);
        let is_counted = self.window.contains(frame.entered_ns);
        let stats = self.stats(group, frame.region);
        if is_outermost {
            stats.inclusive_ns += inside;
        }
        stats.is_time_uncertain |= frame.is_uncertain || !is_complete;
        stats.unleft_calls += u64::from(!is_complete && is_counted);
        if is_complete && is_counted {
            stats.completed += 1;
            stats.completed_ns += inside;
            stats.min_ns = Some(stats.min_ns.map_or(inside, |min| min.min(inside)));
            stats.max_ns = Some(stats.max_ns.map_or(inside, |max| max.max(inside)));
        }
    }

    /// Whether a loss may have been one of enters or leaves.
    fn role_of_loss(&self, loss: &TraceLoss) -> (bool, bool) {
        match loss.event_type {
            _ if loss.cause.is_suppressed() => (false, false),
            None => (true, true),
            Some(event_type) => match self.roles.get(&event_type) {
                Some(kind) => (kind.is_enter, !kind.is_enter),
                None => (false, false),
            },
        }
    }

    /// The stacks of a location are not to be trusted across a loss of enters or leaves.
    fn note_gap(&mut self, loss: &TraceLoss) {
        let (enters, leaves) = self.role_of_loss(loss);
        if !enters && !leaves {
            return;
        }
        let location = self.places.get(loss.stream).location_id;
        if let Some(stack) = location.and_then(|location| self.stacks.get_mut(&location)) {
            for frame in &mut stack.frames {
                frame.is_uncertain = true;
            }
        }
    }

    /// The statistics: open calls counted up to the last event at their location, losses spread over
    /// the regions that they may concern.
    pub fn finish(mut self, losses: &[TraceLoss]) -> BTreeMap<(Group, RegionId), RegionStats> {
        for (_, mut stack) in std::mem::take(&mut self.stacks) {
            let (Some(group), Some(last_ns)) = (stack.group, stack.last_ns) else {
                continue;
            };
            while let Some(frame) = stack.frames.last() {
                let region = frame.region;
                let is_counted = self.window.contains(frame.entered_ns);
                let was_uncertain = self.stats(group, region).is_time_uncertain;
                let unleft_calls = self.stats(group, region).unleft_calls;
                let is_uncertain = frame.is_uncertain;
                self.close(&mut stack, group, last_ns, false);
                let stats = self.stats(group, region);
                stats.open_calls += u64::from(is_counted);
                stats.unleft_calls = unleft_calls;
                // Open to the end is no loss by itself.
                stats.is_time_uncertain = was_uncertain || is_uncertain;
            }
        }
        for loss in losses {
            self.spread(loss);
        }
        self.stats
    }

    fn spread(&mut self, loss: &TraceLoss) {
        let (enters, leaves) = self.role_of_loss(loss);
        let overlaps = loss.to_ns >= self.window.from_ns && loss.from_ns < self.window.to_ns;
        let is_nothing = loss.count == 0 && !loss.is_lower_bound;
        if is_nothing || !(enters || leaves) || !overlaps || !self.filter.takes_stream(loss.stream)
        {
            return;
        }
        let place = self.places.get(loss.stream);
        for group in self.groups_of_loss(place.rank, place.process, place.location_id) {
            for region in self.regions_of(place.process) {
                let stats = self.stats(group, region);
                if enters {
                    stats.uncertain_calls = stats.uncertain_calls.saturating_add(loss.count);
                    stats.uncertain_is_lower_bound |= loss.is_lower_bound;
                }
                stats.is_time_uncertain = true;
            }
        }
    }

    fn groups_of_loss(
        &self,
        rank: u32,
        process: ProcessId,
        location: Option<LocationId>,
    ) -> Vec<Group> {
        match (self.grouping, location) {
            (Grouping::None, _) => vec![Group::All],
            (Grouping::Rank, _) => vec![Group::Rank(rank)],
            (Grouping::Location, Some(location)) => vec![Group::Location(location)],
            // Lost without a stream: at any location of the process.
            (Grouping::Location, None) => {
                let locations = self.definitions.locations.values();
                let of_process = locations.filter(|location| location.process == process);
                of_process
                    .map(|location| Group::Location(location.id))
                    .collect()
            }
        }
    }

    fn regions_of(&self, process: ProcessId) -> BTreeSet<RegionId> {
        match self.definitions.region_sets.get(&process) {
            Some(set) => set.regions.iter().copied().collect(),
            None => self.definitions.regions.keys().copied().collect(),
        }
    }
}
