//! The recorder of the process, for code that has none at hand.
#![expect(
    unsafe_code,
    reason = "the global recorder is reached through one atomic pointer: a region costs one load more"
)]

use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use annals_format::RegionId;

use crate::recorder::Recorder;

/// Null means that there is no global recorder.
/// The recorder is never freed.
static GLOBAL: AtomicPtr<Recorder> = AtomicPtr::new(null_mut());

impl Recorder {
    /// Makes this the recorder that [`crate::region!`] uses; the last call counts. The process then
    /// keeps it until it exits.
    pub fn make_global(&self) {
        GLOBAL.store(Box::leak(Box::new(self.clone())), Ordering::Release);
    }
}

#[inline]
fn global() -> Option<&'static Recorder> {
    let recorder = GLOBAL.load(Ordering::Acquire);
    // SAFETY: null, or leaked by `make_global`.
    unsafe { recorder.as_ref() }
}

/// A place in the program that enters a region: the expansion of [`crate::region!`].
#[derive(Debug)]
pub struct RegionSite {
    name: &'static str,
    file: &'static str,
    line: u32,
    /// Recorder number and region id of the last use.
    known: AtomicU64,
}

impl RegionSite {
    /// Creates a site that enters the region with this name.
    pub const fn new(name: &'static str, file: &'static str, line: u32) -> Self {
        Self {
            name,
            file,
            line,
            known: AtomicU64::new(0),
        }
    }

    /// Enters the region until the guard is dropped.
    /// Does nothing without a global recorder.
    #[inline]
    pub fn enter(&self) -> SiteGuard {
        let entered = global().and_then(|recorder| {
            let known = self.known.load(Ordering::Acquire);
            let region = if known >> 32 == u64::from(recorder.number()) {
                RegionId::new(known as u32)
            } else {
                self.define(recorder)?
            };
            recorder.enter(region);
            Some((recorder, region))
        });
        SiteGuard { entered }
    }

    #[cold]
    fn define(&self, recorder: &Recorder) -> Option<RegionId> {
        let region = recorder.add_region_at(self.name, self.file, self.line, "");
        let region = region.ok()?;
        let known = u64::from(recorder.number()) << 32 | u64::from(region.get());
        self.known.store(known, Ordering::Release);
        Some(region)
    }
}

/// Leaves the region of its site when it is dropped.
#[derive(Debug)]
#[must_use = "the region is left when the guard is dropped"]
pub struct SiteGuard {
    entered: Option<(&'static Recorder, RegionId)>,
}

impl Drop for SiteGuard {
    #[inline]
    fn drop(&mut self) {
        if let Some((recorder, region)) = &self.entered {
            recorder.leave(*region);
        }
    }
}

/// The value of [`crate::region!`] with the feature `off`: nothing happens when it is dropped.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct NoRegion;

/// Enters a region of the global recorder until the end of the scope. The region is defined at the
/// first use, with the place in the source. With the crate's feature `off`, it is nothing.
///
/// ```
/// fn parse(text: &str) -> usize {
///     let _region = annals_recorder::region!("parse");
///     text.len()
/// }
/// assert_eq!(parse("abc"), 3); // no recorder: nothing is recorded
/// ```
#[cfg(not(feature = "off"))]
#[macro_export]
macro_rules! region {
    ($name:expr) => {{
        static SITE: $crate::RegionSite = $crate::RegionSite::new($name, file!(), line!());
        SITE.enter()
    }};
}

/// Expands to nothing: the feature `off` is on.
/// The name is not evaluated.
#[cfg(feature = "off")]
#[macro_export]
macro_rules! region {
    ($name:expr) => {
        $crate::NoRegion
    };
}

#[cfg(test)]
mod tests {
    #[cfg(feature = "off")]
    #[test]
    fn the_macro_is_nothing() {
        // A name that is never evaluated, and a guard that has no size and no end.
        let region: crate::NoRegion = crate::region!(unreachable!());
        assert_eq!(size_of_val(&region), 0);
        assert!(!std::mem::needs_drop::<crate::NoRegion>());
    }

    #[cfg(not(feature = "off"))]
    #[test]
    fn the_macro_records_with_the_global_recorder() {
        let directory = tempfile::tempdir().unwrap();
        let recorder = crate::Recorder::start(&crate::Options::new(directory.path())).unwrap();
        let work = || drop(crate::region!("work"));
        work();
        assert_eq!(recorder.status().raised, 0);
        recorder.make_global();
        (0..3).for_each(|_| work());
        assert_eq!(recorder.finish().raised, 6);
    }
}
