//! What is known of each callsite, found by its metadata without a lock.

use std::sync::OnceLock;

use annals_recorder::{Recorder, RecorderError, RegionId, Result};
use tracing::Metadata;

use crate::level::{Levels, SpanTypes};
use crate::shape::{Purpose, Shapes};

/// Places for callsites.
pub(crate) const PLACES: usize = 1 << 13;

/// Number of places that a callsite may have, and so the most that are searched for it.
const MOST_PROBES: usize = 64;

/// Number of a callsite's place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SiteNumber(u16);

impl SiteNumber {
    pub(crate) const fn new(number: u16) -> Self {
        Self(number)
    }

    pub(crate) const fn get(self) -> u16 {
        self.0
    }
}

/// A place in the program that makes spans or raises events.
#[derive(Debug)]
pub(crate) struct Callsite {
    pub(crate) metadata: &'static Metadata<'static>,
    pub(crate) kind: CallsiteKind,
}

#[derive(Debug)]
pub(crate) enum CallsiteKind {
    Span(Box<SpanSite>),
    Event(Box<Shapes>),
    /// The recorder has no room for its definitions.
    NoRoom,
}

/// A place that makes spans.
#[derive(Debug)]
pub(crate) struct SpanSite {
    pub(crate) region: RegionId,
    pub(crate) types: SpanTypes,
    pub(crate) new: Shapes,
    pub(crate) record: Shapes,
}

impl Callsite {
    /// Defines what a callsite needs; an error when that may be possible another time.
    fn define(
        recorder: &Recorder,
        levels: &Levels,
        metadata: &'static Metadata<'static>,
    ) -> Result<Self> {
        let kind = if metadata.is_span() {
            match Self::define_span(recorder, levels, metadata) {
                Ok(span) => CallsiteKind::Span(Box::new(span)),
                Err(error @ (RecorderError::InClock | RecorderError::Finished)) => {
                    return Err(error);
                }
                Err(_) => CallsiteKind::NoRoom,
            }
        } else {
            CallsiteKind::Event(Box::new(Shapes::new(Purpose::Event)))
        };
        Ok(Self { metadata, kind })
    }

    fn define_span(
        recorder: &Recorder,
        levels: &Levels,
        metadata: &'static Metadata<'static>,
    ) -> Result<SpanSite> {
        let file = metadata.file().unwrap_or_default();
        let line = metadata.line().unwrap_or_default();
        let types = levels.get(recorder, *metadata.level())?;
        Ok(SpanSite {
            region: recorder.add_region_at(metadata.name(), file, line, metadata.target())?,
            types,
            new: Shapes::new(Purpose::New),
            record: Shapes::new(Purpose::Record),
        })
    }
}

/// The callsites that were met.
/// Their number is bounded: the caller counts those that find no place.
#[derive(Debug)]
pub(crate) struct Callsites(Box<[OnceLock<Box<Callsite>>]>);

impl Callsites {
    pub(crate) fn new() -> Self {
        Self((0..PLACES).map(|_| OnceLock::new()).collect())
    }

    /// Returns the places that a callsite may be at.
    #[inline]
    fn places(
        &self,
        metadata: &'static Metadata<'static>,
    ) -> impl Iterator<Item = (SiteNumber, &OnceLock<Box<Callsite>>)> {
        // Metadata is in the program's data, 8 bytes aligned. Fibonacci hashing (Knuth, TAOCP vol.
        // 3, 6.4).
        let address = std::ptr::from_ref(metadata) as u64;
        let hash = (address >> 3).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - PLACES.ilog2());
        (0..MOST_PROBES).map(move |probe| {
            let number = (hash as usize + probe) % PLACES;
            (SiteNumber(number as u16), &self.0[number])
        })
    }

    /// Returns the callsite with this number.
    #[inline]
    pub(crate) fn get(&self, number: SiteNumber) -> Option<&Callsite> {
        let callsite = self.0.get(usize::from(number.0))?.get()?;
        Some(&**callsite)
    }

    /// Returns a callsite that was met before.
    #[inline]
    pub(crate) fn find(
        &self,
        metadata: &'static Metadata<'static>,
    ) -> Option<(SiteNumber, &Callsite)> {
        for (number, place) in self.places(metadata) {
            let callsite = place.get()?;
            if std::ptr::eq(callsite.metadata, metadata) {
                return Some((number, callsite));
            }
        }
        None
    }

    /// Returns a callsite that may be new, or `None` when there is no room for it, or not now.
    #[cold]
    pub(crate) fn add(
        &self,
        recorder: &Recorder,
        levels: &Levels,
        metadata: &'static Metadata<'static>,
    ) -> Option<(SiteNumber, &Callsite)> {
        let mut new = None;
        for (number, place) in self.places(metadata) {
            if place.get().is_none() {
                let callsite = match new.take() {
                    Some(callsite) => callsite,
                    None => Box::new(Callsite::define(recorder, levels, metadata).ok()?),
                };
                // Another thread may take the place, for this callsite or another one.
                new = place.set(callsite).err();
            }
            let callsite = place.get()?;
            if std::ptr::eq(callsite.metadata, metadata) {
                return Some((number, callsite));
            }
        }
        None
    }
}
