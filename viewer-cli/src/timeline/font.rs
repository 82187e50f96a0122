//! The font of pictures: DejaVu Sans, in the program itself, so that every machine draws the same.

use std::sync::OnceLock;

use fontdue::{Font, FontSettings};

use crate::names::cut_middle;

/// Returns the font.
pub(super) fn font() -> &'static Font {
    static FONT: OnceLock<Font> = OnceLock::new();
    FONT.get_or_init(|| {
        let settings = FontSettings {
            load_substitutions: false,
            ..FontSettings::default()
        };
        Font::from_bytes(dejavu::sans::regular(), settings).expect("the embedded font is valid")
    })
}

/// Returns the width of a text in pixels, in letters of the given size.
pub(super) fn text_width(text: &str, size: f64) -> f64 {
    let advance = |c| f64::from(font().metrics(c, size as f32).advance_width);
    text.chars().map(advance).sum()
}

/// Returns a text with its middle cut out, so that it is at most `most` pixels wide.
pub(super) fn fitted(text: &str, size: f64, most: f64) -> String {
    // A letter is at least a fifth of its height wide: of a longer text, the rest does not fit in any case.
    let mut columns = (most.max(0.0) / (size * 0.2)) as usize;
    loop {
        if columns == 0 {
            return String::new();
        }
        let short = cut_middle(text, columns);
        let width = text_width(&short, size);
        if width <= most {
            return short;
        }
        // Each step removes what is too much, at least one letter.
        let share = (columns as f64 * most / width) as usize;
        columns = share.clamp(columns / 2, columns - 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_fit() {
        assert_eq!(fitted("short", 11.0, 100.0), "short");
        let long = "a very long name of a function in a namespace".repeat(50);
        assert_eq!(fitted(&long, 11.0, 10.0), "", "not even an ellipsis fits");
        for most in [12.0, 57.0, 200.0] {
            let short = fitted(&long, 11.0, most);
            assert!(text_width(&short, 11.0) <= most, "{short}");
            assert!(short.contains('…'), "{short}");
        }
    }
}
