//! Finds the libraries of the rivals that are C, and compiles the shims in `c/`. A rival whose
//! library is missing is left out, and the bench says so by name, with the reason.

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=c");
    println!("cargo::rerun-if-env-changed=PKG_CONFIG_PATH");
    println!("cargo::rustc-check-cfg=cfg(otf2, lttng)");
    rival(
        "otf2",
        &["c/otf2.c", "c/otf2_run.c"],
        "libopen-trace-format2-dev",
        || {
            let from_config = |flag| output("otf2-config", &[flag]);
            from_config("--cflags")
                .and_then(|cflags| {
                    let ldflags = from_config("--ldflags")?;
                    Ok(format!("{cflags} {ldflags} {}", from_config("--libs")?))
                })
                .or_else(|_| output("pkg-config", &["--cflags", "--libs", "otf2"]))
        },
    );
    rival("lttng", &["c/lttng.c"], "liblttng-ust-dev", || {
        // Linkers that drop unused sections would drop the list of tracepoints, which is only reached
        // through the names that the linker defines for its start and end.
        println!("cargo::rustc-link-arg-bins=-Wl,-z,nostart-stop-gc");
        output("pkg-config", &["--cflags", "--libs", "lttng-ust"])
    });
}

/// Compiles a rival's shims, or says why not: `NAME_MISSING` is the reason.
fn rival(name: &str, sources: &[&str], package: &str, flags: impl Fn() -> Result<String, String>) {
    let outcome = flags().and_then(|flags| {
        let mut build = cc::Build::new();
        // Links the shim before the libraries that it needs.
        build.files(sources).include("c").opt_level(2).std("gnu11");
        for flag in flags.split_whitespace() {
            if let Some(directory) = flag.strip_prefix("-I") {
                build.include(directory);
            }
        }
        build
            .try_compile(&format!("compare_{name}"))
            .map_err(|error| error.to_string())?;
        for flag in flags.split_whitespace() {
            if let Some(directory) = flag.strip_prefix("-L") {
                println!("cargo::rustc-link-search=native={directory}");
            } else if let Some(library) = flag.strip_prefix("-l") {
                println!("cargo::rustc-link-lib={library}");
            }
        }
        Ok(())
    });
    match outcome {
        Ok(()) => println!("cargo::rustc-cfg={name}"),
        Err(reason) => {
            let reason = reason.lines().next().unwrap_or_default();
            let advice = format!("{reason}; install {package}, or use benches/compare/run.sh");
            println!("cargo::warning={name} will not be measured: {advice}");
            let variable = name.to_uppercase();
            println!("cargo::rustc-env={variable}_MISSING=not built: {advice}");
        }
    }
}

fn output(program: &str, arguments: &[&str]) -> Result<String, String> {
    let run = Command::new(program).args(arguments).output();
    let run = run.map_err(|error| format!("`{program}` cannot be run: {error}"))?;
    if run.status.success() {
        Ok(String::from_utf8_lossy(&run.stdout).trim().to_owned())
    } else {
        let line = String::from_utf8_lossy(&run.stderr);
        let line = line.lines().next().unwrap_or("it failed").to_owned();
        Err(format!("`{program} {}`: {line}", arguments.join(" ")))
    }
}
