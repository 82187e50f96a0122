//! Metrics in the overview of a trace: least, greatest and sum of the values of a bin of time.

use std::hash::{Hash, Hasher};

use crate::bin_blocks::{BinBlock, BinKey, decode_blocks, encode_blocks};
use crate::error::{FormatError, Result};
use crate::ids::{EventTypeId, StreamId};
use crate::ints::{put_ints, read_ints};
use crate::limits::Content;
use crate::overview::{LaneKind, MAX_OVERVIEW_ROWS, level_of};
use crate::wire::{Put, Wire};

/// The values of a metric in a bin.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct MetricRow {
    /// The bin's level.
    pub level: u8,
    /// The bin's number: the trace time at which it begins, divided by its length.
    pub bin: i64,
    /// The stream of its events.
    pub stream: StreamId,
    /// Their event type.
    pub event_type: EventTypeId,
    /// Number of values.
    pub count: u64,
    /// The least.
    pub min: f64,
    /// The greatest.
    pub max: f64,
    /// Their exact sum, rounded once.
    pub sum: f64,
}

impl Eq for MetricRow {}

impl Hash for MetricRow {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.key(), self.count).hash(state);
        [self.min, self.max, self.sum].map(f64::to_bits).hash(state);
    }
}

impl MetricRow {
    /// Returns the key of the row's block list: it has one kind only.
    pub const fn bin_key(&self) -> BinKey {
        (self.level, LaneKind::Location, self.bin)
    }

    /// Returns the key by which rows are in order.
    pub const fn key(&self) -> (u8, i64, StreamId, EventTypeId) {
        (self.level, self.bin, self.stream, self.event_type)
    }
}

/// The metrics of a trace in its overview.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct MetricOverview {
    /// The least level that has rows.
    pub least_level: u8,
    /// The blocks of the rows, in the order of the rows.
    pub blocks: Vec<BinBlock>,
}

impl MetricOverview {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.put_varint(self.least_level.into());
        encode_blocks(&self.blocks, out);
    }

    pub(crate) fn decode(w: &mut Wire<'_>) -> Result<Self> {
        Ok(Self {
            least_level: level_of(w.varint("least level of metrics")?)?,
            blocks: decode_blocks(w)?,
        })
    }
}

impl BinBlock {
    /// Returns the entry of the block at an offset with these rows, which must be in order. `None` without rows.
    pub fn of_metrics(offset: u64, rows: &[MetricRow]) -> Option<Self> {
        Some(Self {
            offset,
            first: rows.first()?.bin_key(),
            last: rows.last()?.bin_key(),
        })
    }
}

/// Appends the head of the block of some rows.
pub fn encode_metrics_head(rows: &[MetricRow], out: &mut Vec<u8>) {
    out.put_varint(rows.len() as u64);
}

/// Returns what a body of some rows has beyond its bytes.
pub const fn metrics_content(rows: &[MetricRow]) -> Content {
    Content {
        items: rows.len() as u64,
        text_bytes: 0,
    }
}

/// Appends the body of the block of some rows, which must be in order.
pub fn encode_metrics(rows: &[MetricRow], out: &mut Vec<u8>) {
    let mut column = |field: &dyn Fn(&MetricRow) -> u64| {
        put_ints(&rows.iter().map(field).collect::<Vec<u64>>(), out);
    };
    column(&|row| row.level.into());
    column(&|row| row.bin as u64);
    column(&|row| row.stream.get().into());
    column(&|row| row.event_type.get().into());
    column(&|row| row.count);
    column(&|row| row.min.to_bits());
    column(&|row| row.max.to_bits());
    column(&|row| row.sum.to_bits());
}

/// Reads the head and the body of a block of metrics.
///
/// # Errors
/// If they end early, contradict the format or exceed its limits.
pub fn decode_metrics(head: &[u8], body: &[u8]) -> Result<Vec<MetricRow>> {
    let count = Wire::new(head).varint("number of rows")?;
    if count > MAX_OVERVIEW_ROWS as u64 {
        return Err(FormatError::invalid(0, "at most 65536 rows", count));
    }
    let mut w = Wire::new(body);
    let mut column = || read_ints(&mut w, count as usize);
    let (levels, bins) = (column()?, column()?);
    let (streams, event_types, counts) = (column()?, column()?, column()?);
    let (least, greatest, sums) = (column()?, column()?, column()?);
    let id = |id: u64, expected| {
        let invalid = |_| FormatError::invalid(0, expected, id);
        u32::try_from(id).map_err(invalid)
    };
    let row = |at: usize| {
        Ok(MetricRow {
            level: level_of(levels[at])?,
            bin: bins[at] as i64,
            stream: StreamId::new(id(streams[at], "a stream id")?),
            event_type: EventTypeId::new(id(event_types[at], "an event type id")?),
            count: counts[at],
            min: f64::from_bits(least[at]),
            max: f64::from_bits(greatest[at]),
            sum: f64::from_bits(sums[at]),
        })
    };
    let rows: Vec<MetricRow> = (0..count as usize).map(row).collect::<Result<_>>()?;
    if !rows.is_sorted_by(|a, b| a.key() < b.key()) {
        let expected = "rows in the order of level, bin, stream and event type";
        return Err(FormatError::invalid(0, expected, "others"));
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::overview::MAX_BIN_LEVEL;

    fn row() -> impl Strategy<Value = MetricRow> {
        let key = (0..=MAX_BIN_LEVEL, any::<(i64, u32, u32)>());
        (key, any::<(u64, f64, f64, f64)>()).prop_map(|(key, values)| MetricRow {
            level: key.0,
            bin: key.1.0,
            stream: StreamId::new(key.1.1),
            event_type: EventTypeId::new(key.1.2),
            count: values.0,
            min: values.1,
            max: values.2,
            sum: values.3,
        })
    }

    proptest! {
        #[test]
        fn rows_are_read_as_they_were_written(rows in prop::collection::vec(row(), 1..80)) {
            let mut rows = rows;
            rows.sort_by_key(MetricRow::key);
            rows.dedup_by_key(|row| row.key());
            let (mut head, mut body) = (Vec::new(), Vec::new());
            encode_metrics_head(&rows, &mut head);
            encode_metrics(&rows, &mut body);
            prop_assert_eq!(&decode_metrics(&head, &body).expect("rows"), &rows);
            let overview = MetricOverview {
                least_level: 9,
                blocks: BinBlock::of_metrics(7, &rows).into_iter().collect(),
            };
            let mut bytes = Vec::new();
            overview.encode(&mut bytes);
            prop_assert_eq!(MetricOverview::decode(&mut Wire::new(&bytes)).expect("an overview"), overview);
        }

        #[test]
        fn no_bytes_make_the_decoder_panic(head: Vec<u8>, body: Vec<u8>, count in 0..40_u8) {
            let _ = decode_metrics(&head, &body);
            let _ = decode_metrics(&[count], &body);
            let _ = MetricOverview::decode(&mut Wire::new(&body));
        }
    }
}
