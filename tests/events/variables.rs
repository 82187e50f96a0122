//! Performance and control variables, enumerations and categories (MPI 3.1 §14.3.5 to §14.3.8; in MPI 4.1
//! §16.3.5 to §16.3.9).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use annals_recorder::events::{
    Bind, CategoryMember, CvarHandle, CvarSpec, Datatype, Error, ObjectHandle, Pvar, PvarClass,
    PvarHandle, PvarNotice, PvarSession, PvarSpec, Runtime, Scope, Value,
};

fn pvar(runtime: &Runtime, class: PvarClass, datatype: Datatype) -> Pvar {
    let spec = PvarSpec::new(class.name(), class, datatype);
    runtime.add_pvar(&spec).unwrap()
}

fn handle(runtime: &Runtime, session: PvarSession, pvar: &Pvar) -> PvarHandle {
    runtime
        .pvar_handle_alloc(session, pvar.index(), None)
        .unwrap()
        .0
}

fn read(runtime: &Runtime, session: PvarSession, handle: PvarHandle) -> Value {
    let mut values = [Value::Char(0); 2];
    assert_eq!(runtime.pvar_read(session, handle, &mut values), Ok(1));
    assert_eq!(runtime.pvar_read_item(session, handle, 0), Ok(values[0]));
    values[0]
}

const fn number(value: u64) -> Value {
    Value::UnsignedLong(value)
}

#[test]
fn performance_variables_keep_their_index_and_what_they_say() {
    let runtime = Runtime::new();
    for (index, class) in PvarClass::ALL.into_iter().enumerate() {
        let mut allowed = Vec::new();
        for datatype in Datatype::ALL {
            let spec = PvarSpec::new("same name", class, datatype);
            if !class.allows(datatype) {
                assert_eq!(runtime.add_pvar(&spec).err(), Some(Error::Invalid));
                continue;
            }
            // Name and class together are unique.
            let added = runtime.add_pvar(&spec);
            let expected = (!allowed.is_empty()).then_some(Error::InvalidName);
            assert_eq!(added.err(), expected);
            allowed.push(datatype);
        }
        assert_eq!(runtime.pvar_index("same name", class), Ok(index as i32));
        let info = runtime.pvar_info(index as i32).unwrap();
        assert_eq!((info.class, info.datatype), (class, allowed[0]));
        assert!(!info.is_readonly && !info.is_continuous && info.is_atomic);
        assert_eq!((info.bind, info.enumeration), (Bind::NoObject, None));
    }
    assert_eq!(runtime.pvar_count(), 10);
    assert_eq!(runtime.pvar_info(10).err(), Some(Error::InvalidIndex));
    assert_eq!(runtime.pvar_info(-1).err(), Some(Error::InvalidIndex));
    let unknown = runtime.pvar_index("other", PvarClass::Level);
    assert_eq!(unknown, Err(Error::InvalidName));
    let unnamed = PvarSpec::new("", PvarClass::Level, Datatype::Double);
    assert_eq!(runtime.add_pvar(&unnamed).err(), Some(Error::Invalid));
    use Datatype as D;
    assert!(
        [D::Unsigned, D::UnsignedLong, D::UnsignedLongLong]
            .iter()
            .all(|t| PvarClass::Counter.allows(*t))
    );
    assert!(!PvarClass::Counter.allows(D::Double) && PvarClass::Timer.allows(D::Double));
    assert!(PvarClass::State.allows(D::Int) && PvarClass::Percentage.allows(D::Double));
}

#[test]
fn sums_start_at_zero_and_count_while_started() {
    let runtime = Runtime::new();
    for class in [PvarClass::Counter, PvarClass::Aggregate, PvarClass::Timer] {
        let sum = pvar(&runtime, class, Datatype::UnsignedLong);
        sum.add(0, number(1000)).unwrap();
        let session = runtime.pvar_session_create().unwrap();
        let handle = handle(&runtime, session, &sum);
        let value = || read(&runtime, session, handle);
        sum.add(0, number(1)).unwrap();
        assert_eq!(value(), number(0), "stopped at first");
        runtime.pvar_start(session, handle).unwrap();
        sum.add(0, number(2)).unwrap();
        assert_eq!(value(), number(2));
        runtime.pvar_stop(session, handle).unwrap();
        sum.add(0, number(4)).unwrap();
        assert_eq!(value(), number(2));
        runtime.pvar_start(session, handle).unwrap();
        sum.add(0, number(8)).unwrap();
        assert_eq!(value(), number(10));
        runtime.pvar_write(session, handle, &[number(500)]).unwrap();
        sum.add(0, number(1)).unwrap();
        assert_eq!(value(), number(501));
        runtime.pvar_reset(session, handle).unwrap();
        assert_eq!(value(), number(0));
        sum.add(0, number(3)).unwrap();
        let mut old = [number(0)];
        assert_eq!(runtime.pvar_read_reset(session, handle, &mut old), Ok(1));
        assert_eq!((old, value()), ([number(3)], number(0)));
    }
    // Integers wrap in their own width; doubles add.
    let narrow = PvarSpec::new("narrow", PvarClass::Counter, Datatype::Unsigned).continuous();
    let narrow = runtime.add_pvar(&narrow).unwrap();
    narrow.set(0, Value::Unsigned(u32::MAX)).unwrap();
    let session = runtime.pvar_session_create().unwrap();
    let narrow_handle = handle(&runtime, session, &narrow);
    narrow.add(0, Value::Unsigned(3)).unwrap();
    assert_eq!(read(&runtime, session, narrow_handle), Value::Unsigned(3));
    let seconds = PvarSpec::new("seconds", PvarClass::Timer, Datatype::Double).continuous();
    let seconds = runtime.add_pvar(&seconds).unwrap();
    let seconds_handle = handle(&runtime, session, &seconds);
    seconds.add(0, Value::Double(0.25)).unwrap();
    assert_eq!(read(&runtime, session, seconds_handle), Value::Double(0.25));
}

#[test]
fn levels_and_states_are_those_of_the_moment() {
    let runtime = Runtime::new();
    let level = pvar(&runtime, PvarClass::Level, Datatype::UnsignedLong);
    level.set(0, number(5)).unwrap();
    let session = runtime.pvar_session_create().unwrap();
    let handle = handle(&runtime, session, &level);
    let value = || read(&runtime, session, handle);
    level.set(0, number(6)).unwrap();
    assert_eq!(value(), number(5), "not updated until it is started");
    runtime.pvar_start(session, handle).unwrap();
    assert_eq!(value(), number(6));
    runtime.pvar_stop(session, handle).unwrap();
    level.set(0, number(7)).unwrap();
    assert_eq!(value(), number(6));
    runtime.pvar_reset(session, handle).unwrap();
    assert_eq!(value(), number(7));
}

#[test]
fn watermarks_follow_every_level_since_their_start() {
    let runtime = Runtime::new();
    let high = pvar(&runtime, PvarClass::HighWatermark, Datatype::UnsignedLong);
    let low = pvar(&runtime, PvarClass::LowWatermark, Datatype::Double);
    let set = |level: u64| {
        high.set(0, number(level)).unwrap();
        low.set(0, Value::Double(level as f64)).unwrap();
    };
    set(5);
    let session = runtime.pvar_session_create().unwrap();
    let (highest, lowest) = (
        handle(&runtime, session, &high),
        handle(&runtime, session, &low),
    );
    let values = || {
        (
            read(&runtime, session, highest),
            read(&runtime, session, lowest),
        )
    };
    let pair = |high, low| (number(high), Value::Double(low));
    set(100);
    set(5);
    runtime.pvar_start_all(session).unwrap();
    assert_eq!(values(), pair(5, 5.0));
    // Between two reads, too.
    set(9);
    set(2);
    set(6);
    assert_eq!(values(), pair(9, 2.0));
    runtime.pvar_reset_all(session).unwrap();
    assert_eq!(values(), pair(6, 6.0));
    runtime.pvar_stop_all(session).unwrap();
    set(50);
    set(1);
    assert_eq!(values(), pair(6, 6.0));
}

#[test]
fn sessions_do_not_disturb_each_other() {
    let runtime = Runtime::new();
    let sum = pvar(&runtime, PvarClass::Counter, Datatype::UnsignedLong);
    let sessions = [0, 1].map(|_| runtime.pvar_session_create().unwrap());
    let handles = sessions.map(|session| handle(&runtime, session, &sum));
    runtime.pvar_start(sessions[0], handles[0]).unwrap();
    sum.add(0, number(3)).unwrap();
    runtime.pvar_start(sessions[1], handles[1]).unwrap();
    sum.add(0, number(4)).unwrap();
    runtime.pvar_reset(sessions[0], handles[0]).unwrap();
    runtime
        .pvar_write(sessions[0], handles[0], &[number(77)])
        .unwrap();
    runtime.pvar_stop_all(sessions[0]).unwrap();
    sum.add(0, number(5)).unwrap();
    assert_eq!(read(&runtime, sessions[0], handles[0]), number(77));
    assert_eq!(read(&runtime, sessions[1], handles[1]), number(9));
    // A handle is one of its session's.
    let crossed = runtime.pvar_start(sessions[0], handles[1]);
    assert_eq!(crossed, Err(Error::InvalidHandle));
    runtime.pvar_session_free(sessions[0]).unwrap();
    let gone = runtime.pvar_start(sessions[0], handles[0]);
    assert_eq!(gone, Err(Error::InvalidSession));
    assert_eq!(
        runtime.pvar_session_free(sessions[0]),
        Err(Error::InvalidSession)
    );
    assert_eq!(read(&runtime, sessions[1], handles[1]), number(9));
    runtime.pvar_handle_free(sessions[1], handles[1]).unwrap();
    let mut to = [number(0)];
    let invalid = Err(Error::InvalidHandle);
    let (session, handle) = (sessions[1], handles[1]);
    assert_eq!(runtime.pvar_read(session, handle, &mut to), invalid);
    assert_eq!(runtime.pvar_read_reset(session, handle, &mut to), invalid);
    assert_eq!(
        runtime.pvar_write(session, handle, &to).err(),
        invalid.err()
    );
    assert_eq!(runtime.pvar_reset(session, handle).err(), invalid.err());
    assert_eq!(runtime.pvar_stop(session, handle).err(), invalid.err());
    assert_eq!(
        runtime.pvar_handle_free(session, handle).err(),
        invalid.err()
    );
    let alloc = runtime.pvar_handle_alloc(session, 99, None);
    assert_eq!(alloc.err(), Some(Error::InvalidIndex));
}

#[test]
fn flags_say_what_cannot_be_done() {
    let runtime = Runtime::new();
    let spec = |name: &str| PvarSpec::new(name, PvarClass::Counter, Datatype::UnsignedLong);
    let fixed = runtime
        .add_pvar(&spec("fixed").readonly().continuous())
        .unwrap();
    let slow = runtime.add_pvar(&spec("slow").not_atomic()).unwrap();
    let session = runtime.pvar_session_create().unwrap();
    // Nothing to be started: fine all the same.
    assert_eq!(runtime.pvar_start_all(session), Ok(()));
    let (fixed, slow_handle) = (
        handle(&runtime, session, &fixed),
        handle(&runtime, session, &slow),
    );
    assert_eq!(
        runtime.pvar_start(session, fixed),
        Err(Error::PvarNoStartStop)
    );
    assert_eq!(
        runtime.pvar_stop(session, fixed),
        Err(Error::PvarNoStartStop)
    );
    assert_eq!(runtime.pvar_reset(session, fixed), Err(Error::PvarNoWrite));
    let one = [number(1)];
    assert_eq!(
        runtime.pvar_write(session, fixed, &one),
        Err(Error::PvarNoWrite)
    );
    let mut to = one;
    let refused = runtime.pvar_read_reset(session, slow_handle, &mut to);
    assert_eq!(refused, Err(Error::PvarNoAtomic));
    let few = runtime.pvar_read(session, slow_handle, &mut []);
    assert_eq!(few, Err(Error::Invalid));
    let wrong_type = runtime.pvar_write(session, slow_handle, &[Value::Int(1)]);
    assert_eq!(wrong_type, Err(Error::Invalid));
    // Continuous and read-only ones are left out, and no error.
    assert_eq!(runtime.pvar_start_all(session), Ok(()));
    slow.add(0, number(4)).unwrap();
    assert_eq!(read(&runtime, session, slow_handle), number(4));
    assert_eq!(runtime.pvar_reset_all(session), Ok(()));
    assert_eq!(read(&runtime, session, slow_handle), number(0));
    assert_eq!(runtime.pvar_stop_all(session), Ok(()));
    let contradiction = spec("both").readonly();
    assert!(
        runtime.add_pvar(&contradiction).is_ok(),
        "read-only is not atomic"
    );
}

#[test]
fn a_bound_variable_is_read_for_its_object() {
    let runtime = Runtime::new();
    let notices = Arc::new(Mutex::new(Vec::new()));
    let told = Arc::clone(&notices);
    let spec = PvarSpec::new("per peer", PvarClass::Level, Datatype::UnsignedLong)
        .bind(Bind::Communicator)
        .continuous()
        .count(|object| object.map_or(0, |object| object.0 as usize))
        .read(|object, item| number(object.map_or(0, |object| object.0) * 100 + item as u64))
        .notify(move |notice, object| told.lock().unwrap().push((notice, object)));
    let bound = runtime.add_pvar(&spec).unwrap();
    let session = runtime.pvar_session_create().unwrap();
    let unbound = runtime.pvar_handle_alloc(session, bound.index(), None);
    assert_eq!(unbound.err(), Some(Error::Invalid));
    let object = Some(ObjectHandle(3));
    let (handle, count) = runtime
        .pvar_handle_alloc(session, bound.index(), object)
        .unwrap();
    let mut values = [number(0); 4];
    assert_eq!(
        (count, runtime.pvar_read(session, handle, &mut values)),
        (3, Ok(3))
    );
    assert_eq!(values[..3], [number(300), number(301), number(302)]);
    runtime.pvar_session_free(session).unwrap();
    let expected = [(PvarNotice::Allocated, object), (PvarNotice::Freed, object)];
    assert_eq!(*notices.lock().unwrap(), expected);
    let kept = PvarSpec::new("kept", PvarClass::Level, Datatype::Double).bind(Bind::Window);
    assert_eq!(runtime.add_pvar(&kept).err(), Some(Error::Invalid));
}

#[test]
fn nothing_is_lost_between_read_and_reset() {
    let runtime = &Runtime::new();
    let sum = &pvar(runtime, PvarClass::Counter, Datatype::UnsignedLong);
    let session = runtime.pvar_session_create().unwrap();
    let handle = handle(runtime, session, sum);
    runtime.pvar_start(session, handle).unwrap();
    let (stop, seen) = (&AtomicBool::new(false), &AtomicU64::new(0));
    let take = move || {
        let mut value = [number(0)];
        runtime
            .pvar_read_reset(session, handle, &mut value)
            .unwrap();
        let Value::UnsignedLong(value) = value[0] else {
            panic!("a number");
        };
        seen.fetch_add(value, Ordering::SeqCst);
    };
    std::thread::scope(|scope| {
        let readers = [0, 1].map(|_| {
            scope.spawn(move || {
                while !stop.load(Ordering::SeqCst) {
                    take();
                }
            })
        });
        (0..200_000).for_each(|_| sum.add(0, number(1)).unwrap());
        stop.store(true, Ordering::SeqCst);
        for reader in readers {
            reader.join().unwrap();
        }
    });
    take();
    assert_eq!(seen.load(Ordering::SeqCst), 200_000);
}

#[test]
fn control_variables_are_read_and_set_as_their_scope_allows() {
    let runtime = Runtime::new();
    for (index, scope) in Scope::ALL.into_iter().enumerate() {
        let spec = CvarSpec::new(format!("{scope:?}"), scope, Value::Int(4)).description("of all");
        assert_eq!(runtime.add_cvar(&spec), Ok(index as i32));
        let info = runtime.cvar_info(index as i32).unwrap();
        assert_eq!((info.scope, info.datatype), (scope, Datatype::Int));
        let (handle, count) = runtime.cvar_handle_alloc(index as i32, None).unwrap();
        assert_eq!(
            (count, runtime.cvar_read(handle)),
            (1, Ok(vec![Value::Int(4)]))
        );
        let is_fixed = matches!(scope, Scope::Constant | Scope::ReadOnly);
        let expected = if is_fixed {
            Err(Error::CvarSetNever)
        } else {
            Ok(())
        };
        assert_eq!(runtime.cvar_write(handle, &[Value::Int(5)]), expected);
        let now = if is_fixed { 4 } else { 5 };
        assert_eq!(runtime.cvar_read(handle), Ok(vec![Value::Int(now)]));
        let wrong = runtime.cvar_write(handle, &[Value::Double(1.0)]);
        assert_eq!(wrong, Err(Error::Invalid));
        runtime.cvar_handle_free(handle).unwrap();
        for handle in [
            handle,
            CvarHandle::from_number(-1),
            CvarHandle::from_number(99),
        ] {
            assert_eq!(runtime.cvar_handle_free(handle), Err(Error::InvalidHandle));
            assert_eq!(runtime.cvar_read(handle).err(), Some(Error::InvalidHandle));
            let written = runtime.cvar_write(handle, &[Value::Int(1)]);
            assert_eq!(written, Err(Error::InvalidHandle));
        }
    }
    assert_eq!(runtime.cvar_count(), 7);
    assert_eq!(runtime.cvar_index("Local"), Ok(2));
    assert_eq!(runtime.cvar_index("local"), Err(Error::InvalidName));
    assert_eq!(runtime.cvar_info(7).err(), Some(Error::InvalidIndex));
    assert_eq!(
        runtime.cvar_handle_alloc(7, None).err(),
        Some(Error::InvalidIndex)
    );
    let again = CvarSpec::new("Local", Scope::Local, Value::Int(0));
    assert_eq!(runtime.add_cvar(&again).err(), Some(Error::InvalidName));
    // Which group, its description must say.
    let group = CvarSpec::new("group", Scope::Group, Value::Int(0));
    assert_eq!(runtime.add_cvar(&group).err(), Some(Error::Invalid));
}

#[test]
fn a_producer_may_refuse_a_setting_for_now() {
    let runtime = Runtime::new();
    let spec = CvarSpec::new("busy", Scope::Local, Value::Int(0)).access(
        |_, values| values[0] = Value::Int(42),
        |_, _| Err(Error::CvarSetNotNow),
    );
    let (handle, _) = runtime
        .cvar_handle_alloc(runtime.add_cvar(&spec).unwrap(), None)
        .unwrap();
    assert_eq!(runtime.cvar_read(handle), Ok(vec![Value::Int(42)]));
    let refused = runtime.cvar_write(handle, &[Value::Int(1)]);
    assert_eq!(refused, Err(Error::CvarSetNotNow));
}

#[test]
fn texts_of_variables_end_with_a_zero_that_counts() {
    let runtime = Runtime::new();
    let spec = CvarSpec::text("path", Scope::Local, "abcdef", 4);
    let (handle, count) = runtime
        .cvar_handle_alloc(runtime.add_cvar(&spec).unwrap(), None)
        .unwrap();
    let expected = b"abc\0".map(Value::Char);
    assert_eq!(
        (count, runtime.cvar_read(handle)),
        (4, Ok(expected.to_vec()))
    );
}

#[test]
fn enumerations_have_names_of_their_own_and_at_least_one_item() {
    let runtime = Runtime::new();
    let states = runtime
        .add_enumeration("states", &[(0, "idle"), (7, "busy")])
        .unwrap();
    let info = runtime.enumeration(states).unwrap();
    assert_eq!((&*info.name, info.items.len()), ("states", 2));
    assert_eq!(
        (info.item(1), info.name_of(7)),
        (Ok((7, "busy")), Some("busy"))
    );
    assert_eq!(
        (info.item(2), info.item(-1)),
        (Err(Error::InvalidItem), Err(Error::InvalidItem))
    );
    let add = |name: &str, items: &[(i32, &str)]| runtime.add_enumeration(name, items).err();
    assert_eq!(add("states", &[(0, "x")]), Some(Error::InvalidName));
    assert_eq!(add("none", &[]), Some(Error::Invalid));
    assert_eq!(add("", &[(0, "x")]), Some(Error::Invalid));
    assert_eq!(add("twice", &[(0, "x"), (1, "x")]), Some(Error::Invalid));
    assert_eq!(add("unnamed", &[(0, "")]), Some(Error::Invalid));
    let unknown = annals_recorder::events::Enumeration::from_index(9);
    assert_eq!(
        runtime.enumeration(unknown).err(),
        Some(Error::InvalidIndex)
    );
    let state = PvarSpec::new("state", PvarClass::State, Datatype::Int).enumeration(states);
    let state = runtime.add_pvar(&state).unwrap();
    assert_eq!(
        runtime.pvar_info(state.index()).unwrap().enumeration,
        Some(states)
    );
    let wrong = PvarSpec::new("wrong", PvarClass::Level, Datatype::Double).enumeration(states);
    assert_eq!(runtime.add_pvar(&wrong).err(), Some(Error::Invalid));
}

#[test]
fn categories_grow_never_hold_themselves_and_say_when_they_change() {
    let runtime = Runtime::new();
    let first = runtime.category_stamp();
    let outer = runtime.add_category("outer", "all").unwrap();
    let inner = runtime.add_category("inner", "").unwrap();
    let added = runtime.category_stamp();
    assert!(added > first);
    pvar(&runtime, PvarClass::Level, Datatype::Double);
    pvar(&runtime, PvarClass::Counter, Datatype::Unsigned);
    runtime
        .add_cvar(&CvarSpec::new("c", Scope::Local, Value::Int(0)))
        .unwrap();
    assert_eq!(
        runtime.category_stamp(),
        added,
        "variables alone change no category"
    );
    let put = |category, member| runtime.add_to_category(category, member);
    put(outer, CategoryMember::Category(inner)).unwrap();
    for member in [
        CategoryMember::Pvar(1),
        CategoryMember::Pvar(0),
        CategoryMember::Pvar(1),
        CategoryMember::Cvar(0),
    ] {
        put(inner, member).unwrap();
    }
    assert!(runtime.category_stamp() > added);
    let stamp = runtime.category_stamp();
    put(inner, CategoryMember::Pvar(0)).unwrap();
    assert_eq!(runtime.category_stamp(), stamp, "it was in it already");
    let info = runtime.category_info(inner.index()).unwrap();
    assert_eq!((&*info.name, &*info.description), ("inner", ""));
    assert_eq!(
        (info.members.pvars, info.members.cvars),
        (vec![1, 0], vec![0])
    );
    let info = runtime.category_info(outer.index()).unwrap();
    assert_eq!(info.members.categories, [inner.index()]);
    for (category, member) in [(outer, outer), (inner, inner), (inner, outer)] {
        assert_eq!(
            put(category, CategoryMember::Category(member)),
            Err(Error::Invalid)
        );
    }
    assert_eq!(
        put(inner, CategoryMember::Pvar(2)),
        Err(Error::InvalidIndex)
    );
    assert_eq!(
        put(inner, CategoryMember::Event(0)),
        Err(Error::InvalidIndex)
    );
    assert_eq!(runtime.category_index("inner"), Ok(inner.index()));
    assert_eq!(runtime.category_index("other"), Err(Error::InvalidName));
    assert_eq!(runtime.category_info(2).err(), Some(Error::InvalidIndex));
    assert_eq!(runtime.category_count(), 2);
    let again = runtime.add_category("inner", "");
    assert_eq!(again.err(), Some(Error::InvalidName));
}
