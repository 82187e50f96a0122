//! An opened archive, as its processes' recordings share it.

use super::contexts::Contexts;
use super::event_types::EventTypes;
use super::file::LocationFile;
use super::markers::Markers;
use super::numbering::Numberings;
use super::world::World;
use crate::otf2::{Anchor, GlobalDefinitions};
use std::path::PathBuf;

/// An opened archive: its files, and everything that is needed to decode their events.
#[derive(Debug)]
pub(crate) struct Archive {
    /// Path of the anchor file.
    pub(crate) path: PathBuf,
    /// The contents of the anchor file.
    pub(crate) anchor: Anchor,
    /// The definitions that all locations share.
    pub(crate) definitions: GlobalDefinitions,
    /// The event types that its events have in the recordings.
    pub(crate) event_types: EventTypes,
    /// The numbers that its definitions have in the recordings.
    pub(crate) numberings: Numberings,
    /// The ranks in its communicators, as ranks of the run.
    pub(crate) world: World,
    /// The call paths of its samples.
    pub(crate) contexts: Contexts,
    /// Its locations with their files, by the location's number in the recordings.
    pub(crate) locations: Vec<LocationFile>,
    /// The markers, if it has any.
    pub(crate) markers: Option<Markers>,
}
