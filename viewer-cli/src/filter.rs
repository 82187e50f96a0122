//! Filters: which events a command looks at.

use std::collections::BTreeSet;

use annals_format::{Definitions, EventTypeId, RegionId, StreamId};
use annals_merger::{EventFilter, FilterError, Selection, globs, some_match};
use clap::Args;

pub use annals_merger::WindowArguments;

/// Whose events a command looks at. Names are globs; several are separated by commas.
#[derive(Clone, Debug, Default, Args)]
pub struct FilterArguments {
    #[command(flatten)]
    events: EventFilter,

    /// Regions, by name (globs)
    #[arg(long, value_name = "GLOBS")]
    pub region: Option<String>,
}

/// A filter, made ready for one set of definitions.
#[derive(Clone, Debug)]
pub struct Filter {
    events: Selection,
    /// None: all.
    regions: Option<BTreeSet<RegionId>>,
}

impl From<EventFilter> for FilterArguments {
    fn from(events: EventFilter) -> Self {
        Self {
            events,
            region: None,
        }
    }
}

impl FilterArguments {
    /// Makes the filter ready. A name that matches nothing is an error: nothing would be shown, and a
    /// misspelt name is the usual reason.
    ///
    /// # Errors
    /// If a pattern cannot be read or matches nothing.
    pub fn prepare(&self, definitions: &Definitions) -> Result<Filter, FilterError> {
        let mut regions = None;
        if let Some(pattern) = &self.region {
            let set = globs(pattern)?;
            let matching = definitions.regions.values();
            let matching = matching.filter(|d| set.is_match(definitions.string(d.name)));
            let advice = "see `trace-cli regions`";
            let known = definitions.regions.values();
            let known = known.map(|d| definitions.string(d.name));
            let matching = matching.map(|d| d.id);
            regions = Some(some_match("region", pattern, advice, known, matching)?);
        }
        Ok(Filter {
            events: self.events.select(definitions)?,
            regions,
        })
    }
}

impl Filter {
    /// Whether events of a stream are looked at.
    pub fn takes_stream(&self, stream: StreamId) -> bool {
        self.events.takes_stream(stream)
    }

    /// Whether events of a type are looked at.
    pub fn takes_event_type(&self, event_type: EventTypeId) -> bool {
        self.events.takes_event_type(event_type)
    }

    /// Whether a region is looked at.
    pub fn takes_region(&self, region: RegionId) -> bool {
        self.regions
            .as_ref()
            .is_none_or(|set| set.contains(&region))
    }

    /// Whether only some regions are looked at.
    pub const fn is_by_region(&self) -> bool {
        self.regions.is_some()
    }
}
