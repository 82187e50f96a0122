//! The recorder's C interface: every function that `include/annals.h` declares and documents.
//!
//! This crate is an rlib. Each of the shared libraries links it and exports its functions:
//! `libannals.so` (package `libannals`), `libannals_instrument.so` and `libannals_mpi.so`. A crate
//! that is both an rlib and a shared library cannot be optimised at link time, so the shared
//! libraries are separate packages.
//!
//! Handles are numbers, not pointers: whatever a program passes, it gets a status, and memory is
//! touched only for what is really there. No panic crosses into the program.
//!
//! | module | what it has |
//! |---|---|
//! | `setup`, `raise` | the exported functions: starting, defining, finishing; raising |
//! | `call` | the wrapper of every exported function: no panic, no re-entry |
//! | `spec` | the header's structures, and reading them |
//! | `table` | the recorders of the process, by number |
//! | `handle`, `status` | handles; status codes and the text of the last error |

mod call;
// Public for the crate of the header's second part, and for the test that compares the header with
// them.
#[doc(hidden)]
pub mod handle;
#[doc(hidden)]
pub mod raise;
#[doc(hidden)]
pub mod setup;
#[doc(hidden)]
pub mod spec;
#[doc(hidden)]
pub mod status;
#[doc(hidden)]
pub mod table;
