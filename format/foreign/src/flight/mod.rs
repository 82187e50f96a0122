//! Dumps of PyTorch's flight recorder: the newest operations that each rank of a training job has entered.
//!
//! They are no traces: a dump is a ring of operations without begins and ends, so that nothing here makes recordings. The module is in this crate because it reads what
//! another tool has written; `annals-analysis` judges the ranks by it. Dumps are from jobs that failed, and pickles are programs: only plain data is read, and nothing is executed.

mod convert;
mod entry;
mod files;
mod pickle;
mod raw;
#[cfg(test)]
mod tests;
mod value;

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

use annals_format::FormatError;
use serde::Deserialize;

use crate::error::{ForeignError, Result};

use raw::{Entries, Gathered, RawDump};
use value::{Node, Values, invalid};

pub use entry::{Dump, Entry, Group, State, Status};
pub use files::{DumpFile, dump_files};

/// Length of the longest JSON that is read: what it becomes is larger.
const MOST_JSON: u64 = 16 << 20;

impl Dump {
    /// Reads a dump from a file, of which no more than the newest `most_entries` are kept. Memory is bounded by 200 MiB, whatever the file is.
    ///
    /// # Errors
    /// If the file cannot be read or is not a whole dump.
    pub fn read(path: &Path, most_entries: usize) -> Result<Self> {
        let file = File::open(path).map_err(ForeignError::io("open", path))?;
        Self::parse(BufReader::new(file), most_entries).map_err(ForeignError::format(path))
    }

    /// Reads a dump: a pickle or JSON, as its first byte shows.
    ///
    /// # Errors
    /// If the input cannot be read or is not a whole dump.
    pub fn parse(mut input: impl Read, most_entries: usize) -> annals_format::Result<Self> {
        let mut first = [0];
        match input.read(&mut first) {
            Ok(0) => return Err(FormatError::Empty),
            Ok(_) => {}
            Err(error) => return Err(FormatError::Io { offset: 0, error }),
        }
        let input = first.as_slice().chain(input);
        let raw = match first[0] {
            0x80 => from_pickle(input)?,
            b'{' | b'[' => from_json(input, first[0] == b'[')?,
            byte => {
                let found = format!("{byte:#04x}");
                return Err(invalid(0, "a pickle or JSON", found));
            }
        };
        convert::convert(raw, most_entries)
    }
}

/// Returns the oldest kind of dump: a list of entries.
fn of_entries(entries: Gathered<Entries>) -> RawDump {
    RawDump {
        entries: Some(entries),
        ..RawDump::default()
    }
}

fn from_pickle(input: impl Read) -> annals_format::Result<RawDump> {
    let mut values = Values::new();
    let value = pickle::read_pickle(input, &mut values)?;
    let values = &values;
    let node = Node { values, value };
    let raw = match value {
        value::Value::List(_) => Gathered::deserialize(node).map(of_entries),
        _ => RawDump::deserialize(node),
    };
    raw.map_err(|error| invalid(0, "a dump of PyTorch's flight recorder", error))
}

fn from_json(input: impl Read, is_list: bool) -> annals_format::Result<RawDump> {
    let mut reader = serde_json::Deserializer::from_reader(input.take(MOST_JSON));
    let raw = match is_list {
        true => Gathered::deserialize(&mut reader).map(of_entries),
        false => RawDump::deserialize(&mut reader),
    };
    let raw = raw.and_then(|raw| reader.end().map(|()| raw));
    raw.map_err(|error| match error.is_io() {
        true => FormatError::Io {
            offset: 0,
            error: error.into(),
        },
        false => invalid(0, "the JSON of a dump, of less than 16 MiB", error),
    })
}
