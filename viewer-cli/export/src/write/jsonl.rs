//! JSON lines: an object for each row. What is not there is left out; bytes are hexadecimal digits; numbers that JSON
//! does not have are null.

use std::io::Write;

use arrow_array::RecordBatch;
use arrow_schema::{Schema, SchemaRef};

use crate::values::{hex, put_json};
use crate::write::rows::{Cell, Cells, Lines, Out, RowFile};

pub(crate) fn open(
    schema: &SchemaRef,
    _: Option<&'static str>,
    out: Out,
) -> anyhow::Result<Box<dyn RowFile>> {
    Lines::open(schema, out, b"", put)
}

fn put(schema: &Schema, batch: &RecordBatch, out: &mut Vec<u8>) {
    let columns: Vec<Cells<'_>> = batch.columns().iter().map(Cells::of).collect();
    let names = schema.fields().iter().map(|field| {
        let mut name = Vec::new();
        put_json(&mut name, field.name());
        name.push(b':');
        name
    });
    let names: Vec<Vec<u8>> = names.collect();
    for row in 0..batch.num_rows() {
        let mut before = b'{';
        for (column, name) in columns.iter().zip(&names) {
            let cell = column.get(row);
            if matches!(cell, Cell::Null) {
                continue;
            }
            out.push(before);
            before = b',';
            out.extend_from_slice(name);
            // Writing into memory does not fail.
            let _ = match cell {
                Cell::Integer(value) => write!(out, "{value}"),
                Cell::Unsigned(value) => write!(out, "{value}"),
                Cell::Float(value) if value.is_finite() => {
                    let _ = serde_json::to_writer(&mut *out, &value);
                    Ok(())
                }
                Cell::Float(_) | Cell::Null => write!(out, "null"),
                Cell::Flag(value) => write!(out, "{value}"),
                Cell::Bytes(bytes) => write!(out, "\"{}\"", hex(bytes)),
                Cell::Text(text) => {
                    put_json(out, text);
                    Ok(())
                }
            };
        }
        if before == b'{' {
            out.push(b'{');
        }
        out.extend_from_slice(b"}\n");
    }
}
