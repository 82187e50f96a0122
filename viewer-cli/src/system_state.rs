//! What a thread of this host does now, as the system reports it, without disturbing it.

use annals_analysis::{Life, Position};

/// Calls of the system in which programs wait, by number.
const CALLS: [(i64, &str); 22] = [
    (libc::SYS_read, "read"),
    (libc::SYS_write, "write"),
    (libc::SYS_pread64, "pread"),
    (libc::SYS_pwrite64, "pwrite"),
    (libc::SYS_readv, "readv"),
    (libc::SYS_writev, "writev"),
    (libc::SYS_openat, "open"),
    (libc::SYS_fsync, "fsync"),
    (libc::SYS_flock, "flock"),
    (libc::SYS_fcntl, "fcntl"),
    (libc::SYS_futex, "futex: a lock, or another thread"),
    (libc::SYS_nanosleep, "sleep"),
    (libc::SYS_clock_nanosleep, "sleep"),
    (libc::SYS_ppoll, "poll"),
    (libc::SYS_pselect6, "select"),
    (libc::SYS_epoll_pwait, "epoll_wait"),
    (libc::SYS_recvfrom, "recv"),
    (libc::SYS_recvmsg, "recvmsg"),
    (libc::SYS_sendto, "send"),
    (libc::SYS_accept4, "accept"),
    (libc::SYS_wait4, "wait for a child"),
    (libc::SYS_rt_sigtimedwait, "wait for a signal"),
];

/// Calls that only some processors have.
#[cfg(target_arch = "x86_64")]
const MORE_CALLS: [(i64, &str); 6] = [
    (libc::SYS_poll, "poll"),
    (libc::SYS_select, "select"),
    (libc::SYS_epoll_wait, "epoll_wait"),
    (libc::SYS_pause, "pause"),
    (libc::SYS_open, "open"),
    (libc::SYS_accept, "accept"),
];
#[cfg(not(target_arch = "x86_64"))]
const MORE_CALLS: [(i64, &str); 0] = [];

/// Returns what the thread of a position does: `running`, `in the system's call sleep`. `None`: its process does not run on this host, or may
/// not be asked.
pub fn system_state(position: &Position) -> Option<String> {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let is_here = boot.trim().replace('-', "") == position.boot_id;
    if position.ending.life != Life::Running || !is_here {
        return None;
    }
    let thread = match position.thread_id {
        0 => u64::from(position.pid),
        thread => thread,
    };
    let directory = format!("/proc/{}/task/{thread}", position.pid);
    let stat = std::fs::read_to_string(format!("{directory}/stat")).ok()?;
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let state = after_name.split_whitespace().next()?;
    Some(match state {
        "R" => "running".to_owned(),
        "T" | "t" => "stopped by a signal or a debugger".to_owned(),
        _ => {
            let call = std::fs::read_to_string(format!("{directory}/syscall")).unwrap_or_default();
            let number: Option<i64> = call.split_whitespace().next().and_then(|n| n.parse().ok());
            let known = CALLS
                .iter()
                .chain(&MORE_CALLS)
                .find(|(of, _)| Some(*of) == number);
            match (known, number) {
                (Some((_, name)), _) => format!("in the system's call {name}"),
                (None, Some(number)) if number >= 0 => {
                    format!("in the system's call number {number}")
                }
                _ => "asleep".to_owned(),
            }
        }
    })
}
