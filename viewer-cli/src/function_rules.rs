//! Rules about functions by their names in the source, for recorders that know only addresses while the program runs.
//!
//! `trace-cli record` looks functions up in the program's symbols before it starts the program, and writes rules for
//! their addresses after each rule about regions. After the run it knows which rules matched anything.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use annals_format::{Definitions, Module};
use annals_merger::Program;
use annals_recorder::Rules;
use globset::{Glob, GlobMatcher};

use crate::names::without_return_type;

/// The subject of a rule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Subject {
    Source,
    Event,
    Region,
}

/// A rule with a glob.
#[derive(Clone, Debug)]
struct NamedRule {
    /// As it was written.
    text: String,
    subject: Subject,
    glob: GlobMatcher,
}

/// The rules of a run.
#[derive(Debug)]
pub struct FunctionRules {
    /// All rules in the recorder's grammar.
    text: String,
    rules: Vec<NamedRule>,
    /// Numbers of the rules that matched something.
    matched: BTreeSet<usize>,
    /// Whether rules for functions were added.
    has_functions: bool,
    /// Why functions could not be looked up.
    obstacle: Option<String>,
}

/// Returns the file that a command runs: found by `PATH` if it has no directory.
fn executable(name: &OsStr) -> Option<PathBuf> {
    let path = Path::new(name);
    let is_executable = |path: &Path| {
        let found = path.metadata();
        found.is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
    };
    if path.components().count() > 1 {
        return is_executable(path).then(|| path.to_owned());
    }
    let directories = std::env::var_os("PATH")?;
    let mut found = std::env::split_paths(&directories).map(|directory| directory.join(path));
    found.find(|path| is_executable(path))
}

/// Returns the programs that a command line names: the command, and arguments that are executable files, as of a launcher.
pub fn programs<'a>(command: impl IntoIterator<Item = &'a OsStr>) -> Vec<(PathBuf, Program)> {
    let named = command
        .into_iter()
        .enumerate()
        .filter_map(|(place, argument)| {
            let is_path = Path::new(argument).components().count() > 1;
            (place == 0 || is_path)
                .then(|| executable(argument))
                .flatten()
        });
    let read = named.filter_map(|path| {
        let program = Program::read(&path)?;
        // The recorder calls the program after its file, and not after a link to that.
        let path = std::fs::canonicalize(&path).unwrap_or(path);
        Some((path, program))
    });
    read.collect()
}

impl FunctionRules {
    /// Reads rules, and looks the functions up that they name. Rules that the recorder would refuse are left as they are.
    pub fn new(text: &str, programs: &[(PathBuf, Program)]) -> Self {
        let mut found = Self {
            text: String::with_capacity(text.len()),
            rules: Vec::new(),
            matched: BTreeSet::new(),
            has_functions: false,
            obstacle: None,
        };
        for line in text.split(['\n', ';']).map(str::trim) {
            found.text.push_str(line);
            found.text.push('\n');
            let is_rule =
                !line.is_empty() && !line.starts_with('#') && line.parse::<Rules>().is_ok();
            if let Some((verb, rule)) = named(line).filter(|_| is_rule) {
                found.rules.push(rule);
                if matches!(verb, "on" | "off") {
                    found.add_functions(verb, programs);
                }
            }
        }
        let asks_for_regions = found
            .rules
            .iter()
            .any(|rule| rule.subject == Subject::Region);
        let instrumented = programs.iter().find(|(_, program)| program.is_instrumented);
        if asks_for_regions
            && let Some((path, program)) = instrumented
            && program.functions.is_empty()
        {
            let path = path.display();
            found.obstacle = Some(format!(
                "{path} has no symbols: its functions cannot be looked up"
            ));
        }
        found
    }

    /// Writes rules for the functions that the last rule names.
    fn add_functions(&mut self, verb: &str, programs: &[(PathBuf, Program)]) {
        let number = self.rules.len() - 1;
        let rule = &self.rules[number];
        if rule.subject != Subject::Region {
            return;
        }
        for (path, program) in programs {
            let path = path.to_string_lossy();
            let functions = program.functions.iter();
            let named = functions.filter(|function| {
                let name = &function.name;
                rule.glob.is_match(name) || rule.glob.is_match(without_return_type(name))
            });
            for function in named {
                // As regions of functions are called while the program runs.
                let name = Module::function_name(&path, function.address);
                let _ = writeln!(self.text, "{verb} region {name}");
                self.matched.insert(number);
                self.has_functions = true;
            }
        }
    }

    /// Returns the rules for the recorder, if functions were looked up for them.
    pub fn expanded(&self) -> Option<&str> {
        self.has_functions.then_some(self.text.as_str())
    }

    /// Returns why functions could not be looked up, if any rule is about regions.
    pub fn obstacle(&self) -> Option<&str> {
        self.obstacle.as_deref()
    }

    /// Notes which rules match what a recording defines.
    pub fn note_definitions(&mut self, definitions: &Definitions) {
        for (number, rule) in self.rules.iter().enumerate() {
            let is_match = |name: &str| rule.glob.is_match(name);
            let is_used = match rule.subject {
                Subject::Source => {
                    let mut sources = definitions.sources.values();
                    sources.any(|source| is_match(definitions.string(source.name)))
                }
                Subject::Event => {
                    let mut types = definitions.event_types.keys();
                    types.any(|id| is_match(&definitions.event_type_name(*id)))
                }
                Subject::Region => definitions.regions.values().any(|region| {
                    is_match(definitions.string(region.name))
                        || is_match(&definitions.region_name(region.id))
                }),
            };
            if is_used {
                self.matched.insert(number);
            }
        }
    }

    /// Returns the rules that matched nothing at all.
    pub fn unmatched(&self) -> impl Iterator<Item = &str> {
        let rules = self.rules.iter().enumerate();
        let unmatched = rules.filter(|(number, _)| !self.matched.contains(number));
        unmatched.map(|(_, rule)| rule.text.as_str())
    }
}

/// Takes a rule with a glob apart into its verb and the rest.
fn named(line: &str) -> Option<(&str, NamedRule)> {
    let mut words = line.split_whitespace();
    let verb = words.next()?;
    if matches!(verb, "sample" | "limit") {
        words.next()?;
    }
    let subject = match words.next()? {
        "source" => Subject::Source,
        "event" => Subject::Event,
        "region" => Subject::Region,
        _ => return None,
    };
    let first = words.next()?;
    // Globs may have blanks: they reach to the line's end.
    let start = first.as_ptr() as usize - line.as_ptr() as usize;
    let glob = Glob::new(&line[start..]).ok()?.compile_matcher();
    let rule = NamedRule {
        text: line.to_owned(),
        subject,
        glob,
    };
    Some((verb, rule))
}

#[cfg(test)]
mod tests {
    use super::*;
    use annals_merger::ProgramFunction;

    fn program(names: &[&str]) -> Vec<(PathBuf, Program)> {
        let functions = names
            .iter()
            .enumerate()
            .map(|(place, name)| ProgramFunction {
                address: 0x1000 + 16 * place as u64,
                name: (*name).to_owned(),
            });
        let program = Program {
            is_static: false,
            is_instrumented: true,
            functions: functions.collect(),
        };
        vec![(PathBuf::from("/bin/solver"), program)]
    }

    #[test]
    fn functions_get_rules_for_their_addresses_where_they_are_named() {
        let programs = program(&["main", "void std::sort<int>(int*)", "mesh::solve(int)"]);
        let rules = FunctionRules::new(
            "off region std::*; on event x; on region mesh::*",
            &programs,
        );
        assert_eq!(
            rules.expanded(),
            Some(
                "off region std::*\noff region solver+0x1010\non event x\non region mesh::*\non region solver+0x1020\n"
            )
        );
        assert_eq!(rules.unmatched().collect::<Vec<_>>(), ["on event x"]);
        assert!(
            rules
                .expanded()
                .is_some_and(|text| text.parse::<Rules>().is_ok())
        );
    }

    #[test]
    fn rules_that_match_nothing_are_named() {
        let rules = FunctionRules::new(
            "# off region main\noff region nix*\nverbosity user-all",
            &program(&["main"]),
        );
        assert_eq!(rules.expanded(), None);
        assert_eq!(rules.unmatched().collect::<Vec<_>>(), ["off region nix*"]);
        let stripped = FunctionRules::new("off region main", &program(&[]));
        assert!(
            stripped
                .obstacle()
                .is_some_and(|why| why.contains("has no symbols"))
        );
    }
}
