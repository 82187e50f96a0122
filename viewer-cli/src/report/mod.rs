//! The report: one page with the figures of a run, or of two runs side by side.
//!
//! [`RunFigures`] holds the figures; `sections` and `compare` make the contents of the page out of them, with `parts` and
//! `pictures`; `page` is the frame with the style, the script and the policy that allows nothing else.

mod compare;
mod figures;
mod page;
mod parts;
mod pictures;
mod sections;
mod text;

pub use figures::{
    MOST_LOSSES, MOST_OVERVIEW_ROWS, OVERVIEW_BINS, OverviewRow, RankGroup, RunFigures, Subject,
    rank_groups,
};

/// Returns the page about a run.
pub fn page_of_run(figures: &RunFigures) -> String {
    page::page(&sections::all(figures))
}

/// Returns the page that compares two runs.
pub fn page_of_two_runs(first: &RunFigures, second: &RunFigures) -> String {
    page::page(&compare::all(first, second))
}
