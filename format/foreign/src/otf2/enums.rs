//! The enumerations of OTF2 3.2: names without their prefix, and values.

use super::describe::Enumeration;

/// Values of [`GROUP_TYPE`] that converters treat specially.
pub mod group_type {
    /// Locations.
    pub const LOCATIONS: u64 = 1;
    /// Regions.
    pub const REGIONS: u64 = 2;
    /// Metrics.
    pub const METRIC: u64 = 3;
    /// All locations of a communication paradigm.
    pub const COMM_LOCATIONS: u64 = 4;
    /// The members of a communicator.
    pub const COMM_GROUP: u64 = 5;
    /// Each process alone.
    pub const COMM_SELF: u64 = 6;
    /// Location groups of a communication paradigm.
    pub const COMM_LOCATION_GROUPS: u64 = 7;
}

/// Value of [`GROUP_FLAG`]: the members' ranks in events are those of the whole paradigm.
pub const GLOBAL_MEMBERS: u64 = 1;

/// Value of [`PARADIGM`] for MPI.
pub const PARADIGM_MPI: u64 = 4;

/// Values of [`MEASUREMENT_MODE`].
pub mod measurement_mode {
    /// Recording resumes.
    pub const ON: u64 = 1;
    /// Recording stops.
    pub const OFF: u64 = 2;
}

/// `Base`.
pub const BASE: Enumeration = Enumeration {
    name: "Base",
    is_set: false,
    values: &[(0, "BINARY"), (1, "DECIMAL")],
};

/// `CartPeriodicity`.
pub const CART_PERIODICITY: Enumeration = Enumeration {
    name: "CartPeriodicity",
    is_set: false,
    values: &[(0, "FALSE"), (1, "TRUE")],
};

/// `CollectiveOp`.
pub const COLLECTIVE_OP: Enumeration = Enumeration {
    name: "CollectiveOp",
    is_set: false,
    values: &[
        (0, "BARRIER"),
        (1, "BCAST"),
        (2, "GATHER"),
        (3, "GATHERV"),
        (4, "SCATTER"),
        (5, "SCATTERV"),
        (6, "ALLGATHER"),
        (7, "ALLGATHERV"),
        (8, "ALLTOALL"),
        (9, "ALLTOALLV"),
        (10, "ALLTOALLW"),
        (11, "ALLREDUCE"),
        (12, "REDUCE"),
        (13, "REDUCE_SCATTER"),
        (14, "SCAN"),
        (15, "EXSCAN"),
        (16, "REDUCE_SCATTER_BLOCK"),
        (17, "CREATE_HANDLE"),
        (18, "DESTROY_HANDLE"),
        (19, "ALLOCATE"),
        (20, "DEALLOCATE"),
        (21, "CREATE_HANDLE_AND_ALLOCATE"),
        (22, "DESTROY_HANDLE_AND_DEALLOCATE"),
    ],
};

/// `CollectiveRoot`.
pub const COLLECTIVE_ROOT: Enumeration = Enumeration {
    name: "CollectiveRoot",
    is_set: false,
    values: &[
        (4294967293, "THIS_GROUP"),
        (4294967294, "SELF"),
        (4294967295, "NONE"),
    ],
};

/// `CommFlag`.
pub const COMM_FLAG: Enumeration = Enumeration {
    name: "CommFlag",
    is_set: true,
    values: &[(0, "NONE"), (1, "CREATE_DESTROY_EVENTS")],
};

/// `Compression`.
pub const COMPRESSION: Enumeration = Enumeration {
    name: "Compression",
    is_set: false,
    values: &[(0, "UNDEFINED"), (1, "NONE"), (2, "ZLIB")],
};

/// `FileSubstrate`.
pub const FILE_SUBSTRATE: Enumeration = Enumeration {
    name: "FileSubstrate",
    is_set: false,
    values: &[(0, "UNDEFINED"), (1, "POSIX"), (2, "SION"), (3, "NONE")],
};

/// `GroupFlag`.
pub const GROUP_FLAG: Enumeration = Enumeration {
    name: "GroupFlag",
    is_set: true,
    values: &[(0, "NONE"), (1, "GLOBAL_MEMBERS")],
};

/// `GroupType`.
pub const GROUP_TYPE: Enumeration = Enumeration {
    name: "GroupType",
    is_set: false,
    values: &[
        (0, "UNKNOWN"),
        (1, "LOCATIONS"),
        (2, "REGIONS"),
        (3, "METRIC"),
        (4, "COMM_LOCATIONS"),
        (5, "COMM_GROUP"),
        (6, "COMM_SELF"),
        (7, "COMM_LOCATION_GROUPS"),
    ],
};

/// `IdMapMode`.
pub const ID_MAP_MODE: Enumeration = Enumeration {
    name: "IdMapMode",
    is_set: false,
    values: &[(0, "DENSE"), (1, "SPARSE")],
};

/// `InterruptGeneratorMode`.
pub const INTERRUPT_GENERATOR_MODE: Enumeration = Enumeration {
    name: "InterruptGeneratorMode",
    is_set: false,
    values: &[(0, "TIME"), (1, "COUNT")],
};

/// `IoAccessMode`.
pub const IO_ACCESS_MODE: Enumeration = Enumeration {
    name: "IoAccessMode",
    is_set: false,
    values: &[
        (0, "READ_ONLY"),
        (1, "WRITE_ONLY"),
        (2, "READ_WRITE"),
        (3, "EXECUTE_ONLY"),
        (4, "SEARCH_ONLY"),
    ],
};

/// `IoCreationFlag`.
pub const IO_CREATION_FLAG: Enumeration = Enumeration {
    name: "IoCreationFlag",
    is_set: true,
    values: &[
        (0, "NONE"),
        (1, "CREATE"),
        (2, "TRUNCATE"),
        (4, "DIRECTORY"),
        (8, "EXCLUSIVE"),
        (16, "NO_CONTROLLING_TERMINAL"),
        (32, "NO_FOLLOW"),
        (64, "PATH"),
        (128, "TEMPORARY_FILE"),
        (256, "LARGEFILE"),
        (512, "NO_SEEK"),
        (1024, "UNIQUE"),
    ],
};

/// `IoHandleFlag`.
pub const IO_HANDLE_FLAG: Enumeration = Enumeration {
    name: "IoHandleFlag",
    is_set: true,
    values: &[(0, "NONE"), (1, "PRE_CREATED"), (2, "ALL_PROXY")],
};

/// `IoOperationFlag`.
pub const IO_OPERATION_FLAG: Enumeration = Enumeration {
    name: "IoOperationFlag",
    is_set: true,
    values: &[(0, "NONE"), (1, "NON_BLOCKING"), (2, "COLLECTIVE")],
};

/// `IoOperationMode`.
pub const IO_OPERATION_MODE: Enumeration = Enumeration {
    name: "IoOperationMode",
    is_set: false,
    values: &[(0, "READ"), (1, "WRITE"), (2, "FLUSH")],
};

/// `IoParadigmClass`.
pub const IO_PARADIGM_CLASS: Enumeration = Enumeration {
    name: "IoParadigmClass",
    is_set: false,
    values: &[(0, "SERIAL"), (1, "PARALLEL")],
};

/// `IoParadigmFlag`.
pub const IO_PARADIGM_FLAG: Enumeration = Enumeration {
    name: "IoParadigmFlag",
    is_set: true,
    values: &[(0, "NONE"), (1, "OS")],
};

/// `IoParadigmProperty`.
pub const IO_PARADIGM_PROPERTY: Enumeration = Enumeration {
    name: "IoParadigmProperty",
    is_set: false,
    values: &[(0, "VERSION")],
};

/// `IoSeekOption`.
pub const IO_SEEK_OPTION: Enumeration = Enumeration {
    name: "IoSeekOption",
    is_set: false,
    values: &[
        (0, "FROM_START"),
        (1, "FROM_CURRENT"),
        (2, "FROM_END"),
        (3, "DATA"),
        (4, "HOLE"),
    ],
};

/// `IoStatusFlag`.
pub const IO_STATUS_FLAG: Enumeration = Enumeration {
    name: "IoStatusFlag",
    is_set: true,
    values: &[
        (0, "NONE"),
        (1, "CLOSE_ON_EXEC"),
        (2, "APPEND"),
        (4, "NON_BLOCKING"),
        (8, "ASYNC"),
        (16, "SYNC"),
        (32, "DATA_SYNC"),
        (64, "AVOID_CACHING"),
        (128, "NO_ACCESS_TIME"),
        (256, "DELETE_ON_CLOSE"),
    ],
};

/// `LocationGroupType`.
pub const LOCATION_GROUP_TYPE: Enumeration = Enumeration {
    name: "LocationGroupType",
    is_set: false,
    values: &[(0, "UNKNOWN"), (1, "PROCESS"), (2, "ACCELERATOR")],
};

/// `LocationType`.
pub const LOCATION_TYPE: Enumeration = Enumeration {
    name: "LocationType",
    is_set: false,
    values: &[
        (0, "UNKNOWN"),
        (1, "CPU_THREAD"),
        (2, "ACCELERATOR_STREAM"),
        (3, "METRIC"),
    ],
};

/// `LockType`.
pub const LOCK_TYPE: Enumeration = Enumeration {
    name: "LockType",
    is_set: false,
    values: &[(0, "EXCLUSIVE"), (1, "SHARED")],
};

/// `MappingType`.
pub const MAPPING_TYPE: Enumeration = Enumeration {
    name: "MappingType",
    is_set: false,
    values: &[
        (0, "STRING"),
        (1, "ATTRIBUTE"),
        (2, "LOCATION"),
        (3, "REGION"),
        (4, "GROUP"),
        (5, "METRIC"),
        (6, "COMM"),
        (7, "PARAMETER"),
        (8, "RMA_WIN"),
        (9, "SOURCE_CODE_LOCATION"),
        (10, "CALLING_CONTEXT"),
        (11, "INTERRUPT_GENERATOR"),
        (12, "IO_FILE"),
        (13, "IO_HANDLE"),
        (14, "LOCATION_GROUP"),
    ],
};

/// `MeasurementMode`.
pub const MEASUREMENT_MODE: Enumeration = Enumeration {
    name: "MeasurementMode",
    is_set: false,
    values: &[(1, "ON"), (2, "OFF")],
};

/// `MetricMode`.
pub const METRIC_MODE: Enumeration = Enumeration {
    name: "MetricMode",
    is_set: false,
    values: &[
        (0, "ACCUMULATED_START"),
        (16, "ACCUMULATED_POINT"),
        (17, "ABSOLUTE_POINT"),
        (18, "RELATIVE_POINT"),
        (32, "ACCUMULATED_LAST"),
        (33, "ABSOLUTE_LAST"),
        (34, "RELATIVE_LAST"),
        (48, "ACCUMULATED_NEXT"),
        (49, "ABSOLUTE_NEXT"),
        (50, "RELATIVE_NEXT"),
    ],
};

/// `MetricOccurrence`.
pub const METRIC_OCCURRENCE: Enumeration = Enumeration {
    name: "MetricOccurrence",
    is_set: false,
    values: &[
        (0, "SYNCHRONOUS_STRICT"),
        (1, "SYNCHRONOUS"),
        (2, "ASYNCHRONOUS"),
    ],
};

/// `MetricScope`.
pub const METRIC_SCOPE: Enumeration = Enumeration {
    name: "MetricScope",
    is_set: false,
    values: &[
        (0, "LOCATION"),
        (1, "LOCATION_GROUP"),
        (2, "SYSTEM_TREE_NODE"),
        (3, "GROUP"),
    ],
};

/// `MetricType`.
pub const METRIC_TYPE: Enumeration = Enumeration {
    name: "MetricType",
    is_set: false,
    values: &[(0, "OTHER"), (1, "PAPI"), (2, "RUSAGE"), (3, "USER")],
};

/// `Paradigm`.
pub const PARADIGM: Enumeration = Enumeration {
    name: "Paradigm",
    is_set: false,
    values: &[
        (0, "UNKNOWN"),
        (1, "USER"),
        (2, "COMPILER"),
        (3, "OPENMP"),
        (4, "MPI"),
        (5, "CUDA"),
        (6, "MEASUREMENT_SYSTEM"),
        (7, "PTHREAD"),
        (8, "HMPP"),
        (9, "OMPSS"),
        (10, "HARDWARE"),
        (11, "GASPI"),
        (12, "UPC"),
        (13, "SHMEM"),
        (14, "WINTHREAD"),
        (15, "QTTHREAD"),
        (16, "ACETHREAD"),
        (17, "TBBTHREAD"),
        (18, "OPENACC"),
        (19, "OPENCL"),
        (20, "MTAPI"),
        (21, "SAMPLING"),
        (22, "NONE"),
        (23, "HIP"),
        (24, "KOKKOS"),
        (25, "OPENMP_TARGET"),
    ],
};

/// `ParadigmClass`.
pub const PARADIGM_CLASS: Enumeration = Enumeration {
    name: "ParadigmClass",
    is_set: false,
    values: &[
        (0, "PROCESS"),
        (1, "THREAD_FORK_JOIN"),
        (2, "THREAD_CREATE_WAIT"),
        (3, "ACCELERATOR"),
    ],
};

/// `ParadigmProperty`.
pub const PARADIGM_PROPERTY: Enumeration = Enumeration {
    name: "ParadigmProperty",
    is_set: false,
    values: &[
        (0, "COMM_NAME_TEMPLATE"),
        (1, "RMA_WIN_NAME_TEMPLATE"),
        (2, "RMA_ONLY"),
    ],
};

/// `ParameterType`.
pub const PARAMETER_TYPE: Enumeration = Enumeration {
    name: "ParameterType",
    is_set: false,
    values: &[(0, "STRING"), (1, "INT64"), (2, "UINT64")],
};

/// `RecorderKind`.
pub const RECORDER_KIND: Enumeration = Enumeration {
    name: "RecorderKind",
    is_set: false,
    values: &[(0, "UNKNOWN"), (1, "ABSTRACT"), (2, "CPU"), (3, "GPU")],
};

/// `RegionFlag`.
pub const REGION_FLAG: Enumeration = Enumeration {
    name: "RegionFlag",
    is_set: true,
    values: &[(0, "NONE"), (1, "DYNAMIC"), (2, "PHASE")],
};

/// `RegionRole`.
pub const REGION_ROLE: Enumeration = Enumeration {
    name: "RegionRole",
    is_set: false,
    values: &[
        (0, "UNKNOWN"),
        (1, "FUNCTION"),
        (2, "WRAPPER"),
        (3, "LOOP"),
        (4, "CODE"),
        (5, "PARALLEL"),
        (6, "SECTIONS"),
        (7, "SECTION"),
        (8, "WORKSHARE"),
        (9, "SINGLE"),
        (10, "SINGLE_SBLOCK"),
        (11, "MASTER"),
        (12, "CRITICAL"),
        (13, "CRITICAL_SBLOCK"),
        (14, "ATOMIC"),
        (15, "BARRIER"),
        (16, "IMPLICIT_BARRIER"),
        (17, "FLUSH"),
        (18, "ORDERED"),
        (19, "ORDERED_SBLOCK"),
        (20, "TASK"),
        (21, "TASK_CREATE"),
        (22, "TASK_WAIT"),
        (23, "COLL_ONE2ALL"),
        (24, "COLL_ALL2ONE"),
        (25, "COLL_ALL2ALL"),
        (26, "COLL_OTHER"),
        (27, "FILE_IO"),
        (28, "POINT2POINT"),
        (29, "RMA"),
        (30, "DATA_TRANSFER"),
        (31, "ARTIFICIAL"),
        (32, "THREAD_CREATE"),
        (33, "THREAD_WAIT"),
        (34, "TASK_UNTIED"),
        (35, "ALLOCATE"),
        (36, "DEALLOCATE"),
        (37, "REALLOCATE"),
        (38, "FILE_IO_METADATA"),
        (39, "CANCEL"),
        (40, "KERNEL"),
    ],
};

/// `RmaAtomicType`.
pub const RMA_ATOMIC_TYPE: Enumeration = Enumeration {
    name: "RmaAtomicType",
    is_set: false,
    values: &[
        (0, "ACCUMULATE"),
        (1, "INCREMENT"),
        (2, "TEST_AND_SET"),
        (3, "COMPARE_AND_SWAP"),
        (4, "SWAP"),
        (5, "FETCH_AND_ADD"),
        (6, "FETCH_AND_INCREMENT"),
        (7, "FETCH_AND_ACCUMULATE"),
    ],
};

/// `RmaSyncLevel`.
pub const RMA_SYNC_LEVEL: Enumeration = Enumeration {
    name: "RmaSyncLevel",
    is_set: true,
    values: &[(0, "NONE"), (1, "PROCESS"), (2, "MEMORY")],
};

/// `RmaSyncType`.
pub const RMA_SYNC_TYPE: Enumeration = Enumeration {
    name: "RmaSyncType",
    is_set: false,
    values: &[(0, "MEMORY"), (1, "NOTIFY_IN"), (2, "NOTIFY_OUT")],
};

/// `RmaWinFlag`.
pub const RMA_WIN_FLAG: Enumeration = Enumeration {
    name: "RmaWinFlag",
    is_set: true,
    values: &[(0, "NONE"), (1, "CREATE_DESTROY_EVENTS")],
};

/// `SystemTreeDomain`.
pub const SYSTEM_TREE_DOMAIN: Enumeration = Enumeration {
    name: "SystemTreeDomain",
    is_set: false,
    values: &[
        (0, "MACHINE"),
        (1, "SHARED_MEMORY"),
        (2, "NUMA"),
        (3, "SOCKET"),
        (4, "CACHE"),
        (5, "CORE"),
        (6, "PU"),
        (7, "ACCELERATOR_DEVICE"),
        (8, "NETWORKING_DEVICE"),
    ],
};

/// `TaskGenerationNumber`.
pub const TASK_GENERATION_NUMBER: Enumeration = Enumeration {
    name: "TaskGenerationNumber",
    is_set: false,
    values: &[(0, "IMPLICIT")],
};

/// `ThumbnailType`.
pub const THUMBNAIL_TYPE: Enumeration = Enumeration {
    name: "ThumbnailType",
    is_set: false,
    values: &[
        (0, "REGION"),
        (1, "METRIC"),
        (2, "ATTRIBUTES"),
        (3, "COMM"),
        (4, "RMA_WIN"),
        (5, "IO_HANDLE"),
    ],
};

/// `Type`.
pub const TYPE: Enumeration = Enumeration {
    name: "Type",
    is_set: false,
    values: &[
        (0, "NONE"),
        (1, "UINT8"),
        (2, "UINT16"),
        (3, "UINT32"),
        (4, "UINT64"),
        (5, "INT8"),
        (6, "INT16"),
        (7, "INT32"),
        (8, "INT64"),
        (9, "FLOAT"),
        (10, "DOUBLE"),
        (11, "STRING"),
        (12, "ATTRIBUTE"),
        (13, "LOCATION"),
        (14, "REGION"),
        (15, "GROUP"),
        (16, "METRIC"),
        (17, "COMM"),
        (18, "PARAMETER"),
        (19, "RMA_WIN"),
        (20, "SOURCE_CODE_LOCATION"),
        (21, "CALLING_CONTEXT"),
        (22, "INTERRUPT_GENERATOR"),
        (23, "IO_FILE"),
        (24, "IO_HANDLE"),
        (25, "LOCATION_GROUP"),
    ],
};

/// `RegionTypePre11`.
pub const REGION_TYPE_PRE11: Enumeration = Enumeration {
    name: "RegionTypePre11",
    is_set: false,
    values: &[
        (0, "UNKNOWN"),
        (1, "FUNCTION"),
        (2, "LOOP"),
        (3, "USER_REGION"),
        (4, "FILE"),
        (5, "OMP_PARALLEL"),
        (6, "OMP_LOOP"),
        (7, "OMP_SECTIONS"),
        (8, "OMP_SECTION"),
        (9, "OMP_WORKSHARE"),
        (10, "OMP_SINGLE"),
        (11, "OMP_MASTER"),
        (12, "OMP_CRITICAL"),
        (13, "OMP_ATOMIC"),
        (14, "OMP_BARRIER"),
        (15, "OMP_IBARRIER"),
        (16, "OMP_FLUSH"),
        (17, "OMP_CRITICAL_SBLOCK"),
        (18, "OMP_SINGLE_SBLOCK"),
        (19, "OMP_WRAPPER"),
        (20, "OMP_TASK"),
        (21, "OMP_TASK_WAIT"),
        (22, "MPI_COLL_BARRIER"),
        (23, "MPI_COLL_ONE2ALL"),
        (24, "MPI_COLL_ALL2ONE"),
        (25, "MPI_COLL_ALL2ALL"),
        (26, "MPI_COLL_OTHER"),
        (27, "PHASE"),
        (28, "DYNAMIC"),
        (29, "DYNAMIC_PHASE"),
        (30, "DYNAMIC_LOOP"),
        (31, "DYNAMIC_FUNCTION"),
        (32, "DYNAMIC_LOOP_PHASE"),
        (33, "OMP_TASK_CREATE"),
        (34, "OMP_ORDERED"),
        (35, "OMP_ORDERED_SBLOCK"),
    ],
};

/// `GroupTypePre12`.
pub const GROUP_TYPE_PRE12: Enumeration = Enumeration {
    name: "GroupTypePre12",
    is_set: false,
    values: &[
        (0, "UNKNOWN"),
        (1, "LOCATIONS"),
        (2, "REGIONS"),
        (3, "METRIC"),
        (4, "MPI_GROUP"),
        (5, "MPI_COMM_SELF"),
        (6, "MPI_LOCATIONS"),
    ],
};

/// How grave a marker is.
pub const SEVERITY: Enumeration = Enumeration {
    name: "MarkerSeverity",
    is_set: false,
    values: &[(0, "NONE"), (1, "LOW"), (2, "MEDIUM"), (3, "HIGH")],
};

/// The scope of a marker.
pub const MARKER_SCOPE: Enumeration = Enumeration {
    name: "MarkerScope",
    is_set: false,
    values: &[
        (0, "GLOBAL"),
        (1, "LOCATION"),
        (2, "LOCATION_GROUP"),
        (3, "SYSTEM_TREE_NODE"),
        (4, "GROUP"),
        (5, "COMM"),
    ],
};
