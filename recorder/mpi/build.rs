//! Generates the intercepting functions from `functions.tsv`, the one place where MPI's functions
//! are named; and defines how the library is linked.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

/// The field of `At` for arguments of this name, for functions of which more than the call is
/// recorded.
const PLACES: &[(&str, &str)] = &[
    ("count", "count"),
    ("incount", "count"),
    ("origin_count", "count"),
    ("target_count", "target_count"),
    ("target_datatype", "target_datatype"),
    ("datatype", "datatype"),
    ("origin_datatype", "datatype"),
    ("dest", "dest"),
    ("source", "source"),
    ("target_rank", "dest"),
    ("rank", "dest"),
    ("tag", "tag"),
    ("sendtag", "tag"),
    ("recvtag", "recvtag"),
    ("comm", "comm"),
    ("comm_old", "comm"),
    ("request", "request"),
    ("array_of_requests", "request"),
    ("status", "status"),
    ("array_of_statuses", "status"),
    ("flag", "flag"),
    ("indx", "index"),
    ("outcount", "outcount"),
    ("array_of_indices", "index"),
    ("message", "message"),
    ("buffer", "sendbuf"),
    ("sendbuf", "sendbuf"),
    ("recvbuf", "recvbuf"),
    ("sendcount", "sendcount"),
    ("sendcounts", "sendcounts"),
    ("sendtype", "sendtype"),
    ("sendtypes", "sendtypes"),
    ("recvcount", "recvcount"),
    ("recvcounts", "recvcounts"),
    ("recvtype", "recvtype"),
    ("recvtypes", "recvtypes"),
    ("root", "root"),
    ("newcomm", "newcomm"),
    ("comm_cart", "newcomm"),
    ("comm_graph", "newcomm"),
    ("comm_dist_graph", "newcomm"),
    ("newintracomm", "newcomm"),
    ("newintercomm", "newcomm"),
    ("parent", "newcomm"),
    ("win", "win"),
    ("fh", "file"),
    ("filename", "name"),
    ("comm_name", "name"),
    ("win_name", "name"),
    ("stringtag", "name"),
    ("partitions", "partitions"),
    ("level", "level"),
    ("errorcode", "level"),
    ("session", "session"),
];

/// Functions that the library does not export: see `callers`.
const HIDDEN: &[&str] = &["MPI_Get_version"];

/// Kinds of functions with separate code for each function: those that are called most.
const HOT: &[&str] = &["send", "isend", "recv", "irecv", "wait"];

const USAGE: &str = "name, group, what is recorded, whether it waits, what is returned, arguments";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=functions.tsv");
    // Before 1.0, each minor version may change the interface.
    let (major, minor) = (
        env!("CARGO_PKG_VERSION_MAJOR"),
        env!("CARGO_PKG_VERSION_MINOR"),
    );
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libannals_mpi.so.{major}.{minor}");
    // As libannals_instrument.so.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    // The addresses of the functions that intercept are those of this library, also where a tool before it has functions of
    // these names.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-Bsymbolic-functions");
    let table = std::fs::read_to_string("functions.tsv").expect("functions.tsv can be read");
    let directory = std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR");
    let (signatures, entry_points) = generate(&table);
    for (file, text) in [
        ("signatures.rs", signatures),
        ("entry_points.rs", entry_points),
    ] {
        let path = Path::new(&directory).join(file);
        std::fs::write(path, text).expect("OUT_DIR can be written to");
    }
}

/// Returns what `signatures.rs` and `entry_points.rs` include.
fn generate(table: &str) -> (String, String) {
    let (mut functions, mut wrappers) = (String::new(), String::new());
    let mut sites = String::new();
    let (mut names, mut order) = (BTreeSet::new(), Vec::new());
    let (mut addresses, mut stacked) = (String::new(), String::new());
    let lines = table.lines().filter(|line| !line.starts_with('#'));
    let mut count = 0;
    for (index, line) in lines.enumerate() {
        let fields: Vec<&str> = line.split('\t').collect();
        let [name, group, what, waits, returned, arguments] = fields.as_slice() else {
            panic!("functions.tsv: {USAGE} were expected, found `{line}`");
        };
        order.push(*name);
        assert!(names.insert(*name), "functions.tsv has {name} twice");
        let arguments: Vec<&str> = arguments.split(' ').filter(|a| *a != "-").collect();
        let _ = writeln!(
            functions,
            "    Function {{ name: c\"{name}\", group: \"{group}\", waits: {} }},",
            *waits == "waits"
        );
        let _ = writeln!(sites, "    At {{ {} }},", site(name, what, &arguments));
        wrappers.push_str(&wrapper(index, name, what, returned, &arguments));
        let _ = writeln!(addresses, "    {name} as *const (),");
        let _ = writeln!(stacked, "    Q{name} as *const (),");
        count += 1;
    }
    // Found by their names, too.
    assert!(names.iter().eq(order.iter()), "functions.tsv is in order");
    let signatures = format!(
        "/// The number of functions.\npub(crate) const COUNT: usize = {count};\n\
         /// By number.\npub(crate) static FUNCTIONS: [Function; COUNT] = [\n{functions}];\n\
         /// By number, the positions of its arguments.\n\
         pub(crate) static SITES: [At; COUNT] = [\n{sites}];\n"
    );
    let entry_points = format!(
        "/// By number, the intercepting function.\n\
         static WRAPPERS: Addresses = Addresses([\n{addresses}]);\n\
         /// By number, this library's function in a stack of tools.\n\
         static STACKED: Addresses = Addresses([\n{stacked}]);\n{wrappers}"
    );
    (signatures, entry_points)
}

fn wrapper(index: usize, name: &str, what: &str, returned: &str, arguments: &[&str]) -> String {
    let count = arguments.len();
    let numbers: Vec<String> = (0..count).map(|number| format!("a{number}")).collect();
    let parameters: Vec<String> = numbers.iter().map(|a| format!("{a}: usize")).collect();
    let (parameters, numbers) = (parameters.join(", "), numbers.join(", "));
    let shown = if HIDDEN.contains(&name) {
        ""
    } else {
        "#[unsafe(no_mangle)]\n"
    };
    let head = format!("{shown}pub(crate) unsafe extern \"C-unwind\" fn {name}");
    let in_stack = format!("pub(crate) unsafe extern \"C-unwind\" fn Q{name}");
    let owed = "// SAFETY: what the caller of this function owes.";
    if returned == "double" {
        return format!(
            "{head}() -> f64 {{\n    {owed}\n    unsafe {{ call::double({index}) }}\n}}\n\
             {in_stack}(context: usize, _: i32) -> f64 {{\n    {owed}\n    \
             unsafe {{ call::double_in_stack({index}, context) }}\n}}\n"
        );
    }
    assert_eq!(
        returned, "word",
        "functions.tsv: {name} returns a word or a double"
    );
    let (what, _) = what.split_once('=').unwrap_or((what, ""));
    let room = if what == "plain" { "call::plain" } else { what };
    let site = if HOT.contains(&what) {
        format!("Known::<{index}>")
    } else {
        format!("Any({index})")
    };
    format!(
        "{head}({parameters}) -> usize {{\n    {owed}\n    \
         let intercepted = unsafe {{ Call::new({site}, [{numbers}]) }};\n    \
         if stack::has({index}) {{ call::enter_stack(intercepted) }} else {{ {room}(intercepted) }}\n}}\n\
         {in_stack}(context: usize, _: i32, {parameters}) -> usize {{\n    {owed}\n    \
         unsafe {{ call::in_stack({index}, context, [{numbers}], {room}) }}\n}}\n"
    )
}

/// Returns the positions of a function's arguments, as fields of `At`.
fn site(name: &str, what: &str, arguments: &[&str]) -> String {
    let mut at = String::new();
    for (place, argument) in arguments.iter().enumerate() {
        if let Some((_, field)) = PLACES.iter().find(|(known, _)| known == argument) {
            assert!(
                !at.contains(&format!(" {field}:")),
                "functions.tsv: {name} has {field} twice"
            );
            let _ = write!(at, " {field}: {place},");
        }
    }
    let is_wide = name.ends_with("_c");
    let (_, operation) = what.split_once('=').unwrap_or((what, "255"));
    format!("is_wide: {is_wide}, operation: {operation},{at} ..At::NONE")
}
