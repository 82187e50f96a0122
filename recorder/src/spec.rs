//! Descriptions of a program's definitions: event types, clocks, sources.

use std::sync::Arc;

use annals_format::{ClockId, Reference, Role, SourceOrder, Verbosity};

use crate::clock::{self, ClockChoice, TickSource};
use crate::options::Overflow;

/// One element of an event type, to be defined.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ElementSpec {
    pub(crate) name: String,
    pub(crate) unit: String,
    pub(crate) reference: Reference,
}

/// An event type, to be defined: [`crate::Recorder::add_event_type`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EventTypeSpec {
    pub(crate) name: String,
    pub(crate) description: String,
    pub(crate) verbosity: Verbosity,
    pub(crate) role: Role,
    pub(crate) key_element: Option<String>,
    pub(crate) elements: Vec<ElementSpec>,
}

impl EventTypeSpec {
    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Creates an event type with this name, a [`Role::Point`] without elements.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            description: String::new(),
            verbosity: Verbosity::UserBasic,
            role: Role::Point,
            key_element: None,
            elements: Vec::new(),
        }
    }

    /// Sets the description of the event type.
    #[must_use]
    pub fn description(mut self, description: impl Into<String>) -> Self {
        self.description = description.into();
        self
    }

    /// Sets the intended audience of the event type.
    #[must_use]
    pub const fn verbosity(mut self, verbosity: Verbosity) -> Self {
        self.verbosity = verbosity;
        self
    }

    /// Sets the meaning of the event type to analysis.
    /// The role's elements have fixed names: see [`Role`].
    #[must_use]
    pub const fn role(mut self, role: Role) -> Self {
        self.role = role;
        self
    }

    /// Adds an element.
    #[must_use]
    pub fn element(self, name: impl Into<String>) -> Self {
        self.element_in(name, "")
    }

    /// Adds an element whose values have a unit, such as `bytes` or `ns`.
    #[must_use]
    pub fn element_in(mut self, name: impl Into<String>, unit: impl Into<String>) -> Self {
        self.elements.push(ElementSpec {
            name: name.into(),
            unit: unit.into(),
            reference: Reference::None,
        });
        self
    }

    /// Adds an integer element that refers to something.
    #[must_use]
    pub fn reference(mut self, name: impl Into<String>, reference: Reference) -> Self {
        self.elements.push(ElementSpec {
            name: name.into(),
            unit: String::new(),
            reference,
        });
        self
    }

    /// Sets the element that ties the begin of an interval to its end.
    #[must_use]
    pub fn key(mut self, name: impl Into<String>) -> Self {
        self.key_element = Some(name.into());
        self
    }
}

/// A clock, to be added.
#[derive(Clone, Debug)]
pub struct ClockSpec {
    pub(crate) name: String,
    pub(crate) ticks: TickSource,
    pub(crate) ticks_per_second: u64,
    pub(crate) rate_error_ppb: u32,
    pub(crate) max_ticks: u64,
}

/// Default bound of the error of a clock's rate, parts per 10⁹: two crystals of ± 100 parts per
/// million.
const RATE_ERROR_PPB: u32 = 200_000;

impl ClockSpec {
    /// Returns the recorder's own clock.
    pub(crate) fn of_recorder(choice: ClockChoice) -> Self {
        match TickSource::choose(choice) {
            TickSource::Tsc => {
                let (rate, error_ppb) = clock::tsc_rate();
                Self {
                    name: "tsc".to_owned(),
                    ticks: TickSource::Tsc,
                    ticks_per_second: rate,
                    rate_error_ppb: error_ppb,
                    max_ticks: u64::MAX,
                }
            }
            _ => Self::reference(),
        }
    }

    /// Returns the reference clock: a tick is a nanosecond of `CLOCK_MONOTONIC`.
    pub fn reference() -> Self {
        Self {
            name: "monotonic".to_owned(),
            ticks: TickSource::Reference,
            ticks_per_second: 1_000_000_000,
            rate_error_ppb: 0,
            max_ticks: u64::MAX,
        }
    }

    /// Creates a clock that `read` reads at any time.
    /// It runs on the threads that raise events.
    pub fn readable(
        name: impl Into<String>,
        ticks_per_second: u64,
        read: impl Fn() -> u64 + Send + Sync + 'static,
    ) -> Self {
        Self {
            name: name.into(),
            ticks: TickSource::Function(Arc::new(read)),
            ticks_per_second,
            rate_error_ppb: RATE_ERROR_PPB,
            max_ticks: u64::MAX,
        }
    }

    /// Creates a clock that is known only from its events: raise them with
    /// [`crate::Recorder::raise_at`].
    pub fn unreadable(name: impl Into<String>, ticks_per_second: u64) -> Self {
        Self {
            name: name.into(),
            ticks: TickSource::Unreadable(Arc::default()),
            ticks_per_second,
            rate_error_ppb: RATE_ERROR_PPB,
            max_ticks: u64::MAX,
        }
    }

    /// Sets the bound of the rate's error against the host's reference clock, parts per 10⁹.
    ///
    /// 0 means exact by definition, as of a clock that is derived from the reference clock. The
    /// default is 200 000. The bound matters where the clock is tied to the reference once, or only
    /// by its events.
    #[must_use]
    pub const fn rate_error_ppb(mut self, rate_error_ppb: u32) -> Self {
        self.rate_error_ppb = rate_error_ppb;
        self
    }

    /// Sets the largest tick before the clock starts again at 0.
    /// Any value is possible.
    #[must_use]
    pub const fn max_ticks(mut self, max_ticks: u64) -> Self {
        self.max_ticks = max_ticks;
        self
    }
}

/// A source, to be added.
#[derive(Clone, Debug)]
pub struct SourceSpec {
    pub(crate) name: String,
    pub(crate) description: String,
    pub(crate) ordering: SourceOrder,
    pub(crate) clock: Option<ClockId>,
    pub(crate) overflow: Option<Overflow>,
    pub(crate) has_own_location: bool,
}

impl SourceSpec {
    /// Creates a source that promises chronological order, stamped by the recorder's clock.
    pub fn ordered(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            description: String::new(),
            ordering: SourceOrder::Ordered,
            clock: None,
            overflow: None,
            has_own_location: false,
        }
    }

    /// Creates a source that promises nothing about order.
    pub fn unordered(name: impl Into<String>) -> Self {
        Self {
            ordering: SourceOrder::Unordered,
            ..Self::ordered(name)
        }
    }

    /// Sets the description of the source.
    #[must_use]
    pub fn description(mut self, description: impl Into<String>) -> Self {
        self.description = description.into();
        self
    }

    /// Sets the clock that stamps its events.
    #[must_use]
    pub const fn clock(mut self, clock: ClockId) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Places the events that each thread raises for it at a separate location, next to the
    /// thread's: regions of the source do not nest with those of the program.
    #[must_use]
    pub const fn own_location(mut self) -> Self {
        self.has_own_location = true;
        self
    }

    /// Sets what happens to its events when no page is free.
    /// The default is [`crate::Options::overflow`].
    #[must_use]
    pub const fn overflow(mut self, overflow: Overflow) -> Self {
        self.overflow = Some(overflow);
        self
    }
}
