//! Recordings of programs that measure something.

use std::path::Path;

use annals_format::{
    BootId, ClockKind, ClockSpec, CompressionLevel, ElementSpec, ElementType, LocationKind,
    ProcessSpec, RecordingBuilder, RecordingId, Role, SourceOrder, Value,
};

/// A value of a metric: the ns since the one before, and the number. Those without a fraction are also values of an integer metric.
pub type Measured = (i64, f64);

/// Writes the recording of a rank with two threads, of which each has half of the values.
///
/// # Panics
/// If it cannot be written.
pub fn write(directory: &Path, rank: u32, values: &[Measured]) {
    const START_NS: u64 = 1_000_000;
    let process = ProcessSpec {
        recording_id: RecordingId([rank as u8 + 1; 16]),
        run: "metrics",
        host: "host",
        boot_id: BootId([7; 16]),
        pid: 100 + rank,
        start_unix_ns: 1_700_000_000_000_000_000,
        start_reference_ns: START_NS as i64,
        command: "metrics",
    };
    let level = CompressionLevel::None;
    let mut builder = RecordingBuilder::new(&process, level).expect("a compressor");
    builder.rank(rank, Some(2));
    let spec = ClockSpec {
        kind: ClockKind::Reference,
        ticks_per_second: 1_000_000_000,
        rate_error_ppb: 0,
        max_ticks: u64::MAX,
    };
    let clock = builder.clock("clock", &spec);
    let source = builder.source("program", SourceOrder::Ordered, clock);
    let element = |element_type| [ElementSpec::new("value", element_type)];
    let float = builder.event_type("float", Role::Metric, &element(ElementType::F64));
    let integer = builder.event_type("integer", Role::Metric, &element(ElementType::I64));
    let streams = [0, 1].map(|thread| {
        let name = format!("thread {thread}");
        let location = builder.location(&name, LocationKind::Thread, thread);
        builder.stream(source, location, START_NS)
    });
    for (number, stream) in streams.into_iter().enumerate() {
        let mut at_ns = START_NS;
        let mut chunk = builder.chunk(stream, START_NS as i64);
        for (pause_ns, value) in values.iter().skip(number).step_by(2) {
            at_ns += *pause_ns as u64;
            chunk.event(float, at_ns, &[Value::F64(*value)]);
            if value.fract() == 0.0 {
                chunk.event(integer, at_ns, &[Value::I64(*value as i64)]);
            }
        }
        chunk.finish(at_ns as i64).expect("rows of defined types");
    }
    let path = directory.join(format!("metrics-host-{rank}.annals"));
    std::fs::write(path, builder.finish()).expect("a recording");
}
