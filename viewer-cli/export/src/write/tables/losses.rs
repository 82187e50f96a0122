//! The table of losses.

use annals_format::TraceLoss;
use arrow_buffer::NullBuffer;

use super::ColumnType::{Name, Text};
use super::{Column, ExportedRow, column, text, words};

impl ExportedRow for TraceLoss {
    const COLUMNS: &'static [Column<Self>] = &[
        column!("rank", integer, |loss, shared| shared
            .place(loss.stream)
            .rank),
        Column::nullable("location", Name, |shared, rows| {
            let places = rows.iter().map(|loss| shared.place(loss.stream));
            shared.location_array(places.map(|place| place.location).collect())
        }),
        Column::new("source", Name, |shared, rows| {
            let places = rows.iter().map(|loss| shared.place(loss.stream));
            shared
                .sources
                .array(places.map(|place| place.source).collect(), None)
        }),
        Column::nullable("event", Name, |shared, rows| {
            let types = || rows.iter().map(|loss| loss.event_type);
            let known: Vec<bool> = types().map(|event_type| event_type.is_some()).collect();
            let keys = types().map(|event_type| {
                event_type.map_or(0, |id| shared.event_types.key(id.get().into()))
            });
            let valid = NullBuffer::from(known);
            shared.event_types.array(keys.collect(), Some(valid))
        }),
        column!("count", unsigned, |loss| loss.count),
        column!("is_lower_bound", flag, |loss| loss.is_lower_bound),
        Column::new("kind", Name, |_, rows| {
            words(rows, |loss| Some(loss.cause.kind()))
        }),
        Column::new("cause", Text, |_, rows| {
            text(rows, |loss| Some(loss.cause.name()))
        }),
        column!("from_ns", integer, |loss| loss.from_ns),
        column!("to_ns", integer, |loss| loss.to_ns),
    ];
}
