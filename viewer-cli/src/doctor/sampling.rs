//! Whether `record --sample` works here: it is tried.

use std::path::Path;
use std::process::Command;

use serde_json::json;

use super::{Check, child};
use crate::preload::preload;

/// What the library says where threads cannot be sampled, before the reason.
const REFUSED: &str = "no samples are taken: ";

/// Samples `true` with the library that `record` preloads. `None` without one that can be preloaded.
pub(super) fn sampling(library: Option<&Path>) -> Option<Check> {
    let list = preload(library?).ok()?;
    let directory = std::env::temp_dir().join(format!("annals-doctor-{}", std::process::id()));
    let mut command = Command::new("true");
    command.env("LD_PRELOAD", list).env("ANNALS_SAMPLE", "1ms");
    command
        .env("ANNALS_DIR", &directory)
        .env("ANNALS_FUNCTIONS", "off");
    let answer = child::run(&mut command, |_| {});
    let has_recorded = directory.exists();
    let _ = std::fs::remove_dir_all(&directory);
    let refusal = |why: &str| {
        let says = format!("`record --sample` has no samples here: {why}");
        Check::note("sampling", json!({ "works": false, "why": why }), says)
    };
    Some(match answer {
        Err(error) => refusal(&format!("it could not be tried ({error})")),
        Ok(answer) => match answer.errors.split_once(REFUSED) {
            Some((_, why)) => refusal(why.lines().next().unwrap_or_default())
                .advice("ask for kernel.perf_event_paranoid = 2; in a container, for perf_event_open (seccomp)"),
            None if !answer.is_success() || !has_recorded => refusal("`true` was not recorded"),
            None => Check::ok(
                "sampling",
                json!({ "works": true, "engine": "perf-event" }),
                "`record --sample` can sample threads here, by perf_event_open",
            ),
        },
    })
}
