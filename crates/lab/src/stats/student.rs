//! Student's t distribution.
//!
//! Its distribution function is a regularised incomplete beta function, computed as a continued
//! fraction by Lentz's method (NIST Digital Library of Mathematical Functions, 8.17.22 and 1.12).
//! Accurate to ten digits.

/// More steps than the fraction ever takes for the degrees of freedom of a benchmark.
const STEPS: u32 = 10_000;
const TINY: f64 = 1e-300;

/// The probability that |T| exceeds `t`, with `df` degrees of freedom (not necessarily whole).
pub(super) fn two_sided(t: f64, df: f64) -> f64 {
    if t.is_infinite() {
        return 0.0;
    }
    incomplete_beta(df / (df + t * t), df / 2.0, 0.5)
}

/// The `t` that |T| exceeds with probability `1 - confidence`.
pub(super) fn quantile(confidence: f64, df: f64) -> f64 {
    let outside = 1.0 - confidence;
    let mut high = 1.0;
    while two_sided(high, df) > outside {
        high *= 2.0;
    }
    let mut low = 0.0;
    // Bisection to the last bit: the function falls monotonically.
    for _ in 0..200 {
        let middle = (low + high) / 2.0;
        if two_sided(middle, df) > outside {
            low = middle;
        } else {
            high = middle;
        }
    }
    (low + high) / 2.0
}

/// I_x(a, b).
fn incomplete_beta(x: f64, a: f64, b: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    if x >= 1.0 {
        return 1.0;
    }
    let front = (ln_gamma(a + b) - ln_gamma(a) - ln_gamma(b) + a * x.ln() + b * (-x).ln_1p()).exp();
    // The fraction converges fast below the mean; above it the other tail does.
    if x < (a + 1.0) / (a + b + 2.0) {
        front * fraction(x, a, b) / a
    } else {
        1.0 - front * fraction(1.0 - x, b, a) / b
    }
}

fn fraction(x: f64, a: f64, b: f64) -> f64 {
    let guard = |value: f64| if value.abs() < TINY { TINY } else { value };
    let mut c = 1.0;
    let mut d = 1.0 / guard(1.0 - (a + b) * x / (a + 1.0));
    let mut result = d;
    for step in 1..STEPS {
        let m = f64::from(step);
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        let before = result;
        for term in [even, odd] {
            d = 1.0 / guard(1.0 + term * d);
            c = guard(1.0 + term / c);
            result *= c * d;
        }
        if (result / before - 1.0).abs() < 1e-15 {
            break;
        }
    }
    result
}

/// ln of the gamma function for positive arguments, by Stirling's series (DLMF 5.11.1) after
/// shifting the argument up.
fn ln_gamma(x: f64) -> f64 {
    const SERIES: [f64; 6] = [
        1.0 / 12.0,
        -1.0 / 360.0,
        1.0 / 1260.0,
        -1.0 / 1680.0,
        1.0 / 1188.0,
        -691.0 / 360_360.0,
    ];
    let (mut x, mut shift) = (x, 0.0);
    while x < 15.0 {
        shift += x.ln();
        x += 1.0;
    }
    let mut power = x;
    let mut series = 0.0;
    for coefficient in SERIES {
        series += coefficient / power;
        power *= x * x;
    }
    (x - 0.5) * x.ln() - x + 0.5 * (2.0 * std::f64::consts::PI).ln() + series - shift
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() < 5e-4
    }

    /// The table of textbooks: two-sided, 95 and 99 %.
    #[test]
    fn the_textbook_table() {
        for (df, t95, t99) in [
            (1.0, 12.706, 63.657),
            (2.0, 4.303, 9.925),
            (5.0, 2.571, 4.032),
            (10.0, 2.228, 3.169),
            (30.0, 2.042, 2.750),
            (120.0, 1.980, 2.617),
        ] {
            assert!(close(quantile(0.95, df), t95), "{df}: {}", quantile(0.95, df));
            assert!(close(quantile(0.99, df), t99), "{df}: {}", quantile(0.99, df));
        }
        assert!(close(quantile(0.95, 1e7), 1.960));
    }

    /// With one degree of freedom it is Cauchy's distribution; for two there is a closed form as
    /// well.
    #[test]
    fn closed_forms() {
        for t in [0.0_f64, 0.1, 1.0, 3.0, 50.0] {
            let cauchy = 1.0 - 2.0 * t.atan() / std::f64::consts::PI;
            assert!((two_sided(t, 1.0) - cauchy).abs() < 1e-10, "{t}");
            let two = 1.0 - t / (2.0 + t * t).sqrt();
            assert!((two_sided(t, 2.0) - two).abs() < 1e-10, "{t}");
        }
        assert_eq!(two_sided(f64::INFINITY, 3.0), 0.0);
    }

    #[test]
    fn factorials() {
        let mut ln = 0.0_f64;
        for n in 1..30_u32 {
            assert!((ln_gamma(f64::from(n)) - ln).abs() < 1e-11, "{n}");
            ln += f64::from(n).ln();
        }
        assert!((ln_gamma(0.5) - std::f64::consts::PI.sqrt().ln()).abs() < 1e-12);
    }
}
