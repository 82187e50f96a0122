//! Metrics in the overview of a trace: least, greatest and sum of the values of a bin of time.

use std::hash::{Hash, Hasher};

use crate::bin_blocks::{BinBlock, BinKey, decode_blocks, encode_blocks};
use crate::bin_rows::{BinRow, number_of};
use crate::block::BlockKind;
use crate::error::Result;
use crate::ids::{EventTypeId, StreamId};
use crate::overview::{LaneKind, level_of};
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

impl BinRow for MetricRow {
    const KIND: BlockKind = BlockKind::Metrics;
    const ORDER: &'static str = "rows in the order of level, bin, stream and event type";
    type Values = [u64; 8];
    type Entry = BinBlock;
    type Key = (u8, i64, StreamId, EventTypeId);

    fn key(&self) -> Self::Key {
        self.key()
    }

    fn values(&self) -> Self::Values {
        [
            self.level.into(),
            self.bin as u64,
            self.stream.get().into(),
            self.event_type.get().into(),
            self.count,
            self.min.to_bits(),
            self.max.to_bits(),
            self.sum.to_bits(),
        ]
    }

    fn of(values: &Self::Values) -> Result<Self> {
        let [level, bin, stream, event_type, count, min, max, sum] = *values;
        Ok(Self {
            level: level_of(level)?,
            bin: bin as i64,
            stream: StreamId::new(number_of(stream, "a stream id")?),
            event_type: EventTypeId::new(number_of(event_type, "an event type id")?),
            count,
            min: f64::from_bits(min),
            max: f64::from_bits(max),
            sum: f64::from_bits(sum),
        })
    }

    fn entry(offset: u64, rows: &[Self]) -> Option<BinBlock> {
        BinBlock::of(offset, rows, Self::bin_key)
    }

    fn offset(entry: &BinBlock) -> u64 {
        entry.offset
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::bin_rows::{decode_bins, encode_bins};
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
            encode_bins(&rows, &mut head, &mut body);
            prop_assert_eq!(&decode_bins::<MetricRow>(&head, &body).expect("rows"), &rows);
            let overview = MetricOverview {
                least_level: 9,
                blocks: MetricRow::entry(7, &rows).into_iter().collect(),
            };
            let mut bytes = Vec::new();
            overview.encode(&mut bytes);
            prop_assert_eq!(MetricOverview::decode(&mut Wire::new(&bytes)).expect("an overview"), overview);
        }

        #[test]
        fn no_bytes_make_the_decoder_panic(head: Vec<u8>, body: Vec<u8>, count in 0..40_u8) {
            let _ = decode_bins::<MetricRow>(&head, &body);
            let _ = decode_bins::<MetricRow>(&[count], &body);
            let _ = MetricOverview::decode(&mut Wire::new(&body));
        }
    }
}
