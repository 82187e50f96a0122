//! Codes of definitions: enumerations that files store as one byte each.

macro_rules! code_enum {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $code:literal, $text:literal;)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
        #[repr(u8)]
        pub enum $name { $($(#[$vdoc])* $variant = $code,)* }

        impl $name {
            /// Every value, by code.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// Returns the value with this code, if there is one.
            pub const fn from_code(code: u8) -> Option<Self> {
                match code { $($code => Some(Self::$variant),)* _ => None }
            }

            /// Returns the code in the file.
            pub const fn code(self) -> u8 { self as u8 }

            /// Returns the name in tables and JSON.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }
        }
    };
}

code_enum!(
    /// How a clock is read, which is part of its identity.
    ClockKind {
        /// The reference clock itself: ticks are its nanoseconds.
        Reference = 0, "reference";
        /// The processor's invariant time-stamp counter.
        Tsc = 1, "tsc";
        /// A clock of the source's own that can be read at any time.
        Readable = 2, "readable";
        /// A clock of the source's own that only shows in its events.
        Unreadable = 3, "unreadable";
    }
);

code_enum!(
    /// A source's promise about the order of its events.
    SourceOrder {
        /// Events of the source come in chronological order.
        Ordered = 0, "ordered";
        /// No promise.
        Unordered = 1, "unordered";
    }
);

code_enum!(
    /// Which collective operation an event is about: the element `operation`. Codes are those of OTF2's `CollectiveOp`.
    CollectiveOperation {
        /// MPI_Barrier.
        Barrier = 0, "barrier";
        /// MPI_Bcast.
        Broadcast = 1, "broadcast";
        /// MPI_Gather.
        Gather = 2, "gather";
        /// MPI_Gatherv.
        Gatherv = 3, "gatherv";
        /// MPI_Scatter.
        Scatter = 4, "scatter";
        /// MPI_Scatterv.
        Scatterv = 5, "scatterv";
        /// MPI_Allgather.
        Allgather = 6, "allgather";
        /// MPI_Allgatherv.
        Allgatherv = 7, "allgatherv";
        /// MPI_Alltoall.
        Alltoall = 8, "alltoall";
        /// MPI_Alltoallv.
        Alltoallv = 9, "alltoallv";
        /// MPI_Alltoallw.
        Alltoallw = 10, "alltoallw";
        /// MPI_Allreduce.
        Allreduce = 11, "allreduce";
        /// MPI_Reduce.
        Reduce = 12, "reduce";
        /// MPI_Reduce_scatter.
        ReduceScatter = 13, "reduce-scatter";
        /// MPI_Scan.
        Scan = 14, "scan";
        /// MPI_Exscan.
        Exscan = 15, "exscan";
        /// MPI_Reduce_scatter_block.
        ReduceScatterBlock = 16, "reduce-scatter-block";
    }
);

code_enum!(
    /// Meaning of an event type for analyses.
    Role {
        /// Something happened.
        Point = 0, "point";
        /// A region was entered; the element `region` says which.
        Enter = 1, "enter";
        /// A region was left; the element `region` says which.
        Leave = 2, "leave";
        /// A value was measured: the element `value`.
        Metric = 3, "metric";
        /// A message begins to be sent: elements `communicator`, `peer`, `tag`, `bytes`.
        Send = 4, "send";
        /// A message has been received: elements as for a send.
        Receive = 5, "receive";
        /// An interval begins; the key element ties it to its end.
        Begin = 6, "begin";
        /// An interval ends.
        End = 7, "end";
        /// A collective operation, observed at one moment: elements `communicator`, `root`,
        /// `bytes`.
        Collective = 8, "collective";
        /// A receive was started; the element `request` ties it to its [`Role::Receive`]. Without a request, a
        /// call that does not return before waits for a message.
        ReceiveStart = 9, "receive-start";
        /// A non-blocking send has completed: element `request`.
        SendEnd = 10, "send-end";
        /// A receive that was started will not complete: element `request`.
        Cancel = 11, "cancel";
        /// A collective operation was entered: elements `communicator`, `operation`, `root`, `bytes_sent`,
        /// `bytes_received`.
        CollectiveBegin = 12, "collective-begin";
        /// A collective operation has completed: elements as for its begin.
        CollectiveEnd = 13, "collective-end";
        /// A call waits for an operation that was started: element `request`.
        Wait = 14, "wait";
        /// A thread has a lock from here on: element `lock_id`, the number of the lock in its process.
        Acquire = 15, "acquire";
        /// A thread does not have a lock any more: elements as for [`Role::Acquire`].
        Release = 16, "release";
        /// A thread was at a call path: the element `call_path`, which represents the processor time `weight`, nanoseconds.
        Sample = 17, "sample";
    }
);

code_enum!(
    /// The nine verbosity levels of MPI_T (MPI 4.1 §15.3.1).
    Verbosity {
        /// Basic information for end users.
        UserBasic = 0, "user-basic";
        /// Detailed information for end users.
        UserDetail = 1, "user-detail";
        /// All information for end users.
        UserAll = 2, "user-all";
        /// Basic information for tuning.
        TunerBasic = 3, "tuner-basic";
        /// Detailed information for tuning.
        TunerDetail = 4, "tuner-detail";
        /// All information for tuning.
        TunerAll = 5, "tuner-all";
        /// Basic information for developers of the source.
        DeveloperBasic = 6, "developer-basic";
        /// Detailed information for developers of the source.
        DeveloperDetail = 7, "developer-detail";
        /// All information for developers of the source.
        DeveloperAll = 8, "developer-all";
    }
);

code_enum!(
    /// The kind of place of a location.
    LocationKind {
        /// A thread of the process.
        Thread = 0, "thread";
        /// A device or another place that is not a thread.
        Device = 1, "device";
    }
);

code_enum!(
    /// The kind of definition that an integer element refers to; a merger renumbers references.
    Reference {
        /// A plain value.
        None = 0, "none";
        /// A string of the string table.
        String = 1, "string";
        /// A region.
        Region = 2, "region";
        /// A location.
        Location = 3, "location";
        /// A source.
        Source = 4, "source";
        /// An event type.
        EventType = 5, "event-type";
        /// A bound object, such as a communicator.
        Object = 6, "object";
        /// A rank of the run.
        Rank = 7, "rank";
        /// A call path of samples.
        CallPath = 8, "call-path";
    }
);

code_enum!(
    /// How a recording ended.
    Ended {
        /// Finished by the program.
        Finished = 0, "finished";
        /// The process ended without finishing; its live file was read.
        Killed = 1, "killed";
        /// The process was still recording when it was read.
        Running = 2, "running";
        /// The file ends early and there was no live file next to it.
        Truncated = 3, "truncated";
        /// The process finished, but its storage failed before.
        StorageFailed = 4, "storage-failed";
    }
);

code_enum!(
    /// How the clock of a host was related to the axis of the trace.
    Relation {
        /// The axis is this host's reference clock.
        SameHost = 0, "same-host";
        /// By offsets that were measured and stored in the recordings.
        Measured = 1, "measured";
        /// By a file from the user.
        File = 2, "file";
        /// By the wall clocks, whose error has no bound.
        WallClock = 3, "wall-clock";
        /// By what the messages allow.
        Messages = 4, "messages";
        /// By what the collective operations allow.
        Collectives = 5, "collectives";
    }
);
