//! Numbers that definitions of an archive have in the recordings made of it: dense, whatever they are there.

use super::read::scan::Scanned;
use annals_format::StringId;
use annals_format::otf2::{DefinitionKind, GlobalDefinitions};
use rustc_hash::FxHashMap;
use std::collections::HashMap;

/// The format's name in foreign records.
pub(crate) const FORMAT: &str = "OTF2";

/// The number of the first definition of markers among the foreign records of the whole.
pub(crate) const FIRST_OF_MARKERS: u32 = 1 << 31;

/// Returns the text that replaces an undefined string.
pub(crate) fn text_of_undefined(number: u64) -> String {
    format!("string {number}")
}

/// Returns the number of an undefined string from the text that replaces it.
pub(crate) fn number_of_undefined(text: &str) -> Option<u64> {
    let number = text.strip_prefix("string ")?.parse().ok()?;
    (text_of_undefined(number) == text).then_some(number)
}

/// Strings in addition to those of the archive.
#[derive(Debug)]
pub(crate) struct Strings {
    first: u32,
    ids: HashMap<String, StringId>,
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

    pub(crate) fn id(&mut self, text: &str) -> StringId {
        if let Some(id) = self.ids.get(text) {
            return *id;
        }
        let id = StringId::new(self.first + self.texts.len() as u32);
        self.texts.push(text.to_owned());
        self.ids.insert(text.to_owned(), id);
        id
    }

    pub(crate) fn text(&self, id: StringId) -> Option<&str> {
        let index = id.get().checked_sub(self.first)?;
        self.texts.get(index as usize).map(String::as_str)
    }
}

/// Dense numbers of one kind of definition.
#[derive(Clone, Default, Debug)]
pub(crate) struct Numbering {
    /// Ids of the archive, ascending.
    pub(crate) ids: Vec<u64>,
    table: Vec<u32>,
    far: FxHashMap<u64, u32>,
    /// Added to each number.
    pub(crate) base: u32,
}

impl Numbering {
    const DENSE: u64 = 1 << 22;

    fn new(mut ids: Vec<u64>, base: u32) -> Self {
        ids.sort_unstable();
        ids.dedup();
        let mut numbering = Self {
            base,
            ..Self::default()
        };
        for (index, id) in ids.iter().enumerate() {
            let number = base + index as u32;
            if *id < Self::DENSE {
                numbering.table.resize(*id as usize + 1, u32::MAX);
                numbering.table[*id as usize] = number;
            } else {
                numbering.far.insert(*id, number);
            }
        }
        numbering.ids = ids;
        numbering
    }

    /// Returns the number for an id; all bits set: undefined.
    #[inline]
    pub(crate) fn get(&self, id: u64) -> u32 {
        match self.table.get(id as usize) {
            Some(number) if id < Self::DENSE => *number,
            _ => self.far.get(&id).copied().unwrap_or(u32::MAX),
        }
    }

    /// Returns the id with a number.
    pub(crate) fn id(&self, number: u32) -> Option<u64> {
        let index = number.checked_sub(self.base)?;
        self.ids.get(index as usize).copied()
    }
}

/// Numbers of all kinds.
#[derive(Debug)]
pub(crate) struct Numberings {
    kinds: Vec<Numbering>,
}

/// Kinds that are objects to us.
pub(crate) const OBJECTS: [DefinitionKind; 12] = [
    DefinitionKind::Attribute,
    DefinitionKind::Group,
    DefinitionKind::Metric,
    DefinitionKind::Comm,
    DefinitionKind::Parameter,
    DefinitionKind::RmaWin,
    DefinitionKind::SourceCodeLocation,
    DefinitionKind::CallingContext,
    DefinitionKind::InterruptGenerator,
    DefinitionKind::IoFile,
    DefinitionKind::IoHandle,
    DefinitionKind::LocationGroup,
];

/// The last of the kinds that are objects.
pub(crate) const IO_PARADIGM: DefinitionKind = DefinitionKind::IoParadigm;

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
        for kind in OBJECTS.into_iter().chain([IO_PARADIGM]) {
            let numbering = number(kind, base);
            base += numbering.ids.len() as u32;
            kinds[kind as usize] = numbering;
        }
        Self { kinds }
    }

    #[inline]
    pub(crate) fn of_kind(&self, kind: DefinitionKind) -> &Numbering {
        &self.kinds[kind as usize]
    }
}
