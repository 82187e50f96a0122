//! Names of code that the program makes while it runs, from the files in which runtimes write them for `perf`: the text
//! `/tmp/perf-PID.map`; and `jit-PID.dump`, which has times, and which the program maps as executable (`jitdump-specification.txt` of Linux).
//!
//! A runtime may write a name long after the code was executed: then the region of the call is reserved, and defined when the name is there,
//! or at the end of the recording, with the address.
//!
//! The files are opened anew each time: a descriptor that is kept may be closed by the program. What they contain is not trusted.
#![expect(unsafe_code, reason = "the system is asked which user the program has")]

use std::collections::{BTreeMap, VecDeque};
use std::fs::{File, OpenOptions};
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use annals_recorder::{CodePlace, Recorder, RegionId, StringId, text_of};

/// The group of the regions.
const GROUP: &str = "made at run time";

/// Bytes that are read in one piece. A file with a longer line is no map.
const PIECE: usize = 64 << 10;

/// Most bytes of a file that are read, each time and in all.
pub(super) const MOST_EACH_TIME: usize = 1 << 20;
const MOST_BYTES: usize = 32 << 20;

/// Most entries of both files, and the longest name, bytes.
const MOST_CODES: usize = 1 << 18;
const LONGEST_NAME: usize = 1024;

/// Most ranges that are kept of codes in whose place others were made.
const MOST_REPLACED: usize = 1 << 12;

/// Most addresses that wait for a name, and how long, nanoseconds, those of one address are the same, where times of names matter.
const MOST_WAITING: usize = 1 << 16;
const WAIT_NS: u64 = 10_000_000;

/// How long `jit-PID.dump` is not searched for after it was not found.
const SEARCH_PERIOD: Duration = Duration::from_millis(200);

/// By how much the time of a file may be too early: the kernel takes that of its last tick.
const TICK: Duration = Duration::from_millis(10);

/// Code that was made.
struct Code {
    name: String,
    /// Since when it is there, reference clock. 0 means that this is not known.
    since_ns: u64,
    region: Option<RegionId>,
}

/// Takes the addresses of code.
type Each<'a> = &'a mut dyn FnMut(Range<u64>, Code);

/// One of the files, and how far it is read.
struct Source {
    path: PathBuf,
    is_dump: bool,
    began: SystemTime,
    offset: u64,
    bytes_left: usize,
}

impl Source {
    fn new(path: PathBuf, is_dump: bool) -> Self {
        Self {
            path,
            is_dump,
            began: SystemTime::now() - TICK,
            offset: 0,
            bytes_left: MOST_BYTES,
        }
    }

    /// Opens the file. `None` unless it is a regular one of the program's user: in `/tmp`, others may use its name. A map that is older
    /// than the program is of another one that had its number; a dump is the program's, which has mapped it.
    fn open(&self) -> Option<File> {
        let mut options = OpenOptions::new();
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY;
        let file = options.read(true).custom_flags(flags).open(&self.path);
        let file = file.ok()?;
        let found = file.metadata().ok()?;
        // SAFETY: the call touches no memory.
        let is_ours = found.is_file() && found.uid() == unsafe { libc::geteuid() };
        // Not all file systems know when a file was created.
        let made = found.created().or_else(|_| found.modified());
        let is_new = self.is_dump || made.is_ok_and(|made| made >= self.began);
        (is_ours && is_new).then_some(file)
    }

    /// Calls `each` with the codes that were added to the file since the last call, and their addresses. Reads at most this number of bytes.
    fn read(&mut self, most_bytes: usize, each: Each<'_>) {
        let Some(file) = self.open() else { return };
        let mut piece = vec![0; PIECE];
        for _ in 0..most_bytes.min(self.bytes_left).div_ceil(PIECE) {
            let length = file.read_at(&mut piece, self.offset).unwrap_or(0);
            let used = match self.is_dump {
                true => self.records(&piece[..length], each),
                false => lines(&piece[..length], each),
            };
            match used {
                Some(0) => return,
                Some(used) => {
                    self.offset = self.offset.saturating_add(used as u64);
                    self.bytes_left = self.bytes_left.saturating_sub(used.min(PIECE));
                }
                None => self.bytes_left = 0,
            }
        }
    }

    /// Reads the header, or records. Returns their bytes; `None` if this is no such file, or its times are not of the reference clock.
    fn records(&mut self, piece: &[u8], each: Each<'_>) -> Option<usize> {
        const MAGIC: u32 = 0x4a69_5444;
        const LOAD: u32 = 0;
        const LOAD_BYTES: usize = 56;
        if self.offset == 0 {
            let (Some(first), Some(length), Some(flags)) =
                (word(piece, 0), word(piece, 8), word(piece, 32))
            else {
                return Some(0);
            };
            let is_dump = first as u32 == MAGIC && length as u32 >= 40 && flags & 1 == 0;
            return is_dump.then_some(length as u32 as usize);
        }
        let mut used = 0;
        while let Some(first) = piece.get(used..).and_then(|rest| word(rest, 0)) {
            let (kind, length) = (first as u32, (first >> 32) as usize);
            let record = &piece[used..piece.len().min(used + length)];
            if length < 16 {
                return None;
            }
            if record.len() < length.min(LOAD_BYTES + LONGEST_NAME) {
                break;
            }
            if kind == LOAD && length > LOAD_BYTES {
                let (start, size) = (word(record, 32)?, word(record, 40)?);
                let name = record[LOAD_BYTES..].split(|byte| *byte == 0).next()?;
                let since_ns = word(record, 8)?;
                each(start..start.saturating_add(size), Code::new(name, since_ns));
            }
            used += length;
        }
        Some(used)
    }
}

impl Code {
    fn new(name: &[u8], since_ns: u64) -> Self {
        Self {
            name: text_of(&name[..name.len().min(LONGEST_NAME)]).into_owned(),
            since_ns,
            region: None,
        }
    }
}

fn word(bytes: &[u8], place: usize) -> Option<u64> {
    let bytes = bytes.get(place..place + 8)?;
    Some(u64::from_le_bytes(bytes.try_into().ok()?))
}

/// Reads whole lines. Returns their bytes; `None` if a line is too long.
fn lines(piece: &[u8], each: Each<'_>) -> Option<usize> {
    let last = piece.iter().rposition(|byte| *byte == b'\n');
    let whole = last.map_or(0, |last| last + 1);
    for line in piece[..whole].split(|byte| *byte == b'\n') {
        if let Some((range, code)) = code_of_line(line) {
            each(range, code);
        }
    }
    (whole != 0 || piece.len() < PIECE).then_some(whole)
}

/// Reads start and size, both hexadecimal, and the name.
fn code_of_line(line: &[u8]) -> Option<(Range<u64>, Code)> {
    let mut words = line.trim_ascii().splitn(3, u8::is_ascii_whitespace);
    let mut number = || {
        let digits = std::str::from_utf8(words.next()?).ok()?;
        u64::from_str_radix(digits.trim_start_matches("0x"), 16).ok()
    };
    let (start, size) = (number()?, number()?);
    let code = Code::new(words.next()?.trim_ascii(), 0);
    Some((start..start.saturating_add(size), code))
}

/// Which code is where.
pub(super) struct MadeCode {
    sources: Vec<Source>,
    searched: Option<Instant>,
    codes: Vec<Code>,
    /// By the start of a range: its end, and the code that was made there last. They do not overlap.
    ranges: BTreeMap<u64, (u64, usize)>,
    /// Ranges of codes in whose place others were made, in the order in which these were.
    replaced: VecDeque<(Range<u64>, usize)>,
    /// Addresses without a name and the time of the first sample; their region, and the time of the last sample.
    waiting: BTreeMap<(u64, u64), (RegionId, u64)>,
    /// The empty string.
    nothing: StringId,
}

impl MadeCode {
    pub(super) fn new(map: PathBuf, nothing: StringId) -> Self {
        Self {
            sources: vec![Source::new(map, false)],
            searched: None,
            codes: Vec::new(),
            ranges: BTreeMap::new(),
            replaced: VecDeque::new(),
            waiting: BTreeMap::new(),
            nothing,
        }
    }

    /// Returns the place of an address in no file, of a sample of this time.
    pub(super) fn place_of(&mut self, recorder: &Recorder, address: u64, ns: u64) -> CodePlace {
        let region = match self.code_at(address, ns) {
            Some(code) => {
                let Code { name, region, .. } = &mut self.codes[code];
                *region = region.or_else(|| recorder.add_region_at(name, "", 0, GROUP).ok());
                *region
            }
            None => self.wait_for_name(recorder, address, ns),
        };
        let line = |region| CodePlace::Line(region, self.nothing, 0);
        region.map_or(CodePlace::Address(None, address), line)
    }

    /// Names everything that has no name yet.
    pub(super) fn end(mut self, recorder: &Recorder) {
        self.grow(recorder, MOST_BYTES);
        for ((address, first_ns), (region, last_ns)) in &self.waiting {
            let last = self.code_at(*address, *last_ns);
            let code = self.code_at(*address, *first_ns);
            let _ = match code.filter(|code| last == Some(*code)) {
                Some(code) => recorder.define_reserved(*region, &self.codes[code].name, GROUP),
                None => recorder.define_reserved(*region, &format!("{address:#x}"), ""),
            };
        }
    }

    /// Returns the region of an address without a name. `None` if too many wait for one.
    fn wait_for_name(&mut self, recorder: &Recorder, address: u64, ns: u64) -> Option<RegionId> {
        let is_full = self.waiting.len() == MOST_WAITING;
        let has_times = self.sources.len() > 1;
        let mut earlier = self.waiting.range_mut((address, 0)..=(address, ns));
        if let Some(((_, first_ns), (region, last_ns))) = earlier.next_back()
            && (is_full || !has_times || ns - first_ns < WAIT_NS)
        {
            *last_ns = ns.max(*last_ns);
            return Some(*region);
        }
        let region = (!is_full).then(|| recorder.raiser().reserve_region())??;
        self.waiting.insert((address, ns), (region, ns));
        Some(region)
    }

    /// Returns the code that was made last before this time.
    fn code_at(&self, address: u64, ns: u64) -> Option<usize> {
        let is_before = |code: &usize| self.codes[*code].since_ns <= ns;
        let (_, (end, last)) = self.ranges.range(..=address).next_back()?;
        if address >= *end || is_before(last) {
            return (address < *end).then_some(*last);
        }
        let mut earlier = self.replaced.iter().rev();
        let found = earlier.find(|(range, code)| range.contains(&address) && is_before(code));
        found.map(|(_, code)| *code)
    }

    /// Reads what was added to the files since the last call, of each at most this number of bytes.
    pub(super) fn grow(&mut self, recorder: &Recorder, most_bytes: usize) {
        let is_due = |last: Instant| last.elapsed() >= SEARCH_PERIOD;
        if self.sources.len() == 1 && self.searched.is_none_or(is_due) {
            self.searched = Some(Instant::now());
            let found = mapped_dump().map(|path| Source::new(path, true));
            self.sources.extend(found);
        }
        let mut sources = std::mem::take(&mut self.sources);
        for source in &mut sources {
            source.read(most_bytes, &mut |range, code| {
                self.add(recorder, range, code)
            });
        }
        self.sources = sources;
    }

    fn add(&mut self, recorder: &Recorder, range: Range<u64>, code: Code) {
        if range.is_empty() || code.name.is_empty() || self.codes.len() == MOST_CODES {
            return;
        }
        self.clear(&range);
        self.ranges
            .insert(range.start, (range.end, self.codes.len()));
        // Of a dump, others may follow that were made before the samples.
        if code.since_ns == 0 {
            let found = self.waiting.range((range.start, 0)..(range.end, 0));
            let found: Vec<(u64, u64)> = found.map(|(waiting, _)| *waiting).collect();
            for (region, _) in found.iter().filter_map(|found| self.waiting.remove(found)) {
                let _ = recorder.define_reserved(region, &code.name, GROUP);
            }
        }
        self.codes.push(code);
    }

    /// Removes the codes in this range.
    fn clear(&mut self, range: &Range<u64>) {
        while let Some((&from, &(to, code))) = self.ranges.range(..range.end).next_back()
            && to > range.start
        {
            self.ranges.remove(&from);
            if from < range.start {
                self.ranges.insert(from, (range.start, code));
            }
            if to > range.end {
                self.ranges.insert(range.end, (to, code));
            }
            if self.replaced.len() == MOST_REPLACED {
                self.replaced.pop_front();
            }
            let replaced = from.max(range.start)..to.min(range.end);
            self.replaced.push_back((replaced, code));
        }
    }
}

/// Returns the path of `jit-PID.dump`, if it is in memory as code.
fn mapped_dump() -> Option<PathBuf> {
    let maps = std::fs::read("/proc/self/maps").ok()?;
    let name = format!("/jit-{}.dump", std::process::id());
    let mut lines = maps.split(|byte| *byte == b'\n');
    let line = lines.find(|line| {
        let access = line.split(|byte| *byte == b' ').nth(1);
        line.ends_with(name.as_bytes()) && access.is_some_and(|access| access.contains(&b'x'))
    })?;
    let path = line.iter().position(|byte| *byte == b'/')?;
    Some(std::str::from_utf8(&line[path..]).ok()?.into())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::path::Path;

    use annals_recorder::Options;

    use super::*;

    struct Tried {
        directory: tempfile::TempDir,
        recorder: Recorder,
        made: MadeCode,
    }

    impl Tried {
        fn new() -> Self {
            let directory = tempfile::tempdir().unwrap();
            let options = Options::new(directory.path().join("recording"));
            let recorder = Recorder::start(&options).unwrap();
            let nothing = recorder.add_string("").unwrap();
            let made = MadeCode::new(directory.path().join("map"), nothing);
            Self {
                directory,
                recorder,
                made,
            }
        }

        fn map(&self) -> PathBuf {
            self.directory.path().join("map")
        }

        fn name_at(&mut self, address: u64, ns: u64) -> Option<&str> {
            self.made.grow(&self.recorder, MOST_EACH_TIME);
            let code = self.made.code_at(address, ns)?;
            Some(&self.made.codes[code].name)
        }
    }

    fn put(record: &mut Vec<u8>, words: &[u64]) {
        record.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    }

    fn dump(loads: &[(&str, u64, Range<u64>)]) -> Vec<u8> {
        let mut bytes = Vec::new();
        put(&mut bytes, &[1 << 32 | 0x4a69_5444, 40, 0, 0, 0]);
        for (name, ns, range) in loads {
            let length = 56 + name.len() as u64 + 1;
            let size = range.end - range.start;
            put(&mut bytes, &[length << 32, *ns, 0, 0, range.start, size, 0]);
            bytes.extend(name.as_bytes());
            bytes.push(0);
        }
        bytes
    }

    fn read_dump(bytes: &[u8]) -> Tried {
        let mut tried = Tried::new();
        let path = tried.directory.path().join("jit-1.dump");
        std::fs::write(&path, bytes).unwrap();
        tried.made.sources.push(Source::new(path, true));
        tried.made.grow(&tried.recorder, MOST_EACH_TIME);
        tried
    }

    #[test]
    fn the_latest_code_before_a_sample_counts() {
        let loads = [
            ("wide", 10, 0x1000..0x2000),
            ("narrow", 20, 0x1800..0x1810),
            ("new", 30, 0x1000..0x1808),
        ];
        let mut tried = read_dump(&dump(&loads));
        let mut is = |address, ns, name| assert_eq!(tried.name_at(address, ns), name);
        is(0x1800, 9, None);
        is(0x1800, 10, Some("wide"));
        is(0x1800, 29, Some("narrow"));
        is(0x1800, 30, Some("new"));
        is(0x1808, 99, Some("narrow"));
        is(0x1810, 99, Some("wide"));
        is(0x2000, 99, None);
        is(0xfff, 99, None);
    }

    #[test]
    fn lines_are_read_when_they_are_whole() {
        let mut tried = Tried::new();
        std::fs::write(
            tried.map(),
            "1000 10 a b\n0x2000 0x20 c\nno line\n3000 10 d",
        )
        .unwrap();
        assert_eq!(tried.name_at(0x100f, 1), Some("a b"));
        assert_eq!(tried.name_at(0x2010, 1), Some("c"));
        assert_eq!(tried.name_at(0x3000, 1), None);
        std::fs::write(
            tried.map(),
            "1000 10 a b\n0x2000 0x20 c\nno line\n3000 10 d\n",
        )
        .unwrap();
        assert_eq!(tried.name_at(0x3000, 1), Some("d"));
    }

    #[test]
    fn a_dump_that_is_cut_or_damaged_names_nothing_wrong() {
        let whole = dump(&[
            ("first", 10, 0x1000..0x1100),
            ("second", 10, 0x2000..0x2100),
        ]);
        for length in 0..whole.len() {
            let mut tried = read_dump(&whole[..length]);
            assert!([None, Some("first")].contains(&tried.name_at(0x1000, 99)));
            assert_eq!(tried.name_at(0x2000, 99), None);
        }
        for place in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[place] ^= 0xff;
            read_dump(&bytes);
        }
    }

    /// Whatever is under the name in `/tmp`: only a regular file of the user that is new is read.
    #[test]
    fn files_of_others_are_not_read() {
        let line = "1000 10 wrong\n";
        let reads = |make: &dyn Fn(&Path, &Path)| {
            let mut tried = Tried::new();
            let other = tried.directory.path().join("other");
            std::fs::write(&other, line).unwrap();
            make(&tried.map(), &other);
            tried.name_at(0x1000, 1).is_some()
        };
        assert!(reads(&|map, _| std::fs::write(map, line).unwrap()));
        assert!(!reads(&|map, other| symlink(other, map).unwrap()));
        assert!(!reads(&|map, _| std::fs::create_dir(map).unwrap()));
        assert!(!reads(&|map, _| {
            let made = std::process::Command::new("mkfifo").arg(map).status();
            assert!(made.unwrap().success());
        }));
        // Only root can make a file another user's.
        let is_anothers = |map: &Path| std::os::unix::fs::chown(map, Some(12345), None).is_ok();
        assert!(!reads(&|map, _| {
            std::fs::write(map, line).unwrap();
            if !is_anothers(map) {
                std::fs::remove_file(map).unwrap();
            }
        }));
        let mut tried = Tried::new();
        std::fs::write(tried.map(), line).unwrap();
        std::thread::sleep(5 * TICK);
        tried.made = MadeCode::new(tried.map(), tried.made.nothing);
        assert_eq!(tried.name_at(0x1000, 1), None, "an earlier program's");
    }

    #[test]
    fn large_files_cost_bounded_memory() {
        let mut tried = Tried::new();
        File::create(tried.map())
            .unwrap()
            .set_len(64 << 30)
            .unwrap();
        assert_eq!(tried.name_at(0, 1), None);
        // Each wide range covers all narrow ones.
        let mut tried = Tried::new();
        let narrow = |number| format!("{:x} 8 narrow\n", 0x1000 + 16 * number);
        let lines = (0..600_000_u64).map(|number| match number % 2 {
            0 => narrow(number),
            _ => "1 ffffffffffffffff wide\n".to_owned(),
        });
        let lines: String = lines.collect();
        std::fs::write(tried.map(), lines.repeat(4)).unwrap();
        tried.made.grow(&tried.recorder, usize::MAX);
        assert_eq!(tried.made.codes.len(), MOST_CODES);
        assert!(tried.made.ranges.len() <= 2 * MOST_CODES);
        assert!(tried.made.replaced.len() <= MOST_REPLACED);
        assert!(tried.made.sources[0].offset <= (MOST_BYTES + PIECE) as u64);
    }

    #[test]
    fn a_name_that_is_late_is_the_one_of_the_samples_before() {
        let mut tried = Tried::new();
        let (late, never) = (0x1000, 0x9000);
        tried.made.place_of(&tried.recorder, late, 5);
        tried.made.place_of(&tried.recorder, never, 5);
        assert_eq!(tried.made.waiting.len(), 2);
        std::fs::write(tried.map(), "1000 10 late\n").unwrap();
        tried.made.grow(&tried.recorder, MOST_EACH_TIME);
        assert_eq!(tried.made.waiting.keys().collect::<Vec<_>>(), [&(never, 5)]);
    }
}
