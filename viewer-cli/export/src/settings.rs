//! Settings of an export: which tables, how they are split, what is at the root of stacks.

use annals_analysis::SampleBy;

/// Settings of an export besides its format.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// The tables to write. None given means the usual ones of the format.
    pub tables: Vec<TableKind>,
    /// How tables are split. `None` means not at all.
    pub partition: Option<Partition>,
    /// The root of stacks. `None` means the outermost call.
    pub by: Option<Root>,
    /// Whether existing files of another kind are replaced.
    pub force: bool,
    /// Whether an incomplete input is an error: one that is damaged or cut off, a rank that is missing.
    pub strict: bool,
}

/// What rows of the table of samples are of.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SampleTable {
    /// What samples are added up by, at each location.
    pub by: SampleBy,
    /// Only samples outside of MPI.
    pub outside_mpi: bool,
}

/// The kind of a table's rows.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum TableKind {
    /// A row for each event.
    Events,
    /// A row for each call of a region.
    Calls,
    /// A row for each region and location, as the analysis of regions has them.
    Regions,
    /// A row for each message of which both sides are known.
    Messages,
    /// A row for each value of a metric.
    Metrics,
    /// A row for each loss: dropped, suppressed, skipped.
    Drops,
    /// A row for each collective operation that all members have begun.
    Collectives,
    /// A row for each single wait, as the analysis of lost time finds them.
    WaitStates,
    /// A row for each region on the critical path.
    CriticalPath,
    /// A row for each efficiency model.
    Efficiency,
    /// A row for each location.
    Locations,
    /// A row for each function at each location in which samples were taken.
    Samples,
}

impl TableKind {
    /// Every value.
    pub const ALL: [Self; 12] = [
        Self::Events,
        Self::Calls,
        Self::Regions,
        Self::Messages,
        Self::Metrics,
        Self::Drops,
        Self::Collectives,
        Self::WaitStates,
        Self::CriticalPath,
        Self::Efficiency,
        Self::Locations,
        Self::Samples,
    ];

    /// Returns whether each row is of one rank, and follows from what that rank recorded.
    pub const fn is_by_rank(self) -> bool {
        match self {
            Self::Events
            | Self::Calls
            | Self::Regions
            | Self::Metrics
            | Self::Drops
            | Self::Samples => true,
            Self::Messages
            | Self::Collectives
            | Self::WaitStates
            | Self::CriticalPath
            | Self::Efficiency
            | Self::Locations => false,
        }
    }

    /// Describes its rows in a few words.
    pub const fn description(self) -> &'static str {
        match self {
            Self::Events => "A row for each event",
            Self::Calls => "A row for each call of a region",
            Self::Regions => "A row for each region and location, as `trace-cli regions` has them",
            Self::Messages => "A row for each message of which both sides are known",
            Self::Metrics => "A row for each value of a metric",
            Self::Drops => "A row for each loss: dropped, suppressed, skipped",
            Self::Collectives => "A row for each collective operation",
            Self::WaitStates => "A row for each single wait, as `trace-cli why` finds them",
            Self::CriticalPath => "A row for each region on the critical path",
            Self::Efficiency => "A row for each efficiency model",
            Self::Locations => "A row for each location",
            Self::Samples => {
                "A row for each function and location, as `trace-cli samples` has them"
            }
        }
    }

    /// Returns its name in commands and of its file.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Events => "events",
            Self::Calls => "calls",
            Self::Regions => "regions",
            Self::Messages => "messages",
            Self::Metrics => "metrics",
            Self::Drops => "drops",
            Self::Collectives => "collectives",
            Self::WaitStates => "wait_states",
            Self::CriticalPath => "critical_path",
            Self::Efficiency => "efficiency",
            Self::Locations => "locations",
            Self::Samples => "samples",
        }
    }
}

/// How a table is split.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Partition {
    /// By rank.
    Rank,
    /// By time: windows of this length in nanoseconds.
    Time(i64),
}

/// The root of stacks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Root {
    /// The rank.
    Rank,
    /// The rank, then the location.
    Location,
}

impl Root {
    /// Every value.
    pub const ALL: [Self; 2] = [Self::Rank, Self::Location];

    /// Returns its name in commands.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rank => "rank",
            Self::Location => "location",
        }
    }

    /// Describes it in a few words.
    pub const fn description(self) -> &'static str {
        match self {
            Self::Rank => "The rank",
            Self::Location => "The rank, and the location above",
        }
    }
}
