//! Reads the rules of `tests/words.txt`, and finds in passages what they are about.

use std::path::Path;

use crate::prose::Passage;

/// Words that follow each other; of each, several forms.
struct Pattern {
    text: String,
    /// Whether the pattern is only found where a passage starts.
    at_start: bool,
    words: Vec<Vec<String>>,
}

/// How often patterns may occur in the files below a directory, or in one file.
pub(crate) struct Limit {
    pub(crate) path: String,
    pub(crate) forbidden: usize,
    pub(crate) counted: usize,
}

pub(crate) struct Rules {
    forbidden: Vec<Pattern>,
    counted: Vec<Pattern>,
    pub(crate) limits: Vec<Limit>,
}

/// A place where a pattern was found.
pub(crate) struct Place {
    pub(crate) is_forbidden: bool,
    pub(crate) line: usize,
    pub(crate) pattern: String,
    /// Some words before and after it.
    pub(crate) excerpt: String,
}

impl Rules {
    /// Parses the rules: sections `[forbidden]`, `[counted]` and `[limits]`, and comments.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut rules = Self {
            forbidden: Vec::new(),
            counted: Vec::new(),
            limits: Vec::new(),
        };
        let mut section = "";
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            match (section, line) {
                (_, "[forbidden]" | "[counted]" | "[limits]") => section = line,
                ("[forbidden]", line) => rules.forbidden.push(Pattern::parse(line)),
                ("[counted]", line) => rules.counted.push(Pattern::parse(line)),
                ("[limits]", line) => {
                    let limit = Limit::parse(line);
                    rules.limits.push(limit.ok_or_else(|| {
                        format!("line {number}: `{line}`: expected a path and two numbers")
                    })?);
                }
                _ => return Err(format!("line {number}: `{line}`: expected a section")),
            }
        }
        Ok(rules)
    }

    /// Returns the index of the limit with the longest path that contains `file`.
    pub(crate) fn limit_of(&self, file: &Path) -> Option<usize> {
        let limits = self.limits.iter().enumerate();
        let containing =
            limits.filter(|(_, limit)| limit.path == "." || file.starts_with(&limit.path));
        let longest = containing.max_by_key(|(_, limit)| limit.path.len());
        longest.map(|(index, _)| index)
    }

    /// Finds all places of a passage.
    pub(crate) fn find(&self, passage: &Passage) -> Vec<Place> {
        let forbidden = self.forbidden.iter().map(|pattern| (true, pattern));
        let counted = self.counted.iter().map(|pattern| (false, pattern));
        let mut places = Vec::new();
        for (is_forbidden, pattern) in forbidden.chain(counted) {
            for start in (0..passage.len()).filter(|&start| pattern.is_at(passage, start)) {
                let end = passage.len().min(start + pattern.words.len() + 6);
                let words = &passage[start.saturating_sub(6)..end];
                let words: Vec<_> = words.iter().map(|word| word.text.as_str()).collect();
                places.push(Place {
                    is_forbidden,
                    line: passage[start].line,
                    pattern: pattern.text.clone(),
                    excerpt: words.join(" "),
                });
            }
        }
        places
    }
}

impl Pattern {
    fn parse(line: &str) -> Self {
        let (at_start, words) = match line.strip_prefix("^ ") {
            Some(words) => (true, words),
            None => (false, line),
        };
        let words = words
            .split_whitespace()
            .map(|forms| forms.split('|').map(str::to_owned).collect());
        Self {
            text: line.to_owned(),
            at_start,
            words: words.collect(),
        }
    }

    fn is_at(&self, passage: &Passage, start: usize) -> bool {
        if self.at_start && start > 0 {
            return false;
        }
        let Some(words) = passage.get(start..start + self.words.len()) else {
            return false;
        };
        let mut pairs = words.iter().zip(&self.words);
        pairs.all(|(word, forms)| forms.contains(&word.text))
    }
}

impl Limit {
    fn parse(line: &str) -> Option<Self> {
        let mut fields = line.split_whitespace();
        let limit = Self {
            path: fields.next()?.to_owned(),
            forbidden: fields.next()?.parse().ok()?,
            counted: fields.next()?.parse().ok()?,
        };
        fields.next().is_none().then_some(limit)
    }
}
