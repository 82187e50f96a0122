//! How MPI's functions pass messages, by their names, and calls of the runtime of a device (CUDA, HIP), by their group.

use annals_format::{Definitions, RegionId};

/// How a function passes messages.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct MpiFunction {
    /// Sends may end before they are received (`MPI_Isend`, `MPI_Start`, buffered and ready sends), or the call waits for a
    /// receive as well (`MPI_Sendrecv`).
    pub(crate) is_non_blocking: bool,
    /// Sends and receives, and waits for both (`MPI_Sendrecv`).
    pub(crate) is_exchange: bool,
    /// Its sends end when they are received, whatever their size (`MPI_Ssend`).
    pub(crate) is_synchronous: bool,
    /// Its sends end without being received: buffered and ready ones.
    pub(crate) is_local: bool,
    /// Receives were begun by an earlier call.
    pub(crate) is_completion: bool,
    /// Begins something and does not wait for it: `MPI_I…`, `MPI_Start`, and what begins requests otherwise.
    pub(crate) is_immediate: bool,
    /// Does not wait.
    pub(crate) is_test: bool,
    /// Ends MPI.
    pub(crate) is_finalize: bool,
}

impl MpiFunction {
    /// Finds it by a name (MPI 5.0, chapter 3), in any case, of the profiling interface too.
    fn of(name: &str) -> Self {
        let name = name.to_ascii_lowercase();
        let name = name.strip_prefix('p').unwrap_or(&name);
        let Some(function) = name.strip_prefix("mpi_") else {
            return Self::default();
        };
        let starts = |prefixes: &[&str]| prefixes.iter().any(|prefix| function.starts_with(prefix));
        Self {
            is_non_blocking: starts(&["is", "ib", "ir", "bsend", "rsend", "sendrecv", "start"]),
            is_exchange: starts(&["sendrecv"]),
            is_synchronous: starts(&["ssend", "issend"]),
            is_local: starts(&["bsend", "ibsend", "rsend", "irsend"]),
            is_completion: starts(&["wait", "test"]),
            is_immediate: starts(&[
                "i",
                "start",
                "rput",
                "rget",
                "raccumulate",
                "rsend",
                "file_i",
            ]) || function.ends_with("_init")
                || function.ends_with("_begin"),
            is_test: starts(&["test", "iprobe", "improbe"]),
            is_finalize: starts(&["finalize", "session_finalize"]) && !starts(&["finalized"]),
        }
    }
}

/// The functions of a trace's regions. A region that is no function of MPI does nothing of this.
#[derive(Clone, Debug)]
pub(crate) struct MpiFunctions(Vec<MpiFunction>);

impl MpiFunctions {
    /// Finds them by the names of the regions and their groups.
    pub(crate) fn of(definitions: &Definitions) -> Self {
        let mut functions = Vec::new();
        for (id, region) in &definitions.regions {
            functions.resize(id.index(), MpiFunction::default());
            let group = definitions.string(region.group);
            // The launch of a kernel does not wait for it.
            let is_launch = group.ends_with("_runtime") || group.ends_with("_driver");
            functions.push(match is_launch {
                true => MpiFunction {
                    is_non_blocking: true,
                    ..MpiFunction::default()
                },
                false => MpiFunction::of(definitions.string(region.name)),
            });
        }
        Self(functions)
    }

    /// Returns how a region's calls pass messages.
    pub(crate) fn get(&self, region: RegionId) -> MpiFunction {
        self.0.get(region.index()).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_known_by_their_names() {
        for name in [
            "MPI_Isend",
            "MPI_Irsend",
            "MPI_Ibsend",
            "PMPI_Issend",
            "mpi_isend_",
            "MPI_Bsend",
            "MPI_Rsend",
            "MPI_Sendrecv_replace",
            "MPI_Start",
            "MPI_Startall",
        ] {
            assert!(MpiFunction::of(name).is_non_blocking, "{name}");
        }
        for name in ["MPI_Send", "MPI_Ssend", "isend", "MPI_Recv", "MPI_Wait"] {
            assert!(!MpiFunction::of(name).is_non_blocking, "{name}");
        }
        assert!(MpiFunction::of("MPI_Finalize").is_finalize);
        assert!(!MpiFunction::of("MPI_Finalized").is_finalize);
        assert!(MpiFunction::of("MPI_Waitall").is_completion);
        assert!(MpiFunction::of("MPI_Testsome").is_completion);
        assert!(MpiFunction::of("MPI_Testsome").is_test && MpiFunction::of("MPI_Iprobe").is_test);
        assert!(!MpiFunction::of("MPI_Probe").is_test);
    }
}
