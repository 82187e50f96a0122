//! Times and sizes as people write them.

/// Reads a time relative to the trace's start: `1.5s`, `250ms`, `10us`, `100ns`, `2min`, `0`; in
/// nanoseconds.
///
/// # Errors
/// If it is no number with one of these units, or beyond ±292 years.
pub fn parse_time(text: &str) -> Result<i64, String> {
    let wrong = || {
        format!("`{text}` is no time: a number with ns, us, ms, s, min or h, such as 1.5s or 250ms")
    };
    let number_end = text
        .find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | '-' | '+')))
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(number_end);
    let unit_ns: i128 = match unit.trim() {
        "ns" => 1,
        "us" | "µs" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "min" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        "" if number == "0" => 1,
        _ => return Err(wrong()),
    };
    let (is_negative, digits) = match number.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, number.strip_prefix('+').unwrap_or(number)),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let is_number = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(whole) || !is_number(fraction) || whole.len() + fraction.len() == 0 {
        return Err(wrong());
    }
    let parse = |part: &str| -> Result<i128, String> {
        if part.is_empty() {
            return Ok(0);
        }
        part.parse::<i64>().map(i128::from).map_err(|_| wrong())
    };
    let fraction = &fraction[..fraction.len().min(15)];
    let mut ns = parse(whole)? * unit_ns;
    ns += parse(fraction)? * unit_ns / 10_i128.pow(fraction.len() as u32);
    i64::try_from(if is_negative { -ns } else { ns }).map_err(|_| wrong())
}

/// A duration with four digits and a unit that fits.
pub fn duration(ns: i64) -> String {
    let magnitude = ns.unsigned_abs();
    let (unit, unit_ns) = match magnitude {
        0..=999 => return format!("{ns} ns"),
        1_000..=999_999 => ("us", 1e3),
        1_000_000..=999_999_999 => ("ms", 1e6),
        _ => ("s", 1e9),
    };
    let value = ns as f64 / unit_ns;
    let digits = match value.abs() {
        v if v < 10.0 => 3,
        v if v < 100.0 => 2,
        _ => 1,
    };
    format!("{value:.digits$} {unit}")
}

/// A moment: seconds with nine digits behind the point.
pub fn moment(ns: i64) -> String {
    let sign = if ns < 0 { "-" } else { "" };
    let magnitude = ns.unsigned_abs();
    format!(
        "{sign}{}.{:09}",
        magnitude / 1_000_000_000,
        magnitude % 1_000_000_000
    )
}

/// A number of bytes with a unit that fits (powers of 1024).
pub fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = count as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit < UNITS.len() - 1 {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 {
        format!("{count} B")
    } else {
        format!("{value:.1} {}", UNITS[unit])
    }
}

/// A wall-clock moment, UTC, as `2026-01-31 23:59:59`.
pub fn date(unix_ns: i64) -> String {
    let seconds = unix_ns.div_euclid(1_000_000_000);
    let (days, of_day) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    // Days to civil date: H. Hinnant, "chrono-Compatible Low-Level Date Algorithms", civil_from_days.
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_index = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_index + 2) / 5 + 1;
    let month = if month_index < 10 {
        month_index + 3
    } else {
        month_index - 9
    };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!(
        "{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02}",
        of_day / 3600,
        of_day / 60 % 60,
        of_day % 60
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_take_units_and_fractions() {
        assert_eq!(parse_time("1.5s"), Ok(1_500_000_000));
        assert_eq!(parse_time("250ms"), Ok(250_000_000));
        assert_eq!(parse_time("10us"), Ok(10_000));
        assert_eq!(parse_time("-3ns"), Ok(-3));
        assert_eq!(parse_time("0"), Ok(0));
        assert_eq!(parse_time(".5ms"), Ok(500_000));
        for wrong in [
            "",
            "5",
            "s",
            "1.2.3s",
            "1e3s",
            "--1s",
            "9999999999999999999s",
            "1 day",
        ] {
            assert!(parse_time(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn durations_and_dates_read_well() {
        assert_eq!(duration(999), "999 ns");
        assert_eq!(duration(1_234_567), "1.235 ms");
        assert_eq!(moment(-1_500_000_000), "-1.500000000");
        assert_eq!(bytes(1536), "1.5 KiB");
        assert_eq!(date(1_700_000_000_000_000_000), "2023-11-14 22:13:20");
        assert_eq!(date(951_782_400_000_000_000), "2000-02-29 00:00:00");
    }
}
