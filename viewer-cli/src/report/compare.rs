//! The contents of the page that compares two runs.

use std::collections::BTreeMap;

use annals_analysis::{Efficiencies, EfficiencyModel, RegionRow};
use maud::{Markup, html};

use super::figures::RunFigures;
use super::page::{Contents, Section};
use super::parts::{DataTable, data_table, facts, nothing};
use super::sections::{
    FACTORS, Factor, balance_figure, factors, key_figures, known, losses, window_sentence,
};
use super::text::{percent, sentence};
use crate::table::{Align, Table};
use crate::time;
use crate::views::why_sentence;

/// Rows of a table, at most.
const MOST_ROWS: usize = 30;

/// Returns the contents of the page.
pub(super) fn all(first: &RunFigures, second: &RunFigures) -> Contents {
    let section = |id, heading, content| Section {
        id,
        heading,
        content,
    };
    let both = |of: fn(&RunFigures) -> Markup| pair(first, second, of);
    Contents {
        title: format!("{} and {}", first.title, second.title),
        top: top(first, second),
        sections: vec![
            section("summary", "Summary and provenance", summary(first, second)),
            section("efficiencies", "Efficiencies", efficiencies(first, second)),
            section(
                "waits",
                "Ranks that make others wait",
                causes(first, second),
            ),
            section(
                "regions",
                "Regions that changed most",
                regions(first, second),
            ),
            section(
                "balance",
                "Load balance",
                both(|of| known(of, balance_figure)),
            ),
            section("losses", "Losses", both(losses)),
        ],
    }
}

/// Returns a part of the page for each run, next to each other if there is room.
fn pair(first: &RunFigures, second: &RunFigures, of: fn(&RunFigures) -> Markup) -> Markup {
    html! {
        div.pair {
            @for (letter, figures) in [("A", first), ("B", second)] {
                div {
                    h3 { (letter) ": " bdi { (sentence(&figures.title)) } }
                    (of(figures))
                }
            }
        }
    }
}

/// Returns by how much the second run is shorter or longer.
fn run_sentence(first: &RunFigures, second: &RunFigures) -> String {
    let length = |of: &RunFigures| {
        of.lost_time
            .to_ns
            .saturating_sub(of.lost_time.from_ns)
            .max(0)
    };
    let (before, after) = (length(first), length(second));
    let texts = (time::duration(before), time::duration(after));
    if before == 0 {
        return format!("A has no time, B takes {}.", texts.1);
    }
    let change = (after - before) as f64 / before as f64;
    let how = match after.cmp(&before) {
        std::cmp::Ordering::Less => format!("{} less", percent(-change)),
        std::cmp::Ordering::Equal => "as long".to_owned(),
        std::cmp::Ordering::Greater => format!("{} more", percent(change)),
    };
    format!("A takes {}, B takes {}: {how}.", texts.0, texts.1)
}

fn top(first: &RunFigures, second: &RunFigures) -> Markup {
    html! {
        h1 { "A: " bdi { (sentence(&first.title)) } " · B: " bdi { (sentence(&second.title)) } }
        p.answer { (run_sentence(first, second)) }
        @for (letter, figures) in [("A", first), ("B", second)] {
            p { b { (letter) ": " } (sentence(&why_sentence(&figures.lost_time))) }
        }
    }
}

fn summary(first: &RunFigures, second: &RunFigures) -> Markup {
    let mut table = Table::new(&[
        ("figure", Align::Left),
        ("A", Align::Right),
        ("B", Align::Right),
    ]);
    for ((name, before), (_, after)) in key_figures(first).into_iter().zip(key_figures(second)) {
        table.row(vec![name.to_owned(), before, after]);
    }
    html! {
        (data_table(&DataTable::whole("Both runs", &table)))
        (pair(first, second, |figures| html! {
            p { (sentence(&figures.info.sentence())) }
            p { (sentence(&window_sentence(figures))) }
            details {
                summary { "Provenance" }
                (facts(&figures.info.facts()))
                (facts(&figures.info.machine()))
            }
        }))
    }
}

fn efficiencies(first: &RunFigures, second: &RunFigures) -> Markup {
    let of = |figures: &RunFigures| -> Option<Efficiencies> {
        factors(&figures.lost_time, EfficiencyModel::Multiplicative).copied()
    };
    let (first, second) = (of(first), of(second));
    if first.is_none() && second.is_none() {
        // The head of the page says where calls of MPI are missing.
        return nothing(
            "There are no efficiencies: no rank of either run has two events at different times.",
        );
    }
    let mut table = Table::new(&[
        ("factor", Align::Left),
        ("A", Align::Right),
        ("B", Align::Right),
        ("difference, points", Align::Right),
    ]);
    for Factor { name, value, .. } in FACTORS {
        let (before, after) = (
            first.as_ref().and_then(value),
            second.as_ref().and_then(value),
        );
        let text = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), percent);
        let difference = before
            .zip(after)
            .map(|(before, after)| (after - before) * 100.0);
        let difference =
            difference.map_or_else(|| "-".to_owned(), |points| format!("{points:+.1}"));
        table.row(vec![name.to_owned(), text(before), text(after), difference]);
    }
    html! {
        p { "Factors of the multiplicative model; 100 % is no time lost." }
        (data_table(&DataTable::whole("Efficiencies", &table)))
    }
}

/// Returns the tables of both runs, one below the other: they are wide.
fn causes(first: &RunFigures, second: &RunFigures) -> Markup {
    let tables = [("A", first), ("B", second)].map(|(letter, figures)| {
        let lost = &figures.lost_time;
        if !lost.mpi.knows_waits() {
            return nothing(&format!("{letter}: {}", why_sentence(lost)));
        }
        let table = Table::of(&lost.causes[..lost.causes.len().min(MOST_ROWS)]);
        if table.is_empty() {
            return nothing(&format!("{letter}: no rank makes others wait."));
        }
        data_table(&DataTable {
            total: lost.causes.len(),
            command: &format!("trace-cli why {} --csv", figures.input),
            ..DataTable::whole(&format!("{letter}: ranks that make others wait"), &table)
        })
    });
    html! { @for table in &tables { (table) } }
}

/// Times and calls of a region in both runs.
#[derive(Clone, Copy, Default)]
struct BothTimes {
    own_ns: [i64; 2],
    calls: [u64; 2],
    is_uncertain: bool,
}

impl BothTimes {
    fn difference_ns(&self) -> i64 {
        self.own_ns[1].saturating_sub(self.own_ns[0])
    }
}

fn regions(first: &RunFigures, second: &RunFigures) -> Markup {
    let mut by_name: BTreeMap<&str, BothTimes> = BTreeMap::new();
    for (run, figures) in [first, second].into_iter().enumerate() {
        let rows: &[RegionRow] = &figures.regions.regions;
        for row in rows {
            let both = by_name.entry(&row.name).or_default();
            both.own_ns[run] = both.own_ns[run].saturating_add(row.exclusive_ns);
            both.calls[run] = both.calls[run].saturating_add(row.calls);
            both.is_uncertain |= row.time_is_uncertain;
        }
    }
    if by_name.is_empty() {
        return nothing("Neither run has calls of regions.");
    }
    let total = by_name.len();
    let mut rows: Vec<(&str, BothTimes)> = by_name.into_iter().collect();
    rows.sort_by_key(|(name, both)| {
        (
            std::cmp::Reverse(both.difference_ns().unsigned_abs()),
            *name,
        )
    });
    let mut table = Table::new(&[
        ("region", Align::Name),
        ("exclusive in A", Align::Right),
        ("exclusive in B", Align::Right),
        ("difference", Align::Right),
        ("change", Align::Right),
        ("calls in A", Align::Right),
        ("calls in B", Align::Right),
    ]);
    for (name, both) in rows.iter().take(MOST_ROWS) {
        let mark = if both.is_uncertain { "~" } else { "" };
        let [before, after] = both.own_ns;
        let difference_ns = both.difference_ns();
        let change = match (both.calls, before) {
            ([0, _], 0) => "new".to_owned(),
            ([_, 0], _) if after == 0 => "gone".to_owned(),
            (_, 0) => "-".to_owned(),
            _ => format!("{:+.1} %", difference_ns as f64 * 100.0 / before as f64),
        };
        let sign = if difference_ns > 0 { "+" } else { "" };
        table.row(vec![
            (*name).to_owned(),
            format!("{mark}{}", time::duration(before)),
            format!("{mark}{}", time::duration(after)),
            format!("{mark}{sign}{}", time::duration(difference_ns)),
            change,
            time::grouped(both.calls[0]),
            time::grouped(both.calls[1]),
        ]);
    }
    let command = format!("trace-cli diff {} {} --all", first.input, second.input);
    html! {
        p { "Exclusive time is the time in a region itself, of all ranks together. ~ marks what a loss may have changed." }
        (data_table(&DataTable {
            total,
            command: &command,
            ..DataTable::whole("Regions by how much exclusive time differs", &table)
        }))
    }
}
