//! Packages for machines without Rust and a compiler: the tarball, the Debian package, and arguments of the scripts that make them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use super::{Prefix, ROOT, output, said};

/// Returns the repository.
fn root() -> PathBuf {
    fs::canonicalize(ROOT).expect("the repository")
}

/// Returns Cargo's directory in which everything is built.
fn built() -> PathBuf {
    if let Some(built) = std::env::var_os("TESTS_BUILT_IN") {
        return built.into();
    }
    // Builds it.
    Prefix::get();
    let test = std::env::current_exe().expect("the path of this test");
    let above = test.ancestors().nth(2);
    above.expect("a directory above `deps`").to_owned()
}

/// Returns the command of a script in `recorder/capi`.
fn script(name: &str) -> Command {
    let mut command = Command::new("bash");
    command.arg(root().join("recorder/capi").join(name));
    command
}

/// Makes a tarball of what is built, in a directory.
fn make_tarball(directory: &Path, options: &[&str]) -> Output {
    let mut make = script("tarball.sh");
    make.arg("--built").arg(built());
    make.arg("--output").arg(directory).args(options);
    make.output().expect("bash runs")
}

/// Compiles a program of the manual whose functions are recorded.
fn compile_queens(to: &Path) {
    let mut compile = Command::new("c++");
    compile.args(["-g", "-finstrument-functions", "-o"]).arg(to);
    output(compile.arg(root().join("viewer-cli/book/src/queens.cpp")));
}

/// Returns the name of the directory that a tarball contains: the tarball's without `.tar.gz`.
fn directory_in(tarball: &str) -> String {
    let name = Path::new(tarball).file_name().expect("a name");
    let name = name.to_str().expect("text").strip_suffix(".tar.gz");
    name.expect("a tarball").to_owned()
}

/// The directory is moved after it was unpacked, and only its `bin` is on the search path: no compiler, no Cargo, no other program.
#[test]
fn the_tarball_is_moved_and_used_where_there_is_no_compiler() {
    let scratch = tempfile::tempdir().expect("a directory");
    let here = scratch.path();
    let made = make_tarball(here, &["--this-machine"]);
    assert!(made.status.success(), "{}", said(&made));
    let tarball = String::from_utf8(made.stdout).expect("text");
    let name = directory_in(tarball.trim());
    let arch = std::env::consts::ARCH;
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(name, format!("annals-{version}-linux-{arch}"));
    let left: Vec<_> = fs::read_dir(here).expect("the directory").collect();
    assert_eq!(left.len(), 1, "nothing but the tarball is left: {left:?}");
    output(
        Command::new("tar")
            .arg("-xf")
            .arg(tarball.trim())
            .arg("-C")
            .arg(here),
    );
    let moved = here.join("moved");
    fs::rename(here.join(&name), &moved).expect("moved");

    let recorded = here.join("recorded");
    compile_queens(&recorded);
    let run = |program: &str, arguments: &[&str]| {
        let mut command = Command::new(moved.join("bin").join(program));
        command.env_clear().env("PATH", moved.join("bin"));
        output(command.current_dir(here).args(arguments))
    };
    assert!(run("trace-cli", &["--version"]).contains(version));
    let record = ["record", "--quiet", "-o", "run", "--", "./recorded", "6"];
    run("trace-cli", &record);
    run("trace-merge", &["run", "-o", "run.annals"]);
    let regions = run("trace-cli", &["regions", "--json", "run.annals"]);
    assert!(regions.contains("\"main\""), "{regions}");

    let program = here.join("workers");
    let mut flags = Command::new("pkg-config");
    flags.env("PKG_CONFIG_PATH", moved.join("lib/pkgconfig"));
    let flags = output(flags.args(["--cflags", "--libs", "annals"]));
    let mut compile = Command::new("cc");
    compile
        .arg(root().join("recorder/capi/examples/workers.c"))
        .arg("-o")
        .arg(&program);
    compile.args(flags.split_whitespace().map(|flag| flag.replace('"', "")));
    output(compile.arg("-lpthread"));
    let of_program = here.join("of program");
    let mut start = Command::new(&program);
    start.env("LD_LIBRARY_PATH", moved.join("lib"));
    output(start.arg(&of_program));
    run("trace-cli", &["info", "of program"]);

    let tutorial = moved.join("share/doc/annals/manual/tutorial.md");
    let readme = fs::read_to_string(moved.join("README.md")).expect("the README");
    assert!(tutorial.exists() && !readme.contains('@'), "{readme}");
}

/// What this machine's compiler builds for its glibc is no tarball for other machines.
#[test]
fn a_tarball_of_programs_for_this_machine_only_is_not_made() {
    let scratch = tempfile::tempdir().expect("a directory");
    let made = make_tarball(scratch.path(), &[]);
    assert_eq!(made.status.code(), Some(1), "{}", said(&made));
    let printed = said(&made);
    let file = "bin/trace-cli: ";
    for problem in ["needs GLIBC_2.", "names a directory of this machine"] {
        let mut lines = printed.lines();
        let is_named = lines.any(|line| line.starts_with(file) && line.contains(problem));
        assert!(is_named, "{problem}: {printed}");
    }
    let left = fs::read_dir(scratch.path()).expect("the directory").count();
    assert_eq!(left, 0, "nothing is left");
}

#[test]
fn scripts_refuse_wrong_arguments_before_they_build() {
    let wrong: [(&str, &[&str]); 14] = [
        ("tarball.sh", &["--arch"]),
        ("tarball.sh", &["--arch", "amd64"]),
        ("tarball.sh", &["--built"]),
        ("tarball.sh", &["--this-machine"]),
        ("tarball.sh", &["--profile", "dev"]),
        ("tarball.sh", &["x86_64"]),
        ("deb.sh", &["--arch"]),
        ("deb.sh", &["--arch", "x86_64"]),
        ("deb.sh", &["--built", "target", "--profile", "dev"]),
        ("deb.sh", &["--this-machine"]),
        ("deb.sh", &["somewhere"]),
        ("install.sh", &["--built"]),
        ("install.sh", &["--pages-by"]),
        ("install.sh", &["--optimise"]),
    ];
    for (name, arguments) in wrong {
        let refused = script(name).args(arguments).output().expect("bash runs");
        let printed = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(
            refused.status.code(),
            Some(2),
            "{name} {arguments:?}: {printed}"
        );
        assert!(printed.contains(&format!("usage: {name}")), "{printed}");
        assert!(refused.stdout.is_empty(), "{name} {arguments:?}");
    }
    let absent: [&[&str]; 2] = [
        &["--built", "no such directory", "--this-machine"],
        &["--built", ".", "--pages-by", "no such program"],
    ];
    for arguments in absent {
        let failed = script("tarball.sh")
            .args(arguments)
            .output()
            .expect("bash runs");
        let printed = said(&failed);
        assert_eq!(failed.status.code(), Some(1), "{printed}");
        assert!(printed.contains("does not exist"), "{printed}");
    }
}

/// The Debian package, unpacked below a directory, has all that is needed to record a program and to compile one.
#[test]
fn the_debian_package_is_unpacked_and_used() {
    let root = root();
    let mut make = script("deb.sh");
    make.arg("--built").arg(built()).arg("--this-machine");
    // The symbols of a build for tests are large.
    make.env("DPKG_DEB_COMPRESSOR_LEVEL", "1");
    let package = output(&mut make);
    let scratch = tempfile::tempdir().expect("a directory");
    let unpacked = scratch.path().join("unpacked");
    output(
        Command::new("dpkg-deb")
            .arg("--extract")
            .arg(package.trim())
            .arg(&unpacked),
    );
    let fields = output(Command::new("dpkg-deb").arg("--field").arg(package.trim()));
    assert!(fields.contains("Package: annals\n"), "{fields}");
    assert!(fields.contains("Depends: libc6"), "{fields}");

    // A compiled program is recorded, by the library next to the program.
    let recorded = scratch.path().join("recorded");
    compile_queens(&recorded);
    let cli = unpacked.join("usr/bin/trace-cli");
    let run = scratch.path().join("run");
    let mut record = Command::new(&cli);
    output(
        record
            .args(["record", "--quiet", "-o"])
            .arg(&run)
            .arg("--")
            .arg(&recorded),
    );
    let regions = output(Command::new(&cli).args(["regions", "--json"]).arg(&run));
    assert!(regions.contains("\"main\""), "{regions}");
    let trace = scratch.path().join("run.annals");
    output(
        Command::new(unpacked.join("usr/bin/trace-merge"))
            .arg(&run)
            .arg("-o")
            .arg(&trace),
    );

    // A program is compiled with its headers and library.
    let mut flags = Command::new("pkg-config");
    flags.env("PKG_CONFIG_SYSROOT_DIR", &unpacked);
    flags.env("PKG_CONFIG_PATH", unpacked.join("usr/lib/pkgconfig"));
    let flags = output(flags.args(["--cflags", "--libs", "annals"]));
    let program = scratch.path().join("workers");
    output(
        Command::new("cc")
            .arg(root.join("recorder/capi/examples/workers.c"))
            .arg("-o")
            .arg(&program)
            .args(flags.split_whitespace().map(|flag| flag.replace('"', "")))
            .arg("-lpthread"),
    );
    let of_program = scratch.path().join("of program");
    output(
        Command::new(&program)
            .arg(&of_program)
            .env("LD_LIBRARY_PATH", unpacked.join("usr/lib")),
    );
    output(Command::new(&cli).arg("info").arg(&of_program));

    let manual = unpacked.join("usr/share/man/man1/trace-merge.1.gz");
    let page = output(Command::new("zcat").arg(manual));
    assert!(page.contains("trace\\-cli"), "{page}");
    for file in [
        "bash-completion/completions/trace-cli",
        "zsh/vendor-completions/_trace-cli",
    ] {
        assert!(unpacked.join("usr/share").join(file).exists(), "{file}");
    }
}
