//! A stream whose source or clock is not defined: its events cannot be placed in time, and are counted as skipped.

use std::borrow::Cow;

use annals_format::{ANY_EVENT_TYPE, Cause, OrderHash, StreamTotals, TraceLoss};

use crate::filter::Keep;
use crate::input::stream::{
    LossPlace, RecordedStream, StreamFindings, StreamOutcome, WaitingChunk, count_elsewhere,
};

/// The reader of such a stream, which returns losses and no events.
#[derive(Debug)]
pub(crate) struct UnplacedStream<'a> {
    pub(crate) outcome: StreamOutcome<'a>,
    pub(crate) losses: Vec<(LossPlace, TraceLoss)>,
    /// Always empty: nothing is loaded.
    pub(crate) lanes: Vec<WaitingChunk>,
}

impl<'a> UnplacedStream<'a> {
    /// Counts all events of a stream as skipped at some time in the life of its process.
    pub(crate) fn new(recorded: RecordedStream<'a>, keep: &Keep) -> Self {
        let RecordedStream {
            stream,
            input,
            numbers,
            contents,
            process_start_ns: from_ns,
            process_end_ns: to_ns,
        } = recorded;
        let is_here = keep.has(to_ns) && keep.selection.takes_stream(stream);
        let mut totals = contents.totals.clone();
        let mut losses = Vec::new();
        let mut lose = |event_type, cause, count, is_lower_bound| {
            let number = |id| numbers.event_types.get(&id).copied();
            let loss = TraceLoss {
                stream,
                event_type: Option::and_then(event_type, number),
                cause,
                count,
                is_lower_bound,
                from_ns,
                to_ns,
            };
            losses.push((LossPlace::Time(to_ns), loss));
        };
        if keep.has(to_ns) {
            for loss in &contents.losses {
                lose(loss.event_type, loss.cause, loss.count, loss.is_lower_bound);
            }
        }
        for row in &mut totals.rows {
            let event_type = Some(row.event_type).filter(|id| *id != ANY_EVENT_TYPE);
            for (cause, count) in row.dropped.iter().filter(|_| keep.has(to_ns)) {
                lose(event_type, cause, count, row.raised_is_lower_bound);
            }
            if !keep.is_first() {
                count_elsewhere(row);
            }
            let present = row.present();
            match (present, is_here) {
                (0, _) => {}
                (_, true) => {
                    row.add_loss(Cause::Skipped, present);
                    lose(event_type, Cause::Skipped, present, false);
                }
                (_, false) => row.add_filtered(present),
            }
        }
        let findings = StreamFindings {
            first_error: (!contents.chunks.is_empty())
                .then(|| "the definition of its stream, source or clock is lost".to_owned()),
            ..StreamFindings::default()
        };
        Self {
            outcome: StreamOutcome {
                stream,
                input,
                numbers,
                totals: Cow::<StreamTotals>::Owned(totals),
                findings,
                hash: OrderHash::default(),
            },
            losses,
            lanes: Vec::new(),
        }
    }
}
