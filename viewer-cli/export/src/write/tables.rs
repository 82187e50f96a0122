//! A trace as tables: which there are, their columns, and their rows as record batches.
//!
//! A table whose rows are made one by one is a type with [`ExportedRow`]: its columns are defined there, each with its name,
//! its type, and how it is made of rows; rows of an analysis have theirs already ([`OfAnalysis`]). [`events`] is the exception: its
//! columns follow from the definitions.

mod analysed;
mod calls;
mod collectives;
mod events;
mod locations;
mod losses;
mod messages;
mod metrics;
mod names;
mod wait_states;

use std::sync::Arc;

use arrow_array::types::Int32Type;
use arrow_array::{
    ArrayRef, BooleanArray, DictionaryArray, Float64Array, Int32Array, Int64Array, StringArray,
    UInt64Array,
};
use arrow_buffer::{BooleanBuffer, NullBuffer};
use arrow_schema::{DataType, Field, Schema, SchemaRef};

use crate::TableKind;
use crate::write::exporter::{Call, Context};
use crate::write::rows::{ColumnRows, Rows};
use annals_analysis::{
    Efficiencies, PathRegion, RegionRow, Row, SampleRow, Unit, Value, data_columns,
};
use annals_format::TraceLoss;

pub(crate) use analysed::{Analysed, each_row};
pub(crate) use events::EventsTable;
pub(crate) use metrics::{MetricsTable, Sample, metrics_of};
pub(crate) use names::Shared;

/// Rows of a batch, at most.
pub(crate) const BATCH_ROWS: usize = 1 << 16;

impl TableKind {
    /// Returns the column whose rank a row belongs to.
    pub(crate) const fn rank_column(self) -> &'static str {
        match self {
            Self::Messages => "to_rank",
            Self::Collectives => "last_rank",
            _ => "rank",
        }
    }

    /// Returns the column by whose time rows are sorted; calls that are open at the end follow.
    pub(crate) const fn time_column(self) -> Option<&'static str> {
        match self {
            Self::Events | Self::Metrics => Some("time_ns"),
            Self::Calls => Some("end_ns"),
            Self::Messages => Some("receive_ns"),
            Self::Drops => Some("to_ns"),
            Self::Regions
            | Self::Collectives
            | Self::WaitStates
            | Self::CriticalPath
            | Self::Efficiency
            | Self::Locations
            | Self::Samples => None,
        }
    }

    /// Returns the columns of the table of a trace.
    pub(crate) fn schema(self, context: &Context<'_>) -> SchemaRef {
        match self {
            Self::Events => EventsTable::of(context).schema,
            Self::Calls => schema_of::<Call>(),
            Self::Regions => schema_of::<OfAnalysis<RegionRow>>(),
            Self::Messages => schema_of::<messages::MessageRow>(),
            Self::Metrics => schema_of::<Sample>(),
            Self::Drops => schema_of::<TraceLoss>(),
            Self::Collectives => schema_of::<collectives::Operation>(),
            Self::WaitStates => schema_of::<wait_states::SingleWait>(),
            Self::CriticalPath => schema_of::<OfAnalysis<PathRegion>>(),
            Self::Efficiency => schema_of::<OfAnalysis<Efficiencies>>(),
            Self::Locations => schema_of::<OfAnalysis<locations::LocationRow>>(),
            Self::Samples => schema_of::<OfAnalysis<SampleRow>>(),
        }
    }
}

/// Returns the type of texts with few distinct values: a dictionary.
fn name_type() -> DataType {
    DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8))
}

/// The type of a column.
#[derive(Clone, Copy, Debug)]
enum ColumnType {
    Integer,
    Unsigned,
    Float,
    Flag,
    /// A text with few distinct values.
    Name,
    Text,
    LongText,
}

impl ColumnType {
    fn data_type(self) -> DataType {
        match self {
            Self::Integer => DataType::Int64,
            Self::Unsigned => DataType::UInt64,
            Self::Float => DataType::Float64,
            Self::Flag => DataType::Boolean,
            Self::Name => name_type(),
            Self::Text => DataType::Utf8,
            Self::LongText => DataType::LargeUtf8,
        }
    }
}

/// Makes a column of rows.
type Make<T> = fn(&Shared, &[T]) -> ArrayRef;

/// A column of a table whose rows are of type `T`.
#[derive(Debug)]
pub(crate) struct Column<T> {
    name: &'static str,
    of: ColumnType,
    is_nullable: bool,
    make: Make<T>,
}

impl<T> Column<T> {
    /// A column in which every row has a value.
    const fn new(name: &'static str, of: ColumnType, make: Make<T>) -> Self {
        Self {
            name,
            of,
            is_nullable: false,
            make,
        }
    }

    /// A column in which rows may have no value.
    const fn nullable(name: &'static str, of: ColumnType, make: Make<T>) -> Self {
        Self {
            name,
            of,
            is_nullable: true,
            make,
        }
    }
}

/// A column of which each cell is made of its row, and of what all rows share.
macro_rules! column {
    (@type integer) => { (ColumnType::Integer, false) };
    (@type maybe_integer) => { (ColumnType::Integer, true) };
    (@type unsigned) => { (ColumnType::Unsigned, false) };
    (@type maybe_unsigned) => { (ColumnType::Unsigned, true) };
    (@type float) => { (ColumnType::Float, false) };
    (@type flag) => { (ColumnType::Flag, false) };
    ($name:literal, $kind:ident, |$row:ident| $cell:expr) => {
        $crate::write::tables::column!($name, $kind, |$row, _shared| $cell)
    };
    ($name:literal, $kind:ident, |$row:ident, $shared:ident| $cell:expr) => {{
        use $crate::write::tables::{Column, ColumnType, $kind};
        let (of, is_nullable) = $crate::write::tables::column!(@type $kind);
        Column {
            name: $name,
            of,
            is_nullable,
            make: |$shared, rows| $kind(rows, |$row| $cell),
        }
    }};
}
pub(crate) use column;

/// A row of a table whose columns are the same for every trace.
pub(crate) trait TableRow: Send + Sized + 'static {
    /// Returns the columns, in order.
    fn fields() -> Vec<Field>;

    /// Makes the column at an index.
    fn column(at: usize, shared: &Shared, rows: &[Self]) -> ArrayRef;
}

/// A row of which only this crate makes tables.
pub(crate) trait ExportedRow: Send + Sized + 'static {
    /// The columns, in order.
    const COLUMNS: &'static [Column<Self>];
}

impl<T: ExportedRow> TableRow for T {
    fn fields() -> Vec<Field> {
        let fields = T::COLUMNS.iter().map(|column| {
            let data_type = column.of.data_type();
            Field::new(column.name, data_type, column.is_nullable)
        });
        fields.collect()
    }

    fn column(at: usize, shared: &Shared, rows: &[Self]) -> ArrayRef {
        (T::COLUMNS[at].make)(shared, rows)
    }
}

/// A row of an analysis: its columns are those of all its tables.
#[derive(Debug)]
pub(crate) struct OfAnalysis<T>(pub(crate) T);

impl<T: Row + Send> TableRow for OfAnalysis<T> {
    fn fields() -> Vec<Field> {
        let fields = data_columns::<T>().map(|column| {
            let data_type = match column.unit {
                Unit::Name | Unit::Text => DataType::Utf8,
                Unit::Number | Unit::Duration | Unit::Moment => DataType::Int64,
                Unit::Count | Unit::Bytes => DataType::UInt64,
                Unit::Share => DataType::Float64,
                Unit::Flag => DataType::Boolean,
            };
            Field::new(column.name, data_type, true)
        });
        fields.collect()
    }

    fn column(at: usize, _: &Shared, rows: &[Self]) -> ArrayRef {
        let mut columns = data_columns::<T>();
        let column = columns.nth(at).expect("a column of the schema");
        let values = || rows.iter().map(|row| (column.get)(&row.0));
        let integer = |value| match value {
            Value::Integer(value) => Some(value),
            Value::Unsigned(value) => Some(value as i64),
            _ => None,
        };
        let text = |value| match value {
            Value::Text(text) => Some(text),
            _ => None,
        };
        match column.unit {
            Unit::Name | Unit::Text => Arc::new(StringArray::from_iter(values().map(text))),
            Unit::Number | Unit::Duration | Unit::Moment => {
                Arc::new(Int64Array::from_iter(values().map(integer)))
            }
            Unit::Count | Unit::Bytes => {
                let counts = values().map(integer);
                Arc::new(UInt64Array::from_iter(
                    counts.map(|count| Some(count? as u64)),
                ))
            }
            Unit::Share => Arc::new(Float64Array::from_iter(values().map(|value| match value {
                Value::Float(value) => Some(value),
                _ => None,
            }))),
            Unit::Flag => Arc::new(BooleanArray::from_iter(values().map(|value| match value {
                Value::Flag(value) => Some(value),
                _ => None,
            }))),
        }
    }
}

fn schema_of<T: TableRow>() -> SchemaRef {
    Arc::new(Schema::new(T::fields()))
}

/// Rows that were gathered, of which columns are made in any thread.
struct GatheredRows<T> {
    rows: Vec<T>,
    schema: SchemaRef,
    shared: Arc<Shared>,
}

impl<T: TableRow> ColumnRows for GatheredRows<T> {
    fn len(&self) -> usize {
        self.rows.len()
    }

    fn column(&self, at: usize) -> ArrayRef {
        T::column(at, &self.shared, &self.rows)
    }

    fn schema(&self) -> &SchemaRef {
        &self.schema
    }
}

/// Rows that are gathered one by one.
#[derive(Debug)]
pub(crate) struct Gathered<T> {
    schema: SchemaRef,
    rows: Vec<T>,
}

impl<T: TableRow> Gathered<T> {
    pub(crate) fn new() -> Self {
        Self {
            schema: schema_of::<T>(),
            rows: Vec::new(),
        }
    }

    /// Adds a row. Returns a batch of rows when enough have been added.
    pub(crate) fn push(&mut self, row: T, shared: &Arc<Shared>) -> Option<Rows> {
        self.rows.push(row);
        (self.rows.len() >= BATCH_ROWS).then(|| self.take(shared))
    }

    /// Takes all rows that wait.
    pub(crate) fn take(&mut self, shared: &Arc<Shared>) -> Rows {
        Rows::ByColumn(Box::new(GatheredRows {
            rows: std::mem::take(&mut self.rows),
            schema: Arc::clone(&self.schema),
            shared: Arc::clone(shared),
        }))
    }
}

/// Returns losses as rows, in order of the time of the next event.
pub(crate) fn loss_rows(losses: &[TraceLoss], shared: &Arc<Shared>) -> Rows {
    let mut rows = losses.to_vec();
    rows.sort_by_key(|loss| loss.to_ns);
    Gathered {
        schema: schema_of::<TraceLoss>(),
        rows,
    }
    .take(shared)
}

fn integers(values: Vec<i64>) -> ArrayRef {
    Arc::new(Int64Array::from(values))
}

fn integer<T>(rows: &[T], of: impl Fn(&T) -> i64) -> ArrayRef {
    integers(rows.iter().map(of).collect())
}

fn maybe_integer<T>(rows: &[T], of: impl Fn(&T) -> Option<i64>) -> ArrayRef {
    let (values, valid) = with_validity(rows, of);
    Arc::new(Int64Array::new(values.into(), valid))
}

/// Returns values, zero where there is none, and which rows have one. `None` means all.
fn with_validity<T, V: Default>(
    rows: &[T],
    of: impl Fn(&T) -> Option<V>,
) -> (Vec<V>, Option<NullBuffer>) {
    let mut valid = Vec::with_capacity(rows.len());
    let values = rows.iter().map(|row| {
        let value = of(row);
        valid.push(value.is_some());
        value.unwrap_or_default()
    });
    let values = values.collect();
    let valid = NullBuffer::from(valid);
    (values, Some(valid).filter(|valid| valid.null_count() != 0))
}

fn unsigned<T>(rows: &[T], of: impl Fn(&T) -> u64) -> ArrayRef {
    Arc::new(UInt64Array::from_iter_values(rows.iter().map(of)))
}

fn maybe_unsigned<T>(rows: &[T], of: impl Fn(&T) -> Option<u64>) -> ArrayRef {
    let (values, valid) = with_validity(rows, of);
    Arc::new(UInt64Array::new(values.into(), valid))
}

fn float<T>(rows: &[T], of: impl Fn(&T) -> f64) -> ArrayRef {
    Arc::new(Float64Array::from_iter_values(rows.iter().map(of)))
}

fn flag<T>(rows: &[T], of: impl Fn(&T) -> bool) -> ArrayRef {
    let flags = BooleanBuffer::collect_bool(rows.len(), |row| of(&rows[row]));
    Arc::new(BooleanArray::from(flags))
}

fn text<'r, T>(rows: &'r [T], of: impl Fn(&'r T) -> Option<&'r str>) -> ArrayRef {
    Arc::new(StringArray::from_iter(rows.iter().map(of)))
}

/// Names that are all known beforehand, by number.
fn choice<T>(rows: &[T], names: &[&str], of: impl Fn(&T) -> usize) -> ArrayRef {
    let keys = Int32Array::from_iter_values(rows.iter().map(|row| of(row) as i32));
    let values: ArrayRef = Arc::new(StringArray::from_iter_values(names));
    let array = DictionaryArray::<Int32Type>::try_new(keys, values);
    Arc::new(array.expect("every number is that of a name"))
}

/// Names of which only a few are known beforehand, or none.
fn words<'r, T>(rows: &'r [T], of: impl Fn(&'r T) -> Option<&'r str>) -> ArrayRef {
    let mut known: Vec<&str> = Vec::new();
    let keys = rows.iter().map(|row| {
        let word = of(row)?;
        // Few, and mostly the same one after the other.
        let key = known.iter().rposition(|known| *known == word);
        Some(key.unwrap_or_else(|| {
            known.push(word);
            known.len() - 1
        }) as i32)
    });
    let keys: Int32Array = keys.collect();
    let values: ArrayRef = Arc::new(StringArray::from(known));
    let array = DictionaryArray::<Int32Type>::try_new(keys, values);
    Arc::new(array.expect("every word is known"))
}
