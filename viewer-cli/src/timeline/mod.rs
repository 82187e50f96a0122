//! The timeline: a lane for each location, with its calls, waits, losses and messages over time.
//!
//! [`Layout`] holds what is drawn, in columns of equal time; the back ends draw it: [`terminal`], and [`picture`] on
//! a canvas of SVG or PNG.

mod bars;
#[cfg(feature = "pictures")]
mod font;
mod gather;
mod lanes;
mod layout;
mod links;
mod metric_rows;
#[cfg(feature = "pictures")]
pub mod picture;
#[cfg(feature = "pictures")]
mod png;
pub mod terminal;
mod ticks;

pub use self::gather::events_in;
pub use self::lanes::{lane_label, lanes_of};
pub use self::layout::{Gap, LaneRow, Layout, Legend, MessageLines, Request, Run, TimelineLane};
pub use self::links::FEW_EVENTS;
#[cfg(feature = "pictures")]
pub use self::png::encode as png;
pub use self::ticks::{Tick, ticks};
