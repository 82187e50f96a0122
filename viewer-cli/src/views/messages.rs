//! Messages by pair of ranks as a sentence and as a table.

use annals_analysis::Messages;
use annals_merger::MessageCounts;

use super::{counted, wait_chain, wait_sentence};
use crate::time;

/// Returns one sentence about the longest waits.
pub fn message_sentence(messages: &Messages) -> String {
    let pairs = || messages.pairs.iter();
    let late = pairs().flat_map(|row| [row.late_senders, row.late_receivers]);
    let late: u64 = late.flatten().sum();
    let wait_ns = pairs().flat_map(|row| [row.late_sender_wait_ns, row.late_receiver_wait_ns]);
    let wait_ns: i64 = wait_ns.flatten().sum();
    let count: u64 = pairs().map(|row| row.count).sum();
    let bytes = pairs().fold(0_u64, |sum, row| sum.saturating_add(row.bytes));
    let mark = if pairs().any(|row| row.is_uncertain) {
        "at least "
    } else {
        ""
    };
    let all = format!(
        "{mark}{} of {}",
        counted(count, "message"),
        time::bytes(bytes)
    );
    let counts = &messages.counts;
    let longest_waits = messages.longest_waits.as_deref();
    match longest_waits.unwrap_or_default().first() {
        _ if count == 0 && counts.matched != 0 => format!(
            "None of the chosen messages; {} in the whole trace.",
            counted(counts.matched, "message")
        ),
        _ if count == 0 && (counts.sends != 0 || counts.receives != 0) => format!(
            "No message has both sides: {}, {}.",
            counted(counts.sends, "send"),
            counted(counts.receives, "receive")
        ),
        _ if count == 0 => "No message was received.".to_owned(),
        None if longest_waits.is_none() => format!("Waits are not known; {all}."),
        None if messages.received_in_calls == 0 => {
            format!("Waits are not known, since no region is around the receives; {all}.")
        }
        None => format!("No rank waited for a message; {all}."),
        Some(longest) if late == 1 => {
            format!("{}; it is the only wait in {all}.", wait_sentence(longest))
        }
        Some(longest) => format!(
            "{}{}. {} took {} together, in {all}.",
            wait_sentence(longest),
            wait_chain(longest, longest_waits.unwrap_or_default()),
            counted(late, "wait"),
            time::duration(wait_ns)
        ),
    }
}

/// Returns how many receives have no known message, because their completion is not recorded.
pub fn open_receives_text(count: u64) -> String {
    let (receives, were, they) = if count == 1 {
        ("receive", "was", "it")
    } else {
        ("receives", "were", "they")
    };
    format!(
        "{} {receives} {were} freed or did not complete: which messages {they} took is not known",
        time::grouped(count)
    )
}

/// Returns how many sends and receives were matched, and how many were not, and why.
pub fn message_counts_text(counts: &MessageCounts) -> String {
    let mut notes = vec![
        counted(counts.sends, "send"),
        counted(counts.receives, "receive"),
        format!("{} matched", time::grouped(counts.matched)),
    ];
    let mut note = |count: u64, text: String| notes.extend((count != 0).then_some(text));
    let (sends, receives) = (counts.unmatched_sends, counts.unmatched_receives);
    note(
        sends,
        format!("{} without a receive", counted(sends, "send")),
    );
    note(
        receives,
        format!("{} without a send", counted(receives, "receive")),
    );
    let lost = counts.unmatchable_by_loss;
    note(lost, format!("{} unmatchable by loss", time::grouped(lost)));
    let over = counts.over_limit;
    note(
        over,
        format!(
            "{} given up because too many were in flight",
            time::grouped(over)
        ),
    );
    let unknown = counts.without_peer;
    note(
        unknown,
        format!("{} without a known peer", time::grouped(unknown)),
    );
    let open = counts.open_receives;
    note(open, open_receives_text(open));
    notes.join(", ")
}
