//! Text and tables that several commands show.

mod info;
mod losses;
mod regions;
mod waits;
mod why;

pub use info::{FilterInfo, Info, ProcessInfo};
pub use losses::{LossRow, loss_row, loss_table, summed};
pub use regions::{OUTSIDE, region_sentence, region_table};
pub use waits::{wait_chain, wait_sentence};
pub use why::{
    LEAST_SHARE, Scaling, cause_sentence, main_causes, path_table, pattern_name, phase_table,
    rank_table, wait_state_table, why_sentence, why_text,
};

use crate::time;

/// Columns of a name in a sentence.
pub(crate) const SENTENCE_NAME: usize = 60;

/// Returns a number with its noun: `1 call`, `1,234 calls`. The plural has an `s`.
pub(crate) fn counted(count: u64, noun: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{} {noun}{plural}", time::grouped(count))
}

/// Returns a share of the whole, in percent.
pub(crate) fn percent(part: u64, whole: u64) -> String {
    if whole == 0 {
        return "-".to_owned();
    }
    format!("{:.1}", part as f64 * 100.0 / whole as f64)
}

pub(crate) fn opt_duration(ns: Option<i64>) -> String {
    ns.map_or_else(|| "-".to_owned(), time::duration)
}
