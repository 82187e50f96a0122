//! What rules say of calls while the program runs, and how a call stays whole when they change: a leave is recorded if, and only if, its
//! enter was.

use std::cell::Cell;
use std::sync::atomic::{Ordering, compiler_fence};

use annals_format::RegionId;

/// Whether rules leave out the calls of a region, of an event type or of a source; and whether that has changed since the first call may
/// have begun.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Switch(u8);

impl Switch {
    pub(crate) const BITS: usize = 4;

    const OFF: u8 = 1;
    const CHANGED: u8 = 2;
    const FIRST_OFF: u8 = 4;

    /// Returns the switch before the first call.
    pub(crate) const fn first(is_off: bool) -> Self {
        Self(if is_off { Self::OFF } else { 0 })
    }

    pub(crate) const fn from_bits(bits: u8) -> Self {
        Self(bits & (Self::OFF | Self::CHANGED | Self::FIRST_OFF))
    }

    pub(crate) const fn bits(self) -> u8 {
        self.0
    }

    /// Returns the switch after rules have changed: calls may be open.
    pub(crate) const fn turned(self, is_off: bool) -> Self {
        if is_off == self.is_off() {
            return self;
        }
        let first = if self.was_first_off() {
            Self::FIRST_OFF
        } else {
            0
        };
        let off = if is_off { Self::OFF } else { 0 };
        Self(Self::CHANGED | first | off)
    }

    pub(crate) const fn is_off(self) -> bool {
        self.0 & Self::OFF != 0
    }

    pub(crate) const fn has_changed(self) -> bool {
        self.0 & Self::CHANGED != 0
    }

    /// Returns whether the calls that began before the first change were left out.
    pub(crate) const fn was_first_off(self) -> bool {
        match self.has_changed() {
            true => self.0 & Self::FIRST_OFF != 0,
            false => self.is_off(),
        }
    }

    /// Returns the switch of calls that either of two switches leaves out.
    pub(crate) const fn or(self, other: Self) -> Self {
        let is_off = self.is_off() || other.is_off();
        if !self.has_changed() && !other.has_changed() {
            return Self::first(is_off);
        }
        let was_first_off = self.was_first_off() || other.was_first_off();
        let first = if was_first_off { Self::FIRST_OFF } else { 0 };
        let off = if is_off { Self::OFF } else { 0 };
        Self(Self::CHANGED | first | off)
    }
}

/// Calls that are open in a thread, of regions whose rules have changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct OpenCalls {
    region: RegionId,
    is_recorded: bool,
    /// Number of calls, one within the other.
    count: u32,
}

/// Calls that began since their rules changed first, and whether their enters were recorded: innermost last. Fixed in size: nothing is
/// allocated.
///
/// A signal handler may interrupt any of this with calls that it also ends: entries are written after the depth that has them.
#[derive(Debug)]
pub(crate) struct SwitchedCalls {
    depth: Cell<usize>,
    /// Calls within the last entry that found no room.
    beyond: Cell<u32>,
    calls: [Cell<OpenCalls>; Self::DEEPEST],
}

impl SwitchedCalls {
    const DEEPEST: usize = 32;

    #[cfg(test)]
    fn new() -> Self {
        let none = OpenCalls {
            region: RegionId::new(0),
            is_recorded: false,
            count: 0,
        };
        Self {
            depth: Cell::new(0),
            beyond: Cell::new(0),
            calls: std::array::from_fn(|_| Cell::new(none)),
        }
    }

    pub(crate) fn clear(&self) {
        self.depth.set(0);
        self.beyond.set(0);
    }

    /// Returns whether the enter or leave of a call is recorded.
    pub(crate) fn admits(&self, region: RegionId, is_enter: bool, switch: Switch) -> bool {
        if is_enter {
            self.enter(region, !switch.is_off());
            return !switch.is_off();
        }
        self.leave(region, switch)
    }

    fn enter(&self, region: RegionId, is_recorded: bool) {
        let depth = self.depth.get();
        if let Some(top) = depth.checked_sub(1).and_then(|top| self.calls.get(top)) {
            let calls = top.get();
            if (calls.region, calls.is_recorded) == (region, is_recorded) && self.beyond.get() == 0
            {
                let count = calls.count.saturating_add(1);
                top.set(OpenCalls { count, ..calls });
                return;
            }
        }
        let Some(place) = self.calls.get(depth) else {
            self.beyond.set(self.beyond.get().saturating_add(1));
            return;
        };
        self.depth.set(depth + 1);
        compiler_fence(Ordering::SeqCst);
        place.set(OpenCalls {
            region,
            is_recorded,
            count: 1,
        });
    }

    fn leave(&self, region: RegionId, switch: Switch) -> bool {
        if let Some(beyond) = self.beyond.get().checked_sub(1) {
            self.beyond.set(beyond);
            return !switch.is_off();
        }
        let depth = self.depth.get();
        let open = self.calls[..depth].iter();
        let Some(place) = open.rev().position(|calls| calls.get().region == region) else {
            // It began before the change.
            return !switch.was_first_off();
        };
        // The program has left the calls within it without an event (longjmp).
        let place = depth - 1 - place;
        let calls = self.calls[place].get();
        match calls.count.checked_sub(1).filter(|count| *count != 0) {
            Some(count) => {
                self.calls[place].set(OpenCalls { count, ..calls });
                compiler_fence(Ordering::SeqCst);
                self.depth.set(place + 1);
            }
            None => self.depth.set(place),
        }
        calls.is_recorded
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: RegionId = RegionId::new(1);
    const B: RegionId = RegionId::new(2);

    #[test]
    fn a_switch_knows_what_was_first() {
        for first in [false, true] {
            let switch = Switch::first(first);
            assert_eq!(switch.turned(first), switch, "no change");
            let turned = switch.turned(!first);
            assert!(turned.has_changed() && turned.is_off() != first);
            let again = turned.turned(first);
            assert!(again.has_changed() && again.is_off() == first);
            for switch in [switch, turned, again] {
                assert_eq!(switch.was_first_off(), first);
                assert_eq!(Switch::from_bits(switch.bits()), switch);
                assert_eq!(switch.or(Switch::first(false)), switch);
                assert!(switch.or(Switch::first(true)).is_off());
            }
        }
    }

    #[test]
    fn a_leave_is_recorded_if_and_only_if_its_enter_was() {
        // Every sequence of seven steps: an enter, a leave or a change of rules, of one of two regions.
        for steps in 0..6_u32.pow(7) {
            let calls = SwitchedCalls::new();
            let mut switches = [Switch::first(false), Switch::first(true)];
            let mut open: Vec<(usize, bool)> = Vec::new();
            let mut steps = steps;
            for _ in 0..7 {
                let (region, step) = ((steps % 2) as usize, steps / 2 % 3);
                steps /= 6;
                let switch = switches[region];
                // Until the first change, the switch alone decides.
                let admits = |is_enter| match switch.has_changed() {
                    true => calls.admits([A, B][region], is_enter, switch),
                    false => !switch.is_off(),
                };
                match step {
                    0 => switches[region] = switch.turned(!switch.is_off()),
                    1 => open.push((region, admits(true))),
                    _ => {
                        if open.last().is_some_and(|(of, _)| *of == region) {
                            let (_, was_recorded) = open.pop().unwrap();
                            assert_eq!(admits(false), was_recorded);
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn recursion_takes_one_entry_and_calls_that_are_jumped_over_are_dropped() {
        let calls = SwitchedCalls::new();
        let off = Switch::first(false).turned(true);
        for _ in 0..1_000_000 {
            assert!(!calls.admits(A, true, off));
        }
        assert_eq!(calls.depth.get(), 1);
        assert!(!calls.admits(B, true, off));
        // B's leave is jumped over.
        for _ in 0..1_000_000 {
            assert!(!calls.admits(A, false, off));
        }
        assert_eq!(calls.depth.get(), 0);
        assert!(
            calls.admits(A, false, off) && calls.admits(B, false, off),
            "of before"
        );
    }

    #[test]
    fn calls_that_find_no_room_are_left_out_whole() {
        let calls = SwitchedCalls::new();
        let off = Switch::first(false).turned(true);
        let each = |number: u32| RegionId::new(number);
        for number in 0..100 {
            assert!(!calls.admits(each(number), true, off));
        }
        for number in (0..100).rev() {
            assert!(!calls.admits(each(number), false, off), "{number}");
        }
        assert!(calls.admits(each(7), false, off), "of before");
    }
}
