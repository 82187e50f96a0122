//! Rows of answers: what their columns are called, what they are of, and how a cell is made.
//!
//! A row type declares its columns once, in [`Row::COLUMNS`]. Comma-separated values, tables in a terminal and in a page, and Arrow's
//! record batches are made of them.

use std::borrow::Cow;

/// What the numbers of a column are of: how people read them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unit {
    /// A name: it may be shortened.
    Name,
    /// Another text.
    Text,
    /// A number that is as it is, such as a rank. Exported tables have it as an integer.
    Number,
    /// How many.
    Count,
    /// A duration, nanoseconds.
    Duration,
    /// A time from the start of the trace, nanoseconds.
    Moment,
    /// A size.
    Bytes,
    /// A part of a whole: 1 is all of it.
    Share,
    /// Whether something holds.
    Flag,
}

/// The content of a cell.
#[derive(Clone, PartialEq, Debug)]
pub enum Value<'a> {
    /// There is none.
    None,
    /// An integer.
    Integer(i64),
    /// A number of something.
    Unsigned(u64),
    /// Another number.
    Float(f64),
    /// Whether something holds.
    Flag(bool),
    /// A text.
    Text(Cow<'a, str>),
}

macro_rules! values {
    ($($from:ty => $variant:ident($value:ident) $make:expr;)*) => {$(
        impl<'a> From<$from> for Value<'a> {
            fn from($value: $from) -> Self {
                Self::$variant($make)
            }
        }
    )*};
}

values! {
    i64 => Integer(value) value;
    u32 => Integer(value) value.into();
    u64 => Unsigned(value) value;
    usize => Unsigned(value) value as u64;
    f64 => Float(value) value;
    bool => Flag(value) value;
    &'a str => Text(value) Cow::Borrowed(value);
    &'a String => Text(value) Cow::Borrowed(value);
    String => Text(value) Cow::Owned(value);
}

impl<'a, T: Into<Value<'a>>> From<Option<T>> for Value<'a> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Value::None, T::into)
    }
}

impl<'a> From<&'a Option<String>> for Value<'a> {
    fn from(value: &'a Option<String>) -> Self {
        value.as_deref().into()
    }
}

/// Makes the cell of a row.
pub type Get<T> = for<'a> fn(&'a T) -> Value<'a>;

/// How a column is shown to people.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Heading {
    /// Its words.
    pub words: &'static str,
    /// Whether it is left out where there is no room.
    pub is_optional: bool,
    /// Whether it is left out if no row has anything in it: no value, no time, 0.
    pub is_sparse: bool,
    /// Whether `~` marks it in rows that a loss may have changed.
    pub is_marked: bool,
}

impl Heading {
    /// It is there.
    pub const fn headed(words: &'static str) -> Self {
        Self {
            words,
            is_optional: false,
            is_sparse: false,
            is_marked: false,
        }
    }

    /// It is there, and marked in rows that a loss may have changed.
    pub const fn marked(words: &'static str) -> Self {
        Self {
            is_marked: true,
            ..Self::headed(words)
        }
    }

    /// It is there where there is room.
    pub const fn if_room(words: &'static str) -> Self {
        Self {
            is_optional: true,
            ..Self::headed(words)
        }
    }

    /// It is there where there is room, and marked in rows that a loss may have changed.
    pub const fn marked_if_room(words: &'static str) -> Self {
        Self {
            is_optional: true,
            ..Self::marked(words)
        }
    }

    /// It is there if a row has anything in it.
    pub const fn if_any(words: &'static str) -> Self {
        Self {
            is_sparse: true,
            ..Self::headed(words)
        }
    }

    /// It is there if a row has anything in it, and there is room.
    pub const fn if_any_and_room(words: &'static str) -> Self {
        Self {
            is_sparse: true,
            ..Self::if_room(words)
        }
    }
}

/// A column of a table whose rows are of type `T`.
#[derive(Debug)]
pub struct Column<T: 'static> {
    /// What programs call it. Empty: it is for people only.
    pub name: &'static str,
    /// What it is of.
    pub unit: Unit,
    /// How people see it. `None` means that they do not.
    pub heading: Option<Heading>,
    /// Makes a cell.
    pub get: Get<T>,
}

/// A row of an answer.
pub trait Row: Sized + 'static {
    /// The columns, in their order.
    const COLUMNS: &'static [Column<Self>];

    /// Returns whether a loss may have changed the cells that losses may change.
    fn is_uncertain(&self) -> bool {
        false
    }
}

/// Returns the columns that programs read.
pub fn data_columns<T: Row>() -> impl Iterator<Item = &'static Column<T>> {
    T::COLUMNS.iter().filter(|column| !column.name.is_empty())
}

/// An answer with rows, and how many there are of these without `--top`.
#[derive(serde::Serialize)]
pub struct WithTotal<'a, Answer> {
    /// The answer.
    #[serde(flatten)]
    pub answer: &'a Answer,
    /// Number of rows.
    pub rows_total: usize,
}

/// Returns the regions of a call path as one text, the outermost first.
pub fn joined_path(path: &[String]) -> String {
    match path.is_empty() {
        true => OUTSIDE.to_owned(),
        false => path.join(" > "),
    }
}

/// Returns by how much a count may differ, as people see it: `>=3` if it may be more. `None` if it is exact.
pub fn uncertain_text(count: u64, is_lower_bound: bool) -> Option<String> {
    let least = if is_lower_bound { ">=" } else { "" };
    (is_lower_bound || count != 0).then(|| format!("{least}{count}"))
}

/// What people see for time outside of all regions.
pub const OUTSIDE: &str = "(outside of all regions)";

/// Writes the columns of a row to an object of JSON, but those that `fields` has in another form.
///
/// # Errors
/// Those of the serializer.
pub fn put_columns<T: Row, M: serde::ser::SerializeMap>(
    row: &T,
    fields: &[&str],
    map: &mut M,
) -> Result<(), M::Error> {
    for column in data_columns::<T>().filter(|column| !fields.contains(&column.name)) {
        match (column.get)(row) {
            Value::None => map.serialize_entry(column.name, &None::<i64>)?,
            Value::Integer(value) => map.serialize_entry(column.name, &value)?,
            Value::Unsigned(value) => map.serialize_entry(column.name, &value)?,
            Value::Float(value) => map.serialize_entry(column.name, &value)?,
            Value::Flag(value) => map.serialize_entry(column.name, &value)?,
            Value::Text(value) => map.serialize_entry(column.name, &value)?,
        }
    }
    Ok(())
}

/// Declares the columns of rows: their name for programs (empty: for people only), what they are of ([`Unit`]), how people see them
/// ([`Heading`]), and how a cell is made. `uncertain` is the field that says whether a loss may have changed the row. As JSON, a row is an
/// object of its columns, then of the fields after `json`, which may have several values.
#[macro_export]
macro_rules! columns {
    (
        $row:ty $(, uncertain $uncertain:ident)? $(, json $($field:ident)*)?;
        $($name:literal $unit:ident $($how:ident $words:literal)?, |$of:ident| $get:expr;)*
    ) => {
        impl $crate::Row for $row {
            const COLUMNS: &'static [$crate::Column<Self>] = &[$(
                $crate::Column {
                    name: $name,
                    unit: $crate::Unit::$unit,
                    heading: [$(Some($crate::Heading::$how($words)),)? None][0],
                    get: |$of| $crate::Value::from($get),
                },
            )*];

            $(
                fn is_uncertain(&self) -> bool {
                    self.$uncertain
                }
            )?
        }

        impl serde::Serialize for $row {
            fn serialize<S: serde::Serializer>(
                &self,
                serializer: S,
            ) -> std::result::Result<S::Ok, S::Error> {
                use serde::ser::SerializeMap as _;
                let mut map = serializer.serialize_map(None)?;
                $crate::put_columns(self, &[$($(stringify!($field)),*)?], &mut map)?;
                $($(map.serialize_entry(stringify!($field), &self.$field)?;)*)?
                map.end()
            }
        }
    };
}
