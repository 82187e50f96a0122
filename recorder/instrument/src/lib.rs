//! Records every function of a program that was compiled with `-finstrument-functions`.
//!
//! This crate is an rlib. Two shared libraries link it: `libannals_instrument.so` (package
//! `libannals-instrument`) and `libannals_mpi.so`.
//!
//! | module | what it does |
//! |---|---|
//! | `hooks` | what the compiler calls: from an address to a region, and the event |
//! | `service` | starts the recorder; a thread that defines the functions that the hooks have met |
//! | `constructs` | constructs of threads, as the runtimes of OpenMP have them |
//! | `functions` | the table of addresses; takes no lock |
//! | `listed` | which file a function is in; takes no lock |
//! | `forked` | records children made by fork, with `ANNALS_FORK=follow` |
//! | `sampling` | samples of call paths, of all threads |
//! | `signals` | hides the signal of samples, where they are taken by one |
//! | `system` | the functions that are replaced, as the system has them |
//! | `modules` | which file is where in memory, as the loader knows it |

mod constructs;
mod forked;
mod functions;
mod hooks;
mod listed;
pub mod modules;
mod sampling;
mod service;
mod signals;
mod system;

pub use constructs::{Construct, set_constructs};
pub use hooks::region_of;
pub use service::{recorder, started, when_started};
