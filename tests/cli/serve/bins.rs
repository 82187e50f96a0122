//! Messages and metrics of bins, as the server answers them, are those that the events add up to.

use std::collections::BTreeMap;
use std::path::Path;

use annals_format::Value as Element;
use annals_merger::{
    MergeOptions, Message, MessageExtractor, MessagePairs, OrderedChunk, Query, Reader, StreamId,
    Window, no_progress,
};
use annals_test_support::metrics;
use annals_test_support::synthetic::Random;
use serde_json::Value;

use super::{Served, serve, trace};

fn messages(reader: &Reader) -> Vec<Message> {
    let summary = reader.summary().expect("a summary");
    let extractor = MessageExtractor::of(reader.definitions(), &summary);
    let mut pairs = MessagePairs::new(extractor.expect("a whole trace").into());
    let mut messages = Vec::new();
    let take = |chunk: OrderedChunk| {
        pairs.take(&chunk, |message| messages.push(message));
        Ok(())
    };
    reader.for_each_chunk(Window::ALL, take).expect("a trace");
    pairs.finish(|message| messages.push(message));
    messages
}

/// Returns the name of the lane of a stream, with a letter for its kind.
fn lane(reader: &Reader, letter: char, stream: StreamId) -> String {
    let definitions = reader.definitions();
    let location = definitions.streams[&stream].location.expect("a location");
    let process = &definitions.processes[&definitions.locations[&location].process];
    match letter {
        't' => format!("t{}", location.get()),
        'h' => format!("h{}", process.host.get()),
        other => panic!("lanes of {other}"),
    }
}

fn number(value: &Value, name: &str) -> i64 {
    let text = value[name].as_str().expect("a number");
    text.parse().expect("a number")
}

/// Count, bytes, longest.
type Sum = (i64, i64, i64);

/// Checks the answer for a window. Returns whether it has bins.
fn check_messages(served: &Served, reader: &Reader, all: &[Message], path: &str) -> bool {
    let found = served.ask(path);
    let Some(level) = found["level"].as_u64() else {
        return false;
    };
    let (from_ns, to_ns) = (number(&found, "from_ns"), number(&found, "to_ns"));
    assert_eq!((from_ns % (1 << level), to_ns % (1 << level)), (0, 0));
    let lists = ["bins", "pairs"].map(|name| found[name].as_array().expect("a list").clone());
    let letter = lists[1].first().map_or('t', |pair| {
        let name = pair["from"].as_str().expect("a lane");
        name.chars().next().expect("a letter")
    });
    let mut sums: BTreeMap<(i64, String, String), Sum> = BTreeMap::new();
    let mut pairs: BTreeMap<(String, String), Sum> = BTreeMap::new();
    for message in all {
        let at_ns = message.receive.time_ns;
        if at_ns < from_ns || to_ns <= at_ns {
            continue;
        }
        let from = lane(reader, letter, message.send.stream);
        let to = lane(reader, letter, message.receive.stream);
        let bin = sums.entry((at_ns >> level, from.clone(), to.clone()));
        let pair = pairs.entry((from, to));
        let none = (0, 0, i64::MIN);
        for sum in [bin.or_insert(none), pair.or_insert(none)] {
            sum.0 += 1;
            sum.1 += message.bytes().unwrap_or(0) as i64;
            sum.2 = sum.2.max(at_ns - message.send.time_ns);
        }
    }
    let text = |value: &Value, name: &str| value[name].as_str().expect("a lane").to_owned();
    let sum = |value: &Value| ["count", "bytes", "longest_ns"].map(|name| number(value, name));
    let found_bins = lists[0].iter().map(|bin| {
        let key = (number(bin, "bin"), text(bin, "from"), text(bin, "to"));
        (key, sum(bin).into())
    });
    assert_eq!(found_bins.collect::<BTreeMap<_, Sum>>(), sums, "{path}");
    let found_pairs = lists[1].iter().map(|pair| {
        let key = (text(pair, "from"), text(pair, "to"));
        (key, sum(pair).into())
    });
    assert_eq!(found_pairs.collect::<BTreeMap<_, Sum>>(), pairs, "{path}");
    let count: i64 = pairs.values().map(|sum| sum.0).sum();
    assert_eq!(number(&found, "count"), count, "{path}");
    assert_eq!(found["run"]["matched"], all.len().to_string());
    true
}

#[test]
fn messages_of_bins_are_those_of_the_events() {
    let scratch = tempfile::tempdir().expect("a directory");
    let run = trace(scratch.path(), "run.annals", 4, 40_000, true);
    let reader = Reader::open(&run).expect("a trace");
    let all = messages(&reader);
    assert!(all.len() > 1_000, "{} messages", all.len());
    let damaged = scratch.path().join("damaged.annals");
    let mut bytes = std::fs::read(&run).expect("a trace");
    let blocks = &reader
        .trace()
        .expect("a trace")
        .message_overview()
        .expect("messages")
        .blocks;
    bytes[blocks[0].offset as usize + 60] ^= 1;
    std::fs::write(&damaged, bytes).expect("a file");
    let end_ns = reader.extent().end_ns;
    let mut random = Random::new(39);
    for (path, rounds) in [(&run, 200), (&damaged, 50)] {
        let served = serve(&[path]);
        let mut answered = 0;
        for _ in 0..rounds {
            let length_ns = 1 + (end_ns >> (random.draw() % 8));
            let from_ns = (random.draw() % end_ns as u64) as i64 - length_ns / 4;
            let columns = 1 + random.draw() % 100;
            let to_ns = from_ns + length_ns;
            let path = format!("message-bins?from={from_ns}&to={to_ns}&columns={columns}");
            answered += usize::from(check_messages(&served, &reader, &all, &path));
        }
        let is_whole = path == &run;
        assert!(answered > 0 || !is_whole, "{answered} of {rounds}");
        let whole = format!("message-bins?from=-5&to={}&columns=64", i64::MAX);
        assert_eq!(
            check_messages(&served, &reader, &all, &whole),
            is_whole || blocks.len() > 1
        );
    }
}

/// Values: event type and location, time, number.
type Values = Vec<(String, i64, f64)>;

fn values(reader: &Reader) -> Values {
    let mut values = Vec::new();
    let visit = |event: &annals_merger::Event<'_>| {
        let value = match event.element(0) {
            Element::F64(value) => value,
            other => other.as_integer().expect("an integer") as f64,
        };
        let location = event.location().expect("a location").to_owned();
        values.push((format!("{} {location}", event.name()), event.time(), value));
        std::ops::ControlFlow::Continue(())
    };
    reader
        .for_each_event(&Query::new(), visit)
        .expect("a trace");
    values
}

/// Checks the curves of a window.
fn check_metrics(served: &Served, values: &Values, path: &str, has_bins: bool) {
    let found = served.ask(path);
    let level = found["level"].as_u64().expect("a level");
    let (from_ns, to_ns) = (number(&found, "from_ns"), number(&found, "to_ns"));
    let mut sums: BTreeMap<(String, i64), (u32, f64, f64, f64)> = BTreeMap::new();
    for (name, at_ns, value) in values {
        if from_ns <= *at_ns && *at_ns < to_ns {
            let key = (name.clone(), at_ns >> level << level);
            let none = (0, f64::INFINITY, f64::NEG_INFINITY, 0.0);
            let sum = sums.entry(key).or_insert(none);
            *sum = (
                sum.0 + 1,
                sum.1.min(*value),
                sum.2.max(*value),
                sum.3 + value,
            );
        }
    }
    let mut points: BTreeMap<(String, i64), [f64; 3]> = BTreeMap::new();
    for curve in found["metrics"].as_array().expect("curves") {
        let text = |name: &str| curve[name].as_str().expect("text");
        for point in curve["points"].as_array().expect("points") {
            let key = format!("{} {}", text("name"), text("location"));
            let three = ["min", "mean", "max"].map(|name| point[name].as_f64().expect("a number"));
            points.insert((key, number(point, "from_ns")), three);
        }
    }
    let places: Vec<_> = points.keys().collect();
    let expected: Vec<_> = sums.keys().collect();
    assert_eq!(places, expected, "{path}, {has_bins}");
    for (key, sum) in &sums {
        let (point, mean) = (points[key], sum.3 / f64::from(sum.0));
        let place = format!("{key:?} of {path}, {has_bins}");
        assert_eq!((point[0], point[2]), (sum.1, sum.2), "{place}");
        // The parser of JSON rounds.
        let is_near = (point[1] - mean).abs() <= mean.abs() * 1e-14;
        assert!(is_near, "{place}: {} and {mean}", point[1]);
    }
}

#[test]
fn metrics_of_bins_are_those_of_the_events() {
    let scratch = tempfile::tempdir().expect("a directory");
    let path = |name: &str| scratch.path().join(name);
    std::fs::create_dir(path("run")).expect("a directory");
    let mut random = Random::new(40);
    let mut draw = || {
        let quarters = (random.draw() % 4_000) as f64 / 4.0;
        (1 + (random.draw() % 70) as i64, quarters)
    };
    let measured: Vec<metrics::Measured> = (0..6_000).map(|_| draw()).collect();
    metrics::write(&path("run"), 0, &measured);
    let merged = |output: &Path, overview: bool| {
        let mut options = MergeOptions::default();
        options.overview = overview;
        let plan = options.plan(&[path("run")]).expect("recordings");
        plan.write_trace(output, no_progress).expect("a trace");
    };
    merged(&path("run.annals"), true);
    merged(&path("none.annals"), false);
    let reader = Reader::open(path("run.annals")).expect("a trace");
    let mut bytes = std::fs::read(path("run.annals")).expect("a trace");
    for entry in &reader
        .trace()
        .expect("a trace")
        .metric_overview()
        .expect("metrics")
        .blocks
    {
        bytes[entry.offset as usize + 60] ^= 1;
    }
    std::fs::write(path("damaged.annals"), bytes).expect("a file");
    let (values, end_ns) = (values(&reader), reader.extent().end_ns);
    for name in ["run.annals", "none.annals", "damaged.annals"] {
        let served = serve(&[&path(name)]);
        assert_eq!(served.ask("lanes")["has_metric_bins"], true);
        for _ in 0..40 {
            let length_ns = 1 + (end_ns >> (random.draw() % 8));
            let from_ns = (random.draw() % end_ns as u64) as i64;
            let columns = 1 + random.draw() % 100;
            let to_ns = from_ns + length_ns;
            let path = format!("metric-bins?from={from_ns}&to={to_ns}&columns={columns}");
            check_metrics(&served, &values, &path, name == "run.annals");
        }
    }
    // Nothing is outside of the trace.
    let served = serve(&[&path("run.annals")]);
    let found = served.ask(&format!(
        "metric-bins?from={}&to={}&columns=9",
        end_ns + 9,
        end_ns + 99
    ));
    assert_eq!(
        (&found["level"], &found["metrics"]),
        (&Value::Null, &Value::Array(Vec::new()))
    );
}
