//! Arrow IPC files (Feather 2), without compression: they can be mapped into memory as they are.

use std::io;

use annals_merger::OutputError;
use arrow_ipc::writer::FileWriter;
use arrow_schema::{ArrowError, SchemaRef};

use crate::write::rows::{Encoded, Job, Out, RowFile, Rows};

struct ArrowFile {
    writer: FileWriter<Out>,
}

pub(crate) fn open(
    schema: &SchemaRef,
    _: Option<&'static str>,
    out: Out,
) -> anyhow::Result<Box<dyn RowFile>> {
    let writer = FileWriter::try_new(out, schema)?;
    Ok(Box::new(ArrowFile { writer }))
}

impl ArrowFile {
    fn failed(&self, error: ArrowError) -> OutputError {
        self.writer.get_ref().failed(io::Error::other(error))
    }
}

impl RowFile for ArrowFile {
    fn encode(&mut self, group: Vec<Rows>) -> anyhow::Result<Job> {
        let batches = move || group.into_iter().map(Rows::batch).collect();
        Ok(Box::new(move || Ok(Encoded::Batches(batches()))))
    }

    fn append(&mut self, encoded: Encoded) -> anyhow::Result<()> {
        if let Encoded::Batches(group) = encoded {
            for batch in &group {
                let written = self.writer.write(batch);
                written.map_err(|error| self.failed(error))?;
            }
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> anyhow::Result<()> {
        let finished = self.writer.finish();
        finished.map_err(|error| self.failed(error))?;
        self.writer.into_inner()?.finish()
    }
}
