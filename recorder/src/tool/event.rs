//! Event types, and raising their events (MPI 4.1 §16.3.8.3).

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use annals_format::Verbosity;

use super::enumeration::Enumeration;
use super::error::{Error, Result};
use super::instance::{Data, Instance};
use super::registration::{Lost, Slot};
use super::runtime::Runtime;
use super::source::{Source, SourceState};
use super::types::{Bind, Datatype, Info, ObjectHandle, Safety, Value};

/// In place of a runtime's stamp: all registrations came before.
const EVER: u64 = u64::MAX;

/// Most elements of an event type.
const MAX_ELEMENTS: usize = 255;

#[derive(Clone, Debug)]
struct ElementSpec {
    name: String,
    datatype: Datatype,
    displacement: Option<usize>,
}

/// An event type, to be added.
#[derive(Clone, Debug)]
pub struct EventTypeSpec {
    pub(crate) name: String,
    description: String,
    verbosity: Verbosity,
    elements: Vec<ElementSpec>,
    bind: Bind,
    hints: Info,
    callback_hints: Info,
}

impl EventTypeSpec {
    /// An event type with this name, without elements.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            description: String::new(),
            verbosity: Verbosity::UserBasic,
            elements: Vec::new(),
            bind: Bind::NoObject,
            hints: Info::new(),
            callback_hints: Info::new(),
        }
    }

    /// Says what it tells.
    #[must_use]
    pub fn description(mut self, description: impl Into<String>) -> Self {
        self.description = description.into();
        self
    }

    /// Says for whom it is.
    #[must_use]
    pub const fn verbosity(mut self, verbosity: Verbosity) -> Self {
        self.verbosity = verbosity;
        self
    }

    /// Adds an element, behind the ones before it where C puts it.
    #[must_use]
    pub fn element(mut self, name: impl Into<String>, datatype: Datatype) -> Self {
        self.elements.push(ElementSpec {
            name: name.into(),
            datatype,
            displacement: None,
        });
        self
    }

    /// Adds an element so many bytes behind the start.
    #[must_use]
    pub fn element_at(
        mut self,
        name: impl Into<String>,
        datatype: Datatype,
        displacement: usize,
    ) -> Self {
        self.elements.push(ElementSpec {
            name: name.into(),
            datatype,
            displacement: Some(displacement),
        });
        self
    }

    /// Says what kind of object its registrations are bound to.
    #[must_use]
    pub const fn bind(mut self, bind: Bind) -> Self {
        self.bind = bind;
        self
    }

    /// Supports a hint of registrations, with its default. Others are ignored.
    #[must_use]
    pub fn hint(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.hints.set(key, value);
        self
    }

    /// Supports a hint of callbacks, with its default. Others are ignored.
    #[must_use]
    pub fn callback_hint(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.callback_hints.set(key, value);
        self
    }

    /// Names of the elements.
    pub(crate) fn element_names(&self) -> impl Iterator<Item = &str> {
        self.elements.iter().map(|element| element.name.as_str())
    }

    /// Where the elements lie; ascending from 0, and none in another one.
    fn displacements(&self) -> Result<Vec<usize>> {
        let mut end = 0_usize;
        let mut displacements = Vec::new();
        for element in &self.elements {
            let size = element.datatype.size();
            let at = element
                .displacement
                .unwrap_or_else(|| end.next_multiple_of(size));
            if at < end || (displacements.is_empty() && at != 0) {
                return Err(Error::Invalid);
            }
            displacements.push(at);
            end = at.checked_add(size).ok_or(Error::Invalid)?;
        }
        Ok(displacements)
    }

    /// Whether names and numbers are such as the interface has them.
    pub(crate) fn check(&self) -> Result<()> {
        let has_nul = |text: &str| text.contains('\0');
        let mut names: Vec<&str> = self.element_names().collect();
        names.sort_unstable();
        let is_good = !self.name.is_empty()
            && !has_nul(&self.name)
            && !has_nul(&self.description)
            && names.iter().all(|name| !name.is_empty() && !has_nul(name))
            && names.windows(2).all(|pair| pair[0] != pair[1])
            && names.len() <= MAX_ELEMENTS;
        if is_good { Ok(()) } else { Err(Error::Invalid) }
    }
}

/// What an event type is; the same for ever.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct EventInfo {
    /// Its name; no other event type has it.
    pub name: String,
    /// What it tells; may be empty.
    pub description: String,
    /// For whom it is.
    pub verbosity: Verbosity,
    /// Types of its elements.
    pub datatypes: Vec<Datatype>,
    /// Where they lie in a copy, bytes; ascending from 0.
    pub displacements: Vec<usize>,
    /// Names of the elements: the item with the value *i* names element *i*. None without elements.
    pub enumeration: Option<Enumeration>,
    /// What kind of object its registrations are bound to.
    pub bind: Bind,
    /// The hints of registrations that it supports, with their defaults.
    pub info: Info,
}

impl EventInfo {
    /// Bytes that a copy of an instance takes.
    pub fn extent(&self) -> usize {
        let last = self.displacements.last().zip(self.datatypes.last());
        last.map_or(0, |(displacement, datatype)| displacement + datatype.size())
    }
}

/// An event type, as raises see it.
#[derive(Debug)]
pub(crate) struct TypeState {
    pub(crate) index: usize,
    pub(crate) info: EventInfo,
    pub(crate) callback_hints: Info,
    /// How many registrations are live.
    pub(crate) wanted: AtomicU32,
    pub(crate) first: OnceLock<Arc<Slot>>,
}

impl TypeState {
    pub(crate) fn new(
        index: usize,
        spec: &EventTypeSpec,
        enumeration: Option<Enumeration>,
    ) -> Result<Self> {
        Ok(Self {
            index,
            info: EventInfo {
                name: spec.name.clone(),
                description: spec.description.clone(),
                verbosity: spec.verbosity,
                datatypes: spec.elements.iter().map(|e| e.datatype).collect(),
                displacements: spec.displacements()?,
                enumeration,
                bind: spec.bind,
                info: spec.hints.clone(),
            },
            callback_hints: spec.callback_hints.clone(),
            wanted: AtomicU32::new(0),
            first: OnceLock::new(),
        })
    }

    #[inline]
    pub(crate) fn is_bound(&self) -> bool {
        self.info.bind != Bind::NoObject
    }

    /// All places for registrations, used or not.
    #[inline]
    pub(crate) fn slots(&self) -> impl Iterator<Item = &Slot> {
        let first = self.first.get();
        std::iter::successors(first, |slot| slot.next.get()).map(Arc::as_ref)
    }

    /// Whether there are as many values as elements, of their types.
    #[inline(always)]
    fn fits(&self, data: Data<'_>) -> bool {
        match data {
            Data::Values(values) => self.fits_values(values),
            Data::Memory(memory) => memory.len() >= self.info.extent(),
        }
    }

    #[inline(always)]
    fn fits_values(&self, values: &[Value]) -> bool {
        let datatypes = &self.info.datatypes;
        values.len() == datatypes.len()
            && values
                .iter()
                .zip(datatypes)
                .all(|(value, datatype)| value.datatype() == *datatype)
    }
}

/// How an event is raised, where it is not simply now.
#[derive(Clone, Copy, Default, Debug)]
pub struct Raising {
    /// When it was observed, in ticks of its source's clock; none: now.
    pub observed: Option<u64>,
    /// The object that it is about; events of a bound type have one.
    pub object: Option<ObjectHandle>,
}

/// An event type, for whoever raises its events. Cheap to clone.
#[derive(Clone, Debug)]
pub struct EventType {
    pub(crate) state: Arc<TypeState>,
    pub(crate) runtime: Runtime,
}

impl EventType {
    /// Its index.
    pub fn index(&self) -> i32 {
        self.state.index as i32
    }

    /// Bytes that its elements take in memory.
    pub fn extent(&self) -> usize {
        self.state.info.extent()
    }

    /// Whether anybody is registered for it: for whoever must do work to raise an event.
    #[inline]
    pub fn is_wanted(&self) -> bool {
        self.state.wanted.load(Ordering::Relaxed) != 0
    }

    /// Raises an event: calls back whoever is registered, on this thread, in a context with this
    /// requirement. Where nobody is registered, it costs a load and a branch. It takes no lock and
    /// allocates nothing; safe in signal handlers, at [`Safety::AsyncSignalSafe`].
    ///
    /// # Errors
    /// [`Error::Invalid`] if the values do not fit the event type or it is bound,
    /// [`Error::NotSupported`] if the source has no clock; nobody is called then. Not looked at where
    /// nobody is registered.
    #[inline(always)]
    pub fn raise(&self, source: &Source, required: Safety, values: &[Value]) -> Result<()> {
        if self.is_wanted() {
            return self.raise_now(source, required, values);
        }
        Ok(())
    }

    /// The same, for an object, or observed at some time.
    ///
    /// # Errors
    /// As [`EventType::raise`]; [`Error::Invalid`] also without an object where the type is bound.
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

    /// The same with the elements as they lie in memory: at the event type's displacements.
    ///
    /// # Errors
    /// As [`EventType::raise_with`]; [`Error::Invalid`] also if the memory is shorter than the
    /// [extent](EventInfo::extent).
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

    /// Observes an event now, and keeps it until [`Source::deliver`] calls back for it: where callbacks
    /// cannot be called, or should not be. Safe in signal handlers; at most 512 bytes of elements. Where
    /// there is no room, it is counted as dropped. Registrations that come later do not get it.
    ///
    /// # Errors
    /// As [`EventType::raise_with`]; [`Error::NotSupported`] also if the source has no
    /// [buffer](super::SourceSpec::buffered).
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

    /// The same with the elements as they lie in memory.
    ///
    /// # Errors
    /// As [`EventType::raise_deferred`] and [`EventType::raise_memory`].
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

    /// Counts events that the source lost before it could raise them, for every registration that has a
    /// dropped handler and, where the type is bound, this object; it is told before the source's next event.
    pub fn report_dropped(&self, source: &Source, object: Option<ObjectHandle>, count: u64) {
        if self.is_wanted() && source.runtime.is(&self.runtime) {
            self.lose(&source.state, object, Lost::Reported, count);
        }
    }

    fn lose(&self, source: &SourceState, object: Option<ObjectHandle>, lost: Lost, count: u64) {
        let is_bound = self.state.is_bound();
        let object = object.map(|object| object.0);
        for slot in self.state.slots() {
            if slot.life.live_key().is_some() && slot.is_for(object, is_bound) {
                slot.lose(source, lost, count);
            }
        }
    }

    #[inline(always)]
    fn check(&self, source: &Source, raising: Raising, data: Data<'_>) -> Result<()> {
        if !self.state.fits(data)
            || (self.state.is_bound() && raising.object.is_none())
            || !source.runtime.is(&self.runtime)
        {
            return Err(Error::Invalid);
        }
        if raising.observed.is_none() && !source.state.has_clock() {
            return Err(Error::NotSupported);
        }
        Ok(())
    }

    /// Numbers in registers: a structure that was just written, and is read in other pieces, would hold up
    /// the processor (benches/tool_path). What nearly all events are is found out in one place; the rest goes
    /// the long way.
    #[inline(never)]
    fn raise_now(&self, source: &Source, required: Safety, values: &[Value]) -> Result<()> {
        let is_plain = source.state.is_plain
            && !self.state.is_bound()
            && source.runtime.is(&self.runtime)
            && self.state.fits_values(values);
        if !is_plain {
            let data = Data::Values(values);
            return self.dispatch_any(source, required, Raising::default(), data);
        }
        let instance = Instance {
            event_type: &self.state,
            source: &source.state,
            values,
            memory: &[],
            object: None,
            tick: Cell::new(None),
        };
        self.runtime.call_back(&instance, required, false, EVER);
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
            // What was observed before must be told before.
            return self.defer(source, raising, data);
        }
        let observed = if state.is_sequenced() {
            Some(state.stamp(raising.observed)?)
        } else {
            raising.observed
        };
        let (values, memory) = data.parts();
        let instance = Instance {
            event_type: &self.state,
            source: state,
            values,
            memory,
            object: raising.object,
            tick: Cell::new(observed),
        };
        let is_bound = self.state.is_bound();
        self.runtime.call_back(&instance, required, is_bound, EVER);
        Ok(())
    }

    #[cold]
    fn defer(&self, source: &Source, raising: Raising, data: Data<'_>) -> Result<()> {
        self.check(source, raising, data)?;
        self.runtime
            .defer(&source.state, &self.state, raising, data)
            .map(|is_kept| {
                if !is_kept {
                    self.lose(&source.state, raising.object, Lost::Undelivered, 1);
                }
            })
    }
}
