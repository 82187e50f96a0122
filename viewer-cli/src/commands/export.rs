//! `trace-cli export`: a trace as other tools read it.

use std::io::{IsTerminal, Write};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use annals_export::{Exported, Format, Partition, Root, Settings, TableKind};
use annals_format::units;
use annals_merger::ReadOptions;
use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use indicatif::{ProgressBar, ProgressStyle};

use super::{InputArguments, warn_of_damage};
use crate::file::{ForceArgument, saying_replaced};
use crate::filter::{FilterArguments, WindowArguments};
use crate::output::{self, Finding, UsageError};
use crate::table::safe;
use crate::time;
use crate::views::counted;

/// A trace for other tools: Perfetto, Parquet, flame graphs, CSV, …
///
/// The format is that of the output's extension, or --format; --list-formats shows all. The output gets its name when
/// it is complete. Memory stays below 512 MiB, however long the trace is.
#[derive(Clone, Debug, Args)]
#[command(after_long_help = LONG_HELP)]
pub struct ExportArguments {
    /// A trace, a recording, a directory of recordings, an OTF2 archive, a Paraver or PyTorch trace
    #[arg(value_name = "INPUT", required_unless_present = "list_formats")]
    input: Option<PathBuf>,

    /// Print a JSON summary of the output: format, name, rows of each table
    #[arg(long)]
    json: bool,

    /// Look for names of functions in the files of this directory too (of the same build id)
    #[arg(long, value_name = "DIR")]
    symbols: Vec<PathBuf>,

    /// Threads that decode [default: one for each processor]
    #[arg(short, long, value_name = "N")]
    jobs: Option<NonZeroUsize>,

    #[command(flatten)]
    window: WindowArguments,
    #[command(flatten)]
    filter: FilterArguments,

    /// Format of the output [default: by its extension]
    #[arg(short, long, value_name = "FORMAT", value_parser = Format::by_name)]
    format: Option<Format>,

    /// Output: a file, a directory for several tables, `-` for standard output
    #[arg(
        short,
        long,
        value_name = "OUT",
        required_unless_present = "list_formats"
    )]
    output: Option<PathBuf>,

    /// Tables of parquet, arrow, csv and jsonl, separated by commas
    ///
    /// A file has one table: that of its name, as calls.parquet, else events unless another is named. A directory (a name without the format's extension)
    /// has a file for each: of parquet and arrow events, calls, messages and drops unless others are named, of csv and
    /// jsonl events, regions, messages, metrics and drops.
    #[arg(long, value_name = "TABLES", value_delimiter = ',', value_parser = tables())]
    table: Vec<TableKind>,

    /// Split tables into directories that engines understand: `rank`, or `time=DURATION` such as time=10s
    ///
    /// OUT/events/rank=0/part-0.parquet (and part-1, … of large tables), or OUT/events/window_ns=10000000000/…, where the number is the window's
    /// start; with one --table OUT is the table's directory. The rank is then in no file: engines take it from the names.
    #[arg(long, value_name = "WHAT", value_parser = partition)]
    partition: Option<Partition>,

    /// Stacks of each rank or location, not of all together (folded, flamegraph)
    #[arg(long, value_name = "WHAT", value_parser = roots())]
    by: Option<Root>,

    #[command(flatten)]
    force: ForceArgument,

    /// Show the formats
    #[arg(long, exclusive = true)]
    list_formats: bool,

    /// Show no progress
    #[arg(short, long)]
    quiet: bool,
}

/// Parses one of some values by its name.
fn one_of<T: Copy + Send + Sync + 'static>(
    values: impl IntoIterator<Item = (T, &'static str, &'static str)>,
) -> impl TypedValueParser<Value = T> {
    let values: Vec<(T, &str, &str)> = values.into_iter().collect();
    let names = values.iter();
    let names = names.map(|(_, name, help)| PossibleValue::new(*name).help(*help));
    PossibleValuesParser::new(names.collect::<Vec<_>>()).map(move |given| {
        let found = values.iter().find(|(_, name, _)| *name == given);
        found.expect("the parser takes only these").0
    })
}

fn tables() -> impl TypedValueParser<Value = TableKind> {
    one_of(TableKind::ALL.map(|table| (table, table.name(), table.description())))
}

fn roots() -> impl TypedValueParser<Value = Root> {
    one_of(Root::ALL.map(|root| (root, root.name(), root.description())))
}

const LONG_HELP: &str = "\
Tables (times in nanoseconds since the trace's start, ranks as 64-bit integers, names as text; null where nothing is known):
  events    time_ns, rank, location, source, event, and a column for each element's name: integers as 64-bit (u64
            unsigned), doubles, text, bytes; what refers to a region, a location, an object has its name. One name with
            several types is one column each: value_i64, value_f64. A name that is taken gets a number: rank_2. After 256
            columns, the rest are JSON in `elements`. In order of time.
  calls     call (its number), parent (number of the call around it), rank, location, region, begin_ns, end_ns,
            inclusive_ns, exclusive_ns (within the window), depth (calls around it), is_outermost (no recursion),
            is_uncertain (a loss lies in it), ended (left; unleft: with the call around it; open: at the end), file and
            line of the region, host, thread_id (the system's). By end_ns, open ones last. As of `regions`: calls are those with begin_ns in the window; sum(inclusive_ns) where
            is_outermost; sum(exclusive_ns).
  regions   as `trace-cli regions --by location`
  messages  send_ns, receive_ns, latency_ns, from_rank, from_location, to_rank, to_location, communicator, tag, bytes,
            late_sender_wait_ns (how long the receiver waited) and late_receiver_wait_ns (the sender), is_uncertain (a loss
            before it may have changed it): messages of which both sides are known, by receive_ns; a partition by rank is by
            to_rank
  metrics   time_ns, rank, location, source, metric, unit, value
  drops     rank, location, source, event (null: any), count, is_lower_bound, kind (dropped, suppressed, skipped), cause,
            from_ns, to_ns: as `trace-cli dropped`
  collectives
            operation, communicator, members, first_begin_ns, last_begin_ns, wait_ns (of all members, for the last one),
            last_rank, is_uncertain (a loss before its last begin may have changed it): operations that all members have
            begun, by last_begin_ns in the window; a partition by rank is by last_rank
  wait_states
            pattern, rank, location, region, from_ns, wait_ns, uncertain_ns (by how much losses may have changed it),
            for_rank, for_location (null: not known), communicator: the single waits that `trace-cli why` adds up
  critical_path
            region (null: outside of all), path_ns, share, mean_ns, imbalance_ns: as `trace-cli why --by path`
  efficiency
            model, parallel, load_balance, communication, serialisation, transfer: as `trace-cli why`
  locations number, rank, location, kind (thread, device), host, process_id, thread_id, streams, events, lost
  samples   function, rank, location, module, file, line, samples, self_ns, self_error_ns (one standard deviation),
            total_samples, total_ns, total_error_ns, is_uncertain: as `trace-cli samples --by function,location`; with
            --region those that were taken in calls of these regions
Parquet files have groups of 2^17 rows with least and greatest values, and zstd; Arrow files are not compressed.
A partition has one file, or several (part-0, part-1, …) when there are many partitions of many rows.

Until it is complete, a file is called OUT.PID.tmp, and so is a new directory of tables: it appears with
all its files in one step. In an existing directory, tables are written below export.PID.tmp and moved out of it when all
are complete, one after the other: a reader at that moment may find tables of two exports, but no incomplete one. A
killed process leaves only names that end in .tmp, a full disk nothing. All is synced to the disk before it gets its name.
An existing file is replaced only if it is of the same format, or with --force; the command says so.

Perfetto: a process for each rank, a thread for each location with calls as slices; below it a track for each source with
points as instants, and one for each metric; messages are flows; a loss is an instant of the category `loss` on a packet
that says `previous_packet_dropped`. Times before 0 are shown at 0. Chrome: the same as B, E, i, C, s and f events, times
in microseconds with 3 digits.
Folded stacks and flame graphs: exclusive nanoseconds by call path.

Examples:
  trace-cli export run.annals -o run.pftrace
  trace-cli export run.annals -o run.json.gz --from 1s --to 1.1s --rank 0-3
  trace-cli export run.annals --format parquet -o run-tables
  trace-cli export run.annals --format parquet --partition rank -o by-rank
  trace-cli export run.annals --table calls -o calls.csv
  trace-cli export run.annals -o flames.svg --by rank";

fn partition(text: &str) -> Result<Partition, String> {
    match text.split_once('=') {
        None if text == "rank" => Ok(Partition::Rank),
        Some(("time", each)) => match units::parse_time(each).map_err(|error| error.to_string())? {
            each if each > 0 => Ok(Partition::Time(each)),
            _ => Err("a time above 0".to_owned()),
        },
        _ => Err("`rank`, or `time=DURATION` such as time=10s".to_owned()),
    }
}

/// Returns a bar on a terminal, with as many steps as there are events.
pub fn progress(events: u64, is_quiet: bool) -> ProgressBar {
    if is_quiet || !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(events);
    let style = ProgressStyle::with_template("{wide_bar} {human_pos}/{human_len} events, {eta}");
    bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

/// Says what of the messages is not in the output.
pub fn tell_of_messages(exported: &Exported) {
    let Some(messages) = exported.messages else {
        return;
    };
    let without = messages.unmatched_sends
        + messages.unmatched_receives
        + messages.unmatchable_by_loss
        + messages.over_limit
        + messages.without_peer;
    if without != 0 {
        eprintln!(
            "messages without a partner: {} sends, {} receives, {} by loss, {} without a known peer, {} above the limit of messages in flight",
            messages.unmatched_sends,
            messages.unmatched_receives,
            messages.unmatchable_by_loss,
            messages.without_peer,
            messages.over_limit
        );
    }
}

/// Bytes of a text file that are announced before it is written.
const MUCH_TEXT: u64 = 1 << 30;

/// Bytes of an event as text, about.
const BYTES_OF_ROW: u64 = 80;

/// Warns before gigabytes of text are written.
fn warn_of_much_text(format: Format, arguments: &ExportArguments, events: u64) {
    let is_text = matches!(format, Format::Csv | Format::Jsonl);
    let has_events = arguments.table.is_empty() || arguments.table.contains(&TableKind::Events);
    let bytes = events.saturating_mul(BYTES_OF_ROW);
    if is_text && has_events && bytes >= MUCH_TEXT && !arguments.quiet {
        eprintln!(
            "note: {} make about {} of text; parquet takes about a tenth, and --from, --to and --table choose less",
            counted(events, "event"),
            time::bytes(bytes)
        );
    }
}

/// Reports the tables that were written, each with its rows, and the size of all.
fn tell_of_tables(exported: &Exported, to: &Path) {
    if exported.tables.is_empty() {
        return;
    }
    let tables = exported.tables.iter();
    let tables: Vec<String> = tables
        .map(|(kind, rows)| format!("table `{}` with {}", kind.name(), counted(*rows, "row")))
        .collect();
    let bytes = std::fs::metadata(to)
        .ok()
        .filter(std::fs::Metadata::is_file);
    let bytes = bytes.map_or_else(String::new, |file| format!(", {}", time::bytes(file.len())));
    eprintln!(
        "{}: {}{bytes}",
        safe(&to.display().to_string()),
        tables.join(", ")
    );
}

/// Runs the command.
///
/// # Errors
/// If the input cannot be read, a filter matches nothing, or the output cannot be written.
pub fn run(arguments: &ExportArguments, out: &mut dyn Write) -> anyhow::Result<Finding> {
    if arguments.list_formats {
        out.write_all(annals_export::list().as_bytes())?;
        return Ok(Finding::FINE);
    }
    annals_export::check_built_in()?;
    let (Some(input), Some(to)) = (&arguments.input, &arguments.output) else {
        return Err(UsageError("an input and --output are needed".to_owned()).into());
    };
    let format = match arguments.format {
        Some(format) => format,
        None => Format::of_path(to).ok_or_else(|| {
            UsageError(format!(
                "{}: no format has this extension; name one with --format:\n{}",
                to.display(),
                annals_export::list()
            ))
        })?,
    };
    let source = InputArguments {
        input: input.clone(),
        full_names: true,
        json: arguments.json,
        symbols: arguments.symbols.clone(),
        jobs: arguments.jobs,
    };
    let mut options = ReadOptions::new();
    let tables = &arguments.table;
    if !tables.is_empty() && tables.iter().all(|table| table.is_by_rank()) {
        // What other ranks recorded has no part in these tables, and is not read.
        options.filter.ranks = arguments.filter.events.rank.clone();
    }
    let (opened, window) = source.open_window_with(&arguments.window, options)?;
    let same = std::fs::canonicalize(input)
        .ok()
        .zip(std::fs::canonicalize(to).ok());
    if same.is_some_and(|(input, output)| input == output) {
        let why = format!("{}: is the input; name another output", to.display());
        return Err(UsageError(why).into());
    }
    let settings = Settings {
        tables: arguments.table.clone(),
        partition: arguments.partition,
        by: arguments.by,
        force: arguments.force.force,
        strict: false,
    };
    let events = opened
        .events_before(window.to_ns)
        .saturating_sub(opened.events_before(window.from_ns));
    warn_of_much_text(format, arguments, events);
    let bar = progress(opened.events_before(window.to_ns), arguments.quiet);
    let query = arguments.filter.query(opened.definitions(), window)?;
    let exported = saying_replaced(to, arguments.quiet, || {
        let exported = annals_export::export(&opened, &query, format, &settings, to, &mut |n| {
            bar.set_position(n);
        });
        bar.finish_and_clear();
        exported
    })?;
    warn_of_damage(&opened, &exported.outcome);
    tell_of_messages(&exported);
    if !arguments.quiet {
        tell_of_tables(&exported, to);
    }
    if arguments.json {
        let tables = exported.tables.iter();
        let tables = tables.map(|(kind, rows)| (kind.name().to_owned(), (*rows).into()));
        let result = serde_json::json!({
            "format": format.name(),
            "output": to,
            "rows": tables.collect::<serde_json::Map<String, serde_json::Value>>(),
        });
        output::json(out, &result)?;
    }
    Ok(Finding::loss(exported.outcome.has_skipped_now))
}
