//! The definitions of a recording: tables of what is defined, and where their records are stored.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use annals_format::{Definition, Definitions, EventTypeId, RegionId, Schema, StringId};

use crate::clock::TickSource;
use crate::error::{RecorderError, Result};
use crate::memory::LiveMemory;
use crate::storage::{Storage, StorageStatus};
use crate::sync::lock;

/// Size of a recording after which its definitions are written a second time.
const REPEAT_DEFINITIONS_BYTES: u64 = 4 << 20;
/// Most bytes of definitions that wait for their second copy.
const MAX_WRITTEN_ONCE: usize = 1 << 20;
/// Where records of definitions are stored: the live file and the recording.
#[derive(Clone, Copy)]
pub(crate) struct DefinitionSink<'a> {
    pub(crate) memory: &'a LiveMemory,
    pub(crate) storage: &'a Mutex<Storage>,
    pub(crate) status: &'a StorageStatus,
}

/// Everything that is defined, with tables to find it by, and the records that are not safely
/// stored yet.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    pub(crate) definitions: Definitions,
    pub(crate) strings: HashMap<String, StringId>,
    pub(crate) event_types: HashMap<String, EventTypeId>,
    pub(crate) regions: HashMap<(StringId, StringId, u32, StringId), RegionId>,
    pub(crate) clocks: Vec<TickSource>,
    /// Records that are not in the recording yet.
    pending: Vec<u8>,
    /// Records that are in the recording once. The live file keeps them until they are there twice,
    /// so that no damaged block of a recording without a footer costs a definition.
    written_once: Vec<u8>,
    /// Bytes of the recording when records were last written the second time.
    repeated_at: u64,
    pub(crate) schema: Arc<Schema>,
    is_finished: bool,
}

impl Registry {
    pub(crate) fn check_open(&self) -> Result<()> {
        if self.is_finished {
            return Err(RecorderError::Finished);
        }
        Ok(())
    }

    /// Closes the registry: no definition can be added any more.
    pub(crate) fn close(&mut self) {
        self.is_finished = true;
    }

    /// Writes records that are not in the recording yet; and the second copy of others, if it is
    /// due.
    pub(crate) fn flush(&mut self, sink: &DefinitionSink<'_>) {
        if !self.pending.is_empty() && lock(sink.storage).append_definitions(&self.pending) {
            self.written_once.append(&mut self.pending);
        }
        let since = sink.status.written() - self.repeated_at;
        if since >= REPEAT_DEFINITIONS_BYTES || self.written_once.len() >= MAX_WRITTEN_ONCE {
            self.repeat(sink);
        }
    }

    /// Writes the second copy of all records that are in the recording once, and empties the live
    /// file's area.
    fn repeat(&mut self, sink: &DefinitionSink<'_>) {
        let is_due = self.pending.is_empty() && !self.written_once.is_empty();
        if is_due && lock(sink.storage).append_definitions(&self.written_once) {
            self.written_once.clear();
            self.repeated_at = sink.status.written();
            sink.memory.clear_definitions();
        }
    }

    /// Adds a definition. It is in the live file, or in the recording, when this returns.
    pub(crate) fn add(&mut self, sink: &DefinitionSink<'_>, definition: Definition) -> Result<()> {
        self.check_open()?;
        let mut record = Vec::new();
        definition.encode(&mut record);
        if sink.memory.path().is_none() {
            self.pending.extend_from_slice(&record);
            self.flush(sink);
        } else {
            if !sink.memory.append_definitions(&record) {
                self.flush(sink);
                self.repeat(sink);
                if !sink.memory.append_definitions(&record) {
                    return Err(RecorderError::Full {
                        what: "definitions",
                    });
                }
            }
            self.pending.extend_from_slice(&record);
        }
        self.definitions.add(definition);
        Ok(())
    }

    /// Returns the id of a string.
    /// Defines it if it is new.
    pub(crate) fn string(&mut self, sink: &DefinitionSink<'_>, text: &str) -> Result<StringId> {
        if let Some(id) = self.strings.get(text) {
            return Ok(*id);
        }
        let id = StringId::new(self.strings.len() as u32);
        self.add(sink, Definition::String(id, text.to_owned()))?;
        self.strings.insert(text.to_owned(), id);
        Ok(id)
    }

    /// Returns the text of a string; empty when it is not defined.
    pub(crate) fn text(&self, id: StringId) -> &str {
        self.definitions.strings.get(&id).map_or("", String::as_str)
    }

    /// Returns the row schemas of all event types.
    pub(crate) fn schema(&self) -> Arc<Schema> {
        Arc::clone(&self.schema)
    }
}
