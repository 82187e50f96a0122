//! The table of calls.

use annals_merger::Close;

use super::ColumnType::Name;
use super::{Column, ExportedRow, choice, column};
use crate::write::exporter::{Call, ending};

impl ExportedRow for Call {
    const COLUMNS: &'static [Column<Self>] = &[
        column!("call", integer, |call| call.number as i64),
        column!("parent", maybe_integer, |call| call
            .parent
            .map(|parent| parent as i64)),
        column!("rank", integer, |call, shared| shared.by_location
            [call.location]
            .rank),
        Column::nullable("location", Name, |shared, rows| {
            let locations = rows.iter().map(|call| shared.by_location[call.location]);
            shared.location_array(locations.map(|place| place.location).collect())
        }),
        Column::new("region", Name, |shared, rows| {
            let regions = rows.iter().map(|call| call.region.get().into());
            let keys = regions.map(|region| shared.regions.key(region));
            shared.regions.array(keys.collect(), None)
        }),
        column!("begin_ns", integer, |call| call.begin_ns),
        column!("end_ns", integer, |call| call.end_ns),
        column!("inclusive_ns", integer, |call| call.inclusive_ns),
        column!("exclusive_ns", integer, |call| call.exclusive_ns),
        column!("depth", integer, |call| call.depth as i64),
        column!("is_outermost", flag, |call| call.is_outermost),
        column!("is_uncertain", flag, |call| call.is_uncertain),
        Column::new("ended", Name, |_, rows| {
            let all = [Close::Left, Close::Unleft, Close::Open];
            choice(rows, &all.map(ending), |call| match call.how {
                Close::Left => 0,
                Close::Unleft => 1,
                Close::Open => 2,
            })
        }),
        Column::new("file", Name, |shared, rows| {
            let regions = rows.iter().map(|call| call.region.get().into());
            let keys = regions.map(|region| shared.files.key(region));
            shared.files.array(keys.collect(), None)
        }),
        column!("line", maybe_integer, |call, shared| {
            shared.lines.get(&call.region).map(|line| (*line).into())
        }),
        Column::new("host", Name, |shared, rows| {
            let places = rows.iter().map(|call| shared.by_location[call.location]);
            shared
                .hosts
                .array(places.map(|place| place.host).collect(), None)
        }),
        column!("thread_id", maybe_unsigned, |call, shared| {
            let id = shared.by_location[call.location].thread_id;
            (id != 0).then_some(id)
        }),
    ];
}
