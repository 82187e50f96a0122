//! `trace-cli events`: event types with their counts.

use std::collections::BTreeMap;
use std::io::Write;

use annals_format::{EventTypeId, TypeTotals};
use serde::Serialize;

use super::{InputArguments, warn_of_damage};
use crate::output::{self, Finding};
use crate::table::{Align, Table, safe};
use crate::time;

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
#[derive(Clone, Debug, Serialize)]
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

#[derive(Clone, Debug, Serialize)]
struct EventTypes {
    event_types: Vec<EventTypeRow>,
}

/// Runs the command.
///
/// # Errors
/// If the input cannot be read or the output not be written.
pub fn run(arguments: &InputArguments, out: &mut dyn Write) -> anyhow::Result<Finding> {
    let opened = arguments.open()?;
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
    let event_types: Vec<EventTypeRow> = rows.collect();
    if arguments.json {
        output::json(out, &EventTypes { event_types })?;
    } else {
        let mut table = Table::new(&[
            ("event type", Align::Name),
            ("role", Align::Left),
            ("events", Align::Right),
            ("dropped", Align::Right),
            ("skipped", Align::Optional),
            ("elements", Align::Name),
        ]);
        for row in &event_types {
            let elements: Vec<String> = row
                .elements
                .iter()
                .map(|element| {
                    let unit = if element.unit.is_empty() {
                        String::new()
                    } else {
                        format!(" [{}]", safe(&element.unit))
                    };
                    format!("{}: {}{unit}", safe(&element.name), element.element_type)
                })
                .collect();
            table.row(vec![
                safe(&row.name),
                row.role.to_owned(),
                time::grouped(row.events),
                time::grouped(row.dropped),
                time::grouped(row.skipped.saturating_add(row.truncated)),
                elements.join(", "),
            ]);
        }
        out.write_all(table.render(arguments.screen()).as_bytes())?;
    }
    Ok(Finding::loss(outcome.has_skipped_now))
}
