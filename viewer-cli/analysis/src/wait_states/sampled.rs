//! Work by what samples show, and up to events of locks.

use annals_format::CallPathId;
use annals_merger::Frame;

use super::{CallPaths, SliceLocation, SliceState, WaitObserver};

impl SliceLocation {
    /// Adds work in a call path since the last step.
    pub(super) fn add_work(&mut self, path: u32, work_ns: i64) {
        match self.work.iter_mut().rev().find(|work| work.0 == path) {
            Some(work) => work.1 += work_ns,
            None => self.work.push((path, work_ns)),
        }
    }
}

impl<V: WaitObserver> SliceState<'_, V> {
    /// Takes note of a sample: what the thread has done since the one before was in its path.
    pub(super) fn sample(
        &mut self,
        location: usize,
        frames: &[Frame],
        sample: CallPathId,
        at: (i64, i64),
    ) {
        let (time_ns, ran_ns) = at;
        let of = &mut self.locations[location];
        let since_ns = of.last_ns.map_or(ran_ns, |last_ns| time_ns - last_ns);
        of.last_ns = Some(time_ns);
        let work_ns = ran_ns.min(since_ns);
        if of.open.is_some() || work_ns <= 0 {
            return;
        }
        let around = frames.last().map_or(CallPaths::OUTSIDE, |frame| frame.tag);
        let path = self.paths.sampled(around, sample);
        of.sampled_ns += work_ns;
        of.add_work(path, work_ns);
    }

    /// Takes note of the work of a thread up to now in the call that it is in: another thread may wait for it to get that far.
    pub(super) fn work_to(&mut self, location: usize, frames: &[Frame], time_ns: i64) {
        let Some(frame) = frames.last() else { return };
        let is_blocked = self.shared.blocks(frame.region);
        let of = &mut self.locations[location];
        let Some(last_ns) = of.last_ns.filter(|_| of.open.is_none() && !is_blocked) else {
            return;
        };
        of.last_ns = Some(time_ns);
        of.sampled_ns += time_ns - last_ns;
        of.add_work(frame.tag, time_ns - last_ns);
    }
}
