//! Finds the MPI library of the process, its functions, and the next function after this library's.
//!
//! Invariant CALLER: the arguments of a call are those that the program passed, as MPI requires of
//! it.
#![expect(
    unsafe_code,
    reason = "the loader is asked, and tables of Fortran bindings are changed"
)]

use annals_instrument::modules::any_import;
use annals_recorder::say;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr::null_mut;
use std::sync::Once;
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};

use crate::signatures::{COUNT, FUNCTIONS};

/// Declares functions of the MPI library that this one calls itself, found by their names: a struct
/// with their addresses, and a method for each that returns whether it exists and succeeded.
macro_rules! library_functions {
    ($name:ident; $($field:ident $symbol:literal ($($argument:ident: $type:ty),*);)*) => {
        /// Addresses.
        /// 0 means that the library lacks the function.
        #[derive(Clone, Copy, Debug)]
        pub(crate) struct $name {$($field: $crate::library::Own),*}

        impl $name {
            pub(crate) fn load() -> Self {
                Self {$($field: $crate::library::Own::find($symbol)),*}
            }

            $(
                /// Calls the function. Returns whether it exists and succeeded.
                ///
                /// # Safety The requirements of MPI for this function hold.
                #[allow(clippy::too_many_arguments, reason = "the interface is MPI's")]
                unsafe fn $field(&self $(, $argument: $type)*) -> bool {
                    type Function = unsafe extern "C-unwind" fn($($type),*) -> c_int;
                    type InStack = unsafe extern "C-unwind" fn(usize, c_int, $($type),*) -> c_int;
                    let code = match self.$field {
                        $crate::library::Own::None => return false,
                        $crate::library::Own::Function(address) => {
                            // SAFETY: the library's function of this name has this type in every
                            // binary interface.
                            let function: Function = unsafe { std::mem::transmute(address) };
                            // SAFETY: invariant CALLER (module docs).
                            unsafe { function($($argument),*) }
                        }
                        $crate::library::Own::BehindStack(address) => {
                            // SAFETY: invariant CALLER (module docs), with the context that QMPI
                            // passes on.
                            let function: InStack = unsafe { std::mem::transmute(address) };
                            // SAFETY: invariant CALLER (module docs); the library is tool 0, which
                            // needs no context.
                            unsafe { function(0, 0, $($argument),*) }
                        }
                    };
                    code == 0
                }
            )*
        }
    };
}
pub(crate) use library_functions;

/// A function of the library that this one calls itself, below every tool.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Own {
    None,
    /// By its name `PMPI_…`.
    Function(usize),
    /// By its name `QMPI_…`: where tools make a stack, `PMPI_…` enters that.
    BehindStack(usize),
}

impl Own {
    pub(crate) fn find(name: &CStr) -> Self {
        match (symbol_in_stack(name), symbol(name)) {
            (Some(address), _) => Self::BehindStack(address),
            (None, 0) => Self::None,
            (None, address) => Self::Function(address),
        }
    }

    pub(crate) const fn is_there(self) -> bool {
        !matches!(self, Self::None)
    }
}

/// Address of the next function, by number of the function. 0 means that it was not searched for
/// yet.
static NEXT: [AtomicUsize; COUNT] = [const { AtomicUsize::new(0) }; COUNT];

/// The loader's handle of the MPI library. Null means that it was not found yet.
static HANDLE: AtomicPtr<c_void> = AtomicPtr::new(null_mut());

/// Returns the address of the next function, which this library's forwards to.
#[inline(always)]
pub(crate) fn next(index: usize) -> usize {
    match NEXT[index].load(Ordering::Relaxed) {
        0 => find_next(index),
        next => next,
    }
}

#[cold]
#[inline(never)]
fn find_next(index: usize) -> usize {
    let name = FUNCTIONS[index].name;
    let mut next = find_after(name);
    if next == 0 && !is_known() {
        // Not stored: the program may load an MPI library later.
        return without_library(name);
    }
    if !is_known() {
        static ONCE: Once = Once::new();
        ONCE.call_once(|| say("MPI is not recorded: no library in memory has PMPI_Init"));
    }
    if next == 0 {
        next = (missing as extern "C-unwind" fn() -> usize as *const ()).addr();
        say(format_args!(
            "the program calls {}, which its MPI library does not have: the call returns an error code",
            name.to_string_lossy()
        ));
    }
    NEXT[index].store(next, Ordering::Relaxed);
    next
}

/// Returns the address of the next function of this name after this library, or 0 if there is
/// none. First there are other tools, then the MPI library. Python loads that privately, so that the
/// loader's own search does not find it.
fn find_after(name: &CStr) -> usize {
    // SAFETY: the name is a C string.
    match unsafe { system_lookup()(libc::RTLD_NEXT, name.as_ptr()) }.addr() {
        0 => symbol(name),
        next => next,
    }
}

/// Returns the address of the object that has the next function: a tool's, or the MPI library's.
pub(crate) fn object_of_next(index: usize) -> Option<usize> {
    let next = find_after(FUNCTIONS[index].name);
    let next = std::ptr::with_exposed_provenance::<c_void>(next);
    // SAFETY: plain data.
    let mut found: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: any address may be asked for.
    let is_found = unsafe { libc::dladdr(next, &raw mut found) } != 0;
    is_found.then(|| found.dli_fbase.addr())
}

/// Returns whether a library other than this one has a function of this name.
pub(crate) fn is_there(name: &CStr) -> bool {
    find_after(name) != 0
}

/// Returns whether an MPI library is in the process.
pub(crate) fn is_known() -> bool {
    !handle().is_null()
}

/// Returns what a function does where no MPI library is in the process. Programs that work with and
/// without MPI ask whether it has begun, and it has not. Any other call ends the program, as the
/// loader does where a function is missing.
fn without_library(name: &CStr) -> usize {
    /// The loader's exit code.
    const NO_SYMBOL: c_int = 127;
    if name == c"MPI_Initialized" || name == c"MPI_Finalized" {
        return (not_begun as extern "C-unwind" fn(*mut c_int) -> c_int as *const ()).addr();
    }
    say(format_args!(
        "undefined symbol: {}: the program calls it, but no MPI library is in the process; link the program with one",
        name.to_string_lossy()
    ));
    // SAFETY: ends the process; nothing runs after it.
    unsafe { libc::_exit(NO_SYMBOL) }
}

/// Answers a program without an MPI library: MPI has not begun, and not ended.
extern "C-unwind" fn not_begun(flag: *mut c_int) -> c_int {
    if !flag.is_null() {
        // SAFETY: invariant CALLER (module docs).
        unsafe { *flag = 0 };
    }
    0
}

/// Replaces a function that the library lacks. MPI_ERR_OTHER of each native interface is one of
/// these values.
extern "C-unwind" fn missing() -> usize {
    16
}

/// The type of `dlsym`.
pub(crate) type Lookup = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;

unsafe extern "C" {
    fn dlvsym(handle: *mut c_void, name: *const c_char, version: *const c_char) -> *mut c_void;
}

/// Returns the `dlsym` of the system, or of a tool after this library: this library has one, too.
pub(crate) fn system_lookup() -> Lookup {
    /// All versions are the same function.
    const VERSION: &CStr = if cfg!(target_arch = "x86_64") {
        c"GLIBC_2.2.5"
    } else {
        c"GLIBC_2.17"
    };
    static SYSTEM: AtomicUsize = AtomicUsize::new(0);
    let mut system = SYSTEM.load(Ordering::Relaxed);
    if system == 0 {
        // SAFETY: C strings.
        system = unsafe { dlvsym(libc::RTLD_NEXT, c"dlsym".as_ptr(), VERSION.as_ptr()) }.addr();
        SYSTEM.store(system, Ordering::Relaxed);
    }
    // SAFETY: a function of this name, which has this type; every C library has this version of it.
    unsafe { std::mem::transmute::<usize, Lookup>(system) }
}

/// Returns the address of a symbol of the MPI library, or 0 if there is no such symbol or no
/// library. Where the library has no names `PMPI_…`, as some builds for the standard's binary interface, those without the `P`
/// are its own functions, too: they are searched in the library, not before it.
pub(crate) fn symbol(name: &CStr) -> usize {
    let handle = handle();
    if handle.is_null() {
        return 0;
    }
    // SAFETY: a handle from the loader, which is never closed; the name is a C string.
    let find = |name: &CStr| unsafe { system_lookup()(handle, name.as_ptr()) }.addr();
    match (find(name), without_p(name)) {
        (0, Some(name)) => find(name),
        (found, _) => found,
    }
}

/// Returns `MPI_Init` for `PMPI_Init`.
fn without_p(name: &CStr) -> Option<&CStr> {
    let name = name.to_bytes_with_nul().strip_prefix(b"P")?;
    CStr::from_bytes_with_nul(name)
        .ok()
        .filter(|name| name.to_bytes().starts_with(b"MPI_"))
}

/// Returns the address of an object of the library, or 0 if there is no such object.
/// A program that uses the object may have a copy of it, which the library then uses, too.
pub(crate) fn object(name: &CStr) -> usize {
    // SAFETY: the name is a C string.
    match unsafe { system_lookup()(libc::RTLD_DEFAULT, name.as_ptr()) }.addr() {
        0 => symbol(name),
        object => object,
    }
}

/// Returns the MPI library: the object in memory that defines `PMPI_Init`; or, where none does, the standard's `MPI_Abi_get_version`.
pub(crate) fn handle() -> *mut c_void {
    let known = HANDLE.load(Ordering::Acquire);
    if !known.is_null() {
        return known;
    }
    static SEARCHED: AtomicU64 = AtomicU64::new(0);
    let added = loads().added;
    if SEARCHED.load(Ordering::Acquire) == added {
        return null_mut();
    }
    let found = find();
    if found.is_null() {
        SEARCHED.store(added, Ordering::Release);
    } else {
        HANDLE.store(found, Ordering::Release);
    }
    found
}

/// How many objects the loader has added so far, and how many it has removed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Loads {
    added: u64,
    pub(crate) removed: u64,
}

impl Loads {
    pub(crate) const NONE: Self = Self {
        added: 0,
        removed: 0,
    };
}

/// Returns what the loader has done so far.
pub(crate) fn loads() -> Loads {
    let mut loads = Loads::NONE;
    // SAFETY: the function below gets this pointer, while the call lasts.
    unsafe { libc::dl_iterate_phdr(Some(read_loads), (&raw mut loads).cast()) };
    loads
}

unsafe extern "C" fn read_loads(
    info: *mut libc::dl_phdr_info,
    _: usize,
    loads: *mut c_void,
) -> c_int {
    // SAFETY: the loader's, while the call lasts.
    let info = unsafe { &*info };
    let now = Loads {
        added: info.dlpi_adds,
        removed: info.dlpi_subs,
    };
    // SAFETY: the pointer that `loads` passed.
    unsafe { *loads.cast::<Loads>() = now };
    // All objects have these numbers.
    1
}

fn find() -> *mut c_void {
    const NAME: &CStr = c"PMPI_Init";
    // SAFETY: the name is a C string.
    let global = unsafe { system_lookup()(libc::RTLD_NEXT, NAME.as_ptr()) };
    if !global.is_null()
        && let Some(object) = object_of(global.addr())
        && let Some(handle) = open(&object)
    {
        return handle;
    }
    let objects = objects();
    let with = objects.iter().find_map(|object| having(object, NAME));
    // A tool that has all functions calls the library's by the names `PMPI_…`, and so refers to them.
    let without = || {
        let mut objects = objects.iter();
        objects.find_map(|object| {
            let handle = having(object, c"MPI_Abi_get_version")?;
            (!imports(object, NAME)).then_some(handle)
        })
    };
    with.or_else(without).unwrap_or_default()
}

/// Returns the handle of an object that has a symbol of this name itself.
fn having(object: &CStr, name: &CStr) -> Option<*mut c_void> {
    let handle = open(object)?;
    // SAFETY: the loader's handle, and a C string.
    let symbol = unsafe { system_lookup()(handle, name.as_ptr()) };
    // The handle's dependencies are searched, too.
    let has_it = !symbol.is_null()
        && !is_own(symbol.addr())
        && object_of(symbol.addr()).as_deref() == Some(object);
    if !has_it {
        // SAFETY: opened above; it stays loaded: others have it open.
        unsafe { libc::dlclose(handle) };
    }
    has_it.then_some(handle)
}

/// Returns whether an object refers to a symbol of this name.
fn imports(object: &CStr, name: &CStr) -> bool {
    struct Search<'a> {
        object: &'a CStr,
        name: &'a CStr,
        is_found: bool,
    }
    unsafe extern "C" fn search(info: *mut libc::dl_phdr_info, _: usize, at: *mut c_void) -> c_int {
        // SAFETY: the loader's, while the call lasts; the pointer that is passed below; the loader's string.
        let (info, at) = unsafe { (&*info, &mut *at.cast::<Search<'_>>()) };
        // SAFETY: the loader's string.
        let is_it =
            !info.dlpi_name.is_null() && unsafe { CStr::from_ptr(info.dlpi_name) } == at.object;
        at.is_found = is_it && any_import(info, |import| import.name == at.name);
        at.is_found.into()
    }
    let mut at = Search {
        object,
        name,
        is_found: false,
    };
    // SAFETY: the function above gets this pointer, while the call lasts.
    unsafe { libc::dl_iterate_phdr(Some(search), (&raw mut at).cast()) };
    at.is_found
}

/// Returns the file that has this address.
fn object_of(address: usize) -> Option<CString> {
    let mut info = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    let address = std::ptr::without_provenance(address);
    // SAFETY: `info` is valid to write to; any address may be asked for.
    if unsafe { libc::dladdr(address, info.as_mut_ptr()) } == 0 {
        return None;
    }
    // SAFETY: filled by the call, or zeros.
    let info = unsafe { info.assume_init() };
    if info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: the loader's string, which lives as long as the object.
    Some(unsafe { CStr::from_ptr(info.dli_fname) }.to_owned())
}

/// Address range of a file in memory. Zeros mean that it is not known yet.
struct Range([AtomicUsize; 2]);

impl Range {
    const fn unknown() -> Self {
        Self([const { AtomicUsize::new(0) }; 2])
    }

    /// Returns whether the range contains an address. It is the range of the file that contains the
    /// address from `known`.
    fn contains(&self, address: usize, known: impl FnOnce() -> usize) -> bool {
        let [start, end] = &self.0;
        if end.load(Ordering::Acquire) == 0 {
            let known = known();
            let loaded = annals_instrument::modules::loaded();
            let Some(loaded) = loaded.iter().find(|loaded| loaded.range.contains(&known)) else {
                return false;
            };
            start.store(loaded.range.start, Ordering::Relaxed);
            end.store(loaded.range.end, Ordering::Release);
        }
        (start.load(Ordering::Relaxed)..end.load(Ordering::Relaxed)).contains(&address)
    }
}

/// Returns whether this address is in the MPI library's own file.
pub(crate) fn is_in_library(address: usize) -> bool {
    static RANGE: Range = Range::unknown();
    RANGE.contains(address, || symbol(c"PMPI_Init"))
}

/// Returns whether this address is in this library.
pub(crate) fn is_own(address: usize) -> bool {
    static RANGE: Range = Range::unknown();
    RANGE.contains(address, || {
        (missing as extern "C-unwind" fn() -> usize as *const ()).addr()
    })
}

fn open(object: &CStr) -> Option<*mut c_void> {
    let flags = libc::RTLD_LAZY | libc::RTLD_NOLOAD;
    // SAFETY: a C string; nothing new is loaded.
    let handle = unsafe { libc::dlopen(object.as_ptr(), flags) };
    (!handle.is_null()).then_some(handle)
}

/// Returns the names of all objects in memory, as the loader knows them; the program itself has
/// none.
fn objects() -> Vec<CString> {
    let mut found: Vec<CString> = Vec::new();
    // SAFETY: the function below gets this pointer, while the call lasts.
    unsafe { libc::dl_iterate_phdr(Some(take), (&raw mut found).cast()) };
    found
}

unsafe extern "C" fn take(info: *mut libc::dl_phdr_info, _: usize, found: *mut c_void) -> c_int {
    // SAFETY: the loader's, while the call lasts.
    let name = unsafe { (*info).dlpi_name };
    if !name.is_null() {
        // SAFETY: the loader's string, while the call lasts.
        let name = unsafe { CStr::from_ptr(name) };
        if !name.is_empty() {
            // SAFETY: the pointer that `objects` passed.
            unsafe { &mut *found.cast::<Vec<CString>>() }.push(name.to_owned());
        }
    }
    0
}

/// Returns the library's own function at the end of the stack: `QMPI_Send` for `MPI_Send`.
pub(crate) fn own_function(name: &CStr) -> Option<usize> {
    let name = CString::new([b"Q", name.to_bytes()].concat()).ok()?;
    Some(symbol(&name)).filter(|own| *own != 0)
}

/// Returns the library's function of a `PMPI_` name at the end of the stack.
/// `None` means that the library has no stack.
fn symbol_in_stack(name: &CStr) -> Option<usize> {
    own_function(CStr::from_bytes_with_nul(name.to_bytes_with_nul().strip_prefix(b"P")?).ok()?)
}

/// Major and minor number of the standard's binary interface, by `PMPI_Abi_get_version` at this
/// address.
pub(crate) fn abi_version(function: usize) -> (i32, i32) {
    type Function = unsafe extern "C" fn(*mut c_int, *mut c_int) -> c_int;
    // SAFETY: the library's function of this name has this type.
    let function: Function = unsafe { std::mem::transmute(function) };
    let (mut major, mut minor) = (-1, -1);
    // SAFETY: valid places; it may be called before MPI_Init.
    unsafe { function(&raw mut major, &raw mut minor) };
    (major, minor)
}

/// Returns the library's version text.
pub(crate) fn version() -> String {
    /// More than any library's MPI_MAX_LIBRARY_VERSION_STRING.
    const ROOM: usize = 1 << 16;
    type Function = unsafe extern "C" fn(*mut c_char, *mut c_int) -> c_int;
    let function = symbol(c"PMPI_Get_library_version");
    if function == 0 {
        return String::new();
    }
    // SAFETY: the library's function of this name has this type.
    let function: Function = unsafe { std::mem::transmute(function) };
    let mut text = vec![0_u8; ROOM];
    let mut length = 0;
    // SAFETY: valid places; it may be called before MPI_Init (MPI 3.0, section 8.1.1).
    unsafe { function(text.as_mut_ptr().cast(), &raw mut length) };
    text[ROOM - 1] = 0;
    let text = CStr::from_bytes_until_nul(&text).unwrap_or_default();
    text.to_string_lossy().into_owned()
}
