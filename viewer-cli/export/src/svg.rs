//! Pictures as SVG: shapes are appended, names escaped.

use std::fmt::Write as _;

/// A picture under construction. Lengths in pixels.
#[derive(Clone, Debug)]
pub struct Svg {
    width: f64,
    height: f64,
    body: String,
}

/// Escapes text for XML; replaces characters that XML cannot contain.
pub fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in crate::text::safe(text).chars() {
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '"' => out.push_str("&quot;"),
            '\u{fffe}' | '\u{ffff}' => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

/// Where a text is held.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Anchor {
    /// At its start.
    Start,
    /// In its middle.
    Middle,
    /// At its end.
    End,
}

impl Svg {
    /// Creates an empty picture on white.
    pub fn new(width: f64, height: f64) -> Self {
        Self {
            width,
            height,
            body: String::new(),
        }
    }

    /// Appends SVG as it is, such as definitions of patterns.
    pub fn raw(&mut self, text: &str) {
        self.body.push_str(text);
    }

    /// Draws a filled rectangle, whose title is shown when the mouse points at it.
    pub fn rect(&mut self, [x, y, w, h]: [f64; 4], fill: &str, title: &str) {
        let _ = write!(
            self.body,
            "<rect x=\"{x:.2}\" y=\"{y:.2}\" width=\"{w:.2}\" height=\"{h:.2}\" fill=\"{fill}\""
        );
        if title.is_empty() {
            self.body.push_str("/>\n");
        } else {
            let _ = writeln!(self.body, "><title>{}</title></rect>", escaped(title));
        }
    }

    /// Draws a line. Its opacity is from 0 to 1.
    pub fn line(&mut self, [x1, y1, x2, y2]: [f64; 4], stroke: &str, width: f64, opacity: f64) {
        let _ = writeln!(
            self.body,
            "<line x1=\"{x1:.2}\" y1=\"{y1:.2}\" x2=\"{x2:.2}\" y2=\"{y2:.2}\" stroke=\"{stroke}\" \
             stroke-width=\"{width}\" stroke-opacity=\"{opacity}\"/>"
        );
    }

    /// Draws a filled circle.
    pub fn circle(&mut self, x: f64, y: f64, radius: f64, fill: &str) {
        let _ = writeln!(
            self.body,
            "<circle cx=\"{x:.2}\" cy=\"{y:.2}\" r=\"{radius}\" fill=\"{fill}\"/>"
        );
    }

    /// Draws a filled shape through these points.
    pub fn area(&mut self, points: &[(f64, f64)], fill: &str) {
        self.body.push_str("<polygon points=\"");
        for (x, y) in points {
            let _ = write!(self.body, "{x:.2},{y:.2} ");
        }
        let _ = writeln!(self.body, "\" fill=\"{fill}\"/>");
    }

    /// Draws a black text with its baseline at y.
    pub fn text(&mut self, x: f64, y: f64, size: f64, anchor: Anchor, text: &str) {
        self.text_in(x, y, size, anchor, "#000000", text);
    }

    /// Draws a text with its baseline at y.
    pub fn text_in(&mut self, x: f64, y: f64, size: f64, anchor: Anchor, fill: &str, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let _ = writeln!(
            self.body,
            "<text x=\"{x:.2}\" y=\"{y:.2}\" font-size=\"{size}\" text-anchor=\"{anchor}\" \
             fill=\"{fill}\">{}</text>",
            escaped(text)
        );
    }

    /// Returns the whole file.
    pub fn finish(self) -> String {
        let (width, height) = (self.width, self.height);
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" \
             viewBox=\"0 0 {width:.0} {height:.0}\" font-family=\"DejaVu Sans, Verdana, sans-serif\">\n\
             <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n{}</svg>\n",
            self.body
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_leave_their_place() {
        let mut svg = Svg::new(10.0, 10.0);
        svg.text(0.0, 0.0, 8.0, Anchor::Start, "</text><script>\u{1b}\u{0}");
        let text = svg.finish();
        assert!(
            text.contains("&lt;/text&gt;&lt;script&gt;\\u{1b}\\u{0}"),
            "{text}"
        );
    }
}
