//! The files of the page.

/// Type and contents of a file, by its path.
pub(crate) fn file(path: &str) -> Option<(&'static str, &'static [u8])> {
    const SCRIPT: &str = "text/javascript; charset=utf-8";
    Some(match path {
        "/" => (
            "text/html; charset=utf-8",
            include_bytes!("page/index.html"),
        ),
        "/style.css" => ("text/css; charset=utf-8", include_bytes!("page/style.css")),
        "/main.js" => (SCRIPT, include_bytes!("page/main.js")),
        "/api.js" => (SCRIPT, include_bytes!("page/api.js")),
        "/pane.js" => (SCRIPT, include_bytes!("page/pane.js")),
        "/rows.js" => (SCRIPT, include_bytes!("page/rows.js")),
        "/tiles.js" => (SCRIPT, include_bytes!("page/tiles.js")),
        "/dom.js" => (SCRIPT, include_bytes!("page/dom.js")),
        "/marks.js" => (SCRIPT, include_bytes!("page/marks.js")),
        "/draw.js" => (SCRIPT, include_bytes!("page/draw.js")),
        "/axis.js" => (SCRIPT, include_bytes!("page/axis.js")),
        "/details.js" => (SCRIPT, include_bytes!("page/details.js")),
        "/touch.js" => (SCRIPT, include_bytes!("page/touch.js")),
        "/picture.js" => (SCRIPT, include_bytes!("page/picture.js")),
        _ => return None,
    })
}
