//! Numbers of processes and threads for viewers that know nothing else: unique over all hosts, never 0.

use annals_format::{Ended, LocationKind, ProcessId};
use rustc_hash::FxHashMap;

use crate::write::exporter::Context;

/// A process as a viewer shows it.
#[derive(Clone, Debug)]
pub(crate) struct ProcessTrack {
    /// Its number.
    pub(crate) pid: u32,
    /// Its rank.
    pub(crate) rank: u32,
    /// `rank 3`.
    pub(crate) name: String,
    /// Its host, its own process id, how it ended.
    pub(crate) label: String,
    /// The command that was run.
    pub(crate) command: String,
}

/// A location as a viewer shows it.
#[derive(Clone, Debug)]
pub(crate) struct ThreadTrack {
    /// Of its process.
    pub(crate) pid: u32,
    /// Its number.
    pub(crate) tid: u32,
    /// Its name.
    pub(crate) name: String,
}

/// The processes and threads that are shown.
#[derive(Debug)]
pub(crate) struct Layout {
    /// Processes, by number.
    pub(crate) processes: Vec<ProcessTrack>,
    /// By location.
    pub(crate) threads: Vec<ThreadTrack>,
    pids: FxHashMap<ProcessId, u32>,
}

impl Layout {
    pub(crate) fn of(context: &Context<'_>) -> Self {
        let d = context.definitions;
        let mut pids = FxHashMap::default();
        let mut processes = Vec::new();
        for (number, (id, process)) in d.processes.iter().enumerate() {
            let rank = d.ranks.get(id).map_or(0, |rank| rank.rank);
            let pid = number as u32 + 1;
            pids.insert(*id, pid);
            let ended = d.process_ends.get(id).map(|end| end.ended);
            let ended = ended.filter(|ended| *ended != Ended::Finished);
            let ended = ended.map_or_else(String::new, |ended| format!(", {}", ended.name()));
            processes.push(ProcessTrack {
                pid,
                rank,
                name: format!("rank {rank}"),
                label: format!("{}, pid {}{ended}", d.string(process.host), process.pid),
                command: d.string(process.command).to_owned(),
            });
        }
        // A thread whose number is that of a process would be taken for its main thread.
        let first = processes.len() as u32 + 1;
        let threads = context.locations.iter().enumerate().map(|(number, id)| {
            let location = &d.locations[id];
            let device = match location.kind {
                LocationKind::Thread => "",
                LocationKind::Device => " (device)",
            };
            ThreadTrack {
                pid: pids
                    .get(&location.process)
                    .copied()
                    .unwrap_or(first - 1)
                    .max(1),
                tid: first + number as u32,
                name: format!("{}{device}", d.string(location.name)),
            }
        });
        Self {
            threads: threads.collect(),
            processes,
            pids,
        }
    }

    /// Returns the number of a process.
    pub(crate) fn pid(&self, process: ProcessId) -> u32 {
        self.pids.get(&process).copied().unwrap_or(1)
    }
}
