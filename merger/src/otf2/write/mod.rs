//! Archives as outputs.
//!
//! [`inputs`] holds the definitions of archives among the inputs, [`definitions`] all definitions of the
//! archive that is written; [`events`] turns events into records; [`files`] and [`streams`] say where
//! they are written; [`archive`] drives it all.

pub(crate) mod archive;
mod definitions;
mod events;
mod files;
mod inputs;
mod streams;
