//! Processes of this host.

use annals_format::LiveHeader;
use std::fs::{self};

/// Returns whether the process that a live header names still runs on this host.
pub(crate) fn is_alive(header: &LiveHeader) -> bool {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    if boot.parse() != Ok(header.boot_id) {
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
