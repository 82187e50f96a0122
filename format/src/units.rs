//! Sizes and times as people write them: the one parser of each for every option, variable and file.

use std::time::Duration;

const NS_PER_S: i128 = 1_000_000_000;

/// The units of a size, with their exponents of two.
const SIZE_UNITS: [(&str, u32); 4] = [("", 0), ("K", 10), ("M", 20), ("G", 30)];
/// The units of a time, with their lengths in nanoseconds.
const TIME_UNITS: [(&str, i128); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("\u{b5}s", 1_000),  // micro sign
    ("\u{3bc}s", 1_000), // Greek mu
    ("ms", 1_000_000),
    ("s", NS_PER_S),
    ("min", 60_000_000_000),
    ("h", 3_600_000_000_000),
];
/// Digits after the decimal point that count: more than the nanoseconds of the longest unit have.
const MAX_FRACTION_DIGITS: usize = 18;

/// The expected form of a size, for error messages.
pub const SIZE: &str = "a number with an optional K, M or G, such as 256M";
/// The expected form of a time, for error messages.
pub const TIME: &str = "a number with ns, us, ms, s, min or h, such as 1.5s or 250ms";

/// A text that is not a size or not a time.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("invalid {what} `{text}`: expected {expected}")]
pub struct UnitError {
    what: &'static str,
    text: String,
    expected: &'static str,
}

/// Parses a size such as `256M`, `1GiB`, `64kb` or `4096`. Returns bytes.
///
/// K, M and G are powers of 1024. Each may be followed by `B` or `iB`; case does not matter. A bare number is in bytes.
///
/// # Errors
/// If the text is not a whole number with one of these units, or 2⁶⁴ bytes or more.
pub fn parse_size(text: &str) -> Result<u64, UnitError> {
    let size = || {
        let (number, unit) = split(text);
        let unit = unit.to_ascii_uppercase();
        let unit = unit.strip_suffix('B').unwrap_or(&unit);
        let unit = match unit.strip_suffix('I') {
            Some("") => return None, // `4iB`
            Some(prefix) => prefix,
            None => unit,
        };
        let (_, shift) = SIZE_UNITS.iter().find(|(name, _)| *name == unit)?;
        number.parse::<u64>().ok()?.checked_mul(1 << shift)
    };
    size().ok_or_else(|| UnitError {
        what: "size",
        text: text.to_owned(),
        expected: SIZE,
    })
}

/// Parses a time such as `1.5s`, `250ms`, `10us`, `2min` or `-3ns`. Returns nanoseconds; fractions of one are cut off.
///
/// `0` needs no unit.
///
/// # Errors
/// If the text is not a number with one of these units, or beyond ±292 years.
pub fn parse_time(text: &str) -> Result<i64, UnitError> {
    let time_ns = nanoseconds(text).and_then(|ns| i64::try_from(ns).ok());
    time_ns.ok_or_else(|| not_a_time(text))
}

/// Parses a decimal number of seconds without a unit, as tools write tables of clock offsets. Returns nanoseconds; fractions of
/// one are cut off.
///
/// # Errors
/// If the text is not a decimal number, or beyond ±292 years.
pub fn parse_seconds(text: &str) -> Result<i64, UnitError> {
    let time_ns = decimal(text, NS_PER_S).and_then(|ns| i64::try_from(ns).ok());
    time_ns.ok_or_else(|| UnitError {
        what: "number of seconds",
        text: text.to_owned(),
        expected: "a decimal number, such as 0.000012",
    })
}

/// Parses a length of time. See [`parse_time`] for the units.
///
/// # Errors
/// If the text is not a number with one of these units, negative, or 2⁶⁴ seconds or more.
pub fn parse_duration(text: &str) -> Result<Duration, UnitError> {
    let duration = nanoseconds(text).and_then(|ns| {
        let seconds = u64::try_from(ns.div_euclid(NS_PER_S)).ok()?;
        Some(Duration::new(seconds, ns.rem_euclid(NS_PER_S) as u32))
    });
    duration.ok_or_else(|| not_a_time(text))
}

fn not_a_time(text: &str) -> UnitError {
    UnitError {
        what: "time",
        text: text.to_owned(),
        expected: TIME,
    }
}

/// Splits a text into its number and its unit, either of which may be empty.
fn split(text: &str) -> (&str, &str) {
    let text = text.trim();
    let is_of_number = |c: char| c.is_ascii_digit() || matches!(c, '.' | '-' | '+');
    let end = text.find(|c| !is_of_number(c)).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    (number, unit.trim_start())
}

fn nanoseconds(text: &str) -> Option<i128> {
    let (number, unit) = split(text);
    if unit.is_empty() {
        // Only 0 is the same in every unit.
        return decimal(number, 10_i128.pow(MAX_FRACTION_DIGITS as u32)).filter(|all| *all == 0);
    }
    let (_, unit_ns) = TIME_UNITS.iter().find(|(name, _)| *name == unit)?;
    decimal(number, *unit_ns)
}

/// Multiplies a decimal number by a unit.
fn decimal(number: &str, unit: i128) -> Option<i128> {
    let (is_negative, digits) = match number.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, number.strip_prefix('+').unwrap_or(number)),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let is_number = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(whole) || !is_number(fraction) || whole.len() + fraction.len() == 0 {
        return None;
    }
    let parse = |part: &str| match part {
        "" => Some(0),
        part => part.parse::<u64>().ok().map(i128::from),
    };
    let fraction = &fraction[..fraction.len().min(MAX_FRACTION_DIGITS)];
    let part = parse(fraction)? * unit / 10_i128.pow(fraction.len() as u32);
    let product = parse(whole)? * unit + part;
    Some(if is_negative { -product } else { product })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_takes_units_in_any_case() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("17B", 17),
            ("+17b", 17),
            ("64K", 64 << 10),
            ("64kb", 64 << 10),
            ("16m", 16 << 20),
            ("16 MiB", 16 << 20),
            (" 1gib ", 1 << 30),
            ("2GB", 2 << 30),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for wrong in [
            "",
            "M",
            "iB",
            "4iB",
            "4BB",
            "1.5M",
            "-1",
            "12x",
            "1T",
            "1e3",
            "16 M B",
            "99999999999999999999",
            "17179869184G",
        ] {
            assert!(parse_size(wrong).is_err(), "{wrong}");
        }
        assert_eq!(
            parse_size("12x").unwrap_err().to_string(),
            "invalid size `12x`: expected a number with an optional K, M or G, such as 256M"
        );
    }

    #[test]
    fn a_time_takes_units_and_fractions() {
        for (text, ns) in [
            ("1.5s", 1_500_000_000),
            ("250ms", 250_000_000),
            ("10us", 10_000),
            ("10\u{b5}s", 10_000),
            ("10\u{3bc}s", 10_000),
            ("100 ns", 100),
            ("-3ns", -3),
            ("+3ns", 3),
            ("2min", 120_000_000_000),
            ("0.5h", 1_800_000_000_000),
            (".5ms", 500_000),
            ("5.s", 5_000_000_000),
            ("0", 0),
            ("0s", 0),
            ("0.0000000000009h", 3),
        ] {
            assert_eq!(parse_time(text), Ok(ns), "{text}");
            let duration = u64::try_from(ns).ok().map(Duration::from_nanos);
            assert_eq!(parse_duration(text).ok(), duration, "{text}");
        }
        assert_eq!(parse_seconds("-0.0015"), Ok(-1_500_000));
        assert!(parse_seconds("1s").is_err() && parse_seconds("").is_err());
        for wrong in [
            "",
            "5",
            "0.0000000001",
            "s",
            "1.2.3s",
            "1e3s",
            "--1s",
            "1S",
            "1 day",
            "99999999999999999999s",
        ] {
            assert!(parse_time(wrong).is_err(), "{wrong}");
            assert!(parse_duration(wrong).is_err(), "{wrong}");
        }
        assert!(parse_time("300000000h").is_err());
        assert_eq!(
            parse_duration("300000000h"),
            Ok(Duration::from_secs(300_000_000 * 3_600))
        );
        assert_eq!(
            parse_time("5").unwrap_err().to_string(),
            "invalid time `5`: expected a number with ns, us, ms, s, min or h, such as 1.5s or 250ms"
        );
    }
}
