//! Reads, merges and writes traces of Annals.
//!
//! [`Reader`] reads the events, calls and losses of whatever a user names, in one global order: a trace, a recording, a directory
//! of recordings, an OTF2 archive.
//!
//! ```no_run
//! use std::ops::ControlFlow;
//!
//! use annals_merger::{Query, Reader};
//!
//! let reader = Reader::open("run.annals")?;
//! let mut query = Query::new();
//! let bytes = query.element("bytes");
//! reader.for_each_event(&query, |event| {
//!     println!("{} ns, rank {}: {}, {} bytes", event.time(), event.rank(), event.name(), event.value(bytes));
//!     ControlFlow::Continue(())
//! })?;
//! # Ok::<(), annals_merger::MergeError>(())
//! ```
//!
//! [`Reader::for_each_call`] visits calls of regions, from enter to leave. [`regions_like`] finds regions by patterns of names,
//! [`Query::set_regions`] chooses them:
//!
//! ```no_run
//! # use std::ops::ControlFlow;
//! # use annals_merger::{Query, Reader, regions_like};
//! let reader = Reader::open("run.annals")?;
//! let mut query = Query::new();
//! query.set_regions(regions_like(&"MPI_*".parse()?, reader.definitions())?);
//! reader.for_each_call(&query, |call| {
//!     println!("{}: {} ns at rank {}", call.name(), call.duration(), call.rank());
//!     ControlFlow::Continue(())
//! })?;
//! # Ok::<(), annals_merger::MergeError>(())
//! ```
//!
//! [`Reader::run`] runs an [`Analysis`] with several threads.
//!
//! [`MergeOptions`] say how recordings are merged: they make a [`MergePlan`], which writes the trace.
//!
//! ```no_run
//! use annals_merger::{MergeOptions, no_progress};
//!
//! let plan = MergeOptions::new().plan(&["annals-run".into()])?;
//! let merged = plan.write_trace("run.annals", no_progress)?;
//! println!("{} events in {} bytes", merged.report.totals.present(), merged.bytes);
//! # Ok::<(), annals_merger::MergeError>(())
//! ```
//!
//! The package's `examples/` has whole programs: `print_events.rs`, `longest_calls.rs`, `merge.rs`. The types that this API names
//! are re-exported from `annals-format`: one dependency is enough.

mod allocator;
mod analysis;
mod axis;
mod background_writer;
mod by_stream;
mod calls;
mod clocks;
mod error;
mod exact_sum;
mod explain;
mod filter;
mod index;
mod input;
mod merge;
mod merge_plan;
mod messages;
mod options;
mod ordered_parallel;
mod overview;
mod read;
mod report;
mod settled;
mod stages;
mod trace_writer;
mod verify;
mod whole_file;
mod window;
mod workers;

pub use allocator::keep_freed_memory;
pub use analysis::{Analysis, Close, Frame, Pass, SliceLength};
pub use annals_format::{
    Cause, ClockId, CompressionLevel, Definitions, Element, ElementType, EventType, EventTypeId,
    Location, LocationId, OrderedChunk, Problem, ProcessId, RecordingId, Reference, Region,
    RegionId, RegionStatistics, Role, Snapshot, Source, SourceId, StreamGroup, StreamId,
    StreamTotals, StringId, TraceChunk, TraceLoss, TraceSnapshot, TypeTotals, Value,
};
pub use annals_symbols::{
    Compiler, CompilerFamily, Program, ProgramFunction, Symbols, SymbolsError,
};
pub use by_stream::ByStream;
pub use calls::Ending;
pub use calls::statistics::RegionCounter;
pub use clocks::ClockFit;
pub use clocks::bounds::Bounds;
pub use clocks::hosts::HostFitReport;
pub use clocks::offsets::ClockOffsets;
pub use error::{MergeError, Result};
pub use exact_sum::ExactSum;
pub use explain::{EventName, Explanation, FoundEvent, Hop, Rule, explain};
pub use filter::{
    EventFilter, FilterError, Globs, RankSet, Selection, nearest, regions_like, some_match,
};
pub use index::IndexOptions;
pub use input::compress::{Compressed, compress};
pub use input::find::{Found, RejectedInput, find, is_annals};
pub use input::recording::{InputRecording, MissingFile};
pub use input::recover::{RecoverOptions, Recovered, recover, remove_live_file_in_memory};
pub use input::trace::InputTrace;
pub use merge::Merged;
pub use merge::inputs::list_inputs;
pub use merge::join::{JoinOptions, Joined, check_slice};
pub use merge_plan::MergePlan;
pub use messages::across::AcrossWorlds;
pub use messages::causality::{
    Causality, CausalityReport, MESSAGES_IN_FLIGHT, PairReport, RepairReport, ViolationReport,
};
pub use messages::collectives::CollectiveCounts;
pub use messages::matching::MessageCounts;
pub use messages::pairs::{
    CallAround, CollectiveEnd, CollectivePart, CollectiveSide, Message, MessageEvents,
    MessageExtractor, MessagePairs, MessageSide, WholeCollective,
};
pub use messages::peers::Peers;
pub use options::{MEMORY_LIMIT_BYTES, MergeOptions, ReadOptions, Share};
pub use overview::groups::LaneGroups;
pub use read::calls::{Call, Calls};
pub use read::chunk_events::{ChunkEvents, EventRange, NumberColumn};
pub use read::event::{Event, Item};
pub use read::places::{Places, StreamPlace};
pub use read::query::{ElementHandle, Query};
pub use read::trace_file::TraceFile;
pub use read::{Extent, Origin, ReadSummary, Reader};
pub use report::{
    ArchiveReport, ClockReport, DamageOfInput, DamageReport, HostReport, InputReport, RankProcess,
    Report, SharedRank, StreamReport, Sums, WorldReport, is_complete, missing_ranks,
};
pub use settled::Plan;
pub use stages::{Stage, measure_stages};
pub use verify::{Mismatch, Verification, VerifyOptions, verify};
pub use whole_file::{
    OutputError, OutputKind, Replace, WholeDirectory, WholeFile, create_beside, sync_parent,
    sync_tree,
};
pub use window::{SliceNumber, Window};
pub use workers::{StopFlag, no_progress};

/// The code of the README, compiled.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
