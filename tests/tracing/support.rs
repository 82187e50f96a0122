//! Reading back what the layer recorded.
#![allow(dead_code, unreachable_pub, reason = "every test uses its part of it")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use annals_format::{Reference, Value};
use annals_merger::{Reader, Window};
use annals_recorder::{Options, Recorder};
use annals_tracing::AnnalsLayer;
use tempfile::TempDir;
use tracing_subscriber::Registry;
use tracing_subscriber::layer::{Layered, SubscriberExt};

/// A value as it is read.
#[derive(Clone, PartialEq, Debug)]
pub enum Read {
    Integer(i128),
    Float(f64),
    Text(String),
    Bytes(Vec<u8>),
    Region(String),
}

impl From<&str> for Read {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<i128> for Read {
    fn from(value: i128) -> Self {
        Self::Integer(value)
    }
}

/// An event as it is read. Elements that are absent are not there.
#[derive(Clone, PartialEq, Debug)]
pub struct Event {
    pub time_ns: i64,
    pub process: u32,
    pub location: String,
    pub name: String,
    pub elements: BTreeMap<String, Read>,
}

impl Event {
    pub fn span(&self) -> i128 {
        match self.elements.get("span") {
            Some(Read::Integer(span)) => *span,
            other => panic!("{self:?}: a span, not {other:?}"),
        }
    }

    pub fn region(&self) -> &str {
        match self.elements.get("region") {
            Some(Read::Region(region)) => region,
            other => panic!("{self:?}: a region, not {other:?}"),
        }
    }

    pub fn text(&self, element: &str) -> &str {
        match self.elements.get(element) {
            Some(Read::Text(text)) => text,
            other => panic!("{self:?}: a text, not {other:?}"),
        }
    }
}

/// Returns all events of a recording, or of several in a directory, in order; all counts add up.
pub fn events(path: &Path) -> Vec<Event> {
    let opened = Reader::open(path).expect("a recording");
    let d = opened.definitions();
    let mut events = Vec::new();
    let outcome = opened.for_each_chunk(Window::ALL, |chunk: annals_format::OrderedChunk| {
        for row in chunk.rows() {
            let event_type = &d.event_types[&row.event_type()];
            let mut elements = BTreeMap::new();
            for (element, value) in event_type.elements.iter().zip(row.values()) {
                let read = match value {
                    Value::Absent => continue,
                    Value::F64(value) => Read::Float(value),
                    Value::String(bytes) => {
                        Read::Text(String::from_utf8(bytes.to_vec()).expect("text"))
                    }
                    Value::Bytes(bytes) => Read::Bytes(bytes.to_vec()),
                    _ => {
                        let number = value.as_integer().expect("an integer");
                        if element.reference == Reference::Region {
                            let id = annals_format::RegionId::new(number as u32);
                            Read::Region(d.string(d.regions[&id].name).to_owned())
                        } else {
                            Read::Integer(number)
                        }
                    }
                };
                elements.insert(d.string(element.name).to_owned(), read);
            }
            let stream = &d.streams[&row.stream()];
            let location = &d.locations[&stream.location.expect("a location")];
            events.push(Event {
                time_ns: row.time_ns(),
                process: location.process.get(),
                location: d.string(location.name).to_owned(),
                name: d.event_type_name(row.event_type()),
                elements,
            });
        }
        Ok(())
    });
    let outcome = outcome.expect("a recording");
    let mut rows = outcome.totals.iter().flat_map(|totals| &totals.rows);
    assert!(rows.all(annals_format::TypeTotals::is_balanced));
    events
}

/// Returns how many events of a type were dropped.
pub fn dropped(path: &Path, name: &str) -> u64 {
    let opened = Reader::open(path).expect("a recording");
    let outcome = opened.summary().expect("a recording");
    let rows = outcome.totals.iter().flat_map(|totals| &totals.rows);
    let of_name = rows.filter(|row| opened.definitions().event_type_name(row.event_type) == name);
    of_name.map(annals_format::TypeTotals::dropped_sum).sum()
}

/// Event names without what the layer's own have in common, in order.
pub fn names(events: &[Event]) -> Vec<&str> {
    events.iter().map(|event| event.name.as_str()).collect()
}

/// A recorder in a separate directory.
pub struct Recording {
    pub recorder: Recorder,
    pub directory: TempDir,
}

impl Recording {
    pub fn start() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        Self {
            recorder: Recorder::start(&Options::new(directory.path())).expect("a recorder"),
            directory,
        }
    }

    pub fn layer(&self) -> AnnalsLayer {
        AnnalsLayer::new(&self.recorder).expect("a layer")
    }

    /// Returns the layer on a registry, and nothing else.
    pub fn subscriber(&self) -> Layered<AnnalsLayer, Registry> {
        tracing_subscriber::registry().with(self.layer())
    }

    /// Runs a program with the layer.
    pub fn trace(&self, program: impl FnOnce()) {
        tracing::subscriber::with_default(self.subscriber(), program);
    }

    /// Finishes the recording; its path.
    pub fn finish(&self) -> PathBuf {
        let status = self.recorder.finish();
        assert_eq!(status.misused, 0);
        status.path
    }

    /// Finishes the recording and reads it.
    pub fn events(&self) -> Vec<Event> {
        events(&self.finish())
    }
}
