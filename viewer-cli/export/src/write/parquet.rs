//! Parquet: groups of rows, each with the least and the greatest value of every column, compressed by zstd.

use std::io;
use std::sync::Arc;

use annals_merger::OutputError;
use anyhow::Context as _;
use arrow_array::ArrayRef;
use arrow_schema::SchemaRef;
use parquet::arrow::arrow_writer::{
    ArrowRowGroupWriterFactory, ArrowWriter, ArrowWriterOptions, compute_leaves,
};
use parquet::basic::{Compression, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::metadata::SortingColumn;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::SerializedFileWriter;

use crate::write::pages::{self, Compressor, EncodedColumn};
use crate::write::rows::{Encoded, Job, Out, RowFile, Rows};

struct ParquetFile {
    schema: SchemaRef,
    writer: SerializedFileWriter<Out>,
    columns: ArrowRowGroupWriterFactory,
    groups: usize,
}

fn properties(schema: &SchemaRef, sorted: Option<&str>) -> WriterProperties {
    let sorted = sorted.and_then(|name| schema.index_of(name).ok());
    WriterProperties::builder()
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
        }))
        .build()
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
    fn failed(&self, error: ParquetError) -> OutputError {
        self.writer.inner().failed(io::Error::other(error))
    }
}

impl RowFile for ParquetFile {
    fn encode(&mut self, mut group: Vec<Rows>) -> anyhow::Result<Job> {
        let writers = self.columns.create_column_writers(self.groups)?;
        self.groups += 1;
        let schema = Arc::clone(&self.schema);
        let descriptions = self.writer.schema_descr().columns().to_vec();
        Ok(Box::new(move || {
            let mut compressor = Compressor::new()?;
            let fields = schema.fields().iter().zip(&descriptions);
            let columns = fields.zip(writers).enumerate();
            let columns = columns.map(|(at, ((field, description), mut writer))| {
                let arrays: Vec<ArrayRef> = group.iter_mut().map(|rows| rows.column(at)).collect();
                if pages::is_known(field.data_type()) {
                    let encoded = pages::encode(&arrays, description, &mut compressor)?;
                    return Ok(EncodedColumn::Ours(encoded));
                }
                for array in &arrays {
                    for leaf in compute_leaves(field, array)? {
                        writer.write(&leaf)?;
                    }
                }
                Ok(EncodedColumn::Theirs(writer.close()?))
            });
            let columns = columns.collect::<anyhow::Result<_>>();
            Ok(Encoded::Columns(
                columns.context("encoding a group of rows")?,
            ))
        }))
    }

    fn append(&mut self, encoded: Encoded) -> anyhow::Result<()> {
        let Encoded::Columns(columns) = encoded else {
            return Ok(());
        };
        let append = || {
            let mut group = self.writer.next_row_group()?;
            for column in columns {
                match column {
                    EncodedColumn::Ours(ours) => group.append_column(&ours.bytes, ours.close)?,
                    EncodedColumn::Theirs(theirs) => theirs.append_to_row_group(&mut group)?,
                }
            }
            group.close().map(|_| ())
        };
        let appended = append();
        Ok(appended.map_err(|error| self.failed(error))?)
    }

    fn finish(self: Box<Self>) -> anyhow::Result<()> {
        let path = self.writer.inner().path().to_owned();
        // Writes the footer.
        let inner = self.writer.into_inner();
        let inner = inner.map_err(|error| OutputError::not_written(&path, io::Error::other(error)));
        inner?.finish()
    }
}
