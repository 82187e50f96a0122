//! Folded stacks, a line for each call path: its regions from the outermost on, separated by semicolons, and the
//! nanoseconds that passed in the last of them.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use annals_format::RegionId;
use rustc_hash::FxHashMap;

use crate::Root;
use crate::text::safe;
use crate::write::exporter::{Context, Ending, Exporter, Wants};
use crate::write::output::Output;
use annals_merger::Frame;

/// Call paths, at most; time of others is that of their callers.
const MOST_PATHS: usize = 1 << 20;

/// Calls of a path, at most; time of deeper ones is that of the last. A line names every call of its path: without a
/// bound, a few bytes of a trace would become gigabytes.
const MOST_DEPTH: usize = 512;

/// A place in the tree of calls.
struct Node {
    caller: u32,
    region: RegionId,
    ns: i64,
}

/// Time by call path.
pub(crate) struct Paths<'a> {
    context: &'a Context<'a>,
    by: Option<Root>,
    /// By location: its root.
    roots: Vec<u32>,
    labels: Vec<String>,
    nodes: Vec<Node>,
    below: FxHashMap<(u32, RegionId), u32>,
    /// By location: the previous stack, and its places.
    last: Vec<Vec<(RegionId, i64, u32)>>,
    has_more_paths: bool,
    is_deeper: bool,
}

impl<'a> Paths<'a> {
    pub(crate) fn new(context: &'a Context<'a>, by: Option<Root>) -> Self {
        let mut labels: Vec<String> = Vec::new();
        let mut known: BTreeMap<String, u32> = BTreeMap::new();
        let roots = (0..context.locations.len()).map(|number| {
            let (rank, name) = context.location(number);
            let label = match by {
                None => String::new(),
                Some(Root::Rank) => format!("rank {rank}"),
                Some(Root::Location) => format!("rank {rank};{}", frame(name)),
            };
            *known.entry(label.clone()).or_insert_with(|| {
                labels.push(label);
                labels.len() as u32 - 1
            })
        });
        let roots: Vec<u32> = roots.collect();
        let nodes = labels.iter().enumerate().map(|(number, _)| Node {
            caller: number as u32,
            region: RegionId::new(u32::MAX),
            ns: 0,
        });
        Self {
            nodes: nodes.collect(),
            last: vec![Vec::new(); context.locations.len()],
            below: FxHashMap::default(),
            has_more_paths: false,
            is_deeper: false,
            context,
            by,
            roots,
            labels,
        }
    }

    fn step(&mut self, caller: u32, region: RegionId) -> u32 {
        if !self.context.filter.takes_region(region) {
            return caller;
        }
        if let Some(known) = self.below.get(&(caller, region)) {
            return *known;
        }
        if self.nodes.len() >= MOST_PATHS {
            self.has_more_paths = true;
            return caller;
        }
        let number = self.nodes.len() as u32;
        self.nodes.push(Node {
            caller,
            region,
            ns: 0,
        });
        self.below.insert((caller, region), number);
        number
    }

    /// Adds time that passed in the last of these calls.
    pub(crate) fn spend(&mut self, location: usize, frames: &[Frame], ns: i64) {
        let takes = |frame: &Frame| self.context.filter.takes_region(frame.region);
        if !frames.last().is_some_and(takes) {
            return;
        }
        self.is_deeper |= frames.len() > MOST_DEPTH;
        let frames = &frames[..frames.len().min(MOST_DEPTH)];
        let mut last = std::mem::take(&mut self.last[location]);
        // The part of the stack below a call that is still open has not changed.
        let same = last.iter().zip(frames);
        let same = same.take_while(|((region, entered_ns, _), frame)| {
            (*region, *entered_ns) == (frame.region, frame.entered_ns)
        });
        let same = same.count();
        last.truncate(same);
        let mut at = last.last().map_or(self.roots[location], |(_, _, at)| *at);
        for frame in &frames[same..] {
            at = self.step(at, frame.region);
            last.push((frame.region, frame.entered_ns, at));
        }
        self.last[location] = last;
        // Else there are too many paths, and none to give it to.
        if at as usize >= self.labels.len() {
            self.nodes[at as usize].ns += ns;
        }
    }

    /// Returns the lines, sorted.
    pub(crate) fn lines(&self) -> Vec<String> {
        let names = |node: &Node| frame(&self.context.definitions.region_name(node.region));
        let mut lines = Vec::new();
        for (number, node) in self.nodes.iter().enumerate().skip(self.labels.len()) {
            if node.ns == 0 {
                continue;
            }
            let mut path = Vec::new();
            let mut at = number as u32;
            while at as usize >= self.labels.len() {
                let node = &self.nodes[at as usize];
                path.push(names(node));
                at = node.caller;
            }
            if self.by.is_some() {
                path.push(self.labels[at as usize].clone());
            }
            path.reverse();
            let mut line = path.join(";");
            let _ = write!(line, " {}", node.ns);
            lines.push(line);
        }
        lines.sort_unstable();
        if self.has_more_paths {
            eprintln!(
                "there are more than {MOST_PATHS} call paths: time of others is that of their callers"
            );
        }
        if self.is_deeper {
            eprintln!(
                "some calls are more than {MOST_DEPTH} deep: their time is that of the call at this depth"
            );
        }
        lines
    }
}

/// Returns a name as a frame: a semicolon would end it, a line end its line.
fn frame(name: &str) -> String {
    match safe(name).replace(';', ":") {
        empty if empty.is_empty() => "-".to_owned(),
        name => name,
    }
}

/// Folded stacks under construction.
pub(crate) struct Folded<'a> {
    pub(crate) paths: Paths<'a>,
    pub(crate) out: Output,
}

impl Exporter for Folded<'_> {
    fn wants(&self) -> Wants {
        Wants {
            time: true,
            ..Wants::default()
        }
    }

    fn spend(&mut self, location: usize, frames: &[Frame], ns: i64) {
        self.paths.spend(location, frames, ns);
    }

    fn finish(mut self: Box<Self>, _: &Ending<'_>) -> anyhow::Result<()> {
        for mut line in self.paths.lines() {
            line.push('\n');
            self.out.put(line.as_bytes())?;
        }
        self.out.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::frame;

    #[test]
    fn a_name_is_one_frame_of_one_line() {
        assert_eq!(frame("a;b\nc"), "a:b\\nc");
        assert_eq!(frame(""), "-");
        assert_eq!(frame("std::vec<int, 3>"), "std::vec<int, 3>");
    }
}
