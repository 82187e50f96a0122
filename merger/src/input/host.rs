//! This host and its processes.

use annals_format::{BootId, LiveHeader};
use std::fs::{self};

/// Returns the identity of this host since its boot. `None` if the system does not have it.
pub(crate) fn boot_id() -> Option<BootId> {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    boot.parse().ok()
}

/// Returns whether the process that a live header names still runs on this host.
pub(crate) fn is_alive(header: &LiveHeader) -> bool {
    if boot_id() != Some(header.boot_id) {
        return false;
    }
    let Ok(stat) = fs::read_to_string(format!("/proc/{}/stat", header.pid)) else {
        return false;
    };
    let behind_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let mut fields = behind_name.split_whitespace();
    let is_dead = matches!(fields.next(), Some("Z" | "X"));
    let start = fields.nth(18).and_then(|field| field.parse::<u64>().ok());
    !is_dead && start == Some(header.process_start)
}
