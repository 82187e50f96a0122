//! Analyses: states that calls and events are added to. One trait is all that an analysis implements.

use annals_format::{OrderedChunk, RegionId, TraceChunk, TraceLoss};

use crate::read::event::Event;

/// An open call.
#[derive(Clone, Copy, Debug)]
pub struct Frame {
    /// Which region.
    pub region: RegionId,
    /// When it was entered, trace time, nanoseconds.
    pub entered_ns: i64,
    /// A loss lies between enter and now: enters or leaves may be missing.
    pub is_uncertain: bool,
    /// The region is not open further out.
    pub is_outermost: bool,
    /// The tag that the analysis returned at the enter.
    pub tag: u32,
}

/// How a call ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Close {
    /// It was left.
    Left,
    /// It was never left, and ended with a region around it: `longjmp` does that.
    Unleft,
    /// It is open at the end of the window, or was when its location ended; then it is uncertain, too.
    Open,
}

/// What an analysis receives of a trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pass {
    /// Calls, of one location after another in each chunk of the trace. Several times as fast as [`Pass::OrderedCalls`], and
    /// streams outside of the query are not even read.
    Calls,
    /// Calls in the global order, and the other events in them.
    OrderedCalls,
    /// The query's events in the global order, and the losses between them. Calls are not followed.
    Events,
}

/// How much of a trace one state of an [`Analysis`] adds up. The result is the same for every length;
/// [`SliceLength::AnyOrder`] is for analyses in which the order of the slices does not matter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SliceLength {
    /// The whole trace, in one thread: for states that cannot be merged.
    Whole,
    /// Two chunks, about 131 000 events: for states that keep something of every event.
    Short,
    /// 16 chunks, about a million events: for states whose size does not depend on the number of events, and that
    /// take time to merge.
    Long,
    /// Eight chunks, added in any order: for states whose result does not depend on the order of the slices. A thread adds
    /// several slices to one state.
    AnyOrder,
}

impl SliceLength {
    pub(crate) const fn chunks(self) -> usize {
        match self {
            Self::Whole => usize::MAX,
            Self::Short => 2,
            Self::Long => 16,
            Self::AnyOrder => 8,
        }
    }
}

/// An analysis: a state that adds up the calls or events of a trace. [`Reader::run`](crate::Reader::run) runs it.
///
/// Every item has a default: an analysis defines what it is about. If its states can be merged, it sets
/// [`SLICES`](Analysis::SLICES) and defines [`merge`](Analysis::merge), and several threads read the trace.
///
/// Locations are numbered from 0, in the order of the trace's definitions. An analysis of calls receives what is before the
/// query's window, too, as far as calls that overlap the window need it.
///
/// ```no_run
/// use annals_merger::{Analysis, Close, Frame, Query, Reader, SliceLength};
///
/// /// Finds the longest call, nanoseconds.
/// struct Longest(i64);
///
/// impl Analysis for Longest {
///     const SLICES: SliceLength = SliceLength::AnyOrder;
///
///     fn close(&mut self, _: usize, _: &[Frame], call: &Frame, time_ns: i64, _: Close) {
///         self.0 = self.0.max(time_ns - call.entered_ns);
///     }
///
///     fn merge(&mut self, later: Self) {
///         self.0 = self.0.max(later.0);
///     }
/// }
///
/// let reader = Reader::open("run.annals")?;
/// let (longest, _) = reader.run(&Query::new(), |_| Longest(0))?;
/// println!("{} ns", longest.0);
/// # Ok::<(), annals_merger::MergeError>(())
/// ```
#[expect(
    unused_variables,
    reason = "the defaults do nothing with what they receive"
)]
pub trait Analysis: Sized {
    /// What it receives.
    const PASS: Pass = Pass::Calls;

    /// How much of a trace one state adds up.
    const SLICES: SliceLength = SliceLength::Whole;

    /// Receives the enter of a region; the frames are those around it. Returns the call's tag, which its [frame](Frame::tag)
    /// has from then on.
    fn enter(&mut self, location: usize, frames: &[Frame], region: RegionId, time_ns: i64) -> u32 {
        0
    }

    /// Continues a call that was entered in an earlier slice; the frames are those around it. Returns the call's tag. To be defined where
    /// an enter means something: by default, it is one more enter.
    fn resume(
        &mut self,
        location: usize,
        frames: &[Frame],
        region: RegionId,
        entered_ns: i64,
    ) -> u32 {
        self.enter(location, frames, region, entered_ns)
    }

    /// Receives time that passed in the innermost of the frames.
    fn spend(&mut self, location: usize, frames: &[Frame], from_ns: i64, to_ns: i64) {}

    /// Receives how much later than they are closed next the frames, which are all that is open when their location ended, may
    /// have ended. `may_be_left`: their leaves may be among events that were lost, so that each of them may have ended first.
    fn outlast(
        &mut self,
        location: usize,
        frames: &[Frame],
        from_ns: i64,
        to_ns: i64,
        may_be_left: bool,
    ) {
    }

    /// Receives a call that ended; the frames are those that were around it.
    fn close(&mut self, location: usize, frames: &[Frame], call: &Frame, time_ns: i64, how: Close) {
    }

    /// Receives a leave without an enter.
    fn unmatched(&mut self, location: usize, region: RegionId, time_ns: i64) {}

    /// Receives an enter or leave that the recorder's rules can switch off.
    fn ruled(&mut self, location: usize, region: RegionId, time_ns: i64) {}

    /// Receives the next chunk, before any of the calls in it.
    fn chunk(&mut self, chunk: &TraceChunk) {}

    /// Receives the next chunk of [`Pass::OrderedCalls`], before any of the calls and events in it.
    fn ordered(&mut self, chunk: &OrderedChunk) {}

    /// Receives any other event of [`Pass::OrderedCalls`], by its number in the chunk; the frames are those it happened in.
    fn other(&mut self, location: usize, frames: &[Frame], chunk: &OrderedChunk, event: usize) {}

    /// Receives the next event of [`Pass::Events`].
    fn event(&mut self, event: &Event<'_>) {}

    /// Receives a loss before the next event of [`Pass::Events`].
    fn loss(&mut self, loss: &TraceLoss) {}

    /// Adds the state of the slice that follows. Only the last slice closes what is open at the end. Each analysis whose [slices](Analysis::SLICES) are not the whole trace
    /// defines it.
    fn merge(&mut self, later: Self) {
        const {
            assert!(
                matches!(Self::SLICES, SliceLength::Whole),
                "an analysis of several slices defines `merge`"
            );
        }
    }
}
