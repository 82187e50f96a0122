//! A crate's files and modules.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use syn::{Attribute, Item, UseTree};

/// Number of a module in [`Crate::modules`]. Module 0 is the crate's root.
pub(crate) type ModuleId = usize;

/// What a `use` binds a name to.
pub(crate) struct Import {
    /// Name in this module; `None` means a glob, which binds all names of the module that `path` names.
    pub name: Option<String>,
    pub path: Vec<String>,
}

pub(crate) struct Module {
    pub parent: Option<ModuleId>,
    pub children: BTreeMap<String, ModuleId>,
    /// Number of its file in [`Crate::files`]. Several modules may be in one file.
    pub file: usize,
    pub imports: Vec<Import>,
    /// Names of the items that it defines.
    pub defined: Vec<String>,
    pub items: Vec<Item>,
}

pub(crate) struct SourceFile {
    /// Path below `src`.
    pub path: String,
    pub text: String,
    /// Its outermost module.
    pub module: ModuleId,
}

/// All that is compiled of a crate without its tests.
pub(crate) struct Crate {
    pub files: Vec<SourceFile>,
    pub modules: Vec<Module>,
}

impl Crate {
    /// Reads a crate from its folder of sources.
    ///
    /// # Errors
    /// If a file cannot be read or parsed, or a module is outside of the folder.
    pub(crate) fn read(source: &Path) -> Result<Self, String> {
        let mut read = Self {
            files: Vec::new(),
            modules: Vec::new(),
        };
        read.add_file(source, &source.join("lib.rs"), None)?;
        Ok(read)
    }

    fn add_file(
        &mut self,
        source: &Path,
        path: &Path,
        parent: Option<ModuleId>,
    ) -> Result<ModuleId, String> {
        let at = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        let text = fs::read_to_string(path).map_err(|error| at(&error))?;
        let parsed = syn::parse_file(&text).map_err(|error| at(&error))?;
        let below = path.strip_prefix(source).map_err(|error| at(&error))?;
        let module = self.modules.len();
        self.files.push(SourceFile {
            path: below.to_string_lossy().into_owned(),
            text,
            module,
        });
        let file = self.files.len() - 1;
        let folder = folder_of(path);
        self.add_module(source, &folder, parsed.items, parent, file)?;
        Ok(module)
    }

    fn add_module(
        &mut self,
        source: &Path,
        folder: &Path,
        items: Vec<Item>,
        parent: Option<ModuleId>,
        file: usize,
    ) -> Result<ModuleId, String> {
        let id = self.modules.len();
        self.modules.push(Module {
            parent,
            children: BTreeMap::new(),
            file,
            imports: Vec::new(),
            defined: Vec::new(),
            items: Vec::new(),
        });
        let mut own = Vec::new();
        for item in items {
            if is_test(attributes_of(&item)) {
                continue;
            }
            match item {
                Item::Mod(module) => {
                    let name = module.ident.to_string();
                    let child = match module.content {
                        Some((_, items)) => {
                            self.add_module(source, &folder.join(&name), items, Some(id), file)?
                        }
                        None => {
                            let path = file_of(folder, &name, &module.attrs);
                            let is_below = !path.components().any(|c| c.as_os_str() == "..");
                            if !is_below {
                                return Err(format!("{}: leaves the crate", path.display()));
                            }
                            self.add_file(source, &path, Some(id))?
                        }
                    };
                    self.modules[id].children.insert(name, child);
                }
                Item::Use(item) => {
                    add_imports(&item.tree, &mut Vec::new(), &mut self.modules[id].imports);
                    own.push(Item::Use(item));
                }
                item => {
                    self.modules[id].defined.extend(name_of(&item));
                    own.push(item);
                }
            }
        }
        self.modules[id].items = own;
        Ok(id)
    }
}

/// Returns the folder in which modules of this file have their files.
fn folder_of(path: &Path) -> PathBuf {
    let folder = path.parent().unwrap_or(Path::new("")).to_owned();
    match path.file_stem().and_then(|stem| stem.to_str()) {
        Some("lib" | "main" | "mod") | None => folder,
        Some(stem) => folder.join(stem),
    }
}

fn file_of(folder: &Path, name: &str, attributes: &[Attribute]) -> PathBuf {
    let given = attributes.iter().find(|a| a.path().is_ident("path"));
    if let Some(syn::Meta::NameValue(value)) = given.map(|a| &a.meta)
        && let syn::Expr::Lit(literal) = &value.value
        && let syn::Lit::Str(path) = &literal.lit
    {
        return folder.join(path.value());
    }
    let flat = folder.join(format!("{name}.rs"));
    if flat.exists() {
        return flat;
    }
    folder.join(name).join("mod.rs")
}

/// Returns whether an item is compiled for tests or documentation only.
pub(crate) fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let syn::Meta::List(list) = &attribute.meta else {
            return attribute.path().is_ident("test");
        };
        let condition = list.tokens.to_string().replace(' ', "");
        let is_for_tests =
            matches!(&*condition, "test" | "doctest") || condition.starts_with("all(test");
        list.path.is_ident("cfg") && is_for_tests
    })
}

/// Attributes of an item.
pub(crate) fn attributes_of(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Union(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        Item::ForeignMod(item) => &item.attrs,
        _ => &[],
    }
}

fn name_of(item: &Item) -> Option<String> {
    let name = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Macro(item) => item.ident.as_ref()?,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::Type(item) => &item.ident,
        Item::Union(item) => &item.ident,
        _ => return None,
    };
    Some(name.to_string())
}

fn add_imports(tree: &UseTree, before: &mut Vec<String>, imports: &mut Vec<Import>) {
    match tree {
        UseTree::Path(path) => {
            before.push(path.ident.to_string());
            add_imports(&path.tree, before, imports);
            before.pop();
        }
        UseTree::Name(name) => {
            let name = name.ident.to_string();
            let mut path = before.clone();
            // `use a::b::{self}` binds `b`.
            let bound = if name == "self" {
                before.last().cloned().unwrap_or_default()
            } else {
                path.push(name.clone());
                name
            };
            let name = Some(bound);
            imports.push(Import { name, path });
        }
        UseTree::Rename(rename) => {
            let mut path = before.clone();
            if rename.ident != "self" {
                path.push(rename.ident.to_string());
            }
            let name = Some(rename.rename.to_string());
            imports.push(Import { name, path });
        }
        UseTree::Glob(_) => imports.push(Import {
            name: None,
            path: before.clone(),
        }),
        UseTree::Group(group) => {
            for tree in &group.items {
                add_imports(tree, before, imports);
            }
        }
    }
}
