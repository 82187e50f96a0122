//! Text and tables that several commands show.

mod collectives;
mod info;
mod losses;
mod messages;
mod regions;
mod samples;
mod stuck;
mod waits;
mod why;

pub use collectives::{collective_sentence, incomplete_collectives};
pub use info::{FilterInfo, Info, ProcessInfo};
pub use losses::{LossRow, loss_rows, summed};
pub use messages::{message_counts_text, message_sentence, open_receives_text};
pub use regions::{region_sentence, rows_with_outside, start_and_end_sentence, unpaired_text};
pub use samples::{not_sampled_sentence, sample_sentence, sampling_sentences, sampling_way};
pub use stuck::{SystemStates, bad_end_sentence, finding_sentence, position_table};
pub(crate) use stuck::{capital, rank_words};
pub use waits::{wait_chain, wait_sentence};
pub use why::{
    INCOMPLETE_DEFINITIONS, Scaling, cause_sentence, change_sentence, main_causes, other_mpi_row,
    phase_notes, phase_rows, why_sentence, why_text,
};

use std::collections::BTreeSet;
use std::fmt::Write as _;

use annals_analysis::{MpiCoverage, PartOfRun, RecordingCost};

use crate::table::safe;
use crate::time;

/// Columns of a name in a sentence.
pub(crate) const SENTENCE_NAME: usize = 60;

/// Returns what is said of children made by fork that nothing records, if there are any. `are_followed`: forked children are recorded.
pub fn unrecorded_children(count: u64, are_followed: bool) -> Option<String> {
    if count == 0 {
        return None;
    }
    let children = match count {
        1 => "1 child made by fork is not recorded".to_owned(),
        count => format!(
            "{} children made by fork are not recorded",
            time::grouped(count)
        ),
    };
    let they = if count == 1 { "it" } else { "they" };
    Some(match are_followed {
        true => {
            format!(
                "{children}: {they} could not begin to record before {they} ended or called exec"
            )
        }
        false => children + " (ANNALS_FORK=follow records them)",
    })
}

/// Returns what is said first of a trace that does not have all calls of MPI, and which figures are not known. `None` if it has.
pub fn mpi_note(mpi: &MpiCoverage) -> Option<String> {
    /// Names that are listed.
    const MOST: usize = 6;
    let names = |of: &BTreeSet<String>| {
        let mut listed: Vec<String> = of.iter().take(MOST).map(|name| safe(name)).collect();
        let more = of.len().saturating_sub(MOST) as u64;
        listed.extend((more != 0).then(|| counted(more, "other")));
        match listed.split_last() {
            Some((last, [])) => last.clone(),
            Some((last, others)) => format!("{} and {last}", others.join(", ")),
            None => String::new(),
        }
    };
    let unknown = "waits and efficiencies are not known";
    if mpi.has_loss() {
        let names = names(&mpi.unseen);
        return Some(format!(
            "Not all calls of MPI are recorded: those of {names} bypass the recorder; {unknown}."
        ));
    }
    if !mpi.left_out.is_empty() {
        let names = names(&mpi.left_out);
        return Some(format!(
            "The settings of the recording left out {names}: {unknown}."
        ));
    }
    (!mpi.unseen_others.is_empty()).then(|| {
        let names = names(&mpi.unseen_others);
        format!(
            "Calls of {names} are not recorded: they bypass the recorder; no wait depends on them."
        )
    })
}

/// Returns how much of a run its recording took.
pub fn recording_cost_words(cost: RecordingCost) -> String {
    let percent = |share: f64| match share * 100.0 {
        small if small < 0.1 => format!("{small:.2} %"),
        percent => format!("{percent:.1} %"),
    };
    if cost.is_lower_bound {
        let share = percent((cost.share - cost.error).max(0.0));
        return format!(
            "recording took at least {share} of the run, and what its rules left out took more"
        );
    }
    if cost.error >= cost.share {
        let most = percent((cost.share + cost.error).min(1.0));
        return format!("recording took at most {most} of the run");
    }
    let (share, error) = (percent(cost.share), percent(cost.error));
    format!("recording took {share} ± {error} of the run")
}

/// Returns which part of a run is shown.
pub const fn part_words(part: PartOfRun) -> &'static str {
    match part {
        PartOfRun::Whole => "the whole run",
        PartOfRun::WithoutStartAndEnd => "between MPI_Init and MPI_Finalize",
        PartOfRun::Given => "the time window",
    }
}

/// Returns a number with its noun: `1 call`, `1,234 calls`. The plural has an `s`.
pub(crate) fn counted(count: u64, noun: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{} {noun}{plural}", time::grouped(count))
}

/// Returns a number with its noun, without separators: `1 call`, `1234 calls`.
pub(crate) fn numbered<N: std::fmt::Display + PartialEq + From<u8>>(
    count: N,
    noun: &str,
) -> String {
    let plural = if count == N::from(1) { "" } else { "s" };
    format!("{count} {noun}{plural}")
}

/// Returns the verb after a number of things.
pub(crate) fn are<N: PartialEq + From<u8>>(count: N) -> &'static str {
    if count == N::from(1) { "is" } else { "are" }
}

/// Returns a share of the whole, in percent.
pub(crate) fn percent(part: u64, whole: u64) -> String {
    if whole == 0 {
        return "-".to_owned();
    }
    format!("{:.1}", part as f64 * 100.0 / whole as f64)
}

pub(crate) fn opt_duration(ns: Option<i64>) -> String {
    ns.map_or_else(|| "-".to_owned(), time::duration)
}

/// Returns a file name as a word of a shell.
pub(crate) fn shell_word(name: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./+,:@%=".contains(c);
    // At the start of a word, zsh replaces `=name` by a path.
    if name.chars().all(is_plain) && !name.starts_with('=') {
        return name.to_owned();
    }
    if !name.chars().any(char::is_control) {
        return format!("'{}'", name.replace('\'', "'\\''"));
    }
    let mut word = String::from("$'");
    for c in name.chars() {
        match c {
            '\'' | '\\' => word.extend(['\\', c]),
            c if c.is_control() => {
                let mut bytes = [0; 4];
                for byte in c.encode_utf8(&mut bytes).bytes() {
                    let _ = write!(word, "\\x{byte:02x}");
                }
            }
            c => word.push(c),
        }
    }
    word.push('\'');
    word
}
