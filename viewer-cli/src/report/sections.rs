//! The sections of the report of a run, in the order of the page.

use std::collections::BTreeMap;

use annals_analysis::{
    Efficiencies, EfficiencyModel, LostTime, MessagePairRow, PartOfRun, PathRank, RankTimes,
    RegionKind, WaitPattern,
};
use maud::{Markup, html};

use super::figures::{OVERVIEW_BINS, OverviewRow, RankGroup, RunFigures, rank_groups};
use super::page::{Contents, Section};
use super::parts::{DataTable, data_table, facts, figure, nothing};
use super::pictures::{AreaRow, Bar, HeatCell, Segment, areas, bars, heat_map, heat_scale, legend};
use super::text::{part, percent, sentence, share};
use crate::table::{Align, Table};
use crate::time;
use crate::views::{
    cause_sentence, collective_sentence, counted, main_causes, message_counts_text,
    message_sentence, other_mpi_row, sample_sentence, sampling_sentences, why_sentence,
};

/// Rows of a table, at most.
const MOST_ROWS: usize = 50;
/// Rows of the table of the heat map, at most.
const MOST_CELLS: usize = 200;
/// Ranks that have separate bars and rows; with more ranks, some share one.
const MOST_RANKS: usize = 64;
/// Rows and columns of the heat map, at most.
const MOST_HEAT: usize = 64;

/// Returns the contents of the page.
pub(super) fn all(figures: &RunFigures) -> Contents {
    let section = |id, heading, content| Section {
        id,
        heading,
        content,
    };
    Contents {
        title: figures.title.clone(),
        top: top(figures),
        sections: vec![
            section("summary", "Summary and provenance", summary(figures)),
            section("efficiencies", "Efficiencies", known(figures, efficiencies)),
            section("waits", "Wait states", known(figures, waits)),
            section(
                "critical-path",
                "Critical path",
                known(figures, critical_path),
            ),
            section("balance", "Load balance", known(figures, balance)),
            section("messages", "Messages", messages(figures)),
            section("collectives", "Collective operations", collectives(figures)),
            section("calls", "Slowest calls", calls(figures)),
            section("samples", "Samples", samples(figures)),
            section("losses", "Losses", losses(figures)),
            section("timeline", "Overview of time", known(figures, timeline)),
        ],
    }
}

/// Returns a part of the page whose figures depend on all calls of MPI, or that they are not known.
pub(super) fn known(figures: &RunFigures, of: fn(&RunFigures) -> Markup) -> Markup {
    match figures.lost_time.mpi.knows_waits() {
        true => of(figures),
        false => nothing("These figures are not known, because calls of MPI are missing."),
    }
}

/// Returns the command that answers more about the input.
fn command(figures: &RunFigures, rest: &str) -> String {
    let (name, rest) = rest.split_once(' ').unwrap_or((rest, ""));
    format!("trace-cli {name} {} {rest}", figures.input)
        .trim_end()
        .to_owned()
}

/// Returns the title, what ran, and the answer: which rank makes others wait.
fn top(figures: &RunFigures) -> Markup {
    let lost = &figures.lost_time;
    let answer = why_sentence(lost);
    let next = main_causes(lost)
        .map(cause_sentence)
        .filter(|next| *next != answer);
    let next: Vec<String> = next.collect();
    html! {
        h1 { bdi { (sentence(&figures.title)) } }
        p.quiet { (sentence(&figures.info.sentence())) }
        @if let Some(end) = &figures.end {
            p.answer { (sentence(end)) }
        }
        p.answer { (sentence(&answer)) }
        @if !next.is_empty() {
            ul { @for cause in &next { li { (sentence(cause)) } } }
        }
    }
}

/// Returns which part of the trace the figures are of.
pub(super) fn window_sentence(figures: &RunFigures) -> String {
    let (from, to) = (time::instant(figures.from_ns), time::instant(figures.to_ns));
    let of_window = match figures.choice {
        PartOfRun::Whole => format!("The figures are of the whole trace, from {from} to {to}."),
        PartOfRun::WithoutStartAndEnd => format!(
            "The figures are of the time from {from} to {to}: MPI_Init and MPI_Finalize are left out (--all includes them)."
        ),
        PartOfRun::Given => format!("The figures are of the time window from {from} to {to}."),
    };
    match &figures.filter {
        None => of_window,
        Some(filter) => format!(
            "{of_window} Only events of {filter} count; the efficiencies are those of all ranks."
        ),
    }
}

/// Returns the factors of a model. `None` if the run has no time.
pub(super) fn factors(lost: &LostTime, model: EfficiencyModel) -> Option<&Efficiencies> {
    lost.efficiencies.iter().find(|of| of.model == model)
}

/// Returns the most important figures, a name and a text each.
pub(super) fn key_figures(figures: &RunFigures) -> Vec<(&'static str, String)> {
    let lost = &figures.lost_time;
    let found = factors(lost, EfficiencyModel::Multiplicative);
    let ranks = match lost.mpi.knows_waits() {
        true => lost.ranks.len(),
        false => figures.info.rank_count(),
    };
    let factor = |of: fn(&Efficiencies) -> Option<f64>| {
        let factor = found.and_then(of);
        factor.map_or_else(|| "-".to_owned(), percent)
    };
    let is_lost = figures.info.missing_events();
    vec![
        (
            "time of the run",
            time::duration(lost.to_ns.saturating_sub(lost.from_ns).max(0)),
        ),
        ("ranks", time::grouped(ranks as u64)),
        ("parallel efficiency", factor(|of| Some(of.parallel))),
        ("load balance", factor(|of| of.load_balance)),
        ("communication efficiency", factor(|of| of.communication)),
        ("events", time::grouped(figures.info.events())),
        ("events lost", is_lost.unwrap_or_else(|| "0".to_owned())),
    ]
}

fn summary(figures: &RunFigures) -> Markup {
    let info = &figures.info;
    let processes = info.process_table(MOST_ROWS);
    let of_processes = DataTable {
        total: info.process_count(),
        command: &command(figures, "info --json"),
        ..DataTable::whole("Processes", &processes)
    };
    let mut properties = info.properties();
    let left_out = properties.len().saturating_sub(MOST_ROWS);
    properties.truncate(MOST_ROWS);
    html! {
        ul.cards {
            @for (name, text) in key_figures(figures) {
                li { span.figure { (sentence(&text)) } span.what { (name) } }
            }
        }
        p { (sentence(&window_sentence(figures))) }
        (facts(&info.facts()))
        (facts(&info.machine()))
        (data_table(&of_processes))
        @if !properties.is_empty() {
            details {
                summary { "Properties of the processes" }
                (facts(&properties))
                @if left_out > 0 {
                    p.note { (counted(left_out as u64, "more")) " are left out: " code { (command(figures, "info")) } " shows all." }
                }
            }
        }
    }
}

/// A factor of the parallel efficiency.
pub(super) struct Factor {
    /// Depth in the tree of factors, from 0.
    depth: usize,
    /// Its name.
    pub(super) name: &'static str,
    /// Returns its value, from 0 to 1. `None` if it is not known.
    pub(super) value: fn(&Efficiencies) -> Option<f64>,
}

const fn factor(
    depth: usize,
    name: &'static str,
    value: fn(&Efficiencies) -> Option<f64>,
) -> Factor {
    Factor { depth, name, value }
}

/// The factors in their order.
pub(super) const FACTORS: [Factor; 5] = [
    factor(0, "parallel efficiency", |of| Some(of.parallel)),
    factor(1, "load balance", |of| of.load_balance),
    factor(1, "communication efficiency", |of| of.communication),
    factor(2, "serialisation", |of| of.serialisation),
    factor(2, "transfer", |of| of.transfer),
];

fn efficiencies(figures: &RunFigures) -> Markup {
    let lost = &figures.lost_time;
    let models = [EfficiencyModel::Multiplicative, EfficiencyModel::Additive];
    let [Some(multiplicative), Some(additive)] = models.map(|model| factors(lost, model)) else {
        return nothing("There are no efficiencies: no rank has two events at different times.");
    };
    let text = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), percent);
    let mut table = Table::new(&[
        ("factor", Align::Left),
        ("multiplicative", Align::Right),
        ("additive", Align::Right),
    ]);
    let mut drawn = Vec::new();
    for Factor { depth, name, value } in FACTORS {
        let (first, second) = (value(multiplicative), value(additive));
        if first.is_none() && second.is_none() {
            continue;
        }
        table.row(vec![name.to_owned(), text(first), text(second)]);
        drawn.push(Bar {
            label: format!("{}{name}", "– ".repeat(depth)),
            value: text(first),
            segments: vec![Segment {
                class: "useful",
                share: first.unwrap_or(0.0).clamp(0.0, 1.0),
            }],
            title: format!("{name}: {}", text(first)),
        });
    }
    let caption = "Factors of the parallel efficiency; 100 % is no time lost";
    let of_table = [DataTable::whole("Efficiencies of both models", &table)];
    html! {
        p {
            "Parallel efficiency is the mean share of useful time. It is load balance × communication efficiency; the latter is "
            "serialisation (waiting for others) × transfer (moving data)."
        }
        (figure(caption, &bars(&drawn), &of_table))
    }
}

fn waits(figures: &RunFigures) -> Markup {
    let lost = &figures.lost_time;
    if lost.wait_states.iter().all(|row| row.wait_ns == 0) {
        return nothing(match lost.ranks.len() {
            0 | 1 => "There are no wait states: fewer than two ranks communicate.",
            _ => {
                "There are no wait states: no rank waits for another in messages or collective operations."
            }
        });
    }
    let mut sums: BTreeMap<WaitPattern, (i64, f64)> = BTreeMap::new();
    for row in &lost.wait_states {
        let Some(pattern) = row.pattern else { continue };
        let sum = sums.entry(pattern).or_default();
        sum.0 = sum.0.saturating_add(row.wait_ns);
        sum.1 += row.share;
    }
    let mut sums: Vec<(WaitPattern, (i64, f64))> = sums.into_iter().collect();
    sums.sort_by_key(|(pattern, (wait_ns, _))| (std::cmp::Reverse(*wait_ns), *pattern));
    let mut table = Table::new(&[
        ("wait state", Align::Left),
        ("sum", Align::Right),
        ("% of run", Align::Right),
    ]);
    let mut drawn = Vec::new();
    for (pattern, (wait_ns, of_run)) in &sums {
        let (name, sum) = (pattern.words(), time::duration(*wait_ns));
        table.row(vec![
            name.to_owned(),
            sum.clone(),
            format!("{:.1}", of_run * 100.0),
        ]);
        drawn.push(Bar {
            label: name.to_owned(),
            value: percent(*of_run),
            segments: vec![Segment {
                class: "mpi",
                share: of_run.clamp(0.0, 1.0),
            }],
            title: format!("{name}: {sum}, {} of the run", percent(*of_run)),
        });
    }
    let caption = "Waiting time by wait state, as a share of the time of all ranks";
    let shown = lost.wait_states.iter().take(MOST_ROWS).cloned();
    let shown: Vec<_> = shown.chain(other_mpi_row(lost)).collect();
    let by_path = Table::of(&shown);
    let by_path = DataTable {
        total: lost.wait_states.len() + usize::from(lost.other_mpi_ns > 0),
        command: &command(figures, "why --by region --csv"),
        ..DataTable::whole("Wait states by call path", &by_path)
    };
    let causes = Table::of(&lost.causes[..lost.causes.len().min(MOST_ROWS)]);
    let causes = DataTable {
        total: lost.causes.len(),
        command: &command(figures, "why --csv"),
        ..DataTable::whole("Ranks that make others wait", &causes)
    };
    html! {
        (figure(caption, &bars(&drawn), &[DataTable::whole("Waiting time by wait state", &table)]))
        (data_table(&causes))
        (data_table(&by_path))
        (data_table(&DataTable::whole("Longest single waits", &Table::of(&lost.worst))))
    }
}

/// Returns the critical path: what was done on it, and where it was.
fn critical_path(figures: &RunFigures) -> Markup {
    let path = figures.lost_time.critical_path.as_ref();
    let Some(path) = path.filter(|path| path.stays > 0) else {
        return nothing("There is no critical path: no rank has two events at different times.");
    };
    let drawn = path.ranks.iter().filter(|row| row.path_ns > 0);
    let mut drawn: Vec<&PathRank> = drawn.collect();
    drawn.sort_by_key(|row| (std::cmp::Reverse(row.path_ns), row.rank));
    let left_out = drawn.len().saturating_sub(MOST_RANKS);
    drawn.truncate(MOST_RANKS);
    let drawn = drawn.iter().map(|row| Bar {
        label: format!("rank {}", row.rank),
        value: percent(row.share),
        segments: vec![Segment {
            class: "useful",
            share: row.share.clamp(0.0, 1.0),
        }],
        title: format!("rank {}: {}", row.rank, time::duration(row.path_ns)),
    });
    let drawn: Vec<Bar> = drawn.collect();
    let shown = path.regions.len().min(MOST_ROWS);
    let regions = Table::of(&path.regions[..shown]);
    let regions = DataTable {
        total: path.regions.len(),
        command: &command(figures, "why --by path --csv"),
        ..DataTable::whole("Regions on the critical path", &regions)
    };
    let shown = path.ranks.len().min(MOST_CELLS);
    let ranks = Table::of(&path.ranks[..shown]);
    let ranks = DataTable {
        total: path.ranks.len(),
        command: &command(figures, "why --by path"),
        ..DataTable::whole("Ranks on the critical path", &ranks)
    };
    let caption = match left_out {
        0 => "Ranks on the critical path, as a share of its length".to_owned(),
        _ => format!(
            "The {MOST_RANKS} ranks that are longest on the critical path, as a share of its length"
        ),
    };
    html! {
        p {
            "The chain of work and transfer that decided how long the run took: each instant is on one rank. Where a region is longer "
            "on it than in the mean of all ranks, a better balance would shorten the run."
        }
        (figure(&caption, &bars(&drawn), &[ranks]))
        (data_table(&regions))
    }
}

/// The times of some ranks: their means, nanoseconds.
struct GroupTimes {
    ranks: RankGroup,
    useful_ns: i64,
    mpi_ns: i64,
    idle_ns: i64,
    wait_ns: i64,
    useful_max_ns: i64,
}

annals_analysis::columns! {
    GroupTimes;
    "" Text headed "ranks", |row| row.ranks.numbers();
    "" Duration headed "useful, mean", |row| row.useful_ns;
    "" Duration headed "useful, largest", |row| row.useful_max_ns;
    "" Duration headed "in MPI, mean", |row| row.mpi_ns;
    "" Duration headed "idle, mean", |row| row.idle_ns;
    "" Duration headed "waits, mean", |row| row.wait_ns;
}

fn group_times(ranks: &[RankTimes]) -> Vec<GroupTimes> {
    let each = ranks.len().div_ceil(MOST_RANKS).max(1);
    let groups = ranks.chunks(each).filter_map(|group| {
        let mean = |of: fn(&RankTimes) -> i64| {
            let sum: i128 = group.iter().map(|times| i128::from(of(times))).sum();
            (sum / group.len() as i128) as i64
        };
        Some(GroupTimes {
            ranks: RankGroup {
                first: group.first()?.rank,
                last: group.last()?.rank,
            },
            useful_ns: mean(|times| times.useful_ns),
            mpi_ns: mean(|times| times.mpi_ns),
            idle_ns: mean(|times| times.idle_ns),
            wait_ns: mean(|times| times.wait_ns),
            useful_max_ns: group.iter().map(|times| times.useful_ns).max()?,
        })
    });
    groups.collect()
}

/// Returns the picture of useful time, MPI and idle time by rank, with its table.
pub(super) fn balance_figure(figures: &RunFigures) -> Markup {
    let lost = &figures.lost_time;
    let groups = group_times(&lost.ranks);
    let is_grouped = groups.len() < lost.ranks.len();
    let run_ns = lost.to_ns.saturating_sub(lost.from_ns).max(0);
    let drawn = groups.iter().map(|times| {
        let kinds = [
            ("useful", times.useful_ns),
            ("mpi", times.mpi_ns),
            ("idle", times.idle_ns),
        ];
        Bar {
            label: times.ranks.label(),
            value: part(times.useful_ns, run_ns),
            segments: kinds
                .iter()
                .map(|(class, ns)| Segment {
                    class,
                    share: share(*ns, run_ns),
                })
                .collect(),
            title: format!(
                "{}: useful {}, MPI {}, idle {}",
                times.ranks.label(),
                time::duration(times.useful_ns),
                time::duration(times.mpi_ns),
                time::duration(times.idle_ns)
            ),
        }
    });
    let drawn: Vec<Bar> = drawn.collect();
    let (caption, table) = if is_grouped {
        (
            "Mean times of ranks, which share bars; the value is the useful time",
            Table::of(&groups),
        )
    } else {
        (
            "Times by rank; the value is the useful time",
            Table::of(&lost.ranks),
        )
    };
    let key = [("useful", "useful"), ("mpi", "in MPI"), ("idle", "idle")];
    let picture = html! { (bars(&drawn)) (legend(&key)) };
    figure(
        caption,
        &picture,
        &[DataTable::whole("Times by rank", &table)],
    )
}

fn balance(figures: &RunFigures) -> Markup {
    let ranks = &figures.lost_time.ranks;
    if ranks.is_empty() {
        return nothing("Nothing is known of any rank: none has an event in the window.");
    }
    let useful = ranks.iter().map(|times| (times.useful_ns, times.rank));
    let largest = useful
        .clone()
        .max_by_key(|(ns, rank)| (*ns, std::cmp::Reverse(*rank)));
    let smallest = useful.min();
    let mut busiest: Vec<RankTimes> = ranks.clone();
    busiest.sort_by_key(|times| (std::cmp::Reverse(times.useful_ns), times.rank));
    busiest.truncate(20);
    let table = Table::of(&busiest);
    let busiest = DataTable {
        total: ranks.len(),
        command: &command(figures, "why --by rank"),
        ..DataTable::whole("Ranks with the most useful time", &table)
    };
    html! {
        @if let (Some(largest), Some(smallest), true) = (largest, smallest, ranks.len() > 1) {
            p {
                "Most useful time: rank " (largest.1) " with " (time::duration(largest.0))
                ". Least: rank " (smallest.1) " with " (time::duration(smallest.0)) "."
            }
        }
        (balance_figure(figures))
        @if ranks.len() > MOST_RANKS { (data_table(&busiest)) }
    }
}

/// Returns the cells of the heat map, by the groups of sender and receiver.
fn heat_cells(
    pairs: &[MessagePairRow],
    groups: &[RankGroup],
) -> BTreeMap<(usize, usize), HeatCell> {
    let group_of = |rank: u32| groups.partition_point(|group| group.last < rank);
    let has_bytes = pairs.iter().any(|row| row.bytes != 0);
    let mut cells: BTreeMap<(usize, usize), HeatCell> = BTreeMap::new();
    for row in pairs {
        let cell = cells
            .entry((group_of(row.from_rank), group_of(row.to_rank)))
            .or_default();
        cell.bytes = cell.bytes.saturating_add(row.bytes);
        cell.count = cell.count.saturating_add(row.count);
        cell.value = if has_bytes { cell.bytes } else { cell.count };
    }
    cells
}

fn messages(figures: &RunFigures) -> Markup {
    let Some(found) = &figures.messages else {
        return nothing("There are no messages: no event type has the role send or receive.");
    };
    if found.pairs.is_empty() {
        return nothing(&message_sentence(found));
    }
    let ranks = figures.lost_time.ranks.iter().map(|times| times.rank);
    let of_pairs = found
        .pairs
        .iter()
        .flat_map(|row| [row.from_rank, row.to_rank]);
    let mut ranks: Vec<u32> = ranks.chain(of_pairs).collect();
    ranks.sort_unstable();
    ranks.dedup();
    let groups = rank_groups(&ranks, MOST_HEAT);
    let cells = heat_cells(&found.pairs, &groups);
    let has_bytes = found.pairs.iter().any(|row| row.bytes != 0);
    let what = if has_bytes {
        "Bytes"
    } else {
        "Number of messages"
    };
    let each = ranks.len().div_ceil(MOST_HEAT);
    let shared = match each {
        0 | 1 => String::new(),
        each => format!("; {each} ranks share a row or column"),
    };
    let caption = format!("{what} by sending and receiving rank{shared}");
    let numbers = |place: usize| {
        groups
            .get(place)
            .map_or_else(String::new, |of| of.numbers())
    };
    let describe = |from: usize, to: usize, cell: &HeatCell| {
        let (count, bytes) = (counted(cell.count, "message"), time::bytes(cell.bytes));
        format!("{} to {}: {count}, {bytes}", numbers(from), numbers(to))
    };
    let most = cells.values().map(|cell| cell.value).max().unwrap_or(0);
    let most = if has_bytes {
        time::bytes(most)
    } else {
        time::grouped(most)
    };
    let picture = html! { (heat_map(&groups, &cells, &caption, describe)) (heat_scale(&most)) };
    let mut largest: Vec<(&(usize, usize), &HeatCell)> = cells.iter().collect();
    largest.sort_by_key(|(place, cell)| (std::cmp::Reverse(cell.value), **place));
    let mut table = Table::new(&[
        ("from", Align::Left),
        ("to", Align::Left),
        ("messages", Align::Right),
        ("bytes", Align::Right),
    ]);
    for ((from, to), cell) in largest.iter().take(MOST_CELLS) {
        let (count, bytes) = (time::grouped(cell.count), time::bytes(cell.bytes));
        table.row(vec![numbers(*from), numbers(*to), count, bytes]);
    }
    let all_pairs = command(figures, "messages --csv");
    let of_cells = DataTable {
        total: cells.len(),
        command: &all_pairs,
        ..DataTable::whole("Messages by sending and receiving rank", &table)
    };
    let shown = found.pairs.len().min(MOST_ROWS);
    let pairs = Table::of(&found.pairs[..shown]);
    let pairs = DataTable {
        total: found.pairs.len(),
        command: &all_pairs,
        ..DataTable::whole(
            "Pairs of ranks with the most waiting: latencies and waits",
            &pairs,
        )
    };
    html! {
        p { (sentence(&message_sentence(found))) }
        (figure(&caption, &picture, &[of_cells]))
        (data_table(&pairs))
        p.note { "Of all ranks, from the start of the trace to the end of the window: " (message_counts_text(&found.counts)) "." }
    }
}

fn collectives(figures: &RunFigures) -> Markup {
    let Some(found) = &figures.collectives else {
        return nothing(
            "There are no collective operations: no event type has the role collective-begin.",
        );
    };
    let shown = found.collectives.len().min(MOST_ROWS);
    let rows = &found.collectives[..shown];
    let table = Table::of(rows);
    let of_table = DataTable {
        total: found.collectives.len(),
        command: &command(figures, "collectives --csv"),
        ..DataTable::whole("Collective operations by communicator", &table)
    };
    html! {
        p { (sentence(&collective_sentence(found))) }
        (data_table(&of_table))
        @if found.incomplete != 0 {
            p.note { (counted(found.incomplete, "operation")) " not begun by all members." }
        }
    }
}

fn calls(figures: &RunFigures) -> Markup {
    let (calls, regions) = (&figures.calls, &figures.regions.regions);
    if calls.useful.is_empty() && calls.others.is_empty() {
        return nothing(
            "There are no calls: no event type enters and leaves regions, or no region was entered in the window.",
        );
    }
    let [useful, others] = [&calls.useful, &calls.others].map(|calls| Table::of(calls));
    let shown = Table::of(&regions[..regions.len().min(MOST_ROWS)]);
    let of_regions = DataTable {
        total: regions.len(),
        command: &command(figures, "regions --csv"),
        ..DataTable::whole("Regions with the most time in themselves", &shown)
    };
    let has_idle = calls
        .others
        .iter()
        .any(|call| call.kind == RegionKind::Idle);
    let caption = if has_idle {
        "Slowest calls of MPI, and idle ones"
    } else {
        "Slowest calls of MPI"
    };
    html! {
        p { "Exclusive time is the time in the call itself, inclusive time that with the calls that it makes. Regions have the calls that were entered in the window. ~ marks what a loss may have changed." }
        (data_table(&DataTable::whole("Slowest calls of the program", &useful)))
        (data_table(&DataTable::whole(caption, &others)))
        (data_table(&of_regions))
    }
}

fn samples(figures: &RunFigures) -> Markup {
    let Some((rows, summary)) = &figures.samples else {
        return nothing("There are no samples: trace-cli record --sample records them.");
    };
    let shown = Table::of(&rows[..rows.len().min(MOST_ROWS)]);
    let of_functions = DataTable {
        total: rows.len(),
        command: &command(figures, "samples --csv"),
        ..DataTable::whole("Functions with the most sampled processor time", &shown)
    };
    let whole = match figures.choice {
        PartOfRun::Whole => "the run",
        PartOfRun::WithoutStartAndEnd | PartOfRun::Given => "the window",
    };
    html! {
        p { (sentence(&sample_sentence(rows, summary, whole))) }
        p { (sentence(&sampling_sentences(summary))) }
        (data_table(&of_functions))
    }
}

/// Returns what was lost.
pub(super) fn losses(figures: &RunFigures) -> Markup {
    let of_table = DataTable {
        total: figures.loss_rows,
        command: &command(figures, "dropped --sum"),
        ..DataTable::whole(
            "Lost events by stream, event type and cause",
            &figures.losses,
        )
    };
    html! {
        @match figures.info.missing_events() {
            None => p { "Nothing was lost in the whole trace." },
            Some(missing) => p.alarm { "In the whole trace: " (sentence(&missing)) "." },
        }
        @if !figures.info.is_complete() {
            p { "The recording is not complete: figures may be smaller than the truth." }
        }
        @if !figures.losses.is_empty() {
            (data_table(&of_table))
        } @else if figures.info.missing_events().is_some() {
            (nothing("No loss is in the window."))
        }
    }
}

/// Sums of a row of the overview, nanoseconds.
#[derive(Clone, Copy, Default)]
struct Sums {
    mpi_ns: i64,
    idle_ns: i64,
    life_ns: i64,
    whole_ns: i64,
}

impl Sums {
    /// Returns the sums of both.
    const fn with(self, more: &Self) -> Self {
        Self {
            mpi_ns: self.mpi_ns.saturating_add(more.mpi_ns),
            idle_ns: self.idle_ns.saturating_add(more.idle_ns),
            life_ns: self.life_ns.saturating_add(more.life_ns),
            whole_ns: self.whole_ns.saturating_add(more.whole_ns),
        }
    }

    fn useful_ns(&self) -> i64 {
        let busy_ns = self.mpi_ns.saturating_add(self.idle_ns);
        self.life_ns.saturating_sub(busy_ns).max(0)
    }

    fn texts(&self) -> [String; 4] {
        let away_ns = self.whole_ns.saturating_sub(self.life_ns).max(0);
        [self.useful_ns(), self.mpi_ns, self.idle_ns, away_ns].map(|ns| part(ns, self.whole_ns))
    }
}

/// Adds up the parts of a row from one number to another.
fn sums(row: &OverviewRow, from: usize, to: usize) -> Sums {
    let bins = row.bins.iter().zip(&row.life_ns).zip(&row.whole_ns);
    let parts = bins.skip(from).take(to - from);
    parts.fold(Sums::default(), |sums, ((times, life_ns), whole_ns)| {
        sums.with(&Sums {
            mpi_ns: times.mpi_ns,
            idle_ns: times.idle_ns,
            life_ns: *life_ns,
            whole_ns: *whole_ns,
        })
    })
}

fn timeline(figures: &RunFigures) -> Markup {
    let rows = &figures.overview;
    // What is lost is no useful time.
    let is_empty = rows
        .iter()
        .all(|row| row.whole_ns.iter().all(|ns| *ns == 0));
    if is_empty || figures.lost_time.ranks.is_empty() {
        return nothing("There is no overview: no location has events in the window.");
    }
    let columns = [
        ("useful", Align::Right),
        ("in MPI", Align::Right),
        ("idle", Align::Right),
        ("not running", Align::Right),
    ];
    let with = |first: (&'static str, Align)| {
        let all: Vec<(&'static str, Align)> = std::iter::once(first).chain(columns).collect();
        Table::new(&all)
    };
    let mut by_rank = with(("ranks", Align::Left));
    let mut drawn = Vec::new();
    for row in rows {
        let whole = sums(row, 0, row.bins.len());
        let [useful, mpi, idle, away] = whole.texts();
        let label = row.ranks.label();
        let share_of = |ns: i64, place: usize| share(ns, row.whole_ns[place]);
        let bins = row.bins.iter().enumerate();
        drawn.push(AreaRow {
            title: format!("{label}: useful {useful}, in MPI {mpi}, idle {idle}"),
            label,
            bottom: bins
                .clone()
                .map(|(place, times)| share_of(times.mpi_ns, place))
                .collect(),
            middle: bins
                .clone()
                .map(|(place, times)| share_of(times.idle_ns, place))
                .collect(),
            top: bins
                .map(|(place, _)| {
                    share_of(
                        row.whole_ns[place].saturating_sub(row.life_ns[place]),
                        place,
                    )
                })
                .collect(),
        });
        by_rank.row(vec![row.ranks.numbers(), useful, mpi, idle, away]);
    }
    let mut by_time = with(("from", Align::Left));
    let each = OVERVIEW_BINS / 10;
    for tenth in 0..10 {
        let whole = rows.iter().fold(Sums::default(), |whole, row| {
            whole.with(&sums(row, tenth * each, (tenth + 1) * each))
        });
        let [useful, mpi, idle, away] = whole.texts();
        let from = time::instant(figures.tenth_ns(tenth));
        by_time.row(vec![from, useful, mpi, idle, away]);
    }
    let axis = [0, 5, 10].map(|tenth| time::instant(figures.tenth_ns(tenth)));
    let key = [
        ("useful", "useful"),
        ("mpi", "in MPI"),
        ("idle", "idle"),
        ("empty", "not running"),
    ];
    let picture = html! { (areas(&drawn, &axis)) (legend(&key)) };
    let tables = [
        DataTable::whole("Shares by rank", &by_rank),
        DataTable::whole("Shares of all ranks by tenth of the time", &by_time),
    ];
    html! {
        (figure("The first thread of each rank over time", &picture, &tables))
        @if !figures.losses.is_empty() {
            p.note { "Events are lost in this time: what was lost counts as the time around it." }
        }
        p.note {
            "Single calls, messages and losses over time: " code { (command(figures, "timeline --svg timeline.svg")) } "."
        }
    }
}
