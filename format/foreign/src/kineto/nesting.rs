//! Slices of one location in lanes, in each of which they are nested.

/// A slice that is open: its end, and what the caller needs when it ends.
type Open<T> = (i64, T);

/// The lanes of a location. Slices are added in the order of their starts, and of these the longest first.
pub(super) struct Lanes<T> {
    lanes: Vec<Vec<Open<T>>>,
    most: usize,
}

impl<T> Lanes<T> {
    /// Creates lanes, at most a number of them. A slice for which none is left is in no lane.
    pub(super) const fn new(most: usize) -> Self {
        Self {
            lanes: Vec::new(),
            most,
        }
    }

    /// Adds a slice to the first lane in which it is nested. Returns the number of that lane. Before, `ended` is called with what ended in
    /// any lane up to its start: the lane, the end, and what was added with it.
    pub(super) fn add(
        &mut self,
        start_ns: i64,
        end_ns: i64,
        value: T,
        mut ended: impl FnMut(usize, i64, T),
    ) -> Option<usize> {
        for (number, lane) in self.lanes.iter_mut().enumerate() {
            while let Some((end_ns, value)) = lane.pop_if(|(end_ns, _)| *end_ns <= start_ns) {
                ended(number, end_ns, value);
            }
            if lane
                .last()
                .is_none_or(|(around_ns, _)| end_ns <= *around_ns)
            {
                lane.push((end_ns, value));
                return Some(number);
            }
        }
        if self.lanes.len() >= self.most {
            return None;
        }
        self.lanes.push(vec![(end_ns, value)]);
        Some(self.lanes.len() - 1)
    }

    /// Returns what is open in a lane, the innermost last.
    pub(super) fn open(&self, lane: usize) -> &[Open<T>] {
        self.lanes.get(lane).map_or(&[], Vec::as_slice)
    }

    /// Changes the value of the innermost open slice of a lane.
    pub(super) fn set_innermost(&mut self, lane: usize, value: T) {
        if let Some(open) = self.lanes.get_mut(lane).and_then(|lane| lane.last_mut()) {
            open.1 = value;
        }
    }

    /// Ends the slices that end up to a time, as [`Lanes::add`] does.
    pub(super) fn leave_until(&mut self, time_ns: i64, mut ended: impl FnMut(usize, i64, T)) {
        for (number, lane) in self.lanes.iter_mut().enumerate() {
            while let Some((end_ns, value)) = lane.pop_if(|(end_ns, _)| *end_ns <= time_ns) {
                ended(number, end_ns, value);
            }
        }
    }

    /// Ends all slices.
    pub(super) fn finish(self, mut ended: impl FnMut(usize, i64, T)) {
        for (number, lane) in self.lanes.into_iter().enumerate() {
            let each = lane.into_iter().rev();
            each.for_each(|(end_ns, value)| ended(number, end_ns, value));
        }
    }
}
