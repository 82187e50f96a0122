//! `libannals_instrument.so`: records every function of a program that was compiled with
//! `-finstrument-functions`.
//!
//! It stands in for `libannals.so`: it has that library's whole interface, from the same sources, so that
//! a program that raises events of its own and is loaded with this library has one recorder's code in it,
//! and not two. A library of its own, because a program that links `libannals.so` to raise events did
//! not ask for its functions to be recorded.
//!
//! | module | what it does |
//! |---|---|
//! | `hooks` | what the compiler calls: from an address to a region, and the event |
//! | `functions` | the table of addresses; takes no lock |
//! | `modules` | which files lie where in memory |
//! | `service` | starts the recorder; a thread that defines what the hooks have met |

#[path = "../../capi/src/call.rs"]
mod call;
#[path = "../../capi/src/events.rs"]
mod events;
mod functions;
#[path = "../../capi/src/handle.rs"]
mod handle;
mod hooks;
mod modules;
mod service;
#[path = "../../capi/src/setup.rs"]
mod setup;
#[path = "../../capi/src/spec.rs"]
mod spec;
#[path = "../../capi/src/status.rs"]
mod status;
#[path = "../../capi/src/table.rs"]
mod table;
