//! Orphans: events of MPI of whose calls neither the enter nor the leave is known. Between the enters and leaves around them,
//! the call is hidden.

/// Number of intervals that are kept of a location.
const MOST_HIDDEN: usize = 1 << 20;

/// The intervals of a location in which calls are hidden.
#[derive(Clone, Debug, Default)]
pub(super) struct Orphans {
    /// First and last enter or leave.
    turns_ns: Option<(i64, i64)>,
    /// Whether there was an orphan since then.
    has_orphan: bool,
    /// From the enter or leave before, if it is known, to that after.
    hidden: Vec<(Option<i64>, i64)>,
}

impl Orphans {
    /// Takes note of an event of MPI outside of its calls, or of a leave without an enter.
    pub(super) const fn orphan(&mut self) {
        self.has_orphan = true;
    }

    /// Takes note of an enter or a leave.
    pub(super) fn turn(&mut self, at_ns: i64) {
        if std::mem::take(&mut self.has_orphan) {
            self.hide(self.turns_ns.map(|turns| turns.1), at_ns);
        }
        let (first_ns, _) = self.turns_ns.unwrap_or((at_ns, at_ns));
        self.turns_ns = Some((first_ns, at_ns));
    }

    /// Takes note of an interval in which a call is hidden.
    pub(super) fn hide(&mut self, from_ns: Option<i64>, to_ns: i64) {
        if self.hidden.len() < MOST_HIDDEN {
            self.hidden.push((from_ns, to_ns));
        }
    }

    /// Adds those of the slice that follows.
    pub(super) fn merge(&mut self, later: &Self) {
        let last_ns = self.turns_ns.map(|turns| turns.1);
        if let Some((first_ns, _)) = later.turns_ns
            && std::mem::take(&mut self.has_orphan)
        {
            self.hide(last_ns, first_ns);
        }
        for (from_ns, to_ns) in &later.hidden {
            self.hide(from_ns.or(last_ns), *to_ns);
        }
        self.has_orphan |= later.has_orphan;
        self.turns_ns = match (self.turns_ns, later.turns_ns) {
            (Some((first_ns, _)), Some((_, last_ns))) => Some((first_ns, last_ns)),
            (known, other) => known.or(other),
        };
    }

    /// Returns the intervals, in trace time. The trace has no end without an enter or leave after an orphan.
    pub(super) fn intervals(&self) -> Vec<(i64, i64)> {
        let known = self.hidden.iter().copied();
        let last = self.has_orphan.then(|| {
            let last_ns = self.turns_ns.map(|turns| turns.1);
            (last_ns, i64::MAX)
        });
        let all = known.chain(last);
        all.map(|(from_ns, to_ns)| (from_ns.unwrap_or(i64::MIN), to_ns))
            .collect()
    }
}
