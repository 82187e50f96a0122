//! The exports that are tables: which are written, and where.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use annals_merger::{MessageCounts, Replace, WholeDirectory};
use anyhow::bail;

use crate::write::exporter::{Call, Context, Ending, Events, Exporter, Wants};
use crate::write::rows::{At, OpenRows, RowCounts, Tables};
use crate::write::tables::{
    Analysed, EventsTable, Gathered, MetricsTable, Shared, each_row, loss_rows,
};
use crate::{Partition, SampleTable, TableKind, UsageError};

/// Tables and their output files.
pub(crate) struct Plan {
    /// The directory that they are in; `None` means one file, or standard output.
    pub(crate) directory: Option<PathBuf>,
    /// The tables, and their names in the directory; the directory itself: none.
    pub(crate) tables: Vec<(TableKind, PathBuf)>,
    /// How they are split.
    pub(crate) partition: Option<Partition>,
    /// Extension of the files.
    pub(crate) extension: &'static str,
    /// The writer of the rows.
    pub(crate) open: OpenRows,
    /// Existing files that are replaced.
    pub(crate) replace: Replace,
}

/// Returns whether something other than an empty directory is at a path.
fn is_taken(path: &Path) -> bool {
    match std::fs::read_dir(path) {
        Ok(mut entries) => entries.next().is_some(),
        Err(error) => error.kind() != std::io::ErrorKind::NotFound,
    }
}

/// The settings from the command line.
pub(crate) struct Asked<'a> {
    pub(crate) output: &'a Path,
    pub(crate) tables: &'a [TableKind],
    pub(crate) partition: Option<Partition>,
    pub(crate) extensions: &'static [&'static str],
    /// Tables that are written when none is named.
    pub(crate) usual: &'static [TableKind],
    pub(crate) replace: Replace,
}

impl Asked<'_> {
    /// Plans the output: a name with the format's extension is a file with one table, any other name is a directory of
    /// tables.
    pub(crate) fn plan(&self, open: OpenRows) -> anyhow::Result<Plan> {
        let extension = self.extensions[0];
        let name = self
            .output
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .to_lowercase();
        let name = name.strip_suffix(".gz").unwrap_or(&name);
        let mut extensions = self.extensions.iter();
        let is_named = extensions.any(|extension| name.ends_with(&format!(".{extension}")));
        let is_stream = self.output.as_os_str() == "-"
            || std::fs::metadata(self.output).is_ok_and(|m| !m.is_file() && !m.is_dir());
        let is_file = (is_named && !self.output.is_dir() || is_stream) && self.partition.is_none();
        // A file that is called as a table has that one.
        let stem = name.split('.').next().unwrap_or_default();
        let named = TableKind::ALL.into_iter().find(|kind| kind.name() == stem);
        let one = match self.tables {
            [] if is_file => Some(named.unwrap_or(TableKind::Events)),
            [one] => Some(*one),
            _ => None,
        };
        if !is_file && self.output.is_file() {
            let why = format!(
                "{}: is a file, but names that do not end in *.{extension} are directories of tables: give *.{extension}, \
                 or the name of a directory",
                self.output.display()
            );
            return Err(UsageError(why).into());
        }
        if is_file && self.tables.len() > 1 {
            let why = format!(
                "{}: a file has one table: name a directory for several",
                self.output.display()
            );
            return Err(UsageError(why).into());
        }
        if is_stream && self.partition.is_some() {
            return Err(UsageError("partitions need a directory".to_owned()).into());
        }
        let tables = match (one, is_file || self.partition.is_some()) {
            (Some(one), true) if is_file => vec![(one, self.output.to_owned())],
            (Some(one), true) => vec![(one, PathBuf::new())],
            _ => {
                let wanted = match self.tables {
                    [] => self.usual,
                    tables => tables,
                };
                let is_split = |kind: TableKind| {
                    self.partition.is_some_and(|partition| {
                        partition == Partition::Rank || kind.time_column().is_some()
                    })
                };
                let path = |kind: TableKind| match is_split(kind) {
                    true => PathBuf::from(kind.name()),
                    false => PathBuf::from(format!("{}.{extension}", kind.name())),
                };
                let mut tables: Vec<_> = wanted.iter().map(|kind| (*kind, path(*kind))).collect();
                tables.sort();
                tables.dedup();
                tables
            }
        };
        if let [(kind, _)] = tables[..]
            && matches!(self.partition, Some(Partition::Time(_)))
            && kind.time_column().is_none()
        {
            bail!("{} have no time to be split by", kind.name());
        }
        Ok(Plan {
            directory: (!is_file).then(|| self.output.to_owned()),
            tables,
            partition: self.partition,
            extension,
            open,
            replace: self.replace,
        })
    }
}

/// Tables under construction.
pub(crate) struct Dataset {
    shared: Arc<Shared>,
    files: Tables,
    /// Numbers among the files.
    numbers: Vec<(TableKind, usize)>,
    events: Option<(usize, Arc<EventsTable>)>,
    calls: Option<(usize, Gathered<Call>)>,
    metrics: Option<(usize, MetricsTable)>,
    /// After the files in this struct, since they must be dropped before the directory.
    directory: Option<WholeDirectory>,
}

impl Dataset {
    /// Returns the number of rows of each table so far.
    pub(crate) fn row_counts(&self) -> Arc<RowCounts> {
        self.files.row_counts()
    }

    /// Begins all files.
    pub(crate) fn create(context: &Context<'_>, plan: &Plan) -> anyhow::Result<Self> {
        let mut dataset = Self {
            shared: Arc::new(Shared::of(context)),
            files: Tables::new(),
            numbers: Vec::new(),
            events: None,
            calls: None,
            metrics: None,
            directory: None,
        };
        if let Some(directory) = &plan.directory {
            let paths = plan.tables.iter().map(|(_, name)| directory.join(name));
            let is_mixed =
                |path: &PathBuf| plan.partition.is_some() && !path.is_file() && is_taken(path);
            if let Some(taken) = paths.into_iter().find(is_mixed) {
                bail!(
                    "{}: is there already, and parts of a dataset do not mix: remove it, or name another output",
                    taken.display()
                );
            }
            dataset.directory = Some(WholeDirectory::create(directory, plan.replace)?);
        }
        for (kind, path) in &plan.tables {
            let at = match &dataset.directory {
                Some(directory) => At {
                    temporary: Some(directory.temporary().join(path)),
                    named: directory.path().join(path),
                    replace: plan.replace,
                },
                None => At {
                    temporary: None,
                    named: path.clone(),
                    replace: plan.replace,
                },
            };
            let schema = kind.schema(context);
            let number = dataset.files.add(
                *kind,
                &schema,
                &at,
                plan.partition,
                plan.extension,
                plan.open,
            )?;
            dataset.numbers.push((*kind, number));
            match kind {
                TableKind::Events => {
                    dataset.events = Some((number, Arc::new(EventsTable::of(context))));
                }
                TableKind::Calls => dataset.calls = Some((number, Gathered::new())),
                TableKind::Metrics => {
                    dataset.metrics = Some((number, MetricsTable::of(context)));
                }
                _ => {}
            }
        }
        Ok(dataset)
    }

    /// Writes the tables that analyses make, each in a separate pass. Returns what became of all sends and receives, if one
    /// of the tables is that of messages.
    ///
    /// # Errors
    /// If the input cannot be read, or the output not be written.
    pub(crate) fn write_analysed(
        &mut self,
        context: &Context<'_>,
    ) -> anyhow::Result<Option<MessageCounts>> {
        let mut counts = None;
        for (kind, number) in self.numbers.clone() {
            if let Some(table) = Analysed::of(kind, SampleTable::default()) {
                let (shared, files) = (Arc::clone(&self.shared), &mut self.files);
                let mut write = |rows| files.write(number, rows);
                let (reader, query) = (context.opened, context.filter);
                let found = each_row(table, reader, query, &shared, &mut write)?;
                counts = counts.or(found);
            }
        }
        Ok(counts)
    }

    fn number(&self, wanted: TableKind) -> Option<usize> {
        let mut numbers = self.numbers.iter();
        numbers
            .find(|(kind, _)| *kind == wanted)
            .map(|(_, number)| *number)
    }
}

impl Exporter for Dataset {
    fn wants(&self) -> Wants {
        Wants {
            calls: self.calls.is_some(),
            events: self.events.is_some() || self.metrics.is_some(),
            ..Wants::default()
        }
    }

    fn leave(&mut self, call: &Call) -> anyhow::Result<()> {
        if let Some((number, calls)) = &mut self.calls
            && let Some(rows) = calls.push(*call, &self.shared)
        {
            self.files.write(*number, rows)?;
        }
        Ok(())
    }

    fn events(&mut self, events: &Events<'_>) -> anyhow::Result<()> {
        if let Some((number, table)) = &self.events {
            for rows in table.rows(&self.shared, events.of_chunk) {
                self.files.write(*number, rows)?;
            }
        }
        if let Some((number, metrics)) = &mut self.metrics {
            let files = &mut self.files;
            metrics.push(events, &self.shared, |rows| files.write(*number, rows))?;
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>, ending: &Ending<'_>) -> anyhow::Result<()> {
        let shared = &self.shared;
        if let Some((number, calls)) = &mut self.calls {
            self.files.write(*number, calls.take(shared))?;
        }
        if let Some((number, metrics)) = &mut self.metrics {
            self.files.write(*number, metrics.take(shared))?;
        }
        if let Some(number) = self.number(TableKind::Drops) {
            self.files.write(number, loss_rows(ending.losses, shared))?;
        }
        self.files.finish()?;
        if let Some(directory) = self.directory {
            directory.finish()?;
        }
        Ok(())
    }
}
