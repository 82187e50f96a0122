//! The binary interfaces that an MPI library may have: representation of handles, constants and
//! statuses.
//!
//! Values are those of the libraries' headers and of MPI 5.0, chapter 20 (the standard's
//! interface).

use std::ffi::CStr;

use crate::library;

/// A binary interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AbiKind {
    /// MPICH and all that is binary compatible with it: handles are integers.
    Mpich,
    /// Open MPI: handles are addresses of its objects.
    OpenMpi,
    /// The interface of MPI 5.0: handles are as wide as a pointer; predefined ones are small
    /// numbers, others are chosen by the library.
    Standard,
}

impl AbiKind {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Mpich => "MPICH",
            Self::OpenMpi => "Open MPI",
            Self::Standard => "MPI standard",
        }
    }
}

/// Constants and layouts.
#[derive(Clone, Debug)]
pub(crate) struct Abi {
    pub(crate) kind: AbiKind,
    pub(crate) comm_world: usize,
    pub(crate) comm_self: usize,
    pub(crate) comm_null: usize,
    pub(crate) request_null: usize,
    pub(crate) message_null: usize,
    pub(crate) message_no_proc: usize,
    pub(crate) datatype_null: usize,
    pub(crate) win_null: usize,
    pub(crate) info_null: usize,
    pub(crate) byte: usize,
    pub(crate) proc_null: i32,
    pub(crate) any_source: i32,
    pub(crate) any_tag: i32,
    pub(crate) root: i32,
    pub(crate) in_place: usize,
    pub(crate) status_ignore: usize,
    pub(crate) statuses_ignore: usize,
    pub(crate) err_truncate: i32,
    pub(crate) err_in_status: i32,
    pub(crate) err_pending: i32,
    pub(crate) thread_multiple: i32,
    /// The combiner that MPI_Type_get_envelope returns for MPI's predefined datatypes.
    pub(crate) combiner_named: i32,
    /// Bytes of a status, and the offsets of its parts.
    pub(crate) status_len: usize,
    pub(crate) source_at: usize,
    pub(crate) tag_at: usize,
    pub(crate) error_at: usize,
    /// Whether the status of MPI_Isendrecv's receive is filled: MPICH up to 5.0 leaves it
    /// unchanged.
    pub(crate) fills_isendrecv: bool,
}

/// Maximum number of bytes of a status.
pub(crate) const STATUS_ROOM: usize = 32;

impl Abi {
    /// Detects the binary interface of the library in memory.
    /// Returns `None` if it cannot be determined.
    pub(crate) fn detect() -> Option<Self> {
        // First: Open MPI's library of the standard's interface is built on one that also has Open
        // MPI's native objects.
        let get_version = library::symbol(c"PMPI_Abi_get_version");
        if get_version != 0 {
            let version = library::abi_version(get_version);
            if version.0 >= 1 {
                return Some(Self::standard());
            }
        }
        if library::symbol(c"ompi_mpi_comm_world") != 0 {
            return Some(Self::open_mpi());
        }
        // Nothing else distinguishes MPICH's interface from others: the library's version text
        // does.
        let version = library::version();
        let is_known = [
            "MPICH",
            "Intel(R) MPI",
            "MVAPICH",
            "CRAY MPICH",
            "ParaStation",
        ];
        is_known
            .iter()
            .any(|name| version.contains(name))
            .then(Self::mpich)
    }

    fn mpich() -> Self {
        Self {
            kind: AbiKind::Mpich,
            comm_world: 0x4400_0000,
            comm_self: 0x4400_0001,
            comm_null: 0x0400_0000,
            request_null: 0x2c00_0000,
            message_null: 0x2c00_0000,
            message_no_proc: 0x6c00_0000,
            datatype_null: 0x0c00_0000,
            win_null: 0x2000_0000,
            info_null: 0x1c00_0000,
            byte: 0x4c00_010d,
            proc_null: -1,
            any_source: -2,
            any_tag: -1,
            root: -3,
            in_place: usize::MAX,
            status_ignore: 1,
            statuses_ignore: 1,
            err_truncate: 14,
            err_in_status: 17,
            err_pending: 18,
            thread_multiple: 3,
            combiner_named: 1,
            status_len: 20,
            source_at: 8,
            tag_at: 12,
            error_at: 16,
            fills_isendrecv: false,
        }
    }

    fn open_mpi() -> Self {
        let address = |name: &CStr| library::object(name);
        Self {
            kind: AbiKind::OpenMpi,
            comm_world: address(c"ompi_mpi_comm_world"),
            comm_self: address(c"ompi_mpi_comm_self"),
            comm_null: address(c"ompi_mpi_comm_null"),
            request_null: address(c"ompi_request_null"),
            message_null: address(c"ompi_message_null"),
            message_no_proc: address(c"ompi_message_no_proc"),
            datatype_null: address(c"ompi_mpi_datatype_null"),
            win_null: address(c"ompi_mpi_win_null"),
            info_null: address(c"ompi_mpi_info_null"),
            byte: address(c"ompi_mpi_byte"),
            proc_null: -2,
            any_source: -1,
            any_tag: -1,
            root: -4,
            in_place: 1,
            status_ignore: 0,
            statuses_ignore: 0,
            err_truncate: 15,
            err_in_status: 18,
            err_pending: 19,
            thread_multiple: 3,
            combiner_named: 0,
            status_len: 24,
            source_at: 0,
            tag_at: 4,
            error_at: 8,
            fills_isendrecv: true,
        }
    }

    fn standard() -> Self {
        Self {
            kind: AbiKind::Standard,
            comm_world: 0x101,
            comm_self: 0x102,
            comm_null: 0x100,
            request_null: 0x180,
            message_null: 0x128,
            message_no_proc: 0x129,
            datatype_null: 0x200,
            win_null: 0x110,
            info_null: 0x130,
            byte: 0x247,
            proc_null: -3,
            any_source: -1,
            any_tag: -2,
            root: -4,
            in_place: 1,
            status_ignore: 0,
            statuses_ignore: 0,
            err_truncate: 15,
            err_in_status: 19,
            err_pending: 18,
            thread_multiple: 4096,
            combiner_named: 101,
            status_len: 32,
            source_at: 0,
            tag_at: 4,
            error_at: 8,
            fills_isendrecv: !library::version().contains("MPICH"),
        }
    }

    /// Returns a handle from the word in which it was passed.
    #[inline(always)]
    pub(crate) fn handle(&self, word: usize) -> usize {
        match self.kind {
            AbiKind::Mpich => word & 0xffff_ffff,
            AbiKind::OpenMpi | AbiKind::Standard => word,
        }
    }

    /// Returns the number of bytes that a handle takes in memory.
    /// MPICH's files are addresses.
    pub(crate) const fn handle_len(&self) -> usize {
        match self.kind {
            AbiKind::Mpich => 4,
            AbiKind::OpenMpi | AbiKind::Standard => 8,
        }
    }
}

/// Returns whether a call with this result has succeeded.
#[inline(always)]
pub(crate) const fn is_success(result: usize) -> bool {
    result as u32 == 0
}
