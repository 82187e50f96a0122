//! What a call waited for that receives, sends, or does both.
//!
//! A receive waits until its message's send is begun. A send waits until its receive is begun, unless the library sends
//! messages of its size immediately (see [`super::protocols`]). A call in which several of them end (`MPI_Sendrecv`,
//! `MPI_Waitall`) waits for the one that is begun last; that is its one cause:
//!
//! ```text
//! wait = min(max(begins of the sends, begins of the receives that waited for), leave) − enter
//! ```
//!
//! Scalasca's patterns have late receivers for blocking sends and single waits only (`MPI.pattern`, Scalasca 1.4).

use annals_merger::CallAround;

use super::clock_errors::wait_error;
use super::engine::Engine;
use super::open_calls::{OpenCall, Received, Receiver};
use super::protocols::{Transfer, Verdict};
use super::sends::EndedCall;
use super::{WaitObserver, WaitPattern, WaitState};
use crate::patterns::late_receiver;

/// The receive that a call waited for last.
struct LateReceive<'a> {
    receiver: &'a Receiver,
    /// Whether the call waited for it is not known; then the rest of what it waited for was begun at this time.
    rest_ns: Option<i64>,
    error_ns: i64,
}

const fn transfer(call: &CallAround, receiver: &Receiver) -> Transfer {
    Transfer {
        sender: call.location,
        receiver: receiver.location,
        bytes: receiver.bytes,
    }
}

impl<V: WaitObserver> Engine<'_, V> {
    /// Hands out what a call waited for. Returns the time on an ideal network at which the receives were begun for which it
    /// waited.
    pub(super) fn conclude_call(
        &mut self,
        open: &OpenCall,
        left_ns: i64,
        is_uncertain: bool,
    ) -> i64 {
        let call = &open.call;
        // Its call may be another one than the loss lets it seem, or a message is not known for which it waited.
        let is_partial = (open.received.len() as u32) < open.receives
            || open.received.iter().any(|received| received.is_uncertain)
            || open.receivers.iter().any(|receiver| receiver.is_uncertain)
            || open.is_partial && self.has_losses();
        let uncertain_ns = match is_uncertain || is_partial {
            true => left_ns - call.entered_ns,
            false => 0,
        };
        let latest = open.received.iter().max_by_key(|of| of.send_entered_ns);
        let unknown = (open.receives != 0).then_some(Received::UNKNOWN);
        let latest = latest.copied().or(unknown);
        let sent_ns = latest.map_or(i64::MIN, |received| received.send_entered_ns);
        let (late, waited_for) = self.late_receive(open, left_ns, sent_ns.max(call.entered_ns));
        match (&late, &latest) {
            (Some(late), _) => {
                let other = latest
                    .filter(|received| received.send_entered_ns > call.entered_ns)
                    .and_then(|received| received.sender);
                self.late_receiver(call, left_ns, late, other, uncertain_ns);
            }
            (None, Some(received)) => {
                let others = open.received.iter().filter_map(|other| other.sender);
                let others = others.filter(|other| Some(*other) != received.sender);
                let others: Vec<u32> = others.collect();
                self.late_sender(call, left_ns, received, &others, uncertain_ns);
            }
            (None, None) if open.receivers.is_empty() && !open.is_partial => {}
            (None, None) => self.uncertain_send(call, uncertain_ns),
        }
        // Only now: causes are looked for since the message before.
        for received in &open.received {
            if let Some(sender) = received.sender {
                let sent_ns = received.send_entered_ns;
                self.delays.message(sender, call.location, sent_ns, left_ns);
            }
        }
        let mut ideal_ns = i64::MIN;
        for number in waited_for {
            let receiver = &open.receivers[number];
            // It did not continue before the receiver was there.
            self.delays.message(
                receiver.location,
                call.location,
                receiver.entered_ns,
                left_ns,
            );
            ideal_ns = ideal_ns.max(receiver.ideal_ns);
        }
        ideal_ns
    }

    /// Hands out what a call waited for that has ended before.
    pub(super) fn conclude_late(&mut self, ended: &EndedCall) {
        let ideal_ns = self.conclude_call(&ended.open, ended.left_ns, ended.is_uncertain);
        self.pass_later(ended, ideal_ns);
    }

    /// Hands out what a call waited for that has sends without receives.
    pub(super) fn conclude_unmatched(&mut self, mut ended: EndedCall) {
        ended.open.is_partial = true;
        self.conclude_late(&ended);
    }

    /// Returns the receive that a call waited for last, if that was begun after a time, and the numbers of all receives that it
    /// waited for, among those of its sends.
    fn late_receive<'a>(
        &mut self,
        open: &'a OpenCall,
        left_ns: i64,
        from_ns: i64,
    ) -> (Option<LateReceive<'a>>, Vec<usize>) {
        let call = &open.call;
        let mut waited_for = Vec::new();
        let mut unclear: Vec<(usize, i64)> = Vec::new();
        let (mut sure, mut sure_ns) = (None, from_ns);
        for (number, receiver) in open.receivers.iter().enumerate() {
            let transfer = transfer(call, receiver);
            let function = self.functions.get(receiver.sent_by);
            let sent = (call.location, left_ns);
            let received = (receiver.location, receiver.entered_ns);
            let error_ns = self.clock_errors.between(sent, received);
            if left_ns.saturating_add(error_ns) < receiver.entered_ns {
                let is_known = !call.is_uncertain && !receiver.is_uncertain;
                if is_known && !function.is_local && !function.is_synchronous {
                    self.protocols.ended_before(transfer);
                }
                continue;
            }
            match self.protocols.verdict(transfer, function) {
                Verdict::No => {}
                Verdict::Open => unclear.push((number, error_ns)),
                Verdict::Yes => {
                    waited_for.push(number);
                    if receiver.entered_ns > sure_ns {
                        (sure, sure_ns) = (Some((number, error_ns)), receiver.entered_ns);
                    }
                }
            }
        }
        let late = |(number, error_ns): (usize, i64), rest_ns| LateReceive {
            receiver: &open.receivers[number],
            rest_ns,
            error_ns,
        };
        let begun_ns = |of: &(usize, i64)| open.receivers[of.0].entered_ns;
        unclear.retain(|of| begun_ns(of) > sure_ns);
        unclear.sort_by_key(begun_ns);
        let Some((last, others)) = unclear.split_last() else {
            if let Some((number, _)) = sure {
                let transfer = transfer(call, &open.receivers[number]);
                self.protocols.count(transfer, Verdict::Yes);
            }
            return (sure.map(|sure| late(sure, None)), waited_for);
        };
        waited_for.extend(unclear.iter().map(|of| of.0));
        let rest_ns = others.last().map_or(sure_ns, begun_ns);
        let receiver = &open.receivers[last.0];
        let transfer = transfer(call, receiver);
        let alone_ns = receiver.entered_ns - rest_ns;
        if !call.is_uncertain && !receiver.is_uncertain && alone_ns > last.1 {
            let after_ns = left_ns - receiver.entered_ns;
            self.protocols.ended_after(transfer, after_ns, alone_ns);
        }
        let function = self.functions.get(receiver.sent_by);
        let verdict = self.protocols.verdict(transfer, function);
        self.protocols.count(transfer, verdict);
        let rest_ns = (verdict == Verdict::Open).then_some(rest_ns);
        (Some(late(*last, rest_ns)), waited_for)
    }

    fn late_receiver(
        &mut self,
        call: &CallAround,
        left_ns: i64,
        late: &LateReceive<'_>,
        other: Option<u32>,
        uncertain_ns: i64,
    ) {
        if self.functions.get(call.region).is_test {
            return;
        }
        let receiver = late.receiver;
        let length_ns = left_ns - call.entered_ns;
        let reached_ns = receiver.entered_ns - call.entered_ns;
        let unclear_ns = late.rest_ns.map_or(0, |rest_ns| {
            receiver.entered_ns.min(left_ns).saturating_sub(rest_ns)
        });
        let clock_ns = wait_error(reached_ns, length_ns, late.error_ns);
        let uncertain_ns = uncertain_ns.max(clock_ns.saturating_add(unclear_ns).min(length_ns));
        let wait = WaitState {
            pattern: WaitPattern::LateReceiver,
            path: call.tag,
            region: Some(call.region),
            location: call.location,
            cause: Some(receiver.location),
            or_cause: other.filter(|_| late.rest_ns.is_some()),
            communicator: receiver.communicator,
            from_ns: call.entered_ns,
            wait_ns: late_receiver(receiver.entered_ns, call.entered_ns, left_ns),
            operation: self.next_operation(),
            uncertain_ns,
        };
        self.add(&wait, receiver.entered_ns);
    }

    /// Hands out that a call may have waited for receives that are not known.
    fn uncertain_send(&mut self, call: &CallAround, uncertain_ns: i64) {
        let wait = WaitState {
            pattern: WaitPattern::LateReceiver,
            path: call.tag,
            region: Some(call.region),
            location: call.location,
            cause: None,
            or_cause: None,
            communicator: None,
            from_ns: call.entered_ns,
            wait_ns: 0,
            operation: self.next_operation(),
            uncertain_ns,
        };
        self.waits.add(&wait);
    }
}
