//! The extension module `annals_trace._native`: what the Python package does in Rust.
//!
//! | module | what it has |
//! |---|---|
//! | `trace` | an opened trace: its properties, and its tables |
//! | `arguments` | arguments of tables, as Python passes them: times, ranks, names |
//! | `table` | a table, as a stream of Arrow batches and as NumPy arrays |
//! | `stream` | the stream that consumers read, without Python's lock |
//! | `columns` | a table's columns as memory that NumPy reads |
//! | `analyses` | messages between ranks, and profiles |
//! | `answers` | answers of analyses as JSON, and the parts of them that other processes do |
//! | `distributed` | the parts of a merge that other processes do |
//! | `waiting` | waiting for work without Python's lock, until Ctrl-C |
//! | `recording` | recording this process: regions, events, functions, tasks |
//! | `errors` | exceptions |

mod analyses;
mod answers;
mod arguments;
mod columns;
mod distributed;
mod errors;
mod recording;
mod stream;
mod table;
mod trace;
mod waiting;

use pyo3::pymodule;

/// What the package `annals_trace` is made of.
#[pymodule]
mod _native {
    use pyo3::prelude::*;

    #[pymodule_export]
    use super::answers::{answer, list_inputs, region_sums, regions_of_sums};
    #[pymodule_export]
    use super::columns::NumpyColumn;
    #[pymodule_export]
    use super::distributed::{join_slices, merge_inputs, why_no_slice, write_plan, write_slice};
    #[pymodule_export]
    use super::recording::monitoring::{monitor, stop_monitoring};
    #[pymodule_export]
    use super::recording::recorder::{EventType, NativeRecorder, Region};
    #[pymodule_export]
    use super::recording::tasks::task_step;
    #[pymodule_export]
    use super::table::Table;
    #[pymodule_export]
    use super::trace::{Trace, open};

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
