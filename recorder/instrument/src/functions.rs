//! Regions of functions and of constructs of threads, by address: a table that hooks read and extend without a lock and without
//! allocating, wherever they are called.
//!
//! Why the table is right without a model of its interleavings. An address is stored once, by an
//! exchange for 0, and never changes: of several threads that meet a function concurrently, one
//! stores it, and the others find it. They search from the same place and pass the same slots, none
//! of which becomes 0 again, so that an address is in one slot at most. The region of a slot is set
//! by an exchange for 0: one thread sets it, the others get its number; their own stay
//! unused. An entry of the log belongs to the thread that got its number from the counter, and is
//! read only after its region was stored, with release order, after its address. A thread that reads 0 for
//! a region takes the slow path, which begins again with an exchange.
//!
//! An entry of the live file is used by one function at a time: the one with log number n uses entry n modulo their number, and only
//! while that is less than n past the first function that is not defined. Functions are defined in the order of the log, so that
//! none past n is defined before n is logged.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use annals_recorder::{Raiser, RegionId};

use crate::constructs;
use crate::listed;

/// Most functions that a process can call and have recorded.
const SLOTS: usize = 1 << 18;

/// A *key* is an address, with the number of a construct of threads in its highest bits (0: it is that of a function). User
/// space has at most 56 bits.
const CONSTRUCT_SHIFT: u32 = 56;

/// Returns the key of a construct at an address.
#[inline(always)]
pub(crate) const fn key(construct: u8, address: usize) -> usize {
    (construct as usize) << CONSTRUCT_SHIFT | address_of(address)
}

/// Returns the address of a key.
pub(crate) const fn address_of(key: usize) -> usize {
    key & ((1 << CONSTRUCT_SHIFT) - 1)
}

/// Returns the construct of a key.
pub(crate) const fn construct_of(key: usize) -> u8 {
    (key >> CONSTRUCT_SHIFT) as u8
}

/// Longest distance of an address from its preferred place.
const LONGEST_SEARCH: usize = 64;

/// An address, and number + 1 of its region; zeros at first.
/// The address never changes; the region is removed with the module that has the function.
struct Slot {
    address: AtomicUsize,
    region: AtomicU32,
}

/// Zeros, of which only those pages take memory that are used.
static TABLE: [Slot; SLOTS] = [const {
    Slot {
        address: AtomicUsize::new(0),
        region: AtomicU32::new(0),
    }
}; SLOTS];

/// Functions that were met and are not defined yet, in the order in which they were met: region + 1
/// and address. The region is stored last: it marks the entry as complete.
static LOG: [Slot; SLOTS] = [const {
    Slot {
        address: AtomicUsize::new(0),
        region: AtomicU32::new(0),
    }
}; SLOTS];

static MET: AtomicUsize = AtomicUsize::new(0);

/// Number of functions of the log that are defined: the first ones.
static DEFINED: AtomicUsize = AtomicUsize::new(0);

/// Returns where an address is looked for first.
/// Functions start at multiples of 16 mostly, and neighbours call each other: they share cache
/// lines here.
#[inline(always)]
const fn place(address: usize) -> usize {
    (address >> 4) ^ (address >> 24)
}

/// Returns the region of a function that was met before.
#[inline(always)]
pub(crate) fn find(address: usize) -> Option<RegionId> {
    let place = place(address);
    for step in 0..LONGEST_SEARCH {
        let slot = &TABLE[(place + step) % SLOTS];
        match slot.address.load(Ordering::Acquire) {
            0 => return None,
            found if found == address => {
                let region = slot.region.load(Ordering::Relaxed);
                return region.checked_sub(1).map(RegionId::new);
            }
            _ => {}
        }
    }
    None
}

/// Returns the region of a function.
/// If the function is met for the first time, its region is reserved and announced before any thread can raise with it, and
/// `when_met` is called. Returns `None` if no room is left.
pub(crate) fn find_or_add(
    address: usize,
    raiser: Raiser<'_>,
    when_met: impl Fn(),
) -> Option<RegionId> {
    let (order, seen) = (Ordering::AcqRel, Ordering::Acquire);
    let place = place(address);
    let mut slots = (0..LONGEST_SEARCH).map(|step| &TABLE[(place + step) % SLOTS]);
    let slot = slots.find(|slot| {
        let taken = slot.address.compare_exchange(0, address, order, seen);
        taken.map_or_else(|found| found == address, |_| true)
    })?;
    let known = slot.region.load(Ordering::Acquire);
    if let Some(known) = known.checked_sub(1) {
        return Some(RegionId::new(known));
    }
    // If a signal handler, or another thread, meets the function at this very place, it takes a region, too, and one of the
    // two stays unused: both are defined.
    if MET.load(Ordering::Relaxed) >= SLOTS {
        return None;
    }
    let function = listed::locate(address_of(address), raiser);
    let region = raiser.reserve_region()?;
    match constructs::find(construct_of(address)) {
        Some(construct) => raiser.rule_region(region, construct.name),
        None => function.rule(region, raiser),
    }
    let met = MET.fetch_add(1, Ordering::AcqRel);
    let entry = LOG.get(met)?;
    // The live file has the functions that are met and not defined yet. Where there are more than its entries, the names of some are
    // lost if the process is killed now.
    let entries = raiser.function_entries();
    if met - DEFINED.load(Ordering::Acquire) < entries {
        raiser.announce_function(met % entries, region, &function.entry);
    }
    entry.address.store(address, Ordering::Relaxed);
    entry.region.store(region.get() + 1, Ordering::Release);
    let number = region.get() + 1;
    let taken = slot.region.compare_exchange(0, number, order, seen);
    let number = taken.map_or_else(|other| other, |_| number);
    when_met();
    Some(RegionId::new(number - 1))
}

/// Stores the number of functions that are defined: the first ones, in the order in which they were met.
pub(crate) fn set_defined(count: usize) {
    DEFINED.store(count, Ordering::Release);
}

/// Returns the entry of the log with this number, once it is whole.
pub(crate) fn met(number: usize) -> Option<(usize, RegionId)> {
    let entry = LOG.get(number)?;
    let region = entry.region.load(Ordering::Acquire).checked_sub(1)?;
    Some((entry.address.load(Ordering::Relaxed), RegionId::new(region)))
}

/// Forgets all functions: their regions are those of the parent, and this is a forked child that begins to record. No other thread
/// raises events meanwhile.
pub(crate) fn reset() {
    let relaxed = Ordering::Relaxed;
    for entry in &LOG[..MET.load(relaxed).min(SLOTS)] {
        let address = entry.address.swap(0, relaxed);
        entry.region.store(0, relaxed);
        let place = place(address);
        let mut slots = (0..LONGEST_SEARCH).map(|step| &TABLE[(place + step) % SLOTS]);
        if let Some(slot) = slots.find(|slot| slot.address.load(relaxed) == address) {
            slot.region.store(0, relaxed);
        }
    }
    DEFINED.store(0, relaxed);
    MET.store(0, Ordering::Release);
}

/// Forgets the functions of an unloaded module: others may be loaded to the same addresses.
pub(crate) fn forget(is_gone: impl Fn(usize) -> bool) {
    let met = MET.load(Ordering::Acquire).min(SLOTS);
    let addresses = (0..met).filter_map(self::met).map(|(address, _)| address);
    for address in addresses.filter(|address| is_gone(address_of(*address))) {
        let place = place(address);
        let mut slots = (0..LONGEST_SEARCH).map(|step| &TABLE[(place + step) % SLOTS]);
        let slot = slots.find(|slot| slot.address.load(Ordering::Acquire) == address);
        if let Some(slot) = slot {
            slot.region.store(0, Ordering::Release);
        }
    }
}
