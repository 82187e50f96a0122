//! The overview of a trace: the values of each bin are those that its calls add up to, by a simpler rule.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use annals_format::{
    BlockKind, BlockWriter, CompressionLevel, Footer, LaneKey, LaneKind, MAX_LANE_DEPTH,
    MOST_CALLS_WITHOUT_BIN, OverviewRow, RegionId, Trace, encode_bins, encode_tail,
};
use annals_merger::{MergeOptions, Reader, no_progress, verify};
use annals_test_support::calls::{Call, all_calls, lanes_of};
use annals_test_support::synthetic::{Mix, write_stretched};

/// Returns the rows that the calls of a trace add up to.
fn expected(reader: &Reader) -> Vec<OverviewRow> {
    let calls = all_calls(reader);
    let first_ns = calls.iter().map(|call| call.from_ns).min().expect("calls");
    let last_ns = reader.extent().last_ns;
    let locations = reader.definitions().locations.len();
    let density = reader.trace().expect("a trace").density(locations);
    let mut by_lane: BTreeMap<LaneKey, Vec<&Call>> = BTreeMap::new();
    let lanes = lanes_of(reader.definitions());
    for call in calls.iter().filter(|call| call.depth < MAX_LANE_DEPTH) {
        for (kind, id) in &lanes[call.location] {
            let key = LaneKey {
                kind: *kind,
                id: *id,
                depth: call.depth,
            };
            by_lane.entry(key).or_default().push(call);
        }
    }
    let mut rows = Vec::new();
    for level in 0..=62_u8 {
        for (lane, calls) in &by_lane {
            let members = lanes.iter().filter(|of| of.contains(&(lane.kind, lane.id)));
            let members = members.count() as u64;
            let is_long = |bin: i64| level >= density.least_level(bin << level, members);
            rows.extend(rows_of(*lane, calls, level, is_long));
        }
        if first_ns >> level == last_ns >> level {
            break;
        }
    }
    rows
}

fn rows_of(
    lane: LaneKey,
    calls: &[&Call],
    level: u8,
    is_long: impl Fn(i64) -> bool,
) -> Vec<OverviewRow> {
    let mut bins: BTreeMap<i64, (u64, i64, BTreeMap<RegionId, i64>)> = BTreeMap::new();
    for call in calls.iter().filter(|call| call.has_ended) {
        let bin = bins.entry(call.to_ns >> level).or_default();
        bin.0 += 1;
        bin.1 = bin.1.max(call.to_ns - call.from_ns);
    }
    let end_ns = |call: &Call| match lane.kind {
        LaneKind::Location => call.to_ns,
        _ => call.drawn_to_ns,
    };
    for call in calls {
        let here = call.from_ns >> level..=end_ns(call) >> level;
        // Only those that can have a row: there may be very many others.
        if level >= 8 {
            here.filter(|bin| is_long(*bin)).for_each(|bin| {
                bins.entry(bin).or_default();
            });
        }
    }
    bins.retain(|bin, values| values.0 > MOST_CALLS_WITHOUT_BIN || is_long(*bin));
    for call in calls {
        let to_ns = end_ns(call);
        for (bin, values) in bins.range_mut(call.from_ns >> level..=to_ns >> level) {
            let inside_ns = to_ns.min((bin + 1) << level) - call.from_ns.max(bin << level);
            *values.2.entry(call.region).or_default() += inside_ns;
        }
    }
    let has_any = |values: &(u64, i64, BTreeMap<RegionId, i64>)| {
        values.0 != 0 || values.2.values().any(|ns| *ns != 0)
    };
    bins.retain(|_, values| has_any(values));
    let rows = bins.into_iter().map(|(bin, (calls, longest_ns, regions))| {
        let most = regions
            .iter()
            .max_by_key(|known| (*known.1, Reverse(*known.0)));
        let (region, region_ns) = most.expect("a region");
        OverviewRow {
            level,
            lane,
            bin,
            calls,
            busy_ns: regions.values().sum(),
            region: if *region_ns == 0 {
                RegionId::new(0)
            } else {
                *region
            },
            region_ns: *region_ns,
            longest_ns,
        }
    });
    rows.collect()
}

fn rows(reader: &Reader) -> Vec<OverviewRow> {
    let blocks = reader.trace().expect("a trace").overview().iter();
    let mut rows: Vec<OverviewRow> = blocks
        .flat_map(|entry| {
            reader
                .trace()
                .expect("a trace")
                .load_bins::<OverviewRow>(entry)
                .expect("a block")
        })
        .collect();
    rows.sort_by_key(OverviewRow::key);
    rows
}

/// Merges recordings, and returns the trace.
fn merged(inputs: &Path, output: &Path, jobs: usize, overview: bool) -> Reader {
    let mut options = MergeOptions::default();
    (options.jobs, options.overview) = (jobs, overview);
    let plan = options.plan(&[inputs.to_owned()]).expect("recordings");
    plan.write_trace(output, no_progress).expect("a trace");
    Reader::open(output).expect("a trace")
}

/// Writes recordings of synthetic programs into a directory.
fn recordings(scratch: &Path, mix: Mix, ranks: u32, events: u64) -> PathBuf {
    let inputs = scratch.join("run");
    std::fs::create_dir(&inputs).expect("a directory");
    for rank in 0..ranks {
        let stretch = 1 + u64::from(rank % 2);
        write_stretched(&inputs, rank, ranks, events, stretch, mix).expect("a recording");
    }
    inputs
}

#[test]
fn the_values_of_bins_are_those_of_the_calls() {
    for (mix, ranks, events) in [(Mix::Halo, 4, 30_000), (Mix::Random, 3, 40_000)] {
        let scratch = tempfile::tempdir().expect("a directory");
        let inputs = recordings(scratch.path(), mix, ranks, events);
        let reader = merged(&inputs, &scratch.path().join("run.annals"), 2, true);
        let (found, expected) = (rows(&reader), expected(&reader));
        assert!(found.len() > 1_000, "{} rows", found.len());
        assert_eq!(found.len(), expected.len());
        for (found, expected) in found.iter().zip(&expected) {
            assert_eq!(found, expected);
        }
    }
}

#[test]
fn an_overview_is_the_same_for_any_jobs_and_verified() {
    let scratch = tempfile::tempdir().expect("a directory");
    let inputs = recordings(scratch.path(), Mix::Halo, 3, 30_000);
    let path = |name: &str| scratch.path().join(name);
    let reader = merged(&inputs, &path("one.annals"), 1, true);
    merged(&inputs, &path("three.annals"), 3, true);
    let bytes = std::fs::read(path("one.annals")).expect("a trace");
    assert!(bytes == std::fs::read(path("three.annals")).expect("a trace"));
    let found = verify(&path("one.annals"), &[]).expect("a trace");
    assert_eq!(found.mismatches, []);
    // Without one, the same events.
    let without = merged(&inputs, &path("none.annals"), 2, false);
    assert_eq!(without.trace().expect("a trace").overview(), []);
    let found = verify(&path("none.annals"), &[]).expect("a trace");
    assert_eq!(found.mismatches, []);

    // A value that is not what the calls add up to.
    let entry = reader.trace().expect("a trace").overview()[0];
    let mut wrong = reader
        .trace()
        .expect("a trace")
        .load_bins::<OverviewRow>(&entry)
        .expect("a block");
    wrong[3].busy_ns += 1;
    let (mut head, mut body) = (Vec::new(), Vec::new());
    encode_bins(&wrong, &mut head, &mut body);
    let trace = Trace::read(&bytes).expect("a trace");
    let mut file = bytes.clone();
    let offset = file.len() as u64;
    let mut writer = BlockWriter::new(CompressionLevel::None).expect("a writer");
    writer.write(BlockKind::Overview, &head, &body, &mut file);
    let mut overview = trace.overview.clone();
    overview[0].offset = offset;
    let footer = Footer {
        definitions: trace.definitions.clone(),
        trace_chunks: trace.chunks.clone(),
        totals: trace.totals.clone(),
        losses: trace.losses.clone(),
        statistics: trace.statistics,
        overview,
        ..Footer::default()
    };
    body.clear();
    footer.encode(&mut body);
    let footer_offset = file.len() as u64;
    writer.write(BlockKind::Footer, &[], &body, &mut file);
    file.extend(encode_tail(footer_offset));
    std::fs::write(path("wrong.annals"), &file).expect("a file");
    let found = verify(&path("wrong.annals"), &[]).expect("a trace");
    let what: Vec<&str> = found.mismatches.iter().map(|of| of.what.as_str()).collect();
    assert_eq!(what, ["overview"]);

    // A damaged block costs itself.
    let mut damaged = bytes;
    damaged[entry.offset as usize + 60] ^= 1;
    std::fs::write(path("damaged.annals"), &damaged).expect("a file");
    let found = verify(&path("damaged.annals"), &[]).expect("a trace");
    assert_eq!(found.mismatches, []);
    let what: Vec<&str> = found.damage.iter().map(|of| of.what.as_str()).collect();
    assert!(
        what.iter().any(|what| what.starts_with("overview")),
        "{what:?}"
    );
    assert_eq!(found.events, 90_000);
}
