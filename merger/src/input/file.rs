//! Files that are read at offsets; only a limited number of them is open at a time.
#![expect(unsafe_code, reason = "what happens at a fork is set by a C function")]

use crate::error::{MergeError, Result};
use annals_format::{FormatError, ReadAt, open_regular};
use rustc_hash::FxHashMap;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

/// A file that is read at offsets. Not mapped: a file that is cut while it is read costs an error, not
/// the program. It is closed when too many others are open, and opened again when it is asked for.
#[derive(Debug)]
pub(crate) struct FileAt {
    path: PathBuf,
    /// Device and number on it: another file of the name is another file.
    pub(crate) identity: (u64, u64),
    number: u64,
}

/// Files that are open, by number, with the moment of their last use.
#[derive(Debug)]
struct OpenFiles {
    files: FxHashMap<u64, (Arc<File>, u64)>,
    /// Numbers by the moment of the last use.
    by_use: BTreeMap<u64, u64>,
    /// Uses, and numbers given.
    count: u64,
    most: usize,
}

/// The only lock that all threads of a process share: it survives a fork.
static OPEN_FILES: LazyLock<Mutex<OpenFiles>> = LazyLock::new(|| {
    lock_at_forks();
    Mutex::new(OpenFiles {
        files: FxHashMap::default(),
        by_use: BTreeMap::new(),
        count: 0,
        most: most_files(),
    })
});

/// Most files that are open, however many the system allows: opening one again takes microseconds, and a chunk is read for much longer.
const MOST_FILES: usize = 240;

/// Has the thread that forks hold the lock meanwhile. A child has no other thread: what one of them held, it would wait for without end.
fn lock_at_forks() {
    thread_local! {
        static HELD: RefCell<Option<MutexGuard<'static, OpenFiles>>> = const { RefCell::new(None) };
    }
    extern "C" fn before() {
        HELD.set(Some(OpenFiles::lock()));
    }
    extern "C" fn after() {
        HELD.set(None);
    }
    // SAFETY: the functions do not unwind, and take and free a lock that the thread that forks does not hold.
    unsafe {
        libc::pthread_atfork(Some(before), Some(after), Some(after));
    }
}

/// Returns the maximum number of open files: half of the system's limit, the rest is for other
/// uses.
fn most_files() -> usize {
    let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let line = limits
        .lines()
        .find(|line| line.starts_with("Max open files"));
    let soft = line.and_then(|line| line.split_whitespace().nth(3));
    let soft = soft.map_or(Some(1024), |soft| soft.parse::<usize>().ok());
    (soft.unwrap_or(usize::MAX) / 2).clamp(4, MOST_FILES)
}

impl OpenFiles {
    fn lock() -> MutexGuard<'static, Self> {
        OPEN_FILES.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn get(&mut self, number: u64) -> Option<Arc<File>> {
        self.count += 1;
        let (file, used) = self.files.get_mut(&number)?;
        self.by_use.remove(used);
        *used = self.count;
        self.by_use.insert(self.count, number);
        Some(file.clone())
    }

    fn put(&mut self, number: u64, file: Arc<File>) {
        self.remove(number);
        while self.files.len() >= self.most
            && let Some((_, longest_unused)) = self.by_use.pop_first()
        {
            self.files.remove(&longest_unused);
        }
        self.count += 1;
        self.files.insert(number, (file, self.count));
        self.by_use.insert(self.count, number);
    }

    fn remove(&mut self, number: u64) {
        if let Some((_, used)) = self.files.remove(&number) {
            self.by_use.remove(&used);
        }
    }
}

impl FileAt {
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let io = MergeError::io("open", path);
        let (file, metadata) = open_regular(path).map_err(io)?;
        let mut open = OpenFiles::lock();
        open.count += 1;
        let number = open.count;
        open.put(number, Arc::new(file));
        Ok(Self {
            path: path.to_owned(),
            identity: (metadata.dev(), metadata.ino()),
            number,
        })
    }

    fn file(&self) -> std::io::Result<Arc<File>> {
        if let Some(file) = OpenFiles::lock().get(self.number) {
            return Ok(file);
        }
        let (file, metadata) = open_regular(&self.path)?;
        if (metadata.dev(), metadata.ino()) != self.identity {
            let why = "another file has taken its name while it was read";
            return Err(std::io::Error::other(why));
        }
        let file = Arc::new(file);
        OpenFiles::lock().put(self.number, file.clone());
        Ok(file)
    }
}

impl Drop for FileAt {
    fn drop(&mut self) {
        OpenFiles::lock().remove(self.number);
    }
}

impl ReadAt for FileAt {
    fn len(&self) -> Result<u64, FormatError> {
        match self.file().and_then(|file| file.metadata()) {
            Ok(metadata) => Ok(metadata.len()),
            Err(source) => Err(FormatError::Io {
                offset: 0,
                error: source,
            }),
        }
    }

    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), FormatError> {
        let file = self.file();
        let file = file.map_err(|source| FormatError::Io {
            offset,
            error: source,
        })?;
        ReadAt::read_exact_at(&*file, offset, buffer)
    }
}
