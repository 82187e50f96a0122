//! What follows: the graph of waits, and where its chains end.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use annals_merger::missing_ranks;
use rustc_hash::FxHashMap;

use super::endings::{Ending, Life};
use super::evidence::{Evidence, Waiting};
use super::graph::{Edges, Graph, Node, reaching};
use super::positions::{Position, Stay};
use super::standing::{At, Series};
use super::{Finding, FindingKind, Findings, Origin};

/// What the positions of a process's threads are together, and how it ended.
pub(super) struct Facts {
    rank: u32,
    life: Life,
    is_fault: bool,
    since_ns: i64,
    stay: Option<Stay>,
    is_unknown: bool,
    others: Vec<u32>,
}

impl Facts {
    pub(super) fn new(rank: u32, ending: &Ending) -> Self {
        Self {
            rank,
            life: ending.life,
            is_fault: ending.is_fault,
            since_ns: ending.at_ns,
            stay: None,
            is_unknown: false,
            others: Vec::new(),
        }
    }

    /// Returns the facts of a process of which one position is known.
    pub(super) fn of_position(position: &Position) -> Self {
        let mut facts = Self::new(position.rank, &position.ending);
        facts.since_ns = position.since_ns;
        facts.take(position);
        facts
    }

    fn take(&mut self, position: &Position) {
        self.stay = self.stay.max(Some(position.stay));
        for wait in &position.waits {
            self.is_unknown |= !wait.unknown.is_empty();
            self.others
                .extend(wait.others.iter().map(|(rank, _)| *rank));
        }
    }
}

impl Evidence<'_> {
    /// Draws the conclusions.
    pub(super) fn conclude(self) -> Findings {
        let mut graph = Graph::default();
        for member in &self.members {
            graph.add(member.ending.life == Life::Unknown);
        }
        let mut calls: FxHashMap<(Series, u64), Node> = FxHashMap::default();
        let mut positions = Vec::new();
        let mut facts: Vec<Facts> = Vec::new();
        for (number, member) in self.members.iter().enumerate() {
            let mut of_member = Facts::new(member.rank, &member.ending);
            let is_there = matches!(member.ending.life, Life::Running | Life::UntilEnd);
            let mut since_ns = None;
            for location in &member.threads {
                let at = &self.standing.threads[*location];
                let waits = self.waits(number, at);
                let position = self.position(number, *location, &waits, is_any(&self, at));
                of_member.take(&position);
                since_ns = since_ns.max(Some(position.since_ns));
                if is_there {
                    let edges = self.edges(&waits, &position, &mut graph, &mut calls);
                    let goes_on = position.stay == Stay::Outside
                        || waits.iter().all(|of| of.row.others.is_empty())
                            && (edges.is_empty()
                                || waits.iter().any(|of| !of.row.unknown.is_empty()));
                    graph.goes_on[number] |= goes_on;
                    graph.waits[number].extend(edges);
                }
                positions.push(position);
            }
            if is_there {
                of_member.since_ns = since_ns.unwrap_or(of_member.since_ns);
            }
            facts.push(of_member);
        }
        let findings = findings(&graph, &facts);
        let is_running = self
            .members
            .iter()
            .any(|of| of.ending.life == Life::Running);
        let unseen = self
            .members
            .iter()
            .filter(|of| of.ending.life == Life::Unknown);
        let unseen = unseen.map(|member| {
            let process = self.definitions().processes.get(&member.process);
            let host = process.map(|process| self.definitions().string(process.host));
            (member.rank, host.unwrap_or_default().to_owned())
        });
        Findings {
            origin: Origin::Recordings,
            unseen_ranks: unseen.collect(),
            findings,
            positions,
            at_ns: self.end_ns,
            is_running,
            missing_ranks: missing_ranks(self.definitions()),
        }
    }

    /// Adds the waits of a thread to the graph. Returns its edges: with all of its waits in one, or each one for itself if one of them is enough.
    fn edges(
        &self,
        waits: &[Waiting],
        position: &Position,
        graph: &mut Graph,
        calls: &mut FxHashMap<(Series, u64), Node>,
    ) -> Vec<Edges> {
        let mut all = Vec::new();
        let mut each = Vec::new();
        for waiting in waits.iter().filter(|of| !of.missing.is_empty()) {
            let to = match waiting.together {
                // All members of a call wait for the same ones.
                Some(call) => {
                    let node = *calls.entry(call).or_insert_with(|| {
                        let node = graph.add(false);
                        graph.waits[node].push(Edges {
                            to: waiting.missing.clone(),
                            is_any: false,
                        });
                        node
                    });
                    vec![node]
                }
                None => waiting.missing.clone(),
            };
            if position.is_any || waiting.is_any || position.stay == Stay::Polls {
                each.push(Edges { to, is_any: true });
            } else {
                all.extend(to);
            }
        }
        if !all.is_empty() {
            each.push(Edges {
                to: all,
                is_any: false,
            });
        }
        each
    }
}

/// Returns where the chains of waits end. The first nodes of the graph are processes, of each of which there are facts.
pub(super) fn findings(graph: &Graph, facts: &[Facts]) -> Vec<Finding> {
    let can_go_on = graph.can_go_on();
    let is_member = |node: &Node| *node < facts.len();
    let sources = graph.sources();
    let mut findings: Vec<Finding> = Vec::new();
    // Ranks for which the same ones wait are one finding.
    let mut alike: BTreeMap<(FindingKind, Vec<u32>), Finding> = BTreeMap::new();
    let mut add = |kind, members: &[Node], is_stuck: bool| {
        let waiting = reaching(&sources, members);
        let waiting: Vec<Node> = waiting.into_iter().filter(is_member).collect();
        let since = members.iter().map(|of| facts[*of].since_ns);
        let finding = Finding {
            kind,
            since_ns: since.min().unwrap_or(0),
            waiting: ranks(facts, &waiting),
            is_stuck,
            ranks: ranks(facts, members),
        };
        if matches!(kind, FindingKind::Cycle | FindingKind::Mismatch) {
            findings.push(finding);
            return;
        }
        match alike.entry((kind, finding.waiting.clone())) {
            Entry::Vacant(place) => drop(place.insert(finding)),
            Entry::Occupied(mut other) => {
                let other = other.get_mut();
                other.ranks.extend(&finding.ranks);
                other.since_ns = other.since_ns.min(finding.since_ns);
                other.is_stuck |= finding.is_stuck;
            }
        }
    };
    let mut mismatched: BTreeSet<Node> = BTreeSet::new();
    for (number, of) in facts.iter().enumerate() {
        if !of.others.is_empty() && of.life != Life::Ended {
            mismatched.insert(number);
        }
    }
    if !mismatched.is_empty() {
        let members: Vec<Node> = mismatched.iter().copied().collect();
        add(FindingKind::Mismatch, &members, true);
    }
    for sink in graph.sinks() {
        let mut members: Vec<Node> = sink.iter().copied().filter(is_member).collect();
        let is_stuck = members.iter().all(|of| !can_go_on[*of]);
        // Another thread of a rank that waits may be at work: then all wait for that.
        let is_outside = |of: &Node| graph.goes_on[*of] && facts[*of].stay == Some(Stay::Outside);
        let is_held = !is_stuck && sink.len() > 1 && members.iter().any(is_outside);
        if is_held {
            members.retain(is_outside);
        }
        let Some(first) = members.first().copied() else {
            continue;
        };
        let mut waiting = members.iter().flat_map(|of| &sources[*of]);
        let is_waited_for = is_held || waiting.any(|from| sink.binary_search(from).is_err());
        let member = &facts[first];
        let has_ended = member.life == Life::Ended;
        let waits_for_itself = graph.waits[first].iter().any(|of| of.to.contains(&first));
        let kind = if !is_held && (sink.len() > 1 || waits_for_itself) {
            FindingKind::Cycle
        } else if has_ended && (is_waited_for || member.is_fault) {
            FindingKind::Ended
        } else if has_ended || mismatched.contains(&first) {
            continue;
        } else if member.life == Life::Unknown || facts[first].is_unknown {
            FindingKind::Unknown
        } else {
            match facts[first].stay {
                Some(Stay::InMpi) => FindingKind::InCall,
                Some(Stay::Polls) => FindingKind::Polls,
                _ if is_waited_for || facts.len() == 1 => FindingKind::Elsewhere,
                _ => continue,
            }
        };
        add(
            kind,
            &members,
            is_stuck && (kind == FindingKind::Cycle || is_waited_for),
        );
    }
    findings.extend(alike.into_values());
    let is_running = facts.iter().any(|of| of.life == Life::Running);
    in_order(findings, is_running)
}

/// Returns the findings, the most important first, without those that follow from others.
fn in_order(mut findings: Vec<Finding>, is_running: bool) -> Vec<Finding> {
    for finding in &mut findings {
        finding.ranks.sort_unstable();
        finding.ranks.dedup();
    }
    let has_ended = |finding: &Finding| finding.kind == FindingKind::Ended;
    if findings.iter().any(has_ended) {
        // The run ended for it: calls that others were in are no finding.
        findings.retain(|finding| {
            finding.kind != FindingKind::InCall || finding.waiting.is_empty() && is_running
        });
    }
    let importance = |finding: &Finding| match finding.kind {
        FindingKind::Ended => 0,
        FindingKind::Mismatch | FindingKind::Cycle => 1,
        FindingKind::Elsewhere | FindingKind::Polls => 2,
        FindingKind::Unknown => 3,
        FindingKind::InCall => 4,
    };
    findings.sort_by_key(|finding| (importance(finding), finding.since_ns, finding.ranks.clone()));
    findings
}

fn ranks(facts: &[Facts], members: &[Node]) -> Vec<u32> {
    let ranks: BTreeSet<u32> = members.iter().map(|of| facts[*of].rank).collect();
    ranks.into_iter().collect()
}

/// Returns whether one of the requests that a thread waits for is enough.
fn is_any(evidence: &Evidence<'_>, at: &At) -> bool {
    let in_mpi = at
        .frames
        .iter()
        .find(|(region, _)| evidence.standing.is_mpi(*region));
    in_mpi.is_some_and(|(region, _)| {
        let name = evidence
            .definitions()
            .region_name(*region)
            .to_ascii_lowercase();
        name.contains("waitany") || name.contains("waitsome")
    })
}
