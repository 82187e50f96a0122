//! Recording from Python, by the library that records ([`library`]).
//!
//! One recorder per process: that which `trace-cli record` has started or will start, or one of the package's own. Regions of an
//! asyncio task are at a location of the task ([`tasks`]), because tasks take turns on their thread and their calls do not nest.
//! Locations have the names that Python has for the threads ([`threads`]).

pub(crate) mod library;
pub(crate) mod monitoring;
pub(crate) mod recorder;
pub(crate) mod tasks;
mod threads;
mod under_lock;
