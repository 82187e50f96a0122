//! Files of one job: which rank each is, and which of their operations are the same one.
//!
//! An operation with a descriptor says its group and its number in it. Of others only the order is known, and windows of recording begin at
//! different times: their order counts within each step of the profiler, and only where all members of a group have equally many
//! of them there.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::calls::{Deed, Group};
use super::link::{BEFORE_STEPS, Operation};
use super::read::ReadTrace;
use crate::error::Result;

/// Set in the numbers of operations that are known by their order.
const BY_ORDER: u64 = 1 << 60;

/// A group of processes that all its members know by one name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Communicator {
    pub(super) name: String,
    pub(super) ranks: Vec<u32>,
    pub(super) size: u32,
}

/// The number of an operation that all its processes agree on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Agreed {
    /// Number of its communicator. `None`: a message of no known group.
    pub(super) communicator: Option<usize>,
    pub(super) sequence: u64,
}

/// Returns the number in a file's name at the place of `{rank}` in a pattern in which `*` is any text. Without a pattern, the number
/// after the word `rank`.
fn rank_in_name(path: &Path, pattern: Option<&str>) -> Option<u32> {
    let name = path.file_name()?.to_string_lossy();
    match pattern {
        Some(pattern) => {
            let (before, after) = pattern.split_once("{rank}")?;
            // The longest number that fits: shorter ones fit as well where `*` takes digits.
            let digits =
                |start: usize| name[start..].bytes().take_while(u8::is_ascii_digit).count();
            let starts = name.char_indices().map(|(start, _)| start);
            let starts = starts.filter(|start| {
                let is_within = name[..*start].ends_with(|c: char| c.is_ascii_digit());
                digits(*start) != 0 && !is_within
            });
            let mut fits = starts.filter(|start| {
                let end = start + digits(*start);
                is_like(before, &name[..*start]) && is_like(after, &name[end..])
            });
            let start = fits.next()?;
            name[start..start + digits(start)].parse().ok()
        }
        None => {
            let lower = name.to_ascii_lowercase();
            let (_, after) = lower.rsplit_once("rank")?;
            let after = after.trim_start_matches(['-', '_', '.', '=']);
            let end = after.find(|c: char| !c.is_ascii_digit());
            after[..end.unwrap_or(after.len())].parse().ok()
        }
    }
}

/// Returns whether a text is like a pattern in which `*` is any text.
fn is_like(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else {
        return false;
    };
    let mut parts = parts.peekable();
    if parts.peek().is_none() {
        return rest.is_empty();
    }
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return rest.ends_with(part);
        }
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    true
}

/// Decides the rank of each file: by the user's pattern, by what the file says, by its name. Files without one get the lowest that are left, in
/// the order of their paths.
pub(super) fn assign_ranks(
    traces: &mut [Result<ReadTrace>],
    paths: &[PathBuf],
    pattern: Option<&str>,
) {
    let mut taken = BTreeSet::new();
    let mut without = Vec::new();
    for (trace, path) in traces.iter_mut().zip(paths) {
        let by_user = pattern.and_then(|pattern| rank_in_name(path, Some(pattern)));
        let Ok(trace) = trace else {
            // The rank of a damaged file is not given to another one.
            taken.extend(by_user.or_else(|| rank_in_name(path, None)));
            continue;
        };
        let said = by_user.or(trace.header.rank).or(trace.table.rank);
        match said.or_else(|| rank_in_name(path, None)) {
            Some(rank) => {
                trace.rank = rank;
                taken.insert(rank);
            }
            None => without.push(trace),
        }
    }
    without.sort_by(|a, b| a.path.cmp(&b.path));
    let mut free = (0..u32::MAX).filter(|rank| !taken.contains(rank));
    for trace in without {
        trace.rank = free.next().unwrap_or(0);
        trace.counts.is_rank_assumed = true;
    }
}

/// Returns ranks in short: `0-3`, `0,2`, `0-14/2`.
fn ranks_text(ranks: &[u32]) -> String {
    if let [first, second, .., last] = *ranks
        && let Some(step) = second.checked_sub(first).filter(|step| *step != 0)
        && ranks.is_sorted_by(|a, b| a.checked_add(step) == Some(*b))
        && ranks.len() > 2
    {
        return match step {
            1 => format!("{first}-{last}"),
            step => format!("{first}-{last}/{step}"),
        };
    }
    let each = ranks.iter().map(u32::to_string);
    each.collect::<Vec<_>>().join(",")
}

/// What operations that are known by their order have in common.
type Alike = (Option<usize>, String);

/// Operations by step and file, in their order.
type BySteps = BTreeMap<i64, BTreeMap<usize, Vec<usize>>>;

#[derive(Default)]
struct Agreement {
    communicators: Vec<Communicator>,
    /// Number of those that files name.
    known: usize,
    /// Whether there is a file of each rank.
    are_all_ranks: bool,
    numbers: BTreeMap<(String, u32), usize>,
    by_order: BTreeMap<Alike, BySteps>,
}

/// Numbers the operations of all files. Returns the communicators.
pub(super) fn number(traces: &mut [&mut ReadTrace]) -> Vec<Communicator> {
    let mut agreement = Agreement::default();
    for trace in traces.iter() {
        for (name, ranks) in &trace.header.groups {
            agreement.communicator(&Group {
                name: name.clone(),
                size: ranks.len() as u32,
                ranks: ranks.clone(),
            });
        }
    }
    for (at, trace) in traces.iter_mut().enumerate() {
        let groups: Vec<usize> = trace
            .table
            .groups
            .iter()
            .map(|group| agreement.communicator(&whole(group, &trace.header.groups)))
            .collect();
        for (number, operation) in trace.operations.operations.iter().enumerate() {
            let communicator = operation.call.group.map(|group| groups[group as usize]);
            let alike = match (operation.call.deed, communicator, operation.call.sequence) {
                (Deed::Collective(_), Some(communicator), Some(sequence)) => {
                    let agreed = Agreed {
                        communicator: Some(communicator),
                        sequence,
                    };
                    trace.agreed.insert(operation.order, (number, agreed));
                    continue;
                }
                (Deed::Collective(_), ..) => {
                    let text = trace.table.texts.get(operation.call.text as usize);
                    (communicator, text.cloned().unwrap_or_default())
                }
                _ => match channel(trace.rank, operation) {
                    Some(channel) => (communicator, channel),
                    None => {
                        trace.counts.unmatched += 1;
                        continue;
                    }
                },
            };
            let steps = agreement.by_order.entry(alike).or_default();
            let of_step = steps.entry(operation.step).or_default();
            of_step.entry(at).or_default().push(number);
        }
    }
    agreement.known = agreement.communicators.len();
    let stated = traces.iter().filter_map(|trace| trace.header.ranks);
    let stated = stated.max().unwrap_or(0);
    agreement.are_all_ranks = stated as usize <= traces.len();
    agreement.settle(traces);
    agreement.communicators
}

/// Returns what a send and its receive have in common.
fn channel(rank: u32, operation: &Operation) -> Option<String> {
    let peer = operation.call.peer?;
    Some(match operation.call.deed {
        Deed::Send => format!("{rank}->{peer}"),
        _ => format!("{peer}->{rank}"),
    })
}

/// Returns a group with its ranks, if the file lists these.
fn whole(group: &Group, listed: &[(String, Vec<u32>)]) -> Group {
    let mut group = group.clone();
    if group.ranks.is_empty() {
        let found = listed.iter().find(|(name, ranks)| {
            *name == group.name && (group.size == 0 || ranks.len() == group.size as usize)
        });
        if let Some((_, ranks)) = found {
            (group.size, group.ranks) = (ranks.len() as u32, ranks.clone());
        }
    }
    group
}

impl Agreement {
    fn communicator(&mut self, group: &Group) -> usize {
        let name = match group.ranks.is_empty() {
            true => group.name.clone(),
            false => format!("{} ({})", group.name, ranks_text(&group.ranks)),
        };
        let next = self.communicators.len();
        let number = *self
            .numbers
            .entry((name.clone(), group.size))
            .or_insert(next);
        if number == next {
            self.communicators.push(Communicator {
                name,
                ranks: group.ranks.clone(),
                size: group.size,
            });
        }
        number
    }

    /// Numbers the operations that are known by their order, as far as all members have equally many in a step.
    fn settle(&mut self, traces: &mut [&mut ReadTrace]) {
        let ranks: Vec<u32> = traces.iter().map(|trace| trace.rank).collect();
        let mut texts: BTreeMap<Option<usize>, u64> = BTreeMap::new();
        for ((group, text), steps) in std::mem::take(&mut self.by_order) {
            let of_files: BTreeSet<usize> = steps
                .values()
                .flat_map(|files| files.keys().copied())
                .collect();
            let is_message = text.contains("->");
            let (communicator, members) = match group {
                _ if is_message => (group, of_files.clone()),
                Some(group) => (Some(group), self.members(group, &ranks)),
                None => match self.group_of(&of_files, &ranks) {
                    Some(group) => (Some(group), of_files.clone()),
                    None => (None, BTreeSet::new()),
                },
            };
            let text_number = texts.entry(communicator).or_default();
            *text_number += 1;
            for (step, files) in steps {
                let is_cut = |at: &usize| !traces[*at].problems.is_empty();
                let whole = files.iter().filter(|(at, _)| !is_cut(at));
                let mut counts = whole.map(|(_, operations)| operations.len());
                let count = counts.next().unwrap_or(0);
                // A file that is damaged does not take the operations of the others with it.
                let are_all = members
                    .iter()
                    .all(|at| files.contains_key(at) || is_cut(at));
                let is_agreed = counts.all(|other| other == count)
                    && step != BEFORE_STEPS
                    && (communicator.is_some() || is_message)
                    && are_all;
                for (at, operations) in files {
                    let is_known = is_agreed && operations.len() == count;
                    for (place, number) in operations.into_iter().enumerate() {
                        let step = step as u64 & 0x7fff_ffff;
                        let alike = *text_number & 0xfff;
                        let sequence = BY_ORDER | step << 28 | alike << 16 | place as u64 & 0xffff;
                        match is_known {
                            true => {
                                traces[at].counts.by_order += 1;
                                let agreed = Agreed {
                                    communicator,
                                    sequence,
                                };
                                traces[at].agree(number, agreed);
                            }
                            false => traces[at].counts.unmatched += 1,
                        }
                    }
                }
            }
        }
    }

    /// Returns the files of the members of a group.
    fn members(&self, group: usize, ranks: &[u32]) -> BTreeSet<usize> {
        let of_group = &self.communicators[group].ranks;
        let each = ranks.iter().enumerate();
        each.filter(|(_, rank)| of_group.is_empty() || of_group.contains(rank))
            .map(|(at, _)| at)
            .collect()
    }

    /// Returns the group whose members, among the files, are exactly these. Where no group is known, all files are one if no rank is missing.
    fn group_of(&mut self, files: &BTreeSet<usize>, ranks: &[u32]) -> Option<usize> {
        let is_all = files.len() == ranks.len() && self.are_all_ranks;
        if self.known == 0 && is_all {
            let mut ranks = ranks.to_vec();
            ranks.sort_unstable();
            return Some(self.communicator(&Group {
                name: "all".to_owned(),
                size: ranks.len() as u32,
                ranks,
            }));
        }
        (0..self.known).find(|group| {
            let communicator = &self.communicators[*group];
            !communicator.ranks.is_empty() && self.members(*group, ranks) == *files
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_found_in_names() {
        let of = |name: &str, pattern| rank_in_name(Path::new(name), pattern);
        assert_eq!(of("dir/rank12.json.gz", None), Some(12));
        assert_eq!(of("Rank-3_trace.json", None), Some(3));
        assert_eq!(of("trace.json", None), None);
        assert_eq!(
            of("x-TP-07-DP-1.trace.json.gz", Some("*-TP-{rank}-*")),
            Some(7)
        );
        assert_eq!(
            of("x-TP-07-DP-1.trace.json.gz", Some("*-DP-{rank}.*")),
            Some(1)
        );
        assert_eq!(of("node1_4242.json", Some("node{rank}_*")), Some(1));
        assert_eq!(of("node1_4242.json", Some("*_{rank}.json")), Some(4242));
        assert_eq!(of("other.json", Some("node{rank}*")), None);
    }

    #[test]
    fn ranks_are_written_in_short() {
        assert_eq!(ranks_text(&[0, 1, 2, 3]), "0-3");
        assert_eq!(ranks_text(&[0, 2, 4]), "0-4/2");
        assert_eq!(ranks_text(&[0, 2]), "0,2");
        assert_eq!(ranks_text(&[0, 1, 3]), "0,1,3");
        assert_eq!(ranks_text(&[5]), "5");
        assert_eq!(ranks_text(&[3, 3, 3]), "3,3,3");
    }
}
