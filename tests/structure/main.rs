//! The structure of the source code: which files of a crate need each other, how long files and functions are, and how
//! functions take their parameters.

mod columns;
mod floors;
mod graph;
mod lengths;
mod modules;
mod names;

use std::path::{Path, PathBuf};

use graph::circles;
use modules::Crate;

/// What is found in a crate at most. Only circles of the recorder are meant to stay; the other numbers may only fall.
struct Limits {
    directory: &'static str,
    /// Files that need each other in a circle (1: no circle).
    circle: usize,
    /// Files and functions that are too long, and parameters that are taken apart.
    long_or_nameless: usize,
}

const fn limits(directory: &'static str, circle: usize, long_or_nameless: usize) -> Limits {
    Limits {
        directory,
        circle,
        long_or_nameless,
    }
}

const CRATES: &[Limits] = &[
    limits("format", 1, 0),
    limits("merger", 1, 0),
    limits("recorder", 3, 0),
    limits("recorder/capi", 1, 0),
    limits("recorder/capi/events", 1, 0),
    limits("recorder/instrument", 1, 0),
    limits("recorder/mpi", 1, 0),
    limits("recorder/runtimes", 1, 0),
    limits("recorder/tracing", 1, 0),
    limits("viewer-cli", 1, 0),
    limits("viewer-cli/analysis", 1, 0),
    limits("viewer-cli/export", 1, 0),
    limits("viewer-cli/server", 1, 0),
];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn read(directory: &Path) -> Crate {
    Crate::read(&directory.join("src")).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn files_of_a_crate_do_not_need_each_other_in_circles() {
    let mut wrong = Vec::new();
    for limits in CRATES {
        let parsed = read(&root().join(limits.directory));
        for circle in circles(&parsed) {
            if circle.len() > limits.circle {
                wrong.push(format!("{}: {}", limits.directory, circle.join(" ")));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn modules_import_from_the_floors_below() {
    let mut wrong = Vec::new();
    for limits in CRATES {
        let found = floors::check(&read(&root().join(limits.directory)));
        let directory = limits.directory;
        wrong.extend(found.iter().map(|what| format!("{directory}: {what}")));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn files_and_functions_are_short_and_parameters_have_names() {
    let mut wrong = Vec::new();
    for limits in CRATES {
        let parsed = read(&root().join(limits.directory));
        let found = lengths::check(limits.directory, &parsed);
        let (count, limit) = (found.len(), limits.long_or_nameless);
        if count != limit {
            wrong.extend(found);
            let directory = limits.directory;
            wrong.push(format!(
                "{directory}: {count} of these; its limit is {limit}, and may only fall"
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Where names of columns are written that belong to something else.
const OTHER_NAMES: [(&str, &str); 9] = [
    ("viewer-cli/server", "answers of the server to its own page"),
    (
        "viewer-cli/export/write/chrome.rs",
        "the format of chrome://tracing",
    ),
    (
        "viewer-cli/export/write/perfetto.rs",
        "annotations of Perfetto",
    ),
    (
        "viewer-cli/export/write/tables.rs",
        "columns that rows are sorted and divided by",
    ),
    (
        "viewer-cli/export/write/tables/events.rs",
        "columns that follow from the definitions",
    ),
    ("viewer-cli/commands/print.rs", "lines of single events"),
    (
        "viewer-cli/analysis/lost_time.rs",
        "what is left of an answer without waits",
    ),
    (
        "viewer-cli/python",
        "tables that are given columns in Python",
    ),
    ("viewer-cli/export/otf2", "attributes of archives"),
];

#[test]
fn names_of_columns_are_written_once() {
    let crates = ["", "/analysis", "/export", "/python", "/server"];
    let mut columns = std::collections::BTreeSet::new();
    let mut others = Vec::new();
    for name in crates {
        let directory = format!("viewer-cli{name}");
        let found = columns::Literals::of(&read(&root().join(&directory)));
        columns.extend(found.columns);
        let files = found.others.into_iter();
        others.extend(files.map(|(text, file)| (text, format!("{directory}/{file}"))));
    }
    assert!(columns.len() > 100, "{columns:?}");
    // A single word, such as `rank`, may be anything.
    let is_column = |text: &str| text.contains('_') && columns.contains(text);
    let is_other = |file: &str| OTHER_NAMES.iter().any(|(known, _)| file.starts_with(known));
    let wrong = others
        .iter()
        .filter(|(text, file)| is_column(text) && !is_other(file));
    let wrong: Vec<_> = wrong.collect();
    assert!(
        wrong.is_empty(),
        "names of columns outside of `columns!`: {wrong:?}"
    );
}

/// Returns a crate of these files.
fn written(files: &[(&str, &str)]) -> Crate {
    let scratch = tempfile::tempdir().expect("a directory");
    for (name, text) in files {
        let path = scratch.path().join("src").join(name);
        std::fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
        std::fs::write(path, text).expect("a file");
    }
    read(scratch.path())
}

fn circles_of(files: &[(&str, &str)]) -> Vec<Vec<String>> {
    circles(&written(files))
}

const LIB: (&str, &str) = ("lib.rs", "mod a;\nmod b;\npub use a::A;\n");

#[test]
fn a_circle_by_use_is_found() {
    let a = ("a.rs", "use crate::b::B;\npub struct A(B);\n");
    let b = ("b.rs", "use super::a::A;\npub struct B(Box<A>);\n");
    assert_eq!(circles_of(&[LIB, a, b]), [["a.rs", "b.rs"]]);
}

#[test]
fn a_circle_by_full_paths_is_found() {
    let a = ("a.rs", "pub struct A(crate::b::B);\n");
    let b = (
        "b.rs",
        "pub struct B;\nimpl B { fn a(&self) { crate::a::f(self) } }\n",
    );
    assert_eq!(circles_of(&[LIB, a, b]), [["a.rs", "b.rs"]]);
}

#[test]
fn a_circle_through_a_pub_use_is_found() {
    let a = ("a.rs", "use crate::b::B;\npub struct A(B);\n");
    let b = ("b.rs", "pub struct B(Box<crate::A>);\n");
    assert_eq!(circles_of(&[LIB, a, b]), [["a.rs", "b.rs"]]);
}

#[test]
fn a_circle_of_files_in_folders_is_found() {
    let lib = ("lib.rs", "mod a;\nmod b;\n");
    let a = ("a/mod.rs", "mod deep;\npub use deep::*;\n");
    let deep = ("a/deep.rs", "use crate::b::B;\npub struct A(B);\n");
    let b = ("b.rs", "use crate::a::A;\npub struct B(Box<A>);\n");
    assert_eq!(circles_of(&[lib, a, deep, b]), [["a/deep.rs", "b.rs"]]);
}

#[test]
fn a_circle_through_a_parent_is_found() {
    let a = (
        "a.rs",
        "pub mod options;\nuse options::N;\npub struct A(N);\n",
    );
    let options = (
        "a/options.rs",
        "use crate::b::B;\npub struct N;\npub struct M(B);\n",
    );
    let b = ("b.rs", "use crate::a::A;\npub struct B(A);\n");
    assert_eq!(
        circles_of(&[LIB, a, options, b]),
        [["a.rs", "a/options.rs", "b.rs"]]
    );
}

#[test]
fn a_circle_in_a_macro_is_found() {
    let a = (
        "a.rs",
        "pub fn f() { println!(\"{}\", crate::b::g()); }\npub struct A;\n",
    );
    let b = ("b.rs", "pub fn g() -> u8 { crate::a::f(); 0 }\n");
    assert_eq!(circles_of(&[LIB, a, b]), [["a.rs", "b.rs"]]);
}

#[test]
fn parents_and_children_and_one_way_make_no_circle() {
    let a = (
        "a.rs",
        "use crate::b::B;\nuse crate::A as Again;\npub struct A(B);\n",
    );
    let b = ("b.rs", "mod inner;\npub use inner::I;\npub struct B;\n");
    let inner = ("b/inner.rs", "use super::B;\npub struct I(B);\n");
    let nothing: [[&str; 0]; 0] = [];
    assert_eq!(circles_of(&[LIB, a, b, inner]), nothing);
}

#[test]
fn floors_are_checked() {
    let lib = "//! | floor | modules |\n//! |---|---|\n//! | top | `a`: does it, with all → `b`; `c` |\n\
               //! | ground | `d` |\n\nmod a;\nmod b;\nmod c;\nmod d;\nmod e;\n";
    let with = |module: &str, imported: &[&str]| {
        let texts = ["a", "b", "c", "d", "e"].map(|name| {
            let uses = imported.iter().filter(|_| name == module);
            let uses = uses.map(|name| format!("use crate::{name}::f as _{name};\n"));
            let file = format!("{name}.rs");
            (file, uses.collect::<String>() + "pub fn f() {}\n")
        });
        let mut files = vec![("lib.rs", lib)];
        files.extend(texts.iter().map(|(file, text)| (&**file, &**text)));
        floors::check(&written(&files))
    };
    let known = "e has no floor";
    assert_eq!(with("a", &["b", "d"]), [known]);
    for (module, imported) in [("b", "a"), ("a", "c"), ("c", "b"), ("d", "a")] {
        let wrong = format!("{module}.rs imports {imported}, which is not below");
        assert_eq!(with(module, &[imported]), [known, &*wrong]);
    }
}

#[test]
fn a_module_outside_of_the_crate_is_refused() {
    let scratch = tempfile::tempdir().expect("a directory");
    std::fs::create_dir_all(scratch.path().join("src")).expect("a directory");
    let lib = "#[path = \"../../other/src/thing.rs\"]\nmod thing;\n";
    std::fs::write(scratch.path().join("src/lib.rs"), lib).expect("a file");
    let error = Crate::read(&scratch.path().join("src")).err();
    assert!(error.is_some_and(|error| error.contains("leaves the crate")));
}
