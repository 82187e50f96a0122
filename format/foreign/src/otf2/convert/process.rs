//! The processes of an archive: each becomes a recording.

use super::archive::Archive;
use super::file::LocationFile;
use super::numbering::Strings;
use super::scan::FilePart;
use super::world::World;
use crate::otf2::conventions::{
    FIRST_OF_MARKERS, FORMAT, OBJECTS, UNKNOWN_CALLER, is_start_unset, text_of_undefined,
};
use crate::otf2::{Anchor, DefinitionKind, GlobalDefinition, GlobalDefinitions, enums};
use annals_format::names::property;
use annals_format::wire::Put;
use annals_format::{
    ANY_EVENT_TYPE, CalibrationPoint, CallPath, CallPathId, Cause, ChunkHeader, Clock, ClockId,
    ClockKind, CodePlace, Cumulative, Definition, Definitions, Ended, EventTypeId, ForeignRecord,
    Location, LocationId, LocationKind, Object, ObjectId, Problem, Process, ProcessEnd, ProcessId,
    Property, Rank, RecordingId, Reference, Region, RegionId, Source, SourceId, SourceOrder,
    Stream, StreamId, StreamTotals, StringId,
};
use std::collections::{BTreeMap, BTreeSet};

/// The process of a recording, its clock, and the source of its events.
const PROCESS: ProcessId = ProcessId::new(0);
const CLOCK: ClockId = ClockId::new(0);
const SOURCE: SourceId = SourceId::new(0);

/// How an archive's clock becomes nanoseconds.
pub(super) struct TimeBase {
    pub(super) resolution: u64,
    pub(super) offset: u64,
    pub(super) length: u64,
    pub(super) unix_ns: Option<i64>,
}

impl TimeBase {
    pub(super) fn of(
        anchor: &Anchor,
        definitions: &GlobalDefinitions,
        scanned: &[LocationFile],
    ) -> Self {
        let clock = definitions.of_record("ClockProperties").next();
        let bits = |name| clock.and_then(|clock: &GlobalDefinition| clock.bits(name));
        let resolution = bits("timer_resolution").filter(|resolution| *resolution != 0);
        let parts = scanned.iter().flat_map(|location| &location.scanned.parts);
        let least = parts.clone().map(|part| part.least).min();
        let most = parts.map(|part| part.most).max();
        let unix = bits("realtime_timestamp").filter(|unix| *unix != u64::MAX);
        let resolution = resolution.unwrap_or(1_000_000_000);
        let stated = bits("global_offset").or(least).unwrap_or(0);
        // A start that is decades before or after the first event is invalid, and times since it would overflow.
        let is_far = |least: &u64| {
            let apart_ns =
                u128::from(least.abs_diff(stated)) * 1_000_000_000 / u128::from(resolution);
            apart_ns >= 1 << 60
        };
        let length = bits("trace_length").unwrap_or(0);
        let is_unset =
            |least: &u64| stated == 0 && is_start_unset(anchor, length, *least, most.unwrap_or(0));
        let start = least.filter(|least| is_far(least) || is_unset(least));
        let offset = start.unwrap_or(stated);
        Self {
            resolution,
            offset,
            length: stated.saturating_add(length).saturating_sub(offset),
            unix_ns: unix.and_then(|unix| i64::try_from(unix).ok()),
        }
    }

    fn end_ns(&self) -> Option<i64> {
        let ns = u128::from(self.length) * 1_000_000_000 / u128::from(self.resolution);
        // Longer than years is not a length but a mistake.
        i64::try_from(ns).ok().filter(|ns| *ns < 1 << 58)
    }
}

/// A process under construction: one location group, with those that it has created.
#[derive(Default)]
pub(super) struct Group {
    /// Numbers of its locations.
    pub(super) locations: Vec<usize>,
    pub(super) rank: Option<u64>,
}

/// Returns the processes of an archive by the location group that each corresponds to: accelerators belong to the
/// process that created them.
pub(super) fn groups_of(
    definitions: &GlobalDefinitions,
    world: &World,
    locations: &mut [LocationFile],
) -> BTreeMap<u64, Group> {
    let owner = |mut group: u64| {
        // As deep as definitions can go without going round.
        for _ in 0..8 {
            let definition = definitions.find(DefinitionKind::LocationGroup, group);
            let creator = definition.and_then(|d| d.bits("creating_location_group"));
            let creator = creator.filter(|id| {
                definitions
                    .find(DefinitionKind::LocationGroup, *id)
                    .is_some()
            });
            match creator {
                Some(creator) if creator != group => group = creator,
                _ => break,
            }
        }
        group
    };
    let group_of = |location: u64| {
        let definition = definitions.find(DefinitionKind::Location, location);
        let group = definition.and_then(|d| d.bits("location_group"));
        owner(group.unwrap_or(DefinitionKind::LocationGroup.undefined()))
    };
    let mut groups: BTreeMap<u64, Group> = BTreeMap::new();
    for (id, _) in definitions.of_kind(DefinitionKind::LocationGroup) {
        groups.entry(owner(id)).or_default();
    }
    for (number, location) in locations.iter().enumerate() {
        let group = groups.entry(group_of(location.id)).or_default();
        group.locations.push(number);
    }
    for (rank, location) in world.locations.iter().enumerate() {
        if let Some(group) = groups.get_mut(&group_of(*location)) {
            group.rank.get_or_insert(rank as u64);
        }
    }
    if groups.is_empty() {
        groups.insert(0, Group::default());
    }
    for group in groups.values() {
        for location in &group.locations {
            locations[*location].rank = group.rank;
        }
    }
    groups
}

/// The recording that a process becomes.
pub(super) struct PlannedProcess {
    pub(super) recording_id: RecordingId,
    pub(super) definitions: Definitions,
    pub(super) streams: Vec<PlannedStream>,
    pub(super) problems: Vec<Problem>,
    /// Bytes of its files.
    pub(super) bytes: u64,
}

/// A stream of a process: the heads of its chunks, by part of its file, and its totals.
pub(super) struct PlannedStream {
    pub(super) heads: Vec<ChunkHeader>,
    pub(super) totals: StreamTotals,
}

/// Plans the recordings of an archive's processes.
pub(super) struct Maker<'a> {
    pub(super) archive: &'a Archive,
    pub(super) strings: Strings,
    pub(super) identity: u128,
    pub(super) time: TimeBase,
    pub(super) is_first: bool,
    /// Of the whole archive: the first process has them.
    pub(super) problems: Vec<Problem>,
    /// Regions that share name, file, line and group with others.
    pub(super) alike: BTreeSet<u64>,
    /// Objects of the process that is being made.
    pub(super) taken_objects: BTreeSet<u32>,
}

/// Returns the group of a region: its paradigm, and after a point which construct of threads it is, if it is one.
fn group(region: &GlobalDefinition) -> String {
    let paradigm = region.bits("paradigm");
    let paradigm = paradigm.and_then(|code| enums::PARADIGM.name_of(code));
    let Some(paradigm) = paradigm.filter(|name| *name != "UNKNOWN") else {
        return String::new();
    };
    let paradigm = paradigm.to_lowercase();
    let role = region.bits("role");
    let role = role.and_then(|code| enums::REGION_ROLE.name_of(code));
    match role.and_then(construct) {
        Some(construct) => format!("{paradigm}.{construct}"),
        None => paradigm,
    }
}

/// Returns the word for a construct of threads in the group of its regions, by their role. `None` for other roles.
fn construct(role: &str) -> Option<&'static str> {
    Some(match role {
        "PARALLEL" => "parallel",
        "LOOP" | "SECTIONS" | "WORKSHARE" | "SINGLE" => "work-sharing",
        "BARRIER" | "IMPLICIT_BARRIER" => "barrier",
        "TASK" | "TASK_UNTIED" => "task",
        "TASK_WAIT" => "task-wait",
        "CRITICAL" | "ORDERED" | "ATOMIC" => "lock",
        _ => return None,
    })
}

/// Regions of an archive that have name, file, line and group in common with another.
pub(super) fn alike(definitions: &GlobalDefinitions) -> BTreeSet<u64> {
    let mut by_key: BTreeMap<_, Vec<u64>> = BTreeMap::new();
    for (id, region) in definitions.of_kind(DefinitionKind::Region) {
        let text = |name| definitions.string(region.bits(name).unwrap_or(u64::MAX));
        let line = region.bits("begin_line_number");
        let key = (text("name"), text("source_file"), line, group(region));
        by_key.entry(key).or_default().push(id);
    }
    let several = by_key.into_values().filter(|ids| ids.len() > 1);
    several.flatten().collect()
}

/// The definitions of a process under construction: strings are added when something refers to them.
struct ProcessDefinitions {
    definitions: Definitions,
}

impl<'a> Maker<'a> {
    fn string(&mut self, own: &mut ProcessDefinitions, text: &str) -> StringId {
        let id = self.strings.intern(text);
        own.definitions
            .strings
            .entry(id)
            .or_insert_with(|| text.to_owned());
        id
    }

    fn event_types(&self, own: &mut ProcessDefinitions) {
        for definition in self.archive.event_types.definitions() {
            if let Definition::EventType(event_type) = &definition {
                let elements = event_type.elements.iter();
                let strings = elements.flat_map(|element| [element.name, element.unit]);
                for id in strings.chain([event_type.name, event_type.description]) {
                    let text = self.strings.text(id).unwrap_or_default();
                    own.definitions.add(Definition::String(id, text.to_owned()));
                }
            }
            own.definitions.add(definition);
        }
    }

    /// Plans the recording of a process.
    pub(super) fn process(&mut self, group: u64, of_group: &Group) -> PlannedProcess {
        let mut own = ProcessDefinitions {
            definitions: Definitions::default(),
        };
        let recording_id = self.recording_id(group);
        self.define_process(&mut own, recording_id, group, of_group.rank);
        self.properties(&mut own, group);
        self.define_clock(&mut own);
        self.define_source(&mut own);
        self.event_types(&mut own);
        self.referred(&mut own, group, of_group);
        let mut problems = Vec::new();
        if self.is_first {
            problems.append(&mut self.problems);
        }
        let (streams, files) = self.define_streams(&mut own, of_group);
        let mut bytes = 0;
        let mut is_cut = false;
        for file in files {
            problems.extend(file.scanned.problems.iter().cloned());
            bytes += file.scanned.bytes;
            let mut lost = file.scanned.lost.iter();
            is_cut |= lost.any(|lost| lost.cause == Cause::Truncated);
        }
        self.foreign(&mut own, of_group);
        own.definitions.add(Definition::ProcessEnd(ProcessEnd {
            process: PROCESS,
            ended: match is_cut {
                true => Ended::Truncated,
                false => Ended::Finished,
            },
            start_ns: 0,
            end_ns: self.time.end_ns().unwrap_or(0),
            end_error_ns: 0,
        }));
        self.is_first = false;
        PlannedProcess {
            recording_id,
            definitions: own.definitions,
            streams,
            problems,
            bytes,
        }
    }

    /// Returns the identity of a process: that of the archive, and the location group that the process is.
    fn recording_id(&self, group: u64) -> RecordingId {
        let archive = (self.identity >> 64) as u64 ^ self.identity as u64;
        let mut id = [0; 16];
        id[..8].copy_from_slice(&archive.to_be_bytes());
        id[8..].copy_from_slice(&group.to_be_bytes());
        RecordingId(id)
    }

    /// Returns the name of the archive's file without its ending.
    fn stem(&self) -> String {
        let stem = self.archive.path.file_stem().unwrap_or_default();
        stem.to_string_lossy().into_owned()
    }

    /// Defines the process, and its rank if it has one.
    fn define_process(
        &mut self,
        own: &mut ProcessDefinitions,
        recording_id: RecordingId,
        group: u64,
        rank: Option<u64>,
    ) {
        let archive = self.archive;
        let trace_id = archive.anchor.trace_id.unwrap_or(self.identity as u64);
        let run = format!("{} {trace_id:016x}", self.stem());
        let host = host_of(&archive.definitions, group);
        let d = Process {
            id: PROCESS,
            recording_id,
            run: self.string(own, &run),
            host: self.string(own, &host),
            boot_id: annals_format::BootId(self.identity.to_be_bytes()),
            pid: 0,
            start_unix_ns: self.time.unix_ns.unwrap_or(0),
            start_reference_ns: 0,
            command: self.string(own, ""),
        };
        own.definitions.add(Definition::Process(d));
        if let Some(rank) = rank.and_then(|rank| u32::try_from(rank).ok()) {
            own.definitions.add(Definition::Rank(Rank {
                process: PROCESS,
                rank,
                rank_count: u32::try_from(archive.world.locations.len()).ok(),
                is_assigned: false,
            }));
        }
    }

    /// Defines the archive's clock, which all its processes have in common.
    fn define_clock(&mut self, own: &mut ProcessDefinitions) {
        let d = Clock {
            id: CLOCK,
            process: PROCESS,
            name: self.string(own, "OTF2"),
            kind: ClockKind::Tsc,
            ticks_per_second: self.time.resolution,
            rate_error_ppb: 0,
            max_ticks: u64::MAX,
        };
        own.definitions.add(Definition::Clock(d));
        let d = CalibrationPoint {
            clock: CLOCK,
            tick: self.time.offset,
            reference_ns: 0,
            error_ns: 0,
            unix_offset_ns: self.time.unix_ns.unwrap_or(0),
        };
        own.definitions.add(Definition::Calibration(d));
    }

    /// Defines the source of the process's events.
    fn define_source(&mut self, own: &mut ProcessDefinitions) {
        let name = self.stem();
        let d = Source {
            id: SOURCE,
            process: PROCESS,
            name: self.string(own, &name),
            description: self.string(own, "an OTF2 archive"),
            ordering: SourceOrder::Ordered,
            clock: CLOCK,
        };
        own.definitions.add(Definition::Source(d));
    }

    /// Defines a location and a stream for each location of the process, and for markers in the archive's first one.
    /// Returns the streams and the files that they are in.
    fn define_streams(
        &mut self,
        own: &mut ProcessDefinitions,
        of_group: &Group,
    ) -> (Vec<PlannedStream>, Vec<&'a LocationFile>) {
        let archive = self.archive;
        let mut streams = Vec::new();
        let mut files = Vec::new();
        for number in &of_group.locations {
            let location = &archive.locations[*number];
            let id = LocationId::new(*number as u32);
            let d = Location {
                id,
                process: PROCESS,
                name: self.location_name(own, location.id),
                kind: kind_of(&archive.definitions, location.id),
                system_id: 0,
            };
            own.definitions.add(Definition::Location(d));
            let stream = StreamId::new(*number as u32);
            own.definitions.add(Definition::Stream(Stream {
                id: stream,
                source: SOURCE,
                location: Some(id),
            }));
            streams.push(self.planned(stream, location));
            files.push(location);
        }
        if let Some(markers) = archive.markers.as_ref().filter(|_| self.is_first) {
            let stream = self.markers(own);
            streams.push(self.planned(stream, &markers.file));
            files.push(&markers.file);
        }
        (streams, files)
    }

    /// Returns the source, the location and the stream of the archive's markers: tools add them in any order.
    fn markers(&mut self, own: &mut ProcessDefinitions) -> StreamId {
        let (process, clock) = (PROCESS, CLOCK);
        let number = self.archive.locations.len() as u32;
        let (source, location) = (SourceId::new(1), LocationId::new(number));
        let stream = StreamId::new(number);
        let name = self.string(own, "markers");
        let description = self.string(own, "the markers of an OTF2 archive");
        own.definitions.add(Definition::Source(Source {
            id: source,
            process,
            name,
            description,
            ordering: SourceOrder::Unordered,
            clock,
        }));
        own.definitions.add(Definition::Location(Location {
            id: location,
            process,
            name,
            kind: LocationKind::Device,
            system_id: 0,
        }));
        own.definitions.add(Definition::Stream(Stream {
            id: stream,
            source,
            location: Some(location),
        }));
        stream
    }

    fn location_name(&mut self, own: &mut ProcessDefinitions, id: u64) -> StringId {
        let name = self.archive.definitions.name(DefinitionKind::Location, id);
        let name = if name.is_empty() {
            format!("location {id}")
        } else {
            name
        };
        self.string(own, &name)
    }

    /// Adds the information that a writer of archives needs and that our definitions cannot
    /// express.
    fn foreign(&mut self, own: &mut ProcessDefinitions, of_group: &Group) {
        let archive = self.archive;
        let format = self.string(own, FORMAT);
        let mut add = |of: Reference, id: u32, body: Vec<u8>| {
            own.definitions.foreign.insert(
                (PROCESS, of, id),
                ForeignRecord {
                    process: PROCESS,
                    format,
                    of,
                    id,
                    body,
                },
            );
        };
        if self.is_first {
            let mut anchor = Vec::new();
            archive.anchor.encode(&mut anchor);
            add(Reference::None, 0, anchor);
            for (number, definition) in (1..).zip(&archive.definitions.all) {
                add(Reference::None, number, definition.encode());
            }
            let of_markers = archive.markers.iter();
            let of_markers = of_markers.flat_map(|markers| markers.definitions.values());
            for (number, definition) in (FIRST_OF_MARKERS..).zip(of_markers) {
                add(Reference::None, number, definition.record.clone());
            }
        }
        let regions: Vec<RegionId> = own.definitions.regions.keys().copied().collect();
        let numbering = archive.numberings.of_kind(DefinitionKind::Region);
        for id in regions {
            let Some(number) = numbering.id(id.get()) else {
                continue;
            };
            let mut body = vec![u8::from(self.alike.contains(&number))];
            body.put_varint(number);
            add(Reference::Region, id.get(), body);
        }
        for number in &of_group.locations {
            let mut body = Vec::new();
            body.put_varint(archive.locations[*number].id);
            add(Reference::Location, *number as u32, body);
        }
        for kind in OBJECTS {
            let numbering = archive.numberings.of_kind(kind);
            for (number, id) in (numbering.base..).zip(&numbering.ids) {
                if !self.taken_objects.contains(&number) {
                    continue;
                }
                let mut body = vec![kind as u8];
                body.put_varint(*id);
                add(Reference::Object, number, body);
            }
        }
        for plan in &archive.event_types.plans {
            add(Reference::EventType, plan.id.get(), plan.body());
        }
    }

    /// Adds the properties of the archive and the process.
    fn properties(&mut self, own: &mut ProcessDefinitions, group: u64) {
        let archive = self.archive;
        let definitions = &archive.definitions;
        let mut properties = vec![(
            "otf2-location-group".to_owned(),
            definitions.name(DefinitionKind::LocationGroup, group),
        )];
        let of_group = definitions.of_record("LocationGroupProperty");
        for property in of_group.filter(|p| p.bits("location_group") == Some(group)) {
            let name = definitions.string(property.bits("name").unwrap_or(u64::MAX));
            let value = property.bits("string_value");
            let is_text = property
                .bits("type")
                .is_none_or(|type_code| type_code == 11);
            let value = match property.bits("value").or(value) {
                Some(value) if is_text => definitions.string(value).into_owned(),
                value => value.unwrap_or(0).to_string(),
            };
            properties.push((name.into_owned(), value));
        }
        if self.is_first {
            let anchor = &archive.anchor;
            let [major, minor, fix] = anchor.version;
            for (key, value) in [
                ("otf2-version", format!("{major}.{minor}.{fix}")),
                ("otf2-creator", anchor.creator.clone()),
                ("otf2-machine", anchor.machine.clone()),
                ("otf2-description", anchor.description.clone()),
            ] {
                properties.push((key.to_owned(), value));
            }
            properties.extend(anchor.properties.iter().cloned());
        }
        for (key, value) in properties
            .into_iter()
            .filter(|(_, value)| !value.is_empty())
        {
            let property = Property {
                process: PROCESS,
                key: self.string(own, &key),
                value: self.string(own, &value),
            };
            own.definitions.add(Definition::Property(property));
        }
    }

    /// Adds the definitions that the events of a process refer to; the first process also has those that no event
    /// refers to.
    fn referred(&mut self, own: &mut ProcessDefinitions, group: u64, of_group: &Group) {
        let archive = self.archive;
        let is_first = self.is_first;
        let used = |kind: DefinitionKind| {
            let numbering = archive.numberings.of_kind(kind);
            let mut used = vec![false; numbering.ids.len()];
            let locations = of_group.locations.iter();
            for seen in
                locations.map(|number| &archive.locations[*number].scanned.seen[kind as usize])
            {
                for id in seen.iter() {
                    let number = numbering.get(id);
                    if number != u32::MAX {
                        used[(number - numbering.base) as usize] = true;
                    }
                }
            }
            let ids = numbering.ids.clone();
            let pairs = ids.into_iter().zip(used);
            let taken = pairs.filter(move |(id, used)| {
                *used || is_first && archive.definitions.find(kind, *id).is_some()
            });
            taken.map(|(id, _)| id).collect::<Vec<u64>>()
        };
        let strings = archive.numberings.of_kind(DefinitionKind::String);
        for id in used(DefinitionKind::String) {
            let text = match archive.definitions.find(DefinitionKind::String, id) {
                Some(_) => archive.definitions.string(id).into_owned(),
                None => text_of_undefined(id),
            };
            own.definitions
                .add(Definition::String(StringId::new(strings.get(id)), text));
        }
        for id in used(DefinitionKind::Region) {
            self.define_region(own, id);
        }
        for context in archive
            .contexts
            .with_callers(used(DefinitionKind::CallingContext).into_iter())
        {
            let region = self.define_region(own, context.region);
            let file = context.file.map(|file| archive.definitions.string(file));
            let file = self.string(own, &file.unwrap_or_default());
            own.definitions.add(Definition::CallPath(CallPath {
                id: CallPathId::new(context.path),
                caller: context.caller.map(CallPathId::new),
                place: match region {
                    Some(region) if !self.is_unknown(context.region) => {
                        CodePlace::Line(region, file, context.line)
                    }
                    _ => CodePlace::Unknown,
                },
            }));
        }
        for id in used(DefinitionKind::InterruptGenerator) {
            let name = archive
                .definitions
                .name(DefinitionKind::InterruptGenerator, id);
            let period = archive.contexts.period_ns(id);
            let period = period.map(|period_ns| format!(" {period_ns}"));
            let value = name + &period.unwrap_or_default();
            let property = Property {
                process: PROCESS,
                key: self.string(own, property::SAMPLING),
                value: self.string(own, &value),
            };
            own.definitions.add(Definition::Property(property));
        }
        self.taken_objects.clear();
        for kind in OBJECTS {
            for id in used(kind) {
                let number = archive.numberings.of_kind(kind).get(id);
                self.taken_objects.insert(number);
                let (kind_name, name) = self.object_names(kind, id, group);
                let object = Object {
                    id: ObjectId::new(number),
                    process: PROCESS,
                    kind: self.string(own, &kind_name),
                    name: self.string(own, &name),
                };
                own.definitions.add(Definition::Object(object));
            }
        }
    }

    /// Returns an object's kind and name, which together must be the same for the same communicator
    /// only.
    fn object_names(&self, kind: DefinitionKind, id: u64, group: u64) -> (String, String) {
        let definitions = &self.archive.definitions;
        let name = definitions.name(kind, id);
        if kind == DefinitionKind::Comm && self.archive.world.is_of_one(id) {
            return (format!("communicator of one, of {group}"), name);
        }
        if name.is_empty() {
            return (kind.name().to_owned(), format!("{} {id}", kind.name()));
        }
        let is_shared = kind == DefinitionKind::Comm && {
            let mut others = definitions.of_kind(kind).filter(|(other, _)| *other != id);
            others.any(|(other, _)| definitions.name(kind, other) == name)
        };
        if is_shared {
            return (format!("communicator {id}"), name);
        }
        (kind.name().to_owned(), name)
    }

    /// Returns whether a region is what we have written for callers that are not known.
    fn is_unknown(&self, region: u64) -> bool {
        self.archive
            .definitions
            .name(DefinitionKind::Region, region)
            == UNKNOWN_CALLER
    }

    /// Defines a region if it is not, and returns its number. `None` if the archive has nothing of it.
    fn define_region(&mut self, own: &mut ProcessDefinitions, id: u64) -> Option<RegionId> {
        let numbering = self.archive.numberings.of_kind(DefinitionKind::Region);
        let number = Some(numbering.get(id)).filter(|number| *number != u32::MAX);
        let number = number.map(RegionId::new)?;
        if !own.definitions.regions.contains_key(&number) {
            let region = self.region(own, number, id);
            own.definitions.add(Definition::Region(region));
        }
        Some(number)
    }

    fn region(&mut self, own: &mut ProcessDefinitions, number: RegionId, id: u64) -> Region {
        let definitions = &self.archive.definitions;
        let found = definitions.find(DefinitionKind::Region, id);
        let bits = |name| found.and_then(|region| region.bits(name));
        let name = match found {
            Some(_) => definitions.name(DefinitionKind::Region, id),
            None => format!("region {id}"),
        };
        let file = bits("source_file").map(|file| definitions.string(file).into_owned());
        let group = found.map_or_else(String::new, group);
        Region {
            id: number,
            name: self.string(own, &name),
            file: self.string(own, &file.unwrap_or_default()),
            line: bits("begin_line_number").unwrap_or(0) as u32,
            group: self.string(own, &group),
        }
    }

    fn event_type(&self, location: &LocationFile, key: u32) -> EventTypeId {
        let archive = self.archive;
        let plan = archive
            .event_types
            .plan(&archive.definitions, &location.scanned, key);
        plan.map_or(ANY_EVENT_TYPE, |plan| plan.id)
    }

    /// Plans the stream of a location.
    fn planned(&self, stream: StreamId, location: &LocationFile) -> PlannedStream {
        let scanned = &location.scanned;
        let mut totals = StreamTotals::new(stream);
        totals.last_tick = self.time.offset;
        let mut heads = Vec::with_capacity(scanned.parts.len());
        let mut lost = scanned.lost.iter().peekable();
        let (mut sequence, mut recorded, mut most) = (0, 0_u64, 0);
        for (index, part) in scanned.parts.iter().enumerate() {
            // What is lost before it is a chunk that is missing.
            let mut missing: BTreeMap<EventTypeId, u64> = BTreeMap::new();
            let mut is_behind_gap = false;
            while let Some(lost) = lost.next_if(|lost| lost.before_part <= index) {
                is_behind_gap = true;
                recorded = recorded.saturating_add(lost.count);
                if let Some(key) = lost.key {
                    *missing.entry(self.event_type(location, key)).or_default() += lost.count;
                }
            }
            sequence += u64::from(is_behind_gap);
            let mut counts: BTreeMap<EventTypeId, u64> = BTreeMap::new();
            for (key, count) in &part.counts {
                *counts.entry(self.event_type(location, *key)).or_default() += count;
            }
            for (event_type, count) in &counts {
                let row = totals.row(*event_type);
                row.raised += count;
                row.recorded += count;
            }
            totals.inversions += part.inversions;
            if part.first < most {
                totals.inversions += 1;
                totals.largest_lateness = totals.largest_lateness.max(most - part.first);
            }
            totals.largest_lateness = totals.largest_lateness.max(part.largest_lateness);
            most = most.max(part.most);
            totals.last_tick = part.last;
            let mut head = head_of(stream, part, recorded, counts);
            head.sequence = sequence;
            head.predecessor_counts = missing.into_iter().collect();
            heads.push(head);
            sequence += 1;
            recorded = recorded.saturating_add(part.events);
        }
        totals.close_tick = totals.last_tick;
        for lost in &scanned.lost {
            let event_type = lost.key.map(|key| self.event_type(location, key));
            let row = totals.row(event_type.unwrap_or(ANY_EVENT_TYPE));
            row.raised = row.raised.saturating_add(lost.count);
            row.recorded = row.recorded.saturating_add(lost.count);
            row.raised_is_lower_bound |= lost.is_lower_bound;
            row.add_loss(lost.cause, lost.count);
        }
        PlannedStream { heads, totals }
    }
}

fn head_of(
    stream: StreamId,
    part: &FilePart,
    recorded: u64,
    counts: BTreeMap<EventTypeId, u64>,
) -> ChunkHeader {
    ChunkHeader {
        stream,
        sequence: 0,
        event_count: part.events,
        dropped_count: 0,
        first_tick: part.first,
        min_offset: -((part.first - part.least) as i64),
        max_offset: (part.most - part.first) as i64,
        last_tick: part.last,
        inversions: part.inversions,
        largest_lateness: part.largest_lateness,
        open_reference_ns: 0,
        close_reference_ns: 0,
        before: Cumulative {
            raised: recorded,
            recorded,
            dropped: 0,
        },
        counts: counts.into_iter().collect(),
        predecessor_counts: Vec::new(),
    }
}

/// Returns the machine that a location group is on: of the nodes above it the one of that class, else the nearest.
fn host_of(definitions: &GlobalDefinitions, group: u64) -> String {
    let group = definitions.find(DefinitionKind::LocationGroup, group);
    let Some(nearest) = group.and_then(|group| group.bits("system_tree_parent")) else {
        return String::new();
    };
    let mut node = nearest;
    for _ in 0..64 {
        let Some(definition) = definitions.find(DefinitionKind::SystemTreeNode, node) else {
            break;
        };
        let class = definitions.string(definition.bits("class_name").unwrap_or(u64::MAX));
        if class == "node" {
            return definitions.name(DefinitionKind::SystemTreeNode, node);
        }
        node = definition.bits("parent").unwrap_or(u64::MAX);
    }
    definitions.name(DefinitionKind::SystemTreeNode, nearest)
}

fn kind_of(definitions: &GlobalDefinitions, location: u64) -> LocationKind {
    let location = definitions.find(DefinitionKind::Location, location);
    match location.and_then(|location| location.bits("location_type")) {
        Some(2 | 3) => LocationKind::Device,
        _ => LocationKind::Thread,
    }
}
