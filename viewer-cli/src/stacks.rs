//! Call paths of samples as other programs read them: folded stacks, and profiles of speedscope.

use std::io::{self, Write};

use annals_analysis::{
    LocationNames, PlaceNames, SampleBy, SampleNode, SampleTree, Samples, UNKNOWN_FUNCTION,
};
use annals_format::Definitions;
use annals_merger::OutputKind;
use serde::{Serialize, Serializer};

use crate::table::safe;

/// Address of the description of speedscope's files, which they begin with.
const SCHEMA: &str = "https://www.speedscope.app/file-format-schema.json";

/// A profile of speedscope.
pub const SPEEDSCOPE: OutputKind = OutputKind::new("a profile of speedscope", |start| {
    String::from_utf8_lossy(start).contains(SCHEMA)
});

/// Returns the name of a call. Semicolons would end a frame.
fn frame(names: &PlaceNames) -> String {
    let name = names.function.as_deref().unwrap_or(UNKNOWN_FUNCTION);
    safe(name).replace(';', ":")
}

/// Writes folded stacks: a line for each call path of each location, from the rank on, separated by semicolons, and the nanoseconds of
/// processor time that the samples in its last call represent.
///
/// # Errors
/// If the output cannot be written.
pub fn write_folded(
    out: &mut dyn Write,
    samples: &Samples<'_>,
    definitions: &Definitions,
) -> io::Result<()> {
    let locations = LocationNames::new(definitions);
    for (location, tree) in samples.trees() {
        let rank = definitions.rank_of_location(location);
        let name = safe(locations.get(location)).replace(';', ":");
        let mut path = format!("rank {rank};{name}");
        // Lengths of the path at each depth.
        let mut lengths: Vec<usize> = Vec::new();
        let mut written = Ok(());
        tree.walk(|depth, _, node: &SampleNode| {
            if depth >= SampleTree::MOST_DEPTH || written.is_err() {
                return;
            }
            if let Some(length) = lengths.get(depth) {
                path.truncate(*length);
                lengths.truncate(depth);
            }
            lengths.push(path.len());
            path.push(';');
            path += &frame(&PlaceNames::of(definitions, node.place, SampleBy::Function));
            // The time of deeper calls is that of the last one that is written.
            let is_last = depth + 1 == SampleTree::MOST_DEPTH;
            let sum = if is_last { node.total } else { node.own };
            if sum.time_ns != 0 {
                written = writeln!(out, "{path} {}", sum.time_ns);
            }
        });
        written?;
    }
    Ok(())
}

/// A function, as speedscope has it.
#[derive(Serialize)]
struct Frame {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u32>,
}

#[derive(Serialize)]
struct Shared {
    frames: Vec<Frame>,
}

/// The samples of a location.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Profile<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    name: String,
    unit: &'static str,
    start_value: i64,
    end_value: i64,
    samples: Stacks<'a>,
    weights: Weights<'a>,
}

/// The stack of each sample. They are made one at a time: together, they may be large.
struct Stacks<'a> {
    samples: &'a [(u32, i64)],
    tree: &'a SampleTree,
    /// By number of a call in the tree.
    frames: &'a [usize],
}

impl Serialize for Stacks<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.samples.iter().map(|(path, _)| {
            let stack = self.tree.stack(*path).into_iter();
            stack.map(|call| self.frames[call]).collect::<Vec<_>>()
        }))
    }
}

struct Weights<'a>(&'a [(u32, i64)]);

impl Serialize for Weights<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(|(_, time_ns)| time_ns))
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct File<'a> {
    #[serde(rename = "$schema")]
    schema: &'static str,
    shared: Shared,
    profiles: Vec<Profile<'a>>,
    name: &'a str,
    active_profile_index: usize,
    exporter: &'static str,
}

/// Returns a file of speedscope: a profile for each location, with its samples in order. The samples must have been read with their order
/// (`SampleOptions::in_order`).
///
/// # Errors
/// If there is no memory for it.
pub fn speedscope(
    samples: &Samples<'_>,
    definitions: &Definitions,
    name: &str,
) -> serde_json::Result<Vec<u8>> {
    let locations = LocationNames::new(definitions);
    let tree = samples.tree(SampleBy::Function);
    // A frame for each function, wherever it is in the tree.
    let mut places: Vec<_> = tree.nodes().iter().map(|node| node.place).collect();
    let of_nodes = places.clone();
    places.sort_unstable();
    places.dedup();
    let number = |place| places.partition_point(|known| *known < place);
    let of_nodes: Vec<usize> = of_nodes.into_iter().map(number).collect();
    let frames = places.iter().map(|place| {
        let names = PlaceNames::of(definitions, *place, SampleBy::Function);
        Frame {
            name: names.function.unwrap_or_default(),
            file: (!names.file.is_empty()).then_some(names.file),
            line: (names.line != 0).then_some(names.line),
        }
    });
    let profiles = samples.in_order().iter().map(|(location, samples)| {
        let rank = definitions.rank_of_location(*location);
        let times = samples.iter().map(|(_, time_ns)| *time_ns);
        Profile {
            kind: "sampled",
            name: format!("rank {rank} {}", locations.get(*location)),
            unit: "nanoseconds",
            start_value: 0,
            end_value: times.fold(0, i64::saturating_add),
            samples: Stacks {
                samples: samples.as_slice(),
                tree: &tree,
                frames: &of_nodes,
            },
            weights: Weights(samples.as_slice()),
        }
    });
    let file = File {
        schema: SCHEMA,
        shared: Shared {
            frames: frames.collect(),
        },
        profiles: profiles.collect(),
        name,
        active_profile_index: 0,
        exporter: concat!("annals ", env!("CARGO_PKG_VERSION")),
    };
    serde_json::to_vec(&file)
}
