//! Records the events of a program at run time, cheaply and without ever hurting it.
//!
//! A [`Recorder`] writes one *recording* per process. Events belong to an [`EventType`] with typed
//! elements and are raised by a *source*. Every thread that raises events of a source has a
//! separate *stream*: after its first event, recording takes no lock, allocates nothing and makes
//! no system call but at most one wake-up for each full buffer page. Events that find no room are
//! dropped and counted. Events are in memory that outlasts the process: after `kill -9`, everything
//! that was recorded can still be read.
//!
//! ```
//! use annals_recorder::{EventTypeSpec, Options, Recorder, Text};
//!
//! let directory = std::env::temp_dir().join(format!("annals-doc-{}", std::process::id()));
//! let recorder = Recorder::start(&Options::new(&directory))?;
//! let request = recorder.add_region("request")?;
//! let answered = recorder.add_event_type::<(Text, u64)>(
//!     &EventTypeSpec::new("answered").element("path").element_in("size", "bytes"),
//! )?;
//! for size in 0..3 {
//!     let _region = recorder.region(request);
//!     recorder.raise(&answered, (b"/index.html", size));
//! }
//! let status = recorder.finish();
//! assert!(status.path.exists());
//! # std::fs::remove_dir_all(directory)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What is not recorded, and where it is counted
//!
//! For every stream and event type, raised = recorded + dropped + suppressed.
//!
//! | what happens | counted as |
//! |---|---|
//! | no page is free | dropped, buffer-full; under [`Overflow::Block`] after a wait, under [`Overflow::Overwrite`] the oldest are dropped instead, overwritten |
//! | writing has failed, the recording has reached its maximum size, the event does not fit a page | dropped: storage, size-limit, too-big |
//! | a thread has no stream and none can be opened: all are in use, also after a wait of at most a second for those of ended threads | dropped, no-stream, by event type |
//! | the thread's storage is freed, in the last round of its destructors | dropped, thread-ended, by event type |
//! | a source dropped events itself | dropped, [reported-by-source](Recorder::report_dropped) |
//! | sampling or a rate limit ([`Rules`]) leaves an event out | suppressed |
//! | the rules say `off`, or the recorder is [paused](Recorder::pause) | not raised |
//! | the recording is finished, or this is a forked child | [`Status::raised_after_finish`] |
//!
//! # Signal handlers, forks and ends
//!
//! Events may be raised in signal handlers, also as a thread's first ones. A handler that
//! interrupts its own thread's raise has a separate stream, at the same location. Nested deeper, or
//! at work in a page queue, the event is dropped and counted. Handlers may only raise: defining
//! (also the first use of a [`region!`] site), starting and finishing take locks. A forked child
//! records nothing until it starts its own recorder. The process's exit, by return, `exit` or
//! panic, finishes the recording; after `_exit`, `abort`, `exec` or `kill -9` the live file
//! contains what was committed.
//!
//! # Settings
//!
//! [`Options`] contains the settings; [`Options::from_env`] reads them from the environment: see [`SETTINGS`].

// Floors, from the top. A module imports only from floors below its own; of one floor, only as the
// arrows show.
//
// | floor | modules |
// |---|---|
// | what programs use | `events` → `global`, `module`, `thread_stream` → `recorder` |
// | a recording from its start to its finish | `session` → `writer` → `snapshot`, `deferral` |
// | raising by numbers; defining | `raiser`, `definer` |
// | streams of the calling thread | `thread_streams` |
// | what threads share | `shared`, `stream`, `streams` need each other: a stream counts in what all share |
// | parts of it | `registry` → `storage`, `memory`; `pages` → `memory`; `source`, `status`, `gate`, `id_pool`, `thread_locations` |
// | what programs describe | `spec`, `event_type`, `elements` → `row`; `options` → `launcher`, `rules`, `trigger` |
// | ground | `sys` → `clock` → `thread`; `stack`, `switch`, `sync`, `builtin`, `limits`, `error` |

mod builtin;
mod clock;
mod deferral;
mod definer;
mod elements;
mod error;
mod event_type;
pub mod events;
mod gate;
mod global;
mod id_pool;
mod launcher;
mod limits;
mod memory;
mod module;
mod options;
mod pages;
mod raiser;
mod recorder;
mod registry;
mod rest;
mod row;
mod rules;
mod session;
mod shared;
mod snapshot;
mod source;
mod spec;
#[doc(hidden)]
pub mod stack;
mod status;
mod storage;
mod stream;
mod streams;
mod switch;
mod sync;
mod sys;
mod thread;
mod thread_locations;
mod thread_stream;
mod thread_streams;
mod trigger;
mod writer;

pub use builtin::{ENTER, LEAVE, RECORDED_BY, THREADS};
pub use clock::{ClockChoice, tsc, tsc_is_invariant};
pub use elements::{Blob, ElementKind, Elements, RawValue, Text, Values};
pub use error::{RecorderError, Result};
pub use event_type::{DynamicEventType, EventType, Metric};
pub use global::{NoRegion, RegionSite, SiteGuard};
pub use launcher::{RANKED_PROCESS, RANKED_PROCESS_LEN};
pub use memory::{FunctionEntry, FunctionModule};
pub use module::ModuleSpec;
pub use options::{Compression, Forks, OpenMp, Options, Overflow, SETTINGS, Setting};
pub use raiser::{Raise, Raiser, Refusal};
pub use recorder::{Recorder, RegionGuard};
#[doc(hidden)]
pub use rest::{Worker, while_at_rest};
pub use row::RowCursor;
pub use rules::Rules;
pub use spec::{ClockSpec, ElementSpec, EventTypeSpec, SourceSpec};
pub use status::Status;
#[doc(hidden)]
pub use sys::pause;
pub use thread::{Depth, Inside, Uncancelled, record_nothing_here, say, uncancelled};
#[doc(hidden)]
pub use thread::{attach, attached};
pub use thread_stream::ThreadStream;
pub use trigger::Trigger;

pub use annals_format::names;
pub use annals_format::text_of;
pub use annals_format::{
    BootId, CallPathId, ClockId, CodePlace, CollectiveOperation, CompressionLevel, ElementType,
    EventTypeId, EventTypeSchema, FIRST_REMOTE, HostOffset, ModuleId, ObjectId, ProcessId,
    Reference, RegionId, RemoteMembers, Role, SourceId, StringId, Value, Verbosity,
};

/// The code of the README, compiled.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
