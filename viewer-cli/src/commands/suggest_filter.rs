//! `trace-cli suggest-filter`: short, frequent regions, and the filter that leaves them out.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::Write;
use std::path::{Path, PathBuf};

use annals_analysis::{
    Grouping, RegionStats, call_cost_ns, count_region_statistics, uncertain_text,
};
use annals_format::Definitions;
use annals_merger::{Compiler, CompilerFamily, ReadSummary, Reader, Sums, Symbols, Window};
use clap::Args;
use globset::Glob;
use serde::Serialize;

use super::{InputArguments, opt_duration, percent, warn_of_damage};
use crate::compiler_flags::{CompilerFlags, SourceFunction, compiler_flags};
use crate::file::{FILTER, ForceArgument};
use crate::filter::{FilterArguments, WindowArguments};
use crate::names::shorten;
use crate::output::{self, Finding};
use crate::rule::{RegionRule, comment};
use crate::table::{Screen, Table, safe};
use crate::time;
use crate::views::{numbered, shell_word};

/// Short, frequent regions, and the filter that leaves them out.
///
/// A region is suggested when it was called at least N times (--at-least) and its calls took less than
/// TIME on average (--shorter-than; the regions that it called included). A call is an enter and a leave;
/// events saved are the enters and leaves that are there. Bytes saved are an estimate: events saved
/// times the bytes of the input on disk, divided by its events. It is too high where other events are
/// larger, such as those with text, and for short recordings, which are definitions for the most part.
/// How much time the program saves is not estimated. For functions compiled with -finstrument-functions, flags
/// follow with which their compiler leaves them out.
///
/// The window, --rank, --source and --location choose what is counted, and shares are those of what
/// they choose (--event changes nothing here); a rule holds for the whole run. Rules match names: regions of the same
/// name count as one. Enters and leaves that a program raises with its private event types are not saved: rules about
/// regions do not reach them. As in `trace-cli regions`, the true number of calls lies within calls ± uncertain; `~`
/// marks times that a loss may have changed.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:\n  trace-cli suggest-filter run.annals\n  \
                  trace-cli suggest-filter run.annals --shorter-than 1us --top 10 -o filter.txt\n  \
                  ANNALS_FILTER=@filter.txt ./program\n\n\
                  Exit codes: 0 fine (also when there is nothing to suggest), 1 failed, 2 wrong \
                  usage, 3 finished, but data had to be skipped.")]
pub struct SuggestFilterArguments {
    #[command(flatten)]
    input: InputArguments,
    #[command(flatten)]
    window: WindowArguments,
    #[command(flatten)]
    filter: FilterArguments,

    /// Maximum mean time of a call (exclusive). Default: four times what recording a call cost, or 10us where that is not known
    #[arg(long, value_name = "TIME", value_parser = annals_format::units::parse_time)]
    shorter_than: Option<i64>,

    /// Minimum number of calls
    #[arg(long, value_name = "N", default_value_t = 1000)]
    at_least: u64,

    /// Most regions to suggest
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    top: Option<u64>,

    /// Write the filter to a file, for ANNALS_FILTER=@FILE, rather than print it.
    ///
    /// An existing filter is replaced; any other file is not changed. To keep earlier rules, write
    /// to another file and concatenate the two: the lines of several filters make one.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    #[command(flatten)]
    force: ForceArgument,
}

#[derive(Clone, Debug, Serialize)]
struct Criteria {
    shorter_than_ns: i64,
    at_least: u64,
    top: Option<u64>,
}

/// One region of `suggest-filter --json`.
#[derive(Clone, Debug)]
struct Suggestion {
    name: String,
    calls: u64,
    uncertain_calls: u64,
    uncertain_calls_is_lower_bound: bool,
    mean_ns: i64,
    time_is_uncertain: bool,
    events_saved: u64,
    bytes_saved_estimate: u64,
    /// Share of all counted events.
    share: f64,
    /// A line for each name that the region had while the program ran.
    rule: String,
    /// Whether the rule matches this region only.
    rule_is_exact: bool,
    /// Other regions of the input that the rule switches off.
    also_switched_off: Vec<String>,
}

annals_analysis::columns! {
    Suggestion, uncertain time_is_uncertain, json also_switched_off;
    "region" Name headed "region", |row| &row.name;
    "calls" Count headed "calls", |row| row.calls;
    "uncertain_calls" Count, |row| row.uncertain_calls;
    "" Number if_any_and_room "± uncertain", |row| uncertain_text(row.uncertain_calls, row.uncertain_calls_is_lower_bound);
    "uncertain_calls_is_lower_bound" Flag, |row| row.uncertain_calls_is_lower_bound;
    "mean_ns" Duration marked "mean", |row| row.mean_ns;
    "time_is_uncertain" Flag, |row| row.time_is_uncertain;
    "events_saved" Count headed "events saved", |row| row.events_saved;
    "share" Share if_room "share %", |row| row.share;
    "bytes_saved_estimate" Bytes headed "bytes saved, estimated", |row| row.bytes_saved_estimate;
    "rule" Text, |row| &row.rule;
    "rule_is_exact" Flag, |row| row.rule_is_exact;
}

/// The output of `suggest-filter --json`.
#[derive(Clone, Debug, Serialize)]
struct Suggestions {
    criteria: Criteria,
    regions: Vec<Suggestion>,
    /// Regions that met the criteria, including those beyond `top`.
    candidates: usize,
    events_saved: u64,
    bytes_saved_estimate: u64,
    share: f64,
    /// Events in the window, of the streams chosen.
    events: u64,
    /// Of the whole input, on disk.
    bytes: u64,
    bytes_per_event: Option<f64>,
    /// The filter's text.
    filter: String,
    /// What leaves compiled functions out of the program, by compiler. Empty if there are none to leave out.
    compiler_flags: Vec<CompilerFlags>,
    /// The message when there is nothing to suggest.
    #[serde(skip)]
    most_frequent: Option<(String, RegionStats)>,
}

impl Criteria {
    fn text(&self) -> String {
        let calls = if self.at_least == 1 { "call" } else { "calls" };
        let mean = time::duration(self.shorter_than_ns);
        format!("at least {} {calls} and a mean below {mean}", self.at_least)
    }
}

fn mean_ns(stats: &RegionStats) -> Option<i64> {
    stats.counted.completed.mean()
}

/// Statistics of all regions of a name.
fn by_name(
    definitions: &Definitions,
    stats: impl Iterator<Item = (annals_format::RegionId, RegionStats)>,
) -> BTreeMap<&str, RegionStats> {
    let mut named: BTreeMap<&str, RegionStats> = BTreeMap::new();
    for (id, stats) in stats {
        // Without its definition, a region's name is not known, and no rule can name it.
        let Some(region) = definitions.regions.get(&id) else {
            continue;
        };
        let sum = named.entry(definitions.string(region.name)).or_default();
        sum.add(&stats);
    }
    named
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        return 0.0;
    }
    part as f64 / whole as f64
}

/// Returns below which mean time of a call its region is suggested unless users say otherwise, nanoseconds.
fn default_limit_ns(definitions: &Definitions) -> i64 {
    // A function with longer calls may be what the program is about; its recording takes a quarter of its time at most.
    const LONG: f64 = 4.0;
    const UNKNOWN_NS: i64 = 10_000;
    let cost_ns = call_cost_ns(definitions);
    cost_ns.map_or(UNKNOWN_NS, |cost_ns| (LONG * cost_ns).ceil() as i64)
}

fn suggest(
    opened: &Reader,
    window: Window,
    arguments: &SuggestFilterArguments,
) -> anyhow::Result<(Suggestions, ReadSummary)> {
    let definitions = opened.definitions();
    let filter = arguments.filter.query(definitions, window)?;
    let (stats, events, outcome) = count_region_statistics(opened, &filter, Grouping::None)?;
    let stats = stats.into_iter();
    let stats = stats
        .map(|((_, region), stats)| (region, stats))
        .filter(|(region, _)| filter.takes_region(*region));
    let bytes = opened.origin().bytes;
    let present = Sums::of(&outcome.totals).present();
    let bytes_per_event = (present != 0).then(|| bytes as f64 / present as f64);
    let bytes_of = |events: u64| (events as f64 * bytes_per_event.unwrap_or(0.0)).round() as u64;

    let shorter_than_ns = arguments.shorter_than;
    let shorter_than_ns = shorter_than_ns.unwrap_or_else(|| default_limit_ns(definitions));
    let mut regions = Vec::new();
    let recorded = recorded_names(definitions);
    let named = by_name(definitions, stats);
    let most_frequent = named.iter().max_by_key(|(_, stats)| stats.ruled_events);
    let most_frequent = most_frequent
        .filter(|(_, stats)| stats.ruled_events != 0)
        .map(|(name, stats)| ((*name).to_owned(), (*stats).clone()));
    let calls = named
        .iter()
        .map(|(name, stats)| (*name, stats.counted.calls));
    let calls: BTreeMap<&str, u64> = calls.collect();
    for (name, stats) in named {
        let Some(mean_ns) = mean_ns(&stats).filter(|mean_ns| *mean_ns < shorter_than_ns) else {
            continue;
        };
        if stats.ruled_events == 0 || stats.counted.calls < arguments.at_least {
            continue;
        }
        let rules = recorded[name].iter().map(|name| RegionRule::off(name));
        let rules: Vec<RegionRule> = rules.collect();
        regions.push(Suggestion {
            name: name.to_owned(),
            calls: stats.counted.calls,
            uncertain_calls: stats.uncertain_calls,
            uncertain_calls_is_lower_bound: stats.uncertain_is_lower_bound,
            mean_ns,
            time_is_uncertain: stats.counted.is_time_uncertain,
            events_saved: stats.ruled_events,
            bytes_saved_estimate: bytes_of(stats.ruled_events),
            share: share(stats.ruled_events, events),
            also_switched_off: others(definitions, name, &rules)?,
            rule_is_exact: rules.iter().all(|rule| rule.is_exact),
            rule: lines(rules),
        });
    }
    // By name where that is the same: the map had them in that order, and sorting keeps it.
    regions.sort_by_key(|region| std::cmp::Reverse(region.events_saved));
    let candidates = regions.len();
    if let Some(top) = arguments.top {
        regions.truncate(usize::try_from(top).unwrap_or(usize::MAX));
    }
    let events_saved = regions.iter().map(|region| region.events_saved).sum();
    let criteria = Criteria {
        shorter_than_ns,
        at_least: arguments.at_least,
        top: arguments.top,
    };
    let suggestions = Suggestions {
        compiler_flags: flags(definitions, &arguments.input.symbols, &regions, &calls)?,
        filter: filter_text(&arguments.input.input, &criteria, &regions),
        criteria,
        regions,
        candidates,
        events_saved,
        bytes_saved_estimate: bytes_of(events_saved),
        share: share(events_saved, events),
        events,
        bytes,
        bytes_per_event,
        most_frequent,
    };
    Ok((suggestions, outcome))
}

/// Returns the flags that leave the functions among these regions out, for each compiler that made functions of the recording; for each
/// that could have made them if the debug information does not say. `symbols` are directories with files of the program, and `calls` are
/// those of all regions by name.
fn flags(
    definitions: &Definitions,
    symbols: &[PathBuf],
    regions: &[Suggestion],
    calls: &BTreeMap<&str, u64>,
) -> anyhow::Result<Vec<CompilerFlags>> {
    let suggested: BTreeSet<&str> = regions.iter().map(|region| &*region.name).collect();
    let mut all = BTreeSet::new();
    for region in definitions
        .functions
        .values()
        .map(|function| function.region)
    {
        let symbol = definitions.symbols.get(&region).map(|symbol| symbol.file);
        let file = definitions.regions.get(&region).map(|region| region.file);
        let files = [file, symbol]
            .into_iter()
            .flatten()
            .map(|file| definitions.string(file));
        let name = definitions.region_name(region);
        all.insert(SourceFunction {
            calls: calls.get(&*name).copied().unwrap_or(0),
            name,
            file: files
                .max_by_key(|file| file.len())
                .unwrap_or_default()
                .to_owned(),
        });
    }
    let is_suggested = |function: &&SourceFunction| suggested.contains(&*function.name);
    let left_out: BTreeSet<SourceFunction> = all.iter().filter(is_suggested).cloned().collect();
    if left_out.is_empty() {
        return Ok(Vec::new());
    }
    let symbols = Symbols::of_host_and(symbols)?;
    let mut compilers = symbols.compilers(definitions);
    if compilers.is_empty() {
        let families = [CompilerFamily::Gcc, CompilerFamily::Clang];
        compilers.extend(families.map(|family| Compiler {
            family,
            version: String::new(),
        }));
    }
    let each = compilers.iter();
    let each = each.map(|compiler| compiler_flags(compiler, &left_out, &all));
    Ok(each.collect())
}

/// Returns what is said of flags for compilers: nothing without any.
fn flags_text(of_compilers: &[CompilerFlags]) -> String {
    let mut text = String::new();
    for of in of_compilers {
        if text.is_empty() {
            text.push_str("\nA filter saves events, but each call still calls the recorder twice. Compiled otherwise, it does not.\n");
        }
        if !of.flags.is_empty() {
            let _ = writeln!(text, "For {}, add:", safe(&of.compiler));
        }
        for flag in &of.flags {
            let _ = writeln!(text, "  {}", safe(&shell_word(flag)));
        }
        for (names, what) in [
            (&of.also_left_out, "These flags leave out, too"),
            (
                &of.not_left_out,
                "Mark with __attribute__((no_instrument_function))",
            ),
        ] {
            const MOST: usize = 5;
            const ROOM: usize = 40;
            let shown: Vec<String> = names
                .iter()
                .take(MOST)
                .map(|name| shorten(&safe(name), ROOM))
                .collect();
            let more = match names.len().saturating_sub(MOST) {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            if !shown.is_empty() {
                let _ = writeln!(text, "{what}: {}{more}", shown.join(", "));
            }
        }
    }
    text
}

/// Returns what the regions of each name were called while the program ran: rules are about that.
fn recorded_names(definitions: &Definitions) -> BTreeMap<&str, BTreeSet<Cow<'_, str>>> {
    let mut names: BTreeMap<&str, BTreeSet<_>> = BTreeMap::new();
    for (id, region) in &definitions.regions {
        let of_name = names.entry(definitions.string(region.name)).or_default();
        of_name.extend(definitions.recorded_name(*id));
    }
    names
}

fn lines(rules: Vec<RegionRule>) -> String {
    let rules: Vec<String> = rules.into_iter().map(|rule| rule.rule).collect();
    rules.join("\n")
}

/// Returns other regions that inexact rules match.
fn others(
    definitions: &Definitions,
    name: &str,
    rules: &[RegionRule],
) -> anyhow::Result<Vec<String>> {
    let mut others = BTreeSet::new();
    for rule in rules.iter().filter(|rule| !rule.is_exact) {
        let glob = Glob::new(rule.glob())?.compile_matcher();
        for (id, region) in &definitions.regions {
            let other = definitions.string(region.name);
            let recorded = definitions.recorded_name(*id);
            if other != name && recorded.is_some_and(|recorded| glob.is_match(&*recorded)) {
                others.insert(other.to_owned());
            }
        }
    }
    Ok(others.into_iter().collect())
}

/// Returns the filter: a comment on what it is, and a line for each rule.
fn filter_text(input: &Path, criteria: &Criteria, regions: &[Suggestion]) -> String {
    let mut text = comment(&format!(
        "Regions of {} with {}.",
        input.display(),
        criteria.text()
    ));
    text.push('\n');
    for region in regions {
        if !region.rule_is_exact {
            let what = "In the next rule, ? replaces a byte of the name that a rule cannot contain \
                        (semicolon, line end, other control characters).";
            let _ = writeln!(text, "{}", comment(what));
        }
        if region.rule != RegionRule::off(&region.name).rule {
            let _ = writeln!(text, "{}", comment(&region.name));
        }
        for other in &region.also_switched_off {
            let _ = writeln!(text, "{}", comment(&format!("It matches, too: {other}")));
        }
        let _ = writeln!(text, "{}", region.rule);
    }
    text
}

impl Suggestions {
    /// Returns the text for people, without the filter.
    fn render(&self, input: &Path, screen: Screen) -> String {
        if self.regions.is_empty() {
            let mut text = format!("No region has {}.\n", self.criteria.text());
            if let Some((name, stats)) = &self.most_frequent {
                let calls = stats.counted.calls;
                let mean = opt_duration(mean_ns(stats));
                let calls = numbered(calls, "call");
                let rest = format!("The most frequent is : {calls}, mean {mean}.");
                let room = screen.beside(&rest);
                let name = shorten(&safe(name), room);
                let _ = writeln!(text, "The most frequent is {name}: {calls}, mean {mean}.");
            }
            let input = safe(&input.display().to_string());
            let _ = writeln!(
                text,
                "Try --at-least and --shorter-than, or see `trace-cli regions {input}`."
            );
            return text;
        }
        let mut text = Table::of(&self.regions).render(screen);
        let candidates = numbered(self.candidates, "region");
        let count = match self.regions.len() {
            shown if shown < self.candidates => format!("{shown} of {candidates}"),
            _ => candidates,
        };
        let _ = writeln!(
            text,
            "\nWithout {count}: {} of {} events saved ({} %), about {} of {} on disk",
            self.events_saved,
            self.events,
            percent(self.events_saved, self.events),
            time::bytes(self.bytes_saved_estimate),
            time::bytes(self.bytes),
        );
        text
    }
}

/// Returns `ANNALS_FILTER=@FILE`, quoted for a shell.
fn setting(path: &Path) -> String {
    let path = path.display().to_string();
    let is_plain = |c: char| c.is_alphanumeric() || "/._-+,:@%".contains(c);
    if path.chars().all(is_plain) {
        return format!("ANNALS_FILTER=@{path}");
    }
    safe(&format!("ANNALS_FILTER='@{}'", path.replace('\'', "'\\''")))
}

/// Runs the command.
///
/// # Errors
/// If the input cannot be read, a filter matches nothing, or an output cannot be written.
pub fn run(arguments: &SuggestFilterArguments, out: &mut dyn Write) -> anyhow::Result<Finding> {
    let window = arguments.window.window()?;
    arguments.force.check(arguments.output.as_deref(), FILTER)?;
    let opened = arguments.input.open()?;
    let (suggestions, outcome) = suggest(&opened, window, arguments)?;
    warn_of_damage(&opened, &outcome);
    if let Some(path) = &arguments.output {
        arguments
            .force
            .write(path, suggestions.filter.as_bytes(), FILTER)?;
    }
    let has_rules = !suggestions.regions.is_empty();
    if arguments.input.json {
        output::json(out, &suggestions)?;
    } else {
        out.write_all(
            suggestions
                .render(&arguments.input.input, arguments.input.screen())
                .as_bytes(),
        )?;
        if arguments.output.is_none() && has_rules {
            let head =
                "\nThe filter, to be saved as FILE for ANNALS_FILTER=@FILE (-o FILE does it):\n";
            write!(out, "{head}\n{}", suggestions.filter)?;
        }
        out.write_all(flags_text(&suggestions.compiler_flags).as_bytes())?;
    }
    if let Some(path) = &arguments.output {
        // After the results, if both are written to a terminal.
        out.flush()?;
        let count = suggestions.regions.len();
        let rules = if count == 1 { "rule" } else { "rules" };
        let use_it = if has_rules {
            format!(": record with {}", setting(path))
        } else {
            String::new()
        };
        let path = safe(&path.display().to_string());
        eprintln!("{path}: {count} {rules}{use_it}");
    }
    Ok(Finding::loss(outcome.has_skipped_now))
}
