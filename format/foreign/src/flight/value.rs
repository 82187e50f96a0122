//! Values of a pickle. Containers are in tables and refer to each other by number, so that what the memo shares is there once; reading them with
//! serde counts it each time.

use std::cell::Cell;

use annals_format::{FormatError, Result};
use serde::de::value::{Error, MapDeserializer, SeqDeserializer};
use serde::de::{Deserializer, Error as _, IntoDeserializer, Visitor};
use serde::forward_to_deserialize_any;

/// Memory that the values of one pickle may take, bytes.
const MOST_BYTES: usize = 64 << 20;

/// Bytes that may be read out of the values of one pickle, with what is shared counted each time.
const MOST_READ: usize = 128 << 20;

/// A value. Numbers of texts, lists and maps are those of the tables.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Value {
    None,
    Bool(bool),
    Integer(i64),
    Float(f64),
    Text(u32),
    List(u32),
    Map(u32),
}

/// All texts and containers of a pickle.
#[derive(Debug)]
pub(super) struct Values {
    texts: Vec<Box<str>>,
    lists: Vec<Vec<Value>>,
    maps: Vec<Vec<(Value, Value)>>,
    bytes_left: usize,
    read_left: Cell<usize>,
}

impl Values {
    pub(super) const fn new() -> Self {
        Self {
            texts: Vec::new(),
            lists: Vec::new(),
            maps: Vec::new(),
            bytes_left: MOST_BYTES,
            read_left: Cell::new(MOST_READ),
        }
    }

    /// Counts memory that is about to be allocated.
    pub(super) fn charge(&mut self, bytes: usize, offset: u64) -> Result<()> {
        let left = self.bytes_left.checked_sub(bytes);
        let expected = "a pickle whose values take at most 64 MiB";
        self.bytes_left = left.ok_or_else(|| invalid(offset, expected, "more than that"))?;
        Ok(())
    }

    pub(super) fn add_text(&mut self, text: &str, offset: u64) -> Result<Value> {
        // Vectors have room for twice what they have.
        self.charge(text.len() + 2 * size_of::<Box<str>>(), offset)?;
        self.texts.push(text.into());
        Ok(Value::Text(self.texts.len() as u32 - 1))
    }

    pub(super) fn add_list(&mut self, items: Vec<Value>, offset: u64) -> Result<Value> {
        let bytes = 2 * size_of::<Vec<Value>>() + size_of_val(items.as_slice());
        self.charge(bytes, offset)?;
        self.lists.push(items);
        Ok(Value::List(self.lists.len() as u32 - 1))
    }

    pub(super) fn add_map(&mut self, offset: u64) -> Result<Value> {
        self.charge(2 * size_of::<Vec<(Value, Value)>>(), offset)?;
        self.maps.push(Vec::new());
        Ok(Value::Map(self.maps.len() as u32 - 1))
    }

    /// Appends items to a list.
    pub(super) fn append(&mut self, list: Value, items: &[Value], offset: u64) -> Result<()> {
        let Value::List(number) = list else {
            return Err(invalid(offset, "a list to append to", format!("{list:?}")));
        };
        self.charge(2 * size_of_val(items), offset)?;
        self.lists[number as usize].extend(items);
        Ok(())
    }

    /// Adds an item to a map.
    pub(super) fn set(&mut self, map: Value, item: (Value, Value), offset: u64) -> Result<()> {
        let Value::Map(number) = map else {
            return Err(invalid(offset, "a map to add to", format!("{map:?}")));
        };
        self.charge(2 * size_of_val(&item), offset)?;
        self.maps[number as usize].push(item);
        Ok(())
    }

    pub(super) fn text(&self, value: Value) -> Option<&str> {
        match value {
            Value::Text(number) => Some(&self.texts[number as usize]),
            _ => None,
        }
    }
}

/// A value that serde reads.
#[derive(Clone, Copy)]
pub(super) struct Node<'a> {
    pub(super) values: &'a Values,
    pub(super) value: Value,
}

impl Node<'_> {
    fn count(self, bytes: usize) -> Result<(), Error> {
        let left = self.values.read_left.get().checked_sub(bytes);
        let what = "more than 128 MiB of values: what is shared counts each time";
        self.values
            .read_left
            .set(left.ok_or_else(|| Error::custom(what))?);
        Ok(())
    }
}

impl<'de> IntoDeserializer<'de> for Node<'_> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> Deserializer<'de> for Node<'_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.count(size_of::<Value>())?;
        let values = self.values;
        let node = |value: &Value| Node {
            values,
            value: *value,
        };
        match self.value {
            Value::None => visitor.visit_unit(),
            Value::Bool(flag) => visitor.visit_bool(flag),
            Value::Integer(number) => visitor.visit_i64(number),
            Value::Float(number) => visitor.visit_f64(number),
            Value::Text(number) => {
                let text = &values.texts[number as usize];
                self.count(text.len())?;
                visitor.visit_str(text)
            }
            Value::List(number) => {
                let items = values.lists[number as usize].iter().map(node);
                visitor.visit_seq(SeqDeserializer::new(items))
            }
            Value::Map(number) => {
                let items = values.maps[number as usize].iter();
                let items = items.map(|(key, value)| (node(key), node(value)));
                visitor.visit_map(MapDeserializer::new(items))
            }
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.value {
            Value::None => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.count(size_of::<Value>())?;
        visitor.visit_unit()
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct newtype_struct seq
        tuple tuple_struct map struct enum identifier
    }
}

pub(super) fn invalid(offset: u64, expected: &'static str, found: impl ToString) -> FormatError {
    FormatError::invalid(
        usize::try_from(offset).unwrap_or(usize::MAX),
        expected,
        found,
    )
}
