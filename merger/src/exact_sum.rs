//! Sums of numbers that do not depend on the order of the additions.

/// A sum without rounding errors: integers are added as such, floating-point numbers as a list of numbers that do not overlap
/// (Shewchuk, *Adaptive Precision Floating-Point Arithmetic and Fast Robust Geometric Predicates*, 1997, section 2.4).
///
/// Only finite numbers may be added. An intermediate sum beyond the largest finite number makes the result infinite or
/// not a number.
#[derive(Clone, Default, Debug)]
pub struct ExactSum {
    integers: i128,
    /// By ascending magnitude; their bits do not overlap.
    partials: Vec<f64>,
}

impl ExactSum {
    /// Adds an integer.
    pub const fn add_integer(&mut self, value: i128) {
        self.integers = self.integers.saturating_add(value);
    }

    /// Adds a number.
    pub fn add(&mut self, value: f64) {
        let mut rest = value;
        let mut kept = 0;
        for at in 0..self.partials.len() {
            let (sum, error) = two_sum(rest, self.partials[at]);
            if error != 0.0 {
                self.partials[kept] = error;
                kept += 1;
            }
            rest = sum;
        }
        self.partials.truncate(kept);
        if rest != 0.0 {
            self.partials.push(rest);
        }
    }

    /// Adds another sum.
    pub fn merge(&mut self, other: &Self) {
        self.add_integer(other.integers);
        other.partials.iter().for_each(|partial| self.add(*partial));
    }

    /// Returns the sum, rounded to the nearest number that an `f64` can hold.
    pub fn value(&self) -> f64 {
        if self.partials.is_empty() {
            return self.integers as f64;
        }
        let mut all = Self {
            integers: 0,
            partials: self.partials.clone(),
        };
        // Three parts hold every bit of an i128.
        let mut rest = self.integers;
        for _ in 0..3 {
            let part = rest as f64;
            all.add(part);
            rest = rest.saturating_sub(part as i128);
        }
        all.rounded()
    }

    /// Adds the partials, the largest first, until one leaves a remainder; then rounds half to even.
    fn rounded(&self) -> f64 {
        let mut partials = self.partials.iter().rev().copied();
        let mut sum = partials.next().unwrap_or(0.0);
        while let Some(partial) = partials.next() {
            let (next, error) = two_sum(sum, partial);
            sum = next;
            if error != 0.0 {
                // Half way between two numbers, what is left decides.
                let is_same_side = partials
                    .next()
                    .is_some_and(|smaller| (smaller > 0.0) == (error > 0.0));
                let doubled = 2.0 * error;
                let moved = sum + doubled;
                if is_same_side && moved - sum == doubled {
                    sum = moved;
                }
                break;
            }
        }
        sum
    }
}

/// Returns a rounded sum of two numbers and its error (Knuth).
fn two_sum(a: f64, b: f64) -> (f64, f64) {
    let sum = a + b;
    let b_part = sum - a;
    let a_part = sum - b_part;
    (sum, (a - a_part) + (b - b_part))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::ExactSum;

    fn sum(values: &[f64]) -> f64 {
        let mut sum = ExactSum::default();
        values.iter().for_each(|value| sum.add(*value));
        sum.value()
    }

    #[test]
    fn nothing_is_rounded_before_the_end() {
        assert_eq!(sum(&[1e100, 1.0, -1e100]), 1.0);
        assert_eq!(sum(&[0.1; 10]), 1.0);
        // Half way between 2⁵³ and 2⁵³ + 2: the last one decides.
        assert_eq!(
            sum(&[9_007_199_254_740_992.0, 1.0, 1e-16]),
            9_007_199_254_740_994.0
        );
        let mut mixed = ExactSum::default();
        mixed.add_integer(i128::from(u64::MAX));
        mixed.add(-(2_f64.powi(64)));
        mixed.add(0.5);
        assert_eq!(mixed.value(), -0.5);
    }

    proptest! {
        #[test]
        fn a_sum_does_not_depend_on_order_or_grouping(
            values in prop::collection::vec((-1e12..1e12_f64, -40..40_i32), 0..40),
            cut in 0..40_usize,
        ) {
            let values: Vec<f64> = values.iter().map(|(value, power)| value * 2_f64.powi(*power)).collect();
            let all = sum(&values);
            let reversed: Vec<f64> = values.iter().rev().copied().collect();
            prop_assert_eq!(all, sum(&reversed));
            let (first, second) = values.split_at(cut.min(values.len()));
            let mut parts = [ExactSum::default(), ExactSum::default()];
            first.iter().for_each(|value| parts[0].add(*value));
            second.iter().for_each(|value| parts[1].add(*value));
            let [mut whole, second] = parts;
            whole.merge(&second);
            prop_assert_eq!(all, whole.value());
        }
    }
}
