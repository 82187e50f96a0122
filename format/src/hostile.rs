//! Whatever the bytes: readers give values or errors, and never panic.

use proptest::prelude::*;

use crate::block::{BlockHeader, FileKind, SYNC};
use crate::live::layout as l;
use crate::testing::{
    DEFINITIONS_AT, FileMaker, LiveMaker, PAGES_AT, SEGMENTS_AT, SLOTS_AT, chunk, rows,
    trace_chunk, ty,
};
use crate::{
    BLOCK_HEADER_LEN, BlockKind, Cause, Chunk, ChunkHeader, Definitions, Footer, LiveImage,
    Recording, StreamTotals, Trace, TraceChunk, TraceChunkHeader, TraceLoss,
};

fn recording(has_footer: bool) -> Vec<u8> {
    let mut maker = FileMaker::new(FileKind::Recording);
    maker.chunk(chunk(0, 0, &[0, 1, 0]));
    maker.chunk(chunk(1, 3, &[2]));
    maker.chunk(chunk(3, 6, &[2, 3]));
    maker.totals(&[(0, 2), (1, 1), (2, 4), (3, 1)]);
    if has_footer {
        maker.finish();
    }
    maker.bytes
}

fn trace(has_footer: bool) -> Vec<u8> {
    let mut maker = FileMaker::new(FileKind::Trace);
    let mut lossy = trace_chunk(10, 4);
    let loss = TraceLoss {
        stream: crate::testing::STREAM,
        event_type: Some(ty(1)),
        cause: Cause::Overwritten,
        count: 3,
        is_lower_bound: true,
        from_ns: -4,
        to_ns: 12,
    };
    lossy.losses.push((2, loss));
    maker.trace_chunk(0, &lossy);
    maker.snapshot(1);
    maker.trace_chunk(2, &trace_chunk(40, 2));
    maker.snapshot(3);
    maker.statistics();
    if has_footer {
        maker.finish();
    }
    maker.bytes
}

fn live() -> LiveMaker {
    let mut live = LiveMaker::new();
    live.slot(0, 0, 6);
    live.raised(0, 0, 3);
    live.raised(0, 2, 5);
    live.slot(1, 1, 0);
    live.page(0, (4, 8), 2, &rows(&[2, 2]));
    live.page(2, (5, 10), 3, &rows(&[2, 7, 2]));
    live
}

fn try_recording(file: &[u8], live: Option<&[u8]>) {
    let file = file.to_vec();
    let image = live.map(|live| LiveImage::read(&live.to_vec()));
    let image = image.and_then(Result::ok);
    for is_alive in [false, true] {
        let Ok(recording) = Recording::read(&file, image.clone(), |_| is_alive) else {
            return;
        };
        for contents in recording.streams.values() {
            for stored in &contents.chunks {
                let _ = recording.load(&file, stored);
            }
        }
    }
}

fn try_trace(file: &[u8]) {
    let file = file.to_vec();
    let Ok(trace) = Trace::read(&file) else {
        return;
    };
    for entry in &trace.chunks {
        let _ = trace.load(&file, entry);
    }
    for at in &trace.snapshots {
        assert!(at.before <= trace.chunks.len());
        let _ = trace.load_snapshot(&file, at);
    }
    let _ = trace.load_statistics(&file);
}

/// Makes the checksums of all blocks right again, so that damage gets past them.
fn reseal(file: &mut [u8]) {
    let starts: Vec<usize> = (0..file.len().saturating_sub(BLOCK_HEADER_LEN))
        .filter(|at| file[*at..].starts_with(&SYNC))
        .collect();
    for at in starts {
        let header = crc32fast::hash(&file[at..at + 36]);
        file[at + 36..at + 40].copy_from_slice(&header.to_le_bytes());
        let Ok(header) = BlockHeader::decode(&file[at..]) else {
            continue;
        };
        let head = at + BLOCK_HEADER_LEN;
        let body = head + header.head_len as usize;
        let end = body + header.body_len as usize;
        if end > file.len() {
            continue;
        }
        if header.kind == BlockKind::TraceChunk {
            let (head, body) = file[head..end].split_at_mut(body - head);
            reseal_frames(head, body);
        }
        let (head, body) = (
            crc32fast::hash(&file[head..body]),
            crc32fast::hash(&file[body..end]),
        );
        file[at + 24..at + 28].copy_from_slice(&head.to_le_bytes());
        file[at + 28..at + 32].copy_from_slice(&body.to_le_bytes());
        let header = crc32fast::hash(&file[at..at + 36]);
        file[at + 36..at + 40].copy_from_slice(&header.to_le_bytes());
    }
}

/// Makes the checksums of a trace chunk's frames right again, as far as its head can be read.
fn reseal_frames(head: &mut [u8], body: &[u8]) {
    let Ok(mut header) = TraceChunkHeader::decode(&mut crate::wire::Wire::new(head)) else {
        return;
    };
    let mut start = 0;
    for frame in &mut header.frames {
        let end = start + frame.stored_len as usize;
        frame.crc = body.get(start..end).map_or(0, crc32fast::hash);
        start = end;
    }
    let mut again = Vec::new();
    header.encode(&mut again);
    if again.len() <= head.len() {
        head[..again.len()].copy_from_slice(&again);
    }
}

fn reseal_live(file: &mut [u8]) {
    let header = crc32fast::hash(&file[..l::FIXED_LEN]);
    file[l::FIXED_LEN..l::FIXED_LEN + 4].copy_from_slice(&header.to_le_bytes());
}

/// Changes of bytes: where (taken modulo the length) and to what.
fn changes() -> impl Strategy<Value = Vec<(usize, u8)>> {
    let byte = prop_oneof![Just(0), Just(0x7f), Just(0x80), Just(0xff), any::<u8>()];
    prop::collection::vec((any::<prop::sample::Index>(), byte), 1..6).prop_map(|each| {
        each.into_iter()
            .map(|(at, to)| (at.index(1 << 20), to))
            .collect()
    })
}

fn change(file: &mut [u8], changes: &[(usize, u8)]) {
    let length = file.len();
    changes.iter().for_each(|(at, to)| file[at % length] = *to);
}

#[test]
fn files_cut_anywhere_never_panic() {
    let live = live().bytes;
    for has_footer in [false, true] {
        let (recording, trace) = (recording(has_footer), trace(has_footer));
        for length in 0..recording.len() {
            try_recording(&recording[..length], Some(&live));
        }
        for length in 0..trace.len() {
            try_trace(&trace[..length]);
        }
    }
    for length in (0..live.len()).step_by(97) {
        try_recording(&recording(false), Some(&live[..length]));
    }
}

#[test]
fn every_flipped_byte_is_survived_even_with_right_checksums() {
    let live = live().bytes;
    for has_footer in [false, true] {
        let (recording, trace) = (recording(has_footer), trace(has_footer));
        for flip in [0x01, 0x80, 0xff] {
            for at in 64..recording.len() {
                let mut file = recording.clone();
                file[at] ^= flip;
                try_recording(&file, Some(&live));
                reseal(&mut file);
                try_recording(&file, Some(&live));
            }
            for at in 64..trace.len() {
                let mut file = trace.clone();
                file[at] ^= flip;
                try_trace(&file);
                reseal(&mut file);
                try_trace(&file);
            }
        }
    }
}

#[test]
fn every_flipped_byte_of_a_live_file_is_survived() {
    let (file, live) = (recording(false), live().bytes);
    let used = (0..l::FIXED_LEN)
        .chain(l::DEFINITIONS_LEN..l::HEARTBEAT + 8)
        .chain(SLOTS_AT..SLOTS_AT + 2 * l::SLOT_LEN)
        .chain(SEGMENTS_AT..SEGMENTS_AT + 3 * l::ROW_LEN)
        .chain(DEFINITIONS_AT..DEFINITIONS_AT + 200)
        .chain(PAGES_AT..PAGES_AT + 2 * l::PAGE_HEADER_LEN);
    for at in used {
        for flip in [0x01, 0xff] {
            let mut live = live.clone();
            live[at] ^= flip;
            reseal_live(&mut live);
            try_recording(&file, Some(&live));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn random_changes_never_panic(
        changes in changes(),
        in_live in changes(),
        has_footer: bool,
        is_resealed: bool,
    ) {
        let (mut recording, mut trace) = (recording(has_footer), trace(has_footer));
        let mut live = live().bytes;
        change(&mut recording[64..], &changes);
        change(&mut trace[64..], &changes);
        change(&mut live, &in_live);
        if is_resealed {
            reseal(&mut recording);
            reseal(&mut trace);
            reseal_live(&mut live);
        }
        try_recording(&recording, Some(&live));
        try_trace(&trace);
    }

    #[test]
    fn random_bytes_behind_a_header_never_panic(bytes: Vec<u8>, is_block: bool) {
        for kind in [FileKind::Recording, FileKind::Trace] {
            let mut maker = FileMaker::new(kind);
            if is_block {
                for code in [1, 2, 4, 5, 9] {
                    maker.block(BlockKind::from_code(code), &bytes, &bytes);
                }
            } else {
                maker.bytes.extend_from_slice(&bytes);
            }
            try_recording(&maker.bytes, None);
            try_trace(&maker.bytes);
        }
        try_recording(&bytes, Some(&bytes));
        try_trace(&bytes);
    }

    #[test]
    fn random_bodies_never_panic(bytes: Vec<u8>, count in 0..200_u64) {
        let header = ChunkHeader { event_count: count, ..chunk(0, 0, &[]).0 };
        let _ = Chunk::decode(&header, &bytes);
        let header = TraceChunkHeader { event_count: count, ..TraceChunkHeader::default() };
        let _ = TraceChunk::decode(&header, &bytes);
        let _ = Footer::decode(&bytes);
        let _ = Definitions::default().add_all(&bytes);
        let _ = StreamTotals::decode(&mut crate::wire::Wire::new(&bytes));
        let schema = crate::testing::definitions().schema();
        let _ = crate::ChunkBuilder::new(u64::MAX).push_rows(&schema, 0, &bytes);
    }
}
