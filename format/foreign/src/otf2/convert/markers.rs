//! The markers of an archive. Their file is read like that of a location, and becomes a separate stream: each marker is
//! an event at its time, with the contents of its definition as elements.

use super::event_types::{ElementSource, EventTypePlan, EventTypes, MarkerField};
use super::file::{LocationFile, disagreement, each_chunk, problem_of};
use super::scan::{FilePart, PART_EVENTS, PART_TICKS, Scanned};
use crate::otf2::conventions::{definition_record, kind_of_scope, marker_record};
use crate::otf2::records::marker_ids;
use crate::otf2::{
    ChunkEnd, Datum, Endian, GlobalDefinitions, RawRecord, RawRecords, Record, put_record,
    read_fields, records,
};
use annals_format::{Cause, Chunk, Problem, Result, TypeColumns};
use std::collections::BTreeMap;
use std::path::Path;

/// Common properties of markers of one kind.
#[derive(Clone, Debug)]
pub(crate) struct MarkerDefinition {
    group: Vec<u8>,
    category: Vec<u8>,
    severity: u64,
    /// The record's bytes in the little-endian order.
    pub(crate) record: Vec<u8>,
}

/// The markers of an archive.
#[derive(Debug)]
pub(crate) struct Markers {
    /// As if it were a location's.
    pub(crate) file: LocationFile,
    /// By their numbers; of several with one number the first.
    pub(crate) definitions: BTreeMap<u64, MarkerDefinition>,
}

impl MarkerDefinition {
    fn of(data: &[Datum]) -> Option<(u64, Self)> {
        let [number, group, category, severity] = data else {
            return None;
        };
        let mut record = Vec::new();
        put_record(definition_record(), data, &mut record);
        let definition = Self {
            group: group.text().to_vec(),
            category: category.text().to_vec(),
            severity: severity.bits()?,
            record,
        };
        Some((number.bits()?, definition))
    }
}

/// The pass over the file.
struct Pass {
    scanned: Scanned,
    definitions: BTreeMap<u64, MarkerDefinition>,
    open: Option<FilePart>,
}

impl Pass {
    fn close(&mut self) {
        if let Some(mut part) = self.open.take() {
            let key = u32::from(marker_ids::MARKER);
            part.counts = vec![(key, part.events)];
            *self.scanned.counts.entry(key).or_default() += part.events;
            self.scanned.parts.push(part);
        }
    }

    fn marker(&mut self, time: u64, offset: u64, end: u64, endian: Endian) {
        let is_far =
            |part: &FilePart| part.least.abs_diff(time).max(part.most.abs_diff(time)) > PART_TICKS;
        if let Some(part) = &self.open
            && (part.events >= u64::from(PART_EVENTS) || is_far(part))
        {
            self.close();
        }
        let part = self
            .open
            .get_or_insert_with(|| FilePart::starting(offset, endian, time));
        if time < part.most {
            part.inversions += 1;
            part.largest_lateness = part.largest_lateness.max(part.most - time);
        }
        part.least = part.least.min(time);
        part.most = part.most.max(time);
        part.last = time;
        part.events += 1;
        part.length = end - part.offset;
    }

    /// Adds a record, or returns what is wrong with it.
    fn record(&mut self, raw: RawRecord<'_>, offset: u64, end: u64, endian: Endian) -> Result<()> {
        let Some(record) = Record::find(records::MARKERS, raw.id) else {
            return Ok(());
        };
        let data = read_fields(record, raw.payload, endian)?;
        if raw.id == marker_ids::DEF_MARKER {
            if let Some((number, definition)) = MarkerDefinition::of(&data) {
                self.definitions.entry(number).or_insert(definition);
            }
        } else {
            self.marker(data[0].bits().unwrap_or(0), offset, end, endian);
        }
        Ok(())
    }

    fn chunk(
        &mut self,
        path: &Path,
        bytes: &[u8],
        offset: u64,
        problems: &mut Vec<Problem>,
    ) -> Option<ChunkEnd> {
        let mut records = match RawRecords::new(bytes) {
            Ok(records) => records,
            Err(error) => {
                problems.push(problem_of(path, offset, bytes.len() as u64, error));
                self.count_lost(Cause::Skipped, true);
                return None;
            }
        };
        let endian = records.endian();
        while let Some(read) = records.next() {
            let end = offset + records.position() as u64;
            let (at, outcome) = match read {
                Ok(raw) => {
                    let at = offset + raw.offset as u64;
                    (at, self.record(raw, at, end, endian))
                }
                Err(error) => {
                    // Where the next record would be is not known.
                    problems.push(problem_of(
                        path,
                        end,
                        offset + bytes.len() as u64 - end,
                        error,
                    ));
                    self.close();
                    self.count_lost(Cause::Truncated, true);
                    return None;
                }
            };
            if let Err(error) = outcome {
                problems.push(problem_of(path, at, end - at, error));
                self.close();
                self.count_lost(Cause::Skipped, false);
            }
        }
        self.close();
        records.end
    }

    fn count_lost(&mut self, cause: Cause, is_lower_bound: bool) {
        let key = Some(marker_ids::MARKER.into());
        self.scanned.count_lost(key, cause, 1, is_lower_bound);
    }
}

impl Markers {
    /// Reads the file of markers, if there is one.
    pub(crate) fn of(path: &Path, chunk_size: u64) -> Option<Self> {
        if !path.exists() {
            return None;
        }
        let mut pass = Pass {
            scanned: Scanned::nothing(),
            definitions: BTreeMap::new(),
            open: None,
        };
        let mut problems = Vec::new();
        let read = each_chunk(
            path,
            chunk_size,
            &mut problems,
            |chunk, offset, problems| pass.chunk(path, chunk, offset, problems),
        );
        match read {
            Err(error) => {
                problems.push(problem_of(path, 0, 0, error.without_path()));
                pass.count_lost(Cause::Skipped, true);
            }
            Ok(false) if pass.scanned.lost.is_empty() => pass.count_lost(Cause::Truncated, true),
            Ok(_) => {}
        }
        let mut scanned = pass.scanned;
        scanned.bytes = std::fs::metadata(path).map_or(0, |metadata| metadata.len());
        scanned.problems = problems;
        let file = LocationFile::of_markers(path, scanned);
        Some(Self {
            file,
            definitions: pass.definitions,
        })
    }

    /// Returns whether there is anything: a marker, a definition, or damage.
    pub(crate) fn is_anything(&self) -> bool {
        let scanned = &self.file.scanned;
        !(scanned.parts.is_empty() && scanned.problems.is_empty() && self.definitions.is_empty())
    }
}

/// Reads a part's markers.
pub(crate) fn decode(
    event_types: &EventTypes,
    archive: &GlobalDefinitions,
    markers: &Markers,
    part: &FilePart,
) -> Result<Chunk> {
    let plan = event_types.plan_of_record(marker_ids::MARKER);
    let plan = plan.ok_or_else(|| disagreement(part.offset))?;
    let bytes = markers.file.bytes_of(part)?;
    let elements = plan.definition.elements.iter();
    let mut columns = TypeColumns::new(plan.id, elements.map(|element| element.element_type));
    let mut chunk = Chunk::default();
    for raw in RawRecords::of_part(&bytes, part.endian) {
        let raw = raw?;
        if raw.id != marker_ids::MARKER {
            continue;
        }
        let Ok(data) = read_fields(marker_record(), raw.payload, part.endian) else {
            continue;
        };
        chunk.ticks.push(data[0].bits().unwrap_or(0));
        chunk.type_index.push(0);
        columns.count += 1;
        push(plan, archive, &markers.definitions, &data, &mut columns);
        if chunk.ticks.len() as u64 == part.events {
            break;
        }
    }
    if chunk.ticks.len() as u64 != part.events {
        return Err(disagreement(part.offset));
    }
    chunk.types.push(columns);
    Ok(chunk)
}

fn push(
    plan: &EventTypePlan,
    archive: &GlobalDefinitions,
    definitions: &BTreeMap<u64, MarkerDefinition>,
    data: &[Datum],
    columns: &mut TypeColumns,
) {
    let bits = |at: usize| data[at].bits().unwrap_or(0);
    let definition = definitions.get(&bits(2));
    let scope = kind_of_scope(bits(3)).map(|kind| archive.name(kind, bits(4)));
    let scope = scope.filter(|name| !name.is_empty());
    for (column, from) in columns.columns.iter_mut().zip(&plan.sources) {
        let ElementSource::Marker(of) = from else {
            continue;
        };
        let (value, text) = match of {
            MarkerField::Category => (None, definition.map(|d| &d.category[..])),
            MarkerField::Group => (None, definition.map(|d| &d.group[..])),
            MarkerField::Severity => (definition.map(|d| d.severity), None),
            MarkerField::Text => (None, Some(data[5].text())),
            MarkerField::ScopeName => (None, scope.as_deref().map(str::as_bytes)),
            MarkerField::Duration => (Some(bits(1)), None),
            MarkerField::ScopeType => (Some(bits(3)), None),
            MarkerField::Scope => (Some(bits(4)), None),
            MarkerField::Definition => (Some(bits(2)), None),
        };
        match (value, text) {
            (Some(value), _) => column.push_bits(value),
            (None, Some(text)) => column.push_text(text),
            (None, None) => column.push_absent(),
        }
    }
}
