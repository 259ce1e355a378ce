//! Values that are found by an identifier once, and then by a key.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use weft_contract::LinkId;
use weft_wire::NodeAddr;

/// The place of a value in a [`Slab`] by identifiers of type `I`. A key finds its value without a search.
///
/// It is valid until the value is removed: another value may take the place. So a key is kept only
/// where it goes together with the value, or where it is resolved again after each change.
pub(crate) struct Key<I> {
    slot: u32,
    of: PhantomData<fn() -> I>,
}

/// The key of a link.
pub(crate) type LinkKey = Key<LinkId>;
/// The key of a session.
pub(crate) type SessionKey = Key<NodeAddr>;

/// Values by identifier and by key.
pub(crate) struct Slab<I, T> {
    keys: BTreeMap<I, Key<I>>,
    slots: Vec<Option<Box<T>>>,
    free: Vec<Key<I>>,
}

impl<I: Ord + Copy, T> Slab<I, T> {
    /// Makes an empty slab.
    pub(crate) const fn new() -> Self {
        Self {
            keys: BTreeMap::new(),
            slots: Vec::new(),
            free: Vec::new(),
        }
    }

    /// Returns the key of the value with this identifier.
    pub(crate) fn key(&self, id: &I) -> Option<Key<I>> {
        self.keys.get(id).copied()
    }

    /// Returns the value of a key.
    #[inline]
    pub(crate) fn get(&self, key: Key<I>) -> Option<&T> {
        self.slots.get(key.slot as usize)?.as_deref()
    }

    /// Like [`Slab::get`], for a change.
    #[inline]
    pub(crate) fn get_mut(&mut self, key: Key<I>) -> Option<&mut T> {
        self.slots.get_mut(key.slot as usize)?.as_deref_mut()
    }

    /// Returns the value with this identifier.
    pub(crate) fn find(&self, id: &I) -> Option<&T> {
        self.get(self.key(id)?)
    }

    /// Like [`Slab::find`], for a change.
    pub(crate) fn find_mut(&mut self, id: &I) -> Option<&mut T> {
        let key = self.key(id)?;
        self.get_mut(key)
    }

    /// Returns the key of the value with this identifier, which is made if there is none.
    pub(crate) fn key_or_insert(&mut self, id: I, make: impl FnOnce() -> T) -> Key<I> {
        if let Some(key) = self.key(&id) {
            return key;
        }
        let key = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            Key::at(self.slots.len() - 1)
        });
        if let Some(slot) = self.slots.get_mut(key.slot as usize) {
            *slot = Some(Box::new(make()));
        }
        self.keys.insert(id, key);
        key
    }

    /// Removes and returns the value with this identifier, and its key, which is valid no longer.
    pub(crate) fn remove(&mut self, id: &I) -> Option<(Key<I>, Box<T>)> {
        let key = self.keys.remove(id)?;
        let value = self.slots.get_mut(key.slot as usize)?.take()?;
        self.free.push(key);
        Some((key, value))
    }

    /// Returns the values in the order of their identifiers, with their keys.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Key<I>, &T)> {
        let value = |key: &Key<I>| Some((*key, self.get(*key)?));
        self.keys.values().filter_map(value)
    }

    /// Calls `change` for each value, in the order of their identifiers.
    pub(crate) fn for_each_mut(&mut self, mut change: impl FnMut(&mut T)) {
        for key in self.keys.values() {
            if let Some(Some(value)) = self.slots.get_mut(key.slot as usize) {
                change(value);
            }
        }
    }
}

impl<I> Key<I> {
    fn at(slot: usize) -> Self {
        Self {
            slot: u32::try_from(slot).unwrap_or(u32::MAX),
            of: PhantomData,
        }
    }
}

// Derived implementations would require the same of `T`.
impl<I> Clone for Key<I> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<I> Copy for Key<I> {}

impl<I> PartialEq for Key<I> {
    fn eq(&self, other: &Self) -> bool {
        self.slot == other.slot
    }
}

impl<I> Eq for Key<I> {}

impl<I> fmt::Debug for Key<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.slot)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Against a plain map, with identifiers and keys as two ways to the same values.
        #[test]
        fn a_slab_is_a_map(steps in prop::collection::vec((0_u8..3, 0_u8..8, any::<u16>()), 0..60)) {
            let mut slab = Slab::new();
            let mut model = BTreeMap::new();
            for (step, id, value) in steps {
                match step {
                    0 => {
                        let key = slab.key_or_insert(id, || value);
                        model.entry(id).or_insert(value);
                        prop_assert_eq!(slab.get(key), model.get(&id));
                    }
                    1 => prop_assert_eq!(slab.remove(&id).map(|(_, value)| *value), model.remove(&id)),
                    _ => slab.for_each_mut(|value| *value = value.wrapping_add(1)),
                }
                if step > 1 {
                    model.values_mut().for_each(|value| *value = value.wrapping_add(1));
                }
                prop_assert!(slab.iter().map(|(_, value)| value).eq(model.values()));
                for id in 0..8 {
                    prop_assert_eq!(slab.find(&id), model.get(&id));
                    prop_assert_eq!(slab.key(&id).and_then(|key| slab.get(key)), model.get(&id));
                }
                prop_assert!(slab.slots.len() <= 8, "places are used again");
            }
        }
    }
}
