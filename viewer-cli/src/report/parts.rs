//! Parts that every section is made of: tables, notes, and pictures with the same numbers as a table.

use maud::{Markup, html};

use super::text;
use crate::table::{Align, Table};
use crate::time;

/// A table, and what it leaves out.
#[derive(Debug)]
pub(super) struct DataTable<'a> {
    /// What the table is about.
    pub(super) caption: &'a str,
    /// Its rows.
    pub(super) table: &'a Table,
    /// Number of rows that there are, with those that are left out.
    pub(super) total: usize,
    /// The command that shows all rows.
    pub(super) command: &'a str,
}

impl<'a> DataTable<'a> {
    /// Returns a table that leaves nothing out.
    pub(super) fn whole(caption: &'a str, table: &'a Table) -> Self {
        let total = table.rows().len();
        Self {
            caption,
            table,
            total,
            command: "",
        }
    }
}

/// Returns a table. Without rows, nothing.
pub(super) fn data_table(of: &DataTable<'_>) -> Markup {
    let (columns, rows) = (of.table.columns(), of.table.rows());
    let is_number = |align: Align| matches!(align, Align::Right | Align::Optional);
    let class = |align: Align| match align {
        Align::Right | Align::Optional => Some("number"),
        Align::Name => Some("name"),
        Align::Left => None,
    };
    let left_out = of.total.saturating_sub(rows.len());
    html! {
        @if !rows.is_empty() {
            div.scroll tabindex="0" role="region" aria-label=(of.caption) {
                table.data {
                    caption { (of.caption) }
                    thead { tr {
                        @for (head, align) in columns {
                            th scope="col" class=[is_number(*align).then_some("number")] { (head) }
                        }
                    } }
                    tbody {
                        @for row in rows { tr {
                            @for (place, cell) in row.iter().enumerate() {
                                @let class = columns.get(place).and_then(|column| class(column.1));
                                @if place == 0 {
                                    th scope="row" class=[class] { bdi { (text::cell(cell)) } }
                                } @else {
                                    td class=[class] { bdi { (text::cell(cell)) } }
                                }
                            }
                        } }
                    }
                }
            }
            @if left_out > 0 {
                p.note {
                    (left_out_sentence(left_out))
                    @if !of.command.is_empty() { " " code { (text::sentence(of.command)) } " shows all." }
                }
            }
        }
    }
}

fn left_out_sentence(count: usize) -> String {
    match count {
        1 => "1 more row is left out.".to_owned(),
        count => format!("{} more rows are left out.", time::grouped(count as u64)),
    }
}

/// Returns a picture with its caption, and tables of the same numbers.
pub(super) fn figure(caption: &str, picture: &Markup, tables: &[DataTable<'_>]) -> Markup {
    html! {
        figure {
            figcaption { (caption) }
            (picture)
            p.readout aria-hidden="true" {}
        }
        @if tables.iter().any(|of| !of.table.is_empty()) {
            details {
                summary { "The picture as a table" }
                @for of in tables { (data_table(of)) }
            }
        }
    }
}

/// Returns a paragraph that says that there is nothing, and why.
pub(super) fn nothing(why: &str) -> Markup {
    html! { p.nothing { (why) } }
}

/// Returns a section with its heading. The heading is the target of links in the page.
pub(super) fn section(id: &str, heading: &str, content: &Markup) -> Markup {
    html! {
        section aria-labelledby=(id) {
            h2 id=(id) { (heading) }
            (content)
        }
    }
}

/// Returns names with their texts, a line each.
pub(super) fn facts<Name: AsRef<str>>(facts: &[(Name, String)]) -> Markup {
    html! {
        dl.facts {
            @for (name, value) in facts {
                div {
                    dt { bdi { (text::cell(name.as_ref())) } }
                    dd { bdi { (text::sentence(value)) } }
                }
            }
        }
    }
}
