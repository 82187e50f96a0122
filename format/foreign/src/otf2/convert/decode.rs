//! A part of a location's file becomes a chunk.

use super::archive::Archive;
use super::event_types::{CollectiveField, ElementSource, EventTypePlan};
use super::file::{LocationFile, disagreement};
use super::open_regions::OpenRegions;
use super::scan::{Collective, FIRST_COMPOSITION, FilePart};
use crate::otf2::conventions::put_attribute;
use crate::otf2::records::ids;
use crate::otf2::{
    AttributeValue, ClockCorrection, DefinitionKind, EventReader, GlobalDefinitions, Item, types,
};
use annals_format::{Chunk, Column, Result, TypeColumns};
use rustc_hash::FxHashMap;

const ABSENT: u16 = u16::MAX;

/// A decoder of one part.
struct Decoder<'a> {
    archive: &'a Archive,
    rank: Option<u64>,
    plans: Vec<&'a EventTypePlan>,
    /// Places in `plans` by record.
    by_record: [u16; 256],
    by_composition: FxHashMap<Vec<u8>, u16>,
    chunk: Chunk,
    correction: ClockCorrection,
    /// Begins of collective operations whose end is to come: how many.
    begins: usize,
    /// The fields of begins that are taken from their ends, by begin.
    collectives: Vec<Option<Collective>>,
    places: FxHashMap<u64, Option<u64>>,
    scratch: Vec<u8>,
    used: Vec<bool>,
    open: OpenRegions,
    /// The region that a leave ends.
    ended: u64,
}

/// Reads a part's events.
pub(crate) fn decode(archive: &Archive, location: &LocationFile, part: &FilePart) -> Result<Chunk> {
    let bytes = location.bytes_of(part)?;
    let mut decoder = Decoder {
        archive,
        rank: location.rank,
        plans: Vec::new(),
        by_record: [ABSENT; 256],
        by_composition: FxHashMap::default(),
        chunk: Chunk::default(),
        correction: location.correction.clone(),
        begins: 0,
        collectives: Vec::new(),
        places: FxHashMap::default(),
        scratch: Vec::new(),
        used: Vec::new(),
        open: part.open.clone(),
        ended: 0,
    };
    decoder.correction.set_place(part.interval);
    decoder.prepare(location, part);
    decoder.run(location, part, &bytes)?;
    Ok(decoder.finish(part))
}

impl<'a> Decoder<'a> {
    fn prepare(&mut self, location: &LocationFile, part: &FilePart) {
        let archive = self.archive;
        let definitions: &GlobalDefinitions = &archive.definitions;
        let mut keyed: Vec<(&EventTypePlan, u32)> = Vec::new();
        for (key, _) in &part.counts {
            if let Some(plan) = archive
                .event_types
                .plan(definitions, &location.scanned, *key)
            {
                keyed.push((plan, *key));
            }
        }
        keyed.sort_by_key(|(plan, _)| plan.id);
        for (plan, key) in keyed {
            if self.plans.last().is_none_or(|last| last.id != plan.id) {
                self.plans.push(plan);
                let elements = plan.definition.elements.iter();
                let columns = TypeColumns::new(plan.id, elements.map(|e| e.element_type));
                self.chunk.types.push(columns);
            }
            let place = self.plans.len() as u16 - 1;
            match key.checked_sub(FIRST_COMPOSITION) {
                None => self.by_record[key as usize] = place,
                Some(composition) => {
                    let (metric, types) = &location.scanned.compositions[composition as usize];
                    let mut bytes = metric.to_le_bytes().to_vec();
                    bytes.extend_from_slice(types);
                    self.by_composition.insert(bytes, place);
                }
            }
        }
    }

    fn run(&mut self, location: &LocationFile, part: &FilePart, bytes: &[u8]) -> Result<()> {
        let count = part.events as usize;
        self.chunk.ticks.reserve(count);
        self.chunk.type_index.reserve(count);
        let mut reader = EventReader::of_part(bytes, part.endian, part.time);
        let mut corrected = (part.time, None);
        for _ in 0..count {
            match reader.next_item() {
                Ok(Item::Event) => {}
                Ok(_) => return Err(disagreement(part.offset)),
                Err(error) => return Err(error),
            }
            let tick = match corrected {
                (time, Some(tick)) if time == reader.time => tick,
                _ => self.correction.correct(reader.time),
            };
            corrected = (reader.time, Some(tick));
            let id = reader.id;
            let place = match reader.record() {
                Some(record) => {
                    let (values, attributes) = (&mut reader.values, &mut reader.attributes);
                    location.local.globalize(record, values, attributes);
                    if id == ids::METRIC {
                        self.place_of_metric(&reader.values)
                    } else {
                        self.by_record[usize::from(id)]
                    }
                }
                None => {
                    location.local.globalize_attributes(&mut reader.attributes);
                    self.by_record[usize::from(id)]
                }
            };
            if place == ABSENT {
                return Err(disagreement(part.offset));
            }
            match id {
                ids::ENTER => self.open.enter(reader.values[0]),
                ids::LEAVE => self.ended = self.open.leave(reader.values[0]),
                ids::MEASUREMENT_ON_OFF => self.open.note_gap(),
                ids::BUFFER_FLUSH => reader.values[0] = self.correction.correct(reader.values[0]),
                ids::MPI_COLLECTIVE_BEGIN => self.begins += 1,
                ids::MPI_COLLECTIVE_END => {
                    let collective = reader.values.first_chunk().copied();
                    self.end_collectives(collective);
                }
                _ => {}
            }
            self.chunk.ticks.push(tick);
            self.chunk.type_index.push(place);
            self.push(usize::from(place), &reader);
        }
        Ok(())
    }

    fn place_of_metric(&mut self, values: &[u64]) -> u16 {
        self.scratch.clear();
        self.scratch.extend_from_slice(&values[0].to_le_bytes());
        let type_codes = values[1..].iter().step_by(2);
        self.scratch.extend(type_codes.map(|code| *code as u8));
        let known = self.by_composition.get(&self.scratch).copied();
        known.unwrap_or(self.by_record[usize::from(ids::METRIC)])
    }

    fn end_collectives(&mut self, collective: Option<Collective>) {
        for _ in 0..std::mem::take(&mut self.begins) {
            self.collectives.push(collective);
        }
    }

    fn own_place(&mut self, communicator: u64) -> Option<u64> {
        let (world, rank) = (&self.archive.world, self.rank);
        let place = self.places.entry(communicator);
        *place.or_insert_with(|| world.place(communicator, rank))
    }

    #[inline]
    fn push(&mut self, place: usize, reader: &EventReader<'_>) {
        let plan = self.plans[place];
        self.chunk.types[place].count += 1;
        let values = &reader.values;
        let numberings = &self.archive.numberings;
        for (index, from) in plan.sources[..plan.first_attribute].iter().enumerate() {
            let optional = match *from {
                ElementSource::Value(at) | ElementSource::Time(at) => Some(values[at]),
                ElementSource::Reference(at, kind) => {
                    Some(numberings.of_kind(kind).get(values[at]).into())
                }
                ElementSource::CallPath(at) => {
                    let context = self.archive.contexts.get(values[at]);
                    context.map(|context| context.path.into())
                }
                ElementSource::RegionOfContext(at) => {
                    let context = self.archive.contexts.get(values[at]);
                    let region = context.map_or(u64::MAX, |context| context.region);
                    Some(
                        numberings
                            .of_kind(DefinitionKind::Region)
                            .get(region)
                            .into(),
                    )
                }
                ElementSource::Period(at) => self.archive.contexts.period_ns(values[at]),
                ElementSource::Ended => {
                    let numbering = numberings.of_kind(DefinitionKind::Region);
                    Some(numbering.get(self.ended).into())
                }
                ElementSource::Sum(a, b) => Some(values[a].saturating_add(values[b])),
                ElementSource::Rank(rank, communicator) => {
                    let world = &self.archive.world;
                    let rank = world.rank(values[communicator], values[rank], self.rank);
                    rank.filter(|rank| *rank < u64::from(u32::MAX))
                }
                ElementSource::Size(communicator) => self.archive.world.size(values[communicator]),
                ElementSource::Place(communicator) => self.own_place(values[communicator]),
                ElementSource::Item(at) => values.get(at).copied(),
                ElementSource::TextItem(at) => {
                    let numbering = numberings.of_kind(DefinitionKind::String);
                    values.get(at).map(|id| numbering.get(*id).into())
                }
                ElementSource::Rest(at) => {
                    let column = &mut self.chunk.types[place].columns[index];
                    match values.get(at..).filter(|rest| !rest.is_empty()) {
                        None => column.push_absent(),
                        Some(rest) => {
                            let bytes = rest.iter().flat_map(|value| value.to_le_bytes());
                            column.push_text(&bytes.collect::<Vec<u8>>());
                        }
                    }
                    continue;
                }
                ElementSource::Payload => {
                    self.chunk.types[place].columns[index].push_text(reader.payload);
                    continue;
                }
                // At the end, when all of them are known.
                ElementSource::Collective(_) => continue,
                ElementSource::Attribute(..)
                | ElementSource::Attributes
                | ElementSource::Marker(_) => None,
            };
            let column = &mut self.chunk.types[place].columns[index];
            match optional {
                Some(bits) => column.push_bits(bits),
                None => column.push_absent(),
            }
        }
        if plan.first_attribute < plan.sources.len() {
            self.push_attributes(place, &reader.attributes);
        }
    }

    fn push_attributes(&mut self, place: usize, attributes: &[AttributeValue]) {
        let plan = self.plans[place];
        let columns = &mut self.chunk.types[place].columns;
        let first = plan.first_attribute;
        self.used.clear();
        self.used.resize(columns.len() - first, false);
        let mut more: Vec<u8> = Vec::new();
        for value in attributes {
            let key = (value.attribute, value.type_code);
            let column = plan.attributes.get(&key).copied();
            let Some(column) = column.filter(|column| !self.used[column - first]) else {
                put_attribute(value, &mut more);
                continue;
            };
            self.used[column - first] = true;
            let bits = bits_of(self.archive, value);
            columns[column].push_bits(bits);
        }
        for (index, column) in columns[first..].iter_mut().enumerate() {
            if self.used[index] {
                continue;
            }
            if plan.sources[first + index] == ElementSource::Attributes && !more.is_empty() {
                column.push_text(&more);
            } else {
                column.push_absent();
            }
        }
    }

    fn finish(mut self, part: &FilePart) -> Chunk {
        self.end_collectives(part.collective_behind);
        let collectives = std::mem::take(&mut self.collectives);
        let place = usize::from(self.by_record[usize::from(ids::MPI_COLLECTIVE_BEGIN)]);
        if let Some(plan) = self.plans.get(place).copied() {
            for (index, from) in plan.sources.iter().enumerate() {
                let ElementSource::Collective(of) = *from else {
                    continue;
                };
                let mut column = Column::new(of.element_type());
                for collective in &collectives {
                    let bits = collective.as_ref().and_then(|c| self.of_collective(of, c));
                    match bits {
                        Some(bits) => column.push_bits(bits),
                        None => column.push_absent(),
                    }
                }
                self.chunk.types[place].columns[index] = column;
            }
        }
        self.chunk
    }

    fn of_collective(&mut self, of: CollectiveField, collective: &Collective) -> Option<u64> {
        let [operation, communicator, root, sent, received] = *collective;
        let world = &self.archive.world;
        match of {
            CollectiveField::Communicator => {
                let numbering = self.archive.numberings.of_kind(DefinitionKind::Comm);
                Some(numbering.get(communicator).into())
            }
            CollectiveField::Operation => Some(operation),
            CollectiveField::Root => {
                let rank = world.rank(communicator, root, self.rank);
                rank.filter(|rank| *rank < u64::from(u32::MAX))
            }
            CollectiveField::Bytes => Some(sent.saturating_add(received)),
            CollectiveField::BytesSent => Some(sent),
            CollectiveField::BytesReceived => Some(received),
            CollectiveField::Size => world.size(communicator),
            CollectiveField::Place => self.own_place(communicator),
        }
    }
}

/// Returns an additional value as the bits of its element.
fn bits_of(archive: &Archive, value: &AttributeValue) -> u64 {
    match DefinitionKind::of_type(value.type_code) {
        Some(DefinitionKind::Location) => value.bits,
        Some(kind) => archive.numberings.of_kind(kind).get(value.bits).into(),
        None if value.type_code == types::FLOAT => {
            f64::from(f32::from_bits(value.bits as u32)).to_bits()
        }
        None => value.bits,
    }
}
