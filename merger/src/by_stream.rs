//! Values by stream, in a table where numbers are small and in a map where they are not.

use std::collections::BTreeMap;

use annals_format::StreamId;

/// A value of each of some streams. Streams are few and their numbers small, unless a file is damaged: a number from a
/// file must not decide about the length of a table.
#[derive(Clone, Debug, Default)]
pub struct ByStream<T> {
    near: Vec<Option<T>>,
    far: BTreeMap<StreamId, T>,
}

impl<T: Copy> ByStream<T> {
    const LARGEST: usize = 1 << 20;

    /// Returns the value of a stream. `None` if it has none.
    #[inline]
    pub fn get(&self, stream: StreamId) -> Option<T> {
        match self.near.get(stream.index()) {
            Some(found) => *found,
            None => self.far.get(&stream).copied(),
        }
    }

    /// Returns the value of a stream, to be changed; it is set to the default first if there is
    /// none.
    #[inline]
    pub(crate) fn get_or_default(&mut self, stream: StreamId) -> &mut T
    where
        T: Default,
    {
        if stream.index() >= Self::LARGEST {
            return self.far.entry(stream).or_default();
        }
        if self.near.len() <= stream.index() {
            self.near.resize(stream.index() + 1, None);
        }
        self.near[stream.index()].get_or_insert_default()
    }
}

impl<T: Copy> FromIterator<(StreamId, T)> for ByStream<T> {
    fn from_iter<I: IntoIterator<Item = (StreamId, T)>>(each: I) -> Self {
        let (mut near, mut far) = (Vec::new(), BTreeMap::new());
        for (stream, value) in each {
            if stream.index() >= Self::LARGEST {
                far.insert(stream, value);
                continue;
            }
            near.resize(near.len().max(stream.index() + 1), None);
            near[stream.index()] = Some(value);
        }
        Self { near, far }
    }
}
