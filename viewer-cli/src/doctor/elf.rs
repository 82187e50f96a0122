//! Properties of a program or library in its ELF file. Reads headers and symbol tables, never code.

use std::collections::BTreeMap;
use std::fs::File;
use std::ops::Range;

use object::elf::{
    DF_1_PIE, DT_FLAGS_1, DT_NEEDED, DT_STRSZ, DT_STRTAB, FileHeader64, PT_LOAD, ProgramHeader64,
    SHN_UNDEF, SHT_DYNSYM, SHT_SYMTAB,
};
use object::read::elf::{Dyn, FileHeader, ProgramHeader, SectionHeader, SectionTable, Sym};
use object::{Endianness, ReadCache, ReadRef};

/// The function that compilers call at the start of each function with `-finstrument-functions`.
const HOOK: &[u8] = b"__cyg_profile_func_enter";

/// Functions by which the sanitizers' run-time libraries start, and what the sanitizers are called.
const SANITIZERS: &[(&[u8], &str)] = &[
    (b"__asan_init", "AddressSanitizer"),
    (b"__hwasan_init", "HWAddressSanitizer"),
    (b"__tsan_init", "ThreadSanitizer"),
    (b"__msan_init", "MemorySanitizer"),
    (b"__lsan_init", "LeakSanitizer"),
];

/// Symbols by which the recorder distinguishes MPI libraries.
const OPEN_MPI: &[u8] = b"ompi_mpi_comm_world";
const STANDARD_ABI: &[u8] = b"PMPI_Abi_get_version";
const ANY_MPI: &[u8] = b"PMPI_Init";

/// Most bytes that are read of one file in one piece: a symbol table of millions of symbols.
const MOST_BYTES: u64 = 256 << 20;

/// The first bytes of an ELF file: for which machine it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Machine {
    /// Whether addresses have 64 bits; otherwise 32.
    pub is_64_bit: bool,
    /// Whether numbers are stored with their low byte first.
    pub(super) is_little_endian: bool,
    /// `e_machine`.
    pub(super) number: u16,
}

impl Machine {
    /// Reads the start of an ELF file. Returns `None` if it is none.
    pub(super) fn of(head: &[u8]) -> Option<Self> {
        let ident = head.strip_prefix(b"\x7fELF")?;
        let is_little_endian = ident.get(1) != Some(&2);
        let number = [*head.get(18)?, *head.get(19)?];
        Some(Self {
            is_64_bit: ident.first() == Some(&2),
            is_little_endian,
            number: if is_little_endian {
                u16::from_le_bytes(number)
            } else {
                u16::from_be_bytes(number)
            },
        })
    }

    /// Returns what the machine is called, for messages.
    pub(super) fn name(self) -> String {
        let name = match self.number {
            3 => "x86",
            20 => "PowerPC",
            21 => "PowerPC",
            22 => "s390",
            40 => "Arm",
            62 if self.is_64_bit => "x86-64",
            62 => "x86-64 with 32-bit pointers (x32)",
            183 => "AArch64",
            243 => "RISC-V",
            other => return format!("machine number {other}"),
        };
        let bits = if self.is_64_bit { 64 } else { 32 };
        match self.number {
            62 | 183 => name.to_owned(),
            _ => format!("{bits}-bit {name}"),
        }
    }
}

/// A program's use of the hook for functions.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) enum Hook {
    /// It does not call it: its functions were not compiled for it.
    #[default]
    Absent,
    /// It calls one that a library defines: the recorder's, if that is preloaded.
    Imported,
    /// It defines one itself, which its functions call.
    Own,
}

/// The properties in the file.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct Elf {
    /// `e_type`: 2 is an executable, 3 a library or a position-independent executable.
    pub(super) kind: u16,
    /// The loader that it asks for. `None` means that nothing is loaded into it: it is statically linked, or a library.
    pub(super) interpreter: Option<String>,
    /// Whether it is a position-independent executable by its own account.
    pub(super) is_pie: bool,
    /// Libraries that it needs (`DT_NEEDED`).
    pub(super) needed: Vec<String>,
    /// Its use of the hook for functions.
    pub(super) hook: Hook,
    /// The names of the sanitizers in it.
    pub(super) sanitizers: Vec<&'static str>,
    /// Whether it has a table of the names of its functions (`.symtab`).
    pub(super) has_symbols: bool,
    /// Whether it has a table of sections: otherwise its symbols cannot be read.
    pub(super) has_sections: bool,
    /// Whether it defines `PMPI_Init`, the objects of Open MPI, and the functions of MPI 5's interface.
    pub(super) mpi: MpiSymbols,
}

/// Symbols that an MPI library defines.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct MpiSymbols {
    /// `PMPI_Init`: it is an MPI library.
    pub(super) has_init: bool,
    /// Those of Open MPI.
    pub(super) has_open_mpi: bool,
    /// Those of the standard's binary interface.
    pub(super) has_standard: bool,
}

/// A file of which no large piece is read, whatever it says of its sizes.
#[derive(Clone, Copy, Debug)]
struct Limited<'a>(&'a ReadCache<File>);

impl<'a> ReadRef<'a> for Limited<'a> {
    fn len(self) -> Result<u64, ()> {
        self.0.len()
    }

    fn read_bytes_at(self, offset: u64, size: u64) -> Result<&'a [u8], ()> {
        if size > MOST_BYTES {
            return Err(());
        }
        self.0.read_bytes_at(offset, size)
    }

    fn read_bytes_at_until(self, range: Range<u64>, delimiter: u8) -> Result<&'a [u8], ()> {
        self.0.read_bytes_at_until(range, delimiter)
    }
}

type Header = FileHeader64<Endianness>;

impl Elf {
    /// Reads a file that is for this machine.
    ///
    /// # Errors
    /// If it is no 64-bit ELF file, or damaged.
    pub(super) fn read(file: File) -> Result<Self, String> {
        let cache = ReadCache::new(file);
        let data = Limited(&cache);
        Self::parse(data).map_err(|error| error.to_string())
    }

    fn parse(data: Limited<'_>) -> object::read::Result<Self> {
        let header = Header::parse(data)?;
        let endian = header.endian()?;
        let segments = header.program_headers(endian, data)?;
        let mut elf = Self {
            kind: header.e_type.get(endian).0,
            ..Self::default()
        };
        for segment in segments {
            if let Some(path) = segment.interpreter(endian, data)? {
                elf.interpreter = Some(String::from_utf8_lossy(path).into_owned());
            }
            if let Some(entries) = segment.dynamic(endian, data)? {
                elf.read_dynamic(entries, segments, endian, data);
            }
        }
        let sections = header.sections(endian, data)?;
        elf.has_sections = !sections.is_empty();
        for (index, section) in sections.enumerate() {
            let kind = section.sh_type(endian);
            if kind == SHT_SYMTAB || kind == SHT_DYNSYM {
                elf.has_symbols |= kind == SHT_SYMTAB;
                elf.read_symbols(&sections, index, endian, data)?;
            }
        }
        Ok(elf)
    }

    fn read_dynamic(
        &mut self,
        entries: &[object::elf::Dyn64<Endianness>],
        segments: &[ProgramHeader64<Endianness>],
        endian: Endianness,
        data: Limited<'_>,
    ) {
        let of_tag = |tag| {
            let found = entries.iter().find(|entry| entry.d_tag(endian) == tag);
            found.map(|entry| entry.val(endian))
        };
        self.is_pie = of_tag(DT_FLAGS_1).is_some_and(|flags| flags & DF_1_PIE.0 != 0);
        let (Some(address), Some(length)) = (of_tag(DT_STRTAB), of_tag(DT_STRSZ)) else {
            return;
        };
        let strings = segments.iter().find_map(|segment| {
            let start: u64 = segment.p_vaddr(endian);
            let offset = address.checked_sub(start)?;
            let is_inside = offset < segment.p_filesz(endian);
            if segment.p_type(endian) != PT_LOAD || !is_inside {
                return None;
            }
            let place = segment.p_offset(endian).checked_add(offset)?;
            data.read_bytes_at(place, length).ok()
        });
        let strings = strings.unwrap_or_default();
        let live = entries
            .iter()
            .take_while(|entry| entry.d_tag(endian) != object::elf::DT_NULL);
        for entry in live.filter(|entry| entry.d_tag(endian) == DT_NEEDED) {
            let start = usize::try_from(entry.val(endian)).unwrap_or(usize::MAX);
            let name = strings.get(start..).unwrap_or_default();
            let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
            self.needed.push(String::from_utf8_lossy(name).into_owned());
        }
    }

    fn read_symbols<'a>(
        &mut self,
        sections: &SectionTable<'a, Header, Limited<'a>>,
        index: object::SectionIndex,
        endian: Endianness,
        data: Limited<'a>,
    ) -> object::read::Result<()> {
        let section = sections.section(index)?;
        let table = object::read::elf::SymbolTable::<Header, _>::parse(
            endian, data, sections, index, section,
        )?;
        let strings = sections
            .section(table.string_section())?
            .data(endian, data)?;
        // Names are compared by their place in the table: few symbols have one of these.
        let places = places_of_names(strings);
        for symbol in table.symbols() {
            let place = symbol.st_name(endian);
            let Some(name) = places.get(&place) else {
                continue;
            };
            let is_defined = symbol.st_shndx(endian) != SHN_UNDEF;
            self.note_symbol(name, is_defined);
        }
        Ok(())
    }

    fn note_symbol(&mut self, name: &[u8], is_defined: bool) {
        match name {
            HOOK if is_defined => self.hook = Hook::Own,
            HOOK if self.hook == Hook::Absent => self.hook = Hook::Imported,
            OPEN_MPI => self.mpi.has_open_mpi |= is_defined,
            STANDARD_ABI => self.mpi.has_standard |= is_defined,
            ANY_MPI => self.mpi.has_init |= is_defined,
            _ => {
                let known = SANITIZERS.iter().find(|(symbol, _)| *symbol == name);
                if let Some((_, sanitizer)) = known
                    && !self.sanitizers.contains(sanitizer)
                {
                    self.sanitizers.push(sanitizer);
                }
            }
        }
    }
}

/// Returns where the names that matter are in a table of strings, each of which ends with a zero. A name may be the end of another
/// string.
fn places_of_names(strings: &[u8]) -> BTreeMap<u32, &'static [u8]> {
    let of_sanitizers = SANITIZERS.iter().map(|(symbol, _)| *symbol);
    let wanted: Vec<&[u8]> = [HOOK, OPEN_MPI, STANDARD_ABI, ANY_MPI]
        .into_iter()
        .chain(of_sanitizers)
        .collect();
    let mut places = BTreeMap::new();
    let mut end = 0;
    for string in strings.split(|byte| *byte == 0) {
        end += string.len();
        let found = wanted.iter().find(|name| string.ends_with(name));
        if let Some(name) = found
            && let Ok(place) = u32::try_from(end - name.len())
        {
            places.insert(place, *name);
        }
        end += 1;
    }
    places
}
