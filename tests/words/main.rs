//! The English of comments, messages and documents: words that a reader outside of the project would not understand.

mod code;
mod prose;
mod rules;

use std::path::{Path, PathBuf};

use code::{Language, Strings};
use prose::Passage;
use rules::{Place, Rules};

/// Names of directories without text of ours: build output, and inputs of tests.
const SKIPPED: &[&str] = &["target", "data", "corpus", "artifacts"];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn rules() -> Rules {
    let text = std::fs::read_to_string(root().join("tests/words.txt")).expect("the rules");
    Rules::parse(&text).unwrap_or_else(|error| panic!("tests/words.txt: {error}"))
}

/// Adds the paths of all files below a directory, in order of their names.
fn add_files(directory: &Path, files: &mut Vec<PathBuf>) {
    let entries = std::fs::read_dir(directory).expect("a directory");
    let mut paths: Vec<_> = entries
        .map(|entry| entry.expect("an entry").path())
        .collect();
    paths.sort();
    for path in paths {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let is_hidden = name.starts_with('.') && name != ".ci";
        if is_hidden || SKIPPED.contains(&&*name) || path.is_symlink() {
            continue;
        }
        if path.is_dir() {
            add_files(&path, files);
        } else {
            files.push(path);
        }
    }
}

/// Returns the passages of a file, or nothing if it is of a kind that is not read.
fn passages(path: &Path, text: &str) -> Vec<Passage> {
    let extension = path.extension().unwrap_or_default().to_string_lossy();
    let is_crate_source = path.components().any(|part| part.as_os_str() == "src");
    let strings = if is_crate_source {
        Strings::OfSeveralWords
    } else {
        Strings::OfMessages
    };
    match &*extension {
        "rs" => code::passages(text, Language::Rust, strings),
        "c" | "h" | "cpp" | "hpp" => code::passages(text, Language::C, strings),
        "md" => prose::passages(&(1..).zip(text.lines()).collect::<Vec<_>>()),
        "sh" | "py" | "toml" => hash_comments(text),
        _ if path.ends_with(".ci/run") => hash_comments(text),
        _ => Vec::new(),
    }
}

/// Returns the passages of comments that fill their lines, as in a shell script.
fn hash_comments(text: &str) -> Vec<Passage> {
    let lines = (1..).zip(text.lines()).map(|(number, line)| {
        let comment = line.trim_start().strip_prefix('#');
        (
            number,
            comment
                .filter(|comment| !comment.starts_with('!'))
                .unwrap_or(""),
        )
    });
    prose::passages(&lines.collect::<Vec<_>>())
}

/// Returns the places of each limit of `rules`, with their files.
fn places(rules: &Rules) -> Vec<Vec<(PathBuf, Place)>> {
    let mut files = Vec::new();
    add_files(&root(), &mut files);
    let mut places: Vec<_> = rules.limits.iter().map(|_| Vec::new()).collect();
    for file in files {
        let relative = file
            .strip_prefix(root())
            .expect("a file below the root")
            .to_owned();
        // Files that are not text have no extension that is read.
        let Ok(text) = std::fs::read_to_string(&file) else {
            continue;
        };
        let found = passages(&relative, &text)
            .into_iter()
            .flat_map(|passage| rules.find(&passage));
        let found: Vec<_> = found.collect();
        let limit = rules.limit_of(&relative);
        if let Some(limit) = limit {
            places[limit].extend(found.into_iter().map(|place| (relative.clone(), place)));
        } else if !found.is_empty() {
            panic!("tests/words.txt has no limit for {}", relative.display());
        }
    }
    places
}

fn describe((file, place): &(PathBuf, Place)) -> String {
    let Place {
        line,
        pattern,
        excerpt,
        ..
    } = place;
    format!("{}:{line}: `{pattern}`: {excerpt}", file.display())
}

#[test]
fn words_of_our_own_do_not_spread() {
    let rules = rules();
    let mut wrong = Vec::new();
    for (limit, places) in rules.limits.iter().zip(places(&rules)) {
        let (forbidden, counted): (Vec<_>, Vec<_>) =
            places.iter().partition(|(_, place)| place.is_forbidden);
        for (found, limit) in [(&forbidden, limit.forbidden), (&counted, limit.counted)] {
            if found.len() > limit {
                wrong.extend(found.iter().map(|place| describe(place)));
            }
        }
        if (forbidden.len(), counted.len()) != (limit.forbidden, limit.counted) {
            let (path, forbidden, counted) = (&limit.path, forbidden.len(), counted.len());
            wrong.push(format!(
                "tests/words.txt: {path} has {} {} as limits, which may only fall; found: {path} {forbidden} {counted}",
                limit.forbidden, limit.counted
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// For the sweep of a directory: prints all places.
#[test]
#[ignore = "prints all places; proves nothing"]
fn list() {
    let rules = rules();
    for place in places(&rules).iter().flatten() {
        println!("{}", describe(place));
    }
}

const PLANTED: &str =
    "[forbidden]\nbehind\nso many\n^ the same\nnone :\n[counted]\ntell|tells\n[limits]\n. 0 0\n";

/// Returns the patterns that are found in a file of this name and content, with their lines.
fn found(name: &str, text: &str) -> Vec<(String, usize)> {
    let rules = Rules::parse(PLANTED).expect("rules");
    let passages = passages(Path::new(name), text);
    let places = passages.iter().flat_map(|passage| rules.find(passage));
    places.map(|place| (place.pattern, place.line)).collect()
}

fn one(pattern: &str, line: usize) -> Vec<(String, usize)> {
    vec![(pattern.to_owned(), line)]
}

const NOTHING: Vec<(String, usize)> = Vec::new();

#[test]
fn comments_of_all_kinds_are_read() {
    assert_eq!(
        found("a.rs", "fn a() {\n    // It is behind.\n}\n"),
        one("behind", 2)
    );
    assert_eq!(found("a.rs", "//! It is Behind.\n"), one("behind", 1));
    assert_eq!(
        found("a.rs", "/// It tells.\nfn a() {}\n"),
        one("tell|tells", 1)
    );
    assert_eq!(found("a.rs", "fn a() {} // behind\n"), one("behind", 1));
    assert_eq!(
        found("a.rs", "/* /* */\n behind */ fn a() {}\n"),
        one("behind", 2)
    );
    assert_eq!(
        found(
            "a.h",
            "/**\n * It is behind.\n */\nint a; /* behind_it */\n"
        ),
        one("behind", 2)
    );
    assert_eq!(
        found("a.sh", "#!/bin/sh behind\na # b\n# behind\n"),
        one("behind", 3)
    );
    assert_eq!(found("a.md", "# Behind\n"), one("behind", 1));
}

#[test]
fn a_pattern_across_lines_of_one_comment_is_found() {
    assert_eq!(
        found("a.rs", "    /// There are so\n    /// many of them.\n"),
        one("so many", 1)
    );
    assert_eq!(found("a.rs", "// so\n\n// many\n"), NOTHING);
    assert_eq!(found("a.rs", "// so\n//\n// many\n"), NOTHING);
    assert_eq!(found("a.rs", "a(); // so\n// many\n"), NOTHING);
    assert_eq!(
        found("a.md", "There are so\nmany.\n\nSo\n\nmany\n"),
        one("so many", 1)
    );
}

#[test]
fn code_and_quotations_are_left_out() {
    let code = "fn behind() { let behind = \"behind\"; f(\"so many, so many, so many\"); }\n";
    assert_eq!(found("a.rs", code), NOTHING);
    assert_eq!(
        found(
            "a.rs",
            "// `behind`, ``a ` behind``, \"behind\", “behind”, [a](behind)\n"
        ),
        NOTHING
    );
    assert_eq!(
        found("a.rs", "/// ```\n/// // behind\n/// ```\nfn a() {}\n"),
        NOTHING
    );
    assert_eq!(found("a.md", "```text\nbehind\n```\n"), NOTHING);
    assert_eq!(found("a.c", "char *a = \"/* behind */\"; // b\n"), NOTHING);
}

#[test]
fn messages_are_read() {
    let message = "fn a() { bail!(\n\"{behind} is\nbehind \\\"behind\\\" {}\", behind) }\n";
    assert_eq!(found("tests/a.rs", message), one("behind", 3));
    assert_eq!(
        found("tests/a.rs", "#[error(\"it is behind: {behind}\")]\n"),
        one("behind", 1)
    );
    assert_eq!(
        found("src/a.rs", "let a = \"what is behind a b c\";\n"),
        one("behind", 1)
    );
    assert_eq!(found("src/a.rs", "let a = \"behind\";\n"), NOTHING);
}

#[test]
fn literals_are_told_apart_from_comments() {
    let code = "let a = ['\"', '\\'', '/']; // behind\n";
    assert_eq!(found("a.rs", code), one("behind", 1));
    let code = "fn a<'a>(b: &'a str) { r#\"// \" behind\"#; br\"\\\"; } // so many\n";
    assert_eq!(found("a.rs", code), one("so many", 1));
}

#[test]
fn some_patterns_count_only_where_a_comment_starts() {
    assert_eq!(
        found("a.rs", "/// The same.\n///\n/// It is the same.\n"),
        one("^ the same", 1)
    );
    assert_eq!(
        found("a.rs", "/// It is.\n///\n/// The same.\n"),
        one("^ the same", 3)
    );
    assert_eq!(
        found("a.rs", "/// A limit. None: no limit.\n"),
        one("none :", 1)
    );
}

#[test]
fn the_longest_path_limits_a_file() {
    let rules = Rules::parse("[limits]\n. 0 0\na 0 0\na/b.rs 0 0\n").expect("rules");
    let limit_of = |file: &str| {
        rules
            .limit_of(Path::new(file))
            .map(|index| rules.limits[index].path.clone())
    };
    assert_eq!(limit_of("a/b.rs").as_deref(), Some("a/b.rs"));
    assert_eq!(limit_of("a/c.rs").as_deref(), Some("a"));
    assert_eq!(limit_of("ab/c.rs").as_deref(), Some("."));
}
