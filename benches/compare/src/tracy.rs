//! Tracy's client as a contestant. A zone is entered and left; elements are the zone's values
//! (Tracy has no other numbers), metrics are plots, texts are messages. Without a profiler its memory
//! would grow without bound, so [`drain`] replaces one: it performs the handshake of Tracy's protocol over the loopback
//! address, then reads and discards everything.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tracy_client::{Client, PlotName, Span, SpanLocation, plot_name, span_location};

use crate::contestant::{Check, Contestant, Lane};

/// The variable with the port on which Tracy's client listens.
pub(crate) const PORT: &str = "TRACY_PORT";

/// The protocol of the client that `Cargo.lock` names.
const PROTOCOL: u32 = 82;
const WELCOME: u8 = 1;

macro_rules! locations {
    ($($number:literal)*) => {
        [$(span_location!(concat!("region ", $number))),*]
    };
}

/// Tracy's client, and the replacement for its profiler.
pub(crate) struct Tracy {
    client: Client,
    locations: [&'static SpanLocation; 64],
    points: [PlotName; 4],
    load: PlotName,
    received_bytes: Arc<AtomicU64>,
    raised: u64,
}

impl Tracy {
    /// Starts the client and drains it.
    ///
    /// # Errors
    /// If the client cannot be reached or speaks another protocol.
    pub(crate) fn start() -> Result<Self, String> {
        let port = std::env::var(PORT).ok().and_then(|text| text.parse().ok());
        let port = port.ok_or_else(|| format!("{PORT} is not set"))?;
        let client = Client::start();
        let received_bytes = Arc::new(AtomicU64::new(0));
        drain(port, Arc::clone(&received_bytes))?;
        Ok(Self {
            client,
            locations: locations!(
                0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31
                32 33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60
                61 62 63
            ),
            points: [
                plot_name!("point 0"),
                plot_name!("point 1"),
                plot_name!("point 2"),
                plot_name!("point 3"),
            ],
            load: plot_name!("metric"),
            received_bytes,
            raised: 0,
        })
    }
}

/// Connects to the client, and reads what it sends in a separate thread.
fn drain(port: u16, received_bytes: Arc<AtomicU64>) -> Result<(), String> {
    let deadline = Instant::now() + Duration::from_secs(5);
    let mut stream = loop {
        match TcpStream::connect((Ipv4Addr::LOCALHOST, port)) {
            Ok(stream) => break stream,
            Err(error) if Instant::now() > deadline => {
                return Err(format!("Tracy's client does not answer: {error}"));
            }
            Err(_) => std::thread::sleep(Duration::from_millis(10)),
        }
    };
    let mut status = [0];
    let hello = stream
        .write_all(b"TracyPrf")
        .and_then(|()| stream.write_all(&PROTOCOL.to_le_bytes()))
        .and_then(|()| stream.read_exact(&mut status));
    hello.map_err(|error| format!("Tracy's client hung up: {error}"))?;
    if status[0] != WELCOME {
        return Err(format!(
            "Tracy's client does not speak protocol {PROTOCOL} (status {})",
            status[0]
        ));
    }
    std::thread::spawn(move || {
        let mut bytes = vec![0; 256 << 10];
        while let Ok(count @ 1..) = stream.read(&mut bytes) {
            received_bytes.fetch_add(count as u64, Ordering::Relaxed);
        }
    });
    Ok(())
}

impl Contestant for Tracy {
    type Lane = TracyLane;

    fn lane(&self, _: usize) -> TracyLane {
        TracyLane {
            client: self.client.clone(),
            locations: self.locations,
            points: self.points,
            load: self.load,
        }
    }

    fn settle(&mut self, raised: u64) -> Result<(), String> {
        self.raised += raised;
        Ok(())
    }

    fn finish(&mut self) -> Result<Check, String> {
        let bytes = self.received_bytes.load(Ordering::Relaxed);
        if bytes == 0 {
            return Err("Tracy's client sent nothing".to_owned());
        }
        Ok(Check {
            raised: self.raised,
            how: format!("not checked: there is no reader; the client sent {bytes} bytes"),
            ..Check::default()
        })
    }
}

/// One thread that records.
pub(crate) struct TracyLane {
    client: Client,
    locations: [&'static SpanLocation; 64],
    points: [PlotName; 4],
    load: PlotName,
}

impl Lane for TracyLane {
    type Open = Span;

    #[inline(never)]
    fn enter(&mut self, region: u32) -> Span {
        let location = self.locations[region as usize];
        self.client.clone().span(location, 0)
    }

    #[inline(never)]
    fn leave(&mut self, _: u32, open: Span) {
        drop(open);
    }

    #[inline(never)]
    fn three(&mut self, a: u32, b: u32, c: u64) {
        let zone = self.client.clone().span(self.locations[0], 0);
        zone.emit_value(a.into());
        zone.emit_value(b.into());
        zone.emit_value(c);
    }

    #[inline(never)]
    fn send(&mut self, receiver: u32, comm: u32, tag: u32, length: u64, request: u64, kind: u32) {
        let zone = self.client.clone().span(self.locations[1], 0);
        zone.emit_value(receiver.into());
        zone.emit_value(comm.into());
        zone.emit_value(tag.into());
        zone.emit_value(length);
        zone.emit_value(request);
        zone.emit_value(kind.into());
    }

    #[inline(never)]
    fn point(&mut self, kind: u32, value: u32) {
        self.client.plot(self.points[kind as usize], value.into());
    }

    #[inline(never)]
    fn metric(&mut self, value: i64) {
        self.client.plot(self.load, value as f64);
    }

    #[inline(never)]
    fn note(&mut self) {
        self.client.message("state changed", 0);
    }
}
