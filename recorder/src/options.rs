//! Settings of a recorder, and the environment variables that set them.

use std::env;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use annals_format::CompressionLevel;

use crate::error::{RecorderError, Result};
use crate::rules::Rules;
use crate::trigger::Trigger;

/// The environment variables that [`Options::from_env`] reads: name, meaning, default.
pub const ENVIRONMENT: &[(&str, &str, &str)] = &[
    ("ANNALS_DIR", "directory for the recording", "annals-run"),
    (
        "ANNALS_BUFFER",
        "bytes of buffer per process, as `16M` or `256K`",
        "16M",
    ),
    (
        "ANNALS_PAGE",
        "bytes of one buffer page",
        "1/64 of the buffer, between 4K and 64K",
    ),
    (
        "ANNALS_LIVE_DIR",
        "directory for the live file",
        "beside the recording; /dev/shm when that is a network file system",
    ),
    (
        "ANNALS_COMPRESSION",
        "`none`, or a zstd level from -7 to 22",
        "1",
    ),
    ("ANNALS_CLOCK", "`auto`, `tsc` or `monotonic`", "auto"),
    (
        "ANNALS_CALIBRATION",
        "time between calibration points, as `1s` or `250ms`",
        "1s",
    ),
    (
        "ANNALS_OVERFLOW",
        "what happens when no page is free: `drop`, `block` or `overwrite`",
        "drop; overwrite with triggers",
    ),
    (
        "ANNALS_BLOCK_LIMIT",
        "how long an event may wait for a page under `block`, as `100ms`",
        "100ms",
    ),
    (
        "ANNALS_TRIGGER",
        "triggers of the flight recorder, between semicolons",
        "none",
    ),
    (
        "ANNALS_PRE_TRIGGER",
        "a snapshot goes back this far before its trigger, as `2s`",
        "as far as there are events",
    ),
    (
        "ANNALS_POST_TRIGGER",
        "a snapshot waits this long behind its trigger",
        "0s",
    ),
    (
        "ANNALS_FILTER",
        "rules for what is recorded, between semicolons, or `@FILE`",
        "none",
    ),
    (
        "ANNALS_MAX_BYTES",
        "bytes of the recording on disk, as `2G`, behind which events are dropped",
        "no limit",
    ),
    (
        "ANNALS_FLUSH",
        "partly filled pages of idle streams are written after this time; `0s`: never",
        "5s",
    ),
    (
        "ANNALS_RUN",
        "name of the run that the recording belongs to",
        "the launcher's job id, else made from the start time and process id",
    ),
    ("ANNALS_RANK", "rank of this process", "the launcher's"),
    (
        "ANNALS_RANKS",
        "number of ranks in the run",
        "the launcher's",
    ),
];

/// Which clock stamps the events of the process's own source.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum ClockChoice {
    /// The time-stamp counter where the processor's is invariant, else the monotonic clock.
    #[default]
    Auto,
    /// The time-stamp counter (on aarch64 the virtual counter).
    Tsc,
    /// The system's monotonic clock.
    Monotonic,
}

/// What happens to an event that finds no free buffer page.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Overflow {
    /// It is dropped, and counted.
    #[default]
    Drop,
    /// It waits, for [`Options::block_limit`] at most, then it is dropped. Signal handlers that interrupt
    /// their thread's own recording never wait.
    Block,
    /// The oldest events are given up and counted as overwritten: the flight recorder. The recording
    /// holds the newest when it is finished, and [`crate::Recorder::snapshot`] or a
    /// [`Trigger`](crate::Trigger) writes what there is at any time.
    Overwrite,
}

impl Overflow {
    pub(crate) const fn code(self) -> u8 {
        self as u8
    }

    pub(crate) const fn from_code(code: u8) -> Self {
        match code {
            1 => Self::Block,
            2 => Self::Overwrite,
            _ => Self::Drop,
        }
    }

    fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "drop" => Self::Drop,
            "block" => Self::Block,
            "overwrite" => Self::Overwrite,
            _ => return None,
        })
    }
}

/// Settings of a recorder.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// Directory for the recording; created when it is not there.
    pub directory: PathBuf,
    /// Bytes of the live file: buffer pages, counters and definitions together.
    pub buffer_bytes: usize,
    /// Bytes of one buffer page; none: 1/64 of the buffer, between 4 KiB and 64 KiB.
    pub page_bytes: Option<usize>,
    /// Directory for the live file; none: beside the recording, or in memory when that lies on a
    /// network file system.
    pub live_directory: Option<PathBuf>,
    /// How chunks are compressed.
    pub compression: CompressionLevel,
    /// Which clock stamps events.
    pub clock: ClockChoice,
    /// Time between calibration points.
    pub calibration_period: Duration,
    /// What happens when no page is free; a source may have a policy of its own.
    pub overflow: Overflow,
    /// How long an event may wait for a page under [`Overflow::Block`].
    pub block_limit: Duration,
    /// What makes the flight recorder write a snapshot: of the streams that [`Overflow::Overwrite`].
    pub triggers: Vec<Trigger>,
    /// How far a snapshot goes back before its trigger; none: as far as there are events.
    pub pre_trigger: Option<Duration>,
    /// How long a snapshot waits behind its trigger.
    pub post_trigger: Duration,
    /// Which events are recorded.
    pub rules: Rules,
    /// Bytes of the recording on disk behind which events are dropped; definitions, totals and index still
    /// come. None: no limit.
    pub max_file_bytes: Option<u64>,
    /// Partly filled pages of streams that were idle this long are written; zero: never.
    pub flush_interval: Duration,
    /// Name of the run; none: the launcher's job id, or one made from start time and process id.
    pub run: Option<String>,
    /// Rank of the process; none: not known (yet).
    pub rank: Option<u32>,
    /// Number of ranks in the run; none: not known.
    pub rank_count: Option<u32>,
}

impl Options {
    /// The defaults, recording into `directory`; rank and run from the launcher's environment.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self {
            directory: directory.into(),
            buffer_bytes: 16 << 20,
            page_bytes: None,
            live_directory: None,
            compression: CompressionLevel::default(),
            clock: ClockChoice::Auto,
            calibration_period: Duration::from_secs(1),
            overflow: Overflow::default(),
            block_limit: Duration::from_millis(100),
            triggers: Vec::new(),
            pre_trigger: None,
            post_trigger: Duration::ZERO,
            rules: Rules::default(),
            max_file_bytes: None,
            flush_interval: Duration::from_secs(5),
            run: first_of(&["PMIX_NAMESPACE", "SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID"]),
            rank: launcher_number(&[
                "PMI_RANK",
                "PMIX_RANK",
                "OMPI_COMM_WORLD_RANK",
                "SLURM_PROCID",
            ]),
            rank_count: launcher_number(&["PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_NTASKS"]),
        }
    }

    /// Settings from the environment: see [`ENVIRONMENT`].
    ///
    /// # Errors
    /// If a variable has a value that cannot be read.
    pub fn from_env() -> Result<Self> {
        let mut options = Self::new(env::var_os("ANNALS_DIR").unwrap_or("annals-run".into()));
        if let Some(bytes) = setting("ANNALS_BUFFER", "a size such as `16M`", parse_size)? {
            options.buffer_bytes = bytes;
        }
        options.page_bytes = setting("ANNALS_PAGE", "a size such as `64K`", parse_size)?;
        options.live_directory = env::var_os("ANNALS_LIVE_DIR").map(PathBuf::from);
        let compression = |text: &str| text.parse().ok();
        let expected = "`none` or a zstd level from -7 to 22";
        if let Some(level) = setting("ANNALS_COMPRESSION", expected, compression)? {
            options.compression = level;
        }
        let clock = |text: &str| match text {
            "auto" => Some(ClockChoice::Auto),
            "tsc" => Some(ClockChoice::Tsc),
            "monotonic" => Some(ClockChoice::Monotonic),
            _ => None,
        };
        if let Some(clock) = setting("ANNALS_CLOCK", "`auto`, `tsc` or `monotonic`", clock)? {
            options.clock = clock;
        }
        let expected = "a time such as `1s` or `250ms`";
        if let Some(period) = setting("ANNALS_CALIBRATION", expected, parse_duration)? {
            options.calibration_period = period;
        }
        let expected = "`drop`, `block` or `overwrite`";
        if let Some(overflow) = setting("ANNALS_OVERFLOW", expected, Overflow::parse)? {
            options.overflow = overflow;
        }
        let expected = "a time such as `1s` or `250ms`";
        let time = |name| setting(name, expected, parse_duration);
        if let Some(limit) = time("ANNALS_BLOCK_LIMIT")? {
            options.block_limit = limit;
        }
        options.pre_trigger = time("ANNALS_PRE_TRIGGER")?;
        if let Some(time) = time("ANNALS_POST_TRIGGER")? {
            options.post_trigger = time;
        }
        if let Some(interval) = time("ANNALS_FLUSH")? {
            options.flush_interval = interval;
        }
        if let Some(triggers) = first_of(&["ANNALS_TRIGGER"]) {
            let triggers = triggers.split(';').filter(|text| !text.trim().is_empty());
            options.triggers = triggers.map(str::parse).collect::<Result<_>>()?;
            if first_of(&["ANNALS_OVERFLOW"]).is_none() {
                // What else would a trigger be for.
                options.overflow = Overflow::Overwrite;
            }
        }
        if let Some(rules) = first_of(&["ANNALS_FILTER"]) {
            options.rules = match rules.strip_prefix('@') {
                Some(file) => std::fs::read_to_string(file)
                    .map_err(|source| RecorderError::Io {
                        action: "read the rules in",
                        path: PathBuf::from(file),
                        source,
                    })?
                    .parse()?,
                None => rules.parse()?,
            };
        }
        let size = setting("ANNALS_MAX_BYTES", "a size such as `2G`", parse_size)?;
        options.max_file_bytes = size.map(|bytes| bytes as u64);
        if let Some(run) = first_of(&["ANNALS_RUN"]) {
            options.run = Some(run);
        }
        let number = |text: &str| u32::from_str(text).ok();
        if let Some(rank) = setting("ANNALS_RANK", "a number", number)? {
            options.rank = Some(rank);
        }
        if let Some(count) = setting("ANNALS_RANKS", "a number", number)? {
            options.rank_count = Some(count);
        }
        Ok(options)
    }
}

fn first_of(names: &[&str]) -> Option<String> {
    names
        .iter()
        .filter_map(|name| env::var(name).ok())
        .find(|value| !value.is_empty())
}

fn launcher_number(names: &[&str]) -> Option<u32> {
    names
        .iter()
        .filter_map(|name| env::var(name).ok())
        .find_map(|value| value.parse().ok())
}

fn setting<T>(
    name: &'static str,
    expected: &'static str,
    parse: impl Fn(&str) -> Option<T>,
) -> Result<Option<T>> {
    let Some(value) = env::var_os(name).filter(|value| !value.is_empty()) else {
        return Ok(None);
    };
    let parsed = value.to_str().and_then(|text| parse(text.trim()));
    parsed.map(Some).ok_or_else(|| RecorderError::Setting {
        name,
        expected,
        found: value.to_string_lossy().into_owned(),
    })
}

/// Reads a number of bytes: `4096`, `64K`, `16M`, `1G` (powers of 1024).
pub fn parse_size(text: &str) -> Option<usize> {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let factor = match text[digits.len()..].to_ascii_uppercase().as_str() {
        "" | "B" => 1,
        "K" | "KB" | "KIB" => 1 << 10,
        "M" | "MB" | "MIB" => 1 << 20,
        "G" | "GB" | "GIB" => 1 << 30,
        _ => return None,
    };
    digits.parse::<usize>().ok()?.checked_mul(factor)
}

/// Reads a time: `10us`, `250ms`, `1s`, `2min`.
pub(crate) fn parse_duration(text: &str) -> Option<Duration> {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let number: u64 = digits.parse().ok()?;
    match &text[digits.len()..] {
        "us" => Some(Duration::from_micros(number)),
        "ms" => Some(Duration::from_millis(number)),
        "s" => Some(Duration::from_secs(number)),
        "min" => Some(Duration::from_secs(number.checked_mul(60)?)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documented_table_is_the_one_in_the_code() {
        let documented = include_str!("lib.rs");
        let rows = documented
            .lines()
            .filter(|line| line.starts_with("//! | `ANNALS_"));
        assert_eq!(rows.count(), ENVIRONMENT.len());
        for (name, meaning, _) in ENVIRONMENT {
            let row = format!("//! | `{name}` | {meaning} | ");
            assert!(documented.contains(&row), "{row}");
        }
    }

    #[test]
    fn sizes_and_times_take_units() {
        assert_eq!(parse_size("64K"), Some(65536));
        assert_eq!(parse_size("16MiB"), Some(16 << 20));
        assert_eq!(parse_size("17"), Some(17));
        assert_eq!(parse_size("17X"), None);
        assert_eq!(parse_size(""), None);
        assert_eq!(parse_duration("250ms"), Some(Duration::from_millis(250)));
        assert_eq!(parse_duration("5"), None);
    }
}
