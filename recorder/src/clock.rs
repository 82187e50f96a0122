//! Clocks: reading them, and reading them together with the reference clock.
#![expect(
    unsafe_code,
    reason = "clock_gettime and the processor's counters are foreign functions"
)]

use std::fmt;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

use annals_format::host::namespace_offset_ns;
use annals_format::{CalibrationPoint, Clock};

use crate::thread;

/// Which clock stamps the events of the process's own source.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum ClockChoice {
    /// The time-stamp counter where the processor's is invariant, else the monotonic clock.
    #[default]
    Auto,
    /// The time-stamp counter (on aarch64 the virtual counter).
    Tsc,
    /// The system's monotonic clock.
    Monotonic,
}

impl ClockChoice {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "auto" => Self::Auto,
            "tsc" => Self::Tsc,
            "monotonic" => Self::Monotonic,
            _ => return None,
        })
    }
}

fn read_system_clock(clock: libc::clockid_t) -> i64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is a valid timespec to write to; the clocks used here exist on every Linux.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

/// Returns the reference clock, nanoseconds: `CLOCK_MONOTONIC` as it is outside of time namespaces (time_namespaces(7)), so
/// that all processes of a host have the same.
#[inline]
pub(crate) fn reference_ns() -> i64 {
    let offset = NAMESPACE_OFFSET_NS.load(Ordering::Relaxed);
    let offset = if offset == UNKNOWN_OFFSET {
        note_namespace()
    } else {
        offset
    };
    read_system_clock(libc::CLOCK_MONOTONIC) - offset
}

const UNKNOWN_OFFSET: i64 = i64::MIN;
/// By how much `CLOCK_MONOTONIC` of this process's time namespace is ahead of the system's.
static NAMESPACE_OFFSET_NS: AtomicI64 = AtomicI64::new(UNKNOWN_OFFSET);

/// Reads the offset of the process's time namespace. Not for signal handlers: a recorder calls it before it starts.
#[cold]
fn note_namespace() -> i64 {
    let offsets = std::fs::read_to_string("/proc/self/timens_offsets").unwrap_or_default();
    let offset = namespace_offset_ns(&offsets, "monotonic").unwrap_or(0);
    NAMESPACE_OFFSET_NS.store(offset, Ordering::Relaxed);
    offset
}

/// Returns the wall clock, nanoseconds since the Unix epoch.
pub(crate) fn unix_ns() -> i64 {
    read_system_clock(libc::CLOCK_REALTIME)
}

/// Returns the processor's counter.
#[inline]
pub fn tsc() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 processor has rdtsc.
    unsafe {
        std::arch::x86_64::_rdtsc()
    }
    #[cfg(target_arch = "aarch64")]
    {
        let ticks: u64;
        // SAFETY: Linux lets programs read the virtual counter.
        unsafe { std::arch::asm!("mrs {}, cntvct_el0", out(reg) ticks, options(nomem, nostack)) };
        ticks
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    {
        reference_ns() as u64
    }
}

/// Returns whether the processor's counter runs at one rate in all power states and on all cores.
pub fn tsc_is_invariant() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::__cpuid;
        #[allow(unused_unsafe, reason = "later Rust knows that it is safe")]
        // SAFETY: every processor of this architecture has the instruction.
        let edx_and_eax = |leaf: u32| unsafe {
            let found = __cpuid(leaf);
            (found.edx, found.eax)
        };
        // Advanced power management information, EDX bit 8 (AMD APM vol. 3, Intel SDM vol. 3
        // §17.17.1).
        edx_and_eax(0x8000_0000).1 >= 0x8000_0007 && edx_and_eax(0x8000_0007).0 & 1 << 8 != 0
    }
    #[cfg(target_arch = "aarch64")]
    {
        true
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    {
        false
    }
}

/// How much the kernel may slew the reference clock, parts per 10⁹ (`adjtimex(2)`: a frequency
/// offset of at most 500 parts per million).
const REFERENCE_SLEW_PPB: u32 = 500_000;

/// Returns the nominal rate of the processor's counter and the bound of its error, parts per 10⁹;
/// measured once.
pub(crate) fn tsc_rate() -> (u64, u32) {
    static RATE: OnceLock<(u64, u32)> = OnceLock::new();
    *RATE.get_or_init(|| {
        let first = bracket(tsc, 1);
        let mut last = first;
        while last.reference_ns - first.reference_ns < 1_000_000 {
            last = bracket(tsc, 1);
        }
        let span_ns = (last.reference_ns - first.reference_ns) as u128;
        let ticks = u128::from(last.tick.wrapping_sub(first.tick));
        let rate = (ticks * 1_000_000_000 / span_ns).max(1) as u64;
        let error_ns = u128::from(first.error_ns + last.error_ns);
        let error_ppb = error_ns * 1_000_000_000 / span_ns + u128::from(REFERENCE_SLEW_PPB);
        (rate, error_ppb.min(1_000_000_000) as u32)
    })
}

/// A clock read between two readings of the reference clock.
#[derive(Clone, Copy, Debug)]
struct Bracket {
    tick: u64,
    reference_ns: i64,
    error_ns: u64,
}

impl Bracket {
    fn between(before: i64, tick: u64, after: i64) -> Self {
        Self {
            tick,
            reference_ns: before + (after - before) / 2,
            error_ns: (after - before) as u64 / 2 + 1,
        }
    }

    fn narrower(self, other: Self) -> Self {
        if other.error_ns < self.error_ns {
            other
        } else {
            self
        }
    }
}

/// How long [`bracket`] waits for a change of a clock that ticks more slowly than it is read,
/// nanoseconds.
const WAIT_FOR_TICK_NS: i64 = 50_000;

/// Returns how long a tick is by the clock's nominal rate, nanoseconds.
fn length_of_tick(clock: &Clock) -> u64 {
    1_000_000_000_u64.div_ceil(clock.ticks_per_second.max(1))
}

/// Returns a calibration point now of a clock that this reads.
pub(crate) fn calibrate_by(clock: &Clock, read: impl Fn() -> u64) -> CalibrationPoint {
    let best = bracket(read, length_of_tick(clock));
    CalibrationPoint {
        clock: clock.id,
        tick: best.tick,
        reference_ns: best.reference_ns,
        error_ns: best.error_ns,
        unix_offset_ns: unix_offset_ns(),
    }
}

/// Returns the narrowest of several brackets.
///
/// The bracket of a thread that was descheduled in between is wide, and another one is chosen. A
/// clock that shows one tick twice ticks more slowly than it is read (an emulated counter, a
/// millisecond clock): its tick is exact where it changes. When it does not change during the
/// readings, the bracket is wider by `tick_ns`, the nominal length of a tick.
fn bracket(read: impl Fn() -> u64, tick_ns: u64) -> Bracket {
    let one = || {
        let before = reference_ns();
        let tick = read();
        (before, tick, reference_ns())
    };
    let first = one();
    let mut last = first;
    let mut best = Bracket::between(first.0, first.1, first.2);
    let mut at_change: Option<Bracket> = None;
    let mut is_coarse = false;
    let mut readings = 1;
    while readings < 16 || is_coarse && at_change.is_none() && last.2 - first.2 < WAIT_FOR_TICK_NS {
        let next = one();
        best = best.narrower(Bracket::between(next.0, next.1, next.2));
        if next.1 == last.1 {
            is_coarse = true;
        } else {
            let change = Bracket::between(last.0, next.1, next.2);
            at_change = Some(at_change.map_or(change, |narrowest| narrowest.narrower(change)));
        }
        last = next;
        readings += 1;
    }
    match at_change {
        _ if !is_coarse => best,
        Some(change) => change,
        None => Bracket {
            error_ns: best.error_ns + tick_ns,
            ..best
        },
    }
}

/// Returns wall clock minus reference clock, nanoseconds, from the narrowest of several brackets.
fn unix_offset_ns() -> i64 {
    let best = bracket(|| unix_ns() as u64, 1);
    best.tick as i64 - best.reference_ns
}

/// Returns whether the calling thread is in a clock that belongs to the program.
/// The recorder's tables may be locked by this thread then: waiting for that lock would never end.
pub(crate) fn is_in_clock() -> bool {
    thread::is_in_clock()
}

/// Reads a clock that belongs to the program.
fn read_foreign(read: &(dyn Fn() -> u64 + Send + Sync)) -> u64 {
    /// Also when the clock panics.
    struct Restore(bool);
    impl Drop for Restore {
        fn drop(&mut self) {
            thread::set_in_clock(self.0);
        }
    }
    let _restore = Restore(thread::set_in_clock(true));
    read()
}

/// How a stream gets its ticks.
#[derive(Clone)]
pub(crate) enum TickSource {
    /// The processor's counter.
    Tsc,
    /// The reference clock.
    Reference,
    /// A function of the source's owner.
    Function(Arc<dyn Fn() -> u64 + Send + Sync>),
    /// Only the events themselves carry ticks.
    Unreadable(Arc<Tied>),
}

/// The information about a clock that the recorder cannot read: where its owner tied it to the
/// reference clock ([`crate::Recorder::calibrate`]).
#[derive(Debug, Default)]
pub(crate) struct Tied {
    is_tied: AtomicBool,
    /// The clock's tick at the reference clock's 0, by the nominal rate from the last point.
    origin: AtomicU64,
    ticks_per_second: AtomicU64,
    max_ticks: AtomicU64,
}

impl Tied {
    pub(crate) fn set(&self, clock: &Clock, point: &CalibrationPoint) {
        let since_zero = ticks_of(point.reference_ns, clock.ticks_per_second);
        let relaxed = Ordering::Relaxed;
        self.ticks_per_second.store(clock.ticks_per_second, relaxed);
        self.max_ticks.store(clock.max_ticks, relaxed);
        // Of 2⁶⁴: what is below 0 here is not when `now` has added to it.
        self.origin
            .store(point.tick.wrapping_sub(since_zero), relaxed);
        self.is_tied.store(true, Ordering::Release);
    }

    /// Estimates the tick now from the last calibration point and the nominal rate.
    /// Returns `None` if the clock was never calibrated.
    fn now(&self) -> Option<u64> {
        if !self.is_tied.load(Ordering::Acquire) {
            return None;
        }
        let relaxed = Ordering::Relaxed;
        let since_zero = ticks_of(reference_ns(), self.ticks_per_second.load(relaxed));
        let tick = self.origin.load(relaxed).wrapping_add(since_zero);
        Some(match self.max_ticks.load(relaxed) {
            u64::MAX => tick,
            max => tick % (max + 1),
        })
    }

    /// Estimates the tick now, but never before the tick of an event that was raised already.
    pub(crate) fn now_from(&self, last_tick: u64) -> u64 {
        match self.now() {
            None => last_tick,
            Some(now) => {
                let max = self.max_ticks.load(Ordering::Relaxed);
                let ahead = match max {
                    u64::MAX => now.wrapping_sub(last_tick),
                    _ if now >= last_tick => now - last_tick,
                    max => now + (max - last_tick) + 1,
                };
                if ahead <= max / 2 { now } else { last_tick }
            }
        }
    }
}

/// Converts nanoseconds to ticks, modulo 2⁶⁴.
fn ticks_of(ns: i64, ticks_per_second: u64) -> u64 {
    (i128::from(ns) * i128::from(ticks_per_second) / 1_000_000_000) as u64
}

impl fmt::Debug for TickSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tsc => "Tsc",
            Self::Reference => "Reference",
            Self::Function(_) => "Function",
            Self::Unreadable(_) => "Unreadable",
        })
    }
}

impl TickSource {
    /// Returns the clock that a choice means on this machine.
    pub(crate) fn choose(choice: ClockChoice) -> Self {
        match choice {
            ClockChoice::Tsc => Self::Tsc,
            ClockChoice::Auto if tsc_is_invariant() => Self::Tsc,
            ClockChoice::Auto | ClockChoice::Monotonic => Self::Reference,
        }
    }

    /// Returns the tick now, or 0 for a clock that cannot be read.
    #[inline]
    pub(crate) fn read(&self) -> u64 {
        match self {
            Self::Tsc => tsc(),
            Self::Reference => reference_ns() as u64,
            Self::Function(read) => read_foreign(&**read),
            Self::Unreadable(_) => 0,
        }
    }

    /// Returns the tick now, of the clock of a stream whose last event has the tick `last_tick`.
    /// For a clock that cannot be read, it is an estimate.
    pub(crate) fn read_from(&self, last_tick: u64) -> u64 {
        match self {
            Self::Unreadable(tied) => tied.now_from(last_tick),
            clock => clock.read(),
        }
    }

    /// Returns the tick now, or `None` for a clock that cannot be read or that panics.
    pub(crate) fn read_safely(&self) -> Option<u64> {
        let read = std::panic::AssertUnwindSafe(|| self.read());
        let is_readable = !matches!(self, Self::Unreadable(_));
        is_readable
            .then(|| std::panic::catch_unwind(read).ok())
            .flatten()
    }

    /// Takes a calibration point now.
    /// Returns `None` for a clock that cannot be read or that panics.
    pub(crate) fn calibrate(&self, clock: &Clock) -> Option<CalibrationPoint> {
        let tick_ns = length_of_tick(clock);
        let unix_offset_ns = unix_offset_ns();
        let best = match self {
            Self::Unreadable(_) => return None,
            Self::Reference => {
                let reference_ns = reference_ns();
                Bracket {
                    tick: reference_ns as u64,
                    reference_ns,
                    error_ns: 0,
                }
            }
            other => {
                let read = || bracket(|| other.read(), tick_ns);
                std::panic::catch_unwind(std::panic::AssertUnwindSafe(read)).ok()?
            }
        };
        Some(CalibrationPoint {
            clock: clock.id,
            tick: best.tick,
            reference_ns: best.reference_ns,
            error_ns: best.error_ns,
            unix_offset_ns,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use annals_format::{ClockId, ClockKind, ProcessId, StringId};

    fn clock(ticks_per_second: u64) -> Clock {
        Clock {
            id: ClockId::new(0),
            process: ProcessId::new(0),
            name: StringId::new(0),
            kind: ClockKind::Readable,
            ticks_per_second,
            rate_error_ppb: 0,
            max_ticks: u64::MAX,
        }
    }

    #[test]
    fn calibration_points_are_narrow_and_ascend() {
        let source = TickSource::choose(ClockChoice::Auto);
        let a = source.calibrate(&clock(1_000_000_000)).unwrap();
        let b = source.calibrate(&clock(1_000_000_000)).unwrap();
        assert!(b.tick >= a.tick && b.reference_ns > a.reference_ns);
        assert!(a.unix_offset_ns > 0);
    }

    /// Of many pairs, as one may lie about a machine that was stopped in its middle.
    #[test]
    fn the_measured_rate_predicts_the_counter() {
        if !tsc_is_invariant() {
            return;
        }
        let (rate, error_ppb) = tsc_rate();
        let predicts = || {
            let a = bracket(tsc, 1);
            std::thread::sleep(std::time::Duration::from_millis(2));
            let b = bracket(tsc, 1);
            let ns = u128::from(b.tick - a.tick) * 1_000_000_000 / u128::from(rate);
            let measured = (b.reference_ns - a.reference_ns) as i128;
            let bound = measured * i128::from(error_ppb) / 1_000_000_000
                + i128::from(a.error_ns + b.error_ns);
            let error = (ns as i128 - measured).abs();
            (error > bound + 2).then(|| format!("{error} ns > {bound} ns after {measured} ns"))
        };
        let wrong: Vec<String> = (0..21).filter_map(|_| predicts()).collect();
        assert!(wrong.len() <= 10, "{rate} ± {error_ppb} ppb: {wrong:#?}");
    }

    /// A clock that ticks each 20 µs is exact where it changes; one that ticks each second is exact
    /// to a second.
    #[test]
    fn a_slow_clock_is_read_where_it_ticks() {
        let ticks_each = |ns: i64| {
            let read = move || (reference_ns() / ns) as u64;
            let source = TickSource::Function(Arc::new(read));
            let point = source.calibrate(&clock(1_000_000_000 / ns as u64)).unwrap();
            let truth = point.tick as i64 * ns;
            let error = (point.reference_ns - truth).unsigned_abs();
            assert!(error <= point.error_ns, "{error} ns > {}", point.error_ns);
            point.error_ns
        };
        let narrowest = (0..100).map(|_| ticks_each(20_000)).min().unwrap();
        assert!(narrowest < 10_000, "{narrowest} ns");
        assert!(ticks_each(1_000_000_000) >= 1_000_000_000);
    }
}
