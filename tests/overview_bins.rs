//! What the overview of a trace has of its events: the values of each bin are those that the events add up to, by a simpler rule.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use annals_format::{
    BlockKind, BlockWriter, CompressionLevel, EventTypeId, Footer, LaneKind, MessageRow,
    MessageTotals, MetricRow, OrderedChunk, Trace, Value, encode_tail,
};
use annals_merger::{
    IndexOptions, MergeOptions, Message, MessageExtractor, MessagePairs, Query, Reader, StreamId,
    Window, no_progress, verify,
};
use annals_test_support::metrics::{self, Measured};
use annals_test_support::mpi_script::{Deed, Script};
use proptest::prelude::*;

/// Merges recordings, and returns the trace.
fn merged(inputs: &Path, output: &Path, jobs: usize, overview: bool) -> Reader {
    let mut options = MergeOptions::default();
    (options.jobs, options.overview) = (jobs, overview);
    let plan = options.plan(&[inputs.to_owned()]).expect("recordings");
    plan.write_trace(output, no_progress).expect("a trace");
    Reader::open(output).expect("a trace")
}

/// Messages of a trace, and counts of all sends and receives.
fn messages(reader: &Reader) -> (Vec<Message>, MessageTotals) {
    let summary = reader.summary().expect("a summary");
    let extractor = MessageExtractor::with_collectives(reader.definitions(), &summary);
    let mut pairs = MessagePairs::new(extractor.expect("a whole trace").into());
    let mut messages = Vec::new();
    let take = |chunk: OrderedChunk| {
        pairs.take(&chunk, |message| messages.push(message));
        Ok(())
    };
    reader.for_each_chunk(Window::ALL, take).expect("a trace");
    let counts = pairs.finish(|message| messages.push(message));
    let totals = MessageTotals {
        sends: counts.sends,
        receives: counts.receives,
        matched: counts.matched,
        unmatched_sends: counts.unmatched_sends,
        unmatched_receives: counts.unmatched_receives,
        unmatchable_by_loss: counts.unmatchable_by_loss,
        over_limit: counts.over_limit,
        without_peer: counts.without_peer,
    };
    (messages, totals)
}

/// Returns the kinds of groups that have rows.
fn kinds(reader: &Reader) -> Vec<LaneKind> {
    let definitions = reader.definitions();
    let hosts = definitions.processes.values().map(|process| process.host);
    let (locations, processes) = (definitions.locations.len(), definitions.processes.len());
    let hosts = hosts.collect::<BTreeSet<_>>().len();
    let mut kinds = vec![LaneKind::Location];
    if processes < locations {
        kinds.push(LaneKind::Process);
    }
    if hosts < processes {
        kinds.push(LaneKind::Host);
    }
    if hosts > 1 {
        kinds.push(LaneKind::All);
    }
    kinds
}

/// Returns the number of the group of a stream.
fn group(reader: &Reader, kind: LaneKind, stream: StreamId) -> u32 {
    let definitions = reader.definitions();
    let location = definitions.streams[&stream].location.expect("a location");
    let process = definitions.locations[&location].process;
    match kind {
        LaneKind::Location => location.get(),
        LaneKind::Process => process.get(),
        LaneKind::Host => definitions.processes[&process].host.get(),
        LaneKind::Source | LaneKind::All => 0,
    }
}

/// Returns the rows of a level.
fn level_rows(reader: &Reader, messages: &[Message], kind: LaneKind, level: u8) -> Vec<MessageRow> {
    let mut rows: BTreeMap<(i64, u32, u32), MessageRow> = BTreeMap::new();
    for message in messages {
        let from = group(reader, kind, message.send.stream);
        let to = group(reader, kind, message.receive.stream);
        let bin = message.receive.time_ns >> level;
        let row = rows.entry((bin, from, to)).or_insert(MessageRow {
            level,
            kind,
            bin,
            from,
            to,
            count: 0,
            bytes: 0,
            longest_ns: i64::MIN,
        });
        row.count += 1;
        row.bytes += message.bytes().unwrap_or(0);
        let length_ns = message.receive.time_ns - message.send.time_ns;
        row.longest_ns = row.longest_ns.max(length_ns);
    }
    rows.into_values().collect()
}

/// Returns the least level of each kind of groups, and all rows.
fn expected(reader: &Reader, messages: &[Message]) -> (Vec<(LaneKind, u8)>, Vec<MessageRow>) {
    let most = (reader.events_before(i64::MAX) / 128).clamp(256, 131_072) as usize;
    let bins = |level: u8| {
        let bins = messages.iter().map(|of| of.receive.time_ns >> level);
        bins.collect::<BTreeSet<i64>>().len()
    };
    let top = (0..62).find(|level| bins(*level) < 2).unwrap_or(62);
    let (mut levels, mut rows) = (Vec::new(), Vec::new());
    for kind in kinds(reader) {
        let all = (0..=top).map(|level| level_rows(reader, messages, kind, level));
        let all: Vec<Vec<MessageRow>> = all.collect();
        let count = |least: usize| all[least..].iter().map(Vec::len).sum::<usize>();
        let least = (0..all.len()).find(|least| count(*least) <= most);
        if let Some(least) = least {
            levels.push((kind, least as u8));
            rows.extend(all.into_iter().skip(least).flatten());
        }
    }
    rows.sort_by_key(MessageRow::key);
    (levels, rows)
}

fn rows(reader: &Reader) -> Vec<MessageRow> {
    let overview = reader
        .trace()
        .expect("a trace")
        .message_overview()
        .expect("messages");
    let blocks = overview.blocks.iter();
    blocks
        .flat_map(|entry| {
            reader
                .trace()
                .expect("a trace")
                .load_bins::<MessageRow>(entry)
                .expect("a block")
        })
        .collect()
}

/// A message: its sender, its receiver, the ns since the one before, and those until it has arrived.
type Sent = (usize, usize, i64, i64);

/// Returns the script of messages between ranks or threads of them.
fn script(messages: &[Sent], threads: usize) -> Script {
    let places = 4 * threads;
    let mut script = Script {
        ranks: vec![Vec::new(); places],
        threads,
        ..Script::default()
    };
    let mut at_ns = 0;
    let mut deeds = vec![Vec::new(); places];
    for (from, to, pause_ns, length_ns) in messages {
        let (from, to) = (from % places, to % places);
        if from / threads != to / threads {
            at_ns += pause_ns;
            let peer = |place: usize| (place / threads) as u32;
            deeds[from].push((at_ns, Deed::Send(peer(to), 0)));
            deeds[to].push((at_ns + length_ns, Deed::Receive(peer(from), 0)));
        }
    }
    for (place, mut deeds) in deeds.into_iter().enumerate() {
        deeds.sort_by_key(|deed| deed.0);
        script.rank(place, &deeds);
    }
    script
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(48) })]

    #[test]
    fn the_messages_of_bins_are_those_of_the_events(
        messages_sent in prop::collection::vec(
            (0..8_usize, 0..8_usize, prop_oneof![9 => 1..90_i64, 1 => 1..90_000_i64], -5..400_i64),
            1..900,
        ),
        threads in 1..3_usize,
        lost in prop::collection::vec((0..4_usize, 0..200_usize, 1..4_usize), 0..3),
    ) {
        let scratch = tempfile::tempdir().expect("a directory");
        let path = |name: &str| scratch.path().join(name);
        std::fs::create_dir(path("run")).expect("a directory");
        let lost: Vec<_> = lost.iter().map(|(rank, first, count)| (*rank, *first, first + count)).collect();
        script(&messages_sent, threads).write(&path("run"), &lost);
        let reader = merged(&path("run"), &path("one.annals"), 1, true);
        merged(&path("run"), &path("three.annals"), 3, true);
        prop_assert!(
            std::fs::read(path("one.annals")).expect("a trace") == std::fs::read(path("three.annals")).expect("a trace")
        );
        let (messages, totals) = messages(&reader);
        let (levels, wanted) = expected(&reader, &messages);
        let overview = reader.trace().expect("a trace").message_overview().expect("messages");
        prop_assert_eq!(overview.totals, totals);
        prop_assert_eq!(&overview.least_levels, &levels);
        prop_assert_eq!(rows(&reader), wanted);
        prop_assert_eq!(verify(&path("one.annals"), &[]).expect("a trace").mismatches, []);

        // Written afterwards, they are the same.
        merged(&path("run"), &path("none.annals"), 2, false);
        let options = IndexOptions::new();
        options.write(path("none.annals"), path("after.annals"), no_progress).expect("an overview");
        let after = Reader::open(path("after.annals")).expect("a trace");
        let of_after = after.trace().expect("a trace").message_overview().expect("messages");
        prop_assert_eq!((of_after.totals, &of_after.least_levels), (totals, &levels));
        prop_assert_eq!(rows(&after), rows(&reader));
    }
}

#[test]
fn wrong_and_damaged_messages_are_found() {
    let scratch = tempfile::tempdir().expect("a directory");
    let path = |name: &str| scratch.path().join(name);
    std::fs::create_dir(path("run")).expect("a directory");
    let sent: Vec<Sent> = (0..600).map(|at| (at % 4, at / 3, 20, 300)).collect();
    script(&sent, 1).write(&path("run"), &[]);
    let reader = merged(&path("run"), &path("run.annals"), 2, true);
    let entry = reader
        .trace()
        .expect("a trace")
        .message_overview()
        .expect("messages")
        .blocks[0];
    let bytes = std::fs::read(path("run.annals")).expect("a trace");

    // A count that is not what the events add up to.
    let trace = Trace::read(&bytes).expect("a trace");
    let mut messages = trace.messages.clone().expect("messages");
    messages.totals.unmatchable_by_loss += 1;
    let footer = Footer {
        definitions: trace.definitions.clone(),
        trace_chunks: trace.chunks.clone(),
        totals: trace.totals.clone(),
        messages: Some(messages),
        ..Footer::default()
    };
    let (mut file, mut body) = (bytes.clone(), Vec::new());
    footer.encode(&mut body);
    let offset = file.len() as u64;
    let mut writer = BlockWriter::new(CompressionLevel::None).expect("a writer");
    writer.write(BlockKind::Footer, &[], &body, &mut file);
    file.extend(encode_tail(offset));
    std::fs::write(path("wrong.annals"), &file).expect("a file");
    let found = verify(&path("wrong.annals"), &[]).expect("a trace");
    let what: Vec<&str> = found.mismatches.iter().map(|of| of.what.as_str()).collect();
    assert_eq!(what, ["messages of the overview"]);

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
}

/// Returns the finite values of a trace: stream, event type, time, number.
fn values(reader: &Reader) -> Vec<(StreamId, EventTypeId, i64, f64)> {
    let mut values = Vec::new();
    let take = |event: &annals_merger::Event<'_>| {
        let value = match event.element(0) {
            Value::F64(value) => value,
            other => other.as_integer().expect("an integer") as f64,
        };
        if value.is_finite() {
            values.push((event.stream(), event.event_type(), event.time(), value));
        }
        std::ops::ControlFlow::Continue(())
    };
    reader.for_each_event(&Query::new(), take).expect("a trace");
    values
}

/// Returns the rows of a level. Numbers are multiples of ¼ that are small enough for plain sums to be exact.
fn metric_rows(values: &[(StreamId, EventTypeId, i64, f64)], level: u8) -> Vec<MetricRow> {
    let mut rows: BTreeMap<(i64, StreamId, EventTypeId), MetricRow> = BTreeMap::new();
    for (stream, event_type, time_ns, value) in values {
        let key = (time_ns >> level, *stream, *event_type);
        let row = rows.entry(key).or_insert(MetricRow {
            level,
            bin: key.0,
            stream: *stream,
            event_type: *event_type,
            count: 0,
            min: f64::INFINITY,
            max: f64::NEG_INFINITY,
            sum: 0.0,
        });
        row.count += 1;
        (row.min, row.max) = (row.min.min(*value), row.max.max(*value));
        row.sum += value;
    }
    rows.into_values().collect()
}

fn stored_metrics(reader: &Reader) -> Vec<MetricRow> {
    let blocks = reader
        .trace()
        .expect("a trace")
        .metric_overview()
        .expect("metrics")
        .blocks
        .iter();
    blocks
        .flat_map(|entry| {
            reader
                .trace()
                .expect("a trace")
                .load_bins::<MetricRow>(entry)
                .expect("a block")
        })
        .collect()
}

fn measured() -> impl Strategy<Value = Measured> {
    let pause_ns = prop_oneof![9 => 1..90_i64, 1 => 1..90_000_i64];
    let value = (-4_000..4_000_i32).prop_map(|quarters| f64::from(quarters) / 4.0);
    (
        pause_ns,
        prop_oneof![30 => value, 1 => Just(f64::NAN), 1 => Just(f64::INFINITY)],
    )
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(32) })]

    #[test]
    fn the_metrics_of_bins_are_those_of_the_events(
        first in prop::collection::vec(measured(), 2..600),
        second in prop::collection::vec(measured(), 2..600),
    ) {
        let scratch = tempfile::tempdir().expect("a directory");
        let path = |name: &str| scratch.path().join(name);
        std::fs::create_dir(path("run")).expect("a directory");
        metrics::write(&path("run"), 0, &first);
        metrics::write(&path("run"), 1, &second);
        let reader = merged(&path("run"), &path("one.annals"), 1, true);
        merged(&path("run"), &path("three.annals"), 3, true);
        prop_assert!(
            std::fs::read(path("one.annals")).expect("a trace") == std::fs::read(path("three.annals")).expect("a trace")
        );
        let values = values(&reader);
        let bins = |level: u8| values.iter().map(|of| of.2 >> level).collect::<BTreeSet<i64>>().len();
        let top = (0..62).find(|level| bins(*level) < 2).expect("a level");
        let levels: Vec<Vec<MetricRow>> = (0..=top).map(|level| metric_rows(&values, level)).collect();
        let most = (reader.events_before(i64::MAX) / 256).clamp(256, 65_536) as usize;
        let count = |least: usize| levels[least..].iter().map(Vec::len).sum::<usize>();
        let least = (0..levels.len()).find(|least| count(*least) <= most).expect("a level");
        match reader.trace().expect("a trace").metric_overview() {
            None => prop_assert!(values.is_empty()),
            Some(overview) => {
                prop_assert_eq!(usize::from(overview.least_level), least);
                prop_assert_eq!(stored_metrics(&reader), levels[least..].concat());
            }
        }
        prop_assert!(reader.trace().expect("a trace").message_overview().is_none());
        prop_assert_eq!(verify(&path("one.annals"), &[]).expect("a trace").mismatches, []);
        merged(&path("run"), &path("none.annals"), 2, false);
        let options = IndexOptions::new();
        options.write(path("none.annals"), path("after.annals"), no_progress).expect("an overview");
        let after = Reader::open(path("after.annals")).expect("a trace");
        prop_assert_eq!(after.trace().expect("a trace").metric_overview().is_some(), reader.trace().expect("a trace").metric_overview().is_some());
        if after.trace().expect("a trace").metric_overview().is_some() {
            prop_assert_eq!(stored_metrics(&after), stored_metrics(&reader));
        }
    }
}
