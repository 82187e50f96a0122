//! Rules of the recorder, written: `off region GLOB` for one region.
//!
//! The grammar is that of `annals_recorder::Rules`: rules end at line ends and semicolons and are
//! trimmed; globs are globset's, in which `?` is one byte.

use crate::table::safe;

/// A rule that switches a region off.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RegionRule {
    /// `off region GLOB`.
    pub rule: String,
    /// Whether it matches this name only. If not, `?` replaces characters that a rule cannot
    /// contain.
    pub is_exact: bool,
}

impl RegionRule {
    /// Returns the rule for the region of this name.
    pub fn off(name: &str) -> Self {
        let (glob, is_exact) = glob_of(name);
        Self {
            rule: format!("off region {glob}"),
            is_exact,
        }
    }

    /// Returns its glob.
    pub fn glob(&self) -> &str {
        let glob = self.rule.strip_prefix("off region ");
        glob.expect("every rule is made with it")
    }
}

/// Returns a glob that a rule can hold, and whether it matches nothing but the name.
fn glob_of(name: &str) -> (String, bool) {
    if name.is_empty() {
        // No alternative: nothing. An empty glob would be no rule.
        return ("{}".to_owned(), true);
    }
    let mut glob = String::with_capacity(name.len() + 8);
    let mut is_exact = true;
    let last = name.chars().count() - 1;
    for (index, c) in name.chars().enumerate() {
        match c {
            '*' | '?' | '[' | ']' | '{' | '}' | '\\' | '!' => glob.extend(['\\', c]),
            // A rule ends there.
            ';' => {
                glob.push('?');
                is_exact = false;
            }
            // A line end, or what would do something to the terminal that shows the rule.
            _ if !is_printable(c) => {
                glob.extend(std::iter::repeat_n('?', c.len_utf8()));
                is_exact = false;
            }
            // Rules are trimmed: braces hold space at the ends.
            _ if c.is_whitespace() && (index == 0 || index == last) => glob.extend(['{', c, '}']),
            _ => glob.push(c),
        }
    }
    (glob, is_exact)
}

fn is_printable(c: char) -> bool {
    let mut bytes = [0; 4];
    let text: &str = c.encode_utf8(&mut bytes);
    safe(text) == text
}

/// Returns text in the form of a comment: one line, and no semicolon, after which a rule would
/// begin.
pub fn comment(text: &str) -> String {
    format!("# {}", safe(text).replace(';', "?"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use annals_recorder::Rules;
    use globset::Glob;

    const ODD: [&str; 24] = [
        "solve",
        "a*",
        "a?b",
        "[a-c]",
        "{a,b}",
        "!not",
        "[!a]",
        "back\\slash",
        "ends in \\",
        "**",
        "**/x/**",
        "std::vec<int, 3>::operator[](size_t)",
        "a  b",
        "#comment",
        "off region x",
        " before",
        "after ",
        "\u{2003}wide\u{a0}",
        " ",
        "",
        "grüße 日本",
        "@file",
        "-dash^,.$|()+",
        "/a/../b/",
    ];

    fn matches(rule: &RegionRule, name: &str) -> bool {
        let glob = Glob::new(rule.glob()).unwrap();
        glob.compile_matcher().is_match(name)
    }

    #[test]
    fn an_exact_rule_matches_its_name_and_nothing_similar() {
        for name in ODD {
            let rule = RegionRule::off(name);
            assert!(rule.is_exact, "{name:?}");
            rule.rule.parse::<Rules>().unwrap();
            // As the recorder takes it in.
            assert_eq!(rule.rule.trim(), rule.rule, "{name:?}");
            assert!(!rule.rule.contains(['\n', ';']), "{name:?}");
            assert!(matches(&rule, name), "{name:?}: {}", rule.rule);
            for other in ODD.into_iter().filter(|other| *other != name) {
                assert!(!matches(&rule, other), "{name:?} {other:?}");
            }
            // Without, with another, and with one more character anywhere.
            let chars: Vec<char> = name.chars().collect();
            for at in 0..=chars.len() {
                for c in ['x', ' ', '*', '\\', '/', ',', '{', '}'] {
                    let mut more = chars.clone();
                    more.insert(at, c);
                    let mut changed = chars.clone();
                    let mut less = chars.clone();
                    if at < chars.len() {
                        changed[at] = c;
                        less.remove(at);
                    }
                    for similar in [more, changed, less] {
                        let similar: String = similar.into_iter().collect();
                        assert_eq!(matches(&rule, &similar), similar == name, "{similar:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn what_a_rule_cannot_hold_becomes_question_marks() {
        for (name, rule) in [
            ("a;b", "off region a?b"),
            ("a\nb*", "off region a?b\\*"),
            ("\u{1b}[31m", "off region ?\\[31m"),
            ("\u{202e}x", "off region ???x"),
            ("\n", "off region ?"),
        ] {
            let made = RegionRule::off(name);
            assert_eq!(made.rule, rule);
            assert!(!made.is_exact);
            assert!(matches(&made, name), "{name:?}");
            made.rule.parse::<Rules>().unwrap();
        }
    }

    #[test]
    fn no_rule_hides_in_a_comment() {
        let text = comment("a; off region *\noff region *");
        let rules: Rules = text.parse().unwrap();
        assert!(rules.is_empty(), "{text}");
    }
}
