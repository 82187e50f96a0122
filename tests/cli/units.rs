//! Sizes and times: every option and every variable that takes one accepts and refuses the same spellings.

use std::path::Path;
use std::process::Command;

type MakeCommand = Box<dyn Fn(&str, &Path) -> Command>;

/// One place where a size or a time is given: builds the command that parses it and then does little.
struct Taker {
    name: String,
    command: MakeCommand,
}

fn option(program: &'static str, before: &[&'static str], option: &'static str) -> Taker {
    let before = before.to_vec();
    Taker {
        name: format!("{} {option}", before[0]),
        command: Box::new(move |text, input| {
            let mut command = Command::new(program);
            let given = before
                .iter()
                .map(|word| word.replace("INPUT", &input.display().to_string()));
            command.args(given);
            command.arg(option.replace("TEXT", text));
            command
        }),
    }
}

const CLI: &str = env!("CARGO_BIN_EXE_trace-cli");
use crate::trace_merge;

/// `record` parses its options and the recorder's variables before it starts the program, which does not exist here.
fn recorder(field: &'static str, variable: &'static str, value: &'static str) -> [Taker; 2] {
    let command = |input: &Path| {
        let mut command = Command::new(CLI);
        let directory = input.with_file_name("recordings");
        command.arg("record").arg("--output").arg(directory);
        command
    };
    let by_option = move |text: &str, input: &Path| {
        let mut command = command(input);
        let value = value.replace("TEXT", text);
        command
            .arg(format!("--{field}={value}"))
            .args(["--", "/nothing/here"]);
        command
    };
    let by_variable = move |text: &str, input: &Path| {
        let mut command = command(input);
        command
            .env(variable, value.replace("TEXT", text))
            .args(["--", "/nothing/here"]);
        command
    };
    [
        Taker {
            name: format!("record --{field}"),
            command: Box::new(by_option),
        },
        Taker {
            name: variable.to_owned(),
            command: Box::new(by_variable),
        },
    ]
}

fn check(takers: &[Taker], accepted: &[&str], refused: &[&str], expected: &str) {
    let (_scratch, input) = super::trace::nested_file();
    for taker in takers {
        let run = |text: &str| {
            let output = (taker.command)(text, &input).output().expect("it runs");
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            (output.status.code(), said)
        };
        for text in accepted {
            let (code, said) = run(text);
            assert_ne!(code, Some(2), "{}: `{text}`: {said}", taker.name);
        }
        for text in refused {
            let (code, said) = run(text);
            assert_eq!(code, Some(2), "{}: `{text}`: {said}", taker.name);
            assert!(said.contains(expected), "{}: `{text}`: {said}", taker.name);
            // The option, not the variable that it replaces.
            let option = taker.name.split_whitespace().last().unwrap_or_default();
            let option = option.split('=').next().unwrap_or_default();
            assert!(said.contains(option), "{}: `{text}`: {said}", taker.name);
            assert!(
                taker.name.starts_with("ANNALS_") || !said.contains("ANNALS_"),
                "{}: `{text}`: {said}",
                taker.name
            );
        }
    }
}

#[test]
fn every_option_and_variable_takes_the_same_sizes() {
    let merge = trace_merge();
    let mut takers = vec![
        option(
            merge,
            &["INPUT", "-o", "INPUT.merged"],
            "--memory-limit=TEXT",
        ),
        option(
            CLI,
            &["split", "INPUT", "-o", "INPUT.parts"],
            "--every=TEXT",
        ),
    ];
    takers.extend(recorder("buffer", "ANNALS_BUFFER", "TEXT"));
    takers.extend(recorder("page", "ANNALS_PAGE", "TEXT"));
    takers.extend(recorder("max-bytes", "ANNALS_MAX_BYTES", "TEXT"));
    let accepted = [
        "65536", "65536B", "64K", "64k", "64KB", "64kib", "1M", "1m", "1mb", "1MiB", "1G", "1 gib",
    ];
    let refused = [
        "K",
        "12x",
        "-1K",
        "1.5M",
        "1e3",
        "99999999999G",
        "1T",
        "4iB",
    ];
    check(
        &takers,
        &accepted,
        &refused,
        "a number with an optional K, M or G",
    );
}

#[test]
fn every_option_and_variable_takes_the_same_times() {
    let mut takers = vec![
        option(CLI, &["print", "INPUT"], "--from=TEXT"),
        option(CLI, &["print", "INPUT"], "--to=TEXT"),
        option(CLI, &["regions", "INPUT"], "--to=TEXT"),
        option(CLI, &["diff", "INPUT", "INPUT"], "--least=TEXT"),
        option(CLI, &["suggest-filter", "INPUT"], "--shorter-than=TEXT"),
        option(
            CLI,
            &[
                "export",
                "INPUT",
                "--format",
                "parquet",
                "-o",
                "INPUT.tables",
            ],
            "--partition=time=TEXT",
        ),
    ];
    takers.extend(recorder("block-limit", "ANNALS_BLOCK_LIMIT", "TEXT"));
    takers.extend(recorder("pre-trigger", "ANNALS_PRE_TRIGGER", "TEXT"));
    takers.extend(recorder("post-trigger", "ANNALS_POST_TRIGGER", "TEXT"));
    takers.extend(recorder("flush", "ANNALS_FLUSH", "TEXT"));
    takers.extend(recorder("calibration", "ANNALS_CALIBRATION", "TEXT"));
    takers.extend(recorder(
        "trigger",
        "ANNALS_TRIGGER",
        "region solve longer than TEXT",
    ));
    let accepted = [
        "100000ns",
        "100us",
        "100\u{b5}s",
        "100\u{3bc}s",
        "1ms",
        "1.5s",
        ".5s",
        "1 s",
        "2min",
        "0.1h",
    ];
    let refused = [
        "5",
        "s",
        "1S",
        "1e3s",
        "1.2.3s",
        "1d",
        "99999999999999999999s",
    ];
    let expected = "ns, us, ms, s, min or h";
    check(&takers, &accepted, &refused, expected);
    // A bare number is a size there.
    let split = option(
        CLI,
        &["split", "INPUT", "-o", "INPUT.parts"],
        "--every=TEXT",
    );
    check(&[split], &accepted, &refused[1..], expected);
}
