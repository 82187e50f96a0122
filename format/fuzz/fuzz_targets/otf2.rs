//! Every parser of OTF2 archives, on any bytes: as they are, and with a chunk's header before them.
//!
//!     cargo +nightly fuzz run otf2 -- -max_total_time=3600

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    annals_format::otf2::exercise(bytes);
    let mut chunk = vec![3, if bytes.len() % 2 == 0 { 0x42 } else { 0x23 }];
    chunk.resize(18, 0);
    chunk.extend_from_slice(bytes);
    annals_format::otf2::exercise(&chunk);
});
