//! The order hash of a stream: what a merge proves with that it kept every event, whole and in its place.

use crate::{EventTypeId, TypeColumns};

/// Odd, so that multiplication by any power of it is reversible: 2⁶⁴ divided by the golden ratio (Knuth, "The Art of
/// Computer Programming", volume 3, 6.4).
const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

#[inline(always)]
const fn mix(value: u64) -> u64 {
    let product = value.wrapping_mul(MULTIPLIER);
    product ^ product >> 32
}

/// The order hash of a run of a stream's events, as SPEC.md defines it. Runs can be put together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OrderHash {
    value: u64,
    /// The multiplier to the power of the number of events.
    power: u64,
}

impl Default for OrderHash {
    fn default() -> Self {
        Self { value: 0, power: 1 }
    }
}

impl OrderHash {
    /// Returns the proof of `events` events whose hash is known; events of a stream that was sorted
    /// do not count.
    pub const fn of_value(value: u64, events: u64) -> Self {
        let (mut power, mut factor, mut rest) = (1_u64, MULTIPLIER, events);
        while rest != 0 {
            if rest & 1 == 1 {
                power = power.wrapping_mul(factor);
            }
            factor = factor.wrapping_mul(factor);
            rest >>= 1;
        }
        Self { value, power }
    }

    /// Computes the proof of events in the order of their stream, from their hashes.
    pub fn in_order(hashes: &[u64]) -> Self {
        let mut run = Self::default();
        hashes.iter().rev().for_each(|hash| run.precede(*hash));
        run
    }

    /// Puts an event of an ordered stream before these.
    #[inline(always)]
    pub const fn precede(&mut self, hash: u64) {
        self.value = self.value.wrapping_mul(MULTIPLIER).wrapping_add(hash);
        self.power = self.power.wrapping_mul(MULTIPLIER);
    }

    /// Adds an event of a stream that was sorted, in any order; its position determines where it belongs.
    #[inline(always)]
    pub const fn place(&mut self, hash: u64, position: u64) {
        let placed = mix(hash.wrapping_add(position));
        self.value = self.value.wrapping_add(placed);
    }

    /// Appends the stream's next run to this one.
    #[must_use]
    pub const fn then(self, next: Self) -> Self {
        let moved = next.value.wrapping_mul(self.power);
        Self {
            value: self.value.wrapping_add(moved),
            power: self.power.wrapping_mul(next.power),
        }
    }

    /// Returns the hash.
    pub const fn value(self) -> u64 {
        self.value
    }
}

/// Hashes events; keeps its memory from one run to the next.
#[derive(Clone, Default, Debug)]
pub struct EventHasher {
    hashes: Vec<u64>,
    /// Of each event, type by type, what its type and its elements add to its hash.
    contents: Vec<u64>,
    of_column: Vec<u64>,
    /// By type, the place in `contents` of its next event.
    next: Vec<u32>,
}

impl EventHasher {
    /// Returns the hash of each event. `types` has the columns by type and what the types are called in the trace;
    /// `renumber` makes the numbers of references those of the trace: it gets the index of the type, that of the
    /// element, and the values.
    ///
    /// # Panics
    /// If the slices are not of one length, or the columns do not have the values.
    pub fn hash<'a>(
        &mut self,
        times_ns: &[i64],
        residuals: &[i64],
        type_index: &[u16],
        types: impl Iterator<Item = (&'a TypeColumns, EventTypeId)>,
        renumber: impl Fn(usize, usize, &mut [u64]),
    ) -> &[u64] {
        self.contents.clear();
        self.next.clear();
        for (index, (columns, event_type)) in types.enumerate() {
            let start = self.contents.len();
            self.next.push(start as u32);
            let of_type = mix(u64::from(event_type.get()) + 1);
            self.contents.resize(start + columns.count, of_type);
            for (element, column) in columns.columns.iter().enumerate() {
                let renumber = |values: &mut [u64]| renumber(index, element, values);
                column.hash_into(&mut self.of_column, renumber);
                let salt = MULTIPLIER.wrapping_mul(element as u64 + 1);
                let contents = self.contents[start..].iter_mut().zip(&self.of_column);
                contents.for_each(|(content, value)| {
                    *content = content.wrapping_add(mix(value.wrapping_add(salt)));
                });
            }
        }
        let (contents, next) = (self.contents.as_slice(), self.next.as_mut_slice());
        let events = times_ns.iter().zip(residuals).zip(type_index);
        self.hashes.clear();
        self.hashes
            .extend(events.map(|((time_ns, residual), index)| {
                let next = &mut next[usize::from(*index)];
                let content = contents[*next as usize];
                *next += 1;
                let place = (*time_ns as u64).wrapping_add((*residual as u64) << 40);
                mix(place).wrapping_add(content)
            }));
        &self.hashes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ElementType;
    use proptest::prelude::*;

    fn hashes_of(events: &[(i64, i64, u16, u64)]) -> Vec<u64> {
        let mut types: Vec<TypeColumns> = (0..3)
            .map(|id| TypeColumns::new(EventTypeId::new(id), [ElementType::U64].into_iter()))
            .collect();
        for (_, _, index, value) in events {
            let columns = &mut types[usize::from(*index)];
            columns.count += 1;
            columns.columns[0].push_bits(*value);
        }
        let times: Vec<i64> = events.iter().map(|e| e.0).collect();
        let residuals: Vec<i64> = events.iter().map(|e| e.1).collect();
        let index: Vec<u16> = events.iter().map(|e| e.2).collect();
        let types = types.iter().map(|columns| (columns, columns.event_type));
        let mut hasher = EventHasher::default();
        hasher
            .hash(&times, &residuals, &index, types, |_, _, _| {})
            .to_vec()
    }

    fn events() -> impl Strategy<Value = Vec<(i64, i64, u16, u64)>> {
        prop::collection::vec((any::<i64>(), -3..3_i64, 0..3_u16, any::<u64>()), 1..40)
    }

    proptest! {
        #[test]
        fn runs_put_together_are_the_whole(events in events(), cut in 0..40_usize) {
            let hashes = hashes_of(&events);
            let (head, tail) = hashes.split_at(cut.min(hashes.len()));
            let whole = OrderHash::in_order(&hashes);
            let known = |hashes: &[u64]| {
                OrderHash::of_value(OrderHash::in_order(hashes).value(), hashes.len() as u64)
            };
            prop_assert_eq!(known(head).then(known(tail)), whole);
            prop_assert_eq!(OrderHash::in_order(head).then(OrderHash::in_order(tail)), whole);
        }

        #[test]
        fn a_change_a_loss_and_a_swap_are_seen(
            events in events(), at in 0..40_usize, change in 1..u64::MAX,
        ) {
            let whole = OrderHash::in_order(&hashes_of(&events)).value();
            let at = at % events.len();
            for which in 0..4 {
                let mut other = events.clone();
                match which {
                    0 => other[at].0 ^= change as i64,
                    1 => other[at].1 ^= change as i64,
                    2 => other[at].2 = (other[at].2 + 1) % 3,
                    _ => other[at].3 ^= change,
                }
                prop_assert_ne!(OrderHash::in_order(&hashes_of(&other)).value(), whole);
            }
            let mut fewer = events.clone();
            fewer.remove(at);
            prop_assert_ne!(OrderHash::in_order(&hashes_of(&fewer)).value(), whole);
            let mut swapped = events.clone();
            swapped.rotate_left(1);
            if swapped != events {
                prop_assert_ne!(OrderHash::in_order(&hashes_of(&swapped)).value(), whole);
            }
        }

        #[test]
        fn of_sorted_events_the_position_counts_and_not_the_place(events in events()) {
            let hashes = hashes_of(&events);
            let placed = |order: &[usize], shift: u64| {
                let mut run = OrderHash::default();
                order.iter().for_each(|index| run.place(hashes[*index], *index as u64 + shift));
                run.value()
            };
            let order: Vec<usize> = (0..hashes.len()).collect();
            let mut turned = order.clone();
            turned.reverse();
            prop_assert_eq!(placed(&order, 0), placed(&turned, 0));
            prop_assert_ne!(placed(&order, 0), placed(&order, 1));
        }
    }
}
