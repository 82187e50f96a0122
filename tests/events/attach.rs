//! The recorder as a consumer: what is recorded is what was raised, dropped, registered and set.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use annals_format::{Cause, ClockKind, Role, SourceOrder, Value as Recorded, Verbosity};
use annals_merger::{Reader, Window};
use annals_recorder::events::{
    Attach, Bind, CvarSpec, Datatype, EventTypeSpec, ObjectHandle, PvarClass, PvarSpec, Raising,
    Runtime, Safety, Scope, SourceSpec, Value, attach,
};
use annals_recorder::{Options, Recorder};

use crate::support::{TestClock, producer};

pub(crate) struct Seen {
    /// Event type, source, and elements as text, in the order of time.
    pub(crate) events: Vec<(String, String, Vec<String>)>,
    /// Source, event type and cause, with the count.
    pub(crate) losses: BTreeMap<(String, String, Cause), u64>,
    pub(crate) opened: Reader,
}

pub(crate) fn read(path: &Path) -> Seen {
    let opened = Reader::open(path).expect("a recording");
    let d = opened.definitions();
    let (mut events, mut losses) = (Vec::new(), BTreeMap::new());
    opened
        .for_each_chunk(Window::ALL, |chunk: annals_format::OrderedChunk| {
            for row in chunk.rows() {
                let source = d.streams[&row.stream()].source;
                let values = row.values().map(|value| match value {
                    Recorded::String(bytes) => String::from_utf8_lossy(bytes).into_owned(),
                    other => format!("{other:?}"),
                });
                events.push((
                    d.event_type_name(row.event_type()),
                    d.string(d.sources[&source].name).to_owned(),
                    values.collect(),
                ));
            }
            Ok(())
        })
        .expect("a recording");
    let outcome = opened
        .for_each_chunk(Window::ALL, |_: annals_format::OrderedChunk| Ok(()))
        .expect("a recording");
    for totals in &outcome.totals {
        for row in &totals.rows {
            assert!(row.is_balanced(), "{row:?}");
            let source = d.streams[&totals.stream].source;
            for cause in [Cause::NoCallback, Cause::ReportedBySource] {
                let count = row.dropped.of(cause);
                if count != 0 {
                    let source = d.string(d.sources[&source].name).to_owned();
                    let key = (source, d.event_type_name(row.event_type), cause);
                    *losses.entry(key).or_insert(0) += count;
                }
            }
        }
    }
    Seen {
        events,
        losses,
        opened,
    }
}

fn start() -> (tempfile::TempDir, Recorder) {
    let scratch = tempfile::tempdir().expect("a directory");
    let recorder = Recorder::start(&Options::new(scratch.path())).expect("a recorder");
    (scratch, recorder)
}

#[test]
fn every_instance_is_recorded_from_what_its_type_says() {
    let (_scratch, recorder) = start();
    let producer = producer();
    let attachment = attach(&producer.runtime, &recorder, &Attach::new()).unwrap();
    let values = [
        Value::Int(-7),
        Value::Unsigned(8),
        Value::UnsignedLong(u64::MAX),
        Value::UnsignedLongLong(1 << 40),
        Value::Count(i64::MIN),
        Value::Char(b'c'),
        Value::Double(0.25),
    ];
    // Types and sources that appear later are recorded, too.
    let mut spec = EventTypeSpec::new("all")
        .description("one of each")
        .verbosity(Verbosity::DeveloperBasic);
    for value in values {
        spec = spec.element(format!("{:?}", value.datatype()), value.datatype());
    }
    let all = producer.runtime.add_event_type(&spec).unwrap();
    let mute = SourceSpec::unordered("mute")
        .ticks_per_second(1000)
        .max_ticks(99_999);
    let mute = producer.runtime.add_source(&mute).unwrap();
    for (number, required) in Safety::ALL.into_iter().enumerate() {
        producer.clock.set(1_000 * (1 + number as u64));
        producer.raise(required, number as i32);
    }
    let observed = Raising {
        observed: Some(5),
        ..Raising::default()
    };
    all.raise_with(&mute, Safety::None, observed, &values)
        .unwrap();
    assert!(attachment.problems().is_empty());
    drop(attachment);
    producer.raise(Safety::None, 99);
    let status = recorder.finish();
    assert_eq!((status.raised, status.dropped, status.misused), (5, 0, 0));

    let seen = read(&status.path);
    let of = |source: &str| -> Vec<Vec<String>> {
        let events = seen.events.iter().filter(|(_, s, _)| s == source);
        events.map(|(_, _, values)| values.clone()).collect()
    };
    let numbers: Vec<Vec<String>> = (0..4).map(|n| vec![format!("I32({n})")]).collect();
    assert_eq!(of("source"), numbers);
    let all = format!(
        "I32(-7) U32(8) U64({}) U64({}) I64({}) c F64(0.25)",
        u64::MAX,
        1_u64 << 40,
        i64::MIN
    );
    assert_eq!(of("mute").concat().join(" "), all);
    let d = seen.opened.definitions();
    let source = d
        .sources
        .values()
        .find(|s| d.string(s.name) == "mute")
        .unwrap();
    let clock = &d.clocks[&source.clock];
    assert_eq!(source.ordering, SourceOrder::Unordered);
    assert_eq!((clock.ticks_per_second, clock.max_ticks), (1000, 99_999));
    assert_eq!(clock.kind, ClockKind::Unreadable);
    let source = d
        .sources
        .values()
        .find(|s| d.string(s.name) == "source")
        .unwrap();
    assert_eq!(d.clocks[&source.clock].kind, ClockKind::Readable);
    let mut types = d.event_types.values();
    let all = types.find(|t| d.string(t.name) == "all").unwrap();
    assert_eq!(d.string(all.description), "one of each");
    assert_eq!(all.verbosity, Verbosity::DeveloperBasic);
    assert_eq!(d.string(all.elements[6].name), "Double");
    assert_eq!(d.registrations.len(), 2);
}

#[test]
fn a_source_with_the_processors_clock_shares_the_recorders() {
    let (_scratch, recorder) = start();
    let runtime = Runtime::new();
    let source = SourceSpec::ordered("cheap").processor_clock();
    let source = runtime.add_source(&source).unwrap();
    let event = EventTypeSpec::new("event").element("number", Datatype::Int);
    let event = runtime.add_event_type(&event).unwrap();
    let _attachment = attach(&runtime, &recorder, &Attach::new()).unwrap();
    let begin = recorder.add_region("region").unwrap();
    recorder.enter(begin);
    event
        .raise(&source, Safety::None, &[Value::Int(1)])
        .unwrap();
    let observed = Raising {
        observed: Some(annals_recorder::tsc()),
        ..Raising::default()
    };
    event
        .raise_with(&source, Safety::None, observed, &[Value::Int(2)])
        .unwrap();
    recorder.leave(begin);
    let status = recorder.finish();
    let seen = read(&status.path);
    let d = seen.opened.definitions();
    let mut sources = d.sources.values();
    let source = sources.find(|s| d.string(s.name) == "cheap").unwrap();
    let shares = source.clock.get() == 0;
    assert_eq!(shares, recorder.uses_processor_clock());
    if shares {
        // One clock: the order of the program is that of the times.
        let names: Vec<&str> = seen.events.iter().map(|(name, ..)| name.as_str()).collect();
        assert_eq!(names, ["enter", "event", "event", "leave"]);
    }
}

#[test]
fn only_event_types_that_match_are_recorded() {
    let (_scratch, recorder) = start();
    let producer = producer();
    let net = |name: &str| {
        producer
            .runtime
            .add_event_type(&EventTypeSpec::new(name))
            .unwrap()
    };
    let (sent, lost) = (net("net.sent"), net("net.lost"));
    let what = Attach::new().events(&["*.sent", "nothing"]);
    let _attachment = attach(&producer.runtime, &recorder, &what).unwrap();
    producer.raise(Safety::None, 1);
    sent.raise(&producer.source, Safety::None, &[]).unwrap();
    lost.raise(&producer.source, Safety::None, &[]).unwrap();
    let status = recorder.finish();
    let names: Vec<String> = read(&status.path).events.into_iter().map(|e| e.0).collect();
    assert_eq!(names, ["net.sent"]);
}

#[test]
fn drops_are_recorded_with_their_cause_and_source() {
    let (_scratch, recorder) = start();
    let producer = producer();
    let clock = producer.clock.read();
    let second = SourceSpec::ordered("second").clock(clock);
    let second = producer.runtime.add_source(&second).unwrap();
    let attachment = attach(&producer.runtime, &recorder, &Attach::new()).unwrap();
    producer.event.report_dropped(&producer.source, None, 7);
    producer.event.report_dropped(&second, None, 3);
    producer.raise(Safety::AsyncSignalSafe, 1);
    // The buffer takes four; two of six are lost in the producer.
    for number in 0..6 {
        let value = [Value::Int(number)];
        let now = Raising::default();
        producer
            .event
            .raise_deferred(&producer.source, now, &value)
            .unwrap();
    }
    producer.source.deliver(Safety::Restricted);
    // The remaining drops are reported at the end.
    drop(attachment);
    let status = recorder.finish();
    assert_eq!((status.raised, status.dropped), (5 + 12, 12));
    let seen = read(&status.path);
    let key = |source: &str| {
        (
            source.to_owned(),
            "event".to_owned(),
            Cause::ReportedBySource,
        )
    };
    let expected = BTreeMap::from([(key("source"), 9), (key("second"), 3)]);
    assert_eq!(seen.losses, expected);
}

#[test]
fn registrations_tell_what_they_are_bound_to() {
    let (_scratch, recorder) = start();
    let producer = producer();
    let runtime = &producer.runtime;
    let spec = EventTypeSpec::new("renamed").bind(Bind::Communicator);
    let renamed = runtime
        .add_event_type(&spec.element("length", Datatype::Int))
        .unwrap();
    runtime
        .add_object(Bind::Communicator, ObjectHandle(70), "world")
        .unwrap();
    runtime
        .add_object(Bind::Window, ObjectHandle(71), "a window")
        .unwrap();
    let _attachment = attach(runtime, &recorder, &Attach::new()).unwrap();
    let raise = |handle, length| {
        let about = Raising {
            object: Some(ObjectHandle(handle)),
            ..Raising::default()
        };
        let length = [Value::Int(length)];
        renamed
            .raise_with(&producer.source, Safety::None, about, &length)
            .unwrap();
    };
    raise(70, 1);
    runtime
        .add_object(Bind::Communicator, ObjectHandle(72), "late")
        .unwrap();
    raise(72, 2);
    // The handle is used again, for another one.
    runtime
        .add_object(Bind::Communicator, ObjectHandle(70), "reused")
        .unwrap();
    raise(70, 3);
    let status = recorder.finish();
    let seen = read(&status.path);
    let d = seen.opened.definitions();
    let object_name = |text: &str| {
        let number = text.strip_prefix("U32(")?.strip_suffix(')')?;
        let number: u32 = number.parse().ok()?;
        let mut objects = d.objects.values();
        let object = objects.find(|object| object.id.get() == number)?;
        Some((
            d.string(object.kind).to_owned(),
            d.string(object.name).to_owned(),
        ))
    };
    let told: Vec<_> = seen
        .events
        .iter()
        .map(|(_, _, v)| (v[0].clone(), object_name(&v[1])))
        .collect();
    let communicator = |name: &str| Some(("communicator".to_owned(), name.to_owned()));
    let expected = [
        ("I32(1)", "world"),
        ("I32(2)", "late"),
        ("I32(3)", "reused"),
    ];
    assert_eq!(
        told,
        expected.map(|(l, name)| (l.to_owned(), communicator(name)))
    );
    let bound = d
        .registrations
        .iter()
        .filter(|r| r.object.is_some())
        .count();
    assert_eq!((bound, d.registrations.len()), (3, 4));
}

#[test]
fn variables_become_metrics_and_properties() {
    let (_scratch, recorder) = start();
    let producer = producer();
    let runtime: &Runtime = &producer.runtime;
    let sent = PvarSpec::new("sent", PvarClass::Counter, Datatype::UnsignedLong);
    let sent = runtime.add_pvar(&sent).unwrap();
    let queues = PvarSpec::new("queue", PvarClass::Level, Datatype::Unsigned).items(2);
    let queues = runtime.add_pvar(&queues).unwrap();
    let modes = runtime
        .add_enumeration("modes", &[(0, "eager"), (1, "late")])
        .unwrap();
    let mode = CvarSpec::new("mode", Scope::Local, Value::Int(1)).enumeration(modes);
    runtime.add_cvar(&mode).unwrap();
    let path = CvarSpec::text("path", Scope::Constant, "/dev/net", 32);
    runtime.add_cvar(&path).unwrap();
    sent.add(0, Value::UnsignedLong(100)).unwrap();
    let what = Attach::new().pvars(&["*"]).sample_at(&["event"]);
    let attachment = attach(runtime, &recorder, &what).unwrap();
    sent.add(0, Value::UnsignedLong(5)).unwrap();
    queues.set(1, Value::Unsigned(3)).unwrap();
    producer.raise(Safety::AsyncSignalSafe, 1);
    sent.add(0, Value::UnsignedLong(2)).unwrap();
    attachment.sample();
    drop(attachment);
    let status = recorder.finish();
    let seen = read(&status.path);
    let of = |name: &str| -> Vec<String> {
        let events = seen.events.iter().filter(|(n, ..)| n == name);
        events.map(|(_, _, values)| values.join(" ")).collect()
    };
    // Since the tool started it.
    assert_eq!(of("sent (counter)"), ["U64(5)", "U64(7)"]);
    let queue = ["U32(0) U32(0)", "U32(3) U32(1)"];
    assert_eq!(of("queue (level)"), [queue, queue].concat());
    let d = seen.opened.definitions();
    let mut types = d.event_types.values();
    let metric = types
        .find(|t| d.string(t.name) == "sent (counter)")
        .unwrap();
    assert_eq!(metric.role, Role::Metric);
    let property = |key: &str| {
        let mut properties = d.properties.iter();
        let property = properties.find(|p| d.string(p.key) == key);
        property.map(|p| d.string(p.value))
    };
    assert_eq!(property("cvar mode"), Some("late"));
    assert_eq!(property("cvar path"), Some("/dev/net"));
}

#[test]
fn variables_are_sampled_on_a_period() {
    let (_scratch, recorder) = start();
    let runtime = Runtime::new();
    let level = PvarSpec::new("level", PvarClass::Level, Datatype::Double).continuous();
    runtime.add_pvar(&level).unwrap();
    let what = Attach::new()
        .pvars(&["level"])
        .sample_every(Duration::from_millis(1));
    let attachment = attach(&runtime, &recorder, &what).unwrap();
    while recorder.status().raised < 3 {
        std::thread::sleep(Duration::from_millis(1));
    }
    drop(attachment);
    let sampled = recorder.status().raised;
    std::thread::sleep(Duration::from_millis(10));
    assert_eq!(recorder.finish().raised, sampled, "nothing behind the end");
}

#[test]
fn events_stand_in_time_by_the_sources_clock() {
    let (_scratch, recorder) = start();
    let runtime = Runtime::new();
    let clock = TestClock::default();
    let start = std::time::Instant::now();
    // A clock with a separate rate that starts again often.
    let spec = SourceSpec::ordered("odd")
        .ticks_per_second(1_000_000)
        .max_ticks(49_999)
        .clock(move || start.elapsed().as_micros() as u64 % 50_000);
    clock.set(0);
    let source = runtime.add_source(&spec).unwrap();
    let event = runtime
        .add_event_type(&EventTypeSpec::new("event"))
        .unwrap();
    let _attachment = attach(&runtime, &recorder, &Attach::new()).unwrap();
    let mut raised_us = Vec::new();
    for _ in 0..6 {
        raised_us.push(start.elapsed().as_micros() as i64);
        event.raise(&source, Safety::None, &[]).unwrap();
        std::thread::sleep(Duration::from_millis(21));
    }
    let status = recorder.finish();
    let opened = Reader::open(&status.path).unwrap();
    let mut times_us = Vec::new();
    opened
        .for_each_chunk(Window::ALL, |chunk: annals_format::OrderedChunk| {
            times_us.extend(chunk.times_ns().map(|time| time / 1000));
            Ok(())
        })
        .unwrap();
    assert_eq!(times_us.len(), raised_us.len());
    for (pair, raised) in times_us.windows(2).zip(raised_us.windows(2)) {
        let (found, true_step) = (pair[1] - pair[0], raised[1] - raised[0]);
        assert!(
            (found - true_step).abs() < 5_000,
            "{times_us:?} {raised_us:?}"
        );
    }
}
