//! The event interface: producers raise events, tools register for them.
//!
//! The model is that of MPI's tool interface (MPI 4.1 §16.3, here without MPI): a [`Runtime`] has
//! *sources* that raise *events* of *event types*, performance and control *variables*, and
//! *categories* of all of them. A tool registers for an event type, and perhaps for an object that
//! it is bound to, with a callback for each *safety level*. An instance without a callback for its
//! context is dropped, counted, and reported. [`attach()`] registers a recorder: it records
//! everything that a runtime has, without knowing any event type in advance.
//!
//! ```
//! use annals_recorder::events::{
//!     Callback, Datatype, EventTypeSpec, Info, Runtime, Safety, SourceSpec, Value,
//! };
//!
//! // The producer's part.
//! let runtime = Runtime::new();
//! let start = std::time::Instant::now();
//! let source = runtime.add_source(
//!     &SourceSpec::ordered("queue").clock(move || start.elapsed().as_nanos() as u64),
//! )?;
//! let taken = runtime.add_event_type(
//!     &EventTypeSpec::new("taken").element("tag", Datatype::Int),
//! )?;
//!
//! // The tool's.
//! let index = runtime.event_index("taken")?;
//! let registration = runtime.handle_alloc(index, None, &Info::new())?;
//! let callback = Callback::new(|instance, _, _| {
//!     assert_eq!(instance.read(0), Ok(Value::Int(7)));
//!     assert!(instance.timestamp().is_ok());
//! });
//! runtime.register_callback(registration, Safety::ThreadSafe, &Info::new(), Some(callback))?;
//!
//! taken.raise(&source, Safety::None, &[Value::Int(7)])?;
//! # Ok::<(), annals_recorder::events::Error>(())
//! ```
//!
//! Raising takes no lock and allocates nothing, and may be done in signal handlers. Registrations
//! may be made and freed meanwhile, from anywhere: after its free callback, none of a
//! registration's callbacks runs.

// Floors, from the top. A module imports only from floors below its own; of one floor, only as the
// arrows show.
//
// | floor | modules |
// |---|---|
// | a recorder as a tool | `attach` |
// | what is done with a runtime | the children of `runtime`, one for each part |
// | the runtime's tables | `runtime` |
// | registrations | `type_state` → `registration` → `instance` → `event_info`, `source` → `deferred` |
// | variables and categories | `variables` → `pvar_state` → `pvar`; `variables` → `cvar`; `category` |
// | ground | `in_progress` → `lanes` → `types`; `enumeration`, `table`, `error` |

mod attach;
mod category;
mod cvar;
mod deferred;
mod enumeration;
mod error;
mod event_info;
mod in_progress;
mod instance;
mod lanes;
mod pvar;
mod pvar_state;
mod registration;
mod runtime;
mod source;
mod table;
mod type_state;
mod types;
mod variables;

pub use annals_format::SourceOrder;
pub use attach::{Attach, AttachError, Attachment, attach};
pub use category::{Category, CategoryInfo, CategoryMember, Members};
pub use cvar::{CvarHandle, CvarInfo, CvarSpec, Scope};
pub use enumeration::{Enumeration, EnumerationInfo};
pub use error::{Error, Result};
pub use event_info::{EventInfo, EventTypeSpec};
pub use instance::{Instance, Raising};
pub use pvar::{PvarClass, PvarHandle, PvarInfo, PvarNotice, PvarSession, PvarSpec};
pub use registration::{Callback, Dropped, Registration};
pub use runtime::{EventType, Object, Pvar, Runtime, Source};
pub use source::{SourceInfo, SourceSpec};
pub use types::{Bind, Datatype, Info, ObjectHandle, Safety, Value};
