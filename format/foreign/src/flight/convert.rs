//! Turns what a dump has into what it means. What is missing is unknown.

use std::hash::Hash;
use std::sync::Arc;

use annals_format::Result;
use rustc_hash::FxHashMap;

use super::entry::{Dump, Entry, Group, State, Status};
use super::raw::{CallPath, Items, MOST_GROUPS, RawDump, RawEntry, RawGroup, RawStatus, Scalar};
use super::value::invalid;

/// Numbers things in the order in which they are first there.
struct Numbers<T>(FxHashMap<T, u32>);

impl<T: Clone + Eq + Hash> Numbers<T> {
    fn number(&mut self, of: T) -> u32 {
        let next = self.0.len() as u32;
        *self.0.entry(of).or_insert(next)
    }

    fn in_order(self) -> Vec<T> {
        let mut all: Vec<(T, u32)> = self.0.into_iter().collect();
        all.sort_by_key(|(_, number)| *number);
        all.into_iter().map(|(of, _)| of).collect()
    }
}

/// What is known so far of a dump.
struct Conversion {
    groups: Numbers<(Option<u64>, Option<String>, String)>,
    names: Numbers<String>,
    call_paths: Numbers<Vec<String>>,
    dump: Dump,
    /// Whether the numbers of collective operations count messages as well.
    is_one_sequence: bool,
}

/// Returns what a dump says. `most_entries`: older ones count as overwritten.
pub(super) fn convert(raw: RawDump, most_entries: usize) -> Result<Dump> {
    if raw.version.is_none() && raw.entries.is_none() {
        let found = "no version and no entries";
        return Err(invalid(0, "a dump of PyTorch's flight recorder", found));
    }
    let mut conversion = Conversion {
        groups: Numbers(FxHashMap::default()),
        names: Numbers(FxHashMap::default()),
        call_paths: Numbers(FxHashMap::default()),
        dump: Dump {
            version: raw.version.map(version).transpose()?,
            ..Dump::default()
        },
        is_one_sequence: false,
    };
    let entries = raw.entries.and_then(|entries| entries.0);
    let entries = entries.map_or_else(Vec::new, |entries| entries.0);
    let wrong = |error| invalid(0, "numbers in a dump", error);
    conversion.entries(entries, most_entries).map_err(wrong)?;
    conversion.configuration(raw.pg_config);
    conversion.status(raw.pg_status).map_err(wrong)?;
    Ok(conversion.finish())
}

/// Compares as two numbers: 2.10 is later than 2.9.
fn version(text: Scalar) -> Result<(u32, u32)> {
    let text = text.text();
    let mut numbers = text.split('.').map(str::parse::<u32>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major @ 1..=2)), Some(Ok(minor))) => Ok((major, minor)),
        _ => Err(invalid(0, "a dump of version 1 or 2", text)),
    }
}

impl Conversion {
    fn entries(&mut self, entries: Vec<RawEntry>, most: usize) -> Result<(), String> {
        let mut all = Vec::with_capacity(entries.len());
        for entry in entries {
            all.push((entry.record_id.number()?, self.entry(entry)?));
        }
        all.sort_by_key(|(record, _)| *record);
        let too_old = all.len().saturating_sub(most);
        all.drain(..too_old);
        let records: Option<Vec<u64>> = all.iter().map(|(record, _)| *record).collect();
        if let Some(records) = records {
            self.dump.overwritten = records.first().copied();
            self.dump.has_holes = records.windows(2).any(|pair| pair[1] - pair[0] != 1);
        }
        self.dump.entries = all.into_iter().map(|(_, entry)| entry).collect();
        Ok(())
    }

    fn entry(&mut self, raw: RawEntry) -> Result<Entry, String> {
        let full_name = raw.profiling_name.text();
        // `nccl:send 1->2`: the sender is on the left; `nccl:recv 3<-0`: on the right.
        let (name, ends) = full_name.split_once(' ').unwrap_or((&full_name, ""));
        let pair = |arrow: &str| {
            let (one, other) = ends.split_once(arrow)?;
            Some((one.trim().parse().ok()?, other.trim().parse().ok()?))
        };
        let channel = pair("->").or_else(|| pair("<-").map(|(to, from)| (from, to)));
        let operation = name.rsplit(':').next().unwrap_or_default();
        let is_named_message = matches!(operation, "send" | "recv" | "coalesced");
        let mut sequence = raw.collective_seq_id.number()?;
        if let (None, Some(shared)) = (sequence, raw.seq_id.number()?) {
            self.is_one_sequence = true;
            sequence = Some(shared);
        }
        let is_set = |stamp: &Scalar| stamp.number().map(|stamp| stamp.unwrap_or(0) != 0);
        let is_completed = is_set(&raw.time_discovered_completed_ns)?;
        let is_started = is_set(&raw.time_discovered_started_ns)?;
        let state = match raw.state.text().as_str() {
            "completed" => State::Completed,
            _ if is_completed => State::Completed,
            "started" => State::Started,
            _ if is_started => State::Started,
            _ => State::Scheduled,
        };
        let (sequence, launch) = (sequence.unwrap_or(0), raw.p2p_seq_id.number()?.unwrap_or(0));
        let created_ns = raw.time_created_ns.number()?.unwrap_or(0);
        let number = raw.op_id.number()?.unwrap_or(0);
        let largest = sequence.max(launch).max(number);
        let types = raw.input_dtypes.0.unwrap_or_default();
        let element_type = types.first.filter(|_| !types.are_several);
        let elements = [raw.input_sizes, raw.output_sizes];
        Ok(Entry {
            group: self.group(raw.pg_id.number()?, raw.process_group, largest)?,
            name: self.names.number(name.to_owned()),
            sequence,
            launch,
            number,
            is_message: raw.is_p2p.unwrap_or(false) || is_named_message,
            channel: channel.filter(|_| is_named_message),
            state,
            is_retired: raw.retired,
            created_ns: i64::try_from(created_ns).unwrap_or(0),
            elements: elements.map(|of| of.0.map(|elements| elements.0)),
            element_type: element_type.map(|name| self.names.number(name)),
            call_path: self.call_path(raw.frames.0.unwrap_or_default()),
        })
    }

    /// Returns the number of a group, which has an entry with this largest number.
    fn group(
        &mut self,
        number: Option<u64>,
        names: Option<(Scalar, Scalar)>,
        largest: u64,
    ) -> Result<u32, String> {
        let (name, description) = names.unzip();
        let name = name.map(|name| name.text());
        let description = description.unwrap_or_default().text();
        let key = (number, name, description);
        let group = self.groups.number(key.clone());
        if group as usize == MOST_GROUPS {
            return Err(format!("more than {MOST_GROUPS} groups"));
        }
        if group as usize == self.dump.groups.len() {
            let (number, name, description) = key;
            self.dump.groups.push(Group {
                number,
                name,
                description,
                ..Group::default()
            });
        }
        let of_group = &mut self.dump.groups[group as usize];
        of_group.largest = of_group.largest.max(largest);
        Ok(group)
    }

    /// Returns the number of a call path: functions of PyTorch are left out if there are others.
    fn call_path(&mut self, raw: CallPath) -> Option<u32> {
        let mut functions = match raw.own.is_empty() {
            true => raw.library,
            false => raw.own,
        };
        functions.reverse();
        (!functions.is_empty()).then(|| self.call_paths.number(functions))
    }

    /// Adds the ranks of groups: by name and description, or by number in the oldest dumps.
    fn configuration(&mut self, raw: Option<Items<RawGroup>>) {
        for (key, group) in raw.into_iter().flat_map(|items| items.0) {
            let RawGroup { description, ranks } = group;
            if ranks.is_empty() {
                continue;
            }
            let ranks = Arc::new(ranks);
            for group in &mut self.dump.groups {
                let is_described = description
                    .as_ref()
                    .is_none_or(|text| *text == group.description);
                let is_named = match &group.name {
                    Some(name) => *name == key && is_described,
                    None => group.number.is_some_and(|number| number.to_string() == key),
                };
                if is_named {
                    group.ranks = Some(Arc::clone(&ranks));
                }
            }
            self.dump.listed.push(ranks);
        }
    }

    fn status(&mut self, raw: Option<Items<RawStatus>>) -> Result<(), String> {
        let all = raw.map_or_else(Vec::new, |items| items.0);
        let is_known = !all.is_empty();
        for (key, status) in all {
            let status = Status {
                enqueued: status.last_enqueued_collective.number()?,
                completed: status.last_completed_collective.number()?,
            };
            let mut groups = self.dump.groups.iter_mut();
            let is_it =
                |group: &&mut Group| group.number.is_some_and(|number| number.to_string() == key);
            match groups.find(is_it) {
                Some(group) => group.status = Some(status),
                None => {
                    self.dump.has_other_operations |= status.enqueued.unwrap_or(0) != 0;
                    self.dump.has_other_pending |= status.is_pending();
                }
            }
        }
        // Of a process without entries, only this shows whether it has entered anything.
        if self.dump.entries.is_empty() && is_known {
            self.dump.overwritten = Some(0);
        }
        Ok(())
    }

    /// Adds what follows from all parts.
    fn finish(mut self) -> Dump {
        self.dump.call_paths = self.call_paths.in_order();
        self.dump.names = self.names.in_order();
        let entries = &mut self.dump.entries;
        // One number for messages and collective operations is not comparable between ranks if there are messages.
        let has_messages = entries.iter().any(|of| of.is_message);
        if self.is_one_sequence && (has_messages || self.dump.overwritten != Some(0)) {
            entries.iter_mut().for_each(|of| of.sequence = 0);
        }
        // Messages that are launched together have the state of the entry that ends them.
        let mut ends: FxHashMap<(u32, u64), (State, Option<bool>)> = FxHashMap::default();
        let of_launches = entries.iter_mut().rev();
        for entry in of_launches.filter(|of| of.is_message && of.launch != 0) {
            let key = (entry.group, entry.launch);
            if entry.channel.is_none() {
                ends.insert(key, (entry.state, entry.is_retired));
            } else if let Some((state, is_retired)) = ends.get(&key) {
                entry.state = entry.state.max(*state);
                entry.is_retired = entry.is_retired.max(*is_retired);
            }
        }
        self.dump
    }
}
