//! `trace-merge`: starts the `trace-cli` in the same directory, under this name.

use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

fn main() -> ExitCode {
    let own = match std::env::current_exe() {
        Ok(own) => own,
        Err(error) => {
            eprintln!("trace-merge: where it is installed is not known: {error}");
            return ExitCode::FAILURE;
        }
    };
    let program = own.with_file_name("trace-cli");
    // It returns only if that failed.
    let error = Command::new(&program)
        .arg0("trace-merge")
        .args(std::env::args_os().skip(1))
        .exec();
    eprintln!("trace-merge: cannot run {}: {error}", program.display());
    ExitCode::FAILURE
}
