//! Whether `record --sample` works here: it is tried.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

use annals_analysis::{Sampling, sampling};
use annals_merger::{Query, Reader};
use serde_json::json;

use super::{Check, child};
use crate::preload::preload;
use crate::views::sampling_way;

/// What the library says where threads cannot be sampled, before the reason.
const REFUSED: &str = "no samples are taken: ";

/// Samples `true` with the library that `record` preloads, and returns how, or why not. `None` without one that can be preloaded.
pub(crate) fn tried(library: &Path, period: &OsStr) -> Option<Result<Sampling, String>> {
    let list = preload(&[library]).ok()?;
    let directory = std::env::temp_dir().join(format!("annals-doctor-{}", std::process::id()));
    let mut command = Command::new("true");
    command.env("LD_PRELOAD", list).env("ANNALS_SAMPLE", period);
    command
        .env("ANNALS_DIR", &directory)
        .env("ANNALS_FUNCTIONS", "off");
    let answer = child::run(&mut command, |_| {});
    let recorded = Reader::open(&directory);
    let _ = std::fs::remove_dir_all(&directory);
    Some(match answer {
        Err(error) => Err(format!("it could not be tried ({error})")),
        Ok(answer) => match answer.errors.split_once(REFUSED) {
            Some((_, why)) => Err(why.lines().next().unwrap_or_default().to_owned()),
            None => {
                let ways = recorded.map(|reader| sampling(reader.definitions(), &Query::default()));
                let way = ways.ok().and_then(|(mut ways, _)| ways.pop());
                way.filter(|_| answer.is_success())
                    .ok_or_else(|| "`true` was not recorded".to_owned())
            }
        },
    })
}

pub(super) fn check(library: Option<&Path>) -> Option<Check> {
    const ADVICE: &str =
        "ask for kernel.perf_event_paranoid = 2; in a container, for perf_event_open (seccomp)";
    Some(match tried(library?, OsStr::new("1ms"))? {
        Err(why) => {
            let says = format!("`record --sample` has no samples here: {why}");
            let value = json!({ "works": false, "why": why });
            Check::note("sampling", value, says).advice(ADVICE)
        }
        Ok(way) => {
            let by = sampling_way(&way);
            let value = json!({ "works": true, "engine": way.engine, "period_ns": way.period_ns });
            let says = format!("`record --sample` can sample threads here: {by}");
            match is_by_signals(&way) {
                true => Check::note("sampling", value, says).advice(ADVICE),
                false => Check::ok("sampling", value, says),
            }
        }
    })
}

/// Returns whether samples are taken by signals, which may interrupt system calls that wait.
pub(crate) fn is_by_signals(way: &Sampling) -> bool {
    way.engine.starts_with("timers")
}
