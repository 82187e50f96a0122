//! What tests and benches of several packages share: recordings made without the recorder, recorders to begin with,
//! installed programs.

pub mod calls;
pub mod deeds;
pub mod installation;
pub mod metrics;
pub mod mpi_script;
pub mod page;
pub mod plans;
pub mod programs;
pub mod recorders;
pub mod recording;
pub mod samples;
pub mod synthetic;

pub use recording::{
    ENTER, LEAVE, MARK, NOTE, REFERENCE, REGION_NAMES, Row, TestClock, TestRecording, TestStream,
    bodies, sums_by_type,
};
