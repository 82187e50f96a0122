//! One set of definitions out of many recordings': equal strings, event types and regions become one,
//! everything else gets separate numbers. The order of the recordings alone decides the numbers.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use annals_format::{
    CallPath, CallPathId, Clock, ClockId, CodePlace, Definition, Definitions, Element, EventType,
    EventTypeId, ForeignRecord, Function, Location, LocationId, Module, ModuleId, Object, ObjectId,
    Process, ProcessId, Property, Rank, Recording, Reference, Region, RegionId, RegionSet,
    Registration, RemoteMembers, Source, SourceId, SourceOrder, Stream, StreamId, StringId, World,
};

/// Numbers of one recording's definitions in the trace.
#[derive(Debug, Default)]
pub(crate) struct Numbers {
    pub(crate) event_types: BTreeMap<EventTypeId, EventTypeId>,
    pub(crate) streams: BTreeMap<StreamId, StreamId>,
    pub(crate) clocks: BTreeMap<ClockId, ClockId>,
    /// Streams once more: a trace's chunk asks for every event.
    pub(crate) stream_table: References,
    /// References are numbered as in the trace already.
    pub(crate) is_identity: bool,
    regions: References,
    strings: References,
    locations: References,
    sources: References,
    objects: References,
    event_type_references: References,
    call_paths: References,
}

/// A table for references in events: dense, because every event asks. Recordings of one program have the same, and
/// share it.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(crate) struct References(Arc<Vec<u32>>);

/// The clock of a source whose clock is not defined: its events cannot be placed in time.
const LOST_CLOCK: ClockId = ClockId::new(u32::MAX);

/// The source of a stream whose own definition is lost.
const LOST_SOURCE: SourceId = SourceId::new(u32::MAX);

/// Number of streams of a process, their definitions lost, that get a source each. A small damaged file can name
/// very many: the further ones share one source.
const MOST_LOST_SOURCES: usize = 1024;

/// Defines the streams of a recording that have chunks or counts, and whose definitions are lost.
pub(crate) fn define_lost_streams(recording: &mut Recording) {
    let defined = &recording.definitions.streams;
    let lost = recording
        .streams
        .keys()
        .filter(|id| !defined.contains_key(id));
    let lost: Vec<StreamId> = lost.copied().collect();
    for id in lost {
        Arc::make_mut(&mut recording.definitions).add(Definition::Stream(Stream {
            id,
            source: LOST_SOURCE,
            location: None,
        }));
    }
}

/// The number of a reference whose definition is lost.
pub(crate) const LOST_REFERENCE: u64 = u32::MAX as u64;

impl References {
    /// Numbers beyond this are treated as lost: no recorder assigns them, and the table stays
    /// small.
    const LIMIT: usize = 1 << 24;

    fn set(&mut self, from: u32, to: u32) {
        let index = from as usize;
        if index < Self::LIMIT {
            let table = Arc::make_mut(&mut self.0);
            if table.len() <= index {
                table.resize(index + 1, LOST_REFERENCE as u32);
            }
            table[index] = to;
        }
    }

    /// Takes another table for this one, if they are the same; else keeps what it needs.
    fn share(&mut self, other: &Self) {
        if self == other {
            self.clone_from(other);
        } else {
            Arc::make_mut(&mut self.0).shrink_to_fit();
        }
    }

    /// Returns the number in the trace.
    #[inline]
    pub(crate) fn get(&self, from: u64) -> u64 {
        let found = usize::try_from(from).ok().and_then(|from| self.0.get(from));
        found.map_or(LOST_REFERENCE, |to| u64::from(*to))
    }
}

impl Numbers {
    /// Leaves references as they are.
    pub(crate) fn identity() -> Self {
        Self {
            is_identity: true,
            ..Self::default()
        }
    }

    fn tables(&mut self) -> [&mut References; 7] {
        [
            &mut self.regions,
            &mut self.strings,
            &mut self.locations,
            &mut self.sources,
            &mut self.objects,
            &mut self.event_type_references,
            &mut self.call_paths,
        ]
    }

    /// Returns the table for a kind of reference. `None` means that the value stays unchanged.
    pub(crate) fn references(&self, kind: Reference) -> Option<&References> {
        if self.is_identity {
            return None;
        }
        match kind {
            Reference::String => Some(&self.strings),
            Reference::Region => Some(&self.regions),
            Reference::Location => Some(&self.locations),
            Reference::Source => Some(&self.sources),
            Reference::EventType => Some(&self.event_type_references),
            Reference::Object => Some(&self.objects),
            Reference::CallPath => Some(&self.call_paths),
            Reference::None | Reference::Rank => None,
        }
    }
}

/// Definitions of a trace under construction.
#[derive(Debug, Default)]
pub(crate) struct Unifier {
    pub(crate) definitions: Definitions,
    strings: HashMap<String, StringId>,
    event_types: HashMap<EventType, EventTypeId>,
    regions: HashMap<RegionKey, RegionId>,
    call_paths: HashMap<(Option<CallPathId>, CodePlace), CallPathId>,
    processes: u32,
    /// The tables of the recording before.
    last: [References; 7],
}

/// The identity of a region: name, file, line, group; for functions without a symbol also the build that they are in,
/// because an address means nothing without it.
type RegionKey = (StringId, StringId, u32, StringId, Option<Vec<u8>>);

impl Unifier {
    pub(crate) fn string(&mut self, text: &str) -> StringId {
        if let Some(id) = self.strings.get(text) {
            return *id;
        }
        let id = StringId::new(self.strings.len() as u32);
        self.strings.insert(text.to_owned(), id);
        self.definitions
            .add(Definition::String(id, text.to_owned()));
        id
    }

    /// Adds a property of a process.
    pub(crate) fn add_property(&mut self, process: ProcessId, key: &str, value: &str) {
        let d = Property {
            process,
            key: self.string(key),
            value: self.string(value),
        };
        self.definitions.add(Definition::Property(d));
    }

    /// Adds a recording's definitions as the next process. `first_rank`: the first rank of its world.
    pub(crate) fn add(
        &mut self,
        of: &Definitions,
        rank: Rank,
        first_rank: u32,
    ) -> (ProcessId, Numbers) {
        let mut numbers = Numbers::default();
        self.add_shared(of, &mut numbers);
        let process = self.add_process(of, of, rank, first_rank, &mut numbers);
        for (table, last) in numbers.tables().into_iter().zip(&mut self.last) {
            table.share(last);
            last.clone_from(table);
        }
        (process, numbers)
    }

    /// Takes in what no process has for itself: strings, event types, measured offsets.
    pub(crate) fn add_shared(&mut self, of: &Definitions, numbers: &mut Numbers) {
        self.string("");
        for (id, text) in &of.strings {
            let to = self.string(text);
            numbers.strings.set(id.get(), to.get());
        }
        for d in &of.host_offsets {
            self.definitions.add(Definition::HostOffset(*d));
        }
        self.add_event_types(of, numbers);
    }

    /// Adds a process as the next one. `own`: its definitions; `of`: those of the file that it is in; `first_rank`: the
    /// first rank of its world.
    pub(crate) fn add_process(
        &mut self,
        own: &Definitions,
        of: &Definitions,
        rank: Rank,
        first_rank: u32,
        numbers: &mut Numbers,
    ) -> ProcessId {
        let process = ProcessId::new(self.processes);
        self.processes += 1;
        if let Some(d) = own.processes.values().next() {
            let d = Process {
                id: process,
                run: self.string(of.string(d.run)),
                host: self.string(of.string(d.host)),
                command: self.string(of.string(d.command)),
                ..d.clone()
            };
            self.definitions.add(Definition::Process(d));
        }
        self.definitions
            .add(Definition::Rank(Rank { process, ..rank }));
        let world = own.worlds.values().next();
        if world.is_some() || first_rank != 0 {
            let name = world.map_or("", |world| of.string(world.name));
            let d = World {
                process,
                name: self.string(name),
                first_rank,
            };
            self.definitions.add(Definition::World(d));
        }
        for d in &own.properties {
            let d = Property {
                process,
                key: self.string(of.string(d.key)),
                value: self.string(of.string(d.value)),
            };
            self.definitions.add(Definition::Property(d));
        }
        for (id, d) in &own.clocks {
            let to = ClockId::new(self.definitions.clocks.len() as u32);
            numbers.clocks.insert(*id, to);
            let d = Clock {
                id: to,
                process,
                name: self.string(of.string(d.name)),
                ..d.clone()
            };
            self.definitions.add(Definition::Clock(d));
        }
        for d in &own.calibration {
            if let Some(clock) = numbers.clocks.get(&d.clock) {
                let d = annals_format::CalibrationPoint {
                    clock: *clock,
                    ..*d
                };
                self.definitions.add(Definition::Calibration(d));
            }
        }
        self.add_places(own, of, process, numbers);
        self.add_regions(own, of, process, numbers);
        self.add_objects(own, of, process, numbers);
        self.add_foreign(own, of, process, numbers);
        process
    }

    fn add_foreign(
        &mut self,
        own: &Definitions,
        of: &Definitions,
        process: ProcessId,
        numbers: &Numbers,
    ) {
        for d in own.foreign.values() {
            let id = numbers
                .references(d.of)
                .map_or(d.id.into(), |table| table.get(d.id.into()));
            if id == LOST_REFERENCE {
                continue;
            }
            let d = ForeignRecord {
                process,
                format: self.string(of.string(d.format)),
                id: id as u32,
                ..d.clone()
            };
            self.definitions.add(Definition::Foreign(d));
        }
    }

    fn add_places(
        &mut self,
        own: &Definitions,
        of: &Definitions,
        process: ProcessId,
        numbers: &mut Numbers,
    ) {
        let mut sources = BTreeMap::new();
        for (id, d) in &own.sources {
            let to = SourceId::new(self.definitions.sources.len() as u32);
            sources.insert(*id, to);
            numbers.sources.set(id.get(), to.get());
            let d = Source {
                id: to,
                process,
                name: self.string(of.string(d.name)),
                description: self.string(of.string(d.description)),
                ordering: d.ordering,
                clock: numbers.clocks.get(&d.clock).copied().unwrap_or(LOST_CLOCK),
            };
            self.definitions.add(Definition::Source(d));
        }
        for (id, d) in &own.locations {
            let to = LocationId::new(self.definitions.locations.len() as u32);
            numbers.locations.set(id.get(), to.get());
            let d = Location {
                id: to,
                process,
                name: self.string(of.string(d.name)),
                ..d.clone()
            };
            self.definitions.add(Definition::Location(d));
        }
        let mut lost = 0;
        for (id, d) in &own.streams {
            lost += usize::from(d.source == LOST_SOURCE);
            let known = match d.source {
                LOST_SOURCE if lost <= MOST_LOST_SOURCES + 1 => None,
                _ => sources.get(&d.source).copied(),
            };
            let source = known.unwrap_or_else(|| {
                let name = match d.source {
                    LOST_SOURCE if lost > MOST_LOST_SOURCES => "source-of-other-streams".into(),
                    LOST_SOURCE => format!("source-of-stream-{}", id.get()),
                    source => format!("source-{}", source.get()),
                };
                let source = self.add_lost_source(process, &name);
                sources.insert(d.source, source);
                source
            });
            let to = StreamId::new(self.definitions.streams.len() as u32);
            numbers.streams.insert(*id, to);
            numbers.stream_table.set(id.get(), to.get());
            let location = d
                .location
                .map(|location| numbers.locations.get(location.get().into()) as u32);
            let d = Stream {
                id: to,
                source,
                location: location.map(LocationId::new),
            };
            self.definitions.add(Definition::Stream(d));
        }
    }

    /// Defines a source in the place of one whose definition is lost.
    fn add_lost_source(&mut self, process: ProcessId, name: &str) -> SourceId {
        let id = SourceId::new(self.definitions.sources.len() as u32);
        let source = Source {
            id,
            process,
            name: self.string(name),
            description: self.string("its definition is lost"),
            ordering: SourceOrder::Unordered,
            clock: LOST_CLOCK,
        };
        self.definitions.add(Definition::Source(source));
        id
    }

    fn add_event_types(&mut self, of: &Definitions, numbers: &mut Numbers) {
        for (id, d) in &of.event_types {
            let elements = d.elements.iter().map(|element| Element {
                name: self.string(of.string(element.name)),
                unit: self.string(of.string(element.unit)),
                ..element.clone()
            });
            let elements = elements.collect();
            // Compared without its number: that is what is sought.
            let mut key = EventType {
                id: EventTypeId::new(0),
                name: self.string(of.string(d.name)),
                description: self.string(of.string(d.description)),
                elements,
                ..d.clone()
            };
            let next = EventTypeId::new(self.definitions.event_types.len() as u32);
            let to = *self.event_types.entry(key.clone()).or_insert(next);
            if to == next {
                key.id = to;
                self.definitions.add(Definition::EventType(key));
            }
            numbers.event_types.insert(*id, to);
            numbers.event_type_references.set(id.get(), to.get());
        }
    }

    fn add_regions(
        &mut self,
        own: &Definitions,
        of: &Definitions,
        process: ProcessId,
        numbers: &mut Numbers,
    ) {
        let modules = self.add_modules(own, of, process);
        let mut regions = self.add_call_paths(own, of, numbers);
        for (id, d) in &own.regions {
            let symbol = of.symbols.get(id);
            let (name, file, line) = match symbol {
                Some(symbol) => (symbol.name, symbol.file, symbol.line),
                None => (d.name, d.file, d.line),
            };
            let function = of.functions.get(id);
            let module = function.and_then(|function| of.modules.get(&function.module));
            let is_unnamed = symbol.is_none() && !has_name_of_symbol(of, function, d);
            let build = module.filter(|_| is_unnamed);
            let build = build.map(|module| build_of(of, module));
            let build = build.or_else(|| own_identity(own, *id));
            let key = (
                self.string(of.string(name)),
                self.string(of.string(file)),
                line,
                self.string(of.string(d.group)),
                build,
            );
            let to = self.region(key);
            if let Some(function) = function
                && let Some(module) = modules.get(&function.module)
            {
                // Of several that have become one, the first stays.
                let function = Function {
                    region: to,
                    module: *module,
                    offset: function.offset,
                };
                self.definitions.add(Definition::Function(function));
            }
            numbers.regions.set(id.get(), to.get());
            regions.push(to);
        }
        regions.sort_unstable();
        regions.dedup();
        let set = RegionSet { process, regions };
        self.definitions.add(Definition::RegionSet(set));
    }

    /// Returns the region with this identity, which is defined if it is not.
    fn region(&mut self, key: RegionKey) -> RegionId {
        let next = RegionId::new(self.definitions.regions.len() as u32);
        let (name, file, line, group) = (key.0, key.1, key.2, key.3);
        let id = *self.regions.entry(key).or_insert(next);
        if id == next {
            self.definitions.add(Definition::Region(Region {
                id,
                name,
                file,
                line,
                group,
            }));
        }
        id
    }

    /// Adds the call paths of samples. An address becomes the lines that are known of it: one call for the function, and one for each that
    /// is inlined in it. Returns the regions of these calls.
    fn add_call_paths(
        &mut self,
        own: &Definitions,
        of: &Definitions,
        numbers: &mut Numbers,
    ) -> Vec<RegionId> {
        let mut regions = Vec::new();
        for (id, d) in &own.call_paths {
            let caller = d.caller.map(|caller| {
                let to = numbers.call_paths.get(caller.get().into());
                match to {
                    LOST_REFERENCE => self.call_path(None, CodePlace::Unknown),
                    to => CallPathId::new(to as u32),
                }
            });
            let mut path = caller;
            for place in self.lines_of(of, d.place) {
                if let CodePlace::Line(region, ..) = place {
                    regions.push(region);
                }
                path = Some(self.call_path(path, place));
            }
            if let Some(path) = path {
                numbers.call_paths.set(id.get(), path.get());
            }
        }
        regions
    }

    /// Returns the number of a call path, which is defined if it is not.
    fn call_path(&mut self, caller: Option<CallPathId>, place: CodePlace) -> CallPathId {
        let next = CallPathId::new(self.definitions.call_paths.len() as u32);
        let id = *self.call_paths.entry((caller, place)).or_insert(next);
        if id == next {
            let path = CallPath { id, caller, place };
            self.definitions.add(Definition::CallPath(path));
        }
        id
    }

    /// Returns the lines of a place in code, the outermost function's first. An address of which nothing is known is a region with its
    /// name.
    fn lines_of(&mut self, of: &Definitions, place: CodePlace) -> Vec<CodePlace> {
        let nothing = self.string("");
        match place {
            CodePlace::Unknown => vec![CodePlace::Unknown],
            CodePlace::Address(None, address) => {
                let name = self.string(&format!("{address:#x}"));
                let region = self.region((name, nothing, 0, nothing, None));
                vec![CodePlace::Line(region, nothing, 0)]
            }
            CodePlace::Address(Some(id), address) => {
                let module = of.modules.get(&id);
                let path = module.map_or("", |module| of.string(module.path));
                let group = self.string(Module::file_name(path));
                let Some(lines) = of.code_lines.get(&(id, address)) else {
                    let name = self.string(&Module::function_name(path, address));
                    let build = module.map(|module| build_of(of, module));
                    let region = self.region((name, nothing, 0, group, build));
                    return vec![CodePlace::Line(region, nothing, 0)];
                };
                let frames = lines.frames.iter().map(|frame| {
                    let name = self.string(of.string(frame.name));
                    let file = self.string(of.string(frame.file));
                    let region = self.region((name, file, frame.line, group, None));
                    let at_file = self.string(of.string(frame.at_file));
                    CodePlace::Line(region, at_file, frame.at_line)
                });
                frames.collect()
            }
            CodePlace::Line(id, file, line) => {
                let Some(d) = of.regions.get(&id) else {
                    return vec![CodePlace::Unknown];
                };
                let key = (
                    self.string(of.string(d.name)),
                    self.string(of.string(d.file)),
                    d.line,
                    self.string(of.string(d.group)),
                    own_identity(of, id),
                );
                let region = self.region(key);
                vec![CodePlace::Line(region, self.string(of.string(file)), line)]
            }
        }
    }

    fn add_modules(
        &mut self,
        own: &Definitions,
        of: &Definitions,
        process: ProcessId,
    ) -> BTreeMap<ModuleId, ModuleId> {
        let mut modules = BTreeMap::new();
        for (id, d) in &own.modules {
            let to = ModuleId::new(self.definitions.modules.len() as u32);
            modules.insert(*id, to);
            let d = Module {
                id: to,
                process,
                path: self.string(of.string(d.path)),
                ..d.clone()
            };
            self.definitions.add(Definition::Module(d));
        }
        modules
    }

    fn add_objects(
        &mut self,
        own: &Definitions,
        of: &Definitions,
        process: ProcessId,
        numbers: &mut Numbers,
    ) {
        let mut objects: BTreeMap<ObjectId, ObjectId> = BTreeMap::new();
        for (id, d) in &own.objects {
            let to = ObjectId::new(self.definitions.objects.len() as u32);
            objects.insert(*id, to);
            numbers.objects.set(id.get(), to.get());
            let d = Object {
                id: to,
                process,
                kind: self.string(of.string(d.kind)),
                name: self.string(of.string(d.name)),
            };
            self.definitions.add(Definition::Object(d));
        }
        for d in own.remote_members.values() {
            let Some(object) = objects.get(&d.object).copied() else {
                continue;
            };
            let d = RemoteMembers {
                process,
                object,
                made: self.string(of.string(d.made)),
                parent: d.parent.and_then(|parent| objects.get(&parent).copied()),
                ..*d
            };
            self.definitions.add(Definition::RemoteMembers(d));
        }
        for d in &own.registrations {
            let Some(event_type) = numbers.event_types.get(&d.event_type) else {
                continue;
            };
            let d = Registration {
                process,
                event_type: *event_type,
                object: d.object.and_then(|object| objects.get(&object).copied()),
            };
            self.definitions.add(Definition::Registration(d));
        }
    }
}

/// Returns what distinguishes the build of a module from others.
fn build_of(of: &Definitions, module: &Module) -> Vec<u8> {
    match module.build_id.as_slice() {
        [] => of.string(module.path).as_bytes().to_vec(),
        id => id.to_vec(),
    }
}

/// Returns an identity that distinguishes a region from others of the same name, file, line and group, if the other
/// format that it was read from distinguishes them.
fn own_identity(own: &Definitions, id: RegionId) -> Option<Vec<u8>> {
    let process = own.processes.values().next()?;
    let foreign = own
        .foreign
        .get(&(process.id, Reference::Region, id.get()))?;
    let is_alike = foreign.body.first() == Some(&1);
    is_alike.then(|| [&process.boot_id.0[..], &foreign.body].concat())
}

/// Returns whether a function of a trace has its name from a symbol. (Without one, its name is its address.)
fn has_name_of_symbol(of: &Definitions, function: Option<&Function>, region: &Region) -> bool {
    let Some(function) = function else {
        return false;
    };
    let is_of_trace = of.time_zero.is_some();
    let address = format!("+{:#x}", function.offset);
    is_of_trace && !of.string(region.name).ends_with(&address)
}

/// Returns the definitions of each process of a trace, apart from what they share. `streams`: all that the trace has.
pub(crate) fn by_process(
    of: &Definitions,
    streams: impl Iterator<Item = StreamId>,
) -> BTreeMap<ProcessId, Definitions> {
    let mut each: BTreeMap<ProcessId, Definitions> = BTreeMap::new();
    let mut give = |process: ProcessId, definition: Definition| {
        let own = each.entry(process).or_default();
        own.add(definition);
    };
    for d in of.processes.values() {
        give(d.id, Definition::Process(d.clone()));
    }
    // Definitions of processes that are not defined are left out.
    let is_known = |process: &ProcessId| of.processes.contains_key(process);
    for d in of.ranks.values().filter(|d| is_known(&d.process)) {
        give(d.process, Definition::Rank(*d));
    }
    for d in of.worlds.values().filter(|d| is_known(&d.process)) {
        give(d.process, Definition::World(*d));
    }
    for d in of.properties.iter().filter(|d| is_known(&d.process)) {
        give(d.process, Definition::Property(*d));
    }
    for d in of.clocks.values().filter(|d| is_known(&d.process)) {
        give(d.process, Definition::Clock(d.clone()));
    }
    for d in &of.calibration {
        let clock = of.clocks.get(&d.clock);
        if let Some(clock) = clock.filter(|clock| is_known(&clock.process)) {
            give(clock.process, Definition::Calibration(*d));
        }
    }
    for d in of.sources.values().filter(|d| is_known(&d.process)) {
        give(d.process, Definition::Source(d.clone()));
    }
    for d in of.locations.values().filter(|d| is_known(&d.process)) {
        give(d.process, Definition::Location(d.clone()));
    }
    let lost = streams.filter(|id| !of.streams.contains_key(id));
    let lost = lost.map(|id| Stream {
        id,
        source: LOST_SOURCE,
        location: None,
    });
    for d in of.streams.values().copied().chain(lost) {
        // The events of a trace have times: those of a stream whose source is lost are of the process of its location; if that is lost
        // too, they are kept with the first process.
        let source = of.sources.get(&d.source).map(|source| source.process);
        let location = d.location.and_then(|location| of.locations.get(&location));
        let process = source.or_else(|| Some(location?.process)).filter(is_known);
        let first = of.processes.keys().next().copied();
        if let Some(process) = process.or(first) {
            give(process, Definition::Stream(d));
        }
    }
    for d in of.modules.values().filter(|d| is_known(&d.process)) {
        give(d.process, Definition::Module(d.clone()));
    }
    for d in of.objects.values().filter(|d| is_known(&d.process)) {
        give(d.process, Definition::Object(*d));
    }
    for d in of.remote_members.values().filter(|d| is_known(&d.process)) {
        give(d.process, Definition::RemoteMembers(*d));
    }
    for d in of.registrations.iter().filter(|d| is_known(&d.process)) {
        give(d.process, Definition::Registration(*d));
    }
    for d in of.foreign.values().filter(|d| is_known(&d.process)) {
        give(d.process, Definition::Foreign(d.clone()));
    }
    let mut unclaimed: BTreeMap<RegionId, &Region> =
        of.regions.iter().map(|(i, d)| (*i, d)).collect();
    for set in of.region_sets.values().filter(|d| is_known(&d.process)) {
        for id in &set.regions {
            if let Some(d) = of.regions.get(id) {
                give(set.process, Definition::Region(d.clone()));
                unclaimed.remove(id);
            }
        }
    }
    // Call paths, which all processes of a trace share, and regions that no process claims are kept with the first.
    if let Some(first) = of.processes.keys().next() {
        for d in of.call_paths.values() {
            give(*first, Definition::CallPath(*d));
        }
        for d in unclaimed.into_values() {
            give(*first, Definition::Region(d.clone()));
        }
    }
    each
}
