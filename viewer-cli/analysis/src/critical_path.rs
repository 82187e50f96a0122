//! The critical path of a run: the chain of work and transfer that decided how long it took.
//!
//! It is found backward from the last event. Where the path reaches the end of a wait, it continues at the location for which
//! was waited, at the time at which that location did what was waited for. So each instant of the run is on the path once, at
//! one location, and no wait with a known cause is on it. This is the critical path of Böhme, Wolf, de Supinski, Schulz and
//! Geimer ("Scalable critical-path based performance analysis", IPDPS 2012).
//!
//! What is waited for is that of the [patterns](crate::collective_waits), with one exception: a root that receives from all
//! continues when the *last* of them has sent, not the first.
//!
//! The waits are found from the beginning on and kept in a file without a name in the directory for temporary files (16 bytes
//! for each), then read from the end. What was done on the path is counted in a further pass over the trace.

mod releases;

use std::cmp::Reverse;

use annals_format::{Definitions, Location, ProcessId, RegionId};
use annals_merger::{Analysis, Frame, Query, Reader, Result, SliceLength, Window};
use rustc_hash::{FxHashMap, FxHashSet};
use serde::Serialize;

use self::releases::{Release, ReleaseWriter, ReleasesBackward};
use crate::call_paths::CallPaths;
use crate::row::joined_path;
use crate::wait_states::{CommunicationTimes, LocationTimes};

/// Number of stays whose work is counted in one pass.
const MOST_STAYS: usize = 1 << 20;
/// Number of regions that call the innermost one of a path. Of deeper paths, those after the outermost ones are left out.
const MOST_CALLERS: usize = 24;
/// Number of stays that are kept as the longest.
const MOST_LONGEST: usize = 10;

/// The critical path of a run. Times in nanoseconds.
#[derive(Clone, Debug, Serialize)]
pub struct CriticalPath {
    /// Trace time at which it begins: of the first event.
    pub from_ns: i64,
    /// Trace time at which it ends: of the last event.
    pub to_ns: i64,
    /// What was done on it, most first. The times add up to the length of the path.
    pub regions: Vec<PathRegion>,
    /// Where it was, by rank. The times add up to the length of the path.
    pub ranks: Vec<PathRank>,
    /// Number of stays at a location.
    pub stays: u64,
    /// The longest of them.
    pub longest: Vec<PathStay>,
}

/// A call path on the critical path. Times in nanoseconds, without those of the regions that it calls.
#[derive(Clone, PartialEq, Debug)]
pub struct PathRegion {
    /// Name of its innermost region. `None` outside of all regions.
    pub region: Option<String>,
    /// Names of the regions of the call path, from the outermost on. Empty outside of all regions. Of a path of more than 25, the
    /// first 24 and the last.
    pub path: Vec<String>,
    /// Its time on the path.
    pub path_ns: i64,
    /// Share of that in the length of the path.
    pub share: f64,
    /// Its time in the run, in the mean of all ranks: the mean of the locations that call it × the share of ranks of which one
    /// does.
    pub mean_ns: i64,
    /// By how much its time on the path is longer than that, at least 0: the critical imbalance. As much shorter would the run
    /// be if its work were distributed evenly, and nothing else were waited for then.
    pub imbalance_ns: i64,
}

crate::columns! {
    PathRegion, json path;
    "region" Name, |row| &row.region;
    "" Name headed "on the critical path", |row| joined_path(&row.path);
    "path_ns" Duration headed "time", |row| row.path_ns;
    "share" Share headed "% of path", |row| row.share;
    "mean_ns" Duration headed "mean of ranks", |row| row.mean_ns;
    "imbalance_ns" Duration headed "critical imbalance", |row| row.imbalance_ns;
}

/// A rank on the critical path.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PathRank {
    /// The rank.
    pub rank: u32,
    /// Its time on the path, nanoseconds.
    pub path_ns: i64,
    /// Share of that in the length of the path.
    pub share: f64,
}

crate::columns! {
    PathRank;
    "rank" Number headed "rank", |row| row.rank;
    "path_ns" Duration headed "time", |row| row.path_ns;
    "share" Share headed "% of path", |row| row.share;
}

/// A time in which the path stays at a location.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct PathStay {
    /// Rank of the location.
    pub rank: u32,
    /// Trace time at which it begins, nanoseconds.
    pub from_ns: i64,
    /// How long it is, nanoseconds.
    pub length_ns: i64,
}

/// A stay, by the number of the location.
#[derive(Clone, Copy, Debug)]
struct Stay {
    location: u32,
    from_ns: i64,
    to_ns: i64,
}

/// Observes what the path needs of wait states.
#[derive(Debug)]
pub(crate) struct PathObserver(ReleaseWriter);

impl PathObserver {
    /// # Errors
    /// If the directory for temporary files takes no file.
    pub(crate) fn new() -> Result<Self> {
        Ok(Self(ReleaseWriter::new()?))
    }
}

impl PathObserver {
    /// Takes note that a location could go on from a trace time on, nanoseconds, because of another one.
    pub(crate) fn release(&mut self, location: u32, cause: u32, at_ns: i64) {
        self.0.add(Release {
            at_ns,
            location,
            cause,
        });
    }
}

/// Finds the critical path of the run in a window from the waits that were observed, and the times of the locations.
///
/// # Errors
/// If the storage fails.
pub(crate) fn path_of(
    reader: &Reader,
    window: Window,
    observer: PathObserver,
    times: &CommunicationTimes,
) -> Result<CriticalPath> {
    let definitions = reader.definitions();
    let mut walk = Walk::new(observer.0.finish()?, window, times);
    let mut sums = PathSums::new(definitions, walk.from_ns, walk.at_ns);
    while let Some(stays) = walk.next_stays(MOST_STAYS)? {
        sums.add(reader, &stays)?;
    }
    Ok(sums.finish(times))
}

/// Finds the path from its end to its beginning.
struct Walk {
    releases: ReleasesBackward,
    /// Releases of the last moment that was read.
    moment: Vec<Release>,
    /// First events of locations, nanoseconds.
    first_ns: Vec<Option<i64>>,
    /// Where the path begins.
    from_ns: i64,
    /// Where the part begins that was found.
    at_ns: i64,
    location: u32,
}

impl Walk {
    fn new(releases: ReleasesBackward, window: Window, times: &CommunicationTimes) -> Self {
        let spans = times.locations.iter().zip(0..);
        let inside = spans.filter_map(|(times, location)| {
            let (first_ns, last_ns) = times.span_ns?;
            let last_ns = last_ns.min(window.to_ns);
            (last_ns >= window.from_ns).then_some((first_ns, last_ns, location))
        });
        let inside: Vec<(i64, i64, u32)> = inside.collect();
        let last = inside.iter().max_by_key(|span| (span.1, Reverse(span.2)));
        let (at_ns, location) = last.map_or((0, 0), |last| (last.1, last.2));
        let first_ns = inside.iter().map(|span| span.0).min();
        let from_ns = first_ns.map_or(0, |first_ns| first_ns.max(window.from_ns));
        let first_of = |times: &LocationTimes| Some(times.span_ns?.0);
        Self {
            releases,
            moment: Vec::new(),
            first_ns: times.locations.iter().map(first_of).collect(),
            from_ns,
            at_ns,
            location,
        }
    }

    /// Returns the stays before those that were found, the last one first. `None` if there are none.
    fn next_stays(&mut self, most: usize) -> Result<Option<Vec<Stay>>> {
        let mut stays = Vec::new();
        while self.at_ns > self.from_ns && stays.len() < most {
            if let Some(release) = self.take_release() {
                self.go(&mut stays, release.at_ns, release.cause);
            } else if !self.read_moment()? {
                self.begin(&mut stays);
            }
        }
        Ok((!stays.is_empty()).then_some(stays))
    }

    /// Takes a release of the moment at the location where the path is.
    fn take_release(&mut self) -> Option<Release> {
        let is_here = |release: &Release| release.location == self.location;
        let found = self.moment.iter().position(is_here)?;
        Some(self.moment.swap_remove(found))
    }

    /// Reads the releases of the next moment before the end of the path. Returns whether there are some.
    fn read_moment(&mut self) -> Result<bool> {
        self.moment.clear();
        while let Some(release) = self.releases.peek()? {
            let is_moment = match self.moment.first() {
                Some(first) => first.at_ns == release.at_ns,
                None => release.at_ns > self.from_ns,
            };
            if !is_moment {
                break;
            }
            self.releases.skip();
            if release.at_ns <= self.at_ns {
                self.moment.push(release);
            }
        }
        Ok(!self.moment.is_empty())
    }

    /// Ends the stay: it begins at a time, and before that the path is at another location.
    fn go(&mut self, stays: &mut Vec<Stay>, from_ns: i64, location: u32) {
        if from_ns < self.at_ns {
            stays.push(Stay {
                location: self.location,
                from_ns,
                to_ns: self.at_ns,
            });
        }
        (self.at_ns, self.location) = (from_ns, location);
    }

    /// Ends the path. Before a location has its first event, the path is at the location that began first.
    fn begin(&mut self, stays: &mut Vec<Stay>) {
        let first_ns = self.first_ns.get(self.location as usize).copied().flatten();
        let first_ns = first_ns.filter(|first_ns| (self.from_ns..self.at_ns).contains(first_ns));
        if let Some(first_ns) = first_ns.filter(|first_ns| *first_ns > self.from_ns) {
            let began = self.first_ns.iter().zip(0..);
            let began = began.filter_map(|(first_ns, location)| Some(((*first_ns)?, location)));
            let earliest = began.min().map_or(self.location, |(_, location)| location);
            self.go(stays, first_ns, earliest);
        }
        self.go(stays, self.from_ns, self.location);
    }
}

/// Adds up what was done on the path.
struct PathSums<'a> {
    definitions: &'a Definitions,
    from_ns: i64,
    to_ns: i64,
    /// By location.
    path_ns: Vec<i64>,
    paths: CallPaths,
    /// By number of the call path.
    sums: FxHashMap<u32, PathTime>,
    stays: u64,
    longest: Vec<PathStay>,
}

impl<'a> PathSums<'a> {
    fn new(definitions: &'a Definitions, from_ns: i64, to_ns: i64) -> Self {
        Self {
            definitions,
            from_ns,
            to_ns,
            path_ns: vec![0; definitions.locations.len()],
            sums: FxHashMap::default(),
            stays: 0,
            longest: Vec::new(),
            paths: CallPaths::default(),
        }
    }

    fn rank(&self, location: u32) -> u32 {
        let of: Option<&Location> = self.definitions.locations.values().nth(location as usize);
        of.map_or(0, |of| self.definitions.rank_of(of.process))
    }

    /// Adds stays that follow one another, the last one first.
    fn add(&mut self, reader: &Reader, stays: &[Stay]) -> Result<()> {
        let (Some(last), Some(first)) = (stays.first(), stays.last()) else {
            return Ok(());
        };
        let window = Window {
            from_ns: first.from_ns,
            to_ns: last.to_ns,
        };
        let mut by_location = vec![Vec::new(); self.path_ns.len()];
        for stay in stays.iter().rev() {
            by_location[stay.location as usize].push((stay.from_ns, stay.to_ns));
            self.path_ns[stay.location as usize] += stay.to_ns - stay.from_ns;
            self.keep(stay);
        }
        self.stays += stays.len() as u64;
        let new = |_| PathTimes {
            window,
            stays: &by_location,
            paths: CallPaths::default(),
            sums: Vec::new(),
        };
        // With the last event itself.
        let query = Query::new().within(Window {
            to_ns: window.to_ns.saturating_add(1),
            ..window
        });
        let (times, _) = reader.run(&query, new)?;
        let numbers = self.paths.add(&times.paths);
        for (number, times) in numbers.iter().zip(&times.sums) {
            if times.all_ns > 0 {
                self.sums.entry(*number).or_default().add(times);
            }
        }
        Ok(())
    }

    fn keep(&mut self, stay: &Stay) {
        let length_ns = stay.to_ns - stay.from_ns;
        let shortest = self.longest.last().map_or(0, |of| of.length_ns);
        if self.longest.len() >= MOST_LONGEST && length_ns <= shortest {
            return;
        }
        let found = PathStay {
            rank: self.rank(stay.location),
            from_ns: stay.from_ns,
            length_ns,
        };
        let is_longer = |of: &PathStay| of.length_ns >= length_ns;
        let at = self.longest.partition_point(is_longer);
        self.longest.insert(at, found);
        self.longest.truncate(MOST_LONGEST);
    }

    fn finish(self, times: &CommunicationTimes) -> CriticalPath {
        let length_ns = self.to_ns - self.from_ns;
        let share = |ns: i64| ns as f64 / length_ns.max(1) as f64;
        let processes = self.definitions.locations.values();
        let processes: Vec<ProcessId> = processes.map(|location| location.process).collect();
        let of_run = times.locations.iter().zip(&processes);
        let of_run = of_run.filter(|(times, _)| times.span_ns.is_some());
        let of_run: FxHashSet<ProcessId> = of_run.map(|(_, process)| *process).collect();
        let row = |path: Vec<String>, path_ns: i64, mean_ns: i64| PathRegion {
            region: path.last().cloned(),
            path,
            path_ns,
            share: share(path_ns),
            mean_ns,
            imbalance_ns: (path_ns - mean_ns).max(0),
        };
        let named = self.sums.iter().filter(|(_, times)| times.path_ns > 0);
        let mut regions: Vec<PathRegion> = named
            .map(|(path, times)| {
                let names = self.paths.names(*path, self.definitions);
                let mean_ns = times.mean_ns(&processes, of_run.len());
                row(names, times.path_ns, mean_ns)
            })
            .collect();
        let outside_ns = length_ns - self.sums.values().map(|of| of.path_ns).sum::<i64>();
        if outside_ns > 0 {
            let locations = times.locations.iter().filter(|of| of.span_ns.is_some());
            let locations = locations.count() as i64;
            let inside_ns = self.sums.values().map(|of| of.all_ns).sum::<i64>();
            let all_ns = i128::from(length_ns) * i128::from(locations) - i128::from(inside_ns);
            let mean_ns = all_ns.max(0) / i128::from(locations.max(1));
            regions.push(row(Vec::new(), outside_ns, mean_ns as i64));
        }
        regions.sort_by(|a, b| (b.path_ns, &a.path).cmp(&(a.path_ns, &b.path)));
        let mut by_rank: FxHashMap<u32, i64> = FxHashMap::default();
        for (location, path_ns) in self.definitions.locations.values().zip(&self.path_ns) {
            let rank = self.definitions.rank_of(location.process);
            *by_rank.entry(rank).or_default() += path_ns;
        }
        let mut ranks: Vec<PathRank> = by_rank
            .into_iter()
            .map(|(rank, path_ns)| PathRank {
                rank,
                path_ns,
                share: share(path_ns),
            })
            .collect();
        ranks.sort_by_key(|rank| rank.rank);
        CriticalPath {
            from_ns: self.from_ns,
            to_ns: self.to_ns,
            regions,
            ranks,
            stays: self.stays,
            longest: self.longest,
        }
    }
}

/// Time in a call path, nanoseconds.
#[derive(Clone, Debug, Default)]
struct PathTime {
    /// On the path.
    path_ns: i64,
    /// In all locations.
    all_ns: i64,
    /// A bit for each location, by number: whether it was in the path.
    visitors: Vec<u64>,
}

impl PathTime {
    fn add(&mut self, other: &Self) {
        self.path_ns += other.path_ns;
        self.all_ns += other.all_ns;
        let words = self.visitors.len().max(other.visitors.len());
        self.visitors.resize(words, 0);
        for (word, other) in self.visitors.iter_mut().zip(&other.visitors) {
            *word |= other;
        }
    }

    fn visit(&mut self, location: usize) {
        let word = location / 64;
        if word >= self.visitors.len() {
            self.visitors.resize(word + 1, 0);
        }
        self.visitors[word] |= 1 << (location % 64);
    }

    /// Returns [`PathRegion::mean_ns`]. `processes` are those of the locations by number.
    fn mean_ns(&self, processes: &[ProcessId], ranks: usize) -> i64 {
        let is_visitor = |location: usize| {
            let word = self.visitors.get(location / 64).copied().unwrap_or(0);
            word >> (location % 64) & 1 == 1
        };
        let visitors: Vec<usize> = (0..processes.len()).filter(|of| is_visitor(*of)).collect();
        let visiting: FxHashSet<ProcessId> = visitors.iter().map(|of| processes[*of]).collect();
        let sum = i128::from(self.all_ns) * visiting.len() as i128;
        let parts = (visitors.len() * ranks).max(1);
        (sum / parts as i128) as i64
    }
}

/// Counts the time in call paths, on the critical path and in all.
struct PathTimes<'a> {
    window: Window,
    /// By location: stays of the path, in order.
    stays: &'a [Vec<(i64, i64)>],
    paths: CallPaths,
    /// By number of the call path.
    sums: Vec<PathTime>,
}

impl Analysis for PathTimes<'_> {
    const SLICES: SliceLength = SliceLength::Long;

    fn enter(&mut self, _: usize, frames: &[Frame], region: RegionId, _: i64) -> u32 {
        let around = frames.iter().take(MOST_CALLERS).next_back();
        let around = around.map_or(CallPaths::OUTSIDE, |frame| frame.tag);
        self.paths.child(around, region)
    }

    fn spend(&mut self, location: usize, frames: &[Frame], from_ns: i64, to_ns: i64) {
        let all_ns = self.window.clip(from_ns, to_ns);
        let Some(frame) = frames.last().filter(|_| all_ns > 0) else {
            return;
        };
        let stays = &self.stays[location];
        let first = stays.partition_point(|stay| stay.1 <= from_ns);
        let touched = stays[first..].iter().take_while(|stay| stay.0 < to_ns);
        let parts = touched.map(|stay| stay.1.min(to_ns) - stay.0.max(from_ns));
        let path_ns: i64 = parts.sum();
        let path = frame.tag as usize;
        if path >= self.sums.len() {
            self.sums.resize_with(path + 1, PathTime::default);
        }
        let of = &mut self.sums[path];
        of.path_ns += path_ns;
        of.all_ns += all_ns;
        of.visit(location);
    }

    fn merge(&mut self, later: Self) {
        let numbers = self.paths.add(&later.paths);
        let last = numbers.iter().max().map_or(0, |last| *last as usize);
        let longer = self.sums.len().max(last + 1);
        self.sums.resize_with(longer, PathTime::default);
        for (number, later) in numbers.iter().zip(&later.sums) {
            self.sums[*number as usize].add(later);
        }
    }
}
