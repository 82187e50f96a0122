//! Tables for terminals.

use std::fmt::Write as _;

pub use annals_export::text::{safe, safe_lines};

/// Which side a column's text is set to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Align {
    /// Names.
    Left,
    /// Numbers.
    Right,
}

/// Rows of text in columns.
#[derive(Clone, Debug)]
pub struct Table {
    columns: Vec<(&'static str, Align)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table without rows.
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

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The table as text, a line each for the heads and every row.
    pub fn render(&self) -> String {
        let width = |text: &str| text.chars().count();
        let mut widths: Vec<usize> = self.columns.iter().map(|(head, _)| width(head)).collect();
        for row in &self.rows {
            for (column, cell) in widths.iter_mut().zip(row) {
                *column = (*column).max(width(cell));
            }
        }
        let heads: Vec<String> = self
            .columns
            .iter()
            .map(|(head, _)| (*head).to_owned())
            .collect();
        let mut text = String::new();
        for row in std::iter::once(&heads).chain(&self.rows) {
            let mut line = String::new();
            for (index, cell) in row.iter().enumerate() {
                let pad = widths[index] - width(cell);
                if index > 0 {
                    line.push_str("  ");
                }
                match self.columns[index].1 {
                    Align::Left => {
                        let _ = write!(line, "{cell}{:pad$}", "");
                    }
                    Align::Right => {
                        let _ = write!(line, "{:pad$}{cell}", "");
                    }
                }
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(&[("name", Align::Left), ("n", Align::Right)]);
        table.row(vec!["a".to_owned(), "100".to_owned()]);
        table.row(vec!["long".to_owned(), "7".to_owned()]);
        assert_eq!(table.render(), "name    n\na     100\nlong    7\n");
    }
}
