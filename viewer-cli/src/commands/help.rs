//! `trace-cli help`: help of a command, or a chapter of the manual for the terminal.

use std::fmt::Write as _;
use std::io::Write;

use annals_export::UsageError;

use crate::did_you_mean::did_you_mean;
use crate::output::Finding;

/// Chapters that can be read without a browser.
pub const TOPICS: [(&str, &str); 6] = [
    ("losses", include_str!("../../book/src/losses.md")),
    ("clocks", include_str!("../../book/src/clocks.md")),
    ("filters", include_str!("../../book/src/filters.md")),
    ("settings", include_str!("../../book/src/settings.md")),
    ("json", include_str!("../../book/src/json.md")),
    (
        "troubleshooting",
        include_str!("../../book/src/troubleshooting.md"),
    ),
];

/// Prints the help of everything, of a command, or of a topic.
///
/// # Errors
/// If there is no command and no topic with the name, or the output cannot be written.
pub fn run(
    mut command_line: clap::Command,
    name: Option<&str>,
    out: &mut dyn Write,
) -> anyhow::Result<Finding> {
    command_line.build();
    let Some(name) = name else {
        write!(out, "{}", command_line.render_long_help())?;
        return Ok(Finding::FINE);
    };
    if let Some((_, chapter)) = TOPICS.iter().find(|(topic, _)| *topic == name) {
        write!(out, "{}", plain(chapter))?;
        return Ok(Finding::FINE);
    }
    if let Some(command) = command_line.find_subcommand_mut(name) {
        write!(out, "{}", command.render_long_help())?;
        return Ok(Finding::FINE);
    }
    let commands = command_line.get_subcommands().filter(|c| !c.is_hide_set());
    let mut names: Vec<&str> = commands.map(clap::Command::get_name).collect();
    names.extend(TOPICS.map(|(topic, _)| topic));
    let near = did_you_mean(name, names.into_iter());
    let topics = TOPICS.map(|(topic, _)| topic).join(", ");
    let message = format!(
        "there is no command and no topic `{name}`{near}\n\
         Topics: {topics}. `trace-cli help` lists the commands"
    );
    Err(UsageError(message).into())
}

/// Width of paragraphs, in columns.
const WIDTH: usize = 100;

/// Returns a chapter as text for a terminal: without fences, comments and addresses of links; headings underlined,
/// paragraphs filled, tables as aligned columns.
fn plain(chapter: &str) -> String {
    let mut text = String::new();
    let mut table: Vec<Vec<String>> = Vec::new();
    let mut paragraph = String::new();
    let mut is_code = false;
    for line in chapter.lines() {
        let is_row = line.starts_with('|') && !is_code;
        let is_item = line.starts_with("- ") || line.starts_with(|c: char| c.is_ascii_digit());
        let goes_on = !is_code && !line.is_empty() && !line.starts_with(['#', '|', '<', '!', '`']);
        if !goes_on || is_item {
            push_paragraph(&mut text, &std::mem::take(&mut paragraph));
        }
        if !is_row {
            push_table(&mut text, &std::mem::take(&mut table));
        }
        if line.starts_with("```") {
            is_code = !is_code;
        } else if is_row {
            let cells = line.trim_matches('|').split('|');
            table.push(cells.map(|cell| without_links(cell.trim())).collect());
        } else if is_code {
            let _ = writeln!(text, "    {line}");
        } else if line.starts_with('#') {
            let title = line.trim_start_matches('#').trim();
            let rule = if line.starts_with("##") { "-" } else { "=" };
            let _ = writeln!(text, "{title}\n{}", rule.repeat(title.chars().count()));
        } else if line.is_empty() {
            text.push('\n');
        } else if !line.starts_with("<!--") && !line.starts_with("![") {
            paragraph.push_str(line.trim());
            paragraph.push(' ');
        }
    }
    push_paragraph(&mut text, &paragraph);
    push_table(&mut text, &table);
    text
}

/// Appends a paragraph, or an item of a list with its lines indented.
fn push_paragraph(text: &mut String, paragraph: &str) {
    let paragraph = without_links(paragraph);
    let indent = match paragraph.split_once(' ') {
        Some((mark, _)) if mark == "-" || mark.trim_end_matches('.').parse::<u32>().is_ok() => {
            mark.len() + 1
        }
        _ => 0,
    };
    let mut column = 0;
    for word in paragraph.split_whitespace() {
        let width = word.chars().count();
        if column > 0 && column + 1 + width > WIDTH {
            let _ = write!(text, "\n{:indent$}", "");
            column = indent;
        } else if column > 0 {
            text.push(' ');
            column += 1;
        }
        text.push_str(word);
        column += width;
    }
    if column > 0 {
        text.push('\n');
    }
}

/// Appends a table with aligned columns.
fn push_table(text: &mut String, rows: &[Vec<String>]) {
    let is_rule = |row: &&Vec<String>| row.iter().all(|cell| cell.chars().all(|c| c == '-'));
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    for row in rows.iter().filter(|row| !is_rule(row)) {
        let mut line = String::from(" ");
        for (column, cell) in row.iter().enumerate() {
            let _ = write!(line, " {cell:<width$} ", width = width(column));
        }
        let _ = writeln!(text, "{}", line.trim_end());
    }
}

/// Returns a line with the texts of its links only.
fn without_links(line: &str) -> String {
    let mut rest = line;
    let mut text = String::new();
    while let Some((before, after)) = rest.split_once("](") {
        let Some((_, after)) = after.split_once(')') else {
            break;
        };
        match before.rsplit_once('[') {
            Some((before, link)) => text = text + before + link,
            None => text += before,
        }
        rest = after;
    }
    text + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chapter_is_shown_without_its_marks() {
        let chapter = "# Title\n\nSee [one](a.md)\nand [two](b.md#c).\n\n<!-- numbers vary -->\n```sh\ncommand | other\n```\n\n\
                       | a | b |\n|---|---|\n| long | x |\n";
        let expected =
            "Title\n=====\n\nSee one and two.\n\n    command | other\n\n  a     b\n  long  x\n";
        assert_eq!(plain(chapter), expected);
    }
}
