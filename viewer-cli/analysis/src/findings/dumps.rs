//! Which rank of a training job waits for which one, from dumps of PyTorch's flight recorder.
//!
//! A dump says what its rank has entered. Collective operations are the same by group and number. Messages have no numbers that are comparable: they are matched by their
//! order, which is a guess. What a ring has overwritten, and what a rank without a dump did, is unknown, never absent.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use annals_foreign::flight::{Dump, Entry, State};
use serde::Serialize;

use super::conclusions::{Facts, findings};
use super::dump_series::{Identity, Part, Progress, RankDump, Series, differ, needs_all, series};
use super::endings::{Ending, Life};
use super::graph::{Edges, Graph, Node};
use super::positions::{Position, Stay, WaitFor, WaitKind};
use super::{FindingKind, Findings, Origin};

/// Largest number of ranks that the row of a wait lists.
const MOST_LISTED: usize = 1024;

/// The numbers of the collective operations of a group that a dump has.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Span {
    /// The rank of the dump.
    pub rank: u32,
    /// What the group is called.
    pub group: String,
    /// The first and the last number.
    pub first: u64,
    /// The last number that the rank has entered.
    pub last: u64,
}

/// Which ranks wait for which, and what the dumps do not show.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct DumpFindings {
    /// The findings. Times are those of the clock of each rank, nanoseconds since 1970.
    #[serde(flatten)]
    pub findings: Findings,
    /// Ranks whose rings have overwritten operations, with their numbers.
    pub overwritten: Vec<(u32, u64)>,
    /// Ranks whose dumps were written before others completed an operation with them: where they are is not known.
    pub outdated: Vec<u32>,
    /// What the dumps have, by rank and group.
    pub spans: Vec<Span>,
    /// Groups that are known by name only: which ranks should have entered their operations is not known.
    pub unjudged_groups: Vec<String>,
}

/// What a rank waits for, and the ranks that have not done their part.
struct Waiting<'a> {
    row: WaitFor,
    dump: &'a Dump,
    entry: &'a Entry,
    /// The operation that several ranks enter together: number of the series and of the operation.
    together: Option<(usize, u64)>,
}

struct Judge<'a> {
    dumps: BTreeMap<u32, Vec<&'a Dump>>,
    series: Vec<Series<'a>>,
    /// By series: the last number that a rank has entered, if that is certain.
    certain: Vec<BTreeMap<u32, u64>>,
    /// Ranks whose dumps were written before those of others.
    old: BTreeSet<u32>,
}

/// Finds which ranks wait for which. `unreadable`: ranks whose dumps are there and cannot be read.
pub fn dump_findings(dumps: &[RankDump], unreadable: &[u32]) -> DumpFindings {
    let listed = dumps
        .iter()
        .flat_map(|of| of.dump.listed.iter().flat_map(|ranks| ranks.iter()));
    let ranks = dumps.iter().map(|of| &of.rank).chain(unreadable);
    let present: BTreeSet<u32> = ranks.clone().copied().collect();
    let count = listed
        .chain(ranks)
        .max()
        .map_or(0, |last| last.saturating_add(1));
    let world: Arc<Vec<u32>> = Arc::new((0..count).collect());
    let missing = world.iter().filter(|rank| !present.contains(rank));
    let missing_ranks: Vec<u32> = missing.copied().collect();
    let judge = Judge::new(dumps, &world);
    let mut graph = Graph::default();
    let nodes: BTreeMap<u32, Node> = present
        .iter()
        .map(|rank| (*rank, graph.add(!judge.dumps.contains_key(rank))))
        .collect();
    let mut calls: BTreeMap<(usize, u64), Node> = BTreeMap::new();
    let mut positions = Vec::new();
    for (rank, node) in &nodes {
        let waits = judge.waits(*rank);
        let mut to = Vec::new();
        for wait in &waits {
            let missing = wait.row.missing.iter().map(|rank| nodes[rank]);
            match wait.together.filter(|_| !wait.row.missing.is_empty()) {
                // All that are in an operation wait for the same ones.
                Some(call) => to.push(*calls.entry(call).or_insert_with(|| {
                    let node = graph.add(false);
                    let (to, is_any) = (missing.collect(), false);
                    graph.waits[node].push(Edges { to, is_any });
                    node
                })),
                None => to.extend(missing),
            }
        }
        let is_unknown = waits.iter().any(|of| !of.row.unknown.is_empty());
        let is_mismatch = waits.iter().any(|of| !of.row.others.is_empty());
        graph.goes_on[*node] |= !is_mismatch && (to.is_empty() || is_unknown);
        if !to.is_empty() {
            graph.waits[*node].push(Edges { to, is_any: false });
        }
        positions.push(judge.position(*rank, waits));
    }
    let facts: Vec<Facts> = positions.iter().map(Facts::of_position).collect();
    let mut findings = findings(&graph, &facts);
    // A rank that is in nothing is no finding, unless others wait for it.
    findings.retain(|of| of.kind != FindingKind::Elsewhere || !of.waiting.is_empty());
    let unseen = unreadable.iter().map(|rank| (*rank, String::new()));
    let findings = Findings {
        origin: Origin::Dumps,
        findings,
        at_ns: positions.iter().map(|of| of.since_ns).max().unwrap_or(0),
        positions,
        is_running: false,
        missing_ranks,
        unseen_ranks: unseen.collect(),
    };
    judge.answer(findings)
}

impl<'a> Judge<'a> {
    fn new(dumps: &'a [RankDump], world: &Arc<Vec<u32>>) -> Self {
        let mut of_ranks: BTreeMap<u32, Vec<&Dump>> = BTreeMap::new();
        for of in dumps {
            of_ranks.entry(of.rank).or_default().push(&of.dump);
        }
        let mut judge = Self {
            dumps: of_ranks,
            series: series(dumps, world),
            certain: Vec::new(),
            old: BTreeSet::new(),
        };
        // A dump without an operation that others have completed with this rank was written earlier than theirs.
        let mut old: BTreeSet<u32> = BTreeSet::new();
        for (number, series) in judge.series.iter().enumerate() {
            let is_old = |rank: &u32| {
                let last = judge.certain_last(number, *rank);
                last.is_some_and(|last| last < series.done)
            };
            old.extend(series.members.iter().copied().filter(is_old));
        }
        judge.old = old;
        for number in 0..judge.series.len() {
            let members = Arc::clone(&judge.series[number].members);
            let members = members
                .iter()
                .copied()
                .filter(|rank| !judge.old.contains(rank));
            let certain =
                members.filter_map(|rank| Some((rank, judge.certain_last(number, rank)?)));
            let certain: BTreeMap<u32, u64> = certain.collect();
            judge.series[number].compare(&certain);
            judge.certain.push(certain);
        }
        judge
    }

    /// Returns the last number of a series that a rank has entered. `None`: later ones may be missing in its dump.
    fn certain_last(&self, number: usize, rank: u32) -> Option<u64> {
        let series = &self.series[number];
        if let Some(part) = series.parts.get(&rank) {
            return part.is_certain.then_some(part.last);
        }
        // The rank may know the group by its name only.
        let is_named_like = |other: &&Series<'_>| match (&other.identity, &series.identity) {
            (Identity::Named(name, _), Identity::Listed(listed, _)) => {
                name == listed && other.parts.contains_key(&rank)
            }
            (Identity::Named(_, description), Identity::World) => {
                description == "default_pg" && other.parts.contains_key(&rank)
            }
            _ => false,
        };
        let dumps = self.dumps.get(&rank)?;
        let is_whole = dumps.iter().all(|dump| dump.is_whole());
        let is_known = is_whole && !self.series.iter().any(|of| is_named_like(&of));
        is_known.then_some(0)
    }

    /// Returns the members that have not entered an operation, and those of which that is not known.
    fn sides(&self, number: usize, sequence: u64, of: u32) -> (Vec<u32>, Vec<u32>) {
        let series = &self.series[number];
        if !series.is_judged() {
            let others = series.members.iter().copied();
            return (Vec::new(), others.filter(|rank| *rank != of).collect());
        }
        let has_entered = |rank: &u32| {
            let last = series.parts.get(rank).map_or(0, |part| part.last);
            last >= sequence || series.done >= sequence
        };
        let members = series.members.iter().copied();
        let others = members.filter(|rank| *rank != of && !has_entered(rank));
        let others: BTreeSet<u32> = others.collect();
        let is_known = |rank: &u32| self.certain[number].contains_key(rank);
        others.into_iter().partition(is_known)
    }

    /// Returns what a rank waits for: what others have not entered, or else what all have.
    fn waits(&self, rank: u32) -> Vec<Waiting<'a>> {
        let (mut open, mut met) = (Vec::new(), Vec::new());
        if self.old.contains(&rank) {
            return met;
        }
        for (number, series) in self.series.iter().enumerate() {
            let Some(part) = series.parts.get(&rank) else {
                continue;
            };
            let channels = part.messages.keys();
            let messages = channels.filter_map(|of| self.message(number, rank, *of));
            let collective = self.collective(number, rank, part);
            for wait in messages.chain(collective) {
                match wait.row.is_met {
                    true => met.push(wait),
                    false => open.push(wait),
                }
            }
        }
        if open.is_empty() { met } else { open }
    }

    /// Returns the first collective operation of a series for which a rank waits: one that others have not entered, or else one under way.
    fn collective(&self, number: usize, rank: u32, part: &Part<'a>) -> Option<Waiting<'a>> {
        let series = &self.series[number];
        let mut met = None;
        for entry in &part.operations {
            let name = part.dump.name(entry);
            // After an operation that some have not entered, one that needs all cannot be over.
            let is_after = entry.sequence >= series.frontier && series.is_judged();
            let progress = match series.progress(part, entry) {
                _ if is_after && entry.state != State::Completed && needs_all(name) => {
                    Progress::UnderWay
                }
                Progress::Unknown if entry.sequence <= series.entered => Progress::Over,
                progress => progress,
            };
            if progress == Progress::Over {
                continue;
            }
            let (mut missing, mut unknown) = match entry.sequence <= series.entered {
                true => (Vec::new(), Vec::new()),
                false => self.sides(number, entry.sequence, rank),
            };
            if progress == Progress::Unknown {
                // Whether it waits for them is not known.
                unknown.append(&mut missing);
            }
            let others = self.others(series, rank, part, entry);
            if let Some(earlier) = series.mismatch.filter(|number| *number < entry.sequence)
                && missing.is_empty()
            {
                // It follows an operation about which they do not agree, and that its ring has not any more.
                let parts = series.parts.iter();
                let at_it =
                    parts.filter(|(of, part)| **of != rank && part.single(earlier).is_some());
                unknown.extend(at_it.map(|(of, _)| *of));
            }
            let is_met = missing.is_empty() && unknown.is_empty() && others.is_empty();
            let cut = |ranks: Vec<u32>| ranks.into_iter().take(MOST_LISTED).collect();
            let wait = Waiting {
                row: WaitFor {
                    kind: WaitKind::Collective,
                    object: Some(series.name()),
                    number: Some(entry.sequence),
                    missing,
                    unknown: cut(unknown),
                    others,
                    is_met,
                    ..WaitFor::default()
                },
                dump: part.dump,
                entry,
                together: Some((number, entry.sequence)),
            };
            if !is_met {
                return Some(wait);
            }
            met = met.or(Some(wait));
        }
        met
    }

    /// Returns the ranks that have entered something else with the same number, and what.
    fn others(
        &self,
        series: &Series<'a>,
        rank: u32,
        part: &Part<'a>,
        entry: &Entry,
    ) -> Vec<(u32, String)> {
        if series.mismatch != Some(entry.sequence) || !series.is_judged() {
            return Vec::new();
        }
        let own = (part.dump, entry);
        let others = series.parts.iter().filter(|(other, _)| **other != rank);
        let others = others.filter_map(|(other, part)| {
            let entry = part.single(entry.sequence)?;
            let is_other = differ(own, (part.dump, entry));
            is_other.then(|| (*other, described(part.dump, entry)))
        });
        others.take(MOST_LISTED).collect()
    }

    /// Returns the first message of a channel for which a rank waits: one that has no other with the same place in the order of those between
    /// both ranks, or else one under way.
    fn message(&self, number: usize, rank: u32, of: (u32, u32, bool)) -> Option<Waiting<'a>> {
        let series = &self.series[number];
        let part = &series.parts[&rank];
        let (from, to, is_send) = of;
        let other = if is_send { to } else { from };
        let peer = match &series.identity {
            Identity::World => Some(other),
            Identity::Listed(_, ranks) => ranks.get(other as usize).copied(),
            Identity::Named(..) => None,
        };
        let other = peer.and_then(|peer| series.parts.get(&peer));
        let count = other
            .and_then(|other| other.messages.get(&(from, to, !is_send)))
            .map_or(0, Vec::len);
        let has_all = part.has_all_messages();
        let open = part.messages[&of].iter().zip(0..);
        let progress = |entry: &Entry| series.progress(part, entry);
        let open = open.filter(|(entry, _)| progress(entry) != Progress::Over);
        let is_met = |place: usize| has_all && place < count;
        let unmet = open.clone().find(|(_, place)| !is_met(*place));
        let mut known = open.filter(|(entry, _)| progress(entry) == Progress::UnderWay);
        let (entry, place) = unmet.or_else(|| known.next())?;
        // Without entries of the group, it has begun nothing there if its dump has all that it has entered.
        let is_known = |peer: &u32| {
            let has_all_of_peer = other.is_none_or(Part::has_all_messages);
            let is_certain = has_all && has_all_of_peer && progress(entry) == Progress::UnderWay;
            is_certain && series.is_judged() && self.certain[number].contains_key(peer)
        };
        let peers = match peer {
            _ if is_met(place) => Vec::new(),
            Some(peer) => vec![peer],
            // Which one it is is not known.
            None => series
                .members
                .iter()
                .copied()
                .filter(|other| *other != rank)
                .collect(),
        };
        let (missing, unknown) = peers.into_iter().partition(is_known);
        let kind = match is_send {
            true => WaitKind::Send,
            false => WaitKind::Receive,
        };
        Some(Waiting {
            row: WaitFor {
                kind,
                object: Some(series.name()),
                peer,
                is_met: is_met(place),
                missing,
                unknown,
                is_guess: true,
                ..WaitFor::default()
            },
            dump: part.dump,
            entry,
            together: None,
        })
    }

    /// Returns where a rank was: in what it waits for, or after the newest operation of its dump.
    fn position(&self, rank: u32, waits: Vec<Waiting<'a>>) -> Position {
        let dumps = self.dumps.get(&rank).map_or(&[][..], Vec::as_slice);
        let newest = dumps
            .iter()
            .filter_map(|dump| Some((*dump, dump.entries.last()?)));
        let newest = newest.max_by_key(|(_, entry)| entry.created_ns);
        let first = waits.first().map(|of| (of.dump, of.entry)).or(newest);
        // It may be in an operation that the dump does not have.
        let parts = self
            .series
            .iter()
            .filter_map(|series| series.parts.get(&rank));
        let has_hidden = dumps.iter().any(|dump| dump.has_other_pending)
            || parts.into_iter().any(Part::has_hidden);
        let is_unknown =
            dumps.is_empty() || self.old.contains(&rank) || waits.is_empty() && has_hidden;
        let stay = match waits.is_empty() {
            true => Stay::Outside,
            false => Stay::InMpi,
        };
        let mut rows: Vec<WaitFor> = waits.into_iter().map(|of| of.row).collect();
        if let (Stay::Outside, Some((_, entry))) = (stay, newest) {
            rows.extend(self.last_row(rank, entry));
        }
        let path = first.and_then(|(dump, entry)| {
            let path = entry.call_path?;
            Some(dump.call_paths[path as usize].clone())
        });
        let since_ns = first.map_or(0, |(_, entry)| entry.created_ns);
        Position {
            rank,
            thread: None,
            pid: 0,
            thread_id: 0,
            host: String::new(),
            boot_id: String::new(),
            ending: Ending {
                life: match is_unknown {
                    true => Life::Unknown,
                    false => Life::UntilEnd,
                },
                ..Ending::UNKNOWN
            },
            stay,
            function: first.map(|(dump, entry)| dump.name(entry).to_owned()),
            waits: rows,
            is_any: false,
            regions: path.unwrap_or_default(),
            is_partial: false,
            since_ns,
            progress_ns: None,
            last_ns: newest.map(|(_, entry)| entry.created_ns),
        }
    }

    /// Returns which operation of its group the newest one of a rank is.
    fn last_row(&self, rank: u32, entry: &Entry) -> Option<WaitFor> {
        let is_in = |part: &&Part<'a>| {
            let newest = part.operations.last();
            newest.is_some_and(|of| std::ptr::eq(*of, entry))
        };
        let mut series = self.series.iter();
        let series = series.find(|of| of.parts.get(&rank).filter(is_in).is_some())?;
        Some(WaitFor {
            kind: WaitKind::Collective,
            object: Some(series.name()),
            number: Some(entry.sequence),
            is_met: true,
            ..WaitFor::default()
        })
    }

    fn answer(self, findings: Findings) -> DumpFindings {
        let mut overwritten = Vec::new();
        for (rank, dumps) in &self.dumps {
            let count: u64 = dumps.iter().filter_map(|dump| dump.overwritten).sum();
            overwritten.extend((count != 0).then_some((*rank, count)));
        }
        let mut spans = Vec::new();
        for series in &self.series {
            for (rank, part) in &series.parts {
                let first = part.operations.first();
                spans.extend(first.map(|first| Span {
                    rank: *rank,
                    group: series.name(),
                    first: first.sequence,
                    last: part.last,
                }));
            }
        }
        let unjudged = self.series.iter().filter(|of| !of.is_judged());
        let unjudged: BTreeSet<String> = unjudged.map(Series::name).collect();
        DumpFindings {
            findings,
            overwritten,
            outdated: self.old.into_iter().collect(),
            spans,
            unjudged_groups: unjudged.into_iter().collect(),
        }
    }
}

/// Returns an operation with what others may have otherwise.
fn described(dump: &Dump, entry: &Entry) -> String {
    let name = dump.name(entry);
    let elements = entry.elements[0].or(entry.elements[1]);
    let element_type = entry
        .element_type
        .map(|number| &dump.names[number as usize]);
    match (elements, element_type) {
        (Some(count), Some(element_type)) => format!("{name} of {count} {element_type}"),
        (Some(count), None) => format!("{name} of {count} elements"),
        _ => name.to_owned(),
    }
}
