//! Merges recordings into one trace:
//! `cargo run -p annals-merger --example merge -- run.annals annals-run`

use std::path::PathBuf;

use annals_merger::{MergeOptions, no_progress};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let output = arguments.next().ok_or("usage: merge OUTPUT INPUT...")?;
    let inputs: Vec<PathBuf> = arguments.collect();
    let mut options = MergeOptions::new();
    options.output = Some(output.clone());
    let plan = options.plan(&inputs)?;
    for input in plan.rejected() {
        eprintln!("left out: {}: {}", input.path.display(), input.why);
    }
    let merged = plan.write_trace(&output, no_progress)?;
    println!(
        "{} events, {} bytes",
        merged.report.totals.present(),
        merged.bytes
    );
    Ok(())
}
