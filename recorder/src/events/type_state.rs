//! Event types as raises see them: their elements, and their registrations.

use std::sync::atomic::AtomicU32;
use std::sync::{Arc, OnceLock};

use super::event_info::EventTypeData;
use super::instance::Data;
use super::registration::Slot;
use super::types::Value;

/// An event type, with its registrations.
#[derive(Debug)]
pub(crate) struct TypeState {
    pub(crate) data: EventTypeData,
    /// The number of live registrations.
    pub(crate) wanted: AtomicU32,
    /// The first of the list of places for registrations.
    pub(crate) first: OnceLock<Arc<Slot>>,
}

impl TypeState {
    pub(crate) const fn new(data: EventTypeData) -> Self {
        Self {
            data,
            wanted: AtomicU32::new(0),
            first: OnceLock::new(),
        }
    }

    /// Returns all places for registrations, used or not.
    #[inline]
    pub(crate) fn slots(&self) -> impl Iterator<Item = &Slot> {
        let first = self.first.get();
        std::iter::successors(first, |slot| slot.next.get()).map(Arc::as_ref)
    }

    /// Returns whether there are as many values as elements, of their types.
    #[inline(always)]
    pub(crate) fn fits(&self, data: Data<'_>) -> bool {
        match data {
            Data::Values(values) => self.fits_values(values),
            Data::Memory(memory) => memory.len() >= self.data.info.extent(),
        }
    }

    #[inline(always)]
    pub(crate) fn fits_values(&self, values: &[Value]) -> bool {
        let datatypes = &self.data.info.datatypes;
        values.len() == datatypes.len()
            && values
                .iter()
                .zip(datatypes)
                .all(|(value, datatype)| value.datatype() == *datatype)
    }
}
