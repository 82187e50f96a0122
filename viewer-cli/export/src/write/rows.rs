//! Tables on their way to files: gathered into groups of rows, split into partitions, encoded by several threads,
//! written in order.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use annals_merger::{OutputError, Replace};
use anyhow::{Context as _, bail};
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use arrow_schema::{Schema, SchemaRef};
use arrow_select::concat::concat_batches;
use arrow_select::take::take_record_batch;

use crate::write::pages::EncodedColumn;
use crate::write::pool::Pool;
use crate::{Partition, TableKind};

/// Number of rows in a group, which is encoded in one piece and which engines can skip.
pub(crate) const GROUP_ROWS: usize = 1 << 17;
/// Rows of a table that wait for their partitions, all together.
const MOST_ROWS: usize = 1 << 19;
/// Partitions of a table.
const MOST_PARTITIONS: usize = 1 << 16;
/// Bytes that wait for the file of a partition.
const APPEND_BYTES: usize = 8 << 10;
/// Maximum amount of footer data for all partitions' files, in columns of groups (about a KiB each). Beyond it, the
/// files are finished, and later rows are written to new ones.
const MOST_COLUMNS: usize = 1 << 17;
/// Footer data of a file itself, in columns of its table.
const OF_FILE: usize = 4;

impl Partition {
    fn directory(self, key: i64) -> String {
        match self {
            Self::Rank => format!("rank={key}"),
            Self::Time(_) => format!("window_ns={key}"),
        }
    }
}

/// Rows that are made column by column.
pub(crate) trait ColumnRows: Send {
    /// Returns the number of rows.
    fn len(&self) -> usize;

    /// Makes the column of the schema at an index.
    fn column(&self, at: usize) -> ArrayRef;

    /// Returns what the columns are.
    fn schema(&self) -> &SchemaRef;
}

/// Rows of a table, maybe still to be made.
pub(crate) enum Rows {
    /// Made.
    Ready(RecordBatch),
    /// Made column by column, in any thread.
    ByColumn(Box<dyn ColumnRows>),
}

impl Rows {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Ready(batch) => batch.num_rows(),
            Self::ByColumn(rows) => rows.len(),
        }
    }

    /// Makes them.
    pub(crate) fn batch(self) -> RecordBatch {
        match self {
            Self::Ready(batch) => batch,
            Self::ByColumn(rows) => {
                let schema = rows.schema();
                let columns = (0..schema.fields().len()).map(|at| rows.column(at));
                let batch = RecordBatch::try_new(Arc::clone(schema), columns.collect());
                batch.expect("columns as the schema has them")
            }
        }
    }

    /// Returns a column.
    pub(crate) fn column(&self, at: usize) -> ArrayRef {
        match self {
            Self::Ready(batch) => Arc::clone(batch.column(at)),
            Self::ByColumn(rows) => rows.column(at),
        }
    }
}

/// A group of rows, encoded.
pub(crate) enum Encoded {
    /// As bytes of the file.
    Bytes(Vec<u8>),
    /// As columns of a Parquet file.
    Columns(Vec<EncodedColumn>),
    /// Not at all.
    Batches(Vec<RecordBatch>),
}

/// Encodes a group of rows, in any thread.
pub(crate) type Job = Box<dyn FnOnce() -> anyhow::Result<Encoded> + Send>;

/// A file of rows under construction.
pub(crate) trait RowFile: Send {
    /// Returns the work of encoding a group, in order.
    fn encode(&mut self, group: Vec<Rows>) -> anyhow::Result<Job>;
    /// Takes encoded groups in, in the same order.
    fn append(&mut self, encoded: Encoded) -> anyhow::Result<()>;
    /// Writes the end of the file, and renames it to its final name.
    fn finish(self: Box<Self>) -> anyhow::Result<()>;
}

/// Where bytes of a file go.
pub(crate) enum Out {
    /// A file that gets its name when it is finished.
    Whole(Box<super::output::Output>),
    /// A file of a directory that gets its name as a whole: open only while something is written to it.
    PartFile {
        /// Where it is made.
        path: PathBuf,
        /// The final path.
        named: PathBuf,
        waiting: Vec<u8>,
    },
}

impl Out {
    fn append(&mut self) -> io::Result<()> {
        if let Self::PartFile { path, waiting, .. } = self
            && !waiting.is_empty()
        {
            let file = OpenOptions::new().append(true).create(true).open(path);
            file?.write_all(waiting)?;
            waiting.clear();
        }
        Ok(())
    }

    /// Returns what it is to be called.
    pub(crate) fn path(&self) -> &Path {
        match self {
            Self::Whole(file) => file.path(),
            Self::PartFile { named, .. } => named,
        }
    }

    /// Returns what a failed write means.
    pub(crate) fn failed(&self, error: io::Error) -> OutputError {
        OutputError::not_written(self.path(), error)
    }

    /// Begins a file of a directory.
    ///
    /// # Errors
    /// If it cannot be created.
    fn part(path: PathBuf, named: PathBuf) -> anyhow::Result<Self> {
        let created = File::create(&path);
        created.map_err(|error| OutputError::not_written(&named, error))?;
        Ok(Self::PartFile {
            path,
            named,
            waiting: Vec::new(),
        })
    }

    /// Renames the file to its final name.
    pub(crate) fn finish(mut self) -> anyhow::Result<()> {
        let appended = self.append().map_err(|error| self.failed(error));
        appended?;
        match self {
            Self::Whole(file) => file.finish(),
            Self::PartFile { .. } => Ok(()),
        }
    }
}

impl Write for Out {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_all(bytes)?;
        Ok(bytes.len())
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Whole(file) => file.write_all(bytes),
            Self::PartFile { waiting, .. } => {
                waiting.extend_from_slice(bytes);
                if waiting.len() >= APPEND_BYTES {
                    self.append()?;
                }
                Ok(())
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Begins a file of rows with these columns.
pub(crate) type OpenRows =
    fn(&SchemaRef, Option<&'static str>, Out) -> anyhow::Result<Box<dyn RowFile>>;

struct PartFile {
    file: Box<dyn RowFile>,
    waiting: Vec<Rows>,
    rows: usize,
}

enum Destination {
    /// One file.
    File,
    /// The partitions, by key.
    Dataset {
        at: At,
        partition: Partition,
        extension: &'static str,
        /// Number of the files that are open.
        generation: usize,
        numbers: BTreeMap<i64, usize>,
        /// The columns that are in the files.
        columns: Vec<usize>,
        schema: SchemaRef,
    },
}

/// The temporary and the final path of an output.
#[derive(Clone, Debug)]
pub(crate) struct At {
    /// The temporary path. `None` means a separate file, which manages its temporary name itself.
    pub(crate) temporary: Option<PathBuf>,
    /// The final path.
    pub(crate) named: PathBuf,
    /// Existing files that may be replaced there.
    pub(crate) replace: Replace,
}

impl At {
    fn below(&self, name: &str) -> Self {
        Self {
            temporary: self.temporary.as_ref().map(|path| path.join(name)),
            named: self.named.join(name),
            replace: self.replace,
        }
    }

    fn out(&self) -> anyhow::Result<Out> {
        match &self.temporary {
            Some(temporary) => Out::part(temporary.clone(), self.named.clone()),
            None => {
                let output = super::output::Output::create(&self.named, self.replace)?;
                Ok(Out::Whole(Box::new(output)))
            }
        }
    }

    fn create_directory(&self) -> anyhow::Result<()> {
        let path = self.temporary.as_ref().unwrap_or(&self.named);
        let created = fs::create_dir_all(path);
        Ok(created.map_err(|error| OutputError::not_written(&self.named, error))?)
    }
}

/// A table under construction.
struct Table {
    kind: TableKind,
    schema: SchemaRef,
    open: OpenRows,
    place: Destination,
    /// Files, as they were begun.
    parts: Vec<PartFile>,
    /// Rows that are not yet of a partition.
    waiting: Vec<RecordBatch>,
    rows: usize,
}

/// Rows that were written, by table as in [`TableKind::ALL`].
pub(crate) type RowCounts = [AtomicU64; TableKind::ALL.len()];

/// All tables under construction.
pub(crate) struct Tables {
    tables: Vec<Table>,
    row_counts: Arc<RowCounts>,
    pool: Pool<(usize, usize), anyhow::Result<Encoded>>,
    /// Amount of footer data for partitions' files.
    columns: usize,
}

impl Tables {
    pub(crate) fn new() -> Self {
        Self {
            tables: Vec::new(),
            row_counts: Arc::default(),
            pool: Pool::new(),
            columns: 0,
        }
    }

    /// Begins a table; returns its number.
    pub(crate) fn add(
        &mut self,
        kind: TableKind,
        schema: &SchemaRef,
        at: &At,
        partition: Option<Partition>,
        extension: &'static str,
        open: OpenRows,
    ) -> anyhow::Result<usize> {
        // Rows without a time are not split by time.
        let partition = partition.filter(|partition| {
            matches!(partition, Partition::Rank) || kind.time_column().is_some()
        });
        let number = self.tables.len();
        let (place, parts) = match partition {
            None => {
                let file = open(schema, kind.time_column(), at.out()?)?;
                let part = PartFile {
                    file,
                    waiting: Vec::new(),
                    rows: 0,
                };
                (Destination::File, vec![part])
            }
            Some(partition) => {
                let all = 0..schema.fields().len();
                // The rank is in the names of the directories.
                let is_key =
                    |at: &usize| partition == Partition::Rank && schema.field(*at).name() == "rank";
                let columns: Vec<usize> = all.filter(|at| !is_key(at)).collect();
                let fields: Vec<_> = columns
                    .iter()
                    .map(|at| Arc::clone(&schema.fields()[*at]))
                    .collect();
                at.create_directory()?;
                let place = Destination::Dataset {
                    at: at.clone(),
                    partition,
                    extension,
                    generation: 0,
                    numbers: BTreeMap::new(),
                    columns,
                    schema: Arc::new(Schema::new(fields)),
                };
                (place, Vec::new())
            }
        };
        self.tables.push(Table {
            kind,
            schema: Arc::clone(schema),
            open,
            place,
            parts,
            waiting: Vec::new(),
            rows: 0,
        });
        Ok(number)
    }

    /// Returns the numbers of rows that were written so far.
    pub(crate) fn row_counts(&self) -> Arc<RowCounts> {
        Arc::clone(&self.row_counts)
    }

    /// Writes rows of a table.
    pub(crate) fn write(&mut self, table: usize, rows: Rows) -> anyhow::Result<()> {
        if rows.len() == 0 {
            return Ok(());
        }
        let found = &mut self.tables[table];
        self.row_counts[found.kind as usize].fetch_add(rows.len() as u64, Ordering::Relaxed);
        if matches!(found.place, Destination::File) {
            return self.give(table, 0, rows);
        }
        found.rows += rows.len();
        found.waiting.push(rows.batch());
        if found.rows >= MOST_ROWS / 2 {
            self.split(table)?;
        }
        Ok(())
    }

    /// Passes rows to a file of a table.
    fn give(&mut self, table: usize, part: usize, rows: Rows) -> anyhow::Result<()> {
        let found = &mut self.tables[table].parts[part];
        found.rows += rows.len();
        found.waiting.push(rows);
        if found.rows >= GROUP_ROWS {
            self.encode(table, part)?;
        }
        Ok(())
    }

    /// Encodes what waits for a file.
    fn encode(&mut self, table: usize, part: usize) -> anyhow::Result<()> {
        let columns = match &self.tables[table].place {
            Destination::File => 0,
            Destination::Dataset { columns, .. } => columns.len(),
        };
        let found = &mut self.tables[table].parts[part];
        if found.rows == 0 {
            return Ok(());
        }
        let group = std::mem::take(&mut found.waiting);
        found.rows = 0;
        self.columns += columns;
        let job = found.file.encode(group)?;
        match self.pool.push((table, part), job) {
            Some(((table, part), encoded)) => self.append(table, part, encoded),
            None => Ok(()),
        }
    }

    /// Appends encoded rows to the file of a part of a table.
    fn append(
        &mut self,
        table: usize,
        part: usize,
        encoded: anyhow::Result<Encoded>,
    ) -> anyhow::Result<()> {
        self.tables[table].parts[part].file.append(encoded?)
    }

    /// Splits the rows that wait into their partitions.
    fn split(&mut self, table: usize) -> anyhow::Result<()> {
        let found = &mut self.tables[table];
        let Destination::Dataset {
            at,
            partition,
            extension,
            generation,
            numbers,
            columns,
            schema,
        } = &mut found.place
        else {
            return Ok(());
        };
        if found.waiting.is_empty() {
            return Ok(());
        }
        let batch = concat_batches(&found.schema, &std::mem::take(&mut found.waiting))?;
        found.rows = 0;
        let mut rows_of: BTreeMap<i64, Vec<i64>> = BTreeMap::new();
        let name = match partition {
            Partition::Rank => found.kind.rank_column(),
            Partition::Time(_) => found.kind.time_column().unwrap_or_default(),
        };
        let keys = batch.column_by_name(name).context("a column to split by")?;
        for (row, key) in keys.as_primitive::<Int64Type>().values().iter().enumerate() {
            let key = match partition {
                Partition::Rank => *key,
                Partition::Time(each) => key.div_euclid(*each) * *each,
            };
            rows_of.entry(key).or_default().push(row as i64);
        }
        let batch = batch.project(columns)?;
        let mut given = Vec::new();
        for (key, rows) in rows_of {
            let number = match numbers.get(&key) {
                Some(number) => *number,
                None if numbers.len() >= MOST_PARTITIONS => {
                    bail!("more than {MOST_PARTITIONS} partitions: choose larger ones")
                }
                None => {
                    let below = at.below(&partition.directory(key));
                    below.create_directory()?;
                    let out = below
                        .below(&format!("part-{generation}.{extension}"))
                        .out()?;
                    numbers.insert(key, found.parts.len());
                    self.columns += OF_FILE * columns.len();
                    found.parts.push(PartFile {
                        file: (found.open)(schema, found.kind.time_column(), out)?,
                        waiting: Vec::new(),
                        rows: 0,
                    });
                    found.parts.len() - 1
                }
            };
            let is_run = rows.len() as i64 == rows[rows.len() - 1] - rows[0] + 1;
            let taken = match is_run {
                true => batch.slice(rows[0] as usize, rows.len()),
                false => take_record_batch(&batch, &Int64Array::from(rows))?,
            };
            given.push((number, taken));
        }
        for (number, taken) in given {
            self.give(table, number, Rows::Ready(taken))?;
        }
        // Many partitions have many rows waiting: the fullest ones are encoded as they are.
        let rows = |part: &PartFile| part.rows;
        while self.tables[table].parts.iter().map(rows).sum::<usize>() >= MOST_ROWS {
            let parts = self.tables[table].parts.iter().enumerate();
            let fullest = parts
                .max_by_key(|(_, part)| part.rows)
                .map(|(number, _)| number);
            self.encode(table, fullest.unwrap_or_default())?;
        }
        match self.columns < MOST_COLUMNS {
            true => Ok(()),
            false => self.finish_parts(),
        }
    }

    /// Finishes the files of all partitions; more rows go to others.
    fn finish_parts(&mut self) -> anyhow::Result<()> {
        for table in 0..self.tables.len() {
            for part in 0..self.tables[table].parts.len() {
                self.encode(table, part)?;
            }
        }
        while let Some(((table, part), encoded)) = self.pool.next() {
            self.append(table, part, encoded)?;
        }
        for table in &mut self.tables {
            if let Destination::Dataset {
                numbers,
                generation,
                ..
            } = &mut table.place
            {
                numbers.clear();
                *generation += 1;
                for part in table.parts.drain(..) {
                    part.file.finish()?;
                }
            }
        }
        self.columns = 0;
        Ok(())
    }

    /// Writes the rest, and renames files that are not in a directory to their final names.
    pub(crate) fn finish(mut self) -> anyhow::Result<()> {
        for table in 0..self.tables.len() {
            self.split(table)?;
            for part in 0..self.tables[table].parts.len() {
                self.encode(table, part)?;
            }
        }
        while let Some(((table, part), encoded)) = self.pool.next() {
            self.append(table, part, encoded)?;
        }
        for table in self.tables {
            for part in table.parts {
                part.file.finish()?;
            }
        }
        Ok(())
    }
}

/// A file of lines.
pub(crate) struct Lines {
    out: Out,
    schema: SchemaRef,
    put: fn(&Schema, &RecordBatch, &mut Vec<u8>),
}

impl Lines {
    /// Begins one with these bytes.
    pub(crate) fn open(
        schema: &SchemaRef,
        mut out: Out,
        head: &[u8],
        put: fn(&Schema, &RecordBatch, &mut Vec<u8>),
    ) -> anyhow::Result<Box<dyn RowFile>> {
        let written = out.write_all(head);
        written.map_err(|error| out.failed(error))?;
        Ok(Box::new(Self {
            out,
            schema: Arc::clone(schema),
            put,
        }))
    }
}

impl RowFile for Lines {
    fn encode(&mut self, group: Vec<Rows>) -> anyhow::Result<Job> {
        let (schema, put) = (Arc::clone(&self.schema), self.put);
        Ok(Box::new(move || {
            let mut bytes = Vec::new();
            let batches = group.into_iter().map(Rows::batch);
            batches.for_each(|batch| put(&schema, &batch, &mut bytes));
            Ok(Encoded::Bytes(bytes))
        }))
    }

    fn append(&mut self, encoded: Encoded) -> anyhow::Result<()> {
        if let Encoded::Bytes(bytes) = encoded {
            let written = self.out.write_all(&bytes);
            written.map_err(|error| self.out.failed(error))?;
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> anyhow::Result<()> {
        self.out.finish()
    }
}

/// A cell of a line.
pub(crate) enum Cell<'a> {
    /// Nothing.
    Null,
    /// A whole number.
    Integer(i64),
    /// A whole number that is not negative.
    Unsigned(u64),
    /// A number.
    Float(f64),
    /// Yes or no.
    Flag(bool),
    /// Text.
    Text(&'a str),
    /// Bytes.
    Bytes(&'a [u8]),
}

/// A column, ready to be read cell by cell.
pub(crate) enum Cells<'a> {
    Integer(&'a Int64Array),
    Unsigned(&'a arrow_array::UInt64Array),
    Float(&'a arrow_array::Float64Array),
    Flag(&'a arrow_array::BooleanArray),
    Name(&'a arrow_array::Int32Array, &'a arrow_array::StringArray),
    Text(&'a arrow_array::StringArray),
    LargeText(&'a arrow_array::LargeStringArray),
    Bytes(&'a arrow_array::LargeBinaryArray),
}

impl<'a> Cells<'a> {
    pub(crate) fn of(column: &'a arrow_array::ArrayRef) -> Self {
        use arrow_schema::DataType;
        match column.data_type() {
            DataType::Int64 => Self::Integer(column.as_primitive()),
            DataType::UInt64 => Self::Unsigned(column.as_primitive()),
            DataType::Float64 => Self::Float(column.as_primitive()),
            DataType::Boolean => Self::Flag(column.as_boolean()),
            DataType::Utf8 => Self::Text(column.as_string()),
            DataType::LargeUtf8 => Self::LargeText(column.as_string()),
            DataType::LargeBinary => Self::Bytes(column.as_binary()),
            _ => {
                let names = column.as_dictionary::<arrow_array::types::Int32Type>();
                Self::Name(names.keys(), names.values().as_string())
            }
        }
    }

    #[inline]
    pub(crate) fn get(&self, row: usize) -> Cell<'a> {
        use arrow_array::Array;
        match self {
            Self::Integer(column) if column.is_valid(row) => Cell::Integer(column.value(row)),
            Self::Unsigned(column) if column.is_valid(row) => Cell::Unsigned(column.value(row)),
            Self::Float(column) if column.is_valid(row) => Cell::Float(column.value(row)),
            Self::Flag(column) if column.is_valid(row) => Cell::Flag(column.value(row)),
            Self::Name(keys, names) if keys.is_valid(row) => {
                Cell::Text(names.value(keys.value(row) as usize))
            }
            Self::Text(column) if column.is_valid(row) => Cell::Text(column.value(row)),
            Self::LargeText(column) if column.is_valid(row) => Cell::Text(column.value(row)),
            Self::Bytes(column) if column.is_valid(row) => Cell::Bytes(column.value(row)),
            _ => Cell::Null,
        }
    }
}
