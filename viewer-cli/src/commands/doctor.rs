//! `trace-cli doctor`: what will work on this machine.

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;

use clap::Args;

use crate::doctor::{Report, Request, examine, measure_hooks};
use crate::output::{self, Finding};
use crate::table::safe;

/// Checks whether this machine can record, and what of a program
///
/// Checks the clock, the settings in the environment, the directory for recordings and its space, limits, memory, the library that
/// `record` preloads, MPI and OpenMP. Where possible, a check does what a recording would do: it starts a recorder in
/// the directory, and a program with the library, and removes everything afterwards. For a program on the command line,
/// it reports whether the library can be preloaded into it, and what will be recorded. The program is not run.
///
/// Each line is `ok`, `note` (worth knowing, or not checked) or `problem` (something will not work), the name of the check, what was
/// found, and what to do. Exit code 1 if there is a problem.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Examples:\n  trace-cli doctor\n  trace-cli doctor ./solver ./other\n  \
                  trace-cli doctor -o /scratch/run -- mpirun -n 4 ./solver\n  trace-cli doctor --cost -o /scratch\n  \
                  trace-cli doctor --json ./solver | jq '.checks[] | select(.status != \"ok\")'"
)]
pub struct DoctorArguments {
    /// Programs to check, each by its path or a name in PATH
    #[arg(value_name = "PROGRAM")]
    programs: Vec<OsString>,

    /// The directory for recordings [default: ANNALS_DIR, or annals-run]
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,

    /// Measure what recording an event costs here, by kind of program; takes some seconds
    #[arg(long)]
    cost: bool,

    /// Measure the hooks of the library that is preloaded into this process, for `record`
    #[arg(long, hide = true)]
    measure_hooks: bool,

    /// Results as JSON
    #[arg(long)]
    json: bool,

    /// A command line as `record` takes it; programs that it names by their paths are checked, too
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// Runs the command.
///
/// # Errors
/// If the output cannot be written.
pub fn run(arguments: &DoctorArguments, out: &mut dyn Write) -> anyhow::Result<Finding> {
    if arguments.measure_hooks {
        writeln!(out, "{}", measure_hooks()?)?;
        return Ok(Finding::FINE);
    }
    let report = examine(&Request {
        output: arguments.output.clone(),
        programs: arguments.programs.clone(),
        command: arguments.command.clone(),
        cost: arguments.cost,
    });
    if arguments.json {
        output::json(out, &report)?;
    } else {
        print(&report, out)?;
    }
    Ok(Finding {
        has_loss: false,
        has_failed: !report.ok,
        ..Finding::FINE
    })
}

fn print(report: &Report, out: &mut dyn Write) -> anyhow::Result<()> {
    let width = report.checks.iter().map(|check| check.check.len()).max();
    let width = width.unwrap_or_default();
    for check in &report.checks {
        let (status, name) = (check.status.name(), check.check);
        write!(out, "{status:<7}  {name:<width$}  {}", safe(&check.says))?;
        if let Some(advice) = &check.advice {
            write!(out, "; {}", safe(advice))?;
        }
        writeln!(out)?;
    }
    writeln!(out, "{}", safe(&report.summary))?;
    Ok(())
}
