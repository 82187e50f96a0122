//! Which runtimes are recorded.

use std::ffi::CStr;
use std::sync::OnceLock;

use annals_instrument::modules;
use annals_recorder::OpenMp;

/// What `ANNALS_OPENMP` asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Choice {
    /// Runtimes that the program, or a library that it is linked to, is linked to.
    Linked,
    /// None.
    Off,
    /// Also runtimes that are loaded later.
    All,
}

static CHOICE: OnceLock<Choice> = OnceLock::new();

/// Decides what is recorded, by what is in memory before the program begins.
pub(crate) fn prepare() {
    get();
}

/// Returns what is recorded: with `auto`, nothing unless a runtime was in memory when the program began.
pub(crate) fn get() -> Choice {
    *CHOICE.get_or_init(|| match OpenMp::from_env() {
        OpenMp::Off => Choice::Off,
        OpenMp::On | OpenMp::Libomp => Choice::All,
        OpenMp::Auto if has_runtime() => Choice::Linked,
        OpenMp::Auto => Choice::Off,
    })
}

/// Returns whether a runtime of OpenMP is in memory.
fn has_runtime() -> bool {
    let files = modules::loaded();
    files.iter().any(|file| is_runtime(&file.path))
}

/// Returns whether a file is a runtime of OpenMP, by its name: also of copies, such as `libgomp-24e2ab19.so.1.0.0`.
pub(crate) fn is_runtime(path: &str) -> bool {
    let file = path.rsplit('/').next().unwrap_or_default();
    let has_end = |name: &str| {
        file.strip_prefix(name)
            .is_some_and(|end| end.starts_with(['.', '-', '5']))
    };
    file.contains(".so")
        && ["libgomp", "libomp", "libiomp5"]
            .iter()
            .any(|name| has_end(name))
}

/// Returns whether a variable of the environment has a value.
pub(crate) fn is_set(variable: &CStr) -> bool {
    let name = variable.to_str().unwrap_or_default();
    std::env::var_os(name).is_some_and(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::is_runtime;

    #[test]
    fn runtimes_are_known_by_their_files() {
        for file in [
            "/usr/lib/x86_64-linux-gnu/libgomp.so.1",
            "/x/libgomp-24e2ab19.so.1.0.0",
            "/usr/lib/llvm-14/lib/libomp-14.so.5",
            "libomp.so.5",
            "libomp5.so",
            "libiomp5.so",
        ] {
            assert!(is_runtime(file), "{file}");
        }
        for file in [
            "",
            "/usr/lib/libompd.so",
            "libomptarget.so.14",
            "libgompa.so",
            "libgomp.c",
        ] {
            assert!(!is_runtime(file), "{file}");
        }
    }
}
