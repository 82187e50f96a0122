//! Flags with which compilers leave functions out, so that they call no recorder.

use std::collections::{BTreeMap, BTreeSet};

use annals_merger::{Compiler, CompilerFamily};
use serde::Serialize;

/// A function that was compiled with `-finstrument-functions`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct SourceFunction {
    /// What it is called in the source, with its parameters.
    pub name: String,
    /// Its source file; empty if it is not known.
    pub file: String,
    /// How often it was called.
    pub calls: u64,
}

/// Flags for a compiler.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize)]
pub struct CompilerFlags {
    /// The compiler, as people call it.
    pub compiler: String,
    /// The flags, in the order in which they are printed.
    pub flags: Vec<String>,
    /// Other functions of the program's own files that they leave out, by name.
    pub also_left_out: Vec<String>,
    /// Functions that no flag can leave out.
    pub not_left_out: Vec<String>,
}

/// Headers that come with a compiler or the system: what their paths have in them. All functions in them are left out together.
const SYSTEM_HEADERS: [&str; 3] = ["/c++/", "/usr/include/", "/usr/lib/gcc/"];

/// Extensions of headers. Most functions in them are inlined, so that nothing else calls a recorder for them: a header is left out as a
/// whole if at least nine of ten calls of its functions are of those that are left out.
const HEADERS: [&str; 6] = [".h", ".hpp", ".hh", ".hxx", ".inl", ".tcc"];

/// Returns the flags that leave `left_out` out of what a compiler makes of the functions `all`.
pub fn compiler_flags(
    compiler: &Compiler,
    left_out: &BTreeSet<SourceFunction>,
    all: &BTreeSet<SourceFunction>,
) -> CompilerFlags {
    let found = match compiler.family {
        CompilerFamily::Gcc => gcc_flags(left_out, all),
        // It has no lists of what is left out: those that it does not inline stay.
        CompilerFamily::Clang => CompilerFlags {
            flags: vec!["-finstrument-functions-after-inlining".to_owned()],
            not_left_out: of_the_program(left_out),
            ..CompilerFlags::default()
        },
    };
    CompilerFlags {
        compiler: compiler.to_string(),
        ..found
    }
}

/// Returns the names of functions that are not of headers of the system, most calls first.
fn of_the_program(functions: &BTreeSet<SourceFunction>) -> Vec<String> {
    let is_own = |function: &&SourceFunction| {
        let mut headers = SYSTEM_HEADERS.iter();
        !headers.any(|header| function.file.contains(header))
    };
    let mut own: Vec<&SourceFunction> = functions.iter().filter(is_own).collect();
    own.sort_by_key(|function| std::cmp::Reverse(function.calls));
    own.iter().map(|function| function.name.clone()).collect()
}

/// GCC compares each part of its lists with any part of a file's path, as the compiler was given it, and of a function's name without
/// parameters (GCC's manual, Program Instrumentation Options).
fn gcc_flags(left_out: &BTreeSet<SourceFunction>, all: &BTreeSet<SourceFunction>) -> CompilerFlags {
    // By file: calls of functions that are left out, and of those that stay.
    let mut calls: BTreeMap<&str, [u64; 2]> = BTreeMap::new();
    for function in all {
        let stays = usize::from(!left_out.contains(function));
        calls.entry(&function.file).or_default()[stays] += function.calls.max(1);
    }
    // The directory in which the compiler was called is not known: the path that it was given may be the last part alone.
    let is_left_out_whole = |base: &str| {
        calls
            .iter()
            .filter(|(file, _)| file.contains(base))
            .all(|(file, [out, stay])| {
                let is_header = HEADERS.iter().any(|extension| file.ends_with(extension));
                *stay == 0 || (is_header && *stay * 9 <= *out)
            })
    };
    let mut files: BTreeSet<&str> = BTreeSet::new();
    let mut names: BTreeSet<&str> = BTreeSet::new();
    let mut kept = BTreeSet::new();
    for function in left_out {
        let file = function.file.as_str();
        let of_system = SYSTEM_HEADERS.iter().find(|part| file.contains(**part));
        let base = file.rsplit('/').next().unwrap_or(file);
        if let Some(part) = of_system {
            files.insert(part);
        } else if !base.is_empty() && is_left_out_whole(base) {
            files.insert(base);
        } else if let Some(name) = name_alone(&function.name) {
            names.insert(name);
        } else {
            kept.insert(function.name.clone());
        }
    }
    let is_left_out = |function: &&SourceFunction| {
        if SYSTEM_HEADERS
            .iter()
            .any(|part| function.file.contains(part))
        {
            return false;
        }
        files.iter().any(|part| function.file.contains(part))
            || names
                .iter()
                .any(|part| name_alone(&function.name).is_some_and(|name| name.contains(part)))
    };
    let others = all.difference(left_out).filter(is_left_out);
    let others: BTreeSet<String> = others.map(|function| function.name.clone()).collect();
    let list = |kind: &str, parts: &BTreeSet<&str>| {
        let parts: Vec<String> = parts.iter().map(|part| part.replace(',', "\\,")).collect();
        let flag = format!(
            "-finstrument-functions-exclude-{kind}-list={}",
            parts.join(",")
        );
        (!parts.is_empty()).then_some(flag)
    };
    CompilerFlags {
        flags: list("file", &files)
            .into_iter()
            .chain(list("function", &names))
            .collect(),
        also_left_out: others.into_iter().collect(),
        not_left_out: kept.into_iter().collect(),
        ..CompilerFlags::default()
    }
}

/// Returns a function's name without its parameters, as GCC's lists have it. `None` for templates and operators, whose names these lists
/// have in another way.
fn name_alone(name: &str) -> Option<&str> {
    // Such as `name[abi:cxx11](int)`.
    let end = name.find(['(', '[']).unwrap_or(name.len());
    let alone = &name[..end];
    let is_plain = |c: char| c.is_alphanumeric() || matches!(c, '_' | ':' | '~' | '$');
    (!alone.is_empty() && alone.chars().all(is_plain) && !alone.contains("operator"))
        .then_some(alone)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn functions(list: &[(&str, &str, u64)]) -> BTreeSet<SourceFunction> {
        let each = list.iter().map(|(name, file, calls)| SourceFunction {
            name: (*name).to_owned(),
            file: (*file).to_owned(),
            calls: *calls,
        });
        each.collect()
    }

    #[test]
    fn files_are_left_out_where_nothing_else_is_in_them_and_functions_elsewhere() {
        let left_out = functions(&[
            (
                "std::vector<int>::size() const",
                "/usr/include/c++/12/bits/stl_vector.h",
                100,
            ),
            (
                "int std::max<int>(int, int)",
                "/opt/gcc/include/c++/14/bits/stl_algobase.h",
                100,
            ),
            ("Point::x() const", "/home/u/src/point.hpp", 100),
            ("Tree::find[abi:cxx11](int) const", "tree.cpp", 100),
            ("Board::get(int)", "/home/u/src/board.cpp", 100),
            ("int pick<int>(int)", "/home/u/src/board.cpp", 100),
        ]);
        let mut all = left_out.clone();
        all.extend(functions(&[
            ("Board::get_all(int)", "/home/u/src/board.cpp", 100),
            ("Point::fit(int)", "/home/u/src/point.hpp", 11),
            ("Tree::grow(int)", "tree.cpp", 1),
            (
                "std::sort(int*, int*)",
                "/usr/include/c++/12/bits/stl_algo.h",
                100,
            ),
        ]));
        let found = gcc_flags(&left_out, &all);
        let flags = [
            "-finstrument-functions-exclude-file-list=/c++/,point.hpp",
            "-finstrument-functions-exclude-function-list=Board::get,Tree::find",
        ];
        assert_eq!(found.flags, flags);
        assert_eq!(
            found.also_left_out,
            ["Board::get_all(int)", "Point::fit(int)"]
        );
        assert_eq!(found.not_left_out, ["int pick<int>(int)"]);
    }

    #[test]
    fn what_clang_does_not_inline_is_marked_in_the_source() {
        let all = functions(&[
            (
                "std::max(int, int)",
                "/usr/include/c++/12/bits/stl_algobase.h",
                100,
            ),
            ("Decay::next()", "rules.cpp", 10),
            ("Growth::next()", "rules.cpp", 20),
        ]);
        assert_eq!(of_the_program(&all), ["Growth::next()", "Decay::next()"]);
    }

    #[test]
    fn a_file_whose_name_is_part_of_another_is_not_left_out_as_a_whole() {
        let left_out = functions(&[("get(int)", "a.h", 100)]);
        let mut all = left_out.clone();
        all.extend(functions(&[("solve(int)", "data.h", 100)]));
        let found = gcc_flags(&left_out, &all);
        assert_eq!(
            found.flags,
            ["-finstrument-functions-exclude-function-list=get"]
        );
        assert_eq!(gcc_flags(&functions(&[]), &all), CompilerFlags::default());
    }
}
