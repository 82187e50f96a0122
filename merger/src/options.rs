//! How inputs are merged, and how they are opened to be read.

use std::path::{Path, PathBuf};

use annals_format::CompressionLevel;
use annals_symbols::Symbols;

use crate::clocks::offsets::ClockOffsets;
use crate::filter::{EventFilter, Said};
use crate::messages::causality::{Causality, MESSAGES_IN_FLIGHT};
use crate::settled::Plan;
use crate::window::{SliceNumber, Window};
use crate::workers::{StopFlag, default_jobs};

/// Memory that events may take by default, bytes.
pub const MEMORY_LIMIT_BYTES: u64 = 256 << 20;

/// Events of a chunk of the trace, unless it is set otherwise.
const CHUNK_EVENTS: usize = 1 << 16;

/// How inputs are merged. Each field has a default; set those that differ:
///
/// ```no_run
/// use annals_merger::{Causality, MergeOptions, no_progress};
///
/// let mut options = MergeOptions::new();
/// options.causality = Causality::Repair;
/// options.jobs = 2;
/// let plan = options.plan(&["annals-run".into()])?;
/// let merged = plan.write_trace("run.annals", no_progress)?;
/// println!("{} events, {} bytes", merged.report.totals.present(), merged.bytes);
/// # Ok::<(), annals_merger::MergeError>(())
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub struct MergeOptions {
    /// Files that have names for functions without one. Default: those that the recordings name.
    pub symbols: Symbols,
    /// Offsets between the clocks of hosts, measured by the user. Default: those in the recordings.
    pub clock_offsets: Option<ClockOffsets>,
    /// The treatment of messages that are received before they are sent. Default: they are counted.
    pub causality: Causality,
    /// Maximum number of messages in flight to one sixteenth of the processes (every sixteenth one), about 150 bytes each;
    /// more are counted, not matched.
    pub messages_in_flight: usize,
    /// Which events are kept; the others are counted as filtered. Default: all.
    pub filter: EventFilter,
    /// The window of trace time in which events are kept. Default: all of time.
    pub window: Window,
    /// Which slice of time is written; [`JoinOptions`](crate::JoinOptions) put slices together. Default: `None`, the whole merge.
    pub slice: Option<SliceNumber>,
    /// The decisions of an earlier run for the same inputs: see [`MergePlan::settled`](crate::MergePlan::settled). Default: `None`, which means
    /// that they are made anew.
    pub settled: Option<Plan>,
    /// The file that will be written: it is never taken for an input. Default: `None`.
    pub output: Option<PathBuf>,
    /// Compression of the trace.
    pub compression: CompressionLevel,
    /// Threads that decode, merge and encode. Default: one for each processor.
    pub jobs: usize,
    /// Memory that the merge may take, about, bytes. What does not fit is merged in several passes, to the same trace. Of very
    /// many streams, definitions and indexes alone take more (12 KiB for each): events then get a quarter of the limit.
    pub memory_limit_bytes: u64,
    /// The directory of the temporary files of several passes. They have no names, and end with the process. Default: `None`, the
    /// directory of [`MergeOptions::output`], or else the current one.
    pub temporary_directory: Option<PathBuf>,
    /// Events of a chunk of the trace; of more than 1 024 streams, 64 for each stream, at most 262 144. Default: 65 536.
    pub chunk_events: usize,
    /// Whether an incomplete merge is an error: an input that is damaged or cut off, a rank that is missing. Default: false.
    pub strict: bool,
    /// Whether the trace has an overview: values of spans of time, from which pictures of any part of it are read. Slices have none.
    /// With it, a merge takes a quarter to two fifths longer. Default: false.
    pub overview: bool,
    /// Whether an existing output of another kind is replaced. Default: false.
    pub force: bool,
    /// Of traces of other formats that may not say their ranks: the pattern of their names, with `{rank}` for the rank and `*` for
    /// any text. Default: `None`, what the traces say, or else the number after the word `rank`.
    pub rank_from: Option<String>,
    /// Whether events of traces of other formats keep all of their arguments. Default: false, those that matter to most.
    pub all_arguments: bool,
    /// The part of the inputs that is read.
    pub(crate) part: ReadPart,
}

/// The part of the inputs that is read.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReadPart {
    /// `None` means all recordings.
    pub(crate) share: Option<Share>,
    /// Whether events are not read: see [`ReadOptions::heads_only`].
    pub(crate) heads_only: bool,
    /// Ends a conversion.
    pub(crate) stop: StopFlag,
    /// The filters and the slice of a trace that is compared with its inputs.
    pub(crate) as_in: Option<TracePart>,
}

/// What a trace has of its inputs.
#[derive(Clone, Debug, Default)]
pub(crate) struct TracePart {
    /// Its filters. Those that an input had when it was written left nothing in it to be left out.
    pub(crate) filters: Vec<Said>,
    /// The stretch of time that its slice has.
    pub(crate) slice: Window,
}

impl Default for MergeOptions {
    fn default() -> Self {
        Self {
            symbols: Symbols::default(),
            clock_offsets: None,
            causality: Causality::Check,
            messages_in_flight: MESSAGES_IN_FLIGHT,
            filter: EventFilter::default(),
            window: Window::ALL,
            slice: None,
            settled: None,
            output: None,
            compression: CompressionLevel::default(),
            jobs: default_jobs(),
            memory_limit_bytes: MEMORY_LIMIT_BYTES,
            temporary_directory: None,
            rank_from: None,
            all_arguments: false,
            chunk_events: CHUNK_EVENTS,
            strict: false,
            overview: false,
            force: false,
            part: ReadPart::default(),
        }
    }
}

impl MergeOptions {
    /// Creates options with their defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns where temporary files are.
    pub(crate) fn temporary_directory(&self) -> PathBuf {
        let beside = || self.output.as_deref().and_then(Path::parent);
        let directory = self.temporary_directory.as_deref().or_else(beside);
        let directory = directory.filter(|path| !path.as_os_str().is_empty());
        directory.map_or_else(std::env::temp_dir, Path::to_owned)
    }
}

/// Which of the recordings are read, if other processes read the others: shares of about equally many files. The others are only
/// asked for what ranks and clocks need. What is counted in all shares by location adds up to what is counted without. The numbers of
/// definitions differ from share to share, and so does the time at which the trace starts. Inputs that are no recordings
/// are in every share. Times may differ by nanoseconds if a recording of the same boot has lost all readings of its
/// clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Share {
    /// Its number, from 0.
    pub number: usize,
    /// How many shares there are, at least 1.
    pub of: usize,
}

impl Share {
    /// Returns whether it has the recording with a number, of `count`.
    pub(crate) const fn has(self, recording: usize, count: usize) -> bool {
        recording as u128 * self.of as u128 / count as u128 == self.number as u128
    }
}

/// How inputs are opened to be read. Each field has a default; set those that differ:
///
/// ```no_run
/// use annals_merger::{ReadOptions, Reader};
///
/// let mut options = ReadOptions::new();
/// options.jobs = 1;
/// let reader = Reader::open_with(&["annals-run".into()], options)?;
/// # Ok::<(), annals_merger::MergeError>(())
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub struct ReadOptions {
    /// Files that have names for functions without one. Default: those that the recordings name.
    pub symbols: Symbols,
    /// Threads that decode; 0 counts as 1. Default: one for each processor.
    pub jobs: usize,
    /// No more of recordings is read than this keeps: what it leaves out is not decoded, and its losses are not reported. Of a
    /// trace, whose chunks have events of many streams, nothing is left out. Default: all.
    pub filter: EventFilter,
    /// Which of the recordings are read. Default: `None`, all.
    pub share: Option<Share>,
    /// Whether only what the heads of chunks say is wanted: definitions, counts and losses. Where another format says these
    /// without its events, they are not converted, and cannot be read. Default: false.
    pub heads_only: bool,
    /// Ends the conversion of a trace of another format, with [`MergeError::Stopped`](crate::MergeError::Stopped). Default: nothing does.
    pub stop: StopFlag,
    /// Where traces of other formats are converted. Default: `None`, the directory that `TMPDIR` names, or else that of the trace.
    pub temporary_directory: Option<PathBuf>,
}

impl Default for ReadOptions {
    fn default() -> Self {
        Self {
            symbols: Symbols::default(),
            jobs: default_jobs(),
            filter: EventFilter::default(),
            share: None,
            heads_only: false,
            stop: StopFlag::default(),
            temporary_directory: None,
        }
    }
}

impl ReadOptions {
    /// Creates options with their defaults.
    pub fn new() -> Self {
        Self::default()
    }
}

impl From<ReadOptions> for MergeOptions {
    fn from(options: ReadOptions) -> Self {
        Self {
            symbols: options.symbols,
            jobs: options.jobs,
            filter: options.filter,
            temporary_directory: options.temporary_directory,
            // Reading needs events, not what contradicts them.
            causality: Causality::Off,
            part: ReadPart {
                share: options.share,
                heads_only: options.heads_only,
                stop: options.stop,
                as_in: None,
            },
            ..Self::default()
        }
    }
}
