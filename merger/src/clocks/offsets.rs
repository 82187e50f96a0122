//! Offsets between hosts that a user measured: `--clock-offsets FILE`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use annals_format::units::parse_seconds;

use crate::error::{MergeError, Result};

/// What printing microseconds and reading the wall clock in them adds to a bound: the round trip and the
/// offset are rounded by half a microsecond each, and two readings by up to one.
const PRINTED_NS: u64 = 3_000;

/// The file's line for one host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct OffsetOfHost {
    /// Wall clock of the first host less this one's.
    pub(crate) offset_ns: i64,
    /// Bound of its error.
    pub(crate) error_ns: u64,
}

impl OffsetOfHost {
    const fn bounds(self) -> (i64, i64) {
        (
            self.offset_ns.saturating_sub_unsigned(self.error_ns),
            self.offset_ns.saturating_add_unsigned(self.error_ns),
        )
    }
}

/// Offsets of hosts' wall clocks to the first host's, as Open MPI's `mpisync` writes them.
///
/// One line for each process: `HOST RTT OFFSET`, separated by white space, round trip and offset in
/// seconds as decimal numbers; the offset is what has to be added to the host's wall clock to get the
/// first host's. The offset is bounded by half the round trip, and 3 µs for what six digits and a clock
/// that counts microseconds leave out. Of several lines of a host the one with the shortest round trip
/// counts. Empty lines and text after a `#` are ignored.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct ClockOffsets {
    hosts: Vec<(String, OffsetOfHost)>,
    /// Hosts of which no offset is within the bounds of all their lines.
    contradictory: BTreeSet<String>,
}

impl ClockOffsets {
    /// Reads a file.
    ///
    /// # Errors
    /// If it cannot be read, or a line is none of these; the error names the line.
    pub fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).map_err(MergeError::io("read", path))?;
        Self::parse(&text, path)
    }

    /// Reads what such a file says; `path` is for errors.
    ///
    /// # Errors
    /// If a line is none of these; the error names the line.
    pub fn parse(text: &str, path: &Path) -> Result<Self> {
        Self::of_lines(text).map_err(|(line, expected, found)| MergeError::Offsets {
            path: path.to_owned(),
            line,
            expected,
            found,
        })
    }

    fn of_lines(text: &str) -> std::result::Result<Self, (usize, &'static str, String)> {
        let mut offsets = Self::default();
        let mut within: BTreeMap<&str, (i64, i64)> = BTreeMap::new();
        for (number, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or("");
            let fields: Vec<&str> = line.split_whitespace().collect();
            if fields.is_empty() {
                continue;
            }
            let wrong = |expected, found: &str| (number + 1, expected, found.to_owned());
            let &[host, round_trip, offset] = fields.as_slice() else {
                let expected = "a host, a round trip and an offset in seconds";
                return Err(wrong(expected, line.trim()));
            };
            let round_trip_ns = parse_seconds(round_trip)
                .ok()
                .and_then(|ns| u64::try_from(ns).ok())
                .ok_or_else(|| wrong("a round trip in seconds, not below 0", round_trip))?;
            let offset_ns = parse_seconds(offset)
                .ok()
                .ok_or_else(|| wrong("an offset in seconds", offset))?;
            let found = OffsetOfHost {
                offset_ns,
                error_ns: round_trip_ns.div_ceil(2).saturating_add(PRINTED_NS),
            };
            let bounds = found.bounds();
            let both = within.entry(host).or_insert(bounds);
            *both = (both.0.max(bounds.0), both.1.min(bounds.1));
            if both.0 > both.1 {
                offsets.contradictory.insert(host.to_owned());
            }
            match offsets.hosts.iter_mut().find(|(known, _)| known == host) {
                Some((_, known)) if known.error_ns <= found.error_ns => {}
                Some((_, known)) => *known = found,
                None => offsets.hosts.push((host.to_owned(), found)),
            }
        }
        Ok(offsets)
    }

    /// Returns what does not fit, a line each: hosts of the run of which the file says nothing, hosts that are not of
    /// the run, and hosts whose lines contradict each other. Of a run of one host, nothing.
    pub fn doubts<'a>(&self, hosts_of_run: impl IntoIterator<Item = &'a str>) -> Vec<String> {
        let of_run: BTreeSet<&str> = hosts_of_run.into_iter().collect();
        if of_run.len() < 2 {
            return Vec::new();
        }
        let unsaid = of_run.iter().filter(|name| self.of_host(name).is_none());
        let meant: Vec<&str> = of_run.iter().filter_map(|name| self.find(name)).collect();
        let names = self.hosts.iter().map(|(name, _)| name.as_str());
        let strange = names.filter(|name| !meant.contains(name));
        let contradictory = self.contradictory.iter().map(String::as_str);
        let found: [(&str, Vec<&str>); 3] = [
            (
                "nothing is said of hosts of the run",
                unsaid.copied().collect(),
            ),
            ("no recording is of", strange.collect()),
            (
                "lines contradict each other, the one of the shortest round trip counts, of",
                contradictory.collect(),
            ),
        ];
        let found = found.into_iter().filter(|(_, names)| !names.is_empty());
        found
            .map(|(what, names)| {
                let shown = names[..names.len().min(10)].join(", ");
                let more = if names.len() > 10 { ", …" } else { "" };
                format!("{what}: {shown}{more}")
            })
            .collect()
    }

    /// Returns what it says of a host, by its name, or by the part of it before the first dot.
    pub(crate) fn of_host(&self, name: &str) -> Option<OffsetOfHost> {
        let name = self.find(name)?;
        let mut hosts = self.hosts.iter();
        hosts
            .find(|(host, _)| host == name)
            .map(|(_, offset)| *offset)
    }

    /// Returns the name that the file has for a host.
    fn find(&self, name: &str) -> Option<&str> {
        let short = |name: &str| name.split('.').next().map(str::to_owned);
        let exact = self.hosts.iter().find(|(host, _)| host == name);
        let found = exact.or_else(|| {
            let mut alike = self
                .hosts
                .iter()
                .filter(|(host, _)| short(host) == short(name));
            let found = alike.next();
            found.filter(|_| alike.next().is_none())
        });
        found.map(|(host, _)| host.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_mpisync_are_read() {
        let text = "node1.cluster 0.000000 0.000000\nnode1.cluster 0.000001 0.000000\n\
                    # a comment\n\nnode2.cluster 0.000012 -0.001500\nnode2.cluster 0.000010 -0.001501\n";
        let offsets = ClockOffsets::of_lines(text).unwrap();
        let of = |name: &str| offsets.of_host(name).map(|o| (o.offset_ns, o.error_ns));
        assert_eq!(of("node1.cluster"), Some((0, 3_000)));
        assert_eq!(of("node2.cluster"), Some((-1_501_000, 8_000)));
        assert_eq!(of("node2"), Some((-1_501_000, 8_000)));
        assert_eq!(of("node3"), None);
    }

    #[test]
    fn what_does_not_fit_is_told() {
        let text = "a 0 0\nb.x 0.00001 0.5\nb.x 0.00002 0.500001\nc 0.00001 1\nc 0.00001 2\n";
        let offsets = ClockOffsets::of_lines(text).unwrap();
        let contradictory =
            "lines contradict each other, the one of the shortest round trip counts, of: c";
        assert_eq!(offsets.doubts(["a", "b", "c"]), [contradictory]);
        assert_eq!(
            offsets.doubts(["a", "c", "d"]),
            [
                "nothing is said of hosts of the run: d",
                "no recording is of: b.x",
                contradictory
            ]
        );
        assert_eq!(offsets.doubts(["d"]), [""; 0]);
    }

    #[test]
    fn other_lines_are_named() {
        for (text, line, found) in [
            ("a 0.1 0.2\nb 0.1\n", 2, "b 0.1"),
            ("a 0.1 0.2 0.3", 1, "a 0.1 0.2 0.3"),
            ("a -0.1 0.2", 1, "-0.1"),
            ("\n\na 0.1 nan", 3, "nan"),
            ("a 1e-6 0", 1, "1e-6"),
            ("a 0 99999999999999999999", 1, "99999999999999999999"),
            ("a . 0", 1, "."),
        ] {
            let (at, _, what) = ClockOffsets::of_lines(text).unwrap_err();
            assert_eq!((at, what.as_str()), (line, found));
        }
    }
}
