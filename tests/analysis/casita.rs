//! Score-P archives of hybrid programs: what holds for each trace, whatever it is of.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use annals_analysis::{Grouping, LostTimeOptions, WaitPattern, lost_time, region_times};
use annals_merger::{Query, Reader};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// Returns the archives of CASITA's test suite. Empty without the samples.
fn archives() -> Vec<PathBuf> {
    let samples = Path::new(ROOT).join("../shared/reference/analysis-samples/casita");
    let Ok(directories) = std::fs::read_dir(&samples) else {
        eprintln!("NOT TESTED: {} is not there", samples.display());
        return Vec::new();
    };
    let archives = directories
        .flatten()
        .map(|entry| entry.path().join("traces.otf2"));
    let mut archives: Vec<PathBuf> = archives.collect();
    archives.sort();
    assert_eq!(archives.len(), 4);
    archives
}

#[test]
fn paths_waits_and_causes_of_hybrid_programs_add_up() {
    for archive in archives() {
        let reader = Reader::open(&archive).expect("an archive");
        let options = LostTimeOptions {
            critical_path: true,
            ..LostTimeOptions::default()
        };
        let found = lost_time(&reader, &Query::new(), &options).expect("an archive");
        let lost = found.expect("whole definitions").0;
        let path = lost.critical_path.as_ref().expect("a path");
        let length_ns = path.to_ns - path.from_ns;
        assert_eq!((path.from_ns, path.to_ns), (lost.from_ns, lost.to_ns));
        // Each instant once.
        let of_ranks: i64 = path.ranks.iter().map(|row| row.path_ns).sum();
        let of_regions: i64 = path.regions.iter().map(|row| row.path_ns).sum();
        assert_eq!(
            (of_ranks, of_regions),
            (length_ns, length_ns),
            "{archive:?}"
        );
        // No region is longer on the path than in all.
        let times = region_times(&reader, &Query::new(), Grouping::None).expect("an archive");
        let mut all: BTreeMap<&str, i64> = BTreeMap::new();
        for row in &times.0.regions {
            *all.entry(&row.name).or_default() += row.exclusive_ns;
        }
        let mut on_path: BTreeMap<&str, i64> = BTreeMap::new();
        for row in &path.regions {
            if let Some(name) = &row.region {
                *on_path.entry(name).or_default() += row.path_ns;
            }
        }
        for (name, path_ns) in on_path {
            assert!(path_ns <= all[name], "{archive:?}: {name} {path_ns}");
        }
        // A rank is useful, in MPI or idle, and waits in MPI or idle.
        for rank in &lost.ranks {
            let parts_ns = rank.useful_ns + rank.mpi_ns + rank.idle_ns;
            assert!(parts_ns <= length_ns, "{archive:?}: {rank:?}");
            assert!(
                rank.wait_ns <= rank.mpi_ns + rank.idle_ns,
                "{archive:?}: {rank:?}"
            );
            assert_eq!(rank.uncertain_ns, 0);
        }
        // What was planted: `latesender` makes rank 0 wait for rank 1, which sleeps; in the solver, threads wait for each
        // other, and for a critical section.
        let has = |pattern| {
            lost.wait_states
                .iter()
                .any(|row| row.pattern == Some(pattern))
        };
        let name = archive.to_string_lossy();
        if name.contains("10_scorep_mpi_tags") {
            let cause = &lost.causes[0];
            assert_eq!((cause.rank, cause.pattern), (1, WaitPattern::LateSender));
            let place = cause.extra[0].path.last().expect("a region");
            assert!(place.contains("sleep"), "{place}");
        } else if !name.contains("gpu") {
            assert!(has(WaitPattern::ThreadBarrier), "{name}");
        }
        if name.contains("cpu") {
            assert!(has(WaitPattern::Lock), "{name}");
        }
        // Each nanosecond of waiting for a rank has one cause.
        let waited_ns: i64 = lost
            .wait_states
            .iter()
            .filter(|row| {
                let completion = [
                    WaitPattern::BarrierCompletion,
                    WaitPattern::AllToAllCompletion,
                ];
                !row.pattern
                    .is_some_and(|pattern| completion.contains(&pattern))
            })
            .map(|row| row.wait_ns)
            .sum();
        let caused_ns: i64 = lost.causes.iter().map(|cause| cause.cost_ns).sum();
        assert_eq!(waited_ns, caused_ns, "{archive:?}");
    }
}
