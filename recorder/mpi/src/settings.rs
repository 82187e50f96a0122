//! Settings of the user: the environment variables of this library, and the lists of names and
//! globs in them.

use annals_recorder::say;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use globset::{Glob, GlobMatcher};

use crate::sync::lock;

/// Functions that are recorded as regions: names, globs and groups.
pub(crate) const REGIONS: &str = "ANNALS_MPI_REGIONS";
/// Event types that are recorded: names and globs. `none` means no event type.
pub(crate) const EVENTS: &str = "ANNALS_MPI_EVENTS";
/// Suffixes of event types' names that make a pair that is a region: `BEGIN=END`. `none` means no
/// pair.
pub(crate) const PAIRS: &str = "ANNALS_MPI_PAIRS";
/// Whether events' payloads are read: `on`, `off`, or `auto`, which means unless the library is
/// known to end the process then.
pub(crate) const PAYLOADS: &str = "ANNALS_MPI_PAYLOADS";
/// Control variables that are recorded as properties: names and globs. By default, none.
pub(crate) const CVARS: &str = "ANNALS_MPI_CVARS";
/// Performance variables that are sampled: names and globs. By default, none.
pub(crate) const PVARS: &str = "ANNALS_MPI_PVARS";
/// Whether clock offsets are measured. `off` means that nothing is measured; `on` means that every
/// process of the run is recorded, so that no files are needed to learn this.
pub(crate) const CLOCKS: &str = "ANNALS_MPI_CLOCKS";

/// All variables of this library.
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

/// Lines about names that match nothing. They are printed when MPI_Init has returned and it is
/// known which process prints them.
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

    /// Stores a line for [`print_notes`] about names that match nothing. `what` is the kind of
    /// things that they choose, such as `event type`.
    pub(crate) fn note_unused(&self, variable: &str, what: &str) {
        let unused = self
            .words
            .iter()
            .filter(|word| !word.is_used.load(Ordering::Relaxed));
        let unused: Vec<&str> = unused.map(|word| word.glob.glob().glob()).collect();
        if !unused.is_empty() {
            let unused = unused.join(" ");
            note(format!("{variable}: no {what} matches: {unused}"));
        }
    }
}

/// Stores a line for [`print_notes`].
pub(crate) fn note(line: String) {
    lock(&UNTOLD).push(line);
}

/// Notes variables with this library's prefix that it does not have.
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
        say(line);
    }
}

/// Splits a list at commas, colons, semicolons and blanks.
pub(crate) fn words(list: &str) -> impl Iterator<Item = &str> {
    list.split([',', ':', ';', ' ', '\t', '\n'])
        .filter(|word| !word.is_empty())
}
