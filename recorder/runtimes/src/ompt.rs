//! OMPT, the interface for tools of OpenMP 5 (its chapter of this name, and `omp-tools.h`): callbacks of the runtime become enters,
//! leaves and events.
//!
//! What LLVM's runtime does otherwise than one expects (numbers of llvm-project's issues):
//! - The last barrier of a team's members ends for them with their next team, or never (55102): see `threads`.
//! - Threads of the runtime end that have not begun (62764): ends without a begin have no effect.
//! - Levels are not asked for (58311, 55073): each thread counts for itself.
//! - The wait in a barrier or a taskwait is as long as that itself (64556): only that of a taskgroup is recorded, since its tasks'
//!   creation is not waiting.
#![expect(
    unsafe_code,
    reason = "functions that the runtime calls, with its pointers"
)]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

use annals_instrument::modules;
use annals_recorder::say;

use crate::choice::{self, Choice};
use crate::constructs as c;
use crate::events;
use crate::threads::{self, Here, Task, Team, here};

/// Data of the tool that the runtime keeps with a thread, a team or a task.
type Data = *mut u64;

type Lookup = unsafe extern "C" fn(*const c_char) -> Option<unsafe extern "C" fn()>;
type SetCallback = unsafe extern "C" fn(c_int, *const c_void) -> c_int;

/// `ompt_start_tool_result_t`.
#[repr(C)]
struct Tool {
    initialize: unsafe extern "C" fn(Lookup, c_int, Data) -> c_int,
    finalize: unsafe extern "C" fn(Data),
    data: u64,
}

static TOOL: Tool = Tool {
    initialize,
    finalize,
    data: 0,
};

/// Is called by a runtime when it begins: returns what it shall call, or null.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn ompt_start_tool(version: u32, runtime: *const c_char) -> *const c_void {
    // A panic must not cross into the runtime.
    std::panic::catch_unwind(|| start_tool(version, runtime)).unwrap_or(std::ptr::null())
}

fn start_tool(version: u32, runtime: *const c_char) -> *const c_void {
    let next = next_tool(version, runtime);
    if !next.is_null() {
        say("OpenMP is not recorded: the program has another tool for it, which gets its events");
        return next;
    }
    let why = if choice::is_set(c"OMP_TOOL_LIBRARIES") {
        "OMP_TOOL_LIBRARIES names another tool"
    } else {
        match choice::get() {
            Choice::Off => {
                "it is switched off, or its runtime was loaded later: record --openmp on"
            }
            Choice::Linked | Choice::All => return (&raw const TOOL).cast(),
        }
    };
    say(format_args!("OpenMP is not recorded: {why}"));
    std::ptr::null()
}

/// Returns what the next function of this name returns: that of another tool. Null if there is none.
fn next_tool(version: u32, runtime: *const c_char) -> *const c_void {
    type Start = unsafe extern "C" fn(u32, *const c_char) -> *const c_void;
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    // SAFETY: the name is a C string.
    let next = unsafe { libc::dlsym(libc::RTLD_NEXT, c"ompt_start_tool".as_ptr()) }.addr();
    NEXT.store(next, Ordering::Relaxed);
    if next == 0 {
        return std::ptr::null();
    }
    // SAFETY: the address of a function of this name, which has this type.
    let next: Start = unsafe { std::mem::transmute::<usize, Start>(next) };
    // SAFETY: the arguments that this function got.
    unsafe { next(version, runtime) }
}

/// Registers the callbacks. Returns whether events are wanted.
unsafe extern "C" fn initialize(lookup: Lookup, _: c_int, _: Data) -> c_int {
    // A panic must not cross into the runtime.
    let begun = std::panic::catch_unwind(|| {
        let find = |name: &CStr| {
            // SAFETY: the runtime's function, and a C string.
            unsafe { lookup(name.as_ptr()) }
        };
        let Some(set) = find(c"ompt_set_callback") else {
            return false;
        };
        // SAFETY: the runtime's function of this name, which has this type.
        let set: SetCallback = unsafe { std::mem::transmute(set) };
        if !events::start() {
            return false;
        }
        let address = (lookup as *const ()).addr();
        modules::with_each(|_, range| {
            if range.contains(&address) {
                RUNTIME[0].store(range.start, Ordering::Relaxed);
                RUNTIME[1].store(range.end, Ordering::Relaxed);
            }
        });
        let Some(events) = events::get() else {
            return false;
        };
        threads::begin(events.recorder);
        for (event, callback) in callbacks() {
            // SAFETY: the callback has the type that the event wants.
            unsafe { set(event, callback) };
        }
        true
    });
    c_int::from(begun.unwrap_or(false))
}

unsafe extern "C" fn finalize(_: Data) {}

/// Events by their numbers (`ompt_callbacks_t`), and what is called for them.
fn callbacks() -> [(c_int, *const c_void); 15] {
    [
        (3, parallel_begin as *const c_void),
        (4, parallel_end as *const c_void),
        (5, task_create as *const c_void),
        (6, task_schedule as *const c_void),
        (7, implicit_task as *const c_void),
        (16, sync_region_wait as *const c_void),
        (17, mutex_released as *const c_void),
        (18, dependences as *const c_void),
        (20, work as *const c_void),
        (21, masked as *const c_void),
        (23, sync_region as *const c_void),
        (26, mutex_acquire as *const c_void),
        (27, mutex_acquired as *const c_void),
        (28, nest_lock as *const c_void),
        (31, reduction as *const c_void),
    ]
}

/// `ompt_scope_begin`.
const BEGIN: c_int = 1;
/// `ompt_scope_end`.
const END: c_int = 2;
/// `ompt_task_initial`.
const INITIAL: c_int = 1;
/// `ompt_task_explicit`.
const EXPLICIT: c_int = 4;

/// Where the runtime is in memory.
static RUNTIME: [AtomicUsize; 2] = [AtomicUsize::new(0), AtomicUsize::new(0)];

/// Returns the address of a call by its return address. 0: not known; of some locks, LLVM's runtime reports where it calls itself.
#[inline(always)]
fn call(return_address: usize) -> usize {
    let [start, end] = [&RUNTIME[0], &RUNTIME[1]].map(|word| word.load(Ordering::Relaxed));
    if (start..end).contains(&return_address) {
        return 0;
    }
    return_address.saturating_sub(1)
}

/// Reads data that the runtime keeps. 0 if there are none.
fn read(data: Data) -> u64 {
    // SAFETY: null, or the runtime's place for this tool's data.
    unsafe { data.as_ref() }.copied().unwrap_or(0)
}

fn write(data: Data, value: u64) {
    // SAFETY: null, or the runtime's place for this tool's data.
    if let Some(data) = unsafe { data.as_mut() } {
        *data = value;
    }
}

/// Returns the team of a parallel region. `None` if it is not known.
fn team_of(parallel: Data) -> Option<&'static Team> {
    let team = std::ptr::with_exposed_provenance::<Team>(read(parallel) as usize);
    // SAFETY: null, or what `parallel_begin` has stored: a team's memory is never freed.
    unsafe { team.as_ref() }
}

extern "C" fn parallel_begin(
    _: Data,
    _: *const c_void,
    parallel: Data,
    _: u32,
    _: c_int,
    address: usize,
) {
    let team = here().and_then(|here| here.begin_team(call(address)));
    let place = team.map_or(0, |team| std::ptr::from_ref(team).expose_provenance());
    write(parallel, place as u64);
}

extern "C" fn parallel_end(_: Data, _: Data, _: c_int, _: usize) {
    if let Some(here) = here() {
        here.end_team();
    }
}

extern "C" fn implicit_task(
    endpoint: c_int,
    parallel: Data,
    _: Data,
    size: u32,
    number: u32,
    flags: c_int,
) {
    let Some(here) = here().filter(|_| flags & INITIAL == 0) else {
        return;
    };
    match (endpoint, number) {
        // The thread that has started the team.
        (BEGIN, 0) => here.events.recorder.raise(&here.events.team, (size,)),
        (BEGIN, _) => here.join(team_of(parallel), number as usize),
        (END, 1..) => here.part(),
        _ => {}
    }
}

/// Enters or leaves.
#[inline(always)]
fn scope(here: Here, endpoint: c_int, construct: u8, address: usize) {
    match endpoint {
        BEGIN => here.enter(construct, address),
        END => here.leave(construct),
        _ => {
            here.enter(construct, address);
            here.leave(construct);
        }
    }
}

extern "C" fn sync_region(kind: c_int, endpoint: c_int, parallel: Data, _: Data, address: usize) {
    let Some(here) = here() else { return };
    let construct = match kind {
        3 => c::BARRIER,
        5 => c::TASKWAIT,
        6 => c::TASKGROUP,
        7 => c::REDUCTION,
        _ => c::IMPLICIT_BARRIER,
    };
    // Members do not get the address of the barrier at the end of the region: it is that of the region, as for the first thread.
    let address = match address {
        0 if endpoint == BEGIN => team_of(parallel).map_or(0, Team::address),
        address => call(address),
    };
    scope(here, endpoint, construct, address);
}

extern "C" fn sync_region_wait(kind: c_int, endpoint: c_int, _: Data, _: Data, address: usize) {
    const TASKGROUP: c_int = 6;
    if kind == TASKGROUP
        && let Some(here) = here()
    {
        scope(here, endpoint, c::TASKGROUP_WAIT, call(address));
    }
}

extern "C" fn reduction(_: c_int, endpoint: c_int, _: Data, _: Data, address: usize) {
    if let Some(here) = here() {
        scope(here, endpoint, c::REDUCTION, call(address));
    }
}

extern "C" fn work(kind: c_int, endpoint: c_int, _: Data, _: Data, _: u64, address: usize) {
    let Some(here) = here() else { return };
    let construct = match kind {
        1 | 13 => c::LOOP,
        2 => c::SECTIONS,
        3 => c::SINGLE,
        // The others pass the block, and wait in a barrier.
        4 => return,
        5 => c::WORKSHARE,
        6 => c::DISTRIBUTE,
        7 => c::TASKLOOP,
        8 => c::SCOPE,
        10 => c::LOOP_STATIC,
        11 => c::LOOP_DYNAMIC,
        12 => c::LOOP_GUIDED,
        _ => return,
    };
    scope(here, endpoint, construct, call(address));
}

extern "C" fn masked(endpoint: c_int, _: Data, _: Data, address: usize) {
    if let Some(here) = here() {
        scope(here, endpoint, c::MASKED, call(address));
    }
}

/// What is waited for, and the block that is executed when it is there, by `ompt_mutex_t`. `None` for a lock that is only tried: no wait
/// is reported to be over if it is not free.
const fn mutex(kind: c_int) -> Option<(u8, Option<u8>)> {
    Some(match kind {
        1 => (c::LOCK, None),
        3 => (c::NEST_LOCK, None),
        5 => (c::CRITICAL, Some(c::CRITICAL_BLOCK)),
        6 => (c::ATOMIC, Some(c::ATOMIC_BLOCK)),
        7 => (c::ORDERED, Some(c::ORDERED_BLOCK)),
        _ => return None,
    })
}

extern "C" fn mutex_acquire(kind: c_int, _: u32, _: u32, _: u64, address: usize) {
    if let Some(here) = here()
        && let Some((wait, _)) = mutex(kind)
    {
        here.enter(wait, call(address));
    }
}

extern "C" fn mutex_acquired(kind: c_int, lock: u64, address: usize) {
    let Some(here) = here() else { return };
    let (recorder, acquire) = (here.events.recorder, &here.events.acquire);
    match mutex(kind) {
        Some((wait, None)) => here.leave_with(&[wait], acquire, (lock,)),
        Some((_, Some(block))) => {
            recorder.raise(acquire, (lock,));
            here.enter(block, call(address));
        }
        None => recorder.raise(acquire, (lock,)),
    }
}

extern "C" fn mutex_released(kind: c_int, lock: u64, _: usize) {
    let Some(here) = here() else { return };
    let release = &here.events.release;
    match mutex(kind) {
        Some((wait, Some(block))) => {
            here.leave(block);
            here.leave_with(&[wait], release, (lock,));
        }
        _ => here.events.recorder.raise(release, (lock,)),
    }
}

/// A lock that the thread has already is acquired once more: it has not waited.
extern "C" fn nest_lock(endpoint: c_int, _: u64, _: usize) {
    if let Some(here) = here()
        && endpoint == BEGIN
        && here.is_in(&[c::NEST_LOCK])
    {
        here.leave(c::NEST_LOCK);
    }
}

extern "C" fn task_create(
    _: Data,
    _: *const c_void,
    new: Data,
    flags: c_int,
    has_dependences: c_int,
    address: usize,
) {
    let Some(here) = here().filter(|_| flags & EXPLICIT != 0) else {
        return;
    };
    if let Some(task) = here.new_task(call(address)) {
        write(new, task.stored());
        let create = &here.events.create;
        here.events
            .recorder
            .raise(create, (task.number(), u32::from(has_dependences != 0)));
    }
}

extern "C" fn task_schedule(prior: Data, status: c_int, next: Data) {
    const COMPLETE: c_int = 1;
    const CANCEL: c_int = 3;
    const DETACH: c_int = 4;
    const EARLY: c_int = 5;
    const LATE: c_int = 6;
    let Some(here) = here() else { return };
    let prior = Task::of(read(prior));
    // A task that is fulfilled late was left before.
    if status == LATE {
        return;
    }
    if let Some(prior) = prior.filter(|_| matches!(status, COMPLETE | CANCEL | DETACH | EARLY)) {
        here.end_task(prior, status as u32);
    }
    here.switch(Task::of(read(next)));
}

/// `ompt_dependence_t`.
#[repr(C)]
struct Dependence {
    variable: u64,
    kind: u32,
}

extern "C" fn dependences(task: Data, dependences: *const Dependence, count: c_int) {
    let Some(here) = here() else { return };
    let Some(task) = Task::of(read(task)) else {
        return;
    };
    if dependences.is_null() {
        return;
    }
    // SAFETY: the runtime's array, while the call lasts.
    let dependences = unsafe { std::slice::from_raw_parts(dependences, count.max(0) as usize) };
    for of in dependences {
        let depend = &here.events.depend;
        here.events
            .recorder
            .raise(depend, (task.number(), of.variable, of.kind));
    }
}
