//! Snapshots: which regions are open at every location between two chunks of a trace, so that reading can
//! start there.

use crate::error::{FormatError, Result};
use crate::ids::{LocationId, RegionId};
use crate::ints::{put_growing, put_ints, read_ints};
use crate::limits::Content;
use crate::wire::{Put, Wire};

/// Most locations of a snapshot.
pub const MAX_SNAPSHOT_LOCATIONS: usize = 1 << 20;

/// Most steps of a snapshot, all locations together.
pub const MAX_SNAPSHOT_STEPS: usize = 1 << 20;

const ENTER: u64 = 0;
const UNCERTAIN_ENTER: u64 = 1;
const LEAVE: u64 = 2;

const HAS_GAP: u64 = 1;
const HAS_LAST: u64 = 2;
const HAS_GAP_AFTER_LAST: u64 = 4;

/// Effects of the events before a snapshot on a location's stack of regions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// A region is open.
    Enter {
        /// Which.
        region: RegionId,
        /// When it was entered, trace time, nanoseconds.
        entered_ns: i64,
        /// A loss since then may have had enters or leaves.
        is_uncertain: bool,
    },
    /// A region was left whose enter is not in the file. In slices, the enter may be in an earlier one.
    Leave(RegionId),
}

/// The stack of a location.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LocationState {
    /// Which location.
    pub location: LocationId,
    /// Trace time of its last enter or leave, nanoseconds; `None` means that there was none yet.
    pub last_ns: Option<i64>,
    /// A loss may have had enters or leaves: of use in slices, to what an earlier one has open.
    pub has_gap: bool,
    /// A loss after its last enter or leave may have had enters or leaves.
    pub has_gap_after_last: bool,
    /// From the outermost region on.
    pub steps: Vec<Step>,
}

impl LocationState {
    /// Returns the regions that are open, from the outermost on: which, trace time of its enter in nanoseconds, and
    /// whether a loss since then may have had enters or leaves.
    pub fn open(&self) -> impl Iterator<Item = (RegionId, i64, bool)> {
        self.steps.iter().filter_map(|step| match step {
            Step::Enter {
                region,
                entered_ns,
                is_uncertain,
            } => Some((*region, *entered_ns, *is_uncertain)),
            Step::Leave(_) => None,
        })
    }
}

/// Head of a snapshot block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SnapshotHeader {
    /// Sequence number of the chunk that follows it.
    pub chunk: u64,
    /// Locations in it.
    pub locations: u64,
    /// Steps in it.
    pub steps: u64,
}

impl SnapshotHeader {
    /// Appends the head.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_varint(self.chunk);
        out.put_varint(self.locations);
        out.put_varint(self.steps);
    }

    /// Reads a head.
    ///
    /// # Errors
    /// If it ends early or exceeds the limits.
    pub fn decode(w: &mut Wire<'_>) -> Result<Self> {
        let start = w.position();
        let header = Self {
            chunk: w.varint("number of the chunk after a snapshot")?,
            locations: w.varint("number of locations")?,
            steps: w.varint("number of steps")?,
        };
        let is_within = header.locations <= MAX_SNAPSHOT_LOCATIONS as u64
            && header.steps <= MAX_SNAPSHOT_STEPS as u64;
        if !is_within {
            return Err(FormatError::invalid(
                start,
                "at most 1048576 locations and steps",
                format!("{} and {}", header.locations, header.steps),
            ));
        }
        Ok(header)
    }

    /// Returns what the body has beyond its bytes.
    pub fn content(&self) -> Content {
        Content {
            items: self.locations.saturating_add(self.steps),
            text_bytes: 0,
        }
    }
}

/// The open regions of all locations.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Snapshot {
    /// Locations that have entered or left regions, ascending.
    pub locations: Vec<LocationState>,
}

impl Snapshot {
    /// Returns the head of the snapshot before a chunk.
    pub fn header(&self, chunk: u64) -> SnapshotHeader {
        let steps = self.locations.iter().map(|state| state.steps.len() as u64);
        SnapshotHeader {
            chunk,
            locations: self.locations.len() as u64,
            steps: steps.sum(),
        }
    }

    /// Appends the body.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let each = || self.locations.iter();
        let ids: Vec<u32> = each().map(|state| state.location.get()).collect();
        put_growing(&ids, out);
        let flags = each().map(|state| {
            let has_last = if state.last_ns.is_some() { HAS_LAST } else { 0 };
            let gap = if state.has_gap { HAS_GAP } else { 0 };
            let after = if state.has_gap_after_last {
                HAS_GAP_AFTER_LAST
            } else {
                0
            };
            has_last | gap | after
        });
        put_ints(&flags.collect::<Vec<u64>>(), out);
        let last: Vec<i64> = each().map(|state| state.last_ns.unwrap_or(0)).collect();
        put_ints(&last, out);
        let lengths: Vec<u64> = each().map(|state| state.steps.len() as u64).collect();
        put_ints(&lengths, out);
        let (mut kinds, mut regions, mut times) = (Vec::new(), Vec::new(), Vec::new());
        for step in each().flat_map(|state| &state.steps) {
            match step {
                Step::Enter {
                    region,
                    entered_ns,
                    is_uncertain,
                } => {
                    kinds.push(if *is_uncertain {
                        UNCERTAIN_ENTER
                    } else {
                        ENTER
                    });
                    regions.push(region.get());
                    times.push(*entered_ns);
                }
                Step::Leave(region) => {
                    kinds.push(LEAVE);
                    regions.push(region.get());
                }
            }
        }
        put_ints(&kinds, out);
        put_ints(&regions, out);
        put_ints(&times, out);
    }

    /// Reads the body of a snapshot with this head.
    ///
    /// # Errors
    /// If the body ends early or contradicts the format or its head.
    pub fn decode(header: &SnapshotHeader, body: &[u8]) -> Result<Self> {
        let mut w = Wire::new(body);
        let (count, steps) = (header.locations as usize, header.steps as usize);
        let ids = read_ids(&mut w, count, "a location id")?;
        if !ids.is_sorted_by(|a, b| a < b) {
            return Err(FormatError::invalid(0, "ascending locations", "others"));
        }
        let flags = read_ints(&mut w, count)?;
        let last = read_ints(&mut w, count)?;
        let start = w.position();
        let lengths = read_ints(&mut w, count)?;
        let sum = lengths.iter().fold(0, |sum: u64, n| sum.saturating_add(*n));
        if sum != header.steps {
            return Err(FormatError::invalid(
                start,
                "as many steps as the head says",
                sum,
            ));
        }
        let start = w.position();
        let kinds = read_ints(&mut w, steps)?;
        if let Some(kind) = kinds.iter().find(|kind| **kind > LEAVE) {
            return Err(FormatError::invalid(start, "a step's kind of 0 to 2", kind));
        }
        let regions = read_ids(&mut w, steps, "a region id")?;
        let enters = kinds.iter().filter(|kind| **kind != LEAVE).count();
        let mut times = read_ints(&mut w, enters)?.into_iter();
        let mut read = kinds.into_iter().zip(regions).map(|(kind, region)| {
            let region = RegionId::new(region);
            if kind == LEAVE {
                return Step::Leave(region);
            }
            Step::Enter {
                region,
                entered_ns: times.next().unwrap_or(0) as i64,
                is_uncertain: kind == UNCERTAIN_ENTER,
            }
        });
        let mut locations = Vec::with_capacity(count);
        for (index, id) in ids.into_iter().enumerate() {
            locations.push(LocationState {
                location: LocationId::new(id),
                last_ns: (flags[index] & HAS_LAST != 0).then_some(last[index] as i64),
                has_gap: flags[index] & HAS_GAP != 0,
                has_gap_after_last: flags[index] & HAS_GAP_AFTER_LAST != 0,
                steps: read.by_ref().take(lengths[index] as usize).collect(),
            });
        }
        Ok(Self { locations })
    }
}

pub(crate) fn read_ids(w: &mut Wire<'_>, count: usize, what: &'static str) -> Result<Vec<u32>> {
    let start = w.position();
    let ids = read_ints(w, count)?.into_iter();
    ids.map(|id| u32::try_from(id).map_err(|_| FormatError::invalid(start, what, id)))
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (any::<u32>(), any::<i64>(), any::<bool>()).prop_map(
                |(region, entered_ns, is_uncertain)| {
                    Step::Enter {
                        region: RegionId::new(region),
                        entered_ns,
                        is_uncertain,
                    }
                }
            ),
            any::<u32>().prop_map(|region| Step::Leave(RegionId::new(region))),
        ]
    }

    fn snapshot() -> impl Strategy<Value = Snapshot> {
        let state = (
            any::<Option<i64>>(),
            any::<[bool; 2]>(),
            prop::collection::vec(step(), 0..5),
        );
        let states = prop::collection::btree_map(any::<u32>(), state, 0..400);
        states.prop_map(|states| Snapshot {
            locations: states
                .into_iter()
                .map(|(location, (last_ns, gaps, steps))| LocationState {
                    location: LocationId::new(location),
                    last_ns,
                    has_gap: gaps[0],
                    has_gap_after_last: gaps[1],
                    steps,
                })
                .collect(),
        })
    }

    proptest! {
        #[test]
        fn a_snapshot_comes_back(snapshot in snapshot(), chunk: u64) {
            let (mut head, mut body) = (Vec::new(), Vec::new());
            let header = snapshot.header(chunk);
            header.encode(&mut head);
            snapshot.encode(&mut body);
            let read = SnapshotHeader::decode(&mut Wire::new(&head)).unwrap();
            prop_assert_eq!(read, header);
            prop_assert_eq!(&Snapshot::decode(&read, &body).unwrap(), &snapshot);
            if let Some(short) = body.len().checked_sub(1) {
                prop_assert!(Snapshot::decode(&read, &body[..short]).is_err() || snapshot.locations.is_empty());
            }
        }

        #[test]
        fn other_bytes_are_an_error_or_a_snapshot(
            body in prop::collection::vec(any::<u8>(), 0..200),
            locations in 0..300_u64,
            steps in 0..300_u64,
        ) {
            let header = SnapshotHeader { chunk: 0, locations, steps };
            if let Ok(read) = Snapshot::decode(&header, &body) {
                prop_assert_eq!(read.header(0), header);
            }
        }
    }

    #[test]
    fn more_than_the_limits_is_refused() {
        let mut head = Vec::new();
        let header = SnapshotHeader {
            chunk: 0,
            locations: MAX_SNAPSHOT_LOCATIONS as u64 + 1,
            steps: 0,
        };
        header.encode(&mut head);
        assert!(SnapshotHeader::decode(&mut Wire::new(&head)).is_err());
    }
}
