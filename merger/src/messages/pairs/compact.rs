//! The events of messages, as they are passed on to another process: some ten bytes for each.
//!
//! In programs, the same messages are sent again and again. What they have in common is a [`Pattern`], which is written once; a
//! pattern is expected to follow the one that it followed before in its stream. The rest are columns of integers.

use annals_format::wire::{Wire, unzigzag, zigzag};
use annals_format::{put_ints, read_ints};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize, Serializer};

use super::{Detail, MessageEvents};
use crate::messages::{Lost, MessageBatch, MessageContent, MessageEvent};

/// Most events that are decoded. A slice of a trace has fewer.
const MOST_EVENTS: usize = 1 << 26;

/// An event without what differs from one to the next of its kind.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
struct Pattern {
    event: MessageEvent,
    detail: Detail,
}

/// What differs.
#[derive(Clone, Copy, Debug)]
struct Rest {
    time_ns: i64,
    request: u64,
    sequence: u64,
    entered_ns: i64,
    left_ns: i64,
}

const fn sequence_mut(content: &mut MessageContent) -> &mut u64 {
    match content {
        MessageContent::PointToPoint(message) => &mut message.sequence,
        MessageContent::Collective(part) => &mut part.sequence,
    }
}

fn take_apart(event: &MessageEvent, detail: &Detail) -> (Pattern, Rest) {
    let (mut event, mut detail) = (*event, *detail);
    let rest = Rest {
        time_ns: std::mem::take(&mut event.time_ns),
        request: std::mem::take(&mut event.request),
        sequence: std::mem::take(sequence_mut(&mut event.content)),
        entered_ns: std::mem::take(&mut detail.entered_ns),
        left_ns: std::mem::take(&mut detail.left_ns),
    };
    (detail.index, detail.carry) = (0, 0);
    (Pattern { event, detail }, rest)
}

const fn put_together(pattern: &Pattern, rest: &Rest) -> (MessageEvent, Detail) {
    let (mut event, mut detail) = (pattern.event, pattern.detail);
    (event.time_ns, event.request) = (rest.time_ns, rest.request);
    *sequence_mut(&mut event.content) = rest.sequence;
    (detail.entered_ns, detail.left_ns) = (rest.entered_ns, rest.left_ns);
    (event, detail)
}

/// What was last, of a pattern: the next differs little from it.
#[derive(Clone, Copy, Default, Debug)]
struct Last {
    request: u64,
    sequence: u64,
    /// Number of the pattern that followed in the stream.
    next: u32,
}

/// What reader and writer know of the events so far.
#[derive(Debug, Default)]
struct Course {
    time_ns: i64,
    /// By pattern.
    last: Vec<Last>,
    /// By stream: the number of its last pattern.
    patterns: Vec<u32>,
}

impl Course {
    /// No pattern.
    const NONE: u32 = u32::MAX;

    /// Returns the pattern that a stream is expected to have next.
    fn expected(&mut self, stream: usize) -> u32 {
        if stream >= self.patterns.len() {
            self.patterns.resize(stream + 1, Self::NONE);
        }
        let before = self.last.get(self.patterns[stream] as usize);
        before.map_or(Self::NONE, |last| last.next)
    }

    /// Takes note of a stream's pattern, after what was expected.
    fn follow(&mut self, stream: usize, pattern: u32) {
        let before = std::mem::replace(&mut self.patterns[stream], pattern);
        if let Some(last) = self.last.get_mut(before as usize) {
            last.next = pattern;
        }
    }
}

/// Columns, of which each event has one integer.
#[derive(Debug, Default)]
struct Columns {
    streams: Vec<u64>,
    /// 0 means the expected pattern, otherwise its number plus one.
    patterns: Vec<u64>,
    /// Time since the event before, nanoseconds.
    times: Vec<u64>,
    /// Steps since the last event of the pattern, zigzag.
    requests: Vec<u64>,
    /// Steps since the last event of the pattern, zigzag, too.
    sequences: Vec<u64>,
    /// Time from the enter of the call to the event, nanoseconds. 0 if there is no call.
    entered: Vec<u64>,
    /// Time from the event to the leave of the call, nanoseconds: zigzag, plus one. 0 if there is no leave.
    left: Vec<u64>,
}

impl Columns {
    fn with_capacity(count: usize) -> Self {
        let empty = || Vec::with_capacity(count);
        Self {
            streams: empty(),
            patterns: empty(),
            times: empty(),
            requests: empty(),
            sequences: empty(),
            entered: empty(),
            left: empty(),
        }
    }

    fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for column in [
            &self.streams,
            &self.patterns,
            &self.times,
            &self.requests,
            &self.sequences,
            &self.entered,
            &self.left,
        ] {
            put_ints(column, &mut bytes);
        }
        bytes
    }

    fn decode(bytes: &[u8], count: usize) -> annals_format::Result<Self> {
        let mut wire = Wire::new(bytes);
        Ok(Self {
            streams: read_ints(&mut wire, count)?,
            patterns: read_ints(&mut wire, count)?,
            times: read_ints(&mut wire, count)?,
            requests: read_ints(&mut wire, count)?,
            sequences: read_ints(&mut wire, count)?,
            entered: read_ints(&mut wire, count)?,
            left: read_ints(&mut wire, count)?,
        })
    }
}

/// The form in which [`MessageEvents`] are serialised.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct CompactEvents {
    patterns: Vec<Pattern>,
    losses: Vec<(usize, u32, Lost)>,
    count: usize,
    #[serde(with = "serde_bytes")]
    columns: Vec<u8>,
}

impl CompactEvents {
    fn of(events: &MessageEvents) -> Self {
        let batch = &events.batch;
        let mut numbers: FxHashMap<Pattern, u32> = FxHashMap::default();
        let mut patterns: Vec<Pattern> = Vec::new();
        let mut course = Course::default();
        let mut columns = Columns::with_capacity(batch.events.len());
        for (event, detail) in batch.events.iter().zip(&batch.details) {
            let (pattern, rest) = take_apart(event, detail);
            let stream = detail.stream.index();
            let expected = course.expected(stream);
            let number = if patterns.get(expected as usize) == Some(&pattern) {
                columns.patterns.push(0);
                expected
            } else {
                let number = *numbers.entry(pattern).or_insert_with(|| {
                    patterns.push(pattern);
                    course.last.push(Last::default());
                    patterns.len() as u32 - 1
                });
                columns.patterns.push(u64::from(number) + 1);
                number
            };
            course.follow(stream, number);
            columns.streams.push(stream as u64);
            let since_ns = rest.time_ns.wrapping_sub(course.time_ns);
            columns.times.push(since_ns as u64);
            course.time_ns = rest.time_ns;
            let last = &mut course.last[number as usize];
            columns.requests.push(step(&mut last.request, rest.request));
            columns
                .sequences
                .push(step(&mut last.sequence, rest.sequence));
            let entered_ns = rest.time_ns.wrapping_sub(rest.entered_ns);
            columns.entered.push(if detail.has_call {
                entered_ns as u64
            } else {
                0
            });
            columns.left.push(match rest.left_ns {
                Detail::NOT_LEFT => 0,
                left_ns => zigzag(left_ns.wrapping_sub(rest.time_ns)).wrapping_add(1),
            });
        }
        Self {
            patterns,
            losses: batch.losses.clone(),
            count: batch.events.len(),
            columns: columns.encode(),
        }
    }
}

/// Returns the step from the last value to the next.
const fn step(last: &mut u64, next: u64) -> u64 {
    let before = std::mem::replace(last, next);
    zigzag(next.wrapping_sub(before) as i64)
}

/// Returns the value that is a step after the last.
const fn stepped(last: &mut u64, step: u64) -> u64 {
    *last = last.wrapping_add(unzigzag(step) as u64);
    *last
}

impl Serialize for MessageEvents {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        CompactEvents::of(self).serialize(serializer)
    }
}

impl TryFrom<CompactEvents> for MessageEvents {
    type Error = String;

    fn try_from(compact: CompactEvents) -> Result<Self, String> {
        let (patterns, count) = (&compact.patterns, compact.count);
        if count > MOST_EVENTS {
            return Err(format!(
                "{count} events of messages, expected {MOST_EVENTS} at most"
            ));
        }
        let columns =
            Columns::decode(&compact.columns, count).map_err(|error| error.to_string())?;
        let streams = patterns.iter().map(|pattern| pattern.detail.stream.get());
        let last_stream = streams.max().map_or(0, u64::from);
        let mut course = Course {
            last: vec![Last::default(); patterns.len()],
            ..Course::default()
        };
        let mut batch = MessageBatch {
            events: Vec::with_capacity(count),
            details: Vec::with_capacity(count),
            losses: compact.losses,
        };
        for index in 0..count {
            let stream = columns.streams[index];
            if stream > last_stream {
                return Err(format!("stream {stream}, expected {last_stream} at most"));
            }
            let expected = course.expected(stream as usize);
            let number = match columns.patterns[index] {
                0 => expected,
                number => u32::try_from(number - 1).unwrap_or(Course::NONE),
            };
            let pattern = patterns.get(number as usize);
            let pattern = pattern.ok_or_else(|| format!("pattern {number} is missing"))?;
            course.follow(stream as usize, number);
            course.time_ns = course.time_ns.wrapping_add(columns.times[index] as i64);
            let last = &mut course.last[number as usize];
            let (time_ns, has_call) = (course.time_ns, pattern.detail.has_call);
            let entered_ns = time_ns.wrapping_sub(columns.entered[index] as i64);
            let (event, detail) = put_together(
                pattern,
                &Rest {
                    time_ns,
                    request: stepped(&mut last.request, columns.requests[index]),
                    sequence: stepped(&mut last.sequence, columns.sequences[index]),
                    entered_ns: if has_call { entered_ns } else { 0 },
                    left_ns: match columns.left[index] {
                        0 => Detail::NOT_LEFT,
                        left => time_ns.wrapping_add(unzigzag(left.wrapping_sub(1))),
                    },
                },
            );
            batch.events.push(event);
            batch.details.push(detail);
        }
        Ok(Self {
            batch,
            next: 0,
            chunk_start: 0,
        })
    }
}
