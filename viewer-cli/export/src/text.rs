//! Names and text, safe for terminals and for rows of comma-separated values.

/// Returns a name from a trace with its control characters escaped: those of terminals, line separators, and the marks
/// that change the direction of text. A terminal or a browser obeys none of them.
pub fn safe(text: &str) -> String {
    let is_plain = |c: char| {
        !c.is_control()
            && !matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    if text.chars().all(is_plain) {
        return text.to_owned();
    }
    let mut out = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if is_plain(c) {
            out.push(c);
        } else {
            out.extend(c.escape_default());
        }
    }
    out
}

/// Escapes the control characters of several lines, which stay lines: for messages with names of files.
pub fn safe_lines(text: &str) -> String {
    let mut lines = text.split('\n').map(safe);
    let first = lines.next().unwrap_or_default();
    lines.fold(first, |text, line| text + "\n" + &line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_reach_no_terminal() {
        assert_eq!(safe("a\u{1b}[31mb\n"), "a\\u{1b}[31mb\\n");
        assert_eq!(safe("grüße"), "grüße");
        let marks = "\u{202e}\u{2066}\u{200f}\u{61c}\u{2028}";
        let escaped = "\\u{202e}\\u{2066}\\u{200f}\\u{61c}\\u{2028}";
        assert_eq!(safe(marks), escaped);
        assert_eq!(safe_lines("a\u{1b}\n\nb\r\n"), "a\\u{1b}\n\nb\\r\n");
    }
}
