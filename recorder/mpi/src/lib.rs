//! `libannals_mpi.so`: records MPI programs, whatever their MPI; preloaded.
//!
//! It intercepts every function of the MPI library that the program uses. It is built without any
//! MPI: the library is found at run time, with its binary interface, which is one of three (that of
//! MPICH, of Open MPI, or of the standard). A process has one recorder: this library has everything
//! that `libannals_instrument.so` has, so that functions and the program's own events are in the
//! same recording.
//!
//! Floors, from the top. A module imports only from floors below its own; of one floor, only as the
//! arrows show.
//!
//! | floor | modules |
//! |---|---|
//! | what programs call | `entry_points`: a function for each of `functions.tsv`, the only place where they are named; `lookups`: `dlsym` |
//! | what calls mean | `p2p`, `completion` → `outcome` → `collective`; `lifecycle` → `rma`, `files`, `communicator_calls` → `clocks` |
//! | what calls return | `statuses` |
//! | one call | `call`: forwarded as machine words, entered and left → `in_progress`: those that were left by unwinding |
//! | beginning | `start` → `begun` |
//! | communicators | `communicators`: names that all processes agree on, and ranks → `freed` |
//! | the library's own events and variables (MPI_T) | `events` → `performance` → `mpi_t` |
//! | the state | `state` → `event_types`, `requests` → `communicator`, `handles` → `channels` |
//! | the library | `callers` → `bindings`; `stack`; `pmpi`, `place`, `caller_memory` → `abi` |
//! | its symbols | `library` |
//! | ground | `unseen`, `addresses` → `signatures`; `settings` → `sync` |

mod abi;
mod addresses;
mod begun;
mod bindings;
mod call;
mod caller_memory;
mod callers;
mod channels;
mod clocks;
mod collective;
mod communicator;
mod communicator_calls;
mod communicators;
mod completion;
mod entry_points;
mod event_types;
mod events;
mod files;
mod freed;
mod handles;
mod in_progress;
mod library;
mod lifecycle;
mod lookups;
mod mpi_t;
mod outcome;
mod p2p;
mod performance;
mod pmpi;
mod requests;
mod rma;
mod settings;
mod signatures;
mod stack;
mod start;
mod state;
mod statuses;
mod sync;
mod unseen;

// Linked for the functions that it exports.
use annals_capi as _;
