//! `trace-cli tui`, driven by keys in a terminal: the screen shows what happened.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use annals_format::{CompressionLevel, SourceOrder};
use annals_test_support::{ENTER, LEAVE, MARK, REFERENCE, Row, TestRecording, TestStream};

/// A terminal of 100 columns and 30 lines that runs the viewer; gone when it is dropped.
struct Terminal {
    socket: String,
}

impl Terminal {
    fn start(trace: &Path, arguments: &str) -> Self {
        let name = trace
            .parent()
            .and_then(Path::file_name)
            .expect("a directory");
        let terminal = Self {
            socket: format!("annals-{}", name.to_string_lossy()),
        };
        let command = format!(
            "NO_COLOR=1 '{}' tui '{}' {arguments}; echo ended with $?; sleep 60",
            env!("CARGO_BIN_EXE_trace-cli"),
            trace.display()
        );
        let started = terminal.tmux(&["new-session", "-d", "-x", "100", "-y", "30", &command]);
        let said = String::from_utf8_lossy(&started.stderr);
        assert!(started.status.success(), "{said}");
        terminal
    }

    fn tmux(&self, arguments: &[&str]) -> Output {
        let mut tmux = Command::new("tmux");
        tmux.args(["-f", "/dev/null", "-L", &self.socket])
            .args(arguments);
        tmux.output().expect("tmux is installed")
    }

    fn press(&self, keys: &[&str]) {
        let mut arguments = vec!["send-keys"];
        arguments.extend(keys);
        assert!(self.tmux(&arguments).status.success());
    }

    /// Returns the screen, as soon as it shows all of this.
    fn wait_for(&self, expected: &[&str]) -> String {
        let start = Instant::now();
        loop {
            let screen = self.tmux(&["capture-pane", "-p"]).stdout;
            let screen = String::from_utf8_lossy(&screen).into_owned();
            if expected.iter().all(|text| screen.contains(text)) {
                return screen;
            }
            let is_late = start.elapsed() > Duration::from_secs(30);
            assert!(!is_late, "{expected:?} is not all there:\n{screen}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.tmux(&["kill-server"]);
    }
}

fn recording(streams: Vec<Vec<Row>>, end_us: i64) -> TestRecording {
    let stream = |rows| TestStream {
        clock: 0,
        ordering: SourceOrder::Ordered,
        chunks: vec![(1_000_000, rows)],
    };
    TestRecording {
        rank: Some(0),
        rank_count: Some(1),
        id: 0,
        start_ns: 1_000_000,
        end_ns: 1_000_000 + end_us * 1000,
        clocks: vec![REFERENCE],
        streams: streams.into_iter().map(stream).collect(),
        has_footer: true,
    }
}

const fn at(us: u64) -> u64 {
    1_000_000 + us * 1000
}

/// Two threads for 160 us: the first is in main, and in solve from 40 to 80; between 100 and 120 something is lost.
/// The second is in exchange from 80 to 160.
fn two_threads() -> (tempfile::TempDir, PathBuf) {
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
    let scratch = tempfile::tempdir().expect("a directory");
    let path = recording(vec![first, second], 160).write(scratch.path(), CompressionLevel::None);
    (scratch, path)
}

#[test]
fn keys_zoom_search_and_go_to_gaps() {
    let (_scratch, path) = two_threads();
    let terminal = Terminal::start(&path, "");
    let screen = terminal.wait_for(&["160.0 us of 160.0 us", "exchange  "]);
    // 80 columns of 2 us: solve begins in the 21st, and what was lost in the 51st.
    let lane = screen.lines().nth(2).expect("a lane");
    assert!(lane.starts_with(">rank 0 · thread 0"), "{screen}");
    let lane: Vec<char> = lane.chars().skip(20).collect();
    let lane: String = lane.into_iter().skip(1).collect();
    assert!(lane.starts_with("ain==============="), "{screen}");
    assert!(lane[19..].starts_with("solve==============="), "{screen}");
    assert!(lane.contains("▒▒▒▒▒▒▒▒▒▒"), "{screen}");
    assert!(
        screen.contains("main  ~160.0 us from 0.000000000"),
        "{screen}"
    );

    // At the cursor, and the statistics are those of what is shown.
    terminal.press(&["+"]);
    let screen = terminal.wait_for(&["80.00 us of 160.0 us"]);
    assert!(screen.contains("0.000000000 … 0.000080000 s"), "{screen}");

    terminal.press(&["/", "SOL", "Enter"]);
    let screen = terminal.wait_for(&["solve at 0.000040000 s, rank 0 · thread 0"]);
    assert!(
        screen.contains(" 0.000040000 s, rank 0 · thread 0 "),
        "{screen}"
    );
    terminal.wait_for(&["  solve  40.00 us from 0.000040000", "enter region=solve"]);
    // Zooming keeps what was found under the cursor.
    terminal.press(&["-", "+", "+", "+"]);
    terminal.wait_for(&["20.00 us of 160.0 us", " 0.000040000 s, rank 0 · thread 0 "]);
    terminal.press(&["-", "-"]);
    terminal.wait_for(&["80.00 us of 160.0 us", " 0.000040000 s, rank 0 · thread 0 "]);
    terminal.press(&["n"]);
    terminal.wait_for(&["no SOL after the cursor"]);
    terminal.press(&["Enter"]);
    terminal.wait_for(&["0.000040000 … 0.000080000 s  40.00 us of"]);

    terminal.press(&["g"]);
    let screen = terminal.wait_for(&[
        "gap 1 of 1: 5 enter lost (buffer-full), rank 0 · thread 0",
        "▒▒▒",
    ]);
    assert!(
        screen.contains(" 0.000100000 s, rank 0 · thread 0 "),
        "{screen}"
    );
    terminal.press(&["g"]);
    terminal.wait_for(&["no gap after the cursor"]);

    // The other lane; a message in the way of nothing; and out.
    terminal.press(&["0", "Down"]);
    terminal.wait_for(&["160.0 us of 160.0 us", ">rank 0 · thread 1"]);
    terminal.press(&["?"]);
    terminal.wait_for(&["look for a region or event type by a part of its name"]);
    // A key that closes the help ends the program the next time.
    terminal.press(&["q"]);
    let screen = terminal.wait_for(&["160.0 us of 160.0 us"]);
    assert!(!screen.contains("ended with"), "{screen}");
    terminal.press(&["q"]);
    terminal.wait_for(&["ended with 0"]);
}

#[test]
fn calls_of_a_view_of_many_events_are_counted_when_it_is_small() {
    // solve for 5 us, every 10 us, in main.
    let mut rows = vec![Row::Event(ENTER, at(0), 0)];
    for call in 0..200_000 {
        rows.push(Row::Event(ENTER, at(call * 10), 1));
        rows.push(Row::Event(LEAVE, at(call * 10 + 5), 1));
    }
    rows.push(Row::Event(LEAVE, at(2_000_000), 0));
    let scratch = tempfile::tempdir().expect("a directory");
    let input = recording(vec![rows], 2_000_000).write(scratch.path(), CompressionLevel::None);
    let trace = scratch.path().join("run.annals");
    let plan = annals_merger::MergeOptions::new().plan(&[input]);
    let plan = plan.expect("a plan");
    let merged = plan.write_trace(&trace, annals_merger::no_progress);
    merged.expect("a trace");
    let terminal = Terminal::start(&trace, "--most-events 200000");
    // Half of the time each, to a permille.
    let screen = terminal.wait_for(&["time in these lanes (zoom in to count calls)"]);
    for region in ["solve", "main"] {
        let line = screen
            .lines()
            .find(|line| line.contains(&format!("%)  {region}")));
        let line = line.unwrap_or_else(|| panic!("no {region}: {screen}"));
        assert!(line.contains(" 1.000 s (50.0 %)"), "{line}");
    }
    terminal.press(&["+", "+", "+", "+", "+", "+", "+", "+"]);
    terminal.wait_for(&["7.812 ms of 2.000 s", "main "]);
    // Calls that share a column are found one by one.
    terminal.press(&["/", "solve", "Enter"]);
    terminal.wait_for(&["solve at 0.000100000 s"]);
    terminal.press(&["n"]);
    terminal.wait_for(&["solve at 0.000110000 s"]);
    terminal.press(&["N"]);
    terminal.wait_for(&["solve at 0.000100000 s"]);
    terminal.press(&["q"]);
    terminal.wait_for(&["ended with 0"]);
}

#[test]
fn without_a_terminal_it_says_what_to_use_instead() {
    let (_scratch, path) = two_threads();
    let mut command = Command::new(env!("CARGO_BIN_EXE_trace-cli"));
    let output = command
        .arg("tui")
        .arg(&path)
        .output()
        .expect("trace-cli runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(
        said.contains("needs a terminal; `trace-cli timeline`"),
        "{said}"
    );
}
