//! Definitions: the tables that events refer to.
//!
//! A definition is a record of kind, length and body. Readers step over kinds they do not know and
//! ignore bytes after the fields they know. [`Definitions`] holds all of a file. Each type of record
//! implements `record::Record`; `definition::kinds!` is the table of kinds. A new kind needs a type
//! there, a field of [`Definitions`], a line in [`Definitions::add`] and one in `for_each`.

mod call_path;
mod clock;
mod codes;
mod definition;
mod event_type;
mod memory;
mod merge;
mod process;
mod record;
mod region;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

// A new kind is a type in one of these files, a line of `definition.rs`, and its place in [`Definitions`].
pub use call_path::*;
pub use clock::*;
pub use codes::*;
pub use definition::Definition;
pub use event_type::*;
pub use merge::*;
pub use process::*;
pub use region::*;

use crate::error::{FormatError, Result};
use crate::file_limits::FileLimits;
use crate::ids::{
    CallPathId, ClockId, EventTypeId, LocationId, ModuleId, ObjectId, ProcessId, RegionId,
    SourceId, StreamId, StringId,
};
use crate::names::property;
use crate::retired::Retired;
use crate::wire::Wire;
use memory::{KnownEntries, MemoryTaken};

/// All definitions of a file, by id.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub struct Definitions {
    pub strings: BTreeMap<StringId, String>,
    pub processes: BTreeMap<ProcessId, Process>,
    pub ranks: BTreeMap<ProcessId, Rank>,
    pub worlds: BTreeMap<ProcessId, World>,
    pub properties: Vec<Property>,
    pub clocks: BTreeMap<ClockId, Clock>,
    pub calibration: Vec<CalibrationPoint>,
    pub sources: BTreeMap<SourceId, Source>,
    pub event_types: BTreeMap<EventTypeId, EventType>,
    pub regions: BTreeMap<RegionId, Region>,
    pub region_sets: BTreeMap<ProcessId, RegionSet>,
    pub locations: BTreeMap<LocationId, Location>,
    pub streams: BTreeMap<StreamId, Stream>,
    pub objects: BTreeMap<ObjectId, Object>,
    pub registrations: Vec<Registration>,
    pub remote_members: BTreeMap<ObjectId, RemoteMembers>,
    pub clock_maps: BTreeMap<ClockId, ClockMap>,
    pub process_ends: BTreeMap<ProcessId, ProcessEnd>,
    pub location_ends: BTreeMap<LocationId, LocationEnd>,
    pub time_zero: Option<TimeZero>,
    pub modules: BTreeMap<ModuleId, Module>,
    pub functions: BTreeMap<RegionId, Function>,
    pub symbols: BTreeMap<RegionId, Symbol>,
    pub call_paths: BTreeMap<CallPathId, CallPath>,
    /// By module and address in it.
    pub code_lines: BTreeMap<(ModuleId, u64), CodeLines>,
    pub filters: Vec<Filter>,
    pub slice: Option<Slice>,
    memory_taken: MemoryTaken,
    known_filters: KnownEntries<Filter>,
    pub host_offsets: Vec<HostOffset>,
    pub clock_errors: BTreeMap<ClockId, ClockError>,
    /// By process, and by kind and number of the definition they are about.
    pub foreign: BTreeMap<(ProcessId, Reference, u32), ForeignRecord>,
    known_host_offsets: KnownEntries<HostOffset>,
    known_properties: KnownEntries<Property>,
    known_registrations: KnownEntries<Registration>,
}

impl Definitions {
    /// Adds a definition. A definition whose id is already known stays as it was: definitions never
    /// change, and readers meet them twice (block and footer, block and live area).
    pub fn add(&mut self, definition: Definition) {
        match definition {
            Definition::String(id, text) => {
                self.strings.entry(id).or_insert(text);
            }
            Definition::Process(d) => {
                self.processes.entry(d.id).or_insert(d);
            }
            Definition::Rank(d) => {
                self.ranks.insert(d.process, d);
            }
            Definition::Property(d) => self.known_properties.push(&mut self.properties, d),
            Definition::Clock(d) => {
                self.clocks.entry(d.id).or_insert(d);
            }
            Definition::Calibration(d) => self.calibration.push(d),
            Definition::Calibrations(points) => self.calibration.extend(points),
            Definition::Source(d) => {
                self.sources.entry(d.id).or_insert(d);
            }
            Definition::EventType(d) => {
                self.event_types.entry(d.id).or_insert(d);
            }
            Definition::Region(d) => {
                self.regions.entry(d.id).or_insert(d);
            }
            Definition::RegionSet(d) => {
                self.region_sets.entry(d.process).or_insert(d);
            }
            Definition::Location(d) => {
                self.locations.entry(d.id).or_insert(d);
            }
            Definition::Stream(d) => {
                self.streams.entry(d.id).or_insert(d);
            }
            Definition::Object(d) => {
                self.objects.entry(d.id).or_insert(d);
            }
            Definition::Registration(d) => {
                self.known_registrations.push(&mut self.registrations, d);
            }
            Definition::SharedClockMap(d) => {
                for clock in d.clocks {
                    self.clock_maps.entry(clock).or_insert_with(|| ClockMap {
                        clock,
                        error_ns: d.error_ns,
                        knots: Arc::clone(&d.knots),
                    });
                }
            }
            Definition::ProcessEnd(d) => {
                self.process_ends.insert(d.process, d);
            }
            Definition::TimeZero(d) => self.time_zero = Some(d),
            Definition::Module(d) => {
                self.modules.insert(d.id, d);
            }
            Definition::Function(d) => {
                self.functions.entry(d.region).or_insert(d);
            }
            Definition::Symbol(d) => {
                self.symbols.insert(d.region, d);
            }
            Definition::Slice(d) => {
                self.slice.get_or_insert(d);
            }
            Definition::Filter(d) => self.known_filters.push(&mut self.filters, d),
            Definition::HostOffset(d) => {
                self.known_host_offsets.push(&mut self.host_offsets, d);
            }
            Definition::ClockError(d) => {
                self.clock_errors.insert(d.clock, d);
            }
            Definition::Foreign(d) => {
                let key = (d.process, d.of, d.id);
                self.foreign.entry(key).or_insert(d);
            }
            Definition::World(d) => {
                self.worlds.insert(d.process, d);
            }
            Definition::LocationEnd(d) => {
                self.location_ends.insert(d.location, d);
            }
            Definition::RemoteMembers(d) => {
                self.remote_members.entry(d.object).or_insert(d);
            }
            Definition::CallPath(d) => {
                self.call_paths.entry(d.id).or_insert(d);
            }
            Definition::CodeLines(d) => {
                self.code_lines.insert((d.module, d.address), d);
            }
        }
    }

    /// Reads records until the bytes end. A record that contradicts SPEC.md is stepped over.
    ///
    /// # Errors
    /// Describes the first record that could not be added. All others are added, except those after a
    /// record whose length is broken: they cannot be found. Reading ends at a record that would take
    /// more memory than the largest file may have.
    pub fn add_all(&mut self, bytes: &[u8]) -> Result<()> {
        self.add_all_within(bytes, &FileLimits::of_length(u64::MAX))
    }

    /// Reads records of a file with these limits.
    pub(crate) fn add_all_within(&mut self, bytes: &[u8], limits: &FileLimits) -> Result<()> {
        let most = limits.definitions_memory;
        let mut wire = Wire::new(bytes);
        let mut outcome = Ok(());
        let too_much = |before: usize| {
            let expected = "definitions that take no more memory than the limits allow";
            FormatError::invalid(before, expected, format!("more than {} MiB", most >> 20))
        };
        while !wire.is_empty() {
            let before = wire.position();
            if !self.memory_taken.has_room_for(wire.clone(), most) {
                return outcome.and(Err(too_much(before)));
            }
            match Definition::decode(&mut wire) {
                Ok(Some(definition)) if u64::from(definition.highest_id()) >= limits.ids => {
                    let expected = "a definition with an id that the file has room for";
                    let found = definition.highest_id();
                    outcome = outcome.and(Err(FormatError::invalid(before, expected, found)));
                }
                Ok(Some(definition)) => {
                    let record = wire.position() - before;
                    if !self.memory_taken.count(&definition, record, most) {
                        return outcome.and(Err(too_much(before)));
                    }
                    self.add(definition);
                }
                // No definition has the kind 0: a crash of the machine has left zeros here.
                Ok(None) if bytes[before] == 0 => {
                    let found = "zeros";
                    let error = FormatError::invalid(before, "a definition", found);
                    return outcome.and(Err(error));
                }
                Ok(None) => {
                    let kind = Wire::new(&bytes[before..]).varint("kind of a definition")?;
                    if let Some(found) = Retired::Definition(kind).name() {
                        let offset = before as u64;
                        return Err(FormatError::Retired { offset, found });
                    }
                }
                Err(error) => {
                    let is_whole = Definition::step_over(&mut wire, bytes, before);
                    outcome = outcome.and(Err(error));
                    if !is_whole {
                        break;
                    }
                }
            }
        }
        outcome
    }

    /// Replaces the names, files and lines of regions by those of their symbols.
    pub fn apply_symbols(&mut self) {
        for (id, symbol) in std::mem::take(&mut self.symbols) {
            if let Some(region) = self.regions.get_mut(&id) {
                (region.name, region.file, region.line) = (symbol.name, symbol.file, symbol.line);
            }
        }
    }

    /// Sorts calibration points by clock and time, and removes duplicates.
    pub fn tidy(&mut self) {
        self.calibration
            .sort_by_key(|point| (point.clock, point.reference_ns, point.tick));
        self.calibration.dedup();
    }

    /// Appends every definition, strings first, then in the order of the kinds.
    pub fn encode(&self, out: &mut Vec<u8>) {
        self.for_each(|definition| definition.encode(out));
    }

    /// Calls `each` with every definition, strings first, then in the order of the kinds.
    fn for_each(&self, mut each: impl FnMut(Definition)) {
        let strings = self.strings.iter();
        strings.for_each(|(id, text)| each(Definition::String(*id, text.clone())));
        let processes = self.processes.values().cloned();
        processes.for_each(|d| each(Definition::Process(d)));
        self.ranks.values().for_each(|d| each(Definition::Rank(*d)));
        let properties = self.properties.iter();
        properties.for_each(|d| each(Definition::Property(*d)));
        let clocks = self.clocks.values().cloned();
        clocks.for_each(|d| each(Definition::Clock(d)));
        let calibration = self.calibration.chunk_by(|a, b| a.clock == b.clock);
        calibration.for_each(|points| each(Definition::Calibrations(points.to_vec())));
        let sources = self.sources.values().cloned();
        sources.for_each(|d| each(Definition::Source(d)));
        let event_types = self.event_types.values().cloned();
        event_types.for_each(|d| each(Definition::EventType(d)));
        let regions = self.regions.values().cloned();
        regions.for_each(|d| each(Definition::Region(d)));
        let region_sets = self.region_sets.values().cloned();
        region_sets.for_each(|d| each(Definition::RegionSet(d)));
        let locations = self.locations.values().cloned();
        locations.for_each(|d| each(Definition::Location(d)));
        let streams = self.streams.values();
        streams.for_each(|d| each(Definition::Stream(*d)));
        let objects = self.objects.values();
        objects.for_each(|d| each(Definition::Object(*d)));
        let registrations = self.registrations.iter();
        registrations.for_each(|d| each(Definition::Registration(*d)));
        let clock_maps = SharedClockMap::of(self.clock_maps.values());
        let clock_maps = clock_maps.into_iter();
        clock_maps.for_each(|d| each(Definition::SharedClockMap(d)));
        let ends = self.process_ends.values();
        ends.for_each(|d| each(Definition::ProcessEnd(*d)));
        let zero = self.time_zero.iter();
        zero.for_each(|d| each(Definition::TimeZero(*d)));
        let modules = self.modules.values().cloned();
        modules.for_each(|d| each(Definition::Module(d)));
        let functions = self.functions.values();
        functions.for_each(|d| each(Definition::Function(*d)));
        let symbols = self.symbols.values();
        symbols.for_each(|d| each(Definition::Symbol(*d)));
        let filters = self.filters.iter();
        filters.for_each(|d| each(Definition::Filter(*d)));
        let slice = self.slice.iter();
        slice.for_each(|d| each(Definition::Slice(*d)));
        let offsets = self.host_offsets.iter();
        offsets.for_each(|d| each(Definition::HostOffset(*d)));
        let errors = self.clock_errors.values().cloned();
        errors.for_each(|d| each(Definition::ClockError(d)));
        let foreign = self.foreign.values().cloned();
        foreign.for_each(|d| each(Definition::Foreign(d)));
        let worlds = self.worlds.values();
        worlds.for_each(|d| each(Definition::World(*d)));
        let ends = self.location_ends.values();
        ends.for_each(|d| each(Definition::LocationEnd(*d)));
        let members = self.remote_members.values();
        members.for_each(|d| each(Definition::RemoteMembers(*d)));
        let call_paths = self.call_paths.values();
        call_paths.for_each(|d| each(Definition::CallPath(*d)));
        let code_lines = self.code_lines.values().cloned();
        code_lines.for_each(|d| each(Definition::CodeLines(d)));
    }

    /// Returns the string with this text, which is added if there is none.
    pub fn intern(&mut self, text: &str) -> StringId {
        let known = self.strings.iter().find(|(_, known)| *known == text);
        if let Some((id, _)) = known {
            return *id;
        }
        let last = self.strings.last_key_value().map(|(id, _)| id.get());
        let id = StringId::new(last.map_or(0, |last| last.saturating_add(1)));
        self.add(Definition::String(id, text.to_owned()));
        id
    }

    /// Returns the number of children made by fork in which events were raised, and that nothing records.
    pub fn unrecorded_children(&self) -> u64 {
        let properties = self.properties.iter();
        let counts = properties.filter(|d| self.string(d.key) == property::UNRECORDED_CHILDREN);
        let counts = counts.filter_map(|d| self.string(d.value).parse().ok());
        counts.fold(0, u64::saturating_add)
    }

    /// Returns whether forked children of a process are recorded.
    pub fn follows_forks(&self) -> bool {
        let is_followed = |d: &Property| {
            self.string(d.key) == property::FORKS && self.string(d.value) == "follow"
        };
        self.properties.iter().any(is_followed)
    }

    /// Returns the rank of a process within its world, which is what elements of events contain.
    /// `None` if the process has no rank.
    pub fn rank_in_world(&self, process: ProcessId) -> Option<u32> {
        let first = self.first_rank(process);
        self.ranks.get(&process)?.rank.checked_sub(first)
    }

    /// Returns the number to add to a rank in an event of this process to get the rank in this file:
    /// see [`World`].
    pub fn first_rank(&self, process: ProcessId) -> u32 {
        self.worlds
            .get(&process)
            .map_or(0, |world| world.first_rank)
    }

    /// Returns the end of the time of which a trace has events, nanoseconds: that of its slice or of the filter of its merge. The
    /// largest number means that nothing cut it.
    pub fn kept_to_ns(&self) -> i64 {
        let slice = self.slice.and_then(|slice| slice.to_ns);
        let filters = self.filters.iter().filter_map(|filter| filter.to_ns);
        filters.chain(slice).min().unwrap_or(i64::MAX)
    }

    /// Returns the start of the time of which a trace has events, nanoseconds: that of its slice or of the filter of its merge. The
    /// smallest number means that nothing cut it.
    pub fn kept_from_ns(&self) -> i64 {
        let slice = self.slice.and_then(|slice| slice.from_ns);
        let filters = self.filters.iter().filter_map(|filter| filter.from_ns);
        filters.chain(slice).max().unwrap_or(i64::MIN)
    }

    /// Returns when a location of a trace ended: its last known moment, trace time in nanoseconds, and how much later it may
    /// have been ([`ProcessEnd::end_error_ns`]). `None` if the definition of its process's end is lost.
    pub fn end_of_location(&self, location: LocationId) -> Option<(i64, u64)> {
        if let Some(end) = self.location_ends.get(&location) {
            return Some((end.end_ns, 0));
        }
        let process = self.locations.get(&location)?.process;
        let end = self.process_ends.get(&process)?;
        Some((end.end_ns, end.end_error_ns))
    }

    /// Returns the text of a string; it is empty if the definition is lost.
    pub fn string(&self, id: StringId) -> &str {
        self.strings.get(&id).map_or("", String::as_str)
    }

    /// Returns the name of an event type, or `event-type-N` if its definition is lost.
    pub fn event_type_name(&self, id: EventTypeId) -> String {
        match self.event_types.get(&id) {
            Some(event_type) => self.string(event_type.name).to_owned(),
            None => format!("event-type-{}", id.get()),
        }
    }

    /// Returns the name of a region, or `region-N` if its definition is lost.
    pub fn region_name(&self, id: RegionId) -> String {
        match self.regions.get(&id) {
            Some(region) => self.string(region.name).to_owned(),
            None => format!("region-{}", id.get()),
        }
    }

    /// Returns the function in which a call path ends, and its line there if that is known: `relax (heat.c:61)`. `call-path-N` if its
    /// definition is lost.
    pub fn call_path_name(&self, id: CallPathId) -> String {
        let Some(path) = self.call_paths.get(&id) else {
            return format!("call-path-{}", id.get());
        };
        match path.place {
            CodePlace::Unknown => "unknown".to_owned(),
            CodePlace::Address(None, address) => format!("{address:#x}"),
            CodePlace::Address(Some(module), address) => {
                let path = self.modules.get(&module);
                let path = path.map_or("", |module| self.string(module.path));
                Module::function_name(path, address)
            }
            CodePlace::Line(region, _, 0) => self.region_name(region),
            CodePlace::Line(region, file, line) => {
                let file = Module::file_name(self.string(file));
                format!("{} ({file}:{line})", self.region_name(region))
            }
        }
    }

    /// Returns the name that a region had while its program ran: for a function its
    /// [`Module::function_name`], even if its symbol is known by now. `None` if its definition is lost.
    pub fn recorded_name(&self, id: RegionId) -> Option<Cow<'_, str>> {
        let function = self.functions.get(&id);
        let module = function.and_then(|function| self.modules.get(&function.module));
        Some(match (function, module) {
            (Some(function), Some(module)) => {
                Module::function_name(self.string(module.path), function.offset).into()
            }
            _ => self.string(self.regions.get(&id)?.name).into(),
        })
    }

    /// Returns the process of a stream, through its source. `None` if definitions are lost.
    pub fn process_of(&self, stream: StreamId) -> Option<ProcessId> {
        let source = self.sources.get(&self.streams.get(&stream)?.source)?;
        Some(source.process)
    }

    /// Returns the value of a property of a process, or `None` if it has none of this name.
    pub fn property(&self, process: ProcessId, key: &str) -> Option<&str> {
        let mut own = self.properties.iter().filter(|p| p.process == process);
        let found = own.find(|property| self.string(property.key) == key)?;
        Some(self.string(found.value))
    }

    /// Returns the processes that are no ranks but belong to one, with that rank in its world: a rank has started them, or the
    /// launcher has started them in a rank's place, before or after the program that is the rank.
    pub fn helpers(&self) -> BTreeMap<ProcessId, u32> {
        let is_of_rank = |key: StringId| {
            let key = self.string(key);
            [property::STARTED_BY_RANK, property::LAUNCHED_AS_RANK].contains(&key)
        };
        let has_rank = |process| {
            self.ranks
                .get(process)
                .is_some_and(|rank| !rank.is_assigned)
        };
        let each = self.properties.iter().filter(|p| is_of_rank(p.key));
        let each = each.filter(|property| !has_rank(&property.process));
        each.filter_map(|property| {
            Some((property.process, self.string(property.value).parse().ok()?))
        })
        .collect()
    }

    /// Returns the rank of a process; 0 if it has none.
    pub fn rank_of(&self, process: ProcessId) -> u32 {
        self.ranks.get(&process).map_or(0, |rank| rank.rank)
    }

    /// Returns the rank of a stream's process; 0 if it has none or definitions are lost.
    pub fn rank_of_stream(&self, stream: StreamId) -> u32 {
        self.process_of(stream)
            .map_or(0, |process| self.rank_of(process))
    }

    /// Returns the rank of a location's process; 0 if it has none or its definition is lost.
    pub fn rank_of_location(&self, location: LocationId) -> u32 {
        let location = self.locations.get(&location);
        location.map_or(0, |location| self.rank_of(location.process))
    }

    /// Returns the clock of a stream's source. `None` if definitions are lost.
    pub fn clock_of(&self, stream: StreamId) -> Option<ClockId> {
        let source = self.sources.get(&self.streams.get(&stream)?.source)?;
        Some(source.clock)
    }

    /// Returns the position of an element in its event type, by name. `None` if there is no such type
    /// or element.
    pub fn element(&self, event_type: EventTypeId, name: &str) -> Option<usize> {
        let elements = &self.event_types.get(&event_type)?.elements;
        let mut names = elements.iter().map(|element| self.string(element.name));
        names.position(|known| known == name)
    }

    /// Returns whether events of a type say what a call is about to wait for, and nothing else: events of
    /// [`Role::Wait`], and starts of receives without a request.
    pub fn is_wait(&self, event_type: EventTypeId) -> bool {
        match self.event_types.get(&event_type).map(|t| t.role) {
            Some(Role::Wait) => true,
            Some(Role::ReceiveStart) => self
                .element(event_type, crate::names::element::REQUEST)
                .is_none(),
            _ => false,
        }
    }

    /// Returns the element types of every event type, which rows and columns are decoded by.
    pub fn schema(&self) -> Schema {
        let mut schema = Schema::default();
        for event_type in self.event_types.values() {
            schema.add(event_type);
        }
        schema
    }
}
