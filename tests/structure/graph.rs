//! Circles of files that need each other.

use std::collections::{BTreeSet, VecDeque};

use crate::modules::Crate;
use crate::names::named_files;

/// Returns the circles of a crate, as paths of their files. A file and those below its module may need each other; but of a circle
/// with others, the arrows between them are a part. Of circles that close so, the shortest is returned.
pub(crate) fn circles(parsed: &Crate) -> Vec<Vec<String>> {
    let named = named_files(parsed);
    let arrows = |is_kept: &dyn Fn(usize, usize) -> bool| -> Vec<Vec<usize>> {
        let each = named.iter().enumerate().map(|(from, files)| {
            let others = files.iter().copied();
            let others = others.filter(|to| *to != from && is_kept(from, *to));
            others.collect()
        });
        each.collect()
    };
    let unrelated = arrows(&|from, to| !are_related(parsed, from, to));
    let mut found: Vec<BTreeSet<usize>> = strong_parts(&unrelated);
    // The root is above all files: it is in no circle.
    let all = arrows(&|from, to| from != 0 && to != 0);
    for part in strong_parts(&all) {
        if !is_family(parsed, &part) && !found.iter().any(|known| known.is_subset(&part)) {
            found.push(shortest_circle(parsed, &all, &part));
        }
    }
    let path = |file: &usize| parsed.files[*file].path.clone();
    let mut circles: Vec<Vec<String>> = found
        .iter()
        .map(|part| {
            let mut paths: Vec<String> = part.iter().map(path).collect();
            paths.sort();
            paths
        })
        .collect();
    circles.sort();
    circles
}

/// Returns whether all files are below one of them.
fn is_family(parsed: &Crate, files: &BTreeSet<usize>) -> bool {
    let is_top = |top: &usize| {
        let mut others = files.iter().filter(|file| *file != top);
        others.all(|file| is_above(parsed, *top, *file))
    };
    files.iter().any(is_top)
}

/// Returns the shortest circle of files that are no family, in a strongly connected part.
fn shortest_circle(
    parsed: &Crate,
    targets: &[Vec<usize>],
    part: &BTreeSet<usize>,
) -> BTreeSet<usize> {
    let arrows = part
        .iter()
        .flat_map(|from| targets[*from].iter().map(|to| (*from, *to)));
    let ways = arrows.filter_map(|(from, to)| way(targets, to, from));
    let circles = ways.map(|way| way.into_iter().collect::<BTreeSet<usize>>());
    let others = circles.filter(|circle| !is_family(parsed, circle));
    others.min_by_key(BTreeSet::len).unwrap_or_default()
}

/// Returns the files on a shortest way.
fn way(targets: &[Vec<usize>], from: usize, to: usize) -> Option<Vec<usize>> {
    let mut before = vec![None; targets.len()];
    before[from] = Some(from);
    let mut waiting = VecDeque::from([from]);
    while let Some(file) = waiting.pop_front() {
        if file == to {
            let way = std::iter::successors(Some(to), |file| {
                before[*file].filter(|before| before != file)
            });
            return Some(way.collect());
        }
        for next in &targets[file] {
            if before[*next].is_none() {
                before[*next] = Some(file);
                waiting.push_back(*next);
            }
        }
    }
    None
}

/// Returns whether one of two files is the parent of the other's module, or its parent's parent,
/// and so on.
fn are_related(parsed: &Crate, a: usize, b: usize) -> bool {
    is_above(parsed, a, b) || is_above(parsed, b, a)
}

fn is_above(parsed: &Crate, above: usize, below: usize) -> bool {
    let mut module = parsed.modules[parsed.files[below].module].parent;
    while let Some(id) = module {
        if parsed.modules[id].file == above {
            return true;
        }
        module = parsed.modules[id].parent;
    }
    false
}

/// Returns the strongly connected parts of a graph that have several nodes (Kosaraju: a second search, over turned arrows, in the order in which the
/// first one left its nodes).
fn strong_parts(targets: &[Vec<usize>]) -> Vec<BTreeSet<usize>> {
    let mut sources = vec![Vec::new(); targets.len()];
    for (from, all) in targets.iter().enumerate() {
        for to in all {
            sources[*to].push(from);
        }
    }
    let mut left = Vec::new();
    let mut is_seen = vec![false; targets.len()];
    for node in 0..targets.len() {
        leave(node, targets, &mut is_seen, &mut left);
    }
    let mut parts = Vec::new();
    let mut is_seen = vec![false; targets.len()];
    for node in left.into_iter().rev() {
        let mut part = Vec::new();
        leave(node, &sources, &mut is_seen, &mut part);
        if part.len() > 1 {
            parts.push(part.into_iter().collect());
        }
    }
    parts
}

/// Visits what can be reached, and adds each node when all after it are visited.
fn leave(node: usize, next: &[Vec<usize>], is_seen: &mut [bool], left: &mut Vec<usize>) {
    if std::mem::replace(&mut is_seen[node], true) {
        return;
    }
    for after in &next[node] {
        leave(*after, next, is_seen, left);
    }
    left.push(node);
}
