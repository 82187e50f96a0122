//! Learns the exit status of processes that a launcher started (not our own children). The system reports it to a
//! process's parent and, since Linux 6.15, to any process that has held a handle (pidfd) since before the end. The
//! handle is opened when a process begins its recording, whose file name ends with the process's number.
#![expect(unsafe_code, reason = "signal masks, and a request that no crate has")]

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::ExitStatus;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use annals_recorder::Recorder;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::launch::Orphans;

/// Handles are file descriptors, of which this process may have about a thousand.
const MOST_HANDLES: usize = 512;

/// How long processes have to end that outlive their launcher, and then to be waited for by their parents: only then does the
/// system report their end.
const PATIENCE: Duration = Duration::from_millis(500);
const STEP: Duration = Duration::from_millis(10);

/// A process by its number and its handle.
#[derive(Debug)]
struct Handle {
    pid: u32,
    handle: OwnedFd,
    /// When its end was noticed: reference clock, nanoseconds. `None` if it was not while it was watched.
    ended_ns: Option<i64>,
}

impl Handle {
    /// Returns whether the process does not run any more, and notes when that was noticed.
    fn has_ended(&mut self) -> bool {
        if self.ended_ns.is_none() && has_ended(&self.handle) {
            self.ended_ns = Some(Recorder::reference_ns());
        }
        self.ended_ns.is_some()
    }
}

/// Processes that begin recordings in a directory, as long as this lives.
#[derive(Debug)]
pub struct Watch {
    thread: JoinHandle<HashMap<OsString, Handle>>,
    /// Its end is the thread's.
    stop: UnixStream,
}

impl Watch {
    /// Looks for recordings that begin in a directory.
    ///
    /// # Errors
    /// If the system cannot report them.
    pub fn begin(directory: &Path) -> io::Result<Self> {
        let (stop, stopped) = UnixStream::pair()?;
        let flags = inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK;
        let notices = inotify::init(flags)?;
        inotify::add_watch(&notices, directory, inotify::WatchFlags::CREATE)?;
        let thread = with_signals_blocked(|| {
            std::thread::Builder::new().spawn(move || watch(&notices, &stopped))
        })?;
        Ok(Self { thread, stop })
    }

    /// Returns the processes that there were. Those that outlive their launcher have a moment to end; `orphans` has those that this
    /// process has adopted.
    pub fn end(self, orphans: Orphans) -> Processes {
        drop(self.stop);
        // A thread that panicked has no result.
        let mut handles = self.thread.join().unwrap_or_default();
        let until = Instant::now() + PATIENCE;
        // Each is asked, so that its end is noted.
        let running = |handles: &mut HashMap<OsString, Handle>| {
            let each = handles.values_mut().map(Handle::has_ended);
            each.filter(|has_ended| !has_ended).count()
        };
        while running(&mut handles) != 0 && Instant::now() < until {
            orphans.reap();
            std::thread::sleep(STEP);
        }
        Processes {
            handles,
            orphans,
            until: Some(Instant::now() + PATIENCE),
        }
    }
}

/// Processes that have begun recordings.
#[derive(Debug, Default)]
pub struct Processes {
    /// By the names of the files.
    handles: HashMap<OsString, Handle>,
    /// Those that this process waits for itself.
    orphans: Orphans,
    /// Those that have ended are waited for until then.
    until: Option<Instant>,
}

impl Processes {
    /// Uses only the processes that this process waits for itself, if new recordings cannot be
    /// watched.
    pub fn without_watch(orphans: Orphans) -> Self {
        Self {
            orphans,
            ..Self::default()
        }
    }

    /// Returns whether a process that the program has started, itself or not, outlives it.
    pub fn are_left(&self) -> bool {
        self.orphans.reap();
        self.orphans.are_left()
    }

    fn handle(&self, recording: &OsStr, pid: u32) -> Option<&Handle> {
        let known = self.handles.get(recording);
        known.filter(|known| known.pid == pid)
    }

    /// Returns when the process with this number that began this recording was noticed to have ended: reference clock,
    /// nanoseconds. `None` means that it was not noticed.
    pub fn ended_ns(&self, recording: &OsStr, pid: u32) -> Option<i64> {
        let watched = self.handle(recording, pid);
        let watched = watched.and_then(|known| known.ended_ns);
        watched.or_else(|| Some(self.orphans.end_of(pid)?.at_ns))
    }

    /// Returns the exit status of the process with this number that began this recording. `None` means that the system
    /// does not report it.
    pub fn end_of(&self, recording: &OsStr, pid: u32) -> Option<ExitStatus> {
        let of_orphan = || self.orphans.end_of(pid).map(|end| end.status);
        let Some(Handle { handle, .. }) = self.handle(recording, pid) else {
            self.orphans.reap();
            return of_orphan();
        };
        loop {
            self.orphans.reap();
            let end = exit_status(handle).or_else(of_orphan);
            let is_late = self.until.is_none_or(|until| Instant::now() >= until);
            if end.is_some() || is_late || !has_ended(handle) {
                return end;
            }
            std::thread::sleep(STEP);
        }
    }
}

/// Signals are for the thread that waits for the program.
pub(crate) fn with_signals_blocked<T>(spawn: impl FnOnce() -> T) -> T {
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigfillset initialises the set.
    unsafe { libc::sigfillset(all.as_mut_ptr()) };
    let mut before = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: `all` is initialised, `before` valid to write to.
    let code =
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr()) };
    let spawned = spawn();
    if code == 0 {
        // SAFETY: filled above.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut());
        }
    }
    spawned
}

/// Takes handles of processes whose recordings begin, and notes when these end, until it is to stop.
fn watch(notices: &OwnedFd, stopped: &UnixStream) -> HashMap<OsString, Handle> {
    let mut processes: HashMap<OsString, Handle> = HashMap::new();
    loop {
        let is_stopped = {
            let mut running: Vec<&mut Handle> = processes
                .values_mut()
                .filter(|known| known.ended_ns.is_none())
                .collect();
            let handles = running.iter().map(|known| known.handle.as_fd());
            let fds = [notices.as_fd(), stopped.as_fd()]
                .into_iter()
                .chain(handles);
            let mut all: Vec<PollFd<'_>> = fds
                .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
                .collect();
            let polled = poll(&mut all, None);
            let now = Recorder::reference_ns();
            let is_ready: Vec<bool> = all.iter().map(|fd| !fd.revents().is_empty()).collect();
            if polled.is_err_and(|error| error != Errno::INTR) {
                return processes;
            }
            for (known, is_ready) in running.iter_mut().zip(&is_ready[2..]) {
                known.ended_ns = is_ready.then_some(now);
            }
            is_ready[1]
        };
        for name in names(notices) {
            if let Some(pid) = process_of(&name)
                && processes.len() < MOST_HANDLES
                && let Ok(handle) = handle_of(pid)
            {
                processes.insert(
                    name,
                    Handle {
                        pid,
                        handle,
                        ended_ns: None,
                    },
                );
            }
        }
        if is_stopped {
            return processes;
        }
    }
}

/// Returns the names of files that were created since.
fn names(notices: &OwnedFd) -> Vec<OsString> {
    let mut names = Vec::new();
    let mut buffer = [MaybeUninit::uninit(); 16 << 10];
    let mut reader = inotify::Reader::new(notices, &mut buffer);
    // The end is an error: that there are no more yet.
    while let Ok(notice) = reader.next() {
        if let Some(name) = notice.file_name() {
            names.push(OsStr::from_bytes(name.to_bytes()).to_owned());
        }
    }
    names
}

/// Returns the process number at the end of a recording's name.
fn process_of(name: &OsStr) -> Option<u32> {
    let stem = name.to_str()?.strip_suffix(".annals")?;
    stem.rsplit('-').next()?.parse().ok()
}

fn handle_of(pid: u32) -> io::Result<OwnedFd> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or(io::ErrorKind::InvalidInput)?;
    Ok(pidfd_open(pid, PidfdFlags::empty())?)
}

/// A handle of a process, to try whether the system reports ends.
#[derive(Debug)]
pub struct EndProbe(OwnedFd);

impl EndProbe {
    /// Takes a handle of a process that was not waited for yet.
    ///
    /// # Errors
    /// If the system has no such handles, or does not let this process take one.
    pub fn new(pid: u32) -> io::Result<Self> {
        handle_of(pid).map(Self)
    }

    /// Returns whether the system reports how the process ended. It must have ended and been waited
    /// for.
    pub fn has_end(&self) -> bool {
        exit_status(&self.0).is_some()
    }
}

/// Returns whether a process does not run any more.
fn has_ended(handle: &OwnedFd) -> bool {
    let mut one = [PollFd::new(handle, PollFlags::IN)];
    let at_once = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    poll(&mut one, Some(&at_once)) == Ok(1)
}

/// The system's information about a process, in its first version (linux/pidfd.h).
#[repr(C)]
#[derive(Default)]
struct Info {
    mask: u64,
    cgroup: u64,
    /// Process, thread group, parent, and their users and groups.
    ids: [u32; 11],
    exit_code: i32,
}

fn exit_status(handle: &OwnedFd) -> Option<ExitStatus> {
    /// `PIDFD_INFO_EXIT`.
    const EXIT: u64 = 1 << 3;
    /// `PIDFD_GET_INFO`: number 11 of type 0xff, reads and writes an `Info`.
    const GET_INFO: u64 = 3 << 30 | (size_of::<Info>() as u64) << 16 | 0xff << 8 | 11;
    let mut info = Info {
        mask: EXIT,
        ..Info::default()
    };
    // SAFETY: a handle of a process, and a place that has the size which the request names.
    let code = unsafe { libc::ioctl(handle.as_raw_fd(), GET_INFO as _, &raw mut info) };
    (code == 0 && info.mask & EXIT != 0).then(|| ExitStatus::from_raw(info.exit_code))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn the_end_of_anothers_child_is_known_where_the_system_tells() {
        let scratch = tempfile::tempdir().unwrap();
        let watch = Watch::begin(scratch.path()).unwrap();
        // A child of a child, which waits for it, begins a recording.
        let script =
            "sh -c ': > \"$0/run-host-$$.annals\"; sleep 0.5; kill -SEGV $$' \"$0\"; exit 0";
        let status = Command::new("sh")
            .args(["-c", script])
            .arg(scratch.path())
            .status();
        assert!(status.unwrap().success());
        let processes = watch.end(Orphans::default());
        let (name, Handle { pid, .. }) = processes.handles.iter().next().expect("it was seen");
        let end = processes.end_of(name, *pid);
        assert!(processes.ended_ns(name, *pid).is_some());
        match end {
            Some(end) => assert_eq!(end.signal(), Some(libc::SIGSEGV)),
            None => assert!(!tells_of_ends(), "the system tells"),
        }
        assert_eq!(processes.end_of(name, pid + 1), None);
        assert_eq!(processes.end_of(OsStr::new("other"), *pid), None);
    }

    #[test]
    fn processes_that_outlive_their_launcher_have_a_moment() {
        let scratch = tempfile::tempdir().unwrap();
        let watch = Watch::begin(scratch.path()).unwrap();
        let rank = ": > \"$0/run-host-$$.annals\"; exec sleep 0.3";
        let status = Command::new("sh")
            .args(["-c", "sh -c \"$1\" \"$0\" > /dev/null 2>&1 & sleep 0.1"])
            .arg(scratch.path())
            .arg(rank)
            .status();
        assert!(status.unwrap().success());
        let processes = watch.end(Orphans::default());
        assert_eq!(processes.handles.len(), 1);
        let mut handles = processes.handles.values();
        assert!(handles.all(|known| known.ended_ns.is_some()));
    }

    /// Returns whether the system reports ends of processes (since Linux 6.15).
    fn tells_of_ends() -> bool {
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
        let mut numbers = release.split(['.', '-']).map(|n| n.parse().unwrap_or(0));
        let version: (u32, u32) = (numbers.next().unwrap(), numbers.next().unwrap());
        version >= (6, 15)
    }

    #[test]
    fn names_of_recordings_end_with_their_processes_numbers() {
        let cases = [
            ("run-vm-12.annals", Some(12)),
            ("run-vm-12.annals-live", None),
            ("12", None),
            ("run-vm-x.annals", None),
        ];
        for (name, pid) in cases {
            assert_eq!(process_of(OsStr::new(name)), pid, "{name}");
        }
    }
}
