//! Sources, event types, registrations, callbacks, instances (MPI 4.1 §16.3.8.1 to §16.3.8.4, §16.3.8.6,
//! §16.3.8.7).

use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use annals_recorder::Verbosity;
use annals_recorder::events::{
    Bind, Callback, Datatype, Error, EventTypeSpec, Info, ObjectHandle, Raising, Registration,
    Runtime, Safety, SourceOrder, SourceSpec, Value,
};

use crate::support::{Diary, producer};

const NO_HINTS: Info = Info::new();

#[test]
fn sources_keep_their_index_while_more_appear() {
    let runtime = Runtime::new();
    assert_eq!(runtime.source_count(), 0);
    let names: Vec<String> = (0..40).map(|n| format!("source {n}")).collect();
    for (number, name) in names.iter().enumerate() {
        let source = runtime.add_source(&SourceSpec::ordered(name)).unwrap();
        assert_eq!(source.index() as usize, number);
        assert_eq!(runtime.source_count() as usize, number + 1);
        for (index, name) in names[..=number].iter().enumerate() {
            assert_eq!(runtime.source_info(index as i32).unwrap().name, *name);
        }
    }
    for index in [-1, 40, i32::MAX, i32::MIN] {
        assert_eq!(runtime.source_info(index).err(), Some(Error::InvalidIndex));
    }
}

#[test]
fn a_source_says_its_order_clock_and_hints() {
    let runtime = Runtime::new();
    let spec = SourceSpec::unordered("cards")
        .description("network cards")
        .ticks_per_second(2_500_000)
        .max_ticks(999)
        .hint("polled", "yes");
    runtime.add_source(&spec).unwrap();
    runtime.add_source(&SourceSpec::ordered("plain")).unwrap();
    let info = runtime.source_info(0).unwrap();
    assert_eq!(
        (&*info.name, &*info.description),
        ("cards", "network cards")
    );
    assert_eq!(info.ordering, SourceOrder::Unordered);
    assert_eq!((info.ticks_per_second, info.max_ticks), (2_500_000, 999));
    assert_eq!(info.info.get("polled"), Some("yes"));
    let plain = runtime.source_info(1).unwrap();
    assert_eq!(plain.ordering, SourceOrder::Ordered);
    assert!(plain.info.is_empty() && plain.description.is_empty());
    // A tick is a signed 64-bit number.
    assert_eq!(plain.max_ticks, i64::MAX as u64);
    for wrong in [
        SourceSpec::ordered(""),
        SourceSpec::ordered("a\0b"),
        SourceSpec::ordered("fast").ticks_per_second(0),
        SourceSpec::ordered("large").max_ticks(1 << 63),
        SourceSpec::ordered("small").max_ticks(9).sequenced(),
    ] {
        assert_eq!(runtime.add_source(&wrong).err(), Some(Error::Invalid));
    }
}

#[test]
fn a_source_tells_its_time_or_that_it_cannot() {
    let producer = producer();
    let runtime = &producer.runtime;
    runtime.add_source(&SourceSpec::ordered("mute")).unwrap();
    producer.clock.set(17);
    assert_eq!(runtime.source_timestamp(0), Ok(17));
    assert_eq!(runtime.source_timestamp(1), Err(Error::NotSupported));
    assert_eq!(runtime.source_timestamp(2), Err(Error::InvalidIndex));
    assert_eq!(runtime.source_timestamp(-1), Err(Error::InvalidIndex));
}

#[test]
fn event_types_keep_their_index_and_what_they_say() {
    let runtime = Runtime::new();
    assert_eq!(runtime.event_count(), 0);
    for number in 0..40 {
        let spec = EventTypeSpec::new(format!("type {number}"));
        let added = runtime.add_event_type(&spec).unwrap();
        assert_eq!((added.index(), runtime.event_count()), (number, number + 1));
    }
    let before = runtime.event_info(3).unwrap().clone();
    runtime.add_event_type(&EventTypeSpec::new("late")).unwrap();
    assert_eq!(*runtime.event_info(3).unwrap(), before);
    for index in [-1, 41, i32::MAX] {
        assert_eq!(runtime.event_info(index).err(), Some(Error::InvalidIndex));
    }
}

#[test]
fn an_event_type_says_its_elements_verbosity_and_bind_kind() {
    let runtime = Runtime::new();
    let mut spec = EventTypeSpec::new("all")
        .description("one of each")
        .verbosity(Verbosity::TunerAll)
        .bind(Bind::Window)
        .hint("rate", "1");
    for datatype in Datatype::ALL {
        spec = spec.element(format!("{datatype:?}"), datatype);
    }
    runtime.add_event_type(&spec).unwrap();
    let info = runtime.event_info(0).unwrap();
    assert_eq!((&*info.name, &*info.description), ("all", "one of each"));
    assert_eq!(
        (info.verbosity, info.bind),
        (Verbosity::TunerAll, Bind::Window)
    );
    assert_eq!(info.info.get("rate"), Some("1"));
    assert_eq!(info.datatypes, Datatype::ALL);
    // As C puts int, unsigned, unsigned long, unsigned long long, MPI_Count, char, double.
    assert_eq!(info.displacements, [0, 4, 8, 16, 24, 32, 40]);
    assert_eq!(info.extent(), 48);
    let names = runtime.enumeration(info.enumeration.unwrap()).unwrap();
    assert_eq!(names.item(6), Ok((6, "Double")));
    assert_eq!(names.item(7), Err(Error::InvalidItem));
    assert_eq!(names.item(-1), Err(Error::InvalidItem));

    let none = runtime.add_event_type(&EventTypeSpec::new("none")).unwrap();
    let info = runtime.event_info(none.index()).unwrap();
    assert!(info.description.is_empty() && info.datatypes.is_empty());
    assert_eq!((info.bind, info.enumeration), (Bind::NoObject, None));
}

#[test]
fn displacements_ascend_from_zero_and_do_not_overlap() {
    let runtime = Runtime::new();
    let holes = EventTypeSpec::new("holes")
        .element_at("first", Datatype::Int, 0)
        .element_at("second", Datatype::UnsignedLong, 24)
        .element("third", Datatype::Char);
    let holes = runtime.add_event_type(&holes).unwrap();
    let info = runtime.event_info(holes.index()).unwrap();
    assert_eq!(info.displacements, [0, 24, 32]);
    assert_eq!(info.extent(), 33);
    for (first, second) in [(4, 8), (0, 3), (8, 0)] {
        let wrong = EventTypeSpec::new("wrong")
            .element_at("first", Datatype::Int, first)
            .element_at("second", Datatype::Int, second);
        assert_eq!(runtime.add_event_type(&wrong).err(), Some(Error::Invalid));
    }
    assert_eq!(runtime.event_count(), 1);
}

#[test]
fn names_of_event_types_are_unique_and_not_empty() {
    let runtime = Runtime::new();
    let event = runtime
        .add_event_type(&EventTypeSpec::new("event"))
        .unwrap();
    let again = runtime.add_event_type(&EventTypeSpec::new("event"));
    assert_eq!(again.err(), Some(Error::InvalidName));
    for wrong in [
        EventTypeSpec::new(""),
        EventTypeSpec::new("nul\0"),
        EventTypeSpec::new("twice")
            .element("a", Datatype::Int)
            .element("a", Datatype::Int),
        EventTypeSpec::new("unnamed").element("", Datatype::Int),
    ] {
        assert_eq!(runtime.add_event_type(&wrong).err(), Some(Error::Invalid));
    }
    assert_eq!(runtime.event_index("event"), Ok(event.index()));
    assert_eq!(runtime.event_index("even"), Err(Error::InvalidName));
    assert_eq!(runtime.event_index("unnamed"), Err(Error::InvalidName));
}

#[test]
fn the_lowest_level_that_the_context_allows_is_called() {
    let producer = producer();
    let diary = Diary::default();
    for mask in 0_u32..16 {
        let registration = producer.register();
        let levels = Safety::ALL
            .into_iter()
            .filter(|l| mask & 1 << *l as u32 != 0);
        let levels: Vec<Safety> = levels.collect();
        for level in &levels {
            producer.note(registration, *level, &diary);
        }
        for required in Safety::ALL {
            producer.raise(required, 5);
            let fitting = levels.iter().filter(|level| **level >= required).min();
            let line = fitting.map(|level| format!("5 at {level:?} in {required:?}"));
            assert_eq!(diary.read(), Vec::from_iter(line), "{mask:b}");
        }
        producer.runtime.handle_free(registration, NO_FREE).unwrap();
    }
}

const NO_FREE: Option<fn(Registration, Safety)> = None;

#[test]
fn every_registration_of_a_type_is_called_with_its_own_handle() {
    let producer = producer();
    let told = Arc::new(Mutex::new(Vec::new()));
    let registrations: Vec<Registration> = (0..5).map(|_| producer.register()).collect();
    for registration in &registrations {
        let told = Arc::clone(&told);
        let callback = Callback::new(move |_, registration, _| {
            told.lock().unwrap().push(registration);
        });
        producer
            .runtime
            .register_callback(*registration, Safety::None, &NO_HINTS, Some(callback))
            .unwrap();
    }
    producer.raise(Safety::None, 1);
    assert_eq!(*told.lock().unwrap(), registrations);
    let bits: Vec<u64> = registrations.iter().map(|r| r.to_bits()).collect();
    assert!(bits.iter().all(|bits| *bits != 0));
}

#[test]
fn a_callback_is_replaced_and_removed() {
    let producer = producer();
    let runtime = &producer.runtime;
    let diary = Diary::default();
    let registration = producer.register();
    producer.note(registration, Safety::ThreadSafe, &diary);
    for number in 0..100 {
        let diary = diary.clone();
        let callback = Callback::new(move |_, _, _| diary.write(format!("new {number}")));
        runtime
            .register_callback(registration, Safety::ThreadSafe, &NO_HINTS, Some(callback))
            .unwrap();
        producer.raise(Safety::None, 1);
    }
    let expected: Vec<String> = (0..100).map(|number| format!("new {number}")).collect();
    assert_eq!(diary.read(), expected);
    runtime
        .register_callback(registration, Safety::ThreadSafe, &NO_HINTS, None)
        .unwrap();
    producer.raise(Safety::None, 1);
    assert!(diary.read().is_empty());
}

#[test]
fn what_a_replaced_callback_holds_is_dropped() {
    let producer = producer();
    let registration = producer.register();
    let held = Arc::new(());
    for _ in 0..1000 {
        let held = Arc::clone(&held);
        let callback = Callback::new(move |_, _, _| {
            let _ = &held;
        });
        producer
            .runtime
            .register_callback(registration, Safety::None, &NO_HINTS, Some(callback))
            .unwrap();
        producer.raise(Safety::None, 1);
    }
    assert!(Arc::strong_count(&held) < 100, "replaced ones go meanwhile");
    producer.runtime.handle_free(registration, NO_FREE).unwrap();
    assert_eq!(Arc::strong_count(&held), 1, "freed ones go at once");
}

#[test]
fn a_bound_registration_hears_of_its_object_only() {
    let producer = producer();
    let runtime = &producer.runtime;
    let spec = EventTypeSpec::new("bound").bind(Bind::Communicator);
    let event = runtime.add_event_type(&spec).unwrap();
    let index = event.index();
    assert_eq!(
        runtime.handle_alloc(index, None, &NO_HINTS).err(),
        Some(Error::Invalid)
    );
    let diary = Diary::default();
    for handle in [7, 8] {
        let object = Some(ObjectHandle(handle));
        let registration = runtime.handle_alloc(index, object, &NO_HINTS).unwrap();
        let diary = diary.clone();
        let callback = Callback::new(move |instance, _, _| {
            assert_eq!(instance.object(), Some(ObjectHandle(handle)));
            diary.write(handle.to_string());
        });
        runtime
            .register_callback(registration, Safety::None, &NO_HINTS, Some(callback))
            .unwrap();
    }
    let about = |object| Raising {
        object,
        ..Raising::default()
    };
    for handle in [8, 7, 9] {
        let about = about(Some(ObjectHandle(handle)));
        event
            .raise_with(&producer.source, Safety::None, about, &[])
            .unwrap();
    }
    assert_eq!(diary.read(), ["8", "7"]);
    let unbound = event.raise_with(&producer.source, Safety::None, about(None), &[]);
    assert_eq!(unbound, Err(Error::Invalid));

    // Of a type that is not bound, the object is ignored.
    let index = producer.event.index();
    let registration = runtime
        .handle_alloc(index, Some(ObjectHandle(3)), &NO_HINTS)
        .unwrap();
    producer.note(registration, Safety::None, &diary);
    producer.raise(Safety::None, 4);
    assert_eq!(diary.read(), ["4 at None in None"]);
}

#[test]
fn wrong_indexes_and_handles_are_refused() {
    let producer = producer();
    let runtime = &producer.runtime;
    for index in [-1, 1, i32::MAX] {
        let refused = runtime.handle_alloc(index, None, &NO_HINTS);
        assert_eq!(refused.err(), Some(Error::InvalidIndex));
    }
    let freed = producer.register();
    runtime.handle_free(freed, NO_FREE).unwrap();
    // Its place is used again; the old handle is not the new one.
    let next = producer.register();
    assert_ne!(freed, next);
    let other = crate::support::producer().register();
    for wrong in [
        freed,
        other,
        Registration::from_bits(0),
        Registration::from_bits(u64::MAX),
    ] {
        let invalid = Err(Error::InvalidHandle);
        let level = Safety::None;
        assert_eq!(runtime.handle_free(wrong, NO_FREE), invalid);
        assert_eq!(
            runtime.register_callback(wrong, level, &NO_HINTS, None),
            invalid
        );
        assert_eq!(runtime.handle_set_info(wrong, &NO_HINTS), invalid);
        assert_eq!(runtime.handle_get_info(wrong).err(), invalid.err());
        assert_eq!(runtime.callback_set_info(wrong, level, &NO_HINTS), invalid);
        assert_eq!(runtime.callback_get_info(wrong, level).err(), invalid.err());
        let handler = None::<fn(&annals_recorder::events::Dropped)>;
        assert_eq!(runtime.set_dropped_handler(wrong, handler), invalid);
    }
    assert!(runtime.is_registered(next));
}

#[test]
fn known_hints_are_kept_and_unknown_ones_ignored() {
    let producer = producer();
    let runtime = &producer.runtime;
    let spec = EventTypeSpec::new("hinted")
        .hint("a", "1")
        .hint("b", "2")
        .callback_hint("c", "3");
    let index = runtime.add_event_type(&spec).unwrap().index();
    let given = Info::new().with("b", "two").with("unknown", "x");
    let registration = runtime.handle_alloc(index, None, &given).unwrap();
    let expected = Info::new().with("a", "1").with("b", "two");
    assert_eq!(runtime.handle_get_info(registration), Ok(expected));
    let more = Info::new().with("a", "one").with("c", "no");
    runtime.handle_set_info(registration, &more).unwrap();
    let expected = Info::new().with("a", "one").with("b", "two");
    assert_eq!(runtime.handle_get_info(registration), Ok(expected));

    let level = Safety::ThreadSafe;
    let no_callback = runtime.callback_get_info(registration, level);
    assert_eq!(no_callback.err(), Some(Error::Invalid));
    let callback = || Some(Callback::new(|_, _, _| {}));
    let info = Info::new().with("a", "no");
    runtime
        .register_callback(registration, level, &info, callback())
        .unwrap();
    let known = |value: &str| Ok(Info::new().with("c", value));
    assert_eq!(runtime.callback_get_info(registration, level), known("3"));
    let other = Info::new().with("c", "4").with("d", "5");
    runtime
        .callback_set_info(registration, level, &other)
        .unwrap();
    assert_eq!(runtime.callback_get_info(registration, level), known("4"));
    // A new callback brings its own hints.
    runtime
        .register_callback(registration, level, &NO_HINTS, callback())
        .unwrap();
    assert_eq!(runtime.callback_get_info(registration, level), known("3"));

    let bare = producer.register();
    assert_eq!(runtime.handle_get_info(bare), Ok(Info::new()));
}

#[test]
fn elements_are_read_one_by_one_and_copied_to_their_displacements() {
    let producer = producer();
    let values = [
        Value::Int(-7),
        Value::Unsigned(8),
        Value::UnsignedLong(u64::MAX),
        Value::UnsignedLongLong(1 << 40),
        Value::Count(i64::MIN),
        Value::Char(b'c'),
        Value::Double(0.25),
    ];
    let mut spec = EventTypeSpec::new("all");
    for value in values {
        spec = spec.element(format!("{value:?}"), value.datatype());
    }
    let event = producer.runtime.add_event_type(&spec).unwrap();
    let registration = producer
        .runtime
        .handle_alloc(event.index(), None, &NO_HINTS)
        .unwrap();
    let calls = Arc::new(AtomicI32::new(0));
    let counted = Arc::clone(&calls);
    let callback = Callback::new(move |instance, _, _| {
        assert_eq!(instance.element_count(), 7);
        for (index, value) in values.iter().enumerate() {
            assert_eq!(instance.read(index), Ok(*value));
        }
        assert_eq!(instance.read(7), Err(Error::InvalidIndex));
        let mut copy = [0xee; 50];
        assert_eq!(instance.copy(&mut copy[..47]), Err(Error::Invalid));
        assert_eq!(copy, [0xee; 50]);
        instance.copy(&mut copy).unwrap();
        for (value, at) in values.iter().zip([0, 4, 8, 16, 24, 32, 40]) {
            assert_eq!(Value::get(value.datatype(), &copy[at..]), Some(*value));
        }
        // Holes, and what follows them, stay unchanged.
        assert_eq!(
            (&copy[33..40], &copy[48..]),
            (&[0xee; 7][..], &[0xee; 2][..])
        );
        counted.fetch_add(1, Ordering::SeqCst);
    });
    producer
        .runtime
        .register_callback(registration, Safety::None, &NO_HINTS, Some(callback))
        .unwrap();
    event
        .raise(&producer.source, Safety::None, &values)
        .unwrap();
    // Now from memory.
    let mut memory = [0; 48];
    for (value, at) in values.iter().zip([0, 4, 8, 16, 24, 32, 40]) {
        value.put(&mut memory[at..]);
    }
    let now = Raising::default();
    event
        .raise_memory(&producer.source, Safety::None, now, &memory)
        .unwrap();
    // And what waited.
    event
        .raise_deferred(&producer.source, now, &values)
        .unwrap();
    event
        .raise_memory_deferred(&producer.source, now, &memory)
        .unwrap();
    assert_eq!(producer.source.deliver(Safety::None), 2);
    assert_eq!(calls.load(Ordering::SeqCst), 4);

    let short = event.raise_memory(&producer.source, Safety::None, now, &memory[..47]);
    assert_eq!(short, Err(Error::Invalid));
    let few = event.raise(&producer.source, Safety::None, &values[..6]);
    assert_eq!(few, Err(Error::Invalid));
    let other = [Value::Int(0); 7];
    assert_eq!(
        event.raise(&producer.source, Safety::None, &other),
        Err(Error::Invalid)
    );
    let foreign = crate::support::producer();
    let elsewhere = event.raise(&foreign.source, Safety::None, &values);
    assert_eq!(elsewhere, Err(Error::Invalid));
    assert_eq!(calls.load(Ordering::SeqCst), 4);
}

#[test]
fn an_instance_tells_its_source_and_time() {
    let producer = producer();
    let runtime = &producer.runtime;
    let mute = runtime.add_source(&SourceSpec::ordered("mute")).unwrap();
    let seen = Arc::new(Mutex::new(Vec::new()));
    // Two callers get the same time.
    for _ in 0..2 {
        let registration = producer.register();
        let (seen, clock) = (Arc::clone(&seen), producer.clock.clone());
        let callback = Callback::new(move |instance, _, _| {
            let seen_before = seen.lock().unwrap().len();
            seen.lock()
                .unwrap()
                .push((instance.source(), instance.timestamp()));
            // Later in the program, not for the instance.
            clock.set(1000 + seen_before as u64);
        });
        runtime
            .register_callback(registration, Safety::None, &NO_HINTS, Some(callback))
            .unwrap();
    }
    producer.clock.set(5);
    producer.raise(Safety::None, 0);
    assert_eq!(std::mem::take(&mut *seen.lock().unwrap()), [(0, Ok(5)); 2]);
    let observed = Raising {
        observed: Some(77),
        ..Raising::default()
    };
    for (source, index) in [(&producer.source, 0), (&mute, 1)] {
        let value = [Value::Int(1)];
        producer
            .event
            .raise_with(source, Safety::None, observed, &value)
            .unwrap();
        assert_eq!(
            std::mem::take(&mut *seen.lock().unwrap()),
            [(index, Ok(77)); 2]
        );
    }
    // A source without a clock cannot say when.
    let timeless = producer.event.raise(&mute, Safety::None, &[Value::Int(1)]);
    assert_eq!(timeless, Err(Error::NotSupported));
}

#[test]
fn a_clock_is_read_only_when_somebody_asks() {
    let runtime = Runtime::new();
    let reads = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&reads);
    let clock = move || counted.fetch_add(1, Ordering::SeqCst);
    let source = runtime
        .add_source(&SourceSpec::ordered("source").clock(clock))
        .unwrap();
    let event = runtime
        .add_event_type(&EventTypeSpec::new("event"))
        .unwrap();
    let registration = runtime.handle_alloc(0, None, &NO_HINTS).unwrap();
    let callback = Callback::new(|_, _, _| {});
    runtime
        .register_callback(registration, Safety::None, &NO_HINTS, Some(callback))
        .unwrap();
    event.raise(&source, Safety::None, &[]).unwrap();
    assert_eq!(reads.load(Ordering::SeqCst), 0);
}

#[test]
fn deferred_instances_keep_their_time_and_order() {
    let producer = producer();
    let runtime = &producer.runtime;
    let diary = Diary::default();
    let registration = producer.register();
    let noted = diary.clone();
    let callback = Callback::new(move |instance, _, required| {
        let (value, time) = (instance.read(0).unwrap(), instance.timestamp().unwrap());
        noted.write(format!("{value:?} observed {time} in {required:?}"));
    });
    runtime
        .register_callback(
            registration,
            Safety::AsyncSignalSafe,
            &NO_HINTS,
            Some(callback),
        )
        .unwrap();
    let defer = |number| {
        let value = [Value::Int(number)];
        producer
            .event
            .raise_deferred(&producer.source, Raising::default(), &value)
            .unwrap();
    };
    producer.clock.set(1);
    defer(1);
    producer.clock.set(2);
    defer(2);
    // An event that could be delivered immediately waits until after them: the source is ordered.
    producer.clock.set(3);
    producer.raise(Safety::None, 3);
    assert_eq!((diary.read().len(), producer.source.pending()), (0, 3));
    producer.clock.set(50);
    // A later registration receives none of them.
    let late = producer.register();
    producer.note(late, Safety::None, &diary);
    assert_eq!(producer.source.deliver(Safety::Restricted), 3);
    let line = |number| format!("Int({number}) observed {number} in Restricted");
    assert_eq!(diary.read(), [line(1), line(2), line(3)]);
    assert_eq!(producer.source.deliver(Safety::None), 0);
    // A source without a buffer cannot.
    let mute = runtime.add_source(&SourceSpec::unordered("mute")).unwrap();
    let observed = Raising {
        observed: Some(1),
        ..Raising::default()
    };
    let refused = producer
        .event
        .raise_deferred(&mute, observed, &[Value::Int(0)]);
    assert_eq!(refused, Err(Error::NotSupported));
}

#[test]
fn a_registration_that_is_freed_gets_no_waiting_instance() {
    let producer = producer();
    let diary = Diary::default();
    let registration = producer.register();
    producer.note(registration, Safety::None, &diary);
    let value = [Value::Int(1)];
    producer
        .event
        .raise_deferred(&producer.source, Raising::default(), &value)
        .unwrap();
    producer.runtime.handle_free(registration, NO_FREE).unwrap();
    producer.source.deliver(Safety::None);
    assert!(diary.read().is_empty());
}

#[test]
fn freeing_calls_the_free_callback_once_with_the_handle() {
    let producer = producer();
    let diary = Diary::default();
    let registration = producer.register();
    producer.note(registration, Safety::None, &diary);
    let noted = diary.clone();
    let free = move |freed: Registration, required: Safety| {
        assert_eq!(freed, registration);
        noted.write(format!("freed in {required:?}"));
    };
    producer
        .runtime
        .handle_free(registration, Some(free))
        .unwrap();
    assert_eq!(diary.read(), ["freed in None"]);
    producer.raise(Safety::None, 1);
    assert!(diary.read().is_empty());
    assert!(!producer.event.is_wanted());
    let again = producer.runtime.handle_free(registration, NO_FREE);
    assert_eq!(again, Err(Error::InvalidHandle));
}

#[test]
fn a_registration_may_be_freed_in_its_own_callback() {
    let producer = producer();
    let diary = Diary::default();
    let registration = producer.register();
    let (runtime, noted) = (producer.runtime.clone(), diary.clone());
    let callback = Callback::new(move |instance, registration, _| {
        let freed = noted.clone();
        let free = move |_: Registration, required: Safety| {
            freed.write(format!("freed in {required:?}"));
        };
        runtime.handle_free(registration, Some(free)).unwrap();
        // The instance is still valid, and the end follows after this.
        noted.write(format!("{:?} read", instance.read(0).unwrap()));
    });
    producer
        .runtime
        .register_callback(registration, Safety::ThreadSafe, &NO_HINTS, Some(callback))
        .unwrap();
    producer.raise(Safety::Restricted, 3);
    assert_eq!(diary.read(), ["Int(3) read", "freed in Restricted"]);
    producer.raise(Safety::Restricted, 4);
    assert!(diary.read().is_empty());
}

#[test]
fn callbacks_may_register_raise_and_ask() {
    let producer = producer();
    let diary = Diary::default();
    let registration = producer.register();
    let (runtime, noted) = (producer.runtime.clone(), diary.clone());
    let (event, source) = (producer.event.clone(), producer.source.clone());
    let callback = Callback::new(move |instance, _, _| {
        assert_eq!(runtime.source_timestamp(0), Ok(0));
        assert_eq!(runtime.event_index("event"), Ok(0));
        let another = runtime.handle_alloc(0, None, &NO_HINTS).unwrap();
        let callback = Some(noted.callback(Safety::None));
        runtime
            .register_callback(another, Safety::None, &NO_HINTS, callback)
            .unwrap();
        if instance.read(0) == Ok(Value::Int(1)) {
            event
                .raise(&source, Safety::None, &[Value::Int(2)])
                .unwrap();
        }
        runtime.handle_free(another, NO_FREE).unwrap();
    });
    producer
        .runtime
        .register_callback(registration, Safety::None, &NO_HINTS, Some(callback))
        .unwrap();
    producer.raise(Safety::None, 1);
    let lines = diary.read();
    assert!(lines.contains(&"2 at None in None".to_owned()), "{lines:?}");
}

#[test]
fn only_what_locks_or_allocates_is_refused_in_signal_contexts() {
    let producer = producer();
    let runtime = producer.runtime.clone();
    let diary = Diary::default();
    let noted = diary.clone();
    let registration = producer.register();
    let callback = Callback::new(move |instance, registration, required| {
        // What table 22 has never fails here.
        assert!(instance.read(0).is_ok() && instance.timestamp().is_ok());
        assert!(instance.copy(&mut [0; 4]).is_ok() && instance.source() == 0);
        assert!(runtime.source_timestamp(0).is_ok());
        let changed = runtime.handle_set_info(registration, &NO_HINTS);
        noted.write(format!("{required:?}: {changed:?}"));
        if required == Safety::AsyncSignalSafe {
            assert_eq!(runtime.handle_get_info(registration).err(), changed.err());
            let refused = runtime.handle_alloc(0, None, &NO_HINTS);
            assert_eq!(refused.err(), changed.err());
            assert!(runtime.handle_free_raw(registration, None, [0; 2]).is_ok());
        }
    });
    producer
        .runtime
        .register_callback(
            registration,
            Safety::AsyncSignalSafe,
            &NO_HINTS,
            Some(callback),
        )
        .unwrap();
    for required in Safety::ALL {
        producer.raise(required, 1);
    }
    let expected = [
        "None: Ok(())",
        "Restricted: Ok(())",
        "ThreadSafe: Ok(())",
        "AsyncSignalSafe: Err(NotAccessible)",
    ];
    assert_eq!(diary.read(), expected);
    assert!(!producer.runtime.is_registered(registration));
}

#[test]
fn callbacks_run_in_signal_handlers() {
    static PRODUCER: std::sync::OnceLock<crate::support::Producer> = std::sync::OnceLock::new();
    static CALLS: AtomicI32 = AtomicI32::new(0);
    extern "C" fn handle(_: libc::c_int) {
        if let Some(producer) = PRODUCER.get() {
            let value = [Value::Int(9)];
            let _ = producer
                .event
                .raise(&producer.source, Safety::AsyncSignalSafe, &value);
        }
    }
    let producer = PRODUCER.get_or_init(producer);
    let registration = producer.register();
    let runtime = producer.runtime.clone();
    let callback = Callback::new(move |_, registration, required| {
        let refused = runtime.handle_set_info(registration, &NO_HINTS).is_err();
        assert_eq!(refused, required == Safety::AsyncSignalSafe);
        CALLS.fetch_add(1, Ordering::SeqCst);
    });
    producer
        .runtime
        .register_callback(
            registration,
            Safety::AsyncSignalSafe,
            &NO_HINTS,
            Some(callback),
        )
        .unwrap();
    // SAFETY: the handler raises only; nothing else in this program uses SIGUSR2.
    #[expect(unsafe_code, reason = "a signal handler")]
    unsafe {
        libc::signal(libc::SIGUSR2, handle as *const () as libc::sighandler_t)
    };
    for round in 0..200 {
        // SAFETY: to this thread, which has a handler.
        #[expect(unsafe_code, reason = "a signal")]
        unsafe {
            libc::raise(libc::SIGUSR2)
        };
        producer.raise(Safety::None, 1);
        assert_eq!(CALLS.load(Ordering::SeqCst), 2 * (round + 1));
    }
}

#[test]
fn runtimes_know_nothing_of_each_other() {
    let (one, two) = (producer(), producer());
    let diary = Diary::default();
    let registration = one.register();
    one.note(registration, Safety::None, &diary);
    two.raise(Safety::None, 1);
    assert!(diary.read().is_empty());
    assert_eq!(
        two.runtime.handle_free(registration, NO_FREE),
        Err(Error::InvalidHandle)
    );
    assert!(std::ptr::eq(Runtime::process(), Runtime::process()));
}

#[test]
fn a_panic_in_a_callback_leaves_everything_in_order() {
    let producer = producer();
    let registration = producer.register();
    let callback = Callback::new(|_, _, _| panic!("the tool's fault"));
    producer
        .runtime
        .register_callback(registration, Safety::None, &NO_HINTS, Some(callback))
        .unwrap();
    for _ in 0..20 {
        let raise = std::panic::AssertUnwindSafe(|| producer.raise(Safety::None, 1));
        assert!(std::panic::catch_unwind(raise).is_err());
    }
    let diary = Diary::default();
    let noted = diary.clone();
    let free = move |_: Registration, _: Safety| noted.write("freed");
    producer
        .runtime
        .handle_free(registration, Some(free))
        .unwrap();
    assert_eq!(diary.read(), ["freed"]);
}

/// What a closure of a tool does when it is called.
fn panicking(runtime: &Runtime, registration: Registration, calls: &Arc<AtomicU64>) {
    let calls = Arc::clone(calls);
    let callback = Callback::new(move |_, _, _| {
        if calls.fetch_add(1, Ordering::SeqCst).is_multiple_of(2) {
            panic!("of a tool");
        }
    });
    let level = Safety::AsyncSignalSafe;
    runtime
        .register_callback(registration, level, &NO_HINTS, Some(callback))
        .unwrap();
}

#[test]
fn a_panic_of_a_callback_is_resumed_by_the_raise_when_all_were_called() {
    let producer = producer();
    let (first, second) = (producer.register(), producer.register());
    let calls = [Arc::default(), Arc::default()];
    panicking(&producer.runtime, first, &calls[0]);
    panicking(&producer.runtime, second, &calls[1]);
    let panics = |work: &dyn Fn()| {
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        let panic = outcome.expect_err("a panic");
        assert_eq!(panic.downcast_ref(), Some(&"of a tool"));
    };
    let counts = || [0, 1].map(|index: usize| calls[index].load(Ordering::SeqCst));
    panics(&|| producer.raise(Safety::AsyncSignalSafe, 1));
    assert_eq!(counts(), [1, 1]);
    // No callback runs any more, and the panic is over.
    assert!(producer.runtime.can_change());
    producer.raise(Safety::AsyncSignalSafe, 2);
    assert_eq!(counts(), [2, 2]);
    // Instances that wait are all delivered, and then the panic is resumed.
    for number in 3..6 {
        let values = [Value::Int(number)];
        let raising = Raising::default();
        let raised = producer
            .event
            .raise_deferred(&producer.source, raising, &values);
        raised.unwrap();
    }
    panics(&|| {
        producer.source.deliver(Safety::None);
    });
    assert_eq!((counts(), producer.source.pending()), ([5, 5], 0));
    assert!(producer.runtime.can_change());
    // The free callback runs in the call: no thread is inside.
    let frees = Arc::new(AtomicU64::new(0));
    let here = Arc::clone(&frees);
    panics(&|| {
        let frees = Arc::clone(&here);
        let free = move |_, _| {
            frees.fetch_add(1, Ordering::SeqCst);
            panic!("of a tool");
        };
        let _ = producer.runtime.handle_free(first, Some(free));
    });
    assert_eq!(frees.load(Ordering::SeqCst), 1);
    assert!(!producer.runtime.is_registered(first));
}
