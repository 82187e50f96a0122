//! Tables as streams of record batches, for programs that read them in memory.

use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::Builder;
use std::time::Duration;

use annals_merger::{MergeError, Query, Reader, StopFlag, nearest};
use anyhow::{Context as _, anyhow, bail};
use arrow_array::RecordBatch;
use arrow_schema::{Schema, SchemaRef};

use crate::write::exporter::{Call, Context, Ending, Events, Exporter, Wants};
use crate::write::pass;
use crate::write::pool::Pool;
use crate::write::rows::Rows;
use crate::write::tables::{
    Analysed, EventsTable, Gathered, MetricsTable, Shared, each_row, loss_rows,
};
use crate::{SampleTable, TableKind};

/// A table of a trace: its columns, and streams of its rows.
///
/// ```no_run
/// use std::sync::Arc;
///
/// use annals_export::{Table, TableKind};
/// use annals_merger::{Query, Reader};
///
/// let reader = Arc::new(Reader::open("run.annals")?);
/// let columns = ["region", "inclusive_ns"].map(str::to_owned);
/// let calls = Table::new(&reader, Query::new(), TableKind::Calls, Some(&columns))?;
/// for batch in calls.batches() {
///     println!("{} calls", batch?.num_rows());
/// }
/// # Ok::<(), anyhow::Error>(())
/// ```
#[derive(Clone)]
pub struct Table {
    reader: Arc<Reader>,
    query: Query,
    kind: TableKind,
    of_samples: SampleTable,
    /// Places of the columns in the whole table.
    columns: Arc<[usize]>,
    schema: SchemaRef,
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns: Vec<&str> = self.columns().collect();
        f.debug_struct("Table")
            .field("kind", &self.kind)
            .field("columns", &columns)
            .finish_non_exhaustive()
    }
}

impl Table {
    /// Describes a table of the events and calls of a query. `columns` are the names of those that are wanted, in their
    /// order; `None` means all. Nothing is read.
    ///
    /// # Errors
    /// If the table has no column of a name, or a name occurs twice, or there are none.
    pub fn new(
        reader: &Arc<Reader>,
        query: Query,
        kind: TableKind,
        columns: Option<&[String]>,
    ) -> anyhow::Result<Self> {
        let whole = kind.schema(&Context::new(reader, &query, query.window()));
        let places = match columns {
            None => (0..whole.fields().len()).collect(),
            Some(names) => places_of(kind, &whole, names)?,
        };
        let fields = places.iter().map(|at| Arc::clone(&whole.fields()[*at]));
        Ok(Self {
            schema: Arc::new(Schema::new(fields.collect::<Vec<_>>())),
            reader: Arc::clone(reader),
            query,
            kind,
            of_samples: SampleTable::default(),
            columns: places.into(),
        })
    }

    /// Sets what the rows of the table of samples are of.
    pub const fn set_samples(&mut self, of_samples: SampleTable) -> &mut Self {
        self.of_samples = of_samples;
        self
    }

    /// Returns the names of the columns, in order.
    pub fn columns(&self) -> impl Iterator<Item = &str> {
        self.schema
            .fields()
            .iter()
            .map(|field| field.name().as_str())
    }

    /// Returns what its rows are.
    pub const fn kind(&self) -> TableKind {
        self.kind
    }

    /// Returns the columns.
    pub const fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Returns the rows, from the first one on. Every call begins a new stream, which reads nothing before its first batch is
    /// asked for.
    pub fn batches(&self) -> Batches {
        Batches {
            table: self.clone(),
            state: State::New,
            process: std::process::id(),
        }
    }

    /// Finds all rows and passes them to `batches`.
    fn read(&self, reader: &Reader, batches: Sender) -> anyhow::Result<()> {
        let query = &self.query;
        let context = Context::new(reader, query, query.window());
        let shared = Arc::new(Shared::of(&context));
        let mut writer = BatchWriter {
            pool: Pool::new(),
            batches,
            columns: Arc::clone(&self.columns),
            schema: Arc::clone(&self.schema),
        };
        if let Some(table) = Analysed::of(self.kind, self.of_samples) {
            let mut write = |rows| writer.write(rows);
            each_row(table, reader, query, &shared, &mut write)?;
            return writer.finish();
        }
        let streamed = Streamed {
            has_losses: self.kind == TableKind::Drops,
            events: (self.kind == TableKind::Events).then(|| Arc::new(EventsTable::of(&context))),
            metrics: (self.kind == TableKind::Metrics).then(|| MetricsTable::of(&context)),
            calls: (self.kind == TableKind::Calls).then(Gathered::new),
            shared,
            writer,
        };
        pass::run(&context, Box::new(streamed), false, &mut |_| {})?;
        Ok(())
    }
}

/// Finds columns by name.
fn places_of(kind: TableKind, whole: &Schema, names: &[String]) -> anyhow::Result<Vec<usize>> {
    if names.is_empty() {
        bail!("columns: name at least one");
    }
    let mut places = Vec::new();
    for name in names {
        let Ok(at) = whole.index_of(name) else {
            let known = whole.fields().iter().map(|field| field.name().as_str());
            let hint = match nearest(name, known.clone()) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("it has {}", known.collect::<Vec<_>>().join(", ")),
            };
            bail!(
                "the table of {} has no column `{name}`: {hint}",
                kind.name()
            );
        };
        if places.contains(&at) {
            bail!("columns: `{name}` is named twice");
        }
        places.push(at);
    }
    Ok(places)
}

type Sender = SyncSender<anyhow::Result<RecordBatch>>;

/// Makes batches of rows in several threads and sends them, in order.
struct BatchWriter {
    pool: Pool<(), RecordBatch>,
    batches: Sender,
    columns: Arc<[usize]>,
    schema: SchemaRef,
}

impl BatchWriter {
    /// # Errors
    /// If batches are not received any more.
    fn write(&mut self, rows: Rows) -> anyhow::Result<()> {
        if rows.len() == 0 {
            return Ok(());
        }
        let (columns, schema) = (Arc::clone(&self.columns), Arc::clone(&self.schema));
        let make = move || {
            let columns = columns.iter().map(|at| rows.column(*at));
            let batch = RecordBatch::try_new(schema, columns.collect());
            batch.expect("columns as the schema has them")
        };
        match self.pool.push((), make) {
            Some(((), batch)) => self.send(batch),
            None => Ok(()),
        }
    }

    fn send(&self, batch: RecordBatch) -> anyhow::Result<()> {
        self.batches
            .send(Ok(batch))
            .map_err(|_| MergeError::Stopped.into())
    }

    fn finish(mut self) -> anyhow::Result<()> {
        while let Some(((), batch)) = self.pool.next() {
            self.send(batch)?;
        }
        Ok(())
    }
}

/// The table of a common pass.
struct Streamed {
    shared: Arc<Shared>,
    writer: BatchWriter,
    events: Option<Arc<EventsTable>>,
    metrics: Option<MetricsTable>,
    calls: Option<Gathered<Call>>,
    has_losses: bool,
}

impl Exporter for Streamed {
    fn wants(&self) -> Wants {
        Wants {
            calls: self.calls.is_some(),
            events: self.events.is_some() || self.metrics.is_some(),
            ..Wants::default()
        }
    }

    fn leave(&mut self, call: &Call) -> anyhow::Result<()> {
        if let Some(calls) = &mut self.calls
            && let Some(rows) = calls.push(*call, &self.shared)
        {
            self.writer.write(rows)?;
        }
        Ok(())
    }

    fn events(&mut self, events: &Events<'_>) -> anyhow::Result<()> {
        if let Some(table) = &self.events {
            for rows in table.rows(&self.shared, events.of_chunk) {
                self.writer.write(rows)?;
            }
        }
        if let Some(metrics) = &mut self.metrics {
            let writer = &mut self.writer;
            metrics.push(events, &self.shared, |rows| writer.write(rows))?;
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>, ending: &Ending<'_>) -> anyhow::Result<()> {
        let shared = &self.shared;
        let losses = self.has_losses.then(|| loss_rows(ending.losses, shared));
        let calls = self.calls.as_mut().map(|calls| calls.take(shared));
        let metrics = self.metrics.as_mut().map(|metrics| metrics.take(shared));
        for rows in calls.into_iter().chain(metrics).chain(losses) {
            self.writer.write(rows)?;
        }
        self.writer.finish()
    }
}

/// The rows of a table, batch by batch. Dropped, it ends the reading of the trace.
#[derive(Debug)]
pub struct Batches {
    table: Table,
    state: State,
    process: u32,
}

#[derive(Debug)]
enum State {
    New,
    Reading {
        batches: Receiver<anyhow::Result<RecordBatch>>,
        stop: StopFlag,
    },
    Ended,
}

/// What a wait for a batch brought.
#[derive(Debug)]
pub enum Waited {
    /// The next batch.
    Batch(RecordBatch),
    /// Nothing yet.
    Nothing,
    /// There are no more.
    End,
}

impl Batches {
    /// Returns what the batches consist of.
    pub fn schema(&self) -> SchemaRef {
        Arc::clone(&self.table.schema)
    }

    /// Waits for the next batch, at most for some time. The first call begins to read.
    ///
    /// # Errors
    /// If the input cannot be read, a thread cannot be started, or the process has been forked since the stream was made: then
    /// the thread that reads is in the other process.
    pub fn wait(&mut self, longest: Duration) -> anyhow::Result<Waited> {
        let found = self.wait_or_fail(longest);
        if !matches!(found, Ok(Waited::Batch(_) | Waited::Nothing)) {
            self.end();
        }
        found
    }

    fn wait_or_fail(&mut self, longest: Duration) -> anyhow::Result<Waited> {
        if matches!(self.state, State::Ended) {
            return Ok(Waited::End);
        }
        if self.process != std::process::id() {
            bail!(
                "this process was forked after the stream was made: ask the table for another one"
            );
        }
        if matches!(self.state, State::New) {
            self.start()?;
        }
        let State::Reading { batches, .. } = &self.state else {
            return Ok(Waited::End);
        };
        match batches.recv_timeout(longest) {
            Ok(batch) => Ok(Waited::Batch(batch?)),
            Err(RecvTimeoutError::Timeout) => Ok(Waited::Nothing),
            Err(RecvTimeoutError::Disconnected) => Ok(Waited::End),
        }
    }

    fn start(&mut self) -> anyhow::Result<()> {
        let stop = StopFlag::default();
        let (sender, batches) = sync_channel(1);
        let table = self.table.clone();
        let reader = table.reader.stopped_by(&stop);
        let read = move || {
            let work = || table.read(&reader, sender.clone());
            let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
            let outcome = outcome.unwrap_or_else(|_| Err(anyhow!("an internal error: a panic")));
            if let Err(error) = outcome {
                // Nothing receives it when the stream was dropped.
                let _ = sender.send(Err(error));
            }
        };
        let thread = Builder::new().name("annals table".to_owned()).spawn(read);
        thread.context("cannot start the thread that reads")?;
        self.state = State::Reading { batches, stop };
        Ok(())
    }

    /// Ends the reading.
    fn end(&mut self) {
        let State::Reading { stop, batches } = std::mem::replace(&mut self.state, State::Ended)
        else {
            return;
        };
        // The thread is not waited for: it may work on what it has read.
        stop.stop();
        if self.process != std::process::id() {
            // The thread is another process's, and may have held the lock of the channel when that forked.
            std::mem::forget(batches);
        }
    }
}

impl Drop for Batches {
    fn drop(&mut self) {
        self.end();
    }
}

impl Iterator for Batches {
    type Item = anyhow::Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.wait(Duration::from_secs(3600)) {
                Ok(Waited::Batch(batch)) => return Some(Ok(batch)),
                Ok(Waited::Nothing) => {}
                Ok(Waited::End) => return None,
                Err(error) => return Some(Err(error)),
            }
        }
    }
}
