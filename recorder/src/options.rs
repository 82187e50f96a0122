//! Settings of a recorder, and the environment variables that set them.

use std::env;
use std::ffi::OsStr;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use annals_format::live::layout::IN_MEMORY;
use annals_format::{CompressionLevel, units};

use crate::clock::ClockChoice;
use crate::error::{RecorderError, Result};
use crate::launcher;
use crate::rules::Rules;
use crate::sys;
use crate::trigger::{Trigger, parse_signal};

/// A setting of a recorder.
#[derive(Debug)]
#[non_exhaustive]
pub struct Setting {
    /// The environment variable that sets it.
    pub variable: &'static str,
    /// The name of `trace-cli record`'s option for it. `None` means that it has none.
    pub option: Option<&'static str>,
    /// A word for the value in help texts, such as `SIZE`.
    pub value: &'static str,
    /// The meaning.
    pub help: &'static str,
    /// The value without the variable.
    pub default: &'static str,
}

macro_rules! settings {
    ($($variable:literal, $option:expr, $value:literal, $help:literal, $default:literal;)*) => {
        /// The settings that [`Options::from_env`] reads.
        ///
        /// | variable | meaning | default |
        /// |---|---|---|
        $(#[doc = concat!("| `", $variable, "` | ", $help, " | ", $default, " |")])*
        pub const SETTINGS: &[Setting] = &[$(Setting {
            variable: $variable,
            option: $option,
            value: $value,
            help: $help,
            default: $default,
        }),*];
    };
}

settings! {
    "ANNALS_DIR", None, "DIR",
        "Directory for the recording", "`annals-run`";
    "ANNALS_FILTER", Some("filter"), "RULES",
        "Rules for what is recorded, separated by semicolons, or `@FILE`", "none";
    "ANNALS_SAMPLE", Some("sample"), "TIME",
        "Sample the call paths of all threads, each once in this processor time, as `1ms`", "none";
    "ANNALS_BUFFER", Some("buffer"), "SIZE",
        "Size of the buffer per process, as `16M` or `256K`", "`16M`";
    "ANNALS_PAGE", Some("page"), "SIZE",
        "Size of one buffer page", "1/64 of the buffer, between 4K and 64K";
    "ANNALS_OVERFLOW", Some("overflow"), "WHAT",
        "What happens when no page is free: `drop`, `block` or `overwrite`", "`drop`; `overwrite` with triggers";
    "ANNALS_BLOCK_LIMIT", Some("block-limit"), "TIME",
        "How long an event may wait for a page under `block`, as `100ms`", "`100ms`";
    "ANNALS_TRIGGER", Some("trigger"), "TRIGGERS",
        "Triggers of the flight recorder, separated by semicolons, as `signal SIGUSR2`", "none";
    "ANNALS_PRE_TRIGGER", Some("pre-trigger"), "TIME",
        "How much time before its trigger a snapshot covers, as `2s`", "everything that is buffered";
    "ANNALS_POST_TRIGGER", Some("post-trigger"), "TIME",
        "How long a snapshot waits after its trigger", "`0s`";
    "ANNALS_MAX_BYTES", Some("max-bytes"), "SIZE",
        "Maximum size of the recording, as `2G`; later events are dropped", "no limit";
    "ANNALS_FLUSH", Some("flush"), "TIME",
        "Partly filled pages of idle streams are written after this time; `0s` means never", "`5s`";
    "ANNALS_FLUSH_SIGNAL", Some("flush-signal"), "SIGNALS",
        "Signals that cause all pages to be written, separated by commas, as `SIGUSR1,SIGTERM`; those that end programs still do", "none";
    "ANNALS_COMPRESSION", Some("compression"), "LEVEL",
        "`none`, `later` (when the program has ended), or a zstd level from -7 to 22", "`later` under `trace-cli record`, else 1";
    "ANNALS_CLOCK", Some("clock"), "CLOCK",
        "`auto`, `tsc` or `monotonic`", "`auto`";
    "ANNALS_CALIBRATION", Some("calibration"), "TIME",
        "Time between calibration points, as `1s` or `250ms`", "`1s`";
    "ANNALS_FORK", Some("fork"), "WHAT",
        "Children made by fork whose functions are called: `count` them only, or `follow` and record them", "`count`";
    "ANNALS_OPENMP", Some("openmp"), "WHAT",
        "OpenMP: `auto` records runtimes that the program is linked to, `on` also those loaded later, `libomp` puts LLVM's in place of GCC's; `off`", "`auto`";
    "ANNALS_LIVE_DIR", Some("live-dir"), "DIR",
        "Directory for the live file", "next to the recording; `/dev/shm` when that is a network file system, or has no room";
    "ANNALS_RUN", Some("run"), "NAME",
        "Name of the run that the recording belongs to", "the launcher's job id, or made from the start time and process id";
    "ANNALS_RANK", None, "NUMBER",
        "Rank of this process", "the launcher's";
    "ANNALS_RANKS", None, "NUMBER",
        "Number of ranks in the run", "the launcher's";
}

/// The treatment of children of the process that are made by fork, or by clone without shared memory, and that continue without `exec`.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Forks {
    /// Those that raise events are counted, and are not recorded.
    #[default]
    Count,
    /// Those that call functions compiled with `-finstrument-functions` start a recording. The library that records functions does
    /// that; a program that records itself starts one with [`Recorder::start_in_child`](crate::Recorder::start_in_child).
    Follow,
}

impl Forks {
    fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "count" => Self::Count,
            "follow" => Self::Follow,
            _ => return None,
        })
    }
}

/// Which runtimes of OpenMP are recorded, by the library that `trace-cli record` preloads.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum OpenMp {
    /// Those that the program, or a library that it is linked to, is linked to.
    #[default]
    Auto,
    /// None.
    Off,
    /// Also those that are loaded later.
    On,
    /// All; LLVM's runtime is preloaded, so that programs of GCC use it.
    Libomp,
}

impl OpenMp {
    fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "auto" => Self::Auto,
            "off" => Self::Off,
            "on" => Self::On,
            "libomp" => Self::Libomp,
            _ => return None,
        })
    }

    /// Reads the setting from the environment alone: the default, if it is not set or has another value. Libraries decide by it before a
    /// recorder is started.
    pub fn from_env() -> Self {
        let value = env::var_os("ANNALS_OPENMP").unwrap_or_default();
        value.to_str().and_then(Self::parse).unwrap_or_default()
    }
}

/// The treatment of an event that finds no free buffer page.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Overflow {
    /// The event is dropped, and counted.
    #[default]
    Drop,
    /// The event waits, for [`Options::block_limit`] at most, and then is dropped.
    /// Signal handlers that interrupt their thread's own recording never wait.
    Block,
    /// The oldest events are given up and counted as overwritten: the flight recorder. The
    /// recording holds the newest when it is finished, and [`crate::Recorder::snapshot`] or a
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

/// How the chunks of a recording are compressed, and when.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Compression {
    /// As they are written. With [`CompressionLevel::None`] they are stored as their rows are in memory, and stay so.
    Now(CompressionLevel),
    /// When the program has ended, by `trace-cli record` or `trace-cli recover`: while it runs, chunks are stored as their rows are in
    /// memory, which costs the least, and takes 3 to 4 times the bytes. Where the file system has less than 8 GiB or a twentieth
    /// of its size free, or is too slow, and of a recording with a maximum size, chunks are compressed as they are written.
    Later,
}

impl Compression {
    /// Returns how blocks other than row chunks are compressed.
    pub(crate) fn level(self) -> CompressionLevel {
        match self {
            Self::Now(level) => level,
            Self::Later => CompressionLevel::default(),
        }
    }

    /// Returns whether nothing is compressed.
    pub(crate) fn is_none(self) -> bool {
        self == Self::Now(CompressionLevel::None)
    }
}

impl Default for Compression {
    fn default() -> Self {
        Self::Now(CompressionLevel::default())
    }
}

impl From<CompressionLevel> for Compression {
    fn from(level: CompressionLevel) -> Self {
        Self::Now(level)
    }
}

impl std::str::FromStr for Compression {
    type Err = String;

    /// Reads `later`, or a [`CompressionLevel`].
    fn from_str(text: &str) -> std::result::Result<Self, String> {
        match text {
            "later" => Ok(Self::Later),
            _ => text.parse().map(Self::Now),
        }
    }
}

/// With shorter periods, a ring of samples is full before it is emptied.
const LEAST_SAMPLING_PERIOD: Duration = Duration::from_micros(100);

/// Settings of a recorder.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// Directory for the recording; created when it is not there.
    pub directory: PathBuf,
    /// Bytes of the live file: buffer pages, counters and definitions together.
    pub buffer_bytes: usize,
    /// Bytes of one buffer page.
    /// `None` means 1/64 of the buffer, between 4 KiB and 64 KiB.
    pub page_bytes: Option<usize>,
    /// Directory for the live file.
    /// `None` means next to the recording, or in memory when the recording is on a network file
    /// system.
    pub live_directory: Option<PathBuf>,
    /// How chunks are compressed, and when.
    pub compression: Compression,
    /// Which clock stamps events.
    pub clock: ClockChoice,
    /// Time between calibration points.
    pub calibration_period: Duration,
    /// The treatment of events when no page is free. A source may have its own policy.
    pub overflow: Overflow,
    /// How long an event may wait for a page under [`Overflow::Block`].
    pub block_limit: Duration,
    /// Triggers that make the flight recorder write a snapshot: of the streams that
    /// [`Overflow::Overwrite`].
    pub triggers: Vec<Trigger>,
    /// How much time before its trigger a snapshot covers.
    /// `None` means everything that is buffered.
    pub pre_trigger: Option<Duration>,
    /// How long a snapshot waits after its trigger.
    pub post_trigger: Duration,
    /// Which events are recorded.
    pub rules: Rules,
    /// After how much of its processor time the call path of a thread is sampled, by the library that `trace-cli record` preloads.
    /// `None` means never.
    pub sampling_period: Option<Duration>,
    /// Maximum size of the recording in bytes.
    /// Later events are dropped and counted as `size-limit`; definitions, totals and the index are
    /// still written. `None` means no limit.
    pub max_file_bytes: Option<u64>,
    /// Partly filled pages of streams that were idle this long are written; zero: never.
    pub flush_interval: Duration,
    /// Signals that cause all pages to be written, except those of a flight recorder.
    ///
    /// SIGTERM, SIGINT, SIGHUP, SIGQUIT and SIGXCPU then end the program, as they would have; after
    /// other signals it continues. A signal that the program ignores stays ignored, and one that it
    /// handles itself cannot be used.
    pub flush_signals: Vec<i32>,
    /// What becomes of children made by fork.
    pub forks: Forks,
    /// Which runtimes of OpenMP are recorded.
    pub openmp: OpenMp,
    /// Name of the run.
    /// `None` means the launcher's job id, or a name made from start time and process id.
    pub run: Option<String>,
    /// Name of one start of a launcher, in which ranks count from 0.
    /// `None` means that it is not known, or that the rank is not the launcher's. A program that
    /// sets a rank which counts across several starts sets this to `None`.
    pub world: Option<String>,
    /// Rank of the process.
    /// `None` means that it is not known (yet).
    pub rank: Option<u32>,
    /// Number of ranks in the run.
    /// `None` means that it is not known.
    pub rank_count: Option<u32>,
    /// Triggers do not change [`Options::overflow`].
    is_overflow_set: bool,
    /// The process whose recording this one, a forked child, has inherited. `None` means that it is no forked child of a recorded process.
    pub(crate) forked_from: Option<u32>,
}

impl Options {
    /// Returns the defaults, recording into `directory`; rank and run from the launcher's
    /// environment.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self {
            directory: directory.into(),
            buffer_bytes: 16 << 20,
            page_bytes: None,
            live_directory: None,
            compression: Compression::default(),
            clock: ClockChoice::Auto,
            calibration_period: Duration::from_secs(1),
            overflow: Overflow::default(),
            block_limit: Duration::from_millis(100),
            triggers: Vec::new(),
            pre_trigger: None,
            post_trigger: Duration::ZERO,
            rules: Rules::default(),
            sampling_period: None,
            max_file_bytes: None,
            flush_interval: Duration::from_secs(5),
            flush_signals: Vec::new(),
            forks: Forks::default(),
            openmp: OpenMp::default(),
            run: launcher::run(),
            world: launcher::world(),
            rank: launcher::rank(),
            rank_count: launcher::rank_count(),
            is_overflow_set: false,
            forked_from: None,
        }
    }

    /// Reads the settings from the environment: see [`SETTINGS`].
    ///
    /// # Errors
    /// If a variable has a value that cannot be read.
    pub fn from_env() -> Result<Self> {
        let mut options = Self::new("annals-run");
        options.set_from_env()?;
        Ok(options)
    }

    /// Applies the settings of the environment to these: see [`SETTINGS`].
    ///
    /// # Errors
    /// If a variable has a value that cannot be read.
    pub fn set_from_env(&mut self) -> Result<()> {
        for Setting { variable, .. } in SETTINGS {
            if let Some(value) = env::var_os(variable).filter(|value| !value.is_empty()) {
                self.set(variable, &value)?;
            }
        }
        Ok(())
    }

    /// Returns the directory that the live file is created in: [`Options::live_directory`] if it is
    /// set, `/dev/shm` if the recording is on a network file system, otherwise that of the
    /// recording. [`Options::directory`] must exist, or it counts as local.
    pub fn live_file_directory(&self) -> &Path {
        let in_memory = Path::new(IN_MEMORY);
        match &self.live_directory {
            Some(directory) => directory,
            None if sys::is_network_file_system(&self.directory) && in_memory.is_dir() => in_memory,
            None => &self.directory,
        }
    }

    /// Sets what the environment variable `name` would: see [`SETTINGS`].
    ///
    /// # Errors
    /// If there is no such variable, or the value cannot be read.
    pub fn set(&mut self, name: &str, value: &OsStr) -> Result<()> {
        let Some(known) = SETTINGS.iter().find(|setting| setting.variable == name) else {
            return Err(RecorderError::Setting {
                setting: "a setting",
                expected: "one of the variables that start with ANNALS_",
                found: name.to_owned(),
            });
        };
        let setting = Given {
            variable: known.variable,
            value,
        };
        const NUMBER: &str = "a number";
        let number = |text: &str| text.parse::<u32>().ok();
        match name {
            "ANNALS_DIR" => self.directory = value.into(),
            "ANNALS_BUFFER" => {
                self.buffer_bytes = setting.length()?;
            }
            "ANNALS_PAGE" => {
                self.page_bytes = Some(setting.length()?);
            }
            "ANNALS_LIVE_DIR" => self.live_directory = Some(value.into()),
            "ANNALS_COMPRESSION" => {
                let expected = "`none`, `later` or a zstd level from -7 to 22";
                self.compression = setting.parse(expected, |text| text.parse().ok())?;
            }
            "ANNALS_CLOCK" => {
                self.clock = setting.parse("`auto`, `tsc` or `monotonic`", ClockChoice::parse)?;
            }
            "ANNALS_CALIBRATION" => {
                self.calibration_period = setting.duration()?;
            }
            "ANNALS_OVERFLOW" => {
                self.overflow = setting.parse("`drop`, `block` or `overwrite`", Overflow::parse)?;
                self.is_overflow_set = true;
            }
            "ANNALS_BLOCK_LIMIT" => self.block_limit = setting.duration()?,
            "ANNALS_TRIGGER" => {
                let triggers = setting.text()?.split(';');
                let triggers = triggers.filter(|text| !text.trim().is_empty());
                let triggers =
                    triggers.map(|text| text.parse().map_err(|error| setting.named(error)));
                self.triggers = triggers.collect::<Result<_>>()?;
                if !self.is_overflow_set {
                    // A trigger is only useful for the flight recorder.
                    self.overflow = Overflow::Overwrite;
                }
            }
            "ANNALS_PRE_TRIGGER" => self.pre_trigger = Some(setting.duration()?),
            "ANNALS_POST_TRIGGER" => self.post_trigger = setting.duration()?,
            "ANNALS_FILTER" => self.rules = setting.rules()?,
            "ANNALS_SAMPLE" => {
                let parse = |text: &str| units::parse_duration(text).ok();
                let least = |period: &Duration| *period >= LEAST_SAMPLING_PERIOD;
                let expected = "a time of at least 100us, such as 1ms";
                let period = setting.parse(expected, |text| parse(text).filter(least))?;
                self.sampling_period = Some(period);
            }
            "ANNALS_MAX_BYTES" => {
                self.max_file_bytes = Some(setting.size()?);
            }
            "ANNALS_FLUSH" => self.flush_interval = setting.duration()?,
            "ANNALS_FLUSH_SIGNAL" => {
                let expected = "signals between commas, such as `SIGUSR1` or a number";
                let each = |text: &str| text.split(',').map(|s| parse_signal(s.trim())).collect();
                self.flush_signals = setting.parse(expected, each)?;
            }
            "ANNALS_FORK" => self.forks = setting.parse("`count` or `follow`", Forks::parse)?,
            "ANNALS_OPENMP" => {
                self.openmp = setting.parse("`auto`, `off`, `on` or `libomp`", OpenMp::parse)?;
            }
            "ANNALS_RUN" => self.run = Some(setting.text()?.to_owned()),
            "ANNALS_RANK" => {
                self.rank = Some(setting.parse(NUMBER, number)?);
                self.world = None;
            }
            "ANNALS_RANKS" => self.rank_count = Some(setting.parse(NUMBER, number)?),
            other => unreachable!("{other} is in the table, and nothing is done about it"),
        }
        Ok(())
    }
}

/// A value of a setting, to be read.
struct Given<'a> {
    variable: &'static str,
    value: &'a OsStr,
}

impl<'a> Given<'a> {
    fn wrong(&self, expected: &'static str) -> RecorderError {
        RecorderError::Setting {
            setting: self.variable,
            expected,
            found: self.value.to_string_lossy().into_owned(),
        }
    }

    /// Names the setting in an error about a part of its value.
    fn named(&self, mut error: RecorderError) -> RecorderError {
        if let RecorderError::Setting { setting, .. } = &mut error {
            *setting = self.variable;
        }
        error
    }

    fn text(&self) -> Result<&'a str> {
        self.value.to_str().ok_or_else(|| self.wrong("text"))
    }

    fn parse<T>(&self, expected: &'static str, parse: impl Fn(&str) -> Option<T>) -> Result<T> {
        let parsed = self.value.to_str().and_then(|text| parse(text.trim()));
        parsed.ok_or_else(|| self.wrong(expected))
    }

    fn size(&self) -> Result<u64> {
        self.parse(units::SIZE, |text| units::parse_size(text).ok())
    }

    /// Returns a size that fits into memory.
    fn length(&self) -> Result<usize> {
        let parse = |text: &str| usize::try_from(units::parse_size(text).ok()?).ok();
        self.parse(units::SIZE, parse)
    }

    fn duration(&self) -> Result<Duration> {
        self.parse(units::TIME, |text| units::parse_duration(text).ok())
    }

    fn rules(&self) -> Result<Rules> {
        let rules = self.text()?;
        let Some(file) = rules.strip_prefix('@') else {
            return rules.parse().map_err(|error| self.named(error));
        };
        let text = read_rules(file).map_err(|source| RecorderError::Io {
            action: "read the rules in",
            path: PathBuf::from(file),
            source,
        })?;
        text.parse().map_err(|error| self.named(error))
    }
}

/// Reads a file of rules.
/// The program starts with this: it must not wait for a pipe, nor read without end.
fn read_rules(file: &str) -> std::io::Result<String> {
    const MOST_BYTES: u64 = 16 << 20;
    let metadata = std::fs::metadata(file)?;
    if !metadata.is_file() {
        return Err(std::io::Error::other("it is no regular file"));
    }
    let mut text = String::new();
    let read = std::fs::File::open(file)?
        .take(MOST_BYTES + 1)
        .read_to_string(&mut text)?;
    if read as u64 > MOST_BYTES {
        return Err(std::io::Error::other("rules are 16 MiB at most"));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_does_not_wait_for_rules() {
        let refused = |file: &str| read_rules(file).unwrap_err().to_string();
        assert_eq!(refused("/dev/zero"), "it is no regular file");
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("rules");
        let file = std::fs::File::create(&path).unwrap();
        file.set_len((16 << 20) + 1).unwrap();
        let path = path.to_str().unwrap();
        assert_eq!(refused(path), "rules are 16 MiB at most");
        std::fs::write(path, "off region std::*").unwrap();
        assert_eq!(read_rules(path).unwrap(), "off region std::*");
    }

    #[test]
    fn every_variable_of_the_table_can_be_set() {
        let values = [
            "somewhere",
            "off event x",
            "1ms",
            "1M",
            "8K",
            "drop",
            "5ms",
            "signal SIGUSR2",
            "3s",
            "4s",
            "1G",
            "0s",
            "SIGUSR1, 15",
            "3",
            "tsc",
            "2s",
            "follow",
            "on",
            "live",
            "run",
            "3",
            "8",
        ];
        assert_eq!(values.len(), SETTINGS.len());
        let mut options = Options::new("here");
        for (Setting { variable, .. }, value) in SETTINGS.iter().zip(values) {
            let before = format!("{options:?}");
            options.set(variable, OsStr::new(value)).unwrap();
            assert!(
                *variable == "ANNALS_OVERFLOW" || format!("{options:?}") != before,
                "{variable}"
            );
        }
        // Chosen before the trigger.
        assert_eq!(options.overflow, Overflow::Drop);
        assert!(options.set("ANNALS_NONE", OsStr::new("1")).is_err());
        let error = options.set("ANNALS_RANK", OsStr::new("first")).unwrap_err();
        assert_eq!(error.to_string(), "ANNALS_RANK is a number, not `first`");
    }
}
