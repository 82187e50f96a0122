//! The call graph for Mermaid, which draws only a limited number of lines.

use std::fmt::Write as _;

use crate::text::safe;
use crate::time::duration;
use crate::write::graph::Graph;

/// Mermaid's default limits for the number of lines (`maxEdges`) and the length of its text (`maxTextSize`).
const MOST_CALLS: usize = 500;
const MOST_REGIONS: usize = 200;

/// Quotes text. Characters that Mermaid would interpret become entities.
fn quoted(text: &str) -> String {
    let mut out = String::new();
    for c in safe(text).chars().take(200) {
        match c {
            '"' | '#' | '&' | '<' | '>' | '`' | '\\' | '%' | ';' | '[' | ']' | '{' | '}' => {
                let _ = write!(out, "#{};", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out
}

/// Returns the graph as text.
pub(crate) fn draw(graph: &Graph<'_>) -> String {
    let (regions, calls) = (graph.regions(), graph.calls());
    let mut text = "flowchart TD\n".to_owned();
    let shown = &regions[..regions.len().min(MOST_REGIONS)];
    for (region, name, tally) in shown {
        let mark = if tally.is_uncertain { "~" } else { "" };
        let _ = writeln!(
            text,
            "    r{}[\"{}<br/>{mark}{} calls, {mark}{}\"]",
            region.get(),
            quoted(name),
            tally.calls,
            duration(tally.inclusive_ns)
        );
    }
    let is_shown = |wanted| shown.iter().any(|(region, _, _)| *region == wanted);
    let lines = calls
        .iter()
        .filter(|(a, b, _)| is_shown(*a) && is_shown(*b));
    let lines: Vec<_> = lines.take(MOST_CALLS).collect();
    for (caller, callee, tally) in &lines {
        let mark = if tally.is_uncertain { "~" } else { "" };
        let _ = writeln!(
            text,
            "    r{} -->|\"{mark}{}x\"| r{}",
            caller.get(),
            tally.calls,
            callee.get()
        );
    }
    let (more_regions, more_calls) = (regions.len() - shown.len(), calls.len() - lines.len());
    if more_regions + more_calls != 0 {
        let _ = writeln!(
            text,
            "%% {more_regions} more regions, {more_calls} more calls"
        );
        eprintln!(
            "Mermaid draws no more: {more_regions} regions and {more_calls} pairs of them with the least time \
                 are left out; --format dot has all"
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn names_cannot_end_their_quotes() {
        assert_eq!(quoted("a\"b]"), "a#34;b#93;");
        assert_eq!(quoted("f<int>\n"), "f#60;int#62;#92;n");
    }
}
