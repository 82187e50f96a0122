//! Names, files and lines of functions: from the symbols and debug information of the files that they
//! are in, and of no others.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use addr2line::gimli::{self, DwLang};
use addr2line::{Loader, demangle_auto};
use annals_format::{
    BootId, Definition, Definitions, Function, Module, RegionId, StringId, Symbol,
};
use cpp_demangle::BorrowedSymbol;
use object::Object;

/// Where distributions put debug information apart from its file, by build id.
const DEBUG_DIRECTORY: &str = "/usr/lib/debug";

/// A directory in which files with names are looked for cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot look for symbols in {directory}")]
pub struct SymbolsError {
    /// The directory.
    pub directory: PathBuf,
    /// The I/O error.
    #[source]
    pub source: io::Error,
}

/// Returns the identity of this host since its boot. `None` if the system does not have it.
fn boot_id() -> Option<BootId> {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    boot.parse().ok()
}

/// Files with the names of functions. A file counts for a module when it has the module's build id; that many files
/// with the id exist, as one stripped and one with debug information, is usual.
#[derive(Debug, Default)]
pub struct Symbols {
    by_build_id: BTreeMap<Vec<u8>, Vec<PathBuf>>,
    is_of_host: bool,
    /// What was found before: all ranks of a run have the same functions.
    found: Mutex<BTreeMap<Build, HashMap<u64, Found>>>,
    lines: Mutex<BTreeMap<Build, HashMap<u64, Vec<FoundFrame>>>>,
}

/// A build id, and whether files of this host counted.
pub(super) type Build = (Vec<u8>, bool);

/// The name of a function.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct Found {
    pub(super) name: String,
    pub(super) file: String,
    pub(super) line: u32,
}

/// A function at an address.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct FoundFrame {
    pub(super) function: Found,
    pub(super) at_file: String,
    pub(super) at_line: u32,
}

impl Found {
    fn is_whole(&self) -> bool {
        !self.name.is_empty() && self.line != 0
    }

    /// Takes what another search has found, as far as it is not known.
    fn complete(&mut self, other: &Self) {
        if self.name.is_empty() {
            self.name.clone_from(&other.name);
        }
        if self.line == 0 {
            self.file.clone_from(&other.file);
            self.line = other.line;
        }
    }
}

impl Symbols {
    /// Returns the files of this host, where the modules say they are, and the debug information that is installed for
    /// them. For recordings that were made here, just now: a file without a build id counts when it is older than the
    /// recording.
    pub fn of_host() -> Self {
        Self {
            is_of_host: true,
            ..Self::default()
        }
    }

    /// Returns the files in and below these directories.
    ///
    /// # Errors
    /// If one of them cannot be listed.
    pub fn in_directories(directories: &[PathBuf]) -> Result<Self, SymbolsError> {
        let mut symbols = Self::default();
        for directory in directories {
            symbols.add_directory(directory)?;
        }
        Ok(symbols)
    }

    /// Returns the files of this host, and those in and below these directories.
    ///
    /// # Errors
    /// If [`Symbols::in_directories`] fails.
    pub fn of_host_and(directories: &[PathBuf]) -> Result<Self, SymbolsError> {
        let symbols = Self::in_directories(directories)?;
        Ok(Self {
            is_of_host: true,
            ..symbols
        })
    }

    fn add_directory(&mut self, directory: &Path) -> Result<(), SymbolsError> {
        let failed = |source| SymbolsError {
            directory: directory.to_owned(),
            source,
        };
        let mut entries: Vec<fs::DirEntry> = fs::read_dir(directory)
            .and_then(Iterator::collect)
            .map_err(failed)?;
        // Which of several files is asked first is not left to the system.
        entries.sort_by_key(fs::DirEntry::path);
        for entry in entries {
            let path = entry.path();
            // A link to a directory may lead around in a circle.
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                self.add_directory(&path)?;
            } else if path.is_file()
                && let Some(id) = build_id(&path)
            {
                self.by_build_id.entry(id).or_default().push(path);
            }
        }
        Ok(())
    }

    /// Returns what the regions of these definitions are called that are functions and have no name, or no line, yet, and the lines of
    /// call paths' addresses: definitions to be added to them.
    pub fn resolve(&self, definitions: &Definitions) -> Vec<Definition> {
        self.resolve_from(definitions, self.is_of_host)
    }

    /// Adds the names of functions to the definitions of a recording. If no function has a name, no command has completed the
    /// recording: its process still runs, or was killed together with `trace-cli record`. Then the files of this host
    /// count, too.
    pub fn name_functions(&self, definitions: &mut Definitions) {
        let is_named = !definitions.symbols.is_empty() || !definitions.code_lines.is_empty();
        let is_of_host = self.is_of_host || !is_named;
        let found = self.resolve_from(definitions, is_of_host);
        found.into_iter().for_each(|record| definitions.add(record));
    }

    fn resolve_from(&self, definitions: &Definitions, is_of_host: bool) -> Vec<Definition> {
        let known = |region: &RegionId| {
            let symbol = definitions.symbols.get(region);
            symbol.map_or_else(Found::default, |symbol| Found {
                name: definitions.string(symbol.name).to_owned(),
                file: definitions.string(symbol.file).to_owned(),
                line: symbol.line,
            })
        };
        let unnamed = definitions.functions.values().filter(|function| {
            // A trace's regions have their lines themselves.
            let region = definitions.regions.get(&function.region);
            region.is_some_and(|region| region.line == 0)
                && !known(&function.region).is_whole()
                && !is_construct(definitions, function)
        });
        let mut by_module: BTreeMap<_, Vec<&Function>> = BTreeMap::new();
        for function in unnamed {
            by_module.entry(function.module).or_default().push(function);
        }
        // Of one file at a time: debug information takes much memory.
        static LOADING: Mutex<()> = Mutex::new(());
        let _alone =
            (!by_module.is_empty()).then(|| LOADING.lock().unwrap_or_else(PoisonError::into_inner));
        let mut found: BTreeMap<RegionId, Found> = BTreeMap::new();
        for (id, functions) in by_module {
            let Some(module) = definitions.modules.get(&id) else {
                continue;
            };
            let mut cache = self.found.lock().unwrap_or_else(PoisonError::into_inner);
            let build = (module.build_id.clone(), is_of_host);
            let mut found_before =
                (!module.build_id.is_empty()).then(|| cache.entry(build).or_default());
            let (again, new): (Vec<&Function>, Vec<&Function>) =
                functions.iter().partition(|function| {
                    let found_before = found_before.as_ref();
                    found_before.is_some_and(|found| found.contains_key(&function.offset))
                });
            for function in again {
                let before = found_before.as_ref().map(|found| &found[&function.offset]);
                let entry = found.entry(function.region);
                let known = entry.or_insert_with_key(&known);
                before.into_iter().for_each(|before| known.complete(before));
            }
            if new.is_empty() {
                continue;
            }
            for path in self.files_of(definitions, module, is_of_host) {
                let Ok(loader) = Loader::new(&path) else {
                    continue;
                };
                for function in &new {
                    let entry = found.entry(function.region);
                    let known = entry.or_insert_with_key(&known);
                    if !known.is_whole() {
                        look_up(&loader, function.offset, known);
                    }
                }
            }
            for function in new {
                if let Some(found_before) = &mut found_before
                    && let Some(found) = found.get(&function.region)
                {
                    found_before.insert(function.offset, found.clone());
                }
            }
        }
        found.retain(|region, found| !found.name.is_empty() && *found != known(region));
        let mut strings = NewStrings::of(definitions);
        let mut records = symbols(&found, &mut strings);
        records.extend(self.resolve_constructs(definitions, is_of_host, &mut strings));
        records.extend(self.resolve_lines(definitions, is_of_host, &mut strings));
        strings.records.into_iter().chain(records).collect()
    }

    /// Returns the lines that were found before, by address.
    pub(super) fn lines(&self) -> MutexGuard<'_, BTreeMap<Build, HashMap<u64, Vec<FoundFrame>>>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns every file that has this module's symbols, or may have them.
    pub(super) fn files_of(
        &self,
        definitions: &Definitions,
        module: &Module,
        is_of_host: bool,
    ) -> Vec<PathBuf> {
        let mut files: Vec<PathBuf> = Vec::new();
        let id = &module.build_id;
        let given = self.by_build_id.get(id).filter(|_| !id.is_empty());
        files.extend(given.into_iter().flatten().cloned());
        if !is_of_host {
            return files;
        }
        let path = PathBuf::from(definitions.string(module.path));
        if id.is_empty() {
            let process = definitions.processes.get(&module.process);
            let start_ns = process.map_or(0, |process| process.start_unix_ns);
            let is_here = process.is_some_and(|process| boot_id() == Some(process.boot_id));
            if is_here && is_older(&path, start_ns) && build_id(&path).is_none() {
                files.push(path);
            }
            return files;
        }
        let hex: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
        let (first, rest) = hex.split_at(2);
        let debug = format!("{DEBUG_DIRECTORY}/.build-id/{first}/{rest}.debug");
        let places = [path, PathBuf::from(debug)];
        let same = places
            .into_iter()
            .filter(|path| build_id(path).as_ref() == Some(id));
        files.extend(same);
        files
    }
}

/// Returns whether a function's record is of a construct at an address: its region has a group, which is not the module's file.
pub(super) fn is_construct(definitions: &Definitions, function: &Function) -> bool {
    let module = definitions.modules.get(&function.module);
    let path = module.map_or("", |module| definitions.string(module.path));
    let region = definitions.regions.get(&function.region);
    let group = region.map_or("", |region| definitions.string(region.group));
    !group.is_empty() && group != Module::file_name(path)
}

/// Returns whether a file was last changed before this moment, nanoseconds since the Unix epoch.
fn is_older(path: &Path, unix_ns: i64) -> bool {
    fs::metadata(path).is_ok_and(|file| {
        let changed = i128::from(file.ctime()) * 1_000_000_000 + i128::from(file.ctime_nsec());
        changed < i128::from(unix_ns)
    })
}

/// Returns the build id of an ELF file, if it is one and has one.
fn build_id(path: &Path) -> Option<Vec<u8>> {
    let mut file = File::open(path).ok()?;
    let mut magic = [0; 4];
    file.read_exact(&mut magic).ok()?;
    if magic != *b"\x7fELF" {
        return None;
    }
    let cache = object::ReadCache::new(file);
    let object = object::File::parse(&cache).ok()?;
    object.build_id().ok().flatten().map(<[u8]>::to_vec)
}

/// Takes what a file knows of the function at this address, as far as it is not known yet.
pub(super) fn look_up(loader: &Loader, address: u64, known: &mut Found) {
    if known.name.is_empty() {
        let symbol = loader.find_symbol_info(address);
        // The symbol before it, in a file without its own, is another function.
        let symbol = symbol.filter(|symbol| symbol.address() == address);
        if let Some(symbol) = symbol {
            // Of a library, `exp@@GLIBC_2.29` is the symbol's version, too.
            let name = symbol.name().split('@').next().unwrap_or_default();
            known.name = declared_name(loader, address, name).unwrap_or_else(|| source_name(name));
        } else if let Some((Some(name), ..)) = outermost_function(loader, address) {
            known.name = name;
        }
    }
    if known.line == 0
        && let Some((_, file, line)) = outermost_function(loader, address)
    {
        (known.file, known.line) = (file, line);
    }
}

/// Returns the name of a Fortran program, or of a procedure outside of modules, whose symbol does not contain it or has more: by debug
/// information. `None` if the symbol is of another function.
fn declared_name(loader: &Loader, address: u64, symbol: &str) -> Option<String> {
    let declared = || outermost_function(loader, address)?.0;
    if matches!(symbol, "MAIN__" | "_QQmain") {
        // A program without a name is called `main`.
        let name = declared().filter(|name| !["MAIN__", "_QQmain", "main"].contains(&&**name));
        return Some(name.map_or("program".to_owned(), |name| format!("program {name}")));
    }
    // `solve_`, or of a procedure in another one `solve.0`.
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let start = match symbol.rsplit_once('.') {
        Some((start, number)) if is_number(number) => start,
        _ => symbol.strip_suffix('_')?,
    };
    declared().filter(|name| name == start)
}

/// Returns the name of a Fortran procedure in a module, as `module::procedure`. `None` if a symbol is none of gfortran's
/// (`__work_MOD_nap`), Intel's (`work_mp_nap_`) or Flang's (`_QMworkPnap`).
fn fortran_name(symbol: &str) -> Option<String> {
    let of_module = symbol
        .strip_prefix("__")
        .and_then(|name| name.split_once("_MOD_"));
    let of_module = of_module.or_else(|| symbol.strip_suffix('_')?.split_once("_mp_"));
    if let Some((module, procedure)) = of_module {
        let is_named = !module.is_empty() && !procedure.is_empty();
        return is_named.then(|| format!("{module}::{procedure}"));
    }
    // Names have small letters; modules, submodules, procedures around it, and the procedure begin with a large one.
    let parts = symbol.strip_prefix("_Q")?;
    let is_scope = |c: char| matches!(c, 'M' | 'S' | 'F' | 'P');
    let is_name = parts.starts_with(is_scope)
        && parts.contains('P')
        && parts
            .chars()
            .all(|c| is_scope(c) || !c.is_ascii_uppercase());
    let names: Vec<&str> = parts.split(is_scope).skip(1).collect();
    (is_name && names.iter().all(|name| !name.is_empty())).then(|| names.join("::"))
}

/// Returns what a function is called in its source. Only names that compilers mangle are taken apart: a C function `f`
/// is no `float`, as which an encoded type of C++ (Itanium C++ ABI, section 5.1.5.2) would read.
pub(crate) fn source_name(name: &str) -> String {
    if let Some(name) = fortran_name(name) {
        return name;
    }
    // Itanium's names, Rust's (RFC 2603), and either with one more underscore, as Mach-O has them.
    let starts = ["_Z", "__Z", "_R", "__R"];
    if !starts.iter().any(|start| name.starts_with(start)) {
        return name.to_owned();
    }
    let found = demangle_auto(Cow::Borrowed(name), None);
    match name_alone(name) {
        Some(alone) if found == name => alone,
        _ => found.into_owned(),
    }
}

/// Returns the name of a C++ function whose types cannot be demangled, with `(…)` for its parameters. `None` if they can, or if
/// the name cannot. GCC encodes members of dependent types (`sr`, Itanium C++ ABI, section 5.1.6) otherwise than the
/// demangler expects, as in the return type of `std::swap`.
fn name_alone(name: &str) -> Option<String> {
    let (symbol, rest) = BorrowedSymbol::with_tail(name.as_bytes()).ok()?;
    let alone = symbol.demangle().ok()?;
    (!rest.is_empty()).then(|| format!("{alone}(…)"))
}

/// Returns name, file and line of the function that contains this address, ignoring inlined
/// functions.
fn outermost_function(loader: &Loader, address: u64) -> Option<(Option<String>, String, u32)> {
    let mut frames = loader.find_frames(address).ok()?;
    let mut outermost = None;
    while let Ok(Some(frame)) = frames.next() {
        outermost = Some(frame);
    }
    let frame = outermost?;
    let name = frame_name(&frame);
    let location = frame.location;
    let file = location.as_ref().and_then(|location| location.file);
    let line = location.as_ref().and_then(|location| location.line);
    Some((name, file.unwrap_or_default().to_owned(), line.unwrap_or(0)))
}

/// Returns the name of a frame's function by debug information.
pub(super) fn frame_name<R: gimli::Reader>(frame: &addr2line::Frame<'_, R>) -> Option<String> {
    let function = frame.function.as_ref()?;
    let name = function.raw_name().ok()?;
    // The name for the linker has an underscore more.
    let declared = name
        .strip_suffix('_')
        .filter(|_| is_fortran(function.language));
    Some(source_name(declared.unwrap_or(&name)))
}

fn is_fortran(language: Option<DwLang>) -> bool {
    let of_fortran = [
        gimli::DW_LANG_Fortran77,
        gimli::DW_LANG_Fortran90,
        gimli::DW_LANG_Fortran95,
        gimli::DW_LANG_Fortran03,
        gimli::DW_LANG_Fortran08,
        gimli::DW_LANG_Fortran18,
    ];
    language.is_some_and(|language| of_fortran.contains(&language))
}

fn symbols(found: &BTreeMap<RegionId, Found>, strings: &mut NewStrings) -> Vec<Definition> {
    let symbols = found.iter().map(|(region, found)| {
        Definition::Symbol(Symbol {
            region: *region,
            name: strings.string(&found.name),
            file: strings.string(&found.file),
            line: found.line,
        })
    });
    symbols.collect()
}

/// Strings that definitions do not have yet.
#[derive(Debug)]
pub(super) struct NewStrings {
    strings: HashMap<String, StringId>,
    next: u32,
    records: Vec<Definition>,
}

impl NewStrings {
    fn of(definitions: &Definitions) -> Self {
        let known = definitions.strings.iter();
        let last = definitions.strings.keys().next_back();
        Self {
            strings: known.map(|(id, text)| (text.clone(), *id)).collect(),
            next: last.map_or(0, |last| last.get().saturating_add(1)),
            records: Vec::new(),
        }
    }

    /// Returns the string with this text.
    pub(super) fn string(&mut self, text: &str) -> StringId {
        if let Some(id) = self.strings.get(text) {
            return *id;
        }
        let id = StringId::new(self.next);
        self.next = self.next.saturating_add(1);
        self.strings.insert(text.to_owned(), id);
        self.records.push(Definition::String(id, text.to_owned()));
        id
    }
}

#[cfg(test)]
mod tests {
    use annals_format::{ModuleId, ProcessId, Region};

    use super::*;

    #[test]
    fn names_are_those_of_the_source() {
        let swap = "_ZSt4swapIN4mesh4CellEENSt9enable_ifIXsrSt6__and_IJSt6__not_ISt15__is_tuple_likeIT_EE\
                    St21is_move_constructibleIS6_ESt18is_move_assignableIS6_EEE5valueEvE4typeERS6_SG_";
        let each = [
            ("_ZN4mesh5solveEi", "mesh::solve(int)"),
            (swap, "std::swap<mesh::Cell>(…)"),
            ("_Z", "_Z"),
            ("_ZN4mesh5sol", "_ZN4mesh5sol"),
            ("f", "f"),
            ("__work_MOD_nap", "work::nap"),
            ("work_mp_nap_", "work::nap"),
            ("_QMworkPnap", "work::nap"),
            ("_QMworkSpartFstepPinner_2", "work::part::step::inner_2"),
            ("_QQmain", "_QQmain"),
            ("__MOD_", "__MOD_"),
            ("nap_", "nap_"),
        ];
        for (name, expected) in each {
            assert_eq!(source_name(name), expected);
        }
    }

    const NAME: &str = "annals_symbols::symbols::tests::sought";

    #[inline(never)]
    fn sought() -> u32 {
        std::hint::black_box(7)
    }

    /// Returns what this test's own program is called in a recording of it.
    fn definitions(build_id: Vec<u8>, offset: u64) -> Definitions {
        let mut d = Definitions::default();
        let path = std::env::current_exe().unwrap();
        let path = path.to_string_lossy().into_owned();
        let strings = [String::new(), path, "program+0x1".to_owned()];
        for (number, text) in strings.into_iter().enumerate() {
            d.add(Definition::String(StringId::new(number as u32), text));
        }
        d.add(Definition::Module(Module {
            id: ModuleId::new(0),
            process: ProcessId::new(0),
            path: StringId::new(1),
            build_id,
            base: 0,
            loaded_ns: 0,
            unloaded_ns: None,
        }));
        d.add(Definition::Region(Region {
            id: RegionId::new(4),
            name: StringId::new(2),
            file: StringId::new(0),
            line: 0,
            group: StringId::new(0),
        }));
        d.add(Definition::Function(Function {
            region: RegionId::new(4),
            module: ModuleId::new(0),
            offset,
        }));
        d
    }

    /// Address in its file, and build id, of a function of this program.
    fn here() -> (u64, Vec<u8>) {
        assert_eq!(sought(), 7);
        let path = std::env::current_exe().unwrap();
        let file = fs::read(&path).unwrap();
        let object = object::File::parse(&*file).unwrap();
        let map = object.symbol_map();
        let symbol = map
            .symbols()
            .iter()
            .find(|symbol| source_name(symbol.name()) == NAME);
        let address = symbol.expect("this very module's function").address();
        (address, build_id(&path).unwrap_or_default())
    }

    #[test]
    fn a_function_of_this_host_is_found_by_build_id() {
        let (address, id) = here();
        assert!(!id.is_empty(), "the linker writes build ids");
        let d = definitions(id, address);
        let records = Symbols::of_host().resolve(&d);
        let mut d = d;
        records.into_iter().for_each(|record| d.add(record));
        let symbol = d.symbols[&RegionId::new(4)];
        assert_eq!(d.string(symbol.name), NAME);
        let file = d.string(symbol.file);
        assert!(file.ends_with("symbols.rs"), "{file}:{}", symbol.line);
        let line = include_str!("symbols.rs")
            .lines()
            .position(|line| line.ends_with("fn sought() -> u32 {"));
        // The optimizer decides whether code begins at the function's line or at that of its body.
        let line = line.unwrap() as u32 + 1;
        assert!((line..line + 2).contains(&symbol.line), "{}", symbol.line);
        // And never twice.
        assert_eq!(Symbols::of_host().resolve(&d), []);
    }

    #[test]
    fn only_mangled_names_are_taken_apart() {
        for plain in [
            "f", "g", "x", "St", "Pf", "PKc", "A3_i", "main", "_start", "_init",
        ] {
            assert_eq!(source_name(plain), plain);
        }
        assert_eq!(source_name("_Z1fi"), "f(int)");
        assert_eq!(source_name("_ZN6annals3runEv"), "annals::run()");
        assert_eq!(source_name("_RNvC6annals3run"), "annals::run");
        assert_eq!(
            source_name("_ZN6annals3run17h0123456789abcdefE"),
            "annals::run"
        );
        assert_eq!(source_name("_Z"), "_Z");
    }

    #[test]
    fn a_file_with_another_build_id_tells_nothing() {
        let (address, mut id) = here();
        id[0] ^= 1;
        let d = definitions(id, address);
        assert_eq!(Symbols::of_host().resolve(&d), []);
        let directory = std::env::current_exe().unwrap();
        let directory = directory.parent().unwrap().to_owned();
        let symbols = Symbols::in_directories(&[directory]).unwrap();
        assert_eq!(symbols.resolve(&d), []);
        // Nor does a module without one, but on its own host.
        let d = definitions(Vec::new(), address);
        assert_eq!(symbols.resolve(&d), []);
    }
}
