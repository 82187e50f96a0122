//! Statistics of regions as a table.

use std::cmp::Reverse;
use std::fmt::Write as _;

use annals_analysis::{
    AWAIT, RegionRow, RegionTimes, ShortCalls, is_short, starts_or_ends_mpi, waits_mark,
};

use super::{SENTENCE_NAME, counted, percent};
use crate::names::shorten;
use crate::table::safe;
use crate::time;

/// Returns the rows of a table: regions in their order, the time outside of them at the position that its length determines. If they are
/// not sorted by exclusive time, it is last.
pub fn rows_with_outside(times: &RegionTimes) -> Vec<RegionRow> {
    let by_time = |row: &RegionRow| Reverse(row.exclusive_ns);
    let is_sorted = times.regions.is_sorted_by_key(by_time);
    let outside = times.outside.iter().filter(|row| row.time_ns > 0);
    let mut rows: Vec<RegionRow> = times.regions.clone();
    rows.extend(outside.map(RegionRow::from));
    if is_sorted {
        rows.sort_by_key(by_time);
    }
    rows
}

/// Returns sentences on calls that were not left or not entered.
pub fn unpaired_text(rows: &[RegionRow]) -> String {
    let mut text = String::new();
    rows.iter().for_each(|row| put_unpaired(row, &mut text));
    text
}

/// Appends sentences on a region's calls without a leave, those that are open at the end, and on its leaves without an enter.
fn put_unpaired(row: &RegionRow, text: &mut String) {
    let name = safe(&row.name);
    if row.unleft_calls != 0 {
        let calls = counted(row.unleft_calls, "call");
        let why = match row.uncertain_calls {
            0 => "the program left them without an event (longjmp?)",
            _ => "events were lost",
        };
        let _ = writeln!(
            text,
            "{name}: {calls} without a leave, taken to end with the region around: {why}"
        );
    }
    if row.open_calls != 0 {
        let calls = counted(row.open_calls, "call");
        let more = match row.inclusive_more_ns {
            0 => String::new(),
            // Of an end of which nothing is known.
            more if more > i64::MAX / 4 => ", or longer, how much is unknown".to_owned(),
            more => format!(", or up to {} longer", time::duration(more)),
        };
        let _ = writeln!(
            text,
            "{name}: {calls} open at the end, taken to last until then{more}"
        );
    }
    if row.unmatched_leaves != 0 {
        let _ = writeln!(
            text,
            "{name}: {} without an enter, counted as no calls",
            counted(row.unmatched_leaves, "leave")
        );
    }
}

/// Returns a sentence about the time in `MPI_Init` and `MPI_Finalize`, after a space. Empty if it is at most a tenth of `run_ns`, the time of
/// all ranks. `whole` is what that is, as `the run`.
pub fn start_and_end_sentence(time_ns: i64, run_ns: i64, whole: &str) -> String {
    if i128::from(time_ns) * 10 <= i128::from(run_ns) {
        return String::new();
    }
    let share = percent(time_ns as u64, run_ns.max(0) as u64);
    format!(" MPI_Init and MPI_Finalize took {share} % of {whole}.")
}

/// Returns a sentence, before a line end, that most calls are of regions that are shorter than what recording a call costs.
fn short_calls_sentence(short: &ShortCalls) -> String {
    format!(
        "{:.1} % of the calls are of functions that are shorter than what recording a call costs, {}: most of their time, and of their \
         callers', is the recorder's. `trace-cli suggest-filter` prints compiler flags that leave them out.\n",
        short.share * 100.0,
        time::duration(short.cost_ns as i64)
    )
}

/// Returns what a region's own time is without its recording: at least, and what is likely.
const fn without_recording(row: &RegionRow) -> (i64, i64) {
    (
        row.exclusive_ns - row.recording_ns,
        row.exclusive_ns - row.recording_ns / 2,
    )
}

/// Returns a sentence about the region with most of the time, other than `MPI_Init` and `MPI_Finalize`, and more if most time was
/// elsewhere. `whole` is what shares are of, as `the run`. If most calls are shorter than what recording a call cost, that is first, and
/// a region is named only where it has most time whatever part of that is the recorder's.
pub fn region_sentence(times: &RegionTimes, whole: &str) -> String {
    let warning = times.short_calls.as_ref().map(short_calls_sentence);
    warning.unwrap_or_default() + &longest_sentence(times, whole)
}

/// Returns the sentence where no region has most of the time for certain, because of what recording took. Short functions do not count:
/// the sentence before is about them.
fn undecided_sentence(
    regions: &[&RegionRow],
    short: &ShortCalls,
    whole: &str,
    run_ns: i64,
) -> Option<String> {
    let is_short = |row: &RegionRow| is_short(&row.name, row.p50_ns.or(row.mean_ns), short.cost_ns);
    let at_least_ns = |row: &&RegionRow| without_recording(row).0;
    let likely_ns = |row: &&RegionRow| without_recording(row).1;
    let longer = regions.iter().copied().filter(|row| !is_short(row));
    let first = longer.clone().max_by_key(at_least_ns);
    let others = longer.filter(|row| first.is_none_or(|first| !std::ptr::eq(*row, first)));
    let rival = others.max_by_key(likely_ns);
    let name = |row: &RegionRow| shorten(&safe(&row.name), SENTENCE_NAME);
    let candidates = match (first, rival) {
        (None, _) => "all of it may be the recorder's".to_owned(),
        (Some(first), Some(rival)) if at_least_ns(&first) < likely_ns(&rival) => {
            let is_first = likely_ns(&first) >= likely_ns(&rival);
            let (one, other) = if is_first {
                (first, rival)
            } else {
                (rival, first)
            };
            format!("{} or {} may have", name(one), name(other))
        }
        _ => return None,
    };
    let recording_ns: i64 = regions.iter().map(|row| row.recording_ns).sum();
    let share = percent((recording_ns / 2) as u64, run_ns.max(0) as u64);
    Some(format!(
        "Which function took most time itself is not known: recording took about {share} % of {whole}, and {candidates}."
    ))
}

/// Returns the sentence about the region with most of the time, apart from what recording took.
fn longest_sentence(times: &RegionTimes, whole: &str) -> String {
    let share = |ns: i64| percent(ns as u64, times.run_ns.max(0) as u64);
    let outside_ns: i64 = times.outside.iter().map(|row| row.time_ns).sum();
    let about = if times.outside.iter().any(|row| row.is_uncertain) {
        "About "
    } else {
        ""
    };
    let (start_and_end, others): (Vec<&RegionRow>, Vec<&RegionRow>) = times
        .regions
        .iter()
        .partition(|row| starts_or_ends_mpi(&row.name));
    let start_and_end = start_and_end.iter().map(|row| row.exclusive_ns).sum();
    let start_and_end = start_and_end_sentence(start_and_end, times.run_ns, whole);
    let short = times.short_calls.as_ref();
    let undecided = short.and_then(|short| undecided_sentence(&others, short, whole, times.run_ns));
    if let Some(sentence) = undecided {
        return sentence + &start_and_end;
    }
    // Work is named before what may only have waited for it.
    let longer = others.into_iter().filter(|row| {
        let typical_ns = row.p50_ns.or(row.mean_ns);
        short.is_none_or(|short| !is_short(&row.name, typical_ns, short.cost_ns))
    });
    let longest = longer.max_by_key(|row| {
        let (at_least_ns, _) = without_recording(row);
        (
            !row.may_wait() && row.exclusive_ns > 0,
            at_least_ns,
            row.exclusive_ns,
        )
    });
    let Some(row) = longest.filter(|row| row.exclusive_ns > 0) else {
        return match times.run_ns {
            0 => "No region was entered.".to_owned(),
            _ => format!(
                "No time was spent in{} regions; {whole} lasted {}.{start_and_end}",
                if start_and_end.is_empty() {
                    ""
                } else {
                    " other"
                },
                time::duration(times.run_ns)
            ),
        };
    };
    let least = if row.time_is_uncertain { "about " } else { "" };
    let of_rank = row
        .rank
        .map_or_else(String::new, |rank| format!(" of rank {rank}"));
    let calls = match row.calls {
        // Of a window: it was entered before.
        0 => String::new(),
        calls if calls == row.open_calls => {
            format!(", in {} open at the end", counted(calls, "call"))
        }
        calls => format!(", in {}", counted(calls, "call")),
    };
    let recording = match row.recording_ns {
        0 => String::new(),
        ns => format!(", of which recording took up to {}", time::duration(ns)),
    };
    let mut text = format!(
        "{}{of_rank} took most time itself: {least}{}, {} % of {whole}{calls}{recording}.",
        shorten(&safe(&row.name), SENTENCE_NAME) + waits_mark(&row.name, row.may_wait()),
        time::duration(row.exclusive_ns),
        share(row.exclusive_ns),
    );
    text.push_str(&start_and_end);
    let waiting = times
        .regions
        .iter()
        .filter(|other| other.may_wait() && other.name != AWAIT);
    if let Some(waiting) = waiting.max_by_key(|other| other.exclusive_ns)
        && waiting.exclusive_ns > row.exclusive_ns
    {
        let name = shorten(&safe(&waiting.name), SENTENCE_NAME) + waits_mark(&waiting.name, true);
        let part = share(waiting.exclusive_ns);
        let _ = write!(
            text,
            " {name}: {part} % of {whole}, while other threads were at work."
        );
    }
    if outside_ns > row.exclusive_ns {
        let outside = share(outside_ns);
        let _ = write!(
            text,
            " {about}{outside} % of {whole} is outside of all regions."
        );
    }
    text
}
