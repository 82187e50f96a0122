//! Waits as sentences.

use annals_analysis::{Wait, WaitCause};

use super::SENTENCE_NAME;
use crate::names::shorten;
use crate::table::safe;
use crate::time;

/// Describes both sides of a wait, its length, call and time: the start of a sentence, without a full stop.
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

/// Returns why the other rank was late, if it waited itself in that time: `, because rank 1 waited for rank 0 and rank 0 for
/// rank 3`. `among` has the waits that are known; without one of the other rank, nothing is returned.
pub fn wait_chain(wait: &Wait, among: &[Wait]) -> String {
    // Half of the first wait, at least.
    let overlaps = |other: &Wait| {
        let from_ns = wait.from_ns.max(other.from_ns);
        let to_ns = (wait.from_ns + wait.wait_ns).min(other.from_ns + other.wait_ns);
        2 * (to_ns - from_ns) >= wait.wait_ns
    };
    let mut seen = vec![wait.rank];
    let mut links = Vec::new();
    let mut late = wait.for_rank;
    while let Some(next) = among
        .iter()
        .find(|other| other.rank == late && !seen.contains(&late) && overlaps(other))
    {
        seen.push(late);
        let verb = if links.is_empty() { "waited " } else { "" };
        links.push(format!("rank {late} {verb}for rank {}", next.for_rank));
        late = next.for_rank;
    }
    match &links[..] {
        [] => String::new(),
        [only] => format!(", because {only}"),
        [first @ .., last] => format!(", because {} and {last}", first.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait(rank: u32, for_rank: u32, from_ns: i64, wait_ns: i64) -> Wait {
        Wait {
            rank,
            location: None,
            from_ns,
            wait_ns,
            for_rank,
            cause: WaitCause::LateSender {
                region: "MPI_Recv".to_owned(),
                tag: Some(7),
            },
        }
    }

    #[test]
    fn who_waits_for_one_who_waits_is_told_why() {
        let waits = [
            wait(2, 1, 10, 100),
            wait(1, 0, 8, 100),
            wait(0, 3, 5, 100),
            wait(3, 0, 500, 90),
        ];
        assert_eq!(
            wait_sentence(&waits[0]),
            "Rank 2 waited 100 ns in MPI_Recv for rank 1 (tag 7) at 10 ns"
        );
        let chain = |wait| wait_chain(wait, &waits);
        assert_eq!(
            chain(&waits[0]),
            ", because rank 1 waited for rank 0 and rank 0 for rank 3"
        );
        assert_eq!(chain(&waits[1]), ", because rank 0 waited for rank 3");
        assert_eq!(chain(&waits[2]), "", "rank 3 did not wait at that time");
        // Ranks that wait for each other, as clocks may have it.
        let circle = [wait(0, 1, 0, 10), wait(1, 0, 0, 10)];
        assert_eq!(
            wait_chain(&circle[0], &circle),
            ", because rank 1 waited for rank 0"
        );
    }
}
