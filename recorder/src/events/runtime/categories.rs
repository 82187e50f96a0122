//! Categories: adding them, and what consumers ask about them.

use std::sync::Mutex;
use std::sync::atomic::Ordering;

use super::Runtime;
use crate::events::category::{Category, CategoryInfo, CategoryMember, CategoryState};
use crate::events::error::{Error, Result};

impl Runtime {
    /// Adds a category.
    ///
    /// # Errors
    /// [`Error::InvalidName`] if another has its name, [`Error::Invalid`] if the name is empty,
    /// [`Error::NotAccessible`].
    pub fn add_category(&self, name: &str, description: &str) -> Result<Category> {
        let _change = self.change()?;
        if name.is_empty() || name.contains('\0') || description.contains('\0') {
            return Err(Error::Invalid);
        }
        if self.category_index(name).is_ok() {
            return Err(Error::InvalidName);
        }
        let categories = &self.shared.categories;
        let category = Category(categories.table.len() as i32);
        let state = CategoryState {
            name: name.to_owned(),
            description: description.to_owned(),
            members: Mutex::default(),
        };
        categories
            .table
            .push_with(|_| state)
            .ok_or(Error::OutOfHandles)?;
        categories.changed();
        Ok(category)
    }

    /// Puts something into a category; what is in it already stays where it is.
    ///
    /// # Errors
    /// [`Error::InvalidIndex`] if one of the two is not there, [`Error::Invalid`] if a category
    /// would hold itself, directly or through others; [`Error::NotAccessible`].
    pub fn add_to_category(&self, category: Category, member: CategoryMember) -> Result<()> {
        let _change = self.change()?;
        let categories = &self.shared.categories;
        let state = categories.table.at(category.0).ok_or(Error::InvalidIndex)?;
        let (index, count) = match member {
            CategoryMember::Cvar(index) => (index, self.cvar_count()),
            CategoryMember::Pvar(index) => (index, self.pvar_count()),
            CategoryMember::Event(index) => (index, self.event_count()),
            CategoryMember::Category(inner) => (inner.0, self.category_count()),
        };
        if !(0..count).contains(&index) {
            return Err(Error::InvalidIndex);
        }
        if matches!(member, CategoryMember::Category(_)) && categories.reaches(index, category.0) {
            return Err(Error::Invalid);
        }
        let mut members = state.members();
        let list = match member {
            CategoryMember::Cvar(_) => &mut members.cvars,
            CategoryMember::Pvar(_) => &mut members.pvars,
            CategoryMember::Event(_) => &mut members.events,
            CategoryMember::Category(_) => &mut members.categories,
        };
        if !list.contains(&index) {
            list.push(index);
            categories.changed();
        }
        Ok(())
    }

    /// Returns how many categories there are (`CATEGORY_GET_NUM`).
    /// It only grows.
    pub fn category_count(&self) -> i32 {
        self.shared.categories.table.len() as i32
    }

    /// Returns what a category is, and holds at the moment (`CATEGORY_GET_INFO` and
    /// `CATEGORY_GET_*`).
    ///
    /// # Errors
    /// [`Error::InvalidIndex`] if there is none, [`Error::NotAccessible`].
    pub fn category_info(&self, index: i32) -> Result<CategoryInfo> {
        let _change = self.change()?;
        let state = self.shared.categories.table.at(index);
        let state = state.ok_or(Error::InvalidIndex)?;
        Ok(CategoryInfo {
            name: state.name.clone(),
            description: state.description.clone(),
            members: state.members().clone(),
        })
    }

    /// Returns the category that has this name (`CATEGORY_GET_INDEX`).
    ///
    /// # Errors
    /// [`Error::InvalidName`] if there is none.
    pub fn category_index(&self, name: &str) -> Result<i32> {
        let mut states = self.shared.categories.table.iter();
        let index = states.position(|state| state.name == name);
        index.map(|index| index as i32).ok_or(Error::InvalidName)
    }

    /// Returns a number that is larger whenever a category was added or grew (`CATEGORY_CHANGED`).
    pub fn category_stamp(&self) -> i32 {
        self.shared.categories.stamp.load(Ordering::SeqCst)
    }
}
