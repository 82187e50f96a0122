//! A table's columns as memory that NumPy reads.

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int32Type, Int64Type, UInt64Type};
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::{DataType, SchemaRef};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use rustc_hash::FxHashMap;

/// Numbers in memory, in the form that NumPy's `asarray` takes without a copy.
#[pyclass(frozen, module = "annals_trace")]
pub(crate) struct NumpyColumn {
    values: Numbers,
}

enum Numbers {
    Integers(Vec<i64>),
    Unsigned(Vec<u64>),
    Floats(Vec<f64>),
    Codes(Vec<i32>),
    Flags(Vec<u8>),
}

#[pymethods]
impl NumpyColumn {
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let (kind, address, length) = match &self.values {
            Numbers::Integers(values) => ("<i8", values.as_ptr() as usize, values.len()),
            Numbers::Unsigned(values) => ("<u8", values.as_ptr() as usize, values.len()),
            Numbers::Floats(values) => ("<f8", values.as_ptr() as usize, values.len()),
            Numbers::Codes(values) => ("<i4", values.as_ptr() as usize, values.len()),
            Numbers::Flags(values) => ("|b1", values.as_ptr() as usize, values.len()),
        };
        let interface = PyDict::new(py);
        interface.set_item("version", 3)?;
        interface.set_item("shape", (length,))?;
        interface.set_item("typestr", kind)?;
        // The memory belongs to this object, is never moved, and only read.
        interface.set_item("data", (address, true))?;
        Ok(interface)
    }
}

/// A column with its name.
#[derive(IntoPyObject)]
pub(crate) struct Named {
    name: String,
    /// Numbers; of names, the places among `categories`, −1 for none. `None` for texts and bytes.
    values: Option<NumpyColumn>,
    /// Which rows have no value. `None` if all have one.
    missing: Option<NumpyColumn>,
    categories: Option<Vec<String>>,
    texts: Option<Vec<Option<String>>>,
    bytes: Option<Vec<Option<Vec<u8>>>>,
}

/// A column under construction.
enum Growing {
    Integers(Vec<i64>),
    Unsigned(Vec<u64>),
    Floats(Vec<f64>),
    Flags(Vec<u8>),
    Names(Names),
    Texts(Vec<Option<String>>),
    Bytes(Vec<Option<Vec<u8>>>),
}

#[derive(Default)]
struct Names {
    codes: Vec<i32>,
    numbers: FxHashMap<String, i32>,
    categories: Vec<String>,
    /// The dictionary of the batch before, and what its places are here.
    last: Option<(ArrayRef, Vec<i32>)>,
}

impl Names {
    fn add(&mut self, array: &ArrayRef) {
        let array = array.as_dictionary::<Int32Type>();
        let values = array.values();
        let is_same = self
            .last
            .as_ref()
            .is_some_and(|(last, _)| last.to_data().ptr_eq(&values.to_data()));
        if !is_same {
            let texts = values.as_string::<i32>().iter();
            let places = texts.map(|text| self.number(text.unwrap_or_default()));
            let places = places.collect();
            self.last = Some((ArrayRef::clone(values), places));
        }
        let places = self.last.as_ref().map_or(&[][..], |(_, places)| places);
        let keys = array.keys();
        let codes = keys.iter().map(|key| match key {
            Some(key) => places[key as usize],
            None => -1,
        });
        self.codes.extend(codes);
    }

    fn number(&mut self, text: &str) -> i32 {
        if let Some(number) = self.numbers.get(text) {
            return *number;
        }
        let number = self.categories.len() as i32;
        self.categories.push(text.to_owned());
        self.numbers.insert(text.to_owned(), number);
        number
    }
}

impl Growing {
    fn of(data_type: &DataType) -> Self {
        match data_type {
            DataType::Int64 => Self::Integers(Vec::new()),
            DataType::UInt64 => Self::Unsigned(Vec::new()),
            DataType::Float64 => Self::Floats(Vec::new()),
            DataType::Boolean => Self::Flags(Vec::new()),
            DataType::Dictionary(..) => Self::Names(Names::default()),
            DataType::LargeBinary => Self::Bytes(Vec::new()),
            _ => Self::Texts(Vec::new()),
        }
    }

    fn add(&mut self, array: &ArrayRef) {
        match self {
            Self::Integers(all) => all.extend(array.as_primitive::<Int64Type>().values()),
            Self::Unsigned(all) => all.extend(array.as_primitive::<UInt64Type>().values()),
            Self::Floats(all) => {
                let values = array.as_primitive::<Float64Type>().iter();
                all.extend(values.map(|value| value.unwrap_or(f64::NAN)));
            }
            Self::Flags(all) => {
                let values = array.as_boolean().values().iter();
                all.extend(values.map(u8::from));
            }
            Self::Names(names) => names.add(array),
            Self::Texts(all) => match array.data_type() {
                DataType::LargeUtf8 => {
                    all.extend(
                        array
                            .as_string::<i64>()
                            .iter()
                            .map(|text| text.map(str::to_owned)),
                    );
                }
                _ => {
                    all.extend(
                        array
                            .as_string::<i32>()
                            .iter()
                            .map(|text| text.map(str::to_owned)),
                    );
                }
            },
            Self::Bytes(all) => {
                all.extend(
                    array
                        .as_binary::<i64>()
                        .iter()
                        .map(|bytes| bytes.map(<[u8]>::to_vec)),
                );
            }
        }
    }
}

struct Column {
    name: String,
    values: Growing,
    /// By row, whether it has no value. Empty: all rows so far have one.
    missing: Vec<u8>,
}

/// Columns, gathered batch by batch.
pub(crate) struct Gathered {
    columns: Vec<Column>,
    rows: usize,
}

impl Gathered {
    pub(crate) fn new(schema: &SchemaRef) -> Self {
        let columns = schema.fields().iter().map(|field| Column {
            name: field.name().clone(),
            values: Growing::of(field.data_type()),
            missing: Vec::new(),
        });
        Self {
            columns: columns.collect(),
            rows: 0,
        }
    }

    pub(crate) fn add(&mut self, batch: &RecordBatch) {
        let rows = self.rows + batch.num_rows();
        for (column, array) in self.columns.iter_mut().zip(batch.columns()) {
            column.values.add(array);
            if let Some(nulls) = array.nulls().filter(|nulls| nulls.null_count() != 0) {
                column.missing.resize(self.rows, 0);
                column
                    .missing
                    .extend(nulls.iter().map(|is_valid| u8::from(!is_valid)));
            } else if !column.missing.is_empty() {
                column.missing.resize(rows, 0);
            }
        }
        self.rows = rows;
    }

    pub(crate) fn finish(self) -> Vec<Named> {
        let named = self.columns.into_iter().map(|column| {
            let mut named = Named {
                name: column.name,
                values: None,
                missing: (!column.missing.is_empty()).then_some(NumpyColumn {
                    values: Numbers::Flags(column.missing),
                }),
                categories: None,
                texts: None,
                bytes: None,
            };
            let numbers = match column.values {
                Growing::Integers(values) => Numbers::Integers(values),
                Growing::Unsigned(values) => Numbers::Unsigned(values),
                Growing::Floats(values) => Numbers::Floats(values),
                Growing::Flags(values) => Numbers::Flags(values),
                Growing::Names(names) => {
                    named.categories = Some(names.categories);
                    Numbers::Codes(names.codes)
                }
                Growing::Texts(texts) => {
                    named.texts = Some(texts);
                    return named;
                }
                Growing::Bytes(bytes) => {
                    named.bytes = Some(bytes);
                    return named;
                }
            };
            named.values = Some(NumpyColumn { values: numbers });
            named
        });
        named.collect()
    }
}
