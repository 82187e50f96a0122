//! The library that records: that of the process, if `trace-cli record` preloaded one, or the package's own. Both have the
//! interface of `annals.h`, whose structures and constants are repeated here as far as they are used.
#![expect(
    unsafe_code,
    reason = "functions of the C interface, found by name in a library"
)]

use std::ffi::{CStr, CString, c_char, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::null;
use std::sync::OnceLock;

use pyo3::PyErr;
use pyo3::PyResult;
use pyo3::exceptions::{PyOSError, PyRuntimeError, PyValueError};

/// A handle: of a recorder, a region, an event type or a source.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[repr(C)]
pub(crate) struct Handle {
    pub(crate) bits: u64,
}

#[repr(C)]
struct Setting {
    name: *const c_char,
    value: *const c_char,
}

/// An element's value: its type, and bits or a pointer to bytes.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Value {
    kind: u32,
    length: u32,
    bits: u64,
}

impl Value {
    pub(crate) const ABSENT: Self = Self {
        kind: 0,
        length: 0,
        bits: 0,
    };

    pub(crate) const fn integer(value: i64) -> Self {
        Self {
            kind: element_type::I64,
            length: 0,
            bits: value as u64,
        }
    }

    pub(crate) const fn unsigned(value: u64) -> Self {
        Self {
            kind: element_type::U64,
            length: 0,
            bits: value,
        }
    }

    pub(crate) const fn float(value: f64) -> Self {
        Self {
            kind: element_type::F64,
            length: 0,
            bits: value.to_bits(),
        }
    }

    /// The bytes must live until the event is raised. `None` if there are 2³² or more.
    pub(crate) fn bytes(kind: u32, bytes: &[u8]) -> Option<Self> {
        Some(Self {
            kind,
            length: u32::try_from(bytes.len()).ok()?,
            bits: bytes.as_ptr() as u64,
        })
    }

    /// What `annals_region_value()` returns.
    pub(crate) const fn region(region: Handle) -> Self {
        Self {
            kind: element_type::U32,
            length: 0,
            bits: region.bits & 0x0fff_ffff,
        }
    }
}

/// Types of elements.
pub(crate) mod element_type {
    pub(crate) const U32: u32 = 2;
    pub(crate) const I64: u32 = 3;
    pub(crate) const U64: u32 = 4;
    pub(crate) const F64: u32 = 5;
    pub(crate) const STRING: u32 = 6;
    pub(crate) const BYTES: u32 = 7;
}

/// Roles of event types.
pub(crate) mod role {
    pub(crate) const POINT: u32 = 0;
    pub(crate) const ENTER: u32 = 1;
    pub(crate) const LEAVE: u32 = 2;
}

const REFERENCE_REGION: u32 = 2;
const ENVIRONMENT_WINS: u32 = 1;
const OK: i32 = 0;

#[repr(C)]
struct Element {
    name: *const c_char,
    unit: *const c_char,
    kind: u32,
    reference: u32,
    is_optional: u32,
    reserved: u32,
}

#[repr(C)]
struct EventTypeSpec {
    size: usize,
    name: *const c_char,
    description: *const c_char,
    verbosity: u32,
    role: u32,
    key: *const c_char,
    elements: *const Element,
    element_count: usize,
}

#[repr(C)]
struct SourceSpec {
    size: usize,
    name: *const c_char,
    description: *const c_char,
    ordering: u32,
    overflow: u32,
    clock: Handle,
    own_location: u32,
    reserved: u32,
}

/// How a recorder is doing.
#[derive(Clone, Copy, Default, Debug)]
#[repr(C)]
pub(crate) struct Statistics {
    size: usize,
    pub(crate) raised: u64,
    pub(crate) dropped: u64,
    pub(crate) suppressed: u64,
    pub(crate) blocked_ns: u64,
    pub(crate) snapshots: u64,
    pub(crate) written_bytes: u64,
    pub(crate) free_pages: u64,
    pub(crate) pages: u64,
    pub(crate) raised_after_finish: u64,
    pub(crate) misused: u64,
    pub(crate) is_finished: u32,
    pub(crate) is_kill_safe: u32,
    pub(crate) has_storage_failed: u32,
    reserved: u32,
}

/// The functions of a library, by the names that `annals.h` has for them.
macro_rules! functions {
    ($($name:ident: fn($($argument:ty),*) -> $result:ty;)*) => {
        /// The library's functions.
        #[derive(Clone, Copy, Debug)]
        pub(crate) struct Functions {
            $($name: unsafe extern "C" fn($($argument),*) -> $result,)*
        }

        impl Functions {
            /// # Safety
            /// - A function of such a name has the type that `annals.h` has for it.
            unsafe fn find(library: *mut c_void) -> PyResult<Self> {
                Ok(Self {
                    $($name: {
                        let name = concat!("annals_", stringify!($name), "\0");
                        // SAFETY: the name ends with a zero.
                        let found = unsafe { libc::dlsym(library, name.as_ptr().cast()) };
                        if found.is_null() {
                            let name = name.trim_end_matches('\0');
                            let why = format!("the library that records has no function `{name}`: it is of another version");
                            return Err(PyRuntimeError::new_err(why));
                        }
                        // SAFETY: the condition of this function.
                        unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($argument),*) -> $result>(found) }
                    },)*
                })
            }
        }
    };
}

functions! {
    start: fn(*const Setting, usize, u32, *mut Handle) -> i32;
    finish: fn(Handle, *mut Statistics) -> i32;
    make_global: fn(Handle) -> i32;
    global: fn() -> Handle;
    read_statistics: fn(Handle, *mut Statistics) -> i32;
    recording_path: fn(Handle, *mut c_char, usize, *mut usize) -> i32;
    pause: fn(Handle) -> i32;
    resume: fn(Handle) -> i32;
    snapshot: fn(Handle, *mut c_char, usize, *mut usize) -> i32;
    add_property: fn(Handle, *const c_char, *const c_char) -> i32;
    add_region_at: fn(Handle, *const c_char, *const c_char, u32, *const c_char, *mut Handle) -> i32;
    add_event_type: fn(Handle, *const EventTypeSpec, *mut Handle) -> i32;
    add_metric: fn(Handle, *const c_char, *const c_char, u32, *mut Handle) -> i32;
    add_source: fn(Handle, *const SourceSpec, *mut Handle) -> i32;
    threads: fn(Handle, *mut Handle) -> i32;
    enter: fn(Handle) -> i32;
    leave: fn(Handle) -> i32;
    raise: fn(Handle, *const Value, usize) -> i32;
    raise_on: fn(Handle, Handle, *const Value, usize) -> i32;
    report_dropped: fn(Handle, Handle, u64) -> i32;
    last_error: fn() -> *const c_char;
    status_text: fn(i32) -> *const c_char;
}

static FUNCTIONS: OnceLock<Functions> = OnceLock::new();

/// Returns the library's functions. `own` is the path of the package's own library, which is loaded if the process has none.
///
/// # Errors
/// If there is neither.
pub(crate) fn functions(own: &Path) -> PyResult<&'static Functions> {
    if let Some(functions) = FUNCTIONS.get() {
        return Ok(functions);
    }
    // SAFETY: the name ends with a zero.
    let preloaded = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"annals_start".as_ptr()) };
    let library = if preloaded.is_null() {
        let path = CString::new(own.as_os_str().as_bytes())?;
        // SAFETY: the path ends with a zero; the library's constructors do nothing that a program must know of.
        let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if library.is_null() {
            // SAFETY: after a failure, the text is there until the next call.
            let why = unsafe { CStr::from_ptr(libc::dlerror()) };
            let why = format!(
                "the library that records cannot be loaded: {}",
                why.to_string_lossy()
            );
            return Err(PyOSError::new_err(why));
        }
        library
    } else {
        libc::RTLD_DEFAULT
    };
    // SAFETY: both libraries have the interface of `annals.h`.
    let found = unsafe { Functions::find(library) }?;
    Ok(FUNCTIONS.get_or_init(|| found))
}

/// Returns a text with a zero at its end.
///
/// # Errors
/// If it has a zero in it.
pub(crate) fn text(what: &str, text: &str) -> PyResult<CString> {
    CString::new(text).map_err(|_| PyValueError::new_err(format!("{what}: has a zero character")))
}

fn text_or_none(what: &str, given: &str) -> PyResult<Option<CString>> {
    (!given.is_empty()).then(|| text(what, given)).transpose()
}

fn pointer(text: Option<&CString>) -> *const c_char {
    text.map_or(null(), |text| text.as_ptr())
}

/// An element of an event type, to be added.
#[derive(Clone, Debug)]
pub(crate) struct ElementSpec {
    pub(crate) name: String,
    pub(crate) kind: u32,
    pub(crate) is_region: bool,
}

impl Functions {
    fn check(&self, status: i32) -> PyResult<()> {
        if status == OK {
            return Ok(());
        }
        // SAFETY: both functions return texts that are there at least until the next call.
        let (meaning, why) = unsafe {
            (
                CStr::from_ptr((self.status_text)(status)),
                CStr::from_ptr((self.last_error)()),
            )
        };
        let why = match why.to_string_lossy() {
            why if why.is_empty() => meaning.to_string_lossy().into_owned(),
            why => why.into_owned(),
        };
        Err(self.error(status, why))
    }

    fn error(&self, status: i32, why: String) -> PyErr {
        match status {
            // A setting, a definition, a name.
            3..=7 => PyValueError::new_err(why),
            11 => PyOSError::new_err(why),
            _ => PyRuntimeError::new_err(why),
        }
    }

    /// Starts a recorder. The environment's settings override these.
    pub(crate) fn start(&self, settings: &[(String, String)]) -> PyResult<Handle> {
        let texts = settings.iter().map(|(name, value)| {
            let value = text(name, value)?;
            Ok((text("a setting's name", name)?, value))
        });
        let texts: Vec<(CString, CString)> = texts.collect::<PyResult<_>>()?;
        let given = texts.iter().map(|(name, value)| Setting {
            name: name.as_ptr(),
            value: value.as_ptr(),
        });
        let given: Vec<Setting> = given.collect();
        let mut recorder = Handle::default();
        // SAFETY: the texts live until the call returns.
        let status =
            unsafe { (self.start)(given.as_ptr(), given.len(), ENVIRONMENT_WINS, &mut recorder) };
        self.check(status).map(|()| recorder)
    }

    /// Finishes a recording.
    pub(crate) fn finish(&self, recorder: Handle) -> PyResult<Statistics> {
        let mut statistics = Statistics {
            size: size_of::<Statistics>(),
            ..Statistics::default()
        };
        // SAFETY: the structure has its size.
        self.check(unsafe { (self.finish)(recorder, &mut statistics) })?;
        Ok(statistics)
    }

    pub(crate) fn statistics(&self, recorder: Handle) -> PyResult<Statistics> {
        let mut statistics = Statistics {
            size: size_of::<Statistics>(),
            ..Statistics::default()
        };
        // SAFETY: the structure has its size.
        self.check(unsafe { (self.read_statistics)(recorder, &mut statistics) })?;
        Ok(statistics)
    }

    pub(crate) fn make_global(&self, recorder: Handle) -> PyResult<()> {
        // SAFETY: any handle may be passed.
        self.check(unsafe { (self.make_global)(recorder) })
    }

    /// Returns the global recorder.
    pub(crate) fn global(&self) -> Option<Handle> {
        // SAFETY: the function has no conditions.
        let recorder = unsafe { (self.global)() };
        (recorder != Handle::default()).then_some(recorder)
    }

    pub(crate) fn pause(&self, recorder: Handle, is_paused: bool) -> PyResult<()> {
        let function = if is_paused { self.pause } else { self.resume };
        // SAFETY: any handle may be passed.
        self.check(unsafe { function(recorder) })
    }

    /// Returns the path that a function stores.
    fn path_of(
        &self,
        function: unsafe extern "C" fn(Handle, *mut c_char, usize, *mut usize) -> i32,
        recorder: Handle,
    ) -> PyResult<String> {
        let mut path = vec![0_u8; 4096];
        let mut length = 0;
        let pointer = path.as_mut_ptr().cast();
        // SAFETY: the memory has the length that is passed.
        let status = unsafe { function(recorder, pointer, path.len(), &mut length) };
        self.check(status)?;
        path.truncate(length);
        Ok(String::from_utf8_lossy(&path).into_owned())
    }

    pub(crate) fn path(&self, recorder: Handle) -> PyResult<String> {
        self.path_of(self.recording_path, recorder)
    }

    pub(crate) fn snapshot(&self, recorder: Handle) -> PyResult<String> {
        self.path_of(self.snapshot, recorder)
    }

    pub(crate) fn add_property(&self, recorder: Handle, key: &str, value: &str) -> PyResult<()> {
        let (key, value) = (text("a property's name", key)?, text("a property", value)?);
        // SAFETY: the texts live until the call returns.
        self.check(unsafe { (self.add_property)(recorder, key.as_ptr(), value.as_ptr()) })
    }

    /// Adds a region; an empty file and line 0 mean that they are not known.
    pub(crate) fn add_region(
        &self,
        recorder: Handle,
        name: &str,
        file: &str,
        line: u32,
        group: &str,
    ) -> PyResult<Handle> {
        let name = text("a region's name", name)?;
        let file = text_or_none("a region's file", file)?;
        let group = text_or_none("a region's group", group)?;
        let mut region = Handle::default();
        // SAFETY: the texts live until the call returns.
        let status = unsafe {
            let (file, group) = (pointer(file.as_ref()), pointer(group.as_ref()));
            (self.add_region_at)(recorder, name.as_ptr(), file, line, group, &mut region)
        };
        self.check(status).map(|()| region)
    }

    pub(crate) fn add_event_type(
        &self,
        recorder: Handle,
        name: &str,
        description: &str,
        role: u32,
        elements: &[ElementSpec],
    ) -> PyResult<Handle> {
        let name = text("an event type's name", name)?;
        let description = text_or_none("a description", description)?;
        let names = elements
            .iter()
            .map(|element| text("an element's name", &element.name));
        let names: Vec<CString> = names.collect::<PyResult<_>>()?;
        let elements = names.iter().zip(elements).map(|(name, element)| Element {
            name: name.as_ptr(),
            unit: null(),
            kind: element.kind,
            reference: if element.is_region {
                REFERENCE_REGION
            } else {
                0
            },
            is_optional: u32::from(!element.is_region),
            reserved: 0,
        });
        let elements: Vec<Element> = elements.collect();
        let spec = EventTypeSpec {
            size: size_of::<EventTypeSpec>(),
            name: name.as_ptr(),
            description: pointer(description.as_ref()),
            verbosity: 0,
            role,
            key: null(),
            elements: elements.as_ptr(),
            element_count: elements.len(),
        };
        let mut event_type = Handle::default();
        // SAFETY: everything in the structure lives until the call returns.
        let status = unsafe { (self.add_event_type)(recorder, &spec, &mut event_type) };
        self.check(status).map(|()| event_type)
    }

    pub(crate) fn add_metric(
        &self,
        recorder: Handle,
        name: &str,
        unit: &str,
        kind: u32,
    ) -> PyResult<Handle> {
        let (name, unit) = (
            text("a metric's name", name)?,
            text_or_none("a unit", unit)?,
        );
        let mut metric = Handle::default();
        // SAFETY: the texts live until the call returns.
        let status = unsafe {
            let unit = pointer(unit.as_ref());
            (self.add_metric)(recorder, name.as_ptr(), unit, kind, &mut metric)
        };
        self.check(status).map(|()| metric)
    }

    /// Adds a source whose events are at a separate location.
    pub(crate) fn add_source(&self, recorder: Handle, name: &str) -> PyResult<Handle> {
        let name = text("a source's name", name)?;
        let spec = SourceSpec {
            size: size_of::<SourceSpec>(),
            name: name.as_ptr(),
            description: null(),
            ordering: 0,
            overflow: 0,
            clock: Handle::default(),
            own_location: 1,
            reserved: 0,
        };
        let mut source = Handle::default();
        // SAFETY: everything in the structure lives until the call returns.
        let status = unsafe { (self.add_source)(recorder, &spec, &mut source) };
        self.check(status).map(|()| source)
    }

    /// Returns the source of the process's threads.
    pub(crate) fn threads(&self, recorder: Handle) -> PyResult<Handle> {
        let mut source = Handle::default();
        // SAFETY: the result is written to memory of its type.
        let status = unsafe { (self.threads)(recorder, &mut source) };
        self.check(status).map(|()| source)
    }

    #[inline]
    pub(crate) fn enter(&self, region: Handle) {
        // SAFETY: any handle may be passed. What is not recorded is counted by the recorder.
        unsafe { (self.enter)(region) };
    }

    #[inline]
    pub(crate) fn leave(&self, region: Handle) {
        // SAFETY: any handle may be passed. What is not recorded is counted by the recorder.
        unsafe { (self.leave)(region) };
    }

    /// Raises an event. The status says whether it was: 0 means that it was recorded or counted.
    #[inline]
    pub(crate) fn raise(&self, event_type: Handle, values: &[Value]) -> i32 {
        // SAFETY: the values and their bytes live until the call returns.
        unsafe { (self.raise)(event_type, values.as_ptr(), values.len()) }
    }

    /// Raises an event of a source.
    #[inline]
    pub(crate) fn raise_on(&self, source: Handle, event_type: Handle, values: &[Value]) -> i32 {
        // SAFETY: the values and their bytes live until the call returns.
        unsafe { (self.raise_on)(source, event_type, values.as_ptr(), values.len()) }
    }

    /// Counts an event as dropped.
    pub(crate) fn report_dropped(&self, source: Handle, event_type: Handle) {
        // SAFETY: any handles may be passed.
        unsafe { (self.report_dropped)(source, event_type, 1) };
    }

    /// # Errors
    /// If the status is that of values that do not fit.
    pub(crate) fn check_raised(&self, status: i32) -> PyResult<()> {
        const VALUES: i32 = 7;
        match status {
            VALUES => Err(PyValueError::new_err(
                "the values do not fit the event type",
            )),
            _ => Ok(()),
        }
    }
}
