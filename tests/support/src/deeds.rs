//! Recordings of threads that enter and leave regions at random, with some events lost.
use std::path::Path;

use annals_format::{CompressionLevel, SourceOrder};
use proptest::prelude::*;

use crate::{ENTER, LEAVE, MARK, REFERENCE, Row, TestRecording, TestStream};

/// When every recording starts, reference nanoseconds.
pub const START_NS: i64 = 5_000_000_000;

/// What a thread does, drawn at random.
#[derive(Clone, Copy, Debug)]
pub enum Deed {
    /// A region is entered.
    Enter(u64),
    /// A region is left.
    Leave(u64),
    /// A mark.
    Mark,
    /// Events of a type are lost; `None` means any type.
    Lose(Option<annals_format::EventTypeId>),
}

/// Draws what a thread does.
pub fn deed() -> impl Strategy<Value = Deed> {
    prop_oneof![
        8 => (0..4_u64).prop_map(Deed::Enter),
        9 => (0..4_u64).prop_map(Deed::Leave),
        4 => Just(Deed::Mark),
        1 => prop_oneof![Just(None), Just(Some(ENTER)), Just(Some(LEAVE)), Just(Some(MARK))]
            .prop_map(Deed::Lose),
    ]
}

/// Deeds of the threads of some ranks, repeated until there is enough to write about.
pub fn ranks() -> impl Strategy<Value = Vec<Vec<Vec<Deed>>>> {
    let thread = prop::collection::vec(deed(), 1..60);
    let ranks = prop::collection::vec(prop::collection::vec(thread, 1..3), 1..4);
    ranks.prop_map(|mut ranks| {
        for deeds in ranks.iter_mut().flatten() {
            let once = deeds.clone();
            while deeds.len() < 1500 {
                deeds.extend_from_slice(&once);
            }
        }
        ranks
    })
}

/// Writes a recording for each rank into a directory.
///
/// # Panics
/// If one cannot be written.
pub fn write(ranks: &[Vec<Vec<Deed>>], directory: &Path) {
    for (rank, threads) in ranks.iter().enumerate() {
        let streams = threads.iter().enumerate().map(|(number, deeds)| {
            let mut time_ns = START_NS + number as i64;
            let mut rows = Vec::new();
            for (index, deed) in deeds.iter().enumerate() {
                time_ns += 1 + (index as i64 * 37 + rank as i64 * 11) % 50;
                let tick = REFERENCE.tick(time_ns);
                rows.push(match deed {
                    Deed::Enter(region) => Row::Event(ENTER, tick, *region),
                    Deed::Leave(region) => Row::Event(LEAVE, tick, *region),
                    Deed::Mark => Row::Event(MARK, tick, index as u64),
                    Deed::Lose(event_type) => Row::Dropped(*event_type, 1, tick - 1, tick),
                });
            }
            TestStream {
                clock: 0,
                ordering: SourceOrder::Ordered,
                chunks: vec![(START_NS, rows)],
            }
        });
        let recording = TestRecording {
            rank: Some(rank as u32),
            rank_count: None,
            id: rank as u16,
            start_ns: START_NS,
            end_ns: START_NS + 200_000,
            clocks: vec![REFERENCE],
            streams: streams.collect(),
            has_footer: true,
        };
        recording.write(directory, CompressionLevel::None);
    }
}
