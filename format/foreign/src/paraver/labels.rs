//! Names: of states and event types (`.pcf`), of threads (`.row`).

use std::collections::BTreeMap;
use std::sync::Arc;

/// The name of an event type, and of its values.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct EventLabels {
    /// Name of the event type.
    pub name: String,
    /// Names of values. Event types of one block share them.
    pub values: Arc<BTreeMap<i64, String>>,
}

/// The names of a `.pcf`.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Labels {
    /// Names of states, by code.
    pub states: BTreeMap<u64, String>,
    /// Names of event types.
    pub events: BTreeMap<u64, EventLabels>,
}

/// The section of a `.pcf` that a line is in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Section {
    Other,
    States,
    EventTypes,
    Values,
}

impl Labels {
    /// Parses the text of a `.pcf`. Lines and sections that say nothing about names are skipped: a trace without names is whole.
    pub fn parse(text: &str) -> Self {
        let mut labels = Self::default();
        let mut section = Section::Other;
        // The event types of a block, which share the values after them.
        let mut block: Vec<u64> = Vec::new();
        let mut values = BTreeMap::new();
        for line in text.lines().map(str::trim) {
            let (first, rest) = split(line);
            match (first, section) {
                ("", _) => {}
                ("STATES", _) if rest.is_empty() => section = Section::States,
                ("EVENT_TYPE", _) if rest.is_empty() => {
                    section = Section::EventTypes;
                    labels.name_values(&mut block, &mut values);
                }
                ("VALUES", Section::EventTypes) if rest.is_empty() => section = Section::Values,
                (code, Section::States) => match code.parse() {
                    Ok(code) => {
                        labels.states.insert(code, rest.to_owned());
                    }
                    Err(_) => section = Section::Other,
                },
                // The first number is for colours.
                (_, Section::EventTypes) => {
                    let (code, name) = split(rest);
                    if let Ok(code) = code.parse() {
                        let labels = labels.events.entry(code).or_default();
                        name.clone_into(&mut labels.name);
                        block.push(code);
                    }
                }
                (value, Section::Values) => match value.parse() {
                    Ok(value) => {
                        values.insert(value, rest.to_owned());
                    }
                    Err(_) => section = Section::Other,
                },
                (_, Section::Other) => {}
            }
        }
        labels.name_values(&mut block, &mut values);
        labels
    }

    /// Ends a block: its event types have these values. Of several blocks with values of one event type the last counts.
    fn name_values(&mut self, block: &mut Vec<u64>, values: &mut BTreeMap<i64, String>) {
        let codes = std::mem::take(block);
        let values = Arc::new(std::mem::take(values));
        if values.is_empty() {
            return;
        }
        for code in codes {
            self.events.entry(code).or_default().values = Arc::clone(&values);
        }
    }
}

/// Splits a line after its first word.
fn split(line: &str) -> (&str, &str) {
    let (first, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    (first, rest.trim_start())
}

/// The names of a `.row`.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct RowNames {
    /// By level, as `CPU`, `NODE` or `THREAD`: the names of its objects in order.
    pub levels: BTreeMap<String, Vec<String>>,
}

impl RowNames {
    /// Parses the text of a `.row`. Lines outside of levels are skipped.
    pub fn parse(text: &str) -> Self {
        let mut names = Self::default();
        let mut level: Option<(String, usize)> = None;
        for line in text.lines().map(str::trim_end) {
            let words: Vec<&str> = line.split_whitespace().collect();
            match words[..] {
                ["LEVEL", name, "SIZE", size] => {
                    level = size.parse().ok().map(|size| (name.to_owned(), size));
                }
                [] => {}
                _ => {
                    if let Some((name, left)) = level.as_mut().filter(|(_, left)| *left > 0) {
                        let of_level = names.levels.entry(name.clone()).or_default();
                        of_level.push(line.trim_start().to_owned());
                        *left -= 1;
                    }
                }
            }
        }
        names
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_of_a_block_share_their_values() {
        let text = "DEFAULT_OPTIONS\n\nLEVEL THREAD\n\nSTATES\n0    Idle\n1    Running\n\nSTATES_COLOR\n0    {1,2,3}\n\n\
            EVENT_TYPE\n9   50000001    MPI Point-to-point\n9   50000002    MPI Collective Comm\nVALUES\n\
            41   MPI_Sendrecv\n0   Outside MPI\n\n\nEVENT_TYPE\n6    40000033    Executing CPU\n";
        let labels = Labels::parse(text);
        let states: Vec<(u64, &str)> = labels
            .states
            .iter()
            .map(|(code, name)| (*code, name.as_str()))
            .collect();
        assert_eq!(states, [(0, "Idle"), (1, "Running")]);
        assert_eq!(labels.events[&50_000_001].name, "MPI Point-to-point");
        assert_eq!(labels.events[&50_000_002].values[&41], "MPI_Sendrecv");
        assert_eq!(labels.events[&50_000_002].values[&0], "Outside MPI");
        assert_eq!(labels.events[&40_000_033].name, "Executing CPU");
        assert!(labels.events[&40_000_033].values.is_empty());
    }

    #[test]
    fn a_row_file_names_objects_by_level() {
        let names = RowNames::parse(
            "LEVEL NODE SIZE 1\ns01r2b02\n\nLEVEL THREAD SIZE 2\nTHREAD 1.1.1\nTHREAD 1.2.1\nmore\n",
        );
        assert_eq!(names.levels["NODE"], ["s01r2b02"]);
        assert_eq!(names.levels["THREAD"], ["THREAD 1.1.1", "THREAD 1.2.1"]);
    }
}
