//! Results that go to a file: whole, or not at all.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Writes a file under a temporary name beside it and renames it when it is whole. Devices and pipes are
/// written to as they are.
///
/// # Errors
/// If it cannot be written: what was there before stays.
pub fn write(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let named = |error: io::Error| {
        anyhow::anyhow!(
            "{}: cannot be written: {error}; nothing was changed",
            path.display()
        )
    };
    let target = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    if std::fs::metadata(&target).is_ok_and(|metadata| !metadata.is_file()) {
        return std::fs::write(&target, bytes).map_err(named);
    }
    let mut name = target
        .file_name()
        .map(ToOwned::to_owned)
        .unwrap_or_default();
    name.push(format!(".{}.tmp", std::process::id()));
    let temporary: PathBuf = target.with_file_name(name);
    let written = (|| {
        let mut file = std::fs::File::create(&temporary)?;
        file.write_all(bytes)?;
        file.sync_data().or_else(|error| match error.kind() {
            io::ErrorKind::InvalidInput => Ok(()),
            _ => Err(error),
        })?;
        std::fs::rename(&temporary, &target)
    })();
    written.map_err(|error| {
        let _ = std::fs::remove_file(&temporary);
        named(error)
    })
}
