//! The layer: raises the spans and events of `tracing` as events.

use annals_recorder::{EventType, EventTypeSpec, Recorder, Result, THREADS, Value, Verbosity};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::Interest;
use tracing::{Event, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Layer};
use tracing_subscriber::registry::LookupSpan;

use crate::callsite::{Callsite, CallsiteKind, Callsites, SiteNumber, SpanSite};
use crate::fields::Values;
use crate::level::Levels;
use crate::spans::RecentSpans;

/// Records spans and events of `tracing`; see the [crate's documentation](crate).
#[derive(Debug)]
pub struct AnnalsLayer {
    recorder: Recorder,
    callsites: Callsites,
    spans: RecentSpans,
    levels: Levels,
    records_lives: bool,
    /// Event type that replaces a span or event that could not be recorded with its values.
    unrecorded: EventType<()>,
    /// Values that are not whole, and values whose `Debug` panicked.
    shortened: EventType<(u32, u32)>,
    /// A span, and the one that it follows from.
    follows: EventType<(u64, u64)>,
}

impl AnnalsLayer {
    /// Creates a layer that records with this recorder.
    ///
    /// It keeps the recorder until it is dropped. A global default never is, and then the process's
    /// exit finishes the recording, or [`Recorder::finish`].
    ///
    /// # Errors
    /// If the recording is finished, or the recorder has no room for the layer's event types.
    pub fn new(recorder: &Recorder) -> Result<Self> {
        let spec = |name: &str, description: &str| {
            EventTypeSpec::new(name)
                .description(description)
                .verbosity(Verbosity::UserBasic)
        };
        let unrecorded = spec(
            "tracing.unrecorded",
            "a span or event that could not be recorded as what it is",
        );
        let shortened = spec(
            "tracing.shortened",
            "number of values of the event before that are not whole",
        )
        .element("values")
        .element("panicked");
        let follows = spec("tracing.follows", "a span follows from another one")
            .element("span")
            .element("follows");
        Ok(Self {
            callsites: Callsites::new(),
            spans: RecentSpans::new(),
            levels: Levels::default(),
            records_lives: true,
            unrecorded: recorder.add_event_type(&unrecorded)?,
            shortened: recorder.add_event_type(&shortened)?,
            follows: recorder.add_event_type(&follows)?,
            recorder: recorder.clone(),
        })
    }

    /// Sets whether the making and the close of spans are recorded, too (the default), or only
    /// their enters and leaves: that is half as many events. The values that a span is made with
    /// are then events as later ones are.
    #[must_use]
    pub const fn lives(mut self, records_lives: bool) -> Self {
        self.records_lives = records_lives;
        self
    }

    #[inline]
    fn callsite(&self, metadata: &'static Metadata<'static>) -> Option<(SiteNumber, &Callsite)> {
        let known = self.callsites.find(metadata);
        known.or_else(|| self.callsites.add(&self.recorder, &self.levels, metadata))
    }

    /// Returns the callsite of a span.
    #[inline]
    fn span_site<S>(&self, id: &Id, context: &Context<'_, S>) -> Option<(&Callsite, &SpanSite)>
    where
        S: Subscriber + for<'lookup> LookupSpan<'lookup>,
    {
        let recent = self.spans.find(id.into_u64());
        let callsite = match recent.and_then(|number| self.callsites.get(number)) {
            Some(callsite) => callsite,
            None => self.older_site(id, context)?,
        };
        match &callsite.kind {
            CallsiteKind::Span(span) => Some((callsite, span)),
            _ => None,
        }
    }

    #[cold]
    #[inline(never)]
    fn older_site<S>(&self, id: &Id, context: &Context<'_, S>) -> Option<&Callsite>
    where
        S: Subscriber + for<'lookup> LookupSpan<'lookup>,
    {
        let (number, callsite) = self.callsite(context.metadata(id)?)?;
        self.spans.note(id.into_u64(), Some(number));
        Some(callsite)
    }

    /// Returns the innermost span around something new, of those that this layer is shown.
    #[inline]
    fn current<S>(&self, context: &Context<'_, S>) -> Option<u64>
    where
        S: Subscriber + for<'lookup> LookupSpan<'lookup>,
    {
        let current = context.current_span();
        let id = current.id()?.into_u64();
        if self.spans.find(id).is_some() {
            return Some(id);
        }
        // A filter may hide it, and show one further out.
        context.lookup_current().map(|span| span.id().into_u64())
    }

    /// Counts something that could not be recorded as what it is; also for when nothing is
    /// recorded.
    #[cold]
    fn count_lost(&self) {
        let event_type = self.unrecorded.id();
        self.recorder.report_dropped(THREADS, event_type, 1);
    }

    /// Marks the previous event as shortened.
    fn note_shortened(&self, values: &Values<'_>) {
        let counts = (values.shortened, values.panicked);
        if counts != (0, 0) {
            self.recorder.raise(&self.shortened, counts);
        }
    }
}

impl<S> Layer<S> for AnnalsLayer
where
    S: Subscriber + for<'lookup> LookupSpan<'lookup>,
{
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        // What cannot be defined now may be when the first span or event arrives. The interest is
        // never `never`: the recorder's rules change while the program runs, and `tracing` would
        // not ask again.
        let _ = self.callsite(metadata);
        Interest::always()
    }

    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let number = id.into_u64();
        let callsite = self.callsite(attributes.metadata());
        self.spans.note(number, callsite.map(|(site, _)| site));
        let metadata = attributes.metadata();
        let count = metadata.fields().len();
        if !self.records_lives && count == 0 {
            return;
        }
        if !self.recorder.is_recording() {
            return self.count_lost();
        }
        let Some(CallsiteKind::Span(span)) = callsite.map(|(_, callsite)| &callsite.kind) else {
            return self.count_lost();
        };
        let parent = if attributes.is_root() || !self.records_lives {
            None
        } else if attributes.is_contextual() {
            self.current(&context)
        } else {
            let parent = context.span(id).and_then(|span| span.parent());
            parent.map(|parent| parent.id().into_u64())
        };
        let mut is_raised = false;
        if count != 0 {
            let is_recorded = Values::with(|values| {
                attributes.record(values);
                if values.is_empty(count) {
                    return true;
                }
                let leading = [
                    Value::U64(number),
                    Value::U32(span.region.get()),
                    parent.map_or(Value::Absent, Value::U64),
                ];
                let (shapes, leading) = if self.records_lives {
                    (&span.new, &leading[..])
                } else {
                    (&span.record, &leading[..1])
                };
                is_raised = shapes
                    .raise(&self.recorder, metadata, leading, values)
                    .is_ok();
                self.note_shortened(values);
                is_raised
            });
            if is_recorded != Some(true) {
                // The span is recorded below, its values are not.
                self.count_lost();
            }
        }
        if !is_raised && self.records_lives {
            let values = (number, span.region, parent);
            self.recorder.raise(&span.types.new, values);
        }
    }

    fn on_record(&self, id: &Id, record: &Record<'_>, context: Context<'_, S>) {
        if !self.recorder.is_recording() {
            return self.count_lost();
        }
        let Some((callsite, span)) = self.span_site(id, &context) else {
            return self.count_lost();
        };
        let raised = Values::with(|values| {
            record.record(values);
            let leading = [Value::U64(id.into_u64())];
            let raised = span
                .record
                .raise(&self.recorder, callsite.metadata, &leading, values);
            self.note_shortened(values);
            raised.is_ok()
        });
        if raised != Some(true) {
            self.count_lost();
        }
    }

    fn on_follows_from(&self, span: &Id, follows: &Id, _: Context<'_, S>) {
        let values = (span.into_u64(), follows.into_u64());
        self.recorder.raise(&self.follows, values);
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        if !self.recorder.is_recording() {
            return self.count_lost();
        }
        let callsite = self.callsite(event.metadata());
        let Some(CallsiteKind::Event(shapes)) = callsite.map(|(_, callsite)| &callsite.kind) else {
            return self.count_lost();
        };
        let span = if event.is_contextual() {
            self.current(&context)
        } else {
            context.event_span(event).map(|span| span.id().into_u64())
        };
        let raised = Values::with(|values| {
            event.record(values);
            let leading = [span.map_or(Value::Absent, Value::U64)];
            let raised = shapes.raise(&self.recorder, event.metadata(), &leading, values);
            self.note_shortened(values);
            raised.is_ok()
        });
        if raised != Some(true) {
            self.count_lost();
        }
    }

    fn on_enter(&self, id: &Id, context: Context<'_, S>) {
        match self.span_site(id, &context) {
            Some((_, span)) if self.recorder.admits_enter(span.region) => {
                let values = (span.region, id.into_u64());
                self.recorder.raise(&span.types.enter, values);
            }
            Some(_) => {}
            None => self.count_lost(),
        }
    }

    fn on_exit(&self, id: &Id, context: Context<'_, S>) {
        match self.span_site(id, &context) {
            Some((_, span)) if self.recorder.admits_leave(span.region) => {
                let values = (span.region, id.into_u64());
                self.recorder.raise(&span.types.leave, values);
            }
            Some(_) => {}
            None => self.count_lost(),
        }
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        if !self.records_lives {
            return;
        }
        match self.span_site(&id, &context) {
            Some((_, span)) => {
                let values = (id.into_u64(), span.region);
                self.recorder.raise(&span.types.close, values);
            }
            None => self.count_lost(),
        }
    }
}
