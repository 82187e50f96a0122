//! Errors of the interface's calls, with the standard's name and this library's code for each.

/// Why a call failed (MPI 4.1 §16.3.10 lists the codes). None of them is fatal, and none changes
/// anything.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
#[repr(i32)]
pub enum Error {
    /// `ERR_INVALID`: the interface is used wrongly, or an argument is not valid.
    Invalid = 1,
    /// `ERR_MEMORY`: no memory is left.
    Memory = 2,
    /// `ERR_NOT_INITIALIZED`: the interface is not initialised.
    NotInitialized = 3,
    /// `ERR_CANNOT_INIT`: the interface cannot be initialised now.
    CannotInit = 4,
    /// `ERR_NOT_ACCESSIBLE`: not in this context, such as a callback in a signal handler.
    NotAccessible = 5,
    /// `ERR_NOT_SUPPORTED`: the thing cannot do that.
    NotSupported = 6,
    /// `ERR_INVALID_INDEX`: nothing has this index.
    InvalidIndex = 7,
    /// `ERR_INVALID_ITEM`: the enumeration has no such item.
    InvalidItem = 8,
    /// `ERR_INVALID_NAME`: nothing has this name.
    InvalidName = 9,
    /// `ERR_INVALID_HANDLE`: the handle was never given, or is freed.
    InvalidHandle = 10,
    /// `ERR_OUT_OF_HANDLES`: no more handles are available.
    OutOfHandles = 11,
    /// `ERR_OUT_OF_SESSIONS`: no more sessions are available.
    OutOfSessions = 12,
    /// `ERR_INVALID_SESSION`: no session, or one that is freed.
    InvalidSession = 13,
    /// `ERR_CVAR_SET_NOT_NOW`: the variable can be set, but not at this moment.
    CvarSetNotNow = 14,
    /// `ERR_CVAR_SET_NEVER`: the variable cannot be set any more.
    CvarSetNever = 15,
    /// `ERR_PVAR_NO_STARTSTOP`: the variable cannot be started or stopped.
    PvarNoStartStop = 16,
    /// `ERR_PVAR_NO_WRITE`: the variable cannot be written or reset.
    PvarNoWrite = 17,
    /// `ERR_PVAR_NO_ATOMIC`: the variable cannot be read and reset in one.
    PvarNoAtomic = 18,
}

impl Error {
    /// All of them, in the order of their codes.
    pub const ALL: [Self; 18] = [
        Self::Invalid,
        Self::Memory,
        Self::NotInitialized,
        Self::CannotInit,
        Self::NotAccessible,
        Self::NotSupported,
        Self::InvalidIndex,
        Self::InvalidItem,
        Self::InvalidName,
        Self::InvalidHandle,
        Self::OutOfHandles,
        Self::OutOfSessions,
        Self::InvalidSession,
        Self::CvarSetNotNow,
        Self::CvarSetNever,
        Self::PvarNoStartStop,
        Self::PvarNoWrite,
        Self::PvarNoAtomic,
    ];

    /// Returns its code in the C interface; success is 0.
    pub const fn code(self) -> i32 {
        self as i32
    }

    /// Returns the standard's name, without `MPI_T_ERR_`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Invalid => "INVALID",
            Self::Memory => "MEMORY",
            Self::NotInitialized => "NOT_INITIALIZED",
            Self::CannotInit => "CANNOT_INIT",
            Self::NotAccessible => "NOT_ACCESSIBLE",
            Self::NotSupported => "NOT_SUPPORTED",
            Self::InvalidIndex => "INVALID_INDEX",
            Self::InvalidItem => "INVALID_ITEM",
            Self::InvalidName => "INVALID_NAME",
            Self::InvalidHandle => "INVALID_HANDLE",
            Self::OutOfHandles => "OUT_OF_HANDLES",
            Self::OutOfSessions => "OUT_OF_SESSIONS",
            Self::InvalidSession => "INVALID_SESSION",
            Self::CvarSetNotNow => "CVAR_SET_NOT_NOW",
            Self::CvarSetNever => "CVAR_SET_NEVER",
            Self::PvarNoStartStop => "PVAR_NO_STARTSTOP",
            Self::PvarNoWrite => "PVAR_NO_WRITE",
            Self::PvarNoAtomic => "PVAR_NO_ATOMIC",
        }
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "MPI_T_ERR_{}", self.name())
    }
}

impl std::error::Error for Error {}

/// The result of a call of the interface.
pub type Result<T> = std::result::Result<T, Error>;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::Error;

    #[test]
    fn every_error_has_a_code_and_a_name_of_its_own() {
        for (index, error) in Error::ALL.iter().enumerate() {
            // Success is 0, and no error is.
            assert_eq!(error.code() as usize, index + 1);
            let same = Error::ALL.iter().filter(|e| e.name() == error.name());
            assert_eq!(same.count(), 1, "{error}");
        }
    }
}
