//! Arguments that choose which events a command reads.

use annals_format::{Definitions, units};
use annals_merger::{EventFilter, FilterError, Globs, Query, RankSet, Window, regions_like};
use clap::Args;

use crate::output::UsageError;

/// Filters for events. Names are globs; several are separated by commas.
#[derive(Clone, Debug, Default, Args)]
pub struct EventFilterArguments {
    /// Ranks: numbers and ranges, such as 0,4-7
    #[arg(long, value_name = "RANKS")]
    pub rank: Option<RankSet>,

    /// Sources, by name (globs)
    #[arg(long, value_name = "GLOBS")]
    pub source: Option<Globs>,

    /// Locations, by name (globs)
    #[arg(long, value_name = "GLOBS")]
    pub location: Option<Globs>,

    /// Event types, by name (globs)
    #[arg(long, value_name = "GLOBS")]
    pub event: Option<Globs>,
}

impl EventFilterArguments {
    /// Returns the filter of the library.
    pub fn filter(&self) -> EventFilter {
        EventFilter {
            ranks: self.rank.clone(),
            sources: self.source.clone(),
            locations: self.location.clone(),
            event_types: self.event.clone(),
        }
    }
}

/// Filters for streams. Names are globs; several are separated by commas.
#[derive(Clone, Debug, Default, Args)]
pub struct FilterArguments {
    /// Ranks, sources, locations and event types.
    #[command(flatten)]
    pub events: EventFilterArguments,

    /// Regions, by name (globs)
    #[arg(long, value_name = "GLOBS")]
    pub region: Option<Globs>,
}

impl FilterArguments {
    /// Returns the query of events in a window. A name that matches nothing is an error: nothing would be shown, and a
    /// misspelt name is the usual reason.
    ///
    /// # Errors
    /// If a pattern matches nothing.
    pub fn query(&self, definitions: &Definitions, window: Window) -> Result<Query, FilterError> {
        let mut query = Query::select(&self.events.filter(), definitions)?;
        query.set_window(window);
        if let Some(pattern) = &self.region {
            query.set_regions(regions_like(pattern, definitions)?);
        }
        Ok(query)
    }
}

impl FilterArguments {
    /// Returns the filter in words, such as `rank 0-3, region solve*`. `None` if everything is chosen.
    pub fn in_words(&self) -> Option<String> {
        let parts = [
            ("rank", self.events.rank.as_ref().map(RankSet::as_str)),
            ("source", self.events.source.as_ref().map(Globs::as_str)),
            ("location", self.events.location.as_ref().map(Globs::as_str)),
            ("event type", self.events.event.as_ref().map(Globs::as_str)),
            ("region", self.region.as_ref().map(Globs::as_str)),
        ];
        let given = parts
            .iter()
            .filter_map(|(what, pattern)| Some(format!("{what} {}", (*pattern)?)));
        let given: Vec<String> = given.collect();
        (!given.is_empty()).then(|| given.join(", "))
    }
}

/// A window of trace time.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct WindowArguments {
    /// Start of the time window, from the trace's start (1.5s, 250ms, 10us)
    #[arg(long, value_name = "TIME", value_parser = units::parse_time, allow_hyphen_values = true)]
    pub from: Option<i64>,

    /// End of the time window (exclusive)
    #[arg(long, value_name = "TIME", value_parser = units::parse_time, allow_hyphen_values = true)]
    pub to: Option<i64>,
}

impl WindowArguments {
    /// Returns the window.
    ///
    /// # Errors
    /// If it ends before it starts.
    pub fn window(self) -> Result<Window, UsageError> {
        let window = Window {
            from_ns: self.from.unwrap_or(i64::MIN),
            to_ns: self.to.unwrap_or(i64::MAX),
        };
        if window.from_ns > window.to_ns {
            let why = "the window ends before it starts: --from is later than --to";
            return Err(UsageError(why.to_owned()));
        }
        Ok(window)
    }
}

/// Returns advice on how to list the names among which a filter did not find one.
pub(crate) fn advice(error: &FilterError) -> &'static str {
    match error {
        FilterError::NoMatch { what, .. } => match *what {
            "region" => "; see `trace-cli regions`",
            "event type" => "; see `trace-cli events`",
            _ => "; see `trace-cli info` and `trace-cli sources`",
        },
        _ => "",
    }
}
