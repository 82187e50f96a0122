//! Files that stay in the tree, and what must be read from them: good ones, cut, damaged, and from the
//! future. `ANNALS_BLESS=1` writes them anew, after a change that is meant.

use std::path::{Path, PathBuf};
use std::process::Command;

use annals_format::{
    BlockKind, BlockWriter, CompressionLevel, FileHeader, SYNC, SourceOrder, wire::Put,
};
use annals_test_support::{
    ENTER, LEAVE, MARK, REFERENCE, Row, TestClock, TestRecording, TestStream,
};
use serde_json::{Value, json};

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data")
}

fn good(level: CompressionLevel, has_footer: bool) -> Vec<u8> {
    let at = |us: u64| 5_000_000_000 + us * 1000;
    let small = TestClock {
        kind: annals_format::ClockKind::Readable,
        ticks_per_second: 1_000_000,
        max_ticks: 999,
        tick_at_zero: 17,
    };
    let device = |us: u64| small.tick(at(us) as i64);
    let chunk = |first: u64| {
        let rows = (first..first + 20).flat_map(|n| {
            let us = n * 10;
            [
                Row::Event(ENTER, at(us), n % 4),
                Row::Event(MARK, at(us + 3), n),
                Row::Event(LEAVE, at(us + 5), n % 4),
            ]
        });
        rows.collect::<Vec<_>>()
    };
    let mut third = chunk(40);
    third.insert(0, Row::Dropped(Some(MARK), 11, at(396), at(400)));
    TestRecording {
        rank: Some(0),
        rank_count: Some(1),
        id: 1,
        start_ns: at(0) as i64,
        end_ns: at(1000) as i64,
        clocks: vec![REFERENCE, small],
        streams: vec![
            TestStream {
                clock: 0,
                ordering: SourceOrder::Ordered,
                chunks: vec![
                    (at(0) as i64, chunk(0)),
                    (at(200) as i64, chunk(20)),
                    (at(400) as i64, third),
                ],
            },
            TestStream {
                clock: 1,
                ordering: SourceOrder::Unordered,
                chunks: vec![(
                    at(130) as i64,
                    vec![
                        Row::Observation(at(130) as i64),
                        Row::Event(MARK, device(120), 1000),
                        Row::Event(MARK, device(90), 1001),
                        Row::Observation(at(990) as i64),
                        Row::Event(MARK, device(985), 1002),
                    ],
                )],
            },
        ],
        has_footer,
    }
    .encode(level)
}

/// Offsets of the blocks.
fn blocks(bytes: &[u8]) -> Vec<usize> {
    let windows = bytes.windows(SYNC.len()).enumerate();
    windows
        .filter(|(_, window)| *window == SYNC)
        .map(|(at, _)| at)
        .collect()
}

fn files() -> Vec<(&'static str, Vec<u8>)> {
    let whole = good(CompressionLevel::None, true);
    let at = blocks(&whole);
    // Blocks: definitions, three chunks, one chunk, footer.
    let mut flipped = whole.clone();
    flipped[(at[2] + at[3]) / 2] ^= 0x20;
    let mut flipped_without_footer = good(CompressionLevel::None, false);
    let second = blocks(&flipped_without_footer)[2];
    flipped_without_footer[second + 20] ^= 1;

    let mut future = whole[..at[1]].to_vec();
    let mut header = FileHeader::decode(&future).expect("a header");
    header.minor = 9;
    future[..64].copy_from_slice(&header.encode());
    let mut records = Vec::new();
    records.put_varint(250);
    records.put_bytes(b"a definition that is not invented yet");
    let mut writer = BlockWriter::new(CompressionLevel::None).expect("a writer");
    writer.write(BlockKind::Definitions, &[], &records, &mut future);
    writer.write(
        BlockKind::Unknown(77),
        b"head",
        b"a block of tomorrow",
        &mut future,
    );
    // No footer: its offsets would not fit.
    future.extend_from_slice(&whole[at[1]..at[5]]);

    let mut refused = whole.clone();
    header.major = 2;
    refused[..64].copy_from_slice(&header.encode());

    vec![
        ("good", good(CompressionLevel::Zstd(1), true)),
        ("good-no-footer", good(CompressionLevel::Zstd(1), false)),
        (
            "truncated-in-a-chunk",
            whole[..(at[3] + at[4]) / 2].to_vec(),
        ),
        ("truncated-in-a-header", whole[..at[3] + 10].to_vec()),
        ("flipped-body", flipped),
        ("flipped-header", flipped_without_footer),
        ("future-minor", future),
        ("future-major", refused),
        ("empty", Vec::new()),
    ]
}

fn read(path: &Path) -> Value {
    let run = |arguments: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_trace-cli"))
            .args(arguments)
            .arg(path.file_name().expect("a name"))
            .current_dir(path.parent().expect("a directory"))
            .output()
            .expect("trace-cli runs");
        let text = String::from_utf8(output.stdout).expect("UTF-8");
        (
            output.status.code(),
            text,
            String::from_utf8_lossy(&output.stderr).into_owned(),
        )
    };
    let (code, info, said) = run(&["info", "--json"]);
    if code == Some(1) {
        return json!({ "exit_code": 1, "error": said });
    }
    let parse = |text: &str| serde_json::from_str::<Value>(text).expect("JSON");
    let (_, print, _) = run(&["print", "--json", "--losses"]);
    let (check, dropped, _) = run(&["dropped", "--json", "--check"]);
    json!({
        "exit_code": code,
        "check_exit_code": check,
        "info": parse(&info),
        "dropped": parse(&dropped),
        "print": print.lines().map(parse).collect::<Vec<_>>(),
    })
}

#[test]
fn files_in_the_tree_read_as_they_always_have() {
    let is_blessed = std::env::var_os("ANNALS_BLESS").is_some();
    if is_blessed {
        for (name, bytes) in files() {
            let path = directory().join(format!("{name}.annals"));
            std::fs::write(&path, bytes).expect("the file is written");
            let expected = serde_json::to_string_pretty(&read(&path)).expect("JSON");
            std::fs::write(path.with_extension("json"), expected + "\n").expect("it is written");
        }
    }
    let mut read_files = 0;
    for entry in std::fs::read_dir(directory())
        .expect("the directory")
        .flatten()
    {
        let path = entry.path();
        if path
            .extension()
            .is_none_or(|extension| extension != "annals")
        {
            continue;
        }
        let expected = std::fs::read_to_string(path.with_extension("json")).expect("its JSON");
        let expected: Value = serde_json::from_str(&expected).expect("JSON");
        assert_eq!(read(&path), expected, "{}", path.display());
        read_files += 1;
    }
    assert!(read_files >= files().len(), "every file is there");
}

/// What the JSON files cannot show by themselves: that they say the right thing.
#[test]
fn damage_costs_what_it_hits_and_is_counted() {
    if std::env::var_os("ANNALS_BLESS").is_some() {
        return;
    }
    let whole = read(&directory().join("good.annals"));
    let events = whole["info"]["events"].as_u64().expect("a count");
    assert_eq!(events, 183);
    assert_eq!(whole["exit_code"], 0);
    assert_eq!(whole["info"]["dropped"], 11);
    for (name, lost) in [
        ("flipped-body", 60),
        ("flipped-header", 60),
        ("truncated-in-a-chunk", 60),
        ("good-no-footer", 0),
        ("future-minor", 0),
    ] {
        let found = read(&directory().join(format!("{name}.annals")));
        let info = &found["info"];
        let sum = info["skipped"].as_u64().expect("a count")
            + info["truncated"].as_u64().expect("a count");
        assert_eq!(sum, lost, "{name}");
        if name != "truncated-in-a-chunk" {
            assert_eq!(info["events"], events - lost, "{name}");
        }
        assert_eq!(found["info"]["complete"], false, "{name}");
    }
    let refused = read(&directory().join("future-major.annals"));
    let error = refused["error"].as_str().expect("a message");
    assert!(error.contains("2.9") && error.contains("1.x"), "{error}");
}

/// Exit code 3 is explained on standard error: the file, the place in it, and what the damage cost.
#[test]
fn damage_is_told_with_its_place_and_what_it_costs() {
    let scratch = tempfile::tempdir().expect("a directory");
    let exported = scratch.path().join("run.json");
    let exported = exported.to_str().expect("a name");
    let chunk_of = |name: &str| {
        let bytes = std::fs::read(directory().join(format!("{name}.annals")));
        blocks(&bytes.expect("a file in the tree"))[2]
    };
    let at = |name: &str| format!("{name}.annals: byte {}: ", chunk_of(name));
    let lost = "60 events cannot be read".to_owned();
    for (name, told) in [
        ("good", vec![]),
        (
            "flipped-body",
            vec![
                at("flipped-body"),
                "60 events of rank 0, thread 0 are lost".to_owned(),
                lost.clone(),
            ],
        ),
        ("flipped-header", vec![at("flipped-header"), lost.clone()]),
        (
            "truncated-in-a-chunk",
            vec!["truncated-in-a-chunk.annals: ends early".to_owned(), lost],
        ),
        (
            "good-no-footer",
            vec!["good-no-footer.annals: ends early".to_owned()],
        ),
    ] {
        let input = directory().join(format!("{name}.annals"));
        for arguments in [
            ["export", "--quiet", "-o", exported].as_slice(),
            &["print"],
            &["regions"],
            &["info"],
        ] {
            let mut command = Command::new(env!("CARGO_BIN_EXE_trace-cli"));
            let command = command.arg(arguments[0]).arg(&input).args(&arguments[1..]);
            let output = command.output().expect("trace-cli runs");
            let said = String::from_utf8_lossy(&output.stderr);
            let expected = if told.is_empty() { 0 } else { 3 };
            assert_eq!(output.status.code(), Some(expected), "{name}: {said}");
            assert_eq!(said.is_empty(), told.is_empty(), "{name}: {said}");
            for what in &told {
                assert!(said.contains(what), "{arguments:?}: {what}: {said}");
            }
        }
    }
}

/// Returns the pixels of a picture.
fn pixels(bytes: &[u8]) -> (u32, u32, Vec<u8>) {
    let mut reader = png::Decoder::new(std::io::Cursor::new(bytes))
        .read_info()
        .expect("a picture");
    let mut pixels = vec![0; reader.output_buffer_size().expect("its size")];
    let info = reader.next_frame(&mut pixels).expect("its pixels");
    (info.width, info.height, pixels)
}

/// Pictures are compared with reference pictures that were checked by eye.
#[test]
fn pictures_look_as_they_always_have() {
    let input = directory().join("good.annals");
    let draw = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_trace-cli"));
        let command = command.env("NO_COLOR", "1").arg(arguments[0]).arg(&input);
        let output = command
            .args(&arguments[1..])
            .output()
            .expect("trace-cli runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {said}");
        output.stdout
    };
    let scratch = tempfile::tempdir().expect("a directory");
    let path = |name: &str| {
        scratch
            .path()
            .join(name)
            .to_str()
            .expect("a name")
            .to_owned()
    };
    let width = ["--width", "300"];
    let timeline = |option| {
        let file = path(&format!("timeline{option}"));
        draw(&["timeline", option, &file, width[0], width[1]]);
        std::fs::read(&file).expect("a picture")
    };
    let histogram = || {
        let file = path("histogram");
        draw(&["histogram", "--region", "*", "--svg", &file]);
        std::fs::read(&file).expect("a picture")
    };
    let pictures = [
        ("timeline.txt", draw(&["timeline", "--width", "80"])),
        ("timeline.svg", timeline("--svg")),
        ("timeline.png", timeline("--png")),
        ("histogram.svg", histogram()),
    ];
    for (name, drawn) in pictures {
        let kept = directory().join(name);
        if std::env::var_os("ANNALS_BLESS").is_some() {
            std::fs::write(&kept, &drawn).expect("it is written");
        }
        let expected = std::fs::read(&kept).expect("a picture in the tree");
        let is_same = if name.ends_with(".png") {
            // How well a library compresses is its own affair.
            pixels(&drawn) == pixels(&expected)
        } else {
            drawn == expected
        };
        let advice = "look at the new one; if it is right, ANNALS_BLESS=1 keeps it";
        assert!(is_same, "{name} looks otherwise: {advice}");
    }
}
