//! Samples of runs that end badly: what is recorded and what is counted as lost is the processor time of the program, no path is wrong, and
//! the merge says what is lost.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::sampling::Sampled;
use crate::{prefix, run, text_of, trace_cli};

/// Function, and its direct callers.
const CALLERS: [(&str, &[&str]); 4] = [
    ("tiny", &["counted"]),
    ("counted", &["start_thread"]),
    (
        "start_thread",
        &["__clone3", "__GI___clone3", "clone3", "(unknown)"],
    ),
    ("ends", &["main"]),
];

/// How long samples may be in the rings of all threads when the process is killed, seconds: twice the period in which they are emptied, and
/// what a busy machine takes.
const UNREAD_S: f64 = 0.2;

struct Ended {
    sampled: Sampled,
    /// Processor time of the threads, seconds.
    truth_s: f64,
    period_ns: f64,
}

impl Ended {
    /// Records the program until it ends in this way. Its source is compiled with these options.
    fn new(options: &[&str], record: &[&str], how: &str) -> (Self, std::process::Output) {
        let sampled = Sampled::of("sampled.c", options);
        let directory = sampled.path("").display().to_string();
        let mut words = trace_cli();
        words.args(["record", "-o", "run"]).args(record).arg("--");
        words
            .arg(sampled.path("sampled"))
            .args(["ends", how, "truth"]);
        let recorded = run(words.current_dir(directory));
        let sample = record.iter().find_map(|word| word.strip_prefix("--sample"));
        (Self::of(sampled, sample == Some("=100us")), recorded)
    }

    fn of(sampled: Sampled, is_fast: bool) -> Self {
        let bytes = std::fs::read(sampled.path("truth")).expect("the program has started");
        let (times, _) = bytes.as_chunks::<8>();
        let truth_s = times.iter().map(|time| f64::from_le_bytes(*time)).sum();
        let period_ns = if is_fast { 1e5 } else { 1e6 };
        Self {
            sampled,
            truth_s,
            period_ns,
        }
    }

    fn samples(&self, of: &str) -> (Value, String) {
        let ask = |more: &[&str]| {
            let mut ask = trace_cli();
            ask.args(["samples", of]).args(more);
            text_of(&run(ask.current_dir(self.sampled.path(""))).stdout)
        };
        (
            serde_json::from_str(&ask(&["--json"])).expect("JSON"),
            ask(&[]),
        )
    }

    /// Checks what is recorded, and its merge.
    fn check(&self, what: &str, unread_s: f64, is_lossy: bool) {
        let (found, said) = self.samples("run");
        let lost = found["lost"].as_f64().expect("a number");
        let rows = found["rows"].as_array().expect("rows");
        let of_threads = rows.iter().find(|row| row["function"] == "counted");
        let of_threads = of_threads.and_then(|row| row["total_ns"].as_f64());
        let of_threads = of_threads.expect("samples of the threads");
        let (sum_s, truth_s) = ((of_threads + lost * self.period_ns) / 1e9, self.truth_s);
        // The system asks for a sample later than it should where it has other work, and each that is lost counts for one period.
        let is_long = std::env::var_os("ANNALS_LONG").is_some();
        let least_s = truth_s * if is_long { 0.95 } else { 0.7 } - unread_s;
        let of = format!("{what}: {sum_s} s, truly {truth_s} s: {found}");
        assert!(least_s <= sum_s && sum_s <= 1.05 * truth_s + 0.1, "{of}");
        // Of each thread, some are lost before its ring is there.
        let lost_share = lost / found["samples"].as_f64().unwrap_or(1.0);
        let expected = if is_lossy { 0.02..f64::MAX } else { 0.0..0.1 };
        assert!(expected.contains(&lost_share), "{of}");
        if is_lossy {
            assert!(said.contains("samples are lost"), "{what}: {said}");
        }
        for (path, _) in self.sampled.folded() {
            for pair in path.windows(2) {
                let known = CALLERS.iter().find(|(function, _)| *function == pair[1]);
                let is_known = known.is_none_or(|(_, callers)| callers.contains(&pair[0].as_str()));
                assert!(is_known, "{what}: {path:?}");
            }
        }
        let mut merge = Command::new(prefix().join("bin/trace-merge"));
        merge.args(["run", "-o", "merged.annals"]);
        let merged = run(merge.current_dir(self.sampled.path("")));
        let said = text_of(&merged.stderr);
        assert_eq!(merged.status.code(), Some(3), "{what}: {said}");
        let (of_trace, _) = self.samples("merged.annals");
        for name in ["samples", "time_ns", "lost"] {
            assert_eq!(of_trace[name], found[name], "{what}: {name}");
        }
    }
}

#[test]
fn samples_of_a_killed_program_are_what_its_threads_have_worked() {
    let (ended, recorded) = Ended::new(&[], &["--sample"], "kill");
    assert_eq!(recorded.status.signal(), Some(9));
    ended.check("killed", UNREAD_S, false);
}

/// A buffer that samples alone fill, and one that calls of functions fill, too.
#[test]
fn samples_for_which_the_buffer_has_no_room_are_counted() {
    let small = ["--sample=100us", "--buffer", "64K"];
    let (ended, recorded) = Ended::new(&[], &small, "exit");
    assert!(text_of(&recorded.stderr).contains("were dropped because the buffer"));
    ended.check("samples", 0.0, true);
    let shared = ["--sample", "--buffer", "64K", "--page", "4K"];
    let (ended, recorded) = Ended::new(&["-finstrument-functions"], &shared, "exit");
    assert!(text_of(&recorded.stderr).contains("were dropped because the buffer"));
    ended.check("functions and samples", 0.0, true);
}

/// A file system of 2 MiB, which only the recording sees.
#[test]
fn samples_for_which_the_disk_has_no_room_are_counted() {
    let sampled = Sampled::of("sampled.c", &["-finstrument-functions"]);
    let script = r#"mkdir small && mount -t tmpfs -o size=2m tmpfs small || exit 77
        "$1" record --sample=100us --buffer 256K --compression none -o small/run -- ./sampled ends exit truth
        code=$?; cp -r small/run run && exit $code"#;
    let record = trace_cli();
    let mut alone = Command::new("unshare");
    alone.args(["--mount", "--map-root-user", "bash", "-c", script, "bash"]);
    let recorded = run(alone
        .arg(Path::new(record.get_program()))
        .current_dir(sampled.path("")));
    let said = text_of(&recorded.stderr);
    if recorded.status.code() == Some(77) || said.starts_with("unshare: ") {
        eprintln!("NOT TESTED: samples on a full file system (none can be mounted here): {said}");
        return;
    }
    assert!(said.contains("because the disk was full"), "{said}");
    Ended::of(sampled, true).check("disk", 0.0, true);
}
