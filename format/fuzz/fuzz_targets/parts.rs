//! Every decoder of a part of a file, on any bytes: no checksum stands before them.
//!
//!     cargo +nightly fuzz run parts -- -max_total_time=3600

#![no_main]

use annals_format::wire::Wire;
use annals_format::{
    BlockHeader, Chunk, ChunkHeader, Column, Definitions, ElementType, Footer, LiveHeader,
    RegionStatistics, Snapshot, SnapshotHeader, StreamTotals, TraceChunk, TraceChunkHeader,
    read_ints,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((which, bytes)) = bytes.split_first() else {
        return;
    };
    match which % 10 {
        0 => {
            let mut definitions = Definitions::default();
            let _ = definitions.add_all(bytes);
            let mut again = Vec::new();
            definitions.encode(&mut again);
            let mut read = Definitions::default();
            assert!(read.add_all(&again).is_ok(), "what is written is read");
        }
        1 => {
            let mut wire = Wire::new(bytes);
            if let Ok(header) = ChunkHeader::decode(&mut wire) {
                let _ = Chunk::decode(&header, &bytes[wire.position()..]);
            }
        }
        2 => {
            let mut wire = Wire::new(bytes);
            if let Ok(header) = TraceChunkHeader::decode(&mut wire) {
                let _ = TraceChunk::decode(&header, &bytes[wire.position()..]);
            }
        }
        3 => drop(Footer::decode(bytes)),
        4 => {
            let mut wire = Wire::new(bytes);
            if let Ok(header) = SnapshotHeader::decode(&mut wire) {
                let _ = Snapshot::decode(&header, &bytes[wire.position()..]);
            }
        }
        5 => drop(StreamTotals::decode(&mut Wire::new(bytes))),
        6 => drop(LiveHeader::decode(bytes, 1 << 20)),
        7 => drop(BlockHeader::decode(bytes)),
        8 => {
            if let Some((head, body)) = bytes.split_first() {
                let _ = RegionStatistics::decode(&[*head], body);
            }
        }
        _ => {
            let Some(([element_type, count @ ..], rest)) = bytes.split_first_chunk::<3>() else {
                return;
            };
            let count = usize::from(u16::from_le_bytes(*count));
            let _ = read_ints(&mut Wire::new(rest), count);
            if let Some(element_type) = ElementType::from_code(*element_type) {
                let _ = Column::read(&mut Wire::new(rest), element_type, count);
            }
        }
    }
});
