//! The table of calls.

use annals_merger::Close;

use super::ColumnType::{Flag, Integer, Name, Unsigned};
use super::{Column, ExportedRow, choice, flag, integer, maybe_integer, maybe_unsigned};
use crate::write::exporter::{Call, ending};

impl ExportedRow for Call {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::new("call", Integer, |_, rows| {
            integer(rows, |call| call.number as i64)
        }),
        Column::nullable("parent", Integer, |_, rows| {
            maybe_integer(rows, |call| call.parent.map(|parent| parent as i64))
        }),
        Column::new("rank", Integer, |shared, rows| {
            integer(rows, |call| shared.by_location[call.location].rank)
        }),
        Column::nullable("location", Name, |shared, rows| {
            let locations = rows.iter().map(|call| shared.by_location[call.location]);
            shared.location_array(locations.map(|place| place.location).collect())
        }),
        Column::new("region", Name, |shared, rows| {
            let regions = rows.iter().map(|call| call.region.get().into());
            let keys = regions.map(|region| shared.regions.key(region));
            shared.regions.array(keys.collect(), None)
        }),
        Column::new("begin_ns", Integer, |_, rows| {
            integer(rows, |call| call.begin_ns)
        }),
        Column::new("end_ns", Integer, |_, rows| {
            integer(rows, |call| call.end_ns)
        }),
        Column::new("inclusive_ns", Integer, |_, rows| {
            integer(rows, |call| call.inclusive_ns)
        }),
        Column::new("exclusive_ns", Integer, |_, rows| {
            integer(rows, |call| call.exclusive_ns)
        }),
        Column::new("depth", Integer, |_, rows| {
            integer(rows, |call| call.depth as i64)
        }),
        Column::new("is_outermost", Flag, |_, rows| {
            flag(rows, |call| call.is_outermost)
        }),
        Column::new("is_uncertain", Flag, |_, rows| {
            flag(rows, |call| call.is_uncertain)
        }),
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
        Column::nullable("line", Integer, |shared, rows| {
            maybe_integer(rows, |call| {
                shared.lines.get(&call.region).map(|line| (*line).into())
            })
        }),
        Column::new("host", Name, |shared, rows| {
            let places = rows.iter().map(|call| shared.by_location[call.location]);
            shared
                .hosts
                .array(places.map(|place| place.host).collect(), None)
        }),
        Column::nullable("thread_id", Unsigned, |shared, rows| {
            maybe_unsigned(rows, |call| {
                let id = shared.by_location[call.location].thread_id;
                (id != 0).then_some(id)
            })
        }),
    ];
}
