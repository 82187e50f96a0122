//! Regions by their names: a table that is read without a lock. The recorder, which locks and allocates, is asked at a name's first use.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use annals_recorder::{Recorder, RegionId, text_of};

/// Most names that are found without a lock.
const SLOTS: usize = 1 << 12;

/// Longest distance of a name from its preferred place.
const LONGEST_SEARCH: usize = 32;

/// The hash of a name with its group and its recorder, and number + 1 of its region. Zeros at first.
struct Slot {
    hash: AtomicU64,
    region: AtomicU32,
}

static TABLE: [Slot; SLOTS] = [const {
    Slot {
        hash: AtomicU64::new(0),
        region: AtomicU32::new(0),
    }
}; SLOTS];

/// Returns the region of this name in this group. Names with equal hashes, of 64 bits, have the region of one of them.
pub(crate) fn region(recorder: &Recorder, name: &[u8], group: &'static str) -> Option<RegionId> {
    let of_group = group.as_ptr().addr() as u64 ^ u64::from(recorder.number()) << 48;
    let hash = hash(name, of_group);
    let mut free = None;
    for step in 0..LONGEST_SEARCH {
        let slot = &TABLE[(hash as usize).wrapping_add(step) % SLOTS];
        match slot.hash.load(Ordering::Acquire) {
            0 => {
                free = Some(slot);
                break;
            }
            found if found == hash => {
                // Stored after the hash.
                let region = slot.region.load(Ordering::Acquire).checked_sub(1);
                return region
                    .map(RegionId::new)
                    .or_else(|| add(recorder, name, group));
            }
            _ => {}
        }
    }
    let region = add(recorder, name, group)?;
    if let Some(slot) = free {
        let (order, seen) = (Ordering::AcqRel, Ordering::Relaxed);
        if slot.hash.compare_exchange(0, hash, order, seen).is_ok() {
            slot.region.store(region.get() + 1, Ordering::Release);
        }
    }
    Some(region)
}

#[cold]
#[inline(never)]
fn add(recorder: &Recorder, name: &[u8], group: &str) -> Option<RegionId> {
    recorder.add_region_at(&text_of(name), "", 0, group).ok()
}

/// Returns a hash that is not 0.
fn hash(bytes: &[u8], start: u64) -> u64 {
    const FACTOR: u64 = 0x517c_c1b7_2722_0a95;
    let mix = |hash: u64, word: u64| (hash.rotate_left(5) ^ word).wrapping_mul(FACTOR);
    let mut hash = mix(start, bytes.len() as u64);
    for chunk in bytes.chunks(8) {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        hash = mix(hash, u64::from_le_bytes(word));
    }
    (hash ^ hash >> 32) | 1
}
