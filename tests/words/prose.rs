//! Splits text that people read into passages of words: comments, messages and documents share these rules.

/// A word or a punctuation mark, in lower case.
///
/// Code in backticks is one word `` ` ``, and a quotation is one word `"`: their contents are not ours to judge.
#[derive(Debug, PartialEq)]
pub(crate) struct Word {
    pub(crate) text: String,
    pub(crate) line: usize,
}

/// A paragraph, a list item, a heading or a row of a table.
pub(crate) type Passage = Vec<Word>;

/// A line of text and its number in the file.
pub(crate) type Line<'a> = (usize, &'a str);

/// Splits a block of Markdown, or of plain text, into passages; leaves code blocks out.
pub(crate) fn passages(lines: &[Line<'_>]) -> Vec<Passage> {
    let mut passages = Vec::new();
    let mut current: Vec<Line<'_>> = Vec::new();
    let mut is_code = false;
    for &(number, line) in lines {
        let line = line.trim();
        let is_fence = line.starts_with("```") || line.starts_with("~~~");
        let is_row_or_heading =
            line.starts_with('|') || line.starts_with("# ") || line.starts_with("##");
        let item = list_item(line);
        if line.is_empty() || is_fence || is_row_or_heading || item.is_some() {
            passages.push(words(&std::mem::take(&mut current)));
        }
        if is_fence {
            is_code = !is_code;
        } else if is_row_or_heading && !is_code {
            passages.push(words(&[(number, line)]));
        } else if !is_code {
            current.push((number, item.unwrap_or(line)));
        }
    }
    passages.push(words(&current));
    passages.retain(|passage| !passage.is_empty());
    passages
}

/// Returns the text of a list item without its marker, or `None` if the line does not start one.
fn list_item(line: &str) -> Option<&str> {
    let unnumbered = line.trim_start_matches(|c: char| c.is_ascii_digit());
    if unnumbered.len() < line.len() {
        return unnumbered.strip_prefix(". ");
    }
    line.strip_prefix("- ").or_else(|| line.strip_prefix("* "))
}

fn words(lines: &[Line<'_>]) -> Passage {
    let mut chars = Vec::new();
    for &(number, line) in lines {
        chars.extend(line.chars().map(|c| (number, c)));
        chars.push((number, '\n'));
    }
    let mut words = Vec::new();
    let mut at = 0;
    while at < chars.len() {
        let (line, c) = chars[at];
        let end = end_of_word(&chars, at);
        if !c.is_whitespace() {
            let text = match c {
                '`' | '"' | '“' => c.to_string(),
                _ => chars[at..end]
                    .iter()
                    .map(|&(_, c)| c.to_ascii_lowercase())
                    .collect(),
            };
            words.push(Word { text, line });
        }
        at = end;
        // The target of a link.
        if c == ']' && chars.get(at).is_some_and(|&(_, next)| next == '(') {
            at = find(&chars, at, ")").map_or(at, |end| end + 1);
        }
    }
    words
}

/// Returns the end of the word, the punctuation mark, the code or the quotation at `at`.
fn end_of_word(chars: &[(usize, char)], at: usize) -> usize {
    let char_at = |at: usize| chars.get(at).map_or('\n', |&(_, c)| c);
    let first = char_at(at);
    let mut end = at + 1;
    match first {
        '`' => {
            while char_at(end) == '`' {
                end += 1;
            }
            let ticks = "`".repeat(end - at);
            find(chars, end, &ticks).map_or(end, |close| close + ticks.len())
        }
        '"' => find(chars, end, "\"").map_or(end, |close| close + 1),
        '“' => find(chars, end, "”").map_or(end, |close| close + 1),
        _ if first.is_alphanumeric() => {
            let is_joint = |c: char| matches!(c, '_' | '-' | '\'' | '’');
            while char_at(end).is_alphanumeric()
                || is_joint(char_at(end)) && char_at(end + 1).is_alphanumeric()
            {
                end += 1;
            }
            end
        }
        _ => end,
    }
}

fn find(chars: &[(usize, char)], from: usize, text: &str) -> Option<usize> {
    let text: Vec<char> = text.chars().collect();
    let mut windows = chars[from..].windows(text.len());
    let found = windows.position(|window| window.iter().map(|&(_, c)| c).eq(text.iter().copied()));
    found.map(|offset| from + offset)
}
