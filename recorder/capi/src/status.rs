//! Status codes, their texts, and the text of a thread's last error.
#![expect(
    unsafe_code,
    reason = "exported functions; they touch no memory of the caller"
)]

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};

use annals_recorder::{RecorderError, Refusal};

/// The outcome of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub enum Status {
    Ok = 0,
    ErrorNull = 1,
    ErrorHandle = 2,
    ErrorText = 3,
    ErrorSetting = 4,
    ErrorDefinition = 5,
    ErrorConflict = 6,
    ErrorValues = 7,
    ErrorFull = 8,
    ErrorFinished = 9,
    ErrorForked = 10,
    ErrorSystem = 11,
    ErrorSnapshot = 12,
    ErrorReentered = 13,
    ErrorTooSmall = 14,
    ErrorPanic = 15,
}

impl Status {
    pub const ALL: [Self; 16] = [
        Self::Ok,
        Self::ErrorNull,
        Self::ErrorHandle,
        Self::ErrorText,
        Self::ErrorSetting,
        Self::ErrorDefinition,
        Self::ErrorConflict,
        Self::ErrorValues,
        Self::ErrorFull,
        Self::ErrorFinished,
        Self::ErrorForked,
        Self::ErrorSystem,
        Self::ErrorSnapshot,
        Self::ErrorReentered,
        Self::ErrorTooSmall,
        Self::ErrorPanic,
    ];

    const fn text(self) -> &'static CStr {
        match self {
            Self::Ok => c"success",
            Self::ErrorNull => c"a pointer is NULL that must not be NULL",
            Self::ErrorHandle => c"the handle is not valid, or belongs to another recorder",
            Self::ErrorText => c"a text is not UTF-8",
            Self::ErrorSetting => c"a setting has no usable value",
            Self::ErrorDefinition => c"the definition contradicts itself",
            Self::ErrorConflict => c"the name is taken by a different definition",
            Self::ErrorValues => c"the values do not fit the event type",
            Self::ErrorFull => c"no room is left for more of these",
            Self::ErrorFinished => c"the recording is finished",
            Self::ErrorForked => c"this process is a forked child; its parent has the recording",
            Self::ErrorSystem => c"the operating system returned an error",
            Self::ErrorSnapshot => c"no snapshot could be written",
            Self::ErrorReentered => {
                c"another call of this thread is in progress: this is a signal handler or a clock"
            }
            Self::ErrorTooSmall => c"the buffer is too small; what fits is in it",
            Self::ErrorPanic => c"an internal error of Annals; it was contained",
        }
    }

    #[inline]
    pub const fn of_raise(outcome: Result<(), Refusal>) -> Self {
        match outcome {
            Ok(()) => Self::Ok,
            Err(Refusal::Unknown) => Self::ErrorHandle,
            Err(Refusal::Values) => Self::ErrorValues,
            Err(Refusal::Finished) => Self::ErrorFinished,
            Err(Refusal::Forked) => Self::ErrorForked,
            // Only `Raiser::short` returns it, and converts it before this point.
            Err(Refusal::NotShort) => Self::ErrorPanic,
        }
    }
}

/// Why a call failed, in words as well.
#[derive(Debug)]
pub struct Failure {
    pub status: Status,
    pub why: String,
}

impl Failure {
    pub fn new(status: Status, why: impl Into<String>) -> Self {
        let why = why.into();
        Self { status, why }
    }
}

impl From<Status> for Failure {
    fn from(status: Status) -> Self {
        Self::new(status, status.text().to_string_lossy())
    }
}

impl From<RecorderError> for Failure {
    fn from(error: RecorderError) -> Self {
        let status = match &error {
            RecorderError::Setting { .. } => Status::ErrorSetting,
            RecorderError::Finished => Status::ErrorFinished,
            RecorderError::Conflict { .. } => Status::ErrorConflict,
            RecorderError::Definition { .. } => Status::ErrorDefinition,
            RecorderError::Snapshot { .. } => Status::ErrorSnapshot,
            RecorderError::Full { .. } => Status::ErrorFull,
            RecorderError::Unknown { .. } => Status::ErrorHandle,
            // The rest are the system's: files and memory.
            _ => Status::ErrorSystem,
        };
        let mut why = error.to_string();
        let mut cause = std::error::Error::source(&error);
        while let Some(inner) = cause {
            why = format!("{why}: {inner}");
            cause = inner.source();
        }
        Self::new(status, why)
    }
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// Keeps the words of a failure for [`annals_last_error`].
pub fn remember(failure: Failure) -> Status {
    let text = CString::new(failure.why.replace('\0', " ")).unwrap_or_default();
    // A thread that is about to end has no place for it any more.
    let _ = LAST.try_with(|last| {
        if let Ok(mut last) = last.try_borrow_mut() {
            *last = text;
        }
    });
    failure.status
}

#[unsafe(no_mangle)]
pub extern "C" fn annals_status_text(status: i32) -> *const c_char {
    let known = Status::ALL.iter().find(|known| **known as i32 == status);
    let text = known.map_or(c"not a status of Annals", |known| known.text());
    text.as_ptr()
}

#[unsafe(no_mangle)]
pub extern "C" fn annals_last_error() -> *const c_char {
    let last = LAST.try_with(|last| last.try_borrow().ok().map(|text| text.as_ptr()));
    last.ok().flatten().unwrap_or(c"".as_ptr())
}
