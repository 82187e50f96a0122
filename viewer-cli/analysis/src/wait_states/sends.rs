//! Sends until it is known in which call each ended and when its receive began.

use std::collections::BTreeMap;

use annals_format::ProcessId;
use rustc_hash::FxHashMap;

use super::open_calls::{OpenCall, Receiver};

/// Largest number of calls that are kept until the receives of their sends are known.
const MOST_ENDED: usize = 1 << 20;

/// Largest number of sends and of receives with requests that are followed. In a trace in which requests do not end, all are forgotten
/// when there are more.
const MOST_REQUESTS: usize = 1 << 20;

/// A call that has ended, and some of whose sends have no receive yet.
#[derive(Debug)]
pub(super) struct EndedCall {
    pub(super) open: OpenCall,
    pub(super) left_ns: i64,
    pub(super) is_uncertain: bool,
    /// By how much it is shorter on an ideal network, as far as is known.
    pub(super) saved_ns: i64,
}

/// Where a send is.
#[derive(Clone, Copy, Debug)]
enum SendState {
    /// It has begun, with a request.
    Begun,
    /// Its receive is known, and it has not ended. `None`: when that began is not.
    Matched(Option<Receiver>),
    /// It ends in the call that its location is in.
    Ending(u32),
    /// It has ended in the call with this number.
    Ended(u64),
}

/// What a receive means for the call in which its message's send ended.
pub(super) enum Matched {
    /// That call is open: the location's.
    Open(u32),
    /// That call has ended, and was waiting for nothing else.
    Over(Box<EndedCall>),
    /// Nothing yet, or the send is not followed.
    Nothing,
}

/// When a receive was begun.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReceiveBegin {
    pub(super) entered_ns: i64,
    pub(super) ideal_ns: i64,
    pub(super) is_uncertain: bool,
}

/// The sends that are followed, and receives with requests.
#[derive(Debug, Default)]
pub(super) struct Sends {
    /// By number of the event.
    states: FxHashMap<u64, SendState>,
    /// Sends by process and request.
    requests: FxHashMap<(ProcessId, u64), u64>,
    /// Receives that were begun, by process and request; those that took a message, by number of the event.
    begun: FxHashMap<(ProcessId, u64), ReceiveBegin>,
    completed: FxHashMap<u64, ReceiveBegin>,
    ended: BTreeMap<u64, EndedCall>,
    next: u64,
}

impl Sends {
    /// Takes that a send with a request begins.
    pub(super) fn begin(&mut self, number: u64, request: (ProcessId, u64)) {
        if self.requests.len() >= MOST_REQUESTS {
            for number in std::mem::take(&mut self.requests).into_values() {
                self.states.remove(&number);
            }
        }
        if let Some(before) = self.requests.insert(request, number) {
            // Its end is lost, or it has none.
            self.states.remove(&before);
        }
        self.states.insert(number, SendState::Begun);
    }

    /// Takes that a send ends in the call that is open.
    pub(super) fn end_in(&mut self, number: u64, open: &mut OpenCall) {
        open.sends.push(number);
        let location = open.call.location;
        self.states.insert(number, SendState::Ending(location));
    }

    /// Takes that the send with a request ends in the call that is open.
    pub(super) fn end_request(&mut self, request: (ProcessId, u64), open: &mut OpenCall) {
        let number = self.requests.remove(&request);
        let Some((number, state)) = number.and_then(|of| Some((of, self.states.remove(&of)?)))
        else {
            return;
        };
        match state {
            SendState::Matched(receiver) => open.take_receiver(receiver),
            _ => self.end_in(number, open),
        }
    }

    /// Takes that a receive with a request begins.
    pub(super) fn begin_receive(&mut self, request: (ProcessId, u64), begin: ReceiveBegin) {
        if self.begun.len() >= MOST_REQUESTS {
            self.begun.clear();
        }
        self.begun.insert(request, begin);
    }

    /// Takes that the receive with a request took a message.
    pub(super) fn complete_receive(&mut self, request: (ProcessId, u64), number: u64) {
        if self.completed.len() >= MOST_REQUESTS {
            self.completed.clear();
        }
        if let Some(begin) = self.begun.remove(&request) {
            self.completed.insert(number, begin);
        }
    }

    /// Returns when the receive that took a message was begun, and forgets it.
    pub(super) fn received(&mut self, number: u64) -> Option<ReceiveBegin> {
        self.completed.remove(&number)
    }

    /// Takes the receive of a send's message.
    pub(super) fn matched(&mut self, number: u64, receiver: Option<Receiver>) -> Matched {
        match self.states.get_mut(&number).copied() {
            Some(SendState::Begun) => {
                self.states.insert(number, SendState::Matched(receiver));
                Matched::Nothing
            }
            Some(SendState::Ending(location)) => {
                self.states.remove(&number);
                Matched::Open(location)
            }
            Some(SendState::Ended(call)) => {
                self.states.remove(&number);
                let Some(ended) = self.ended.get_mut(&call) else {
                    return Matched::Nothing;
                };
                ended.open.sends.retain(|send| *send != number);
                ended.open.take_receiver(receiver);
                if !ended.open.sends.is_empty() {
                    return Matched::Nothing;
                }
                let over = self.ended.remove(&call).map(Box::new);
                over.map_or(Matched::Nothing, Matched::Over)
            }
            Some(SendState::Matched(_)) | None => Matched::Nothing,
        }
    }

    /// Forgets a send.
    pub(super) fn forget(&mut self, number: u64) {
        self.states.remove(&number);
    }

    /// Keeps a call until the receives of its sends are known. Returns one that is kept no longer, if there are too many.
    pub(super) fn keep(
        &mut self,
        open: OpenCall,
        left_ns: i64,
        is_uncertain: bool,
        saved_ns: i64,
    ) -> Option<EndedCall> {
        let call = self.next;
        self.next += 1;
        for send in &open.sends {
            self.states.insert(*send, SendState::Ended(call));
        }
        let ended = EndedCall {
            open,
            left_ns,
            is_uncertain,
            saved_ns,
        };
        self.ended.insert(call, ended);
        if self.ended.len() <= MOST_ENDED {
            return None;
        }
        self.take_first()
    }

    /// Returns the first call that is kept, and forgets it.
    pub(super) fn take_first(&mut self) -> Option<EndedCall> {
        let (_, ended) = self.ended.pop_first()?;
        ended.open.sends.iter().for_each(|send| self.forget(*send));
        Some(ended)
    }
}
