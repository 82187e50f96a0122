//! Filters: which events are kept, or read.

use std::collections::BTreeSet;
use std::str::FromStr;

use annals_format::{Definition, Definitions, EventTypeId, Filter, RegionId, StreamId};
use globset::{GlobBuilder, GlobSet, GlobSetBuilder};

use crate::window::Window;

/// Why a filter cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FilterError {
    /// The filter cannot be read.
    #[error("{0}")]
    Syntax(String),
    /// Nothing of that name is there: nothing would be kept, and a misspelt name is the usual reason.
    #[error("no {what} matches `{pattern}`{near}")]
    NoMatch {
        /// The kind of name: rank, source, location, event type, region.
        what: &'static str,
        /// The pattern without a match.
        pattern: String,
        /// `; did you mean …?`, or empty.
        near: String,
    },
}

/// A set of ranks, which is written as numbers and ranges, such as `0,4-7`.
#[derive(Clone, Debug)]
pub struct RankSet {
    text: String,
    ranges: Vec<(u32, u32)>,
}

impl RankSet {
    /// Returns it as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl FromStr for RankSet {
    type Err = FilterError;

    fn from_str(text: &str) -> Result<Self, FilterError> {
        let mut ranges = Vec::new();
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let first = first.trim().parse::<u32>().ok();
            match first.zip(last.trim().parse().ok()) {
                Some((first, last)) if first <= last => ranges.push((first, last)),
                _ => {
                    let why =
                        format!("`{part}` is no rank and no range of ranks, such as 3 or 4-7");
                    return Err(FilterError::Syntax(why));
                }
            }
        }
        let text = text.to_owned();
        Ok(Self { text, ranges })
    }
}

/// Patterns of names, separated by commas.
#[derive(Clone, Debug)]
pub struct Globs {
    text: String,
    set: GlobSet,
}

impl Globs {
    /// Returns whether one of them matches a name.
    pub fn is_match(&self, name: &str) -> bool {
        self.set.is_match(name)
    }

    /// Returns them as they were written.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl FromStr for Globs {
    type Err = FilterError;

    fn from_str(text: &str) -> Result<Self, FilterError> {
        let mut set = GlobSetBuilder::new();
        for pattern in text.split(',').filter(|pattern| !pattern.is_empty()) {
            let glob = GlobBuilder::new(pattern).literal_separator(false).build();
            let no_pattern =
                |error| FilterError::Syntax(format!("`{pattern}` is no pattern: {error}"));
            set.add(glob.map_err(no_pattern)?);
        }
        let too_much = |error| FilterError::Syntax(format!("`{text}` is too much: {error}"));
        Ok(Self {
            text: text.to_owned(),
            set: set.build().map_err(too_much)?,
        })
    }
}

/// Whose events, and which.
#[derive(Clone, Debug, Default)]
pub struct EventFilter {
    /// Ranks.
    pub ranks: Option<RankSet>,
    /// Sources, by name.
    pub sources: Option<Globs>,
    /// Locations, by name.
    pub locations: Option<Globs>,
    /// Event types, by name.
    pub event_types: Option<Globs>,
}

/// Streams and event types, picked out of one set of definitions.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Selection {
    /// `None` means all.
    streams: Option<BTreeSet<StreamId>>,
    /// `None` means all.
    event_types: Option<BTreeSet<EventTypeId>>,
}

/// Returns the known name that is nearest to a misspelt one, if any is near.
pub fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let alike = known.map(|known| {
        let (a, b) = (name.to_lowercase(), known.to_lowercase());
        (strsim::jaro_winkler(&a, &b), known)
    });
    let alike = alike.filter(|(alike, _)| *alike > 0.8);
    let best = alike.max_by(|a, b| a.0.total_cmp(&b.0).then_with(|| b.1.cmp(a.1)));
    best.map(|(_, known)| known)
}

/// Returns all matches, or an error if there are none.
///
/// # Errors
/// If there are no matches.
pub fn some_match<'a, T: Ord>(
    what: &'static str,
    pattern: &str,
    known: impl Iterator<Item = &'a str>,
    matches: impl Iterator<Item = T>,
) -> Result<BTreeSet<T>, FilterError> {
    let matches: BTreeSet<T> = matches.collect();
    if matches.is_empty() {
        let near = nearest(pattern, known);
        let near = near.map(|near| format!("; did you mean `{}`?", near.escape_debug()));
        return Err(FilterError::NoMatch {
            what,
            pattern: pattern.to_owned(),
            near: near.unwrap_or_default(),
        });
    }
    Ok(matches)
}

/// Finds regions by name.
///
/// # Errors
/// If no region matches.
pub fn regions_like(
    patterns: &Globs,
    definitions: &Definitions,
) -> Result<BTreeSet<RegionId>, FilterError> {
    let regions = || definitions.regions.values();
    let names = regions().map(|region| definitions.string(region.name));
    let matching = regions().filter(|region| patterns.is_match(definitions.string(region.name)));
    let matching = matching.map(|region| region.id);
    some_match("region", patterns.as_str(), names, matching)
}

impl EventFilter {
    /// Picks what matches.
    ///
    /// # Errors
    /// If a pattern matches nothing.
    pub fn select(&self, definitions: &Definitions) -> Result<Selection, FilterError> {
        let mut streams: Option<BTreeSet<StreamId>> = None;
        let mut keep = |what, pattern: &str, keeps: &dyn Fn(StreamId) -> bool| {
            let matching = definitions.streams.keys().copied();
            let matching = matching.filter(|stream| keeps(*stream));
            let sources = definitions.sources.values().map(|source| source.name);
            let locations = definitions.locations.values().map(|location| location.name);
            let names: Vec<_> = match what {
                "source" => sources.collect(),
                "location" => locations.collect(),
                _ => Vec::new(),
            };
            let known = names.into_iter().map(|name| definitions.string(name));
            let matching = some_match(what, pattern, known, matching)?;
            streams = Some(match streams.take() {
                None => matching,
                Some(before) => before.intersection(&matching).copied().collect(),
            });
            Ok(())
        };
        if let Some(ranks) = &self.ranks {
            keep("rank", ranks.as_str(), &|stream| {
                let process = definitions.process_of(stream);
                let rank = process.and_then(|process| definitions.ranks.get(&process));
                let rank = rank.map_or(0, |rank| rank.rank);
                let is_in = |(first, last): &(u32, u32)| (*first..=*last).contains(&rank);
                ranks.ranges.iter().any(is_in)
            })?;
        }
        if let Some(globs) = &self.sources {
            keep("source", globs.as_str(), &|stream| {
                let source = definitions.streams.get(&stream).map(|stream| stream.source);
                let source = source.and_then(|source| definitions.sources.get(&source));
                source.is_some_and(|source| globs.is_match(definitions.string(source.name)))
            })?;
        }
        if let Some(globs) = &self.locations {
            keep("location", globs.as_str(), &|stream| {
                let location = definitions.streams.get(&stream).and_then(|s| s.location);
                let location = location.and_then(|id| definitions.locations.get(&id));
                location.is_some_and(|location| globs.is_match(definitions.string(location.name)))
            })?;
        }
        let mut event_types = None;
        if let Some(globs) = &self.event_types {
            let types = definitions.event_types.values();
            let types = types.filter(|d| globs.is_match(definitions.string(d.name)));
            let types = types.map(|d| d.id);
            let known = definitions.event_types.values();
            let known = known.map(|d| definitions.string(d.name));
            event_types = Some(some_match("event type", globs.as_str(), known, types)?);
        }
        Ok(Selection {
            streams,
            event_types,
        })
    }

    /// Returns whether everything is kept.
    pub fn is_empty(&self) -> bool {
        let names = [&self.sources, &self.locations, &self.event_types];
        self.ranks.is_none() && names.iter().all(|globs| globs.is_none())
    }
}

impl Selection {
    /// Returns whether events of a stream are kept.
    pub fn takes_stream(&self, stream: StreamId) -> bool {
        let streams = self.streams.as_ref();
        streams.is_none_or(|set| set.contains(&stream))
    }

    /// Returns whether events of a type are kept.
    pub fn takes_event_type(&self, event_type: EventTypeId) -> bool {
        let types = self.event_types.as_ref();
        types.is_none_or(|set| set.contains(&event_type))
    }

    /// Keeps only these event types, of those that are kept already.
    pub(crate) fn keep_event_types(&mut self, event_types: impl IntoIterator<Item = EventTypeId>) {
        let more = Self {
            streams: None,
            event_types: Some(event_types.into_iter().collect()),
        };
        *self = std::mem::take(self).and(more);
    }

    /// Keeps only these streams, of those that are kept already.
    pub(crate) fn keep_streams(&mut self, streams: impl IntoIterator<Item = StreamId>) {
        let more = Self {
            streams: Some(streams.into_iter().collect()),
            event_types: None,
        };
        *self = std::mem::take(self).and(more);
    }

    /// Returns what both keep.
    fn and(self, other: Self) -> Self {
        fn both<T: Ord + Copy>(
            a: Option<BTreeSet<T>>,
            b: Option<BTreeSet<T>>,
        ) -> Option<BTreeSet<T>> {
            match (a, b) {
                (Some(a), Some(b)) => Some(a.intersection(&b).copied().collect()),
                (a, b) => a.or(b),
            }
        }
        Self {
            streams: both(self.streams, other.streams),
            event_types: both(self.event_types, other.event_types),
        }
    }

    /// Returns whether events of every type are kept.
    pub fn takes_all_event_types(&self) -> bool {
        self.event_types.is_none()
    }
}

/// The contents of a filter, independent of the numbers of its texts: from and to, ranks, sources, locations, event
/// types.
pub(crate) type Said = (Option<i64>, Option<i64>, [String; 4]);

/// Returns what a filter of these definitions says.
pub(crate) fn said(filter: &Filter, of: &Definitions) -> Said {
    let names = [
        filter.ranks,
        filter.sources,
        filter.locations,
        filter.event_types,
    ];
    let names = names.map(|id| of.string(id).to_owned());
    (filter.from_ns, filter.to_ns, names)
}

/// Returns the filter that says this, and its window.
///
/// # Errors
/// If a pattern cannot be read.
pub(crate) fn filter_of(said: &Said) -> Result<(EventFilter, Window), FilterError> {
    let (from_ns, to_ns, [ranks, sources, locations, event_types]) = said;
    let globs = |text: &String| (!text.is_empty()).then(|| text.parse()).transpose();
    let filter = EventFilter {
        ranks: (!ranks.is_empty()).then(|| ranks.parse()).transpose()?,
        sources: globs(sources)?,
        locations: globs(locations)?,
        event_types: globs(event_types)?,
    };
    let window = Window {
        from_ns: from_ns.unwrap_or(i64::MIN),
        to_ns: to_ns.unwrap_or(i64::MAX),
    };
    Ok((filter, window))
}

/// The events that a merge keeps.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Keep {
    pub(crate) selection: Selection,
    pub(crate) window: Window,
    /// The stretch of time that is written; all else is another's.
    pub(crate) slice: Window,
    /// Which chunks of a stream of a recording are read.
    pub(crate) newest: Newest,
    /// Whether chunks that are not read count as if they were: their heads are all that is wanted.
    pub(crate) heads_only: bool,
}

/// The newest chunks of each stream.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Newest {
    /// How many are read.
    pub(crate) chunks: usize,
    /// As many older ones are read as well that have events of these types.
    pub(crate) types: BTreeSet<EventTypeId>,
}

impl Default for Newest {
    fn default() -> Self {
        Self {
            chunks: usize::MAX,
            types: BTreeSet::new(),
        }
    }
}

impl Default for Keep {
    fn default() -> Self {
        Self {
            selection: Selection::default(),
            window: Window::ALL,
            slice: Window::ALL,
            newest: Newest::default(),
            heads_only: false,
        }
    }
}

impl Keep {
    /// Makes a filter ready, and writes it down among the definitions.
    pub(crate) fn new(
        filter: &EventFilter,
        window: Window,
        definitions: &mut Definitions,
    ) -> Result<Self, FilterError> {
        let selection = filter.select(definitions)?;
        if !filter.is_empty() || window != Window::ALL {
            let mut globs = |globs: &Option<Globs>| {
                definitions.intern(globs.as_ref().map_or("", Globs::as_str))
            };
            let sources = globs(&filter.sources);
            let locations = globs(&filter.locations);
            let event_types = globs(&filter.event_types);
            let ranks = filter.ranks.as_ref().map_or("", RankSet::as_str);
            let d = Filter {
                from_ns: (window.from_ns != i64::MIN).then_some(window.from_ns),
                to_ns: (window.to_ns != i64::MAX).then_some(window.to_ns),
                ranks: definitions.intern(ranks),
                sources,
                locations,
                event_types,
            };
            definitions.add(Definition::Filter(d));
        }
        Ok(Self {
            selection,
            window,
            ..Self::default()
        })
    }

    /// Combines this filter with one that is applied before it.
    pub(crate) fn behind(self, before: Self) -> Self {
        Self {
            selection: before.selection.and(self.selection),
            window: Window {
                from_ns: self.window.from_ns.max(before.window.from_ns),
                to_ns: self.window.to_ns.min(before.window.to_ns),
            },
            slice: before.slice,
            newest: before.newest,
            heads_only: before.heads_only,
        }
    }

    /// Returns whether every event of these streams is kept, in the whole of its time.
    pub(crate) fn takes_all_of(&self, mut streams: impl Iterator<Item = StreamId>) -> bool {
        let takes_all_times = self.window == Window::ALL && self.slice == Window::ALL;
        takes_all_times
            && self.selection.takes_all_event_types()
            && streams.all(|stream| self.selection.takes_stream(stream))
    }

    /// Returns the time in which events are wanted.
    pub(crate) fn time(&self) -> Window {
        Window {
            from_ns: self.window.from_ns.max(self.slice.from_ns),
            to_ns: self.window.to_ns.min(self.slice.to_ns),
        }
    }

    /// Returns whether what happens in a stretch of time may be wanted.
    pub(crate) const fn overlaps(&self, first_ns: i64, last_ns: i64) -> bool {
        self.window.overlaps(first_ns, last_ns) && self.slice.overlaps(first_ns, last_ns)
    }

    /// Returns whether a loss at this time is in this slice.
    pub(crate) const fn has(&self, time_ns: i64) -> bool {
        self.slice.contains(time_ns)
    }

    /// Returns whether this is the first slice: what has no time is counted there.
    pub(crate) const fn is_first(&self) -> bool {
        self.slice.from_ns == i64::MIN
    }
}
