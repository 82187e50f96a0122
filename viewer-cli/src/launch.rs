//! Runs a program as if the caller had run it: signals go through, and so does how it ends.
#![expect(unsafe_code, reason = "system calls for signals")]

use std::io;
use std::mem::MaybeUninit;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus};

/// Signals that are passed on. Those that a terminal sends go to all of its programs anyway.
const FORWARDED: [libc::c_int; 8] = [
    libc::SIGHUP,
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGTERM,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGALRM,
    libc::SIGCONT,
];

/// Runs the command to its end; gives its process id, too.
///
/// # Errors
/// If it cannot be started.
pub fn run(command: &mut Command) -> io::Result<(u32, ExitStatus)> {
    let set = signal_set();
    let mut before = MaybeUninit::uninit();
    // Before the child starts: from then on, none is lost between here and there.
    // SAFETY: the set is initialised, `before` valid to write to.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, before.as_mut_ptr()) };
    // SAFETY: filled above.
    let before: libc::sigset_t = unsafe { before.assume_init() };
    let unblock = move || {
        // SAFETY: a complete set.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut())
        };
        Ok(())
    };
    // SAFETY: one system call, which a forked child may make.
    unsafe { command.pre_exec(unblock) };
    let outcome = command.spawn().and_then(|child| wait(child, &set));
    // What came when the child was gone already is nobody's any more.
    let at_once = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: set and time are complete; nothing is told about the signal.
    while unsafe { libc::sigtimedwait(&raw const set, std::ptr::null_mut(), &raw const at_once) }
        > 0
    {}
    // SAFETY: a complete set.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut()) };
    outcome
}

fn signal_set() -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: sigemptyset initialises the set.
    unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    for signal in FORWARDED.into_iter().chain([libc::SIGCHLD]) {
        // SAFETY: initialised above.
        unsafe { libc::sigaddset(set.as_mut_ptr(), signal) };
    }
    // SAFETY: as above.
    unsafe { set.assume_init() }
}

fn wait(mut child: Child, set: &libc::sigset_t) -> io::Result<(u32, ExitStatus)> {
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok((child.id(), status));
        }
        let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
        // SAFETY: the set is complete, `info` valid to write to.
        let signal = unsafe { libc::sigwaitinfo(set, info.as_mut_ptr()) };
        // SAFETY: zeros, or filled by the call.
        let info = unsafe { info.assume_init() };
        // From the terminal, it has reached the child as well.
        let is_from_terminal = info.si_code == libc::SI_KERNEL;
        if FORWARDED.contains(&signal) && !is_from_terminal {
            // SAFETY: the child was not waited for yet, so that its number is its own.
            unsafe { libc::kill(child.id() as libc::pid_t, signal) };
        }
    }
}

/// The exit code that stands for this end: its own, or 128 and the signal's number.
pub fn exit_code(status: ExitStatus) -> u8 {
    let code = status.code().or(status.signal().map(|signal| 128 + signal));
    code.map_or(1, |code| code as u8)
}

/// What a recording says of this end: a signal's name, or `exit` and the code.
pub fn end_name(status: ExitStatus) -> String {
    match (status.signal(), status.code()) {
        (Some(signal), _) => signal_name(signal),
        (None, code) => format!("exit {}", code.unwrap_or_default()),
    }
}

/// What a signal is called, where the name says more than the number.
pub fn signal_name(signal: i32) -> String {
    let name = match signal {
        libc::SIGHUP => "SIGHUP",
        libc::SIGINT => "SIGINT",
        libc::SIGQUIT => "SIGQUIT",
        libc::SIGILL => "SIGILL",
        libc::SIGABRT => "SIGABRT",
        libc::SIGBUS => "SIGBUS",
        libc::SIGFPE => "SIGFPE",
        libc::SIGKILL => "SIGKILL",
        libc::SIGSEGV => "SIGSEGV",
        libc::SIGPIPE => "SIGPIPE",
        libc::SIGTERM => "SIGTERM",
        libc::SIGXCPU => "SIGXCPU",
        libc::SIGTRAP => "SIGTRAP",
        libc::SIGSYS => "SIGSYS",
        libc::SIGUSR1 => "SIGUSR1",
        libc::SIGUSR2 => "SIGUSR2",
        libc::SIGALRM => "SIGALRM",
        libc::SIGXFSZ => "SIGXFSZ",
        other => return format!("signal {other}"),
    };
    name.to_owned()
}
