//! Tables for terminals.

use std::fmt::Write as _;
use std::io::IsTerminal;

use annals_analysis::{Row, Unit, Value};
use terminal_size::{Height, Width, terminal_size_of};

pub use annals_export::text::{safe, safe_lines};

use crate::names::{shorten_all, width};
use crate::time;

/// Columns of an output that is no terminal.
const OUTPUT_COLUMNS: usize = 120;
/// Columns that names get at least before something else is left out.
const NAME_COLUMNS: usize = 20;
/// Columns that names get in any case.
const LEAST_NAME_COLUMNS: usize = 12;
/// Lines of a terminal that sentences around a table, its head and the prompt take.
const AROUND: usize = 10;
/// Rows that a terminal shows in any case.
const LEAST_ROWS: usize = 10;
/// Between two columns of a table.
const GAP: usize = 2;

/// The contents of a column, and its alignment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Align {
    /// Text.
    Left,
    /// Numbers.
    Right,
    /// Names, set to the left: they are shortened if the table is too wide.
    Name,
    /// Numbers that may be left out if the table is too wide.
    Optional,
}

/// The room for a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Screen {
    columns: usize,
    /// Rows of a table that a terminal has room for.
    pub rows: usize,
}

impl Screen {
    /// Returns the width of standard output: that of the environment's `COLUMNS`, that of the terminal, or 120 columns.
    /// Names are not shortened if `has_full_names`.
    pub fn of_output(has_full_names: bool) -> Self {
        let given = std::env::var("COLUMNS").ok();
        let given = given.and_then(|columns| columns.trim().parse().ok());
        let given = given.filter(|columns| *columns != 0);
        let stdout = std::io::stdout();
        let of_terminal = terminal_size_of(&stdout).filter(|_| stdout.is_terminal());
        let columns = of_terminal.map(|(Width(columns), _)| usize::from(columns));
        let rows = of_terminal.map(|(_, Height(lines))| usize::from(lines));
        Self {
            columns: match has_full_names {
                true => usize::MAX,
                false => given.or(columns).unwrap_or(OUTPUT_COLUMNS),
            },
            rows: rows.map_or(usize::MAX, |lines| {
                lines.saturating_sub(AROUND).max(LEAST_ROWS)
            }),
        }
    }

    /// Returns the number of columns that a text leaves in a line.
    pub fn beside(self, text: &str) -> usize {
        self.columns.saturating_sub(width(text))
    }

    /// Returns a width of the given number of character columns.
    pub const fn columns(columns: usize) -> Self {
        Self {
            columns,
            rows: usize::MAX,
        }
    }
}

/// Rows of text in columns.
#[derive(Clone, Debug)]
pub struct Table {
    columns: Vec<(&'static str, Align)>,
    rows: Vec<Vec<String>>,
}

/// Returns a number of any size: whole ones without a point.
pub fn number(value: f64) -> String {
    if value.fract() == 0.0 && value.abs() < 1e15 {
        format!("{value:.0}")
    } else if value != 0.0 && (value.abs() < 1e-3 || value.abs() >= 1e15) {
        format!("{value:.3e}")
    } else {
        format!("{value:.3}")
    }
}

/// Returns what people see of a value.
fn cell(value: &Value<'_>, unit: Unit) -> String {
    match (value, unit) {
        (Value::None, _) => "-".to_owned(),
        (Value::Text(text), _) => safe(text),
        (Value::Flag(holds), _) => (if *holds { "yes" } else { "" }).to_owned(),
        (Value::Integer(ns), Unit::Duration) => time::duration(*ns),
        (Value::Integer(ns), Unit::Moment) => time::instant(*ns),
        (Value::Integer(value), _) => value.to_string(),
        (Value::Unsigned(count), Unit::Count) => time::grouped(*count),
        (Value::Unsigned(count), Unit::Bytes) => time::bytes(*count),
        (Value::Unsigned(value), _) => value.to_string(),
        (Value::Float(share), Unit::Share) => format!("{:.1}", share * 100.0),
        (Value::Float(value), _) => number(*value),
    }
}

/// Returns whether a cell has anything in it. A number that counts nothing, such as a rank, has.
fn has_content(value: &Value<'_>, unit: Unit) -> bool {
    match value {
        Value::None => false,
        _ if unit == Unit::Number => true,
        Value::Integer(value) => *value != 0,
        Value::Unsigned(value) => *value != 0,
        Value::Float(value) => *value != 0.0,
        Value::Flag(holds) => *holds,
        Value::Text(text) => !text.is_empty(),
    }
}

impl Table {
    /// Makes a table of the columns that people see. `~` marks what a loss may have changed.
    pub fn of<T: Row>(rows: &[T]) -> Self {
        let columns = T::COLUMNS.iter().filter_map(|column| {
            let heading = column.heading?;
            let has_any = |row| has_content(&(column.get)(row), column.unit);
            (!heading.is_sparse || rows.iter().any(has_any)).then_some((column, heading))
        });
        let columns: Vec<_> = columns.collect();
        let heads = columns.iter().map(|(column, heading)| {
            let align = match column.unit {
                _ if heading.is_optional => Align::Optional,
                Unit::Name => Align::Name,
                Unit::Text => Align::Left,
                _ => Align::Right,
            };
            (heading.words, align)
        });
        let mut table = Self::new(&heads.collect::<Vec<_>>());
        for row in rows {
            let cells = columns.iter().map(|(column, heading)| {
                let text = cell(&(column.get)(row), column.unit);
                match heading.is_marked && row.is_uncertain() {
                    true => format!("~{text}"),
                    false => text,
                }
            });
            table.row(cells.collect());
        }
        table
    }

    /// Leaves the first rows.
    pub fn truncate(&mut self, most: usize) {
        self.rows.truncate(most);
    }

    /// Adds a column, with a cell for each row.
    pub fn add_column(
        &mut self,
        column: (&'static str, Align),
        cells: impl IntoIterator<Item = String>,
    ) {
        self.columns.push(column);
        for (row, cell) in self.rows.iter_mut().zip(cells) {
            row.push(cell);
        }
    }

    /// Creates a table without rows.
    pub fn new(columns: &[(&'static str, Align)]) -> Self {
        Self {
            columns: columns.to_vec(),
            rows: Vec::new(),
        }
    }

    /// Adds a row, with as many cells as there are columns.
    pub fn row(&mut self, cells: Vec<String>) {
        debug_assert_eq!(cells.len(), self.columns.len());
        self.rows.push(cells);
    }

    /// Returns whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Returns the columns, each with its alignment.
    pub fn columns(&self) -> &[(&'static str, Align)] {
        &self.columns
    }

    /// Returns the rows; each has a cell for every column.
    pub fn rows(&self) -> &[Vec<String>] {
        &self.rows
    }

    /// Returns the table as text: a line for the heads, one for each row, and one for columns that are left out. If it
    /// is too wide, optional columns are left out, the last first, and names are shortened and put last. Without rows,
    /// nothing.
    pub fn render(&self, screen: Screen) -> String {
        if self.rows.is_empty() {
            return String::new();
        }
        let natural: Vec<usize> = (0..self.columns.len())
            .map(|at| self.column_width(at, &self.rows))
            .collect();
        let mut shown: Vec<usize> = (0..self.columns.len()).collect();
        let is_name = |at: &usize| self.columns[*at].1 == Align::Name;
        let wanted = |shown: &[usize], name_columns: usize| {
            let each = shown.iter().map(|at| match is_name(at) {
                true => natural[*at].min(name_columns),
                false => natural[*at],
            });
            each.sum::<usize>() + GAP * shown.len().saturating_sub(1)
        };
        let mut left_out = Vec::new();
        while wanted(&shown, NAME_COLUMNS) > screen.columns {
            let last = |at: &usize| self.columns[*at].1 == Align::Optional;
            let Some(place) = shown.iter().rposition(last) else {
                break;
            };
            left_out.push(self.columns[shown.remove(place)].0);
        }
        let mut rows = self.rows.clone();
        if wanted(&shown, usize::MAX) > screen.columns {
            if wanted(&shown, NAME_COLUMNS) > screen.columns {
                // Numbers line up first; the names get what is left of each line.
                shown.sort_by_key(is_name);
            }
            let others = wanted(&shown, 0);
            let names = shown.iter().copied().filter(|at| is_name(at));
            let names: Vec<usize> = names.collect();
            let room = screen.columns.saturating_sub(others);
            let shares = shares(
                &names.iter().map(|at| natural[*at]).collect::<Vec<_>>(),
                room,
            );
            for (at, share) in names.into_iter().zip(shares) {
                let cells: Vec<&str> = self.rows.iter().map(|row| row[at].as_str()).collect();
                let short = shorten_all(&cells, share.max(LEAST_NAME_COLUMNS));
                for (row, short) in rows.iter_mut().zip(short) {
                    row[at] = short;
                }
            }
        }
        let mut text = self.lines(&shown, &rows);
        if !left_out.is_empty() {
            left_out.reverse();
            let _ = writeln!(
                text,
                "no room for {} (--full-names and --json show all)",
                left_out.join(", ")
            );
        }
        text
    }

    fn column_width(&self, at: usize, rows: &[Vec<String>]) -> usize {
        let cells = rows.iter().map(|row| width(&row[at]));
        cells.max().unwrap_or(0).max(width(self.columns[at].0))
    }

    fn lines(&self, shown: &[usize], rows: &[Vec<String>]) -> String {
        let widths: Vec<usize> = shown
            .iter()
            .map(|at| self.column_width(*at, rows))
            .collect();
        let heads: Vec<String> = self
            .columns
            .iter()
            .map(|(head, _)| (*head).to_owned())
            .collect();
        let mut text = String::new();
        for row in std::iter::once(&heads).chain(rows) {
            let mut line = String::new();
            for (place, at) in shown.iter().enumerate() {
                let cell = &row[*at];
                let pad = widths[place] - width(cell);
                if place > 0 {
                    line.push_str("  ");
                }
                let _ = match self.columns[*at].1 {
                    Align::Left | Align::Name => write!(line, "{cell}{:pad$}", ""),
                    Align::Right | Align::Optional => write!(line, "{:pad$}{cell}", ""),
                };
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

/// Parts of a room: each gets what it wants if that is no more than its share of what the others leave.
fn shares(wanted: &[usize], room: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by_key(|at| wanted[*at]);
    let (mut room, mut parts) = (room, vec![0; wanted.len()]);
    for (done, at) in order.iter().enumerate() {
        parts[*at] = wanted[*at].min(room / (wanted.len() - done));
        room -= parts[*at];
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(&[("name", Align::Left), ("n", Align::Right)]);
        table.row(vec!["a".to_owned(), "100".to_owned()]);
        table.row(vec!["long".to_owned(), "7".to_owned()]);
        let expected = "name    n\na     100\nlong    7\n";
        assert_eq!(table.render(Screen::columns(80)), expected);
    }

    #[test]
    fn what_is_too_wide_is_shortened_and_left_out() {
        let columns = [
            ("region", Align::Name),
            ("calls", Align::Right),
            ("mean", Align::Optional),
            ("max", Align::Optional),
        ];
        let mut table = Table::new(&columns);
        let row = |name: &str| {
            let cells = [name, "1000000", "12.34 us", "123.4 ms"];
            cells.map(str::to_owned).to_vec()
        };
        table.row(row("mesh::solve<std::vector<double>, 3>(int)"));
        table.row(row("main"));
        assert_eq!(
            table.render(Screen::columns(60)),
            "region               calls      mean       max\n\
             mesh::solve<…>(…)  1000000  12.34 us  123.4 ms\n\
             main               1000000  12.34 us  123.4 ms\n"
        );
        let narrow = table.render(Screen::columns(40));
        assert!(narrow.contains("no room for max"), "{narrow}");
        let narrow = table.render(Screen::columns(22));
        assert!(narrow.starts_with("  calls  region\n"), "{narrow}");
        let whole = table.render(Screen::columns(usize::MAX));
        assert!(whole.contains("mesh::solve<std::vector<double>, 3>(int)"));
    }
}
