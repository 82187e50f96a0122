//! The graph of calls for Mermaid, which draws no more than so many lines.

use std::fmt::Write as _;

use super::graph::Graph;
use super::output::Output;
use super::pass::{Call, Ending, Enter, Exporter, Wants};
use crate::table::safe;
use crate::time::duration;

/// What Mermaid draws unless it is told otherwise (`maxEdges`), and what its text may be long (`maxTextSize`).
const MOST_CALLS: usize = 500;
const MOST_REGIONS: usize = 200;

/// A graph in the making.
pub(crate) struct Mermaid<'a> {
    pub(crate) graph: Graph<'a>,
    pub(crate) out: Output,
}

/// Text in quotes, where only entities stand for what Mermaid would read.
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

impl Exporter for Mermaid<'_> {
    fn wants(&self) -> Wants {
        Wants {
            calls: true,
            ..Wants::default()
        }
    }

    fn enter(&mut self, enter: &Enter) -> anyhow::Result<()> {
        self.graph.enter(enter.location, enter.region);
        Ok(())
    }

    fn leave(&mut self, call: &Call) -> anyhow::Result<()> {
        self.graph.leave(call);
        Ok(())
    }

    fn finish(mut self: Box<Self>, _: &Ending<'_>) -> anyhow::Result<()> {
        let (regions, calls) = (self.graph.regions(), self.graph.calls());
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
        self.out.put(text.as_bytes())?;
        self.out.finish()
    }
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
