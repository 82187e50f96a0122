//! The whole cost of an event: processor time of all threads, from starting the recorder to the
//! finished files, the program's own work subtracted; and the bytes on disk.

use std::ops::ControlFlow::Continue;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use annals_merger::InputRecording;
use annals_recorder::{Compression, CompressionLevel};

use crate::annals::{self, AnnalsLane, Program};
use crate::contestant::MessageLane;
use crate::nothing::Nothing;
use crate::processor::process_cpu_ns;
use crate::random::Random;
use crate::workload::WholeProgram;

/// Calls between two pauses, in which background threads catch up: this compares the cost, not the behaviour under
/// overload.
const BATCH: u64 = 50_000;
const PAUSE: Duration = Duration::from_millis(5);

/// What one run cost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cost {
    /// Processor time of the process, nanoseconds.
    pub(crate) cpu_ns: u64,
    /// Events raised.
    pub(crate) raised: u64,
    /// Events that were dropped.
    pub(crate) dropped: u64,
    /// Bytes of the files.
    pub(crate) bytes: u64,
}

/// The contestants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Recording {
    /// The program alone.
    Nothing,
    /// Annals, compressing as it writes: the default of the library.
    AnnalsZstd,
    /// Annals, compressing when the program has ended: the default of `trace-cli record`.
    AnnalsLater,
    /// Annals without compression.
    AnnalsPlain,
    /// OTF2; its files are compressed afterwards with zstd, level 1.
    Otf2,
}

impl Recording {
    /// All, the reference first.
    pub(crate) const ALL: [Self; 5] = [
        Self::Nothing,
        Self::AnnalsZstd,
        Self::AnnalsLater,
        Self::AnnalsPlain,
        Self::Otf2,
    ];

    /// Returns its name in the tables.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Nothing => "program alone",
            Self::AnnalsZstd => "annals, zstd",
            Self::AnnalsLater => "annals, later",
            Self::AnnalsPlain => "annals, not compressed",
            Self::Otf2 => "otf2",
        }
    }

    /// Runs a program; the second cost has the compression in it of what is compressed afterwards.
    ///
    /// # Errors
    /// If a recorder fails, or the counts do not add up.
    pub(crate) fn run(
        self,
        directory: &Path,
        program: WholeProgram,
        calls: u64,
        seed: u64,
    ) -> Result<(Cost, Option<Cost>), String> {
        match self {
            Self::Nothing => {
                let before = process_cpu_ns();
                let raised = in_batches(&mut Nothing, program, calls, seed);
                let cpu_ns = process_cpu_ns() - before;
                let cost = Cost {
                    cpu_ns,
                    raised,
                    dropped: 0,
                    bytes: 0,
                };
                Ok((cost, None))
            }
            Self::AnnalsZstd => annals(directory, program, calls, seed, Compression::default()),
            Self::AnnalsLater => annals(directory, program, calls, seed, Compression::Later),
            Self::AnnalsPlain => {
                let none = CompressionLevel::None.into();
                annals(directory, program, calls, seed, none)
            }
            Self::Otf2 => otf2(directory, program, calls, seed),
        }
    }
}

fn in_batches<L: MessageLane>(lane: &mut L, program: WholeProgram, calls: u64, seed: u64) -> u64 {
    let random = &mut Random::new(seed);
    let mut raised = 0;
    let mut left = calls;
    while left > 0 {
        let batch = left.min(BATCH);
        raised += program.run(lane, batch, random);
        left -= batch;
        std::thread::sleep(PAUSE);
    }
    raised
}

fn annals(
    directory: &Path,
    program: WholeProgram,
    calls: u64,
    seed: u64,
    compression: Compression,
) -> Result<(Cost, Option<Cost>), String> {
    let directory = directory.join("annals");
    let before = process_cpu_ns();
    let recorder = Arc::new(Program::start(&directory, compression)?);
    let mut lane = AnnalsLane::new(Arc::clone(&recorder));
    let raised = in_batches(&mut lane, program, calls, seed);
    let status = recorder.finish();
    let cpu_ns = process_cpu_ns() - before;
    let check = annals::check(&status, raised)?;
    let bytes = std::fs::metadata(&status.path).map_err(|error| error.to_string())?;
    let cost = Cost {
        cpu_ns,
        raised,
        dropped: check.lost,
        bytes: bytes.len(),
    };
    let before = process_cpu_ns();
    let input = InputRecording::open(&status.path);
    let compressed = input.and_then(|input| {
        annals_merger::compress(&input, CompressionLevel::default(), |_| Continue(()))
    });
    let compressed = compressed.map_err(|error| error.to_string())?;
    let afterwards = compressed.map(|compressed| Cost {
        cpu_ns: cpu_ns + process_cpu_ns() - before,
        bytes: compressed.to_bytes,
        ..cost
    });
    annals::check(&status, raised)?;
    std::fs::remove_dir_all(&directory).map_err(|error| error.to_string())?;
    Ok((cost, afterwards))
}

#[cfg(not(otf2))]
fn otf2(_: &Path, _: WholeProgram, _: u64, _: u64) -> Result<(Cost, Option<Cost>), String> {
    Err(env!("OTF2_MISSING").to_owned())
}

#[cfg(otf2)]
fn otf2(
    directory: &Path,
    program: WholeProgram,
    calls: u64,
    seed: u64,
) -> Result<(Cost, Option<Cost>), String> {
    use crate::otf2::{Archive, Memory};
    let io = |error: std::io::Error| error.to_string();
    let directory = directory.join("otf2");
    let before = process_cpu_ns();
    let archive = Archive::open(&directory, 1, Memory::Warm)?;
    let raised = in_batches(&mut archive.lane(0), program, calls, seed);
    let closed = archive.close()?;
    let cpu_ns = process_cpu_ns() - before;
    let files = closed.files().map_err(io)?;
    let mut cost = Cost {
        cpu_ns,
        raised,
        dropped: 0,
        bytes: 0,
    };
    let mut compressed = cost;
    let before = process_cpu_ns();
    for path in &files {
        let small = path.with_extension("zst");
        let mut input = std::fs::File::open(path).map_err(io)?;
        cost.bytes += input.metadata().map_err(io)?.len();
        let output = std::fs::File::create(&small).map_err(io)?;
        zstd::stream::copy_encode(&mut input, &output, 1).map_err(io)?;
        compressed.bytes += output.metadata().map_err(io)?.len();
        std::fs::remove_file(&small).map_err(io)?;
    }
    compressed.cpu_ns += process_cpu_ns() - before;
    let read = closed.read()?;
    if read != raised {
        return Err(format!("{raised} events were raised, {read} read"));
    }
    std::fs::remove_dir_all(&directory).map_err(io)?;
    Ok((cost, Some(compressed)))
}
