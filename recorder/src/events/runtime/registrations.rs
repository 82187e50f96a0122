//! Registrations: allocating and freeing them, their callbacks and hints.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Runtime;
use crate::events::error::{Error, Result};
use crate::events::in_progress::{current_safety, keep_panic, resume_panic};
use crate::events::registration::{
    Callback, DropRow, Dropped, FreeFunction, Registration, Slot, next_key,
};
use crate::events::type_state::TypeState;
use crate::events::types::{Info, ObjectHandle, Safety};

impl Runtime {
    /// Registers for an event type (`EVENT_HANDLE_ALLOC`): for this object, if the type is bound;
    /// otherwise the object is ignored. Instances arrive from the first callback on.
    ///
    /// # Errors
    /// [`Error::InvalidIndex`] if there is no such event type, [`Error::Invalid`] without an object
    /// where the type is bound, [`Error::OutOfHandles`], [`Error::NotAccessible`].
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
        if event_type.data.is_bound() && object.is_none() {
            return Err(Error::Invalid);
        }
        let object = object.map_or(0, |object| object.0);
        let mut info = event_type.data.info.info.clone();
        info.update(hints);
        let key = next_key().ok_or(Error::OutOfHandles)?;
        let slot = match event_type.slots().find(|slot| slot.life.is_free()) {
            Some(slot) => slot,
            None => self.add_slot(event_type)?,
        };
        let since = shared.stamp.fetch_add(1, Ordering::SeqCst) + 1;
        let hints = &event_type.data.callback_hints;
        let registration = slot.begin(key, object, since, info, hints, shared.lanes);
        event_type.wanted.fetch_add(1, Ordering::SeqCst);
        Ok(registration)
    }

    fn add_slot<'a>(&'a self, event_type: &'a TypeState) -> Result<&'a Slot> {
        let shared = &*self.shared;
        let make = |index| {
            Arc::new(Slot::new(
                index,
                event_type.data.index,
                shared.is_of_process,
            ))
        };
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

    /// Returns whether a registration handle is one that is not freed.
    pub fn is_registered(&self, registration: Registration) -> bool {
        self.slot(registration).is_ok()
    }

    /// Updates the hints of a registration (`EVENT_HANDLE_SET_INFO`); those that its event type
    /// does not support are ignored.
    ///
    /// # Errors
    /// [`Error::InvalidHandle`], [`Error::NotAccessible`].
    pub fn handle_set_info(&self, registration: Registration, hints: &Info) -> Result<()> {
        let _change = self.change()?;
        self.slot(registration)?
            .with_info(|info| info.update(hints));
        Ok(())
    }

    /// Returns the hints of a registration (`EVENT_HANDLE_GET_INFO`).
    ///
    /// # Errors
    /// [`Error::InvalidHandle`], [`Error::NotAccessible`].
    pub fn handle_get_info(&self, registration: Registration) -> Result<Info> {
        let _change = self.change()?;
        Ok(self.slot(registration)?.with_info(|info| info.clone()))
    }

    /// Sets the callback of a registration for contexts that require no more than `level`
    /// (`EVENT_REGISTER_CALLBACK`), replacing the previous one and its hints. `None` removes it. Of
    /// several, the one with the lowest level that the context allows is called.
    ///
    /// A replaced callback is dropped some time after its last call, in a call to this runtime.
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
            info.clone_from(&event_type.data.callback_hints);
            info.update(hints);
        }
        slot.set_callback(level, info, callback, shared.lanes);
        slot.note_all_untold(shared.sources.iter().map(Arc::as_ref));
        Ok(())
    }

    /// Updates the hints of a callback (`EVENT_CALLBACK_SET_INFO`).
    ///
    /// # Errors
    /// [`Error::InvalidHandle`], [`Error::Invalid`] if no callback has this level,
    /// [`Error::NotAccessible`].
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

    /// Returns the hints of a callback (`EVENT_CALLBACK_GET_INFO`).
    ///
    /// # Errors
    /// [`Error::InvalidHandle`], [`Error::Invalid`] if no callback has this level,
    /// [`Error::NotAccessible`].
    pub fn callback_get_info(&self, registration: Registration, level: Safety) -> Result<Info> {
        let _change = self.change()?;
        let slot = self.slot(registration)?;
        if !slot.has_callback(level) {
            return Err(Error::Invalid);
        }
        Ok(slot.with_callback_info(level, |info| info.clone()))
    }

    /// Frees a registration (`EVENT_HANDLE_FREE`): no callback begins from now on.
    ///
    /// `free_callback` runs once no callback is running any more: during this call, or in the
    /// thread that runs the last one, with the safety level that is required there. Unreported
    /// drops are reported before, if that is allowed in this context.
    ///
    /// May be called from anywhere, also from the registration's own callbacks; in signal handlers
    /// through [`Runtime::handle_free_raw`].
    ///
    /// # Errors
    /// [`Error::InvalidHandle`]; [`Error::NotAccessible`] in a signal handler, or when very many
    /// threads are in callbacks. The free callback is not called then.
    pub fn handle_free(
        &self,
        registration: Registration,
        free_callback: Option<impl Fn(Registration, Safety) + Send + Sync + 'static>,
    ) -> Result<()> {
        let freed = match free_callback {
            None => self.free(registration, None, [0; 2]),
            Some(free_callback) => {
                let change = self.change()?;
                let call = move |registration, required| {
                    keep_panic(|| free_callback(registration, required));
                };
                let (function, data) = self.slot(registration)?.park(Box::new(call));
                drop(change);
                self.free(registration, Some(function), data)
            }
        };
        if let Ok(_change) = self.change()
            && let Some(slot) = self.shared.slots.get(registration.slot())
        {
            slot.collect(self.shared.lanes);
        }
        resume_panic();
        freed
    }

    /// Frees a registration, with a function and two numbers as the free callback.
    /// Allocates nothing, and works in signal handlers.
    ///
    /// # Errors
    /// [`Error::InvalidHandle`]; [`Error::NotAccessible`] when very many threads are in callbacks.
    /// The free callback is not called then.
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
            slot.report_dropped(source, shared.lanes, required);
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

    /// Sets the handler that gets the number of instances that a registration did not get
    /// (`EVENT_SET_DROPPED_HANDLER`). It is called before the next event of that source is raised,
    /// in a context that one of the registration's callbacks allows. Without a handler, drops are
    /// neither counted nor reported.
    ///
    /// # Errors
    /// [`Error::InvalidHandle`], [`Error::NotAccessible`].
    pub fn set_dropped_handler(
        &self,
        registration: Registration,
        handler: Option<impl Fn(&Dropped) + Send + Sync + 'static>,
    ) -> Result<()> {
        let handler =
            handler.map(|handler| move |dropped: &Dropped| keep_panic(|| handler(dropped)));
        self.set_foreign_dropped_handler(registration, handler, false)
    }

    /// Sets a handler that is a function of another language: see [`Callback::foreign`].
    ///
    /// # Errors
    /// Those of [`Runtime::set_dropped_handler`].
    #[doc(hidden)]
    pub fn set_foreign_dropped_handler(
        &self,
        registration: Registration,
        handler: Option<impl Fn(&Dropped) + Send + Sync + 'static>,
        is_elsewhere: bool,
    ) -> Result<()> {
        let _change = self.change()?;
        let slot = self.slot(registration)?;
        slot.set_handler(handler, is_elsewhere, self.shared.lanes);
        Ok(())
    }
}
