//! Answers from parts that several processes gathered: those of one process, whatever the slices and the parts.

use std::path::Path;

use annals_analysis::{Grouping, Part, RegionNames, RegionSums, region_times};
use annals_format::CompressionLevel;
use annals_merger::{MergeError, MergeOptions, Query, Reader, Window, no_progress};
use proptest::prelude::*;
use serde::Serialize;

use crate::losses::{holes, places};
use crate::oracle::{Simulation, programs};

/// Merges recordings into a trace of small chunks.
fn merged(recordings: &Path, trace: &Path, chunk_events: usize) -> Reader {
    let mut options = MergeOptions::new();
    options.chunk_events = chunk_events;
    // The larger the trace, the more snapshots it has, at which slices begin.
    options.compression = CompressionLevel::None;
    let inputs = [recordings.to_owned()];
    let plan = options.plan(&inputs).expect("recordings");
    plan.write_trace(trace, no_progress).expect("a trace");
    Reader::open(trace).expect("a trace")
}

fn json(answer: &impl Serialize) -> String {
    serde_json::to_string(answer).expect("an answer")
}

/// Gathers all parts, and passes each on as bytes.
fn gathered(
    reader: &Reader,
    of: usize,
    gather: impl Fn(&Reader) -> annals_merger::Result<Option<Part>>,
) -> Vec<Part> {
    let parts = (0..of).map(|number| {
        let part = reader.part(number, of).expect("a trace");
        let part = gather(&part).expect("a part").expect("events of messages");
        assert!(!part.has_damage());
        Part::decode(&part.encode(), number).expect("a part")
    });
    parts.collect()
}

/// Compares the answers of a query from parts with those from the trace.
fn compare(reader: &Reader, query: &Query, of: usize) {
    let parts = gathered(reader, of, |part| {
        annals_analysis::gather_messages(part, query)
    });
    let whole = annals_analysis::messages(reader, query).expect("messages");
    let found = annals_analysis::messages_of_parts(reader, query, &parts).expect("messages");
    assert_eq!(
        json(&found.map(|found| found.0)),
        json(&whole.map(|found| found.0))
    );

    let parts = gathered(reader, of, |part| {
        annals_analysis::gather_collectives(part, query)
    });
    let whole = annals_analysis::collectives(reader, query).expect("operations");
    let found = annals_analysis::collectives_of_parts(reader, query, &parts).expect("operations");
    assert_eq!(
        json(&found.map(|found| found.0)),
        json(&whole.map(|found| found.0))
    );
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if std::env::var_os("ANNALS_LONG").is_some() { 3_000 } else { 150 },
        ..ProptestConfig::default()
    })]

    #[test]
    fn parts_have_the_answers_of_the_trace(
        (ranks, steps) in programs(),
        places in places(3),
        is_numbered in any::<bool>(),
        rounds in 1..30_usize,
        chunk_events in 1..40_usize,
        of in 1..7_usize,
        (from, length) in (0..20_000_i64, 0..20_000_i64),
    ) {
        let mut script = Simulation::run(ranks, &steps.repeat(rounds));
        script.is_numbered = is_numbered;
        let holes = holes(&script, &places);
        let directory = tempfile::tempdir().expect("a directory");
        let recordings = directory.path().join("run");
        std::fs::create_dir(&recordings).expect("a directory");
        script.write(&recordings, &holes);
        let reader = merged(&recordings, &directory.path().join("run.annals"), chunk_events);
        compare(&reader, &Query::new(), of);
        let window = Window { from_ns: from, to_ns: from + length };
        compare(&reader, &Query::new().within(window), of);
    }
}

/// Counts the shares of recordings, passes each count on as bytes, and returns the answer.
fn counted_in_shares(recordings: &Path, of: usize) -> String {
    let mut names = RegionNames::default();
    let mut all = RegionSums::default();
    for number in 0..of {
        let share = Reader::open_share(&[recordings.to_owned()], number, of).expect("recordings");
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

#[test]
fn parts_of_something_else_are_refused() {
    for bytes in [&b""[..], b"a letter", &[0xff; 64]] {
        let error = Part::decode(bytes, 2).expect_err("no part");
        assert!(
            matches!(error, MergeError::NoPart { number: 3, .. }),
            "{error}"
        );
    }
}
