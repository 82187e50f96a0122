//! What a rank of a stencil program does: it exchanges halos with four neighbours without blocking, computes in regions that
//! nest to depth 8, and takes part in a reduction, again and again. Every send has its receive, every request its end.

use super::{Happening, MEAN_STEP, Mpi, Random, TICKS_PER_SECOND};

/// Events of an iteration.
const EVENTS: u64 = 106;
/// Ticks of an iteration.
const PERIOD: u64 = EVENTS * MEAN_STEP;
/// Code of the reduction.
const ALLREDUCE: u64 = annals_format::CollectiveOperation::Allreduce.code() as u64;
const NEIGHBOURS: u64 = 4;
/// Regions.
const ITERATE: u64 = 0;
const EXCHANGE: u64 = 1;
const IRECV: u64 = 2;
const ISEND: u64 = 3;
const WAITALL: u64 = 4;
const SOLVE: u64 = 5;
const SWEEP: u64 = 6;
const REDUCE: u64 = 7;
/// The first of those of the innermost five levels.
const FUNCTIONS: u64 = 24;

/// The events of one rank, each with the ticks since the one before.
pub struct Halo {
    random: Random,
    rank: u64,
    ranks: u64,
    iteration: u64,
    /// Tick of the last event returned.
    last: u64,
    /// Those of the iteration that are left, the last first.
    left: Vec<(u64, Happening)>,
}

impl Halo {
    /// Tick at which all ranks begin.
    pub const FIRST: u64 = TICKS_PER_SECOND / 1000;

    /// Returns the program of a rank.
    pub fn new(rank: u64, ranks: u64) -> Self {
        Self {
            random: Random::new(rank + 1),
            rank,
            ranks,
            iteration: 0,
            last: Self::FIRST,
            left: Vec::new(),
        }
    }

    /// Returns the next event.
    pub fn next_event(&mut self) -> (u64, Happening) {
        if self.left.is_empty() {
            self.iterate();
        }
        let (tick, what) = self.left.pop().expect("an iteration has events");
        let step = tick - self.last;
        self.last = tick;
        (step, what)
    }

    /// Returns the neighbour in a direction: as many places further, or back.
    fn neighbour(&self, direction: u64, is_back: bool) -> u64 {
        let row = self.ranks.isqrt().max(1);
        let places = match direction {
            0 => 1,
            1 => self.ranks - 1 % self.ranks,
            2 => row % self.ranks,
            _ => self.ranks - row % self.ranks,
        };
        let places = if is_back {
            self.ranks - places % self.ranks
        } else {
            places
        };
        (self.rank + places) % self.ranks
    }

    /// Appends an event at most `most` ticks after the previous one.
    fn put(&mut self, tick: &mut u64, most: u64, what: Happening) {
        *tick += 1 + self.random.draw() % most;
        self.left.push((*tick, what));
    }

    fn iterate(&mut self) {
        let base = Self::FIRST + self.iteration * PERIOD;
        let (iteration, step, compute) = (self.iteration, PERIOD / 400, PERIOD / 140);
        let at = &mut (base + self.random.draw() % (PERIOD / 10));
        let enter = |region| Happening::Region(true, region);
        let leave = |region| Happening::Region(false, region);
        let request = |direction: u64, is_send: bool| {
            (iteration * NEIGHBOURS + direction) * 2 + u64::from(is_send)
        };
        let message = |peer: u64, direction: u64, is_send: bool| {
            let bytes = 1024 << direction;
            [0, peer, direction, bytes, request(direction, is_send)]
        };
        self.put(at, step, enter(ITERATE));
        self.put(at, step, enter(EXCHANGE));
        for direction in 0..NEIGHBOURS {
            let request = [request(direction, false), 0, 0, 0, 0];
            self.put(at, step, enter(IRECV));
            self.put(at, step, Happening::Mpi(Mpi::ReceiveStart, request));
            self.put(at, step, leave(IRECV));
        }
        for direction in 0..NEIGHBOURS {
            let values = message(self.neighbour(direction, false), direction, true);
            self.put(at, step, enter(ISEND));
            self.put(at, step, Happening::Mpi(Mpi::Isend, values));
            self.put(at, step, leave(ISEND));
        }
        self.put(at, step, enter(WAITALL));
        // By now every neighbour has sent.
        *at = (*at).max(base + PERIOD / 4);
        for direction in 0..NEIGHBOURS {
            let request = [request(direction, true), 0, 0, 0, 0];
            self.put(at, step, Happening::Mpi(Mpi::IsendComplete, request));
        }
        for direction in 0..NEIGHBOURS {
            let values = message(self.neighbour(direction, true), direction, false);
            self.put(at, step, Happening::Mpi(Mpi::Irecv, values));
        }
        self.put(at, step, leave(WAITALL));
        self.put(at, step, leave(EXCHANGE));
        self.put(at, compute, enter(SOLVE));
        self.put(at, compute, enter(SWEEP));
        for block in 0..5 {
            // Other functions in other blocks and iterations.
            let function = |depth: u64| FUNCTIONS + depth * 8 + (block + iteration) % 8;
            (0..5).for_each(|depth| self.put(at, compute, enter(function(depth))));
            for which in 0..2 {
                let value = (iteration * 7 + block) & 1023;
                self.put(at, compute, Happening::Point(which, value));
            }
            (0..5)
                .rev()
                .for_each(|depth| self.put(at, compute, leave(function(depth))));
        }
        self.put(at, compute, leave(SWEEP));
        self.put(at, compute, leave(SOLVE));
        self.put(at, step, enter(REDUCE));
        self.put(at, step, Happening::Mpi(Mpi::CollectiveBegin, [0; 5]));
        // All have come before the first leaves.
        *at = (*at).max(base + PERIOD * 93 / 100);
        let end = [ALLREDUCE, 0, 0, 64, 64];
        self.put(at, step, Happening::Mpi(Mpi::CollectiveEnd, end));
        self.put(at, step, leave(REDUCE));
        self.put(at, step, leave(ITERATE));
        debug_assert_eq!(self.left.len() as u64, EVENTS);
        self.left.reverse();
        self.iteration += 1;
    }
}
