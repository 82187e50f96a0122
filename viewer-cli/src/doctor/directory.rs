//! The directory for recordings, and the memory file that keeps events when a process is killed. Both are tried: a recorder is
//! started there, records one event, and everything is removed.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use annals_recorder::{Options, Recorder, Rules};
use rustix::fs::statvfs;
use serde_json::json;

use super::mounts::kind_of;
use super::{Check, Scope, path_value};
use crate::time;

/// How long a file system has to answer. One on the network may never do.
const LIMIT: Duration = Duration::from_secs(20);

/// The largest buffer that is allocated only to see whether it can be.
const MOST_BYTES: usize = 1 << 30;

/// Less free space than this is worth a note.
const LITTLE_BYTES: u64 = 1 << 30;

/// Checks the directory for recordings and the live file.
pub(super) fn directory(options: &Options) -> Vec<Check> {
    let (sender, receiver) = channel();
    let owned = options.clone();
    let thread = std::thread::Builder::new().spawn(move || sender.send(check(&owned)));
    if thread.is_err() {
        // The recorder's own thread will not start either: that is what the checks then say.
        return check(options);
    }
    receiver.recv_timeout(LIMIT).unwrap_or_else(|_| {
        let directory = options.directory.display();
        let seconds = LIMIT.as_secs();
        let check = Check::problem(
            "directory",
            json!({ "path": path_value(&options.directory) }),
            format!("the file system of {directory} did not answer within {seconds} s"),
        );
        vec![
            check
                .advice("choose a directory on another file system: -o DIR")
                .preventing(Scope::Recorder),
        ]
    })
}

fn check(options: &Options) -> Vec<Check> {
    let directory = &options.directory;
    let wrong = |why: String| {
        let found = json!({ "path": path_value(directory) });
        let check = Check::problem("directory", found, why);
        vec![
            check
                .advice("choose another directory: -o DIR")
                .preventing(Scope::Recorder),
        ]
    };
    let existing = match nearest_existing(directory) {
        Ok(existing) => existing,
        Err(why) => return wrong(why),
    };
    let probe = match Probe::create(&existing) {
        Ok(probe) => probe,
        Err(error) => {
            let place = existing.display();
            return wrong(format!("nothing can be written into {place}: {error}"));
        }
    };
    let mut checks = vec![space(directory, &existing, options.buffer_bytes as u64)];
    let mut options = options.clone();
    options.directory.clone_from(&probe.0);
    checks.extend(recorder(&options));
    if let Err(error) = probe.remove() {
        let place = existing.display();
        checks.push(
            Check::note(
                "directory",
                json!({ "path": path_value(&existing) }),
                format!("files can be written into {place} but not removed: {error}"),
            )
            .advice("look for .annals-doctor-* there"),
        );
    }
    checks
}

/// Returns the directory itself, or the nearest one above it that exists.
pub(super) fn nearest_existing(directory: &Path) -> Result<PathBuf, String> {
    let path = std::path::absolute(directory).map_err(|error| error.to_string())?;
    for place in path.ancestors() {
        match fs::metadata(place) {
            Ok(metadata) if metadata.is_dir() => return Ok(place.to_owned()),
            Ok(_) => return Err(format!("{} is not a directory", place.display())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                if fs::symlink_metadata(place).is_ok() {
                    let place = place.display();
                    return Err(format!("{place} is a link to something that is not there"));
                }
            }
            Err(error) => return Err(format!("cannot look at {}: {error}", place.display())),
        }
    }
    Err(format!("nothing of {} exists", path.display()))
}

/// A directory that is removed when this is dropped.
pub(super) struct Probe(pub(super) PathBuf);

impl Probe {
    pub(super) fn create(existing: &Path) -> io::Result<Self> {
        // Processes of other hosts may have the same number.
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let (pid, ns) = (std::process::id(), now.unwrap_or_default().as_nanos());
        let path = existing.join(format!(".annals-doctor-{pid}-{ns}"));
        fs::create_dir(&path)?;
        Ok(Self(path))
    }

    fn remove(self) -> io::Result<()> {
        fs::remove_dir_all(&self.0)
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Checks the space of a directory for recordings.
fn space(directory: &Path, existing: &Path, buffer_bytes: u64) -> Check {
    let kind = kind_of(existing);
    let free = statvfs(existing)
        .ok()
        .map(|info| info.f_bavail.saturating_mul(info.f_frsize));
    let exists = directory.is_dir();
    let found = json!({
        "path": path_value(directory),
        "exists": exists,
        "nearest": path_value(existing),
        "file_system": kind,
        "free_bytes": free,
    });
    let kind = kind.unwrap_or_else(|| "unknown file system".to_owned());
    let place = directory.display();
    let verb = if exists {
        "can be written"
    } else {
        "can be created"
    };
    let Some(free) = free else {
        let says =
            format!("{place} {verb} ({kind}), but the system does not say how much space is free");
        return Check::note("directory", found, says);
    };
    let says = format!("{place} {verb} ({kind}, {} free)", time::bytes(free));
    if free < buffer_bytes {
        return Check::problem(
            "directory",
            found,
            format!("{says}, which is less than the buffer of one process"),
        )
        .advice("free space, or choose another directory: -o DIR")
        .preventing(Scope::Recorder);
    }
    if free < LITTLE_BYTES {
        return Check::note(
            "directory",
            found,
            format!("{says}: when it is full, later events are dropped and counted"),
        )
        .advice(
            "free space, choose another directory (-o DIR), or limit recordings (--max-bytes)",
        );
    }
    if matches!(&*kind, "tmpfs" | "ramfs") {
        let says = format!("{says}: recordings are in memory, and gone when the machine restarts");
        return Check::note("directory", found, says)
            .advice("choose a directory on a disk for recordings that you keep: -o DIR");
    }
    Check::ok("directory", found, says)
}

/// Starts a recorder in a directory, records one event, and says what became of it and of the live file.
fn recorder(options: &Options) -> Vec<Check> {
    let mut options = options.clone();
    // They are not the program's that is to be recorded.
    options.triggers.clear();
    options.flush_signals.clear();
    options.rules = Rules::default();
    options.max_file_bytes = None;
    // Messages do not name the directory that exists only for the check.
    let probe = options.directory.file_name().unwrap_or_default();
    let probe = format!("/{}", probe.display());
    let without_probe = |message: &str| message.replace(&probe, "");
    let live = options.live_file_directory().to_owned();
    // This one, and not the place that a recorder would take instead.
    let without_it = match options.live_directory.replace(live.clone()) {
        Some(_) => "events that are not yet written when a process is killed would be lost",
        None => "it would be in /dev/shm, if there is room",
    };
    let is_next_to_recording = live == options.directory;
    let shown = match is_next_to_recording {
        true => "next to the recording".to_owned(),
        false => format!("in {}", live.display()),
    };
    let bytes = options.buffer_bytes;
    let kind = kind_of(&live);
    let found = json!({
        "path": if is_next_to_recording { json!(null) } else { path_value(&live) },
        "file_system": kind,
        "buffer_bytes": bytes,
    });
    let is_too_large = bytes > MOST_BYTES;
    if is_too_large {
        options.buffer_bytes = Options::new("").buffer_bytes;
    }
    let status = Recorder::start(&options).and_then(|recorder| {
        let region = recorder.add_region("doctor")?;
        drop(recorder.region(region));
        Ok(recorder.finish())
    });
    let of_recorder = json!({ "events": 2 });
    let status = match status {
        Ok(status) => status,
        Err(error) => {
            let error = without_probe(&format!("{:#}", anyhow::Error::from(error)));
            let check = Check::problem(
                "recorder",
                of_recorder,
                format!("a recorder does not start here: {error}"),
            );
            let advice = "correct what the error names, or choose another directory: -o DIR";
            return vec![check.advice(advice).preventing(Scope::Recorder)];
        }
    };
    let live_check = match &status.not_kill_safe {
        Some(why) => Check::problem(
            "live-file",
            found,
            format!(
                "the live file of {} {shown} cannot be created ({}): {without_it}",
                time::bytes(bytes as u64),
                without_probe(why)
            ),
        )
        .advice("free space, record with a smaller buffer (--buffer 1M), or choose another place (--live-dir /dev/shm)")
        .preventing(Scope::Recorder),
        None if is_too_large => Check::note(
            "live-file",
            found,
            format!(
                "the buffer of {} is too large to be allocated for a check: a smaller live file {shown} works, but whether there \
                 is room for this one is not known",
                time::bytes(bytes as u64)
            ),
        ),
        None => live_file_works(found, &shown, kind.as_deref(), bytes),
    };
    let recorder_check = match status.storage_failure {
        Some(why) => Check::problem(
            "recorder",
            of_recorder,
            format!("a recorder cannot write here: {}", without_probe(&why)),
        )
        .advice("free space, or choose another directory: -o DIR")
        .preventing(Scope::Recorder),
        None if status.raised != 2 || status.dropped != 0 => Check::problem(
            "recorder",
            of_recorder,
            format!(
                "of two events that a recorder raised here, it counted {} and dropped {}",
                status.raised, status.dropped
            ),
        )
        .preventing(Scope::Recorder),
        None => Check::ok(
            "recorder",
            of_recorder,
            "a recorder was started in that directory, recorded two events, and was removed again",
        ),
    };
    vec![live_check, recorder_check]
}

fn live_file_works(
    found: serde_json::Value,
    shown: &str,
    kind: Option<&str>,
    bytes: usize,
) -> Check {
    let size = time::bytes(bytes as u64);
    let says = format!(
        "the live file of {size} {shown} ({}) was allocated, mapped and written: committed events survive when a process is killed",
        kind.unwrap_or("unknown file system")
    );
    let is_in_memory = matches!(kind, Some("tmpfs" | "ramfs"));
    if is_in_memory {
        return Check::ok(
            "live-file",
            found,
            format!("{says}; it takes that much memory"),
        );
    }
    Check::ok("live-file", found, says)
}

#[cfg(test)]
mod tests {
    use super::super::Status;
    use super::*;

    #[test]
    fn a_directory_that_does_not_exist_yet_is_tried_where_it_would_be() {
        let scratch = tempfile::tempdir().expect("a directory");
        let options = Options::new(scratch.path().join("new/run"));
        let checks = check(&options);
        let names: Vec<_> = checks.iter().map(|check| check.check).collect();
        assert_eq!(names, ["directory", "live-file", "recorder"], "{checks:?}");
        assert!(
            checks.iter().all(|check| check.status != Status::Problem),
            "{checks:?}"
        );
        assert_eq!(
            fs::read_dir(scratch.path()).expect("a directory").count(),
            0
        );
    }

    #[test]
    fn a_file_and_a_dangling_link_are_no_directories() {
        let scratch = tempfile::tempdir().expect("a directory");
        fs::write(scratch.path().join("file"), "").expect("a file");
        std::os::unix::fs::symlink("nowhere", scratch.path().join("link")).expect("a link");
        for (name, part) in [
            ("file", "is not a directory"),
            ("file/run", "cannot look at"),
            ("link", "is a link"),
        ] {
            let checks = check(&Options::new(scratch.path().join(name)));
            assert_eq!(checks[0].status, Status::Problem);
            assert!(checks[0].says.contains(part), "{}", checks[0].says);
        }
    }
}
