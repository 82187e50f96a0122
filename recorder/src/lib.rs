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
//! [`Options`] contains the settings; [`Options::from_env`] reads them from the environment:
//!
//! | variable | meaning | default |
//! |---|---|---|
//! | `ANNALS_DIR` | directory for the recording | `annals-run` |
//! | `ANNALS_BUFFER` | size of the buffer per process, as `16M` or `256K` | `16M` |
//! | `ANNALS_PAGE` | size of one buffer page | 1/64 of the buffer, between 4K and 64K |
//! | `ANNALS_LIVE_DIR` | directory for the live file | next to the recording; `/dev/shm` when that is a network file system, or has no room |
//! | `ANNALS_COMPRESSION` | `none`, `later` (when the program has ended), or a zstd level from -7 to 22 | `later` under `trace-cli record`, else 1 |
//! | `ANNALS_CLOCK` | `auto`, `tsc` or `monotonic` | `auto` |
//! | `ANNALS_CALIBRATION` | time between calibration points, as `1s` or `250ms` | `1s` |
//! | `ANNALS_OVERFLOW` | what happens when no page is free: `drop`, `block` or `overwrite` | `drop`; `overwrite` with triggers |
//! | `ANNALS_BLOCK_LIMIT` | how long an event may wait for a page under `block`, as `100ms` | `100ms` |
//! | `ANNALS_TRIGGER` | triggers of the flight recorder, separated by semicolons | none |
//! | `ANNALS_PRE_TRIGGER` | how much time before its trigger a snapshot covers, as `2s` | everything that is buffered |
//! | `ANNALS_POST_TRIGGER` | how long a snapshot waits after its trigger | `0s` |
//! | `ANNALS_FILTER` | rules for what is recorded, separated by semicolons, or `@FILE` | none |
//! | `ANNALS_MAX_BYTES` | maximum size of the recording, as `2G`; later events are dropped | no limit |
//! | `ANNALS_FLUSH` | partly filled pages of idle streams are written after this time; `0s` means never | `5s` |
//! | `ANNALS_FLUSH_SIGNAL` | signals that cause all pages to be written, separated by commas, as `SIGUSR1,SIGTERM`; those that end programs still do | none |
//! | `ANNALS_FORK` | children made by fork whose functions are called: `count` them only, or `follow` and record them | count |
//! | `ANNALS_RUN` | name of the run that the recording belongs to | the launcher's job id, or made from the start time and process id |
//! | `ANNALS_RANK` | rank of this process | the launcher's |
//! | `ANNALS_RANKS` | number of ranks in the run | the launcher's |

// Floors, from the top. A module imports only from floors below its own; of one floor, only as the
// arrows show.
//
// | floor | modules |
// |---|---|
// | what programs use | `events` → `global`, `module` → `recorder` |
// | a recording from its start to its finish | `session` → `writer` → `snapshot`, `deferral` |
// | raising by numbers; defining | `raiser`, `definer` |
// | streams of the calling thread | `thread_streams` |
// | what threads share | `shared`, `stream`, `streams` need each other: a stream counts in what all share |
// | parts of it | `registry` → `storage`, `memory`; `pages` → `memory`; `source`, `status`, `gate`, `id_pool` |
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
pub use options::{Compression, ENVIRONMENT, Forks, Options, Overflow};
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
pub use trigger::Trigger;

pub use annals_format::names;
pub use annals_format::text_of;
pub use annals_format::{
    BootId, ClockId, CollectiveOperation, CompressionLevel, ElementType, EventTypeId,
    EventTypeSchema, FIRST_REMOTE, HostOffset, ModuleId, ObjectId, ProcessId, Reference, RegionId,
    RemoteMembers, Role, SourceId, StringId, Value, Verbosity,
};

/// The code of the README, compiled.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
