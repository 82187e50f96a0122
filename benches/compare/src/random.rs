//! The seeded generator that every contestant's program uses: the same seed, the same program.

/// A xorshift generator (Marsaglia, "Xorshift RNGs", 2003): cheap, and not predictable for the
/// processor's branch predictor.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// Creates a generator; equal seeds result in equal numbers.
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed ^ 0x9e37_79b9_7f4a_7c15 | 1)
    }

    /// Returns the next number.
    #[inline]
    pub(crate) const fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}
