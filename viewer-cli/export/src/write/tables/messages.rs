//! The table of messages.

use std::ops::Deref;
use std::sync::Arc;

use annals_analysis::{LateSide, MessageLosses};
use annals_merger::Message;
use arrow_array::ArrayRef;
use arrow_array::builder::LargeStringBuilder;

use super::ColumnType::{Integer, LongText, Name};
use super::names::Shared;
use super::{Column, ExportedRow, column, maybe_integer};

/// A message of which both sides are known.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MessageRow {
    message: Message,
    is_uncertain: bool,
}

impl MessageRow {
    pub(super) fn new(message: &Message, shared: &Shared, losses: &MessageLosses) -> Self {
        let rank = |stream| shared.place(stream).rank as u32;
        let (send, receive) = (&message.send, &message.receive);
        let until_ns = send.time_ns.max(receive.time_ns);
        let (from_rank, to_rank) = (rank(send.stream), rank(receive.stream));
        Self {
            message: *message,
            is_uncertain: losses.may_have_changed(from_rank, to_rank, until_ns),
        }
    }
}

impl Deref for MessageRow {
    type Target = Message;

    fn deref(&self) -> &Message {
        &self.message
    }
}

fn wait(shared: &Shared, rows: &[MessageRow], late: LateSide) -> ArrayRef {
    maybe_integer(rows, |message| {
        // Without the receiver's call, the wait is not known.
        message.receive.call.filter(|_| shared.waits.are_known())?;
        let wait = shared.waits.of(message).find(|wait| wait.late == late);
        Some(wait.map_or(0, |wait| wait.to_ns - wait.from_ns))
    })
}

impl ExportedRow for MessageRow {
    const COLUMNS: &'static [Column<Self>] = &[
        column!("send_ns", integer, |message| message.send.time_ns),
        column!("receive_ns", integer, |message| message.receive.time_ns),
        column!("latency_ns", integer, |message| {
            let (send, receive) = (message.send.time_ns, message.receive.time_ns);
            receive.saturating_sub(send)
        }),
        column!("from_rank", integer, |message, shared| shared
            .place(message.send.stream)
            .rank),
        Column::nullable("from_location", Name, |shared, rows| {
            let places = rows.iter().map(|row| shared.place(row.send.stream));
            shared.location_array(places.map(|place| place.location).collect())
        }),
        column!("to_rank", integer, |message, shared| shared
            .place(message.receive.stream)
            .rank),
        Column::nullable("to_location", Name, |shared, rows| {
            let places = rows.iter().map(|row| shared.place(row.receive.stream));
            shared.location_array(places.map(|place| place.location).collect())
        }),
        Column::nullable("communicator", LongText, |shared, rows| {
            let mut communicators = LargeStringBuilder::new();
            for message in rows {
                let communicator = message.communicator();
                communicators.append_option(communicator.map(|value| shared.name(value)));
            }
            Arc::new(communicators.finish())
        }),
        column!("tag", maybe_integer, |row| row.tag()),
        column!("bytes", maybe_unsigned, |row| row.bytes()),
        Column::nullable("late_sender_wait_ns", Integer, |shared, rows| {
            wait(shared, rows, LateSide::Sender)
        }),
        Column::nullable("late_receiver_wait_ns", Integer, |shared, rows| {
            wait(shared, rows, LateSide::Receiver)
        }),
        column!("is_uncertain", flag, |row| row.is_uncertain),
    ];
}
