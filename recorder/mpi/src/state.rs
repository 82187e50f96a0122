//! State that calls need when recording has begun: the recorder, the library's binary interface,
//! event types, regions.
#![expect(unsafe_code, reason = "the state is reached through one pointer")]

use std::ptr::null_mut;
use std::sync::atomic::{
    AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering,
};

use annals_recorder::{Elements, EventType, Recorder, RegionId};

use crate::abi::{Abi, AbiKind, STATUS_ROOM, is_success};
use crate::channels;
use crate::communicator::Communicator;
use crate::event_types::Types;
use crate::handles::hash;
use crate::pmpi::Pmpi;
use crate::requests;
use crate::signatures::{COUNT, FUNCTIONS};
use crate::stack;
use crate::unseen;

/// A region number that was not assigned yet.
const UNKNOWN: u32 = u32::MAX;
/// The region number of a function that is not recorded as a region.
const OFF: u32 = u32::MAX - 1;

type Regions = [AtomicU32; COUNT];

/// Region numbers, by number of the function.
static REGIONS: Regions = [const { AtomicU32::new(UNKNOWN) }; COUNT];
static NO_REGIONS: Regions = [const { AtomicU32::new(OFF) }; COUNT];

/// Null means that recording has not begun.
/// The state is never freed.
static MPI: AtomicPtr<Mpi> = AtomicPtr::new(null_mut());

/// Everything that calls need.
#[derive(Debug)]
pub(crate) struct Mpi {
    pub(crate) recorder: &'static Recorder,
    pub(crate) abi: Abi,
    pub(crate) pmpi: Pmpi,
    pub(crate) types: Types,
    /// [`REGIONS`], or [`NO_REGIONS`] while MPI_Pcontrol has switched them off.
    regions: AtomicPtr<Regions>,
    /// Null means that it is not known yet.
    pub(crate) world: AtomicPtr<Communicator>,
    /// The group of all processes of the run.
    /// 0 means that it is not known.
    pub(crate) world_group: AtomicUsize,
    /// This process's rank in the run. -1 means that it is not known.
    pub(crate) world_rank: AtomicI32,
    /// Whether several threads may call MPI concurrently.
    is_multiple: AtomicBool,
    /// Whether a status has the bytes of a message at the expected offset.
    has_known_status: AtomicBool,
    /// Handle of the request of every operation that is complete immediately.
    /// 0 means none.
    pub(crate) request_empty: usize,
}

/// Returns the state, or `None` if recording has not begun.
#[inline(always)]
pub(crate) fn get() -> Option<&'static Mpi> {
    // SAFETY: null, or leaked by `set`.
    unsafe { MPI.load(Ordering::Acquire).as_ref() }
}

/// Sets the state. Called once, when recording begins.
pub(crate) fn set(mpi: Mpi) {
    MPI.store(Box::leak(Box::new(mpi)), Ordering::Release);
}

/// Switches the region of a function off, for good.
pub(crate) fn switch_off(index: usize) {
    REGIONS[index].store(OFF, Ordering::Relaxed);
}

/// Returns whether a status has its bytes at the offset that this library expects.
fn knows_status(abi: &Abi, pmpi: &Pmpi) -> bool {
    const PROBE: i64 = 0x1_2345_6788;
    let mut status = [0_u64; STATUS_ROOM / 8];
    if abi.kind == AbiKind::Standard
        || !pmpi.set_status_bytes(status.as_mut_ptr().cast(), abi.byte, PROBE)
    {
        return false;
    }
    bytes_in(abi.kind, status.as_ptr().cast()) == PROBE as u64
}

#[inline(always)]
fn bytes_in(kind: AbiKind, status: *const u8) -> u64 {
    let read = |at: usize| {
        // SAFETY: within a status.
        unsafe { status.add(at).cast::<u32>().read_unaligned() }
    };
    if kind == AbiKind::Mpich {
        // The lowest bit of the second word means cancelled.
        u64::from(read(0)) | u64::from(read(4) >> 1) << 32
    } else {
        u64::from(read(16)) | u64::from(read(20)) << 32
    }
}

impl Mpi {
    /// The state at the begin of recording.
    pub(crate) fn new(
        recorder: &'static Recorder,
        abi: Abi,
        pmpi: Pmpi,
        types: Types,
        request_empty: usize,
    ) -> Self {
        Self {
            recorder,
            abi,
            pmpi,
            types,
            regions: AtomicPtr::new((&raw const REGIONS).cast_mut()),
            world: AtomicPtr::new(null_mut()),
            world_group: AtomicUsize::new(0),
            world_rank: AtomicI32::new(-1),
            is_multiple: AtomicBool::new(false),
            has_known_status: AtomicBool::new(false),
            request_empty,
        }
    }

    /// Records the state of MPI, when MPI_Init has returned or a session was begun.
    pub(crate) fn begin(&self, is_multiple: bool) {
        self.is_multiple.store(is_multiple, Ordering::Release);
        if let Some(place) = stack::place() {
            let place = place.to_string();
            let _ = self.recorder.add_property("mpi.qmpi-tool", &place);
        }
        requests::set_multithreaded(is_multiple);
        let has_known_status = knows_status(&self.abi, &self.pmpi);
        self.has_known_status
            .store(has_known_status, Ordering::Release);
    }

    /// Returns whether several threads may call MPI concurrently.
    #[inline(always)]
    pub(crate) fn has_threads(&self) -> bool {
        self.is_multiple.load(Ordering::Relaxed)
    }

    /// Returns the number of the calling thread, or `None` where no two threads call MPI concurrently.
    #[inline(always)]
    pub(crate) fn thread(&self) -> Option<u32> {
        self.has_threads().then(channels::thread)
    }

    /// Returns the region of a function that was called before, and is recorded.
    #[inline(always)]
    pub(crate) fn known_region(&self, index: usize) -> Option<RegionId> {
        // SAFETY: one of two tables of this module.
        let regions = unsafe { &*self.regions.load(Ordering::Relaxed) };
        match regions[index].load(Ordering::Relaxed) {
            UNKNOWN | OFF => None,
            region => Some(RegionId::new(region)),
        }
    }

    /// Returns the region of a function, if it is recorded as one.
    pub(crate) fn region(&self, index: usize) -> Option<RegionId> {
        if let Some(known) = self.known_region(index) {
            return Some(known);
        }
        // SAFETY: one of two tables of this module.
        let regions = unsafe { &*self.regions.load(Ordering::Relaxed) };
        let place = &regions[index];
        if place.load(Ordering::Relaxed) == OFF {
            // Where the program itself has switched all off, none is left out for good.
            if std::ptr::eq(regions, &raw const REGIONS) {
                unseen::store_left_out(self.recorder, index);
            }
            return None;
        }
        let function = &FUNCTIONS[index];
        let (name, group) = (
            function.name.to_string_lossy(),
            format!("mpi.{}", function.group),
        );
        let region = self.recorder.add_region_at(&name, "", 0, &group).ok()?;
        if self.recorder.leaves_out_region(&name) {
            unseen::store_left_out(self.recorder, index);
        }
        place.store(region.get(), Ordering::Relaxed);
        Some(region)
    }

    /// Switches regions on or off.
    /// Messages are still recorded: otherwise they could not be matched any more.
    pub(crate) fn record_regions(&self, is_on: bool) {
        let regions = if is_on {
            &raw const REGIONS
        } else {
            &raw const NO_REGIONS
        };
        self.regions.store(regions.cast_mut(), Ordering::Relaxed);
    }

    /// Raises an event of the calling thread.
    #[inline(never)]
    pub(crate) fn raise<E: Elements>(&self, event_type: &EventType<E>, values: E::Values<'_>) {
        self.recorder.raise(event_type, values);
    }

    /// Raises an event about what a call has begun, at the time of [`crate::call::Frame::enter_unknown`].
    #[cold]
    pub(crate) fn raise_since<E: Elements>(
        &self,
        start: u64,
        event_type: &EventType<E>,
        values: E::Values<'_>,
    ) {
        self.recorder.raise_since(start, event_type, values);
    }

    /// Returns the bytes of the message that a status describes.
    #[inline(always)]
    pub(crate) fn status_bytes(&self, status: *const u8) -> u64 {
        if self.has_known_status.load(Ordering::Relaxed) {
            bytes_in(self.abi.kind, status)
        } else {
            self.pmpi.status_bytes(status, self.abi.byte)
        }
    }

    /// Returns a number in a status.
    #[inline(always)]
    pub(crate) fn status_int(&self, status: *const u8, at: usize) -> i32 {
        // SAFETY: within a status.
        unsafe { status.add(at).cast::<i32>().read_unaligned() }
    }

    /// Returns whether a request is that of operations that are complete immediately. Several
    /// operations can have it at the same time.
    #[inline(always)]
    pub(crate) fn is_complete_at_once(&self, request: usize) -> bool {
        /// MPICH's builtin requests.
        const BUILTIN: usize = 0x6c00_0000;
        match self.abi.kind {
            AbiKind::OpenMpi => request == self.request_empty,
            AbiKind::Mpich | AbiKind::Standard => request & !0x03ff_ffff == BUILTIN,
        }
    }

    /// Returns whether an error code means that each status has its own.
    pub(crate) fn is_in_status(&self, result: usize) -> bool {
        let code = result as u32 as i32;
        code != 0 && self.pmpi.error_class(code) == self.abi.err_in_status
    }

    /// Returns whether a call with this result has received a message, also one that was too long
    /// for its buffer.
    #[inline(always)]
    pub(crate) fn has_received(&self, result: usize) -> bool {
        is_success(result) || self.is_truncated(result as u32 as i32)
    }

    /// Returns whether an error code means that a message was longer than its buffer.
    #[cold]
    pub(crate) fn is_truncated(&self, error: i32) -> bool {
        self.pmpi.error_class(error) == self.abi.err_truncate
    }

    /// Returns whether an error code means that a request is not done.
    pub(crate) fn is_pending(&self, error: i32) -> bool {
        self.pmpi.error_class(error) == self.abi.err_pending
    }

    #[inline(always)]
    pub(crate) fn world(&self) -> Option<&'static Communicator> {
        // SAFETY: null, or leaked by `communicators`.
        unsafe { self.world.load(Ordering::Acquire).as_ref() }
    }

    /// Returns the bytes of the given number of elements of a datatype.
    #[inline(always)]
    pub(crate) fn bytes(&self, count: i64, datatype: usize) -> u64 {
        if count <= 0 || datatype == self.abi.datatype_null {
            return 0;
        }
        let place = &TYPE_SIZES[hash(datatype) % TYPE_SIZES.len()];
        let known = place.load(Ordering::Relaxed);
        if known >> SIZE_BITS == datatype as u64 {
            return (count as u64).wrapping_mul(known & ((1 << SIZE_BITS) - 1));
        }
        let size = self.type_size(datatype, place);
        count.wrapping_mul(size).max(0) as u64
    }

    #[cold]
    #[inline(never)]
    fn type_size(&self, datatype: usize, place: &AtomicU64) -> i64 {
        let size = self.pmpi.type_size(datatype);
        // Predefined datatypes are never freed: the handle always means the same datatype.
        let is_short = size >> SIZE_BITS == 0 && datatype as u64 >> (64 - SIZE_BITS) == 0;
        if is_short && self.pmpi.combiner(datatype) == Some(self.abi.combiner_named) {
            let known = (datatype as u64) << SIZE_BITS | size as u64;
            place.store(known, Ordering::Relaxed);
        }
        size
    }
}

/// Bits of an entry of [`TYPE_SIZES`] that are the size.
const SIZE_BITS: u32 = 16;

/// Handles of MPI's predefined datatypes, each with its size.
/// 0 means none.
static TYPE_SIZES: [AtomicU64; 256] = [const { AtomicU64::new(0) }; 256];
