//! The definitions of a location: the map of its ids to those of the archive, and the correction of
//! its clock.

use rustc_hash::FxHashMap;

use super::container::{Datum, RawRecord, read_fields};
use super::describe::{DefinitionKind, FieldType, Record};
use super::events::AttributeValue;
use super::records::LOCAL_DEFINITIONS;
use super::wire::Endian;
use annals_format::{FormatError, Result};

/// Tables up to this size are dense.
const DENSE: u64 = 1 << 16;

/// Ids of one kind: a location's to the archive's. One that is not in the map stays as it is.
#[derive(Clone, Default, Debug)]
pub struct IdMap {
    dense: Vec<u64>,
    sparse: FxHashMap<u64, u64>,
}

impl IdMap {
    /// Creates a map from pairs.
    pub fn new(pairs: &[(u64, u64)]) -> Self {
        let mut map = Self::default();
        let least = pairs
            .iter()
            .map(|(local, _)| *local)
            .filter(|local| *local < DENSE);
        let length = least.max().map_or(0, |largest| largest as usize + 1);
        map.dense = (0..length as u64).collect();
        for (local, global) in pairs {
            match map.dense.get_mut(*local as usize) {
                Some(entry) if *local < DENSE => *entry = *global,
                _ => {
                    map.sparse.insert(*local, *global);
                }
            }
        }
        map
    }

    /// Returns the archive's id.
    #[inline]
    pub fn get(&self, local: u64) -> u64 {
        if let Some(global) = usize::try_from(local)
            .ok()
            .and_then(|at| self.dense.get(at))
        {
            return *global;
        }
        if self.sparse.is_empty() {
            return local;
        }
        self.sparse.get(&local).copied().unwrap_or(local)
    }
}

/// A moment at which a location's clock was compared with the archive's.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ClockOffset {
    /// The location's clock.
    pub time: u64,
    /// The offset to add to it.
    pub offset: i64,
    /// Its standard deviation; not used.
    pub standard_deviation: f64,
}

/// The correction of a location's clock, by interpolation between points. Times must be queried in ascending order: the
/// search for the interval only moves forward.
#[derive(Clone, Default, Debug)]
pub struct ClockCorrection {
    /// Of each interval: begin, end, offset, slope.
    intervals: Vec<(u64, u64, i64, f64)>,
    current: usize,
}

impl ClockCorrection {
    /// Creates a correction from points; fewer than two correct nothing.
    ///
    /// # Errors
    /// If their times do not ascend; the correction then covers only the points that do.
    pub fn new(points: &[ClockOffset]) -> (Self, bool) {
        let mut correction = Self::default();
        for pair in points.windows(2) {
            let (from, to) = (pair[0], pair[1]);
            if to.time <= from.time {
                return (correction, false);
            }
            let rise = to.offset.wrapping_sub(from.offset) as f64;
            let run = (to.time - from.time) as f64;
            correction
                .intervals
                .push((from.time, to.time, from.offset, rise / run));
        }
        (correction, true)
    }

    /// Returns whether times stay as they are.
    pub const fn is_identity(&self) -> bool {
        self.intervals.is_empty()
    }

    /// Returns the interval that the last time was in.
    pub const fn place(&self) -> usize {
        self.current
    }

    /// Continues the search from an interval.
    pub const fn set_place(&mut self, place: usize) {
        self.current = place;
    }

    /// Returns the archive's time for one of the location.
    #[inline]
    pub fn correct(&mut self, time: u64) -> u64 {
        if self.intervals.is_empty() {
            return time;
        }
        while self.current + 1 < self.intervals.len() && time > self.intervals[self.current].1 {
            self.current += 1;
        }
        let (begin, _, offset, slope) = self.intervals[self.current];
        let distance = if time >= begin {
            (time - begin) as f64
        } else {
            -((begin - time) as f64)
        };
        let moved = (slope * distance).round_ties_even() as i64;
        time.wrapping_add(offset as u64).wrapping_add(moved as u64)
    }
}

/// The definitions of a location.
#[derive(Clone, Default, Debug)]
pub struct LocalDefinitions {
    /// Mapping tables, by [`DefinitionKind::MAPPED`].
    maps: [Option<IdMap>; DefinitionKind::MAPPED.len()],
    /// Points of the clock, in the order of the file.
    pub clock_offsets: Vec<ClockOffset>,
    /// The tables' pairs, in their order.
    pub tables: Vec<(DefinitionKind, Vec<(u64, u64)>)>,
}

impl LocalDefinitions {
    /// Takes a record in. Those of other kinds are stepped over, as every tool does.
    ///
    /// # Errors
    /// If its fields contradict the format, or a table is there for the second time; the first stays.
    pub fn take(&mut self, raw: RawRecord<'_>, endian: Endian) -> Result<()> {
        let Some(record) = Record::find(LOCAL_DEFINITIONS, raw.id) else {
            return Ok(());
        };
        let data = read_fields(record, raw.payload, endian);
        let data = data.map_err(|error| error.shifted(raw.offset as u64))?;
        match &data[..] {
            [Datum::Bits(kind), Datum::Pairs(pairs, _)] => {
                let Some(kind) = DefinitionKind::MAPPED.get(*kind as usize) else {
                    return Ok(());
                };
                let place = &mut self.maps[*kind as usize];
                if place.is_some() {
                    return Err(FormatError::Invalid {
                        offset: raw.offset as u64,
                        expected: "one mapping table of each kind",
                        found: format!("another for the kind {}", kind.name()),
                    });
                }
                *place = Some(IdMap::new(pairs));
                self.tables.push((*kind, pairs.clone()));
            }
            [
                Datum::Bits(time),
                Datum::Bits(offset),
                Datum::Bits(deviation),
            ] => {
                self.clock_offsets.push(ClockOffset {
                    time: *time,
                    offset: *offset as i64,
                    standard_deviation: f64::from_bits(*deviation),
                });
            }
            _ => {}
        }
        Ok(())
    }

    /// Returns the map of a kind, if the location has one.
    #[inline]
    pub const fn map(&self, kind: DefinitionKind) -> Option<&IdMap> {
        if (kind as usize) < DefinitionKind::MAPPED.len() {
            self.maps[kind as usize].as_ref()
        } else {
            None
        }
    }

    /// Makes the references of an event those of the archive.
    #[inline]
    pub fn globalize(
        &self,
        record: &Record,
        values: &mut [u64],
        attributes: &mut [AttributeValue],
    ) {
        if self.tables.is_empty() {
            return;
        }
        for (index, field) in record.fields.iter().enumerate() {
            match field.what {
                FieldType::Ref32(kind) => {
                    if let (Some(map), Some(value)) = (self.map(kind), values.get_mut(index)) {
                        *value = map.get(*value) & 0xffff_ffff;
                    }
                }
                // The list of a program's arguments.
                FieldType::List32(_) | FieldType::List8(_) => {
                    let (FieldType::List32(inner) | FieldType::List8(inner)) = field.what else {
                        continue;
                    };
                    for (at, value) in values.iter_mut().skip(index).enumerate() {
                        if let FieldType::Ref32(kind) = inner[at % inner.len()].what
                            && let Some(map) = self.map(kind)
                        {
                            *value = map.get(*value) & 0xffff_ffff;
                        }
                    }
                }
                _ => {}
            }
        }
        self.globalize_attributes(attributes);
    }

    /// Replaces local by global numbers in additional values.
    pub fn globalize_attributes(&self, attributes: &mut [AttributeValue]) {
        for attribute in attributes {
            if let Some(map) = self.map(DefinitionKind::Attribute) {
                attribute.attribute = map.get(attribute.attribute.into()) as u32;
            }
            if let Some(kind) = DefinitionKind::of_type(attribute.type_code)
                && let Some(map) = self.map(kind)
            {
                let mask = if kind == DefinitionKind::Location {
                    u64::MAX
                } else {
                    0xffff_ffff
                };
                attribute.bits = map.get(attribute.bits) & mask;
            }
        }
    }
}

impl ClockOffset {
    /// Returns the fields of its record.
    pub fn data(&self) -> Vec<Datum> {
        vec![
            Datum::Bits(self.time),
            Datum::Bits(self.offset as u64),
            Datum::Bits(self.standard_deviation.to_bits()),
        ]
    }
}
