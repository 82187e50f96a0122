//! An archive as an input: each of its processes becomes a recording whose chunks are decoded from the archive's
//! files when they are asked for.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use annals_format::otf2::{
    Anchor, CHUNK_HEADER_LEN, ChunkEnd, ClockCorrection, GlobalDefinition, GlobalDefinitions, Kind,
    LEAST_CHUNK, LocalDefinitions, MOST_CHUNK, RawRecords, chunk_size_of,
};
use annals_format::wire::Put;
use annals_format::{
    ANY_EVENT_TYPE, CalibrationPoint, Chunk, ChunkHeader, ChunkPlace, Clock, ClockId, ClockKind,
    Cumulative, Definition, Definitions, Ended, EventTypeId, FileHeader, FileKind, ForeignRecord,
    Location, LocationId, LocationKind, Object, ObjectId, Problem, Process, ProcessId, Property,
    Rank, ReadAt, Recording, RecordingId, Reference, Region, RegionId, Source, SourceId,
    SourceOrder, StoredChunk, Stream, StreamContents, StreamId, StreamLoss, StreamTotals, StringId,
};
use rayon::prelude::*;

use super::catalogue::Catalogue;
use super::decode;
use super::markers::{self, Markers};
use super::naming::{IO_PARADIGM, Numberings, OBJECTS, Strings, text_of_undefined};
use super::scan::{Part, Scanned, scan};
use super::world::World;
use crate::error::{MergeError, Result};
use crate::input::{FileAt, InputRecording};

/// A location and its file.
#[derive(Debug)]
pub(crate) struct LocationFile {
    pub(crate) id: u64,
    /// None: it cannot be opened.
    pub(crate) file: Option<FileAt>,
    pub(crate) local: LocalDefinitions,
    pub(crate) correction: ClockCorrection,
    pub(crate) scanned: Scanned,
    /// The rank of its process.
    pub(crate) rank: Option<u64>,
}

/// An opened archive.
#[derive(Debug)]
pub(crate) struct Archive {
    /// Its anchor's file.
    pub(crate) path: PathBuf,
    pub(crate) anchor: Anchor,
    pub(crate) definitions: GlobalDefinitions,
    pub(crate) catalogue: Catalogue,
    pub(crate) numberings: Numberings,
    pub(crate) world: World,
    /// By their numbers.
    pub(crate) locations: Vec<LocationFile>,
    pub(crate) markers: Option<Markers>,
}

impl LocationFile {
    /// The file of markers, as a location's.
    pub(crate) fn of_markers(file: Option<FileAt>, scanned: Scanned) -> Self {
        Self {
            id: Kind::Location.undefined(),
            file,
            local: LocalDefinitions::default(),
            correction: ClockCorrection::default(),
            scanned,
            rank: None,
        }
    }
}

/// One of an archive's processes: reads the parts of its locations.
#[derive(Clone, Debug)]
pub(crate) struct ArchivePart(pub(crate) Arc<Archive>);

impl ArchivePart {
    pub(crate) fn load(&self, stream: StreamId, part: usize) -> annals_format::Result<Chunk> {
        let location = self.0.locations.get(stream.index());
        if let (None, Some(markers)) = (location, &self.0.markers)
            && let Some(part) = markers.file.scanned.parts.get(part)
        {
            return markers::decode(&self.0, markers, part);
        }
        let found =
            location.and_then(|location| Some((location, location.scanned.parts.get(part)?)));
        let (location, part) = found.ok_or(annals_format::FormatError::Invalid {
            offset: 0,
            expected: "a part of the archive",
            found: "none".to_owned(),
        })?;
        decode::decode(&self.0, location, part)
    }
}

/// Whether a file is the anchor of an archive.
pub(crate) fn is_anchor(path: &Path) -> bool {
    let mut bytes = [0; 7];
    let file = FileAt::open(path);
    file.is_ok_and(|file| file.read_exact_at(0, &mut bytes).is_ok() && Anchor::is_one(&bytes))
}

/// FNV-1a, 128 bits: the archive's identity must be the same wherever and whenever it is read.
fn digest(digest: u128, bytes: &[u8]) -> u128 {
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    bytes.iter().fold(digest, |sum, byte| {
        (sum ^ u128::from(*byte)).wrapping_mul(PRIME)
    })
}

/// The format's name in foreign records.
pub(crate) const FORMAT: &str = "OTF2";

/// The number of the first definition of markers among the foreign records of the whole.
pub(crate) const FIRST_OF_MARKERS: u32 = 1 << 31;

const DIGEST_START: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;

pub(crate) fn problem_of(
    path: &Path,
    offset: u64,
    length: u64,
    what: impl std::fmt::Display,
) -> Problem {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    Problem {
        offset,
        length,
        what: format!("{name}: {what}"),
    }
}

/// Gives the chunks of a file of definitions to `take`, which tells how the chunk ends; notes what cannot be read.
/// Tells whether the file's end was there.
pub(crate) fn each_chunk(
    path: &Path,
    chunk_size: u64,
    problems: &mut Vec<Problem>,
    mut take: impl FnMut(&[u8], u64, &mut Vec<Problem>) -> Option<ChunkEnd>,
) -> Result<bool> {
    let format = |source| MergeError::Format {
        path: path.to_owned(),
        error: source,
    };
    let file = FileAt::open(path)?;
    let length = file.len().map_err(format)?;
    let mut buffer = Vec::new();
    let mut offset = 0;
    while offset < length {
        buffer.resize((length - offset).min(chunk_size) as usize, 0);
        file.read_exact_at(offset, &mut buffer).map_err(format)?;
        if take(&buffer, offset, problems) == Some(ChunkEnd::File) {
            return Ok(true);
        }
        offset += chunk_size;
    }
    problems.push(problem_of(
        path,
        length,
        0,
        "the end of the file expected, but the data ends there",
    ));
    Ok(false)
}

/// Reads a file of definitions, record by record.
fn each_record(
    path: &Path,
    chunk_size: u64,
    problems: &mut Vec<Problem>,
    mut take: impl FnMut(
        annals_format::otf2::RawRecord<'_>,
        annals_format::otf2::Endian,
    ) -> annals_format::Result<()>,
) -> Result<bool> {
    each_chunk(path, chunk_size, problems, |chunk, offset, problems| {
        let mut records = match RawRecords::new(chunk) {
            Ok(records) => records,
            Err(error) => {
                problems.push(problem_of(path, offset, chunk.len() as u64, error));
                return None;
            }
        };
        let endian = records.endian();
        for record in records.by_ref() {
            let outcome = match record {
                Ok(record) => take(record, endian).map_err(|error| (record.offset, error)),
                Err(error) => Err((0, error)),
            };
            if let Err((at, error)) = outcome {
                problems.push(problem_of(path, offset + at as u64, 0, error));
            }
        }
        records.end
    })
}

/// How an archive's clock becomes nanoseconds.
struct TimeBase {
    resolution: u64,
    offset: u64,
    length: u64,
    unix_ns: Option<i64>,
}

impl TimeBase {
    fn of(definitions: &GlobalDefinitions, scanned: &[LocationFile]) -> Self {
        let clock = definitions.of_record("ClockProperties").next();
        let bits = |name| clock.and_then(|clock: &GlobalDefinition| clock.bits(name));
        let resolution = bits("timer_resolution").filter(|resolution| *resolution != 0);
        let parts = scanned.iter().flat_map(|location| &location.scanned.parts);
        let least = parts.map(|part| part.least).min();
        let unix = bits("realtime_timestamp").filter(|unix| *unix != u64::MAX);
        let resolution = resolution.unwrap_or(1_000_000_000);
        let told = bits("global_offset").or(least).unwrap_or(0);
        // A start that lies decades before or behind the first event is none, and times since would not fit.
        let is_far = |least: &u64| {
            let apart_ns =
                u128::from(least.abs_diff(told)) * 1_000_000_000 / u128::from(resolution);
            apart_ns >= 1 << 60
        };
        let offset = least.filter(is_far).unwrap_or(told);
        let length = bits("trace_length").unwrap_or(0);
        Self {
            resolution,
            offset,
            length: told.saturating_add(length).saturating_sub(offset),
            unix_ns: unix.and_then(|unix| i64::try_from(unix).ok()),
        }
    }

    fn end_ns(&self) -> Option<i64> {
        let ns = u128::from(self.length) * 1_000_000_000 / u128::from(self.resolution);
        // Longer than years is not a length but a mistake.
        i64::try_from(ns).ok().filter(|ns| *ns < 1 << 58)
    }
}

/// A process in the making: one location group, with those that it has created.
#[derive(Default)]
struct Group {
    /// Numbers of its locations.
    locations: Vec<usize>,
    rank: Option<u64>,
}

/// Opens an archive: reads its definitions, goes once through all of its events, and makes a recording of each
/// process.
///
/// # Errors
/// If the anchor cannot be read, or no threads can be had.
pub(crate) fn open(path: &Path, jobs: usize) -> Result<Vec<InputRecording>> {
    let mut problems = Vec::new();
    let mut definitions = GlobalDefinitions::default();
    let stem = path.with_extension("");
    let (anchor, bytes) = anchor_at(path, &stem, &mut problems)?;
    let mut identity = digest(DIGEST_START, &bytes);
    let definitions_path = stem.with_added_extension("def");
    let chunk_size = anchor.definition_chunk_size;
    let read = each_record(
        &definitions_path,
        chunk_size,
        &mut problems,
        |raw, endian| {
            identity = digest(identity, raw.payload);
            definitions.take(raw, endian)
        },
    );
    if let Err(error) = read {
        // Events can be read without; what they refer to has numbers for names then.
        problems.push(problem_of(&definitions_path, 0, 0, with_cause(&error)));
    }
    let world = World::of(&definitions);
    let files = locations_of(&definitions, &stem, &mut problems);
    let pool = rayon::ThreadPoolBuilder::new().num_threads(jobs).build();
    let pool = pool.map_err(|error| MergeError::Threads {
        source: std::io::Error::other(error),
    })?;
    let mut locations: Vec<LocationFile> = pool.install(|| {
        let each = files.into_par_iter();
        each.map(|(id, expected)| open_location(&stem, &anchor, id, expected))
            .collect()
    });
    let groups = groups_of(&definitions, &world, &mut locations);
    let time = TimeBase::of(&definitions, &locations);
    let mut markers = Markers::of(&stem.with_added_extension("marker"), chunk_size);
    markers.take_if(|markers| !markers.is_anything());
    let files = locations
        .iter_mut()
        .chain(markers.as_mut().map(|markers| &mut markers.file));
    let scanned: Vec<Scanned> = files
        .map(|file| std::mem::replace(&mut file.scanned, Scanned::nothing()))
        .collect();
    let numberings = Numberings::of(&definitions, &scanned);
    let first_string = numberings.of_kind(Kind::String).ids.len() as u32;
    let mut strings = Strings::new(first_string);
    let catalogue = Catalogue::of(&scanned, &definitions, &mut strings);
    let files = locations
        .iter_mut()
        .chain(markers.as_mut().map(|markers| &mut markers.file));
    for (file, scanned) in files.zip(scanned) {
        file.scanned = scanned;
    }
    let archive = Archive {
        path: path.to_owned(),
        anchor,
        definitions,
        catalogue,
        numberings,
        world,
        locations,
        markers,
    };
    let archive = Arc::new(archive);
    let mut maker = Maker {
        archive: &archive,
        strings,
        identity,
        time,
        is_first: true,
        problems,
        alike: alike(&archive.definitions),
        taken_objects: BTreeSet::new(),
    };
    let mut inputs = Vec::new();
    for (group, of_group) in groups {
        let (recording, bytes) = maker.recording(group, &of_group);
        let part = ArchivePart(archive.clone());
        inputs.push(InputRecording::of_archive(path, recording, bytes, part));
    }
    Ok(inputs)
}

/// Reads the anchor. When it is missing or damaged, what it does not say is what the archive's files show.
fn anchor_at(path: &Path, stem: &Path, problems: &mut Vec<Problem>) -> Result<(Anchor, Vec<u8>)> {
    let format = |source| MergeError::Format {
        path: path.to_owned(),
        error: source,
    };
    let mut bytes = Vec::new();
    let mut is_missing = false;
    match FileAt::open(path) {
        Ok(file) => {
            let length = file.len().map_err(format)?.min(1 << 20);
            bytes.resize(length as usize, 0);
            file.read_exact_at(0, &mut bytes).map_err(format)?;
        }
        Err(_) if !path.exists() => is_missing = true,
        Err(error) => return Err(error),
    }
    let (mut anchor, has_sizes, error) = Anchor::salvage(&bytes).map_err(format)?;
    let Some(error) = error else {
        return Ok((anchor, bytes));
    };
    let mut what = match &error {
        _ if is_missing => "the anchor is missing".to_owned(),
        error => format!("the anchor is damaged ({error})"),
    };
    if !has_sizes {
        let events = chunk_size_in(&event_files(stem), true);
        let mut files = vec![stem.with_added_extension("def")];
        files.extend(
            event_files(stem)
                .iter()
                .map(|file| file.with_extension("def")),
        );
        let definitions = chunk_size_in(&files, false);
        // Files of one chunk each are read in whatever size they fit.
        anchor.event_chunk_size = events.unwrap_or(MOST_CHUNK);
        anchor.definition_chunk_size = definitions.unwrap_or(MOST_CHUNK);
        let shown = |size: Option<u64>| match size {
            Some(size) => format!("{size} bytes a chunk"),
            None => "one chunk a file".to_owned(),
        };
        what += &format!(
            ": by what the files show, events have {} and definitions {}",
            shown(events),
            shown(definitions)
        );
    }
    problems.push(problem_of(path, 0, bytes.len() as u64, what));
    Ok((anchor, bytes))
}

/// The files of events beside an anchor, by their names.
fn event_files(stem: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(stem).into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    let mut files: Vec<PathBuf> = paths.filter(|path| location_of(path).is_some()).collect();
    files.sort();
    files
}

/// The location that a file of events is of.
fn location_of(path: &Path) -> Option<u64> {
    let is_events = path.extension().is_some_and(|extension| extension == "evt");
    let name = path.file_stem().and_then(|name| name.to_str());
    let name = name.filter(|name| is_events && (*name == "0" || !name.starts_with('0')));
    name.and_then(|name| name.parse().ok())
}

/// The size of chunks that files of one kind show: the longest that shows one.
fn chunk_size_in(files: &[PathBuf], is_of_events: bool) -> Option<u64> {
    let length = |path: &PathBuf| std::fs::metadata(path).map_or(0, |metadata| metadata.len());
    let mut files: Vec<(u64, &PathBuf)> = files.iter().map(|path| (length(path), path)).collect();
    files.retain(|(length, _)| *length > LEAST_CHUNK);
    files.sort_by_key(|(length, path)| (std::cmp::Reverse(*length), *path));
    files.iter().take(16).find_map(|(length, path)| {
        let file = FileAt::open(path).ok()?;
        let most = MOST_CHUNK + CHUNK_HEADER_LEN as u64 + 1;
        let mut start = vec![0; (*length).min(most) as usize];
        file.read_exact_at(0, &mut start).ok()?;
        chunk_size_of(&start, is_of_events)
    })
}

/// The anchor of the archive that a file or a directory is a part of, although it is not there or no anchor: for a
/// name `NAME.otf2` when `NAME.def` or files of events are beside it; for a directory of files of events.
pub(crate) fn anchor_for(path: &Path) -> Option<PathBuf> {
    let is_named = path
        .extension()
        .is_some_and(|extension| extension == "otf2");
    if is_named && !path.is_dir() {
        let stem = path.with_extension("");
        let has_definitions = stem.with_added_extension("def").is_file();
        let has_files = has_definitions || !event_files(&stem).is_empty();
        return has_files.then(|| path.to_owned());
    }
    (path.is_dir() && !event_files(path).is_empty()).then(|| {
        let directory = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        directory.with_added_extension("otf2")
    })
}

/// The locations that are defined, and how many events each should have; and those whose files are there
/// although no definition is: definitions may be lost.
fn locations_of(
    definitions: &GlobalDefinitions,
    stem: &Path,
    problems: &mut Vec<Problem>,
) -> Vec<(u64, Option<u64>)> {
    let mut known: BTreeMap<u64, Option<u64>> = definitions
        .of_kind(Kind::Location)
        .map(|(id, location)| (id, location.bits("number_of_events")))
        .collect();
    for path in event_files(stem) {
        if let Some(id) = location_of(&path).filter(|id| !known.contains_key(id)) {
            problems.push(problem_of(&path, 0, 0, "the location has no definition"));
            known.insert(id, None);
        }
    }
    known.into_iter().collect()
}

fn open_location(stem: &Path, anchor: &Anchor, id: u64, expected: Option<u64>) -> LocationFile {
    let mut problems = Vec::new();
    let mut local = LocalDefinitions::default();
    let path = stem.join(format!("{id}.def"));
    // Without a file of definitions a location has none; only what is there can be damaged.
    if path.exists() {
        let read = each_record(
            &path,
            anchor.definition_chunk_size,
            &mut problems,
            |raw, endian| local.take(raw, endian),
        );
        if let Err(error) = read {
            problems.push(problem_of(&path, 0, 0, error));
        }
    }
    let (correction, is_whole) = ClockCorrection::new(&local.clock_offsets);
    if !is_whole {
        let what = "the times of its clock offsets do not ascend: those behind are not used";
        problems.push(problem_of(&path, 0, 0, what));
    }
    let path = stem.join(format!("{id}.evt"));
    let (file, mut scanned) = match FileAt::open(&path) {
        Ok(file) => {
            let size = anchor.event_chunk_size;
            let scanned = scan(&path, &file, size, &local, correction.clone(), expected);
            (Some(file), scanned)
        }
        Err(error) => {
            let mut scanned = Scanned::nothing();
            scanned.problem(&path, 0, 0, with_cause(&error));
            scanned.lost.push(super::scan::Lost {
                before_part: 0,
                key: None,
                cause: annals_format::Cause::Skipped,
                count: expected.unwrap_or(1),
                is_lower_bound: expected.is_none(),
            });
            scanned.lost.retain(|lost| lost.count != 0);
            (None, scanned)
        }
    };
    scanned.problems.splice(0..0, problems);
    LocationFile {
        id,
        file,
        local,
        correction,
        scanned,
        rank: None,
    }
}

pub(crate) fn with_cause(error: &MergeError) -> String {
    use std::error::Error;
    error
        .source()
        .map_or_else(|| error.to_string(), ToString::to_string)
}

/// The processes of an archive by the location group that each is: accelerators count to who created them.
fn groups_of(
    definitions: &GlobalDefinitions,
    world: &World,
    locations: &mut [LocationFile],
) -> BTreeMap<u64, Group> {
    let owner = |mut group: u64| {
        // As deep as definitions can go without going round.
        for _ in 0..8 {
            let definition = definitions.find(Kind::LocationGroup, group);
            let creator = definition.and_then(|d| d.bits("creating_location_group"));
            let creator = creator.filter(|id| definitions.find(Kind::LocationGroup, *id).is_some());
            match creator {
                Some(creator) if creator != group => group = creator,
                _ => break,
            }
        }
        group
    };
    let group_of = |location: u64| {
        let definition = definitions.find(Kind::Location, location);
        let group = definition.and_then(|d| d.bits("location_group"));
        owner(group.unwrap_or(Kind::LocationGroup.undefined()))
    };
    let mut groups: BTreeMap<u64, Group> = BTreeMap::new();
    for (id, _) in definitions.of_kind(Kind::LocationGroup) {
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

/// Makes recordings of an archive's processes.
struct Maker<'a> {
    archive: &'a Archive,
    strings: Strings,
    identity: u128,
    time: TimeBase,
    is_first: bool,
    /// Of the whole archive: the first process has them.
    problems: Vec<Problem>,
    /// Regions that others cannot be told from by name, file, line and paradigm.
    alike: BTreeSet<u64>,
    /// Objects of the process that is being made.
    taken_objects: BTreeSet<u32>,
}

/// Regions of an archive that have name, file, line and paradigm in common with another.
fn alike(definitions: &GlobalDefinitions) -> BTreeSet<u64> {
    let mut by_key: BTreeMap<_, Vec<u64>> = BTreeMap::new();
    for (id, region) in definitions.of_kind(Kind::Region) {
        let text = |name| definitions.string(region.bits(name).unwrap_or(u64::MAX));
        let line = region.bits("begin_line_number");
        let key = (
            text("name"),
            text("source_file"),
            line,
            region.bits("paradigm"),
        );
        by_key.entry(key).or_default().push(id);
    }
    let several = by_key.into_values().filter(|ids| ids.len() > 1);
    several.flatten().collect()
}

/// The definitions of a process in the making: strings are added when something refers to them.
struct Own {
    definitions: Definitions,
}

impl Maker<'_> {
    fn string(&mut self, own: &mut Own, text: &str) -> StringId {
        let id = self.strings.id(text);
        own.definitions
            .strings
            .entry(id)
            .or_insert_with(|| text.to_owned());
        id
    }

    fn event_types(&self, own: &mut Own) {
        for definition in self.archive.catalogue.definitions() {
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

    fn recording(&mut self, group: u64, of_group: &Group) -> (Recording, u64) {
        let archive = self.archive;
        let process = ProcessId::new(0);
        let mut own = Own {
            definitions: Definitions::default(),
        };
        let mut id = [0; 16];
        id[..8]
            .copy_from_slice(&((self.identity >> 64) as u64 ^ self.identity as u64).to_be_bytes());
        id[8..].copy_from_slice(&group.to_be_bytes());
        let recording_id = RecordingId(id);
        let stem = archive
            .path
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let run = format!(
            "{stem} {:016x}",
            archive.anchor.trace_id.unwrap_or(self.identity as u64)
        );
        let host = host_of(&archive.definitions, group);
        let d = Process {
            id: process,
            recording_id,
            run: self.string(&mut own, &run),
            host: self.string(&mut own, &host),
            boot_id: annals_format::BootId(self.identity.to_be_bytes()),
            pid: 0,
            start_unix_ns: self.time.unix_ns.unwrap_or(0),
            start_reference_ns: 0,
            command: self.string(&mut own, ""),
        };
        own.definitions.add(Definition::Process(d));
        if let Some(rank) = of_group.rank.and_then(|rank| u32::try_from(rank).ok()) {
            own.definitions.add(Definition::Rank(Rank {
                process,
                rank,
                rank_count: u32::try_from(archive.world.locations.len()).ok(),
                is_assigned: false,
            }));
        }
        self.properties(&mut own, group);
        let clock = ClockId::new(0);
        let d = Clock {
            id: clock,
            process,
            name: self.string(&mut own, "OTF2"),
            kind: ClockKind::Tsc,
            ticks_per_second: self.time.resolution,
            rate_error_ppb: 0,
            max_ticks: u64::MAX,
        };
        own.definitions.add(Definition::Clock(d));
        own.definitions
            .add(Definition::Calibration(CalibrationPoint {
                clock,
                tick: self.time.offset,
                reference_ns: 0,
                error_ns: 0,
                unix_offset_ns: self.time.unix_ns.unwrap_or(0),
            }));
        let source = SourceId::new(0);
        let d = Source {
            id: source,
            process,
            name: self.string(&mut own, &stem),
            description: self.string(&mut own, "an OTF2 archive"),
            ordering: SourceOrder::Ordered,
            clock,
        };
        own.definitions.add(Definition::Source(d));
        self.event_types(&mut own);
        self.referred(&mut own, group, of_group);
        let mut streams = BTreeMap::new();
        let mut problems = Vec::new();
        if self.is_first {
            problems.append(&mut self.problems);
        }
        let mut bytes = 0;
        let mut is_cut = false;
        let mut files = Vec::new();
        for number in &of_group.locations {
            let location = &archive.locations[*number];
            let id = LocationId::new(*number as u32);
            let d = Location {
                id,
                process,
                name: self.location_name(&mut own, location.id),
                kind: kind_of(&archive.definitions, location.id),
                system_id: 0,
            };
            own.definitions.add(Definition::Location(d));
            let stream = StreamId::new(*number as u32);
            own.definitions.add(Definition::Stream(Stream {
                id: stream,
                source,
                location: Some(id),
            }));
            streams.insert(stream, Box::new(self.contents(stream, location)));
            files.push(location);
        }
        if let Some(markers) = archive.markers.as_ref().filter(|_| self.is_first) {
            let stream = self.markers(&mut own, clock);
            streams.insert(stream, Box::new(self.contents(stream, &markers.file)));
            files.push(&markers.file);
        }
        for file in files {
            problems.extend(file.scanned.problems.iter().cloned());
            bytes += file.scanned.bytes;
            is_cut |= file
                .scanned
                .lost
                .iter()
                .any(|lost| lost.cause == annals_format::Cause::Truncated);
        }
        self.foreign(&mut own, of_group);
        self.is_first = false;
        let header = FileHeader::new(FileKind::Recording, recording_id);
        let mut recording = Recording::of_foreign(header, own.definitions, streams);
        recording.has_footer = problems.is_empty();
        if is_cut {
            recording.ended = Ended::Truncated;
        }
        recording.problems = problems;
        recording.last_reference_ns = self.time.end_ns();
        (recording, bytes)
    }

    /// The source, the location and the stream of the archive's markers: tools add them in any order.
    fn markers(&mut self, own: &mut Own, clock: ClockId) -> StreamId {
        let process = ProcessId::new(0);
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

    fn location_name(&mut self, own: &mut Own, id: u64) -> StringId {
        let name = self.archive.definitions.name(Kind::Location, id);
        let name = if name.is_empty() {
            format!("location {id}")
        } else {
            name
        };
        self.string(own, &name)
    }

    /// What a writer of archives needs beyond what we have words for.
    fn foreign(&mut self, own: &mut Own, of_group: &Group) {
        let archive = self.archive;
        let format = self.string(own, FORMAT);
        let mut add = |of: Reference, id: u32, body: Vec<u8>| {
            own.definitions.foreign.insert(
                (ProcessId::new(0), of, id),
                ForeignRecord {
                    process: ProcessId::new(0),
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
        let numbering = archive.numberings.of_kind(Kind::Region);
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
        for kind in OBJECTS.into_iter().chain([IO_PARADIGM]) {
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
        for plan in &archive.catalogue.plans {
            add(Reference::EventType, plan.id.get(), plan.body());
        }
    }

    /// What the archive says about itself and the process.
    fn properties(&mut self, own: &mut Own, group: u64) {
        let archive = self.archive;
        let definitions = &archive.definitions;
        let mut properties = vec![(
            "otf2-location-group".to_owned(),
            definitions.name(Kind::LocationGroup, group),
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
                process: ProcessId::new(0),
                key: self.string(own, &key),
                value: self.string(own, &value),
            };
            own.definitions.add(Definition::Property(property));
        }
    }

    /// What the events of a process refer to; the first process has what no event refers to as well.
    fn referred(&mut self, own: &mut Own, group: u64, of_group: &Group) {
        let archive = self.archive;
        let is_first = self.is_first;
        let used = |kind: Kind| {
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
        let strings = archive.numberings.of_kind(Kind::String);
        for id in used(Kind::String) {
            let text = match archive.definitions.find(Kind::String, id) {
                Some(_) => archive.definitions.string(id).into_owned(),
                None => text_of_undefined(id),
            };
            own.definitions
                .add(Definition::String(StringId::new(strings.get(id)), text));
        }
        for id in used(Kind::Region) {
            let number = RegionId::new(archive.numberings.of_kind(Kind::Region).get(id));
            let region = self.region(own, number, id);
            own.definitions.add(Definition::Region(region));
        }
        self.taken_objects.clear();
        for kind in OBJECTS.into_iter().chain([IO_PARADIGM]) {
            for id in used(kind) {
                let number = archive.numberings.of_kind(kind).get(id);
                self.taken_objects.insert(number);
                let (kind_name, name) = self.object_names(kind, id, group);
                let object = Object {
                    id: ObjectId::new(number),
                    process: ProcessId::new(0),
                    kind: self.string(own, &kind_name),
                    name: self.string(own, &name),
                };
                own.definitions.add(Definition::Object(object));
            }
        }
    }

    /// An object's kind and name, which together must be the same for the same communicator only.
    fn object_names(&self, kind: Kind, id: u64, group: u64) -> (String, String) {
        let definitions = &self.archive.definitions;
        let name = definitions.name(kind, id);
        if kind == Kind::Comm && self.archive.world.is_of_one(id) {
            return (format!("communicator of one, of {group}"), name);
        }
        if name.is_empty() {
            return (kind.name().to_owned(), format!("{} {id}", kind.name()));
        }
        let is_shared = kind == Kind::Comm && {
            let mut others = definitions.of_kind(kind).filter(|(other, _)| *other != id);
            others.any(|(other, _)| definitions.name(kind, other) == name)
        };
        if is_shared {
            return (format!("communicator {id}"), name);
        }
        (kind.name().to_owned(), name)
    }

    fn region(&mut self, own: &mut Own, number: RegionId, id: u64) -> Region {
        let definitions = &self.archive.definitions;
        let found = definitions.find(Kind::Region, id);
        let bits = |name| found.and_then(|region| region.bits(name));
        let name = match found {
            Some(_) => definitions.name(Kind::Region, id),
            None => format!("region {id}"),
        };
        let file = bits("source_file").map(|file| definitions.string(file).into_owned());
        let paradigm = bits("paradigm");
        let group = paradigm.and_then(|code| annals_format::otf2::enums::PARADIGM.name_of(code));
        let group = group
            .filter(|group| *group != "UNKNOWN")
            .unwrap_or("")
            .to_lowercase();
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
            .catalogue
            .plan(&archive.definitions, &location.scanned, key);
        plan.map_or(ANY_EVENT_TYPE, |plan| plan.id)
    }

    fn contents(&self, stream: StreamId, location: &LocationFile) -> StreamContents {
        let scanned = &location.scanned;
        let mut totals = StreamTotals::new(stream);
        totals.last_tick = self.time.offset;
        let mut chunks = Vec::with_capacity(scanned.parts.len());
        let mut recorded = 0;
        let mut most = 0;
        for (index, part) in scanned.parts.iter().enumerate() {
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
            chunks.push(StoredChunk {
                header: head_of(stream, index, part, recorded, counts),
                place: ChunkPlace::Foreign(index),
            });
            recorded += part.events;
        }
        totals.close_tick = totals.last_tick;
        let mut losses = Vec::new();
        for lost in &scanned.lost {
            let event_type = lost.key.map(|key| self.event_type(location, key));
            let row = totals.row(event_type.unwrap_or(ANY_EVENT_TYPE));
            row.raised = row.raised.saturating_add(lost.count);
            row.recorded = row.recorded.saturating_add(lost.count);
            row.raised_is_lower_bound |= lost.is_lower_bound;
            row.add_loss(lost.cause, lost.count);
            losses.push(StreamLoss {
                event_type: event_type.filter(|id| *id != ANY_EVENT_TYPE),
                cause: lost.cause,
                count: lost.count,
                is_lower_bound: lost.is_lower_bound,
                before_chunk: lost.before_part,
            });
        }
        StreamContents {
            chunks,
            totals,
            losses,
            is_open: false,
        }
    }
}

fn head_of(
    stream: StreamId,
    index: usize,
    part: &Part,
    recorded: u64,
    counts: BTreeMap<EventTypeId, u64>,
) -> ChunkHeader {
    ChunkHeader {
        stream,
        sequence: index as u64,
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

/// The machine that a location group is on: of the nodes above it the one of that class, else the nearest.
fn host_of(definitions: &GlobalDefinitions, group: u64) -> String {
    let group = definitions.find(Kind::LocationGroup, group);
    let Some(nearest) = group.and_then(|group| group.bits("system_tree_parent")) else {
        return String::new();
    };
    let mut node = nearest;
    for _ in 0..64 {
        let Some(definition) = definitions.find(Kind::SystemTreeNode, node) else {
            break;
        };
        let class = definitions.string(definition.bits("class_name").unwrap_or(u64::MAX));
        if class == "node" {
            return definitions.name(Kind::SystemTreeNode, node);
        }
        node = definition.bits("parent").unwrap_or(u64::MAX);
    }
    definitions.name(Kind::SystemTreeNode, nearest)
}

fn kind_of(definitions: &GlobalDefinitions, location: u64) -> LocationKind {
    let location = definitions.find(Kind::Location, location);
    match location.and_then(|location| location.bits("location_type")) {
        Some(2 | 3) => LocationKind::Device,
        _ => LocationKind::Thread,
    }
}
