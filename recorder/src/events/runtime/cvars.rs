//! Control variables: adding, reading and setting them.

use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::Runtime;
use crate::events::cvar::{CvarHandle, CvarHandleState, CvarInfo, CvarSpec, CvarState, Scope};
use crate::events::error::{Error, Result};
use crate::events::types::{Bind, Datatype, MAX_ITEMS, ObjectHandle, Value};

impl Runtime {
    /// Adds a control variable.
    /// Returns its index.
    ///
    /// # Errors
    /// [`Error::InvalidName`] if another has its name; [`Error::Invalid`] if the name is empty,
    /// there is no value or more than a million, values have another type, an enumeration is used
    /// with a datatype other than [`Datatype::Int`], or the variable is of a group and has no
    /// description of the group; [`Error::NotAccessible`].
    pub fn add_cvar(&self, spec: &CvarSpec) -> Result<i32> {
        let _change = self.change()?;
        let has_nul = |text: &str| text.contains('\0');
        let is_good = !spec.name.is_empty()
            && !has_nul(&spec.name)
            && !has_nul(&spec.description)
            && (1..=MAX_ITEMS).contains(&spec.initial.len())
            && spec.initial.iter().all(|v| v.datatype() == spec.datatype)
            && (spec.enumeration.is_none() || spec.datatype == Datatype::Int)
            && (!matches!(spec.scope, Scope::Group | Scope::GroupEqual)
                || !spec.description.is_empty());
        if !is_good {
            return Err(Error::Invalid);
        }
        if self.cvar_index(&spec.name).is_ok() {
            return Err(Error::InvalidName);
        }
        if let Some(enumeration) = spec.enumeration {
            self.enumeration(enumeration)?;
        }
        let cvars = &self.shared.variables.cvars;
        let index = cvars.len() as i32;
        let kept = spec
            .initial
            .iter()
            .map(|value| AtomicU64::new(value.bits()));
        let state = CvarState {
            info: CvarInfo {
                name: spec.name.clone(),
                description: spec.description.clone(),
                verbosity: spec.verbosity,
                datatype: spec.datatype,
                enumeration: spec.enumeration,
                bind: spec.bind,
                scope: spec.scope,
            },
            count: spec.initial.len(),
            kept: kept.collect(),
            read: spec.read.clone(),
            write: spec.write.clone(),
        };
        cvars.push_with(|_| state).ok_or(Error::OutOfHandles)?;
        Ok(index)
    }

    /// Returns how many control variables there are (`CVAR_GET_NUM`).
    /// It only grows.
    pub fn cvar_count(&self) -> i32 {
        self.shared.variables.cvars.len() as i32
    }

    /// Returns what a control variable is (`CVAR_GET_INFO`).
    ///
    /// # Errors
    /// [`Error::InvalidIndex`] if there is none.
    pub fn cvar_info(&self, index: i32) -> Result<&CvarInfo> {
        let cvar = self.shared.variables.cvars.at(index);
        Ok(&cvar.ok_or(Error::InvalidIndex)?.info)
    }

    /// Returns the control variable that has this name (`CVAR_GET_INDEX`).
    ///
    /// # Errors
    /// [`Error::InvalidName`] if there is none.
    pub fn cvar_index(&self, name: &str) -> Result<i32> {
        let mut cvars = self.shared.variables.cvars.iter();
        let index = cvars.position(|cvar| cvar.info.name == name);
        index.map(|index| index as i32).ok_or(Error::InvalidName)
    }

    /// Returns a handle of a control variable, for an object if it is bound, and how many values it
    /// has (`CVAR_HANDLE_ALLOC`).
    ///
    /// # Errors
    /// [`Error::InvalidIndex`], [`Error::Invalid`] without an object where it is bound,
    /// [`Error::OutOfHandles`], [`Error::NotAccessible`].
    pub fn cvar_handle_alloc(
        &self,
        index: i32,
        object: Option<ObjectHandle>,
    ) -> Result<(CvarHandle, usize)> {
        let _change = self.change()?;
        let variables = &self.shared.variables;
        let cvar = variables.cvars.at(index).ok_or(Error::InvalidIndex)?;
        let is_bound = cvar.info.bind != Bind::NoObject;
        if is_bound && object.is_none() {
            return Err(Error::Invalid);
        }
        let number = variables.cvar_handles.len() as i32;
        let state = CvarHandleState {
            cvar: index as usize,
            object: object.filter(|_| is_bound),
            is_live: AtomicBool::new(true),
        };
        let added = variables.cvar_handles.push_with(|_| state);
        added.ok_or(Error::OutOfHandles)?;
        Ok((CvarHandle(number), cvar.count))
    }

    /// Frees a handle (`CVAR_HANDLE_FREE`).
    ///
    /// # Errors
    /// [`Error::InvalidHandle`].
    pub fn cvar_handle_free(&self, handle: CvarHandle) -> Result<()> {
        let state = self.shared.variables.cvar_handles.at(handle.0);
        let state = state.ok_or(Error::InvalidHandle)?;
        if state.is_live.swap(false, Ordering::SeqCst) {
            Ok(())
        } else {
            Err(Error::InvalidHandle)
        }
    }

    fn cvar(&self, handle: CvarHandle) -> Result<(&CvarState, Option<ObjectHandle>)> {
        let variables = &self.shared.variables;
        let state = variables.cvar_handles.at(handle.0);
        let state = state.filter(|state| state.is_live.load(Ordering::SeqCst));
        let state = state.ok_or(Error::InvalidHandle)?;
        let cvar = variables.cvars.get(state.cvar);
        Ok((cvar.ok_or(Error::InvalidHandle)?, state.object))
    }

    /// Returns which variable a handle is of, and how many values it has.
    ///
    /// # Errors
    /// [`Error::InvalidHandle`].
    pub fn cvar_of(&self, handle: CvarHandle) -> Result<(&CvarInfo, usize)> {
        let (cvar, _) = self.cvar(handle)?;
        Ok((&cvar.info, cvar.count))
    }

    /// Reads the values of a control variable (`CVAR_READ`).
    ///
    /// # Errors
    /// [`Error::InvalidHandle`]; [`Error::NotAccessible`], as it allocates.
    pub fn cvar_read(&self, handle: CvarHandle) -> Result<Vec<Value>> {
        self.check_allocation()?;
        let (cvar, object) = self.cvar(handle)?;
        let datatype = cvar.info.datatype;
        let load = |word: &AtomicU64| Value::of_bits(datatype, word.load(Ordering::Relaxed));
        // Not dropped if the producer's function is left (`in_progress`): then it is lost.
        let mut values: ManuallyDrop<Vec<Value>> =
            ManuallyDrop::new(cvar.kept.iter().map(load).collect());
        if let Some(read) = &cvar.read {
            read(object, &mut values);
        }
        Ok(ManuallyDrop::into_inner(values))
    }

    /// Sets the values of a control variable (`CVAR_WRITE`).
    ///
    /// # Errors
    /// [`Error::InvalidHandle`]; [`Error::Invalid`] if the number of values or their type is wrong;
    /// [`Error::CvarSetNever`] if users may not set it, [`Error::CvarSetNotNow`] if its producer
    /// refuses now.
    pub fn cvar_write(&self, handle: CvarHandle, values: &[Value]) -> Result<()> {
        let (cvar, object) = self.cvar(handle)?;
        let datatype = cvar.info.datatype;
        if values.len() != cvar.count || values.iter().any(|v| v.datatype() != datatype) {
            return Err(Error::Invalid);
        }
        if !cvar.info.scope.is_writable() {
            return Err(Error::CvarSetNever);
        }
        if let Some(write) = &cvar.write {
            return write(object, values);
        }
        for (word, value) in cvar.kept.iter().zip(values) {
            word.store(value.bits(), Ordering::Relaxed);
        }
        Ok(())
    }
}
