//! The figures of a run, as data.

use serde::Serialize;

use crate::contestant::Check;
use crate::series::Figure;

/// One line of a report; with `--json`, one object per line, distinguished by `kind`.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub(crate) enum Line {
    /// A section's heading.
    Section {
        /// What its figures are.
        title: String,
    },
    /// A contestant's time for a workload, the program's own subtracted.
    Time {
        /// Its name.
        contestant: String,
        /// Nanoseconds of time.
        ns: Figure,
        /// Nanoseconds in which the thread ran: less when it had to wait for the processor.
        thread_cpu_ns: Figure,
        /// By the floor's.
        by_floor: Option<Figure>,
        /// By OTF2's.
        by_otf2: Option<Figure>,
    },
    /// Two threads in parallel, compared with one alone.
    Threads {
        /// Its name.
        contestant: String,
        /// Nanoseconds per pair, one thread.
        alone_ns: Figure,
        /// Nanoseconds per pair and thread, two threads in parallel.
        together_ns: Figure,
        /// The second by the first.
        ratio: Option<Figure>,
    },
    /// Whole cost and size.
    Whole {
        /// Its name.
        contestant: String,
        /// Nanoseconds of processor time per event raised.
        cpu_ns: Figure,
        /// By OTF2's, compressed if this is.
        by_otf2: Option<Figure>,
        /// Bytes on disk per event that is there.
        bytes_per_event: f64,
        /// OTF2's bytes by these, compressed if these are.
        otf2_bytes_by_these: Option<f64>,
        /// Events dropped.
        dropped: u64,
        /// Events raised.
        raised: u64,
    },
    /// Single events, each between two clock reads, nothing subtracted.
    Single {
        /// Its name.
        contestant: String,
        /// What was timed.
        event: String,
        /// Nanoseconds: median, 99 %, 99.9 %, and the longest.
        p50_ns: f64,
        /// See `p50_ns`.
        p99_ns: f64,
        /// See `p50_ns`.
        p999_ns: f64,
        /// See `p50_ns`.
        max_ns: f64,
        /// How many were timed.
        count: u64,
    },
    /// Whether the events written are those raised.
    Check {
        /// Its name.
        contestant: String,
        /// What was found.
        #[serde(flatten)]
        check: Check,
    },
    /// A contestant, or a part of one, that is missing.
    NotMeasured {
        /// Its name.
        contestant: String,
        /// Why.
        reason: String,
    },
}

/// All lines of a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Report {
    /// In the order of the output.
    pub(crate) lines: Vec<Line>,
}

impl Report {
    /// Starts a section.
    pub(crate) fn section(&mut self, title: impl Into<String>) {
        let title = title.into();
        self.lines.push(Line::Section { title });
    }

    /// Says that something is missing.
    pub(crate) fn not_measured(&mut self, contestant: &str, reason: &str) {
        self.lines.push(Line::NotMeasured {
            contestant: contestant.to_owned(),
            reason: reason.to_owned(),
        });
    }

    /// Returns whether nothing is missing.
    pub(crate) fn is_whole(&self) -> bool {
        let is_missing = |line: &Line| matches!(line, Line::NotMeasured { .. });
        !self.lines.iter().any(is_missing)
    }

    /// Prints one object per line.
    pub(crate) fn print_json(&self) {
        for line in &self.lines {
            let text = serde_json::to_string(line);
            println!("{}", text.expect("strings and numbers have a JSON form"));
        }
    }
}
