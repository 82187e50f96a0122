//! The lanes of an input, for commands that draw.

use std::ops::ControlFlow;
use std::path::PathBuf;

use annals_analysis::{Lanes, OverviewCache, open_overview_file};
use annals_merger::{MergeError, Reader, Window};
use clap::Args;

use super::export::progress;
use crate::table::safe;
use crate::timeline::{FEW_EVENTS, events_in};

/// Where the overview of a trace without one is.
#[derive(Clone, Debug, Default, Args)]
pub(super) struct OverviewArguments {
    /// Keep the overview of a trace without one in this file, and take it from there the next time [default: in the user's cache]
    #[arg(long, value_name = "FILE")]
    pub(super) index: Option<PathBuf>,
}

impl OverviewArguments {
    /// Opens the lanes of what was opened. A trace without an overview gets one, if a picture of the window needs many events.
    ///
    /// # Errors
    /// If the file that was named cannot be read or written.
    pub(super) fn lanes(&self, opened: &Reader, window: Window) -> anyhow::Result<Lanes> {
        let trace = opened.trace().filter(|trace| {
            let is_needed = self.index.is_some() || events_in(opened, window) > FEW_EVENTS;
            is_needed && trace.overview().is_empty() && opened.definitions().slice.is_none()
        });
        let Some(trace) = trace else {
            return Ok(Lanes::open(opened, None));
        };
        let bar = progress(opened.events_before(i64::MAX), false);
        let show = |events| {
            bar.set_position(events);
            ControlFlow::Continue(())
        };
        let overview = match (&self.index, OverviewCache::of_user()) {
            (Some(index), _) => Some(open_overview_file(trace.path(), index, show)?),
            (None, Some(cache)) => cache.open(trace.path(), show).map_err(note).ok(),
            (None, None) => None,
        };
        bar.finish_and_clear();
        Ok(Lanes::open(opened, overview))
    }
}

/// Says why an overview is not kept: the events are read instead.
fn note(error: MergeError) {
    let why = safe(&error.to_string());
    eprintln!("note: {why}; --index names another file, ANNALS_CACHE=off keeps none");
}
