//! Lengths of files and functions, and patterns as parameters.

use quote::ToTokens;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use crate::modules::{Crate, attributes_of, is_test};

/// Lines of a file at most.
const MOST_LINES: usize = 1100;
/// Lines of a function at most.
const MOST_OF_FUNCTION: usize = 100;

/// Files that are tables of data.
const TABLES: &[&str] = &["format/otf2/records.rs", "format/otf2/enums.rs"];

/// Returns what is too long or has a pattern in place of a name, a line each.
pub(crate) fn check(name: &str, parsed: &Crate) -> Vec<String> {
    let mut wrong = Vec::new();
    for file in &parsed.files {
        let path = format!("{name}/{}", file.path);
        // Tests of a module come last.
        let product = file.text.split("#[cfg(test)]").next().unwrap_or_default();
        let lines = product.lines().count();
        if lines > MOST_LINES && !TABLES.contains(&&*path) {
            wrong.push(format!("{path} has {lines} lines, more than {MOST_LINES}"));
        }
    }
    for module in &parsed.modules {
        let path = format!("{name}/{}", parsed.files[module.file].path);
        let mut functions = Functions {
            path,
            wrong: &mut wrong,
        };
        module
            .items
            .iter()
            .for_each(|item| functions.visit_item(item));
    }
    wrong
}

struct Functions<'a> {
    path: String,
    wrong: &'a mut Vec<String>,
}

impl Functions<'_> {
    fn check(&mut self, signature: &syn::Signature, whole: &impl ToTokens) {
        let (first, last) = (signature.fn_token.span(), whole.span());
        let lines = last.end().line + 1 - first.start().line;
        let (path, name) = (&self.path, &signature.ident);
        let line = first.start().line;
        if lines > MOST_OF_FUNCTION {
            let text =
                format!("{path}:{line}: {name} has {lines} lines, more than {MOST_OF_FUNCTION}");
            self.wrong.push(text);
        }
        for input in &signature.inputs {
            if let syn::FnArg::Typed(input) = input
                && matches!(&*input.pat, syn::Pat::Tuple(_) | syn::Pat::TupleStruct(_))
            {
                self.wrong.push(format!(
                    "{path}:{line}: {name} takes a tuple apart in its parameters"
                ));
            }
        }
    }
}

impl<'ast> Visit<'ast> for Functions<'_> {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        if !is_test(attributes_of(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        self.check(&function.sig, function);
        visit::visit_item_fn(self, function);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        if !is_test(&function.attrs) {
            self.check(&function.sig, function);
            visit::visit_impl_item_fn(self, function);
        }
    }

    fn visit_trait_item_fn(&mut self, function: &'ast syn::TraitItemFn) {
        self.check(&function.sig, function);
        visit::visit_trait_item_fn(self, function);
    }
}
