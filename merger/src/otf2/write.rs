//! Writing an archive: the merge's chunks become the files of its locations, piece by piece; the definitions, which
//! are known at the end, come last, and the anchor behind them.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use annals_format::otf2::{
    Anchor, AttributeValue, Datum, EventToWrite, EventWriter, Record, RecordWriter, put_record,
    records, types,
};
use annals_format::{ClockMap, MapCursor, ProcessId, StreamId, TraceChunk, TraceLoss};

use super::archive::is_anchor;
use super::backward::{Place, Plan, Translated, translate};
use super::outgoing::Outgoing;
use crate::error::{MergeError, Result};
use crate::merge::{Merge, Merged};

const EVENT_CHUNK: u64 = 1 << 20;
const DEFINITION_CHUNK: u64 = 4 << 20;
/// Bytes that wait for one location.
const MOST_WAITING: usize = 256 << 10;
/// Bytes that wait for all of them.
const MOST_WAITING_ALL: usize = 64 << 20;
/// Files that are kept open.
const MOST_OPEN: usize = 128;

const MEASUREMENT: u8 = 11;
const ON: u64 = 1;
const OFF: u64 = 2;

/// How an archive is written.
#[derive(Clone, Copy, Debug)]
pub struct ArchiveOptions {
    /// Threads that decode.
    pub jobs: usize,
    /// Bytes of a chunk of events: 256 KiB to 16 MiB.
    pub event_chunk_size: u64,
}

impl Default for ArchiveOptions {
    fn default() -> Self {
        Self {
            jobs: 1,
            event_chunk_size: EVENT_CHUNK,
        }
    }
}

/// The events of a location on their way to its file.
struct Waiting {
    path: PathBuf,
    writer: EventWriter,
    /// Bytes of the file.
    written: u64,
}

/// The archive in the making: in a directory beside its place.
struct Files {
    temporary: PathBuf,
    stem: String,
    locations: Vec<Waiting>,
    open: HashMap<usize, File>,
    waiting: usize,
    written: u64,
    is_complete: bool,
}

fn io(action: &'static str, path: &Path) -> impl Fn(std::io::Error) -> MergeError + use<> {
    let path = path.to_owned();
    move |source| MergeError::Io {
        action,
        path: path.clone(),
        source,
    }
}

impl Files {
    fn create(anchor: &Path) -> Result<Self> {
        let stem = anchor.file_stem().unwrap_or_default().to_string_lossy();
        let temporary = anchor.with_file_name(format!("{stem}.otf2.{}.tmp", std::process::id()));
        let events = temporary.join(&*stem);
        fs::create_dir_all(&events).map_err(io("create", &events))?;
        Ok(Self {
            temporary,
            stem: stem.into_owned(),
            locations: Vec::new(),
            open: HashMap::new(),
            waiting: 0,
            written: 0,
            is_complete: false,
        })
    }

    fn add_locations(&mut self, ids: impl Iterator<Item = u64>, chunk_size: u64) {
        for id in ids {
            let path = self.temporary.join(&self.stem).join(format!("{id}.evt"));
            self.locations.push(Waiting {
                path,
                writer: EventWriter::new(chunk_size),
                written: 0,
            });
        }
    }

    fn write(&mut self, place: usize, event: EventToWrite<'_>) -> Result<()> {
        let location = &mut self.locations[place];
        let before = location.writer.out.len();
        let written = location.writer.write(event);
        written.map_err(|source| MergeError::Format {
            path: location.path.clone(),
            source,
        })?;
        let after = location.writer.out.len();
        self.waiting += after - before;
        if after >= MOST_WAITING {
            self.flush(place)?;
        } else if self.waiting >= MOST_WAITING_ALL {
            for place in 0..self.locations.len() {
                self.flush(place)?;
            }
        }
        Ok(())
    }

    fn flush(&mut self, place: usize) -> Result<()> {
        let location = &mut self.locations[place];
        let bytes = &location.writer.out;
        if bytes.is_empty() && location.writer.patches.is_empty() {
            return Ok(());
        }
        if self.open.len() >= MOST_OPEN && !self.open.contains_key(&place) {
            self.open.clear();
        }
        let entry = self.open.entry(place);
        let file = match entry {
            std::collections::hash_map::Entry::Occupied(entry) => entry.into_mut(),
            std::collections::hash_map::Entry::Vacant(entry) => {
                let mut options = OpenOptions::new();
                let file = options.write(true).create(true).open(&location.path);
                entry.insert(file.map_err(io("create", &location.path))?)
            }
        };
        let failed = io("write", &location.path);
        file.write_all_at(bytes, location.written)
            .map_err(&failed)?;
        location.written += bytes.len() as u64;
        self.written += bytes.len() as u64;
        self.waiting -= bytes.len();
        for (at, value) in location.writer.patches.drain(..) {
            file.write_all_at(&value.to_le_bytes(), at)
                .map_err(&failed)?;
        }
        // Kept for what comes next; not more than that.
        location.writer.out.clear();
        if self.locations.len() > MOST_OPEN {
            self.locations[place].writer.out = Vec::new();
        }
        Ok(())
    }

    fn put(&mut self, name: &str, bytes: &[u8]) -> Result<()> {
        let path = self.temporary.join(name);
        self.written += bytes.len() as u64;
        fs::write(&path, bytes).map_err(io("write", &path))
    }

    /// Gives the archive its name. The anchor comes last: without it there is none.
    fn complete(&mut self, anchor: &Path) -> Result<()> {
        let to = |name: &str| anchor.with_file_name(name);
        let stem = self.stem.clone();
        let events = to(&stem);
        if events.exists() {
            // Checked when it was begun: it is of the archive that is replaced.
            let _ = fs::remove_file(anchor);
            fs::remove_dir_all(&events).map_err(io("replace", &events))?;
        }
        for name in [
            stem.clone(),
            format!("{stem}.def"),
            format!("{stem}.marker"),
            format!("{stem}.otf2"),
        ] {
            let (from, to) = (self.temporary.join(&name), to(&name));
            if from.exists() {
                fs::rename(&from, &to).map_err(io("write", &to))?;
            } else if name.ends_with(".marker") {
                let _ = fs::remove_file(&to);
            }
        }
        let _ = fs::remove_dir(&self.temporary);
        self.is_complete = true;
        Ok(())
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        if !self.is_complete {
            let _ = fs::remove_dir_all(&self.temporary);
        }
    }
}

/// The anchor that an output names: itself, or in a directory.
pub fn anchor_of(output: &Path) -> PathBuf {
    if output
        .extension()
        .is_some_and(|extension| extension == "otf2")
    {
        output.to_owned()
    } else {
        output.join("traces.otf2")
    }
}

/// The ticks of a stream's clock.
struct StreamTicks<'a> {
    cursor: MapCursor<'a>,
    map: &'a ClockMap,
    /// Of a map of one piece, where that starts and its run and rise, small enough for 64 bits.
    line: Option<(i64, i128, u64, u64)>,
}

impl<'a> StreamTicks<'a> {
    fn of(map: &'a ClockMap) -> Self {
        let line = match map.knots[..] {
            [(tick_a, time_a), (tick_b, time_b)] => {
                let run = u64::try_from(tick_b - tick_a).ok();
                let rise = u64::try_from(i128::from(time_b) - i128::from(time_a)).ok();
                let pair = run
                    .zip(rise)
                    .filter(|(run, rise)| run.checked_mul(*rise).is_some());
                pair.map(|(run, rise)| (time_a, tick_a, run, rise))
            }
            _ => None,
        };
        Self {
            cursor: MapCursor::new(map),
            map,
            line,
        }
    }

    /// As the cursor does, only faster.
    fn tick(&mut self, time_ns: i64) -> i128 {
        if let Some((time_a, tick_a, run, rise)) = self.line
            && let Some(passed) = time_ns.checked_sub(time_a)
            && let Ok(passed) = u64::try_from(passed)
        {
            // Whole rises and the rest: rounded down as the whole would be.
            let whole = i128::from(passed / rise) * i128::from(run);
            return tick_a + whole + i128::from(passed % rise * run / rise);
        }
        self.cursor.tick(time_ns)
    }
}

struct Losses {
    count: u64,
    cause: u64,
    event: u64,
    is_lower_bound: u64,
}

/// The merge's events on their way.
struct Converter<'a> {
    merge: &'a Merge,
    outgoing: Outgoing<'a>,
    files: Files,
    /// By archive (behind them: ours) and event type.
    plans: Vec<Vec<Option<Plan>>>,
    /// By stream.
    ticks: Vec<Option<StreamTicks<'a>>>,
    /// Whether ticks are those that the only archive had; else they are nanoseconds of the trace.
    has_own_ticks: bool,
    /// By stream.
    process_of: Vec<Option<ProcessId>>,
    translated: Translated,
    first: u64,
    last: u64,
    losses: Option<Losses>,
    markers: Vec<u8>,
    marker_writer: Option<RecordWriter>,
}

impl<'a> Converter<'a> {
    fn new(merge: &'a Merge, files: Files, options: ArchiveOptions) -> Self {
        let ours = &merge.definitions;
        let outgoing = Outgoing::new(ours);
        let mut files = files;
        let ids = outgoing.locations.iter().map(|location| location.id);
        files.add_locations(ids, options.event_chunk_size);
        let mut ticks = Vec::new();
        ticks.resize_with(outgoing.place_of.len(), || None);
        for (id, stream) in &ours.streams {
            let source = ours.sources.get(&stream.source);
            let map = source.and_then(|source| ours.clock_maps.get(&source.clock));
            ticks[id.index()] = map.map(StreamTicks::of);
        }
        let types = ours
            .event_types
            .keys()
            .last()
            .map_or(0, |id| id.index() + 1);
        let plans = vec![vec![None; types]; outgoing.incoming.len() + 1];
        let has_own_ticks = outgoing.is_one_archive();
        let mut process_of = vec![None; outgoing.place_of.len()];
        for id in ours.streams.keys() {
            process_of[id.index()] = ours.process_of(*id);
        }
        Self {
            merge,
            outgoing,
            files,
            plans,
            ticks,
            has_own_ticks,
            process_of,
            translated: Translated::default(),
            first: u64::MAX,
            last: 0,
            losses: None,
            markers: Vec::new(),
            marker_writer: None,
        }
    }

    fn tick(&mut self, stream: StreamId, time_ns: i64, residual: i64) -> u64 {
        let tick = if self.has_own_ticks {
            let ticks = self.ticks[stream.index()].as_mut();
            ticks.map_or(0, |ticks| {
                let tick = ticks.tick(time_ns).saturating_add(residual.into());
                tick.clamp(0, u64::MAX.into()) as u64
            })
        } else {
            u64::try_from(time_ns).unwrap_or(0)
        };
        self.first = self.first.min(tick);
        self.last = self.last.max(tick);
        tick
    }

    fn chunk(&mut self, chunk: &TraceChunk) -> Result<()> {
        let ordinals = chunk.ordinals();
        let mut losses = chunk.losses.iter().peekable();
        for (index, ordinal) in ordinals.iter().enumerate() {
            let time_ns = chunk.times_ns[index];
            while let Some((_, loss)) = losses.next_if(|loss| loss.0 as usize <= index) {
                self.loss(loss, time_ns)?;
            }
            self.event(chunk, index, *ordinal as usize)?;
        }
        losses.try_for_each(|(_, loss)| self.loss(loss, i64::MAX))
    }

    fn event(&mut self, chunk: &TraceChunk, index: usize, ordinal: usize) -> Result<()> {
        let stream = chunk.streams[index];
        let process = self.process_of.get(stream.index()).copied().flatten();
        let place = self.outgoing.place_of.get(stream.index()).copied();
        let (Some(process), Some(to)) = (process, place.filter(|place| *place != usize::MAX))
        else {
            return Ok(());
        };
        let columns = &chunk.types[usize::from(chunk.type_index[index])];
        let archive = self.outgoing.archive_of(process);
        // Processes of one archive have their event types in common.
        let group = archive.unwrap_or(self.outgoing.incoming.len());
        let event_type = columns.event_type.index();
        if self.plans[group]
            .get(event_type)
            .is_some_and(Option::is_none)
        {
            let plan = Plan::new(&mut self.outgoing, process, columns.event_type);
            self.plans[group][event_type] = plan;
        }
        let residual = chunk.tick_residuals.get(index).copied().unwrap_or(0);
        let shift = chunk.shifts_ns.get(index).copied().unwrap_or(0);
        let time_ns = match self.has_own_ticks {
            true => chunk.times_ns[index].saturating_sub(shift),
            false => chunk.times_ns[index],
        };
        let time = self.tick(stream, time_ns, residual);
        let Some(Some(plan)) = self.plans[group].get(event_type) else {
            return Ok(());
        };
        let at = Place {
            columns: &columns.columns,
            ordinal,
            archive,
        };
        let map = self.ticks[stream.index()].as_ref().map(|ticks| ticks.map);
        let has_own_ticks = self.has_own_ticks;
        let ticks = |tick: u64| match map {
            Some(map) if !has_own_ticks => {
                u64::try_from(MapCursor::new(map).time_ns(tick.into())).unwrap_or(0)
            }
            _ => tick,
        };
        let translated = &mut self.translated;
        translate(&mut self.outgoing, plan, at, &ticks, translated);
        let event = EventToWrite {
            id: translated.id,
            time,
            values: &translated.values,
            attributes: &translated.attributes,
            payload: &translated.payload,
        };
        self.files.write(to, event)
    }

    /// Makes a loss visible: recording is off for its time, and a marker tells it.
    fn loss(&mut self, loss: &TraceLoss, until_ns: i64) -> Result<()> {
        let place = self.outgoing.place_of.get(loss.stream.index()).copied();
        let Some(place) = place.filter(|place| *place != usize::MAX) else {
            return Ok(());
        };
        let known = self.losses.get_or_insert_with(|| {
            let mut attribute = |name: &str, code: u8| self.outgoing.attribute(name, code);
            Losses {
                count: attribute("lost", types::UINT64),
                cause: attribute("cause", types::STRING),
                event: attribute("event", types::STRING),
                is_lower_bound: attribute("is_lower_bound", types::UINT8),
            }
        });
        let event = match loss.event_type {
            Some(id) => self.merge.definitions.event_type_name(id),
            None => "any".to_owned(),
        };
        let value = |attribute: u64, type_code: u8, bits: u64| AttributeValue {
            attribute: attribute as u32,
            type_code,
            bits,
        };
        let cause = self.outgoing.string(loss.cause.name());
        let name = self.outgoing.string(&event);
        let attributes = [
            value(known.count, types::UINT64, loss.count),
            value(known.cause, types::STRING, cause),
            value(known.event, types::STRING, name),
            value(
                known.is_lower_bound,
                types::UINT8,
                loss.is_lower_bound.into(),
            ),
        ];
        let end_ns = loss.to_ns.min(until_ns);
        let start_ns = loss.from_ns.min(end_ns);
        let least = self.files.locations[place].writer.last_time();
        let start = self.tick(loss.stream, start_ns, 0).max(least);
        let end = self.tick(loss.stream, end_ns, 0).max(start);
        self.last = self.last.max(end);
        for (time, mode, attributes) in [(start, OFF, &attributes[..]), (end, ON, &[])] {
            let event = EventToWrite {
                id: MEASUREMENT,
                time,
                values: &[mode],
                attributes,
                payload: &[],
            };
            self.files.write(place, event)?;
        }
        let lower = if loss.is_lower_bound { "at least " } else { "" };
        let events = if event == "any" { "events" } else { &event };
        let text = format!("{lower}{} {events} lost: {}", loss.count, loss.cause.name());
        self.mark(start, end - start, self.outgoing.locations[place].id, &text)
    }

    fn mark(&mut self, time: u64, duration: u64, location: u64, what: &str) -> Result<()> {
        let failed = |source| MergeError::Format {
            path: self
                .files
                .temporary
                .join(format!("{}.marker", self.files.stem)),
            source,
        };
        let marker = |name: &str| -> &'static Record {
            let mut all = records::MARKERS.iter();
            all.find(|record| record.name == name)
                .expect("the table has both")
        };
        let text = |text: &str| Datum::Text(text.as_bytes().to_vec());
        let mut bytes = Vec::new();
        if self.marker_writer.is_none() {
            let mut writer = RecordWriter::new(DEFINITION_CHUNK);
            // Of medium severity.
            let severity = Datum::Bits(2);
            let data = [
                Datum::Bits(0),
                text("Annals"),
                text("lost events"),
                severity,
            ];
            put_record(marker("DefMarker"), &data, &mut bytes);
            writer.write(&bytes, &mut self.markers).map_err(failed)?;
            bytes.clear();
            self.marker_writer = Some(writer);
        }
        let mut data = [time, duration, 0, 1, location].map(Datum::Bits).to_vec();
        data.push(text(what));
        put_record(marker("Marker"), &data, &mut bytes);
        if let Some(writer) = &mut self.marker_writer {
            writer.write(&bytes, &mut self.markers).map_err(failed)?;
        }
        Ok(())
    }

    /// Writes what is known at the end: definitions, markers, and last the anchor.
    fn finish(mut self, anchor: &Path, options: ArchiveOptions) -> Result<u64> {
        // Locations that a message's rank asked for have come since.
        let missing = self.files.locations.len();
        let ids: Vec<u64> = self.outgoing.locations[missing..]
            .iter()
            .map(|l| l.id)
            .collect();
        self.files
            .add_locations(ids.into_iter(), options.event_chunk_size);
        let mut empty = Vec::new();
        RecordWriter::new(DEFINITION_CHUNK).finish(&mut empty);
        let mut counts = Vec::new();
        for place in 0..self.files.locations.len() {
            let location = &mut self.files.locations[place];
            let before = location.writer.out.len();
            location.writer.finish();
            self.files.waiting += location.writer.out.len() - before;
            counts.push(location.writer.count());
            let definitions = location.path.with_extension("def");
            self.files.flush(place)?;
            fs::write(&definitions, &empty).map_err(io("write", &definitions))?;
        }
        self.files.open.clear();
        let clock = self.clock();
        let definitions = self.outgoing.finish(clock, &counts);
        let mut writer = RecordWriter::new(DEFINITION_CHUNK);
        let (mut file, mut record) = (Vec::new(), Vec::new());
        for (kind, data) in &definitions {
            record.clear();
            put_record(kind, data, &mut record);
            let written = writer.write(&record, &mut file);
            written.map_err(|source| MergeError::Format {
                path: anchor.with_extension("def"),
                source,
            })?;
        }
        let definition_count = writer.count;
        writer.finish(&mut file);
        let stem = self.files.stem.clone();
        self.files.put(&format!("{stem}.def"), &file)?;
        if let Some(writer) = self.marker_writer.take() {
            let mut markers = std::mem::take(&mut self.markers);
            writer.finish(&mut markers);
            self.files.put(&format!("{stem}.marker"), &markers)?;
        }
        let mut bytes = Vec::new();
        self.anchor(options, definition_count).encode(&mut bytes);
        self.files.put(&format!("{stem}.otf2"), &bytes)?;
        self.files.complete(anchor)?;
        Ok(self.files.written)
    }

    /// Resolution, start, length, wall clock at the start.
    fn clock(&self) -> [u64; 4] {
        let ours = &self.merge.definitions;
        let first = self.first.min(self.last);
        let zero = ours.time_zero;
        let unix_ns = zero.map_or(0, |zero| zero.unix_ns);
        if !self.has_own_ticks {
            let end = zero.map_or(0, |zero| u64::try_from(zero.end_ns).unwrap_or(0));
            let unix = u64::try_from(unix_ns).ok().filter(|unix| *unix != 0);
            return [
                1_000_000_000,
                0,
                end.max(self.last),
                unix.unwrap_or(u64::MAX),
            ];
        }
        if let Some([resolution, offset, length, unix]) = self.outgoing.clock() {
            let end = offset.saturating_add(length).max(self.last);
            // A wall clock is that at the start.
            let offset = offset.min(first);
            return [resolution, offset, end - offset, unix];
        }
        let resolution = ours.clocks.values().next();
        let resolution = resolution.map_or(1_000_000_000, |clock| clock.ticks_per_second);
        [resolution, first, self.last - first, u64::MAX]
    }

    fn anchor(&self, options: ArchiveOptions, definition_count: u64) -> Anchor {
        let incoming = self
            .outgoing
            .incoming
            .first()
            .and_then(|i| i.anchor.as_ref());
        let incoming = incoming.filter(|_| self.outgoing.is_one_archive());
        let processes = self.merge.definitions.processes.values();
        let ids = processes.flat_map(|process| process.recording_id.0);
        // FNV-1a: the same inputs give the same archive.
        let id = ids.fold(0xcbf2_9ce4_8422_2325_u64, |sum, byte| {
            (sum ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        Anchor {
            anchor_format: 3,
            trace_format: 2,
            version: [3, 0, 0],
            event_chunk_size: options.event_chunk_size,
            definition_chunk_size: DEFINITION_CHUNK,
            location_count: self.outgoing.locations.len() as u64,
            definition_count,
            machine: incoming.map_or_else(String::new, |anchor| anchor.machine.clone()),
            creator: format!("Annals {}", env!("CARGO_PKG_VERSION")),
            description: incoming.map_or_else(String::new, |anchor| anchor.description.clone()),
            properties: incoming.map_or_else(Vec::new, |anchor| anchor.properties.clone()),
            trace_id: Some(incoming.and_then(|anchor| anchor.trace_id).unwrap_or(id)),
            snapshot_count: 0,
            thumbnail_count: 0,
        }
    }
}

/// Runs a merge and writes an OTF2 archive; gives what it did and the bytes written. `output` names the anchor
/// (`*.otf2`), or a directory for one. `progress` gets the number of events written so far.
///
/// # Errors
/// If the output cannot be written, or must not be because it would not be complete, or something else than an
/// archive stands in its place; nothing stays under its name then.
pub fn write_archive(
    merge: &Merge,
    output: &Path,
    options: ArchiveOptions,
    progress: impl Fn(u64),
) -> Result<(Merged, u64)> {
    let anchor = anchor_of(output);
    if let Some(directory) = anchor.parent().filter(|path| !path.as_os_str().is_empty()) {
        fs::create_dir_all(directory).map_err(io("create", directory))?;
    }
    let events = anchor.with_extension("");
    let is_free = !events.exists() && !anchor.exists();
    if !is_free && !is_anchor(&anchor) {
        let path = if anchor.exists() { anchor } else { events };
        let exists = std::io::ErrorKind::AlreadyExists.into();
        return Err(io("create", &path)(exists));
    }
    let files = Files::create(&anchor)?;
    let mut converter = Converter::new(merge, files, options);
    let mut events = 0;
    let merged = merge.run(options.jobs, |chunk| {
        converter.chunk(&chunk)?;
        events += chunk.len() as u64;
        progress(events);
        Ok(())
    })?;
    if merge.is_strict && !merged.report.complete {
        return Err(MergeError::Incomplete {
            what: merged.report.first_gap(),
        });
    }
    let bytes = converter.finish(&anchor, options)?;
    Ok((merged, bytes))
}
