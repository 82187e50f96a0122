use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use proptest::prelude::*;

use super::*;

const ALL: usize = 1 << 16;

fn samples() -> PathBuf {
    let samples = "../../../shared/reference/flight-recorder-samples/gloo-4-missing";
    Path::new(env!("CARGO_MANIFEST_DIR")).join(samples)
}

/// Returns whether the samples are here.
fn has_samples() -> bool {
    let samples = samples();
    if !samples.exists() {
        println!("NOT TESTED: {} is not there", samples.display());
    }
    samples.exists()
}

fn sample(name: &str) -> Vec<u8> {
    std::fs::read(samples().join(name)).expect("a sample")
}

fn parse(bytes: &[u8]) -> annals_format::Result<Dump> {
    Dump::parse(bytes, ALL)
}

/// Returns what a program of Python writes to its standard output.
fn python(program: &str, input: &[u8]) -> Vec<u8> {
    let mut child = Command::new("python3")
        .args(["-c", program])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("Python");
    let mut stdin = child.stdin.take().expect("piped");
    stdin.write_all(input).expect("Python reads");
    drop(stdin);
    let output = child.wait_with_output().expect("Python ends");
    assert!(output.status.success(), "{program}");
    output.stdout
}

#[test]
fn pickles_of_python_in_every_protocol_say_what_that_of_pytorch_says() {
    if !has_samples() {
        return;
    }
    for rank in 0..4 {
        let own = sample(&format!("rank_{rank}"));
        let expected = parse(&own).expect("a dump");
        assert_eq!(expected.entries.len(), [31, 26, 31, 25][rank], "{rank}");
        assert!(expected.is_whole() || expected.has_other_operations);
        for protocol in 2..=5 {
            for fast in ["False", "True"] {
                let program = format!(
                    "import pickle, sys\nd = pickle.load(sys.stdin.buffer)\np = pickle.Pickler(sys.stdout.buffer, {protocol})\n\
                     p.fast = {fast}\np.dump(d)"
                );
                let found = parse(&python(&program, &own)).expect("a dump");
                assert_eq!(found, expected, "rank {rank}, protocol {protocol}");
            }
        }
        // JSON has no call paths, and 0 for `None`.
        let mut json = parse(&sample(&format!("rank_{rank}.json"))).expect("a dump");
        json.call_paths.clone_from(&expected.call_paths);
        let paths = expected.entries.iter().map(|of| of.call_path);
        json.entries
            .iter_mut()
            .zip(paths)
            .for_each(|(of, path)| of.call_path = path);
        assert_eq!(json, expected, "rank {rank}");
    }
}

#[test]
fn what_is_missing_or_has_another_form_is_read_as_what_it_means() {
    let entry = r#"{"pg_id": 0, "profiling_name": "nccl:all_reduce", "record_id": "7", "collective_seq_id": 3.0, "input_sizes": [[2, 3], []],
        "state": "scheduled", "time_discovered_completed_ns": null, "retired": false, "new_key": {"a": [1]}}"#;
    let bare = parse(format!("[{entry}]").as_bytes()).expect("a list");
    let of = &bare.entries[0];
    assert_eq!(
        (of.sequence, of.elements, of.state),
        (3, [Some(7), None], State::Scheduled)
    );
    assert_eq!(
        (bare.version, bare.overwritten, bare.groups[0].name.clone()),
        (None, Some(7), None)
    );
    // The oldest lists of ranks have numbers for keys; one number counts messages as well.
    let old = python(
        "import pickle, sys\nsys.stdout.buffer.write(pickle.dumps({'version': '1.4', 'entries': [\
         {'record_id': n, 'pg_id': 5, 'seq_id': n + 1, 'profiling_name': 'nccl:' + ['send 1->0', 'broadcast'][n], 'state': 'completed'} \
         for n in range(2)], 'pg_config': {5: [0, 1]}}, 2))",
        b"",
    );
    let old = parse(&old).expect("a dump of version 1.4");
    assert_eq!(old.groups[0].ranks.as_deref(), Some(&vec![0, 1]));
    assert!(
        old.entries.iter().all(|of| of.sequence == 0),
        "not comparable"
    );
    assert_eq!(old.entries[0].channel, Some((1, 0)));
    // Messages that are launched together are complete when the entry that ends them is.
    let launched = r#"{"version": "2.10", "entries": [
        {"record_id": 0, "p2p_seq_id": 1, "profiling_name": "nccl:recv 0<-1", "state": "scheduled"},
        {"record_id": 1, "p2p_seq_id": 1, "profiling_name": "nccl:coalesced", "state": "completed"}]}"#;
    let launched = parse(launched.as_bytes()).expect("a dump");
    assert_eq!(launched.entries[0].state, State::Completed);
    assert_eq!(launched.version, Some((2, 10)));
    for wrong in [
        r#"{"version": "3.0", "entries": []}"#,
        r#"{"version": "2.10", "entries": [{"record_id": "many"}]}"#,
        r#"{"version": "2.10", "entries": [{"record_id": 0.5}]}"#,
        r#"{"traceEvents": []}"#,
        r#"{"version": "2.10", "entries": []} 1"#,
        r#"{"version": "2.10", "entries": [7]}"#,
    ] {
        assert!(parse(wrong.as_bytes()).is_err(), "{wrong}");
    }
}

/// Returns a pickle of protocol 2 with these opcodes.
fn pickle(opcodes: &[u8]) -> Vec<u8> {
    [b"\x80\x02", opcodes].concat()
}

#[test]
fn opcodes_that_are_no_plain_data_are_refused_with_their_offset_and_name() {
    let named: [(&[u8], &str); 14] = [
        (b"cposix\nsystem\n.", "GLOBAL posix system"),
        (
            b"\x8c\x05posix\x8c\x06system\x93.",
            "STACK_GLOBAL posix system",
        ),
        (b"}R.", "REDUCE"),
        (b"}}b.", "BUILD"),
        (b"(iposix\nsystem\n.", "INST posix system"),
        (b"(o.", "OBJ"),
        (b")\x81.", "NEWOBJ"),
        (b")\x92.", "NEWOBJ_EX"),
        (b"Pid\n.", "PERSID"),
        (b"NQ.", "BINPERSID"),
        (b"\x82\x01.", "EXT1"),
        (b"\x84\x01\x00\x00\x00.", "EXT4"),
        (b"\x97.", "NEXT_BUFFER"),
        (b"\x98.", "READONLY_BUFFER"),
    ];
    for (opcodes, name) in named {
        let error = parse(&pickle(opcodes)).expect_err(name).to_string();
        let offset = opcodes
            .iter()
            .position(|opcode| b"cRbioPQ\x93\x81\x92\x82\x84\x97\x98".contains(opcode));
        let place = format!("byte {}", 2 + offset.expect("an opcode"));
        // A text before it may have such a byte, too.
        assert!(
            error.contains(name) && (error.contains(&place) || name.contains("STACK")),
            "{error}"
        );
    }
    // Every other byte is plain data or an error; nothing else.
    for opcode in 0..=255_u8 {
        let _ = parse(&pickle(&[opcode, b'.']));
    }
    let touched = tempfile::tempdir().expect("a directory");
    let path = touched.path().join("touched");
    let mut program = String::new();
    let _ = write!(
        program,
        "import pickle, sys\nclass Evil:\n    def __reduce__(self): return (open, ({path:?}, 'w'))\n\
         sys.stdout.buffer.write(pickle.dumps({{'version': '2.10', 'entries': [Evil()]}}, 4))"
    );
    assert!(parse(&python(&program, b"")).is_err() && !path.exists());
}

#[test]
fn hostile_pickles_are_errors_within_their_limits() {
    let cases: [(&str, Vec<u8>); 10] = [
        ("nothing on the stack", pickle(b".")),
        ("below the mark", pickle(b"}(s.")),
        ("a number never put", pickle(b"h\x07.")),
        ("more after the end", pickle(b"}.N")),
        ("a text of 4 GiB", pickle(b"X\xff\xff\xff\xffabc")),
        (
            "a text of 2^63 bytes",
            pickle(b"\x8d\xff\xff\xff\xff\xff\xff\xff\x7fabc"),
        ),
        (
            "an integer of 17 bytes",
            pickle(b"\x8a\x11abcdefghijklmnopq."),
        ),
        ("protocol 1", b"\x80\x01}.".to_vec()),
        ("marks for ever", pickle(&vec![b'('; 20 << 20])),
        ("a key without a value", pickle(b"}(Nu.")),
    ];
    for (what, bytes) in cases {
        assert!(parse(&bytes).is_err(), "{what}");
    }
    // A list that has itself: its items are read to the depth that a dump has.
    let entries = b"X\x07\x00\x00\x00entries";
    let itself = [b"}", &entries[..], b"]q\x00h\x00as."].concat();
    assert!(parse(&pickle(&itself)).is_err());
    // 4000 entries that share 4000 tensors, which share 4000 sizes: 6.4 10^10 numbers in some kilobytes.
    let laughs = python(
        "import pickle, sys\nsizes = [1] * 4000\nentry = {'input_sizes': [sizes] * 4000}\n\
         sys.stdout.buffer.write(pickle.dumps({'version': '2.10', 'entries': [entry] * 4000}, 4))",
        b"",
    );
    let error = parse(&laughs).expect_err("too much").to_string();
    assert!(error.contains("what is shared counts each time"), "{error}");
}

#[test]
fn a_dump_that_is_cut_anywhere_is_an_error() {
    if !has_samples() {
        return;
    }
    for name in ["rank_3", "rank_3.json"] {
        let whole = sample(name);
        for length in 0..whole.len() {
            assert!(parse(&whole[..length]).is_err(), "{name}, {length} bytes");
        }
    }
}

proptest! {
    #[test]
    fn any_bytes_are_a_dump_or_an_error(changes in prop::collection::vec((any::<u16>(), any::<u8>()), 1..6), which in 0..4_usize) {
        if !has_samples() {
            return Ok(());
        }
        let mut bytes = sample(["rank_0", "rank_1", "rank_3", "rank_3.json"][which]);
        for (at, byte) in changes {
            let at = usize::from(at) % bytes.len();
            bytes[at] = byte;
        }
        if let Ok(dump) = parse(&bytes) {
            prop_assert!(dump.entries.iter().all(|of| (of.group as usize) < dump.groups.len()));
        }
    }
}

#[test]
fn files_are_dumps_of_the_rank_in_their_names() {
    if !has_samples() {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let write = |name: &str, bytes: &[u8]| {
        std::fs::write(directory.path().join(name), bytes).expect("a file");
    };
    write("trace_rank_0", &sample("rank_0"));
    write("trace_rank_0.json", &sample("rank_0.json"));
    write("trace_rank_11.json", &sample("rank_1.json"));
    // It was cut to nothing, but is one of them by its name.
    write("trace_rank_2", b"");
    write("log.7", b"not a dump");
    // A date, perhaps: no job has as many ranks.
    write("trace_rank_20261129", &sample("rank_0"));
    write("README", b"{}");
    let found = dump_files(&[directory.path().to_owned()]).expect("a directory");
    let found = found.expect("dumps").into_iter();
    let ranks: Vec<(u32, String)> = found
        .map(|file| {
            (
                file.rank,
                file.path
                    .file_name()
                    .unwrap_or_default()
                    .to_string_lossy()
                    .into_owned(),
            )
        })
        .collect();
    let expected = [
        (0, "trace_rank_0"),
        (2, "trace_rank_2"),
        (11, "trace_rank_11.json"),
    ];
    assert_eq!(ranks, expected.map(|(rank, name)| (rank, name.to_owned())));
    write("run-host-1.annals", b"");
    assert_eq!(
        dump_files(&[directory.path().to_owned()]).expect("a directory"),
        None
    );
    let nameless = directory.path().join("dump");
    write("dump", &sample("rank_0"));
    assert!(
        dump_files(&[nameless])
            .expect_err("no rank")
            .to_string()
            .contains("ends with the rank")
    );
}
