//! `trace-cli events`: event types with their counts.

use std::collections::BTreeMap;
use std::io::Write;

use annals_format::{EventTypeId, TypeTotals};
use serde::Serialize;

use super::{TableArguments, warn_of_damage};
use crate::output::Finding;

#[derive(Clone, Debug, Serialize)]
struct ElementRow {
    name: String,
    #[serde(rename = "type")]
    element_type: &'static str,
    unit: String,
    reference: &'static str,
    optional: bool,
}

/// One event type.
#[derive(Clone, Debug)]
struct EventTypeRow {
    name: String,
    description: String,
    role: &'static str,
    verbosity: &'static str,
    elements: Vec<ElementRow>,
    key: Option<String>,
    events: u64,
    raised: u64,
    raised_is_lower_bound: bool,
    dropped: u64,
    suppressed: u64,
    skipped: u64,
    truncated: u64,
}

impl EventTypeRow {
    fn elements_text(&self) -> String {
        let elements = self.elements.iter().map(|element| {
            let unit = match &*element.unit {
                "" => String::new(),
                unit => format!(" [{unit}]"),
            };
            format!("{}: {}{unit}", element.name, element.element_type)
        });
        elements.collect::<Vec<_>>().join(", ")
    }
}

annals_analysis::columns! {
    EventTypeRow, json elements;
    "event" Name headed "event type", |row| &row.name;
    "description" Text, |row| &row.description;
    "role" Text headed "role", |row| row.role;
    "verbosity" Text, |row| row.verbosity;
    "key" Name, |row| &row.key;
    "events" Count headed "events", |row| row.events;
    "raised" Count, |row| row.raised;
    "raised_is_lower_bound" Flag, |row| row.raised_is_lower_bound;
    "dropped" Count headed "dropped", |row| row.dropped;
    "suppressed" Count, |row| row.suppressed;
    "skipped" Count if_room "skipped", |row| row.skipped;
    "truncated" Count if_any_and_room "truncated", |row| row.truncated;
    "elements" Name headed "elements", |row| row.elements_text();
}

#[derive(Clone, Debug, Serialize)]
struct EventTypes {
    event_types: Vec<EventTypeRow>,
}

/// Runs the command.
///
/// # Errors
/// If the input cannot be read or the output not be written.
pub fn run(arguments: &TableArguments, out: &mut dyn Write) -> anyhow::Result<Finding> {
    let opened = arguments.input.open()?;
    let outcome = opened.summary()?;
    warn_of_damage(&opened, &outcome);
    let d = opened.definitions();
    let mut sums: BTreeMap<EventTypeId, TypeTotals> = BTreeMap::new();
    for row in outcome.totals.iter().flat_map(|totals| &totals.rows) {
        let sum = sums
            .entry(row.event_type)
            .or_insert_with(|| TypeTotals::new(row.event_type));
        sum.add(row);
    }
    let rows = d.event_types.values().map(|event_type| {
        let sum = sums.get(&event_type.id).cloned();
        let sum = sum.unwrap_or_else(|| TypeTotals::new(event_type.id));
        let elements = event_type.elements.iter().map(|element| ElementRow {
            name: d.string(element.name).to_owned(),
            element_type: element.element_type.name(),
            unit: d.string(element.unit).to_owned(),
            reference: element.reference.name(),
            optional: element.is_optional,
        });
        let elements: Vec<ElementRow> = elements.collect();
        let key = event_type
            .key_element
            .and_then(|key| elements.get(usize::from(key)));
        EventTypeRow {
            name: d.string(event_type.name).to_owned(),
            description: d.string(event_type.description).to_owned(),
            role: event_type.role.name(),
            verbosity: event_type.verbosity.name(),
            key: key.map(|element| element.name.clone()),
            elements,
            events: sum.present(),
            raised: sum.raised,
            raised_is_lower_bound: sum.raised_is_lower_bound,
            dropped: sum.dropped_sum(),
            suppressed: sum.suppressed,
            skipped: sum.skipped,
            truncated: sum.truncated,
        }
    });
    let mut event_types: Vec<EventTypeRow> = rows.collect();
    if arguments.input.json {
        let total = arguments.rows.cut(&mut event_types);
        arguments
            .rows
            .json(out, &EventTypes { event_types }, total)?;
    } else {
        arguments
            .rows
            .put(out, &event_types, arguments.input.screen())?;
    }
    Ok(Finding::loss(outcome.has_skipped_now))
}
