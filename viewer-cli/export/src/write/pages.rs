//! Columns of Parquet that are nearly all of an export: names, and whole numbers.
//!
//! A name has its number here, so that its dictionary need not be found by hashing every row's text again, as a writer
//! that is given text has to; whole numbers are written as differences, a block at a time. Everything else about a
//! file (headers, footers, other types of columns) is the library's. Sources: parquet-format's Encodings.md (RLE,
//! bit-packing, DELTA_BINARY_PACKED) and README.md (pages, levels).

use std::collections::hash_map::Entry;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type, UInt64Type};
use arrow_array::{Array, ArrayRef};
use arrow_buffer::{BooleanBufferBuilder, NullBuffer};
use arrow_schema::DataType;
use bytes::Bytes;
use parquet::arrow::arrow_writer::ArrowColumnChunk;
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::column::page::{CompressedPage, Page, PageWriter};
use parquet::column::writer::ColumnCloseResult;
use parquet::data_type::ByteArray;
use parquet::file::metadata::{ColumnChunkMetaData, PageEncodingStats};
use parquet::file::statistics::{Statistics, ValueStatistics};
use parquet::file::writer::{SerializedPageWriter, TrackedWrite};
use parquet::schema::types::ColumnDescPtr;
use rustc_hash::FxHashMap;

/// A column of a group, encoded.
pub(crate) enum EncodedColumn {
    /// By what is fast for it.
    Ours(ColumnBytes),
    /// By the library.
    Theirs(ArrowColumnChunk),
}

/// A column of a group of rows, as bytes of the file.
pub(crate) struct ColumnBytes {
    /// Its pages.
    pub(crate) bytes: Bytes,
    /// Its description in the file's footer.
    pub(crate) close: ColumnCloseResult,
}

/// Returns whether columns of a type are written here.
pub(crate) fn is_known(data_type: &DataType) -> bool {
    match data_type {
        DataType::Int64 | DataType::UInt64 => true,
        DataType::Dictionary(key, value) => **key == DataType::Int32 && **value == DataType::Utf8,
        _ => false,
    }
}

/// The level is what is fast: pages are short for what they hold as they are.
const ZSTD_LEVEL: i32 = 1;
/// Number of values in a block of differences, and in each of its parts, which have separate bit
/// widths.
const BLOCK: usize = 128;
const MINI_BLOCK: usize = 32;
/// Equal values in a row that are not packed, but said once.
const SHORTEST_RUN: usize = 32;
/// Bytes of the least and the greatest name, at most.
const LONGEST_BOUND: usize = 64;

/// Compresses the columns of a group.
pub(crate) struct Compressor(zstd::bulk::Compressor<'static>);

impl Compressor {
    pub(crate) fn new() -> std::io::Result<Self> {
        Ok(Self(zstd::bulk::Compressor::new(ZSTD_LEVEL)?))
    }
}

fn varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

const fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

const fn width_of(greatest: u64) -> u32 {
    u64::BITS - greatest.leading_zeros()
}

/// Appends values of `width` bits, the first in the lowest bits; they fill whole bytes or zeros do.
#[inline]
fn pack(values: impl Iterator<Item = u64>, width: u32, out: &mut Vec<u8>) {
    let (mut word, mut bits) = (0_u128, 0);
    for value in values {
        word |= u128::from(value) << bits;
        bits += width;
        if bits >= 64 {
            out.extend_from_slice(&(word as u64).to_le_bytes());
            word >>= 64;
            bits -= 64;
        }
    }
    let rest = word.to_le_bytes();
    out.extend_from_slice(&rest[..bits.div_ceil(8) as usize]);
}

/// Appends values as runs of equal ones and packed ones.
fn put_runs(values: &[u32], width: u32, out: &mut Vec<u8>) {
    let width_bytes = width.div_ceil(8) as usize;
    let put_packed = |values: &[u32], out: &mut Vec<u8>| {
        if !values.is_empty() {
            let groups = values.len().div_ceil(8);
            varint((groups as u64) << 1 | 1, out);
            let padding = groups * 8 - values.len();
            let each = values.iter().map(|value| u64::from(*value));
            pack(each.chain(std::iter::repeat_n(0, padding)), width, out);
        }
    };
    // Packed values come in eights, but for the last.
    let (mut packed, mut at) = (0, 0);
    while at < values.len() {
        let first = values[at];
        let run = values[at..].iter().take_while(|value| **value == first);
        let run = run.count();
        if run < SHORTEST_RUN {
            at += 8;
            continue;
        }
        put_packed(&values[packed..at], out);
        varint((run as u64) << 1, out);
        out.extend_from_slice(&first.to_le_bytes()[..width_bytes]);
        at += run;
        packed = at;
    }
    put_packed(&values[packed..], out);
}

/// Appends whole numbers as differences (DELTA_BINARY_PACKED).
fn put_differences(values: &[i64], out: &mut Vec<u8>) {
    varint(BLOCK as u64, out);
    varint((BLOCK / MINI_BLOCK) as u64, out);
    varint(values.len() as u64, out);
    let Some(mut last) = values.first().copied() else {
        return varint(0, out);
    };
    varint(zigzag(last), out);
    let mut differences = [0_i64; BLOCK];
    for block in values[1..].chunks(BLOCK) {
        for (difference, value) in differences.iter_mut().zip(block) {
            *difference = value.wrapping_sub(last);
            last = *value;
        }
        let differences = &differences[..block.len()];
        let least = differences.iter().copied().min().unwrap_or(0);
        varint(zigzag(least), out);
        let widths = out.len();
        // Parts that have no values have no bits either.
        out.extend_from_slice(&[0; BLOCK / MINI_BLOCK]);
        for (part, values) in differences.chunks(MINI_BLOCK).enumerate() {
            let above = |value: &i64| value.wrapping_sub(least) as u64;
            let width = width_of(values.iter().map(above).fold(0, |all, each| all | each));
            out[widths + part] = width as u8;
            let padding = MINI_BLOCK - values.len();
            let each = values.iter().map(above);
            pack(each.chain(std::iter::repeat_n(0, padding)), width, out);
        }
    }
}

/// Returns which rows have a value. `None` means that all have.
fn validity(arrays: &[ArrayRef], rows: usize) -> Option<NullBuffer> {
    if arrays.iter().all(|array| array.null_count() == 0) {
        return None;
    }
    let mut valid = BooleanBufferBuilder::new(rows);
    for array in arrays {
        match array.nulls() {
            Some(nulls) => valid.append_buffer(nulls.inner()),
            None => valid.append_n(array.len(), true),
        }
    }
    Some(NullBuffer::new(valid.finish()))
}

/// Appends the levels of a column: a bit for each row.
fn put_levels(valid: Option<&NullBuffer>, rows: usize, out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    match valid {
        None => {
            varint((rows as u64) << 1, out);
            out.push(1);
        }
        Some(valid) if valid.null_count() == rows => {
            varint((rows as u64) << 1, out);
            out.push(0);
        }
        Some(valid) => {
            varint((rows.div_ceil(8) as u64) << 1 | 1, out);
            let bits = valid.inner();
            match (bits.offset(), rows % 8) {
                (0, 0) => out.extend_from_slice(&bits.values()[..rows / 8]),
                _ => pack(bits.iter().map(u64::from), 1, out),
            }
        }
    }
    let length = (out.len() - start - 4) as u32;
    out[start..start + 4].copy_from_slice(&length.to_le_bytes());
}

/// Returns a text of permitted length that is not above a name, and whether it is the name.
fn lower_bound(name: &str) -> (&str, bool) {
    if name.len() <= LONGEST_BOUND {
        return (name, true);
    }
    (&name[..name.floor_char_boundary(LONGEST_BOUND)], false)
}

/// Returns a text of permitted length that is not below a name, and whether it is the name.
fn upper_bound(name: &str) -> (String, bool) {
    let (start, is_whole) = lower_bound(name);
    if is_whole {
        return (name.to_owned(), true);
    }
    // Replaces the last character that is not the maximum by its successor, and ends the text
    // there.
    for (at, last) in start.char_indices().rev() {
        let above = (u32::from(last) + 1..=u32::from(char::MAX)).find_map(char::from_u32);
        if let Some(above) = above {
            return (format!("{}{above}", &start[..at]), false);
        }
    }
    (name.to_owned(), true)
}

/// A column before it is compressed.
struct Plain {
    /// The dictionary's text, and how many there are.
    dictionary: Option<(Vec<u8>, u32)>,
    values: Vec<u8>,
    encoding: Encoding,
    statistics: Statistics,
}

fn integers(arrays: &[ArrayRef], nulls: u64) -> Plain {
    let mut values: Vec<i64> = Vec::new();
    let is_signed = arrays
        .iter()
        .all(|array| *array.data_type() == DataType::Int64);
    for array in arrays {
        let (each, valid): (&[i64], _) = match array.as_primitive_opt::<Int64Type>() {
            Some(array) => (array.values(), array.nulls()),
            None => {
                let array = array.as_primitive::<UInt64Type>();
                (array.values().inner().typed_data(), array.nulls())
            }
        };
        match valid.filter(|valid| valid.null_count() != 0) {
            None => values.extend_from_slice(each),
            Some(valid) => values.extend(valid.valid_indices().map(|index| each[index])),
        }
    }
    // Of unsigned numbers, the highest bit is one of the value.
    let flip = if is_signed { 0 } else { i64::MIN };
    let keys = values.iter().map(|value| value ^ flip);
    let bounds = keys.fold(None, |bounds: Option<(i64, i64)>, key| match bounds {
        None => Some((key, key)),
        Some((least, greatest)) => Some((least.min(key), greatest.max(key))),
    });
    let (least, greatest) = bounds.map(|(a, b)| (a ^ flip, b ^ flip)).unzip();
    let mut out = Vec::with_capacity(values.len() * 2 + 64);
    let mut encoding = Encoding::PLAIN;
    if !values.is_empty() {
        encoding = Encoding::DELTA_BINARY_PACKED;
        put_differences(&values, &mut out);
    }
    Plain {
        dictionary: None,
        values: out,
        encoding,
        statistics: Statistics::Int64(ValueStatistics::new(
            least,
            greatest,
            None,
            Some(nulls),
            false,
        )),
    }
}

fn names(arrays: &[ArrayRef], nulls: u64) -> Plain {
    let mut places: FxHashMap<&str, u32> = FxHashMap::default();
    let (mut dictionary, mut indexes) = (Vec::new(), Vec::<u32>::new());
    let (mut least, mut greatest): (Option<&str>, Option<&str>) = (None, None);
    // By number of a name, its place in the dictionary.
    let mut known: Vec<u32> = Vec::new();
    let mut last: Option<&ArrayRef> = None;
    for array in arrays {
        let array = array.as_dictionary::<Int32Type>();
        let texts = array.values().as_string::<i32>();
        if !last.is_some_and(|last| std::sync::Arc::ptr_eq(last, array.values())) {
            known.clear();
            known.resize(texts.len(), u32::MAX);
            last = Some(array.values());
        }
        let mut place = |key: i32| {
            let known = &mut known[key as usize];
            if *known != u32::MAX {
                return *known;
            }
            let (text, next) = (texts.value(key as usize), places.len() as u32);
            *known = match places.entry(text) {
                Entry::Occupied(found) => *found.get(),
                Entry::Vacant(free) => {
                    dictionary.extend_from_slice(&(text.len() as u32).to_le_bytes());
                    dictionary.extend_from_slice(text.as_bytes());
                    least = Some(least.map_or(text, |least| least.min(text)));
                    greatest = Some(greatest.map_or(text, |greatest| greatest.max(text)));
                    *free.insert(next)
                }
            };
            *known
        };
        let keys = array.keys();
        match keys.nulls().filter(|valid| valid.null_count() != 0) {
            None => indexes.extend(keys.values().iter().map(|key| place(*key))),
            Some(valid) => {
                indexes.extend(
                    valid
                        .valid_indices()
                        .map(|index| place(keys.values()[index])),
                );
            }
        }
    }
    let (mut out, mut encoding) = (Vec::new(), Encoding::PLAIN);
    if !indexes.is_empty() {
        encoding = Encoding::RLE_DICTIONARY;
        let width = width_of(places.len() as u64 - 1);
        out.push(width as u8);
        put_runs(&indexes, width, &mut out);
    }
    let (least, greatest) = (least.map(lower_bound), greatest.map(upper_bound));
    let is_exact = |whole: Option<bool>| whole.unwrap_or(true);
    let (least_is_whole, greatest_is_whole) = (
        is_exact(least.map(|(_, whole)| whole)),
        is_exact(greatest.as_ref().map(|(_, whole)| *whole)),
    );
    let statistics = ValueStatistics::new(
        least.map(|(text, _)| ByteArray::from(text)),
        greatest.map(|(text, _)| ByteArray::from(text.as_str())),
        None,
        Some(nulls),
        false,
    );
    let statistics = statistics.with_min_is_exact(least_is_whole);
    Plain {
        dictionary: (!indexes.is_empty()).then_some((dictionary, places.len() as u32)),
        values: out,
        encoding,
        statistics: Statistics::ByteArray(statistics.with_max_is_exact(greatest_is_whole)),
    }
}

/// Returns a column of a group of rows out of its arrays, all of one type that [is
/// known](is_known).
///
/// # Errors
/// If it is larger than pages can be.
pub(crate) fn encode(
    arrays: &[ArrayRef],
    description: &ColumnDescPtr,
    compressor: &mut Compressor,
) -> anyhow::Result<ColumnBytes> {
    let rows: usize = arrays.iter().map(|array| array.len()).sum();
    let valid = validity(arrays, rows);
    let nulls = valid.as_ref().map_or(0, NullBuffer::null_count) as u64;
    let is_names = arrays
        .first()
        .is_some_and(|array| matches!(array.data_type(), DataType::Dictionary(..)));
    let plain = match is_names {
        true => names(arrays, nulls),
        false => integers(arrays, nulls),
    };
    let mut page = Vec::with_capacity(plain.values.len() + rows / 8 + 16);
    if description.max_def_level() != 0 {
        put_levels(valid.as_ref(), rows, &mut page);
    }
    page.extend_from_slice(&plain.values);
    let mut bytes = Vec::new();
    let mut sink = TrackedWrite::new(&mut bytes);
    let mut writer = SerializedPageWriter::new(&mut sink);
    let mut encodings = vec![plain.encoding, Encoding::RLE];
    let mut pages = Vec::new();
    let mut put = |page: Page, size: usize, encoding: Encoding| {
        pages.push(PageEncodingStats {
            page_type: page.page_type(),
            encoding,
            count: 1,
        });
        writer.write_page(CompressedPage::new(page, size))
    };
    let (mut compressed, mut uncompressed, mut data_offset) = (0, 0, 0);
    let has_dictionary = plain.dictionary.is_some();
    if let Some((text, count)) = plain.dictionary {
        encodings.push(Encoding::PLAIN);
        let page = Page::DictionaryPage {
            buf: Bytes::from(compressor.0.compress(&text)?),
            num_values: count,
            encoding: Encoding::PLAIN,
            is_sorted: false,
        };
        let written = put(page, text.len(), Encoding::PLAIN)?;
        compressed += written.compressed_size;
        uncompressed += written.uncompressed_size;
        data_offset = written.bytes_written;
    }
    let (size, encoding) = (page.len(), plain.encoding);
    let page = Page::DataPage {
        buf: Bytes::from(compressor.0.compress(&page)?),
        num_values: u32::try_from(rows)?,
        encoding,
        def_level_encoding: Encoding::RLE,
        rep_level_encoding: Encoding::RLE,
        statistics: None,
    };
    let written = put(page, size, encoding)?;
    compressed += written.compressed_size;
    uncompressed += written.uncompressed_size;
    writer.close()?;
    drop(sink);
    let metadata = ColumnChunkMetaData::builder(description.clone())
        .set_encodings(encodings)
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_num_values(rows as i64)
        .set_total_compressed_size(compressed as i64)
        .set_total_uncompressed_size(uncompressed as i64)
        .set_data_page_offset(data_offset as i64)
        .set_dictionary_page_offset(has_dictionary.then_some(0))
        .set_statistics(plain.statistics)
        .set_page_encoding_stats(pages)
        .build()?;
    Ok(ColumnBytes {
        close: ColumnCloseResult {
            bytes_written: bytes.len() as u64,
            rows_written: rows as u64,
            metadata,
            bloom_filter: None,
            column_index: None,
            offset_index: None,
        },
        bytes: Bytes::from(bytes),
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{
        DictionaryArray, Int32Array, Int64Array, RecordBatch, StringArray, UInt64Array,
    };
    use arrow_schema::{Field, Schema};
    use parquet::arrow::ArrowSchemaConverter;
    use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
    use parquet::file::properties::WriterProperties;
    use parquet::file::writer::SerializedFileWriter;
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// Returns what the library reads of groups of arrays, and the bounds that it finds.
    fn read_back(groups: &[Vec<ArrayRef>]) -> (Vec<ArrayRef>, Vec<Statistics>) {
        let data_type = groups[0][0].data_type().clone();
        let schema = Arc::new(Schema::new(vec![Field::new("column", data_type, true)]));
        let of_parquet = ArrowSchemaConverter::new().convert(&schema).unwrap();
        let properties = Arc::new(WriterProperties::builder().build());
        let mut file = Vec::new();
        let root = of_parquet.root_schema_ptr();
        let mut writer = SerializedFileWriter::new(&mut file, root, properties).unwrap();
        let mut compressor = Compressor::new().unwrap();
        for arrays in groups {
            let encoded = encode(arrays, &of_parquet.column(0), &mut compressor).unwrap();
            let mut group = writer.next_row_group().unwrap();
            group.append_column(&encoded.bytes, encoded.close).unwrap();
            group.close().unwrap();
        }
        writer.close().unwrap();
        let reader = ParquetRecordBatchReaderBuilder::try_new(Bytes::from(file)).unwrap();
        let groups = reader.metadata().row_groups().iter();
        let statistics = groups.map(|group| group.column(0).statistics().unwrap().clone());
        let statistics = statistics.collect();
        let reader = reader.with_batch_size(1 << 20).build().unwrap();
        let batches =
            reader.map(|batch: Result<RecordBatch, _>| Arc::clone(batch.unwrap().column(0)));
        (batches.collect(), statistics)
    }

    fn text_of(bytes: Option<&[u8]>) -> Option<&str> {
        bytes.map(|bytes| std::str::from_utf8(bytes).unwrap())
    }

    fn whole_numbers() -> impl Strategy<Value = Option<i64>> {
        prop_oneof![
            3 => (0..5_i64).prop_map(Some),
            1 => any::<i64>().prop_map(Some),
            1 => Just(None),
            1 => prop_oneof![Just(i64::MIN), Just(i64::MAX)].prop_map(Some),
        ]
    }

    proptest! {
        #[test]
        fn whole_numbers_are_read_back(
            a in vec(whole_numbers(), 0..400),
            b in vec(whole_numbers(), 1..300),
            is_unsigned: bool,
        ) {
            let array = |values: &[Option<i64>]| -> ArrayRef {
                match is_unsigned {
                    true => Arc::new(UInt64Array::from_iter(
                        values.iter().map(|value| value.map(|value| value as u64)),
                    )),
                    false => Arc::new(Int64Array::from_iter(values.iter().copied())),
                }
            };
            let all = [a.as_slice(), &b].concat();
            let (found, statistics) = read_back(&[vec![array(&a), array(&b)]]);
            let wanted = array(&all);
            prop_assert_eq!(&found, &[wanted]);
            let key = |value: &i64| if is_unsigned { (*value as u64).into() } else { i128::from(*value) };
            let Statistics::Int64(statistics) = &statistics[0] else { panic!("of whole numbers") };
            let known = all.iter().flatten().copied();
            prop_assert_eq!(statistics.min_opt().copied(), known.clone().min_by_key(key));
            prop_assert_eq!(statistics.max_opt().copied(), known.clone().max_by_key(key));
            prop_assert_eq!(statistics.null_count_opt(), Some((all.len() - known.count()) as u64));
        }

        #[test]
        fn names_are_read_back(
            texts in vec("\\PC{0,90}", 1..40),
            picks in vec((any::<proptest::sample::Index>(), 1..60_usize, 0..9_u8), 1..30),
        ) {
            // Runs of a name, as threads have them, and no name now and then.
            let keys = picks.iter().flat_map(|(pick, count, kind)| {
                let key = (*kind != 0).then(|| pick.index(texts.len()) as i32);
                std::iter::repeat_n(key, *count)
            });
            let keys: Vec<Option<i32>> = keys.collect();
            let values: ArrayRef = Arc::new(StringArray::from(texts.clone()));
            let array: ArrayRef = Arc::new(DictionaryArray::<Int32Type>::new(
                Int32Array::from(keys.clone()),
                values,
            ));
            let cut = array.len() / 3;
            let slices = vec![array.slice(0, cut), array.slice(cut, array.len() - cut)];
            let (found, statistics) = read_back(&[slices, vec![array]]);
            let text = |key: &Option<i32>| key.map(|key| texts[key as usize].as_str());
            let wanted: Vec<Option<&str>> = keys.iter().chain(&keys).map(text).collect();
            let mut read = Vec::new();
            for array in &found {
                // For readers of the file, names are text.
                let texts = array.as_string::<i32>().into_iter();
                read.extend(texts.map(|text| text.map(str::to_owned)));
            }
            let read: Vec<Option<&str>> = read.iter().map(Option::as_deref).collect();
            prop_assert_eq!(&read, &wanted);
            for statistics in &statistics {
                let (least, greatest) = (wanted.iter().flatten().min(), wanted.iter().flatten().max());
                let (min, max) = (text_of(statistics.min_bytes_opt()), text_of(statistics.max_bytes_opt()));
                prop_assert_eq!(min.is_some(), least.is_some());
                prop_assert!(min <= least.copied() && max >= greatest.copied());
                prop_assert!(!statistics.min_is_exact() || min == least.copied());
                prop_assert!(!statistics.max_is_exact() || max == greatest.copied());
            }
        }
    }

    #[test]
    fn bounds_of_long_names_are_short_and_bounds() {
        let long = "\u{10ffff}".repeat(15) + "b" + "\u{10ffff}\u{10ffff}\u{10ffff}";
        let (bound, is_whole) = upper_bound(&long);
        assert!(bound.as_str() > long.as_str() && !is_whole && bound.len() <= LONGEST_BOUND + 4);
        let (bound, is_whole) = lower_bound(&long);
        assert!(bound < long.as_str() && !is_whole && bound.len() <= LONGEST_BOUND);
        // Nothing is above it that is shorter.
        let highest = "\u{10ffff}".repeat(40);
        assert_eq!(upper_bound(&highest), (highest.clone(), true));
        assert_eq!(
            upper_bound("\u{d7ff}".repeat(40).as_str()).0.chars().last(),
            Some('\u{e000}')
        );
    }
}
