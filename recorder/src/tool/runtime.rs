//! A runtime: everything that a producer shows and its consumers hold.

use std::cell::Cell;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use super::deferred::Waiting;
use super::enumeration::{Enumeration, EnumerationInfo};
use super::error::{Error, Result};
use super::event::{EventInfo, EventType, EventTypeSpec, Raising, TypeState};
use super::instance::{Data, Instance};
use super::lanes::{Lanes, lanes};
use super::registration::{
    Callback, DropRow, Dropped, FreeFunction, Registration, Slot, current_safety, next_key,
};
use super::source::{Source, SourceInfo, SourceSpec, SourceState};
use super::table::Table;
use super::types::{Bind, Info, ObjectHandle, Safety};
use crate::thread::Inside;

/// An object that events and variables may be bound to, as its producer names it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Object {
    /// What kind of object.
    pub kind: Bind,
    /// Its handle.
    pub handle: ObjectHandle,
    /// Its name.
    pub name: String,
}

type Watcher = Arc<dyn Fn() -> bool + Send + Sync>;

/// What a runtime's clones share.
pub(crate) struct Shared {
    pub(crate) lanes: &'static Lanes,
    pub(crate) sources: Table<Arc<SourceState>>,
    pub(crate) event_types: Table<Arc<TypeState>>,
    slots: Table<Arc<Slot>>,
    pub(crate) enumerations: Table<EnumerationInfo>,
    objects: Table<Object>,
    pub(crate) variables: super::variables::Variables,
    pub(crate) categories: super::category::Categories,
    /// Held by whoever changes what is there.
    changes: Mutex<()>,
    watchers: Mutex<Vec<Watcher>>,
    /// Counts registrations: which came before an instance.
    stamp: AtomicU64,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

/// A producer's whole: its sources, event types, variables and categories, and who is registered for them.
/// Cheap to clone. [`Runtime::process`] is the one that a process has anyhow; others know nothing of it, or
/// of each other.
///
/// Calls that change or allocate something give [`Error::NotAccessible`] inside a callback that must be safe
/// in signal handlers, and in a signal handler that interrupted such a call; freeing a registration, and all
/// that is called with an instance, a source's time, and performance variables, never do.
#[derive(Clone, Debug)]
pub struct Runtime {
    pub(crate) shared: Arc<Shared>,
}

impl Default for Runtime {
    fn default() -> Self {
        Self::new()
    }
}

/// While it lives, its runtime changes.
pub(crate) struct Change<'a> {
    _changes: MutexGuard<'a, ()>,
    _inside: Inside,
}

impl Runtime {
    /// A runtime of its own, with nothing in it.
    pub fn new() -> Self {
        Self {
            shared: Arc::new(Shared {
                lanes: lanes(),
                sources: Table::default(),
                event_types: Table::default(),
                slots: Table::default(),
                enumerations: Table::default(),
                objects: Table::default(),
                variables: super::variables::Variables::default(),
                categories: super::category::Categories::default(),
                changes: Mutex::new(()),
                watchers: Mutex::default(),
                stamp: AtomicU64::new(0),
            }),
        }
    }

    /// The process's own runtime: what the C interface shows.
    pub fn process() -> &'static Self {
        static PROCESS: OnceLock<Runtime> = OnceLock::new();
        PROCESS.get_or_init(Self::new)
    }

    /// Whether both are the same.
    #[inline]
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    /// Whether the calling thread may change something here and now: it is neither in a callback that must
    /// be safe in signal handlers, nor in one that interrupted such a change.
    pub fn can_change(&self) -> bool {
        self.check_allocation().is_ok() && !Inside::begin().was_inside()
    }

    /// Refuses what allocates where that is not safe.
    pub(crate) fn check_allocation(&self) -> Result<()> {
        if current_safety() == Some(Safety::AsyncSignalSafe) {
            return Err(Error::NotAccessible);
        }
        Ok(())
    }

    /// Begins a change, where that is safe.
    pub(crate) fn change(&self) -> Result<Change<'_>> {
        self.check_allocation()?;
        let inside = Inside::begin();
        if inside.was_inside() {
            return Err(Error::NotAccessible);
        }
        let changes = self.shared.changes.lock();
        Ok(Change {
            _changes: changes.unwrap_or_else(PoisonError::into_inner),
            _inside: inside,
        })
    }

    // What producers add.

    /// Adds a source.
    ///
    /// # Errors
    /// [`Error::Invalid`] if its name is empty, its rate 0, or its clock larger than 63 bits, or if it is
    /// sequenced and its clock wraps; [`Error::OutOfHandles`] beyond 256; [`Error::NotAccessible`].
    pub fn add_source(&self, spec: &SourceSpec) -> Result<Source> {
        let change = self.change()?;
        let shared = &*self.shared;
        let index = shared.sources.len();
        let state = Arc::new(SourceState::new(index, spec)?);
        // Counters first: what is dropped of it finds its row.
        for slot in shared.slots.iter() {
            slot.drops.push_with(|_| DropRow::default());
        }
        shared.sources.push_with(|_| Arc::clone(&state));
        drop(change);
        self.tell_watchers();
        Ok(Source {
            state,
            runtime: self.clone(),
        })
    }

    /// Adds an event type. Its elements' names become an enumeration with the name of the event type.
    ///
    /// # Errors
    /// [`Error::InvalidName`] if another has its name; [`Error::Invalid`] if a name is empty or twice there,
    /// or the elements overlap or do not ascend from 0; [`Error::NotAccessible`].
    pub fn add_event_type(&self, spec: &EventTypeSpec) -> Result<EventType> {
        let change = self.change()?;
        let shared = &*self.shared;
        spec.check()?;
        if self.event_index(&spec.name).is_ok() {
            return Err(Error::InvalidName);
        }
        let index = shared.event_types.len();
        // Looked at before anything is added.
        TypeState::new(index, spec, None)?;
        let names: Vec<(i32, &str)> = (0..).zip(spec.element_names()).collect();
        let enumeration = if names.is_empty() {
            None
        } else {
            Some(self.enumerate(&format!("{} elements", spec.name), &names)?)
        };
        let state = Arc::new(TypeState::new(index, spec, enumeration)?);
        let added = shared.event_types.push_with(|_| Arc::clone(&state));
        added.ok_or(Error::OutOfHandles)?;
        drop(change);
        self.tell_watchers();
        Ok(EventType {
            state,
            runtime: self.clone(),
        })
    }

    /// Adds an enumeration of values with names.
    ///
    /// # Errors
    /// [`Error::InvalidName`] if another has its name; [`Error::Invalid`] without items, or if names are
    /// empty or twice there; [`Error::NotAccessible`].
    pub fn add_enumeration(&self, name: &str, items: &[(i32, &str)]) -> Result<Enumeration> {
        let _change = self.change()?;
        self.enumerate(name, items)
    }

    fn enumerate(&self, name: &str, items: &[(i32, &str)]) -> Result<Enumeration> {
        let enumerations = &self.shared.enumerations;
        let info = EnumerationInfo::new(name, items)?;
        if enumerations.iter().any(|known| known.name == name) {
            return Err(Error::InvalidName);
        }
        let handle = Enumeration::new(enumerations.len());
        enumerations
            .push_with(|_| info)
            .ok_or(Error::OutOfHandles)?;
        Ok(handle)
    }

    /// Names an object that things may be bound to, so that consumers know of it. Events and variables may
    /// be bound to others as well.
    ///
    /// # Errors
    /// [`Error::Invalid`] if its kind is none; [`Error::NotAccessible`].
    pub fn add_object(
        &self,
        kind: Bind,
        handle: ObjectHandle,
        name: impl Into<String>,
    ) -> Result<()> {
        let change = self.change()?;
        if kind == Bind::NoObject {
            return Err(Error::Invalid);
        }
        let name = name.into();
        let object = Object { kind, handle, name };
        self.shared.objects.push_with(|_| object);
        drop(change);
        self.tell_watchers();
        Ok(())
    }

    // What consumers ask.

    /// How many sources there are (`SOURCE_GET_NUM`). It only grows.
    pub fn source_count(&self) -> i32 {
        self.shared.sources.len() as i32
    }

    fn source(&self, index: i32) -> Result<&Arc<SourceState>> {
        self.shared.sources.at(index).ok_or(Error::InvalidIndex)
    }

    /// What a source is (`SOURCE_GET_INFO`).
    ///
    /// # Errors
    /// [`Error::InvalidIndex`] if there is none.
    pub fn source_info(&self, index: i32) -> Result<&SourceInfo> {
        Ok(&self.source(index)?.info)
    }

    /// The current time of a source, in its ticks (`SOURCE_GET_TIMESTAMP`).
    ///
    /// # Errors
    /// [`Error::InvalidIndex`] if there is none, [`Error::NotSupported`] if its time cannot be asked for.
    pub fn source_timestamp(&self, index: i32) -> Result<u64> {
        self.source(index)?.now()
    }

    /// How many event types there are (`EVENT_GET_NUM`). It only grows.
    pub fn event_count(&self) -> i32 {
        self.shared.event_types.len() as i32
    }

    /// What an event type is (`EVENT_GET_INFO`).
    ///
    /// # Errors
    /// [`Error::InvalidIndex`] if there is none.
    pub fn event_info(&self, index: i32) -> Result<&EventInfo> {
        let event_type = self.shared.event_types.at(index);
        Ok(&event_type.ok_or(Error::InvalidIndex)?.info)
    }

    /// The event type that has this name (`EVENT_GET_INDEX`).
    ///
    /// # Errors
    /// [`Error::InvalidName`] if there is none.
    pub fn event_index(&self, name: &str) -> Result<i32> {
        let mut event_types = self.shared.event_types.iter();
        let index = event_types.position(|event_type| event_type.info.name == name);
        index.map(|index| index as i32).ok_or(Error::InvalidName)
    }

    /// How many enumerations there are.
    pub fn enumeration_count(&self) -> i32 {
        self.shared.enumerations.len() as i32
    }

    /// What an enumeration is (`ENUM_GET_INFO`).
    ///
    /// # Errors
    /// [`Error::InvalidIndex`] if there is none.
    pub fn enumeration(&self, handle: Enumeration) -> Result<&EnumerationInfo> {
        let enumeration = self.shared.enumerations.at(handle.index());
        enumeration.ok_or(Error::InvalidIndex)
    }

    /// The objects that producers named, the oldest first.
    pub fn objects(&self) -> impl Iterator<Item = &Object> {
        self.shared.objects.iter()
    }

    /// Has `watch` called whenever a source, an event type or an object was added, by whoever added it,
    /// until it returns false.
    pub fn on_change(&self, watch: impl Fn() -> bool + Send + Sync + 'static) {
        let mut watchers = self.watchers();
        watchers.push(Arc::new(watch));
    }

    fn watchers(&self) -> MutexGuard<'_, Vec<Watcher>> {
        let watchers = self.shared.watchers.lock();
        watchers.unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn tell_watchers(&self) {
        let watchers = self.watchers().clone();
        let over = watchers.iter().filter(|watch| !watch());
        let over: Vec<*const ()> = over.map(|watch| Arc::as_ptr(watch).cast()).collect();
        if !over.is_empty() {
            let address = |watch: &Watcher| Arc::as_ptr(watch).cast::<()>();
            self.watchers()
                .retain(|watch| !over.contains(&address(watch)));
        }
    }

    // Registrations.

    /// Registers for an event type (`EVENT_HANDLE_ALLOC`): for this object, if the type is bound; else the
    /// object is ignored. Instances come from the first callback on.
    ///
    /// # Errors
    /// [`Error::InvalidIndex`] if there is no such event type, [`Error::Invalid`] without an object where
    /// the type is bound, [`Error::OutOfHandles`], [`Error::NotAccessible`].
    pub fn handle_alloc(
        &self,
        event_type: i32,
        object: Option<ObjectHandle>,
        hints: &Info,
    ) -> Result<Registration> {
        let _change = self.change()?;
        let shared = &*self.shared;
        let event_type = shared.event_types.at(event_type);
        let event_type = event_type.ok_or(Error::InvalidIndex)?;
        if event_type.is_bound() && object.is_none() {
            return Err(Error::Invalid);
        }
        let object = object.map_or(0, |object| object.0);
        let mut info = event_type.info.info.clone();
        info.update(hints);
        let key = next_key().ok_or(Error::OutOfHandles)?;
        let slot = match event_type.slots().find(|slot| slot.life.is_free()) {
            Some(slot) => slot,
            None => self.add_slot(event_type)?,
        };
        let since = shared.stamp.fetch_add(1, Ordering::SeqCst) + 1;
        let hints = &event_type.callback_hints;
        let registration = slot.begin(key, object, since, info, hints, shared.lanes);
        event_type.wanted.fetch_add(1, Ordering::SeqCst);
        Ok(registration)
    }

    fn add_slot<'a>(&'a self, event_type: &'a TypeState) -> Result<&'a Slot> {
        let shared = &*self.shared;
        let make = |index| Arc::new(Slot::new(index, event_type.index));
        if shared.slots.len() >= 1 << 23 {
            return Err(Error::OutOfHandles);
        }
        let slot = shared.slots.push_with(make).ok_or(Error::OutOfHandles)?;
        for _ in shared.sources.iter() {
            slot.drops.push_with(|_| DropRow::default());
        }
        let mut place = &event_type.first;
        while let Some(slot) = place.get() {
            place = &slot.next;
        }
        let _ = place.set(Arc::clone(slot));
        Ok(slot)
    }

    fn slot(&self, registration: Registration) -> Result<&Slot> {
        let slot = self.shared.slots.get(registration.slot());
        let is_valid = |slot: &&Arc<Slot>| slot.life.is_live(registration.key());
        Ok(slot.filter(is_valid).ok_or(Error::InvalidHandle)?)
    }

    /// Whether a registration handle is one that is not freed.
    pub fn is_registered(&self, registration: Registration) -> bool {
        self.slot(registration).is_ok()
    }

    /// Updates the hints of a registration (`EVENT_HANDLE_SET_INFO`); those that its event type does not
    /// support are ignored.
    ///
    /// # Errors
    /// [`Error::InvalidHandle`], [`Error::NotAccessible`].
    pub fn handle_set_info(&self, registration: Registration, hints: &Info) -> Result<()> {
        let _change = self.change()?;
        self.slot(registration)?
            .with_info(|info| info.update(hints));
        Ok(())
    }

    /// The hints of a registration (`EVENT_HANDLE_GET_INFO`).
    ///
    /// # Errors
    /// [`Error::InvalidHandle`], [`Error::NotAccessible`].
    pub fn handle_get_info(&self, registration: Registration) -> Result<Info> {
        let _change = self.change()?;
        Ok(self.slot(registration)?.with_info(|info| info.clone()))
    }

    /// Sets the callback of a registration for contexts that require no more than `level`
    /// (`EVENT_REGISTER_CALLBACK`), in place of the one before and its hints; none takes it away. Of several,
    /// the one with the lowest level that the context allows is called.
    ///
    /// A callback that was replaced is dropped some time behind its last call, in a call to this runtime.
    ///
    /// # Errors
    /// [`Error::InvalidHandle`], [`Error::NotAccessible`].
    pub fn register_callback(
        &self,
        registration: Registration,
        level: Safety,
        hints: &Info,
        callback: Option<Callback>,
    ) -> Result<()> {
        let _change = self.change()?;
        let shared = &*self.shared;
        let slot = self.slot(registration)?;
        let mut info = Info::new();
        if callback.is_some()
            && let Some(event_type) = shared.event_types.get(slot.event_type)
        {
            info.clone_from(&event_type.callback_hints);
            info.update(hints);
        }
        slot.set_callback(level, info, callback, shared.lanes);
        slot.note_all_untold(shared.sources.iter().map(Arc::as_ref));
        Ok(())
    }

    /// Updates the hints of a callback (`EVENT_CALLBACK_SET_INFO`).
    ///
    /// # Errors
    /// [`Error::InvalidHandle`], [`Error::Invalid`] if no callback has this level, [`Error::NotAccessible`].
    pub fn callback_set_info(
        &self,
        registration: Registration,
        level: Safety,
        hints: &Info,
    ) -> Result<()> {
        let _change = self.change()?;
        let slot = self.slot(registration)?;
        if !slot.has_callback(level) {
            return Err(Error::Invalid);
        }
        slot.with_callback_info(level, |info| info.update(hints));
        Ok(())
    }

    /// The hints of a callback (`EVENT_CALLBACK_GET_INFO`).
    ///
    /// # Errors
    /// [`Error::InvalidHandle`], [`Error::Invalid`] if no callback has this level, [`Error::NotAccessible`].
    pub fn callback_get_info(&self, registration: Registration, level: Safety) -> Result<Info> {
        let _change = self.change()?;
        let slot = self.slot(registration)?;
        if !slot.has_callback(level) {
            return Err(Error::Invalid);
        }
        Ok(slot.with_callback_info(level, |info| info.clone()))
    }

    /// Frees a registration (`EVENT_HANDLE_FREE`): no callback begins from now on. `free_callback` runs once
    /// none is running any more: in here, or in the thread that runs the last one; with what is then
    /// required of it. What was dropped, and not told yet, is told before, if that may be.
    ///
    /// May be called from anywhere, also from the registration's own callbacks; in signal handlers through
    /// [`Runtime::handle_free_raw`].
    ///
    /// # Errors
    /// [`Error::InvalidHandle`]; [`Error::NotAccessible`] in a signal handler, or when very many threads are
    /// in callbacks. The free-callback is not called then.
    pub fn handle_free(
        &self,
        registration: Registration,
        free_callback: Option<impl Fn(Registration, Safety) + Send + Sync + 'static>,
    ) -> Result<()> {
        let freed = match free_callback {
            None => self.free(registration, None, [0; 2]),
            Some(free_callback) => {
                let change = self.change()?;
                let (function, data) = self.slot(registration)?.park(Box::new(free_callback));
                drop(change);
                self.free(registration, Some(function), data)
            }
        };
        if let Ok(_change) = self.change()
            && let Some(slot) = self.shared.slots.get(registration.slot())
        {
            slot.collect(self.shared.lanes);
        }
        freed
    }

    /// The same with a function and two numbers; allocates nothing, and never gives
    /// [`Error::NotAccessible`] for being called in a signal handler.
    ///
    /// # Errors
    /// As [`Runtime::handle_free`].
    pub fn handle_free_raw(
        &self,
        registration: Registration,
        function: Option<FreeFunction>,
        data: [usize; 2],
    ) -> Result<()> {
        self.free(registration, function, data)
    }

    fn free(
        &self,
        registration: Registration,
        function: Option<FreeFunction>,
        data: [usize; 2],
    ) -> Result<()> {
        let shared = &*self.shared;
        let slot = self.slot(registration)?;
        let required = current_safety().unwrap_or(Safety::None);
        for source in shared.sources.iter() {
            slot.tell(source, shared.lanes, required);
        }
        let key = registration.key();
        let wanted = shared.event_types.get(slot.event_type);
        match slot.free(key, function, data, shared.lanes, required) {
            Some(true) => {
                if let Some(event_type) = wanted {
                    event_type.wanted.fetch_sub(1, Ordering::SeqCst);
                }
                Ok(())
            }
            Some(false) => Err(Error::InvalidHandle),
            None => Err(Error::NotAccessible),
        }
    }

    /// Sets who is told what a registration did not get (`EVENT_SET_DROPPED_HANDLER`): before the next event
    /// of that source is raised, in a context that one of the registration's callbacks allows. With none,
    /// drops are neither counted nor told.
    ///
    /// # Errors
    /// [`Error::InvalidHandle`], [`Error::NotAccessible`].
    pub fn set_dropped_handler(
        &self,
        registration: Registration,
        handler: Option<impl Fn(&Dropped) + Send + Sync + 'static>,
    ) -> Result<()> {
        let _change = self.change()?;
        let slot = self.slot(registration)?;
        slot.set_handler(handler, self.shared.lanes);
        Ok(())
    }

    // Raising.

    /// Calls back for an instance, behind the drops of its source. Registrations that came behind `stamp` do
    /// not get it.
    #[inline(always)]
    pub(crate) fn call_back(
        &self,
        instance: &Instance<'_>,
        required: Safety,
        is_bound: bool,
        stamp: u64,
    ) {
        let (source, event_type) = (instance.source, instance.event_type);
        if source.untold.load(Ordering::Acquire) >> required.index() != 0 {
            self.tell_dropped(source, required);
        }
        let mut place = &event_type.first;
        while let Some(slot) = place.get() {
            slot.deliver(instance, required, is_bound, stamp, self.shared.lanes);
            place = &slot.next;
        }
    }

    #[cold]
    #[inline(never)]
    fn tell_dropped(&self, source: &SourceState, required: Safety) {
        // First the marks, then the counts: what is counted meanwhile marks again.
        source.untold.swap(0, Ordering::SeqCst);
        for slot in self.shared.slots.iter() {
            slot.tell(source, self.shared.lanes, required);
        }
    }

    /// Keeps an instance for later; false when there is no room.
    pub(crate) fn defer(
        &self,
        source: &SourceState,
        event_type: &TypeState,
        raising: Raising,
        data: Data<'_>,
    ) -> Result<bool> {
        let ring = source.ring.as_ref().ok_or(Error::NotSupported)?;
        let mut memory = [0; super::deferred::MAX_BYTES];
        let extent = event_type.info.extent();
        let tick = source.stamp(raising.observed)?;
        let Some(room) = memory.get_mut(..extent) else {
            return Ok(false);
        };
        let bytes: &[u8] = match data {
            Data::Memory(memory) => &memory[..extent],
            Data::Values(values) => {
                for (value, at) in values.iter().zip(&event_type.info.displacements) {
                    value.put(&mut room[*at..]);
                }
                room
            }
        };
        let waiting = Waiting {
            event_type: event_type.index,
            tick,
            object: raising.object.map(|object| object.0),
            stamp: self.shared.stamp.load(Ordering::SeqCst),
            length: extent,
        };
        Ok(ring.push(&waiting, bytes))
    }

    pub(crate) fn deliver(&self, source: &SourceState, required: Safety) -> usize {
        let Some(ring) = &source.ring else {
            return 0;
        };
        ring.drain(|waiting, data| {
            if let Some(event_type) = self.shared.event_types.get(waiting.event_type) {
                let instance = Instance {
                    event_type,
                    source,
                    values: &[],
                    memory: data,
                    object: waiting.object.map(ObjectHandle),
                    tick: Cell::new(Some(waiting.tick)),
                };
                self.call_back(&instance, required, event_type.is_bound(), waiting.stamp);
            }
        })
    }
}
