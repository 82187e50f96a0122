//! The JSON of a trace, an event at a time.

use std::cell::Cell;
use std::io::{self, Read};
use std::rc::Rc;

use struson::reader::{JsonReader, JsonStreamReader, ReaderError, ReaderSettings, ValueType};

use super::decimal;

/// Most bytes of the file that a name or a value takes that is kept.
const MOST_VALUE_BYTES: u64 = 16 << 20;
/// Most bytes of a text that are kept; of a longer one these are the first.
const MOST_TEXT_BYTES: usize = 4096;
/// Number of groups of processes that a file may describe, and of their members.
const MOST_MEMBERS: usize = 1 << 20;

/// Arguments that are numbers.
#[derive(Clone, Copy)]
pub(super) enum Number {
    Correlation,
    ExternalId,
    Sequence,
    Bytes,
    InElements,
    OutElements,
    GroupSize,
    RankStart,
    RankStride,
    Source,
    Destination,
    MemoryBytes,
    TotalAllocated,
    Rank,
}

/// Arguments that are texts.
#[derive(Clone, Copy)]
pub(super) enum Text {
    Collective,
    DataType,
    GroupName,
    GroupRanks,
    InSplit,
    OutSplit,
    Dimensions,
    InputType,
    Grid,
    Block,
    Name,
}

const NUMBERS: usize = Number::Rank as usize + 1;
const TEXTS: usize = Text::Name as usize + 1;

enum Argument {
    Number(Number),
    Text(Text),
    Other,
}

fn argument(name: &str) -> Argument {
    use Argument::{Number as N, Text as T};
    match name {
        "correlation" => N(Number::Correlation),
        "External id" | "External Id" => N(Number::ExternalId),
        "Seq" => N(Number::Sequence),
        "bytes" => N(Number::Bytes),
        "In msg nelems" => N(Number::InElements),
        "Out msg nelems" => N(Number::OutElements),
        "Group size" => N(Number::GroupSize),
        "Global rank start" => N(Number::RankStart),
        "Global rank stride" => N(Number::RankStride),
        "Src Rank" => N(Number::Source),
        "Dst Rank" => N(Number::Destination),
        "Rank" => N(Number::Rank),
        "Bytes" => N(Number::MemoryBytes),
        "Total Allocated" => N(Number::TotalAllocated),
        "Collective name" => T(Text::Collective),
        "dtype" => T(Text::DataType),
        "Process Group Name" => T(Text::GroupName),
        "Process Group Ranks" => T(Text::GroupRanks),
        "In split size" => T(Text::InSplit),
        "Out split size" => T(Text::OutSplit),
        "Input Dims" => T(Text::Dimensions),
        "Input type" => T(Text::InputType),
        "grid" => T(Text::Grid),
        "block" => T(Text::Block),
        "name" => T(Text::Name),
        _ => Argument::Other,
    }
}

/// An event. Its memory is used for the next one.
#[derive(Default)]
pub(super) struct Event {
    pub(super) phase: String,
    pub(super) category: String,
    pub(super) name: String,
    pub(super) process: String,
    pub(super) thread: String,
    pub(super) start_ns: Option<i64>,
    pub(super) duration_ns: Option<i64>,
    numbers: [Option<i64>; NUMBERS],
    texts: [String; TEXTS],
    /// All arguments as an object of JSON, if they are wanted.
    pub(super) arguments: String,
}

impl Event {
    fn clear(&mut self) {
        let own = [
            &mut self.phase,
            &mut self.category,
            &mut self.name,
            &mut self.process,
            &mut self.thread,
            &mut self.arguments,
        ];
        own.into_iter()
            .chain(&mut self.texts)
            .for_each(String::clear);
        (self.start_ns, self.duration_ns) = (None, None);
        self.numbers = [None; NUMBERS];
    }

    pub(super) const fn number(&self, number: Number) -> Option<i64> {
        self.numbers[number as usize]
    }

    pub(super) fn unsigned(&self, number: Number) -> Option<u64> {
        u64::try_from(self.number(number)?).ok()
    }

    /// Returns a text argument. Empty if there is none.
    pub(super) fn text(&self, text: Text) -> &str {
        &self.texts[text as usize]
    }
}

/// What a file says about its process.
#[derive(Default)]
pub(super) struct Header {
    /// What is added to all times, nanoseconds.
    pub(super) base_ns: i64,
    pub(super) rank: Option<u32>,
    pub(super) ranks: Option<u32>,
    pub(super) host: String,
    /// Groups of processes: name and ranks.
    pub(super) groups: Vec<(String, Vec<u32>)>,
}

/// Returns the ranks in a text like `[0, 1]`. `None` if it is cut or none.
pub(super) fn parse_ranks(text: &str) -> Option<Vec<u32>> {
    let inner = text.trim().strip_prefix('[')?.strip_suffix(']')?;
    let each = inner.split(',').map(|rank| rank.trim().parse());
    each.collect::<Result<Vec<u32>, _>>().ok()
}

/// Fails when more bytes are read than there is a budget for: what the reader above keeps in memory is bounded so.
struct Budgeted<R> {
    inner: R,
    left: Rc<Cell<u64>>,
}

impl<R: Read> Read for Budgeted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        let left = self.left.get();
        if left < read as u64 {
            let what = format!(
                "a name or a value is longer than {} MiB",
                MOST_VALUE_BYTES >> 20
            );
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        self.left.set(left - read as u64);
        Ok(read)
    }
}

type Parsed<T> = Result<T, ReaderError>;

/// Reads the members of a trace.
pub(super) struct Json {
    reader: JsonStreamReader<Budgeted<Box<dyn Read>>>,
    left: Rc<Cell<u64>>,
    keeps_arguments: bool,
    pub(super) header: Header,
    event: Event,
}

impl Json {
    /// `keeps_arguments`: whether [`Event::arguments`] is set.
    pub(super) fn new(source: Box<dyn Read>, keeps_arguments: bool) -> Self {
        let left = Rc::new(Cell::new(u64::MAX));
        let source = Budgeted {
            inner: source,
            left: Rc::clone(&left),
        };
        let settings = ReaderSettings {
            track_path: false,
            ..ReaderSettings::default()
        };
        Self {
            reader: JsonStreamReader::new_custom(source, settings),
            left,
            keeps_arguments,
            header: Header::default(),
            event: Event::default(),
        }
    }

    /// Returns how far it has read, bytes of the decompressed file.
    pub(super) fn offset(&self) -> u64 {
        let position = self.reader.current_position(false);
        position.data_pos.unwrap_or(0)
    }

    /// Reads all. `each` is called with every event, and ends the reading when it returns false.
    pub(super) fn read(&mut self, mut each: impl FnMut(&Event) -> bool) -> Parsed<()> {
        self.reader.begin_object()?;
        while self.has_next()? {
            match self.name()?.as_str() {
                "traceEvents" if self.reader.peek()? == ValueType::Array => {
                    self.reader.begin_array()?;
                    while self.has_next()? {
                        let is_event = self.event()?;
                        if is_event && !each(&self.event) {
                            return Ok(());
                        }
                    }
                    self.reader.end_array()?;
                }
                "distributedInfo" if self.reader.peek()? == ValueType::Object => {
                    self.distributed()?;
                }
                "baseTimeNanoseconds" => self.header.base_ns = self.integer()?.unwrap_or(0),
                "host_name" => self.header.host = self.text()?,
                _ => self.skip()?,
            }
        }
        self.reader.end_object()
    }

    fn has_next(&mut self) -> Parsed<bool> {
        self.left.set(MOST_VALUE_BYTES);
        self.reader.has_next()
    }

    fn name(&mut self) -> Parsed<String> {
        self.left.set(MOST_VALUE_BYTES);
        self.reader.next_name().map(str::to_owned)
    }

    fn skip(&mut self) -> Parsed<()> {
        self.left.set(u64::MAX);
        self.reader.skip_value()
    }

    fn text(&mut self) -> Parsed<String> {
        let mut text = String::new();
        append_text(&mut self.reader, &mut text)?;
        Ok(text)
    }

    fn integer(&mut self) -> Parsed<Option<i64>> {
        Ok(decimal::integer(&self.text()?))
    }

    fn distributed(&mut self) -> Parsed<()> {
        self.reader.begin_object()?;
        while self.has_next()? {
            let small = |value: Option<i64>| value.and_then(|value| u32::try_from(value).ok());
            match self.name()?.as_str() {
                "rank" => self.header.rank = small(self.integer()?),
                "world_size" => self.header.ranks = small(self.integer()?),
                "pg_config" if self.reader.peek()? == ValueType::Array => {
                    self.reader.begin_array()?;
                    while self.has_next()? {
                        match self.reader.peek()? {
                            ValueType::Object => self.group()?,
                            _ => self.skip()?,
                        }
                    }
                    self.reader.end_array()?;
                }
                _ => self.skip()?,
            }
        }
        self.reader.end_object()
    }

    fn group(&mut self) -> Parsed<()> {
        let (mut group_name, mut ranks) = (String::new(), None);
        self.reader.begin_object()?;
        while self.has_next()? {
            match self.name()?.as_str() {
                "pg_name" => group_name = self.text()?,
                "ranks" => {
                    let mut text = String::new();
                    let most = MOST_VALUE_BYTES as usize;
                    append_json(&mut self.reader, &mut text, most, false)?;
                    ranks = parse_ranks(&text);
                }
                _ => self.skip()?,
            }
        }
        self.reader.end_object()?;
        let known = self.header.groups.iter().map(|(_, ranks)| 1 + ranks.len());
        let known: usize = known.sum();
        let ranks = ranks.filter(|ranks| known + ranks.len() < MOST_MEMBERS);
        self.header
            .groups
            .extend(ranks.map(|ranks| (group_name, ranks)));
        Ok(())
    }

    /// Reads an event. Returns whether it is one.
    fn event(&mut self) -> Parsed<bool> {
        if self.reader.peek()? != ValueType::Object {
            self.skip()?;
            return Ok(false);
        }
        self.event.clear();
        self.reader.begin_object()?;
        let mut time = String::new();
        while self.has_next()? {
            let event = &mut self.event;
            let into = match self.reader.next_name()? {
                "ph" => &mut event.phase,
                "cat" => &mut event.category,
                "name" => &mut event.name,
                "pid" => &mut event.process,
                "tid" => &mut event.thread,
                "ts" => {
                    time.clear();
                    append_text(&mut self.reader, &mut time)?;
                    event.start_ns = decimal::nanoseconds(&time);
                    continue;
                }
                "dur" => {
                    time.clear();
                    append_text(&mut self.reader, &mut time)?;
                    event.duration_ns = decimal::nanoseconds(&time);
                    continue;
                }
                "args" => {
                    self.arguments()?;
                    continue;
                }
                _ => {
                    self.skip()?;
                    continue;
                }
            };
            append_text(&mut self.reader, into)?;
        }
        self.reader.end_object()?;
        Ok(true)
    }

    fn arguments(&mut self) -> Parsed<()> {
        if self.reader.peek()? != ValueType::Object {
            return self.skip();
        }
        self.reader.begin_object()?;
        let (mut text, mut all) = (String::new(), std::mem::take(&mut self.event.arguments));
        while self.has_next()? {
            let name = self.reader.next_name()?;
            let argument = argument(name);
            if self.keeps_arguments && all.len() < MOST_TEXT_BYTES {
                all.push(if all.is_empty() { '{' } else { ',' });
                push_quoted(name, &mut all);
                all.push(':');
            } else if matches!(argument, Argument::Other) {
                self.skip()?;
                continue;
            }
            text.clear();
            append_json(
                &mut self.reader,
                &mut text,
                MOST_TEXT_BYTES,
                self.keeps_arguments,
            )?;
            if self.keeps_arguments {
                all.push_str(&text);
            }
            match argument {
                Argument::Number(number) => {
                    self.event.numbers[number as usize] = decimal::integer(text.trim_matches('"'));
                }
                Argument::Text(kind) => {
                    let text = text.trim_matches('"');
                    text.clone_into(&mut self.event.texts[kind as usize]);
                }
                Argument::Other => {}
            }
        }
        if !all.is_empty() {
            all.push('}');
        }
        self.event.arguments = all;
        self.reader.end_object()
    }
}

type Reader = JsonStreamReader<Budgeted<Box<dyn Read>>>;

/// Appends the beginning of a text.
fn push_start(text: &str, most: usize, into: &mut String) {
    let end = text.floor_char_boundary(most);
    into.push_str(&text[..end]);
}

/// Appends a text or a number; nothing of a value of another type.
fn append_text(reader: &mut Reader, into: &mut String) -> Parsed<()> {
    match reader.peek()? {
        ValueType::String => push_start(reader.next_str()?, MOST_TEXT_BYTES, into),
        ValueType::Number => into.push_str(reader.next_number_as_str()?),
        _ => reader.skip_value()?,
    }
    Ok(())
}

/// Appends a text of JSON, in quotation marks.
fn push_quoted(text: &str, into: &mut String) {
    into.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => into.extend(['\\', c]),
            c if c.is_control() => into.push(' '),
            c => into.push(c),
        }
    }
    into.push('"');
}

/// Appends a value as JSON, as far as there is room. `is_quoted`: with quotation marks around a text that is not within an array.
fn append_json(reader: &mut Reader, into: &mut String, most: usize, is_quoted: bool) -> Parsed<()> {
    if into.len() >= most {
        return reader.skip_value();
    }
    match reader.peek()? {
        ValueType::String if is_quoted => {
            let mut text = String::new();
            push_start(reader.next_str()?, most, &mut text);
            push_quoted(&text, into);
        }
        ValueType::String => push_start(reader.next_str()?, most, into),
        ValueType::Number => into.push_str(reader.next_number_as_str()?),
        ValueType::Boolean => into.push_str(if reader.next_bool()? { "true" } else { "false" }),
        ValueType::Null => {
            reader.next_null()?;
            into.push_str("null");
        }
        ValueType::Array => {
            reader.begin_array()?;
            into.push('[');
            let start = into.len();
            while reader.has_next()? {
                if into.len() > start {
                    into.push_str(", ");
                }
                append_json(reader, into, most, true)?;
            }
            into.push(']');
            reader.end_array()?;
        }
        ValueType::Object => {
            reader.begin_object()?;
            into.push('{');
            let start = into.len();
            while reader.has_next()? {
                if into.len() > start {
                    into.push_str(", ");
                }
                push_quoted(reader.next_name()?, into);
                into.push_str(": ");
                append_json(reader, into, most, true)?;
            }
            into.push('}');
            reader.end_object()?;
        }
    }
    Ok(())
}
