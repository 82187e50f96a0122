//! The table of single waits.

use annals_analysis::{WaitPattern, WaitState};
use annals_format::{Reference, RegionId};
use arrow_array::ArrayRef;
use arrow_buffer::NullBuffer;

use super::ColumnType::Name;
use super::names::Shared;
use super::{Column, ExportedRow, column, words};

/// A wait of a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SingleWait {
    pattern: WaitPattern,
    location: u32,
    region: Option<RegionId>,
    cause: Option<u32>,
    communicator: Option<(Reference, u64)>,
    from_ns: i64,
    wait_ns: i64,
    uncertain_ns: i64,
}

impl SingleWait {
    pub(super) fn of(wait: &WaitState) -> Self {
        Self {
            pattern: wait.pattern,
            location: wait.location,
            region: wait.region,
            cause: wait.cause,
            communicator: wait.communicator,
            from_ns: wait.from_ns,
            wait_ns: wait.wait_ns,
            uncertain_ns: wait.uncertain_ns,
        }
    }
}

fn locations(shared: &Shared, of: impl Iterator<Item = Option<u32>>) -> ArrayRef {
    let key = |number: u32| shared.by_location[number as usize].location;
    shared.location_array(of.map(|number| number.map_or(-1, key)).collect())
}

impl ExportedRow for SingleWait {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::new("pattern", Name, |_, rows| {
            words(rows, |wait| Some(wait.pattern.name()))
        }),
        column!("rank", integer, |wait, shared| shared.by_location
            [wait.location as usize]
            .rank),
        Column::nullable("location", Name, |shared, rows| {
            locations(shared, rows.iter().map(|wait| Some(wait.location)))
        }),
        Column::nullable("region", Name, |shared, rows| {
            let known: Vec<bool> = rows.iter().map(|wait| wait.region.is_some()).collect();
            let keys = rows.iter().map(|wait| {
                let region = wait.region.map_or(0, RegionId::get);
                shared.regions.key(region.into())
            });
            shared
                .regions
                .array(keys.collect(), Some(NullBuffer::from(known)))
        }),
        column!("from_ns", integer, |wait| wait.from_ns),
        column!("wait_ns", integer, |wait| wait.wait_ns),
        column!("uncertain_ns", integer, |wait| wait.uncertain_ns),
        column!("for_rank", maybe_integer, |wait, shared| {
            Some(shared.by_location[wait.cause? as usize].rank)
        }),
        Column::nullable("for_location", Name, |shared, rows| {
            locations(shared, rows.iter().map(|wait| wait.cause))
        }),
        Column::nullable("communicator", Name, |shared, rows| {
            let names: Vec<Option<String>> = rows
                .iter()
                .map(|wait| wait.communicator.map(|value| shared.name(value)))
                .collect();
            words(&names, |name| name.as_deref())
        }),
    ];
}
