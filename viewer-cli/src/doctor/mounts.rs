//! Mounted file systems, and what they allow.

use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use rustix::fs::{StatVfsMountFlags, statvfs};

/// A file system at its place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Mount {
    /// The directory of the file system that is mounted.
    pub(super) root: PathBuf,
    /// Where it is mounted.
    pub(super) point: PathBuf,
    /// Its name: `ext4`, `tmpfs`, `nfs4`.
    pub(super) kind: String,
    /// Options of the file system itself, between commas.
    pub(super) options: String,
}

/// Reads what is mounted. Returns nothing if the system does not say.
pub(super) fn mounts() -> Vec<Mount> {
    let text = std::fs::read("/proc/self/mountinfo").unwrap_or_default();
    parse(&text)
}

fn parse(text: &[u8]) -> Vec<Mount> {
    let lines = text.split(|byte| *byte == b'\n');
    let one = |line: &[u8]| {
        // `id parent device root point options fields… - type source options` (proc(5)).
        let mut fields = line.split(|byte| *byte == b' ');
        let root = unescaped(fields.nth(3)?);
        let point = unescaped(fields.next()?);
        let mut rest = fields.skip_while(|field| *field != b"-").skip(1);
        let kind = String::from_utf8_lossy(rest.next()?).into_owned();
        let options = String::from_utf8_lossy(rest.nth(1).unwrap_or_default()).into_owned();
        Some(Mount {
            root,
            point,
            kind,
            options,
        })
    };
    lines.filter_map(one).collect()
}

/// Returns a path in which blanks and backslashes are written as `\040`.
fn unescaped(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, behind)) = rest.split_first() {
        let digits = behind.get(..3).filter(|_| *first == b'\\');
        let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &behind[3..];
            }
            None => {
                bytes.push(*first);
                rest = behind;
            }
        }
    }
    PathBuf::from(std::ffi::OsString::from_vec(bytes))
}

/// Returns what the file system of a path is called. `None` if it is not known.
pub(super) fn kind_of(path: &Path) -> Option<String> {
    let path = std::fs::canonicalize(path).ok()?;
    let mounts = mounts();
    let of_path = mounts.iter().filter(|mount| path.starts_with(&mount.point));
    // The last one of the same place hides the others.
    let found = of_path.max_by_key(|mount| mount.point.components().count());
    found.map(|mount| mount.kind.clone())
}

/// Returns whether programs and libraries of a path's file system must not be executed. `None` if it is not known.
pub(super) fn is_noexec(path: &Path) -> Option<bool> {
    let flags = statvfs(path).ok()?.f_flag;
    Some(flags.contains(StatVfsMountFlags::NOEXEC))
}

/// Returns whether set-user-id and file capabilities have no effect on a path's file system. `None` if it is not known.
pub(super) fn is_nosuid(path: &Path) -> Option<bool> {
    let flags = statvfs(path).ok()?.f_flag;
    Some(flags.contains(StatVfsMountFlags::NOSUID))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_read_with_blanks_in_their_names() {
        let text = b"25 24 0:23 / /dev/shm rw,relatime - tmpfs tmpfs rw,size=5k\n\
            30 24 8:1 /a /mnt/with\\040blank rw shared:1 master:2 - nfs4 host:/a ro,hard\nbroken\n\n1 2 3 4 5 - \n";
        let found = parse(text);
        assert_eq!(found.len(), 3, "{found:?}");
        assert_eq!(found[0].kind, "tmpfs");
        assert_eq!(found[0].options, "rw,size=5k");
        assert_eq!(found[1].point, Path::new("/mnt/with blank"));
        assert_eq!(
            (&*found[1].kind, &found[1].root),
            ("nfs4", &PathBuf::from("/a"))
        );
    }
}
