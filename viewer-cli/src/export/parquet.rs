//! Parquet: groups of rows, each with the least and the greatest value of every column, compressed by zstd.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::{DataType, SchemaRef};
use parquet::arrow::arrow_writer::{
    ArrowRowGroupWriterFactory, ArrowWriter, ArrowWriterOptions, compute_leaves,
};
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::file::metadata::SortingColumn;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::ColumnPath;

use super::rows::{Encoded, Job, Out, RowFile};
use crate::file::not_written;

struct ParquetFile {
    schema: SchemaRef,
    writer: SerializedFileWriter<Out>,
    columns: ArrowRowGroupWriterFactory,
    groups: usize,
}

fn properties(schema: &SchemaRef, sorted: Option<&str>) -> WriterProperties {
    let sorted = sorted.and_then(|name| schema.index_of(name).ok());
    let mut properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_offset_index_disabled(true)
        .set_max_row_group_row_count(None)
        .set_sorting_columns(sorted.map(|at| {
            vec![SortingColumn {
                column_idx: at as i32,
                descending: false,
                nulls_first: false,
            }]
        }));
    for field in schema.fields() {
        let column = ColumnPath::from(field.name().as_str());
        // Times and numbers grow, ranks and tags are small: differences are cheaper to write than a dictionary,
        // and about as short.
        if matches!(field.data_type(), DataType::Int64 | DataType::UInt64) {
            properties = properties
                .set_column_dictionary_enabled(column.clone(), false)
                .set_column_encoding(column, Encoding::DELTA_BINARY_PACKED);
        }
    }
    properties.build()
}

pub(crate) fn open(
    schema: &SchemaRef,
    sorted: Option<&'static str>,
    out: Out,
) -> anyhow::Result<Box<dyn RowFile>> {
    let options = ArrowWriterOptions::new()
        .with_properties(properties(schema, sorted))
        // Names are text to every reader, not what Arrow calls a dictionary.
        .with_skip_arrow_metadata(true);
    let writer = ArrowWriter::try_new_with_options(out, Arc::clone(schema), options)?;
    let (writer, columns) = writer.into_serialized_writer()?;
    Ok(Box::new(ParquetFile {
        schema: Arc::clone(schema),
        writer,
        columns,
        groups: 0,
    }))
}

impl ParquetFile {
    fn failed(&self, error: &dyn std::fmt::Display) -> anyhow::Error {
        self.writer.inner().failed(error)
    }
}

impl RowFile for ParquetFile {
    fn encode(&mut self, group: Vec<RecordBatch>) -> anyhow::Result<Job> {
        let mut writers = self.columns.create_column_writers(self.groups)?;
        self.groups += 1;
        let schema = Arc::clone(&self.schema);
        Ok(Box::new(move || {
            for batch in &group {
                let mut writers = writers.iter_mut();
                for (field, column) in schema.fields().iter().zip(batch.columns()) {
                    for leaf in compute_leaves(field, column)? {
                        let writer = writers.next();
                        writer.expect("a writer for each column").write(&leaf)?;
                    }
                }
            }
            let columns = writers.into_iter().map(|writer| writer.close());
            Ok(Encoded::Columns(columns.collect::<Result<_, _>>()?))
        }))
    }

    fn append(&mut self, encoded: Encoded) -> anyhow::Result<()> {
        let Encoded::Columns(columns) = encoded else {
            return Ok(());
        };
        let append = || {
            let mut group = self.writer.next_row_group()?;
            for column in columns {
                column.append_to_row_group(&mut group)?;
            }
            group.close().map(|_| ())
        };
        let appended = append();
        appended.map_err(|error| self.failed(&error))
    }

    fn finish(self: Box<Self>) -> anyhow::Result<()> {
        let path = self.writer.inner().path().to_owned();
        // Writes the footer.
        let inner = self.writer.into_inner();
        inner.map_err(|error| not_written(&path, &error))?.finish()
    }
}
