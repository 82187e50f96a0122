//! `libannals_mpi.so`: records MPI programs, whatever their MPI; preloaded.
//!
//! It intercepts every function of the MPI library that the program uses. It is built without any MPI: the
//! library is found at run time, with the binary interface that it has of three (MPICH's own, Open MPI's own,
//! the standard's). A process has one recorder: this library has everything that `libannals_instrument.so`
//! has, so that functions and the program's own events are in the same recording.
//!
//! | module | what it does |
//! |---|---|
//! | `mpi_table` | every function of MPI, from `functions.tsv`, the only place where they are named |
//! | `wrap` | one call: forwarded as machine words, entered and left |
//! | `stack` | one tool of several in QMPI's stack, where the library has that |
//! | `library` | finds the MPI library, and what stands behind a function |
//! | `abi` | constants and layouts of each binary interface |
//! | `real` | the library's functions that this one calls itself |
//! | `state` | what is known once recording has begun |
//! | `chosen` | what a user chose by name |
//! | `communicators` | who a communicator is, in all processes alike, and whose ranks it has |
//! | `requests` | what was started and is not complete; takes no lock |
//! | `p2p`, `completion`, `collective`, `rma`, `files`, `lifecycle` | what calls mean |
//! | `clocks` | offsets between hosts |
//! | `performance` | the library's performance variables (MPI_T) |
//! | `events` | the library's own events (MPI_T) |

mod abi;
mod chosen;
mod clocks;
mod collective;
mod communicators;
mod completion;
mod events;
mod files;
mod handles;
mod library;
mod lifecycle;
mod mpi_table;
mod p2p;
mod performance;
mod real;
mod requests;
mod rma;
mod stack;
mod state;
mod wrap;

// Linked for the functions that it exports.
use annals_capi as _;
