//! Programs that work with and without MPI: where there is no MPI library, they find none.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use serde_json::Value;

use crate::support::{ask, flavours, output, prefix, scratch, source, text_of};

fn directory() -> PathBuf {
    let directory = scratch().join("optional");
    std::fs::create_dir_all(&directory).expect("a directory");
    directory
}

/// Builds a library from the program's source.
fn library(file: &str, part: &str) -> PathBuf {
    let library = directory().join(file);
    let mut compile = Command::new("cc");
    compile.args(["-shared", "-fPIC", "-w", part, "-o"]);
    output(compile.arg(&library).arg(source("optional.c")));
    library
}

/// Builds the program with these options of the linker.
fn program(name: &str, options: &[&str]) -> PathBuf {
    static PLUGIN: OnceLock<PathBuf> = OnceLock::new();
    let plugin = PLUGIN.get_or_init(|| library("libplugin.so", "-DPLUGIN"));
    let program = directory().join(name);
    let mut compile = Command::new("cc");
    compile.arg(format!("-DPLUGIN_FILE=\"{}\"", plugin.display()));
    compile.args(["-w", "-O1", "-o"]).arg(&program);
    output(compile.arg(source("optional.c")).args(options).arg("-ldl"));
    program
}

/// Runs a command without recording, and recorded into a directory.
fn both(command: impl Fn() -> Command, recordings: &Path) -> [Output; 2] {
    let mut recorded = command();
    recorded.env("LD_PRELOAD", prefix().join("lib/libannals_mpi.so"));
    recorded.env("ANNALS_DIR", recordings);
    [command(), recorded].map(|mut command| command.output().expect("a program"))
}

#[test]
fn a_program_that_can_do_without_mpi_finds_none_where_there_is_none() {
    for (name, options) in [
        ("lazy", ["-Wl,-z,lazy"].as_slice()),
        ("now", &["-Wl,-z,now"]),
        ("fixed", &["-fno-pie", "-no-pie"]),
    ] {
        let program = program(name, options);
        let recordings = directory().join(format!("{name}-recordings"));
        let [plain, recorded] = both(|| Command::new(&program), &recordings);
        let printed = text_of(&plain.stdout);
        assert!(printed.contains("plugin 0\n"), "{name}: {printed}");
        assert_eq!(text_of(&recorded.stdout), printed, "{name}");
        assert_eq!(text_of(&recorded.stderr), "", "{name}");
        assert_eq!(recorded.status, plain.status, "{name}");
        assert!(!recordings.exists(), "{name}");
    }
}

#[test]
fn without_an_mpi_library_mpi_has_not_begun_and_its_begin_ends_the_program() {
    let needed = library("libdemanding.so", "-DDEMANDING");
    let main = directory().join("demanding.c");
    std::fs::write(&main, "int ask(void); int main(void) { return ask(); }").expect("a file");
    let program = directory().join("demanding");
    let mut compile = Command::new("cc");
    compile.arg(&main).arg(&needed).arg("-o").arg(&program);
    compile.args(["-Wl,-z,lazy", "-Wl,--allow-shlib-undefined"]);
    output(compile.arg(format!("-Wl,-rpath,{}", directory().display())));
    let recordings = directory().join("demanding-recordings");
    let [plain, recorded] = both(|| Command::new(&program), &recordings);
    assert_eq!(plain.status.code(), Some(127), "{plain:?}");
    assert_eq!(recorded.status, plain.status, "{recorded:?}");
    assert_eq!(text_of(&recorded.stdout), "codes 0, flags 0 0\n");
    let said = text_of(&recorded.stderr);
    assert!(said.contains("undefined symbol: MPI_Init"), "{said}");
}

#[test]
fn an_mpi_library_that_is_loaded_later_is_recorded() {
    let program = program("later", &[]);
    for flavour in flavours() {
        let Some(library) = flavour.library() else {
            continue;
        };
        let command = || {
            let mut command = Command::new(&program);
            command.arg(&library);
            for variable in ["OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"] {
                command.env(variable, "1");
            }
            command
        };
        let recordings = directory().join(format!("{}-recordings", flavour.name));
        let [plain, recorded] = both(command, &recordings);
        let printed = text_of(&plain.stdout);
        let last = "before 0 0\nafter 0 1, lacking 0\n";
        assert!(printed.ends_with(last), "{}: {printed}", flavour.name);
        assert_eq!(text_of(&recorded.stdout), printed, "{}", flavour.name);
        let table: Value = serde_json::from_str(&ask(&["regions"], &recordings)).expect("a table");
        let rows = table["regions"].as_array().expect("regions");
        let calls = |name: &str| {
            let row = rows.iter().find(|row| row["region"] == name);
            row.map(|row| row["calls"].as_u64())
        };
        let found = ["MPI_Init", "MPI_Initialized", "MPI_Finalize"].map(calls);
        assert_eq!(found, [1, 2, 1].map(|calls| Some(Some(calls))), "{table}");
    }
}
