//! The records of a trace: one in each line.

use crate::paraver::fields::{Fields, LineError};

/// A thread, by the numbers of its application, its task and itself, from 1 on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Thread {
    /// Number of the application.
    pub application: u32,
    /// Number of the task in the application.
    pub task: u32,
    /// Number of the thread in the task.
    pub thread: u32,
}

/// A time in which a thread had a state. Times are in the units of the trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct State {
    /// The thread.
    pub thread: Thread,
    /// When it began.
    pub begin: u64,
    /// When it ended.
    pub end: u64,
    /// Code of the state, which the `.pcf` names.
    pub state: u64,
}

/// Events of a thread at one moment.
#[derive(Clone, Debug)]
pub struct Events<'a> {
    /// The thread.
    pub thread: Thread,
    /// When they were, in the units of the trace.
    pub time: u64,
    fields: Fields<'a>,
}

impl Iterator for Events<'_> {
    /// Type and value of an event. After an error nothing follows.
    type Item = Result<(u64, i64), LineError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.fields.end().is_ok() {
            return None;
        }
        let event = self
            .fields
            .next("the type of an event")
            .and_then(|event_type| {
                Ok((
                    event_type,
                    self.fields.next_signed("the value of an event")?,
                ))
            });
        if event.is_err() {
            self.fields = Fields::new(b"");
        }
        Some(event)
    }
}

/// A message between threads. Times are in the units of the trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Communication {
    /// The thread that sent it.
    pub from: Thread,
    /// When the sender called for it, and when its data left.
    pub sent: [u64; 2],
    /// The thread that received it.
    pub to: Thread,
    /// When the receiver called for it, and when its data was there.
    pub received: [u64; 2],
    /// Its size, bytes.
    pub bytes: u64,
    /// Its tag.
    pub tag: i64,
}

/// A record.
#[derive(Clone, Debug)]
pub enum Record<'a> {
    /// An empty line or a comment.
    Nothing,
    /// A communicator: its application, its number, and its tasks.
    Communicator {
        /// Number of the application.
        application: u32,
        /// Number of the communicator in the application.
        communicator: u32,
        /// Numbers of its tasks, by rank.
        tasks: Vec<u32>,
    },
    /// A state.
    State(State),
    /// Events.
    Events(Events<'a>),
    /// A message.
    Communication(Communication),
}

fn thread(fields: &mut Fields<'_>) -> Result<Thread, LineError> {
    // Where it ran may change at any time, and is no part of the thread's name.
    fields.next("the number of a processor")?;
    Ok(Thread {
        application: fields.next_small("the number of an application")?,
        task: fields.next_small("the number of a task")?,
        thread: fields.next_small("the number of a thread")?,
    })
}

/// Parses a line after the first.
///
/// # Errors
/// If the line is not what the format says.
pub fn parse_record(line: &[u8]) -> Result<Record<'_>, LineError> {
    let mut fields = Fields::new(line);
    let record = match fields.peek() {
        None | Some(b'#' | b'\r') => return Ok(Record::Nothing),
        Some(b'c') => {
            fields.skip(b'c');
            communicator(&mut fields)?
        }
        Some(b'1') => {
            fields.skip(b'1');
            Record::State(State {
                thread: thread(&mut fields)?,
                begin: fields.next("the begin of a state")?,
                end: fields.next("the end of a state")?,
                state: fields.next("the code of a state")?,
            })
        }
        Some(b'2') => {
            fields.skip(b'2');
            let (thread, time) = (thread(&mut fields)?, fields.next("the time of events")?);
            return Ok(Record::Events(Events {
                thread,
                time,
                fields,
            }));
        }
        Some(b'3') => {
            fields.skip(b'3');
            let from = thread(&mut fields)?;
            let sent = [(); 2].map(|()| fields.next("the time of a send"));
            let to = thread(&mut fields)?;
            let received = [(); 2].map(|()| fields.next("the time of a receive"));
            Record::Communication(Communication {
                from,
                sent: [sent[0]?, sent[1]?],
                to,
                received: [received[0]?, received[1]?],
                bytes: fields.next("the size of a message")?,
                tag: fields.next_signed("the tag of a message")?,
            })
        }
        Some(_) => return Err(fields.error("a record: 1, 2, 3 or c")),
    };
    fields.end()?;
    Ok(record)
}

fn communicator<'a>(fields: &mut Fields<'_>) -> Result<Record<'a>, LineError> {
    let application = fields.next_small("the number of an application")?;
    let communicator = fields.next_small("the number of a communicator")?;
    let count = fields.next("the number of the communicator's tasks")?;
    let mut tasks = Vec::new();
    for _ in 0..count {
        tasks.push(fields.next_small("the number of a task")?);
    }
    Ok(Record::Communicator {
        application,
        communicator,
        tasks,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const fn at(task: u32) -> Thread {
        Thread {
            application: 1,
            task,
            thread: 1,
        }
    }

    #[test]
    fn records_of_each_kind() {
        let line = b"1:2:1:2:1:0:2744291:1";
        let Ok(Record::State(state)) = parse_record(line) else {
            panic!("no state");
        };
        let expected = State {
            thread: at(2),
            begin: 0,
            end: 2_744_291,
            state: 1,
        };
        assert_eq!(state, expected);
        let line = b"2:2:1:2:1:386:50000003:31:40000036:-7";
        let Ok(Record::Events(events)) = parse_record(line) else {
            panic!("no events");
        };
        assert_eq!((events.thread, events.time), (at(2), 386));
        let events: Result<Vec<_>, _> = events.collect();
        assert_eq!(events, Ok(vec![(50_000_003, 31), (40_000_036, -7)]));
        let line = b"3:1:1:1:1:567:568:2:1:2:1:571:572:41360:9";
        let Ok(Record::Communication(message)) = parse_record(line) else {
            panic!("no message");
        };
        let expected = Communication {
            from: at(1),
            sent: [567, 568],
            to: at(2),
            received: [571, 572],
            bytes: 41360,
            tag: 9,
        };
        assert_eq!(message, expected);
        let Ok(Record::Communicator {
            communicator,
            tasks,
            ..
        }) = parse_record(b"c:1:3:2:1:2")
        else {
            panic!("no communicator");
        };
        assert_eq!((communicator, tasks), (3, vec![1, 2]));
        assert!(matches!(parse_record(b""), Ok(Record::Nothing)));
    }

    #[test]
    fn what_is_wrong_is_named_with_its_place() {
        for (line, offset, expected) in [
            (&b"4:1"[..], 0, "a record: 1, 2, 3 or c"),
            (b"1:2:1:2:1:0:x", 12, "the end of a state"),
            (b"1:2:1:2:1:0:5:1:9", 15, "the end of the line"),
            (b"3:1:1:1:1:567", 13, "a colon"),
            (b"c:1:1:3:1:2", 11, "a colon"),
            (b"c:1:4294967296:1:1", 14, "a number below 2^32"),
            (b"1:2:4294967296:2:1:0:5:1", 14, "a number below 2^32"),
        ] {
            let error = parse_record(line).expect_err("no record");
            assert_eq!((error.offset, error.expected), (offset, expected));
        }
        let Ok(Record::Events(mut events)) = parse_record(b"2:2:1:2:1:386:5:6:7") else {
            panic!("no events");
        };
        assert_eq!(events.next(), Some(Ok((5, 6))));
        assert!(matches!(events.next(), Some(Err(error)) if error.offset == 19));
        assert!(events.next().is_none());
    }

    proptest! {
        #[test]
        fn no_line_costs_a_panic(line in prop::collection::vec(any::<u8>(), 0..60), kind in 0..4_u8) {
            let mut line = line;
            line.insert(0, b"123c"[kind as usize]);
            for byte in &mut line[1..] {
                *byte = b":0123456789-,"[*byte as usize % 13];
            }
            if let Ok(Record::Events(events)) = parse_record(&line) {
                prop_assert!(events.count() <= line.len());
            }
        }
    }
}
