//! Which files lie where in the process's memory.
#![expect(unsafe_code, reason = "the loader's list of modules is read")]

use std::ffi::{CStr, c_int, c_void};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A file in memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Loaded {
    /// Name of the file.
    pub path: String,
    /// Address in memory less address in the file.
    pub base: usize,
    /// From its first to its last byte in memory.
    pub range: Range<usize>,
    /// The build id; empty when the file has none.
    pub build_id: Vec<u8>,
}

/// Returns every file that is in memory now, in the loader's order: the program first.
pub fn loaded() -> Vec<Loaded> {
    let mut found: Vec<Loaded> = Vec::new();
    // SAFETY: the function below gets this pointer, while the call lasts.
    unsafe { libc::dl_iterate_phdr(Some(take), (&raw mut found).cast()) };
    found
}

/// Calls this with the loader's description of every file that is in memory, and its addresses. Files stay in memory meanwhile.
pub fn with_each(mut each: impl FnMut(&libc::dl_phdr_info, &Range<usize>)) {
    let mut each: &mut dyn FnMut(&libc::dl_phdr_info, &Range<usize>) = &mut each;
    // SAFETY: the function below gets this pointer, while the call lasts.
    unsafe { libc::dl_iterate_phdr(Some(call), (&raw mut each).cast()) };
}

unsafe extern "C" fn call(info: *mut libc::dl_phdr_info, _: usize, each: *mut c_void) -> c_int {
    // SAFETY: the pointer that `with_each` passed.
    let each = unsafe { &mut *each.cast::<&mut dyn FnMut(&libc::dl_phdr_info, &Range<usize>)>() };
    // SAFETY: the loader's, while the call lasts.
    let info = unsafe { &*info };
    // A panic must not cross into the loader.
    let called = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        if let Some(range) = range_of(info) {
            each(info, &range);
        }
    }));
    called.is_err().into()
}

/// Returns the path of the program.
pub(crate) fn program_path() -> String {
    let path = std::fs::read_link("/proc/self/exe").unwrap_or_default();
    annals_recorder::text_of(path.as_os_str().as_bytes()).into_owned()
}

unsafe extern "C" fn take(info: *mut libc::dl_phdr_info, _: usize, found: *mut c_void) -> c_int {
    // SAFETY: the loader's, while the call lasts.
    let info = unsafe { &*info };
    // SAFETY: the pointer that `loaded` passed.
    let found = unsafe { &mut *found.cast::<Vec<Loaded>>() };
    // A panic must not cross into the loader.
    let taken = std::panic::catch_unwind(|| module(info, found.is_empty()));
    if let Ok(Some(module)) = taken {
        found.push(module);
    }
    0
}

/// Returns the addresses of a module, from its first to its last byte in memory.
pub fn range_of(info: &libc::dl_phdr_info) -> Option<Range<usize>> {
    // SAFETY: the loader provides their number.
    let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
    let base = info.dlpi_addr as usize;
    let address = |header: &libc::Elf64_Phdr| base.wrapping_add(header.p_vaddr as usize);
    let loads = headers
        .iter()
        .filter(|header| header.p_type == libc::PT_LOAD);
    let ends = loads.map(|header| address(header)..address(header) + header.p_memsz as usize);
    ends.reduce(|a, b| a.start.min(b.start)..a.end.max(b.end))
}

fn module(info: &libc::dl_phdr_info, is_program: bool) -> Option<Loaded> {
    // SAFETY: the loader provides their number.
    let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
    let base = info.dlpi_addr as usize;
    let range = range_of(info)?;
    let path = if is_program {
        program_path()
    } else if info.dlpi_name.is_null() {
        String::new()
    } else {
        // SAFETY: the loader's string, while the call lasts.
        let name = unsafe { CStr::from_ptr(info.dlpi_name) };
        annals_recorder::text_of(name.to_bytes()).into_owned()
    };
    // SAFETY: the loader's headers of a file in memory.
    let build_id = unsafe { build_id_in(headers, base) };
    Some(Loaded {
        path,
        base,
        range,
        build_id: build_id.unwrap_or_default().to_vec(),
    })
}

/// Returns the build id that the segments of a file have.
///
/// # Safety
/// The headers are those of a file in memory at this base, which stays there while the result is used.
unsafe fn build_id_in<'a>(headers: &[libc::Elf64_Phdr], base: usize) -> Option<&'a [u8]> {
    let mut notes = headers
        .iter()
        .filter(|header| header.p_type == libc::PT_NOTE);
    notes.find_map(|header| {
        let start = base.wrapping_add(header.p_vaddr as usize);
        let start = std::ptr::with_exposed_provenance::<u8>(start);
        // SAFETY: a segment that is in memory, as the others are.
        build_id(unsafe { std::slice::from_raw_parts(start, header.p_memsz as usize) })
    })
}

/// Returns the build id of a file in memory, by the headers that its first bytes name. Allocates nothing and takes no lock. `None`
/// if it has none, or its first bytes are not in memory.
///
/// # Safety
/// The range is that of a file in memory at this base, as the loader has mapped it; it stays there while the result is used.
pub(crate) unsafe fn build_id_of<'a>(range: Range<usize>, base: usize) -> Option<&'a [u8]> {
    let start = std::ptr::with_exposed_provenance::<libc::Elf64_Ehdr>(range.start);
    if range.len() < size_of::<libc::Elf64_Ehdr>() || !start.is_aligned() {
        return None;
    }
    // SAFETY: within the range, whose first page is mapped, and aligned; any bytes are a header.
    let file = unsafe { &*start };
    let length = usize::from(file.e_phnum) * size_of::<libc::Elf64_Phdr>();
    let end = usize::try_from(file.e_phoff).ok()?.checked_add(length)?;
    // Within the first page: others may not be mapped.
    let is_whole = file.e_ident.starts_with(b"\x7fELF") && end <= range.len().min(4096);
    let headers = range.start.wrapping_add(file.e_phoff as usize);
    let headers = std::ptr::with_exposed_provenance::<libc::Elf64_Phdr>(headers);
    if !is_whole || !headers.is_aligned() {
        return None;
    }
    // SAFETY: within the first page of the range, and aligned.
    let headers = unsafe { std::slice::from_raw_parts(headers, file.e_phnum.into()) };
    // SAFETY: the caller's range and base.
    unsafe { build_id_in(headers, base) }
}

/// Returns the build id among notes (elf(5)): name "GNU", type 3.
fn build_id(mut notes: &[u8]) -> Option<&[u8]> {
    const BUILD_ID: u32 = 3;
    let word = |bytes: &[u8], at: usize| {
        let word = bytes.get(at..at + 4)?;
        Some(u32::from_le_bytes(word.try_into().ok()?))
    };
    loop {
        let name_length = word(notes, 0)? as usize;
        let length = word(notes, 4)? as usize;
        let kind = word(notes, 8)?;
        let start = 12_usize.checked_add(name_length.checked_next_multiple_of(4)?)?;
        let end = start.checked_add(length)?;
        if kind == BUILD_ID && notes.get(12..12 + name_length)? == b"GNU\0" {
            return notes.get(start..end);
        }
        notes = notes.get(end.checked_next_multiple_of(4)?..)?;
    }
}

/// Returns whether a module of the process calls the compiler's hooks: one of its relocations names
/// them.
pub(crate) fn is_instrumented() -> bool {
    let mut is_found = false;
    // SAFETY: the function below gets this pointer, while the call lasts.
    unsafe { libc::dl_iterate_phdr(Some(find_hook), (&raw mut is_found).cast()) };
    is_found
}

unsafe extern "C" fn find_hook(
    info: *mut libc::dl_phdr_info,
    _: usize,
    found: *mut c_void,
) -> c_int {
    // SAFETY: the loader's, while the call lasts.
    let is_found = calls_hooks(unsafe { &*info });
    // SAFETY: the pointer that `is_instrumented` passed.
    unsafe { *found.cast::<bool>() = is_found };
    is_found.into()
}

fn calls_hooks(info: &libc::dl_phdr_info) -> bool {
    const HOOK: &CStr = c"__cyg_profile_func_enter";
    any_import(info, |import| import.name == HOOK)
}

/// A symbol that a module takes from others.
#[derive(Clone, Copy, Debug)]
pub struct Import<'a> {
    /// The symbol.
    pub name: &'a CStr,
    /// Address of the word in memory that the loader fills in with the symbol's address.
    pub slot: usize,
    /// Whether the module can do without the symbol.
    pub is_weak: bool,
}

/// A module's dynamic section: its words by tag, up to `DT_JMPREL`, and that of `DT_GNU_HASH`. 0 means that it has none.
struct Dynamic {
    base: usize,
    values: [usize; LARGEST_TAG + 1],
    gnu_hash: usize,
}

const DT_PLTRELSZ: usize = 2;
const DT_HASH: usize = 4;
const DT_STRTAB: usize = 5;
const DT_SYMTAB: usize = 6;
const DT_RELA: usize = 7;
const DT_RELASZ: usize = 8;
const DT_JMPREL: usize = 23;
const LARGEST_TAG: usize = DT_JMPREL;

impl Dynamic {
    /// Returns `None` for a module without symbols.
    fn of(info: &libc::dl_phdr_info) -> Option<Self> {
        const DT_GNU_HASH: u64 = 0x6fff_fef5;
        // SAFETY: the loader provides their number.
        let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
        let base = info.dlpi_addr as usize;
        let mut dynamic = headers
            .iter()
            .filter(|header| header.p_type == libc::PT_DYNAMIC);
        let dynamic = dynamic.next()?;
        let start = base.wrapping_add(dynamic.p_vaddr as usize);
        let start = std::ptr::with_exposed_provenance::<[u64; 2]>(start);
        // SAFETY: the module's dynamic section is in memory, pairs of words.
        let entries = unsafe { std::slice::from_raw_parts(start, dynamic.p_memsz as usize / 16) };
        let mut found = Self {
            base,
            values: [0; LARGEST_TAG + 1],
            gnu_hash: 0,
        };
        for [tag, value] in entries.iter().take_while(|[tag, _]| *tag != 0) {
            if *tag == DT_GNU_HASH {
                found.gnu_hash = *value as usize;
            } else if let Some(place) = found.values.get_mut(*tag as usize) {
                *place = *value as usize;
            }
        }
        (found.values[DT_STRTAB] != 0 && found.values[DT_SYMTAB] != 0).then_some(found)
    }

    /// glibc makes these absolute; what it has not (the kernel's own module) lies below the base.
    fn address(&self, value: usize) -> usize {
        if value < self.base {
            self.base + value
        } else {
            value
        }
    }

    /// # Safety
    /// - The module has a symbol of this number.
    unsafe fn symbol(&self, number: usize) -> &libc::Elf64_Sym {
        let symbols = self.address(self.values[DT_SYMTAB]);
        let symbol = symbols + number * size_of::<libc::Elf64_Sym>();
        // SAFETY: by the requirement, it is in memory as long as the module.
        unsafe { &*std::ptr::with_exposed_provenance(symbol) }
    }

    fn name(&self, symbol: &libc::Elf64_Sym) -> &CStr {
        let name = self.address(self.values[DT_STRTAB]) + symbol.st_name as usize;
        // SAFETY: a string of the module's table, which the loader uses as well.
        unsafe { CStr::from_ptr(std::ptr::with_exposed_provenance(name)) }
    }

    /// Returns the number of symbols, by the table that the loader searches: System V's generic ABI, chapter 5, "Hash Table";
    /// or GNU's, in which the last symbol of a chain has an odd hash.
    fn count(&self) -> usize {
        // SAFETY: words of the table, to which its first four lead.
        let word = |table: usize, place: usize| unsafe {
            *std::ptr::with_exposed_provenance::<u32>(table + 4 * place)
        } as usize;
        if self.values[DT_HASH] != 0 {
            return word(self.address(self.values[DT_HASH]), 1);
        }
        if self.gnu_hash == 0 {
            return 0;
        }
        let table = self.address(self.gnu_hash);
        let (buckets, first, bloom) = (word(table, 0), word(table, 1), word(table, 2));
        let chains = 4 + 2 * bloom + buckets;
        let starts = (4 + 2 * bloom..chains).map(|place| word(table, place));
        // An empty bucket is 0.
        let Some(mut last) = starts.max().filter(|last| *last >= first.max(1)) else {
            return first;
        };
        while word(table, chains + last - first) & 1 == 0 {
            last += 1;
        }
        last + 1
    }
}

/// Calls this with the name and the addresses in memory of each function that a module has for others.
pub fn each_export(info: &libc::dl_phdr_info, mut work: impl FnMut(&CStr, Range<usize>)) {
    const STT_FUNC: u8 = 2;
    let Some(dynamic) = Dynamic::of(info) else {
        return;
    };
    for number in 0..dynamic.count() {
        // SAFETY: one of its symbols.
        let symbol = unsafe { dynamic.symbol(number) };
        if symbol.st_info & 15 == STT_FUNC && symbol.st_shndx != 0 {
            let start = dynamic.base.wrapping_add(symbol.st_value as usize);
            let end = start.saturating_add(symbol.st_size as usize);
            work(dynamic.name(symbol), start..end);
        }
    }
}

/// Returns whether this holds for a symbol that the module takes from others.
pub fn any_import(info: &libc::dl_phdr_info, mut holds: impl FnMut(Import<'_>) -> bool) -> bool {
    const STB_WEAK: u8 = 2;
    let Some(dynamic) = Dynamic::of(info) else {
        return false;
    };
    let tables = [(DT_RELA, DT_RELASZ), (DT_JMPREL, DT_PLTRELSZ)];
    tables.into_iter().any(|(table, length)| {
        let (table, count) = (dynamic.values[table], dynamic.values[length] / 24);
        if table == 0 {
            return false;
        }
        let table = std::ptr::with_exposed_provenance::<[u64; 3]>(dynamic.address(table));
        // SAFETY: the module's relocations are in memory, 24 bytes each on 64-bit processors that
        // have this kind, and only those tables are read.
        let relocations = unsafe { std::slice::from_raw_parts(table, count) };
        relocations.iter().any(|[offset, info, _]| {
            // SAFETY: the loader has resolved this relocation by this very symbol.
            let symbol = unsafe { dynamic.symbol((info >> 32) as usize) };
            symbol.st_name != 0
                && holds(Import {
                    name: dynamic.name(symbol),
                    slot: dynamic.base.wrapping_add(*offset as usize),
                    is_weak: symbol.st_info >> 4 == STB_WEAK,
                })
        })
    })
}

/// Returns the address in a word of the loader's tables. 0 if it is not aligned.
pub fn read(slot: usize) -> usize {
    if !slot.is_multiple_of(size_of::<usize>()) {
        return 0;
    }
    let word = std::ptr::with_exposed_provenance_mut::<usize>(slot);
    // SAFETY: an aligned word of a table of addresses, which others read whole.
    unsafe { AtomicUsize::from_ptr(word) }.load(Ordering::Relaxed)
}

/// Writes an address into a word of the loader's tables.
/// Returns whether that is possible. The page is writable from then on.
pub fn replace(slot: usize, address: usize) -> bool {
    if !slot.is_multiple_of(size_of::<usize>()) {
        return false;
    }
    let Ok(page_len) = usize::try_from(page_len_of_system()) else {
        return false;
    };
    let page = std::ptr::with_exposed_provenance_mut::<c_void>(slot & !(page_len - 1));
    // SAFETY: the page that holds the word, which is mapped; writing to it is allowed from now on.
    if unsafe { libc::mprotect(page, page_len, libc::PROT_READ | libc::PROT_WRITE) } != 0 {
        return false;
    }
    let word = std::ptr::with_exposed_provenance_mut::<usize>(slot);
    // SAFETY: an aligned word of a table of addresses, which others read whole.
    unsafe { AtomicUsize::from_ptr(word) }.store(address, Ordering::Release);
    true
}

fn page_len_of_system() -> libc::c_long {
    // SAFETY: reads one number from the system.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) }
}
