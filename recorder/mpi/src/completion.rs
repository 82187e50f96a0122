//! Completion: the outcomes of requests that waits and tests report.

use std::cell::Cell;
use std::mem::ManuallyDrop;

use crate::abi::{STATUS_ROOM, is_success};
use crate::call::{Call, Frame, Site};
use crate::caller_memory::CallerMemory;
use crate::outcome::{RequestOutcome, given_up, outcome, raise};
use crate::requests::{self, Record, RequestKind};
use crate::state::Mpi;
use crate::statuses::{OwnStatus, status_at};

/// An active request that a call may complete.
#[derive(Clone, Copy, Debug)]
struct Asked {
    /// Its index in the call's array.
    index: usize,
    handle: usize,
    record: Record,
}

impl Asked {
    /// The only request of its call.
    #[inline(always)]
    const fn alone(handle: usize, record: Record) -> Self {
        Self {
            index: 0,
            handle,
            record,
        }
    }
}

thread_local! {
    static ASKED: Cell<Vec<Asked>> = const { Cell::new(Vec::new()) };
    static STATUSES: Cell<Vec<u64>> = const { Cell::new(Vec::new()) };
}

/// Handles a failed call that was to complete a request.
/// If the request still exists, it is not done. A message that was received into too small a buffer
/// counts as received.
#[cold]
fn fail(mpi: &Mpi, asked: Asked, now: usize, error: i32, status: usize) {
    let Asked { handle, record, .. } = asked;
    if now == handle && !record.is_persistent {
        requests::put(handle, record);
        return;
    }
    let outcome = if record.kind == RequestKind::Receive && mpi.is_truncated(error) {
        outcome(mpi, &record, status)
    } else {
        given_up(&record)
    };
    keep_persistent(handle, &record);
    raise(mpi, &outcome);
}

/// Leaves a call that completed one request; a persistent one stays.
#[inline(always)]
fn leave_with_one(frame: Frame, mpi: &Mpi, asked: Asked, status: usize) {
    let outcome = outcome(mpi, &asked.record, status);
    keep_persistent(asked.handle, &asked.record);
    let types = &mpi.types;
    match outcome {
        RequestOutcome::Received(values) => frame.leave_with_here(&types.ireceive, values),
        RequestOutcome::Sent(id) => frame.leave_with_here(&types.send_end, (id,)),
        other => {
            raise(mpi, &other);
            frame.leave_here();
        }
    }
}

#[inline(always)]
fn keep_persistent(handle: usize, record: &Record) {
    if record.is_persistent {
        keep(handle, record);
    } else {
        requests::end(record);
    }
}

/// Inserts the record of a persistent request that has completed.
#[inline(never)]
fn keep(handle: usize, record: &Record) {
    // Only the numbers of collective operations belong to the request.
    let inactive = Record {
        is_active: false,
        is_cancelling: false,
        sequence: record.sequence.wrapping_add(1),
        ..*record
    };
    requests::put(handle, inactive);
}

/// Removes and returns the record of an active request.
#[inline(always)]
fn ask(mpi: &Mpi, handle: usize) -> Option<Record> {
    if handle == mpi.abi.request_null {
        return None;
    }
    let record = requests::take(handle)?;
    if record.is_active {
        return Some(record);
    }
    requests::put(handle, record);
    None
}

/// Waits for a request.
#[inline(always)]
pub(crate) fn wait<const N: usize, S: Site>(mut call: Call<N, S>) -> usize {
    let frame = Frame::begin(call.index());
    let Some(mpi) = frame.mpi else {
        return frame.pass(&call);
    };
    let handle = call.place(call.at().request).handle(&mpi.abi, 0);
    let asked = ask(mpi, handle);
    let mut own = OwnStatus::new();
    if let Some(record) = &asked {
        frame.enter_with_here(&mpi.types.wait, (record.id, 1));
        own.stand_in(mpi, &mut call);
    } else {
        frame.enter_here();
    }
    let result = call.forward();
    match asked {
        Some(record) if is_success(result) => {
            let asked = Asked::alone(handle, record);
            leave_with_one(frame, mpi, asked, call.word(call.at().status));
        }
        Some(record) => {
            fail_one(mpi, &call, Asked::alone(handle, record), result);
            frame.leave_here();
        }
        None => frame.leave_here(),
    }
    result
}

/// See [`fail`].
#[cold]
fn fail_one<const N: usize, S: Site>(mpi: &Mpi, call: &Call<N, S>, asked: Asked, result: usize) {
    let now = call.place(call.at().request).handle(&mpi.abi, 0);
    let status = call.word(call.at().status);
    fail(mpi, asked, now, result as u32 as i32, status);
}

/// Tests whether a request is complete.
#[inline(never)]
pub(crate) fn test<const N: usize, S: Site>(mut call: Call<N, S>) -> usize {
    let frame = Frame::begin(call.index());
    let Some(mpi) = frame.mpi else {
        return frame.pass(&call);
    };
    frame.enter();
    let handle = call.place(call.at().request).handle(&mpi.abi, 0);
    let asked = ask(mpi, handle);
    let mut own = OwnStatus::new();
    if asked.is_some() {
        own.stand_in(mpi, &mut call);
    }
    let result = call.forward();
    match asked {
        Some(record) if is_success(result) => {
            if call.place(call.at().flag).int(0) != 0 {
                let asked = Asked::alone(handle, record);
                leave_with_one(frame, mpi, asked, call.word(call.at().status));
            } else {
                requests::put(handle, record);
                frame.leave();
            }
        }
        Some(record) => {
            fail_one(mpi, &call, Asked::alone(handle, record), result);
            frame.leave();
        }
        None => frame.leave(),
    }
    result
}

/// Maximum number of requests of a waiting call that are recorded: the first ones.
const MOST_AWAITED: usize = 16;

/// A call about many requests, with its buffers. Nothing of it is dropped if the call is left by an exception or by cancellation: it must
/// not have anything to clean up.
struct Many {
    asked: Vec<Asked>,
    statuses: Vec<u64>,
    count: usize,
}

impl Many {
    /// Removes the records of the active requests. If the program wants no statuses, the library
    /// gets a buffer of this library for them.
    fn begin<const N: usize, S: Site>(
        mpi: &Mpi,
        call: &mut Call<N, S>,
        is_array: bool,
    ) -> ManuallyDrop<Self> {
        let count = usize::try_from(call.int(call.at().count)).unwrap_or(0);
        let mut asked = ASKED.try_with(Cell::take).unwrap_or_default();
        let mut statuses = STATUSES.try_with(Cell::take).unwrap_or_default();
        asked.clear();
        let place = call.place(call.at().request);
        for index in 0..count {
            let handle = place.handle(&mpi.abi, index);
            if let Some(record) = ask(mpi, handle) {
                asked.push(Asked {
                    index,
                    handle,
                    record,
                });
            }
        }
        let ignored = if is_array {
            mpi.abi.statuses_ignore
        } else {
            mpi.abi.status_ignore
        };
        if !asked.is_empty() && call.word(call.at().status) == ignored {
            let words = if is_array { count } else { 1 } * (STATUS_ROOM / 8);
            if statuses.len() < words {
                statuses.resize(words, 0);
            }
            call.replace(call.at().status, statuses.as_mut_ptr().expose_provenance());
        }
        ManuallyDrop::new(Self {
            asked,
            statuses,
            count,
        })
    }

    /// Records the first requests that the call waits for.
    fn record(&self, mpi: &Mpi) {
        let count = self.asked.len() as u32;
        for asked in self.asked.iter().take(MOST_AWAITED) {
            mpi.raise(&mpi.types.wait, (asked.record.id, count));
        }
    }

    /// Removes and returns a request of the call, by its index in the call's array.
    fn take(&mut self, index: usize) -> Option<Asked> {
        let place = self.asked.iter().position(|asked| asked.index == index)?;
        Some(self.asked.swap_remove(place))
    }

    /// Puts back the requests that are not done.
    fn end(many: ManuallyDrop<Self>) {
        let mut many = ManuallyDrop::into_inner(many);
        for asked in many.asked.drain(..) {
            requests::put(asked.handle, asked.record);
        }
        let _ = ASKED.try_with(|asked| asked.set(many.asked));
        let _ = STATUSES.try_with(|statuses| statuses.set(many.statuses));
    }
}

fn complete(mpi: &Mpi, asked: Asked, status: usize) {
    let outcome = outcome(mpi, &asked.record, status);
    keep_persistent(asked.handle, &asked.record);
    raise(mpi, &outcome);
}

/// Returns the address of a status in an array.
const fn status_of(mpi: &Mpi, start: usize, index: usize) -> usize {
    start.wrapping_add(index * mpi.abi.status_len)
}

/// Completes all requests that a call about an array of requests reports as complete.
fn complete_all<const N: usize, S: Site>(
    mpi: &Mpi,
    many: &mut Many,
    call: &Call<N, S>,
    result: usize,
) {
    let statuses = call.word(call.at().status);
    let place = call.place(call.at().request);
    for asked in many.asked.drain(..) {
        let status = status_of(mpi, statuses, asked.index);
        if is_success(result) {
            complete(mpi, asked, status);
            continue;
        }
        // Each status contains the outcome of its request (MPI 5.0, section 3.7.5).
        match mpi.status_int(status_at(status), mpi.abi.error_at) {
            0 => complete(mpi, asked, status),
            error if mpi.is_pending(error) => requests::put(asked.handle, asked.record),
            error => {
                let now = place.handle(&mpi.abi, asked.index);
                fail(mpi, asked, now, error, status);
            }
        }
    }
}

/// Waits for all requests.
#[inline(never)]
pub(crate) fn waitall<const N: usize, S: Site>(mut call: Call<N, S>) -> usize {
    let frame = Frame::begin(call.index());
    let Some(mpi) = frame.mpi else {
        return frame.pass(&call);
    };
    frame.enter();
    let mut many = Many::begin(mpi, &mut call, true);
    many.record(mpi);
    let result = call.forward();
    if is_success(result) || mpi.is_in_status(result) {
        complete_all(mpi, &mut many, &call, result);
    }
    Many::end(many);
    frame.leave();
    result
}

/// Tests whether all requests are complete.
#[inline(never)]
pub(crate) fn testall<const N: usize, S: Site>(mut call: Call<N, S>) -> usize {
    let frame = Frame::begin(call.index());
    let Some(mpi) = frame.mpi else {
        return frame.pass(&call);
    };
    frame.enter();
    let mut many = Many::begin(mpi, &mut call, true);
    let result = call.forward();
    let is_done = is_success(result) && call.place(call.at().flag).int(0) != 0;
    if is_done || mpi.is_in_status(result) {
        complete_all(mpi, &mut many, &call, result);
    }
    Many::end(many);
    frame.leave();
    result
}

/// Completes one of many requests, if one is complete.
fn any<const N: usize, S: Site>(
    frame: Frame,
    mpi: &Mpi,
    mut call: Call<N, S>,
    has_flag: bool,
) -> usize {
    let mut many = Many::begin(mpi, &mut call, false);
    if !has_flag {
        many.record(mpi);
    }
    let result = call.forward();
    let is_done = !has_flag || (is_success(result) && call.place(call.at().flag).int(0) != 0);
    let index = call.place(call.at().index);
    let is_failed = !is_success(result);
    if (is_failed || is_done)
        && let Ok(index) = usize::try_from(index.int(0))
        && index < many.count
        && let Some(asked) = many.take(index)
    {
        let status = call.word(call.at().status);
        Many::end(many);
        if is_failed {
            let now = call.place(call.at().request).handle(&mpi.abi, index);
            fail(mpi, asked, now, result as u32 as i32, status);
            frame.leave();
        } else {
            leave_with_one(frame, mpi, asked, status);
        }
        return result;
    }
    Many::end(many);
    frame.leave();
    result
}

/// Waits for one of many requests.
#[inline(never)]
pub(crate) fn waitany<const N: usize, S: Site>(call: Call<N, S>) -> usize {
    let frame = Frame::begin(call.index());
    frame.enter();
    if let Some(mpi) = frame.mpi {
        return any(frame, mpi, call, false);
    }
    let result = call.forward();
    frame.leave();
    result
}

/// Tests whether one of many requests is complete.
#[inline(never)]
pub(crate) fn testany<const N: usize, S: Site>(call: Call<N, S>) -> usize {
    let frame = Frame::begin(call.index());
    frame.enter();
    if let Some(mpi) = frame.mpi {
        return any(frame, mpi, call, true);
    }
    let result = call.forward();
    frame.leave();
    result
}

/// Waits for some of many requests, or tests whether some are complete.
fn some<const N: usize, S: Site>(mut call: Call<N, S>, is_waiting: bool) -> usize {
    let frame = Frame::begin(call.index());
    let Some(mpi) = frame.mpi else {
        return frame.pass(&call);
    };
    frame.enter();
    let mut many = Many::begin(mpi, &mut call, true);
    if is_waiting {
        many.record(mpi);
    }
    let result = call.forward();
    let outcount = call.place(call.at().outcount).int(0);
    if (is_success(result) || mpi.is_in_status(result))
        && let Ok(outcount) = usize::try_from(outcount)
    {
        let indices: CallerMemory = call.place(call.at().index);
        for number in 0..outcount.min(many.count) {
            let index = usize::try_from(indices.int(number)).unwrap_or(usize::MAX);
            let Some(asked) = many.take(index) else {
                continue;
            };
            let status = status_of(mpi, call.word(call.at().status), number);
            let error = mpi.status_int(status_at(status), mpi.abi.error_at);
            if is_success(result) || error == 0 {
                complete(mpi, asked, status);
            } else {
                let now = call.place(call.at().request).handle(&mpi.abi, index);
                fail(mpi, asked, now, error, status);
            }
        }
    }
    Many::end(many);
    frame.leave();
    result
}

/// Waits for at least one of many requests.
#[inline(never)]
pub(crate) fn waitsome<const N: usize, S: Site>(call: Call<N, S>) -> usize {
    some(call, true)
}

/// Tests which of many requests are complete.
#[inline(never)]
pub(crate) fn testsome<const N: usize, S: Site>(call: Call<N, S>) -> usize {
    some(call, false)
}

/// Frees a request. The operation continues, and its completion is not reported.
#[inline(never)]
pub(crate) fn request_free<const N: usize, S: Site>(call: Call<N, S>) -> usize {
    let frame = Frame::begin(call.index());
    frame.enter();
    let taken = frame.mpi.and_then(|mpi| {
        let handle = call.place(call.at().request).handle(&mpi.abi, 0);
        Some((mpi, handle, requests::take(handle)?))
    });
    let mut status = OwnStatus::new();
    // A request that is complete or was cancelled has no other end.
    let done = taken.and_then(|(mpi, handle, record)| {
        let is_asked = record.is_cancelling || record.kind == RequestKind::Receive;
        let status = status.place();
        let is_done = record.is_active
            && is_asked
            && mpi
                .pmpi
                .is_complete(handle, std::ptr::with_exposed_provenance_mut(status));
        is_done.then(|| outcome(mpi, &record, status))
    });
    let result = call.forward();
    if let Some((mpi, handle, record)) = taken {
        match done {
            _ if !is_success(result) => requests::put(handle, record),
            done => {
                requests::end(&record);
                done.iter().for_each(|outcome| raise(mpi, outcome));
            }
        }
    }
    frame.leave();
    result
}

/// Requests the cancellation of a request. Its completion reports whether it was cancelled.
#[inline(never)]
pub(crate) fn cancel<const N: usize, S: Site>(call: Call<N, S>) -> usize {
    let frame = Frame::begin(call.index());
    frame.enter();
    if let Some(mpi) = frame.mpi {
        let handle = call.place(call.at().request).handle(&mpi.abi, 0);
        if let Some(record) = requests::take(handle) {
            let record = Record {
                is_cancelling: true,
                ..record
            };
            requests::put(handle, record);
        } else {
            // Another thread has it, in a call that waits for its completion.
            requests::expect_cancelled();
        }
    }
    let result = call.forward();
    frame.leave();
    result
}
