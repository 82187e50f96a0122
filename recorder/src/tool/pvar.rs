//! Performance variables: what a producer knows about itself, as numbers (MPI 4.1 §16.3.7).
//!
//! A variable has one value in its producer, and each handle makes its own of it: what was counted since
//! the handle was started or reset, the highest level since then. So sessions do not disturb each other,
//! and writing changes a handle's value only. All that is done with a handle takes no lock.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use annals_format::Verbosity;

use super::enumeration::Enumeration;
use super::error::{Error, Result};
use super::runtime::Runtime;
use super::table::Table;
use super::types::{Bind, Datatype, ObjectHandle, Value};
use super::variables::MAX_ITEMS;

/// What kind of value a performance variable has.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum PvarClass {
    /// One of several states; an [`Datatype::Int`].
    State = 0,
    /// How much of a resource is in use.
    Level = 1,
    /// How large a resource is.
    Size = 2,
    /// Which part of a resource is in use, from 0 to 1; a [`Datatype::Double`].
    Percentage = 3,
    /// The most that was in use.
    HighWatermark = 4,
    /// The least that was in use.
    LowWatermark = 5,
    /// How often something happened.
    Counter = 6,
    /// The sum of something.
    Aggregate = 7,
    /// The sum of times; of a [`Datatype::Double`], in seconds.
    Timer = 8,
    /// Something else.
    Generic = 9,
}

impl PvarClass {
    /// All classes, in the order of their codes.
    pub const ALL: [Self; 10] = [
        Self::State,
        Self::Level,
        Self::Size,
        Self::Percentage,
        Self::HighWatermark,
        Self::LowWatermark,
        Self::Counter,
        Self::Aggregate,
        Self::Timer,
        Self::Generic,
    ];

    /// Its name in recordings.
    pub const fn name(self) -> &'static str {
        match self {
            Self::State => "state",
            Self::Level => "level",
            Self::Size => "size",
            Self::Percentage => "percentage",
            Self::HighWatermark => "high-watermark",
            Self::LowWatermark => "low-watermark",
            Self::Counter => "counter",
            Self::Aggregate => "aggregate",
            Self::Timer => "timer",
            Self::Generic => "generic",
        }
    }

    /// Whether variables of this class have values of this type.
    pub const fn allows(self, datatype: Datatype) -> bool {
        let is_unsigned = matches!(
            datatype,
            Datatype::Unsigned | Datatype::UnsignedLong | Datatype::UnsignedLongLong
        );
        let is_double = matches!(datatype, Datatype::Double);
        match self {
            Self::State => matches!(datatype, Datatype::Int),
            Self::Percentage => is_double,
            Self::Counter => is_unsigned,
            Self::Generic => true,
            _ => is_unsigned || is_double,
        }
    }

    const fn behaviour(self) -> Behaviour {
        match self {
            Self::Counter | Self::Aggregate | Self::Timer => Behaviour::Sum,
            Self::HighWatermark => Behaviour::Highest,
            Self::LowWatermark => Behaviour::Lowest,
            _ => Behaviour::Current,
        }
    }
}

/// What a handle's value is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Behaviour {
    Current,
    Sum,
    Highest,
    Lowest,
}

/// What becomes of a variable's handles, as its producer is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum PvarNotice {
    /// A handle was allocated.
    Allocated,
    /// A handle was started.
    Started,
    /// A handle was stopped.
    Stopped,
    /// A handle was freed.
    Freed,
}

type Read = Arc<dyn Fn(Option<ObjectHandle>, usize) -> Value + Send + Sync>;
type Count = Arc<dyn Fn(Option<ObjectHandle>) -> usize + Send + Sync>;
type Notify = Arc<dyn Fn(PvarNotice, Option<ObjectHandle>) + Send + Sync>;

/// A performance variable, to be added.
#[derive(Clone)]
pub struct PvarSpec {
    name: String,
    description: String,
    verbosity: Verbosity,
    class: PvarClass,
    datatype: Datatype,
    enumeration: Option<Enumeration>,
    bind: Bind,
    is_readonly: bool,
    is_continuous: bool,
    is_atomic: bool,
    items: usize,
    count: Option<Count>,
    read: Option<Read>,
    notify: Option<Notify>,
}

impl fmt::Debug for PvarSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PvarSpec")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl PvarSpec {
    /// A variable with one value, which is kept here ([`Pvar::set`], [`Pvar::add`]) unless
    /// [`PvarSpec::read`] says otherwise. It can be started, stopped, written, and atomically read and reset.
    pub fn new(name: impl Into<String>, class: PvarClass, datatype: Datatype) -> Self {
        Self {
            name: name.into(),
            description: String::new(),
            verbosity: Verbosity::UserBasic,
            class,
            datatype,
            enumeration: None,
            bind: Bind::NoObject,
            is_readonly: false,
            is_continuous: false,
            is_atomic: true,
            items: 1,
            count: None,
            read: None,
            notify: None,
        }
    }

    /// Says what it tells; of timers that are no doubles, the unit.
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

    /// Names the values of an integer.
    #[must_use]
    pub const fn enumeration(mut self, enumeration: Enumeration) -> Self {
        self.enumeration = Some(enumeration);
        self
    }

    /// Says what kind of object it is bound to; such a variable is read elsewhere.
    #[must_use]
    pub const fn bind(mut self, bind: Bind) -> Self {
        self.bind = bind;
        self
    }

    /// It can be read only: not written or reset.
    #[must_use]
    pub const fn readonly(mut self) -> Self {
        self.is_readonly = true;
        self.is_atomic = false;
        self
    }

    /// It is always active: it cannot be started or stopped.
    #[must_use]
    pub const fn continuous(mut self) -> Self {
        self.is_continuous = true;
        self
    }

    /// It cannot be read and reset in one.
    #[must_use]
    pub const fn not_atomic(mut self) -> Self {
        self.is_atomic = false;
        self
    }

    /// It has so many values.
    #[must_use]
    pub const fn items(mut self, items: usize) -> Self {
        self.items = items;
        self
    }

    /// It has as many values as `count` says for an object; for bound variables.
    #[must_use]
    pub fn count(
        mut self,
        count: impl Fn(Option<ObjectHandle>) -> usize + Send + Sync + 'static,
    ) -> Self {
        self.count = Some(Arc::new(count));
        self
    }

    /// Has the value of each item read elsewhere: the sum, level or state as the producer has it. Safe in
    /// the contexts in which the variable is read.
    #[must_use]
    pub fn read(
        mut self,
        read: impl Fn(Option<ObjectHandle>, usize) -> Value + Send + Sync + 'static,
    ) -> Self {
        self.read = Some(Arc::new(read));
        self
    }

    /// Has the producer told what becomes of handles.
    #[must_use]
    pub fn notify(
        mut self,
        notify: impl Fn(PvarNotice, Option<ObjectHandle>) + Send + Sync + 'static,
    ) -> Self {
        self.notify = Some(Arc::new(notify));
        self
    }
}

/// What a performance variable is; the same for ever.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct PvarInfo {
    /// Its name; no other variable of its class has it.
    pub name: String,
    /// What it tells; may be empty.
    pub description: String,
    /// For whom it is.
    pub verbosity: Verbosity,
    /// What kind of value it has.
    pub class: PvarClass,
    /// Type of its values.
    pub datatype: Datatype,
    /// Names of its values.
    pub enumeration: Option<Enumeration>,
    /// What kind of object it is bound to.
    pub bind: Bind,
    /// It cannot be written or reset.
    pub is_readonly: bool,
    /// It cannot be started or stopped: it is always active.
    pub is_continuous: bool,
    /// It can be read and reset in one.
    pub is_atomic: bool,
}

pub(crate) struct PvarState {
    info: PvarInfo,
    kept: Box<[AtomicU64]>,
    count: Option<Count>,
    read: Option<Read>,
    notify: Option<Notify>,
    /// Its handles that watch every level.
    watching: Table<Arc<PvarHandleState>>,
    watchers: AtomicU32,
}

impl fmt::Debug for PvarState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PvarState")
            .field("info", &self.info)
            .finish_non_exhaustive()
    }
}

impl PvarState {
    fn raw(&self, object: Option<ObjectHandle>, item: usize) -> u64 {
        match (&self.read, self.kept.get(item)) {
            (Some(read), _) => read(object, item).bits(),
            (None, Some(word)) => word.load(Ordering::Acquire),
            (None, None) => 0,
        }
    }

    fn tell(&self, notice: PvarNotice, object: Option<ObjectHandle>) {
        if let Some(notify) = &self.notify {
            notify(notice, object);
        }
    }

    /// Sum and difference in the variable's type; integers wrap, as the classes have it.
    fn sum(&self, a: u64, b: u64) -> u64 {
        match self.info.datatype {
            Datatype::Double => (f64::from_bits(a) + f64::from_bits(b)).to_bits(),
            Datatype::Unsigned => (a as u32).wrapping_add(b as u32).into(),
            _ => a.wrapping_add(b),
        }
    }

    fn difference(&self, a: u64, b: u64) -> u64 {
        match self.info.datatype {
            Datatype::Double => (f64::from_bits(a) - f64::from_bits(b)).to_bits(),
            Datatype::Unsigned => (a as u32).wrapping_sub(b as u32).into(),
            _ => a.wrapping_sub(b),
        }
    }

    fn is_less(&self, a: u64, b: u64) -> bool {
        match self.info.datatype {
            Datatype::Double => f64::from_bits(a) < f64::from_bits(b),
            _ => a < b,
        }
    }

    const fn behaviour(&self) -> Behaviour {
        self.info.class.behaviour()
    }
}

/// One item of a handle.
#[derive(Debug, Default)]
struct Item {
    /// The producer's value from which on a running sum counts.
    base: AtomicU64,
    /// What a sum has beside that; else the value: the mark, or that of a stopped variable.
    value: AtomicU64,
}

#[derive(Debug)]
pub(crate) struct PvarHandleState {
    pvar: usize,
    session: i32,
    object: Option<ObjectHandle>,
    is_live: AtomicBool,
    is_running: AtomicBool,
    items: Box<[Item]>,
}

impl PvarHandleState {
    fn is_running(&self) -> bool {
        self.is_running.load(Ordering::Acquire)
    }

    /// A level was seen: marks follow it.
    fn mark(&self, pvar: &PvarState, item: usize, level: u64) {
        let Some(item) = self.items.get(item) else {
            return;
        };
        let is_highest = pvar.behaviour() == Behaviour::Highest;
        let (order, seen) = (Ordering::AcqRel, Ordering::Relaxed);
        let _ = item.value.fetch_update(order, seen, |mark| {
            let (low, high) = if is_highest {
                (mark, level)
            } else {
                (level, mark)
            };
            pvar.is_less(low, high).then_some(level)
        });
    }

    /// Takes what a running sum has counted since its base, and counts from here on.
    fn advance(&self, pvar: &PvarState, number: usize) -> u64 {
        let base = &self.items[number].base;
        loop {
            let from = base.load(Ordering::Acquire);
            // Read behind the base: never smaller.
            let now = pvar.raw(self.object, number);
            let (order, seen) = (Ordering::AcqRel, Ordering::Relaxed);
            if base.compare_exchange(from, now, order, seen).is_ok() {
                return pvar.difference(now, from);
            }
        }
    }

    fn start(&self, pvar: &PvarState) {
        for (number, item) in self.items.iter().enumerate() {
            let now = pvar.raw(self.object, number);
            match pvar.behaviour() {
                Behaviour::Sum => item.base.store(now, Ordering::Release),
                Behaviour::Current => {}
                Behaviour::Highest | Behaviour::Lowest => self.mark(pvar, number, now),
            }
        }
        self.is_running.store(true, Ordering::Release);
    }

    fn stop(&self, pvar: &PvarState) {
        for (number, item) in self.items.iter().enumerate() {
            match pvar.behaviour() {
                Behaviour::Sum => {
                    let more = self.advance(pvar, number);
                    let (order, seen) = (Ordering::AcqRel, Ordering::Relaxed);
                    let add = |value| Some(pvar.sum(value, more));
                    let _ = item.value.fetch_update(order, seen, add);
                }
                Behaviour::Current => {
                    let now = pvar.raw(self.object, number);
                    item.value.store(now, Ordering::Release);
                }
                Behaviour::Highest | Behaviour::Lowest => {
                    self.mark(pvar, number, pvar.raw(self.object, number));
                }
            }
        }
        self.is_running.store(false, Ordering::Release);
    }

    fn read(&self, pvar: &PvarState, number: usize) -> u64 {
        let item = &self.items[number];
        if self.is_running() {
            let now = || pvar.raw(self.object, number);
            match pvar.behaviour() {
                Behaviour::Current => return now(),
                Behaviour::Highest | Behaviour::Lowest => self.mark(pvar, number, now()),
                Behaviour::Sum => {
                    let value = item.value.load(Ordering::Acquire);
                    let base = item.base.load(Ordering::Acquire);
                    return pvar.sum(value, pvar.difference(now(), base));
                }
            }
        }
        item.value.load(Ordering::Acquire)
    }

    fn write(&self, pvar: &PvarState, number: usize, bits: u64) {
        if pvar.behaviour() == Behaviour::Sum {
            self.advance(pvar, number);
        }
        self.items[number].value.store(bits, Ordering::Release);
    }

    /// The value that a variable has at first and behind a reset.
    fn starting_value(&self, pvar: &PvarState, number: usize) -> u64 {
        match pvar.behaviour() {
            Behaviour::Sum => 0,
            _ => pvar.raw(self.object, number),
        }
    }

    fn reset(&self, pvar: &PvarState) {
        for number in 0..self.items.len() {
            self.write(pvar, number, self.starting_value(pvar, number));
        }
    }

    fn read_reset(&self, pvar: &PvarState, number: usize) -> u64 {
        let item = &self.items[number];
        let start = self.starting_value(pvar, number);
        if pvar.behaviour() == Behaviour::Sum {
            let value = item.value.swap(0, Ordering::AcqRel);
            if self.is_running() {
                return pvar.sum(value, self.advance(pvar, number));
            }
            return value;
        }
        if self.is_running() && pvar.behaviour() == Behaviour::Current {
            return start;
        }
        if self.is_running() {
            self.mark(pvar, number, start);
        }
        item.value.swap(start, Ordering::AcqRel)
    }
}

#[derive(Debug)]
pub(crate) struct SessionState {
    is_live: AtomicBool,
}

/// A session: a tool's own view of the performance variables.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PvarSession(i32);

/// A handle of a performance variable, in a session.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PvarHandle(i32);

macro_rules! numbered {
    ($($name:ident),*) => {$(
        impl $name {
            /// The handle as a number, for other languages; never negative.
            pub const fn number(self) -> i32 {
                self.0
            }

            /// The handle that has this number; any number is safe to use.
            pub const fn from_number(number: i32) -> Self {
                Self(number)
            }
        }
    )*};
}

numbered!(PvarSession, PvarHandle);

/// A performance variable, for its producer.
#[derive(Clone, Debug)]
pub struct Pvar {
    runtime: Runtime,
    index: i32,
}

impl Pvar {
    /// Its index.
    pub const fn index(&self) -> i32 {
        self.index
    }

    fn state(&self) -> Option<&PvarState> {
        self.runtime.shared.variables.pvars.at(self.index)
    }

    /// Sets the value that is kept here; levels move the watermarks of handles. Takes no lock.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the value has another type, [`Error::InvalidIndex`] if there is no such item.
    pub fn set(&self, item: usize, value: Value) -> Result<()> {
        let state = self.state().ok_or(Error::InvalidIndex)?;
        if value.datatype() != state.info.datatype {
            return Err(Error::Invalid);
        }
        let word = state.kept.get(item).ok_or(Error::InvalidIndex)?;
        word.store(value.bits(), Ordering::Release);
        self.notice(item, value)
    }

    /// Adds to the value that is kept here. Takes no lock.
    ///
    /// # Errors
    /// As [`Pvar::set`].
    pub fn add(&self, item: usize, value: Value) -> Result<()> {
        let state = self.state().ok_or(Error::InvalidIndex)?;
        if value.datatype() != state.info.datatype {
            return Err(Error::Invalid);
        }
        let word = state.kept.get(item).ok_or(Error::InvalidIndex)?;
        let (order, seen) = (Ordering::AcqRel, Ordering::Relaxed);
        let more = value.bits();
        let before = word.fetch_update(order, seen, |sum| Some(state.sum(sum, more)));
        let now = state.sum(before.unwrap_or(0), more);
        self.notice(item, Value::of_bits(state.info.datatype, now))
    }

    /// Says that a level that is read elsewhere is now this one: watermarks follow it. Takes no lock.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the value has another type.
    pub fn notice(&self, item: usize, level: Value) -> Result<()> {
        let state = self.state().ok_or(Error::InvalidIndex)?;
        if level.datatype() != state.info.datatype {
            return Err(Error::Invalid);
        }
        let is_watermark = matches!(state.behaviour(), Behaviour::Highest | Behaviour::Lowest);
        if is_watermark && state.watchers.load(Ordering::Acquire) != 0 {
            for handle in state.watching.iter().filter(|handle| handle.is_running()) {
                handle.mark(state, item, level.bits());
            }
        }
        Ok(())
    }
}

impl Runtime {
    /// Adds a performance variable.
    ///
    /// # Errors
    /// [`Error::InvalidName`] if another of its class has its name; [`Error::Invalid`] if the name is empty,
    /// the class does not allow the type, an enumeration is on something else than an [`Datatype::Int`], a
    /// bound variable is not read elsewhere, there are no items or more than a million, or it is read-only
    /// and atomic;
    /// [`Error::NotAccessible`].
    pub fn add_pvar(&self, spec: &PvarSpec) -> Result<Pvar> {
        let _change = self.change()?;
        let has_nul = |text: &str| text.contains('\0');
        let is_good = !spec.name.is_empty()
            && !has_nul(&spec.name)
            && !has_nul(&spec.description)
            && spec.class.allows(spec.datatype)
            && (spec.enumeration.is_none() || spec.datatype == Datatype::Int)
            && (spec.bind == Bind::NoObject || spec.read.is_some())
            && (1..=MAX_ITEMS).contains(&spec.items)
            && !(spec.is_readonly && spec.is_atomic);
        if !is_good {
            return Err(Error::Invalid);
        }
        if self.pvar_index(&spec.name, spec.class).is_ok() {
            return Err(Error::InvalidName);
        }
        if let Some(enumeration) = spec.enumeration {
            self.enumeration(enumeration)?;
        }
        let pvars = &self.shared.variables.pvars;
        let index = pvars.len() as i32;
        let kept = if spec.read.is_some() { 0 } else { spec.items };
        let items = spec.items;
        let state = PvarState {
            info: PvarInfo {
                name: spec.name.clone(),
                description: spec.description.clone(),
                verbosity: spec.verbosity,
                class: spec.class,
                datatype: spec.datatype,
                enumeration: spec.enumeration,
                bind: spec.bind,
                is_readonly: spec.is_readonly,
                is_continuous: spec.is_continuous,
                is_atomic: spec.is_atomic,
            },
            kept: (0..kept).map(|_| AtomicU64::new(0)).collect(),
            count: Some(match &spec.count {
                Some(count) => Arc::clone(count),
                None => Arc::new(move |_| items),
            }),
            read: spec.read.clone(),
            notify: spec.notify.clone(),
            watching: Table::default(),
            watchers: AtomicU32::new(0),
        };
        pvars.push_with(|_| state).ok_or(Error::OutOfHandles)?;
        let runtime = self.clone();
        Ok(Pvar { runtime, index })
    }

    /// How many performance variables there are (`PVAR_GET_NUM`). It only grows.
    pub fn pvar_count(&self) -> i32 {
        self.shared.variables.pvars.len() as i32
    }

    /// What a performance variable is (`PVAR_GET_INFO`).
    ///
    /// # Errors
    /// [`Error::InvalidIndex`] if there is none.
    pub fn pvar_info(&self, index: i32) -> Result<&PvarInfo> {
        let pvar = self.shared.variables.pvars.at(index);
        Ok(&pvar.ok_or(Error::InvalidIndex)?.info)
    }

    /// The performance variable that has this name and class (`PVAR_GET_INDEX`).
    ///
    /// # Errors
    /// [`Error::InvalidName`] if there is none.
    pub fn pvar_index(&self, name: &str, class: PvarClass) -> Result<i32> {
        let mut pvars = self.shared.variables.pvars.iter();
        let index = pvars.position(|p| p.info.name == name && p.info.class == class);
        index.map(|index| index as i32).ok_or(Error::InvalidName)
    }

    /// Begins a session (`PVAR_SESSION_CREATE`).
    ///
    /// # Errors
    /// [`Error::OutOfSessions`], [`Error::NotAccessible`].
    pub fn pvar_session_create(&self) -> Result<PvarSession> {
        let _change = self.change()?;
        let sessions = &self.shared.variables.sessions;
        let number = sessions.len() as i32;
        let state = SessionState {
            is_live: AtomicBool::new(true),
        };
        sessions.push_with(|_| state).ok_or(Error::OutOfSessions)?;
        Ok(PvarSession(number))
    }

    /// Ends a session, and frees its handles (`PVAR_SESSION_FREE`).
    ///
    /// # Errors
    /// [`Error::InvalidSession`].
    pub fn pvar_session_free(&self, session: PvarSession) -> Result<()> {
        let state = self.shared.variables.sessions.at(session.0);
        let state = state.ok_or(Error::InvalidSession)?;
        if !state.is_live.swap(false, Ordering::SeqCst) {
            return Err(Error::InvalidSession);
        }
        for handle in self.shared.variables.pvar_handles.iter() {
            if handle.session == session.0 {
                let _ = self.release_handle(handle);
            }
        }
        Ok(())
    }

    fn check_session(&self, session: PvarSession) -> Result<()> {
        let state = self.shared.variables.sessions.at(session.0);
        let is_live = state.is_some_and(|state| state.is_live.load(Ordering::SeqCst));
        if is_live {
            Ok(())
        } else {
            Err(Error::InvalidSession)
        }
    }

    /// A handle of a performance variable in a session, for an object if it is bound, and how many values it
    /// has (`PVAR_HANDLE_ALLOC`). A variable that is not continuous is stopped at first.
    ///
    /// # Errors
    /// [`Error::InvalidSession`], [`Error::InvalidIndex`], [`Error::Invalid`] without an object where it is
    /// bound, [`Error::Memory`] if its producer says that it has more than a million values,
    /// [`Error::OutOfHandles`], [`Error::NotAccessible`].
    pub fn pvar_handle_alloc(
        &self,
        session: PvarSession,
        index: i32,
        object: Option<ObjectHandle>,
    ) -> Result<(PvarHandle, usize)> {
        self.check_session(session)?;
        let variables = &self.shared.variables;
        let pvar = variables.pvars.at(index).ok_or(Error::InvalidIndex)?;
        let is_bound = pvar.info.bind != Bind::NoObject;
        if is_bound && object.is_none() {
            return Err(Error::Invalid);
        }
        let object = object.filter(|_| is_bound);
        // The producer's functions run outside the lock.
        let items = pvar.count.as_ref().map_or(0, |count| count(object));
        if items > MAX_ITEMS {
            return Err(Error::Memory);
        }
        let state = Arc::new(PvarHandleState {
            pvar: index as usize,
            session: session.0,
            object,
            is_live: AtomicBool::new(true),
            is_running: AtomicBool::new(false),
            items: (0..items).map(|_| Item::default()).collect(),
        });
        for number in 0..items {
            let value = state.starting_value(pvar, number);
            state.items[number].value.store(value, Ordering::Release);
        }
        if pvar.info.is_continuous {
            state.start(pvar);
        }
        let change = self.change()?;
        let number = variables.pvar_handles.len() as i32;
        let added = variables.pvar_handles.push_with(|_| Arc::clone(&state));
        added.ok_or(Error::OutOfHandles)?;
        if matches!(pvar.behaviour(), Behaviour::Highest | Behaviour::Lowest) {
            pvar.watching.push_with(|_| Arc::clone(&state));
            pvar.watchers.fetch_add(1, Ordering::AcqRel);
        }
        drop(change);
        pvar.tell(PvarNotice::Allocated, object);
        Ok((PvarHandle(number), items))
    }

    fn pvar(
        &self,
        session: PvarSession,
        handle: PvarHandle,
    ) -> Result<(&PvarState, &PvarHandleState)> {
        self.check_session(session)?;
        let variables = &self.shared.variables;
        let state = variables
            .pvar_handles
            .at(handle.0)
            .filter(|state| state.session == session.0 && state.is_live.load(Ordering::SeqCst));
        let state = state.ok_or(Error::InvalidHandle)?;
        let pvar = variables.pvars.get(state.pvar);
        Ok((pvar.ok_or(Error::InvalidHandle)?, state))
    }

    /// Which variable a handle is of, and how many values it has.
    ///
    /// # Errors
    /// [`Error::InvalidSession`], [`Error::InvalidHandle`].
    pub fn pvar_of(&self, session: PvarSession, handle: PvarHandle) -> Result<(&PvarInfo, usize)> {
        let (pvar, state) = self.pvar(session, handle)?;
        Ok((&pvar.info, state.items.len()))
    }

    /// Frees a handle (`PVAR_HANDLE_FREE`).
    ///
    /// # Errors
    /// [`Error::InvalidSession`]; [`Error::InvalidHandle`], also if the handle is of another session.
    pub fn pvar_handle_free(&self, session: PvarSession, handle: PvarHandle) -> Result<()> {
        let (_, state) = self.pvar(session, handle)?;
        self.release_handle(state)
    }

    fn release_handle(&self, state: &PvarHandleState) -> Result<()> {
        if !state.is_live.swap(false, Ordering::SeqCst) {
            return Err(Error::InvalidHandle);
        }
        state.is_running.store(false, Ordering::Release);
        if let Some(pvar) = self.shared.variables.pvars.get(state.pvar) {
            if matches!(pvar.behaviour(), Behaviour::Highest | Behaviour::Lowest) {
                pvar.watchers.fetch_sub(1, Ordering::AcqRel);
            }
            pvar.tell(PvarNotice::Freed, state.object);
        }
        Ok(())
    }

    /// Starts a variable (`PVAR_START`).
    ///
    /// # Errors
    /// [`Error::InvalidSession`], [`Error::InvalidHandle`]; [`Error::PvarNoStartStop`] if it is continuous.
    pub fn pvar_start(&self, session: PvarSession, handle: PvarHandle) -> Result<()> {
        let (pvar, state) = self.pvar(session, handle)?;
        if pvar.info.is_continuous {
            return Err(Error::PvarNoStartStop);
        }
        if !state.is_running() {
            state.start(pvar);
            pvar.tell(PvarNotice::Started, state.object);
        }
        Ok(())
    }

    /// Stops a variable: its value stays as it is (`PVAR_STOP`).
    ///
    /// # Errors
    /// As [`Runtime::pvar_start`].
    pub fn pvar_stop(&self, session: PvarSession, handle: PvarHandle) -> Result<()> {
        let (pvar, state) = self.pvar(session, handle)?;
        if pvar.info.is_continuous {
            return Err(Error::PvarNoStartStop);
        }
        if state.is_running() {
            state.stop(pvar);
            pvar.tell(PvarNotice::Stopped, state.object);
        }
        Ok(())
    }

    /// Does something with all handles of a session, but those it is not for.
    fn with_all(
        &self,
        session: PvarSession,
        is_for: impl Fn(&PvarInfo) -> bool,
        work: impl Fn(PvarHandle) -> Result<()>,
    ) -> Result<()> {
        self.check_session(session)?;
        for number in 0..self.shared.variables.pvar_handles.len() as i32 {
            let handle = PvarHandle(number);
            if let Ok((pvar, _)) = self.pvar(session, handle)
                && is_for(&pvar.info)
            {
                work(handle)?;
            }
        }
        Ok(())
    }

    /// Starts all variables of a session but continuous ones (`PVAR_START` with `ALL_HANDLES`).
    ///
    /// # Errors
    /// [`Error::InvalidSession`].
    pub fn pvar_start_all(&self, session: PvarSession) -> Result<()> {
        self.with_all(
            session,
            |info| !info.is_continuous,
            |handle| self.pvar_start(session, handle),
        )
    }

    /// Stops all variables of a session but continuous ones (`PVAR_STOP` with `ALL_HANDLES`).
    ///
    /// # Errors
    /// [`Error::InvalidSession`].
    pub fn pvar_stop_all(&self, session: PvarSession) -> Result<()> {
        self.with_all(
            session,
            |info| !info.is_continuous,
            |handle| self.pvar_stop(session, handle),
        )
    }

    /// Resets all variables of a session but read-only ones (`PVAR_RESET` with `ALL_HANDLES`).
    ///
    /// # Errors
    /// [`Error::InvalidSession`].
    pub fn pvar_reset_all(&self, session: PvarSession) -> Result<()> {
        self.with_all(
            session,
            |info| !info.is_readonly,
            |handle| self.pvar_reset(session, handle),
        )
    }

    /// Reads a variable's values (`PVAR_READ`); how many there are.
    ///
    /// # Errors
    /// [`Error::InvalidSession`], [`Error::InvalidHandle`]; [`Error::Invalid`] if they are more than `to`
    /// takes.
    pub fn pvar_read(
        &self,
        session: PvarSession,
        handle: PvarHandle,
        to: &mut [Value],
    ) -> Result<usize> {
        let (_, count) = self.pvar_of(session, handle)?;
        let to = to.get_mut(..count).ok_or(Error::Invalid)?;
        self.pvar_read_with(session, handle, |item, value| to[item] = value)
    }

    /// The same, one value after the other: with its number. Neither locks nor allocates, whatever their
    /// number.
    ///
    /// # Errors
    /// [`Error::InvalidSession`], [`Error::InvalidHandle`].
    pub fn pvar_read_with(
        &self,
        session: PvarSession,
        handle: PvarHandle,
        mut to: impl FnMut(usize, Value),
    ) -> Result<usize> {
        let (pvar, state) = self.pvar(session, handle)?;
        for number in 0..state.items.len() {
            let bits = state.read(pvar, number);
            to(number, Value::of_bits(pvar.info.datatype, bits));
        }
        Ok(state.items.len())
    }

    /// Reads one value of a variable.
    ///
    /// # Errors
    /// As [`Runtime::pvar_read`]; [`Error::InvalidItem`] if there is none.
    pub fn pvar_read_item(
        &self,
        session: PvarSession,
        handle: PvarHandle,
        item: usize,
    ) -> Result<Value> {
        let (pvar, state) = self.pvar(session, handle)?;
        if item >= state.items.len() {
            return Err(Error::InvalidItem);
        }
        let bits = state.read(pvar, item);
        Ok(Value::of_bits(pvar.info.datatype, bits))
    }

    /// Sets a variable's values, as this handle shows them (`PVAR_WRITE`). A running variable of which the
    /// producer says the current value, as a level, goes on showing that.
    ///
    /// # Errors
    /// [`Error::InvalidSession`], [`Error::InvalidHandle`]; [`Error::PvarNoWrite`] if it is read-only;
    /// [`Error::Invalid`] if the values are not as many, or of another type.
    pub fn pvar_write(
        &self,
        session: PvarSession,
        handle: PvarHandle,
        values: &[Value],
    ) -> Result<()> {
        let (pvar, state) = self.pvar(session, handle)?;
        if pvar.info.is_readonly {
            return Err(Error::PvarNoWrite);
        }
        let datatype = pvar.info.datatype;
        if values.len() != state.items.len() || values.iter().any(|v| v.datatype() != datatype) {
            return Err(Error::Invalid);
        }
        self.pvar_write_with(session, handle, |item, _| values[item])
    }

    /// The same with what `from` says for each item, in a value of the variable's datatype. Neither locks
    /// nor allocates.
    ///
    /// # Errors
    /// As [`Runtime::pvar_write`]; the values before one of another type are written then.
    pub fn pvar_write_with(
        &self,
        session: PvarSession,
        handle: PvarHandle,
        mut from: impl FnMut(usize, Datatype) -> Value,
    ) -> Result<()> {
        let (pvar, state) = self.pvar(session, handle)?;
        if pvar.info.is_readonly {
            return Err(Error::PvarNoWrite);
        }
        for number in 0..state.items.len() {
            let value = from(number, pvar.info.datatype);
            if value.datatype() != pvar.info.datatype {
                return Err(Error::Invalid);
            }
            state.write(pvar, number, value.bits());
        }
        Ok(())
    }

    /// Sets a variable to its starting value (`PVAR_RESET`): 0 for what is summed, else what it is now.
    ///
    /// # Errors
    /// [`Error::InvalidSession`], [`Error::InvalidHandle`]; [`Error::PvarNoWrite`] if it is read-only.
    pub fn pvar_reset(&self, session: PvarSession, handle: PvarHandle) -> Result<()> {
        let (pvar, state) = self.pvar(session, handle)?;
        if pvar.info.is_readonly {
            return Err(Error::PvarNoWrite);
        }
        state.reset(pvar);
        Ok(())
    }

    /// Reads and resets in one: of what is summed, nothing is lost between the two (`PVAR_READRESET`).
    ///
    /// # Errors
    /// As [`Runtime::pvar_read`] and [`Runtime::pvar_reset`]; [`Error::PvarNoAtomic`] if it cannot do that.
    pub fn pvar_read_reset(
        &self,
        session: PvarSession,
        handle: PvarHandle,
        to: &mut [Value],
    ) -> Result<usize> {
        let (_, count) = self.pvar_of(session, handle)?;
        // A value that has no place is not lost: nothing is reset.
        let to = to.get_mut(..count).ok_or(Error::Invalid)?;
        self.pvar_read_reset_with(session, handle, |item, value| to[item] = value)
    }

    /// The same, one value after the other: with its number. Neither locks nor allocates.
    ///
    /// # Errors
    /// [`Error::InvalidSession`], [`Error::InvalidHandle`], [`Error::PvarNoWrite`], [`Error::PvarNoAtomic`].
    pub fn pvar_read_reset_with(
        &self,
        session: PvarSession,
        handle: PvarHandle,
        mut to: impl FnMut(usize, Value),
    ) -> Result<usize> {
        let (pvar, state) = self.pvar(session, handle)?;
        if pvar.info.is_readonly {
            return Err(Error::PvarNoWrite);
        }
        if !pvar.info.is_atomic {
            return Err(Error::PvarNoAtomic);
        }
        for number in 0..state.items.len() {
            let bits = state.read_reset(pvar, number);
            to(number, Value::of_bits(pvar.info.datatype, bits));
        }
        Ok(state.items.len())
    }
}
