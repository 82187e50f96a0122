//! Looking for a name.

use std::collections::BTreeSet;

use annals_format::{EventTypeId, LocationId, Reference, RegionId, Role, TraceChunk};
use annals_merger::{MergeError, Opened, Window};

use super::Shown;

/// So many events are read before it is asked whether to go on.
const STEP: u64 = 500_000;

/// What is looked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Search {
    /// Part of a region's or event type's name, in any case.
    pub(super) name: String,
    /// Behind this time, or before it.
    pub(super) from_ns: i64,
    pub(super) is_forward: bool,
}

/// What was found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Hit {
    pub(super) time_ns: i64,
    pub(super) location: Option<LocationId>,
    pub(super) name: String,
}

pub(super) enum Outcome {
    Hit(Hit),
    None,
    Stopped,
}

struct Wanted<'a> {
    shown: &'a Shown,
    regions: BTreeSet<RegionId>,
    types: BTreeSet<EventTypeId>,
    /// Event types that enter regions, and which element says which.
    enters: Vec<(EventTypeId, usize)>,
}

impl<'a> Wanted<'a> {
    fn of(shown: &'a Shown, name: &str) -> Self {
        let definitions = &shown.opened.definitions;
        let name = name.to_lowercase();
        let is_like = |known: &str| known.to_lowercase().contains(&name);
        let regions = definitions.regions.keys().copied();
        let regions = regions.filter(|id| is_like(&definitions.region_name(*id)));
        let types = definitions.event_types.values();
        let enters = types.clone().filter(|t| t.role == Role::Enter);
        let enters = enters.filter_map(|t| {
            let mut elements = t.elements.iter();
            Some((
                t.id,
                elements.position(|e| e.reference == Reference::Region)?,
            ))
        });
        let is_wanted = |id: &EventTypeId| {
            is_like(&definitions.event_type_name(*id)) && shown.filter.takes_event_type(*id)
        };
        Self {
            shown,
            regions: regions.collect(),
            types: types.map(|t| t.id).filter(is_wanted).collect(),
            enters: enters.collect(),
        }
    }

    fn is_nothing(&self) -> bool {
        self.regions.is_empty() && self.types.is_empty()
    }

    /// The first event of a chunk in a window, or the last.
    fn find(&self, chunk: &TraceChunk, window: Window, is_forward: bool) -> Option<Hit> {
        let is_wanted = |id| self.types.contains(&id) || self.enters.iter().any(|(e, _)| *e == id);
        if !chunk.types.iter().any(|t| is_wanted(t.event_type)) {
            return None;
        }
        let ordinals = chunk.ordinals();
        let hit = |index: usize| {
            let (time_ns, stream) = (chunk.times_ns[index], chunk.streams[index]);
            if !window.contains(time_ns) || !self.shown.filter.takes_stream(stream) {
                return None;
            }
            let columns = &chunk.types[usize::from(chunk.type_index[index])];
            let definitions = &self.shown.opened.definitions;
            let region = || {
                let enter = self
                    .enters
                    .iter()
                    .find(|(id, _)| *id == columns.event_type)?;
                let value = columns.columns.get(enter.1)?.get(ordinals[index] as usize);
                let region = RegionId::new(u32::try_from(value.as_integer()?).ok()?);
                let is_hit =
                    self.regions.contains(&region) && self.shown.filter.takes_region(region);
                is_hit.then(|| definitions.region_name(region))
            };
            let of_type = || {
                let is_hit = self.types.contains(&columns.event_type);
                is_hit.then(|| definitions.event_type_name(columns.event_type))
            };
            Some(Hit {
                time_ns,
                location: definitions.streams.get(&stream).and_then(|s| s.location),
                name: region().or_else(of_type)?,
            })
        };
        let mut indices = 0..chunk.type_index.len();
        if is_forward {
            indices.find_map(hit)
        } else {
            indices.rev().find_map(hit)
        }
    }
}

/// The stretch of time of so many events, or somewhat more, that begins, or ends, at a time.
pub(super) fn stretch(
    opened: &Opened,
    at_ns: i64,
    is_forward: bool,
    events: u64,
    whole: Window,
) -> Window {
    let here = opened.events_before(at_ns);
    let is_enough = |ns| opened.events_before(ns).abs_diff(here) > events;
    let (mut near, mut far) = (
        at_ns,
        if is_forward {
            whole.to_ns
        } else {
            whole.from_ns
        },
    );
    if is_enough(far) {
        while near.abs_diff(far) > 1000 {
            let middle = near.midpoint(far);
            if is_enough(middle) {
                far = middle;
            } else {
                near = middle;
            }
        }
    }
    Window {
        from_ns: at_ns.min(far),
        to_ns: at_ns.max(far),
    }
}

/// Looks for a name, a stretch of time after the other; `go_on` is asked before each.
pub(super) fn run(
    shown: &Shown,
    search: &Search,
    mut go_on: impl FnMut(i64) -> bool,
) -> anyhow::Result<Outcome> {
    let wanted = Wanted::of(shown, &search.name);
    if wanted.is_nothing() {
        return Ok(Outcome::None);
    }
    let whole = Window {
        from_ns: i64::MIN / 2,
        to_ns: shown.opened.end_ns().saturating_add(1),
    };
    let mut at_ns = if search.is_forward {
        search.from_ns.saturating_add(1)
    } else {
        search.from_ns
    };
    loop {
        let is_over = if search.is_forward {
            at_ns >= whole.to_ns
        } else {
            shown.opened.events_before(at_ns) == 0
        };
        if is_over {
            return Ok(Outcome::None);
        }
        if !go_on(at_ns) {
            return Ok(Outcome::Stopped);
        }
        let window = stretch(&shown.opened, at_ns, search.is_forward, STEP, whole);
        let mut hit = None;
        let outcome = shown.opened.read(window, |chunk| {
            let found = wanted.find(&chunk, window, search.is_forward);
            hit = if search.is_forward {
                hit.take().or(found)
            } else {
                found.or(hit.take())
            };
            if search.is_forward && hit.is_some() {
                return Err(MergeError::Stopped);
            }
            Ok(())
        });
        match (outcome, hit) {
            (_, Some(hit)) => return Ok(Outcome::Hit(hit)),
            (Err(error), None) => return Err(error.into()),
            (Ok(_), None) => {}
        }
        at_ns = if search.is_forward {
            window.to_ns
        } else {
            window.from_ns
        };
        if !search.is_forward && at_ns <= whole.from_ns {
            return Ok(Outcome::None);
        }
    }
}
