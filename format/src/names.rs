//! Well-known names, as SPEC.md lists them: by these, and by nothing else, readers and writers know what an element or a
//! property means.

/// Elements of event types: see SPEC.md, the table of roles, and *Messages and collective operations*.
pub mod element {
    /// The region that an enter or a leave is of.
    pub const REGION: &str = "region";
    /// The value of a metric.
    pub const VALUE: &str = "value";
    /// The communicator of a message or a collective operation.
    pub const COMMUNICATOR: &str = "communicator";
    /// The rank of the other process of a message.
    pub const PEER: &str = "peer";
    /// The tag of a message.
    pub const TAG: &str = "tag";
    /// The size of a message in bytes.
    pub const BYTES: &str = "bytes";
    /// The request that connects the events of one non-blocking operation.
    pub const REQUEST: &str = "request";
    /// The number of a lock in its process.
    pub const LOCK_ID: &str = "lock_id";
    /// The number of a message in its channel.
    pub const SEQUENCE: &str = "sequence";
    /// Which collective operation it is.
    pub const OPERATION: &str = "operation";
    /// The rank of the root of a collective operation.
    pub const ROOT: &str = "root";
    /// Bytes that a process contributes to a collective operation.
    pub const BYTES_SENT: &str = "bytes_sent";
    /// Bytes that a collective operation delivers to a process.
    pub const BYTES_RECEIVED: &str = "bytes_received";
    /// The rank of the process in the communicator.
    pub const PLACE: &str = "place";
    /// The number of processes in the communicator.
    pub const SIZE: &str = "size";

    /// How many requests a call waits for.
    pub const COUNT: &str = "count";

    /// The call path of a sample.
    pub const CALL_PATH: &str = "call_path";
    /// The processor time that a sample represents, nanoseconds.
    pub const WEIGHT: &str = "weight";

    /// How long the thread of a sample did not run since the one before although it could, nanoseconds.
    pub const PREEMPTED: &str = "preempted";

    /// Every name.
    pub const ALL: [&str; 19] = [
        REGION,
        VALUE,
        COMMUNICATOR,
        PEER,
        TAG,
        BYTES,
        REQUEST,
        SEQUENCE,
        OPERATION,
        ROOT,
        BYTES_SENT,
        BYTES_RECEIVED,
        PLACE,
        SIZE,
        COUNT,
        LOCK_ID,
        CALL_PATH,
        WEIGHT,
        PREEMPTED,
    ];
}

/// Properties of processes: see SPEC.md, *Properties*.
pub mod property {
    /// The path of the recording's live file, if it is in another directory.
    pub const LIVE_FILE: &str = "live-file";
    /// The token of the command that started the program.
    pub const RECORDED_BY: &str = "recorded-by";
    /// How the process ended, as the system reported it to the process that had started it: `SIGSEGV` or `exit 3`.
    pub const PROCESS_END: &str = "process.end";
    /// The code that the process passed to `MPI_Abort`.
    pub const MPI_ABORT: &str = "mpi.abort";
    /// Of a process that exited without it: the function that MPI requires first, `MPI_Finalize` or `MPI_Session_finalize`.
    pub const MPI_MISSING_FINALIZE: &str = "mpi.missing-finalize";
    /// The rank whose process has started this one: it inherited the launcher's variables, and is no rank itself unless it has one.
    pub const STARTED_BY_RANK: &str = "started-by-rank";
    /// The rank that the launcher has given to this process, and that another recording of the same start has.
    pub const LAUNCHED_AS_RANK: &str = "launched-as-rank";
    /// Of a process that has initialised MPI: the function, `MPI_Init` or `MPI_Session_init`.
    pub const MPI_BEGUN: &str = "mpi.begun";
    /// Event types of MPI of which the rules of the process leave out events, and functions of MPI that may wait of which it leaves
    /// out the calls, by name, separated by spaces. There may be several.
    pub const MPI_LEFT_OUT: &str = "mpi.left-out";
    /// Functions of MPI that may wait, or for which others wait, and that the process may call past the recorder: names, separated by
    /// spaces.
    pub const MPI_UNSEEN: &str = "mpi.unseen";
    /// Other functions of MPI that the process may call past the recorder.
    pub const MPI_UNSEEN_OTHERS: &str = "mpi.unseen-others";
    /// What an event costs where the process ran, nanoseconds of processor time: of an enter or a leave, for its thread and for all
    /// threads of a process; of another event, likewise; and by how much these may differ, as a share. Five numbers, separated by spaces.
    pub const RECORDING_COST: &str = "recording.cost";
    /// Number of regions of the process whose names are lost.
    pub const UNNAMED_REGIONS: &str = "unnamed-regions";
    /// Number of children of the process, made by fork, in which events were raised: nothing records them.
    pub const UNRECORDED_CHILDREN: &str = "unrecorded-children";
    /// Of a forked child that has a recording: the number of the process from which it was forked, itself or by children that
    /// have no recording.
    pub const FORKED_FROM: &str = "forked-from";
    /// Of a process whose forked children are recorded: `follow`.
    pub const FORKS: &str = "forks";
    /// Of a process whose threads are sampled: how, a name, and the period of processor time for which a sample is asked, nanoseconds,
    /// separated by a space.
    pub const SAMPLING: &str = "sampling";
    /// Of a process whose threads are sampled: the processor time that recording its samples took, nanoseconds, without that of the system.
    pub const SAMPLING_TIME: &str = "sampling.time";
    /// Of a process whose threads cannot be sampled, or some of them: why.
    pub const NOT_SAMPLED: &str = "not-sampled";
    /// Of a process whose clock was never compared with any other: what relates it to the others, `collectives`.
    pub const CLOCK_RELATED_BY: &str = "clock.related-by";
    /// What readers should know of the recording: a sentence. There may be several.
    pub const NOTE: &str = "note";

    /// Every name.
    pub const ALL: [&str; 21] = [
        LIVE_FILE,
        RECORDED_BY,
        PROCESS_END,
        MPI_ABORT,
        MPI_MISSING_FINALIZE,
        STARTED_BY_RANK,
        LAUNCHED_AS_RANK,
        MPI_BEGUN,
        MPI_LEFT_OUT,
        MPI_UNSEEN,
        MPI_UNSEEN_OTHERS,
        RECORDING_COST,
        UNNAMED_REGIONS,
        UNRECORDED_CHILDREN,
        FORKED_FROM,
        FORKS,
        SAMPLING,
        SAMPLING_TIME,
        NOT_SAMPLED,
        CLOCK_RELATED_BY,
        NOTE,
    ];
}
