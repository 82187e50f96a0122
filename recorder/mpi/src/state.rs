//! What is known once recording has begun: the recorder, the library's binary interface, what events look like.
#![expect(unsafe_code, reason = "the state is reached through one pointer")]

use annals_recorder::names::element;
use std::ptr::null_mut;
use std::sync::atomic::{
    AtomicBool, AtomicI32, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering,
};
use std::sync::{Mutex, MutexGuard, PoisonError};

use annals_recorder::{
    Elements, EventType, EventTypeSpec, Recorder, RecorderError, Reference, RegionId, Role, Text,
};

use crate::abi::{Abi, Kind, STATUS_ROOM};
use crate::chosen::{self, Chosen};
use crate::communicators::Communicator;
use crate::handles::hash;
use crate::library;
use crate::mpi_table::{COUNT, FUNCTIONS};
use crate::real::{self, Real};
use crate::{events, stack};

/// In place of a region's number: none was assigned yet.
const UNKNOWN: u32 = u32::MAX;
/// The function is not recorded as a region.
const OFF: u32 = u32::MAX - 1;

type Regions = [AtomicU32; COUNT];

/// By number of the function.
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
    pub(crate) real: Real,
    pub(crate) types: Types,
    /// [`REGIONS`], or [`NO_REGIONS`] while MPI_Pcontrol has switched them off.
    regions: AtomicPtr<Regions>,
    /// Null: not known yet.
    pub(crate) world: AtomicPtr<Communicator>,
    /// The group of all processes of the run.
    /// 0 means that it is not known.
    pub(crate) world_group: AtomicUsize,
    /// This process's rank in the run; -1: not known.
    pub(crate) world_rank: AtomicI32,
    /// Several threads may call concurrently.
    pub(crate) is_multiple: AtomicBool,
    /// Whether a status has the bytes of a message at the expected offset.
    has_known_status: AtomicBool,
    /// Handle of the request that stands for everything that is complete immediately.
    /// 0 means none.
    pub(crate) request_empty: usize,
}

/// A send: communicator, peer, tag, bytes.
pub(crate) type Message = (u32, u32, u32, u64);
/// Elements of events about requested messages: those of a message, and the request.
pub(crate) type Requested = (u32, u32, u32, u64, u64);
/// Communicator, operation, root, bytes sent, bytes received, place, size.
pub(crate) type Collective = (u32, u32, i32, u64, u64, u32, u32);
/// The elements of [`Collective`], and the request.
pub(crate) type CollectiveRequested = (u32, u32, i32, u64, u64, u32, u32, u64);

/// The event types that are raised in addition to enters and leaves.
#[derive(Debug)]
pub(crate) struct Types {
    pub(crate) send: EventType<Message>,
    pub(crate) receive: EventType<Message>,
    pub(crate) isend: EventType<Requested>,
    pub(crate) ireceive: EventType<Requested>,
    /// Communicator, peer, tag, request.
    pub(crate) receive_start: EventType<(u32, i32, i32, u64)>,
    pub(crate) send_end: EventType<(u64,)>,
    pub(crate) cancel: EventType<(u64,)>,
    /// Communicator, peer, tag, and the request where there is one.
    pub(crate) unsent: EventType<(u32, u32, u32)>,
    pub(crate) iunsent: EventType<(u32, u32, u32, u64)>,
    pub(crate) collective_begin: EventType<Collective>,
    pub(crate) collective_end: EventType<Collective>,
    pub(crate) icollective_begin: EventType<CollectiveRequested>,
    pub(crate) icollective_end: EventType<CollectiveRequested>,
    /// Window, target, bytes.
    pub(crate) put: EventType<(u32, i32, u64)>,
    pub(crate) get: EventType<(u32, i32, u64)>,
    pub(crate) atomic: EventType<(u32, i32, u64)>,
    /// The request of a one-sided operation that is complete.
    pub(crate) rma_end: EventType<(u64,)>,
    /// The request of a one-sided operation, raised after the operation itself.
    pub(crate) rma_request: EventType<(u64,)>,
    /// File, bytes.
    pub(crate) read: EventType<(u32, u64)>,
    pub(crate) write: EventType<(u32, u64)>,
    /// File, request.
    pub(crate) file_start: EventType<(u32, u64)>,
    /// File, bytes, request.
    pub(crate) file_end: EventType<(u32, u64, u64)>,
    /// Communicator, parent, size, place.
    pub(crate) communicator: EventType<(u32, u32, u32, u32)>,
    /// Window, communicator.
    pub(crate) window: EventType<(u32, u32)>,
    /// Object, name.
    pub(crate) named: EventType<(u32, Text)>,
    pub(crate) control: EventType<(i32,)>,
}

impl Types {
    fn add(recorder: &Recorder) -> Result<Self, RecorderError> {
        let spec = |name: &str, what: &str, role: Role| {
            EventTypeSpec::new(name).description(what).role(role)
        };
        let message = |name: &str, what: &str, role: Role| {
            spec(name, what, role)
                .reference(element::COMMUNICATOR, Reference::Object)
                .reference(element::PEER, Reference::Rank)
                .element(element::TAG)
                .element_in(element::BYTES, "bytes")
        };
        let collective = |name: &str, what: &str, role: Role| {
            spec(name, what, role)
                .reference(element::COMMUNICATOR, Reference::Object)
                .element(element::OPERATION)
                .reference(element::ROOT, Reference::Rank)
                .element_in(element::BYTES_SENT, "bytes")
                .element_in(element::BYTES_RECEIVED, "bytes")
                .element(element::PLACE)
                .element(element::SIZE)
        };
        let request =
            |name: &str, what: &str, role: Role| spec(name, what, role).element(element::REQUEST);
        let unsent = |name: &str, what: &str| {
            spec(name, what, Role::Cancel)
                .reference(element::COMMUNICATOR, Reference::Object)
                .reference(element::PEER, Reference::Rank)
                .element(element::TAG)
        };
        let rma = |name: &str, what: &str| {
            spec(name, what, Role::Point)
                .reference("window", Reference::Object)
                .reference(element::PEER, Reference::Rank)
                .element_in(element::BYTES, "bytes")
        };
        let file = |name: &str, what: &str| {
            spec(name, what, Role::Point).reference("file", Reference::Object)
        };
        use Role::{CollectiveBegin, CollectiveEnd, Point, Receive, ReceiveStart, Send};
        let r = recorder;
        // The order is that of their use: the first ones are cheapest to raise.
        Ok(Self {
            send: r.add_event_type(&message("mpi.send", "a message is sent", Send))?,
            receive: r.add_event_type(&message("mpi.receive", "a message is there", Receive))?,
            isend: r.add_event_type(
                &message("mpi.isend", "a message begins to be sent", Send)
                    .element(element::REQUEST),
            )?,
            ireceive: r.add_event_type(
                &message(
                    "mpi.ireceive",
                    "a message that was waited for is there",
                    Receive,
                )
                .element(element::REQUEST),
            )?,
            receive_start: r.add_event_type(
                &spec("mpi.receive_start", "a message is waited for", ReceiveStart)
                    .reference(element::COMMUNICATOR, Reference::Object)
                    .reference(element::PEER, Reference::Rank)
                    .element(element::TAG)
                    .element(element::REQUEST),
            )?,
            send_end: r.add_event_type(&request(
                "mpi.send_end",
                "the buffer of a message may be used again",
                Role::SendEnd,
            ))?,
            cancel: r.add_event_type(&request(
                "mpi.cancel",
                "no message is waited for any more",
                Role::Cancel,
            ))?,
            collective_begin: r.add_event_type(&collective(
                "mpi.collective_begin",
                "a collective operation begins",
                CollectiveBegin,
            ))?,
            collective_end: r.add_event_type(&collective(
                "mpi.collective_end",
                "a collective operation is done",
                CollectiveEnd,
            ))?,
            icollective_begin: r.add_event_type(
                &collective(
                    "mpi.icollective_begin",
                    "a non-blocking collective operation begins",
                    CollectiveBegin,
                )
                .element(element::REQUEST),
            )?,
            icollective_end: r.add_event_type(
                &collective(
                    "mpi.icollective_end",
                    "a non-blocking collective operation is done",
                    CollectiveEnd,
                )
                .element(element::REQUEST),
            )?,
            put: r.add_event_type(&rma("mpi.put", "bytes go into another's window"))?,
            get: r.add_event_type(&rma("mpi.get", "bytes come out of another's window"))?,
            atomic: r
                .add_event_type(&rma("mpi.atomic", "bytes in another's window are changed"))?,
            rma_request: r.add_event_type(&request(
                "mpi.rma_request",
                "the one-sided operation before has this request",
                Point,
            ))?,
            rma_end: r.add_event_type(&request(
                "mpi.rma_end",
                "a one-sided operation is complete here",
                Point,
            ))?,
            read: r.add_event_type(
                &file("mpi.read", "was read").element_in(element::BYTES, "bytes"),
            )?,
            write: r.add_event_type(
                &file("mpi.write", "was written").element_in(element::BYTES, "bytes"),
            )?,
            file_start: r.add_event_type(
                &file("mpi.file_start", "begins to be read or written").element(element::REQUEST),
            )?,
            file_end: r.add_event_type(
                &file("mpi.file_end", "was read or written")
                    .element_in(element::BYTES, "bytes")
                    .element(element::REQUEST),
            )?,
            communicator: r.add_event_type(
                &spec("mpi.communicator", "a communicator was made", Point)
                    .reference(element::COMMUNICATOR, Reference::Object)
                    .reference("parent", Reference::Object)
                    .element(element::SIZE)
                    .element(element::PLACE),
            )?,
            window: r.add_event_type(
                &spec("mpi.window", "a window was made", Point)
                    .reference("window", Reference::Object)
                    .reference(element::COMMUNICATOR, Reference::Object),
            )?,
            named: r.add_event_type(
                &spec("mpi.named", "the program gave it a name", Point)
                    .reference("object", Reference::Object)
                    .element("name"),
            )?,
            unsent: r.add_event_type(&unsent(
                "mpi.unsent",
                "a message was not sent: the call failed",
            ))?,
            iunsent: r.add_event_type(
                &unsent(
                    "mpi.iunsent",
                    "a message was not sent: cancelled, or failed",
                )
                .element(element::REQUEST),
            )?,
            control: r
                .add_event_type(&spec("mpi.pcontrol", "MPI_Pcontrol", Point).element("level"))?,
        })
    }
}

/// Returns the state, or `None` if recording has not begun.
#[inline(always)]
pub(crate) fn get() -> Option<&'static Mpi> {
    // SAFETY: null, or leaked by `start`.
    unsafe { MPI.load(Ordering::Acquire).as_ref() }
}

/// Returns which binary interface the library has.
pub(crate) fn kind() -> Option<Kind> {
    get().map(|mpi| mpi.abi.kind)
}

/// Returns the state, begun now if it was not, or `None` when it cannot be.
#[cold]
pub(crate) fn get_or_start() -> Option<&'static Mpi> {
    const NONE: u8 = 0;
    const STARTING: u8 = 1;
    const DONE: u8 = 2;
    static STATE: AtomicU8 = AtomicU8::new(NONE);
    if let Some(mpi) = get() {
        // A forked child is on its own.
        return Some(mpi);
    }
    let (order, seen) = (Ordering::AcqRel, Ordering::Relaxed);
    if STATE.compare_exchange(NONE, STARTING, order, seen).is_err() {
        // The state cannot be had; or another thread is starting it, whose calls are recorded and
        // not this one's.
        return None;
    }
    if let Err(why) = std::panic::catch_unwind(start).unwrap_or_else(|_| Err(String::new())) {
        eprintln!("annals: MPI is not recorded: {why}");
    }
    STATE.store(DONE, Ordering::Release);
    if let Some(mpi) = get().filter(|mpi| mpi.real.is_begun()) {
        crate::lifecycle::found_begun(mpi);
    }
    get()
}

fn start() -> Result<(), String> {
    if library::handle().is_null() {
        return Err("no library in memory has PMPI_Init".to_owned());
    }
    stack::register(true);
    library::adopt_callers();
    let Some(abi) = Abi::detect() else {
        return Err(format!(
            "the library is none whose binary interface is known (MPICH's, Open MPI's, or the standard's): `{}`",
            real::library_version()
                .lines()
                .next()
                .unwrap_or_default()
                .escape_debug()
        ));
    };
    chosen::note_unknown();
    if let Some(chosen) = Chosen::from_env(chosen::REGIONS)? {
        for (function, region) in FUNCTIONS.iter().zip(&REGIONS) {
            let is_named = chosen.has(&function.name.to_string_lossy());
            if !chosen.has(function.group) && !is_named {
                region.store(OFF, Ordering::Relaxed);
            }
        }
        if !chosen.is_only("none") {
            chosen.note_unused(chosen::REGIONS, "function or group");
        }
    }
    let recorder = annals_instrument::recorder().ok_or("the recorder cannot be started")?;
    let types = Types::add(recorder).map_err(|error| error.to_string())?;
    let real = Real::load();
    let version = real::library_version();
    let properties = [
        (
            "mpi.implementation",
            version.lines().next().unwrap_or_default(),
        ),
        ("mpi.interface", abi.kind.name()),
    ];
    for (key, value) in properties {
        recorder
            .add_property(key, value)
            .map_err(|error| error.to_string())?;
    }
    events::begin(recorder, &abi, &version)?;
    let request_empty = library::object(c"ompi_request_empty");
    let mpi = Mpi {
        recorder,
        abi,
        real,
        types,
        regions: AtomicPtr::new((&raw const REGIONS).cast_mut()),
        world: AtomicPtr::new(null_mut()),
        world_group: AtomicUsize::new(0),
        world_rank: AtomicI32::new(-1),
        is_multiple: AtomicBool::new(false),
        has_known_status: AtomicBool::new(false),
        request_empty,
    };
    MPI.store(Box::leak(Box::new(mpi)), Ordering::Release);
    Ok(())
}

/// Returns whether a status has its bytes where this library believes them to be.
fn knows_status(abi: &Abi, real: &Real) -> bool {
    const PROBE: i64 = 0x1_2345_6788;
    let mut status = [0_u64; STATUS_ROOM / 8];
    if abi.kind == Kind::Standard
        || !real.set_status_bytes(status.as_mut_ptr().cast(), abi.byte, PROBE)
    {
        return false;
    }
    bytes_in(abi.kind, status.as_ptr().cast()) == PROBE as u64
}

#[inline(always)]
fn bytes_in(kind: Kind, status: *const u8) -> u64 {
    let read = |at: usize| {
        // SAFETY: within a status.
        unsafe { status.add(at).cast::<u32>().read_unaligned() }
    };
    if kind == Kind::Mpich {
        // The lowest bit of the second word means cancelled.
        u64::from(read(0)) | u64::from(read(4) >> 1) << 32
    } else {
        u64::from(read(16)) | u64::from(read(20)) << 32
    }
}

impl Mpi {
    /// MPI_Init has returned, or a session is there.
    pub(crate) fn begin(&self, is_multiple: bool) {
        self.is_multiple.store(is_multiple, Ordering::Release);
        if let Some(place) = stack::place() {
            let place = place.to_string();
            let _ = self.recorder.add_property("mpi.qmpi-tool", &place);
        }
        crate::requests::share(is_multiple);
        let has_known_status = knows_status(&self.abi, &self.real);
        self.has_known_status
            .store(has_known_status, Ordering::Release);
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
            return None;
        }
        let function = &FUNCTIONS[index];
        let (name, group) = (
            function.name.to_string_lossy(),
            format!("mpi.{}", function.group),
        );
        let region = self.recorder.add_region_at(&name, "", 0, &group).ok()?;
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

    /// Returns the bytes of the message that a status describes.
    #[inline(always)]
    pub(crate) fn status_bytes(&self, status: *const u8) -> u64 {
        if self.has_known_status.load(Ordering::Relaxed) {
            bytes_in(self.abi.kind, status)
        } else {
            self.real.status_bytes(status, self.abi.byte)
        }
    }

    /// Returns a number in a status.
    #[inline(always)]
    pub(crate) fn status_int(&self, status: *const u8, at: usize) -> i32 {
        // SAFETY: within a status.
        unsafe { status.add(at).cast::<i32>().read_unaligned() }
    }

    /// Returns whether a request is the one that stands for what is complete immediately.
    /// Several operations have it at a time.
    #[inline(always)]
    pub(crate) fn is_complete_at_once(&self, request: usize) -> bool {
        /// MPICH's builtin requests.
        const BUILTIN: usize = 0x6c00_0000;
        match self.abi.kind {
            Kind::OpenMpi => request == self.request_empty,
            Kind::Mpich | Kind::Standard => request & !0x03ff_ffff == BUILTIN,
        }
    }

    /// Returns whether an error code means that each status has its own.
    pub(crate) fn is_in_status(&self, result: usize) -> bool {
        let code = result as u32 as i32;
        code != 0 && self.real.error_class(code) == self.abi.err_in_status
    }

    /// Returns whether a call with this result has received a message, also one that was too long
    /// for its buffer.
    #[inline(always)]
    pub(crate) fn has_received(&self, result: usize) -> bool {
        crate::wrap::is_success(result) || self.is_truncated(result as u32 as i32)
    }

    /// Returns whether an error code means that a message was longer than its buffer.
    #[cold]
    pub(crate) fn is_truncated(&self, error: i32) -> bool {
        self.real.error_class(error) == self.abi.err_truncate
    }

    /// Returns whether an error code means that a request is not done.
    pub(crate) fn is_pending(&self, error: i32) -> bool {
        self.real.error_class(error) == self.abi.err_pending
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
        let size = self.real.type_size(datatype);
        // What is MPI's own is never freed: the handle means the same for ever.
        let is_short = size >> SIZE_BITS == 0 && datatype as u64 >> (64 - SIZE_BITS) == 0;
        if is_short && self.real.combiner(datatype) == Some(self.abi.combiner_named) {
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

/// Splits a list at commas, colons, semicolons and blanks.
pub(crate) fn words(list: &str) -> impl Iterator<Item = &str> {
    list.split([',', ':', ';', ' ', '\t', '\n'])
        .filter(|word| !word.is_empty())
}

/// Locks a mutex, also when a holder panicked: no holder leaves its data half changed.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
