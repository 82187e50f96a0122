//! Communicating calls that are open, and what is known of the messages that end in them.

use annals_format::{ProcessId, Reference, RegionId};
use annals_merger::CallAround;

use super::teams::FenceKey;

/// A message that a call received.
#[derive(Clone, Copy, Debug)]
pub(super) struct Received {
    pub(super) send_entered_ns: i64,
    pub(super) sender: Option<u32>,
    pub(super) communicator: Option<(Reference, u64)>,
    /// Whether the send may have been entered at another time.
    pub(super) is_uncertain: bool,
}

impl Received {
    /// A message of which nothing is known.
    pub(super) const UNKNOWN: Self = Self {
        send_entered_ns: i64::MIN,
        sender: None,
        communicator: None,
        is_uncertain: true,
    };
}

/// A receive that took a message of a call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Receiver {
    /// When the receive was begun, and when on an ideal network, nanoseconds.
    pub(super) entered_ns: i64,
    pub(super) ideal_ns: i64,
    pub(super) location: u32,
    pub(super) communicator: Option<(Reference, u64)>,
    /// Size of the message. 0 if it is not known.
    pub(super) bytes: u64,
    /// The function that began the send.
    pub(super) sent_by: RegionId,
    /// Whether the receive may have been begun at another time.
    pub(super) is_uncertain: bool,
}

/// A communicating call that is open.
#[derive(Clone, Debug)]
pub(super) struct OpenCall {
    pub(super) call: CallAround,
    /// Latest time on an ideal network at which something was entered for which the call waited.
    pub(super) ideal_ns: i64,
    pub(super) receives: u32,
    pub(super) received: Vec<Received>,
    /// Numbers of the sends that end in it and whose receives are not known yet.
    pub(super) sends: Vec<u64>,
    /// Receives of the sends that end in it.
    pub(super) receivers: Vec<Receiver>,
    /// Whether something is not known of a receive of such a send.
    pub(super) is_partial: bool,
    /// Collective operations that ended in it.
    pub(super) ended: Vec<(u64, ProcessId)>,
    /// The fence that it is part of.
    pub(super) fence: Option<FenceKey>,
}

impl OpenCall {
    pub(super) const fn new(call: CallAround, ideal_ns: i64) -> Self {
        Self {
            call,
            ideal_ns,
            receives: 0,
            received: Vec::new(),
            sends: Vec::new(),
            receivers: Vec::new(),
            is_partial: false,
            ended: Vec::new(),
            fence: None,
        }
    }

    pub(super) fn is(&self, call: &CallAround) -> bool {
        (self.call.entered_ns, self.call.depth) == (call.entered_ns, call.depth)
    }

    /// Takes the receive of a send that ends in the call. `None`: when it was begun is not known.
    pub(super) fn take_receiver(&mut self, receiver: Option<Receiver>) {
        self.receivers.extend(receiver);
        self.is_partial |= receiver.is_none();
    }
}
