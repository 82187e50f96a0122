//! Comma-separated values (RFC 4180).

use std::fmt::Display;
use std::io::{self, Write};

use annals_export::text::put_csv;

/// A value, or nothing.
#[derive(Clone, Copy, Debug)]
pub struct Maybe<T>(pub Option<T>);

impl<T: Display> Display for Maybe<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.as_ref().map_or(Ok(()), |value| value.fmt(f))
    }
}

/// Rows of values.
pub struct Csv<'a> {
    out: &'a mut dyn Write,
    line: Vec<u8>,
}

impl<'a> Csv<'a> {
    /// Writes the names of the columns.
    ///
    /// # Errors
    /// If the output cannot be written.
    pub fn new(out: &'a mut dyn Write, columns: &[&str]) -> io::Result<Self> {
        let mut csv = Self {
            out,
            line: Vec::new(),
        };
        let columns: Vec<&dyn Display> = columns.iter().map(|name| name as &dyn Display).collect();
        csv.row(&columns)?;
        Ok(csv)
    }

    /// Writes a row.
    ///
    /// # Errors
    /// If the output cannot be written.
    pub fn row(&mut self, cells: &[&dyn Display]) -> io::Result<()> {
        for (index, cell) in cells.iter().enumerate() {
            if index != 0 {
                self.out.write_all(b",")?;
            }
            put_csv(&cell.to_string(), &mut self.line);
            self.out.write_all(&self.line)?;
            self.line.clear();
        }
        self.out.write_all(b"\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_break_a_row_is_quoted() {
        let mut out = Vec::new();
        let mut csv = Csv::new(&mut out, &["a", "b"]).unwrap();
        csv.row(&[&"x,\"y\"", &Maybe::<u64>(None)]).unwrap();
        assert_eq!(out, b"a,b\n\"x,\"\"y\"\"\",\n");
    }
}
