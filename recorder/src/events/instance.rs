//! An instance of an event, as callbacks see it (MPI 4.1 §16.3.8.6 and §16.3.8.7).

use std::cell::Cell;

use super::error::{Error, Result};
use super::event_info::EventTypeData;
use super::source::SourceState;
use super::types::{ObjectHandle, Value};

/// The elements of an instance, as its producer has them.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Data<'a> {
    /// In the order of the elements; they fit the event type.
    Values(&'a [Value]),
    /// As C code has them: at the event type's displacements, and of its extent.
    Memory(&'a [u8]),
}

/// How an event is raised, where it is not simply now.
#[derive(Clone, Copy, Default, Debug)]
pub struct Raising {
    /// When it was observed, in ticks of its source's clock.
    /// `None` means now.
    pub observed: Option<u64>,
    /// The object that it is about; events of a bound type have one.
    pub object: Option<ObjectHandle>,
}

/// An instance of an event; valid for the callback that is called with it.
#[derive(Debug)]
pub struct Instance<'a> {
    pub(crate) event_type: &'a EventTypeData,
    pub(crate) source: &'a SourceState,
    /// The elements, in their order; or, if that is empty, as they lie in memory. Two fields and no
    /// enumeration: stored and read in the same pieces (benches/event_interface).
    pub(crate) values: &'a [Value],
    pub(crate) memory: &'a [u8],
    pub(crate) object: Option<ObjectHandle>,
    /// The time, once it is known.
    pub(crate) tick: Cell<Option<u64>>,
}

impl<'a> Data<'a> {
    /// Values and memory, one of them empty.
    #[inline(always)]
    pub(crate) const fn parts(self) -> (&'a [Value], &'a [u8]) {
        match self {
            Self::Values(values) => (values, &[]),
            Self::Memory(memory) => (&[], memory),
        }
    }
}

impl Instance<'_> {
    /// Returns the index of its event type.
    pub fn event_type(&self) -> i32 {
        self.event_type.index as i32
    }

    /// Returns how many elements it has.
    pub fn element_count(&self) -> usize {
        self.event_type.info.datatypes.len()
    }

    /// Returns the object that it is about, if its event type is bound.
    pub fn object(&self) -> Option<ObjectHandle> {
        self.object
    }

    /// Reads one element (`EVENT_READ`).
    ///
    /// # Errors
    /// [`Error::InvalidIndex`] if there is no such element.
    #[inline]
    pub fn read(&self, element: usize) -> Result<Value> {
        let value = match self.values.get(element) {
            Some(value) => Some(*value),
            None => self.in_memory(self.memory, element),
        };
        value.ok_or(Error::InvalidIndex)
    }

    fn in_memory(&self, memory: &[u8], element: usize) -> Option<Value> {
        let info = &self.event_type.info;
        let datatype = *info.datatypes.get(element)?;
        Value::get(datatype, memory.get(info.displacements[element]..)?)
    }

    /// Copies all elements to their displacements (`EVENT_COPY`); what lies between them stays.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the buffer is shorter than the event type's
    /// [extent](super::EventInfo::extent); nothing is copied then.
    pub fn copy(&self, to: &mut [u8]) -> Result<()> {
        let info = &self.event_type.info;
        if to.len() < info.extent() {
            return Err(Error::Invalid);
        }
        for (element, displacement) in info.displacements.iter().enumerate() {
            self.read(element)?.put(&mut to[*displacement..]);
        }
        Ok(())
    }

    /// Returns when it was observed, in ticks of its source (`EVENT_GET_TIMESTAMP`).
    /// Unless the instance was delivered late, or its producer set the time, the source's clock is
    /// read now, and once for all callers.
    ///
    /// # Errors
    /// None where the producer kept to the rules: without a clock, instances have a time.
    #[inline]
    pub fn timestamp(&self) -> Result<u64> {
        if let Some(tick) = self.tick.get() {
            return Ok(tick);
        }
        let tick = self.source.stamp(None)?;
        self.tick.set(Some(tick));
        Ok(tick)
    }

    /// Returns the time, if it is known already: without reading a clock.
    #[inline]
    pub fn known_timestamp(&self) -> Option<u64> {
        self.tick.get()
    }

    /// Returns the index of the source that raised it (`EVENT_GET_SOURCE`).
    #[inline]
    pub fn source(&self) -> i32 {
        self.source.index as i32
    }
}
