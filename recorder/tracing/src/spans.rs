//! Which callsite a span is of, by its id: one load in place of a look into the subscriber's
//! registry, which counts references.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::callsite::{PLACES, SiteNumber};

/// Bits of a callsite's number; an index into the table has as many.
const BITS: u32 = PLACES.ilog2();

/// An odd number: multiplying by it is reversible. (Fibonacci hashing:
/// Knuth, TAOCP vol. 3, 6.4.)
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// The callsites of the spans that were made last.
/// A span that is not found here is looked up in the registry. One that is found is right, since a
/// word contains the part of the id that its place does not.
#[derive(Debug)]
pub(crate) struct RecentSpans(Box<[AtomicU64]>);

impl RecentSpans {
    pub(crate) fn new() -> Self {
        Self((0..1 << BITS).map(|_| AtomicU64::new(0)).collect())
    }

    #[inline]
    fn place_and_word(&self, id: u64) -> (&AtomicU64, u64) {
        let spread = id.wrapping_mul(SPREAD);
        let place = &self.0[(spread >> (64 - BITS)) as usize];
        (place, spread << BITS)
    }

    /// Stores the callsite of a new span.
    /// Ids are used again, so this must be called for every span. Threads that use the span have it
    /// from this thread, and with it what is stored here.
    #[inline]
    pub(crate) fn note(&self, id: u64, site: Option<SiteNumber>) {
        let (place, word) = self.place_and_word(id);
        let word = site.map_or(0, |site| word | u64::from(site.get()));
        place.store(word, Ordering::Relaxed);
    }

    /// Returns the callsite of a span, if it is still known.
    #[inline]
    pub(crate) fn find(&self, id: u64) -> Option<SiteNumber> {
        let (place, word) = self.place_and_word(id);
        let difference = place.load(Ordering::Relaxed) ^ word;
        (difference >> BITS == 0).then(|| SiteNumber::new(difference as u16))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_found_is_what_was_noted_last() {
        let spans = RecentSpans::new();
        let mut truth = std::collections::HashMap::new();
        let mut random = 1_u64;
        let mut found = 0;
        for round in 0..200_000_u64 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            // Few and many, dense and all over; never 0.
            let id = 1 + (random >> (random % 64)) % (u64::MAX - 1);
            if round % 2 == 0 {
                let site = SiteNumber::new((random % PLACES as u64) as u16);
                truth.insert(id, site);
                spans.note(id, Some(site));
            }
            if let Some(site) = spans.find(id) {
                assert_eq!(truth.get(&id), Some(&site), "{id}");
                found += 1;
            }
        }
        assert!(found > 100_000, "{found}");
        spans.note(7, Some(SiteNumber::new(3)));
        spans.note(7, None);
        assert_eq!(spans.find(7), None);
    }
}
