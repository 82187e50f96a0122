//! Collective operations as a sentence and as a table.

use annals_analysis::{CollectiveRow, Collectives};

use super::{counted, opt_duration, wait_sentence};
use crate::table::{Align, Table, safe};
use crate::time;

/// Returns one sentence about the longest waits.
pub fn collective_sentence(found: &Collectives) -> String {
    let count: u64 = found.collectives.iter().map(|row| row.count).sum();
    let wait_ns: i64 = found.collectives.iter().map(|row| row.wait_ns).sum();
    let operations = counted(count, "operation");
    match found.longest_waits.first() {
        _ if count == 0 => "No operation was begun by all its members.".to_owned(),
        None => format!("No rank waited in {operations}."),
        Some(longest) => format!(
            "{}. All waits in {operations} took {} together.",
            wait_sentence(longest),
            time::duration(wait_ns)
        ),
    }
}

/// Returns the table of operations by communicator.
pub fn collective_table(rows: &[CollectiveRow]) -> Table {
    let most_waiting =
        |row: &CollectiveRow| row.ranks.iter().rev().max_by_key(|r| r.wait_ns).cloned();
    let most_late = |row: &CollectiveRow| row.ranks.iter().rev().max_by_key(|r| r.last).cloned();
    let mut table = Table::new(&[
        ("operation", Align::Name),
        ("communicator", Align::Name),
        ("members", Align::Right),
        ("count", Align::Right),
        ("waiting", Align::Right),
        ("mean imbalance", Align::Optional),
        ("max imbalance", Align::Right),
        ("waits most", Align::Left),
        ("last most often", Align::Left),
    ]);
    for row in rows {
        let mark = if row.is_uncertain { "~" } else { "" };
        let waits =
            most_waiting(row).map(|r| format!("rank {} {}", r.rank, time::duration(r.wait_ns)));
        let late = most_late(row).map(|r| format!("rank {} ({})", r.rank, counted(r.last, "time")));
        table.row(vec![
            safe(&row.operation),
            safe(&row.communicator),
            row.members.to_string(),
            format!("{mark}{}", time::grouped(row.count)),
            format!("{mark}{}", time::duration(row.wait_ns)),
            format!("{mark}{}", opt_duration(row.mean_imbalance_ns)),
            format!("{mark}{}", time::duration(row.max_imbalance_ns)),
            waits.unwrap_or_default(),
            late.unwrap_or_default(),
        ]);
    }
    table
}
