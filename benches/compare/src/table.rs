//! The figures of a run, for people.

use std::io::Write;

use crate::report::{Line, Report};
use crate::series::Figure;

/// Prints all sections. A closed pipe is no error.
pub(crate) fn print(report: &Report) {
    let mut out = std::io::stdout().lock();
    let mut heading = None;
    for line in &report.lines {
        let text = match line {
            Line::Section { title } => {
                heading = None;
                format!("\n{title}")
            }
            _ => text_of(line),
        };
        let wanted = heading_of(line);
        if wanted.is_some() && wanted != heading {
            heading = wanted;
            let _ = writeln!(out, "{}", wanted.unwrap_or_default());
        }
        let _ = writeln!(out, "{text}");
    }
}

const fn heading_of(line: &Line) -> Option<&'static str> {
    match line {
        Line::Time { .. } => Some(
            "                         ns:  min  median   thread's CPU:  min  median   x floor: min  median   x OTF2: min  median",
        ),
        Line::Threads { .. } => Some(
            "  ns per pair       alone: min      median   in parallel: min  median     ratio: min  median",
        ),
        Line::Whole { .. } => Some(
            "                      CPU ns/event: min  median     x OTF2: min  median   bytes/event   OTF2's bytes / these   dropped",
        ),
        Line::Single { .. } => Some(
            "                                     ns:   p50      p99    p99.9          max         count",
        ),
        _ => None,
    }
}

fn text_of(line: &Line) -> String {
    match line {
        Line::Section { title } => title.clone(),
        Line::Time {
            contestant,
            ns,
            thread_cpu_ns,
            by_floor,
            by_otf2,
        } => format!(
            "  {contestant:<22} {:>8.1} {:>7.1} {:>19.1} {:>7.1} {} {}",
            ns.min,
            ns.median,
            thread_cpu_ns.min,
            thread_cpu_ns.median,
            ratio(*by_floor),
            ratio(*by_otf2)
        ),
        Line::Threads {
            contestant,
            alone_ns,
            together_ns,
            ratio: quotient,
        } => format!(
            "  {contestant:<16} {:>11.1} {:>11.1} {:>18.1} {:>7.1} {}",
            alone_ns.min,
            alone_ns.median,
            together_ns.min,
            together_ns.median,
            ratio(*quotient)
        ),
        Line::Whole {
            contestant,
            cpu_ns,
            by_otf2,
            bytes_per_event,
            otf2_bytes_by_these,
            dropped,
            raised,
        } => {
            let bytes = otf2_bytes_by_these.map_or_else(|| "-".to_owned(), |n| format!("{n:.2}"));
            format!(
                "  {contestant:<29} {:>7.1} {:>7.1} {} {bytes_per_event:>13.2} {bytes:>22}   {dropped} of {raised}",
                cpu_ns.min,
                cpu_ns.median,
                ratio(*by_otf2)
            )
        }
        Line::Single {
            contestant,
            event,
            p50_ns,
            p99_ns,
            p999_ns,
            max_ns,
            count,
        } => format!(
            "  {contestant:<16} {event:<20} {p50_ns:>8.1} {p99_ns:>8.1} {p999_ns:>8.1} {max_ns:>12.1} {count:>13}"
        ),
        Line::Check { contestant, check } => {
            let read = check.read.map_or_else(|| "-".to_owned(), |n| n.to_string());
            let raised = check.raised;
            let lost = check.lost;
            let how = &check.how;
            format!("  {contestant:<16} raised {raised}, read {read}, lost {lost}; {how}")
        }
        Line::NotMeasured { contestant, reason } => {
            format!("  {contestant:<16} not measured: {reason}")
        }
    }
}

fn ratio(figure: Option<Figure>) -> String {
    figure.map_or_else(
        || format!("{:>15} {:>7}", "-", "-"),
        |figure| format!("{:>15.2} {:>7.2}", figure.min, figure.median),
    )
}
