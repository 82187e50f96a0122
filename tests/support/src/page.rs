//! A page of numbers that a process shares with the one that watches it, and with what is left when it is killed.
#![expect(unsafe_code, reason = "mappings of files")]

use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

const LENGTH: usize = 4096;

/// The page, a file of 4096 bytes.
pub struct SharedPage(&'static [AtomicU64]);

impl SharedPage {
    /// Maps the file; it is made when it is not there, with zeros.
    pub fn open(path: &Path) -> Self {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .expect("the shared page");
        file.set_len(LENGTH as u64).expect("the shared page");
        let words = map(&file, LENGTH, libc::PROT_READ | libc::PROT_WRITE);
        // SAFETY: the page is mapped until this is dropped, has this length, and is only accessed as atomics.
        Self(unsafe { std::slice::from_raw_parts(words.cast(), LENGTH / 8) })
    }

    /// Returns the last value that was stored under a number.
    pub fn get(&self, number: usize) -> u64 {
        self.0[number].load(Ordering::Acquire)
    }

    /// Stores a value. A thread that reads it also observes everything that was done before.
    pub fn tell(&self, number: usize, value: u64) {
        self.0[number].store(value, Ordering::Release);
    }
}

impl Drop for SharedPage {
    fn drop(&mut self) {
        // SAFETY: mapped by `open`, and nothing else has it.
        unsafe { libc::munmap(self.0.as_ptr().cast_mut().cast(), LENGTH) };
    }
}

/// Maps a file, for good.
pub fn map(file: &File, length: usize, protection: i32) -> *const u8 {
    // SAFETY: a new mapping of an open file.
    let map = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            length,
            protection,
            libc::MAP_SHARED,
            file.as_raw_fd(),
            0,
        )
    };
    assert!(map != libc::MAP_FAILED, "the file is mapped");
    map.cast_const().cast()
}
