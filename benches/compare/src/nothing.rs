//! The program alone: calls of the same shape that record nothing. What it takes is subtracted from
//! every other figure.

use std::hint::black_box;

use crate::contestant::{Check, Contestant, Lane, MessageLane};

/// Records nothing.
#[derive(Debug)]
pub(crate) struct Nothing;

impl Contestant for Nothing {
    type Lane = Self;

    fn lane(&self, _: usize) -> Self {
        Self
    }

    fn settle(&mut self, _: u64) -> Result<(), String> {
        Ok(())
    }

    fn finish(&mut self) -> Result<Check, String> {
        Ok(Check {
            how: "nothing is recorded".to_owned(),
            ..Check::default()
        })
    }
}

impl Lane for Nothing {
    type Open = ();

    #[inline(never)]
    fn enter(&mut self, region: u32) {
        black_box(region);
    }

    #[inline(never)]
    fn leave(&mut self, region: u32, (): ()) {
        black_box(region);
    }

    #[inline(never)]
    fn three(&mut self, a: u32, b: u32, c: u64) {
        black_box((a, b, c));
    }

    #[inline(never)]
    fn send(&mut self, receiver: u32, comm: u32, tag: u32, length: u64, request: u64, kind: u32) {
        black_box((receiver, comm, tag, length, request, kind));
    }

    #[inline(never)]
    fn point(&mut self, kind: u32, value: u32) {
        black_box((kind, value));
    }

    #[inline(never)]
    fn metric(&mut self, value: i64) {
        black_box(value);
    }

    #[inline(never)]
    fn note(&mut self) {
        black_box(());
    }
}

impl MessageLane for Nothing {
    #[inline(never)]
    fn sent(&mut self, receiver: u32, communicator: u32, tag: u32, length: u64) {
        black_box((receiver, communicator, tag, length));
    }

    #[inline(never)]
    fn received(&mut self, sender: u32, communicator: u32, tag: u32, length: u64) {
        black_box((sender, communicator, tag, length));
    }

    #[inline(never)]
    fn collective_begin(&mut self) {
        black_box(());
    }

    #[inline(never)]
    fn collective_end(&mut self, operation: u8, communicator: u32, root: u32, sent: u64, got: u64) {
        black_box((operation, communicator, root, sent, got));
    }

    #[inline(never)]
    fn load(&mut self, value: f64) {
        black_box(value);
    }
}
