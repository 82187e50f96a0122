//! The inputs of a server: each is prepared once, and then a trace that can be asked.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use annals_analysis::{OverviewCache, open_overview_file};
use annals_merger::{InputTrace, MergeError, MergeOptions, Symbols, find};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::trace::{Identity, ServedTrace};

/// What an input is at the moment.
#[derive(Clone, Debug)]
enum State {
    /// It is being read.
    Preparing(&'static str),
    /// It can be asked.
    Ready(Arc<ServedTrace>),
    /// It cannot be read: why, and what it was then.
    Failed(String, Option<Identity>),
}

/// An input of a server.
#[derive(Debug)]
pub(crate) struct Subject {
    path: PathBuf,
    name: String,
    state: Mutex<State>,
    /// Events that are read, and how many there are.
    done: AtomicU64,
    total: AtomicU64,
    has_stopped: AtomicBool,
    /// Directory of what is made for it; it ends with the server.
    temporary: Mutex<Option<TempDir>>,
}

/// How inputs are prepared.
#[derive(Clone, Debug, Default)]
pub struct Preparation {
    /// Where the overview of a trace without one is kept. `None`: in the cache.
    pub index: Option<PathBuf>,
    /// The cache of overviews. `None`: they are in temporary files.
    pub cache: Option<OverviewCache>,
    /// The directory of temporary files. `None`: that of the system.
    pub temporary_directory: Option<PathBuf>,
    /// Directories with files that have names for functions without one.
    pub symbols: Vec<PathBuf>,
    /// Whether the first view is of the whole run, not only of what lies between `MPI_Init` and `MPI_Finalize`.
    pub shows_all: bool,
}

impl Subject {
    /// Creates an input that is not prepared yet.
    pub(crate) fn new(path: &Path) -> Self {
        let name = path.file_name().unwrap_or(path.as_os_str());
        Self {
            name: name.to_string_lossy().into_owned(),
            path: path.to_owned(),
            state: Mutex::new(State::Preparing("opening")),
            done: AtomicU64::new(0),
            total: AtomicU64::new(0),
            has_stopped: AtomicBool::new(false),
            temporary: Mutex::new(None),
        }
    }

    fn set(&self, state: State) {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = state;
    }

    fn state(&self) -> State {
        self.state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Returns the trace, once it can be asked.
    pub(crate) fn trace(&self) -> Option<Arc<ServedTrace>> {
        match self.state() {
            State::Ready(trace) => Some(trace),
            State::Preparing(_) | State::Failed(..) => None,
        }
    }

    /// Returns what it is at the moment.
    pub(crate) fn describe(&self) -> Value {
        match self.state() {
            State::Preparing(what) => json!({
                "name": self.name, "state": "preparing", "what": what,
                "done": self.done.load(Ordering::Relaxed).to_string(),
                "total": self.total.load(Ordering::Relaxed).to_string(),
            }),
            State::Ready(trace) => json!({
                "name": self.name, "id": trace.id,
                "state": if trace.is_replaced() { "replaced" } else { "ready" },
            }),
            State::Failed(why, _) => json!({"name": self.name, "state": "failed", "why": why}),
        }
    }

    /// Stops the preparation, and deletes what was made for it: the thread that prepares does not end before the process does.
    pub(crate) fn stop(&self) {
        self.has_stopped.store(true, Ordering::Relaxed);
        let mut temporary = self
            .temporary
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        drop(temporary.take());
    }

    /// Returns whether the server ends.
    pub(crate) fn has_stopped(&self) -> bool {
        self.has_stopped.load(Ordering::Relaxed)
    }

    /// Prepares it: what is not a trace is merged first, and a trace without an overview gets one in another file.
    pub(crate) fn prepare(&self, preparation: &Preparation) {
        let found = Identity::at(&self.path);
        let state = match self.prepared(preparation) {
            Ok(mut trace) => {
                trace.shows_all = preparation.shows_all;
                State::Ready(Arc::new(trace))
            }
            Err(error) => State::Failed(chain(&error), found),
        };
        self.set(state);
    }

    /// Returns whether its file is another one than when it was prepared. It may have failed because it was not written to its end.
    pub(crate) fn is_replaced(&self) -> bool {
        match self.state() {
            State::Preparing(_) => false,
            State::Ready(trace) => trace.is_replaced(),
            State::Failed(_, then) => Identity::at(&self.path) != then,
        }
    }

    fn begin(&self, what: &'static str, total: u64) {
        self.done.store(0, Ordering::Relaxed);
        self.total.store(total, Ordering::Relaxed);
        self.set(State::Preparing(what));
    }

    fn progress(&self, events: u64) -> ControlFlow<()> {
        self.done.store(events, Ordering::Relaxed);
        match self.has_stopped.load(Ordering::Relaxed) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }

    fn prepared(&self, preparation: &Preparation) -> Result<ServedTrace, MergeError> {
        let found = find(std::slice::from_ref(&self.path), None)?;
        let is_trace =
            found.traces.len() == 1 && found.recordings.is_empty() && found.foreign.is_empty();
        let symbols = Symbols::in_directories(&preparation.symbols)?;
        let name = self.name.clone();
        if !is_trace {
            let merged = self.temporary("merged.annals", preparation)?;
            let mut options = MergeOptions::new();
            options.overview = true;
            options.symbols = symbols;
            options.output = Some(merged.clone());
            options.temporary_directory = preparation.temporary_directory.clone();
            let plan = options.plan(std::slice::from_ref(&self.path))?;
            self.begin("merging", plan.expected_events());
            plan.write_trace(&merged, |events| self.progress(events))?;
            return ServedTrace::open(&merged, name, None, None, Symbols::default());
        }
        let path = &found.traces[0];
        let input = InputTrace::open(path)?;
        let has_overview = !input.trace.overview.is_empty();
        if has_overview || input.trace.definitions.slice.is_some() {
            return ServedTrace::open(path, name, Some(path), None, symbols);
        }
        let counts = input.trace.chunks.iter().map(|chunk| chunk.event_count);
        self.begin("building the overview", counts.fold(0, u64::saturating_add));
        let progress = |events| self.progress(events);
        let cached = match (&preparation.index, &preparation.cache) {
            (None, Some(cache)) => Some(cache.open(path, progress)),
            _ => None,
        };
        let overview = match cached {
            Some(Ok(overview)) => overview,
            Some(Err(MergeError::Stopped)) => return Err(MergeError::Stopped),
            // The cache may be full, or not to be written to.
            Some(Err(_)) | None => {
                let index = match &preparation.index {
                    Some(index) => index.clone(),
                    None => self.temporary("overview.annals", preparation)?,
                };
                open_overview_file(path, &index, progress)?
            }
        };
        ServedTrace::open(path, name, Some(path), Some(overview), symbols)
    }

    fn temporary(&self, name: &str, preparation: &Preparation) -> Result<PathBuf, MergeError> {
        let place = preparation.temporary_directory.clone();
        let place = place.unwrap_or_else(std::env::temp_dir);
        let directory = TempDir::with_prefix_in("annals-serve-", &place);
        let directory = directory.map_err(MergeError::io("create a directory in", &place))?;
        let path = directory.path().join(name);
        let mut kept = self
            .temporary
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *kept = Some(directory);
        Ok(path)
    }
}

/// Returns an error with its causes.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        text = format!("{text}: {source}");
        next = source.source();
    }
    text
}
