//! Memory of the machine, and of the container or job.

use std::path::{Path, PathBuf};

use serde_json::json;

use super::mounts::{Mount, mounts};
use super::{Check, Scope};
use crate::time;

/// Checks that there is memory for the buffer of a process.
pub(super) fn memory(buffer_bytes: u64) -> Check {
    let info = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let available = info.lines().find_map(|line| {
        let kibibytes = line
            .strip_prefix("MemAvailable:")?
            .trim()
            .strip_suffix("kB")?;
        kibibytes.trim().parse::<u64>().ok()?.checked_mul(1024)
    });
    let groups = std::fs::read_to_string("/proc/self/cgroup").ok();
    let limit = groups.map(|groups| lowest_limit(&group_directories(&groups, &mounts())));
    memory_check(available, limit, buffer_bytes)
}

/// `limit` is `None` if the system does not say, and contains `None` if there is no limit.
fn memory_check(available: Option<u64>, limit: Option<Option<u64>>, buffer_bytes: u64) -> Check {
    let found = json!({
        "available_bytes": available,
        "group_limit_bytes": limit.flatten(),
        "buffer_bytes": buffer_bytes,
    });
    let buffer = time::bytes(buffer_bytes);
    let room = [available, limit.flatten()].into_iter().flatten().min();
    let of_group = limit.flatten().map_or_else(String::new, |limit| {
        format!(
            ", and this container or job has {} at most",
            time::bytes(limit)
        )
    });
    let Some(room) = room else {
        return Check::note(
            "memory",
            found,
            format!(
                "this system does not say how much memory there is; each recorder needs {buffer}"
            ),
        );
    };
    let says = format!(
        "{} of memory are available{of_group}; the buffer of each process takes {buffer}",
        available.map_or_else(|| "an unknown amount".to_owned(), time::bytes)
    );
    if room < buffer_bytes {
        return Check::problem("memory", found, says)
            .advice("record with a smaller buffer: --buffer 1M")
            .preventing(Scope::Recorder);
    }
    if room / 4 < buffer_bytes {
        return Check::note("memory", found, says)
            .advice("with several processes, record with a smaller buffer: --buffer 1M");
    }
    if limit.is_none() {
        let says = format!("{says}; whether a container limits it cannot be read here");
        return Check::note("memory", found, says);
    }
    Check::ok("memory", found, says)
}

/// Returns the directories of the control groups that limit this process's memory, each with the file that has the limit.
fn group_directories(groups: &str, mounts: &[Mount]) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for line in groups.lines() {
        // `number:controllers:path` (cgroups(7)); version 2 has no controllers here.
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else {
            continue;
        };
        let is_second = controllers.is_empty();
        let is_of_memory = controllers.split(',').any(|name| name == "memory");
        if !is_second && !is_of_memory {
            continue;
        }
        let mount = mounts.iter().find(|mount| match &*mount.kind {
            "cgroup2" => is_second,
            "cgroup" => !is_second && mount.options.split(',').any(|option| option == "memory"),
            _ => false,
        });
        let Some(mount) = mount else {
            continue;
        };
        let inside = Path::new(path).strip_prefix(&mount.root);
        let inside = inside.unwrap_or(Path::new("")).to_owned();
        let name = if is_second {
            "memory.max"
        } else {
            "memory.limit_in_bytes"
        };
        let above = inside
            .ancestors()
            .map(|group| mount.point.join(group).join(name));
        files.extend(above);
    }
    files
}

fn lowest_limit(files: &[PathBuf]) -> Option<u64> {
    /// Version 1 has a number that no machine has for "no limit".
    const NONE: u64 = 1 << 60;
    let limits = files.iter().filter_map(|file| {
        let text = std::fs::read_to_string(file).ok()?;
        text.trim().parse::<u64>().ok()
    });
    limits.filter(|limit| *limit < NONE).min()
}

#[cfg(test)]
mod tests {
    use super::super::Status;
    use super::*;

    #[test]
    fn memory_of_a_container_is_compared_with_the_buffer() {
        let of = |available, limit| memory_check(available, limit, 16 << 20).status;
        assert_eq!(of(Some(1 << 30), Some(None)), Status::Ok);
        assert_eq!(of(Some(1 << 30), None), Status::Note);
        assert_eq!(of(Some(1 << 30), Some(Some(32 << 20))), Status::Note);
        assert_eq!(of(Some(1 << 30), Some(Some(8 << 20))), Status::Problem);
        assert_eq!(of(None, None), Status::Note);
    }

    #[test]
    fn limits_of_control_groups_are_those_of_all_groups_above() {
        let scratch = tempfile::tempdir().expect("a directory");
        let group = scratch.path().join("job/step");
        std::fs::create_dir_all(&group).expect("a directory");
        std::fs::write(group.join("memory.max"), "max\n").expect("a file");
        std::fs::write(scratch.path().join("job/memory.max"), "4096\n").expect("a file");
        let mount = Mount {
            root: PathBuf::from("/slice"),
            point: scratch.path().to_owned(),
            kind: "cgroup2".to_owned(),
            options: "rw".to_owned(),
        };
        let files = group_directories("3:cpu:/x\n0::/slice/job/step\n", &[mount]);
        assert_eq!(files.len(), 3);
        assert_eq!(lowest_limit(&files), Some(4096));
        assert_eq!(lowest_limit(&[]), None);
    }
}
