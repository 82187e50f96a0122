//! Statistics of regions as a table.

use std::fmt::Write as _;

use annals_analysis::{Grouping, RegionRow};

use super::{opt_duration, percent};
use crate::table::{Align, Table, safe};
use crate::time;

/// Returns the first `most` rows as a table, and what is remarkable about them.
pub fn region_table(rows: &[RegionRow], grouping: Grouping, most: usize) -> String {
    let mut columns = vec![("region", Align::Left)];
    if grouping != Grouping::None {
        columns.push(("rank", Align::Right));
    }
    if grouping == Grouping::Location {
        columns.push(("location", Align::Left));
    }
    columns.extend([
        ("calls", Align::Right),
        ("± uncertain", Align::Right),
        ("inclusive", Align::Right),
        ("exclusive", Align::Right),
        ("share %", Align::Right),
        ("min", Align::Right),
        ("mean", Align::Right),
        ("p95", Align::Right),
        ("max", Align::Right),
    ]);
    let mut table = Table::new(&columns);
    let whole: u64 = rows.iter().map(|row| row.exclusive_ns as u64).sum();
    for row in rows.iter().take(most) {
        let mark = if row.time_is_uncertain { "~" } else { "" };
        let mut cells = vec![safe(&row.name)];
        if grouping != Grouping::None {
            cells.push(
                row.rank
                    .map_or_else(|| "-".to_owned(), |rank| rank.to_string()),
            );
        }
        if grouping == Grouping::Location {
            cells.push(safe(row.location.as_deref().unwrap_or("-")));
        }
        let least = if row.uncertain_calls_is_lower_bound {
            ">="
        } else {
            ""
        };
        let uncertain = match (row.uncertain_calls, row.uncertain_calls_is_lower_bound) {
            (0, false) => String::new(),
            (count, _) => format!("{least}{count}"),
        };
        cells.extend([
            row.calls.to_string(),
            uncertain,
            format!("{mark}{}", time::duration(row.inclusive_ns)),
            format!("{mark}{}", time::duration(row.exclusive_ns)),
            percent(row.exclusive_ns as u64, whole),
            opt_duration(row.min_ns),
            opt_duration(row.mean_ns),
            opt_duration(row.p95_ns),
            opt_duration(row.max_ns),
        ]);
        table.row(cells);
    }
    let mut text = table.render();
    for row in rows.iter().take(most) {
        let name = safe(&row.name);
        if row.unleft_calls != 0 {
            let count = row.unleft_calls;
            let _ = writeln!(
                text,
                "{name}: {count} calls were never left, and end with the region around them (longjmp?)"
            );
        }
        if row.unmatched_leaves != 0 {
            let count = row.unmatched_leaves;
            let _ = writeln!(
                text,
                "{name}: {count} leaves without an enter, counted as no calls"
            );
        }
    }
    text
}
