//! The `tracing` layer: what spans and events do to programs, and what is recorded of them.
#![expect(unsafe_code, reason = "fork")]

mod support;

use std::cell::Cell;
use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::sync::OnceLock;
use std::task::{Context, Poll, Waker};

use annals_merger::Reader;
use annals_recorder::Verbosity;
use support::{Event, Read, Recording, dropped, events, names};
use tracing::callsite::{Callsite, Identifier};
use tracing::dispatcher::{Dispatch, with_default};
use tracing::field::{Empty, FieldSet, Value, debug};
use tracing::metadata::Kind;
use tracing::subscriber::Interest;
use tracing::{
    Level, Metadata, Span, debug, debug_span, error, info, info_span, instrument, trace_span, warn,
};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{LevelFilter, filter_fn};
use tracing_subscriber::layer::SubscriberExt;

fn of_name<'a>(events: &'a [Event], name: &str) -> Vec<&'a Event> {
    events.iter().filter(|event| event.name == name).collect()
}

/// Enters and leaves in order, as `+region` and `-region`.
fn steps(events: &[Event]) -> Vec<String> {
    let steps = events.iter().filter_map(|event| {
        let sign = match event.name.rsplit_once('.')?.0 {
            "tracing.enter" => '+',
            "tracing.leave" => '-',
            _ => return None,
        };
        Some(format!("{sign}{}", event.region()))
    });
    steps.collect()
}

#[test]
fn a_span_is_a_region_and_its_life_an_interval() {
    let recording = Recording::start();
    recording.trace(|| {
        let outer = info_span!("outer");
        let _outer = outer.enter();
        let _inner = debug_span!("inner").entered();
    });
    let events = recording.events();
    let expected = [
        "tracing.new.info",
        "tracing.enter.info",
        "tracing.new.debug",
        "tracing.enter.debug",
        "tracing.leave.debug",
        "tracing.close.debug",
        "tracing.leave.info",
        "tracing.close.info",
    ];
    assert_eq!(names(&events), expected);
    let outer = events[0].span();
    assert!(!events[0].elements.contains_key("parent"));
    assert_eq!(events[2].elements["parent"], Read::Integer(outer));
    let of_outer = events.iter().filter(|event| event.span() == outer);
    assert_eq!(of_outer.count(), 4);
    assert!(events.iter().all(|event| {
        let is_inner = event.name.ends_with("debug");
        event.region() == if is_inner { "inner" } else { "outer" }
    }));
}

#[test]
fn a_callsite_is_a_region_with_its_place_and_target() {
    let recording = Recording::start();
    let line = line!() + 1;
    recording.trace(|| drop(info_span!(target: "a::target", "placed", size = 1_u64)));
    let opened = Reader::open(recording.finish()).expect("a recording");
    let d = opened.definitions();
    // Other tests' callsites are registered with every subscriber there is.
    let mut regions = d.regions.values();
    let region = regions.find(|region| d.string(region.name) == "placed");
    let region = region.expect("a region");
    assert_eq!(d.string(region.group), "a::target");
    assert_eq!(d.string(region.file), file!());
    assert_eq!(region.line, line);
    let mut types = d.event_types.values();
    assert!(types.any(|event_type| d.string(event_type.name) == "a::target::placed"));
}

#[test]
fn fields_are_elements_of_their_types() {
    let recording = Recording::start();
    recording.trace(|| {
        let parts: &[u8] = &[1, 2, 255];
        let _span = info_span!(
            target: "app",
            "request",
            size = 7_u64,
            delta = -3,
            share = 0.5,
            is_last = true,
            path = "/index",
            who = ?Some(1),
            parts,
            later = Empty,
            span = 9_i64,
        )
        .entered();
        info!(name: "answered", target: "app", status = 200_u16, "done in {} steps", 3);
    });
    let events = recording.events();
    assert_eq!(events[0].name, "app::request");
    let request = &events[0].elements;
    for (name, value) in [
        ("size", Read::Integer(7)),
        ("delta", Read::Integer(-3)),
        ("share", Read::Float(0.5)),
        ("is_last", Read::Integer(1)),
        ("path", "/index".into()),
        ("who", "Some(1)".into()),
        ("parts", Read::Bytes(vec![1, 2, 255])),
        ("field.span", Read::Integer(9)),
        ("region", Read::Region("request".to_owned())),
    ] {
        assert_eq!(request[name], value, "{name}");
    }
    assert!(!request.contains_key("later"));
    let answered = of_name(&events, "app::answered");
    assert_eq!(answered[0].span(), events[0].span());
    assert_eq!(answered[0].text("message"), "done in 3 steps");
    assert_eq!(answered[0].elements["status"], Read::Integer(200));
}

#[test]
fn fields_that_are_recorded_later_are_events_of_the_span() {
    let recording = Recording::start();
    recording.trace(|| {
        let span = info_span!(target: "app", "job", size = Empty, outcome = Empty);
        span.record("size", 12_u64);
        span.in_scope(|| span.record("outcome", "good"));
        span.record("size", 13_u64);
    });
    let events = recording.events();
    let records: Vec<&Event> = events
        .iter()
        .filter(|event| event.name.contains(" record"))
        .collect();
    let [first, second, third] = records[..] else {
        panic!("{events:#?}")
    };
    assert_eq!(first.elements["size"], Read::Integer(12));
    assert_eq!(second.elements["outcome"], "good".into());
    assert!(!second.elements.contains_key("size"));
    assert_eq!(third.elements["size"], Read::Integer(13));
    assert!(records.iter().all(|event| event.span() == events[0].span()));
}

#[test]
fn a_field_may_change_its_type() {
    let recording = Recording::start();
    let number = &7_u64 as &dyn Value;
    let values: [&dyn Value; 8] = [
        number, &-7_i64, &"seven", &true, &0.7, number, &0.25, &false,
    ];
    recording.trace(|| {
        for value in values {
            info!(name: "mixed", target: "app", value, first = 1_i64);
        }
    });
    let events = recording.events();
    let read: Vec<&Read> = events
        .iter()
        .map(|event| &event.elements["value"])
        .collect();
    // Four types have separate elements; the others are text.
    let expected = [
        Read::Integer(7),
        Read::Integer(-7),
        "seven".into(),
        Read::Integer(1),
        "0.7".into(),
        Read::Integer(7),
        "0.25".into(),
        Read::Integer(0),
    ];
    assert_eq!(read, expected.iter().collect::<Vec<_>>());
    assert_eq!(events[1].name, "app::mixed (2)");
    assert_eq!(events[5].name, "app::mixed");
}

#[test]
fn a_span_may_be_entered_on_one_thread_and_dropped_on_another() {
    let recording = Recording::start();
    let dispatch = Dispatch::new(recording.subscriber());
    let span = with_default(&dispatch, || info_span!("moved"));
    std::thread::scope(|scope| {
        let enter = || span.in_scope(|| ());
        let named = std::thread::Builder::new().name("enters".to_owned());
        named.spawn_scoped(scope, enter).expect("a thread");
    });
    let dropping = std::thread::Builder::new().name("drops".to_owned());
    let thread = dropping.spawn(move || drop(span)).expect("a thread");
    thread.join().expect("a thread");
    let events = recording.events();
    let where_it_was: Vec<(&str, &str)> = events
        .iter()
        .map(|event| (event.name.as_str(), event.location.as_str()))
        .collect();
    assert_eq!(where_it_was[1], ("tracing.enter.info", "enters"));
    assert_eq!(where_it_was[2], ("tracing.leave.info", "enters"));
    assert_eq!(where_it_was[3], ("tracing.close.info", "drops"));
    assert!(events.iter().all(|event| event.span() == events[0].span()));
}

#[test]
fn spans_are_entered_again_and_left_out_of_order() {
    let recording = Recording::start();
    recording.trace(|| {
        let (a, b) = (info_span!("a"), info_span!("b"));
        let in_a = a.enter();
        let in_b = b.enter();
        drop(in_a);
        let again = a.enter();
        let twice = a.enter();
        drop(in_b);
        drop(twice);
        drop(again);
    });
    let events = recording.events();
    let expected = ["+a", "+b", "-a", "+a", "+a", "-b", "-a", "-a"];
    assert_eq!(steps(&events), expected);
    let closes = events.iter().filter(|e| e.name == "tracing.close.info");
    assert_eq!(closes.count(), 2);
}

#[instrument]
fn factorial(n: u64) -> u64 {
    if n == 0 { 1 } else { n * factorial(n - 1) }
}

#[test]
fn recursion_nests_spans_of_one_region() {
    let recording = Recording::start();
    recording.trace(|| assert_eq!(factorial(20), 2_432_902_008_176_640_000));
    let events = recording.events();
    let mut expected = vec!["+factorial"; 21];
    expected.extend(["-factorial"; 21]);
    assert_eq!(steps(&events), expected);
    let news: Vec<&Event> = events
        .iter()
        .filter(|e| e.elements.contains_key("n"))
        .collect();
    assert_eq!(news.len(), 21);
    for pair in news.windows(2) {
        assert_eq!(pair[1].elements["parent"], Read::Integer(pair[0].span()));
    }
}

/// Waits once.
async fn pause() {
    let mut is_over = false;
    std::future::poll_fn(|_| {
        if std::mem::replace(&mut is_over, true) {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
}

#[instrument(level = "warn")]
async fn task(number: u64) -> u64 {
    pause().await;
    inner().await + number
}

#[instrument]
async fn inner() -> u64 {
    pause().await;
    1
}

#[test]
fn each_poll_of_an_async_span_is_on_its_threads_location() {
    let recording = Recording::start();
    let dispatch = Dispatch::new(recording.subscriber());
    let mut future = Box::pin(with_default(&dispatch, || task(41)));
    let mut outcome = Poll::Pending;
    let mut polls = 0;
    while outcome.is_pending() {
        let thread = std::thread::Builder::new().name(format!("poll {polls}"));
        std::thread::scope(|scope| {
            let poll = || {
                with_default(&dispatch, || {
                    future
                        .as_mut()
                        .poll(&mut Context::from_waker(Waker::noop()))
                })
            };
            let thread = thread.spawn_scoped(scope, poll).expect("a thread");
            outcome = thread.join().expect("a thread");
        });
        polls += 1;
    }
    assert_eq!(outcome, Poll::Ready(42));
    drop(future);
    let events = recording.events();
    let of = |name: &str| -> Vec<(String, i128)> {
        let found = of_name(&events, name);
        found
            .iter()
            .map(|e| (e.location.clone(), e.span()))
            .collect()
    };
    let task = of_name(&events, "tracing_layer::task")[0].span();
    let at = |poll: u32| (format!("poll {poll}"), task);
    // And once more where the future's end drops what it held, inside its span.
    assert_eq!(of("tracing.enter.warn")[..3], [at(0), at(1), at(2)]);
    assert_eq!(of("tracing.enter.warn"), of("tracing.leave.warn"));
    assert_eq!(of("tracing.close.warn"), [at(2)]);
    let inner = &of("tracing.new.info")[0];
    assert_eq!(inner.0, "poll 1");
    assert!(
        of("tracing.enter.info")
            .iter()
            .all(|enter| enter.1 == inner.1)
    );
    let locations: Vec<String> = of("tracing.enter.info").into_iter().map(|e| e.0).collect();
    assert_eq!((&*locations[0], &*locations[1]), ("poll 1", "poll 2"));
}

#[test]
fn what_comes_while_nothing_is_recorded_is_counted_as_the_recorder_has_it() {
    let recording = Recording::start();
    let recorder = recording.recorder.clone();
    recording.trace(|| {
        let span = info_span!("known");
        recorder.pause();
        span.in_scope(|| info!("paused"));
        let made_in_pause = info_span!("made in pause", size = 1);
        recorder.resume();
        assert_eq!(recorder.status().raised, 1);
        made_in_pause.in_scope(|| ());
        recorder.finish();
        assert_eq!(recorder.status().raised_after_finish, 0);
        span.in_scope(|| info!("finished"));
        drop(info_span!("new after the end"));
        drop(span);
        // Enter, event, leave, new, close, close.
        assert_eq!(recorder.status().raised_after_finish, 6);
    });
    assert_eq!(
        steps(&recording.events()),
        ["+made in pause", "-made in pause"]
    );
}

#[test]
fn a_forked_child_goes_on_and_its_parents_recording_stands() {
    let recording = Recording::start();
    recording.trace(|| {
        let span = info_span!("shared");
        let inside = span.enter();
        // SAFETY: the child allocates, which glibc makes safe after fork, and ends by `_exit`.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            drop(inside);
            // Callsites that the parent never saw, too.
            info_span!("of the child", size = 1).in_scope(|| info!("here"));
            drop(span);
            let counted = recording.recorder.status().raised_after_finish;
            // Leave; new, enter, event, leave, close; close.
            let code = i32::from(counted != 7);
            // SAFETY: ends the child, whatever it holds.
            unsafe { libc::_exit(code) };
        }
        let mut status = -1;
        // SAFETY: the child is this process's.
        unsafe { libc::waitpid(pid, &raw mut status, 0) };
        assert_eq!(status, 0, "the child counted what it raised");
    });
    assert_eq!(steps(&recording.events()), ["+shared", "-shared"]);
}

/// A callsite that is made while the program runs.
struct MadeCallsite(OnceLock<Metadata<'static>>);

impl Callsite for MadeCallsite {
    fn set_interest(&self, _: Interest) {}

    fn metadata(&self) -> &Metadata<'_> {
        self.0.get().expect("set at once")
    }
}

fn make_callsite(number: usize) -> &'static Metadata<'static> {
    let callsite: &'static MadeCallsite = Box::leak(Box::new(MadeCallsite(OnceLock::new())));
    let name: &'static str = Box::leak(format!("made {number}").into_boxed_str());
    callsite.0.get_or_init(|| {
        let fields = FieldSet::new(&["number"], Identifier(callsite));
        let level = Level::INFO;
        Metadata::new(name, "made", level, None, None, None, fields, Kind::EVENT)
    })
}

/// More callsites than a recorder can have event types.
#[test]
fn callsites_without_room_are_counted() {
    const CALLSITES: usize = 5000;
    let recording = Recording::start();
    let callsites: Vec<_> = (0..CALLSITES).map(make_callsite).collect();
    recording.trace(|| {
        for round in 0..2 {
            for metadata in &callsites {
                let field = metadata.fields().field("number").expect("a field");
                let value: Option<&dyn Value> = Some(&round);
                tracing::Event::dispatch(
                    metadata,
                    &metadata.fields().value_set(&[(&field, value)]),
                );
            }
        }
    });
    let path = recording.finish();
    let events = events(&path);
    let lost = dropped(&path, "tracing.unrecorded");
    // Streams have counters for fewer event types than there are; the rest has a row as well.
    let opened = Reader::open(&path).expect("a recording");
    let outcome = opened.summary().expect("a recording");
    let rows = outcome.totals.iter().flat_map(|totals| &totals.rows);
    let raised: u64 = rows.map(|row| row.raised).sum();
    assert_eq!(raised, 2 * CALLSITES as u64);
    assert!(events.len() > 2000, "{} events", events.len());
    assert!(lost > 2000 && lost < 4000, "{lost} lost");
}

/// Its `Debug` does what a test wants.
struct Odd<F>(F);

impl<F: Fn(&mut fmt::Formatter<'_>) -> fmt::Result> fmt::Debug for Odd<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (self.0)(f)
    }
}

#[test]
fn values_that_panic_or_are_huge_cost_themselves_only() {
    let recording = Recording::start();
    let pieces = Cell::new(0);
    recording.trace(|| {
        let panics = Odd(|_: &mut fmt::Formatter<'_>| -> fmt::Result { panic!("on purpose") });
        info!(name: "panics", target: "app", value = ?panics, next = 1);
        let huge = Odd(|f: &mut fmt::Formatter<'_>| {
            (0..1_000_000).try_for_each(|_| {
                pieces.set(pieces.get() + 1);
                f.write_str("0123456789")
            })
        });
        info!(name: "huge", target: "app", value = ?huge, next = 2);
        // Continues after the error, and fails by itself.
        let stubborn = Odd(|f: &mut fmt::Formatter<'_>| {
            (0..1000).for_each(|_| {
                let _ = f.write_str("0123456789");
            });
            f.write_str("x").expect("room");
            Ok(())
        });
        info!(name: "stubborn", target: "app", value = ?stubborn, next = 3);
        let long = "ä".repeat(5000);
        let bytes = [7_u8; 5000];
        info!(name: "long", target: "app", value = %long, bytes = &bytes[..], next = 4);
        let parts = (&*long, &*long, &*long);
        let (a, b, c) = parts;
        info!(name: "many", target: "app", a, b, c, d = a, next = 5);
    });
    assert!(pieces.get() < 200, "{} pieces", pieces.get());
    let events = recording.events();
    let of = |name: &str| of_name(&events, name)[0];
    assert_eq!(of("app::panics").text("value"), "<panicked>");
    let huge = of("app::huge").text("value");
    assert!(
        huge.starts_with("0123456789") && huge.ends_with('…'),
        "{huge}"
    );
    assert!((1000..=1024).contains(&huge.len()), "{} bytes", huge.len());
    assert_eq!(of("app::stubborn").text("value"), "<panicked>");
    assert!(of("app::long").text("value").ends_with("ä…"));
    assert_eq!(
        of("app::long").elements["bytes"],
        Read::Bytes(vec![7; 1024])
    );
    assert_eq!(of("app::many").elements["next"], Read::Integer(5));
    let notes: Vec<(Read, Read)> = of_name(&events, "tracing.shortened")
        .iter()
        .map(|event| {
            (
                event.elements["values"].clone(),
                event.elements["panicked"].clone(),
            )
        })
        .collect();
    let note = |values, panicked| (Read::Integer(values), Read::Integer(panicked));
    // Three of the last are cut at their own bound, the fourth at that of all together.
    let expected = [note(0, 1), note(1, 0), note(0, 1), note(2, 0), note(4, 0)];
    assert_eq!(notes, expected);
}

#[test]
fn a_debug_may_raise_events_itself() {
    let recording = Recording::start();
    // Scoped subscribers do not hear events that come out of a subscriber; a global one does. The
    // layer is asked as a global one would ask it.
    let dispatch = Dispatch::new(recording.subscriber());
    let depth = Cell::new(0);
    struct Endless<'a>(&'a Dispatch, &'a Cell<u32>);
    impl fmt::Debug for Endless<'_> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            self.1.set(self.1.get() + 1);
            let metadata = callsite();
            let field = metadata.fields().field("number").expect("a field");
            let value = debug(Endless(self.0, self.1));
            let values = [(&field, Some(&value as &dyn Value))];
            let values = metadata.fields().value_set(&values);
            self.0.event(&tracing::Event::new(metadata, &values));
            f.write_str("endless")
        }
    }
    fn callsite() -> &'static Metadata<'static> {
        static MADE: OnceLock<&'static Metadata<'static>> = OnceLock::new();
        MADE.get_or_init(|| make_callsite(0))
    }
    with_default(&dispatch, || {
        info!(name: "outermost", target: "app", value = ?Endless(&dispatch, &depth));
    });
    assert_eq!(depth.get(), 4);
    let path = recording.finish();
    let events = events(&path);
    assert_eq!(
        names(&events),
        [
            "made::made 0",
            "made::made 0",
            "made::made 0",
            "app::outermost"
        ]
    );
    assert_eq!(events[3].text("value"), "endless");
    assert_eq!(dropped(&path, "tracing.unrecorded"), 1);
}

#[test]
fn events_in_destructors_of_thread_local_values_are_recorded_or_counted() {
    struct AtEnd(Dispatch);
    impl Drop for AtEnd {
        fn drop(&mut self) {
            let metadata = make_callsite(1);
            let field = metadata.fields().field("number").expect("a field");
            let values = [(&field, Some(&"at the end" as &dyn Value))];
            let values = metadata.fields().value_set(&values);
            self.0.event(&tracing::Event::new(metadata, &values));
        }
    }
    thread_local!(static AT_END: Cell<Option<AtEnd>> = const { Cell::new(None) });
    let recording = Recording::start();
    let dispatch = Dispatch::new(recording.subscriber());
    let thread = std::thread::spawn(move || AT_END.with(|end| end.set(Some(AtEnd(dispatch)))));
    thread.join().expect("the thread ends well");
    assert_eq!(recording.recorder.finish().raised, 1);
}

#[test]
fn filters_of_the_subscriber_hold() {
    let recording = Recording::start();
    let quiet = |metadata: &Metadata<'_>| metadata.name() != "filtered";
    let layer = recording.layer().with_filter(filter_fn(quiet));
    let subscriber = tracing_subscriber::registry()
        .with(layer)
        .with(LevelFilter::DEBUG);
    tracing::subscriber::with_default(subscriber, || {
        let _outer = info_span!("outer").entered();
        let _filtered = info_span!("filtered").entered();
        let _inner = debug_span!("inner", size = 1).entered();
        let _trace = trace_span!("too much").entered();
        error!(name: "event", target: "app", "inside");
    });
    let events = recording.events();
    assert_eq!(steps(&events), ["+outer", "+inner", "-inner", "-outer"]);
    let inner = of_name(&events, "tracing_layer::inner")[0];
    // The nearest span that is recorded.
    let outer = of_name(&events, "tracing.new.info")[0].span();
    assert_eq!(inner.elements["parent"], Read::Integer(outer));
    assert_eq!(of_name(&events, "app::event")[0].span(), inner.span());
}

#[test]
fn rules_of_the_recorder_hold_and_may_change() {
    let recording = Recording::start();
    let recorder = recording.recorder.clone();
    let apply = |rules: &str| {
        let rules = rules.parse().expect("rules");
        recorder.apply(&rules).expect("a recorder");
    };
    recording.trace(|| {
        let round = || {
            info_span!("a").in_scope(|| debug_span!("b").in_scope(|| warn!(name: "seen", "x")));
        };
        round();
        apply("off region a; off event tracing_layer::seen");
        round();
        apply("on region a; verbosity user-all");
        round();
        apply("on event *");
        round();
    });
    let events = recording.events();
    let both = ["+a", "+b", "-b", "-a"];
    let only_b = ["+b", "-b"];
    let only_a = ["+a", "-a"];
    let expected = [&both[..], &only_b, &only_a, &both].concat();
    assert_eq!(steps(&events), expected);
    // The rule about verbosity follows the one about this event type, and switches nothing on.
    assert_eq!(of_name(&events, "tracing_layer::seen").len(), 2);
}

#[test]
fn levels_are_verbosities() {
    let recording = Recording::start();
    recording.trace(|| {
        error!(name: "1", x = 1);
        warn!(name: "2", x = 1);
        info!(name: "3", x = 1);
        debug!(name: "4", x = 1);
        tracing::trace!(name: "5", x = 1);
    });
    let opened = Reader::open(recording.finish()).expect("a recording");
    let d = opened.definitions();
    let of = |name: &str| {
        let mut types = d.event_types.values();
        let name = format!("tracing_layer::{name}");
        let found = types.find(|event_type| d.string(event_type.name) == name);
        found.expect("an event type").verbosity
    };
    let verbosities: Vec<Verbosity> = ["1", "2", "3", "4", "5"].map(of).to_vec();
    let expected = [
        Verbosity::UserBasic,
        Verbosity::UserDetail,
        Verbosity::UserAll,
        Verbosity::DeveloperBasic,
        Verbosity::DeveloperAll,
    ];
    assert_eq!(verbosities, expected);
    assert!(verbosities.is_sorted());
}

#[test]
fn lives_may_be_left_out_and_values_stay() {
    let recording = Recording::start();
    let subscriber = tracing_subscriber::registry().with(recording.layer().lives(false));
    tracing::subscriber::with_default(subscriber, || {
        let plain = info_span!("plain");
        let sized = info_span!("sized", size = 3, later = Empty);
        plain.in_scope(|| sized.in_scope(|| sized.record("later", 4)));
    });
    let events = recording.events();
    let expected = [
        "tracing_layer::sized record",
        "tracing.enter.info",
        "tracing.enter.info",
        "tracing_layer::sized record (2)",
        "tracing.leave.info",
        "tracing.leave.info",
    ];
    assert_eq!(names(&events), expected);
    assert_eq!(events[0].elements["size"], Read::Integer(3));
    assert_eq!(events[3].elements["later"], Read::Integer(4));
    assert_eq!(events[0].span(), events[2].span());
    assert_eq!(events[3].span(), events[2].span());
}

#[test]
fn a_span_follows_from_others() {
    let recording = Recording::start();
    recording.trace(|| {
        let (a, b) = (info_span!("a"), info_span!(parent: None, "b"));
        b.follows_from(&a);
    });
    let events = recording.events();
    let follows = of_name(&events, "tracing.follows")[0];
    assert_eq!(follows.span(), events[1].span());
    assert_eq!(follows.elements["follows"], Read::Integer(events[0].span()));
}

#[test]
fn many_threads_meet_new_callsites_at_once() {
    const THREADS: usize = 8;
    const CALLSITES: usize = 200;
    let recording = Recording::start();
    let dispatch = Dispatch::new(recording.subscriber());
    let callsites: Vec<_> = (0..CALLSITES).map(|n| make_callsite(10_000 + n)).collect();
    let barrier = std::sync::Barrier::new(THREADS);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (dispatch, callsites, barrier) = (&dispatch, &callsites, &barrier);
            scope.spawn(move || {
                with_default(dispatch, || {
                    barrier.wait();
                    for metadata in callsites {
                        let _span = info_span!("same").entered();
                        let field = metadata.fields().field("number").expect("a field");
                        // Threads disagree about the type.
                        let number = thread as u64;
                        let values: [&dyn Value; 2] = [&number, &"text"];
                        let value = [(&field, Some(values[thread % 2]))];
                        tracing::Event::dispatch(metadata, &metadata.fields().value_set(&value));
                    }
                });
            });
        }
    });
    let events = recording.events();
    let made: Vec<&Event> = events
        .iter()
        .filter(|e| e.name.starts_with("made::"))
        .collect();
    assert_eq!(made.len(), THREADS * CALLSITES);
    let texts = made
        .iter()
        .filter(|e| e.elements["number"] == "text".into());
    assert_eq!(texts.count(), THREADS * CALLSITES / 2);
    assert_eq!(steps(&events).len(), 2 * THREADS * CALLSITES);
    let regions = Reader::open(recording.directory.path()).expect("a recording");
    let d = regions.definitions();
    let same = d
        .regions
        .values()
        .filter(|region| d.string(region.name) == "same");
    assert_eq!(same.count(), 1);
}

#[test]
fn a_span_of_a_dropped_future_closes() {
    let recording = Recording::start();
    recording.trace(|| {
        let mut future = pin!(task(1));
        let mut context = Context::from_waker(Waker::noop());
        assert!(future.as_mut().poll(&mut context).is_pending());
        assert!(Span::current().is_none());
    });
    let events = recording.events();
    assert_eq!(of_name(&events, "tracing.close.warn").len(), 1);
    let enters = of_name(&events, "tracing.enter.warn").len();
    assert_eq!(enters, of_name(&events, "tracing.leave.warn").len());
}
