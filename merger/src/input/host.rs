//! This host and its processes.

use annals_format::host::{is_same_start, namespace_offset_ns, process_start};
use annals_format::{BootId, LiveHeader};
use std::fs::{self};

/// Returns the offsets of this process's time namespace, as text.
fn namespace_offsets() -> String {
    fs::read_to_string("/proc/self/timens_offsets").unwrap_or_default()
}

/// Returns the reference clock of this host, nanoseconds: the monotonic clock outside of time namespaces, which recorders read.
pub(crate) fn reference_ns() -> i64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let offset = namespace_offset_ns(&namespace_offsets(), "monotonic");
    now.tv_sec
        .saturating_mul(1_000_000_000)
        .saturating_add(now.tv_nsec)
        .saturating_sub(offset.unwrap_or(0))
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
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let is_dead = matches!(after_name.split_whitespace().next(), Some("Z" | "X"));
    let start = process_start(&stat, &namespace_offsets());
    !is_dead && start.is_some_and(|start| is_same_start(start, header.process_start))
}
