//! Protocol buffers, as far as a trace of Perfetto needs them: messages are written field by field into a buffer.
//!
//! A library would bring a compiler for the schema or a structure for each message; what is written here is
//! varints, lengths and bytes, and it takes half of the time of an export.

const VARINT: u64 = 0;
const FIXED64: u64 = 1;
const LENGTH: u64 = 2;

/// Appends a varint.
#[inline]
pub(crate) fn varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends a field that is a number.
#[inline]
pub(crate) fn number(field: u64, value: u64, out: &mut Vec<u8>) {
    varint(field << 3 | VARINT, out);
    varint(value, out);
}

/// Appends a field that is 8 bytes.
#[inline]
pub(crate) fn fixed(field: u64, value: u64, out: &mut Vec<u8>) {
    varint(field << 3 | FIXED64, out);
    out.extend_from_slice(&value.to_le_bytes());
}

/// Appends a field that is text or bytes.
#[inline]
pub(crate) fn bytes(field: u64, value: &[u8], out: &mut Vec<u8>) {
    varint(field << 3 | LENGTH, out);
    varint(value.len() as u64, out);
    out.extend_from_slice(value);
}

/// Appends a field that is a message.
#[inline]
pub(crate) fn message(field: u64, out: &mut Vec<u8>, fill: impl FnOnce(&mut Vec<u8>)) {
    varint(field << 3 | LENGTH, out);
    let at = out.len();
    // Nearly every message is shorter than 128 bytes.
    out.push(0);
    fill(out);
    let length = out.len() - at - 1;
    if length < 0x80 {
        out[at] = length as u8;
        return;
    }
    let mut prefix = Vec::with_capacity(5);
    varint(length as u64, &mut prefix);
    out.splice(at..=at, prefix);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_those_of_the_encoding() {
        // The examples of protobuf.dev/programming-guides/encoding.
        let mut out = Vec::new();
        number(1, 150, &mut out);
        assert_eq!(out, [0x08, 0x96, 0x01]);
        out.clear();
        bytes(2, b"testing", &mut out);
        assert_eq!(out, b"\x12\x07testing");
        out.clear();
        message(3, &mut out, |out| number(1, 150, out));
        assert_eq!(out, [0x1a, 0x03, 0x08, 0x96, 0x01]);
        out.clear();
        message(1, &mut out, |out| bytes(1, &[7; 300], out));
        assert_eq!(&out[..6], [0x0a, 0xaf, 0x02, 0x0a, 0xac, 0x02]);
        assert_eq!(out.len(), 306);
        out.clear();
        fixed(1, 1, &mut out);
        assert_eq!(out, [9, 1, 0, 0, 0, 0, 0, 0, 0]);
    }
}
