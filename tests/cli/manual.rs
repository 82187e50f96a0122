//! README and manual: their links lead somewhere, their commands and options exist, all chapters are in the table of contents.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// README and chapters, with their texts.
fn pages() -> Vec<(PathBuf, String)> {
    let chapters = fs::read_dir(root().join("viewer-cli/book/src")).expect("the manual");
    let chapters = chapters.flatten().map(|entry| entry.path());
    let is_page = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "md");
    let mut paths: Vec<PathBuf> = chapters.filter(is_page).collect();
    paths.extend(["README.md", "CONTRIBUTING.md"].map(|name| root().join(name)));
    paths.sort();
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path).expect("a page");
        (path, text)
    };
    paths.into_iter().map(read).collect()
}

#[test]
fn the_readme_is_short_and_begins_with_its_title_and_two_commands() {
    let readme = fs::read_to_string(root().join("README.md")).expect("the README");
    assert!(readme.lines().count() <= 150);
    let mut lines = readme.lines().filter(|line| !line.is_empty());
    assert_eq!(lines.next(), Some("# Annals"));
    let (_, block) = readme.split_once("```sh\n").expect("commands");
    let (block, _) = block.split_once("```").expect("their end");
    assert_eq!(block.lines().count(), 2, "{block}");
    assert!(
        block.starts_with("cargo demo") && block.contains("bash tests/run.sh"),
        "{block}"
    );
}

#[test]
fn links_lead_somewhere_and_every_chapter_is_listed() {
    let mut count = 0;
    for (path, text) in pages() {
        for link in text.split("](").skip(1) {
            let (link, _) = link.split_once(')').expect("the end of a link");
            if link.starts_with("http") || link.starts_with('#') {
                continue;
            }
            let file = link.split('#').next().unwrap_or(link);
            let target = path.parent().expect("a directory").join(file);
            assert!(target.exists(), "{}: {link}", path.display());
            count += 1;
        }
    }
    assert!(count > 30, "{count} links");
    let contents = root().join("viewer-cli/book/src/SUMMARY.md");
    let contents = fs::read_to_string(contents).expect("the table of contents");
    for (path, _) in pages() {
        let name = path.file_name().expect("a name").to_string_lossy();
        let is_chapter = !matches!(&*name, "SUMMARY.md" | "README.md" | "CONTRIBUTING.md");
        assert!(
            !is_chapter || contents.contains(&format!("({name})")),
            "{name}"
        );
    }
}

/// The help of a command of `trace-cli`.
fn help(command: &str) -> String {
    let mut help = Command::new(env!("CARGO_BIN_EXE_trace-cli"));
    let output = help
        .args(["help", command])
        .output()
        .expect("trace-cli runs");
    assert!(output.status.success(), "there is no command `{command}`");
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn commands_of_the_manual_exist_with_their_options() {
    let mut helps: BTreeMap<String, String> = BTreeMap::new();
    let mut count = 0;
    for (path, text) in pages() {
        for block in text.split("```sh\n").skip(1) {
            let (block, _) = block.split_once("```").expect("the end of a block");
            for line in block.lines() {
                let line = line.split(" #").next().unwrap_or(line);
                let mut words = line.split_whitespace();
                let command = match words.next() {
                    Some("trace-merge") => "merge",
                    Some("trace-cli") => words.next().expect("a command"),
                    _ => continue,
                };
                if command.starts_with('-') {
                    continue;
                }
                let help = helps
                    .entry(command.to_owned())
                    .or_insert_with(|| help(command));
                count += 1;
                // What follows `--` is another program.
                for option in words.take_while(|word| *word != "--") {
                    let name = option.split('=').next().unwrap_or(option);
                    if name.starts_with('-') && name.len() > 1 {
                        let is_known =
                            help.split(|c: char| c.is_whitespace() || ",<[=".contains(c));
                        let is_known = is_known.into_iter().any(|word| word == name);
                        assert!(
                            is_known,
                            "{}: {line}: `{command}` has no {name}",
                            path.display()
                        );
                    }
                }
            }
        }
    }
    assert!(count > 40, "{count} commands");
}

#[test]
fn every_command_is_in_one_group_of_the_help() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trace-cli"));
    let output = command.arg("-h").output().expect("trace-cli runs");
    let text = String::from_utf8(output.stdout).expect("text");
    let listed = |name: &str| {
        let lines = text.lines().filter(|line| line.starts_with("  "));
        lines
            .filter(|line| line.split_whitespace().next() == Some(name))
            .count()
    };
    // What completes command lines knows all commands.
    let mut command = Command::new(env!("CARGO_BIN_EXE_trace-cli"));
    let output = command
        .args(["completions", "bash"])
        .output()
        .expect("trace-cli runs");
    let script = String::from_utf8(output.stdout).expect("text");
    let names = script.lines().filter_map(|line| {
        let rest = line.trim().strip_prefix("trace__cli,")?;
        rest.strip_suffix(')').map(str::to_owned)
    });
    let is_shown = |name: &String| !matches!(&**name, "demo-rank" | "cat");
    let names: Vec<String> = names.filter(is_shown).collect();
    assert!(names.len() >= 28, "{names:?}");
    for name in names {
        assert_eq!(listed(&name), 1, "{name} in\n{text}");
    }
}
