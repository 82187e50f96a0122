//! `trace-merge`, or `trace-cli merge`: combines recordings into one globally ordered trace.

use std::io::Write;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use super::export::{progress, tell_of_messages};
use super::useful_jobs;
use crate::file::{ForceArgument, saying_replaced, trace_beside};
use crate::filter::{EventFilterArguments, FilterArguments, WindowArguments};
use crate::merge_summary::{Asked, of_ends, of_merge, remove_live_files};
use crate::output::{Finding, UsageError};
use crate::table::safe_lines;
use crate::views::numbered;
use annals_export::{Format, Settings, check_built_in, export};
use annals_format::CompressionLevel;
use annals_merger::{
    Causality, ClockOffsets, IndexOptions, JoinOptions, Joined, MESSAGES_IN_FLIGHT, MergeOptions,
    MergePlan, OutputKind, Plan, Query, Report, SliceNumber, Symbols, Window, is_annals,
    no_progress,
};
use anyhow::Context;
use clap::Args;

/// Most slices of a merge: its borders are not known more finely.
const MOST_SLICES: u32 = 4096;

/// Combines Annals recordings of all ranks into one globally ordered trace.
///
/// Inputs are recordings (*.annals), directories of them, OTF2 archives (their *.otf2), and traces of earlier
/// merges, in any mix and order; the live files of killed processes (*.annals-live) are read as well. A trace is an
/// input only if its own path is given; in a directory, it counts as an earlier merge of the recordings there. Equal
/// inputs result in equal bytes, whatever their order and the number of jobs.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Exit codes: 0 fine, 1 failed, 2 wrong usage, 3 merged, but data was lost \
                  (dropped, skipped, truncated), a rank is missing, or an input is damaged.\n\n\
                  Examples:\n  trace-merge annals-run -o run.annals\n  \
                  trace-merge annals-run -o run.pftrace\n  \
                  trace-merge annals-run -o window.annals --from 1.5s --to 2s --rank 0-3"
)]
pub struct MergeArguments {
    /// Recordings, traces, and directories of these (a trace among recordings is an earlier merge, and left out)
    #[arg(required = true, value_name = "INPUT")]
    inputs: Vec<PathBuf>,

    /// Output file; a name that ends in .otf2, .pftrace, .json, .parquet, … makes it another format [default, if INPUT
    /// is one directory: DIR.annals]
    #[arg(short, long, value_name = "OUT.annals")]
    output: Option<PathBuf>,

    /// Format of the output: annals, otf2, perfetto, chrome, parquet, arrow, folded, flamegraph, csv, jsonl, dot,
    /// mermaid [default: by the output's name]
    ///
    /// An OTF2 archive is several files: the output names its anchor (*.otf2), or a directory, in which it is
    /// traces.otf2. Losses are in it as times at which the measurement was off, and as markers. The other formats are
    /// those of `trace-cli export`, whose help describes their contents.
    #[arg(long, value_name = "FORMAT", value_parser = output_format, conflicts_with_all = ["join", "slice"])]
    format: Option<OutputFormat>,

    /// Write the report as JSON to a file (`-`: standard output)
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,

    /// Compression of the trace: `none`, or a zstd level from -7 to 22
    #[arg(
        long,
        default_value = "1",
        value_name = "LEVEL",
        allow_hyphen_values = true
    )]
    compression: CompressionLevel,

    /// Look for names of functions in the files of this directory too (of the same build id)
    #[arg(long, value_name = "DIR")]
    symbols: Vec<PathBuf>,

    /// Number of threads; 0 means one per processor (at most 64, or four per processor if that is
    /// more)
    #[arg(short, long, default_value_t = 0, value_name = "N")]
    jobs: usize,

    /// Offsets between hosts: lines `HOST RTT OFFSET` in seconds, as Open MPI's mpisync writes them
    ///
    /// The offset is what has to be added to the host's wall clock to get the first host's; it is
    /// bounded by half the round trip, and 3 us for the digits that are left out. A # starts a comment.
    /// These override offsets stored in recordings.
    #[arg(long, value_name = "FILE")]
    clock_offsets: Option<PathBuf>,

    /// Treatment of messages whose receive precedes their send: off, check, repair
    ///
    /// `check` counts them, and collective operations that end before they can. `repair` moves events forward until
    /// there are none, and reports by how much; raw ticks are kept.
    #[arg(long, default_value = "check", value_name = "WHAT", value_parser = causality)]
    causality: Causality,

    /// Maximum number of messages in flight to a sixteenth of the processes; more are counted, not matched
    ///
    /// The sixteenths are of the processes in the trace: every sixteenth one. A message in flight takes about 150 bytes.
    #[arg(long, default_value_t = MESSAGES_IN_FLIGHT, value_name = "N")]
    messages_in_flight: usize,

    /// Approximate memory limit of the merge, such as 256M or 2G
    ///
    /// A merge that needs more runs in several passes, with temporary files, and so does one of more than 4 096
    /// streams; the trace is the same. Definitions and indexes count, about 12 KiB a stream; where they alone take more
    /// (tens of thousands of streams), events get an additional quarter of the limit.
    #[arg(long, default_value = "256M", value_name = "SIZE", value_parser = annals_format::units::parse_size)]
    memory_limit: u64,

    /// Directory for temporary files; default: that of the trace
    ///
    /// Traces of other formats are converted there; without it, in the directory that TMPDIR names, or else in that of
    /// the archive.
    #[arg(long, value_name = "DIR")]
    temp_dir: Option<PathBuf>,

    /// Of PyTorch's traces: the pattern of their names, with {rank} for the rank and * for any text, such as '*-TP-{rank}-*'
    ///
    /// Without it, ranks are those that the files say, or else the numbers after `rank` in their names.
    #[arg(long, value_name = "PATTERN", value_parser = rank_pattern)]
    rank_from: Option<String>,

    /// Of PyTorch's traces: keep all arguments of events, as text [default: the sizes of inputs, grids and bytes]
    #[arg(long)]
    all_arguments: bool,

    /// Write only the K-th of N slices of time, such as 3/8; `--join` puts them together
    ///
    /// Slices of one merge have about equally many events; each can be written by another machine. With the
    /// same inputs, or with one `--plan`, they fit together.
    #[arg(long, value_name = "K/N", value_parser = slice_of, conflicts_with = "join")]
    slice: Option<SliceNumber>,

    /// Put the slices of a merge together: inputs are the slices, all of them
    #[arg(long, conflicts_with_all = ["plan", "write_plan", "from", "to", "rank", "source", "location", "event",
        "symbols", "clock_offsets", "report", "causality", "messages_in_flight", "strict"])]
    join: bool,

    /// Write all decisions that precede the reading of events to a file (clock fits, start, shifts of a repair, borders
    /// of slices)
    #[arg(long, value_name = "FILE")]
    write_plan: Option<PathBuf>,

    /// Write the plan only, and no trace
    #[arg(long, requires = "write_plan",
        conflicts_with_all = ["output", "slice", "join", "plan", "report", "index", "format"])]
    plan_only: bool,

    /// Merge as planned by `--write-plan` for the same inputs: offsets between hosts are part of the plan, too
    #[arg(long, value_name = "FILE", conflicts_with = "clock_offsets")]
    plan: Option<PathBuf>,

    /// Write nothing unless all inputs are complete: none is damaged, cut off, still being recorded, of another run or
    /// no recording, and no rank is missing (events that recorders dropped do not count)
    #[arg(long)]
    strict: bool,

    /// Write an overview, too: values of spans of time, from which pictures of any part of the trace can be read
    #[arg(long, conflicts_with = "slice")]
    index: bool,

    #[command(flatten)]
    window: WindowArguments,

    #[command(flatten)]
    filter: EventFilterArguments,

    #[command(flatten)]
    force: ForceArgument,

    /// Print only errors
    #[arg(short, long)]
    quiet: bool,
}

fn causality(text: &str) -> Result<Causality, String> {
    let mut all = Causality::ALL.iter();
    let found = all.find(|causality| causality.name() == text).copied();
    found.ok_or_else(|| {
        let names = Causality::ALL.map(Causality::name).join(", ");
        format!("one of {names}")
    })
}

fn rank_pattern(text: &str) -> Result<String, String> {
    match text.matches("{rank}").count() {
        1 => Ok(text.to_owned()),
        _ => Err("a name with one {rank} expected, such as 'rank{rank}.json.gz'".to_owned()),
    }
}

/// The format of a merge's output.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum OutputFormat {
    Annals,
    Export(Format),
}

fn output_format(text: &str) -> Result<OutputFormat, String> {
    match text {
        "annals" => Ok(OutputFormat::Annals),
        other => match Format::by_name(other) {
            Ok(format) => Ok(OutputFormat::Export(format)),
            Err(formats) => Err(format!("annals, or {formats}")),
        },
    }
}

impl OutputFormat {
    /// Returns the format of a name: a trace, unless its extension is another format's.
    fn of_path(path: &Path) -> Self {
        Format::of_path(path).map_or(Self::Annals, Self::Export)
    }
}

fn slice_of(text: &str) -> Result<SliceNumber, String> {
    let numbers = text.split_once('/');
    let numbers = numbers.and_then(|(k, n)| k.parse::<u32>().ok().zip(n.parse::<u32>().ok()));
    let is_slice = |(number, of): &(u32, u32)| (1..=*of).contains(number) && *of <= MOST_SLICES;
    let slice = numbers
        .filter(is_slice)
        .map(|(number, of)| SliceNumber { number, of });
    slice.ok_or_else(|| {
        format!(
            "`{text}` is no slice: K/N with K from 1 to N, N at most {MOST_SLICES}, such as 3/8"
        )
    })
}

/// Runs the command.
///
/// # Errors
/// If inputs cannot be read or merged, or the output cannot be written.
pub fn run(mut arguments: MergeArguments) -> anyhow::Result<Finding> {
    if arguments.slice.is_none() {
        check_is_alone(|name| std::env::var(name).ok())?;
    }
    if arguments.plan_only {
        return plan_only(&arguments);
    }
    arguments.choose_output()?;
    let has_loss = saying_replaced(arguments.output(), arguments.quiet, || {
        if arguments.join {
            return join(&arguments);
        }
        let report = merge(&arguments)?;
        Ok(report.has_loss() || report.inputs.iter().any(|input| !input.damage.is_empty()))
    })?;
    Ok(Finding::loss(has_loss))
}

/// Refuses to do one thing in each of several ranks that a launcher such as `mpirun` started.
fn check_is_alone(variable: impl Fn(&str) -> Option<String>) -> Result<(), UsageError> {
    /// Rank, and number of ranks, by launcher: Open MPI, those with PMI (MPICH, Intel MPI), Slurm. In a batch script, Slurm sets a
    /// rank, but no number of tasks of a step. PMIx has no variable for the number of ranks.
    const VARIABLES: [(&str, &str); 5] = [
        ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
        ("PMI_RANK", "PMI_SIZE"),
        ("PMIX_RANK", "OMPI_COMM_WORLD_SIZE"),
        ("PMIX_RANK", "SLURM_STEP_NUM_TASKS"),
        ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
    ];
    let number = |name: &str| variable(name)?.parse::<u64>().ok();
    for (rank_variable, size_variable) in VARIABLES {
        let (Some(rank), Some(size)) = (number(rank_variable), number(size_variable)) else {
            continue;
        };
        if size > 1 {
            return Err(UsageError(format!(
                "this is rank {rank} of {size} that a launcher started ({rank_variable}), and each of them would do the same: \
                 start it once, without the launcher; or let each rank write a slice, with --slice and its number; or, if each \
                 rank has other inputs and another output, start it with `env -u {rank_variable}`"
            )));
        }
    }
    Ok(())
}

/// Writes the plan of a merge.
fn plan_only(arguments: &MergeArguments) -> anyhow::Result<Finding> {
    check_places(arguments)?;
    let planned = plan(arguments, OutputFormat::Annals)?;
    if !arguments.quiet {
        let path = arguments.write_plan.as_deref().unwrap_or(Path::new(""));
        let text = format!(
            "{}: {}, about {}\n",
            path.display(),
            numbered(planned.recording_ids().count(), "recording"),
            numbered(planned.expected_events(), "event")
        );
        let _ = std::io::stderr().write_all(safe_lines(&text).as_bytes());
    }
    Ok(Finding::loss(!planned.rejected().is_empty()))
}

/// Joins slices; returns whether anything was lost.
fn join(arguments: &MergeArguments) -> anyhow::Result<bool> {
    let mut options = JoinOptions::new();
    options.compression = arguments.compression;
    options.force = arguments.force.force;
    let (inputs, output) = (&arguments.inputs, arguments.output());
    let joined = match arguments.index {
        false => options.join(inputs, output, no_progress)?,
        true => join_with_overview(&options, inputs, output)?,
    };
    let sums = joined.sums;
    if !arguments.quiet {
        let _ = writeln!(
            std::io::stderr(),
            "{}: {} of {}, {}",
            arguments.output().display(),
            numbered(sums.present(), "event"),
            numbered(joined.slices, "slice"),
            numbered(joined.bytes, "byte")
        );
    }
    Ok(!joined.complete || sums.dropped != 0 || sums.skipped != 0 || sums.truncated != 0)
}

/// Joins slices to a temporary file, next to the output, and writes that with an overview: a span of time in which one slice ends and
/// the next begins is counted from the events of both.
fn join_with_overview(
    options: &JoinOptions,
    inputs: &[PathBuf],
    output: &Path,
) -> anyhow::Result<Joined> {
    struct Temporary(PathBuf);
    impl Drop for Temporary {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.0);
        }
    }
    let mut name = output.as_os_str().to_owned();
    name.push(format!(".slices.{}.tmp", std::process::id()));
    let whole = Temporary(name.into());
    let mut joined = options.join(inputs, &whole.0, no_progress)?;
    let mut overview = IndexOptions::new();
    overview.compression = options.compression;
    overview.force = options.force;
    joined.bytes = overview.write(&whole.0, output, no_progress)?;
    Ok(joined)
}

/// Returns where a file is, however it is named.
fn place_of(path: &Path) -> PathBuf {
    let parent = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.unwrap_or(Path::new(".")).canonicalize().ok();
    let named = || Some(parent?.join(path.file_name()?));
    path.canonicalize()
        .ok()
        .or_else(named)
        .unwrap_or_else(|| path.to_owned())
}

/// Refuses to write one file over another that is read, or written, too.
fn check_places(arguments: &MergeArguments) -> Result<(), UsageError> {
    let read = [
        ("--clock-offsets", &arguments.clock_offsets),
        ("--plan", &arguments.plan),
    ];
    let read = read
        .into_iter()
        .filter_map(|(what, path)| Some((what, path.as_deref()?)));
    let inputs = arguments
        .inputs
        .iter()
        .map(|path| ("an input", path.as_path()));
    let mut taken: Vec<(&str, PathBuf)> = read.map(|(what, path)| (what, place_of(path))).collect();
    let output = arguments.output();
    let refuse = |what: &str, path: &Path, other: &str| {
        let path = path.display();
        Err(UsageError(format!(
            "{what} {path} would be written over {other}: name another file"
        )))
    };
    let at_output = place_of(output);
    if let Some((other, _)) = taken.iter().find(|(_, place)| *place == at_output) {
        return refuse("the output", output, &format!("what {other} names"));
    }
    let inputs: Vec<(&str, PathBuf)> = inputs.map(|(what, path)| (what, place_of(path))).collect();
    if arguments.is_filtered() && inputs.iter().any(|(_, place)| *place == at_output) {
        return refuse("the output", output, "an input of which it is a part");
    }
    taken.extend(inputs);
    taken.push(("the output", at_output));
    let written = [
        ("--report", &arguments.report),
        ("--write-plan", &arguments.write_plan),
    ];
    for (what, path) in written {
        let Some(path) = path.as_deref().filter(|path| path.as_os_str() != "-") else {
            continue;
        };
        let place = place_of(path);
        if let Some((other, _)) = taken.iter().find(|(_, taken)| *taken == place) {
            return refuse(what, path, other);
        }
        if is_annals(path) {
            return refuse(what, path, "a recording or a trace");
        }
        taken.push((what, place));
    }
    Ok(())
}

impl MergeArguments {
    /// Returns whether only a part of the inputs is written.
    fn is_filtered(&self) -> bool {
        let window = &self.window;
        !self.filter.filter().is_empty() || window.from.is_some() || window.to.is_some()
    }

    /// Returns where the trace is written.
    fn output(&self) -> &Path {
        self.output.as_deref().unwrap_or(Path::new(""))
    }

    /// Chooses the output if none is set: next to a single input directory.
    ///
    /// # Errors
    /// If there are several inputs, or the input is no directory.
    fn choose_output(&mut self) -> anyhow::Result<()> {
        if self.output.is_some() {
            return Ok(());
        }
        match &self.inputs[..] {
            [directory] if directory.is_dir() => {
                self.output = Some(trace_beside(directory)?);
                Ok(())
            }
            [input] if !input.exists() => {
                let why = std::io::Error::from(std::io::ErrorKind::NotFound);
                Err(why).with_context(|| format!("cannot open {}", input.display()))
            }
            _ => {
                let why = "name the trace with --output OUT.annals: only the merge of one directory has a default, \
                           DIR.annals";
                Err(UsageError(why.to_owned()).into())
            }
        }
    }
}

fn merge(arguments: &MergeArguments) -> anyhow::Result<Report> {
    check_places(arguments)?;
    let format = match arguments.format {
        Some(format) => format,
        // Slices that are joined later are traces.
        None if arguments.slice.is_some() => OutputFormat::Annals,
        None => OutputFormat::of_path(arguments.output()),
    };
    let window = arguments.window.window()?;
    let plan = plan(arguments, format)?;
    if let OutputFormat::Export(format) = format {
        return run_export(plan, window, format, arguments);
    }
    let bar = progress(plan.expected_events(), arguments.quiet);
    let merged = plan.write_trace(arguments.output(), |events| {
        bar.set_position(events);
        ControlFlow::Continue(())
    });
    bar.finish_and_clear();
    let merged = merged?;
    tell(&merged.report, Some(merged.bytes), format, arguments)?;
    let is_whole = !arguments.is_filtered() && arguments.slice.is_none();
    if is_whole {
        let _ =
            std::io::stderr().write_all(safe_lines(&remove_live_files(&merged.report)).as_bytes());
    }
    Ok(merged.report)
}

/// Plans the merge, and writes the plan if that is asked for.
fn plan(arguments: &MergeArguments, format: OutputFormat) -> anyhow::Result<MergePlan> {
    for path in [&arguments.report, &arguments.write_plan] {
        arguments.force.check(path.as_deref(), OutputKind::JSON)?;
    }
    let offsets = arguments.clock_offsets.as_deref().map(ClockOffsets::read);
    let offsets = offsets.transpose()?;
    let mut options = MergeOptions::new();
    options.symbols = Symbols::in_directories(&arguments.symbols)?;
    options.clock_offsets = offsets.clone();
    options.causality = arguments.causality;
    options.messages_in_flight = arguments.messages_in_flight;
    options.memory_limit_bytes = arguments.memory_limit;
    options.temporary_directory = arguments.temp_dir.clone();
    options.rank_from.clone_from(&arguments.rank_from);
    options.all_arguments = arguments.all_arguments;
    options.output = arguments.output.clone();
    options.compression = arguments.compression;
    options.jobs = useful_jobs(arguments.jobs);
    options.strict = arguments.strict;
    options.overview = arguments.index;
    options.force = arguments.force.force;
    options.settled = arguments.plan.as_deref().map(Plan::read).transpose()?;
    options.slice = arguments.slice;
    if matches!(format, OutputFormat::Export(format) if format != Format::Otf2) {
        check_built_in()?;
    } else {
        // The other exports filter by themselves: they have a separate report of what is left out.
        options.filter = arguments.filter.filter();
        options.window = arguments.window.window()?;
    }
    let planned = options.plan(&arguments.inputs)?;
    if let Some(offsets) = &offsets {
        tell_of_offsets(offsets, &planned);
    }
    if let Some(path) = &arguments.write_plan {
        let replace = arguments.force.replace(OutputKind::JSON);
        planned.settled().write(path, replace)?;
    }
    Ok(planned)
}

/// Says what is doubtful about a file of offsets between hosts.
fn tell_of_offsets(offsets: &ClockOffsets, plan: &MergePlan) {
    if let Some(trace) = plan.traces().next() {
        let path = trace.path.display();
        eprintln!(
            "trace-merge: --clock-offsets: {} is a merged trace, whose hosts stay as they were related then",
            safe_lines(&path.to_string())
        );
    }
    let definitions = plan.definitions();
    let processes = definitions.processes.values();
    let hosts = processes.map(|process| definitions.string(process.host));
    for doubt in offsets.doubts(hosts) {
        eprintln!("trace-merge: --clock-offsets: {}", safe_lines(&doubt));
    }
}

/// Writes the result of the merge in another format than a trace's.
fn run_export(
    plan: MergePlan,
    window: Window,
    format: Format,
    arguments: &MergeArguments,
) -> anyhow::Result<Report> {
    let events = plan.expected_events();
    let opened = plan.into_reader();
    let settings = Settings {
        force: arguments.force.force,
        strict: arguments.strict,
        ..Settings::default()
    };
    let bar = progress(events, arguments.quiet);
    let filter = FilterArguments {
        events: arguments.filter.clone(),
        ..FilterArguments::default()
    };
    let query = match format {
        // The merge has filtered.
        Format::Otf2 => Query::new(),
        _ => filter.query(opened.definitions(), window)?,
    };
    let exported = export(
        &opened,
        &query,
        format,
        &settings,
        arguments.output(),
        &mut |events| bar.set_position(events),
    );
    bar.finish_and_clear();
    let exported = exported?;
    let report = exported.outcome.report.clone();
    let report = report.context("a merge makes a report")?;
    if !arguments.quiet {
        tell_of_messages(&exported);
    }
    let bytes = exported.bytes;
    tell(&report, bytes, OutputFormat::Export(format), arguments)?;
    Ok(report)
}

/// Shows and writes the report.
fn tell(
    report: &Report,
    bytes: Option<u64>,
    format: OutputFormat,
    arguments: &MergeArguments,
) -> anyhow::Result<()> {
    if !arguments.quiet {
        let summary = summary(report, bytes, format, arguments);
        // A closed standard error does not undo a merge.
        let _ = std::io::stderr().write_all(safe_lines(&summary).as_bytes());
    }
    if let Some(path) = &arguments.report {
        let mut json = serde_json::to_string_pretty(report)?;
        json.push('\n');
        if path.as_os_str() == "-" {
            std::io::stdout().write_all(json.as_bytes())?;
        } else {
            let written = arguments
                .force
                .write(path, json.as_bytes(), OutputKind::JSON);
            written.context("the output is written, its report is not")?;
        }
    }
    Ok(())
}

/// Returns the report for people.
fn summary(
    report: &Report,
    bytes: Option<u64>,
    format: OutputFormat,
    arguments: &MergeArguments,
) -> String {
    let size = bytes.map_or_else(String::new, |bytes| format!(", {bytes} bytes"));
    let headline = format!(
        "{}: {} of {}{size}\n",
        arguments.output().display(),
        numbered(report.totals.present(), "event"),
        numbered(report.inputs.len(), "recording"),
    );
    let asked = Asked {
        output: arguments.output(),
        is_readable: matches!(
            format,
            OutputFormat::Annals | OutputFormat::Export(Format::Otf2)
        ),
        is_filtered: arguments.is_filtered(),
        is_slice: arguments.slice.is_some(),
    };
    headline + &of_ends(report) + &of_merge(report, asked)
}
