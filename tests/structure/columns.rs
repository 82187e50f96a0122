//! Names of columns: they are written where columns are declared, and nowhere else.

use std::collections::BTreeSet;

use proc_macro2::{TokenStream, TokenTree};
use quote::ToTokens;
use syn::visit::{self, Visit};

use crate::modules::{Crate, attributes_of, is_test};

/// String literals of a crate: the names of columns where they are declared, and all others.
#[derive(Default)]
pub(crate) struct Literals {
    pub(crate) columns: BTreeSet<String>,
    /// Each with its file.
    pub(crate) others: BTreeSet<(String, String)>,
    file: String,
}

impl Literals {
    pub(crate) fn of(parsed: &Crate) -> Self {
        let mut found = Self::default();
        for module in &parsed.modules {
            found.file.clone_from(&parsed.files[module.file].path);
            for item in &module.items {
                found.visit_item(item);
            }
        }
        found
    }

    fn add(&mut self, tokens: TokenStream) {
        for token in tokens {
            match token {
                TokenTree::Group(group) => self.add(group.stream()),
                TokenTree::Literal(literal) => self.add_text(&literal.to_string()),
                _ => {}
            }
        }
    }

    fn add_text(&mut self, literal: &str) {
        if let Some(text) = text_of(literal) {
            self.others.insert((text, self.file.clone()));
        }
    }

    /// Adds the columns of `columns!`: the literal after each semicolon.
    fn add_columns(&mut self, tokens: TokenStream) {
        let mut is_after_semicolon = false;
        for token in tokens {
            if let TokenTree::Literal(literal) = &token
                && is_after_semicolon
            {
                self.columns.extend(text_of(&literal.to_string()));
            }
            is_after_semicolon = matches!(&token, TokenTree::Punct(mark) if mark.as_char() == ';');
        }
    }
}

fn text_of(literal: &str) -> Option<String> {
    let text = literal.strip_prefix('"')?.strip_suffix('"')?;
    Some(text.to_owned())
}

impl<'ast> Visit<'ast> for Literals {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        if !is_test(attributes_of(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_macro(&mut self, found: &'ast syn::Macro) {
        let name = found
            .path
            .segments
            .last()
            .map(|name| name.ident.to_string());
        match name.as_deref() {
            Some("columns") => self.add_columns(found.tokens.clone()),
            Some("column") => {
                let first = found.tokens.clone().into_iter().next();
                let name = first.map(|token| token.to_string());
                self.columns.extend(name.and_then(|name| text_of(&name)));
            }
            _ => self.add(found.tokens.clone()),
        }
    }

    fn visit_expr_call(&mut self, call: &'ast syn::ExprCall) {
        let function = call.func.to_token_stream().to_string();
        let is_column = ["Column :: new", "Column :: nullable"].contains(&&*function);
        let mut arguments = call.args.iter();
        if is_column && let Some(name) = arguments.next() {
            let name = name.to_token_stream().to_string();
            self.columns.extend(text_of(&name));
            arguments.for_each(|argument| self.visit_expr(argument));
            return;
        }
        visit::visit_expr_call(self, call);
    }

    fn visit_lit_str(&mut self, literal: &'ast syn::LitStr) {
        self.others.insert((literal.value(), self.file.clone()));
    }
}
