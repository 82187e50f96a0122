//! Names of functions and source lines for the addresses in recordings, from symbol tables and debug information.
//!
//! A recorder notes where a module was loaded and its build id; which file that is, and what is at an address in it, is found here,
//! when recordings are opened. Nothing of a file that is not what it should be is an error: its functions stay without names.

mod code_lines;
mod compilers;
mod program;
mod symbols;

pub use compilers::{Compiler, CompilerFamily};
pub use program::{Program, ProgramFunction};
pub use symbols::{Symbols, SymbolsError};
