//! Finds the comments and the messages of source code.

use crate::prose::{self, Passage};

#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Language {
    Rust,
    /// C and C++.
    C,
}

/// Macros, functions and attributes whose string literals are messages for users.
const MESSAGES: &[&str] = &[
    "anyhow",
    "arg",
    "bail",
    "command",
    "context",
    "ensure",
    "eprint",
    "eprintln",
    "error",
    "print",
    "println",
    "warn",
    "with_context",
];

/// Which string literals are read as messages.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Strings {
    /// Those that are given to one of [`MESSAGES`].
    OfMessages,
    /// Also those that consist of several words: a crate's own code has few others.
    OfSeveralWords,
}

/// Words from which a string literal is a sentence rather than code.
const SENTENCE_WORDS: usize = 4;

/// Returns the passages of all comments, and of the messages of Rust code.
pub(crate) fn passages(source: &str, language: Language, strings: Strings) -> Vec<Passage> {
    let mut lexer = Lexer {
        chars: source.chars().collect(),
        at: 0,
        line: 1,
        language,
        strings,
        openers: Vec::new(),
        identifier: String::new(),
        comment: Comment::default(),
        passages: Vec::new(),
    };
    lexer.run();
    lexer.finish_comment();
    lexer.passages
}

/// Line comments in consecutive lines, or one block comment.
#[derive(Default)]
struct Comment {
    /// `//`, `///` or `//!`. Empty for a block comment.
    marker: String,
    /// Whether code precedes the comment in its line.
    is_trailing: bool,
    lines: Vec<(usize, String)>,
}

struct Lexer {
    chars: Vec<char>,
    at: usize,
    line: usize,
    language: Language,
    strings: Strings,
    /// The name before each bracket that is open: of a macro, a function or an attribute. Empty if there is none.
    openers: Vec<String>,
    /// The identifier that was just read.
    identifier: String,
    comment: Comment,
    passages: Vec<Passage>,
}

impl Lexer {
    fn peek(&self, distance: usize) -> char {
        self.chars.get(self.at + distance).copied().unwrap_or('\0')
    }

    fn starts_with(&self, text: &str) -> bool {
        text.chars()
            .enumerate()
            .all(|(distance, c)| self.peek(distance) == c)
    }

    fn next(&mut self) -> char {
        let c = self.peek(0);
        self.line += usize::from(c == '\n');
        self.at += 1;
        c
    }

    fn run(&mut self) {
        while self.at < self.chars.len() {
            let c = self.peek(0);
            if self.starts_with("//") {
                self.line_comment();
            } else if self.starts_with("/*") {
                self.block_comment();
            } else if c == '"' {
                self.string(0, false);
            } else if c == '\'' {
                self.quote();
            } else if c.is_alphabetic() || c == '_' {
                self.identifier_or_prefixed_string();
            } else {
                self.other();
            }
        }
    }

    fn other(&mut self) {
        let c = self.next();
        match c {
            '(' | '[' | '{' => self.openers.push(std::mem::take(&mut self.identifier)),
            ')' | ']' | '}' => drop(self.openers.pop()),
            // Between the name of a macro and its bracket.
            '!' => return,
            _ => {}
        }
        if !c.is_whitespace() {
            self.identifier.clear();
        }
    }

    fn identifier_or_prefixed_string(&mut self) {
        let start = self.at;
        while self.peek(0).is_alphanumeric() || self.peek(0) == '_' {
            self.next();
        }
        self.identifier = self.chars[start..self.at].iter().collect();
        if self.language != Language::Rust {
            return;
        }
        let is_raw = matches!(self.identifier.as_str(), "r" | "br" | "cr");
        let hashes = (0..)
            .take_while(|&distance| self.peek(distance) == '#')
            .count();
        if is_raw && self.peek(hashes) == '"' {
            self.string(hashes, true);
        }
    }

    /// A character literal, or the start of a lifetime, which has no closing quote.
    fn quote(&mut self) {
        self.next();
        let is_lifetime =
            self.language == Language::Rust && self.peek(0) != '\\' && self.peek(1) != '\'';
        if is_lifetime {
            return;
        }
        loop {
            match self.next() {
                '\\' => drop(self.next()),
                '\'' | '\n' | '\0' => return,
                _ => {}
            }
        }
    }

    fn string(&mut self, hashes: usize, is_raw: bool) {
        for _ in 0..=hashes {
            self.next();
        }
        let close = format!("\"{}", "#".repeat(hashes));
        let mut text = String::new();
        let first_line = self.line;
        while self.at < self.chars.len() && !self.starts_with(&close) {
            match self.next() {
                '\\' if !is_raw => match self.next() {
                    // The newline stays: lines are counted by it.
                    'n' | 't' | 'r' => text.push(' '),
                    escaped => text.push(escaped),
                },
                '{' => {
                    while !matches!(self.peek(0), '}' | '"' | '\\' | '\n' | '\0') {
                        self.next();
                    }
                    text.push('{');
                }
                c => text.push(c),
            }
        }
        for _ in close.chars() {
            self.next();
        }
        let is_message = self
            .openers
            .iter()
            .any(|opener| MESSAGES.contains(&opener.as_str()));
        if self.language != Language::Rust || !is_message && self.strings == Strings::OfMessages {
            return;
        }
        let lines: Vec<_> = (first_line..).zip(text.lines()).collect();
        let passages = prose::passages(&lines);
        let word_count = passages
            .iter()
            .flatten()
            .filter(|word| is_english(&word.text))
            .count();
        if is_message || word_count >= SENTENCE_WORDS {
            self.passages.extend(passages);
        }
    }

    fn line_comment(&mut self) {
        let line = self.line;
        let before = self.chars[..self.at]
            .iter()
            .rev()
            .take_while(|&&c| c != '\n');
        let is_trailing = before.into_iter().any(|c| !c.is_whitespace());
        let start = self.at;
        while !matches!(self.peek(0), '\n' | '\0') {
            self.next();
        }
        let text: String = self.chars[start..self.at].iter().collect();
        let markers = ["///", "//!", "//"];
        let marker = markers
            .into_iter()
            .find(|marker| text.starts_with(marker))
            .unwrap_or("//");
        let last_line = self.comment.lines.last().map(|&(line, _)| line);
        let continues = self.comment.marker == marker
            && last_line == Some(line.saturating_sub(1))
            && is_trailing == self.comment.is_trailing;
        if !continues {
            self.finish_comment();
            self.comment.marker = marker.to_owned();
            self.comment.is_trailing = is_trailing;
        }
        self.comment
            .lines
            .push((line, text[marker.len()..].to_owned()));
    }

    fn block_comment(&mut self) {
        self.finish_comment();
        let mut line = String::new();
        let mut depth = 0;
        while self.at < self.chars.len() {
            let number = self.line;
            if self.starts_with("*/") {
                self.at += 2;
                depth -= 1;
                if depth == 0 {
                    break;
                }
            } else if self.starts_with("/*") && (depth == 0 || self.language == Language::Rust) {
                self.at += 2;
                depth += 1;
            } else {
                match self.next() {
                    '\n' => self.comment.lines.push((number, std::mem::take(&mut line))),
                    c => line.push(c),
                }
            }
        }
        self.comment.lines.push((self.line, line));
        for (_, line) in &mut self.comment.lines {
            let trimmed = line.trim_start();
            let text = trimmed.strip_prefix(['*', '!']).unwrap_or(trimmed);
            *line = text.strip_prefix('<').unwrap_or(text).to_owned();
        }
        self.finish_comment();
    }

    fn finish_comment(&mut self) {
        let comment = std::mem::take(&mut self.comment);
        let lines: Vec<_> = comment
            .lines
            .iter()
            .map(|(line, text)| (*line, text.as_str()))
            .collect();
        self.passages.extend(prose::passages(&lines));
    }
}

fn is_english(word: &str) -> bool {
    word.chars()
        .all(|c| c.is_alphabetic() || matches!(c, '-' | '\'' | '’'))
}
