//! Columns: the values of one element of one event type, each column in the cheapest fitting encoding.

use std::collections::HashMap;

use crate::error::{FormatError, Result};
use crate::ints::{Ints, put_ints, read_ints};
use crate::value::{ElementType, Value};
use crate::wire::{Put, Wire};

/// The number for an absent value in the order hash of a stream.
const ABSENT: u64 = 0x8f41_4e4e_414c_530a;

/// Returns what a text counts as in the order hash of a stream.
fn hash_of_text(text: &[u8]) -> u64 {
    u64::from(crc32fast::hash(text)) | (text.len() as u64) << 32
}

const DICTIONARY: u8 = 0;
const CONCATENATED: u8 = 1;

/// Byte strings; equal ones may share their bytes.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
struct Texts {
    /// For each value, which of the entries it is; for an absent one anything.
    codes: Vec<u32>,
    /// Where each entry ends in `data`.
    ends: Vec<u32>,
    data: Vec<u8>,
}

impl Texts {
    /// Returns an entry, an empty one if every value is absent.
    fn entry(&self, code: usize) -> &[u8] {
        let Some(end) = self.ends.get(code) else {
            return &[];
        };
        let start = if code == 0 { 0 } else { self.ends[code - 1] };
        &self.data[start as usize..*end as usize]
    }

    /// Returns the value at `index`.
    fn get(&self, index: usize) -> &[u8] {
        self.entry(self.codes[index] as usize)
    }

    /// Appends a value.
    fn push(&mut self, bytes: &[u8]) {
        self.codes.push(self.ends.len() as u32);
        self.data.extend_from_slice(bytes);
        self.ends.push(self.data.len() as u32);
    }

    /// Takes the last pushed value away.
    fn pop(&mut self) {
        self.codes.pop();
        self.ends.pop();
        self.data
            .truncate(self.ends.last().map_or(0, |end| *end as usize));
    }

    fn put(&self, out: &mut Vec<u8>) {
        if self.codes.is_empty() {
            return;
        }
        let mut dictionary: HashMap<&[u8], u64> = HashMap::new();
        let mut entries: Vec<&[u8]> = Vec::new();
        let mut codes = Vec::with_capacity(self.codes.len());
        for index in 0..self.codes.len() {
            let text = self.get(index);
            codes.push(*dictionary.entry(text).or_insert_with(|| {
                entries.push(text);
                entries.len() as u64 - 1
            }));
        }
        let is_dictionary = entries.len() * 2 <= codes.len();
        if is_dictionary {
            out.push(DICTIONARY);
            out.put_varint(entries.len() as u64);
        } else {
            out.push(CONCATENATED);
            entries = (0..codes.len()).map(|index| self.get(index)).collect();
        }
        let lengths: Vec<u64> = entries.iter().map(|text| text.len() as u64).collect();
        put_ints(&lengths, out);
        for text in &entries {
            out.extend_from_slice(text);
        }
        if is_dictionary {
            put_ints(&codes, out);
        }
    }

    fn read(wire: &mut Wire<'_>, count: usize) -> Result<Self> {
        if count == 0 {
            return Ok(Self::default());
        }
        let start = wire.position();
        let encoding = wire.u8("encoding of a text column")?;
        let entries = match encoding {
            DICTIONARY => wire.varint("size of a dictionary")?.min(u64::MAX >> 1) as usize,
            CONCATENATED => count,
            other => {
                return Err(FormatError::invalid(
                    start,
                    "text encoding 0 (dictionary) or 1 (concatenated)",
                    other,
                ));
            }
        };
        if entries == 0 || entries > count {
            return Err(FormatError::invalid(
                start,
                "a dictionary no larger than the column",
                format!("{entries} entries for {count} values"),
            ));
        }
        let lengths = read_ints(wire, entries)?;
        let mut total = 0_u64;
        let mut ends = Vec::with_capacity(entries);
        for length in lengths {
            total = total.saturating_add(length);
            if total > wire.remaining() as u64 {
                return Err(FormatError::UnexpectedEnd {
                    offset: (wire.position() + wire.remaining()) as u64,
                    expected: "bytes of a text column",
                });
            }
            ends.push(total as u32);
        }
        let data = wire
            .take(total as usize, "bytes of a text column")?
            .to_vec();
        let codes = if encoding == CONCATENATED {
            (0..count as u32).collect()
        } else {
            let start = wire.position();
            let codes = read_ints(wire, count)?;
            if let Some(code) = codes.iter().find(|code| **code >= entries as u64) {
                return Err(FormatError::invalid(
                    start,
                    "codes within the dictionary",
                    format!("code {code} of {entries}"),
                ));
            }
            codes.into_iter().map(|code| code as u32).collect()
        };
        Ok(Self { codes, ends, data })
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Data {
    /// Integers sign-extended, doubles by their bits.
    Bits(Ints),
    Texts(Texts),
}

/// The values of one element of one event type.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Column {
    element_type: ElementType,
    /// `None` means that every value is present. Absent values have a placeholder in `data`.
    is_present: Option<Vec<bool>>,
    data: Data,
}

impl Column {
    /// Creates an empty column.
    pub fn new(element_type: ElementType) -> Self {
        let data = if element_type.is_variable() {
            Data::Texts(Texts::default())
        } else {
            Data::Bits(Ints::default())
        };
        Self {
            element_type,
            is_present: None,
            data,
        }
    }

    /// Returns the type of the values.
    pub const fn element_type(&self) -> ElementType {
        self.element_type
    }

    /// Replaces `values` by what each value counts as in an order hash. `renumber` makes references
    /// those of a trace.
    pub(crate) fn hash_into(&self, values: &mut Vec<u64>, renumber: impl FnOnce(&mut [u64])) {
        values.clear();
        match &self.data {
            Data::Bits(bits) => {
                bits.extend_into(0..bits.len(), values);
                renumber(values);
            }
            Data::Texts(texts) => {
                let entries = 0..texts.ends.len();
                let hashes = entries.map(|code| hash_of_text(texts.entry(code)));
                let hashes: Vec<u64> = hashes.collect();
                // Without any value that is present, there is no entry.
                let codes = texts.codes.iter();
                values
                    .extend(codes.map(|code| hashes.get(*code as usize).map_or(ABSENT, |of| *of)));
            }
        }
        if let Some(is_present) = &self.is_present {
            let absent = values.iter_mut().zip(is_present);
            let absent = absent.filter(|(_, is_present)| !**is_present);
            absent.for_each(|(value, _)| *value = ABSENT);
        }
    }

    /// Returns the number of values, including absent ones.
    pub fn len(&self) -> usize {
        match &self.data {
            Data::Bits(bits) => bits.len(),
            Data::Texts(texts) => texts.codes.len(),
        }
    }

    /// Returns whether there are no values.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the value at `index`.
    ///
    /// # Panics
    /// If the column is not that long.
    pub fn get(&self, index: usize) -> Value<'_> {
        if let Some(is_present) = &self.is_present
            && !is_present[index]
        {
            return Value::Absent;
        }
        match &self.data {
            Data::Bits(bits) => Value::from_bits(self.element_type, bits.get(index)),
            Data::Texts(texts) if self.element_type == ElementType::String => {
                Value::String(texts.get(index))
            }
            Data::Texts(texts) => Value::Bytes(texts.get(index)),
        }
    }

    /// Returns the value at `index` as an integer; `None` when it is absent or no integer.
    ///
    /// # Panics
    /// If there are fewer values.
    #[inline]
    pub fn integer(&self, index: usize) -> Option<i128> {
        match &self.data {
            Data::Bits(bits) if self.is_present.is_none() => match self.element_type {
                ElementType::U64 => Some(bits.get(index).into()),
                ElementType::I64 => Some((bits.get(index) as i64).into()),
                ElementType::U32 => Some((bits.get(index) as u32).into()),
                ElementType::I32 => Some((bits.get(index) as i32).into()),
                _ => None,
            },
            _ => self.get(index).as_integer(),
        }
    }

    /// Appends the bits of an integer or double.
    ///
    /// # Panics
    /// If the column is one of strings or bytes.
    #[inline]
    pub fn push_bits(&mut self, bits: u64) {
        let Data::Bits(column) = &mut self.data else {
            panic!("a column of {} takes no bits", self.element_type);
        };
        column.wide().push(bits);
        if let Some(is_present) = &mut self.is_present {
            is_present.push(true);
        }
    }

    /// Appends the bits of integers, all of them present.
    ///
    /// # Panics
    /// If the column is one of strings or bytes.
    pub(crate) fn extend_bits(&mut self, bits: &[u64]) {
        let Data::Bits(column) = &mut self.data else {
            panic!("a column of {} takes no bits", self.element_type);
        };
        column.wide().extend_from_slice(bits);
    }

    /// Changes the bits of all integers.
    pub(crate) fn map_bits(&mut self, map: impl Fn(u64) -> u64) {
        if let Data::Bits(column) = &mut self.data {
            column.wide().iter_mut().for_each(|bits| *bits = map(*bits));
        }
    }

    /// Appends a string or bytes.
    ///
    /// # Panics
    /// If the column is one of integers or doubles.
    pub fn push_text(&mut self, bytes: &[u8]) {
        let Data::Texts(texts) = &mut self.data else {
            panic!("a column of {} takes no text", self.element_type);
        };
        texts.push(bytes);
        if let Some(is_present) = &mut self.is_present {
            is_present.push(true);
        }
    }

    /// Returns the values with these indexes, in their order.
    ///
    /// # Panics
    /// If the column is shorter.
    #[must_use]
    pub fn in_order(&self, indexes: &[u32]) -> Self {
        let each = || indexes.iter().map(|index| *index as usize);
        let is_present = self.is_present.as_ref();
        Self {
            element_type: self.element_type,
            is_present: is_present
                .map(|is_present| each().map(|index| is_present[index]).collect()),
            data: match &self.data {
                Data::Bits(bits) => Data::Bits(
                    each()
                        .map(|index| bits.get(index))
                        .collect::<Vec<u64>>()
                        .into(),
                ),
                Data::Texts(texts) => Data::Texts(Texts {
                    codes: each().map(|index| texts.codes[index]).collect(),
                    ends: texts.ends.clone(),
                    data: texts.data.clone(),
                }),
            },
        }
    }

    /// Returns the integers or doubles, as bits, when none is absent.
    #[inline]
    pub fn bits(&self) -> Option<&Ints> {
        match &self.data {
            Data::Bits(bits) if self.is_present.is_none() => Some(bits),
            _ => None,
        }
    }

    /// Returns a column of these integers or doubles, none of them absent.
    ///
    /// # Panics
    /// If the type is one of strings or bytes.
    pub fn of_bits(element_type: ElementType, bits: Vec<u64>) -> Self {
        assert!(!element_type.is_variable(), "a type of integers or doubles");
        Self {
            element_type,
            is_present: None,
            data: Data::Bits(bits.into()),
        }
    }

    /// Returns the size in bytes of all strings or byte strings that are present, where entries count as often as they
    /// are used; 0 for other types.
    pub(crate) fn text_bytes(&self) -> u64 {
        let Data::Texts(texts) = &self.data else {
            return 0;
        };
        let is_present = |index: usize| self.is_present.as_ref().is_none_or(|all| all[index]);
        let present = (0..texts.codes.len()).filter(|index| is_present(*index));
        present.fold(0, |sum: u64, index| {
            sum.saturating_add(texts.get(index).len() as u64)
        })
    }

    /// Returns the length of a string or byte string; 0 for other values.
    pub fn text_len(&self, index: usize) -> usize {
        match &self.data {
            Data::Texts(texts) => texts.get(index).len(),
            Data::Bits(_) => 0,
        }
    }

    /// Takes all values away, and keeps the memory.
    pub(crate) fn clear(&mut self) {
        self.is_present = None;
        match &mut self.data {
            Data::Bits(column) => column.wide().clear(),
            Data::Texts(texts) => {
                texts.codes.clear();
                texts.ends.clear();
                texts.data.clear();
            }
        }
    }

    /// Takes the last value away, if there is one.
    pub(crate) fn pop(&mut self) {
        if let Some(is_present) = &mut self.is_present {
            is_present.pop();
        }
        match &mut self.data {
            Data::Bits(column) => {
                column.wide().pop();
            }
            Data::Texts(texts) => texts.pop(),
        }
    }

    /// Appends an absent value.
    pub fn push_absent(&mut self) {
        let length = self.len();
        self.is_present
            .get_or_insert_with(|| vec![true; length])
            .push(false);
        match &mut self.data {
            Data::Bits(column) => column.wide().push(0),
            Data::Texts(texts) => texts.push(&[]),
        }
    }

    /// Appends a value of the column's type, or an absent one; `map` renumbers references.
    ///
    /// # Panics
    /// If the value is of another type than the column.
    #[inline]
    pub fn push_from(&mut self, other: &Self, index: usize, map: impl Fn(u64) -> u64) {
        if let Some(is_present) = &other.is_present
            && !is_present[index]
        {
            self.push_absent();
            return;
        }
        match &other.data {
            Data::Bits(bits) => self.push_bits(map(bits.get(index))),
            Data::Texts(texts) => self.push_text(texts.get(index)),
        }
    }

    /// Appends the column: presence, then the values that are there.
    pub fn put(&self, out: &mut Vec<u8>) {
        let Some(is_present) = &self.is_present else {
            out.push(0);
            match &self.data {
                Data::Bits(bits) => bits.put(out),
                Data::Texts(texts) => texts.put(out),
            }
            return;
        };
        out.push(1);
        for bits in is_present.chunks(8) {
            let byte = bits.iter().enumerate();
            out.push(byte.fold(0, |byte, (bit, is_set)| byte | u8::from(*is_set) << bit));
        }
        let present = (0..is_present.len()).filter(|index| is_present[*index]);
        match &self.data {
            Data::Bits(bits) => {
                let dense: Vec<u64> = present.map(|index| bits.get(index)).collect();
                put_ints(&dense, out);
            }
            Data::Texts(texts) => {
                let mut dense = Texts::default();
                present.for_each(|index| dense.push(texts.get(index)));
                dense.put(out);
            }
        }
    }

    /// Reads a column of `count` values.
    ///
    /// # Errors
    /// If the column ends early or contradicts the format.
    pub fn read(wire: &mut Wire<'_>, element_type: ElementType, count: usize) -> Result<Self> {
        let is_present = match wire.u8("presence of a column")? {
            0 => None,
            _ => {
                let bitmap = wire.take(count.div_ceil(8), "presence bitmap")?;
                Some(
                    (0..count)
                        .map(|index| bitmap[index / 8] >> (index % 8) & 1 == 1)
                        .collect::<Vec<bool>>(),
                )
            }
        };
        let dense_count = is_present
            .as_ref()
            .map_or(count, |bits| bits.iter().filter(|bit| **bit).count());
        let data = if element_type.is_variable() {
            let mut texts = Texts::read(wire, dense_count)?;
            // Values that share an entry go on sharing it: a copy each would not be bounded by the bytes.
            texts.codes = spread(texts.codes, is_present.as_deref());
            Data::Texts(texts)
        } else {
            let mut dense = Ints::read(wire, dense_count)?;
            if is_present.is_some() {
                let values = std::mem::take(dense.wide());
                dense = spread(values, is_present.as_deref()).into();
            }
            Data::Bits(dense)
        };
        Ok(Self {
            element_type,
            is_present,
            data,
        })
    }
}

/// Puts values where they are present, and placeholders between them.
fn spread<T: Default>(dense: Vec<T>, is_present: Option<&[bool]>) -> Vec<T> {
    let Some(is_present) = is_present else {
        return dense;
    };
    let mut values = dense.into_iter();
    let each = is_present.iter().map(|is_present| {
        let value = is_present.then(|| values.next()).flatten();
        value.unwrap_or_default()
    });
    each.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ints::testing::interesting;
    use proptest::prelude::*;

    /// Returns a column of which every other value is absent and all the others are one text.
    fn dictionary_with_gaps(text: &[u8], count: usize) -> Vec<u8> {
        let mut body = vec![1];
        body.extend(vec![0b0101_0101; count.div_ceil(8)]);
        body.push(DICTIONARY);
        body.put_varint(1);
        put_ints(&[text.len() as u64], &mut body);
        body.extend_from_slice(text);
        put_ints(&vec![0_u64; count / 2], &mut body);
        body
    }

    #[test]
    fn texts_that_are_all_absent_are_read_and_hashed() {
        let mut column = Column::new(ElementType::String);
        (0..3).for_each(|_| column.push_absent());
        let mut body = Vec::new();
        column.put(&mut body);
        let read = Column::read(&mut Wire::new(&body), ElementType::String, 3).unwrap();
        let hashes = [&column, &read].map(|column| {
            let mut hashes = Vec::new();
            column.hash_into(&mut hashes, |_| {});
            hashes
        });
        assert_eq!(hashes, [[ABSENT; 3]; 2]);
        assert!((0..3).all(|index| read.get(index) == Value::Absent));
        assert!((0..3).all(|index| read.text_len(index) == 0));
    }

    #[test]
    fn values_that_share_an_entry_cost_no_copies() {
        let (text, count) = (vec![7; 10_000], 80_000);
        let body = dictionary_with_gaps(&text, count);
        let column = Column::read(&mut Wire::new(&body), ElementType::Bytes, count).unwrap();
        assert_eq!(column.len(), count);
        assert_eq!(column.get(count - 2), Value::Bytes(&text));
        assert_eq!(column.get(count - 1), Value::Absent);
        let Data::Texts(texts) = &column.data else {
            panic!("a column of texts");
        };
        assert_eq!((texts.data.len(), texts.ends.len()), (text.len(), 1));
    }

    #[test]
    fn a_column_that_was_read_can_be_put_and_extended() {
        let mut column = Column::read(
            &mut Wire::new(&dictionary_with_gaps(b"ab", 16)),
            ElementType::String,
            16,
        )
        .unwrap();
        column.push_text(b"c");
        column.push_absent();
        let mut copy = Column::new(ElementType::String);
        (0..column.len()).for_each(|index| copy.push_from(&column, index, |bits| bits));
        let mut out = Vec::new();
        column.put(&mut out);
        let mut again = Vec::new();
        copy.put(&mut again);
        assert_eq!(out, again);
        let read = Column::read(&mut Wire::new(&out), ElementType::String, 18).unwrap();
        for index in 0..18 {
            assert_eq!(read.get(index), column.get(index));
            assert_eq!(copy.get(index), column.get(index));
        }
    }

    #[test]
    fn a_column_of_absent_texts_has_no_entries() {
        let mut column = Column::new(ElementType::String);
        (0..3).for_each(|_| column.push_absent());
        let mut out = Vec::new();
        column.put(&mut out);
        let read = Column::read(&mut Wire::new(&out), ElementType::String, 3).unwrap();
        assert!((0..3).all(|index| read.get(index) == Value::Absent));
    }

    proptest! {
        #[test]
        fn columns_with_absent_values_round_trip(
            values in prop::collection::vec(prop::option::of("[a-c]{0,3}"), 0..300),
            numbers in prop::collection::vec(prop::option::of(interesting()), 0..300),
        ) {
            let mut texts = Column::new(ElementType::String);
            for value in &values {
                match value {
                    Some(text) => texts.push_text(text.as_bytes()),
                    None => texts.push_absent(),
                }
            }
            let mut bits = Column::new(ElementType::U64);
            for value in &numbers {
                match value {
                    Some(value) => bits.push_bits(*value),
                    None => bits.push_absent(),
                }
            }
            for column in [&texts, &bits] {
                let mut out = Vec::new();
                column.put(&mut out);
                let mut wire = Wire::new(&out);
                let read = Column::read(&mut wire, column.element_type(), column.len()).unwrap();
                prop_assert!(wire.is_empty());
                for index in 0..column.len() {
                    prop_assert_eq!(read.get(index), column.get(index));
                }
            }
        }

        #[test]
        fn random_bytes_never_panic(bytes: Vec<u8>, count in 0..2000_usize) {
            let _ = Column::read(&mut Wire::new(&bytes), ElementType::String, count);
            let _ = Column::read(&mut Wire::new(&bytes), ElementType::F64, count);
        }
    }
}
