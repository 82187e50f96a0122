//! Records what runtimes of parallel programs do: those of OpenMP, by the interface for tools (OMPT), that of GCC by its functions, and
//! Kokkos.
//!
//! This crate is an rlib. `libannals_mpi.so` links it: one preload records MPI, functions and OpenMP into one recording. In a process
//! without such a runtime nothing happens.
//!
//! Regions of OpenMP are named by where they are in the code, in groups that say what they are: see `constructs`. What a thread has
//! entered and not left yet is kept (`threads`), because runtimes report some ends late or never.
//!
//! | module | what it does |
//! |---|---|
//! | `gomp` | calls of GCC's runtime: recorded, and passed on |
//! | `kokkos` | functions that Kokkos calls |
//! | `ompt` | callbacks of a runtime with OMPT: LLVM's, Intel's, AMD's |
//! | `choice` | which runtimes are recorded: `ANNALS_OPENMP` |
//! | `threads` | what each thread has entered; teams; what is left at the end |
//! | `events` | the recorder, and types of events |
//! | `stub` | functions that know where they were called |
//! | `named` | regions by name |
//! | `constructs` | what constructs are called |

mod choice;
mod constructs;
mod events;
mod gomp;
mod kokkos;
mod named;
mod ompt;
mod stub;
mod threads;

/// Prepares the recording of runtimes: to be called once, before the program begins.
pub fn prepare() {
    choice::prepare();
    adopt();
}

/// Has calls of GCC's runtime recorded that the files in memory make. To be called again when a file was loaded.
pub fn adopt() {
    gomp::adopt();
}
