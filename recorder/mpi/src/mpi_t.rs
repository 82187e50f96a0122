//! The library's tool interface (MPI_T): beginning and releasing it, and the code that events and
//! variables share.
#![expect(unsafe_code, reason = "functions of a C library, found at run time")]

use std::ffi::{CStr, c_char, c_int};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use annals_recorder::ElementType;

use crate::abi::{Abi, AbiKind};
use crate::library::{self, library_functions};

/// Maximum number of characters of names and descriptions that are read.
pub(crate) const TEXT_ROOM: usize = 1024;

library_functions! {
    Interface;
    init_thread c"PMPI_T_init_thread" (required: c_int, provided: *mut c_int);
    finalize c"PMPI_T_finalize" ();
}

/// Constants of the three binary interfaces.
pub(crate) struct Constants {
    /// Levels of safety, from none on.
    pub(crate) levels: [i32; 4],
    pub(crate) ordered: i32,
    /// The binding of an event type without an object.
    /// A communicator's is 1 more, a window's 8.
    pub(crate) no_object: i32,
}

impl Constants {
    pub(crate) const fn of(kind: AbiKind) -> Self {
        match kind {
            AbiKind::Mpich => Self {
                levels: [0, 1, 2, 3],
                ordered: 0,
                no_object: 9700,
            },
            AbiKind::OpenMpi => Self {
                levels: [0, 1, 2, 3],
                ordered: 0,
                no_object: 0,
            },
            AbiKind::Standard => Self {
                levels: [0, 3, 15, 63],
                ordered: 1,
                no_object: 1,
            },
        }
    }
}

/// Whether the interface was released: it is not used any more.
static IS_RELEASED: AtomicBool = AtomicBool::new(false);
/// Whether this library has a reference to the interface.
static HAS_BEGUN: OnceLock<bool> = OnceLock::new();
/// Whether it is time to read the library's sources again.
static IS_DUE: AtomicBool = AtomicBool::new(false);

/// Returns whether it is time for polling the sources.
#[inline(always)]
pub(crate) fn is_due() -> bool {
    IS_DUE.load(Ordering::Relaxed)
}

/// Sets whether it is time to poll the sources.
pub(crate) fn set_due(is_due: bool) {
    IS_DUE.store(is_due, Ordering::Relaxed);
}

/// Starts a thread that sets [`is_due`] periodically: sources and variables are read in the
/// program's calls, and this only decides when.
pub(crate) fn start_ticker() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let ticker = std::thread::Builder::new().name("annals-mpi".to_owned());
        let _ = ticker.spawn(|| {
            annals_recorder::record_nothing_here();
            loop {
                std::thread::sleep(std::time::Duration::from_millis(100));
                set_due(true);
            }
        });
    });
}

/// Begins the interface if it was not begun. Returns whether it is available.
pub(crate) fn is_there(abi: &Abi) -> bool {
    if IS_RELEASED.load(Ordering::Acquire) {
        return false;
    }
    *HAS_BEGUN.get_or_init(|| {
        let mut provided = 0;
        // Open MPI's calls take longer in a process that has requested threads. That is not needed:
        // this library calls it from the program's calls alone, which are made by several threads
        // only if the program has requested that.
        const SINGLE: c_int = 0;
        let level = match abi.kind {
            AbiKind::OpenMpi => SINGLE,
            AbiKind::Mpich | AbiKind::Standard => abi.thread_multiple,
        };
        // SAFETY: a valid place. Released at most once, see `release`: libraries do not survive a
        // second beginning.
        unsafe { Interface::load().init_thread(level, &raw mut provided) }
    })
}

/// Returns whether the interface was begun.
pub(crate) fn has_begun() -> bool {
    HAS_BEGUN.get().is_some_and(|has_begun| *has_begun)
}

/// Returns whether the interface was released: it is not used any more.
pub(crate) fn is_released() -> bool {
    IS_RELEASED.load(Ordering::Acquire)
}

/// Marks the interface as released. Returns whether it was already.
pub(crate) fn mark_released() -> bool {
    IS_RELEASED.swap(true, Ordering::AcqRel)
}

/// Releases the reference to the interface. Called once, after [`mark_released`].
pub(crate) fn release() {
    // SAFETY: begun once, and released once; nothing obtained from it is used any more.
    unsafe { Interface::load().finalize() };
}

/// Returns the element type in a recording for a datatype of MPI.
pub(crate) fn element_type(abi: &Abi, datatype: usize) -> Option<ElementType> {
    let datatype = abi.handle(datatype);
    let table: &[(usize, &CStr, usize, ElementType)] = &[
        (0x4c00_0405, c"ompi_mpi_int", 0x209, ElementType::I32),
        (0x4c00_0406, c"ompi_mpi_unsigned", 0x20d, ElementType::U32),
        (
            0x4c00_0808,
            c"ompi_mpi_unsigned_long",
            0x20e,
            ElementType::U64,
        ),
        (
            0x4c00_0819,
            c"ompi_mpi_unsigned_long_long",
            0x20f,
            ElementType::U64,
        ),
        (0x4c00_0845, c"ompi_mpi_count", 0x202, ElementType::I64),
        (0x4c00_080b, c"ompi_mpi_double", 0x214, ElementType::F64),
        (0x4c00_0439, c"ompi_mpi_int32_t", 0x250, ElementType::I32),
        (0x4c00_043d, c"ompi_mpi_uint32_t", 0x251, ElementType::U32),
        (0x4c00_083a, c"ompi_mpi_int64_t", 0x258, ElementType::I64),
        (0x4c00_083e, c"ompi_mpi_uint64_t", 0x259, ElementType::U64),
    ];
    let found = table
        .iter()
        .find(|(mpich, open_mpi, standard, _)| match abi.kind {
            AbiKind::Mpich => *mpich == datatype,
            AbiKind::OpenMpi => library::object(open_mpi) == datatype && datatype != 0,
            AbiKind::Standard => *standard == datatype,
        });
    found.map(|(.., element_type)| *element_type)
}

/// Returns the text that a function wrote into a buffer.
pub(crate) fn text(place: &[c_char; TEXT_ROOM]) -> String {
    let bytes = place.map(|byte| byte as u8);
    let text = CStr::from_bytes_until_nul(&bytes).unwrap_or_default();
    annals_recorder::text_of(text.to_bytes()).into_owned()
}
