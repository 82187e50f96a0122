//! Text that is not UTF-8: file systems, threads and MPI allow such names, programs such values.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Returns bytes as text. If they are not UTF-8, each byte that is not becomes `\xNN` and each backslash `\\`, so that the
/// bytes can be found again: `caf\xe9` for a name in Latin-1.
pub fn text_of(bytes: &[u8]) -> Cow<'_, str> {
    if let Ok(text) = std::str::from_utf8(bytes) {
        return Cow::Borrowed(text);
    }
    let mut text = String::with_capacity(bytes.len() + 8);
    for chunk in bytes.utf8_chunks() {
        text.push_str(&chunk.valid().replace('\\', "\\\\"));
        for byte in chunk.invalid() {
            // Writing to a string does not fail.
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    Cow::Owned(text)
}

/// Returns the value of an element as text, so that different values are different texts. Each byte that is not UTF-8
/// becomes `\xNN`. A backslash is doubled where it would be read as an escape: before a backslash, before `x` and two
/// hexadecimal digits, and before a byte that is not UTF-8.
pub fn text_of_value(bytes: &[u8]) -> Cow<'_, str> {
    if let Ok(text) = std::str::from_utf8(bytes)
        && !text.contains("\\\\")
        && !text.contains("\\x")
    {
        return Cow::Borrowed(text);
    }
    let mut text = String::with_capacity(bytes.len() + 8);
    for chunk in bytes.utf8_chunks() {
        let valid = chunk.valid().as_bytes();
        for (index, c) in chunk.valid().char_indices() {
            let is_escape = c == '\\'
                && match &valid[index + 1..] {
                    [] => !chunk.invalid().is_empty(),
                    [b'x', high, low, ..] => high.is_ascii_hexdigit() && low.is_ascii_hexdigit(),
                    [next, ..] => *next == b'\\',
                };
            if is_escape {
                text.push(c);
            }
            text.push(c);
        }
        for byte in chunk.invalid() {
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    Cow::Owned(text)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn bytes_that_are_not_utf_8_can_be_found_again() {
        assert_eq!(text_of("café\\x".as_bytes()), "café\\x");
        assert_eq!(text_of(b"caf\xe9"), "caf\\xe9");
        assert_eq!(text_of(b"a\\b\xff\xfec"), "a\\\\b\\xff\\xfec");
        assert_eq!(text_of(b""), "");
    }

    /// Returns the bytes of which [`text_of_value`] made a text.
    fn value_of(text: &str) -> Vec<u8> {
        let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
        while let [first, after @ ..] = rest {
            let digits = match rest {
                [b'\\', b'x', high, low, ..] => std::str::from_utf8(&[*high, *low])
                    .map(|digits| u8::from_str_radix(digits, 16).ok())
                    .ok()
                    .flatten(),
                _ => None,
            };
            let (byte, length) = match (digits, after) {
                (Some(byte), _) => (byte, 4),
                (None, [b'\\', ..]) if *first == b'\\' => (b'\\', 2),
                _ => (*first, 1),
            };
            bytes.push(byte);
            rest = &rest[length..];
        }
        bytes
    }

    #[test]
    fn an_escape_in_a_value_is_not_a_byte() {
        assert_eq!(text_of_value(b"\xff"), "\\xff");
        assert_eq!(text_of_value(br"\xff"), r"\\xff");
        assert_eq!(text_of_value(br"C:\temp\xylophone"), r"C:\temp\xylophone");
        assert_eq!(text_of_value(b"\\\xff"), r"\\\xff");
    }

    proptest! {
        #[test]
        fn different_values_are_different_texts(
            bytes in prop::collection::vec(prop_oneof![Just(b'\\'), Just(b'x'), Just(b'f'), Just(0xff), Just(0xc3), Just(0xa9), any::<u8>()], 0..12),
        ) {
            prop_assert_eq!(value_of(&text_of_value(&bytes)), bytes);
        }
    }
}
