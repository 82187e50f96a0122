//! Waits as sentences.

use annals_analysis::{Wait, WaitCause};

use super::SENTENCE_NAME;
use crate::names::shorten;
use crate::table::safe;
use crate::time;

/// Returns who waited for whom, how long, in what and when: the start of a sentence, without a full stop.
pub fn wait_sentence(wait: &Wait) -> String {
    let Wait {
        rank,
        from_ns,
        wait_ns,
        for_rank,
        ..
    } = wait;
    let name = |text: &String| shorten(&safe(text), SENTENCE_NAME);
    let with_tag = |tag: &Option<i64>| tag.map_or_else(String::new, |tag| format!(" (tag {tag})"));
    let (place, whom) = match &wait.cause {
        WaitCause::LateSender { region, tag } => {
            (name(region), format!("rank {for_rank}{}", with_tag(tag)))
        }
        WaitCause::LateReceiver { region, tag } => (
            name(region),
            format!("rank {for_rank} to receive{}", with_tag(tag)),
        ),
        WaitCause::Collective {
            operation,
            communicator,
        } => (
            format!("{} of {}", name(operation), name(communicator)),
            format!("rank {for_rank}"),
        ),
    };
    format!(
        "Rank {rank} waited {} in {place} for {whom} at {}",
        time::duration(*wait_ns),
        time::instant(*from_ns)
    )
}
