//! Records the spans and events of programs that use [`tracing`], with a layer for
//! [`tracing_subscriber`].
//!
//! ```
//! use annals_recorder::{Options, Recorder};
//! use annals_tracing::AnnalsLayer;
//! use tracing_subscriber::layer::SubscriberExt;
//!
//! #[tracing::instrument]
//! fn load(path: &str) -> usize {
//!     tracing::info!(bytes = 4096, "read");
//!     4096
//! }
//!
//! let directory = std::env::temp_dir().join(format!("annals-tracing-doc-{}", std::process::id()));
//! let recorder = Recorder::start(&Options::new(&directory))?;
//! let subscriber = tracing_subscriber::registry().with(AnnalsLayer::new(&recorder)?);
//! // Or `.init()` of `tracing_subscriber::util::SubscriberInitExt`, for the whole process.
//! tracing::subscriber::with_default(subscriber, || load("mesh.dat"));
//! let status = recorder.finish();
//! // A span is made, entered, left and closed; and there is an event.
//! assert_eq!((status.raised, status.dropped), (5, 0));
//! # std::fs::remove_dir_all(directory)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What is recorded
//!
//! | `tracing` | Annals |
//! |---|---|
//! | the callsite of a span | a region: name, file, line; its group is the target |
//! | enter, exit; also each poll of an async span, on the thread that polls | `tracing.enter.LEVEL`, `tracing.leave.LEVEL` with `region` and `span` |
//! | the life of a span, from its making to its close, on whatever threads | an interval with the key `span`: from `tracing.new.LEVEL`, or `TARGET::NAME` when it has values, to `tracing.close.LEVEL`; with the `parent`; [`AnnalsLayer::lives`] leaves them out |
//! | values that are recorded later | `TARGET::NAME record` |
//! | an event | a point `TARGET:LINE`, or `TARGET::NAME` when it has its own name; with the `span` it is in |
//! | a field | an element of its type: i64, u64, f64, string, bytes; a bool is a u32; what only has `Debug` is text |
//! | follows from | `tracing.follows` |
//! | a level | the event type's verbosity: error `user-basic`, warn `user-detail`, info `user-all`, debug `developer-basic`, trace `developer-all` |
//!
//! `span` is the subscriber's id: no two spans have it at the same time, and a later one may.
//!
//! The types of fields are known with their first values. When a callsite's values have other types
//! later, they are recorded as events of an event type `NAME (2)`, and so on; after four the values
//! are text.
//!
//! # What is not recorded, and where it is counted
//!
//! | what happens | counted as |
//! |---|---|
//! | the recorder has no room for a callsite's definitions | dropped events of `tracing.unrecorded`, reported-by-source |
//! | a value's `Debug` raises an event whose value's `Debug` raises an event, and so on, beyond four | dropped events of `tracing.unrecorded`, reported-by-source |
//! | a callsite's first span or event is raised while the thread is in a clock of the program | dropped events of `tracing.unrecorded`, reported-by-source |
//! | a text has more than 1024 bytes (all of an event: 3072), a `Debug` panics, there are more than 32 fields | `tracing.shortened` after the event; a text that was cut ends with `…` |
//! | the recorder is paused, finished, or the process is a forked child | see [`annals_recorder`] |
//!
//! Rules, limits and losses are otherwise those of the recorder. Its rules are evaluated while the
//! program runs, as they may change; filters of `tracing_subscriber` cost less, and decide first.
//!
//! A callsite is looked up without a lock, and after the first event of a callsite and a thread the
//! layer allocates nothing. The registry below it has additional costs.

mod callsite;
mod fields;
mod layer;
mod level;
mod shape;
mod spans;

pub use layer::AnnalsLayer;

/// The code of the README, compiled.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
