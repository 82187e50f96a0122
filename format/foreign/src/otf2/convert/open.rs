//! Opening an archive: its definitions, one pass through all of its events, and a recording of each process.

use super::anchor_file::{anchor_at, event_files, location_of};
use super::archive::Archive;
use super::contexts::Contexts;
use super::event_types::EventTypes;
use super::file::{LocationFile, each_record, open_file, problem_of};
use super::markers::Markers;
use super::numbering::{Numberings, Strings};
use super::process::*;
use super::scan::{LostEvents, Scanned, scan};
use super::world::World;
use crate::conversion::{DIGEST_START, Options, digest};
use crate::error::Result;
use crate::otf2::{Anchor, ClockCorrection, DefinitionKind, GlobalDefinitions, LocalDefinitions};
use annals_format::Problem;
use rayon::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Opens an archive: reads its definitions, and reads all of its events once. Returns it with its processes. Works with the threads of the
/// current pool.
///
/// # Errors
/// If the anchor cannot be read, or the conversion was stopped.
pub(super) fn open(path: &Path, options: &Options<'_>) -> Result<(Archive, Vec<PlannedProcess>)> {
    let mut problems = Vec::new();
    let mut definitions = GlobalDefinitions::default();
    let stem = path.with_extension("");
    let (anchor, bytes) = anchor_at(path, &stem, &mut problems)?;
    let mut identity = digest(DIGEST_START, &bytes);
    let definitions_path = stem.with_added_extension("def");
    let chunk_size = anchor.definition_chunk_size;
    let read = each_record(
        &definitions_path,
        chunk_size,
        &mut problems,
        |raw, endian| {
            identity = digest(identity, raw.payload);
            definitions.take(raw, endian)
        },
    );
    if let Err(error) = read {
        // Events can be read without; what they refer to has numbers for names then.
        problems.push(problem_of(&definitions_path, 0, 0, error.without_path()));
    }
    let world = World::of(&definitions);
    let files = locations_of(&definitions, &stem, &mut problems);
    let files = files.into_par_iter();
    let opened = files.map(|(id, expected)| {
        options.report(0)?;
        Ok(open_location(&stem, &anchor, id, expected))
    });
    let mut locations: Vec<LocationFile> = opened.collect::<Result<_>>()?;
    let groups = groups_of(&definitions, &world, &mut locations);
    let time = TimeBase::of(&anchor, &definitions, &locations);
    let mut markers = Markers::of(&stem.with_added_extension("marker"), chunk_size);
    markers.take_if(|markers| !markers.is_anything());
    let files = locations
        .iter_mut()
        .chain(markers.as_mut().map(|markers| &mut markers.file));
    let scanned: Vec<Scanned> = files
        .map(|file| std::mem::replace(&mut file.scanned, Scanned::nothing()))
        .collect();
    let numberings = Numberings::of(&definitions, &scanned);
    let first_string = numberings.of_kind(DefinitionKind::String).ids.len() as u32;
    let mut strings = Strings::new(first_string);
    let event_types = EventTypes::of(&scanned, &definitions, &mut strings);
    let files = locations
        .iter_mut()
        .chain(markers.as_mut().map(|markers| &mut markers.file));
    for (file, scanned) in files.zip(scanned) {
        file.scanned = scanned;
    }
    let archive = Archive {
        path: path.to_owned(),
        anchor,
        contexts: Contexts::of(&definitions),
        definitions,
        event_types,
        numberings,
        world,
        locations,
        markers,
    };
    let mut maker = Maker {
        archive: &archive,
        strings,
        identity,
        time,
        is_first: true,
        problems,
        alike: alike(&archive.definitions),
        taken_objects: BTreeSet::new(),
    };
    let groups = groups.iter();
    let processes = groups.map(|(group, of_group)| maker.process(*group, of_group));
    let processes = processes.collect();
    Ok((archive, processes))
}

fn open_location(stem: &Path, anchor: &Anchor, id: u64, expected: Option<u64>) -> LocationFile {
    let mut problems = Vec::new();
    let mut local = LocalDefinitions::default();
    let path = stem.join(format!("{id}.def"));
    // Without a file of definitions a location has none; only what is there can be damaged.
    if path.exists() {
        let read = each_record(
            &path,
            anchor.definition_chunk_size,
            &mut problems,
            |raw, endian| local.take(raw, endian),
        );
        if let Err(error) = read {
            problems.push(problem_of(&path, 0, 0, error));
        }
    }
    let (correction, is_whole) = ClockCorrection::new(&local.clock_offsets);
    if !is_whole {
        let what = "the times of its clock offsets do not ascend: later offsets are not used";
        problems.push(problem_of(&path, 0, 0, what));
    }
    let path = stem.join(format!("{id}.evt"));
    let mut scanned = match open_file(&path) {
        Ok(file) => {
            let size = anchor.event_chunk_size;
            scan(&path, &file, size, &local, correction.clone(), expected)
        }
        Err(error) => {
            let mut scanned = Scanned::nothing();
            let problem = problem_of(&path, 0, 0, error.without_path());
            scanned.problems.push(problem);
            scanned.lost.push(LostEvents {
                before_part: 0,
                key: None,
                cause: annals_format::Cause::Skipped,
                count: expected.unwrap_or(1),
                is_lower_bound: expected.is_none(),
            });
            scanned.lost.retain(|lost| lost.count != 0);
            scanned
        }
    };
    scanned.problems.splice(0..0, problems);
    LocationFile {
        id,
        path,
        local,
        correction,
        scanned,
        rank: None,
    }
}

/// Returns the locations that are defined, and how many events each should have; and those whose files are there
/// although no definition is: definitions may be lost.
fn locations_of(
    definitions: &GlobalDefinitions,
    stem: &Path,
    problems: &mut Vec<Problem>,
) -> Vec<(u64, Option<u64>)> {
    let mut known: BTreeMap<u64, Option<u64>> = definitions
        .of_kind(DefinitionKind::Location)
        .map(|(id, location)| (id, location.bits("number_of_events")))
        .collect();
    for path in event_files(stem) {
        if let Some(id) = location_of(&path).filter(|id| !known.contains_key(id)) {
            problems.push(problem_of(&path, 0, 0, "the location has no definition"));
            known.insert(id, None);
        }
    }
    known.into_iter().collect()
}
