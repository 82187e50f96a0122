//! Performance variables: adding them, sessions, and what is done with handles.

use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use super::Runtime;
use crate::events::error::{Error, Result};
use crate::events::pvar::{
    Behaviour, PvarClass, PvarHandle, PvarInfo, PvarNotice, PvarSession, PvarSpec,
};
use crate::events::pvar_state::{Item, PvarHandleState, PvarState, SessionState};
use crate::events::table::Table;
use crate::events::types::{Bind, Datatype, MAX_ITEMS, ObjectHandle, Value};

/// A performance variable, for its producer.
#[derive(Clone, Debug)]
pub struct Pvar {
    runtime: Runtime,
    index: i32,
}

impl Pvar {
    /// Returns its index.
    pub const fn index(&self) -> i32 {
        self.index
    }

    fn state(&self) -> Option<&PvarState> {
        self.runtime.shared.variables.pvars.at(self.index)
    }

    /// Sets the value that is kept here; levels move the watermarks of handles. Takes no lock.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the value has another type, [`Error::InvalidIndex`] if there is no
    /// such item.
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
    /// [`Error::Invalid`] if the value has another type, [`Error::InvalidIndex`] if there is no
    /// such item.
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

    /// Reports the current level of a value that is stored by the producer: watermarks follow it.
    /// Takes no lock.
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
    /// [`Error::InvalidName`] if another of its class has its name; [`Error::Invalid`] if the name
    /// is empty, the class does not allow the type, an enumeration is on something else than an
    /// [`Datatype::Int`], a bound variable is not read elsewhere, there are no items or more than a
    /// million, or it is read-only and atomic; [`Error::NotAccessible`].
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

    /// Returns how many performance variables there are (`PVAR_GET_NUM`).
    /// It only grows.
    pub fn pvar_count(&self) -> i32 {
        self.shared.variables.pvars.len() as i32
    }

    /// Returns what a performance variable is (`PVAR_GET_INFO`).
    ///
    /// # Errors
    /// [`Error::InvalidIndex`] if there is none.
    pub fn pvar_info(&self, index: i32) -> Result<&PvarInfo> {
        let pvar = self.shared.variables.pvars.at(index);
        Ok(&pvar.ok_or(Error::InvalidIndex)?.info)
    }

    /// Returns the performance variable that has this name and class (`PVAR_GET_INDEX`).
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

    /// Allocates a handle of a performance variable in a session, for an object if it is bound
    /// (`PVAR_HANDLE_ALLOC`). Returns it with the number of values. A variable that is not
    /// continuous is stopped at first.
    ///
    /// # Errors
    /// [`Error::InvalidSession`], [`Error::InvalidIndex`], [`Error::Invalid`] without an object
    /// where it is bound, [`Error::Memory`] if its producer reports more than a million values,
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
        // Not dropped if the producer's function is left (`in_progress`): then it is lost.
        let state = ManuallyDrop::new(Arc::new(PvarHandleState {
            pvar: index as usize,
            session: session.0,
            object,
            is_live: AtomicBool::new(true),
            is_running: AtomicBool::new(false),
            items: (0..items).map(|_| Item::default()).collect(),
        }));
        for number in 0..items {
            let value = state.starting_value(pvar, number);
            state.items[number].value.store(value, Ordering::Release);
        }
        if pvar.info.is_continuous {
            state.start(pvar);
        }
        let state = ManuallyDrop::into_inner(state);
        let change = self.change()?;
        let number = variables.pvar_handles.len() as i32;
        let added = variables.pvar_handles.push_with(|_| Arc::clone(&state));
        added.ok_or(Error::OutOfHandles)?;
        if matches!(pvar.behaviour(), Behaviour::Highest | Behaviour::Lowest) {
            pvar.watching.push_with(|_| Arc::clone(&state));
            pvar.watchers.fetch_add(1, Ordering::AcqRel);
        }
        drop(change);
        drop(state);
        pvar.notify_producer(PvarNotice::Allocated, object);
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

    /// Returns which variable a handle is of, and how many values it has.
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
    /// [`Error::InvalidSession`]; [`Error::InvalidHandle`], also if the handle is of another
    /// session.
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
            pvar.notify_producer(PvarNotice::Freed, state.object);
        }
        Ok(())
    }

    /// Starts a variable (`PVAR_START`).
    ///
    /// # Errors
    /// [`Error::InvalidSession`], [`Error::InvalidHandle`]; [`Error::PvarNoStartStop`] if it is
    /// continuous.
    pub fn pvar_start(&self, session: PvarSession, handle: PvarHandle) -> Result<()> {
        let (pvar, state) = self.pvar(session, handle)?;
        if pvar.info.is_continuous {
            return Err(Error::PvarNoStartStop);
        }
        if !state.is_running() {
            state.start(pvar);
            pvar.notify_producer(PvarNotice::Started, state.object);
        }
        Ok(())
    }

    /// Stops a variable: its value stays as it is (`PVAR_STOP`).
    ///
    /// # Errors
    /// [`Error::InvalidSession`], [`Error::InvalidHandle`]; [`Error::PvarNoStartStop`] if it is
    /// continuous.
    pub fn pvar_stop(&self, session: PvarSession, handle: PvarHandle) -> Result<()> {
        let (pvar, state) = self.pvar(session, handle)?;
        if pvar.info.is_continuous {
            return Err(Error::PvarNoStartStop);
        }
        if state.is_running() {
            state.stop(pvar);
            pvar.notify_producer(PvarNotice::Stopped, state.object);
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
    /// [`Error::InvalidSession`], [`Error::InvalidHandle`]; [`Error::Invalid`] if they are more
    /// than `to` takes.
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

    /// Reads a variable's values one by one, each with its number.
    /// Neither locks nor allocates, whatever their number.
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
    /// [`Error::InvalidSession`], [`Error::InvalidHandle`]; [`Error::Invalid`] if they are more
    /// than `to` takes; [`Error::InvalidItem`] if there is none.
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

    /// Sets a variable's values, as this handle shows them (`PVAR_WRITE`).
    /// A running variable whose producer provides the current value, such as a level, continues to
    /// show that.
    ///
    /// # Errors
    /// [`Error::InvalidSession`], [`Error::InvalidHandle`]; [`Error::PvarNoWrite`] if it is
    /// read-only; [`Error::Invalid`] if the number of values or their type is wrong.
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

    /// Sets a variable's values one by one:
    /// `from` returns the value of each item, in the variable's datatype. Neither locks nor
    /// allocates.
    ///
    /// # Errors
    /// [`Error::InvalidSession`], [`Error::InvalidHandle`]; [`Error::PvarNoWrite`] if it is
    /// read-only; [`Error::Invalid`] if a value has another type; the values before it are written
    /// then.
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

    /// Sets a variable to its starting value (`PVAR_RESET`): 0 for what is summed, else what it is
    /// now.
    ///
    /// # Errors
    /// [`Error::InvalidSession`], [`Error::InvalidHandle`]; [`Error::PvarNoWrite`] if it is
    /// read-only.
    pub fn pvar_reset(&self, session: PvarSession, handle: PvarHandle) -> Result<()> {
        let (pvar, state) = self.pvar(session, handle)?;
        if pvar.info.is_readonly {
            return Err(Error::PvarNoWrite);
        }
        state.reset(pvar);
        Ok(())
    }

    /// Reads and resets in one: of what is summed, nothing is lost between the two
    /// (`PVAR_READRESET`).
    ///
    /// # Errors
    /// [`Error::InvalidSession`], [`Error::InvalidHandle`]; [`Error::Invalid`] if they are more
    /// than `to` takes; [`Error::PvarNoWrite`] if it is read-only; [`Error::PvarNoAtomic`] if it
    /// cannot do that.
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

    /// Reads and resets a variable's values one by one, each with its number.
    /// Neither locks nor allocates.
    ///
    /// # Errors
    /// [`Error::InvalidSession`], [`Error::InvalidHandle`], [`Error::PvarNoWrite`],
    /// [`Error::PvarNoAtomic`].
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
