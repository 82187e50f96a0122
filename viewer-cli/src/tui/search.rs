//! Looking for a name.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use annals_format::{EventTypeId, LocationId, RegionId, Role};
use annals_merger::{Event, Reader, Window};

use super::Shown;

/// Number of events that are read before the reader checks whether to continue.
const STEP: u64 = 500_000;

/// The search.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Search {
    /// Part of a region's or event type's name, in any case.
    pub(super) name: String,
    /// The search starts after this time (forward) or before it (backward).
    pub(super) from_ns: i64,
    pub(super) is_forward: bool,
}

/// A hit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Hit {
    pub(super) time_ns: i64,
    pub(super) location: Option<LocationId>,
    pub(super) name: String,
}

pub(super) enum SearchOutcome {
    Hit(Hit),
    None,
    Stopped,
}

struct Wanted<'a> {
    shown: &'a Shown,
    regions: BTreeSet<RegionId>,
    types: BTreeSet<EventTypeId>,
    /// Event types that enter regions.
    enters: BTreeSet<EventTypeId>,
}

impl<'a> Wanted<'a> {
    fn of(shown: &'a Shown, name: &str) -> Self {
        let definitions = shown.opened.definitions();
        let name = name.to_lowercase();
        let is_like = |known: &str| known.to_lowercase().contains(&name);
        let regions = definitions.regions.keys().copied();
        let regions = regions.filter(|id| is_like(&definitions.region_name(*id)));
        let types = definitions.event_types.values();
        let enters = types.clone().filter(|t| t.role == Role::Enter);
        let is_wanted = |id: &EventTypeId| {
            is_like(&definitions.event_type_name(*id)) && shown.filter.takes_event_type(*id)
        };
        Self {
            shown,
            regions: regions.collect(),
            types: types.map(|t| t.id).filter(is_wanted).collect(),
            enters: enters.map(|t| t.id).collect(),
        }
    }

    fn is_nothing(&self) -> bool {
        self.regions.is_empty() && self.types.is_empty()
    }

    /// Returns the first event in a window, or the last.
    fn find(&self, window: Window, is_forward: bool) -> anyhow::Result<Option<Hit>> {
        let types = self.types.union(&self.enters).copied();
        let query = self.shown.filter.within(window).of_event_types(types);
        let mut found = None;
        self.shown.opened.for_each_event(&query, |event| {
            let name = self.name_of(event);
            let hit = name.map(|name| Hit {
                time_ns: event.time(),
                location: event.location_id(),
                name,
            });
            found = hit.or_else(|| found.take());
            match is_forward && found.is_some() {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        })?;
        Ok(found)
    }

    /// Returns the name by which an event is found. `None` if it is not looked for.
    fn name_of(&self, event: &Event<'_>) -> Option<String> {
        let is_enter = self.enters.contains(&event.event_type());
        let region = event.region().filter(|region| {
            is_enter && self.regions.contains(region) && self.shown.filter.takes_region(*region)
        });
        match region {
            Some(_) => event.region_name(),
            None => self
                .types
                .contains(&event.event_type())
                .then(|| event.name().to_owned()),
        }
    }
}

/// Returns the window of at least `events` events, or slightly more, that begins (or ends) at
/// `at_ns`.
pub(super) fn stretch(
    opened: &Reader,
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
) -> anyhow::Result<SearchOutcome> {
    let wanted = Wanted::of(shown, &search.name);
    if wanted.is_nothing() {
        return Ok(SearchOutcome::None);
    }
    let whole = Window {
        from_ns: i64::MIN / 2,
        to_ns: shown.opened.extent().end_ns.saturating_add(1),
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
            return Ok(SearchOutcome::None);
        }
        if !go_on(at_ns) {
            return Ok(SearchOutcome::Stopped);
        }
        let window = stretch(&shown.opened, at_ns, search.is_forward, STEP, whole);
        if let Some(hit) = wanted.find(window, search.is_forward)? {
            return Ok(SearchOutcome::Hit(hit));
        }
        at_ns = if search.is_forward {
            window.to_ns
        } else {
            window.from_ns
        };
        if !search.is_forward && at_ns <= whole.from_ns {
            return Ok(SearchOutcome::None);
        }
    }
}
