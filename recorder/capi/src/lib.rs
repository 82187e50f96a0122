//! The recorder's C interface: what `include/annals.h` declares and documents.
//!
//! Handles are numbers, not pointers: whatever a program passes, it gets a status, and memory is touched
//! only for what is really there. No panic crosses into the program.

mod call;
mod events;
mod handle;
#[cfg(test)]
mod header;
mod setup;
mod spec;
mod status;
mod table;
mod tool;
