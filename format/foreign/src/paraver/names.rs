//! What the codes of a trace mean: regions, collective operations, and other events.

use std::collections::BTreeMap;

use crate::paraver::Labels;
use annals_format::{
    CollectiveOperation, ElementSpec, ElementType, EventTypeId, RecordingBuilder, Reference,
    RegionId, Role,
};

/// Event types of Extrae whose values are calls of MPI: point-to-point, collective, other, one-sided, files.
const MPI: [u64; 5] = [50_000_001, 50_000_002, 50_000_003, 50_000_004, 50_000_005];
/// The event type of collective operations, and those of their sizes, roots and communicators.
pub(super) const COLLECTIVE: u64 = 50_000_002;
pub(super) const BYTES_SENT: u64 = 50_100_001;
pub(super) const BYTES_RECEIVED: u64 = 50_100_002;
pub(super) const IS_ROOT: u64 = 50_100_003;
pub(super) const COMMUNICATOR: u64 = 50_100_004;
/// The event type of the program's functions.
const FUNCTION: u64 = 60_000_019;
/// The state in which a thread works.
const RUNNING: u64 = 1;
/// States of calls of MPI, which have their events as well.
const STATES_OF_MPI: [u64; 11] = [3, 4, 5, 6, 8, 10, 11, 13, 16, 20, 21];

/// What an event type is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum EventKind {
    /// Its values are regions; 0 ends one.
    Region,
    /// A detail of a collective operation.
    Detail,
    /// An event with a value.
    Value,
}

pub(super) fn kind_of(event_type: u64) -> EventKind {
    match event_type {
        _ if MPI.contains(&event_type) || event_type == FUNCTION => EventKind::Region,
        BYTES_SENT | BYTES_RECEIVED | IS_ROOT | COMMUNICATOR => EventKind::Detail,
        _ => EventKind::Value,
    }
}

/// The definitions that all recordings of a trace have.
#[derive(Clone, Debug)]
pub(super) struct Names {
    /// Regions by event type and value.
    regions: BTreeMap<(u64, i64), RegionId>,
    /// Regions of values without a name, by event type.
    unnamed: BTreeMap<u64, RegionId>,
    /// Regions by state.
    states: BTreeMap<u64, RegionId>,
    /// Collective operations by value.
    operations: BTreeMap<i64, CollectiveOperation>,
    /// Event types with a value.
    values: BTreeMap<u64, EventTypeId>,
}

/// The event types that every recording has.
pub(super) const ENTER: EventTypeId = EventTypeId::new(0);
pub(super) const LEAVE: EventTypeId = EventTypeId::new(1);
pub(super) const SEND: EventTypeId = EventTypeId::new(2);
pub(super) const RECEIVE: EventTypeId = EventTypeId::new(3);
pub(super) const COLLECTIVE_BEGIN: EventTypeId = EventTypeId::new(4);
pub(super) const COLLECTIVE_END: EventTypeId = EventTypeId::new(5);
/// `event(type, value)`: of types without a name.
pub(super) const EVENT: EventTypeId = EventTypeId::new(6);

impl Names {
    /// Defines the regions and the event types of a recording. They are the same in all recordings.
    pub(super) fn define(labels: &Labels, builder: &mut RecordingBuilder) -> Self {
        define_types(builder);
        let mut names = Self {
            regions: BTreeMap::new(),
            unnamed: BTreeMap::new(),
            states: BTreeMap::new(),
            operations: BTreeMap::new(),
            values: BTreeMap::new(),
        };
        for event_type in MPI.into_iter().chain([FUNCTION]) {
            let group = if event_type == FUNCTION { "" } else { "mpi" };
            let known = labels.events.get(&event_type);
            let values = known.into_iter().flat_map(|known| known.values.iter());
            for (value, name) in values.filter(|(value, _)| **value != 0) {
                let region = builder.region(name, "", 0, group);
                names.regions.insert((event_type, *value), region);
                if event_type == COLLECTIVE
                    && let Some(operation) = operation_of(name)
                {
                    names.operations.insert(*value, operation);
                }
            }
            let name = if group.is_empty() {
                "function"
            } else {
                "MPI call"
            };
            let region = builder.region(name, "", 0, group);
            names.unnamed.insert(event_type, region);
        }
        let has_mpi = MPI.iter().any(|mpi| labels.events.contains_key(mpi));
        for (state, name) in &labels.states {
            let is_of_mpi = has_mpi && STATES_OF_MPI.contains(state);
            if *state != RUNNING && !is_of_mpi {
                let group = if STATES_OF_MPI.contains(state) {
                    "mpi"
                } else {
                    "state"
                };
                names
                    .states
                    .insert(*state, builder.region(name, "", 0, group));
            }
        }
        for (event_type, known) in &labels.events {
            if kind_of(*event_type) == EventKind::Value {
                let value = [ElementSpec::new("value", ElementType::I64)];
                let id = builder.event_type(&known.name, Role::Metric, &value);
                names.values.insert(*event_type, id);
            }
        }
        names
    }

    /// Returns the region that a value of an event type is.
    pub(super) fn region(&self, event_type: u64, value: i64) -> Option<RegionId> {
        let known = self.regions.get(&(event_type, value));
        known.or_else(|| self.unnamed.get(&event_type)).copied()
    }

    /// Returns the region that a state is. `None` if the thread works, or if an event says more.
    pub(super) fn state(&self, state: u64) -> Option<RegionId> {
        self.states.get(&state).copied()
    }

    /// Returns the collective operation that a value is.
    pub(super) fn operation(&self, value: i64) -> Option<CollectiveOperation> {
        self.operations.get(&value).copied()
    }

    /// Returns the event type of values. `None` means that it has no name.
    pub(super) fn value(&self, event_type: u64) -> Option<EventTypeId> {
        self.values.get(&event_type).copied()
    }
}

fn define_types(builder: &mut RecordingBuilder) {
    let integer = |name| ElementSpec::new(name, ElementType::I64);
    let rank = |name| ElementSpec {
        reference: Reference::Rank,
        ..ElementSpec::new(name, ElementType::I64)
    };
    let region = ElementSpec {
        reference: Reference::Region,
        ..ElementSpec::new("region", ElementType::U32)
    };
    let bytes = |name| ElementSpec {
        unit: "B",
        ..integer(name)
    };
    let message = [
        rank("peer"),
        integer("tag"),
        bytes("bytes"),
        integer("sequence"),
    ];
    let collective = [
        integer("operation"),
        integer("communicator"),
        rank("root"),
        integer("size"),
        integer("place"),
        bytes("bytes_sent"),
        bytes("bytes_received"),
    ];
    let types = [
        ("enter", Role::Enter, &[region][..], ENTER),
        ("leave", Role::Leave, &[region], LEAVE),
        ("send", Role::Send, &message, SEND),
        ("receive", Role::Receive, &message, RECEIVE),
        (
            "collective begin",
            Role::CollectiveBegin,
            &collective,
            COLLECTIVE_BEGIN,
        ),
        (
            "collective end",
            Role::CollectiveEnd,
            &collective,
            COLLECTIVE_END,
        ),
        (
            "event",
            Role::Point,
            &[integer("type"), integer("value")],
            EVENT,
        ),
    ];
    for (name, role, elements, id) in types {
        let defined = builder.event_type(name, role, elements);
        debug_assert_eq!(defined, id);
    }
}

/// Returns the operation of a function of MPI. Operations that do not block are not known to end in one call.
fn operation_of(name: &str) -> Option<CollectiveOperation> {
    use CollectiveOperation as Op;
    Some(match name {
        "MPI_Barrier" => Op::Barrier,
        "MPI_Bcast" => Op::Broadcast,
        "MPI_Gather" => Op::Gather,
        "MPI_Gatherv" => Op::Gatherv,
        "MPI_Scatter" => Op::Scatter,
        "MPI_Scatterv" => Op::Scatterv,
        "MPI_Allgather" => Op::Allgather,
        "MPI_Allgatherv" => Op::Allgatherv,
        "MPI_Alltoall" => Op::Alltoall,
        "MPI_Alltoallv" => Op::Alltoallv,
        "MPI_Reduce" => Op::Reduce,
        "MPI_Allreduce" => Op::Allreduce,
        "MPI_Reduce_scatter" => Op::ReduceScatter,
        "MPI_Reduce_scatter_block" | "MPI_Reduce_Scatter_Block" => Op::ReduceScatterBlock,
        "MPI_Scan" => Op::Scan,
        "MPI_Exscan" => Op::Exscan,
        _ => return None,
    })
}
