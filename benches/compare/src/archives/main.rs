//! How fast OTF2 archives are read and written, compared with the reference library on the same events, interleaved,
//! with one thread: its local readers with a callback for each event, its event writers into files.
//!
//! `bash benches/compare/run.sh --archives` installs the library and runs it.

#[cfg(otf2)]
#[path = "../merging/otf2.rs"]
mod otf2;

use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use annals_foreign::otf2::{
    ChunkHeader, ClockCorrection, EventReader, EventToWrite, EventWriter, Item, LEAST_CHUNK,
    LocalDefinitions, RawRecords,
};
use clap::Parser;
use annals_test_support::synthetic::{self, Happening, Program};

/// How fast OTF2 archives are read and written, compared with the reference library.
#[derive(Clone, Debug, Parser)]
struct Arguments {
    /// Events of a location
    #[arg(long, default_value_t = 1_000_000)]
    events: u64,
    /// Locations
    #[arg(long, default_value_t = 8)]
    locations: u32,
    /// Rounds; each measures every contestant once
    #[arg(long, default_value_t = 7)]
    rounds: u32,
}

/// Reads all locations; returns the number of events and the sum of their values.
fn read(directory: &Path, locations: u32) -> (u64, u64) {
    let (mut events, mut sum) = (0_u64, 0_u64);
    for location in 0..locations {
        let file = |name: &str| fs::read(directory.join(format!("trace/{location}.{name}")));
        let mut local = LocalDefinitions::default();
        let definitions = file("def").unwrap_or_default();
        if let Ok(records) = RawRecords::new(&definitions) {
            let endian = records.endian();
            for record in records.flatten() {
                let _ = local.take(record, endian);
            }
        }
        let (mut correction, _) = ClockCorrection::new(&local.clock_offsets);
        let bytes = file("evt").expect("a location's file");
        for chunk in bytes.chunks(LEAST_CHUNK as usize) {
            let (mut reader, _): (_, ChunkHeader) = EventReader::of_chunk(chunk).expect("a chunk");
            while let Ok(Item::Event) = reader.next_item() {
                if let Some(record) = reader.record() {
                    local.globalize(record, &mut reader.values, &mut reader.attributes);
                }
                events += 1;
                sum = sum.wrapping_add(correction.correct(reader.time));
                sum = reader.values.iter().fold(sum, |sum, value| sum.wrapping_add(*value));
            }
        }
    }
    (events, sum)
}

/// Writes the events of all locations.
fn write(directory: &Path, locations: u32, events: u64) -> std::io::Result<()> {
    use std::io::Write;
    use std::os::unix::fs::FileExt;
    fs::create_dir_all(directory)?;
    for location in 0..locations {
        let mut program = Program::new(location.into(), locations.into());
        let mut tick = synthetic::first_tick(location);
        let mut file = fs::File::create(directory.join(format!("{location}.evt")))?;
        let mut writer = EventWriter::new(LEAST_CHUNK);
        for _ in 0..events {
            let (step, what) = program.next_event();
            tick += step;
            let (id, values, count) = match what {
                Happening::Region(true, region) => (12, [region, 0, 0, 0], 1),
                Happening::Region(false, region) => (13, [region, 0, 0, 0], 1),
                Happening::Message(is_send, [communicator, peer, tag, bytes]) => {
                    (if is_send { 14 } else { 18 }, [peer, communicator, tag, bytes], 4)
                }
                Happening::Point(which, value) => (34, [which, value, 0, 0], 2),
                Happening::Mpi(..) => unreachable!("events at random have none"),
            };
            let event = EventToWrite {
                id,
                time: tick,
                values: &values[..count],
                attributes: &[],
                payload: &[],
            };
            writer.write(event).map_err(std::io::Error::other)?;
            if writer.pending() >= 1 << 18 {
                file.write_all(writer.bytes())?;
                writer.clear();
            }
        }
        writer.finish();
        file.write_all(writer.bytes())?;
        for (at, value) in writer.patches {
            file.write_all_at(&value.to_le_bytes(), at)?;
        }
    }
    Ok(())
}

fn shown(name: &str, seconds: &mut [f64], events: u64) -> f64 {
    seconds.sort_by(f64::total_cmp);
    let median = seconds[seconds.len() / 2];
    let of = |seconds: f64| seconds * 1e9 / events as f64;
    println!(
        "{name:34} min {:6.2} ns/event, median {:6.2} ns/event, {:6.1} M events/s",
        of(seconds[0]),
        of(median),
        events as f64 / median / 1e6
    );
    median
}

#[cfg(otf2)]
fn measure(arguments: &Arguments) -> Result<(), String> {
    let (locations, events) = (arguments.locations, arguments.events);
    let all = events * u64::from(locations);
    let failed = |error: std::io::Error| error.to_string();
    let scratch = tempfile::tempdir().map_err(failed)?;
    let mut seconds: [Vec<f64>; 4] = Default::default();
    for round in 0..arguments.rounds {
        let theirs = scratch.path().join("theirs");
        let ours = scratch.path().join("ours");
        for directory in [&theirs, &ours] {
            let _ = fs::remove_dir_all(directory);
        }
        let mut measured = |place: usize, work: &mut dyn FnMut() -> Result<(), String>| {
            let start = Instant::now();
            work()?;
            seconds[place].push(start.elapsed().as_secs_f64());
            Ok::<(), String>(())
        };
        let write_theirs = &mut || otf2::write(&theirs, locations, events, synthetic::Mix::Random);
        let write_ours = &mut || write(&ours, locations, events).map_err(failed);
        if round % 2 == 0 {
            measured(0, write_theirs)?;
            measured(1, write_ours)?;
        } else {
            measured(1, write_ours)?;
            measured(0, write_theirs)?;
        }
        for location in 0..locations {
            let path = |directory: &Path| directory.join(format!("{location}.evt"));
            let (a, b) = (fs::read(path(&theirs.join("trace"))), fs::read(path(&ours)));
            if a.map_err(failed)? != b.map_err(failed)? {
                return Err(format!("the files of location {location} differ"));
            }
        }
        let (mut read_by_them, mut read_by_us) = ((0, 0), (0, 0));
        let read_theirs = &mut || {
            read_by_them = otf2::read_local(&theirs, locations)?;
            Ok(())
        };
        let read_ours = &mut || {
            read_by_us = read(&theirs, locations);
            Ok(())
        };
        if round % 2 == 0 {
            measured(2, read_theirs)?;
            measured(3, read_ours)?;
        } else {
            measured(3, read_ours)?;
            measured(2, read_theirs)?;
        }
        if read_by_them != read_by_us || read_by_us.0 != all {
            return Err(format!("{read_by_them:?} was read, {read_by_us:?} by us"));
        }
    }
    println!("{all} events of {locations} locations; the files are the same to the byte");
    let [write_theirs, write_ours, read_theirs, read_ours] = &mut seconds;
    let write = shown("reference: write", write_theirs, all) / shown("Annals: write", write_ours, all);
    let read = shown("reference: read, local readers", read_theirs, all)
        / shown("Annals: read", read_ours, all);
    println!("Annals writes {write:.2} times as fast and reads {read:.2} times as fast (medians)");
    Ok(())
}

#[cfg(not(otf2))]
fn measure(_: &Arguments) -> Result<(), String> {
    let _ = (read, write, shown);
    Err(env!("OTF2_MISSING").to_owned())
}

fn main() -> ExitCode {
    match measure(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("archives: {error}");
            ExitCode::FAILURE
        }
    }
}
