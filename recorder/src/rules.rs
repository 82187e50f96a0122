//! Rules: which events the user wants recorded, and how many of them.

use std::collections::HashSet;
use std::str::FromStr;
use std::sync::Arc;

use annals_format::Verbosity;
use globset::{Glob, GlobMatcher};

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

#[derive(Clone, Debug)]
enum Rule {
    Named {
        subject: Subject,
        verdict: Verdict,
        glob: GlobMatcher,
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
        name: "a rule",
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
    let glob = Glob::new(glob).ok()?.compile_matcher();
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

    /// Returns what the rules decide for a source, event type or region.
    pub(crate) fn verdict(
        &self,
        subject: Subject,
        name: &str,
        verbosity: Option<Verbosity>,
    ) -> Verdict {
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
        verdicts.next().unwrap_or(Verdict::On)
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
        assert_eq!(
            rules.verdict(Subject::Region, "program+0xc34f", None),
            Verdict::Off
        );
    }

    #[test]
    fn verbosity_switches_off_what_lies_above() {
        let rules: Rules = "verbosity user-all".parse().unwrap();
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
}
