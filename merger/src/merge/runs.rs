//! Runs: the results of a first pass over many streams. It is needed when reading all streams together would exceed the
//! memory limit or the processor's cache. Groups of streams are merged into runs, runs into fewer runs, and the merge
//! itself reads the last few. Events keep their order and their numbers, so the trace does not change.

use std::path::Path;
use std::sync::Arc;

use annals_format::{BlockWriter, CompressionLevel, Definitions, EventTypeId};
use rustc_hash::FxHashMap;

use crate::axis::proof::ElementReferences;
use crate::axis::strip::{Strip, StripPlace};
use crate::axis::unify::Numbers;
use crate::error::{MergeError, Result};
use crate::input::reader::{InputOutcome, InputReader};
use crate::input::run::{Run, RunFile, RunReader};
use crate::input::stream::LossPlace;
use crate::merge::sweep::Sweep;
use crate::stages::{self, Stage};
use crate::workers::Workers;

/// Most events of a chunk of a run.
const MOST_EVENTS: u64 = 1 << 16;
/// Least events of one: below that, its own cost is more than its events'.
const LEAST_EVENTS: u64 = 64;
/// Maximum number of runs that a pass reads in parallel, if memory allows.
const RUNS_AT_ONCE: u64 = 64;
/// Maximum number of streams that a pass reads in parallel, however much memory there is. With more streams, so few
/// events of one stream follow each other that each access waits for memory. Two passes are then faster than one.
const STREAMS_AT_ONCE: usize = 4096;
/// Maximum number of groups that are merged in parallel.
const GROUPS_BESIDE: usize = 4;
/// Streams of a group, when memory allows: fewer, and there are more runs than need be.
const LEAST_GROUP: usize = 64;

/// How much memory the parts of a merge may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    /// Chunks that are decoded and wait, bytes.
    pub(crate) open: u64,
    /// Strips that are worked on, bytes.
    pub(crate) strips: u64,
}

/// Approximate memory that a merge keeps for each stream: definitions, index, counts.
const STREAM_BYTES: u64 = 12 << 10;

impl Budget {
    /// Returns the budget that remains of a limit after the fixed costs of `streams` streams; at
    /// least a quarter of the limit.
    pub(crate) fn of(limit_bytes: u64, streams: usize) -> Self {
        let kept = STREAM_BYTES.saturating_mul(streams as u64);
        let bytes = limit_bytes.saturating_sub(kept).max(limit_bytes / 4);
        Self {
            open: bytes / 8 * 5,
            strips: bytes / 8 * 3,
        }
    }

    /// Returns one of `of` equal shares.
    const fn share(self, of: u64) -> Self {
        Self {
            open: self.open / of,
            strips: self.strips / of,
        }
    }
}

/// Returns the maximum size of a decoded event in bytes, by type.
pub(crate) fn sizes_of(definitions: &Definitions) -> FxHashMap<EventTypeId, u64> {
    let types = definitions.event_types.values();
    let sizes = types.map(|event_type| {
        let elements = event_type.elements.iter();
        let elements = elements.map(|element| {
            if element.element_type.is_variable() {
                32
            } else {
                8
            }
        });
        (event_type.id, 8 + elements.sum::<u64>())
    });
    sizes.collect()
}

/// Returns the most bytes of chunks that are needed at one time.
fn most_at_once(spans: impl Iterator<Item = (i64, i64, u64)>) -> u64 {
    let mut ends = Vec::new();
    for (first, last, bytes) in spans {
        ends.push((first, false, bytes));
        ends.push((last.max(first), true, bytes));
    }
    // At one time, what begins counts before what ends.
    ends.sort_unstable();
    let (mut sum, mut most) = (0_u64, 0);
    for (_, is_end, bytes) in ends {
        if is_end {
            sum = sum.saturating_sub(bytes);
        } else {
            sum = sum.saturating_add(bytes);
            most = most.max(sum);
        }
    }
    most
}

/// Makes runs.
pub(crate) struct Runs<'a> {
    pub(crate) workers: &'a Workers,
    pub(crate) references: &'a ElementReferences,
    pub(crate) budget: Budget,
    pub(crate) directory: &'a Path,
}

/// The remaining readers, and the outcomes of those that were merged into them.
type Reduced<'a> = (Vec<InputReader<'a>>, Vec<Vec<InputOutcome<'a>>>);

impl Runs<'_> {
    /// Merges readers into fewer ones until all the chunks that must be open together fit into memory. `numbers` leaves
    /// references unchanged.
    pub(crate) fn reduce<'a>(
        &self,
        readers: Vec<InputReader<'a>>,
        definitions: &Definitions,
        numbers: &'a Numbers,
    ) -> Result<Reduced<'a>> {
        let sizes = sizes_of(definitions);
        let fits = |spans: &mut dyn Iterator<Item = (i64, i64, u64)>| {
            most_at_once(spans) <= self.budget.open
        };
        let is_crowded = readers.len() > STREAMS_AT_ONCE;
        let mut spans = readers.iter().flat_map(|reader| reader.spans(&sizes));
        if readers.len() < 2 || !is_crowded && fits(&mut spans) {
            return Ok((readers, Vec::new()));
        }
        let measured = self
            .workers
            .map(&readers, |reader| reader.measured_spans(&sizes));
        let is_fitting = fits(&mut measured.iter().flatten().copied());
        if !is_crowded && is_fitting {
            return Ok((readers, Vec::new()));
        }
        let mut file = match RunFile::create(self.directory) {
            Ok(file) => Arc::new(file),
            // Slower, but it needs no file.
            Err(_) if is_fitting => return Ok((readers, Vec::new())),
            Err(error) => return Err(error),
        };
        let largest = sizes
            .values()
            .max()
            .copied()
            .unwrap_or(64)
            .saturating_add(8);
        let events = self.budget.open / (RUNS_AT_ONCE * largest);
        let events = events.clamp(LEAST_EVENTS, MOST_EVENTS);
        let at_once = (self.budget.open / (events * largest)).clamp(2, RUNS_AT_ONCE) as usize;

        let measured: Vec<u64> = measured
            .into_iter()
            .map(|spans| most_at_once(spans.into_iter()))
            .collect();
        let sum = measured.iter().copied().fold(0, u64::saturating_add);
        // Groups are merged in parallel, unless that makes more runs than can be read in parallel.
        let most_beside = self.workers.count().min(GROUPS_BESIDE) as u64;
        let beside = (1..=most_beside)
            .rev()
            .find(|beside| sum / (self.budget.open / beside).max(1) < at_once as u64 / 2);
        let beside = beside.unwrap_or(1);
        let budget = self.budget.share(beside);
        let most_streams = readers.len().div_ceil(at_once).max(LEAST_GROUP);
        let mut groups: Vec<Vec<InputReader<'a>>> = Vec::new();
        let mut sum = 0_u64;
        for (reader, bytes) in readers.into_iter().zip(measured) {
            match groups.last_mut() {
                Some(group)
                    if group.len() < most_streams && sum.saturating_add(bytes) <= budget.open =>
                {
                    sum = sum.saturating_add(bytes);
                    group.push(reader);
                }
                _ => {
                    sum = bytes;
                    groups.push(vec![reader]);
                }
            }
        }
        let mut done = Vec::new();
        let mut runs: Vec<InputReader<'a>> = Vec::new();
        let mut waiting = groups.into_iter().peekable();
        while waiting.peek().is_some() {
            let groups: Vec<_> = waiting.by_ref().take(beside as usize).collect();
            let write = |group| {
                let write = || self.write(group, events as usize, budget, &file);
                stages::during(Stage::Spill, write)
            };
            let written = self.workers.map(groups, write);
            for written in written {
                let (run, outcomes) = written?;
                done.push(outcomes);
                let reader = RunReader::new(file.clone(), run, numbers);
                runs.push(InputReader::Run(Box::new(reader)));
            }
        }
        while runs.len() > at_once {
            file = Arc::new(RunFile::create(self.directory)?);
            let mut fewer = Vec::new();
            let mut waiting = runs.into_iter().peekable();
            while waiting.peek().is_some() {
                let group = waiting.by_ref().take(at_once).collect();
                let (run, _) = self.write(group, events as usize, self.budget, &file)?;
                let reader = RunReader::new(file.clone(), run, numbers);
                fewer.push(InputReader::Run(Box::new(reader)));
            }
            runs = fewer;
        }
        Ok((runs, done))
    }

    /// Merges some readers into a run; returns it, and what is left of the readers.
    fn write<'a>(
        &self,
        readers: Vec<InputReader<'a>>,
        events: usize,
        budget: Budget,
        file: &RunFile,
    ) -> Result<(Run, Vec<InputOutcome<'a>>)> {
        let io = MergeError::io("write a temporary file in", file.directory());
        let mut sweep = Sweep::new(readers, 0, events, budget.strips);
        let most = sweep.at_once(self.workers.count());
        let mut run = Run::default();
        loop {
            let mut strips = sweep.next_strips(self.workers, most);
            if let Some(error) = sweep.failure() {
                return Err(error);
            }
            if strips.is_empty() {
                let mut outcomes: Vec<InputOutcome<'a>> = sweep.into_outcomes().collect();
                outcomes.shrink_to_fit();
                return Ok((run, outcomes));
            }
            for strip in &mut strips {
                // A loss that is placed by its time has its place among all streams, not only
                // these.
                for (place, loss) in &strip.losses {
                    if let StripPlace::Time(time_ns) = place {
                        run.losses.push((LossPlace::Time(*time_ns), *loss));
                    }
                }
                strip
                    .losses
                    .retain(|(place, _)| matches!(place, StripPlace::Event(..)));
            }
            let encode = |strip: Strip<'_>| -> std::io::Result<Vec<_>> {
                let parts = strip.assemble(self.references).into_iter();
                let parts = parts.filter(|part| !part.chunk.is_empty()).map(|part| {
                    // Read once, and soon: compressing takes longer than writing.
                    let mut writer = BlockWriter::new(CompressionLevel::None)?;
                    let mut block = Vec::new();
                    let header = part.chunk.put_block(0, &mut writer, &mut block);
                    let header = header.map_err(std::io::Error::other)?;
                    Ok((header.first_ns, header.event_count, block))
                });
                parts.collect()
            };
            let encode = |strip| stages::during(Stage::Spill, || encode(strip));
            let encoded = self.workers.map(strips, encode);
            for chunks in encoded {
                for (first_ns, count, block) in chunks.map_err(io)? {
                    let offset = file.append(&block).map_err(io)?;
                    run.chunks.push((offset, first_ns, count));
                }
            }
        }
    }
}
