//! Lanes: columns of pictures are the same from the overview and from all calls, and narrow columns add up to wide ones.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::path::PathBuf;

use annals_analysis::{LaneColumn, Lanes, TimeColumns, fill_step, innermost, own_times};
use annals_format::{LaneKey, LaneKind, RegionId};
use annals_merger::{MergeOptions, Query, Reader, Window, no_progress};
use annals_test_support::calls::all_calls;
use annals_test_support::synthetic::{Mix, Random, write_stretched};

const RANKS: u32 = 6;

/// Returns a trace with an overview, of ranks that exchange halos.
fn trace() -> (tempfile::TempDir, PathBuf) {
    let scratch = tempfile::tempdir().expect("a directory");
    for rank in 0..RANKS {
        write_stretched(scratch.path(), rank, RANKS, 60_000, 1, Mix::Halo).expect("a recording");
    }
    let output = scratch.path().join("run.annals");
    let mut options = MergeOptions::new();
    options.overview = true;
    let plan = options.plan(&[scratch.path().to_owned()]).expect("a plan");
    plan.write_trace(&output, no_progress).expect("a trace");
    (scratch, output)
}

/// Returns windows at random: of the whole run, and smaller and smaller.
fn windows(reader: &Reader) -> Vec<Window> {
    let end_ns = reader.extent().last_ns;
    let mut random = Random::new(7);
    let window = |shift: u32| {
        let span = (end_ns >> shift).max(1);
        let from_ns = (random.draw() % (end_ns - span + 1) as u64) as i64;
        Window {
            from_ns,
            to_ns: from_ns + span,
        }
    };
    (0..14).map(window).collect()
}

/// Returns the lanes of all locations, and those of all of them together.
fn keys(reader: &Reader, lanes: &Lanes) -> Vec<LaneKey> {
    let locations = reader.definitions().locations.keys();
    let keys = locations.flat_map(|id| {
        (0..9).map(|depth| LaneKey {
            kind: LaneKind::Location,
            id: id.get(),
            depth,
        })
    });
    let (kind, id) = lanes.groups().stored(LaneKind::All, 0);
    let all = (0..9).map(move |depth| LaneKey { kind, id, depth });
    keys.chain(all).collect()
}

#[test]
fn columns_are_the_same_from_the_overview_and_from_the_calls() {
    let (_scratch, path) = trace();
    let reader = Reader::open(&path).expect("a trace");
    assert!(!reader.trace().expect("a trace").overview().is_empty());
    let lanes = Lanes::open(&reader, None);
    let keys = keys(&reader, &lanes);
    // A query by region reads the calls.
    let mut by_calls = Query::new();
    by_calls.set_regions(reader.definitions().regions.keys().copied());
    let mut shown = 0;
    for window in windows(&reader) {
        for count in [1, 7, 100, 1000] {
            let columns = TimeColumns::of(window, count);
            let mut found = [Query::new(), by_calls.clone()].map(|query| {
                let bins = lanes.bins(&reader, columns.range, &keys, &query);
                let (bins, _) = bins.expect("bins");
                let sums = bins.iter().zip(&keys).map(|(bins, key)| {
                    let members = lanes.groups().members(key.kind, key.id).count();
                    let mut sums = columns.sum(bins, members);
                    // The overview does not know when a call begins and ends.
                    sums.iter_mut().for_each(|sum| sum.only_ns = None);
                    sums
                });
                sums.collect::<Vec<_>>()
            });
            let [overview, calls] = &mut found;
            for ((key, overview), calls) in keys.iter().zip(&*overview).zip(calls) {
                for (overview, calls) in overview.iter().zip(calls) {
                    assert_eq!(overview, calls, "{key:?} {window:?} {count}");
                }
            }
            let sums = overview.iter().flatten();
            shown += sums.filter(|sum| sum.region.is_some()).count();
        }
    }
    assert!(shown > 10_000, "{shown}");
}

/// Returns the region with most time, the first of several.
fn most(times: &BTreeMap<RegionId, i64>) -> Option<(RegionId, i64)> {
    let most = times
        .iter()
        .filter(|of| *of.1 > 0)
        .max_by_key(|of| (*of.1, Reverse(*of.0)));
    most.map(|(region, ns)| (*region, *ns))
}

#[test]
fn columns_are_what_follows_from_all_calls() {
    let (_scratch, path) = trace();
    let reader = Reader::open(&path).expect("a trace");
    let lanes = Lanes::open(&reader, None);
    let calls = all_calls(&reader);
    let end_ns = reader.extent().last_ns;
    // Sixteen columns of 64 bins each.
    for shift in [8, 11, 14] {
        let from_ns = ((end_ns / 2) >> (shift + 10)) << (shift + 10);
        let window = Window {
            from_ns,
            to_ns: from_ns + (1 << (shift + 10)),
        };
        let columns = TimeColumns::of(window, 16);
        assert_eq!(
            (columns.range.level, columns.range.count),
            (shift as u8, 1024)
        );
        for (location, id) in reader.definitions().locations.keys().enumerate() {
            for depth in [0, 3] {
                let key = LaneKey {
                    kind: LaneKind::Location,
                    id: id.get(),
                    depth,
                };
                let bins = lanes.bins(&reader, columns.range, &[key], &Query::new());
                let found = columns.sum(&bins.expect("bins").0[0], 1);
                let own = calls
                    .iter()
                    .filter(|of| (of.location, of.depth) == (location, depth));
                let own: Vec<_> = own.collect();
                for (column, found) in found.iter().enumerate() {
                    let mut times: BTreeMap<RegionId, i64> = BTreeMap::new();
                    let mut busy_ns = 0;
                    for bin in 0..64 {
                        let bin_ns = from_ns + ((column as i64 * 64 + bin) << shift);
                        let mut inside: BTreeMap<RegionId, i64> = BTreeMap::new();
                        for call in &own {
                            let end_ns = call.to_ns.min(bin_ns + (1 << shift));
                            let ns = (end_ns - call.from_ns.max(bin_ns)).max(0);
                            *inside.entry(call.region).or_default() += ns;
                            busy_ns += ns;
                        }
                        if let Some((region, ns)) = most(&inside) {
                            *times.entry(region).or_default() += ns;
                        }
                    }
                    let shown = found.region.map(|region| (region, found.region_ns));
                    assert_eq!(
                        (shown, found.busy_ns),
                        (most(&times), busy_ns),
                        "{key:?} {column}"
                    );
                }
            }
        }
    }
}

#[test]
fn narrow_columns_add_up_to_wide_ones() {
    let (_scratch, path) = trace();
    let reader = Reader::open(&path).expect("a trace");
    let lanes = Lanes::open(&reader, None);
    let keys = keys(&reader, &lanes);
    let from_ns = reader.extent().last_ns / 3;
    for shift in 10..25 {
        // Bins have powers of two: all borders are common.
        let from_ns = (from_ns >> shift) << shift;
        let window = Window {
            from_ns,
            to_ns: from_ns + (1 << shift),
        };
        let sums = [32, 256].map(|count| {
            let columns = TimeColumns::of(window, count);
            let (bins, _) = lanes
                .bins(&reader, columns.range, &keys, &Query::new())
                .expect("bins");
            let sums = bins.iter().zip(&keys).map(|(bins, key)| {
                let members = lanes.groups().members(key.kind, key.id).count();
                columns.sum(bins, members)
            });
            let sums: Vec<_> = sums.collect();
            (columns, sums)
        });
        let [(wide_columns, wide), (narrow_columns, narrow)] = &sums;
        for column in 0..=32 {
            assert_eq!(
                wide_columns.start_ns(column),
                narrow_columns.start_ns(8 * column)
            );
        }
        for (wide, narrow) in wide.iter().zip(narrow) {
            for (wide, narrow) in wide.iter().zip(narrow.chunks(8)) {
                let sum = |of: fn(&LaneColumn) -> i64| narrow.iter().map(of).sum::<i64>();
                assert_eq!(wide.busy_ns, sum(|of| of.busy_ns), "{window:?}");
                assert_eq!(wide.calls, narrow.iter().map(|of| of.calls).sum::<u64>());
                assert_eq!(
                    wide.fill(),
                    fill_step(sum(|of| of.busy_ns), sum(|of| of.whole_ns))
                );
                // The region with most time has at least that of each narrow one.
                let most = narrow.iter().map(|of| of.region_ns).max();
                assert!(Some(wide.region_ns) >= most, "{wide:?} {most:?}");
            }
        }
    }
}

#[test]
fn own_times_are_all_time_in_calls() {
    let (_scratch, path) = trace();
    let reader = Reader::open(&path).expect("a trace");
    let lanes = Lanes::open(&reader, None);
    let keys = keys(&reader, &lanes);
    for window in windows(&reader) {
        let columns = TimeColumns::of(window, 50);
        let (bins, _) = lanes
            .bins(&reader, columns.range, &keys, &Query::new())
            .expect("bins");
        for depths in bins.chunks(9).take(RANKS as usize) {
            let mut own_ns = 0;
            own_times(depths, |own| own_ns += own.ns * i64::from(own.count));
            let outermost = depths[0].iter();
            let all_ns: i64 = outermost
                .map(|bin| bin.busy_ns * i64::from(bin.count))
                .sum();
            assert_eq!(own_ns, all_ns, "{window:?}");
            // One row shows a call wherever the outermost row does.
            let shown: Vec<Vec<LaneColumn>> =
                depths.iter().map(|bins| columns.sum(bins, 1)).collect();
            for (one, outermost) in innermost(&shown).iter().zip(&shown[0]) {
                assert_eq!(one.region.is_some(), outermost.region.is_some());
                assert!(one.busy_ns <= outermost.busy_ns);
            }
        }
    }
}
