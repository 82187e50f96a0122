//! Row chunks: chunks whose events are the rows of a page, to be put into columns when the program has ended.

use std::collections::BTreeMap;

use super::builder::{CONTINUED, ChunkBuilder, MOST_STEP, PLAIN_ROW, is_plain, word_at};
use super::row::{ROW_DROPPED, ROW_EVENT, ROW_FAR_TICK, ROW_OBSERVATION, read_elements};
use super::{
    Chunk, ChunkHeader, Cumulative, MAX_CHUNK_EVENTS, MAX_CHUNK_VALUES, check_events, read_dropped,
};
use crate::definitions::{EventTypeSchema, MAX_ELEMENTS, Schema};
use crate::error::{FormatError, Result};
use crate::ids::{EventTypeId, StreamId};
use crate::limits::Content;
use crate::value::ElementType;
use crate::wire::{Put, Wire};

/// Event types from this number on are not in row chunks: it bounds the tables of a reader.
const EVENT_TYPES: u32 = 4096;
/// In the byte of an element's type: the element is optional.
const OPTIONAL: u8 = 0x80;
/// Of a first byte: rows that begin with it are not plain, or none has been met.
const NOT_PLAIN: u8 = u8::MAX;

/// Finds what the head of a row chunk says, without putting the rows into columns.
///
/// The writer does this for each event while the program runs, where no processor is idle: rows of the most frequent kinds take
/// a few instructions.
#[derive(Debug)]
pub struct RowScanner {
    /// By the first byte of a row: how many varints follow its tick, if all of its elements are varints.
    elements: Box<[u8; 256]>,
    /// By the first byte of a row: events.
    counts: Box<[u32; 256]>,
    /// Events of the types whose number is more than a byte.
    others: BTreeMap<EventTypeId, u64>,
}

/// What a scan has found so far.
struct Scan {
    now: u64,
    first_tick: Option<u64>,
    /// Ticks since the first event.
    span: i64,
    dropped_count: u64,
}

impl Scan {
    /// Adds ticks to those since the first event; `None` if they go back, or are more than a head can say.
    fn pass(&mut self, ticks: u64) -> Option<()> {
        self.span = self.span.checked_add(i64::try_from(ticks).ok()?)?;
        Some(())
    }
}

impl Default for RowScanner {
    fn default() -> Self {
        Self {
            elements: Box::new([NOT_PLAIN; 256]),
            counts: Box::new([0; 256]),
            others: BTreeMap::new(),
        }
    }
}

impl RowScanner {
    /// Returns the head of the row chunk with these rows. The fields that only the writer knows are left at 0. The clock must have 64
    /// bits, and the schema must be that of earlier scans, or have more event types.
    ///
    /// Returns `None` if a row chunk cannot have the rows: there is no event; ticks go back, or are more than 2⁶³ − 1 apart; an event
    /// type is not in the schema, or its id is 4096 or more; there are more events or values than a chunk may have; or a row
    /// cannot be read.
    pub fn scan(
        &mut self,
        schema: &Schema,
        stream: StreamId,
        base_tick: u64,
        rows: &[u8],
    ) -> Option<ChunkHeader> {
        self.counts.fill(0);
        self.others.clear();
        let mut scan = Scan {
            now: base_tick,
            first_tick: None,
            span: 0,
            dropped_count: 0,
        };
        let mut wire = Wire::new(rows);
        while !wire.is_empty() {
            // The first event is met below.
            if scan.first_tick.is_some() {
                let rest = &rows[wire.position()..];
                let before = scan.now;
                let length = skip_plain_rows(&self.elements, &mut self.counts, &mut scan.now, rest);
                wire.skip(length);
                scan.pass(scan.now.wrapping_sub(before))?;
                if wire.is_empty() {
                    break;
                }
            }
            self.scan_row(schema, &mut scan, &mut wire)?;
        }
        let first_tick = scan.first_tick?;
        let near = self.counts.iter().enumerate();
        let near = near.filter(|(_, count)| **count != 0);
        let near = near.map(|(code, count)| {
            let number = code as u64 - ROW_EVENT;
            (EventTypeId::new(number as u32), u64::from(*count))
        });
        let others = self.others.iter().map(|(id, count)| (*id, *count));
        let counts: Vec<(EventTypeId, u64)> = near.chain(others).collect();
        let event_count: u64 = counts.iter().map(|(_, count)| *count).sum();
        let values = counts.iter().map(|(id, count)| {
            let elements = schema.get(*id).map_or(0, |schema| schema.elements.len());
            count.saturating_mul(elements as u64)
        });
        if event_count > MAX_CHUNK_EVENTS as u64 || values.sum::<u64>() > MAX_CHUNK_VALUES as u64 {
            return None;
        }
        Some(ChunkHeader {
            stream,
            sequence: 0,
            event_count,
            dropped_count: scan.dropped_count,
            first_tick,
            min_offset: 0,
            max_offset: scan.span,
            last_tick: scan.now,
            inversions: 0,
            largest_lateness: 0,
            open_reference_ns: 0,
            close_reference_ns: 0,
            before: Cumulative::default(),
            counts,
            predecessor_counts: Vec::new(),
        })
    }

    /// Takes a row of any kind.
    fn scan_row(&mut self, schema: &Schema, scan: &mut Scan, wire: &mut Wire<'_>) -> Option<()> {
        let code = wire.varint("kind of a row").ok()?;
        match code {
            ROW_DROPPED => {
                let record = read_dropped(wire).ok()?;
                if record.cause.is_dropped() {
                    scan.dropped_count = scan.dropped_count.saturating_add(record.count);
                }
            }
            ROW_OBSERVATION => {
                wire.signed("reference clock").ok()?;
            }
            _ => {
                let number = u32::try_from(code - ROW_EVENT).ok()?;
                let event_type = EventTypeId::new(number);
                let schema = schema.get(event_type).filter(|_| number < EVENT_TYPES)?;
                let step = wire.u16("tick step of a row").ok()?;
                let tick = if step == ROW_FAR_TICK {
                    wire.u64("tick of a row").ok()?
                } else {
                    scan.now.wrapping_add(step.into())
                };
                read_elements(schema, wire, |_, _| {}).ok()?;
                match scan.first_tick {
                    Some(_) => scan.pass(tick.wrapping_sub(scan.now))?,
                    None => scan.first_tick = Some(tick),
                }
                scan.now = tick;
                match u8::try_from(code) {
                    Ok(code) if code < 0x80 => {
                        let code = usize::from(code);
                        self.counts[code] += 1;
                        if is_plain(schema) {
                            self.elements[code] = schema.elements.len() as u8;
                        }
                    }
                    _ => *self.others.entry(event_type).or_default() += 1,
                }
            }
        }
        Some(())
    }
}

/// Counts plain rows, up to the first of another kind. At least [`PLAIN_ROW`] bytes of input are left of each. Returns
/// their length in bytes.
fn skip_plain_rows(
    elements: &[u8; 256],
    counts: &mut [u32; 256],
    now: &mut u64,
    rows: &[u8],
) -> usize {
    let mut rest = rows;
    let mut tick = *now;
    while let Some(row) = rest.first_chunk::<PLAIN_ROW>() {
        let word = word_at(row, 0);
        let code = (word & 0xff) as usize;
        let mut step = word >> 8 & 0xffff;
        let mut length = 4;
        let is_short = elements[code] == 1 && word & CONTINUED == 0;
        if !is_short || step == u64::from(ROW_FAR_TICK) {
            // Not the most frequent row of all: a region, and little time since the row before.
            let Some(skipped) = skip_plain_row(elements[code], tick, row) else {
                break;
            };
            (step, length) = skipped;
        }
        counts[code] += 1;
        tick = tick.wrapping_add(step);
        rest = &rest[length..];
    }
    *now = tick;
    rows.len() - rest.len()
}

/// Returns the step of a plain row since a tick, and its length in bytes; `None` if it is no plain row.
#[inline(always)]
fn skip_plain_row(elements: u8, tick: u64, row: &[u8; PLAIN_ROW]) -> Option<(u64, usize)> {
    const ENDS: u64 = 0x8080_8080_8080_8080;
    let mut step = word_at(row, 1) & 0xffff;
    let mut length = 3;
    if step == u64::from(ROW_FAR_TICK) {
        step = word_at(row, 3).wrapping_sub(tick);
        length = 11;
    }
    if elements == NOT_PLAIN || step > MOST_STEP {
        return None;
    }
    let mut left = u32::from(elements);
    while left != 0 {
        let mut ends = !word_at(row, length) & ENDS;
        let count = ends.count_ones();
        if count < left {
            left -= count;
            length += 8;
            continue;
        }
        for _ in 1..left {
            ends &= ends - 1;
        }
        length += ends.trailing_zeros() as usize / 8 + 1;
        left = 0;
    }
    Some((step, length))
}

/// Appends what the body of a row chunk with this head has before the rows.
pub fn put_before_rows(header: &ChunkHeader, schema: &Schema, base_tick: u64, out: &mut Vec<u8>) {
    out.put_varint(base_tick);
    for (event_type, _) in &header.counts {
        let none = EventTypeSchema::default();
        let elements = &schema.get(*event_type).unwrap_or(&none).elements;
        out.put_varint(elements.len() as u64);
        out.extend(elements.iter().map(|(kind, is_optional)| {
            let optional = if *is_optional { OPTIONAL } else { 0 };
            kind.code() | optional
        }));
    }
}

/// Reads the body of a row chunk that may contain at most `max_items` items.
pub(crate) fn read_row_chunk(header: &ChunkHeader, body: &[u8], max_items: u64) -> Result<Chunk> {
    check_events(header.event_count, max_items)?;
    let mut w = Wire::new(body);
    let base_tick = w.varint("base tick of a row chunk")?;
    let mut schema = Schema::default();
    for (event_type, _) in &header.counts {
        let start = w.position();
        if event_type.get() >= EVENT_TYPES {
            let expected = "event types below 4096";
            return Err(FormatError::invalid(start, expected, event_type.get()));
        }
        let count = w.count(1, "number of elements")?;
        if count > MAX_ELEMENTS {
            return Err(FormatError::invalid(start, "at most 256 elements", count));
        }
        let start = w.position();
        let codes = w.take(count, "element types")?.iter();
        let elements = codes.map(|code| {
            let kind = ElementType::from_code(code & !OPTIONAL);
            let kind = kind.ok_or_else(|| FormatError::invalid(start, "an element type", code))?;
            Ok((kind, code & OPTIONAL != 0))
        });
        let elements = elements.collect::<Result<_>>()?;
        schema.set(*event_type, EventTypeSchema { elements });
    }
    let start = w.position();
    let mut builder = ChunkBuilder::new(u64::MAX);
    let outcome = builder.push_rows(&schema, base_tick, &body[start..]);
    outcome.map_err(|error| error.shifted(start as u64))?;
    let (found, chunk) = builder.finish(header.stream);
    let of = |head: &ChunkHeader| {
        let ticks = (
            head.first_tick,
            head.min_offset,
            head.max_offset,
            head.last_tick,
        );
        (head.event_count, head.dropped_count, ticks)
    };
    if of(&found) != of(header) || found.counts != header.counts {
        let expected = "the events, dropped events and ticks of the head";
        let found = format!("{:?}", of(&found));
        return Err(FormatError::invalid(start, expected, found));
    }
    Ok(chunk)
}

impl Chunk {
    /// Reads the body of a row chunk with this head.
    ///
    /// # Errors
    /// If the body ends early or contradicts the format or its head.
    pub fn decode_rows(header: &ChunkHeader, body: &[u8]) -> Result<Self> {
        read_row_chunk(header, body, Content::max_items(body.len()))
    }
}
