//! Filters: which events a command looks at.

use std::collections::BTreeSet;

use annals_format::{Definitions, EventTypeId, RegionId, StreamId};
use annals_merger::Window;
use anyhow::bail;
use clap::Args;
use globset::{GlobBuilder, GlobSet, GlobSetBuilder};

use crate::output::UsageError;
use crate::time::parse_time;

/// The window of time that a command looks at.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct WindowArguments {
    /// First moment to look at, from the trace's start (1.5s, 250ms, 10us)
    #[arg(long, value_name = "TIME", value_parser = parse_time, allow_hyphen_values = true)]
    pub from: Option<i64>,

    /// First moment not to look at any more
    #[arg(long, value_name = "TIME", value_parser = parse_time, allow_hyphen_values = true)]
    pub to: Option<i64>,
}

impl WindowArguments {
    /// The window.
    ///
    /// # Errors
    /// If it ends before it starts.
    pub fn window(self) -> anyhow::Result<Window> {
        let window = Window {
            from_ns: self.from.unwrap_or(i64::MIN),
            to_ns: self.to.unwrap_or(i64::MAX),
        };
        if window.from_ns > window.to_ns {
            let why = "the window ends before it starts: --from is later than --to";
            return Err(UsageError(why.to_owned()).into());
        }
        Ok(window)
    }
}

/// Whose events a command looks at. Names are globs; several are separated by commas.
#[derive(Clone, Debug, Default, Args)]
pub struct FilterArguments {
    /// Ranks: numbers and ranges, such as 0,4-7
    #[arg(long, value_name = "RANKS")]
    pub rank: Option<String>,

    /// Sources, by name (globs)
    #[arg(long, value_name = "GLOBS")]
    pub source: Option<String>,

    /// Locations, by name (globs)
    #[arg(long, value_name = "GLOBS")]
    pub location: Option<String>,

    /// Event types, by name (globs)
    #[arg(long, value_name = "GLOBS")]
    pub event: Option<String>,

    /// Regions, by name (globs)
    #[arg(long, value_name = "GLOBS")]
    pub region: Option<String>,
}

/// A filter, made ready for one set of definitions.
#[derive(Clone, Debug)]
pub struct Filter {
    streams: Option<BTreeSet<StreamId>>,
    event_types: Option<BTreeSet<EventTypeId>>,
    regions: Option<BTreeSet<RegionId>>,
}

fn globs(patterns: &str) -> anyhow::Result<GlobSet> {
    let mut set = GlobSetBuilder::new();
    for pattern in patterns.split(',').filter(|pattern| !pattern.is_empty()) {
        let glob = GlobBuilder::new(pattern)
            .literal_separator(false)
            .build()
            .map_err(|error| UsageError(format!("`{pattern}` is no pattern: {error}")))?;
        set.add(glob);
    }
    Ok(set.build()?)
}

fn rank_ranges(text: &str) -> anyhow::Result<Vec<(u32, u32)>> {
    let mut ranges = Vec::new();
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let range = first
            .trim()
            .parse::<u32>()
            .ok()
            .zip(last.trim().parse().ok());
        match range {
            Some((first, last)) if first <= last => ranges.push((first, last)),
            _ => {
                let why = format!("`{part}` is no rank and no range of ranks, such as 3 or 4-7");
                return Err(UsageError(why).into());
            }
        }
    }
    Ok(ranges)
}

impl FilterArguments {
    /// Makes the filter ready. A name that matches nothing is an error: nothing would be shown, and a
    /// misspelt name is the usual reason.
    ///
    /// # Errors
    /// If a pattern cannot be read or matches nothing.
    pub fn prepare(&self, definitions: &Definitions) -> anyhow::Result<Filter> {
        let mut streams: Option<BTreeSet<StreamId>> = None;
        let mut keep = |what: &str, pattern: &str, keeps: &dyn Fn(StreamId) -> bool| {
            let matching: BTreeSet<StreamId> = definitions
                .streams
                .keys()
                .copied()
                .filter(|stream| keeps(*stream))
                .collect();
            if matching.is_empty() {
                bail!(
                    "no {what} matches `{pattern}`: see `trace-cli info` and `trace-cli sources`"
                );
            }
            streams = Some(match streams.take() {
                None => matching,
                Some(before) => before.intersection(&matching).copied().collect(),
            });
            Ok(())
        };
        if let Some(pattern) = &self.rank {
            let ranges = rank_ranges(pattern)?;
            keep("rank", pattern, &|stream| {
                let process = definitions.process_of(stream);
                let rank = process.and_then(|process| definitions.ranks.get(&process));
                let rank = rank.map_or(0, |rank| rank.rank);
                ranges
                    .iter()
                    .any(|(first, last)| (*first..=*last).contains(&rank))
            })?;
        }
        if let Some(pattern) = &self.source {
            let set = globs(pattern)?;
            keep("source", pattern, &|stream| {
                let source = definitions.streams.get(&stream).map(|stream| stream.source);
                let source = source.and_then(|source| definitions.sources.get(&source));
                source.is_some_and(|source| set.is_match(definitions.string(source.name)))
            })?;
        }
        if let Some(pattern) = &self.location {
            let set = globs(pattern)?;
            keep("location", pattern, &|stream| {
                let location = definitions.streams.get(&stream).and_then(|s| s.location);
                let location = location.and_then(|id| definitions.locations.get(&id));
                location.is_some_and(|location| set.is_match(definitions.string(location.name)))
            })?;
        }
        let event_types = match &self.event {
            None => None,
            Some(pattern) => {
                let set = globs(pattern)?;
                let types = definitions.event_types.values();
                let matching: BTreeSet<EventTypeId> = types
                    .filter(|event_type| set.is_match(definitions.string(event_type.name)))
                    .map(|event_type| event_type.id)
                    .collect();
                if matching.is_empty() {
                    bail!("no event type matches `{pattern}`: see `trace-cli events`");
                }
                Some(matching)
            }
        };
        let regions = match &self.region {
            None => None,
            Some(pattern) => {
                let set = globs(pattern)?;
                let matching: BTreeSet<RegionId> = definitions
                    .regions
                    .values()
                    .filter(|region| set.is_match(definitions.string(region.name)))
                    .map(|region| region.id)
                    .collect();
                if matching.is_empty() {
                    bail!("no region matches `{pattern}`: see `trace-cli regions`");
                }
                Some(matching)
            }
        };
        Ok(Filter {
            streams,
            event_types,
            regions,
        })
    }
}

impl Filter {
    /// Whether events of a stream are looked at.
    pub fn takes_stream(&self, stream: StreamId) -> bool {
        self.streams
            .as_ref()
            .is_none_or(|set| set.contains(&stream))
    }

    /// Whether events of a type are looked at.
    pub fn takes_event_type(&self, event_type: EventTypeId) -> bool {
        self.event_types
            .as_ref()
            .is_none_or(|set| set.contains(&event_type))
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
