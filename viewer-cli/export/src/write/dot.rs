//! The graph of calls for Graphviz.

use std::fmt::Write as _;

use crate::text::safe;
use crate::time::duration;
use crate::write::graph::Graph;

fn quoted(text: &str) -> String {
    safe(text).replace('\\', "\\\\").replace('"', "\\\"")
}

/// Returns the graph as text.
pub(crate) fn draw(graph: &Graph<'_>) -> String {
    let regions = graph.regions();
    let whole: i64 = regions.iter().map(|(_, _, tally)| tally.exclusive_ns).sum();
    let mut text =
        "digraph calls {\n    node [shape=box, style=filled, fontname=\"sans-serif\"];\n"
            .to_owned();
    for (region, name, tally) in &regions {
        let mark = if tally.is_uncertain { "~" } else { "" };
        // The more exclusive time, the darker.
        let share = tally.exclusive_ns as f64 / whole.max(1) as f64;
        let _ = writeln!(
            text,
            "    r{} [label=\"{}\\n{mark}{} calls\\n{mark}{} inclusive\\n{mark}{} exclusive\", \
                 fillcolor=\"0.08 {:.3} 1.0\"];",
            region.get(),
            quoted(name),
            tally.calls,
            duration(tally.inclusive_ns),
            duration(tally.exclusive_ns),
            share.sqrt().clamp(0.0, 1.0) * 0.7
        );
    }
    for (caller, callee, tally) in graph.calls() {
        let mark = if tally.is_uncertain { "~" } else { "" };
        let _ = writeln!(
            text,
            "    r{} -> r{} [label=\"{mark}{}x, {mark}{}\"];",
            caller.get(),
            callee.get(),
            tally.calls,
            duration(tally.inclusive_ns)
        );
    }
    text.push_str("}\n");
    text
}
