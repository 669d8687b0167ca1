//! Whether one sample is slower than another, or the difference is chance.

/// The probability that samples from one and the same distribution differ at least as much in this direction: the
/// one-sided test of Mann and Whitney ("On a Test of Whether one of Two Random Variables is Stochastically Larger than the
/// Other", Annals of Mathematical Statistics 18(1), 1947), by its normal approximation with ties and continuity corrected, good for
/// eight values and more on each side. It asks only for ranks, so that a single disturbed round weighs no more than a rank.
pub(super) fn chance_that_slower(before: &[f64], after: &[f64]) -> f64 {
    let (m, n) = (before.len() as f64, after.len() as f64);
    let mut all: Vec<(f64, bool)> =
        before.iter().map(|&value| (value, false)).chain(after.iter().map(|&value| (value, true))).collect();
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut ranks_after = 0.0;
    let (mut ties, mut start) = (0.0, 0.0);
    for group in all.chunk_by(|a, b| a.0.total_cmp(&b.0).is_eq()) {
        let size = group.len() as f64;
        let rank = start + f64::midpoint(1.0, size);
        start += size;
        ranks_after += rank * group.iter().filter(|(_, after)| *after).count() as f64;
        ties += size * size * size - size;
    }
    let u = ranks_after - n * (n + 1.0) / 2.0;
    let total = m + n;
    let variance = m * n / 12.0 * (total + 1.0 - ties / (total * (total - 1.0)));
    if variance <= 0.0 {
        return 1.0;
    }
    upper_tail((u - m * n / 2.0 - 0.5) / variance.sqrt())
}

/// The share of a normal distribution above `z` (Abramowitz and Stegun, formula 26.2.17; error below 7.5e-8).
fn upper_tail(z: f64) -> f64 {
    if z < 0.0 {
        return 1.0 - upper_tail(-z);
    }
    let t = 1.0 / (1.0 + 0.231_641_9 * z);
    let series = [0.319_381_530, -0.356_563_782, 1.781_477_937, -1.821_255_978, 1.330_274_429];
    let polynomial = series.iter().rev().fold(0.0, |sum, factor| (sum + factor) * t);
    (-z * z / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt() * polynomial
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(value: f64, wanted: f64, within: f64) {
        assert!((value - wanted).abs() < within, "{value} instead of {wanted}");
    }

    #[test]
    fn tails_are_those_of_the_tables() {
        near(upper_tail(0.0), 0.5, 1e-7);
        near(upper_tail(1.644_854), 0.05, 1e-6);
        near(upper_tail(-1.644_854), 0.95, 1e-6);
        near(upper_tail(3.090_232), 0.001, 1e-6);
    }

    #[test]
    fn the_probability_is_that_of_other_programs() {
        // scipy.stats.mannwhitneyu(after, before, alternative="greater", method="asymptotic"), version 1.17.1.
        let before = [10.0, 10.2, 10.1, 9.9, 10.3, 10.0, 10.1, 10.2];
        let after = [10.4, 10.5, 10.3, 10.6, 10.2, 10.7, 10.5, 10.4];
        near(chance_that_slower(&before, &after), 0.001_084_84, 1e-6);
        near(chance_that_slower(&after, &before), 0.999_242_22, 1e-6);
        near(chance_that_slower(&before, &before), 0.521_449_33, 1e-6);
        near(chance_that_slower(&[1.0; 9], &[1.0; 9]), 1.0, 1e-12);
    }
}
