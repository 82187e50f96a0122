//! What the ranks of a training job have entered, by series of operations: those of a group with one library.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use annals_foreign::flight::{Dump, Entry, Group, State};
use rustc_hash::FxHashMap;

/// The dump of a rank. One rank may have several, of different recorders.
#[derive(Clone, Debug)]
pub struct RankDump {
    /// Its rank.
    pub rank: u32,
    /// What it says.
    pub dump: Dump,
}

/// What makes a group the same one on several ranks.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Identity {
    /// All ranks of the job.
    World,
    /// A name and the ranks of the job.
    Listed(String, Arc<Vec<u32>>),
    /// A name and a description: groups of other ranks may have both as well, so that nothing follows from its numbers.
    Named(String, String),
}

/// Whether an operation is under way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Progress {
    Over,
    UnderWay,
    Unknown,
}

/// What a rank has entered of a series.
#[derive(Debug)]
pub(super) struct Part<'a> {
    pub(super) dump: &'a Dump,
    pub(super) group: &'a Group,
    /// Collective operations by number. Those that are launched together share one.
    pub(super) operations: Vec<&'a Entry>,
    /// Messages by source and destination in the group, sends and receives apart, the oldest first.
    pub(super) messages: BTreeMap<(u32, u32, bool), Vec<&'a Entry>>,
    /// The smallest number of a launch of messages.
    first_launch: u64,
    /// The largest number that it is known to have entered.
    pub(super) last: u64,
    /// Whether it has entered no later one.
    pub(super) is_certain: bool,
}

impl<'a> Part<'a> {
    fn new(dump: &'a Dump, group: &'a Group) -> Self {
        let enqueued = group.status.and_then(|status| status.enqueued);
        Self {
            dump,
            group,
            operations: Vec::new(),
            messages: BTreeMap::new(),
            first_launch: u64::MAX,
            last: 0,
            // Otherwise it has entered what is not among the entries.
            is_certain: enqueued.unwrap_or(0) <= group.largest,
        }
    }

    fn add(&mut self, entry: &'a Entry) {
        self.last = self.last.max(entry.sequence);
        if let Some((from, to)) = entry.channel {
            let is_send = operation(self.dump.name(entry)) == "send";
            let channel = self.messages.entry((from, to, is_send));
            channel.or_default().push(entry);
            self.first_launch = self.first_launch.min(entry.launch);
        } else if !entry.is_message {
            self.operations.push(entry);
            self.is_certain &= entry.sequence != 0;
        }
    }

    /// Returns the only operation with a number. `None`: there is none, or there are several.
    pub(super) fn single(&self, sequence: u64) -> Option<&'a Entry> {
        let from = self
            .operations
            .partition_point(|entry| entry.sequence < sequence);
        let mut with_number = self.operations[from..]
            .iter()
            .take_while(|entry| entry.sequence == sequence);
        let first = with_number.next();
        first.filter(|_| with_number.next().is_none()).copied()
    }

    /// Returns whether an operation is under way.
    fn progress(&self, entry: &Entry, library: &str, are_ends_retired: bool) -> Progress {
        // Others than NCCL count all operations in the status.
        let status = self.group.status.filter(|_| entry.number != 0);
        let is_over = status.map(|status| entry.number <= status.completed.unwrap_or(0));
        match (entry.state, entry.is_retired, is_over) {
            (State::Completed, ..) => Progress::Over,
            (State::Started, ..) | (_, Some(false), _) => Progress::UnderWay,
            // What NCCL's recorder retires without an end has timed out; some of others retire what they have only begun.
            _ if library.contains("ccl") => Progress::UnderWay,
            (_, Some(true), _) if are_ends_retired => Progress::Over,
            (_, Some(true), Some(true)) => Progress::Over,
            (_, _, Some(false)) => Progress::UnderWay,
            _ => Progress::Unknown,
        }
    }

    /// Returns whether the rank has entered something that is not among the entries and not complete.
    pub(super) fn has_hidden(&self) -> bool {
        !self.is_certain && self.group.status.is_some_and(|status| status.is_pending())
    }

    /// Returns whether every message of the rank in the group is among the entries.
    pub(super) fn has_all_messages(&self) -> bool {
        self.dump.is_whole() && (self.messages.is_empty() || self.first_launch <= 1)
    }
}

/// The operations of a group with one library.
#[derive(Debug)]
pub(super) struct Series<'a> {
    pub(super) identity: Identity,
    pub(super) library: String,
    /// Whether what is retired is over: others of the library are not retired.
    are_ends_retired: bool,
    /// The ranks of the group.
    pub(super) members: Arc<Vec<u32>>,
    /// By rank: what its dump has. A rank without an entry here is unknown.
    pub(super) parts: BTreeMap<u32, Part<'a>>,
    /// All members have entered the operations up to this number: one of them has completed it, and needs all for that.
    pub(super) done: u64,
    /// All members are known to have entered the operations up to this number.
    pub(super) entered: u64,
    /// The first number that not all members of which that is certain have entered.
    pub(super) frontier: u64,
    /// The first number at which members have entered different operations, of which one is under way.
    pub(super) mismatch: Option<u64>,
}

/// Returns the name of an operation without its library.
pub(super) fn operation(name: &str) -> &str {
    name.rsplit_once(':')
        .map_or(name, |(_, operation)| operation)
}

/// Returns the library of an operation's name.
fn library(name: &str) -> &str {
    name.rsplit_once(':').map_or("", |(library, _)| library)
}

/// Returns an operation's name without underscores, which differ between libraries.
fn plain(name: &str) -> String {
    operation(name).replace('_', "").to_ascii_lowercase()
}

/// Returns whether no member can complete an operation before all have entered it.
pub(super) fn needs_all(name: &str) -> bool {
    let plain = plain(name);
    let kinds = ["allreduce", "allgather", "reducescatter", "alltoall"];
    kinds.iter().any(|kind| plain.starts_with(kind)) || plain == "barrier"
}

/// Returns whether two members do not agree about an operation.
pub(super) fn differ(one: (&Dump, &Entry), other: (&Dump, &Entry)) -> bool {
    let names = [one, other].map(|(dump, entry)| plain(dump.name(entry)));
    if names[0] != names[1] {
        return true;
    }
    // Only where the rule is that all have as many: parts of other operations may differ.
    let compared = match names[0].as_str() {
        "allreduce" | "broadcast" | "reduce" | "allgatherbase" => Some(0),
        "reducescatterbase" => Some(1),
        _ => None,
    };
    let Some(side) = compared else {
        return false;
    };
    let [own, others] = [one, other].map(|(dump, entry)| {
        let element_type = entry
            .element_type
            .map(|number| &dump.names[number as usize]);
        (entry.elements[side], element_type)
    });
    let differ_known = |a: Option<u64>, b: Option<u64>| a.is_some() && b.is_some() && a != b;
    differ_known(own.0, others.0) || own.1.is_some() && others.1.is_some() && own.1 != others.1
}

/// Returns what makes a group the same one on other ranks. `are_lists_trusted`: lists have ranks of the job.
fn identity(dump: &Dump, group: &Group, are_lists_trusted: bool) -> Identity {
    let is_double = |other: &&Group| match &group.name {
        Some(_) => (&other.name, &other.description) == (&group.name, &group.description),
        None => other.ranks == group.ranks,
    };
    let name = group.name.clone().unwrap_or_default();
    if dump.groups.iter().filter(is_double).count() > 1 {
        return Identity::Named(name, group.description.clone());
    }
    match &group.ranks {
        _ if group.description == "default_pg" => Identity::World,
        Some(ranks) if are_lists_trusted => Identity::Listed(name, ranks.clone()),
        _ => Identity::Named(name, group.description.clone()),
    }
}

/// Returns all series. `world`: the ranks of the job.
pub(super) fn series<'a>(dumps: &'a [RankDump], world: &Arc<Vec<u32>>) -> Vec<Series<'a>> {
    // Some recorders list ranks of the group instead: then a rank is not among those of its groups.
    let mut lists = dumps
        .iter()
        .flat_map(|of| of.dump.listed.iter().map(|ranks| (of.rank, ranks)));
    let are_lists_trusted = lists.all(|(rank, ranks)| ranks.contains(&rank));
    let mut numbers: BTreeMap<(Identity, &str), usize> = BTreeMap::new();
    let mut all: Vec<Series<'a>> = Vec::new();
    for of in dumps {
        let dump = &of.dump;
        let groups = dump.groups.iter();
        let identities = groups.map(|group| identity(dump, group, are_lists_trusted));
        let identities: Vec<Identity> = identities.collect();
        let mut known: FxHashMap<(u32, u32), usize> = FxHashMap::default();
        for entry in &dump.entries {
            let number = *known.entry((entry.group, entry.name)).or_insert_with(|| {
                let identity = &identities[entry.group as usize];
                let library = library(dump.name(entry));
                let key = (identity.clone(), library);
                *numbers.entry(key).or_insert_with(|| {
                    all.push(Series::new(identity, library, world));
                    all.len() - 1
                })
            });
            let parts = &mut all[number].parts;
            let group = &dump.groups[entry.group as usize];
            let part = parts.entry(of.rank);
            part.or_insert_with(|| Part::new(dump, group)).add(entry);
        }
    }
    let open = all.iter().filter(|series| series.has_unretired());
    let open: BTreeSet<String> = open.map(|series| series.library.clone()).collect();
    for series in &mut all {
        series.are_ends_retired = open.contains(&series.library);
        for part in series.parts.values_mut() {
            part.operations.sort_by_key(|entry| entry.sequence);
        }
        match series.is_judged() {
            true => series.done = series.done(),
            // Those that know a group of this name, or any.
            false if series.parts.len() > 1 => {
                series.members = Arc::new(series.parts.keys().copied().collect());
            }
            false => series.members = Arc::clone(world),
        }
        if series.is_judged() {
            let last = |rank| series.parts.get(rank).map_or(0, |part| part.last);
            let least = series.members.iter().map(last).min();
            series.entered = least.unwrap_or(0).max(series.done);
        }
    }
    all
}

impl<'a> Series<'a> {
    fn new(identity: &Identity, library: &str, world: &Arc<Vec<u32>>) -> Self {
        Self {
            identity: identity.clone(),
            library: library.to_owned(),
            are_ends_retired: false,
            members: match identity {
                Identity::World => Arc::clone(world),
                Identity::Listed(_, ranks) => Arc::clone(ranks),
                Identity::Named(..) => Arc::default(),
            },
            parts: BTreeMap::new(),
            done: 0,
            entered: 0,
            frontier: 0,
            mismatch: None,
        }
    }

    /// Returns whether the numbers of its operations mean the same on all of its ranks.
    pub(super) fn is_judged(&self) -> bool {
        !matches!(self.identity, Identity::Named(..))
    }

    fn has_unretired(&self) -> bool {
        let mut parts = self.parts.values();
        parts.any(|part| {
            let messages = part.messages.values().flatten();
            let mut entries = part.operations.iter().chain(messages);
            entries.any(|of| of.is_retired == Some(false) && of.state == State::Scheduled)
        })
    }

    /// Returns whether an operation of a part is under way.
    pub(super) fn progress(&self, part: &Part<'a>, entry: &Entry) -> Progress {
        part.progress(entry, &self.library, self.are_ends_retired)
    }

    /// Returns what the group is called.
    pub(super) fn name(&self) -> String {
        let group = self.parts.values().next().map(|part| part.group);
        let name = group.and_then(|group| group.name.as_deref()).unwrap_or("?");
        match group.map_or("", |group| &group.description) {
            "" | "undefined" => format!("group {name}"),
            description => description.to_owned(),
        }
    }

    fn done(&self) -> u64 {
        let of_part = |part: &Part<'a>| {
            let entries = part.operations.iter().rev();
            let mut entries = entries.filter(|entry| needs_all(part.dump.name(entry)));
            entries
                .find(|entry| self.progress(part, entry) == Progress::Over)
                .map_or(0, |entry| entry.sequence)
        };
        self.parts.values().map(of_part).max().unwrap_or(0)
    }

    /// Determines the first number that not all have entered, and the first one at which they differ. `certain`: by rank, the last number that is
    /// certain.
    pub(super) fn compare(&mut self, certain: &BTreeMap<u32, u64>) {
        let lasts = self.members.iter().filter_map(|rank| certain.get(rank));
        self.frontier = lasts.min().map_or(u64::MAX, |last| last.saturating_add(1));
        let mut first: BTreeMap<u64, (&Dump, &Entry, bool, bool)> = BTreeMap::new();
        for part in self.parts.values() {
            for entry in &part.operations {
                if part.single(entry.sequence).is_none() {
                    continue;
                }
                let is_open = self.progress(part, entry) == Progress::UnderWay;
                let here = (part.dump, *entry, false, is_open);
                let of = first.entry(entry.sequence).or_insert(here);
                of.2 |= differ((of.0, of.1), (part.dump, entry));
                of.3 |= is_open;
            }
        }
        let mut differing = first.iter().filter(|(_, of)| of.2 && of.3);
        self.mismatch = differing.next().map(|(sequence, _)| *sequence);
    }
}
