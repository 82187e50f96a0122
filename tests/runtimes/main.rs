//! Programs with OpenMP, recorded: with LLVM's runtimes of two versions, and with GCC's.

mod constructs;
mod kokkos;
mod others;
mod shape;
mod support;
