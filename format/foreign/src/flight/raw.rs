//! What a dump has by its keys, read with serde from JSON or a pickle. Keys that are not known are ignored; a number may be an integer, a text or a float.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Unexpected, Visitor};

/// Largest number of entries of a dump.
const MOST_ENTRIES: usize = 1 << 17;

/// Largest number of groups of a dump.
pub(super) const MOST_GROUPS: usize = 4096;

/// Number of ranks that a job has at most.
pub(super) const MOST_RANKS: u64 = 1 << 17;

/// Length of a text that is kept, bytes: names are shorter.
const MOST_TEXT: usize = 300;

/// Largest number of functions of a call path that is kept, from the innermost.
const MOST_FUNCTIONS: usize = 16;

/// A dump.
#[derive(Default, Debug, serde::Deserialize)]
#[serde(default)]
pub(super) struct RawDump {
    pub(super) version: Option<Scalar>,
    pub(super) entries: Option<Gathered<Entries>>,
    pub(super) pg_config: Option<Items<RawGroup>>,
    pub(super) pg_status: Option<Items<RawStatus>>,
}

/// An operation.
#[derive(Default, Debug, serde::Deserialize)]
#[serde(default)]
pub(super) struct RawEntry {
    pub(super) frames: Gathered<CallPath>,
    pub(super) record_id: Scalar,
    pub(super) pg_id: Scalar,
    pub(super) process_group: Option<(Scalar, Scalar)>,
    pub(super) collective_seq_id: Scalar,
    pub(super) p2p_seq_id: Scalar,
    pub(super) seq_id: Scalar,
    pub(super) op_id: Scalar,
    pub(super) profiling_name: Scalar,
    pub(super) time_created_ns: Scalar,
    pub(super) input_sizes: Gathered<Elements>,
    pub(super) output_sizes: Gathered<Elements>,
    pub(super) input_dtypes: Gathered<Types>,
    pub(super) state: Scalar,
    pub(super) time_discovered_started_ns: Scalar,
    pub(super) time_discovered_completed_ns: Scalar,
    pub(super) retired: Option<bool>,
    pub(super) is_p2p: Option<bool>,
}

/// The numbers of the last operations of a group.
#[derive(Default, Debug, serde::Deserialize)]
#[serde(default)]
pub(super) struct RawStatus {
    pub(super) last_enqueued_collective: Scalar,
    pub(super) last_completed_collective: Scalar,
}

/// The description and the ranks of a group. The oldest dumps have only the ranks.
#[derive(Default, Debug)]
pub(super) struct RawGroup {
    pub(super) description: Option<String>,
    pub(super) ranks: Vec<u32>,
}

#[derive(serde::Deserialize)]
struct Described {
    #[serde(default)]
    desc: Scalar,
    #[serde(default)]
    ranks: RankList,
}

/// Ranks of a group: a list, or a text that is one, `[0, 1, 2]`. None if it is no list.
#[derive(Default, Debug)]
pub(super) struct RankList(Vec<u32>);

#[derive(serde::Deserialize)]
pub(super) struct Frame {
    #[serde(default)]
    name: Scalar,
    #[serde(default)]
    filename: Scalar,
    #[serde(default)]
    line: Scalar,
}

/// A value that is no container. Texts are cut.
#[derive(Clone, PartialEq, Default, Debug)]
pub(super) enum Scalar {
    #[default]
    None,
    Integer(i64),
    Text(String),
}

impl Scalar {
    /// Returns the text; that of a number, too.
    pub(super) fn text(&self) -> String {
        match self {
            Self::None => String::new(),
            Self::Integer(number) => number.to_string(),
            Self::Text(text) => text.clone(),
        }
    }

    /// Returns a number. `None`: there is none, or it is negative, which means the same.
    pub(super) fn number(&self) -> Result<Option<u64>, String> {
        let number = match self {
            Self::None => return Ok(None),
            Self::Integer(number) => *number,
            Self::Text(text) => {
                let number = text.trim().parse();
                number.map_err(|_| format!("`{text}` instead of a number"))?
            }
        };
        Ok(u64::try_from(number).ok())
    }
}

/// Visitors of values that have several forms.
struct Form<T>(PhantomData<T>);

impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(Form::<Self>(PhantomData))
    }
}

impl<'de> Visitor<'de> for Form<Scalar> {
    type Value = Scalar;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text or a number")
    }

    fn visit_unit<E: Error>(self) -> Result<Scalar, E> {
        Ok(Scalar::None)
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Scalar, E> {
        Ok(Scalar::Integer(number))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Scalar, E> {
        Ok(Scalar::Integer(i64::try_from(number).unwrap_or(i64::MAX)))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Scalar, E> {
        match number.fract() == 0.0 {
            true => Ok(Scalar::Integer(number as i64)),
            false => Err(E::invalid_value(Unexpected::Float(number), &self)),
        }
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Scalar, E> {
        let text = &text[..text.floor_char_boundary(MOST_TEXT)];
        Ok(Scalar::Text(text.to_owned()))
    }
}

/// What is made of the items of a list, one after the other.
pub(super) trait Gather: Default {
    type Item: for<'de> Deserialize<'de>;

    fn add(&mut self, item: Self::Item) -> Result<(), String>;
}

/// What a list becomes. `None`: there is none.
#[derive(Default, Debug)]
pub(super) struct Gathered<G>(pub(super) Option<G>);

impl<'de, G: Gather> Deserialize<'de> for Gathered<G> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(Form::<Self>(PhantomData))
    }
}

impl<'de, G: Gather> Visitor<'de> for Form<Gathered<G>> {
    type Value = Gathered<G>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_unit<E: Error>(self) -> Result<Gathered<G>, E> {
        Ok(Gathered(None))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Gathered<G>, A::Error> {
        let mut gathered = G::default();
        while let Some(item) = items.next_element()? {
            gathered.add(item).map_err(A::Error::custom)?;
        }
        Ok(Gathered(Some(gathered)))
    }
}

#[derive(Default, Debug)]
pub(super) struct Entries(pub(super) Vec<RawEntry>);

impl Gather for Entries {
    type Item = RawEntry;

    fn add(&mut self, entry: RawEntry) -> Result<(), String> {
        if self.0.len() == MOST_ENTRIES {
            return Err(format!("more than {MOST_ENTRIES} entries"));
        }
        self.0.push(entry);
        Ok(())
    }
}

/// Product of the sizes of a tensor.
#[derive(Debug)]
pub(super) struct Tensor(u64);

impl Default for Tensor {
    fn default() -> Self {
        Self(1)
    }
}

impl Gather for Tensor {
    type Item = Scalar;

    fn add(&mut self, size: Scalar) -> Result<(), String> {
        self.0 = self.0.saturating_mul(size.number()?.unwrap_or(0));
        Ok(())
    }
}

/// Number of elements of some tensors.
#[derive(Default, Debug)]
pub(super) struct Elements(pub(super) u64);

impl Gather for Elements {
    type Item = Gathered<Tensor>;

    fn add(&mut self, tensor: Gathered<Tensor>) -> Result<(), String> {
        self.0 = self.0.saturating_add(tensor.0.map_or(0, |tensor| tensor.0));
        Ok(())
    }
}

/// The type of the elements of some tensors: the first, if it is that of all.
#[derive(Default, Debug)]
pub(super) struct Types {
    pub(super) first: Option<String>,
    pub(super) are_several: bool,
}

impl Gather for Types {
    type Item = Scalar;

    fn add(&mut self, name: Scalar) -> Result<(), String> {
        let name = name.text();
        self.are_several |= self.first.as_ref().is_some_and(|first| *first != name);
        self.first.get_or_insert(name);
        Ok(())
    }
}

/// Functions of a call path, the innermost first: those of the program, and those of PyTorch.
#[derive(Default, Debug)]
pub(super) struct CallPath {
    pub(super) own: Vec<String>,
    pub(super) library: Vec<String>,
}

impl Gather for CallPath {
    type Item = Frame;

    fn add(&mut self, frame: Frame) -> Result<(), String> {
        let (name, file) = (frame.name.text(), frame.filename.text());
        let functions = match file.contains("/torch/") || file.starts_with("??") {
            true => &mut self.library,
            false => &mut self.own,
        };
        if functions.len() < MOST_FUNCTIONS {
            let base = file.rsplit('/').next().unwrap_or_default();
            functions.push(match frame.line.number()? {
                Some(line) if !base.is_empty() => format!("{name} at {base}:{line}"),
                _ => name,
            });
        }
        Ok(())
    }
}

impl Gather for RankList {
    type Item = Scalar;

    fn add(&mut self, rank: Scalar) -> Result<(), String> {
        let rank = rank.number()?.filter(|rank| *rank < MOST_RANKS);
        let rank = rank.filter(|_| self.0.len() as u64 != MOST_RANKS);
        let rank = rank.ok_or_else(|| format!("not at most {MOST_RANKS} ranks"))?;
        self.0.push(rank as u32);
        Ok(())
    }
}

impl<'de> Deserialize<'de> for RankList {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(Form::<Self>(PhantomData))
    }
}

impl<'de> Visitor<'de> for Form<RankList> {
    type Value = RankList;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ranks as `[0, 1, 2]`")
    }

    fn visit_unit<E: Error>(self) -> Result<RankList, E> {
        Ok(RankList::default())
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<RankList, E> {
        let inner = text.trim().strip_prefix('[');
        let inner = inner.and_then(|text| text.strip_suffix(']'));
        let numbers = inner.unwrap_or_default().split(',').map(str::trim);
        let mut list = RankList::default();
        for number in numbers.filter(|number| !number.is_empty()) {
            let number = Form::<Scalar>(PhantomData).visit_str(number)?;
            list.add(number).map_err(E::custom)?;
        }
        Ok(list)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<RankList, A::Error> {
        let list = Form::<Gathered<RankList>>(PhantomData).visit_seq(items)?;
        Ok(list.0.unwrap_or_default())
    }
}

impl<'de> Deserialize<'de> for RawGroup {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(Form::<Self>(PhantomData))
    }
}

impl<'de> Visitor<'de> for Form<RawGroup> {
    type Value = RawGroup;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a group")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<RawGroup, A::Error> {
        let list = Form::<RankList>(PhantomData).visit_seq(items)?;
        Ok(RawGroup {
            description: None,
            ranks: list.0,
        })
    }

    fn visit_map<A: MapAccess<'de>>(self, items: A) -> Result<RawGroup, A::Error> {
        let items = serde::de::value::MapAccessDeserializer::new(items);
        let described = Described::deserialize(items)?;
        Ok(RawGroup {
            description: Some(described.desc.text()),
            ranks: described.ranks.0,
        })
    }
}

/// The items of a map.
#[derive(Debug)]
pub(super) struct Items<T>(pub(super) Vec<(String, T)>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Items<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(Form::<Self>(PhantomData))
    }
}

impl<'de, T: Deserialize<'de>> Visitor<'de> for Form<Items<T>> {
    type Value = Items<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map of groups")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut items: A) -> Result<Items<T>, A::Error> {
        let mut all = Vec::new();
        while let Some((key, value)) = items.next_entry::<Scalar, T>()? {
            if all.len() == MOST_GROUPS {
                return Err(A::Error::custom("more groups than a job can have"));
            }
            all.push((key.text(), value));
        }
        Ok(Items(all))
    }
}
