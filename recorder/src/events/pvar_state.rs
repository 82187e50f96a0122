//! Performance variables as they are read: the producer's value, and what each handle makes of it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use super::pvar::{Behaviour, Count, Notify, PvarInfo, PvarNotice, Read};
use super::table::Table;
use super::types::{Datatype, ObjectHandle};

/// A performance variable, with the producer's value.
pub(crate) struct PvarState {
    pub(crate) info: PvarInfo,
    pub(crate) kept: Box<[AtomicU64]>,
    pub(crate) count: Option<Count>,
    pub(crate) read: Option<Read>,
    pub(crate) notify: Option<Notify>,
    /// Its handles that watch every level.
    pub(crate) watching: Table<Arc<PvarHandleState>>,
    pub(crate) watchers: AtomicU32,
}

impl fmt::Debug for PvarState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PvarState")
            .field("info", &self.info)
            .finish_non_exhaustive()
    }
}

impl PvarState {
    pub(crate) fn raw(&self, object: Option<ObjectHandle>, item: usize) -> u64 {
        match (&self.read, self.kept.get(item)) {
            (Some(read), _) => read(object, item).bits(),
            (None, Some(word)) => word.load(Ordering::Acquire),
            (None, None) => 0,
        }
    }

    pub(crate) fn notify_producer(&self, notice: PvarNotice, object: Option<ObjectHandle>) {
        if let Some(notify) = &self.notify {
            notify(notice, object);
        }
    }

    /// Returns the sum in the variable's type; integers wrap, as the variable classes require.
    pub(crate) fn sum(&self, a: u64, b: u64) -> u64 {
        match self.info.datatype {
            Datatype::Double => (f64::from_bits(a) + f64::from_bits(b)).to_bits(),
            Datatype::Unsigned => (a as u32).wrapping_add(b as u32).into(),
            _ => a.wrapping_add(b),
        }
    }

    pub(crate) fn difference(&self, a: u64, b: u64) -> u64 {
        match self.info.datatype {
            Datatype::Double => (f64::from_bits(a) - f64::from_bits(b)).to_bits(),
            Datatype::Unsigned => (a as u32).wrapping_sub(b as u32).into(),
            _ => a.wrapping_sub(b),
        }
    }

    pub(crate) fn is_less(&self, a: u64, b: u64) -> bool {
        match self.info.datatype {
            Datatype::Double => f64::from_bits(a) < f64::from_bits(b),
            _ => a < b,
        }
    }

    pub(crate) const fn behaviour(&self) -> Behaviour {
        self.info.class.behaviour()
    }
}

/// One item of a handle.
#[derive(Debug, Default)]
pub(crate) struct Item {
    /// The producer's value from which on a running sum counts.
    pub(crate) base: AtomicU64,
    /// The part of a sum apart from the base; for other classes the value: the mark, or that of a
    /// stopped variable.
    pub(crate) value: AtomicU64,
}

#[derive(Debug)]
pub(crate) struct PvarHandleState {
    pub(crate) pvar: usize,
    pub(crate) session: i32,
    pub(crate) object: Option<ObjectHandle>,
    pub(crate) is_live: AtomicBool,
    pub(crate) is_running: AtomicBool,
    pub(crate) items: Box<[Item]>,
}

impl PvarHandleState {
    pub(crate) fn is_running(&self) -> bool {
        self.is_running.load(Ordering::Acquire)
    }

    /// Moves the mark to an observed level, if it is higher or lower.
    pub(crate) fn mark(&self, pvar: &PvarState, item: usize, level: u64) {
        let Some(item) = self.items.get(item) else {
            return;
        };
        let is_highest = pvar.behaviour() == Behaviour::Highest;
        let (order, seen) = (Ordering::AcqRel, Ordering::Relaxed);
        let _ = item.value.fetch_update(order, seen, |mark| {
            let (low, high) = if is_highest {
                (mark, level)
            } else {
                (level, mark)
            };
            pvar.is_less(low, high).then_some(level)
        });
    }

    /// Takes what a running sum has counted since its base, and counts from here on.
    pub(crate) fn advance(&self, pvar: &PvarState, number: usize) -> u64 {
        let base = &self.items[number].base;
        loop {
            let from = base.load(Ordering::Acquire);
            // Read after the base: never smaller.
            let now = pvar.raw(self.object, number);
            let (order, seen) = (Ordering::AcqRel, Ordering::Relaxed);
            if base.compare_exchange(from, now, order, seen).is_ok() {
                return pvar.difference(now, from);
            }
        }
    }

    pub(crate) fn start(&self, pvar: &PvarState) {
        for (number, item) in self.items.iter().enumerate() {
            let now = pvar.raw(self.object, number);
            match pvar.behaviour() {
                Behaviour::Sum => item.base.store(now, Ordering::Release),
                Behaviour::Current => {}
                Behaviour::Highest | Behaviour::Lowest => self.mark(pvar, number, now),
            }
        }
        self.is_running.store(true, Ordering::Release);
    }

    pub(crate) fn stop(&self, pvar: &PvarState) {
        for (number, item) in self.items.iter().enumerate() {
            match pvar.behaviour() {
                Behaviour::Sum => {
                    let more = self.advance(pvar, number);
                    let (order, seen) = (Ordering::AcqRel, Ordering::Relaxed);
                    let add = |value| Some(pvar.sum(value, more));
                    let _ = item.value.fetch_update(order, seen, add);
                }
                Behaviour::Current => {
                    let now = pvar.raw(self.object, number);
                    item.value.store(now, Ordering::Release);
                }
                Behaviour::Highest | Behaviour::Lowest => {
                    self.mark(pvar, number, pvar.raw(self.object, number));
                }
            }
        }
        self.is_running.store(false, Ordering::Release);
    }

    pub(crate) fn read(&self, pvar: &PvarState, number: usize) -> u64 {
        let item = &self.items[number];
        if self.is_running() {
            let now = || pvar.raw(self.object, number);
            match pvar.behaviour() {
                Behaviour::Current => return now(),
                Behaviour::Highest | Behaviour::Lowest => self.mark(pvar, number, now()),
                Behaviour::Sum => {
                    let value = item.value.load(Ordering::Acquire);
                    let base = item.base.load(Ordering::Acquire);
                    return pvar.sum(value, pvar.difference(now(), base));
                }
            }
        }
        item.value.load(Ordering::Acquire)
    }

    pub(crate) fn write(&self, pvar: &PvarState, number: usize, bits: u64) {
        if pvar.behaviour() == Behaviour::Sum {
            self.advance(pvar, number);
        }
        self.items[number].value.store(bits, Ordering::Release);
    }

    /// Returns the value that a variable has at first and after a reset.
    pub(crate) fn starting_value(&self, pvar: &PvarState, number: usize) -> u64 {
        match pvar.behaviour() {
            Behaviour::Sum => 0,
            _ => pvar.raw(self.object, number),
        }
    }

    pub(crate) fn reset(&self, pvar: &PvarState) {
        for number in 0..self.items.len() {
            self.write(pvar, number, self.starting_value(pvar, number));
        }
    }

    pub(crate) fn read_reset(&self, pvar: &PvarState, number: usize) -> u64 {
        let item = &self.items[number];
        let start = self.starting_value(pvar, number);
        if pvar.behaviour() == Behaviour::Sum {
            let value = item.value.swap(0, Ordering::AcqRel);
            if self.is_running() {
                return pvar.sum(value, self.advance(pvar, number));
            }
            return value;
        }
        if self.is_running() && pvar.behaviour() == Behaviour::Current {
            return start;
        }
        if self.is_running() {
            self.mark(pvar, number, start);
        }
        item.value.swap(start, Ordering::AcqRel)
    }
}

#[derive(Debug)]
pub(crate) struct SessionState {
    pub(crate) is_live: AtomicBool,
}
