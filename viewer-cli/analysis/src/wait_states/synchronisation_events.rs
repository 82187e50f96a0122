//! Events of locks, of fences and of the ends of sends, by their types.

use annals_format::names::element;
use annals_format::{
    CallPathId, Definitions, EventTypeId, ObjectId, OrderedChunk, Reference, Role,
};

use super::teams::FenceKey;

/// Name of the event type of calls that synchronise a window, in recordings of MPI.
pub(crate) const WINDOW_SYNC: &str = "mpi.window_sync";

/// The event types of locks.
#[derive(Default)]
pub(super) struct LockTypes {
    /// Event type, whether it acquires the lock, and which element is its number.
    types: Vec<(EventTypeId, bool, usize)>,
}

/// An event of a lock.
#[derive(Clone, Copy)]
pub(super) struct LockEvent {
    pub(super) is_acquire: bool,
    pub(super) lock: u64,
}

impl LockTypes {
    pub(super) fn of(definitions: &Definitions) -> Self {
        let types = definitions.event_types.values();
        let of = types.filter(|of| matches!(of.role, Role::Acquire | Role::Release));
        let types = of.filter_map(|of| {
            let lock = definitions.element(of.id, element::LOCK_ID)?;
            Some((of.id, of.role == Role::Acquire, lock))
        });
        Self {
            types: types.collect(),
        }
    }

    /// Returns what an event does to a lock. `None` for other events.
    pub(super) fn event(&self, chunk: &OrderedChunk, event: usize) -> Option<LockEvent> {
        if self.types.is_empty() {
            return None;
        }
        let event_type = chunk.columns(event).event_type;
        let known = self.types.iter().find(|known| known.0 == event_type);
        let (_, is_acquire, column) = *known?;
        let lock = integer(chunk, event, column)?;
        Some(LockEvent {
            is_acquire,
            lock: lock as u64,
        })
    }
}

/// The event types of samples.
#[derive(Default)]
pub(super) struct SampleTypes {
    /// Event type, and which elements are the call path and its time: with that in which the thread could have run.
    types: Vec<(EventTypeId, usize, [Option<usize>; 2])>,
}

impl SampleTypes {
    pub(super) fn of(definitions: &Definitions) -> Self {
        let types = definitions.event_types.values();
        let types = types.filter(|of| of.role == Role::Sample);
        let types = types.filter_map(|of| {
            let path = definitions.element(of.id, element::CALL_PATH)?;
            let times = [element::WEIGHT, element::PREEMPTED];
            let times = times.map(|name| definitions.element(of.id, name));
            Some((of.id, path, times))
        });
        Self {
            types: types.collect(),
        }
    }

    /// Returns the call path of a sample, and how long the thread ran or could have run since the one before, nanoseconds. `None` for other
    /// events.
    pub(super) fn sample(&self, chunk: &OrderedChunk, event: usize) -> Option<(CallPathId, i64)> {
        if self.types.is_empty() {
            return None;
        }
        let event_type = chunk.columns(event).event_type;
        let known = self.types.iter().find(|known| known.0 == event_type);
        let (_, path, times) = *known?;
        let path = u32::try_from(integer(chunk, event, path)?).ok()?;
        let times = times.into_iter().flatten();
        let ns = times.filter_map(|time| i64::try_from(integer(chunk, event, time)?).ok());
        Some((CallPathId::new(path), ns.fold(0, i64::saturating_add)))
    }
}

/// The event types of calls that synchronise a window: those of `mpi.window_sync`.
#[derive(Default)]
pub(super) struct FenceTypes {
    /// Event type, and which elements are the window and the number of the fence.
    types: Vec<(EventTypeId, usize, usize)>,
}

impl FenceTypes {
    pub(super) fn of(definitions: &Definitions) -> Self {
        let types = definitions.event_types.values();
        let types = types.filter(|of| definitions.string(of.name) == WINDOW_SYNC);
        let types = types.filter_map(|of| {
            let window = definitions.element(of.id, "window")?;
            let number = definitions.element(of.id, element::SEQUENCE)?;
            (of.elements[window].reference == Reference::Object).then_some((of.id, window, number))
        });
        Self {
            types: types.collect(),
        }
    }

    /// Returns the fence that an event is of. `None` for other events.
    pub(super) fn fence(
        &self,
        definitions: &Definitions,
        chunk: &OrderedChunk,
        event: usize,
    ) -> Option<FenceKey> {
        if self.types.is_empty() {
            return None;
        }
        let event_type = chunk.columns(event).event_type;
        let known = self.types.iter().find(|known| known.0 == event_type);
        let (_, window, number) = *known?;
        let window = integer(chunk, event, window)?;
        let window = ObjectId::new(u32::try_from(window).ok()?);
        // Calls of other functions have none.
        let number = u64::try_from(integer(chunk, event, number)?).ok()?;
        Some((definitions.objects.get(&window)?.name, number))
    }
}

/// The event types that say that a send with a request has ended.
#[derive(Default)]
pub(super) struct SendEndTypes {
    /// Event type, and which element is the request.
    types: Vec<(EventTypeId, usize)>,
}

impl SendEndTypes {
    pub(super) fn of(definitions: &Definitions) -> Self {
        let types = definitions.event_types.values();
        let types = types.filter(|of| of.role == Role::SendEnd);
        let types =
            types.filter_map(|of| Some((of.id, definitions.element(of.id, element::REQUEST)?)));
        Self {
            types: types.collect(),
        }
    }

    /// Returns the request of the send that has ended. `None` for other events.
    pub(super) fn request(&self, chunk: &OrderedChunk, event: usize) -> Option<u64> {
        if self.types.is_empty() {
            return None;
        }
        let event_type = chunk.columns(event).event_type;
        let (_, request) = *self.types.iter().find(|known| known.0 == event_type)?;
        Some(integer(chunk, event, request)? as u64)
    }
}

/// Returns the integer that an event has as the value of an element.
fn integer(chunk: &OrderedChunk, event: usize, element: usize) -> Option<i128> {
    let column = chunk.columns(event).columns.get(element)?;
    column.integer(chunk.ordinal(event))
}
