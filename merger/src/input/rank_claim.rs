//! What a recording or a trace states about the rank of a process.

use annals_format::names::property;
use annals_format::{Definitions, ProcessId, Rank, RecordingId};

/// The properties that determine a process's rank.
#[derive(Clone, Debug)]
pub(crate) struct RankClaim {
    /// Its rank, counted within its world. `None` means that none was recorded.
    pub(crate) rank: Option<Rank>,
    /// The name of its run.
    pub(crate) run: String,
    /// The name of its world, if it has one.
    pub(crate) world: Option<String>,
    /// When it started, nanoseconds since 1970.
    pub(crate) start_unix_ns: i64,
    /// How long it lived, nanoseconds; 0 if that is not known.
    pub(crate) lived_ns: u64,
    /// Whether it has initialised MPI.
    pub(crate) has_mpi: bool,
    /// Its recording.
    pub(crate) id: RecordingId,
}

impl RankClaim {
    /// Reads the claim of a process. `texts` has the strings.
    pub(crate) fn of(
        definitions: &Definitions,
        texts: &Definitions,
        process: ProcessId,
        id: RecordingId,
    ) -> Self {
        let rank = definitions.ranks.get(&process).copied();
        let world = definitions.worlds.get(&process);
        let first_rank = definitions.first_rank(process);
        let has_mpi = definitions
            .properties
            .iter()
            .any(|p| p.process == process && texts.string(p.key) == property::MPI_BEGUN);
        let process = definitions.processes.get(&process);
        let own = |rank: Rank| Rank {
            rank: rank.rank.saturating_sub(first_rank),
            rank_count: rank
                .rank_count
                .map(|count| count.saturating_sub(first_rank)),
            ..rank
        };
        Self {
            // Ranks that an earlier merge assigned are assigned anew.
            rank: rank.filter(|rank| !rank.is_assigned).map(own),
            run: process.map_or_else(String::new, |process| texts.string(process.run).to_owned()),
            world: world
                .map(|world| texts.string(world.name).to_owned())
                .filter(|name| !name.is_empty()),
            start_unix_ns: process.map_or(i64::MAX, |process| process.start_unix_ns),
            lived_ns: 0,
            has_mpi,
            id,
        }
    }
}
