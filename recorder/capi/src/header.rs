//! `include/annals.h` says what this library has: every function with its types, every constant, and
//! the layout of every structure. A C compiler is the judge.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::mem::offset_of;
use std::path::Path;
use std::process::Command;

use annals_recorder::{ElementType, Reference, Role, Verbosity};

use crate::{events, handle, setup, spec, status};

const HEADER: &str = include_str!("../include/annals.h");

const SOURCES: [&str; 3] = [
    include_str!("events.rs"),
    include_str!("setup.rs"),
    include_str!("status.rs"),
];

/// Of a handle, a structure or a status, the name in C: `EventTypeSpec` is `annals_event_type_spec`.
fn c_name(rust: &str) -> String {
    let mut name = "annals".to_owned();
    for letter in rust.chars() {
        if letter.is_uppercase() {
            name.push('_');
        }
        name.push(letter.to_ascii_lowercase());
    }
    name
}

fn c_type(rust: &str) -> String {
    if let Some(target) = rust.strip_prefix("*const ") {
        return format!("const {} *", c_type(target));
    }
    if let Some(target) = rust.strip_prefix("*mut ") {
        return format!("{} *", c_type(target));
    }
    match rust {
        "c_char" => "char".to_owned(),
        "usize" => "size_t".to_owned(),
        "u32" | "u64" => format!("uint{}_t", &rust[1..]),
        "i32" => "int32_t".to_owned(),
        name => c_name(name),
    }
}

/// The exported functions as the library has them: name, and a pointer to such a function in C.
fn exported() -> BTreeMap<String, String> {
    let mut functions = BTreeMap::new();
    for source in SOURCES {
        for item in source.split("#[unsafe(no_mangle)]").skip(1) {
            let (_, item) = item.split_once("extern \"C\" fn ").expect("a function");
            let (name, item) = item.split_once('(').expect("parameters");
            let (parameters, item) = item.split_once(") -> ").expect("a result");
            let (result, _) = item.split_once(" {").expect("a body");
            let parameters = parameters.split(',').map(str::trim);
            let parameters = parameters.filter(|parameter| !parameter.is_empty());
            let types = parameters
                .map(|parameter| c_type(parameter.split_once(": ").expect("a type").1))
                .collect::<Vec<_>>();
            let types = if types.is_empty() {
                "void".to_owned()
            } else {
                types.join(", ")
            };
            let pointer = format!("{} (*of_{name})({types})", c_type(result.trim()));
            functions.insert(name.to_owned(), pointer);
        }
    }
    functions
}

/// The header without comments, and without the functions that it has bodies for.
fn declarations() -> String {
    let mut text = String::new();
    let mut rest = HEADER;
    while let Some((before, behind)) = rest.split_once("/*") {
        text.push_str(before);
        rest = behind.split_once("*/").expect("the comment ends").1;
    }
    text.push_str(rest);
    let (declarations, _) = text.split_once("static inline").expect("inline functions");
    declarations.to_owned()
}

/// Functions that the header declares.
fn declared() -> BTreeSet<String> {
    let text = declarations();
    let words = text.match_indices("annals_").map(|(at, _)| &text[at..]);
    let names = words.filter_map(|word| {
        let end = word.find(|c: char| !c.is_ascii_alphanumeric() && c != '_')?;
        word[end..].starts_with('(').then(|| word[..end].to_owned())
    });
    names.collect()
}

/// Constants that the header defines, by name.
fn constants() -> BTreeSet<String> {
    let text = declarations();
    let lines = text.lines().map(str::trim);
    let names = lines.filter_map(|line| Some(line.split_once(" = ")?.0.to_owned()));
    names.collect()
}

/// What the library has for the header's constants.
fn values() -> BTreeMap<String, u32> {
    let shout = |text: &str| text.to_uppercase().replace('-', "_");
    let mut values = BTreeMap::new();
    for status in status::Status::ALL {
        let name = shout(&c_name(&format!("{status:?}")));
        values.insert(name, status as u32);
    }
    for code in 0..=u8::MAX {
        let mut add = |prefix: &str, name: Option<&str>| {
            if let Some(name) = name {
                values.insert(format!("ANNALS_{prefix}_{}", shout(name)), u32::from(code));
            }
        };
        add("TYPE", ElementType::from_code(code).map(ElementType::name));
        add("ROLE", Role::from_code(code).map(Role::name));
        add("VERBOSITY", Verbosity::from_code(code).map(Verbosity::name));
        add("REFERENCE", Reference::from_code(code).map(Reference::name));
    }
    values.extend(
        [
            ("ANNALS_TYPE_ABSENT", events::TYPE_ABSENT),
            ("ANNALS_ENVIRONMENT_IGNORED", setup::ENVIRONMENT_IGNORED),
            ("ANNALS_ENVIRONMENT_WINS", setup::ENVIRONMENT_WINS),
            ("ANNALS_ENVIRONMENT_FILLS", setup::ENVIRONMENT_FILLS),
            ("ANNALS_ORDERED", spec::ORDERED),
            ("ANNALS_UNORDERED", spec::UNORDERED),
            ("ANNALS_OVERFLOW_DEFAULT", spec::OVERFLOW_DEFAULT),
            ("ANNALS_OVERFLOW_DROP", spec::OVERFLOW_DROP),
            ("ANNALS_OVERFLOW_BLOCK", spec::OVERFLOW_BLOCK),
            ("ANNALS_OVERFLOW_OVERWRITE", spec::OVERFLOW_OVERWRITE),
        ]
        .map(|(name, value)| (name.to_owned(), value)),
    );
    values
}

fn size_of_field<T, F>(_: impl Fn(&T) -> &F) -> usize {
    size_of::<F>()
}

/// Assertions about the layout of structures; the fields are all there are, in order.
macro_rules! layouts {
    ($($type:ty as $c:literal { $($field:ident),* })*) => {{
        let mut text = String::new();
        $({
            let size = size_of::<$type>();
            let align = align_of::<$type>();
            writeln!(text, "_Static_assert(sizeof({}) == {size}, \"size of {}\");", $c, $c).unwrap();
            writeln!(text, "_Static_assert(_Alignof({}) == {align}, \"alignment of {}\");", $c, $c)
                .unwrap();
            $({
                let field = stringify!($field).trim_start_matches("r#");
                let at = offset_of!($type, $field);
                let size = size_of_field(|whole: &$type| &whole.$field);
                writeln!(
                    text,
                    "_Static_assert(sizeof((({} *)0)->{field}) == {size}, \"{field} of {}\");",
                    $c, $c
                )
                .unwrap();
                writeln!(
                    text,
                    "_Static_assert(offsetof({}, {field}) == {at}, \"{field} of {}\");",
                    $c, $c
                )
                .unwrap();
            })*
        })*
        text
    }};
}

fn judge() -> String {
    let mut c = "#include \"annals.h\"\n".to_owned();
    for (name, pointer) in exported() {
        writeln!(c, "{pointer} = {name};").unwrap();
    }
    for (name, value) in values() {
        writeln!(c, "_Static_assert({name} == {value}, \"{name}\");").unwrap();
    }
    c += &layouts! {
        handle::Recorder as "annals_recorder" { bits }
        handle::Region as "annals_region" { bits }
        handle::EventType as "annals_event_type" { bits }
        handle::Source as "annals_source" { bits }
        handle::Clock as "annals_clock" { bits }
        status::Status as "annals_status" {}
        events::Value as "annals_value" { r#type, length, r#as }
        spec::Setting as "annals_setting" { name, value }
        spec::ClockSpec as "annals_clock_spec" { size, name, ticks_per_second, max_ticks, read, data }
        spec::SourceSpec as "annals_source_spec" {
            size, name, description, ordering, overflow, clock
        }
        spec::Element as "annals_element" { name, unit, r#type, reference, is_optional, reserved }
        spec::EventTypeSpec as "annals_event_type_spec" {
            size, name, description, verbosity, role, key, elements, element_count
        }
        spec::Statistics as "annals_statistics" {
            size, raised, dropped, suppressed, blocked_ns, snapshots, written_bytes, free_pages,
            pages, raised_after_finish, misused, is_finished, is_kill_safe, has_storage_failed,
            reserved
        }
    };
    c += "static uint64_t read(void *data) { (void)data; return 0; }\n";
    c += "annals_read_clock of_read = read;\n";
    for member in ["i32", "u32", "i64", "u64", "f64", "bytes"] {
        let at = offset_of!(events::Value, r#as);
        let (value, message) = (format!("annals_value, as.{member}"), member);
        writeln!(
            c,
            "_Static_assert(offsetof({value}) == {at}, \"{message}\");"
        )
        .unwrap();
    }
    c
}

/// Compiles C against a header with this text; what the compiler said when it refused.
fn compile(header: &str, c: &str) -> Result<(), String> {
    let scratch = tempfile::tempdir().expect("a directory");
    let write = |name: &str, text: &str| {
        let path = scratch.path().join(name);
        std::fs::write(&path, text).expect("a file");
        path
    };
    write("annals.h", header);
    let source = write("judge.c", c);
    let output = Command::new("cc")
        .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-fsyntax-only"])
        .arg(source)
        .output()
        .expect("cc runs");
    if output.status.success() {
        Ok(())
    } else {
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

#[test]
fn the_header_has_every_function_and_no_other() {
    let exported: BTreeSet<String> = exported().into_keys().collect();
    assert!(exported.len() > 30);
    assert_eq!(declared(), exported);
}

#[test]
fn the_header_has_every_constant_and_no_other() {
    let values: BTreeSet<String> = values().into_keys().collect();
    assert_eq!(constants(), values);
}

#[test]
fn the_header_has_the_types_values_and_layouts_of_the_library() {
    let said = compile(HEADER, &judge());
    assert!(said.is_ok(), "{}", said.unwrap_err());
}

/// The test above can fail: for a type, a value and a layout that are changed.
#[test]
fn a_header_that_says_something_else_is_refused() {
    let judge = judge();
    for (from, to) in [
        ("uint64_t tick,", "uint32_t tick,"),
        ("ANNALS_ROLE_SEND = 4", "ANNALS_ROLE_SEND = 14"),
        ("uint64_t max_ticks;", "uint32_t max_ticks;"),
        (
            "(*annals_read_clock)(void *data)",
            "(*annals_read_clock)(int data)",
        ),
        (
            "annals_status annals_leave(annals_region region)",
            "int annals_leave(annals_region region)",
        ),
    ] {
        let changed = HEADER.replace(from, to);
        assert_ne!(changed, HEADER, "{from}");
        assert!(compile(&changed, &judge).is_err(), "{to}");
    }
}

#[test]
fn the_header_lists_every_setting() {
    let listed = HEADER
        .lines()
        .filter_map(|line| line.strip_prefix(" *   ANNALS_"));
    let listed: BTreeSet<String> = listed
        .map(|line| format!("ANNALS_{}", line.split(' ').next().expect("a name")))
        .collect();
    let known = annals_recorder::ENVIRONMENT.iter();
    let known: BTreeSet<String> = known.map(|(name, ..)| (*name).to_owned()).collect();
    assert_eq!(listed, known);
}

/// Programs in C++ and old C read the headers, too, with every warning on.
#[test]
fn the_headers_are_good_c99_and_cpp11() {
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("include");
    for (compiler, language, standard, header) in [
        ("cc", "c", "-std=c99", "annals.h"),
        ("c++", "c++", "-std=c++11", "annals.h"),
        ("c++", "c++", "-std=c++11", "annals.hpp"),
    ] {
        let output = Command::new(compiler)
            .args([
                "-x",
                language,
                standard,
                "-Wall",
                "-Wextra",
                "-Wpedantic",
                "-Werror",
            ])
            .args(["-fsyntax-only", "-include"])
            .arg(include.join(header))
            .arg("/dev/null")
            .output()
            .expect("a compiler");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{header} as {standard}: {said}");
    }
}
