//! Runs a program as if the caller had run it: signals are passed on, and the caller can end as the program did.
#![expect(unsafe_code, reason = "system calls for signals and processes")]

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus};

use annals_recorder::Recorder;
use rustix::process::{
    DumpableBehavior, Pid, Resource, Rlimit, Signal, WaitOptions, getpid, kill_process,
    set_child_subreaper, set_dumpable_behavior, setrlimit, waitpid,
};

/// Ends of other processes that are kept. A program that leaves more is no launcher of ranks.
const MOST_ENDS: usize = 1 << 16;

/// Signals that are passed on. Those that a terminal sends go to all of its programs anyway.
const FORWARDED: [Signal; 8] = [
    Signal::HUP,
    Signal::INT,
    Signal::QUIT,
    Signal::TERM,
    Signal::USR1,
    Signal::USR2,
    Signal::ALARM,
    Signal::CONT,
];

/// How a process ended, and when.
#[derive(Clone, Copy, Debug)]
pub struct Exit {
    /// How.
    pub status: ExitStatus,
    /// When this process learned of it: reference clock, nanoseconds.
    pub at_ns: i64,
}

impl Exit {
    fn now(status: ExitStatus) -> Self {
        Self {
            status,
            at_ns: Recorder::reference_ns(),
        }
    }
}

/// A program that was run to its end.
#[derive(Debug)]
pub struct Launched {
    /// Its process id.
    pub pid: u32,
    /// How it ended.
    pub exit: Exit,
    /// The processes that it left.
    pub orphans: Orphans,
}

/// Processes whose parents have ended, as the ranks of a launcher that is killed. They become children of this process instead of
/// the system's first one, which may wait for them late or, in a container, never.
#[derive(Debug, Default)]
pub struct Orphans {
    /// Whether this process adopts them. If not, its other children are none of this module's.
    is_adopting: bool,
    /// How they ended, by process id.
    ends: RefCell<HashMap<u32, Exit>>,
}

impl Orphans {
    fn adopt() -> Self {
        // Any number but 0 turns it on (prctl(2)).
        let adopted = set_child_subreaper(Some(getpid()));
        Self {
            is_adopting: adopted.is_ok(),
            ends: RefCell::default(),
        }
    }

    /// Waits for those that have ended, so that the system forgets them. Does not block.
    pub fn reap(&self) {
        self.reap_others(0);
    }

    /// Waits for those that have ended, but not for the process of this number. Does not block.
    fn reap_others(&self, child: u32) {
        if !self.is_adopting {
            return;
        }
        // One that has ended is left as it is, until it is known which it is.
        while let Some(pid) = first_ended().filter(|pid| *pid != child) {
            let waited = waitpid(Pid::from_raw(pid as i32), WaitOptions::NOHANG);
            let mut ends = self.ends.borrow_mut();
            if let Ok(Some((_, status))) = waited
                && ends.len() < MOST_ENDS
            {
                ends.insert(pid, Exit::now(ExitStatus::from_raw(status.as_raw())));
            }
        }
    }

    /// Returns whether one of them still runs.
    pub fn are_left(&self) -> bool {
        let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
        let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
        // SAFETY: a valid place. Without children, the call fails.
        self.is_adopting && unsafe { libc::waitid(libc::P_ALL, 0, info.as_mut_ptr(), options) } == 0
    }

    /// Returns how the process of this number ended, and when. `None` if it is none of these, or still runs.
    pub fn end_of(&self, pid: u32) -> Option<Exit> {
        self.ends.borrow().get(&pid).copied()
    }
}

/// Returns the number of a child that has ended and was not waited for. `None` if there is none.
fn first_ended() -> Option<u32> {
    let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
    let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: a valid place.
    let code = unsafe { libc::waitid(libc::P_ALL, 0, info.as_mut_ptr(), options) };
    // SAFETY: zeros, or filled by the call: an integer for any bits.
    let pid = unsafe { info.assume_init().si_pid() };
    u32::try_from(pid).ok().filter(|pid| code == 0 && *pid != 0)
}

/// Runs the command to its end. The processes that it leaves become children of this one. Signals are held since before this process has
/// started any thread: else one of these could take the news that a child has ended.
///
/// # Errors
/// If it cannot be started.
pub fn run(command: &mut Command, held: HeldSignals) -> io::Result<Launched> {
    let before = held.before;
    let unblock = move || {
        // SAFETY: a complete set.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut())
        };
        Ok(())
    };
    // SAFETY: one system call, which a forked child may make.
    unsafe { command.pre_exec(unblock) };
    let orphans = Orphans::adopt();
    let spawned = command.spawn();
    // Signals that arrive after the child has ended have no receiver: `held` discards them.
    spawned.and_then(|child| wait(child, orphans, &held.set))
}

/// While it exists, signals that would be passed on stay pending, for this thread and those that it starts. What is done meanwhile
/// asks for them.
pub struct HeldSignals {
    set: libc::sigset_t,
    before: libc::sigset_t,
}

impl HeldSignals {
    /// Begins.
    pub fn hold() -> Self {
        let set = signal_set();
        let mut before = MaybeUninit::uninit();
        // SAFETY: the set is initialised, `before` valid to write to, which makes it complete.
        let before = unsafe {
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, before.as_mut_ptr());
            before.assume_init()
        };
        Self { set, before }
    }

    /// Returns whether a signal waits that asks this process to end.
    pub fn has_end(&self) -> bool {
        let mut waiting = MaybeUninit::uninit();
        // SAFETY: `waiting` is valid to write to, which makes it complete.
        let waiting = unsafe {
            libc::sigpending(waiting.as_mut_ptr());
            waiting.assume_init()
        };
        let ends = [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM];
        // SAFETY: a complete set.
        ends.iter()
            .any(|signal| unsafe { libc::sigismember(&raw const waiting, signal.as_raw()) } == 1)
    }
}

impl Drop for HeldSignals {
    fn drop(&mut self) {
        let at_once = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // What waited has been heeded, and must not end this process before it says so.
        // SAFETY: set and time are initialised; a null pointer requests no information about the signal.
        while unsafe {
            libc::sigtimedwait(
                &raw const self.set,
                std::ptr::null_mut(),
                &raw const at_once,
            )
        } > 0
        {}
        // SAFETY: a complete set.
        unsafe {
            libc::pthread_sigmask(
                libc::SIG_SETMASK,
                &raw const self.before,
                std::ptr::null_mut(),
            )
        };
    }
}

fn signal_set() -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: sigemptyset initialises the set.
    unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    for signal in FORWARDED.into_iter().chain([Signal::CHILD]) {
        // SAFETY: initialised above.
        unsafe { libc::sigaddset(set.as_mut_ptr(), signal.as_raw()) };
    }
    // SAFETY: initialised above.
    unsafe { set.assume_init() }
}

fn wait(mut child: Child, orphans: Orphans, set: &libc::sigset_t) -> io::Result<Launched> {
    let pid = child.id();
    loop {
        // The child first: its end must not be taken for one of the others.
        if let Some(status) = child.try_wait()? {
            return Ok(Launched {
                pid,
                exit: Exit::now(status),
                orphans,
            });
        }
        orphans.reap_others(pid);
        let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
        // A thread that a library has started here may take a signal.
        let most = libc::timespec {
            tv_sec: 1,
            tv_nsec: 0,
        };
        // SAFETY: set and time are complete, `info` valid to write to.
        let signal = unsafe { libc::sigtimedwait(set, info.as_mut_ptr(), &raw const most) };
        // SAFETY: zeros, or filled by the call.
        let info = unsafe { info.assume_init() };
        // From the terminal, it has reached the child as well.
        let is_from_terminal = info.si_code == libc::SI_KERNEL;
        let forwarded = FORWARDED.iter().find(|known| known.as_raw() == signal);
        if let Some(signal) = forwarded.filter(|_| !is_from_terminal) {
            // The child was not waited for yet, so that its number is its own; it may have ended.
            let _ = kill_process(Pid::from_child(&child), *signal);
        }
    }
}

/// Ends this process by the signal that ended another one, without a core dump, so that the parent, such as a launcher
/// of ranks, observes how the program ended. Returns if the signal does not end this process, as with the first process
/// of a container.
pub fn end_by(signal: i32) {
    // The program has made its dump, or was not to make one. A dump that is piped to a program has no limit (core(5)).
    let none = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    let _ = setrlimit(Resource::Core, none);
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    // SAFETY: the default action needs no function.
    unsafe { libc::signal(signal, libc::SIG_DFL) };
    let mut set = MaybeUninit::uninit();
    // SAFETY: sigemptyset initialises the set.
    unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    // SAFETY: initialised above; a number that is none changes nothing.
    unsafe { libc::sigaddset(set.as_mut_ptr(), signal) };
    // SAFETY: initialised above.
    unsafe { libc::pthread_sigmask(libc::SIG_UNBLOCK, set.as_ptr(), std::ptr::null_mut()) };
    // SAFETY: a system call that touches no memory.
    unsafe { libc::raise(signal) };
}

/// Returns the exit code for a process's end: its own code, or 128 plus the signal's number.
pub fn exit_code(status: ExitStatus) -> u8 {
    let code = status.code().or(status.signal().map(|signal| 128 + signal));
    code.map_or(1, |code| code as u8)
}

/// Returns what a recording says of this end: a signal's name, or `exit` and the code.
pub fn end_name(status: ExitStatus) -> String {
    match (status.signal(), status.code()) {
        (Some(signal), _) => signal_name(signal),
        (None, code) => format!("exit {}", code.unwrap_or_default()),
    }
}

/// Returns what a signal is called, where the name says more than the number.
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
