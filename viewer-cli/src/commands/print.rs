//! `trace-cli print`: events in global order.

use std::collections::{BTreeSet, VecDeque};
use std::io::{self, Write};
use std::ops::ControlFlow;

use annals_format::{Definitions, Element, TraceLoss};
use annals_merger::{Event, Item, Places, Query, ReadSummary, Reader, Window};
use clap::Args;

use super::{InputArguments, warn_of_damage};
use crate::filter::{FilterArguments, WindowArguments};
use crate::output::{Finding, UsageError};
use crate::table::safe;
use crate::time::moment;
use crate::values::{put_elements, put_elements_json, put_json, put_value_text};

/// Events in global order, one a line.
///
/// Lines: time in seconds, rank, location, source, event type, elements. Losses are printed where
/// they happened, in lines that begin with `--` (with --json only when --losses is given).
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

    /// Print the last N lines only, events and losses: what is before them is not read, as far as possible
    #[arg(long, value_name = "N", conflicts_with = "limit")]
    last: Option<usize>,

    /// Format of a line: names in braces are replaced by their values
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
        let near = crate::did_you_mean::did_you_mean(&name, known);
        let why =
            format!("--template: no event has an element `{name}`{near}; see `trace-cli events`");
        Err(UsageError(why).into())
    }
}

struct Printer<'a> {
    definitions: &'a Definitions,
    places: Places,
    left: u64,
    is_json: bool,
    with_losses: bool,
    template: Option<Template>,
    line: Vec<u8>,
    out: &'a mut dyn Write,
}

/// Runs the command.
///
/// # Errors
/// If the input cannot be read or the output not be written.
pub fn run(arguments: &PrintArguments, out: &mut dyn Write) -> anyhow::Result<Finding> {
    let (opened, window) = arguments.input.open_window(&arguments.window)?;
    let query = arguments.filter.query(opened.definitions(), window)?;
    if let Some(count) = arguments.last {
        return print_last(arguments, &opened, &query, count, out);
    }
    let summary = print(arguments, &opened, &query, out, |_| {})?;
    // `None`: the limit is reached.
    let Some(summary) = summary else {
        return Ok(Finding::FINE);
    };
    warn_of_damage(&opened, &summary);
    Ok(Finding::loss(summary.has_skipped_now))
}

/// Prints the events and losses of a query, each with one write. `note` gets the time of each before.
fn print(
    arguments: &PrintArguments,
    opened: &Reader,
    query: &Query,
    out: &mut dyn Write,
    mut note: impl FnMut(i64),
) -> anyhow::Result<Option<ReadSummary>> {
    let mut printer = Printer {
        definitions: opened.definitions(),
        places: Places::of(opened.definitions()),
        left: arguments.limit.unwrap_or(u64::MAX),
        is_json: arguments.input.json,
        with_losses: arguments.losses || !(arguments.input.json || arguments.template.is_some()),
        template: arguments
            .template
            .as_deref()
            .map(|text| Template::parse(text, opened.definitions()))
            .transpose()?,
        line: Vec::new(),
        out,
    };
    let mut failure = None;
    let summary = opened.for_each_item(query, |item| {
        let printed = match item {
            Item::Event(event) => {
                note(event.time());
                printer.event(&event)
            }
            Item::Loss(loss) => printer.loss(loss),
        };
        printed.unwrap_or_else(|error| {
            failure = Some(error);
            ControlFlow::Break(())
        })
    })?;
    match failure {
        Some(error) => Err(error.into()),
        None => Ok(summary),
    }
}

/// The newest of what is written, each write one piece.
struct Newest {
    pieces: VecDeque<Vec<u8>>,
    most: usize,
}

impl Write for Newest {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        if self.pieces.len() == self.most {
            self.pieces.pop_front();
        }
        if self.most != 0 {
            self.pieces.push_back(piece.to_owned());
        }
        Ok(piece.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Prints the last events and losses of a query, reading from the end in growing parts.
fn print_last(
    arguments: &PrintArguments,
    opened: &Reader,
    query: &Query,
    count: usize,
    out: &mut dyn Write,
) -> anyhow::Result<Finding> {
    /// Newest chunks of each stream of recordings, and parts of the time of a trace.
    const PARTS: [(usize, u32); 4] = [(2, 12), (16, 8), (128, 4), (usize::MAX, 0)];
    let whole = query.window();
    let (first_ns, end_ns) = (
        opened.extent().first_ns.max(whole.from_ns),
        opened.extent().end_ns,
    );
    for (chunks, shift) in PARTS {
        let (newest_chunks, from) = opened.newest(chunks, BTreeSet::new());
        // From then on, all events of all streams are read.
        let mut from_ns = from.iter().map(|(_, from_ns)| *from_ns).max();
        let mut part = query.clone();
        if opened.origin().kind == "trace" && shift != 0 {
            let span = end_ns.saturating_sub(first_ns).max(0);
            from_ns = Some(end_ns.saturating_sub(span >> shift).max(whole.from_ns));
            part = query.within(Window {
                from_ns: from_ns.unwrap_or(whole.from_ns),
                ..whole
            });
        }
        let mut newest = Newest {
            pieces: VecDeque::new(),
            most: count,
        };
        let mut times = VecDeque::new();
        let note = |time_ns| {
            if times.len() == count {
                times.pop_front();
            }
            times.push_back(time_ns);
        };
        let summary = print(arguments, &newest_chunks, &part, &mut newest, note)?;
        let is_all = from_ns.is_none_or(|from_ns| from_ns <= whole.from_ns);
        let has_all = times.len() >= count
            && times
                .front()
                .is_none_or(|first| from_ns.is_none_or(|from_ns| *first >= from_ns));
        if is_all || has_all || chunks == usize::MAX {
            newest
                .pieces
                .iter()
                .try_for_each(|piece| out.write_all(piece))?;
            let has_skipped = summary.is_some_and(|summary| {
                warn_of_damage(opened, &summary);
                summary.has_skipped_now
            });
            return Ok(Finding::loss(has_skipped));
        }
    }
    unreachable!("the last part is all")
}

impl Printer<'_> {
    fn event(&mut self, event: &Event<'_>) -> io::Result<ControlFlow<()>> {
        if self.left == 0 {
            return Ok(ControlFlow::Break(()));
        }
        self.left -= 1;
        let definitions = self.definitions;
        let elements = event.definition().map_or(&[][..], |d| &d.elements);
        let time_ns = event.time();
        let location = event.location();
        let line = &mut self.line;
        line.clear();
        if let Some(template) = &self.template {
            let values = |element: &Element, at: usize, line: &mut Vec<u8>| {
                put_value_text(line, definitions, element, event.element(at));
            };
            for piece in &template.0 {
                let _ = match piece {
                    Piece::Text(text) => line.write_all(text.as_bytes()),
                    Piece::Time => write!(line, "{}", moment(time_ns)),
                    Piece::TimeNs => write!(line, "{time_ns}"),
                    Piece::Rank => write!(line, "{}", event.rank()),
                    Piece::Location => write!(line, "{}", safe(location.unwrap_or("-"))),
                    Piece::Source => write!(line, "{}", safe(event.source())),
                    Piece::Event => write!(line, "{}", safe(event.name())),
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
                "{{\"time_ns\":{time_ns},\"rank\":{},\"source\":",
                event.rank()
            );
            put_json(line, event.source());
            line.extend_from_slice(b",\"location\":");
            match location {
                Some(location) => put_json(line, location),
                None => line.extend_from_slice(b"null"),
            }
            line.extend_from_slice(b",\"event\":");
            put_json(line, event.name());
            line.extend_from_slice(b",\"elements\":{");
        } else {
            let _ = write!(
                line,
                "{} {:>4} {} {} {}",
                moment(time_ns),
                event.rank(),
                safe(location.unwrap_or("-")),
                safe(event.source()),
                safe(event.name())
            );
        }
        if self.is_json {
            put_elements_json(line, definitions, event);
        } else {
            put_elements(line, definitions, event);
        }
        line.extend_from_slice(if self.is_json { b"}}\n" } else { b"\n" });
        self.write_line()
    }

    fn loss(&mut self, loss: &TraceLoss) -> io::Result<ControlFlow<()>> {
        if !self.with_losses {
            return Ok(ControlFlow::Continue(()));
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

    fn write_line(&mut self) -> io::Result<ControlFlow<()>> {
        self.out.write_all(&self.line)?;
        Ok(ControlFlow::Continue(()))
    }
}
