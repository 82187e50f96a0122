//! Functions and lines at the addresses of call paths, with the functions that the compiler has inlined there.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::path::Path;

use addr2line::Loader;
use annals_format::{
    CodeFrame, CodeLines, CodePlace, Definition, Definitions, Module, ModuleId, RegionId, Symbol,
};
use object::{Object, ObjectSymbol, ReadCache, SymbolKind};

use crate::symbols::{Found, FoundFrame, NewStrings, Symbols, frame_name, is_construct, look_up};

impl Symbols {
    /// Returns the lines of the call paths' addresses that have none yet: definitions to be added.
    pub(super) fn resolve_lines(
        &self,
        definitions: &Definitions,
        is_of_host: bool,
        strings: &mut NewStrings,
    ) -> Vec<Definition> {
        let mut by_module: BTreeMap<ModuleId, Vec<u64>> = BTreeMap::new();
        for path in definitions.call_paths.values() {
            if let CodePlace::Address(Some(module), address) = path.place
                && !definitions.code_lines.contains_key(&(module, address))
            {
                by_module.entry(module).or_default().push(address);
            }
        }
        let mut records = Vec::new();
        self.find_frames(definitions, is_of_host, by_module, |at, frames| {
            let frames = frames.iter().map(|frame| CodeFrame {
                name: strings.string(&frame.function.name),
                file: strings.string(&frame.function.file),
                line: frame.function.line,
                at_file: strings.string(&frame.at_file),
                at_line: frame.at_line,
            });
            records.push(Definition::CodeLines(CodeLines {
                module: at.module,
                address: at.address,
                frames: frames.collect(),
            }));
        });
        records
    }

    /// Returns what the constructs of threads are called that have no line yet: `barrier @a.c:7`, or `barrier in solve` without a line.
    pub(super) fn resolve_constructs(
        &self,
        definitions: &Definitions,
        is_of_host: bool,
        strings: &mut NewStrings,
    ) -> Vec<Definition> {
        let mut by_module: BTreeMap<ModuleId, Vec<u64>> = BTreeMap::new();
        let mut at: BTreeMap<(ModuleId, u64), Vec<RegionId>> = BTreeMap::new();
        // A trace's regions have what is known of them.
        let is_named = |id: RegionId| {
            let name = definitions.region_name(id);
            definitions.symbols.contains_key(&id) || name.contains(" @") || name.contains(" in ")
        };
        for function in definitions.functions.values() {
            if is_construct(definitions, function) && !is_named(function.region) {
                let (module, address) = (function.module, function.offset);
                by_module.entry(module).or_default().push(address);
                at.entry((module, address))
                    .or_default()
                    .push(function.region);
            }
        }
        let mut records = Vec::new();
        self.find_frames(definitions, is_of_host, by_module, |place, frames| {
            let Some(frame) = frames.last() else { return };
            let (file, line) = (&frame.at_file, frame.at_line);
            for region in at.get(&(place.module, place.address)).into_iter().flatten() {
                let construct = definitions.region_name(*region);
                let name = match line {
                    0 => format!("{construct} in {}", frame.function.name),
                    _ => format!("{construct} @{}:{line}", Module::file_name(file)),
                };
                records.push(Definition::Symbol(Symbol {
                    region: *region,
                    name: strings.string(&name),
                    file: strings.string(file),
                    line,
                }));
            }
        });
        records
    }

    /// Calls `work` with the functions at each of these addresses that is known, the outermost first.
    fn find_frames(
        &self,
        definitions: &Definitions,
        is_of_host: bool,
        by_module: BTreeMap<ModuleId, Vec<u64>>,
        mut work: impl FnMut(Place, &[FoundFrame]),
    ) {
        for (id, mut addresses) in by_module {
            addresses.sort_unstable();
            addresses.dedup();
            let Some(module) = definitions.modules.get(&id) else {
                continue;
            };
            let mut cache = self.lines();
            let build = (module.build_id.clone(), is_of_host);
            let has_id = !module.build_id.is_empty();
            let mut unshared = HashMap::new();
            let found = if has_id {
                cache.entry(build).or_default()
            } else {
                &mut unshared
            };
            let new = addresses
                .iter()
                .filter(|address| !found.contains_key(address));
            let new: Vec<u64> = new.copied().collect();
            if !new.is_empty() {
                for path in self.files_of(definitions, module, is_of_host) {
                    find_lines(&path, &new, found);
                }
            }
            for address in addresses {
                if let Some(frames) = found.get(&address) {
                    let place = Place {
                        module: id,
                        address,
                    };
                    work(place, frames);
                }
            }
        }
    }
}

/// An address in a module's file.
#[derive(Clone, Copy)]
struct Place {
    module: ModuleId,
    address: u64,
}

/// Adds what a file knows of these addresses. A file with lines counts more than one without.
fn find_lines(path: &Path, addresses: &[u64], found: &mut HashMap<u64, Vec<FoundFrame>>) {
    let Ok(loader) = Loader::new(path) else {
        return;
    };
    let functions = FunctionRanges::of(path).unwrap_or_default();
    for address in addresses {
        let has_line = |frames: &[FoundFrame]| frames.iter().any(|frame| frame.at_line != 0);
        if found.get(address).is_some_and(|known| has_line(known)) {
            continue;
        }
        let frames = frames_at(&loader, &functions, *address);
        if has_line(&frames) || (!frames.is_empty() && !found.contains_key(address)) {
            found.insert(*address, frames);
        }
    }
}

/// Returns the functions at an address, the outermost first; none if the file does not know it.
fn frames_at(loader: &Loader, functions: &FunctionRanges, address: u64) -> Vec<FoundFrame> {
    let mut frames = Vec::new();
    if let Ok(mut inlined) = loader.find_frames(address) {
        while let Ok(Some(frame)) = inlined.next() {
            let at = frame.location.as_ref();
            let at_file = at.and_then(|at| at.file).unwrap_or_default().to_owned();
            let at_line = at.and_then(|at| at.line).unwrap_or(0);
            let name = frame_name(&frame).unwrap_or_default();
            frames.push(FoundFrame {
                function: Found {
                    name,
                    file: at_file.clone(),
                    line: 0,
                },
                at_file,
                at_line,
            });
        }
    }
    frames.reverse();
    if let Some(begin) = functions.begin_of(address) {
        let mut function = Found::default();
        look_up(loader, begin, &mut function);
        match frames.first_mut() {
            Some(outermost) if !function.name.is_empty() => outermost.function = function,
            None if !function.name.is_empty() => frames.push(FoundFrame {
                function,
                at_file: String::new(),
                at_line: 0,
            }),
            _ => {}
        }
    }
    // Of assembler, debug information knows lines and no name.
    frames.retain(|frame| !frame.function.name.is_empty());
    frames
}

/// Where the functions of a file begin and end, by its symbols.
#[derive(Default, Debug)]
struct FunctionRanges(BTreeMap<u64, u64>);

impl FunctionRanges {
    /// `None` if the file cannot be read.
    fn of(path: &Path) -> Option<Self> {
        let cache = ReadCache::new(File::open(path).ok()?);
        let object = object::File::parse(&cache).ok()?;
        let mut ranges = BTreeMap::new();
        for symbol in object.symbols().chain(object.dynamic_symbols()) {
            if symbol.kind() == SymbolKind::Text && symbol.is_definition() {
                let end = symbol.address().saturating_add(symbol.size());
                let known = ranges.entry(symbol.address()).or_insert(end);
                *known = end.max(*known);
            }
        }
        Some(Self(ranges))
    }

    /// Returns where the function begins that contains this address. One of assembler may have no size.
    fn begin_of(&self, address: u64) -> Option<u64> {
        let (begin, end) = self.0.range(..=address).next_back()?;
        (address < *end || begin == end).then_some(*begin)
    }
}
