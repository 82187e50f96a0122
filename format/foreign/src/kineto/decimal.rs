//! Times: decimal numbers of microseconds, as integers of nanoseconds.

/// Largest power of ten by which a number is scaled.
const MOST_DIGITS: i32 = 38;

/// Returns a decimal number of microseconds in nanoseconds, without what is below a nanosecond. `None` if it is no number, or too
/// large.
pub(super) fn nanoseconds(microseconds: &str) -> Option<i64> {
    scaled(microseconds, 3)
}

/// Returns an integer, also one that is written with a fraction of zeros. `None` if it is none.
pub(super) fn integer(text: &str) -> Option<i64> {
    scaled(text, 0)
}

/// Returns a decimal number times a power of ten, rounded towards zero.
fn scaled(text: &str, power: i32) -> Option<i64> {
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
        None => (text, 0),
    };
    let (is_negative, digits) = match mantissa.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, mantissa),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    if whole.is_empty() {
        return None;
    }
    let mut value = 0_i128;
    // How many of the digits of the fraction are in the value.
    let mut taken = 0;
    for (place, digit) in whole.bytes().chain(fraction.bytes()).enumerate() {
        if !digit.is_ascii_digit() {
            return None;
        }
        if value < i128::MAX / 100 {
            value = value * 10 + i128::from(digit - b'0');
            taken += i32::from(place >= whole.len());
        } else if place < whole.len() {
            return None;
        }
    }
    let power = power.checked_add(exponent)?.checked_sub(taken)?;
    let value = match power {
        _ if value == 0 => 0,
        0..=MOST_DIGITS => value.checked_mul(10_i128.pow(power.unsigned_abs()))?,
        _ if power > MOST_DIGITS => return None,
        _ if power < -MOST_DIGITS => 0,
        _ => value / 10_i128.pow(power.unsigned_abs()),
    };
    i64::try_from(if is_negative { -value } else { value }).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_exact() {
        for (text, expected) in [
            ("5071288974095.933", Some(5_071_288_974_095_933)),
            ("1682725898236567", Some(1_682_725_898_236_567_000)),
            ("1682725898236567.001", Some(1_682_725_898_236_567_001)),
            ("68.0", Some(68_000)),
            ("0.0019", Some(1)),
            ("-1.5", Some(-1_500)),
            ("1.5e3", Some(1_500_000)),
            ("15e-1", Some(1_500)),
            ("0.1234567890123456789012345678901234567890123", Some(123)),
            ("0e99", Some(0)),
            ("9223372036854775.807", Some(i64::MAX)),
            ("9223372036854775.808", None),
            ("1e40", None),
            ("1e99999999999", None),
            ("", None),
            (".5", None),
            ("nan", None),
            ("1 ", None),
        ] {
            assert_eq!(nanoseconds(text), expected, "{text}");
        }
        assert_eq!(integer("12"), Some(12));
        assert_eq!(integer("12.0"), Some(12));
    }
}
