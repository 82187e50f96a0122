//! A loser tree: the smallest of many heads in log₂(n) comparisons, without moving them.

/// The key of an exhausted stream: behind every other.
pub(crate) const AT_END: (i64, u32) = (i64::MAX, u32::MAX);

/// Keys are (time, index of the stream): unique, so that the order is total.
#[derive(Debug)]
pub(crate) struct LoserTree {
    keys: Vec<(i64, u32)>,
    /// Leaf that lost at each inner node; `losers[0]` is the winner.
    losers: Vec<u32>,
    leaves: usize,
}

impl LoserTree {
    pub(crate) fn new(heads: impl IntoIterator<Item = (i64, u32)>) -> Self {
        let mut keys: Vec<(i64, u32)> = heads.into_iter().collect();
        let leaves = keys.len().next_power_of_two().max(2);
        keys.resize(leaves, AT_END);
        let mut tree = Self {
            keys,
            losers: vec![0; leaves],
            leaves,
        };
        let winner = tree.build(1);
        tree.losers[0] = winner;
        tree
    }

    fn build(&mut self, node: usize) -> u32 {
        if node >= self.leaves {
            return (node - self.leaves) as u32;
        }
        let left = self.build(2 * node);
        let right = self.build(2 * node + 1);
        let (winner, loser) = if self.keys[left as usize] <= self.keys[right as usize] {
            (left, right)
        } else {
            (right, left)
        };
        self.losers[node] = loser;
        winner
    }

    /// Leaf of the smallest key; none when all are at their end.
    pub(crate) fn winner(&self) -> Option<usize> {
        let winner = self.losers[0] as usize;
        (self.keys[winner] != AT_END).then_some(winner)
    }

    /// The smallest key of the others: until there the winner may go on.
    pub(crate) fn runner_up(&self) -> (i64, u32) {
        let mut node = (self.losers[0] as usize + self.leaves) / 2;
        let mut best = AT_END;
        while node > 0 {
            best = best.min(self.keys[self.losers[node] as usize]);
            node /= 2;
        }
        best
    }

    /// Gives the winner a new key.
    pub(crate) fn replace_winner(&mut self, key: (i64, u32)) {
        let mut winner = self.losers[0];
        self.keys[winner as usize] = key;
        let mut node = (winner as usize + self.leaves) / 2;
        while node > 0 {
            let loser = self.losers[node];
            if self.keys[loser as usize] < self.keys[winner as usize] {
                self.losers[node] = winner;
                winner = loser;
            }
            node /= 2;
        }
        self.losers[0] = winner;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn gives_all_keys_in_order(
            mut streams in prop::collection::vec(prop::collection::vec(0..50_i64, 0..20), 0..9)
        ) {
            let mut expected = Vec::new();
            for (index, stream) in streams.iter_mut().enumerate() {
                stream.sort_unstable();
                expected.extend(stream.iter().map(|time| (*time, index as u32)));
            }
            expected.sort_unstable();
            let key = |index: usize, at: usize| {
                streams[index].get(at).map_or(AT_END, |time| (*time, index as u32))
            };
            let mut at = vec![0; streams.len()];
            let mut tree = LoserTree::new((0..streams.len()).map(|index| key(index, 0)));
            let mut found = Vec::new();
            while let Some(winner) = tree.winner() {
                found.push(key(winner, at[winner]));
                let runner_up = tree.runner_up();
                at[winner] += 1;
                tree.replace_winner(key(winner, at[winner]));
                if let Some(next) = tree.winner() {
                    prop_assert!(next == winner || key(next, at[next]) == runner_up);
                }
            }
            prop_assert_eq!(found, expected);
        }
    }
}
