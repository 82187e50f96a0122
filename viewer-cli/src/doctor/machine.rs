//! Clocks, and limits of the process.

use std::hint::black_box;
use std::time::Instant;

use annals_recorder::{ClockChoice, tsc, tsc_is_invariant};
use rustix::process::{Resource, getrlimit};
use serde_json::{Value, json};

use super::{Check, Scope};
use crate::time;

/// Properties of the clocks.
#[derive(Clone, Debug)]
struct Clocks {
    /// The processor's counter, where the recorder can read one.
    counter: Option<&'static str>,
    /// Whether that counter runs at one rate.
    is_invariant: bool,
    /// How long one reading of it takes, nanoseconds.
    counter_ns: f64,
    /// How long one reading of `CLOCK_MONOTONIC` takes, nanoseconds.
    monotonic_ns: f64,
    /// The clock sources that the kernel considers usable. Empty means that they are not known.
    kernel_sources: Vec<String>,
}

impl Clocks {
    fn read() -> Self {
        let sources = "/sys/devices/system/clocksource/clocksource0/available_clocksource";
        let sources = std::fs::read_to_string(sources).unwrap_or_default();
        Self {
            counter: match std::env::consts::ARCH {
                "x86_64" => Some("the time-stamp counter (TSC)"),
                "aarch64" => Some("the virtual counter (CNTVCT)"),
                _ => None,
            },
            is_invariant: tsc_is_invariant(),
            counter_ns: cost_ns(tsc),
            monotonic_ns: cost_ns(Instant::now),
            kernel_sources: sources.split_whitespace().map(str::to_owned).collect(),
        }
    }

    /// Returns whether the kernel has found the counter unreliable, whatever the processor says of
    /// it.
    fn is_refused_by_kernel(&self) -> bool {
        let is_x86 = std::env::consts::ARCH == "x86_64";
        let sources = &self.kernel_sources;
        is_x86 && !sources.is_empty() && !sources.iter().any(|source| source == "tsc")
    }
}

/// Returns how long one reading of a clock takes, nanoseconds: in the fastest of several rounds.
fn cost_ns<T>(read: impl Fn() -> T) -> f64 {
    const READINGS: u32 = 1000;
    let round = || {
        let begun = Instant::now();
        for _ in 0..READINGS {
            black_box(read());
        }
        begun.elapsed().as_nanos() as f64 / f64::from(READINGS)
    };
    (0..5).map(|_| round()).fold(f64::INFINITY, f64::min)
}

/// Checks the clock that stamps events.
pub(super) fn clock(choice: ClockChoice) -> Check {
    clock_check(choice, &Clocks::read())
}

fn clock_check(choice: ClockChoice, clocks: &Clocks) -> Check {
    let uses_counter = match choice {
        ClockChoice::Tsc => true,
        ClockChoice::Auto => clocks.is_invariant,
        ClockChoice::Monotonic => false,
    };
    let uses_counter = uses_counter && clocks.counter.is_some();
    let counter = clocks.counter.unwrap_or("CLOCK_MONOTONIC");
    let found = json!({
        "source": if uses_counter { "counter" } else { "monotonic" },
        "is_invariant": clocks.is_invariant,
        "counter_ns": tenths(clocks.counter_ns),
        "monotonic_ns": tenths(clocks.monotonic_ns),
        "kernel_sources": clocks.kernel_sources,
    });
    let (counter_ns, monotonic_ns) = (clocks.counter_ns, clocks.monotonic_ns);
    if uses_counter && !clocks.is_invariant {
        return Check::problem(
            "clock",
            found,
            format!(
                "ANNALS_CLOCK asks for {counter}, which does not run at one rate on this processor: times would be wrong"
            ),
        )
        .advice("unset ANNALS_CLOCK, or set it to monotonic")
        .preventing(Scope::Recorder);
    }
    if uses_counter && clocks.is_refused_by_kernel() {
        return Check::note(
            "clock",
            found,
            format!(
                "events are stamped by {counter}, which this processor calls invariant, but which the kernel does not use: \
                 times may be wrong between processors"
            ),
        )
        .advice("set ANNALS_CLOCK=monotonic if times look wrong");
    }
    if uses_counter {
        return Check::ok(
            "clock",
            found,
            format!(
                "events are stamped by {counter}, which runs at one rate; one reading takes {counter_ns:.0} ns \
                 (CLOCK_MONOTONIC: {monotonic_ns:.0} ns)"
            ),
        );
    }
    let says =
        format!("events are stamped by CLOCK_MONOTONIC; one reading takes {monotonic_ns:.0} ns");
    match clocks.counter {
        _ if choice == ClockChoice::Monotonic => Check::ok(
            "clock",
            found,
            format!("{says}, as ANNALS_CLOCK asks for it"),
        ),
        Some(counter) => Check::note(
            "clock",
            found,
            format!(
                "{says}, because {counter} of this processor does not run at one rate: each event costs this more"
            ),
        ),
        None => Check::note(
            "clock",
            found,
            format!(
                "{says}, because the recorder reads no counter of this processor: each event costs this more"
            ),
        ),
    }
}

fn tenths(ns: f64) -> Value {
    json!((ns * 10.0).round() / 10.0)
}

/// Checks the limits of this process, which programs inherit.
pub(super) fn limits(buffer_bytes: u64) -> Vec<Check> {
    let soft = |resource| getrlimit(resource).current;
    limits_check(
        soft(Resource::Nofile),
        soft(Resource::Fsize),
        soft(Resource::As),
        buffer_bytes,
    )
}

/// `None` means no limit.
fn limits_check(
    files: Option<u64>,
    file_bytes: Option<u64>,
    address_bytes: Option<u64>,
    buffer_bytes: u64,
) -> Vec<Check> {
    /// Handles of processes that `record` holds, and some files.
    const FILES: u64 = 512 + 64;
    let found =
        json!({ "open_files": files, "file_bytes": file_bytes, "address_bytes": address_bytes });
    let mut checks = Vec::new();
    if let Some(limit) = file_bytes {
        let size = time::bytes(limit);
        let check = if limit < buffer_bytes {
            let buffer = time::bytes(buffer_bytes);
            Check::problem(
                "limits",
                found.clone(),
                format!(
                    "files may have {size} at most (ulimit -f), less than the live file of {buffer}: events of a killed process would be \
                     lost, and recordings end at this size"
                ),
            )
            .advice("raise the limit: ulimit -f unlimited")
            .preventing(Scope::Recorder)
        } else {
            Check::note(
                "limits",
                found.clone(),
                format!(
                    "files may have {size} at most (ulimit -f): later events of a recording are dropped and counted"
                ),
            )
            .advice("raise the limit (ulimit -f unlimited), or record less (--filter)")
        };
        checks.push(check);
    }
    if let Some(limit) = address_bytes {
        let check = format!(
            "a process may have {} of addresses (ulimit -v), of which each recorder takes {} for its buffer, and some \
             more for its thread",
            time::bytes(limit),
            time::bytes(buffer_bytes)
        );
        checks.push(
            Check::note("limits", found.clone(), check)
                .advice("raise the limit (ulimit -v unlimited) if programs run out of memory"),
        );
    }
    if let Some(limit) = files.filter(|limit| *limit < FILES) {
        checks.push(
            Check::note(
                "limits",
                found.clone(),
                format!(
                    "a process may have {limit} files open (ulimit -n): `trace-cli record` learns how ranks ended from one \
                     handle each, up to 512"
                ),
            )
            .advice("raise the limit: ulimit -n 1024"),
        );
    }
    if checks.is_empty() {
        let files = files.map_or_else(|| "any number of".to_owned(), time::grouped);
        checks.push(Check::ok(
            "limits",
            found,
            format!("sizes of files and addresses of processes are not limited, and a process may have {files} files open"),
        ));
    }
    checks
}

#[cfg(test)]
mod tests {
    use super::super::Status;
    use super::*;

    fn clocks(counter: Option<&'static str>, is_invariant: bool) -> Clocks {
        Clocks {
            counter,
            is_invariant,
            counter_ns: 9.0,
            monotonic_ns: 20.0,
            kernel_sources: vec!["tsc".to_owned()],
        }
    }

    #[test]
    fn the_clock_is_named_and_an_impossible_choice_is_a_problem() {
        let (with, without) = (
            clocks(Some("the counter"), true),
            clocks(Some("the counter"), false),
        );
        let status = |choice, clocks: &Clocks| clock_check(choice, clocks).status;
        assert_eq!(status(ClockChoice::Auto, &with), Status::Ok);
        assert_eq!(status(ClockChoice::Monotonic, &with), Status::Ok);
        assert_eq!(status(ClockChoice::Auto, &without), Status::Note);
        assert_eq!(status(ClockChoice::Tsc, &without), Status::Problem);
        assert_eq!(
            status(ClockChoice::Auto, &clocks(None, false)),
            Status::Note
        );
    }

    #[test]
    fn limits_are_compared_with_the_buffer() {
        let of = |files, file_bytes, addresses| {
            let checks = limits_check(files, file_bytes, addresses, 16 << 20);
            checks.iter().map(|check| check.status).collect::<Vec<_>>()
        };
        assert_eq!(of(None, None, None), [Status::Ok]);
        assert_eq!(of(Some(1024), None, None), [Status::Ok]);
        assert_eq!(
            of(Some(64), Some(1024), None),
            [Status::Problem, Status::Note]
        );
        assert_eq!(
            of(None, Some(1 << 30), Some(1 << 30)),
            [Status::Note, Status::Note]
        );
    }
}
