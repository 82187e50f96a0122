//! Where threads are, in words and numbers that can be shown.

use serde::Serialize;

use super::endings::Ending;

/// What a thread does.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stay {
    /// It is in a call of MPI.
    InMpi,
    /// It asks again and again whether something is complete.
    Polls,
    /// It is outside of MPI.
    Outside,
}

/// Where a thread is.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Position {
    /// Its rank.
    pub rank: u32,
    /// Its name, if its process has several that count.
    pub thread: Option<String>,
    /// Number of its process in the system, and of the thread.
    pub pid: u32,
    /// The system's number of the thread; 0: not known.
    pub thread_id: u64,
    /// Host of the process.
    pub host: String,
    /// Identity of the host since its boot.
    pub boot_id: String,
    /// How its process ended.
    pub ending: Ending,
    /// What it does.
    pub stay: Stay,
    /// The call of MPI that it is in or polls with.
    pub function: Option<String>,
    /// What that call waits for.
    pub waits: Vec<WaitFor>,
    /// Whether one of these is enough.
    pub is_any: bool,
    /// Open regions outside of MPI, the outermost first.
    pub regions: Vec<String>,
    /// Whether regions may be open that are not among them: not all was read, or something was lost.
    pub is_partial: bool,
    /// Since when it is there, trace time, nanoseconds.
    pub since_ns: i64,
    /// When it made progress last, trace time, nanoseconds.
    pub progress_ns: Option<i64>,
    /// Its last event, trace time, nanoseconds. `None`: none is known.
    pub last_ns: Option<i64>,
}

/// What a call or a request waits for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum WaitKind {
    /// A message.
    Receive,
    /// That a message is received.
    Send,
    /// The others in a collective operation.
    Collective,
    /// The others in a call that all processes of a communicator make.
    Call,
    /// The others in a fence.
    Fence,
    /// The others in a collective read or write.
    File,
    /// The others in `MPI_Init`.
    Init,
    /// The others in `MPI_Finalize`.
    Finalize,
    /// Another process of a window.
    Window,
    /// The system, or an operation of a window.
    Alone,
    /// A request of which nothing is known.
    #[default]
    Request,
}

/// What a call or a request waits for, and for which ranks.
#[derive(Clone, PartialEq, Default, Debug, Serialize)]
pub struct WaitFor {
    /// What.
    pub kind: WaitKind,
    /// The collective operation, if it differs from the call.
    pub operation: Option<String>,
    /// Name of the communicator, the window or the file.
    pub object: Option<String>,
    /// Number of the call among those of the object, from 1.
    pub number: Option<u64>,
    /// Rank of the other side of a message; `None`: any.
    pub peer: Option<u32>,
    /// Tag of a message; `None`: any.
    pub tag: Option<i64>,
    /// Rank of the root of a collective operation.
    pub root: Option<u32>,
    /// The ranks that have not done their part, sorted.
    pub missing: Vec<u32>,
    /// The ranks of which that is not known, sorted.
    pub unknown: Vec<u32>,
    /// Whether what it waits for has been done by the others: a message is under way, or all have begun.
    pub is_met: bool,
    /// Of a receive: tag, name of the communicator, and how many, of a message of the other side that is not received.
    pub unreceived: Option<(i64, String, u64)>,
    /// Whether the other side of a message is matched by order alone.
    pub is_guess: bool,
    /// The ranks that have made another call with the same number, sorted, and the calls.
    pub others: Vec<(u32, String)>,
}
