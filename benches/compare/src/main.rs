//! Compares the cost of an event in Annals with its floor and with rivals, in one interleaved run.
//!
//! Every round runs the same seeded program once with each contestant, in an order that turns from
//! round to round; the program's own time, measured in the same rounds with calls that record
//! nothing, is subtracted. A rival that cannot be measured is named with the reason.
//!
//! `benches/compare/run.sh` installs what the rivals need and runs it. Exit codes: 0 fine, 1 failed,
//! 2 wrong usage, 3 finished, but something was not measured or does not add up.

mod annals;
mod bench;
mod contestant;
#[cfg(feature = "fastrace")]
mod fastrace;
mod floor;
mod histogram;
#[cfg(lttng)]
mod lttng;
mod measure;
mod nothing;
#[cfg(otf2)]
mod otf2;
mod processor;
mod random;
mod report;
mod roster;
mod series;
mod supervisor;
mod table;
#[cfg(feature = "tracing")]
mod tracing;
#[cfg(feature = "tracy")]
mod tracy;
mod whole;
mod workload;

use std::process::ExitCode;

use clap::Parser;

use crate::workload::Workload;

/// Compares the cost of an event in Annals with its floor and with rivals.
#[derive(Clone, Debug, Parser)]
pub(crate) struct Arguments {
    /// Rounds; each measures every contestant once.
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rounds: u32,
    /// Calls of a workload in one measurement.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..=200_000))]
    pub(crate) calls: u64,
    /// Only contestants whose name starts with this; the program alone and the floor stay. Repeatable.
    #[arg(long, value_name = "NAME")]
    pub(crate) only: Vec<String>,
    /// Only these workloads of the event path, and neither threads nor whole costs. Repeatable.
    #[arg(long, value_name = "NAME")]
    pub(crate) workload: Vec<Workload>,
    /// Only the whole costs.
    #[arg(long, conflicts_with_all = ["only", "workload", "long"])]
    pub(crate) whole: bool,
    /// Also time single events of each contestant, for the given number of seconds each.
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    pub(crate) long: u64,
    /// Print one JSON object per line instead of tables.
    #[arg(long)]
    pub(crate) json: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let outcome = match supervisor::scratch() {
        None => supervisor::supervise().map_err(|error| format!("the bench cannot run: {error}")),
        Some(scratch) => bench::run(&arguments, &scratch).map(|report| {
            if arguments.json {
                report.print_json();
            } else {
                table::print(&report);
            }
            ExitCode::from(if report.is_whole() { 0 } else { 3 })
        }),
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("compare: {error}");
        ExitCode::FAILURE
    })
}
