//! The environment variables of Annals: whether each that is set is known and can be read.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use annals_recorder::{Options, RANKED_PROCESS, RECORDED_BY, RecorderError, SETTINGS};
use globset::Glob;
use serde_json::json;

use super::{Check, Scope};
use crate::did_you_mean::did_you_mean;
use crate::preload::LIBRARY_VARIABLE;

/// The expected values of a variable that is not in the recorder's table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Values {
    /// Any text.
    Any,
    /// One of these words.
    Words(&'static [&'static str]),
    /// Names and globs.
    Globs,
    /// Pairs of endings: `_in=_out`.
    Pairs,
}

/// The variables of the preloaded library and of `record`. Those that start with `ANNALS_MPI_` are read while MPI is recorded.
const OTHERS: &[(&str, Values)] = &[
    (LIBRARY_VARIABLE, Values::Any),
    (RECORDED_BY, Values::Any),
    (RANKED_PROCESS, Values::Any),
    ("ANNALS_FUNCTIONS", Values::Words(&["off"])),
    ("ANNALS_MPI_REGIONS", Values::Globs),
    ("ANNALS_MPI_EVENTS", Values::Globs),
    ("ANNALS_MPI_PAIRS", Values::Pairs),
    ("ANNALS_MPI_PAYLOADS", Values::Words(&["on", "off", "auto"])),
    ("ANNALS_MPI_CVARS", Values::Globs),
    ("ANNALS_MPI_PVARS", Values::Globs),
    ("ANNALS_MPI_CLOCKS", Values::Words(&["on", "off", "auto"])),
];

/// Reads the settings as a recorder here would. Where one cannot be read, its default is used for the checks that follow.
pub(super) fn settings(output: Option<&Path>) -> (Options, Vec<Check>) {
    let variables = std::env::vars_os();
    let mut variables: Vec<(OsString, OsString)> = variables
        .filter(|(name, value)| {
            name.as_encoded_bytes().starts_with(b"ANNALS_") && !value.is_empty()
        })
        .collect();
    variables.sort_unstable();
    let mut options = Options::new("annals-run");
    let mut checks: Vec<Check> = variables
        .iter()
        .filter_map(|(name, value)| check(&name.to_string_lossy(), value, &mut options))
        .collect();
    if checks.is_empty() {
        let names: Vec<_> = variables
            .iter()
            .map(|(name, _)| name.to_string_lossy())
            .collect();
        let says = match names.len() {
            0 => "no ANNALS_ variable is set: the recorder uses its defaults".to_owned(),
            _ => format!(
                "these variables are set and can be read: {}",
                names.join(", ")
            ),
        };
        checks.push(Check::ok("settings", json!({ "variables": names }), says));
    }
    if let Some(output) = output {
        output.clone_into(&mut options.directory);
    } else if variables.iter().any(|(name, _)| name == "ANNALS_DIR") {
        checks.push(Check::note(
            "settings",
            json!({ "variable": "ANNALS_DIR" }),
            "ANNALS_DIR is set: programs that record themselves use it, but `trace-cli record` does not",
        ).advice("give `trace-cli record` the directory with -o"));
    }
    (options, checks)
}

/// Returns what is wrong with a variable. `None` means that it is known and can be read; then it is set in the options.
fn check(name: &str, value: &OsStr, options: &mut Options) -> Option<Check> {
    let found = json!({ "variable": name, "value": value.to_string_lossy() });
    let known = || SETTINGS.iter().map(|setting| setting.variable);
    if known().any(|known| known == name) {
        let error = options.set(name, value).err()?;
        let says = match error {
            RecorderError::Setting { .. } => error.to_string(),
            other => format!("{name}: {:#}", anyhow::Error::from(other)),
        };
        let says = format!("{says}; no recorder starts with this");
        return Some(
            Check::problem("settings", found, says)
                .advice(format!("correct {name}, or unset it"))
                .preventing(Scope::Recorder),
        );
    }
    let Some((_, values)) = OTHERS.iter().find(|(known, _)| *known == name) else {
        let known = known().chain(OTHERS.iter().map(|(known, _)| *known));
        let near = did_you_mean(name, known);
        return Some(
            Check::note(
                "settings",
                found,
                format!("{name} is set, but nothing in Annals reads it{near}"),
            )
            .advice("correct its name, or unset it"),
        );
    };
    let text = value.to_string_lossy();
    let expected = match values {
        Values::Any => return None,
        Values::Words(words) if words.contains(&&*text) => return None,
        Values::Words(words) => format!("expected {}", words.join(" or ")),
        Values::Pairs => {
            let words = words(&text).filter(|word| *word != "none");
            let wrong = words.into_iter().find(|word| !word.contains('='))?;
            format!("`{wrong}` is no pair of endings such as `_in=_out`")
        }
        Values::Globs => words(&text)
            .find_map(|word| Glob::new(word).err())?
            .to_string(),
    };
    Some(
        Check::note(
            "settings",
            found,
            format!("{name} has the value `{text}`, which is not understood: {expected}"),
        )
        .advice(format!("correct {name}, or unset it")),
    )
}

/// Splits a list as the preloaded library does: at commas, colons, semicolons and blanks.
fn words(list: &str) -> impl Iterator<Item = &str> {
    list.split([',', ':', ';', ' ', '\t', '\n'])
        .filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::super::Status;
    use super::*;

    fn checked(name: &str, value: &str) -> Option<Check> {
        check(name, OsStr::new(value), &mut Options::new(""))
    }

    #[test]
    fn each_variable_is_read_as_its_reader_does() {
        for (name, value) in [
            ("ANNALS_BUFFER", "32M"),
            ("ANNALS_FUNCTIONS", "off"),
            ("ANNALS_MPI_REGIONS", "coll,MPI_Wait*"),
            ("ANNALS_MPI_PAIRS", "_in=_out"),
            ("ANNALS_MPI_PAIRS", "none"),
            ("ANNALS_MPI_CLOCKS", "on"),
            ("ANNALS_LIB", "/somewhere"),
        ] {
            assert!(checked(name, value).is_none(), "{name}={value}");
        }
        let wrong = checked("ANNALS_BUFFER", "lots").expect("a problem");
        assert_eq!(wrong.status, Status::Problem);
        assert!(wrong.says.contains("ANNALS_BUFFER"), "{}", wrong.says);
        for (name, value, part) in [
            ("ANNALS_BUFER", "32M", "did you mean `ANNALS_BUFFER`?"),
            (
                "ANNALS_MPI_REGION",
                "x",
                "did you mean `ANNALS_MPI_REGIONS`?",
            ),
            ("ANNALS_FUNCTIONS", "no", "expected off"),
            ("ANNALS_MPI_EVENTS", "[", "ANNALS_MPI_EVENTS"),
            ("ANNALS_MPI_PAIRS", "_in", "`_in` is no pair"),
        ] {
            let wrong = checked(name, value).expect("a note");
            assert_eq!(wrong.status, Status::Note);
            assert!(wrong.says.contains(part), "{}", wrong.says);
        }
    }

    /// The preloaded library is no library of this crate.
    #[test]
    fn the_variables_of_the_preloaded_library_are_those_of_its_source() {
        let source = include_str!("../../../recorder/mpi/src/settings.rs");
        let quoted = source.split('"').filter(|word| {
            let rest = word.strip_prefix("ANNALS_MPI_");
            rest.is_some_and(|rest| {
                !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_uppercase())
            })
        });
        let mut in_source: Vec<&str> = quoted.collect();
        in_source.sort_unstable();
        in_source.dedup();
        let mut known: Vec<&str> = OTHERS
            .iter()
            .map(|(name, _)| *name)
            .filter(|name| name.starts_with("ANNALS_MPI_"))
            .collect();
        known.sort_unstable();
        assert_eq!(in_source, known);
    }
}
