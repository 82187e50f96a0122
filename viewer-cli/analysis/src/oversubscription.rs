//! Hosts with fewer processors than threads that work.

use std::collections::{BTreeMap, BTreeSet};

use annals_format::{Definitions, ProcessId};
use serde::Serialize;

/// A host where more threads worked than it had processors for them: which of them was late may be the system's choice.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize)]
pub struct Oversubscription {
    /// Name of the host.
    pub host: String,
    /// Number of threads.
    pub threads: usize,
    /// Number of processors that their processes might use.
    pub processors: usize,
}

impl Oversubscription {
    /// Returns the host with the most threads for each processor, of these threads' processes, if it has more of them than processors.
    /// Hosts where the processors of a process are not known are left out.
    pub(crate) fn of(
        definitions: &Definitions,
        threads: impl Iterator<Item = ProcessId>,
    ) -> Option<Self> {
        let mut affinities: BTreeMap<ProcessId, &str> = BTreeMap::new();
        for property in &definitions.properties {
            if definitions.string(property.key) == "affinity" {
                affinities.insert(property.process, definitions.string(property.value));
            }
        }
        let mut hosts: BTreeMap<&str, (usize, Option<BTreeSet<u32>>)> = BTreeMap::new();
        for id in threads {
            let Some(process) = definitions.processes.get(&id) else {
                continue;
            };
            let host = definitions.string(process.host);
            let (threads, processors) = hosts.entry(host).or_insert((0, Some(BTreeSet::new())));
            *threads += 1;
            let own = affinities.get(&id).and_then(|list| processors_of(list));
            *processors = processors.take().zip(own).map(|(mut all, own)| {
                all.extend(own);
                all
            });
        }
        let known = hosts.into_iter().filter_map(|(host, (threads, all))| {
            let processors = all?.len();
            (threads > processors).then(|| Self {
                host: host.to_owned(),
                threads,
                processors,
            })
        });
        known.max_by_key(|of| of.threads * 1000 / of.processors)
    }
}

/// Reads a list of processors such as `0-3,8`. `None` if it is none, or longer than any host has.
pub(crate) fn processors_of(list: &str) -> Option<BTreeSet<u32>> {
    const MOST: u32 = 1 << 16;
    let mut processors = BTreeSet::new();
    for part in list.split(',') {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        let [from, to] = [from, to].map(|number| number.trim().parse::<u32>().ok());
        let (from, to) = from.zip(to).filter(|(from, to)| from <= to && *to < MOST)?;
        processors.extend(from..=to);
    }
    Some(processors)
}

#[cfg(test)]
mod tests {
    use annals_format::{BootId, Definition, Process, Property, RecordingId, StringId};

    use super::*;

    #[test]
    fn hosts_with_more_threads_than_processors_are_named_where_all_processors_are_known() {
        let found = |ranks: &[&str]| {
            let mut definitions = Definitions::default();
            let mut string = |text: &str| {
                let id = StringId::new(definitions.strings.len() as u32);
                definitions.add(Definition::String(id, text.to_owned()));
                id
            };
            let (host, key) = (string("node1"), string("affinity"));
            let values: Vec<StringId> = ranks.iter().map(|list| string(list)).collect();
            let processes = (0..).map(ProcessId::new).zip(values);
            for (id, value) in processes.clone() {
                definitions.add(Definition::Process(Process {
                    id,
                    recording_id: RecordingId([0; 16]),
                    run: host,
                    host,
                    boot_id: BootId([0; 16]),
                    pid: 1,
                    start_unix_ns: 0,
                    start_reference_ns: 0,
                    command: host,
                }));
                definitions.add(Definition::Property(Property {
                    process: id,
                    key,
                    value,
                }));
            }
            let found = Oversubscription::of(&definitions, processes.map(|(id, _)| id));
            found.map(|of| (of.host, of.threads, of.processors))
        };
        assert_eq!(found(&["0", "1"]), None);
        assert_eq!(found(&["0", "0-1"]), None);
        let node = || "node1".to_owned();
        assert_eq!(found(&["0", "1", "0-1"]), Some((node(), 3, 2)));
        assert_eq!(found(&["0", "0"]), Some((node(), 2, 1)));
        assert_eq!(found(&["0", "0", "?"]), None);
    }

    #[test]
    fn lists_of_processors_are_read() {
        let numbers = |list| processors_of(list).map(|of| of.into_iter().collect::<Vec<_>>());
        assert_eq!(numbers("0-3,8"), Some(vec![0, 1, 2, 3, 8]));
        assert_eq!(numbers("2,2-3"), Some(vec![2, 3]));
        for none in ["", "3-1", "a", "1,", "0-4294967295"] {
            assert_eq!(numbers(none), None, "{none}");
        }
    }
}
