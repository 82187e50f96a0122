//! OTF2 archives: their bytes, read and written, and their conversion to recordings. The codecs take bytes and do no
//! I/O; which file is which is up to the caller.
//!
//! An archive is an [`Anchor`] (`NAME.otf2`), global definitions (`NAME.def`), and for each location its own
//! definitions (`NAME/L.def`) and events (`NAME/L.evt`). All but the anchor are sequences of chunks of the
//! size that the anchor names, so that each can be read alone: a [`RawRecords`] or an [`EventReader`] takes one.
//! The records and their fields are described only in [`records`].

mod anchor;
mod container;
pub mod conventions;
mod convert;
mod definitions;
mod describe;
pub mod enums;
mod events;
mod local;
pub mod records;
#[cfg(test)]
mod tests;
mod wire;
mod writer;

pub use anchor::{Anchor, LEAST_CHUNK, MOST_CHUNK};
pub use container::{
    CHUNK_HEADER_LEN, ChunkEnd, ChunkHeader, Datum, RawRecord, RawRecords, RecordWriter,
    chunk_size_of, put_record, read_fields,
};
pub(crate) use convert::Archives;
pub use convert::is_anchor;
pub use definitions::{GlobalDefinition, GlobalDefinitions};
pub use describe::{DefinitionKind, Enumeration, Field, FieldType, Frame, Record, types};
pub use events::{AttributeValue, EventReader, Item, event_record, list_of};
pub use local::{ClockCorrection, ClockOffset, IdMap, LocalDefinitions};
pub use wire::{Endian, Input, Output};
pub use writer::{EventToWrite, EventWriter};

/// Reads bytes as each of the files of an archive. For fuzzing: it must come back, whatever they are.
#[doc(hidden)]
pub fn exercise(bytes: &[u8]) {
    let _ = Anchor::decode(bytes);
    let _ = Anchor::salvage(bytes);
    for is_of_events in [true, false] {
        let _ = chunk_size_of(bytes, is_of_events);
    }
    if let Ok(records) = RawRecords::new(bytes) {
        let endian = records.endian();
        let mut global = GlobalDefinitions::default();
        let mut local = LocalDefinitions::default();
        for raw in records.flatten() {
            let _ = global.take(raw, endian);
            let _ = local.take(raw, endian);
            for table in [records::MARKERS, records::SNAPSHOTS] {
                if let Some(record) = Record::find(table, raw.id) {
                    let _ = read_fields(record, raw.payload, endian);
                }
            }
        }
        for definition in &global.all {
            if let Some((kind, id)) = definition.own_id() {
                let _ = global.name(kind, id);
            }
            let _ = definition.encode();
        }
        let (mut correction, _) = ClockCorrection::new(&local.clock_offsets);
        if let Ok((mut reader, _)) = EventReader::of_chunk(bytes) {
            while let Ok(Item::Event | Item::Unreadable) = reader.next_item() {
                let _ = correction.correct(reader.time);
                if let Some(record) = reader.record() {
                    local.globalize(record, &mut reader.values, &mut reader.attributes);
                }
            }
        }
    }
}
