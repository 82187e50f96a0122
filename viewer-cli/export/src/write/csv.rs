//! Comma-separated values (RFC 4180): a line of names, then a line for each row. A missing value is an empty field, an
//! empty text or byte string is `""`, and bytes are written as digits.
//!
//! Written here because the writer of the crate `csv` cannot put quotes around empty fields only.

use std::io::Write;

use arrow_array::RecordBatch;
use arrow_schema::{Schema, SchemaRef};

use crate::values::hex;
use crate::write::rows::{Cell, Cells, Lines, Out, RowFile};

pub(crate) fn open(
    schema: &SchemaRef,
    _: Option<&'static str>,
    out: Out,
) -> anyhow::Result<Box<dyn RowFile>> {
    let mut head = Vec::new();
    for (at, field) in schema.fields().iter().enumerate() {
        if at != 0 {
            head.push(b',');
        }
        put_text(field.name(), &mut head);
    }
    head.push(b'\n');
    Lines::open(schema, out, &head, put)
}

fn put(_: &Schema, batch: &RecordBatch, out: &mut Vec<u8>) {
    let columns: Vec<Cells<'_>> = batch.columns().iter().map(Cells::of).collect();
    for row in 0..batch.num_rows() {
        for (at, column) in columns.iter().enumerate() {
            if at != 0 {
                out.push(b',');
            }
            // Writing into memory does not fail.
            let _ = match column.get(row) {
                Cell::Null => Ok(()),
                Cell::Integer(value) => write!(out, "{value}"),
                Cell::Unsigned(value) => write!(out, "{value}"),
                Cell::Float(value) => write!(out, "{value}"),
                Cell::Flag(value) => write!(out, "{value}"),
                Cell::Text("") | Cell::Bytes([]) => write!(out, "\"\""),
                Cell::Bytes(bytes) => write!(out, "{}", hex(bytes)),
                Cell::Text(text) => {
                    put_text(text, out);
                    Ok(())
                }
            };
        }
        out.push(b'\n');
    }
}

/// Appends a field, in quotes if it would break its row.
fn put_text(text: &str, line: &mut Vec<u8>) {
    let breaks = |byte: &u8| matches!(byte, b',' | b'"' | b'\n' | b'\r');
    if !text.as_bytes().iter().any(breaks) {
        return line.extend_from_slice(text.as_bytes());
    }
    line.push(b'"');
    line.extend_from_slice(text.replace('"', "\"\"").as_bytes());
    line.push(b'"');
}
