//! Threads raise more events than the recorder has memory for: no thread waits, and events that do not fit are counted.
//!
//! ```text
//! cargo run --release -p annals-recorder --example overload -- DIRECTORY
//! ```

use annals_recorder::{EventTypeSpec, Options, Recorder};

const THREADS: u64 = 4;
const EVENTS: u64 = 50_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = std::env::args_os().nth(1);
    let directory = directory.ok_or("give the directory that the recording goes to")?;
    let mut options = Options::new(directory);
    // As little as there can be.
    options.buffer_bytes = 1;
    let recorder = Recorder::start(&options)?;
    let step = EventTypeSpec::new("step").element("number");
    let step = recorder.add_event_type::<(u64,)>(&step)?;
    let work = recorder.add_region("work")?;
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for number in 0..EVENTS {
                    recorder.enter(work);
                    recorder.raise(&step, (number,));
                    recorder.leave(work);
                }
            });
        }
    });
    let status = recorder.finish();
    println!("{}", status.path.display());
    Ok(())
}
