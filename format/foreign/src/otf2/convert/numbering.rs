//! Maps an archive's definition ids to dense numbers in the recordings made from it.

use super::scan::Scanned;
use crate::otf2::conventions::OBJECTS;
use crate::otf2::{DefinitionKind, GlobalDefinitions};
use annals_format::StringId;
use rustc_hash::FxHashMap;
use std::collections::HashMap;

/// Strings of the recordings that the archive does not have, such as names of event types. Their ids follow those of
/// the archive's strings, and are common to all processes.
#[derive(Debug)]
pub(crate) struct Strings {
    /// The lowest id.
    first: u32,
    ids: HashMap<String, StringId>,
    /// The texts by id, from `first` on.
    texts: Vec<String>,
}

impl Strings {
    /// Creates strings that are numbered from `first` on.
    pub(crate) fn new(first: u32) -> Self {
        Self {
            first,
            ids: HashMap::new(),
            texts: Vec::new(),
        }
    }

    /// Returns the id of a text, and adds the text if it is new.
    pub(crate) fn intern(&mut self, text: &str) -> StringId {
        if let Some(id) = self.ids.get(text) {
            return *id;
        }
        let id = StringId::new(self.first + self.texts.len() as u32);
        self.texts.push(text.to_owned());
        self.ids.insert(text.to_owned(), id);
        id
    }

    /// Returns the text with an id. `None` means that [`Strings::intern`] has not returned this id.
    pub(crate) fn text(&self, id: StringId) -> Option<&str> {
        let index = id.get().checked_sub(self.first)?;
        self.texts.get(index as usize).map(String::as_str)
    }
}

/// Dense numbers of one kind of definition: `base` + the index of the id among the ids of this kind.
#[derive(Clone, Default, Debug)]
pub(crate) struct Numbering {
    /// Ids of the archive, ascending.
    pub(crate) ids: Vec<u64>,
    /// The numbers of ids below [`Numbering::TABLE_IDS`], by id; `u32::MAX` means that there is no such id.
    table: Vec<u32>,
    /// The numbers of the other ids.
    far: FxHashMap<u64, u32>,
    /// The number of the first id.
    pub(crate) base: u32,
}

impl Numbering {
    /// Ids below this are in the table, the others in the map.
    const TABLE_IDS: u64 = 1 << 22;

    fn new(mut ids: Vec<u64>, base: u32) -> Self {
        ids.sort_unstable();
        ids.dedup();
        let mut numbering = Self {
            base,
            ..Self::default()
        };
        for (index, id) in ids.iter().enumerate() {
            let number = base + index as u32;
            if *id < Self::TABLE_IDS {
                numbering.table.resize(*id as usize + 1, u32::MAX);
                numbering.table[*id as usize] = number;
            } else {
                numbering.far.insert(*id, number);
            }
        }
        numbering.ids = ids;
        numbering
    }

    /// Returns the number of an id. `u32::MAX` means that the archive has no definition with this id and nothing refers
    /// to one.
    #[inline]
    pub(crate) fn get(&self, id: u64) -> u32 {
        match self.table.get(id as usize) {
            Some(number) if id < Self::TABLE_IDS => *number,
            _ => self.far.get(&id).copied().unwrap_or(u32::MAX),
        }
    }

    /// Returns the id with a number, or `None` if no id has it.
    pub(crate) fn id(&self, number: u32) -> Option<u64> {
        let index = number.checked_sub(self.base)?;
        self.ids.get(index as usize).copied()
    }
}

/// The numberings of all kinds of definitions.
#[derive(Debug)]
pub(crate) struct Numberings {
    /// By [`DefinitionKind`]; empty for kinds that are not numbered.
    kinds: Vec<Numbering>,
}

impl Numberings {
    /// Numbers all definitions, and those that are only referred to.
    pub(crate) fn of(definitions: &GlobalDefinitions, scanned: &[Scanned]) -> Self {
        let mut kinds = vec![Numbering::default(); DefinitionKind::COUNT];
        let number = |kind: DefinitionKind, base: u32| {
            let mut ids: Vec<u64> = definitions.of_kind(kind).map(|(id, _)| id).collect();
            for scanned in scanned {
                let seen = scanned.seen[kind as usize].iter();
                ids.extend(seen.filter(|id| *id != kind.undefined()));
            }
            Numbering::new(ids, base)
        };
        for kind in [
            DefinitionKind::String,
            DefinitionKind::Region,
            DefinitionKind::Location,
        ] {
            kinds[kind as usize] = number(kind, 0);
        }
        let mut base = 0;
        for kind in OBJECTS {
            let numbering = number(kind, base);
            base += numbering.ids.len() as u32;
            kinds[kind as usize] = numbering;
        }
        Self { kinds }
    }

    /// Returns the numbering of a kind of definition.
    #[inline]
    pub(crate) fn of_kind(&self, kind: DefinitionKind) -> &Numbering {
        &self.kinds[kind as usize]
    }
}
