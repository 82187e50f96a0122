//! The frame of the page: head, style, script and navigation.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use sha2::{Digest as _, Sha256};

use super::parts;

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// A section of the page.
#[derive(Debug)]
pub(super) struct Section {
    /// Its name in links.
    pub(super) id: &'static str,
    /// Its heading.
    pub(super) heading: &'static str,
    /// What is in it.
    pub(super) content: Markup,
}

/// The contents of a page.
#[derive(Debug)]
pub(super) struct Contents {
    /// The title of the page.
    pub(super) title: String,
    /// What is above all sections.
    pub(super) top: Markup,
    /// The sections, in order.
    pub(super) sections: Vec<Section>,
}

/// Returns the hash of a style or script as a policy names it.
fn source(text: &str) -> String {
    format!(
        "'sha256-{}'",
        STANDARD.encode(Sha256::digest(text.as_bytes()))
    )
}

/// Returns the Content-Security-Policy: the page's style and script, and nothing else.
fn policy() -> String {
    format!(
        "default-src 'none'; style-src {}; script-src {}; base-uri 'none'; form-action 'none'",
        source(STYLE),
        source(SCRIPT)
    )
}

/// Returns the whole page.
pub(super) fn page(contents: &Contents) -> String {
    let version = env!("CARGO_PKG_VERSION");
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(policy());
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta name="generator" content={ "trace-cli " (version) };
                title { (contents.title) " – report" }
                style { (PreEscaped(STYLE)) }
            }
            body {
                a.skip href="#main" { "To the report" }
                header { (contents.top) }
                nav aria-label="Sections" {
                    ul { @for of in &contents.sections { li { a href={ "#" (of.id) } { (of.heading) } } } }
                }
                main #main {
                    @for of in &contents.sections { (parts::section(of.id, of.heading, &of.content)) }
                }
                footer {
                    p { "Made by trace-cli " (version) ". Times are trace time, from the start of the trace. The manual defines the terms: chapter “Why a run is slow”." }
                }
                script { (PreEscaped(SCRIPT)) }
            }
        }
    };
    page.into_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn style_and_script_cannot_end_early() {
        for text in [STYLE, SCRIPT] {
            assert!(!text.contains("</"), "an end tag");
            assert!(!text.contains("<!--"), "a comment");
        }
        assert_eq!(
            source(""),
            "'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU='"
        );
    }
}
