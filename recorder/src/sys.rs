//! The system's services that Rust's library does not offer: memory wiped on fork, memory barriers
//! in other threads, end of process and thread, facts about the process.
#![expect(unsafe_code, reason = "system calls and C library functions")]

use std::ffi::{CStr, CString, c_void};
use std::fs;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use annals_format::BootId;

use memmap2::MmapMut;

/// Value of the guard's word in a finished recording, and in every forked child.
pub(crate) const GUARD_OFF: u32 = 0;
/// Value of the guard's word while events are recorded.
pub(crate) const GUARD_RECORDING: u32 = 1;
/// Value of the guard's word while the user has switched recording off.
const GUARD_PAUSED: u32 = 2;

/// Value of the guard's word while the recording is being finished: what was recorded may still be defined.
const GUARD_FINISHING: u32 = 3;

/// A word that reads 0 in every child of `fork` (and of raw clone): a recorder's permission to
/// touch memory that the child shares with its parent.
#[derive(Debug)]
pub(crate) struct ForkGuard {
    map: MmapMut,
}

impl ForkGuard {
    /// Creates a guard that is on.
    pub(crate) fn new() -> std::io::Result<Self> {
        let guard = Self {
            map: map_wiped_on_fork(4096)?,
        };
        guard.word().store(GUARD_RECORDING, Ordering::Release);
        guard.is_known().store(1, Ordering::Release);
        Ok(guard)
    }

    /// Returns the word itself, which the event path reads.
    #[inline]
    pub(crate) fn word(&self) -> &AtomicU32 {
        // SAFETY: the mapping is page-aligned, longer than the word, and only accessed as an
        // atomic.
        unsafe { AtomicU32::from_ptr(self.map.as_ptr().cast_mut().cast()) }
    }

    /// Returns whether this is a forked child of the guard's process, for the first call in it.
    pub(crate) fn is_new_child(&self) -> bool {
        self.is_known().load(Ordering::Relaxed) == 0
            && self.is_known().swap(1, Ordering::Relaxed) == 0
    }

    fn is_known(&self) -> &AtomicU32 {
        // SAFETY: the mapping is page-aligned, longer than two words, and only accessed as atomics.
        unsafe { AtomicU32::from_ptr(self.map.as_ptr().cast_mut().cast::<u32>().add(1)) }
    }

    /// Returns whether the recording is this process's and not finished: what was recorded can still be defined.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.word().load(Ordering::Relaxed) != GUARD_OFF
    }

    /// Returns whether the recording is this process's and events are recorded, or will be after a pause.
    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        let word = self.word().load(Ordering::Relaxed);
        word == GUARD_RECORDING || word == GUARD_PAUSED
    }

    /// Switches recording off and on again, unless it is off for good.
    pub(crate) fn pause(&self, is_paused: bool) {
        let (from, to) = if is_paused {
            (GUARD_RECORDING, GUARD_PAUSED)
        } else {
            (GUARD_PAUSED, GUARD_RECORDING)
        };
        let (order, seen) = (Ordering::SeqCst, Ordering::Relaxed);
        let _ = self.word().compare_exchange(from, to, order, seen);
    }

    /// Ends the recording of events, before [`ForkGuard::switch_off`]; true for the call that did it.
    pub(crate) fn begin_to_finish(&self) -> bool {
        let open = |word| matches!(word, GUARD_RECORDING | GUARD_PAUSED).then_some(GUARD_FINISHING);
        let (order, seen) = (Ordering::SeqCst, Ordering::SeqCst);
        self.word().fetch_update(order, seen, open).is_ok()
    }

    /// Switches off for good.
    pub(crate) fn switch_off(&self) {
        self.word().store(GUARD_OFF, Ordering::SeqCst);
    }
}

/// Maps zeroed memory that is zeroed again in every child of `fork` (and of raw clone). Fails if
/// the system cannot do that (before Linux 4.14).
pub(crate) fn map_wiped_on_fork(length: usize) -> std::io::Result<MmapMut> {
    let mut map = MmapMut::map_anon(length.max(1))?;
    let start = map.as_mut_ptr().cast();
    // SAFETY: the range is this mapping, all of it.
    let code = unsafe { libc::madvise(start, map.len(), libc::MADV_WIPEONFORK) };
    if code == 0 {
        Ok(map)
    } else {
        Err(std::io::Error::last_os_error())
    }
}

/// Lets this process use [`barrier_in_all_threads`].
pub(crate) fn register_barrier() {
    // SAFETY: the call touches no memory of ours.
    unsafe {
        libc::syscall(
            libc::SYS_membarrier,
            libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED,
            0,
            0,
        )
    };
}

/// Makes every running thread of the process pass a full memory barrier, so that the event path
/// itself needs none. Where the system lacks it, waits until store buffers have long drained.
pub(crate) fn barrier_in_all_threads() {
    // SAFETY: the call touches no memory of ours.
    let code = unsafe {
        libc::syscall(
            libc::SYS_membarrier,
            libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED,
            0,
            0,
        )
    };
    if code != 0 {
        let until = Instant::now() + Duration::from_millis(2);
        while Instant::now() < until {
            pause(Duration::from_millis(2));
        }
    }
    std::sync::atomic::fence(Ordering::SeqCst);
}

/// Waits for the given time, or until a signal arrives.
/// For loops that check the time themselves.
///
/// `std::thread::sleep` continues after each signal with the remaining time. Where signals come
/// faster than the system's timers are exact (50 µs, see "timer slack" in prctl(2)), that never
/// ends.
pub fn pause(time: Duration) {
    let time = libc::timespec {
        tv_sec: time.as_secs() as libc::time_t,
        tv_nsec: time.subsec_nanos() as libc::c_long,
    };
    crate::thread::uncancelled(|| {
        // SAFETY: the time is complete; what is left of it is not asked for.
        unsafe { libc::nanosleep(&raw const time, std::ptr::null_mut()) }
    });
}

/// Sets a variable of the environment: in its place if it has room there, which readers in other threads do not notice; else only
/// while the process has one thread.
pub(crate) fn set_variable(name: &str, value: &str) {
    let (Ok(name), Ok(value)) = (CString::new(name), CString::new(value)) else {
        return;
    };
    // SAFETY: a C string.
    let place = unsafe { libc::getenv(name.as_ptr()) };
    // SAFETY: the environment has C strings.
    let room = (!place.is_null()).then(|| unsafe { CStr::from_ptr(place) }.count_bytes());
    let bytes = value.as_bytes();
    if let Some(room) = room.filter(|room| *room >= bytes.len()) {
        for at in 0..room {
            let byte = bytes.get(at).copied().unwrap_or(b' ');
            // SAFETY: within the string, which the program may change, too (POSIX, environ).
            unsafe { place.add(at).cast::<u8>().write(byte) };
        }
        return;
    }
    let threads = std::fs::read_dir("/proc/self/task");
    if threads.is_ok_and(|threads| threads.count() == 1) {
        // SAFETY: C strings; no other thread reads the environment.
        unsafe { libc::setenv(name.as_ptr(), value.as_ptr(), 1) };
    }
}

/// Runs `work` so that a file at the size limit is an error, and not a signal that ends the
/// program.
pub(crate) fn without_size_signal<T>(work: impl FnOnce() -> T) -> T {
    let mut set = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigemptyset initialises the set.
    unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    // SAFETY: initialised above.
    unsafe { libc::sigaddset(set.as_mut_ptr(), libc::SIGXFSZ) };
    let mut before = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: `set` is initialised, `before` valid to write to.
    let code = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), before.as_mut_ptr()) };
    let outcome = work();
    if code == 0 {
        let at_once = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: the set and the time are complete; no information about the signal is requested.
        unsafe { libc::sigtimedwait(set.as_ptr(), std::ptr::null_mut(), &raw const at_once) };
        // SAFETY: the call above filled `before`.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut()) };
    }
    outcome
}

/// Restores the calling thread's `errno`, when it is dropped, to its value at the creation.
pub(crate) struct ErrnoKept(libc::c_int);

impl ErrnoKept {
    pub(crate) fn new() -> Self {
        // SAFETY: the place is the calling thread's own.
        Self(unsafe { *libc::__errno_location() })
    }
}

impl Drop for ErrnoKept {
    fn drop(&mut self) {
        // SAFETY: the place is the calling thread's own.
        unsafe { *libc::__errno_location() = self.0 };
    }
}

/// Returns the command line.
/// It is read from the system if Rust's library does not know it yet: a recorder may start before
/// the library's own constructors ran.
pub(crate) fn arguments() -> Vec<String> {
    let text = |argument: &[u8]| annals_format::text_of(argument).into_owned();
    let known: Vec<String> = std::env::args_os()
        .map(|argument| text(argument.as_encoded_bytes()))
        .collect();
    if !known.is_empty() {
        return known;
    }
    let line = fs::read("/proc/self/cmdline").unwrap_or_default();
    let line = line.strip_suffix(&[0]).unwrap_or(&line);
    line.split(|byte| *byte == 0).map(text).collect()
}

/// Calls `at_exit` when the process exits normally. Later calls change nothing.
pub(crate) fn on_process_exit(at_exit: extern "C" fn()) {
    static ONCE: OnceLock<()> = OnceLock::new();
    ONCE.get_or_init(|| {
        // SAFETY: the function lives as long as the library.
        unsafe { libc::atexit(at_exit) };
    });
}

/// Runs `spawn` with every signal blocked in the calling thread: a thread that it starts inherits
/// that from its first instruction on, and the program's handlers never run on ours.
pub(crate) fn with_signals_blocked<T>(spawn: impl FnOnce() -> T) -> T {
    let mut all = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigfillset initialises the set.
    unsafe { libc::sigfillset(all.as_mut_ptr()) };
    let mut before = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: `all` is initialised, `before` valid to write to.
    let code =
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr()) };
    let spawned = spawn();
    if code == 0 {
        // SAFETY: the call above filled `before`.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut()) };
    }
    spawned
}

/// Registers the calling thread for the function that [`prepare_thread_end`] was given.
/// Returns `false` if the system has no room for that. Allocates nothing: the key is one of the
/// first, whose values are stored in the thread itself.
pub(crate) fn at_thread_end() -> bool {
    let Some(Some(key)) = THREAD_END.get() else {
        return false;
    };
    // SAFETY: the key was created.
    if !unsafe { libc::pthread_getspecific(*key) }.is_null() {
        return true;
    }
    let first = std::ptr::without_provenance(1);
    // SAFETY: the key was created; any value but null makes the system call back.
    unsafe { libc::pthread_setspecific(*key, first) == 0 }
}

/// Registers the calling thread once more, in the function that [`prepare_thread_end`] was given: destructors of the
/// program may still run, in this round or the next. `value` is what the function was called with. Returns `false` in the
/// last round, when it would not be called any more.
pub(crate) fn again_at_thread_end(value: *mut c_void) -> bool {
    /// PTHREAD_DESTRUCTOR_ITERATIONS of glibc and musl, the least that POSIX permits (limits.h).
    const ROUNDS: usize = 4;
    let Some(Some(key)) = THREAD_END.get() else {
        return false;
    };
    let round = value.addr();
    let next = std::ptr::without_provenance(round + 1);
    // SAFETY: the key was created; any value but null makes the system call back.
    round < ROUNDS && unsafe { libc::pthread_setspecific(*key, next) == 0 }
}

static THREAD_END: OnceLock<Option<libc::pthread_key_t>> = OnceLock::new();

/// Prepares [`at_thread_end`]: `end` is what it will call.
pub(crate) fn prepare_thread_end(end: unsafe extern "C" fn(*mut c_void)) {
    THREAD_END.get_or_init(|| {
        let mut key = 0;
        // SAFETY: `key` is valid to write to, `end` lives as long as the program.
        let code = unsafe { libc::pthread_key_create(&raw mut key, Some(end)) };
        (code == 0).then_some(key)
    });
}

/// Keeps the calling thread from taking a processor away from the program when it is woken: it gets
/// its share, and not more (`SCHED_BATCH`, sched(7)).
pub(crate) fn yield_to_the_program() {
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: the parameters are valid; 0 is the calling thread. Where it is refused, nothing
    // changes.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_BATCH, &raw const parameters) };
}

/// Returns the free bytes of the file system of a file, for users without privileges, and its size in bytes; `None` if it
/// does not say.
pub(crate) fn room(path: &Path) -> Option<(u64, u64)> {
    let path = CString::new(path.as_os_str().as_bytes()).ok()?;
    let mut room = MaybeUninit::<libc::statvfs>::uninit();
    // SAFETY: `path` is a string that ends with 0, and `room` is valid to write to.
    let code = unsafe { libc::statvfs(path.as_ptr(), room.as_mut_ptr()) };
    if code != 0 {
        return None;
    }
    // SAFETY: the call has succeeded, so it has written the whole.
    let room = unsafe { room.assume_init() };
    let bytes = |blocks: u64| blocks.saturating_mul(room.f_frsize);
    Some((bytes(room.f_bavail), bytes(room.f_blocks)))
}

/// Returns the number of the process's threads; `None` if the system does not say. Neither locks nor allocates.
pub(crate) fn thread_count() -> Option<usize> {
    let mut info = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: a C string, and a place that is valid to write to.
    let code = unsafe { libc::stat(c"/proc/self/task".as_ptr(), info.as_mut_ptr()) };
    if code != 0 {
        return None;
    }
    // SAFETY: filled by the call.
    let links = unsafe { info.assume_init() }.st_nlink;
    // A directory has one for each directory in it, and two more.
    usize::try_from(links).ok()?.checked_sub(2)
}

/// Returns how often the calling thread has waited for something other than a processor (`ru_nvcsw`, getrusage(2)).
pub(crate) fn waits() -> i64 {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: `usage` is valid to write to, and zeros are a valid value of it.
    unsafe {
        libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr());
        usage.assume_init().ru_nvcsw
    }
}

/// Returns the calling thread's name as the system has it, filled up with zeros.
pub(crate) fn thread_name() -> [u8; 16] {
    let mut name = [0_u8; 16];
    // SAFETY: the call writes at most 16 bytes.
    unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
    name
}

/// Installs a handler for a signal, unless the program has one; whether it did.
pub(crate) fn handle_signal(signal: libc::c_int, handler: extern "C" fn(libc::c_int)) -> bool {
    let mut before = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: `before` is valid to write to.
    let code = unsafe { libc::sigaction(signal, std::ptr::null(), before.as_mut_ptr()) };
    // SAFETY: zeroed, and filled by the call.
    let before = unsafe { before.assume_init() };
    let own = handler as *const () as libc::sighandler_t;
    if code != 0 || (before.sa_sigaction != libc::SIG_DFL && before.sa_sigaction != own) {
        return false;
    }
    let mut action = before;
    action.sa_sigaction = own;
    action.sa_flags = libc::SA_RESTART;
    // SAFETY: the action is complete; the handler only stores to atomics.
    unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) == 0 }
}

/// Returns whether the program ignores a signal.
pub(crate) fn is_ignored(signal: libc::c_int) -> bool {
    let mut now = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: `now` is valid to write to.
    let code = unsafe { libc::sigaction(signal, std::ptr::null(), now.as_mut_ptr()) };
    // SAFETY: zeroed, and filled by the call.
    code == 0 && unsafe { now.assume_init() }.sa_sigaction == libc::SIG_IGN
}

/// Returns whether a signal is one of those that ask programs to end.
pub(crate) const fn ends_programs(signal: libc::c_int) -> bool {
    matches!(
        signal,
        libc::SIGTERM | libc::SIGINT | libc::SIGHUP | libc::SIGQUIT | libc::SIGXCPU
    )
}

/// Ends the process by a signal that this module handles.
pub(crate) fn end_by(signal: libc::c_int) {
    // SAFETY: zeros are a whole action, of which the field below is the only one that counts.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = libc::SIG_DFL;
    // SAFETY: the action is complete.
    unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) };
    // SAFETY: touches no memory of ours.
    unsafe { libc::kill(libc::getpid(), signal) };
}

/// Returns the system's number of the calling thread.
pub(crate) fn thread_number() -> u64 {
    // SAFETY: the call touches no memory of ours.
    unsafe { libc::syscall(libc::SYS_gettid) as u64 }
}

/// Returns the boot id of this host; zeros if the system does not report it.
pub(crate) fn boot_id() -> BootId {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    text.parse().unwrap_or_default()
}

/// Returns the host's name.
pub(crate) fn host_name() -> String {
    fs::read_to_string("/proc/sys/kernel/hostname")
        .map(|name| name.trim().to_owned())
        .ok()
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| "localhost".to_owned())
}

/// Returns 16 bytes that are unique to this process.
pub(crate) fn random_id() -> [u8; 16] {
    let mut id = [0_u8; 16];
    // SAFETY: `id` is valid to write 16 bytes to.
    let got = unsafe { libc::getrandom(id.as_mut_ptr().cast(), id.len(), 0) };
    if got != 16 {
        id[..8].copy_from_slice(&crate::clock::unix_ns().to_le_bytes());
        id[8..12].copy_from_slice(&std::process::id().to_le_bytes());
        id[12..].copy_from_slice(&(crate::clock::reference_ns() as u32).to_le_bytes());
    }
    id
}

/// Returns the processors this thread may run on, as the system prints them (`0-3,8`).
pub(crate) fn affinity() -> String {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    line.map(|list| list.trim().to_owned()).unwrap_or_default()
}

/// Returns name and number of the processors.
pub(crate) fn processors() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let count = info
        .lines()
        .filter(|line| line.starts_with("processor"))
        .count();
    let model = info
        .lines()
        .find(|line| line.starts_with("model name"))
        .and_then(|line| line.split_once(':'))
        .map_or(std::env::consts::ARCH, |(_, model)| model.trim());
    format!("{count} x {model}")
}

/// Returns kernel name and version.
pub(crate) fn kernel() -> String {
    fs::read_to_string("/proc/sys/kernel/osrelease")
        .map(|release| format!("Linux {}", release.trim()))
        .unwrap_or_default()
}

/// Returns whether a directory is on a file system of another machine, where shared mappings are
/// slow or not coherent.
pub(crate) fn is_network_file_system(directory: &Path) -> bool {
    use std::os::unix::ffi::OsStrExt;
    // From linux/magic.h and the file systems' own headers: NFS, SMB, CIFS, SMB2, Lustre, GPFS,
    // AFS, Ceph, 9P, FUSE (sshfs, BeeGFS, glusterfs), Coda, OrangeFS.
    const NETWORK: &[i64] = &[
        0x6969,
        0x517b,
        0xff53_4d42,
        0xfe53_4d42,
        0x0bd0_0bd0,
        0x4750_4653,
        0x5346_414f,
        0x00c3_6400,
        0x0102_1997,
        0x6573_5546,
        0x7375_7245,
        0x2003_0528,
    ];
    let Ok(path) = std::ffi::CString::new(directory.as_os_str().as_bytes()) else {
        return false;
    };
    let mut info = std::mem::MaybeUninit::<libc::statfs>::uninit();
    // SAFETY: the path is a C string, `info` valid to write to.
    let code = unsafe { libc::statfs(path.as_ptr(), info.as_mut_ptr()) };
    if code != 0 {
        return false;
    }
    // SAFETY: statfs filled it.
    let kind = unsafe { info.assume_init() }.f_type;
    NETWORK.contains(&(kind & 0xffff_ffff))
}
