//! Instances that wait to be delivered: a ring that signal handlers may add to, whatever they
//! interrupt.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// Most bytes of an instance that can wait.
pub(crate) const MAX_BYTES: usize = 512;
const WORDS: usize = MAX_BYTES / 8;

/// An instance without its data.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiting {
    pub(crate) event_type: usize,
    pub(crate) tick: u64,
    pub(crate) object: Option<u64>,
    /// Registrations that were made later do not get it.
    pub(crate) stamp: u64,
    pub(crate) length: usize,
}

const HEAD: usize = 6;

/// A cell of the ring, a bounded queue after Vyukov's.
/// `turn` is its state: at the position of the next write it is free, and at one more it can be
/// read.
#[derive(Debug)]
struct Cell {
    turn: AtomicU64,
    head: [AtomicU64; HEAD],
    data: [AtomicU64; WORDS],
}

/// Many threads and handlers add, and one thread at a time removes.
/// No thread waits: an interrupted add delays the instances after it, not the threads that raise
/// them.
#[derive(Debug)]
pub(crate) struct Ring {
    cells: Box<[Cell]>,
    tail: AtomicU64,
    head: AtomicU64,
    is_delivering: AtomicBool,
    /// The capacity asked for; one with room for two at least has free and full turns apart.
    capacity: AtomicUsize,
}

impl Ring {
    pub(crate) fn new(capacity: usize) -> Self {
        let cell = |turn| Cell {
            turn: AtomicU64::new(turn),
            head: [const { AtomicU64::new(0) }; HEAD],
            data: [const { AtomicU64::new(0) }; WORDS],
        };
        Self {
            cells: (0..capacity.max(2) as u64).map(cell).collect(),
            tail: AtomicU64::new(0),
            head: AtomicU64::new(0),
            is_delivering: AtomicBool::new(false),
            capacity: AtomicUsize::new(capacity),
        }
    }

    /// Returns how many wait, the one that is being delivered included.
    pub(crate) fn pending(&self) -> usize {
        let head = self.head.load(Ordering::SeqCst);
        self.tail.load(Ordering::SeqCst).saturating_sub(head) as usize
    }

    fn cell(&self, position: u64) -> &Cell {
        &self.cells[(position % self.cells.len() as u64) as usize]
    }

    /// Adds an instance; false when there is no room.
    pub(crate) fn push(&self, waiting: &Waiting, data: &[u8]) -> bool {
        if data.len() > MAX_BYTES {
            return false;
        }
        let mut position = self.tail.load(Ordering::Relaxed);
        let cell = loop {
            let head = self.head.load(Ordering::Acquire);
            if position.saturating_sub(head) >= self.capacity.load(Ordering::Relaxed) as u64 {
                return false;
            }
            let cell = self.cell(position);
            let turn = cell.turn.load(Ordering::Acquire);
            if turn < position {
                return false;
            }
            let (order, seen) = (Ordering::SeqCst, Ordering::Relaxed);
            let next = position + 1;
            if turn == position {
                match self.tail.compare_exchange(position, next, order, seen) {
                    Ok(_) => break cell,
                    Err(now) => position = now,
                }
            } else {
                position = self.tail.load(Ordering::Relaxed);
            }
        };
        let head = [
            waiting.event_type as u64,
            waiting.tick,
            waiting.object.unwrap_or(0),
            waiting.object.is_some().into(),
            waiting.stamp,
            data.len() as u64,
        ];
        for (word, value) in cell.head.iter().zip(head) {
            word.store(value, Ordering::Relaxed);
        }
        for (word, bytes) in cell.data.iter().zip(data.chunks(8)) {
            let mut value = [0; 8];
            value[..bytes.len()].copy_from_slice(bytes);
            word.store(u64::from_le_bytes(value), Ordering::Relaxed);
        }
        cell.turn.store(position + 1, Ordering::Release);
        true
    }

    /// Passes every waiting instance to `deliver`, also those that arrive meanwhile.
    /// Returns their number. Each counts as pending until it was delivered. Delivers nothing while
    /// another call is delivering. `in_turn` runs what it is given: it may leave it by an exception, and then calls
    /// [`Ring::end_turn`].
    pub(crate) fn drain(
        &self,
        mut deliver: impl FnMut(&Waiting, &[u8]),
        in_turn: impl Fn(&mut dyn FnMut()),
    ) -> usize {
        let mut count = 0;
        loop {
            if self.is_delivering.swap(true, Ordering::AcqRel) {
                return count;
            }
            in_turn(&mut || {
                while let Some((waiting, data)) = self.first() {
                    deliver(&waiting, &data[..waiting.length]);
                    self.remove_first();
                    count += 1;
                }
            });
            self.is_delivering.store(false, Ordering::Release);
            // A thread that added an event while this call still had the turn has left it to this
            // call.
            if self.first().is_none() {
                return count;
            }
        }
    }

    /// Ends a delivery that was left: its instance counts as delivered.
    pub(crate) fn end_turn(&self) {
        self.remove_first();
        self.is_delivering.store(false, Ordering::Release);
    }

    fn first(&self) -> Option<(Waiting, [u8; MAX_BYTES])> {
        let position = self.head.load(Ordering::Acquire);
        let cell = self.cell(position);
        if cell.turn.load(Ordering::Acquire) != position + 1 {
            return None;
        }
        let word = |index: usize| cell.head[index].load(Ordering::Relaxed);
        let waiting = Waiting {
            event_type: word(0) as usize,
            tick: word(1),
            object: (word(3) != 0).then(|| word(2)),
            stamp: word(4),
            length: (word(5) as usize).min(MAX_BYTES),
        };
        let mut data = [0; MAX_BYTES];
        let words = waiting.length.div_ceil(8);
        for (bytes, word) in data.chunks_exact_mut(8).zip(&cell.data).take(words) {
            bytes.copy_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
        }
        Some((waiting, data))
    }

    fn remove_first(&self) {
        let position = self.head.load(Ordering::Relaxed);
        let next_turn = position + self.cells.len() as u64;
        self.cell(position).turn.store(next_turn, Ordering::Release);
        self.head.store(position + 1, Ordering::SeqCst);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn waiting(tick: u64) -> Waiting {
        Waiting {
            event_type: 1,
            tick,
            object: tick.is_multiple_of(2).then_some(tick),
            stamp: 0,
            length: 0,
        }
    }

    #[test]
    fn instances_come_out_as_they_went_in_or_are_refused() {
        let ring = Ring::new(3);
        let mut next = 0;
        for round in 0..10 {
            for tick in 0..5_u64 {
                let data = vec![tick as u8; (tick * 7) as usize];
                let tick = round * 3 + tick;
                assert_eq!(ring.push(&waiting(tick), &data), tick < round * 3 + 3);
            }
            assert_eq!(ring.pending(), 3);
            let deliver = |waiting: &Waiting, data: &[u8]| {
                assert_eq!(waiting.tick, next);
                assert_eq!(waiting.object.is_some(), next % 2 == 0);
                let number = next - round * 3;
                assert_eq!(data, vec![number as u8; (number * 7) as usize]);
                next += 1;
            };
            let count = ring.drain(deliver, |work| work());
            assert_eq!((count, ring.pending()), (3, 0));
        }
        assert!(!ring.push(&waiting(0), &[0; MAX_BYTES + 1]));
    }

    #[test]
    fn many_threads_add_and_nothing_is_lost_or_told_twice() {
        let ring = Ring::new(64);
        let added = AtomicU64::new(0);
        let mut seen = [0_u64; 4];
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4_u64)
                .map(|thread| {
                    let (ring, added) = (&ring, &added);
                    scope.spawn(move || {
                        for number in 1..=2_000_u64 {
                            let mut told = waiting(number);
                            told.event_type = thread as usize;
                            if ring.push(&told, &number.to_le_bytes()) {
                                added.fetch_add(1, Ordering::Relaxed);
                            }
                        }
                    })
                })
                .collect();
            let mut taken = 0;
            loop {
                let is_last = threads.iter().all(|thread| thread.is_finished());
                let deliver = |waiting: &Waiting, data: &[u8]| {
                    assert_eq!(data, waiting.tick.to_le_bytes());
                    let last = &mut seen[waiting.event_type];
                    assert!(waiting.tick > *last, "a thread's own come in order");
                    *last = waiting.tick;
                };
                taken += ring.drain(deliver, |work| work());
                if is_last {
                    break;
                }
            }
            assert_eq!(taken as u64, added.load(Ordering::Relaxed));
        });
    }
}
