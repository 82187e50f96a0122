//! What is known when all was read: which ranks have done their part, and which ones wait for which.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

use annals_format::{CollectiveOperation, Definitions, LocationId, ProcessId};
use annals_merger::ReadSummary;
use rustc_hash::FxHashMap;

use super::endings::Life;
use super::members::{Member, absent_ranks, members};
use super::positions::{Position, Stay, WaitFor, WaitKind};
use super::standing::{At, Begin, Channel, Done, Operation, Peer, Series, Signature, Standing};

/// Largest number of ranks that a receive from any of them is followed to.
const MOST_SENDERS: usize = 4096;

/// Largest number of ranks that the row of a wait lists.
const MOST_LISTED: usize = 1024;

/// Everything that is known.
pub(super) struct Evidence<'a> {
    pub(super) standing: Standing<'a>,
    locations: Vec<LocationId>,
    pub(super) members: Vec<Member>,
    /// By process, the number of the member.
    numbers: FxHashMap<ProcessId, usize>,
    /// By communicator, window or file: its members, sorted.
    of_object: FxHashMap<u64, Vec<usize>>,
    of_world: FxHashMap<usize, Vec<usize>>,
    /// By world, the ranks without a recording.
    absent: FxHashMap<usize, Vec<u32>>,
    names: FxHashMap<u64, String>,
    pub(super) end_ns: i64,
    nothing: Done,
    /// Those that were asked for.
    sides: RefCell<FxHashMap<(Series, u64), Rc<Sides>>>,
}

/// What members have done for a call that is made together.
#[derive(Default)]
struct Sides {
    begun: Vec<(usize, Begin)>,
    missing: Vec<usize>,
    unknown: Vec<usize>,
}

/// A wait, and what it is for in the graph.
#[derive(Default)]
pub(super) struct Waiting {
    pub(super) row: WaitFor,
    /// Members that have not done their part.
    pub(super) missing: Vec<usize>,
    pub(super) is_any: bool,
    /// The call that several make together.
    pub(super) together: Option<(Series, u64)>,
}

impl<'a> Evidence<'a> {
    pub(super) fn new(
        mut standing: Standing<'a>,
        locations: &[LocationId],
        summary: &ReadSummary,
        end_ns: i64,
    ) -> Self {
        for loss in &summary.losses {
            if !loss.cause.is_suppressed() {
                standing.note_loss(loss);
            }
        }
        let definitions = standing.definitions();
        let members = members(&standing, summary);
        let numbers: FxHashMap<ProcessId, usize> =
            members.iter().map(|of| of.process).zip(0..).collect();
        let mut of_object: FxHashMap<u64, Vec<usize>> = FxHashMap::default();
        let mut names = FxHashMap::default();
        for (id, object) in &definitions.objects {
            let Some(number) = standing.peers.object(*id) else {
                continue;
            };
            let name = definitions.string(object.name).to_owned();
            names.entry(number).or_insert(name);
            if let Some(member) = numbers.get(&object.process) {
                of_object.entry(number).or_default().push(*member);
            }
        }
        of_object.values_mut().for_each(|of| {
            of.sort_unstable();
            of.dedup();
        });
        let mut of_world: FxHashMap<usize, Vec<usize>> = FxHashMap::default();
        for (number, member) in members.iter().enumerate() {
            if let Some(world) = standing.peers.world(member.process) {
                of_world.entry(world).or_default().push(number);
            }
        }
        let absent = absent_ranks(definitions, &members, &of_world);
        Self {
            standing,
            locations: locations.to_vec(),
            members,
            numbers,
            of_object,
            absent,
            of_world,
            names,
            end_ns,
            nothing: Done::default(),
            sides: RefCell::default(),
        }
    }

    /// Returns whether every event was read.
    pub(super) fn is_whole(&self) -> bool {
        self.members.iter().all(|member| member.is_whole)
    }

    pub(super) fn definitions(&self) -> &Definitions {
        self.standing.definitions()
    }

    fn done(&self, member: usize) -> &Done {
        let process = self.members[member].process;
        self.standing
            .processes
            .get(&process)
            .unwrap_or(&self.nothing)
    }

    /// Returns whether what is not among a member's events has not happened: nothing was lost since `known_ns`, the last event of
    /// the kind, and all was read if there is none.
    fn is_certain(&self, member: usize, is_of_series: bool, known_ns: Option<i64>) -> bool {
        let of = &self.members[member];
        let is_left_out = match is_of_series {
            true => of.lacks.series,
            false => of.lacks.messages,
        };
        let lost_ns = self.done(member).lost_ns;
        of.ending.life != Life::Unknown
            && !is_left_out
            && (of.is_whole || known_ns.is_some())
            && (lost_ns.is_none() || lost_ns <= known_ns)
    }

    fn name_of(&self, object: Option<u64>) -> Option<String> {
        self.names.get(&object?).cloned()
    }

    pub(super) fn ranks(&self, members: &[usize]) -> Vec<u32> {
        let ranks: BTreeSet<u32> = members.iter().map(|of| self.members[*of].rank).collect();
        ranks.into_iter().collect()
    }

    /// Returns the ranks of the first of some members.
    fn listed(&self, members: &[usize]) -> Vec<u32> {
        self.ranks(&members[..members.len().min(MOST_LISTED)])
    }

    fn members_of(&self, series: Series) -> &[usize] {
        let found = match series {
            Series::Collective(object, _)
            | Series::Call(object)
            | Series::Fence(object)
            | Series::File(object) => self.of_object.get(&object),
            Series::Init(world) | Series::Finalize(world) => self.of_world.get(&world),
        };
        found.map_or(&[], Vec::as_slice)
    }

    /// Returns the ranks without a recording that may have to make a call of a series.
    fn absent_of(&self, of: usize, series: Series) -> &[u32] {
        let is_whole = match series {
            Series::Collective(object, _) | Series::Call(object) => {
                let size = self.standing.sizes.get(&object);
                size.is_some_and(|size| self.members_of(series).len() as u64 >= *size)
            }
            _ => false,
        };
        let world = self.standing.peers.world(self.members[of].process);
        let absent = world.and_then(|world| self.absent.get(&world));
        absent.filter(|_| !is_whole).map_or(&[], Vec::as_slice)
    }

    /// Returns the newest begin of a series by a member, and the one with a number.
    fn begins(
        &self,
        member: usize,
        series: Series,
        number: u64,
    ) -> (Option<&Begin>, Option<&Begin>) {
        let Some(begun) = self.done(member).begun.get(&series) else {
            return (None, None);
        };
        let newest = begun.iter().max_by_key(|begin| begin.number);
        (newest, begun.iter().find(|begin| begin.number == number))
    }

    /// Returns the name of what a member does in a call that is made together: its operation, or its call.
    fn other_call(&self, begin: &Begin) -> String {
        let code = begin
            .signature
            .operation
            .and_then(|code| u8::try_from(code).ok());
        let operation = code.and_then(CollectiveOperation::from_code);
        operation.map_or_else(|| "another call".to_owned(), |of| of.name().to_owned())
    }

    /// Returns which members of a call that is made together have begun it, and which have not. All that wait share the answer.
    fn sides(&self, series: Series, number: u64) -> Rc<Sides> {
        if let Some(known) = self.sides.borrow().get(&(series, number)) {
            return Rc::clone(known);
        }
        let mut sides = Sides::default();
        for member in self.members_of(series).iter().copied() {
            let (newest, same) = self.begins(member, series, number);
            if let Some(begin) = same {
                sides.begun.push((member, *begin));
            } else if newest.is_some_and(|begin| begin.number > number) {
                // It was begun: its begin is not among those that were kept or read.
            } else if self.is_certain(member, true, newest.map(|begin| begin.time_ns)) {
                sides.missing.push(member);
            } else {
                sides.unknown.push(member);
            }
        }
        let sides = Rc::new(sides);
        let mut known = self.sides.borrow_mut();
        known.insert((series, number), Rc::clone(&sides));
        sides
    }

    /// Returns the members that have made another call with the same number, and the calls.
    fn others(&self, of: usize, sides: &Sides, own: Signature) -> Vec<(u32, String)> {
        let others = sides.begun.iter();
        let others =
            others.filter(|(member, begin)| *member != of && differs(&own, &begin.signature));
        let describe = |(member, begin): &(usize, Begin)| {
            let other = begin.signature;
            let is_same = other.operation == own.operation;
            let call = self.other_call(begin);
            let call = match other.root.filter(|_| is_same) {
                Some(root) => format!("{call} with root {root}"),
                None if is_same => format!("{call} of {} bytes", other.bytes.unwrap_or(0)),
                None => call,
            };
            (self.members[*member].rank, call)
        };
        others.take(MOST_LISTED).map(describe).collect()
    }

    fn together(&self, of: usize, series: Series, number: u64, signature: Signature) -> Waiting {
        let sides = self.sides(series, number);
        let others = self.others(of, &sides, signature);
        let (missing, unknown) = (&sides.missing, &sides.unknown);
        let mut all_unknown = self.listed(unknown);
        all_unknown.extend(self.absent_of(of, series));
        all_unknown.sort_unstable();
        let (kind, object) = match series {
            Series::Collective(object, _) => (WaitKind::Collective, Some(object)),
            Series::Call(object) => (WaitKind::Call, Some(object)),
            Series::Fence(object) => (WaitKind::Fence, Some(object)),
            Series::File(object) => (WaitKind::File, Some(object)),
            Series::Init(_) => (WaitKind::Init, None),
            Series::Finalize(_) => (WaitKind::Finalize, None),
        };
        let is_numbered = object.is_some();
        let root = signature.root.and_then(|root| {
            let process = self
                .standing
                .peers
                .process(self.members[of].process, root)?;
            Some(self.members[*self.numbers.get(&process)?].rank)
        });
        let begin = Begin {
            number,
            signature,
            time_ns: 0,
        };
        Waiting {
            row: WaitFor {
                operation: signature.operation.map(|_| self.other_call(&begin)),
                object: self.name_of(object),
                number: is_numbered.then_some(number + 1),
                root,
                is_met: missing.is_empty() && all_unknown.is_empty() && others.is_empty(),
                missing: self.listed(missing),
                unknown: all_unknown,
                others,
                ..WaitFor::of(kind)
            },
            missing: missing.clone(),
            is_any: false,
            together: Some((series, number)),
        }
    }

    /// Returns the messages to `of` that were sent and not received, of the channels that a receive takes.
    fn under_way(
        &self,
        of: usize,
        by: usize,
        takes: impl Fn(&Channel) -> bool,
    ) -> Vec<(Channel, u64)> {
        let me = self.members[of].process;
        let sent = self.done(by).sent.iter();
        let to_me = sent.filter(|(channel, _)| channel.peer == Peer::Known(me));
        let from = Peer::Known(self.members[by].process);
        let each = to_me.filter_map(|(channel, count)| {
            let from_it = Channel {
                peer: from,
                ..*channel
            };
            let received = self.done(of).received.get(&from_it);
            let left = count
                .next
                .saturating_sub(received.map_or(0, |count| count.next));
            (left != 0 && takes(&from_it)).then_some((from_it, left))
        });
        let mut each: Vec<(Channel, u64)> = each.collect();
        each.sort_by_key(|(channel, _)| (channel.communicator, channel.tag));
        each
    }

    fn receive(&self, of: usize, channel: Channel, sequence: Option<u64>) -> Waiting {
        let senders: Vec<usize> = match channel.peer {
            Peer::Known(process) => self.numbers.get(&process).copied().into_iter().collect(),
            Peer::Unknown(_) => Vec::new(),
            Peer::Any => {
                let of_object = channel
                    .communicator
                    .and_then(|object| self.of_object.get(&object));
                let others = of_object.map_or(&[][..], Vec::as_slice).iter().copied();
                others
                    .filter(|member| *member != of)
                    .take(MOST_SENDERS)
                    .collect()
            }
        };
        let is_sent = |by: usize| {
            let own = Channel {
                peer: Peer::Known(self.members[of].process),
                ..channel
            };
            match sequence.filter(|_| channel.peer != Peer::Any && channel.tag.is_some()) {
                Some(number) => {
                    let sent = self.done(by).sent.get(&own);
                    sent.is_some_and(|count| count.next > number)
                }
                None => !self
                    .under_way(of, by, |from_it| channel.takes(from_it))
                    .is_empty(),
            }
        };
        let is_met = senders.iter().any(|by| is_sent(*by));
        // Of one channel the newest message is known, if any is; of several, only that there is none.
        let last_sent_ns = |by: usize| {
            let own = Channel {
                peer: Peer::Known(self.members[of].process),
                ..channel
            };
            let sent = self.done(by).sent.get(&own);
            sent.filter(|_| sequence.is_some())
                .map(|count| count.last_ns)
        };
        let is_known = |by: &usize| self.is_certain(*by, false, last_sent_ns(*by));
        let (missing, unknown): (Vec<usize>, Vec<usize>) = match is_met {
            true => (Vec::new(), Vec::new()),
            false => senders.iter().copied().partition(is_known),
        };
        let unreceived = senders
            .iter()
            .filter(|_| !is_met && channel.peer != Peer::Any);
        let unreceived = unreceived
            .flat_map(|by| self.under_way(of, *by, |_| true))
            .next()
            .map(|(channel, count)| {
                let name = self.name_of(channel.communicator);
                let tag = channel.tag.and_then(|tag| i64::try_from(tag).ok());
                (tag.unwrap_or(0), name.unwrap_or_default(), count)
            });
        let row = self.message(of, WaitKind::Receive, channel);
        let mut all_unknown = self.ranks(&unknown);
        all_unknown.extend(&row.unknown);
        Waiting {
            row: WaitFor {
                missing: self.ranks(&missing),
                unknown: all_unknown,
                is_met,
                unreceived,
                ..row
            },
            is_any: channel.peer == Peer::Any,
            missing,
            together: None,
        }
    }

    /// Returns what a wait for a message shows.
    fn message(&self, of: usize, kind: WaitKind, channel: Channel) -> WaitFor {
        let peer = match channel.peer {
            Peer::Known(process) => self.numbers.get(&process).map(|of| self.members[*of].rank),
            Peer::Unknown(rank) => {
                let first = self.definitions().first_rank(self.members[of].process);
                u32::try_from(rank)
                    .ok()
                    .map(|rank| rank.saturating_add(first))
            }
            Peer::Any => None,
        };
        let unknown = match channel.peer {
            Peer::Unknown(_) => peer.into_iter().collect(),
            _ => Vec::new(),
        };
        WaitFor {
            object: self.name_of(channel.communicator),
            peer,
            tag: channel.tag.and_then(|tag| i64::try_from(tag).ok()),
            unknown,
            ..WaitFor::of(kind)
        }
    }

    fn send(&self, of: usize, channel: Channel) -> Waiting {
        let me = self.members[of].process;
        let message = Channel {
            peer: Peer::Known(me),
            ..channel
        };
        let to = match channel.peer {
            Peer::Known(process) => self.numbers.get(&process).copied(),
            _ => None,
        };
        let takes = |operation: &Operation| match operation {
            Operation::Receive(receive, _) => receive.takes(&message),
            _ => false,
        };
        let is_met = to.is_some_and(|to| {
            let threads = self.members[to].threads.iter();
            let mut pending = threads.flat_map(|at| &self.standing.threads[*at].pending);
            pending.any(takes) || self.done(to).requests.values().any(takes)
        });
        let missing: Vec<usize> = to.into_iter().filter(|_| !is_met).collect();
        // A receive that is open may have been begun long ago.
        let (missing, unknown): (Vec<usize>, Vec<usize>) = missing
            .into_iter()
            .partition(|to| self.is_certain(*to, false, None));
        let row = self.message(of, WaitKind::Send, channel);
        let mut all_unknown = self.ranks(&unknown);
        all_unknown.extend(&row.unknown);
        Waiting {
            row: WaitFor {
                missing: self.ranks(&missing),
                unknown: all_unknown,
                is_met,
                ..row
            },
            missing,
            ..Waiting::default()
        }
    }

    fn waiting(&self, of: usize, operation: Operation) -> Waiting {
        match operation {
            Operation::Receive(channel, sequence) => self.receive(of, channel, sequence),
            Operation::Send(channel, _) => self.send(of, channel),
            Operation::Together(series, number, signature) => {
                self.together(of, series, number, signature)
            }
            Operation::Window(window, peer) => {
                let to = match peer {
                    Peer::Known(process) => self.numbers.get(&process).copied(),
                    _ => None,
                };
                let missing: Vec<usize> = to.into_iter().filter(|to| *to != of).collect();
                let name = self.name_of(window);
                Waiting {
                    row: WaitFor {
                        object: name,
                        peer: to.map(|to| self.members[to].rank),
                        ..WaitFor::of(WaitKind::Window)
                    },
                    missing,
                    ..Waiting::default()
                }
            }
            Operation::Alone => Waiting {
                row: WaitFor::of(WaitKind::Alone),
                ..Waiting::default()
            },
        }
    }

    /// Returns what a thread waits for.
    pub(super) fn waits(&self, of: usize, at: &At) -> Vec<Waiting> {
        let done = self.done(of);
        let mut waits: Vec<Waiting> = Vec::new();
        if at.polling.is_some() && at.pending.is_empty() && at.waits.is_empty() {
            let mut requests: Vec<(&u64, &Operation)> = done.requests.iter().collect();
            requests.sort_by_key(|(request, _)| **request);
            return requests
                .iter()
                .map(|(_, of_request)| self.waiting(of, **of_request))
                .collect();
        }
        waits.extend(at.pending.iter().map(|pending| self.waiting(of, *pending)));
        for request in &at.waits {
            waits.push(match done.requests.get(request) {
                Some(operation) => self.waiting(of, *operation),
                // It was begun before what was read, or it is complete.
                None => Waiting {
                    row: WaitFor::of(WaitKind::Request),
                    ..Waiting::default()
                },
            });
        }
        waits
    }

    pub(super) fn position(
        &self,
        of: usize,
        location: usize,
        waits: &[Waiting],
        is_any: bool,
    ) -> Position {
        let definitions = self.definitions();
        let (member, at) = (&self.members[of], &self.standing.threads[location]);
        let in_mpi = at
            .frames
            .iter()
            .find(|(region, _)| self.standing.is_mpi(*region));
        let (stay, function, since_ns) = match (in_mpi, at.polling) {
            (Some((region, _)), Some(polling)) if polling.region == *region => {
                (Stay::Polls, Some(polling.region), polling.since_ns)
            }
            (Some((region, since_ns)), _) => (Stay::InMpi, Some(*region), *since_ns),
            (None, Some(polling)) if polling.count > 1 => {
                (Stay::Polls, Some(polling.region), polling.since_ns)
            }
            // A send may be over.
            (None, _)
                if at.is_in_unseen_call
                    && (!at.waits.is_empty() || !at.pending.iter().all(is_send)) =>
            {
                (Stay::InMpi, None, at.last_ns.unwrap_or_default())
            }
            (None, _) => {
                let since = at
                    .last_ns
                    .or_else(|| at.frames.first().map(|(_, since)| *since));
                (Stay::Outside, None, since.unwrap_or(member.ending.at_ns))
            }
        };
        let outer = at.frames.iter().rev().map(|(region, _)| *region);
        let outer = outer.filter(|region| !self.standing.is_mpi(*region));
        let location_id = self.locations[location];
        let thread = definitions.locations.get(&location_id);
        let process = definitions.processes.get(&member.process);
        let has_several = member.threads.len() > 1;
        Position {
            rank: member.rank,
            thread: thread
                .filter(|_| has_several)
                .map(|thread| definitions.string(thread.name).to_owned()),
            pid: process.map_or(0, |process| process.pid),
            thread_id: thread.map_or(0, |thread| thread.system_id),
            host: process.map_or_else(String::new, |of| definitions.string(of.host).to_owned()),
            boot_id: process.map_or_else(String::new, |of| of.boot_id.to_string()),
            ending: member.ending.clone(),
            stay,
            function: function.map(|region| definitions.region_name(region)),
            waits: waits.iter().map(|waiting| waiting.row.clone()).collect(),
            is_any,
            regions: outer
                .map(|region| definitions.region_name(region))
                .collect(),
            is_partial: at.is_uncertain || !member.is_whole,
            since_ns,
            progress_ns: at.progress_ns,
            last_ns: at.last_ns,
        }
    }
}

fn is_send(operation: &Operation) -> bool {
    matches!(operation, Operation::Send(..))
}

/// Returns whether two processes do not agree about an operation.
fn differs(one: &Signature, other: &Signature) -> bool {
    let differ =
        |one: Option<i128>, other: Option<i128>| one.is_some() && other.is_some() && one != other;
    differ(one.operation, other.operation)
        || differ(one.root, other.root)
        || differ(one.bytes, other.bytes)
}

impl WaitFor {
    fn of(kind: WaitKind) -> Self {
        Self {
            kind,
            ..Self::default()
        }
    }
}
