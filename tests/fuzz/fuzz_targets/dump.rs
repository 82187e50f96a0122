//! `annals_format_fuzz::dump`, on whatever bytes the fuzzer makes.
//!
//!     cargo +nightly fuzz run dump -- -max_total_time=3600

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| annals_format_fuzz::dump(bytes));
