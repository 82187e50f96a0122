//! Sources: adding them, what consumers ask about them, and the producer's handle.

use std::sync::Arc;

use super::Runtime;
use crate::events::deferred::Ring;
use crate::events::error::{Error, Result};
use crate::events::registration::DropRow;
use crate::events::source::{SourceInfo, SourceSpec, SourceState};
use crate::events::types::Safety;

impl Runtime {
    /// Adds a source.
    ///
    /// # Errors
    /// [`Error::Invalid`] if its name is empty, its rate 0, or its clock larger than 63 bits, or if
    /// it is sequenced and its clock wraps; [`Error::OutOfHandles`] beyond 256;
    /// [`Error::NotAccessible`].
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
        self.notify_watchers();
        Ok(Source {
            state,
            runtime: self.clone(),
        })
    }

    /// Returns how many sources there are (`SOURCE_GET_NUM`).
    /// It only grows.
    pub fn source_count(&self) -> i32 {
        self.shared.sources.len() as i32
    }

    fn source(&self, index: i32) -> Result<&Arc<SourceState>> {
        self.shared.sources.at(index).ok_or(Error::InvalidIndex)
    }

    /// Returns what a source is (`SOURCE_GET_INFO`).
    ///
    /// # Errors
    /// [`Error::InvalidIndex`] if there is none.
    pub fn source_info(&self, index: i32) -> Result<&SourceInfo> {
        Ok(&self.source(index)?.info)
    }

    /// Returns the current time of a source, in its ticks (`SOURCE_GET_TIMESTAMP`).
    ///
    /// # Errors
    /// [`Error::InvalidIndex`] if there is none, [`Error::NotSupported`] if its time cannot be
    /// asked for.
    pub fn source_timestamp(&self, index: i32) -> Result<u64> {
        self.source(index)?.now()
    }
}

/// A source, for the producer that raises its events.
/// Cheap to clone.
#[derive(Clone, Debug)]
pub struct Source {
    pub(super) state: Arc<SourceState>,
    pub(super) runtime: Runtime,
}

impl Source {
    /// Returns its index.
    pub fn index(&self) -> i32 {
        self.state.index as i32
    }

    /// Delivers what was raised deferred, in the order of the raises, in a context with this
    /// requirement; how many instances. While another thread delivers, nothing: it takes the new
    /// ones along.
    pub fn deliver(&self, required: Safety) -> usize {
        self.runtime.deliver(&self.state, required)
    }

    /// Returns how many instances wait for [`Source::deliver`].
    pub fn pending(&self) -> usize {
        self.state.ring.as_ref().map_or(0, Ring::pending)
    }
}
