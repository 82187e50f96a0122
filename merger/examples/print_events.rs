//! Prints the events of a trace, a recording or a directory of recordings:
//! `cargo run -p annals-merger --example print_events -- run.annals`

use std::ops::ControlFlow;

use annals_merger::{Item, Query, Reader};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args_os().nth(1);
    let reader = Reader::open(path.ok_or("usage: print_events TRACE")?)?;
    reader.for_each_item(&Query::new(), |item| {
        match item {
            Item::Event(event) => {
                let location = event.location().unwrap_or("-");
                print!(
                    "{} ns, rank {}, {location}: {}",
                    event.time(),
                    event.rank(),
                    event.name()
                );
                event
                    .values()
                    .for_each(|(name, value)| print!(" {name}={value}"));
                println!();
            }
            Item::Loss(loss) => println!("{} events lost: {}", loss.count, loss.cause.name()),
        }
        ControlFlow::Continue(())
    })?;
    Ok(())
}
