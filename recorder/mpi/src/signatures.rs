//! Every function of MPI, from `functions.tsv`: its name, its group, and the positions of its
//! arguments. Data only.

use std::ffi::CStr;

/// A function of MPI.
#[derive(Debug)]
pub(crate) struct Function {
    pub(crate) name: &'static CStr,
    /// `p2p`, `coll`, `rma`, `io`, …
    pub(crate) group: &'static str,
    /// Whether its calls may wait for another process, or another one for what they begin or complete.
    pub(crate) waits: bool,
}

/// No argument.
pub(crate) const NO: u8 = u8::MAX;

/// Positions of the arguments, by meaning. [`NO`] means that the function has no such argument.
#[derive(Clone, Copy, Debug)]
pub(crate) struct At {
    /// Counts have 64 bits: a large-count function.
    pub(crate) is_wide: bool,
    /// Number of OTF2's CollectiveOp.
    /// 255 means none.
    pub(crate) operation: u8,
    pub(crate) count: u8,
    pub(crate) datatype: u8,
    pub(crate) target_count: u8,
    pub(crate) target_datatype: u8,
    pub(crate) dest: u8,
    pub(crate) source: u8,
    pub(crate) tag: u8,
    pub(crate) recvtag: u8,
    pub(crate) comm: u8,
    pub(crate) request: u8,
    pub(crate) status: u8,
    pub(crate) flag: u8,
    pub(crate) index: u8,
    pub(crate) outcount: u8,
    pub(crate) message: u8,
    pub(crate) sendbuf: u8,
    pub(crate) recvbuf: u8,
    pub(crate) sendcount: u8,
    pub(crate) sendcounts: u8,
    pub(crate) sendtype: u8,
    pub(crate) sendtypes: u8,
    pub(crate) recvcount: u8,
    pub(crate) recvcounts: u8,
    pub(crate) recvtype: u8,
    pub(crate) recvtypes: u8,
    pub(crate) root: u8,
    pub(crate) newcomm: u8,
    pub(crate) win: u8,
    pub(crate) file: u8,
    pub(crate) name: u8,
    pub(crate) partitions: u8,
    pub(crate) level: u8,
    pub(crate) session: u8,
}

impl At {
    pub(crate) const NONE: Self = Self {
        is_wide: false,
        operation: u8::MAX,
        count: NO,
        datatype: NO,
        target_count: NO,
        target_datatype: NO,
        dest: NO,
        source: NO,
        tag: NO,
        recvtag: NO,
        comm: NO,
        request: NO,
        status: NO,
        flag: NO,
        index: NO,
        outcount: NO,
        message: NO,
        sendbuf: NO,
        recvbuf: NO,
        sendcount: NO,
        sendcounts: NO,
        sendtype: NO,
        sendtypes: NO,
        recvcount: NO,
        recvcounts: NO,
        recvtype: NO,
        recvtypes: NO,
        root: NO,
        newcomm: NO,
        win: NO,
        file: NO,
        name: NO,
        partitions: NO,
        level: NO,
        session: NO,
    };
}

include!(concat!(env!("OUT_DIR"), "/signatures.rs"));
