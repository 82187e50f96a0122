//! How processes ended.

use annals_format::names::property;
use annals_format::{Definitions, Ended, ProcessId};
use serde::Serialize;

/// Signals that a program ends itself with, or that the system sends for what it did.
const FAULTS: [&str; 9] = [
    "SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGABRT", "SIGSYS", "SIGTRAP", "SIGXCPU", "SIGXFSZ",
];

/// Whether a process is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Life {
    /// It runs.
    Running,
    /// It was there until the run ended: where it was then counts.
    UntilEnd,
    /// It has ended before.
    Ended,
    /// It is not known: its live file is not visible, or parts of it cannot be read.
    Unknown,
}

/// How a process ended, as far as it and the system have noted.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Ending {
    /// Whether it is there.
    pub life: Life,
    /// Whether it ended by a fault: a signal for what it did, another code than 0, `MPI_Abort`, or without `MPI_Finalize`.
    pub is_fault: bool,
    /// The system's report: a signal's name, or `exit` and the code.
    pub system: Option<String>,
    /// The code that it passed to `MPI_Abort`.
    pub abort_code: Option<String>,
    /// The function that MPI requires first, of a process that exited without.
    pub missing_finalize: Option<String>,
    /// When it ended, or the last sign of it, trace time, nanoseconds.
    pub at_ns: i64,
}

impl Ending {
    /// That of a process of which nothing is known.
    pub(super) const UNKNOWN: Self = Self {
        life: Life::Unknown,
        is_fault: false,
        system: None,
        abort_code: None,
        missing_finalize: None,
        at_ns: 0,
    };
}

/// Returns whether a process that ended so, as the system reports it, ended badly by itself.
fn is_bad(end: &str) -> bool {
    match end.strip_prefix("exit ") {
        Some(code) => code != "0",
        None => FAULTS.contains(&end),
    }
}

/// How it ended by itself, before it is compared with others.
struct Noted {
    ending: Ending,
    latest_ns: i64,
}

fn noted(definitions: &Definitions, process: ProcessId) -> Noted {
    let text = |key| definitions.property(process, key).map(str::to_owned);
    let end = definitions.process_ends.get(&process);
    let system = text(property::PROCESS_END);
    let (abort_code, missing_finalize) = (
        text(property::MPI_ABORT),
        text(property::MPI_MISSING_FINALIZE),
    );
    let life = match end.map(|end| end.ended) {
        Some(Ended::Running) => Life::Running,
        Some(Ended::Finished) => Life::Ended,
        Some(Ended::Killed | Ended::StorageFailed) => Life::UntilEnd,
        Some(Ended::Truncated) | None => Life::Unknown,
    };
    Noted {
        latest_ns: end.map_or(i64::MAX, |end| {
            end.end_ns.saturating_add_unsigned(end.end_error_ns)
        }),
        ending: Ending {
            life,
            is_fault: abort_code.is_some()
                || missing_finalize.is_some()
                || system.as_deref().is_some_and(is_bad),
            system,
            abort_code,
            missing_finalize,
            at_ns: end.map_or(0, |end| end.end_ns),
        },
    }
}

/// Returns whether a process with a rank did not end well.
pub(super) fn ended_badly(definitions: &Definitions) -> bool {
    let mut ranks = definitions.ranks.keys();
    ranks.any(|process| {
        let ending = noted(definitions, *process).ending;
        ending.is_fault || ending.life != Life::Ended
    })
}

/// What a process did last.
#[derive(Clone, Copy, Debug)]
pub(super) struct Last {
    pub(super) process: ProcessId,
    /// Its last event, trace time, nanoseconds.
    pub(super) event_ns: Option<i64>,
    /// Whether it was in a call of MPI that waits.
    pub(super) is_waiting: bool,
}

/// Returns how processes ended.
pub(super) fn endings(definitions: &Definitions, processes: &[Last]) -> Vec<Ending> {
    let all = processes.iter().map(|of| noted(definitions, of.process));
    let all: Vec<Noted> = all.collect();
    let lives = lives(&all, processes);
    let endings = all.into_iter().zip(lives);
    endings
        .map(|(noted, life)| Ending {
            life,
            ..noted.ending
        })
        .collect()
}

/// Returns which processes were there until the run ended.
///
/// One that was killed, or ended by a fault, counts as ended before the others
/// - if others still run;
/// - if it ended by a fault outside of a call of MPI that waits, or by the first fault of all;
/// - if another one did something after its end;
/// - if of more than two it is the only one with its signal, and was the first.
///
/// Otherwise, the run was ended, and where the process was counts.
fn lives(all: &[Noted], last: &[Last]) -> Vec<Life> {
    let is_running = all.iter().any(|of| of.ending.life == Life::Running);
    let faults = all.iter().filter(|of| of.ending.is_fault);
    let first_fault_ns = faults.map(|of| of.ending.at_ns).min();
    let known = all.iter().filter(|of| of.ending.life != Life::Unknown);
    let first_ns = known.map(|of| of.ending.at_ns).min();
    let of = |number: usize, noted: &Noted| {
        let ending = &noted.ending;
        let is_open = ending.life == Life::UntilEnd;
        if !is_open && (ending.life != Life::Ended || !ending.is_fault) {
            return ending.life;
        }
        let is_cause =
            ending.is_fault && (!last[number].is_waiting || first_fault_ns == Some(ending.at_ns));
        let others = last
            .iter()
            .enumerate()
            .filter(|(other, _)| *other != number);
        let mut others = others.filter_map(|(_, of)| of.event_ns);
        let others_moved = others.any(|event_ns| event_ns > noted.latest_ns);
        let mut same = all
            .iter()
            .filter(|other| other.ending.system == ending.system);
        let is_only = ending.system.is_some() && all.len() > 2 && same.nth(1).is_none();
        let was_first = first_ns == Some(ending.at_ns);
        match is_running || is_cause || others_moved || is_only && was_first {
            true => Life::Ended,
            false => Life::UntilEnd,
        }
    };
    all.iter()
        .enumerate()
        .map(|(number, noted)| of(number, noted))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Life by itself, the system's report, when it ended, its last event, and whether it was waiting.
    type Case = (Life, Option<&'static str>, i64, i64, bool);

    fn lives_of(cases: &[Case]) -> Vec<Life> {
        let all = cases.iter().map(|(life, system, at_ns, ..)| Noted {
            latest_ns: at_ns + 10,
            ending: Ending {
                life: *life,
                is_fault: system.is_some_and(is_bad),
                system: system.map(str::to_owned),
                abort_code: None,
                missing_finalize: None,
                at_ns: *at_ns,
            },
        });
        let all: Vec<Noted> = all.collect();
        let last = cases
            .iter()
            .zip(0..)
            .map(|((.., event_ns, is_waiting), id)| Last {
                process: ProcessId::new(id),
                event_ns: Some(*event_ns),
                is_waiting: *is_waiting,
            });
        lives(&all, &last.collect::<Vec<Last>>())
    }

    #[test]
    fn those_that_ended_first_are_not_taken_for_those_that_were_ended() {
        use Life::{Ended, Running, UntilEnd};
        let killed =
            |how, at_ns, event_ns, is_waiting| (UntilEnd, Some(how), at_ns, event_ns, is_waiting);
        let finished = (Ended, None, 100, 99, false);
        let cases: [(&[Case], &[Life]); 7] = [
            (&[finished, finished], &[Ended, Ended]),
            // A hanging job that is ended.
            (
                &[
                    killed("SIGKILL", 100, 50, true),
                    killed("SIGKILL", 101, 60, true),
                ],
                &[UntilEnd, UntilEnd],
            ),
            // A crash; the launcher ends the others, one of which fails for that.
            (
                &[
                    killed("SIGSEGV", 70, 69, false),
                    killed("SIGTERM", 100, 60, true),
                    killed("exit 1", 90, 60, true),
                ],
                &[Ended, UntilEnd, UntilEnd],
            ),
            // Two crash by themselves.
            (
                &[
                    killed("SIGSEGV", 70, 69, false),
                    killed("SIGSEGV", 80, 60, false),
                ],
                &[Ended, Ended],
            ),
            // The system takes one, and others come to the barrier later.
            (
                &[
                    killed("SIGKILL", 70, 60, false),
                    killed("SIGKILL", 100, 90, true),
                ],
                &[Ended, UntilEnd],
            ),
            // The system takes one while all others wait.
            (
                &[
                    killed("SIGKILL", 70, 60, false),
                    killed("SIGTERM", 100, 50, true),
                    killed("SIGTERM", 100, 50, true),
                ],
                &[Ended, UntilEnd, UntilEnd],
            ),
            (
                &[
                    killed("SIGTERM", 70, 60, false),
                    (Running, None, 100, 50, true),
                ],
                &[Ended, Running],
            ),
        ];
        for (case, expected) in cases {
            assert_eq!(lives_of(case), expected, "{case:?}");
        }
    }
}
