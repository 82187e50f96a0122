//! Annals as a contestant, through its public interface.

use std::path::Path;
use std::sync::Arc;

use annals_merger::{Reader, Sums};
use annals_recorder::{
    Compression, EventType, EventTypeSpec, Metric, Options, Recorder, RegionId, Status, Text,
};

use crate::contestant::{Check, Contestant, Lane, MessageLane};
use crate::workload::REGIONS;

/// A started recorder and its definitions.
#[derive(Debug)]
pub(crate) struct Program {
    recorder: Recorder,
    three: EventType<(u32, u32, u64)>,
    send: EventType<(u32, u32, u32, u64, u64, u32)>,
    points: Vec<EventType<(u32,)>>,
    metric: Metric<i64>,
    note: EventType<(Text,)>,
    sent: EventType<(u32, u32, u32, u64)>,
    received: EventType<(u32, u32, u32, u64)>,
    collective_begin: EventType<()>,
    collective_end: EventType<(u32, u32, u32, u64, u64)>,
    load: Metric<f64>,
}

impl Program {
    /// Starts a recorder with its defaults but for the compression.
    ///
    /// # Errors
    /// Those of the recorder.
    pub(crate) fn start(directory: &Path, compression: Compression) -> Result<Self, String> {
        Self::try_start(directory, compression).map_err(|error| error.to_string())
    }

    fn try_start(directory: &Path, compression: Compression) -> annals_recorder::Result<Self> {
        let mut options = Options::new(directory);
        options.rank = Some(0);
        options.compression = compression;
        let recorder = Recorder::start(&options)?;
        for number in 0..REGIONS {
            let region = recorder.add_region(&format!("region {number}"))?;
            // The lanes make ids of numbers instead of looking them up.
            assert_eq!(
                region,
                RegionId::new(number),
                "regions are numbered in order"
            );
        }
        let points = (0..4).map(|number| {
            let spec = EventTypeSpec::new(format!("point {number}")).element("value");
            recorder.add_event_type(&spec)
        });
        let message = |name: &str, peer: &str| {
            EventTypeSpec::new(name)
                .element(peer)
                .element("communicator")
                .element("tag")
                .element_in("length", "bytes")
        };
        let three = EventTypeSpec::new("three")
            .element("a")
            .element("b")
            .element("c");
        let send = message("send", "receiver")
            .element("request")
            .element("datatype");
        let collective_end = EventTypeSpec::new("collective end")
            .element("operation")
            .element("communicator")
            .element("root")
            .element_in("sent", "bytes")
            .element_in("received", "bytes");
        Ok(Self {
            points: points.collect::<annals_recorder::Result<_>>()?,
            three: recorder.add_event_type(&three)?,
            send: recorder.add_event_type(&send)?,
            metric: recorder.add_metric("metric", "")?,
            note: recorder.add_event_type(&EventTypeSpec::new("note").element("text"))?,
            sent: recorder.add_event_type(&message("sent", "receiver"))?,
            received: recorder.add_event_type(&message("received", "sender"))?,
            collective_begin: recorder.add_event_type(&EventTypeSpec::new("collective begin"))?,
            collective_end: recorder.add_event_type(&collective_end)?,
            load: recorder.add_metric("load", "")?,
            recorder,
        })
    }

    /// Finishes the recording.
    pub(crate) fn finish(&self) -> Status {
        self.recorder.finish()
    }
}

/// Reads a recording back: as many events as were raised must be in it, or counted as dropped.
///
/// # Errors
/// If it cannot be read, or the counts do not add up.
pub(crate) fn check(status: &Status, raised: u64) -> Result<Check, String> {
    let outcome = Reader::open(&status.path).and_then(|opened| opened.summary());
    let outcome = outcome.map_err(|error| error.to_string())?;
    let sums = Sums::of(&outcome.totals);
    if sums.raised != raised || sums.present() + sums.dropped != raised {
        return Err(format!(
            "{raised} events were raised, {} counted, {} read, {} dropped",
            sums.raised,
            sums.present(),
            sums.dropped
        ));
    }
    Ok(Check {
        raised,
        read: Some(sums.present()),
        lost: sums.dropped,
        how: "annals-merger: every event raised is read or counted as dropped".to_owned(),
    })
}

/// The recorder with its defaults.
#[derive(Debug)]
pub(crate) struct Annals {
    program: Arc<Program>,
    raised: u64,
}

impl Annals {
    /// Starts the recorder. Its threads may run on any processor that the caller may use.
    ///
    /// # Errors
    /// Those of the recorder.
    pub(crate) fn start(directory: &Path) -> Result<Self, String> {
        Ok(Self {
            program: Arc::new(Program::start(directory, Compression::default())?),
            raised: 0,
        })
    }
}

impl Contestant for Annals {
    type Lane = AnnalsLane;

    fn lane(&self, _: usize) -> AnnalsLane {
        AnnalsLane::new(Arc::clone(&self.program))
    }

    fn settle(&mut self, raised: u64) -> Result<(), String> {
        self.raised += raised;
        Ok(())
    }

    fn finish(&mut self) -> Result<Check, String> {
        check(&self.program.finish(), self.raised)
    }
}

/// One thread that records.
#[derive(Debug)]
pub(crate) struct AnnalsLane {
    program: Arc<Program>,
}

impl AnnalsLane {
    /// Creates a lane of this program.
    pub(crate) const fn new(program: Arc<Program>) -> Self {
        Self { program }
    }
}

impl Lane for AnnalsLane {
    type Open = ();

    #[inline(never)]
    fn enter(&mut self, region: u32) {
        let program = &*self.program;
        program.recorder.enter(RegionId::new(region));
    }

    #[inline(never)]
    fn leave(&mut self, region: u32, (): ()) {
        let program = &*self.program;
        program.recorder.leave(RegionId::new(region));
    }

    #[inline(never)]
    fn three(&mut self, a: u32, b: u32, c: u64) {
        let program = &*self.program;
        program.recorder.raise(&program.three, (a, b, c));
    }

    #[inline(never)]
    fn send(&mut self, receiver: u32, comm: u32, tag: u32, length: u64, request: u64, kind: u32) {
        let program = &*self.program;
        let values = (receiver, comm, tag, length, request, kind);
        program.recorder.raise(&program.send, values);
    }

    #[inline(never)]
    fn point(&mut self, kind: u32, value: u32) {
        let program = &*self.program;
        let point = &program.points[kind as usize];
        program.recorder.raise(point, (value,));
    }

    #[inline(never)]
    fn metric(&mut self, value: i64) {
        let program = &*self.program;
        program.recorder.metric(&program.metric, value);
    }

    #[inline(never)]
    fn note(&mut self) {
        let program = &*self.program;
        program.recorder.raise(&program.note, (b"state changed",));
    }
}

impl MessageLane for AnnalsLane {
    #[inline(never)]
    fn sent(&mut self, receiver: u32, communicator: u32, tag: u32, length: u64) {
        let program = &*self.program;
        let values = (receiver, communicator, tag, length);
        program.recorder.raise(&program.sent, values);
    }

    #[inline(never)]
    fn received(&mut self, sender: u32, communicator: u32, tag: u32, length: u64) {
        let program = &*self.program;
        let values = (sender, communicator, tag, length);
        program.recorder.raise(&program.received, values);
    }

    #[inline(never)]
    fn collective_begin(&mut self) {
        let program = &*self.program;
        program.recorder.point(&program.collective_begin);
    }

    #[inline(never)]
    fn collective_end(&mut self, operation: u8, communicator: u32, root: u32, sent: u64, got: u64) {
        let program = &*self.program;
        let values = (operation.into(), communicator, root, sent, got);
        program.recorder.raise(&program.collective_end, values);
    }

    #[inline(never)]
    fn load(&mut self, value: f64) {
        let program = &*self.program;
        program.recorder.metric(&program.load, value);
    }
}
