//! How far apart the times of two events may be from what they are, by what is known of their clocks.

use annals_format::{ClockKind, Definitions};

/// What is known of a clock.
#[derive(Clone, Debug)]
struct ClockBound {
    /// Clocks of one group tick as one.
    group: usize,
    boot_id: Option<[u8; 16]>,
    error_ns: u64,
}

/// Error bounds of all clocks of a trace.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bounds {
    /// By clock.
    clocks: Vec<ClockBound>,
}

impl Bounds {
    pub(crate) fn of(definitions: &Definitions) -> Self {
        let mut groups = Vec::new();
        let mut clocks = Vec::new();
        for (id, clock) in &definitions.clocks {
            let process = definitions.processes.get(&clock.process);
            let boot_id = process.map(|process| process.boot_id);
            // Its identity; clocks of a source's own have none but themselves.
            let own = match clock.kind {
                ClockKind::Reference | ClockKind::Tsc => None,
                ClockKind::Readable | ClockKind::Unreadable => Some(*id),
            };
            let identity = (boot_id, clock.kind, clock.ticks_per_second, own);
            let known = groups.iter().position(|known| *known == identity);
            let group = known.unwrap_or_else(|| {
                groups.push(identity);
                groups.len() - 1
            });
            let map = definitions.clock_maps.get(id);
            clocks.push(ClockBound {
                group,
                boot_id,
                error_ns: map.map_or(u64::MAX, |map| map.error_ns),
            });
        }
        Self { clocks }
    }

    /// Bound of the error of the difference of two times on two clocks, nanoseconds; none: there is none.
    pub(crate) fn between(&self, a: u32, b: u32) -> Option<u64> {
        let a = self.clocks.get(a as usize)?;
        let b = self.clocks.get(b as usize)?;
        if a.group == b.group {
            return Some(0);
        }
        let sum = a.error_ns.checked_add(b.error_ns)?;
        (a.boot_id == b.boot_id).then_some(sum)
    }
}
