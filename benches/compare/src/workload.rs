//! The measured programs: the same for every contestant. Between events they do work whose length
//! depends on a seeded generator, so that times jitter and no branch predictor learns them.

use std::hint::black_box;

use crate::contestant::{Lane, MessageLane};
use crate::random::Random;

/// Number of regions.
pub(crate) const REGIONS: u32 = 64;

/// Events that `warm_up` raises.
pub(crate) const WARM_UP: u64 = 2;

/// A program of the event path.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Workload {
    /// Enter + leave without anything between, to compare with figures taken so.
    Tight,
    /// Enter + leave with work before each.
    Pair,
    /// An event with three small elements.
    Three,
    /// A message sent: four fields and two more elements.
    Send,
    /// Nine event types and 64 regions; the time is per event.
    Mix,
}

impl Workload {
    /// All of them, in the order of the table.
    pub(crate) const ALL: [Self; 5] = [Self::Tight, Self::Pair, Self::Three, Self::Send, Self::Mix];

    /// Returns the table's heading.
    pub(crate) const fn title(self) -> &'static str {
        match self {
            Self::Tight => "enter + leave, back to back (ns per pair)",
            Self::Pair => "1. enter + leave, work before each (ns per pair)",
            Self::Three => "2. event with three small elements (ns per event)",
            Self::Send => "3. message sent: four fields, two more elements (ns per event)",
            Self::Mix => "4. mix of 9 event types and 64 regions (ns per event)",
        }
    }

    /// Runs the program; returns the divisor for the time, and the number of events raised.
    pub(crate) fn run<L: Lane>(self, lane: &mut L, calls: u64, seed: u64) -> (u64, u64) {
        let random = &mut Random::new(seed);
        match self {
            Self::Tight => {
                tight(lane, calls, random);
                (calls, 2 * calls)
            }
            Self::Pair => {
                pairs(lane, calls, random);
                (calls, 2 * calls)
            }
            Self::Three => {
                threes(lane, calls, random);
                (calls, calls)
            }
            Self::Send => {
                sends(lane, calls, random);
                (calls, calls)
            }
            Self::Mix => {
                let events = mix(lane, calls, random);
                (events, events)
            }
        }
    }
}

/// The first events of a thread, untimed: they may allocate.
pub(crate) fn warm_up<L: Lane>(lane: &mut L) {
    let open = lane.enter(0);
    lane.leave(0, open);
}

/// The program's work in addition to raising events: a chain of 0 to 15 dependent steps, about 1 ns each.
#[inline(always)]
pub(crate) fn work(word: u64) {
    let mut value = word;
    for _ in 0..word % 16 {
        value = black_box(value.rotate_left(5) ^ word);
    }
}

/// Works like [`work`], but with lengths as in programs: 1 to 255 steps, each power of two equally likely.
#[inline(always)]
fn spread_work(word: u64) {
    let bits = word % 8;
    let steps = 1 << bits | word >> 3 & ((1 << bits) - 1);
    let mut value = word;
    for _ in 0..steps {
        value = black_box(value.rotate_left(5) ^ word);
    }
}

const fn region_of(word: u64) -> u32 {
    (word >> 58) as u32
}

#[inline(never)]
fn tight<L: Lane>(lane: &mut L, calls: u64, random: &mut Random) {
    let mut regions = [0_u32; 1024];
    regions.fill_with(|| region_of(random.next()));
    for call in 0..calls {
        let region = regions[(call % 1024) as usize];
        let open = lane.enter(region);
        lane.leave(region, open);
    }
}

#[inline(never)]
fn pairs<L: Lane>(lane: &mut L, calls: u64, random: &mut Random) {
    for _ in 0..calls {
        let word = random.next();
        work(word);
        let open = lane.enter(region_of(word));
        work(word >> 20);
        lane.leave(region_of(word), open);
    }
}

#[inline(never)]
fn threes<L: Lane>(lane: &mut L, calls: u64, random: &mut Random) {
    for _ in 0..calls {
        let word = random.next();
        work(word);
        lane.three(word as u32 >> 20 & 7, 42, 4096);
    }
}

#[inline(never)]
fn sends<L: Lane>(lane: &mut L, calls: u64, random: &mut Random) {
    for call in 0..calls {
        let word = random.next();
        work(word);
        let communicator = u32::from(word >> 40 & 15 == 0);
        lane.send(
            (word >> 50 & 63) as u32,
            communicator,
            (word >> 44 & 3) as u32,
            length_of(word),
            call,
            3,
        );
    }
}

/// Message lengths in bytes: few different ones, as programs have.
const fn length_of(word: u64) -> u64 {
    8 << ((word >> 32 & 3) * 4)
}

/// One event of nine types in each region or none, as the size figures of `event_path` have it.
#[inline(never)]
fn mix<L: Lane>(lane: &mut L, calls: u64, random: &mut Random) -> u64 {
    let mut events = 0;
    for _ in 0..calls {
        let word = random.next();
        work(word);
        let open = lane.enter(region_of(word));
        work(word >> 20);
        let kind = word >> 32 & 15;
        match kind {
            0..=3 => lane.point((word >> 36 & 3) as u32, word as u32 >> 20),
            4 => lane.three(word as u32 >> 20 & 7, 42, 4096),
            5 => lane.metric((word >> 16 & 1023) as i64),
            6 => lane.note(),
            _ => {}
        }
        lane.leave(region_of(word), open);
        events += 2 + u64::from(kind < 7);
    }
    events
}

/// A program whose whole cost and size on disk are measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum WholeProgram {
    /// Enter and leave only.
    Regions,
    /// Messages, collective operations, metrics, enter and leave.
    Messages,
}

impl WholeProgram {
    /// Both.
    pub(crate) const ALL: [Self; 2] = [Self::Regions, Self::Messages];

    /// Returns the table's heading.
    pub(crate) const fn title(self) -> &'static str {
        match self {
            Self::Regions => "(a) enter and leave of 64 regions",
            Self::Messages => {
                "(b) MPI-like mix: enter, leave, sends, receives, collectives, metrics"
            }
        }
    }

    /// Runs the program; returns the number of events raised.
    pub(crate) fn run<L: MessageLane>(self, lane: &mut L, calls: u64, random: &mut Random) -> u64 {
        match self {
            Self::Regions => {
                regions(lane, calls, random);
                2 * calls
            }
            Self::Messages => messages(lane, calls, random),
        }
    }
}

#[inline(never)]
fn regions<L: MessageLane>(lane: &mut L, calls: u64, random: &mut Random) {
    for _ in 0..calls {
        let word = random.next();
        spread_work(word);
        let open = lane.enter(region_of(word));
        spread_work(word >> 20);
        lane.leave(region_of(word), open);
    }
}

/// Compute, then a call of the message library.
#[inline(never)]
fn messages<L: MessageLane>(lane: &mut L, calls: u64, random: &mut Random) -> u64 {
    let mut events = 0;
    for _ in 0..calls {
        let word = random.next();
        spread_work(word);
        let region = region_of(word);
        let open = lane.enter(region);
        let peer = (word >> 50 & 63) as u32;
        let tag = (word >> 44 & 3) as u32;
        events += 2;
        match word >> 36 & 15 {
            0..=3 => lane.sent(peer, 0, tag, length_of(word)),
            4..=7 => lane.received(peer, 0, tag, length_of(word)),
            8 => {
                lane.collective_begin();
                spread_work(word >> 20);
                lane.collective_end(11, u32::from(word >> 43 & 1 == 0), 0, 8, 512);
                events += 1;
            }
            9 => lane.load((word >> 20 & 1023) as f64 / 1024.0),
            _ => events -= 1,
        }
        events += 1;
        spread_work(word >> 9);
        lane.leave(region, open);
    }
    events
}
