//! Messages in the overview of a trace: how many of a bin of time each location, process or host received from each other one.

use crate::bin_blocks::{BinBlock, BinKey, decode_blocks, encode_blocks, kind_of};
use crate::bin_rows::{BinRow, number_of};
use crate::block::BlockKind;
use crate::error::{FormatError, Result};
use crate::overview::{LaneKind, level_of};
use crate::wire::{Put, Wire};

/// The number of a location that a sender or receiver has if its stream has none.
pub const NO_LOCATION: u32 = u32::MAX;

/// The messages from one group of locations to another that were received in a bin.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct MessageRow {
    /// The bin's level.
    pub level: u8,
    /// What each group has in common.
    pub kind: LaneKind,
    /// The bin's number: the trace time at which it begins, divided by its length.
    pub bin: i64,
    /// The number of the group that sent them.
    pub from: u32,
    /// The number of the group that received them.
    pub to: u32,
    /// How many there are.
    pub count: u64,
    /// The sum of their known sizes, bytes.
    pub bytes: u64,
    /// The longest time from a send to its receive, nanoseconds.
    pub longest_ns: i64,
}

impl MessageRow {
    /// Returns the key of the row's block list.
    pub const fn bin_key(&self) -> BinKey {
        (self.level, self.kind, self.bin)
    }

    /// Returns the key by which rows are in order.
    pub const fn key(&self) -> (BinKey, u32, u32) {
        (self.bin_key(), self.from, self.to)
    }
}

/// The messages of a trace in its overview.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct MessageOverview {
    /// Counts of all sends and receives.
    pub totals: MessageTotals,
    /// The kinds of groups that have rows, ascending, and the least level of each.
    pub least_levels: Vec<(LaneKind, u8)>,
    /// The blocks of the rows, in the order of the rows.
    pub blocks: Vec<BinBlock>,
}

/// How many sends and receives a trace has, and what became of them. Each is one of a pair, or is counted in one of the fields after that.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct MessageTotals {
    /// Sends.
    pub sends: u64,
    /// Receives.
    pub receives: u64,
    /// Pairs of a send and a receive.
    pub matched: u64,
    /// Sends for which there is no receive.
    pub unmatched_sends: u64,
    /// Receives for which there is no send.
    pub unmatched_receives: u64,
    /// Sends and receives after a loss, whose partner cannot be determined.
    pub unmatchable_by_loss: u64,
    /// Sends and receives that were not matched because too many messages were in flight.
    pub over_limit: u64,
    /// Sends and receives whose peer is not a rank with exactly one recording.
    pub without_peer: u64,
}

impl MessageTotals {
    /// Number of fields.
    const COUNT: usize = 8;

    const fn fields(&self) -> [u64; Self::COUNT] {
        [
            self.sends,
            self.receives,
            self.matched,
            self.unmatched_sends,
            self.unmatched_receives,
            self.unmatchable_by_loss,
            self.over_limit,
            self.without_peer,
        ]
    }

    fn decode(w: &mut Wire<'_>) -> Result<Self> {
        let mut fields = [0; Self::COUNT];
        for field in &mut fields {
            *field = w.varint("number of messages")?;
        }
        let [sends, receives, matched, unmatched_sends, ..] = fields;
        let [
            ..,
            unmatched_receives,
            unmatchable_by_loss,
            over_limit,
            without_peer,
        ] = fields;
        Ok(Self {
            sends,
            receives,
            matched,
            unmatched_sends,
            unmatched_receives,
            unmatchable_by_loss,
            over_limit,
            without_peer,
        })
    }
}

impl MessageOverview {
    /// Returns the least level on which a kind of groups has rows. `None` if it has none.
    pub fn least_level(&self, kind: LaneKind) -> Option<u8> {
        let mut known = self.least_levels.iter();
        known.find(|known| known.0 == kind).map(|known| known.1)
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        for field in self.totals.fields() {
            out.put_varint(field);
        }
        out.put_varint(self.least_levels.len() as u64);
        for (kind, level) in &self.least_levels {
            out.put_varint(kind.code());
            out.put_varint((*level).into());
        }
        encode_blocks(&self.blocks, out);
    }

    pub(crate) fn decode(w: &mut Wire<'_>) -> Result<Self> {
        let totals = MessageTotals::decode(w)?;
        let count = w.count(2, "number of kinds of groups")?;
        let mut least_levels = Vec::new();
        for _ in 0..count {
            let kind = kind_of(w.varint("kind of a group")?)?;
            if least_levels.last().is_some_and(|(last, _)| *last >= kind) {
                let expected = "kinds of groups in ascending order";
                return Err(FormatError::invalid(0, expected, kind.code()));
            }
            least_levels.push((kind, level_of(w.varint("least level of a kind")?)?));
        }
        Ok(Self {
            totals,
            least_levels,
            blocks: decode_blocks(w)?,
        })
    }
}

impl BinRow for MessageRow {
    const KIND: BlockKind = BlockKind::Messages;
    const ORDER: &'static str = "rows in the order of level, kind, bin, sender and receiver";
    type Values = [u64; 8];
    type Entry = BinBlock;
    type Key = (BinKey, u32, u32);

    fn key(&self) -> Self::Key {
        self.key()
    }

    fn values(&self) -> Self::Values {
        [
            self.level.into(),
            self.kind.code(),
            self.bin as u64,
            self.from.into(),
            self.to.into(),
            self.count,
            self.bytes,
            self.longest_ns as u64,
        ]
    }

    fn of(values: &Self::Values) -> Result<Self> {
        let [level, kind, bin, from, to, count, bytes, longest] = *values;
        Ok(Self {
            level: level_of(level)?,
            kind: kind_of(kind)?,
            bin: bin as i64,
            from: number_of(from, "a number of a group")?,
            to: number_of(to, "a number of a group")?,
            count,
            bytes,
            longest_ns: longest as i64,
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

    fn row() -> impl Strategy<Value = MessageRow> {
        let key = (0..=MAX_BIN_LEVEL, 0..5_u64, any::<(i64, u32, u32)>());
        (key, any::<(u64, u64, i64)>()).prop_map(|(key, values)| MessageRow {
            level: key.0,
            kind: kind_of(key.1).expect("a kind"),
            bin: key.2.0,
            from: key.2.1,
            to: key.2.2,
            count: values.0,
            bytes: values.1,
            longest_ns: values.2,
        })
    }

    proptest! {
        #[test]
        fn rows_are_read_as_they_were_written(
            rows in prop::collection::vec(row(), 1..80),
            totals in any::<[u64; MessageTotals::COUNT]>(),
        ) {
            let mut rows = rows;
            rows.sort_by_key(MessageRow::key);
            rows.dedup_by_key(|row| row.key());
            let (mut head, mut body) = (Vec::new(), Vec::new());
            encode_bins(&rows, &mut head, &mut body);
            prop_assert_eq!(&decode_bins::<MessageRow>(&head, &body).expect("rows"), &rows);
            let overview = MessageOverview {
                totals: MessageTotals {
                    sends: totals[0],
                    receives: totals[1],
                    matched: totals[2],
                    unmatched_sends: totals[3],
                    unmatched_receives: totals[4],
                    unmatchable_by_loss: totals[5],
                    over_limit: totals[6],
                    without_peer: totals[7],
                },
                least_levels: vec![(LaneKind::Location, 9), (LaneKind::All, 3)],
                blocks: MessageRow::entry(7, &rows).into_iter().collect(),
            };
            let mut bytes = Vec::new();
            overview.encode(&mut bytes);
            prop_assert_eq!(MessageOverview::decode(&mut Wire::new(&bytes)).expect("an overview"), overview);
        }

        #[test]
        fn no_bytes_make_the_decoder_panic(head: Vec<u8>, body: Vec<u8>, count in 0..40_u8) {
            let _ = decode_bins::<MessageRow>(&head, &body);
            let _ = decode_bins::<MessageRow>(&[count], &body);
            let _ = MessageOverview::decode(&mut Wire::new(&body));
        }
    }
}
