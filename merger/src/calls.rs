//! Region calls out of enters and leaves: the one mechanism that every statistic of regions is built on.
//!
//! Regions nest per location. A leave closes the innermost open call of its region, and the calls inside that
//! were left without our seeing it.

pub(crate) mod moves;
pub(crate) mod region_types;
pub(crate) mod snapshots;
pub(crate) mod stacks;
pub(crate) mod statistics;

use annals_format::{
    Column, Definitions, ElementType, LocationId, LocationState, RegionId, UNBOUNDED,
};
use rustc_hash::FxHashMap;

use crate::analysis::{Analysis, Close, Frame};

/// The end of what is read of a location.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ending {
    /// The location continues after this time, nanoseconds.
    Cut(i64),
    /// The location ended.
    Ended {
        /// Its last known moment, trace time, nanoseconds.
        at_ns: i64,
        /// The latest moment at which it may have ended, trace time, nanoseconds.
        latest_ns: i64,
    },
}

impl Ending {
    /// Returns the end of a location as a trace's definitions report it: [`Definitions::end_of_location`]. Without it, a location
    /// ends with its last event.
    pub fn of(definitions: &Definitions, location: LocationId) -> Self {
        let end = definitions.end_of_location(location);
        let (at_ns, error_ns) = end.unwrap_or((i64::MIN, UNBOUNDED));
        Self::Ended {
            at_ns,
            latest_ns: at_ns.saturating_add_unsigned(error_ns),
        }
    }

    /// Returns the end of what a trace has of a location.
    pub fn in_trace(definitions: &Definitions, location: LocationId) -> Self {
        Self::of(definitions, location).within(definitions.kept_to_ns(), false)
    }

    /// Returns where calls that are open then are drawn to among those of other locations: to the last moment that is known, whether or not
    /// leaves may be lost. `None` if nothing is known of it.
    pub fn drawn_to_ns(self) -> Option<i64> {
        match self {
            Self::Ended { at_ns, .. } => (at_ns != i64::MIN).then_some(at_ns),
            Self::Cut(at_ns) => Some(at_ns),
        }
    }

    /// Returns whether the location may go on at a time.
    pub fn is_after(self, time_ns: i64) -> bool {
        match self {
            Self::Cut(at_ns) => at_ns >= time_ns,
            Self::Ended { latest_ns, .. } => latest_ns >= time_ns,
        }
    }

    /// Returns the end of what is read up to a time. `goes_on`: the location is known to have events after it.
    pub fn within(self, to_ns: i64, goes_on: bool) -> Self {
        match self {
            Self::Ended { at_ns, latest_ns } if at_ns < to_ns && !goes_on => Self::Ended {
                at_ns,
                latest_ns: latest_ns.min(to_ns),
            },
            _ => Self::Cut(to_ns),
        }
    }
}

/// From this depth on, open calls are counted by region, so that a deep stack is not searched at every event.
const DEEP: usize = 64;

/// The open calls of a location.
#[derive(Debug, Default)]
pub(crate) struct CallStack {
    frames: Vec<Frame>,
    /// Of a deep stack, open calls by region; empty: the stack is not deep.
    open: FxHashMap<RegionId, u32>,
    last_ns: Option<i64>,
    /// Time of the enter or leave after which something was lost last, nanoseconds.
    lost_after_ns: Option<i64>,
}

impl CallStack {
    /// Returns the open calls, from the outermost on.
    pub(crate) fn frames(&self) -> &[Frame] {
        &self.frames
    }

    /// Returns the trace time of the last enter or leave, nanoseconds. `None` means that there was
    /// none yet.
    pub(crate) const fn last_ns(&self) -> Option<i64> {
        self.last_ns
    }

    /// Returns whether enters or leaves may be missing after the last one.
    pub(crate) fn has_gap_after_last(&self) -> bool {
        self.lost_after_ns.is_some() && self.lost_after_ns == self.last_ns
    }

    #[inline]
    fn is_open(&self, region: RegionId) -> bool {
        if self.open.is_empty() {
            let mut frames = self.frames.iter().rev();
            return frames.any(|frame| frame.region == region);
        }
        self.open.get(&region).is_some_and(|open| *open != 0)
    }

    #[inline]
    fn push(&mut self, frame: Frame) {
        self.frames.push(frame);
        let uncounted = match self.open.is_empty() {
            true if self.frames.len() < DEEP => return,
            true => self.frames.as_slice(),
            false => std::slice::from_ref(&frame),
        };
        for frame in uncounted {
            *self.open.entry(frame.region).or_default() += 1;
        }
    }

    #[inline]
    fn pop(&mut self) -> Option<Frame> {
        let frame = self.frames.pop()?;
        if let Some(open) = self.open.get_mut(&frame.region) {
            *open -= 1;
            // Not immediately, so that a stack whose depth varies around this limit is not counted
            // again and again.
            if self.frames.len() < DEEP / 2 {
                self.open.clear();
            }
        }
        Some(frame)
    }

    #[inline]
    fn open(&mut self, region: RegionId, entered_ns: i64, is_uncertain: bool, tag: u32) {
        self.push(Frame {
            region,
            entered_ns,
            is_uncertain,
            is_outermost: !self.is_open(region),
            tag,
        });
    }

    /// Takes over what was open before the events that follow. `is_first`: no earlier part is read,
    /// so that these calls are new to the analysis.
    pub(crate) fn begin(
        &mut self,
        location: usize,
        state: &LocationState,
        is_first: bool,
        analysis: &mut impl Analysis,
    ) {
        for (region, entered_ns, is_uncertain) in state.open() {
            let tag = match is_first {
                true => analysis.enter(location, &self.frames, region, entered_ns),
                false => analysis.resume(location, &self.frames, region, entered_ns),
            };
            self.open(region, entered_ns, is_uncertain, tag);
        }
        self.last_ns = state.last_ns;
        self.lost_after_ns = state.last_ns.filter(|_| state.has_gap_after_last);
    }

    /// Enters a region.
    #[inline]
    pub(crate) fn enter(
        &mut self,
        location: usize,
        region: RegionId,
        time_ns: i64,
        analysis: &mut impl Analysis,
    ) {
        self.pass(location, time_ns, analysis);
        let tag = analysis.enter(location, &self.frames, region, time_ns);
        self.open(region, time_ns, false, tag);
    }

    /// Leaves a region.
    #[inline]
    pub(crate) fn leave(
        &mut self,
        location: usize,
        region: RegionId,
        time_ns: i64,
        analysis: &mut impl Analysis,
    ) {
        self.pass(location, time_ns, analysis);
        if self.open.is_empty()
            && let Some(frame) = self.frames.pop_if(|frame| frame.region == region)
        {
            // The case of nearly every leave.
            return analysis.close(location, &self.frames, &frame, time_ns, Close::Left);
        }
        if !self.is_open(region) {
            return analysis.unmatched(location, region, time_ns);
        }
        // Calls above it were left without our seeing it.
        while let Some(frame) = self.pop() {
            let is_it = frame.region == region;
            let how = if is_it { Close::Left } else { Close::Unleft };
            analysis.close(location, &self.frames, &frame, time_ns, how);
            if is_it {
                break;
            }
        }
    }

    /// Assigns the time since the last event to the innermost region.
    #[inline]
    fn pass(&mut self, location: usize, time_ns: i64, analysis: &mut impl Analysis) {
        let since = self.last_ns.replace(time_ns);
        if let Some(since_ns) = since.filter(|_| !self.frames.is_empty()) {
            analysis.spend(location, &self.frames, since_ns, time_ns);
        }
    }

    /// Marks all open calls as uncertain after a loss that may have had enters or leaves.
    pub(crate) fn note_gap(&mut self) {
        for frame in &mut self.frames {
            frame.is_uncertain = true;
        }
        self.lost_after_ns = self.last_ns;
    }

    /// Ends what is open. A call that is open when its location ends lasts until then, and is uncertain. If enters or leaves
    /// were lost after the last one, its leave may be among them: it ends with the last one, at the earliest.
    pub(crate) fn end(&mut self, location: usize, end: Ending, analysis: &mut impl Analysis) {
        let Some(last_ns) = self.last_ns else {
            return;
        };
        let end_ns = match end {
            Ending::Cut(at_ns) => at_ns,
            Ending::Ended { at_ns, latest_ns } => {
                let has_gap = self.has_gap_after_last();
                let end_ns = if has_gap { last_ns } else { at_ns.max(last_ns) };
                let frames = &mut self.frames;
                frames
                    .iter_mut()
                    .for_each(|frame| frame.is_uncertain = true);
                if !frames.is_empty() && latest_ns > end_ns {
                    analysis.outlast(location, frames, end_ns, latest_ns, has_gap);
                }
                end_ns
            }
        };
        self.pass(location, end_ns, analysis);
        while let Some(frame) = self.pop() {
            analysis.close(location, &self.frames, &frame, end_ns, Close::Open);
        }
    }
}

/// The regions that the enters or leaves of one type in a group of streams name.
#[derive(Debug)]
pub(crate) struct Moves {
    regions: Vec<u64>,
    next: usize,
}

impl Moves {
    /// Means that there is no region.
    const NO_REGION: u64 = u64::MAX;

    /// Reads the moves of the column of the element `region`.
    pub(crate) fn of(column: &Column) -> Self {
        let mut regions = Vec::with_capacity(column.len());
        let is_unsigned = matches!(column.element_type(), ElementType::U32 | ElementType::U64);
        match column.bits().filter(|_| is_unsigned) {
            Some(bits) => bits.extend_into(0..column.len(), &mut regions),
            None => regions.extend((0..column.len()).map(|ordinal| {
                let region = column.get(ordinal).as_integer();
                let region = region.and_then(|region| u64::try_from(region).ok());
                region.unwrap_or(Self::NO_REGION)
            })),
        }
        Self { regions, next: 0 }
    }

    /// Returns the region of an event, by its index among those of its type; `None` when it names
    /// none.
    #[inline]
    pub(crate) fn get(&self, ordinal: usize) -> Option<RegionId> {
        let region = self.regions.get(ordinal).copied();
        u32::try_from(region.unwrap_or(Self::NO_REGION))
            .ok()
            .map(RegionId::new)
    }

    /// Returns the region of the next event; `None` when it names none.
    #[inline]
    pub(crate) fn step(&mut self) -> Option<RegionId> {
        self.next += 1;
        self.get(self.next - 1)
    }

    /// Passes the next event.
    #[inline]
    pub(crate) const fn pass(&mut self) {
        self.next += 1;
    }
}
