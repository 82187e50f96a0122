//! The event types that all spans of a level share.

use annals_recorder::names::element;
use std::sync::OnceLock;

use annals_recorder::{
    EventType, EventTypeSpec, Recorder, Reference, RegionId, Result, Role, Verbosity,
};
use tracing::Level;

/// Returns the verbosity of events of a level.
pub(crate) fn verbosity(level: Level) -> Verbosity {
    match level {
        Level::ERROR => Verbosity::UserBasic,
        Level::WARN => Verbosity::UserDetail,
        Level::INFO => Verbosity::UserAll,
        Level::DEBUG => Verbosity::DeveloperBasic,
        Level::TRACE => Verbosity::DeveloperAll,
    }
}

/// The event types of the spans of one level: the recorder's rules switch event types on and off,
/// by name and by verbosity, so each level has its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SpanTypes {
    pub(crate) enter: EventType<(RegionId, u64)>,
    pub(crate) leave: EventType<(RegionId, u64)>,
    /// Of spans without fields.
    pub(crate) new: EventType<(u64, RegionId, Option<u64>)>,
    pub(crate) close: EventType<(u64, RegionId)>,
}

impl SpanTypes {
    fn define(recorder: &Recorder, level: Level) -> Result<Self> {
        let level_name = level.as_str().to_ascii_lowercase();
        let spec = |what: &str, role: Role, description: &str| {
            EventTypeSpec::new(format!("tracing.{what}.{level_name}"))
                .description(description)
                .verbosity(verbosity(level))
                .role(role)
        };
        let on_thread = |what: &str, role: Role, description: &str| {
            spec(what, role, description)
                .reference(element::REGION, Reference::Region)
                .element("span")
        };
        let of_life = |what: &str, role: Role, description: &str| {
            spec(what, role, description)
                .element("span")
                .reference(element::REGION, Reference::Region)
                .key("span")
        };
        let enter = on_thread("enter", Role::Enter, "a thread entered a span");
        let leave = on_thread("leave", Role::Leave, "a thread left a span");
        let new = of_life("new", Role::Begin, "a span's life begins").element("parent");
        let close = of_life("close", Role::End, "a span's life ends");
        Ok(Self {
            enter: recorder.add_event_type(&enter)?,
            leave: recorder.add_event_type(&leave)?,
            new: recorder.add_event_type(&new)?,
            close: recorder.add_event_type(&close)?,
        })
    }
}

/// The event types of the spans of every level, each defined when it is first needed.
#[derive(Debug, Default)]
pub(crate) struct Levels([OnceLock<SpanTypes>; 5]);

impl Levels {
    pub(crate) fn get(&self, recorder: &Recorder, level: Level) -> Result<SpanTypes> {
        let place = &self.0[match level {
            Level::ERROR => 0,
            Level::WARN => 1,
            Level::INFO => 2,
            Level::DEBUG => 3,
            Level::TRACE => 4,
        }];
        if let Some(types) = place.get() {
            return Ok(*types);
        }
        // Threads that come here concurrently define the same, and get the same.
        let types = SpanTypes::define(recorder, level)?;
        Ok(*place.get_or_init(|| types))
    }
}
