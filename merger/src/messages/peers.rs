//! Which processes and objects the events of MPI name: the rules by which messages are matched, for other readers.

use std::collections::BTreeMap;

use annals_format::{Definitions, ObjectId, ProcessId};

use crate::messages::{Extractor, NOBODY, SEVERAL};

/// The processes and the communicators, windows and files that events name.
#[derive(Debug)]
pub struct Peers {
    extractor: Extractor,
}

impl Peers {
    /// Finds them in the definitions of a [`Reader`](crate::Reader).
    pub fn of(definitions: &Definitions) -> Self {
        Self {
            extractor: Extractor::new(definitions, &BTreeMap::new()),
        }
    }

    /// Returns the process that an event of another one names by its rank in their world. `None` if there is no recording of that
    /// rank, or if there are several.
    pub fn process(&self, of: ProcessId, rank: i128) -> Option<ProcessId> {
        let found = self.extractor.process_of_rank(of.get(), rank);
        (found != NOBODY && found != SEVERAL).then(|| ProcessId::new(found))
    }

    /// Returns the number of a communicator, window or file, which is the same in all of its processes. `None` if its definition is lost.
    pub fn object(&self, object: ObjectId) -> Option<u64> {
        self.extractor.objects.get(object.index()).copied()
    }

    /// Returns the number of the world of a process: the processes that called `MPI_Init` together. `None` if it has no rank.
    pub fn world(&self, process: ProcessId) -> Option<usize> {
        self.extractor.world_of.get(process.index()).copied()
    }
}
