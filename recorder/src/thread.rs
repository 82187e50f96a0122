//! The calling thread's streams, found through one thread-local pointer.
#![expect(
    unsafe_code,
    reason = "the thread's state hangs on a raw pointer so that thread-local storage has no destructor"
)]

use std::cell::{Cell, RefCell};
use std::ffi::c_void;
use std::ptr::null;
use std::sync::Arc;

use annals_format::{EventTypeId, SourceId};

use crate::row::RowCursor;
use crate::shared::Shared;
use crate::stream::StreamState;
use crate::sys::ThreadPointer;

/// Recorder and source of a stream, in one comparison.
type StreamKey = u64;

fn key_of(shared: &Shared, source: SourceId) -> StreamKey {
    u64::from(shared.number) << 32 | u64::from(source.get())
}

#[derive(Debug)]
struct ThreadState {
    last_key: Cell<StreamKey>,
    last: Cell<*const StreamState>,
    streams: RefCell<Vec<(StreamKey, Box<StreamState>)>>,
}

static THREAD: ThreadPointer = ThreadPointer::new(thread_ended);

/// Stands in the thread's pointer once its streams are closed.
const ENDED: *const c_void = std::ptr::dangling::<c_void>();

extern "C" fn thread_ended(pointer: *mut c_void) {
    // A panic must not cross into the C library.
    let _ = std::panic::catch_unwind(|| {
        if pointer.is_null() || pointer.cast_const() == ENDED {
            return;
        }
        // SAFETY: the pointer was made by `Box::into_raw` in `open` for this thread, and is taken
        // back once: the key's value was cleared before this call.
        let state = unsafe { Box::from_raw(pointer.cast::<ThreadState>()) };
        THREAD.set(ENDED, false);
        for (_, stream) in state.streams.borrow().iter() {
            stream.close();
        }
    });
}

/// Raises an event on the calling thread's stream of a source.
#[inline]
pub(crate) fn raise(
    shared: &Arc<Shared>,
    source: SourceId,
    event_type: EventTypeId,
    tick: Option<u64>,
    bound: usize,
    put: impl FnOnce(&mut RowCursor),
) {
    let pointer = THREAD.get().cast::<ThreadState>();
    if !pointer.is_null() && pointer.cast::<c_void>() != ENDED {
        // SAFETY: set by `open` for this thread and valid until the thread's end.
        let state = unsafe { &*pointer };
        if state.last_key.get() == key_of(shared, source) {
            // SAFETY: points at a boxed stream in `streams`, which only grows or drops streams whose
            // key is not `last_key`.
            let stream = unsafe { &*state.last.get() };
            stream.raise(event_type, tick, bound, put);
            return;
        }
    }
    raise_elsewhere(shared, source, event_type, tick, bound, put);
}

#[cold]
fn raise_elsewhere(
    shared: &Arc<Shared>,
    source: SourceId,
    event_type: EventTypeId,
    tick: Option<u64>,
    bound: usize,
    put: impl FnOnce(&mut RowCursor),
) {
    if !shared.guard.is_on() {
        shared.count_after_cut();
        return;
    }
    let stream = find_or_open(shared, source);
    if stream.is_null() {
        shared.count_without_stream(source, event_type);
        return;
    }
    // SAFETY: as in `raise`: the stream is boxed in this thread's state.
    unsafe { &*stream }.raise(event_type, tick, bound, put);
}

fn find_or_open(shared: &Arc<Shared>, source: SourceId) -> *const StreamState {
    let mut pointer = THREAD.get();
    if pointer == ENDED {
        return null();
    }
    if pointer.is_null() {
        let state = Box::new(ThreadState {
            last_key: Cell::new(0),
            last: Cell::new(null()),
            streams: RefCell::new(Vec::new()),
        });
        pointer = Box::into_raw(state).cast_const().cast();
        THREAD.set(pointer, true);
    }
    // SAFETY: set above or by an earlier call on this thread.
    let state = unsafe { &*pointer.cast::<ThreadState>() };
    // Borrowed already: a signal handler interrupted this very function.
    let Ok(mut streams) = state.streams.try_borrow_mut() else {
        return null();
    };
    let key = key_of(shared, source);
    let mut found = streams.iter().position(|(other, _)| *other == key);
    if found.is_none() {
        // Streams of recorders that are finished, or that a fork left behind, are of no more use.
        state.last_key.set(0);
        streams.retain(|(_, stream)| stream.shared.guard.is_on());
        let Ok(stream) = shared.open_stream(source) else {
            return null();
        };
        streams.push((key, Box::new(stream)));
        found = Some(streams.len() - 1);
    }
    let stream: *const StreamState = found.map_or(null(), |index| &raw const *streams[index].1);
    state.last.set(stream);
    state.last_key.set(key);
    stream
}
