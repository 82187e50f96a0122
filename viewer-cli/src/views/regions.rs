//! Statistics of regions as a table.

use std::fmt::Write as _;

use annals_analysis::{Grouping, RegionRow};

use super::{opt_duration, percent};
use crate::table::{Align, Screen, Table, safe};
use crate::time;

/// Returns the first `most` rows as a table, and what is remarkable about them.
pub fn region_table(rows: &[RegionRow], grouping: Grouping, most: usize, screen: Screen) -> String {
    let whole: u64 = rows.iter().map(|row| row.exclusive_ns as u64).sum();
    let rows = &rows[..most.min(rows.len())];
    // Losses of any event type are uncertain calls of every region.
    let in_every_row = rows.iter().map(|row| row.uncertain_calls).min();
    let in_every_row = in_every_row.filter(|_| rows.len() > 1).unwrap_or(0);
    let is_lower_bound = |row: &RegionRow| row.uncertain_calls_is_lower_bound;
    let are_all_lower_bounds = rows.len() > 1 && rows.iter().all(is_lower_bound);
    let uncertain_of = |row: &RegionRow| {
        let is_lower_bound = is_lower_bound(row) && !are_all_lower_bounds;
        match (row.uncertain_calls - in_every_row, is_lower_bound) {
            (0, false) => String::new(),
            (count, true) => format!(">={count}"),
            (count, false) => count.to_string(),
        }
    };
    let has_uncertain = rows.iter().any(|row| !uncertain_of(row).is_empty());

    let mut columns = vec![("region", Align::Name)];
    if grouping != Grouping::None {
        columns.push(("rank", Align::Right));
    }
    if grouping == Grouping::Location {
        columns.push(("location", Align::Name));
    }
    columns.push(("calls", Align::Right));
    if has_uncertain {
        columns.push(("± uncertain", Align::Right));
    }
    columns.extend([
        ("inclusive", Align::Right),
        ("exclusive", Align::Right),
        ("share %", Align::Optional),
        ("min", Align::Optional),
        ("mean", Align::Right),
        ("p95", Align::Optional),
        ("max", Align::Right),
    ]);
    let mut table = Table::new(&columns);
    for row in rows {
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
        cells.push(row.calls.to_string());
        cells.extend(has_uncertain.then(|| uncertain_of(row)));
        cells.extend([
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
    let mut text = table.render(screen);
    if in_every_row != 0 || are_all_lower_bounds {
        let least = if are_all_lower_bounds {
            "at least"
        } else {
            "up to"
        };
        let enters = if in_every_row == 1 { "enter" } else { "enters" };
        let _ = writeln!(
            text,
            "calls of every region: ± {in_every_row}, because {least} {in_every_row} {enters} of unknown region were lost"
        );
    }
    for row in rows {
        let name = safe(&row.name);
        if row.unleft_calls != 0 {
            let (count, calls) = (row.unleft_calls, calls(row.unleft_calls));
            let why = match row.uncertain_calls {
                0 => "the program left them without an event (longjmp?)",
                _ => "events were lost",
            };
            let _ = writeln!(
                text,
                "{name}: {count} {calls} without a leave, taken to end with the region around: {why}"
            );
        }
        if row.unmatched_leaves != 0 {
            let count = row.unmatched_leaves;
            let leaves = if count == 1 { "leave" } else { "leaves" };
            let _ = writeln!(
                text,
                "{name}: {count} {leaves} without an enter, counted as no calls"
            );
        }
    }
    text
}

/// The word for a number of calls.
const fn calls(count: u64) -> &'static str {
    if count == 1 { "call" } else { "calls" }
}
