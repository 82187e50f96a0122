//! Writes the run in the Common Trace Format, in the layout of LTTng-UST on this kind of machine: compact event headers
//! of five bits of id and 27 of time, packets of 256 KiB, a file a stream.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use annals_test_support::synthetic::{self, Happening, Program};

const PACKET_BYTES: usize = 256 << 10;
/// Magic, uuid, stream id; then two times, two sizes, the discarded events and the processor.
const HEAD_BYTES: usize = 4 + 16 + 4 + 5 * 8 + 4;
/// Most bytes of an event.
const EVENT_BYTES: usize = 4 + 4 * 8;
const UUID: [u8; 16] = [0x5a; 16];

/// Writes the metadata of the trace.
///
/// # Errors
/// If it cannot be written.
pub(crate) fn write_metadata(directory: &Path) -> std::io::Result<()> {
    let uuid = "5a5a5a5a-5a5a-5a5a-5a5a-5a5a5a5a5a5a";
    let mut text = format!(
        "/* CTF 1.8 */
typealias integer {{ size = 8; align = 8; signed = false; }} := uint8_t;
typealias integer {{ size = 32; align = 8; signed = false; }} := uint32_t;
typealias integer {{ size = 64; align = 8; signed = false; }} := uint64_t;
typealias integer {{ size = 5; align = 1; signed = false; }} := uint5_t;
trace {{ major = 1; minor = 8; uuid = \"{uuid}\"; byte_order = le;
  packet.header := struct {{ uint32_t magic; uint8_t uuid[16]; uint32_t stream_id; }}; }};
clock {{ name = \"tsc\"; freq = {}; offset = 0; }};
typealias integer {{ size = 27; align = 1; signed = false; map = clock.tsc.value; }} := uint27_clock_t;
typealias integer {{ size = 64; align = 8; signed = false; map = clock.tsc.value; }} := uint64_clock_t;
stream {{ id = 0;
  event.header := struct {{ enum : uint5_t {{ compact = 0 ... 30, extended = 31 }} id;
    variant <id> {{ struct {{ uint27_clock_t timestamp; }} compact;
      struct {{ uint32_t id; uint64_clock_t timestamp; }} extended; }} v; }} align(8);
  packet.context := struct {{ uint64_clock_t timestamp_begin; uint64_clock_t timestamp_end;
    uint64_t content_size; uint64_t packet_size; uint64_t events_discarded; uint32_t cpu_id; }}; }};
",
        synthetic::TICKS_PER_SECOND
    );
    let message = ["communicator", "peer", "tag", "bytes"].as_slice();
    let points = ["point_a", "point_b", "point_c", "point_d"];
    let mut types = vec![
        ("enter", ["region"].as_slice()),
        ("leave", &["region"]),
        ("send", message),
        ("receive", message),
    ];
    types.extend(points.map(|name| (name, ["value"].as_slice())));
    for (id, (name, fields)) in types.into_iter().enumerate() {
        let fields = fields.iter().map(|field| format!("uint64_t {field}; "));
        let fields: String = fields.collect();
        text += &format!(
            "event {{ name = \"{name}\"; id = {id}; stream_id = 0; fields := struct {{ {fields}}}; }};\n"
        );
    }
    std::fs::write(directory.join("metadata"), text)
}

/// Writes the stream of one rank.
///
/// # Errors
/// If it cannot be written.
pub(crate) fn write_stream(
    directory: &Path,
    rank: u32,
    ranks: u32,
    events: u64,
) -> std::io::Result<()> {
    let mut program = Program::new(rank.into(), ranks.into());
    let mut file = BufWriter::new(File::create(directory.join(format!("stream_{rank}")))?);
    let mut tick = synthetic::first_tick(rank);
    let mut packet: Vec<u8> = Vec::with_capacity(PACKET_BYTES);
    let mut begin = tick;
    let mut left = events;
    while left != 0 {
        packet.clear();
        packet.resize(HEAD_BYTES, 0);
        while left != 0 && packet.len() + EVENT_BYTES <= PACKET_BYTES {
            let (step, what) = program.next_event();
            tick += step;
            left -= 1;
            let (id, values, count) = match what {
                Happening::Region(true, region) => (0, [region, 0, 0, 0], 1),
                Happening::Region(false, region) => (1, [region, 0, 0, 0], 1),
                Happening::Message(true, values) => (2, values, 4),
                Happening::Message(false, values) => (3, values, 4),
                Happening::Point(which, value) => (4 + which as u32, [value, 0, 0, 0], 1),
                Happening::Mpi(..) => unreachable!("events at random have none"),
            };
            let header = id | (tick as u32) << 5;
            packet.extend_from_slice(&header.to_le_bytes());
            for value in &values[..count] {
                packet.extend_from_slice(&value.to_le_bytes());
            }
        }
        let content_bits = packet.len() as u64 * 8;
        let mut head = Vec::with_capacity(HEAD_BYTES);
        head.extend_from_slice(&0xc1fc_1fc1_u32.to_le_bytes());
        head.extend_from_slice(&UUID);
        head.extend_from_slice(&0_u32.to_le_bytes());
        for value in [begin, tick, content_bits, PACKET_BYTES as u64 * 8, 0] {
            head.extend_from_slice(&value.to_le_bytes());
        }
        head.extend_from_slice(&rank.to_le_bytes());
        packet[..HEAD_BYTES].copy_from_slice(&head);
        packet.resize(PACKET_BYTES, 0);
        file.write_all(&packet)?;
        begin = tick;
    }
    file.flush()
}
