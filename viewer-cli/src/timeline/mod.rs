//! The timeline: a lane for each location, what it was in when, what was lost, who sent to whom.
//!
//! [`Layout`] holds what is drawn, in columns of equal time; the back ends draw it: [`terminal`], and [`picture`] on
//! a canvas of SVG or PNG.

mod layout;
pub mod picture;
mod png;
pub mod terminal;

pub use self::png::encode as png;
pub use layout::{Gap, Lane, LaneRow, Layout, Legend, MetricRow, Request, Run, Trip, lanes_of};

/// A colour.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Colour(pub u8, pub u8, pub u8);

impl Colour {
    /// As SVG has it.
    pub fn hex(self) -> String {
        format!("#{:02x}{:02x}{:02x}", self.0, self.1, self.2)
    }
}

/// Colours that can be told apart, the first ones by the colour-blind as well (P. Tol, "Colour schemes", 2021:
/// bright, and light beside it).
const COLOURS: [Colour; 16] = [
    Colour(0x44, 0x77, 0xaa),
    Colour(0xee, 0x66, 0x77),
    Colour(0x22, 0x88, 0x33),
    Colour(0xcc, 0xbb, 0x44),
    Colour(0x66, 0xcc, 0xee),
    Colour(0xaa, 0x33, 0x77),
    Colour(0xee, 0x88, 0x66),
    Colour(0x77, 0xaa, 0xdd),
    Colour(0xbb, 0xcc, 0x33),
    Colour(0xff, 0xaa, 0xbb),
    Colour(0x44, 0xbb, 0x99),
    Colour(0x99, 0x77, 0x55),
    Colour(0x88, 0x88, 0xcc),
    Colour(0x99, 0xdd, 0xff),
    Colour(0xaa, 0xaa, 0x00),
    Colour(0x77, 0x77, 0x77),
];

/// The colour of the region with this place in the legend.
pub const fn colour(place: usize) -> Colour {
    COLOURS[place % COLOURS.len()]
}
