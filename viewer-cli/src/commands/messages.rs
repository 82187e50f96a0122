//! `trace-cli messages`: bytes, latencies and waits of messages by pair of ranks.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;

use annals_analysis::{MessagePairRow, Messages};
use annals_merger::{ReadSummary, Reader, Window};
use anyhow::bail;
use clap::Args;

use super::{InputArguments, warn_of_damage};
use crate::file::{ForceArgument, SVG};
use crate::filter::{FilterArguments, WindowArguments};
use crate::output::{Finding, RowsArguments};
use crate::svg::{Anchor, Svg};
use crate::time;
use crate::views::{message_counts_text, message_sentence, mpi_note, numbered};

/// Messages by pair of ranks: bytes, latency, and waits of both sides.
///
/// Sends and receives are matched from the beginning of the trace, as `trace-merge` matches them; a message counts
/// when its receive lies in the window. The latency is from the send to the receive. A late sender makes the
/// receiver wait from the entry of the region around the receive to the send; a late receiver makes the sender wait
/// from the send to the entry of the receiver's region, as long as the sender is in the region of its send
/// (non-blocking sends do not wait). With --rank, messages from or to these ranks. `~` marks rows that a loss may have
/// changed.
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

    #[command(flatten)]
    rows: RowsArguments,

    /// Write the matrix of bytes as a picture to this file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,

    #[command(flatten)]
    force: ForceArgument,
}

fn measure(
    arguments: &MessagesArguments,
    opened: &Reader,
    window: Window,
) -> anyhow::Result<(Messages, ReadSummary)> {
    let query = arguments.filter.query(opened.definitions(), window)?;
    match annals_analysis::messages(opened, &query)? {
        Some(found) => Ok(found),
        None => bail!("no event type is a message: nothing has the role send or receive"),
    }
}

/// Returns the matrix: senders from top to bottom, receivers from left to right.
fn svg(rows: &[MessagePairRow]) -> String {
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
    svg.text(left, 18.0, 12.0, Anchor::Start, &title);
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
            "{} to {}: {mark}{}, {mark}{}",
            from * each,
            to * each,
            numbered(*count, "message"),
            time::bytes(*bytes)
        );
        let (x, y) = (left + size * f64::from(*to), top + size * f64::from(*from));
        svg.rect([x, y, size, size], &colour, &title);
    }
    let step = cells.div_ceil(16).max(1);
    for cell in (0..cells).step_by(step as usize) {
        let middle = size * (f64::from(cell) + 0.5);
        let name = (cell * each).to_string();
        svg.text(left + middle, top - 6.0, 10.0, Anchor::Middle, &name);
        svg.text(left - 6.0, top + middle + 3.0, 10.0, Anchor::End, &name);
    }
    if each > 1 {
        let text = format!("{each} ranks share a cell");
        svg.text(left, top + extent + 20.0, 11.0, Anchor::Start, &text);
    }
    svg.finish()
}

/// Runs the command.
///
/// # Errors
/// If the input cannot be read, has no messages, or the output cannot be written.
pub fn run(arguments: &MessagesArguments, out: &mut dyn Write) -> anyhow::Result<Finding> {
    arguments
        .force
        .check_picture(arguments.svg.as_deref(), SVG, "svg")?;
    let (opened, window) = arguments.input.open_window(&arguments.window)?;
    let (mut messages, outcome) = measure(arguments, &opened, window)?;
    warn_of_damage(&opened, &outcome);
    if let Some(path) = &arguments.svg {
        arguments
            .force
            .write(path, svg(&messages.pairs).as_bytes(), SVG)?;
    }
    let screen = arguments.input.screen();
    if arguments.input.json {
        let total = arguments.rows.cut(&mut messages.pairs);
        arguments.rows.json(out, &messages, total)?;
    } else if arguments.rows.csv {
        arguments.rows.put(out, &messages.pairs, screen)?;
    } else if arguments.svg.is_none() {
        if let Some(note) = mpi_note(&messages.mpi) {
            writeln!(out, "{note}")?;
        }
        writeln!(out, "{}\n", message_sentence(&messages))?;
        arguments.rows.put(out, &messages.pairs, screen)?;
        let notes = message_counts_text(&messages.counts);
        writeln!(
            out,
            "\nof all ranks, from the trace's start to the window's end: {notes}"
        )?;
    }
    Ok(Finding::loss(
        outcome.has_skipped_now || messages.mpi.has_loss(),
    ))
}
