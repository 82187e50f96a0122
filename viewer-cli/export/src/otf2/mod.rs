//! OTF2 archives as outputs.
//!
//! `inputs` holds the definitions of archives among the inputs, `roles` knows the roles of MPI's functions,
//! `definitions` holds all definitions of the archive that is written, and `ranks` makes those of ranks and
//! communicators, `contexts` those of samples; `events` turns events into records; `files` and `streams` say where they are written;
//! `archive` drives it all.

mod archive;
mod contexts;
mod definitions;
mod events;
mod files;
mod inputs;
mod ranks;
mod roles;
mod streams;

pub use archive::{ArchiveOptions, Written, anchor_of, write_archive};
