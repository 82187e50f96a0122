//! An opened archive: everything that its parts are decoded with.

use super::event_types::EventTypes;
use super::file::LocationFile;
use super::markers::Markers;
use super::world::World;
use crate::otf2::names::Numberings;
use annals_format::otf2::{Anchor, GlobalDefinitions};
use std::path::PathBuf;

/// An opened archive.
#[derive(Debug)]
pub(crate) struct Archive {
    /// Its anchor's file.
    pub(crate) path: PathBuf,
    pub(crate) anchor: Anchor,
    pub(crate) definitions: GlobalDefinitions,
    pub(crate) event_types: EventTypes,
    pub(crate) numberings: Numberings,
    pub(crate) world: World,
    /// By their numbers.
    pub(crate) locations: Vec<LocationFile>,
    pub(crate) markers: Option<Markers>,
}
