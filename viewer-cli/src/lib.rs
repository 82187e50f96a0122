//! Answers questions about Annals recordings and traces: the library that implements `trace-cli`.

pub mod commands;
pub mod compiler_flags;
pub mod did_you_mean;
pub mod doctor;
pub mod file;
pub mod filter;
pub mod function_rules;
pub mod gather;
pub mod launch;
mod linked;
pub mod lookout;
pub mod merge_summary;
pub mod names;
pub mod output;
pub mod preload;
pub mod process_end;
pub mod report;
pub mod rule;
pub mod stacks;
pub mod system_state;
pub mod table;
pub mod timeline;
#[cfg(feature = "tui")]
pub mod tui;
pub mod views;
pub mod watch;

pub use annals_export::{svg, time, values};

/// The code of the README and the manual, compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
#[doc = include_str!("../book/src/record-rust.md")]
#[doc = include_str!("../book/src/record-tracing.md")]
pub struct Manual;
