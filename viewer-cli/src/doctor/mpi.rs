//! MPI and OpenMP: which libraries there are, and what is recorded of them.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;

use super::elf::Elf;
use super::loader::{self, Libraries, Library};
use super::{Check, child, path_value};

/// A binary interface of MPI.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Abi {
    OpenMpi,
    Mpich,
    Standard,
    /// None that the recorder knows.
    Unknown,
}

impl Abi {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::OpenMpi => "Open MPI",
            Self::Mpich => "MPICH",
            Self::Standard => "MPI standard",
            Self::Unknown => "unknown",
        }
    }

    /// Returns the interface that a library's name denotes. `None` means that it is no MPI library.
    ///
    /// `libmpi.so.12` is MPICH's and its relatives'; Open MPI 1.10 had this name, too, which only its symbols show.
    pub(super) fn of_name(name: &str) -> Option<Self> {
        let (stem, version) = name.split_once(".so")?;
        let version = version.trim_start_matches('.').split('.').next();
        let version = version.and_then(|version| version.parse::<u32>().ok());
        match stem {
            "libmpi_abi" => Some(Self::Standard),
            "libmpich" | "libmpichfort" | "libmpichcxx" | "libmpifort" => Some(Self::Mpich),
            "libmpi_mpifh" | "libmpi_usempif08" | "libmpi_cxx" => Some(Self::OpenMpi),
            "libmpi" => Some(match version {
                Some(20 | 40 | 41) => Self::OpenMpi,
                Some(12) => Self::Mpich,
                _ => Self::Unknown,
            }),
            // Cray's.
            _ if stem.starts_with("libmpi_") && version == Some(12) => Some(Self::Mpich),
            _ => None,
        }
    }

    /// Returns the interface of a library's file as the recorder detects it, but without calling it.
    /// `None` means that it is no MPI library.
    fn of_file(name: &str, elf: &Elf) -> Option<Self> {
        let by_name = Self::of_name(name).unwrap_or(Self::Unknown);
        if elf.mpi.has_standard && by_name == Self::Standard {
            return Some(Self::Standard);
        }
        if elf.mpi.has_open_mpi {
            return Some(Self::OpenMpi);
        }
        (elf.mpi.has_init || by_name == Self::Standard).then_some(by_name)
    }
}

/// Returns whether a library may be one that MPI programs ask for, and not only one of its parts.
fn is_mpi(name: &str) -> bool {
    let stem = name.split(".so").next().unwrap_or_default();
    matches!(stem, "libmpi" | "libmpi_abi" | "libmpich") && name.contains(".so.")
}

/// The launcher of MPI programs.
#[derive(Clone, Debug)]
pub(super) struct Launcher {
    /// Its file. `None` means that there is none in `PATH`.
    path: Option<PathBuf>,
    /// Whose it is. `None` means that it is not known.
    pub(super) kind: Option<&'static str>,
    /// Why that is not known.
    why_unknown: String,
}

impl Launcher {
    /// Returns the launcher that a command line names, otherwise that of `PATH`.
    pub(super) fn of(command: &[OsString]) -> Self {
        let is_launcher = |name: &&OsString| {
            let name = Path::new(name).file_name().unwrap_or_default();
            let name = name.as_encoded_bytes();
            name.starts_with(b"mpirun") || name.starts_with(b"mpiexec")
        };
        let given = command.first().filter(is_launcher).map(OsString::as_os_str);
        let names = [OsStr::new("mpirun"), OsStr::new("mpiexec")];
        let path = given
            .into_iter()
            .chain(names)
            .find_map(|name| loader::in_path(name).filter(|path| path.is_file()));
        let mut launcher = Self {
            path,
            kind: None,
            why_unknown: String::new(),
        };
        let Some(path) = &launcher.path else {
            return launcher;
        };
        match child::run(Command::new(path).arg("--version"), |_| {}) {
            Ok(answer) if answer.status.is_none() => {
                launcher.why_unknown = "it did not answer in time".to_owned();
            }
            Ok(answer) => {
                launcher.kind = kind_of_launcher(&format!("{}{}", answer.output, answer.errors));
                launcher.why_unknown =
                    "it does not say that it is Open MPI's or MPICH's".to_owned();
            }
            Err(error) => launcher.why_unknown = format!("it cannot be run: {error}"),
        }
        launcher
    }
}

/// Checks the launcher and the libraries of MPI.
pub(super) fn mpi(launcher: &Launcher, libraries: &Libraries) -> Vec<Check> {
    let mut libraries = libraries.clone();
    if let Some(path) = &launcher.path {
        add_prefix(&mut libraries, path);
    }
    let mut checks = vec![of_launcher(launcher)];
    let mut found: Vec<(&Library, Abi)> = Vec::new();
    let mut unread = Vec::new();
    for library in libraries.named(is_mpi) {
        match loader::read(&library.path) {
            Some(elf) => found.extend(Abi::of_file(&library.name, &elf).map(|abi| (library, abi))),
            None => unread.push(library),
        }
    }
    let facts = json!({
        "libraries": found.iter().map(|(library, abi)| json!({
            "name": library.name, "path": path_value(&library.path), "interface": abi.name(),
        })).collect::<Vec<_>>(),
        "has_loader_list": libraries.has_list,
    });
    let listed: Vec<String> = found
        .iter()
        .map(|(library, abi)| format!("{} ({})", library.path.display(), abi.name()))
        .collect();
    let listed = listed.join(", ");
    if let Some((library, _)) = found.iter().find(|(_, abi)| *abi == Abi::Unknown) {
        let says = format!(
            "MPI libraries: {listed}; by its name, {} has neither the interface of Open MPI nor that of MPICH or MPI 5: programs \
             that use it run, but their calls may not be recorded",
            library.path.display()
        );
        checks.push(
            Check::note("mpi-libraries", facts, says)
                .advice("use Open MPI 2 or later, or MPICH or a relative of it"),
        );
    } else if let Some(library) = unread.first() {
        let says = format!(
            "{} cannot be read: whether its calls can be recorded is not known",
            library.path.display()
        );
        checks.push(Check::note("mpi-libraries", facts, says));
    } else if found.is_empty() && !libraries.has_list {
        let says = "the loader's list of libraries cannot be read (ldconfig -p), and next to mpirun there is no MPI library";
        checks.push(Check::note("mpi-libraries", facts, says));
    } else if found.is_empty() {
        let says = "no MPI library is where the loader searches, nor next to mpirun; only MPI programs need one";
        checks.push(
            Check::note("mpi-libraries", facts, says)
                .advice("for MPI programs, load your site's module, or set LD_LIBRARY_PATH"),
        );
    } else {
        let says = format!("MPI libraries whose calls are recorded: {listed}");
        checks.push(Check::ok("mpi-libraries", facts, says));
    }
    checks
}

/// Adds the libraries of the directory that a launcher was installed with.
fn add_prefix(libraries: &mut Libraries, launcher: &Path) {
    let Ok(launcher) = std::fs::canonicalize(launcher) else {
        return;
    };
    let Some(prefix) = launcher.parent().and_then(Path::parent) else {
        return;
    };
    for name in ["lib", "lib64"] {
        let mut of_prefix = Libraries::default();
        of_prefix.add_directory(&prefix.join(name));
        of_prefix.all.retain(|library| is_mpi(&library.name));
        libraries.all.splice(0..0, of_prefix.all);
    }
}

/// Checks `mpirun`.
fn of_launcher(launcher: &Launcher) -> Check {
    let Some(path) = &launcher.path else {
        return Check::note(
            "mpi-launcher",
            json!({ "path": null }),
            "neither mpirun nor mpiexec is in PATH; only MPI programs need one",
        )
        .advice(
            "for MPI programs, load your site's module, or add the directory of mpirun to PATH",
        );
    };
    let shown = path.display();
    let is_root = rustix::process::geteuid().is_root();
    let allowed = ["OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"];
    let is_allowed = allowed
        .iter()
        .all(|name| std::env::var_os(name).is_some_and(|value| value == "1"));
    let found = json!({ "path": path_value(path), "kind": launcher.kind, "is_root": is_root });
    match launcher.kind {
        Some("Open MPI") if is_root && !is_allowed => Check::note(
            "mpi-launcher",
            found,
            format!("{shown} is Open MPI's launcher, which refuses to run as root, for example in a container"),
        )
        .advice("set OMPI_ALLOW_RUN_AS_ROOT=1 and OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"),
        Some(kind) => {
            let says = format!("{shown} is {kind}'s launcher");
            Check::ok("mpi-launcher", found, says)
        }
        None => {
            let why = &launcher.why_unknown;
            let says = format!("{shown} is a launcher of an unknown kind: {why}");
            Check::note("mpi-launcher", found, says)
        }
    }
}

fn kind_of_launcher(text: &str) -> Option<&'static str> {
    if ["Open MPI", "OpenRTE", "PRRTE"]
        .iter()
        .any(|name| text.contains(name))
    {
        return Some("Open MPI");
    }
    if text.contains("Intel(R) MPI") {
        return Some("Intel MPI");
    }
    (text.contains("HYDRA") || text.contains("MPICH")).then_some("MPICH")
}

/// Returns the run-time libraries of OpenMP: of GCC, LLVM and Intel.
pub(super) fn is_openmp(name: &str) -> bool {
    let stem = name.split(".so").next().unwrap_or_default();
    matches!(stem, "libgomp" | "libomp" | "libiomp5") && name.contains(".so")
}

/// Says which run-time libraries of OpenMP there are, and what is recorded of them.
pub(super) fn openmp(libraries: &Libraries) -> Check {
    let found = libraries.named(is_openmp);
    let facts = json!({
        "libraries": found.iter().map(|library| json!({
            "name": library.name, "path": path_value(&library.path),
        })).collect::<Vec<_>>(),
        "is_recorded": true,
        "has_loader_list": libraries.has_list,
    });
    let names: Vec<&str> = found.iter().map(|library| &*library.name).collect();
    let which = match (&names[..], libraries.has_list) {
        ([], true) => "no OpenMP library is where the loader searches".to_owned(),
        ([], false) => {
            "which OpenMP libraries there are is not known (ldconfig -p fails)".to_owned()
        }
        (names, _) => format!("OpenMP libraries: {}", names.join(", ")),
    };
    Check::note(
        "openmp",
        facts,
        format!(
            "{which}; of programs that are linked to one, parallel regions, loops, barriers, locks and tasks are recorded (record --openmp)"
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interfaces_are_known_by_the_names_of_libraries() {
        for (name, abi) in [
            ("libmpi.so.40", Some(Abi::OpenMpi)),
            ("libmpi.so.12", Some(Abi::Mpich)),
            ("libmpich.so.12", Some(Abi::Mpich)),
            ("libmpi_abi.so.1", Some(Abi::Standard)),
            ("libmpi_gnu_123.so.12", Some(Abi::Mpich)),
            ("libmpi_mpifh.so.40", Some(Abi::OpenMpi)),
            ("libmpi.so.7", Some(Abi::Unknown)),
            ("libc.so.6", None),
            ("libmpi", None),
        ] {
            assert_eq!(Abi::of_name(name), abi, "{name}");
        }
    }

    #[test]
    fn launchers_are_known_by_what_they_say() {
        assert_eq!(
            kind_of_launcher("mpirun (Open MPI) 4.1.4\n"),
            Some("Open MPI")
        );
        assert_eq!(kind_of_launcher("HYDRA build details:\n"), Some("MPICH"));
        assert_eq!(kind_of_launcher("srun 3\n"), None);
    }
}
