//! Call paths from registers and stack, by the unwind tables (`.eh_frame`) of the files in memory.
//!
//! The tables are copied when a file is found: it may be unloaded while a sample is in a ring. What the tables do not describe is not
//! guessed: the path ends there.
#![expect(unsafe_code, reason = "unwind tables of files in memory are copied")]

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use annals_recorder::ModuleId;
use framehop::{
    CacheNative, ExplicitModuleSectionInfo, FrameAddress, MayAllocateDuringUnwind, Module,
    UnwindRegsNative, Unwinder, UnwinderNative,
};
use gimli::{
    BaseAddresses, CfaRule, EhFrame, EhFrameHdr, LittleEndian, Pointer, Register, RegisterRule,
    UnwindContext, UnwindSection,
};

use super::ring::Sample;
use crate::modules::{Loaded, with_each};

/// Longest call path.
const MOST_CALLS: usize = 128;

/// Most addresses whose rules are kept.
const MOST_RULES: usize = 1 << 16;

/// Registers by their numbers in DWARF (System V ABI for each processor).
#[cfg(target_arch = "x86_64")]
mod register {
    pub(super) const FRAME: u16 = 6;
    pub(super) const STACK: u16 = 7;
    pub(super) const RETURN: u16 = 16;
}
#[cfg(target_arch = "aarch64")]
mod register {
    pub(super) const FRAME: u16 = 29;
    pub(super) const STACK: u16 = 31;
    pub(super) const RETURN: u16 = 30;
}

/// The unwind tables of a file, with their addresses in memory.
struct Tables {
    index: (u64, Arc<[u8]>),
    entries: (u64, Arc<[u8]>),
}

/// A file in memory.
struct File {
    loaded: Loaded,
    id: ModuleId,
    tables: Option<Tables>,
}

/// What the tables say of an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Rule {
    /// The caller is found by stack and frame pointer.
    Caller,
    /// It is in an outermost function.
    Outermost,
    /// Nothing that can be followed.
    Unknown,
}

/// The files in memory, with their unwind tables.
pub(crate) struct Files {
    unwinder: UnwinderNative<Arc<[u8]>, MayAllocateDuringUnwind>,
    cache: CacheNative<MayAllocateDuringUnwind>,
    context: Box<UnwindContext<usize>>,
    /// By address.
    files: Vec<File>,
    rules: HashMap<u64, Rule>,
}

impl Files {
    pub(super) fn new() -> Self {
        Self {
            unwinder: UnwinderNative::new(),
            cache: CacheNative::new(),
            context: Box::new(UnwindContext::new()),
            files: Vec::new(),
            rules: HashMap::new(),
        }
    }

    /// Makes these the files in memory.
    pub(crate) fn set<'a>(&mut self, now: impl Iterator<Item = (&'a Loaded, ModuleId)>) {
        let now: Vec<(&Loaded, ModuleId)> = now.collect();
        let unwinder = &mut self.unwinder;
        self.files.retain(|file| {
            let is_there = now
                .iter()
                .any(|(loaded, id)| **loaded == file.loaded && *id == file.id);
            if !is_there {
                unwinder.remove_module(file.loaded.range.start as u64);
            }
            is_there
        });
        self.rules.clear();
        let known = |loaded: &Loaded| self.files.iter().any(|file| file.loaded == *loaded);
        let mut new: Vec<(&Loaded, ModuleId)> = now;
        new.retain(|(loaded, _)| !known(loaded));
        if new.is_empty() {
            return;
        }
        let mut tables: HashMap<usize, Tables> = HashMap::new();
        // Only there the files cannot be unloaded.
        with_each(|info, range| {
            if new.iter().any(|(loaded, _)| loaded.range == *range) {
                // SAFETY: a file in memory, for the time of this call.
                tables.extend(unsafe { tables_of(info) }.map(|found| (range.start, found)));
            }
        });
        for (loaded, id) in new {
            let tables = tables.remove(&loaded.range.start);
            let section = |(address, bytes): &(u64, Arc<[u8]>)| {
                let start = address.wrapping_sub(loaded.base as u64);
                (start..start + bytes.len() as u64, Arc::clone(bytes))
            };
            let mut info = ExplicitModuleSectionInfo::default();
            if let Some(tables) = &tables {
                let (range, bytes) = section(&tables.index);
                (info.eh_frame_hdr_svma, info.eh_frame_hdr) = (Some(range), Some(bytes));
                let (range, bytes) = section(&tables.entries);
                (info.eh_frame_svma, info.eh_frame) = (Some(range), Some(bytes));
            }
            let range = loaded.range.start as u64..loaded.range.end as u64;
            let module = Module::new(String::new(), range, loaded.base as u64, info);
            self.unwinder.add_module(module);
            let loaded = loaded.clone();
            self.files.push(File { loaded, id, tables });
        }
        self.files.sort_by_key(|file| file.loaded.range.start);
    }

    fn file_at(&self, address: u64) -> Option<&File> {
        let address = address as usize;
        let after = self
            .files
            .partition_point(|file| file.loaded.range.start <= address);
        let file = self.files.get(after.checked_sub(1)?)?;
        file.loaded.range.contains(&address).then_some(file)
    }

    /// Returns whether an address in memory is in the file that this code is in.
    pub(super) fn is_own(&self, address: u64) -> bool {
        let own = bases as fn(u64) -> BaseAddresses as usize;
        let file = self.file_at(address);
        file.is_some_and(|file| file.loaded.range.contains(&own))
    }

    /// Returns which file an address in memory is in, and its address in that file.
    pub(super) fn place_of(&self, address: u64) -> Option<(ModuleId, u64)> {
        let file = self.file_at(address)?;
        Some((file.id, address.wrapping_sub(file.loaded.base as u64)))
    }

    /// Writes the addresses of a sample's calls, innermost first: where the program was, then within the calling instructions. Returns
    /// whether the last one is of an outermost function.
    pub(super) fn calls_of(&mut self, sample: &Sample<'_>, addresses: &mut Vec<u64>) -> bool {
        let (mut registers, start, stack_pointer) = registers_of(sample);
        addresses.clear();
        addresses.push(start);
        let mut read = |address: u64| {
            let place = address.checked_sub(stack_pointer).ok_or(())? as usize;
            let end = place.checked_add(8).ok_or(())?;
            let word = sample.stack.get(place..end).ok_or(())?;
            Ok(u64::from_le_bytes(word.try_into().map_err(|_| ())?))
        };
        let mut at = FrameAddress::from_instruction_pointer(start);
        loop {
            match self.rule_of(at.address_for_lookup()) {
                Rule::Caller => {}
                Rule::Outermost => {
                    if let Some(outermost) = sample.outermost {
                        outermost.fetch_max(registers.sp(), Ordering::Relaxed);
                    }
                    return true;
                }
                Rule::Unknown => return false,
            }
            let unwinder = &self.unwinder;
            match unwinder.unwind_frame(at, &mut registers, &mut self.cache, &mut read) {
                Ok(Some(address)) => {
                    let Some(caller) = FrameAddress::from_return_address(address) else {
                        return true;
                    };
                    if addresses.len() == MOST_CALLS {
                        return false;
                    }
                    addresses.push(caller.address_for_lookup());
                    at = caller;
                }
                Ok(None) => return true,
                Err(_) => return false,
            }
        }
    }

    fn rule_of(&mut self, address: u64) -> Rule {
        if let Some(rule) = self.rules.get(&address) {
            return *rule;
        }
        let mut context = std::mem::take(&mut self.context);
        let tables = self.file_at(address).and_then(|file| file.tables.as_ref());
        let rule = tables.and_then(|tables| tables.rule_of(address, &mut context));
        let rule = rule.unwrap_or(Rule::Unknown);
        self.context = context;
        if self.rules.len() == MOST_RULES {
            self.rules.clear();
        }
        self.rules.insert(address, rule);
        rule
    }
}

impl Tables {
    /// `None` if they have no entry for this address, or it is one that needs other registers: there, the unwinder would guess.
    fn rule_of(&self, address: u64, context: &mut UnwindContext<usize>) -> Option<Rule> {
        let bases = bases(self.index.0).set_eh_frame(self.entries.0);
        let index = EhFrameHdr::new(&self.index.1, LittleEndian)
            .parse(&bases, 8)
            .ok()?;
        let entries = EhFrame::new(&self.entries.1, LittleEndian);
        let find = EhFrame::cie_from_offset;
        let found = index
            .table()?
            .fde_for_address(&entries, &bases, address, find)
            .ok()?;
        // The registers of the interrupted code are in memory, and its address is no return address.
        if found.is_signal_trampoline() {
            return None;
        }
        let row = found
            .unwind_info_for_address(&entries, &bases, context, address)
            .ok()?;
        let is_kept = |register: u16| matches!(register, register::FRAME | register::STACK);
        let is_followed = match row.cfa() {
            CfaRule::RegisterAndOffset { register, .. } => is_kept(register.0),
            CfaRule::Expression(expression) => {
                let expression = expression.get(&entries).ok()?;
                // DW_OP_breg0 + register (DWARF 5, section 2.5.1.2).
                let first = expression.0.slice().first()?.checked_sub(0x70)?;
                is_kept(first.into())
            }
        };
        match row.register(Register(register::RETURN)) {
            Some(RegisterRule::Undefined) => Some(Rule::Outermost),
            _ => is_followed.then_some(Rule::Caller),
        }
    }
}

fn bases(index: u64) -> BaseAddresses {
    BaseAddresses::default().set_eh_frame_hdr(index)
}

/// Returns the registers for the unwinder, the address where the program was, and the stack pointer.
#[cfg(target_arch = "x86_64")]
fn registers_of(sample: &Sample<'_>) -> (UnwindRegsNative, u64, u64) {
    let [bp, sp, ip] = sample.registers;
    (UnwindRegsNative::new(ip, sp, bp), ip, sp)
}

/// Returns the registers for the unwinder, the address where the program was, and the stack pointer.
#[cfg(target_arch = "aarch64")]
fn registers_of(sample: &Sample<'_>) -> (UnwindRegsNative, u64, u64) {
    let [fp, lr, sp, pc] = sample.registers;
    (UnwindRegsNative::new(lr, sp, fp), pc, sp)
}

/// Copies the unwind tables of a file. `None` if it has none, or no index of them.
///
/// # Safety
/// The loader's description of a file that stays in memory during the call.
unsafe fn tables_of(info: &libc::dl_phdr_info) -> Option<Tables> {
    // SAFETY: the loader provides their number.
    let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
    let base = info.dlpi_addr;
    let in_memory = |header: &libc::Elf64_Phdr, length: u64| -> Range<u64> {
        let start = base.wrapping_add(header.p_vaddr);
        start..start.saturating_add(length)
    };
    let header = headers
        .iter()
        .find(|header| header.p_type == libc::PT_GNU_EH_FRAME)?;
    // SAFETY: a segment of the file.
    let index = unsafe { copy(in_memory(header, header.p_memsz)) };
    let index = (base.wrapping_add(header.p_vaddr), index);
    let parsed = EhFrameHdr::new(&index.1, LittleEndian)
        .parse(&bases(index.0), 8)
        .ok()?;
    let Pointer::Direct(start) = parsed.eh_frame_ptr() else {
        return None;
    };
    let loads = headers
        .iter()
        .filter(|header| header.p_type == libc::PT_LOAD);
    let mut segments = loads.map(|header| in_memory(header, header.p_filesz));
    let segment = segments.find(|segment| segment.contains(&start))?;
    // SAFETY: within a segment of the file.
    let rest = unsafe { bytes_at(start..segment.end) };
    let length = length_of_entries(rest);
    Some(Tables {
        index,
        entries: (start, Arc::from(&rest[..length])),
    })
}

/// # Safety
/// The addresses are those of readable memory that does not change while the result is used.
unsafe fn bytes_at<'a>(range: Range<u64>) -> &'a [u8] {
    let start = std::ptr::with_exposed_provenance::<u8>(range.start as usize);
    // SAFETY: the caller's requirement.
    unsafe { std::slice::from_raw_parts(start, (range.end - range.start) as usize) }
}

/// # Safety
/// As for [`bytes_at`], during the call.
unsafe fn copy(range: Range<u64>) -> Arc<[u8]> {
    // SAFETY: the caller's requirement.
    Arc::from(unsafe { bytes_at(range) })
}

/// Returns the length of an `.eh_frame` section: each entry begins with its length, and one of length 0 ends it (LSB Core, section
/// "Exception Frames").
fn length_of_entries(bytes: &[u8]) -> usize {
    let mut place = 0;
    while let Some(word) = bytes.get(place..place + 4) {
        let length = u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
        // 2³² − 1 means that 64 bits follow, which no linker needs.
        let end = place.checked_add(4 + length as usize);
        match end.filter(|end| length != u32::MAX && *end <= bytes.len()) {
            Some(end) => place = end,
            None => break,
        }
        if length == 0 {
            break;
        }
    }
    place
}
