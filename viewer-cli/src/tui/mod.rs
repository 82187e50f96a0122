//! The interactive viewer: a timeline to walk in.
//!
//! `App` is what the keys change and the screen shows; it asks for what it lacks. `ReaderThread` reads that in a
//! separate thread, so that keys are answered immediately however big a trace is. `screen` draws.

mod app;
mod details;
mod reader;
mod screen;
mod search;
mod view;

use std::time::Duration;

use annals_analysis::Lanes;
use annals_merger::{Query, Reader};
use anyhow::Context;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEventKind};

use crate::filter::FilterArguments;
use app::App;
use reader::ReaderThread;

/// How long a look for keys takes, at most: what was read meanwhile is drawn then.
const TICK: Duration = Duration::from_millis(50);

/// The input of the viewer.
#[derive(Debug)]
pub struct Shown {
    /// The trace.
    pub opened: Reader,
    /// Its lanes.
    pub lanes: Lanes,
    /// Its name.
    pub title: String,
    /// Whose events.
    pub filter: Query,
    /// The arguments from which `filter` was made.
    pub arguments: FilterArguments,
    /// When, at first.
    pub window: annals_merger::Window,
    /// Maximum number of events of a view whose calls are counted.
    pub most_events: u64,
}

/// Shows a trace until the user quits.
///
/// # Errors
/// If the terminal cannot be used or the trace's losses not be read.
pub fn run(shown: Shown) -> anyhow::Result<()> {
    let mut app = App::new(&shown)?;
    let reader = ReaderThread::start(shown)?;
    let mut terminal = ratatui::try_init().context("the terminal cannot be used")?;
    let outcome = run_in(&mut terminal, &mut app, &reader);
    ratatui::restore();
    outcome
}

fn run_in(
    terminal: &mut DefaultTerminal,
    app: &mut App,
    reader: &ReaderThread,
) -> anyhow::Result<()> {
    loop {
        let size = terminal.size()?;
        app.resize(size.width.into(), size.height.into());
        while let Some(reply) = reader.reply()? {
            app.take(reply);
        }
        if let Some(request) = app.next_request() {
            reader.ask(request)?;
        }
        terminal.draw(|frame| screen::draw(app, frame))?;
        if !event::poll(TICK)? {
            continue;
        }
        // Handles all pending events, so that a repeated key does not lag.
        loop {
            if let Event::Key(key) = event::read()?
                && key.kind != KeyEventKind::Release
                && app.press(key)
            {
                return Ok(());
            }
            if !event::poll(Duration::ZERO)? {
                break;
            }
        }
    }
}
