//! What a user chose by name: lists of names and globs in environment variables.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use globset::{Glob, GlobMatcher};

use crate::state::{lock, words};

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

/// Lines about words that fit nothing, which wait until MPI_Init has returned and it is known which process tells them.
static UNTOLD: Mutex<Vec<String>> = Mutex::new(Vec::new());

impl Chosen {
    /// What the variable says; none: nothing.
    ///
    /// # Errors
    /// If a word is no glob, with the variable's name.
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

    /// Whether the only word is this one.
    pub(crate) fn is_only(&self, word: &str) -> bool {
        matches!(&self.words[..], [only] if only.glob.glob().glob() == word)
    }

    /// Whether something with this name is chosen.
    pub(crate) fn has(&self, name: &str) -> bool {
        let mut has = false;
        for word in self.words.iter().filter(|word| word.glob.is_match(name)) {
            word.is_used.store(true, Ordering::Relaxed);
            has = true;
        }
        has
    }

    /// Notes for [`tell`] which words fit nothing; `what` there is: `functions`.
    pub(crate) fn note_unused(&self, variable: &str, what: &str) {
        let unused = self
            .words
            .iter()
            .filter(|word| !word.is_used.load(Ordering::Relaxed));
        let unused: Vec<&str> = unused.map(|word| word.glob.glob().glob()).collect();
        if !unused.is_empty() {
            let unused = unused.join(" ");
            lock(&UNTOLD).push(format!(
                "{variable}: no {what} here has this name: {unused}"
            ));
        }
    }
}

/// Tells what was noted; the same in all processes of a run, so that one of them does.
pub(crate) fn tell(is_first: bool) {
    for line in lock(&UNTOLD).drain(..).filter(|_| is_first) {
        eprintln!("annals: {line}");
    }
}
