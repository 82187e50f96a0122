//! Messages by pair of ranks as a sentence and as a table.

use annals_analysis::{MessagePairRow, Messages};
use annals_merger::MessageCounts;

use super::{counted, opt_duration, wait_chain, wait_sentence};
use crate::table::{Align, Table};
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

/// Returns the table of messages by pair of ranks. Waits have columns if there are any.
pub fn message_table(pairs: &[MessagePairRow]) -> Table {
    let any = |is: fn(&MessagePairRow) -> bool| pairs.iter().any(is);
    let has_late_senders = any(|row| row.late_senders.is_some_and(|count| count != 0));
    let has_late_receivers = any(|row| row.late_receivers.is_some_and(|count| count != 0));
    let late = |is: bool, head| {
        [(head, Align::Right), ("wait", Align::Right)]
            .into_iter()
            .filter(move |_| is)
    };
    let mut columns = vec![
        ("from", Align::Right),
        ("to", Align::Right),
        ("count", Align::Right),
        ("bytes", Align::Right),
        ("latency min", Align::Optional),
        ("mean", Align::Right),
        ("p95", Align::Optional),
        ("max", Align::Right),
    ];
    columns.extend(late(has_late_senders, "late senders"));
    columns.extend(late(has_late_receivers, "late receivers"));
    let mut table = Table::new(&columns);
    for row in pairs {
        let mark = if row.is_uncertain { "~" } else { "" };
        let mut cells = vec![
            row.from_rank.to_string(),
            row.to_rank.to_string(),
            format!("{mark}{}", time::grouped(row.count)),
            format!("{mark}{}", time::bytes(row.bytes)),
            opt_duration(row.min_latency_ns),
            opt_duration(row.mean_latency_ns),
            opt_duration(row.p95_latency_ns),
            opt_duration(row.max_latency_ns),
        ];
        if has_late_senders {
            cells.push(time::grouped(row.late_senders.unwrap_or(0)));
            cells.push(opt_duration(row.late_sender_wait_ns));
        }
        if has_late_receivers {
            cells.push(time::grouped(row.late_receivers.unwrap_or(0)));
            cells.push(opt_duration(row.late_receiver_wait_ns));
        }
        table.row(cells);
    }
    table
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
