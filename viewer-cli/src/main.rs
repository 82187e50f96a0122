//! `trace-cli`: looks inside recordings and traces.

use std::fmt::Write as _;
use std::io::{BufWriter, Write};
use std::process::ExitCode;

use annals_cli::commands::{
    InputArguments, TableArguments, collectives, demo, diff, doctor, dropped, events, explain,
    export, flat, help, histogram, index, info, intervals, merge, messages, metrics, print, record,
    recover, regions, report, samples, serve, slice, sources, stuck, suggest_filter, timeline, tui,
    verify, why,
};
use annals_cli::file::with_advice;
use annals_cli::launch;
use annals_cli::output::{Finding, UsageError};
use annals_cli::table::safe_lines;
use annals_merger::keep_freed_memory;
use anyhow::Context;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

/// Answers questions about Annals traces and recordings.
///
/// INPUT is a trace, a recording, or a directory of recordings. Results go to standard output,
/// everything else to standard error. Times are given as 1.5s, 250ms, 10us, from the trace's start.
#[derive(Debug, Parser)]
#[command(
    name = "trace-cli",
    version,
    disable_help_subcommand = true,
    after_help = "Exit codes: 0 fine, 1 failed, 2 wrong usage, 3 finished, but data had to be \
                  skipped or was lost (trace-cli help json).\n\n\
                  Examples:\n  trace-cli demo\n  trace-cli doctor ./program\n  trace-cli record -o annals-run -- ./program\n  trace-cli recover annals-run\n  trace-cli info run.annals\n  \
                  trace-cli print run.annals --rank 0 --from 1s --to 1.1s\n  \
                  trace-cli regions run.annals --by rank\n  trace-cli report run.annals -o report.html\n  trace-cli suggest-filter run.annals -o filter.txt\n  \
                  trace-cli explain run.annals 0/main/17 3/main/20\n  trace-cli dropped run.annals --check\n  \
                  trace-cli verify run.annals annals-run\n\n\
                  Topics: trace-cli help losses, clocks, filters, settings, json, troubleshooting"
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

// Most variants have no doc comment: clap takes their help from the argument struct. A doc comment here would hide the
// struct's long help.
#[derive(Debug, Subcommand)]
enum Command {
    Record(record::RecordArguments),
    Doctor(doctor::DoctorArguments),
    Recover(recover::RecoverArguments),
    Merge(merge::MergeArguments),
    /// Summary of a trace: ranks, hosts, events, losses, provenance
    Info(InputArguments),
    /// Sources of events, with the order they promise and their clocks
    Sources(TableArguments),
    /// Event types with their counts
    Events(TableArguments),
    #[command(visible_alias = "cat")]
    Print(print::PrintArguments),
    Why(why::WhyArguments),
    Stuck(stuck::StuckArguments),
    Report(report::ReportArguments),
    Serve(serve::ServeArguments),
    Regions(regions::RegionsArguments),
    Samples(samples::SamplesArguments),
    Timeline(timeline::TimelineArguments),
    Tui(tui::TuiArguments),
    Index(index::IndexArguments),
    Slice(slice::SliceArguments),
    Split(slice::SplitArguments),
    Diff(diff::DiffArguments),
    Flat(flat::FlatArguments),
    Histogram(histogram::HistogramArguments),
    Intervals(intervals::IntervalsArguments),
    Messages(messages::MessagesArguments),
    Collectives(collectives::CollectivesArguments),
    Metrics(metrics::MetricsArguments),
    SuggestFilter(suggest_filter::SuggestFilterArguments),
    Explain(explain::ExplainArguments),
    Export(export::ExportArguments),
    Dropped(dropped::DroppedArguments),
    Verify(verify::VerifyArguments),
    /// Records a real parallel program, merges the recordings and analyses the result
    Demo(demo::DemoArguments),
    /// Shell completions, on standard output
    #[command(
        after_help = "Examples:\n  trace-cli completions bash > /etc/bash_completion.d/trace-cli\n  \
                  trace-cli completions zsh > ~/.zfunc/_trace-cli"
    )]
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// The help of a command, or a topic: losses, clocks, filters, settings, json, troubleshooting
    Help {
        /// A command or a topic
        name: Option<String>,
    },
    /// Manual pages: one for trace-cli and one for each command, into a directory
    Man {
        /// Where they go
        #[arg(value_name = "DIR")]
        directory: std::path::PathBuf,
    },
    /// One process of the demo
    #[command(hide = true)]
    DemoRank(demo::RankArguments),
}

fn run(command: &Command, out: &mut dyn Write) -> anyhow::Result<Finding> {
    match command {
        Command::Record(_) => unreachable!("`main` has run it: its exit code is a program's"),
        Command::Doctor(arguments) => doctor::run(arguments, out),
        Command::Recover(arguments) => recover::run(arguments, out),
        Command::Merge(arguments) => merge::run(arguments.clone()),
        Command::Info(arguments) => info::run(arguments, out),
        Command::Sources(arguments) => sources::run(arguments, out),
        Command::Events(arguments) => events::run(arguments, out),
        Command::Print(arguments) => print::run(arguments, out),
        Command::Why(arguments) => why::run(arguments, out),
        Command::Stuck(arguments) => stuck::run(arguments, out),
        Command::Report(arguments) => report::run(arguments, out),
        Command::Serve(arguments) => serve::run(arguments, out),
        Command::Regions(arguments) => regions::run(arguments, out),
        Command::Samples(arguments) => samples::run(arguments, out),
        Command::Index(arguments) => index::run(arguments, out),
        Command::Slice(arguments) => slice::run(arguments, out),
        Command::Split(arguments) => slice::run_split(arguments, out),
        Command::Diff(arguments) => diff::run(arguments, out),
        Command::Timeline(arguments) => timeline::run(arguments, out),
        Command::Tui(arguments) => tui::run(arguments),
        Command::Flat(arguments) => flat::run(arguments, out),
        Command::Histogram(arguments) => histogram::run(arguments, out),
        Command::Intervals(arguments) => intervals::run(arguments, out),
        Command::Messages(arguments) => messages::run(arguments, out),
        Command::Collectives(arguments) => collectives::run(arguments, out),
        Command::Metrics(arguments) => metrics::run(arguments, out),
        Command::SuggestFilter(arguments) => suggest_filter::run(arguments, out),
        Command::Explain(arguments) => explain::run(arguments, out),
        Command::Export(arguments) => export::run(arguments, out),
        Command::Dropped(arguments) => dropped::run(arguments, out),
        Command::Verify(arguments) => verify::run(arguments, out),
        Command::Demo(arguments) => demo::run(arguments, out),
        Command::DemoRank(arguments) => demo::run_rank(arguments, out),
        Command::Completions { shell } => {
            clap_complete::generate(*shell, &mut Arguments::command(), "trace-cli", out);
            Ok(Finding::FINE)
        }
        Command::Help { name } => help::run(command_line(), name.as_deref(), out),
        Command::Man { directory } => {
            std::fs::create_dir_all(directory)
                .and_then(|()| clap_mangen::generate_to(Arguments::command(), directory))
                .with_context(|| directory.display().to_string())?;
            Ok(Finding::FINE)
        }
    }
}

fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        let as_io = cause.downcast_ref::<std::io::Error>();
        let kind = as_io.map(std::io::Error::kind).or_else(|| {
            let as_json = cause.downcast_ref::<serde_json::Error>()?;
            as_json.io_error_kind()
        });
        kind == Some(std::io::ErrorKind::BrokenPipe)
    })
}

/// The commands by what they are for. `tests/cli` checks that each command is in one group.
const GROUPS: [(&str, &[&str]); 6] = [
    (
        "Record",
        &[
            "record",
            "doctor",
            "recover",
            "merge",
            "suggest-filter",
            "demo",
        ],
    ),
    (
        "Look",
        &[
            "info",
            "why",
            "stuck",
            "report",
            "serve",
            "timeline",
            "tui",
            "regions",
            "samples",
            "flat",
            "messages",
            "collectives",
            "print",
            "histogram",
            "intervals",
            "metrics",
            "sources",
            "events",
            "explain",
        ],
    ),
    ("Compare", &["diff"]),
    ("Convert", &["export", "index", "slice", "split"]),
    ("Check", &["dropped", "verify"]),
    ("Other", &["completions", "man", "help"]),
];

/// Returns the command line with its help in groups.
fn command_line() -> clap::Command {
    let command = Arguments::command();
    let about = |name: &str| {
        let found = command
            .find_subcommand(name)
            .and_then(clap::Command::get_about);
        let about = found.map(ToString::to_string).unwrap_or_default();
        // Of a command without its own words, the first line of those of its arguments.
        about.lines().next().unwrap_or_default().to_owned()
    };
    let style = command.get_styles().clone();
    let (header, literal) = (style.get_header(), style.get_literal());
    let mut groups = String::new();
    for (group, names) in GROUPS {
        let _ = writeln!(groups, "{header}{group}:{header:#}");
        for name in names {
            let _ = writeln!(groups, "  {literal}{name:<15}{literal:#} {}", about(name));
        }
        groups.push('\n');
    }
    command.help_template(format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{groups}\
         {header}Options:{header:#}\n{{options}}{{after-help}}"
    ))
}

/// Returns what to do instead of naming several inputs, if that is what is wrong.
fn advice_on_inputs(error: &clap::Error) -> Option<&'static str> {
    if error.kind() != ErrorKind::UnknownArgument {
        return None;
    }
    let argument = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(argument)) => argument,
        _ => return None,
    };
    std::path::Path::new(argument).exists().then_some(
        "\nThis command reads one input. Of several recordings, name their directory, or merge them first:\n  \
         trace-merge A B -o run.annals\nTo compare two runs:\n  trace-cli diff A B\n",
    )
}

/// Reads the command line.
fn parsed() -> Arguments {
    let found = command_line().try_get_matches();
    let found = found.and_then(|matches| Arguments::from_arg_matches(&matches));
    found.unwrap_or_else(|error| {
        let Some(advice) = advice_on_inputs(&error) else {
            error.exit();
        };
        let _ = error.print();
        eprint!("{advice}");
        std::process::exit(error.exit_code())
    })
}

/// `trace-merge`: what this program does under its second name.
#[derive(Debug, Parser)]
#[command(name = "trace-merge", version)]
struct MergeCommand {
    #[command(flatten)]
    arguments: merge::MergeArguments,
}

/// Returns whether the program was started by its second name.
fn is_trace_merge() -> bool {
    let name = std::env::args_os().next().map(std::path::PathBuf::from);
    name.is_some_and(|name| name.file_name().is_some_and(|name| name == "trace-merge"))
}

fn main() -> ExitCode {
    if is_trace_merge() {
        let arguments = MergeCommand::parse().arguments;
        keep_freed_memory();
        return match merge::run(arguments) {
            Ok(finding) if finding.has_loss => ExitCode::from(3),
            Ok(_) => ExitCode::SUCCESS,
            Err(error) => failed("trace-merge", &error),
        };
    }
    let arguments = parsed();
    if let Command::Record(arguments) = &arguments.command {
        return match record::run(arguments) {
            Ok(outcome) => {
                outcome.signal.into_iter().for_each(launch::end_by);
                ExitCode::from(outcome.code)
            }
            Err(error) => failed("trace-cli", &error),
        };
    }
    keep_freed_memory();
    let mut out = BufWriter::with_capacity(1 << 16, std::io::stdout());
    let outcome = run(&arguments.command, &mut out)
        .and_then(|finding| out.flush().map(|()| finding).map_err(Into::into));
    match outcome {
        Ok(finding) if finding.has_failed => ExitCode::from(1),
        Ok(finding) if finding.is_stuck => ExitCode::from(4),
        Ok(finding) if finding.has_loss => ExitCode::from(3),
        Ok(_) => ExitCode::SUCCESS,
        // The reader of our output has closed the pipe: that is no error.
        Err(error) if is_closed_pipe(&error) => {
            // The rest of the buffer would be written on drop, and fail again.
            std::mem::forget(out);
            ExitCode::SUCCESS
        }
        Err(error) => failed("trace-cli", &error),
    }
}

fn failed(program: &str, error: &anyhow::Error) -> ExitCode {
    eprintln!("{program}: {}", safe_lines(&with_advice(error)));
    if error.is::<UsageError>() {
        return ExitCode::from(2);
    }
    ExitCode::FAILURE
}
