//! `trace-cli print`: events in global order.

use std::io::Write;

use annals_format::{
    Definitions, Element, Reference, RegionId, TraceChunk, TraceLoss, TypeColumns, Value,
};
use annals_merger::{MergeError, Window};
use clap::Args;

use super::{InputArguments, warn_of_damage};
use crate::filter::{Filter, FilterArguments, WindowArguments};
use crate::names::Places;
use crate::output::{Finding, UsageError};
use crate::table::safe;
use crate::time::moment;
use crate::values::{put_json, put_value_json, put_value_text};

/// Events in global order, one a line.
///
/// Lines: time in seconds, rank, location, source, event type, elements. Losses stand where they
/// happened, in lines that begin with `--` (with --json only when --losses is given).
#[derive(Clone, Debug, Args)]
pub struct PrintArguments {
    #[command(flatten)]
    input: InputArguments,
    #[command(flatten)]
    window: WindowArguments,
    #[command(flatten)]
    filter: FilterArguments,

    /// Most events to print
    #[arg(long, value_name = "N")]
    limit: Option<u64>,

    /// How a line looks: names in braces are replaced, elements by theirs
    ///
    /// {time} (seconds), {time_ns}, {rank}, {location}, {source}, {event}, {elements}, and {NAME} of any element:
    /// empty where an event has none. \\t is a tab, \\n a line end, {{ a brace. Losses are not printed.
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["json", "losses"])]
    template: Option<String>,

    /// With --json: losses too, as objects with `lost` instead of `event`
    #[arg(long)]
    losses: bool,
}

/// A part of a line.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Piece {
    Text(String),
    Time,
    TimeNs,
    Rank,
    Location,
    Source,
    Event,
    Elements,
    Element(String),
}

/// How a line looks.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Template(Vec<Piece>);

impl Template {
    fn parse(text: &str, definitions: &Definitions) -> anyhow::Result<Self> {
        let mut pieces = Vec::new();
        let mut plain = String::new();
        let mut rest = text.chars();
        while let Some(c) = rest.next() {
            match c {
                '\\' => match rest.next() {
                    Some('t') => plain.push('\t'),
                    Some('n') => plain.push('\n'),
                    Some(other) => plain.push(other),
                    None => plain.push('\\'),
                },
                '{' if rest.as_str().starts_with('{') => {
                    rest.next();
                    plain.push('{');
                }
                '{' => {
                    let Some(end) = rest.as_str().find('}') else {
                        let why = format!("--template: a brace is not closed: {{{}", rest.as_str());
                        return Err(UsageError(why).into());
                    };
                    let name = rest.as_str()[..end].to_owned();
                    rest = rest.as_str()[end + 1..].chars();
                    pieces.push(Piece::Text(std::mem::take(&mut plain)));
                    pieces.push(Self::piece(name, definitions)?);
                }
                '}' if rest.as_str().starts_with('}') => {
                    rest.next();
                    plain.push('}');
                }
                c => plain.push(c),
            }
        }
        pieces.push(Piece::Text(plain));
        Ok(Self(pieces))
    }

    fn piece(name: String, definitions: &Definitions) -> anyhow::Result<Piece> {
        const OWN: [(&str, Piece); 7] = [
            ("time", Piece::Time),
            ("time_ns", Piece::TimeNs),
            ("rank", Piece::Rank),
            ("location", Piece::Location),
            ("source", Piece::Source),
            ("event", Piece::Event),
            ("elements", Piece::Elements),
        ];
        if let Some((_, piece)) = OWN.iter().find(|(own, _)| *own == name) {
            return Ok(piece.clone());
        }
        let elements = || {
            let types = definitions.event_types.values();
            let elements = types.flat_map(|event_type| &event_type.elements);
            elements.map(|element| definitions.string(element.name))
        };
        if elements().any(|known| known == name) {
            return Ok(Piece::Element(name));
        }
        let known = OWN.iter().map(|(own, _)| *own).chain(elements());
        let near = crate::names::did_you_mean(&name, known);
        let why =
            format!("--template: no event has an element `{name}`{near}; see `trace-cli events`");
        Err(UsageError(why).into())
    }
}

struct Printer<'a> {
    definitions: &'a Definitions,
    places: Places,
    filter: Filter,
    window: Window,
    left: u64,
    is_json: bool,
    with_losses: bool,
    template: Option<Template>,
    line: Vec<u8>,
    out: &'a mut dyn Write,
    failure: Option<std::io::Error>,
}

/// Runs the command.
///
/// # Errors
/// If the input cannot be read or the output not be written.
pub fn run(arguments: &PrintArguments, out: &mut dyn Write) -> anyhow::Result<Finding> {
    let (opened, window) = arguments.input.open_window(&arguments.window)?;
    let mut printer = Printer {
        definitions: &opened.definitions,
        places: Places::of(&opened.definitions),
        filter: arguments.filter.prepare(&opened.definitions)?,
        window,
        left: arguments.limit.unwrap_or(u64::MAX),
        is_json: arguments.input.json,
        with_losses: arguments.losses || !(arguments.input.json || arguments.template.is_some()),
        template: arguments
            .template
            .as_deref()
            .map(|text| Template::parse(text, &opened.definitions))
            .transpose()?,
        line: Vec::new(),
        out,
        failure: None,
    };
    let outcome = opened.read(window, |chunk| printer.print_chunk(&chunk));
    if let Some(error) = printer.failure {
        return Err(error.into());
    }
    match outcome {
        Ok(outcome) => {
            warn_of_damage(&opened, &outcome);
            Ok(Finding::loss(outcome.has_skipped_now))
        }
        // The limit is reached.
        Err(MergeError::Stopped) => Ok(Finding::FINE),
        Err(error) => Err(error.into()),
    }
}

impl Printer<'_> {
    fn print_chunk(&mut self, chunk: &TraceChunk) -> Result<(), MergeError> {
        let ordinals = chunk.ordinals();
        let mut losses = chunk.losses.iter().peekable();
        for (index, ordinal) in ordinals.iter().enumerate() {
            while let Some((_, loss)) = losses.next_if(|loss| loss.0 as usize <= index) {
                self.loss(loss)?;
            }
            let time_ns = chunk.times_ns[index];
            if !self.window.overlaps(time_ns, i64::MAX) {
                return Err(MergeError::Stopped);
            }
            let is_wanted = self.window.contains(time_ns);
            if !is_wanted || !self.filter.takes_stream(chunk.streams[index]) {
                continue;
            }
            self.event(chunk, index, *ordinal as usize)?;
        }
        losses.try_for_each(|(_, loss)| self.loss(loss))
    }

    fn event(
        &mut self,
        chunk: &TraceChunk,
        index: usize,
        ordinal: usize,
    ) -> Result<(), MergeError> {
        let columns = &chunk.types[usize::from(chunk.type_index[index])];
        if !self.filter.takes_event_type(columns.event_type) {
            return Ok(());
        }
        let event_type = self.definitions.event_types.get(&columns.event_type);
        let elements = event_type.map_or(&[][..], |event_type| &event_type.elements);
        if self.filter.is_by_region() {
            let region = elements
                .iter()
                .position(|element| element.reference == Reference::Region)
                .and_then(|at| columns.columns.get(at)?.get(ordinal).as_integer());
            let is_taken = region
                .and_then(|region| u32::try_from(region).ok())
                .is_some_and(|region| self.filter.takes_region(RegionId::new(region)));
            if !is_taken {
                return Ok(());
            }
        }
        if self.left == 0 {
            return Err(MergeError::Stopped);
        }
        self.left -= 1;
        let definitions = self.definitions;
        let name = definitions.event_type_name(columns.event_type);
        let place = self.places.get(chunk.streams[index]);
        let line = &mut self.line;
        line.clear();
        if let Some(template) = &self.template {
            let values = |element: &Element, at: usize, line: &mut Vec<u8>| {
                if let Some(column) = columns.columns.get(at) {
                    put_value_text(line, definitions, element, column.get(ordinal));
                }
            };
            for piece in &template.0 {
                let time_ns = chunk.times_ns[index];
                let _ = match piece {
                    Piece::Text(text) => line.write_all(text.as_bytes()),
                    Piece::Time => write!(line, "{}", moment(time_ns)),
                    Piece::TimeNs => write!(line, "{time_ns}"),
                    Piece::Rank => write!(line, "{}", place.rank),
                    Piece::Location => {
                        let location = place.location.as_deref().unwrap_or("-");
                        write!(line, "{}", safe(location))
                    }
                    Piece::Source => write!(line, "{}", safe(&place.source)),
                    Piece::Event => write!(line, "{}", safe(&name)),
                    Piece::Elements => {
                        for (at, element) in elements.iter().enumerate() {
                            let space = if at == 0 { "" } else { " " };
                            let name = definitions.string(element.name);
                            let _ = write!(line, "{space}{}=", safe(name));
                            values(element, at, line);
                        }
                        Ok(())
                    }
                    Piece::Element(wanted) => {
                        let mut each = elements.iter().enumerate();
                        let found = each.find(|(_, e)| definitions.string(e.name) == wanted);
                        if let Some((at, element)) = found {
                            values(element, at, line);
                        }
                        Ok(())
                    }
                };
            }
            line.push(b'\n');
            return self.write_line();
        }
        if self.is_json {
            let _ = write!(
                line,
                "{{\"time_ns\":{},\"rank\":{},\"source\":",
                chunk.times_ns[index], place.rank
            );
            put_json(line, &place.source);
            line.extend_from_slice(b",\"location\":");
            match &place.location {
                Some(location) => put_json(line, location),
                None => line.extend_from_slice(b"null"),
            }
            line.extend_from_slice(b",\"event\":");
            put_json(line, &name);
            line.extend_from_slice(b",\"elements\":{");
        } else {
            let location = place.location.as_deref().unwrap_or("-");
            let _ = write!(
                line,
                "{} {:>4} {} {} {}",
                moment(chunk.times_ns[index]),
                place.rank,
                safe(location),
                safe(&place.source),
                safe(&name)
            );
        }
        if self.is_json {
            put_elements_json(line, definitions, columns, ordinal);
        } else {
            put_elements(line, definitions, columns, ordinal);
        }
        line.extend_from_slice(if self.is_json { b"}}\n" } else { b"\n" });
        self.write_line()
    }

    fn loss(&mut self, loss: &TraceLoss) -> Result<(), MergeError> {
        let is_in_window = self.window.overlaps(loss.from_ns, loss.to_ns);
        let is_taken = self.filter.takes_stream(loss.stream)
            && loss
                .event_type
                .is_none_or(|event_type| self.filter.takes_event_type(event_type));
        if !self.with_losses || !is_in_window || !is_taken {
            return Ok(());
        }
        let place = self.places.get(loss.stream);
        let name = loss
            .event_type
            .map(|id| self.definitions.event_type_name(id));
        self.line.clear();
        if self.is_json {
            let object = serde_json::json!({
                "time_ns": loss.to_ns,
                "rank": place.rank,
                "source": place.source,
                "location": place.location,
                "lost": name,
                "count": loss.count,
                "is_lower_bound": loss.is_lower_bound,
                "cause": loss.cause.name(),
                "from_ns": loss.from_ns,
                "to_ns": loss.to_ns,
            });
            let _ = writeln!(self.line, "{object}");
        } else {
            let _ = writeln!(
                self.line,
                "-- {} .. {} {:>4} {} {}: {}{} {} lost: {}",
                moment(loss.from_ns),
                moment(loss.to_ns),
                place.rank,
                safe(place.location.as_deref().unwrap_or("-")),
                safe(&place.source),
                if loss.is_lower_bound { "at least " } else { "" },
                loss.count,
                safe(name.as_deref().unwrap_or("events of any type")),
                loss.cause.name()
            );
        }
        self.write_line()
    }

    fn write_line(&mut self) -> Result<(), MergeError> {
        self.out.write_all(&self.line).map_err(|error| {
            self.failure = Some(error);
            MergeError::Stopped
        })
    }
}

/// The elements of an event that are there, with their names.
fn elements_of<'a>(
    definitions: &'a Definitions,
    columns: &'a TypeColumns,
    ordinal: usize,
) -> impl Iterator<Item = (&'a Element, Value<'a>)> {
    let event_type = definitions.event_types.get(&columns.event_type);
    let elements = event_type.map_or(&[][..], |event_type| &event_type.elements);
    let values = columns
        .columns
        .iter()
        .map(move |column| column.get(ordinal));
    elements
        .iter()
        .zip(values)
        .filter(|(_, value)| *value != Value::Absent)
}

/// Adds an event's elements to a line, as ` name=value`.
pub(crate) fn put_elements(
    line: &mut Vec<u8>,
    definitions: &Definitions,
    columns: &TypeColumns,
    ordinal: usize,
) {
    for (element, value) in elements_of(definitions, columns, ordinal) {
        // Writing into memory does not fail.
        let _ = write!(line, " {}=", safe(definitions.string(element.name)));
        put_value_text(line, definitions, element, value);
    }
}

fn put_elements_json(
    line: &mut Vec<u8>,
    definitions: &Definitions,
    columns: &TypeColumns,
    ordinal: usize,
) {
    for (index, (element, value)) in elements_of(definitions, columns, ordinal).enumerate() {
        if index != 0 {
            line.push(b',');
        }
        put_json(line, definitions.string(element.name));
        line.push(b':');
        put_value_json(line, definitions, element, value);
    }
}
