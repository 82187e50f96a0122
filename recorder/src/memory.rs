//! The live file's memory: mapping, and access to its fields as atomics.
#![expect(
    unsafe_code,
    reason = "shared memory is mapped, and its fields are read and written in place"
)]

use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering, fence};

use annals_format::live::layout as l;
use annals_format::{LiveHeader, RegionId, StreamId};
use memmap2::{Advice, MmapMut, MmapOptions};

use crate::clock::reference_ns;
use crate::row::RowCursor;

/// How a budget is divided into areas.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Division {
    pub(crate) page_bytes: usize,
    pub(crate) page_count: usize,
    pub(crate) slot_count: usize,
    pub(crate) segment_count: usize,
    pub(crate) definitions_bytes: usize,
    pub(crate) function_count: usize,
}

const fn round_up(bytes: usize, to: usize) -> usize {
    bytes.div_ceil(to) * to
}

impl Division {
    /// Smallest page: the system's, so that pages do not share one.
    pub(crate) const LEAST_PAGE: usize = 4096;
    /// Largest page: whatever rows it holds, its chunk stays within the limits of the format. An
    /// event takes two bytes, and the elements it does not have an eighth of a byte each, so that a
    /// page has no more than 2¹⁹ events and eight values a byte, 2²³.
    pub(crate) const LARGEST_PAGE: usize = 1 << 20;
    /// Most segments.
    /// The process keeps four kilobytes for each.
    const MOST_SEGMENTS: usize = 8192;
    /// Largest budget: the live file must stay within the limits of the format.
    const LARGEST_BUDGET: usize = l::MAX_FILE_LEN as usize - (64 << 20);

    /// Divides a budget; small budgets get the least that works.
    pub(crate) fn of(budget: usize, page_bytes: Option<usize>) -> Self {
        let budget = budget.min(Self::LARGEST_BUDGET);
        let page_bytes = page_bytes.unwrap_or_else(|| (budget / 64).clamp(4 << 10, 64 << 10));
        let page_bytes = round_up(
            page_bytes.clamp(Self::LEAST_PAGE, Self::LARGEST_PAGE),
            Self::LEAST_PAGE,
        );
        let definitions_bytes = round_up((budget / 32).clamp(32 << 10, 1 << 20), 4096);
        // As many functions as are met before the thread that defines them gets a processor: 8192 by default. The budget is for
        // events: this takes half as much as the definitions.
        let function_count = definitions_bytes / 64;
        let left = budget.saturating_sub(l::HEADER_LEN + definitions_bytes);
        // One counter segment and one slot to a page, as far as small pages leave room for them.
        let share = page_bytes + l::SEGMENT_LEN + l::SLOT_LEN;
        let page_count = (left / share).clamp(4, 1 << 20);
        let segment_count = page_count.clamp(32, Self::MOST_SEGMENTS);
        Self {
            page_bytes,
            page_count,
            slot_count: round_up(segment_count, 16),
            segment_count,
            definitions_bytes,
            function_count,
        }
    }

    fn slots_offset(&self) -> usize {
        l::HEADER_LEN
    }

    /// Aligned, so that a page of the system that a crash leaves as zeros has whole segments.
    fn segments_offset(&self) -> usize {
        round_up(
            self.slots_offset() + self.slot_count * l::SLOT_LEN,
            l::SEGMENT_LEN,
        )
    }

    fn definitions_offset(&self) -> usize {
        self.segments_offset() + self.segment_count * l::SEGMENT_LEN
    }

    fn functions_offset(&self) -> usize {
        self.definitions_offset() + self.definitions_bytes
    }

    fn function_entries_offset(&self) -> usize {
        self.functions_offset() + l::MODULE_COUNT * l::MODULE_LEN
    }

    fn pages_offset(&self) -> usize {
        let functions = self.function_count * l::FUNCTION_LEN;
        round_up(self.function_entries_offset() + functions, 4096)
    }

    fn total(&self) -> usize {
        self.pages_offset() + self.page_count * self.page_bytes
    }
}

/// The module of a function that is called for the first time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FunctionModule {
    /// A module that was [added](crate::Recorder::add_module): its base.
    Defined {
        /// Address in memory less address in the file; wraps.
        base: u64,
    },
    /// A module that was [announced](crate::Raiser::announce_module).
    Announced {
        /// Address in memory less address in the file; wraps.
        base: u64,
        /// Its number.
        number: u16,
    },
    /// No file is known at the function's address.
    Unknown,
}

/// Where a function is that is called for the first time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FunctionEntry {
    /// Address in the module's file; in memory if the module is unknown.
    pub address: u64,
    /// Its module.
    pub module: FunctionModule,
}

/// The mapped live file, or anonymous memory of the same layout when no file could be created.
#[derive(Debug)]
pub(crate) struct LiveMemory {
    map: MmapMut,
    base: *mut u8,
    division: Division,
    path: Option<PathBuf>,
}

// SAFETY: all shared fields are accessed as atomics; rows and pages belong to one thread at a time,
// which the recorder's queues hand on.
unsafe impl Send for LiveMemory {}
// SAFETY: all shared fields are accessed as atomics; rows and pages belong to one thread at a time,
// which the recorder's queues hand on.
unsafe impl Sync for LiveMemory {}

impl LiveMemory {
    /// Creates and maps the file, with its space reserved and its part before the pages in memory.
    /// When that fails, returns anonymous memory and the reason.
    pub(crate) fn create(
        places: &[PathBuf],
        division: Division,
    ) -> io::Result<(Self, Option<io::Error>)> {
        let mut failure = None;
        let mut mapped = places.iter().find_map(|path| {
            let map = Self::map_file(path, division.total());
            let map = map.inspect_err(|_| drop(std::fs::remove_file(path)));
            let map = map.map_err(|error| failure.get_or_insert(error)).ok()?;
            Some((map, path.to_owned()))
        });
        let path = mapped.as_mut().map(|(_, path)| std::mem::take(path));
        let mut map = match mapped {
            Some((map, _)) => map,
            None => MmapMut::map_anon(division.total())?,
        };
        let failure = failure.filter(|_| path.is_none());
        let base = map.as_mut_ptr();
        let memory = Self {
            map,
            base,
            division,
            path,
        };
        memory.prepare();
        Ok((memory, failure))
    }

    fn map_file(path: &Path, length: usize) -> io::Result<MmapMut> {
        let file: File = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)?;
        // Reserved, not only sized: writing to a hole of a full file system would kill the program.
        // SAFETY: the descriptor is open; the call touches no memory of ours.
        let reserve =
            || unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, length as libc::off_t) };
        let mut code = reserve();
        while code == libc::EINTR {
            code = reserve();
        }
        if code != 0 {
            return Err(io::Error::from_raw_os_error(code));
        }
        // SAFETY: the file is ours alone (created exclusively, mode 0600) and never truncated while
        // mapped.
        unsafe { MmapOptions::new().len(length).map_mut(&file) }
    }

    fn prepare(&self) {
        let _ = self.map.advise(Advice::DontDump);
        self.populate_bytes(0, self.division.pages_offset());
    }

    /// Brings pages into memory that were never used.
    pub(crate) fn populate(&self, pages: Range<usize>) {
        let start = self.division.pages_offset() + pages.start * self.division.page_bytes;
        self.populate_bytes(start, pages.len() * self.division.page_bytes);
    }

    /// Where the kernel cannot do this (before Linux 5.14), each page is allocated at its first
    /// write.
    fn populate_bytes(&self, offset: usize, length: usize) {
        if length != 0 {
            let _ = self.map.advise_range(Advice::PopulateWrite, offset, length);
        }
    }

    /// Writes the header; afterwards readers accept the file.
    pub(crate) fn write_header(&self, mut header: LiveHeader) {
        let division = &self.division;
        header.page_size = division.page_bytes as u32;
        header.page_count = division.page_count as u32;
        header.pages_offset = division.pages_offset() as u64;
        header.slots_offset = division.slots_offset() as u64;
        header.slot_count = division.slot_count as u32;
        header.segment_count = division.segment_count as u32;
        header.segments_offset = division.segments_offset() as u64;
        header.definitions_offset = division.definitions_offset() as u64;
        header.definitions_capacity = division.definitions_bytes as u64;
        header.functions_offset = division.functions_offset() as u64;
        header.function_count = division.function_count as u32;
        self.word(l::STATE)
            .store(l::STATE_RECORDING, Ordering::Release);
        let bytes = header.encode();
        // SAFETY: the header area is longer than the fixed part, and no one else writes there.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.base, bytes.len()) };
    }

    /// Releases the file once its events are in the recording.
    /// Only the counters stay, in memory of the process.
    ///
    /// Otherwise the file would keep its space for as long as the process runs, and the process's
    /// end would wait for the file to be freed, with its descriptors closed already: in that state
    /// Open MPI's launcher (5.0) can hang on a rank. Where the system cannot do this, the file is
    /// freed with the process.
    pub(crate) fn release(&self) {
        let length = self.map.len();
        let Ok(mut copy) = MmapMut::map_anon(length) else {
            return;
        };
        // Most is zero, and takes no memory when it is not touched.
        for offset in (0..self.division.pages_offset()).step_by(8) {
            let value = self.word(offset).load(Ordering::Relaxed);
            if value != 0 {
                // SAFETY: within the copy, which is as long, and aligned as it is to pages.
                unsafe { copy.as_mut_ptr().add(offset).cast::<u64>().write(value) };
            }
        }
        // In one step, and not by a hole in the file: a thread that was interrupted in an event may
        // write on, and would be killed where a hole cannot be filled. SAFETY: replaces our own
        // mapping by one of the same size and access; what is in it is accessed as atomics or by
        // one thread each, and any content of pages is sound.
        // By the system itself: libraries replace the C library's `mremap` (UCX, which MPICH uses), and forget the address.
        let moved = unsafe {
            libc::syscall(
                libc::SYS_mremap,
                copy.as_mut_ptr(),
                length,
                length,
                libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED,
                self.base,
            )
        };
        if moved != -1 {
            // It is where the file was.
            std::mem::forget(copy);
        }
    }

    /// Returns the path of the file, if there is one.
    pub(crate) fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    pub(crate) fn division(&self) -> &Division {
        &self.division
    }

    fn at(&self, offset: usize, length: usize) -> *mut u8 {
        assert!(
            offset + length <= self.map.len(),
            "an offset within the live memory"
        );
        // SAFETY: checked to be within the mapping.
        unsafe { self.base.add(offset) }
    }

    /// Returns the 64-bit field at an offset that is a multiple of 8.
    pub(crate) fn word(&self, offset: usize) -> &AtomicU64 {
        debug_assert!(offset.is_multiple_of(8));
        // SAFETY: in bounds, aligned (the mapping is page-aligned), and only accessed as an atomic.
        unsafe { AtomicU64::from_ptr(self.at(offset, 8).cast()) }
    }

    fn half(&self, offset: usize) -> &AtomicU32 {
        debug_assert!(offset.is_multiple_of(4));
        // SAFETY: as for `word`.
        unsafe { AtomicU32::from_ptr(self.at(offset, 4).cast()) }
    }

    fn quarter(&self, offset: usize) -> &AtomicU16 {
        debug_assert!(offset.is_multiple_of(2));
        // SAFETY: as for `word`.
        unsafe { AtomicU16::from_ptr(self.at(offset, 2).cast()) }
    }

    pub(crate) fn slot(&self, number: usize) -> Slot<'_> {
        assert!(number < self.division.slot_count, "a slot that exists");
        Slot {
            memory: self,
            offset: self.division.slots_offset() + number * l::SLOT_LEN,
        }
    }

    pub(crate) fn page(&self, number: u32) -> Page<'_> {
        assert!(
            (number as usize) < self.division.page_count,
            "a page that exists"
        );
        Page {
            memory: self,
            offset: self.division.pages_offset() + number as usize * self.division.page_bytes,
        }
    }

    /// Returns the counters of the 32 event types of a segment.
    pub(crate) fn segment(&self, number: usize) -> &'static SegmentCounters {
        assert!(
            number < self.division.segment_count,
            "a segment that exists"
        );
        let offset = self.division.segments_offset() + number * l::SEGMENT_LEN;
        let start = self.at(offset, l::SEGMENT_LEN).cast::<SegmentCounters>();
        // SAFETY: in bounds, page-aligned, atomics only; the mapping is never removed, only
        // replaced in one step (`release`), while a recorder's shared part lives, and streams keep
        // that alive.
        unsafe { &*start }
    }

    /// Writes a function entry. Only one thread at a time may write an entry.
    pub(crate) fn put_function(&self, number: usize, region: RegionId, entry: &FunctionEntry) {
        assert!(
            number < self.division.function_count,
            "an entry that exists"
        );
        let at = self.division.function_entries_offset() + number * l::FUNCTION_LEN;
        let (state, base, module) = match entry.module {
            FunctionModule::Defined { base } => (l::FUNCTION_OF_MODULE, base, 0),
            FunctionModule::Announced { base, number } => {
                (l::FUNCTION_OF_MODULE, base, u64::from(number) + 1)
            }
            FunctionModule::Unknown => (l::FUNCTION_WITHOUT_MODULE, 0, 0),
        };
        const _: () = assert!(l::FUNCTION_STATE == 0 && l::FUNCTION_REGION == 4);
        self.word(at).store(0, Ordering::Relaxed);
        fence(Ordering::Release);
        self.word(at + l::FUNCTION_ADDRESS)
            .store(entry.address, Ordering::Relaxed);
        self.word(at + l::FUNCTION_BASE)
            .store(base, Ordering::Relaxed);
        self.word(at + l::FUNCTION_MODULE)
            .store(module, Ordering::Relaxed);
        let whole = u64::from(state) | u64::from(region.get()) << 32;
        self.word(at).store(whole, Ordering::Release);
    }

    /// Writes a module entry, which no other thread writes. Returns `false` if the path or build id is too long for it.
    pub(crate) fn put_module(
        &self,
        number: usize,
        path: &[u8],
        build_id: &[u8],
        base: u64,
    ) -> bool {
        if number >= l::MODULE_COUNT
            || path.len() > l::MAX_MODULE_PATH
            || build_id.len() > l::MAX_BUILD_ID
        {
            return false;
        }
        let at = self.division.functions_offset() + number * l::MODULE_LEN;
        self.word(at + l::MODULE_BASE)
            .store(base, Ordering::Relaxed);
        self.word(at + l::MODULE_LOADED)
            .store(reference_ns() as u64, Ordering::Relaxed);
        for (field, bytes) in [(l::MODULE_BUILD_ID, build_id), (l::MODULE_PATH, path)] {
            for (place, bytes) in bytes.chunks(8).enumerate() {
                let mut word = [0; 8];
                word[..bytes.len()].copy_from_slice(bytes);
                self.word(at + field + 8 * place)
                    .store(u64::from_le_bytes(word), Ordering::Relaxed);
            }
        }
        const _: () = assert!(l::MODULE_PATH_LEN == 4 && l::MODULE_BUILD_ID_LEN == 6);
        let whole = 1 | (path.len() as u64) << 32 | (build_id.len() as u64) << 48;
        self.word(at + l::MODULE_STATE)
            .store(whole, Ordering::Release);
        true
    }

    /// Stores the number of region ids that were assigned.
    pub(crate) fn put_region_count(&self, count: u32) {
        self.word(l::REGION_COUNT)
            .fetch_max(count.into(), Ordering::Release);
    }

    /// Appends committed bytes to the definitions area; false when they do not fit.
    pub(crate) fn append_definitions(&self, bytes: &[u8]) -> bool {
        let length = self.word(l::DEFINITIONS_LEN);
        let used = length.load(Ordering::Relaxed) as usize;
        if used + bytes.len() > self.division.definitions_bytes {
            return false;
        }
        let start = self.at(self.division.definitions_offset() + used, bytes.len());
        // SAFETY: in bounds; the registry's lock lets one thread at a time append.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), start, bytes.len()) };
        length.store((used + bytes.len()) as u64, Ordering::Release);
        true
    }

    /// Empties the definitions area: its records are in the recording twice.
    /// The length is stored before the generation: a reader that reads the old length then finds
    /// the generation changed before new bytes are written.
    pub(crate) fn clear_definitions(&self) {
        self.word(l::DEFINITIONS_LEN).store(0, Ordering::SeqCst);
        self.word(l::DEFINITIONS_GENERATION)
            .fetch_add(1, Ordering::SeqCst);
    }
}

/// Counters of one event type in one stream. One thread writes them (many for an unattributed row),
/// but for the causes that [`annals_format::Cause::is_counted_by_writer`] names: those are the
/// writer's.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Counters {
    pub(crate) raised: AtomicU64,
    pub(crate) suppressed: AtomicU64,
    pub(crate) dropped: [AtomicU64; l::ROW_CAUSES],
}

const _: () = assert!(size_of::<Counters>() == l::ROW_LEN);
const _: () = assert!(std::mem::offset_of!(Counters, suppressed) == l::ROW_SUPPRESSED);
const _: () = assert!(std::mem::offset_of!(Counters, dropped) == l::ROW_DROPPED);

impl Counters {
    /// Sets all counters to 0.
    pub(crate) fn clear(&self) {
        let counters = [&self.raised, &self.suppressed];
        for counter in counters.into_iter().chain(&self.dropped) {
            counter.store(0, Ordering::Relaxed);
        }
    }
}

/// Data about an event type in one stream that is private to the process: no reader needs it.
/// Each belongs to [`Counters`].
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub(crate) struct EventState {
    /// The user's rule for events of the type: [`crate::gate::Gate`].
    pub(crate) gate: AtomicU64,
    /// State of a rate limit: the earliest tick at which the next event passes.
    pub(crate) limiter: AtomicU64,
    /// The part of each drop count that dropped records report already, by the codes of the causes.
    pub(crate) reported: [AtomicU64; 6],
    /// The part of the suppressed count that dropped records report already, or that a sample left
    /// out.
    pub(crate) reported_suppressed: AtomicU64,
    /// Tick of the stream's last event before the suppressed events that no record reports yet.
    pub(crate) suppressed_from: AtomicU64,
}

impl EventState {
    /// Creates a state whose gate sends every event to the slow path.
    pub(crate) const fn shut() -> Self {
        Self {
            gate: AtomicU64::new(u64::MAX),
            limiter: AtomicU64::new(0),
            reported: [const { AtomicU64::new(0) }; 6],
            reported_suppressed: AtomicU64::new(0),
            suppressed_from: AtomicU64::new(0),
        }
    }
}

/// The counters of a block of 32 event types.
pub(crate) type SegmentCounters = [Counters; l::ROWS_PER_SEGMENT];

/// Adds one to a counter that only this thread writes: cheaper than an atomic addition.
#[inline]
pub(crate) fn bump(counter: &AtomicU64) {
    // At a billion a second it takes 584 years to overflow.
    let next = counter.load(Ordering::Relaxed).wrapping_add(1);
    counter.store(next, Ordering::Relaxed);
}

/// One open stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot<'a> {
    memory: &'a LiveMemory,
    offset: usize,
}

impl<'a> Slot<'a> {
    pub(crate) fn stream(&self) -> &'a AtomicU32 {
        self.memory.half(self.offset + l::SLOT_STREAM)
    }

    pub(crate) fn is_shared(&self) -> &'a AtomicU32 {
        self.memory.half(self.offset + l::SLOT_IS_SHARED)
    }

    pub(crate) fn busy(&self) -> &'a AtomicU64 {
        self.memory.word(self.offset + l::SLOT_BUSY)
    }

    pub(crate) fn open_tick(&self) -> &'a AtomicU64 {
        self.memory.word(self.offset + l::SLOT_OPEN_TICK)
    }

    /// Returns the number of events in all pages that the stream has handed on.
    pub(crate) fn recorded(&self) -> &'a AtomicU64 {
        self.memory.word(self.offset + l::SLOT_RECORDED)
    }

    pub(crate) fn source(&self) -> &'a AtomicU32 {
        self.memory.half(self.offset + l::SLOT_SOURCE)
    }

    pub(crate) fn location(&self) -> &'a AtomicU32 {
        self.memory.half(self.offset + l::SLOT_LOCATION)
    }

    pub(crate) fn system_id(&self) -> &'a AtomicU64 {
        self.memory.word(self.offset + l::SLOT_SYSTEM_ID)
    }

    /// Returns the number of events that the stream counted as dropped or suppressed instead of recording them.
    pub(crate) fn lost(&self) -> &'a AtomicU64 {
        self.memory.word(self.offset + l::SLOT_LOST)
    }

    /// Returns the thread's name: 16 bytes.
    pub(crate) fn name(&self) -> [&'a AtomicU64; 2] {
        [0, 8].map(|at| self.memory.word(self.offset + l::SLOT_NAME + at))
    }

    pub(crate) fn segment(&self, block: usize) -> &'a AtomicU16 {
        assert!(
            block < l::SEGMENTS_PER_SLOT,
            "a block of event types that exists"
        );
        self.memory
            .quarter(self.offset + l::SLOT_SEGMENTS + 2 * block)
    }
}

/// The contents of a page at one moment.
#[derive(Debug)]
pub(crate) struct PageCopy {
    pub(crate) stream: StreamId,
    pub(crate) sequence: u64,
    pub(crate) base_tick: u64,
    /// Reference clock at the opening, nanoseconds.
    pub(crate) opened_ns: i64,
    /// The committed rows.
    pub(crate) rows: Vec<u8>,
}

/// One buffer page.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Page<'a> {
    memory: &'a LiveMemory,
    offset: usize,
}

impl<'a> Page<'a> {
    pub(crate) fn stream(&self) -> &'a AtomicU32 {
        self.memory.half(self.offset + l::PAGE_STREAM)
    }

    pub(crate) fn field(&self, offset: usize) -> &'a AtomicU64 {
        self.memory.word(self.offset + offset)
    }

    pub(crate) fn commit(&self) -> &'a AtomicU64 {
        self.field(l::PAGE_COMMIT)
    }

    fn rows_start(&self) -> *mut u8 {
        let room = self.memory.division.page_bytes - l::PAGE_HEADER_LEN;
        self.memory.at(self.offset + l::PAGE_HEADER_LEN, room)
    }

    /// Returns the start of the rows, and the most bytes that they may take.
    pub(crate) fn room(&self) -> (*mut u8, usize) {
        (
            self.rows_start(),
            self.memory.division.page_bytes - l::PAGE_HEADER_LEN,
        )
    }

    /// Returns a cursor `offset` bytes into the rows.
    ///
    /// # Safety
    /// - The page belongs to the calling thread.
    /// - Writes through the cursor stay within the page's room.
    #[inline]
    pub(crate) unsafe fn cursor(start: *mut u8, offset: usize) -> RowCursor {
        // SAFETY: the caller keeps within the page.
        let start = unsafe { start.add(offset) };
        // SAFETY: the caller owns the page and keeps within it.
        unsafe { RowCursor::new(start) }
    }

    /// Returns the committed rows.
    pub(crate) fn committed_rows(&self) -> &'a [u8] {
        let commit = self.commit().load(Ordering::Acquire);
        let room = self.memory.division.page_bytes - l::PAGE_HEADER_LEN;
        let length = (commit as u32 as usize).min(room);
        // SAFETY: in bounds; the producer wrote these bytes before its release store of the commit
        // word and does not touch them again while the writer owns the page.
        unsafe { std::slice::from_raw_parts(self.rows_start(), length) }
    }

    /// Returns a copy of a page that its owner may free and use again meanwhile.
    /// Returns `None` if it did, or if the page is free.
    pub(crate) fn copy(&self) -> Option<PageCopy> {
        let stream = self.stream().load(Ordering::Acquire).checked_sub(1)?;
        let generation = self.field(l::PAGE_GENERATION).load(Ordering::Acquire);
        let length = self.commit().load(Ordering::Acquire) as u32 as usize;
        let room = self.memory.division.page_bytes - l::PAGE_HEADER_LEN;
        let length = length.min(room);
        let mut rows = Vec::with_capacity(length + 8);
        for at in (0..length).step_by(8) {
            let word = self.field(l::PAGE_HEADER_LEN + at);
            rows.extend_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
        }
        rows.truncate(length);
        let copy = PageCopy {
            stream: StreamId::new(stream),
            sequence: self.field(l::PAGE_SEQUENCE).load(Ordering::Relaxed),
            base_tick: self.field(l::PAGE_BASE_TICK).load(Ordering::Relaxed),
            opened_ns: self.field(l::PAGE_OPEN_REFERENCE).load(Ordering::Relaxed) as i64,
            rows,
        };
        std::sync::atomic::fence(Ordering::Acquire);
        let now = self.field(l::PAGE_GENERATION).load(Ordering::Relaxed);
        (now == generation).then_some(copy)
    }

    /// Makes the page free: reuse order is generation, commit = 0, stream.
    pub(crate) fn reset(&self) {
        self.field(l::PAGE_GENERATION)
            .fetch_add(1, Ordering::AcqRel);
        self.commit().store(0, Ordering::Release);
        self.stream().store(0, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use annals_format::{MAX_CHUNK_EVENTS, MAX_CHUNK_VALUES, MAX_ELEMENTS};

    use super::*;

    #[test]
    fn the_largest_page_cannot_exceed_the_limits_of_a_chunk() {
        let page = Division::of(usize::MAX, Some(usize::MAX)).page_bytes;
        assert_eq!(page, Division::LARGEST_PAGE);
        // The shortest rows: no elements; and nothing but elements that are absent.
        assert!(page / 2 <= MAX_CHUNK_EVENTS);
        assert!(page / (2 + MAX_ELEMENTS / 8) * MAX_ELEMENTS <= MAX_CHUNK_VALUES);
        assert!(page <= l::MAX_PAGE_LEN);
    }

    #[test]
    fn any_budget_gives_a_live_file_within_the_limits() {
        for budget in [0, 16 << 20, 8 << 30, usize::MAX] {
            for page_bytes in [None, Some(0), Some(64 << 10), Some(usize::MAX)] {
                let division = Division::of(budget, page_bytes);
                assert!(division.total() as u64 <= l::MAX_FILE_LEN);
                assert!(division.definitions_bytes as u64 <= l::MAX_DEFINITIONS_LEN);
                assert!(division.function_count <= l::MAX_FUNCTION_COUNT as usize);
            }
        }
    }
}
