//! Event types that were added to a recorder: what a program raises events with.

use std::marker::PhantomData;

use annals_format::EventTypeId;

/// An event type whose elements are known at compile time.
#[derive(Debug)]
pub struct EventType<E> {
    pub(crate) id: EventTypeId,
    pub(crate) recorder: u32,
    pub(crate) elements: PhantomData<fn(E)>,
}

impl<E> Clone for EventType<E> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<E> Copy for EventType<E> {}

impl<E> EventType<E> {
    /// Returns its number in the recording.
    pub const fn id(&self) -> EventTypeId {
        self.id
    }
}

/// An event type whose elements are known at run time only.
#[derive(Clone, Copy, Debug)]
pub struct DynamicEventType {
    pub(crate) id: EventTypeId,
    pub(crate) recorder: u32,
}

impl DynamicEventType {
    /// Returns its number in the recording.
    pub const fn id(&self) -> EventTypeId {
        self.id
    }
}

/// A metric: an event type with the role [`annals_format::Role::Metric`] and one element `value`.
#[derive(Clone, Copy, Debug)]
pub struct Metric<T>(pub(crate) EventType<(T,)>);

impl<T> Metric<T> {
    /// Returns its event type's number, as [`crate::Recorder::report_dropped`] takes it.
    pub const fn id(&self) -> EventTypeId {
        self.0.id()
    }
}
