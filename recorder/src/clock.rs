//! Clocks: reading them, and reading them together with the reference clock.
#![expect(
    unsafe_code,
    reason = "clock_gettime and the processor's counters are foreign functions"
)]

use std::fmt;
use std::sync::Arc;
use std::sync::OnceLock;

use annals_format::{CalibrationPoint, ClockId};

use crate::options::ClockChoice;

fn read_system_clock(clock: libc::clockid_t) -> i64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is a valid timespec to write to; the clocks used here exist on every Linux.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

/// The reference clock, nanoseconds: `CLOCK_MONOTONIC`.
#[inline]
pub(crate) fn reference_ns() -> i64 {
    read_system_clock(libc::CLOCK_MONOTONIC)
}

/// The wall clock, nanoseconds since the Unix epoch.
pub(crate) fn unix_ns() -> i64 {
    read_system_clock(libc::CLOCK_REALTIME)
}

/// The processor's counter.
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

/// Whether the processor's counter runs at one rate in all power states and on all cores.
pub fn tsc_is_invariant() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::__cpuid;
        // Advanced power management information, EDX bit 8 (AMD APM vol. 3, Intel SDM vol. 3 §17.17.1).
        __cpuid(0x8000_0000).eax >= 0x8000_0007 && __cpuid(0x8000_0007).edx & 1 << 8 != 0
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

/// Nominal rate of the processor's counter and the bound of its error, parts per 10⁹; measured once.
pub(crate) fn tsc_rate() -> (u64, u32) {
    static RATE: OnceLock<(u64, u32)> = OnceLock::new();
    *RATE.get_or_init(|| {
        let first = bracket(tsc);
        let mut last = first;
        while last.reference_ns - first.reference_ns < 1_000_000 {
            last = bracket(tsc);
        }
        let span_ns = (last.reference_ns - first.reference_ns) as u128;
        let ticks = u128::from(last.tick.wrapping_sub(first.tick));
        let rate = (ticks * 1_000_000_000 / span_ns).max(1) as u64;
        let error_ns = u128::from(first.error_ns + last.error_ns);
        let error_ppb = (error_ns * 1_000_000_000 / span_ns).clamp(1, 1_000_000_000) as u32;
        (rate, error_ppb)
    })
}

/// A clock read between two readings of the reference clock.
#[derive(Clone, Copy, Debug)]
struct Bracket {
    tick: u64,
    reference_ns: i64,
    error_ns: u64,
}

/// The narrowest of several brackets: a descheduled one is wide and loses.
fn bracket(read: impl Fn() -> u64) -> Bracket {
    let one = || {
        let before = reference_ns();
        let tick = read();
        let after = reference_ns();
        let width = (after - before) as u64;
        Bracket {
            tick,
            reference_ns: before + (after - before) / 2,
            error_ns: width / 2 + 1,
        }
    };
    let first = one();
    (0..15).map(|_| one()).fold(first, |best, next| {
        if next.error_ns < best.error_ns {
            next
        } else {
            best
        }
    })
}

/// Wall clock minus reference clock, nanoseconds, from the narrowest of several brackets.
fn unix_offset_ns() -> i64 {
    let best = bracket(|| unix_ns() as u64);
    best.tick as i64 - best.reference_ns
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
    Unreadable,
}

impl fmt::Debug for TickSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tsc => "Tsc",
            Self::Reference => "Reference",
            Self::Function(_) => "Function",
            Self::Unreadable => "Unreadable",
        })
    }
}

impl TickSource {
    /// What a choice means on this machine.
    pub(crate) fn choose(choice: ClockChoice) -> Self {
        match choice {
            ClockChoice::Tsc => Self::Tsc,
            ClockChoice::Auto if tsc_is_invariant() => Self::Tsc,
            ClockChoice::Auto | ClockChoice::Monotonic => Self::Reference,
        }
    }

    /// The tick now; 0 for a clock that cannot be read.
    #[inline]
    pub(crate) fn read(&self) -> u64 {
        match self {
            Self::Tsc => tsc(),
            Self::Reference => reference_ns() as u64,
            Self::Function(read) => read(),
            Self::Unreadable => 0,
        }
    }

    /// The tick now; none for a clock that cannot be read, or panics.
    pub(crate) fn read_safely(&self) -> Option<u64> {
        let read = std::panic::AssertUnwindSafe(|| self.read());
        let is_readable = !matches!(self, Self::Unreadable);
        is_readable
            .then(|| std::panic::catch_unwind(read).ok())
            .flatten()
    }

    /// A calibration point now; none for a clock that cannot be read, or panics.
    pub(crate) fn calibrate(&self, clock: ClockId) -> Option<CalibrationPoint> {
        let unix_offset_ns = unix_offset_ns();
        let best = match self {
            Self::Unreadable => return None,
            Self::Reference => {
                let reference_ns = reference_ns();
                Bracket {
                    tick: reference_ns as u64,
                    reference_ns,
                    error_ns: 0,
                }
            }
            other => {
                let read = || bracket(|| other.read());
                std::panic::catch_unwind(std::panic::AssertUnwindSafe(read)).ok()?
            }
        };
        Some(CalibrationPoint {
            clock,
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

    #[test]
    fn calibration_points_are_narrow_and_ascend() {
        let source = TickSource::choose(ClockChoice::Auto);
        let a = source.calibrate(ClockId::new(0)).unwrap();
        let b = source.calibrate(ClockId::new(0)).unwrap();
        assert!(b.tick > a.tick && b.reference_ns > a.reference_ns);
        assert!(a.unix_offset_ns > 0);
    }

    #[test]
    fn the_measured_rate_predicts_the_counter() {
        if !tsc_is_invariant() {
            return;
        }
        let (rate, error_ppb) = tsc_rate();
        let a = bracket(tsc);
        std::thread::sleep(std::time::Duration::from_millis(20));
        let b = bracket(tsc);
        let ns = u128::from(b.tick - a.tick) * 1_000_000_000 / u128::from(rate);
        let measured = (b.reference_ns - a.reference_ns) as i128;
        let bound = measured * i128::from(error_ppb) / 1_000_000_000
            + i128::from(a.error_ns + b.error_ns)
            + measured / 10_000;
        assert!((ns as i128 - measured).abs() <= bound + 2);
    }
}
