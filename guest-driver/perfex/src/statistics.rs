//! How equal runs differ.

use serde::Serialize;

/// The counts of one event over several runs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Spread {
    pub(crate) mean: f64,
    /// Standard deviation of the sample, with n - 1; 0 for one run.
    pub(crate) stddev: f64,
    pub(crate) min: u64,
    pub(crate) max: u64,
}

impl Spread {
    /// `None` for no values. Exact where the values are equal, however large.
    pub(crate) fn of(values: &[u64]) -> Option<Self> {
        let (min, max) = (*values.iter().min()?, *values.iter().max()?);
        // Differences from the smallest are small numbers, which f64 has all of.
        let above: Vec<f64> = values.iter().map(|&value| (value - min) as f64).collect();
        let n = values.len() as f64;
        let mean = above.iter().sum::<f64>() / n;
        let squares: f64 = above.iter().map(|value| (value - mean).powi(2)).sum();
        let stddev = if values.len() > 1 { (squares / (n - 1.0)).sqrt() } else { 0.0 };
        Some(Self { mean: min as f64 + mean, stddev, min, max })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_few_numbers() {
        let spread = Spread::of(&[2, 4, 4, 4, 5, 5, 7, 9]).unwrap();
        assert_eq!((spread.mean, spread.min, spread.max), (5.0, 2, 9));
        assert!((spread.stddev - (32.0f64 / 7.0).sqrt()).abs() < 1e-12);
    }

    #[test]
    fn equal_counts_have_none_whatever_their_size() {
        for value in [0, 12_000_216, u64::MAX] {
            let spread = Spread::of(&[value; 3]).unwrap();
            assert_eq!(
                (spread.stddev, spread.min, spread.max, spread.mean),
                (0.0, value, value, value as f64)
            );
        }
    }

    #[test]
    fn one_run_has_none_and_no_run_no_statistics() {
        assert_eq!(Spread::of(&[3]).unwrap(), Spread { mean: 3.0, stddev: 0.0, min: 3, max: 3 });
        assert_eq!(Spread::of(&[]), None);
    }
}
