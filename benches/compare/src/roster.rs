//! The contestants that take part, and why others do not.

use std::path::Path;

use crate::annals::Annals;
use crate::floor::Floor;
use crate::measure::Measured;
use crate::nothing::Nothing;

/// The program alone: what is subtracted.
pub(crate) const PROGRAM: &str = "program alone";
/// What every figure is compared with.
pub(crate) const FLOOR: &str = "floor";
/// The rival that every figure is compared with.
pub(crate) const OTF2: &str = "otf2 warm";

/// A contestant, or why there is none.
pub(crate) struct Entry {
    /// Its name in the tables.
    pub(crate) name: &'static str,
    /// What is measured, until it fails.
    pub(crate) measured: Result<Box<dyn Measured>, String>,
}

/// Starts the contestants whose names start with one of `only` (empty: all). Their threads run
/// where the calling thread may run.
pub(crate) fn start(only: &[String], scratch: &Path) -> Vec<Entry> {
    let mut entries = Vec::new();
    let mut add = |name: &'static str, start: &dyn Fn() -> Result<Box<dyn Measured>, String>| {
        let is_wanted = only.is_empty()
            || [PROGRAM, FLOOR].contains(&name)
            || only.iter().any(|wanted| name.starts_with(wanted.as_str()));
        if is_wanted {
            let measured = start();
            entries.push(Entry { name, measured });
        }
    };
    add(PROGRAM, &|| Ok(Box::new(Nothing)));
    add(FLOOR, &|| Ok(Box::new(Floor)));
    add("annals", &|| {
        Ok(Box::new(Annals::start(&scratch.join("event-path"))?))
    });
    add(OTF2, &|| otf2(scratch, false));
    add("otf2 fresh", &|| otf2(scratch, true));
    add("tracy", &tracy);
    add("fastrace", &fastrace);
    add("lttng", &|| lttng(scratch));
    add("tracing alone", &|| tracing(Tracing::Alone, scratch));
    add("tracing annals", &|| tracing(Tracing::Annals, scratch));
    add("tracing annals brief", &|| {
        tracing(Tracing::AnnalsBrief, scratch)
    });
    add("tracing chrome", &|| tracing(Tracing::Chrome, scratch));
    entries
}

#[cfg(otf2)]
fn otf2(scratch: &Path, is_fresh: bool) -> Result<Box<dyn Measured>, String> {
    use crate::otf2::{Memory, Otf2};
    let memory = if is_fresh {
        Memory::Fresh
    } else {
        Memory::Warm
    };
    Ok(Box::new(Otf2::new(scratch, memory)))
}

#[cfg(not(otf2))]
fn otf2(_: &Path, _: bool) -> Result<Box<dyn Measured>, String> {
    Err(env!("OTF2_MISSING").to_owned())
}

#[cfg(feature = "tracy")]
fn tracy() -> Result<Box<dyn Measured>, String> {
    Ok(Box::new(crate::tracy::Tracy::start()?))
}

#[cfg(not(feature = "tracy"))]
fn tracy() -> Result<Box<dyn Measured>, String> {
    Err("built without the feature `tracy`".to_owned())
}

#[cfg(feature = "fastrace")]
fn fastrace() -> Result<Box<dyn Measured>, String> {
    Ok(Box::new(crate::fastrace::Fastrace::start()))
}

#[cfg(not(feature = "fastrace"))]
fn fastrace() -> Result<Box<dyn Measured>, String> {
    Err("built without the feature `fastrace`".to_owned())
}

/// Subscribers of a program that uses `tracing`, in addition to the registry of spans that all of them need.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Tracing {
    Alone,
    Annals,
    /// Enters and leaves only, as tracing-chrome has them.
    AnnalsBrief,
    Chrome,
}

#[cfg(feature = "tracing")]
fn tracing(listener: Tracing, scratch: &Path) -> Result<Box<dyn Measured>, String> {
    use crate::tracing::Instrumented;
    Ok(Box::new(match listener {
        Tracing::Alone => Instrumented::alone(),
        Tracing::Annals => Instrumented::annals(&scratch.join("tracing"), true)?,
        Tracing::AnnalsBrief => Instrumented::annals(&scratch.join("tracing-brief"), false)?,
        Tracing::Chrome => Instrumented::chrome(),
    }))
}

#[cfg(not(feature = "tracing"))]
fn tracing(_: Tracing, _: &Path) -> Result<Box<dyn Measured>, String> {
    Err("built without the feature `tracing`".to_owned())
}

#[cfg(lttng)]
fn lttng(scratch: &Path) -> Result<Box<dyn Measured>, String> {
    if let Some(reason) = crate::supervisor::daemon_failure() {
        return Err(reason);
    }
    Ok(Box::new(crate::lttng::Lttng::start(scratch)?))
}

#[cfg(not(lttng))]
fn lttng(_: &Path) -> Result<Box<dyn Measured>, String> {
    Err(env!("LTTNG_MISSING").to_owned())
}
