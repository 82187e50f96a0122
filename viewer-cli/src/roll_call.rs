//! Says once in which calls the ranks of a recorded job are, when none of them has moved for a time.

use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::commands::stuck::roll_call;
use crate::table::safe_lines;
use crate::watch::with_signals_blocked;

/// A thread that reads what a job has recorded, as long as this lives.
#[derive(Debug)]
pub struct RollCall {
    thread: Option<JoinHandle<()>>,
    /// Its end is the thread's.
    stop: Option<Sender<()>>,
}

impl RollCall {
    /// Reads the recordings of a directory again and again, this time apart.
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn begin(directory: &Path, after: Duration) -> std::io::Result<Self> {
        let (stop, stopped) = channel();
        let directory = directory.to_owned();
        let thread = with_signals_blocked(|| {
            std::thread::Builder::new().spawn(move || look(&directory, after, &stopped))
        })?;
        Ok(Self {
            thread: Some(thread),
            stop: Some(stop),
        })
    }
}

impl Drop for RollCall {
    fn drop(&mut self) {
        drop(self.stop.take());
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn look(directory: &Path, after: Duration, stopped: &Receiver<()>) {
    let mut is_over = false;
    let mut wait = |time| {
        is_over = stopped.recv_timeout(time) != Err(RecvTimeoutError::Timeout);
        !is_over
    };
    while wait(after / 2) {
        // Nothing can be read before the first recording has begun.
        if let Ok(Some(text)) = roll_call(directory, after, &mut wait) {
            eprint!("trace-cli: {}", safe_lines(&text));
            return;
        }
    }
}
