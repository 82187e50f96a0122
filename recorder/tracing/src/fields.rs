//! The values of a span or an event: taken from `tracing` one by one, without an allocation.

use std::cell::{Cell, RefCell};
use std::fmt::{self, Write as _};
use std::panic::{AssertUnwindSafe, catch_unwind};

use tracing::field::{Field, Visit};

/// Most fields of a span or event that are recorded.
pub(crate) const MOST_FIELDS: usize = 32;

/// Most bytes of all text values of one event: with everything else in it, the event fits the
/// smallest page that a recorder may have.
const MOST_TEXT: usize = 3072;

/// Most bytes of one text value.
pub(crate) const MOST_VALUE: usize = 1024;

/// Most bytes of text of an event that is raised while its thread formats another one's values.
const MOST_NESTED_TEXT: usize = 512;

/// What a shortened text ends with.
const MARK: &[u8] = "…".as_bytes();

/// The text of a value whose `Debug` panicked.
const PANICKED: &str = "<panicked>";

/// What a value is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum ValueKind {
    #[default]
    Absent,
    I64,
    U64,
    F64,
    Bool,
    Text,
    Bytes,
}

/// A value. Texts and bytes lie in the buffer.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum Seen {
    #[default]
    Absent,
    I64(i64),
    U64(u64),
    F64(f64),
    Bool(bool),
    Text(u16, u16),
    Bytes(u16, u16),
}

impl Seen {
    pub(crate) const fn kind(self) -> ValueKind {
        match self {
            Self::Absent => ValueKind::Absent,
            Self::I64(_) => ValueKind::I64,
            Self::U64(_) => ValueKind::U64,
            Self::F64(_) => ValueKind::F64,
            Self::Bool(_) => ValueKind::Bool,
            Self::Text(..) => ValueKind::Text,
            Self::Bytes(..) => ValueKind::Bytes,
        }
    }
}

/// How deep events may be raised while other ones' values are formatted: a `Debug` that raises an
/// event with itself in it would never end.
const DEEPEST: u8 = 4;

thread_local! {
    /// Events of the thread whose values are being taken.
    static DEPTH: Cell<u8> = const { Cell::new(0) };
    /// Has no destructor: events may be raised in destructors of other thread-local values.
    static TEXT: RefCell<[u8; MOST_TEXT]> = const { RefCell::new([0; MOST_TEXT]) };
}

/// The values of one event.
pub(crate) struct Values<'a> {
    seen: [Seen; MOST_FIELDS],
    text: &'a mut [u8],
    used: usize,
    /// Values that are not whole.
    pub(crate) shortened: u32,
    /// Values whose `Debug` panicked.
    pub(crate) panicked: u32,
}

impl Values<'_> {
    /// Calls the function with a buffer for values. Returns `None`, without a call, if events are
    /// nested too deeply.
    pub(crate) fn with<T>(function: impl FnOnce(&mut Values<'_>) -> T) -> Option<T> {
        struct Nested(u8);
        impl Drop for Nested {
            fn drop(&mut self) {
                DEPTH.with(|depth| depth.set(self.0));
            }
        }
        let depth = DEPTH.with(Cell::get);
        if depth == DEEPEST {
            return None;
        }
        DEPTH.with(|deeper| deeper.set(depth + 1));
        let _nested = Nested(depth);
        let on = |text: &mut [u8]| {
            function(&mut Values {
                seen: [Seen::Absent; MOST_FIELDS],
                text,
                used: 0,
                shortened: 0,
                panicked: 0,
            })
        };
        Some(TEXT.with(|text| match text.try_borrow_mut() {
            Ok(mut text) => on(&mut *text),
            // A `Debug` that is being recorded raises events itself.
            Err(_) => on(&mut [0; MOST_NESTED_TEXT]),
        }))
    }

    /// Returns the values of the first fields, as many as `count`.
    pub(crate) fn seen(&self, count: usize) -> &[Seen] {
        &self.seen[..count.min(MOST_FIELDS)]
    }

    pub(crate) fn is_empty(&self, count: usize) -> bool {
        let seen = self.seen(count);
        seen.iter().all(|value| matches!(value, Seen::Absent))
    }

    /// Returns the bytes of [`Seen::Text`] and [`Seen::Bytes`].
    pub(crate) fn bytes(&self, start: u16, end: u16) -> &[u8] {
        self.text
            .get(usize::from(start)..usize::from(end))
            .unwrap_or_default()
    }

    /// Makes every value a text.
    pub(crate) fn write_all_as_text(&mut self, count: usize) {
        for index in 0..count.min(MOST_FIELDS) {
            let text = match self.seen[index] {
                Seen::I64(value) => self.write(|out| write!(out, "{value}")),
                Seen::U64(value) => self.write(|out| write!(out, "{value}")),
                Seen::F64(value) => self.write(|out| write!(out, "{value}")),
                Seen::Bool(value) => self.write(|out| write!(out, "{value}")),
                Seen::Bytes(start, end) => (start, end),
                Seen::Text(..) | Seen::Absent => continue,
            };
            self.seen[index] = Seen::Text(text.0, text.1);
        }
    }

    fn set(&mut self, field: &Field, seen: Seen) {
        match self.seen.get_mut(field.index()) {
            Some(place) => *place = seen,
            None => self.shortened += 1,
        }
    }

    /// Writes a text, as much of it as there is room for.
    fn write(&mut self, write: impl FnOnce(&mut Bounded<'_>) -> fmt::Result) -> (u16, u16) {
        let start = self.used;
        let end = self.text.len().min(start + MOST_VALUE);
        let mut out = Bounded {
            room: &mut self.text[start..end],
            used: 0,
            is_short: false,
        };
        // What panics here panics in the program's own code, which would not have run without us.
        let outcome = catch_unwind(AssertUnwindSafe(|| write(&mut out)));
        if outcome.is_err() {
            out.used = 0;
            out.is_short = false;
            let _ = out.write_str(PANICKED);
            self.panicked += 1;
        }
        if out.is_short {
            out.end_with_mark();
            self.shortened += 1;
        }
        self.used = start + out.used;
        (start as u16, self.used as u16)
    }
}

impl Visit for Values<'_> {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.set(field, Seen::F64(value));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.set(field, Seen::I64(value));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.set(field, Seen::U64(value));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.set(field, Seen::Bool(value));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        let (start, end) = self.write(|out| out.write_str(value));
        self.set(field, Seen::Text(start, end));
    }

    fn record_bytes(&mut self, field: &Field, value: &[u8]) {
        let start = self.used;
        let room = self.text.len().min(start + MOST_VALUE) - start;
        let length = value.len().min(room);
        self.shortened += u32::from(length < value.len());
        self.used += length;
        self.text[start..self.used].copy_from_slice(&value[..length]);
        self.set(field, Seen::Bytes(start as u16, self.used as u16));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let (start, end) = self.write(|out| write!(out, "{value:?}"));
        self.set(field, Seen::Text(start, end));
    }
}

/// Text of at most the given number of bytes.
/// More is an error, so that formatting ends early.
struct Bounded<'a> {
    room: &'a mut [u8],
    used: usize,
    is_short: bool,
}

impl Bounded<'_> {
    fn end_with_mark(&mut self) {
        let Some(mut end) = self.room.len().checked_sub(MARK.len()) else {
            return;
        };
        if end < self.used {
            // Not in the middle of a character.
            while end > 0 && self.room[end] & 0xc0 == 0x80 {
                end -= 1;
            }
        } else {
            end = self.used;
        }
        self.room[end..end + MARK.len()].copy_from_slice(MARK);
        self.used = end + MARK.len();
    }
}

impl fmt::Write for Bounded<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.is_short {
            return Err(fmt::Error);
        }
        let room = self.room.len() - self.used;
        let mut length = text.len().min(room);
        while !text.is_char_boundary(length) {
            length -= 1;
        }
        self.room[self.used..self.used + length].copy_from_slice(&text.as_bytes()[..length]);
        self.used += length;
        if length < text.len() {
            self.is_short = true;
            return Err(fmt::Error);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(room: usize, parts: &[&str]) -> String {
        let mut room = vec![0; room];
        let mut out = Bounded {
            room: &mut room,
            used: 0,
            is_short: false,
        };
        for part in parts {
            let _ = out.write_str(part);
        }
        if out.is_short {
            out.end_with_mark();
        }
        let used = out.used;
        String::from_utf8(room[..used].to_vec()).unwrap()
    }

    #[test]
    fn a_text_that_is_too_long_is_cut_between_characters_and_says_so() {
        assert_eq!(written(8, &["abcd", "efgh"]), "abcdefgh");
        assert_eq!(written(8, &["abcd", "efghi"]), "abcde…");
        assert_eq!(written(8, &["äöüäöü"]), "äö…");
        assert_eq!(written(9, &["äöüäöü"]), "äöü…");
        assert_eq!(written(2, &["äöüäöü"]), "ä");
        assert_eq!(written(0, &["a"]), "");
    }

    /// For every room and length: valid, bounded, and whole when it fits.
    #[test]
    fn every_cut_is_valid_text() {
        let text = "aä€𝄞".repeat(8);
        for room in 0..text.len() + 2 {
            let cut = written(room, &[&text]);
            assert!(cut.len() <= room, "{room}: {cut}");
            assert_eq!(cut == text, room >= text.len(), "{room}: {cut}");
        }
    }
}
