//! `trace-cli record`: runs a program so that it is recorded.

use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::iter;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use annals_analysis::{CostSums, EventCost};
use annals_format::{Cause, Definitions, Ended, units};
use annals_merger::{MergeOptions, Program, Symbols, no_progress};
use annals_recorder::{
    Compression, OpenMp, Options, RANKED_PROCESS, RANKED_PROCESS_LEN, RECORDED_BY, RecorderError,
    SETTINGS, Setting,
};
use anyhow::Context;
use clap::{Arg, ArgMatches, Args, FromArgMatches, value_parser};

use crate::doctor::{cost, sampling};
use crate::file::trace_beside;
use crate::function_rules::{FunctionRules, programs};
use crate::gather::{self, Completion, Ends, Gathered, Known};
use crate::launch::{self, HeldSignals, Launched};
use crate::linked;
use crate::lookout::Lookout;
use crate::merge_summary::{Asked, of_merge, remove_live_files};
use crate::output::UsageError;
use crate::preload::{library, preload};
use crate::table::{safe, safe_lines};
use crate::time;
use crate::views::{counted, numbered, recording_cost_words, sampling_way, unrecorded_children};
use crate::watch::{Processes, Watch};

/// Runs a program so that it is recorded
///
/// Everything that the program raises through Annals is recorded, every call of MPI, whatever the MPI library, and every
/// function that was compiled with -finstrument-functions, in it and in the programs it starts. Signals are passed on, and `record`
/// ends as the program did: with its exit code, or by the signal that ended it. When the program succeeded but its
/// recordings could not be completed, the reason is printed and the exit code is 1; below a launcher of ranks it stays
/// 0, since the launcher would end the other ranks. Afterwards the recordings are listed on standard error. Functions
/// are named from the symbols and debug information (-g) of their files.
///
/// Both `mpirun -n 4 trace-cli record -o run -- ./app` and `trace-cli record -o run -- mpirun -n 4 ./app` work;
/// with more than one host, take the first: each `record` then handles the files of one process, and reports which
/// signal ended it (in the second form, Linux reports that since version 6.15, and before only for ranks that outlive
/// their launcher). Processes that the program leaves running become children of `record` until it ends. The contents
/// of a killed process's live file are added to its recording. Steps that fail afterwards, for example because the disk
/// is full, can be repeated later by `trace-cli recover` and `trace-merge`.
#[derive(Clone, Debug, Args)]
pub struct RecordArguments {
    /// Directory for the recordings
    #[arg(short, long, value_name = "DIR", default_value = "annals-run")]
    output: PathBuf,

    /// Remove the recordings of other runs in the directory
    #[arg(long, conflicts_with = "add")]
    overwrite: bool,

    /// Keep the recordings of other runs in the directory
    #[arg(long)]
    add: bool,

    /// Record only events that the program raises itself, and MPI calls, but no functions
    #[arg(long)]
    no_functions: bool,

    /// Look for names of functions in the files of this directory too (of the same build id)
    #[arg(long, value_name = "DIR")]
    symbols: Vec<PathBuf>,

    /// Merge the recordings when the program has ended, into the trace DIR.annals next to the directory. For several
    /// ranks, only in the form where `record` precedes the launcher
    #[arg(long)]
    merge: bool,

    /// When no rank has moved for this time, print once where each is and which ones it waits for, as `trace-cli stuck` does. Only in the
    /// form where `record` precedes the launcher
    #[arg(long, value_name = "TIME", value_parser = units::parse_time)]
    stuck_after: Option<i64>,

    /// Print only errors
    #[arg(short, long)]
    quiet: bool,

    #[command(flatten)]
    settings: Settings,

    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true)]
    command: Vec<OsString>,
}

/// The setting whose option may be without a value.
const SAMPLING: &str = "ANNALS_SAMPLE";

/// The settings of the recorder that were given as options, with their values.
#[derive(Clone, Debug)]
struct Settings(Vec<(&'static Setting, OsString)>);

impl Args for Settings {
    fn augment_args(command: clap::Command) -> clap::Command {
        command.args(SETTINGS.iter().filter_map(|setting| {
            let option = Arg::new(setting.variable).long(setting.option?);
            let heading = "Recorder (override the environment variables in brackets)";
            let help = format!("{} [{}]", setting.help, setting.variable);
            let option = option
                .help_heading(heading)
                .help(help)
                .value_name(setting.value)
                .value_parser(value_parser!(OsString));
            Some(match setting.variable {
                SAMPLING => option
                    .num_args(0..=1)
                    .require_equals(true)
                    .default_missing_value("1ms"),
                _ => option,
            })
        }))
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Settings {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let options = SETTINGS.iter().filter(|setting| setting.option.is_some());
        let given = options.filter_map(|setting| {
            let value = matches.get_one::<OsString>(setting.variable)?;
            Some((setting, value.clone()))
        });
        Ok(Self(given.collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// How `record` ends: as the program did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProgramEnd {
    /// The exit code. Where a signal ended the program, 128 and its number.
    pub code: u8,
    /// The signal that ended the program, and is to end this process. `None` means that no signal ended it.
    pub signal: Option<i32>,
}

/// Why `--merge` is refused to a rank.
const MERGE_OF_ONE_RANK: &str = "--merge: this is one rank of several, and each would merge its own recording alone: put \
     the launcher after it (trace-cli record --merge -- mpirun ...), or merge the directory when all have ended \
     (trace-merge)";

impl RecordArguments {
    /// Checks that what needs all ranks is not asked of one of them.
    fn check_is_whole_job(&self, options: &Options) -> Result<(), UsageError> {
        let why = match (self.merge, self.stuck_after) {
            (true, _) => MERGE_OF_ONE_RANK,
            (false, Some(_)) => ROLL_CALL_OF_ONE_RANK,
            (false, None) => return Ok(()),
        };
        match is_one_rank_of_several(options) {
            true => Err(UsageError(why.to_owned())),
            false => Ok(()),
        }
    }

    /// Begins to follow what is recorded: whether it is very much, and, if that is asked for, whether the ranks move.
    fn lookouts(&self, directory: &Path) -> Vec<Lookout> {
        let after_ns = self.stuck_after.filter(|after_ns| *after_ns > 0);
        let after = after_ns.map(|after_ns| Duration::from_nanos(after_ns.unsigned_abs()));
        let stuck = after.map(|after| Lookout::for_stuck_ranks(directory, after));
        let much = (!self.quiet).then(|| Lookout::for_much(directory));
        // Without threads for them, the program is recorded all the same.
        stuck
            .into_iter()
            .chain(much)
            .filter_map(Result::ok)
            .collect()
    }
}

/// Why `--stuck-after` is refused to a rank.
const ROLL_CALL_OF_ONE_RANK: &str = "--stuck-after: this is one rank of several: put the launcher after it \
     (trace-cli record --stuck-after 5m -- mpirun ...), or look with `trace-cli stuck`";

/// Runs the command.
///
/// # Errors
/// If the program cannot be started, or it is not clear where its recordings would go.
pub fn run(arguments: &RecordArguments) -> anyhow::Result<ProgramEnd> {
    let held = HeldSignals::hold();
    let symbols = Symbols::of_host_and(&arguments.symbols)?;
    let options = options(&arguments.settings)?;
    arguments.check_is_whole_job(&options)?;
    let library = library()?;
    let output = &arguments.output;
    let is_new = !output.exists();
    let directory = create_directory(arguments, &options)?;
    // Not at the end: until a run is gathered, nothing may come in between.
    let cost = cost::quick().ok().map(|cost| EventCost {
        has_rules: !options.rules.is_empty(),
        ..cost
    });
    let started = SystemTime::now();
    let since_1970 = started.duration_since(UNIX_EPOCH).unwrap_or_default();
    let token = format!("{}-{}", std::process::id(), since_1970.as_nanos());
    let mut command = recorded_command(arguments, &options, &directory, &token);
    if options.run.is_none() {
        // One name for all processes that it starts.
        command.env("ANNALS_RUN", format!("{:x}", since_1970.as_millis()));
    }
    let programs = programs(arguments.command.iter().map(OsString::as_os_str));
    let mut rules = function_rules(&arguments.settings, &programs)?;
    tell_before(arguments, &options, &rules, &library);
    let expanded = directory.join(format!(".filter-{token}"));
    pass_expanded(&rules, &expanded, &mut command)?;
    preload_into(&mut command, &options, &library, &programs)?;
    // Without it, less is known of how they end.
    let watch = Watch::begin(&directory).ok();
    let lookouts = arguments.lookouts(&directory);
    let launched = launch::run(&mut command, held);
    let run_ns = started.elapsed().unwrap_or_default().as_nanos() as i64;
    drop(lookouts);
    let _ = std::fs::remove_file(&expanded);
    if launched.is_err() && is_new {
        // Made for nothing; what others have put there meanwhile keeps it.
        let _ = std::fs::remove_dir(&directory);
    }
    let program = Path::new(&arguments.command[0]).display();
    let launched = launched.with_context(|| format!("cannot run {program}"))?;
    let status = launched.exit.status;
    let ends = ends_of(launched, watch);
    // Clocks of file systems may be coarse, or late.
    let since = started - Duration::from_secs(10);
    let mut note = |definitions: &Definitions| rules.note_definitions(definitions);
    let with = Completion {
        symbols: &symbols,
        ends: &ends,
        cost,
        compresses: options.compression == Compression::Later,
        // Other ranks may still work.
        threads: usize::from(options.rank.is_some()),
        is_quiet: arguments.quiet,
    };
    let gathered = gather::gather(&directory, &token, since, &with, &mut note);
    let mut has_failed = false;
    let (gathered, unreadable) = gathered.unwrap_or_else(|error| {
        has_failed = true;
        // The result of the program matters more.
        gather::tell(&format!("trace-cli: {}: {error:#}\n", safe_path(output)));
        Default::default()
    });
    has_failed |= !gathered.iter().all(Gathered::is_complete);
    tell_unreadable(&unreadable);
    if arguments.quiet {
        for problem in gathered.iter().flat_map(Gathered::what_failed) {
            gather::tell(&format!("trace-cli: {}\n", safe(problem)));
        }
    } else {
        let run = Run {
            command: &arguments.command,
            programs: &programs,
            status,
            buffer_bytes: options.buffer_bytes,
            run_ns,
        };
        gather::tell(&report(&gathered, &run, output));
        for rule in rules.unmatched().filter(|_| !gathered.is_empty()) {
            gather::tell(&unmatched(rule));
        }
    }
    let recordings: Vec<PathBuf> = gathered.iter().map(|one| one.path.clone()).collect();
    if is_new && recordings.is_empty() {
        let _ = std::fs::remove_dir(&directory); // Only if it is empty.
    }
    if arguments.merge && !recordings.is_empty() {
        has_failed |= !merge_and_tell(&recordings, arguments, &ends.others);
    }
    let code = match launch::exit_code(status) {
        0 if has_failed && options.rank.is_none() => 1, // Not below a launcher.
        code => code,
    };
    Ok(ProgramEnd {
        code,
        signal: status.signal(),
    })
}

/// Has the library preloaded into `command`, with another runtime of OpenMP if that is asked for, and has Kokkos find it.
fn preload_into(
    command: &mut Command,
    options: &Options,
    library: &Path,
    programs: &[(PathBuf, Program)],
) -> anyhow::Result<()> {
    let files = || programs.iter().map(|(path, _)| path.as_path());
    let runtime = (options.openmp == OpenMp::Libomp).then(|| linked::libomp(files()));
    let runtime = runtime.transpose()?;
    let preloaded: Vec<&Path> = iter::once(library).chain(runtime.as_deref()).collect();
    command.env("LD_PRELOAD", preload(&preloaded)?);
    command.envs(linked::kokkos_variables(library, files()));
    Ok(())
}

/// Has `command` read the filter from `file` if the rules were expanded.
fn pass_expanded(rules: &FunctionRules, file: &Path, command: &mut Command) -> anyhow::Result<()> {
    if let Some(text) = rules.expanded() {
        std::fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))?;
        let mut setting = OsString::from("@");
        setting.push(file);
        command.env("ANNALS_FILTER", setting);
    }
    Ok(())
}

/// Says what rules cannot do, and if threads are sampled in a way that the program may notice.
fn tell_before(
    arguments: &RecordArguments,
    options: &Options,
    rules: &FunctionRules,
    library: &Path,
) {
    if let Some(why) = rules.obstacle() {
        gather::tell(&format!("trace-cli: --filter: {}\n", safe(why)));
    }
    if arguments.quiet || options.rank.is_some() {
        return;
    }
    let mut given = arguments.settings.0.iter();
    let period = given.find(|(setting, _)| setting.variable == SAMPLING);
    let way = period.and_then(|(_, period)| sampling::tried(library, period));
    if let Some(Ok(way)) = way
        && sampling::is_by_signals(&way)
    {
        gather::tell(&format!(
            "samples: {}; calls that wait, as poll, select and nanosleep, may be interrupted (why: trace-cli doctor)\n",
            sampling_way(&way)
        ));
    }
}

/// Creates the directory of the recordings, and sees to what is there already. Returns its absolute path.
fn create_directory(arguments: &RecordArguments, options: &Options) -> anyhow::Result<PathBuf> {
    let output = &arguments.output;
    std::fs::create_dir_all(output).with_context(|| {
        format!(
            "cannot create {} (-o DIR: another directory)",
            output.display()
        )
    })?;
    let directory = std::path::absolute(output)?;
    settle(&directory, arguments, options)?;
    Ok(directory)
}

/// Returns the command of the program, with the settings of its recorder in the environment. `token` is in the recordings
/// of this run only.
fn recorded_command(
    arguments: &RecordArguments,
    options: &Options,
    directory: &Path,
    token: &str,
) -> Command {
    let mut command = Command::new(&arguments.command[0]);
    command.args(&arguments.command[1..]);
    for (setting, value) in &arguments.settings.0 {
        command.env(setting.variable, value);
    }
    if options.compression == Compression::Later {
        command.env("ANNALS_COMPRESSION", "later");
    }
    command.env("ANNALS_DIR", directory);
    command.env(RECORDED_BY, token);
    command.env(RANKED_PROCESS, " ".repeat(RANKED_PROCESS_LEN));
    if arguments.no_functions {
        command.env("ANNALS_FUNCTIONS", "off");
    }
    command
}

/// Returns how the program and the processes that it started have ended.
fn ends_of(launched: Launched, watch: Option<Watch>) -> Ends {
    let Launched { pid, exit, orphans } = launched;
    Ends {
        child: (pid, exit),
        others: match watch {
            Some(watch) => watch.end(orphans),
            None => Processes::without_watch(orphans),
        },
    }
}

/// Reports the recordings that cannot be read, of which the first is named.
fn tell_unreadable(unreadable: &[gather::Unreadable]) {
    let Some((path, why)) = unreadable.first() else {
        return;
    };
    let (path, count) = (safe_path(path), unreadable.len());
    let more = match count {
        1 => String::new(),
        _ => format!(", nor can {} more", count - 1),
    };
    gather::tell(&format!("trace-cli: {path} cannot be read: {why}{more}\n"));
}

/// Merges the recordings of this run and reports what became of them. Returns whether they were merged.
fn merge_and_tell(
    recordings: &[PathBuf],
    arguments: &RecordArguments,
    processes: &Processes,
) -> bool {
    match merge(recordings, &arguments.output) {
        Ok(_) if arguments.quiet => true,
        Ok(told) => {
            gather::tell(&told);
            if processes.are_left() {
                gather::tell(&format!(
                    "trace-cli: a process that the program has started still runs; the trace lacks what it records from now on: \
                     merge again when it has ended (trace-merge {})\n",
                    safe_path(&arguments.output)
                ));
            }
            true
        }
        Err(error) => {
            gather::tell(&format!("trace-cli: not merged: {error:#}\n"));
            false
        }
    }
}

/// Returns a path as one line of a message.
fn safe_path(path: &Path) -> String {
    safe(&path.display().to_string())
}

/// Merges the recordings of this run; returns the text for the user.
fn merge(recordings: &[PathBuf], output: &Path) -> anyhow::Result<String> {
    let trace = trace_beside(output)?;
    let mut options = MergeOptions::new();
    options.output = Some(trace.clone());
    let merged = options.plan(recordings)?.write_trace(&trace, no_progress)?;
    let report = merged.report;
    let asked = Asked {
        output: &trace,
        is_readable: true,
        is_filtered: false,
        is_slice: false,
    };
    let headline = format!(
        "trace-cli: merged {} into {}, {}\n",
        numbered(report.totals.present(), "event"),
        safe_path(&trace),
        time::bytes(merged.bytes),
    );
    // The ends of the processes were already reported with their recordings.
    let lines = of_merge(&report, asked) + &remove_live_files(&report);
    Ok(headline + &safe_lines(&lines))
}

/// Returns whether a launcher has started this process as one of several ranks. Slurm sets rank 0 for a batch script,
/// too, but a step only below `srun`.
fn is_one_rank_of_several(options: &Options) -> bool {
    let is_set = |name: &&str| std::env::var_os(name).is_some();
    let names = ["PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK"];
    let is_rank = names.iter().any(is_set) || ["SLURM_PROCID", "SLURM_STEP_ID"].iter().all(is_set);
    is_rank && options.rank_count != Some(1)
}

/// Parses the settings like the program's recorder will, so that errors are reported before the program runs.
fn options(settings: &Settings) -> anyhow::Result<Options> {
    let mut options = Options::new("");
    // Unless the user says otherwise: no other mode costs a program less.
    options.compression = Compression::Later;
    let wrong = |error: RecorderError| UsageError(error.to_string());
    options.set_from_env().map_err(wrong)?;
    for (setting, value) in &settings.0 {
        let option = setting.option.unwrap_or_default();
        let wrong = |error| match error {
            RecorderError::Setting {
                expected, found, ..
            } => UsageError(format!("--{option}: expected {expected}, not `{found}`")),
            other => UsageError(format!("--{option}: {other}")),
        };
        options.set(setting.variable, value).map_err(wrong)?;
    }
    Ok(options)
}

/// Sees to recordings that are there already.
fn settle(directory: &Path, arguments: &RecordArguments, options: &Options) -> anyhow::Result<()> {
    if arguments.add {
        return Ok(());
    }
    let launcher_start_ns = (options.rank.is_some() && options.run.is_none())
        .then(parent_start_unix_ns)
        .flatten();
    // Another rank of this very run may have begun already: its recording says which run it belongs to; where
    // the launcher has no name for a run, it is not older than the launcher.
    let is_of_this_run = |known: &Known| {
        known.is_begun_just_now
            || options.run.as_ref() == Some(&known.run)
            || launcher_start_ns.is_some_and(|start_ns| known.start_unix_ns >= start_ns)
    };
    let mut others = gather::known(directory)?;
    others.retain(|known| !is_of_this_run(known));
    if others.is_empty() {
        return Ok(());
    }
    if !arguments.overwrite {
        let count = others.len();
        let why = format!(
            "{} holds {count} recording{} of another run (as {}): name another directory, or say \
             --overwrite or --add",
            arguments.output.display(),
            if count == 1 { "" } else { "s" },
            others[0].path.display(),
        );
        return Err(UsageError(why).into());
    }
    for known in others {
        let mut live = known.path.clone().into_os_string();
        live.push("-live");
        // The recording last: without it, the other files could not be attributed.
        let lives = [Some(live.into()), known.live_path];
        for path in lives.into_iter().flatten().chain([known.path]) {
            match std::fs::remove_file(&path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    let context = format!("cannot remove {}", path.display());
                    return Err(anyhow::Error::from(error).context(context));
                }
                _ => {}
            }
        }
    }
    Ok(())
}

/// Returns when this process's parent was started, with a minute to spare for the clocks of other
/// hosts.
fn parent_start_unix_ns() -> Option<i64> {
    const SPARE_S: i64 = 60;
    /// The unit of the kernel's times for programs, on every processor (proc(5), time(7)).
    const TICKS_PER_SECOND: i64 = 100;
    let parent = std::os::unix::process::parent_id();
    let stat = std::fs::read_to_string(format!("/proc/{parent}/stat")).ok()?;
    let offsets = std::fs::read_to_string("/proc/self/timens_offsets").unwrap_or_default();
    let ticks = annals_format::host::process_start(&stat, &offsets)? as i64;
    let system = std::fs::read_to_string("/proc/stat").ok()?;
    let mut lines = system.lines();
    let boot_s: i64 = lines
        .find_map(|line| line.strip_prefix("btime "))?
        .trim()
        .parse()
        .ok()?;
    Some((boot_s + ticks / TICKS_PER_SECOND - SPARE_S) * 1_000_000_000)
}

/// Returns the rules of a run, with those for functions.
///
/// # Errors
/// If their file cannot be read.
fn function_rules(
    settings: &Settings,
    programs: &[(PathBuf, Program)],
) -> anyhow::Result<FunctionRules> {
    let mut given = settings.0.iter();
    let given = given.find(|(setting, _)| setting.variable == "ANNALS_FILTER");
    let given = given.map(|(_, value)| value.clone());
    let given = given.or_else(|| std::env::var_os("ANNALS_FILTER"));
    let given = given.unwrap_or_default();
    let text = match given.as_bytes().strip_prefix(b"@") {
        Some(path) => {
            let path = Path::new(OsStr::from_bytes(path));
            std::fs::read_to_string(path)
                .with_context(|| format!("cannot read {}", path.display()))?
        }
        None => given.to_string_lossy().into_owned(),
    };
    Ok(FunctionRules::new(&text, programs))
}

/// Returns what is reported of a rule that matched nothing.
fn unmatched(rule: &str) -> String {
    let of_functions = if rule.contains(" region ") {
        " (functions are looked up only in programs that the command line names)"
    } else {
        ""
    };
    format!(
        "trace-cli: the rule `{}` matched nothing{of_functions}\n",
        safe(rule)
    )
}

/// A run, as far as its report must know it.
struct Run<'a> {
    command: &'a [OsString],
    /// The programs that the command line names.
    programs: &'a [(PathBuf, Program)],
    status: ExitStatus,
    /// Bytes of buffer of each process.
    buffer_bytes: usize,
    /// How long the program ran, nanoseconds.
    run_ns: i64,
}

/// Returns whether a program of this name compiles C, C++ or Fortran: as `g++`, `clang-14`, `aarch64-linux-gnu-gcc-12` or `mpicc`.
fn is_compiler(name: &str) -> bool {
    const NAMES: [&str; 21] = [
        "cc",
        "c++",
        "CC",
        "gcc",
        "g++",
        "gfortran",
        "clang",
        "clang++",
        "flang",
        "flang-new",
        "icx",
        "icpx",
        "ifx",
        "ftn",
        "nvc",
        "nvc++",
        "nvfortran",
        "mpicc",
        "mpicxx",
        "mpic++",
        "mpifort",
    ];
    let is_version = |text: &str| text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    let name = match name.rsplit_once('-') {
        Some((name, version)) if is_version(version) => name,
        _ => name,
    };
    let last = name.rsplit('-').next().unwrap_or(name);
    NAMES.contains(&name) || NAMES.contains(&last)
}

/// Returns why nothing was recorded.
fn nothing_recorded(run: &Run<'_>, output: &Path) -> String {
    let name = Path::new(&run.command[0])
        .file_name()
        .unwrap_or(&run.command[0]);
    let name = safe(&name.to_string_lossy());
    if is_compiler(&name) && run.status.success() {
        return format!(
            "nothing was recorded: {name} is a compiler, not the program to be recorded: compile first, with -g \
             -finstrument-functions, and then record what that made: trace-cli record -- ./a.out"
        );
    }
    if !run.status.success() {
        return format!(
            "nothing was recorded: {name} failed ({}) before any process that it ran could be recorded",
            launch::end_name(run.status)
        );
    }
    if rustix::fs::statvfs(output).is_ok_and(|room| room.f_bavail == 0) {
        return format!(
            "nothing was recorded: the disk of {} is full: make room, or choose another directory (-o DIR)",
            safe_path(output)
        );
    }
    if let Some((path, _)) = run.programs.iter().find(|(_, program)| program.is_static) {
        return format!(
            "nothing was recorded: {} is statically linked, and nothing can be preloaded into it; link it \
             dynamically",
            safe_path(path)
        );
    }
    let is_privileged = |path: &PathBuf| {
        let found = path.metadata();
        found.is_ok_and(|file| file.permissions().mode() & 0o6000 != 0)
    };
    if let Some((path, _)) = run.programs.iter().find(|(path, _)| is_privileged(path)) {
        return format!(
            "nothing was recorded: {} is set-user-id or set-group-id, and the loader preloads nothing into it",
            safe_path(path)
        );
    }
    format!(
        "nothing was recorded: {name} ran, but neither it nor what it started called MPI (functions found by dlopen \
         and dlsym do not count), raised events through Annals, or called functions compiled with \
         -finstrument-functions; or LD_PRELOAD was replaced for it\n\
         To record its functions, compile it with -g -finstrument-functions; to record calls of MPI, link it dynamically \
         with an MPI library. What can be recorded of it: trace-cli doctor {}",
        safe(&run.command[0].to_string_lossy())
    )
}

/// Returns what can be done about events that were dropped, with this run's numbers.
fn ways_out(gathered: &[Gathered], run: &Run<'_>, output: &Path) -> Option<String> {
    let of_cause =
        |one: &Gathered, cause: Cause| one.dropped.get(cause.name()).copied().unwrap_or(0);
    let of_storage = |one: &Gathered| of_cause(one, Cause::Storage);
    let of_buffer = |one: &Gathered| of_cause(one, Cause::BufferFull);
    let sum = |of: &dyn Fn(&Gathered) -> u64, of_which: &[&Gathered]| {
        let each = of_which.iter().map(|one| of(one));
        each.fold(0, u64::saturating_add)
    };
    // Where pages could not be written, they did not become free: a larger buffer would be full a moment later.
    let (unwritten, written): (Vec<&Gathered>, Vec<&Gathered>) =
        gathered.iter().partition(|one| of_storage(one) != 0);
    let mut text = String::new();
    if !unwritten.is_empty() {
        let lost = sum(&of_storage, &unwritten).saturating_add(sum(&of_buffer, &unwritten));
        let _ = writeln!(
            text,
            "  {} were dropped because the disk was full, or the file could not be written for another reason: make room, or \
             choose a directory elsewhere with --output",
            counted(lost, "event")
        );
    }
    text.extend(larger_buffer(
        &written,
        sum(&of_buffer, &written),
        run,
        output,
    ));
    (!text.is_empty()).then_some(text)
}

/// Returns what can be done about events that were dropped because the buffer was full: `lost` of all recordings.
fn larger_buffer(
    gathered: &[&Gathered],
    lost: u64,
    run: &Run<'_>,
    output: &Path,
) -> Option<String> {
    let of_buffer = |one: &Gathered| {
        one.dropped
            .get(Cause::BufferFull.name())
            .copied()
            .unwrap_or(0)
    };
    let worst = gathered.iter().max_by_key(|one| of_buffer(one))?;
    if lost == 0 {
        return None;
    }
    // As if the buffer had to hold, in proportion, what was lost as well.
    let kept = worst.events.max(1);
    let needed = u128::from(kept.saturating_add(of_buffer(worst)));
    let bytes = run.buffer_bytes as u128 * needed.div_ceil(u128::from(kept));
    let bytes = bytes.clamp(2 * run.buffer_bytes as u128, 4 << 30) as u64;
    let mebibytes = bytes.next_power_of_two().div_ceil(1 << 20);
    let (output, now) = (safe_path(output), time::bytes(run.buffer_bytes as u64));
    Some(format!(
        "  {} were dropped because the buffer of {now} was full. To keep them, choose:\n    \
         --buffer {mebibytes}M        more memory for each process\n    \
         --overflow block    the program waits for the writer instead\n    \
         trace-cli suggest-filter {output}    a filter, and compiler flags, that leave out short, frequent functions\n",
        counted(lost, "event")
    ))
}

/// Returns what is reported when the program has ended.
fn report(gathered: &[Gathered], run: &Run<'_>, output: &Path) -> String {
    let mut text = String::new();
    if let Some(signal) = run.status.signal() {
        let _ = writeln!(
            text,
            "trace-cli: the program was ended by {}",
            launch::signal_name(signal)
        );
    }
    if gathered.is_empty() && !output.exists() {
        let _ = writeln!(
            text,
            "trace-cli: {} is not there any more: it was removed while the program ran, and what was recorded with it",
            output.display()
        );
        return text;
    }
    if gathered.is_empty() {
        let _ = writeln!(text, "trace-cli: {}", nothing_recorded(run, output));
        return text;
    }
    let _ = writeln!(
        text,
        "trace-cli: {} recording{} in {}",
        gathered.len(),
        if gathered.len() == 1 { "" } else { "s" },
        safe_path(output)
    );
    for one in gathered {
        let name = one.path.file_name().unwrap_or_default().to_string_lossy();
        let rank = match (one.rank, one.started_by_rank) {
            (Some(rank), _) => format!("rank {rank}, "),
            (None, Some(rank)) => format!("started by rank {rank}, "),
            (None, None) => String::new(),
        };
        let dropped: Vec<String> = one
            .dropped
            .iter()
            .map(|(cause, count)| format!("{count} {cause}"))
            .collect();
        // The counters were in the part of the file that is missing.
        let is_known = one.ended != Ended::Truncated;
        let dropped = match (dropped.as_slice(), is_known) {
            ([], true) => "dropped 0".to_owned(),
            ([], false) => "what its end has lost is not known".to_owned(),
            (causes, true) => format!("dropped {}", causes.join(" and ")),
            (causes, false) => format!("dropped {} and more", causes.join(" and ")),
        };
        let _ = writeln!(
            text,
            "  {}: {rank}pid {}, {}: {}, {dropped}, {}",
            safe(&name),
            one.pid,
            one.how_ended(),
            numbered(one.events, "event"),
            time::bytes(one.bytes)
        );
        if !one.is_kill_safe {
            text.push_str(
                "    no live file could be made: a kill would have cost what was not written yet\n",
            );
        }
        let (functions, unnamed) = one.functions;
        if unnamed != 0 {
            let _ = writeln!(
                text,
                "    {unnamed} of {functions} functions have no name: their files have no symbols, or \
                 are not there any more (see --symbols)"
            );
        }
        if let Some(children) = unrecorded_children(one.unrecorded_children, one.follows_forks) {
            let _ = writeln!(text, "    {children}");
        }
        for problem in &one.problems {
            let _ = writeln!(text, "    {}", safe(problem));
        }
        if let Some(why) = &one.not_compressed {
            let _ = writeln!(
                text,
                "    it has everything, but is not compressed: {} (trace-cli recover compresses it)",
                safe(why)
            );
        }
    }
    text.extend(ways_out(gathered, run, output));
    let mut costs = CostSums::default();
    gathered.iter().for_each(|one| costs.merge(&one.costs));
    if let Some(cost) = costs.share_of(run.run_ns) {
        let _ = writeln!(text, "trace-cli: {}", recording_cost_words(cost));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_stands_beside_its_directory_whatever_that_is_called_by() {
        let scratch = tempfile::tempdir().unwrap();
        let run = std::fs::canonicalize(scratch.path()).unwrap().join("run");
        let trace = run.with_file_name("run.annals");
        std::fs::create_dir_all(run.join("below")).unwrap();
        for name in ["run", "run/", "run/.", "run/below/.."] {
            let output = scratch.path().join(name);
            let found = trace_beside(&output).unwrap();
            assert_eq!(found.file_name(), trace.file_name(), "{name}");
            let beside = std::fs::canonicalize(found.parent().unwrap()).unwrap();
            assert_eq!(Some(&*beside), trace.parent(), "{name}");
        }
        assert_eq!(
            trace_beside(Path::new("here/run")).unwrap(),
            Path::new("here/run.annals")
        );
        assert!(trace_beside(Path::new("/")).is_err());
    }

    fn gathered(events: u64, dropped: &[(&'static str, u64)]) -> Gathered {
        Gathered {
            path: PathBuf::from("run/one.annals"),
            pid: 7,
            rank: None,
            started_by_rank: None,
            ended: Ended::Finished,
            process_end: Default::default(),
            events,
            dropped: dropped.iter().copied().collect(),
            bytes: 64,
            is_kill_safe: true,
            functions: (0, 0),
            problems: Vec::new(),
            costs: CostSums::default(),
            unrecorded_children: 0,
            follows_forks: false,
            not_compressed: None,
        }
    }

    #[test]
    fn drops_come_with_ways_out_in_this_run_s_numbers() {
        let run = Run {
            command: &[OsString::from("program")],
            programs: &[],
            status: ExitStatus::from_raw(0),
            buffer_bytes: 1 << 20,
            run_ns: 1,
        };
        let told = |of_all: &[Gathered]| report(of_all, &run, Path::new("run"));
        let text = told(&[gathered(1000, &[("buffer-full", 5000)]), gathered(9, &[])]);
        assert!(
            text.contains("5,000 events were dropped because the buffer of 1.0 MiB was full"),
            "{text}"
        );
        for way in [
            "--buffer 8M",
            "--overflow block",
            "trace-cli suggest-filter run",
        ] {
            assert!(text.contains(way), "{way}: {text}");
        }
        assert!(!told(&[gathered(1000, &[])]).contains("--buffer"));
        // Room in memory does not help against these.
        assert!(!told(&[gathered(1000, &[("size-limit", 7)])]).contains("--buffer"));
    }

    #[test]
    fn a_full_disk_comes_without_the_advice_to_enlarge_the_buffer() {
        let run = Run {
            command: &[OsString::from("program")],
            programs: &[],
            status: ExitStatus::from_raw(0),
            buffer_bytes: 1 << 20,
            run_ns: 1,
        };
        let told = |of_all: &[Gathered]| report(of_all, &run, Path::new("run"));
        let full = gathered(1000, &[("buffer-full", 5000), ("storage", 70)]);
        let text = told(std::slice::from_ref(&full));
        assert!(
            text.contains("5,070 events were dropped because the disk was full"),
            "{text}"
        );
        assert!(!text.contains("--buffer"), "{text}");
        // The buffer of another process was too small all the same.
        let text = told(&[full, gathered(1000, &[("buffer-full", 30)])]);
        assert!(
            text.contains("30 events were dropped because the buffer of 1.0 MiB was full"),
            "{text}"
        );
    }

    #[test]
    fn what_a_recording_that_ends_early_has_lost_is_not_called_nothing() {
        let told = |ended: Ended, dropped: &[(&'static str, u64)]| {
            let one = Gathered {
                ended,
                ..gathered(3, dropped)
            };
            let run = Run {
                command: &[OsString::from("program")],
                programs: &[],
                status: ExitStatus::from_raw(0),
                buffer_bytes: 16 << 20,
                run_ns: 1,
            };
            report(&[one], &run, Path::new("run"))
        };
        assert!(told(Ended::Finished, &[]).contains("3 events, dropped 0, "));
        let unknown = "3 events, what its end has lost is not known, ";
        assert!(told(Ended::Truncated, &[]).contains(unknown));
        let causes = [("buffer-full", 5)];
        assert!(told(Ended::Killed, &causes).contains("dropped 5 buffer-full, "));
        assert!(told(Ended::Truncated, &causes).contains("dropped 5 buffer-full and more, "));
    }
}
