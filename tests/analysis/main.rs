//! Analyses of MPI and OpenMP programs with exact clocks, compared with values that are written out and with an oracle.

mod casita;
mod critical_path;
mod dumps;
mod exchanges;
mod lanes;
mod losses;
mod oracle;
mod paraver;
mod patterns;
mod phases;
mod pipit;
mod shares;
mod threads;
