//! The roles of MPI's functions: those that Score-P writes.

/// A region without a role that is known.
pub(super) const FUNCTION: u64 = 1;
const ATOMIC: u64 = 14;
const BARRIER: u64 = 15;
const COLL_ONE2ALL: u64 = 23;
const COLL_ALL2ONE: u64 = 24;
const COLL_ALL2ALL: u64 = 25;
const COLL_OTHER: u64 = 26;
const FILE_IO: u64 = 27;
const POINT2POINT: u64 = 28;
const RMA: u64 = 29;
const ALLOCATE: u64 = 35;
const DEALLOCATE: u64 = 36;
const FILE_IO_METADATA: u64 = 38;

/// Returns the role of a function of MPI, as `RegionRole` has them.
pub(super) fn role_of_mpi(function: &str) -> u64 {
    let name = function.to_ascii_lowercase();
    let name = ["mpi_", "mpix_"]
        .iter()
        .find_map(|prefix| name.strip_prefix(prefix));
    let Some(name) = name else {
        return FUNCTION;
    };
    if let Some(operation) = name.strip_prefix("file_") {
        return role_of_file(operation);
    }
    if ["send", "recv", "probe"]
        .iter()
        .any(|part| name.contains(part))
    {
        return POINT2POINT;
    }
    // Large counts, requests that are started later, and streams are of the same role.
    let mut base = name;
    for suffix in ["_c", "_enqueue", "_init"] {
        base = base.strip_suffix(suffix).unwrap_or(base);
    }
    let nonblocking = ["i", "r"]
        .iter()
        .filter_map(|prefix| base.strip_prefix(prefix));
    let mut roles = std::iter::once(base).chain(nonblocking).map(role_of_base);
    roles.find(|role| *role != FUNCTION).unwrap_or(FUNCTION)
}

fn role_of_base(name: &str) -> u64 {
    match name.strip_prefix("neighbor_").unwrap_or(name) {
        "barrier" => BARRIER,
        "bcast" | "scatter" | "scatterv" => COLL_ONE2ALL,
        "gather" | "gatherv" | "reduce" => COLL_ALL2ONE,
        "allgather"
        | "allgatherv"
        | "alltoall"
        | "alltoallv"
        | "alltoallw"
        | "allreduce"
        | "reduce_scatter"
        | "reduce_scatter_block" => COLL_ALL2ALL,
        "scan" | "exscan" => COLL_OTHER,
        "get" | "put" => RMA,
        "accumulate" | "get_accumulate" | "fetch_and_op" | "compare_and_swap" => ATOMIC,
        "alloc_mem" | "win_allocate" | "win_allocate_shared" => ALLOCATE,
        "free_mem" => DEALLOCATE,
        _ => FUNCTION,
    }
}

fn role_of_file(operation: &str) -> u64 {
    match operation.split('_').next() {
        Some("read" | "write" | "iread" | "iwrite" | "sync") => FILE_IO,
        Some("open" | "close" | "delete" | "seek") => FILE_IO_METADATA,
        _ => FUNCTION,
    }
}
