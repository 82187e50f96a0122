//! Names that are not UTF-8: file systems, threads and MPI allow them.

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_are_not_utf_8_can_be_found_again() {
        assert_eq!(text_of("café\\x".as_bytes()), "café\\x");
        assert_eq!(text_of(b"caf\xe9"), "caf\\xe9");
        assert_eq!(text_of(b"a\\b\xff\xfec"), "a\\\\b\\xff\\xfec");
        assert_eq!(text_of(b""), "");
    }
}
