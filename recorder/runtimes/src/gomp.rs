//! The runtime of GCC, which has no interface for tools: calls of its functions are recorded and passed on.
//!
//! They are not exported: programs look them up to learn whether there is such a runtime. The addresses that the loader has filled in for
//! the program and its libraries are replaced, where they are those of the runtime.
#![expect(
    unsafe_code,
    reason = "functions are called by address, as the program calls them"
)]

use std::ffi::{CStr, CString, c_int, c_void};
use std::ptr::null_mut;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use annals_instrument::modules::{self, any_import, replace};
use annals_recorder::say;

use crate::choice::{self, Choice};
use crate::constructs as c;
use crate::events;
use crate::stub::{Words, stub};
use crate::threads::{self, Here, Task, Team, here};

/// What a call of a function means.
#[derive(Clone, Copy)]
enum Action {
    /// The construct is the call.
    Around(u8),
    /// The construct begins.
    Enter(u8),
    /// The construct ends.
    Leave(u8),
    /// The construct ends in a barrier, which is the call.
    LeaveInBarrier(u8),
    /// A group of tasks ends: they are waited for.
    LeaveGroup,
    /// A lock is waited for. The block that has it then, if there is one.
    Acquire(Lock, u8, Option<u8>),
    Release(Lock, u8, Option<u8>),
    /// A lock is acquired if it is free: then the call returns another number than 0.
    Try,
    /// A team executes a function. The construct in it, if it is known, ends with another call.
    Parallel(Option<u8>),
    /// A single thread executes a block: that for which the call returns another number than 0, or 0.
    Single {
        is_for_zero: bool,
    },
    /// A task is created, or executed now.
    Task,
}

/// The number of a lock.
#[derive(Clone, Copy)]
enum Lock {
    /// The first word that is passed.
    Passed,
    /// There is one of its kind.
    Only(u64),
}

impl Lock {
    fn number(self, words: Words) -> u64 {
        match self {
            Self::Passed => words.get(0) as u64,
            Self::Only(number) => number,
        }
    }
}

/// A function of the runtime.
struct Entry {
    name: &'static CStr,
    /// Whether it has more than six words.
    is_long: bool,
    action: Action,
    stub: unsafe extern "C" fn(),
    /// The runtime's function. 0: it has none, or was not found yet.
    next: AtomicUsize,
}

macro_rules! entries {
    ($($name:ident $is_long:literal $action:expr;)*) => {
        $(
            #[allow(non_snake_case, reason = "the names are the runtime's")]
            mod $name {
                use super::*;

                pub(super) static ENTRY: Entry = Entry {
                    name: match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                        Ok(name) => name,
                        Err(_) => panic!("a name has no zero byte"),
                    },
                    is_long: $is_long,
                    action: $action,
                    stub,
                    next: AtomicUsize::new(0),
                };

                stub!(called);

                extern "C-unwind" fn called(words: *mut usize) -> usize {
                    // SAFETY: that of the stub.
                    called_entry(&ENTRY, unsafe { Words::new(words) })
                }
            }
        )*

        static ENTRIES: &[&Entry] = &[$(&$name::ENTRY),*];
    };
}

use Action::{Acquire, Around, Enter, Leave, LeaveInBarrier, Parallel, Release};

const CRITICAL: Lock = Lock::Only(1);
const ATOMIC: Lock = Lock::Only(2);
const ORDERED: Lock = Lock::Only(3);

// Name, whether it has more than six words, meaning.
entries! {
    GOMP_parallel false Parallel(None);
    GOMP_parallel_reductions false Parallel(None);
    GOMP_parallel_sections false Parallel(Some(c::SECTIONS));
    GOMP_parallel_loop_static true Parallel(Some(c::LOOP_STATIC));
    GOMP_parallel_loop_dynamic true Parallel(Some(c::LOOP_DYNAMIC));
    GOMP_parallel_loop_nonmonotonic_dynamic true Parallel(Some(c::LOOP_DYNAMIC));
    GOMP_parallel_loop_guided true Parallel(Some(c::LOOP_GUIDED));
    GOMP_parallel_loop_nonmonotonic_guided true Parallel(Some(c::LOOP_GUIDED));
    GOMP_parallel_loop_runtime true Parallel(Some(c::LOOP));
    GOMP_parallel_loop_nonmonotonic_runtime true Parallel(Some(c::LOOP));
    GOMP_parallel_loop_maybe_nonmonotonic_runtime true Parallel(Some(c::LOOP));
    GOMP_barrier false Around(c::BARRIER);
    GOMP_barrier_cancel false Around(c::BARRIER);
    GOMP_taskwait false Around(c::TASKWAIT);
    GOMP_taskwait_depend false Around(c::TASKWAIT);
    GOMP_taskloop true Around(c::TASKLOOP);
    GOMP_taskloop_ull true Around(c::TASKLOOP);
    GOMP_taskgroup_start false Enter(c::TASKGROUP);
    GOMP_taskgroup_end false Action::LeaveGroup;
    GOMP_task true Action::Task;
    GOMP_single_start false Action::Single { is_for_zero: false };
    GOMP_single_copy_start false Action::Single { is_for_zero: true };
    GOMP_sections_start false Enter(c::SECTIONS);
    GOMP_sections2_start false Enter(c::SECTIONS);
    GOMP_sections_end false LeaveInBarrier(c::SECTIONS);
    GOMP_sections_end_cancel false LeaveInBarrier(c::SECTIONS);
    GOMP_sections_end_nowait false Leave(c::SECTIONS);
    GOMP_loop_static_start true Enter(c::LOOP_STATIC);
    GOMP_loop_dynamic_start true Enter(c::LOOP_DYNAMIC);
    GOMP_loop_guided_start true Enter(c::LOOP_GUIDED);
    GOMP_loop_runtime_start true Enter(c::LOOP);
    GOMP_loop_nonmonotonic_dynamic_start true Enter(c::LOOP_DYNAMIC);
    GOMP_loop_nonmonotonic_guided_start true Enter(c::LOOP_GUIDED);
    GOMP_loop_nonmonotonic_runtime_start true Enter(c::LOOP);
    GOMP_loop_maybe_nonmonotonic_runtime_start true Enter(c::LOOP);
    GOMP_loop_ordered_static_start true Enter(c::LOOP_STATIC);
    GOMP_loop_ordered_dynamic_start true Enter(c::LOOP_DYNAMIC);
    GOMP_loop_ordered_guided_start true Enter(c::LOOP_GUIDED);
    GOMP_loop_ordered_runtime_start true Enter(c::LOOP);
    GOMP_loop_doacross_static_start true Enter(c::LOOP_STATIC);
    GOMP_loop_doacross_dynamic_start true Enter(c::LOOP_DYNAMIC);
    GOMP_loop_doacross_guided_start true Enter(c::LOOP_GUIDED);
    GOMP_loop_doacross_runtime_start true Enter(c::LOOP);
    GOMP_loop_start true Enter(c::LOOP);
    GOMP_loop_ordered_start true Enter(c::LOOP);
    GOMP_loop_doacross_start true Enter(c::LOOP);
    GOMP_loop_ull_static_start true Enter(c::LOOP_STATIC);
    GOMP_loop_ull_dynamic_start true Enter(c::LOOP_DYNAMIC);
    GOMP_loop_ull_guided_start true Enter(c::LOOP_GUIDED);
    GOMP_loop_ull_runtime_start true Enter(c::LOOP);
    GOMP_loop_ull_nonmonotonic_dynamic_start true Enter(c::LOOP_DYNAMIC);
    GOMP_loop_ull_nonmonotonic_guided_start true Enter(c::LOOP_GUIDED);
    GOMP_loop_ull_nonmonotonic_runtime_start true Enter(c::LOOP);
    GOMP_loop_ull_maybe_nonmonotonic_runtime_start true Enter(c::LOOP);
    GOMP_loop_ull_ordered_static_start true Enter(c::LOOP_STATIC);
    GOMP_loop_ull_ordered_dynamic_start true Enter(c::LOOP_DYNAMIC);
    GOMP_loop_ull_ordered_guided_start true Enter(c::LOOP_GUIDED);
    GOMP_loop_ull_ordered_runtime_start true Enter(c::LOOP);
    GOMP_loop_ull_doacross_static_start true Enter(c::LOOP_STATIC);
    GOMP_loop_ull_doacross_dynamic_start true Enter(c::LOOP_DYNAMIC);
    GOMP_loop_ull_doacross_guided_start true Enter(c::LOOP_GUIDED);
    GOMP_loop_ull_doacross_runtime_start true Enter(c::LOOP);
    GOMP_loop_ull_start true Enter(c::LOOP);
    GOMP_loop_ull_ordered_start true Enter(c::LOOP);
    GOMP_loop_ull_doacross_start true Enter(c::LOOP);
    GOMP_loop_end false LeaveInBarrier(c::LOOP);
    GOMP_loop_end_cancel false LeaveInBarrier(c::LOOP);
    GOMP_loop_end_nowait false Leave(c::LOOP);
    GOMP_critical_start false Acquire(CRITICAL, c::CRITICAL, Some(c::CRITICAL_BLOCK));
    GOMP_critical_end false Release(CRITICAL, c::CRITICAL, Some(c::CRITICAL_BLOCK));
    GOMP_critical_name_start false Acquire(Lock::Passed, c::CRITICAL, Some(c::CRITICAL_BLOCK));
    GOMP_critical_name_end false Release(Lock::Passed, c::CRITICAL, Some(c::CRITICAL_BLOCK));
    GOMP_atomic_start false Acquire(ATOMIC, c::ATOMIC, Some(c::ATOMIC_BLOCK));
    GOMP_atomic_end false Release(ATOMIC, c::ATOMIC, Some(c::ATOMIC_BLOCK));
    GOMP_ordered_start false Acquire(ORDERED, c::ORDERED, Some(c::ORDERED_BLOCK));
    GOMP_ordered_end false Release(ORDERED, c::ORDERED, Some(c::ORDERED_BLOCK));
    omp_set_lock false Acquire(Lock::Passed, c::LOCK, None);
    omp_set_lock_ false Acquire(Lock::Passed, c::LOCK, None);
    omp_set_nest_lock false Acquire(Lock::Passed, c::NEST_LOCK, None);
    omp_set_nest_lock_ false Acquire(Lock::Passed, c::NEST_LOCK, None);
    omp_unset_lock false Release(Lock::Passed, c::LOCK, None);
    omp_unset_lock_ false Release(Lock::Passed, c::LOCK, None);
    omp_unset_nest_lock false Release(Lock::Passed, c::NEST_LOCK, None);
    omp_unset_nest_lock_ false Release(Lock::Passed, c::NEST_LOCK, None);
    omp_test_lock false Action::Try;
    omp_test_lock_ false Action::Try;
    omp_test_nest_lock false Action::Try;
    omp_test_nest_lock_ false Action::Try;
}

/// The constructs that a call at the end of a loop may end.
const LOOPS: [u8; 4] = [c::LOOP, c::LOOP_STATIC, c::LOOP_DYNAMIC, c::LOOP_GUIDED];

/// Returns the constructs that a call which ends this one may end.
const fn ended(construct: &u8) -> &[u8] {
    match *construct {
        c::LOOP => &LOOPS,
        _ => std::slice::from_ref(construct),
    }
}

/// Addresses of the runtime's functions that return the number of the calling thread, and of all of its team. 0: not known.
static THREAD_NUMBER: AtomicUsize = AtomicUsize::new(0);
static TEAM_SIZE: AtomicUsize = AtomicUsize::new(0);

/// Calls one of them. Returns 0 if it is not known.
fn ask(function: &AtomicUsize) -> u32 {
    type Number = extern "C" fn() -> c_int;
    let address = function.load(Ordering::Relaxed);
    if address == 0 {
        return 0;
    }
    // SAFETY: the address of the runtime's function, which has this type.
    let function = unsafe { std::mem::transmute::<usize, Number>(address) };
    function().cast_unsigned()
}

/// Has calls of the runtime recorded, from the files that are in memory.
pub(crate) fn adopt() {
    static ADOPTING: Mutex<()> = Mutex::new(());
    if choice::get() == Choice::Off {
        return;
    }
    // Not waited for: another thread may hold the loader's lock.
    let Ok(_adopting) = ADOPTING.try_lock() else {
        return;
    };
    let files = modules::loaded();
    let name = |path: &str| path.rsplit('/').next().unwrap_or_default().to_owned();
    let mut runtimes = files
        .iter()
        .filter(|file| name(&file.path).starts_with("libgomp"));
    let Some(runtime) = runtimes.next() else {
        return;
    };
    let others = runtimes.count();
    let Ok(path) = CString::new(runtime.path.as_bytes()) else {
        return;
    };
    // SAFETY: a C string; the file is in memory already.
    let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    if handle.is_null() {
        return;
    }
    let find = |handle: *mut c_void, name: &CStr| {
        // SAFETY: a handle of the loader, and a C string.
        unsafe { libc::dlsym(handle, name.as_ptr()) }.addr()
    };
    for (function, name) in [
        (&THREAD_NUMBER, c"omp_get_thread_num"),
        (&TEAM_SIZE, c"omp_get_num_threads"),
    ] {
        function.store(find(handle, name), Ordering::Relaxed);
    }
    for entry in ENTRIES {
        entry
            .next
            .store(find(handle, entry.name), Ordering::Release);
    }
    // Addresses that the loader has not filled in yet are those of the first file that has the function.
    let first = find(libc::RTLD_DEFAULT, c"GOMP_parallel");
    let is_first = others == 0 && (first == 0 || runtime.range.contains(&first));
    let mut is_used = false;
    modules::with_each(|info, range| {
        let is_own = range.contains(&((adopt as fn() as *const ()).addr()));
        if is_own || *range == runtime.range {
            return;
        }
        any_import(info, |import| {
            if let Some(entry) = entry_of(import.name) {
                let next = entry.next.load(Ordering::Relaxed);
                let now = modules::read(import.slot);
                let is_unbound = range.contains(&now);
                if next != 0 && (now == next || is_first && is_unbound) {
                    is_used |= replace(import.slot, (entry.stub as *const ()).addr());
                }
            }
            false
        });
    });
    // Now, and not at the first call: other threads' calls would be lost meanwhile.
    if is_used
        && events::start()
        && let Some(events) = events::get()
    {
        threads::begin(events.recorder);
    }
    static SAID: AtomicBool = AtomicBool::new(false);
    if others != 0 && !SAID.swap(true, Ordering::Relaxed) {
        say(format_args!(
            "OpenMP: of {} copies of libgomp, only {} is recorded",
            others + 1,
            runtime.path
        ));
    }
}

fn entry_of(name: &CStr) -> Option<&'static Entry> {
    let bytes = name.to_bytes();
    if !bytes.starts_with(b"GOMP_") && !bytes.starts_with(b"omp_") {
        return None;
    }
    ENTRIES.iter().copied().find(|entry| entry.name == name)
}

/// Is called in place of the runtime's function of an entry.
fn called_entry(entry: &'static Entry, words: Words) -> usize {
    let next = entry.next.load(Ordering::Relaxed);
    // SAFETY: the runtime's function, and the words that the program passes to it.
    let pass_on = || unsafe { words.pass_on(next, entry.is_long) };
    let Some(here) = here() else {
        return pass_on();
    };
    let (recorder, address) = (here.events.recorder, words.call_address());
    match entry.action {
        Around(construct) => {
            here.enter(construct, address);
            let result = pass_on();
            here.leave(construct);
            result
        }
        Enter(construct) => {
            here.enter(construct, address);
            pass_on()
        }
        Leave(construct) => {
            here.leave_any(ended(&construct));
            pass_on()
        }
        LeaveInBarrier(construct) => {
            here.leave_any(ended(&construct));
            here.enter(c::IMPLICIT_BARRIER, address);
            let result = pass_on();
            here.leave(c::IMPLICIT_BARRIER);
            result
        }
        Action::LeaveGroup => {
            here.enter(c::TASKGROUP_WAIT, address);
            let result = pass_on();
            here.leave(c::TASKGROUP_WAIT);
            here.leave(c::TASKGROUP);
            result
        }
        Acquire(lock, wait, block) => {
            here.enter(wait, address);
            let result = pass_on();
            let (acquire, lock) = (&here.events.acquire, lock.number(words));
            match block {
                Some(block) => {
                    recorder.raise(acquire, (lock,));
                    here.enter(block, address);
                }
                None => here.leave_with(&[wait], acquire, (lock,)),
            }
            result
        }
        Release(lock, wait, block) => {
            // Before another thread can have it.
            let (release, lock) = (&here.events.release, lock.number(words));
            match block {
                Some(block) => {
                    here.leave(block);
                    here.leave_with(&[wait], release, (lock,));
                }
                None => recorder.raise(release, (lock,)),
            }
            pass_on()
        }
        Action::Try => {
            let result = pass_on();
            if result as u32 != 0 {
                recorder.raise(&here.events.acquire, (words.get(0) as u64,));
            }
            result
        }
        Action::Single { is_for_zero } => {
            let result = pass_on();
            // A byte, or a pointer.
            let is_zero = if is_for_zero {
                result == 0
            } else {
                result as u8 == 0
            };
            if is_zero == is_for_zero {
                here.enter(c::SINGLE, address);
                here.leave(c::SINGLE);
            }
            result
        }
        Parallel(construct) => parallel(here, entry, words, construct),
        Action::Task => task(here, entry, words),
    }
}

type Function = extern "C-unwind" fn(*mut c_void);

fn parallel(here: Here, entry: &Entry, words: Words, construct: Option<u8>) -> usize {
    let team = here.begin_team(words.call_address());
    if let Some(team) = team {
        team.set_work([words.get(0), words.get(1)], construct.unwrap_or(0));
        words.set(0, (execute as Function as *const ()).addr());
        words.set(1, std::ptr::from_ref(team).expose_provenance());
    }
    // SAFETY: the runtime's function, and the words that the program passes to it, or those for `execute`.
    let result = unsafe { words.pass_on(entry.next.load(Ordering::Relaxed), entry.is_long) };
    here.end_team();
    result
}

/// Is executed by each thread of a team.
extern "C-unwind" fn execute(team: *mut c_void) {
    // SAFETY: what `parallel` has passed: a team's memory is never freed.
    let team: &'static Team = unsafe { &*team.cast::<Team>() };
    let ([function, data], construct) = team.work();
    if let Some(here) = here() {
        match ask(&THREAD_NUMBER) {
            // The thread that has started the team.
            0 => here
                .events
                .recorder
                .raise(&here.events.team, (ask(&TEAM_SIZE),)),
            number => here.join(Some(team), number as usize),
        }
        if construct != 0 {
            here.enter(construct, team.address());
        }
    }
    // SAFETY: the first word of the runtime's functions is the function that the team executes.
    let function = unsafe { std::mem::transmute::<usize, Function>(function) };
    function(std::ptr::with_exposed_provenance_mut(data));
    if let Some(here) = here() {
        if construct != 0 {
            here.leave(construct);
        }
        // It ends with the team, which no member learns.
        here.enter(c::IMPLICIT_BARRIER, team.address());
    }
}

type Copy = extern "C-unwind" fn(*mut c_void, *mut c_void);

/// A task that is being created.
struct NewTask {
    function: Function,
    /// Copies the task's data. `None` means that their bytes are copied.
    copy: Option<Copy>,
    data: *mut c_void,
    length: usize,
    /// Where the data are in the task's memory, which begins with a [`Header`].
    offset: usize,
    task: u64,
}

/// What is before a task's data.
struct Header {
    function: Function,
    offset: usize,
    task: u64,
}

/// The flag of a task whose end is reported by an event: the runtime writes into its data before they are copied.
const DETACH: usize = 8192;
const DEPEND: usize = 8;

fn task(here: Here, entry: &Entry, words: Words) -> usize {
    let next = entry.next.load(Ordering::Relaxed);
    let flags = words.get(6);
    let task = here.new_task(words.call_address());
    let Some(task) = task.filter(|_| flags as u32 as usize & DETACH == 0) else {
        // SAFETY: the runtime's function, and the words that the program passes to it.
        return unsafe { words.pass_on(next, entry.is_long) };
    };
    let has_dependences = u32::from(flags & DEPEND != 0);
    let create = &here.events.create;
    here.events
        .recorder
        .raise(create, (task.number(), has_dependences));
    let [function, copy] = [words.get(0), words.get(2)];
    let align = words.get(4).max(align_of::<Header>());
    let offset = size_of::<Header>().next_multiple_of(align);
    let mut new = NewTask {
        // SAFETY: the first word is the task's function.
        function: unsafe { std::mem::transmute::<usize, Function>(function) },
        // SAFETY: the third word is 0, or a function that copies.
        copy: unsafe { std::mem::transmute::<usize, Option<Copy>>(copy) },
        data: std::ptr::with_exposed_provenance_mut(words.get(1)),
        length: words.get(3),
        offset,
        task: task.stored(),
    };
    words.set(0, (execute_task as Function as *const ()).addr());
    words.set(1, (&raw mut new).expose_provenance());
    words.set(2, (copy_task as Copy as *const ()).addr());
    words.set(3, offset + words.get(3));
    words.set(4, align);
    // SAFETY: the runtime's function; it copies `new` before it returns.
    unsafe { words.pass_on(next, entry.is_long) }
}

/// Fills in the memory of a task.
extern "C-unwind" fn copy_task(to: *mut c_void, new: *mut c_void) {
    // SAFETY: what `task` has passed, which waits.
    let new = unsafe { &*new.cast::<NewTask>() };
    let header = Header {
        function: new.function,
        offset: new.offset,
        task: new.task,
    };
    // SAFETY: the runtime's memory for the task, which is as long and as aligned as `task` has asked.
    unsafe { to.cast::<Header>().write(header) };
    let data = to.wrapping_byte_add(new.offset);
    match new.copy {
        Some(copy) => copy(data, new.data),
        // SAFETY: the program's data, and the memory for them.
        None => unsafe {
            new.data
                .cast::<u8>()
                .copy_to_nonoverlapping(data.cast(), new.length)
        },
    }
}

extern "C-unwind" fn execute_task(memory: *mut c_void) {
    const COMPLETE: u32 = 1;
    // SAFETY: what `copy_task` has written.
    let Header {
        function,
        offset,
        task,
    } = unsafe { memory.cast::<Header>().read() };
    let task = Task::of(task);
    if let Some(here) = here() {
        here.switch(task);
    }
    function(memory.wrapping_byte_add(offset));
    if let (Some(here), Some(task)) = (here(), task) {
        here.end_task(task, COMPLETE);
    }
}

const _: () =
    assert!(size_of::<Option<Copy>>() == size_of::<usize>() && null_mut::<u8>().is_null());
