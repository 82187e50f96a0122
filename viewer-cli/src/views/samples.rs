//! Samples in sentences.

use std::collections::BTreeSet;

use annals_analysis::{NotSampled, SampleRow, SampleSummary, Sampling};

use super::{SENTENCE_NAME, are, capital, counted, percent, rank_words};
use crate::names::shorten;
use crate::table::safe;
use crate::time;

/// Errors of a difference within which two times count as equal. One in twenty differences is larger by chance.
const MOST_ERRORS: f64 = 2.0;

/// Returns a time with its statistical error.
fn with_error(row: &SampleRow) -> String {
    let about = if row.is_uncertain { "about " } else { "" };
    let (time, error) = (row.own.time_ns, row.own.error_ns());
    format!(
        "{about}{} ± {}",
        time::duration(time),
        time::duration(error)
    )
}

/// Returns what a row is of.
fn name(row: &SampleRow) -> String {
    let name = row.names.function.as_deref().or(row.only_module());
    let name = shorten(&safe(name.unwrap_or_default()), SENTENCE_NAME);
    let name = match row.code() {
        Some(code) => format!("{} in {name}", safe(&code)),
        None => name,
    };
    match (row.rank, &row.location) {
        (Some(rank), Some(location)) => format!("{name} of rank {rank}, {},", safe(location)),
        (Some(rank), None) => format!("{name} of rank {rank}"),
        _ => name,
    }
}

/// Returns whether the times of two rows differ by less than chance may make them differ.
fn may_be_equal(one: &SampleRow, other: &SampleRow) -> bool {
    let difference = (one.own.time_ns - other.own.time_ns).unsigned_abs() as f64;
    let errors = [one.own.error_ns() as f64, other.own.error_ns() as f64];
    difference < MOST_ERRORS * errors[0].hypot(errors[1])
}

/// Returns a sentence about the row with most time itself. `rows` are sorted by it; `whole` is what they are of, as `the run`.
pub fn sample_sentence(rows: &[SampleRow], summary: &SampleSummary, whole: &str) -> String {
    if summary.samples == 0 {
        return format!("No sample was taken in {whole}.");
    }
    let share = |row: &SampleRow| percent(row.own.time_ns as u64, summary.time_ns as u64);
    let mut most = rows.iter().filter(|row| row.own.time_ns > 0);
    let Some(first) = most.next() else {
        return format!("The samples in {whole} represent no processor time.");
    };
    match most.next() {
        Some(second) if may_be_equal(first, second) => format!(
            "{} or {} took most processor time itself: {}, {} %, and {}, {} % of what was sampled in {whole}; the difference is \
             within the statistical error.",
            name(first),
            name(second),
            with_error(first),
            share(first),
            with_error(second),
            share(second),
        ),
        _ => format!(
            "{} took most processor time itself: {}, {} % of what was sampled in {whole}.",
            name(first),
            with_error(first),
            share(first),
        ),
    }
}

/// Returns how threads are sampled, in words.
pub fn sampling_way(sampling: &Sampling) -> String {
    let period = sampling.period_ns.map(|ns| {
        format!(
            "one each {} of processor time",
            time::duration(ns.min(i64::MAX as u64) as i64)
        )
    });
    let engine = format!("by {}", safe(&sampling.engine));
    let words: Vec<String> = period.into_iter().chain([engine]).collect();
    words.join(", ")
}

/// Returns in a sentence why ranks were not sampled.
pub fn not_sampled_sentence(of: &NotSampled) -> String {
    let ranks: Vec<u32> = of.ranks.iter().copied().collect();
    let reason = safe(of.reason.trim_end_matches('.'));
    format!(
        "{} {} not sampled, or not all threads: {reason}.",
        capital(&rank_words(&ranks)),
        are(ranks.len() as u64)
    )
}

/// Returns a sentence about what a sample represents, where that is not what is said of the period.
fn mean_sentence(summary: &SampleSummary) -> Option<String> {
    let [way] = &summary.sampling[..] else {
        return None;
    };
    let mean_ns = summary.time_ns as f64 / summary.samples.max(1) as f64;
    let is_near = (mean_ns / way.period_ns? as f64 - 1.0).abs() < 0.1;
    (summary.samples >= 10 && !is_near).then(|| {
        let mean = time::duration(mean_ns.round() as i64);
        format!("On average, a sample represents {mean}.")
    })
}

/// Returns sentences about how many samples there are, how they were taken, and what is missing.
pub fn sampling_sentences(summary: &SampleSummary) -> String {
    let ways = &summary.sampling;
    // Ranks are named only where they differ.
    let distinct: BTreeSet<_> = ways.iter().map(|way| &way.ranks).collect();
    let names_ranks = ways.len() > 1 && distinct.len() > 1;
    let words = |way: &Sampling| {
        let ranks: Vec<u32> = way.ranks.iter().copied().collect();
        let on = names_ranks.then(|| format!(" on {}", rank_words(&ranks)));
        sampling_way(way) + &on.unwrap_or_default()
    };
    let ways: Vec<String> = ways.iter().map(words).collect();
    let all = [vec![counted(summary.samples, "sample")], ways].concat();
    let mut sentences = vec![all.join(", ") + "."];
    sentences.extend(mean_sentence(summary));
    if summary.lost != 0 || summary.lost_is_lower_bound {
        let least = if summary.lost_is_lower_bound {
            "At least "
        } else {
            ""
        };
        let lost = counted(summary.lost, "sample");
        sentences.push(format!("{least}{lost} {} lost.", are(summary.lost)));
    }
    match summary.cut {
        0 => {}
        1 => sentences.push("The outermost callers of 1 sample are not known.".to_owned()),
        cut => sentences.push(format!(
            "The outermost callers of {} samples are not known.",
            time::grouped(cut)
        )),
    }
    sentences.extend(summary.not_sampled.iter().map(not_sampled_sentence));
    sentences.join(" ")
}
