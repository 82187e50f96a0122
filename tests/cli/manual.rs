//! README and manual: their links lead somewhere, their commands and options exist, all chapters are in the table of contents.

mod pages;
mod runs;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

use pages::{Block, pages, root};

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

/// Returns the name by which links lead to a heading: lower case, hyphens between words, no other marks.
fn section_of(heading: &str) -> String {
    let heading = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = heading
        .chars()
        .filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[test]
fn links_lead_somewhere_and_every_chapter_is_listed() {
    let mut count = 0;
    for page in pages() {
        let (path, text) = (&page.path, &page.text);
        for link in text.split("](").skip(1) {
            let (link, _) = link.split_once(')').expect("the end of a link");
            if link.starts_with("http") || link.starts_with('#') {
                continue;
            }
            let (file, section) = link.split_once('#').unwrap_or((link, ""));
            let target = path.parent().expect("a directory").join(file);
            assert!(target.exists(), "{}: {link}", path.display());
            if !section.is_empty() {
                let text = fs::read_to_string(&target).expect("a page");
                let mut headings = text.lines().filter(|line| line.starts_with('#'));
                let is_there = headings.any(|line| section_of(line) == section);
                assert!(is_there, "{}: {link}", path.display());
            }
            count += 1;
        }
    }
    assert!(count > 30, "{count} links");
    let contents = root().join("viewer-cli/book/src/SUMMARY.md");
    let contents = fs::read_to_string(contents).expect("the table of contents");
    for page in pages() {
        let name = page.name();
        let is_chapter = !matches!(&*name, "SUMMARY.md" | "README.md" | "CONTRIBUTING.md");
        assert!(
            !is_chapter || contents.contains(&format!("({name})")),
            "{name}"
        );
    }
}

/// Returns the help of a command of `trace-cli`.
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
    for page in pages() {
        let path = &page.path;
        for block in page.blocks() {
            let Block::Commands(block) = block else {
                continue;
            };
            for line in block.text.lines() {
                let line = line.split(" #").next().unwrap_or(line);
                let line = line.split(" | ").next().unwrap_or(line);
                let mut words = line.split_whitespace();
                let command = match words.next() {
                    Some("trace-merge") => "merge",
                    Some("trace-cli") => words.next().expect("a command"),
                    _ => continue,
                };
                if command.starts_with('-') || line.contains("--no-such-option") {
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

/// Rows of the tables of a page: cells without spaces around them.
fn rows(page: &str) -> Vec<Vec<String>> {
    let text = fs::read_to_string(root().join(page)).expect("a page");
    let lines = text.lines().filter_map(|line| {
        let line = line.strip_prefix("| ")?.strip_suffix(" |")?;
        Some(
            line.split(" | ")
                .map(|cell| cell.trim().to_owned())
                .collect(),
        )
    });
    lines.collect()
}

/// Returns names of environment variables that the sources below a directory contain as string literals.
fn variables(directory: &Path, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(directory).expect("sources").flatten() {
        let path = entry.path();
        if path.is_dir() {
            variables(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).expect("a source file");
            // Tests of a module come last.
            let product = text.split("#[cfg(test)]").next().unwrap_or(&text);
            let parts = product.split("\"ANNALS_").skip(1);
            let names = parts.filter_map(|part| Some(part.split_once('"')?.0));
            let is_name = |name: &&str| name.chars().all(|c| c.is_ascii_uppercase() || c == '_');
            let is_whole = |name: &&str| !name.is_empty() && !name.ends_with('_');
            found.extend(
                names
                    .filter(is_name)
                    .filter(is_whole)
                    .map(|name| format!("ANNALS_{name}")),
            );
        }
    }
}

#[test]
fn every_setting_has_a_row_and_every_row_a_setting() {
    let rows = rows("viewer-cli/book/src/settings.md");
    let settings = rows.iter().filter(|row| row[0].starts_with("`ANNALS_"));
    let table: BTreeMap<&str, &Vec<String>> = settings
        .map(|row| (row[0].trim_matches('`'), row))
        .collect();
    let mut read = BTreeSet::new();
    for part in [
        "recorder/src",
        "recorder/instrument/src",
        "recorder/mpi/src",
        "recorder/tracing/src",
        "viewer-cli/src",
    ] {
        variables(&root().join(part), &mut read);
    }
    // `record` sets it for itself.
    read.remove("ANNALS_RECORDED_BY");
    read.remove("ANNALS_RANKED_PROCESS");
    let listed: BTreeSet<String> = table.keys().map(|name| (*name).to_owned()).collect();
    assert_eq!(listed, read);
    for setting in annals_recorder::SETTINGS {
        let row = &table[setting.variable][1..];
        assert_eq!(row, [setting.help, setting.default], "{setting:?}");
    }
}
