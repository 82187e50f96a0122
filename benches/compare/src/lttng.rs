//! LTTng-UST as a contestant, with a private session daemon. Times are of its default clock, the
//! monotonic one. Its buffer is as large as Annals': four sub-buffers of 4 MiB for each processor.
#![expect(unsafe_code, reason = "tracepoints are C macros")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::contestant::{Check, Contestant, Lane};

unsafe extern "C" {
    safe fn compare_lttng_is_on() -> i32;
    safe fn compare_lttng_enter(region: u32);
    safe fn compare_lttng_leave(region: u32);
    safe fn compare_lttng_three(a: u32, b: u32, c: u64);
    safe fn compare_lttng_send(
        receiver: u32,
        communicator: u32,
        tag: u32,
        length: u64,
        request: u64,
        datatype: u32,
    );
    safe fn compare_lttng_point(kind: u32, value: u32);
    safe fn compare_lttng_metric(value: i64);
    safe fn compare_lttng_note();
}

/// A tracing session that is on.
#[derive(Debug)]
pub(crate) struct Lttng {
    session: String,
    output: PathBuf,
    raised: u64,
}

impl Lttng {
    /// Creates a session that writes below `directory`, and waits until this process takes part.
    ///
    /// # Errors
    /// If the tools cannot be run, or the session does not come on.
    pub(crate) fn start(directory: &Path) -> Result<Self, String> {
        let lttng = Self {
            session: format!("annals-compare-{}", std::process::id()),
            output: directory.join("lttng"),
            raised: 0,
        };
        let output = lttng.output.to_string_lossy().into_owned();
        let session = lttng.session.as_str();
        lttng.run(&["create", session, "--output", &output])?;
        let sizes = ["--subbuf-size", "4M", "--num-subbuf", "4"];
        let channel = ["enable-channel", "--userspace", "--session", session];
        lttng.run(&[&channel, &sizes[..], &["events"]].concat())?;
        let events = ["enable-event", "--userspace", "--session", session];
        lttng.run(&[&events[..], &["--channel", "events", "annals_compare:*"]].concat())?;
        lttng.run(&["start", session])?;
        let deadline = Instant::now() + Duration::from_secs(10);
        while compare_lttng_is_on() == 0 {
            if Instant::now() > deadline {
                return Err("the session does not turn the tracepoints on".to_owned());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(lttng)
    }

    fn run(&self, arguments: &[&str]) -> Result<String, String> {
        output("lttng", &[&["--no-sessiond"], arguments].concat())
    }
}

impl Drop for Lttng {
    fn drop(&mut self) {
        let _ = self.run(&["destroy", &self.session]);
    }
}

fn output(program: &str, arguments: &[&str]) -> Result<String, String> {
    let run = Command::new(program).args(arguments).output();
    let run = run.map_err(|error| format!("`{program}` cannot be run: {error}"))?;
    if run.status.success() {
        return Ok(String::from_utf8_lossy(&run.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&run.stderr);
    let line = said.lines().next().unwrap_or("it failed");
    Err(format!("`{program} {}`: {line}", arguments.join(" ")))
}

/// Returns the number after `label` in the output of a tool.
fn number_behind(label: &str, text: &str) -> Option<u64> {
    let rest = text
        .lines()
        .find_map(|line| line.trim().strip_prefix(label));
    rest?.trim().parse().ok()
}

impl Contestant for Lttng {
    type Lane = LttngLane;

    fn lane(&self, _: usize) -> LttngLane {
        LttngLane
    }

    fn settle(&mut self, raised: u64) -> Result<(), String> {
        self.raised += raised;
        Ok(())
    }

    /// Stops the session; reads the trace with babeltrace2 where that is installed.
    fn finish(&mut self) -> Result<Check, String> {
        self.run(&["stop", &self.session])?;
        let channels = self.run(&["list", &self.session])?;
        let lost = number_behind("Discarded events:", &channels);
        let lost = lost.ok_or("`lttng list` does not say how many events were discarded")?;
        let trace = self.output.to_string_lossy();
        let count = output(
            "babeltrace2",
            &[&*trace, "--component", "sink.utils.counter"],
        );
        let mut check = Check {
            raised: self.raised,
            lost,
            ..Check::default()
        };
        match count {
            Ok(text) => {
                let is_count = |line: &&str| line.trim().ends_with(" Event messages");
                // It prints counts on the way; the last is the sum.
                let line = text.lines().rfind(is_count).unwrap_or_default();
                let digits = line.split_whitespace().next().unwrap_or_default();
                let read = digits.replace(',', "").parse().ok();
                if read.is_some_and(|read: u64| read + lost != self.raised) {
                    let raised = self.raised;
                    return Err(format!("{raised} raised, {read:?} read, {lost} discarded"));
                }
                check.read = read;
                check.how = "babeltrace2: every event raised is read or discarded".to_owned();
            }
            Err(reason) => check.how = format!("not checked: {reason}"),
        }
        Ok(check)
    }
}

/// The calls are those of the C functions: they are what is out of line.
#[derive(Debug)]
pub(crate) struct LttngLane;

impl Lane for LttngLane {
    type Open = ();

    #[inline(always)]
    fn enter(&mut self, region: u32) {
        compare_lttng_enter(region);
    }

    #[inline(always)]
    fn leave(&mut self, region: u32, (): ()) {
        compare_lttng_leave(region);
    }

    #[inline(always)]
    fn three(&mut self, a: u32, b: u32, c: u64) {
        compare_lttng_three(a, b, c);
    }

    #[inline(always)]
    fn send(&mut self, receiver: u32, comm: u32, tag: u32, length: u64, request: u64, kind: u32) {
        compare_lttng_send(receiver, comm, tag, length, request, kind);
    }

    #[inline(always)]
    fn point(&mut self, kind: u32, value: u32) {
        compare_lttng_point(kind, value);
    }

    #[inline(always)]
    fn metric(&mut self, value: i64) {
        compare_lttng_metric(value);
    }

    #[inline(always)]
    fn note(&mut self) {
        compare_lttng_note();
    }
}
