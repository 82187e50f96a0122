//! Floors: the head of a `lib.rs` may have a table of its modules, from the top, and a module imports only from below.

use std::collections::BTreeMap;

use crate::modules::Crate;
use crate::names::named_files;

/// The head of the table.
const HEAD: &str = "//! | floor | modules |";

/// Where a module is: its floor, its chain there, and how many arrows are before it in the chain.
type Place = (usize, usize, usize);

/// Returns the modules of the table by name. `None` if the crate states no floors.
///
/// A row has chains, separated by semicolons. In a chain, `a` → `b`, `c` means that `a` imports `b` and `c`.
fn places(parsed: &Crate) -> Option<BTreeMap<String, Place>> {
    let (_, table) = parsed.files[0].text.split_once(HEAD)?;
    let rows = table.lines().skip(2);
    let rows = rows.map_while(|line| line.strip_prefix("//! | "));
    let mut places = BTreeMap::new();
    for (floor, row) in rows.enumerate() {
        let (_, chains) = row.split_once(" | ")?;
        for (chain, text) in chains.split(';').enumerate() {
            for (step, names) in text.split('→').enumerate() {
                // Names are in backticks; what a colon introduces is a comment.
                let names = names.split(',').filter_map(|name| name.split('`').nth(1));
                places.extend(names.map(|name| (name.to_owned(), (floor, chain, step))));
            }
        }
    }
    Some(places)
}

/// Returns the module of the crate's root in which a file is. `None` for the root itself.
fn top_module(parsed: &Crate, file: usize) -> Option<&str> {
    let mut module = parsed.files[file].module;
    while let Some(parent) = parsed.modules[module].parent.filter(|parent| *parent != 0) {
        module = parent;
    }
    let mut children = parsed.modules[0].children.iter();
    children.find_map(|(name, id)| (*id == module).then_some(&**name))
}

/// Returns what is against the floors that a crate states, a line each.
pub(crate) fn check(parsed: &Crate) -> Vec<String> {
    let Some(places) = places(parsed) else {
        return Vec::new();
    };
    let modules = parsed.modules[0].children.keys();
    let without = modules.filter(|name| !places.contains_key(*name));
    let mut wrong: Vec<String> = without.map(|name| format!("{name} has no floor")).collect();
    for (from, files) in named_files(parsed).iter().enumerate() {
        for to in files {
            let pair = top_module(parsed, from).zip(top_module(parsed, *to));
            let Some((upper, lower)) = pair.filter(|(upper, lower)| upper != lower) else {
                continue;
            };
            let is_below =
                |(a, b): (&Place, &Place)| a.0 < b.0 || (a.0, a.1) == (b.0, b.1) && a.2 < b.2;
            if !places
                .get(upper)
                .zip(places.get(lower))
                .is_some_and(is_below)
            {
                let path = &parsed.files[from].path;
                wrong.push(format!("{path} imports {lower}, which is not below"));
            }
        }
    }
    wrong
}
