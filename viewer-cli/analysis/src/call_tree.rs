//! The call tree: statistics by call path.

use std::collections::BTreeMap;

use annals_format::RegionId;
use annals_merger::{Analysis, Close, Frame, Query, ReadSummary, Reader, Result, Window};

/// Places beyond this are counted with their callers.
const MOST_NODES: usize = 1 << 20;

/// No caller.
const ROOT: u32 = 0;

/// A place in the tree. Times in nanoseconds.
#[derive(Clone, Debug)]
pub struct TreeNode {
    /// Which region.
    pub region: RegionId,
    /// Enters.
    pub calls: u64,
    /// Time in it and in what it called.
    pub inclusive_ns: i64,
    /// Time in itself.
    pub exclusive_ns: i64,
    /// Whether a loss may have changed the times.
    pub is_uncertain: bool,
    children: BTreeMap<RegionId, u32>,
}

/// Gathers statistics by call path, over all locations.
#[derive(Debug)]
pub struct TreeCounter {
    window: Window,
    nodes: Vec<TreeNode>,
    left_out: u64,
}

impl TreeCounter {
    /// Creates an empty tree.
    pub fn new(window: Window) -> Self {
        Self {
            window,
            nodes: vec![Self::node(RegionId::new(u32::MAX))],
            left_out: 0,
        }
    }

    const fn node(region: RegionId) -> TreeNode {
        TreeNode {
            region,
            calls: 0,
            inclusive_ns: 0,
            exclusive_ns: 0,
            is_uncertain: false,
            children: BTreeMap::new(),
        }
    }

    /// Returns the place of a region below its caller's.
    ///
    /// # Errors
    /// The caller's place if there are too many.
    fn child(&mut self, caller: u32, region: RegionId) -> std::result::Result<u32, u32> {
        let next = self.nodes.len();
        match self.nodes[caller as usize].children.get(&region) {
            Some(number) => Ok(*number),
            None if next >= MOST_NODES => Err(caller),
            None => {
                self.nodes.push(Self::node(region));
                self.nodes[caller as usize]
                    .children
                    .insert(region, next as u32);
                Ok(next as u32)
            }
        }
    }

    /// Calls that are counted with their callers.
    pub const fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Visits the nodes that occurred in the window, callers first, largest first by `key`. The result of `visit` is
    /// passed as the caller when a node's callees are visited. A node that `takes` rejects is skipped, and so are all
    /// nodes below it that it also rejects.
    pub fn walk(
        &self,
        key: impl Fn(&TreeNode) -> i64,
        takes: impl Fn(&TreeNode) -> bool,
        mut visit: impl FnMut(Option<usize>, usize, &TreeNode) -> usize,
    ) {
        let mut open = vec![(ROOT, None, 0)];
        while let Some((number, parent, depth)) = open.pop() {
            let node = &self.nodes[number as usize];
            let is_seen = node.calls != 0 || node.inclusive_ns != 0;
            let (mut below, mut next) = (parent, depth);
            if number != ROOT && is_seen && takes(node) {
                below = Some(visit(parent, depth, node));
                next += 1;
            }
            let mut children: Vec<u32> = node.children.values().copied().collect();
            children.sort_by_key(|child| {
                let node = &self.nodes[*child as usize];
                (key(node), std::cmp::Reverse(node.region))
            });
            open.extend(children.into_iter().map(|child| (child, below, next)));
        }
    }
}

impl Analysis for TreeCounter {
    fn enter(&mut self, _: usize, frames: &[Frame], region: RegionId, time_ns: i64) -> u32 {
        let caller = frames.last().map_or(ROOT, |frame| frame.tag);
        let number = match self.child(caller, region) {
            Ok(number) => number,
            Err(caller) => {
                self.left_out += 1;
                return caller;
            }
        };
        self.nodes[number as usize].calls += u64::from(self.window.contains(time_ns));
        number
    }

    fn spend(&mut self, _: usize, frames: &[Frame], from_ns: i64, to_ns: i64) {
        if let Some(top) = frames.last() {
            self.nodes[top.tag as usize].exclusive_ns += self.window.clip(from_ns, to_ns);
        }
    }

    fn close(&mut self, _: usize, frames: &[Frame], frame: &Frame, time_ns: i64, how: Close) {
        // One that is counted with its caller adds nothing to the caller's own time.
        let is_own = frames.last().map_or(ROOT, |caller| caller.tag) != frame.tag;
        let node = &mut self.nodes[frame.tag as usize];
        let inside = self.window.clip(frame.entered_ns, time_ns);
        node.inclusive_ns += if is_own { inside } else { 0 };
        let is_over = time_ns < self.window.from_ns;
        node.is_uncertain |= !is_over && (frame.is_uncertain || how == Close::Unleft);
    }
}

/// Counts the calls of a query's window by call path.
///
/// # Errors
/// If the storage fails.
pub fn call_tree(reader: &Reader, query: &Query) -> Result<(TreeCounter, ReadSummary)> {
    // One state: several trees of a million places take more memory than threads are worth.
    reader.run(query, |_| TreeCounter::new(query.window()))
}
