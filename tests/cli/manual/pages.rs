//! README and manual, taken apart into what can be run.

use std::fs;
use std::path::{Path, PathBuf};

/// Repository root.
pub(super) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// A page with its text.
pub(super) struct Page {
    pub path: PathBuf,
    pub text: String,
}

/// A fenced block that the test acts on.
pub(super) enum Block {
    /// A file that the page shows: `<!-- file: NAME -->` before the block.
    File { name: String, text: String },
    /// Commands for the shell.
    Commands(Commands),
}

pub(super) struct Commands {
    /// Line of the page, counted from 1.
    pub line: usize,
    pub text: String,
    /// Why they cannot run: `sh,norun=REASON`.
    pub norun: Option<String>,
    /// The `text` block after them: what they print.
    pub output: Option<Expected>,
}

pub(super) struct Expected {
    pub text: String,
    /// `<!-- numbers vary -->` before the block.
    pub numbers_vary: bool,
}

/// Returns README, CONTRIBUTING and the chapters, by path.
pub(super) fn pages() -> Vec<Page> {
    let chapters = fs::read_dir(root().join("viewer-cli/book/src")).expect("the manual");
    let chapters = chapters.flatten().map(|entry| entry.path());
    let is_page = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "md");
    let mut paths: Vec<PathBuf> = chapters.filter(is_page).collect();
    paths.extend(["README.md", "CONTRIBUTING.md"].map(|name| root().join(name)));
    paths.sort();
    let read = |path: PathBuf| Page {
        text: fs::read_to_string(&path).expect("a page"),
        path,
    };
    paths.into_iter().map(read).collect()
}

impl Page {
    pub(super) fn name(&self) -> String {
        let name = self.path.file_name().expect("a name");
        name.to_string_lossy().into_owned()
    }

    /// Returns the blocks that can be run, in order.
    ///
    /// # Panics
    /// If a block has no end.
    pub(super) fn blocks(&self) -> Vec<Block> {
        let mut blocks = Vec::new();
        // The comment before the next block, and whether only blank lines followed the last commands.
        let mut comment = "";
        let mut follows_commands = false;
        let mut lines = self.text.lines().enumerate();
        while let Some((number, line)) = lines.next() {
            let line = line.trim_start();
            let Some(info) = line.strip_prefix("```") else {
                if let Some(text) = line.strip_prefix("<!-- ") {
                    comment = text.strip_suffix(" -->").unwrap_or(text);
                } else if !line.is_empty() {
                    comment = "";
                    follows_commands = false;
                }
                continue;
            };
            let inside = lines.by_ref().map(|(_, line)| line);
            let inside: Vec<&str> = inside.take_while(|line| line.trim() != "```").collect();
            let text = inside.join("\n") + "\n";
            let (language, rest) = info.split_once(',').unwrap_or((info, ""));
            if let Some(name) = comment.strip_prefix("file: ") {
                let name = name.to_owned();
                blocks.push(Block::File { name, text });
            } else if language == "sh" {
                blocks.push(Block::Commands(Commands {
                    line: number + 1,
                    text,
                    norun: rest.strip_prefix("norun=").map(str::to_owned),
                    output: None,
                }));
            } else if let Some(Block::Commands(commands)) = blocks.last_mut()
                && language == "text"
                && follows_commands
            {
                commands.output = Some(Expected {
                    text,
                    numbers_vary: comment == "numbers vary",
                });
            }
            follows_commands = language == "sh";
            comment = "";
        }
        blocks
    }
}
