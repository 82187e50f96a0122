//! Efficiencies of parallel programs: which share of the run is useful work, and what takes the rest.
//!
//! The factors of the *multiplicative* model are those of the POP project (co-design.pop-coe.eu/metrics) and of BSC's program
//! `modelfactors`; those of the *additive* model are of NAG's `pypop`. A factor is 1 where nothing is lost. With U the useful
//! times of the ranks, T the time of the run, and Tᵢ its time on a network that needs no time:
//!
//! | factor | multiplicative | additive |
//! |---|---|---|
//! | load balance | mean U / max U | 1 − (max U − mean U) / T |
//! | communication | max U / T | max U / T |
//! | – serialisation | max U / Tᵢ | 1 − (Tᵢ − max U) / T |
//! | – transfer | Tᵢ / T | Tᵢ / T |
//! | parallel efficiency | mean U / T | mean U / T |
//!
//! Where nothing communicates, there is no communication, and neither of its parts.

use serde::{Serialize, Serializer};

/// How the factors of an efficiency are combined.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EfficiencyModel {
    /// Parallel efficiency = load balance × communication, communication = serialisation × transfer.
    Multiplicative,
    /// 1 − parallel efficiency = (1 − load balance) + (1 − communication), and likewise of communication.
    Additive,
}

impl EfficiencyModel {
    /// Returns its name in JSON and in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Multiplicative => "multiplicative",
            Self::Additive => "additive",
        }
    }
}

impl Serialize for EfficiencyModel {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// Useful times of ranks, and times of their run, nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RunTimes {
    /// Number of ranks.
    pub ranks: u64,
    /// Sum of the ranks' useful times.
    pub useful_sum_ns: i128,
    /// Largest useful time of a rank.
    pub useful_max_ns: i64,
    /// Time of the run.
    pub run_ns: i64,
    /// Time of the run on a network that needs no time. `None` if it is not known, or if nothing communicates.
    pub ideal_run_ns: Option<i64>,
}

impl RunTimes {
    /// Computes the times of a run from the ranks' useful times. `None` without ranks, or if the run has no time.
    pub fn of(useful_ns: &[i64], run_ns: i64, ideal_run_ns: Option<i64>) -> Option<Self> {
        let useful_max_ns = useful_ns.iter().copied().max()?;
        (run_ns > 0).then(|| Self {
            ranks: useful_ns.len() as u64,
            useful_sum_ns: useful_ns.iter().map(|useful| i128::from(*useful)).sum(),
            useful_max_ns,
            run_ns,
            ideal_run_ns,
        })
    }

    /// Returns the mean useful time of a rank, nanoseconds.
    pub fn useful_mean_ns(&self) -> f64 {
        self.useful_sum_ns as f64 / self.ranks as f64
    }

    /// Returns by how much less work this run needed than a reference: Σ U of the reference / Σ U. In *weak* scaling the
    /// work grows with the ranks, and the reference counts once for each of its ranks. `None` if this run has no useful time.
    pub fn computation_scaling(&self, reference: &Self, is_weak: bool) -> Option<f64> {
        let ratio = if is_weak {
            self.ranks as f64 / reference.ranks as f64
        } else {
            1.0
        };
        let useful = self.useful_sum_ns as f64;
        (useful > 0.0).then(|| ratio * reference.useful_sum_ns as f64 / useful)
    }
}

/// The factors of a run.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Efficiencies {
    /// How the factors are combined.
    pub model: EfficiencyModel,
    /// How evenly the useful work is distributed. `None` if there is none.
    pub load_balance: Option<f64>,
    /// What is left after waiting and transfer. `None` if nothing communicates.
    pub communication: Option<f64>,
    /// What is left after waiting for other ranks. `None` if the ideal time is not known.
    pub serialisation: Option<f64>,
    /// What is left after the transfer of data. `None` if the ideal time is not known.
    pub transfer: Option<f64>,
    /// Mean share of useful time in the run.
    pub parallel: f64,
}

crate::columns! {
    Efficiencies;
    "model" Text headed "model", |row| row.model.name();
    "parallel" Share headed "parallel eff.", |row| row.parallel;
    "load_balance" Share headed "load balance", |row| row.load_balance;
    "communication" Share headed "communication", |row| row.communication;
    "serialisation" Share headed "serialisation", |row| row.serialisation;
    "transfer" Share headed "transfer", |row| row.transfer;
}

impl Efficiencies {
    /// Computes the factors of a run.
    pub fn of(times: &RunTimes, model: EfficiencyModel) -> Self {
        let (mean, max) = (times.useful_mean_ns(), times.useful_max_ns as f64);
        let run = times.run_ns as f64;
        let ideal = times.ideal_run_ns.map(|ideal| ideal as f64);
        let (load_balance, serialisation) = match model {
            EfficiencyModel::Multiplicative => (
                (max > 0.0).then(|| mean / max),
                ideal.filter(|ideal| *ideal > 0.0).map(|ideal| max / ideal),
            ),
            EfficiencyModel::Additive => (
                Some(1.0 - (max - mean) / run),
                ideal.map(|ideal| 1.0 - (ideal - max) / run),
            ),
        };
        Self {
            model,
            load_balance,
            communication: ideal.map(|_| max / run),
            serialisation,
            transfer: ideal.map(|ideal| ideal / run),
            parallel: mean / run,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn is_near(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-9
    }

    #[test]
    fn factors_of_four_ranks() {
        let times = RunTimes::of(&[80, 60, 40, 60], 100, Some(90)).expect("times");
        let found = Efficiencies::of(&times, EfficiencyModel::Multiplicative);
        assert_eq!(found.load_balance, Some(0.75));
        assert!(is_near(found.communication.expect("ideal"), 0.8));
        assert!(is_near(found.serialisation.expect("ideal"), 80.0 / 90.0));
        assert!(is_near(found.transfer.expect("ideal"), 0.9));
        assert!(is_near(found.parallel, 0.6));
        let found = Efficiencies::of(&times, EfficiencyModel::Additive);
        assert!(is_near(found.load_balance.expect("useful time"), 0.8));
        assert!(is_near(found.serialisation.expect("ideal"), 0.9));
        assert!(is_near(found.parallel, 0.6));
    }

    #[test]
    fn without_ranks_time_or_work_there_are_no_factors() {
        assert_eq!(RunTimes::of(&[], 100, None), None);
        assert_eq!(RunTimes::of(&[1], 0, None), None);
        let times = RunTimes::of(&[0, 0], 100, None).expect("times");
        let found = Efficiencies::of(&times, EfficiencyModel::Multiplicative);
        assert_eq!((found.load_balance, found.serialisation), (None, None));
        assert_eq!(found.communication, None);
        assert!(is_near(found.parallel, 0.0));
        assert_eq!(times.computation_scaling(&times, false), None);
    }

    #[test]
    fn scaling_compares_the_useful_times() {
        let one = RunTimes::of(&[100], 100, None).expect("times");
        let two = RunTimes::of(&[60, 65], 70, None).expect("times");
        let strong = two.computation_scaling(&one, false).expect("useful time");
        assert!(is_near(strong, 0.8));
        let weak = two.computation_scaling(&one, true).expect("useful time");
        assert!(is_near(weak, 1.6));
    }

    proptest! {
        #[test]
        fn factors_combine_to_the_parallel_efficiency(
            useful in prop::collection::vec(0..1000_i64, 1..9), more in 1..1000_i64, share in 0.0..1.0_f64,
        ) {
            let most = useful.iter().copied().max().unwrap_or(0);
            let ideal = most + (more as f64 * share) as i64;
            let times = RunTimes::of(&useful, most + more, Some(ideal)).expect("times");
            let found = Efficiencies::of(&times, EfficiencyModel::Multiplicative);
            if let (Some(balance), Some(communication), Some(serialisation), Some(transfer)) =
                (found.load_balance, found.communication, found.serialisation, found.transfer)
            {
                prop_assert!(is_near(found.parallel, balance * communication));
                prop_assert!(is_near(communication, serialisation * transfer));
            }
            let found = Efficiencies::of(&times, EfficiencyModel::Additive);
            let lost = |factor: Option<f64>| 1.0 - factor.expect("known");
            let communication = lost(found.communication);
            prop_assert!(is_near(1.0 - found.parallel, lost(found.load_balance) + communication));
            prop_assert!(is_near(communication, lost(found.serialisation) + lost(found.transfer)));
        }
    }
}
