//! Summarises a merge for the user: one line for each finding of its report that is not as expected.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use annals_format::Ended;
use annals_merger::{
    ArchiveReport, CausalityReport, InputReport, Report, remove_live_file_in_memory,
};

use crate::process_end::ProcessEnd;
use crate::table::safe;
use crate::time::duration;
use crate::views::{counted, numbered, open_receives_text};

/// The options of a merge that the summary depends on.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// Where it has written to.
    pub output: &'a Path,
    /// Whether that can be looked into with `trace-cli`.
    pub is_readable: bool,
    /// Whether events were left out by what the user said.
    pub is_filtered: bool,
    /// Whether it is one slice of several.
    pub is_slice: bool,
}

/// Removes the live files that recorders have left in memory, of recordings that were merged whole. Returns lines for the user about
/// those that cannot be removed.
pub fn remove_live_files(report: &Report) -> String {
    let ended = report.inputs.iter();
    let ended = ended.filter(|input| input.ended != Ended::Running && input.damage.is_empty());
    let removed = ended.map(|input| remove_live_file_in_memory(&input.path));
    let errors = removed.filter_map(Result::err);
    errors
        .map(|error| format!("live file: {error}\n"))
        .collect()
}

/// Returns how the processes ended that did not merely finish. One whose recording is finished is among them when it
/// ended MPI without MPI_Finalize: the others may have ended for it.
pub fn of_ends(report: &Report) -> String {
    let mut text = String::new();
    for input in &report.inputs {
        let end = ProcessEnd::of(input);
        if input.ended != Ended::Finished || end.is_noted() {
            let path = input.path.display();
            let how = how_ended(input, &end);
            let _ = writeln!(text, "rank {}: {path} {how}", input.rank);
        }
    }
    text
}

/// Describes all other unexpected findings; empty if there are none.
pub fn of_merge(report: &Report, asked: Asked<'_>) -> String {
    let mut text = String::new();
    of_damage(report, &mut text);
    for input in &report.rejected {
        let _ = writeln!(text, "left out: {}: {}", input.path.display(), input.why);
    }
    for path in &report.duplicates {
        let _ = writeln!(text, "given twice, taken once: {}", path.display());
    }
    of_worlds(report, &mut text);
    of_ranks(report, &mut text);
    of_clocks(report, &mut text);
    of_streams(report, &mut text);
    let is_filtered = report.totals.filtered != 0;
    if is_filtered {
        of_filter(report, asked, &mut text);
    }
    if let Some(causality) = &report.causality {
        of_messages(causality, is_filtered, &mut text);
    }
    of_losses(report, asked, &mut text);
    if let Some(archive) = &report.archive {
        of_archive(archive, &mut text);
    }
    text
}

/// Describes what the archive does not have.
fn of_archive(archive: &ArchiveReport, text: &mut String) {
    let left_out: Vec<String> = archive
        .left_out
        .iter()
        .map(|(event_type, count)| format!("{count} {}", safe(event_type)))
        .collect();
    if !left_out.is_empty() {
        let left_out = left_out.join(", ");
        let _ = writeln!(
            text,
            "left out, OTF2 has no record of these events: {left_out}"
        );
    }
    if archive.at_other_locations != 0 {
        let events = numbered(archive.at_other_locations, "event");
        let _ = writeln!(
            text,
            "OTF2 has one location for each rank: {events} of messages and collectives are on other threads"
        );
    }
    if archive.communicators_of_all != 0 {
        let count = numbered(archive.communicators_of_all, "communicator");
        let _ = writeln!(
            text,
            "{count} of some of the ranks: the archive has all ranks in them, the members are unknown"
        );
    }
}

/// Lists the damage of the recordings' files.
fn of_damage(report: &Report, text: &mut String) {
    for input in &report.inputs {
        if input.unplaced != 0 {
            let _ = writeln!(
                text,
                "rank {}: {} left out: the definition of their stream is lost",
                input.rank,
                numbered(input.unplaced, "event")
            );
        }
        for damage in input.damage.iter().take(10) {
            let _ = writeln!(
                text,
                "rank {}: {}: byte {}, {}: {}",
                input.rank,
                input.path.display(),
                damage.offset,
                numbered(damage.length, "byte"),
                damage.what
            );
        }
        if input.damage.len() > 10 {
            let _ = writeln!(
                text,
                "rank {}: … {} more",
                input.rank,
                input.damage.len() - 10
            );
        }
    }
}

fn of_worlds(report: &Report, text: &mut String) {
    for world in report.worlds.iter().take(10) {
        let name = match world.world.as_str() {
            "" => "processes of no world".to_owned(),
            name => format!("world {name}"),
        };
        let command: String = world.command.chars().take(60).collect();
        let _ = writeln!(
            text,
            "run {}, {name}: its ranks start at {}, {}, {command}",
            world.run,
            world.first_rank,
            numbered(world.recordings, "recording")
        );
    }
    if report.worlds.len() > 10 {
        let more = report.worlds.len() - 10;
        let _ = writeln!(text, "{more} more worlds, each with separate ranks");
    }
}

/// Lists ranks with several recordings, those without any, and helpers.
fn of_ranks(report: &Report, text: &mut String) {
    let mut helpers: BTreeMap<(u32, bool, bool, &str), usize> = BTreeMap::new();
    for helper in &report.helpers {
        let (is_launched, has_mpi) = (helper.is_launched, helper.rank_has_mpi);
        let key = (helper.of_rank, is_launched, has_mpi, &*helper.command);
        *helpers.entry(key).or_default() += 1;
    }
    for ((rank, is_launched, has_mpi, command), count) in helpers.iter().take(10) {
        let how = match (is_launched, has_mpi) {
            (true, true) => "started in its place, and is not the one with MPI",
            (true, false) => "started in its place: none has MPI, and the rank lived longest",
            (false, _) => "started by it",
        };
        let command: String = command.chars().take(60).collect();
        let recordings = counted(*count as u64, "recording");
        let _ = writeln!(
            text,
            "rank {rank}: {recordings} of what was {how}: {}",
            safe(&command)
        );
    }
    if helpers.len() > 10 {
        let _ = writeln!(text, "{} more helpers of ranks", helpers.len() - 10);
    }
    for shared in report.shared_ranks.iter().take(10) {
        let count = shared.processes.len();
        let how = if shared.is_of_several_runs() {
            "of several runs: merge the recordings of one"
        } else {
            "of one run, in which it was started again"
        };
        let _ = writeln!(
            text,
            "rank {}: {}, {how}",
            shared.rank,
            numbered(count, "recording")
        );
        for process in &shared.processes {
            let _ = writeln!(
                text,
                "  recording {}: run {}, started {}.{:09} s since 1970, {} pid {}",
                process.recording_id,
                process.run,
                process.start_unix_ns.div_euclid(1_000_000_000),
                process.start_unix_ns.rem_euclid(1_000_000_000),
                process.host,
                process.pid
            );
        }
    }
    if report.shared_ranks.len() > 10 {
        let more = report.shared_ranks.len() - 10;
        let _ = writeln!(text, "{more} more ranks have several recordings");
    }
    if !report.missing_ranks.is_empty() {
        let shown: Vec<String> = report
            .missing_ranks
            .iter()
            .take(20)
            .map(u32::to_string)
            .collect();
        let more = report.missing_ranks.len() - shown.len();
        let more = if more == 0 {
            String::new()
        } else {
            format!(" and {more} more")
        };
        let _ = writeln!(text, "no recording of rank {}{more}", shown.join(", "));
    }
}

fn of_clocks(report: &Report, text: &mut String) {
    let by_wall_clock = report
        .host_clocks
        .iter()
        .filter(|h| h.relation == "wall-clock");
    let by_wall_clock = by_wall_clock.count();
    if by_wall_clock != 0 {
        let _ = writeln!(
            text,
            "{} hosts, {by_wall_clock} of them tied to the others by their wall clocks: times between \
             them are as good as those; measured offsets (--clock-offsets) do better",
            report.hosts
        );
    }
    let by_collectives = report
        .host_clocks
        .iter()
        .filter(|h| h.relation == "collectives");
    let bounds = by_collectives.clone().map(|host| host.bound_max_ns);
    if let Some(largest) = bounds.max_by_key(|bound| bound.unwrap_or(u64::MAX)) {
        let error = match largest.and_then(|largest| i64::try_from(largest).ok()) {
            Some(largest) => format!("to within {} at most", duration(largest)),
            None => "without a bound of the error".to_owned(),
        };
        let _ = writeln!(
            text,
            "{} of {} clocks related to the first by collective operations, {error}",
            by_collectives.count(),
            report.hosts
        );
    }
    for clock in report.clocks.iter().filter(|clock| clock.steps != 0) {
        let farthest = duration(i64::try_from(clock.largest_step_ns).unwrap_or(i64::MAX));
        let _ = writeln!(
            text,
            "rank {}, clock {}: set {} times while it ran, by up to {farthest}; its readings show when",
            clock.rank, clock.name, clock.steps
        );
    }
}

fn of_streams(report: &Report, text: &mut String) {
    for stream in &report.streams {
        let name = match &stream.location {
            Some(location) => format!("rank {}, {}, {location}", stream.rank, stream.source),
            None => format!("rank {}, {}", stream.rank, stream.source),
        };
        if stream.broke_promise {
            let _ = writeln!(
                text,
                "{name}: declared ordered, but late: {}, by up to {}",
                numbered(stream.inversions, "event"),
                numbered(stream.largest_lateness_ticks, "tick")
            );
        }
        if stream.ambiguous != 0 {
            let _ = writeln!(
                text,
                "{name}: where the clock started again or was set leaves {} ambiguous",
                numbered(stream.ambiguous, "event")
            );
        }
        if let Some(error) = &stream.first_error {
            let _ = writeln!(
                text,
                "{name}: {} cannot be read, for one: {error}",
                numbered(stream.skipped.saturating_add(stream.truncated), "event")
            );
        }
        if stream.miscounted != 0 || !stream.is_balanced {
            let _ = writeln!(
                text,
                "{name}: counts do not add up (raised ≠ recorded + dropped + suppressed): the \
                 recorder is broken"
            );
        }
    }
}

fn of_filter(report: &Report, asked: Asked<'_>, text: &mut String) {
    let by = match (asked.is_slice, asked.is_filtered) {
        (true, false) => "in other slices",
        (true, true) => "left out by the filter, or in other slices",
        (false, true) => "left out by the filter",
        (false, false) => "left out by the filters of merged traces",
    };
    let _ = writeln!(text, "{by}: {}", numbered(report.totals.filtered, "event"));
}

/// Describes problems with messages, at most one line for each.
fn of_messages(causality: &CausalityReport, is_filtered: bool, text: &mut String) {
    let violations = &causality.violations;
    if violations.count != 0 {
        let _ = writeln!(
            text,
            "causality: {} of {} messages and collective ends precede what they waited for, by \
             up to {} ns (mean {} ns); {} by more than the clocks' error",
            violations.count,
            causality.constraints,
            violations.largest_ns,
            violations.mean_ns,
            violations.beyond_error
        );
    }
    if let Some(repair) = &causality.repair {
        let corrected = repair
            .hosts
            .iter()
            .filter(|host| host.quality != "inconsistent");
        let corrections = corrected.map(|host| {
            host.offset_start_ns
                .unsigned_abs()
                .max(host.offset_end_ns.unsigned_abs())
        });
        if let Some(largest) = corrections.clone().max() {
            let largest = duration(i64::try_from(largest).unwrap_or(i64::MAX));
            let _ = writeln!(
                text,
                "causality: the clocks of {} corrected by what the messages say, by up to {largest}",
                numbered(corrections.count(), "host")
            );
        }
        let _ = writeln!(
            text,
            "causality: {} repaired, {} left: {} moved by up to {} ns (mean {} ns)",
            numbered(
                repair.before.count.saturating_sub(violations.count),
                "violation"
            ),
            violations.count,
            numbered(repair.events, "event"),
            repair.largest_shift_ns,
            repair.mean_shift_ns
        );
    }
    let messages = &causality.messages;
    let unmatched = messages.unmatched_sends + messages.unmatched_receives;
    if unmatched + messages.without_peer != 0 {
        let _ = writeln!(
            text,
            "causality: not checked: {} and {} without a partner, {} whose peer is no rank of which \
             there is one recording",
            numbered(messages.unmatched_sends, "send"),
            numbered(messages.unmatched_receives, "receive"),
            messages.without_peer
        );
    }
    if messages.open_receives != 0 {
        let _ = writeln!(
            text,
            "causality: not checked: {}",
            open_receives_text(messages.open_receives)
        );
    }
    let lost = causality.messages.unmatchable_by_loss + causality.collectives.unmatchable_by_loss;
    let over_limit = causality.messages.over_limit + causality.collectives.over_limit;
    if lost + over_limit != 0 {
        let why = if is_filtered {
            "whose other half may be lost or left out by the filter"
        } else {
            "behind losses"
        };
        let _ = writeln!(
            text,
            "causality: not checked: {lost} events of messages {why}, {over_limit} over the limit of {} \
             in flight to a sixteenth of the processes",
            causality.limit
        );
    }
}

fn of_losses(report: &Report, asked: Asked<'_>, text: &mut String) {
    let totals = &report.totals;
    if totals.dropped | totals.suppressed | totals.skipped | totals.truncated != 0 {
        let _ = writeln!(
            text,
            "raised {}{}: recorded {}, dropped {}, suppressed {}; skipped {}, truncated {}",
            if totals.raised_is_lower_bound {
                "at least "
            } else {
                ""
            },
            totals.raised,
            totals.recorded,
            totals.dropped,
            totals.suppressed,
            totals.skipped,
            totals.truncated
        );
        let output = asked.output.display();
        let _ = if asked.is_readable {
            writeln!(text, "see `trace-cli dropped {output}`")
        } else {
            writeln!(text, "see `trace-cli dropped` of what was merged")
        };
    }
}

/// Says of a recording without its end what is missing.
pub fn ends_early(input: &InputReport) -> String {
    match &input.missing_live_file {
        Some(file) => {
            format!("ends early: its live file {file} was not found, and what was in it is unknown")
        }
        None => "ends early: it has no footer, and no whole live file was found".to_owned(),
    }
}

/// Describes the end of a process that did not merely finish.
fn how_ended(input: &InputReport, end: &ProcessEnd) -> String {
    let is_archive = input.path.extension().is_some_and(|name| name == "otf2");
    let cause = end.cause();
    let system = end.system_clause();
    let state = match (input.ended, system) {
        // The cause of its end is more important than the fact that its recording is finished.
        (Ended::Finished, None) => cause.is_none().then(|| "finished".to_owned()),
        (Ended::Finished, Some(system)) if cause.is_some() => Some(format!("then {system}")),
        (Ended::Finished, Some(system)) => Some(format!("finished, then {system}")),
        (Ended::Killed, Some(system)) if system.starts_with("exited") => Some(format!(
            "{system} and did not finish its recording; its live file was read"
        )),
        (Ended::Killed, Some(system)) => Some(format!("{system}; its live file was read")),
        (Ended::Killed, None) => Some("was killed; its live file was read".to_owned()),
        (Ended::Running, _) => Some("is still recording; read as it is now".to_owned()),
        (Ended::Truncated, _) if is_archive => Some("ends early".to_owned()),
        (Ended::Truncated, Some(system)) => Some(format!("{system}, {}", ends_early(input))),
        (Ended::Truncated, None) => Some(ends_early(input)),
        (_, system) => {
            let system = system.map_or_else(String::new, |system| format!(", then {system}"));
            Some(format!(
                "finished after its storage had failed{system}; its live file was read"
            ))
        }
    };
    let parts: Vec<String> = cause.into_iter().chain(state).collect();
    parts.join(", ")
}
