//! Whether sends of a size wait for their receives.
//!
//! A library passes small messages immediately (*eager*); the send of a large one ends only after its receive has begun
//! (*rendezvous*, MPI 5.0, section 3.4: a standard send may do either). Where the limit is, a trace does not contain; it is
//! learned from the messages of the run, apart for processes of one host and of two:
//!
//! - A send that ended before its receive began was eager: so is each of at most its size.
//! - A send that ended right after its receive began, and long after all else that its call waited for, is evidence that it
//!   waited. Three of them show that sends of at least their sizes wait, but for those that are known to be eager.

use annals_format::Definitions;
use rustc_hash::FxHashMap;

use crate::mpi_functions::MpiFunction;

/// A message: the locations of its sides, and its size in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Transfer {
    pub(super) sender: u32,
    pub(super) receiver: u32,
    pub(super) bytes: u64,
}

/// What is known of messages between two processes of one host, and of two hosts.
pub(super) type Known = [Limits; 2];

/// Sizes in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Limits {
    /// The largest message whose send ended before its receive began.
    eager: Option<u64>,
    /// The smallest ones whose sends, as it seems, waited for their receives, in order. `None` after all others.
    waited: [Option<u64>; 3],
}

impl Limits {
    fn is_eager(&self, bytes: u64) -> bool {
        self.eager.is_some_and(|eager| bytes <= eager)
    }

    fn has_waited(&self, bytes: u64) -> bool {
        self.waited[2].is_some_and(|waited| bytes >= waited)
    }
}

/// How many times longer the begin of a receive must be after all else than before the end of its message's send.
const EVIDENCE: i64 = 8;

/// What was learned in a reading.
#[derive(Clone, Copy, Debug)]
pub(super) struct Learned {
    pub(super) known: Known,
    /// Whether with it waits would be other ones.
    pub(super) is_contradicted: bool,
}

/// Whether a send waited for its receive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    No,
    /// It is not known.
    Open,
    Yes,
}

/// What is learned of messages by their sizes.
#[derive(Debug)]
pub(super) struct Protocols {
    /// By location: number of its host.
    hosts: Vec<usize>,
    has_several_hosts: bool,
    known: Known,
    /// Whether it was learned in an earlier reading.
    is_learned: bool,
    /// The smallest messages whose sends were taken to have waited, and the largest ones of which it was not known.
    taken: [(Option<u64>, Option<u64>); 2],
}

impl Protocols {
    /// Begins with what was learned in an earlier reading, or with nothing.
    pub(super) fn new(definitions: &Definitions, learned: Option<Known>) -> Self {
        let mut numbers = FxHashMap::default();
        let hosts = definitions.locations.values().map(|location| {
            let process = definitions.processes.get(&location.process);
            let host = process.map(|process| definitions.string(process.host));
            let next = numbers.len();
            *numbers.entry(host).or_insert(next)
        });
        let hosts: Vec<usize> = hosts.collect();
        Self {
            has_several_hosts: hosts.iter().any(|host| *host != 0),
            hosts,
            known: learned.unwrap_or_default(),
            is_learned: learned.is_some(),
            taken: [(None, None); 2],
        }
    }

    fn path(&self, of: Transfer) -> usize {
        let host = |location: u32| self.hosts.get(location as usize);
        usize::from(host(of.sender) != host(of.receiver))
    }

    /// Returns whether messages of a size are known to be eager, whichever process receives them.
    pub(super) fn is_eager(&self, bytes: u64) -> bool {
        let paths = if self.has_several_hosts { 0..2 } else { 0..1 };
        self.known[paths]
            .iter()
            .all(|limits| limits.is_eager(bytes))
    }

    /// Learns that the send of a message ended before its receive began.
    pub(super) fn ended_before(&mut self, of: Transfer) {
        let limits = &mut self.known[self.path(of)];
        limits.eager = limits.eager.max(Some(of.bytes));
    }

    /// Learns that the send of a message ended `after_ns` after its receive began, and that `alone_ns` after all else that its
    /// call waited for.
    pub(super) fn ended_after(&mut self, of: Transfer, after_ns: i64, alone_ns: i64) {
        let is_evidence = after_ns > 0 && after_ns.saturating_mul(EVIDENCE) < alone_ns;
        if self.is_learned || !is_evidence {
            return;
        }
        let waited = &mut self.known[self.path(of)].waited;
        let place = waited
            .iter()
            .position(|size| size.is_none_or(|size| of.bytes < size));
        if let Some(place) = place {
            waited[place..].rotate_right(1);
            waited[place] = Some(of.bytes);
        }
    }

    /// Returns whether a send that ended after its receive began waited for it, as far as is known.
    pub(super) fn verdict(&self, of: Transfer, function: MpiFunction) -> Verdict {
        let limits = self.known[self.path(of)];
        if function.is_synchronous {
            Verdict::Yes
        } else if function.is_local || limits.is_eager(of.bytes) {
            Verdict::No
        } else if limits.has_waited(of.bytes) {
            Verdict::Yes
        } else {
            Verdict::Open
        }
    }

    /// Takes note that a wait was counted by a verdict that was learned.
    pub(super) fn count(&mut self, of: Transfer, verdict: Verdict) {
        let (counted, open) = &mut self.taken[self.path(of)];
        if verdict == Verdict::Open {
            *open = (*open).max(Some(of.bytes));
        }
        *counted = Some(counted.map_or(of.bytes, |least| least.min(of.bytes)));
    }

    /// Returns what was learned.
    pub(super) fn learned(&self) -> Learned {
        let differs = |(limits, (counted, open)): (&Limits, &(Option<u64>, Option<u64>))| {
            counted.is_some_and(|counted| limits.is_eager(counted))
                || open.is_some_and(|open| limits.has_waited(open))
        };
        Learned {
            known: self.known,
            is_contradicted: self.known.iter().zip(&self.taken).any(differs),
        }
    }
}
