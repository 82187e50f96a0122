//! Archives among the inputs of an archive that is written: their definitions, and the numbers that these get.

use annals_foreign::otf2::enums::{PARADIGM_MPI, group_type};
use annals_foreign::otf2::{
    Anchor, Datum, DefinitionKind, Field, FieldType, GlobalDefinition, GlobalDefinitions, Record,
    types,
};
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// The id that means no definition, for most kinds.
pub(super) const UNDEFINED: u64 = u32::MAX as u64;

/// An archive among the inputs.
#[derive(Debug)]
pub(crate) struct InputArchive {
    pub(super) definitions: GlobalDefinitions,
    pub(crate) anchor: Option<Anchor>,
    /// New numbers by kind; `None` means that all stay unchanged.
    pub(super) maps: Option<Vec<FxHashMap<u64, u64>>>,
    /// Numbers of regions by ours, in the archive that is written; undefined: not of this archive.
    pub(super) regions: Vec<u64>,
    /// By paradigm, the number of locations before those of this archive in the group of all.
    pub(super) shifts: BTreeMap<u64, u64>,
    /// Groups that have become part of another archive's.
    pub(super) joined: BTreeSet<u64>,
    /// Definitions of markers, and their new numbers.
    pub(super) markers: Vec<Vec<Datum>>,
    pub(super) marker_numbers: FxHashMap<u64, u64>,
}

/// The group of all locations of a paradigm: there must be one of each.
#[derive(Debug)]
pub(super) struct ParadigmLocations {
    pub(super) id: u64,
    pub(super) members: Vec<u64>,
}

impl InputArchive {
    /// Returns the number in the archive that is written.
    pub(crate) fn map(&self, kind: DefinitionKind, id: u64) -> u64 {
        match &self.maps {
            Some(maps) if id != kind.undefined() => {
                maps[kind as usize].get(&id).copied().unwrap_or(id)
            }
            _ => id,
        }
    }

    #[inline]
    pub(crate) fn region(&self, region: u64) -> u64 {
        let at = usize::try_from(region).ok();
        let id = at.and_then(|at| self.regions.get(at));
        id.copied().unwrap_or(UNDEFINED)
    }
}

/// Fields that an older version did not have, as readers take them.
pub(crate) fn complete(record: &Record, data: &mut [Datum]) {
    let value = |data: &[Datum], name: &str| record.place(name).and_then(|at| data[at].bits());
    for (index, field) in record.fields.iter().enumerate() {
        if data[index] != Datum::Absent {
            continue;
        }
        let default = match (record.name, field.name) {
            ("Region", "canonical_name") => value(data, "name").unwrap_or(UNDEFINED),
            ("Region", "region_role") => match value(data, "region_type").unwrap_or(0) {
                1 | 31 => 1,
                2 | 30 | 6 => 3,
                3 => 4,
                5 => 5,
                7 => 6,
                8 => 7,
                9 => 8,
                10 => 9,
                11 => 11,
                12 => 12,
                13 => 14,
                14 | 22 => 15,
                15 => 16,
                16 => 17,
                17 => 13,
                18 => 10,
                19 => 2,
                20 => 20,
                21 => 22,
                23 => 24,
                24 => 23,
                25 => 25,
                26 => 26,
                33 => 21,
                34 => 18,
                35 => 19,
                _ => 0,
            },
            ("Region", "paradigm") => match value(data, "region_type").unwrap_or(0) {
                5..=21 | 33..=35 => 3,
                22..=26 => PARADIGM_MPI,
                _ => 0,
            },
            ("Group", "group_type") => match value(data, "group_type_pre12").unwrap_or(0) {
                4 => group_type::COMM_GROUP,
                5 => group_type::COMM_SELF,
                6 => group_type::COMM_LOCATIONS,
                other => other,
            },
            ("Group", "paradigm") => match value(data, "group_type_pre12").unwrap_or(0) {
                4..=6 => PARADIGM_MPI,
                _ => 0,
            },
            ("RmaWin", "flags") => 1,
            ("ClockProperties", _) => u64::MAX,
            (_, "description" | "creating_location_group") => UNDEFINED,
            (_, "type") => types::STRING.into(),
            (_, "value") => value(data, "string_value").unwrap_or(UNDEFINED),
            _ => 0,
        };
        data[index] = bits(default);
    }
}

/// Returns the groups of a type: number, paradigm, members.
pub(crate) fn groups_of(definitions: &GlobalDefinitions, wanted: u64) -> Vec<(u64, u64, Vec<u64>)> {
    let groups = definitions
        .of_kind(DefinitionKind::Group)
        .filter_map(|(id, group)| {
            let mut data = group.data.clone();
            complete(group.record, &mut data);
            let value = |name: &str| data.get(group.record.place(name)?);
            let is_wanted = value("group_type")? == &bits(wanted);
            let members = value("number_of_members")?.numbers().to_vec();
            is_wanted.then_some((id, value("paradigm")?.bits()?, members))
        });
    groups.collect()
}

/// Returns a definition of an archive with the numbers that it and what it refers to have now.
pub(crate) fn renumbered(
    archive: &InputArchive,
    definition: &GlobalDefinition,
    counts: &HashMap<u64, u64>,
) -> Vec<Datum> {
    let record = definition.record;
    let mut data = definition.data.clone();
    complete(record, &mut data);
    let known = |name: &str, data: &[Datum]| record.place(name).and_then(|at| data[at].bits());
    let group_type = known("group_type", &data);
    let paradigm = known("paradigm", &data);
    let scope = known("metric_scope", &data);
    map_fields(archive, record.fields, &mut data);
    if let ("Group", Some(at)) = (record.name, record.place("number_of_members")) {
        let shift = paradigm.and_then(|paradigm| archive.shifts.get(&paradigm));
        if let (Datum::Numbers(members), Some(group_type::COMM_GROUP), Some(shift)) =
            (&mut data[at], group_type, shift)
        {
            let members = members.iter_mut();
            members.for_each(|member| *member = member.saturating_add(*shift));
        }
        let kind = match group_type {
            Some(group_type::LOCATIONS | group_type::COMM_LOCATIONS) => {
                Some(DefinitionKind::Location)
            }
            Some(group_type::REGIONS) => Some(DefinitionKind::Region),
            Some(group_type::METRIC) => Some(DefinitionKind::Metric),
            Some(group_type::COMM_LOCATION_GROUPS) => Some(DefinitionKind::LocationGroup),
            _ => None,
        };
        if let (Datum::Numbers(members), Some(kind)) = (&mut data[at], kind) {
            for member in members {
                *member = archive.map(kind, *member);
            }
        }
    }
    if let ("MetricInstance", Some(at), Some(id)) =
        (record.name, record.place("scope"), known("scope", &data))
    {
        let kind = match scope {
            Some(0) => DefinitionKind::Location,
            Some(1) => DefinitionKind::LocationGroup,
            Some(2) => DefinitionKind::SystemTreeNode,
            _ => DefinitionKind::Group,
        };
        data[at] = bits(archive.map(kind, id));
    }
    if let ("Location", Some(at)) = (record.name, record.place("number_of_events")) {
        let count = data[0].bits().and_then(|id| counts.get(&id));
        data[at] = bits(count.copied().unwrap_or(0));
    }
    data
}

fn map_fields(archive: &InputArchive, fields: &[Field], data: &mut [Datum]) {
    let mut type_code = 0;
    for (field, datum) in fields.iter().zip(data) {
        match (field.what, datum) {
            (
                FieldType::Ref8(kind) | FieldType::Ref32(kind) | FieldType::Ref64(kind),
                Datum::Bits(id),
            ) => {
                *id = archive.map(kind, *id);
            }
            (FieldType::Type, Datum::Bits(code)) => type_code = *code as u8,
            (FieldType::Value, Datum::Bits(value)) => {
                if let Some(kind) = DefinitionKind::of_type(type_code) {
                    *value = archive.map(kind, *value);
                }
            }
            (FieldType::List8(inner) | FieldType::List32(inner), Datum::Numbers(numbers)) => {
                if let [
                    Field {
                        what:
                            FieldType::Ref8(kind) | FieldType::Ref32(kind) | FieldType::Ref64(kind),
                        ..
                    },
                ] = inner
                {
                    for number in numbers {
                        *number = archive.map(*kind, *number);
                    }
                }
            }
            (FieldType::List8(inner) | FieldType::List32(inner), Datum::List(items)) => {
                for item in items {
                    map_fields(archive, inner, item);
                }
            }
            _ => {}
        }
    }
}

pub(crate) const fn bits(value: u64) -> Datum {
    Datum::Bits(value)
}
