//! The overview of a trace: values of bins of time by lane, so that a picture of any part of it is read from little.

use crate::bin_rows::{BinRow, number_of};
use crate::block::BlockKind;
use crate::error::{FormatError, Result};
use crate::ids::RegionId;
use crate::wire::{Put, Wire};

/// A bin has a row if more calls than this end in it.
pub const MOST_CALLS_WITHOUT_BIN: u64 = 64;
/// Calls of this depth and below are in no lane.
pub const MAX_LANE_DEPTH: u32 = 64;
/// Largest level of a bin.
pub const MAX_BIN_LEVEL: u8 = 62;
/// What the locations of a lane have in common.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum LaneKind {
    /// It is one location, by its number.
    Location,
    /// Their process, by its number.
    Process,
    /// Their host, by the number of its name.
    Host,
    /// A source that has streams of them, by the number of its name.
    Source,
    /// Nothing: all locations of the trace. The number is 0.
    All,
}

impl LaneKind {
    const ALL: [Self; 5] = [
        Self::Location,
        Self::Process,
        Self::Host,
        Self::Source,
        Self::All,
    ];

    pub(crate) const fn code(self) -> u64 {
        self as u64
    }

    pub(crate) fn from_code(code: u64) -> Option<Self> {
        Self::ALL.get(usize::try_from(code).ok()?).copied()
    }
}

/// A lane: the calls of some locations that have the same number of calls around them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LaneKey {
    /// What its locations have in common.
    pub kind: LaneKind,
    /// The number of that.
    pub id: u32,
    /// Number of calls around each of its calls.
    pub depth: u32,
}

/// The values of a bin of a lane: of a span of time of 2 to the power of `level` nanoseconds. Times in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OverviewRow {
    /// The bin's level.
    pub level: u8,
    /// The lane.
    pub lane: LaneKey,
    /// The bin's number: the trace time at which it begins, divided by its length.
    pub bin: i64,
    /// Number of calls that end in it.
    pub calls: u64,
    /// Time of all calls of the lane in it.
    pub busy_ns: i64,
    /// The region with the most time in it; of several, the first by number.
    pub region: RegionId,
    /// The time of that region in it.
    pub region_ns: i64,
    /// The length of the longest call that ends in it.
    pub longest_ns: i64,
}

impl OverviewRow {
    /// Returns the key by which rows are in order: level, lane, bin.
    pub const fn key(&self) -> (u8, LaneKey, i64) {
        (self.level, self.lane, self.bin)
    }

    /// Returns the trace time at which the bin ends, nanoseconds.
    pub const fn end_ns(&self) -> i64 {
        (self.bin << self.level).saturating_add(1 << self.level)
    }
}

/// A block of the overview in the footer's list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OverviewEntry {
    /// Offset of the block in the file.
    pub offset: u64,
    /// Level and lane of its first row.
    pub first: (u8, LaneKey),
    /// Level and lane of its last row.
    pub last: (u8, LaneKey),
    /// Least trace time at which a bin begins, nanoseconds.
    pub from_ns: i64,
    /// Greatest trace time at which a bin ends, nanoseconds.
    pub to_ns: i64,
}

impl OverviewEntry {
    /// Returns the entry of the block at an offset with these rows; they must be in order. `None` without rows.
    pub fn of(offset: u64, rows: &[OverviewRow]) -> Option<Self> {
        let (first, last) = (rows.first()?, rows.last()?);
        let begins = rows.iter().map(|row| row.bin << row.level);
        Some(Self {
            offset,
            first: (first.level, first.lane),
            last: (last.level, last.lane),
            from_ns: begins.min()?,
            to_ns: rows.iter().map(OverviewRow::end_ns).max()?,
        })
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.put_varint(self.offset);
        for (level, lane) in [self.first, self.last] {
            out.put_varint(level.into());
            out.put_varint(lane.kind.code());
            out.put_varint(lane.id.into());
            out.put_varint(lane.depth.into());
        }
        out.put_signed(self.from_ns);
        out.put_signed(self.to_ns);
    }

    pub(crate) fn decode(w: &mut Wire<'_>) -> Result<Self> {
        let offset = w.varint("offset of an overview block")?;
        let mut key = || {
            let level = w.varint("level of a bin")?;
            let kind = w.varint("kind of a lane")?;
            let id = w.varint("number of a lane")?;
            let depth = w.varint("depth of a lane")?;
            Ok((level_of(level)?, lane_of(kind, id, depth)?))
        };
        let (first, last) = (key()?, key()?);
        Ok(Self {
            offset,
            first,
            last,
            from_ns: w.signed("begin of the first bin")?,
            to_ns: w.signed("end of the last bin")?,
        })
    }
}

pub(crate) fn level_of(level: u64) -> Result<u8> {
    let known = u8::try_from(level).ok();
    let known = known.filter(|level| *level <= MAX_BIN_LEVEL);
    known.ok_or_else(|| FormatError::invalid(0, "a level of at most 62", level))
}

fn lane_of(kind: u64, id: u64, depth: u64) -> Result<LaneKey> {
    let invalid = |expected, value| FormatError::invalid(0, expected, value);
    let known = u32::try_from(depth).ok();
    let known = known.filter(|depth| *depth < MAX_LANE_DEPTH);
    Ok(LaneKey {
        kind: LaneKind::from_code(kind).ok_or_else(|| invalid("a kind of lane", kind))?,
        id: u32::try_from(id).map_err(|_| invalid("a number of a lane", id))?,
        depth: known.ok_or_else(|| invalid("a depth below 64", depth))?,
    })
}

/// How dense a trace is: the level from which on bins have rows however few calls end in them (SPEC.md, *Overview*). Of every chunk it needs
/// first and last time, nanoseconds, and the number of events.
#[derive(Clone, Debug)]
pub struct OverviewDensity {
    locations: u128,
    /// Last times of the chunks with events: each is of the time from the one before on, which has no events after that.
    last_ns: Vec<i64>,
    /// Least spreads, nanoseconds for one location: number *n* of list *k* is of the chunks *n* − 2ᵏ + 1 to *n*, or from the first on.
    spreads: Vec<Vec<u128>>,
}

impl OverviewDensity {
    /// Events of each location in a bin of the least level, if all locations have as many.
    const EVENTS: u128 = 256;

    /// Begins without chunks, for a trace with a number of locations.
    pub fn new(locations: usize) -> Self {
        Self {
            locations: locations as u128,
            last_ns: Vec::new(),
            spreads: Vec::new(),
        }
    }

    /// Takes the next chunk.
    pub fn take(&mut self, first_ns: i64, last_ns: i64, events: u64) {
        if events == 0 {
            return;
        }
        let before_ns = self.last_ns.last().copied().unwrap_or(first_ns);
        let last_ns = last_ns.max(before_ns);
        let length_ns = u128::from(last_ns.abs_diff(before_ns));
        let mut spread = Self::EVENTS * self.locations * length_ns / u128::from(events);
        let number = self.last_ns.len();
        self.last_ns.push(last_ns);
        for list in 0.. {
            if self.spreads.len() == list {
                self.spreads.push(
                    self.spreads
                        .last()
                        .map_or_else(Vec::new, |below| below[..number].to_vec()),
                );
            }
            self.spreads[list].push(spread);
            let width = 1_usize << list;
            match number.checked_sub(width) {
                Some(before) => spread = spread.min(self.spreads[list][before]),
                None => break,
            }
        }
    }

    /// Returns the number of the chunk that a time belongs to.
    fn chunk(&self, at_ns: i64) -> usize {
        let number = self.last_ns.partition_point(|last_ns| *last_ns < at_ns);
        number.min(self.last_ns.len().saturating_sub(1))
    }

    fn level(spread: u128, members: u64) -> u8 {
        let length = spread / u128::from(members.max(1));
        (u128::BITS - length.leading_zeros()).min(u8::MAX.into()) as u8
    }

    /// Returns the least level of bins that have rows however few calls end in them, of those that begin at a time; of a lane with a number
    /// of locations. 255 without chunks: no bins are as long.
    pub fn least_level(&self, at_ns: i64, members: u64) -> u8 {
        self.least_level_until(at_ns, members).0
    }

    /// Returns the least level of a time, as [`OverviewDensity::least_level`] does, and the last time for which it is the same at least.
    pub fn least_level_until(&self, at_ns: i64, members: u64) -> (u8, i64) {
        let chunk = self.chunk(at_ns);
        let spread = self.spreads.first().and_then(|spreads| spreads.get(chunk));
        let level = spread.map_or(u8::MAX, |spread| Self::level(*spread, members));
        let is_last = chunk + 1 >= self.last_ns.len();
        let until_ns = if is_last {
            i64::MAX
        } else {
            self.last_ns[chunk]
        };
        (level, until_ns)
    }

    /// Returns the least of these levels from one time up to another.
    pub fn least_level_within(&self, from_ns: i64, to_ns: i64, members: u64) -> u8 {
        let (first, last) = (self.chunk(from_ns), self.chunk(to_ns));
        let list = (last - first + 1).ilog2();
        let width = 1_usize << list;
        let Some(spreads) = self.spreads.get(list as usize) else {
            return u8::MAX;
        };
        let spread = spreads[last].min(spreads[first + width - 1]);
        Self::level(spread, members)
    }
}

impl BinRow for OverviewRow {
    const KIND: BlockKind = BlockKind::Overview;
    const ORDER: &'static str = "rows in the order of level, lane and bin";
    type Values = [u64; 10];
    type Entry = OverviewEntry;
    type Key = (u8, LaneKey, i64);

    fn key(&self) -> Self::Key {
        self.key()
    }

    fn values(&self) -> Self::Values {
        [
            self.level.into(),
            self.lane.kind.code(),
            self.lane.id.into(),
            self.lane.depth.into(),
            self.bin as u64,
            self.calls,
            self.busy_ns as u64,
            self.region.get().into(),
            self.region_ns as u64,
            self.longest_ns as u64,
        ]
    }

    fn of(values: &Self::Values) -> Result<Self> {
        let [level, kind, id, depth, bin, calls, ..] = *values;
        let [.., busy, region, region_time, longest] = *values;
        Ok(Self {
            level: level_of(level)?,
            lane: lane_of(kind, id, depth)?,
            bin: bin as i64,
            calls,
            busy_ns: busy as i64,
            region: RegionId::new(number_of(region, "a region id")?),
            region_ns: region_time as i64,
            longest_ns: longest as i64,
        })
    }

    fn entry(offset: u64, rows: &[Self]) -> Option<OverviewEntry> {
        OverviewEntry::of(offset, rows)
    }

    fn offset(entry: &OverviewEntry) -> u64 {
        entry.offset
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::bin_rows::{decode_bins, encode_bins};

    fn row() -> impl Strategy<Value = OverviewRow> {
        let lane = (0..5_usize, any::<u32>(), 0..MAX_LANE_DEPTH);
        let values = any::<(u64, i64, u32, i64, i64)>();
        (0..=MAX_BIN_LEVEL, lane, any::<i64>(), values).prop_map(|(level, lane, bin, values)| {
            OverviewRow {
                level,
                lane: LaneKey {
                    kind: LaneKind::ALL[lane.0],
                    id: lane.1,
                    depth: lane.2,
                },
                bin: bin >> level,
                calls: values.0,
                busy_ns: values.1,
                region: RegionId::new(values.2),
                region_ns: values.3,
                longest_ns: values.4,
            }
        })
    }

    proptest! {
        #[test]
        fn rows_are_read_as_they_were_written(rows in prop::collection::vec(row(), 1..80)) {
            let mut rows = rows;
            rows.sort_by_key(OverviewRow::key);
            rows.dedup_by_key(|row| row.key());
            let (mut head, mut body) = (Vec::new(), Vec::new());
            encode_bins(&rows, &mut head, &mut body);
            prop_assert_eq!(&decode_bins::<OverviewRow>(&head, &body).expect("rows"), &rows);
            let entry = OverviewEntry::of(7, &rows).expect("rows");
            let mut bytes = Vec::new();
            entry.encode(&mut bytes);
            prop_assert_eq!(OverviewEntry::decode(&mut Wire::new(&bytes)).expect("an entry"), entry);
        }

        #[test]
        fn no_bytes_make_the_decoder_panic(head: Vec<u8>, body: Vec<u8>, count in 0..40_u8) {
            let _ = decode_bins::<OverviewRow>(&head, &body);
            let _ = decode_bins::<OverviewRow>(&[count], &body);
            let _ = OverviewEntry::decode(&mut Wire::new(&body));
        }
    }
}
