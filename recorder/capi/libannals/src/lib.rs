//! `libannals.so` and `libannals.a`: the functions of `annals.h` and of `annals_t.h`.
//!
//! A package that only links: link-time optimisation needs a crate that is no rlib.

// Linked for the functions that they export.
use annals_capi as _;
use annals_capi_events as _;
