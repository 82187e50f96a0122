//! Programs that are about to be recorded: what their files say of them.

use std::fs;
use std::path::Path;

use object::{Object, ObjectSymbol, SymbolKind};

use crate::symbols::source_name;

/// The function that compilers call at the start of each function with `-finstrument-functions`.
const HOOK: &str = "__cyg_profile_func_enter";

/// A function of a program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProgramFunction {
    /// Its address in the file. The recorder calls it after the file and this address, until it has a name.
    pub address: u64,
    /// Its name in the source.
    pub name: String,
}

/// An executable file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Program {
    /// Whether it needs no dynamic loader: nothing can be preloaded into it.
    pub is_static: bool,
    /// Whether its functions were compiled with `-finstrument-functions`.
    pub is_instrumented: bool,
    /// Its functions, if they were compiled so and the file has symbols.
    pub functions: Vec<ProgramFunction>,
}

impl Program {
    /// Reads an ELF file. Returns `None` if it is none, or cannot be read.
    pub fn read(path: &Path) -> Option<Self> {
        let file = fs::File::open(path).ok()?;
        let mut magic = [0; 4];
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut magic, 0).ok()?;
        if magic != *b"\x7fELF" {
            return None;
        }
        let cache = object::ReadCache::new(file);
        let object = object::File::parse(&cache).ok()?;
        let sections = || object.sections();
        let has_section = |name: &str| {
            sections().any(|section| object::ObjectSection::name(&section) == Ok(name))
        };
        let is_hook = |symbol: object::Symbol<'_, '_, _>| symbol.name() == Ok(HOOK);
        let is_instrumented =
            object.dynamic_symbols().any(is_hook) || object.symbols().any(is_hook);
        let mut functions = Vec::new();
        if is_instrumented {
            let symbols = object.symbols().chain(object.dynamic_symbols());
            let of_code = symbols.filter(|s| s.kind() == SymbolKind::Text && s.is_definition());
            functions.extend(of_code.filter_map(|symbol| {
                Some(ProgramFunction {
                    address: symbol.address(),
                    name: source_name(symbol.name().ok()?),
                })
            }));
            functions.sort_by(|a, b| (a.address, &a.name).cmp(&(b.address, &b.name)));
            functions.dedup();
        }
        Some(Self {
            // A library has no loader either, and no function to begin with.
            is_static: !has_section(".interp") && object.entry() != 0,
            is_instrumented,
            functions,
        })
    }
}
