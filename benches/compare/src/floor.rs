//! The floor: the clock read and as many bytes stored as Annals' rows take, into memory that is used
//! again and again, published by a release store. No recorder that stamps events can be cheaper.

use std::sync::atomic::{AtomicU64, Ordering};

use annals_recorder::tsc;

use crate::contestant::{Check, Contestant, Lane};

/// Bytes of the recycled memory: one buffer page of Annals.
const BYTES: usize = 64 << 10;

/// Stamps and stores, and nothing more.
#[derive(Debug)]
pub(crate) struct Floor;

/// One thread's memory.
#[derive(Debug)]
pub(crate) struct FloorLane {
    memory: Box<[u8]>,
    at: usize,
    commit: AtomicU64,
}

impl FloorLane {
    #[inline(always)]
    fn store<const N: usize>(&mut self, value: u64) {
        let tick = tsc();
        if self.at + N > BYTES {
            self.at = 0;
        }
        let mut row = [0; N];
        let word = (tick ^ value).to_le_bytes();
        for (number, byte) in row.iter_mut().enumerate() {
            *byte = word[number % 8];
        }
        self.memory[self.at..self.at + N].copy_from_slice(&row);
        self.at += N;
        self.commit.store(self.at as u64, Ordering::Release);
    }
}

impl Contestant for Floor {
    type Lane = FloorLane;

    fn lane(&self, _: usize) -> FloorLane {
        FloorLane {
            memory: vec![1; BYTES].into(),
            at: 0,
            commit: AtomicU64::new(0),
        }
    }

    fn settle(&mut self, _: u64) -> Result<(), String> {
        Ok(())
    }

    fn finish(&mut self) -> Result<Check, String> {
        Ok(Check {
            how: "not checked: it is no recorder".to_owned(),
            ..Check::default()
        })
    }
}

impl Lane for FloorLane {
    type Open = ();

    #[inline(never)]
    fn enter(&mut self, region: u32) {
        self.store::<4>(region.into());
    }

    #[inline(never)]
    fn leave(&mut self, region: u32, (): ()) {
        self.store::<4>(region.into());
    }

    #[inline(never)]
    fn three(&mut self, a: u32, b: u32, c: u64) {
        self.store::<8>(u64::from(a ^ b) ^ c);
    }

    #[inline(never)]
    fn send(&mut self, receiver: u32, comm: u32, tag: u32, length: u64, request: u64, kind: u32) {
        self.store::<12>(u64::from(receiver ^ comm ^ tag ^ kind) ^ length ^ request);
    }

    #[inline(never)]
    fn point(&mut self, kind: u32, value: u32) {
        self.store::<5>(u64::from(kind ^ value));
    }

    #[inline(never)]
    fn metric(&mut self, value: i64) {
        self.store::<5>(value as u64);
    }

    #[inline(never)]
    fn note(&mut self) {
        self.store::<17>(0);
    }
}
