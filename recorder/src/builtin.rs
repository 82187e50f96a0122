//! Definitions that every recording has from its start: one process, the source of its threads, the
//! event types of regions.

use annals_format::{EventTypeId, ProcessId, SourceId};

/// The process of a recording.
pub(crate) const PROCESS: ProcessId = ProcessId::new(0);

/// The source of the process's own events: ordered, one stream per thread.
pub const THREADS: SourceId = SourceId::new(0);

/// The event type of entered regions, in every recording.
pub const ENTER: EventTypeId = EventTypeId::new(0);

/// The event type of left regions, in every recording.
pub const LEAVE: EventTypeId = EventTypeId::new(1);

/// The environment variable with which a command that starts programs marks their recordings as its
/// own.
pub const RECORDED_BY: &str = "ANNALS_RECORDED_BY";
