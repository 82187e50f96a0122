//! The contents of a timeline.

use annals_analysis::{TimeColumns, Wait, bin_start};
use annals_format::RegionId;
use annals_merger::Window;

use crate::time;
use crate::views::{wait_chain, wait_sentence};

/// The request.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// The time window.
    pub window: Window,
    /// Columns of time.
    pub columns: usize,
    /// Most lanes.
    pub lanes: usize,
    /// The first lane; the lanes after it follow without a gap. `None` means that lanes are spread evenly over all locations.
    pub first_lane: Option<usize>,
    /// Most rows of a lane, one for each level of nesting. With 1, a lane shows in each column the deepest calls that have at least half
    /// of it.
    pub levels: usize,
    /// Whether messages and waits are matched. `None` means: if little must be read for it.
    pub messages: Option<bool>,
}

/// Columns of a lane that show the same region, and are equally full: a bar of the picture.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    /// First column.
    pub from: usize,
    /// One more than the last column.
    pub to: usize,
    /// Place of the region in the legend.
    pub region: usize,
    /// How full the columns are, to [`annals_analysis::FULL`].
    pub fill: u8,
    /// Calls of the lane that end in these columns. `None` if they are not counted.
    pub calls: Option<u64>,
    /// Begin and end of what one call has of these columns, trace time in nanoseconds, if it is alone in them.
    pub call_ns: Option<(i64, i64)>,
    /// Whether these are begin and end of the call, within the window.
    pub is_whole: bool,
}

/// A level of nesting.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct LaneRow {
    /// Bars, by column.
    pub runs: Vec<Run>,
}

/// Events that are missing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Gap {
    /// First column.
    pub from: usize,
    /// One more than the last column.
    pub to: usize,
    /// Number of events.
    pub count: u64,
    /// Whether more may be missing.
    pub is_lower_bound: bool,
    /// Why they are missing.
    pub cause: &'static str,
}

/// Values of a metric, by column.
#[derive(Clone, PartialEq, Debug)]
pub struct MetricRow {
    /// Its name.
    pub name: String,
    /// Means. `None` before the first value.
    pub values: Vec<Option<f64>>,
}

/// A time in which a lane waited.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LaneWait {
    /// Trace time at which it begins, nanoseconds.
    pub from_ns: i64,
    /// Trace time at which it ends, nanoseconds: when the awaited event happened, or the enclosing call was left.
    pub to_ns: i64,
    /// Region and level of the call that waits. `None` if it lies in no call.
    pub call: Option<(RegionId, u32)>,
    /// Both sides of the wait.
    pub wait: Wait,
}

/// A location.
#[derive(Clone, PartialEq, Debug)]
pub struct TimelineLane {
    /// Rank of its process.
    pub rank: u32,
    /// Its name, which no other location of its process has.
    pub name: String,
    /// Its label in pictures: rank and name.
    pub label: String,
    /// Rows, from the outermost level on.
    pub rows: Vec<LaneRow>,
    /// Times in which it waited, by their begin. Shorter ones than half a column are left out, unless they are among the longest.
    pub waits: Vec<LaneWait>,
    /// How long it waited in each column, nanoseconds. Empty if that is not known.
    pub waited_ns: Vec<i64>,
    /// The missing part.
    pub gaps: Vec<Gap>,
    /// Its first metric, if it has one.
    pub metric: Option<MetricRow>,
}

impl TimelineLane {
    /// Returns the columns in which the lane waited for at least half the time.
    pub fn waiting_columns(&self, layout: &Layout) -> impl Iterator<Item = usize> {
        let start = |column| bin_start(layout.window, layout.columns, column);
        let waited = self.waited_ns.iter().enumerate();
        let mostly = waited.filter(move |(column, waited_ns)| {
            **waited_ns > 0 && 2 * **waited_ns >= start(column + 1) - start(*column)
        });
        mostly.map(|(column, _)| column)
    }
}

/// A message from lane to lane.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MessageLine {
    /// Lane and time of the send.
    pub from: (usize, i64),
    /// Lane and time of the receive.
    pub to: (usize, i64),
}

/// Messages between the lanes.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct MessageLines {
    /// All of them, or evenly spread ones if they are too many.
    pub lines: Vec<MessageLine>,
    /// Number of all messages.
    pub count: u64,
    /// Number of messages by the column of their send.
    pub by_column: Vec<u64>,
}

/// A region of the picture.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Legend {
    /// Its name.
    pub name: String,
    /// Time in itself, over all lanes shown, nanoseconds. What a bin has counts for its main region.
    pub exclusive_ns: i64,
    /// Whether the time is not exact.
    pub is_uncertain: bool,
}

impl Legend {
    /// Returns its time, and its share of `whole` nanoseconds, in words.
    pub fn time(&self, whole: i64) -> String {
        let share = self.exclusive_ns as f64 * 100.0 / whole.max(1) as f64;
        let mark = if self.is_uncertain { "~" } else { "" };
        format!("{mark}{} ({share:.1} %)", time::duration(self.exclusive_ns))
    }
}

/// A wait that is named below the picture.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NamedWait {
    /// The lane that waits.
    pub lane: usize,
    /// The level of the call that waits.
    pub level: usize,
    /// Both sides of the wait.
    pub wait: Wait,
}

/// The drawing.
#[derive(Clone, PartialEq, Debug)]
pub struct Layout {
    /// The time window, with both ends.
    pub window: Window,
    /// Columns of time.
    pub columns: usize,
    /// When they begin.
    pub time: TimeColumns,
    /// From top to bottom.
    pub lanes: Vec<TimelineLane>,
    /// Messages.
    pub messages: MessageLines,
    /// The longest waits, the longest first.
    pub longest_waits: Vec<NamedWait>,
    /// Regions, most time first.
    pub legend: Vec<Legend>,
    /// The regions of lanes at places without a bar.
    pub outside: &'static str,
    /// Notes about parts that are not shown, and how to see them.
    pub notes: Vec<String>,
}

impl Layout {
    /// Returns the longest waits as sentences, each with why the other rank was late.
    pub fn wait_sentences(&self) -> impl Iterator<Item = String> {
        let waits: Vec<Wait> = self
            .longest_waits
            .iter()
            .map(|named| named.wait.clone())
            .collect();
        let sentence = |wait: &Wait| wait_sentence(wait) + &wait_chain(wait, &waits);
        let sentences: Vec<String> = waits.iter().map(sentence).collect();
        sentences.into_iter()
    }
}
