//! Which region a leave ends: a runtime may rename a task while it runs, so that a leave names another region than its enter.

/// Regions that are kept of a location, at most: of a deeper stack, the innermost ones.
const MOST_OPEN: usize = 1 << 10;

/// The open regions of a location, by their numbers in the archive.
///
/// A leave ends the innermost open call of the region that it names. If there is none, it ends the innermost call, under
/// another name, unless enters may be missing: it may be of one of these then.
#[derive(Clone, Default, Debug)]
pub(crate) struct OpenRegions {
    /// From the outermost on.
    regions: Vec<u64>,
    /// How many of them were entered before events were lost.
    uncertain: usize,
    /// Whether there are, or were, more around them than are kept.
    is_cut: bool,
}

impl OpenRegions {
    #[inline]
    pub(crate) fn enter(&mut self, region: u64) {
        if self.regions.len() == 2 * MOST_OPEN {
            self.cut();
        }
        self.regions.push(region);
    }

    /// Leaves a region, and returns which region that ends: `region` itself if none is renamed.
    #[inline]
    pub(crate) fn leave(&mut self, region: u64) -> u64 {
        if let Some(open) = self.regions.pop_if(|open| *open == region) {
            self.uncertain = self.uncertain.min(self.regions.len());
            return open;
        }
        let length = self.regions.len();
        match self.regions.iter().rposition(|open| *open == region) {
            Some(at) => self.regions.truncate(at),
            None if length > self.uncertain && !self.is_cut => {
                return self.regions.pop().unwrap_or(region);
            }
            None => {}
        }
        self.uncertain = self.uncertain.min(self.regions.len());
        region
    }

    /// Takes note that enters or leaves may be missing here.
    pub(crate) const fn note_gap(&mut self) {
        self.uncertain = self.regions.len();
    }

    /// Returns what a part of the events starts with.
    pub(crate) fn at_start_of_part(&mut self) -> Self {
        self.cut();
        self.clone()
    }

    fn cut(&mut self) {
        let more = self.regions.len().saturating_sub(MOST_OPEN);
        if more != 0 {
            self.regions.drain(..more);
            self.uncertain = self.uncertain.saturating_sub(more);
            self.is_cut = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Enter(u64),
        Leave(u64),
        Gap,
    }

    /// Returns what each leave ends, from the whole history: the calls that are open are searched for anew at each step.
    fn ends(steps: &[Step]) -> Vec<u64> {
        let mut ends = Vec::new();
        // By enter: its step, its region, whether it has ended.
        let mut calls: Vec<(usize, u64, bool)> = Vec::new();
        let mut last_gap = None;
        for (at, step) in steps.iter().enumerate() {
            match *step {
                Step::Enter(region) => calls.push((at, region, false)),
                Step::Gap => last_gap = Some(at),
                Step::Leave(region) => {
                    let open: Vec<usize> =
                        (0..calls.len()).filter(|call| !calls[*call].2).collect();
                    let of_name = open.iter().rev().find(|call| calls[**call].1 == region);
                    let innermost = open.last().filter(|call| last_gap < Some(calls[**call].0));
                    ends.push(match (of_name, innermost) {
                        (Some(call), _) => {
                            calls[*call..].iter_mut().for_each(|call| call.2 = true);
                            region
                        }
                        (None, Some(call)) => {
                            calls[*call].2 = true;
                            calls[*call].1
                        }
                        (None, None) => region,
                    });
                }
            }
        }
        ends
    }

    proptest! {
        #[test]
        fn a_leave_ends_what_the_whole_history_says(
            steps in prop::collection::vec(
                prop_oneof![
                    4 => (0_u64..6).prop_map(Step::Enter),
                    4 => (0_u64..8).prop_map(Step::Leave),
                    1 => Just(Step::Gap),
                ],
                0..200,
            ),
            parts in prop::collection::vec(any::<bool>(), 200),
        ) {
            let mut open = OpenRegions::default();
            let mut found = Vec::new();
            for (step, is_part) in steps.iter().zip(parts) {
                if is_part {
                    open = open.at_start_of_part();
                }
                match *step {
                    Step::Enter(region) => open.enter(region),
                    Step::Leave(region) => found.push(open.leave(region)),
                    Step::Gap => open.note_gap(),
                }
            }
            prop_assert_eq!(found, ends(&steps));
        }
    }

    #[test]
    fn beyond_the_regions_that_are_kept_no_leave_is_taken_for_another_call() {
        let mut open = OpenRegions::default();
        for region in 0..10_000 {
            open.enter(region);
        }
        assert!(open.at_start_of_part().regions.len() <= MOST_OPEN);
        assert_eq!((open.leave(10_001), open.leave(9_999)), (10_001, 9_999));
        // Its enter is not kept.
        assert_eq!((open.leave(0), open.leave(9_998)), (0, 9_998));
    }
}
