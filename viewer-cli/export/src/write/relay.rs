//! Runs an exporter in a separate thread, which receives the items of the pass in batches.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{Builder, Scope, ScopedJoinHandle};

use anyhow::bail;

use crate::write::exporter::{Call, Ending, Enter, Events, Exporter, Message, Wants};
use annals_merger::ChunkEvents;

/// Maximum number of items in a batch, and of batches in the queue.
const BATCH: usize = 1 << 14;
const BATCHES: usize = 3;

/// An item for an exporter.
enum Told {
    Enter(Enter),
    Leave(Call),
    Unmatched(Enter),
    Events(Arc<ChunkEvents>, Vec<u64>, Arc<[bool]>),
    Message(Message),
}

/// Sends items to the exporter's thread.
pub(crate) struct Relay<'scope, 'a> {
    waiting: Vec<Told>,
    sender: SyncSender<Vec<Told>>,
    thread: ScopedJoinHandle<'scope, (Box<dyn Exporter + Send + 'a>, anyhow::Result<()>)>,
}

fn listen(
    mut exporter: Box<dyn Exporter + Send + '_>,
    receiver: Receiver<Vec<Told>>,
) -> (Box<dyn Exporter + Send + '_>, anyhow::Result<()>) {
    for told in receiver.into_iter().flatten() {
        let outcome = match &told {
            Told::Enter(enter) => exporter.enter(enter),
            Told::Leave(call) => exporter.leave(call),
            Told::Unmatched(leave) => exporter.unmatched(leave),
            Told::Events(of_chunk, messages, is_move) => exporter.events(&Events {
                of_chunk,
                messages,
                is_move,
            }),
            Told::Message(message) => exporter.message(message),
        };
        if outcome.is_err() {
            return (exporter, outcome);
        }
    }
    (exporter, Ok(()))
}

impl<'scope, 'a: 'scope> Relay<'scope, 'a> {
    /// Moves an exporter into a thread of this scope. Returns it if no thread can be started.
    pub(crate) fn start(
        scope: &'scope Scope<'scope, '_>,
        exporter: Box<dyn Exporter + Send + 'a>,
    ) -> Result<Self, Box<dyn Exporter + Send + 'a>> {
        let (sender, receiver) = sync_channel(BATCHES);
        // If the thread cannot be started, the exporter must not be lost.
        let (give, take) = sync_channel(1);
        let work = move || {
            let exporter = take.recv().expect("the exporter is sent first");
            listen(exporter, receiver)
        };
        let name = "export".to_owned();
        let Ok(thread) = Builder::new().name(name).spawn_scoped(scope, work) else {
            return Err(exporter);
        };
        let _ = give.send(exporter);
        Ok(Self {
            waiting: Vec::with_capacity(BATCH),
            sender,
            thread,
        })
    }

    fn tell(&mut self, told: Told) -> anyhow::Result<()> {
        self.waiting.push(told);
        match self.waiting.len() < BATCH {
            true => Ok(()),
            false => self.send(),
        }
    }

    fn send(&mut self) -> anyhow::Result<()> {
        let told = std::mem::replace(&mut self.waiting, Vec::with_capacity(BATCH));
        match self.sender.send(told) {
            Ok(()) => Ok(()),
            // Its own error is the one that counts: `end` has it.
            Err(_) => bail!("the export ended early"),
        }
    }

    /// Waits until the exporter has received everything; returns the exporter, or its error.
    pub(crate) fn end(mut self) -> anyhow::Result<Box<dyn Exporter + Send + 'a>> {
        let _ = self.send();
        drop(self.sender);
        match self.thread.join() {
            Ok((exporter, outcome)) => outcome.map(|()| exporter),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

impl<'scope, 'a: 'scope> Exporter for Relay<'scope, 'a> {
    fn wants(&self) -> Wants {
        Wants::default()
    }

    fn enter(&mut self, enter: &Enter) -> anyhow::Result<()> {
        self.tell(Told::Enter(*enter))
    }

    fn leave(&mut self, call: &Call) -> anyhow::Result<()> {
        self.tell(Told::Leave(*call))
    }

    fn unmatched(&mut self, leave: &Enter) -> anyhow::Result<()> {
        self.tell(Told::Unmatched(*leave))
    }

    fn events(&mut self, events: &Events<'_>) -> anyhow::Result<()> {
        let of_chunk = Arc::clone(events.of_chunk);
        let (messages, is_move) = (events.messages.to_vec(), events.is_move.into());
        self.waiting.push(Told::Events(of_chunk, messages, is_move));
        // A chunk is large: few of them wait.
        self.send()
    }

    fn message(&mut self, message: &Message) -> anyhow::Result<()> {
        self.tell(Told::Message(*message))
    }

    fn failure(self: Box<Self>) -> Option<anyhow::Error> {
        self.end().err()
    }

    fn finish(self: Box<Self>, ending: &Ending<'_>) -> anyhow::Result<()> {
        self.end()?.finish(ending)
    }
}
