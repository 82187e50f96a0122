//! Suggestions for misspelt names.

/// Returns `; did you mean …?` when one of the known names is similar.
pub fn did_you_mean<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> String {
    annals_merger::nearest(name, known).map_or_else(String::new, |near| {
        format!("; did you mean `{}`?", crate::table::safe(near))
    })
}
