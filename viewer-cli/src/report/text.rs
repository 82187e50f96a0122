//! Text of the page: names of a bounded length, and figures with units.

use crate::names::shorten;
use crate::table::safe;

/// Longest text of a cell, in columns.
const CELL: usize = 100;
/// Longest sentence, in characters.
const SENTENCE: usize = 600;

/// Returns a text with its middle cut out if it has more than `most` characters, of whatever width.
fn bounded(text: &str, most: usize) -> String {
    // Four bytes are the longest character.
    if text.len() <= most || text.chars().nth(most).is_none() {
        return text.to_owned();
    }
    let start: String = text.chars().take(most / 2).collect();
    let end: Vec<char> = text.chars().rev().take(most / 2).collect();
    let end: String = end.into_iter().rev().collect();
    format!("{start}…{end}")
}

/// Returns the text of a cell: control characters escaped, and no longer than a cell may be.
pub(super) fn cell(text: &str) -> String {
    let text = safe(&bounded(text, 8 * CELL));
    bounded(&shorten(&text, CELL), 2 * CELL)
}

/// Returns a sentence that is no longer than a sentence may be.
pub(super) fn sentence(text: &str) -> String {
    bounded(&safe(text), SENTENCE)
}

/// Returns a share in percent.
pub(super) fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// Returns a part of a whole in percent; a dash if there is no whole.
pub(super) fn part(part: i64, whole: i64) -> String {
    match whole {
        0 => "-".to_owned(),
        _ => percent(part as f64 / whole as f64),
    }
}

/// Returns a part of a whole, from 0 to 1; 0 if there is no whole.
pub(super) fn share(part: i64, whole: i64) -> f64 {
    if whole <= 0 {
        return 0.0;
    }
    (part as f64 / whole as f64).clamp(0.0, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_is_short_whatever_the_name() {
        let names = [
            "x".repeat(1 << 20),
            "\u{301}".repeat(1 << 20),
            "\0".repeat(1 << 20),
            "日".repeat(1 << 20),
        ];
        for name in names {
            let cell = cell(&name);
            assert!(cell.len() <= 4 * (2 * CELL + 1), "{} bytes", cell.len());
            assert!(sentence(&name).chars().count() <= SENTENCE + 1);
        }
        assert_eq!(cell("a\u{0}b\u{202e}c"), "a\\u{0}b\\u{202e}c");
        assert_eq!(cell("main"), "main");
    }
}
