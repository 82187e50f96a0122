//! Writes the overview of a trace under construction: blocks between its chunks.

use annals_format::{
    BinBlock, BlockKind, BlockWriter, CompressionLevel, MessageRow, MetricRow, OverviewEntry,
    OverviewRow, encode_messages, encode_messages_head, encode_metrics, encode_metrics_head,
    encode_overview, encode_overview_head, messages_content, metrics_content, overview_content,
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

    /// Writes rows of messages, which must be in order. Returns the list of blocks.
    pub(crate) fn write_messages(
        &mut self,
        rows: &[MessageRow],
        file: &mut TraceWriter,
    ) -> Result<Vec<BinBlock>> {
        let (mut head, mut body, mut block) = (Vec::new(), Vec::new(), Vec::new());
        let mut entries = Vec::new();
        for rows in rows.chunks(BLOCK_ROWS) {
            head.clear();
            body.clear();
            block.clear();
            encode_messages_head(rows, &mut head);
            encode_messages(rows, &mut body);
            let (kind, content) = (BlockKind::Messages, messages_content(rows));
            self.writer
                .write_with(kind, &head, &body, content, &mut block);
            entries.extend(BinBlock::of_messages(file.offset(), rows));
            file.write(&block)?;
        }
        Ok(entries)
    }

    /// Writes rows of metrics, which must be in order. Returns the list of blocks.
    pub(crate) fn write_metrics(
        &mut self,
        rows: &[MetricRow],
        file: &mut TraceWriter,
    ) -> Result<Vec<BinBlock>> {
        let (mut head, mut body, mut block) = (Vec::new(), Vec::new(), Vec::new());
        let mut entries = Vec::new();
        for rows in rows.chunks(BLOCK_ROWS) {
            head.clear();
            body.clear();
            block.clear();
            encode_metrics_head(rows, &mut head);
            encode_metrics(rows, &mut body);
            let (kind, content) = (BlockKind::Metrics, metrics_content(rows));
            self.writer
                .write_with(kind, &head, &body, content, &mut block);
            entries.extend(BinBlock::of_metrics(file.offset(), rows));
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
        let (mut head, mut body, mut block) = (Vec::new(), Vec::new(), Vec::new());
        for rows in self.rows.chunks(BLOCK_ROWS) {
            head.clear();
            body.clear();
            block.clear();
            encode_overview_head(rows, &mut head);
            encode_overview(rows, &mut body);
            let (kind, content) = (BlockKind::Overview, overview_content(rows));
            self.writer
                .write_with(kind, &head, &body, content, &mut block);
            self.entries.extend(OverviewEntry::of(file.offset(), rows));
            file.write(&block)?;
        }
        self.rows.clear();
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
