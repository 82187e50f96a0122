//! Circles of files that need each other.

use std::collections::BTreeSet;

use crate::modules::Crate;
use crate::names::named_files;

/// Returns the circles of a crate, as paths of their files. A file and those below its module may need each other.
pub(crate) fn circles(parsed: &Crate) -> Vec<Vec<String>> {
    let named = named_files(parsed);
    let targets: Vec<Vec<usize>> = named
        .iter()
        .enumerate()
        .map(|(from, files)| {
            let others = files.iter().copied();
            others
                .filter(|to| *to != from && !are_related(parsed, from, *to))
                .collect()
        })
        .collect();
    let path = |file: &usize| parsed.files[*file].path.clone();
    let parts = strong_parts(&targets)
        .into_iter()
        .filter(|part| part.len() > 1);
    let mut circles: Vec<Vec<String>> = parts
        .map(|part| {
            let mut paths: Vec<String> = part.iter().map(path).collect();
            paths.sort();
            paths
        })
        .collect();
    circles.sort();
    circles
}

/// Returns whether one of two files is the parent of the other's module, or its parent's parent,
/// and so on.
fn are_related(parsed: &Crate, a: usize, b: usize) -> bool {
    let is_above = |above: usize, below: usize| {
        let mut module = parsed.modules[parsed.files[below].module].parent;
        while let Some(id) = module {
            if parsed.modules[id].file == above {
                return true;
            }
            module = parsed.modules[id].parent;
        }
        false
    };
    is_above(a, b) || is_above(b, a)
}

/// Returns the strongly connected parts of a graph (Kosaraju: a second search, over turned arrows, in the order in which the
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
        parts.push(part.into_iter().collect());
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
