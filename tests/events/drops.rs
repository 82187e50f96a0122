//! Which events are dropped, and when drop handlers are called (MPI 4.1 §16.3.8.5).

use std::sync::{Arc, Mutex};

use annals_recorder::events::{
    Callback, Dropped, EventTypeSpec, Info, Raising, Registration, Safety, SourceSpec, Value,
};

use crate::support::{Diary, producer};

const NO_HINTS: Info = Info::new();

#[test]
fn the_handler_is_called_before_the_next_event_of_the_source() {
    let producer = producer();
    let diary = Diary::default();
    let registration = producer.register();
    producer.note_drops(registration, &diary);
    producer.note(registration, Safety::Restricted, &diary);
    producer.raise(Safety::None, 1);
    producer.raise(Safety::Restricted, 2);
    producer.raise(Safety::ThreadSafe, 3);
    producer.raise(Safety::AsyncSignalSafe, 4);
    producer.raise(Safety::None, 5);
    producer.raise(Safety::None, 6);
    let expected = [
        "1 at Restricted in None",
        "2 at Restricted in Restricted",
        "dropped 2 of source 0 in None",
        "5 at Restricted in None",
        "6 at Restricted in None",
    ];
    assert_eq!(diary.read(), expected);
}

#[test]
fn another_event_type_of_the_source_comes_behind_the_handler_too() {
    let producer = producer();
    let runtime = &producer.runtime;
    let diary = Diary::default();
    let dropped = producer.register();
    producer.note_drops(dropped, &diary);
    producer.note(dropped, Safety::None, &diary);
    let other = runtime
        .add_event_type(&EventTypeSpec::new("other"))
        .unwrap();
    let listener = runtime
        .handle_alloc(other.index(), None, &NO_HINTS)
        .unwrap();
    let noted = diary.clone();
    let callback = Callback::new(move |_, _, _| noted.write("other"));
    runtime
        .register_callback(listener, Safety::None, &NO_HINTS, Some(callback))
        .unwrap();
    let clock = producer.clock.read();
    let second = runtime
        .add_source(&SourceSpec::ordered("second").clock(clock))
        .unwrap();

    producer.raise(Safety::ThreadSafe, 3);
    // Another source's events say nothing about this one's.
    other.raise(&second, Safety::None, &[]).unwrap();
    assert_eq!(diary.read(), ["other"]);
    other.raise(&producer.source, Safety::None, &[]).unwrap();
    assert_eq!(diary.read(), ["dropped 1 of source 0 in None", "other"]);
}

#[test]
fn the_handler_is_not_called_where_no_callback_may_be() {
    let producer = producer();
    let diary = Diary::default();
    let registration = producer.register();
    producer.note_drops(registration, &diary);
    producer.note(registration, Safety::Restricted, &diary);
    let other = producer.register();
    let noted = diary.clone();
    let callback = Callback::new(move |_, _, _| noted.write("careful"));
    producer
        .runtime
        .register_callback(other, Safety::AsyncSignalSafe, &NO_HINTS, Some(callback))
        .unwrap();
    for _ in 0..3 {
        producer.raise(Safety::AsyncSignalSafe, 1);
    }
    assert_eq!(diary.read(), ["careful"; 3]);
    producer.raise(Safety::Restricted, 2);
    let expected = [
        "dropped 3 of source 0 in Restricted",
        "2 at Restricted in Restricted",
        "careful",
    ];
    assert_eq!(diary.read(), expected);
}

#[test]
fn without_a_callback_nothing_is_told_until_one_comes() {
    let producer = producer();
    let diary = Diary::default();
    let registration = producer.register();
    producer.note_drops(registration, &diary);
    producer.raise(Safety::None, 1);
    producer.raise(Safety::None, 2);
    assert!(diary.read().is_empty());
    producer.note(registration, Safety::None, &diary);
    producer.raise(Safety::None, 3);
    let expected = ["dropped 2 of source 0 in None", "3 at None in None"];
    assert_eq!(diary.read(), expected);
}

#[test]
fn without_a_handler_nothing_is_counted() {
    let producer = producer();
    let diary = Diary::default();
    let registration = producer.register();
    producer.note(registration, Safety::None, &diary);
    producer.raise(Safety::AsyncSignalSafe, 1);
    producer.note_drops(registration, &diary);
    producer.raise(Safety::None, 2);
    assert_eq!(diary.read(), ["2 at None in None"]);
    // Taken away, what was counted is forgotten.
    producer.raise(Safety::AsyncSignalSafe, 3);
    let none = None::<fn(&Dropped)>;
    producer
        .runtime
        .set_dropped_handler(registration, none)
        .unwrap();
    producer.raise(Safety::AsyncSignalSafe, 4);
    producer.note_drops(registration, &diary);
    producer.raise(Safety::AsyncSignalSafe, 5);
    producer.raise(Safety::None, 6);
    assert_eq!(
        diary.read(),
        ["dropped 1 of source 0 in None", "6 at None in None"]
    );
}

#[test]
fn a_new_handler_takes_the_place_of_the_one_before() {
    let producer = producer();
    let (first, second) = (Diary::default(), Diary::default());
    let registration = producer.register();
    producer.note(registration, Safety::None, &first);
    producer.note_drops(registration, &first);
    producer.raise(Safety::ThreadSafe, 1);
    producer.note_drops(registration, &second);
    producer.raise(Safety::None, 2);
    assert_eq!(first.read(), ["2 at None in None"]);
    assert_eq!(second.read(), ["dropped 1 of source 0 in None"]);
}

#[test]
fn counts_are_since_the_last_call_and_stay_at_the_largest() {
    let producer = producer();
    let told = Arc::new(Mutex::new(Vec::<Dropped>::new()));
    let registration = producer.register();
    let handler = Arc::clone(&told);
    let handler = move |dropped: &Dropped| handler.lock().unwrap().push(dropped.clone());
    producer
        .runtime
        .set_dropped_handler(registration, Some(handler))
        .unwrap();
    let callback = Callback::new(|_, _, _| {}).user_data(42);
    producer
        .runtime
        .register_callback(registration, Safety::ThreadSafe, &NO_HINTS, Some(callback))
        .unwrap();
    let (event, source) = (&producer.event, &producer.source);
    for (reported, unheard) in [(3, 2), (0, 1), (u64::MAX, 1)] {
        event.report_dropped(source, None, reported);
        event.report_dropped(source, None, reported.min(1));
        (0..unheard).for_each(|_| producer.raise(Safety::AsyncSignalSafe, 1));
        producer.raise(Safety::Restricted, 2);
        let dropped = told.lock().unwrap().pop().unwrap();
        let reported = reported.saturating_add(reported.min(1));
        assert_eq!(dropped.reported, reported);
        assert_eq!(dropped.no_callback, [0, 0, 0, unheard]);
        assert_eq!(dropped.count, reported.saturating_add(unheard));
        assert_eq!((dropped.source, dropped.registration), (0, registration));
        assert_eq!(
            (dropped.required, dropped.user_data),
            (Safety::Restricted, 42)
        );
        assert!(told.lock().unwrap().is_empty());
    }
    producer.raise(Safety::Restricted, 2);
    assert!(told.lock().unwrap().is_empty());
}

#[test]
fn what_finds_no_room_to_wait_is_dropped_and_told() {
    let producer = producer();
    let diary = Diary::default();
    let registration = producer.register();
    producer.note_drops(registration, &diary);
    producer.note(registration, Safety::None, &diary);
    // The buffer takes four.
    for number in 1..=7 {
        let value = [Value::Int(number)];
        let now = Raising::default();
        producer
            .event
            .raise_deferred(&producer.source, now, &value)
            .unwrap();
    }
    assert_eq!(producer.source.deliver(Safety::None), 4);
    let mut expected = vec!["dropped 3 of source 0 in None".to_owned()];
    expected.extend((1..=4).map(|number| format!("{number} at None in None")));
    assert_eq!(diary.read(), expected);
}

#[test]
fn every_source_and_registration_has_counts_of_its_own() {
    let producer = producer();
    let runtime = &producer.runtime;
    let (one, two) = (Diary::default(), Diary::default());
    let (first, second) = (producer.register(), producer.register());
    for (registration, diary) in [(first, &one), (second, &two)] {
        producer.note_drops(registration, diary);
        producer.note(registration, Safety::None, diary);
    }
    let callback = Callback::new(|_, _, _| {});
    runtime
        .register_callback(second, Safety::ThreadSafe, &NO_HINTS, Some(callback))
        .unwrap();
    // A source that was added after the registrations counts, too.
    let clock = producer.clock.read();
    let late = runtime
        .add_source(&SourceSpec::unordered("late").clock(clock))
        .unwrap();
    producer.raise(Safety::ThreadSafe, 1);
    producer
        .event
        .raise(&late, Safety::AsyncSignalSafe, &[Value::Int(2)])
        .unwrap();
    producer.raise(Safety::None, 3);
    let told = "dropped 1 of source 0 in None".to_owned();
    assert_eq!(one.read(), [told, "3 at None in None".to_owned()]);
    assert_eq!(two.read(), ["3 at None in None"]);
    producer
        .event
        .raise(&late, Safety::None, &[Value::Int(4)])
        .unwrap();
    for diary in [one, two] {
        assert_eq!(
            diary.read(),
            ["dropped 1 of source 1 in None", "4 at None in None"]
        );
    }
}

#[test]
fn what_was_dropped_is_told_before_the_registration_goes() {
    let producer = producer();
    let diary = Diary::default();
    let registration = producer.register();
    producer.note_drops(registration, &diary);
    producer.note(registration, Safety::None, &diary);
    producer.raise(Safety::ThreadSafe, 1);
    let noted = diary.clone();
    let free = move |_: Registration, _: Safety| noted.write("freed");
    producer
        .runtime
        .handle_free(registration, Some(free))
        .unwrap();
    assert_eq!(diary.read(), ["dropped 1 of source 0 in None", "freed"]);
}
