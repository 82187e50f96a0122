//! `trace-cli report`: the page has every section with the figures of the run, whatever the names are, in bounded size; and a
//! real browser shows it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use annals_format::{
    BootId, ClockKind, ClockSpec, CompressionLevel, ElementSpec, ElementType, LocationKind,
    ProcessSpec, RecordingBuilder, RecordingId, Reference, Role, SourceOrder, Value,
};
use annals_test_support::{ENTER, LEAVE, REFERENCE, Row, TestRecording, TestStream};

use crate::{browser, trace_merge};

/// Largest page, bytes.
const MOST_BYTES: usize = 2 << 20;
/// Reference time at which runs begin, nanoseconds.
const START_NS: u64 = 1_000_000;
/// The sections of a run's page.
const SECTIONS: [&str; 11] = [
    "summary",
    "efficiencies",
    "waits",
    "critical-path",
    "balance",
    "messages",
    "collectives",
    "calls",
    "samples",
    "losses",
    "timeline",
];
/// The regions of every run: the program's two, and those of MPI.
const REGIONS: [&str; 5] = ["main", "solve", "MPI_Send", "MPI_Recv", "MPI_Barrier"];

/// An event of a rank, with its time in microseconds from the start.
#[derive(Clone, Copy)]
enum Deed {
    Enter(usize),
    Leave(usize),
    /// To a rank.
    Send(u32),
    /// From a rank.
    Receive(u32),
    Barrier,
}

/// A run of an MPI program.
#[derive(Clone, Default)]
struct Run {
    /// Names of regions after those of [`REGIONS`].
    regions: Vec<String>,
    /// By rank: times and events.
    ranks: Vec<Vec<(u64, Deed)>>,
}

impl Run {
    /// Returns rank 0, which works for `late_us` before it sends to rank 1, which waits; then both meet in a barrier.
    fn of_late_sender(late_us: u64) -> Self {
        let (main, solve, send, receive, barrier) = (0, 1, 2, 3, 4);
        let end = late_us + 20;
        let sender = vec![
            (0, Deed::Enter(main)),
            (0, Deed::Enter(solve)),
            (late_us, Deed::Leave(solve)),
            (late_us, Deed::Enter(send)),
            (late_us, Deed::Send(1)),
            (late_us + 1, Deed::Leave(send)),
            (late_us + 10, Deed::Enter(barrier)),
            (late_us + 10, Deed::Barrier),
            (late_us + 11, Deed::Leave(barrier)),
            (end, Deed::Leave(main)),
        ];
        let receiver = vec![
            (0, Deed::Enter(main)),
            (10, Deed::Enter(receive)),
            (late_us + 1, Deed::Receive(0)),
            (late_us + 1, Deed::Leave(receive)),
            (late_us + 10, Deed::Enter(barrier)),
            (late_us + 10, Deed::Barrier),
            (late_us + 11, Deed::Leave(barrier)),
            (end, Deed::Leave(main)),
        ];
        Self {
            regions: Vec::new(),
            ranks: vec![sender, receiver],
        }
    }

    /// Returns a rank's recording.
    fn recording(&self, rank: usize) -> Vec<u8> {
        let mut id = [0x55; 16];
        id[12..].copy_from_slice(&(rank as u32).to_be_bytes());
        let process = ProcessSpec {
            recording_id: RecordingId(id),
            run: "run",
            host: "host",
            boot_id: BootId([7; 16]),
            pid: 100 + rank as u32,
            start_unix_ns: 1_700_000_000_000_000_000,
            start_reference_ns: START_NS as i64,
            command: "program",
        };
        let mut builder =
            RecordingBuilder::new(&process, CompressionLevel::None).expect("a compressor");
        builder.rank(rank as u32, Some(self.ranks.len() as u32));
        let spec = ClockSpec {
            kind: ClockKind::Reference,
            ticks_per_second: 1_000_000_000,
            rate_error_ppb: 0,
            max_ticks: u64::MAX,
        };
        let clock = builder.clock("clock", &spec);
        let source = builder.source("program", SourceOrder::Ordered, clock);
        let location = builder.location("main", LocationKind::Thread, 0);
        let stream = builder.stream(source, location, START_NS);
        let mut region = ElementSpec::new("region", ElementType::U32);
        region.reference = Reference::Region;
        let number = |name| ElementSpec::new(name, ElementType::I64);
        let message = ["communicator", "peer", "tag", "bytes"].map(number);
        let collective = ["communicator", "operation", "root", "size"].map(number);
        let enter = builder.event_type("enter", Role::Enter, &[region]);
        let leave = builder.event_type("leave", Role::Leave, &[region]);
        let send = builder.event_type("send", Role::Send, &message);
        let receive = builder.event_type("receive", Role::Receive, &message);
        let begin = builder.event_type("begin", Role::CollectiveBegin, &collective);
        let end = builder.event_type("end", Role::CollectiveEnd, &collective);
        for name in REGIONS
            .into_iter()
            .chain(self.regions.iter().map(String::as_str))
        {
            let group = if name.starts_with("MPI_") { "mpi" } else { "" };
            builder.region(name, "", 0, group);
        }
        let mut chunk = builder.chunk(stream, START_NS as i64);
        let mut last = START_NS;
        for (time_us, deed) in &self.ranks[rank] {
            last = START_NS + time_us * 1000;
            let of_region = |region: usize| [Value::U32(region as u32)];
            let of_message = |peer: u32| [0, i64::from(peer), 5, 64].map(Value::I64);
            match *deed {
                Deed::Enter(region) => chunk.event(enter, last, &of_region(region)),
                Deed::Leave(region) => chunk.event(leave, last, &of_region(region)),
                Deed::Send(peer) => chunk.event(send, last, &of_message(peer)),
                Deed::Receive(peer) => chunk.event(receive, last, &of_message(peer)),
                Deed::Barrier => {
                    let operation = annals_format::CollectiveOperation::Barrier.code();
                    let values = [0, operation.into(), 0, self.ranks.len() as i64];
                    chunk.event(begin, last, &values.map(Value::I64));
                    chunk.event(end, last + 1000, &values.map(Value::I64));
                }
            }
        }
        chunk.finish(last as i64).expect("rows of defined types");
        builder.finish()
    }

    /// Writes the recordings, and merges them into the trace `NAME.annals`.
    fn merged(&self, scratch: &Path, name: &str) -> PathBuf {
        let directory = scratch.join(name);
        std::fs::create_dir(&directory).expect("a directory");
        for rank in 0..self.ranks.len() {
            let path = directory.join(format!("run-host-{rank}.annals"));
            std::fs::write(path, self.recording(rank)).expect("a recording");
        }
        let trace = scratch.join(format!("{name}.annals"));
        let merged = Command::new(trace_merge())
            .arg(&directory)
            .arg("-o")
            .arg(&trace)
            .output();
        let merged = merged.expect("trace-merge runs");
        assert!(merged.status.success(), "{}", said(&merged));
        trace
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn report(inputs: &[&Path], page: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_trace-cli"))
        .arg("report")
        .args(inputs)
        .arg("-o")
        .arg(page)
        .output()
        .expect("trace-cli runs")
}

/// Makes a page, and returns it after it was checked: its size, its tags, and its policy. `ANNALS_KEEP_PAGES` is a directory for
/// copies of the pages, to look into.
fn page(inputs: &[&Path], path: &Path) -> String {
    let output = report(inputs, path);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert_eq!(said(&output), "");
    let page = std::fs::read_to_string(path).expect("a page in UTF-8");
    if let Some(kept) = std::env::var_os("ANNALS_KEEP_PAGES") {
        let test = std::thread::current()
            .name()
            .unwrap_or("page")
            .replace("::", "-");
        let name = format!("{test}-{}", path.file_name().unwrap_or_default().display());
        std::fs::copy(path, Path::new(&kept).join(name)).expect("a copy of the page");
    }
    check_page(&page);
    page
}

/// Checks what holds for every page, whatever the names in the trace are.
fn check_page(page: &str) {
    const TAGS: &str = "!doctype a b bdi body button caption code dd details div dl dt figcaption figure footer h1 h2 h3 \
                        head header html li main meta nav p path rect script section span style summary svg table tbody td \
                        text th thead title tr ul";
    assert!(page.len() <= MOST_BYTES, "{} bytes", page.len());
    let is_mark = |c: char| {
        (c.is_control() && c != '\n')
            || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    assert_eq!(page.find(is_mark), None, "a control character");
    // Style and script are the program's: everything else is looked through tag by tag.
    let (before, rest) = page.split_once("<style>").expect("a style");
    let (_, rest) = rest.split_once("</style>").expect("its end");
    let (body, rest) = rest.split_once("<script>").expect("a script");
    let (_, after) = rest.split_once("</script>").expect("its end");
    let known: BTreeSet<&str> = TAGS.split_whitespace().collect();
    for part in [before, body, after] {
        for tag in part.split('<').skip(1) {
            let (tag, _) = tag.split_once('>').expect("the tag ends");
            let name = tag.trim_start_matches('/').split([' ', '\n']).next();
            let name = name.unwrap_or_default().to_lowercase();
            assert!(known.contains(name.as_str()), "a tag <{tag}>");
            assert!(name != "script" && name != "style", "a second <{tag}>");
            // Values of attributes are names, too: only what is outside of quotation marks counts.
            let outside: String = tag.split('"').step_by(2).collect();
            for attribute in outside.split_whitespace().skip(1) {
                let is_handler = attribute.starts_with("on") || attribute.starts_with("style=");
                let loads = ["src=", "srcset=", "xlink:href="];
                assert!(
                    !is_handler && !loads.iter().any(|load| attribute.starts_with(load)),
                    "<{tag}>"
                );
            }
        }
    }
    let policy =
        "http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'sha256-";
    assert!(page.contains(policy), "no policy");
    for bad in ["NaN", ">inf", "-inf "] {
        assert!(!body.contains(bad), "{bad} in the page");
    }
}

/// Returns the section with an id.
fn section<'a>(page: &'a str, id: &str) -> &'a str {
    let start = page.find(&format!("<section aria-labelledby=\"{id}\">"));
    let rest = &page[start.unwrap_or_else(|| panic!("no section {id}"))..];
    &rest[..rest.find("</section>").expect("its end")]
}

/// Returns the cells of the rows of a section's tables.
fn rows(section: &str) -> Vec<Vec<String>> {
    let rows = section.split("<tr>").skip(1);
    let rows = rows.map(|row| {
        let cells = row.split("<bdi>").skip(1);
        let cells = cells.map(|cell| cell.split("</bdi>").next().unwrap_or_default().to_owned());
        cells.collect::<Vec<String>>()
    });
    rows.filter(|row| !row.is_empty()).collect()
}

fn row<'a>(rows: &'a [Vec<String>], name: &str) -> Vec<&'a str> {
    let row = rows.iter().find(|row| row[0] == name);
    let row = row.unwrap_or_else(|| panic!("no row {name} in {rows:?}"));
    row.iter().map(String::as_str).collect()
}

#[test]
fn a_page_has_every_section_with_the_figures_of_the_run() {
    let scratch = tempfile::tempdir().expect("a directory");
    let trace = Run::of_late_sender(80).merged(scratch.path(), "run");
    let page = page(&[&trace], &scratch.path().join("page.html"));
    for id in SECTIONS {
        assert!(
            page.contains(&format!("<a href=\"#{id}\">")),
            "no link to {id}"
        );
        section(&page, id);
    }
    // Rank 1 waits from 10 to 80 us, of 2 x 100 us.
    let answer = "Rank 0 sends 70.00 us late to MPI_Recv in 1 message, 35.0 % of the run; its extra time is in solve.";
    assert!(
        page.contains(answer),
        "{}",
        &page[page.find("<body").unwrap_or(0)..][..2000]
    );
    assert!(page.contains("2 ranks ran for"), "the sentence of info");
    // Useful: 98 us of rank 0, 28 us of rank 1.
    let factors = rows(section(&page, "efficiencies"));
    assert_eq!(
        row(&factors, "parallel efficiency"),
        ["parallel efficiency", "63.0 %", "63.0 %"]
    );
    assert_eq!(
        row(&factors, "load balance"),
        ["load balance", "64.3 %", "65.0 %"]
    );
    let waits = rows(section(&page, "waits"));
    assert_eq!(
        row(&waits, "late sender"),
        ["late sender", "70.00 us", "35.0"]
    );
    let path = rows(section(&page, "critical-path"));
    assert_eq!(row(&path, "0"), ["0", "100.0 us", "100.0"]);
    assert_eq!(
        row(&path, "main &gt; solve"),
        [
            "main &gt; solve",
            "80.00 us",
            "80.0",
            "40.00 us",
            "40.00 us"
        ]
    );
    let balance = rows(section(&page, "balance"));
    assert_eq!(
        row(&balance, "0"),
        ["0", "98.00 us", "2.000 us", "0 ns", "70.00 us"]
    );
    assert_eq!(
        row(&balance, "1"),
        ["1", "28.00 us", "72.00 us", "70.00 us", "0 ns"]
    );
    let messages = section(&page, "messages");
    assert!(
        messages.contains("<title>0 to 1: 1 message, 64 B</title>"),
        "{messages}"
    );
    assert_eq!(row(&rows(messages), "0")[..4], ["0", "1", "1", "64 B"]);
    let collectives = rows(section(&page, "collectives"));
    assert_eq!(
        row(&collectives, "barrier")[..4],
        ["barrier", "0", "2", "1"]
    );
    let calls = rows(section(&page, "calls"));
    // The longest call by its own time; `main` is not, although it is the longest with its callees.
    assert_eq!(
        calls[0],
        ["solve", "0", "main", "0 ns", "80.00 us", "80.00 us"]
    );
    assert_eq!(
        row(&calls, "MPI_Recv"),
        ["MPI_Recv", "1", "main", "10.00 us", "71.00 us", "71.00 us"]
    );
    assert!(section(&page, "losses").contains("Nothing was lost"));
    let timeline = rows(section(&page, "timeline"));
    assert_eq!(
        row(&timeline, "0"),
        ["0", "98.0 %", "2.0 %", "0.0 %", "0.0 %"]
    );
}

#[test]
fn names_are_data() {
    let scratch = tempfile::tempdir().expect("a directory");
    let names = [
        "</script><img src=x onerror=alert(1)>",
        "\" onmouseover=\"alert(1)",
        "</title></style><svg onload=alert(1)>",
        "NUL \0 \u{1b}[31m",
        "\u{202e}abc\u{2066}",
        "javascript:alert(1)",
        "&lt;b&gt; &amp;",
    ];
    let mut run = Run::of_late_sender(80);
    run.regions.extend(names.map(str::to_owned));
    run.regions.push("x".repeat(1 << 20));
    run.regions.push("\u{301}\u{202e}\0".repeat(1 << 18));
    let first = REGIONS.len();
    let odd = (first..first + run.regions.len()).enumerate();
    let odd = odd.flat_map(|(place, region)| {
        let at_us = 1 + 3 * place as u64;
        [
            (at_us, Deed::Enter(region)),
            (at_us + 2, Deed::Leave(region)),
        ]
    });
    run.ranks[0].splice(2..2, odd);
    let trace = run.merged(scratch.path(), "run <img src=x onerror=alert(1)>");
    let one = page(&[&trace], &scratch.path().join("page.html"));
    assert!(one.contains("&lt;/script&gt;&lt;img src=x onerror=alert(1)&gt;"));
    assert!(one.contains("NUL \\u{0} \\u{1b}[31m"));
    assert!(one.contains("\\u{202e}abc\\u{2066}"));
    let two = page(&[&trace, &trace], &scratch.path().join("both.html"));
    assert!(two.contains("&lt;/script&gt;&lt;img src=x onerror=alert(1)&gt;"));
}

/// Returns a run of many ranks, each of which sends to many others, with many regions with long names.
fn large(ranks: u32, regions: usize) -> Run {
    const PEERS: u32 = 64;
    let mut run = Run {
        regions: (0..regions)
            .map(|number| format!("{number} {}", "größe ".repeat(60)))
            .collect(),
        ranks: Vec::new(),
    };
    let step = (ranks / PEERS).max(1);
    for rank in 0..ranks {
        let mut deeds = vec![(0, Deed::Enter(0))];
        deeds.extend((0..PEERS.min(ranks)).map(|peer| {
            let to = (rank + 1 + peer * step) % ranks;
            (10 + u64::from(peer), Deed::Send(to))
        }));
        deeds.push((1000, Deed::Enter(3)));
        let from =
            (0..PEERS.min(ranks)).map(|peer| (rank + ranks - 1 - (peer * step) % ranks) % ranks);
        deeds.extend(from.map(|from| (1100, Deed::Receive(from))));
        deeds.push((1200 + u64::from(rank), Deed::Leave(3)));
        run.ranks.push(deeds);
    }
    let calls = (0..regions).flat_map(|number| {
        let at_us = 10_000 + 2 * number as u64;
        let region = REGIONS.len() + number;
        [
            (at_us, Deed::Enter(region)),
            (at_us + 1, Deed::Leave(region)),
        ]
    });
    run.ranks[0].extend(calls);
    run
}

#[test]
fn a_page_is_at_most_2_mb_and_says_what_it_leaves_out() {
    let scratch = tempfile::tempdir().expect("a directory");
    let trace = large(256, 5000).merged(scratch.path(), "large");
    let one = page(&[&trace], &scratch.path().join("page.html"));
    assert!(
        section(&one, "calls").contains("4,952 more rows are left out."),
        "regions"
    );
    let messages = section(&one, "messages");
    assert!(
        messages.contains("4 ranks share a row or column"),
        "ranks share cells"
    );
    assert!(
        messages.contains("more rows are left out. <code>trace-cli messages "),
        "pairs"
    );
    assert!(
        section(&one, "balance").contains("ranks 0-3"),
        "ranks share bars"
    );
    page(&[&trace, &trace], &scratch.path().join("both.html"));
}

#[test]
fn two_runs_are_compared() {
    let scratch = tempfile::tempdir().expect("a directory");
    let before = Run::of_late_sender(80).merged(scratch.path(), "before");
    let after = Run::of_late_sender(30).merged(scratch.path(), "after");
    let page = page(&[&before, &after], &scratch.path().join("page.html"));
    assert!(page.contains("A takes 100.0 us, B takes 50.00 us: 50.0 % less."));
    let factors = rows(section(&page, "efficiencies"));
    assert_eq!(
        row(&factors, "parallel efficiency"),
        ["parallel efficiency", "63.0 %", "76.0 %", "+13.0"]
    );
    let regions = rows(section(&page, "regions"));
    let solve = [
        "solve",
        "80.00 us",
        "30.00 us",
        "-50.00 us",
        "-62.5 %",
        "1",
        "1",
    ];
    assert_eq!(row(&regions, "solve"), solve);
    let waits = section(&page, "waits");
    assert!(
        waits.contains("A: ranks that make others wait")
            && waits.contains("B: ranks that make others wait")
    );
}

/// Writes a recording of one thread.
fn recording(scratch: &Path, rows: Vec<Row>) -> PathBuf {
    let recording = TestRecording {
        rank: Some(0),
        rank_count: Some(1),
        id: 0,
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
    recording.write(scratch, CompressionLevel::None)
}

#[test]
fn a_run_without_something_has_a_page_that_says_so() {
    let scratch = tempfile::tempdir().expect("a directory");
    let made = |rows| recording(scratch.path(), rows);
    let empty = page(&[&made(Vec::new())], &scratch.path().join("empty.html"));
    for id in SECTIONS {
        section(&empty, id);
    }
    assert!(section(&empty, "efficiencies").contains("There are no efficiencies"));
    assert!(section(&empty, "calls").contains("There are no calls"));
    assert!(section(&empty, "samples").contains("There are no samples"));
    let alone = vec![
        Row::Event(ENTER, 1_000_000, 0),
        Row::Event(LEAVE, 1_160_000, 0),
    ];
    let alone = page(&[&made(alone)], &scratch.path().join("alone.html"));
    assert!(alone.contains("One rank: it waits for no other."));
    assert!(section(&alone, "waits").contains("There are no wait states"));
    assert!(section(&alone, "messages").contains("There are no messages"));
    assert!(section(&alone, "collectives").contains("There are no collective operations"));
    let lost = vec![Row::Dropped(None, 7, 1_000_000, 1_160_000)];
    let lost = page(&[&made(lost)], &scratch.path().join("lost.html"));
    assert!(section(&lost, "losses").contains("7 dropped"));
    assert!(section(&lost, "timeline").contains("There is no overview"));
    let both = scratch.path().join("test-host-0.annals");
    page(&[&both, &both], &scratch.path().join("both.html"));
}

#[test]
fn a_page_that_cannot_be_written_is_an_error_that_names_it() {
    let scratch = tempfile::tempdir().expect("a directory");
    let trace = Run::of_late_sender(80).merged(scratch.path(), "run");
    let notes = scratch.path().join("notes.txt");
    std::fs::write(&notes, "my notes").expect("a file");
    for path in [
        scratch.path().join("no/such/page.html"),
        PathBuf::from("/dev/full"),
        notes.clone(),
    ] {
        let output = report(&[&trace], &path);
        assert_eq!(output.status.code(), Some(1), "{}", said(&output));
        assert!(
            said(&output).contains(&path.display().to_string()),
            "{}",
            said(&output)
        );
    }
    assert_eq!(
        std::fs::read_to_string(&notes).expect("the notes"),
        "my notes"
    );
    assert_eq!(report(&[&trace], Path::new("-")).status.code(), Some(2));
    // Not even --force replaces an input.
    let before = std::fs::read(&trace).expect("a trace");
    let output = Command::new(env!("CARGO_BIN_EXE_trace-cli"))
        .args(["report", "--force", "-o"])
        .args([&trace, &trace])
        .output()
        .expect("trace-cli runs");
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    assert!(said(&output).contains("is an input"), "{}", said(&output));
    assert_eq!(std::fs::read(&trace).expect("a trace"), before);
    // A filter is said on the page.
    let filtered = scratch.path().join("rank.html");
    let output = Command::new(env!("CARGO_BIN_EXE_trace-cli"))
        .args(["report", "--rank", "0", "--to", "50us", "-o"])
        .args([&filtered, &trace])
        .output()
        .expect("trace-cli runs");
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let shown = std::fs::read_to_string(&filtered).expect("a page");
    let window = "The figures are of the time window from 0 ns to 50.00 us. Only events of rank 0 count; the efficiencies are those of all ranks.";
    assert!(shown.contains(window));
    // Standard output may be a pipe.
    let file = scratch.path().join("file.html");
    assert_eq!(report(&[&trace], &file).status.code(), Some(0));
    let piped = report(&[&trace], Path::new("/dev/stdout"));
    assert_eq!(piped.status.code(), Some(0), "{}", said(&piped));
    let shown = std::fs::read(&file).expect("a page");
    assert!(piped.stdout == shown, "another page");
    // A page may replace a page.
    let again = scratch.path().join("page.html");
    page(&[&trace], &again);
    page(&[&trace], &again);
}

#[test]
fn a_browser_shows_pages_without_errors() {
    let scratch = tempfile::tempdir().expect("a directory");
    let mut run = Run::of_late_sender(80);
    run.regions
        .push("</script><img src=x onerror=alert(1)>".to_owned());
    let odd = REGIONS.len();
    run.ranks[0].splice(2..2, [(1, Deed::Enter(odd)), (2, Deed::Leave(odd))]);
    let trace = run.merged(scratch.path(), "run");
    let (one, both) = (
        scratch.path().join("run.html"),
        scratch.path().join("comparison.html"),
    );
    page(&[&trace], &one);
    page(&[&trace, &trace], &both);
    browser::check("report.mjs", &[one.as_os_str(), both.as_os_str()]);
}
