//! What Linux reports of times and processes, as it is outside of time namespaces (time_namespaces(7)): writers and readers of one
//! host may be in different ones, and must agree.

/// Nanoseconds in the unit of the kernel's times for programs, on every processor (proc(5), time(7)).
const TICK_NS: i64 = 10_000_000;

/// Returns by how much a clock of a time namespace is ahead of the host's, nanoseconds. `offsets` is the text of
/// `/proc/self/timens_offsets`, which has a line for each `clock`, `monotonic` and `boottime`: its name, seconds and nanoseconds.
/// `None` means that the text has no such line.
pub fn namespace_offset_ns(offsets: &str, clock: &str) -> Option<i64> {
    let mut lines = offsets.lines().map(str::split_whitespace);
    let mut line = lines.find_map(|mut line| (line.next()? == clock).then_some(line))?;
    let seconds: i64 = line.next()?.parse().ok()?;
    let rest: i64 = line.next()?.parse().ok()?;
    seconds.checked_mul(1_000_000_000)?.checked_add(rest)
}

/// Returns the start of a process in hundredths of a second since the host was booted, rounded down: its `/proc/PID/stat`, which
/// reports it as in the time namespace of the process that reads it, whose `/proc/self/timens_offsets` is `offsets`. `None` means
/// that the text has no start.
pub fn process_start(stat: &str, offsets: &str) -> Option<u64> {
    // The command's name, field 2, may hold spaces and parentheses; field 22 is the start.
    let (_, after_name) = stat.rsplit_once(')')?;
    let start: i64 = after_name.split_whitespace().nth(19)?.parse().ok()?;
    let offset_ns = namespace_offset_ns(offsets, "boottime").unwrap_or(0);
    u64::try_from(start.checked_sub(offset_ns.div_euclid(TICK_NS))?).ok()
}

/// Returns whether two starts are that of one process, read in different time namespaces: rounding may make them differ by one. Not
/// even a process that gets the number of another one starts so soon after it.
pub const fn is_same_start(a: u64, b: u64) -> bool {
    a.abs_diff(b) <= 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_offset_of_a_clock_is_that_of_its_line() {
        let offsets = "monotonic       86400 999999999\nboottime            -5         1\n";
        let monotonic = namespace_offset_ns(offsets, "monotonic");
        assert_eq!(monotonic, Some(86_400_999_999_999));
        let boottime = namespace_offset_ns(offsets, "boottime");
        assert_eq!(boottime, Some(-4_999_999_999));
        for wrong in [
            "",
            "monotonic\n",
            "monotonic 1\n",
            "monotonic x 1\n",
            "monotonic 9223372036854775807 0\n",
        ] {
            assert_eq!(namespace_offset_ns(wrong, "monotonic"), None, "{wrong}");
        }
    }

    #[test]
    fn a_start_is_the_same_in_every_time_namespace() {
        let stat = |start: u64| format!("7 (a) b)) S{} {start} 1 2", " 0".repeat(18));
        assert_eq!(process_start(&stat(12_345), ""), Some(12_345));
        // The kernel adds the offset and rounds down.
        for (offset_ns, inside) in [
            (100_000_000_000_i64, 22_345),
            (100_005_000_000, 22_345),
            (-5_001_000_000, 11_844),
        ] {
            let offsets = format!("boottime {} {}\n", 0, offset_ns);
            let start = process_start(&stat(inside), &offsets).expect("a start");
            assert!(is_same_start(start, 12_345), "{offset_ns}: {start}");
        }
        assert_eq!(process_start("7 (a) S 0", ""), None);
        assert_eq!(process_start(&stat(5), "boottime 100 0\n"), None);
    }
}
