//! Traces of the Paraver format: text lines of states, events and communications (*Paraver: Traces generation*, Barcelona
//! Supercomputing Center; the traces of Extrae). A trace is three files: records (`.prv`), names of states and event types
//! (`.pcf`), names of processors and threads (`.row`).
//!
//! Everything here works on single lines, not on files: the caller bounds the length of a line.

mod fields;
mod header;
mod labels;
mod record;

pub use fields::LineError;
pub use header::{Application, Header, Task};
pub use labels::{EventLabels, Labels, RowNames};
pub use record::{Communication, Events, Record, State, Thread, parse_record};

/// The first bytes of every trace.
pub const MAGIC: &[u8] = b"#Paraver ";
