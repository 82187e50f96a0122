//! The first line of a trace.

use crate::paraver::MAGIC;
use crate::paraver::fields::{Fields, LineError};

/// Most tasks of all applications, threads of a task, nodes, and processors of a node.
const MOST: u64 = 1 << 24;

/// The first line of a trace: its time, its machine and its processes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Header {
    /// Time of the trace, in its units.
    pub duration: u64,
    /// Nanoseconds of a unit: 1, or 1 000 where the line does not name the unit.
    pub unit_ns: u64,
    /// Number of processors of each node; empty where the machine is not described.
    pub nodes: Vec<u32>,
    /// The applications, from number 1 on.
    pub applications: Vec<Application>,
}

/// An application: a parallel program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Application {
    /// Its tasks (processes), from number 1 on.
    pub tasks: Vec<Task>,
    /// How many communicators the trace defines for it.
    pub communicators: u64,
}

/// A task: a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Task {
    /// How many threads it has, from number 1 on.
    pub threads: u32,
    /// Node on which it ran, from 1 on; 0 means that it is not known.
    pub node: u32,
}

impl Header {
    /// Parses the first line, as `#Paraver (09/10/2019 at 16:09):11528373565_ns:1(2):1:2(1:1,1:1),3`.
    ///
    /// # Errors
    /// If the line is not what the format says, or has more than 2²⁴ tasks.
    pub fn parse(line: &[u8]) -> Result<Self, LineError> {
        let mut fields = Fields::new(line);
        if !line.starts_with(MAGIC) {
            return Err(fields.error("\"#Paraver (\""));
        }
        // The date contains colons, too.
        fields.skip_past(b"):", "a date in parentheses, and a colon")?;
        let duration = fields.unsigned("the time of the trace")?;
        let unit_ns = if fields.skip(b'_') {
            for byte in *b"ns" {
                fields.expect(byte, "the unit ns")?;
            }
            1
        } else {
            1000
        };
        fields.expect(b':', "a colon")?;
        let nodes = nodes(&mut fields)?;
        let count = fields.next("the number of applications")?;
        let mut header = Self {
            duration,
            unit_ns,
            nodes,
            applications: Vec::new(),
        };
        let mut tasks = 0;
        for number in 0..count {
            // The format's description has a colon between applications, Paraver itself writes a comma.
            if number == 0 {
                fields.expect(b':', "a colon, and the tasks of an application")?;
            } else if !fields.skip(b':') {
                fields.expect(b',', "a colon or a comma, and the next application")?;
            }
            let application = application(&mut fields, &mut tasks)?;
            header.applications.push(application);
        }
        fields.end()?;
        Ok(header)
    }
}

/// Reads the nodes: their number, and their processors in parentheses.
fn nodes(fields: &mut Fields<'_>) -> Result<Vec<u32>, LineError> {
    let count = fields.unsigned("the number of nodes")?;
    let mut nodes = Vec::new();
    if count == 0 || !fields.skip(b'(') {
        return Ok(nodes);
    }
    if count > MOST {
        return Err(fields.error("at most 2^24 nodes"));
    }
    for number in 0..count {
        if number != 0 {
            fields.expect(b',', "a comma, and the next node")?;
        }
        nodes.push(fields.small("the number of processors of a node")?);
    }
    fields.expect(b')', "a closing parenthesis")?;
    Ok(nodes)
}

/// Reads an application: its tasks with their threads and nodes, and the number of its communicators.
fn application(fields: &mut Fields<'_>, tasks: &mut u64) -> Result<Application, LineError> {
    let count = fields.unsigned("the number of tasks")?;
    *tasks = tasks.saturating_add(count);
    if *tasks > MOST {
        return Err(fields.error("at most 2^24 tasks"));
    }
    fields.expect(b'(', "the tasks in parentheses")?;
    let mut application = Application {
        tasks: Vec::new(),
        communicators: 0,
    };
    for number in 0..count {
        if number != 0 {
            fields.expect(b',', "a comma, and the next task")?;
        }
        let threads = fields.small("the number of threads of a task")?;
        if u64::from(threads) > MOST {
            return Err(fields.error("at most 2^24 threads"));
        }
        let node = fields.next_small("the node of a task")?;
        application.tasks.push(Task { threads, node });
    }
    fields.expect(b')', "a closing parenthesis")?;
    // After a comma there may be the next application, too.
    let mut after = fields.clone();
    if after.skip(b',') {
        let communicators = after.unsigned("the number of communicators")?;
        if after.peek() != Some(b'(') {
            application.communicators = communicators;
            *fields = after;
        }
    }
    Ok(application)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_first_line_names_tasks_and_threads() {
        let line = b"#Paraver (09/10/2019 at 16:09):11528373565_ns:2(2,4):2:2(1:1,3:2),3:1(1:0)";
        let header = Header::parse(line).expect("a header");
        assert_eq!((header.duration, header.unit_ns), (11_528_373_565, 1));
        assert_eq!(header.nodes, [2, 4]);
        let tasks = |application: usize| header.applications[application].tasks.as_slice();
        let task = |threads, node| Task { threads, node };
        assert_eq!(tasks(0), [task(1, 1), task(3, 2)]);
        assert_eq!(tasks(1), [task(1, 0)]);
        assert_eq!(header.applications[0].communicators, 3);
        assert_eq!(header.applications[1].communicators, 0);
    }

    #[test]
    fn applications_are_separated_by_colons_or_commas() {
        for (line, communicators) in [
            ("2(1:1,3:2):1(1:2):2(1:1,1:2)", [0, 0, 0]),
            ("2(1:1,3:2),1(1:2),2(1:1,1:2)", [0, 0, 0]),
            ("2(1:1,3:2),1(1:2),2(1:1,1:2),7", [0, 0, 7]),
            ("2(1:1,3:2),5:1(1:2),2(1:1,1:2),7", [5, 0, 7]),
            ("2(1:1,3:2),5,1(1:2),6,2(1:1,1:2)", [5, 6, 0]),
        ] {
            let line = format!("#Paraver (21/01/2022 at 16:37):2000_ns:2(4,4):3:{line}");
            let header = Header::parse(line.as_bytes()).expect("a header");
            let found = header.applications.iter();
            let found: Vec<(Vec<(u32, u32)>, u64)> = found
                .map(|application| {
                    let tasks = application.tasks.iter();
                    let tasks = tasks.map(|task| (task.threads, task.node));
                    (tasks.collect(), application.communicators)
                })
                .collect();
            let tasks = [vec![(1, 1), (3, 2)], vec![(1, 2)], vec![(1, 1), (1, 2)]];
            let expected: Vec<_> = tasks.into_iter().zip(communicators).collect();
            assert_eq!(found, expected, "{line}");
        }
    }

    #[test]
    fn without_a_unit_times_are_microseconds() {
        let header = Header::parse(b"#Paraver (1/1/9 at 1:00):5:0:1:1(1:1)\r").expect("a header");
        assert_eq!((header.unit_ns, header.nodes.len()), (1000, 0));
    }

    #[test]
    fn what_is_wrong_is_named_with_its_place() {
        for (line, offset, expected) in [
            (&b"Paraver"[..], 0, "\"#Paraver (\""),
            (b"#Paraver (1:1)", 0, "a date in parentheses, and a colon"),
            (b"#Paraver (1:1):x", 15, "the time of the trace"),
            (b"#Paraver (1:1):1_ms:", 17, "the unit ns"),
            (
                b"#Paraver (1:1):1:0:1:2(1:1",
                26,
                "a comma, and the next task",
            ),
            (
                b"#Paraver (1:1):1:0:1:99999999999(",
                32,
                "at most 2^24 tasks",
            ),
            (b"#Paraver (1:1):1:0:1:1(1:1)x", 27, "the end of the line"),
            (
                b"#Paraver (1:1):1:0:2",
                20,
                "a colon, and the tasks of an application",
            ),
            (
                b"#Paraver (1:1):1:0:2:1(1:1)",
                27,
                "a colon or a comma, and the next application",
            ),
            (
                b"#Paraver (1:1):1:0:2:1(1:1),4",
                29,
                "a colon or a comma, and the next application",
            ),
            // More applications than were announced.
            (
                b"#Paraver (1:1):1:0:1:1(1:1),1(1:1)",
                27,
                "the end of the line",
            ),
            (
                b"#Paraver (1:1):1:0:2:1(1:1),",
                28,
                "the number of communicators",
            ),
            (
                b"#Paraver (1:1):1:0:2:1(1:1),1(",
                30,
                "the number of threads of a task",
            ),
            (
                b"#Paraver (1:1):99999999999999999999",
                34,
                "a number below 2^64",
            ),
        ] {
            let error = Header::parse(line).expect_err("no header");
            assert_eq!((error.offset, error.expected), (offset, expected));
        }
    }
}
