//! Categories: what tools and producers call.
//!
//! Invariant CALLER: pointers that the program passes are NULL or valid, as `annals_t.h` requires
//! of it.
#![expect(
    unsafe_code,
    reason = "exported functions; their pointers come from the program"
)]

use std::ffi::{c_char, c_int};

use annals_recorder::events::{Category, CategoryMember, Error, Members, Result};

use crate::memory::{must_put, optional_text, put, put_text, text};
use crate::{call, tool_call};

/// The kinds of a category's members, in C.
pub const MEMBER_CVAR: c_int = 0;
pub const MEMBER_PVAR: c_int = 1;
pub const MEMBER_EVENT: c_int = 2;
pub const MEMBER_CATEGORY: c_int = 3;

/// # Safety
/// - `num_cat` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn annals_t_category_get_num(num_cat: *mut c_int) -> i32 {
    // SAFETY: invariant CALLER (module docs).
    tool_call(|runtime| unsafe { must_put(num_cat, runtime.category_count()) })
}

/// # Safety
/// - Each pointer is NULL or valid, those of texts for as many bytes as their lengths contain.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn annals_t_category_get_info(
    cat_index: c_int,
    name: *mut c_char,
    name_len: *mut c_int,
    desc: *mut c_char,
    desc_len: *mut c_int,
    num_cvars: *mut c_int,
    num_pvars: *mut c_int,
    num_categories: *mut c_int,
) -> i32 {
    tool_call(|runtime| {
        let category = runtime.category_info(cat_index)?;
        let members = &category.members;
        // SAFETY: invariant CALLER (module docs).
        unsafe { put_text(&category.name, name, name_len) };
        // SAFETY: invariant CALLER (module docs).
        unsafe { put_text(&category.description, desc, desc_len) };
        for (to, list) in [
            (num_cvars, &members.cvars),
            (num_pvars, &members.pvars),
            (num_categories, &members.categories),
        ] {
            // SAFETY: invariant CALLER (module docs).
            unsafe { put(to, list.len() as c_int) };
        }
        Ok(())
    })
}

/// # Safety
/// - `num_events` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn annals_t_category_get_num_events(
    cat_index: c_int,
    num_events: *mut c_int,
) -> i32 {
    tool_call(|runtime| {
        let count = runtime.category_info(cat_index)?.members.events.len();
        // SAFETY: invariant CALLER (module docs).
        unsafe { must_put(num_events, count as c_int) }
    })
}

/// # Safety
/// - `name` is NULL or ends with a zero, `cat_index` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn annals_t_category_get_index(
    name: *const c_char,
    cat_index: *mut c_int,
) -> i32 {
    tool_call(|runtime| {
        // SAFETY: invariant CALLER (module docs).
        let index = runtime.category_index(unsafe { text(name)? })?;
        // SAFETY: invariant CALLER (module docs).
        unsafe { must_put(cat_index, index) }
    })
}

/// Copies as many indexes as there is room for.
///
/// # Safety
/// - `indices` is NULL or has room for `len`.
unsafe fn give_members(
    cat_index: c_int,
    len: c_int,
    indices: *mut c_int,
    which: impl FnOnce(Members) -> Vec<i32>,
) -> i32 {
    tool_call(|runtime| {
        let members = which(runtime.category_info(cat_index)?.members);
        let room = usize::try_from(len).map_err(|_| Error::Invalid)?;
        if indices.is_null() && room != 0 {
            return Err(Error::Invalid);
        }
        for (place, index) in members.into_iter().enumerate().take(room) {
            // SAFETY: invariant CALLER (module docs); within the array.
            unsafe { indices.add(place).write(index) };
        }
        Ok(())
    })
}

/// # Safety
/// - `indices` is NULL or has room for `len`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn annals_t_category_get_cvars(
    cat_index: c_int,
    len: c_int,
    indices: *mut c_int,
) -> i32 {
    // SAFETY: invariant CALLER (module docs).
    unsafe { give_members(cat_index, len, indices, |members| members.cvars) }
}

/// # Safety
/// - `indices` is NULL or has room for `len`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn annals_t_category_get_pvars(
    cat_index: c_int,
    len: c_int,
    indices: *mut c_int,
) -> i32 {
    // SAFETY: invariant CALLER (module docs).
    unsafe { give_members(cat_index, len, indices, |members| members.pvars) }
}

/// # Safety
/// - `indices` is NULL or has room for `len`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn annals_t_category_get_events(
    cat_index: c_int,
    len: c_int,
    indices: *mut c_int,
) -> i32 {
    // SAFETY: invariant CALLER (module docs).
    unsafe { give_members(cat_index, len, indices, |members| members.events) }
}

/// # Safety
/// - `indices` is NULL or has room for `len`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn annals_t_category_get_categories(
    cat_index: c_int,
    len: c_int,
    indices: *mut c_int,
) -> i32 {
    // SAFETY: invariant CALLER (module docs).
    unsafe { give_members(cat_index, len, indices, |members| members.categories) }
}

/// # Safety
/// - `stamp` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn annals_t_category_changed(stamp: *mut c_int) -> i32 {
    // SAFETY: invariant CALLER (module docs).
    tool_call(|runtime| unsafe { must_put(stamp, runtime.category_stamp()) })
}

/// # Safety
/// - Texts are NULL or end with a zero, `cat_index` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn annals_t_add_category(
    name: *const c_char,
    desc: *const c_char,
    cat_index: *mut c_int,
) -> i32 {
    call(|runtime| {
        if cat_index.is_null() {
            return Err(Error::Invalid);
        }
        // SAFETY: invariant CALLER (module docs).
        let (name, desc) = unsafe { (text(name)?, optional_text(desc)?) };
        let added = runtime.add_category(name, desc)?;
        // SAFETY: invariant CALLER (module docs).
        unsafe { must_put(cat_index, added.index()) }
    })
}

fn member(kind: c_int, index: c_int) -> Result<CategoryMember> {
    match kind {
        MEMBER_CVAR => Ok(CategoryMember::Cvar(index)),
        MEMBER_PVAR => Ok(CategoryMember::Pvar(index)),
        MEMBER_EVENT => Ok(CategoryMember::Event(index)),
        MEMBER_CATEGORY => Ok(CategoryMember::Category(Category::from_index(index))),
        _ => Err(Error::Invalid),
    }
}

#[unsafe(no_mangle)]
pub extern "C-unwind" fn annals_t_add_to_category(
    cat_index: c_int,
    member_kind: c_int,
    index: c_int,
) -> i32 {
    call(|runtime| {
        let category = Category::from_index(cat_index);
        runtime.add_to_category(category, member(member_kind, index)?)
    })
}
