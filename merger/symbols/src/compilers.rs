//! Which compilers made the functions of a recording: from the debug information of their files.

use std::collections::BTreeSet;
use std::fmt;
use std::fs::File;
use std::path::Path;

use addr2line::gimli::{self, DwarfSections, EndianSlice, RunTimeEndian, SectionId};
use annals_format::{Definitions, ModuleId};
use object::{Object, ObjectSection, ReadCache};

use crate::symbols::Symbols;

/// Debug information that is larger than this, bytes of the sections that are read, is not read.
const MOST_BYTES: u64 = 256 << 20;

/// A family of compilers: those of one take the same flags.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum CompilerFamily {
    /// GCC: `gcc`, `g++`, `gfortran`.
    Gcc,
    /// Clang, and what is made of it.
    Clang,
}

/// A compiler.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Compiler {
    /// Its family.
    pub family: CompilerFamily,
    /// Its version. Empty if it is not known.
    pub version: String,
}

impl fmt::Display for Compiler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.family {
            CompilerFamily::Gcc => "GCC",
            CompilerFamily::Clang => "Clang",
        };
        let space = if self.version.is_empty() { "" } else { " " };
        write!(f, "{name}{space}{}", self.version)
    }
}

impl Compiler {
    /// Reads what a compiler says of itself (`DW_AT_producer`, DWARF 5, section 3.1.1), such as `GNU C++17 12.2.0 -O2` or
    /// `Debian clang version 14.0.6`. `None` if it is another one, such as an assembler.
    fn of_producer(producer: &str) -> Option<Self> {
        let words = || producer.split_ascii_whitespace();
        let family = match producer {
            _ if producer.contains("rustc") || producer.starts_with("GNU AS") => return None,
            _ if producer.starts_with("GNU ") => CompilerFamily::Gcc,
            _ if producer.contains("clang") || producer.contains("oneAPI") => CompilerFamily::Clang,
            _ => return None,
        };
        let is_number = |word: &&str| word.starts_with(|c: char| c.is_ascii_digit());
        let version = match family {
            // After the language.
            CompilerFamily::Gcc => words().nth(2),
            CompilerFamily::Clang => words().find(is_number),
        };
        Some(Self {
            family,
            version: version.unwrap_or_default().to_owned(),
        })
    }
}

impl Symbols {
    /// Returns the compilers of the files with the functions of these definitions, as far as the files are here and have debug
    /// information that is not compressed.
    pub fn compilers(&self, definitions: &Definitions) -> BTreeSet<Compiler> {
        let functions = definitions.functions.values();
        let modules: BTreeSet<ModuleId> = functions.map(|function| function.module).collect();
        let modules = modules.iter().filter_map(|id| definitions.modules.get(id));
        let files: BTreeSet<_> = modules
            .flat_map(|module| self.files_of(definitions, module, true))
            .collect();
        let mut compilers = BTreeSet::new();
        for file in files {
            // What cannot be read says nothing of its compiler.
            let _ = add_compilers(&file, &mut compilers);
        }
        compilers
    }
}

/// Adds the compilers of an ELF file. `None` if it cannot be read to its end.
fn add_compilers(path: &Path, compilers: &mut BTreeSet<Compiler>) -> Option<()> {
    let cache = ReadCache::new(File::open(path).ok()?);
    let object = object::File::parse(&cache).ok()?;
    let endian = match object.is_little_endian() {
        true => RunTimeEndian::Little,
        false => RunTimeEndian::Big,
    };
    let wanted = [
        SectionId::DebugInfo,
        SectionId::DebugAbbrev,
        SectionId::DebugStr,
        SectionId::DebugLineStr,
        SectionId::DebugStrOffsets,
        // Units are read with the header of their line numbers.
        SectionId::DebugLine,
    ];
    let of = |id: SectionId| {
        object
            .section_by_name(id.name())
            .filter(|_| wanted.contains(&id))
    };
    let bytes = wanted
        .iter()
        .filter_map(|id| of(*id))
        .map(|section| section.size());
    if bytes.fold(0, u64::saturating_add) > MOST_BYTES {
        return None;
    }
    let load = |id| match of(id) {
        Some(section) => section.uncompressed_data(),
        None => Ok((&[][..]).into()),
    };
    let sections = DwarfSections::load(load).ok()?;
    let dwarf = sections.borrow(|section| EndianSlice::new(section, endian));
    let mut headers = dwarf.units();
    while let Some(header) = headers.next().ok()? {
        let unit = dwarf.unit(header).ok()?;
        let mut entries = unit.entries();
        let Some(root) = entries.next_dfs().ok()? else {
            continue;
        };
        if let Some(producer) = root.attr_value(gimli::DW_AT_producer)
            && let Ok(text) = dwarf.attr_string(&unit, producer)
        {
            compilers.extend(Compiler::of_producer(&text.to_string_lossy()));
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn producers_are_compilers() {
        let said = |producer| Compiler::of_producer(producer).map(|compiler| compiler.to_string());
        for (producer, compiler) in [
            (
                "GNU C++17 12.2.0 -mtune=generic -march=x86-64 -g -O2",
                Some("GCC 12.2.0"),
            ),
            ("GNU Fortran2008 12.2.0 -g", Some("GCC 12.2.0")),
            ("GNU C11 14 20240412 (Red Hat 14.0.1-0) -O2", Some("GCC 14")),
            ("Debian clang version 14.0.6", Some("Clang 14.0.6")),
            ("clang version 19.1.7 (rust-alpine)", Some("Clang 19.1.7")),
            (
                "Intel(R) oneAPI DPC++/C++ Compiler 2024.1.0 (2024.1.0.20240308)",
                Some("Clang 2024.1.0"),
            ),
            ("GNU AS 2.40", None),
            ("clang LLVM (rustc version 1.93.0)", None),
            ("", None),
        ] {
            assert_eq!(said(producer).as_deref(), compiler, "{producer}");
        }
    }
}
