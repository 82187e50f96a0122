//! What a request asks for: its path and query, checked before any work.

use std::collections::BTreeMap;

use annals_format::{LaneKind, MAX_BIN_LEVEL, MAX_LANE_DEPTH};
use annals_merger::Window;

use annals_analysis::BinRange;

/// Bins of a tile.
pub const TILE_BINS: u32 = 1024;
/// Most lanes of a request.
pub const MOST_LANES: usize = 512;
/// Most columns of a curve.
const MOST_COLUMNS: u32 = 8192;
/// Longest text that is looked for, bytes.
const MOST_TEXT: usize = 1024;

/// A row of the picture: some locations, and which depths of their calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RowLanes {
    /// What the locations have in common.
    pub kind: LaneKind,
    /// The number of that.
    pub id: u32,
    /// First depth.
    pub first: u32,
    /// Last depth.
    pub last: u32,
}

/// What is asked of a trace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Question {
    /// Names, groups and regions.
    Lanes,
    /// Bins of lanes, in a binary form for pictures.
    Tile(BinRange, Vec<RowLanes>),
    /// Bins of lanes, with all values.
    Bins(BinRange, Vec<RowLanes>),
    /// The calls of a location at a time.
    Calls {
        /// The location.
        location: u32,
        /// Trace time, nanoseconds.
        at_ns: i64,
    },
    /// Regions of a window, of some rows or all.
    Regions(Window, Vec<RowLanes>),
    /// Waiting in a window, of some rows or all; the third value: however much must be read for it.
    Waits(Window, Vec<RowLanes>, bool),
    /// Functions of samples in a window, of some rows or all; the third value as with waits.
    Samples(Window, Vec<RowLanes>, bool),
    /// Messages and collective operations of a window; the second value: however much must be read for them.
    Messages(Window, bool),
    /// Metrics of a window in columns.
    Metrics(Window, u32),
    /// Messages of a window by pair and bin; the second value: the most bins of time.
    MessageBins(Window, u32),
    /// Metrics of a window by bin; the second value: the most bins of time.
    MetricBins(Window, u32),
    /// Regions and locations whose name has a text.
    Search(String),
    /// The next call of a region after a time, or the one before.
    Find {
        /// The region.
        region: u32,
        /// From which time on, nanoseconds.
        from_ns: i64,
        /// Towards the start of the trace.
        is_backward: bool,
    },
    /// Losses in a window.
    Losses(Window),
}

/// What is asked of the server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Request {
    /// A file of the page.
    File(String),
    /// What the inputs are, and whether they are ready.
    Traces,
    /// Something of a trace, by its id.
    Of(String, Question),
}

/// Why a request is not understood.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BadRequest(pub String);

type Result<T> = std::result::Result<T, BadRequest>;

fn bad<T>(what: impl Into<String>) -> Result<T> {
    Err(BadRequest(what.into()))
}

/// The parameters after the question mark.
struct Parameters(BTreeMap<String, String>);

impl Parameters {
    fn of(query: &str) -> Result<Self> {
        let mut found = BTreeMap::new();
        for part in query.split('&').filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            let decoded = percent_encoding::percent_decode_str(value).decode_utf8();
            let Ok(value) = decoded else {
                return bad(format!("`{name}` is not UTF-8"));
            };
            if found.insert(name.to_owned(), value.into_owned()).is_some() {
                return bad(format!("`{name}` is there twice"));
            }
        }
        Ok(Self(found))
    }

    fn take(&mut self, name: &str) -> Result<String> {
        let found = self.0.remove(name);
        found.map_or_else(|| bad(format!("`{name}` is missing")), Ok)
    }

    fn number<T: std::str::FromStr>(&mut self, name: &str) -> Result<T> {
        number(&self.take(name)?, name)
    }

    fn window(&mut self) -> Result<Window> {
        let window = Window {
            from_ns: self.number("from")?,
            to_ns: self.number("to")?,
        };
        match window.from_ns < window.to_ns {
            true => Ok(window),
            false => bad("`from` must be before `to`"),
        }
    }

    fn columns(&mut self) -> Result<u32> {
        let columns: u32 = self.number("columns")?;
        match (1..=MOST_COLUMNS).contains(&columns) {
            true => Ok(columns),
            false => bad(format!("`columns`: 1 to {MOST_COLUMNS}")),
        }
    }

    fn is_all(&mut self) -> Result<bool> {
        match self.0.remove("all").as_deref() {
            None | Some("no") => Ok(false),
            Some("yes") => Ok(true),
            Some(_) => bad("`all`: yes or no"),
        }
    }

    fn lanes(&mut self) -> Result<Vec<RowLanes>> {
        let text = self.take("lanes")?;
        let lanes: Vec<RowLanes> = text.split(',').map(lanes_of).collect::<Result<_>>()?;
        let count = |row: &RowLanes| (row.last - row.first + 1) as usize;
        match lanes.iter().map(count).sum::<usize>() {
            0..=MOST_LANES => Ok(lanes),
            more => bad(format!("{more} lanes; at most {MOST_LANES} at a time")),
        }
    }

    /// Lanes of some rows. None if those of all rows are meant.
    fn lanes_or_all(&mut self) -> Result<Vec<RowLanes>> {
        match self.0.contains_key("lanes") {
            true => self.lanes(),
            false => Ok(Vec::new()),
        }
    }

    /// Nothing else may be there.
    fn end(self) -> Result<()> {
        match self.0.into_keys().next() {
            None => Ok(()),
            Some(name) => bad(format!("`{name}` is unknown here")),
        }
    }
}

fn number<T: std::str::FromStr>(text: &str, name: &str) -> Result<T> {
    let range = || {
        BadRequest(format!(
            "`{name}` is no whole number in its range: `{text}`"
        ))
    };
    text.parse().map_err(|_| range())
}

/// Returns the letter of a kind of lane.
pub const fn letter(kind: LaneKind) -> char {
    match kind {
        LaneKind::Location => 't',
        LaneKind::Process => 'p',
        LaneKind::Host => 'h',
        LaneKind::Source => 's',
        LaneKind::All => 'a',
    }
}

/// Reads lanes: a letter for the kind, the number, a dot, and one depth or the first and last: `t17.0-7`.
fn lanes_of(text: &str) -> Result<RowLanes> {
    let mut rest = text.chars();
    let kind = match rest.next() {
        Some('t') => LaneKind::Location,
        Some('p') => LaneKind::Process,
        Some('h') => LaneKind::Host,
        Some('s') => LaneKind::Source,
        Some('a') => LaneKind::All,
        _ => {
            return bad(format!(
                "`{text}` is no lane: expected t17.0-7, with t, p, h, s or a"
            ));
        }
    };
    let Some((id, depths)) = rest.as_str().split_once('.') else {
        return bad(format!("`{text}` has no depth: expected t17.0 or t17.0-7"));
    };
    let (first, last) = depths.split_once('-').unwrap_or((depths, depths));
    let lanes = RowLanes {
        kind,
        id: number(id, "lanes")?,
        first: number(first, "lanes")?,
        last: number(last, "lanes")?,
    };
    match lanes.first <= lanes.last && lanes.last < MAX_LANE_DEPTH {
        true => Ok(lanes),
        false => bad(format!(
            "depths of `{text}`: ascending, and below {MAX_LANE_DEPTH}"
        )),
    }
}

fn bins(level: &str, first: &str, count: u32) -> Result<BinRange> {
    let range = BinRange {
        level: number(level, "level")?,
        first: number(first, "first")?,
        count,
    };
    let most = i64::MAX >> range.level.min(MAX_BIN_LEVEL);
    let is_in_time = range.level <= MAX_BIN_LEVEL && (-most..=most).contains(&range.first) && {
        let window = range.window();
        window.from_ns < window.to_ns
    };
    match (1..=TILE_BINS).contains(&count) && is_in_time {
        true => Ok(range),
        false => bad(format!(
            "bins: a level of at most {MAX_BIN_LEVEL}, at most {TILE_BINS} of them, within 64 bits of nanoseconds"
        )),
    }
}

/// Reads the path and the query of a request.
///
/// # Errors
/// If they are not understood, or ask for more than one request may have.
pub fn request(path: &str, query: &str) -> Result<Request> {
    let Some(path) = path.strip_prefix("/api/v1/traces") else {
        return Ok(Request::File(path.to_owned()));
    };
    let mut parameters = Parameters::of(query)?;
    let mut parts = path.split('/').skip(1);
    let Some(id) = parts.next() else {
        parameters.end()?;
        return Ok(Request::Traces);
    };
    let question = match (parts.next(), parts.next(), parts.next(), parts.next()) {
        (Some("lanes"), None, ..) => Question::Lanes,
        (Some("tiles"), Some(level), Some(index), None) => {
            let index: i64 = number(index, "index")?;
            let Some(first) = index.checked_mul(TILE_BINS.into()) else {
                return bad("`index` is out of range");
            };
            let range = bins(level, &first.to_string(), TILE_BINS)?;
            Question::Tile(range, parameters.lanes()?)
        }
        (Some("bins"), Some(level), Some(first), None) => {
            let range = bins(level, first, parameters.number("count")?)?;
            Question::Bins(range, parameters.lanes()?)
        }
        (Some("calls"), None, ..) => Question::Calls {
            location: parameters.number("location")?,
            at_ns: parameters.number("at")?,
        },
        (Some("regions"), None, ..) => {
            let window = parameters.window()?;
            Question::Regions(window, parameters.lanes_or_all()?)
        }
        (Some("waits"), None, ..) => {
            let (window, lanes) = (parameters.window()?, parameters.lanes_or_all()?);
            Question::Waits(window, lanes, parameters.is_all()?)
        }
        (Some("samples"), None, ..) => {
            let (window, lanes) = (parameters.window()?, parameters.lanes_or_all()?);
            Question::Samples(window, lanes, parameters.is_all()?)
        }
        (Some("messages"), None, ..) => {
            Question::Messages(parameters.window()?, parameters.is_all()?)
        }
        (Some("metrics"), None, ..) => {
            let columns = parameters.columns()?;
            Question::Metrics(parameters.window()?, columns)
        }
        (Some("message-bins"), None, ..) => {
            let columns = parameters.columns()?;
            Question::MessageBins(parameters.window()?, columns)
        }
        (Some("metric-bins"), None, ..) => {
            let columns = parameters.columns()?;
            Question::MetricBins(parameters.window()?, columns)
        }
        (Some("search"), None, ..) => match parameters.take("text")? {
            text if text.len() > MOST_TEXT => {
                return bad(format!("`text`: at most {MOST_TEXT} bytes"));
            }
            text => Question::Search(text),
        },
        (Some("find"), None, ..) => Question::Find {
            region: parameters.number("region")?,
            from_ns: parameters.number("from")?,
            is_backward: match parameters.take("direction")?.as_str() {
                "forward" => false,
                "backward" => true,
                _ => return bad("`direction`: forward or backward"),
            },
        },
        (Some("losses"), None, ..) => Question::Losses(parameters.window()?),
        _ => return bad("no such question: see the manual, chapter “In the browser”"),
    };
    parameters.end()?;
    Ok(Request::Of(id.to_owned(), question))
}
