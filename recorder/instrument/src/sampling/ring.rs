//! Samples that the kernel takes of a thread (perf_event_open(2)), in a ring of memory that it shares with this process.
#![expect(unsafe_code, reason = "the system is asked whose a descriptor is")]

use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::AtomicU64;

use perf_event::events::Software;
use perf_event::{Builder, Clock, ReadFormat, SampleFlag, Sampler};

/// How much of the stack a sample has at most, bytes.
pub(super) const STACK_BYTES: usize = 16 << 10;

/// Bytes of a ring, of which the first that the system allows is taken. The smallest one holds three samples.
const RING_BYTES: [usize; 3] = [256 << 10, 128 << 10, 64 << 10];

/// Types of records: `enum perf_event_type` of `linux/perf_event.h`.
mod record {
    pub(super) const LOST: u32 = 2;
    pub(super) const FORK: u32 = 7;
    pub(super) const SAMPLE: u32 = 9;
    pub(super) const SWITCH: u32 = 14;
}

/// Flags of a record of a switch: the thread does not run from here on, and although it could.
const SWITCH_OUT: u16 = 1 << 13;
const SWITCH_OUT_PREEMPTED: u16 = 1 << 14;

/// The registers that unwinding needs, by their numbers in `asm/perf_regs.h`, ascending.
#[cfg(target_arch = "x86_64")]
pub(super) const REGISTERS: [u8; 3] = [6, 7, 8]; // bp, sp, ip
#[cfg(target_arch = "aarch64")]
pub(super) const REGISTERS: [u8; 4] = [29, 30, 31, 32]; // fp, lr, sp, pc

/// The registers of a 64-bit program: `PERF_SAMPLE_REGS_ABI_64`.
const ABI_64: u64 = 2;

/// The ring of one thread.
pub(super) struct Ring {
    sampler: ManuallyDrop<Sampler>,
    /// The system's number of what is sampled: programs that close all descriptors there are, as daemons do, get the same numbers again for
    /// files of theirs.
    id: Option<u64>,
    period_ns: u64,
    /// Processor time of the thread at the last sample. `None` after a loss.
    last_ns: Option<u64>,
    preemption: Preemption,
    /// State of a generator of random numbers.
    random: u64,
}

/// How long a thread did not run although it could, since its last sample.
#[derive(Default)]
struct Preemption {
    /// Since when it does not run.
    since_ns: Option<u64>,
    sum_ns: u64,
}

impl Preemption {
    fn switch(&mut self, time_ns: u64, flags: u16) {
        if flags & SWITCH_OUT == 0 {
            let since_ns = self.since_ns.take();
            self.sum_ns += since_ns.map_or(0, |since_ns| time_ns.saturating_sub(since_ns));
        } else {
            self.since_ns = (flags & SWITCH_OUT_PREEMPTED != 0).then_some(time_ns);
        }
    }
}

/// What a ring has.
pub(super) enum Entry<'a> {
    Sample(Sample<'a>),
    /// Number of samples that found no room.
    Lost(u64),
    /// The thread has created another one.
    NewThread,
}

/// Where a thread was.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample<'a> {
    pub(super) time_ns: u64,
    /// The processor time since the sample before.
    pub(super) weight_ns: u64,
    /// How long the thread did not run in between although it could.
    pub(super) preempted_ns: u64,
    /// In the order of [`REGISTERS`].
    pub(super) registers: [u64; REGISTERS.len()],
    /// From the stack pointer on.
    pub(super) stack: &'a [u8],
    /// Where to note the stack pointer of the outermost function.
    pub(super) outermost: Option<&'a AtomicU64>,
}

impl Ring {
    /// Begins to sample a thread, each time that it has used `period_ns` of processor time.
    ///
    /// # Errors
    /// If the system does not permit or support it, or the thread has ended.
    pub(super) fn open(thread: u32, period_ns: u64) -> io::Result<Self> {
        // With the time in the kernel, if that is permitted: it is the calling function's.
        let with_kernel = Self::open_as(thread, period_ns, false);
        match with_kernel {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                Self::open_as(thread, period_ns, true)
            }
            other => other,
        }
    }

    fn open_as(thread: u32, period_ns: u64, excludes_kernel: bool) -> io::Result<Self> {
        let mut last = None;
        for bytes in RING_BYTES {
            let registers = REGISTERS.iter().fold(0, |mask, number| mask | 1 << number);
            let counter = Builder::new(Software::TASK_CLOCK)
                .observe_pid(thread as i32)
                .any_cpu()
                .sample_period(period_ns)
                .sample(
                    SampleFlag::TIME
                        | SampleFlag::READ
                        | SampleFlag::REGS_USER
                        | SampleFlag::STACK_USER,
                )
                .read_format(ReadFormat::empty())
                .sample_regs_user(registers)
                .sample_stack_user(STACK_BYTES as u32)
                .clockid(Clock::MONOTONIC)
                .exclude_kernel(excludes_kernel)
                .exclude_hv(true)
                .task(true)
                .context_switch(true)
                .sample_id_all(true)
                .wakeup_watermark(bytes / 2)
                .enabled(true)
                .build()?;
            match counter.sampled(bytes) {
                Ok(sampler) => {
                    return Ok(Self {
                        id: id_of(sampler.as_raw_fd()),
                        sampler: ManuallyDrop::new(sampler),
                        period_ns,
                        last_ns: None,
                        preemption: Preemption::default(),
                        random: super::time_ns(libc::CLOCK_MONOTONIC) << 16 | u64::from(thread) | 1,
                    });
                }
                Err(error) => last = Some(error),
            }
        }
        let limit = "the limit of locked memory is reached (ulimit -l, perf_event_mlock_kb)";
        Err(last.map_or_else(
            || io::Error::other(limit),
            |error| io::Error::other(format!("{limit}: {error}")),
        ))
    }

    /// Returns the descriptor that becomes readable when half of the ring is full, and hangs up when the thread has ended. `None` if
    /// the program has closed it: the ring is filled all the same.
    pub(super) fn descriptor(&self) -> Option<RawFd> {
        let descriptor = self.sampler.as_raw_fd();
        (self.id.is_some() && id_of(descriptor) == self.id).then_some(descriptor)
    }

    /// Returns how much processor time the thread had used at its last sample, nanoseconds.
    pub(super) fn used_ns(&self) -> u64 {
        self.last_ns.unwrap_or(0)
    }

    /// Chooses another period, at random, half shorter or longer at most: programs repeat themselves, and samples in equal steps would
    /// meet the same places again and again.
    fn vary(&mut self) {
        // `_IOW('$', 4, __u64)` of `linux/perf_event.h`.
        const PERF_EVENT_IOC_PERIOD: libc::Ioctl = 0x4008_2404;
        let Some(descriptor) = self.descriptor() else {
            return;
        };
        // Xorshift (Marsaglia, Journal of Statistical Software 8 (14), 2003).
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let period_ns = self.period_ns / 2 + self.random % (self.period_ns + 1);
        // SAFETY: the descriptor is that of an event of ours, and the call reads the period only.
        unsafe { libc::ioctl(descriptor, PERF_EVENT_IOC_PERIOD, &raw const period_ns) };
    }

    /// Calls this with each entry, and takes them out of the ring.
    pub(super) fn take_all(&mut self, mut each: impl FnMut(Entry<'_>)) {
        let mut has_samples = false;
        let Self {
            sampler,
            period_ns,
            last_ns,
            preemption,
            ..
        } = self;
        while let Some(found) = sampler.next_record() {
            let bytes = found.to_contiguous();
            match found.ty() {
                record::LOST => {
                    *last_ns = None;
                    *preemption = Preemption::default();
                    // After the number of the event.
                    each(Entry::Lost(Words(&bytes).nth(1).unwrap_or(1)));
                }
                record::FORK => each(Entry::NewThread),
                record::SAMPLE => {
                    if let Some((mut sample, now_ns)) = parse(&bytes, *period_ns, *last_ns) {
                        has_samples = true;
                        *last_ns = Some(now_ns);
                        sample.preempted_ns = std::mem::take(&mut preemption.sum_ns);
                        each(Entry::Sample(sample));
                    }
                }
                record::SWITCH => {
                    let time_ns = Words(&bytes).nth(0);
                    time_ns
                        .into_iter()
                        .for_each(|time_ns| preemption.switch(time_ns, found.misc()));
                }
                _ => {}
            }
        }
        if has_samples {
            self.vary();
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // A descriptor that is the program's by now stays open, and the ring in memory.
        if self.descriptor().is_some() {
            // SAFETY: it is not used any more.
            unsafe { ManuallyDrop::drop(&mut self.sampler) };
        }
    }
}

/// Returns the system's number of what a descriptor samples. `None` for other descriptors.
fn id_of(descriptor: RawFd) -> Option<u64> {
    // `_IOR('$', 7, __u64 *)` of `linux/perf_event.h`.
    const PERF_EVENT_IOC_ID: libc::Ioctl = 0x8008_2407u32 as libc::Ioctl;
    let mut id = 0_u64;
    // SAFETY: `id` is valid to write to; other descriptors refuse the request.
    let code = unsafe { libc::ioctl(descriptor, PERF_EVENT_IOC_ID, &raw mut id) };
    (code == 0).then_some(id)
}

/// Native words.
struct Words<'a>(&'a [u8]);

impl Words<'_> {
    fn nth(&self, place: usize) -> Option<u64> {
        let bytes = self.0.get(8 * place..8 * place + 8)?;
        Some(u64::from_le_bytes(bytes.try_into().ok()?))
    }
}

/// Reads a sample: time, processor time, registers (with the kind of program before them), stack (length, bytes, and how many of them
/// are valid). Returns the processor time, too. `None` if it has no registers: the thread is about to end.
fn parse(bytes: &[u8], period_ns: u64, last_ns: Option<u64>) -> Option<(Sample<'_>, u64)> {
    let words = Words(bytes);
    let (time_ns, now_ns) = (words.nth(0)?, words.nth(1)?);
    if words.nth(2)? != ABI_64 {
        return None;
    }
    let mut registers = [0; REGISTERS.len()];
    for (place, register) in registers.iter_mut().enumerate() {
        *register = words.nth(3 + place)?;
    }
    let place = 3 + REGISTERS.len();
    let length = words.nth(place)? as usize;
    let start = 8 * (place + 1);
    let valid = match length {
        0 => 0,
        _ => words.nth(place + 1 + length / 8)? as usize,
    };
    let stack = bytes.get(start..start + valid.min(length))?;
    let since = last_ns.map(|last_ns| now_ns.saturating_sub(last_ns));
    let sample = Sample {
        time_ns,
        weight_ns: since.unwrap_or(period_ns),
        preempted_ns: 0,
        registers,
        stack,
        outermost: None,
    };
    Some((sample, now_ns))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_weighs_the_time_since_the_one_before() {
        let mut words = vec![5000, 3_000_000, ABI_64];
        words.extend(REGISTERS.iter().map(|number| u64::from(*number)));
        words.extend([16, 77, 78, 8]);
        let bytes: Vec<u8> = words
            .iter()
            .flat_map(|word: &u64| word.to_le_bytes())
            .collect();
        let (sample, now_ns) = parse(&bytes, 1_000_000, Some(1_800_000)).unwrap();
        assert_eq!((sample.time_ns, sample.weight_ns), (5000, 1_200_000));
        assert_eq!(sample.stack, 77_u64.to_le_bytes());
        assert_eq!(sample.registers[0], REGISTERS[0].into());
        assert_eq!(now_ns, 3_000_000);
        let (first, _) = parse(&bytes, 1_000_000, None).unwrap();
        assert_eq!(first.weight_ns, 1_000_000);
        assert!((0..bytes.len()).all(|length| parse(&bytes[..length], 1, None).is_none()));
    }

    #[test]
    fn a_thread_is_preempted_while_it_could_run() {
        let mut preemption = Preemption::default();
        preemption.switch(100, SWITCH_OUT | SWITCH_OUT_PREEMPTED);
        preemption.switch(130, 0);
        // It waits.
        preemption.switch(200, SWITCH_OUT);
        preemption.switch(900, 0);
        assert_eq!(preemption.sum_ns, 30);
    }
}
