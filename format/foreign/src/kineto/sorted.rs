//! Events on disk, in the order of their lanes: runs that fit into memory are sorted, and merged when they are read.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use byteorder::{ByteOrder, LittleEndian};

/// Bytes of a run that are read at a time.
const READ_BYTES: usize = 1 << 16;
/// Bytes of an event without its text.
const FIXED_BYTES: usize = 57;

/// No number.
pub(super) const NONE: u64 = u64::MAX;
/// No call.
pub(super) const NO_CALL: u32 = u32::MAX;

/// What an event is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(super) enum Kind {
    /// A slice of time.
    Slice,
    /// A call of the runtime or the driver, which may launch a kernel.
    Runtime,
    /// A kernel or a copy on a device.
    Device,
    /// A step of the profiler.
    Step,
    /// A moment.
    Instant,
    /// Of a collective operation: the dispatcher's operator, the annotation, the descriptor, the kernel.
    Dispatcher,
    Annotation,
    Descriptor,
    Kernel,
    /// The annotation around the kernel of a collective operation.
    DeviceAnnotation,
}

impl Kind {
    const ALL: [Self; 10] = [
        Self::Slice,
        Self::Runtime,
        Self::Device,
        Self::Step,
        Self::Instant,
        Self::Dispatcher,
        Self::Annotation,
        Self::Descriptor,
        Self::Kernel,
        Self::DeviceAnnotation,
    ];

    /// Returns whether a runtime call can have launched it.
    pub(super) const fn is_on_device(self) -> bool {
        matches!(self, Self::Device | Self::Kernel)
    }
}

/// An event. Fields in the order by which events are sorted.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Place {
    pub(super) location: u32,
    pub(super) start_ns: i64,
    /// Of equal starts, the longest is first: it is around the others.
    pub(super) duration_ns: Reverse<u64>,
    /// Its number in the file.
    pub(super) order: u64,
}

/// An event.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record {
    pub(super) place: Place,
    pub(super) kind: Kind,
    pub(super) region: u32,
    /// Number of its call of a collective operation, or [`NO_CALL`].
    pub(super) call: u32,
    /// What connects a runtime call with a kernel, or [`NONE`].
    pub(super) correlation: u64,
    /// What connects an operator with its runtime calls and kernels, or [`NONE`].
    pub(super) external_id: u64,
}

impl Record {
    pub(super) fn end_ns(&self) -> i64 {
        self.place
            .start_ns
            .saturating_add_unsigned(self.place.duration_ns.0)
    }

    fn put(&self, text: &[u8], out: &mut Vec<u8>) {
        out.extend(self.place.location.to_le_bytes());
        out.extend(self.place.start_ns.to_le_bytes());
        out.extend(self.place.duration_ns.0.to_le_bytes());
        out.extend(self.place.order.to_le_bytes());
        out.push(self.kind as u8);
        out.extend(self.region.to_le_bytes());
        out.extend(self.call.to_le_bytes());
        out.extend(self.correlation.to_le_bytes());
        out.extend(self.external_id.to_le_bytes());
        out.extend((text.len() as u32).to_le_bytes());
        out.extend(text);
    }

    /// Returns a record and the length of its text.
    fn get(bytes: &[u8; FIXED_BYTES]) -> (Self, usize) {
        let word = |at: usize| LittleEndian::read_u64(&bytes[at..]);
        let half = |at: usize| LittleEndian::read_u32(&bytes[at..]);
        let record = Self {
            place: Place {
                location: half(0),
                start_ns: word(4) as i64,
                duration_ns: Reverse(word(12)),
                order: word(20),
            },
            kind: Kind::ALL[usize::from(bytes[28]) % Kind::ALL.len()],
            region: half(29),
            call: half(33),
            correlation: word(37),
            external_id: word(45),
        };
        (record, half(53) as usize)
    }
}

/// Takes events in any order.
pub(super) struct Sorter {
    file: File,
    /// Bytes of the file so far.
    length: u64,
    runs: Vec<(u64, u64)>,
    /// Events that wait, and where their texts are.
    waiting: Vec<(Record, u32, u32)>,
    texts: Vec<u8>,
    most_bytes: usize,
}

impl Sorter {
    /// Creates a sorter with a temporary file in a directory, which keeps about a number of bytes in memory.
    pub(super) fn new(directory: &Path, most_bytes: usize) -> io::Result<Self> {
        Ok(Self {
            file: tempfile::tempfile_in(directory)?,
            length: 0,
            runs: Vec::new(),
            waiting: Vec::new(),
            texts: Vec::new(),
            most_bytes,
        })
    }

    pub(super) fn add(&mut self, record: Record, text: &[u8]) -> io::Result<()> {
        let start = self.texts.len() as u32;
        self.texts.extend_from_slice(text);
        self.waiting.push((record, start, text.len() as u32));
        let held = self.waiting.len() * size_of::<(Record, u32, u32)>() + self.texts.len();
        if held >= self.most_bytes {
            self.write_run()?;
        }
        Ok(())
    }

    fn write_run(&mut self) -> io::Result<()> {
        self.waiting
            .sort_unstable_by_key(|(record, ..)| record.place);
        let start = self.length;
        let mut bytes = Vec::with_capacity(2 * READ_BYTES);
        for (record, at, length) in self.waiting.drain(..) {
            let text = &self.texts[at as usize..(at + length) as usize];
            record.put(text, &mut bytes);
            if bytes.len() >= READ_BYTES {
                self.file.write_all_at(&bytes, self.length)?;
                self.length += bytes.len() as u64;
                bytes.clear();
            }
        }
        self.file.write_all_at(&bytes, self.length)?;
        self.length += bytes.len() as u64;
        self.runs.push((start, self.length));
        self.texts.clear();
        Ok(())
    }

    /// Ends the events. `names` are kept with them.
    pub(super) fn finish(mut self, names: &[u8]) -> io::Result<Sorted> {
        self.write_run()?;
        self.file.write_all_at(names, self.length)?;
        Ok(Sorted {
            names: (self.length, names.len()),
            file: self.file,
            runs: self.runs,
        })
    }
}

/// Events on disk.
pub(super) struct Sorted {
    file: File,
    runs: Vec<(u64, u64)>,
    names: (u64, usize),
}

impl Sorted {
    /// Returns what [`Sorter::finish`] was called with.
    pub(super) fn names(&self) -> io::Result<Vec<u8>> {
        let mut names = vec![0; self.names.1];
        self.file.read_exact_at(&mut names, self.names.0)?;
        Ok(names)
    }

    /// Calls a function with every event and its text, in order.
    pub(super) fn for_each(
        &self,
        mut each: impl FnMut(&Record, &[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        let runs = self.runs.iter().map(|(start, end)| Run {
            file: &self.file,
            next: *start,
            end: *end,
            bytes: Vec::new(),
            at: 0,
        });
        let mut runs: Vec<Run<'_>> = runs.collect();
        let mut heads = BinaryHeap::new();
        for (number, run) in runs.iter_mut().enumerate() {
            if let Some((record, _)) = run.peek()? {
                heads.push(Reverse((record.place, number)));
            }
        }
        while let Some(Reverse((_, number))) = heads.pop() {
            let run = &mut runs[number];
            if let Some((record, text)) = run.peek()? {
                let length = FIXED_BYTES + text.len();
                each(&record, text)?;
                run.at += length;
            }
            if let Some((record, _)) = run.peek()? {
                heads.push(Reverse((record.place, number)));
            }
        }
        Ok(())
    }
}

/// Reads a run.
struct Run<'a> {
    file: &'a File,
    /// Where the bytes after `bytes` are in the file.
    next: u64,
    end: u64,
    bytes: Vec<u8>,
    at: usize,
}

impl Run<'_> {
    /// Has at least a number of bytes from `at` on, unless the run ends.
    fn fill(&mut self, wanted: usize) -> io::Result<()> {
        if self.bytes.len() - self.at >= wanted || self.next == self.end {
            return Ok(());
        }
        self.bytes.drain(..self.at);
        self.at = 0;
        let held = self.bytes.len();
        let rest = usize::try_from(self.end - self.next).unwrap_or(usize::MAX);
        let more = READ_BYTES.max(wanted).min(rest);
        self.bytes.resize(held + more, 0);
        self.file
            .read_exact_at(&mut self.bytes[held..], self.next)?;
        self.next += more as u64;
        Ok(())
    }

    /// Returns the next event and its text. `None` at the end.
    fn peek(&mut self) -> io::Result<Option<(Record, &[u8])>> {
        self.fill(FIXED_BYTES)?;
        let Some(fixed) = self.bytes[self.at..].first_chunk() else {
            return Ok(None);
        };
        let (record, length) = Record::get(fixed);
        self.fill(FIXED_BYTES + length)?;
        let start = self.at + FIXED_BYTES;
        Ok(self
            .bytes
            .get(start..start + length)
            .map(|text| (record, text)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_read_in_order_however_many_runs_there_are() {
        let directory = tempfile::tempdir().expect("a directory");
        for most_bytes in [1, 1000, 1 << 20] {
            let mut sorter = Sorter::new(directory.path(), most_bytes).expect("a file");
            let mut expected = Vec::new();
            for order in 0..1000_u64 {
                let place = Place {
                    location: (order * 7 % 3) as u32,
                    start_ns: (order * 7919 % 101) as i64 - 50,
                    duration_ns: Reverse(order * 31 % 17),
                    order,
                };
                let record = Record {
                    place,
                    kind: Kind::ALL[order as usize % 10],
                    region: order as u32,
                    call: NO_CALL,
                    correlation: order,
                    external_id: NONE,
                };
                let text = "x".repeat(order as usize % 50);
                sorter.add(record, text.as_bytes()).expect("room");
                expected.push((place, text));
            }
            expected.sort();
            let sorted = sorter.finish(b"names").expect("room");
            let mut read = Vec::new();
            sorted
                .for_each(|record, text| {
                    let text = String::from_utf8(text.to_vec()).expect("text");
                    assert_eq!(record.kind as u64, record.correlation % 10);
                    read.push((record.place, text));
                    Ok(())
                })
                .expect("a file");
            assert_eq!(read, expected);
            assert_eq!(sorted.names().expect("a file"), b"names");
        }
    }
}
