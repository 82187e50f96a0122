//! Other programs, run for their answer: with a time limit, and without room for floods of output.

use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

/// How long a program has.
pub(crate) const LIMIT: Duration = Duration::from_secs(5);

/// Bytes that are kept of what it writes. The rest is read and dropped.
const MOST_BYTES: usize = 1 << 20;

/// Environment variables that make the loader print into what is read here, or do something else than run a program.
const OF_LOADER: [&str; 4] = [
    "LD_DEBUG",
    "LD_DEBUG_OUTPUT",
    "LD_TRACE_LOADED_OBJECTS",
    "LD_VERBOSE",
];

/// The result of a program.
#[derive(Debug)]
pub(crate) struct Answer {
    /// How it ended. `None` means that the time was over and it was killed.
    pub(crate) status: Option<ExitStatus>,
    /// Its standard output.
    pub(crate) output: String,
    /// Its standard error.
    pub(crate) errors: String,
}

impl Answer {
    /// Returns whether it ended with exit code 0.
    pub(crate) fn is_success(&self) -> bool {
        self.status.is_some_and(|status| status.success())
    }
}

/// Runs a program, and returns its answer. `started` gets its process id while it runs.
///
/// # Errors
/// If it cannot be started.
pub(crate) fn run(command: &mut Command, started: impl FnOnce(u32)) -> io::Result<Answer> {
    for variable in OF_LOADER {
        command.env_remove(variable);
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    command.stderr(Stdio::piped()).process_group(0);
    let mut child = command.spawn()?;
    let pid = child.id();
    started(pid);
    let readers = (
        child.stdout.take().map(read_in_background).transpose(),
        child.stderr.take().map(read_in_background).transpose(),
    );
    let (Ok(output), Ok(errors)) = readers else {
        child.kill()?;
        child.wait()?;
        return Err(io::Error::other(
            "no thread can be started to read its answer",
        ));
    };
    let until = Instant::now() + LIMIT;
    let mut status = None;
    while status.is_none() && Instant::now() < until {
        status = child.try_wait()?;
        if status.is_none() {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
    if status.is_none() {
        if let Some(group) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
            let _ = kill_process_group(group, Signal::KILL);
        }
        // It may be in a system call that never returns: it is not waited for without end.
        let until = Instant::now() + Duration::from_secs(1);
        while Instant::now() < until && child.try_wait()?.is_none() {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
    // Its children may keep the pipes open.
    let text = |reader: Option<Receiver<Vec<u8>>>| {
        let bytes = reader.and_then(|reader| reader.recv_timeout(Duration::from_secs(1)).ok());
        String::from_utf8_lossy(&bytes.unwrap_or_default()).into_owned()
    };
    Ok(Answer {
        status,
        output: text(output),
        errors: text(errors),
    })
}

fn read_in_background(mut pipe: impl Read + Send + 'static) -> io::Result<Receiver<Vec<u8>>> {
    let (sender, receiver) = channel();
    let read = move || {
        let mut kept = Vec::new();
        let mut buffer = [0; 1 << 14];
        while let Ok(length) = pipe.read(&mut buffer)
            && length != 0
        {
            let room = MOST_BYTES - kept.len();
            kept.extend_from_slice(&buffer[..length.min(room)]);
        }
        // The receiver may have given up.
        let _ = sender.send(kept);
    };
    std::thread::Builder::new().spawn(read)?;
    Ok(receiver)
}
