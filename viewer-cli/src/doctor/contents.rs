//! Parts of a program that can be recorded with the preloaded library: its functions, its calls of MPI, its threads.

use serde_json::json;

use super::elf::{Elf, Hook};
use super::mpi::{Abi, is_openmp};
use super::preloading::Named;
use super::{Check, path_value};
use crate::preload::LIBRARY;

/// How a program is used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Use {
    /// It is to be recorded.
    Recorded,
    /// It starts others: a launcher, or an interpreter of scripts.
    Starter,
}

/// The parts that will be recorded.
#[derive(Clone, Debug)]
pub(super) struct Contents {
    pub(super) checks: Vec<Check>,
    /// The obstacle that prevents the program from running with the library. `None` means that
    /// there is none.
    pub(super) obstacle: Option<&'static str>,
    /// A sentence about the parts that will be recorded.
    pub(super) summary: String,
}

/// Checks what a dynamically linked program contains. `launcher`: what starts it, if that is known.
pub(super) fn contents(
    named: Named<'_>,
    elf: &Elf,
    how: Use,
    launcher: Option<&'static str>,
) -> Contents {
    let shown = named.shown;
    let mut checks = Vec::new();
    let sanitizer = sanitizer(named, elf);
    let is_obstacle = sanitizer
        .as_ref()
        .is_some_and(|check| check.status == super::Status::Problem);
    checks.extend(sanitizer);
    if how == Use::Starter {
        return Contents {
            checks,
            obstacle: is_obstacle.then_some("its sanitizer must come first"),
            summary: format!(
                "Programs that {shown} starts are recorded, too, if they are dynamically linked."
            ),
        };
    }
    checks.push(functions(named, elf));
    let of_mpi = mpi(named, elf, launcher);
    let has_mpi = of_mpi
        .iter()
        .any(|check| check.status != super::Status::Problem);
    checks.extend(of_mpi);
    checks.extend(openmp(named, elf));
    let mut parts = Vec::new();
    if elf.hook == Hook::Imported {
        parts.push("functions");
    }
    if has_mpi {
        parts.push("calls of MPI");
    }
    if elf.needed.iter().any(|name| name.starts_with("libannals")) {
        parts.push("what it raises through Annals");
    }
    let summary = match parts[..] {
        [] => format!(
            "Of {shown} itself, only what it raises through Annals will be recorded, if it does: it has neither instrumented \
             functions nor MPI."
        ),
        [one] => format!("Of {shown}, {one} will be recorded."),
        [one, two] => format!("Of {shown}, {one} and {two} will be recorded."),
        _ => format!("Of {shown}, {} will be recorded.", parts.join(", ")),
    };
    Contents {
        checks,
        obstacle: is_obstacle.then_some("its sanitizer must come first"),
        summary,
    }
}

/// Checks whether functions are recorded, and whether they will have names.
fn functions(named: Named<'_>, elf: &Elf) -> Check {
    const NAME: &str = "program-functions";
    let shown = named.shown;
    let found = json!({
        "path": path_value(named.path),
        "is_instrumented": if elf.has_sections { json!(elf.hook == Hook::Imported) } else { json!(null) },
        "has_symbols": elf.has_symbols,
    });
    if !elf.has_sections {
        let says = format!(
            "{shown} has no table of its sections: whether its functions were compiled for recording is not known, and they will \
             have no names"
        );
        return Check::note(NAME, found, says).advice("do not strip section headers");
    }
    match elf.hook {
        Hook::Imported if elf.has_symbols => {
            let says = format!(
                "functions of {shown} were compiled with -finstrument-functions and are recorded by name"
            );
            Check::ok(NAME, found, says)
        }
        Hook::Imported => {
            let says = format!(
                "functions of {shown} were compiled with -finstrument-functions and are recorded, but the file has no symbols: \
                 their names will be missing"
            );
            let advice = "do not strip it, or name the directory of a file with its symbols and build id: --symbols DIR";
            Check::note(NAME, found, says).advice(advice)
        }
        Hook::Own => {
            let says = format!(
                "{shown} has its own __cyg_profile_func_enter, which its functions call instead of the recorder's: they are not \
                 recorded"
            );
            Check::note(NAME, found, says).advice("link it without that function")
        }
        Hook::Absent => {
            let says = format!(
                "{shown} was not compiled with -finstrument-functions: none of the functions in this file are recorded (its shared libraries \
                 were not checked)"
            );
            let advice = "compile it with -g -finstrument-functions to record functions";
            Check::note(NAME, found, says).advice(advice)
        }
    }
}

/// Checks the MPI library that a program asks for. Returns nothing if it asks for none.
fn mpi(named: Named<'_>, elf: &Elf, launcher: Option<&'static str>) -> Vec<Check> {
    const NAME: &str = "program-mpi";
    let shown = named.shown;
    let of_name = |name: &String| Some((name.clone(), Abi::of_name(name)?));
    let libraries: Vec<(String, Abi)> = elf.needed.iter().filter_map(of_name).collect();
    let main = libraries
        .iter()
        .find(|(name, _)| name.starts_with("libmpi.so") || name.starts_with("libmpich.so"));
    let Some((name, abi)) = main.or(libraries.first()) else {
        return of_linked_mpi(named, elf).into_iter().collect();
    };
    let found = json!({ "path": path_value(named.path), "library": name, "interface": abi.name() });
    if *abi == Abi::Unknown {
        let says = format!(
            "{shown} asks for {name}, which by its name has neither the interface of Open MPI nor that of MPICH or MPI 5: whether \
             its calls are recorded is known only when it runs"
        );
        let advice = "try it: a program with an unknown MPI runs unrecorded, with one warning";
        return vec![Check::note(NAME, found, says).advice(advice)];
    }
    let mut checks = Vec::new();
    let is_binding = |name: &String| {
        name.contains("mpi")
            && ["fort", "mpifh", "usempi"]
                .iter()
                .any(|part| name.contains(part))
    };
    let but = match elf.needed.iter().find(|name| is_binding(name)) {
        Some(binding) => format!(
            ", those of Fortran, too, but for attributes and error handlers, for which {binding} calls no function of MPI"
        ),
        None => String::new(),
    };
    let says = format!(
        "{shown} uses MPI through {name}, which has the interface of {}: its calls are recorded{but}",
        abi_name(*abi)
    );
    let of_launcher = match launcher {
        Some("Open MPI") => Some(Abi::OpenMpi),
        Some("MPICH" | "Intel MPI") => Some(Abi::Mpich),
        _ => None,
    };
    if let Some(expected) = of_launcher
        && matches!(abi, Abi::OpenMpi | Abi::Mpich)
        && *abi != expected
    {
        let launcher = launcher.unwrap_or_default();
        let says = format!(
            "{says}; but the launcher is {launcher}'s, below which each rank of this program would run alone, as rank 0 of 1"
        );
        checks.push(Check::note(NAME, found, says).advice(
            "start it with the launcher of the MPI library that it is linked with, such as mpirun.mpich or mpirun.openmpi",
        ));
    } else {
        checks.push(Check::ok(NAME, found, says));
    }
    checks
}

const fn abi_name(abi: Abi) -> &'static str {
    match abi {
        Abi::OpenMpi => "Open MPI",
        Abi::Mpich => "MPICH and its relatives",
        Abi::Standard => "the MPI 5 standard",
        Abi::Unknown => "an unknown MPI",
    }
}

/// Checks a program that contains MPI itself.
fn of_linked_mpi(named: Named<'_>, elf: &Elf) -> Option<Check> {
    elf.mpi.has_init.then(|| {
        let found = json!({ "path": path_value(named.path), "library": null, "interface": null });
        let says = format!(
            "the MPI library is linked into {}: its calls do not leave the program, and cannot be recorded",
            named.shown
        );
        Check::problem("program-mpi", found, says).advice("link a shared MPI library")
    })
}

/// Says what is recorded of a program with OpenMP. Returns `None` for one without.
fn openmp(named: Named<'_>, elf: &Elf) -> Option<Check> {
    let name = elf.needed.iter().find(|name| is_openmp(name))?;
    let found = json!({ "path": path_value(named.path), "library": name });
    let says = format!(
        "{} uses OpenMP ({name}): its parallel regions, loops, barriers, locks and tasks are recorded{}",
        named.shown,
        if name.starts_with("libgomp") {
            ", but no loops with static schedules, which GCC inlines"
        } else {
            ""
        },
    );
    Some(Check::note("program-openmp", found, says))
}

/// Checks how a sanitizer and the preloaded library get along. Returns `None` if the program has none.
fn sanitizer(named: Named<'_>, elf: &Elf) -> Option<Check> {
    const NAME: &str = "program-sanitizer";
    let sanitizer = *elf.sanitizers.first()?;
    let shown = named.shown;
    let library = elf.needed.iter().find(|name| {
        ["libasan.", "libclang_rt.asan", "libtsan.", "liblsan."]
            .iter()
            .any(|start| name.starts_with(start))
    });
    let found =
        json!({ "path": path_value(named.path), "sanitizer": sanitizer, "library": library });
    let is_in = |variable: &str, word: &str| {
        std::env::var_os(variable).is_some_and(|value| value.to_string_lossy().contains(word))
    };
    Some(match (sanitizer, library) {
        ("AddressSanitizer", Some(library))
            if is_in("ASAN_OPTIONS", "verify_asan_link_order=0") =>
        {
            let says = format!(
                "{shown} has AddressSanitizer ({library}), and ASAN_OPTIONS lets the recorder's library come before it"
            );
            Check::ok(NAME, found, says)
        }
        ("AddressSanitizer", Some(library)) => {
            let says = format!(
                "{shown} has AddressSanitizer, whose {library} refuses to run after a preloaded library: the program ends before main"
            );
            Check::problem(NAME, found, says).advice(
                "set ASAN_OPTIONS=verify_asan_link_order=0, or link it with -static-libasan",
            )
        }
        ("AddressSanitizer", None) => {
            let says = format!(
                "{shown} has AddressSanitizer linked into it, which works with the preloaded library"
            );
            Check::ok(NAME, found, says)
        }
        ("ThreadSanitizer", _) => {
            let says = format!(
                "{shown} has ThreadSanitizer, which reports races inside the recorder's library, because that was not compiled with \
                 it; then the program ends with exit code 66"
            );
            Check::note(NAME, found, says).advice(format!(
                "write the line called_from_lib:{LIBRARY} into a file, and set TSAN_OPTIONS=suppressions=FILE"
            ))
        }
        ("LeakSanitizer", _) => {
            let says = format!("{shown} has LeakSanitizer, which works with the preloaded library");
            Check::ok(NAME, found, says)
        }
        (other, _) => {
            let says = format!(
                "{shown} has {other}: whether it works with the preloaded library is not known"
            );
            Check::note(NAME, found, says).advice("build it without the sanitizer to record it")
        }
    })
}
