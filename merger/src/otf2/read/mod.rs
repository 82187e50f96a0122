//! Archives as inputs.
//!
//! From the bottom up: [`open_regions`] knows which region a leave ends; [`scan`] reads a file of events once; [`world`] knows the ranks of
//! communicators, [`contexts`] calling contexts; [`event_types`] makes event types of what was found; [`file`] reads files of
//! definitions, [`anchor`] the anchor, [`markers`] the markers. [`archive`] holds the result, by
//! which [`decode`] and [`part`] turn parts of files into chunks; [`process`] makes the recordings,
//! and [`open`] puts it all together.

pub(crate) mod anchor;
mod archive;
mod contexts;
pub(crate) mod decode;
pub(crate) mod event_types;
mod file;
pub(crate) mod markers;
pub(crate) mod open;
mod open_regions;
pub(crate) mod part;
pub(crate) mod process;
pub(crate) mod scan;
mod world;
