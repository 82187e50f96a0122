//! Prints the five longest calls of a region:
//! `cargo run -p annals-merger --example longest_calls -- run.annals 'MPI_*'`

use std::ops::ControlFlow;

use annals_merger::{Query, Reader, regions_like};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(path), Some(region)) = (arguments.next(), arguments.next()) else {
        return Err("usage: longest_calls TRACE REGION".into());
    };
    let reader = Reader::open(path)?;
    let mut query = Query::new();
    query.set_regions(regions_like(&region.parse()?, reader.definitions())?);
    let mut calls = Vec::new();
    reader.for_each_call(&query, |call| {
        let location = call.location_name().unwrap_or("?");
        calls.push((
            call.duration(),
            call.begin,
            call.rank(),
            location,
            call.name(),
        ));
        ControlFlow::Continue(())
    })?;
    calls.sort_by(|a, b| b.cmp(a));
    for (duration, begin, rank, location, name) in calls.into_iter().take(5) {
        println!("{name}: {duration} ns from {begin} ns, rank {rank}, {location}");
    }
    Ok(())
}
