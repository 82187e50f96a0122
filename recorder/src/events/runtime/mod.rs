//! A runtime: everything that a producer shows and its consumers hold.
//!
//! This module has what all parts need: the tables, changing them, watching them. Each child adds
//! one part to [`Runtime`].

use std::fmt;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use super::category::Categories;
use super::enumeration::{Enumeration, EnumerationInfo};
use super::error::{Error, Result};
use super::in_progress::{current_safety, end_left, end_thread};
use super::lanes::{Lanes, lanes};
use super::registration::Slot;
use super::source::SourceState;
use super::table::Table;
use super::type_state::TypeState;
use super::types::{Bind, ObjectHandle, Safety};
use super::variables::Variables;
use crate::thread::Inside;

mod categories;
mod cvars;
mod delivery;
mod event_types;
mod pvars;
mod registrations;
mod sources;

pub use event_types::EventType;
pub use pvars::Pvar;
pub use sources::Source;

/// An object that events and variables may be bound to, as its producer names it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Object {
    /// The kind of object.
    pub kind: Bind,
    /// Its handle.
    pub handle: ObjectHandle,
    /// Its name.
    pub name: String,
}

type Watcher = Arc<dyn Fn() -> bool + Send + Sync>;

/// Data that a runtime's clones share.
struct Shared {
    lanes: &'static Lanes,
    /// Whether it is [`Runtime::process`]'s: its sources and registrations' places stay for ever.
    is_of_process: bool,
    sources: Table<Arc<SourceState>>,
    event_types: Table<Arc<TypeState>>,
    slots: Table<Arc<Slot>>,
    enumerations: Table<EnumerationInfo>,
    objects: Table<Object>,
    variables: Variables,
    categories: Categories,
    /// Held by threads that change what is there.
    changes: Mutex<()>,
    watchers: Mutex<Vec<Watcher>>,
    /// Counts registrations, to determine which were made before an instance.
    stamp: AtomicU64,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

/// All that a producer shows: its sources, event types, variables and categories, with the
/// registrations for them. Cheap to clone.
///
/// [`Runtime::process`] is the one that every process has. Others are independent of it, and of
/// each other.
///
/// Calls that change or allocate something return [`Error::NotAccessible`] inside a callback that
/// must be safe in signal handlers, and in a signal handler that interrupted such a call. Freeing a
/// registration, calls with an instance, a source's time, and performance variables never do.
#[derive(Clone, Debug)]
pub struct Runtime {
    shared: Arc<Shared>,
}

impl Default for Runtime {
    fn default() -> Self {
        Self::new()
    }
}

/// While it lives, its runtime changes.
struct Change<'a> {
    _changes: MutexGuard<'a, ()>,
    _inside: Inside,
}

impl Runtime {
    /// Creates an independent runtime, with nothing in it.
    pub fn new() -> Self {
        Self::create(false)
    }

    fn create(is_of_process: bool) -> Self {
        crate::thread::on_lane_end(end_thread);
        Self {
            shared: Arc::new(Shared {
                lanes: lanes(),
                is_of_process,
                sources: Table::default(),
                event_types: Table::default(),
                slots: Table::default(),
                enumerations: Table::default(),
                objects: Table::default(),
                variables: Variables::default(),
                categories: Categories::default(),
                changes: Mutex::new(()),
                watchers: Mutex::default(),
                stamp: AtomicU64::new(0),
            }),
        }
    }

    /// Returns the process's own runtime: what the C interface shows.
    pub fn process() -> &'static Self {
        static PROCESS: OnceLock<Runtime> = OnceLock::new();
        PROCESS.get_or_init(|| Self::create(true))
    }

    /// Ends the callbacks that the calling thread has left. `now`: where the stack is, as far out as is known: a frame further
    /// inside could lie below what was left.
    #[doc(hidden)]
    pub fn end_left(&self, now: usize) {
        end_left(now);
    }

    /// Returns whether both are the same.
    #[inline]
    fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    /// Returns whether the calling thread may change something here and now: it is neither in a
    /// callback that must be safe in signal handlers, nor in one that interrupted such a change.
    pub fn can_change(&self) -> bool {
        self.check_allocation().is_ok() && !Inside::begin().was_inside()
    }

    /// Refuses what allocates where that is not safe.
    fn check_allocation(&self) -> Result<()> {
        if current_safety() == Some(Safety::AsyncSignalSafe) {
            return Err(Error::NotAccessible);
        }
        Ok(())
    }

    /// Begins a change, where that is safe.
    fn change(&self) -> Result<Change<'_>> {
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

    /// Adds an enumeration of values with names.
    ///
    /// # Errors
    /// [`Error::InvalidName`] if another has its name; [`Error::Invalid`] without items, or if
    /// names are empty or twice there; [`Error::NotAccessible`].
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

    /// Names an object that things may be bound to, so that consumers know of it.
    /// Events and variables may be bound to others as well.
    ///
    /// # Errors
    /// [`Error::Invalid`] if its kind is [`Bind::NoObject`]; [`Error::NotAccessible`].
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
        self.notify_watchers();
        Ok(())
    }

    /// Returns how many enumerations there are.
    pub fn enumeration_count(&self) -> i32 {
        self.shared.enumerations.len() as i32
    }

    /// Returns what an enumeration is (`ENUM_GET_INFO`).
    ///
    /// # Errors
    /// [`Error::InvalidIndex`] if there is none.
    pub fn enumeration(&self, handle: Enumeration) -> Result<&EnumerationInfo> {
        let enumeration = self.shared.enumerations.at(handle.index());
        enumeration.ok_or(Error::InvalidIndex)
    }

    /// Returns the objects that producers named, the oldest first.
    pub fn objects(&self) -> impl Iterator<Item = &Object> {
        self.shared.objects.iter()
    }

    /// Calls `watch` whenever a source, an event type or an object was added, in the thread that
    /// added it, until `watch` returns `false`.
    pub fn on_change(&self, watch: impl Fn() -> bool + Send + Sync + 'static) {
        let mut watchers = self.watchers();
        watchers.push(Arc::new(watch));
    }

    fn watchers(&self) -> MutexGuard<'_, Vec<Watcher>> {
        let watchers = self.shared.watchers.lock();
        watchers.unwrap_or_else(PoisonError::into_inner)
    }

    fn notify_watchers(&self) {
        let watchers = self.watchers().clone();
        let over = watchers.iter().filter(|watch| !watch());
        let over: Vec<*const ()> = over.map(|watch| Arc::as_ptr(watch).cast()).collect();
        if !over.is_empty() {
            let address = |watch: &Watcher| Arc::as_ptr(watch).cast::<()>();
            self.watchers()
                .retain(|watch| !over.contains(&address(watch)));
        }
    }
}
