//! A real program, an HTTP/2 server and its clients whose tasks move between threads, measured by
//! tracing-chrome and by us in the same run: the same regions, as often, and for as long.
//!
//! Two of our layers surround tracing-chrome's. The layers are notified of an enter or leave one after the other, so
//! each of chrome's times lies between our two, however busy the machine is.

#[path = "../../recorder/tracing/examples/echo/program.rs"]
mod program;
mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use annals_recorder::{EventTypeSpec, Options, Recorder};
use annals_tracing::AnnalsLayer;
use support::{Event, Recording, events};
use tracing_subscriber::layer::SubscriberExt;

/// How far chrome's clock and ours may disagree about a duration, independent of its length: ours is calibrated against
/// the clock that chrome reads, within less than this.
const CLOCK_ERROR_NS: i64 = 20_000;

/// Enter and leave of a region, nanoseconds.
type Visit = (i64, i64);

/// Visits by thread and region, in the order of their leaves.
type Visits = BTreeMap<(String, String), Vec<Visit>>;

#[derive(Default)]
struct Stacks {
    open: BTreeMap<String, Vec<(String, i64)>>,
    visits: Visits,
}

impl Stacks {
    fn enter(&mut self, thread: &str, region: &str, time_ns: i64) {
        let stack = self.open.entry(thread.to_owned()).or_default();
        stack.push((region.to_owned(), time_ns));
    }

    fn leave(&mut self, thread: &str, region: &str, time_ns: i64) {
        let stack = self.open.get_mut(thread).expect("an enter");
        let (entered, enter_ns) = stack.pop().expect("an enter");
        assert_eq!(entered, region);
        let key = (thread.to_owned(), region.to_owned());
        self.visits
            .entry(key)
            .or_default()
            .push((enter_ns, time_ns));
    }

    fn end(self) -> Visits {
        assert!(
            self.open.values().all(Vec::is_empty),
            "every region is left"
        );
        self.visits
    }
}

fn visits_of(events: &[Event]) -> Visits {
    let mut stacks = Stacks::default();
    for event in events {
        if event.name.starts_with("tracing.enter.") {
            stacks.enter(&event.location, event.region(), event.time_ns);
        } else if event.name.starts_with("tracing.leave.") {
            stacks.leave(&event.location, event.region(), event.time_ns);
        }
    }
    stacks.end()
}

/// Returns what tracing-chrome wrote; and its number of events that are points.
fn visits_of_chrome(path: &Path) -> (Visits, usize) {
    let text = std::fs::read(path).expect("chrome's file");
    let entries: Vec<serde_json::Value> = serde_json::from_slice(&text).expect("JSON");
    let mut threads = BTreeMap::new();
    let mut stacks = Stacks::default();
    let mut points = 0;
    for entry in &entries {
        let number = entry["tid"].as_u64().expect("a thread");
        let name = entry["name"].as_str().expect("a name");
        // Microseconds.
        let time_ns = || (entry["ts"].as_f64().expect("a time") * 1000.0).round() as i64;
        match entry["ph"].as_str() {
            Some("M") => {
                let thread = entry["args"]["name"].as_str().expect("a name");
                // The system keeps 15 bytes of a name.
                threads.insert(number, thread.chars().take(15).collect::<String>());
            }
            Some("B") => stacks.enter(&threads[&number], name, time_ns()),
            Some("E") => stacks.leave(&threads[&number], name, time_ns()),
            Some("i") => points += 1,
            other => panic!("{other:?}: {entry}"),
        }
    }
    (stacks.end(), points)
}

#[test]
fn regions_agree_with_what_tracing_chrome_measures() {
    let inner = Recording::start();
    // Read together, recordings of one process have one time axis.
    let outer = Options::new(inner.directory.path());
    let outer = Recorder::start(&outer).expect("a recorder");
    let mark = EventTypeSpec::new("inner");
    let mark = inner.recorder.add_event_type(&mark).expect("an event type");
    inner.recorder.point(&mark);
    let file = inner.directory.path().join("chrome.json");
    let (chrome, guard) = tracing_chrome::ChromeLayerBuilder::new()
        .file(&file)
        .build();
    let subscriber = tracing_subscriber::registry()
        .with(inner.layer())
        .with(chrome)
        .with(AnnalsLayer::new(&outer).expect("a layer"));
    tracing::subscriber::set_global_default(subscriber).expect("the only one");
    let load = program::Load {
        threads: 4,
        clients: 4,
        requests: 40,
    };
    let echoed = program::run(load).expect("a local network");
    assert_eq!(echoed, 4 * 40 * 2048);
    outer.finish();
    inner.finish();
    drop(guard);
    let both = events(inner.directory.path());
    let mark = both.iter().find(|event| event.name == "inner");
    let process = mark.expect("the inner one's mark").process;
    let is_inner = |event: &Event| event.process == process;
    let (mut inner_events, outer_events): (Vec<_>, Vec<_>) = both.into_iter().partition(is_inner);
    inner_events.retain(|event| event.name != "inner");
    let before = visits_of(&inner_events);
    let behind = visits_of(&outer_events);
    let (chrome, points) = visits_of_chrome(&file);

    let counts = |visits: &Visits| -> BTreeMap<(String, String), usize> {
        let each = visits.iter();
        each.map(|(key, visits)| (key.clone(), visits.len()))
            .collect()
    };
    assert_eq!(counts(&before), counts(&chrome));
    assert_eq!(counts(&behind), counts(&chrome));
    let mut sums: BTreeMap<&str, [i64; 4]> = BTreeMap::new();
    for (key, measured) in &chrome {
        for ((chrome, before), behind) in measured.iter().zip(&before[key]).zip(&behind[key]) {
            // Entered: before ≤ chrome ≤ after; and left in the same order.
            let shortest = before.1 - behind.0;
            let longest = behind.1 - before.0;
            let measured = chrome.1 - chrome.0;
            let tolerance = CLOCK_ERROR_NS + measured / 1000;
            assert!(
                (shortest - tolerance..=longest + tolerance).contains(&measured),
                "{key:?}: {measured} ns, not {shortest} to {longest} ± {tolerance}"
            );
            let sum = sums.entry(&key.1).or_default();
            for (sum, part) in sum.iter_mut().zip([1, shortest, measured, longest]) {
                *sum += part;
            }
        }
    }
    for (region, [visits, shortest, measured, longest]) in &sums {
        println!(
            "{region:<24} {visits:>6} visits {shortest:>12} ≤ {measured:>12} ≤ {longest:>12} ns"
        );
        let tolerance = CLOCK_ERROR_NS + measured / 1000;
        assert!(
            (shortest - tolerance..=longest + tolerance).contains(measured),
            "{region}"
        );
    }

    // Of the program, and of the library it uses.
    for region in ["handle", "checksum", "ask", "client", "connection"] {
        assert!(sums.contains_key(region), "{region}: {sums:?}");
    }
    assert!(sums.len() > 8, "{sums:?}");
    let of_handlers = inner_events
        .iter()
        .filter(|event| event.name.ends_with("::handle"));
    assert_eq!(of_handlers.clone().count(), 160);
    let moved = of_handlers.filter(|new| {
        let polls = inner_events.iter().filter(|event| {
            event.name == "tracing.enter.info" && event.elements["span"] == new.elements["span"]
        });
        let places: BTreeSet<&str> = polls.map(|event| event.location.as_str()).collect();
        places.len() > 1
    });
    let moved = moved.count();
    println!("{moved} of 160 handlers moved");
    assert!(moved > 0, "no task moved between threads");

    // Lives have a region, points have none.
    let is_point = |event: &&Event| {
        !event.name.starts_with("tracing.")
            && !event.name.ends_with(" record")
            && !event.elements.contains_key("region")
    };
    assert_eq!(inner_events.iter().filter(is_point).count(), points);
    assert!(points > 160, "{points} points");
    let count = |part: &dyn Fn(&Event) -> bool| inner_events.iter().filter(|e| part(e)).count();
    let closed = count(&|event| event.name.starts_with("tracing.close."));
    let on_thread = |event: &Event| {
        event.name.starts_with("tracing.enter.") || event.name.starts_with("tracing.leave.")
    };
    let made = count(&|event| event.elements.contains_key("region") && !on_thread(event)) - closed;
    assert_eq!(made, closed, "spans that were made and closed");
}
