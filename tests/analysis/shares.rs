//! Answers from shares of recordings that several processes counted: those of one process, whatever the shares.

use std::path::Path;

use annals_analysis::{Grouping, RegionNames, RegionSums, region_times};
use annals_merger::{Query, ReadOptions, Reader, Share};
use proptest::prelude::*;
use serde::Serialize;

use crate::losses::{holes, places};
use crate::oracle::{Simulation, programs};

fn json(answer: &impl Serialize) -> String {
    serde_json::to_string(answer).expect("an answer")
}

/// Counts the shares of recordings, passes each count on as bytes, and returns the answer.
fn counted_in_shares(recordings: &Path, of: usize) -> String {
    let mut names = RegionNames::default();
    let mut all = RegionSums::default();
    for number in 0..of {
        let mut options = ReadOptions::new();
        options.share = Some(Share { number, of });
        let share = Reader::open_with(&[recordings.to_owned()], options).expect("recordings");
        let sums = RegionSums::of(&share, &Query::new(), Grouping::None).expect("recordings");
        let bytes = sums.0.encode(share.definitions()).expect("few regions");
        all.merge(RegionSums::decode(&bytes, &mut names).expect("sums"));
    }
    json(&all.into_times(names.definitions(), |_| true))
}

fn counted_at_once(recordings: &Path) -> String {
    let reader = Reader::open(recordings).expect("recordings");
    let times = region_times(&reader, &Query::new(), Grouping::None);
    json(&times.expect("recordings").0)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if std::env::var_os("ANNALS_LONG").is_some() { 3_000 } else { 150 },
        ..ProptestConfig::default()
    })]

    #[test]
    fn shares_of_recordings_add_up_to_all(
        (ranks, steps) in programs(),
        places in places(3),
        is_on_hosts in any::<bool>(),
        of in 1..11_usize,
    ) {
        let mut script = Simulation::run(ranks, &steps);
        script.is_on_hosts = is_on_hosts;
        let holes = holes(&script, &places);
        let directory = tempfile::tempdir().expect("a directory");
        script.write(directory.path(), &holes);
        assert_eq!(counted_in_shares(directory.path(), of), counted_at_once(directory.path()));
        // One that is given twice counts once, in whatever share.
        let first = directory.path().join("script-host-0.annals");
        std::fs::copy(first, directory.path().join("z.annals")).expect("a copy");
        assert_eq!(counted_in_shares(directory.path(), of), counted_at_once(directory.path()));
    }
}
