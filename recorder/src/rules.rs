//! Rules: which events the user wants recorded, and how many of them.

use std::collections::HashSet;
use std::str::FromStr;
use std::sync::{Arc, OnceLock};

use annals_format::Verbosity;
use globset::Glob;
use regex_automata::dfa::{Automaton, StartKind, dense};
use regex_automata::nfa::thompson;
use regex_automata::util::syntax;
use regex_automata::{Anchored, Input};

use crate::error::{RecorderError, Result};

/// The subject of a rule of [`Rules`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Subject {
    Source,
    Event,
    Region,
}

/// The decision of a rule of [`Rules`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    On,
    Off,
    /// One event of the given number.
    Sample(u32),
    /// Maximum number of events per second in each stream.
    Limit(u32),
}

/// A glob as an automaton. Matching allocates nothing and takes no lock: a function's rule must be known at its first call, wherever that
/// is.
#[derive(Clone, Debug)]
struct Pattern(Arc<dense::DFA<Vec<u32>>>);

impl Pattern {
    /// Most bytes of an automaton. Usual patterns have a few thousand.
    const MAX_BYTES: usize = 4 << 20;

    /// Returns `None` if the text is no glob, or its automaton would be too large.
    fn new(glob: &str) -> Option<Self> {
        let glob = Glob::new(glob).ok()?;
        // As globset matches: bytes, of which any may be a newline.
        let syntax = syntax::Config::new().utf8(false).dot_matches_new_line(true);
        let config = dense::Config::new()
            .start_kind(StartKind::Anchored)
            .dfa_size_limit(Some(Self::MAX_BYTES))
            .determinize_size_limit(Some(Self::MAX_BYTES));
        let built = dense::Builder::new()
            .configure(config)
            .syntax(syntax)
            .thompson(thompson::Config::new().utf8(false))
            .build(glob.regex());
        Some(Self(Arc::new(built.ok()?)))
    }

    fn is_match(&self, name: &str) -> bool {
        let name = Input::new(name).anchored(Anchored::Yes);
        matches!(self.0.try_search_fwd(&name), Ok(Some(_)))
    }
}

#[derive(Clone, Debug)]
enum Rule {
    Named {
        subject: Subject,
        verdict: Verdict,
        glob: Pattern,
    },
    /// Rules that follow each other and name regions without wildcards: `trace-cli record` makes tens of thousands of them.
    Regions {
        verdict: Verdict,
        names: Arc<HashSet<String>>,
    },
    Verbosity(Verbosity),
}

/// Rules that switch sources, event types and regions on and off, and thin out event types.
///
/// One rule a line (or between semicolons); `#` begins a comment. The last rule that fits decides;
/// what no rule fits is on.
///
/// | rule | meaning |
/// |---|---|
/// | `off event GLOB`, `on event GLOB` | event types by name |
/// | `off region GLOB`, `on region GLOB` | enters and leaves of regions by name |
/// | `off source GLOB`, `on source GLOB` | all events of sources by name |
/// | `verbosity LEVEL` | event types of a level above are off (`user-basic` … `developer-all`) |
/// | `sample N event GLOB` | one event in N, counted per stream |
/// | `limit N/s event GLOB` | at most N events a second in each stream, and a burst of up to 16 after a pause |
///
/// Events that are off are not raised. Events that sampling and limits leave out are counted as *suppressed*. They do
/// not apply to event types that enter or leave regions: pairs would be torn.
///
/// ```
/// # use annals_recorder::Rules;
/// let rules: Rules = "off region std::*; sample 100 event queue.*".parse()?;
/// assert!("off everything".parse::<Rules>().is_err());
/// # Ok::<(), annals_recorder::RecorderError>(())
/// ```
#[derive(Clone, Default, Debug)]
pub struct Rules {
    rules: Vec<Rule>,
}

impl FromStr for Rules {
    type Err = RecorderError;

    fn from_str(text: &str) -> Result<Self> {
        let lines = text.split(['\n', ';']).map(str::trim);
        let mut rules = Vec::new();
        let mut exact = ExactRegions::default();
        for line in lines.filter(|line| !line.is_empty() && !line.starts_with('#')) {
            match exact_region(line) {
                Some((verdict, name)) => exact.add(verdict, name, &mut rules),
                None => {
                    exact.finish(&mut rules);
                    rules.push(parse_rule(line).ok_or_else(|| wrong(line))?);
                }
            }
        }
        exact.finish(&mut rules);
        Ok(Self { rules })
    }
}

/// Rules of one verdict that follow each other and name regions without wildcards.
#[derive(Default)]
struct ExactRegions {
    verdict: Option<Verdict>,
    names: HashSet<String>,
}

impl ExactRegions {
    fn add(&mut self, verdict: Verdict, name: &str, rules: &mut Vec<Rule>) {
        if self.verdict != Some(verdict) {
            self.finish(rules);
            self.verdict = Some(verdict);
        }
        self.names.insert(name.to_owned());
    }

    /// Appends them as one rule.
    fn finish(&mut self, rules: &mut Vec<Rule>) {
        if let Some(verdict) = self.verdict.take() {
            let names = Arc::new(std::mem::take(&mut self.names));
            rules.push(Rule::Regions { verdict, names });
        }
    }
}

/// Returns verdict and name of a rule that names one region without wildcards.
fn exact_region(line: &str) -> Option<(Verdict, &str)> {
    let (verb, rest) = word(line)?;
    let verdict = match verb {
        "on" => Verdict::On,
        "off" => Verdict::Off,
        _ => return None,
    };
    let (subject, name) = word(rest)?;
    let is_exact = !name.contains(['*', '?', '[', ']', '{', '}', '\\', '!']);
    (subject == "region" && is_exact && !name.is_empty()).then_some((verdict, name))
}

fn wrong(line: &str) -> RecorderError {
    RecorderError::Setting {
        setting: "a rule",
        expected: "`off|on source|event|region GLOB`, `sample N event GLOB`, `limit N/s event GLOB` or \
                   `verbosity LEVEL`",
        found: line.to_owned(),
    }
}

fn parse_rule(line: &str) -> Option<Rule> {
    let (verb, rest) = word(line)?;
    let verdict = match verb {
        "verbosity" => {
            let level = Verbosity::ALL.iter().find(|level| level.name() == rest)?;
            return Some(Rule::Verbosity(*level));
        }
        "on" => return named(Verdict::On, rest),
        "off" => return named(Verdict::Off, rest),
        "sample" => {
            let (number, rest) = word(rest)?;
            (Verdict::Sample(positive(number)?), rest)
        }
        "limit" => {
            let (number, rest) = word(rest)?;
            (Verdict::Limit(positive(number.strip_suffix("/s")?)?), rest)
        }
        _ => return None,
    };
    let rule = named(verdict.0, verdict.1)?;
    let is_of_events = matches!(&rule, Rule::Named { subject, .. } if *subject == Subject::Event);
    is_of_events.then_some(rule)
}

fn word(text: &str) -> Option<(&str, &str)> {
    let (word, rest) = text.split_once(char::is_whitespace)?;
    Some((word, rest.trim_start()))
}

fn positive(text: &str) -> Option<u32> {
    text.parse().ok().filter(|number| *number > 0)
}

fn named(verdict: Verdict, rest: &str) -> Option<Rule> {
    let (subject, glob) = word(rest)?;
    let subject = match subject {
        "source" => Subject::Source,
        "event" => Subject::Event,
        "region" => Subject::Region,
        _ => return None,
    };
    let glob = Pattern::new(glob)?;
    Some(Rule::Named {
        subject,
        verdict,
        glob,
    })
}

impl Rules {
    /// Returns whether there are no rules.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Adds rules after the existing ones: they decide first.
    pub fn extend(&mut self, later: &Self) {
        self.rules.extend_from_slice(&later.rules);
    }

    /// Returns whether a rule is about regions.
    fn name_regions(&self) -> bool {
        self.rules.iter().any(|rule| match rule {
            Rule::Named { subject, .. } => *subject == Subject::Region,
            Rule::Regions { .. } => true,
            Rule::Verbosity(_) => false,
        })
    }

    /// Returns what the rules decide for a source, event type or region. `None` means that no rule fits. Allocates nothing and takes
    /// no lock.
    fn decide(
        &self,
        subject: Subject,
        name: &str,
        verbosity: Option<Verbosity>,
    ) -> Option<Verdict> {
        let mut verdicts = self.rules.iter().rev().filter_map(|rule| match rule {
            Rule::Named {
                subject: of,
                verdict,
                glob,
            } => (*of == subject && glob.is_match(name)).then_some(*verdict),
            Rule::Regions { verdict, names } => {
                (subject == Subject::Region && names.contains(name)).then_some(*verdict)
            }
            Rule::Verbosity(most) => {
                let level = verbosity?;
                (level > *most).then_some(Verdict::Off)
            }
        });
        verdicts.next()
    }
}

/// The rules of a recorder: those that it started with, and those that were added since. Added under the registry's lock; read without
/// any, also in signal handlers.
#[derive(Debug)]
pub(crate) struct RuleBook {
    rules: Rules,
    name_regions: bool,
    later: OnceLock<Box<Self>>,
}

impl RuleBook {
    pub(crate) fn new(rules: Rules) -> Self {
        Self {
            name_regions: rules.name_regions(),
            rules,
            later: OnceLock::new(),
        }
    }

    /// Returns this part and all that were added later.
    fn parts(&self) -> impl Iterator<Item = &Self> {
        std::iter::successors(Some(self), |part| part.later.get().map(|later| &**later))
    }

    /// Adds rules after the existing ones: they decide first.
    pub(crate) fn add(&self, rules: &Rules) {
        let mut part = Box::new(Self::new(rules.clone()));
        let mut last = self;
        while let Err(refused) = last.later.set(part) {
            part = refused;
            last = last.parts().last().unwrap_or(last);
        }
    }

    /// Returns whether a rule is about regions.
    pub(crate) fn name_regions(&self) -> bool {
        self.parts().any(|part| part.name_regions)
    }

    /// Returns what the rules decide for a source, event type or region.
    pub(crate) fn verdict(
        &self,
        subject: Subject,
        name: &str,
        verbosity: Option<Verbosity>,
    ) -> Verdict {
        let verdicts = self
            .parts()
            .map(|part| part.rules.decide(subject, name, verbosity));
        verdicts.flatten().last().unwrap_or(Verdict::On)
    }
}

impl Drop for RuleBook {
    /// One after the other: as many parts as were added would overflow the stack.
    fn drop(&mut self) {
        let mut next = self.later.take();
        while let Some(mut part) = next {
            next = part.later.take();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_rule_that_fits_decides() {
        let rules: Rules =
            "# a comment\noff event mpi.*\non event mpi.send; sample 10 event queue *"
                .parse()
                .unwrap();
        let rules = RuleBook::new(rules);
        let event = |name| rules.verdict(Subject::Event, name, Some(Verbosity::UserBasic));
        assert_eq!(event("mpi.recv"), Verdict::Off);
        assert_eq!(event("mpi.send"), Verdict::On);
        assert_eq!(event("queue a b"), Verdict::Sample(10));
        assert_eq!(event("other"), Verdict::On);
        assert_eq!(
            rules.verdict(Subject::Region, "mpi.recv", None),
            Verdict::On
        );
    }

    #[test]
    fn rules_without_wildcards_keep_their_order() {
        let rules: Rules =
            "off region a; off region b+0x10; on region *+0x10; off region c; on region c"
                .parse()
                .unwrap();
        let rules = RuleBook::new(rules);
        let region = |name| rules.verdict(Subject::Region, name, None);
        assert_eq!(region("a"), Verdict::Off);
        assert_eq!(region("b+0x10"), Verdict::On);
        assert_eq!(region("c"), Verdict::On);
        assert_eq!(rules.verdict(Subject::Event, "a", None), Verdict::On);
        let many: String = (0..50_000)
            .map(|n| format!("off region program+{n:#x}\n"))
            .collect();
        let rules: Rules = many.parse().unwrap();
        assert_eq!(rules.rules.len(), 1);
        let rules = RuleBook::new(rules);
        assert_eq!(
            rules.verdict(Subject::Region, "program+0xc34f", None),
            Verdict::Off
        );
    }

    #[test]
    fn verbosity_switches_off_what_lies_above() {
        let rules: Rules = "verbosity user-all".parse().unwrap();
        let rules = RuleBook::new(rules);
        let of = |level| rules.verdict(Subject::Event, "any", Some(level));
        assert_eq!(of(Verbosity::UserAll), Verdict::On);
        assert_eq!(of(Verbosity::TunerBasic), Verdict::Off);
    }

    #[test]
    fn a_rule_that_cannot_be_read_is_an_error_that_shows_it() {
        for text in [
            "off",
            "off event",
            "off thing x",
            "sample 0 event x",
            "sample x event y",
            "limit 10 event x",
            "sample 2 region x",
            "verbosity loud",
            "off event [",
        ] {
            let error = text.parse::<Rules>().unwrap_err().to_string();
            assert!(error.contains(text), "{error}");
        }
    }

    #[test]
    fn rules_that_are_added_decide_first() {
        let rules = RuleBook::new("off event a*; off region x".parse().unwrap());
        let event = |name| rules.verdict(Subject::Event, name, None);
        for (added, expected) in [("on event ab", Verdict::On), ("off event *b", Verdict::Off)] {
            rules.add(&added.parse().unwrap());
            assert_eq!(event("ab"), expected);
            assert_eq!([event("ac"), event("c")], [Verdict::Off, Verdict::On]);
        }
        assert!(rules.name_regions());
        assert!(!RuleBook::new("off event x".parse().unwrap()).name_regions());
        // Of as many parts, none is dropped within another.
        let many = RuleBook::new(Rules::default());
        let mut last = &many;
        for _ in 0..100_000 {
            last.add(&Rules::default());
            last = last.later.get().unwrap();
        }
    }

    #[test]
    fn patterns_match_as_globs_do() {
        let globs = [
            "*",
            "a*c",
            "a?c",
            "[ab]x",
            "[!ab]x",
            "{p,q*}r",
            "\\*",
            "std::*(*)",
            "[[]",
            "é?",
        ];
        let names = [
            "",
            "a",
            "abc",
            "a/c",
            "a\nc",
            "ax",
            "cx",
            "pr",
            "qqr",
            "*",
            "std::f(int)",
            "[",
            "é",
            "éé",
            "éab",
        ];
        for glob in globs {
            let (pattern, globset) = (
                Pattern::new(glob),
                Glob::new(glob).unwrap().compile_matcher(),
            );
            let pattern = pattern.expect(glob);
            for name in names {
                assert_eq!(
                    pattern.is_match(name),
                    globset.is_match(name),
                    "{glob} {name}"
                );
            }
        }
        let too_large = format!("*[ab]{}", "?".repeat(40));
        assert!(Pattern::new(&too_large).is_none());
    }
}
