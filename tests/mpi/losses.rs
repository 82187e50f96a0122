//! Recordings of which pages are lost: their messages and collective operations are matched by
//! sequence numbers, and none wrongly. The sizes show which events belong together.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::path::Path;

use annals_analysis::for_each_collective;
use annals_format::{BlockHeader, BlockKind, FILE_HEADER_LEN, ObjectId, Role, StreamId};
use annals_merger::{MessageExtractor, MessagePairs, OrderedChunk, Query, Reader, Window};

use crate::support::{Flavour, Run, flavours};

/// Identity of a message without its sequence number: ranks of sender and receiver, communicator,
/// tag, bytes.
type MessageKey = (i128, i128, String, i128, i128);

/// Identity of a reduction: communicator, bytes.
type ReductionKey = (String, i128);

/// Messages and reductions of a set of recordings.
#[derive(Default)]
struct Found {
    sends: BTreeSet<MessageKey>,
    receives: BTreeSet<MessageKey>,
    /// Number of matched messages.
    pairs: u64,
    /// The ranks that began each reduction.
    reductions: BTreeMap<ReductionKey, BTreeSet<u32>>,
    /// Number of matched reductions.
    operations: u64,
}

impl Found {
    fn of(recordings: &Path) -> Self {
        let reader = Reader::open(recordings).expect("recordings");
        let definitions = reader.definitions();
        let mut found = Self::default();
        let mut begins: BTreeMap<(StreamId, i64), ReductionKey> = BTreeMap::new();
        let visit = |event: &annals_merger::Event<'_>| {
            let values: BTreeMap<&str, i128> = event
                .values()
                .filter_map(|(name, value)| Some((name, value.as_integer()?)))
                .collect();
            let value = |name: &str| values.get(name).copied().unwrap_or(-1);
            let own = i128::from(event.rank());
            let communicator = || {
                let id = u32::try_from(value("communicator")).expect("an object");
                let object = &definitions.objects[&ObjectId::new(id)];
                definitions.string(object.name).to_owned()
            };
            let key = |from, to| (from, to, communicator(), value("tag"), value("bytes"));
            let is_new = match event.role() {
                Role::Send => found.sends.insert(key(own, value("peer"))),
                Role::Receive => found.receives.insert(key(value("peer"), own)),
                Role::CollectiveBegin if value("operation") == 11 => {
                    let key = (communicator(), value("bytes_sent"));
                    begins.insert((event.stream(), event.time()), key.clone());
                    found
                        .reductions
                        .entry(key)
                        .or_default()
                        .insert(event.rank())
                }
                _ => true,
            };
            assert!(is_new, "sizes identify messages and reductions: {values:?}");
            ControlFlow::Continue(())
        };
        let all = Query::new();
        let summary = reader.for_each_event(&all, visit).expect("events");
        let summary = summary.expect("all events");
        let extractor = MessageExtractor::of(definitions, &summary).expect("messages");
        let mut pairs = MessagePairs::new(extractor.into());
        let mut check = |message: annals_merger::Message| {
            assert_eq!(message.send.bytes, message.receive.bytes, "{message:?}");
            found.pairs += 1;
        };
        reader
            .for_each_chunk(Window::ALL, |chunk: OrderedChunk| {
                pairs.take(&chunk, &mut check);
                Ok(())
            })
            .expect("chunks");
        pairs.finish(&mut check);
        for_each_collective(&reader, &all, |operation| {
            let keys: BTreeSet<Option<&ReductionKey>> = operation
                .begins
                .iter()
                .map(|begin| begins.get(&(begin.stream, begin.time_ns)))
                .collect();
            assert_eq!(keys.len(), 1, "one operation: {keys:?}");
            found.operations += u64::from(keys.iter().all(Option::is_some));
        })
        .expect("operations");
        found
    }

    /// Returns the number of messages whose sides are both recorded.
    fn whole_messages(&self) -> u64 {
        self.sends.intersection(&self.receives).count() as u64
    }

    /// Returns the number of reductions that all their members have begun. The members are those in
    /// the recordings without losses.
    fn whole_reductions(&self, all: &Self) -> u64 {
        let is_whole =
            |(key, ranks): &(&ReductionKey, &BTreeSet<u32>)| all.reductions[*key] == **ranks;
        self.reductions.iter().filter(is_whole).count() as u64
    }
}

/// Random numbers (Knuth, The Art of Computer Programming, volume 2, section 3.3.4: MMIX).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005);
        self.0 = self.0.wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// Returns the pages of events of a recording: the start and the end of their contents.
fn pages(bytes: &[u8]) -> Vec<(usize, usize)> {
    let (mut found, mut at) = (Vec::new(), FILE_HEADER_LEN);
    while let Some(header) = bytes
        .get(at..)
        .and_then(|rest| BlockHeader::decode(rest).ok())
    {
        let end = at + header.block_len() as usize;
        if header.kind == BlockKind::Chunk {
            found.push((end - 8, end));
        }
        at = end;
    }
    found
}

/// Copies recordings without the pages that are chosen by file and number. Returns the number of
/// these pages.
fn lose(from: &Path, to: &Path, mut is_lost: impl FnMut(usize, usize) -> bool) -> u64 {
    let _ = std::fs::remove_dir_all(to);
    std::fs::create_dir_all(to).expect("a directory");
    let files = std::fs::read_dir(from).expect("recordings");
    let mut files: Vec<_> = files.map(|file| file.expect("a file").path()).collect();
    files.sort();
    let mut count = 0;
    for (number, file) in files.iter().filter(|file| file.is_file()).enumerate() {
        let mut bytes = std::fs::read(file).expect("a file");
        for (page, (start, end)) in pages(&bytes).into_iter().enumerate() {
            if is_lost(number, page) {
                bytes[start..end].iter_mut().for_each(|byte| *byte ^= 0x5a);
                count += 1;
            }
        }
        let name = file.file_name().expect("a name");
        std::fs::write(to.join(name), bytes).expect("a copy");
    }
    count
}

fn small_pages(flavour: &mut Flavour) {
    flavour.set("ANNALS_PAGE", "4K");
    flavour.set("ANNALS_BUFFER", "4M");
}

fn recorded(flavour: &Flavour, name: &str, arguments: &[&str]) -> Run {
    let run = match name.ends_with(".py") {
        true => {
            let python = flavour.python().expect("a flavour with Python");
            let script = crate::support::source(name).display().to_string();
            flavour.record(&python, &[&[script.as_str()], arguments].concat(), false)
        }
        false => flavour.record(&flavour.program(name), arguments, false),
    };
    assert_eq!(run.code, Some(0), "{}: {}", flavour.name, run.said);
    run
}

/// In each of many copies, one page in a hundred is lost at random.
#[test]
fn of_what_is_left_after_losses_nearly_all_is_matched_and_nothing_wrongly() {
    let programs = flavours().filter(|flavour| ["mpich", "openmpi"].contains(&flavour.name));
    let programs = programs.flat_map(|flavour| {
        ["exchange.c", "exchange.py"].map(|program| (flavour.clone(), program))
    });
    for (mut flavour, program) in programs {
        small_pages(&mut flavour);
        let what = format!("{} {program}", flavour.name);
        let run = recorded(&flavour, program, &["700"]);
        let all = Found::of(&run.recordings());
        assert_eq!(all.sends, all.receives, "{what}");
        assert_eq!(all.pairs, all.sends.len() as u64, "{what}");
        assert_eq!(all.operations, all.reductions.len() as u64, "{what}");
        let copy = run.recordings().with_extension("lossy");
        let (mut lost, mut wanted, mut found) = (0, [0; 2], [0; 2]);
        for seed in 0..12 {
            let mut random = Random(seed);
            lost += lose(&run.recordings(), &copy, |_, _| random.below(100) == 0);
            let left = Found::of(&copy);
            wanted[0] += left.whole_messages();
            wanted[1] += left.whole_reductions(&all);
            found[0] += left.pairs;
            found[1] += left.operations;
        }
        println!(
            "{what}: {lost} pages lost; messages, reductions: {found:?} of {wanted:?} matched"
        );
        assert!(lost > 3, "{what}: {lost}");
        for (wanted, found) in wanted.into_iter().zip(found) {
            assert!(found <= wanted, "{what}: {found} of {wanted}");
            assert!(found * 100 >= wanted * 95, "{what}: {found} of {wanted}");
        }
    }
}

#[test]
fn a_page_that_is_lost_at_the_start_costs_no_later_collective_operation() {
    let flavours = flavours().filter(|flavour| ["mpich", "openmpi"].contains(&flavour.name));
    for mut flavour in flavours {
        small_pages(&mut flavour);
        flavour.processes = 2;
        let run = recorded(&flavour, "exchange.c", &["0", "10000"]);
        let all = Found::of(&run.recordings());
        assert_eq!(all.operations, 10_000, "{}", flavour.name);
        let copy = run.recordings().with_extension("lossy");
        let lost = lose(&run.recordings(), &copy, |file, page| {
            (file, page) == (1, 0)
        });
        assert_eq!(lost, 1, "{}", flavour.name);
        let left = Found::of(&copy);
        let whole = left.whole_reductions(&all);
        println!(
            "{}: {} of {whole} reductions matched",
            flavour.name, left.operations
        );
        assert!((9000..10_000).contains(&whole), "{}: {whole}", flavour.name);
        assert_eq!(left.operations, whole, "{}", flavour.name);
    }
}
