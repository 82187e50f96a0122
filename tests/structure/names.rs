//! Which file a path of the source code leads to.

use std::collections::BTreeSet;

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};

use crate::modules::{Crate, ModuleId, attributes_of, is_test};

/// Longest chain of `use` that is followed.
const MOST_STEPS: usize = 32;

/// Returns the numbers of the files that the code of each file names, by number of the file.
pub(crate) fn named_files(parsed: &Crate) -> Vec<BTreeSet<usize>> {
    let mut named = vec![BTreeSet::new(); parsed.files.len()];
    for (id, module) in parsed.modules.iter().enumerate() {
        let mut paths = Paths::default();
        for import in &module.imports {
            paths.found.push(import.path.clone());
        }
        for item in &module.items {
            if !matches!(item, syn::Item::Use(_)) {
                paths.visit_item(item);
            }
        }
        for path in paths.found {
            if let Some(file) = file_of(parsed, id, &path, MOST_STEPS) {
                named[module.file].insert(file);
            }
        }
    }
    named
}

/// Paths of expressions, types, patterns and macros.
#[derive(Default)]
struct Paths {
    found: Vec<Vec<String>>,
}

impl Paths {
    /// Adds what looks like a path among the tokens of a macro.
    fn add_tokens(&mut self, tokens: TokenStream) {
        let mut path: Vec<String> = Vec::new();
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Ident(name) => {
                    if colons != 2 {
                        self.found.push(std::mem::take(&mut path));
                    }
                    path.push(name.to_string());
                    colons = 0;
                }
                TokenTree::Punct(mark) if mark.as_char() == ':' => colons += 1,
                TokenTree::Group(group) => {
                    self.found.push(std::mem::take(&mut path));
                    colons = 0;
                    self.add_tokens(group.stream());
                }
                _ => {
                    self.found.push(std::mem::take(&mut path));
                    colons = 0;
                }
            }
        }
        self.found.push(path);
    }
}

impl<'ast> Visit<'ast> for Paths {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        if !is_test(attributes_of(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        if !is_test(&function.attrs) {
            visit::visit_impl_item_fn(self, function);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names = path
            .segments
            .iter()
            .map(|segment| segment.ident.to_string());
        self.found.push(names.collect());
        visit::visit_path(self, path);
    }

    /// A `pub(super)` needs nothing of the parent.
    fn visit_visibility(&mut self, _: &'ast syn::Visibility) {}

    fn visit_macro(&mut self, found: &'ast syn::Macro) {
        self.add_tokens(found.tokens.clone());
        visit::visit_macro(self, found);
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        // A `use` in a function.
        let mut imports = vec![(&item.tree, Vec::new())];
        while let Some((tree, before)) = imports.pop() {
            match tree {
                syn::UseTree::Path(path) => {
                    let mut before = before;
                    before.push(path.ident.to_string());
                    imports.push((&path.tree, before));
                }
                syn::UseTree::Group(group) => {
                    imports.extend(group.items.iter().map(|tree| (tree, before.clone())));
                }
                syn::UseTree::Name(syn::UseName { ident })
                | syn::UseTree::Rename(syn::UseRename { ident, .. }) => {
                    let mut before = before;
                    before.push(ident.to_string());
                    self.found.push(before);
                }
                syn::UseTree::Glob(_) => self.found.push(before),
            }
        }
    }
}

/// Returns the file in which a path of a module ends, or `None` if it does not lead into this crate.
fn file_of(parsed: &Crate, module: ModuleId, path: &[String], steps: usize) -> Option<usize> {
    let (first, rest) = path.split_first()?;
    let parent = |id: ModuleId| parsed.modules[id].parent;
    match &**first {
        "crate" | "$crate" => follow(parsed, 0, rest, steps),
        "self" => follow(parsed, module, rest, steps),
        "super" => {
            let mut at = parent(module)?;
            let mut rest = rest;
            while let Some((name, after)) = rest.split_first()
                && name == "super"
            {
                at = parent(at)?;
                rest = after;
            }
            follow(parsed, at, rest, steps)
        }
        _ => follow_name(parsed, module, path, steps),
    }
}

/// Follows a path that begins with a name of this module, if it is one.
fn follow_name(parsed: &Crate, module: ModuleId, path: &[String], steps: usize) -> Option<usize> {
    let steps = steps.checked_sub(1)?;
    let (first, rest) = path.split_first()?;
    let of_module = &parsed.modules[module];
    if let Some(child) = of_module.children.get(first) {
        return follow(parsed, *child, rest, steps);
    }
    if of_module.defined.contains(first) {
        return Some(of_module.file);
    }
    for import in &of_module.imports {
        if import.name.as_ref() == Some(first) {
            let mut whole = import.path.clone();
            // `use other::first` of another crate ends here: its first name is no module of ours.
            whole.extend(rest.iter().cloned());
            let leads_to_itself = import.path.first() == Some(first) && import.path.len() == 1;
            return (!leads_to_itself).then(|| file_of(parsed, module, &whole, steps))?;
        }
    }
    let globs = of_module
        .imports
        .iter()
        .filter(|import| import.name.is_none());
    let mut globs = globs.filter(|import| import.path.first().is_some_and(|name| name != first));
    globs.find_map(|import| {
        let target = module_of(parsed, module, &import.path, steps)?;
        follow_name(parsed, target, path, steps)
    })
}

/// Follows the names after a module.
fn follow(parsed: &Crate, module: ModuleId, rest: &[String], steps: usize) -> Option<usize> {
    if rest.is_empty() {
        return Some(parsed.modules[module].file);
    }
    follow_name(parsed, module, rest, steps).or(Some(parsed.modules[module].file))
}

/// Returns the module that a path names, or `None` if it names none of this crate.
fn module_of(parsed: &Crate, module: ModuleId, path: &[String], steps: usize) -> Option<ModuleId> {
    let steps = steps.checked_sub(1)?;
    let mut at = module;
    let mut is_first = true;
    for name in path {
        at = match &**name {
            "crate" => 0,
            "self" => at,
            "super" => parsed.modules[at].parent?,
            name => match parsed.modules[at].children.get(name) {
                Some(child) => *child,
                None if is_first => {
                    let imports = &parsed.modules[at].imports;
                    let import = imports.iter().find(|i| i.name.as_deref() == Some(name))?;
                    if import.path.first().is_some_and(|first| first == name) {
                        return None;
                    }
                    module_of(parsed, at, &import.path, steps)?
                }
                None => return None,
            },
        };
        is_first = false;
    }
    Some(at)
}
