//! The definitions of an archive that is written: those of archives among the inputs, numbered anew where they
//! must be, and those made of our own.

use super::inputs::{InputArchive, ParadigmLocations, UNDEFINED, bits, groups_of, renumbered};
use super::roles::{FUNCTION, role_of_mpi};
use annals_foreign::otf2::conventions::{
    FIRST_OF_MARKERS, FORMAT, OBJECTS, definition_record, number_of_undefined,
};
use annals_foreign::otf2::enums::{PARADIGM_MPI, group_type};
use annals_foreign::otf2::{
    Anchor, Datum, DefinitionKind, Endian, GlobalDefinitions, RawRecord, Record, enums,
    read_fields, records,
};
use annals_format::wire::Wire;
use annals_format::{
    BootId, CallPathId, Definitions, EventTypeId, FIRST_REMOTE, LocationId, LocationKind, ObjectId,
    ProcessId, Reference, RegionId, SourceId, SourceOrder, StreamId, StringId,
};
use annals_merger::AcrossWorlds;
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// A place for events in the archive.
#[derive(Clone, Debug)]
pub(crate) struct OutputLocation {
    pub(crate) id: u64,
    pub(super) name: String,
    /// Its location group; all bits set for a location of an archive, whose definition is written as it is.
    pub(super) group: u64,
    pub(super) location_type: u64,
    /// Whether it is left out: it is ours, and nothing is there.
    pub(crate) is_left_out: bool,
}

/// The group of all ranks that no archive has.
#[derive(Debug)]
pub(super) struct Ranks {
    /// Its number.
    pub(super) group: u64,
    /// How many locations of archives are before them in the group of MPI's locations.
    pub(super) first: u64,
    /// By rank, the places of the locations of its processes; none for a rank that is missing.
    pub(super) places: BTreeMap<u32, BTreeSet<usize>>,
}

/// What was defined for samples.
#[derive(Default, Debug)]
pub(super) struct Contexts {
    pub(super) by_path: FxHashMap<CallPathId, u64>,
    pub(super) places: FxHashMap<(StringId, u32), u64>,
    pub(super) unknown: Option<u64>,
    pub(super) generators: BTreeMap<ProcessId, u64>,
    /// By location, the call path of its last sample.
    pub(super) last: FxHashMap<usize, CallPathId>,
}

/// All of them.
#[derive(Debug)]
pub(crate) struct OutputDefinitions<'a> {
    pub(crate) ours: &'a Definitions,
    pub(crate) incoming: Vec<InputArchive>,
    /// Whether what an element says of a rank is not the rank in the trace, in any process.
    pub(crate) has_worlds: bool,
    across: AcrossWorlds,
    /// Which of them a process is of.
    pub(super) archive_of: BTreeMap<ProcessId, usize>,
    /// A copy of `archive_of` as a table, because it is read for every event.
    archive_by_process: Vec<Option<usize>>,
    /// Kind and number in their archive, by object.
    pub(crate) objects: Vec<Option<(DefinitionKind, u64)>>,
    strings: FxHashMap<String, u64>,
    new_strings: Vec<(u64, String)>,
    next: [u64; DefinitionKind::COUNT],
    /// By our string.
    string_of: Vec<u64>,
    pub(crate) locations: Vec<OutputLocation>,
    /// Place in `locations` by stream.
    pub(crate) place_of: Vec<usize>,
    groups: BTreeMap<ProcessId, u64>,
    pub(super) own: BTreeMap<(u8, u64), Vec<Datum>>,
    /// By our region; all bits set: not asked for yet.
    regions: Vec<u64>,
    attributes: HashMap<(String, u8), u64>,
    parameters: HashMap<String, u64>,
    pub(super) communicators: HashMap<String, u64>,
    /// Communicators by the value of an element: a reference and its number. It is read for every
    /// message.
    pub(super) communicator_of: FxHashMap<(Reference, u64), u64>,
    /// Strings that name what elements refer to, so too.
    name_of: FxHashMap<(Reference, u64), u64>,
    metrics: HashMap<String, u64>,
    pub(super) contexts: Contexts,
    pub(super) ranks: Option<Ranks>,
    /// By communicator of ours that not all ranks are in: how many are, and which of them its collectives show.
    pub(super) members: BTreeMap<u64, (u64, BTreeSet<u32>)>,
    /// By paradigm.
    pub(super) worlds: BTreeMap<u64, ParadigmLocations>,
    /// By paradigm, the group for communicators of a single process.
    selves: BTreeMap<u64, u64>,
    /// Of all archives.
    pub(crate) marker_definitions: Vec<Vec<Datum>>,
    /// The number of the next.
    pub(crate) next_marker: u64,
}

fn record(name: &str) -> &'static Record {
    let mut all = records::DEFINITIONS.iter();
    all.find(|record| record.name == name)
        .expect("the table has every definition that is made here")
}

/// The order in which definitions are written: after all definitions that they refer to.
const ORDER: [&str; 15] = [
    "SystemTreeNode",
    "LocationGroup",
    "Location",
    "Region",
    "Attribute",
    "Parameter",
    "MetricMember",
    "MetricClass",
    "Group",
    "Comm",
    "RmaWin",
    "Paradigm",
    "SourceCodeLocation",
    "CallingContext",
    "InterruptGenerator",
];

/// Returns the place of a kind in that order; kinds that are not in it are last.
pub(super) fn order_of(name: &str) -> u8 {
    let place = ORDER.iter().position(|known| *known == name);
    place.unwrap_or(ORDER.len()) as u8
}

/// Returns the place of a definition among those of several sources: after all definitions that it
/// may refer to.
fn place_of(record: &Record) -> usize {
    const ORDER: [&str; 38] = [
        "String",
        "ClockProperties",
        "Paradigm",
        "ParadigmProperty",
        "IoParadigm",
        "Attribute",
        "SystemTreeNode",
        "SystemTreeNodeProperty",
        "SystemTreeNodeDomain",
        "LocationGroup",
        "LocationGroupProperty",
        "Location",
        "LocationProperty",
        "Region",
        "Callsite",
        "Callpath",
        "MetricMember",
        "Group",
        "MetricInstance",
        "MetricClassRecorder",
        "Comm",
        "InterComm",
        "Parameter",
        "CallpathParameter",
        "RmaWin",
        "CartDimension",
        "CartTopology",
        "CartCoordinate",
        "SourceCodeLocation",
        "CallingContext",
        "CallingContextProperty",
        "InterruptGenerator",
        "IoRegularFile",
        "IoDirectory",
        "IoFileProperty",
        "IoHandle",
        "IoPreCreatedHandleState",
        "",
    ];
    let name = match record.name {
        // Those that have their numbers in common stay as they come.
        "MetricClass" => "MetricInstance",
        "InterComm" => "Comm",
        "IoDirectory" => "IoRegularFile",
        name => name,
    };
    let place = ORDER.iter().position(|known| *known == name);
    place.unwrap_or(ORDER.len())
}

impl<'a> OutputDefinitions<'a> {
    pub(crate) fn new(ours: &'a Definitions) -> Self {
        let mut outgoing = Self {
            ours,
            has_worlds: ours.worlds.values().any(|world| world.first_rank != 0)
                || !ours.remote_members.is_empty(),
            across: AcrossWorlds::of(ours),
            incoming: Vec::new(),
            archive_of: BTreeMap::new(),
            archive_by_process: Vec::new(),
            objects: vec![None; ours.objects.keys().last().map_or(0, |id| id.index() + 1)],
            strings: FxHashMap::default(),
            new_strings: Vec::new(),
            next: [0; DefinitionKind::COUNT],
            string_of: vec![u64::MAX; ours.strings.keys().last().map_or(0, |id| id.index() + 1)],
            locations: Vec::new(),
            place_of: vec![usize::MAX; ours.streams.keys().last().map_or(0, |id| id.index() + 1)],
            groups: BTreeMap::new(),
            own: BTreeMap::new(),
            regions: vec![u64::MAX; ours.regions.keys().last().map_or(0, |id| id.index() + 1)],
            attributes: HashMap::new(),
            parameters: HashMap::new(),
            communicators: HashMap::new(),
            communicator_of: FxHashMap::default(),
            name_of: FxHashMap::default(),
            metrics: HashMap::new(),
            contexts: Contexts::default(),
            ranks: None,
            members: BTreeMap::new(),
            worlds: BTreeMap::new(),
            selves: BTreeMap::new(),
            marker_definitions: Vec::new(),
            next_marker: 0,
        };
        outgoing.take_archives();
        for (process, archive) in &outgoing.archive_of {
            let by_process = &mut outgoing.archive_by_process;
            by_process.resize(by_process.len().max(process.index() + 1), None);
            by_process[process.index()] = Some(*archive);
        }
        if !outgoing.is_one_archive() {
            // By custom the first, where nothing else is.
            outgoing.string("");
        }
        outgoing.place_streams();
        outgoing
    }

    /// Returns whether everything is from one archive: times and numbers can stay as they are then.
    pub(crate) fn is_one_archive(&self) -> bool {
        self.incoming.len() == 1 && self.archive_of.len() == self.ours.processes.len()
    }

    /// Returns what the only archive says of its clock: resolution, start, length, wall clock at
    /// the start.
    pub(crate) fn clock(&self) -> Option<[u64; 4]> {
        let archive = self.incoming.first()?;
        let clock = archive.definitions.of_record("ClockProperties").next()?;
        let bits = |at: usize| clock.data.get(at).and_then(Datum::bits);
        Some([bits(0)?, bits(1)?, bits(2)?, bits(3).unwrap_or(u64::MAX)])
    }

    fn take_archives(&mut self) {
        let format = |id: StringId| self.ours.string(id) == FORMAT;
        let mut by_boot: BTreeMap<BootId, usize> = BTreeMap::new();
        let mut incoming: Vec<InputArchive> = Vec::new();
        for process in self.ours.processes.values() {
            let range = (process.id, Reference::None, 0)..=(process.id, Reference::None, u32::MAX);
            let mut found: Option<InputArchive> = None;
            for d in self.ours.foreign.range(range).map(|(_, d)| d) {
                if !format(d.format) {
                    continue;
                }
                let found = found.get_or_insert_with(|| InputArchive {
                    definitions: GlobalDefinitions::default(),
                    anchor: None,
                    maps: None,
                    regions: Vec::new(),
                    shifts: BTreeMap::new(),
                    joined: BTreeSet::new(),
                    markers: Vec::new(),
                    marker_numbers: FxHashMap::default(),
                });
                if d.id == 0 {
                    found.anchor = Anchor::decode(&d.body).ok();
                    continue;
                }
                let mut input = annals_foreign::otf2::Input::new(&d.body, Endian::Little);
                let mut start = || -> annals_format::Result<(u8, usize)> {
                    let id = input.u8("id")?;
                    input.record_length()?;
                    Ok((id, input.position()))
                };
                if let Ok((id, at)) = start() {
                    let payload = &d.body[at..];
                    if d.id >= FIRST_OF_MARKERS {
                        let data = read_fields(definition_record(), payload, Endian::Little);
                        found.markers.extend(data);
                        continue;
                    }
                    let raw = RawRecord {
                        offset: 0,
                        id,
                        payload,
                    };
                    // What was written from such a record is one.
                    let _ = found.definitions.take(raw, Endian::Little);
                }
            }
            if let Some(found) = found {
                by_boot.insert(process.boot_id, incoming.len());
                incoming.push(found);
            }
        }
        for process in self.ours.processes.values() {
            if let Some(archive) = by_boot.get(&process.boot_id) {
                self.archive_of.insert(process.id, *archive);
            }
        }
        for (number, archive) in incoming.iter_mut().enumerate() {
            self.number(archive, number == 0);
        }
        self.incoming = incoming;
        for d in self.ours.foreign.values() {
            let Some(archive) = self.archive_of.get(&d.process) else {
                continue;
            };
            let mut wire = Wire::new(&d.body);
            match d.of {
                Reference::Region => {
                    if let (Ok(_), Ok(number)) = (wire.u8("flag"), wire.varint("number")) {
                        let archive = &mut self.incoming[*archive];
                        let (at, number) =
                            (d.id as usize, archive.map(DefinitionKind::Region, number));
                        if at < self.regions.len() && archive.regions.len() <= at {
                            archive.regions.resize(self.regions.len(), UNDEFINED);
                        }
                        // Of several, the first.
                        if let Some(place) = archive.regions.get_mut(at)
                            && *place == UNDEFINED
                        {
                            *place = number;
                        }
                    }
                }
                Reference::Object => {
                    let kind = wire.u8("kind").ok();
                    let kind = kind.and_then(|code| {
                        let mut kinds = OBJECTS.into_iter();
                        kinds.find(|kind| *kind as u8 == code)
                    });
                    let number = wire.varint("number").ok();
                    let id = ObjectId::new(d.id).index();
                    if let Some(place) = self.objects.get_mut(id) {
                        *place = kind.zip(number);
                    }
                }
                _ => {}
            }
        }
    }

    /// Numbers the definitions of markers: those of the first archive keep their numbers.
    fn number_markers(&mut self, archive: &mut InputArchive, is_first: bool) {
        for mut data in std::mem::take(&mut archive.markers) {
            let known = data[0].bits().unwrap_or(0);
            let number = if is_first { known } else { self.next_marker };
            data[0] = bits(number);
            archive.marker_numbers.insert(known, number);
            self.count_marker(number);
            self.marker_definitions.push(data);
        }
    }

    /// Returns the number of a definition of markers of an archive; of one that is lost, one that nothing else has.
    pub(crate) fn marker_definition(&mut self, archive: usize, number: u64) -> u64 {
        let numbers = &mut self.incoming[archive].marker_numbers;
        if let Some(known) = numbers.get(&number) {
            return *known;
        }
        let to = if archive == 0 {
            number
        } else {
            self.next_marker
        };
        numbers.insert(number, to);
        self.count_marker(to);
        to
    }

    fn count_marker(&mut self, number: u64) {
        // At the end of the numbers there is nothing to count.
        if number + 1 < UNDEFINED {
            self.next_marker = self.next_marker.max(number + 1);
        }
    }

    /// Numbers an archive's definitions: the first archive keeps its numbers.
    fn number(&mut self, archive: &mut InputArchive, is_first: bool) {
        self.number_markers(archive, is_first);
        if is_first {
            for definition in &archive.definitions.all {
                if let Some((kind, id)) = definition.own_id().filter(|(k, id)| *id < k.undefined())
                {
                    self.next[kind as usize] = self.next[kind as usize].max(id + 1);
                }
            }
            for (id, _) in archive.definitions.of_kind(DefinitionKind::String) {
                let text = archive.definitions.string(id).into_owned();
                self.strings.entry(text).or_insert(id);
            }
            for (id, paradigm, members) in
                groups_of(&archive.definitions, group_type::COMM_LOCATIONS)
            {
                self.worlds
                    .entry(paradigm)
                    .or_insert(ParadigmLocations { id, members });
            }
            for (id, paradigm, _) in groups_of(&archive.definitions, group_type::COMM_SELF) {
                self.selves.entry(paradigm).or_insert(id);
            }
            return;
        }
        let mut maps: Vec<FxHashMap<u64, u64>> = vec![FxHashMap::default(); DefinitionKind::COUNT];
        for (id, _) in archive.definitions.of_kind(DefinitionKind::Location) {
            let to = self.new_id(DefinitionKind::Location);
            maps[DefinitionKind::Location as usize].insert(id, to);
        }
        for (id, paradigm, members) in groups_of(&archive.definitions, group_type::COMM_LOCATIONS) {
            let to = |member: &u64| maps[DefinitionKind::Location as usize].get(member).copied();
            let members: Vec<u64> = members.iter().map(|m| to(m).unwrap_or(*m)).collect();
            match self.worlds.get_mut(&paradigm) {
                // A second one of the same archive stays what it is.
                Some(_) if archive.shifts.contains_key(&paradigm) => {}
                Some(world) => {
                    archive.shifts.insert(paradigm, world.members.len() as u64);
                    archive.joined.insert(id);
                    world.members.extend(members);
                    maps[DefinitionKind::Group as usize].insert(id, world.id);
                }
                None => {
                    let to = self.new_id(DefinitionKind::Group);
                    maps[DefinitionKind::Group as usize].insert(id, to);
                    archive.shifts.insert(paradigm, 0);
                    self.worlds
                        .insert(paradigm, ParadigmLocations { id: to, members });
                }
            }
        }
        for (id, paradigm, _) in groups_of(&archive.definitions, group_type::COMM_SELF) {
            if let Some(to) = self.selves.get(&paradigm) {
                archive.joined.insert(id);
                maps[DefinitionKind::Group as usize].insert(id, *to);
            } else {
                let to = self.new_id(DefinitionKind::Group);
                self.selves.insert(paradigm, to);
                maps[DefinitionKind::Group as usize].insert(id, to);
            }
        }
        for definition in &archive.definitions.all {
            let Some((kind, id)) = definition.own_id() else {
                continue;
            };
            if maps[kind as usize].contains_key(&id) {
                continue;
            }
            let to = if kind == DefinitionKind::String {
                let text = archive.definitions.string(id).into_owned();
                self.string(&text)
            } else {
                self.new_id(kind)
            };
            maps[kind as usize].insert(id, to);
        }
        archive.maps = Some(maps);
    }

    pub(super) fn new_id(&mut self, kind: DefinitionKind) -> u64 {
        let id = self.next[kind as usize];
        self.next[kind as usize] += 1;
        id
    }

    /// Returns the number of a text.
    pub(crate) fn string(&mut self, text: &str) -> u64 {
        if let Some(id) = self.strings.get(text) {
            return *id;
        }
        let id = self.new_id(DefinitionKind::String);
        self.strings.insert(text.to_owned(), id);
        self.new_strings.push((id, text.to_owned()));
        id
    }

    /// Returns the number of one of our strings; undefined when it is lost.
    pub(crate) fn string_of(&mut self, id: u64) -> u64 {
        let Some(known) = usize::try_from(id)
            .ok()
            .and_then(|at| self.string_of.get(at))
        else {
            return UNDEFINED;
        };
        if *known != u64::MAX {
            return *known;
        }
        let text = self.ours.string(StringId::new(id as u32)).to_owned();
        let to = self.undefined_string(&text);
        let to = to.unwrap_or_else(|| self.string(&text));
        self.string_of[id as usize] = to;
        to
    }

    /// Returns the number of a string that the only archive refers to and does not define: it stays undefined.
    fn undefined_string(&mut self, text: &str) -> Option<u64> {
        let number = number_of_undefined(text)?;
        let [archive] = &self.incoming[..] else {
            return None;
        };
        if archive
            .definitions
            .find(DefinitionKind::String, number)
            .is_some()
            || self.strings.contains_key(text)
            || !self.is_one_archive()
        {
            return None;
        }
        // Nothing else gets that number.
        if number < UNDEFINED / 2 {
            let next = &mut self.next[DefinitionKind::String as usize];
            *next = (*next).max(number + 1);
        }
        Some(number)
    }

    pub(super) fn add(&mut self, name: &str, id: u64, data: Vec<Datum>) {
        self.own.insert((order_of(name), id), data);
    }

    /// Finds the location of every stream. Streams of an archive have theirs; those of ordered sources at one thread
    /// share it; all others get separate locations.
    fn place_streams(&mut self) {
        let ours = self.ours;
        let mut known: HashMap<(ProcessId, Option<u32>, Option<u32>), usize> = HashMap::new();
        for archive in 0..self.incoming.len() {
            let locations: Vec<u64> = {
                let incoming = &self.incoming[archive];
                let ids = incoming.definitions.of_kind(DefinitionKind::Location);
                ids.map(|(id, _)| incoming.map(DefinitionKind::Location, id))
                    .collect()
            };
            for id in locations {
                self.locations.push(OutputLocation {
                    id,
                    name: String::new(),
                    group: u64::MAX,
                    location_type: 0,
                    is_left_out: false,
                });
            }
        }
        let defined: HashMap<u64, usize> = self
            .locations
            .iter()
            .enumerate()
            .map(|(place, location)| (location.id, place))
            .collect();
        for (id, stream) in &ours.streams {
            let Some(source) = ours.sources.get(&stream.source) else {
                continue;
            };
            let process = source.process;
            if let Some(place) = self.place_in_archive(*id, process, &defined) {
                self.place_of[id.index()] = place;
                continue;
            }
            if self.archive_of.contains_key(&process)
                && !self.is_of_archive(process, stream.location)
            {
                // Markers: they are of no location.
                continue;
            }
            let location = stream.location.and_then(|id| ours.locations.get(&id));
            let is_thread = location.is_some_and(|location| location.kind == LocationKind::Thread)
                && source.ordering == SourceOrder::Ordered;
            let key = (
                process,
                stream.location.map(|id| id.get()),
                (!is_thread).then_some(stream.source.get()),
            );
            let name = location.map_or("unattributed", |location| ours.string(location.name));
            let name = if is_thread {
                name.to_owned()
            } else {
                format!("{} at {name}", ours.string(source.name))
            };
            let place = match known.get(&key) {
                Some(place) => *place,
                None => {
                    let group = self.group(process);
                    let is_device = location.is_some_and(|l| l.kind == LocationKind::Device);
                    let id = self.new_id(DefinitionKind::Location);
                    self.locations.push(OutputLocation {
                        id,
                        name,
                        group,
                        location_type: if is_device { 2 } else { 1 },
                        is_left_out: false,
                    });
                    known.insert(key, self.locations.len() - 1);
                    self.locations.len() - 1
                }
            };
            self.place_of[id.index()] = place;
        }
    }

    /// Returns whether a location of a process is one of its archive.
    fn is_of_archive(&self, process: ProcessId, location: Option<LocationId>) -> bool {
        location.is_some_and(|location| {
            let key = (process, Reference::Location, location.get());
            self.ours.foreign.contains_key(&key)
        })
    }

    fn place_in_archive(
        &mut self,
        stream: StreamId,
        process: ProcessId,
        defined: &HashMap<u64, usize>,
    ) -> Option<usize> {
        let location = self.ours.streams.get(&stream)?.location?;
        let archive = *self.archive_of.get(&process)?;
        let key = (process, Reference::Location, location.get());
        let mut wire = Wire::new(&self.ours.foreign.get(&key)?.body);
        let id = wire.varint("number").ok()?;
        let id = self.incoming[archive].map(DefinitionKind::Location, id);
        if let Some(place) = defined.get(&id) {
            return Some(*place);
        }
        // Its definition was lost; its number is not.
        let group = self.group(process);
        let name = self.ours.locations.get(&location);
        let name = name
            .map_or("", |location| self.ours.string(location.name))
            .to_owned();
        let taken = self.locations.iter().any(|location| location.id == id);
        let id = if taken {
            self.new_id(DefinitionKind::Location)
        } else {
            id
        };
        let next = &mut self.next[DefinitionKind::Location as usize];
        *next = (*next).max(id.saturating_add(1));
        self.locations.push(OutputLocation {
            id,
            name,
            group,
            location_type: 1,
            is_left_out: false,
        });
        Some(self.locations.len() - 1)
    }

    /// Returns the archive that a process is of.
    pub(crate) fn archive_of(&self, process: ProcessId) -> Option<usize> {
        self.archive_by_process
            .get(process.index())
            .copied()
            .flatten()
    }

    /// Returns the location group of a process of ours.
    fn group(&mut self, process: ProcessId) -> u64 {
        if let Some(id) = self.groups.get(&process) {
            return *id;
        }
        let ours = self.ours;
        let host = ours.processes.get(&process);
        let host = host.map_or("", |process| ours.string(process.host));
        let host = if host.is_empty() { "unknown" } else { host }.to_owned();
        let node = self.node(&host, "node", None);
        let id = self.new_id(DefinitionKind::LocationGroup);
        let rank = ours.ranks.get(&process).map_or(0, |rank| rank.rank);
        let name = self.string(&format!("rank {rank}"));
        let data = [id, name, 1, node, UNDEFINED].map(bits).to_vec();
        self.add("LocationGroup", id, data);
        self.groups.insert(process, id);
        id
    }

    pub(super) fn node(&mut self, name: &str, class: &str, parent: Option<u64>) -> u64 {
        let parent = match (class, parent) {
            ("node", None) => self.node("machine", "machine", None),
            (_, parent) => parent.unwrap_or(UNDEFINED),
        };
        let (name, class) = (self.string(name), self.string(class));
        let own = self.own.range((0, 0)..(1, 0));
        let same = |data: &&Vec<Datum>| data[1..] == [bits(name), bits(class), bits(parent)];
        if let Some(data) = own.map(|(_, data)| data).find(same) {
            return data[0].bits().unwrap_or(UNDEFINED);
        }
        let id = self.new_id(DefinitionKind::SystemTreeNode);
        self.add(
            "SystemTreeNode",
            id,
            [id, name, class, parent].map(bits).to_vec(),
        );
        id
    }

    pub(super) fn new_region(&mut self, name: &str, file: &str, line: u32, paradigm: u64) -> u64 {
        let role = match paradigm {
            PARADIGM_MPI => role_of_mpi(name),
            _ => FUNCTION,
        };
        let id = self.new_id(DefinitionKind::Region);
        let (name, file, empty) = (self.string(name), self.string(file), self.string(""));
        let file = if file == empty { UNDEFINED } else { file };
        let line = u64::from(line);
        let data = [
            id, name, empty, 0, file, line, line, name, role, paradigm, 0,
        ];
        self.add("Region", id, data.map(bits).to_vec());
        id
    }

    /// Returns the region for one of ours.
    #[inline]
    pub(crate) fn region(&mut self, region: u64) -> u64 {
        let known = usize::try_from(region).ok();
        match known.and_then(|at| self.regions.get(at)) {
            Some(id) if *id != u64::MAX => *id,
            _ => self.region_defined(region),
        }
    }

    fn region_defined(&mut self, region: u64) -> u64 {
        let Ok(number) = u32::try_from(region) else {
            return UNDEFINED;
        };
        let number = RegionId::new(number);
        let Some(d) = self.ours.regions.get(&number) else {
            return UNDEFINED;
        };
        let group = self.ours.string(d.group);
        let group = group.split('.').next().unwrap_or_default().to_uppercase();
        let mut paradigms = enums::PARADIGM.values.iter();
        let paradigm = paradigms
            .find(|(_, name)| *name == group)
            .map_or(1, |(code, _)| *code);
        let name = self.ours.region_name(number);
        let file = self.ours.string(d.file).to_owned();
        let id = self.new_region(&name, &file, d.line, paradigm);
        self.regions[number.index()] = id;
        id
    }

    pub(crate) fn attribute(&mut self, name: &str, type_code: u8) -> u64 {
        let key = (name.to_owned(), type_code);
        if let Some(id) = self.attributes.get(&key) {
            return *id;
        }
        let id = self.new_id(DefinitionKind::Attribute);
        let (name, empty) = (self.string(name), self.string(""));
        let data = [id, name, type_code.into(), empty].map(bits).to_vec();
        self.add("Attribute", id, data);
        self.attributes.insert(key, id);
        id
    }

    /// Returns a parameter that takes strings.
    pub(crate) fn parameter(&mut self, name: &str) -> u64 {
        if let Some(id) = self.parameters.get(name) {
            return *id;
        }
        let id = self.new_id(DefinitionKind::Parameter);
        let text = self.string(name);
        self.add("Parameter", id, [id, text, 0].map(bits).to_vec());
        self.parameters.insert(name.to_owned(), id);
        id
    }

    /// Returns a metric with one member.
    pub(crate) fn metric(&mut self, name: &str, unit: &str, type_code: u8) -> u64 {
        let key = format!("{name}\0{unit}\0{type_code}");
        if let Some(id) = self.metrics.get(&key) {
            return *id;
        }
        let member = self.new_id(DefinitionKind::MetricMember);
        let (text, unit, empty) = (self.string(name), self.string(unit), self.string(""));
        // Of the user, an absolute value at a point, in powers of ten.
        let data = [member, text, empty, 3, 17, type_code.into(), 1, 0, unit];
        self.add("MetricMember", member, data.map(bits).to_vec());
        let id = self.new_id(DefinitionKind::Metric);
        let data = vec![bits(id), Datum::Numbers(vec![member]), bits(2), bits(0)];
        self.add("MetricClass", id, data);
        self.metrics.insert(key, id);
        id
    }

    /// Returns the rank in the run that a rank in an event of a process means: `first_rank` is that of the process's world.
    pub(crate) fn rank_in_run(
        &self,
        process: ProcessId,
        first_rank: u32,
        rank: u32,
    ) -> Option<u32> {
        if rank < FIRST_REMOTE {
            return rank.checked_add(first_rank);
        }
        let remote = ProcessId::new(self.across.process(process.get(), rank));
        Some(self.ours.ranks.get(&remote)?.rank)
    }

    /// Returns the string that names what an element refers to.
    pub(crate) fn name_of(&mut self, reference: Reference, value: u64) -> u64 {
        if let Some(id) = self.name_of.get(&(reference, value)) {
            return *id;
        }
        let ours = self.ours;
        let number = u32::try_from(value).unwrap_or(u32::MAX);
        let string = match reference {
            Reference::Object => ours.objects.get(&ObjectId::new(number)).map(|d| d.name),
            Reference::Location => ours.locations.get(&LocationId::new(number)).map(|d| d.name),
            Reference::Source => ours.sources.get(&SourceId::new(number)).map(|d| d.name),
            _ => None,
        };
        let name = match string {
            Some(string) => ours.string(string).to_owned(),
            None if reference == Reference::EventType => {
                ours.event_type_name(EventTypeId::new(number))
            }
            None => format!("{} {value}", reference.name()),
        };
        let id = self.string(&name);
        self.name_of.insert((reference, value), id);
        id
    }

    /// Defines MPI as a paradigm if definitions of ours are of it, and no archive has.
    fn define_mpi(&mut self) {
        let is_defined = self.incoming.iter().any(|archive| {
            let mut paradigms = archive.definitions.of_record("Paradigm");
            paradigms.any(|paradigm| paradigm.bits("paradigm") == Some(PARADIGM_MPI))
        });
        let is_of_mpi = |((order, _), data): (&(u8, u64), &Vec<Datum>)| {
            let record = record(ORDER[usize::from(*order)]);
            let at = record.place("paradigm");
            at.is_some_and(|at| data[at] == bits(PARADIGM_MPI))
        };
        if !is_defined && self.own.iter().any(is_of_mpi) {
            let name = self.string("MPI");
            // Its members are processes.
            let data = [PARADIGM_MPI, name, 0].map(bits).to_vec();
            self.add("Paradigm", PARADIGM_MPI, data);
        }
    }

    /// Returns all definitions, in the order in which they are to be written. `counts`: events by place of the
    /// location.
    pub(crate) fn finish(
        &mut self,
        clock: [u64; 4],
        counts: &[u64],
    ) -> Vec<(&'static Record, Vec<Datum>)> {
        for place in 0..self.locations.len() {
            let location = self.locations[place].clone();
            if location.group == u64::MAX || location.is_left_out {
                continue;
            }
            let name = self.string(&location.name);
            let count = counts.get(place).copied().unwrap_or(0);
            let data = [
                location.id,
                name,
                location.location_type,
                count,
                location.group,
            ];
            self.add("Location", location.id, data.map(bits).to_vec());
        }
        let count_of: HashMap<u64, u64> = self
            .locations
            .iter()
            .zip(counts)
            .map(|(location, count)| (location.id, *count))
            .collect();
        self.define_mpi();
        let string = record("String");
        let mut strings: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
        let mut others = vec![(record("ClockProperties"), clock.map(bits).to_vec())];
        let mut paradigms: BTreeSet<(u64, Option<u64>)> = BTreeSet::new();
        for archive in &self.incoming {
            for definition in &archive.definitions.all {
                let own_id = definition.own_id();
                match definition.record.name {
                    "Group" if own_id.is_some_and(|(_, id)| archive.joined.contains(&id)) => {}
                    "Paradigm" | "ParadigmProperty" => {
                        let paradigm = definition.bits("paradigm").unwrap_or(0);
                        if paradigms.insert((paradigm, definition.bits("property"))) {
                            let data = renumbered(archive, definition, &count_of);
                            others.push((definition.record, data));
                        }
                    }
                    "String" => {
                        let id = definition.data[0].bits().unwrap_or(0);
                        let id = archive.map(DefinitionKind::String, id);
                        let text = definition.data[1].text();
                        strings.entry(id).or_insert_with(|| text.to_vec());
                    }
                    // One for all.
                    "ClockProperties" => {}
                    _ => {
                        let data = renumbered(archive, definition, &count_of);
                        others.push((definition.record, data));
                    }
                }
            }
        }
        for (id, text) in &self.new_strings {
            strings.insert(*id, text.clone().into_bytes());
        }
        for world in self.worlds.values() {
            let group = record("Group");
            let at = group.place("number_of_members").unwrap_or(0);
            let of_archives = others.iter_mut().filter(|(kind, _)| kind.name == "Group");
            let of_archives = of_archives.map(|(_, data)| data);
            let ours = self
                .own
                .iter_mut()
                .filter(|((order, _), _)| *order == order_of("Group"));
            let all = of_archives.chain(ours.map(|(_, data)| data));
            // Others may have the number as well, against the rules.
            let kind = group.place("group_type").unwrap_or(0);
            let is_world = |data: &&mut Vec<Datum>| {
                data[0] == bits(world.id) && data[kind] == bits(group_type::COMM_LOCATIONS)
            };
            for data in all.filter(is_world) {
                data[at] = Datum::Numbers(world.members.clone());
            }
        }
        let strings = strings.into_iter().map(|(id, text)| {
            let text = Datum::Text(text);
            (string, vec![bits(id), text])
        });
        let mut all: Vec<_> = strings.collect();
        all.extend(others);
        for ((order, _), data) in &self.own {
            all.push((record(ORDER[usize::from(*order)]), data.clone()));
        }
        if !self.is_one_archive() {
            // With several sources, definitions must follow those that they refer to, of any
            // source.
            all.sort_by_key(|(record, _)| place_of(record));
        }
        all
    }
}
