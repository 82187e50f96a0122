//! Text and tables that several commands show.

mod info;
mod losses;
mod regions;
mod waits;

pub use info::{FilterInfo, Info, ProcessInfo};
pub use losses::{LossRow, loss_row, loss_table, summed};
pub use regions::region_table;
pub use waits::wait_sentence;

use crate::time;

/// A share of the whole, in percent.
pub(crate) fn percent(part: u64, whole: u64) -> String {
    if whole == 0 {
        return "-".to_owned();
    }
    format!("{:.1}", part as f64 * 100.0 / whole as f64)
}

pub(crate) fn opt_duration(ns: Option<i64>) -> String {
    ns.map_or_else(|| "-".to_owned(), time::duration)
}
