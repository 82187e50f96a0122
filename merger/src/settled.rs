//! A plan: what a merge settles before it reads events, kept for merges of the same inputs elsewhere or later,
//! slice by slice. Here is its file.

use std::borrow::Cow;
use std::fmt;
use std::path::{Path, PathBuf};

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::clocks::hosts::Correction;
use crate::error::{MergeError, Result};
use crate::messages::causality::Causality;
use crate::whole_file::{OutputError, Replace, WholeFile};

/// The version that is read and written. Development versions wrote 1 and 2.
pub(crate) const VERSION: u32 = 3;

/// A plan in the form of its file, JSON. Times are trace times, nanoseconds.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// Its file, for errors.
    #[serde(skip)]
    pub(crate) path: PathBuf,
    pub(crate) version: u32,
    /// Identities of the recordings, in merge order.
    pub(crate) recordings: Vec<String>,
    /// Lengths of the inputs' files, bytes: those of recordings in merge order, then those of traces.
    pub(crate) lengths: Vec<u64>,
    /// `off`, `check` or `repair`.
    pub(crate) causality: String,
    /// Clock maps, clock errors, process ends and time zero: definition records in hexadecimal digits.
    pub(crate) definitions: Digits,
    /// Between each of these and the next about equally many bytes of events happen.
    pub(crate) quantiles_ns: Vec<i64>,
    /// By process, how a repair moves its events: time and shift.
    pub(crate) shifts: Vec<Vec<(i64, i64)>>,
    /// The corrections of hosts' clocks by messages, in the order in which they were found.
    pub(crate) corrections: Vec<Correction>,
    pub(crate) repair: Option<PlannedRepair>,
}

/// Bytes that are hexadecimal digits in the file. They are written and read digit by digit: a plan of many recordings has megabytes of them.
#[derive(Debug)]
pub(crate) struct Digits(pub(crate) Vec<u8>);

impl fmt::Display for Digits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl Serialize for Digits {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Digits {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        let digits = Cow::<str>::deserialize(deserializer)?;
        let bytes = digits.as_bytes().chunks(2).map(|pair| {
            let pair = std::str::from_utf8(pair).ok();
            let pair = pair.filter(|pair| pair.len() == 2 && !pair.starts_with('+'))?;
            u8::from_str_radix(pair, 16).ok()
        });
        let bytes: Option<Vec<u8>> = bytes.collect();
        let bytes =
            bytes.ok_or_else(|| D::Error::custom("its definitions are no hexadecimal digits"))?;
        Ok(Self(bytes))
    }
}

/// The findings of a repair before it moved anything.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PlannedRepair {
    pub(crate) processes: u64,
    pub(crate) over_limit: u64,
    pub(crate) count: u64,
    pub(crate) beyond_error: u64,
    pub(crate) largest_ns: u64,
    pub(crate) mean_ns: u64,
}

impl Plan {
    /// Returns how the merge that was planned treats messages. A merge by the plan must treat them likewise.
    ///
    /// # Errors
    /// If the plan names no such treatment.
    pub fn causality(&self) -> Result<Causality> {
        let mut all = Causality::ALL.into_iter();
        let found = all.find(|causality| causality.name() == self.causality);
        found.ok_or_else(|| self.refuse(format!("its causality is `{}`", self.causality)))
    }

    pub(crate) fn refuse(&self, why: String) -> MergeError {
        MergeError::NoPlan {
            path: self.path.clone(),
            why,
        }
    }

    /// Writes the plan, as JSON. `replace`: which existing files it may replace.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write(&self, path: &Path, replace: Replace) -> Result<()> {
        let mut file = WholeFile::create(path, replace)?;
        let written = serde_json::to_writer(&mut file, self);
        written.map_err(|error| OutputError::not_written(path, error.into()))?;
        Ok(file.finish()?)
    }

    /// Reads a plan.
    ///
    /// # Errors
    /// If the file cannot be read or is no plan.
    pub fn read(path: &Path) -> Result<Self> {
        let io = MergeError::io("read", path);
        let bytes = std::fs::read(path).map_err(io)?;
        Self::parse(&bytes, path)
    }

    /// Parses what such a file holds; `path` is for errors.
    ///
    /// # Errors
    /// If it is no plan.
    pub fn parse(bytes: &[u8], path: &Path) -> Result<Self> {
        let parsed = serde_json::from_slice(bytes);
        let plan: Self = parsed.map_err(|error| MergeError::NoPlan {
            path: path.to_owned(),
            why: error.to_string(),
        })?;
        Ok(Self {
            path: path.to_owned(),
            ..plan
        })
    }
}
