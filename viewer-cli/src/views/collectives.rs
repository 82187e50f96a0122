//! Collective operations as a sentence and as a table.

use std::fmt::Write as _;

use annals_analysis::Collectives;

use super::stuck::{ordinal, rank_words};
use super::{counted, wait_sentence};
use crate::table::safe;
use crate::time;

/// Communicators whose last operation that not all members began is described.
const MOST_INCOMPLETE: usize = 10;

/// Returns one sentence about the longest waits.
pub fn collective_sentence(found: &Collectives) -> String {
    let count: u64 = found.collectives.iter().map(|row| row.count).sum();
    let wait_ns: i64 = found.collectives.iter().filter_map(|row| row.wait_ns).sum();
    let operations = counted(count, "operation");
    let longest_waits = found.longest_waits.as_deref();
    match longest_waits.unwrap_or_default().first() {
        _ if count == 0 => "No operation was begun by all its members.".to_owned(),
        None if longest_waits.is_none() => format!("Waits in {operations} are not known."),
        None => format!("No rank waited in {operations}."),
        Some(longest) => format!(
            "{}. All waits in {operations} took {} together.",
            wait_sentence(longest),
            time::duration(wait_ns)
        ),
    }
}

/// Returns a line about the operations that not all members began, and one about the last of each communicator. Empty: there are none.
pub fn incomplete_collectives(found: &Collectives) -> String {
    let mut text = match found.incomplete {
        0 => String::new(),
        1 => "1 operation was not begun by all members\n".to_owned(),
        count => {
            let count = time::grouped(count);
            format!(
                "{count} operations were not begun by all members; the last of each communicator:\n"
            )
        }
    };
    for row in found.last_incomplete.iter().take(MOST_INCOMPLETE) {
        let (operation, communicator) = (safe(&row.operation), safe(&row.communicator));
        let (begun, number) = (rank_words(&row.begun), ordinal(row.number));
        let _ = write!(
            text,
            "  {operation}, the {number} collective on {communicator}: begun by {begun}, not by "
        );
        let _ = match (row.missing.as_slice(), row.others) {
            ([], others) => writeln!(text, "{}", counted(others, "other")),
            (missing, 0) => writeln!(text, "{}", rank_words(missing)),
            (missing, others) => writeln!(
                text,
                "{} and {}",
                rank_words(missing),
                counted(others, "other")
            ),
        };
    }
    text
}
