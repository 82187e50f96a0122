//! Figures of many rounds, and what is said of them.

use serde::Serialize;

/// One figure of every round.
#[derive(Clone, Debug, Default)]
pub(crate) struct Series(Vec<f64>);

/// Minimum and median of a series, or of two series' difference or quotient.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub(crate) struct Figure {
    /// The least.
    pub(crate) min: f64,
    /// The one in the middle.
    pub(crate) median: f64,
}

impl Series {
    /// Adds a round's figure.
    pub(crate) fn push(&mut self, value: f64) {
        self.0.push(value);
    }

    /// Returns minimum and median. `None` means that there was no round.
    pub(crate) fn figure(&self) -> Option<Figure> {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        Some(Figure {
            min: *sorted.first()?,
            median: sorted[sorted.len() / 2],
        })
    }
}

impl FromIterator<f64> for Series {
    fn from_iter<I: IntoIterator<Item = f64>>(figures: I) -> Self {
        Self(figures.into_iter().collect())
    }
}

impl Figure {
    /// Minimum less minimum, median less median.
    pub(crate) fn less(self, other: Self) -> Self {
        Self {
            min: self.min - other.min,
            median: self.median - other.median,
        }
    }

    /// Divides minimum by minimum and median by median. `None` means that noise made a divisor 0 or
    /// less.
    pub(crate) fn by(self, other: Self) -> Option<Self> {
        (other.min > 0.0 && other.median > 0.0).then(|| Self {
            min: self.min / other.min,
            median: self.median / other.median,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_is_minimum_and_median() {
        let mut series = Series::default();
        assert_eq!(series.figure(), None);
        [5.0, 1.0, 3.0].into_iter().for_each(|n| series.push(n));
        let figure = series.figure().unwrap();
        assert_eq!((figure.min, figure.median), (1.0, 3.0));
        assert_eq!(figure.less(figure).by(figure).unwrap().median, 0.0);
        assert_eq!(figure.by(figure.less(figure)), None);
    }
}
