//! Single waits: their two sides, lengths and operations.

use std::cmp::Reverse;

use annals_format::{Definitions, LocationId, RegionId, StreamId};
use annals_merger::{Message, MessageSide};
use serde::Serialize;

use crate::mpi_coverage::MpiCoverage;
use crate::mpi_functions::MpiFunctions;

/// Number of waits that [`LongestWaits`] keeps.
const MOST_LONGEST: usize = 5;

/// The cause of a wait.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(tag = "cause", rename_all = "kebab-case")]
pub enum WaitCause {
    /// A receive waited for its send.
    LateSender {
        /// Name of the region around the receive.
        region: String,
        /// The message's tag.
        tag: Option<i64>,
    },
    /// A send waited for its receive.
    LateReceiver {
        /// Name of the region around the send.
        region: String,
        /// The message's tag.
        tag: Option<i64>,
    },
    /// A member of a collective operation waited for the last one.
    Collective {
        /// Name of the operation.
        operation: String,
        /// Name of the communicator.
        communicator: String,
    },
}

/// A time in which a location waited for another.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Wait {
    /// Rank of the location that waited.
    pub rank: u32,
    /// The location that waited.
    #[serde(skip)]
    pub location: Option<LocationId>,
    /// Trace time at which it began to wait, nanoseconds.
    pub from_ns: i64,
    /// How long it waited, nanoseconds.
    pub wait_ns: i64,
    /// Rank of the location that it waited for.
    pub for_rank: u32,
    /// The cause of the wait.
    #[serde(flatten)]
    pub cause: WaitCause,
}

/// Which side of a message was late.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LateSide {
    /// The receive waited for the send.
    Sender,
    /// The send waited for the receive.
    Receiver,
}

/// A wait for a message.
#[derive(Clone, Copy, Debug)]
pub struct MessageWait {
    /// Which side was late.
    pub late: LateSide,
    /// The side that waited.
    pub waiting: MessageSide,
    /// The side that was late.
    pub other: MessageSide,
    /// Region of the call that waited.
    pub region: RegionId,
    /// The message's tag.
    pub tag: Option<i64>,
    /// Trace time at which it began to wait, nanoseconds.
    pub from_ns: i64,
    /// Trace time at which the other side arrived, nanoseconds.
    pub to_ns: i64,
}

impl MessageWait {
    /// Returns the wait with names in the place of numbers.
    pub fn named(&self, definitions: &Definitions) -> Wait {
        let region = definitions.region_name(self.region);
        let tag = self.tag;
        Wait {
            rank: definitions.rank_of(self.waiting.process),
            location: location_of(definitions, self.waiting.stream),
            from_ns: self.from_ns,
            wait_ns: self.to_ns - self.from_ns,
            for_rank: definitions.rank_of(self.other.process),
            cause: match self.late {
                LateSide::Sender => WaitCause::LateSender { region, tag },
                LateSide::Receiver => WaitCause::LateReceiver { region, tag },
            },
        }
    }
}

/// Finds waits for messages.
#[derive(Clone, Debug)]
pub struct MessageWaits {
    functions: MpiFunctions,
    /// Whether waits are known.
    are_known: bool,
}

impl MessageWaits {
    /// Finds the regions of sends that do not wait by their names.
    pub fn new(definitions: &Definitions) -> Self {
        Self {
            functions: MpiFunctions::of(definitions),
            are_known: MpiCoverage::of(definitions).knows_waits(),
        }
    }

    /// Returns whether waits are known: the trace lacks no calls of MPI.
    pub const fn are_known(&self) -> bool {
        self.are_known
    }

    /// Returns how long either side of a message waited for the other: the receiver from the enter of the call around the
    /// receive to the send; the sender from the send to the enter of the receiver's call, as long as it is in the call around
    /// its send, unless that does not wait, or waits for a receive as well. Sides without a known call do not count. Nothing where
    /// the trace lacks calls of MPI.
    pub fn of(&self, message: &Message) -> impl Iterator<Item = MessageWait> {
        let (send, receive) = (message.send, message.receive);
        let tag = message.tag();
        let wait = move |late, from_ns, to_ns, region| {
            let (waiting, other) = match late {
                LateSide::Sender => (receive, send),
                LateSide::Receiver => (send, receive),
            };
            MessageWait {
                late,
                waiting,
                other,
                region,
                tag,
                from_ns,
                to_ns,
            }
        };
        let of_receiver = receive.call.map(|receiving| {
            let until_ns = send.time_ns.min(receive.time_ns);
            wait(
                LateSide::Sender,
                receiving.entered_ns,
                until_ns,
                receiving.region,
            )
        });
        let blocking = send
            .call
            .filter(|call| !self.functions.get(call.region).is_non_blocking);
        let of_sender = receive.call.zip(blocking).map(|(receiving, sending)| {
            let left_ns = sending.left_ns.unwrap_or(i64::MAX);
            let until_ns = receiving.entered_ns.min(left_ns);
            wait(LateSide::Receiver, send.time_ns, until_ns, sending.region)
        });
        let both = [of_receiver, of_sender].into_iter().flatten();
        let are_known = self.are_known;
        both.filter(move |wait| are_known && wait.to_ns > wait.from_ns)
    }
}

/// Returns the location of a stream.
pub(crate) fn location_of(definitions: &Definitions, stream: StreamId) -> Option<LocationId> {
    let stream = definitions.streams.get(&stream);
    stream.and_then(|stream| stream.location)
}

/// The longest waits among those that it was given.
#[derive(Clone, Default, Debug)]
pub struct LongestWaits {
    /// The longest first; of equally long ones, the earlier first.
    waits: Vec<Wait>,
}

/// The sort key of waits.
type WaitKey = (Reverse<i64>, i64, u32);

impl LongestWaits {
    fn key(wait: &Wait) -> WaitKey {
        (Reverse(wait.wait_ns), wait.from_ns, wait.rank)
    }

    /// Adds a wait if it is among the longest. `named` is only called then.
    pub fn add(&mut self, wait_ns: i64, named: impl FnOnce() -> Wait) {
        let shortest = self
            .waits
            .last()
            .filter(|_| self.waits.len() == MOST_LONGEST);
        if wait_ns <= 0 || shortest.is_some_and(|shortest| shortest.wait_ns > wait_ns) {
            return;
        }
        let wait = named();
        let key = Self::key(&wait);
        let place = self.waits.partition_point(|other| Self::key(other) <= key);
        self.waits.insert(place, wait);
        self.waits.truncate(MOST_LONGEST);
    }

    /// Returns the longest waits, the longest first.
    pub fn into_sorted(self) -> Vec<Wait> {
        self.waits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_are_kept_in_order() {
        let mut longest = LongestWaits::default();
        for (rank, wait_ns) in [3, 9, 1, 7, 7, 0, 8, 2].into_iter().enumerate() {
            longest.add(wait_ns, || Wait {
                rank: rank as u32,
                location: None,
                from_ns: 100 - rank as i64,
                wait_ns,
                for_rank: 0,
                cause: WaitCause::LateSender {
                    region: "MPI_Recv".to_owned(),
                    tag: None,
                },
            });
        }
        let kept = longest.into_sorted();
        let kept: Vec<(i64, u32)> = kept.iter().map(|w| (w.wait_ns, w.rank)).collect();
        assert_eq!(kept, [(9, 1), (8, 6), (7, 4), (7, 3), (3, 0)]);
    }
}
