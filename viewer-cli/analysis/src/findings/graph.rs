//! Waits as a graph: which of them can end, and where chains of waits end.

use rustc_hash::FxHashSet;

/// A node: a process, or a call that several processes make together.
pub(super) type Node = usize;

/// A wait of a node.
#[derive(Clone, Debug)]
pub(super) struct Edges {
    /// The nodes that it waits for.
    pub(super) to: Vec<Node>,
    /// Whether one of them is enough.
    pub(super) is_any: bool,
}

/// The waits of all nodes.
#[derive(Clone, Default, Debug)]
pub(super) struct Graph {
    /// By node: its waits. It needs the end of one of them: a process has several threads.
    pub(super) waits: Vec<Vec<Edges>>,
    /// By node: whether it moves in any case, as far as is known. One that has ended never does.
    pub(super) goes_on: Vec<bool>,
}

impl Graph {
    /// Adds a node.
    pub(super) fn add(&mut self, goes_on: bool) -> Node {
        self.waits.push(Vec::new());
        self.goes_on.push(goes_on);
        self.waits.len() - 1
    }

    /// Returns by node whether it can go on: a fixed point, from those that do in any case.
    pub(super) fn can_go_on(&self) -> Vec<bool> {
        let mut can = self.goes_on.clone();
        let sources = self.sources();
        let mut work: Vec<Node> = (0..can.len()).collect();
        while let Some(node) = work.pop() {
            let is_over = |edges: &Edges| match edges.is_any {
                true => edges.to.iter().any(|to| can[*to]),
                false => edges.to.iter().all(|to| can[*to]),
            };
            if !can[node] && self.waits[node].iter().any(is_over) {
                can[node] = true;
                work.extend(&sources[node]);
            } else if can[node] && self.goes_on[node] {
                work.extend(sources[node].iter().filter(|source| !can[**source]));
            }
        }
        can
    }

    fn targets(&self, node: Node) -> impl Iterator<Item = Node> {
        self.waits[node]
            .iter()
            .flat_map(|edges| edges.to.iter().copied())
    }

    /// Returns the strongly connected components that wait for no other: where chains of waits end, each sorted
    /// (Tarjan, SIAM J. Comput. 1, 1972).
    pub(super) fn sinks(&self) -> Vec<Vec<Node>> {
        let count = self.waits.len();
        let (mut index, mut low) = (vec![usize::MAX; count], vec![0; count]);
        let (mut component, mut components) = (vec![usize::MAX; count], Vec::new());
        let (mut stack, mut next) = (Vec::new(), 0);
        let all: Vec<Vec<Node>> = (0..count)
            .map(|node| self.targets(node).collect())
            .collect();
        for start in 0..count {
            if index[start] != usize::MAX {
                continue;
            }
            let mut calls = vec![(start, 0)];
            while let Some((node, at)) = calls.pop() {
                if at == 0 {
                    (index[node], low[node]) = (next, next);
                    next += 1;
                    stack.push(node);
                }
                if let Some(to) = all[node].get(at).copied() {
                    calls.push((node, at + 1));
                    if index[to] == usize::MAX {
                        calls.push((to, 0));
                    } else if component[to] == usize::MAX {
                        low[node] = low[node].min(index[to]);
                    }
                    continue;
                }
                if low[node] == index[node] {
                    let mut members = Vec::new();
                    while let Some(member) = stack.pop() {
                        component[member] = components.len();
                        members.push(member);
                        if member == node {
                            break;
                        }
                    }
                    members.sort_unstable();
                    components.push(members);
                }
                if let Some((around, _)) = calls.last() {
                    low[*around] = low[*around].min(low[node]);
                }
            }
        }
        let leaves = |number: usize, members: &[Node]| {
            let mut targets = members.iter().flat_map(|node| &all[*node]);
            targets.any(|to| component[*to] != number)
        };
        let sinks = components.iter().enumerate();
        let sinks = sinks.filter(|(number, members)| !leaves(*number, members));
        sinks.map(|(_, members)| members.clone()).collect()
    }

    /// Returns by node those that wait for it.
    pub(super) fn sources(&self) -> Vec<Vec<Node>> {
        let mut sources: Vec<Vec<Node>> = vec![Vec::new(); self.waits.len()];
        for node in 0..self.waits.len() {
            self.targets(node).for_each(|to| sources[to].push(node));
        }
        sources
    }
}

/// Returns the nodes that wait for one of these, which are sorted, directly or not, but for these, sorted. `sources`: those of [`Graph::sources`].
pub(super) fn reaching(sources: &[Vec<Node>], targets: &[Node]) -> Vec<Node> {
    let mut reached: FxHashSet<Node> = targets.iter().copied().collect();
    let mut work = targets.to_vec();
    while let Some(node) = work.pop() {
        let more = sources[node].iter().copied();
        work.extend(more.filter(|source| reached.insert(*source)));
    }
    let mut waiting: Vec<Node> = reached.into_iter().collect();
    waiting.retain(|node| targets.binary_search(node).is_err());
    waiting.sort_unstable();
    waiting
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(goes_on: &[bool], waits: &[(Node, &[Node], bool)]) -> Graph {
        let mut graph = Graph::default();
        goes_on.iter().for_each(|goes_on| {
            graph.add(*goes_on);
        });
        for (node, to, is_any) in waits {
            graph.waits[*node].push(Edges {
                to: to.to_vec(),
                is_any: *is_any,
            });
        }
        graph
    }

    #[test]
    fn waits_end_where_those_can_go_on_that_are_waited_for() {
        // 0 waits for 1 and 2, 1 for 2, 2 moves; 3 and 4 wait for each other, 5 for 3 or 2.
        let waits: [(Node, &[Node], bool); 5] = [
            (0, &[1, 2], false),
            (1, &[2], false),
            (3, &[4], false),
            (4, &[3], false),
            (5, &[3, 2], true),
        ];
        let graph = graph(&[false, false, true, false, false, false], &waits);
        assert_eq!(graph.can_go_on(), [true, true, true, false, false, true]);
        let mut sinks = graph.sinks();
        sinks.sort();
        assert_eq!(sinks, [vec![2], vec![3, 4]]);
        assert_eq!(reaching(&graph.sources(), &[3, 4]), [5]);
    }

    #[test]
    fn sinks_are_those_of_the_definition_in_random_graphs() {
        let mut seed = 1_u64;
        let mut random = |most: usize| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) as usize % most
        };
        for _ in 0..500 {
            let count = 1 + random(9);
            let edges = random(14);
            let mut graph = graph(&vec![false; count], &[]);
            for _ in 0..edges {
                let (from, to) = (random(count), random(count));
                graph.waits[from].push(Edges {
                    to: vec![to],
                    is_any: false,
                });
            }
            // All pairs, by definition.
            let mut reaches = vec![vec![false; count]; count];
            for (node, row) in reaches.iter_mut().enumerate() {
                row[node] = true;
                for _ in 0..count {
                    for from in 0..count {
                        if row[from] {
                            graph.targets(from).for_each(|to| row[to] = true);
                        }
                    }
                }
            }
            let is_sink =
                |node: &Node| (0..count).all(|to| !reaches[*node][to] || reaches[to][*node]);
            let mut expected: Vec<Vec<Node>> = Vec::new();
            for node in (0..count).filter(is_sink) {
                match expected
                    .iter_mut()
                    .find(|members| reaches[node][members[0]])
                {
                    Some(members) => members.push(node),
                    None => expected.push(vec![node]),
                }
            }
            let mut found = graph.sinks();
            found.sort();
            assert_eq!(found, expected);
        }
    }
}
