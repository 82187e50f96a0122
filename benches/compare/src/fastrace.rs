//! fastrace as a contestant. A region is a local span; elements are an event's properties, which
//! fastrace keeps as text. A root can hold some thousands of spans before it drops them, so every
//! [`SPANS_PER_ROOT`] there is a new one, inside the measured time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fastrace::collector::{Config, Reporter, SpanRecord};
use fastrace::local::{LocalParentGuard, LocalSpan};
use fastrace::{Event, Span, prelude::SpanContext};

use crate::contestant::{Check, Contestant, Lane};
use crate::workload::REGIONS;

/// Spans and events below one root.
const SPANS_PER_ROOT: u32 = 1000;
const ROOT: &str = "root";

/// Counts what it is given: a span is an enter and a leave.
struct Counter(Arc<AtomicU64>);

impl Reporter for Counter {
    fn report(&mut self, spans: Vec<SpanRecord>) {
        let events = |span: &SpanRecord| {
            let own = if span.name == ROOT { 0 } else { 2 };
            own + span.events.len() as u64
        };
        let sum = spans.iter().map(events).sum();
        self.0.fetch_add(sum, Ordering::Relaxed);
    }
}

/// fastrace, with a reporter that counts.
#[derive(Debug)]
pub(crate) struct Fastrace {
    reported: Arc<AtomicU64>,
    names: Arc<[&'static str]>,
    raised: u64,
}

impl Fastrace {
    /// Starts fastrace's collector.
    pub(crate) fn start() -> Self {
        let reported = Arc::new(AtomicU64::new(0));
        fastrace::set_reporter(Counter(Arc::clone(&reported)), Config::default());
        // fastrace wants names that live for ever.
        let name = |number| &*format!("region {number}").leak();
        Self {
            reported,
            names: (0..REGIONS).map(name).collect(),
            raised: 0,
        }
    }
}

impl Contestant for Fastrace {
    type Lane = FastraceLane;

    fn lane(&self, _: usize) -> FastraceLane {
        FastraceLane {
            names: Arc::clone(&self.names),
            root: None,
            left: 0,
            is_open: false,
        }
    }

    fn settle(&mut self, raised: u64) -> Result<(), String> {
        self.raised += raised;
        fastrace::flush();
        Ok(())
    }

    fn finish(&mut self) -> Result<Check, String> {
        fastrace::flush();
        let read = self.reported.load(Ordering::Relaxed);
        let lost = self.raised.checked_sub(read);
        let lost = lost.ok_or_else(|| format!("{} raised, {read} reported", self.raised))?;
        Ok(Check {
            raised: self.raised,
            read: Some(read),
            lost,
            how: "spans and events that reached the reporter".to_owned(),
        })
    }
}

/// One thread that records.
pub(crate) struct FastraceLane {
    names: Arc<[&'static str]>,
    /// The guard is first: it must be dropped before its span.
    root: Option<(LocalParentGuard, Span)>,
    left: u32,
    is_open: bool,
}

impl FastraceLane {
    #[inline]
    fn count(&mut self) {
        if self.left == 0 && !self.is_open {
            self.renew();
        }
        self.left = self.left.saturating_sub(1);
    }

    #[cold]
    fn renew(&mut self) {
        self.root = None;
        let span = Span::root(ROOT, SpanContext::random());
        self.root = Some((span.set_local_parent(), span));
        self.left = SPANS_PER_ROOT;
    }
}

impl Lane for FastraceLane {
    type Open = LocalSpan;

    fn end(&mut self) {
        self.root = None;
    }

    #[inline(never)]
    fn enter(&mut self, region: u32) -> LocalSpan {
        self.count();
        self.is_open = true;
        LocalSpan::enter_with_local_parent(self.names[region as usize])
    }

    #[inline(never)]
    fn leave(&mut self, _: u32, open: LocalSpan) {
        drop(open);
        self.is_open = false;
    }

    #[inline(never)]
    fn three(&mut self, a: u32, b: u32, c: u64) {
        self.count();
        LocalSpan::add_event(Event::new("three").with_properties(|| {
            [
                ("a", a.to_string()),
                ("b", b.to_string()),
                ("c", c.to_string()),
            ]
        }));
    }

    #[inline(never)]
    fn send(&mut self, receiver: u32, comm: u32, tag: u32, length: u64, request: u64, kind: u32) {
        self.count();
        LocalSpan::add_event(Event::new("send").with_properties(|| {
            [
                ("receiver", receiver.to_string()),
                ("communicator", comm.to_string()),
                ("tag", tag.to_string()),
                ("length", length.to_string()),
                ("request", request.to_string()),
                ("datatype", kind.to_string()),
            ]
        }));
    }

    #[inline(never)]
    fn point(&mut self, kind: u32, value: u32) {
        const NAMES: [&str; 4] = ["point 0", "point 1", "point 2", "point 3"];
        self.count();
        let event = Event::new(NAMES[kind as usize]);
        LocalSpan::add_event(event.with_property(|| ("value", value.to_string())));
    }

    #[inline(never)]
    fn metric(&mut self, value: i64) {
        self.count();
        LocalSpan::add_event(Event::new("metric").with_property(|| ("value", value.to_string())));
    }

    #[inline(never)]
    fn note(&mut self) {
        self.count();
        LocalSpan::add_event(Event::new("state changed"));
    }
}
