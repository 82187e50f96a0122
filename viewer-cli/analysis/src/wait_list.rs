//! The single waits of a window, for the picture: the longest ones.

use std::cmp::Reverse;

use annals_merger::{Query, Reader, Result};

use crate::wait_states::{Delay, WaitObserver, WaitState, wait_states};

/// Keeps the longest waits.
struct LongestWaits {
    most: usize,
    kept: Vec<WaitState>,
}

impl LongestWaits {
    fn cut(&mut self) {
        self.kept
            .sort_by_key(|wait| (Reverse(wait.wait_ns), wait.from_ns, wait.location));
        self.kept.truncate(self.most);
    }
}

impl WaitObserver for LongestWaits {
    fn wait(&mut self, wait: &WaitState) {
        if wait.wait_ns > 0 {
            self.kept.push(*wait);
        }
        if self.kept.len() >= 2 * self.most {
            self.cut();
        }
    }

    fn wrong_order(&mut self, _: &WaitState, _: i64) {}

    fn avoidable(&mut self, _: &WaitState, _: i64) {}

    fn delay(&mut self, _: &Delay<'_>) {}
}

/// Returns the longest waits of a query, at most `most`. Locations in them are numbered as the definitions order them.
///
/// # Errors
/// If the storage fails.
pub fn longest_wait_states(reader: &Reader, query: &Query, most: usize) -> Result<Vec<WaitState>> {
    let longest = || {
        let kept = Vec::new();
        Ok(LongestWaits { most, kept })
    };
    let found = wait_states(reader, query, &[], longest)?;
    let Some((mut longest, _)) = found else {
        return Ok(Vec::new());
    };
    longest.cut();
    Ok(longest.kept)
}
