//! Call paths by number.

use annals_format::{CallPathId, Definitions, RegionId};
use rustc_hash::FxHashMap;

/// The last part of a call path.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Last {
    Region(RegionId),
    /// A sample's path, which may have the regions around it, too.
    Sampled(CallPathId),
}

/// Call paths of a trace, or of a slice of it, each with a number.
#[derive(Clone, Debug)]
pub struct CallPaths {
    /// By number: the path around it and what it ends with. The first is outside of all regions.
    nodes: Vec<(u32, Last)>,
    numbers: FxHashMap<(u32, Last), u32>,
}

impl Default for CallPaths {
    fn default() -> Self {
        Self {
            nodes: vec![(Self::OUTSIDE, Last::Region(RegionId::new(u32::MAX)))],
            numbers: FxHashMap::default(),
        }
    }
}

impl CallPaths {
    /// The path outside of all regions.
    pub const OUTSIDE: u32 = 0;
    /// Paths beyond this number are those of their callers.
    const LIMIT: usize = 1 << 20;

    /// Returns the path of a region called from a path.
    pub fn child(&mut self, around: u32, region: RegionId) -> u32 {
        self.number(around, Last::Region(region))
    }

    /// Returns the path of a sample that was taken in a path.
    pub fn sampled(&mut self, around: u32, sample: CallPathId) -> u32 {
        self.number(around, Last::Sampled(sample))
    }

    fn number(&mut self, around: u32, last: Last) -> u32 {
        let next = self.nodes.len();
        if let Some(number) = self.numbers.get(&(around, last)) {
            return *number;
        }
        if next >= Self::LIMIT {
            return around;
        }
        self.nodes.push((around, last));
        self.numbers.insert((around, last), next as u32);
        next as u32
    }

    /// Adds the paths of a later slice. Returns their numbers among these, by their numbers in the slice.
    pub fn add(&mut self, later: &Self) -> Vec<u32> {
        let mut numbers = vec![Self::OUTSIDE; later.nodes.len()];
        // A path has a larger number than the path around it.
        for (number, (around, last)) in later.nodes.iter().enumerate().skip(1) {
            numbers[number] = self.number(numbers[*around as usize], *last);
        }
        numbers
    }

    /// Returns the innermost region of a path. `None` outside of all regions, and for the path of a sample.
    pub fn region(&self, path: u32) -> Option<RegionId> {
        let node = self.nodes.get(path as usize);
        match node.filter(|_| path != Self::OUTSIDE)?.1 {
            Last::Region(region) => Some(region),
            Last::Sampled(_) => None,
        }
    }

    /// Returns the path in which a sample was taken, and the sample's. `None` for other paths.
    pub fn sample(&self, path: u32) -> Option<(u32, CallPathId)> {
        match self.nodes.get(path as usize)? {
            (around, Last::Sampled(sample)) => Some((*around, *sample)),
            _ => None,
        }
    }

    /// Returns the numbers of all paths of samples.
    pub fn samples(&self) -> impl Iterator<Item = u32> {
        (0..self.nodes.len() as u32).filter(|path| self.sample(*path).is_some())
    }

    /// Returns the regions of a path, from the outermost on.
    pub fn regions(&self, path: u32) -> Vec<RegionId> {
        let mut regions = Vec::new();
        let mut path = path;
        while let Some(region) = self.region(path) {
            regions.push(region);
            path = self.nodes[path as usize].0;
        }
        regions.reverse();
        regions
    }

    /// Returns how many of a path's regions, the innermost ones, distinguish it from other paths that end with the same region; at
    /// most `most`.
    pub fn distinct(&self, path: u32, most: usize) -> usize {
        let Some(region) = self.region(path) else {
            return 0;
        };
        let mut distinct = 1;
        let others = (1..self.nodes.len() as u32).filter(|other| *other != path);
        for other in others.filter(|other| self.region(*other) == Some(region)) {
            let (mut one, mut other, mut common) = (path, other, 0);
            while common < most && one != Self::OUTSIDE && self.region(one) == self.region(other) {
                (one, other) = (self.nodes[one as usize].0, self.nodes[other as usize].0);
                common += 1;
            }
            let has_more = usize::from(one != Self::OUTSIDE);
            distinct = distinct.max((common + has_more).min(most));
        }
        distinct
    }

    /// Returns the names of a path's regions, from the outermost on.
    pub fn names(&self, path: u32, definitions: &Definitions) -> Vec<String> {
        let regions = self.regions(path).into_iter();
        regions
            .map(|region| definitions.region_name(region))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_slices_become_paths_of_the_trace() {
        let [main, solve, send] = [0, 1, 2].map(RegionId::new);
        let mut all = CallPaths::default();
        let in_main = all.child(CallPaths::OUTSIDE, main);
        let in_solve = all.child(in_main, solve);
        let mut later = CallPaths::default();
        let sends = later.child(CallPaths::OUTSIDE, send);
        let later_main = later.child(CallPaths::OUTSIDE, main);
        let later_solve = later.child(later_main, solve);
        let numbers = all.add(&later);
        assert_eq!(numbers[later_solve as usize], in_solve);
        assert_eq!(all.regions(numbers[sends as usize]), [send]);
        assert_eq!(all.regions(in_solve), [main, solve]);
        assert_eq!(all.region(CallPaths::OUTSIDE), None);
    }
}
