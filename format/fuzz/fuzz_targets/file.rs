//! Whole files: made of any blocks with checksums that are right, then read, loaded, and recovered.
//!
//!     cargo +nightly fuzz run file -- -max_total_time=3600

#![no_main]

use annals_format::{
    BlockKind, BlockWriter, CompressionLevel, FileHeader, FileKind, LiveImage, Recording,
    RecordingId, Trace, encode_tail,
};
use libfuzzer_sys::fuzz_target;

/// Takes so many bytes off, or what is left.
fn take<'a>(bytes: &mut &'a [u8], count: usize) -> &'a [u8] {
    let (first, rest) = bytes.split_at(count.min(bytes.len()));
    *bytes = rest;
    first
}

fn number(bytes: &mut &[u8]) -> usize {
    let mut number = [0; 2];
    let taken = take(bytes, 2);
    number[..taken.len()].copy_from_slice(taken);
    usize::from(u16::from_le_bytes(number))
}

fn read(file: &Vec<u8>, live: Option<LiveImage>, kind: FileKind) {
    if kind == FileKind::Trace {
        let Ok(trace) = Trace::read(file) else { return };
        for entry in &trace.chunks {
            let _ = trace.load(file, entry);
        }
        for snapshot in &trace.snapshots {
            let _ = trace.load_snapshot(file, snapshot);
        }
        let _ = trace.load_statistics(file);
        return;
    }
    let Ok(recording) = Recording::read(file, live, |_| false) else {
        return;
    };
    for chunk in recording.streams.values().flat_map(|stream| &stream.chunks) {
        let _ = recording.load(file, chunk);
    }
    if let Ok(Some(recovered)) = recording.recover(file, CompressionLevel::None) {
        assert!(
            !recovered.bytes.is_empty(),
            "a recovered recording has bytes"
        );
    }
}

fuzz_target!(|bytes: &[u8]| {
    let mut left = bytes;
    let flags = take(&mut left, 1).first().copied().unwrap_or(0);
    let kind = if flags & 1 == 0 {
        FileKind::Recording
    } else {
        FileKind::Trace
    };
    let mut file = FileHeader::new(kind, RecordingId([7; 16]))
        .encode()
        .to_vec();
    let mut writer = BlockWriter::new(CompressionLevel::None).expect("no compression");
    let mut footer = 0;
    let live = take(&mut left, if flags & 4 == 0 { 0 } else { 4096 }).to_vec();
    while !left.is_empty() {
        let kind = BlockKind::from_code(left[0]);
        left = &left[1..];
        let (head, body) = (number(&mut left), number(&mut left));
        let (head, body) = (take(&mut left, head), take(&mut left, body));
        if kind == BlockKind::Footer {
            footer = file.len() as u64;
        }
        writer.write(kind, head, body, &mut file);
    }
    if flags & 2 != 0 {
        file.extend_from_slice(&encode_tail(footer));
    }
    let live = LiveImage::read(&live).ok();
    read(&file, live, kind);
    // As it came, too.
    for kind in [FileKind::Recording, FileKind::Trace] {
        read(&bytes.to_vec(), None, kind);
    }
});
