//! Losses: what was raised and cannot be read as an event, how much of it, when and why.

use crate::ids::EventTypeId;

/// Why events are missing: first what a recorder *dropped*, then what it *suppressed* because the user
/// asked for less, then what a reader finds missing in the bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Cause {
    /// No free buffer page.
    BufferFull = 0,
    /// Writing failed earlier, so that pages no longer become free.
    Storage = 1,
    /// The flight recorder reused the page.
    Overwritten = 2,
    /// No callback was registered at a safety level that the context allows.
    NoCallback = 3,
    /// The source reported that it dropped the events itself.
    ReportedBySource = 4,
    /// The event does not fit a page.
    TooBig = 5,
    /// The thread had no stream and none could be opened there.
    NoStream = 6,
    /// Raised after the recording was finished.
    Finished = 7,
    /// Raised in a forked child.
    Fork = 8,
    /// The recording has as many bytes as the user allows.
    SizeLimit = 9,
    /// Raised by destructors of the thread's storage, after the recorder's own.
    ThreadEnded = 10,
    /// *Suppressed*: more events were raised than the user's rate limit permits.
    RateLimited = 16,
    /// *Skipped*: the chunk is there, but cannot be decoded or is missing between others.
    Skipped = 32,
    /// *Truncated*: the stream ended early.
    Truncated = 33,
}

/// Causes that a recorder counts per stream and event type: the codes below this number.
pub const RECORDER_CAUSES: usize = 11;

impl Cause {
    /// Every cause a recorder counts, by code.
    pub const RECORDER: [Self; RECORDER_CAUSES] = [
        Self::BufferFull,
        Self::Storage,
        Self::Overwritten,
        Self::NoCallback,
        Self::ReportedBySource,
        Self::TooBig,
        Self::NoStream,
        Self::Finished,
        Self::Fork,
        Self::SizeLimit,
        Self::ThreadEnded,
    ];

    /// Returns the cause with this code, if there is one.
    pub const fn from_code(code: u8) -> Option<Self> {
        match code {
            0..=10 => Some(Self::RECORDER[code as usize]),
            16 => Some(Self::RateLimited),
            32 => Some(Self::Skipped),
            33 => Some(Self::Truncated),
            _ => None,
        }
    }

    /// Returns the code in the file.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// Returns the name in tables and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::BufferFull => "buffer-full",
            Self::Storage => "storage",
            Self::Overwritten => "overwritten",
            Self::NoCallback => "no-callback-at-safety-level",
            Self::ReportedBySource => "reported-by-source",
            Self::TooBig => "too-big",
            Self::NoStream => "no-stream",
            Self::Finished => "finished",
            Self::Fork => "fork",
            Self::SizeLimit => "size-limit",
            Self::ThreadEnded => "thread-ended",
            Self::RateLimited => "rate-limited",
            Self::Skipped => "skipped",
            Self::Truncated => "truncated",
        }
    }

    /// Returns whether these events were committed first and dropped later, by the thread that empties the pages.
    /// Threads that raise events do not count them.
    pub const fn is_counted_by_writer(self) -> bool {
        matches!(self, Self::Overwritten | Self::SizeLimit)
    }

    /// Returns whether the recorder missed the events.
    pub const fn is_dropped(self) -> bool {
        !self.is_suppressed() && !self.is_of_reader()
    }

    /// Returns whether the user did not want the events.
    pub const fn is_suppressed(self) -> bool {
        matches!(self, Self::RateLimited)
    }

    /// Returns what kind of loss it is, in a word.
    pub const fn kind(self) -> &'static str {
        if self.is_suppressed() {
            return "suppressed";
        }
        if self.is_of_reader() {
            "skipped"
        } else {
            "dropped"
        }
    }

    /// Returns whether a reader cannot find the events.
    pub const fn is_of_reader(self) -> bool {
        matches!(self, Self::Skipped | Self::Truncated)
    }
}

/// A dropped record: events of one stream that were dropped or suppressed, standing before the stream's
/// next event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DroppedRecord {
    /// The type of the lost events; `None` means any type.
    pub event_type: Option<EventTypeId>,
    /// Why.
    pub cause: Cause,
    /// How many events.
    pub count: u64,
    /// Whether `count` is only a lower bound: a counter saturated, or the loss is estimated.
    pub is_lower_bound: bool,
    /// Losses of this stream, event type and cause from the stream's start to here, this one included;
    /// for a suppressing cause: all that was suppressed.
    pub cumulative: u64,
    /// Tick of the last event before the loss (the stream's opening, when there was none).
    pub from_tick: u64,
    /// Tick of the next event after it.
    pub to_tick: u64,
}
