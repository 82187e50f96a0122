//! How much one recorder can have.

use annals_format::live::layout as l;

/// Most sources of one recorder.
pub(crate) const MAX_SOURCES: usize = 256;

/// Most event types of one recorder: a slot's counter segments hold no more.
pub(crate) const MAX_EVENT_TYPES: usize = l::SEGMENTS_PER_SLOT * l::ROWS_PER_SEGMENT;

/// Regions that rules and triggers can name. Regions with higher numbers are recorded and not
/// watched.
pub(crate) const MAX_RULED_REGIONS: usize = 1 << 16;
