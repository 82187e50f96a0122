//! Which file a function is in: a list of the files in memory that hooks read and extend without a lock.
//!
//! The thread that defines functions adds each file that it defines. A function of a file that was loaded since is found through
//! `_dl_find_object` (glibc 2.35, and only there), which takes no lock and is safe in signal handlers.
#![expect(unsafe_code, reason = "the loader's description of a file is read")]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::MaybeUninit;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use annals_recorder::{FunctionEntry, FunctionModule, Raiser, RegionId};

use crate::modules::{Loaded, build_id_of, program_path};

/// Most files. Functions of others are found when they are defined, and are named by their addresses until then.
const MOST: usize = 1024;

/// Longest name of a file, without its directories, by which rules name functions at their first call.
const LONGEST_NAME: usize = 128;

/// A file in memory. An entry is written by one thread, which gets its number from the counter; `end` is stored last.
pub(crate) struct Listed {
    start: AtomicUsize,
    /// 0: the entry is not complete, or the file was unloaded.
    end: AtomicUsize,
    base: AtomicU64,
    /// Number + 1 of the module's entry in the live file; 0: it is defined.
    entry: AtomicU64,
    /// Name of the file, without its directories.
    name: [AtomicU64; LONGEST_NAME / 8],
    /// Length of the name, bytes; 0: it is too long.
    name_length: AtomicUsize,
}

static LISTED: [Listed; MOST] = [const {
    Listed {
        start: AtomicUsize::new(0),
        end: AtomicUsize::new(0),
        base: AtomicU64::new(0),
        entry: AtomicU64::new(0),
        name: [const { AtomicU64::new(0) }; LONGEST_NAME / 8],
        name_length: AtomicUsize::new(0),
    }
}; MOST];

static COUNT: AtomicUsize = AtomicUsize::new(0);

fn listed() -> &'static [Listed] {
    &LISTED[..COUNT.load(Ordering::Acquire).min(MOST)]
}

/// Adds a file, where there is room.
pub(crate) fn add(
    range: &Range<usize>,
    path: &[u8],
    module: FunctionModule,
) -> Option<&'static Listed> {
    let (base, entry) = match module {
        FunctionModule::Defined { base } => (base, 0),
        FunctionModule::Announced { base, number } => (base, u64::from(number) + 1),
        FunctionModule::Unknown => return None,
    };
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    let relaxed = Ordering::Relaxed;
    let is_again = |listed: &&Listed| {
        listed.start.load(relaxed) == range.start
            && listed.base.load(relaxed) == base
            && listed.entry.load(relaxed) == entry
            && listed.end.load(relaxed) == 0
            && listed.name(&mut [0; LONGEST_NAME]) == Some(name)
    };
    // A file that is loaded and unloaded again and again, as plug-ins are, keeps its entry.
    let listed = listed().iter().find(is_again);
    let listed = listed.or_else(|| LISTED.get(COUNT.fetch_add(1, Ordering::AcqRel)))?;
    listed.start.store(range.start, relaxed);
    listed.base.store(base, relaxed);
    listed.entry.store(entry, relaxed);
    let length = if name.len() <= LONGEST_NAME {
        name.len()
    } else {
        0
    };
    for (place, bytes) in listed.name.iter().zip(name[..length].chunks(8)) {
        let mut word = [0; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        place.store(u64::from_le_bytes(word), relaxed);
    }
    listed.name_length.store(length, relaxed);
    listed.end.store(range.end, Ordering::Release);
    Some(listed)
}

/// Forgets all files: the numbers of their entries are those of the parent's live file, and this is a forked child that begins to record.
pub(crate) fn reset() {
    for listed in listed() {
        listed.end.store(0, Ordering::Release);
    }
    COUNT.store(0, Ordering::Release);
}

/// Removes the files in this range of addresses: they were unloaded.
pub(crate) fn remove(range: &Range<usize>) {
    for listed in listed() {
        if range.contains(&listed.start.load(Ordering::Relaxed)) {
            listed.end.store(0, Ordering::Release);
        }
    }
}

fn find(address: usize) -> Option<&'static Listed> {
    listed().iter().find(|listed| {
        address < listed.end.load(Ordering::Acquire)
            && address >= listed.start.load(Ordering::Relaxed)
    })
}

impl Listed {
    fn module(&self) -> FunctionModule {
        let base = self.base.load(Ordering::Relaxed);
        let entry = self.entry.load(Ordering::Relaxed);
        match entry.checked_sub(1) {
            None => FunctionModule::Defined { base },
            Some(number) => FunctionModule::Announced {
                base,
                number: number as u16,
            },
        }
    }

    fn name<'a>(&self, buffer: &'a mut [u8; LONGEST_NAME]) -> Option<&'a [u8]> {
        let length = self.name_length.load(Ordering::Relaxed);
        for (bytes, word) in buffer.chunks_exact_mut(8).zip(&self.name) {
            bytes.copy_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
        }
        buffer.get(..length).filter(|name| !name.is_empty())
    }
}

/// Where a function is.
pub(crate) struct Located {
    pub(crate) entry: FunctionEntry,
    file: Option<&'static Listed>,
}

/// Returns where a function is. A file that is not listed yet is announced and listed.
pub(crate) fn locate(address: usize, raiser: Raiser<'_>) -> Located {
    let file = find(address).or_else(|| announce(address, raiser));
    let module = file.map_or(FunctionModule::Unknown, Listed::module);
    let base = file.map_or(0, |file| file.base.load(Ordering::Relaxed));
    let address = (address as u64).wrapping_sub(base);
    Located {
        entry: FunctionEntry { address, module },
        file,
    }
}

impl Located {
    /// Applies the rules to the function's region: by the name that it has while the program runs. One whose file is not known, or has a
    /// long name, is ruled when it is defined.
    pub(crate) fn rule(&self, region: RegionId, raiser: Raiser<'_>) {
        if !raiser.rules_name_regions() {
            return;
        }
        // As `Module::function_name`, which allocates.
        let mut name = [0; LONGEST_NAME + ADDRESS_ROOM];
        let room = name.first_chunk_mut();
        let file = room.and_then(|room| self.file?.name(room));
        let Some(mut length) = file.map(<[u8]>::len) else {
            return;
        };
        let mut put = |byte: u8| {
            name[length] = byte;
            length += 1;
        };
        b"+0x".iter().for_each(|byte| put(*byte));
        let address = self.entry.address;
        let digits = (u64::BITS - address.leading_zeros()).div_ceil(4).max(1);
        for digit in (0..digits).rev() {
            put(b"0123456789abcdef"[(address >> (4 * digit) & 15) as usize]);
        }
        if let Ok(name) = std::str::from_utf8(&name[..length]) {
            raiser.rule_region(region, name);
        }
    }
}

/// Bytes of `+0x` and the digits of an address.
const ADDRESS_ROOM: usize = 3 + 16;

/// What `_dl_find_object` returns of a file (`dlfcn.h`).
#[repr(C)]
struct DlFindObject {
    flags: u64,
    map_start: *mut c_void,
    map_end: *mut c_void,
    link_map: *mut LinkMap,
    eh_frame: *mut c_void,
    /// Some processors have more fields.
    reserved: [u64; 16],
}

/// The first fields of the loader's `struct link_map` (`link.h`).
#[repr(C)]
struct LinkMap {
    base: usize,
    name: *const c_char,
}

type FindObject = unsafe extern "C" fn(*mut c_void, *mut DlFindObject) -> c_int;

/// Address of `_dl_find_object`; 0: the system has none.
static FIND_OBJECT: AtomicUsize = AtomicUsize::new(0);

/// Looks the loader's function up. Not for signal handlers.
pub(crate) fn prepare() {
    // SAFETY: the name is a C string.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"_dl_find_object".as_ptr()) };
    FIND_OBJECT.store(found.addr(), Ordering::Relaxed);
}

/// A file in memory, as the loader describes it.
struct Object {
    range: Range<usize>,
    base: usize,
    /// Empty: the program itself.
    path: &'static [u8],
    build_id: &'static [u8],
}

/// Returns the file that has this address, which stays in memory while the result is used. Takes no lock; safe in signal handlers.
/// Returns `None` if there is none, or the system cannot be asked.
fn object_at(address: usize) -> Option<Object> {
    let find = FIND_OBJECT.load(Ordering::Relaxed);
    if find == 0 {
        return None;
    }
    // SAFETY: the address of the loader's function, which has this type.
    let find: FindObject = unsafe { std::mem::transmute::<usize, FindObject>(find) };
    let mut found = MaybeUninit::<DlFindObject>::zeroed();
    let address = std::ptr::with_exposed_provenance_mut(address);
    // SAFETY: `found` is valid to write to, and at least as long as the loader's type.
    if unsafe { find(address, found.as_mut_ptr()) } != 0 {
        return None;
    }
    // SAFETY: zeros are valid, and so is what the loader has filled in.
    let found = unsafe { found.assume_init() };
    // SAFETY: the file is in memory, since one of its functions is being called.
    let map = unsafe { found.link_map.as_ref() }?;
    if map.name.is_null() {
        return None;
    }
    // SAFETY: the loader's string, which is there as long as the file.
    let path = unsafe { CStr::from_ptr(map.name) }.to_bytes();
    let (range, base) = (found.map_start.addr()..found.map_end.addr(), map.base);
    // SAFETY: the range is the loader's, of a file in memory.
    let build_id = unsafe { build_id_of(range.clone(), base) }.unwrap_or_default();
    Some(Object {
        range,
        base,
        path,
        build_id,
    })
}

#[cold]
fn announce(address: usize, raiser: Raiser<'_>) -> Option<&'static Listed> {
    let Object {
        range,
        base,
        path,
        build_id,
    } = object_at(address)?;
    let base = base as u64;
    let number = raiser.announce_module(path, build_id, base)?;
    add(&range, path, FunctionModule::Announced { base, number })
}

/// Returns the file that has this address. Does not wait for the loader's locks: in a forked child, a thread could hold them that only
/// the parent has. Not for signal handlers.
pub(crate) fn loaded_at(address: usize) -> Option<Loaded> {
    let object = object_at(address)?;
    let path = match object.path {
        [] => program_path(),
        path => annals_recorder::text_of(path).into_owned(),
    };
    Some(Loaded {
        path,
        base: object.base,
        range: object.range,
        build_id: object.build_id.to_vec(),
    })
}
