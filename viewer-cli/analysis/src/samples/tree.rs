//! Trees of call paths with the samples that were taken in them.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use annals_format::{CallPathId, CodePlace, Definitions, RegionId, StringId};
use rustc_hash::FxHashMap;

use super::sums::SampleSum;

/// What samples are added up by.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum SampleBy {
    /// By function.
    #[default]
    Function,
    /// By line of source code.
    Line,
    /// By executable or shared library.
    Module,
}

impl SampleBy {
    /// Returns its name in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Function => "function",
            Self::Line => "line",
            Self::Module => "module",
        }
    }
}

/// Where a program was in a call.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum SamplePlace {
    /// It is not known.
    Unknown,
    /// In a function.
    Function(RegionId),
    /// In a line of a source file, of a function.
    Line(RegionId, StringId, u32),
    /// In a module with this name.
    Module(StringId),
}

impl SamplePlace {
    fn of(definitions: &Definitions, place: CodePlace, by: SampleBy) -> Self {
        let CodePlace::Line(region, file, line) = place else {
            return Self::Unknown;
        };
        match by {
            SampleBy::Function => Self::Function(region),
            SampleBy::Line => Self::Line(region, file, line),
            SampleBy::Module => match definitions.regions.get(&region) {
                Some(d) if !definitions.string(d.group).is_empty() => Self::Module(d.group),
                Some(d) if !definitions.string(d.file).is_empty() => Self::Module(d.file),
                _ => Self::Unknown,
            },
        }
    }

    /// Returns its function, if that is known.
    pub const fn region(self) -> Option<RegionId> {
        match self {
            Self::Function(region) | Self::Line(region, ..) => Some(region),
            Self::Unknown | Self::Module(_) => None,
        }
    }
}

/// One call of call paths.
#[derive(Clone, Debug)]
pub struct SampleNode {
    /// Where the program was in it.
    pub place: SamplePlace,
    /// The number of the call that it was made in. `None` if that is the outermost.
    pub caller: Option<usize>,
    /// Samples in itself.
    pub own: SampleSum,
    /// Samples in it and in what it called.
    pub total: SampleSum,
    /// Numbers of the calls in it, those with most time first.
    children: Vec<usize>,
    /// Calls around it.
    depth: usize,
    /// Number of the innermost call of its path that is among the outermost [`MOST_DEPTH`](SampleTree::MOST_DEPTH).
    shown: usize,
}

/// Call paths, as a tree.
#[derive(Clone, Default, Debug)]
pub struct SampleTree {
    /// Callers first.
    nodes: Vec<SampleNode>,
    /// By number of a call path.
    of_path: FxHashMap<u32, usize>,
}

impl SampleTree {
    /// Calls of a path, at most, in what names all of them: without a bound, a few bytes of a trace would become gigabytes.
    pub const MOST_DEPTH: usize = 512;

    /// Makes the tree of some call paths.
    pub(super) fn of(
        definitions: &Definitions,
        by: SampleBy,
        sums: impl Iterator<Item = (u32, SampleSum)>,
    ) -> Self {
        let call_path = |id: u32| definitions.call_paths.get(&CallPathId::new(id));
        let caller_of = |id: u32| Some(call_path(id)?.caller?.get());
        // Ascending, so that callers are first.
        let mut needed: BTreeMap<u32, SampleSum> = BTreeMap::new();
        for (id, sum) in sums {
            needed.entry(id).or_default().merge(&sum);
            let mut next = caller_of(id);
            while let Some(caller) = next
                && !needed.contains_key(&caller)
            {
                needed.insert(caller, SampleSum::default());
                next = caller_of(caller);
            }
        }
        let mut tree = Self::default();
        let mut numbers: FxHashMap<(Option<usize>, SamplePlace), usize> = FxHashMap::default();
        for (id, sum) in needed {
            let caller = caller_of(id).and_then(|caller| tree.of_path.get(&caller).copied());
            let place = call_path(id).map_or(CodePlace::Unknown, |path| path.place);
            let place = SamplePlace::of(definitions, place, by);
            let number = *numbers.entry((caller, place)).or_insert_with(|| {
                let next = tree.nodes.len();
                let around = caller.map(|caller| &tree.nodes[caller]);
                let depth = around.map_or(0, |around| around.depth + 1);
                let shown = around.filter(|_| depth >= Self::MOST_DEPTH);
                let shown = shown.map_or(next, |around| around.shown);
                tree.nodes.push(SampleNode {
                    depth,
                    shown,
                    place,
                    caller,
                    own: SampleSum::default(),
                    total: SampleSum::default(),
                    children: Vec::new(),
                });
                next
            });
            tree.nodes[number].own.merge(&sum);
            tree.of_path.insert(id, number);
        }
        tree.add_up();
        tree
    }

    /// Determines what is in each call and in what it called.
    fn add_up(&mut self) {
        for number in (0..self.nodes.len()).rev() {
            let own = self.nodes[number].own;
            self.nodes[number].total.merge(&own);
            let total = self.nodes[number].total;
            if let Some(caller) = self.nodes[number].caller {
                self.nodes[caller].total.merge(&total);
                self.nodes[caller].children.push(number);
            }
        }
        for number in 0..self.nodes.len() {
            let mut children = std::mem::take(&mut self.nodes[number].children);
            children.sort_by_key(|child| self.order(*child));
            self.nodes[number].children = children;
        }
    }

    fn order(&self, number: usize) -> impl Ord + use<> {
        let node = &self.nodes[number];
        (Reverse(node.total.time_ns), node.place)
    }

    /// Visits all calls, callers first, those with most time first: depth and number of each.
    pub fn walk(&self, mut visit: impl FnMut(usize, usize, &SampleNode)) {
        let numbers = 0..self.nodes.len();
        let mut roots: Vec<usize> = numbers
            .filter(|number| self.nodes[*number].caller.is_none())
            .collect();
        roots.sort_by_key(|root| self.order(*root));
        let mut open: Vec<(usize, usize)> = roots.into_iter().rev().map(|root| (0, root)).collect();
        while let Some((depth, number)) = open.pop() {
            let node = &self.nodes[number];
            visit(depth, number, node);
            open.extend(node.children.iter().rev().map(|child| (depth + 1, *child)));
        }
    }

    /// Returns the samples in each place itself, and those with it anywhere on their paths.
    pub(super) fn by_place(&self) -> BTreeMap<SamplePlace, (SampleSum, SampleSum)> {
        let mut sums: BTreeMap<SamplePlace, (SampleSum, SampleSum)> = BTreeMap::new();
        // How often each place is on the path to the call that is visited.
        let mut open: Vec<SamplePlace> = Vec::new();
        let mut counts: FxHashMap<SamplePlace, usize> = FxHashMap::default();
        self.walk(|depth, _, node| {
            for left in open.drain(depth.min(open.len())..) {
                *counts.entry(left).or_insert(1) -= 1;
            }
            open.push(node.place);
            let count = counts.entry(node.place).or_default();
            let (own, total) = sums.entry(node.place).or_default();
            own.merge(&node.own);
            // Recursion counts once.
            if *count == 0 {
                total.merge(&node.total);
            }
            *count += 1;
        });
        sums
    }

    /// Returns the number of samples whose paths begin with a call of which nothing is known.
    pub(super) fn cut(&self) -> u64 {
        let is_cut =
            |node: &&SampleNode| node.caller.is_none() && node.place == SamplePlace::Unknown;
        let cut = self.nodes.iter().filter(is_cut);
        cut.map(|node| node.total.count).sum()
    }

    /// Returns the numbers of the calls of a call path, the outermost first, at most [`MOST_DEPTH`](Self::MOST_DEPTH). Empty if the tree
    /// does not have the path.
    pub fn stack(&self, path: u32) -> Vec<usize> {
        let mut stack = Vec::new();
        let innermost = self.of_path.get(&path);
        let mut next = innermost.map(|number| self.nodes[*number].shown);
        while let Some(number) = next {
            stack.push(number);
            next = self.nodes[number].caller;
        }
        stack.reverse();
        stack
    }

    /// Returns the calls by number.
    pub fn nodes(&self) -> &[SampleNode] {
        &self.nodes
    }
}
