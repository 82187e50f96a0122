//! Event types: adding them, what consumers ask about them, and raising their events (MPI 4.1
//! §16.3.8.3).

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Runtime;
use super::sources::Source;
use crate::events::error::{Error, Result};
use crate::events::event_info::{EventInfo, EventTypeData, EventTypeSpec};
use crate::events::in_progress::resume_panic;
use crate::events::instance::{Data, Instance, Raising};
use crate::events::registration::Lost;
use crate::events::source::SourceState;
use crate::events::type_state::TypeState;
use crate::events::types::{ObjectHandle, Safety, Value};

/// Used in place of a runtime's stamp: all registrations were made before.
const EVER: u64 = u64::MAX;

impl Runtime {
    /// Adds an event type. Its elements' names become an enumeration with the name of the event
    /// type.
    ///
    /// # Errors
    /// [`Error::InvalidName`] if another has its name; [`Error::Invalid`] if a name is empty or
    /// twice there, or the elements overlap or do not ascend from 0; [`Error::NotAccessible`].
    pub fn add_event_type(&self, spec: &EventTypeSpec) -> Result<EventType> {
        let change = self.change()?;
        let shared = &*self.shared;
        spec.check()?;
        if self.event_index(&spec.name).is_ok() {
            return Err(Error::InvalidName);
        }
        let index = shared.event_types.len();
        // Checked before anything is added.
        EventTypeData::new(index, spec, None)?;
        let names: Vec<(i32, &str)> = (0..).zip(spec.element_names()).collect();
        let enumeration = if names.is_empty() {
            None
        } else {
            Some(self.enumerate(&format!("{} elements", spec.name), &names)?)
        };
        let state = Arc::new(TypeState::new(EventTypeData::new(
            index,
            spec,
            enumeration,
        )?));
        let added = shared.event_types.push_with(|_| Arc::clone(&state));
        added.ok_or(Error::OutOfHandles)?;
        drop(change);
        self.notify_watchers();
        Ok(EventType {
            state,
            runtime: self.clone(),
        })
    }

    /// Returns how many event types there are (`EVENT_GET_NUM`).
    /// It only grows.
    pub fn event_count(&self) -> i32 {
        self.shared.event_types.len() as i32
    }

    /// Returns what an event type is (`EVENT_GET_INFO`).
    ///
    /// # Errors
    /// [`Error::InvalidIndex`] if there is none.
    pub fn event_info(&self, index: i32) -> Result<&EventInfo> {
        let event_type = self.shared.event_types.at(index);
        Ok(&event_type.ok_or(Error::InvalidIndex)?.data.info)
    }

    /// Returns the event type that has this name (`EVENT_GET_INDEX`).
    ///
    /// # Errors
    /// [`Error::InvalidName`] if there is none.
    pub fn event_index(&self, name: &str) -> Result<i32> {
        let mut event_types = self.shared.event_types.iter();
        let index = event_types.position(|event_type| event_type.data.info.name == name);
        index.map(|index| index as i32).ok_or(Error::InvalidName)
    }
}

/// An event type, for the producer that raises its events.
/// Cheap to clone.
#[derive(Clone, Debug)]
pub struct EventType {
    state: Arc<TypeState>,
    runtime: Runtime,
}

impl EventType {
    /// Returns its index.
    pub fn index(&self) -> i32 {
        self.state.data.index as i32
    }

    /// Returns the number of bytes that its elements take in memory.
    pub fn extent(&self) -> usize {
        self.state.data.info.extent()
    }

    /// Returns whether there is a registration for it.
    /// For producers that must do work to raise an event.
    #[inline]
    pub fn is_wanted(&self) -> bool {
        self.state.wanted.load(Ordering::Relaxed) != 0
    }

    /// Raises an event: calls all registered callbacks, on this thread, in a context with this
    /// requirement.
    ///
    /// Without a registration, it costs a load and a branch. It takes no lock and allocates
    /// nothing; safe in signal handlers, at [`Safety::AsyncSignalSafe`].
    ///
    /// # Errors
    /// [`Error::Invalid`] if the values do not fit the event type or it is bound,
    /// [`Error::NotSupported`] if the source has no clock; no callback is called then. Not checked
    /// without a registration.
    #[inline(always)]
    pub fn raise(&self, source: &Source, required: Safety, values: &[Value]) -> Result<()> {
        if self.is_wanted() {
            return self.raise_now(source, required, values);
        }
        Ok(())
    }

    /// Raises an event for an object, or observed at a given time.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the values do not fit the event type, or it is bound and there is no
    /// object; [`Error::NotSupported`] if no time is given and the source has no clock. No callback
    /// is called then. Not checked without a registration.
    #[inline(always)]
    pub fn raise_with(
        &self,
        source: &Source,
        required: Safety,
        raising: Raising,
        values: &[Value],
    ) -> Result<()> {
        if self.is_wanted() {
            return self.dispatch_any(source, required, raising, Data::Values(values));
        }
        Ok(())
    }

    /// Raises an event whose elements are in memory, at the event type's displacements.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the memory is shorter than the
    /// [extent](crate::events::EventInfo::extent), or the event type is bound and there is no
    /// object; [`Error::NotSupported`] if no time is given and the source has no clock. No callback
    /// is called then. Not checked without a registration.
    #[inline(always)]
    pub fn raise_memory(
        &self,
        source: &Source,
        required: Safety,
        raising: Raising,
        memory: &[u8],
    ) -> Result<()> {
        if self.is_wanted() {
            return self.dispatch_any(source, required, raising, Data::Memory(memory));
        }
        Ok(())
    }

    /// Observes an event now, and keeps it until [`Source::deliver`] calls back for it: for
    /// contexts in which callbacks cannot be called, or should not be.
    ///
    /// Safe in signal handlers; at most 512 bytes of elements. Without room, the event is counted
    /// as dropped. Registrations that are made later do not get it.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the values do not fit the event type, or it is bound and there is no
    /// object; [`Error::NotSupported`] if the source has no
    /// [buffer](crate::events::SourceSpec::buffered), or no time is given and the source has no
    /// clock. Not checked without a registration.
    #[inline(always)]
    pub fn raise_deferred(
        &self,
        source: &Source,
        raising: Raising,
        values: &[Value],
    ) -> Result<()> {
        if self.is_wanted() {
            return self.defer(source, raising, Data::Values(values));
        }
        Ok(())
    }

    /// Observes an event whose elements are in memory, and keeps it until [`Source::deliver`] calls
    /// back for it.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the memory is shorter than the
    /// [extent](crate::events::EventInfo::extent), or the event type is bound and there is no
    /// object; [`Error::NotSupported`] if the source has no
    /// [buffer](crate::events::SourceSpec::buffered), or no time is given and the source has no
    /// clock. Not checked without a registration.
    #[inline(always)]
    pub fn raise_memory_deferred(
        &self,
        source: &Source,
        raising: Raising,
        memory: &[u8],
    ) -> Result<()> {
        if self.is_wanted() {
            return self.defer(source, raising, Data::Memory(memory));
        }
        Ok(())
    }

    /// Counts events that the source dropped before it could raise them, for every registration
    /// that has a dropped handler and, if the type is bound, this object. They are reported before
    /// the source's next event.
    pub fn report_dropped(&self, source: &Source, object: Option<ObjectHandle>, count: u64) {
        if self.is_wanted() && source.runtime.is(&self.runtime) {
            self.count_lost(&source.state, object, Lost::Reported, count);
        }
    }

    fn count_lost(
        &self,
        source: &SourceState,
        object: Option<ObjectHandle>,
        lost: Lost,
        count: u64,
    ) {
        let is_bound = self.state.data.is_bound();
        let object = object.map(|object| object.0);
        for slot in self.state.slots() {
            if slot.life.live_key().is_some() && slot.is_for(object, is_bound) {
                slot.count_lost(source, lost, count);
            }
        }
    }

    #[inline(always)]
    fn check(&self, source: &Source, raising: Raising, data: Data<'_>) -> Result<()> {
        if !self.state.fits(data)
            || (self.state.data.is_bound() && raising.object.is_none())
            || !source.runtime.is(&self.runtime)
        {
            return Err(Error::Invalid);
        }
        if raising.observed.is_none() && !source.state.has_clock() {
            return Err(Error::NotSupported);
        }
        Ok(())
    }

    /// Raises an event now.
    /// Numbers are passed in registers: a structure that was just written, and is read in other
    /// pieces, would stall the processor (benches/event_interface). The conditions that nearly all
    /// events meet are checked in one place; other events take the slow path.
    #[inline(never)]
    fn raise_now(&self, source: &Source, required: Safety, values: &[Value]) -> Result<()> {
        let is_plain = source.state.is_plain
            && !self.state.data.is_bound()
            && source.runtime.is(&self.runtime)
            && self.state.fits_values(values);
        if !is_plain {
            let data = Data::Values(values);
            return self.dispatch_any(source, required, Raising::default(), data);
        }
        let instance = Instance {
            event_type: &self.state.data,
            source: &source.state,
            values,
            memory: &[],
            object: None,
            tick: Cell::new(None),
        };
        self.runtime
            .call_back(&self.state, &instance, required, false, EVER);
        resume_panic();
        Ok(())
    }

    #[inline(never)]
    fn dispatch_any(
        &self,
        source: &Source,
        required: Safety,
        raising: Raising,
        data: Data<'_>,
    ) -> Result<()> {
        self.dispatch(source, required, raising, data)
    }

    #[inline(always)]
    fn dispatch(
        &self,
        source: &Source,
        required: Safety,
        raising: Raising,
        data: Data<'_>,
    ) -> Result<()> {
        self.check(source, raising, data)?;
        let state = &*source.state;
        if state.ring.is_some() && state.is_ordered() && source.pending() != 0 {
            // Earlier observations must be delivered first.
            return self.defer(source, raising, data);
        }
        let observed = if state.is_sequenced() {
            Some(state.stamp(raising.observed)?)
        } else {
            raising.observed
        };
        let (values, memory) = data.parts();
        let instance = Instance {
            event_type: &self.state.data,
            source: state,
            values,
            memory,
            object: raising.object,
            tick: Cell::new(observed),
        };
        let is_bound = self.state.data.is_bound();
        self.runtime
            .call_back(&self.state, &instance, required, is_bound, EVER);
        resume_panic();
        Ok(())
    }

    #[cold]
    fn defer(&self, source: &Source, raising: Raising, data: Data<'_>) -> Result<()> {
        self.check(source, raising, data)?;
        self.runtime
            .defer(&source.state, &self.state, raising, data)
            .map(|is_kept| {
                if !is_kept {
                    self.count_lost(&source.state, raising.object, Lost::Undelivered, 1);
                }
            })
    }
}
