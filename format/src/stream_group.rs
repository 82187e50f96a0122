//! The events of some streams in a trace chunk, stream after stream, in columns.

use std::ops::Range;

use crate::chunk::{
    TypeColumns, check_events, ordinals, put_columns, put_type_table, read_columns, read_type_table,
};
use crate::error::{FormatError, Result};
use crate::ids::{EventTypeId, StreamId};
use crate::ints::{Word, put_codes, put_ints, read_ints};
use crate::wire::Wire;

/// A stream, and its events by event type, ascending.
pub type StreamCounts = (StreamId, Vec<(EventTypeId, u64)>);

/// Events of several streams in a chunk: those of the first, then those of the second, and so on.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct StreamGroup {
    /// The streams, ascending, each with the index after its last event.
    pub ends: Vec<(StreamId, u32)>,
    /// Trace time of each event, nanoseconds; within a stream ascending.
    pub times_ns: Vec<i64>,
    /// For each event, the index of its type in `types`.
    pub type_index: Vec<u16>,
    /// The columns, by event type.
    pub types: Vec<TypeColumns>,
    /// For each event, its unwrapped tick minus the tick that its clock's map has for its time.
    pub tick_residuals: Vec<i64>,
    /// For each event of a stream that was sorted, its position in the stream; else 0. Empty: 0 for all.
    pub positions: Vec<u64>,
    /// For each event, by how much causality repair moved it, nanoseconds. Empty: 0 for all.
    pub shifts_ns: Vec<i64>,
}

/// Minimum size of a frame's part that is worth compressing with separate statistics, bytes.
const LEAST_PART: usize = 1 << 11;

/// A column of which all values are 0, as it is stored.
const ZEROS: [u8; 2] = [0, 0];

/// Appends a column that most groups have nothing but 0 in.
fn put_rare<T: Word>(values: &[T], count: usize, out: &mut Vec<u8>) {
    if values.is_empty() && count != 0 {
        out.extend_from_slice(&ZEROS);
    } else {
        put_ints(values, out);
    }
}

/// Reads such a column; empty when it has nothing but 0.
fn read_rare(w: &mut Wire<'_>, count: usize) -> Result<Vec<u64>> {
    if count != 0 && w.starts_with(&ZEROS) {
        w.take(ZEROS.len(), "a column of zeros")?;
        return Ok(Vec::new());
    }
    read_ints(w, count)
}

fn signed(values: Vec<u64>) -> Vec<i64> {
    values.into_iter().map(|value| value as i64).collect()
}

impl StreamGroup {
    /// Returns the number of events.
    pub fn len(&self) -> usize {
        self.times_ns.len()
    }

    /// Returns whether there are no events.
    pub fn is_empty(&self) -> bool {
        self.times_ns.is_empty()
    }

    /// Returns the streams, ascending, each with the indexes of its events.
    pub fn runs(&self) -> impl Iterator<Item = (StreamId, Range<usize>)> {
        let mut start = 0;
        self.ends.iter().map(move |(stream, end)| {
            let run = start..*end as usize;
            start = run.end;
            (*stream, run)
        })
    }

    /// Returns the position of an event in its stream if that was sorted, otherwise 0.
    #[inline]
    pub fn position(&self, index: usize) -> u64 {
        self.positions.get(index).copied().unwrap_or(0)
    }

    /// Returns by how much causality repair moved an event, nanoseconds.
    #[inline]
    pub fn shift_ns(&self, index: usize) -> i64 {
        self.shifts_ns.get(index).copied().unwrap_or(0)
    }

    /// Returns, for each event, its index in the columns of its type.
    pub fn ordinals(&self) -> Vec<u32> {
        ordinals(&self.type_index, self.types.len())
    }

    /// Returns the trace times of the first and the last event, nanoseconds. `None` if there are no
    /// events.
    pub fn span_ns(&self) -> Option<(i64, i64)> {
        let runs = self.runs().filter(|(_, run)| !run.is_empty());
        let spans = runs.map(|(_, run)| (self.times_ns[run.start], self.times_ns[run.end - 1]));
        spans.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))
    }

    /// Appends the events by stream and event type, both ascending.
    pub(crate) fn count(&self, counts: &mut Vec<StreamCounts>) {
        let mut of_types = vec![0_u64; self.types.len()];
        let mut touched: Vec<u16> = Vec::new();
        for (stream, run) in self.runs() {
            for place in &self.type_index[run] {
                let count = &mut of_types[usize::from(*place)];
                if *count == 0 {
                    touched.push(*place);
                }
                *count += 1;
            }
            touched.sort_unstable_by_key(|place| self.types[usize::from(*place)].event_type);
            let mut own = Vec::with_capacity(touched.len());
            for place in touched.drain(..) {
                let count = std::mem::take(&mut of_types[usize::from(place)]);
                let event_type = self.types[usize::from(place)].event_type;
                match own.last_mut() {
                    // Columns of another shape.
                    Some((last, sum)) if *last == event_type => *sum += count,
                    _ => own.push((event_type, count)),
                }
            }
            counts.push((stream, own));
        }
    }

    /// Appends the frame of the group, of a chunk whose first event has this time. Returns where parts of other kinds begin:
    /// compressed apart from each other, times, types and values take less room.
    pub(crate) fn encode(&self, chunk_first_ns: i64, out: &mut Vec<u8>) -> Vec<usize> {
        let mut cuts = vec![out.len()];
        let cut = |at: usize, cuts: &mut Vec<usize>| {
            if cuts.last().is_some_and(|last| at - last >= LEAST_PART) {
                cuts.push(at);
            }
        };
        let mut firsts = Vec::with_capacity(self.ends.len());
        let mut steps = Vec::with_capacity(self.len());
        for (_, run) in self.runs() {
            let times = &self.times_ns[run];
            let Some(first) = times.first() else { continue };
            firsts.push(first.wrapping_sub(chunk_first_ns));
            steps.extend(times.windows(2).map(|pair| pair[1].wrapping_sub(pair[0])));
        }
        put_ints(&firsts, out);
        put_ints(&steps, out);
        cut(out.len(), &mut cuts);
        put_type_table(&self.types, &self.type_index, out);
        cut(out.len(), &mut cuts);
        put_columns(&self.types, out);
        put_codes(&self.tick_residuals, out);
        put_rare(&self.positions, self.len(), out);
        put_rare(&self.shifts_ns, self.len(), out);
        cuts.remove(0);
        cuts
    }

    /// Reads a group of a chunk with these first and last times, of streams with these counts. `max_items` bounds events
    /// and element values together.
    pub(crate) fn decode(
        w: &mut Wire<'_>,
        first_ns: i64,
        last_ns: i64,
        counts: &[StreamCounts],
        max_items: u64,
    ) -> Result<Self> {
        let mut ends = Vec::with_capacity(counts.len());
        let mut sum = 0_u64;
        for (stream, of_types) in counts {
            let events = of_types.iter().map(|(_, count)| count);
            let before = sum;
            sum = events.fold(sum, |sum, count| sum.saturating_add(*count));
            check_events(sum, max_items)?;
            if sum == before {
                let found = format!("stream {} without events", stream.get());
                return Err(FormatError::invalid(0, "streams with events", found));
            }
            let end = u32::try_from(sum).map_err(|_| {
                FormatError::invalid(0, "a number of events within the limits", sum)
            })?;
            ends.push((*stream, end));
        }
        let count = sum as usize;
        let mut group = Self {
            ends,
            ..Self::default()
        };
        let firsts = read_ints(w, counts.len())?;
        let steps = read_ints(w, count - counts.len())?;
        group.times_ns = group.times(first_ns, last_ns, &firsts, &steps)?;
        (group.types, group.type_index) = read_type_table(w, count, max_items)?;
        read_columns(w, &mut group.types)?;
        group.tick_residuals = signed(read_ints(w, count)?);
        group.positions = read_rare(w, count)?;
        group.shifts_ns = signed(read_rare(w, count)?);
        let mut found = Vec::with_capacity(counts.len());
        group.count(&mut found);
        if found != counts {
            return Err(FormatError::invalid(
                0,
                "the streams and event types of the head",
                "others",
            ));
        }
        Ok(group)
    }

    fn times(
        &self,
        first_ns: i64,
        last_ns: i64,
        firsts: &[u64],
        steps: &[u64],
    ) -> Result<Vec<i64>> {
        let mut times_ns = Vec::with_capacity(firsts.len() + steps.len());
        let mut steps = steps.iter();
        // Times are counted from the chunk's first: none is beyond its last.
        let most = last_ns.wrapping_sub(first_ns) as u64;
        for ((_, run), first) in self.runs().zip(firsts) {
            let mut offset = *first;
            let mut is_inside = last_ns >= first_ns && offset <= most;
            times_ns.push(first_ns.wrapping_add(offset as i64));
            for step in steps.by_ref().take(run.len() - 1) {
                let (sum, is_over) = offset.overflowing_add(*step);
                is_inside &= !is_over && sum <= most;
                offset = sum;
                times_ns.push(first_ns.wrapping_add(offset as i64));
            }
            if !is_inside {
                let found = format!("{offset} ns after the first");
                let expected = "times that ascend between the first and the last of the head";
                return Err(FormatError::invalid(0, expected, found));
            }
        }
        Ok(times_ns)
    }
}
