//! Samples as rows, with names.

use annals_format::{Definitions, RegionId, StringId};

use super::sums::SampleSum;
use super::tree::{SampleBy, SamplePlace};

/// Name of what is not known.
pub const UNKNOWN: &str = "(unknown)";

/// The names of a place.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub struct PlaceNames {
    /// The function. `None` for a module.
    pub function: Option<String>,
    /// The executable or shared library; empty if unknown.
    pub module: String,
    /// The source file: of the code, or in which the function begins; empty if unknown.
    pub file: String,
    /// The line in it; 0 if unknown.
    pub line: u32,
}

impl PlaceNames {
    /// Returns the names of a place.
    pub fn of(definitions: &Definitions, place: SamplePlace, by: SampleBy) -> Self {
        match place {
            SamplePlace::Unknown if by == SampleBy::Module => Self {
                module: UNKNOWN.to_owned(),
                ..Self::default()
            },
            SamplePlace::Unknown => Self {
                function: Some(UNKNOWN.to_owned()),
                ..Self::default()
            },
            SamplePlace::Module(module) => Self {
                module: definitions.string(module).to_owned(),
                ..Self::default()
            },
            SamplePlace::Function(region) => Self::of_region(definitions, region, None),
            SamplePlace::Line(region, file, line) => {
                Self::of_region(definitions, region, Some((file, line)))
            }
        }
    }

    fn of_region(definitions: &Definitions, id: RegionId, code: Option<(StringId, u32)>) -> Self {
        let text = |id| definitions.string(id).to_owned();
        let region = definitions.regions.get(&id);
        let begin = region.map(|region| (region.file, region.line));
        let (file, line) = code
            .or(begin)
            .map_or_else(|| (String::new(), 0), |(file, line)| (text(file), line));
        Self {
            function: Some(definitions.region_name(id)),
            module: region.map_or_else(String::new, |region| text(region.group)),
            file,
            line,
        }
    }
}

/// The samples of a function, a line or a module, of all locations, of a rank or of a location. Times are processor time, nanoseconds.
#[derive(Clone, Default, Debug)]
pub struct SampleRow {
    /// What it is of.
    pub names: PlaceNames,
    /// The rank. `None` means all.
    pub rank: Option<u32>,
    /// The location's name. `None` means all.
    pub location: Option<String>,
    /// The samples in it, but not in what it called.
    pub own: SampleSum,
    /// The samples on whose paths it is.
    pub total: SampleSum,
    /// Time in it as a share of that of all samples that are chosen.
    pub share: f64,
    /// Whether it is of a line: then people read the line.
    pub is_line: bool,
    /// Whether samples that are lost may have been of it.
    pub is_uncertain: bool,
}

impl SampleRow {
    /// Returns what its times differ by for certain, so that the order of rows does not depend on numbers of regions.
    pub(super) fn order(&self) -> impl Ord + use<'_> {
        use std::cmp::Reverse;
        let times = (
            Reverse(self.own.time_ns),
            Reverse(self.total.time_ns),
            Reverse((self.own.count, self.total.count)),
        );
        (times, &self.names, self.rank, &self.location)
    }

    /// Returns the module of a row of one. `None` if the row is of a function or line.
    pub fn only_module(&self) -> Option<&str> {
        let is_module = self.names.function.is_none();
        is_module.then_some(self.names.module.as_str())
    }

    /// Returns the module of a function or line, if it is known.
    fn module_of_function(&self) -> Option<&str> {
        let module = Some(self.names.module.as_str());
        module.filter(|module| self.names.function.is_some() && !module.is_empty())
    }

    /// Returns the line of a row of a line, as `heat.c:61`.
    pub fn code(&self) -> Option<String> {
        let file = annals_format::Module::file_name(&self.names.file);
        (self.is_line && self.names.line != 0).then(|| format!("{file}:{}", self.names.line))
    }
}

crate::columns! {
    // Its share is not the same in a table of some ranks: it is no column for programs.
    SampleRow, uncertain is_uncertain, json share;
    "function" Name if_any "function", |row| &row.names.function;
    "" Name if_any "module", |row| row.only_module();
    "" Name if_any "line", |row| row.code();
    "rank" Number if_any "rank", |row| row.rank;
    "location" Name if_any "location", |row| &row.location;
    "module" Name, |row| &row.names.module;
    "file" Name, |row| &row.names.file;
    "line" Number, |row| row.names.line;
    "samples" Count headed "samples", |row| row.own.count;
    "self_ns" Duration marked "self", |row| row.own.time_ns;
    "self_error_ns" Duration headed "±", |row| row.own.error_ns();
    "" Share headed "% of time", |row| row.share;
    "total_samples" Count, |row| row.total.count;
    "total_ns" Duration marked "total", |row| row.total.time_ns;
    "total_error_ns" Duration, |row| row.total.error_ns();
    "" Name if_any_and_room "module", |row| row.module_of_function();
    "is_uncertain" Flag, |row| row.is_uncertain;
}

/// A place in the tree of call paths. Times are processor time, nanoseconds.
#[derive(Clone, Debug)]
pub struct SampleTreeRow {
    /// Index of the caller's row. `None` means that it has none.
    pub parent: Option<usize>,
    /// Calls around it.
    pub depth: usize,
    /// The function.
    pub names: PlaceNames,
    /// The samples in it, but not in what it called.
    pub own: SampleSum,
    /// The samples in it and in what it called.
    pub total: SampleSum,
    /// Total time as a share of that of all samples that are chosen.
    pub share: f64,
    /// Whether samples that are lost may have been of it.
    pub is_uncertain: bool,
}

impl SampleTreeRow {
    fn name(&self) -> &str {
        self.names.function.as_deref().unwrap_or_default()
    }

    fn indented(&self) -> String {
        // A stack of a million calls is no reason for a line of two million spaces.
        format!("{}{}", "  ".repeat(self.depth.min(64)), self.name())
    }
}

crate::columns! {
    SampleTreeRow, uncertain is_uncertain, json share;
    "parent" Number, |row| row.parent;
    "depth" Number, |row| row.depth;
    "total_samples" Count, |row| row.total.count;
    "total_ns" Duration marked "total", |row| row.total.time_ns;
    "total_error_ns" Duration headed "±", |row| row.total.error_ns();
    "" Share headed "% of time", |row| row.share;
    "samples" Count, |row| row.own.count;
    "self_ns" Duration marked "self", |row| row.own.time_ns;
    "self_error_ns" Duration, |row| row.own.error_ns();
    "function" Name, |row| row.name();
    "" Name headed "function", |row| row.indented();
    "module" Name, |row| &row.names.module;
    "file" Name, |row| &row.names.file;
    "line" Number, |row| row.names.line;
    "is_uncertain" Flag, |row| row.is_uncertain;
}
