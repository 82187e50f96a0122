//! Merges recordings into one trace:
//! `cargo run -p annals-merger --example merge -- run.annals annals-run`

use std::path::PathBuf;

use annals_merger::{CompressionLevel, WriteOptions, plan_merge, write_trace};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let output = arguments.next().ok_or("usage: merge OUTPUT INPUT...")?;
    let inputs: Vec<PathBuf> = arguments.collect();
    let (merge, rejected) = plan_merge(&inputs, Some(&output))?;
    for input in rejected {
        eprintln!("left out: {}: {}", input.path.display(), input.why);
    }
    let options = WriteOptions {
        compression: CompressionLevel::default(),
        jobs: 2,
    };
    let (merged, bytes) = write_trace(&merge, &output, options, |_| {})?;
    println!("{} events, {bytes} bytes", merged.report.totals.present());
    Ok(())
}
