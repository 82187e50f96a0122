//! Writing an archive: chunks in global order become the files of its locations, piece by piece; the definitions, which are
//! known at the end, are written last, and the anchor after them.

use super::definitions::OutputDefinitions;
use super::events::{EventPlan, EventRow, MarkerPlan, Rows, Translated, translate};
use super::files::{DEFINITION_CHUNK, Files, MarkerFile, UNFINISHED, Waiting};
use super::streams::{StreamPlace, StreamTicks};
use annals_foreign::otf2::conventions::{
    CREATOR, definition_record, is_start_unset, kind_of_scope, marker_record,
};
use annals_foreign::otf2::enums::measurement_mode;
use annals_foreign::otf2::is_anchor;
use annals_foreign::otf2::records::ids;
use annals_foreign::otf2::{
    Anchor, AttributeValue, Datum, DefinitionKind, EventToWrite, RecordWriter, put_record, types,
};
use annals_format::{EventTypeId, MapCursor, OrderedChunk, ProcessId, StreamId, TraceLoss};
use annals_merger::{ArchiveReport, MergeError, Query, ReadSummary, Reader, Result, Window};
use std::collections::BTreeMap;
use std::fs::{self};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

const EVENT_CHUNK: u64 = 1 << 20;

/// How an archive is written.
#[derive(Clone, Copy, Debug)]
pub struct ArchiveOptions {
    /// Bytes of a chunk of events: 256 KiB to 16 MiB.
    pub event_chunk_size: u64,
    /// Whether an incomplete input is an error: one that is damaged or cut off, a rank that is missing.
    pub strict: bool,
}

impl Default for ArchiveOptions {
    fn default() -> Self {
        Self {
            event_chunk_size: EVENT_CHUNK,
            strict: false,
        }
    }
}

/// Returns the anchor that an output names: itself, or in a directory.
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

struct Losses {
    count: u64,
    cause: u64,
    event: u64,
    is_lower_bound: u64,
}

/// Events on their way.
struct Converter<'a> {
    reader: &'a Reader,
    /// Which of them are written.
    query: &'a Query,
    outgoing: OutputDefinitions<'a>,
    files: Files,
    /// By group and event type.
    plans: Vec<Vec<Option<EventPlan>>>,
    streams: Vec<StreamPlace<'a>>,
    /// Whether ticks are those that the only archive had; else they are nanoseconds of the trace.
    has_own_ticks: bool,
    /// The group that all streams are of, if it is one, and a process of it.
    only_group: Option<(usize, ProcessId)>,
    /// Of the chunk, by type: its events as records, if they are all alike.
    rows: Vec<(bool, Rows)>,
    translated: Translated,
    first: u64,
    last: u64,
    losses: Option<Losses>,
    /// Events without a record, by type.
    left_out: BTreeMap<EventTypeId, u64>,
    markers: Option<MarkerFile>,
}

impl<'a> Converter<'a> {
    fn new(reader: &'a Reader, query: &'a Query, files: Files, options: ArchiveOptions) -> Self {
        let ours = reader.definitions();
        let outgoing = OutputDefinitions::new(ours);
        let mut files = files;
        let ids = outgoing.locations.iter().map(|location| location.id);
        files.add_locations(ids, options.event_chunk_size);
        let streams = (0..outgoing.place_of.len() as u32).map(|number| {
            let id = StreamId::new(number);
            let process = ours.process_of(id);
            let archive = process.and_then(|process| outgoing.archive_of(process));
            let stream = ours.streams.get(&id);
            let source = stream.and_then(|stream| ours.sources.get(&stream.source));
            let map = source.and_then(|source| ours.clock_maps.get(&source.clock));
            let place = outgoing.place_of[id.index()];
            StreamPlace {
                process,
                archive,
                group: archive.unwrap_or(outgoing.incoming.len()),
                location: (place != usize::MAX).then_some(place),
                ticks: map.map(StreamTicks::of),
            }
        });
        let streams: Vec<StreamPlace<'_>> = streams.collect();
        let mut groups = streams
            .iter()
            .filter_map(|stream| Some((stream.group, stream.process?)));
        let only_group = groups.next();
        let only_group = only_group.filter(|(group, _)| groups.all(|(other, _)| other == *group));
        let types = ours
            .event_types
            .keys()
            .last()
            .map_or(0, |id| id.index() + 1);
        let plans = vec![vec![None; types]; outgoing.incoming.len() + 1];
        let has_own_ticks = outgoing.is_one_archive();
        Self {
            reader,
            query,
            outgoing,
            files,
            plans,
            streams,
            has_own_ticks,
            only_group,
            rows: Vec::new(),
            translated: Translated::default(),
            first: u64::MAX,
            last: 0,
            losses: None,
            left_out: BTreeMap::new(),
            markers: None,
        }
    }

    /// Returns the archive's time.
    fn tick(&mut self, stream: StreamId, time_ns: i64, residual: i64) -> u64 {
        let tick = self.streams[stream.index()].time(self.has_own_ticks, time_ns, residual);
        self.first = self.first.min(tick);
        self.last = self.last.max(tick);
        tick
    }

    fn chunk(&mut self, chunk: &OrderedChunk) -> Result<()> {
        self.make_rows(chunk);
        let mut losses = chunk.losses().peekable();
        for (event, time_ns) in chunk.times_ns().enumerate() {
            while let Some((_, loss)) = losses.next_if(|loss| loss.0 <= event) {
                self.loss(loss, time_ns)?;
            }
            self.event(chunk, event)?;
        }
        losses.try_for_each(|(_, loss)| self.loss(loss, i64::MAX))
    }

    /// Makes records of what is alike in the chunk.
    fn make_rows(&mut self, chunk: &OrderedChunk) {
        let count = chunk.types().count();
        if self.rows.len() < count {
            self.rows.resize_with(count, Default::default);
        }
        self.rows
            .iter_mut()
            .for_each(|(is_made, _)| *is_made = false);
        let Some((group, process)) = self.only_group else {
            return;
        };
        let archive = self.outgoing.archive_of(process);
        for (columns, (is_made, rows)) in chunk.types().zip(&mut self.rows) {
            let Some(plan) = self.plans[group].get_mut(columns.event_type.index()) else {
                continue;
            };
            if plan.is_none() {
                *plan = EventPlan::new(&mut self.outgoing, process, columns.event_type);
            }
            if let Some(plan) = plan {
                let own = self.has_own_ticks;
                *is_made = rows.make(&mut self.outgoing, plan, archive, columns, own);
            }
        }
    }

    fn event(&mut self, chunk: &OrderedChunk, event: usize) -> Result<()> {
        let (stream, ordinal) = (chunk.stream(event), chunk.ordinal(event));
        let is_wanted = self.query.takes_stream(stream)
            && self.query.takes_event_type(chunk.columns(event).event_type)
            && self.query.window().contains(chunk.time_ns(event));
        if !is_wanted {
            return Ok(());
        }
        let Some(to) = self.streams.get_mut(stream.index()) else {
            return Ok(());
        };
        let Some(process) = to.process else {
            return Ok(());
        };
        let (group, archive, location) = (to.group, to.archive, to.location);
        let residual = chunk.tick_residual(event);
        let time_ns = match self.has_own_ticks {
            true => chunk.time_ns(event).saturating_sub(chunk.shift_ns(event)),
            false => chunk.time_ns(event),
        };
        let time = to.time(self.has_own_ticks, time_ns, residual);
        self.first = self.first.min(time);
        self.last = self.last.max(time);
        let type_number = chunk.type_number(event);
        if let (Some(location), Some((true, rows))) = (location, self.rows.get(type_number)) {
            let event = EventToWrite {
                id: rows.id,
                time,
                values: rows.values(ordinal),
                attributes: rows.attributes(ordinal),
                payload: &[],
            };
            return self.files.write(location, event);
        }
        let columns = chunk.columns(event);
        let event_type = columns.event_type.index();
        if self.plans[group]
            .get(event_type)
            .is_some_and(Option::is_none)
        {
            let plan = EventPlan::new(&mut self.outgoing, process, columns.event_type);
            self.plans[group][event_type] = plan;
        }
        let Some(Some(plan)) = self.plans[group].get(event_type) else {
            return self.leave_out(columns.event_type);
        };
        let at = EventRow {
            columns: &columns.columns,
            ordinal,
            archive,
            first_rank: self.outgoing.ours.first_rank(process),
            process,
            location: location.unwrap_or(usize::MAX),
        };
        match plan {
            EventPlan::Marker(plan) => {
                let plan = *plan;
                let raw = self.streams[stream.index()].raw_tick(time_ns, residual);
                return self.marker(plan, at, stream, time, raw);
            }
            EventPlan::LeftOut => return self.leave_out(columns.event_type),
            EventPlan::Record { .. } | EventPlan::Role(_) => {}
        }
        let Some(location) = location else {
            return self.leave_out(columns.event_type);
        };
        let map = self.streams[stream.index()].ticks.as_ref();
        let map = map.map(|ticks| ticks.map);
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
        self.files.write(location, event)
    }

    /// Counts an event that is not written.
    fn leave_out(&mut self, event_type: EventTypeId) -> Result<()> {
        *self.left_out.entry(event_type).or_default() += 1;
        Ok(())
    }

    /// Writes an event that was made of a marker as the marker that it was. `raw`: its tick.
    fn marker(
        &mut self,
        plan: MarkerPlan,
        at: EventRow<'_>,
        stream: StreamId,
        time: u64,
        raw: u64,
    ) -> Result<()> {
        let number = |column: usize| at.columns[column].get(at.ordinal).to_bits().unwrap_or(0);
        let mut duration = number(plan.duration);
        if !self.has_own_ticks
            && let Some(ticks) = &self.streams[stream.index()].ticks
        {
            let end = MapCursor::new(ticks.map).time_ns(i128::from(raw) + i128::from(duration));
            duration = u64::try_from(end).unwrap_or(0).saturating_sub(time);
        }
        self.last = self.last.max(time.saturating_add(duration));
        let (definition, scope_type) = (number(plan.definition), number(plan.scope_type));
        let mut scope = number(plan.scope);
        let definition = match at.archive {
            None => definition,
            Some(archive) => {
                if let Some(kind) = kind_of_scope(scope_type) {
                    scope = self.outgoing.incoming[archive].map(kind, scope);
                }
                self.outgoing.marker_definition(archive, definition)
            }
        };
        let text = at.columns[plan.text].get(at.ordinal);
        let text = text.as_bytes().unwrap_or(&[]).to_vec();
        let data = [time, duration, definition, scope_type, scope];
        let mut data = data.map(Datum::Bits).to_vec();
        data.push(Datum::Text(text));
        self.marker_file()?.write(marker_record(), &data)
    }

    /// Returns the file of markers; its first records are the definitions that archives have.
    fn marker_file(&mut self) -> Result<&mut MarkerFile> {
        if self.markers.is_none() {
            let path = self
                .files
                .temporary
                .join(format!("{}.marker", self.files.stem));
            let mut file = MarkerFile::create(path)?;
            for data in &self.outgoing.marker_definitions {
                file.write(definition_record(), data)?;
            }
            self.markers = Some(file);
        }
        Ok(self.markers.as_mut().expect("it was made"))
    }

    /// Makes a loss visible: recording is off for its time, and a marker reports it.
    fn loss(&mut self, loss: &TraceLoss, until_ns: i64) -> Result<()> {
        let to = self.streams.get(loss.stream.index());
        let Some(to) = to.filter(|_| self.query.takes_loss(loss)) else {
            return Ok(());
        };
        let place = to.location;
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
            Some(id) => self.reader.definitions().event_type_name(id),
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
        let least = place.map_or(0, |place| self.files.locations[place].writer.last_time());
        let start = self.tick(loss.stream, start_ns, 0).max(least);
        let end = self.tick(loss.stream, end_ns, 0).max(start);
        self.last = self.last.max(end);
        for (time, mode, attributes) in [
            (start, measurement_mode::OFF, &attributes[..]),
            (end, measurement_mode::ON, &[]),
        ] {
            let event = EventToWrite {
                id: ids::MEASUREMENT_ON_OFF,
                time,
                values: &[mode],
                attributes,
                payload: &[],
            };
            if let Some(place) = place {
                self.files.write(place, event)?;
            }
        }
        let lower = if loss.is_lower_bound { "at least " } else { "" };
        let events = if event == "any" { "events" } else { &event };
        let text = format!("{lower}{} {events} lost: {}", loss.count, loss.cause.name());
        let location = place.map(|place| self.outgoing.locations[place].id);
        self.mark(start, end - start, location, &text)
    }

    /// Marks a loss, at a location or of the whole.
    fn mark(&mut self, time: u64, duration: u64, location: Option<u64>, what: &str) -> Result<()> {
        let text = |text: &str| Datum::Text(text.as_bytes().to_vec());
        let number = self.outgoing.next_marker;
        let file = self.marker_file()?;
        let definition = match file.of_losses {
            Some(definition) => definition,
            None => {
                // Of medium severity.
                let data = [
                    Datum::Bits(number),
                    text("Annals"),
                    text("lost events"),
                    Datum::Bits(2),
                ];
                file.write(definition_record(), &data)?;
                file.of_losses = Some(number);
                number
            }
        };
        let (scope_type, scope) = match location {
            Some(location) => (1, location),
            None => (0, DefinitionKind::Location.undefined()),
        };
        let data = [time, duration, definition, scope_type, scope];
        let mut data = data.map(Datum::Bits).to_vec();
        data.push(text(what));
        file.write(marker_record(), &data)
    }

    /// Writes what is known at the end: definitions, markers, and last the anchor. Returns the size in bytes, and what
    /// the archive does not have.
    fn finish(mut self, anchor: &Path, options: ArchiveOptions) -> Result<(u64, ArchiveReport)> {
        let counts = self.files.locations.iter().map(Waiting::counts);
        let mut report = self.outgoing.settle(&counts.collect::<Vec<_>>());
        for (event_type, count) in &self.left_out {
            let name = self.reader.definitions().event_type_name(*event_type);
            *report.left_out.entry(name).or_default() += count;
        }
        // Locations of ranks that are missing were added.
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
            if self.outgoing.locations[place].is_left_out {
                counts.push(0);
                continue;
            }
            counts.push(self.files.finish(place)?);
            let definitions = self.files.locations[place].path.with_extension("def");
            fs::write(&definitions, &empty).map_err(MergeError::io("write", &definitions))?;
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
            written.map_err(MergeError::format(&anchor.with_extension("def")))?;
        }
        let definition_count = writer.count;
        writer.finish(&mut file);
        let stem = self.files.stem.clone();
        self.files.put(&format!("{stem}.def"), &file)?;
        if !self.outgoing.marker_definitions.is_empty() {
            self.marker_file()?;
        }
        if let Some(file) = self.markers.take() {
            self.files.written += file.finish()?;
        }
        let mut bytes = Vec::new();
        self.anchor(options, definition_count).encode(&mut bytes);
        self.files.put(&format!("{stem}.otf2"), &bytes)?;
        self.files.complete(anchor)?;
        Ok((self.files.written, report))
    }

    /// Returns resolution, start, length, and the wall clock at the start.
    fn clock(&self) -> [u64; 4] {
        let ours = self.reader.definitions();
        let has_events = self.first <= self.last;
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
            let anchor = self.outgoing.incoming.first();
            let anchor = anchor.and_then(|archive| archive.anchor.as_ref());
            let is_unset = offset == 0
                && anchor.is_some_and(|anchor| is_start_unset(anchor, length, first, self.last));
            // A wall clock is that at the start.
            let offset = match has_events {
                true if is_unset => first,
                true => offset.min(first),
                false => offset,
            };
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
        let locations = self.outgoing.locations.iter();
        let processes = self.reader.definitions().processes.values();
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
            location_count: locations.filter(|location| !location.is_left_out).count() as u64,
            definition_count,
            machine: incoming.map_or_else(String::new, |anchor| anchor.machine.clone()),
            creator: format!("{CREATOR} {}", env!("CARGO_PKG_VERSION")),
            description: incoming.map_or_else(String::new, |anchor| anchor.description.clone()),
            properties: incoming.map_or_else(Vec::new, |anchor| anchor.properties.clone()),
            trace_id: Some(incoming.and_then(|anchor| anchor.trace_id).unwrap_or(id)),
            snapshot_count: 0,
            thumbnail_count: 0,
        }
    }
}

/// Returns whether these files were left by a writer that was killed while it renamed an archive. Other files of events
/// without an anchor were not written by us.
fn is_left_over(anchor: &Path, events: &Path) -> bool {
    !anchor.exists() && events.join(UNFINISHED).exists()
}

/// What was written.
#[derive(Debug)]
pub struct Written {
    /// The summary of the read.
    pub summary: ReadSummary,
    /// What the archive does not have.
    pub report: ArchiveReport,
    /// Bytes of the files.
    pub bytes: u64,
}

/// Writes the events of a query as an OTF2 archive. `output` names the anchor (`*.otf2`), or a directory for one. Regions cannot be chosen:
/// calls would not nest. `progress` gets the number of events read so far, and can stop the export.
///
/// # Errors
/// If the input cannot be read, or the output not be written, or must not be because it would not be complete, or something else than an
/// archive is in its place; [`MergeError::Stopped`] if `progress` stopped it. Nothing is left under its name then.
pub fn write_archive(
    reader: &Reader,
    query: &Query,
    output: &Path,
    options: ArchiveOptions,
    mut progress: impl FnMut(u64) -> ControlFlow<()>,
) -> Result<Written> {
    let anchor = anchor_of(output);
    if let Some(directory) = anchor.parent().filter(|path| !path.as_os_str().is_empty()) {
        fs::create_dir_all(directory).map_err(MergeError::io("create", directory))?;
    }
    let events = anchor.with_extension("");
    let is_free = !events.exists() && !anchor.exists();
    if !is_free && !is_anchor(&anchor) && !is_left_over(&anchor, &events) {
        let path = if anchor.exists() { anchor } else { events };
        return Err(MergeError::OutputIsNoArchive { path });
    }
    let files = Files::create(&anchor)?;
    let mut converter = Converter::new(reader, query, files, options);
    let mut events = 0;
    let summary = reader.for_each_chunk(Window::ALL, |chunk: OrderedChunk| {
        converter.chunk(&chunk)?;
        events += chunk.len() as u64;
        match progress(events) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(MergeError::Stopped),
        }
    })?;
    if let Some(what) = summary.gap().filter(|_| options.strict) {
        return Err(MergeError::Incomplete { what });
    }
    let (bytes, report) = converter.finish(&anchor, options)?;
    Ok(Written {
        summary,
        report,
        bytes,
    })
}
