//! The part of a trace that is on the screen.

use annals_merger::Window;

/// The part of a trace that the timeline shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct View {
    pub(super) window: Window,
    pub(super) columns: usize,
    pub(super) first_lane: usize,
    pub(super) lanes: usize,
}
