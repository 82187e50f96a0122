//! `trace-cli messages`: who sends how much to whom, how long it takes, and who waits.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::PathBuf;

use annals_format::{EventTypeId, RegionId, Role, Spread, TraceChunk};
use annals_merger::calls::{CallSink, Close, Frame};
use annals_merger::{Calls, MessageCounts, MessagePairs, Query, ReadSummary, Reader, Sink, Window};
use anyhow::bail;
use clap::Args;
use rustc_hash::FxHashMap;
use serde::Serialize;

use super::{InputArguments, opt_duration, warn_of_damage};
use crate::csv::{Csv, Maybe};
use crate::file::{ForceArgument, SVG};
use crate::filter::{FilterArguments, WindowArguments};
use crate::output::{self, Finding};
use crate::svg::{Anchor, Svg};
use crate::table::{Align, Table};
use crate::time;
use crate::walk::concerns;

/// Messages by pair of ranks: count, bytes, latency, and who waited for whom.
///
/// Sends and receives are matched from the beginning of the trace, as `trace-merge` matches them; a message counts
/// when its receive lies in the window. The latency is from the send to the receive. A late sender makes the
/// receiver wait from the entry of the region that the receive stands in to the send; a late receiver makes the sender
/// wait from the send to the entry of the receiver's region, as long as the sender is in the region of its send. With
/// --rank, messages from or to these ranks. `~` marks rows that a loss may have changed.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Examples:\n  trace-cli messages run.annals\n  trace-cli messages run.annals --csv > \
                  messages.csv\n  trace-cli messages run.annals --svg matrix.svg"
)]
pub struct MessagesArguments {
    #[command(flatten)]
    input: InputArguments,
    #[command(flatten)]
    window: WindowArguments,
    #[command(flatten)]
    filter: FilterArguments,

    /// Most pairs to show
    #[arg(long, value_name = "N")]
    top: Option<usize>,

    /// A row for each pair, as comma-separated values
    #[arg(long, conflicts_with = "json")]
    csv: bool,

    /// Write the matrix of bytes as a picture to this file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,

    #[command(flatten)]
    force: ForceArgument,
}

/// One pair of ranks. Times in nanoseconds.
#[derive(Clone, Debug, Serialize)]
struct PairRow {
    from_rank: u32,
    to_rank: u32,
    count: u64,
    /// Of the messages whose sends tell.
    bytes: u64,
    min_latency_ns: Option<i64>,
    mean_latency_ns: Option<i64>,
    p95_latency_ns: Option<i64>,
    max_latency_ns: Option<i64>,
    late_senders: u64,
    late_sender_wait_ns: i64,
    late_receivers: u64,
    late_receiver_wait_ns: i64,
    is_uncertain: bool,
}

#[derive(Clone, Debug, Serialize)]
struct Messages {
    pairs: Vec<PairRow>,
    /// Of the whole trace.
    sends: u64,
    receives: u64,
    matched: u64,
    unmatched_sends: u64,
    unmatched_receives: u64,
    unmatchable_by_loss: u64,
    without_peer: u64,
    over_limit: u64,
}

/// One side of a message, until the other is known.
#[derive(Clone, Copy)]
struct Side {
    is_send: bool,
    bytes: Option<u64>,
    rank: u32,
    /// Whether the filter takes it.
    is_taken: bool,
    /// When the region it stands in was entered; none: it stands in none.
    entered_ns: Option<i64>,
    /// When that was left again.
    left_ns: Option<i64>,
}

#[derive(Default)]
struct Tally {
    latency: Spread,
    bytes: u64,
    late_senders: (u64, i64),
    late_receivers: (u64, i64),
}

/// Sides that wait for the other one, at most.
const MOST_WAITING: usize = 1 << 19;

struct Matcher<'a> {
    window: Window,
    /// By event type: whether it sends, and where its bytes are.
    types: FxHashMap<EventTypeId, (bool, Option<usize>)>,
    /// By location.
    ranks: Vec<u32>,
    filter: &'a Query,
    /// Indexes of the messages of the chunk that is read.
    of_chunk: Vec<u32>,
    is_prepared: bool,
    /// Number of the first of them.
    base: u64,
    sides: FxHashMap<u64, Side>,
    /// Sends whose region is open, by location: their numbers, and when it was entered.
    open: FxHashMap<usize, Vec<(u64, i64)>>,
    tallies: BTreeMap<(u32, u32), Tally>,
}

impl Matcher<'_> {
    fn prepare(&mut self, pairs: &MessagePairs, chunk: &TraceChunk) {
        let types = chunk.types.iter();
        let is_message: Vec<bool> = types.map(|t| pairs.is_message(t.event_type)).collect();
        let each = chunk.type_index.iter().enumerate();
        let messages = each.filter(|(_, of_type)| is_message[usize::from(**of_type)]);
        self.of_chunk.clear();
        self.of_chunk
            .extend(messages.map(|(index, _)| index as u32));
        self.is_prepared = true;
    }

    /// Matches the messages of a chunk whose sides are known.
    fn take(&mut self, pairs: &mut MessagePairs, chunk: &TraceChunk) {
        let (sides, tallies) = (&mut self.sides, &mut self.tallies);
        let window = self.window;
        pairs.take(chunk, |send, receive| {
            let (Some(from), Some(to)) = (sides.get(&send.number), sides.get(&receive.number))
            else {
                return;
            };
            let (from, to) = (*from, *to);
            if !from.is_send || to.is_send {
                return;
            }
            sides.remove(&send.number);
            sides.remove(&receive.number);
            if !window.contains(receive.time_ns) || !(from.is_taken || to.is_taken) {
                return;
            }
            let tally = tallies.entry((from.rank, to.rank)).or_default();
            tally.latency.add(receive.time_ns - send.time_ns);
            tally.bytes = tally
                .bytes
                .saturating_add(from.bytes.or(to.bytes).unwrap_or(0));
            let Some(entered_ns) = to.entered_ns else {
                return;
            };
            let until_ns = send.time_ns.min(receive.time_ns);
            if until_ns > entered_ns {
                tally.late_senders.0 += 1;
                tally.late_senders.1 += until_ns - entered_ns;
            }
            let until_ns = entered_ns.min(from.left_ns.unwrap_or(i64::MAX));
            if from.entered_ns.is_some() && until_ns > send.time_ns {
                tally.late_receivers.0 += 1;
                tally.late_receivers.1 += until_ns - send.time_ns;
            }
        });
        self.base += self.of_chunk.len() as u64;
        self.is_prepared = false;
        if self.sides.len() > MOST_WAITING {
            // What has waited longest is given up; the matching itself goes on.
            let mut numbers: Vec<u64> = self.sides.keys().copied().collect();
            numbers.sort_unstable();
            let oldest = numbers[numbers.len() - MOST_WAITING / 2];
            self.sides.retain(|number, _| *number >= oldest);
        }
    }
}

/// The matcher beside what it matches with.
struct Follower<'a> {
    matcher: Matcher<'a>,
    pairs: MessagePairs,
}

impl CallSink for Follower<'_> {
    fn enter(&mut self, _: usize, _: &[Frame], _: RegionId, _: i64) -> u32 {
        0
    }

    fn close(&mut self, location: usize, _: &[Frame], frame: &Frame, time_ns: i64, _: Close) {
        let Some(open) = self.matcher.open.get_mut(&location) else {
            return;
        };
        // Regions nest: the sends of the innermost one stand last.
        while let Some((number, entered_ns)) = open.last().copied()
            && entered_ns >= frame.entered_ns
        {
            open.pop();
            if let Some(side) = self.matcher.sides.get_mut(&number) {
                side.left_ns = Some(time_ns);
            }
        }
    }
}

impl Sink for Follower<'_> {
    fn other(&mut self, location: usize, frames: &[Frame], chunk: &TraceChunk, index: usize) {
        let columns = &chunk.types[usize::from(chunk.type_index[index])];
        let Some((is_send, bytes)) = self.matcher.types.get(&columns.event_type).copied() else {
            return;
        };
        if !self.matcher.is_prepared {
            self.matcher.prepare(&self.pairs, chunk);
        }
        let matcher = &mut self.matcher;
        let Ok(at) = matcher.of_chunk.binary_search(&(index as u32)) else {
            return;
        };
        let number = matcher.base + at as u64;
        let bytes = bytes.and_then(|bytes| {
            let before = &chunk.type_index[..index];
            let ordinal = before.iter().filter(|t| **t == chunk.type_index[index]);
            let value = columns
                .columns
                .get(bytes)?
                .get(ordinal.count())
                .as_integer();
            value.and_then(|value| u64::try_from(value).ok())
        });
        let side = Side {
            is_send,
            bytes,
            rank: matcher.ranks[location],
            is_taken: matcher.filter.takes_stream(chunk.streams[index]),
            entered_ns: frames.last().map(|frame| frame.entered_ns),
            left_ns: None,
        };
        matcher.sides.insert(number, side);
        if let Some(entered_ns) = side.entered_ns.filter(|_| is_send) {
            let open = matcher.open.entry(location).or_default();
            if open.len() >= MOST_WAITING {
                let sides = &matcher.sides;
                open.retain(|(number, _)| sides.contains_key(number));
            }
            open.push((number, entered_ns));
        }
    }
}

fn measure(
    arguments: &MessagesArguments,
    opened: &Reader,
    window: Window,
) -> anyhow::Result<(Messages, ReadSummary)> {
    let definitions = opened.definitions();
    let filter = arguments.filter.query(definitions, window)?;
    let summary = opened.summary()?;
    let Some(pairs) = MessagePairs::of(definitions, &summary.totals) else {
        bail!("no event type is a message: nothing has the role send or receive");
    };
    let types = definitions.event_types.values();
    let types = types.filter_map(|event_type| {
        let is_send = match event_type.role {
            Role::Send => true,
            Role::Receive => false,
            _ => return None,
        };
        Some((
            event_type.id,
            (is_send, definitions.element(event_type.id, "bytes")),
        ))
    });
    let everything = Query::new().within(Window {
        from_ns: i64::MIN,
        ..window
    });
    let mut calls = Calls::new(definitions, &everything);
    calls.from_start = true;
    let ranks = calls.locations().iter();
    let mut follower = Follower {
        matcher: Matcher {
            window,
            types: types.collect(),
            ranks: ranks
                .map(|id| crate::stacks::rank_of(definitions, *id))
                .collect(),
            filter: &filter,
            of_chunk: Vec::new(),
            is_prepared: false,
            base: 0,
            sides: FxHashMap::default(),
            open: FxHashMap::default(),
            tallies: BTreeMap::new(),
        },
        pairs,
    };
    let outcome = calls.read(opened, &mut follower, |chunk, follower| {
        if !follower.matcher.is_prepared {
            follower.matcher.prepare(&follower.pairs, chunk);
        }
        follower.matcher.take(&mut follower.pairs, chunk);
    })?;
    let counts: MessageCounts = follower.pairs.finish();
    // What was lost at any time before the window's end may have been the other half, or one in between; of enters
    // and leaves, what tells how long somebody waited.
    let places = annals_merger::Places::of(definitions);
    let ranks_without = |roles: &[Role]| -> BTreeSet<u32> {
        let is_of = |id: EventTypeId| {
            let event_type = definitions.event_types.get(&id);
            event_type.is_some_and(|event_type| roles.contains(&event_type.role))
        };
        let lossy = outcome.losses.iter().filter(|loss| {
            !loss.cause.is_suppressed() && concerns(loss, &everything, everything.window(), is_of)
        });
        lossy.map(|loss| places.get(loss.stream).rank).collect()
    };
    let of_both = [Role::Cancel, Role::Enter, Role::Leave];
    let of_sends = ranks_without(&[&of_both[..], &[Role::Send]].concat());
    let of_receives = ranks_without(&[&of_both[..], &[Role::Receive, Role::ReceiveStart]].concat());
    let rows = follower.matcher.tallies.iter();
    let rows = rows.map(|((from_rank, to_rank), tally)| PairRow {
        from_rank: *from_rank,
        to_rank: *to_rank,
        count: tally.latency.count(),
        bytes: tally.bytes,
        min_latency_ns: tally.latency.min(),
        mean_latency_ns: tally.latency.mean(),
        p95_latency_ns: tally.latency.percentile(95),
        max_latency_ns: tally.latency.max(),
        late_senders: tally.late_senders.0,
        late_sender_wait_ns: tally.late_senders.1,
        late_receivers: tally.late_receivers.0,
        late_receiver_wait_ns: tally.late_receivers.1,
        is_uncertain: of_sends.contains(from_rank) || of_receives.contains(to_rank),
    });
    let mut rows: Vec<PairRow> = rows.collect();
    rows.sort_by_key(|row| (std::cmp::Reverse(row.bytes), row.from_rank, row.to_rank));
    let messages = Messages {
        pairs: rows,
        sends: counts.sends,
        receives: counts.receives,
        matched: counts.matched,
        unmatched_sends: counts.unmatched_sends,
        unmatched_receives: counts.unmatched_receives,
        unmatchable_by_loss: counts.unmatchable_by_loss,
        without_peer: counts.without_peer,
        over_limit: counts.over_limit,
    };
    Ok((messages, outcome))
}

/// The matrix: senders from top to bottom, receivers from left to right.
fn svg(rows: &[PairRow]) -> String {
    /// More ranks than this share cells.
    const MOST_CELLS: u32 = 128;
    let ranks = rows
        .iter()
        .map(|row| row.from_rank.max(row.to_rank) + 1)
        .max()
        .unwrap_or(1);
    let each = ranks.div_ceil(MOST_CELLS);
    let cells = ranks.div_ceil(each);
    let (left, top) = (60.0, 50.0);
    let size = (640.0 / f64::from(cells)).clamp(4.0, 40.0);
    let mut sums: BTreeMap<(u32, u32), (u64, u64, bool)> = BTreeMap::new();
    for row in rows {
        let sum = sums
            .entry((row.from_rank / each, row.to_rank / each))
            .or_default();
        sum.0 = sum.0.saturating_add(row.bytes);
        sum.1 += row.count;
        sum.2 |= row.is_uncertain;
    }
    let most = sums.values().map(|sum| sum.0).max().unwrap_or(0).max(1);
    let extent = size * f64::from(cells);
    let mut svg = Svg::new(left + extent + 30.0, top + extent + 40.0);
    let title = format!(
        "bytes by sender (rows) and receiver (columns), at most {}",
        time::bytes(most)
    );
    svg.text((left, 18.0), 12.0, Anchor::Start, &title);
    svg.rect([left, top, extent, extent], "#f4f4f4", "");
    for ((from, to), (bytes, count, is_uncertain)) in &sums {
        let share = (*bytes as f64 / most as f64).sqrt();
        // From pale yellow to dark red.
        let channel = |low: f64, high: f64| (low + (high - low) * share).round() as u8;
        let colour = format!(
            "#{:02x}{:02x}{:02x}",
            channel(255.0, 128.0),
            channel(237.0, 0.0),
            channel(160.0, 38.0)
        );
        let mark = if *is_uncertain { "~" } else { "" };
        let title = format!(
            "{} to {}: {mark}{count} messages, {mark}{}",
            from * each,
            to * each,
            time::bytes(*bytes)
        );
        let (x, y) = (left + size * f64::from(*to), top + size * f64::from(*from));
        svg.rect([x, y, size, size], &colour, &title);
    }
    let step = cells.div_ceil(16).max(1);
    for cell in (0..cells).step_by(step as usize) {
        let middle = size * (f64::from(cell) + 0.5);
        let name = (cell * each).to_string();
        svg.text((left + middle, top - 6.0), 10.0, Anchor::Middle, &name);
        svg.text((left - 6.0, top + middle + 3.0), 10.0, Anchor::End, &name);
    }
    if each > 1 {
        let text = format!("{each} ranks share a cell");
        svg.text((left, top + extent + 20.0), 11.0, Anchor::Start, &text);
    }
    svg.finish()
}

fn write_csv(rows: &[PairRow], out: &mut dyn Write) -> std::io::Result<()> {
    let columns = [
        "from_rank",
        "to_rank",
        "count",
        "bytes",
        "min_latency_ns",
        "mean_latency_ns",
        "p95_latency_ns",
        "max_latency_ns",
        "late_senders",
        "late_sender_wait_ns",
        "late_receivers",
        "late_receiver_wait_ns",
        "is_uncertain",
    ];
    let mut csv = Csv::new(out, &columns)?;
    rows.iter().try_for_each(|row| {
        csv.row(&[
            &row.from_rank,
            &row.to_rank,
            &row.count,
            &row.bytes,
            &Maybe(row.min_latency_ns),
            &Maybe(row.mean_latency_ns),
            &Maybe(row.p95_latency_ns),
            &Maybe(row.max_latency_ns),
            &row.late_senders,
            &row.late_sender_wait_ns,
            &row.late_receivers,
            &row.late_receiver_wait_ns,
            &row.is_uncertain,
        ])
    })
}

fn render(messages: &Messages, top: usize) -> String {
    use std::fmt::Write as _;
    let mut table = Table::new(&[
        ("from", Align::Right),
        ("to", Align::Right),
        ("count", Align::Right),
        ("bytes", Align::Right),
        ("latency min", Align::Right),
        ("mean", Align::Right),
        ("p95", Align::Right),
        ("max", Align::Right),
        ("late senders", Align::Right),
        ("wait", Align::Right),
        ("late receivers", Align::Right),
        ("wait", Align::Right),
    ]);
    for row in messages.pairs.iter().take(top) {
        let mark = if row.is_uncertain { "~" } else { "" };
        table.row(vec![
            row.from_rank.to_string(),
            row.to_rank.to_string(),
            format!("{mark}{}", row.count),
            format!("{mark}{}", time::bytes(row.bytes)),
            opt_duration(row.min_latency_ns),
            opt_duration(row.mean_latency_ns),
            opt_duration(row.p95_latency_ns),
            opt_duration(row.max_latency_ns),
            row.late_senders.to_string(),
            time::duration(row.late_sender_wait_ns),
            row.late_receivers.to_string(),
            time::duration(row.late_receiver_wait_ns),
        ]);
    }
    let mut text = table.render();
    let left_out = messages.pairs.len().saturating_sub(top);
    if left_out != 0 {
        let _ = writeln!(text, "{left_out} more pairs");
    }
    let m = messages;
    let _ = writeln!(
        text,
        "\nup to the window's end: {} sends, {} receives, {} matched; without a partner {} sends, {} receives, \
         unmatchable by loss {}, without a known peer {}",
        m.sends,
        m.receives,
        m.matched,
        m.unmatched_sends,
        m.unmatched_receives,
        m.unmatchable_by_loss,
        m.without_peer
    );
    text
}

/// Runs the command.
///
/// # Errors
/// If the input cannot be read, has no messages, or the output cannot be written.
pub fn run(arguments: &MessagesArguments, out: &mut dyn Write) -> anyhow::Result<Finding> {
    arguments.force.check(arguments.svg.as_deref(), SVG)?;
    let (opened, window) = arguments.input.open_window(&arguments.window)?;
    let (mut messages, outcome) = measure(arguments, &opened, window)?;
    warn_of_damage(&opened, &outcome);
    if let Some(path) = &arguments.svg {
        arguments
            .force
            .write(path, svg(&messages.pairs).as_bytes(), SVG)?;
    }
    let top = arguments.top.unwrap_or(usize::MAX);
    if arguments.input.json {
        messages.pairs.truncate(top);
        output::json(out, &messages)?;
    } else if arguments.csv {
        messages.pairs.truncate(top);
        write_csv(&messages.pairs, out)?;
    } else if arguments.svg.is_none() {
        out.write_all(render(&messages, top).as_bytes())?;
    }
    Ok(Finding::loss(outcome.has_skipped_now))
}
