//! The records of an archive: ids, names and fields in the order of the wire. This one place decides how
//! records are read, written, mapped, shown and turned into event types.

use super::describe::{DefinitionKind, Field, FieldType, Frame, Record};
use super::enums;

macro_rules! field_type {
    (Enum8($of:ident)) => { FieldType::Enum8(&enums::$of) };
    (Enum32($of:ident)) => { FieldType::Enum32(&enums::$of) };
    (List8($($fields:tt)*)) => { FieldType::List8(fields!($($fields)*)) };
    (List32($($fields:tt)*)) => { FieldType::List32(fields!($($fields)*)) };
    ($reference:ident($of:ident)) => { FieldType::$reference(DefinitionKind::$of) };
    ($plain:ident) => { FieldType::$plain };
}

macro_rules! since {
    () => {
        None
    };
    ($version:literal) => {
        Some($version)
    };
}

macro_rules! fields {
    ($($name:ident: $type:ident $(($($of:tt)*))? $(since $version:literal)?),*) => {
        &[$(Field {
            name: stringify!($name),
            what: field_type!($type $(($($of)*))?),
            since: since!($($version)?),
        }),*]
    };
}

/// Describes the records of a table: id, name, name in capitals, version, frame, fields; with a name for it, makes a
/// module of their ids.
macro_rules! records {
    (
        $(#[$doc:meta])* $table:ident $($ids:ident)?:
        $($id:literal $name:ident $capitals:ident $since:literal $frame:ident { $($fields:tt)* })*
    ) => {
        $(#[$doc])*
        pub const $table: &[Record] = &[$(Record {
            id: $id,
            name: stringify!($name),
            capitals: stringify!($capitals),
            since: $since,
            frame: Frame::$frame,
            fields: fields!($($fields)*),
        }),*];
        ids! { $($ids)?: $($capitals $id)* }
    };
}

macro_rules! ids {
    (: $($rest:tt)*) => {};
    ($module:ident: $($capitals:ident $id:literal)*) => {
        /// Ids of records by their names in capitals.
        #[allow(missing_docs)]
        pub mod $module {
            $(pub const $capitals: u8 = $id;)*
        }
    };
}

records! {
    /// Events, by ascending id.
    EVENTS ids:
    10 BufferFlush BUFFER_FLUSH "1.0" Length { stop_time: U64 }
    11 MeasurementOnOff MEASUREMENT_ON_OFF "1.0" Length { measurement_mode: Enum8(MEASUREMENT_MODE) }
    12 Enter ENTER "1.0" Single { region: Ref32(Region) }
    13 Leave LEAVE "1.0" Single { region: Ref32(Region) }
    14 MpiSend MPI_SEND "1.0" Length { receiver: C32, communicator: Ref32(Comm), msg_tag: C32, msg_length: C64 }
    15 MpiIsend MPI_ISEND "1.0" Length { receiver: C32, communicator: Ref32(Comm), msg_tag: C32, msg_length: C64,
        request_id: C64 }
    16 MpiIsendComplete MPI_ISEND_COMPLETE "1.0" Single { request_id: C64 }
    17 MpiIrecvRequest MPI_IRECV_REQUEST "1.0" Single { request_id: C64 }
    18 MpiRecv MPI_RECV "1.0" Length { sender: C32, communicator: Ref32(Comm), msg_tag: C32, msg_length: C64 }
    19 MpiIrecv MPI_IRECV "1.0" Length { sender: C32, communicator: Ref32(Comm), msg_tag: C32, msg_length: C64,
        request_id: C64 }
    20 MpiRequestTest MPI_REQUEST_TEST "1.0" Single { request_id: C64 }
    21 MpiRequestCancelled MPI_REQUEST_CANCELLED "1.0" Single { request_id: C64 }
    22 MpiCollectiveBegin MPI_COLLECTIVE_BEGIN "1.0" Length {}
    23 MpiCollectiveEnd MPI_COLLECTIVE_END "1.0" Length { collective_op: Enum8(COLLECTIVE_OP),
        communicator: Ref32(Comm), root: C32, size_sent: C64, size_received: C64 }
    24 OmpFork OMP_FORK "1.0" Single { number_of_requested_threads: C32 }
    25 OmpJoin OMP_JOIN "1.0" Length {}
    26 OmpAcquireLock OMP_ACQUIRE_LOCK "1.0" Length { lock_id: C32, acquisition_order: C32 }
    27 OmpReleaseLock OMP_RELEASE_LOCK "1.0" Length { lock_id: C32, acquisition_order: C32 }
    28 OmpTaskCreate OMP_TASK_CREATE "1.0" Single { task_id: C64 }
    29 OmpTaskSwitch OMP_TASK_SWITCH "1.0" Single { task_id: C64 }
    30 OmpTaskComplete OMP_TASK_COMPLETE "1.0" Single { task_id: C64 }
    31 Metric METRIC "1.0" Length { metric: Ref32(Metric), number_of_metrics: List8(type: Type, value: C64) }
    32 ParameterString PARAMETER_STRING "1.0" Length { parameter: Ref32(Parameter), string: Ref32(String) }
    33 ParameterInt PARAMETER_INT64 "1.0" Length { parameter: Ref32(Parameter), value: Ci64 }
    34 ParameterUnsignedInt PARAMETER_UINT64 "1.0" Length { parameter: Ref32(Parameter), value: C64 }
    35 RmaWinCreate RMA_WIN_CREATE "1.2" Length { win: Ref32(RmaWin) }
    36 RmaWinDestroy RMA_WIN_DESTROY "1.2" Length { win: Ref32(RmaWin) }
    37 RmaCollectiveBegin RMA_COLLECTIVE_BEGIN "1.2" Length {}
    38 RmaCollectiveEnd RMA_COLLECTIVE_END "1.2" Length { collective_op: Enum8(COLLECTIVE_OP),
        sync_level: Enum32(RMA_SYNC_LEVEL), win: Ref32(RmaWin), root: C32, bytes_sent: C64, bytes_received: C64 }
    39 RmaGroupSync RMA_GROUP_SYNC "1.2" Length { sync_level: Enum32(RMA_SYNC_LEVEL), win: Ref32(RmaWin),
        group: Ref32(Group) }
    40 RmaRequestLock RMA_REQUEST_LOCK "1.2" Length { win: Ref32(RmaWin), remote: C32, lock_id: C64,
        lock_type: Enum8(LOCK_TYPE) }
    41 RmaAcquireLock RMA_ACQUIRE_LOCK "1.2" Length { win: Ref32(RmaWin), remote: C32, lock_id: C64,
        lock_type: Enum8(LOCK_TYPE) }
    42 RmaTryLock RMA_TRY_LOCK "1.2" Length { win: Ref32(RmaWin), remote: C32, lock_id: C64,
        lock_type: Enum8(LOCK_TYPE) }
    43 RmaReleaseLock RMA_RELEASE_LOCK "1.2" Length { win: Ref32(RmaWin), remote: C32, lock_id: C64 }
    44 RmaSync RMA_SYNC "1.2" Length { win: Ref32(RmaWin), remote: C32, sync_type: Enum8(RMA_SYNC_TYPE) }
    45 RmaWaitChange RMA_WAIT_CHANGE "1.2" Length { win: Ref32(RmaWin) }
    46 RmaPut RMA_PUT "1.2" Length { win: Ref32(RmaWin), remote: C32, bytes: C64, matching_id: C64 }
    47 RmaGet RMA_GET "1.2" Length { win: Ref32(RmaWin), remote: C32, bytes: C64, matching_id: C64 }
    48 RmaAtomic RMA_ATOMIC "1.2" Length { win: Ref32(RmaWin), remote: C32, type: Enum8(RMA_ATOMIC_TYPE),
        bytes_sent: C64, bytes_received: C64, matching_id: C64 }
    49 RmaOpCompleteBlocking RMA_OP_COMPLETE_BLOCKING "1.2" Length { win: Ref32(RmaWin), matching_id: C64 }
    50 RmaOpCompleteNonBlocking RMA_OP_COMPLETE_NON_BLOCKING "1.2" Length { win: Ref32(RmaWin), matching_id: C64 }
    51 RmaOpTest RMA_OP_TEST "1.2" Length { win: Ref32(RmaWin), matching_id: C64 }
    52 RmaOpCompleteRemote RMA_OP_COMPLETE_REMOTE "1.2" Length { win: Ref32(RmaWin), matching_id: C64 }
    53 ThreadFork THREAD_FORK "1.2" Length { model: Enum8(PARADIGM), number_of_requested_threads: C32 }
    54 ThreadJoin THREAD_JOIN "1.2" Length { model: Enum8(PARADIGM) }
    55 ThreadTeamBegin THREAD_TEAM_BEGIN "1.2" Length { thread_team: Ref32(Comm) }
    56 ThreadTeamEnd THREAD_TEAM_END "1.2" Length { thread_team: Ref32(Comm) }
    57 ThreadAcquireLock THREAD_ACQUIRE_LOCK "1.2" Length { model: Enum8(PARADIGM), lock_id: C32,
        acquisition_order: C32 }
    58 ThreadReleaseLock THREAD_RELEASE_LOCK "1.2" Length { model: Enum8(PARADIGM), lock_id: C32,
        acquisition_order: C32 }
    59 ThreadTaskCreate THREAD_TASK_CREATE "1.2" Length { thread_team: Ref32(Comm), creating_thread: C32,
        generation_number: C32 }
    60 ThreadTaskSwitch THREAD_TASK_SWITCH "1.2" Length { thread_team: Ref32(Comm), creating_thread: C32,
        generation_number: C32 }
    61 ThreadTaskComplete THREAD_TASK_COMPLETE "1.2" Length { thread_team: Ref32(Comm), creating_thread: C32,
        generation_number: C32 }
    62 ThreadCreate THREAD_CREATE "1.3" Length { thread_contingent: Ref32(Comm), sequence_count: C64 }
    63 ThreadBegin THREAD_BEGIN "1.3" Length { thread_contingent: Ref32(Comm), sequence_count: C64 }
    64 ThreadWait THREAD_WAIT "1.3" Length { thread_contingent: Ref32(Comm), sequence_count: C64 }
    65 ThreadEnd THREAD_END "1.3" Length { thread_contingent: Ref32(Comm), sequence_count: C64 }
    66 CallingContextEnter CALLING_CONTEXT_ENTER "2.0" Length { calling_context: Ref32(CallingContext),
        unwind_distance: C32 }
    67 CallingContextLeave CALLING_CONTEXT_LEAVE "2.0" Length { calling_context: Ref32(CallingContext) }
    68 CallingContextSample CALLING_CONTEXT_SAMPLE "1.5" Length { calling_context: Ref32(CallingContext),
        unwind_distance: C32, interrupt_generator: Ref32(InterruptGenerator) }
    69 IoCreateHandle IO_CREATE_HANDLE "2.1" Length { handle: Ref32(IoHandle), mode: Enum8(IO_ACCESS_MODE),
        creation_flags: Enum32(IO_CREATION_FLAG), status_flags: Enum32(IO_STATUS_FLAG) }
    70 IoDestroyHandle IO_DESTROY_HANDLE "2.1" Length { handle: Ref32(IoHandle) }
    71 IoDuplicateHandle IO_DUPLICATE_HANDLE "2.1" Length { old_handle: Ref32(IoHandle), new_handle: Ref32(IoHandle),
        status_flags: Enum32(IO_STATUS_FLAG) }
    72 IoSeek IO_SEEK "2.1" Length { handle: Ref32(IoHandle), offset_request: Ci64, whence: Enum8(IO_SEEK_OPTION),
        offset_result: C64 }
    73 IoChangeStatusFlags IO_CHANGE_FLAGS "2.1" Length { handle: Ref32(IoHandle),
        status_flags: Enum32(IO_STATUS_FLAG) }
    74 IoDeleteFile IO_DELETE_FILE "2.1" Length { io_paradigm: Ref8(IoParadigm), file: Ref32(IoFile) }
    75 IoOperationBegin IO_OPERATION_BEGIN "2.1" Length { handle: Ref32(IoHandle), mode: Enum8(IO_OPERATION_MODE),
        operation_flags: Enum32(IO_OPERATION_FLAG), bytes_request: C64, matching_id: C64 }
    76 IoOperationTest IO_OPERATION_TEST "2.1" Length { handle: Ref32(IoHandle), matching_id: C64 }
    77 IoOperationIssued IO_OPERATION_ISSUED "2.1" Length { handle: Ref32(IoHandle), matching_id: C64 }
    78 IoOperationComplete IO_OPERATION_COMPLETE "2.1" Length { handle: Ref32(IoHandle), bytes_result: C64,
        matching_id: C64 }
    79 IoOperationCancelled IO_OPERATION_CANCELLED "2.1" Length { handle: Ref32(IoHandle), matching_id: C64 }
    80 IoAcquireLock IO_ACQUIRE_LOCK "2.1" Length { handle: Ref32(IoHandle), lock_type: Enum8(LOCK_TYPE) }
    81 IoReleaseLock IO_RELEASE_LOCK "2.1" Length { handle: Ref32(IoHandle), lock_type: Enum8(LOCK_TYPE) }
    82 IoTryLock IO_TRY_LOCK "2.1" Length { handle: Ref32(IoHandle), lock_type: Enum8(LOCK_TYPE) }
    83 ProgramBegin PROGRAM_BEGIN "2.1" Length { program_name: Ref32(String),
        number_of_arguments: List32(program_arguments: Ref32(String)) }
    84 ProgramEnd PROGRAM_END "2.1" Length { exit_status: Ci64 }
    85 NonBlockingCollectiveRequest NON_BLOCKING_COLLECTIVE_REQUEST "3.0" Length { request_id: C64 }
    86 NonBlockingCollectiveComplete NON_BLOCKING_COLLECTIVE_COMPLETE "3.0" Length {
        collective_op: Enum8(COLLECTIVE_OP), communicator: Ref32(Comm), root: C32, size_sent: C64, size_received: C64,
        request_id: C64 }
    87 CommCreate COMM_CREATE "3.0" Length { communicator: Ref32(Comm) }
    88 CommDestroy COMM_DESTROY "3.0" Length { communicator: Ref32(Comm) }
    89 MpiProbe MPI_PROBE "3.1/3.2" Length { sender: C32, communicator: Ref32(Comm), msg_tag: C32, message_id: C64 }
    90 MpiMrecv MPI_MRECV "3.1/3.2" Length { message_id: C64, msg_length: C64 }
    91 MpiImrecvRequest MPI_IMRECV_REQUEST "3.1/3.2" Length { message_id: C64, request_id: C64 }
    92 MpiImrecv MPI_IMRECV "3.1/3.2" Length { request_id: C64, msg_length: C64 }
}

records! {
    /// Global definitions, by ascending id; those from 10 on may also be in a location's file.
    DEFINITIONS:
    5 ClockProperties CLOCK_PROPERTIES "1.0" Length { timer_resolution: C64, global_offset: C64, trace_length: C64,
        realtime_timestamp: C64 since "3.0" }
    6 Paradigm PARADIGM "1.5" Length { paradigm: Enum8(PARADIGM), name: Ref32(String),
        paradigm_class: Enum8(PARADIGM_CLASS) }
    7 ParadigmProperty PARADIGM_PROPERTY "1.5" Length { paradigm: Enum8(PARADIGM), property: Enum8(PARADIGM_PROPERTY),
        type: Type, value: Value }
    8 IoParadigm IO_PARADIGM "2.1" Length { self: Ref8(IoParadigm), identification: Ref32(String),
        name: Ref32(String), io_paradigm_class: Enum8(IO_PARADIGM_CLASS), io_paradigm_flags: Enum32(IO_PARADIGM_FLAG),
        number_of_properties: List8(properties: Enum8(IO_PARADIGM_PROPERTY), types: Type, values: Value) }
    10 String STRING "1.0" Length { self: Ref32(String), string: Text }
    11 Attribute ATTRIBUTE "1.0" Length { self: Ref32(Attribute), name: Ref32(String), type: Type,
        description: Ref32(String) since "1.4" }
    12 SystemTreeNode SYSTEM_TREE_NODE "1.0" Length { self: Ref32(SystemTreeNode), name: Ref32(String),
        class_name: Ref32(String), parent: Ref32(SystemTreeNode) }
    13 LocationGroup LOCATION_GROUP "1.0" Length { self: Ref32(LocationGroup), name: Ref32(String),
        location_group_type: Enum8(LOCATION_GROUP_TYPE), system_tree_parent: Ref32(SystemTreeNode),
        creating_location_group: Ref32(LocationGroup) since "3.0" }
    14 Location LOCATION "1.0" Length { self: Ref64(Location), name: Ref32(String),
        location_type: Enum8(LOCATION_TYPE), number_of_events: C64, location_group: Ref32(LocationGroup) }
    15 Region REGION "1.0" Length { self: Ref32(Region), name: Ref32(String), description: Ref32(String),
        region_type: Enum8(REGION_TYPE_PRE11), source_file: Ref32(String), begin_line_number: C32,
        end_line_number: C32, canonical_name: Ref32(String) since "1.1", region_role: Enum8(REGION_ROLE),
        paradigm: Enum8(PARADIGM), region_flags: Enum32(REGION_FLAG) }
    16 Callsite CALLSITE "1.0" Length { self: Ref32(Callsite), source_file: Ref32(String), line_number: C32,
        entered_region: Ref32(Region), left_region: Ref32(Region) }
    17 Callpath CALLPATH "1.0" Length { self: Ref32(Callpath), parent: Ref32(Callpath), region: Ref32(Region) }
    18 Group GROUP "1.0" Length { self: Ref32(Group), name: Ref32(String), group_type_pre12: Enum8(GROUP_TYPE_PRE12),
        number_of_members: List32(members: C64), group_type: Enum8(GROUP_TYPE) since "1.2", paradigm: Enum8(PARADIGM),
        group_flags: Enum32(GROUP_FLAG) }
    19 MetricMember METRIC_MEMBER "1.0" Length { self: Ref32(MetricMember), name: Ref32(String),
        description: Ref32(String), metric_type: Enum8(METRIC_TYPE), metric_mode: Enum8(METRIC_MODE),
        value_type: Type, base: Enum8(BASE), exponent: Ci64, unit: Ref32(String) }
    20 MetricClass METRIC_CLASS "1.0" Length { self: Ref32(Metric),
        number_of_metrics: List8(metric_members: Ref32(MetricMember)), metric_occurrence: Enum8(METRIC_OCCURRENCE),
        recorder_kind: Enum8(RECORDER_KIND) since "1.2" }
    21 MetricInstance METRIC_INSTANCE "1.0" Length { self: Ref32(Metric), metric_class: Ref32(Metric),
        recorder: Ref64(Location), metric_scope: Enum8(METRIC_SCOPE), scope: C64 }
    22 Comm COMM "1.0" Length { self: Ref32(Comm), name: Ref32(String), group: Ref32(Group), parent: Ref32(Comm),
        flags: Enum32(COMM_FLAG) since "3.0" }
    23 Parameter PARAMETER "1.0" Length { self: Ref32(Parameter), name: Ref32(String),
        parameter_type: Enum8(PARAMETER_TYPE) }
    24 RmaWin RMA_WIN "1.2" Length { self: Ref32(RmaWin), name: Ref32(String), comm: Ref32(Comm),
        flags: Enum32(RMA_WIN_FLAG) since "3.0" }
    25 MetricClassRecorder METRIC_CLASS_RECORDER "1.2" Length { metric: Ref32(Metric), recorder: Ref64(Location) }
    26 SystemTreeNodeProperty SYSTEM_TREE_NODE_PROPERTY "1.2" Length { system_tree_node: Ref32(SystemTreeNode),
        name: Ref32(String), string_value: Ref32(String), type: Type since "2.0", value: Value }
    27 SystemTreeNodeDomain SYSTEM_TREE_NODE_DOMAIN "1.2" Length { system_tree_node: Ref32(SystemTreeNode),
        system_tree_domain: Enum8(SYSTEM_TREE_DOMAIN) }
    28 LocationGroupProperty LOCATION_GROUP_PROPERTY "1.3" Length { location_group: Ref32(LocationGroup),
        name: Ref32(String), string_value: Ref32(String), type: Type since "2.0", value: Value }
    29 LocationProperty LOCATION_PROPERTY "1.3" Length { location: Ref64(Location), name: Ref32(String),
        string_value: Ref32(String), type: Type since "2.0", value: Value }
    30 CartDimension CART_DIMENSION "1.3" Length { self: Ref32(CartDimension), name: Ref32(String), size: C32,
        cart_periodicity: Enum8(CART_PERIODICITY) }
    31 CartTopology CART_TOPOLOGY "1.3" Length { self: Ref32(CartTopology), name: Ref32(String),
        communicator: Ref32(Comm), number_of_dimensions: List8(cart_dimensions: Ref32(CartDimension)) }
    32 CartCoordinate CART_COORDINATE "1.3" Length { cart_topology: Ref32(CartTopology), rank: C32,
        number_of_dimensions: List8(coordinates: C32) }
    33 SourceCodeLocation SOURCE_CODE_LOCATION "1.5" Length { self: Ref32(SourceCodeLocation), file: Ref32(String),
        line_number: C32 }
    34 CallingContext CALLING_CONTEXT "1.5" Length { self: Ref32(CallingContext), region: Ref32(Region),
        source_code_location: Ref32(SourceCodeLocation), parent: Ref32(CallingContext) }
    35 CallingContextProperty CALLING_CONTEXT_PROPERTY "2.0" Length { calling_context: Ref32(CallingContext),
        name: Ref32(String), type: Type, value: Value }
    36 InterruptGenerator INTERRUPT_GENERATOR "1.5" Length { self: Ref32(InterruptGenerator), name: Ref32(String),
        interrupt_generator_mode: Enum8(INTERRUPT_GENERATOR_MODE), base: Enum8(BASE), exponent: Ci64, period: C64 }
    37 IoFileProperty IO_FILE_PROPERTY "2.1" Length { io_file: Ref32(IoFile), name: Ref32(String), type: Type,
        value: Value }
    38 IoRegularFile IO_REGULAR_FILE "2.1" Length { self: Ref32(IoFile), name: Ref32(String),
        scope: Ref32(SystemTreeNode) }
    39 IoDirectory IO_DIRECTORY "2.1" Length { self: Ref32(IoFile), name: Ref32(String),
        scope: Ref32(SystemTreeNode) }
    40 IoHandle IO_HANDLE "2.1" Length { self: Ref32(IoHandle), name: Ref32(String), file: Ref32(IoFile),
        io_paradigm: Ref8(IoParadigm), io_handle_flags: Enum32(IO_HANDLE_FLAG), comm: Ref32(Comm),
        parent: Ref32(IoHandle) }
    41 IoPreCreatedHandleState IO_PRE_CREATED_HANDLE_STATE "2.1" Length { io_handle: Ref32(IoHandle),
        mode: Enum8(IO_ACCESS_MODE), status_flags: Enum32(IO_STATUS_FLAG) }
    42 CallpathParameter CALLPATH_PARAMETER "2.2" Length { callpath: Ref32(Callpath), parameter: Ref32(Parameter),
        type: Type, value: Value }
    43 InterComm INTER_COMM "3.0" Length { self: Ref32(Comm), name: Ref32(String), group_a: Ref32(Group),
        group_b: Ref32(Group), common_communicator: Ref32(Comm), flags: Enum32(COMM_FLAG) }
}

records! {
    /// Definitions that only a location's file has.
    LOCAL_DEFINITIONS:
    5 MappingTable MAPPING_TABLE "1.0" Length { mapping_type: Enum8(MAPPING_TYPE), id_map: IdMap }
    6 ClockOffset CLOCK_OFFSET "1.0" Length { time: U64, offset: Ci64, standard_deviation: F64 }
}

records! {
    /// Records of a marker file.
    MARKERS marker_ids:
    5 DefMarker DEF_MARKER "1.2" Length { self: C32, group: Text, category: Text, severity: Enum8(SEVERITY) }
    6 Marker MARKER "1.2" Length { time: C64, duration: C64, marker: C32, scope_type: Enum8(MARKER_SCOPE), scope: C64,
        text: Text }
}

records! {
    /// Records of a snapshot file.
    SNAPSHOTS:
    10 SnapshotStart SNAPSHOT_START "1.2" Length { number_of_records: C64 }
    11 SnapshotEnd SNAPSHOT_END "1.2" Length { cont_read_pos: C64 }
    12 MeasurementOnOff MEASUREMENT_ON_OFF "1.2" Length { orig_event_time: U64,
        measurement_mode: Enum8(MEASUREMENT_MODE) }
    13 Enter ENTER "1.2" Length { orig_event_time: U64, region: Ref32(Region) }
    14 MpiSend MPI_SEND "1.2" Length { orig_event_time: U64, receiver: C32, communicator: Ref32(Comm), msg_tag: C32,
        msg_length: C64 }
    15 MpiIsend MPI_ISEND "1.2" Length { orig_event_time: U64, receiver: C32, communicator: Ref32(Comm), msg_tag: C32,
        msg_length: C64, request_id: C64 }
    16 MpiIsendComplete MPI_ISEND_COMPLETE "1.2" Length { orig_event_time: U64, request_id: C64 }
    17 MpiRecv MPI_RECV "1.2" Length { orig_event_time: U64, sender: C32, communicator: Ref32(Comm), msg_tag: C32,
        msg_length: C64 }
    18 MpiIrecvRequest MPI_IRECV_REQUEST "1.2" Length { orig_event_time: U64, request_id: C64 }
    19 MpiIrecv MPI_IRECV "1.2" Length { orig_event_time: U64, sender: C32, communicator: Ref32(Comm), msg_tag: C32,
        msg_length: C64, request_id: C64 }
    20 MpiCollectiveBegin MPI_COLLECTIVE_BEGIN "1.2" Length { orig_event_time: U64 }
    21 MpiCollectiveEnd MPI_COLLECTIVE_END "1.2" Length { orig_event_time: U64, collective_op: Enum8(COLLECTIVE_OP),
        communicator: Ref32(Comm), root: C32, size_sent: C64, size_received: C64 }
    22 OmpFork OMP_FORK "1.2" Length { orig_event_time: U64, number_of_requested_threads: C32 }
    23 OmpAcquireLock OMP_ACQUIRE_LOCK "1.2" Length { orig_event_time: U64, lock_id: C32, acquisition_order: C32 }
    24 OmpTaskCreate OMP_TASK_CREATE "1.2" Length { orig_event_time: U64, task_id: C64 }
    25 OmpTaskSwitch OMP_TASK_SWITCH "1.2" Length { orig_event_time: U64, task_id: C64 }
    26 Metric METRIC "1.2" Length { orig_event_time: U64, metric: Ref32(Metric),
        number_of_metrics: List8(type: Type, value: C64) }
    27 ParameterString PARAMETER_STRING "1.2" Length { orig_event_time: U64, parameter: Ref32(Parameter),
        string: Ref32(String) }
    28 ParameterInt PARAMETER_INT64 "1.2" Length { orig_event_time: U64, parameter: Ref32(Parameter), value: Ci64 }
    29 ParameterUnsignedInt PARAMETER_UINT64 "1.2" Length { orig_event_time: U64, parameter: Ref32(Parameter),
        value: C64 }
}
