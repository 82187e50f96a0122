//! A flame graph (SVG) of the folded stacks; losses are shown below its title.

use annals_merger::{Frame, Sums};
use inferno::flamegraph::{Options, from_lines};

use crate::write::exporter::{Ending, Exporter, Wants};
use crate::write::folded::Paths;
use crate::write::output::Output;

/// A flame graph under construction.
pub(crate) struct Flamegraph<'a> {
    pub(crate) paths: Paths<'a>,
    pub(crate) out: Output,
}

impl Exporter for Flamegraph<'_> {
    fn wants(&self) -> Wants {
        Wants {
            time: true,
            ..Wants::default()
        }
    }

    fn spend(&mut self, location: usize, frames: &[Frame], ns: i64) {
        self.paths.spend(location, frames, ns);
    }

    fn finish(mut self: Box<Self>, ending: &Ending<'_>) -> anyhow::Result<()> {
        let lines = self.paths.lines();
        let mut options = Options::default();
        options.title = "time by call path".to_owned();
        options.count_name = "ns".to_owned();
        options.deterministic = true;
        let sums = Sums::of(&ending.outcome.totals);
        let lost = sums
            .dropped
            .saturating_add(sums.skipped)
            .saturating_add(sums.truncated);
        if lost != 0 || !ending.outcome.complete {
            options.subtitle = Some(format!(
                "~ {lost} of {} events are lost: times may be off",
                sums.raised
            ));
        }
        let mut picture = Vec::new();
        if lines.is_empty() {
            // The library takes no calls for an error.
            let mut svg = crate::svg::Svg::new(600.0, 60.0);
            let text = "no time passed in a region";
            svg.text(20.0, 35.0, 14.0, crate::svg::Anchor::Start, text);
            picture = svg.finish().into_bytes();
        } else {
            from_lines(&mut options, lines.iter().map(String::as_str), &mut picture)?;
        }
        self.out.put(&picture)?;
        self.out.finish()
    }
}
