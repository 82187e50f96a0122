//! What is said of a job while it is recorded: that none of its ranks has moved for a time, or that it records very much.

use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::commands::stuck::roll_call;
use crate::gather::tell;
use crate::table::{safe, safe_lines};
use crate::time;
use crate::watch::with_signals_blocked;

/// When it is asked how much a program has recorded: a program that ends before is not worth a warning.
const EARLY: Duration = Duration::from_secs(10);

/// What a process that takes a tenth of its time for recording writes in a second, at the least: two million events of 4 bytes.
const MUCH_BYTES: u64 = 8 << 20;

/// A thread that follows what a job records, as long as this lives.
#[derive(Debug)]
pub struct Lookout {
    thread: Option<JoinHandle<()>>,
    /// Its end is the thread's.
    stop: Option<Sender<()>>,
}

impl Lookout {
    /// Begins to follow. `follow` gets a function that waits for a time, and returns whether this still lives.
    fn begin(
        follow: impl FnOnce(&mut dyn FnMut(Duration) -> bool) + Send + 'static,
    ) -> std::io::Result<Self> {
        let (stop, stopped) = channel();
        let mut wait = move |time| stopped.recv_timeout(time) == Err(RecvTimeoutError::Timeout);
        let thread =
            with_signals_blocked(|| std::thread::Builder::new().spawn(move || follow(&mut wait)))?;
        Ok(Self {
            thread: Some(thread),
            stop: Some(stop),
        })
    }

    /// Reads the recordings of a directory again and again, this time apart, until no rank has moved in it: then it says in which calls
    /// they are.
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn for_stuck_ranks(directory: &Path, after: Duration) -> std::io::Result<Self> {
        let directory = directory.to_owned();
        Self::begin(move |wait| {
            while wait(after / 2) {
                // Nothing can be read before the first recording has begun.
                if let Ok(Some(text)) = roll_call(&directory, after, &mut *wait) {
                    eprint!("trace-cli: {}", safe_lines(&text));
                    return;
                }
            }
        })
    }

    /// Says once if the files of a directory have soon become so large that recording must slow the program.
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn for_much(directory: &Path) -> std::io::Result<Self> {
        let directory = directory.to_owned();
        Self::begin(move |wait| {
            let before = files_of(&directory);
            if !wait(EARLY) {
                return;
            }
            let (files, bytes) = files_of(&directory);
            let new = bytes.saturating_sub(before.1);
            let processes = files.saturating_sub(before.0).max(1);
            if new / processes / EARLY.as_secs() >= MUCH_BYTES {
                tell(&format!(
                    "trace-cli: {} in the first {}: that slows the program. If it calls very short functions, they can be left out: end \
                     it (Ctrl-C), then `trace-cli suggest-filter {}` prints how\n",
                    time::bytes(new),
                    time::duration(EARLY.as_nanos() as i64),
                    safe(&directory.display().to_string()),
                ));
            }
        })
    }
}

impl Drop for Lookout {
    fn drop(&mut self) {
        drop(self.stop.take());
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Returns number and size of the recordings in a directory. What cannot be read has none.
fn files_of(directory: &Path) -> (u64, u64) {
    let files = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let recordings = files.filter(|file| {
        let path = file.path();
        path.extension()
            .is_some_and(|extension| extension == "annals")
    });
    let sizes = recordings.filter_map(|file| Some(file.metadata().ok()?.len()));
    sizes.fold((0, 0), |(files, bytes), size| (files + 1, bytes + size))
}
