//! Long names, shortened: those of C++ and Rust functions, whose template arguments may take hundreds of characters.

use std::collections::{BTreeMap, BTreeSet};

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Replaces what is left out.
const ELLIPSIS: &str = "…";

/// Longest name that is parsed, in bytes. Of longer ones, only the middle is cut out.
const MOST_PARSED: usize = 1 << 14;

/// Least columns of the scope before the last part of a name. With fewer, the middle of the name is cut out.
const LEAST_SCOPE: usize = 3;

/// Default type arguments of standard libraries. They are left out after a comma.
const DEFAULTS: [&str; 7] = [
    "std::allocator<",
    "std::char_traits<",
    "std::default_delete<",
    "std::equal_to<",
    "std::hash<",
    "std::less<",
    "std::pmr::polymorphic_allocator<",
];

/// Returns the columns of a terminal that a text takes.
pub fn width(text: &str) -> usize {
    text.width()
}

/// Returns a name in at most `most` columns. What is needed is left out, in this order: default type arguments; the return
/// type; parameters; template arguments within others; all template arguments; the middle.
///
/// Spaces that it begins with stay: they may show its depth in a tree.
pub fn shorten(name: &str, most: usize) -> String {
    // A text in brackets is no function's name.
    let is_text = name.starts_with('(') && name.ends_with(')') && !name.contains("::");
    if width(name) <= most || name.len() > MOST_PARSED || is_text {
        return cut_middle(name, most);
    }
    let bare = name.trim_start_matches(' ');
    let indent = name.len() - bare.len();
    if indent != 0 && indent < most {
        return name[..indent].to_owned() + &shorten(bare, most - indent);
    }
    let steps: [fn(&str) -> String; 5] = [
        without_defaults,
        without_return_type,
        |name| fold(name, Fold::Parameters),
        |name| fold(name, Fold::Nested),
        |name| fold(name, Fold::Arguments),
    ];
    let mut short = name.to_owned();
    for step in steps {
        short = step(&short);
        if width(&short) <= most {
            return short;
        }
    }
    // The last part identifies the function.
    let last = &short[last_part(&short)..];
    let room = most.saturating_sub(width(last) + ELLIPSIS.chars().count());
    if room < LEAST_SCOPE {
        return cut_middle(&short, most);
    }
    let start = short.chars().scan(0, |taken, c| {
        *taken += c.width().unwrap_or(0);
        (*taken <= room).then_some(c)
    });
    start.collect::<String>() + ELLIPSIS + last
}

/// Returns where the last part of a name begins, with the `::` before it.
fn last_part(name: &str) -> usize {
    let places = places(name);
    let parameters = places
        .iter()
        .find(|place| place.bracket == Some(Bracket::Round) && place.depth == 0);
    let end = parameters.map_or(name.len(), |place| place.at);
    let mut colons = places
        .iter()
        .filter(|place| place.at < end && place.depth == 0 && name[place.at..].starts_with("::"));
    colons.next_back().map_or(0, |place| place.at)
}

/// Returns names in at most `most` columns. Different names that would become equal get what distinguishes them, in square brackets;
/// where that does not do, numbers.
pub fn shorten_all(names: &[&str], most: usize) -> Vec<String> {
    let mut short: Vec<String> = names.iter().map(|name| shorten(name, most)).collect();
    replace(names, &mut short, |group| {
        let parts = distinguishing(group);
        let texts = group.iter().zip(parts).map(|(name, part)| {
            let part = cut_middle(&part, most / 2);
            let base = shorten(name, most.saturating_sub(width(" []") + width(&part)));
            cut_middle(&format!("{base} [{part}]"), most)
        });
        texts.collect()
    });
    let mut last: BTreeMap<String, usize> = BTreeMap::new();
    let digits = names.len().to_string().len();
    replace(names, &mut short, |group| {
        let texts = group.iter().map(|name| {
            let base = shorten(name, most.saturating_sub(width(" #") + digits));
            // With room for a number, more of them may become equal.
            let number = last.entry(base.clone()).or_default();
            *number += 1;
            cut_middle(&format!("{base} #{number}"), most)
        });
        texts.collect()
    });
    short
}

/// Replaces the texts of each group of different names that have a text in common.
fn replace(names: &[&str], short: &mut [String], mut new: impl FnMut(&[&str]) -> Vec<String>) {
    let mut groups: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (name, short) in names.iter().zip(short.iter()) {
        groups.entry(short).or_default().insert(name);
    }
    let mut texts: BTreeMap<&str, String> = BTreeMap::new();
    for group in groups.into_values().filter(|group| group.len() > 1) {
        let group: Vec<&str> = group.into_iter().collect();
        texts.extend(group.iter().copied().zip(new(&group)));
    }
    for (short, name) in short.iter_mut().zip(names) {
        if let Some(text) = texts.get(name) {
            short.clone_from(text);
        }
    }
}

/// Returns the part of each name without what all of them begin and end with, but with whole words.
fn distinguishing(names: &[&str]) -> Vec<String> {
    let names: Vec<Vec<char>> = names.iter().map(|name| name.chars().collect()).collect();
    let common = |at: &dyn Fn(&[char], usize) -> Option<char>, most: usize| {
        let is_common = |number: &usize| {
            let first = at(&names[0], *number);
            names.iter().all(|name| at(name, *number) == first)
        };
        (0..most).take_while(is_common).count()
    };
    let shortest = names.iter().map(Vec::len).min().unwrap_or(0);
    let mut start = common(&|name, number| name.get(number).copied(), shortest);
    let from_end = |name: &[char], number: usize| name.iter().rev().nth(number).copied();
    let mut end = common(&from_end, shortest - start);
    let is_word = |c: &char| c.is_alphanumeric() || *c == '_';
    // What one has more than another, follows a word that both have.
    let is_empty = names.iter().any(|name| name.len() == start + end);
    let mut is_in_word = !is_empty;
    while start > 0 && (is_word(&names[0][start - 1]) || !is_in_word) {
        is_in_word |= is_word(&names[0][start - 1]);
        start -= 1;
    }
    while end > 0 && is_word(&names[0][names[0].len() - end]) {
        end -= 1;
    }
    let parts = names
        .iter()
        .map(|name| name[start..name.len() - end].iter());
    parts.map(|part| part.collect()).collect()
}

/// Cuts the middle out of a text that takes more than `most` columns.
pub fn cut_middle(text: &str, most: usize) -> String {
    if width(text) <= most {
        return text.to_owned();
    }
    let rest = most.saturating_sub(1);
    // The end identifies the function.
    let (of_start, of_end) = (rest / 2, rest - rest / 2);
    let columns = |c: char| c.width().unwrap_or(0);
    let mut taken = 0;
    let fits = |c: &char, most: usize, taken: &mut usize| {
        *taken += columns(*c);
        *taken <= most
    };
    let start: String = text
        .chars()
        .take_while(|c| fits(c, of_start, &mut taken))
        .collect();
    let mut taken = 0;
    let end: Vec<char> = text
        .chars()
        .rev()
        .take_while(|c| fits(c, of_end, &mut taken))
        .collect();
    let end: String = end.into_iter().rev().collect();
    match most {
        0 => String::new(),
        _ => format!("{start}{ELLIPSIS}{end}"),
    }
}

/// A part of a name that brackets enclose.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Bracket {
    /// Template arguments.
    Angle,
    /// A type in angle brackets without a preceding name: `<T as Trait>` of Rust.
    Qualified,
    /// Parameters.
    Round,
    /// Brackets that are part of a name: `(anonymous namespace)`, `{lambda(int)#1}`.
    Name,
}

/// A character of a name, with the brackets around it.
struct NameCharacter {
    at: usize,
    c: char,
    /// The bracket that begins or ends here.
    bracket: Option<Bracket>,
    is_end: bool,
    /// Brackets around it; around a bracket, those outside of it.
    depth: usize,
    /// Those of them that are template arguments.
    arguments: usize,
}

/// Returns the characters of a name. Brackets that are part of an operator's name are none; nor are those that do not match.
fn places(name: &str) -> Vec<NameCharacter> {
    let mut places = Vec::new();
    let mut open: Vec<Bracket> = Vec::new();
    let mut rest = name.char_indices().peekable();
    let mut last = ' ';
    // Open brackets that are template arguments.
    let mut arguments = 0;
    while let Some((at, c)) = rest.next() {
        let mut push = |arguments, open: &[Bracket], at, c, bracket, is_end| {
            places.push(NameCharacter {
                at,
                c,
                bracket,
                is_end,
                depth: open.len(),
                arguments,
            });
        };
        if is_operator(&name[..at]) {
            let symbol = operator_symbol(&name[at..]);
            if symbol != 0 {
                push(arguments, &open, at, c, None, false);
                for _ in 1..name[at..][..symbol].chars().count() {
                    if let Some((at, c)) = rest.next() {
                        push(arguments, &open, at, c, None, false);
                    }
                }
                // `operator< <int>`
                if name[at + symbol..].starts_with(" <")
                    && let Some((at, c)) = rest.next()
                {
                    push(arguments, &open, at, c, None, false);
                }
                last = '_';
                continue;
            }
        }
        let is_name = |c: char| c.is_alphanumeric() || matches!(c, '_' | '$' | ':' | ']' | '}');
        let opened = match c {
            '<' if is_name(last) => Some(Bracket::Angle),
            '<' => Some(Bracket::Qualified),
            '(' if name[at..].starts_with("(anonymous") => Some(Bracket::Name),
            '(' => Some(Bracket::Round),
            '{' => Some(Bracket::Name),
            _ => None,
        };
        let closes = |bracket: Bracket| match c {
            '>' => last != '-' && matches!(bracket, Bracket::Angle | Bracket::Qualified),
            ')' => bracket == Bracket::Round || bracket == Bracket::Name,
            '}' => bracket == Bracket::Name,
            _ => false,
        };
        if let Some(bracket) = opened {
            push(arguments, &open, at, c, Some(bracket), false);
            open.push(bracket);
            arguments += usize::from(bracket == Bracket::Angle);
        } else if let Some(bracket) = open.last().copied().filter(|bracket| closes(*bracket)) {
            open.pop();
            arguments -= usize::from(bracket == Bracket::Angle);
            push(arguments, &open, at, c, Some(bracket), true);
        } else {
            push(arguments, &open, at, c, None, false);
        }
        last = c;
    }
    places
}

/// Returns whether a text ends with the word `operator`.
fn is_operator(text: &str) -> bool {
    let Some(before) = text.strip_suffix("operator") else {
        return false;
    };
    !before.ends_with(|c: char| c.is_alphanumeric() || c == '_')
}

/// Returns the length of the operator's symbol that a text begins with.
fn operator_symbol(text: &str) -> usize {
    const SYMBOLS: [&str; 12] = [
        "<=>", "<<=", ">>=", "->*", "()", "<<", ">>", "<=", ">=", "->", "<", ">",
    ];
    let found = SYMBOLS.iter().find(|symbol| text.starts_with(**symbol));
    found.map_or(0, |symbol| symbol.len())
}

/// The parts of a name that [`fold`] leaves out.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fold {
    /// Parameters of functions.
    Parameters,
    /// Template arguments within template arguments.
    Nested,
    /// All template arguments.
    Arguments,
}

/// Replaces what some brackets enclose.
fn fold(name: &str, what: Fold) -> String {
    let folds = |place: &NameCharacter| match what {
        Fold::Parameters => place.bracket == Some(Bracket::Round) && place.arguments == 0,
        Fold::Nested => place.bracket == Some(Bracket::Angle) && place.arguments == 1,
        Fold::Arguments => place.bracket == Some(Bracket::Angle) && place.arguments == 0,
    };
    let mut out = String::new();
    let mut within: Option<usize> = None;
    let mut is_empty = true;
    for place in places(name) {
        match within {
            None => {
                out.push(place.c);
                if folds(&place) && !place.is_end {
                    (within, is_empty) = (Some(place.depth), true);
                }
            }
            Some(depth) if place.is_end && place.depth == depth => {
                if !is_empty {
                    out.push_str(ELLIPSIS);
                }
                out.push(place.c);
                within = None;
            }
            Some(_) => is_empty = false,
        }
    }
    // A bracket that nothing closes.
    if within.is_some() {
        name.to_owned()
    } else {
        out
    }
}

/// Leaves out what libraries add to names: default type arguments, inline namespaces, and the space between two `>`.
fn without_defaults(name: &str) -> String {
    let mut name = name.to_owned();
    for inline in ["std::__cxx11::", "std::__1::"] {
        name = name.replace(inline, "std::");
    }
    name = name.replace("[abi:cxx11]", "").replace(" >", ">");
    while let Some(range) = default_argument(&name) {
        name.replace_range(range, "");
    }
    name.replace("std::basic_string<char>", "std::string")
        .replace("std::basic_string_view<char>", "std::string_view")
}

/// Returns the bytes of a default type argument, with the comma before it.
fn default_argument(name: &str) -> Option<std::ops::Range<usize>> {
    let starts = name.match_indices(", ").find(|(at, _)| {
        let argument = &name[at + 2..];
        DEFAULTS.iter().any(|default| argument.starts_with(default))
    });
    let (start, _) = starts?;
    let places = places(&name[start..]);
    let end = places
        .iter()
        .find(|place| place.is_end && place.depth == 0)?;
    (end.bracket == Some(Bracket::Angle)).then_some(start..start + end.at + 1)
}

/// Returns a name without the return type, which names of C++ templates begin with.
pub fn without_return_type(name: &str) -> String {
    let places = places(name);
    let parameters = places
        .iter()
        .find(|place| place.bracket == Some(Bracket::Round) && place.depth == 0);
    let Some(parameters) = parameters else {
        return name.to_owned();
    };
    // Names of operators have spaces: `operator new`, `operator< <int>`.
    let mut words = name
        .match_indices("operator")
        .map(|(at, word)| at + word.len());
    let operator = words.find(|end| is_operator(&name[..*end]));
    let end = operator.unwrap_or(parameters.at).min(parameters.at);
    let before = places.iter().take_while(|place| place.at < end);
    let spaces = before.filter(|place| place.c == ' ' && place.depth == 0);
    match spaces.last() {
        Some(space) if space.at + 1 != parameters.at => name[space.at + 1..].to_owned(),
        _ => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PUSH_BACK: &str = "std::vector<std::__cxx11::basic_string<char, std::char_traits<char>, \
                             std::allocator<char> >, std::allocator<std::__cxx11::basic_string<char, \
                             std::char_traits<char>, std::allocator<char> > > >::push_back(\
                             std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> >&&)";

    #[test]
    fn names_lose_first_what_tells_least() {
        let each = [
            (400, PUSH_BACK),
            (80, "std::vector<std::string>::push_back(std::string&&)"),
            (40, "std::vector<std::string>::push_back(…)"),
            (30, "std::vector<…>::push_back(…)"),
            (20, "std::…::push_back(…)"),
            (16, "std::ve…_back(…)"),
        ];
        for (most, expected) in each {
            assert_eq!(shorten(PUSH_BACK, most), expected, "{most}");
        }
        let swap =
            "std::enable_if<true, void>::type std::swap<mesh::Cell>(mesh::Cell&, mesh::Cell&)";
        assert_eq!(
            shorten(swap, 60),
            "std::swap<mesh::Cell>(mesh::Cell&, mesh::Cell&)"
        );
        assert_eq!(shorten(swap, 30), "std::swap<mesh::Cell>(…)");
        let nested = "mesh::apply<mesh::Grid<std::tuple<int, double> >, 3>()";
        assert_eq!(shorten(nested, 31), "mesh::apply<mesh::Grid<…>, 3>()");
        assert_eq!(shorten(nested, 30), "mesh::apply<…>()");
    }

    #[test]
    fn operators_and_unnamed_functions_keep_their_names() {
        let each = [
            (
                "bool mesh::operator< <int>(mesh::Cell const&)",
                "mesh::operator< <…>(…)",
            ),
            (
                "mesh::Cell::operator()(int, int) const",
                "mesh::Cell::operator()(…) const",
            ),
            (
                "std::ostream& operator<<(std::ostream&, mesh::Cell const&)",
                "operator<<(…)",
            ),
            (
                "mesh::Pointer<mesh::Cell>::operator->() const",
                "mesh::Pointer<…>::operator->() const",
            ),
            (
                "(anonymous namespace)::solve(std::vector<int>)",
                "(anonymous namespace)::solve(…)",
            ),
            (
                "main::{lambda(mesh::Cell&)#1}::operator()(mesh::Cell&) const",
                "main::{lambda(…)#1}::operator()(…) const",
            ),
            ("operator new(unsigned long)", "operator new(…)"),
            (
                "<alloc::vec::Vec<u8> as core::ops::Drop>::drop",
                "<alloc::vec::Vec<…> as core::ops::Drop>::drop",
            ),
        ];
        for (name, expected) in each {
            assert_eq!(shorten(name, width(expected)), expected, "{name}");
        }
    }

    #[test]
    fn different_names_stay_different() {
        let names = [
            "f(std::vector<int>, int)",
            "f(std::vector<long>, int)",
            "g()",
        ];
        let short = shorten_all(&names, 16);
        assert_eq!(short, ["f(…) [int]", "f(…) [long]", "g()"]);
        let names = [
            "mesh::Solver<mesh::Grid<float>, 2>::step(mesh::Grid<float>&)",
            "mesh::Solver<mesh::Grid<float>, 3>::step(mesh::Grid<float>&)",
            "mesh::Solver<mesh::Grid<float>, 3, mesh::Periodic>::step(mesh::Grid<float>&)",
        ];
        let short = shorten_all(&names, 36);
        let parts = ["[2]", "[3]", "[3, mesh::Periodic]"];
        for (short, part) in short.iter().zip(parts) {
            assert!(
                short.starts_with("mesh::") && short.ends_with(part),
                "{short}"
            );
        }
        // There is no room for what distinguishes them.
        let short = shorten_all(&[&"a".repeat(40), &"a".repeat(41)], 12);
        assert_ne!(short[0], short[1]);
        assert!(short.iter().all(|name| width(name) <= 12), "{short:?}");
    }

    #[test]
    fn a_name_of_a_megabyte_is_cut_and_not_parsed() {
        for part in ["a<", "f(", ", std::allocator<", "<", "operator"] {
            let name = part.repeat((1 << 20) / part.len());
            assert_eq!(width(&shorten(&name, 40)), 40, "{part}");
        }
        let deep = "a<".repeat(MOST_PARSED / 2);
        assert_eq!(width(&shorten(&deep, 40)), 40);
    }

    proptest! {
        #[test]
        fn every_text_fits(name in "[a-c<>(){}:, &*=-]{0,60}|\\PC{0,40}", most in 0..70_usize) {
            let short = shorten(&name, most);
            prop_assert!(width(&short) <= most, "{short}");
        }

        #[test]
        fn names_of_a_table_fit_and_stay_different(
            names in prop::collection::btree_set("[ab<>(), ]{0,30}|\\PC{0,20}", 0..6), most in 12..40_usize,
        ) {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let short = shorten_all(&names, most);
            prop_assert!(short.iter().all(|name| width(name) <= most), "{short:?}");
            let different: BTreeSet<&String> = short.iter().collect();
            prop_assert_eq!(different.len(), names.len(), "{:?}", short);
        }
    }
}
