//! What a user chose: the environment variables of this library, and the lists of names and globs
//! in them.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use globset::{Glob, GlobMatcher};

use crate::sync::lock;

/// Which functions are recorded as regions: names, globs and groups.
pub(crate) const REGIONS: &str = "ANNALS_MPI_REGIONS";
/// Which event types are recorded: names and globs; `none` for none.
pub(crate) const EVENTS: &str = "ANNALS_MPI_EVENTS";
/// Which ends of event types' names make a pair that is a region: `BEGIN=END`; `none` for none.
pub(crate) const PAIRS: &str = "ANNALS_MPI_PAIRS";
/// Whether events' payloads are read: `on`, `off`; `auto`: not from a library that is known to end
/// the process then.
pub(crate) const PAYLOADS: &str = "ANNALS_MPI_PAYLOADS";
/// Which control variables are written down as properties: names and globs; without it, none.
pub(crate) const CVARS: &str = "ANNALS_MPI_CVARS";
/// Which performance variables are sampled: names and globs; without it, none.
pub(crate) const PVARS: &str = "ANNALS_MPI_PVARS";
/// `off`: nothing is measured; `on`: every process of the run is recorded, no files are needed to
/// know.
pub(crate) const CLOCKS: &str = "ANNALS_MPI_CLOCKS";

/// All of them.
const VARIABLES: [&str; 7] = [REGIONS, EVENTS, PAIRS, PAYLOADS, CVARS, PVARS, CLOCKS];

/// The names and globs of one variable.
#[derive(Debug)]
pub(crate) struct Chosen {
    words: Vec<Word>,
}

#[derive(Debug)]
struct Word {
    glob: GlobMatcher,
    is_used: AtomicBool,
}

/// Lines about words that fit nothing.
/// They wait until MPI_Init has returned and it is known which process prints them.
static UNTOLD: Mutex<Vec<String>> = Mutex::new(Vec::new());

impl Chosen {
    /// Returns the words of the variable.
    /// `None` means that it is not set.
    ///
    /// # Errors
    /// If a word is not a valid glob, with the variable's name.
    pub(crate) fn from_env(variable: &str) -> Result<Option<Self>, String> {
        let list = std::env::var(variable).unwrap_or_default();
        let globs = words(&list).map(|word| {
            let glob = Glob::new(word).map_err(|error| format!("{variable}: {error}"))?;
            Ok(Word {
                glob: glob.compile_matcher(),
                is_used: AtomicBool::new(false),
            })
        });
        let words: Vec<Word> = globs.collect::<Result<_, String>>()?;
        Ok((!words.is_empty()).then_some(Self { words }))
    }

    /// Returns whether the only word is this one.
    pub(crate) fn is_only(&self, word: &str) -> bool {
        matches!(&self.words[..], [only] if only.glob.glob().glob() == word)
    }

    /// Returns whether something with this name is chosen.
    pub(crate) fn has(&self, name: &str) -> bool {
        let mut has = false;
        for word in self.words.iter().filter(|word| word.glob.is_match(name)) {
            word.is_used.store(true, Ordering::Relaxed);
            has = true;
        }
        has
    }

    /// Stores for [`print_notes`] which words fit nothing.
    /// `what` names the things that they choose: `functions`.
    pub(crate) fn note_unused(&self, variable: &str, what: &str) {
        let unused = self
            .words
            .iter()
            .filter(|word| !word.is_used.load(Ordering::Relaxed));
        let unused: Vec<&str> = unused.map(|word| word.glob.glob().glob()).collect();
        if !unused.is_empty() {
            let unused = unused.join(" ");
            note(format!(
                "{variable}: no {what} here has this name: {unused}"
            ));
        }
    }
}

/// Stores a line for [`print_notes`].
pub(crate) fn note(line: String) {
    lock(&UNTOLD).push(line);
}

/// Notes variables that look like this library's and are not.
pub(crate) fn note_unknown() {
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    let is_unknown =
        |name: &String| name.starts_with("ANNALS_MPI_") && !VARIABLES.contains(&name.as_str());
    let mut unknown: Vec<String> = names.filter(is_unknown).collect();
    unknown.sort_unstable();
    for name in unknown {
        let known = VARIABLES.join(", ");
        note(format!("{name} says nothing here; there are {known}"));
    }
}

/// Prints the notes in one process only, because they are equal in all processes of a run.
pub(crate) fn print_notes(is_first: bool) {
    for line in lock(&UNTOLD).drain(..).filter(|_| is_first) {
        eprintln!("annals: {line}");
    }
}

/// Splits a list at commas, colons, semicolons and blanks.
pub(crate) fn words(list: &str) -> impl Iterator<Item = &str> {
    list.split([',', ':', ';', ' ', '\t', '\n'])
        .filter(|word| !word.is_empty())
}
