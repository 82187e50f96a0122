//! Samples that a signal handler takes of the thread in which it runs, where the system does not permit perf_event_open.
//!
//! Each thread has a timer of its processor time (timer_create(2)), whose signal is for this thread. The handler copies registers and
//! stack to a ring. It does nothing else: it allocates nothing, takes no lock, and has the system copy the stack (process_vm_readv(2)),
//! which ends where the memory does. The kernel checks these timers in its tick: no period is shorter.
//!
//! [`crate::signals`] hides the signal from the program. When the program sets another handler for it, sampling ends.
//! Nothing must be done before `exec`: the kernel removes timers and their pending signals (`flush_itimer_signals`).
#![expect(
    unsafe_code,
    reason = "a signal handler, what it shares with the reader, and system calls"
)]

use std::cell::UnsafeCell;
use std::ffi::{c_int, c_long, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::ptr::{null_mut, without_provenance_mut};
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use super::ring::{Entry, REGISTERS, STACK_BYTES, Sample};
use super::{processor_clock, processor_ns, this_thread, time_ns};
use crate::signals;

/// Most threads that are sampled at the same time.
const MOST_THREADS: usize = 1024;

/// Most samples that wait to be taken, for each thread: those of a period of the reader, with a tick of 1 ms.
const MOST_WAITING: usize = 32;

/// A thread that used more processor time without a sample does not get the signals, nanoseconds.
const LONGEST_SILENCE_NS: u64 = 1_000_000_000;

/// Pages of a stack that a sample has a part of, at most.
const PAGES: usize = STACK_BYTES / PAGE + 1;
const PAGE: usize = 4096;

/// The rings that were made, each once, the first ones in the table.
static RINGS: [AtomicPtr<Shared>; MOST_THREADS] =
    [const { AtomicPtr::new(null_mut()) }; MOST_THREADS];

/// A ring without a thread.
const NO_THREAD: u32 = 0;

/// A ring without a timer.
const NO_TIMER: c_int = -1;

/// What a thread's handler and the reader share. Zeros at first, apart from the timer; never freed.
struct Shared {
    thread: AtomicU32,
    timer: AtomicI32,
    /// Number of samples that the handler has written.
    written: AtomicUsize,
    /// Number of samples that the reader has read.
    read: AtomicUsize,
    /// Number of samples that found no room.
    lost: AtomicU64,
    /// The highest stack pointer of an outermost function of the thread, as far as known: no sample on this stack needs what is above.
    outermost: AtomicU64,
    slots: [UnsafeCell<Slot>; MOST_WAITING],
}

/// A sample, as the handler writes it.
struct Slot {
    time_ns: u64,
    processor_ns: u64,
    /// [`Shared::lost`] at this time.
    lost: u64,
    registers: [u64; REGISTERS.len()],
    length: usize,
    stack: [u8; STACK_BYTES],
}

// SAFETY: a slot is the handler's until `written` counts it, then the reader's until `read` does.
unsafe impl Sync for Shared {}

/// The reader's side of a thread's ring, and its timer.
pub(super) struct Ring {
    shared: &'static Shared,
    thread: u32,
    period_ns: u64,
    /// Processor time of the thread at the last sample. `None` after a loss.
    last_ns: Option<u64>,
    /// Time of the last sample, and what [`delay_ns`] was then.
    last_time_ns: u64,
    delay_ns: u64,
    /// [`Shared::lost`], as far as it was reported.
    lost: u64,
}

/// Makes a signal ours. Returns the period of samples, which is at least the kernel's tick, nanoseconds.
///
/// # Errors
/// If the system does not permit to copy from the stack, or no signal is free.
pub(super) fn begin(asked_ns: u64) -> io::Result<u64> {
    let (mut word, copied) = ([0_u8; 8], [1_u8; 8]);
    if read_memory(copied.as_ptr().expose_provenance(), &mut word) != word.len() {
        return Err(io::Error::other("process_vm_readv is not permitted"));
    }
    signals::hide(take, delete_timers)?;
    Ok(asked_ns.max(tick_ns()))
}

/// Ends sampling, before the program sets a handler for the signal. Safe in signal handlers.
fn delete_timers() {
    for shared in rings() {
        shared.delete_timer();
    }
}

/// Returns why no samples are taken any more.
pub(super) fn why_ended() -> Option<String> {
    let signal = signals::taken()?;
    Some(format!(
        "the program has set a handler for signal {signal}, by which samples were taken"
    ))
}

fn ring(number: usize) -> Option<&'static Shared> {
    let ring = RINGS.get(number)?.load(Ordering::Acquire);
    // SAFETY: null, or made by `Shared::new`, and never freed.
    unsafe { ring.as_ref() }
}

fn rings() -> impl Iterator<Item = &'static Shared> {
    (0..).map_while(ring)
}

impl Shared {
    /// Maps memory for a ring, of which pages are used when a sample needs them.
    fn new() -> io::Result<*mut Self> {
        let (access, flags) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
        );
        // SAFETY: new memory, wherever it is.
        let memory = unsafe { libc::mmap(null_mut(), size_of::<Self>(), access, flags, -1, 0) };
        match memory {
            libc::MAP_FAILED => Err(io::Error::last_os_error()),
            // Zeros are a valid value.
            memory => Ok(memory.cast()),
        }
    }

    /// Returns a ring for a thread, and its number.
    fn of(thread: u32) -> io::Result<(usize, &'static Self)> {
        for (number, place) in RINGS.iter().enumerate() {
            let mut ring = place.load(Ordering::Acquire);
            if ring.is_null() {
                ring = Self::new()?;
                place.store(ring, Ordering::Release);
            }
            // SAFETY: made by `new`, and never freed.
            let ring = unsafe { &*ring };
            if ring.thread.load(Ordering::Relaxed) == NO_THREAD {
                ring.timer.store(NO_TIMER, Ordering::Relaxed);
                ring.outermost.store(0, Ordering::Relaxed);
                ring.read
                    .store(ring.written.load(Ordering::Relaxed), Ordering::Relaxed);
                ring.thread.store(thread, Ordering::Release);
                return Ok((number, ring));
            }
        }
        Err(io::Error::other(format!(
            "more than {MOST_THREADS} threads"
        )))
    }

    fn delete_timer(&self) {
        let timer = self.timer.swap(NO_TIMER, Ordering::AcqRel);
        if timer != NO_TIMER {
            // SAFETY: a timer of this process.
            unsafe { libc::syscall(libc::SYS_timer_delete, c_long::from(timer)) };
        }
    }

    /// Writes a sample of the calling thread. Runs in a signal handler.
    fn write(&self, context: &libc::ucontext_t) {
        let written = self.written.load(Ordering::Relaxed);
        if written.wrapping_sub(self.read.load(Ordering::Acquire)) == MOST_WAITING {
            self.lost.fetch_add(1, Ordering::Release);
            return;
        }
        let (registers, stack_pointer) = registers_of(context);
        // SAFETY: the reader has read this slot, and reads it again only when `written` counts it.
        let slot = unsafe { &mut *self.slots[written % MOST_WAITING].get() };
        slot.time_ns = time_ns(libc::CLOCK_MONOTONIC);
        slot.processor_ns = time_ns(libc::CLOCK_THREAD_CPUTIME_ID);
        slot.lost = self.lost.load(Ordering::Relaxed);
        slot.registers = registers;
        let outermost = self.outermost.load(Ordering::Relaxed);
        let needed = match outermost.checked_sub(stack_pointer) {
            Some(needed) => slot.stack.len().min(needed as usize),
            // Not known, or another stack.
            None => slot.stack.len(),
        };
        slot.length = read_memory(stack_pointer as usize, &mut slot.stack[..needed]);
        self.written
            .store(written.wrapping_add(1), Ordering::Release);
    }
}

impl Ring {
    /// Begins to sample a thread, each time that it has used `period_ns` of processor time.
    ///
    /// # Errors
    /// If the system refuses a timer, the thread has ended, too many are sampled, or the program uses the signal.
    pub(super) fn open(thread: u32, period_ns: u64) -> io::Result<Self> {
        let ended = || io::Error::other(why_ended().unwrap_or_default());
        let signal = signals::hidden().ok_or_else(ended)?;
        let (number, shared) = Shared::of(thread)?;
        let ring = Self {
            shared,
            thread,
            period_ns,
            last_ns: Some(processor_ns(thread)),
            last_time_ns: time_ns(libc::CLOCK_MONOTONIC),
            delay_ns: delay_ns(thread).unwrap_or(0),
            lost: shared.lost.load(Ordering::Relaxed),
        };
        // SAFETY: zeros are a valid value.
        let mut event: libc::sigevent = unsafe { MaybeUninit::zeroed().assume_init() };
        event.sigev_notify = libc::SIGEV_THREAD_ID;
        event.sigev_notify_thread_id = thread as c_int;
        event.sigev_signo = signal;
        event.sigev_value.sival_ptr = without_provenance_mut(number);
        let mut timer: c_int = 0;
        let clock = c_long::from(processor_clock(thread));
        // SAFETY: both are valid during the call.
        match unsafe {
            libc::syscall(
                libc::SYS_timer_create,
                clock,
                &raw const event,
                &raw mut timer,
            )
        } {
            0 => shared.timer.store(timer, Ordering::Release),
            // What clock_gettime and timer_create say of a thread that has ended.
            _ => {
                let error = io::Error::last_os_error();
                let has_ended = error.raw_os_error() == Some(libc::EINVAL);
                return Err(if has_ended {
                    io::Error::from_raw_os_error(libc::ESRCH)
                } else {
                    error
                });
            }
        }
        let each = libc::timespec {
            tv_sec: (period_ns / 1_000_000_000) as libc::time_t,
            tv_nsec: (period_ns % 1_000_000_000) as c_long,
        };
        let times = libc::itimerspec {
            it_interval: each,
            it_value: each,
        };
        let none = null_mut::<libc::itimerspec>();
        // SAFETY: the timer is ours, and the times are valid during the call.
        let code = unsafe {
            libc::syscall(
                libc::SYS_timer_settime,
                c_long::from(timer),
                0 as c_long,
                &raw const times,
                none,
            )
        };
        if code != 0 {
            return Err(io::Error::last_os_error());
        }
        match signals::taken() {
            Some(_) => Err(ended()),
            None => Ok(ring),
        }
    }

    /// Returns how much processor time the thread had used at its last sample, nanoseconds.
    pub(super) fn used_ns(&self) -> u64 {
        self.last_ns.unwrap_or(0)
    }

    /// Calls this with each entry, and takes them out of the ring.
    pub(super) fn take_all(&mut self, mut each: impl FnMut(Entry<'_>)) {
        let written = self.shared.written.load(Ordering::Acquire);
        let mut read = self.shared.read.load(Ordering::Relaxed);
        let mut delays = match read == written {
            true => Delays::default(),
            false => self.delays(read, written),
        };
        while read != written {
            let slot = self.slot(read);
            self.report(slot.lost, &mut each);
            let since = self.since(slot.processor_ns);
            let weight_ns = since.unwrap_or(self.period_ns);
            let preempted_ns = delays.next(slot.time_ns, weight_ns);
            self.last_ns = Some(slot.processor_ns);
            each(Entry::Sample(Sample {
                time_ns: slot.time_ns,
                weight_ns,
                preempted_ns,
                registers: slot.registers,
                stack: &slot.stack[..slot.length],
                outermost: Some(&self.shared.outermost),
            }));
            self.last_time_ns = slot.time_ns;
            read = read.wrapping_add(1);
            self.shared.read.store(read, Ordering::Release);
        }
        self.report(self.shared.lost.load(Ordering::Acquire), &mut each);
        let now_ns = processor_ns(self.thread);
        let silence_ns = self.since(now_ns).unwrap_or(0);
        if silence_ns > LONGEST_SILENCE_NS {
            self.last_ns = Some(now_ns);
            each(Entry::Lost(silence_ns / self.period_ns));
        }
    }

    /// Returns a sample that the handler has written and the reader has not read.
    fn slot(&self, number: usize) -> &'static Slot {
        // SAFETY: `written` counts this slot, and `read` does not: the handler leaves it alone.
        unsafe { &*self.shared.slots[number % MOST_WAITING].get() }
    }

    /// Returns the processor time since the last sample.
    fn since(&self, processor_ns: u64) -> Option<u64> {
        let last_ns = self.last_ns?;
        Some(processor_ns.saturating_sub(last_ns))
    }

    /// Returns how the time in which the thread could run and did not is divided among its next samples.
    fn delays(&mut self, read: usize, written: usize) -> Delays {
        let delay_ns = delay_ns(self.thread);
        let now_ns = delay_ns.unwrap_or(self.delay_ns);
        let mut delays = Delays {
            delay_ns: now_ns.saturating_sub(self.delay_ns),
            last_ns: self.last_time_ns,
            gaps_ns: 0,
        };
        self.delay_ns = now_ns;
        let (mut time_ns, mut last_ns) = (self.last_time_ns, self.last_ns);
        let mut number = read;
        while number != written {
            let slot = self.slot(number);
            let weight_ns = last_ns.map_or(self.period_ns, |last| {
                slot.processor_ns.saturating_sub(last)
            });
            delays.gaps_ns += gap_ns(time_ns, slot.time_ns, weight_ns);
            (time_ns, last_ns) = (slot.time_ns, Some(slot.processor_ns));
            number = number.wrapping_add(1);
        }
        delays
    }

    /// Reports what was lost until now.
    fn report(&mut self, lost: u64, each: &mut impl FnMut(Entry<'_>)) {
        if lost != self.lost {
            each(Entry::Lost(lost.wrapping_sub(self.lost)));
            (self.lost, self.last_ns) = (lost, None);
        }
    }
}

/// Time in which a thread could run and did not, which is divided among samples: in proportion to the time without the processor before each.
#[derive(Default)]
struct Delays {
    delay_ns: u64,
    /// Time of the sample before.
    last_ns: u64,
    gaps_ns: u64,
}

impl Delays {
    fn next(&mut self, time_ns: u64, weight_ns: u64) -> u64 {
        let gap_ns = gap_ns(self.last_ns, time_ns, weight_ns);
        self.last_ns = time_ns;
        let share = gap_ns as f64 / self.gaps_ns.max(1) as f64;
        gap_ns.min((self.delay_ns as f64 * share) as u64)
    }
}

/// Returns for how long a thread did not run between two times.
fn gap_ns(from_ns: u64, to_ns: u64, ran_ns: u64) -> u64 {
    to_ns.saturating_sub(from_ns).saturating_sub(ran_ns)
}

/// Returns for how long a thread of this process could run and did not, nanoseconds. `None` if the system does not say.
fn delay_ns(thread: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/self/task/{thread}/schedstat")).ok()?;
    text.split_whitespace().nth(1)?.parse().ok()
}

impl Drop for Ring {
    fn drop(&mut self) {
        self.shared.delete_timer();
        self.shared.thread.store(NO_THREAD, Ordering::Release);
    }
}

/// The handler.
extern "C" fn take(_: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the place is the calling thread's own.
    let errno = unsafe { *libc::__errno_location() };
    // SAFETY: the kernel provides it.
    let info = unsafe { &*info };
    let ring = match info.si_code {
        // SAFETY: what a timer sends has a value: the number of its thread's ring.
        libc::SI_TIMER => ring(unsafe { info.si_value() }.sival_ptr.addr()),
        // Sent by the program, which does not know of it.
        _ => {
            let thread = this_thread();
            rings().find(|ring| ring.thread.load(Ordering::Acquire) == thread)
        }
    };
    if let Some(ring) = ring {
        // SAFETY: the kernel provides it.
        ring.write(unsafe { &*context.cast::<libc::ucontext_t>() });
    }
    // SAFETY: the place is the calling thread's own.
    unsafe { *libc::__errno_location() = errno };
}

/// Returns the registers in the order of [`REGISTERS`], and the stack pointer.
#[cfg(target_arch = "x86_64")]
fn registers_of(context: &libc::ucontext_t) -> ([u64; REGISTERS.len()], u64) {
    let register = |number: c_int| context.uc_mcontext.gregs[number as usize] as u64;
    let stack_pointer = register(libc::REG_RSP);
    let registers = [
        register(libc::REG_RBP),
        stack_pointer,
        register(libc::REG_RIP),
    ];
    (registers, stack_pointer)
}

/// Returns the registers in the order of [`REGISTERS`], and the stack pointer.
#[cfg(target_arch = "aarch64")]
fn registers_of(context: &libc::ucontext_t) -> ([u64; REGISTERS.len()], u64) {
    let machine = &context.uc_mcontext;
    let registers = [machine.regs[29], machine.regs[30], machine.sp, machine.pc];
    (registers, machine.sp)
}

/// Copies memory of this process to `into`, and returns how much of it there is. Safe in signal handlers.
fn read_memory(start: usize, into: &mut [u8]) -> usize {
    // The call copies whole parts only: one for each page.
    let mut parts = [libc::iovec {
        iov_base: null_mut(),
        iov_len: 0,
    }; PAGES];
    let (mut count, mut place) = (0, 0);
    while place < into.len() {
        let address = start.wrapping_add(place);
        let length = (PAGE - address % PAGE).min(into.len() - place);
        parts[count] = libc::iovec {
            iov_base: without_provenance_mut(address),
            iov_len: length,
        };
        (count, place) = (count + 1, place + length);
    }
    let own = libc::iovec {
        iov_base: into.as_mut_ptr().cast(),
        iov_len: into.len(),
    };
    // SAFETY: writes to `into` only; what cannot be read ends it.
    let copied = unsafe {
        libc::process_vm_readv(
            libc::getpid(),
            &raw const own,
            1,
            parts.as_ptr(),
            count as _,
            0,
        )
    };
    usize::try_from(copied).unwrap_or(0)
}

/// Returns the period of the kernel's tick, which is the resolution of its coarse clocks, nanoseconds.
fn tick_ns() -> u64 {
    let mut resolution = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `resolution` is valid to write to.
    unsafe { libc::clock_getres(libc::CLOCK_MONOTONIC_COARSE, &raw mut resolution) };
    resolution.tv_nsec.max(1) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_are_divided_by_the_time_without_the_processor() {
        // Samples at 10 (ran for 4), 14 (ran for 4) and 30 (ran for 4): gaps of 6, 0 and 12.
        let mut delays = Delays {
            delay_ns: 9,
            last_ns: 0,
            gaps_ns: 18,
        };
        let shares = [(10, 4), (14, 4), (30, 4)].map(|(time, ran)| delays.next(time, ran));
        assert_eq!(shares, [3, 0, 6]);
        assert_eq!(Delays::default().next(5, 1), 0);
    }

    #[test]
    fn memory_is_read_as_far_as_it_is_there() {
        let page = PAGE;
        // SAFETY: new memory, the second page of which is taken away.
        let start = unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let access = libc::PROT_READ | libc::PROT_WRITE;
            let memory = libc::mmap(null_mut(), 2 * page, access, flags, -1, 0);
            libc::munmap(memory.byte_add(page), page);
            memory.expose_provenance()
        };
        let mut into = [1; STACK_BYTES];
        assert_eq!(read_memory(start + page - 100, &mut into), 100);
        assert_eq!(into[..101], [[0; 100].as_slice(), &[1]].concat());
        assert_eq!(read_memory(start + page, &mut into), 0);
    }
}
