//! Writes the overview of a trace under construction: blocks between its chunks.

use annals_format::{
    BinRow, BlockWriter, CompressionLevel, OverviewEntry, OverviewRow, encode_bins,
};

use crate::error::{MergeError, Result};
use crate::trace_writer::TraceWriter;

/// Number of rows from which on they are written.
const MOST_ROWS: usize = 1 << 18;
/// Number of rows of a block.
const BLOCK_ROWS: usize = 1 << 13;

/// Writes blocks of the overview.
pub(crate) struct OverviewWriter {
    rows: Vec<OverviewRow>,
    entries: Vec<OverviewEntry>,
    writer: BlockWriter,
}

impl OverviewWriter {
    pub(crate) fn new(level: CompressionLevel, path: &std::path::Path) -> Result<Self> {
        let writer = BlockWriter::new(level).map_err(MergeError::io("write", path))?;
        Ok(Self {
            rows: Vec::new(),
            entries: Vec::new(),
            writer,
        })
    }

    /// Takes rows, and writes all there are if these are many.
    pub(crate) fn take(
        &mut self,
        rows: impl Iterator<Item = OverviewRow>,
        file: &mut TraceWriter,
    ) -> Result<()> {
        self.rows.extend(rows);
        if self.rows.len() < MOST_ROWS {
            return Ok(());
        }
        self.write(file)
    }

    /// Writes rows, which must be in order. Returns the list of blocks.
    pub(crate) fn write_rows<R: BinRow>(
        &mut self,
        rows: &[R],
        file: &mut TraceWriter,
    ) -> Result<Vec<R::Entry>> {
        let (mut head, mut body, mut block) = (Vec::new(), Vec::new(), Vec::new());
        let mut entries = Vec::new();
        for rows in rows.chunks(BLOCK_ROWS) {
            head.clear();
            body.clear();
            block.clear();
            let content = encode_bins(rows, &mut head, &mut body);
            self.writer
                .write_with(R::KIND, &head, &body, content, &mut block);
            entries.extend(R::entry(file.offset(), rows));
            file.write(&block)?;
        }
        Ok(entries)
    }

    /// Writes what is left. Returns the list of blocks.
    pub(crate) fn finish(mut self, file: &mut TraceWriter) -> Result<Vec<OverviewEntry>> {
        self.write(file)?;
        Ok(self.entries)
    }

    fn write(&mut self, file: &mut TraceWriter) -> Result<()> {
        self.rows.sort_unstable_by_key(sort_key);
        let mut rows = std::mem::take(&mut self.rows);
        let entries = self.write_rows(&rows, file)?;
        self.entries.extend(entries);
        rows.clear();
        self.rows = rows;
        Ok(())
    }
}

/// Returns a number whose order is that of the row's key: one is compared faster than five.
fn sort_key(row: &OverviewRow) -> u128 {
    let lane = u64::from(row.lane.id) << 8 | u64::from(row.lane.depth);
    let level = u64::from(row.level) << 8 | row.lane.kind as u64;
    // The least number is 0.
    let bin = row.bin as u64 ^ 1 << 63;
    u128::from(level << 48 | lane) << 64 | u128::from(bin)
}
