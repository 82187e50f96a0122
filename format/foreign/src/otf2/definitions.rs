//! The global definitions of an archive.

use std::collections::BTreeMap;

use super::container::{Datum, RawRecord, put_record, read_fields};
use super::describe::{DefinitionKind, FieldType, Record};
use super::records::DEFINITIONS;
use super::wire::Endian;
use annals_format::Result;

/// A definition.
#[derive(Clone, Debug)]
pub struct GlobalDefinition {
    /// Which kind of record.
    pub record: &'static Record,
    /// Its fields.
    pub data: Vec<Datum>,
}

impl GlobalDefinition {
    /// Returns a field by its name.
    pub fn get(&self, name: &str) -> Option<&Datum> {
        self.data.get(self.record.place(name)?)
    }

    /// Returns the bits of a field.
    pub fn bits(&self, name: &str) -> Option<u64> {
        self.get(name)?.bits()
    }

    /// Returns the kind and the number by which others refer to it.
    pub fn own_id(&self) -> Option<(DefinitionKind, u64)> {
        let first = self.record.fields.first()?;
        if first.name != "self" {
            return None;
        }
        let kind = match first.what {
            FieldType::Ref8(kind) | FieldType::Ref32(kind) | FieldType::Ref64(kind) => kind,
            _ => return None,
        };
        Some((kind, self.data.first()?.bits()?))
    }

    /// Returns the record's bytes in the little-endian order.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_record(self.record, &self.data, &mut out);
        out
    }
}

/// The global definitions of an archive.
#[derive(Clone, Default, Debug)]
pub struct GlobalDefinitions {
    /// All, in the order of the file.
    pub all: Vec<GlobalDefinition>,
    /// Places in `all` by kind and number; of several with one number the first.
    index: BTreeMap<(DefinitionKind, u64), usize>,
    /// Records that are not known, by id.
    pub unknown: BTreeMap<u8, u64>,
    /// Records met, known or not.
    pub count: u64,
}

impl GlobalDefinitions {
    /// Takes a record in.
    ///
    /// # Errors
    /// If its fields contradict the format.
    pub fn take(&mut self, raw: RawRecord<'_>, endian: Endian) -> Result<()> {
        self.count += 1;
        let Some(record) = Record::find(DEFINITIONS, raw.id) else {
            *self.unknown.entry(raw.id).or_default() += 1;
            return Ok(());
        };
        let data = read_fields(record, raw.payload, endian);
        let data = data.map_err(|error| error.shifted(raw.offset as u64))?;
        self.add(GlobalDefinition { record, data });
        Ok(())
    }

    /// Adds a definition.
    pub fn add(&mut self, definition: GlobalDefinition) {
        if let Some(id) = definition.own_id() {
            self.index.entry(id).or_insert(self.all.len());
        }
        self.all.push(definition);
    }

    /// Returns the definition with a number.
    pub fn find(&self, kind: DefinitionKind, id: u64) -> Option<&GlobalDefinition> {
        self.index.get(&(kind, id)).map(|place| &self.all[*place])
    }

    /// Returns every definition of a kind, by its number.
    pub fn of_kind(&self, kind: DefinitionKind) -> impl Iterator<Item = (u64, &GlobalDefinition)> {
        let range = self.index.range((kind, 0)..=(kind, u64::MAX));
        range.map(|((_, id), place)| (*id, &self.all[*place]))
    }

    /// Returns every definition with this record name.
    pub fn of_record<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a GlobalDefinition> {
        self.all.iter().filter(move |d| d.record.name == name)
    }

    /// Returns a string; empty when it is not defined. The format names no encoding: what is not UTF-8 is taken for
    /// Latin-1, so that different strings stay different.
    pub fn string(&self, id: u64) -> std::borrow::Cow<'_, str> {
        let found = self.find(DefinitionKind::String, id);
        let bytes = found.map_or(&[][..], |found| found.data[1].text());
        match std::str::from_utf8(bytes) {
            Ok(text) => text.into(),
            Err(_) => bytes.iter().map(|byte| char::from(*byte)).collect(),
        }
    }

    /// Returns the name of a definition; of one without a name, of what it refers to; empty when there is none.
    pub fn name(&self, kind: DefinitionKind, id: u64) -> String {
        let Some(definition) = self.find(kind, id) else {
            return String::new();
        };
        match kind {
            DefinitionKind::String => self.string(id).into_owned(),
            DefinitionKind::SourceCodeLocation => {
                let file = self.string(definition.bits("file").unwrap_or(u64::MAX));
                let line = definition.bits("line_number").unwrap_or(0);
                format!("{file}:{line}")
            }
            DefinitionKind::CallingContext | DefinitionKind::Callpath => {
                let region = definition.bits("region").unwrap_or(u64::MAX);
                self.name(DefinitionKind::Region, region)
            }
            DefinitionKind::Metric => self.metric_name(definition),
            _ => {
                let name = definition.bits("name");
                name.map_or_else(String::new, |name| self.string(name).into_owned())
            }
        }
    }

    /// Returns the class that a metric is of: itself, or that of the instance.
    pub fn metric_class(&self, metric: u64) -> Option<&GlobalDefinition> {
        let definition = self.find(DefinitionKind::Metric, metric)?;
        match definition.bits("metric_class") {
            None => Some(definition),
            // No further: an instance of an instance is none.
            Some(class) => {
                let class = self.find(DefinitionKind::Metric, class)?;
                class.bits("metric_class").is_none().then_some(class)
            }
        }
    }

    /// Returns the members of a metric, by number.
    pub fn metric_members(&self, metric: u64) -> Vec<u64> {
        let class = self.metric_class(metric);
        let members = class.and_then(|class| class.get("number_of_metrics"));
        members.map_or_else(Vec::new, |members| members.numbers().to_vec())
    }

    fn metric_name(&self, definition: &GlobalDefinition) -> String {
        let Some((_, id)) = definition.own_id() else {
            return String::new();
        };
        let members = self.metric_members(id);
        let names = members
            .iter()
            .map(|id| self.name(DefinitionKind::MetricMember, *id));
        names.collect::<Vec<_>>().join(",")
    }
}
