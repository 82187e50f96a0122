//! Files that may be compressed with gzip.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use flate2::bufread::MultiGzDecoder;

/// Bytes with which files of gzip begin.
const GZIP: [u8; 2] = [0x1f, 0x8b];
pub(crate) const BUFFER_BYTES: usize = 1 << 18;

/// Largest ratio of decompressed to compressed bytes, beyond [`LEAST_MOST_BYTES`]. Text of real traces becomes
/// 5 to 30 times as long; gzip allows a thousand times.
const MOST_RATIO: u64 = 64;
/// Decompressed bytes that a compressed file may have, however short it is.
const LEAST_MOST_BYTES: u64 = 16 << 20;

/// The decompressed bytes of a file, as far as they are in proportion to the compressed ones.
struct Bounded<R> {
    inner: R,
    left: u64,
    most: u64,
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let wanted = buffer
            .len()
            .min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let read = self.inner.read(&mut buffer[..wanted])?;
        self.left -= read as u64;
        if wanted == 0 && !buffer.is_empty() && self.inner.read(&mut [0])? != 0 {
            return Err(std::io::Error::new(
                std::io::ErrorKind::InvalidData,
                format!(
                    "decompressed, it is longer than {} bytes, which is {MOST_RATIO} times its size and {} MiB: \
                     decompress it with gunzip if it is a trace all the same",
                    self.most,
                    LEAST_MOST_BYTES >> 20
                ),
            ));
        }
        Ok(read)
    }
}

/// Opens a file, and decompresses it if it is compressed.
pub(crate) fn open(path: &Path) -> std::io::Result<Box<dyn Read>> {
    let file = File::open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(std::io::Error::other("it is not a regular file"));
    }
    let mut file = BufReader::with_capacity(BUFFER_BYTES, file);
    if file.fill_buf()?.starts_with(&GZIP) {
        let most = metadata.len().saturating_mul(MOST_RATIO);
        let most = most.saturating_add(LEAST_MOST_BYTES);
        return Ok(Box::new(Bounded {
            inner: MultiGzDecoder::new(file),
            left: most,
            most,
        }));
    }
    Ok(Box::new(file))
}
