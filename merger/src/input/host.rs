//! This host and its processes.

use annals_format::{BootId, LiveHeader};
use std::fs::{self};

/// Returns the reference clock of this host, nanoseconds: the monotonic clock, which recorders read.
pub(crate) fn reference_ns() -> i64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec
        .saturating_mul(1_000_000_000)
        .saturating_add(now.tv_nsec)
}

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
