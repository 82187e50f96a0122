//! How a process ended, for people: out of what it noted itself and what the system reported.

use annals_format::names;
use annals_merger::InputReport;

use crate::table::safe;

/// Information about the end of a process, besides the state of its recording. `None` means that nothing was noted.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct ProcessEnd {
    /// The code that it passed to MPI_Abort.
    pub abort_code: Option<String>,
    /// The function that MPI requires before a process exits, when it exited without.
    pub missing_finalize: Option<String>,
    /// The system's report: a signal's name, or `exit` and the code.
    pub system: Option<String>,
}

impl ProcessEnd {
    /// Reads it from the properties of a process.
    pub fn from_properties<'a>(property: impl Fn(&str) -> Option<&'a str>) -> Self {
        let owned = |key: &str| property(key).map(str::to_owned);
        Self {
            abort_code: owned(names::property::MPI_ABORT),
            missing_finalize: owned(names::property::MPI_MISSING_FINALIZE),
            system: owned(names::property::PROCESS_END),
        }
    }

    /// Reads it from the report of a merge.
    pub fn of(input: &InputReport) -> Self {
        Self {
            abort_code: input.abort_code.clone(),
            missing_finalize: input.missing_finalize.clone(),
            system: input.process_end.clone(),
        }
    }

    /// Returns whether something was noted: a process that ended well has nothing.
    pub fn is_noted(&self) -> bool {
        *self != Self::default()
    }

    /// Returns what the process did that other processes may have ended for: `called MPI_Abort with 42`, `exited with 3
    /// without MPI_Finalize`. `None` means that it noted nothing itself.
    pub fn cause(&self) -> Option<String> {
        if let Some(code) = &self.abort_code {
            return Some(format!("called MPI_Abort with {}", safe(code)));
        }
        let missing = safe(self.missing_finalize.as_ref()?);
        let code = self.system.as_ref().and_then(|end| exit_code(end));
        let with = code.map_or_else(String::new, |code| format!(" with {}", safe(code)));
        Some(format!("exited{with} without {missing}"))
    }

    /// Returns what the system reported, as a clause: `was ended by SIGSEGV`, `exited with 3`. `None` where it reported
    /// nothing, or where the cause already contains it.
    pub fn system_clause(&self) -> Option<String> {
        let end = self.system.as_ref()?;
        match exit_code(end) {
            Some(_) if self.abort_code.is_none() && self.missing_finalize.is_some() => None,
            Some(code) => Some(format!("exited with {}", safe(code))),
            None => Some(format!("was ended by {}", safe(end))),
        }
    }
}

fn exit_code(end: &str) -> Option<&str> {
    end.strip_prefix("exit ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_described_by_what_the_process_and_the_system_noted() {
        let end = |abort: Option<&str>, missing: Option<&str>, system: Option<&str>| {
            let end = ProcessEnd {
                abort_code: abort.map(str::to_owned),
                missing_finalize: missing.map(str::to_owned),
                system: system.map(str::to_owned),
            };
            (end.cause(), end.system_clause())
        };
        let both = |cause: Option<&str>, system: Option<&str>| {
            (cause.map(str::to_owned), system.map(str::to_owned))
        };
        let aborted = "called MPI_Abort with 42";
        assert_eq!(end(Some("42"), None, None), both(Some(aborted), None));
        assert_eq!(
            end(Some("42"), None, Some("exit 42")),
            both(Some(aborted), Some("exited with 42"))
        );
        let missing = Some("MPI_Finalize");
        assert_eq!(
            end(None, missing, None),
            both(Some("exited without MPI_Finalize"), None)
        );
        assert_eq!(
            end(None, missing, Some("exit 3")),
            both(Some("exited with 3 without MPI_Finalize"), None)
        );
        assert_eq!(
            end(None, missing, Some("SIGTERM")),
            both(
                Some("exited without MPI_Finalize"),
                Some("was ended by SIGTERM")
            )
        );
        assert_eq!(
            end(None, None, Some("SIGSEGV")),
            both(None, Some("was ended by SIGSEGV"))
        );
        assert_eq!(end(None, None, None), both(None, None));
    }
}
