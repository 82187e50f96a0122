//! Calls into the MPI library below every tool: through its `PMPI_…` names, or QMPI's table.
//!
//! Handles are words, and so are addresses of statuses. A result is `None` if the library lacks the
//! function, or it fails.
#![expect(unsafe_code, reason = "functions of a C library, found at run time")]

use std::ffi::{c_char, c_int};

use annals_recorder::BootId;

use crate::abi::{AbiKind, STATUS_ROOM};
use crate::library::library_functions;

library_functions! {
    Pmpi;
    raw_comm_rank c"PMPI_Comm_rank" (comm: usize, rank: *mut c_int);
    raw_comm_size c"PMPI_Comm_size" (comm: usize, size: *mut c_int);
    raw_comm_test_inter c"PMPI_Comm_test_inter" (comm: usize, flag: *mut c_int);
    raw_comm_group c"PMPI_Comm_group" (comm: usize, group: *mut usize);
    raw_comm_remote_group c"PMPI_Comm_remote_group" (comm: usize, group: *mut usize);
    raw_win_get_group c"PMPI_Win_get_group" (win: usize, group: *mut usize);
    raw_comm_get_parent c"PMPI_Comm_get_parent" (parent: *mut usize);
    raw_group_size c"PMPI_Group_size" (group: usize, size: *mut c_int);
    raw_group_rank c"PMPI_Group_rank" (group: usize, rank: *mut c_int);
    raw_group_translate c"PMPI_Group_translate_ranks"
        (from: usize, count: c_int, ranks: *const c_int, to: usize, out: *mut c_int);
    raw_group_free c"PMPI_Group_free" (group: *mut usize);
    raw_type_size c"PMPI_Type_size" (datatype: usize, size: *mut c_int);
    raw_type_size_x c"PMPI_Type_size_x" (datatype: usize, size: *mut i64);
    raw_type_get_envelope c"PMPI_Type_get_envelope"
        (datatype: usize, integers: *mut c_int, addresses: *mut c_int, datatypes: *mut c_int, combiner: *mut c_int);
    raw_get_elements_x c"PMPI_Get_elements_x" (status: *const u8, datatype: usize, count: *mut i64);
    raw_get_count c"PMPI_Get_count" (status: *const u8, datatype: usize, count: *mut c_int);
    raw_request_get_status c"PMPI_Request_get_status" (request: usize, flag: *mut c_int, status: *mut u8);
    raw_test_cancelled c"PMPI_Test_cancelled" (status: *const u8, flag: *mut c_int);
    raw_status_set_elements_x c"PMPI_Status_set_elements_x" (status: *mut u8, datatype: usize, count: i64);
    raw_initialized c"PMPI_Initialized" (flag: *mut c_int);
    raw_finalized c"PMPI_Finalized" (flag: *mut c_int);
    raw_query_thread c"PMPI_Query_thread" (level: *mut c_int);
    raw_topo_degrees c"PMPI_Dist_graph_neighbors_count"
        (comm: usize, incoming: *mut c_int, outgoing: *mut c_int, weighted: *mut c_int);
    raw_cartdim c"PMPI_Cartdim_get" (comm: usize, dimensions: *mut c_int);
    raw_graph_count c"PMPI_Graph_neighbors_count" (comm: usize, rank: c_int, count: *mut c_int);
    raw_error_class c"PMPI_Error_class" (code: c_int, class: *mut c_int);
    raw_group_from_pset c"PMPI_Group_from_session_pset"
        (session: usize, name: *const c_char, group: *mut usize);
    raw_comm_dup c"PMPI_Comm_dup" (comm: usize, new: *mut usize);
    raw_allgather c"PMPI_Allgather"
        (from: *const u8, count: c_int, datatype: usize, to: *mut u8, to_count: c_int, to_datatype: usize, comm: usize);
    raw_isend c"PMPI_Isend"
        (from: *const u8, count: c_int, datatype: usize, rank: c_int, tag: c_int, comm: usize, request: *mut usize);
    raw_irecv c"PMPI_Irecv"
        (to: *mut u8, count: c_int, datatype: usize, rank: c_int, tag: c_int, comm: usize, request: *mut usize);
    raw_test c"PMPI_Test" (request: *mut usize, flag: *mut c_int, status: *mut u8);
    raw_cancel c"PMPI_Cancel" (request: *mut usize);
    raw_request_free c"PMPI_Request_free" (request: *mut usize);
    raw_topo_test c"PMPI_Topo_test" (comm: usize, topology: *mut c_int);
}

/// A process that numbers are sent to, or received from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer {
    /// The datatype of bytes.
    pub(crate) byte: usize,
    pub(crate) rank: i32,
    pub(crate) tag: i32,
    pub(crate) comm: usize,
}

impl Pmpi {
    /// Returns whether MPI_Init has returned, and MPI_Finalize has not been called.
    pub(crate) fn is_begun(&self) -> bool {
        let (mut initialized, mut finalized) = (0, 0);
        // SAFETY: a valid place; the function may be called at any time.
        let is_said = unsafe { self.raw_initialized(&raw mut initialized) };
        // SAFETY: a valid place; the function may be called at any time.
        unsafe { self.raw_finalized(&raw mut finalized) };
        is_said && initialized != 0 && finalized == 0
    }

    pub(crate) fn comm_rank(&self, comm: usize) -> Option<i32> {
        let mut rank = 0;
        // SAFETY: a valid communicator, and a valid place.
        unsafe { self.raw_comm_rank(comm, &raw mut rank) }.then_some(rank)
    }

    pub(crate) fn comm_size(&self, comm: usize) -> Option<i32> {
        let mut size = 0;
        // SAFETY: a valid communicator, and a valid place.
        unsafe { self.raw_comm_size(comm, &raw mut size) }.then_some(size)
    }

    pub(crate) fn comm_is_inter(&self, comm: usize) -> bool {
        let mut flag = 0;
        // SAFETY: a valid communicator, and a valid place.
        unsafe { self.raw_comm_test_inter(comm, &raw mut flag) && flag != 0 }
    }

    /// Returns whether programs spawned this process's world. `null` is the handle that means no
    /// communicator.
    pub(crate) fn is_spawned(&self, null: usize) -> bool {
        let mut parent = 0;
        // SAFETY: a place that is large enough for any handle, between MPI_Init and MPI_Finalize.
        unsafe { self.raw_comm_get_parent(&raw mut parent) && parent != null }
    }

    /// Returns the group of a communicator, of its other side, or of a window; to be given to
    /// [`Pmpi::free_group`].
    pub(crate) fn group(&self, of: usize, which: GroupOf) -> Option<usize> {
        let mut group = 0_usize;
        let place = &raw mut group;
        // SAFETY: a valid communicator or window, and a place that is large enough for any handle.
        let is_there = unsafe {
            match which {
                GroupOf::Local => self.raw_comm_group(of, place),
                GroupOf::Remote => self.raw_comm_remote_group(of, place),
                GroupOf::Window => self.raw_win_get_group(of, place),
            }
        };
        is_there.then_some(group)
    }

    pub(crate) fn free_group(&self, mut group: usize) {
        // SAFETY: a group from `group`.
        unsafe { self.raw_group_free(&raw mut group) };
    }

    pub(crate) fn group_size(&self, group: usize) -> Option<i32> {
        let mut size = 0;
        // SAFETY: a group from `group`.
        unsafe { self.raw_group_size(group, &raw mut size) }.then_some(size)
    }

    pub(crate) fn group_rank(&self, group: usize) -> Option<i32> {
        let mut rank = 0;
        // SAFETY: a group from `group`.
        unsafe { self.raw_group_rank(group, &raw mut rank) }.then_some(rank)
    }

    /// Returns the group of all processes that a session knows.
    pub(crate) fn session_group(&self, session: usize) -> Option<usize> {
        let mut group = 0;
        let name = c"mpi://WORLD".as_ptr();
        // SAFETY: a valid session, a C string, and a place that is large enough for any handle.
        unsafe { self.raw_group_from_pset(session, name, &raw mut group) }.then_some(group)
    }

    /// Returns the class of an error code.
    pub(crate) fn error_class(&self, code: i32) -> i32 {
        let mut class = code;
        // SAFETY: a code that the library returned.
        unsafe { self.raw_error_class(code, &raw mut class) };
        class
    }

    /// Returns the ranks that the processes of a group have in another.
    pub(crate) fn translate(&self, from: usize, to: usize) -> Option<Vec<i32>> {
        let size = self.group_size(from)?;
        let ranks: Vec<c_int> = (0..size).collect();
        let mut out = vec![0; ranks.len()];
        let (given, place) = (ranks.as_ptr(), out.as_mut_ptr());
        // SAFETY: valid groups, and arrays of this length.
        unsafe { self.raw_group_translate(from, size, given, to, place) }.then_some(out)
    }

    pub(crate) fn type_size(&self, datatype: usize) -> i64 {
        let mut size = 0_i32;
        // SAFETY: a datatype of the program's, which it passes to the library now, and a valid
        // place.
        if unsafe { self.raw_type_size(datatype, &raw mut size) } && size >= 0 {
            return size.into();
        }
        let mut size = 0_i64;
        // SAFETY: a datatype of the program's, which it passes to the library now, and a valid
        // place.
        unsafe { self.raw_type_size_x(datatype, &raw mut size) };
        size.max(0)
    }

    /// Returns the constructor of a datatype.
    pub(crate) fn combiner(&self, datatype: usize) -> Option<i32> {
        let (mut integers, mut addresses, mut datatypes, mut combiner) = (0, 0, 0, 0);
        // SAFETY: a datatype of the program's, which it passes to the library now, and valid
        // places.
        let is_there = unsafe {
            self.raw_type_get_envelope(
                datatype,
                &raw mut integers,
                &raw mut addresses,
                &raw mut datatypes,
                &raw mut combiner,
            )
        };
        is_there.then_some(combiner)
    }

    /// Returns the bytes of the message that a status describes.
    pub(crate) fn status_bytes(&self, status: *const u8, byte: usize) -> u64 {
        let mut count = 0_i64;
        // SAFETY: a status that the library filled.
        if !unsafe { self.raw_get_elements_x(status, byte, &raw mut count) } {
            let mut narrow = 0;
            // SAFETY: a status that the library filled.
            unsafe { self.raw_get_count(status, byte, &raw mut narrow) };
            count = narrow.into();
        }
        count.max(0) as u64
    }

    pub(crate) fn is_cancelled(&self, status: *const u8) -> bool {
        let mut flag = 0;
        // SAFETY: a status that the library filled.
        unsafe { self.raw_test_cancelled(status, &raw mut flag) && flag != 0 }
    }

    /// Fills a status if an active request is complete. The request stays active.
    pub(crate) fn is_complete(&self, request: usize, status: *mut u8) -> bool {
        let mut flag = 0;
        // SAFETY: a request of the program's, and a place for a status.
        unsafe { self.raw_request_get_status(request, &raw mut flag, status) && flag != 0 }
    }

    /// Writes a number of bytes into a status.
    pub(crate) fn set_status_bytes(&self, status: *mut u8, byte: usize, count: i64) -> bool {
        // SAFETY: a status that this library owns.
        unsafe { self.raw_status_set_elements_x(status, byte, count) }
    }

    /// Returns a duplicate of a communicator; collective.
    pub(crate) fn duplicate(&self, comm: usize) -> Option<usize> {
        let mut new = 0;
        // SAFETY: a valid communicator, and a place that is large enough for any handle.
        unsafe { self.raw_comm_dup(comm, &raw mut new) }.then_some(new)
    }

    /// Gathers the boot ids of the given number of processes.
    /// Collective.
    pub(crate) fn gather_boot_ids(
        &self,
        own: BootId,
        size: i32,
        byte: usize,
        comm: usize,
    ) -> Option<Vec<BootId>> {
        let mut all = vec![[0_u8; 16]; usize::try_from(size).ok()?];
        let (from, to) = (own.0.as_ptr(), all.as_mut_ptr().cast());
        // SAFETY: 16 bytes, and room for as many of each process.
        let is_gathered = unsafe { self.raw_allgather(from, 16, byte, to, 16, byte, comm) };
        is_gathered.then(|| all.into_iter().map(BootId).collect())
    }

    /// Sends a number to a peer. Does not wait; short messages are sent immediately.
    pub(crate) fn send_number(&self, number: i64, to: Peer) -> bool {
        let Peer {
            byte,
            rank,
            tag,
            comm,
        } = to;
        // Never freed: the library may read it at any time.
        let place: &'static [u8; 8] = Box::leak(Box::new(number.to_le_bytes()));
        let mut request = 0;
        // SAFETY: a valid communicator, 8 bytes that stay, and a place that is large enough for any
        // handle.
        let is_sent =
            unsafe { self.raw_isend(place.as_ptr(), 8, byte, rank, tag, comm, &raw mut request) };
        // SAFETY: the request just made; the message continues.
        is_sent && unsafe { self.raw_request_free(&raw mut request) }
    }

    /// Receives a number from a peer. Waits as long as `may_wait` returns `true`.
    pub(crate) fn receive_number(&self, from: Peer, may_wait: impl Fn() -> bool) -> Option<i64> {
        let Peer {
            byte,
            rank,
            tag,
            comm,
        } = from;
        // Never freed: the message may still arrive after the wait has ended.
        let place: &'static mut [u8; 8] = Box::leak(Box::new([0_u8; 8]));
        let to = place.as_mut_ptr();
        let mut request = 0;
        // SAFETY: a valid communicator, 8 bytes that stay, and a place that is large enough for any
        // handle.
        if !unsafe { self.raw_irecv(to, 8, byte, rank, tag, comm, &raw mut request) } {
            return None;
        }
        let (mut flag, mut status) = (0, [0_u64; STATUS_ROOM / 8]);
        let status = status.as_mut_ptr().cast();
        for turn in 0_u32.. {
            // SAFETY: the request just made, and valid places.
            if !unsafe { self.raw_test(&raw mut request, &raw mut flag, status) } {
                return None;
            }
            if flag != 0 {
                // SAFETY: written to by the library, which is done with it.
                return Some(i64::from_le_bytes(unsafe { to.cast::<[u8; 8]>().read() }));
            }
            if turn % 256 == 255 {
                if !may_wait() {
                    break;
                }
                std::thread::yield_now();
            }
        }
        // SAFETY: the request just cancelled, which is freed.
        unsafe { self.raw_cancel(&raw mut request) };
        // SAFETY: written to by the library, which is done with it.
        unsafe { self.raw_request_free(&raw mut request) };
        None
    }

    /// Returns the level of thread support, or `None` before MPI_Init.
    pub(crate) fn thread_level(&self) -> Option<i32> {
        let mut level = 0;
        // SAFETY: a valid place.
        unsafe { self.raw_query_thread(&raw mut level) }.then_some(level)
    }

    /// Returns how many neighbours there are: those that send here, and those that this process
    /// sends to.
    pub(crate) fn degrees(&self, kind: AbiKind, comm: usize, rank: i32) -> (u32, u32) {
        let [cart, graph, distributed] = topologies(kind);
        let (mut incoming, mut outgoing, mut weighted) = (0, 0, 0);
        let mut topology = 0;
        // SAFETY: a valid communicator, and a valid place.
        if !unsafe { self.raw_topo_test(comm, &raw mut topology) } {
            return (0, 0);
        }
        // The topologies' numbers differ between the binary interfaces; a wrong query would raise
        // an error in the program.
        match topology {
            _ if topology < 0 => {}
            _ if topology == cart => {
                // SAFETY: a valid communicator, and a valid place.
                unsafe { self.raw_cartdim(comm, &raw mut incoming) };
                incoming *= 2;
                outgoing = incoming;
            }
            _ if topology == distributed => {
                let places = (&raw mut incoming, &raw mut outgoing, &raw mut weighted);
                // SAFETY: a valid communicator, and a valid place.
                unsafe { self.raw_topo_degrees(comm, places.0, places.1, places.2) };
            }
            _ if topology == graph => {
                // SAFETY: a valid communicator, and a valid place.
                unsafe { self.raw_graph_count(comm, rank, &raw mut incoming) };
                outgoing = incoming;
            }
            _ => {}
        }
        (incoming.max(0) as u32, outgoing.max(0) as u32)
    }
}

/// Returns the numbers of MPI_CART, MPI_GRAPH and MPI_DIST_GRAPH.
const fn topologies(kind: AbiKind) -> [i32; 3] {
    match kind {
        AbiKind::Mpich => [2, 1, 3],
        AbiKind::OpenMpi => [1, 2, 3],
        AbiKind::Standard => [211, 212, 213],
    }
}

/// The object whose group is meant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum GroupOf {
    Local,
    Remote,
    Window,
}
