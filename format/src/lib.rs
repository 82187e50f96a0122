//! The Annals container: how recordings and traces are laid out in bytes, read and recovered.
//!
//! `SPEC.md` in this crate's directory is normative; the code follows it. Parsers read bytes (or a [`ReadAt`]) and
//! return values or errors. They never panic on any input, and allocate memory only in proportion to it.
//!
//! A *recording* is what one process wrote, a *trace* the merged result. Both are a [`FileHeader`]
//! and then blocks: [`Definitions`], chunks of events in columns, totals, and a [`Footer`] that holds
//! it all together but is not needed. A [`LiveImage`] is the shared memory that remains when a recorder is killed.
//!
//! ```
//! use annals_format::{BlockKind, BlockWriter, CompressionLevel, Definition, Definitions, StringId};
//!
//! let mut body = Vec::new();
//! Definition::String(StringId::new(1), "ring".to_owned()).encode(&mut body);
//! let mut file = Vec::new();
//! BlockWriter::new(CompressionLevel::None)?.write(BlockKind::Definitions, &[], &body, &mut file);
//!
//! let mut definitions = Definitions::default();
//! definitions.add_all(&body)?;
//! assert_eq!(definitions.string(StringId::new(1)), "ring");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod amend;
mod bin_blocks;
mod bin_rows;
mod block;
mod cache;
mod chunk;
mod clock_map;
mod column;
mod definitions;
mod error;
mod file_limits;
mod footer;
mod frames;
mod histogram;
pub mod host;
#[cfg(test)]
mod hostile;
mod ids;
mod ints;
mod limits;
pub mod live;
mod loss;
mod message_rows;
mod metric_rows;
pub mod names;
mod order;
mod overview;
mod proof;
mod read;
mod recording;
mod recording_builder;
mod recover;
mod retired;
mod scan;
mod snapshot;
mod statistics;
mod stream_group;
#[cfg(test)]
mod testing;
mod text;
pub mod ticks;
mod totals;
mod trace;
mod trace_chunk;
pub mod units;
mod value;
pub mod wire;

pub use amend::{Amendment, amend};
pub use bin_blocks::{BinBlock, BinKey};
pub use bin_rows::{BinRow, MAX_OVERVIEW_ROWS, decode_bins, encode_bins};
pub use block::{
    BLOCK_HEADER_LEN, BlockHeader, BlockKind, BlockWriter, CompressionLevel, FILE_HEADER_LEN,
    FileHeader, FileKind, MAGIC, MAJOR, MAX_BODY_LEN, MAX_CHUNK_BODY_LEN, MAX_HEAD_LEN, MINOR,
    SYNC, StoredBody, TAIL_LEN, decode_tail, encode_tail, put_plain_block,
};
#[doc(hidden)]
pub use cache::fetch_ahead;
pub use chunk::{
    Chunk, ChunkBuilder, ChunkHeader, ChunkRow, Cumulative, MAX_CHUNK_EVENTS, MAX_CHUNK_VALUES,
    ROW_DROPPED, ROW_EVENT, ROW_FAR_TICK, ROW_OBSERVATION, RowScanner, TypeColumns, ordinals,
    put_before_rows, put_dropped_row, put_row_start, row_element, visit_rows,
};
pub use clock_map::MapCursor;
pub use column::Column;
pub use definitions::*;
pub use error::{FormatError, Result};
pub use footer::{
    Footer, IndexEntry, RecordingIndex, SnapshotEntry, TraceIndexEntry, decode_index_block,
};
pub use frames::{Frame, LEAST_GROUP_EVENTS};
pub use histogram::Histogram;
pub use ids::{
    ANY_EVENT_TYPE, BootId, BootIdError, CallPathId, ClockId, EventTypeId, LocationId, ModuleId,
    ObjectId, ProcessId, RecordingId, RegionId, SourceId, StreamId, StringId,
};
pub use ints::{Ints, Word, put_growing, put_ints, read_ints};
pub use limits::Content;
pub use live::{LiveHeader, LiveImage};
pub use loss::{Cause, DroppedRecord, RECORDER_CAUSES};
pub use message_rows::{MessageOverview, MessageRow, MessageTotals, NO_LOCATION};
pub use metric_rows::{MetricOverview, MetricRow};
pub use order::{EventPlace, LossPoint, OrderedChunk, OrderedRow};
pub use overview::{
    LaneKey, LaneKind, MAX_BIN_LEVEL, MAX_LANE_DEPTH, MOST_CALLS_WITHOUT_BIN, OverviewDensity,
    OverviewEntry, OverviewRow,
};
pub use proof::{EventHasher, OrderHash};
pub use read::{ReadAt, open_regular};
pub use recording::{ChunkPlace, Recording, StoredChunk, StreamContents, StreamLoss};
pub use recording_builder::{ChunkRows, ClockSpec, ElementSpec, ProcessSpec, RecordingBuilder};
pub use recover::Recovery;
pub use scan::Problem;
pub use snapshot::{
    LocationState, MAX_SNAPSHOT_LOCATIONS, MAX_SNAPSHOT_STEPS, Snapshot, SnapshotHeader, Step,
};
pub use statistics::{CallStatistics, MAX_STATISTICS_REGIONS, RegionStatistics};
pub use stream_group::{StreamCounts, StreamGroup};
pub use text::{text_of, text_of_value};
pub use totals::{DroppedCounts, StreamTotals, TypeTotals};
pub use trace::{
    LoadedChunk, StoredTraceChunk, Trace, TraceSnapshot, read_stored_trace_chunk, read_trace_chunk,
};
pub use trace_chunk::{TraceChunk, TraceChunkHeader, TraceLoss};
pub use value::{ElementType, Value};
