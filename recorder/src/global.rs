//! The recorder of the process, for code that has none at hand.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use annals_format::RegionId;

use crate::recorder::Recorder;

static GLOBAL: RwLock<Option<Arc<Recorder>>> = RwLock::new(None);
/// Number of the global recorder; 0: none. Lets a program that does not record pay one load.
static NUMBER: AtomicU64 = AtomicU64::new(0);

pub(crate) fn set(recorder: Recorder) {
    let number = recorder.number();
    let mut global = GLOBAL.write().unwrap_or_else(PoisonError::into_inner);
    *global = Some(Arc::new(recorder));
    NUMBER.store(number.into(), Ordering::Release);
}

thread_local! {
    static CACHED: std::cell::RefCell<Option<Arc<Recorder>>> = const { std::cell::RefCell::new(None) };
}

/// Calls `with` with the global recorder, if there is one. Takes no lock but at the first use by a
/// thread.
fn with_global<T>(with: impl FnOnce(&Arc<Recorder>) -> T) -> Option<T> {
    let number = NUMBER.load(Ordering::Acquire);
    if number == 0 {
        return None;
    }
    let recorder = CACHED.try_with(|cached| {
        let mut cached = cached.try_borrow_mut().ok()?;
        if cached.as_ref().map(|r| u64::from(r.number())) != Some(number) {
            let global = GLOBAL.read().unwrap_or_else(PoisonError::into_inner);
            cached.clone_from(&global);
        }
        cached.clone()
    });
    recorder.ok().flatten().map(|recorder| with(&recorder))
}

/// A place in the program that enters a region: what [`crate::region!`] stands for.
#[derive(Debug)]
pub struct RegionSite {
    name: &'static str,
    file: &'static str,
    line: u32,
    /// Recorder number and region id of the last use.
    known: AtomicU64,
}

impl RegionSite {
    /// A site that enters the region with this name.
    pub const fn new(name: &'static str, file: &'static str, line: u32) -> Self {
        Self {
            name,
            file,
            line,
            known: AtomicU64::new(0),
        }
    }

    /// Enters the region until the guard goes; does nothing without a global recorder.
    pub fn enter(&self) -> SiteGuard {
        let entered = with_global(|recorder| {
            let known = self.known.load(Ordering::Acquire);
            let region = if known >> 32 == u64::from(recorder.number()) {
                RegionId::new(known as u32)
            } else {
                let region = recorder
                    .add_region_at(self.name, self.file, self.line, "")
                    .ok()?;
                let known = u64::from(recorder.number()) << 32 | u64::from(region.get());
                self.known.store(known, Ordering::Release);
                region
            };
            recorder.enter(region);
            Some((Arc::clone(recorder), region))
        });
        SiteGuard {
            entered: entered.flatten(),
        }
    }
}

/// Leaves the region of its site when it goes.
#[derive(Debug)]
#[must_use = "the region is left when the guard goes"]
pub struct SiteGuard {
    entered: Option<(Arc<Recorder>, RegionId)>,
}

impl Drop for SiteGuard {
    fn drop(&mut self) {
        if let Some((recorder, region)) = &self.entered {
            recorder.leave(*region);
        }
    }
}

/// Enters a region of the global recorder until the end of the scope. The region is defined at the
/// first use, with the place in the source.
///
/// ```
/// fn parse(text: &str) -> usize {
///     let _region = annals_recorder::region!("parse");
///     text.len()
/// }
/// assert_eq!(parse("abc"), 3); // no recorder: nothing is recorded
/// ```
#[macro_export]
macro_rules! region {
    ($name:expr) => {{
        static SITE: $crate::RegionSite = $crate::RegionSite::new($name, file!(), line!());
        SITE.enter()
    }};
}
