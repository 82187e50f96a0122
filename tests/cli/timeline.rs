//! `trace-cli timeline` and the other pictures: what they show is what happened, and what they leave out they say.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use annals_analysis::{Colour, FULL, region_colour};
use annals_format::{CompressionLevel, SourceOrder};
use annals_test_support::{ENTER, LEAVE, MARK, REFERENCE, Row, TestRecording, TestStream};
use serde_json::Value;

fn run(arguments: &[&str], input: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_trace-cli"))
        .args(&arguments[..1])
        .arg(input)
        .args(&arguments[1..])
        .env("NO_COLOR", "1")
        .output()
        .expect("trace-cli runs")
}

fn text(arguments: &[&str], input: &Path) -> String {
    let output = run(arguments, input);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    String::from_utf8(output.stdout).expect("text")
}

/// Two threads for 160 us: the first is in main, and in solve from 40 to 80; between 100 and 120 something is lost.
/// The second is in exchange from 80 to 160.
fn two_threads() -> (tempfile::TempDir, PathBuf) {
    let at = |us: u64| 1_000_000 + us * 1000;
    let stream = |rows| TestStream {
        clock: 0,
        ordering: SourceOrder::Ordered,
        chunks: vec![(1_000_000, rows)],
    };
    let first = vec![
        Row::Event(ENTER, at(0), 0),
        Row::Event(ENTER, at(40), 1),
        Row::Event(LEAVE, at(80), 1),
        Row::Event(MARK, at(100), 7),
        Row::Dropped(Some(ENTER), 5, at(100), at(120)),
        Row::Event(MARK, at(120), 7),
        Row::Event(LEAVE, at(160), 0),
    ];
    let second = vec![Row::Event(ENTER, at(80), 2), Row::Event(LEAVE, at(160), 2)];
    let recording = TestRecording {
        rank: Some(0),
        rank_count: Some(1),
        id: 0,
        start_ns: 1_000_000,
        end_ns: 1_160_000,
        clocks: vec![REFERENCE],
        streams: vec![stream(first), stream(second)],
        has_footer: true,
    };
    let scratch = tempfile::tempdir().expect("a directory");
    let path = recording.write(scratch.path(), CompressionLevel::None);
    (scratch, path)
}

#[test]
fn a_lane_shows_what_its_thread_was_in_and_what_was_lost() {
    let (_scratch, path) = two_threads();
    let shown = text(&["timeline", "--width", "36", "--to", "160us"], &path);
    let expected = "\
test-host-0.annals, the time window: 160.0 us from 0 ns to 160.0 us
rank 0 · thread 0  │AAAACCCCAA▒▒▒AAA
rank 0 · thread 1  │········BBBBBBBB
                   └┴─────────┴─────
                    0 us      100 us
  A main  ~120.0 us (50.0 %)
  B exchange  ~80.00 us (33.3 %)
  C solve  ~40.00 us (16.7 %)
  · outside of all regions
  ▒ events were lost: 5 in 1 place
";
    assert_eq!(shown, expected);
    let part = text(
        &[
            "timeline", "--width", "30", "--from", "40us", "--to", "60us",
        ],
        &path,
    );
    assert!(
        part.contains("rank 0 · thread 0  │AAAAAAAAAA\nrank 0 · thread 1  │··········\n"),
        "{part}"
    );
    assert!(part.contains("  A solve  20.00 us (100.0 %)"), "{part}");
}

#[test]
fn lanes_that_are_left_out_are_said() {
    let (_scratch, path) = two_threads();
    let shown = text(&["timeline", "--width", "36", "--lanes", "1"], &path);
    assert!(
        shown.contains("note: 1 of 2 locations are shown"),
        "{shown}"
    );
    assert_eq!(shown.lines().filter(|line| line.contains('│')).count(), 1);
}

#[test]
fn colours_come_when_they_are_asked_for() {
    let (_scratch, path) = two_threads();
    assert!(!text(&["timeline", "--width", "36"], &path).contains('\u{1b}'));
    let painted = text(&["timeline", "--width", "36", "--color", "always"], &path);
    let main = region_colour("main");
    let block = format!("\u{1b}[38;2;{};{};{}m████", main.0, main.1, main.2);
    assert!(painted.contains(&block), "{painted}");
}

#[test]
fn json_has_every_level_with_its_times() {
    let (_scratch, path) = two_threads();
    let found = text(
        &["timeline", "--json", "--width", "16", "--to", "160us"],
        &path,
    );
    let found: Value = serde_json::from_str(&found).expect("JSON");
    let lane = &found["lanes"][0];
    assert_eq!(lane["location"], "thread 0");
    let runs = |level: usize| -> Vec<(String, i64, i64)> {
        let runs = lane["levels"][level].as_array().expect("runs").iter();
        let run = |run: &Value| {
            let time = |name: &str| run[name].as_i64().expect("a time");
            (
                run["region"].as_str().expect("a name").to_owned(),
                time("from_ns"),
                time("to_ns"),
            )
        };
        runs.map(run).collect()
    };
    assert_eq!(runs(0), [("main".to_owned(), 0, 160_000)]);
    assert_eq!(runs(1), [("solve".to_owned(), 40_000, 80_000)]);
    assert_eq!(lane["gaps"][0]["count"], 5);
    // Columns begin with bins of 128 ns.
    let from_ns = lane["gaps"][0]["from_ns"].as_i64().expect("a time");
    assert!((99_872..=100_000).contains(&from_ns), "{from_ns}");
}

/// The pixels of a picture.
struct Decoded {
    width: u32,
    bytes: Vec<u8>,
}

impl Decoded {
    /// Returns the colour of a pixel, as in SVG.
    fn at(&self, x: usize, y: usize) -> String {
        let at = (y * self.width as usize + x) * 3;
        let [r, g, b] = self.bytes[at..at + 3].try_into().expect("three bytes");
        Colour(r, g, b).hex()
    }
}

fn decoded(path: &Path) -> Decoded {
    let file = std::fs::File::open(path).expect("a picture");
    let mut reader = png::Decoder::new(std::io::BufReader::new(file))
        .read_info()
        .expect("a PNG file");
    let mut bytes = vec![0; reader.output_buffer_size().expect("a size")];
    let info = reader.next_frame(&mut bytes).expect("pixels");
    assert_eq!(info.color_type, png::ColorType::Rgb);
    Decoded {
        width: info.width,
        bytes,
    }
}

/// Returns the numbers of a shape's attributes.
fn attribute(shape: &str, name: &str) -> f64 {
    let start = shape.split(&format!(" {name}=\"")).nth(1).expect(name);
    let number = start.split('"').next().expect("an end");
    number.parse().expect("a number")
}

/// Returns where the first lane of a picture begins: it is the first box in the background's
/// colour.
fn place_of_lane(svg: &str) -> (f64, f64) {
    let mut shapes = svg.lines().filter(|line| line.starts_with("<rect "));
    let lane = shapes.find(|shape| shape.contains("fill=\"#ececec\""));
    let lane = lane.expect("a lane");
    (attribute(lane, "x"), attribute(lane, "y"))
}

/// A call: level, region, begin and end in nanoseconds.
type Call = (usize, u64, i64, i64);

/// Returns a thread whose calls nest at random, most of them shorter than a column of a picture.
fn random_calls(seed: u64) -> (tempfile::TempDir, PathBuf, Vec<Call>) {
    let mut state = seed;
    let mut random = |below: u64| {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        (state >> 33) % below
    };
    let (mut now, mut rows, mut calls) = (0, Vec::new(), Vec::new());
    let mut open: Vec<(u64, i64)> = Vec::new();
    for _ in 0..400 {
        now += match random(12) {
            0 => 1 + random(40_000) as i64,
            _ => 1 + random(600) as i64,
        };
        let tick = 1_000_000 + now as u64;
        if open.len() < 4 && (open.is_empty() || random(2) == 0) {
            let region = random(4);
            open.push((region, now));
            rows.push(Row::Event(ENTER, tick, region));
        } else if let Some((region, begin)) = open.pop() {
            calls.push((open.len(), region, begin, now));
            rows.push(Row::Event(LEAVE, tick, region));
        }
    }
    while let Some((region, begin)) = open.pop() {
        now += 1;
        calls.push((open.len(), region, begin, now));
        rows.push(Row::Event(LEAVE, 1_000_000 + now as u64, region));
    }
    let recording = TestRecording {
        rank: Some(0),
        rank_count: Some(1),
        id: 0,
        start_ns: 1_000_000,
        end_ns: 1_000_000 + now,
        clocks: vec![REFERENCE],
        streams: vec![TestStream {
            clock: 0,
            ordering: SourceOrder::Ordered,
            chunks: vec![(1_000_000, rows)],
        }],
        has_footer: true,
    };
    let scratch = tempfile::tempdir().expect("a directory");
    let path = recording.write(scratch.path(), CompressionLevel::None);
    (scratch, path, calls)
}

/// Checks every bar of a timeline against the calls; the regions of `chosen` are drawn, on the levels of these alone. Returns
/// how many bars are one call, and how many are parts of calls or several.
fn check_bars(found: &Value, calls: &[Call], chosen: &[u64]) -> (usize, usize) {
    let names = annals_test_support::REGION_NAMES;
    let number = |value: &Value| value.as_i64().expect("a number");
    // A call's level among those that are drawn.
    let level_of = |call: &Call| {
        let around = |other: &&Call| {
            other.0 < call.0 && other.2 <= call.2 && call.3 <= other.3 && chosen.contains(&other.1)
        };
        calls.iter().filter(around).count()
    };
    let drawn: Vec<(usize, Call)> = calls
        .iter()
        .filter(|call| chosen.contains(&call.1))
        .map(|call| (level_of(call), *call))
        .collect();
    let end_ns = number(&found["to_ns"]);
    let (mut single, mut several) = (0, 0);
    let levels = found["lanes"][0]["levels"].as_array().expect("levels");
    for (level, bars) in levels.iter().enumerate() {
        for bar in bars.as_array().expect("bars") {
            let name = bar["region"].as_str().expect("a name");
            let region = names.iter().position(|known| *known == name);
            let region = region.expect("a region") as u64;
            let (from, to) = (number(&bar["from_ns"]), number(&bar["to_ns"]));
            let here = drawn.iter().filter(|(of_call, _)| *of_call == level);
            let here: Vec<&Call> = here.map(|(_, call)| call).collect();
            let inside = |call: &&Call| to.min(call.3) - from.max(call.2);
            if bar["is_summary"] == false {
                single += 1;
                let is_it = |call: &&&Call| (call.1, call.2, call.3) == (region, from, to);
                assert_eq!(here.iter().filter(is_it).count(), 1, "{bar}");
                continue;
            }
            several += 1;
            // A call that ends at a border ends in the columns after it.
            let ends = |call: &&&Call| from <= call.3 && (call.3 < to || to == end_ns);
            let expected = here.iter().filter(ends).count() as i64;
            assert_eq!(number(&bar["calls"]), expected, "level {level}: {bar}");
            let of_region = here.iter().filter(|call| call.1 == region);
            assert!(of_region.map(inside).any(|ns| ns > 0), "{bar}");
            let busy: i64 = here.iter().map(inside).map(|ns| ns.max(0)).sum();
            let fill = bar["fill"].as_f64().expect("a number");
            let exact = busy as f64 / (to - from).max(1) as f64;
            assert!(
                exact <= fill + 0.01 && fill <= exact + 0.08 || fill == 1.0,
                "{exact}: {bar}"
            );
        }
    }
    (single, several)
}

#[test]
fn a_bar_is_a_call_that_happened_or_says_how_many_end_in_it() {
    let mut singles = 0;
    for seed in 1..=30 {
        let (scratch, path, calls) = random_calls(seed);
        let found = text(&["timeline", "--json", "--width", "50"], &path);
        let found: Value = serde_json::from_str(&found).expect("JSON");
        let (single, several) = check_bars(&found, &calls, &[0, 1, 2, 3]);
        assert!(several > 4, "{single} {several}");
        singles += single;

        let found = text(
            &[
                "timeline",
                "--json",
                "--width",
                "50",
                "--region",
                "solve,write",
            ],
            &path,
        );
        let found: Value = serde_json::from_str(&found).expect("JSON");
        let (single, several) = check_bars(&found, &calls, &[1, 3]);
        assert!(single + several > 4, "{single} {several}");

        let svg = scratch.path().join("t.svg");
        let svg = svg.to_str().expect("a name");
        text(&["timeline", "--svg", svg, "--width", "50"], &path);
        let drawn = std::fs::read_to_string(svg).expect("a picture");
        assert!(drawn.contains("<title>mostly "), "{drawn}");
    }
    assert!(singles > 200, "{singles}");
}

#[test]
fn the_pixels_of_a_lane_are_the_regions_that_took_most_of_each_column() {
    const WIDTH: usize = 200;
    const LEVELS: usize = 4;
    let empty = Colour(0xec, 0xec, 0xec);
    for seed in 1..=8 {
        let (scratch, path, calls) = random_calls(seed);
        let end = calls.iter().map(|call| call.3).max().expect("calls");
        let (svg, png) = (scratch.path().join("t.svg"), scratch.path().join("t.png"));
        let names = [svg.to_str().expect("a name"), png.to_str().expect("a name")];
        let (width, to) = (WIDTH.to_string(), format!("{end}ns"));
        text(
            &[
                "timeline", "--svg", names[0], "--png", names[1], "--width", &width, "--from",
                "0ns", "--to", &to,
            ],
            &path,
        );
        let svg = std::fs::read_to_string(&svg).expect("a picture");
        let (left, top) = place_of_lane(&svg);
        let mut drawn = vec![vec![empty.hex(); WIDTH]; LEVELS];
        // Bars are the boxes with a title that begin in the lane.
        for bar in svg
            .lines()
            .filter(|line| line.starts_with("<rect ") && line.contains("<title>"))
        {
            let level = (attribute(bar, "y") - top) / 16.0;
            let from = (attribute(bar, "x") - left) as usize;
            let fill = bar.split("fill=\"").nth(1).expect("a fill");
            let fill = fill.split('"').next().expect("an end").to_owned();
            let to = (from + attribute(bar, "width") as usize).min(WIDTH);
            drawn[level as usize][from..to].fill(fill);
        }
        let pixels = decoded(&png);
        let (mut compared, mut boxes) = (0, 0);
        for (level, drawn) in drawn.iter().enumerate() {
            let start = |column: usize| end * column as i64 / WIDTH as i64;
            for (column, shown) in drawn.iter().enumerate() {
                // Columns begin with bins, and single calls with pixels: near the borders.
                let (from, to) = (start(column), start(column + 1));
                let near = (to - from) / 2 + 1;
                let here = calls
                    .iter()
                    .filter(|call| call.0 == level && call.2 <= to + near && call.3 >= from - near);
                let here: Vec<&Call> = here.collect();
                let is_of = |region: u64| {
                    let name = annals_test_support::REGION_NAMES[region as usize];
                    let colour = region_colour(name);
                    (1..=FULL).any(|fill| *shown == colour.filled(fill, empty).hex())
                };
                let is_region = here.iter().any(|call| is_of(call.1));
                let inside = |call: &&&Call| to.min(call.3) - from.max(call.2);
                let busy: i64 = here.iter().map(|call| inside(&call).max(0)).sum();
                let is_empty = 2 * busy <= to - from && *shown == empty.hex();
                assert!(
                    is_region || is_empty,
                    "seed {seed}, level {level}, column {column}: {shown}, {here:?}"
                );
                // One region that is there alone is what is shown.
                let first = here.first().map(|call| call.1);
                if busy == to - from && here.iter().all(|call| Some(call.1) == first) {
                    assert!(
                        is_of(first.expect("a call")),
                        "seed {seed}, level {level}, column {column}"
                    );
                }
                // The lowest pixels of a bar, below the names in bars.
                let (x, y) = (left as usize + column, top as usize + 16 * level + 14);
                let pixel = pixels.at(2 * x, 2 * y);
                assert_eq!(pixel, *shown, "seed {seed}, level {level}, column {column}");
                compared += 1;
                boxes += usize::from(busy != 0);
            }
        }
        assert!(compared == LEVELS * WIDTH && boxes > WIDTH, "{boxes}");
    }
}

#[test]
fn a_note_counts_the_levels_of_the_chosen_calls_that_are_not_drawn() {
    let (_scratch, path, calls) = random_calls(7);
    let found = text(
        &["timeline", "--json", "--levels", "2", "--region", "solve"],
        &path,
    );
    let found: Value = serde_json::from_str(&found).expect("JSON");
    let solve: Vec<&Call> = calls.iter().filter(|call| call.1 == 1).collect();
    let depth = |call: &Call| {
        let around = |other: &&&Call| other.0 < call.0 && other.2 <= call.2 && call.3 <= other.3;
        solve.iter().filter(around).count()
    };
    let levels = solve.iter().map(|call| depth(call) + 1).max();
    let levels = levels.expect("calls");
    assert!(levels > 2, "{levels}");
    let notes = found["notes"].to_string();
    let expected = format!("2 of {levels} levels of calls are drawn");
    assert!(notes.contains(&expected), "{notes}");
    let all = text(
        &["timeline", "--json", "--levels", "9", "--region", "solve"],
        &path,
    );
    assert!(!all.contains("levels of calls are drawn"), "{all}");
}

#[test]
fn pictures_are_whole_files_or_none() {
    let (scratch, path) = two_threads();
    let (svg, png) = (scratch.path().join("t.svg"), scratch.path().join("t.png"));
    let names = [svg.to_str().expect("a name"), png.to_str().expect("a name")];
    text(
        &[
            "timeline", "--svg", names[0], "--png", names[1], "--width", "160", "--to", "160us",
        ],
        &path,
    );
    let drawn = std::fs::read_to_string(&svg).expect("a picture");
    assert!(drawn.starts_with("<svg ") && drawn.trim_end().ends_with("</svg>"));
    // One pixel is a microsecond: main, solve in it, the gap.
    let main = region_colour("main").hex();
    assert!(drawn.contains(&format!(
        "width=\"160.00\" height=\"15.00\" fill=\"{main}\"><title>main: 160.0 us, 0 ns .. 160.0 us"
    )));
    let lane = place_of_lane(&drawn);
    let solve = format!(
        "x=\"{:.2}\" y=\"{:.2}\" width=\"40.00\" height=\"15.00\"",
        lane.0 + 40.0,
        lane.1 + 16.0
    );
    assert!(drawn.contains(&solve), "{drawn}");
    assert!(drawn.contains("fill=\"url(#lost)\"><title>lost: 5 events (buffer-full)</title>"));
    let picture = decoded(&png);
    assert_eq!(
        f64::from(picture.width),
        2.0 * (lane.0 + 160.0 + 12.0),
        "two pixels for each column and for the margins"
    );

    let nowhere = scratch.path().join("nowhere/t.svg");
    let failed = run(
        &["timeline", "--svg", nowhere.to_str().expect("a name")],
        &path,
    );
    assert_eq!(failed.status.code(), Some(1));
    let said = String::from_utf8_lossy(&failed.stderr);
    assert!(
        said.contains("nowhere/t.svg") && said.contains("nothing was changed"),
        "{said}"
    );
    let left: Vec<_> = std::fs::read_dir(scratch.path())
        .expect("a directory")
        .collect();
    assert_eq!(left.len(), 3, "no temporary file stays: {left:?}");
}

#[test]
fn a_full_disk_under_the_output_is_told() {
    let (_scratch, path) = two_threads();
    let full = std::fs::File::options()
        .write(true)
        .open("/dev/full")
        .expect("/dev/full");
    let output = Command::new(env!("CARGO_BIN_EXE_trace-cli"))
        .args(["regions".as_ref(), path.as_os_str()])
        .stdout(Stdio::from(full))
        .output()
        .expect("trace-cli runs");
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("No space left on device"), "{said}");
}

#[test]
fn wrong_windows_and_names_say_what_to_do() {
    let (_scratch, path) = two_threads();
    let fails = |arguments: &[&str], code: i32, what: &[&str]| {
        let output = run(arguments, &path);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
        for what in what {
            assert!(said.contains(what), "{arguments:?}: {said}");
        }
    };
    fails(
        &["regions", "--from", "1s"],
        1,
        &["starts at 1.000000000 s", "ends at 0.000160000 s", "--from"],
    );
    fails(
        &["regions", "--region", "slove"],
        1,
        &["`slove`", "did you mean `solve`?"],
    );
    fails(&["print", "--event", "entr"], 1, &["did you mean `enter`?"]);
    fails(
        &["timeline", "--location", "tread 1"],
        1,
        &["did you mean `thread 1`?"],
    );
    fails(
        &["print", "--template", "{regoin}"],
        2,
        &["did you mean `region`?"],
    );
    fails(&["print", "--template", "{time"], 2, &["not closed"]);
    fails(&["histogram"], 2, &["--region"]);
    fails(&["messages"], 1, &["no event type is a message"]);
}

#[test]
fn a_template_shapes_the_lines() {
    let (_scratch, path) = two_threads();
    let shown = text(
        &[
            "print",
            "--template",
            "{rank}|{event}\\t{region}{{}}",
            "--to",
            "50us",
        ],
        &path,
    );
    assert_eq!(shown, "0|enter\tmain{}\n0|enter\tsolve{}\n");
}

#[test]
fn a_difference_is_told_and_checked() {
    let (scratch, path) = two_threads();
    let same = run(&["diff", path.to_str().expect("a name"), "--check"], &path);
    assert_eq!(same.status.code(), Some(0));
    assert!(String::from_utf8_lossy(&same.stdout).contains("0 slower, 0 faster, 0 new, 0 gone"));
    // One thread alone: solve takes twice as long, and nothing is lost.
    let other = scratch.path().join("other");
    std::fs::create_dir(&other).expect("a directory");
    let at = |us: u64| 1_000_000 + us * 1000;
    let rows = vec![
        Row::Event(ENTER, at(0), 0),
        Row::Event(ENTER, at(40), 1),
        Row::Event(LEAVE, at(120), 1),
        Row::Event(LEAVE, at(160), 0),
    ];
    let second = TestRecording {
        rank: Some(0),
        rank_count: Some(1),
        id: 1,
        start_ns: 1_000_000,
        end_ns: 1_160_000,
        clocks: vec![REFERENCE],
        streams: vec![TestStream {
            clock: 0,
            ordering: SourceOrder::Ordered,
            chunks: vec![(1_000_000, rows)],
        }],
        has_footer: true,
    };
    let second = second.write(&other, CompressionLevel::None);
    let second = second.to_str().expect("a name");
    let found = text(&["diff", second, "--json", "--of", "inclusive"], &path);
    let found: Value = serde_json::from_str(&found).expect("JSON");
    let change = |name: &str| {
        let rows = found["regions"].as_array().expect("rows").iter();
        let mut rows = rows.filter(|row| row["region"] == name);
        rows.next().map(|row| {
            (
                row["change"].clone(),
                row["difference"].clone(),
                row["is_uncertain"].clone(),
            )
        })
    };
    assert_eq!(
        change("solve"),
        Some(("slower".into(), 40_000.into(), true.into()))
    );
    assert_eq!(
        change("exchange"),
        Some(("gone".into(), (-80_000).into(), true.into()))
    );
    assert_eq!(change("main"), None);
    // What a loss may explain fails no check.
    let checked = run(&["diff", second, "--check", "--of", "inclusive"], &path);
    assert_eq!(checked.status.code(), Some(0));
}

#[test]
fn completions_and_manual_pages_name_the_commands() {
    let scratch = tempfile::tempdir().expect("a directory");
    let output = Command::new(env!("CARGO_BIN_EXE_trace-cli"))
        .args(["completions", "bash"])
        .output()
        .expect("trace-cli runs");
    assert!(String::from_utf8_lossy(&output.stdout).contains("timeline"));
    let status = Command::new(env!("CARGO_BIN_EXE_trace-cli"))
        .arg("man")
        .arg(scratch.path())
        .status()
        .expect("trace-cli runs");
    assert!(status.success());
    let page = std::fs::read_to_string(scratch.path().join("trace-cli-regions.1")).expect("a page");
    assert!(page.contains("percentiles"), "{page}");
}

/// Returns a trace of two seconds: main, and in it solve every 10 us for 5 us.
fn many_calls() -> (tempfile::TempDir, PathBuf) {
    let at = |us: u64| 1_000_000 + us * 1000;
    let mut rows = vec![Row::Event(ENTER, at(0), 0)];
    for call in 0..200_000 {
        rows.push(Row::Event(ENTER, at(call * 10), 1));
        rows.push(Row::Event(LEAVE, at(call * 10 + 5), 1));
    }
    rows.push(Row::Event(LEAVE, at(2_000_000), 0));
    let recording = TestRecording {
        rank: Some(0),
        rank_count: Some(1),
        id: 0,
        start_ns: 1_000_000,
        end_ns: 2_001_000_000,
        clocks: vec![REFERENCE],
        streams: vec![TestStream {
            clock: 0,
            ordering: SourceOrder::Ordered,
            chunks: vec![(1_000_000, rows)],
        }],
        has_footer: true,
    };
    let scratch = tempfile::tempdir().expect("a directory");
    let input = recording.write(scratch.path(), CompressionLevel::None);
    let trace = scratch.path().join("run.annals");
    let plan = annals_merger::MergeOptions::new().plan(&[input]);
    let plan = plan.expect("a plan");
    let merged = plan.write_trace(&trace, annals_merger::no_progress);
    merged.expect("a trace");
    (scratch, trace)
}

#[test]
fn a_trace_is_split_by_time_and_by_size_and_no_event_is_lost() {
    let (scratch, trace) = many_calls();
    let lines = |path: &Path| text(&["print", "--template", "{time_ns} {event} {region}"], path);
    let whole = lines(&trace);
    let bytes = std::fs::metadata(&trace).expect("a trace").len();
    let third = (bytes / 3).to_string();
    for (every, fewest) in [("500ms", 4), (third.as_str(), 2)] {
        let parts = scratch.path().join(every);
        let output = parts.to_str().expect("a name");
        let told = text(&["split", "--every", every, "-o", output, "--json"], &trace);
        let told: Value = serde_json::from_str(&told).expect("JSON");
        let told = told["parts"].as_array().expect("parts");
        assert!(told.len() >= fewest, "{every}: {told:?}");
        let mut together = String::new();
        for part in told {
            let path = Path::new(part["path"].as_str().expect("a path"));
            let own = lines(path);
            assert_eq!(part["events"], own.lines().count(), "{every}: {part}");
            together.push_str(&own);
            let checked = run(&["verify"], path);
            assert_eq!(checked.status.code(), Some(0), "{every}: {part}");
        }
        assert_eq!(together, whole, "{every}");
        // main is open where all but the first begin.
        let open = told
            .iter()
            .map(|part| part["open_regions"].as_u64().unwrap());
        assert!(open.skip(1).all(|open| open >= 1), "{every}: {told:?}");
    }
    for wrong in ["0s", "1ns", "soon"] {
        let output = scratch.path().join("wrong");
        let output = output.to_str().expect("a name");
        let told = run(&["split", "--every", wrong, "-o", output], &trace);
        assert_eq!(told.status.code(), Some(2), "{wrong}");
    }
    let recordings = run(
        &["split", "--every", "1G", "-o", "x"],
        &scratch.path().join("test-host-0.annals"),
    );
    assert_eq!(recordings.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&recordings.stderr).contains("merge first"));
}

#[test]
fn what_got_slower_fails_the_check() {
    let (scratch, slow) = many_calls();
    let part = scratch.path().join("fast.annals");
    let fast = part.to_str().expect("a name");
    text(&["slice", "--to", "1s", "-o", fast], &slow);
    let slower = run(&["diff", slow.to_str().expect("a name"), "--check"], &part);
    let said = String::from_utf8_lossy(&slower.stdout);
    assert_eq!(slower.status.code(), Some(1), "{said}");
    assert!(said.contains("2 slower, 0 faster"), "{said}");
    let faster = run(&["diff", fast, "--check"], &slow);
    assert_eq!(faster.status.code(), Some(0));
    let tolerant = [
        "diff",
        slow.to_str().expect("a name"),
        "--check",
        "--threshold",
        "150",
    ];
    assert_eq!(run(&tolerant, &part).status.code(), Some(0));
}
