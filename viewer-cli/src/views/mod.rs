//! Text and tables that several commands show.

mod collectives;
mod info;
mod losses;
mod messages;
mod regions;
mod waits;
mod why;

pub use collectives::{collective_sentence, collective_table};
pub use info::{FilterInfo, Info, ProcessInfo};
pub use losses::{LossRow, loss_row, loss_table, loss_text, summed};
pub use messages::{message_counts_text, message_sentence, message_table};
pub use regions::{OUTSIDE, region_sentence, region_table};
pub use waits::{wait_chain, wait_sentence};
pub use why::{
    INCOMPLETE_DEFINITIONS, LEAST_SHARE, Scaling, cause_sentence, main_causes, path_rank_table,
    path_region_table, path_table, pattern_name, phase_table, rank_table, wait_state_table,
    why_sentence, why_text,
};

use std::fmt::Write as _;

use crate::time;

/// Columns of a name in a sentence.
pub(crate) const SENTENCE_NAME: usize = 60;

/// Returns what is said of children made by fork that nothing records, if there are any.
pub fn unrecorded_children(count: u64) -> Option<String> {
    match count {
        0 => None,
        1 => Some("1 child made by fork is not recorded".to_owned()),
        count => Some(format!(
            "{} children made by fork are not recorded",
            time::grouped(count)
        )),
    }
}

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

/// Returns a file name as a word of a shell.
pub(crate) fn shell_word(name: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./+,:@%".contains(c);
    if name.chars().all(is_plain) {
        return name.to_owned();
    }
    if !name.chars().any(char::is_control) {
        return format!("'{}'", name.replace('\'', "'\\''"));
    }
    let mut word = String::from("$'");
    for c in name.chars() {
        match c {
            '\'' | '\\' => word.extend(['\\', c]),
            c if c.is_control() => {
                let mut bytes = [0; 4];
                for byte in c.encode_utf8(&mut bytes).bytes() {
                    let _ = write!(word, "\\x{byte:02x}");
                }
            }
            c => word.push(c),
        }
    }
    word.push('\'');
    word
}
