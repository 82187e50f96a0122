//! Dumps of PyTorch's flight recorder: simulated jobs that hang because of one rank, which is known here and not to what judges them.

use std::collections::{BTreeMap, BTreeSet};

use annals_analysis::{DumpFindings, Finding, FindingKind, RankDump, dump_findings};
use annals_foreign::flight::Dump;
use serde_json::{Value, json};

/// Number of jobs that are simulated.
const JOBS: u64 = 2_000;

/// Numbers that depend on a seed only.
struct Random(u64);

impl Random {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % most
    }

    fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }
}

/// A step of the program, which all ranks have in one order.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Step {
    /// An operation of a group, its root as a rank of the job.
    Together(&'static str, u64, u32),
    /// A message between ranks of the job.
    Message(u32, u32),
}

/// What the culprit does at its step.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Fault {
    Nothing,
    /// It is somewhere else for ever.
    Stops,
    /// It leaves the step out.
    Skips,
    /// It enters another operation.
    EntersOther,
    /// It has another number of elements.
    HasOtherSize,
}

/// How a recorder writes what is complete.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Style {
    /// States and stamps.
    Nccl,
    /// Retired.
    Gloo,
    /// All is retired; only the status of the group shows what is complete.
    OldGloo,
}

/// What a rank has entered.
#[derive(Clone, Debug)]
struct Entered {
    /// Index of the step in the program.
    step: usize,
    group: usize,
    kind: &'static str,
    size: u64,
    root: u32,
    /// Of a message: sender and receiver in the job.
    ends: Option<(u32, u32)>,
    sequence: u64,
    launch: u64,
    is_complete: bool,
}

struct Job {
    count: u32,
    /// Groups with their ranks; the first has all.
    groups: Vec<Vec<u32>>,
    program: Vec<(usize, Step)>,
    culprit: u32,
    /// The step at which the culprit is at fault, by index in the program.
    fault_at: usize,
    fault: Fault,
    /// Operations that a rank enters before the oldest is complete.
    window: usize,
    is_eager: bool,
    entered: Vec<Vec<Entered>>,
    next: Vec<usize>,
}

const KINDS: [&str; 7] = [
    "all_reduce",
    "_all_gather_base",
    "_reduce_scatter_base",
    "barrier",
    "all_to_all",
    "broadcast",
    "all_gather",
];

fn is_rooted(kind: &str) -> bool {
    kind == "broadcast"
}

impl Job {
    fn new(random: &mut Random) -> Self {
        let most = if random.one_in(4) { 63 } else { 11 };
        let count = 2 + random.below(most) as u32;
        let mut groups = vec![(0..count).collect::<Vec<u32>>()];
        // Rows and columns, as of tensor and data parallel groups, and some others.
        let width = 1 + random.below(u64::from(count.min(8))) as u32;
        if random.one_in(2) {
            let rows = (0..count.div_ceil(width))
                .map(|row| (row * width..count.min((row + 1) * width)).collect());
            groups.extend(rows.collect::<Vec<Vec<u32>>>());
            let columns =
                (0..width).map(|column| (column..count).step_by(width as usize).collect());
            groups.extend(columns.collect::<Vec<Vec<u32>>>());
        }
        for _ in 0..random.below(3) {
            groups.push((0..count).filter(|_| random.one_in(2)).collect());
        }
        groups.retain(|ranks| ranks.len() > 1);
        let mut program = Vec::new();
        for _ in 0..20 + random.below(120) {
            let group = random.below(groups.len() as u64) as usize;
            let ranks = &groups[group];
            let mut one = || ranks[random.below(ranks.len() as u64) as usize];
            let (from, to) = (one(), one());
            let step = match from != to && random.one_in(4) {
                true => Step::Message(from, to),
                false => {
                    let kind = KINDS[random.below(KINDS.len() as u64) as usize];
                    Step::Together(kind, 1 + random.below(4), from)
                }
            };
            program.push((group, step));
        }
        let culprit = random.below(u64::from(count)) as u32;
        let own = program.iter().zip(0..);
        let own = own.filter(|((group, step), _)| takes_part(&groups[*group], *step, culprit));
        let own: Vec<usize> = own.map(|(_, at)| at).collect();
        let faults = [
            Fault::Stops,
            Fault::Stops,
            Fault::Stops,
            Fault::Skips,
            Fault::EntersOther,
            Fault::HasOtherSize,
            Fault::Nothing,
        ];
        let fault = match own.is_empty() {
            true => Fault::Nothing,
            false => faults[random.below(faults.len() as u64) as usize],
        };
        Self {
            count,
            culprit,
            fault_at: own
                .get(random.below(own.len().max(1) as u64) as usize)
                .copied()
                .unwrap_or(0),
            fault,
            window: 1 + random.below(5) as usize,
            is_eager: random.one_in(2),
            entered: vec![Vec::new(); count as usize],
            next: vec![0; count as usize],
            groups,
            program,
        }
    }

    /// Lets a rank enter its next operation, if it may. Returns whether it did.
    fn enter(&mut self, rank: u32) -> bool {
        let own = &self.entered[rank as usize];
        if own.iter().filter(|of| !of.is_complete).count() >= self.window {
            return false;
        }
        while let Some((group, step)) = self.program.get(self.next[rank as usize]).copied() {
            let at = self.next[rank as usize];
            let is_at_fault = rank == self.culprit && at == self.fault_at;
            if is_at_fault && self.fault == Fault::Stops {
                return false;
            }
            self.next[rank as usize] += 1;
            let is_skipped = is_at_fault && self.fault == Fault::Skips;
            if is_skipped || !takes_part(&self.groups[group], step, rank) {
                continue;
            }
            let own = &self.entered[rank as usize];
            let in_group = own.iter().filter(|of| of.group == group);
            let sequence = in_group.clone().filter(|of| of.ends.is_none()).count() as u64;
            let launch = in_group.filter(|of| of.ends.is_some()).count() as u64;
            let entered = match step {
                Step::Together(kind, size, root) => Entered {
                    step: at,
                    group,
                    kind: match is_at_fault && self.fault == Fault::EntersOther {
                        true if kind == "barrier" => "all_reduce",
                        true => "barrier",
                        false => kind,
                    },
                    size: size + u64::from(is_at_fault && self.fault == Fault::HasOtherSize),
                    root,
                    ends: None,
                    sequence: sequence + 1,
                    launch,
                    is_complete: false,
                },
                Step::Message(from, to) => Entered {
                    step: at,
                    group,
                    kind: if rank == from { "send" } else { "recv" },
                    size: 1,
                    root: 0,
                    ends: Some((from, to)),
                    sequence,
                    launch: launch + 1,
                    is_complete: false,
                },
            };
            self.entered[rank as usize].push(entered);
            return true;
        }
        false
    }

    /// Returns whether an operation of a rank is complete when all before it in its group are.
    fn can_complete(&self, rank: u32, of: &Entered, own: &[Entered]) -> bool {
        if let Some((from, to)) = of.ends {
            if of.kind == "send" && self.is_eager {
                return true;
            }
            let is_like = |other: &&Entered| other.ends == of.ends && other.group == of.group;
            let place = own.iter().filter(|other| other.launch < of.launch);
            let place = place.filter(is_like).count();
            let peer = if rank == from { to } else { from };
            let of_peer = self.entered[peer as usize].iter().filter(is_like);
            return of_peer.count() > place;
        }
        let members = &self.groups[of.group];
        let same = |rank: u32| {
            let mut all = self.entered[rank as usize].iter();
            all.find(|other| {
                other.ends.is_none() && (other.group, other.sequence) == (of.group, of.sequence)
            })
        };
        let agrees = |rank: u32| {
            same(rank).is_some_and(|other| (other.kind, other.size) == (of.kind, of.size))
        };
        match is_rooted(of.kind) {
            true => rank == of.root || agrees(of.root),
            false => members.iter().all(|rank| agrees(*rank)),
        }
    }

    /// Runs until nothing moves. Returns the entries of `early` as they were after some rounds.
    fn run(&mut self, random: &mut Random, early: u32) -> Vec<Entered> {
        let mut snapshot = None;
        let snapshot_at = random.below(300);
        let mut has_moved = true;
        for round in 0.. {
            // When nothing has moved, all are tried.
            let are_all = !has_moved;
            has_moved = false;
            for rank in 0..self.count {
                if are_all || !random.one_in(3) {
                    has_moved |= self.enter(rank) | self.complete(rank);
                }
            }
            if round == snapshot_at {
                snapshot = Some(self.entered[early as usize].clone());
            }
            if are_all && !has_moved {
                break;
            }
        }
        snapshot.unwrap_or_else(|| self.entered[early as usize].clone())
    }

    /// Completes what can be of a rank, in the order of each group and channel.
    fn complete(&mut self, rank: u32) -> bool {
        let own = self.entered[rank as usize].clone();
        let mut held = BTreeSet::new();
        let mut has_moved = false;
        for (place, of) in own.iter().enumerate() {
            if of.is_complete || held.contains(&(of.group, of.ends)) {
                continue;
            }
            if self.can_complete(rank, of, &own) {
                self.entered[rank as usize][place].is_complete = true;
                has_moved = true;
            } else {
                held.insert((of.group, of.ends));
            }
        }
        has_moved
    }
}

fn takes_part(group: &[u32], step: Step, rank: u32) -> bool {
    match step {
        Step::Together(..) => group.contains(&rank),
        Step::Message(from, to) => rank == from || rank == to,
    }
}

/// What the recorders of a job have in common.
struct Recorder {
    style: Style,
    /// Ranks of groups are listed, as those of the job.
    has_lists: bool,
    has_status: bool,
    /// Entries of a ring.
    size: usize,
}

impl Recorder {
    fn new(random: &mut Random, job: &Job) -> Self {
        let style = [Style::Nccl, Style::Nccl, Style::Gloo, Style::OldGloo];
        let style = style[random.below(4) as usize];
        Self {
            style,
            has_lists: !random.one_in(3),
            has_status: style == Style::OldGloo || random.one_in(2),
            size: match random.one_in(2) {
                true => 1 << 16,
                false => job.window + 3 + random.below(60) as usize,
            },
        }
    }

    /// Returns the first of the entries that the ring has.
    fn first(&self, entered: &[Entered]) -> usize {
        entered.len().saturating_sub(self.size)
    }

    fn entry(&self, job: &Job, number: usize, of: &Entered, clock_ns: i64) -> Value {
        let library = if self.style == Style::Nccl {
            "nccl"
        } else {
            "gloo"
        };
        let members = &job.groups[of.group];
        let place = |rank: u32| {
            members
                .iter()
                .position(|other| *other == rank)
                .expect("a member")
        };
        let name = match (of.ends, of.kind) {
            (None, kind) => format!("{library}:{kind}"),
            (Some((from, to)), "send") => format!("{library}:send {}->{}", place(from), place(to)),
            (Some((from, to)), _) => format!("{library}:recv {}<-{}", place(to), place(from)),
        };
        let is_completed = of.is_complete && self.style == Style::Nccl;
        let is_retired = self.style == Style::OldGloo || of.is_complete;
        let description = if of.group == 0 {
            "default_pg"
        } else {
            "undefined"
        };
        let created_ns = 1_795_000_000_000_000_000 + clock_ns + number as i64 * 1_000_000;
        json!({
            "record_id": number, "pg_id": of.group, "process_group": [of.group.to_string(), description],
            "collective_seq_id": of.sequence, "p2p_seq_id": of.launch, "op_id": of.sequence + of.launch,
            "profiling_name": name, "time_created_ns": created_ns,
            "input_sizes": [[of.size, 8]], "output_sizes": [[8, of.size]], "input_dtypes": ["Float"],
            "state": if is_completed { "completed" } else { "scheduled" },
            "time_discovered_started_ns": null,
            "time_discovered_completed_ns": if is_completed { created_ns + 5 } else { 0 },
            "retired": is_retired, "timeout_ms": 600_000, "is_p2p": of.ends.is_some(),
        })
    }

    fn dump(&self, job: &Job, rank: u32, entered: &[Entered], clock_ns: i64) -> Dump {
        let first = self.first(entered);
        let entries = entered.iter().enumerate().skip(first);
        let entries: Vec<Value> = entries
            .map(|(number, of)| self.entry(job, number, of, clock_ns))
            .collect();
        let mut top = json!({"version": "2.10", "entries": entries});
        let mut lists = BTreeMap::new();
        let mut status = BTreeMap::new();
        for (group, ranks) in job.groups.iter().enumerate() {
            let own: Vec<&Entered> = entered.iter().filter(|of| of.group == group).collect();
            if own.is_empty() {
                continue;
            }
            let description = if group == 0 {
                "default_pg"
            } else {
                "undefined"
            };
            let value = json!({"name": group.to_string(), "desc": description, "ranks": format!("{ranks:?}")});
            lists.insert(group.to_string(), value);
            let number = |of: &&&Entered| (of.sequence + of.launch) as i64;
            let last = own.iter().map(|of| number(&of)).max().unwrap_or(-1);
            let open = own.iter().filter(|of| !of.is_complete);
            let completed = open.map(|of| number(&of) - 1).min().unwrap_or(last);
            let value =
                json!({"last_enqueued_collective": last, "last_completed_collective": completed});
            status.insert(group.to_string(), value);
        }
        match self.has_lists {
            true => top["pg_config"] = json!(lists),
            // One list under no name, of ranks of the group.
            false => {
                let ranks: Vec<u32> = (0..job.count).collect();
                top["pg_config"] =
                    json!({"": {"name": "", "desc": "", "ranks": format!("{ranks:?}")}});
            }
        }
        if self.has_status {
            top["pg_status"] = json!(status);
        }
        let text = top.to_string();
        let dump = Dump::parse(text.as_bytes(), 1 << 16);
        dump.unwrap_or_else(|error| panic!("rank {rank}: {error}"))
    }
}

impl Recorder {
    /// Returns whether the dumps show that one was written before the others: another rank has completed an operation that needs all, and of whose
    /// group the dump has only earlier ones. Otherwise a rank that is at work until it enters an operation looks as one that never does.
    fn shows_age(
        &self,
        job: &Job,
        present: &BTreeSet<u32>,
        early: u32,
        snapshot: &[Entered],
    ) -> bool {
        // If all is retired, and nothing else says what is complete, it may be retired before.
        let all = present.iter().flat_map(|rank| &job.entered[*rank as usize]);
        let are_some_open = all.chain(snapshot).any(|of| !of.is_complete);
        if self.style == Style::Gloo && !self.has_status && !are_some_open {
            return false;
        }
        let mut shown = snapshot[self.first(snapshot)..].iter();
        shown.any(|own| {
            let in_group = snapshot.iter().filter(|of| of.group == own.group);
            let last = in_group.map(|of| of.sequence).max().unwrap_or(0);
            let others = present.iter().filter(|rank| **rank != early);
            let mut entries = others.flat_map(|rank| {
                let all = &job.entered[*rank as usize];
                &all[self.first(all)..]
            });
            let is_identified = own.group == 0 || self.has_lists;
            is_identified
                && entries.any(|of| {
                    let needs_all = of.ends.is_none() && !is_rooted(of.kind) && of.is_complete;
                    needs_all && of.group == own.group && of.sequence > last
                })
        })
    }
}

/// A job that has come to rest, and the dumps of most of its ranks.
struct Case {
    job: Job,
    recorder: Recorder,
    present: BTreeSet<u32>,
    /// A rank whose dump was written before the others'.
    early: Option<u32>,
    found: DumpFindings,
}

fn case(seed: u64) -> Case {
    let mut random = Random(seed);
    let mut job = Job::new(&mut random);
    let early = random.below(u64::from(job.count)) as u32;
    let snapshot = job.run(&mut random, early);
    let recorder = Recorder::new(&mut random, &job);
    let are_some_missing = random.one_in(4);
    let mut present: BTreeSet<u32> = (0..job.count).collect();
    present.retain(|_| !are_some_missing || !random.one_in(8));
    let is_old = recorder.shows_age(&job, &present, early, &snapshot);
    let early = (is_old && random.one_in(4)).then_some(early);
    let dumps: Vec<RankDump> = present
        .iter()
        .map(|rank| {
            let entered = match early == Some(*rank) {
                true => &snapshot,
                false => &job.entered[*rank as usize],
            };
            let clock_ns = random.below(20_000_000_000) as i64 - 10_000_000_000;
            let dump = recorder.dump(&job, *rank, entered, clock_ns);
            RankDump { rank: *rank, dump }
        })
        .collect();
    let found = dump_findings(&dumps, &[]);
    Case {
        job,
        recorder,
        present,
        early,
        found,
    }
}

impl Case {
    /// Returns the entries that the dump of a rank has, if it was written when the job was at rest.
    fn shown(&self, rank: u32) -> &[Entered] {
        let all = &self.job.entered[rank as usize];
        match self.present.contains(&rank) && self.early != Some(rank) {
            true => &all[self.recorder.first(all)..],
            false => &[],
        }
    }

    fn is_whole(&self, rank: u32) -> bool {
        self.shown(rank).len() == self.job.entered[rank as usize].len()
    }

    /// Returns whether the ranks of a group are in the dumps.
    fn is_identified(&self, group: usize) -> bool {
        group == 0 || self.recorder.has_lists
    }

    /// Returns whether a finding is about a rank, or about others that have entered something else than it.
    fn concerns(&self, finding: &Finding, rank: u32) -> bool {
        let positions = self.found.findings.positions_of(&finding.ranks);
        let mut others = positions
            .flat_map(|of| &of.waits)
            .flat_map(|wait| &wait.others);
        finding.ranks.contains(&rank) || others.any(|(other, _)| *other == rank)
    }

    /// Returns whether the data decide that the culprit stopped: it has a dump, which shows the last operation that it has entered in the group of its next one, or has all
    /// that it has entered; and the dump of another rank shows that this waits in the next one of that group, which needs the culprit. Of
    /// messages, both dumps must have all that their ranks have entered.
    fn decides_a_stop(&self) -> bool {
        let culprit = self.job.culprit;
        if !self.present.contains(&culprit) || self.early == Some(culprit) {
            return false;
        }
        let (group, step) = self.job.program[self.job.fault_at];
        if !self.is_identified(group) {
            return false;
        }
        let others = (0..self.job.count).filter(|rank| *rank != culprit);
        let mut waiting = others.filter(|rank| {
            let mut shown = self.shown(*rank).iter();
            let is_shown = shown.any(|of| of.step == self.job.fault_at && !of.is_complete);
            is_shown && (matches!(step, Step::Together(..)) || self.is_whole(*rank))
        });
        let is_known = match step {
            Step::Together(..) => {
                let mut own = self.shown(culprit).iter();
                self.is_whole(culprit) && !self.shown(culprit).is_empty()
                    || own.any(|of| of.group == group)
            }
            Step::Message(..) => self.is_whole(culprit) && !self.shown(culprit).is_empty(),
        };
        is_known && waiting.next().is_some()
    }

    /// Returns whether the data decide that the culprit entered something else: its dump shows that, and the dump of another rank the operation
    /// with the same number, which is not complete; what differs is the operation, or a size that has to be the same.
    fn decides_a_mismatch(&self) -> bool {
        let culprit = self.job.culprit;
        let mut own = self.shown(culprit).iter();
        let Some(own) = own.find(|of| of.step == self.job.fault_at && of.ends.is_none()) else {
            return false;
        };
        let others = (0..self.job.count).filter(|rank| *rank != culprit);
        let mut others = others.flat_map(|rank| self.shown(rank));
        self.is_identified(own.group)
            && !own.is_complete
            && others.any(|of| {
                let is_same =
                    (of.group, of.sequence) == (own.group, own.sequence) && of.ends.is_none();
                let has_size = !matches!(own.kind, "all_to_all" | "all_gather" | "barrier");
                is_same
                    && !of.is_complete
                    && (of.kind != own.kind || has_size && of.size != own.size)
            })
    }
}

#[test]
fn no_healthy_rank_is_accused_and_the_culprit_is_named_where_the_data_decide() {
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for seed in 0..JOBS {
        let case = case(seed);
        let job = &case.job;
        let culprit = job.culprit;
        let shown = || {
            format!(
                "seed {seed}: {:?} {:?} rank {culprit}: {:?}",
                job.fault, case.recorder.style, case.found.findings.findings
            )
        };
        let named = |kind: FindingKind| {
            let mut all = case.found.findings.findings.iter();
            all.any(|of| of.kind == kind && case.concerns(of, culprit))
        };
        for finding in &case.found.findings.findings {
            let is_accused = match finding.kind {
                FindingKind::Unknown => continue,
                FindingKind::InCall => !finding.waiting.is_empty(),
                _ => true,
            };
            let is_right = match finding.kind {
                FindingKind::Mismatch | FindingKind::Cycle => case.concerns(finding, culprit),
                // In an operation that all have entered: each member, in several findings.
                FindingKind::InCall => named(FindingKind::InCall),
                _ => finding.ranks == [culprit],
            };
            assert!(
                !is_accused || job.fault != Fault::Nothing && is_right,
                "{}",
                shown()
            );
        }
        let decided = match job.fault {
            Fault::Stops if case.decides_a_stop() => {
                assert!(named(FindingKind::Elsewhere), "{}", shown());
                "stop"
            }
            Fault::EntersOther | Fault::HasOtherSize if case.decides_a_mismatch() => {
                assert!(named(FindingKind::Mismatch), "{}", shown());
                "mismatch"
            }
            Fault::Stops | Fault::EntersOther | Fault::HasOtherSize => "undecided",
            Fault::Skips | Fault::Nothing => "other",
        };
        *counts.entry(decided).or_default() += 1;
    }
    // The rule is tested where it decides.
    assert!(
        counts["stop"] > JOBS / 5 && counts["mismatch"] > JOBS / 20,
        "{counts:?}"
    );
}
