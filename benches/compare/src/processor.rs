//! Which processor a thread runs on, and the processor time that the whole process took.
#![expect(unsafe_code, reason = "the system's interface is C")]

use std::mem::{size_of, zeroed};

/// The processors that the process may use.
#[derive(Clone, Debug)]
pub(crate) struct Processors(Vec<usize>);

impl Processors {
    /// Returns those of the calling thread.
    pub(crate) fn here() -> Self {
        // SAFETY: a set of processors is plain bits; all zero is the empty one.
        let mut set: libc::cpu_set_t = unsafe { zeroed() };
        // SAFETY: the set is as large as is said.
        unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set) };
        let limit = 8 * size_of::<libc::cpu_set_t>();
        // SAFETY: the number lies within the set.
        let has = |number: &usize| unsafe { libc::CPU_ISSET(*number, &set) };
        Self((0..limit).filter(has).collect())
    }

    /// Returns how many.
    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    /// Pins the calling thread to one of them, counted from the last: interrupts prefer the first.
    pub(crate) fn pin(&self, number: usize) {
        if let Some(index) = self.0.len().checked_sub(1 + number % self.0.len().max(1)) {
            allow(&self.0[index..=index]);
        }
    }

    /// Lets the calling thread, and those it starts from now on, run on all of them.
    pub(crate) fn unpin(&self) {
        allow(&self.0);
    }
}

fn allow(processors: &[usize]) {
    // SAFETY: as in `here`.
    let mut set: libc::cpu_set_t = unsafe { zeroed() };
    for &number in processors {
        // SAFETY: the number was read from such a set.
        unsafe { libc::CPU_SET(number, &mut set) };
    }
    // SAFETY: the set is as large as is said. A refusal leaves the thread where it was.
    unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set) };
}

/// User and system time of all threads of the process, those that ended too, in nanoseconds.
pub(crate) fn process_cpu_ns() -> u64 {
    read(libc::CLOCK_PROCESS_CPUTIME_ID)
}

/// User and system time of the calling thread, in nanoseconds.
pub(crate) fn thread_cpu_ns() -> u64 {
    read(libc::CLOCK_THREAD_CPUTIME_ID)
}

fn read(clock: libc::clockid_t) -> u64 {
    // SAFETY: the time is plain numbers.
    let mut time: libc::timespec = unsafe { zeroed() };
    // SAFETY: the time is a valid place to write to.
    unsafe { libc::clock_gettime(clock, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
