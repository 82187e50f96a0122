//! `annals.h` and `annals_t.h` say what the library has: every function with its types,
//! every constant, and the layout of every structure. A C compiler is the judge.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::mem::offset_of;
use std::path::Path;
use std::process::Command;

use annals_capi::{handle, raise, setup, spec, status};
use annals_capi_events::{attach, category, memory, producer, pvar};
use annals_recorder::events::{Bind, Datatype, Error, PvarClass, Safety, Scope};
use annals_recorder::{ElementType, Reference, Role, Verbosity};

const HEADER: &str = include_str!("../../recorder/capi/include/annals.h");
const EVENT_HEADER: &str = include_str!("../../recorder/capi/include/annals_t.h");

const SOURCES: [&str; 3] = [
    include_str!("../../recorder/capi/src/raise.rs"),
    include_str!("../../recorder/capi/src/setup.rs"),
    include_str!("../../recorder/capi/src/status.rs"),
];

const EVENT_SOURCES: [&str; 7] = [
    include_str!("../../recorder/capi/events/src/attach.rs"),
    include_str!("../../recorder/capi/events/src/category.rs"),
    include_str!("../../recorder/capi/events/src/consumer.rs"),
    include_str!("../../recorder/capi/events/src/cvar.rs"),
    include_str!("../../recorder/capi/events/src/info.rs"),
    include_str!("../../recorder/capi/events/src/producer.rs"),
    include_str!("../../recorder/capi/events/src/pvar.rs"),
];

/// Types of the event interface that have separate names in C.
const EVENT_TYPES: [(&str, &str); 22] = [
    ("*mut Info", "annals_t_info"),
    ("*const Source", "annals_t_source"),
    ("*const EventType", "annals_t_event_type"),
    ("*const Pvar", "annals_t_pvar"),
    ("EventRegistration", "annals_t_event_registration"),
    ("EventInstance", "annals_t_event_instance"),
    ("EventCallback", "annals_t_event_cb_function"),
    ("FreeCallback", "annals_t_event_free_cb_function"),
    ("DroppedCallback", "annals_t_event_dropped_cb_function"),
    ("ReadSourceClock", "annals_t_read_clock"),
    ("Session", "annals_t_pvar_session"),
    ("Handle", "annals_t_pvar_handle"),
    ("CvarHandle", "annals_t_cvar_handle"),
    ("CvarRead", "annals_t_cvar_read_function"),
    ("CvarWrite", "annals_t_cvar_write_function"),
    ("AttachmentHandle", "annals_t_attachment"),
    ("AttachSpec", "annals_t_attach_spec"),
    ("PvarFunctions", "annals_t_pvar_functions"),
    ("i64", "annals_t_count"),
    ("isize", "annals_t_aint"),
    ("c_int", "int"),
    ("c_void", "void"),
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
    if let Some((_, c)) = EVENT_TYPES.iter().find(|(known, _)| *known == rust) {
        return (*c).to_owned();
    }
    if let Some(target) = rust.strip_prefix("*const ") {
        return format!("{} const *", c_type(target));
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

/// Returns the exported functions of the sources: their names, and their C types as function
/// pointers.
fn exported(sources: &[&str]) -> BTreeMap<String, String> {
    let mut functions = BTreeMap::new();
    for source in sources {
        for item in source.split("#[unsafe(no_mangle)]").skip(1) {
            let (_, item) = item.split_once("extern \"C").expect("a function of C");
            let (_, item) = item.split_once(" fn ").expect("a function");
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

/// Returns the header without comments, and without the functions that it has bodies for.
fn declarations(header: &str) -> String {
    let mut text = String::new();
    let mut rest = header;
    while let Some((before, behind)) = rest.split_once("/*") {
        text.push_str(before);
        rest = behind.split_once("*/").expect("the comment ends").1;
    }
    text.push_str(rest);
    let inline = text.find("static inline").unwrap_or(text.len());
    text.truncate(inline);
    text
}

/// Functions that a header declares.
fn declared(header: &str) -> BTreeSet<String> {
    let text = declarations(header);
    let words = text.match_indices("annals_").map(|(at, _)| &text[at..]);
    let names = words.filter_map(|word| {
        let end = word.find(|c: char| !c.is_ascii_alphanumeric() && c != '_')?;
        word[end..].starts_with('(').then(|| word[..end].to_owned())
    });
    names.collect()
}

/// Constants that a header enumerates, by name.
fn constants(header: &str) -> BTreeSet<String> {
    let text = declarations(header);
    let items = text.split(['{', ',', '\n']).map(str::trim);
    let names = items.filter_map(|item| Some(item.split_once(" = ")?.0.to_owned()));
    names.collect()
}

/// Returns what the library has for the constants of `annals_t.h`.
fn event_values() -> BTreeMap<String, u32> {
    let mut values = BTreeMap::new();
    let mut add = |name: String, value: i32| {
        let value = u32::try_from(value).expect("no constant is negative");
        assert_eq!(values.insert(format!("ANNALS_T_{name}"), value), None);
    };
    add("SUCCESS".to_owned(), 0);
    for error in Error::ALL {
        add(format!("ERR_{}", error.name()), error.code());
    }
    let levels = ["SINGLE", "FUNNELED", "SERIALIZED", "MULTIPLE"];
    for (level, value) in levels.iter().zip(0..) {
        add(format!("THREAD_{level}"), value);
    }
    // In C, the standard's words; here in the order of `ALL`.
    let safeties = ["NONE", "RESTRICTED", "THREAD_SAFE", "ASYNC_SIGNAL_SAFE"];
    for (safety, name) in Safety::ALL.into_iter().zip(safeties) {
        add(format!("CB_REQUIRE_{name}"), safety as i32);
    }
    let datatypes = [
        "INT",
        "UNSIGNED",
        "UNSIGNED_LONG",
        "UNSIGNED_LONG_LONG",
        "COUNT",
        "CHAR",
        "DOUBLE",
    ];
    for (datatype, name) in Datatype::ALL.into_iter().zip(datatypes) {
        add(name.to_owned(), datatype as i32);
    }
    let binds = [
        "NO_OBJECT",
        "COMM",
        "DATATYPE",
        "ERRHANDLER",
        "FILE",
        "GROUP",
        "OP",
        "REQUEST",
        "WIN",
        "MESSAGE",
        "INFO",
        "SESSION",
    ];
    for (bind, name) in Bind::ALL.into_iter().zip(binds) {
        add(format!("BIND_{name}"), bind as i32);
    }
    for class in PvarClass::ALL {
        let name = class.name().to_uppercase().replace('-', "");
        add(format!("PVAR_CLASS_{name}"), class as i32);
    }
    let scopes = [
        "CONSTANT", "READONLY", "LOCAL", "GROUP", "GROUP_EQ", "ALL", "ALL_EQ",
    ];
    for (scope, name) in Scope::ALL.into_iter().zip(scopes) {
        add(format!("SCOPE_{name}"), scope as i32);
    }
    for code in 0..=u8::MAX {
        if let Some(verbosity) = Verbosity::from_code(code) {
            let name = verbosity.name().to_uppercase().replace('-', "_");
            let name = name.replace("DEVELOPER", "DEV");
            add(format!("VERBOSITY_{name}"), code.into());
        }
    }
    use annals_recorder::events::SourceOrder;
    for (name, value) in [
        ("SOURCE_ORDERED", SourceOrder::Ordered as i32),
        ("SOURCE_UNORDERED", SourceOrder::Unordered as i32),
        ("SEQUENCED", producer::SEQUENCED),
        ("PVAR_ALLOCATED", pvar::NOTICE_ALLOCATED),
        ("PVAR_STARTED", pvar::NOTICE_STARTED),
        ("PVAR_STOPPED", pvar::NOTICE_STOPPED),
        ("PVAR_FREED", pvar::NOTICE_FREED),
        ("MEMBER_CVAR", category::MEMBER_CVAR),
        ("MEMBER_PVAR", category::MEMBER_PVAR),
        ("MEMBER_EVENT", category::MEMBER_EVENT),
        ("MEMBER_CATEGORY", category::MEMBER_CATEGORY),
    ] {
        add(name.to_owned(), value);
    }
    values
}

/// Returns what the library has for the header's constants.
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
            ("ANNALS_TYPE_ABSENT", raise::TYPE_ABSENT),
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

fn event_judge() -> String {
    let mut c = "#include \"annals_t.h\"\n".to_owned();
    for (name, pointer) in exported(&EVENT_SOURCES) {
        writeln!(c, "{pointer} = {name};").unwrap();
    }
    for (name, value) in event_values() {
        writeln!(c, "_Static_assert({name} == {value}, \"{name}\");").unwrap();
    }
    let none = memory::ENUM_NULL;
    writeln!(
        c,
        "_Static_assert(ANNALS_T_ENUM_NULL == {none}, \"no enumeration\");"
    )
    .unwrap();
    c += &layouts! {
        attach::AttachSpec as "annals_t_attach_spec" {
            size, events, pvars, cvars, sample_at, sample_every_ns
        }
        pvar::PvarFunctions as "annals_t_pvar_functions" { read, count, notify }
    };
    // What the library calls: as it calls it.
    c += "static int64_t clock(void *data) { (void)data; return 0; }\n\
          annals_t_read_clock of_clock = clock;\n\
          static void read(void *data, const uint64_t *object, int item, void *value) {\n\
          (void)data, (void)object, (void)item, (void)value; }\n\
          static int count(void *data, const uint64_t *object) { (void)data, (void)object; return 1; }\n\
          static void note(void *data, int notice, const uint64_t *object) {\n\
          (void)data, (void)notice, (void)object; }\n\
          annals_t_pvar_functions of_functions = {read, count, note};\n\
          static void get(void *data, const uint64_t *object, void *values) {\n\
          (void)data, (void)object, (void)values; }\n\
          annals_t_cvar_read_function of_get = get;\n\
          static int set(void *data, const uint64_t *object, const void *values) {\n\
          (void)data, (void)object, (void)values; return 0; }\n\
          annals_t_cvar_write_function of_set = set;\n\
          static void event(annals_t_event_instance instance, annals_t_event_registration registration,\n\
          int safety, void *data) { (void)instance, (void)registration, (void)safety, (void)data; }\n\
          annals_t_event_cb_function of_event = event;\n\
          static void freed(annals_t_event_registration registration, int safety, void *data) {\n\
          (void)registration, (void)safety, (void)data; }\n\
          annals_t_event_free_cb_function of_freed = freed;\n\
          static void dropped(int64_t count, annals_t_event_registration registration, int source,\n\
          int safety, void *data) {\n\
          (void)count, (void)registration, (void)source, (void)safety, (void)data; }\n\
          annals_t_event_dropped_cb_function of_dropped = dropped;\n";
    c
}

fn judge() -> String {
    let mut c = "#include \"annals.h\"\n".to_owned();
    for (name, pointer) in exported(&SOURCES) {
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
        raise::Value as "annals_value" { r#type, length, r#as }
        spec::Setting as "annals_setting" { name, value }
        spec::ClockSpec as "annals_clock_spec" {
            size, name, ticks_per_second, max_ticks, read, data, rate_error_ppb, reserved
        }
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
        let at = offset_of!(raise::Value, r#as);
        let (value, message) = (format!("annals_value, as.{member}"), member);
        writeln!(
            c,
            "_Static_assert(offsetof({value}) == {at}, \"{message}\");"
        )
        .unwrap();
    }
    c
}

/// Compiles C against headers with these texts; what the compiler said when it refused.
fn compile(header: &str, event_header: &str, c: &str) -> Result<(), String> {
    let scratch = tempfile::tempdir().expect("a directory");
    let write = |name: &str, text: &str| {
        let path = scratch.path().join(name);
        std::fs::write(&path, text).expect("a file");
        path
    };
    write("annals.h", header);
    write("annals_t.h", event_header);
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
    for (header, sources, least) in [
        (HEADER, SOURCES.as_slice(), 30),
        (EVENT_HEADER, EVENT_SOURCES.as_slice(), 60),
    ] {
        let exported: BTreeSet<String> = exported(sources).into_keys().collect();
        assert!(exported.len() > least, "{}", exported.len());
        assert_eq!(declared(header), exported);
    }
}

#[test]
fn the_header_has_every_constant_and_no_other() {
    let values: BTreeSet<String> = values().into_keys().collect();
    assert_eq!(constants(HEADER), values);
    let values: BTreeSet<String> = event_values().into_keys().collect();
    assert_eq!(constants(EVENT_HEADER), values);
}

#[test]
fn the_header_has_the_types_values_and_layouts_of_the_library() {
    for judge in [judge(), event_judge()] {
        let said = compile(HEADER, EVENT_HEADER, &judge);
        assert!(said.is_ok(), "{}", said.unwrap_err());
    }
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
        assert!(compile(&changed, EVENT_HEADER, &judge).is_err(), "{to}");
    }
    let judge = event_judge();
    for (from, to) in [
        (
            "int annals_t_finalize(void)",
            "int annals_t_finalize(int now)",
        ),
        ("ANNALS_T_BIND_WIN = 8", "ANNALS_T_BIND_WIN = 18"),
        ("uint64_t sample_every_ns;", "uint32_t sample_every_ns;"),
        (
            "annals_t_pvar_handle *handle, int *count",
            "annals_t_cvar_handle *handle, int *count",
        ),
        (
            "const annals_t_object *object, int item, void *value",
            "const annals_t_object *object, void *value, int item",
        ),
        ("ANNALS_T_ENUM_NULL (-1)", "ANNALS_T_ENUM_NULL (0)"),
    ] {
        let changed = EVENT_HEADER.replace(from, to);
        assert_ne!(changed, EVENT_HEADER, "{from}");
        assert!(compile(HEADER, &changed, &judge).is_err(), "{to}");
    }
}

#[test]
fn the_header_lists_every_setting() {
    let listed = HEADER
        .lines()
        .filter(|line| line.starts_with(" *   ANNALS_"));
    let known = annals_recorder::SETTINGS.iter().map(|setting| {
        let (variable, help, default) = (setting.variable, setting.help, setting.default);
        format!(" *   {variable:20} {help} ({default})")
    });
    assert_eq!(listed.collect::<Vec<_>>(), known.collect::<Vec<_>>());
}

/// Programs in C++ and old C read the headers, too, with every warning on.
#[test]
fn the_headers_are_good_c99_and_cpp11() {
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../include");
    for (compiler, language, standard, header) in [
        ("cc", "c", "-std=c99", "annals.h"),
        ("c++", "c++", "-std=c++11", "annals.h"),
        ("c++", "c++", "-std=c++11", "annals.hpp"),
        ("cc", "c", "-std=c99", "annals_t.h"),
        ("c++", "c++", "-std=c++11", "annals_t.h"),
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
