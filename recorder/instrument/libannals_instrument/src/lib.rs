//! `libannals_instrument.so`: records every function of a program that was compiled with
//! `-finstrument-functions`.
//!
//! It replaces `libannals.so` for programs that use `annals.h`: a program that raises its own
//! events and is loaded with this library has one recorder, not two. It is a separate library,
//! because a program that links `libannals.so` to raise events did not ask for its functions to be
//! recorded. The functions of `annals_t.h` are in `libannals.so` only.
//!
//! A package that only links: link-time optimisation needs a crate that is no rlib.

// Linked for the functions that they export.
use annals_capi as _;
use annals_instrument as _;
